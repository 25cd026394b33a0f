"""The command line: each command is one public verb plus printing, with the same words."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module

from cyclopts import CycloptsError

import fedasym as fa
from fedasym.cli.app import app

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
