"""Section 2: the shared logistic model of infinitely many clients is theta_bar = c theta_0, for every covariance."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedasym.core.arrays import Array
from fedasym.theory.classes.links import phi
from fedasym.theory.classes.metrics import State
from fedasym.theory.roots import bracketed
from fedasym.worlds.energies import Energies


def shrinkage(energies: Energies, eps: ArrayLike = 0.0) -> Array:
    """The c in (0, 1] with c phi(c sqrt B0) = (1-2 eps) phi(rho).

    >>> round(float(shrinkage(Energies.isotropic(1, 1))), 12)
    0.837919406882
    """
    return shrinkage_for((1 - 2 * np.asarray(eps)) * phi(energies.rho), energies.b0)


def shrinkage_for(f: Array, b0: Array) -> Array:
    """The root c of c phi(c sqrt B0) = f, whose left side increases; 0 where f = 0 (labels are coin tosses)."""
    f, b0 = (np.asarray(x, dtype=float) for x in np.broadcast_arrays(f, b0))
    size = np.sqrt(b0)
    safe = np.where(f > 0, f, 0.2)
    low, high = 3.999 * safe, np.full(f.shape, 1 + 1e-9)  # phi <= 1/4; equal clients have c = 1 up to rounding
    c = bracketed(lambda c: c * phi(c * size) - safe, low, high, tolerance=1e-15)
    return np.asarray(np.where(f > 0, np.minimum(c, 1.0), 0.0))


def fedavg(energies: Energies, eps: ArrayLike = 0.0) -> State:
    """The shared model on a client: T = c B0, Q = c^2 B0, cos = sqrt(B0)/rho."""
    return kept(energies, shrinkage(energies, eps))


def kept(energies: Energies, c: ArrayLike) -> State:
    """The model c theta_0 on a client."""
    c = np.asarray(c, dtype=float)
    b0, bd = energies.b0, energies.bd
    T, Q, rho, rest = np.broadcast_arrays(c * b0, c**2 * b0, energies.rho, np.where(c * b0 > 0, bd, b0 + bd))
    return State(T, Q, rho, rest)
