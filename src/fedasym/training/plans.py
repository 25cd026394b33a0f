"""Who trains when on what: cohorts of clients, and batches from reshuffled passes without replacement.

Everything is decided here, on the host and ahead of the arithmetic, so that the compiled program, its plain twin and any
batching of configurations see the very same batches.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedasym.data.federation.shuffles import COHORT, Words, mix, orders

Rows = NDArray[np.int32]


def cohorts(seed: int, identities: Words, rounds: int, cohort: int, first: int = 0) -> Rows:
    """The clients drawn in rounds `first` to `rounds` - 1, uniform without replacement: those with the smallest hashes.

    >>> drawn = cohorts(0, np.arange(5, dtype=np.uint64), rounds=3, cohort=2)
    >>> drawn.shape, bool((drawn[:, 0] != drawn[:, 1]).all())
    ((3, 2), True)
    """
    ranks = mix(seed, COHORT, np.arange(first, rounds)[:, None], identities[None])
    drawn = np.argpartition(ranks, cohort - 1, axis=1)[:, :cohort] if cohort < len(identities) else np.argsort(ranks, axis=1)
    order = np.argsort(np.take_along_axis(ranks, drawn, axis=1), axis=1)  # by hash: the same for any order of the clients
    return np.take_along_axis(drawn, order, axis=1).astype(np.int32)


def turns(drawn: Rows, clients: int) -> Rows:
    """How often each drawn client had been drawn before."""
    before = np.zeros(clients, np.int32)
    counted = np.empty_like(drawn)
    for round_, members in enumerate(drawn):
        counted[round_] = before[members]
        before[members] += 1
    return counted


def batches(streams: Words, sizes: NDArray[np.integer], first: NDArray[np.integer] | int, count: int, batch: int) -> Rows:
    """Batches `first`, `first` + 1, ... of each stream: (streams, count, batch) samples of a client, -1 where there is none.

    A stream is an endless sequence of passes over a client's `sizes` samples, each pass shuffled anew and cut into batches,
    the last short one kept; a client without samples has empty batches.

    >>> batches(mix(0, [5]), np.array([3]), first=0, count=2, batch=2).shape
    (1, 2, 2)
    """
    sizes, first = np.asarray(sizes), np.broadcast_to(first, streams.shape)
    per_pass = -(-sizes // batch)
    rows = np.full((len(streams), count, batch), -1, np.int32)
    for length in np.unique(per_pass[sizes > 0]).tolist():
        mine = np.flatnonzero((per_pass == length) & (sizes > 0))
        skipped, offset = np.divmod(first[mine], length)
        passes = -(-(int(offset.max()) + count) // length)
        number = skipped[:, None] + np.arange(passes)
        flat = cut(orders(mix(streams[mine, None], number), sizes[mine], int(sizes[mine].max())), length, batch)
        wanted = offset[:, None] + np.arange(count)
        rows[mine] = np.take_along_axis(flat, wanted[:, :, None], axis=1) if offset.any() else flat[:, :count]
    return rows


def epochs(streams: Words, sizes: NDArray[np.integer], first: int, count: int, batch: int, width: int) -> Rows:
    """Passes `first`, `first` + 1, ...: (streams, count * batches of a pass over `width` samples, batch); short clients wait.

    Every pass takes the same number of steps for all clients, so that "after two epochs" is one moment of the program; the
    steps that a smaller client does not need are empty batches, which change nothing.
    """
    order = orders(mix(streams[:, None], first + np.arange(count)), np.asarray(sizes), width)
    return cut(order, -(-width // batch), batch)


def cut(order: Rows, length: int, batch: int) -> Rows:
    """(streams, passes, samples) as (streams, passes * length, batch): each pass in batches, the last one filled up with -1."""
    filled = np.full((*order.shape[:2], length * batch), -1, np.int32)
    filled[..., : order.shape[2]] = order
    return filled.reshape(len(order), -1, batch)
