"""The command line: each command is one public verb plus printing, with the same words."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable

from cyclopts import CycloptsError

import fedasym as fa
from fedasym.cli import (  # noqa: F401  each adds its commands
    advising,
    data,
    experiments,
    linear,
    pretraining,
    reporting,
    reproduction,
    theory,
    training,
)
from fedasym.cli.app import app

__all__ = ["app", "main", "run"]


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
    return 0


def main() -> None:
    """The entry point of the `fedasym` command."""
    sys.exit(run(lambda: app(exit_on_error=False, print_error=False)))
