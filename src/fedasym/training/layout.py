"""How the work is laid out on the machine: Gram or head form by cost, clients in groups of like size, pieces by memory."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedasym.core.machine import physical_memory

GROUPS, MANY = 3, 6  # compiled programs for one client stage, at most; for sequences, whose steps cost more than compiling
WORTH = 0.85  # what all groups together save must be worth it: fewer are taken where they come as near as this
CACHE = 2e6  # bytes that stay close to a processor's core, roughly
COPIES = 6  # arrays of a model's size that a step holds at once, roughly
STEP = 3  # arrays of the size of a batch's outputs


class Machine(NamedTuple):
    """What decides the layout."""

    together: bool  # many clients side by side: accelerators; a processor's cache prefers one after another
    memory: float  # bytes that a program may use
    close: float  # bytes that runs side by side may use between them: memory, or what a processor keeps in its cache


def this_machine() -> Machine:
    """The device that JAX computes on by default."""
    (device,) = jnp.zeros(()).devices()
    if device.platform == "cpu":
        return Machine(False, physical_memory() / 4, CACHE)
    known = device.memory_stats() or {}
    free = known.get("bytes_limit", 8e9) - known.get("bytes_in_use", 0)
    return Machine(True, free / 2, free / 2)


def cheaper_form(width: int, dimension: int, steps: int, batch: int) -> str:
    """The form with fewer multiplications for `steps` batch gradients of a client with `width` samples, per output.

    Gram: once in and once out of the span (2 w d), and B w a step. Head: outputs and gradient, 2 B d a step.
    """
    return "gram" if width * (2 * dimension + steps * batch) < 2 * steps * batch * dimension else "head"


def rounded(size: int) -> int:
    """A width that vector units like."""
    return max(8, -(-int(size) // 8) * 8)


def groups(sizes: NDArray[np.integer], many: bool = False) -> list[NDArray[np.intp]]:
    """Clients in at most `GROUPS` (or `MANY`) groups of like size, so that little is padded; fewer where that costs little."""
    widths = np.array([rounded(size) for size in sizes])
    levels, counts = np.unique(widths, return_counts=True)
    below = np.concatenate([[0], np.cumsum(counts)])
    held: dict[int, tuple[float, tuple[int, ...]]] = {
        0: (0.0, ())
    }  # by the number of levels in some groups: what they cost, and where each ends
    plans = []
    for _ in range(min(MANY if many else GROUPS, len(levels))):
        held = {
            stop: min((cost + (below[stop] - below[start]) * levels[stop - 1], (*ends, stop)) for start, (cost, ends) in before)
            for stop in range(1, len(levels) + 1)
            if (before := [(start, plan) for start, plan in held.items() if start < stop])
        }
        plans.append(held[len(levels)])
    ends = next(ends for cost, ends in plans if cost * WORTH <= plans[-1][0])
    edges = [0, *(levels[stop - 1] for stop in ends)]
    return [np.flatnonzero((widths > low) & (widths <= high)) for low, high in pairwise(edges)]


def fitting(memory: float, each: float, most: int) -> int:
    """How many of `most` things to take at a time: as many as fit, in parts that are as even as can be.

    Parts are filled up to one size: of 17 things 14 may fit, and two parts of 9 do less in vain than two of 14.

    >>> fitting(14, 1, 17), fitting(100, 1, 17), fitting(0.5, 1, 17)
    (9, 17, 1)
    """
    fits = int(min(max(memory // max(each, 1), 1), most))
    return -(-most // -(-most // fits))
