"""A driver of a federation in shards on a cluster, to which things happen: a worker is killed, then
a node, then the driver itself; before, it meets a damaged shard, and asks for advice, while a
worker is killed.

    python -m tests.runtimes.ray_shards ADDRESS EXPERIMENT FOLDER DAMAGED ADVISED

It says `node` when a node is to go, and waits for a line. The advice, and what was said meanwhile,
are in ADVISED.txt.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import fedasym as fa
from fedasym.deploy import Ray
from fedasym.deploy.ray import RayCrew
from fedasym.deploy.shards import open_shards
from fedasym.training.convergence import column_sizes

from .ray_processes import inside, title

KEEPER = "ray::ShardKeeper"


def keepers() -> list[int]:
    return [pid for pid in inside(Path.cwd()) if title(pid).startswith(KEEPER)]


def kill_worker() -> None:
    os.kill(keepers()[0], signal.SIGKILL)


def lose_node() -> None:
    print("node", flush=True)
    sys.stdin.readline()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


EVENTS = {2: kill_worker, 5: lose_node, 10: die}  # by round, before it


def disturb(name: str, events: dict[int, Callable[[], None]]) -> None:
    """Let things happen before calls of a crew's method."""
    method, calls = getattr(RayCrew, name), count()

    def disturbed(self: RayCrew, *told: Any) -> Any:
        events.get(next(calls), lambda: None)()
        return method(self, *told)

    setattr(RayCrew, name, disturbed)


def advise(advised: str, on: Ray) -> None:
    """Advice on shards behind a URL, in which the second pass over them loses a worker."""
    disturb("map", {1: kill_worker})
    heard: list[str] = []
    opened = fa.Federation.open(Path(advised).absolute().as_uri())
    advice = fa.advise(opened, on=on, progress=lambda _, text: heard.append(str(text)))
    Path(f"{advised}.txt").write_text("\n".join([str(advice), *heard]))


def main(address: str, experiment: str, folder: str, damaged: str, advised: str) -> None:
    on, tried = Ray(address=address), fa.Experiment.from_toml(experiment)
    try:
        with open_shards(on, fa.Federation.open(damaged)) as opened:
            column_sizes(opened.federation)
    except fa.InvalidInput as reason:
        print(reason, flush=True)
    advise(advised, on)
    disturb("gather", EVENTS)
    fa.run(tried, into=folder, on=on)


if __name__ == "__main__":
    main(*sys.argv[1:])
