"""Files that are there whole or not at all, locks between processes, and the folder of caches.

A file is written beside, flushed to the disk, then put in place: at every moment there is the old
file or the new one, whatever kills the process. What the disk says is an `OSError`: only the caller
knows in which words to tell it. The system frees a lock when its holder dies.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fedasym.core.errors import InvalidInput

PART = ".part"  # how the name of a half-written file ends
POLL = 0.1  # seconds between two looks at a lock that another process holds


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """A new path beside this one, to be written to: it takes this one's place when the block ends,
    and goes when it fails.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "numbers.txt")
    ...     with replace_file(path) as fresh:
    ...         size = fresh.write_text("1 2 3")
    ...     [each.name for each in path.parent.iterdir()]
    ['numbers.txt']
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}{PART}")
    try:
        yield fresh
        with fresh.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(fresh, path)
        flush(path.parent)
    finally:
        fresh.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Write a small file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "numbers.txt")
    ...     replace_text(path, "1 2 3")
    ...     path.read_text()
    '1 2 3'
    """
    with replace_file(path) as fresh:
        fresh.write_text(text, encoding="utf-8")


def flush(folder: Path) -> None:
    """Flush a folder, so that a new name survives a power cut; not every system lets one open
    folders.
    """
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write a small file."""
    with explain_unwritable(path):
        replace_text(path, text)


@contextmanager
def explain_unwritable(path: Path) -> Iterator[None]:
    """Say in a sentence that a file of a run cannot be written."""
    try:
        yield
    except OSError as reason:
        raise InvalidInput(
            f"{path} cannot be written: {reason.strerror or reason}; what is finished is kept"
        ) from None


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Try to hold a lock between processes, which the system frees when its holder dies. False:
    another has it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "work.lock")
    ...     with try_lock(path) as mine, try_lock(path) as again:
    ...         mine, again
    (True, False)
    """
    from filelock import FileLock, Timeout  # local: it comes with asyncio

    with ExitStack() as held:
        try:
            held.enter_context(FileLock(path).acquire(blocking=False))
            free = True
        except Timeout:
            free = False
        yield free


@contextmanager
def hold_lock(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold a lock between processes; `waiting` is called once where another has it."""
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        held = lock.acquire(blocking=False)
    except Timeout:
        waiting()
        held = lock.acquire(poll_interval=POLL)
    with held:
        yield


def cache_folder() -> Path:
    """Where this system keeps what programs can make again: `fedasym` in its cache folder."""
    from platformdirs import user_cache_path

    return user_cache_path("fedasym", appauthor=False)
