"""Paired comparisons of algorithms over trials, and the paper's findings held against them.

Trials are paired by their seed or split: what both algorithms share, the draw of cohorts or of
training samples, cancels. Every verdict rests on paired 95% intervals, so that it can be wrong by
chance but not by eye.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np

from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array, json_value, notebook_text, number
from fedasym.experiments import align_columns
from fedasym.training.wording import WIDTH

if TYPE_CHECKING:
    from fedasym.experiments.results import Results


LEVEL = 0.05
MARGIN = 0.005  # accuracies within half a point are the same for practical purposes
EXACT = 16  # up to this many trials every choice of signs is counted
DRAWS = 100_000  # beyond that, so many random ones
ROUNDING = 1e-12  # differences of accuracies that are the same but for rounding
PAIR_HEAD = ["sweep", "first", "second", "difference", "95% interval"]
PAIR_HEAD += ["p", "p, signs", "p, beyond margin", "verdict"]


@dataclass(frozen=True)
class Paired:
    """The difference of two algorithms over paired trials; NaN where a trial is not finite.

    low, high: 95% interval by Student's t. p: of no difference, by t; permutation: the same by
    flipping signs, which assumes nothing of the distribution. equivalence: p of a difference beyond
    the margin (two one-sided t tests), None without margin.
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
        # no choice of signs is rarer: with few trials that is above the level
        least = 2 / 2**self.trials
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
        known = ", ".join(str((p.sweep, p.first, p.second)) for p in self.pairs)
        raise KeyError(f"{which}: the comparisons are {known}")

    def table(self) -> list[dict[str, Any]]:
        """One record per pair: feed it to any data frame."""
        return [asdict(pair) | {"verdict": pair.verdict} for pair in self.pairs]

    def to_json(self) -> str:
        """Full precision."""
        rows = [
            {k: v if isinstance(v, str | int) else json_value(v) for k, v in row.items()}
            for row in self.table()
        ]
        return json.dumps(rows)

    def __str__(self) -> str:
        if not self.pairs:
            return "There is nothing to compare: it takes two algorithms and two trials."
        fraction = self.statistic != "loss"
        rows = [PAIR_HEAD]
        for pair in self.pairs:
            middle, low, high = (
                show_difference(each, fraction) for each in (pair.difference, pair.low, pair.high)
            )
            cells = [pair.sweep, pair.first, pair.second, middle, f"{low} to {high}"]
            cells += map(show_probability, (pair.p, pair.permutation, pair.equivalence))
            rows.append([*cells, pair.verdict])
        margin = self.pairs[0].margin
        unit = "points of accuracy" if fraction else "loss"
        told = [f"Difference: first minus second, in {unit}, paired by trial."]
        if margin is not None:
            told.append(f"Margin: {show_difference(margin, fraction).lstrip('+')}.")
        told.append(f"Each p is for one comparison; {len(self.pairs)} are shown.")
        told.append("Trials repeat training on the same clients and test samples:")
        told.append("other clients may differ by more.")
        return "\n".join([*align_columns(rows, left=3), "", *textwrap.wrap(" ".join(told), WIDTH)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return notebook_text(self)


def show_difference(value: float, fraction: bool) -> str:
    """A difference: accuracies in points."""
    if np.isnan(value):
        return "-"
    return f"{100 * value:+.2f}" if fraction else f"{'+' if value >= 0 else ''}{number(value)}"


def show_probability(value: float | None) -> str:
    """A probability."""
    if value is None or np.isnan(value):
        return "-"
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def compare_finals(
    finals: Mapping[str, Mapping[str, Array]],
    pairs: Iterable[tuple[str, str]] | None,
    margin: float | None,
    statistic: str,
) -> Comparisons:
    """Compare algorithms in every sweep; `finals`: a number per trial, by sweep and algorithm."""
    if margin is not None and not (np.isfinite(margin) and margin > 0):
        raise InvalidInput(
            f"margin is {margin!r}: it must be finite and above 0; leave it out for none"
        )
    asked = None if pairs is None else [tuple(pair) for pair in pairs]
    found = []
    for sweep, by_name in finals.items():
        names = list(by_name)
        wanted = asked or list(combinations(names, 2))
        for first, second in wanted:
            if missing := [name for name in (first, second) if name not in by_name]:
                raise InvalidInput(
                    f"pairs has {missing[0]}, which has no trials: those that have are"
                    f" {', '.join(names)}"
                )
            if len(by_name[first]) > 1:
                apart = by_name[first] - by_name[second]
                found.append(compare_pair(sweep, first, second, apart, margin))
    return Comparisons(tuple(found), statistic)


def compare_pair(
    sweep: str, first: str, second: str, differences: Array, margin: float | None
) -> Paired:
    """Tests and interval of one pair.

    >>> pair = compare_pair(
    ...     "seeds", "ftfa", "maml_fo", np.array([0.001, -0.001, 0.002, 0.0, -0.001]), 0.005
    ... )
    >>> pair.verdict, round(pair.difference, 6)
    ('the same within the margin', 0.0002)
    """
    from scipy.stats import ttest_1samp

    n = len(differences)
    mean = float(differences.mean())
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
    told = (float(low), float(high), float(test.pvalue), flipped, margin, equivalence)
    return Paired(sweep, first, second, n, mean, *told)


def sign_flips(differences: Array) -> float:
    """How often the mean is as far from 0 when each difference's sign is chosen by chance.

    >>> sign_flips(np.array([1.0, 2.0, 3.0]))
    0.25
    """
    n = len(differences)
    if not np.isfinite(differences).all():
        return float("nan")
    if n <= EXACT:
        signs = 1 - 2 * (np.arange(2**n)[:, None] >> np.arange(n) & 1)
        return float(np.mean(is_extreme(signs @ differences, differences)))
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (DRAWS, n))
    return float((is_extreme(signs @ differences, differences).sum() + 1) / (DRAWS + 1))


def is_extreme(sums: Array, differences: Array) -> Any:
    """Which sums are as far from 0 as the one that was seen, up to rounding."""
    seen = abs(differences.sum())
    return np.abs(sums) >= seen - ROUNDING * np.abs(differences).sum()


POINT = 0.01  # what counts as the same: a point of accuracy, as the paper's curves lie
PERSONAL = ("ftfa", "rtfa", "maml_fo", "maml_hf")
LOWER = ("fedavg", "local")
SUPPORTED, REFUTED, UNDECIDED = "supported", "not supported", "undecided"


@dataclass(frozen=True)
class Claim:
    """One finding: what it says, what came of it, and why."""

    says: str
    sweep: str
    verdict: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Claims:
    """All findings that the results can speak to; prints itself."""

    name: str
    found: tuple[Claim, ...]

    def to_json(self) -> str:
        """Full text of every claim."""
        claims = [asdict(claim) for claim in self.found]
        return json.dumps({"name": self.name, "claims": claims}, indent=2)

    def __str__(self) -> str:
        units = "differences in points, paired 95% intervals"
        lines = [f"{self.name}: the paper's findings on these runs ({units})"]
        for claim in self.found:
            lines += ["", f"{claim.verdict.upper()}, over {claim.sweep}: {claim.says}"]
            lines += [f"  {each}" for each in claim.evidence]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return notebook_text(self)


def check_claims(results: Results, margin: float = POINT) -> Claims:
    """Hold the paper's findings against results: which of them these runs support.

    margin: the difference in accuracy within which algorithms count as the same.
    """
    if results.task != "classification":
        raise InvalidInput(
            "the paper's findings are about accuracy: these results are of a regression"
        )
    found: list[Claim] = []
    for sweep in ("seeds", "splits"):
        finals = {name: values for name, values in results.finals(sweep).items() if len(values) > 1}
        same = claim_same(finals, sweep, margin)
        claims = (same, claim_above(finals, sweep), claim_between(finals, sweep))
        found += [claim for claim in claims if claim]
    found += claim_growing(results)
    if not found:
        raise InvalidInput(
            "there is nothing to check: the findings compare algorithms over at least two seeds or"
            " splits"
        )
    return Claims(results.experiment.name, tuple(found))


Finals = dict[str, np.ndarray]


def compare_all(
    finals: Finals, sweep: str, pairs: Iterable[tuple[str, str]], margin: float | None = None
) -> list[Paired]:
    """Every pair, the first less the second."""
    return [
        compare_pair(sweep, first, second, finals[first] - finals[second], margin)
        for first, second in pairs
    ]


def claim_same(finals: Finals, sweep: str, margin: float) -> Claim | None:
    """FTFA, RTFA and MAML come to the same."""
    names = [name for name in PERSONAL if name in finals]
    pairs = compare_all(finals, sweep, combinations(names, 2), margin)
    if not pairs:
        return None
    within = [pair.equivalence is not None and pair.equivalence < 0.05 for pair in pairs]
    outside = [pair.low > margin or pair.high < -margin for pair in pairs]
    verdict = SUPPORTED if all(within) else REFUTED if any(outside) else UNDECIDED
    points = f"{100 * margin:g} point{'' if margin == 0.01 else 's'}"
    says = f"{join_with_and(names)} come to the same, within {points}"
    return Claim(says, sweep, verdict, tuple(map(describe_difference, pairs)))


def claim_above(finals: Finals, sweep: str) -> Claim | None:
    """Personalised models beat the shared one and local training."""
    high, low = ([name for name in names if name in finals] for names in (PERSONAL, LOWER))
    pairs = compare_all(finals, sweep, product(high, low))
    if not pairs:
        return None
    says = f"{join_with_and(high)} are above {join_with_and(low)}"
    return Claim(says, sweep, judge_order(pairs), tuple(map(describe_difference, pairs)))


def claim_between(finals: Finals, sweep: str) -> Claim | None:
    """PFedMe lies between FedAvg and the personalised."""
    high = [name for name in PERSONAL if name in finals]
    if not high or "fedavg" not in finals or "pfedme" not in finals:
        return None
    lowest = min(high, key=lambda name: float(np.mean(finals[name])))
    pairs = compare_all(finals, sweep, [("pfedme", "fedavg"), (lowest, "pfedme")])
    says = f"pfedme is between fedavg and the others ({lowest} is the lowest of them)"
    return Claim(says, sweep, judge_order(pairs), tuple(map(describe_difference, pairs)))


def claim_growing(results: Results) -> list[Claim]:
    """More personalization is better, step by step."""
    claims = []
    last = results.experiment.settings.rounds
    rows = [row for row in results.gains.iter_rows(named=True) if row["round"] == last]
    for name in dict.fromkeys(row["algorithm"] for row in rows):
        by_epochs: dict[str, dict[int, float]] = {}
        for row in rows:
            if row["algorithm"] == name:
                by_epochs.setdefault(row["epochs"], {})[row["trial"]] = row["accuracy"]
        amounts = sorted(by_epochs, key=lambda amount: 0.5 if amount == "batch" else float(amount))
        trials = sorted(set.intersection(*(set(values) for values in by_epochs.values())))
        if len(amounts) < 2 or len(trials) < 2:
            continue
        finals = {each: np.array([by_epochs[each][trial] for trial in trials]) for each in amounts}
        order = [(more, less) for less, more in pairwise(amounts)]
        *steps, whole = compare_all(finals, "seeds", [*order, (amounts[-1], amounts[0])])
        falls = any(step.high < 0 for step in steps)
        verdict = REFUTED if falls or whole.high < 0 else SUPPORTED if whole.low > 0 else UNDECIDED
        lines = tuple(describe_difference(step, " epoch") for step in (*steps, whole))
        says = f"the gains of {name} grow with its personalization epochs"
        claims.append(Claim(says, "seeds", verdict, lines))
    return claims


def judge_order(pairs: Sequence[Paired]) -> str:
    """Whether the first of every pair is above its second."""
    if all(pair.low > 0 for pair in pairs):
        return SUPPORTED
    return REFUTED if any(pair.high < 0 for pair in pairs) else UNDECIDED


def describe_difference(pair: Paired, unit: str = "") -> str:
    """A difference with its interval, in points."""

    def words(name: str) -> str:
        plain = f"{name}{unit}{'s' if unit and name != '1' else ''}"
        return f"one {name}" if name == "batch" else plain

    ends = f"{100 * pair.low:+.2f} to {100 * pair.high:+.2f}"
    return f"{words(pair.first)} - {words(pair.second)}: {100 * pair.difference:+.2f} ({ends})"


def join_with_and(names: Sequence[str]) -> str:
    """Names as in a sentence.

    >>> join_with_and(["ftfa"]), join_with_and(["ftfa", "rtfa", "maml_fo"])
    ('ftfa', 'ftfa, rtfa and maml_fo')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
