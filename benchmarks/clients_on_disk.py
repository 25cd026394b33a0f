"""Clients beyond memory: 10,000, 100,000 and a million on disk are trained, personalised, tested,
advised on and reported, and the peak memory stays where it is.

    python benchmarks/clients_on_disk.py                       # 10,000 and 100,000: minutes
    python benchmarks/clients_on_disk.py 1000000 --into FOLDER # 12.8 GB there, gone afterwards
    python benchmarks/clients_on_disk.py 100000 --task regression
    python benchmarks/clients_on_disk.py 100000 --steps make advise

Each number of clients has a process of its own for every step, so that the memory is what that step
has had at most (ru_maxrss), the bytes what it asked the system for (rchar), and the processor time
that of all its threads. Clients have 50 samples of 64 features and one of 10 classes, by a softmax
model that lies around a shared one. With labels that are numbers they are fitted exactly (rtfa,
ridges by restricted likelihood, every personal model once) instead of trained.
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
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import fedasym as fa

SAMPLES, FEATURES, CLASSES = 50, 64, 10
TOGETHER = 1000  # clients drawn at a time
APART = 0.5  # how far clients' models are from the shared one, over its length
STEPS = {
    "classification": ("make", "train", "advise", "resemble", "report"),
    "regression": ("make", "fit", "advise"),
}
SETTINGS = {"rounds": 400, "evaluate_every": 0}


def draw_blocks(clients: int, task: str = "classification") -> Iterator[fa.Federation]:
    """Clients as they come; the first ones are the same whatever their number."""
    shared = np.random.default_rng(0).standard_normal((FEATURES, CLASSES)) / FEATURES**0.5
    for first in range(0, clients, TOGETHER):
        some = min(TOGETHER, clients - first)
        rng = np.random.default_rng([1, first])
        own = rng.standard_normal((some, FEATURES, CLASSES)) * APART / FEATURES**0.5
        x = rng.standard_normal((some, SAMPLES, FEATURES), dtype=np.float32)
        scores = 3 * np.matmul(x, (shared + own).astype(np.float32))
        names = np.repeat(np.arange(first, first + some), SAMPLES)
        if task == "regression":
            labels = scores[..., 0] + rng.standard_normal(scores.shape[:2])
            yield fa.Federation.from_arrays(
                x.reshape(-1, FEATURES), labels.ravel(), clients=names, task=task
            )
            continue
        labels = (scores + rng.gumbel(size=scores.shape)).argmax(-1)
        yield fa.Federation.from_arrays(
            x.reshape(-1, FEATURES), labels.ravel(), clients=names, classes=CLASSES
        )


def do_step(step: str, clients: int, home: Path, task: str) -> str:
    """One step on the clients in a folder; what it found, in a few words."""
    data = home / "clients"
    if step == "make":
        fa.datasets.write_shards(draw_blocks(clients, task), data)
        return f"{sum(each.stat().st_size for each in data.iterdir()) / 1e9:.2f} GB"
    if step == "train":
        tried = fa.Experiment(
            name="disk", algorithms=["ftfa"], grid={}, settings=SETTINGS, trials={"seeds": [1]}
        )
        results = fa.run(tried, fa.Federation.open(data), into=home / "run")
        last = results.trials.row(-1, named=True)
        return f"{last['accuracy']:.2%} personal, {last['shared_accuracy']:.2%} shared"
    if step == "fit":
        fit = fa.linear.fit("rtfa", fa.Federation.open(data))
        apart = [np.square(models - fit.shared).sum(1) for _, models in fit.personal.blocks()]
        length = np.sqrt(np.concatenate(apart).mean())
        return f"noise {fit.noise:.3f}, radius {fit.radius:.3f}, {length:.3f} from shared"
    if step == "resemble":
        double = fa.resemble(fa.Federation.open(data))
        return f"feature shift {double.card.feature}, concept {double.card.concept}"
    if step == "advise":
        return fa.advise(fa.Federation.open(data)).recommended
    page = fa.report(home / "run", home / "page.html")
    return f"{page.stat().st_size / 1e3:.0f} kB"


def bytes_read() -> int:
    """What this process has asked the system for."""
    try:
        told = Path("/proc/self/io").read_text()
    except OSError:
        return 0  # a system that does not say
    return int(dict(line.split(": ") for line in told.splitlines())["rchar"])


def measure(step: str, clients: int, home: Path, task: str) -> dict[str, float | str]:
    """A step in a process of its own."""
    words = [sys.executable, __file__, str(clients), "--into", str(home), "--step", step]
    words += ["--task", task]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clients", nargs="*", type=int, default=[10_000, 100_000])
    parser.add_argument("--into", help="a folder for the data, which go afterwards")
    parser.add_argument("--task", choices=list(STEPS), default="classification")
    parser.add_argument("--steps", nargs="+", help="some of them, in this order")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.step:
        begun, before = time.monotonic(), bytes_read()
        found = do_step(told.step, told.clients[0], Path(told.into), told.task)
        used = resource.getrusage(resource.RUSAGE_SELF)
        numbers = {
            "found": found,
            "peak": used.ru_maxrss * 1024,
            "wall": time.monotonic() - begun,
            "processor": used.ru_utime + used.ru_stime,
            "read": bytes_read() - before,
        }
        print(json.dumps(numbers))
        return
    print(f"{os.cpu_count()} cores, {os.getloadavg()[0]:.1f} other processes at work\n")
    print("| clients | step | found | peak memory | wall | processor | read |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for clients in told.clients:
        home = Path(tempfile.mkdtemp(dir=told.into))
        try:
            for step in told.steps or STEPS[told.task]:
                row = measure(step, clients, home, told.task)
                cells = [f"{clients:,}", step, str(row["found"]), f"{row['peak'] / 1e9:.2f} GB"]
                cells += [f"{row['wall']:.0f} s", f"{row['processor']:.0f} s"]
                print(f"| {' | '.join(cells)} | {row['read'] / 1e9:.2f} GB |", flush=True)
        finally:
            shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
