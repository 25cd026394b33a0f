"""Section 4: with more than gamma* unknowns per sample a client's classes are separable, and the logistic fit has no end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, ndtr

from fedasym.core.arrays import Array
from fedasym.theory.classes.quadrature import CHUNK, graded
from fedasym.theory.roots import bracketed


class Threshold(NamedTuple):
    """gamma* and the minimiser t*: at the threshold MLE and max margin share the direction cos* = t*/sqrt(1+t*^2)."""

    gamma: Array
    tangent: Array


def threshold(rho: ArrayLike, eps: ArrayLike = 0.0) -> Threshold:
    """gamma*(rho) = min_t E[(Z2 - t y Z1)_+^2] = min_t 2 int p(rho u) phi_N(u) {(1+a^2) Phi(-a) - a phi_N(a)} du, a = tu.

    Depends on the covariance through rho alone. Convex in t: the root of the derivative.

    >>> [round(float(threshold(rho).gamma), 3) for rho in (0, 1, 2, 3, 5)]
    [0.5, 0.439, 0.345, 0.273, 0.185]
    """
    rho, eps = (np.asarray(x, dtype=float) for x in np.broadcast_arrays(rho, eps))
    r, flips = rho.reshape(-1), eps.reshape(-1)
    gamma, tangent = np.empty(r.size), np.empty(r.size)
    size = max(1, CHUNK // graded()[0].size)
    for i in range(0, r.size, size):
        gamma[i : i + size], tangent[i : i + size] = minimised(r[i : i + size], flips[i : i + size])
    return Threshold(gamma.reshape(rho.shape), tangent.reshape(rho.shape))


def minimised(rho: Array, eps: Array) -> tuple[Array, Array]:
    """`threshold` for a flat piece of a batch: (gamma*, t*)."""
    u, w = graded()
    density = 2 * w * np.exp(-(u**2) / 2) / np.sqrt(2 * np.pi)
    p = eps[:, None] + (1 - 2 * eps[:, None]) * expit(rho[:, None] * u)

    def uphill(t: Array) -> Array:
        a = t[:, None] * u
        bell = np.exp(-(a**2) / 2) / np.sqrt(2 * np.pi)
        # -E(Z-a)_+ where the label agrees with u, E(Z+a)_+ where it does not
        return np.asarray(((1 - p) * (bell + a * ndtr(a)) - p * (bell - a * ndtr(-a))) @ (density * u))

    high = np.ones(rho.size)
    while np.any(short := uphill(high) < 0):
        high[short] *= 2
        if high.max() > 1e6:
            break
    t = bracketed(uphill, np.zeros(rho.size), high, tolerance=1e-15)
    a = t[:, None] * u
    bell = a * np.exp(-(a**2) / 2) / np.sqrt(2 * np.pi)
    value = (p * ((1 + a**2) * ndtr(-a) - bell) + (1 - p) * ((1 + a**2) * ndtr(a) + bell)) @ density
    return value, t
