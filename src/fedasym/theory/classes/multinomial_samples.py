"""Section 11: the points at which expectations over Gaussian logits are taken, the same for every ridge of a path.

A shifted lattice rule of a prime number of points, its generator found component by component (Nuyens and Cools 2006, one
FFT per dimension), mapped to Gaussians in pairs (Box and Muller), centred, second moments matched. The page uses scrambled
Sobol points, which need SciPy's statistics; the controls of `multinomial_system` remove most of what
sampling leaves, and with it the difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from fedasym.core.arrays import Array
from fedasym.core.errors import NoFormula

SEED = 11
MOST_CLASSES = 200
BUDGET = 1 << 19  # points x classes^2 held by the fixed point
SEARCH = 1 << 17  # the same, for a search whose result is computed again


@dataclass(frozen=True, eq=False)
class Samples:
    """Independent standard normal vectors xi1, xi2 of C-1 coordinates at N weighted points: shapes (C-1, N), (C-1, N), (N,).

    z1, z2: the same as centred logits with covariance P, shape (C, N).
    """

    xi1: Array
    xi2: Array
    weight: Array

    @property
    def classes(self) -> int:
        """C."""
        return len(self.xi1) + 1

    @cached_property
    def z1(self) -> Array:
        """Centred logits."""
        return contrasts(self.classes) @ self.xi1

    @cached_property
    def z2(self) -> Array:
        """Centred logits, independent of z1."""
        return contrasts(self.classes) @ self.xi2


@lru_cache(maxsize=32)
def contrasts(classes: int) -> Array:
    """B: an orthonormal basis of the vectors of C numbers that sum to zero (Helmert), shape (C, C-1); BB' = P.

    >>> B = contrasts(3)
    >>> bool(np.allclose(B.T @ B, np.eye(2))) and bool(np.allclose(B.sum(0), 0))
    True
    """
    j = np.arange(1, classes)
    B = np.triu(np.ones((classes, classes - 1)))
    B[j, j - 1] = -j
    return np.asarray(B / np.sqrt(j * (j + 1)))


@lru_cache(maxsize=8)
def samples(classes: int, budget: int = BUDGET, seed: int = SEED) -> Samples:
    """Points for the fixed point with C classes: as many as the budget allows, between 499 (or 10 C) and 8192."""
    if classes > MOST_CLASSES:
        raise NoFormula(
            f"classes is {classes}: the softmax limits are computed for up to {MOST_CLASSES}; "
            "take fewer classes, or fa.train on drawn clients"
        )
    count = prime(int(np.clip(budget // classes**2, max(499, 10 * classes), 8192)))
    z = generator(count, 2 * (classes - 1))
    u = (np.arange(count)[:, None] * z % count / count + shift(z.size, seed)) % 1.0
    x = whiten(gaussian(u))
    return Samples(x[: classes - 1], x[classes - 1 :], np.full(count, 1 / count))


def whiten(x: Array) -> Array:
    """The points x (coordinates, N), moved and turned so that their mean is zero and their covariance I."""
    mean = np.asarray(x.mean(1), dtype=float)
    root = np.linalg.cholesky(x @ x.T / x.shape[1] - np.outer(mean, mean))
    return np.asarray(np.linalg.solve(root, x - mean[:, None]), dtype=np.float64)


def gaussian(u: Array) -> Array:
    """Normal points (coordinates, N) from uniform ones (N, an even number of coordinates)."""
    radius = np.sqrt(-2 * np.log1p(-u[:, 0::2]))
    angle = 2 * np.pi * u[:, 1::2]
    return np.concatenate([(radius * np.cos(angle)).T, (radius * np.sin(angle)).T])


def shift(dimensions: int, seed: int) -> Array:
    """The random shift of a lattice."""
    return np.random.default_rng([seed, dimensions]).random(dimensions)


@lru_cache(maxsize=16)
def generator(count: int, dimensions: int) -> NDArray[np.int64]:
    """The generator of a rank-one lattice of a prime number of points, component by component.

    The criterion is the worst-case error in the Korobov space of smoothness 2 with product weights 1/j^2. With the powers
    of a primitive root as indices each search over all candidates is one cyclic convolution.
    """
    root, order = primitive(count), count - 1
    powers = np.empty(order, dtype=np.int64)
    value = 1
    for i in range(order):
        powers[i] = value
        value = value * root % count
    x = powers / count
    kernel = 2 * np.pi**2 * (x * x - x + 1 / 6)
    spectrum, product = np.fft.rfft(kernel), np.ones(order)
    z = np.empty(dimensions, dtype=np.int64)
    for j in range(dimensions):
        error = np.fft.irfft(spectrum * np.fft.rfft(product), order)
        best = int(np.argmin(np.round(error / np.abs(error).max(), 9)))  # ties by index, whatever the rounding
        z[j] = powers[best]
        product *= 1 + kernel[(best - np.arange(order)) % order] / (j + 1) ** 2
        product /= product.mean()
    return z


def prime(most: int) -> int:
    """The largest prime up to `most`.

    >>> prime(8192), prime(1 << 17)
    (8191, 131071)
    """
    return next(n for n in range(most, 1, -1) if all(n % q for q in range(2, int(n**0.5) + 1)))


def primitive(p: int) -> int:
    """The least primitive root of a prime."""
    rest, factors = p - 1, set()
    for q in range(2, int(p**0.5) + 2):
        while rest % q == 0:
            factors.add(q)
            rest //= q
    if rest > 1:
        factors.add(rest)
    return next(g for g in range(2, p) if all(pow(g, (p - 1) // q, p) != 1 for q in factors))
