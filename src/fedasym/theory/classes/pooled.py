"""Sections 12.1, 12.2 and 12.4: finitely many clients share one pooled logistic fit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedasym.core.arrays import Array
from fedasym.theory.classes.fixedpoints import ACCEPTED, fixed_points, newton
from fedasym.theory.classes.metrics import State
from fedasym.theory.classes.quadrature import LEVEL
from fedasym.theory.classes.ridge import DIVERGED, Fit, solve
from fedasym.theory.classes.system import means, unknowns
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


def among(
    energies: Energies, gamma: ArrayLike, count: ArrayLike, weight: ArrayLike, mu: float = 0.0, eps: ArrayLike = 0.0
) -> State:
    """12.4: FedAvg of groups of clients that differ: count k_j of them with weight p_j each (sum k p = 1), gamma_j, ED_j.

    `energies` has one row per group, with a common spectrum and theta_0; so has the state of a member of each group.

    D = 1/(s sum k p Hh + mu), theta_0 has coefficient s D sum k p M, Delta_j has p_j M_j s D, noise D^2 s h sum k p^2 gamma G,
    and V_j = p_j gamma_j sum h s D.

    >>> two = Energies.isotropic(1.5, [1, 2])
    >>> [round(float(x), 6) for x in among(two, gamma=[1, 3], count=[5, 5], weight=[0.14, 0.06]).T]
    [2.316637, 2.365637]
    """
    e = energies
    groups = e.s.shape[0]
    g, k, p, flips = (np.broadcast_to(np.asarray(x, dtype=float), (groups,)) for x in (gamma, count, weight, eps))
    s, h, e0 = e.s[0], e.h[0], e.e0[0]
    rho = e.rho

    def swept(u: Array) -> tuple[Array, float, Array]:
        """One round: T_j, Q, V_j from u = (atanh cos_j, log V_j, log Q)."""
        each = np.stack([u[:groups], np.full(groups, u[-1]), u[groups:-1]], axis=1)
        H, G, M = means(each, rho, flips, LEVEL)
        reach = s * ((k * p) @ H) + mu
        D = np.divide(1.0, reach, out=np.zeros(reach.shape), where=reach > 0)
        f0, fj = s * D * ((k * p) @ M), (p * M)[:, None] * s * D
        T = (s * (f0 * e0 + fj * e.ed)).sum(-1)
        noise = D**2 * s * h * ((k * p**2 * g) @ G)
        Q = float((s * (f0**2 * e0 + (k[:, None] * fj**2 * e.ed).sum(0) + noise)).sum())
        return T, Q, p * g * (h * s * D).sum()

    def image(u: Array, _: object) -> Array:
        T, Q, V = swept(u[0])
        state = State.of(T, np.full(groups, Q), rho)
        out = unknowns(T, state.Q, V, state.rest)
        return np.concatenate([out[:, 0], out[:, 2], out[:1, 1]])[None]

    own = solve(e, (k * p) @ (p * g), max(mu, 0.1), eps=flips, own=p)  # near enough to start from
    first = unknowns(own.T, own.Q, own.V, own.rest)
    start = np.concatenate([first[:, 0], np.log(p * g * 5), [first[:, 1].mean()]])[None]
    found = fixed_points(image, start, stop=lambda u, _: np.asarray(u[:, -1] > DIVERGED))
    if ACCEPTED < found.residual[0] < np.inf:
        found = newton(image, found.u)
    if not found.residual[0] <= ACCEPTED:
        lost = np.full(groups, np.nan)
        return State(lost, lost, rho, lost)
    T, Q, _ = swept(found.u[0])
    return State.of(T, np.full(groups, Q), rho)
