"""Processes that are forked from one which has imported what they need: to start each by itself
would take longer than what most of them do.

The server, `python warm.py MODULE ...`, imports the modules and reads lines: the words that start a
program, its log and its folder, or the number of a process. It answers with the number of the new
process, or with how the old one ended. Every process has a group of its own.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

Programs = Mapping[str, Callable[[], Any]]


class Starter:
    """The process from which all others are forked."""

    def __init__(self, environment: dict[str, str], *words: str, script: str = __file__) -> None:
        self.process = subprocess.Popen(
            [sys.executable, script, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
            bufsize=1,
        )

    def ask(self, what: object) -> int | None:
        self.process.stdin.write(json.dumps(what) + "\n")
        return json.loads(self.process.stdout.readline())

    def stop(self) -> None:
        self.process.communicate(timeout=20)


class Process:
    """A program in a process group of its own, with its output in a file."""

    def __init__(self, starter: Starter, words: list[object], log: Path) -> None:
        self.log, self.starter, self.ended = log, starter, None
        log.touch()
        self.number = starter.ask([[str(word) for word in words], str(log), str(log.parent)])

    def poll(self) -> int | None:
        """How it ended, if it has."""
        if self.ended is None:
            self.ended = self.starter.ask(self.number)
        return self.ended

    def wait(self, seconds: float, pause: float = 0.2) -> int:
        wait_until(lambda: self.poll() is not None, seconds, f"end of {self.log.name}", pause=pause)
        return self.ended

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, words: str, seconds: float = 60) -> str:
        """Wait for words in the log, and return all of it."""

        def there() -> bool:
            ended = self.poll() is not None
            assert words in self.text or not ended, f"ended without {words!r}:\n{self.text[-4000:]}"
            return words in self.text

        wait_until(there, seconds, f"{words!r} in {self.log.name}:\n", lambda: self.text[-4000:])
        return self.text

    def kill(self) -> None:
        """End the whole group at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.number, signal.SIGKILL)
        self.wait(20, pause=0.01)

    def stop(self) -> None:
        """Ask, wait a little, then insist: the whole group, since children outlive their
        parents.
        """
        if self.poll() is None:
            os.kill(self.number, signal.SIGTERM)
            with contextlib.suppress(AssertionError):
                self.wait(5)
        self.kill()


def wait_until(true, seconds: float, what: str, more=lambda: "", pause: float = 0.2) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"no {what} within {seconds} seconds {more()}"
        time.sleep(pause)


# The server


def serve(programs: Programs) -> None:
    """Answer every line, as long as lines come."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)  # as in conftest.py: what is forked does not live long
    for line in sys.stdin:
        match json.loads(line):
            case [list(words), log, folder]:
                answer = os.fork()
                if answer == 0:
                    os.setpgid(0, 0)
                    os.chdir(folder)
                    redirect(os.open(log, os.O_WRONLY | os.O_APPEND))
                    run(programs, words)
            case number:
                ended, status = os.waitpid(number, os.WNOHANG)
                answer = os.waitstatus_to_exitcode(status) if ended else None
        print(json.dumps(answer), flush=True)


def redirect(output: int) -> None:
    """Read nothing, and write there."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)


def run(programs: Programs, words: list[str]) -> NoReturn:
    """A program that ends without taking down what it never built."""
    sys.argv = words
    os._exit(status_of(programs[words[0]]))


def status_of(program: Callable[[], Any]) -> int:
    """What a process would end with that does this and no more."""
    try:
        program()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    with contextlib.suppress(OSError, ValueError):  # nobody may listen any more
        sys.stdout.flush()
        sys.stderr.flush()
    return code


def run_code() -> None:
    """What `python -c` runs."""
    code = sys.argv[2]
    sys.argv = sys.argv[1:2] + sys.argv[3:]
    exec(code, {"__name__": "__main__"})


PROGRAMS: Programs = {
    "fedasym": lambda: import_module("fedasym.__main__").main(),
    "python": run_code,
}

if __name__ == "__main__":
    for name in sys.argv[1:]:
        import_module(name)
    serve(PROGRAMS)
