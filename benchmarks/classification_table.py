"""Accuracy with classes: predicted beside simulated, in one table; how many standard errors lie
between them.

    python benchmarks/classification_table.py            about five minutes on one core
    python benchmarks/classification_table.py --quick    about one

Every line is `fa.simulate`: clients are drawn, each method is fitted to their labels (Newton,
L-BFGS, gradient descent, non-negative least squares), and its model is scored. The prediction is a
limit of large dimension: what is left is of order 1/dimension, and `stopped` is predicted by a
clock that is good to about 0.3 percentage points.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import fedasym as fa

TWO = fa.spectra.atoms([0.5, 3], [0.6, 0.4])
SETTINGS = [  # name, population, clients, member
    ("2 classes", fa.ClassPopulation(1.5, 1.5, 2), None, True),
    ("2 classes, many samples", fa.ClassPopulation(2, 1, 0.2), None, True),
    ("2 classes, few samples", fa.ClassPopulation(1, 2, 5), None, True),
    (
        "2 classes, flips, two atoms",
        fa.ClassPopulation(1.1, 1.4, 0.3, flips=0.1, spectrum=TWO),
        None,
        True,
    ),
    (
        "2 classes, two atoms, aligned",
        fa.ClassPopulation(1.5, 1, 1.5, spectrum=TWO, shift_power=-1, centre_power=1),
        None,
        True,
    ),
    ("3 classes", fa.ClassPopulation(1.5, 1.5, 2, classes=3), None, True),
    (
        "5 classes, two atoms",
        fa.ClassPopulation(1.5, 1.5, 1.5, classes=5, spectrum=TWO),
        None,
        True,
    ),
    ("10 classes", fa.ClassPopulation(2, 2, 2, classes=10), None, True),
    ("a member of 6", fa.ClassPopulation(1.5, 1.5, 1), 6, True),
    ("a newcomer to 6", fa.ClassPopulation(1.5, 1.5, 1), 6, False),
    ("a member of 20, two atoms", fa.ClassPopulation(1, 2, 1, spectrum=TWO), 20, True),
    ("a newcomer to 20, two atoms", fa.ClassPopulation(1, 2, 1, spectrum=TWO), 20, False),
]


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--quick", action="store_true", help="smaller and fewer draws")
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    dimension, trials = (150, 8) if given.quick else (400, 24)
    off: dict[str, float] = {}
    print(f"dimension {dimension}, {trials} trials of 4 clients\n")
    heads = ("simulated", "std. err.", "predicted", "off by", "log-loss", "predicted", "off by")
    print(f"{'setting':<32}{'method':<14}" + "".join(f"{head:>11}" for head in heads))
    for name, world, clients, member in SETTINGS:
        begun = time.perf_counter()
        table = fa.simulate(
            world,
            dimension=dimension,
            trials=trials,
            clients=clients,
            member=member,
            seed=given.seed,
        )
        for place, (method, row) in enumerate(table.items()):
            if method == "ftfa" or (method == "fedavg" and clients is None and world.classes == 2):
                continue  # the same fit as local; exact by construction
            off[f"{name}, {method}: accuracy"] = row.deviation
            cells = f"{100 * row.accuracy:>10.2f}%{100 * row.error:>10.3f}%{100 * row.predicted.accuracy:>10.2f}%"
            cells += f"{row.deviation:>+8.1f} se"
            if row.log_loss is not None:
                off[f"{name}, {method}: log-loss"] = row.log_loss_deviation
                cells += f"{row.log_loss:>11.4f}{row.predicted.log_loss:>11.4f}{row.log_loss_deviation:>+8.1f} se"
            print(f"{name if place == 0 else '':<32}{method:<14}{cells}")
        print(f"{'':<32}{time.perf_counter() - begun:.0f} s\n", flush=True)
    clocked = {key: value for key, value in off.items() if ", stopped:" in key}
    limits = {key: value for key, value in off.items() if key not in clocked}
    for kind, found in (("limits", limits), ("the clock", clocked)):
        worst = max(found, key=lambda key: abs(found[key]))
        sizes = np.abs(list(found.values()))
        print(
            f"{kind}: {sizes.size} comparisons, the largest {found[worst]:+.2f} standard errors"
            f" ({worst}); ",
            end="",
        )
        root = np.sqrt(np.mean(sizes**2))
        print(
            f"above 2: {np.mean(sizes > 2):.1%}, above 3: {np.sum(sizes > 3)}; root mean square"
            f" {root:.2f}"
        )


if __name__ == "__main__":
    main()
