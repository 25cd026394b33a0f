"""Mixed work in a loop in one process: does memory stay flat?

    nice -n 19 python benchmarks/soak.py --minutes 60

Every minute it prints how often the loop ran and the memory of the process. At the end a line is
fitted to the second half, when caches have filled; memory is flat where it would grow by less than
64 MB in an hour, or where the fit cannot tell the slope from none.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import fedasym as fa

PER_HOUR = 64.0  # MB
SURE = 3.0  # standard errors of the slope that count as growth


def memory() -> float:
    """MB of this process."""
    line = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmRSS")
    )
    return int(line.split()[1]) / 1024


def work(turn: int, folder: Path) -> None:
    """A bit of everything, with other numbers each time and the same shapes."""
    rng = np.random.default_rng(turn)
    world = fa.Population(
        radius=rng.uniform(0.5, 2), noise=rng.uniform(0.1, 1), aspect=rng.uniform(1.2, 4), norm=3
    )
    str(fa.predict(world))
    fa.predict(world, clients=10).to_json()
    fa.compare("ftfa", "fedavg", world, vary={"noise": (0, 2, 40), "aspect": (1.1, 10, 40)}).plot(
        folder / "phase.png"
    )
    fa.simulate(world, dimension=40, clients=5, trials=2, seed=turn, save=folder / f"{turn}.json")
    clients = fa.datasets.synthetic(
        task="classification", classes=3, dimension=12, aspect=1, clients=12, seed=turn
    )
    again = fa.datasets.read(clients.save(folder / "clients.safetensors"))
    str(fa.train(["fedavg", "ftfa"], again, rounds=10, evaluate_every=5, seeds=[turn]))
    values = fa.datasets.synthetic(
        radius=1, noise=0.5, aspect=2, clients=20, dimension=30, seed=turn
    )
    fa.advise(values).write(folder / "advice.html")
    for file in folder.glob("*.json"):
        file.unlink()


def verdict(hours: list[float], sizes: list[float]) -> tuple[bool, str]:
    """Whether memory is flat, and the slope in words."""
    x, y = np.array(hours[len(hours) // 2 :]), np.array(sizes[len(sizes) // 2 :])
    if x.size < 3:
        return True, "too short to tell"
    fit, residual, *_ = np.polyfit(x, y, 1, full=True)
    error = np.sqrt(
        (float(residual[0]) if residual.size else 0.0)
        / (x.size - 2)
        / np.square(x - x.mean()).sum()
    )
    flat = fit[0] < PER_HOUR or fit[0] < SURE * error
    return bool(flat), f"{fit[0]:+.1f} MB an hour (standard error {error:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    options = parser.parse_args()
    warnings.simplefilter("ignore", fa.ThresholdWarning)
    begun = told = time.monotonic()
    hours: list[float] = []
    sizes: list[float] = []
    with TemporaryDirectory() as folder:
        for turn in count():
            work(turn, Path(folder))
            now = time.monotonic()
            hours.append((now - begun) / 3600)
            sizes.append(memory())
            if now - told > 60 or now - begun > 60 * options.minutes:
                told = now
                print(
                    f"{(now - begun) / 60:6.1f} min  {turn + 1:6} turns  {sizes[-1]:7.0f} MB",
                    flush=True,
                )
            if now - begun > 60 * options.minutes:
                break
    flat, slope = verdict(hours, sizes)
    print(
        f"{len(sizes)} turns; MB: {sizes[0]:.0f} after the first, {max(sizes):.0f} at most,"
        f" {sizes[-1]:.0f} at the end"
    )
    print(f"Second half: {slope}.")
    print("Memory is flat." if flat else "Memory grows.")
    sys.exit(not flat)


if __name__ == "__main__":
    main()
