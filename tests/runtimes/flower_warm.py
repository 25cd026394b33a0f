#!/usr/bin/env python
"""Flower's programs, with their imports behind them: the executor on PATH, and SuperNodes.

    flower-superexec ...                        (a link to this file)
    python flower_warm.py INTERVAL node POLICY ...    (as `fedasym node`)

Each message still has a process of its own, as always. But it is forked by a child that has
imported everything and does nothing else, instead of importing everything again. A SuperNode looks
for messages twice a second, not every three seconds.
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
from pathlib import Path
from typing import Any, NoReturn

import httpcore  # noqa: F401
import polars  # noqa: F401
import safetensors.numpy  # noqa: F401
from flwr.supercore.cli import flower_superexec
from flwr.supercore.superexec.executor import subprocess_executor
from flwr.superlink.cli import flwr_serverapp
from flwr.supernode import fleet_http_connection, start_client_internal
from flwr.supernode.cli import flower_supernode, flwr_clientapp  # noqa: F401

from fedasym import cli
from fedasym.data import formats  # noqa: F401
from fedasym.deploy.flower import advice, nodes, strategy  # noqa: F401

EXECUTOR = "flower-superexec"
PROGRAMS = {
    EXECUTOR: flower_superexec,
    "flwr-clientapp": flwr_clientapp,
    "flwr-serverapp": flwr_serverapp,
}


def forking(requests: int) -> None:
    """Start a program for every line, as long as the parent lives."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()
    parent = os.getppid()
    while os.getppid() == parent:
        if select.select([requests], [], [], 0.5)[0]:
            for line in os.read(requests, 2**16).splitlines():  # each is written at once
                words, quiet, home = json.loads(line)
                if os.fork() == 0:
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    os.environ["FLWR_HOME"] = home
                    if quiet:
                        nowhere = os.open(os.devnull, os.O_WRONLY)
                        os.dup2(nowhere, 1)
                        os.dup2(nowhere, 2)
                    sys.argv = words
                    run(PROGRAMS[words[0]])


def run(program: Callable[[], Any]) -> NoReturn:
    """A program that ends without taking down what it never built."""
    try:
        program()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def starting(requests: int) -> Callable[..., None]:
    """What stands in for `subprocess.Popen`."""

    def start(words: list[str], **streams: Any) -> None:
        request = [words, "stdout" in streams, os.environ["FLWR_HOME"]]
        os.write(requests, (json.dumps(request) + "\n").encode())

    return start


def main() -> None:
    theirs, ours = os.pipe()
    popen = types.SimpleNamespace(Popen=starting(ours), DEVNULL=None)
    subprocess_executor.subprocess = start_client_internal.subprocess = popen
    if os.fork() == 0:
        return forking(theirs)
    if Path(sys.argv[0]).name != EXECUTOR:
        fleet_http_connection.HEARTBEAT_DEFAULT_INTERVAL = int(sys.argv[1])
        start_client_internal.time = types.SimpleNamespace(
            sleep=lambda seconds: time.sleep(min(seconds, 0.5))
        )
        sys.argv = ["fedasym", *sys.argv[2:]]
        return cli.main()
    return flower_superexec()


if __name__ == "__main__":
    main()
