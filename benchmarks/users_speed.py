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
import venv
from pathlib import Path
from typing import Any

import numpy as np
from clients_on_disk import CLASSES, FEATURES, SAMPLES, draw_blocks

import fedasym as fa

COHORT, TRAINED, BATCH, ETA = 100, 40, 10, 0.1
ROUNDS = (30, 1030)  # of fedasym's two runs
PFL_ROUNDS = 30
PINS = ["pfl==0.6.0", "torch==2.13.0+cpu", "numpy", "setuptools<81"]
WHEELS = "https://download.pytorch.org/whl/cpu"  # PyTorch without CUDA


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


def interpreter() -> str:
    """The Python of an environment with pfl-research in it, made on first use."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fedasym/benchmarks"
    folder = cache / "-".join(PINS[:2]).replace("==", "-")
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        print(f"installing {', '.join(PINS)} in {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        words = [python, "-m", "pip", "install", "--quiet", "--extra-index-url", WHEELS, *PINS]
        subprocess.run(words, check=True)
        (folder / ".ready").touch()
    return str(python)


def time_pfl(python: str, home: Path) -> list[dict[str, Any]]:
    """What it prints with one thread, with two, and as two processes."""
    script = str(Path(__file__).with_name("baselines") / "pfl_loop.py")
    found = []
    for way, launch, threads in (
        ("one thread", [], 1),
        ("two threads", [], 2),
        ("two processes", ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"], 1),
    ):
        words = [python, *launch, script, str(home), str(COHORT), str(PFL_ROUNDS), str(threads)]
        env = os.environ | {"OMP_NUM_THREADS": str(threads)}
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
        if done.returncode:
            print(f"pfl-research, {way}: {done.stderr[-500:]}", file=sys.stderr)
            continue
        line = next(each for each in reversed(done.stdout.splitlines()) if each.startswith("{"))
        found.append(json.loads(line) | {"way": way})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--python", help="of an environment with pfl in it")
    told = parser.parse_args()
    python = told.python or interpreter()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write_clients(told.clients, home)
        print(f"{os.cpu_count()} cores, {os.getloadavg()[0]:.1f} other processes at work\n")
        print(
            f"{told.clients:,} clients, cohorts of {COHORT}, a pass of {TRAINED // BATCH} steps\n"
        )
        rows = time_pfl(python, home)
        opened = fa.Federation.open(home / "clients")
        ours = {
            "in memory": time_fedasym(opened.take(np.arange(len(opened)))),
            "from shards": time_fedasym(opened),
        }
        rows += time_pfl(python, home)
    print("| | users a second | times pfl-research | accuracy of the shared model |")
    print("| --- | --- | --- | --- |")
    best = max(row["users"] for row in rows)
    for row in rows:
        print(f"| {row['tool']}, {row['way']} | {row['users']:.0f} | | {row['accuracy']:.1%} |")
    for where, (users, accuracy) in ours.items():
        name = f"fedasym {fa.__version__}, {where}"
        print(f"| {name} | {users:,.0f} | {users / best:.0f} | {accuracy:.1%} |")


if __name__ == "__main__":
    main()
