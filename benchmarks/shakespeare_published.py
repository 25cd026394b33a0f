"""What the paper's Shakespeare curves count, and ours beside them on one footing.

    python benchmarks/shakespeare_published.py [--released FOLDER]

Windows of a role's text end in padding. Whether a published accuracy counts it shows in its
denominator: with every digit, it is a whole number of right predictions over the positions that were
counted. FOLDER is a clone of the authors' repository, whose postprocess/csv holds the curves to 16
digits (https://github.com/garyxcheng/personalized-federated-learning); the least common denominator of
a data set's accuracies is found from these numbers alone. The curves that come with fedasym are
rounded to five decimals, which any denominator above 100,000 fits, and decide nothing. The positions
of the test set are counted in FEDASYM_DATA/shakespeare. Then the paper's accuracies, over all positions
as published and over real ones as if every padded position were right, beside those of docs/reproduction.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import fedasym as fa
from fedasym.core.errors import InvalidInput
from fedasym.experiments.reproduction import published_accuracies

ROOT = Path(__file__).resolve().parents[1] / "docs"
DATA = ("cifar", "fedemnist", "shakespeare", "stackoverflow")
LARGEST = 2_000_000  # no test set has more positions
NEAR = 1e-6  # from a whole number, in predictions


def read_released(folder: Path, data: str) -> Iterator[float]:
    """Every accuracy of the exported curves that is pooled over samples, smallest and largest left
    out, which repeat it.
    """
    for file in sorted(folder.glob(f"postprocess/csv/*/{data}/*.csv")):
        with file.open(newline="") as lines:
            for row in csv.DictReader(lines):
                for name, value in row.items():
                    kind = name.rsplit(" - ", 1)[-1]
                    pooled = "Accuracy" in kind and not kind.startswith("Average User")
                    if value and pooled and not name.endswith(("__MIN", "__MAX")):
                        yield float(value)


def common_denominator(values: list[float]) -> int:
    """The least number that makes all of them whole."""
    found = [Fraction(value).limit_denominator(LARGEST) for value in values]
    far = max(abs(float(each) - value) for each, value in zip(found, values, strict=True))
    if far > 1e-15:
        raise SystemExit(f"an accuracy is no fraction of at most {LARGEST:,}: off by {far:.2g}")
    return math.lcm(*(each.denominator for each in found))


def count_positions() -> tuple[int, int] | None:
    """All and real positions of the test samples; None without the files."""
    try:
        clients = fa.datasets.load("shakespeare")
    except (InvalidInput, OSError):
        return None
    test = clients.split == 2
    return int(clients.mask[test].size), int(clients.mask[test].sum())


def show_denominators(folder: Path, positions: tuple[int, int] | None) -> None:
    """What the released curves' accuracies are fractions of."""
    print("least common denominator of the released accuracies")
    for data in DATA:
        values = list(read_released(folder, data))
        if values:
            print(f"  {data:<14}{len(values):>7,} accuracies  {common_denominator(values):>10,}")
    values = list(read_released(folder, "shakespeare"))
    for words, count in zip(("all", "real"), positions or (), strict=False):
        whole = sum(abs(value * count - round(value * count)) < NEAR for value in values)
        print(
            f"  shakespeare times {count:,}, {words} positions: {whole:,} of {len(values):,} whole"
        )


def show_levels(total: int, real: int) -> None:
    """After round 400 over 11 seeds: the paper's and ours, with padding counted and without."""
    paper = published_accuracies("shakespeare")
    if paper.positions != (total, total - real):
        raise SystemExit(f"published.json has {paper.positions}, the files {total, total - real}")
    text = fa.Results.load(ROOT / "reproduction" / "shakespeare").finals("seeds")
    code = fa.Results.load(ROOT / "reproduction-wider" / "shakespeare-code").finals("seeds")
    print("\naccuracy after round 400 in percent, mean over 11 seeds")
    print(f"{'':<10}{'all positions':^18}{'real positions':^18}{'padding right, ours':>21}")
    print(f"{'':<10}{'paper':>8}{'ours':>8}{'paper':>10}{'ours':>8}")
    for name, curve in paper.trials["seeds"].items():
        published = 100 * curve.final.mean()
        stripped = 100 * paper.positions.without_padding(curve).final.mean()
        ours = 100 * text[name].mean()
        counted, right = "-", "-"
        if name in code:
            counted = f"{100 * code[name].mean():.2f}"
            share = (code[name].mean() * total - text[name].mean() * real) / (total - real)
            right = f"{100 * share:.1f}"
        print(f"{name:<10}{published:>8.2f}{counted:>8}{stripped:>10.2f}{ours:>8.2f}{right:>21}")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--released", type=Path, help="a clone of the authors' repository")
    given = asked.parse_args()
    positions = count_positions()
    if given.released is None:
        print("Give --released FOLDER, a clone of the authors' repository, for the denominators.")
    else:
        show_denominators(given.released, positions)
    if positions is None:
        where = os.environ.get("FEDASYM_DATA", "not set")
        print(f"No positions are counted: FEDASYM_DATA is {where}, without Shakespeare's files.")
        return
    total, real = positions
    padded = 100 * (total - real) / total
    print(f"\ntest positions: {total:,}, of which {real:,} real and {padded:.2f}% padding")
    show_levels(total, real)


if __name__ == "__main__":
    main()
