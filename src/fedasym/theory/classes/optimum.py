"""Sections 6 to 9: what else a client can do, the best ridge, and the optimum of all rules.

One gradient step from the shared model, as in MAML, has a closed form.

Early-stopped gradient descent is matched to the ridge path by an arc-length clock: on the path
|grad L| = lam R with R = ||theta_hat - theta_bar||, and descent moves at speed |grad L|, so that by
the time tau = step x steps it has come to the ridge with tau(lam) = int_lam^inf dlog R/lam'. Not
exact: within .3 percentage points.

The Bayes optimum knows theta_0 and the energy of Delta.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import PchipInterpolator

from fedasym.core.numbers import Array
from fedasym.theory.classes.metrics import (
    LEVEL,
    State,
    accuracy,
    brier,
    half_normal_nodes,
    log_loss,
    nodes_for,
    outer_step,
    phi,
    smooth_sigmoid,
)
from fedasym.theory.classes.ridge import RidgeFit, fedavg, shrinkage, solve_ridge, unknowns
from fedasym.theory.roots import find_fixed_points, interpolate_between, lowest_between
from fedasym.worlds.classes import Energies


class OneStep(NamedTuple):
    """The state after the step, its length a, and the Brier score G0 of the model before it."""

    state: State
    step: Array
    brier: Array


def step_from_shared(
    energies: Energies, gamma: ArrayLike, step: ArrayLike | None = None, eps: ArrayLike = 0.0
) -> OneStep:
    """theta_bar + a (1/n) X'(y01 - sig(X theta_bar)), at the given or most accurate a:

    T = c B0 + a f sum s^2 ED,   Q = c^2 B0 + a^2 sum s^2 (f^2 s ED + gamma G0 h),   f = (1-2 eps)
    phi(rho), a* = c f sum s^2 ED / sum s^2 (f^2 s ED + gamma G0 h).

    >>> one = step_from_shared(Energies.isotropic(1, 2, s=[0.5, 3], h=[0.6, 0.4]), gamma=2)
    >>> round(float(one.step), 9)
    0.422040003
    """
    e = energies
    gamma = np.asarray(gamma, dtype=float)
    c = shrinkage(e, eps)
    f = (1 - 2 * np.asarray(eps)) * phi(e.rho)
    g0 = brier(fedavg(e, eps), eps)
    gain = f * (e.s**2 * e.ed).sum(-1)
    noise = gamma * g0 * (e.s**2 * e.h).sum(-1)
    cost = f**2 * (e.s**3 * e.ed).sum(-1) + noise
    a = c * gain / cost if step is None else np.asarray(step, dtype=float)
    T, Q = c * e.b0 + a * gain, c**2 * e.b0 + a**2 * cost
    return OneStep(State.of(T, Q, e.rho), np.asarray(a), g0)


CLOCK_PER_DECADE = 15
CLOCK_ABOVE = 1e3  # the first ridge, in units of the largest curvature: there tau = 1/lam
LEAST_RIDGE = 1e-9  # the last ridge, in the same units


class StoppedFits(NamedTuple):
    """The fits matched to the times (last axis), and their ridges; infinite at time 0."""

    fit: RidgeFit
    lam: Array


def logistic_curvature(energies: Energies, gamma: ArrayLike) -> Array:
    """A bound like Lmax = .25 (1+sqrt gamma)^2 max s on the curvature: steps stay below 2/Lmax."""
    return np.asarray(
        0.25 * (1 + np.sqrt(np.asarray(gamma, dtype=float))) ** 2 * energies.s.max(-1)
    )


def distance2(
    energies: Energies, gamma: ArrayLike, lam: ArrayLike, c: ArrayLike, fit: RidgeFit
) -> Array:
    """||theta_hat - theta_bar||^2 = sum R^2 {((M - Hh c)s)^2 E0 + (M s)^2 ED + gamma G s h}."""
    e = energies
    M, H, G, lam, c, gamma = (
        np.asarray(x, dtype=float)[..., None] for x in (fit.M, fit.H, fit.G, lam, c, gamma)
    )
    inside = ((M - H * c) * e.s) ** 2 * e.e0 + (M * e.s) ** 2 * e.ed + gamma * G * e.s * e.h
    return np.asarray((inside / (H * e.s + lam) ** 2).sum(-1))


def ridge_at(energies: Energies, gamma: float, c: float, times: Array, eps: float = 0.0) -> Array:
    """The ridge whose clock shows each time, for one setting.

    Ridges fall by 15 to a decade; a cell adds dlog R (e^k - 1)/(k lam_a), k = log(lam_a/lam_b).
    They end where the times do, or where the path has reached the maximum-likelihood estimate,
    which later times keep.
    """
    late = float(np.max(times, initial=0.0))
    scale = float(logistic_curvature(energies, gamma))
    top = CLOCK_ABOVE * scale
    log_lam = (
        np.log(top)
        - np.arange(1 + int(CLOCK_PER_DECADE * np.log10(CLOCK_ABOVE / LEAST_RIDGE)))
        * np.log(10)
        / CLOCK_PER_DECADE
    )
    clock = np.array([1 / top])
    lengths: list[float] = []
    ahead = None
    size, k = 3 * CLOCK_PER_DECADE, np.log(10) / CLOCK_PER_DECADE
    for start in range(0, log_lam.size, size):  # in pieces, as far as is needed
        lams = np.exp(log_lam[start : start + size])
        fit = solve_ridge(energies, gamma, lams, c, eps, start=ahead)
        u = unknowns(fit.T, fit.Q, fit.V, fit.rest)
        ahead = u[-1] + np.arange(1, 1 + log_lam[start + size : start + 2 * size].size)[:, None] * (
            u[-1] - u[max(-2, -len(u))]
        )
        lengths += (np.log(distance2(energies, gamma, lams, c, fit)) / 2).tolist()
        steps = np.diff(lengths)
        clock = (
            np.concatenate(
                [[0.0], np.cumsum(steps * np.expm1(k) / (k * np.exp(log_lam[: steps.size])))]
            )
            + 1 / top
        )
        if not clock[-1] < late or abs(steps[-1]) < 1e-12:
            break
    good = np.flatnonzero(np.diff(clock, prepend=0.0) > 1e-14 * clock)
    lam_of = PchipInterpolator(np.log(clock[good]), log_lam[: clock.size][good])
    with np.errstate(divide="ignore"):
        early = times <= clock[0]
        inside = lam_of(np.log(np.clip(times, clock[0], clock[good[-1]])))
        return np.where(early, 1 / times, np.exp(inside))


def stopped_fits(
    energies: Energies, gamma: ArrayLike, times: ArrayLike, eps: ArrayLike = 0.0
) -> StoppedFits:
    """Descent from the shared model, stopped at each of `times` = step x steps: (*batch, times).

    >>> from fedasym.theory.classes.metrics import accuracy
    >>> early = stopped_fits(Energies.isotropic(1.5, 1.5), gamma=2, times=[0, 1, 100])
    >>> [round(float(x), 3) for x in accuracy(early.fit)]
    [0.686, 0.696, 0.627]
    """
    times = np.atleast_1d(np.asarray(times, dtype=float))
    shape = np.broadcast_shapes(energies.batch, np.shape(gamma), np.shape(eps))
    e = energies.broadcast(shape).flat()
    g, flips = (
        np.broadcast_to(np.asarray(x, dtype=float), shape).reshape(-1) for x in (gamma, eps)
    )
    c = shrinkage(e, flips)
    lam = np.stack([ridge_at(e.take(i), g[i], c[i], times, flips[i]) for i in range(g.size)])
    lam = lam.reshape(*shape, times.size)
    wide = Energies(*(x.reshape(*shape, 1, x.shape[-1]) for x in (e.s, e.h, e.e0, e.ed)))
    numbers = [x.reshape(*shape, 1) for x in (g, c, flips)]
    return StoppedFits(solve_ridge(wide, numbers[0], lam, numbers[1], numbers[2]), lam)


Criterion = Literal["accuracy", "log_loss"]

ABOVE, BELOW = 3, 2  # decades of ridges about the rule that are searched first
PER_DECADE = 3
COARSE = 12.0  # level of that search: 6e-6, enough to see where the optimum lies
INNER = 9  # Chebyshev points of each refinement
NARROW = 12  # how much narrower the last is
SHIFTS = 12  # of a refinement whose optimum lies at its edge


class TunedRidge(NamedTuple):
    """The best ridge, the fit there, and its accuracy or log-loss."""

    lam: Array
    fit: RidgeFit
    value: Array


def ridge_by_rule(energies: Energies, gamma: ArrayLike, eps: ArrayLike = 0.0) -> Array:
    """9.1: lam = gamma/(c r^2), r^2 the energy of Delta; infinite for clients that do not differ.

    Within .02 percentage points of the best accuracy. For local ridge give `energies.alone`.

    >>> round(float(ridge_by_rule(Energies.isotropic(1, 1), gamma=2)), 6)
    2.386864
    """
    with np.errstate(divide="ignore"):
        return np.asarray(np.asarray(gamma) / (shrinkage(energies, eps) * energies.r2))


def search_best_ridge(
    energies: Energies, gamma: ArrayLike, eps: ArrayLike = 0.0, criterion: Criterion = "accuracy"
) -> TunedRidge:
    """The ridge of best accuracy or log-loss: a grid about the rule, then two interpolations.

    The optimum is flat: the value is exact to about 1e-10, the ridge to about 1e-5.

    >>> round(
    ...     float(
    ...         search_best_ridge(Energies.isotropic(1.5, 1.5), gamma=2, criterion="log_loss").value
    ...     ),
    ...     9,
    ... )
    0.573219907
    """
    shape = np.broadcast_shapes(energies.batch, np.shape(gamma), np.shape(eps))
    e = energies.broadcast(shape).flat()
    g, flips = (
        np.broadcast_to(np.asarray(x, dtype=float), shape).reshape(-1) for x in (gamma, eps)
    )
    c = shrinkage(e, flips)
    rule = ridge_by_rule(e, g, flips)
    endless = np.isinf(rule)
    centre = np.log(np.where(endless, 1.0, rule))

    def loss(x: Array, level: float, start: Array | None = None) -> tuple[Array, Array]:
        """The criterion (lower is better) at log lam = x (settings, points), and its unknowns."""
        wide = Energies(*(y[:, None, :] for y in (e.s, e.h, e.e0, e.ed)))
        fit = solve_ridge(
            wide, g[:, None], np.exp(x), c[:, None], flips[:, None], start=start, level=level
        )
        score = (
            accuracy(fit, flips[:, None])
            if criterion == "accuracy"
            else -log_loss(fit, flips[:, None], level)
        )
        return np.nan_to_num(-score, nan=np.inf), unknowns(fit.T, fit.Q, fit.V, fit.rest)

    width = step = np.log(10) / PER_DECADE
    grid = centre[:, None] + step * np.arange(ABOVE * PER_DECADE, -BELOW * PER_DECADE - 1, -1)
    values, near = loss(grid, COARSE)
    if np.any(np.argmin(values, axis=1) == values.shape[1] - 1):  # it may lie further down
        more = grid[:, -1:] - step * np.arange(1, 2 * BELOW * PER_DECADE)
        further = loss(more, COARSE)
        grid = np.concatenate([grid, more], axis=1)
        values, near = (
            np.concatenate([x, y], axis=1) for x, y in zip((values, near), further, strict=True)
        )
    at = np.argmin(values, axis=1)[:, None]
    best = np.take_along_axis(grid, at, axis=1)[:, 0]
    start = np.take_along_axis(near, at[:, :, None], axis=1)
    nodes = np.cos(np.pi * np.arange(INNER) / (INNER - 1))
    for left in range(
        SHIFTS, -2, -1
    ):  # as wide as the grid until the optimum lies inside, then once more, narrower
        values, near = loss(best[:, None] + width * nodes, LEVEL, start)
        place = np.array(
            [
                0.0 if flat else lowest_between(nodes, row)
                for flat, row in zip(endless, values, strict=True)
            ]
        )
        best = best + width * place
        start = interpolate_between(nodes, near, place[:, None] + nodes / NARROW)
        if width < step:
            break
        if left == 0 or np.all(np.abs(place) < 1):
            width /= NARROW
        else:
            start = start[:, INNER // 2, None]
    lam = np.where(endless, np.inf, np.exp(best)).reshape(shape)
    fit = solve_ridge(
        energies, gamma, lam, c.reshape(shape), eps, start=start[:, INNER // 2].reshape(*shape, 3)
    )
    return TunedRidge(
        lam, fit, accuracy(fit, eps) if criterion == "accuracy" else log_loss(fit, eps)
    )


class Bayes(NamedTuple):
    """The posterior mean's state, and the overlap q that it reaches with Delta."""

    state: State
    q: Array


def bayes_optimum(energies: Energies, gamma: ArrayLike, eps: ArrayLike = 0.0) -> Bayes:
    """9.2: the posterior mean given theta_0 and a normal prior on Delta of its energy by atom.

    Q = T = B0 + q, w ~ N(0, Q), s|w ~ N(w, rho^2-Q), F = 2E[D^2/Pbar], q = sum s ED x/(1+x) with x
    = (ED/h) F s/gamma (ED/h = r^2 for isotropic Delta).

    >>> round(
    ...     float(bayes_optimum(Energies.isotropic(1, 2, s=[0.5, 3], h=[0.6, 0.4]), gamma=0.3).q), 9
    ... )
    4.278415037
    """
    shape = np.broadcast_shapes(energies.batch, np.shape(gamma), np.shape(eps))
    e = energies.broadcast(shape).flat()
    g, flips = (
        np.broadcast_to(np.asarray(x, dtype=float), shape).reshape(-1) for x in (gamma, eps)
    )
    prior = np.divide(e.ed, e.h, out=np.zeros(e.ed.shape), where=e.h > 0)
    gain = prior * e.s / g[:, None]
    b0 = e.b0

    def split_energy(information: Array, rows: NDArray[np.intp]) -> tuple[Array, Array]:
        """q, and BD - q as its own sum."""
        x = gain[rows] * information[:, None]
        energy = (e.s * e.ed)[rows]
        return (energy * x / (1 + x)).sum(-1), (energy / (1 + x)).sum(-1)

    def image(u: Array, rows: NDArray[np.intp]) -> Array:
        q, left = split_energy(np.exp(u[:, 0]), rows)
        return np.log(information_at(b0[rows] + q, left, flips[rows]))[:, None]

    informative = np.flatnonzero(flips < 0.5)
    F = np.zeros(g.size)
    if informative.size:
        start = (
            np.log(
                4
                * information_at(
                    e.rho[informative] ** 2, np.zeros(informative.size), flips[informative]
                )
            )[:, None]
            - 1
        )
        F[informative] = np.exp(
            find_fixed_points(lambda u, rows: image(u, informative[rows]), start, damping=1.0).u[
                :, 0
            ]
        )
    q, left = split_energy(F, np.arange(g.size))
    T, rho = (b0 + q).reshape(shape), e.rho.reshape(shape)
    return Bayes(State(T, T, rho, left.reshape(shape)), q.reshape(shape))


def information_at(Q: Array, left: Array, eps: Array) -> Array:
    """F = 2E[D^2/Pbar] over w ~ N(0, Q), s|w ~ N(w, left): both labels of a node pair together."""
    out = np.empty(Q.size)
    sd, tau = np.sqrt(Q), np.sqrt(left)
    nodes = nodes_for(outer_step(sd, sd, tau, LEVEL))
    for count in np.unique(nodes):
        z, weight = half_normal_nodes(int(count))
        rows = np.flatnonzero(nodes == count)
        # the rare label: small numbers keep their digits
        low, d = smooth_sigmoid(-sd[rows, None] * z, tau[rows])
        flips = eps[rows, None]
        low, d = flips + (1 - 2 * flips) * low, (1 - 2 * flips) * d
        ratio = np.divide(d**2, low, out=np.zeros(d.shape), where=low > 0)
        out[rows] = 2 * (ratio + d**2 / (1 - low)) @ weight
    return out


def bayes_log_loss(found: Bayes, eps: ArrayLike = 0.0) -> Array:
    """The Bayes prediction's log-loss: E[-Pbar log Pbar - (1-Pbar) log(1-Pbar)]."""
    shape = np.broadcast_shapes(np.shape(found.q), np.shape(eps))
    Q, rest, flips = (
        np.broadcast_to(x, shape).reshape(-1) for x in (found.state.Q, found.state.rest, eps)
    )
    sd, tau = np.sqrt(Q), np.sqrt(rest)
    nodes = nodes_for(outer_step(sd, sd, tau, LEVEL))
    out = np.empty(Q.size)
    for i, count in enumerate(nodes):
        z, weight = half_normal_nodes(int(count))
        low = smooth_sigmoid(-sd[i] * z[None], tau[i : i + 1])[0][0]
        low = flips[i] + (1 - 2 * flips[i]) * low
        log = np.log(np.where(low > 0, low, 1.0))
        out[i] = -2 * (low * log + (1 - low) * np.log1p(-low)) @ weight
    return out.reshape(shape)


# of the quick search: points, their reach about the rule over 1.25, level of its quadrature
NODES, WIDTH, QUICK = 6, np.log(3.5), 17.0


def interpolate_best_ridges(e: Energies, gamma: Array, eps: Array) -> tuple[State, Array]:
    """Best ridges of many worlds by polynomials in the logarithm, about the rule and beyond."""
    c = shrinkage(e, eps)
    rule = ridge_by_rule(e, gamma, eps)
    endless = np.isinf(rule)
    at = np.log(np.where(endless, 1.0, rule / 1.25))
    nodes = np.cos(np.pi * np.arange(NODES) / (NODES - 1))
    rows = np.flatnonzero(~endless)
    for _ in range(6):
        some = e.take(rows)
        wide = Energies(*(x[:, None, :] for x in (some.s, some.h, some.e0, some.ed)))
        lam = np.exp(at[rows, None] + WIDTH * nodes)
        fit = solve_ridge(wide, gamma[rows, None], lam, c[rows, None], eps[rows, None], level=QUICK)
        loss = np.nan_to_num(-accuracy(fit, eps[rows, None]), nan=np.inf)
        place = np.array([lowest_between(nodes, row) for row in loss])
        at[rows] += WIDTH * place
        rows = rows[np.abs(place) > 0.98]
        if rows.size == 0:
            break
    best = np.where(endless, np.inf, np.exp(at))
    found = solve_ridge(e, gamma, best, c, eps, level=QUICK)
    return State(found.T, found.Q, found.rho, found.rest), best
