"""Advice from statistics with privacy noise: how far its estimates are off, and what that costs.

    python benchmarks/advise_noised.py [--draws 10]

Clients of radius 1, noise 0.5, norm 2, aspect 2 and 40 features; noise is added once. For each number of
clients and budget: the median relative error of the estimated noise, radius and norm; how often their 95 %
intervals hold the truth; how often rtfa (or pfedme, which is level with it) is recommended, which is right
here; and the median loss of rtfa with the advised ridge over that with the best one. "-": noise hides even
the bounds.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

import fedasym as fa
from fedasym.advisor import advise_sums
from fedasym.advisor.data import read_clients
from fedasym.advisor.federated import SURE_VOTES, NoisedSums, play_noised_sums, split_budget

CLIENTS, EPSILONS, TRUTH = (100, 300, 1000, 3000), (1.0, 2.0, 4.0, 8.0), (0.5, 1.0, 2.0)
WORLD = fa.Population(radius=1, noise=0.5, aspect=2, norm=2)


def draw_advice(clean: NoisedSums, budget: fa.Privacy, seed: int) -> fa.Advice:
    """Advice with noise of a seed."""
    noise = np.random.default_rng(seed).standard_normal(clean.sums.shape)
    sums = clean.sums + split_budget(budget)[1] * noise
    return advise_sums(replace(clean, sums=sums, budget=budget), False)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=10)
    told = parser.parse_args()
    best = float(fa.predict(WORLD, "rtfa")["rtfa"].loss)
    print(
        f"{'clients':>8}{'epsilon':>9}{'noise':>8}{'radius':>8}{'norm':>8}{'inside':>8}{'rtfa':>8}{'loss':>8}"
    )
    for m in CLIENTS:
        data = read_clients(
            fa.datasets.synthetic(population=WORLD, clients=m, dimension=40, seed=1)
        )
        clean = play_noised_sums(data, fa.Privacy(noise_multiplier=1e-9), np.zeros)
        for epsilon in EPSILONS:
            budget = fa.Privacy(epsilon=epsilon)
            # about half of the clients vote for one of two neighbouring bounds
            if m / 2 <= SURE_VOTES * split_budget(budget)[0]:
                print(f"{m:>8}{epsilon:>9g}{'-':>8}")
                continue
            advised = [draw_advice(clean, budget, seed) for seed in range(told.draws)]
            three = [(a.population.noise, a.population.radius, a.population.norm) for a in advised]
            off = np.abs(
                [[q.value / t - 1 for q, t in zip(row, TRUTH, strict=True)] for row in three]
            )
            inside = [
                q.low <= t <= q.high for row in three for q, t in zip(row, TRUTH, strict=True)
            ]
            right = [a.recommended in ("rtfa", "pfedme") for a in advised]
            losses = [
                float(fa.predict(WORLD, "rtfa", ridge=max(a.predictions["rtfa"].ridge, 1e-9))["rtfa"].loss)
                for a in advised
            ]  # fmt: skip
            cells = "".join(f"{100 * each:>7.0f}%" for each in np.median(off, axis=0))
            print(
                f"{m:>8}{epsilon:>9g}{cells}{np.mean(inside):>8.0%}{np.mean(right):>8.0%}"
                f"{np.median(losses) / best:>8.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
