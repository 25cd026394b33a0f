"""Files that are there whole or not at all: written beside, flushed to the disk, then put in place.

At every moment there is the old file or the new one, whatever kills the process. What the disk says is an `OSError`: only the
caller knows in which words to tell it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedasym.core.errors import InvalidInput

PART = ".part"  # how the name of a half-written file ends


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new path beside this one, to be written to: it takes this one's place when the block ends, and goes when it fails.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "numbers.txt")
    ...     with replacing(path) as fresh:
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
    with replacing(path) as fresh:
        fresh.write_text(text, encoding="utf-8")


def flush(folder: Path) -> None:
    """Flush a folder, so that a new name survives a power cut; not every system lets one open folders."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write a small file."""
    with kept(path):
        replace_text(path, text)


@contextmanager
def kept(path: Path) -> Iterator[None]:
    """Say in a sentence that a file of a run cannot be written."""
    try:
        yield
    except OSError as reason:
        raise InvalidInput(f"{path} cannot be written: {reason.strerror or reason}; what is finished is kept") from None
