"""Section 11.1: RTFA and local ridge with the softmax loss and C exchangeable classes, along a path of ridges.

Not derived for more than two classes, and refused with a sentence: training to convergence (where the classes stop
overlapping, and the limit beyond), finitely many clients, label flips.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedasym.core.arrays import Array
from fedasym.core.errors import NoFormula
from fedasym.theory.classes.multinomial_integrals import phi
from fedasym.theory.classes.multinomial_rules import Rule, centre
from fedasym.theory.classes.multinomial_samples import SEARCH, Samples, samples
from fedasym.theory.classes.multinomial_system import State, Warm, solve
from fedasym.worlds.energies import Energies

STRIDE = 8.0  # the most by which a ridge falls between two solutions when the first is far from the last


@dataclass(frozen=True)
class Fit(Rule):
    """A client's ridge fit around c W0 (c = 0: around nothing)."""

    ridge: float
    c: float
    V: float
    Hh: float
    G: float
    M: float
    along: float  # w'Sigma theta_0
    distance: float  # R = ||W - Wbar||_F, what the clock of early stopping needs (section 7)


def converged(classes: int) -> NoFormula:
    """Why there is no FTFA: the error to raise."""
    return NoFormula(
        f"no formula covers fine-tuning to convergence with {classes} classes: where the data stop being separable and the "
        "max-margin limit are derived for two; take rtfa, early stopping or one step, or two classes"
    )


def fitted(energies: Energies, aspect: float, ridge: float, classes: int, c: float, state: State) -> Fit:
    """The solution of the system as a rule, with the overlaps of section 3."""
    s, h, E0, ED = energies.s, energies.h, energies.e0, energies.ed
    Hh, G, M = state.Hh, state.G, state.M
    R = 1 / (Hh * s + ridge)
    along = np.sum(s * R * (ridge * c + M * s) * E0)
    away = np.sum(R**2 * (((M - Hh * c) * s) ** 2 * E0 + (M * s) ** 2 * ED + aspect * G * s * h))
    rho, distance = float(energies.rho), float(np.sqrt((classes - 1) * away))
    return Fit(classes, rho, state.T, state.Q, ridge, c, state.V, Hh, G, M, float(along), distance)


def kept(energies: Energies, classes: int, c: float) -> Fit:
    """An infinite ridge: the shared model as it is."""
    B0 = float(energies.b0)
    rule = Rule(classes, float(energies.rho), c * B0, c * c * B0)
    Hh, G, M = phi(c * np.sqrt(B0), classes), rule.brier / (classes - 1), phi(rule.rho, classes)
    return Fit(classes, rule.rho, rule.T, rule.Q, np.inf, c, 0.0, Hh, G, M, c * B0, 0.0)


def path(
    energies: Energies, aspect: float, ridges: Sequence[float] | Array, classes: int, *,
    shared: bool = True, points: Samples | None = None,
) -> list[Fit]:  # fmt: skip
    """The fits at these ridges, in their order. `shared`: around FedAvg's model (RTFA), else around nothing (local ridge).

    Solved from the largest ridge down, each from the one before, at the same points: curves are smooth.
    """
    if not np.all(np.asarray(ridges) > 0):
        raise converged(classes)
    c = centre(energies, classes) if shared else 0.0
    points = samples(classes) if points is None else points
    warm, found = Warm(), {}
    for ridge in descent(energies, aspect, np.asarray(ridges, dtype=float)):
        if np.isinf(ridge):
            found[ridge] = kept(energies, classes, c)
            continue
        before = [fit for fit in found.values() if np.isfinite(fit.ridge)][-2:]
        guess = follow(before, ridge) if before else first_guess(energies, aspect, ridge, classes, c)
        state = solve(energies, aspect, ridge, c, points, warm, guess)
        found[ridge] = fitted(energies, aspect, ridge, classes, c, state)
    return [found[float(ridge)] for ridge in ridges]


def follow(before: list[Fit], ridge: float) -> tuple[float, float, float]:
    """(T, Q, V) at the next ridge of a path: their logarithms continued along a line in log ridge."""
    last = before[-1]
    ratio = float(np.log(ridge / last.ridge))
    if len(before) == 1 or min(fit.T for fit in before) <= 0:
        return last.T, last.Q, last.V * float(np.exp(-0.5 * ratio))
    slopes = np.log(np.array([last.T, last.Q, last.V]) / [before[0].T, before[0].Q, before[0].V])
    T, Q, V = np.array([last.T, last.Q, last.V]) * np.exp(slopes * ratio / np.log(last.ridge / before[0].ridge))
    return float(T), float(Q), float(V)


def descent(energies: Energies, aspect: float, ridges: Array) -> list[float]:
    """The ridges downwards, with others between them where a small one is far below the last, or below where all is easy."""
    easy = 0.3 * aspect / max(float(np.sum(energies.e0 + energies.ed)), 1.0)
    order, last = [], np.inf
    for ridge in sorted({float(ridge) for ridge in ridges}, reverse=True):
        top = min(last, easy)
        steps = int(np.ceil(np.log(max(top / ridge, 1.0)) / np.log(STRIDE)))
        order += [top * (ridge / top) ** (k / steps) for k in range(0 if last > easy else 1, steps)]
        order.append(ridge)
        last = ridge
    return order


def first_guess(energies: Energies, aspect: float, ridge: float, classes: int, c: float) -> tuple[float, float, float]:
    """(T, Q, V) to start from: one round of the system at V -> 0, exact as the ridge grows."""
    start = kept(energies, classes, c)
    s, h = energies.s, energies.h
    R = 1 / (start.Hh * s + ridge)
    lifted = ridge * c + start.M * s
    T = np.sum(s * R * (lifted * energies.e0 + start.M * s * energies.ed))
    Q = np.sum(s * R**2 * (lifted**2 * energies.e0 + (start.M * s) ** 2 * energies.ed + aspect * start.G * s * h))
    return float(T), float(Q), float(aspect * np.sum(h * s * R))


def rtfa(energies: Energies, aspect: float, ridge: float, classes: int) -> Fit:
    """The client's ridge fit around FedAvg's model.

    >>> fit = rtfa(Energies.isotropic(1.5, 1.5), 2.0, 1.0, 3)
    >>> round(fit.accuracy, 4), round(fit.log_loss, 4)
    (0.6035, 0.8533)
    """
    return path(energies, aspect, [ridge], classes)[0]


def best_ridge(
    energies: Energies, aspect: float, classes: int, score: str = "accuracy", *, shared: bool = True,
    points: Samples | None = None,
) -> Fit:  # fmt: skip
    """The ridge with the best `score`: "accuracy", "log_loss" or "brier"; searched on few points, computed on all.

    Starts at the rule of section 9.1, gamma/(c r^2), widens until the best is inside, then follows parabolas. The score is
    flat at its best: a ridge good to a few percent costs it about 1e-6.
    """
    c = centre(energies, classes) if shared else 1.0
    r2 = float(np.sum(energies.ed if shared else energies.e0 + energies.ed))
    if r2 == 0:
        return path(energies, aspect, [np.inf], classes, shared=shared)[0]
    few, sign = samples(classes, SEARCH) if points is None else points, 1.0 if score == "accuracy" else -1.0
    seen: dict[float, float] = {}

    def visit(*at: float) -> None:
        fits = path(energies, aspect, np.exp(at), classes, shared=shared, points=few)
        seen.update((x, sign * getattr(fit, score)) for x, fit in zip(at, fits, strict=True))

    best, width = float(np.log(aspect / (c * r2))), float(np.log(2.5))
    visit(best + width, best, best - width)
    for _ in range(24):
        order = sorted(seen)
        at = max(range(len(order)), key=lambda i: seen[order[i]])
        best = order[at]
        if at in (0, len(order) - 1):
            visit(best + (width if at else -width))
            continue
        x = np.array(order[at - 1 : at + 2]) - best
        y = np.array([seen[each] for each in order[at - 1 : at + 2]]) - seen[best]
        bend = (y[2] / x[2] - y[0] / x[0]) / (x[2] - x[0])
        tilt = y[0] / x[0] - bend * x[0]
        move = float(np.clip(-tilt / (2 * bend), 0.9 * x[0], 0.9 * x[2])) if bend < 0 else 0.0
        best += move
        if abs(move) < 1e-2:
            break
        visit(best)
    return path(energies, aspect, [float(np.exp(best))], classes, shared=shared, points=points)[0]


def interpolated(fit: Fit, energies: Energies) -> tuple[Rule, float]:
    """The best mixture Wbar + alpha (W - Wbar) for accuracy, and alpha (section 10)."""
    if fit.distance == 0:
        return fit, 0.0
    B0 = float(energies.b0)
    gram = np.array([[fit.c**2 * B0, fit.c * fit.along], [fit.c * fit.along, fit.Q]])
    t = np.array([fit.c * B0, fit.T])
    v = np.linalg.solve(gram, t)
    v /= v.sum()
    return Rule(fit.classes, fit.rho, float(v @ t), float(v @ gram @ v)), float(v[1])
