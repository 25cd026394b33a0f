"""Hand an app to a running federation: what `flwr run` does, for an app that nobody needs to keep."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedasym.core.errors import InvalidInput, MissingPackage
from fedasym.deploy.flower.writing import ADVISE, write_app


def advise_nodes(superlink: str | None = None, config: Mapping[str, Any] | None = None) -> None:
    """Ask the advisor in a federation, and stream its log, which ends in the advice, to the terminal.

    superlink: the connection's name in Flower's own configuration; its default without one.
    config: values of the run config other than usual, such as {"min-nodes": 3, "task": "regression"}.
    """
    command = shutil.which("flwr", path=str(Path(sys.executable).parent)) or shutil.which("flwr")
    if command is None:
        raise MissingPackage("a federation needs flwr: pip install 'fedasym[flower]'")
    told = " ".join(f"{name}={json.dumps(value)}" for name, value in (config or {}).items())
    with tempfile.TemporaryDirectory() as folder:
        app = write_app(ADVISE, Path(folder) / "advice")
        words = [command, "run", str(app), *([superlink] if superlink else []), "--stream"]
        done = subprocess.run([*words, *(["--run-config", told] if told else [])], check=False)
    if done.returncode:
        raise InvalidInput("flwr run failed, for the reason that it gives above: docs/how-to/flower.md has every step")
