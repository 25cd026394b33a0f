"""Flower's programs, each in a process of its own, with their imports behind them.

All are forked here, as `tests/warm.py` says, and so is what they start by themselves: every message
still has a process of its own, as always. A node looks for messages twice a second, not every three
seconds.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import types
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

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
from fedasym.deploy.flower import advice, messages, nodes, strategy  # noqa: F401

sys.path.insert(0, str(Path(__file__).parents[1]))
from warm import redirect, run, run_code, serve

# seconds; every look costs the link's time, and there are many runs at once
control_handlers.LOG_STREAM_INTERVAL = 2.0
messages.PAUSE = 1.0


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
                    run(PROGRAMS, words)


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
    "python": run_code,
}

if __name__ == "__main__":
    serve(PROGRAMS)
