"""How good the advice is, on drawn federations whose truth is known: one row per kind of
population.

    python benchmarks/advise_table.py [--quick] [--draws 40] [--only "identity;ar1"] [--first 1000]
    [--jobs 2]

bias: mean relative error of the estimates. covers: share of draws whose 95% interval holds the
truth. regret: share of draws in which the recommended algorithm, with the advised ridge, has a true
loss within 3% of the best algorithm's, each with the best ridge that the truth gives. off: median
and 90% quantile of |predicted/true - 1| over algorithms and draws. True losses are exact given the
drawn models: (theta_hat - theta_i)' Sigma (theta_hat - theta_i), the mean over clients.
"""

from __future__ import annotations

import argparse
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

import fedasym as fa
from fedasym.advisor import advise
from fedasym.advisor.data import read_clients
from fedasym.advisor.federated import combine_summaries, play_federation

COMPARED = ("local", "local_ridge", "fedavg", "ftfa", "rtfa", "pfedme")


@dataclass(frozen=True)
class Kind:
    """A population to draw federations from."""

    name: str
    clients: int
    samples: tuple[int, int]  # the least and the most of a client
    dimension: int
    spectrum: str = "identity"
    radius: float = 1.0
    noise: float = 0.7
    centre: float = 1.5
    power: float = 0.0  # alignment of the displacement
    uneven: float = 0.0  # spread of noise and radius over clients, in logarithms

    def eigenvalues(self) -> np.ndarray:
        d = self.dimension
        made = {
            "identity": np.ones(d),
            "ar1": fa.spectra.ar1(0.5, d).values,
            "power law": fa.spectra.power_law(1, d).values,
        }
        return made[self.spectrum]


KINDS = (
    Kind("identity", 50, (50, 50), 100),
    Kind("ar1", 50, (50, 50), 100, "ar1"),
    Kind("power law", 50, (50, 50), 100, "power law"),
    Kind("ar1, 10 clients", 10, (60, 60), 120, "ar1"),
    Kind("power law, 500 clients", 500, (25, 25), 50, "power law"),
    Kind("aspect 4, ar1", 60, (30, 30), 120, "ar1"),
    Kind("samples > features", 40, (60, 60), 40, "ar1"),
    Kind("nearly alike", 50, (50, 50), 100, "ar1", radius=0.15),
    Kind("far apart", 50, (50, 50), 100, "ar1", radius=2.0, centre=0.5),
    Kind("sizes 20 to 100", 60, (20, 100), 100, "ar1"),
    Kind("heterogeneous", 60, (20, 100), 100, "ar1", uneven=0.3),
    Kind("aligned, strong", 80, (50, 50), 100, "power law", power=1.0),
    Kind("aligned, weak", 80, (50, 50), 100, "power law", power=-1.0),
    Kind("N < d, identity", 10, (12, 12), 200),
    Kind("N < d, ar1", 20, (8, 8), 200, "ar1"),
    Kind("N < d, 60 clients", 60, (5, 5), 400, "power law", centre=1.0),
)


def draw(kind: Kind, seed: int) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Features, labels and optima."""
    rng = np.random.default_rng([seed, 17])
    s, d, m = kind.eigenvalues(), kind.dimension, kind.clients
    sizes = rng.integers(kind.samples[0], kind.samples[1] + 1, m)
    centre = rng.standard_normal(d)
    centre *= kind.centre / np.linalg.norm(centre)
    energy = s**kind.power / (s**kind.power).sum()
    scale = np.exp(kind.uneven * rng.standard_normal((2, m)) - kind.uneven**2)  # mean squares stay
    theta = centre + kind.radius * scale[0, :, None] * np.sqrt(energy) * rng.standard_normal((m, d))
    X = [rng.standard_normal((n, d)) * np.sqrt(s) for n in sizes]
    y = [
        x @ t + kind.noise * e * rng.standard_normal(len(x))
        for x, t, e in zip(X, theta, scale[1], strict=True)
    ]
    return X, y, theta


def loss_of(
    name: str, kind: Kind, X: list, y: list, theta: np.ndarray, ratio: float | None
) -> float:
    """The true mean loss of an algorithm with a ridge of ratio/n."""
    ridge = None if ratio is None else np.array([min(ratio / len(labels), 1e12) for labels in y])
    fit = fa.linear.fit(name, X, y, ridge=ridge, intercept=False)  # the drawn models have none
    off = np.array([fit.personal[i] - theta[i] for i in range(len(X))])
    return float((off**2 @ kind.eigenvalues()).mean())


def oracle(kind: Kind) -> dict[str, float | None]:
    """Ridge times samples that the truth gives each algorithm."""
    n = (kind.samples[0] + kind.samples[1]) / 2
    norm = np.hypot(kind.radius, kind.centre)
    spectrum = fa.spectra.eigenvalues(kind.eigenvalues())
    world = fa.Population(kind.radius, kind.noise, kind.dimension / n, norm, spectrum)
    found = fa.predict(world, ("rtfa", "local_ridge"), clients=kind.clients)
    shifted = fa.Population(
        kind.radius, kind.noise, kind.dimension / n, spectrum=spectrum, shift_power=kind.power
    )
    aligned = fa.optimal_ridge(shifted)
    ridge = {name: float(found[name].ridge) for name in found}
    ridge["pfedme"] = max(float(aligned), 1e-6)
    if kind.power:
        ridge["rtfa"] = max(float(aligned), 1e-6)
    return {name: ridge[name] * n if name in ridge else None for name in COMPARED}


def one(job: tuple[Kind, int]) -> dict[str, object]:
    """One draw: what was estimated, predicted and true."""
    kind, seed = job
    warnings.simplefilter("ignore")
    X, y, theta = draw(kind, seed)
    start = time.perf_counter()
    advice = advise(X, y, intercept=False)
    took = time.perf_counter() - start
    true = {name: loss_of(name, kind, X, y, theta, ratio) for name, ratio in oracle(kind).items()}
    best = advice.recommended
    mine = (
        loss_of(best, kind, X, y, theta, advice.confirm.ratios[best])
        if best != "maml"
        else true["ftfa"]
    )
    about = advice.population
    truth = {
        "noise": kind.noise,
        "radius": kind.radius,
        "norm": float(np.hypot(kind.radius, kind.centre)),
    }
    sent = float(np.sqrt(combine_summaries(play_federation(read_clients(X, y))).radius2))
    return {
        "estimates": {
            name: getattr(about, name).value / value - 1 for name, value in truth.items()
        },
        "covers": {
            name: getattr(about, name).low <= value <= getattr(about, name).high
            for name, value in truth.items()
        },
        "regret": mine / min(true.values()) - 1,
        "recommended": best,
        "off": [advice.predictions[name].trusted / true[name] - 1 for name in COMPARED],
        "inside": [
            advice.predictions[name].loss.low <= true[name] <= advice.predictions[name].loss.high
            for name in COMPARED
        ],
        "doubts": [doubt.check for doubt in advice.doubts],
        "took": took,
        "apart": abs(sent - about.radius.value) / max(about.radius.high - about.radius.low, 1e-12),
    }


def row(kind: Kind, found: list[dict]) -> str:
    """One line of the table."""
    names = ("noise", "radius", "norm")
    bias = [float(np.mean([each["estimates"][name] for each in found])) for name in names]
    covers = [float(np.mean([each["covers"][name] for each in found])) for name in names]
    regret = np.array([each["regret"] for each in found])
    off = np.abs(np.concatenate([each["off"] for each in found]))
    inside = float(np.mean([each["inside"] for each in found]))
    apart = float(np.median([each["apart"] for each in found]))
    chosen = [each["recommended"] for each in found]
    often = max(set(chosen), key=chosen.count)
    cells = "".join(f"{value:>8.1%}" for value in bias) + "".join(
        f"{value:>6.0%}" for value in covers
    )
    return (
        f"{kind.name:<24}{cells}{np.mean(regret < 0.03):>8.0%}{np.max(regret):>8.1%}{np.median(off):>8.1%}{np.quantile(off, 0.9):>8.1%}{inside:>7.0%}{apart:>7.2f}{np.mean([each['took'] for each in found]):>7.2f}"
        f"  {often}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="8 draws of each kind")
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--only", default="")
    parser.add_argument(
        "--first",
        type=int,
        default=0,
        help="the first seed: other draws than those of the last table",
    )
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    draws = 8 if options.quick else options.draws
    print(
        f"{draws} draws of each kind; 95% intervals should cover 90% to 98%, regret below 3% in at"
        " least 95% of draws"
    )
    print(
        f"{'':<24}{'bias of estimates':>24}{'covers':>18}{'regret':>8}{'worst':>8}{'off':>8}{'off 90%':>8}{'in 95%':>7}"
        f"{'fed.':>7}{'s':>7}"
    )
    print(
        f"{'':<24}{'noise':>8}{'radius':>8}{'norm':>8}{'noise':>6}{'rad.':>6}{'norm':>6}{'<3%':>8}"
    )
    everything: list[dict] = []
    wanted = [kind for kind in KINDS if not options.only or kind.name in options.only.split(";")]
    with ProcessPoolExecutor(options.jobs) as pool:
        for kind in wanted:
            found = list(
                pool.map(
                    one, [(kind, seed) for seed in range(options.first, options.first + draws)]
                )
            )
            print(row(kind, found), flush=True)
            everything += found
    regret = np.array([each["regret"] for each in everything])
    off = np.abs(np.concatenate([each["off"] for each in everything]))
    covers = [
        np.mean([each["covers"][name] for each in everything])
        for name in ("noise", "radius", "norm")
    ]
    print(
        f"\nall {len(everything)} draws: regret below 3% in {np.mean(regret < 0.03):.1%}; predicted"
        f" losses off by {np.median(off):.1%} in the median; intervals cover noise {covers[0]:.0%},"
        f" radius {covers[1]:.0%}, norm {covers[2]:.0%}"
    )
    print(
        "fed.: the radius from summaries alone, away from the centralised one, in widths of its"
        " interval (median)"
    )


if __name__ == "__main__":
    main()
