"""Random numbers by counting: each is a hash of what it is for, so that order, batching and machine change nothing.

A client's numbers depend on the seed, on its own identity and on what they are for; never on who else takes part.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

COHORT, TRAINING, PERSONAL, SPLIT, START = 1, 2, 3, 4, 5  # what a number is for
STEP = np.uint64(0x9E3779B97F4A7C15)  # the constants of splitmix64 (Steele, Lea, Flood 2014)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)

Words = NDArray[np.uint64]


def mix(*words: int | np.integer | NDArray[np.integer]) -> Words:
    """A well-mixed 64-bit hash of whole numbers, broadcast over arrays; the longest array is best given last.

    >>> bool(mix(0, 1) == mix(0, 1)), mix(0, [1, 2, 3]).shape
    (True, (3,))
    """
    state: Words = np.zeros((), np.uint64)
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is meant
        for word in words:
            state = state + np.asarray(word).astype(np.uint64) + STEP
            state = (state ^ (state >> np.uint64(30))) * FIRST
            state = (state ^ (state >> np.uint64(27))) * SECOND
            state = state ^ (state >> np.uint64(31))
    return state


def orders(streams: Words, sizes: NDArray[np.integer], width: int) -> NDArray[np.int32]:
    """A random order of 0..size-1 for each stream, padded with -1 to `width`: samples sorted by their hashes.

    `streams` has any shape (..., passes) and `sizes` the shape without the passes. The low bits of a hash carry the sample,
    so that one sort does it; at least 40 bits stay random.

    >>> order = orders(mix(7, np.arange(2))[None], np.array([3]), 4)
    >>> sorted(order[0, 0].tolist()), int(order[0, 1, 3])
    ([-1, 0, 1, 2], -1)
    """
    sample = np.arange(width, dtype=np.uint64)
    low = np.uint64((1 << max(width - 1, 1).bit_length()) - 1)
    keys = (mix(streams[..., None], sample) & ~low) | sample
    absent = sample >= np.asarray(sizes)[..., None, None]
    keys[np.broadcast_to(absent, keys.shape)] = ~np.uint64(0)
    keys.sort(axis=-1)
    order = (keys & low).astype(np.int32)
    order[np.broadcast_to(absent, order.shape)] = -1  # absent samples sort last
    return order
