"""The command line: each command is one public verb plus printing, with the same words.

Commands are found here by name, and tell here how far their work is.
"""

from __future__ import annotations

import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING

from cyclopts import CycloptsError

import fedasym as fa
from fedasym.cli.app import app
from fedasym.core.runtime import STOPPED, Notice

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["app", "load", "main", "run"]

# The module of each command: only that of the one asked for is imported, which keeps starting
# quick.
COMMANDS = {
    "advise": "training",
    "apply": "training",
    "compare": "theory",
    "data": "data",
    "deploy": "training",
    "explore": "theory",
    "features": "data",
    "fit": "training",
    "path": "theory",
    "predict": "theory",
    "pretrain": "data",
    "report": "experiments",
    "reproduce": "experiments",
    "rounds": "theory",
    "run": "experiments",
    "runs": "experiments",
    "simulate": "theory",
    "sweep": "experiments",
    "train": "training",
    "try": "training",
}


def load(words: Sequence[str]) -> None:
    """Add the command that the words begin with to the application, or else all commands."""
    asked = COMMANDS.get(words[0]) if words else None
    for module in [asked] if asked else sorted(set(COMMANDS.values())):
        import_module(f"fedasym.cli.{module}")


def run(call: Callable[[], object]) -> int:
    """Run a command; a bad value gives one sentence and exit code 2, never a traceback."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fa.ThresholdWarning)  # the table says it in its notes
            call()
    except fa.InvalidInput as reason:
        print(f"fedasym: {reason}", file=sys.stderr)
        return 2
    except CycloptsError as reason:
        print(f"fedasym: {' '.join(str(reason).split())} See fedasym --help.", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0
    except OSError as reason:  # of the disk: a name too long, no permission, no room
        print(f"fedasym: {reason.filename or ''}: {reason.strerror or reason}", file=sys.stderr)
        return 2
    return 0


def main() -> None:
    """The entry point of the `fedasym` command."""
    load(sys.argv[1:])
    sys.exit(run(lambda: app(exit_on_error=False, print_error=False)))


def redirect_answers() -> AbstractContextManager[object]:
    """While a cluster works, what workers and Ray print goes to stderr: stdout has the answer."""
    return redirect_stdout(sys.stderr)


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
        self.told = False  # whether a log has lines, so that it gets a last one

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *reason: object) -> None:
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
        elif not self.terminal and (now - self.last >= LOGGED or (self.told and share >= 1)):
            print(f"{share:4.0%}  {text}", file=sys.stderr, flush=True)
            self.last = now
            self.told = share < 1

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
