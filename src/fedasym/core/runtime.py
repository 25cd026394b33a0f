"""What a lower layer asks of a higher one, of its caller and of the machine: roles, progress,
memory, threads, stops.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from threadpoolctl import ThreadpoolController

from fedasym.core.errors import InvalidInput


class Notice(str):
    """Words of progress that stay to be read: something was damaged or lost."""

    __slots__ = ()


Progress = Callable[
    [float, str], None
]  # hears what share of all is done, and a few words on where that is


def check_progress(progress: Any) -> None:
    """Refuse what cannot be told anything, before any work.

    >>> check_progress(True)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: progress is True: give a function of the share that is done and of a ...
    """
    if progress is not None and not callable(progress):
        raise InvalidInput(
            f"progress is {progress!r}: give a function of the share that is done and of a few"
            " words, such as print"
        )


class Executor(Protocol):
    """What `on` may be, such as `fedasym.runtimes.Ray`."""

    @property
    def threads(self) -> int:
        """CPUs that a task is given."""

    @property
    def workers(self) -> int | None:
        """How many tasks at a time, at the most."""


LAYERS = ("fedasym.show", "fedasym.deploy")
_FILLED: dict[str, Callable[..., Any]] = {}


def fill(role: str, module: str, name: str) -> None:
    """Fill a role with a function of a module, which is imported when it is called."""

    def call(*args: Any, **options: Any) -> Any:
        return getattr(import_module(module), name)(*args, **options)

    _FILLED[role] = call


def ask(role: str) -> Callable[..., Any]:
    """The function that fills a role."""
    if role not in _FILLED:
        for layer in LAYERS:
            import_module(layer)
    return _FILLED[role]


def write_file(role: str, *args: Any, **options: Any) -> Path:
    """Have a role write a file; returns where it is."""
    return Path(ask(role)(*args, **options))


MANY_THREADS = 1000  # dimension from which one matrix product keeps several threads busy


def physical_memory() -> float:
    """Bytes of this machine's memory; endless where the system does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return float("inf")


def check_fits(size: float, what: str) -> None:
    """Refuse what claims to unpack to more than this machine's memory, before anything is allocated
    for it.

    >>> check_fits(1e30, "clients.npz: array 'x'")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: clients.npz: array 'x' claims 1e+21 GB, more than this machine's ...
    """
    if size > physical_memory():
        raise InvalidInput(
            f"{what} claims {size / 1e9:.3g} GB, more than this machine's memory: check the file"
        )


def few_threads(dimension: int) -> AbstractContextManager[object]:
    """One BLAS thread for small matrices: more of them only wait for one another, on a busy machine
    a hundredfold.
    """
    found: AbstractContextManager[object] = libraries(len(sys.modules)).limit(
        limits=1 if dimension < MANY_THREADS else None, user_api="blas"
    )
    return found


@lru_cache(maxsize=1)
def libraries(_: int) -> ThreadpoolController:
    """The libraries with threads of their own: looked for again where modules were imported since,
    which takes long.
    """
    return ThreadpoolController()


STOPPED = 130  # the exit code after Ctrl-C
