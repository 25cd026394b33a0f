"""A federation in shards on a Ray cluster of three nodes on this machine: the numbers of one process,
also where two of the nodes are killed on the way, and what a round and a shard cost there.

    python benchmarks/shards_on_ray.py                  # 100,000 clients, 1.3 GB: minutes
    python benchmarks/shards_on_ray.py 1000000 --into FOLDER  # 12.9 GB there, gone afterwards

Clients and training are those of clients_on_disk.py. Every node has one CPU and listens on loopback
alone; all see the folder under the same path. Times of a round are medians, since other processes
may be at work; peaks are what the system says of each actor (VmHWM).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from clients_on_disk import SETTINGS, draw_blocks

import fedasym as fa
from fedasym.core.runtime import Notice
from fedasym.deploy import Ray
from fedasym.deploy.ray import RayCrew
from fedasym.deploy.shards import open_shards

NODES = 3
QUIET = {  # on loopback, for minutes; a dead node is noticed in seconds
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "5000",
}
ROUNDS = 400 - 25  # those that are timed: the first ones compile
COHORT = 20
CALLS = 200  # of all actors, to see what Ray adds to a round
MACHINES = (3, 10, 100)


def tried() -> fa.Experiment:
    """FTFA with the paper's settings, everyone tested once."""
    return fa.Experiment(
        name="shards", algorithms=["ftfa"], grid={}, settings=SETTINGS, trials={"seeds": [1]}
    )


class Clock:
    """Hears how far a run is; removes nodes when it is there."""

    def __init__(self, events: dict[str, Any]) -> None:
        self.events, self.heard, self.lost = events, list[tuple[float, str]](), list[str]()

    def __call__(self, share: float, text: str) -> None:
        self.heard.append((time.monotonic(), str(text)))
        if isinstance(text, Notice):
            self.lost.append(str(text))
        for words in [each for each in self.events if each in text]:
            self.events.pop(words)()

    def between(self, first: str, last: str) -> float:
        """Seconds from the first word of one kind to the last of another."""
        begun = next(when for when, text in self.heard if first in text)
        return [when for when, text in self.heard if last in text][-1] - begun


def client_numbers(folder: Path) -> Any:
    """What is known of every client in the end."""
    return fa.Results.read(folder).clients


def here(data: Path, home: Path) -> dict[str, Any]:
    """In one process."""
    clock, begun = Clock({}), time.monotonic()
    fa.run(tried(), fa.Federation.open(data), into=home / "here", progress=clock)
    return {
        "wall": time.monotonic() - begun,
        "rounds": clock.between(", round 25 ", ", round 400 "),
        "tests": clock.between(", round 400 ", "testing after"),
    }


def there(data: Path, home: Path) -> dict[str, Any]:
    """On three nodes: undisturbed, and with two of them killed."""
    os.environ.update(QUIET)
    from ray.cluster_utils import Cluster

    common = {"object_store_memory": 100 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=common | {"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=1, **common) for _ in range(NODES)]
    on, opened = Ray(address=cluster.address), fa.Federation.open(data)
    found: dict[str, Any] = {"shards": len(opened.shards)}
    took = list[float]()
    gather = RayCrew.gather

    def timed(self: RayCrew, *told: Any) -> Any:
        begun = time.monotonic()
        answers = gather(self, *told)
        took.append(time.monotonic() - begun)
        return answers

    RayCrew.gather = timed  # type: ignore[method-assign]
    clock, begun = Clock({}), time.monotonic()
    fa.run(tried(), opened, into=home / "there", on=on, progress=clock)
    tested = f"of {found['shards']} shards"
    found |= {
        "wall": time.monotonic() - begun,
        "round": median(took[50:]),
        "rounds": clock.between(", round 25 ", ", round 400 "),
        "tests": clock.between(", round 400 ", tested),
    }
    with open_shards(on, opened) as keepers:
        crew = keepers.crew
        empty = list[float]()
        for _ in range(CALLS):
            begun = time.monotonic()
            gather(crew, "greet", lambda runs: dict.fromkeys(range(len(runs)), ()))
            empty.append(time.monotonic() - begun)
        found["empty"] = median(empty)
        begun = time.monotonic()
        keepers.map_blocks(len, ())
        found["read"] = time.monotonic() - begun
        found["peak"] = max(peaks())

    def lose(node: Any) -> Any:
        return lambda: cluster.remove_node(node, allow_graceful=False)

    events = {"round 200 ": lose(nodes[0]), f"tested {found['shards'] // 2} ": lose(nodes[1])}
    clock, begun = Clock(events), time.monotonic()
    fa.run(tried(), opened, into=home / "killed", on=on, progress=clock)
    found |= {"killed": time.monotonic() - begun, "lost": clock.lost}
    cluster.shutdown()
    return found


def peaks() -> list[int]:
    """Bytes that the actors have had at most."""
    found = [0]
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if (each / "cmdline").read_text().startswith("ray::ShardKeeper"):
                lines = (each / "status").read_text().splitlines()
                found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")]
        except OSError:  # it ended
            continue
    return found


def step(name: str, data: Path, home: Path) -> dict[str, Any]:
    """One of the two in a process of its own."""
    words = [sys.executable, __file__, "--step", name, "--into", str(home), "--data", str(data)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def on_paper(clients: int, many: dict[str, Any]) -> None:
    """What more machines of one core would take, from what was measured on three nodes that share
    the cores of this one.
    """
    cores = min(os.cpu_count() or 1, NODES)
    driver = many["rounds"] / ROUNDS - many["round"]  # seconds of a round: planning, joining
    call = many["empty"] / NODES  # of a round, for each actor
    trained = (many["round"] - many["empty"]) * cores  # of a round, on one core
    tested = many["tests"] * cores / clients  # of a client, on one core
    print(
        f"\nA round: {1000 * driver:.1f} ms of the driver, {1000 * call:.2f} ms of Ray for each actor,"
    )
    print(
        f"{1000 * trained:.1f} ms of a core for its clients. A test: {1000 * tested:.2f} ms a client.\n"
    )
    print("| machines of one core | 400 rounds | everyone of 1,000,000 | everyone of 100,000,000 |")
    print("| --- | --- | --- | --- |")
    for machines in MACHINES:
        busy = min(machines, COHORT)
        rounds = 400 * (driver + call * busy + trained / busy)
        million = 1e6 * tested / machines
        print(f"| {machines} | {rounds:.0f} s | {million:.0f} s | {100 * million / 3600:.1f} h |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clients", nargs="?", type=int, default=100_000)
    parser.add_argument("--into", help="a folder for the data, which go afterwards")
    parser.add_argument("--data", help="clients that are there already, as write_shards has them")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.step:
        answer = {"here": here, "there": there}[told.step](Path(told.data), Path(told.into))
        print(json.dumps(answer))
        return
    home = Path(tempfile.mkdtemp(dir=told.into))
    try:
        data = Path(told.data) if told.data else home / "clients"
        if not data.is_dir():
            fa.datasets.write_shards(draw_blocks(told.clients), data)
        clients = len(fa.Federation.open(data))
        print(f"{os.cpu_count()} cores, {os.getloadavg()[0]:.1f} other processes at work")
        one, many = step("here", data, home), step("there", data, home)
        whole, kept, killed = (client_numbers(home / name) for name in ("here", "there", "killed"))
        for name, other in (("three nodes", kept), ("one left of three", killed)):
            same = (whole["accuracy"] == other["accuracy"]).mean()
            far = np.abs(whole["loss"] - other["loss"]).max()
            print(f"{name}: accuracy {other['accuracy'].mean():.4%}, the same for {same:.4%} of")
            print(f"  clients as in one process, losses within {far:.1e}")
        print(f"the two on Ray the same to the last bit: {kept.equals(killed)}")
        print(f"one process: {one['wall']:.0f} s, a round {1000 * one['rounds'] / 375:.1f} ms")
        print(
            f"three nodes: {many['wall']:.0f} s, a round {1000 * many['rounds'] / ROUNDS:.1f} ms,"
        )
        print(
            f"  of the actors {1000 * many['round']:.1f} ms, an empty one {1000 * many['empty']:.1f} ms; everyone tested in {many['tests']:.0f} s,"
        )
        print(f"  {many['shards']} shards; an actor peaks at {many['peak'] / 1e9:.2f} GB")
        print(f"  reading all shards there takes {many['read']:.0f} s")
        print(f"two nodes killed: {many['killed']:.0f} s; {'; '.join(many['lost'])}")
        on_paper(clients, many)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
