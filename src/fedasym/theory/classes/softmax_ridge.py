"""Sections 7 and 11.1: ridge and early stopping with C exchangeable classes.

RTFA and local ridge with the softmax loss solve a system of three means (A) for (T, Q, V), along a
path of ridges. Means are taken over points and corrected by controls: functions of the same logits
whose exact means are known (`softmax`). Regression on nine of them leaves a twentieth of the
sampling error.

Not derived for more than two classes, and refused with a sentence: training to convergence (where
the classes stop overlapping, and the limit beyond), finitely many clients, label flips.

Early stopping has the clock of two classes, whose argument does not see their number: |grad L| =
ridge R, with R the Frobenius distance from the shared model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedasym.core.errors import NoFormula
from fedasym.core.numbers import Array
from fedasym.theory.classes.softmax import (
    SEARCH,
    SoftmaxPoints,
    SoftmaxRule,
    draw_points,
    gini,
    mean_log_sum,
    prox_curvature,
    prox_start,
    softmax,
    softmax_centre,
    softmax_overlap,
    softmax_phi,
    softmax_prox,
)
from fedasym.worlds.classes import Energies

POINTS_AT_ONCE = 1 << 16  # numbers in an array over points, labels and classes: fits the cache
SECANTS = 3  # of Anderson's acceleration: there are three unknowns
RESIDUAL = 1e-10
ITERATIONS = 200
SOFTMAX_DIVERGED = 9.0  # log Q
SCALES = (0.5, 1.0)  # of w in the controls; one where exact means are slow to compute
WIDE_LOGITS = 6.0  # standard deviation of the logits


@dataclass
class WarmStart:
    """What the next solution starts from: the last proximal points by chunk, and secants."""

    eta: dict[int, Array] = field(default_factory=dict)
    # changes of the unknowns, and of the step there
    secants: list[tuple[Array, Array]] = field(default_factory=list)


def softmax_means(
    T: float, Q: float, V: float, rho: float, points: SoftmaxPoints, warm: WarmStart
) -> tuple[float, float, float]:
    """Hh, G, M of section 11.1 at the state (T, Q, V)."""
    C = points.classes
    w = np.sqrt(Q) * points.z1
    s = T / Q * w + np.sqrt(max(rho * rho - T * T / Q, 0.0)) * points.z2
    p = softmax(s)
    size = max(1, POINTS_AT_ONCE // C**2)
    parts = []
    for first in range(0, w.shape[1], size):
        here = slice(first, first + size)
        start = warm.eta[first] if first in warm.eta else prox_start(w[:, here], V)
        warm.eta[first], q = softmax_prox(w[:, here], V, start)
        own = np.einsum("kkn->kn", q)
        # with g = e_k - q: |g|^2 = 1 - 2 q_k + |q|^2, and g_k - p'g = 1 - q_k - p_k + p'q
        G = 1 - 2 * own + np.einsum("jkn,jkn->kn", q, q)
        M = 1 - own - p[:, here] + np.einsum("jn,jkn->kn", p[:, here], q)
        means = ((p[:, here] * each).sum(0) for each in (prox_curvature(q, V), G, M))
        parts.append(np.stack(list(means)))
    values = np.concatenate(parts, axis=1)
    Hh, G, M = control_means(values, T, Q, rho, w, p, points.weight) / (C - 1)
    return float(Hh), float(G), float(M)


def control_means(
    values: Array, T: float, Q: float, rho: float, w: Array, p: Array, weight: Array
) -> Array:
    """The means of `values` (rows, points), less the sampling error that the controls show.

    Controls: |p|^2, p'w, lse(w), and for softmax q of w at two scales |q|^2, p'q, w'q. By Stein E
    p'w = (C-1) T phi_C(rho).
    """
    C = len(w)
    spread = np.sqrt(Q)
    columns = [(p * p).sum(0), (p * w).sum(0), np.log(np.exp(w - w.max(0)).sum(0)) + w.max(0)]
    exact = [1 - gini(rho, C), T * gini(rho, C), mean_log_sum(spread, C)]
    for a in SCALES if max(rho, spread) < WIDE_LOGITS else SCALES[1:]:
        q = softmax(a * w)
        columns += [(q * q).sum(0), (p * q).sum(0), (w * q).sum(0)]
        own = gini(a * spread, C)
        exact += [1 - own, softmax_overlap(a * T, a * a * Q, rho, C), a * Q * own]
    X = np.array(columns)
    mean, X_mean = values @ weight, X @ weight
    X = X - X_mean[:, None]
    size = np.sqrt(X**2 @ weight)
    size = np.where(size > 1e-7, size, np.inf)  # constant: nothing to learn from it
    X /= size[:, None]
    gram = (X * weight) @ X.T + 1e-9 * np.eye(len(X))
    slopes = np.linalg.solve(gram, (X * weight) @ (values - mean[:, None]).T)
    return np.asarray(mean - ((X_mean - exact) / size) @ slopes)


@dataclass(frozen=True)
class SoftmaxState:
    """A solution of the system."""

    T: float
    Q: float
    V: float
    Hh: float
    G: float
    M: float


def softmax_response(
    Hh: float, G: float, M: float, energies: Energies, aspect: float, ridge: float, c: float
) -> tuple[float, float, float]:
    """(B) of section 3: (T, Q, V) from the means."""
    s, h, E0, ED = energies.s, energies.h, energies.e0, energies.ed
    R = 1 / (Hh * s + ridge)
    T = np.sum(s * R * ((ridge * c + M * s) * E0 + M * s * ED))
    Q = np.sum(s * R**2 * ((ridge * c + M * s) ** 2 * E0 + (M * s) ** 2 * ED + aspect * G * s * h))
    return float(T), float(Q), float(aspect * np.sum(h * s * R))


def solve_softmax(
    energies: Energies,
    aspect: float,
    ridge: float,
    c: float,
    points: SoftmaxPoints,
    warm: WarmStart,
    guess: tuple[float, float, float],
) -> SoftmaxState:
    """The fixed point of (A) and (B) from (T, Q, V): damped steps, then Anderson (section 3.1)."""
    rho = float(energies.rho)

    def pack(T: float, Q: float, V: float) -> Array:
        cos = min(T / max(rho * np.sqrt(Q), 1e-300), 1 - 1e-15)
        return np.array([np.arctanh(cos), np.log(Q), np.log(V)])

    def unpack(u: Array) -> tuple[float, float, float]:
        Q = float(np.exp(u[1]))
        return float(np.tanh(u[0]) * rho * np.sqrt(Q)), Q, float(np.exp(u[2]))

    u = pack(*guess)
    last: tuple[Array, Array] | None = None
    for _ in range(ITERATIONS):
        found = softmax_means(*unpack(u), rho, points, warm)
        step = pack(*softmax_response(*found, energies, aspect, ridge, c)) - u
        if np.abs(step).max() < RESIDUAL:
            return SoftmaxState(*unpack(u), *found)
        if u[1] > SOFTMAX_DIVERGED:
            break
        if np.abs(step).max() > 1:
            warm.secants.clear()
        elif last is not None:
            warm.secants[:] = [*warm.secants[1 - SECANTS :], (u - last[0], step - last[1])]
        last = u, step
        if warm.secants:
            dU, dF = (np.array(each).T for each in zip(*warm.secants, strict=True))
            move = step - (dU + dF) @ np.linalg.lstsq(dF, step, rcond=1e-10)[0]
        else:
            move = 0.7 * step
        u = u + np.clip(move, -1, 1)
    raise NoFormula(
        f"no solution at ridge {ridge:g} with {points.classes} classes: the samples are (nearly)"
        " separable, so that weights diverge as the ridge vanishes, and that limit is derived for"
        " two classes only; take a larger ridge"
    )


# the most by which a ridge falls between two solutions when the first is far from the last
STRIDE = 8.0


@dataclass(frozen=True)
class SoftmaxFit(SoftmaxRule):
    """A client's ridge fit around c W0 (c = 0: around nothing)."""

    ridge: float
    c: float
    V: float
    Hh: float
    G: float
    M: float
    along: float  # w'Sigma theta_0
    distance: float  # R = ||W - Wbar||_F, what the clock of early stopping needs (section 7)


def refuse_convergence(classes: int) -> NoFormula:
    """Why there is no FTFA: the error to raise."""
    return NoFormula(
        f"no formula covers fine-tuning to convergence with {classes} classes: where the data stop"
        " being separable and the max-margin limit are derived for two; take rtfa, early stopping"
        " or one step, or two classes"
    )


def collect_softmax_fit(
    energies: Energies, aspect: float, ridge: float, classes: int, c: float, state: SoftmaxState
) -> SoftmaxFit:
    """The solution of the system as a rule, with the overlaps of section 3."""
    s, h, E0, ED = energies.s, energies.h, energies.e0, energies.ed
    Hh, G, M = state.Hh, state.G, state.M
    R = 1 / (Hh * s + ridge)
    along = np.sum(s * R * (ridge * c + M * s) * E0)
    away = np.sum(R**2 * (((M - Hh * c) * s) ** 2 * E0 + (M * s) ** 2 * ED + aspect * G * s * h))
    rho, distance = float(energies.rho), float(np.sqrt((classes - 1) * away))
    return SoftmaxFit(
        classes, rho, state.T, state.Q, ridge, c, state.V, Hh, G, M, float(along), distance
    )


def shared_softmax_fit(energies: Energies, classes: int, c: float) -> SoftmaxFit:
    """An infinite ridge: the shared model as it is."""
    B0 = float(energies.b0)
    rule = SoftmaxRule(classes, float(energies.rho), c * B0, c * c * B0)
    Hh, M = softmax_phi(c * np.sqrt(B0), classes), softmax_phi(rule.rho, classes)
    G = rule.brier / (classes - 1)
    return SoftmaxFit(classes, rule.rho, rule.T, rule.Q, np.inf, c, 0.0, Hh, G, M, c * B0, 0.0)


def softmax_ridge_path(
    energies: Energies, aspect: float, ridges: Sequence[float] | Array, classes: int, *,
    shared: bool = True, points: SoftmaxPoints | None = None,
) -> list[SoftmaxFit]:  # fmt: skip
    """The fits at these ridges, in order; `shared`: around FedAvg's model (RTFA), else around 0.

    Solved from the largest ridge down, each from the one before, at the same points.
    """
    if not np.all(np.asarray(ridges) > 0):
        raise refuse_convergence(classes)
    c = softmax_centre(energies, classes) if shared else 0.0
    points = draw_points(classes) if points is None else points
    warm = WarmStart()
    found = {}
    for ridge in ridges_downwards(energies, aspect, np.asarray(ridges, dtype=float)):
        if np.isinf(ridge):
            found[ridge] = shared_softmax_fit(energies, classes, c)
            continue
        before = [fit for fit in found.values() if np.isfinite(fit.ridge)][-2:]
        guess = continue_path(before, ridge) if before else None
        guess = guess or guess_state(energies, aspect, ridge, classes, c)
        state = solve_softmax(energies, aspect, ridge, c, points, warm, guess)
        found[ridge] = collect_softmax_fit(energies, aspect, ridge, classes, c, state)
    return [found[float(ridge)] for ridge in ridges]


def continue_path(before: list[SoftmaxFit], ridge: float) -> tuple[float, float, float]:
    """(T, Q, V) at the next ridge of a path: logarithms continued linearly in log ridge."""
    last = before[-1]
    ratio = float(np.log(ridge / last.ridge))
    if len(before) == 1 or min(fit.T for fit in before) <= 0:
        return last.T, last.Q, last.V * float(np.exp(-0.5 * ratio))
    here, there = (np.array([fit.T, fit.Q, fit.V]) for fit in (last, before[0]))
    slopes = np.log(here / there) / np.log(last.ridge / before[0].ridge)
    T, Q, V = here * np.exp(slopes * ratio)
    return float(T), float(Q), float(V)


def ridges_downwards(energies: Energies, aspect: float, ridges: Array) -> list[float]:
    """The ridges downwards, and others between where one is far below the last or what is easy."""
    easy = 0.3 * aspect / max(float(np.sum(energies.e0 + energies.ed)), 1.0)
    order = []
    last = np.inf
    for ridge in sorted({float(ridge) for ridge in ridges}, reverse=True):
        top = min(last, easy)
        steps = int(np.ceil(np.log(max(top / ridge, 1.0)) / np.log(STRIDE)))
        order += [top * (ridge / top) ** (k / steps) for k in range(0 if last > easy else 1, steps)]
        order.append(ridge)
        last = ridge
    return order


def guess_state(
    energies: Energies, aspect: float, ridge: float, classes: int, c: float
) -> tuple[float, float, float]:
    """(T, Q, V) to start from: one round of the system at V -> 0, exact as the ridge grows."""
    start = shared_softmax_fit(energies, classes, c)
    return softmax_response(start.Hh, start.G, start.M, energies, aspect, ridge, c)


def softmax_rtfa(energies: Energies, aspect: float, ridge: float, classes: int) -> SoftmaxFit:
    """The client's ridge fit around FedAvg's model.

    >>> fit = softmax_rtfa(Energies.isotropic(1.5, 1.5), 2.0, 1.0, 3)
    >>> round(fit.accuracy, 4), round(fit.log_loss, 4)
    (0.6035, 0.8533)
    """
    return softmax_ridge_path(energies, aspect, [ridge], classes)[0]


def best_softmax_ridge(
    energies: Energies,
    aspect: float,
    classes: int,
    score: str = "accuracy",
    *,
    shared: bool = True,
    points: SoftmaxPoints | None = None,
) -> SoftmaxFit:
    """The ridge of best "accuracy", "log_loss" or "brier"; searched on few points, computed on all.

    Starts at the rule of section 9.1, gamma/(c r^2), widens until the best is inside, then follows
    parabolas. The score is flat at its best: a ridge good to a few percent costs it about 1e-6.
    """
    c = softmax_centre(energies, classes) if shared else 1.0
    r2 = float(np.sum(energies.ed if shared else energies.e0 + energies.ed))
    if r2 == 0:
        return softmax_ridge_path(energies, aspect, [np.inf], classes, shared=shared)[0]
    few = draw_points(classes, SEARCH) if points is None else points
    sign = 1.0 if score == "accuracy" else -1.0
    seen: dict[float, float] = {}

    def visit(*at: float) -> None:
        fits = softmax_ridge_path(energies, aspect, np.exp(at), classes, shared=shared, points=few)
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
    at_best = [float(np.exp(best))]
    return softmax_ridge_path(energies, aspect, at_best, classes, shared=shared, points=points)[0]


SOFTMAX_PER_DECADE = 8
# the first ridge in units of the loss's largest curvature, where the clock shows 1/ridge
SOFTMAX_ABOVE = 1e2


def softmax_curvature(energies: Energies, aspect: float) -> float:
    """Lmax <= (1/2) (1+sqrt gamma)^2 max s by softmax's curvature: steps stay below 2/Lmax."""
    return float(0.5 * (1 + np.sqrt(aspect)) ** 2 * energies.s.max())


def descent_clock(ridges: Array, distances: Array) -> Array:
    """The time tau(ridge) = int dlog R/ridge' at these falling ridges, 1/ridge at the first.

    A cell adds dlog R (e^k - 1)/(k ridge_a), k = log(ridge_a/ridge_b).

    >>> ridges = np.geomspace(1e3, 0.01, 200)
    >>> tau = descent_clock(ridges, 1 / (2 + ridges))  # one mode of curvature 2
    >>> bool(np.allclose(tau, np.log1p(2 / ridges) / 2, rtol=2e-3))
    True
    """
    k = np.log(ridges[:-1] / ridges[1:])
    cells = np.diff(np.log(distances)) * np.expm1(k) / (k * ridges[:-1])
    return np.asarray(1 / ridges[0] + np.concatenate([[0.0], np.cumsum(cells)]))


def stopped_softmax_fits(
    energies: Energies, aspect: float, times: Array, classes: int
) -> list[SoftmaxFit]:
    """Descent from the shared model, stopped at `times` = step x steps: fits of matched ridges.

    Time 0 keeps the shared model; the path ends with the last time, or when nothing moves.
    """
    times = np.asarray(times, dtype=float)
    few = draw_points(classes, SEARCH)
    top = SOFTMAX_ABOVE * softmax_curvature(energies, aspect)
    late = float(times.max(initial=0.0))
    ridges, tau = np.array([top]), np.array([1 / top])
    decades = np.log10(max(6 * top * late, 10.0))  # ridge x time is mostly above .15
    while tau[-1] < late:
        ridges = np.geomspace(top, top / 10**decades, 2 + int(SOFTMAX_PER_DECADE * decades))
        fits = softmax_ridge_path(energies, aspect, ridges, classes, points=few)
        R = np.array([fit.distance for fit in fits])
        tau = descent_clock(ridges, R)
        if R[-1] - R[-2] < 1e-3 * R[-1]:
            break  # descent has arrived: later times change nothing
        decades += 1
    inside = np.exp(np.interp(np.log(np.maximum(times, 1 / top)), np.log(tau), np.log(ridges)))
    with np.errstate(divide="ignore"):
        matched = np.where(times <= 1 / top, 1 / times, inside)
    return softmax_ridge_path(energies, aspect, matched, classes)
