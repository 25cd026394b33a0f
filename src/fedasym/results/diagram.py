"""Two algorithms over one or two parameters: who wins where, and the boundary between them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.arrays import Array
from fedasym.core.hooks import write_file
from fedasym.core.text import json_value as plain
from fedasym.core.text import number
from fedasym.results.metric import LOSS, Metric
from fedasym.results.result import Result


@dataclass(frozen=True, eq=False)
class Diagram(Result):
    """Losses (with classes, accuracies) of two algorithms over one or two parameters; prints itself and draws itself.

    `axes` maps each varied parameter to its values; `first_values` and `second_values` have one axis per parameter, in that
    order. `boundary` has one row per point where the winner changes, one column per parameter.

    >>> import fedasym as fa
    >>> world = fa.Population(radius=1, noise=0.5, aspect=2)
    >>> line = fa.compare("ftfa", "fedavg", world, vary={"noise": (0, 2, 50)})
    >>> line.boundary.round(6).tolist(), line.best
    ([[0.707107]], 'fedavg')
    >>> classes = fa.ClassPopulation(radius=1, centre=1, aspect=0.3)
    >>> line = fa.compare("local_ridge", "fedavg", classes, vary={"radius": (0.5, 3, 6)})
    >>> line.winner.tolist()[:2], line.boundary.round(2).tolist()
    (['fedavg', 'local_ridge'], [[0.99]])
    """

    first: str
    second: str
    axes: dict[str, Array]
    first_values: Array
    second_values: Array
    boundary: Array
    title: str
    metric: Metric = LOSS

    @property
    def winner(self) -> NDArray[np.str_]:
        """The name of the better one at each point; "tie" where they agree."""
        a, b = self.first_values, self.second_values
        with np.errstate(invalid="ignore"):
            ahead = np.where(self.metric.better(a, b), self.first, self.second)
        return np.where(self.metric.equal(a, b), "tie", ahead)

    @property
    def best(self) -> str:
        """The one that wins at more points, of equal ones the first."""
        return max((self.first, self.second), key=lambda name: int(np.sum(self.winner == name)))

    @property
    def gain(self) -> Array:
        """By how much the first is better: log2(second loss / first loss), 1 where it halves the loss; points of accuracy."""
        if self.metric.share:
            return np.asarray(100 * (self.first_values - self.second_values))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.log2(self.second_values / self.first_values)
        return np.where(self.first_values == self.second_values, 0.0, ratio)

    def table(self) -> list[dict[str, Any]]:
        """One record per point: the parameters, both values, the winner."""
        winner, values = self.winner, list(self.axes.values())
        return [
            {name: float(axis[i]) for name, axis, i in zip(self.axes, values, at, strict=True)}
            | {self.first: float(self.first_values[at]), self.second: float(self.second_values[at])}
            | {"winner": str(winner[at])}
            for at in np.ndindex(self.first_values.shape)
        ]

    def to_json(self) -> str:
        """Full precision: axes, losses or accuracies, and the boundary."""
        plural = {"loss": "losses", "accuracy": "accuracies"}[self.metric.name]
        held = {
            "first": self.first,
            "second": self.second,
            "axes": {name: plain(values) for name, values in self.axes.items()},
            plural: {"first": plain(self.first_values), "second": plain(self.second_values)},
            "boundary": plain(self.boundary) if self.boundary.size else [],
        }
        return json.dumps(held, indent=2)

    def plot(self, path: str | Path) -> Path:
        """Draw the diagram to a file (PNG, SVG or PDF by its ending) and return where it is."""
        role = "draw diagram of accuracies" if self.metric.share else "draw diagram"
        return write_file(role, self, path)

    def __str__(self) -> str:
        spans = ", ".join(f"{name} from {v.min():g} to {v.max():g}" for name, v in self.axes.items())
        opening = [self.title, "", f"{self.first} against {self.second} over {spans}:"]
        return "\n".join([*opening, *self._shares(), "", *self._ahead(), *boundary_lines(self)])

    def _shares(self) -> list[str]:
        """Who wins how often; with accuracies, between which values."""
        winner, lines = self.winner, []
        for name, values in ((self.first, self.first_values), (self.second, self.second_values)):
            share, span = float(np.mean(winner == name)), ""
            if self.metric.share:
                span = f", accuracy {self.metric.show(np.nanmin(values))} to {self.metric.show(np.nanmax(values))}"
            lines += [f"  {name:<12}wins {share:.1%}{span}"] if share > 0 or span else []
        tied = float(np.mean(winner == "tie"))
        return lines + ([f"  {'tie':<12}is {tied:.1%}"] if tied > 0 else [])

    def _ahead(self) -> list[str]:
        """With accuracies, by how many points."""
        if not self.metric.share:
            return []
        low, high = np.nanmin(self.gain), np.nanmax(self.gain)
        return [f"{self.first} is ahead by {low:+.2f} to {high:+.2f} percentage points."]


def boundary_lines(diagram: Diagram) -> list[str]:
    """The last lines: the boundary, or some of its points."""
    points, names = diagram.boundary, list(diagram.axes)
    if not points.size:
        return ["There is no boundary within this range."]
    shown = points[np.unique(np.linspace(0, len(points) - 1, 9).astype(int))]
    head = f"The boundary ({len(points)} points, {len(shown)} shown):" if len(names) == 2 else "They cross at:"
    return [head, *("  " + "  ".join(f"{name} {number(x)}" for name, x in zip(names, row, strict=True)) for row in shown)]
