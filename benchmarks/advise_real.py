"""Advice on the features of real data, made before any training, beside what training measured.

    python benchmarks/advise_real.py FEATURES [--measured docs/reproduction/cifar100-ready]
        [--clients 200]

FEATURES: a file that `fedasym features` wrote, or an .npz that reproduce_wider.py reads.
--measured: a folder of results (trials.csv and results.json); without one, `advice.confirm`
measures the leading candidates by a short training. --clients: advise on so many clients, evenly
spread. Printed: accuracies (means over clients) by theory, by the least-squares probes, and as
measured; ridge; rank correlation.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
from reproduce_wider import read_ready
from scipy.stats import spearmanr

import fedasym as fa
from fedasym.advisor.crosscheck import foresee_accuracies
from fedasym.advisor.statistics import spread_places

LIKE = {
    "local": "local_ridge"
}  # local training stops early: it is nearer to a ridge than to convergence
ORDER = ("fedavg", "local", "ftfa", "rtfa")


def measured(folder: Path) -> dict[str, float]:
    """Mean test accuracies over clients and trials after the last round; validation accuracies
    where there are no trials.
    """
    last: dict[tuple[str, str], tuple[int, float]] = {}
    with (folder / "trials.csv").open() as rows:
        for row in csv.DictReader(rows):
            if row["sweep"] == "seeds":
                last[row["algorithm"], row["trial"]] = (
                    int(row["round"]),
                    float(row["mean_accuracy"]),
                )
    found = defaultdict(list)
    for (name, _), (_, accuracy) in last.items():
        found[name].append(accuracy)
    if found:
        return {name: float(np.mean(values)) for name, values in found.items()}
    with (
        folder / "tuning.csv"
    ).open() as rows:  # tuned, and not yet tried: the best validation accuracies, over samples
        for row in csv.DictReader(rows):
            if row["validation_accuracy"]:
                found[row["algorithm"]].append(float(row["validation_accuracy"]))
    return {name: float(np.nanmax(values)) for name, values in found.items()}


def tuned(folder: Path) -> dict[str, dict[str, float]]:
    """What validation chose."""
    return json.loads((folder / "results.json").read_text())["tuned"]


def thinned(federation: fa.Federation, most: int) -> fa.Federation:
    """Some of the clients."""
    if len(federation) <= most:
        return federation
    rows = np.flatnonzero(np.isin(federation.owner, spread_places(len(federation), most)))
    return fa.Federation.from_arrays(
        federation.features[rows],
        federation.labels[rows],
        [federation.clients[place] for place in federation.owner[rows]],
        split=federation.split[rows],
        mask=None if federation.mask is None else federation.mask[rows],
        classes=len(federation.classes),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("features", type=Path)
    parser.add_argument("--measured", type=Path)
    parser.add_argument("--clients", type=int, default=10**9)
    options = parser.parse_args()
    federation = (
        read_ready(options.features)
        if options.features.suffix == ".npz"
        else fa.Federation.from_safetensors(options.features)
    )
    some = thinned(federation, options.clients)
    print(some)
    start = time.perf_counter()
    advice = fa.advise(some)
    took = time.perf_counter() - start
    start = time.perf_counter()
    quick = foresee_accuracies(federation)
    quickly = time.perf_counter() - start
    found = measured(options.measured) if options.measured else advice.confirm(some).values
    print(f"\n{'':<12}{'theory':>9}{'probe':>9}{'advised':>9}{'quick':>9}{'measured':>10}")
    pairs = []
    for name in [
        *(each for each in ORDER if each in found),
        *(each for each in found if each not in ORDER),
    ]:
        row = advice.predictions.get(LIKE.get(name, name))
        if row is None:
            print(f"{name:<12}{'-':>9}{'-':>9}{'-':>9}{'-':>9}{found[name]:>10.1%}")
            continue
        pairs.append((row.trusted, found[name]))
        probe = "-" if row.measured is None else f"{row.measured:.1%}"
        near = quick[row.algorithm].trusted
        print(
            f"{name:<12}{row.accuracy.value:>9.1%}{probe:>9}{row.trusted:>9.1%}{near:>9.1%}{found[name]:>10.1%}"
        )
    mine, truth = np.array(pairs).T
    print(
        f"\nrecommended {advice.recommended}; rank correlation"
        f" {spearmanr(mine, truth).statistic:.2f}; largest error of"
    )
    print(
        f"advised accuracies {100 * np.abs(mine - truth).max():.1f} points; {took:.0f} s, the quick"
        f" form {quickly:.0f} s"
    )
    if options.measured:
        chosen = tuned(options.measured).get("rtfa") or {}
        print(
            f"ridge: advised {advice.training['rtfa']['ridge']:.3g}, validation chose"
            f" {chosen.get('ridge', float('nan')):g}"
        )
        print(f"rtfa as tuned: {chosen}")
    if advice.steps is not None:
        print(
            f"fine-tuning: {advice.steps.epochs} epochs with local_step"
            f" {advice.steps.local_step:.3g}"
        )
    print("\n".join(f"doubt: {doubt.check}" for doubt in advice.doubts))


if __name__ == "__main__":
    main()
