"""A client that starts from a shared model it had no part in: any client stage, given the model's error per direction.

The single-client formulas hold with the error's energy in place of the displacement's (equation 9).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedasym.algorithms.average import Interpolate, Keep
from fedasym.algorithms.penalties import Ridge
from fedasym.algorithms.stages import ClientStage
from fedasym.core.arrays import Array
from fedasym.theory.infinite import Answer, by_filter
from fedasym.theory.limits import interpolated, kept, shrunk
from fedasym.theory.ridges import best_ridge
from fedasym.theory.worlds import Worlds


def personalised(stage: ClientStage, world: Worlds, ridge: Array | None, bias: Array, noise: Array) -> Answer:
    """A client stage from a shared model whose error has the given energy per seen direction, independent of the client."""
    return fine_tuned(stage, world, ridge, over_atoms(bias, world), over_atoms(noise, world))


def fine_tuned(stage: ClientStage, world: Worlds, ridge: Array | None, shift: Array, blur: Array) -> Answer:
    """The same from energies times shares per atom: `shift` from displacements, `blur` from the others' noise."""
    one = np.ones_like(world.r2)
    away = Worlds(one, world.s2, world.gamma, shift, world.spectrum)
    noisy = Worlds(one, np.zeros_like(one), world.gamma, blur, world.spectrum)
    match stage:
        case Keep():
            parts, extra = kept(away), kept(noisy)[0]
        case Interpolate():
            parts, extra = interpolated(away), interpolated(noisy)[0]
        case Ridge():
            if ridge is None:
                ridge = best_ridge(replace(away, g=shift + blur))
            parts, extra = shrunk(away, ridge), shrunk(noisy, ridge)[0]
        case _:
            return *by_filter(stage, away, blur), None
    return parts[0], parts[1] + extra, ridge


def over_atoms(energy: Array, world: Worlds) -> Array:
    """Energy times share per atom, zero along atoms that samples cannot see."""
    out = np.zeros((energy.shape[0], world.spectrum.values.size))
    out[:, world.spectrum.seen] = energy * world.spectrum.positive[1]
    return out
