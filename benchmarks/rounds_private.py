"""Private rounds, predicted beside trained: the shared model's excess error, lengths, clips, and who pays.

    python benchmarks/rounds_private.py [--settings 24] [--adaptive 8] [--error 0.01] [--workers 1]

Every setting is a population, a clip, a noise multiplier, a sampling of cohorts and a number of clients,
drawn by the number of the setting; the adaptive ones after them have a quantile instead of a clip. What is
compared is E||theta_t - theta_0||^2 in the covariance's norm, of FedAvg. Federations are drawn, with 24 sequences
of cohorts and of noise each, until the standard error of a setting's mean ratio is below --error; their rounds
are those of `fa.train` (`rounds_simulation.py`), which is checked on the first federation of every setting. Then,
for three budgets, the number of clients from which private sharing has less loss than learning alone: predicted,
and by training.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import NamedTuple

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
from fedasym.training.plans import plan_private_rounds
from fedasym.training.settings import Settings

ROUNDS = (2, 5, 10, 20)
RUNS = 24  # sequences of cohorts and noise on the same clients
LEAST, MOST = 6, 200  # federations of a setting
FIXED = 24  # settings from this number on have an adaptive clip
BUDGETS = (0.5, 1.0, 2.0)
MARGIN = 0.3


def draw_setting(number: int) -> tuple[fa.Population, dict[str, float], fa.Privacy]:
    """The population, the settings and the noise of a number; the same for the same number."""
    rng = np.random.default_rng([number, 7])
    spectrum = fa.spectra.identity() if number % 2 else fa.spectra.atoms([0.5, 2.0], [0.5, 0.5])
    aspect = float(rng.choice([0.5, 1.0, 2.0]))
    world = fa.Population(
        radius=float(rng.choice([0.5, 1.0])), noise=0.5, aspect=aspect, norm=2.0, spectrum=spectrum
    )
    largest = spectrum.values.max() * (1 + np.sqrt(aspect)) ** 2
    settings = {
        "local_steps": int(rng.choice([1, 5, 20])),
        "server_step": 0.6 / largest,
        "cohort": int(rng.choice([20, 50])),
        "clients": int(rng.choice([100, 300])),
    }
    first = fa.rounds(world, "fedavg", rounds=1, **settings).length[0]
    privacy = fa.Privacy(
        noise_multiplier=float(rng.choice([0.2, 0.5, 1.0])),
        clip=float(rng.choice([0.2, 0.5, 1.5]) * first),
        sampling="poisson" if number % 4 < 2 else "fixed",
    )
    if number >= FIXED:
        privacy = replace(privacy, quantile=float(rng.choice([0.3, 0.5, 0.8])))
    return world, settings, privacy


class Simulated(NamedTuple):
    """Excess errors (federations, rounds), and mean lengths of moves and clips in the same rounds."""

    errors: np.ndarray
    lengths: np.ndarray
    clips: np.ndarray


def simulate_private(
    world: fa.Population,
    settings: dict[str, float],
    privacy: fa.Privacy,
    rounds: tuple[int, ...],
    error: float,
) -> Simulated:
    """Private rounds of drawn federations, until their mean is known to the error."""
    m, D, last = int(settings["clients"]), int(settings["cohort"]), rounds[-1]
    private = plan_private_rounds(Settings(rounds=last, cohort=D, privacy=privacy), m)
    assert private is not None
    at = np.array(rounds) - 1
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    while len(found) < MOST:
        seed = len(found)
        clients = draw_federation(world, m, seed, SAMPLES)
        moves = Moves.of(world, clients, int(settings["local_steps"]), settings["server_step"])
        if seed == 0:
            told = {name: settings[name] for name in ("local_steps", "server_step", "cohort")}
            run = fa.train(
                "fedavg", clients, rounds=last, evaluate_every=0, batch=SAMPLES, intercept=False,
                seed=0, precision="float64", privacy=privacy, **told,
            )  # fmt: skip
            check_training(follow_training(moves, clients, last, D, private), run)
        rng = np.random.default_rng([seed, 9])
        masks = draw_masks(rng, last, RUNS, m, D, private.poisson)
        noise = rng.standard_normal((last, RUNS, clients.dimension))
        counts = rng.standard_normal((last, RUNS))
        models, lengths, clips = follow_rounds(moves, masks, D, private, (noise, counts))
        found.append((moves.excess(models[at]).mean(1), lengths[at].mean(1), clips[at].mean(1)))
        errors = np.array([each[0] for each in found])
        ratios = (errors / errors.mean(0)).mean(1)
        if len(found) >= LEAST and ratios.std(ddof=1) / np.sqrt(len(found)) < error:
            break
    return Simulated(errors, *(np.mean([each[i] for each in found], axis=0) for i in (1, 2)))


def compare_setting(number: int, error: float) -> tuple[fa.Rounds, Simulated]:
    """The predicted path, of every round, and the trained ones of a setting."""
    world, settings, privacy = draw_setting(number)
    d = round(SAMPLES * float(world.aspect))
    path = fa.rounds(
        world, "fedavg", rounds=ROUNDS[-1], evaluated=range(ROUNDS[-1] + 1), dimension=d,
        privacy=privacy, **settings,
    )  # fmt: skip
    return path, simulate_private(world, settings, privacy, ROUNDS, error)


def compare_paths(numbers: range, error: float, pool: Executor, title: str) -> None:
    """A row per setting, and the summary."""
    ratios, errors, lengths, clips = [], [], [], []
    print(
        f"{'':>3} {'setting':<86}{'predicted':>10}{'trained':>10}{'draws':>6}{'ratio':>8}{'error':>8}"
    )
    found = pool.map(compare_setting, numbers, [error] * len(numbers))
    for number, (path, drawn) in zip(numbers, found, strict=True):
        world, settings, privacy = draw_setting(number)
        foreseen = path.shared_error[np.array(ROUNDS)]
        each = drawn.errors / foreseen
        ratios.append(each.mean(0))
        errors.append(each.mean(1).std(ddof=1) / np.sqrt(len(each)))
        lengths.append(drawn.lengths / path.length[np.array(ROUNDS) - 1])
        clips.append(drawn.clips[-1] / float(path.privacy["clip"]))
        words = ", ".join(f"{name} {value:.3g}" for name, value in settings.items())
        told = (
            f"aspect {world.aspect:g}, {words}, z {privacy.noise_multiplier:g} {privacy.sampling}"
        )
        print(
            f"{number:>3} {told:<86}{foreseen[-1]:>10.4g}{drawn.errors[:, -1].mean():>10.4g}"
            f"{len(each):>6}{ratios[-1].mean():>8.3f}{errors[-1]:>8.3f}",
            flush=True,
        )
    off, means = np.abs(np.array(ratios) - 1), np.array(ratios).mean(1)
    print(f"\n{len(numbers)} {title}, rounds {ROUNDS}")
    print(
        f"excess error, trained over predicted: mean {np.mean(ratios):.3f}, median deviation"
        f" {np.median(off):.1%}; single numbers within 5 %: {np.mean(off < 0.05):.0%}, worst"
        f" {off.max():.1%}"
    )
    print(
        f"a setting's mean over its rounds within 5 %: {np.mean(np.abs(means - 1) < 0.05):.0%}, worst"
        f" {np.abs(means - 1).max():.1%}; standard errors {np.median(errors):.1%} (median) to"
        f" {np.max(errors):.1%}"
    )
    far, cut = np.abs(np.array(lengths) - 1), np.abs(np.array(clips) - 1)
    print(f"lengths of updates: median deviation {np.median(far):.1%}, worst {far.max():.1%}")
    if numbers[-1] >= FIXED:
        print(
            f"clips of the last round: median deviation {np.median(cut):.1%}, worst {cut.max():.1%}"
        )


def crossing(counts: np.ndarray, losses: np.ndarray, target: float) -> float:
    """Where losses over numbers of clients, log-log-linear between them, fall to a target."""
    slope, level = np.polyfit(np.log(counts), np.log(losses), 1)
    return float(np.exp((np.log(target) - level) / slope))


def compare_payoff(epsilon: float, error: float) -> tuple[float, float]:
    """The number of clients from which sharing pays: predicted, and between trained numbers."""
    world = fa.Population(radius=1, noise=0.5, aspect=2, norm=2)
    rounds, d = 8, 2 * SAMPLES
    told = {"local_steps": 5, "server_step": 0.1}
    costs = fa.privacy_costs(
        world, "fedavg", dimension=d, epsilon=epsilon, clients=300, rounds=rounds, margin=MARGIN,
        **told,
    )  # fmt: skip
    pays, target = float(costs.pays[0]), (1 - MARGIN) * costs.alone
    counts = np.unique(np.round(pays * np.array([0.6, 0.8, 1.0, 1.25, 1.6])))
    losses = []
    for m in counts:
        settings = told | {"cohort": int(m), "clients": int(m)}
        planned = fa.rounds(
            world, "fedavg", rounds=rounds, dimension=d, privacy=fa.Privacy(epsilon=epsilon),
            **settings,
        )  # fmt: skip
        private = fa.Privacy(epsilon=epsilon, clip=float(planned.privacy["clip"]))
        drawn = simulate_private(world, settings, private, (rounds,), error)
        losses.append(float(np.asarray(world.radius)) ** 2 + drawn.errors.mean())
    return pays, crossing(counts, np.array(losses), target)


def main() -> None:
    """Print both comparisons."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", type=int, default=FIXED)
    parser.add_argument("--adaptive", type=int, default=8)
    parser.add_argument("--error", type=float, default=0.01)
    parser.add_argument("--workers", type=int, default=1)
    told = parser.parse_args()
    started = time.perf_counter()
    with ProcessPoolExecutor(told.workers, get_context("spawn")) as pool:
        if told.settings:
            compare_paths(range(told.settings), told.error, pool, "private settings")
        if told.adaptive:
            later = range(FIXED, FIXED + told.adaptive)
            compare_paths(later, told.error, pool, "settings with adaptive clips")
        print(f"\nsharing pays from so many clients on, by {MARGIN:.0%}")
        print(f"{'epsilon':>8}{'predicted':>12}{'trained':>12}{'ratio':>8}")
        found = pool.map(compare_payoff, BUDGETS, [told.error] * len(BUDGETS))
        for epsilon, (pays, trained) in zip(BUDGETS, found, strict=True):
            print(f"{epsilon:>8g}{pays:>12.0f}{trained:>12.0f}{trained / pays:>8.2f}", flush=True)
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
