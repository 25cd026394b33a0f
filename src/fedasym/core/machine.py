"""What long computations ask of the machine: how much memory there is, how many threads help, and how a stop ends them."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager
from functools import lru_cache

from threadpoolctl import ThreadpoolController

from fedasym.core.errors import InvalidInput

MANY_THREADS = 1000  # dimension from which one matrix product keeps several threads busy


def physical_memory() -> float:
    """Bytes of this machine's memory; endless where the system does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return float("inf")


def check_fits(size: float, what: str) -> None:
    """Refuse what claims to unpack to more than this machine's memory, before anything is allocated for it.

    >>> check_fits(1e30, "clients.npz: array 'x'")
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: clients.npz: array 'x' claims 1e+21 GB, more than this machine's memory: check the file
    """
    if size > physical_memory():
        raise InvalidInput(f"{what} claims {size / 1e9:.3g} GB, more than this machine's memory: check the file")


def few_threads(dimension: int) -> AbstractContextManager[object]:
    """One BLAS thread for small matrices: more of them only wait for one another, on a busy machine a hundredfold."""
    found: AbstractContextManager[object] = libraries(len(sys.modules)).limit(
        limits=1 if dimension < MANY_THREADS else None, user_api="blas"
    )
    return found


@lru_cache(maxsize=1)
def libraries(_: int) -> ThreadpoolController:
    """The libraries with threads of their own: looked for again where modules were imported since, which takes long."""
    return ThreadpoolController()


STOPPED = 130  # the exit code after Ctrl-C
