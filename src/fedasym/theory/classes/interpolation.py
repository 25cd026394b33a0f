"""Section 10: weights between the shared and the personal model, theta_bar + alpha (theta_hat - theta_bar)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedasym.core.arrays import Array
from fedasym.theory.classes.metrics import State
from fedasym.theory.classes.ridge import Fit
from fedasym.worlds.energies import Energies


class Interpolated(NamedTuple):
    """The state of the mixture, its weight alpha, and the overlap O = theta_hat' Sigma theta_0."""

    state: State
    alpha: Array
    overlap: Array


def interpolate(energies: Energies, c: ArrayLike, fit: Fit, alpha: ArrayLike | None = None) -> Interpolated:
    """theta_bar + alpha (theta_hat - theta_bar) at the given alpha (0: shared, 1: personal), or at the most accurate one.

    >>> from fedasym.theory.classes.ridge import solve
    >>> from fedasym.theory.classes.shared import shrinkage
    >>> one = Energies.isotropic(1.5, 1.5)
    >>> c = shrinkage(one)
    >>> round(float(interpolate(one, c, solve(one, gamma=2, lam=0.01, c=c)).alpha), 2)
    0.13
    """
    (gram, t), overlap = gram_of(energies, c, fit)
    if alpha is None:
        v0, v1 = best_weights(gram, t)
        total = v0 + v1
        mixed = np.divide(v1, total, out=np.ones(np.shape(total)), where=total > 0)
    else:
        mixed = np.asarray(alpha, dtype=float)
    return Interpolated(combined(1 - mixed, mixed, gram, t, energies.rho), mixed, overlap)


def added(energies: Energies, c: ArrayLike, fit: Fit, alpha: ArrayLike | None = None) -> Interpolated:
    """theta_bar + alpha theta_hat: for a theta_hat that is a direction without a length, as the max margin is.

    >>> from fedasym.theory.classes.convergence import converged
    >>> from fedasym.theory.classes.shared import shrinkage
    >>> one = Energies.isotropic(1.5, 1.5)
    >>> round(float(added(one, shrinkage(one), converged(one, gamma=2).fit).alpha), 9)
    0.387840338
    """
    (gram, t), overlap = gram_of(energies, c, fit)
    if alpha is None:
        v0, v1 = best_weights(gram, t)
        weight = np.divide(v1, v0, out=np.full(np.shape(v0), np.inf), where=v0 > 0)
    else:
        weight = np.asarray(alpha, dtype=float)
    alone = np.isinf(weight)  # the shared model is zero
    state = combined(np.where(alone, 0.0, 1.0), np.where(alone, 1.0, weight), gram, t, energies.rho)
    return Interpolated(state, weight, overlap)


def gram_of(energies: Energies, c: ArrayLike, fit: Fit) -> tuple[tuple[tuple[Array, Array, Array], tuple[Array, Array]], Array]:
    """Gram = [[c^2 B0, c O], [c O, Q]] and t = (c B0, T), with O = sum s f0 E0."""
    c, e = np.asarray(c, dtype=float), energies
    overlap = np.asarray((e.s * fit.f0 * e.e0).sum(-1))
    return ((c**2 * e.b0, c * overlap, fit.Q), (c * e.b0, fit.T)), overlap


def best_weights(gram: tuple[Array, Array, Array], t: tuple[Array, Array]) -> tuple[Array, Array]:
    """Gram^-1 t up to a factor: by the adjugate, whose scale is lost on normalising anyway."""
    return gram[2] * t[0] - gram[1] * t[1], gram[0] * t[1] - gram[1] * t[0]


def combined(v0: Array, v1: Array, gram: tuple[Array, Array, Array], t: tuple[Array, Array], rho: Array) -> State:
    """The rule v0 theta_bar + v1 theta_hat: T = v't, Q = v'Gram v."""
    return State.of(v0 * t[0] + v1 * t[1], v0**2 * gram[0] + 2 * v0 * v1 * gram[1] + v1**2 * gram[2], rho)
