"""Seconds of whole runs and of the paper's whole tuning grid, on whatever device JAX finds.

600 clients with 80 training, 10 validation and 10 test samples of 512 features in 100 classes (the
shape of the paper's CIFAR-100), 400 rounds of 20 clients, 20 steps of batch 32:

1. one FedAvg run, one with the paper's 9 evaluations on all clients, 128 configurations side by
    side;
2. the grids of the paper for all seven algorithms (243 configurations), every client personalised
    and tested 9 times.

    python benchmarks/train_grid.py [--rounds 400] [--clients 600]

The first time compiles; the best of the next is what another run of that shape costs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from train_speed import draw, federation_of

import fedasym as fa
from fedasym.algorithms import GRIDS


def timed(what: str, call: Callable[[], Any], repeats: int = 1) -> Any:
    seconds = []
    for _ in range(1 + repeats):
        start = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - start)
    print(f"{what:<62}{seconds[0]:>10.2f}{min(seconds[1:]):>10.3f}", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--clients", type=int, default=600)
    told = parser.parse_args()
    federation = federation_of(draw(told.clients))
    print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}\n{federation}\n")
    print(f"{'seconds':<62}{'first':>10}{'again':>10}")
    once, often = (
        {"rounds": told.rounds, "evaluate_every": told.rounds},
        {"rounds": told.rounds, "evaluate_every": 50},
    )
    timed(
        "FedAvg, one run, tested before and after",
        lambda: fa.train("fedavg", federation, **once),
        5,
    )
    timed(
        "FedAvg, one run, tested every 50 rounds",
        lambda: fa.train("fedavg", federation, **often),
        5,
    )
    steps = np.geomspace(1e-4, 1, 128)
    timed(
        "FedAvg, 128 configurations",
        lambda: fa.train("fedavg", federation, grid={"server_step": steps}, **once),
    )
    runs = timed(
        "the paper's grid, 243 configurations in one call",
        lambda: fa.train(list(GRIDS), federation, grid=GRIDS, **often),
    )
    for name in GRIDS:
        count = int(np.prod([len(values) for values in GRIDS[name].values()]))
        timed(
            f"{name}, {count} configurations",
            lambda name=name: fa.train(name, federation, grid=GRIDS[name], **often),
        )
    print(f"\n{runs.choose()}")


if __name__ == "__main__":
    main()
