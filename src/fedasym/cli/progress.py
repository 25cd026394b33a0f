"""Long work on stderr: a bar on a terminal, a line every few seconds in a log, and what Ctrl-C leaves."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from fedasym.core.hooks import Notice
from fedasym.core.machine import STOPPED

if TYPE_CHECKING:
    from rich.progress import Progress

KEPT = "finished pieces are kept, and the same command goes on from there"
GOES_ON = "the same command goes on where it was"
LOGGED = 5.0  # seconds between two lines of a log
DRAWN = 0.1  # seconds between two drawings of the bar


class Display:
    """Hears how far work is, as a verb's `progress` does; the bar is gone when all is done.

    Without a thread of its own, so that Ctrl-C finds nothing else at work.
    """

    def __init__(self) -> None:
        self.bar: Progress | None = None
        self.last = time.monotonic()
        self.terminal = is_terminal()

    def __enter__(self) -> Display:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.clear()

    def __call__(self, share: float, text: str) -> None:
        """Tell how far it is; what is damaged or lost stays to be read."""
        now = time.monotonic()
        if isinstance(text, Notice):
            self.clear()
            print(f"fedasym: {text}", file=sys.stderr, flush=True)
        elif self.terminal and share >= 1:
            self.clear()
        elif self.terminal and (self.bar is None or now - self.last >= DRAWN):
            self.draw(share, text)
            self.last = now
        elif not self.terminal and now - self.last >= LOGGED:
            print(f"{share:4.0%}  {text}", file=sys.stderr, flush=True)
            self.last = now

    def draw(self, share: float, text: str) -> None:
        """The bar, its share and a few words, in one line of the terminal."""
        if self.bar is None:
            self.bar = start_bar()
        self.bar.update(self.bar.task_ids[0], completed=share, description=text, refresh=True)

    def clear(self) -> None:
        """Leave the terminal as it was."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def is_terminal() -> bool:
    """Whether someone watches stderr on a terminal that can draw a line again."""
    from rich.console import Console

    return sys.stderr.isatty() and not Console(stderr=True).is_dumb_terminal


def start_bar() -> Progress:
    """One task, drawn when it is told to."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.table import Column

    words = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    bar = Progress(
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.description}", markup=False, table_column=words),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        expand=True,
    )
    bar.add_task("", total=1.0)
    bar.start()
    return bar


@contextmanager
def show_progress(left: str) -> Iterator[Display]:
    """A display of long work; after Ctrl-C, `left` says what there is of it."""
    with announce_stop(left), Display() as display:
        yield display


@contextmanager
def announce_stop(left: str) -> Iterator[None]:
    """After Ctrl-C, say what is left, and end.

    Also where compiled code has made an error of its own of the interruption.
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
    except BaseException as reason:
        if not pressed and not isinstance(reason, KeyboardInterrupt):
            raise
        print(f"\nfedasym: stopped; {left}", file=sys.stderr, flush=True)
        raise SystemExit(STOPPED) from None
    finally:
        signal.signal(signal.SIGINT, before)
