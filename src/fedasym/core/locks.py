"""Locks between processes, which the system frees when their holder dies; and the folder of caches."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def taken(file: int) -> bool:
    """Try to take the lock; False while another holds it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(file, 0, os.SEEK_SET)
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def cache_folder() -> Path:
    """Where this system keeps what programs can make again: `fedasym` in its cache folder."""
    home = Path.home()
    if sys.platform == "win32":
        cache = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        cache = home / "Library" / "Caches"
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return cache / "fedasym"
