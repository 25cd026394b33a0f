"""More than two classes: the rule of every pair of stages in one world, one case per formula; the rest is refused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedasym.algorithms.average import Average, Descend, Interpolate, Keep, Nothing
from fedasym.algorithms.classification import AverageSquares, BestStep, Posterior, Truth
from fedasym.algorithms.penalties import Ridge
from fedasym.core.errors import NoFormula
from fedasym.theory.classes import softmax_ridge as ridges
from fedasym.theory.classes.limits import Pair, check_stable_step, stopping_time
from fedasym.theory.classes.softmax import SEARCH, SoftmaxRule, draw_points, softmax_ceiling, softmax_fedavg, softmax_step
from fedasym.theory.classes.softmax_ridge import (
    SOFTMAX_PER_DECADE,
    descent_clock,
    fit_one_hot,
    softmax_curvature,
    stopped_softmax_fits,
)
from fedasym.worlds.energies import Energies

FIRST = 1e2  # the first ridge of a clock, in units of the loss's curvature
LONGEST = 50.0  # of a client's optimum: the quadrature takes time and memory with its square


@dataclass(frozen=True, eq=False)
class SoftmaxAnswer:
    """The rule of a pair of stages, and at which ridge, step or time. `probable`: whether it has logits."""

    rule: SoftmaxRule
    ridge: float | None = None
    step: float | None = None
    time: float | None = None
    probable: bool = True


@dataclass(frozen=True, eq=False)
class SoftmaxWorld:
    """One world: energies, aspect, how many classes, and whether there are finitely many clients."""

    e: Energies
    gamma: float
    classes: int
    few: bool = False


def softmax_limit(pair: Pair, world: SoftmaxWorld, ridge: float | None) -> SoftmaxAnswer:
    """One canonical pair in one world; `ridge` is the one asked for, if any."""
    e, gamma, C = world.e, world.gamma, world.classes
    if float(e.rho) > LONGEST:
        raise NoFormula(
            f"a client's optimum has length {float(e.rho):.3g}: with {C} classes this is computed up to {LONGEST:g}, "
            "where labels are all but certain; give a smaller radius and centre, or classes=2"
        )
    alone = isinstance(pair[1], Truth) or (isinstance(pair[0], Nothing) and isinstance(pair[1], Ridge))
    if world.few and not alone:
        raise NoFormula(
            f"with finitely many clients no formula covers {C} classes: leave clients out, give classes=2, or fa.train "
            "on drawn clients"
        )
    match pair:
        case _, Posterior():
            raise NoFormula(f"the Bayes optimum with theta_0 known is derived for two classes, not {C}: see the row truth")
        case _, Truth():
            return SoftmaxAnswer(softmax_ceiling(e, C))
        case AverageSquares(), client:
            lam = ridge if isinstance(client, Ridge) else 0.0
            probe = fit_one_hot(e, gamma, lam, C)
            return SoftmaxAnswer(probe, probe.ridge if isinstance(client, Ridge) else None, probable=False)
        case Nothing(), Interpolate():
            raise ridges.refuse_convergence(C)
        case Average(), Keep():
            return SoftmaxAnswer(shared_rule(e, C))
        case _, Ridge():
            return with_ridge(world, ridge, shared=isinstance(pair[0], Average))
        case _, BestStep() | Descend(_, 1) as client:
            rule, step = softmax_step(e, gamma, C, client.get("local_step"))
            return SoftmaxAnswer(rule, step=step)
    check_stable_step(pair[1], 2 / softmax_curvature(e, gamma))
    time = stopping_time(pair[1])
    time = best_softmax_time(world) if time is None else time
    return SoftmaxAnswer(stopped_softmax_fits(e, gamma, np.array([time]), C)[0], time=time)


def with_ridge(world: SoftmaxWorld, ridge: float | None, shared: bool) -> SoftmaxAnswer:
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
    return SoftmaxRule(classes, float(e.rho), 0.0, 0.0) if float(e.b0) == 0 else softmax_fedavg(e, classes)


def best_softmax_time(world: SoftmaxWorld) -> float:
    """The time that the clock of section 7 shows at the best ridge."""
    e, gamma, C = world.e, world.gamma, world.classes
    lam = ridges.best_softmax_ridge(e, gamma, C).ridge
    if np.isinf(lam):
        return 0.0
    top = max(FIRST * softmax_curvature(e, gamma), 10 * lam)
    falling = np.geomspace(top, lam, 2 + int(SOFTMAX_PER_DECADE * np.log10(top / lam)))
    fits = ridges.softmax_ridge_path(e, gamma, falling, C, points=draw_points(C, SEARCH))
    return float(descent_clock(falling, np.array([fit.distance for fit in fits]))[-1])
