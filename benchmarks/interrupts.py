"""Long commands interrupted at random moments, by Ctrl-C and by kill -9: what do they say, leave,
and do when started again?

    python benchmarks/interrupts.py --times 20              # of each command, half of them by
    Ctrl-C python benchmarks/interrupts.py --times 20 --only train

After Ctrl-C a command must end with 130 (or 0, where it was done), without a traceback or a crash.
After either, no file that it left may be damaged, and the same command, started again, must end
well.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

EXPERIMENT = """
name = "interrupted"
algorithms = ["local", "fedavg", "ftfa"]
grid = { server_step = [0.1, 1], local_step = [0.01, 0.3] }
trials = { seeds = 2, splits = 2 }

[data.synthetic]
task = "classification"
clients = 8
dimension = 6
classes = 3
aspect = 0.3

[settings]
rounds = 4
evaluate_every = 2
local_steps = 3
personal_epochs = 2
"""
NETWORK = """
import torch

def model():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
"""
WORLD = ["--radius", "1", "--noise", "0.5", "--aspect", "2"]
COMMANDS = {
    "simulate": [
        "simulate",
        *WORLD,
        "--dimension",
        "60",
        "--clients",
        "20",
        "--trials",
        "12",
        "--save",
        "trials.json",
    ],
    "train": [
        "train",
        "clients.safetensors",
        "--rounds",
        "40",
        "--evaluate-every",
        "10",
        "--algorithms",
        "fedavg,ftfa",
    ],
    "run": ["run", "experiment.toml", "--into", "run"],
    "sweep": [
        "sweep",
        "clients.safetensors",
        "--algorithms",
        "fedavg,ftfa",
        "--rounds",
        "6",
        "--grid",
        "server-step=0.1,1",
        "--into",
        "sweep",
    ],
    "pretrain": [
        "pretrain",
        "clients.safetensors",
        "--network",
        "my_network:model",
        "--epochs",
        "30",
        "--batch",
        "8",
        "--into",
        "store",
        "--device",
        "cpu",
    ],
    "features": [
        "features",
        "clients.safetensors",
        "--network",
        "my_network:model",
        "--into",
        "store",
        "--device",
        "cpu",
    ],
    "reproduce": ["reproduce", "theory", "--quick", "--into", "theory"],
    "advise": ["advise", "values.safetensors", "--report", "advice.html"],
    "report": ["report", "finished", "--into", "page.html"],
}


def environment(home: Path) -> dict[str, str]:
    """Quickly compiled programs, one thread, a cache of its own."""
    own = {
        "XDG_CACHE_HOME": str(home / "cache"),
        "OMP_NUM_THREADS": "1",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }
    return {**os.environ, **own, "PYTHONFAULTHANDLER": "1"}


def start(home: Path, place: Path, words: list[str]) -> subprocess.Popen[str]:
    """Begin a command, or go on with it."""
    return subprocess.Popen(
        [sys.executable, "-m", "fedasym", *words],
        cwd=place,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def prepared(home: Path) -> Path:
    """What the commands read: clients, an experiment, a network, a finished run."""
    import fedasym as fa

    place = home / "given"
    place.mkdir()
    fa.datasets.synthetic(
        task="classification", clients=8, dimension=6, classes=3, aspect=0.3
    ).save(place / "clients.safetensors")
    fa.datasets.synthetic(radius=1, noise=0.5, aspect=2, clients=20, dimension=30).save(
        place / "values.safetensors"
    )
    (place / "experiment.toml").write_text(EXPERIMENT)
    (place / "my_network.py").write_text(NETWORK)
    with start(home, place, ["run", "experiment.toml", "--into", "finished"]) as process:
        told = process.communicate()[1]
    if process.returncode:
        sys.exit(f"the run that others report on failed: {told}")
    return place


def damaged(place: Path) -> list[str]:
    """Files under their final names that are not whole."""
    from fedasym.data.federation import Federation
    from fedasym.experiments.pieces import Damaged, read_piece

    readers: dict[str, Callable[[Path], object]] = {
        ".json": lambda file: json.loads(file.read_text()),
        ".html": lambda file: (
            file.read_text(encoding="utf-8").rstrip().endswith("</html>") or 1 / 0
        ),
        ".safetensors": lambda file: (
            file.parent.name == "networks" or Federation.from_safetensors(file)
        ),
    }
    wrong = []
    for file in place.rglob("*"):
        hidden = any(part.startswith(".") for part in file.relative_to(place).parts)
        read = read_piece if file.parent.name == "pieces" else readers.get(file.suffix)
        if read is None or hidden or file.suffix in (".part", ".lock"):
            continue
        try:
            read(file)
        except (Damaged, ValueError, OSError, ZeroDivisionError) as reason:
            wrong.append(f"{file.name}: {reason}")
    return wrong


def interrupted(
    name: str, home: Path, given: Path, times: int, chance: random.Random
) -> tuple[Counter[str], list[str]]:
    """Interrupt one command again and again; how each ended, and what went wrong."""
    import shutil

    found, wrong = Counter[str](), []

    def whole(place: Path, why: str) -> float:
        begun = time.monotonic()
        with start(home, place, COMMANDS[name]) as process:
            told = process.communicate()[1]
        if process.returncode:
            wrong.append(f"{name} {why} ended with {process.returncode}: {told[-500:]}")
        return time.monotonic() - begun

    whole(Path(shutil.copytree(given, home / f"{name} warm")), "for the first time")
    seconds = whole(Path(shutil.copytree(given, home / f"{name} timed")), "undisturbed")
    for number in range(times):
        place = Path(shutil.copytree(given, home / f"{name} {number}"))
        how = signal.SIGINT if number % 2 == 0 else signal.SIGKILL
        with start(home, place, COMMANDS[name]) as process:
            try:
                process.wait(timeout=chance.uniform(0.05, 1.0) * seconds)
                found["done before"] += 1
            except subprocess.TimeoutExpired:
                process.send_signal(how)
                found[how.name] += 1
            told = process.communicate()[1]
        expected = (0, 130) if how == signal.SIGINT else (0, -signal.SIGKILL)
        # Before Python has begun there is nobody who could say a word: the system ends the process
        # by the signal itself.
        early = process.returncode == -signal.SIGINT and "Traceback" not in told
        if (process.returncode not in expected and not early) or re.search(
            "Traceback|Fatal Python|Segmentation", told
        ):
            wrong.append(f"{name} after {how.name} ended with {process.returncode}: {told[-800:]}")
        wrong += [f"{name} after {how.name} left {file}" for file in damaged(place)]
        whole(place, f"again after {how.name}")
        wrong += [f"{name} when it was done left {file}" for file in damaged(place)]
        shutil.rmtree(place)
    return found, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=20, help="interruptions of each command")
    parser.add_argument("--only", default="", help="one command")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance, failed = random.Random(options.seed), []
    print(
        "| command | Ctrl-C | kill -9 | done before | wrong |\n| --- | --- | --- | --- | --- |",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as home:
        given = prepared(Path(home))
        for name in COMMANDS:
            if options.only in ("", name):
                found, wrong = interrupted(name, Path(home), given, options.times, chance)
                counts = [found["SIGINT"], found["SIGKILL"], found["done before"], len(wrong)]
                print(f"| {name} | {' | '.join(map(str, counts))} |", flush=True)
                print(
                    "".join(f"    {line}\n" for line in wrong), end="", file=sys.stderr, flush=True
                )
                failed += wrong
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
