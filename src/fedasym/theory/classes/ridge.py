"""Sections 2 to 4: the shared logistic model and ridge towards it, RTFA(lam), in batches.

The shared model of infinitely many clients is theta_bar = c theta_0, for every covariance. The fit
around it (around nothing, with c = 0: local ridge) is theta_hat ~ (Hh Sigma + lam)^-1 (lam centre +
M Sigma theta_i + sqrt(G/n) Sigma^1/2 N(0, I)), from means (A) over the samples and sums (B) over
the atoms of the spectrum: a system of three unknowns (T, Q, V), iterated in (atanh cos, log Q, log
V). With more than gamma* unknowns per sample a client's classes are separable, and without a ridge
the fit has no end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, ndtr

from fedasym.core.numbers import Array
from fedasym.theory import roots
from fedasym.theory.classes.metrics import (
    LEVEL,
    NODES_AT_ONCE,
    State,
    graded_nodes,
    logistic_means,
    phi,
)
from fedasym.theory.roots import ACCEPTED, TOLERANCE, FixedPoint, find_roots
from fedasym.worlds.classes import Energies


def shrinkage(energies: Energies, eps: ArrayLike = 0.0) -> Array:
    """The c in (0, 1] with c phi(c sqrt B0) = (1-2 eps) phi(rho).

    >>> round(float(shrinkage(Energies.isotropic(1, 1))), 12)
    0.837919406882
    """
    return shrinkage_at((1 - 2 * np.asarray(eps)) * phi(energies.rho), energies.b0)


def shrinkage_at(f: Array, b0: Array) -> Array:
    """The root c of c phi(c sqrt B0) = f, whose left side increases; 0 at f = 0 (coin tosses)."""
    f, b0 = (np.asarray(x, dtype=float) for x in np.broadcast_arrays(f, b0))
    size = np.sqrt(b0)
    safe = np.where(f > 0, f, 0.2)
    # phi <= 1/4; equal clients have c = 1 up to rounding
    low, high = (3.999 * safe, np.full(f.shape, 1 + 1e-9))
    c = find_roots(lambda c: c * phi(c * size) - safe, low, high, tolerance=1e-15)
    return np.asarray(np.where(f > 0, np.minimum(c, 1.0), 0.0))


def fedavg(energies: Energies, eps: ArrayLike = 0.0) -> State:
    """The shared model on a client: T = c B0, Q = c^2 B0, cos = sqrt(B0)/rho."""
    return shared_state(energies, shrinkage(energies, eps))


def shared_state(energies: Energies, c: ArrayLike) -> State:
    """The model c theta_0 on a client."""
    c = np.asarray(c, dtype=float)
    b0, bd = energies.b0, energies.bd
    rest = np.where(c * b0 > 0, bd, b0 + bd)
    return State(*np.broadcast_arrays(c * b0, c**2 * b0, energies.rho, rest))


class Threshold(NamedTuple):
    """gamma* and the minimiser t*: there MLE and max margin share cos* = t*/sqrt(1+t*^2)."""

    gamma: Array
    tangent: Array


def separability_threshold(rho: ArrayLike, eps: ArrayLike = 0.0) -> Threshold:
    """gamma*(rho) = min_t E[(Z2 - t y Z1)_+^2] = min_t 2 int p(rho u) phi_N(u) {(1+a^2) Phi(-a) - a
    phi_N(a)} du, a = tu.

    Depends on the covariance through rho alone. Convex in t: the root of the derivative.

    >>> [round(float(separability_threshold(rho).gamma), 3) for rho in (0, 1, 2, 3, 5)]
    [0.5, 0.439, 0.345, 0.273, 0.185]
    """
    rho, eps = (np.asarray(x, dtype=float) for x in np.broadcast_arrays(rho, eps))
    r, flips = rho.reshape(-1), eps.reshape(-1)
    gamma, tangent = np.empty(r.size), np.empty(r.size)
    size = max(1, NODES_AT_ONCE // graded_nodes()[0].size)
    for i in range(0, r.size, size):
        part = slice(i, i + size)
        gamma[part], tangent[part] = minimise_threshold(r[part], flips[part])
    return Threshold(gamma.reshape(rho.shape), tangent.reshape(rho.shape))


def minimise_threshold(rho: Array, eps: Array) -> tuple[Array, Array]:
    """`separability_threshold` for a flat piece of a batch: (gamma*, t*)."""
    u, w = graded_nodes()
    density = 2 * w * np.exp(-(u**2) / 2) / np.sqrt(2 * np.pi)
    p = eps[:, None] + (1 - 2 * eps[:, None]) * expit(rho[:, None] * u)

    def derivative(t: Array) -> Array:
        a = t[:, None] * u
        bell = np.exp(-(a**2) / 2) / np.sqrt(2 * np.pi)
        # E(Z-a)_+ where the label agrees with u, E(Z+a)_+ where it does not
        agree, differ = bell - a * ndtr(-a), bell + a * ndtr(a)
        return np.asarray(((1 - p) * differ - p * agree) @ (density * u))

    high = np.ones(rho.size)
    while high.max() <= 1e6 and np.any(short := derivative(high) < 0):
        high[short] *= 2
    t = find_roots(derivative, np.zeros(rho.size), high, tolerance=1e-15)
    a = t[:, None] * u
    bell = a * np.exp(-(a**2) / 2) / np.sqrt(2 * np.pi)
    value = (p * ((1 + a**2) * ndtr(-a) - bell) + (1 - p) * ((1 + a**2) * ndtr(a) + bell)) @ density
    return value, t


@dataclass(frozen=True, eq=False)
class RidgeSystem:
    """A flat batch of systems: energies (P, K); gamma, lam, eps, own (P,); centre c and Ev (P, K).

    `own`: the share of this client in the data, 1 for its own fit and 1/m for a pooled one (section
    12.1), where the other clients' displacements blur the fit and ED enters through `own`.
    """

    energies: Energies
    gamma: Array
    lam: Array
    c: Array
    ev: Array
    eps: Array
    own: Array

    def take(self, rows: NDArray[np.intp]) -> RidgeSystem:
        """Some of the systems, in order."""
        if rows.size == self.lam.size:
            return self
        fields = (self.gamma, self.lam, self.c, self.ev, self.eps, self.own)
        return RidgeSystem(self.energies.take(rows), *(x[rows] for x in fields))

    def means(self, u: Array, level: float) -> tuple[Array, Array, Array]:
        """(A) at u = (atanh cos, log Q, log V)."""
        return logistic_means(u, self.energies.rho, self.eps, level)

    def sums(self, H: Array, G: Array, M: Array) -> tuple[Array, Array, Array, Array, Array]:
        """(B): T, Q, V, what is left of Var(s), and the coefficient f0 of theta_0.

        The signal is sum of f0 theta_0 and fi Delta_i; Q - T^2/rho^2 is its spread about the mean
        coefficient, plus noise: in this form nothing cancels when the fit is nearly perfect.
        """
        e, lam = self.energies, self.lam[:, None]
        s, h = e.s, e.h
        H = H[:, None]
        G = G[:, None]
        M = M[:, None]
        own = self.own[:, None]
        reach = H * s + lam
        # atoms with s = 0 count for nothing
        R = np.divide(1.0, reach, out=np.zeros(reach.shape), where=reach > 0)
        f0, fi = R * (lam * self.c + M * s), R * M * s * own
        others = (R * M * s) ** 2 * e.ed * own * (1 - own)
        noise = (s * (R**2 * (self.gamma[:, None] * G * s * h + lam**2 * self.ev) + others)).sum(-1)
        V = self.gamma * (h * s * R).sum(-1)
        T = (s * (f0 * e.e0 + fi * e.ed)).sum(-1)
        total = e.b0 + e.bd
        mean = np.divide(T, total, out=np.zeros(T.shape), where=total > 0)[:, None]
        off = (s * (e.e0 * (f0 - mean) ** 2 + e.ed * (fi - mean) ** 2)).sum(-1) + noise
        Q = off + mean[:, 0] ** 2 * total
        return T, Q, V, np.divide(total * off, Q, out=total.copy(), where=Q > 0), f0

    def image(self, u: Array, level: float) -> Array:
        """One round of (A) and (B)."""
        T, Q, V, rest, _ = self.sums(*self.means(u, level))
        return unknowns(T, Q, V, rest)

    def start(self) -> Array:
        """Section 3.1's start: Q, T from the centre with floors, V = gamma sum h s/(.2 s + lam)."""
        e = self.energies
        b0 = (e.s * self.c * e.e0).sum(-1)
        Q = np.maximum((e.s * self.c**2 * e.e0).sum(-1), 0.2)
        cos = np.divide(b0, e.rho * np.sqrt(Q), out=np.zeros(b0.shape), where=e.rho > 0)
        cos = np.clip(cos, 0.3, 0.999)
        soft = 0.2 * e.s + self.lam[:, None]
        inside = np.divide(e.h * e.s, soft, out=np.zeros(soft.shape), where=soft > 0)
        V = self.gamma * inside.sum(-1)
        return np.stack([np.arctanh(cos), np.log(Q), np.log(V)], axis=1)


def unknowns(T: Array, Q: Array, V: Array, rest: Array) -> Array:
    """The unknowns (atanh cos, log Q, log V), with atanh cos = asinh(T/sqrt(Q rest))."""
    size = np.sqrt(Q * rest)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        tangent = np.divide(T, size, out=np.zeros(np.shape(T)), where=size > 0)
        return np.stack([np.arcsinh(tangent), np.log(Q), np.log(V)], axis=-1)


DIVERGED = 14.0  # log Q of a model that runs off to infinity
ROUGH, NEAR = 12.0, 1e-3  # level of a first search, and the residual that makes it worth polishing
DESCENT = 25  # ridges on the way down to a hard one


@dataclass(frozen=True, eq=False)
class RidgeFit(State):
    """A solved system: the state of theta_hat, its means, and its coefficient `f0` of theta_0.

    Where the fit `diverged` (lam = 0 on separable data) every number is NaN.
    """

    V: Array
    H: Array
    M: Array
    G: Array
    f0: Array
    residual: Array

    @property
    def diverged(self) -> NDArray[np.bool_]:
        """Where no finite solution was found."""
        return np.asarray(~(self.residual <= ACCEPTED))


def solve_ridge(
    energies: Energies,
    gamma: ArrayLike,
    lam: ArrayLike,
    c: ArrayLike = 0.0,
    eps: ArrayLike = 0.0,
    *,
    centre: Array | None = None,
    ev: Array | None = None,
    own: ArrayLike = 1.0,
    start: Array | None = None,
    level: float = LEVEL,
) -> RidgeFit:
    """RTFA(lam) around c theta_0, for settings that broadcast; infinite lam: the centre itself.

    `centre` gives c per atom instead, and `ev` the energy per atom of an error of the centre, both
    of shape (..., atoms).
    `start`: unknowns (..., 3) to begin from, as `unknowns` makes them.

    >>> fit = solve_ridge(Energies.isotropic(1, 1), gamma=0.2, lam=0.1, c=0.8379194068821895)
    >>> round(float(fit.T), 9), round(float(fit.Q), 9), round(float(fit.V), 9)
    (1.510549856, 1.630746252, 0.76119651)
    """
    shape = np.broadcast_shapes(energies.batch, *(np.shape(x) for x in (gamma, lam, c, eps, own)))
    energies = energies.broadcast(shape)

    def broadcast_flat(x: ArrayLike) -> Array:
        return np.broadcast_to(np.asarray(x, dtype=float), shape).reshape(-1)

    def atoms(x: Array) -> Array:
        return np.broadcast_to(x, energies.s.shape).reshape(-1, energies.s.shape[-1])

    around = atoms(np.asarray(c, dtype=float)[..., None] if centre is None else centre)
    blur = atoms(np.zeros(1) if ev is None else ev)
    problem = RidgeSystem(
        energies.flat(),
        broadcast_flat(gamma),
        broadcast_flat(lam),
        around,
        blur,
        broadcast_flat(eps),
        broadcast_flat(own),
    )
    endless = runs_away(problem)
    found = FixedPoint(np.full((endless.size, 3), np.nan), np.where(endless, np.inf, 0.0))
    rows = np.flatnonzero(np.isfinite(problem.lam) & ~endless)
    if rows.size:
        some = problem.take(rows)
        first = some.start()
        if start is not None:
            first = np.broadcast_to(start, (*shape, 3)).reshape(-1, 3)[rows]
        found.u[rows], found.residual[rows] = search_fit(some, first, level, warm=start is not None)
    return collect_fit(problem, found, level, shape)


def runs_away(problem: RidgeSystem) -> NDArray[np.bool_]:
    """Where a client's own data are separable and no ridge holds the model (section 4)."""
    bare: NDArray[np.bool_] = np.asarray((problem.lam == 0) & (problem.own == 1))
    if np.any(bare):
        some = problem.energies.take(bare)
        threshold = separability_threshold(some.rho, problem.eps[bare]).gamma
        bare[bare] = problem.gamma[bare] * some.rank >= threshold
    return bare


def search_fit(problem: RidgeSystem, start: Array, level: float, warm: bool) -> FixedPoint:
    """The precise solution from a warm start, or from a rough one on few, cheap nodes."""
    begin = np.where(np.isfinite(start), start, problem.start())
    found = FixedPoint(begin, np.full(start.shape[0], np.inf))
    if warm:
        found = polish_fit(problem, found.u, level)
    cold = np.flatnonzero(found.residual > max(ACCEPTED, tolerance_at(level)))
    if cold.size:
        first = None if warm else found.u[cold]
        found.u[cold], found.residual[cold] = search_from_rough(problem.take(cold), first, level)
    return found


def search_from_rough(problem: RidgeSystem, start: Array | None, level: float) -> FixedPoint:
    """A rough solution, where need be by descent in lam, then the precise one from there."""
    secants = roots.Secants.none(problem.lam.size, 3)
    rough = polish_fit(problem, problem.start() if start is None else start, ROUGH, secants)
    failed = np.flatnonzero(rough.residual > NEAR)
    if failed.size:
        rough.u[failed], rough.residual[failed] = descend_in_ridge(problem.take(failed))
    found = FixedPoint(rough.u, np.full(rough.residual.size, np.inf))
    near = np.flatnonzero(rough.residual <= NEAR)
    if near.size:
        known = roots.Secants(*(x[near] for x in secants))
        found.u[near], found.residual[near] = polish_fit(
            problem.take(near), rough.u[near], level, known
        )
    return found


def tolerance_at(level: float) -> float:
    """The residual to go down to: no further than a rough quadrature deserves."""
    return max(TOLERANCE, float(np.exp(-level))) if level <= ROUGH else TOLERANCE


def descend_in_ridge(problem: RidgeSystem) -> FixedPoint:
    """Down in lam from where the system is easy, along a line through the last two; rough."""
    easy = np.maximum(10 * problem.gamma * np.max(problem.energies.s, axis=1), 1.0)
    top, low = np.maximum(easy, problem.lam), np.maximum(problem.lam, 1e-12 * easy)
    u = replace(problem, lam=top).start()
    before = u
    residual = np.zeros(u.shape[0])
    alive = np.arange(u.shape[0])
    for part in np.linspace(0, 1, DESCENT):
        now = replace(problem, lam=top ** (1 - part) * low**part if part < 1 else problem.lam)
        guess = u[alive] + (np.clip(u[alive] - before[alive], -2, 2) if part > 1.5 / DESCENT else 0)
        before = u.copy()
        u[alive], residual[alive] = polish_fit(now.take(alive), guess, ROUGH)
        alive = alive[residual[alive] <= NEAR]
    return FixedPoint(u, residual)


def polish_fit(
    problem: RidgeSystem, start: Array, level: float, secants: roots.Secants | None = None
) -> FixedPoint:
    """Anderson, given up where log Q shows a runaway model; then Newton where it stalled."""
    limit = np.maximum(DIVERGED, 8 + 2 * np.log(np.maximum(problem.energies.rho, 1)))
    tolerance = tolerance_at(level)
    found = roots.find_fixed_points(
        lambda u, rows: problem.take(rows).image(u, level),
        start,
        stop=lambda u, rows: np.asarray(u[:, 1] > limit[rows]),
        rounds=40,
        tolerance=tolerance,
        damped=roots.DAMPED if level <= ROUGH else 0,  # a precise search begins at a rough solution
        secants=secants,
    )
    failed = found.residual > max(ACCEPTED, tolerance)
    stalled = np.flatnonzero(failed & np.isfinite(found.residual))
    if stalled.size:
        some = problem.take(stalled)
        u, residual = roots.newton_fixed_points(
            lambda u, rows: some.take(rows).image(u, level), found.u[stalled], tolerance=tolerance
        )
        residual = np.where(u[:, 1] > limit[stalled], np.inf, residual)
        found.u[stalled], found.residual[stalled] = u, residual
    return found


def collect_fit(
    problem: RidgeSystem, found: FixedPoint, level: float, shape: tuple[int, ...]
) -> RidgeFit:
    """Everything that the formulas need of a solved system; NaN where it diverged."""
    e = problem.energies
    finite = np.isfinite(problem.lam)
    good = found.residual <= max(ACCEPTED, tolerance_at(level))
    out = {name: np.full(finite.size, np.nan) for name in ("T", "Q", "V", "rest", "H", "G", "M")}
    f0 = np.full(e.s.shape, np.nan)
    rows = np.flatnonzero(good & finite)
    if rows.size:
        some = problem.take(rows)
        H, G, M = some.means(found.u[rows], level)
        T, Q, V, rest, f0[rows] = some.sums(H, G, M)
        for name, value in zip(out, (T, Q, V, rest, H, G, M), strict=True):
            out[name][rows] = value
    rows = np.flatnonzero(~finite)
    if rows.size:
        some = problem.take(rows)
        s, c = some.energies.s, some.c
        T = (s * c * some.energies.e0).sum(-1)
        state = State.of(T, (s * (c**2 * some.energies.e0 + some.ev)).sum(-1), e.rho[rows])
        u = unknowns(state.T, state.Q, np.full(rows.size, 1e-300), state.rest)
        ends = np.where(np.isnan(u) | (u > 0), 30.0, -80.0)
        H, G, M = some.means(np.where(np.isfinite(u), u, ends), level)
        f0[rows] = c
        values = (state.T, state.Q, np.zeros(rows.size), state.rest, H, G, M)
        for name, value in zip(out, values, strict=True):
            out[name][rows] = value
    out |= {"rho": e.rho, "residual": found.residual}
    numbers = {name: value.reshape(shape) for name, value in out.items()}
    return RidgeFit(f0=f0.reshape(*shape, -1), **numbers)
