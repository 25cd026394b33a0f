"""Sections 12.1 and 12.2: finitely many clients share one pooled logistic fit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedasym.core.arrays import Array
from fedasym.theory.classes.metrics import State
from fedasym.theory.classes.ridge import Fit, solve
from fedasym.worlds.energies import Energies


class Pooled(NamedTuple):
    """The pooled fit as a member of the population sees it (`member`), and as a new client does (`new`)."""

    member: Fit
    new: State


def pooled(energies: Energies, gamma: ArrayLike, m: ArrayLike, mu: ArrayLike = 0.0, eps: ArrayLike = 0.0) -> Pooled:
    """12.1: FedAvg of m equal clients with a global ridge mu: the system at gamma/m with ED/m in its linear part.

    Without mu the pooled data must not be separable: gamma/m below a threshold like gamma*; else `member.diverged`.

    >>> from fedasym.theory.classes.metrics import accuracy
    >>> shared = pooled(Energies.isotropic(2, 1, s=[0.5, 3], h=[0.6, 0.4]), gamma=1, m=20)
    >>> round(float(accuracy(shared.member)), 6), round(float(accuracy(shared.new)), 6)
    (0.760628, 0.756396)
    """
    m = np.asarray(m, dtype=float)
    fit = solve(energies, np.asarray(gamma) / m, mu, eps=eps, own=1 / m)
    overlap = (energies.s * fit.f0 * energies.e0).sum(-1)
    return Pooled(fit, State.of(overlap, fit.Q, fit.rho))


def newcomer(
    energies: Energies, gamma: ArrayLike, lam: ArrayLike, m: ArrayLike, mu: ArrayLike = 0.0, eps: ArrayLike = 0.0
) -> Fit:
    """12.2: RTFA(lam) of a new client around a model that m other clients shared:

    c = M s R per atom, Ev = R^2 {(M s)^2 ED/m + (gamma/m) G s h}, from the pooled fit.

    >>> round(float(newcomer(Energies.isotropic(1.5, 1.5), gamma=2, lam=0.5, m=10).T), 9)
    2.577361144
    """
    e = energies
    fit = pooled(e, gamma, m, mu, eps).member
    gamma, m, mu = (np.asarray(x, dtype=float) for x in (gamma, m, mu))
    M, G, H = fit.M[..., None], fit.G[..., None], fit.H[..., None]
    R = first_stage(e, H, mu[..., None])
    ev = R**2 * ((M * e.s) ** 2 * e.ed / m[..., None] + (gamma / m)[..., None] * G * e.s * e.h)
    return solve(e, gamma, lam, eps=eps, centre=fit.f0, ev=ev, own=np.ones_like(fit.T))


def first_stage(energies: Energies, H: Array, mu: Array) -> Array:
    """R = 1/(Hh s + mu), 0 in directions that samples do not see."""
    reach = H * energies.s + mu
    return np.divide(1.0, reach, out=np.zeros(reach.shape), where=reach > 0)
