"""Accuracy along a path of ridges, for figures: of one world, with many or few clients."""

from __future__ import annotations

import numpy as np

from fedasym.core.arrays import Array
from fedasym.results.accuracy import AccuracyTable
from fedasym.theory.classes import softmax_ridge as multinomial_ridge
from fedasym.verbs.classes import multinomial
from fedasym.verbs.classes.prediction import predict_classes
from fedasym.worlds.classes import ClassPopulation

FINE, COARSE = 61, 17  # ridges of a curve, of two and of more classes (or of a member of few clients)


def ridges_about(table: AccuracyTable) -> Array:
    """Ridges from far below to far above the best of the table's methods."""
    found = (table[name].ridge for name in ("rtfa", "local_ridge") if name in table)
    known = [float(value) for value in found if value is not None and 0 < float(value) < np.inf]
    centre = float(np.exp(np.mean(np.log(known)))) if known else 1.0
    slow = table.world.classes > 2 or table.clients is not None
    return np.geomspace(1e-3 * centre, 1e2 * centre, COARSE if slow else FINE)


def over_ridges(table: AccuracyTable, ridges: Array) -> dict[str, Array]:
    """The accuracy of rtfa and local_ridge at each ridge."""
    world = table.world
    if world.classes > 2:
        return {name: softmax_path(world, ridges, name == "rtfa") for name in ("rtfa", "local_ridge")}
    clients = None if table.clients is None else float(table.clients[0])
    found = predict_classes(world, ["rtfa", "local_ridge"], ridges, clients, table.member)
    return {name: np.asarray(row.accuracy, dtype=float) for name, row in found.items()}


def softmax_path(world: ClassPopulation, ridges: Array, shared: bool) -> Array:
    """More than two classes: one path of ridges, each solution from the one before."""
    fits = multinomial_ridge.softmax_ridge_path(
        world.energies, float(np.asarray(world.aspect)), ridges, world.classes, shared=shared
    )
    return np.array([float(np.asarray(multinomial.scored(fit).accuracy)) for fit in fits])
