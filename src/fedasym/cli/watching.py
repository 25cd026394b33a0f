"""Long work on a terminal: how far it has come, and what Ctrl-C leaves."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from fedasym.core.hooks import Notice
from fedasym.core.machine import STOPPED

KEPT = "finished pieces are kept, and the same command goes on from there"
GOES_ON = "the same command goes on where it was"


@contextmanager
def stoppable(left: str) -> Iterator[None]:
    """After Ctrl-C, say what is left, and end: also where compiled code has made an error of its own of the interruption."""
    pressed = False

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        if callable(before):
            before(number, frame)
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, press)
    try:
        yield
    except BaseException as reason:
        if not pressed and not isinstance(reason, KeyboardInterrupt):
            raise
        print(f"\nfedasym: stopped; {left}", file=sys.stderr, flush=True)
        raise SystemExit(STOPPED) from None
    finally:
        signal.signal(signal.SIGINT, before)


def show_progress(share: float, text: str) -> None:
    """One line on the terminal that is written over; gone when all is done."""
    width = shutil.get_terminal_size().columns - 1
    line = "" if share >= 1 else f"{share:4.0%}  {text}"[:width]
    print(f"\r{line:<{width}}", end="\r" if share >= 1 else "", file=sys.stderr, flush=True)


class Teller:
    """Progress on stderr: a line that is written over on a terminal, elsewhere a line for each finished piece.

    quiet: seconds between two lines where nobody watches, for work that comes in no pieces.
    """

    def __init__(self, quiet: float = 0.0) -> None:
        self.quiet, self.said, self.told = quiet, "", time.monotonic()
        self.terminal = sys.stderr.isatty()

    def __call__(self, share: float, text: str) -> None:
        """Tell how far it is; what is damaged or lost stays to be read."""
        if isinstance(text, Notice):
            print(f"\nfedasym: {text}" if self.terminal else f"fedasym: {text}", file=sys.stderr, flush=True)
        elif self.terminal:
            show_progress(share, text)
        elif (count := text.partition(" · ")[0]) != self.said and time.monotonic() - self.told >= self.quiet:
            self.said, self.told = count, time.monotonic()
            print(f"{share:4.0%}  {text}", file=sys.stderr, flush=True)
