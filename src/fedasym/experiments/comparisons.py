"""Paired comparisons of algorithms over trials: by how much, how surely, and whether they are the same for practical purposes.

Trials are paired by their seed or split: what both algorithms share, the draw of cohorts or of training samples, cancels.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput
from fedasym.core.text import number, plain, preformatted
from fedasym.experiments.wording import flush
from fedasym.training.wording import WIDTH

LEVEL = 0.05
MARGIN = 0.005  # accuracies within half a point are the same for practical purposes
EXACT = 16  # up to this many trials every choice of signs is counted
DRAWS = 100_000  # beyond that, so many random ones
ROUNDING = 1e-12  # differences of accuracies that are the same but for rounding


@dataclass(frozen=True)
class Paired:
    """The difference of two algorithms over paired trials, first minus second; NaN where a trial is not finite.

    low, high: 95% interval by Student's t. p: of no difference, by t; permutation: the same by flipping signs, which assumes
    nothing of the distribution. equivalence: p of a difference beyond the margin (two one-sided t tests), None without margin.
    """

    sweep: str
    first: str
    second: str
    trials: int
    difference: float
    low: float
    high: float
    p: float
    permutation: float
    margin: float | None
    equivalence: float | None

    @property
    def verdict(self) -> str:
        """In words, at the 5% level."""
        if not np.isfinite(self.p):
            return "-"
        same = self.equivalence is not None and self.equivalence < LEVEL
        least = 2 / 2**self.trials  # no choice of signs is rarer: with few trials that is above the level
        different = self.p < LEVEL and self.permutation <= max(LEVEL, least)
        if same:
            return "different, but within the margin" if different else "the same within the margin"
        return "different" if different else "not told apart"


@dataclass(frozen=True, repr=False)
class Comparisons:
    """All pairs that were asked for; prints itself."""

    pairs: tuple[Paired, ...]
    statistic: str

    def __getitem__(self, which: tuple[str, str, str]) -> Paired:
        for pair in self.pairs:
            if (pair.sweep, pair.first, pair.second) == which:
                return pair
        raise KeyError(f"{which}: the comparisons are {', '.join(str((p.sweep, p.first, p.second)) for p in self.pairs)}")

    def table(self) -> list[dict[str, Any]]:
        """One record per pair: feed it to any data frame."""
        return [asdict(pair) | {"verdict": pair.verdict} for pair in self.pairs]

    def to_json(self) -> str:
        """Full precision."""
        return json.dumps([{k: v if isinstance(v, str | int) else plain(v) for k, v in row.items()} for row in self.table()])

    def __str__(self) -> str:
        if not self.pairs:
            return "There is nothing to compare: it takes two algorithms and two trials."
        fraction = self.statistic != "loss"
        head = ["sweep", "first", "second", "difference", "95% interval", "p", "p, signs", "p, beyond margin", "verdict"]
        rows = [head]
        for pair in self.pairs:
            ends = f"{shown(pair.low, fraction)} to {shown(pair.high, fraction)}"
            cells = [pair.sweep, pair.first, pair.second, shown(pair.difference, fraction), ends]
            cells += [small(pair.p), small(pair.permutation)]
            rows.append([*cells, "-" if pair.equivalence is None else small(pair.equivalence), pair.verdict])
        margin = self.pairs[0].margin
        unit = "points of accuracy" if fraction else "loss"
        told = [f"Difference: first minus second, in {unit}, paired by trial."]
        if margin is not None:
            told.append(f"Margin: {shown(margin, fraction).lstrip('+')}.")
        told.append(f"Each p is for one comparison; {len(self.pairs)} are shown.")
        told.append("Trials repeat training on the same clients and test samples: other clients may differ by more.")
        return "\n".join([*flush(rows, left=3), "", *textwrap.wrap(" ".join(told), WIDTH)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return preformatted(self)


def shown(value: float, fraction: bool) -> str:
    """A difference: accuracies in points."""
    if np.isnan(value):
        return "-"
    return f"{100 * value:+.2f}" if fraction else f"{'+' if value >= 0 else ''}{number(value)}"


def small(value: float) -> str:
    """A probability."""
    return "-" if np.isnan(value) else "<0.001" if value < 0.001 else f"{value:.3f}"


def compared(
    finals: Mapping[str, Mapping[str, Array]], pairs: Iterable[tuple[str, str]] | None, margin: float | None, statistic: str
) -> Comparisons:
    """Compare algorithms in every sweep; `finals` holds a number per trial, by sweep and algorithm."""
    if margin is not None and not (np.isfinite(margin) and margin > 0):
        raise InvalidInput(f"margin is {margin!r}: it must be finite and above 0; leave it out for none")
    asked = None if pairs is None else [tuple(pair) for pair in pairs]
    found = []
    for sweep, by_name in finals.items():
        names = list(by_name)
        wanted = asked or [(first, second) for i, first in enumerate(names) for second in names[i + 1 :]]
        for first, second in wanted:
            for name in (first, second):
                if name not in by_name:
                    raise InvalidInput(f"pairs has {name}, which has no trials: those that have are {', '.join(names)}")
            if len(by_name[first]) > 1:
                found.append(paired(sweep, first, second, by_name[first] - by_name[second], margin))
    return Comparisons(tuple(found), statistic)


def paired(sweep: str, first: str, second: str, differences: Array, margin: float | None) -> Paired:
    """Tests and interval of one pair.

    >>> pair = paired("seeds", "ftfa", "maml_fo", np.array([0.001, -0.001, 0.002, 0.0, -0.001]), 0.005)
    >>> pair.verdict, round(pair.difference, 6)
    ('the same within the margin', 0.0002)
    """
    from scipy.stats import ttest_1samp

    n, mean = len(differences), float(differences.mean())
    flipped = sign_flips(differences)
    if np.ptp(differences) <= ROUNDING * np.abs(differences).max():  # no variance, so no t

        def exceed(threshold: float) -> float:
            return 0.0 if mean > threshold else 1.0 if mean < threshold else 0.5

        p = 2 * min(exceed(0.0), 1 - exceed(0.0))
        equivalence = None if margin is None else max(exceed(-margin), 1 - exceed(margin))
        return Paired(sweep, first, second, n, mean, mean, mean, p, flipped, margin, equivalence)
    test = ttest_1samp(differences, 0.0)
    low, high = test.confidence_interval(1 - LEVEL)
    equivalence = None
    if margin is not None:
        above = ttest_1samp(differences, -margin, alternative="greater").pvalue
        below = ttest_1samp(differences, margin, alternative="less").pvalue
        equivalence = float(max(above, below))
    ends = float(low), float(high)
    return Paired(sweep, first, second, n, mean, *ends, float(test.pvalue), flipped, margin, equivalence)


def sign_flips(differences: Array) -> float:
    """How often the mean is at least as far from 0 when the sign of every difference is chosen by chance.

    >>> sign_flips(np.array([1.0, 2.0, 3.0]))
    0.25
    """
    n = len(differences)
    if not np.isfinite(differences).all():
        return float("nan")
    if n <= EXACT:
        signs = 1 - 2 * (np.arange(2**n)[:, None] >> np.arange(n) & 1)
        return float(np.mean(far(signs @ differences, differences)))
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (DRAWS, n))
    return float((far(signs @ differences, differences).sum() + 1) / (DRAWS + 1))


def far(sums: Array, differences: Array) -> Any:
    """Which sums are as far from 0 as the one that was seen, up to rounding."""
    seen = abs(differences.sum())
    return np.abs(sums) >= seen - ROUNDING * np.abs(differences).sum()
