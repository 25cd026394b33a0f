"""What every answer can do, what answers are compared by, and the table of a world's algorithms."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import import_package, unknown_name
from fedasym.core.numbers import (
    Array,
    TextTable,
    html_tables,
    json_value,
    latex_tables,
    notebook_text,
    number,
)
from fedasym.core.runtime import write_file

Row = TypeVar("Row")


def percent(value: Any) -> str:
    """A share in percent, to a hundredth; a dash where there is none."""
    return "-" if value is None or np.isnan(value) else f"{100 * float(value):.2f}%"


def four_places(value: Any) -> str:
    """A number to four places; a dash where there is none."""
    return "-" if value is None or np.isnan(value) else f"{float(value):.4f}"


class NumberColumn(NamedTuple):
    """One number of every row: its name, its heading, its width and its format.

    optional: left out where no row has it. needs: a number without which it is not shown.
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

    tie: values closer than this, losses relatively and shares absolutely, are the same limit.

    >>> ACCURACY.show(0.8125), LOSS.show(0.8125)
    ('81.25%', '0.8125')
    >>> LOSS.is_better(1.0, 2.0), ACCURACY.is_better(1.0, 2.0)
    (True, False)
    """

    name: str
    plural: str = field(repr=False)
    lower: bool
    share: bool
    tie: float
    columns: tuple[NumberColumn, ...] = field(repr=False)

    def is_better(self, one: Any, other: Any) -> Any:
        """Whether the first value is the better one, ties aside."""
        return one < other if self.lower else one > other

    def are_tied(self, one: Array, other: Array) -> NDArray[np.bool_]:
        """Where two values are the same limit."""
        with np.errstate(invalid="ignore"):
            near = self.tie if self.share else self.tie * np.minimum(one, other)
            return np.asarray((one == other) | (np.abs(one - other) <= near))

    def agree(self, one: Any, other: Any) -> bool:
        """Whether two values are the same limit everywhere."""
        near = {"rtol": 0.0, "atol": self.tie} if self.share else {"rtol": self.tie, "atol": 0.0}
        return bool(np.allclose(one, other, **near, equal_nan=True))

    def winners(self, names: list[str], values: Array) -> str | NDArray[np.str_]:
        """The first name with the best value (never NaN) of the first axis; an array for a grid."""
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
    def best_word(self) -> str:
        """The word for the best value."""
        return "lowest" if self.lower else "highest"


LOSS_COLUMNS = (
    NumberColumn("loss", "loss"),
    NumberColumn("error", "std. err.", optional=True),
    NumberColumn("bias", "bias"),
    NumberColumn("variance", "variance"),
    NumberColumn("ridge", "ridge"),
    NumberColumn("shared_ridge", "shared ridge", 14, optional=True),
    NumberColumn("mixture", "mixture", optional=True),
)
HIT_COLUMNS = (
    NumberColumn("accuracy", "accuracy", 10, percent),
    NumberColumn("log_loss", "log-loss"),
    NumberColumn("brier", "Brier", 10, four_places),
    NumberColumn("slope", "slope", 10, four_places),
    NumberColumn("ridge", "ridge"),
)
LOSS = Metric("loss", "losses", lower=True, share=False, tie=1e-10, columns=LOSS_COLUMNS)
ACCURACY = Metric("accuracy", "accuracies", lower=False, share=True, tie=1e-9, columns=HIT_COLUMNS)
Numbers = Mapping[str, Mapping[str, Any]]  # by row and column


class Result:
    """An answer that prints itself; subclasses say how it is tabled, drawn and written."""

    @abstractmethod
    def table(self) -> list[dict[str, Any]]:
        """Its rows, one record each: feed them to any data frame."""

    def frame(self) -> Any:
        """Its rows as a polars data frame."""
        frames = import_package("polars", "a data frame")
        return frames.DataFrame(self.table(), infer_schema_length=None)

    @abstractmethod
    def to_json(self) -> str:
        """Everything in full precision."""

    @abstractmethod
    def plot(self, path: str | Path) -> Path:
        """Draw it to a file; returns where it is."""

    def printed_tables(self) -> list[TextTable]:
        """Its rows as words, for a notebook and for LaTeX."""
        records = self.table()
        if not records:
            return []
        head = list(dict.fromkeys(name for record in records for name in record))
        rows = [[cell_text(record.get(name)) for name in head] for record in records]
        words = [isinstance(records[0].get(name), str) for name in head]
        return [TextTable(head, rows, left=words.index(False) if False in words else len(head))]

    def to_latex(self) -> str:
        """Its tables for a paper; they need the package booktabs."""
        return latex_tables(self.printed_tables())

    def _repr_html_(self) -> str:
        tables = self.printed_tables()
        if not tables or sum(len(table.rows) for table in tables) > MOST_ROWS:
            return notebook_text(self)
        title = getattr(self, "title", None) or str(self).partition("\n")[0]
        return html_tables(tables, str(title), getattr(self, "notes", ()))


MOST_ROWS = 60  # of a table in a notebook; more are shown as their printed summary


def cell_text(value: Any) -> str:
    """An entry of a table in words.

    >>> [cell_text(each) for each in (None, 0.123456789, 3, "ftfa", True)]
    ['-', '0.12346', '3', 'ftfa', 'True']
    """
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return "-"
    return number(value) if isinstance(value, float) else str(value)


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
            raise KeyError(str(unknown_name("algorithm", name, self.rows)))
        return self.rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def group_ties(names: Iterable[str], agree: Callable[[str, str], bool]) -> list[list[str]]:
    """The names in groups of those that agree with the first of the group; none of a name alone."""
    groups: list[list[str]] = []
    for name in names:
        group = next((each for each in groups if agree(name, each[0])), None)
        if group is None:
            groups.append(group := [])
        group.append(name)
    return [group for group in groups if len(group) > 1]


def records_of(
    rows: Numbers, place: Callable[[tuple[int, ...]], dict[str, Any]]
) -> list[dict[str, Any]]:
    """One record per row (and entry, for arrays, with its `place`), in the first column's shape."""
    return [
        {"algorithm": name}
        | (place(index) if index else {})
        | {key: entry_of(value, index) for key, value in columns.items()}
        for name, columns in rows.items()
        for index in np.ndindex(np.shape(next(iter(columns.values()))))
    ]


def table_json(
    rows: Numbers, best: Any, after: dict[str, Any], before: dict[str, Any] | None = None
) -> str:
    """A table as JSON in full precision: its rows, the best of them, and further notes."""
    import json  # only what is written needs it

    algorithms = {
        name: {key: json_value(value) for key, value in columns.items()}
        for name, columns in rows.items()
    }
    held = (before or {}) | {"algorithms": algorithms, "best": np.asarray(best).tolist()} | after
    return json.dumps(held, indent=2)


def entry_of(value: Any, index: tuple[int, ...]) -> float | None:
    """One entry of a number or array."""
    return None if value is None else float(np.asarray(value)[index] if np.ndim(value) else value)


LISTED = 40  # entries up to which a list of worlds or clients is printed one by one


@dataclass(frozen=True)
class Risk:
    """Test loss above the noise, E||theta_hat - theta_i||^2_Sigma = bias + variance; the ridge.

    Bias is the part that comes from the clients' differences (it scales with radius^2), variance
    the part that comes from label noise. Numbers for one world, arrays for a grid.

    >>> Risk(bias=0.5, variance=0.25).loss
    0.75
    """

    bias: float | Array
    variance: float | Array
    ridge: float | Array | None = None
    error: float | Array | None = None  # standard error, where clients were drawn
    shared_ridge: float | Array | None = None  # on the shared model, where it has one
    mixture: float | Array | None = None  # weight of the client's own model, in a mixture

    @property
    def loss(self) -> float | Array:
        """Bias + variance."""
        return self.bias + self.variance


@dataclass(frozen=True)
class Accuracy:
    """Scores of one algorithm on a client's fresh samples; numbers, or arrays for a grid.

    accuracy: the share of labels that it gets right.
    log_loss: the mean of -log(probability given to the label), in nats.
    brier: half of the squared distance between the probabilities and the label, E|e_y - p|^2/2,
        between 0 and 1 for any number of classes; for two classes the usual (y - p)^2.
    slope: multiply the logits by it to calibrate them; below 1 they are over-confident.
    ridge: at which it was reached; step, time: of a single gradient step, of early stopping. None
        where an algorithm has no such number: scores of least squares are no probabilities.

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
    """Several algorithms on one population, grid or list of clients: risks or accuracies.

    references: rows that are no algorithms but ceilings (with classes, `bayes` and `truth`), and
    what each is; they are never the `best`.

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
        """The winner, or the first of equals; an array of names for a grid or several clients."""
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
        known = {name for row in rows for name, value in vars(row).items() if value is not None}
        return [each for each in self.metric.columns if not each.optional or each.name in known]

    def _numbers(self) -> dict[str, dict[str, Any]]:
        return {
            name: {each.name: getattr(row, each.name) for each in self.columns}
            for name, row in self.rows.items()
        }

    def table(self) -> list[dict[str, Any]]:
        """One record per algorithm (and entry, for arrays): feed it to any data frame."""
        labels = dict(enumerate(self.labels))
        return records_of(self._numbers(), lambda at: {"entry": labels.get(at[0], at)})

    def to_json(self) -> str:
        """Full precision: algorithms.<name>.{loss,...} or .{accuracy,...}, best, ties, notes."""
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
        heads = "".join(f"{each.head:>{each.width}}" for each in self.columns)
        lines = [f"  {'algorithm':<14}{heads}"]
        for name, numbers in self._numbers().items():
            told = f"   <- {self.metric.best_word}" if name == self.best else ""
            if name in self.references:
                told = f"   ceiling: {self.references[name]}"
            elif name in same:
                told = f"   same as {same[name]}"
            mark = "*" if self.best in (name, same.get(name)) else " "
            cells = "".join(each.cell(numbers) for each in self.columns)
            lines.append(f"{mark} {name:<14}{cells}{told}")
        return lines

    def printed_tables(self) -> list[TextTable]:
        """The numbers of one world as they are printed; those of several one by one."""
        if self.stack().ndim != 1:
            return super().printed_tables()
        shown = self.columns
        head = ["algorithm", *(each.head for each in shown)]
        rows = [
            [name, *(each.cell(numbers).strip() for each in shown)]
            for name, numbers in self._numbers().items()
        ]
        return [TextTable(head, rows)]

    def _entry_lines(self, values: Array) -> list[str]:
        """A few worlds or clients: one line for each."""
        labels = self.labels or tuple(str(i) for i in range(values.shape[1]))
        width = max(6, *(len(label) for label in labels)) + 2
        heads = "".join(f"{name:>13}" for name in self.rows)
        lines = [self.metric.name.ljust(width) + heads + f"   {self.metric.best_word}"]
        for i, label in enumerate(labels):
            cells = "".join(f"{self.metric.show(value):>13}" for value in values[:, i])
            lines.append(f"{label:<{width}}{cells}   {self.best[i]}")
        return lines

    def _grid_lines(self, values: Array) -> list[str]:
        """A grid: the extremes of every row, and how often it wins."""
        low, width = ("lowest", 10) if self.metric.share else ("lowest loss", 12)
        lines = [f"  {'algorithm':<14}{low:>{width}}{'highest':>{width}}{'wins':>9}"]
        for name, row in zip(self.rows, values, strict=True):
            share = f"{np.mean(np.asarray(self.best) == name):.0%}"
            wins = "ceiling" if name in self.references else share
            ends = (self.metric.show(end(row)) for end in (np.nanmin, np.nanmax))
            lines.append(f"  {name:<14}{''.join(f'{each:>{width}}' for each in ends)}{wins:>9}")
        return lines
