"""Seconds of whole runs and of the paper's whole tuning grid, on whatever device JAX finds.

600 clients with 80 training, 10 validation and 10 test samples of 512 features in 100 classes (the shape of the paper's
CIFAR-100), 400 rounds of 20 clients, 20 steps of batch 32:

1. one FedAvg run, one with the paper's 9 evaluations on all clients, 128 configurations side by side;
2. the grids of the paper for all seven algorithms (243 configurations), every client personalised and tested 9 times.

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

import fedasym as fa
from fedasym.algorithms import GRIDS


def draw(clients: int, samples: int = 100, features: int = 512, classes: int = 100, seed: int = 0) -> fa.Federation:
    """Classes around means that differ from client to client, few classes a client: personalization pays."""
    rng = np.random.default_rng(seed)
    means = rng.standard_normal((classes, features), dtype=np.float32)
    x = 4 * rng.standard_normal((clients, samples, features), dtype=np.float32)
    y = np.empty((clients, samples), np.int64)
    for i in range(clients):
        y[i] = rng.choice(classes, samples, p=rng.dirichlet(np.full(classes, 0.2)))
        x[i] += (means + 2 * rng.standard_normal(means.shape, dtype=np.float32))[y[i]]
    x *= 12 / np.sqrt(features * 21)
    return fa.Federation.from_arrays(
        x.reshape(-1, features), y.ravel(), np.repeat(np.arange(clients), samples), classes=classes
    )


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
    federation = draw(told.clients)
    print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}\n{federation}\n")
    print(f"{'seconds':<62}{'first':>10}{'again':>10}")
    once, often = {"rounds": told.rounds, "evaluate_every": told.rounds}, {"rounds": told.rounds, "evaluate_every": 50}
    timed("FedAvg, one run, tested before and after", lambda: fa.train("fedavg", federation, **once), 5)
    timed("FedAvg, one run, tested every 50 rounds", lambda: fa.train("fedavg", federation, **often), 5)
    steps = np.geomspace(1e-4, 1, 128)
    timed("FedAvg, 128 configurations", lambda: fa.train("fedavg", federation, grid={"server_step": steps}, **once))
    for name in GRIDS:
        count = int(np.prod([len(values) for values in GRIDS[name].values()]))
        timed(f"{name}, {count} configurations", lambda name=name: fa.train(name, federation, grid=GRIDS[name], **often))
    runs = timed(
        "the paper's grid, 243 configurations in one call", lambda: fa.train(list(GRIDS), federation, grid=GRIDS, **often)
    )
    print(f"\n{runs.best()}")


if __name__ == "__main__":
    main()
