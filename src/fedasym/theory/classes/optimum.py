"""Section 9: the best ridge, by rule and exactly, and what no method can beat: the Bayes optimum with theta_0 known."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.polynomial.chebyshev import chebder, chebfit, chebroots, chebval, chebvander
from numpy.typing import ArrayLike, NDArray

from fedasym.core.arrays import Array
from fedasym.theory.classes.fixedpoints import fixed_points
from fedasym.theory.classes.links import smoothed
from fedasym.theory.classes.metrics import State, accuracy, log_loss, outer_step
from fedasym.theory.classes.quadrature import LEVEL, half_normal, nodes_for
from fedasym.theory.classes.ridge import Fit, solve
from fedasym.theory.classes.shared import shrinkage
from fedasym.theory.classes.system import unknowns
from fedasym.worlds.energies import Energies

Criterion = Literal["accuracy", "log_loss"]

ABOVE, BELOW = 3, 2  # decades of ridges about the rule that are searched first
PER_DECADE = 3
COARSE = 12.0  # level of that search: 6e-6, enough to see where the optimum lies
INNER = 9  # Chebyshev points of each refinement
NARROW = 12  # how much narrower the last is
SHIFTS = 12  # of a refinement whose optimum lies at its edge


class Tuned(NamedTuple):
    """The best ridge, the fit there, and its accuracy or log-loss."""

    lam: Array
    fit: Fit
    value: Array


def ridge_by_rule(energies: Energies, gamma: ArrayLike, eps: ArrayLike = 0.0) -> Array:
    """9.1: lam = gamma/(c r^2), r^2 the Euclidean energy of Delta; infinite for clients that do not differ.

    Within .02 percentage points of the best accuracy. For local ridge give `energies.alone`.

    >>> round(float(ridge_by_rule(Energies.isotropic(1, 1), gamma=2)), 6)
    2.386864
    """
    with np.errstate(divide="ignore"):
        return np.asarray(np.asarray(gamma) / (shrinkage(energies, eps) * energies.r2))


def best_ridge(energies: Energies, gamma: ArrayLike, eps: ArrayLike = 0.0, criterion: Criterion = "accuracy") -> Tuned:
    """The ridge of best accuracy or log-loss: a grid about the rule, then two rounds of polynomial interpolation.

    The optimum is flat: the value is exact to about 1e-10, the ridge to about 1e-5.

    >>> round(float(best_ridge(Energies.isotropic(1.5, 1.5), gamma=2, criterion="log_loss").value), 9)
    0.573219907
    """
    shape = np.broadcast_shapes(energies.batch, np.shape(gamma), np.shape(eps))
    e = energies.broadcast(shape).flat()
    g, flips = (np.broadcast_to(np.asarray(x, dtype=float), shape).reshape(-1) for x in (gamma, eps))
    c, rule = shrinkage(e, flips), ridge_by_rule(e, g, flips)
    endless = np.isinf(rule)
    centre = np.log(np.where(endless, 1.0, rule))

    def loss(x: Array, level: float, start: Array | None = None) -> tuple[Array, Array]:
        """The criterion, lower is better, at log lam = x of shape (settings, points); and the unknowns found there."""
        wide = Energies(*(y[:, None, :] for y in (e.s, e.h, e.e0, e.ed)))
        fit = solve(wide, g[:, None], np.exp(x), c[:, None], flips[:, None], start=start, level=level)
        score = accuracy(fit, flips[:, None]) if criterion == "accuracy" else -log_loss(fit, flips[:, None], level)
        return np.nan_to_num(-score, nan=np.inf), unknowns(fit.T, fit.Q, fit.V, fit.rest)

    width = step = np.log(10) / PER_DECADE
    grid = centre[:, None] + step * np.arange(ABOVE * PER_DECADE, -BELOW * PER_DECADE - 1, -1)
    values, near = loss(grid, COARSE)
    if np.any(np.argmin(values, axis=1) == values.shape[1] - 1):  # it may lie further down
        more = grid[:, -1:] - step * np.arange(1, 2 * BELOW * PER_DECADE)
        further = loss(more, COARSE)
        grid = np.concatenate([grid, more], axis=1)
        values, near = (np.concatenate([x, y], axis=1) for x, y in zip((values, near), further, strict=True))
    at = np.argmin(values, axis=1)[:, None]
    best, start = np.take_along_axis(grid, at, axis=1)[:, 0], np.take_along_axis(near, at[:, :, None], axis=1)
    nodes = np.cos(np.pi * np.arange(INNER) / (INNER - 1))
    for left in range(SHIFTS, -2, -1):  # as wide as the grid until the optimum lies inside, then once more, narrower
        values, near = loss(best[:, None] + width * nodes, LEVEL, start)
        place = np.array([0.0 if flat else lowest_between(nodes, row) for flat, row in zip(endless, values, strict=True)])
        best = best + width * place
        start = between(nodes, near, place[:, None] + nodes / NARROW)
        if width < step:
            break
        if left == 0 or np.all(np.abs(place) < 1):
            width /= NARROW
        else:
            start = start[:, INNER // 2, None]
    lam = np.where(endless, np.inf, np.exp(best)).reshape(shape)
    fit = solve(energies, gamma, lam, c.reshape(shape), eps, start=start[:, INNER // 2].reshape(*shape, 3))
    return Tuned(lam, fit, accuracy(fit, eps) if criterion == "accuracy" else log_loss(fit, eps))


def between(nodes: Array, values: Array, places: Array) -> Array:
    """What polynomials through values (settings, nodes, unknowns) have at places (settings, points).

    >>> between(np.array([-1.0, 0.0, 1.0]), np.array([[[1.0], [0.0], [1.0]]]), np.array([[0.5]])).tolist()
    [[[0.25]]]
    """
    degree = nodes.size - 1
    return np.asarray(chebvander(places, degree) @ np.linalg.solve(chebvander(nodes, degree), values))


def lowest_between(nodes: Array, values: Array) -> float:
    """Where the polynomial through values at Chebyshev nodes of [-1, 1] is lowest."""
    if not np.all(np.isfinite(values)) or np.ptp(values) == 0:
        return 0.0
    series = chebfit(nodes, (values - values.min()) / np.ptp(values), nodes.size - 1)
    turns = chebroots(chebder(series))
    inside = turns.real[(np.abs(turns.imag) < 1e-6) & (np.abs(turns.real) <= 1)]
    places = np.concatenate([[-1.0, 1.0], inside])
    return float(places[np.argmin(chebval(places, series))])


class Bayes(NamedTuple):
    """The posterior mean's state, and the overlap q that it reaches with Delta."""

    state: State
    q: Array


def bayes(energies: Energies, gamma: ArrayLike, eps: ArrayLike = 0.0) -> Bayes:
    """9.2: the posterior mean with theta_0 known and a normal prior on Delta of its true energy per atom.

    Q = T = B0 + q, w ~ N(0, Q), s|w ~ N(w, rho^2-Q), F = 2E[D^2/Pbar], q = sum s ED x/(1+x) with x = (ED/h) F s/gamma
    (ED/h = r^2 for isotropic Delta).

    >>> round(float(bayes(Energies.isotropic(1, 2, s=[0.5, 3], h=[0.6, 0.4]), gamma=0.3).q), 9)
    4.278415037
    """
    shape = np.broadcast_shapes(energies.batch, np.shape(gamma), np.shape(eps))
    e = energies.broadcast(shape).flat()
    g, flips = (np.broadcast_to(np.asarray(x, dtype=float), shape).reshape(-1) for x in (gamma, eps))
    prior = np.divide(e.ed, e.h, out=np.zeros(e.ed.shape), where=e.h > 0)
    gain, b0 = prior * e.s / g[:, None], e.b0

    def learned(information: Array, rows: NDArray[np.intp]) -> tuple[Array, Array]:
        """q, and BD - q as its own sum."""
        x = gain[rows] * information[:, None]
        energy = (e.s * e.ed)[rows]
        return (energy * x / (1 + x)).sum(-1), (energy / (1 + x)).sum(-1)

    def image(u: Array, rows: NDArray[np.intp]) -> Array:
        q, left = learned(np.exp(u[:, 0]), rows)
        return np.log(information_at(b0[rows] + q, left, flips[rows]))[:, None]

    informative = np.flatnonzero(flips < 0.5)
    F = np.zeros(g.size)
    if informative.size:
        start = np.log(4 * information_at(e.rho[informative] ** 2, np.zeros(informative.size), flips[informative]))[:, None] - 1
        F[informative] = np.exp(fixed_points(lambda u, rows: image(u, informative[rows]), start, damping=1.0).u[:, 0])
    q, left = learned(F, np.arange(g.size))
    T, rho = (b0 + q).reshape(shape), e.rho.reshape(shape)
    return Bayes(State(T, T, rho, left.reshape(shape)), q.reshape(shape))


def information_at(Q: Array, left: Array, eps: Array) -> Array:
    """F = 2E[D^2/Pbar] over w ~ N(0, Q) with s|w ~ N(w, left): both labels of one node pair together."""
    out = np.empty(Q.size)
    sd, tau = np.sqrt(Q), np.sqrt(left)
    nodes = nodes_for(outer_step(sd, sd, tau, LEVEL))
    for count in np.unique(nodes):
        z, weight = half_normal(int(count))
        rows = np.flatnonzero(nodes == count)
        low, d = smoothed(-sd[rows, None] * z, tau[rows])  # the rare label: small numbers keep their digits
        flips = eps[rows, None]
        low, d = flips + (1 - 2 * flips) * low, (1 - 2 * flips) * d
        ratio = np.divide(d**2, low, out=np.zeros(d.shape), where=low > 0)
        out[rows] = 2 * (ratio + d**2 / (1 - low)) @ weight
    return out


def bayes_log_loss(found: Bayes, eps: ArrayLike = 0.0) -> Array:
    """The log-loss of the Bayes prediction Pbar itself: E[-Pbar log Pbar - (1-Pbar) log(1-Pbar)]."""
    shape = np.broadcast_shapes(np.shape(found.q), np.shape(eps))
    Q, rest, flips = (np.broadcast_to(x, shape).reshape(-1) for x in (found.state.Q, found.state.rest, eps))
    sd, tau = np.sqrt(Q), np.sqrt(rest)
    nodes = nodes_for(outer_step(sd, sd, tau, LEVEL))
    out = np.empty(Q.size)
    for i, count in enumerate(nodes):
        z, weight = half_normal(int(count))
        low = smoothed(-sd[i] * z[None], tau[i : i + 1])[0][0]
        low = flips[i] + (1 - 2 * flips[i]) * low
        log = np.log(np.where(low > 0, low, 1.0))
        out[i] = -2 * (low * log + (1 - low) * np.log1p(-low)) @ weight
    return out.reshape(shape)
