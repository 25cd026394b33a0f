"""Likelihoods of noise and radius over many clients: the restricted one, and of all labels.

Restricted (section 8.1), in blocks of rows so that nothing but the turned features is kept: one
curve in the ratio c = noise^2 d/radius^2; given c, noise^2 is the residual sum over a chi-square.
Intervals integrate that curve with a uniform weight on the shrinkage c/(c + x), which keeps the
ends (no noise, no radius) from running away.

All labels at once, where all samples together are too few for a shared model: a shared optimum
without preferred directions makes the labels y ~ (0, t V), V = (1 - u) ((1 - v) I + v B) + u K,
where K = XX'/(d tau) over all samples has the mean diagonal 1, and B are its blocks within clients:
u is the part of the labels' mean square t that clients share, v the part of the rest by which they
differ. Products across clients, which B lacks and K has, tell u; the lengths within a client hardly
tell v from noise, and what is left open about it is in the draws. In coordinates where (1 - v) I +
v B is the identity, the eigenvalues of K serve every u. Given u and v, t is y'V^{-1}y over a
chi-square. The three parts (noise, differing, shared) have a uniform
weight: without labels, none is likelier than another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import scipy.interpolate
import scipy.linalg
import scipy.stats
from numpy.typing import NDArray

from fedasym.core.numbers import Array
from fedasym.core.runtime import MANY_THREADS
from fedasym.exact.reml import FLAT_RATIO, RATIO_SPAN

MOST_THREADS = 4
Answer = TypeVar("Answer")
BLOCK = 2048  # rows weighed at once, and added up in the precision they are kept in
SEGMENTS = 4  # of the rows, added up apart: the same sum on every machine
DEEP = 20.0  # a deviance this far above the least counts for nothing
FINE_RATIOS = 4001
MOST_NODES = 12
FEW_X = 200  # quantiles of x at which weights are compared
SAME_WEIGHTS = 1e-10  # singular values of weights, over the largest, below which they are the same
# of the deviance, at the error FIRM_ERROR of log c: what the nodes of a window may be off by
EXACT = 1e-3
FIRM_ERROR = 0.05
WINDOW_ERRORS = 7.0  # errors on either side of the first guess that a window covers
# errors that a window is made for: with larger ones there are few samples, and passes are cheap
NARROWEST = (0.02, 0.1)
# a deviance this near to flat is looked at where the ratio is only nearly infinite
NEARLY_FLAT = 1.0
NEAR = 0.3  # of an error: points closer than that are one
DRAWS = 1024
MOST_JOINT = 1000  # samples up to which the eigenvalues take seconds; with more, moments
NODES = 12  # values of v that are looked at: the deviance is smooth between them
FINE_PARTS = 200


def in_threads(work: Callable[[int], Answer], count: int, dimension: int) -> list[Answer]:
    """work(0), ..., work(count - 1) in threads; in turn where one matrix product fills them."""
    threads = min(MOST_THREADS, os.cpu_count() or 1, count)
    if threads < 2 or dimension >= MANY_THREADS:
        return [work(place) for place in range(count)]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, range(count)))


@dataclass(frozen=True, eq=False)
class TurnedClients:
    """All clients along their axes, residuals about the pooled fit, in `Likelihood`'s letters."""

    x: Array
    # the shared unknowns as seen there, in coordinates where G'G = I, and the residuals u as the
    # last column; in single precision where there are many, whose errors average out
    Gu: NDArray[np.floating[Any]]
    squares: Array  # u^2, residual by residual
    rest: float
    freedom: int

    def sums(self, ratios: Array) -> Array:
        """[G u]'K[G u] by ratio c, K = c/(c + x): (ratios, d + 1, d + 1).

        By NumPy, which lets other threads work meanwhile: SciPy's products do not.
        """
        root = np.sqrt(shrink_factors(ratios, self.x)).astype(self.Gu.dtype)
        edges = np.linspace(0, self.x.size, SEGMENTS + 1).astype(int)
        width, kind = self.Gu.shape[1], self.Gu.dtype

        def add_up(place: int) -> Array:
            total = np.zeros((ratios.size, width, width))
            room, out = np.empty((BLOCK, width), dtype=kind), np.empty((width, width), dtype=kind)
            for start in range(edges[place], edges[place + 1], BLOCK):
                part = slice(start, min(start + BLOCK, edges[place + 1]))
                for k, each in enumerate(root[:, part]):
                    weighed = np.multiply(each[:, None], self.Gu[part], out=room[: each.size])
                    total[k] += np.matmul(weighed.T, weighed, out=out)
            return total

        return np.asarray(sum(in_threads(add_up, SEGMENTS, width)))

    def deviance(self, ratio: float, sums: Array) -> tuple[float, float]:
        """-2 log restricted likelihood at its best noise, and the residual sum of squares for it.

        The length u'Ku, which many samples make large, is summed here at the ratio itself: `sums`
        need be no more exact than the unknowns require.
        """
        root = scipy.linalg.cholesky(sums[:-1, :-1], lower=True)
        half = scipy.linalg.solve_triangular(root, sums[-1, :-1], lower=True)
        length = float(shrink_factors(np.array([ratio]), self.x)[0] @ self.squares)
        rss = max(length + self.rest - float(half @ half), np.finfo(float).tiny)
        logs = self.freedom * np.log(rss / self.freedom) + np.log1p(self.x / ratio).sum()
        return float(logs + 2 * np.log(np.diag(root)).sum()), rss

    def at(self, ratio: float) -> tuple[float, float]:
        """`deviance` from the samples themselves."""
        return self.deviance(ratio, self.sums(np.array([ratio]))[0])

    @property
    def endless(self) -> float:
        """The deviance without any radius, c infinite: G'G = I, and u is at right angles to G."""
        rss = max(float(self.squares.sum()) + self.rest, np.finfo(float).tiny)
        return float(self.freedom * np.log(rss / self.freedom))


class RatioWindow:
    """The sums of `TurnedClients` about one log c from a few nodes: one pass serves every point.

    Between the nodes the weight c/(c + x) is a combination of those at the nodes and of 1, the
    weight without a radius, where G'G = I and G'u = 0 are known: by least squares of the relative
    error over the x at hand. A relative error e of the weights moves log det G'KG by at most d e,
    and far less since errors of both signs cancel; it moves the part of u that G explains, of d
    degrees of freedom, by as much; u'Ku is exact at every point. There are as many nodes as it
    takes for the deviance. Outside of the window the samples are asked again.
    """

    def __init__(self, turned: TurnedClients, centre: float, error: float) -> None:
        self.turned, self.centre = turned, centre
        self.half = half = WINDOW_ERRORS * float(np.clip(error, *NARROWEST))
        # where the deviance is flat, little moves its least point
        exact = EXACT * min(FIRM_ERROR / max(error, 1e-3), 1.0) ** 2
        self.some = np.quantile(turned.x, (np.arange(FEW_X) + 0.5) / FEW_X)
        logs = centre + half * np.linspace(-1, 1, 2 * MOST_NODES)
        for count in range(2, MOST_NODES + 1):
            between = np.cos(np.pi * (np.arange(count) + 0.5) / count)  # Chebyshev's
            self.nodes = np.exp(centre + half * between)
            off = max(np.abs(self.basis(log) @ self.weights(log) - 1).mean() for log in logs)
            if off * turned.Gu.shape[1] < exact:
                break
        self.values: Array | None = None

    def basis(self, log: float) -> Array:
        """Weights at the nodes and, last, without a radius, over those at log c: (x, nodes + 1)."""
        known = np.vstack([shrink_factors(self.nodes, self.some), np.ones(FEW_X)])
        return np.asarray((known / shrink_factors(np.exp([log]), self.some)).T)

    def weights(self, log: float) -> Array:
        """What each node and, last, the end without a radius count for at log c."""
        return np.asarray(np.linalg.lstsq(self.basis(log), np.ones(FEW_X), rcond=SAME_WEIGHTS)[0])

    def at(self, log: float) -> tuple[float, float]:
        """The deviance and its residual sum of squares at log c."""
        if abs(log - self.centre) > self.half:
            return self.turned.at(float(np.exp(log)))
        if self.values is None:
            self.values = self.turned.sums(self.nodes)
        *inner, end = self.weights(log)
        sums = np.tensordot(inner, self.values, 1)
        sums[np.diag_indices(len(sums))] += end
        return self.turned.deviance(float(np.exp(log)), sums)


def shrink_factors(ratios: Array, x: Array) -> Array:
    """c/(c + x) at each ratio c (rows) and each x."""
    return np.asarray(1 / (1 + x / ratios[:, None]))


@dataclass(frozen=True, eq=False)
class DevianceCurve:
    """Deviance and log residual sum along log c, the minimum, and whether radius 0 fits as well."""

    logs: Array
    deviance: Array
    rss: Array
    best: float
    flat: bool
    least: float  # the deviance there; the curve is what lies above it

    def noise2(self, freedom: int) -> float:
        """At the lowest point."""
        return float(np.exp(np.interp(self.best, self.logs, self.rss))) / freedom


def trace_deviance(turned: TurnedClients, start: float, error: float) -> DevianceCurve:
    """Sample the deviance around `start` (and a guess of its error in log c) as far as matters."""
    middle = float(np.log(max(float(np.mean(turned.x)), np.finfo(float).tiny)))
    low, high = middle - RATIO_SPAN, middle + RATIO_SPAN
    seen: dict[float, tuple[float, float]] = {}
    window = RatioWindow(turned, float(np.clip(start, low, high)), error)

    def look(at: float) -> float:
        if at not in seen:
            deviance, rss = window.at(at)
            seen[at] = deviance, float(np.log(rss))
        return seen[at][0]

    here, step = float(np.clip(start, low, high)), float(np.clip(error, 0.02, 1.5))
    here, step = descend(look, here, step, low, high)
    floor = look(here)
    for way in (-1.0, 1.0):
        at, stride = here, step
        while low < at < high and look(at) < floor + DEEP:
            at = float(np.clip(at + way * stride, low, high))
            floor = min(floor, look(at))
            stride *= 1.25
    points = thin_points(seen, NEAR * step)
    deviance, rss = np.array([seen[at] for at in points]).T
    logs = np.linspace(points[0], points[-1], FINE_RATIOS)
    smooth = scipy.interpolate.CubicSpline(points, deviance)(logs)
    smooth_rss = scipy.interpolate.PchipInterpolator(points, rss)(logs)
    place = int(np.argmin(smooth))
    nearly = scipy.stats.chi2.ppf(0.95, 1)
    endless = turned.endless if points[-1] < high else deviance[-1]
    if endless - smooth[place] < nearly + NEARLY_FLAT:
        endless = look(high)
    flat = bool(endless - smooth[place] < nearly)
    best = float(logs[place])
    if flat and look(best) >= endless - FLAT_RATIO:  # the likelihood is lowest without any radius
        best = high
    return DevianceCurve(logs, smooth - smooth[place], smooth_rss, best, flat, float(smooth[place]))


def thin_points(seen: dict[float, tuple[float, float]], least: float) -> Array:
    """The points seen, lowest first, less those too near another, which magnify rounding."""
    kept: list[float] = []
    for at in sorted(seen, key=lambda each: seen[each][0]):
        if all(abs(at - other) >= least for other in kept):
            kept.append(at)
    return np.array(sorted(kept))


def descend(
    look: Callable[[float], float], here: float, step: float, low: float, high: float
) -> tuple[float, float]:
    """The lowest point by parabolas, and the error by the curvature there: 1 above the least."""
    for _ in range(40):
        left, right = max(here - step, low), min(here + step, high)
        below, now, above = look(left), look(here), look(right)
        if below < now or above < now:
            here = left if below < above else right
            if here in (low, high):
                return here, step
            continue
        bend = (below - 2 * now + above) / step**2
        if bend <= 1e-9:
            return here, step
        error = float(np.clip(np.sqrt(2 / bend), 0.01, 1.5))
        vertex = here + np.clip((below - above) / (2 * bend * step), -step, step)
        if look(vertex) < now:
            here = float(vertex)
        if step <= 1.5 * error:
            return here, error
        step = error
    return here, step


def draw_variances(
    curve: DevianceCurve, turned: TurnedClients, dimension: int, grid: Array
) -> Array:
    """(noise^2, radius^2) as the likelihood allows, at points of the unit square: (B, 2)."""
    middle = np.log(np.mean(turned.x))
    shrunk = 1 / (1 + np.exp(middle - curve.logs))
    weight = np.exp(-curve.deviance / 2) * shrunk * (1 - shrunk)
    heights = np.concatenate([[0.0], np.cumsum((weight[1:] + weight[:-1]) / 2)])
    logs = np.interp(grid[:, 0], heights / heights[-1], curve.logs)
    rss = np.exp(np.interp(logs, curve.logs, curve.rss))
    noise2 = rss / scipy.stats.chi2.ppf(grid[:, 1], turned.freedom)
    return np.column_stack([noise2, noise2 * dimension / np.exp(logs)])


def even_points(count: int, width: int) -> Array:
    """Points that fill a cube evenly (Roberts' additive recurrence), the same every time."""
    root = 2.0
    for _ in range(60):
        root = (1 + root) ** (1 / (width + 1))
    return np.asarray(
        (0.5 + np.arange(1, count + 1)[:, None] * root ** -np.arange(1.0, width + 1)) % 1
    )


@dataclass(frozen=True, eq=False)
class JointDraws:
    """Draws (B, 3) of noise^2, radius^2, centre^2, and whether equal clients fit nearly as well."""

    draws: Array
    flat: bool


@dataclass(frozen=True, eq=False)
class LikelihoodSurface:
    """Twice the log likelihood, best t, and log y'V^{-1}y at nodes of v (rows) and u (columns)."""

    v: Array
    u: Array
    twice: Array
    squares: Array
    tau: float
    samples: int


def draw_jointly(clients: Iterable[tuple[Array, Array]]) -> JointDraws:
    """What all labels together leave open."""
    seen = likelihood_surface(clients)
    v = (np.arange(FINE_PARTS) + 0.5) / FINE_PARTS
    twice, squares = (
        scipy.interpolate.CubicSpline(seen.v, each)(v) for each in (seen.twice, seen.squares)
    )
    bounds = np.concatenate([[0.0], (seen.u[1:] + seen.u[:-1]) / 2, [1.0]])
    # uniform over the three parts is 1 - u here
    weight = np.exp((twice - twice.max()) / 2) * (1 - seen.u) * np.diff(bounds)
    grid = even_points(DRAWS, 3)
    at = np.interp(grid[:, 0], cumulative_shares(weight.sum(1)), np.linspace(0, 1, FINE_PARTS + 1))
    rows = np.minimum((at * FINE_PARTS).astype(int), FINE_PARTS - 1)
    u = np.array(
        [
            np.interp(p, cumulative_shares(weight[row]), bounds)
            for p, row in zip(grid[:, 1], rows, strict=True)
        ]
    )
    log_square = np.array(
        [np.interp(each, seen.u, squares[row]) for each, row in zip(u, rows, strict=True)]
    )
    t = np.exp(log_square) / scipy.stats.chi2.ppf(grid[:, 2], seen.samples)
    draws = np.column_stack([t * (1 - u) * (1 - at), t * (1 - u) * at / seen.tau, t * u / seen.tau])
    flat = bool(seen.twice.max() - seen.twice[0].max() < scipy.stats.chi2.ppf(0.95, 1))
    return JointDraws(draws, flat)


def likelihood_surface(clients: Iterable[tuple[Array, Array]]) -> LikelihoodSurface:
    """Look at all nodes."""
    X, y = (list(each) for each in zip(*clients, strict=True))
    rows = np.vstack(X)
    N, d = rows.shape
    K = rows @ rows.T / d
    tau = float(np.trace(K)) / N
    K /= tau
    edges = np.cumsum([0, *(len(each) for each in X)])
    own = [np.linalg.eigh(K[a:b, a:b]) for a, b in pairwise(edges)]
    x = np.maximum(np.concatenate([each[0] for each in own]), 0)
    U = scipy.linalg.block_diag(*(each[1] for each in own))
    K, labels = U.T @ K @ U, U.T @ np.concatenate(y)
    v, u = chebyshev_points(NODES), chebyshev_points(FINE_PARTS)
    twice, squares = np.empty((NODES, FINE_PARTS)), np.empty((NODES, FINE_PARTS))
    for place, part in enumerate(v):
        a = 1 - part + part * x
        values, W = np.linalg.eigh(K / np.sqrt(np.outer(a, a)))
        along = (W.T @ (labels / np.sqrt(a))) ** 2
        V = 1 - u[:, None] + u[:, None] * np.maximum(values, 0)
        squares[place] = np.log((along / V).sum(1))
        twice[place] = -N * squares[place] - np.log(V).sum(1) - np.log(a).sum()
    return LikelihoodSurface(v, u, twice, squares, tau, N)


def chebyshev_points(count: int) -> Array:
    """Chebyshev's points between 0 and 1, denser at the ends: a part may be small, and matter."""
    return np.asarray((1 - np.cos(np.pi * (np.arange(count) + 0.5) / count)) / 2)


def cumulative_shares(weight: Array) -> Array:
    """How much weight lies below each bound, from 0 to 1."""
    sums = np.concatenate([[0.0], np.cumsum(weight)])
    return np.asarray(sums / sums[-1])
