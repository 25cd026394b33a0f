"""Section 3.1: means over normal variables, by rules whose error is known in advance.

A trapezoid converges like exp(-2 pi a/step) for an integrand that is analytic and bounded for |Im z| < a. The sigmoid and
its prox are analytic for |Im| < pi, so over N(0, sd^2) a = pi/sd: this beats Gauss-Hermite, whose nodes do not know it.
`level` is the exponent to which errors fall: 37 is double precision.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fedasym.core.arrays import Array

LEVEL = 37.0  # errors of exp(-37) = 1e-16
STRIP = 0.98 * np.pi  # where the sigmoid is analytic, with a margin to the pole
CHUNK = 1 << 18  # numbers held at once: fits the cache


def step_for(strip: Array, growth: Array | float = 1.0, level: float = LEVEL) -> Array:
    """The largest step for exp(-z^2/2) F(z), where |exp(-z^2/2) F| grows like exp(growth a^2/2) up to |Im z| = a <= strip.

    exp(growth a^2/2 - 2 pi a/step) = exp(-level), at the a that allows the largest step.
    """
    a = np.minimum(strip, np.sqrt(2 * level / np.asarray(growth)))
    return np.asarray(2 * np.pi * a / (level + growth * a**2 / 2))


def reach(level: float = LEVEL) -> float:
    """Where a normal density ends: exp(-z^2/2) = exp(-level), and a little further."""
    return float(np.sqrt(2 * level) + 0.4)


def nodes_for(step: Array, level: float = LEVEL) -> Array:
    """How many nodes of one sign that takes, rounded up to few different numbers so that settings share grids."""
    needed = np.maximum(np.ceil(reach(level) / step), 8)
    fold = 2.0 ** (np.floor(np.log2(needed)) - 3)
    return np.asarray(np.ceil(needed / fold) * fold, dtype=np.intp)


@lru_cache(maxsize=256)
def half_normal(nodes: int, level: float = LEVEL) -> tuple[Array, Array]:
    """Nodes z > 0 and weights that sum to 1/2: E F(Z) = sum_j w_j {F(z_j) + F(-z_j)}.

    >>> z, w = half_normal(40)
    >>> round(float(2 * w @ z**4), 12)
    3.0
    """
    z: Array = (np.arange(nodes, dtype=np.float64) + 0.5) * (reach(level) / nodes)
    w: Array = np.exp(-(z**2) / 2)
    w /= 2 * w.sum()
    for array in (z, w):
        array.setflags(write=False)
    return z, w


def normal(nodes: int, level: float = LEVEL) -> tuple[Array, Array]:
    """Nodes of both signs and weights that sum to 1."""
    z, w = half_normal(nodes, level)
    return np.concatenate([-z[::-1], z]), np.concatenate([w[::-1], w])


@lru_cache(maxsize=8)
def graded(pieces: int = 16, order: int = 24, end: float = 9.0) -> tuple[Array, Array]:
    """Gauss-Legendre on [0, end], on pieces that halve towards 0, where steep links and rules turn: nodes, plain weights.

    >>> z, w = graded()
    >>> round(float(w @ np.exp(-(z**2) / 2) * np.sqrt(2 / np.pi)), 14)
    1.0
    """
    x, w = np.polynomial.legendre.leggauss(order)
    edges = np.concatenate([[0.0], end * 0.5 ** np.arange(pieces - 1, -1, -1)])
    half, middle = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
    nodes, weights = (middle[:, None] + half[:, None] * x).ravel(), (half[:, None] * w).ravel()
    for array in (nodes, weights):
        array.setflags(write=False)
    return nodes, weights
