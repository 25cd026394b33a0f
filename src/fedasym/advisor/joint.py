"""Noise, radius and shared length from all labels at once, where all samples together are too few for a shared model.

A shared optimum without preferred directions makes the labels y ~ (0, t V), V = (1 - u) ((1 - v) I + v B) + u K, where
K = XX'/(d tau) over all samples has the mean diagonal 1, and B are its blocks within clients: u is the part of the labels'
mean square t that clients share, v the part of the rest by which they differ. Products across clients, which B lacks and K
has, tell u; the lengths within a client hardly tell v from noise, and what is left open about it is in the draws.

In coordinates where (1 - v) I + v B is the identity, the eigenvalues of K serve every u. Given u and v, t is y'V^{-1}y over a
chi-square. The three parts (noise, differing, shared) have a uniform weight: without labels, none is likelier than another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.interpolate
import scipy.linalg
import scipy.stats

from fedasym.advisor.restricted import DRAWS, even_points
from fedasym.core.arrays import Array

MOST = 1000  # samples up to which the eigenvalues take seconds; with more, moments
NODES = 12  # values of v that are looked at: the deviance is smooth between them
FINE = 200


@dataclass(frozen=True, eq=False)
class Joint:
    """Draws (B, 3) of noise^2, radius^2 and centre^2, and whether clients that do not differ fit nearly as well."""

    draws: Array
    flat: bool


@dataclass(frozen=True, eq=False)
class Surface:
    """Twice the log likelihood, t at its best, and log y'V^{-1}y at the nodes of v (rows) and of u (columns)."""

    v: Array
    u: Array
    twice: Array
    squares: Array
    tau: float
    samples: int


def joint(clients: Iterable[tuple[Array, Array]]) -> Joint:
    """What all labels together leave open."""
    seen = surface(clients)
    v = (np.arange(FINE) + 0.5) / FINE
    twice, squares = (scipy.interpolate.CubicSpline(seen.v, each)(v) for each in (seen.twice, seen.squares))
    bounds = np.concatenate([[0.0], (seen.u[1:] + seen.u[:-1]) / 2, [1.0]])
    weight = np.exp((twice - twice.max()) / 2) * (1 - seen.u) * np.diff(bounds)  # uniform over the three parts is 1 - u here
    grid = even_points(DRAWS, 3)
    at = np.interp(grid[:, 0], heights(weight.sum(1)), np.linspace(0, 1, FINE + 1))
    rows = np.minimum((at * FINE).astype(int), FINE - 1)
    u = np.array([np.interp(p, heights(weight[row]), bounds) for p, row in zip(grid[:, 1], rows, strict=True)])
    log_square = np.array([np.interp(each, seen.u, squares[row]) for each, row in zip(u, rows, strict=True)])
    t = np.exp(log_square) / scipy.stats.chi2.ppf(grid[:, 2], seen.samples)
    draws = np.column_stack([t * (1 - u) * (1 - at), t * (1 - u) * at / seen.tau, t * u / seen.tau])
    flat = bool(seen.twice.max() - seen.twice[0].max() < scipy.stats.chi2.ppf(0.95, 1))
    return Joint(draws, flat)


def surface(clients: Iterable[tuple[Array, Array]]) -> Surface:
    """Look at all nodes."""
    X, y = (list(each) for each in zip(*clients, strict=True))
    rows = np.vstack(X)
    N, d = rows.shape
    K = rows @ rows.T / d
    tau = float(np.trace(K)) / N
    K /= tau
    edges = np.cumsum([0, *(len(each) for each in X)])
    own = [np.linalg.eigh(K[a:b, a:b]) for a, b in pairwise(edges)]
    x, U = np.maximum(np.concatenate([each[0] for each in own]), 0), scipy.linalg.block_diag(*(each[1] for each in own))
    K, labels = U.T @ K @ U, U.T @ np.concatenate(y)
    v, u = middling(NODES), middling(FINE)
    twice, squares = np.empty((NODES, FINE)), np.empty((NODES, FINE))
    for place, part in enumerate(v):
        a = 1 - part + part * x
        values, W = np.linalg.eigh(K / np.sqrt(np.outer(a, a)))
        along = (W.T @ (labels / np.sqrt(a))) ** 2
        V = 1 - u[:, None] + u[:, None] * np.maximum(values, 0)
        squares[place] = np.log((along / V).sum(1))
        twice[place] = -N * squares[place] - np.log(V).sum(1) - np.log(a).sum()
    return Surface(v, u, twice, squares, tau, N)


def middling(count: int) -> Array:
    """Points between 0 and 1, denser towards the ends (Chebyshev's): a part may be small, and small parts matter."""
    return np.asarray((1 - np.cos(np.pi * (np.arange(count) + 0.5) / count)) / 2)


def heights(weight: Array) -> Array:
    """How much weight lies below each bound, from 0 to 1."""
    sums = np.concatenate([[0.0], np.cumsum(weight)])
    return np.asarray(sums / sums[-1])
