"""What every lens returns: a risk per algorithm and the table that compares them. Results print themselves."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedasym.core.arrays import Array
from fedasym.core.errors import unknown
from fedasym.core.hooks import write_file
from fedasym.core.text import json_value as plain
from fedasym.core.text import number
from fedasym.results.result import Result

TIE = 1e-10  # losses closer than this, relatively, are the same limit
Row = TypeVar("Row")


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


class Named(Mapping[str, Row], Result):
    """What every table of results is: rows by name, which print themselves."""

    _kind: ClassVar[str] = "algorithm"  # of what the names are

    @abstractmethod
    def _held(self) -> dict[str, Row]: ...

    def __getitem__(self, name: str) -> Row:
        if name not in self._held():
            raise KeyError(str(unknown(self._kind, name, self._held())))
        return self._held()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held())

    def __len__(self) -> int:
        return len(self._held())


@dataclass(frozen=True)
class Comparison(Named[Risk]):
    """The risks of several algorithms on one population (or a grid, or one row per client); prints itself.

    >>> import fedasym as fa
    >>> table = fa.predict(fa.Population(radius=1, noise=0.5, aspect=2), ["fedavg", "ftfa", "rtfa"])
    >>> table.best, round(table["rtfa"].loss, 6), list(table)
    ('rtfa', 0.640388, ['fedavg', 'ftfa', 'rtfa'])
    """

    risks: dict[str, Risk]
    title: str = ""
    notes: tuple[str, ...] = ()
    rows: tuple[str, ...] = field(default=())  # what the entries of one-dimensional results stand for

    def _held(self) -> dict[str, Risk]:
        return self.risks

    @property
    def _drawn(self) -> tuple[str, ...]:
        """The column of standard errors, where there are any."""
        return ("error",) if any(risk.error is not None for risk in self.risks.values()) else ()

    @property
    def losses(self) -> Array:
        """All losses, algorithms along the first axis."""
        return np.stack([np.asarray(risk.loss, dtype=float) for risk in self.risks.values()])

    @property
    def best(self) -> str | NDArray[np.str_]:
        """The winner; of algorithms with the same loss the first. An array of names for a grid or several clients."""
        losses = self.losses
        close = losses <= losses.min(0) * (1 + TIE)
        winners = np.array(list(self.risks))[np.argmax(close, axis=0)]
        return str(winners) if winners.ndim == 0 else winners

    @property
    def ties(self) -> list[list[str]]:
        """Groups of algorithms whose losses agree everywhere."""
        losses = dict(zip(self.risks, self.losses, strict=True))
        return tied(losses, lambda one, other: np.allclose(losses[one], losses[other], rtol=TIE, atol=0))

    def table(self) -> list[dict[str, Any]]:
        """One record per algorithm (and entry, for arrays): feed it to any data frame."""
        rows = columns_of(self.risks, ("loss", "bias", "variance", "ridge", *self._drawn))
        return records(rows, lambda at: {"entry": self.rows[at[0]] if self.rows and len(at) == 1 else at})

    def to_json(self) -> str:
        """Full precision, stable keys: algorithms.<name>.{bias,variance,loss,ridge}, best, ties, notes."""
        rows = columns_of(self.risks, ("bias", "variance", "loss", "ridge", *self._drawn))
        return table_json(rows, self.best, {"ties": self.ties, "notes": self.notes})

    def plot(self, path: str | Path) -> Path:
        """Draw bias and variance of a single population to a file (PNG, SVG or PDF by its ending); returns where it is."""
        return write_file("draw comparison", self, path)

    def __str__(self) -> str:
        lines = [self.title, ""] if self.title else []
        lines += self._scalar_lines() if self.losses.ndim == 1 else self._array_lines()
        if self.notes:
            lines += ["", *self.notes]
        return "\n".join(lines)

    def _scalar_lines(self) -> list[str]:
        heads = {"loss": "loss", "bias": "bias", "variance": "variance", "ridge": "ridge", "error": "std. err."}
        columns = ("loss", *self._drawn, "bias", "variance", "ridge")
        lines = [f"  {'algorithm':<14}" + "".join(f"{heads[each]:>11}" for each in columns)]
        beside = marks(self.risks, self.ties, self.best, "lowest")
        for name, risk in self.risks.items():
            cells = "".join(f"{number(getattr(risk, each)):>11}" for each in columns)
            lines.append(f"{beside[name][0]} {name:<14}{cells}{beside[name][1]}")
        return lines

    def _array_lines(self) -> list[str]:
        names, losses = list(self.risks), self.losses
        if losses.ndim == 2 and losses.shape[1] <= 40:
            labels = self.rows or tuple(str(i) for i in range(losses.shape[1]))
            width = max(6, *(len(label) for label in labels)) + 2
            lines = ["loss".ljust(width) + "".join(f"{name:>13}" for name in names) + "   lowest"]
            for i, label in enumerate(labels):
                cells = "".join(f"{number(loss):>13}" for loss in losses[:, i])
                lines.append(f"{label:<{width}}{cells}   {self.best[i]}")
            return lines
        lines = [f"  {'algorithm':<14}{'lowest loss':>12}{'highest':>12}{'wins':>9}"]
        for name, loss in zip(names, losses, strict=True):
            wins = f"{np.mean(np.asarray(self.best) == name):.0%}"
            lines.append(f"  {name:<14}{number(loss.min()):>12}{number(loss.max()):>12}{wins:>9}")
        return lines


def tied(names: Iterable[str], agree: Callable[[str, str], bool]) -> list[list[str]]:
    """The names in groups of those that agree with the first of the group; none of a name alone."""
    groups: list[list[str]] = []
    for name in names:
        group = next((group for group in groups if agree(name, group[0])), None)
        if group is None:
            groups.append([name])
        else:
            group.append(name)
    return [group for group in groups if len(group) > 1]


def marks(names: Iterable[str], ties: list[list[str]], best: Any, most: str) -> dict[str, tuple[str, str]]:
    """What stands before and behind each row of a printed table: a star for the best, and whom it is the same as."""
    same = {name: group[0] for group in ties for name in group[1:]}
    return {
        name: (
            "*" if best in (name, same.get(name)) else " ",
            f"   same as {same[name]}" if name in same else f"   <- {most}" if name == best else "",
        )
        for name in names
    }


def columns_of(rows: Mapping[str, Any], keys: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Some of the numbers of each row, in that order."""
    return {name: {key: getattr(row, key) for key in keys} for name, row in rows.items()}


def records(rows: dict[str, dict[str, Any]], place: Callable[[tuple[int, ...]], dict[str, Any]]) -> list[dict[str, Any]]:
    """One record per row (and entry, for arrays, with its `place`), whose shape is that of the first column."""
    return [
        {"algorithm": name} | (place(index) if index else {}) | {key: entry_of(value, index) for key, value in columns.items()}
        for name, columns in rows.items()
        for index in np.ndindex(np.shape(next(iter(columns.values()))))
    ]


def table_json(rows: dict[str, dict[str, Any]], best: Any, after: dict[str, Any], before: dict[str, Any] | None = None) -> str:
    """A table as JSON, in full precision: its rows, the best of them, and what else there is to be said of it."""
    import json

    algorithms = {name: {key: plain(value) for key, value in columns.items()} for name, columns in rows.items()}
    return json.dumps((before or {}) | {"algorithms": algorithms, "best": np.asarray(best).tolist()} | after, indent=2)


def entry_of(value: Any, index: tuple[int, ...]) -> float | None:
    """One entry of a number or array."""
    return None if value is None else float(np.asarray(value)[index] if np.ndim(value) else value)
