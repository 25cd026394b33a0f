"""A federation in shards on a Ray cluster of three nodes on this machine: the numbers of one process,
also where two of the nodes are killed on the way, and what a round and a shard cost there.

    python benchmarks/shards_on_ray.py                  # 100,000 clients, 1.3 GB: minutes
    python benchmarks/shards_on_ray.py 1000000 --into FOLDER  # 12.9 GB there, gone afterwards
    python benchmarks/shards_on_ray.py --advise         # advice alone, here and there

Clients and training are those of clients_on_disk.py. Every node has one CPU and listens on loopback
alone; all see the folder under the same path. Where other processes are at work, believe processor
times rather than the clock; an empty round is the fastest tenth. Peaks are VmHWM of each actor.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
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


class Timed:
    """A cluster of three nodes, and runs on it."""

    def __init__(self, data: Path, home: Path) -> None:
        os.environ.update(QUIET)
        from ray.cluster_utils import Cluster

        common = {"object_store_memory": 100 * 2**20, "include_dashboard": False}
        self.cluster = Cluster(initialize_head=True, head_node_args=common | {"num_cpus": 0})
        self.nodes = [self.cluster.add_node(num_cpus=1, **common) for _ in range(NODES)]
        self.on, self.home = Ray(address=self.cluster.address), home
        self.opened = fa.Federation.open(data)
        self.shards = len(self.opened.shards)

    def run(self, name: str, events: dict[str, Any]) -> tuple[float, Clock]:
        """A run into a folder, and how long it took."""
        clock, begun = Clock(events), time.monotonic()
        fa.run(tried(), self.opened, into=self.home / name, on=self.on, progress=clock)
        return time.monotonic() - begun, clock

    def undisturbed(self) -> dict[str, Any]:
        """What a round, a test and a look at all shards take."""
        took, gather = list[float](), RayCrew.gather

        def timed(crew: RayCrew, *told: Any) -> Any:
            begun = time.monotonic()
            answers = gather(crew, *told)
            took.append(time.monotonic() - begun)
            return answers

        marks = list[tuple[float, float]]()  # processor time of the driver, and of the actors

        def mark() -> None:
            marks.append((time.process_time(), sum(spent())))

        last = f"tested {self.shards} of"
        RayCrew.gather = timed  # type: ignore[method-assign]
        wall, clock = self.run("there", dict.fromkeys((", round 25 ", ", round 400 ", last), mark))
        (driver, actors), (driven, trained), (_, tested) = marks
        RayCrew.gather = gather  # type: ignore[method-assign]
        found = {
            "wall": wall,
            "round": median(took[50:]),
            "rounds": clock.between(", round 25 ", ", round 400 "),
            "tests": clock.between(", round 400 ", f"of {self.shards} shards"),
            "driver": (driven - driver) / ROUNDS,
            "trained": (trained - actors) / ROUNDS,
            "tested": (tested - trained) / len(self.opened),
        }
        with open_shards(self.on, self.opened) as keepers:
            empty = list[float]()
            for _ in range(CALLS):
                begun = time.monotonic()
                keepers.crew.gather("greet", lambda runs: dict.fromkeys(range(len(runs)), ()), "")
                empty.append(time.monotonic() - begun)
            begun = time.monotonic()
            keepers.map_blocks(len, (), None)
            read = time.monotonic() - begun
        return found | {"empty": float(np.quantile(empty, 0.1)), "read": read}

    def disturbed(self) -> dict[str, Any]:
        """One node is killed after half of the rounds, another after half of the tests."""

        def lose(node: Any) -> Any:
            return lambda: self.cluster.remove_node(node, allow_graceful=False)

        seen = [0]
        events = {
            "round 200 ": lose(self.nodes[0]),
            f"tested {self.shards // 2} ": lose(self.nodes[1]),
            f"tested {self.shards - 1} ": lambda: seen.extend(peaks()),
        }
        wall, clock = self.run("killed", events)
        driver = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {"killed": wall, "lost": clock.lost, "peak": max(seen), "driver_peak": driver}


def there(data: Path, home: Path) -> dict[str, Any]:
    """On three nodes: undisturbed, and with two of them killed."""
    timed = Timed(data, home)
    found = {"shards": timed.shards} | timed.undisturbed() | timed.disturbed()
    timed.cluster.shutdown()
    return found


def killed(data: Path, home: Path) -> dict[str, Any]:
    """On three nodes of which two are killed."""
    timed = Timed(data, home)
    found = {"shards": timed.shards} | timed.disturbed()
    timed.cluster.shutdown()
    return found


def advised(data: Path, home: Path) -> dict[str, Any]:
    """Advice, in one process and on three nodes."""
    opened = fa.Federation.open(data)
    begun, before = time.monotonic(), time.process_time()
    mine = fa.advise(opened)
    found = {"wall": time.monotonic() - begun, "spent": time.process_time() - before}
    timed, after = Timed(data, home), list[float]()  # processor time of the actors, by pass

    def heard(share: float, text: str) -> None:
        if text.startswith(f"looked at {timed.shards} of"):
            after.append(sum(spent()))

    begun, before = time.monotonic(), time.process_time()
    theirs = fa.advise(opened, on=timed.on, progress=heard)
    found |= {"there": time.monotonic() - begun, "driver": time.process_time() - before}
    timed.cluster.shutdown()
    far = [
        abs(each.trusted - theirs.predictions[name].trusted)
        for name, each in mine.predictions.items()
    ]
    told = {"actors": max(after), "passes": len(after), "far": max(far)}
    return found | told | {"recommended": [mine.recommended, theirs.recommended]}


def report_advice(found: dict[str, Any]) -> None:
    """Print what advice took, and whether it is the same."""
    print(f"recommended: {found['recommended'][0]} here, {found['recommended'][1]} there;")
    print(f"  expected accuracies within {found['far']:.1e}")
    print(f"one process: {found['wall']:.0f} s, {found['spent']:.0f} s of processor time")
    print(f"three nodes: {found['there']:.0f} s; {found['passes']} passes over the shards,")
    print(f"  {found['actors']:.0f} s of the actors, {found['driver']:.0f} s of the driver")


def actors() -> list[Path]:
    """What the system tells of each actor of the cluster of this process."""

    def parent(process: Path) -> Path:
        told = (process / "stat").read_text().rpartition(")")[2].split()
        return process.with_name(told[1])

    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended
            keeper = (each / "cmdline").read_text().startswith("ray::ShardKeeper")
            if keeper and parent(parent(each)).name == str(os.getpid()):
                found.append(each)
    return found


def peaks() -> list[int]:
    """Bytes that the actors have had at most."""
    lines = [line for each in actors() for line in (each / "status").read_text().splitlines()]
    return [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")]


def spent() -> list[float]:
    """Seconds of processor time that the actors have had."""
    told = [(each / "stat").read_text().rpartition(")")[2].split() for each in actors()]
    return [(int(each[11]) + int(each[12])) / os.sysconf("SC_CLK_TCK") for each in told]


def step(name: str, data: Path, home: Path) -> dict[str, Any]:
    """One of the two in a process of its own."""
    words = [sys.executable, __file__, "--step", name, "--into", str(home), "--data", str(data)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def report_deaths(found: dict[str, Any], home: Path) -> None:
    """Print what two dead nodes cost."""
    last = fa.Results.read(home / "killed").trials.row(-1, named=True)
    print(
        f"two nodes killed: {last['accuracy']:.2%} personal, {last['shared_accuracy']:.2%} shared;"
    )
    print(f"  {found['killed']:.0f} s, {found['shards']} shards; peak of an actor", end=" ")
    print(f"{found['peak'] / 1e9:.2f} GB, of the driver {found['driver_peak'] / 1e9:.2f} GB;")
    print(*(f"  {each}" for each in found["lost"]), sep="\n")


def on_paper(many: dict[str, Any]) -> None:
    """What more machines would take, from processor time that was measured here."""
    call = many["empty"] / NODES  # of a round, for each actor
    driver, trained, tested = (1000 * many[name] for name in ("driver", "trained", "tested"))
    print(
        f"\nprocessor time of a round: {driver:.1f} ms of the driver, {trained:.1f} ms of the actors;"
    )
    print(f"  of a test {tested:.2f} ms a client; Ray adds {1000 * call:.2f} ms for each actor\n")
    print("| machines of one core | 400 rounds | 1,000,000 tested | 10,000,000 tested |")
    print("| --- | --- | --- | --- |")
    for machines in MACHINES:
        busy = min(machines, COHORT)
        rounds = 400 * (many["driver"] + call * busy + many["trained"] / busy)
        million = 1e6 * many["tested"] / machines
        print(f"| {machines} | {rounds:.0f} s | {million:.0f} s | {10 * million:.0f} s |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clients", nargs="?", type=int, default=100_000)
    parser.add_argument("--into", help="a folder for the data, which go afterwards")
    parser.add_argument("--data", help="clients that are there already, as write_shards has them")
    parser.add_argument("--killed", action="store_true", help="only where nodes are killed")
    parser.add_argument("--advise", action="store_true", help="only advice")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.step:
        steps = {"here": here, "there": there, "killed": killed, "advised": advised}
        print(json.dumps(steps[told.step](Path(told.data), Path(told.into))))
        return
    home = Path(tempfile.mkdtemp(dir=told.into))
    try:
        data = Path(told.data) if told.data else home / "clients"
        if not data.is_dir():
            fa.datasets.write_shards(draw_blocks(told.clients), data)
        print(f"{os.cpu_count()} cores, {os.getloadavg()[0]:.1f} other processes at work")
        if told.advise:
            report_advice(step("advised", data, home))
            return
        if told.killed:
            report_deaths(step("killed", data, home), home)
            return
        one, many = step("here", data, home), step("there", data, home)
        whole, kept, other = (client_numbers(home / name) for name in ("here", "there", "killed"))
        same = (whole["accuracy"] == other["accuracy"]).mean()
        far = np.abs(whole["loss"] - other["loss"]).max()
        print(f"accuracies as in one process: of {same:.4%} of clients; losses within {far:.1e}")
        print(f"with and without nodes killed the same to the last bit: {kept.equals(other)}")
        print(f"one process: {one['wall']:.0f} s, a round {1000 * one['rounds'] / ROUNDS:.1f} ms,")
        print(f"  everyone tested in {one['tests']:.0f} s")
        print(
            f"three nodes: {many['wall']:.0f} s, a round {1000 * many['rounds'] / ROUNDS:.1f} ms,"
        )
        print(f"  of the actors {1000 * many['round']:.1f} ms, an empty one", end=" ")
        print(f"{1000 * many['empty']:.1f} ms; everyone tested in {many['tests']:.0f} s;")
        print(f"  looking at all {many['shards']} shards takes {many['read']:.0f} s")
        report_deaths(many, home)
        on_paper(many)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
