"""Roots and minima of many one-dimensional functions at once, inside brackets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedasym.core.arrays import Array

GOLDEN = (np.sqrt(5) - 1) / 2


def bracketed(f: Callable[[Array], Array], low: Array, high: Array, tolerance: float = 4e-16) -> Array:
    """Where each f changes sign between low and high: Chandrupatla's method, inverse quadratic steps with bisection.

    `f` is evaluated on the whole array at once; the signs at low and high must differ (or one be zero).
    """
    a, b = np.array(high, dtype=float), np.array(low, dtype=float)
    fa, fb = f(a), f(b)
    c, fc = a.copy(), fa.copy()
    t = np.full(a.shape, 0.5)
    for _ in range(200):
        x = a + t * (b - a)
        fx = f(x)
        same = np.sign(fx) == np.sign(fa)
        c, fc = np.where(same, a, b), np.where(same, fa, fb)
        b, fb = np.where(same, b, a), np.where(same, fb, fa)
        a, fa = x, fx
        best = np.where(np.abs(fa) < np.abs(fb), a, b)
        width = np.abs(b - a)
        limit = 2 * tolerance * np.abs(best) + 1e-300
        done = (width <= limit) | (fa == 0) | (fb == 0)
        if np.all(done):
            break
        with np.errstate(all="ignore"):
            xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
            smooth = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi)
            inverse = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
            edge = np.minimum(0.5, limit / width)
        t = np.where(smooth & np.isfinite(inverse), np.clip(inverse, edge, 1 - edge), 0.5)
        t = np.where(done, 0.0, t)
    return np.asarray(np.where(fa == 0, a, np.where(fb == 0, b, best)))


def first_whole(f: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """The first whole number between low and high where each f has the sign that it has at high."""
    sign = np.sign(f(high))
    while np.any(high - low > 1):
        middle = np.floor((low + high) / 2)
        over = np.sign(f(middle)) == sign
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    return high


def lowest(
    f: Callable[[Array], Array],
    low: Array,
    high: Array,
    points: int = 64,
    rounds: int = 60,
    several: Callable[[Array], Array] | None = None,
) -> Array:
    """The minimiser of each f on [low, high]: the best of a grid, then golden-section search between its neighbours.

    several: f for many points of each at once, a row for each point, where that is quicker than one after another.
    """
    low, high = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
    grid = np.linspace(0, 1, points)
    places = [low + u * (high - low) for u in grid]
    values = np.stack([f(place) for place in places]) if several is None else several(np.stack(places))
    at = np.argmin(np.where(np.isnan(values), np.inf, values), axis=0)
    a = low + grid[np.maximum(at - 1, 0)] * (high - low)
    b = low + grid[np.minimum(at + 1, points - 1)] * (high - low)
    x, y = b - GOLDEN * (b - a), a + GOLDEN * (b - a)
    fx, fy = f(x), f(y)
    for _ in range(rounds):
        left = fx < fy
        a, b = np.where(left, a, x), np.where(left, y, b)
        new = np.where(left, b - GOLDEN * (b - a), a + GOLDEN * (b - a))
        fnew = f(new)
        x, y = np.where(left, new, y), np.where(left, x, new)
        fx, fy = np.where(left, fnew, fy), np.where(left, fx, fnew)
    return np.asarray(np.where(fx < fy, x, y))
