"""What every lens returns: the numbers of each algorithm on a world, and the table that compares them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedasym.core.arrays import Array
from fedasym.results.result import (
    LOSS,
    Metric,
    Named,
    NumberColumn,
    group_ties,
    records_of,
    table_json,
)

LISTED = 40  # entries up to which a list of worlds or clients is printed one by one


@dataclass(frozen=True)
class Risk:
    """Test loss above the noise floor, E||theta_hat - theta_i||^2_Sigma = bias + variance, and the ridge it was reached at.

    Bias is the part that comes from the clients' differences (it scales with radius^2), variance the part that comes
    from label noise. Numbers for one world, arrays for a grid.

    >>> Risk(bias=0.5, variance=0.25).loss
    0.75
    """

    bias: float | Array
    variance: float | Array
    ridge: float | Array | None = None
    error: float | Array | None = None  # standard error of the loss, where it was found by drawing clients

    @property
    def loss(self) -> float | Array:
        """Bias + variance."""
        return self.bias + self.variance


@dataclass(frozen=True)
class Accuracy:
    """Scores of one algorithm on fresh samples of a client; numbers for one world, arrays for a grid.

    accuracy: the share of labels that it gets right.
    log_loss: the mean of -log(probability given to the label), in nats.
    brier: half of the squared distance between the probabilities and the label, E|e_y - p|^2/2, between 0 and 1 for any
        number of classes; for two classes the usual (y - p)^2.
    slope: of calibration: multiply the logits by it to calibrate them; below 1 they are over-confident.
    ridge: at which it was reached, where the algorithm has one; step, time: of a single gradient step, of early stopping.
    None where an algorithm has no such number: scores of least squares are no probabilities.

    >>> import fedasym as fa
    >>> best = fa.predict(fa.ClassPopulation(radius=1.1, centre=1.4, aspect=2.3))["rtfa"]
    >>> round(best.accuracy, 4), round(best.log_loss, 4), round(best.error, 4)
    (0.6978, 0.5726, 0.3022)
    """

    accuracy: float | Array
    log_loss: float | Array | None = None
    brier: float | Array | None = None
    slope: float | Array | None = None
    ridge: float | Array | None = None
    step: float | Array | None = None
    time: float | Array | None = None

    @property
    def error(self) -> float | Array:
        """The share of wrong labels."""
        return 1 - self.accuracy


Scores = TypeVar("Scores", bound=Risk | Accuracy)


@dataclass(frozen=True, eq=False)
class Comparison(Named[Scores]):
    """Several algorithms on one population (or a grid, or one entry per client): risks, or accuracies; prints itself.

    references: rows that are no algorithms but ceilings (with classes, `bayes` and `truth`), and what each is; they are
    never the `best`.

    >>> import fedasym as fa
    >>> table = fa.predict(fa.Population(radius=1, noise=0.5, aspect=2), ["fedavg", "ftfa", "rtfa"])
    >>> table.best, round(table["rtfa"].loss, 6), list(table)
    ('rtfa', 0.640388, ['fedavg', 'ftfa', 'rtfa'])
    >>> classes = fa.ClassPopulation(radius=1.1, centre=1.4, aspect=2.3)
    >>> table = fa.predict(classes, ["fedavg", "rtfa", "bayes"])
    >>> table.best, list(table), table["bayes"].accuracy >= table["rtfa"].accuracy
    ('rtfa', ['fedavg', 'rtfa', 'bayes'], True)
    """

    _kind: ClassVar[str] = "comparison"
    rows: dict[str, Scores]
    title: str = ""
    notes: tuple[str, ...] = ()
    metric: Metric = LOSS
    labels: tuple[str, ...] = ()  # what the entries of one-dimensional results stand for
    references: Mapping[str, str] = field(default_factory=dict)
    world: Any = None
    clients: Array | None = None
    member: bool = True

    @property
    def algorithms(self) -> list[str]:
        """The rows that are algorithms, or all where only references were asked for."""
        return [name for name in self.rows if name not in self.references] or list(self.rows)

    def stack(self, names: list[str] | None = None) -> Array:
        """The metric of all rows, or of some, which lie along the first axis."""
        rows = (self.rows[name] for name in names or self.rows)
        return np.stack([np.asarray(getattr(row, self.metric.name), dtype=float) for row in rows])

    @property
    def best(self) -> str | NDArray[np.str_]:
        """The winner; of algorithms with the same value the first. An array of names for a grid or several clients."""
        return self.metric.winners(self.algorithms, self.stack(self.algorithms))

    @property
    def ties(self) -> list[list[str]]:
        """Groups of algorithms whose values agree everywhere."""
        values = dict(zip(self.algorithms, self.stack(self.algorithms), strict=True))
        return group_ties(values, lambda one, other: self.metric.agree(values[one], values[other]))

    @property
    def columns(self) -> list[NumberColumn]:
        """The numbers that rows have."""
        rows = self.rows.values()
        return [
            each
            for each in self.metric.columns
            if not each.optional or any(getattr(row, each.name) is not None for row in rows)
        ]

    def _numbers(self) -> dict[str, dict[str, Any]]:
        return {name: {each.name: getattr(row, each.name) for each in self.columns} for name, row in self.rows.items()}

    def table(self) -> list[dict[str, Any]]:
        """One record per algorithm (and entry, for arrays): feed it to any data frame."""
        labels = self.labels
        return records_of(self._numbers(), lambda at: {"entry": labels[at[0]] if labels and len(at) == 1 else at})

    def to_json(self) -> str:
        """Full precision, stable keys: algorithms.<name>.{loss,bias,variance,ridge} or .{accuracy,...}, best, ties, notes."""
        return table_json(self._numbers(), self.best, {"ties": self.ties, "notes": self.notes})

    def __str__(self) -> str:
        lines = [self.title, ""] if self.title else []
        values = self.stack()
        if values.ndim == 1:
            lines += self._single_lines()
        elif values.ndim == 2 and values.shape[1] <= LISTED and not self.metric.share:
            lines += self._entry_lines(values)
        else:
            lines += self._grid_lines(values)
        return "\n".join([*lines, "", *self.notes] if self.notes else lines)

    def _single_lines(self) -> list[str]:
        """One world: all numbers of every row, and marks beside the best and its equals."""
        same = {name: group[0] for group in self.ties for name in group[1:]}
        lines = [f"  {'algorithm':<14}" + "".join(f"{each.head:>{each.width}}" for each in self.columns)]
        for name, numbers in self._numbers().items():
            told = f"   <- {self.metric.most}" if name == self.best else ""
            if name in self.references:
                told = f"   ceiling: {self.references[name]}"
            elif name in same:
                told = f"   same as {same[name]}"
            mark = "*" if self.best in (name, same.get(name)) else " "
            lines.append(f"{mark} {name:<14}" + "".join(each.cell(numbers) for each in self.columns) + told)
        return lines

    def _entry_lines(self, values: Array) -> list[str]:
        """A few worlds or clients: one line for each."""
        labels = self.labels or tuple(str(i) for i in range(values.shape[1]))
        width = max(6, *(len(label) for label in labels)) + 2
        heads = "".join(f"{name:>13}" for name in self.rows)
        lines = [self.metric.name.ljust(width) + heads + f"   {self.metric.most}"]
        for i, label in enumerate(labels):
            cells = "".join(f"{self.metric.show(value):>13}" for value in values[:, i])
            lines.append(f"{label:<{width}}{cells}   {self.best[i]}")
        return lines

    def _grid_lines(self, values: Array) -> list[str]:
        """A grid: the extremes of every row, and how often it wins."""
        low, width = ("lowest", 10) if self.metric.share else ("lowest loss", 12)
        lines = [f"  {'algorithm':<14}{low:>{width}}{'highest':>{width}}{'wins':>9}"]
        for name, row in zip(self.rows, values, strict=True):
            wins = "ceiling" if name in self.references else f"{np.mean(np.asarray(self.best) == name):.0%}"
            ends = (self.metric.show(end(row)) for end in (np.nanmin, np.nanmax))
            lines.append(f"  {name:<14}" + "".join(f"{each:>{width}}" for each in ends) + f"{wins:>9}")
        return lines
