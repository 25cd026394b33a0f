"""Clients by size: those of about one size are one kind, otherwise there are up to eight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedasym.core.arrays import Array

KINDS = 8
ALIKE = 1.1  # sizes within this factor are one


@dataclass(frozen=True, eq=False)
class Kinds:
    """Clients by size: how many of each kind and their samples."""

    count: Array
    samples: Array
    place: NDArray[np.intp]  # which kind each client is
    sizes: Array  # the samples of each client

    @classmethod
    def of(cls, sizes: Array) -> Kinds:
        """One kind where sizes are alike, otherwise parts of about equally many clients."""
        if sizes.max() <= ALIKE * sizes.min():
            return cls(np.array([sizes.size], dtype=float), np.array([sizes.mean()]), np.zeros(sizes.size, dtype=int), sizes)
        edges = np.unique(np.quantile(sizes, np.linspace(0, 1, KINDS + 1)[1:-1]))
        _, place = np.unique(np.searchsorted(edges, sizes, side="left"), return_inverse=True)
        count = np.bincount(place)
        return cls(count.astype(float), np.bincount(place, sizes) / count, place, sizes)

    @property
    def middle(self) -> int:
        """The kind of the median client."""
        return int(np.argmin(np.abs(np.cumsum(self.count) / self.count.sum() - 0.5)))
