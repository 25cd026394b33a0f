"""How good advice about classes is, on drawn federations whose truth is known: one row per kind of
population.

    python benchmarks/advise_classes.py [--quick] [--draws 24] [--only "ar1;5 classes"] [--first
    1000] [--jobs 2]

bias: mean relative error of the estimates. covers: share of draws whose 95% interval holds the
truth. regret: share of draws in which the recommended algorithm, with the advised ridge, is at most
half a point less accurate than the best algorithm with the best of three ridges about the one that
the truth gives; worst: the largest loss, in points. off: median and 90% quantile of |predicted -
true| accuracy over algorithms and draws, in points; in 95%: how often the true accuracy lies in the
predicted interval; models are fitted exactly (Newton, L-BFGS); true accuracies are integrals for
two classes, and means of probabilities over fresh samples for more.
"""

from __future__ import annotations

import argparse
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

import fedasym as fa
from fedasym.advisor import advise
from fedasym.exact import class_clients
from fedasym.exact.class_clients import DrawnClassClient
from fedasym.theory.classes.metrics import State, accuracy
from fedasym.theory.classes.softmax import contrasts

COMPARED = ("fedavg", "rtfa", "local_ridge")
MARGIN = 0.005
FACTORS = (0.4, 1.0, 2.5)
FRESH = 1000  # samples of a client on which accuracies are measured with more than two classes


@dataclass(frozen=True)
class Kind:
    """A population to draw federations from."""

    name: str
    clients: int
    samples: tuple[int, int]  # the least and the most of a client
    dimension: int
    spectrum: str = "identity"
    radius: float = 1.2
    centre: float = 1.5
    classes: int = 2
    power: float = 0.0  # alignment of the shared optimum

    def eigenvalues(self) -> np.ndarray:
        d = self.dimension
        made = {
            "identity": np.ones(d),
            "ar1": fa.spectra.ar1(0.5, d).values,
            "power law": fa.spectra.power_law(1, d).values,
        }
        return made[self.spectrum]


KINDS = (
    Kind("identity", 50, (60, 60), 100),
    Kind("ar1", 50, (60, 60), 100, "ar1"),
    Kind("power law", 50, (60, 60), 100, "power law"),
    Kind("ar1, 12 clients", 12, (100, 100), 100, "ar1"),
    Kind("ar1, 200 clients", 200, (30, 30), 50, "ar1"),
    Kind("samples > features", 40, (120, 120), 40, "ar1"),
    Kind("aspect 4", 80, (30, 30), 120, "identity"),
    Kind("nearly alike", 50, (60, 60), 100, "ar1", radius=0.2),
    Kind("far apart", 50, (60, 60), 60, "ar1", radius=3.0, centre=0.7),
    Kind("sizes 20 to 120", 60, (20, 120), 80, "ar1"),
    Kind("aligned centre", 60, (60, 60), 80, "power law", power=1.0),
    Kind("N < d", 20, (8, 8), 200, "ar1"),
    Kind("3 classes", 40, (60, 60), 60, "identity", radius=1.5, centre=2.0, classes=3),
    Kind("5 classes, ar1", 40, (60, 60), 60, "ar1", radius=2.0, centre=2.5, classes=5),
    Kind("10 classes", 40, (60, 60), 40, "identity", radius=2.0, centre=3.0, classes=10),
)


def draw(kind: Kind, seed: int) -> tuple[list[DrawnClassClient], list[np.ndarray]]:
    """Clients with their truth, and their labels as codes."""
    rng = np.random.default_rng([seed, 23])
    s, d, m, C = kind.eigenvalues(), kind.dimension, kind.clients, kind.classes
    K = 1 if C == 2 else C - 1
    energy = s**kind.power / (s**kind.power).mean()
    centre = rng.standard_normal((d, K)) * np.sqrt(energy)[:, None]
    centre *= kind.centre / np.linalg.norm(centre, axis=0)
    clients, labels = [], []
    for n in rng.integers(kind.samples[0], kind.samples[1] + 1, m):
        truth = centre + kind.radius / np.sqrt(d) * rng.standard_normal((d, K))
        X = rng.standard_normal((n, d)) * np.sqrt(s)
        p = probabilities(X, truth, C)
        codes = (rng.random((n, 1)) > p.cumsum(1)[:, :-1]).sum(1)
        Y = 2.0 * codes[:, None] - 1 if C == 2 else np.eye(C)[codes]
        clients.append(DrawnClassClient(X, Y, truth, s))
        labels.append(codes)
    return clients, labels


def probabilities(X: np.ndarray, model: np.ndarray, classes: int) -> np.ndarray:
    """Of each class; two classes have one column of logits."""
    out = X @ model
    return softmax(
        np.column_stack([0 * out, out]) if classes == 2 else out @ contrasts(classes).T, axis=1
    )


def accuracy_of(models: list[np.ndarray], clients: list[DrawnClassClient], classes: int) -> float:
    """The mean over clients of what their models get right."""
    right = []
    for place, (w, each) in enumerate(zip(models, clients, strict=True)):
        if classes == 2:
            T, Q, R = (
                float((a * each.s[:, None] * b).sum())
                for a, b in ((w, each.truth), (w, w), (each.truth, each.truth))
            )
            right.append(float(accuracy(State.of(T, Q, np.sqrt(R)))))
            continue
        X = np.random.default_rng([place, 29]).standard_normal((FRESH, each.s.size)) * np.sqrt(
            each.s
        )
        truth = probabilities(X, each.truth, classes)
        right.append(float(truth[np.arange(FRESH), probabilities(X, w, classes).argmax(1)].mean()))
    return float(np.mean(right))


def shared_model(clients: list[DrawnClassClient]) -> np.ndarray:
    """The pooled fit; with a small ridge where it has no end without one."""
    X, Y = (np.concatenate([getattr(each, part) for each in clients]) for part in ("X", "Y"))
    K = clients[0].truth.shape[1]
    task = class_clients.LabelProblem(X, np.zeros((len(X), K)), Y)
    scarce = len(X) < 4 * X.shape[1]
    lam = X.shape[1] / len(X) if scarce else 0.0
    return class_clients.newton(task, lam) if K == 1 else class_clients.descend_far(task, lam)


def fitted(
    name: str, ratio: float | None, clients: list[DrawnClassClient], centre: np.ndarray
) -> list[np.ndarray]:
    """The models of an algorithm with a ridge of ratio/n."""
    if name == "fedavg":
        return [centre] * len(clients)
    start = centre if name == "rtfa" else np.zeros_like(centre)
    return [
        class_clients.fit_ridge(each, float(ratio or 0.0) / len(each.X), start) for each in clients
    ]


def oracle(kind: Kind) -> dict[str, float | None]:
    """Ridge times samples by the truth: gamma/(c r^2), c near 1/sqrt(1 + pi r^2/8)."""
    r2, b2, d = kind.radius**2, kind.centre**2, kind.dimension
    return {
        "fedavg": None,
        "rtfa": d / r2 * np.sqrt(1 + np.pi * r2 / 8),
        "local_ridge": d / (r2 + b2),
    }


def one(job: tuple[Kind, int]) -> dict[str, object]:
    """One draw: what was estimated, predicted and true."""
    kind, seed = job
    warnings.simplefilter("ignore")
    clients, labels = draw(kind, seed)
    start = time.perf_counter()
    advice = advise([each.X for each in clients], labels)
    took = time.perf_counter() - start
    centre = shared_model(clients)
    true, at = {}, {}
    for name, ratio in oracle(kind).items():
        tried = [None] if ratio is None else [factor * ratio for factor in FACTORS]
        true[name] = max(
            accuracy_of(fitted(name, each, clients, centre), clients, kind.classes)
            for each in tried
        )
        own = advice.predictions[name].ridge
        at[name] = true[name] if own is None else accuracy_of(
            fitted(name, own * advice.samples, clients, centre), clients, kind.classes
        )  # fmt: skip
    about, truth = advice.population, {"radius": kind.radius, "centre": kind.centre}
    rows = advice.predictions
    return {
        "estimates": {
            name: getattr(about, name).value / value - 1 for name, value in truth.items()
        },
        "covers": {
            name: getattr(about, name).low <= value <= getattr(about, name).high
            for name, value in truth.items()
        },
        "regret": max(true.values()) - at[advice.recommended],
        "recommended": advice.recommended,
        "off": [rows[name].trusted - at[name] for name in COMPARED],
        "inside": [
            rows[name].accuracy.low <= at[name] <= rows[name].accuracy.high for name in COMPARED
        ],
        "aid": advice.ranking_aid,
        "doubts": [doubt.check for doubt in advice.doubts],
        "took": took,
    }


def row(kind: Kind, found: list[dict]) -> str:
    """One line of the table."""
    names = ("radius", "centre")
    bias = [float(np.mean([each["estimates"][name] for each in found])) for name in names]
    covers = [float(np.mean([each["covers"][name] for each in found])) for name in names]
    regret = np.array([each["regret"] for each in found])
    off = np.abs(np.concatenate([each["off"] for each in found]))
    inside = float(np.mean([each["inside"] for each in found]))
    chosen = [each["recommended"] for each in found]
    often = max(set(chosen), key=chosen.count)
    cells = "".join(f"{value:>8.1%}" for value in bias) + "".join(
        f"{value:>6.0%}" for value in covers
    )
    return (
        f"{kind.name:<22}{cells}{np.mean(regret <= MARGIN):>8.0%}{100 * np.max(regret):>7.2f}{100 * np.median(off):>7.2f}{100 * np.quantile(off, 0.9):>8.2f}{inside:>7.0%}{np.mean([each['aid'] for each in found]):>6.0%}{np.mean([each['took'] for each in found]):>7.2f}"
        f"  {often}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="6 draws of each kind")
    parser.add_argument("--draws", type=int, default=24)
    parser.add_argument("--only", default="")
    parser.add_argument(
        "--first",
        type=int,
        default=0,
        help="the first seed: other draws than those of the last table",
    )
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    draws = 6 if options.quick else options.draws
    print(
        f"{draws} draws of each kind; 95% intervals should cover 90% to 98%, regret at most half a"
        " point in 95% of draws"
    )
    print(
        f"{'':<22}{'bias of estimates':>16}{'covers':>12}{'regret':>8}{'worst':>7}{'off':>7}{'off 90%':>8}"
        f"{'in 95%':>7}{'aid':>6}{'s':>7}"
    )
    print(
        f"{'':<22}{'radius':>8}{'centre':>8}{'rad.':>6}{'cen.':>6}{'<.5':>8}{'points':>7}{'points':>7}{'points':>8}"
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
        np.mean([each["covers"][name] for each in everything]) for name in ("radius", "centre")
    ]
    inside = np.mean([np.mean(each["inside"]) for each in everything])
    print(
        f"\nall {len(everything)} draws: regret at most half a point in"
        f" {np.mean(regret <= MARGIN):.1%}; predicted accuracies off by {100 * np.median(off):.2f}"
        f" points in the median; intervals cover radius {covers[0]:.0%}, centre {covers[1]:.0%},"
        f" accuracies {inside:.0%}"
    )
    print(
        "aid: share of draws in which the page calls itself a ranking aid (it should be 0: the"
        " model holds)"
    )


if __name__ == "__main__":
    main()
