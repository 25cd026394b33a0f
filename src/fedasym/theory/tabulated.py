"""kappa for very many points at once: the sums over atoms depend on log kappa alone, so they are tabulated once.

s/(s+kappa) is a logistic function of log kappa, analytic within a strip of half-width pi around the real line, so
Chebyshev interpolation on intervals of length 1/2 reaches double precision with a dozen coefficients, whatever the
number of atoms. A diagram of 40,000 worlds over 500 atoms then costs what one over 12 atoms would.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedasym.theory.spectra import Array, Spectrum

WORTHWHILE = 1 << 20  # points x atoms above which the table is cheaper than the sums themselves
LENGTH = 0.5  # of an interval in log kappa
DEGREE = 13
MARGIN = 30.0  # the table reaches this far beyond the eigenvalues, in log kappa


class Table:
    """df1, df2, mixed and rest (see `transforms.Sums`) as piecewise Chebyshev series in log kappa."""

    def __init__(self, spectrum: Spectrum) -> None:
        s, h = spectrum.positive
        self.rank = spectrum.rank
        self.low = float(np.log(s.min())) - MARGIN
        self.count = int(np.ceil((float(np.log(s.max())) + MARGIN - self.low) / LENGTH))
        nodes = np.cos(np.pi * (np.arange(DEGREE) + 0.5) / DEGREE)
        centre = self.low + (np.arange(self.count) + 0.5) * LENGTH
        k = np.exp(centre[:, None] + nodes * (LENGTH / 2))
        self.series = fit(*moments(k, s, h), nodes=nodes)  # (interval, quantity, degree)
        self.edges = np.exp(self.low + np.arange(self.count + 1) * LENGTH)
        self.at_edges = moments(self.edges, s, h)

    def slack(self, df1: Array, rest: Array, aspect: Array) -> Array:
        """1 - aspect df1, from the side that does not cancel."""
        return np.where(rest < df1, (1 - aspect * self.rank) + aspect * rest, 1 - aspect * df1)

    def solve(self, ridge: Array, aspect: Array) -> Array:
        """kappa(ridge) for ridge > 0; NaN where it falls outside the table."""
        place, inside = self.locate(ridge, aspect)
        index = np.flatnonzero(inside)
        place, lam, gam = place[index], ridge[index], aspect[index]
        series = self.series[place]
        start, end = self.edges[place], self.edges[place + 1]
        k = (start + end) / 2
        centre = self.low + (place + 0.5) * LENGTH
        for _ in range(8):
            df1, _, mixed, rest = clenshaw(series, (np.log(k) - centre) * (2 / LENGTH))
            step = (lam + gam * k * mixed) / (self.slack(df1, rest, gam) + gam * mixed)
            step = np.clip(step, start, end)
            small = np.all(np.abs(step - k) <= 1e-8 * k)
            k = step
            if small:  # quadratic convergence: the error is now the square of the step
                break
        out = np.full(ridge.shape, np.nan)
        out[index] = k
        return out

    def covers(self, kappa: Array) -> bool:
        """Whether every kappa lies within the table."""
        return bool(np.all((kappa >= self.edges[0]) & (kappa <= self.edges[-1])))

    def sums(self, kappa: Array) -> Array:
        """df1, df2, mixed and rest at every kappa, quantities first."""
        u = (np.log(kappa.ravel()) - self.low) / LENGTH
        place = np.minimum(u.astype(np.intp), self.count - 1)
        found = clenshaw(self.series[place], 2 * (u - place) - 1)
        return found.reshape((found.shape[0], *kappa.shape))

    def locate(self, ridge: Array, aspect: Array) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """The interval that holds each root, by bisection over the edges (kappa (1 - aspect df1) increases through it)."""
        df1, _, _, rest = self.at_edges
        low = np.zeros(ridge.shape, dtype=np.intp)
        high = np.full(ridge.shape, self.count, dtype=np.intp)

        def below(place: NDArray[np.intp]) -> NDArray[np.bool_]:
            found = self.edges[place] * self.slack(df1[place], rest[place], aspect) < ridge
            return np.asarray(found)

        inside = below(low) & ~below(high)
        while np.any(high - low > 1):
            middle = (low + high) // 2
            up = below(middle)
            low, high = np.where(up, middle, low), np.where(up, high, middle)
        return low, inside


def moments(k: Array, s: Array, h: Array) -> tuple[Array, Array, Array, Array]:
    """df1, df2, mixed and rest at every k, summed over the atoms."""
    reach = s + k[..., None]
    near, far = s / reach, k[..., None] / reach
    return near @ h, (near * near) @ h, (near * far) @ h, far @ h


def fit(*values: Array, nodes: Array) -> Array:
    """Chebyshev coefficients of each quantity from its values at the Chebyshev nodes (last axis)."""
    degree = nodes.size
    basis = np.cos(np.arange(degree)[:, None] * np.arccos(nodes)) * (2 / degree)
    basis[0] /= 2
    return np.stack(values, axis=-2) @ basis.T


def clenshaw(series: Array, x: Array) -> Array:
    """The Chebyshev series of each point at x in [-1, 1]; quantities first."""
    x = x[:, None]
    last, before = np.zeros(series.shape[:-1]), np.zeros(series.shape[:-1])
    for degree in range(series.shape[-1] - 1, 0, -1):
        last, before = series[..., degree] + 2 * x * last - before, last
    return np.ascontiguousarray((series[..., 0] + x * last - before).T)


@lru_cache(maxsize=16)
def tabulated(spectrum: Spectrum) -> Table:
    """The table of a spectrum, made once."""
    return Table(spectrum)
