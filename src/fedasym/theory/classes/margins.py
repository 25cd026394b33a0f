"""Sections 5 and 10: fine-tuning to convergence, where it leads on separable data, and weights
between two models.

Trained to convergence the shared model drops out, for every gamma: below the separability threshold
gradient descent finds the maximum-likelihood estimate, above it the max-margin direction, min ||w||
with y x'w >= 1. That is the system of section 3 with g = (1-w)_+/V, lam = 1 and c = 0. Given u =
s/rho, z = w/sqrt Q is normal, so the means of powers of (k-z)_+, k = 1/sqrt Q the margin, are
known, and one integral over u remains.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, ndtr

from fedasym.algorithms.stages import ClientStage
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array
from fedasym.theory.classes.metrics import (
    NODES_AT_ONCE,
    STRIP,
    State,
    half_normal_nodes,
    nodes_for,
    step_for,
)
from fedasym.theory.classes.ridge import (
    RidgeFit,
    RidgeSystem,
    Threshold,
    separability_threshold,
    solve_ridge,
    unknowns,
)
from fedasym.theory.classes.softmax import SoftmaxRule
from fedasym.theory.classes.softmax_ridge import SoftmaxFit
from fedasym.theory.roots import ACCEPTED, FixedPoint, find_roots, newton_fixed_points
from fedasym.worlds.classes import Energies

HingeMeans = tuple[Array, Array, Array, Array]


def hinges(u: Array, k: Array, rho: Array, eps: Array) -> HingeMeans:
    """A = E 1{yz<k}, E(k-yz)_+, K1 = 2E[D(z)(k-z)_+], K2 = E(k-yz)_+^2 at cos = tanh u, flat."""
    cos = np.tanh(u)
    sin = 1 / np.cosh(u)
    with np.errstate(divide="ignore"):
        nodes = nodes_for(step_for(STRIP / rho, 1 / sin**2))
    out = np.empty((4, u.size))
    for count in np.unique(nodes):
        v, weight = half_normal_nodes(int(count))
        group = np.flatnonzero(nodes == count)
        size = max(1, NODES_AT_ONCE // int(count))
        for i in range(0, group.size, size):
            rows = group[i : i + size]
            flips = 1 - 2 * eps[rows, None]
            sig = expit(rho[rows, None] * v)
            p, d = eps[rows, None] + flips * sig, flips * sig * (1 - sig)
            c = cos[rows, None]
            s = sin[rows, None]
            m = k[rows, None]
            with_label, against = ((m - sign * c * v) / s for sign in (1, -1))
            (a0, a1, a2), (b0, b1, b2) = hinge_moments(with_label), hinge_moments(against)
            out[0, rows] = 2 * (p * a0 + (1 - p) * b0) @ weight
            out[1, rows] = 2 * (s * (p * a1 + (1 - p) * b1)) @ weight
            out[2, rows] = 2 * (s * d * (a1 + b1)) @ weight
            out[3, rows] = 2 * (s**2 * (p * a2 + (1 - p) * b2)) @ weight
    return out[0], out[1], out[2], out[3]


def hinge_moments(x: Array) -> tuple[Array, Array, Array]:
    """P(Z < x), E(x-Z)_+ and E(x-Z)_+^2."""
    below = ndtr(x)
    bell = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    return below, x * below + bell, (1 + x**2) * below + x * bell


def margin_for(u: Array, gamma: Array, rho: Array, eps: Array) -> Array:
    """The k with K2 = gamma (1-cos^2), by Newton on sqrt K2, convex in k: one overshoot at most."""
    target = np.sqrt(gamma) / np.cosh(u)
    k = np.zeros(u.size)
    for _ in range(60):
        _, first, _, second = hinges(u, k, rho, eps)
        size = np.sqrt(second)
        step = (target - size) * size / np.maximum(first, 1e-300)
        k = k + np.clip(step, -5, None)
        if np.all(np.abs(step) <= 1e-14 * (1 + np.abs(k))):
            break
    return k


def uncorrelated_margin(gamma: Array, rho: Array, eps: Array) -> tuple[Array, Array, Array]:
    """Uncorrelated features, two unknowns: K2 = gamma (1-cos^2) gives k(cos), and cos = rho
    K1/gamma; V = gamma - A.

    Returns atanh cos, k and V for gamma above gamma*, where cos is below its value at the
    threshold.
    """

    def gap(u: Array) -> Array:
        k = margin_for(u, gamma, rho, eps)
        return np.asarray(np.tanh(u) - rho * hinges(u, k, rho, eps)[2] / gamma)

    top = np.arcsinh(1.05 * separability_threshold(rho, eps).tangent + 1e-3)
    u = find_roots(gap, np.zeros(gamma.size), top, tolerance=1e-15)
    k = margin_for(u, gamma, rho, eps)
    return u, k, gamma - hinges(u, k, rho, eps)[0]


def max_margin(energies: Energies, gamma: ArrayLike, eps: ArrayLike = 0.0) -> RidgeFit:
    """The max-margin classifier of one client, in units of margin 1, for gamma (times the rank)
    above gamma*.

    >>> fit = max_margin(Energies.isotropic(2, 1), gamma=5)
    >>> round(float(fit.cos), 9), round(float(fit.Q), 9), round(float(fit.V), 9)
    (0.264332561, 0.22967215, 4.02582047)
    """
    shape = np.broadcast_shapes(energies.batch, np.shape(gamma), np.shape(eps))
    e = energies.broadcast(shape).flat()
    g, flips = (
        np.broadcast_to(np.asarray(x, dtype=float), shape).reshape(-1) for x in (gamma, eps)
    )
    none = np.zeros(e.s.shape)
    ones = np.ones(g.size)
    problem = RidgeSystem(e, g, ones, none, none, flips, ones)
    seen = np.where(e.s > 0, e.h, 0.0)
    mean = (seen * e.s).sum(-1) / seen.sum(-1)
    u, k, V = uncorrelated_margin(g * seen.sum(-1), e.rho, flips)
    found = FixedPoint(np.stack([u, -2 * np.log(k), np.log(mean * V)], axis=1), np.zeros(g.size))
    one = np.all(
        (e.s == 0) | (e.h == 0) | np.isclose(e.s, mean[:, None], rtol=1e-15, atol=0), axis=1
    )
    rows = np.flatnonzero(~one)
    if rows.size:
        found.u[rows], found.residual[rows] = follow_spectrum(
            problem.take(rows), found.u[rows], mean[rows]
        )
    H, G, M = margin_means(found.u, problem)
    T, Q, V, rest, f0 = problem.sums(H, G, M)
    bad = ~(found.residual <= ACCEPTED)
    numbers = {
        name: np.where(bad, np.nan, x).reshape(shape)
        for name, x in zip("TQVHGM", (T, Q, V, H, G, M), strict=True)
    }
    return RidgeFit(
        rho=e.rho.reshape(shape),
        rest=rest.reshape(shape),
        f0=f0.reshape(*shape, -1),
        residual=found.residual.reshape(shape),
        **numbers,
    )


def margin_means(u: Array, problem: RidgeSystem) -> tuple[Array, Array, Array]:
    """(A) with g = (1-w)_+/V: Hh = A/V, G = Q K2/V^2, M = sqrt(Q) K1/V."""
    Q, V = np.exp(u[:, 1]), np.exp(u[:, 2])
    A, _, K1, K2 = hinges(u[:, 0], 1 / np.sqrt(Q), problem.energies.rho, problem.eps)
    return A / V, Q * K2 / V**2, np.sqrt(Q) * K1 / V


def follow_spectrum(problem: RidgeSystem, start: Array, mean: Array) -> FixedPoint:
    """Correlated features: from s = mean to the spectrum along s^t mean^(1-t), with the energies
    scaled to keep B0 and BD.

    Plain iteration drifts to infinity near gamma*; Newton does not.
    """
    e = problem.energies
    m = mean[:, None]
    u = start
    residual = np.zeros(mean.size)
    for t in np.linspace(0, 1, 6)[1:]:
        s = np.where(e.s > 0, m * np.where(e.s > 0, e.s / m, 1.0) ** t, 0.0)
        ratio = np.divide(e.s, s, out=np.zeros(s.shape), where=s > 0)
        now = replace(problem, energies=Energies(s, e.h, e.e0 * ratio, e.ed * ratio))

        def image(u: Array, rows: NDArray[np.intp], now: RidgeSystem = now) -> Array:
            some = now.take(rows)
            T, Q, V, rest, _ = some.sums(*margin_means(u, some))
            return unknowns(T, Q, V, rest)

        u, residual = newton_fixed_points(image, u)
    return FixedPoint(u, residual)


EDGE = 0.999  # share of gamma* beyond which the estimate is extrapolated
NUDGE = 1e-7  # the margin is zero at the threshold itself


class Converged(NamedTuple):
    """The fit and where data are separable: there in units of margin 1, log-loss without limit."""

    fit: RidgeFit
    separable: NDArray[np.bool_]


def fit_to_convergence(energies: Energies, gamma: ArrayLike, eps: ArrayLike = 0.0) -> Converged:
    """The logistic loss trained to convergence from any start, on each setting of a batch.

    >>> from fedasym.theory.classes.metrics import accuracy
    >>> end = fit_to_convergence(Energies.isotropic(2, 1), gamma=[0.1, 5])
    >>> end.separable.tolist(), [round(float(x), 4) for x in accuracy(end.fit)]
    ([False, True], [0.7644, 0.5671])
    """
    shape = np.broadcast_shapes(energies.batch, np.shape(gamma), np.shape(eps))
    e = energies.broadcast(shape).flat()
    g, flips = (
        np.broadcast_to(np.asarray(x, dtype=float), shape).reshape(-1) for x in (gamma, eps)
    )
    edge = separability_threshold(e.rho, flips)
    ratio = g * e.rank / edge.gamma
    pieces: list[tuple[NDArray[np.intp], RidgeFit]] = []
    if (rows := np.flatnonzero(ratio <= EDGE)).size:
        pieces.append((rows, solve_ridge(e.take(rows), g[rows], 0.0, eps=flips[rows])))
    if (rows := np.flatnonzero((ratio > EDGE) & (ratio < 1))).size:
        pieces.append(
            (
                rows,
                extrapolate_fit(
                    e.take(rows),
                    g[rows],
                    flips[rows],
                    Threshold(edge.gamma[rows], edge.tangent[rows]),
                ),
            )
        )
    if (rows := np.flatnonzero(ratio >= 1)).size:
        beyond = g[rows] * np.where(ratio[rows] < 1 + NUDGE, 1 + NUDGE, 1)
        pieces.append((rows, max_margin(e.take(rows), beyond, flips[rows])))
    return Converged(join_fits(pieces, shape), (ratio >= 1).reshape(shape))


def extrapolate_fit(e: Energies, gamma: Array, eps: Array, edge: Threshold) -> RidgeFit:
    """The estimate within 1 - EDGE of gamma*: its tangent and 1/sqrt Q are linear in gamma there, V
    ~ sqrt Q.

    Both end at the threshold: the tangent in t*, where the max margin begins too, and 1/sqrt Q in
    0.
    """
    last = solve_ridge(e, EDGE * edge.gamma / e.rank, 0.0, eps=eps)
    left = (1 - gamma * e.rank / edge.gamma) / (1 - EDGE)
    tangent = edge.tangent + (last.tangent - edge.tangent) * left
    Q, V = last.Q / left**2, last.V / left
    sin2 = 1 / (1 + tangent**2)
    T = e.rho * np.sqrt(Q) * tangent * np.sqrt(sin2)
    H = gamma * e.rank / V
    f0 = np.where(
        e.s > 0, np.divide(T, e.rho**2, out=np.zeros(T.shape), where=e.rho > 0)[:, None], 0.0
    )
    return RidgeFit(
        T,
        Q,
        e.rho,
        e.rho**2 * sin2,
        V,
        H,
        f0.max(-1) * H,
        H**2 * Q * sin2 / (gamma * e.rank),
        f0,
        last.residual,
    )


def join_fits(pieces: list[tuple[NDArray[np.intp], RidgeFit]], shape: tuple[int, ...]) -> RidgeFit:
    """Fits of parts of a flat batch, put together."""
    size = sum(rows.size for rows, _ in pieces)
    out: dict[str, Array] = {}
    for field in fields(RidgeFit):
        whole = np.empty((size, *np.shape(getattr(pieces[0][1], field.name))[1:]))
        for rows, fit in pieces:
            whole[rows] = getattr(fit, field.name)
        out[field.name] = whole.reshape((*shape, *whole.shape[1:]))
    return RidgeFit(**out)


class WeightMixture(NamedTuple):
    """The state of the mixture, its weight alpha, and the overlap O = theta_hat' Sigma theta_0."""

    state: State
    alpha: Array
    overlap: Array


def mix_weights(
    energies: Energies, c: ArrayLike, fit: RidgeFit, alpha: ArrayLike | None = None
) -> WeightMixture:
    """theta_bar + alpha (theta_hat - theta_bar) at the given alpha (0: shared, 1: personal), or at
    the most accurate one.

    >>> from fedasym.theory.classes.ridge import shrinkage, solve_ridge
    >>> one = Energies.isotropic(1.5, 1.5)
    >>> c = shrinkage(one)
    >>> round(float(mix_weights(one, c, solve_ridge(one, gamma=2, lam=0.01, c=c)).alpha), 2)
    0.13
    """
    (gram, t), overlap = gram_of(energies, c, fit)
    if alpha is None:
        v0, v1 = best_weights(gram, t)
        total = v0 + v1
        mixed = np.divide(v1, total, out=np.ones(np.shape(total)), where=total > 0)
    else:
        mixed = np.asarray(alpha, dtype=float)
    return WeightMixture(combine_rules(1 - mixed, mixed, gram, t, energies.rho), mixed, overlap)


def add_direction(
    energies: Energies, c: ArrayLike, fit: RidgeFit, alpha: ArrayLike | None = None
) -> WeightMixture:
    """theta_bar + alpha theta_hat: for a theta_hat that is a direction without a length, as the max
    margin is.

    >>> from fedasym.theory.classes.ridge import shrinkage
    >>> one = Energies.isotropic(1.5, 1.5)
    >>> round(
    ...     float(add_direction(one, shrinkage(one), fit_to_convergence(one, gamma=2).fit).alpha), 9
    ... )
    0.387840338
    """
    (gram, t), overlap = gram_of(energies, c, fit)
    if alpha is None:
        v0, v1 = best_weights(gram, t)
        weight = np.divide(v1, v0, out=np.full(np.shape(v0), np.inf), where=v0 > 0)
    else:
        weight = np.asarray(alpha, dtype=float)
    alone = np.isinf(weight)  # the shared model is zero
    state = combine_rules(
        np.where(alone, 0.0, 1.0), np.where(alone, 1.0, weight), gram, t, energies.rho
    )
    return WeightMixture(state, weight, overlap)


def gram_of(
    energies: Energies, c: ArrayLike, fit: RidgeFit
) -> tuple[tuple[tuple[Array, Array, Array], tuple[Array, Array]], Array]:
    """Gram = [[c^2 B0, c O], [c O, Q]] and t = (c B0, T), with O = sum s f0 E0."""
    c = np.asarray(c, dtype=float)
    e = energies
    overlap = np.asarray((e.s * fit.f0 * e.e0).sum(-1))
    return ((c**2 * e.b0, c * overlap, fit.Q), (c * e.b0, fit.T)), overlap


def best_weights(gram: tuple[Array, Array, Array], t: tuple[Array, Array]) -> tuple[Array, Array]:
    """Gram^-1 t up to a factor: by the adjugate, whose scale is lost on normalising anyway."""
    return gram[2] * t[0] - gram[1] * t[1], gram[0] * t[1] - gram[1] * t[0]


def combine_rules(
    v0: Array, v1: Array, gram: tuple[Array, Array, Array], t: tuple[Array, Array], rho: Array
) -> State:
    """The rule v0 theta_bar + v1 theta_hat: T = v't, Q = v'Gram v."""
    return State.of(
        v0 * t[0] + v1 * t[1], v0**2 * gram[0] + 2 * v0 * v1 * gram[1] + v1**2 * gram[2], rho
    )


def best_softmax_mixture(fit: SoftmaxFit, energies: Energies) -> tuple[SoftmaxRule, float]:
    """The best mixture Wbar + alpha (W - Wbar) for accuracy, and alpha (section 10)."""
    if fit.distance == 0:
        return fit, 0.0
    B0 = float(energies.b0)
    gram = np.array([[fit.c**2 * B0, fit.c * fit.along], [fit.c * fit.along, fit.Q]])
    t = np.array([fit.c * B0, fit.T])
    v = np.linalg.solve(gram, t)
    v /= v.sum()
    return SoftmaxRule(fit.classes, fit.rho, float(v @ t), float(v @ gram @ v)), float(v[1])


def check_stable_step(client: ClientStage, most: float) -> None:
    """Refuse a step with which descent may diverge, `most` or more."""
    step = client.get("local_step")
    if step is not None and step >= most:
        raise InvalidInput(
            f"step is {step:g}: descent diverges with steps of {most:.4g} or more; give a smaller"
        )
