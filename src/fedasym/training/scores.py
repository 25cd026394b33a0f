"""Statistics of tested clients, from what was counted: sums per evaluated round and client over counts per client.

NaN stands for a model that diverged. It is never left out of a mean or a ranking: dropping failures would flatter a method.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.core.arrays import Array

ROUNDING = 1e-6  # losses closer than this, relatively, are the same in float32

Sums = NDArray[np.floating[Any]]  # (rounds, clients)
Counts = NDArray[np.integer[Any]]  # (clients,)


def ratio(sums: ArrayLike, counts: ArrayLike) -> Array:
    """Sums over counts, NaN where nothing was counted.

    >>> ratio([3, 0], [4, 0]).tolist()
    [0.75, nan]
    """
    top, bottom = np.broadcast_arrays(np.asarray(sums, float), np.asarray(counts, float))
    return np.asarray(np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom > 0))


def pooled(sums: Sums, counts: Counts) -> Array:
    """All clients' samples together: a client weighs as much as it has samples.

    >>> pooled(np.array([[1.0, 6.0]]), np.array([2, 8])).tolist()
    [0.7]
    """
    return ratio(sums[:, counts > 0].sum(1, dtype=float), counts.sum())


def per_client(sums: Sums, counts: Counts) -> Array:
    """Each client's own, for the clients that have samples."""
    return ratio(sums[:, counts > 0], counts[counts > 0])


def over_clients(sums: Sums, counts: Counts) -> Array:
    """The mean of the clients' own: each client weighs the same.

    >>> over_clients(np.array([[1.0, 6.0]]), np.array([2, 8])).tolist()
    [0.625]
    """
    each = per_client(sums, counts)
    return ratio(each.sum(1), each.shape[1])


def lowest_tenth(sums: Sums, counts: Counts) -> Array:
    """The mean of the lowest of the clients' own, a tenth of the clients rounded up.

    >>> lowest_tenth(np.arange(11.0)[None], np.full(11, 10)).tolist()
    [0.05]
    """
    each = per_client(sums, counts)
    few = -(-each.shape[1] // 10)
    lowest = ratio(np.sort(each, axis=1)[:, :few].sum(1), few)
    return np.where(np.isnan(each).any(1), np.nan, lowest)  # sorting puts NaN last, among the best


def worse(own: Sums, shared: Sums, counts: Counts, losses: bool) -> Array:
    """The fraction of clients that do strictly worse on their own: fewer correct, or a larger loss beyond rounding.

    >>> worse(np.array([[3.0, 5.0]]), np.array([[4.0, 5.0]]), np.array([9, 9]), losses=False).tolist()
    [0.5]
    """
    own, shared = (np.asarray(sums[:, counts > 0], float) for sums in (own, shared))
    hurt = own > shared * (1 + ROUNDING) if losses else own < shared
    lost = (np.isnan(own) | np.isnan(shared)).any(1)
    return np.where(lost, np.nan, ratio(hurt.sum(1), hurt.shape[1]))
