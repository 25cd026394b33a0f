"""What `simulate` returns: simulations beside the theory, by algorithm; trials in a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from fedasym.core.errors import InvalidInput, path_of
from fedasym.core.numbers import Array, number
from fedasym.core.runtime import replace_text
from fedasym.results import (
    LOSS,
    Accuracy,
    Metric,
    Named,
    NumberColumn,
    Risk,
    entry_of,
    four_places,
    percent,
    records_of,
    table_json,
)

FORMAT = "fedasym simulation 1"
# of a trial by algorithm and kind of client: bias and variance, or the loss alone
Losses = dict[str, list[list[float]]]
# of an algorithm: prediction and limit over what varies
Curve = Callable[[str, Array], tuple[Array, Array]]


def count_errors(value: float | None) -> str:
    """A deviation in standard errors."""
    if value is None or np.isnan(value):
        return "-"
    return f"{value:+.1f} se"


def finite_errors(value: float | None) -> str:
    """The same, but for an infinite one, which is a number like others."""
    return number_or_dash(value) if value is not None and np.isinf(value) else count_errors(value)


def number_or_dash(value: float | None) -> str:
    """A number, a dash where there is none."""
    return "-" if value is None or np.isnan(value) else number(value)


@dataclass(frozen=True)
class Simulated:
    """One algorithm: its loss averaged over trials, the best and the worst trial, and the theory.

    Numbers for one population; arrays over what varies, or over the populations of a list.
    `predicted` is for this many clients, `limit` for infinitely many; NaN where no formula covers
    it. Bias and variance are None for sampled labels.

    >>> row = Simulated(1.02, 0.9, 1.1, 0.01, 0.5, 0.52, Risk(0.5, 0.5), Risk(0.4, 0.4))
    >>> round(row.deviation, 1)
    2.0
    """

    shown: ClassVar[tuple[NumberColumn, ...]] = (
        NumberColumn("loss", "simulated", form=number_or_dash),
        NumberColumn("low", "best", form=number_or_dash),
        NumberColumn("high", "worst", form=number_or_dash),
        NumberColumn("error", "std. err.", form=number_or_dash),
        NumberColumn("bias", "bias", form=number_or_dash),
        NumberColumn("variance", "variance", form=number_or_dash),
        NumberColumn("predicted", "predicted", form=number_or_dash),
        NumberColumn("deviation", "off by", form=finite_errors),
        NumberColumn("limit", "limit", form=number_or_dash),
        NumberColumn("ridge", "ridge", form=number_or_dash),
    )
    loss: float | Array
    low: float | Array
    high: float | Array
    error: float | Array
    bias: float | Array | None
    variance: float | Array | None
    predicted: Risk
    limit: Risk
    ridge: float | Array | None = None

    @property
    def deviation(self) -> float | Array:
        """(loss - prediction) / standard error of the mean over trials."""
        with np.errstate(divide="ignore", invalid="ignore"):
            off = np.divide(np.subtract(self.loss, self.predicted.loss), self.error)
        return float(off) if np.ndim(off) == 0 else np.asarray(off)

    def numbers(self) -> dict[str, Any]:
        """Everything, in the order of records."""
        own = {
            key: getattr(self, key) for key in ("loss", "low", "high", "error", "bias", "variance")
        }
        theory = {
            "predicted": self.predicted.loss,
            "deviation": self.deviation,
            "limit": self.limit.loss,
        }
        return own | theory | {"ridge": self.ridge}


@dataclass(frozen=True)
class SimulatedAccuracy:
    """One algorithm: its scores averaged over trials, the extreme trials, standard errors, and the
    prediction.

    Models are scored exactly given their weights for two classes, and on fresh draws for more.
    None: no probabilities.
    """

    shown: ClassVar[tuple[NumberColumn, ...]] = (
        NumberColumn("accuracy", "simulated", form=percent),
        NumberColumn("high", "best", form=percent),
        NumberColumn("low", "worst", form=percent),
        NumberColumn("error", "std. err.", form=percent),
        NumberColumn("predicted", "predicted", form=percent),
        NumberColumn("deviation", "off by", form=count_errors),
        NumberColumn("log_loss", "log-loss", form=four_places),
        NumberColumn("predicted_log_loss", "predicted", form=four_places, needs="log_loss"),
        NumberColumn("log_loss_deviation", "off by", form=count_errors),
        NumberColumn("ridge", "ridge"),
    )
    accuracy: float
    low: float
    high: float
    error: float
    log_loss: float | None
    log_loss_error: float | None
    brier: float | None
    slope: float | None
    predicted: Accuracy

    @classmethod
    def of_trials(cls, predicted: Accuracy, found: Array) -> SimulatedAccuracy:
        """Trials (rows of accuracy, log-loss, Brier score, slope) as means and standard errors."""
        mean = found.mean(0)
        error = found.std(0, ddof=1) / np.sqrt(len(found)) if len(found) > 1 else np.full(4, np.nan)
        low, high = float(found[:, 0].min()), float(found[:, 0].max())
        loss, brier, slope = (None if np.isnan(x) else float(x) for x in mean[1:])
        spread = None if loss is None else float(error[1])
        return cls(
            float(mean[0]), low, high, float(error[0]), loss, spread, brier, slope, predicted
        )

    @property
    def deviation(self) -> float:
        """(accuracy - prediction) / standard error of the mean over trials."""
        return divide_gap(self.accuracy, float(self.predicted.accuracy), self.error)

    @property
    def log_loss_deviation(self) -> float:
        """The same for the log-loss; NaN where there is none."""
        if self.log_loss is None or self.log_loss_error is None or self.predicted.log_loss is None:
            return np.nan
        return divide_gap(self.log_loss, float(self.predicted.log_loss), self.log_loss_error)

    def numbers(self) -> dict[str, Any]:
        """Everything, in the order of records."""
        names = ("accuracy", "low", "high", "error", "log_loss", "brier", "slope")
        theory = {
            "predicted": self.predicted.accuracy,
            "deviation": self.deviation,
            "predicted_log_loss": self.predicted.log_loss,
            "log_loss_deviation": self.log_loss_deviation,
        }
        return {key: getattr(self, key) for key in names} | theory | {"ridge": self.predicted.ridge}


def divide_gap(mean: float, predicted: float, error: float) -> float:
    """A difference in standard errors; 0 for none at all."""
    gap = mean - predicted
    return 0.0 if abs(gap) < 1e-12 else gap / error if error > 0 else np.copysign(np.inf, gap)


Drawn = TypeVar("Drawn", bound=Simulated | SimulatedAccuracy)


@dataclass(frozen=True, eq=False)
class Simulation(Named[Drawn]):
    """Several algorithms simulated on the same clients: a mapping from names to simulated losses,
    or accuracies.

    vary: the parameter that varies and its values; labels: what the entries of arrays stand for.

    >>> import fedasym as fa
    >>> table = fa.simulate(
    ...     fa.Population(1, 0.5, 2),
    ...     dimension=40,
    ...     clients=6,
    ...     trials=2,
    ...     algorithms=["fedavg", "pfedme"],
    ... )
    >>> list(table), table.best, table["fedavg"].low <= table["fedavg"].loss <= table["fedavg"].high
    (['fedavg', 'pfedme'], 'pfedme', True)
    >>> world = fa.ClassPopulation(radius=1.1, centre=1.4, aspect=2.3)
    >>> table = fa.simulate(world, dimension=100, trials=3, algorithms=["fedavg", "rtfa"])
    >>> list(table), abs(table["rtfa"].accuracy - table["rtfa"].predicted.accuracy) < 0.03
    (['fedavg', 'rtfa'], True)
    """

    _kind: ClassVar[str] = "simulation"
    rows: dict[str, Drawn]
    title: str
    trials: int
    dimension: int
    notes: tuple[str, ...] = ()
    metric: Metric = LOSS
    vary: tuple[str, tuple[float, ...]] | None = None
    labels: tuple[str, ...] = ()
    lines: Curve | None = None

    @property
    def best(self) -> Any:
        """The algorithm with the best simulated value; names where values are arrays."""
        values = np.array([getattr(row, self.metric.name) for row in self.rows.values()])
        winner = np.array(list(self.rows))[
            (np.argmin if self.metric.lower else np.argmax)(values, axis=0)
        ]
        return str(winner) if winner.ndim == 0 else winner

    def _numbers(self) -> dict[str, dict[str, Any]]:
        return {name: row.numbers() for name, row in self.rows.items()}

    def table(self) -> list[dict[str, Any]]:
        """One record per algorithm (and entry, for arrays): feed it to any data frame."""
        field, values = self.vary or ("entry", self.labels)
        return records_of(self._numbers(), lambda at: {field: values[at[0]]})

    def to_json(self) -> str:
        """Full precision, stable keys: algorithms.<name>.{loss or
        accuracy,low,high,error,predicted,...}, vary, best, notes.
        """
        vary = None if self.vary is None else {self.vary[0]: self.vary[1]}
        before = {"title": self.title, "vary": vary, "trials": self.trials}
        return table_json(self._numbers(), self.best, {"notes": self.notes}, before)

    def curve(self, name: str, at: Array) -> tuple[Array, Array]:
        """Prediction and limit over the parameter that varies; NaN where there is no formula."""
        if self.lines is None:
            raise InvalidInput("nothing varies in this simulation: give vary to simulate")
        return self.lines(name, at)

    def __str__(self) -> str:
        columns = next(iter(self.rows.values())).shown
        width = max(14, *(len(label) + 4 for label in self.labels)) if self.labels else 14
        heads = "".join(f"{each.head:>{each.width}}" for each in columns)
        lines = [self.title, "", "  " + "algorithm".ljust(width) + heads]
        for name, numbers in self._numbers().items():
            lines += [f"  {name}"] if self.labels else []
            for index in np.ndindex(np.shape(numbers[self.metric.name])):
                cells = {key: entry_of(value, index) for key, value in numbers.items()}
                label = f"  {self.labels[index[0]]}" if index else name
                mark = "*" if np.asarray(self.best)[index] == name else " "
                lines.append(
                    f"{mark} {label:<{width}}" + "".join(each.cell(cells) for each in columns)
                )
        order = "" if "dimension" in (self.vary or ()) else f" ({1 / self.dimension:.2g})"
        told = (
            f"* {self.metric.best_word} {self.metric.name}. Off by: standard errors from the"
            " prediction, a limit that holds"
        )
        return "\n".join([*lines, "", f"{told} to order 1/dimension{order}.", *self.notes])


class Ledger:
    """Finished trials' losses by point and trial; with a path in a file that is always whole."""

    def __init__(self, path: str | Path | None, arguments: dict[str, Any]) -> None:
        # Through JSON and back, so that what is compared is what a file can hold.
        self.arguments = json.loads(json.dumps(arguments))
        self.path = None if path is None else path_of("save", path)
        self.trials: dict[str, Losses] = {} if self.path is None else self._read_trials(self.path)

    def _read_trials(self, path: Path) -> dict[str, Losses]:
        if not path.parent.exists():
            raise InvalidInput(
                f"save is {str(path)!r}: the folder {str(path.parent)!r} does not exist; make it"
                " first"
            )
        if not path.exists():
            return {}
        try:
            held = json.loads(path.read_text())
            known, trials = held["arguments"], held["trials"]
            if held["format"] != FORMAT or not isinstance(known, dict):
                raise ValueError
            if (
                len({shape_of(losses, len(self.arguments["world"])) for losses in trials.values()})
                > 1
            ):
                raise ValueError
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            OverflowError,
            RecursionError,
            OSError,
        ):
            raise self._foreign_error() from None
        other = [name for name in self.arguments if known.get(name) != self.arguments[name]]
        if other:
            raise InvalidInput(
                f"save is {str(path)!r}: this file holds a simulation with another"
                f" {' and '.join(other)}; name another file, or ask for the same again"
            )
        return dict(trials)

    def _foreign_error(self) -> InvalidInput:
        return InvalidInput(
            f"save is {str(self.path)!r}: this file is not a saved simulation; name another one"
        )

    def check(self, names: set[str]) -> None:
        """Refuse a file whose trials are of other algorithms than these."""
        if any(losses.keys() != names for losses in self.trials.values()):
            raise self._foreign_error()

    def get(self, point: int, trial: int) -> Losses | None:
        """The losses of a finished trial."""
        return self.trials.get(f"{point}.{trial}")

    def add(self, point: int, trial: int, losses: Losses) -> None:
        """One more finished trial."""
        self.trials[f"{point}.{trial}"] = losses
        self.write()

    def write(self, result: dict[str, Any] | None = None) -> None:
        """Write everything; there is no moment without a whole file."""
        if self.path is None:
            return
        held = {
            "format": FORMAT,
            "arguments": self.arguments,
            "trials": self.trials,
            "result": result,
        }
        try:
            replace_text(self.path, json.dumps(held))
        except OSError as reason:
            raise InvalidInput(
                f"save is {str(self.path)!r}: it cannot be written: {reason.strerror}"
            ) from None


def shape_of(losses: Any, kinds: int) -> tuple[Any, ...]:
    """The algorithms of a trial in a file, and how many numbers each has for a kind of clients; a
    `ValueError` for no trial.

    >>> shape_of({"fedavg": [[1.0, 0.5]], "ftfa": [[0.25, 0.0]]}, kinds=1)
    (2, 'fedavg', 'ftfa')
    """
    table = np.array(list(losses.values()))
    if table.shape[1:] not in ((kinds, 1), (kinds, 2)) or table.dtype.kind not in "iuf":
        raise ValueError("this is not a trial")
    return (table.shape[-1], *sorted(losses))
