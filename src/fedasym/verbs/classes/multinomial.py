"""More than two classes: the scores of every method in one world, one case per formula; what is not derived is refused."""

from __future__ import annotations

import numpy as np

from fedasym.core.errors import InvalidInput, NoFormula
from fedasym.results.accuracy import Accuracy
from fedasym.theory.classes import softmax_ridge as ridges
from fedasym.theory.classes.softmax import SEARCH
from fedasym.theory.classes.softmax import SoftmaxRule as Rule
from fedasym.theory.classes.softmax import draw_points as samples
from fedasym.theory.classes.softmax import softmax_ceiling as ceiling
from fedasym.theory.classes.softmax import softmax_fedavg as fedavg
from fedasym.theory.classes.softmax import softmax_step as one_step
from fedasym.theory.classes.softmax_ridge import SOFTMAX_PER_DECADE as PER_DECADE
from fedasym.theory.classes.softmax_ridge import descent_clock as clock
from fedasym.theory.classes.softmax_ridge import fit_one_hot as least_squares
from fedasym.theory.classes.softmax_ridge import softmax_curvature as curvature
from fedasym.theory.classes.softmax_ridge import stopped_softmax_fits as stopped
from fedasym.verbs.classes.methods import Method
from fedasym.worlds.classes import ClassPopulation

FIRST = 1e2  # the first ridge of a clock, in units of the loss's curvature
LONGEST = 50.0  # of a client's optimum: the quadrature takes time and memory with its square


def scored(rule: Rule, *, ridge: float | None = None, step: float | None = None, time: float | None = None) -> Accuracy:
    """The scores of a rule, the Brier score halved as for two classes."""
    if rule.Q == 0 or rule.rho == 0:  # the zero rule, or labels that features do not tell
        flat = rule.Q == 0
        chance = 1 / rule.classes
        loss, brier = (np.log(rule.classes), (1 - chance) / 2) if flat else (rule.log_loss, rule.brier / 2)
        return Accuracy(chance, float(loss), float(brier), np.nan if flat else 0.0, ridge, step, time)
    return Accuracy(rule.accuracy, rule.log_loss, rule.brier / 2, rule.slope, ridge, step, time)


def scores(method: Method, world: ClassPopulation, ridge: float | None, finite: bool) -> Accuracy:
    """One method in one world; `ridge` is the one asked for, if any."""
    e, C, gamma = world.energies, world.classes, float(np.asarray(world.aspect))
    if float(e.rho) > LONGEST:
        raise NoFormula(
            f"a client's optimum has length {float(e.rho):.3g}: with {C} classes this is computed up to {LONGEST:g}, where "
            "labels are all but certain; give a smaller radius and centre, or classes=2"
        )
    if finite and method.kind not in ("local_ridge", "truth"):
        raise NoFormula(
            f"with finitely many clients no formula covers {C} classes: leave clients out, give classes=2, or fa.train "
            "on drawn clients"
        )
    match method.kind:
        case "converged":
            raise ridges.refuse_convergence(C)
        case "bayes":
            raise NoFormula(f"the Bayes optimum with theta_0 known is derived for two classes, not {C}: see the row truth")
        case "fedavg":
            return scored(kept(world))
        case "truth":
            return scored(ceiling(e, C))
        case "one_step":
            rule, step = one_step(e, gamma, C, method.step)
            return scored(rule, step=step)
        case "ftfa_squares" | "rtfa_squares":
            probe = least_squares(e, gamma, 0.0 if method.kind == "ftfa_squares" else None, C)
            right = 1 / C if np.isinf(probe.Q) or probe.rho == 0 else probe.accuracy
            return Accuracy(right, ridge=None if method.kind == "ftfa_squares" else probe.ridge)
        case "stopped":
            check_step(method, world)
            time = best_time(world) if method.time is None else method.time
            return scored(stopped(e, gamma, np.array([time]), C)[0], time=time)
    shared = method.kind == "rtfa"
    if ridge == 0:
        raise ridges.refuse_convergence(C)
    if ridge is None:
        fit = ridges.best_softmax_ridge(e, gamma, C, shared=shared)
    else:
        (fit,) = ridges.softmax_ridge_path(e, gamma, [ridge], C, shared=shared)
    return scored(fit, ridge=fit.ridge)


def kept(world: ClassPopulation) -> Rule:
    """FedAvg's model; without a shared optimum it is zero."""
    rho = float(world.energies.rho)
    return Rule(world.classes, rho, 0.0, 0.0) if float(world.energies.b0) == 0 else fedavg(world.energies, world.classes)


def check_step(method: Method, world: ClassPopulation) -> None:
    """Refuse a step with which descent may diverge."""
    most = 2 / curvature(world.energies, float(np.asarray(world.aspect)))
    if method.step is not None and method.step >= most:
        raise InvalidInput(f"step is {method.step:g}: descent diverges with steps of {most:.4g} or more; give a smaller one")


def best_time(world: ClassPopulation, lam: float | None = None) -> float:
    """The time that the clock of section 7 shows at the best ridge."""
    e, C, gamma = world.energies, world.classes, float(np.asarray(world.aspect))
    lam = ridges.best_softmax_ridge(e, gamma, C).ridge if lam is None else lam
    if np.isinf(lam):
        return 0.0
    top = max(FIRST * curvature(e, gamma), 10 * lam)
    falling = np.geomspace(top, lam, 2 + int(PER_DECADE * np.log10(top / lam)))
    fits = ridges.softmax_ridge_path(e, gamma, falling, C, points=samples(C, SEARCH))
    return float(clock(falling, np.array([fit.distance for fit in fits]))[-1])
