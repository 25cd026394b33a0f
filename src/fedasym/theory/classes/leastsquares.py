"""Section 8: least squares on labels -1 and +1 (a linear probe): the squared-loss theory with a rescaled truth.

y = zeta x'theta_i + e with zeta = 2(1-2 eps) phi(rho) and Var e = 1 - zeta^2 rho^2, so that the shared model is zeta theta_0,
the displacement zeta Delta, and every limit of `fedasym.theory` applies; accuracy then comes from T and Q.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedasym.core.arrays import Array
from fedasym.theory.classes.links import phi
from fedasym.theory.classes.metrics import State
from fedasym.theory.limits import shrunk
from fedasym.theory.transforms import kappa
from fedasym.theory.worlds import Worlds
from fedasym.worlds.energies import Energies
from fedasym.worlds.spectra import Spectrum


class Probe(NamedTuple):
    """The linear problem behind the labels: their slope zeta and the variance s2 of what it leaves."""

    zeta: Array
    s2: Array


class LeastSquares(NamedTuple):
    """The state of the fit and its squared-loss risk, equation (3)."""

    state: State
    risk: Array


def probe(rho: ArrayLike, eps: ArrayLike = 0.0) -> Probe:
    """Their slope zeta = 2(1-2 eps) phi(rho), and s2 = 1 - zeta^2 rho^2.

    >>> [round(float(x), 9) for x in probe(np.sqrt(4.5))]
    [0.292117193, 0.616003956]
    """
    rho = np.asarray(rho, dtype=float)
    zeta = 2 * (1 - 2 * np.asarray(eps)) * phi(rho)
    return Probe(zeta, 1 - zeta**2 * rho**2)


def best_ridge(energies: Energies, gamma: ArrayLike, eps: ArrayLike = 0.0) -> Array:
    """lam* = s2 gamma/(zeta^2 r^2), of the least risk and the best accuracy for isotropic Delta; infinite at r = 0."""
    zeta, s2 = probe(energies.rho, eps)
    with np.errstate(divide="ignore"):
        return np.asarray(s2 * np.asarray(gamma) / (zeta**2 * energies.r2))


def least_squares(energies: Energies, gamma: ArrayLike, lam: ArrayLike, eps: ArrayLike = 0.0) -> LeastSquares:
    """Ridge towards the shared least-squares model; lam = 0 is fine-tuning to convergence, infinite lam the shared model.

    T = zeta (B0 + sum ED s^2/(s+kappa)),  Q = zeta^2 B0 + sum s/(s+kappa)^2 {zeta^2 s^2 ED + gamma (s2 + risk) s h}.
    For a method that shares nothing give `energies.alone`.

    >>> round(float(least_squares(Energies.isotropic(1.5, 1.5), gamma=2, lam=0).risk), 9)
    0.712002967
    """
    shape = np.broadcast_shapes(energies.batch, *(np.shape(x) for x in (gamma, lam, eps)))
    e = energies.broadcast(shape).flat()
    g, ridge, flips = (np.broadcast_to(np.asarray(x, dtype=float), shape).reshape(-1) for x in (gamma, lam, eps))
    zeta, s2 = probe(e.rho, flips)
    k, risk = np.empty(g.size), np.empty(g.size)
    covariances, which = np.unique(np.concatenate([e.s, e.h], axis=1), axis=0, return_inverse=True)
    for i, row in enumerate(covariances):
        rows = np.flatnonzero(which.reshape(-1) == i)
        values, weights = np.split(row, 2)
        spectrum = Spectrum(values, weights, "features")
        r2 = e.r2[rows]
        share = np.divide(e.ed[rows], r2[:, None], out=np.broadcast_to(weights, e.ed[rows].shape).copy(), where=r2[:, None] > 0)
        world = Worlds(zeta[rows] ** 2 * r2, s2[rows], g[rows], share, spectrum)
        k[rows] = kappa(ridge[rows], g[rows], spectrum)
        risk[rows] = sum(shrunk(world, ridge[rows]))
    s, h = e.s, e.h
    near = np.divide(s, s + k[:, None], out=np.zeros(s.shape), where=s > 0)  # s/(s+kappa)
    T = zeta * (e.b0 + (e.ed * s * near).sum(-1))
    noise = np.where(k == np.inf, 0.0, g * (h * near**2).sum(-1))
    with np.errstate(invalid="ignore"):
        Q = zeta**2 * e.b0 + zeta**2 * (s * near**2 * e.ed).sum(-1) + np.where(noise > 0, noise * (s2 + risk), 0.0)
    state = State.of(T, Q, e.rho)
    return LeastSquares(State(*(x.reshape(shape) for x in (state.T, state.Q, state.rho, state.rest))), risk.reshape(shape))
