"""Limits for infinitely many clients (theorems 1 to 4 and corollary 1 of the paper, corrected; one function each).

In the limit only the client stage matters, and whether anything was shared: the server stage does not appear here.
"""

from __future__ import annotations

import numpy as np

from fedasym.core.arrays import Array
from fedasym.theory.transforms import CHUNK, kappa, slope_from, sums
from fedasym.theory.worlds import Worlds

Parts = tuple[Array, Array]  # bias, variance


def kept(world: Worlds) -> Parts:
    """The shared model itself: B = r^2 sum g s, V = 0 (corollary 1)."""
    return world.r2 * world.spread, np.zeros_like(world.r2)


def interpolated(world: Worlds) -> Parts:
    """The nearest interpolant, or least squares below the threshold: `shrunk` at ridge 0 (theorems 1 and 3)."""
    return shrunk(world, np.zeros_like(world.r2))


def shrunk(world: Worlds, ridge: Array) -> Parts:
    """Ridge towards the shared model (theorems 2 and 4), equation (3):

    B = r^2 kappa' kappa^2 sum g s/(s+kappa)^2,   V = sigma^2 aspect df2(kappa) kappa' = sigma^2 (kappa' - 1).
    """
    gamma, spectrum = world.gamma, world.spectrum
    k = kappa(ridge, gamma, spectrum)
    infinite = np.isinf(k)
    safe = np.where(infinite, spectrum.mean, k)
    at = sums(safe, spectrum)
    growth = slope_from(at, safe, np.where(infinite, 0, ridge), gamma, spectrum)
    with np.errstate(invalid="ignore"):
        bias = np.where(k == 0, 0.0, world.r2 * growth * safe * drag(world, safe, at.mixed))
        variance = np.where(world.s2 == 0, 0.0, world.s2 * gamma * at.df2 * growth)
    if np.any(infinite):
        bias[infinite], variance[infinite] = (part[infinite] for part in kept(world))
    return bias, variance


def drag(world: Worlds, k: Array, isotropic: Array) -> Array:
    """Kappa sum_k g s/(s+kappa)^2, the displacement's share that ridge leaves; `isotropic`: its value at g = h."""
    if world.isotropic:
        return isotropic
    s = world.spectrum.values
    if world.g.shape[0] > 1:
        s, g = np.broadcast_to(s, world.g.shape), world.g
        return np.asarray((g * s * k[:, None] / np.where(s > 0, s + k[:, None], 1.0) ** 2).sum(-1))
    seen = s > 0
    s, g = s[seen], world.g[0, seen]
    size = max(1, CHUNK // s.size)
    parts = [((part / (s + part) ** 2) * s) @ g for part in np.split(k[:, None], range(size, k.size, size))]
    return np.concatenate(parts)
