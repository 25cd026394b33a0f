"""Users trained a second on two cores: fedasym beside pfl-research, on the same clients.

    python benchmarks/users_speed.py [--clients 100000] [--python ENVIRONMENT/bin/python]

FedAvg on 100,000 clients with 40 training samples of 64 features and one of 10 classes: cohorts of
100, each client one pass in batches of 10. pfl-research runs as its documentation has it
(benchmarks/baselines/pfl_loop.py) in an environment of its own, made in the user's cache folder on
first use: with one thread, with two, and as two processes (torchrun); the best counts. Of fedasym
the time of a shorter run is taken off that of a longer one, so that compiling, copying and the test
of everyone at the end are not counted; both compute in one process after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from clients_on_disk import CLASSES, FEATURES, SAMPLES, draw_blocks
from train_speed import interpreter

import fedasym as fa

COHORT, TRAINED, BATCH, ETA = 100, 40, 10, 0.1
ROUNDS = (10, 510)  # of fedasym's two runs
PFL_ROUNDS = 10
PINS = ["pfl==0.6.0", "torch==2.13.0", "numpy", "setuptools<81"]
LONGEST = 240  # seconds that an alternative may take


def write_clients(clients: int, home: Path) -> None:
    """The same clients as shards and as the arrays that the alternative reads."""
    split = [0] * TRAINED + [2] * (SAMPLES - TRAINED)
    shape = (clients, SAMPLES, FEATURES)
    x = np.lib.format.open_memmap(home / "x.npy", "w+", np.float32, shape)
    y = np.lib.format.open_memmap(home / "y.npy", "w+", np.int64, shape[:2])

    def blocks() -> Any:
        first = 0
        for block in draw_blocks(clients):
            last = first + len(block)
            x[first:last] = block.features.reshape(-1, SAMPLES, FEATURES)
            y[first:last] = block.labels.reshape(-1, SAMPLES)
            owners = np.repeat(np.arange(first, last), SAMPLES)
            yield fa.Federation.from_arrays(
                block.features,
                block.labels,
                clients=owners,
                classes=CLASSES,
                split=split * len(block),
            )
            first = last

    fa.datasets.write_shards(blocks(), home / "clients")
    x.flush()
    y.flush()


def time_fedasym(clients: fa.Federation) -> tuple[float, float]:
    """Users a second, and the accuracy of the shared model."""
    told = {"cohort": COHORT, "local_steps": TRAINED // BATCH, "batch": BATCH, "server_step": ETA}
    seconds, accuracy = [], 0.0
    for rounds in (ROUNDS[0], *ROUNDS):  # the first compiles
        begun = time.perf_counter()
        run = fa.train("fedavg", clients, rounds=rounds, evaluate_every=0, **told)
        seconds.append(time.perf_counter() - begun)
        if rounds == PFL_ROUNDS:
            accuracy = float(run.shared_accuracy[-1])
    return (ROUNDS[1] - ROUNDS[0]) * COHORT / (seconds[2] - seconds[1]), accuracy


def time_pfl(python: str, home: Path) -> float:
    """Users a second, the best of one thread, two threads and two processes."""
    script = str(Path(__file__).with_name("baselines") / "pfl_loop.py")
    found = []
    for way, launch, threads in (
        ("one thread", [], 1),
        ("two threads", [], 2),
        ("two processes", ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"], 1),
    ):
        words = [python, *launch, script, str(home), str(COHORT), str(PFL_ROUNDS), str(threads)]
        env = os.environ | {"OMP_NUM_THREADS": str(threads)}
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, check=True, env=env, timeout=LONGEST
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as reason:
            print(f"pfl-research, {way}: {reason}", file=sys.stderr)
            continue
        line = next(each for each in reversed(done.stdout.splitlines()) if each.startswith("{"))
        row = json.loads(line) | {"way": way}
        print_row(f"{row['tool']}, {way}", row["users"], "", row["accuracy"])
        found.append(row["users"])
    return max(found)


def print_row(name: str, users: float, ratio: str, accuracy: float) -> None:
    print(f"| {name} | {users:,.0f} | {ratio} | {accuracy:.1%} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--data", help="a folder in which the clients are, or are kept")
    parser.add_argument("--python", help="of an environment with pfl in it")
    told = parser.parse_args()
    python = told.python or interpreter(PINS)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(told.data or folder)
        if not (home / "clients").exists():
            home.mkdir(exist_ok=True)
            write_clients(told.clients, home)
        opened = fa.Federation.open(home / "clients")
        print(f"{os.cpu_count()} cores, {os.getloadavg()[0]:.1f} other processes at work\n")
        print(f"{len(opened):,} clients, cohorts of {COHORT}, a pass of {TRAINED // BATCH} steps\n")
        print("| | users a second | times pfl-research | accuracy of the shared model |")
        print("| --- | --- | --- | --- |")
        best = time_pfl(python, home)
        for where, clients in (
            ("from shards", opened),
            ("in memory", opened.take(np.arange(len(opened)))),
        ):
            users, accuracy = time_fedasym(clients)
            print_row(f"fedasym {fa.__version__}, {where}", users, f"{users / best:.0f}", accuracy)


if __name__ == "__main__":
    main()
