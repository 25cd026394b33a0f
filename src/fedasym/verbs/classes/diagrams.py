"""`compare` for a `ClassPopulation`: which of two methods is more accurate over one or two parameters, and the boundary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedasym.algorithms import Algorithm
from fedasym.core.arrays import Array, flag
from fedasym.core.errors import InvalidInput
from fedasym.results.accuracy import TIE
from fedasym.results.diagram import Diagram
from fedasym.results.metric import ACCURACY
from fedasym.verbs.classes.methods import Method, resolve_methods
from fedasym.verbs.classes.prediction import accuracies
from fedasym.verbs.diagrams import OPTIONS, checked_axes, crossings
from fedasym.worlds.classes import RANGES, ClassPopulation
from fedasym.worlds.population import checked_clients

VARIABLE = (*RANGES, *OPTIONS)
MOST = 400  # points with more than two classes, which take about half a second each
EXACT, ROUGH = 1e-9, 1e-3  # relative precision of the boundary for two and for more classes


def compare_classes(
    first: str | Algorithm,
    second: str | Algorithm,
    world: ClassPopulation,
    vary: Mapping[str, ArrayLike],
    options: dict[str, Any],
) -> Diagram:
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
    title = " · ".join(world.facts(without=names))
    return Diagram(one.name, two.name, axes, a, b, edge, title, ACCURACY)
