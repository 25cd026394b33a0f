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

from fedasym.core.arrays import Array
from fedasym.exact.reml import FLAT_RATIO as FLAT
from fedasym.exact.reml import RATIO_SPAN as SPAN

BLOCK = 4096
DEEP = 20.0  # a deviance this far above the least counts for nothing
FINE = 4001
NEAR = 0.3  # of an error: points closer than that are one
DRAWS = 1024


@dataclass(frozen=True, eq=False)
class Turned:
    """All clients along their own axes, residuals about the pooled fit: the letters of `linear.likelihood.Likelihood`."""

    x: Array
    u: Array
    G: Array  # the shared unknowns as seen there, in coordinates where G'G = I
    rest: float
    freedom: int

    def at(self, ratio: float) -> tuple[float, float]:
        """-2 log restricted likelihood at its best noise, and the residual sum of squares that gives it."""
        d = self.G.shape[1]
        k = 1 / (1 + self.x / ratio)
        P, q, square = np.zeros((d, d)), np.zeros(d), self.rest
        for start in range(0, self.x.size, BLOCK):
            part = slice(start, start + BLOCK)
            G, u = self.G[part], self.u[part]
            kG = k[part, None] * G
            P += kG.T @ G
            q += kG.T @ u
            square += float((k[part] * u) @ u)
        root = scipy.linalg.cholesky(P, lower=True)
        half = scipy.linalg.solve_triangular(root, q, lower=True)
        rss = max(square - float(half @ half), np.finfo(float).tiny)
        logs = self.freedom * np.log(rss / self.freedom) - np.log(k).sum() + 2 * np.log(np.diag(root)).sum()
        return float(logs), rss


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

    def look(at: float) -> float:
        if at not in seen:
            deviance, rss = turned.at(float(np.exp(at)))
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
    endless = turned.at(float(np.exp(high)))[0] if points[-1] < high else deviance[-1]
    flat = bool(endless - smooth[place] < scipy.stats.chi2.ppf(0.95, 1))
    best = float(logs[place])
    if flat and turned.at(float(np.exp(best)))[0] >= endless - FLAT:  # the likelihood is lowest without any radius
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
