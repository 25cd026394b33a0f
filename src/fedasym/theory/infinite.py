"""Infinitely many clients: one `match` over the client stages. The server stage does not appear: that is the finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedasym.algorithms import Client, Descend, Flow, Interpolate, Keep, Ridge
from fedasym.theory.limits import Parts, interpolated, kept, shrunk
from fedasym.theory.ridges import best_ridge
from fedasym.theory.spectra import Array
from fedasym.theory.worlds import Worlds

if TYPE_CHECKING:
    from fedasym.theory.paths import Filter

Answer = tuple[Array, Array, Array | None]  # bias, variance, ridge


def limit(stage: Client, world: Worlds, ridge: Array | None) -> Answer:
    """Limiting risk (theorems 1 to 4, corollary 1) at the given ridge or (None) the best."""
    match stage:
        case Keep():
            return *kept(world), None
        case Interpolate():
            return *interpolated(world), None
        case Ridge():
            best = best_ridge(world) if ridge is None else ridge
            return *shrunk(world, best), best
        case Descend() | Flow():
            from fedasym.theory.paths import stopped

            rows = [stopped(world.take(slice(i, i + 1)), filter_of(stage)) for i in range(world.r2.size)]
            return *joined(rows), None
        case _:
            raise AssertionError(stage)


def filter_of(stage: Descend | Flow) -> Filter:
    """The filter of an early-stopped client stage."""
    from fedasym.theory.paths import Filter  # only early stopping needs it: the limits alone should start quickly

    if isinstance(stage, Flow):
        return Filter(np.array([float(stage.time)]), None)
    return Filter(np.array([float(stage.steps)]), float(stage.step))


def joined(rows: list[Parts]) -> Parts:
    """Bias and variance of several worlds, one after the other."""
    bias, variance = zip(*rows, strict=True)
    return np.concatenate(bias), np.concatenate(variance)
