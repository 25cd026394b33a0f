"""kappa for very many points at once: the sums over atoms depend on log kappa alone, so they are tabulated once.

s/(s+kappa) is a logistic function of log kappa, analytic within a strip of half-width pi around the real line, so
polynomials of degree 9 on intervals of length 1/4 reach double precision, whatever the number of atoms. A diagram of
40,000 worlds over 500 atoms then costs what one over ten atoms would.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedasym.core.arrays import Array
from fedasym.worlds.spectra import Spectrum

WORTHWHILE = 1 << 20  # points x atoms above which the table is cheaper than the sums themselves
LENGTH = 0.25  # of an interval in log kappa
TERMS = 10  # the error falls like 50^-TERMS: singularities are pi away in log kappa
BLOCK = 2048  # points evaluated at once: they stay in the fastest cache
MARGIN = 16.0  # the table reaches this far beyond the eigenvalues, in log kappa


class Table:
    """df1, df2, mixed and rest (see `transforms.Sums`) as piecewise polynomials in log kappa."""

    def __init__(self, spectrum: Spectrum) -> None:
        s, h = spectrum.positive
        self.rank = spectrum.rank
        self.low = float(np.log(s.min())) - MARGIN
        self.count = int(np.ceil((float(np.log(s.max())) + MARGIN - self.low) / LENGTH))
        nodes = np.cos(np.pi * (np.arange(TERMS) + 0.5) / TERMS)
        centre = self.low + (np.arange(self.count) + 0.5) * LENGTH
        k = np.exp(centre[:, None] + nodes * (LENGTH / 2))
        values = np.stack(moments(k.ravel(), s, h), axis=-1).reshape(self.count, TERMS, -1)
        # Monomial coefficients are safe here: they fall so fast that nothing cancels.
        self.terms = np.ascontiguousarray(np.moveaxis(np.linalg.solve(np.vander(nodes, increasing=True), values), 1, 0))
        self.edges = np.exp(self.low + np.arange(self.count + 1) * LENGTH)
        self.at_edges = moments(self.edges, s, h)

    def slack(self, df1: Array, rest: Array, aspect: Array) -> Array:
        """1 - aspect df1, from the side that does not cancel."""
        return np.where(rest < df1, (1 - aspect * self.rank) + aspect * rest, 1 - aspect * df1)

    def solve(self, ridge: Array, aspect: Array) -> Array:
        """kappa(ridge) for ridge > 0; NaN where it falls outside the table."""
        place, inside = self.locate(ridge, aspect)
        out = np.full(ridge.shape, np.nan)
        out[inside] = self.guess(place[inside], ridge[inside], aspect[inside])
        active = np.flatnonzero(inside)
        for _ in range(8):
            k, lam, gam, here = out[active], ridge[active], aspect[active], place[active]
            df1, _, mixed, rest = self.at(here, (np.log(k) - self.low) / LENGTH)
            step = (lam + gam * k * mixed) / (self.slack(df1, rest, gam) + gam * mixed)
            out[active] = np.clip(step, self.edges[here], self.edges[here + 1])
            active = active[np.abs(step - k) > 1e-8 * k]  # below, the error is its square: rounding
            if active.size == 0:
                break
        return out

    def covers(self, kappa: Array) -> bool:
        """Whether every kappa lies within the table."""
        return bool(np.all((kappa >= self.edges[0]) & (kappa <= self.edges[-1])))

    def sums(self, kappa: Array) -> Array:
        """df1, df2, mixed and rest at every kappa, quantities first."""
        u = (np.log(kappa.ravel()) - self.low) / LENGTH
        place = np.minimum(u.astype(np.intp), self.count - 1)
        found = self.at(place, u)
        return found.reshape((found.shape[0], *kappa.shape))

    def guess(self, place: NDArray[np.intp], ridge: Array, aspect: Array) -> Array:
        """A first kappa, to four digits: the inverse function's cubic through the interval's ends, with their slopes."""
        df1, _, mixed, rest = self.at_edges
        ends = []
        for at in (place, place + 1):
            room = self.slack(df1[at], rest[at], aspect)
            k = self.edges[at]
            ends.append((k, k * room, 1 / (room + aspect * mixed[at])))
        (k0, f0, slope0), (k1, f1, slope1) = ends
        t = (ridge - f0) / (f1 - f0)
        bend0, bend1 = slope0 * (f1 - f0) - (k1 - k0), (k1 - k0) - slope1 * (f1 - f0)
        return np.asarray(np.clip(k0 + t * (k1 - k0) + t * (1 - t) * ((1 - t) * bend0 + t * bend1), k0, k1))

    def at(self, place: NDArray[np.intp], u: Array) -> Array:
        """df1, df2, mixed and rest in the given intervals, u = (log kappa - low) / LENGTH; quantities first."""
        out = np.empty((place.size, self.terms.shape[-1]))
        for i in range(0, place.size, BLOCK):
            part = slice(i, i + BLOCK)
            x = (2 * (u[part] - place[part]) - 1)[:, None]
            total = self.terms[-1].take(place[part], axis=0)
            for terms in self.terms[-2::-1]:
                total *= x
                total += terms.take(place[part], axis=0)
            out[part] = total
        return np.ascontiguousarray(out.T)

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


@lru_cache(maxsize=16)
def tabulated(spectrum: Spectrum) -> Table:
    """The table of a spectrum, made once."""
    return Table(spectrum)
