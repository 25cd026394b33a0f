"""Processes known by the folder that they work in: who is there, who computes, where they listen,
and their end.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

HAND = "ray::fedasym"  # how Ray names a process while it computes a task of ours


def inside(folder: Path) -> list[int]:
    """Processes that work in a folder."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state = (each / "stat").read_text().rpartition(")")[2].split()[0]
            if os.readlink(each / "cwd") == str(folder) and state != "Z":
                found.append(int(each.name))
    return found


def at_work(folder: Path) -> list[int]:
    """Those of them that compute a task."""
    return [pid for pid in inside(folder) if title(pid).startswith(HAND)]


def title(pid: int) -> str:
    with suppress(OSError):
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
            .strip()
        )
    return ""


def listening(pids: list[int]) -> set[str]:
    """The addresses on which processes take connections, as the system writes them: hexadecimal."""
    sockets = set()
    for pid in pids:
        with suppress(OSError):
            sockets |= {os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir()}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            parts = line.split()
            if parts[3] == "0A" and f"socket:[{parts[9]}]" in sockets:
                found.add(parts[1].partition(":")[0])
    return found


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def wait_until(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come to pass in time"
        time.sleep(0.02)


def ended(folder: Path) -> None:
    """Wait until no process works in a folder any more; what stays is an error, and is ended."""
    try:
        wait_until(lambda: not inside(folder), 30)
    finally:
        for pid in inside(folder):
            os.kill(pid, signal.SIGKILL)
