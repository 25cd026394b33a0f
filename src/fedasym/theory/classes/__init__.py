"""Classification: limits of accuracy and log-loss of last layers trained by softmax loss, for every
pair of stages; of two classes in many worlds at once, of more in one.

`canonical_pair` says which pairs have one, for any number of classes; the rest is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.algorithms import Algorithm, check_uncorrected
from fedasym.algorithms.methods import (
    MAML_STEP,
    Average,
    AverageSquares,
    BestStep,
    BestTime,
    Descend,
    Flow,
    Interpolate,
    Keep,
    Meta,
    Moreau,
    Nothing,
    Posterior,
    Ridge,
    Truth,
)
from fedasym.algorithms.stages import ClientStage, ServerStage
from fedasym.core.errors import InvalidInput, NoFormula
from fedasym.core.numbers import Array
from fedasym.theory.classes import metrics, optimum, softmax
from fedasym.theory.classes import softmax_ridge as ridges
from fedasym.theory.classes.finite import (
    fit_around,
    meta_scale,
    moreau_scale,
    newcomer_fit,
    pooled_fit,
    step_around,
)
from fedasym.theory.classes.finite import member_fit as member_state
from fedasym.theory.classes.margins import check_stable_step, fit_to_convergence
from fedasym.theory.classes.metrics import State
from fedasym.theory.classes.optimum import logistic_curvature, ridge_at
from fedasym.theory.classes.ridge import fedavg, shared_state, shrinkage, solve_ridge
from fedasym.theory.classes.softmax import SEARCH, SoftmaxRule, draw_points, softmax_fedavg
from fedasym.theory.classes.softmax_ridge import SOFTMAX_PER_DECADE, softmax_curvature
from fedasym.theory.classes.squared_labels import best_probe_ridge, fit_one_hot, fit_squares
from fedasym.theory.roots import search_lowest
from fedasym.worlds.classes import Energies

# worlds up to which the best ridge is searched to rounding; in larger grids to 1e-5 of accuracy
FEW = 24
PIECE = 512  # worlds of a large grid at once
EARLY, LATE = 1e-4, 1.5  # times that can match a ridge, in units of 1/ridge
Pair = tuple[ServerStage, ClientStage]
PARTS = ("T", "Q", "rho", "rest")  # of a state
# whose theorems hold for every stage of their objective
NAMED = (Nothing(), Average(), Moreau(), Keep(), Interpolate(), Ridge())
STANDARD: dict[Any, Any] = {each.objective: each for each in NAMED}


@dataclass(frozen=True, eq=False)
class LogisticWorlds:
    """Worlds along one axis: energies, aspect, flips, number of clients (None: infinite)."""

    e: Energies
    gamma: Array
    eps: Array
    m: Array | None
    member: bool
    rough: bool = False  # best ridges by the quick search, however few worlds there are

    def take(self, part: slice) -> LogisticWorlds:
        """Some of the worlds."""
        m = None if self.m is None else self.m[part]
        return LogisticWorlds(self.e.take(part), self.gamma[part], self.eps[part], m, self.member)


@dataclass(frozen=True, eq=False)
class LogisticAnswer:
    """The state of a pair of stages in each world.

    endless: where its logits run off to infinity; probable: whether it has logits.
    """

    state: State
    ridge: Array | None = None
    step: Array | None = None
    time: Array | None = None
    endless: NDArray[np.bool_] | None = None
    probable: bool = True
    optimal: bool = False  # predicts the posterior probability itself


def standard_stage(stage: Any) -> Any:
    """The stage whose theorems hold for one of its objective, with the settings that it has."""
    named = STANDARD.get(stage.objective, stage)
    return named.at(**{name: stage.get(name) for name in named.settings()})


def canonical_pair(algorithm: Algorithm) -> Pair:
    """The pair whose theorem covers an algorithm, by its objectives; the rest is refused."""
    check_uncorrected(algorithm)
    server, client = algorithm.stages
    pair: Pair = standard_stage(server), standard_stage(client)
    match pair:
        case (Nothing() | Average() | Meta() | Moreau(), Interpolate()) | (Average(), Flow(np.inf)):
            return Nothing(), Interpolate()  # descent forgets where it started
        case (Moreau(), Keep() | Ridge()) | (Meta(), Keep() | Ridge() | BestStep() | Descend(_, 1)):
            if algorithm.server.get("shared_ridge") is None:
                return pair
        case (Nothing(), Ridge()) | (AverageSquares(), Interpolate() | Ridge()):
            return pair
        case (_, Posterior() | Truth()) | (
            Average(),
            Keep() | Ridge() | Descend() | BestStep() | Flow() | BestTime(),
        ):
            return pair
    raise NoFormula(
        f"{algorithm.name}: no accuracy is derived for the pair {type(server).__name__} then"
        f" {type(client).__name__}; those covered are Nothing with Interpolate or Ridge, Average"
        " with Keep, Interpolate, Ridge, Descend or Flow, Moreau and Meta with Keep, Interpolate or"
        " Ridge, and stages that declare the same objective; fa.train takes any pair"
    )


def logistic_limit(pair: Pair, worlds: LogisticWorlds, ridge: Array | None) -> LogisticAnswer:
    """A canonical pair's state at given ridges or (None) the best; the theory's section numbers."""
    e, gamma, eps = worlds.e, worlds.gamma, worlds.eps
    match pair:
        case _, Posterior():  # 9.2
            return LogisticAnswer(optimum.bayes_optimum(e, gamma, eps).state, optimal=True)
        case _, Truth():
            square = e.rho**2
            return LogisticAnswer(State(square, square, e.rho, np.zeros_like(square)))
        case Nothing(), Interpolate():  # 5
            end = fit_to_convergence(e, gamma, eps)
            return LogisticAnswer(end.fit, endless=end.separable)
        case Nothing(), Ridge():  # 3 with c = 0
            return rtfa_state(LogisticWorlds(e.alone, gamma, eps, None, True, worlds.rough), ridge)
        case Average(), Keep():  # 2 and 12.1
            return LogisticAnswer(fedavg(e, eps) if worlds.m is None else pooled_state(worlds))
        case Average(), Ridge():  # 3, 9, 12.2 and 12.3
            if worlds.m is None:
                return rtfa_state(worlds, ridge)
            pooled_state(worlds)
            return finite_rtfa_state(worlds, ridge)
    if worlds.m is not None:
        raise NoFormula(
            "with finitely many clients only fedavg and rtfa (and methods that share nothing) are"
            " derived; leave clients out for the rest"
        )
    match pair:
        case Meta() | Moreau(), _:
            return other_shared_state(pair, worlds, ridge)
        case AverageSquares(), client:  # 8
            return label_squares_state(worlds, client, ridge)
        case _, BestStep() | Descend(_, 1) as client:  # 6
            one = optimum.step_from_shared(e, gamma, client.get("local_step"), eps)
            return LogisticAnswer(one.state, step=np.broadcast_to(one.step, gamma.shape))
    check_stable_step(pair[1], float(np.min(2 / logistic_curvature(e, gamma))))  # 7
    time = stopping_time(pair[1])
    best = best_time(worlds) if time is None else np.full(gamma.size, time)
    worlds_ = range(gamma.size)
    fits = [optimum.stopped_fits(e.take(i), gamma[i], best[i], eps[i]).fit.take(0) for i in worlds_]
    parts = (np.array([float(getattr(fit, part)) for fit in fits]) for part in PARTS)
    return LogisticAnswer(State(*parts), time=best)


def other_shared_state(pair: Pair, worlds: LogisticWorlds, ridge: Array | None) -> LogisticAnswer:
    """Clients that start from pFedMe's or MAML's shared model, c theta_0."""
    e, gamma, eps = worlds.e, worlds.gamma, worlds.eps
    server, client = pair
    step = float(server.get("local_step") or MAML_STEP)
    if isinstance(server, Moreau):
        own = server.get("ridge")
        tied = ridge if own is None else np.full(gamma.shape, float(own))
        c, tied = moreau_scale(e, gamma, tied, eps)
        ridge = tied if ridge is None else ridge
    else:
        c = meta_scale(e, gamma, step, eps)
    if isinstance(client, Keep):
        return LogisticAnswer(shared_state(e, c))
    if isinstance(client, Ridge):
        fit, ridge = fit_around(e, gamma, c, ridge, eps)
        return LogisticAnswer(fit, ridge=ridge)
    size = step if client.get("local_step") is None else float(client.get("local_step"))
    return LogisticAnswer(step_around(e, gamma, c, size, eps), step=np.full(gamma.shape, size))


def label_squares_state(
    worlds: LogisticWorlds, client: ClientStage, ridge: Array | None
) -> LogisticAnswer:
    """The least-squares classifier, fine-tuned to convergence or with a ridge."""
    e, gamma, eps = worlds.e, worlds.gamma, worlds.eps
    if not isinstance(client, Ridge):
        return LogisticAnswer(fit_squares(e, gamma, 0.0, eps).state, probable=False)
    if ridge is None:
        ridge = best_probe_ridge(e, gamma, eps)
        ridge = np.where(np.isnan(ridge), np.inf, ridge)
    state = fit_squares(e, gamma, ridge, eps).state
    return LogisticAnswer(state, ridge=ridge, probable=False)


def stopping_time(client: ClientStage) -> float | None:
    """The time after which a client stops, step x steps; None: the best."""
    if isinstance(client, Flow):
        return client.time
    return client.local_step * client.steps if isinstance(client, Descend) else None


def rtfa_state(worlds: LogisticWorlds, ridge: Array | None) -> LogisticAnswer:
    """Ridge towards infinitely many clients' model, as given (0: to convergence) or at its best."""
    e, gamma, eps = worlds.e, worlds.gamma, worlds.eps
    if ridge is None:
        if gamma.size <= FEW and not worlds.rough:
            tuned = optimum.search_best_ridge(e, gamma, eps)
            return LogisticAnswer(tuned.fit, ridge=tuned.lam)
        parts = (worlds.take(slice(i, i + PIECE)) for i in range(0, gamma.size, PIECE))
        pieces = [optimum.interpolate_best_ridges(some.e, some.gamma, some.eps) for some in parts]
        states, best = zip(*pieces, strict=True)
        return LogisticAnswer(join_states(states), ridge=np.concatenate(best))
    c = shrinkage(e, eps)
    bare = ridge == 0
    fit = solve_ridge(e, gamma, np.where(bare, 1.0, ridge), c, eps)
    if not np.any(bare):
        return LogisticAnswer(fit, ridge=ridge)
    end = fit_to_convergence(e, gamma, eps)
    mixed = (np.where(bare, getattr(end.fit, part), getattr(fit, part)) for part in PARTS)
    return LogisticAnswer(State(*mixed), ridge=ridge, endless=bare & end.separable)


def join_states(states: Sequence[State]) -> State:
    """Pieces of a grid put together."""
    return State(*(np.concatenate([getattr(each, part) for each in states]) for part in PARTS))


def pooled_state(worlds: LogisticWorlds) -> State:
    """The pooled fit of finitely many clients, as a member or a new client sees it."""
    assert worlds.m is not None
    shared = pooled_fit(worlds.e, worlds.gamma, worlds.m, eps=worlds.eps)
    if bool(np.all(shared.member.diverged)):
        raise NoFormula(
            "all clients' samples together are separable, so the pooled fit diverges: give"
            " more clients, or compare local_ridge, which shares nothing"
        )
    return shared.member if worlds.member else shared.new


def finite_rtfa_state(worlds: LogisticWorlds, ridge: Array | None) -> LogisticAnswer:
    """RTFA around the pooled fit: of a member, whose data are in it, or of a new client."""
    e, gamma, eps, m = worlds.e, worlds.gamma, worlds.eps, worlds.m
    assert m is not None

    def state(lam: Array) -> State:
        wide = Energies(*(x[:, None, :] for x in (e.s, e.h, e.e0, e.ed)))
        if not worlds.member:
            return newcomer_fit(wide, gamma[:, None], lam, m[:, None], eps=eps[:, None])
        return member_state(wide, gamma[:, None], lam, m[:, None], eps=eps[:, None]).state

    if ridge is not None and np.any(ridge == 0):
        raise InvalidInput(
            "ridge is 0: the shared model then drops out; ask for ftfa, or give a ridge above 0"
        )
    if ridge is None:
        off = (e.r2 + 5 * gamma / (e.h * e.s).sum(-1)) / m  # about the pooled fit's error
        start = np.log(gamma / (np.maximum(shrinkage(e, eps), 0.05) * (e.r2 + off)))
        lowest = search_lowest(lambda x: -metrics.accuracy(state(np.exp(x)), eps[:, None]), start)
        ridge = np.exp(lowest)
    found = state(ridge[:, None])
    parts = (getattr(found, part)[:, 0] for part in PARTS)
    return LogisticAnswer(State(*parts), ridge=ridge)


def best_time(worlds: LogisticWorlds) -> Array:
    """The time at which section 7's clock shows the best ridge; infinite: train for ever."""
    tuned = optimum.search_best_ridge(worlds.e, worlds.gamma, worlds.eps)
    return np.array([time_of(worlds, i, float(lam)) for i, lam in enumerate(tuned.lam)])


def time_of(worlds: LogisticWorlds, i: int, lam: float) -> float:
    """The time that the clock of one world shows at a ridge."""
    if np.isinf(lam):
        return 0.0
    e = worlds.e.take(i)
    gamma = float(worlds.gamma[i])
    eps = float(worlds.eps[i])
    times = np.geomspace(EARLY, LATE, 400) / lam
    ridges = ridge_at(e, gamma, float(shrinkage(e, eps)), times, eps)
    return float(np.exp(np.interp(-np.log(lam), -np.log(ridges), np.log(times))))


FIRST = 1e2  # the first ridge of a clock, in units of the loss's curvature
LONGEST = 50.0  # of a client's optimum: the quadrature takes time and memory with its square


@dataclass(frozen=True, eq=False)
class SoftmaxAnswer:
    """A pair's rule, and its ridge, step or time. `probable`: whether it has logits."""

    rule: SoftmaxRule
    ridge: float | None = None
    step: float | None = None
    time: float | None = None
    probable: bool = True


@dataclass(frozen=True, eq=False)
class SoftmaxWorld:
    """One world: energies, aspect, number of classes, and whether clients are finitely many."""

    e: Energies
    gamma: float
    classes: int
    few: bool = False


def softmax_limit(pair: Pair, world: SoftmaxWorld, ridge: float | None) -> SoftmaxAnswer:
    """One canonical pair in one world; `ridge` is the one asked for, if any."""
    e, gamma, C = world.e, world.gamma, world.classes
    if float(e.rho) > LONGEST:
        raise NoFormula(
            f"a client's optimum has length {float(e.rho):.3g}: with {C} classes this is computed"
            f" up to {LONGEST:g}, where labels are all but certain; give a smaller radius and"
            " centre, or classes=2"
        )
    local = isinstance(pair[0], Nothing) and isinstance(pair[1], Ridge)
    alone = local or isinstance(pair[1], Truth)
    if world.few and not alone:
        raise NoFormula(
            f"with finitely many clients no formula covers {C} classes: leave clients out, give"
            " classes=2, or fa.train on drawn clients"
        )
    match pair:
        case Meta() | Moreau(), _:
            raise NoFormula(
                f"the shared models of pFedMe and MAML are derived for two classes, not {C}: take"
                " rtfa, which starts from FedAvg's, or fa.train"
            )
        case _, Posterior():
            raise NoFormula(
                f"the Bayes optimum is derived for two classes, not {C}: see the row truth"
            )
        case _, Truth():
            return SoftmaxAnswer(softmax.softmax_ceiling(e, C))
        case AverageSquares(), client:
            own = isinstance(client, Ridge)
            probe = fit_one_hot(e, gamma, ridge if own else 0.0, C)
            return SoftmaxAnswer(probe, probe.ridge if own else None, probable=False)
        case Nothing(), Interpolate():
            raise ridges.refuse_convergence(C)
        case Average(), Keep():
            return SoftmaxAnswer(shared_rule(e, C))
        case _, Ridge():
            return softmax_ridge_rule(world, ridge, shared=isinstance(pair[0], Average))
        case _, BestStep() | Descend(_, 1) as client:
            rule, step = softmax.softmax_step(e, gamma, C, client.get("local_step"))
            return SoftmaxAnswer(rule, step=step)
    check_stable_step(pair[1], 2 / softmax_curvature(e, gamma))
    time = stopping_time(pair[1])
    time = best_softmax_time(world) if time is None else time
    return SoftmaxAnswer(ridges.stopped_softmax_fits(e, gamma, np.array([time]), C)[0], time=time)


def softmax_ridge_rule(world: SoftmaxWorld, ridge: float | None, shared: bool) -> SoftmaxAnswer:
    """A ridge towards the shared model, or towards zero: the given one or (None) the best."""
    e, gamma, C = world.e, world.gamma, world.classes
    if ridge == 0:
        raise ridges.refuse_convergence(C)
    if ridge is None:
        fit = ridges.best_softmax_ridge(e, gamma, C, shared=shared)
    else:
        (fit,) = ridges.softmax_ridge_path(e, gamma, [ridge], C, shared=shared)
    return SoftmaxAnswer(fit, ridge=fit.ridge)


def shared_rule(e: Energies, classes: int) -> SoftmaxRule:
    """FedAvg's model; without a shared optimum it is zero."""
    if float(e.b0) == 0:
        return SoftmaxRule(classes, float(e.rho), 0.0, 0.0)
    return softmax_fedavg(e, classes)


def best_softmax_time(world: SoftmaxWorld) -> float:
    """The time that the clock of section 7 shows at the best ridge."""
    e, gamma, C = world.e, world.gamma, world.classes
    lam = ridges.best_softmax_ridge(e, gamma, C, points=draw_points(C, SEARCH)).ridge
    if np.isinf(lam):
        return 0.0
    top = max(FIRST * softmax_curvature(e, gamma), 10 * lam)
    falling = np.geomspace(top, lam, 2 + int(SOFTMAX_PER_DECADE * np.log10(top / lam)))
    fits = ridges.softmax_ridge_path(e, gamma, falling, C, points=draw_points(C, SEARCH))
    return float(ridges.descent_clock(falling, np.array([fit.distance for fit in fits]))[-1])
