"""Local steps and cohorts at fixed bytes on CIFAR-100 features, predicted and trained; and epsilon 8.

    python benchmarks/rounds_cifar.py FEATURES.npz [--clients 600] [--sent 3200] [--private]
        [--steps 1 4 16 64] [--cohorts 5 20 80 320]

FEATURES.npz has `q` and `scale` (or `x`), `y`, `client` and `split` of Pachinko clients. Heads are linear
on centred features, with the squared loss on one-hot labels, which is the theory's, and with softmax. Every
cell of the grid sends as many models (`--sent`). A shared head is tested with a ridge about it on every
client's samples, its size chosen by validation: solved exactly for the squared loss, by 1,000 full-batch steps
from the shared head for softmax. The prediction knows the population that
`fa.advise` estimates from random projections of the labels, and nothing of the grid.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import numpy as np

import fedasym as fa

STEPS = (1, 4, 16, 64)
COHORTS = (5, 20, 80, 320)
RIDGES = np.geomspace(1e-3, 10, 13)
SOFTMAX_RIDGES = [0.001, 0.01, 0.1]
SOFTMAX_EPOCHS = 1000  # of personal training: a hundred are far too few
PROJECTIONS = 3


def read_features(path: str, clients: int) -> dict[str, np.ndarray]:
    """Centred features of unit mean square, labels, clients and splits of the first clients."""
    with np.load(path) as held:
        x = held["q"] * held["scale"] if "q" in held else held["x"].astype(np.float32)
        found = {name: held[name] for name in ("y", "client", "split")}
    names = np.unique(found["client"])[:clients]
    rows = np.isin(found["client"], names)
    x = np.asarray(x[rows], np.float32)
    found = {name: values[rows] for name, values in found.items()}
    trains = found["split"] == 0
    x = x - x[trains].mean(0)
    return found | {"x": x / np.sqrt(np.mean(x[trains] ** 2))}


class Heads:
    """Tests shared heads with exact personal ones."""

    def __init__(self, data: dict[str, np.ndarray]) -> None:
        self.clients = []
        classes = int(data["y"].max()) + 1
        for name in np.unique(data["client"]):
            mine = data["client"] == name
            parts = [mine & (data["split"] == side) for side in range(3)]
            X, V, T = (data["x"][part] for part in parts)
            if not len(X):
                continue
            Y = np.eye(classes)[data["y"][parts[0]]] - 1 / classes
            level, basis = np.linalg.eigh(X @ X.T / len(X))
            self.clients.append(
                (X, Y, np.maximum(level, 0), basis, V, data["y"][parts[1]], T, data["y"][parts[2]])
            )

    def accuracy(self, W: np.ndarray) -> tuple[float, float]:
        """Test accuracy of the shared head, and of personal ones at the ridge that validates best."""
        hits = np.zeros((2, RIDGES.size))
        shared, counts = 0, np.zeros(2)
        for X, Y, level, basis, V, v, T, t in self.clients:
            left = basis.T @ (Y - X @ W)
            for side, (Z, z) in enumerate(((V, v), (T, t))):
                start, reach = Z @ W, Z @ X.T @ basis / len(X)
                counts[side] += len(z)
                shared += int((start.argmax(1) == z).sum()) if side else 0
                for i, ridge in enumerate(RIDGES):
                    own = start + reach @ (left / (level + ridge)[:, None])
                    hits[side, i] += (own.argmax(1) == z).sum()
        return shared / counts[1], float(hits[1, np.argmax(hits[0])] / counts[1])


def largest_eigenvalue(data: dict[str, np.ndarray]) -> float:
    """Of any client's sample covariance."""
    found = 0.0
    for name in np.unique(data["client"]):
        X = data["x"][(data["client"] == name) & (data["split"] == 0)]
        found = max(found, float(np.linalg.norm(X, 2) ** 2 / max(len(X), 1)))
    return found


def estimate_worlds(data: dict[str, np.ndarray]) -> list[fa.Population]:
    """What `fa.advise` finds behind random projections of one-hot labels."""
    trains = data["split"] == 0
    x, owner = data["x"][trains], data["client"][trains]
    worlds = []
    for seed in range(PROJECTIONS):
        direction = np.random.default_rng(seed).standard_normal(int(data["y"].max()) + 1)
        y = direction[data["y"][trains]]
        advice = fa.advise(x.astype(float), y - y.mean(), owner, task="regression", intercept=False)
        about = advice.population
        print(f"  radius {about.radius}, noise {about.noise}, norm {about.norm}")
        world = about.world
        norm = max(float(np.asarray(world.norm)), 1.05 * float(np.asarray(world.radius)))
        # the shared optimum lies in the covariance as the displacements do
        worlds.append(replace(world, norm=norm, optimum_power=world.shift_power))
    return worlds


def show(title: str, table: np.ndarray, steps: list[int], cohorts: list[int], form: str) -> None:
    """Rows are local steps, columns cohorts."""
    print(f"\n{title}\n{'steps':>8}" + "".join(f"{f'cohort {D}':>12}" for D in cohorts))
    for K, row in zip(steps, table, strict=True):
        print(f"{K:>8}" + "".join(f"{format(value, form):>12}" for value in row), flush=True)


def main() -> None:
    """Print predicted losses, trained accuracies of both losses, and the private run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("features")
    parser.add_argument("--clients", type=int, default=600)
    parser.add_argument("--sent", type=int, default=3200, help="models that are sent in all")
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS)
    parser.add_argument("--cohorts", type=int, nargs="+", default=COHORTS)
    parser.add_argument("--private", action="store_true")
    told = parser.parse_args()
    began = time.perf_counter()
    data = read_features(told.features, told.clients)
    heads, step = Heads(data), 1 / largest_eigenvalue(data)
    m = len(np.unique(data["client"]))
    sizes = np.bincount(np.unique(data["client"][data["split"] == 0], return_inverse=True)[1])
    cohorts, steps = [D for D in told.cohorts if m >= D], told.steps
    print(f"{m} clients of {sizes.min()} to {sizes.max()} training samples, step {step:.4g}")
    grid: dict[str, Any] = {
        "rounds": [told.sent // D for D in cohorts],
        "cohort": cohorts,
        "local_steps": np.array(steps)[:, None],
        "server_step": step,
        "clients": m,
    }
    predicted = np.mean(
        [
            losses / losses.min()
            for losses in (fa.rounds(w, "rtfa", **grid).final for w in estimate_worlds(data))
        ],
        axis=0,
    )
    place = np.unravel_index(int(np.argmin(predicted)), predicted.shape)
    show("predicted loss of rtfa over the least", predicted, steps, cohorts, ".3f")
    classes = int(data["y"].max()) + 1
    common = {"clients": data["client"], "split": data["split"], "intercept": False}
    squares = fa.Federation.from_arrays(
        data["x"], np.eye(classes)[data["y"]] - 1 / classes, **common
    )
    softmax = fa.Federation.from_arrays(data["x"], data["y"], classes=classes, **common)
    whole = {"batch": int(sizes.max()), "evaluate_every": 0}
    ridges: list[float | None] = []
    for name, federation in (("squared loss", squares), ("softmax", softmax)):
        # the softmax's curvature is below a half of the squares'
        rate = step if federation is squares else 2 * step
        own, shared = np.zeros(predicted.shape), np.zeros(predicted.shape)
        for i, K in enumerate(steps):
            for j, D in enumerate(cohorts):
                settings = {"rounds": told.sent // D, "cohort": D, "local_steps": K} | whole
                if federation is squares:
                    run = fa.train("fedavg", federation, server_step=rate, **settings)
                    shared[i, j], own[i, j] = heads.accuracy(run.shared)
                    continue
                runs = fa.train(
                    "rtfa", federation, server_step=rate, local_step=rate, personal_epochs=SOFTMAX_EPOCHS,
                    grid={"ridge": SOFTMAX_RIDGES}, **settings,
                )  # fmt: skip
                best = max(runs, key=lambda run: float(run.validation_accuracy[-1]))
                shared[i, j], own[i, j] = best.shared_accuracy[-1], best.accuracy[-1]
                ridges.append(best.settings.ridge)
        show(f"{name}: test accuracy of personal heads, %", 100 * own, steps, cohorts, ".2f")
        show(f"{name}: test accuracy of the shared head, %", 100 * shared, steps, cohorts, ".2f")
        print(
            f"{name}: best of the grid {100 * own.max():.2f} %, at the predicted best"
            f" ({steps[place[0]]} steps, cohorts of {cohorts[place[1]]}) {100 * own[place]:.2f} %:"
            f" {100 * (own.max() - own[place]):.2f} points below"
        )
    print(f"ridges that validation chose for softmax: {min(ridges)} to {max(ridges)}")
    if told.private:
        train_privately(squares, heads, m, step, whole)
    print(f"{time.perf_counter() - began:.0f} s")


def train_privately(
    federation: fa.Federation, heads: Heads, m: int, step: float, whole: dict[str, Any]
) -> None:
    """Epsilon 8 beside no privacy: everyone in every round, four clips."""
    print("\nepsilon 8 at delta 1e-6, everyone in every round, 16 local steps; accuracies in %")
    for rounds in (5, 20):
        settings = {"rounds": rounds, "cohort": m, "local_steps": 16, "server_step": step} | whole
        run = fa.train("fedavg", federation, **settings)
        shared, own = heads.accuracy(run.shared)
        print(
            f"  {rounds:>3} rounds, not private: shared {100 * shared:.2f}, personal {100 * own:.2f}"
        )
        for clip in (0.01, 0.03, 0.1, 0.3):
            run = fa.train(
                "fedavg", federation, privacy=fa.Privacy(epsilon=8, clip=clip), **settings
            )
            shared, own = heads.accuracy(run.shared)
            spent = run.privacy
            assert spent is not None
            print(
                f"  {rounds:>3} rounds, clip {clip:g}: shared {100 * shared:.2f}, personal"
                f" {100 * own:.2f}; epsilon {spent.epsilon:.2f}, noise multiplier"
                f" {spent.noise_multiplier:.2f}, {spent.clipped:.0%} clipped",
                flush=True,
            )
    zero = heads.accuracy(np.zeros((federation.dimension, federation.outputs)))
    print(f"  alone: {100 * zero[1]:.2f}")


if __name__ == "__main__":
    main()
