"""Long work on a terminal: how far it has come, and what Ctrl-C leaves."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def resumable() -> Iterator[None]:
    """After Ctrl-C, say that nothing is lost, and leave at once.

    Compiled code turns an interruption into errors of its own now and then, and JAX's threads are still computing: the
    usual way out would tear the interpreter down under them.
    """
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
    except BaseException:
        if not pressed:
            raise
        print(
            "\nfedasym: stopped; finished pieces are kept, and the same command goes on from there", file=sys.stderr, flush=True
        )
        os._exit(130)
    finally:
        signal.signal(signal.SIGINT, before)


class Teller:
    """Progress on stderr: a line that is written over on a terminal, elsewhere a line for each finished piece."""

    def __init__(self) -> None:
        self.said, self.terminal = "", sys.stderr.isatty()

    def __call__(self, share: float, text: str) -> None:
        """Tell how far it is; what is damaged or lost stays to be read."""
        if "damaged" in text or "was lost" in text:
            print(f"\nfedasym: {text}" if self.terminal else f"fedasym: {text}", file=sys.stderr, flush=True)
        elif self.terminal:
            width = shutil.get_terminal_size().columns - 1
            line = "" if share >= 1 else f"{share:4.0%}  {text}"[:width]
            print(f"\r{line:<{width}}", end="\r" if share >= 1 else "", file=sys.stderr, flush=True)
        elif (count := text.partition(" · ")[0]) != self.said:
            self.said = count
            print(f"{share:4.0%}  {text}", file=sys.stderr, flush=True)
