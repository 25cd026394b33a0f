"""Ray's workers, drivers and questions, each in a process of its own, with their imports behind them.

    python ray_warm.py SOCKET

It listens at SOCKET, imports what they need, and forks a process for every call of a small program
(`write_program`) that Ray takes for Python. That program stays until the process has ended, and
ends with its status; where it is killed, so is the process. What is neither a worker nor a module
is run by Python itself.
"""

from __future__ import annotations

import gc
import marshal
import os
import runpy
import shlex
import signal
import socket
import sys
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from fedasym import cli

sys.path.insert(0, str(Path(__file__).parents[1]))
from warm import status_of

sys.path.pop(0)

IMPORTED = (
    "fedasym.cli.experiments",
    "fedasym.deploy.ray",
    "fedasym.training.runner",
    "jax.numpy",
    "fsspec",
    # what Ray imports, as long as it does
    "asyncio",
    "click",
    "filelock",
    "google.protobuf",
    "grpc",
    "jsonschema",
    "msgpack",
    "packaging.version",
    "requests",
    "yaml",
)
PROGRAM = """#!{python} -IS
import _socket, marshal, os, sys
words = sys.argv[1:]
if not any(each == "-m" or each.endswith("_worker.py") for each in words[:2]):
    os.execv({python!r}, [{python!r}, *words])
asked = marshal.dumps((sys.argv, dict(os.environ), os.getcwd()))
server = _socket.socket(_socket.AF_UNIX)
server.connect({place!r})
fds = b"".join(each.to_bytes(4, sys.byteorder) for each in range(3))
server.sendmsg(
    [len(asked).to_bytes(8, "little")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds)]
)
server.sendall(asked)
code = server.recv(1)
os._exit(code[0] if code else 137)
"""


def write_program(path: Path, place: Path) -> Path:
    """What Ray takes for Python, with the server that listens at a place."""
    path.write_text(PROGRAM.format(python=sys.executable, place=str(place)))
    path.chmod(0o700)
    return path


def serve(place: str) -> None:
    """Fork a process for every call, as long as the parent lives."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place)
        server.listen(64)  # whoever calls before all is imported waits
        import_all()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        parent = os.getppid()
        server.settimeout(0.5)
        while os.getppid() == parent:
            with suppress(TimeoutError):
                call, _ = server.accept()
                with call:
                    if os.fork() == 0:
                        server.close()
                        answer(call)


def import_all() -> None:
    """What the processes import, but for Ray itself, which reads its environment when it is."""
    for name in IMPORTED:
        with suppress(ImportError):
            import_module(name)
    assert "ray" not in sys.modules
    cli.LOGGED = 0.3  # seconds: an experiment that takes few of them tells of its progress too
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


def answer(call: socket.socket) -> NoReturn:
    """Become the process that is asked for."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    call.settimeout(None)
    length, fds, _, _ = socket.recv_fds(call, 8, 3)
    (sys.executable, *words), environment, folder = marshal.loads(
        call.recv(int.from_bytes(length, "little"), socket.MSG_WAITALL)
    )
    for at, each in enumerate(fds):
        os.dup2(each, at)
        os.close(each)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    threading.Thread(target=end_with, args=(call,), daemon=True).start()
    code = run(words)
    with suppress(OSError):
        call.sendall(bytes([code & 255]))
    os._exit(code)


def end_with(call: socket.socket) -> None:
    """Die with the program that asked."""
    call.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)


def run(words: list[str]) -> int:
    """Run Python's words here: its status."""
    if words[0] == "-u":
        words = words[1:]
    os.execvp = go_on
    if words[0] == "-m":
        sys.argv = words[1:]
        return status_of(lambda: runpy.run_module(words[1], run_name="__main__", alter_sys=True))
    sys.argv = words
    sys.path.insert(0, os.path.dirname(words[0]))
    return status_of(lambda: runpy.run_path(words[0], run_name="__main__"))


def go_on(file: str, args: list[str]) -> Any:
    """In place of a shell that would begin Python again for a worker whose surroundings are set."""
    sys.exit(run(shlex.split(args[-1])[2:]))


if __name__ == "__main__":
    serve(sys.argv[1])
