"""`compare`: who beats whom over one or two parameters, and the boundary between them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedasym.algorithms import Algorithm, find
from fedasym.core.arrays import Array, floats
from fedasym.core.errors import InvalidInput, ThresholdWarning, unknown
from fedasym.results.diagram import Diagram
from fedasym.theory.roots import find_roots as bracketed
from fedasym.theory.roots import first_whole_number as first_whole
from fedasym.verbs.prediction import predict
from fedasym.worlds.classes import ClassPopulation
from fedasym.worlds.population import RANGES, Population, check_world

OPTIONS = ("ridge", "clients")  # parameters of predict, rather than of the population, that can vary
VARIABLE = (*RANGES, *OPTIONS)


def compare(
    first: str | Algorithm,
    second: str | Algorithm,
    world: Population | ClassPopulation,
    *,
    vary: Mapping[str, ArrayLike],
    **options: Any,
) -> Diagram:
    """Who wins where: two algorithms over a grid of one or two parameters, each at its best ridge unless one is given.

    vary: parameter -> (start, stop, count) or a list of values; any of the population's numbers, ridge or clients.
    options: ridge, clients, member and maml_step, as for `predict`. Of a `ClassPopulation` it compares accuracies.

    The boundary solves loss(first) = loss(second) along each grid line to rounding. For FTFA against FedAvg with
    uncorrelated features it is noise^2 = radius^2 (aspect - 1)/aspect.

    >>> import fedasym as fa
    >>> world = fa.Population(radius=1, noise=0.5, aspect=2)
    >>> diagram = fa.compare("ftfa", "fedavg", world, vary={"noise": (0, 2, 21), "aspect": (1.1, 10, 12)})
    >>> diagram.winner.shape, str(diagram.winner[0, 0]), str(diagram.winner[-1, 0])
    ((21, 12), 'ftfa', 'fedavg')
    """
    if name_of(first) == name_of(second):
        raise InvalidInput(f"both algorithms are {name_of(first)}: name two different ones")
    if isinstance(world, ClassPopulation):
        from fedasym.verbs.classes.diagrams import compare_classes

        return compare_classes(first, second, world, vary, options)
    check_world(world)
    axes = checked_axes(vary, world, options, VARIABLE, ("ridge", "clients", "member", "maml_step"))
    names = list(axes)

    def losses(*values: Array) -> tuple[Array, Array]:
        given = dict(zip(names, values, strict=True))
        changed: dict[str, Any] = {name: value for name, value in given.items() if name not in OPTIONS}
        here = replace(world, **changed)
        more = {**options, **{name: value for name, value in given.items() if name in OPTIONS}}
        with warnings.catch_warnings():  # a diagram may cross thresholds on purpose
            warnings.simplefilter("ignore", ThresholdWarning)
            table = predict(here, [first, second], **more)
        one, two = (np.asarray(risk.loss, dtype=float) for risk in table.values())
        return np.broadcast_to(one, values[0].shape), np.broadcast_to(two, values[0].shape)

    grid = np.meshgrid(*axes.values(), indexing="ij")
    a, b = losses(*grid)
    edge = crossings(axes, a - b, lambda *values: np.subtract(*losses(*values)))
    return Diagram(name_of(first), name_of(second), axes, a, b, edge, " · ".join(world.facts(without=names)))


def crossings(axes: dict[str, Array], difference: Array, f: Callable[..., Array], tolerance: float = 1e-12) -> Array:
    """Points where the difference changes sign, solved along every grid line of every axis."""
    columns = list(axes.values())
    found = []
    for axis, values in enumerate(columns):
        along = np.moveaxis(difference, axis, 0)
        change = np.isfinite(along[:-1]) & np.isfinite(along[1:]) & (np.sign(along[:-1]) * np.sign(along[1:]) < 0)
        at = np.argwhere(change)
        if at.size == 0:
            continue
        others = [columns[other][at[:, i + 1]] for i, other in enumerate(o for o in range(len(columns)) if o != axis)]

        def line(x: Array, axis: int = axis, others: list[Array] = others) -> Array:
            return f(*others[:axis], x, *others[axis:])

        ends = values[at[:, 0]], values[at[:, 0] + 1]
        root = first_whole(line, *ends) if list(axes)[axis] == "clients" else bracketed(line, *ends, tolerance=tolerance)
        found.append(np.stack([*others[:axis], root, *others[axis:]], axis=1))
    if not found:
        return np.empty((0, len(columns)))
    points = np.concatenate(found)
    return points[np.lexsort(points.T[::-1])] if len(columns) == 1 else ordered(points, columns)


def ordered(points: Array, columns: list[Array]) -> Array:
    """Boundary points sorted along the axis over which they spread the most."""
    spread = [np.ptp(points[:, i]) / max(np.ptp(column), 1e-300) for i, column in enumerate(columns)]
    lead = int(np.argmax(spread))
    return points[np.lexsort((points[:, 1 - lead], points[:, lead]))]


def checked_axes(
    vary: Mapping[str, ArrayLike],
    world: Population | ClassPopulation,
    options: dict[str, Any],
    variable: tuple[str, ...],
    allowed: tuple[str, ...],
) -> dict[str, Array]:
    """The values of each varied parameter: one or two of them, known, and not fixed elsewhere."""
    if not isinstance(vary, Mapping) or not 1 <= len(vary) <= 2:
        raise InvalidInput('vary must name one or two parameters, such as {"noise": (0, 2, 200), "aspect": (1.1, 10, 200)}')
    if world.shape != ():
        raise InvalidInput("the population holds arrays: give plain numbers, and the ranges in vary")
    for name, value in options.items():
        if name not in allowed:
            raise unknown("option", name, allowed)
        if name in OPTIONS and (given := floats(value)) is not None and given.ndim:
            raise InvalidInput(f"{name} is {value!r}: give one number; for several, put {name} into vary")
    axes = {}
    for name, values in vary.items():
        if name not in variable:
            raise unknown("parameter in vary", name, variable)
        if name in options:
            raise InvalidInput(f"{name} is both varied and fixed: drop one of the two")
        array = np.unique(spread_of(name, values))
        if array.ndim != 1 or array.size < 2 or not np.all(np.isfinite(array)):
            raise InvalidInput(f"vary[{name!r}] must hold at least two different finite numbers; it has {array.size}")
        axes[name] = np.unique(np.round(array)) if name == "clients" else array
    return axes


def name_of(algorithm: str | Algorithm) -> str:
    """The name of an algorithm given by name, as module:name, or as an object."""
    return find(algorithm).name if isinstance(algorithm, Algorithm) or ":" in str(algorithm) else str(algorithm)


def spread_of(name: str, values: ArrayLike | tuple[Any, ...]) -> Array:
    """The values of a varied parameter: a list as it is, (start, stop, count) evenly spaced."""
    array = floats(values)
    if not isinstance(values, tuple) and array is not None:
        return array
    if array is None or array.shape != (3,) or not np.all(np.isfinite(array)) or array[2] != np.round(array[2]) or array[2] < 2:
        raise InvalidInput(f"vary[{name!r}] is {values!r}: give (start, stop, count) with a count of at least 2, or a list")
    return np.linspace(array[0], array[1], int(array[2]))
