"""Section 3: logistic ridge towards the shared model, RTFA(lam), in many settings at once. With c = 0 it is local ridge.

The system of three unknowns (T, Q, V) is iterated in (atanh cos, log Q, log V).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.core.arrays import Array
from fedasym.theory.classes.fixedpoints import ACCEPTED, TOLERANCE, Found, fixed_points, newton
from fedasym.theory.classes.metrics import State
from fedasym.theory.classes.quadrature import LEVEL
from fedasym.theory.classes.separability import threshold
from fedasym.theory.classes.system import Problem, unknowns
from fedasym.worlds.energies import Energies

DIVERGED = 14.0  # log Q of a model that runs off to infinity
ROUGH, NEAR = 12.0, 1e-3  # level of a first search, and the residual that makes it worth polishing
DESCENT = 25  # ridges on the way down to a hard one


@dataclass(frozen=True, eq=False)
class Fit(State):
    """A solved system: the state of theta_hat, its means, and `f0`, the coefficient of theta_0 in it per atom.

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


def solve(
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
) -> Fit:
    """RTFA(lam) around the centre c theta_0, for settings that broadcast together; an infinite lam is the centre itself.

    `centre` gives c per atom instead, and `ev` the energy per atom of an error of the centre, both of shape (..., atoms).
    `start`: unknowns (..., 3) to begin from, as `unknowns` makes them.

    >>> fit = solve(Energies.isotropic(1, 1), gamma=0.2, lam=0.1, c=0.8379194068821895)
    >>> round(float(fit.T), 9), round(float(fit.Q), 9), round(float(fit.V), 9)
    (1.510549856, 1.630746252, 0.76119651)
    """
    shape = np.broadcast_shapes(energies.batch, *(np.shape(x) for x in (gamma, lam, c, eps, own)))
    energies = energies.broadcast(shape)

    def flat(x: ArrayLike) -> Array:
        return np.broadcast_to(np.asarray(x, dtype=float), shape).reshape(-1)

    def atoms(x: Array) -> Array:
        return np.broadcast_to(x, energies.s.shape).reshape(-1, energies.s.shape[-1])

    around = atoms(np.asarray(c, dtype=float)[..., None] if centre is None else centre)
    blur = atoms(np.zeros(1) if ev is None else ev)
    problem = Problem(energies.flat(), flat(gamma), flat(lam), around, blur, flat(eps), flat(own))
    endless = unbounded(problem)
    found = Found(np.full((endless.size, 3), np.nan), np.where(endless, np.inf, 0.0))
    rows = np.flatnonzero(np.isfinite(problem.lam) & ~endless)
    if rows.size:
        some = problem.take(rows)
        first = some.start() if start is None else np.broadcast_to(start, (*shape, 3)).reshape(-1, 3)[rows]
        found.u[rows], found.residual[rows] = searched(some, first, level, warm=start is not None)
    return fitted(problem, found, level, shape)


def unbounded(problem: Problem) -> NDArray[np.bool_]:
    """Where a client's own data are separable and no ridge holds the model: known in advance (section 4)."""
    bare: NDArray[np.bool_] = np.asarray((problem.lam == 0) & (problem.own == 1))
    if np.any(bare):
        some = problem.energies.take(bare)
        bare[bare] = problem.gamma[bare] * some.rank >= threshold(some.rho, problem.eps[bare]).gamma
    return bare


def searched(problem: Problem, start: Array, level: float, warm: bool) -> Found:
    """The precise solution straight from a warm start; elsewhere from a rough one, whose few nodes make searching cheap."""
    found = Found(np.where(np.isfinite(start), start, problem.start()), np.full(start.shape[0], np.inf))
    if warm:
        found = polished(problem, found.u, level)
    cold = np.flatnonzero(found.residual > max(ACCEPTED, tolerance_at(level)))
    if cold.size:
        found.u[cold], found.residual[cold] = from_rough(problem.take(cold), found.u[cold] if not warm else None, level)
    return found


def from_rough(problem: Problem, start: Array | None, level: float) -> Found:
    """A rough solution, where need be by descent in lam, then the precise one from there."""
    rough = polished(problem, problem.start() if start is None else start, ROUGH)
    failed = np.flatnonzero(rough.residual > NEAR)
    if failed.size:
        rough.u[failed], rough.residual[failed] = descended(problem.take(failed))
    found = Found(rough.u, np.full(rough.residual.size, np.inf))
    near = np.flatnonzero(rough.residual <= NEAR)
    if near.size:
        found.u[near], found.residual[near] = polished(problem.take(near), rough.u[near], level)
    return found


def tolerance_at(level: float) -> float:
    """The residual to go down to: no further than a rough quadrature deserves."""
    return max(TOLERANCE, float(np.exp(-level))) if level <= ROUGH else TOLERANCE


def descended(problem: Problem) -> Found:
    """Down in lam from where the system is easy, each step from a line through the last two; rough."""
    easy = np.maximum(10 * problem.gamma * np.max(problem.energies.s, axis=1), 1.0)
    top, low = np.maximum(easy, problem.lam), np.maximum(problem.lam, 1e-12 * easy)
    u = replace(problem, lam=top).start()
    before, residual = u, np.zeros(u.shape[0])
    alive = np.arange(u.shape[0])
    for part in np.linspace(0, 1, DESCENT):
        now = replace(problem, lam=top ** (1 - part) * low**part if part < 1 else problem.lam)
        guess = u[alive] + (np.clip(u[alive] - before[alive], -2, 2) if part > 1.5 / DESCENT else 0)
        before = u.copy()
        u[alive], residual[alive] = polished(now.take(alive), guess, ROUGH)
        alive = alive[residual[alive] <= NEAR]
    return Found(u, residual)


def polished(problem: Problem, start: Array, level: float) -> Found:
    """Anderson, given up where log Q shows that the model runs away; then Newton for the settings that stalled."""
    limit = np.maximum(DIVERGED, 8 + 2 * np.log(np.maximum(problem.energies.rho, 1)))
    tolerance = tolerance_at(level)
    found = fixed_points(
        lambda u, rows: problem.take(rows).image(u, level),
        start,
        stop=lambda u, rows: np.asarray(u[:, 1] > limit[rows]),
        rounds=40,
        tolerance=tolerance,
    )
    stalled = np.flatnonzero((found.residual > max(ACCEPTED, tolerance)) & np.isfinite(found.residual))
    if stalled.size:
        some = problem.take(stalled)
        u, residual = newton(lambda u, rows: some.take(rows).image(u, level), found.u[stalled], tolerance=tolerance)
        residual = np.where(u[:, 1] > limit[stalled], np.inf, residual)
        found.u[stalled], found.residual[stalled] = u, residual
    return found


def fitted(problem: Problem, found: Found, level: float, shape: tuple[int, ...]) -> Fit:
    """Everything that the formulas need of a solved system; NaN where it diverged."""
    e = problem.energies
    finite, good = np.isfinite(problem.lam), found.residual <= max(ACCEPTED, tolerance_at(level))
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
        state = State.of((s * c * some.energies.e0).sum(-1), (s * (c**2 * some.energies.e0 + some.ev)).sum(-1), e.rho[rows])
        u = unknowns(state.T, state.Q, np.full(rows.size, 1e-300), state.rest)
        H, G, M = some.means(np.where(np.isfinite(u), u, np.where(np.isnan(u) | (u > 0), 30.0, -80.0)), level)
        f0[rows] = c
        for name, value in zip(out, (state.T, state.Q, np.zeros(rows.size), state.rest, H, G, M), strict=True):
            out[name][rows] = value
    numbers = {name: value.reshape(shape) for name, value in out.items()}
    return Fit(rho=e.rho.reshape(shape), f0=f0.reshape(*shape, -1), residual=found.residual.reshape(shape), **numbers)
