"""`predict` for a `ClassPopulation`: the accuracy of every method, from the formulas of `theory/classes`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from fedasym.algorithms import Algorithm
from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput, NoFormula, ThresholdWarning
from fedasym.results.accuracy import SCORES, Accuracy, AccuracyTable
from fedasym.theory.classes import metrics
from fedasym.verbs.classes import sentences
from fedasym.verbs.classes.binary import Worlds, answer
from fedasym.verbs.classes.methods import Method, resolve_methods
from fedasym.verbs.classes.multinomial import scores
from fedasym.verbs.classes.scores import scored
from fedasym.verbs.prediction import left_out
from fedasym.verbs.sentences import how_many
from fedasym.worlds.classes import ClassPopulation
from fedasym.worlds.population import checked_clients


def predict_classes(
    world: ClassPopulation,
    algorithms: Iterable[str | Algorithm] | str | Algorithm | None,
    ridge: ArrayLike | None,
    clients: ArrayLike | None,
    member: bool,
) -> AccuracyTable:
    """All methods on one population, or on each world of a grid; see `fedasym.predict`."""
    methods = resolve_methods(algorithms, ridge)
    m = None if clients is None else checked_clients(clients)
    shape = joint_shape(world, methods, m)
    worlds = flattened(world, shape, m, member)
    rows: dict[str, Accuracy] = {}
    missing: dict[str, list[str]] = {}
    same: dict[tuple[object, ...], Accuracy] = {}
    for method in methods:
        key = (method.kind, method.step, method.time, np.asarray(method.ridge, dtype=float).tobytes())
        try:
            if key not in same:
                same[key] = computed(method, world, worlds, shape)
                if np.all(np.isnan(same[key].accuracy)):
                    raise NoFormula("no solution was found here: give a larger ridge, or more clients")
        except NoFormula as reason:
            if algorithms is not None:
                raise NoFormula(f"{method.name}: {reason}") from None
            missing.setdefault(str(reason), []).append(method.name)
            continue
        rows[method.name] = same[key]
    notes = left_out(missing)
    if not rows:
        raise NoFormula(" ".join(notes))
    if lost := [name for name, row in rows.items() if np.any(np.isnan(row.accuracy))]:
        which = " and ".join(lost)
        notes.append(f"In part of the grid {which} are NaN: all samples together are separable, and the pooled fit has no end.")
    title = f"{world} · {how_many(worlds.m, member)}"
    table = AccuracyTable(rows, world, title, (), worlds.m, member)
    told, near = sentences.endings(world, [method for method in methods if method.name in rows])
    for note in near:
        warnings.warn(note, ThresholdWarning, stacklevel=3)
    notes = [*sentences.verdicts(table), *told, *near, *notes, *([sentences.UNUSED] if algorithms is None else [])]
    return AccuracyTable(rows, world, title, tuple(notes), worlds.m, member)


def joint_shape(world: ClassPopulation, methods: list[Method], m: Array | None) -> tuple[int, ...]:
    """The common shape of the world, the ridges and the numbers of clients."""
    ridges = [np.shape(method.ridge) for method in methods if method.ridge is not None]
    try:
        return np.broadcast_shapes(world.shape, () if m is None else m.shape, *ridges)
    except ValueError:
        raise InvalidInput(f"ridge or clients do not broadcast with the population's shape {world.shape}") from None


def flattened(world: ClassPopulation, shape: tuple[int, ...], m: Array | None, member: bool) -> Worlds:
    """The worlds along one axis."""
    gamma, eps = (np.broadcast_to(np.asarray(x, dtype=float), shape).reshape(-1) for x in (world.aspect, world.flips))
    count = None if m is None else np.broadcast_to(m, shape).reshape(-1)
    return Worlds(world.energies.broadcast(shape).flat(), gamma, eps, count, member)


def spread(method: Method, shape: tuple[int, ...]) -> Method:
    """The method with its ridge along the axis of worlds."""
    if method.ridge is None or np.ndim(method.ridge) == 0:
        return method
    return replace(method, ridge=np.broadcast_to(np.asarray(method.ridge, dtype=float), shape).reshape(-1))


def computed(method: Method, world: ClassPopulation, worlds: Worlds, shape: tuple[int, ...]) -> Accuracy:
    """The scores of one method in the shape of the answer."""
    if world.classes == 2:
        found = scored(answer(spread(method, shape), worlds), worlds.eps)
        return shaped([found], shape)
    ridges = None if method.ridge is None else np.broadcast_to(np.asarray(method.ridge, dtype=float), shape)
    found_all = [
        scores(
            method,
            world if world.shape == () else world.at(tuple(index[len(shape) - len(world.shape) :])),
            None if ridges is None else float(ridges[index]),
            worlds.m is not None,
        )
        for index in np.ndindex(shape)
    ]
    return shaped(found_all, shape)


def shaped(found: list[Accuracy], shape: tuple[int, ...]) -> Accuracy:
    """Scores along one axis (or a list of them) in the shape of the answer; plain numbers for a single world."""

    def boxed(name: str) -> float | Array | None:
        parts = [getattr(each, name) for each in found]
        if parts[0] is None:
            return None
        values = np.concatenate([np.atleast_1d(np.asarray(part, dtype=float)) for part in parts])
        return float(values[0]) if shape == () else values.reshape(shape)

    columns = [boxed(name) for name in (*SCORES, "step", "time")]
    assert columns[0] is not None
    return Accuracy(*columns)  # type: ignore[arg-type]


def accuracies(method: Method, world: ClassPopulation, shape: tuple[int, ...], m: Array | None, member: bool) -> Array:
    """The accuracy alone, over a grid: what a diagram needs."""
    worlds = replace(flattened(world, shape, m, member), rough=True)
    if world.classes > 2:
        return np.asarray(computed(method, world, worlds, shape).accuracy, dtype=float).reshape(shape)
    return np.asarray(metrics.accuracy(answer(spread(method, shape), worlds).state, worlds.eps)).reshape(shape)
