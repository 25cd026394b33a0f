"""A privacy budget in advice on classes: what it says, and what private training then does.

    python benchmarks/private_classes.py [--clients 60] [--budgets 0.5 2 8 32]      # drawn clients
    python benchmarks/private_classes.py FEATURES.npz [--clients 100]      # as rounds_cifar.py takes

For every budget the advice names rounds, local steps, a clip and a noise multiplier for least-squares
heads on one-hot labels, and what accuracy personal heads (rtfa) will have. They are trained with
just these, and tested with a ridge about the shared head on every client's samples, its size chosen by
validation. "pays": from how many clients on sharing pays by the advice, that is, leaves at least 5 %
fewer wrong labels than each client alone; "measured": whether it did.
"""

from __future__ import annotations

import argparse

import numpy as np
from rounds_cifar import Heads, read_features

import fedasym as fa

SEEDS = 3
LEAST_GAIN = 0.05
WORLD = {"classes": 4, "radius": 2.5, "centre": 3, "aspect": 1.5, "dimension": 72, "seed": 1}


def read_clients(path: str | None, clients: int) -> dict[str, np.ndarray]:
    """Features, labels, clients and splits, drawn or from a file."""
    if path is not None:
        return read_features(path, clients)
    drawn = fa.datasets.synthetic(task="classification", clients=clients, **WORLD)
    held = {"x": drawn.features, "y": drawn.labels, "client": drawn.owner, "split": drawn.split}
    return {name: np.asarray(values) for name, values in held.items()}


def main() -> None:
    """Print a row for every budget."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("features", nargs="?")
    parser.add_argument("--clients", type=int, default=60)
    parser.add_argument("--budgets", type=float, nargs="+", default=(0.5, 2, 8, 32))
    told = parser.parse_args()
    data = read_clients(told.features, told.clients)
    data["y"] = data["y"].astype(int)
    classes, m = int(data["y"].max()) + 1, len(np.unique(data["client"]))
    common = {"clients": data["client"], "split": data["split"], "intercept": False}
    labels = fa.Federation.from_arrays(data["x"], data["y"], classes=classes, **common)
    squares = fa.Federation.from_arrays(
        data["x"], np.eye(classes)[data["y"]] - 1 / classes, **common
    )
    heads, zero = Heads(data), np.zeros((data["x"].shape[1], classes))
    alone = heads.accuracy(zero)[1]
    print(f"{labels}\nalone, measured {alone:.1%}")
    print(
        f"{'epsilon':>8}{'predicted':>11}{'trained':>9}{'shared':>8}{'alone':>8}{'plain':>8}",
        end="",
    )
    print(f"{'pays':>9}  advised, measured")
    for epsilon in told.budgets:
        about = fa.advise(labels, privacy=fa.Privacy(epsilon=epsilon)).privacy
        noise = fa.Privacy(noise_multiplier=about.noise_multiplier, clip=about.clip)
        settings = {"rounds": about.rounds, "local_steps": about.local_steps, "cohort": m}
        settings |= {"server_step": about.server_step, "batch": 10**6, "evaluate_every": 0}
        shared, own = np.mean(
            [
                heads.accuracy(
                    fa.train("fedavg", squares, privacy=noise, seed=seed, **settings).shared
                )
                for seed in range(SEEDS)
            ],
            axis=0,
        )
        measured = 1 - own <= (1 - LEAST_GAIN) * (1 - alone)
        print(
            f"{epsilon:>8g}{1 - about.loss:>11.1%}{own:>9.1%}{shared:>8.1%}{1 - about.alone:>8.1%}"
            f"{1 - about.plain:>8.1%}{about.pays:>9,.0f}  {'share' if about.shares else 'alone'},"
            f" {'share' if measured else 'alone'}",
            flush=True,
        )


if __name__ == "__main__":
    main()
