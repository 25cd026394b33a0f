"""What is allowed to happen when something from outside comes in: a result, or a refusal in words;
soon, in little memory.
"""

from __future__ import annotations

import contextlib
import io
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from fedasym.core.errors import InvalidInput

SECONDS = 20.0  # of a busy machine; a case takes milliseconds
GROWTH = 700 * 2**20  # bytes
STATUS, REFERENCES = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Finding(AssertionError):
    """What must not happen."""


class TooLong(BaseException):
    """Raised by the watchdog: no `except Exception` on the way can swallow it."""


@contextlib.contextmanager
def watchdog(seconds: float) -> Iterator[None]:
    """An end to what hangs."""

    def ring(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def memory(what: str) -> int:
    """Bytes of this process, now (VmRSS) or at most since `forget_peak` (VmHWM); 0 where the system
    does not say.
    """
    if not STATUS.exists():
        return 0
    return next(
        int(line.split()[1]) * 1024
        for line in STATUS.read_text().splitlines()
        if line.startswith(what)
    )


def forget_peak() -> None:
    """Begin to measure the peak anew."""
    with contextlib.suppress(OSError):
        REFERENCES.write_text("5")


def listing(folder: Path) -> dict[str, int]:
    """Every file below a folder, and its size."""
    return {
        str(path.relative_to(folder)): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file()
    }


def guarded(
    call: Callable[[], object], refusals: tuple[type[Exception], ...] = (InvalidInput,)
) -> str | None:
    """Make the call; None, or the words in which it was refused. Everything else is a finding."""
    forget_peak()
    before = memory("VmRSS")
    try:
        with watchdog(SECONDS), quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # words on a terminal are no harm
            call()
        refused = None
    except refusals as reason:
        refused = str(reason)
        if not refused.strip():
            raise Finding("it is refused without a word") from reason
    except TooLong:
        raise Finding(f"it takes longer than {SECONDS:g} s") from None
    except BaseException as reason:
        if isinstance(reason, KeyboardInterrupt):
            raise
        raise Finding(f"{type(reason).__name__}: {reason}") from reason
    grown = memory("VmHWM") - before
    if grown > GROWTH:
        raise Finding(f"it takes {grown / 2**20:.0f} MB")
    return refused


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """What is printed goes nowhere."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield
