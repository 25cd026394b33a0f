"""Folds of samples within clients, for models that are scored on what they did not see."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FOLDS = 5


def split_folds(owner: NDArray[np.integer], folds: int = FOLDS, seed: int = 0) -> NDArray[np.int64]:
    """A fold for every row: each client's rows are dealt out evenly, from a fold of its own on.

    >>> split_folds(np.array([0, 0, 1, 1, 1, 0]), folds=3).tolist()
    [1, 2, 1, 0, 2, 0]
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(owner))
    order = order[np.argsort(owner[order], kind="stable")]
    sizes = np.bincount(owner)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    dealt = np.empty(len(owner), dtype=np.int64)
    offsets = rng.integers(folds, size=len(sizes))
    dealt[order] = (np.arange(len(owner)) - starts + offsets[owner[order]]) % folds
    return dealt
