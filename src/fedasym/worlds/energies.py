"""Section 0: what the formulas see of a population: a spectrum, and the energy of two vectors along each of its atoms.

A grid of populations is the same thing with leading batch axes: arrays of shape (..., atoms) that broadcast together.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import EllipsisType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.core.arrays import Array

Index = int | slice | NDArray[np.intp] | NDArray[np.bool_] | tuple[int | slice | EllipsisType | None, ...]


@dataclass(frozen=True, eq=False)
class Energies:
    """Atoms s_k of the covariance, their weights h_k, and the energies E0_k of theta_0 and ED_k of Delta in each atom.

    All four broadcast to one shape (..., atoms); the leading axes are the batch.

    >>> one = Energies.isotropic(1.5, 1.5)
    >>> float(one.b0), float(one.bd), round(float(one.rho), 6)
    (2.25, 2.25, 2.12132)
    """

    s: Array
    h: Array
    e0: Array
    ed: Array

    def __post_init__(self) -> None:
        arrays = np.broadcast_arrays(*(np.atleast_1d(np.asarray(x, dtype=float)) for x in (self.s, self.h, self.e0, self.ed)))
        for name, array in zip(("s", "h", "e0", "ed"), arrays, strict=True):
            object.__setattr__(self, name, array)

    @classmethod
    def isotropic(cls, centre: ArrayLike, radius: ArrayLike, s: ArrayLike = 1.0, h: ArrayLike = 1.0) -> Energies:
        """Energy spread evenly over all directions: E0 = b^2 h, ED = r^2 h, for b = ||theta_0|| and r = ||Delta||.

        >>> Energies.isotropic([1, 2, 3], 1, s=[0.5, 3], h=[0.6, 0.4]).batch
        (3,)
        """
        b, r = (np.asarray(x, dtype=float)[..., None] for x in (centre, radius))
        weights = np.atleast_1d(np.asarray(h, dtype=float))
        return cls(np.asarray(s, dtype=float), weights, b**2 * weights, r**2 * weights)

    @property
    def b0(self) -> Array:
        """B0 = sum s E0 = theta_0' Sigma theta_0."""
        return np.asarray((self.s * self.e0).sum(-1))

    @property
    def bd(self) -> Array:
        """BD = sum s ED = Delta' Sigma Delta."""
        return np.asarray((self.s * self.ed).sum(-1))

    @property
    def rho(self) -> Array:
        """The standard deviation of x'theta_i: rho^2 = B0 + BD."""
        return np.sqrt(self.b0 + self.bd)

    @property
    def r2(self) -> Array:
        """r^2 = sum ED, the Euclidean energy of Delta."""
        return np.asarray(self.ed.sum(-1))

    @property
    def rank(self) -> Array:
        """Share of the directions that samples can see: weight of the atoms with s > 0."""
        return np.asarray(np.where(self.s > 0, self.h, 0.0).sum(-1))

    @property
    def batch(self) -> tuple[int, ...]:
        """The shape of the leading axes: () for one population."""
        return self.s.shape[:-1]

    @property
    def alone(self) -> Energies:
        """The same client for a method that shares nothing: all energy belongs to what is learned, none to the centre."""
        return Energies(self.s, self.h, np.zeros_like(self.e0), self.e0 + self.ed)

    def broadcast(self, shape: tuple[int, ...]) -> Energies:
        """The same populations over a larger batch."""
        full = (*shape, self.s.shape[-1])
        return Energies(*(np.broadcast_to(x, full) for x in (self.s, self.h, self.e0, self.ed)))

    def flat(self) -> Energies:
        """The batch as one axis."""
        return Energies(*(x.reshape(-1, x.shape[-1]) for x in (self.s, self.h, self.e0, self.ed)))

    def take(self, where: Index) -> Energies:
        """Some of the batch."""
        return Energies(*(x[where] for x in (self.s, self.h, self.e0, self.ed)))
