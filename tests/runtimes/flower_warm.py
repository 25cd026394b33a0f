"""Flower's programs, each in a process of its own, with their imports behind them.

It reads lines: the words that start a program, its log and its folder, or the number of a process.
It answers with the number of the new process, or with how the old one ended. All are forked here,
instead of importing everything again, and so is what they start by themselves: every message still
has a process of its own, as always. A node looks for messages twice a second, not every three
seconds.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import time
import traceback
import types
from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn

import httpcore  # noqa: F401
import polars  # noqa: F401
import safetensors.numpy  # noqa: F401
from flwr.cli.app import app
from flwr.supercore.cli import flower_superexec
from flwr.supercore.superexec.executor import subprocess_executor
from flwr.superlink.cli import flower_superlink, flwr_serverapp
from flwr.superlink.servicer.control import control_handlers
from flwr.supernode import fleet_http_connection, start_client_internal
from flwr.supernode.cli import flower_supernode, flwr_clientapp

from fedasym import cli
from fedasym.data import formats  # noqa: F401
from fedasym.deploy.flower import advice, nodes, strategy  # noqa: F401

control_handlers.LOG_STREAM_INTERVAL = 1.0  # seconds; every look costs the link's time


def serve() -> None:
    """Answer every line, as long as lines come."""
    gc.freeze()
    for line in sys.stdin:
        match json.loads(line):
            case [list(words), log, folder]:
                answer = os.fork()
                if answer == 0:
                    os.setpgid(0, 0)
                    os.chdir(folder)
                    redirect(os.open(log, os.O_WRONLY | os.O_APPEND))
                    run(words)
            case number:
                ended, status = os.waitpid(number, os.WNOHANG)
                answer = os.waitstatus_to_exitcode(status) if ended else None
        print(json.dumps(answer), flush=True)


def redirect(output: int) -> None:
    """Read nothing, and write there."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)


def run(words: list[str]) -> NoReturn:
    """A program that ends without taking down what it never built."""
    sys.argv = words
    try:
        PROGRAMS[words[0]]()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def beside_forks(program: Callable[[], Any]) -> Callable[[], Any]:
    """A program beside a child that does nothing but fork what the program starts."""

    def start() -> Any:
        theirs, ours = os.pipe()
        popen = types.SimpleNamespace(Popen=starting(ours), DEVNULL=None)
        link = import_module("flwr.superlink.cli.flower_superlink")
        for module in (subprocess_executor, start_client_internal, link):
            module.subprocess = popen
        return program() if os.fork() else fork_lines(theirs)

    return start


def fork_lines(requests: int) -> None:
    """Start a program for every line, as long as the parent lives."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    parent = os.getppid()
    while os.getppid() == parent:
        if select.select([requests], [], [], 0.5)[0]:
            for line in os.read(requests, 2**16).splitlines():  # each is written at once
                words, options, home = json.loads(line)
                if os.fork() == 0:
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    os.environ["FLWR_HOME"] = home
                    if "start_new_session" in options:
                        os.setsid()
                    if "stdout" in options:
                        redirect(os.open(os.devnull, os.O_WRONLY))
                    run(words)


def starting(requests: int) -> Callable[..., None]:
    """What stands in for `subprocess.Popen`."""

    def start(words: list[str], **options: Any) -> None:
        request = [words, list(options), os.environ["FLWR_HOME"]]
        os.write(requests, (json.dumps(request) + "\n").encode())

    return start


def run_node() -> Any:
    """`fedasym node` that shows itself at the interval of its first word, in seconds."""
    fleet_http_connection.HEARTBEAT_DEFAULT_INTERVAL = int(sys.argv[1])
    start_client_internal.time = types.SimpleNamespace(
        sleep=lambda seconds: time.sleep(min(seconds, 0.5))
    )
    sys.argv = ["fedasym", "node", *sys.argv[2:]]
    return cli.main()


PROGRAMS: dict[str, Callable[[], Any]] = {
    "flower-superlink": beside_forks(flower_superlink),
    "flower-supernode": beside_forks(flower_supernode),
    "node": beside_forks(run_node),
    "flower-superexec": flower_superexec,
    "flwr-serverapp": flwr_serverapp,
    "flwr-clientapp": flwr_clientapp,
    "flwr": app,
    "python": lambda: exec(sys.argv[2], {"__name__": "__main__"}),
}

if __name__ == "__main__":
    serve()
