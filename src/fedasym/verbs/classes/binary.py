"""Two classes: the state (T, Q) of every method in many worlds at once, one case per theorem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput, NoFormula
from fedasym.theory.classes import metrics, optimum
from fedasym.theory.classes import optimum as leastsquares
from fedasym.theory.classes.finite import member_fit as member_state
from fedasym.theory.classes.finite import newcomer_fit as newcomer
from fedasym.theory.classes.finite import pooled_fit as pooled
from fedasym.theory.classes.margins import fit_to_convergence as converged
from fedasym.theory.classes.metrics import State
from fedasym.theory.classes.optimum import logistic_curvature as curvature
from fedasym.theory.classes.optimum import ridge_at
from fedasym.theory.classes.optimum import step_from_shared as one_step
from fedasym.theory.classes.optimum import stopped_fits as stopped
from fedasym.theory.classes.ridge import fedavg, shrinkage
from fedasym.theory.classes.ridge import solve_ridge as solve
from fedasym.verbs.classes.methods import Method
from fedasym.worlds.energies import Energies

FEW = 24  # worlds up to which the best ridge is searched to rounding; in larger grids to 1e-5 of accuracy
PIECE = 512  # worlds of a large grid at once
NODES, WIDTH = 6, np.log(3.5)  # of the quick search, about the rule over 1.25
COARSE = 17.0  # level of its quadrature
EARLY, LATE = 1e-4, 1.5  # times that can match a ridge, in units of 1/ridge


@dataclass(frozen=True, eq=False)
class Worlds:
    """Worlds along one axis: energies, aspect, flips, and how many clients there are (None: infinitely many)."""

    e: Energies
    gamma: Array
    eps: Array
    m: Array | None
    member: bool
    rough: bool = False  # best ridges by the quick search, however few worlds there are

    def take(self, part: slice) -> Worlds:
        """Some of the worlds."""
        m = None if self.m is None else self.m[part]
        return Worlds(self.e.take(part), self.gamma[part], self.eps[part], m, self.member)


@dataclass(frozen=True, eq=False)
class Answer:
    """A method's state in each world. `endless`: where its logits run off to infinity. `probable`: whether it has logits."""

    state: State
    ridge: Array | None = None
    step: Array | None = None
    time: Array | None = None
    endless: NDArray[np.bool_] | None = None
    probable: bool = True
    optimal: bool = False  # predicts the posterior probability itself


def answer(method: Method, worlds: Worlds) -> Answer:
    """The state of one method: section numbers are those of `theory/classes`."""
    e, gamma, eps = worlds.e, worlds.gamma, worlds.eps
    if worlds.m is not None and method.kind in ("one_step", "stopped", "ftfa_squares", "rtfa_squares"):
        raise NoFormula("with finitely many clients only fedavg and rtfa (and methods that share nothing) are derived; "
                        "leave clients out for the rest")  # fmt: skip
    match method.kind:
        case "converged":  # 5
            end = converged(e, gamma, eps)
            return Answer(end.fit, endless=end.separable)
        case "local_ridge":  # 3 with c = 0
            return ridged(Worlds(e.alone, gamma, eps, None, True, worlds.rough), given(method, gamma))
        case "fedavg":  # 2 and 12.1
            return Answer(fedavg(e, eps) if worlds.m is None else together(worlds))
        case "rtfa":  # 3, 9, 12.2 and 12.3
            if worlds.m is None:
                return ridged(worlds, given(method, gamma))
            together(worlds)
            return finite(worlds, given(method, gamma))
        case "one_step":  # 6
            one = one_step(e, gamma, method.step, eps)
            return Answer(one.state, step=np.broadcast_to(one.step, gamma.shape))
        case "stopped":  # 7
            check_step(method, e, gamma)
            best = best_time(worlds) if method.time is None else np.full(gamma.size, method.time)
            fits = [stopped(e.take(i), gamma[i], best[i], eps[i]).fit.take(0) for i in range(gamma.size)]
            state = State(*(np.array([float(getattr(fit, part)) for fit in fits]) for part in ("T", "Q", "rho", "rest")))
            return Answer(state, time=best)
        case "ftfa_squares":  # 8
            return Answer(leastsquares.fit_squares(e, gamma, 0.0, eps).state, probable=False)
        case "rtfa_squares":
            best = leastsquares.best_probe_ridge(e, gamma, eps)
            best = np.where(np.isnan(best), np.inf, best)
            return Answer(leastsquares.fit_squares(e, gamma, best, eps).state, ridge=best, probable=False)
        case "bayes":  # 9.2
            return Answer(optimum.bayes_optimum(e, gamma, eps).state, optimal=True)
        case "truth":
            square = e.rho**2
            return Answer(State(square, square, e.rho, np.zeros_like(square)))


def given(method: Method, gamma: Array) -> Array | None:
    """The ridge asked for, one for each world."""
    return None if method.ridge is None else np.broadcast_to(np.asarray(method.ridge, dtype=float), gamma.shape)


def ridged(worlds: Worlds, ridge: Array | None) -> Answer:
    """Ridge towards the shared model of infinitely many clients: at the given ridge (0: to convergence), or at its best."""
    e, gamma, eps = worlds.e, worlds.gamma, worlds.eps
    if ridge is None:
        if gamma.size <= FEW and not worlds.rough:
            tuned = optimum.search_best_ridge(e, gamma, eps)
            return Answer(tuned.fit, ridge=tuned.lam)
        pieces = [quick(worlds.take(slice(i, i + PIECE))) for i in range(0, gamma.size, PIECE)]
        return Answer(joined([state for state, _ in pieces]), ridge=np.concatenate([best for _, best in pieces]))
    c, bare = shrinkage(e, eps), ridge == 0
    fit = solve(e, gamma, np.where(bare, 1.0, ridge), c, eps)
    if not np.any(bare):
        return Answer(fit, ridge=ridge)
    end = converged(e, gamma, eps)
    mixed = (np.where(bare, getattr(end.fit, part), getattr(fit, part)) for part in ("T", "Q", "rho", "rest"))
    return Answer(State(*mixed), ridge=ridge, endless=bare & end.separable)


def joined(states: list[State]) -> State:
    """Pieces of a grid put together."""
    return State(*(np.concatenate([getattr(state, part) for state in states]) for part in ("T", "Q", "rho", "rest")))


def quick(worlds: Worlds) -> tuple[State, Array]:
    """The best ridges of many worlds by polynomials in their logarithm, about the rule, and further out where that ends."""
    e, gamma, eps = worlds.e, worlds.gamma, worlds.eps
    c, rule = shrinkage(e, eps), optimum.ridge_by_rule(e, gamma, eps)
    endless = np.isinf(rule)
    at = np.log(np.where(endless, 1.0, rule / 1.25))
    nodes = np.cos(np.pi * np.arange(NODES) / (NODES - 1))
    rows = np.flatnonzero(~endless)
    for _ in range(6):
        some = e.take(rows)
        wide = Energies(*(x[:, None, :] for x in (some.s, some.h, some.e0, some.ed)))
        lam = np.exp(at[rows, None] + WIDTH * nodes)
        fit = solve(wide, gamma[rows, None], lam, c[rows, None], eps[rows, None], level=COARSE)
        loss = np.nan_to_num(-metrics.accuracy(fit, eps[rows, None]), nan=np.inf)
        place = np.array([optimum.lowest_between(nodes, row) for row in loss])
        at[rows] += WIDTH * place
        rows = rows[np.abs(place) > 0.98]
        if rows.size == 0:
            break
    best = np.where(endless, np.inf, np.exp(at))
    found = solve(e, gamma, best, c, eps, level=COARSE)
    return State(found.T, found.Q, found.rho, found.rest), best


def together(worlds: Worlds) -> State:
    """The pooled fit of finitely many clients, as a member or a new client sees it."""
    assert worlds.m is not None
    shared = pooled(worlds.e, worlds.gamma, worlds.m, eps=worlds.eps)
    if bool(np.all(shared.member.diverged)):
        raise NoFormula("all clients' samples together are separable, so that the pooled fit has no end: give more clients, "
                        "or compare local_ridge, which shares nothing")  # fmt: skip
    return shared.member if worlds.member else shared.new


def finite(worlds: Worlds, ridge: Array | None) -> Answer:
    """RTFA around the pooled fit: of a member, whose data are in it, or of a new client."""
    e, gamma, eps, m = worlds.e, worlds.gamma, worlds.eps, worlds.m
    assert m is not None

    def state(lam: Array) -> State:
        wide = Energies(*(x[:, None, :] for x in (e.s, e.h, e.e0, e.ed)))
        if not worlds.member:
            return newcomer(wide, gamma[:, None], lam, m[:, None], eps=eps[:, None])
        return member_state(wide, gamma[:, None], lam, m[:, None], eps=eps[:, None]).state

    if ridge is not None and np.any(ridge == 0):
        raise InvalidInput("ridge is 0: to convergence the shared model drops out; ask for ftfa, or give a ridge above 0")
    if ridge is None:
        mean = (e.h * e.s).sum(-1)
        off = (e.r2 + 5 * gamma / mean) / m  # about the energy of the pooled fit's error
        start = np.log(gamma / (np.maximum(shrinkage(e, eps), 0.05) * (e.r2 + off)))
        ridge = np.exp(searched(lambda x: -metrics.accuracy(state(np.exp(x)), eps[:, None]), start))
    found = state(ridge[:, None])
    return Answer(State(*(getattr(found, part)[:, 0] for part in ("T", "Q", "rho", "rest"))), ridge=ridge)


def searched(loss: Callable[[Array], Array], start: Array, nodes: int = 7, width: float = np.log(8)) -> Array:
    """Where each loss(x), x of shape (worlds, nodes), is lowest: polynomials on ever smaller intervals."""
    at = np.cos(np.pi * np.arange(nodes) / (nodes - 1))
    best, moves = start, 0
    while True:
        values = np.nan_to_num(loss(best[:, None] + width * at), nan=np.inf)
        place = np.array([optimum.lowest_between(at, row) for row in values])
        best = best + width * place
        if np.any(np.abs(place) > 0.98) and moves < 4:
            moves += 1
            continue
        if width < 0.5:
            return best
        width /= 6


def check_step(method: Method, e: Energies, gamma: Array) -> None:
    """Refuse a step with which descent may diverge."""
    if method.step is not None and np.any(method.step >= 2 / curvature(e, gamma)):
        most = float(np.min(2 / curvature(e, gamma)))
        raise InvalidInput(f"step is {method.step:g}: descent diverges with steps of {most:.4g} or more; give a smaller one")


def best_time(worlds: Worlds) -> Array:
    """The time at which the clock of section 7 shows the best ridge; infinite where training should go on for ever."""
    tuned = optimum.search_best_ridge(worlds.e, worlds.gamma, worlds.eps)
    return np.array([time_of(worlds, i, float(lam)) for i, lam in enumerate(tuned.lam)])


def time_of(worlds: Worlds, i: int, lam: float) -> float:
    """The time that the clock of one world shows at a ridge."""
    if np.isinf(lam):
        return 0.0
    e, gamma, eps = worlds.e.take(i), float(worlds.gamma[i]), float(worlds.eps[i])
    times = np.geomspace(EARLY, LATE, 400) / lam
    ridges = ridge_at(e, gamma, float(shrinkage(e, eps)), times, eps)
    return float(np.exp(np.interp(-np.log(lam), -np.log(ridges), np.log(times))))
