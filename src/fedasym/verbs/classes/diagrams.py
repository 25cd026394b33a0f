"""`compare` for a `ClassPopulation`: which of two methods is more accurate over one or two parameters, and the boundary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.algorithms import Algorithm
from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput
from fedasym.core.hooks import write_file
from fedasym.core.numbers import flag
from fedasym.core.text import preformatted
from fedasym.results.accuracy import TIE, percent
from fedasym.verbs.classes.methods import Method, resolve_methods
from fedasym.verbs.classes.prediction import accuracies
from fedasym.verbs.diagrams import OPTIONS, boundary_lines, checked_axes, crossings, diagram_json, opening
from fedasym.worlds.classes import RANGES, ClassPopulation
from fedasym.worlds.population import checked_clients, facts

VARIABLE = (*RANGES, *OPTIONS)
MOST = 400  # points with more than two classes, which take about half a second each
EXACT, ROUGH = 1e-9, 1e-3  # relative precision of the boundary for two and for more classes


@dataclass(frozen=True, eq=False)
class AccuracyDiagram:
    """Accuracies of two methods over one or two parameters; prints itself and draws itself.

    `axes` maps each varied parameter to its values; accuracies have one axis per parameter, in that order. `boundary` has one
    row per point where the winner changes, one column per parameter.

    >>> import fedasym as fa
    >>> world = fa.ClassPopulation(radius=1, centre=1, aspect=0.3)
    >>> line = fa.compare("local_ridge", "fedavg", world, vary={"radius": (0.5, 3, 6)})
    >>> line.winner.tolist(), line.boundary.round(2).tolist()
    (['fedavg', 'local_ridge', 'local_ridge', 'local_ridge', 'local_ridge', 'local_ridge'], [[0.99]])
    """

    first: str
    second: str
    axes: dict[str, Array]
    first_accuracy: Array
    second_accuracy: Array
    boundary: Array
    title: str

    @property
    def gain(self) -> Array:
        """Percentage points by which the first is more accurate."""
        return np.asarray(100 * (self.first_accuracy - self.second_accuracy))

    @property
    def winner(self) -> NDArray[np.str_]:
        """The name of the more accurate one at each point; "tie" where they agree."""
        return np.where(np.abs(self.gain) <= 100 * TIE, "tie", np.where(self.gain > 0, self.first, self.second))

    def to_json(self) -> str:
        """Full precision: axes, accuracies and the boundary."""
        return diagram_json(self, "accuracies", self.first_accuracy, self.second_accuracy)

    def plot(self, path: str | Path) -> Path:
        """Draw the diagram to a file (PNG, SVG or PDF by its ending) and return where it is."""
        return write_file("draw diagram of accuracies", self, path)

    def __str__(self) -> str:
        winner, lines = self.winner, opening(self)
        for name, accuracy in ((self.first, self.first_accuracy), (self.second, self.second_accuracy)):
            span = f"accuracy {percent(np.nanmin(accuracy))} to {percent(np.nanmax(accuracy))}"
            lines.append(f"  {name:<12}wins {np.mean(winner == name):.1%}, {span}")
        lines += [f"  tie         is {np.mean(winner == 'tie'):.1%}"] if np.any(winner == "tie") else []
        lines += ["", f"{self.first} is ahead by {np.nanmin(self.gain):+.2f} to {np.nanmax(self.gain):+.2f} percentage points."]
        return "\n".join([*lines, *boundary_lines(self)])

    def _repr_html_(self) -> str:
        return preformatted(self)


def compare_classes(
    first: str | Algorithm,
    second: str | Algorithm,
    world: ClassPopulation,
    vary: Mapping[str, ArrayLike],
    options: dict[str, Any],
) -> AccuracyDiagram:
    """Who is more accurate where; see `fedasym.compare`."""
    axes = checked_axes(vary, world, options, VARIABLE, ("ridge", "clients", "member"))
    names = list(axes)
    one, two = resolve_methods([first, second], options.get("ridge"))
    grid = np.meshgrid(*axes.values(), indexing="ij")
    if world.classes > 2 and grid[0].size > MOST:
        raise InvalidInput(
            f"vary asks for {grid[0].size} points: with {world.classes} classes give at most {MOST}, each takes about a second"
        )
    member = flag("member", options.get("member", True))

    def accuracy(method: Method, *values: Array) -> Array:
        given = dict(zip(names, values, strict=True))
        changed: dict[str, Any] = {name: value for name, value in given.items() if name not in OPTIONS}
        clients = given.get("clients", options.get("clients"))
        m = None if clients is None else checked_clients(clients)
        if "ridge" in given and method.ridged:
            method = replace(method, ridge=given["ridge"])
        return accuracies(method, replace(world, **changed), values[0].shape, m, member)

    def difference(*values: Array) -> Array:
        return accuracy(one, *values) - accuracy(two, *values)

    a, b = accuracy(one, *grid), accuracy(two, *grid)
    change = np.where(np.abs(a - b) <= TIE, 0.0, a - b)
    edge = crossings(axes, change, difference, EXACT if world.classes == 2 else ROUGH)
    return AccuracyDiagram(one.name, two.name, axes, a, b, edge, " · ".join(facts(world, without=names)))
