"""Infinitely many clients: the client stage decides. The server stage does not appear: that is the finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedasym.algorithms.average import Descend, Flow, Interpolate, Keep
from fedasym.algorithms.penalties import Ridge
from fedasym.algorithms.stages import ClientStage
from fedasym.core.arrays import Array
from fedasym.theory.limits import Parts, interpolated, kept, shrunk
from fedasym.theory.ridges import bayes_ridge, best_ridge
from fedasym.theory.worlds import Worlds

if TYPE_CHECKING:
    from fedasym.theory.paths import Filter

Answer = tuple[Array, Array, Array | None]  # bias, variance, ridge


def limit(stage: ClientStage, world: Worlds, ridge: Array | None) -> Answer:
    """Limiting risk at the given ridge or (None) the best: theorems 1 to 4 and corollary 1, else by the stage's filter."""
    match stage:
        case Keep():
            return *kept(world), None
        case Interpolate():
            return *interpolated(world), None
        case Ridge():
            best = best_ridge(world) if ridge is None else ridge
            return *shrunk(world, best), best
    return *by_filter(stage, world), None


def by_filter(stage: ClientStage, world: Worlds, extra: Array | None = None) -> Parts:
    """Bias and variance of each world from what the stage keeps; `extra`: the shared model's noise per atom (P, K)."""
    rows = []
    for i in range(world.r2.size):
        one, noise = world.take(slice(i, i + 1)), None if extra is None else extra[i]
        stage = stage.filled(ridge=float(bayes_ridge(one)[0]))
        if isinstance(stage, Descend | Flow):
            from fedasym.theory.paths import stopped  # limits alone should start quickly

            rows.append(stopped(one, filter_of(stage), noise))
        else:
            from fedasym.theory.filters import filtered

            rows.append(filtered(stage, one, noise))
    return joined(rows)


def filter_of(stage: Descend | Flow) -> Filter:
    """The filter of an early-stopped client stage."""
    from fedasym.theory.paths import Filter  # only early stopping needs it: the limits alone should start quickly

    if isinstance(stage, Flow):
        return Filter(np.array([float(stage.time)]), None)
    return Filter(np.array([float(stage.steps)]), float(stage.local_step))


def joined(rows: list[Parts]) -> Parts:
    """Bias and variance of several worlds, one after the other."""
    bias, variance = zip(*rows, strict=True)
    return np.concatenate(bias), np.concatenate(variance)
