"""Speed of `fedasym.train`, as ratios against named alternatives in the same run.

600 clients with 80 training, 10 validation and 10 test samples of 512 features in 100 classes; a
cohort of 20 takes 20 local steps on batches of 32 (the last of a pass has 16). The alternatives run
in environments of their own, one process at a time:

1. `baselines/torch_loop.py`: the usual code, a model and a DataLoader per client, clients one after
    another.
2. `baselines/fedjax_loop.py`: fedjax's federated averaging. Its batches are always full, 640
    samples a visit instead of 544.

Both are tried with one thread and with a thread per core, and for every job the fastest median is
taken. fedasym runs before, between and after them, so that the machine's load hits all, and gets
the median over all of these. Times are after compilation. A round is (60 rounds - 20 rounds) / 40,
an evaluation the difference between many and few of them, so that what is done once per run (client
data to the device, their Gram matrices) is left out, as loading is for the others. Same protocol on
all sides (`protocol="code"`: a bias, a random first head, passes that continue, pFedMe's weight
decay). Accuracies are of the test samples: personal models for FTFA, else the shared model, after
as many rounds on both sides.

    python benchmarks/train_speed.py [--quick] [--torch PYTHON] [--fedjax PYTHON]

Without interpreters to use, environments are made in the user's cache folder. About five minutes on
two free cores; with `--quick` two: fewer rounds, and each alternative once.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

import numpy as np

import fedasym as fa

CLIENTS, SIZES, FEATURES, CLASSES = 600, {"train": 80, "validation": 10, "test": 10}, 512, 100
STEPS = {"fedavg": 0.1, "maml_fo": 0.1, "maml_hf": 0.1, "pfedme": 0.05}
SERVERS = {
    "fedavg": fa.algorithms.Average(),
    "maml_fo": fa.algorithms.Meta(0.1, "dropped"),
    "maml_hf": fa.algorithms.Meta(0.1, "free"),
    "pfedme": fa.algorithms.Moreau(),
}
JOBS = (  # job, alternative, what it is, ratio aimed at
    ("fedavg", "torch", "FedAvg round", 10),
    ("fedavg", "fedjax", "FedAvg round", 3),
    ("maml_fo", "torch", "MAML-FO round", None),
    ("maml_hf", "torch", "MAML-HF round", 10),
    ("pfedme", "torch", "pFedMe round of 20", 15),
    ("ftfa", "torch", "FTFA: personalise and test 600", 10),
    ("test", "torch", "test the shared model on 600", None),
)
# (rounds, evaluate_every) of a longer and a shorter run, and how many rounds or evaluations lie
# between them
RUNS = {
    "round": ((60, 60), (20, 20), 40),
    "ftfa": ((20, 5), (20, 20), 3),
    "test": ((20, 1), (20, 20), 19),
}
NEWER = sys.version_info >= (3, 13)  # for which the jax that runs fedjax fastest does not exist
PINS = {
    "torch": ["torch==2.13.0", "numpy"],
    "fedjax": (
        ["fedjax==0.0.17", "jax==0.10.2", "jaxlib==0.10.2"]
        if NEWER
        else [
            "fedjax==0.0.17",
            "jax==0.4.25",
            "jaxlib==0.4.25",
            "dm-haiku==0.0.12",
            "optax==0.2.2",
            "numpy<2",
            "scipy<1.13",
        ]
    ),
}
XLA_FLAGS = (
    "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "",
)  # one thread, all threads


def draw(
    clients: int = CLIENTS,
    seed: int = 0,
    noise: float = 4.0,
    spread: float = 2.0,
    concentration: float = 0.2,
) -> dict[str, np.ndarray]:
    """Classes around means that differ from client to client; clients with few classes each:
    personalization pays.
    """
    rng = np.random.default_rng(seed)
    samples = sum(SIZES.values())
    means = rng.standard_normal((CLASSES, FEATURES), dtype=np.float32)
    x = noise * rng.standard_normal((clients, samples, FEATURES), dtype=np.float32)
    y = np.empty((clients, samples), np.int64)
    for i in range(clients):
        y[i] = rng.choice(CLASSES, samples, p=rng.dirichlet(np.full(CLASSES, concentration)))
        x[i] += (means + spread * rng.standard_normal(means.shape, dtype=np.float32))[y[i]]
    x *= 12 / np.sqrt(FEATURES * (1 + noise**2 + spread**2))
    ends = np.cumsum(list(SIZES.values()))[:-1]
    parts = {"x": np.split(x, ends, axis=1), "y": np.split(y, ends, axis=1)}
    return {
        f"{letter}_{name}": part
        for letter, split in parts.items()
        for name, part in zip(SIZES, split, strict=True)
    }


def federation_of(data: dict[str, np.ndarray]) -> fa.Federation:
    x, y = (np.concatenate([data[f"{letter}_{name}"] for name in SIZES], axis=1) for letter in "xy")
    owner = np.repeat(np.arange(len(x)), x.shape[1])
    split = np.tile(np.repeat(list(SIZES), list(SIZES.values())), len(x))
    return fa.Federation.from_arrays(
        x.reshape(-1, FEATURES), y.ravel(), owner, split=split, classes=CLASSES
    )


def train(job: str, federation: fa.Federation, rounds: int, every: int) -> tuple[float, fa.History]:
    """Seconds of a run, and what it reached. Only `ftfa` personalises: the others test the shared
    model, which is quick.
    """
    server = "fedavg" if job in ("ftfa", "test") else job
    stage = fa.algorithms.Interpolate() if job == "ftfa" else fa.algorithms.Keep()
    algorithm = fa.Algorithm(job, SERVERS[server], stage)
    start = time.perf_counter()
    history = fa.train(
        algorithm,
        federation,
        rounds=rounds,
        evaluate_every=every,
        server_step=STEPS[server],
        cohort=20,
        protocol="code",
    )
    return time.perf_counter() - start, history


def ours(job: str, federation: fa.Federation) -> tuple[float, float]:
    """Seconds of a longer run, or one with more evaluations, and of a shorter one."""
    long, short, _ = RUNS.get(job, RUNS["round"])
    return train(job, federation, *long)[0], train(job, federation, *short)[0]


def per_unit(job: str, pairs: list[tuple[float, float]]) -> float:
    """Seconds of what the longer runs do more, per round or evaluation."""
    long, short = (statistics.median(side) for side in zip(*pairs, strict=True))
    return (long - short) / RUNS.get(job, RUNS["round"])[2]


def reached(job: str, federation: fa.Federation, rounds: int) -> float:
    history = train(job, federation, rounds, max(rounds, 1))[1]
    return float(history.accuracy[-1] if job == "ftfa" else history.shared_accuracy[-1])


def interpreter(pins: list[str]) -> str:
    """The Python of an environment with these packages, made on first use."""
    cache = (
        Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fedasym" / "benchmarks"
    )
    folder = cache / "-".join(pins[:2]).replace("==", "-")
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        print(f"installing {', '.join(pins)} in {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *pins], check=True)
        (folder / ".ready").touch()
    return str(python)


def alternative(name: str, python: str, data: Path, seconds: float, flags: str) -> dict[str, Any]:
    script = Path(__file__).with_name("baselines") / f"{name}_loop.py"
    command = [python, str(script), str(data), str(seconds)]
    settings = {"OMP_NUM_THREADS": str(os.cpu_count()), "XLA_FLAGS": flags}
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **settings}
    )
    line: str = done.stdout.splitlines()[-1]
    print(f"  {line}", flush=True)
    return {"name": name, "threads": 1 if flags else os.cpu_count()} | json.loads(line)


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of fedasym.train against other tools.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and repetitions")
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter that has torch")
    parser.add_argument("--fedjax", metavar="PYTHON", help="an interpreter that has fedjax")
    options = parser.parse_args()
    pythons = {name: getattr(options, name) or interpreter(pins) for name, pins in PINS.items()}
    budgets = {"torch": 10.0 if options.quick else 60.0, "fedjax": 5.0}

    data = draw()
    federation = federation_of(data)
    jobs = list(dict.fromkeys(job for job, *_ in JOBS))
    for job in jobs:
        ours(job, federation)  # compiles
    mine: dict[str, list[tuple[float, float]]] = {job: [] for job in jobs}

    def measure() -> None:
        for job in jobs:
            mine[job] += [ours(job, federation) for _ in range(2)]

    measure()
    others = []
    print("alternatives", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        np.savez(path, classes=CLASSES, **data)
        for flags in XLA_FLAGS[:1] if options.quick else XLA_FLAGS:
            for name, python in pythons.items():
                others.append(alternative(name, python, path, budgets[name], flags))
                measure()

    print(
        f"\n{'job':32}{'alternative':22}{'its s':>9}{'fedasym s':>11}{'ratio':>8}{'aim':>7}{'its acc.':>10}{'ours':>7}"
    )
    for job, name, title, aim in JOBS:
        best = min(
            (run for run in others if run["name"] == name), key=lambda run: run["seconds"][job]
        )
        seconds, fast = best["seconds"][job], per_unit(job, mine[job])
        label = f"{name}, {best['threads']} thread{'s' * (best['threads'] > 1)}"
        counted = best["rounds"].get(job, best["rounds"]["fedavg"])
        its = best["accuracy"].get(job)
        accuracies = (
            f"{its:10.3f}{reached(job, federation, counted):7.3f}" if its is not None else ""
        )
        line = f"{title:32}{label:22}{seconds:9.4f}{fast:11.4f}{seconds / fast:7.1f}x{f'{aim}x' if aim else '':>7}"
        print(line + accuracies, flush=True)


if __name__ == "__main__":
    main()
