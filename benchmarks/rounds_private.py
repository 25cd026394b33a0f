"""Private rounds, predicted beside trained: the shared model's excess error, lengths, and who pays.

    python benchmarks/rounds_private.py [--settings 24] [--seeds 12] [--workers 1]

Every setting is a population, a clip, a noise multiplier, a sampling of cohorts and a number of clients,
drawn by the number of the setting. `fa.train` trains FedAvg privately on drawn clients from several seeds;
what is compared is E||theta_t - theta_0||^2 in the covariance's norm. Then, for three budgets, the number of
clients from which private sharing has less loss than learning alone: predicted, and by training.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

import fedasym as fa

ROUNDS = (2, 5, 10, 20)
SAMPLES = 80  # training samples of a client
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
    return world, settings, privacy


def excess_error(run: fa.History, clients: fa.Federation, world: fa.Population) -> float:
    """||theta - theta_0||^2 in the covariance's norm."""
    d = clients.dimension
    scale = np.repeat(world.spectrum.values, round(d / world.spectrum.values.size))
    return float(scale @ (run.shared[:, 0] - clients.truth["shared"]) ** 2)


def train_private(
    world: fa.Population,
    settings: dict[str, float],
    privacy: fa.Privacy,
    rounds: tuple[int, ...],
    seeds: int,
) -> np.ndarray:
    """Excess errors of the trained shared models, (seeds, rounds)."""
    d = round(SAMPLES * float(world.aspect))
    told = {name: settings[name] for name in ("local_steps", "server_step", "cohort")}
    found = np.empty((seeds, len(rounds)))
    for seed in range(seeds):
        clients = fa.datasets.synthetic(
            population=world, clients=int(settings["clients"]), dimension=d, seed=seed
        )
        for at, count in enumerate(rounds):
            run = fa.train(
                "fedavg", clients, rounds=count, evaluate_every=0, batch=SAMPLES, intercept=False,
                seed=seed, privacy=privacy, **told,
            )  # fmt: skip
            found[seed, at] = excess_error(run, clients, world)
    return found


def compare_setting(number: int, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """The predicted path and the trained ones of a setting."""
    world, settings, privacy = draw_setting(number)
    drawn = train_private(world, settings, privacy, ROUNDS, seeds)
    d = round(SAMPLES * float(world.aspect))
    path = fa.rounds(
        world, "fedavg", rounds=ROUNDS[-1], evaluated=ROUNDS, dimension=d, privacy=privacy,
        **settings,
    )  # fmt: skip
    return path.shared_error, drawn


def compare_paths(count: int, seeds: int, pool: Executor) -> None:
    """A row per setting, and the summary."""
    ratios, errors = [], []
    print(f"{'':>3} {'setting':<86}{'predicted':>10}{'trained':>10}{'ratio':>8}{'error':>8}")
    found = pool.map(compare_setting, range(count), [seeds] * count)
    for number, (path, drawn) in enumerate(found):
        world, settings, privacy = draw_setting(number)
        mean, error = drawn.mean(0), drawn.std(0, ddof=1) / np.sqrt(seeds)
        ratios.append(mean / path)
        errors.append(error / path)
        words = ", ".join(f"{name} {value:.3g}" for name, value in settings.items())
        told = (
            f"aspect {world.aspect:g}, {words}, z {privacy.noise_multiplier:g} {privacy.sampling}"
        )
        print(
            f"{number:>3} {told:<86}{path[-1]:>10.4g}{mean[-1]:>10.4g}{ratios[-1][-1]:>8.3f}"
            f"{errors[-1][-1]:>8.3f}",
            flush=True,
        )
    off, noise = np.abs(np.array(ratios) - 1), np.array(errors)
    means = np.array(ratios).mean(1)
    print(f"\n{count} private settings, {seeds} seeds, rounds {ROUNDS}")
    print(
        f"excess error, trained over predicted: mean {np.mean(ratios):.3f}, median deviation"
        f" {np.median(off):.1%}, median standard error {np.median(noise):.1%}"
    )
    print(f"within 5 % or two standard errors: {np.mean(off < np.maximum(0.05, 2 * noise)):.0%}")
    print(f"a setting's mean over its rounds within 5 %: {np.mean(np.abs(means - 1) < 0.05):.0%}")


def crossing(counts: np.ndarray, losses: np.ndarray, target: float) -> float:
    """Where losses over numbers of clients, log-log-linear between them, fall to a target."""
    slope, level = np.polyfit(np.log(counts), np.log(losses), 1)
    return float(np.exp((np.log(target) - level) / slope))


def compare_payoff(epsilon: float, seeds: int) -> tuple[float, float]:
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
        drawn = train_private(world, settings, private, (rounds,), seeds)
        losses.append(float(np.asarray(world.radius)) ** 2 + drawn.mean())
    return pays, crossing(counts, np.array(losses), target)


def main() -> None:
    """Print both comparisons."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", type=int, default=24)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--workers", type=int, default=1)
    told = parser.parse_args()
    started = time.perf_counter()
    with ProcessPoolExecutor(told.workers, get_context("spawn")) as pool:
        compare_paths(told.settings, told.seeds, pool)
        print(f"\nsharing pays from so many clients on, by {MARGIN:.0%}")
        print(f"{'epsilon':>8}{'predicted':>12}{'trained':>12}{'ratio':>8}")
        found = pool.map(compare_payoff, BUDGETS, [told.seeds] * len(BUDGETS))
        for epsilon, (pays, trained) in zip(BUDGETS, found, strict=True):
            print(f"{epsilon:>8g}{pays:>12.0f}{trained:>12.0f}{trained / pays:>8.2f}", flush=True)
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
