"""What `simulate` returns: for each algorithm what was simulated beside what the theory says; prints and draws itself."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput, NoFormula, ThresholdWarning
from fedasym.core.hooks import write_file
from fedasym.core.text import number
from fedasym.exact.draws import lay_out_population as laid_out
from fedasym.results.comparison import Named, Risk, entry_of, records, table_json
from fedasym.verbs.prediction import predict
from fedasym.verbs.sentences import how_many
from fedasym.verbs.simulation_plans import Setting

MODES = {"expectation": "exact given the features", "sampling": "sampled labels"}


@dataclass(frozen=True)
class Simulated:
    """One algorithm: its loss averaged over trials, the best and the worst trial, and the theory.

    Numbers for one population; arrays over what varies, or over the populations of a list. `predicted` is for this many
    clients, `limit` for infinitely many; NaN where no formula covers it. Bias and variance are None for sampled labels.

    >>> row = Simulated(1.02, 0.9, 1.1, 0.01, 0.5, 0.52, Risk(0.5, 0.5), Risk(0.4, 0.4))
    >>> round(row.deviation, 1)
    2.0
    """

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


@dataclass(frozen=True, eq=False)
class Simulation(Named[Simulated]):
    """Several algorithms simulated on the same clients; a mapping from names to `Simulated`.

    >>> import fedasym as fa
    >>> table = fa.simulate(fa.Population(1, 0.5, 2), dimension=40, clients=6, trials=2, algorithms=["fedavg", "pfedme"])
    >>> list(table), table.best, table["fedavg"].low <= table["fedavg"].loss <= table["fedavg"].high
    (['fedavg', 'pfedme'], 'pfedme', True)
    """

    rows: dict[str, Simulated]
    setting: Setting
    trials: int
    notes: tuple[str, ...] = ()

    def _held(self) -> dict[str, Simulated]:
        return self.rows

    @property
    def best(self) -> Any:
        """The algorithm with the lowest simulated loss; an array of names where losses are arrays."""
        winner = np.array(list(self.rows))[np.argmin(np.array([row.loss for row in self.rows.values()]), axis=0)]
        return str(winner) if winner.ndim == 0 else winner

    @property
    def labels(self) -> list[str]:
        """What the entries of arrays stand for; empty for a single population."""
        if self.setting.vary is not None:
            name, values = self.setting.vary
            return [f"{name} {value:g}" for value in values]
        return [] if self.setting.alike else [f"{i}: {each.brief}" for i, each in enumerate(self.setting.worlds)]

    @property
    def title(self) -> str:
        """What was simulated, in one line."""
        setting = self.setting
        varied = None if setting.vary is None else setting.vary[0]
        who = "a member" if setting.member else "a new client"
        if setting.alike:
            parts = setting.worlds[0].facts(without=(varied,))
            parts.append(f"seen by {who}" if varied == "clients" else how_many(np.array(setting.clients), setting.member))
        else:
            parts = [f"{sum(setting.clients)} clients of {len(setting.worlds)} kinds, seen by {who}"]
        parts += [f"dimension {setting.dimension}"] if varied != "dimension" else []
        parts += [f"{setting.features} features"] if setting.features != "gaussian" else []
        parts.append(f"{self.trials} trial{'s' if self.trials > 1 else ''}, {MODES[setting.mode]}")
        return " · ".join(parts)

    def table(self) -> list[dict[str, Any]]:
        """One record per algorithm (and entry, for arrays): feed it to any data frame."""
        field, values = self.setting.vary or ("entry", self.labels)
        return records({name: columns(row) for name, row in self.rows.items()}, lambda at: {field: values[at[0]]})

    def to_json(self) -> str:
        """Full precision, stable keys: algorithms.<name>.{loss,low,high,error,predicted,limit,...}, vary, best, notes."""
        rows = {name: columns(row) for name, row in self.rows.items()}
        vary = None if self.setting.vary is None else {self.setting.vary[0]: self.setting.vary[1]}
        return table_json(rows, self.best, {"notes": self.notes}, {"title": self.title, "vary": vary, "trials": self.trials})

    def plot(self, path: str | Path) -> Path:
        """Draw simulated points over the theory's lines to a file (PNG, SVG or PDF by its ending); returns where it is."""
        return write_file("draw simulation", self, path)

    def curve(self, name: str, at: Array) -> tuple[Array, Array]:
        """Prediction and limit of an algorithm over values of the parameter that varies; NaN where there is no formula."""
        if self.setting.vary is None:
            raise InvalidInput("nothing varies in this simulation: give vary to simulate")
        varied, setting = self.setting.vary[0], self.setting
        world = replace(laid_out(setting.worlds[0], setting.dimension)[0], aspect=setting.worlds[0].aspect)
        clients: Any = setting.clients[0]
        if varied == "clients":
            clients = np.round(at)
        elif varied != "dimension":
            setting = replace(setting, worlds=(world,)).at(varied, at)
            world = setting.worlds[0]
        (algorithm,) = (each for each in setting.algorithms if each.name == name)
        lines = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ThresholdWarning)
            for options in ({"clients": clients, "member": setting.member}, {}):
                try:
                    lines.append(np.asarray(predict(world, [algorithm], **options)[name].loss, dtype=float))
                except NoFormula:
                    lines.append(np.array(np.nan))
        return np.broadcast_to(lines[0], at.shape), np.broadcast_to(lines[1], at.shape)

    def __str__(self) -> str:
        heads = ("simulated", "best", "worst", "std. err.", "bias", "variance", "predicted", "off by", "limit", "ridge")
        labels = self.labels
        width = max(14, *(len(label) + 4 for label in labels)) if labels else 14
        lines = [self.title, "", "  " + "algorithm".ljust(width) + "".join(f"{head:>11}" for head in heads)]
        for name, row in self.rows.items():
            lines += [f"  {name}"] if labels else []
            for index in np.ndindex(np.shape(row.loss)):
                cells = {key: entry_of(value, index) for key, value in columns(row).items()}
                label = f"  {labels[index[0]]}" if index else name
                mark = "*" if np.asarray(self.best)[index] == name else " "
                lines.append(f"{mark} {label:<{width}}" + "".join(f"{shown(key, cells[key]):>11}" for key in cells))
        order = "" if "dimension" in (self.setting.vary or ()) else f" ({1 / self.setting.dimension:.2g})"
        told = f"* lowest loss. Off by: standard errors from the prediction, a limit that holds to order 1/dimension{order}."
        return "\n".join([*lines, "", told, *self.notes])


def columns(row: Simulated) -> dict[str, Any]:
    """The numbers of a row, in the order in which they are shown."""
    plain_ones = {key: getattr(row, key) for key in ("loss", "low", "high", "error", "bias", "variance")}
    theory = {"predicted": row.predicted.loss, "deviation": row.deviation, "limit": row.limit.loss}
    return plain_ones | theory | {"ridge": row.ridge}


def shown(key: str, value: float | None) -> str:
    """A cell of the printed table."""
    if value is None or np.isnan(value):
        return "-"
    return f"{value:+.1f} se" if key == "deviation" and np.isfinite(value) else number(value)
