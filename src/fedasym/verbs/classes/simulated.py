"""What `simulate` returns for a `ClassPopulation`: simulated scores beside predicted ones; prints and draws itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedasym.core.hooks import write_file
from fedasym.core.text import number
from fedasym.results.accuracy import Accuracy, fixed, percent
from fedasym.results.comparison import Named, table_json

COLUMNS = ("accuracy", "low", "high", "error", "log_loss", "brier", "slope")


@dataclass(frozen=True)
class SimulatedAccuracy:
    """One method: its scores averaged over trials, the extreme trials, standard errors, and the prediction.

    Models are scored exactly given their weights for two classes, and on fresh draws for more. None: no probabilities.
    """

    accuracy: float
    low: float
    high: float
    error: float
    log_loss: float | None
    log_loss_error: float | None
    brier: float | None
    slope: float | None
    predicted: Accuracy

    @property
    def deviation(self) -> float:
        """(accuracy - prediction) / standard error of the mean over trials."""
        return apart(self.accuracy, float(self.predicted.accuracy), self.error)

    @property
    def log_loss_deviation(self) -> float:
        """The same for the log-loss; NaN where there is none."""
        if self.log_loss is None or self.log_loss_error is None or self.predicted.log_loss is None:
            return np.nan
        return apart(self.log_loss, float(self.predicted.log_loss), self.log_loss_error)


def apart(mean: float, predicted: float, error: float) -> float:
    """A difference in standard errors; 0 for none at all."""
    gap = mean - predicted
    return 0.0 if abs(gap) < 1e-12 else gap / error if error > 0 else np.copysign(np.inf, gap)


@dataclass(frozen=True, eq=False)
class AccuracySimulation(Named[SimulatedAccuracy]):
    """Several methods simulated on the same clients; a mapping from names to simulated scores.

    >>> import fedasym as fa
    >>> world = fa.ClassPopulation(radius=1.1, centre=1.4, aspect=2.3)
    >>> table = fa.simulate(world, dimension=100, trials=3, algorithms=["fedavg", "rtfa"])
    >>> list(table), abs(table["rtfa"].accuracy - table["rtfa"].predicted.accuracy) < 0.03
    (['fedavg', 'rtfa'], True)
    """

    _kind: ClassVar[str] = "method"
    rows: dict[str, SimulatedAccuracy]
    title: str
    trials: int
    dimension: int
    notes: tuple[str, ...] = ()

    def _held(self) -> dict[str, SimulatedAccuracy]:
        return self.rows

    @property
    def best(self) -> str:
        """The method with the highest simulated accuracy."""
        return max(self.rows, key=lambda name: self.rows[name].accuracy)

    def table(self) -> list[dict[str, Any]]:
        """One record per method: feed it to any data frame."""
        return [{"algorithm": name} | columns(row) for name, row in self.rows.items()]

    def to_json(self) -> str:
        """Full precision, stable keys: algorithms.<name>.{accuracy,low,high,error,log_loss,...,predicted,deviation}."""
        rows = {name: columns(row) for name, row in self.rows.items()}
        return table_json(rows, self.best, {"notes": self.notes}, {"title": self.title, "trials": self.trials})

    def plot(self, path: str | Path) -> Path:
        """Draw simulated accuracies with their trials over the predicted ones to a file; returns where it is."""
        return write_file("draw simulated accuracies", self, path)

    def __str__(self) -> str:
        heads = ("simulated", "best", "worst", "std. err.", "predicted", "off by", "log-loss", "predicted", "off by", "ridge")
        lines = [self.title, "", "  " + "method".ljust(14) + "".join(f"{head:>11}" for head in heads)]
        for name, row in self.rows.items():
            mark = "*" if name == self.best else " "
            cells = (
                percent(row.accuracy), percent(row.high), percent(row.low), percent(row.error),
                percent(row.predicted.accuracy), errors(row.deviation), fixed(row.log_loss),
                "-" if row.log_loss is None else fixed(row.predicted.log_loss), errors(row.log_loss_deviation),
                number(row.predicted.ridge),
            )  # fmt: skip
            lines.append(f"{mark} {name:<14}" + "".join(f"{cell:>11}" for cell in cells))
        told = "* highest accuracy. Off by: standard errors from the prediction, a limit that holds to order 1/dimension"
        return "\n".join([*lines, "", f"{told} ({1 / self.dimension:.2g}).", *self.notes])


def errors(value: float) -> str:
    """A deviation in standard errors."""
    return "-" if np.isnan(value) else f"{value:+.1f} se"


def columns(row: SimulatedAccuracy) -> dict[str, Any]:
    """The numbers of a row, in the order in which they are shown."""
    own = {key: getattr(row, key) for key in COLUMNS}
    theory = {"predicted": row.predicted.accuracy, "deviation": row.deviation, "predicted_log_loss": row.predicted.log_loss}
    return own | theory | {"log_loss_deviation": row.log_loss_deviation, "ridge": row.predicted.ridge}
