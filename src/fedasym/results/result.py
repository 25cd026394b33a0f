"""What every answer can do, and what answers are compared by: a metric, its direction, its format."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedasym.core.arrays import Array
from fedasym.core.errors import import_package, unknown
from fedasym.core.hooks import write_file
from fedasym.core.text import json_value, notebook_text, number

Row = TypeVar("Row")


def percent(value: Any) -> str:
    """A share in percent, to a hundredth."""
    return "-" if value is None or np.isnan(value) else f"{100 * float(value):.2f}%"


def fixed(value: Any) -> str:
    """A number to four places, a dash where there is none."""
    return "-" if value is None or np.isnan(value) else f"{float(value):.4f}"


class NumberColumn(NamedTuple):
    """One number of every row: its name, its heading, its width and its format.

    optional: whether it is left out where no row has it. needs: a number without which it is not shown.
    """

    name: str
    head: str
    width: int = 11
    form: Callable[[Any], str] = number
    optional: bool = False
    needs: str = ""

    def cell(self, values: Mapping[str, Any]) -> str:
        """The number of a row as a table has it."""
        absent = self.needs and values[self.needs] is None
        return f"{'-' if absent else self.form(values[self.name]):>{self.width}}"


@dataclass(frozen=True)
class Metric:
    """A number by which algorithms are ranked, and the numbers that stand beside it.

    tie: values closer than this, relatively for losses and absolutely for shares, are the same limit.

    >>> ACCURACY.show(0.8125), LOSS.show(0.8125), LOSS.better(1.0, 2.0), ACCURACY.better(1.0, 2.0)
    ('81.25%', '0.8125', True, False)
    """

    name: str
    plural: str = field(repr=False)
    lower: bool
    share: bool
    tie: float
    columns: tuple[NumberColumn, ...] = field(repr=False)

    def better(self, one: Any, other: Any) -> Any:
        """Whether the first value is the better one, ties aside."""
        return one < other if self.lower else one > other

    def equal(self, one: Array, other: Array) -> NDArray[np.bool_]:
        """Where two values are the same limit."""
        with np.errstate(invalid="ignore"):
            near = self.tie if self.share else self.tie * np.minimum(one, other)
            return np.asarray((one == other) | (np.abs(one - other) <= near))

    def agree(self, one: Any, other: Any) -> bool:
        """Whether two values are the same limit everywhere."""
        near = {"rtol": 0.0, "atol": self.tie} if self.share else {"rtol": self.tie, "atol": 0.0}
        return bool(np.allclose(one, other, **near, equal_nan=True))

    def winners(self, names: list[str], values: Array) -> str | NDArray[np.str_]:
        """The first name whose value, along the first axis, is the best; an array of names for a grid.

        NaN is never the best.
        """
        worst = np.inf if self.lower else -np.inf
        values = np.where(np.isnan(values), worst, values)
        best = values.min(0) * (1 + self.tie) if self.lower else values.max(0) - self.tie
        close = values <= best if self.lower else values >= best
        found = np.array(names)[np.argmax(close, axis=0)]
        return str(found) if found.ndim == 0 else found

    def show(self, value: Any) -> str:
        """A value as tables have it; a dash where there is none."""
        if value is None or np.ndim(value):
            return "-"
        return percent(value) if self.share else number(value)

    @property
    def most(self) -> str:
        """The word for the best value."""
        return "lowest" if self.lower else "highest"


LOSS = Metric(
    "loss",
    "losses",
    lower=True,
    share=False,
    tie=1e-10,
    columns=(
        NumberColumn("loss", "loss"),
        NumberColumn("error", "std. err.", optional=True),
        NumberColumn("bias", "bias"),
        NumberColumn("variance", "variance"),
        NumberColumn("ridge", "ridge"),
    ),
)
ACCURACY = Metric(
    "accuracy",
    "accuracies",
    lower=False,
    share=True,
    tie=1e-9,
    columns=(
        NumberColumn("accuracy", "accuracy", 10, percent),
        NumberColumn("log_loss", "log-loss"),
        NumberColumn("brier", "Brier", 10, fixed),
        NumberColumn("slope", "slope", 10, fixed),
        NumberColumn("ridge", "ridge"),
    ),
)


class Result:
    """An answer that prints itself; a class that inherits from it says how it is tabled, drawn and written."""

    @abstractmethod
    def table(self) -> list[dict[str, Any]]:
        """Its rows, one record each: feed them to any data frame."""

    def frame(self) -> Any:
        """Its rows as a polars data frame."""
        return import_package("polars", "a data frame").DataFrame(self.table(), infer_schema_length=None)

    @abstractmethod
    def to_json(self) -> str:
        """Everything in full precision."""

    @abstractmethod
    def plot(self, path: str | Path) -> Path:
        """Draw it to a file; returns where it is."""

    def _repr_html_(self) -> str:
        return notebook_text(self)


class MetricResult(Result):
    """A result with a metric, by which it is compared, written and drawn."""

    metric: Metric
    _kind: ClassVar[str]  # what is drawn

    def plot(self, path: str | Path) -> Path:
        """Draw it to a file (PNG, SVG or PDF by its ending) and return where it is."""
        return write_file(f"draw {self._kind} of {self.metric.plural}", self, path)


class Named(Mapping[str, Row], MetricResult):
    """Rows by the names of algorithms."""

    rows: dict[str, Row]

    def __getitem__(self, name: str) -> Row:
        if name not in self.rows:
            raise KeyError(str(unknown("algorithm", name, self.rows)))
        return self.rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def group_ties(names: Iterable[str], agree: Callable[[str, str], bool]) -> list[list[str]]:
    """The names in groups of those that agree with the first of the group; none of a name alone."""
    groups: list[list[str]] = []
    for name in names:
        group = next((group for group in groups if agree(name, group[0])), None)
        if group is None:
            groups.append([name])
        else:
            group.append(name)
    return [group for group in groups if len(group) > 1]


def records_of(
    rows: Mapping[str, Mapping[str, Any]], place: Callable[[tuple[int, ...]], dict[str, Any]]
) -> list[dict[str, Any]]:
    """One record per row (and entry, for arrays, with its `place`), whose shape is that of the first column."""
    return [
        {"algorithm": name} | (place(index) if index else {}) | {key: entry_of(value, index) for key, value in columns.items()}
        for name, columns in rows.items()
        for index in np.ndindex(np.shape(next(iter(columns.values()))))
    ]


def table_json(
    rows: Mapping[str, Mapping[str, Any]],
    best: Any,
    after: dict[str, Any],
    before: dict[str, Any] | None = None,
) -> str:
    """A table as JSON, in full precision: its rows, the best of them, and what else there is to be said of it."""
    import json  # only what is written needs it

    algorithms = {name: {key: json_value(value) for key, value in columns.items()} for name, columns in rows.items()}
    held = (before or {}) | {"algorithms": algorithms, "best": np.asarray(best).tolist()} | after
    return json.dumps(held, indent=2)


def entry_of(value: Any, index: tuple[int, ...]) -> float | None:
    """One entry of a number or array."""
    return None if value is None else float(np.asarray(value)[index] if np.ndim(value) else value)
