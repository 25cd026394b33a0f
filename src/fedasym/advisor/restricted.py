"""Restricted likelihood over all clients (section 8.1), streamed, and what it leaves open about noise and radius.

The deviance is that of `linear.likelihood`, in blocks of rows so that nothing but the turned features is kept. It is one
curve in the ratio c = noise^2 d/radius^2; given c, noise^2 is the residual sum over a chi-square. Intervals integrate
that curve with a uniform weight on the shrinkage c/(c + x), which keeps the ends (no noise, no radius) from running away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.interpolate
import scipy.linalg
import scipy.stats

from fedasym.advisor.threads import in_threads
from fedasym.core.arrays import Array
from fedasym.exact.likelihood import FLAT, SPAN

BLOCK = 1024
SEGMENTS = 4  # of the rows, added up apart: the same sum on every machine
DEEP = 20.0  # a deviance this far above the least counts for nothing
FINE = 4001
MOST_NODES = 12
EXACT = 0.005  # of the deviance: what the nodes of a window may be off by
WIDE = 7.0  # errors on either side of the first guess that a window covers
NARROWEST = (0.02, 0.1)  # errors that a window is made for: with larger ones there are few samples, and passes are cheap
CLOSE = 1.0  # a deviance this near to flat is looked at where the ratio is only nearly infinite
NEAR = 0.3  # of an error: points closer than that are one
DRAWS = 1024


@dataclass(frozen=True, eq=False)
class Turned:
    """All clients along their own axes, residuals about the pooled fit: the letters of `linear.likelihood.Likelihood`."""

    x: Array
    Gu: Array  # the shared unknowns as seen there, in coordinates where G'G = I, and the residuals u as the last column
    rest: float
    freedom: int

    def sums(self, ratios: Array) -> Array:
        """[G u]'K[G u] at each ratio c, K = c/(c + x): what the deviance is made of, (ratios, d + 1, d + 1)."""
        root = np.sqrt(shrinkage(ratios, self.x))
        edges = np.linspace(0, self.x.size, SEGMENTS + 1).astype(int)

        def add_up(place: int) -> Array:
            out = np.zeros((ratios.size, self.Gu.shape[1], self.Gu.shape[1]))
            for start in range(edges[place], edges[place + 1], BLOCK):
                part = slice(start, min(start + BLOCK, edges[place + 1]))
                for k, each in enumerate(root[:, part]):
                    weighed = each[:, None] * self.Gu[part]
                    out[k] += weighed.T @ weighed
            return out

        return np.asarray(sum(in_threads(add_up, SEGMENTS, self.Gu.shape[1])))

    def deviance(self, ratio: float, sums: Array) -> tuple[float, float]:
        """-2 log restricted likelihood at its best noise, and the residual sum of squares that gives it."""
        root = scipy.linalg.cholesky(sums[:-1, :-1], lower=True)
        half = scipy.linalg.solve_triangular(root, sums[:-1, -1], lower=True)
        rss = max(float(sums[-1, -1]) + self.rest - float(half @ half), np.finfo(float).tiny)
        logs = self.freedom * np.log(rss / self.freedom) + np.log1p(self.x / ratio).sum()
        return float(logs + 2 * np.log(np.diag(root)).sum()), rss

    def at(self, ratio: float) -> tuple[float, float]:
        """`deviance` from the samples themselves."""
        return self.deviance(ratio, self.sums(np.array([ratio]))[0])

    @property
    def endless(self) -> float:
        """The deviance without any radius, c infinite: G'G = I, and u is at right angles to G."""
        rss = max(float(self.Gu[:, -1] @ self.Gu[:, -1]) + self.rest, np.finfo(float).tiny)
        return float(self.freedom * np.log(rss / self.freedom))


class Window:
    """The sums of `Turned` about one log c, from a few Chebyshev nodes: one pass over the samples serves every point there.

    In z = (c - m)/(c + m) the weight c/(c + x) = (1 + z) m/((m + x) + (m - x) z) is nearly a line where x is near m, and a few
    nodes make it exact: as many as it takes for the deviance, which adds up as many errors as there are samples. m lies
    between the ratios looked at and the x. Outside of the window the samples are asked again.
    """

    def __init__(self, turned: Turned, centre: float, half: float) -> None:
        self.turned, self.centre, self.half = turned, centre, half
        self.pivot = float(np.sqrt(np.exp(centre) * np.mean(turned.x)))
        logs = centre + half * np.linspace(-1, 1, 2 * MOST_NODES)
        some = np.quantile(turned.x, np.linspace(0, 1, 200))
        for count in range(3, MOST_NODES + 1):
            self.angles = np.pi * (np.arange(count) + 0.5) / count
            between = np.stack([self.weights(log) for log in logs]) @ shrinkage(self.nodes, some)
            off = np.abs(between - shrinkage(np.exp(logs), some)).mean(1).max()
            if off * turned.x.size < EXACT:
                break
        self.values: Array | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """Middle and half width in z."""
        low, high = (np.tanh((self.centre + way * self.half - np.log(self.pivot)) / 2) for way in (-1, 1))
        return float(low + high) / 2, float(high - low) / 2

    @property
    def nodes(self) -> Array:
        """The ratios at which the samples are asked."""
        middle, wide = self.ends
        return np.asarray(self.pivot * np.exp(2 * np.arctanh(middle + wide * np.cos(self.angles))))

    def weights(self, log: float) -> Array:
        """What the nodes count at log c: the polynomial through them."""
        middle, wide = self.ends
        z = np.clip((np.tanh((log - np.log(self.pivot)) / 2) - middle) / wide, -1, 1)
        degree = np.arange(self.angles.size)
        own = np.cos(degree * np.arccos(z)) * np.where(degree, 2.0, 1.0)
        return np.asarray(np.cos(np.outer(self.angles, degree)) @ own / self.angles.size)

    def at(self, log: float) -> tuple[float, float]:
        """The deviance and its residual sum of squares at log c."""
        if abs(log - self.centre) > self.half:
            return self.turned.at(float(np.exp(log)))
        if self.values is None:
            self.values = self.turned.sums(self.nodes)
        return self.turned.deviance(float(np.exp(log)), np.tensordot(self.weights(log), self.values, 1))


def shrinkage(ratios: Array, x: Array) -> Array:
    """c/(c + x) at each ratio c (rows) and each x."""
    return np.asarray(1 / (1 + x / ratios[:, None]))


@dataclass(frozen=True, eq=False)
class Curve:
    """Deviance and log residual sum along log c, its lowest point, and whether no radius at all fits nearly as well."""

    logs: Array
    deviance: Array
    rss: Array
    best: float
    flat: bool
    least: float  # the deviance there; the curve is what lies above it

    def noise2(self, freedom: int) -> float:
        """At the lowest point."""
        return float(np.exp(np.interp(self.best, self.logs, self.rss))) / freedom


def curve_of(turned: Turned, start: float, error: float) -> Curve:
    """Sample the deviance around `start` (with a first guess of its error in log c) as far out as it matters."""
    middle = float(np.log(max(float(np.mean(turned.x)), np.finfo(float).tiny)))
    low, high = middle - SPAN, middle + SPAN
    seen: dict[float, tuple[float, float]] = {}
    window = Window(turned, float(np.clip(start, low, high)), WIDE * float(np.clip(error, *NARROWEST)))

    def look(at: float) -> float:
        if at not in seen:
            deviance, rss = window.at(at)
            seen[at] = deviance, float(np.log(rss))
        return seen[at][0]

    here, step = float(np.clip(start, low, high)), float(np.clip(error, 0.02, 1.5))
    here, step = descended(look, here, step, low, high)
    floor = look(here)
    for way in (-1.0, 1.0):
        at, stride = here, step
        while low < at < high and look(at) < floor + DEEP:
            at = float(np.clip(at + way * stride, low, high))
            floor = min(floor, look(at))
            stride *= 1.25
    points = apart(seen, NEAR * step)
    deviance, rss = np.array([seen[at] for at in points]).T
    logs = np.linspace(points[0], points[-1], FINE)
    smooth = scipy.interpolate.CubicSpline(points, deviance)(logs)
    smooth_rss = scipy.interpolate.PchipInterpolator(points, rss)(logs)
    place = int(np.argmin(smooth))
    nearly = scipy.stats.chi2.ppf(0.95, 1)
    endless = turned.endless if points[-1] < high else deviance[-1]
    if endless - smooth[place] < nearly + CLOSE:
        endless = look(high)
    flat = bool(endless - smooth[place] < nearly)
    best = float(logs[place])
    if flat and look(best) >= endless - FLAT:  # the likelihood is lowest without any radius
        best = high
    return Curve(logs, smooth - smooth[place], smooth_rss, best, flat, float(smooth[place]))


def apart(seen: dict[float, tuple[float, float]], least: float) -> Array:
    """The points seen, the lowest first, without those too near another: between such a pair a spline magnifies rounding."""
    kept: list[float] = []
    for at in sorted(seen, key=lambda each: seen[each][0]):
        if all(abs(at - other) >= least for other in kept):
            kept.append(at)
    return np.array(sorted(kept))


def descended(look: Callable[[float], float], here: float, step: float, low: float, high: float) -> tuple[float, float]:
    """The lowest point by parabolas, and the error that the curvature there gives: deviance 1 above the least."""
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


def draws_of(curve: Curve, turned: Turned, dimension: int, grid: Array) -> Array:
    """(noise^2, radius^2) as the likelihood leaves them open, at the given points of the unit square: (B, 2)."""
    middle = np.log(np.mean(turned.x))
    shrunk = 1 / (1 + np.exp(middle - curve.logs))
    weight = np.exp(-curve.deviance / 2) * shrunk * (1 - shrunk)
    heights = np.concatenate([[0.0], np.cumsum((weight[1:] + weight[:-1]) / 2)])
    logs = np.interp(grid[:, 0], heights / heights[-1], curve.logs)
    rss = np.exp(np.interp(logs, curve.logs, curve.rss))
    noise2 = rss / scipy.stats.chi2.ppf(grid[:, 1], turned.freedom)
    return np.column_stack([noise2, noise2 * dimension / np.exp(logs)])


def even_points(count: int, width: int) -> Array:
    """Points that fill a cube evenly (the additive recurrence of Roberts): draws that are the same every time."""
    root = 2.0
    for _ in range(60):
        root = (1 + root) ** (1 / (width + 1))
    return np.asarray((0.5 + np.arange(1, count + 1)[:, None] * root ** -np.arange(1.0, width + 1)) % 1)
