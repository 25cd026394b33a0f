"""What linear mixed models look at: each client's sums of products, gathered once, whatever the number of samples.

y_j = X_j (beta + u_j) + noise enters every formula of this package through n_j, S_j = X_j'X_j, b_j = X_j'y_j and
q_j = y_j'y_j alone, so that memory grows with clients times unknowns squared and not with samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.arrays import Array

ROOM = 2**22  # numbers in one batch of products of rows


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over the samples of m clients with p unknowns each.

    counts: n_j, (m,). gram: S_j, (m, p, p). cross: b_j, (m, p). square: q_j, (m,).
    """

    counts: Array
    gram: Array
    cross: Array
    square: Array

    @classmethod
    def of(cls, X: Array, y: Array, owner: NDArray[np.integer[Any]]) -> Sums:
        """Sums by client of rows in the order of their clients: `owner` is ascending from 0.

        >>> sums = Sums.of(np.array([[1.0], [2.0], [3.0]]), np.ones(3), np.array([0, 0, 1]))
        >>> sums.gram[:, 0, 0].tolist(), sums.cross[:, 0].tolist()
        ([5.0, 9.0], [3.0, 3.0])
        """
        m, p = int(owner[-1]) + 1, X.shape[1]
        starts = np.searchsorted(owner, np.arange(m + 1))
        gram, cross, square = np.zeros((m, p, p)), np.zeros((m, p)), np.zeros(m)
        first = 0
        while first < m:  # as many clients at once as their products of rows have room
            most = starts[first] + max(ROOM // (p * p), 1)
            last = int(np.searchsorted(starts, most, side="right")) - 1
            last = min(max(last, first + 1), m)
            rows = slice(starts[first], starts[last])
            if last == first + 1:
                gram[first] = X[rows].T @ X[rows]
            else:
                products = X[rows, :, None] * X[rows, None, :]
                gram[first:last] = np.add.reduceat(products, starts[first:last] - starts[first], axis=0)
            local = starts[first:last] - starts[first]
            cross[first:last] = np.add.reduceat(X[rows] * y[rows, None], local, axis=0)
            square[first:last] = np.add.reduceat(y[rows] ** 2, local)
            first = last
        return cls(np.diff(starts).astype(float), gram, cross, square)

    @property
    def unknowns(self) -> int:
        """How many coefficients a model has, p."""
        return int(self.cross.shape[1])

    @property
    def samples(self) -> float:
        """N, of all clients together."""
        return float(self.counts.sum())

    @cached_property
    def total(self) -> Array:
        """The sum of S_j over clients."""
        return np.asarray(self.gram.sum(0))

    def take(self, places: NDArray[np.integer[Any]]) -> Sums:
        """The sums of some of the clients."""
        return Sums(self.counts[places], self.gram[places], self.cross[places], self.square[places])
