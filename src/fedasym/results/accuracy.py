"""What the verbs of classification return: the test scores of a method, and the table that compares them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedasym.core.arrays import Array
from fedasym.core.hooks import write_file
from fedasym.core.text import number
from fedasym.results.comparison import Named, columns_of, marks, records, table_json, tied
from fedasym.worlds.classes import ClassPopulation

TIE = 1e-9  # accuracies closer than this are the same limit
CEILINGS = {  # rows that are no methods
    "bayes": "best of all methods if theta_0 is known",
    "truth": "the client's own optimum, known",
}
SCORES = ("accuracy", "log_loss", "brier", "slope", "ridge")


@dataclass(frozen=True)
class Accuracy:
    """Scores of one method on fresh samples of a client; numbers for one world, arrays for a grid.

    accuracy: the share of labels that it gets right.
    log_loss: the mean of -log(probability given to the label), in nats.
    brier: half of the squared distance between the probabilities and the label, E|e_y - p|^2/2, between 0 and 1 for any
        number of classes; for two classes the usual (y - p)^2.
    slope: of calibration: multiply the logits by it to calibrate them; below 1 they are over-confident.
    ridge: at which it was reached, where the method has one; step, time: of a single gradient step, of early stopping.
    None where a method has no such number: scores of least squares are no probabilities.

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


@dataclass(frozen=True, eq=False)
class AccuracyTable(Named[Accuracy]):
    """The scores of several methods on one population of clients (or a grid of them); prints itself.

    The rows `bayes` and `truth` are ceilings: they are no methods, and never the `best`.

    >>> import fedasym as fa
    >>> table = fa.predict(fa.ClassPopulation(radius=1.1, centre=1.4, aspect=2.3), ["fedavg", "rtfa", "bayes"])
    >>> table.best, list(table), table["bayes"].accuracy >= table["rtfa"].accuracy
    ('rtfa', ['fedavg', 'rtfa', 'bayes'], True)
    """

    _kind: ClassVar[str] = "method"
    rows: dict[str, Accuracy]
    world: ClassPopulation
    title: str = ""
    notes: tuple[str, ...] = ()
    clients: Array | None = None
    member: bool = True

    def _held(self) -> dict[str, Accuracy]:
        return self.rows

    @property
    def methods(self) -> list[str]:
        """The rows that are methods, or all where only ceilings were asked for."""
        return [name for name in self.rows if name not in CEILINGS] or list(self.rows)

    @property
    def accuracies(self) -> Array:
        """All accuracies, rows along the first axis."""
        return np.stack([np.asarray(row.accuracy, dtype=float) for row in self.rows.values()])

    @property
    def best(self) -> str | NDArray[np.str_]:
        """The method with the highest accuracy, of equal ones the first; an array of names for a grid."""
        values = np.stack([np.asarray(self.rows[name].accuracy, dtype=float) for name in self.methods])
        values = np.where(np.isnan(values), -np.inf, values)  # a pooled fit without end, in part of a grid
        close = values >= values.max(axis=0) - TIE
        winners = np.array(self.methods)[np.argmax(close, axis=0)]
        return str(winners) if winners.ndim == 0 else winners

    @property
    def ties(self) -> list[list[str]]:
        """Groups of methods whose accuracies agree everywhere."""
        values = {name: self.rows[name].accuracy for name in self.methods}
        return tied(values, lambda one, other: np.allclose(values[one], values[other], rtol=0, atol=TIE, equal_nan=True))

    def table(self) -> list[dict[str, Any]]:
        """One record per row (and entry, for arrays): feed it to any data frame."""
        return records(columns_of(self.rows, SCORES), lambda at: {"entry": at})

    def to_json(self) -> str:
        """Full precision, stable keys: algorithms.<name>.{accuracy,log_loss,brier,slope,ridge}, best, ties, notes."""
        return table_json(columns_of(self.rows, SCORES), self.best, {"ties": self.ties, "notes": self.notes})

    def plot(self, path: str | Path) -> Path:
        """Draw accuracy against ridge and against training time, with the other rows as lines, to a PNG, SVG or PDF file."""
        return write_file("draw accuracies", self, path)

    def __str__(self) -> str:
        lines = [self.title, ""] if self.title else []
        lines += self._scalar_lines() if self.accuracies.ndim == 1 else self._array_lines()
        return "\n".join([*lines, "", *self.notes] if self.notes else lines)

    def _scalar_lines(self) -> list[str]:
        lines = [f"  {'method':<14}{'accuracy':>10}{'log-loss':>11}{'Brier':>10}{'slope':>10}{'ridge':>11}"]
        beside = marks(self.rows, self.ties, self.best, "highest")
        for name, row in self.rows.items():
            mark, told = beside[name]
            cells = f"{percent(row.accuracy):>10}{number(row.log_loss):>11}{fixed(row.brier):>10}{fixed(row.slope):>10}"
            told = f"   ceiling: {CEILINGS[name]}" if name in CEILINGS else told
            lines.append(f"{mark} {name:<14}{cells}{number(row.ridge):>11}{told}")
        return lines

    def _array_lines(self) -> list[str]:
        lines = [f"  {'method':<14}{'lowest':>10}{'highest':>10}{'wins':>9}"]
        for name, values in zip(self.rows, self.accuracies, strict=True):
            wins = f"{np.mean(np.asarray(self.best) == name):.0%}" if name not in CEILINGS else "ceiling"
            lines.append(f"  {name:<14}{percent(np.nanmin(values)):>10}{percent(np.nanmax(values)):>10}{wins:>9}")
        return lines


def percent(value: Any) -> str:
    """A share in percent, to a hundredth."""
    return "-" if value is None or np.isnan(value) else f"{100 * float(value):.2f}%"


def fixed(value: Any) -> str:
    """A number to four places, a dash where there is none."""
    return "-" if value is None or np.isnan(value) else f"{float(value):.4f}"
