"""Work that falls into independent pieces, on a few threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fedasym.core.machine import MANY_THREADS

MOST_THREADS = 4
T = TypeVar("T")


def in_threads(work: Callable[[int], T], count: int, dimension: int) -> list[T]:
    """work(0), ..., work(count - 1), several at a time; one at a time where a single matrix product keeps all cores busy."""
    threads = min(MOST_THREADS, os.cpu_count() or 1, count)
    if threads < 2 or dimension >= MANY_THREADS:
        return [work(place) for place in range(count)]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, range(count)))
