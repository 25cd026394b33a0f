"""The `fedasym` command, also as `python -m fedasym`.

It begins before anything large is imported, so that Ctrl-C at any moment ends in a line, and never
in a traceback or a crash.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import Timer, get_ident
from types import FrameType
from typing import Any, NoReturn

from fedasym.core.runtime import STOPPED

AGAIN = 0.05  # seconds after which an interruption that was dropped is raised again
# modules stay: to look for garbage among them again and again takes a sixth of a start
COLLECT = 100_000, 20, 50


@contextmanager
def interruptible() -> Iterator[None]:
    """End in a line on Ctrl-C, whatever became of it on its way through compiled code."""
    pressed = False
    unraisable = sys.unraisablehook

    def press(_: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        # compiled modules abort the process where their import is interrupted
        if is_importing(frame):
            exit_at_once("stopped")
        raise KeyboardInterrupt

    def interrupt_again(event: Any) -> None:
        """Ask again for an interruption that Python dropped in its garbage collector's callback."""
        if event.exc_type is not KeyboardInterrupt:
            unraisable(event)
        else:
            Timer(
                AGAIN, signal.pthread_kill, (get_ident(), signal.SIGINT)
            ).start()  # wakes it up where it waits, too

    handler = signal.signal(signal.SIGINT, press)
    sys.unraisablehook = interrupt_again
    try:
        yield
    except SystemExit as end:
        if end.code == STOPPED:  # the command has said what is kept
            exit_at_once()
        raise
    except BaseException:
        if not pressed:
            raise
        exit_at_once("stopped")
    finally:
        sys.unraisablehook = unraisable
        signal.signal(signal.SIGINT, handler)


def is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported here."""
    while frame is not None and "importlib._bootstrap" not in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None


def exit_at_once(word: str = "") -> NoReturn:
    """Leave at once: the usual way out would tear the interpreter down under JAX's threads."""
    if sys.stderr.isatty():
        sys.stderr.write("\x1b[?25h")  # a bar that was being drawn had hidden the cursor
    if word:
        sys.stderr.write(f"\nfedasym: {word}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(STOPPED)


def main() -> None:
    """The entry point of the `fedasym` command."""
    gc.set_threshold(*COLLECT)
    try:
        with interruptible():
            import_module("fedasym.cli").main()
    # registered last and called first: from then on Ctrl-C would only break into what others do at
    # the end
    finally:
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    main()
