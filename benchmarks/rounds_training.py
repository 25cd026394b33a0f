"""Predicted rounds beside trained ones: the shared model's excess error and the rounds to a target.

    python benchmarks/rounds_training.py [--settings 40] [--seeds 6] [--batch 32] [--workers 1]

Every setting is a population, local steps, a step, a cohort and a number of clients, drawn by the number
of the setting. `fa.train` trains FedAvg on drawn clients from several seeds, on whole batches unless --batch
says otherwise; what is compared is E||theta_t - theta_0||^2 in the covariance's norm, which the loss hides.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

import fedasym as fa

ROUNDS = (1, 2, 3, 5, 8, 12, 18, 25)
SAMPLES = 80  # training samples of a client


def draw_setting(number: int) -> tuple[fa.Population, dict[str, float]]:
    """The population and the settings of a number; the same for the same number."""
    rng = np.random.default_rng([number, 5])
    spectrum = fa.spectra.identity() if number % 2 else fa.spectra.atoms([0.5, 2.0], [0.5, 0.5])
    aspect = float(rng.choice([0.5, 1.0, 1.5, 2.0]))
    world = fa.Population(
        radius=float(rng.choice([0.5, 1.0])),
        noise=float(rng.choice([0.3, 0.7])),
        aspect=aspect,
        norm=2.0,
        spectrum=spectrum,
    )
    largest = spectrum.values.max() * (1 + np.sqrt(aspect)) ** 2
    settings = {
        "local_steps": int(rng.choice([1, 4, 16])),
        "server_step": float(rng.choice([0.3, 0.8])) / largest,
        "cohort": int(rng.choice([4, 10, 20])),
        "clients": int(rng.choice([100, 300])),
    }
    return world, settings


def train_errors(
    world: fa.Population, settings: dict[str, float], seeds: int, batch: int | None
) -> np.ndarray:
    """Excess errors of the trained shared models, (seeds, rounds)."""
    d = round(SAMPLES * float(world.aspect))
    found = np.empty((seeds, len(ROUNDS)))
    told = {name: settings[name] for name in ("local_steps", "server_step", "cohort")}
    for seed in range(seeds):
        clients = fa.datasets.synthetic(
            population=world, clients=settings["clients"], dimension=d, seed=seed
        )
        scale = np.repeat(world.spectrum.values, round(d / world.spectrum.values.size))
        for at, rounds in enumerate(ROUNDS):
            run = fa.train(
                "fedavg", clients, rounds=rounds, evaluate_every=0, batch=batch or SAMPLES, intercept=False,
                seed=seed, precision="float64", **told,
            )  # fmt: skip
            found[seed, at] = scale @ (run.shared[:, 0] - clients.truth["shared"]) ** 2
    return found


def compare_setting(asked: tuple[int, int, int | None]) -> tuple[np.ndarray, np.ndarray]:
    """The predicted path and the trained ones of a setting: its number, seeds and batch."""
    number, seeds, batch = asked
    world, settings = draw_setting(number)
    drawn = train_errors(world, settings, seeds, batch)
    told = {"rounds": ROUNDS[-1], "evaluated": ROUNDS}
    return fa.rounds(world, "fedavg", **told, **settings).shared_error, drawn


def first_below(rounds: np.ndarray, values: np.ndarray, target: float) -> float:
    """The round at which a path, log-linear between its points, first reaches a target."""
    below = np.flatnonzero(values <= target)
    if not below.size:
        return float("inf")
    k = below[0]
    if k == 0:
        return float(rounds[0])
    share = np.log(values[k - 1] / target) / np.log(values[k - 1] / values[k])
    return float(rounds[k - 1] + share * (rounds[k] - rounds[k - 1]))


def main() -> None:
    """Print a row per setting and the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--batch", type=int, default=None)
    parser.add_argument("--workers", type=int, default=1)
    told = parser.parse_args()
    ratios, errors, reached = [], [], []
    started = time.perf_counter()
    print(
        f"{'':>3} {'setting':<64}{'predicted':>11}{'trained':>11}{'ratio':>8}{'rounds':>8}{'trained':>9}"
    )
    every = [(number, told.seeds, told.batch) for number in range(told.settings)]
    pool = ProcessPoolExecutor(told.workers, get_context("spawn"))
    for number, (path, drawn) in enumerate(pool.map(compare_setting, every)):
        world, settings = draw_setting(number)
        mean, error = drawn.mean(0), drawn.std(0, ddof=1) / np.sqrt(told.seeds)
        target = float(np.sqrt(path[0] * path[-1]))
        steps = np.array(ROUNDS, dtype=float)
        ours, theirs = first_below(steps, path, target), first_below(steps, mean, target)
        ratios.append(mean / path)
        errors.append(error / path)
        reached.append(theirs / ours)
        words = ", ".join(f"{name} {value:.3g}" for name, value in settings.items())
        print(
            f"{number:>3} {f'aspect {world.aspect:g}, {words}':<64}{path[-1]:>11.4g}{mean[-1]:>11.4g}"
            f"{mean[-1] / path[-1]:>8.3f}{ours:>8.2f}{theirs:>9.2f}",
            flush=True,
        )
    pool.shutdown()
    all_ratios, all_errors = np.array(ratios), np.array(errors)
    off = np.abs(all_ratios - 1)
    print(f"\n{told.settings} settings, {told.seeds} seeds, {time.perf_counter() - started:.0f} s")
    print(
        f"excess error, trained over predicted: mean {all_ratios.mean():.3f}, median deviation {np.median(off):.1%}"
    )
    print(
        f"within 5 % or two standard errors: {np.mean(off < np.maximum(0.05, 2 * all_errors)):.0%}"
    )
    means = all_ratios.mean(1)
    print(
        f"a setting's mean over its rounds: within 5 % in {np.mean(np.abs(means - 1) < 0.05):.0%},"
        f" worst {np.abs(means - 1).max():.1%}; median standard error {np.median(all_errors):.1%}"
    )
    far = np.abs(np.log(reached))
    print(
        f"rounds to the target, trained over predicted: mean {np.mean(reached):.3f}, within 10 % in"
        f" {np.mean(far < 0.1):.0%}, worst {np.max(far):.1%}"
    )


if __name__ == "__main__":
    main()
