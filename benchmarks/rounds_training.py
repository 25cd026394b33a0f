"""Predicted rounds beside trained ones: the shared model's excess error and the rounds to a target.

    python benchmarks/rounds_training.py [--settings 40] [--error 0.007] [--workers 1]
    python benchmarks/rounds_training.py --batch 32 --seeds 2

Every setting is a population, local steps, a step, a cohort and a number of clients, drawn by the number
of the setting. What is compared is E||theta_t - theta_0||^2 in the covariance's norm, which the loss hides,
of FedAvg on whole batches. Federations are drawn, with 24 sequences of cohorts each, until the standard error of
a setting's mean ratio is below --error; their rounds are those of `fa.train` (`rounds_simulation.py`), which is
checked on the first federation of every setting. With --batch, `fa.train` itself is run from so many seeds.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from rounds_simulation import (
    SAMPLES,
    Moves,
    check_training,
    draw_federation,
    draw_masks,
    follow_rounds,
    follow_training,
)

import fedasym as fa

ROUNDS = (1, 2, 3, 5, 8, 12, 18, 25)
RUNS = 24  # sequences of cohorts on the same clients
LEAST, MOST = 8, 400  # federations of a setting


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


def simulate_errors(
    world: fa.Population, settings: dict[str, float], number: int, error: float, path: np.ndarray
) -> np.ndarray:
    """Excess errors of shared models, (federations, rounds): means over sequences of cohorts."""
    m, D = int(settings["clients"]), int(settings["cohort"])
    found: list[np.ndarray] = []
    while len(found) < MOST:
        seed = len(found)
        clients = draw_federation(world, m, seed, SAMPLES)
        moves = Moves.of(world, clients, int(settings["local_steps"]), settings["server_step"])
        if seed == 0:
            run = train(clients, settings, ROUNDS[-1], seed, SAMPLES)
            check_training(follow_training(moves, clients, ROUNDS[-1], D, None), run)
        rng = np.random.default_rng([number, seed, 3])
        masks = draw_masks(rng, ROUNDS[-1], RUNS, m, D, poisson=False)
        models = follow_rounds(moves, masks, D)[0][np.array(ROUNDS) - 1]
        found.append(moves.excess(models).mean(1))
        ratios = (np.array(found) / path).mean(1)
        if len(found) >= LEAST and ratios.std(ddof=1) / np.sqrt(len(found)) < error:
            break
    return np.array(found)


def train(
    clients: fa.Federation, settings: dict[str, float], rounds: int, seed: int, batch: int
) -> fa.History:
    """FedAvg, as `fa.train` has it."""
    told = {name: settings[name] for name in ("local_steps", "server_step", "cohort")}
    return fa.train(
        "fedavg", clients, rounds=rounds, evaluate_every=0, batch=batch, intercept=False,
        seed=seed, precision="float64", **told,
    )  # fmt: skip


def train_errors(
    world: fa.Population, settings: dict[str, float], seeds: int, batch: int
) -> np.ndarray:
    """Excess errors of trained shared models, (seeds, rounds)."""
    found = np.empty((seeds, len(ROUNDS)))
    for seed in range(seeds):
        clients = draw_federation(world, int(settings["clients"]), seed, SAMPLES)
        scale = np.repeat(
            world.spectrum.values, round(clients.dimension / world.spectrum.values.size)
        )
        for at, rounds in enumerate(ROUNDS):
            run = train(clients, settings, rounds, seed, batch)
            found[seed, at] = scale @ (run.shared[:, 0] - clients.truth["shared"]) ** 2
    return found


def compare_setting(asked: tuple[int, int, int | None, float]) -> tuple[np.ndarray, np.ndarray]:
    """The predicted path and the others of a setting: its number, seeds, batch and error."""
    number, seeds, batch, error = asked
    world, settings = draw_setting(number)
    told = {"rounds": ROUNDS[-1], "evaluated": ROUNDS}
    path = fa.rounds(world, "fedavg", **told, **settings).shared_error
    if batch is None:
        return path, simulate_errors(world, settings, number, error, path)
    return path, train_errors(world, settings, seeds, batch)


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
    parser.add_argument("--error", type=float, default=0.007)
    parser.add_argument("--batch", type=int, default=None)
    parser.add_argument("--seeds", type=int, default=2, help="with --batch")
    parser.add_argument("--workers", type=int, default=1)
    told = parser.parse_args()
    ratios, errors, reached, own = [], [], [], []
    started = time.perf_counter()
    print(
        f"{'':>3} {'setting':<64}{'predicted':>10}{'trained':>10}{'draws':>6}{'ratio':>8}{'error':>8}"
        f"{'rounds':>8}{'trained':>9}"
    )
    every = [(number, told.seeds, told.batch, told.error) for number in range(told.settings)]
    pool = ProcessPoolExecutor(told.workers, get_context("spawn"))
    for number, (path, drawn) in enumerate(pool.map(compare_setting, every)):
        world, settings = draw_setting(number)
        mean, error = drawn.mean(0), drawn.std(0, ddof=1) / np.sqrt(len(drawn))
        target = float(np.sqrt(path[0] * path[-1]))
        steps = np.array(ROUNDS, dtype=float)
        ours, theirs = first_below(steps, path, target), first_below(steps, mean, target)
        ratios.append(mean / path)
        errors.append(error / path)
        own.append((drawn / path).mean(1).std(ddof=1) / np.sqrt(len(drawn)))
        reached.append(theirs / ours)
        words = ", ".join(f"{name} {value:.3g}" for name, value in settings.items())
        print(
            f"{number:>3} {f'aspect {world.aspect:g}, {words}':<64}{path[-1]:>10.4g}{mean[-1]:>10.4g}"
            f"{len(drawn):>6}{ratios[-1].mean():>8.3f}{own[-1]:>8.3f}{ours:>8.2f}{theirs:>9.2f}",
            flush=True,
        )
    pool.shutdown()
    all_ratios, all_errors = np.array(ratios), np.array(errors)
    off, means = np.abs(all_ratios - 1), all_ratios.mean(1)
    print(f"\n{told.settings} settings, {time.perf_counter() - started:.0f} s")
    print(
        f"excess error, trained over predicted: mean {all_ratios.mean():.3f}, median deviation"
        f" {np.median(off):.1%}; single numbers within 5 %: {np.mean(off < 0.05):.1%}, worst"
        f" {off.max():.1%}, standard errors {np.median(all_errors):.1%} (median) to"
        f" {all_errors.max():.1%}"
    )
    print(
        f"a setting's mean over its rounds: within 5 % in {np.mean(np.abs(means - 1) < 0.05):.0%},"
        f" worst {np.abs(means - 1).max():.1%}; standard errors {np.median(own):.1%} (median) to"
        f" {np.max(own):.1%}"
    )
    far = np.abs(np.log(reached))
    print(
        f"rounds to the target, trained over predicted: mean {np.mean(reached):.3f}, within 10 % in"
        f" {np.mean(far < 0.1):.0%}, worst {np.max(far):.1%}"
    )


if __name__ == "__main__":
    main()
