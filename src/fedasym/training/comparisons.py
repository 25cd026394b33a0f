"""Paired comparisons of algorithms: over trials (seeds or splits) and over the clients' test sets.

Both algorithms are measured in the same trials and on the same test samples of the same clients, so
what they share cancels. A difference d_ti of trial t and client i varies with both,

    d_ti = difference + trial_t + client_i + rest_ti,

and its weighted mean over clients and mean over trials has the variance

    V = V_trials + V_clients - V_rest

of two crossed factors: V_trials is the variance between trials, V_clients that between clients, and
V_rest is contained in both (Cameron, Gelbach and Miller 2011; Owen 2007 on the bootstrap of two
factors). The client's term holds its test samples: a test set of few samples, or of few clients,
widens the interval however many seeds there are. Where clients are not known, a verdict says that
the test samples are not counted.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array, TextTable, html_tables, json_value, latex_tables, number
from fedasym.training.wording import WIDTH

LEVEL = 0.05
MARGIN = 0.005  # accuracies within half a point are the same for practical purposes
EXACT = 16  # up to this many trials every choice of signs is counted
DRAWS = 100_000  # beyond that, so many random ones
ROUNDING = 1e-12  # differences of accuracies that are the same but for rounding
PAIR_HEAD = ["sweep", "first", "second", "difference", "95% interval"]
PAIR_HEAD += ["p", "p, signs", "p, beyond margin", "verdict"]


class Verdict(StrEnum):
    """What a paired comparison says at the 5% level."""

    DIFFERENT = "different"
    WITHIN = "different, but within the margin"
    SAME = "the same within the margin"
    OPEN = "no difference found"
    NONE = "-"


class Omission(StrEnum):
    """What an interval leaves out."""

    NOTHING = ""
    TEST_SAMPLES = "test samples not counted"
    TRIALS = "one trial: other seeds not counted"


class ClientValues(NamedTuple):
    """A statistic by trial and client: (trials, clients), and how much each client counts."""

    values: Array
    weights: Array

    def mean(self) -> Array:
        """The statistic of every trial."""
        return np.asarray(self.values @ self.weights)


Measured = Array | ClientValues  # a number per trial, or one per trial and client


@dataclass(frozen=True)
class Paired:
    """The difference of two algorithms over paired trials and clients; NaN where one is not finite.

    clients: how many clients were tested; None where the test set is not counted.
    error: the standard error. low, high: 95% interval by Student's t. p: of no difference, by t;
    permutation: the same over trials alone by flipping signs, which assumes nothing of the
    distribution. equivalence: p of a difference beyond the margin (two one-sided t tests), None
    without margin.
    """

    sweep: str
    first: str
    second: str
    trials: int
    clients: int | None
    difference: float
    error: float
    low: float
    high: float
    p: float
    permutation: float
    margin: float | None
    equivalence: float | None

    @property
    def verdict(self) -> Verdict:
        """At the 5% level."""
        if not np.isfinite(self.p):
            return Verdict.NONE
        same = self.equivalence is not None and self.equivalence < LEVEL
        # no choice of signs is rarer: with few trials that is above the level
        least = 2 / 2**self.trials
        different = self.p < LEVEL and self.permutation <= max(LEVEL, least)
        if same:
            return Verdict.WITHIN if different else Verdict.SAME
        return Verdict.DIFFERENT if different else Verdict.OPEN

    @property
    def omission(self) -> Omission:
        """What the verdict does not count."""
        if self.clients is None:
            return Omission.TEST_SAMPLES
        return Omission.TRIALS if self.trials == 1 else Omission.NOTHING

    @property
    def conclusion(self) -> str:
        """The verdict, with what it leaves out."""
        if self.verdict is Verdict.NONE or not self.omission:
            return str(self.verdict)
        return f"{self.verdict} ({self.omission})"


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
        return [
            asdict(pair) | {"verdict": str(pair.verdict), "omission": str(pair.omission)}
            for pair in self.pairs
        ]

    def to_json(self) -> str:
        """Full precision."""
        rows = [
            {k: v if isinstance(v, str | int) else json_value(v) for k, v in row.items()}
            for row in self.table()
        ]
        return json.dumps(rows)

    def to_latex(self) -> str:
        """The table for a paper; it needs the package booktabs."""
        return latex_tables(self.printed_tables())

    def printed_tables(self) -> list[TextTable]:
        """The table as it is printed."""
        fraction = self.statistic != "loss"
        rows = []
        for pair in self.pairs:
            middle, low, high = (
                show_difference(each, fraction) for each in (pair.difference, pair.low, pair.high)
            )
            cells = [pair.sweep, pair.first, pair.second, middle, f"{low} to {high}"]
            cells += map(show_probability, (pair.p, pair.permutation, pair.equivalence))
            rows.append([*cells, pair.conclusion])
        return [TextTable(PAIR_HEAD, rows, "Paired comparisons", left=3, last_left=True)]

    @property
    def notes(self) -> tuple[str, ...]:
        """What is compared, and what the intervals count."""
        if not self.pairs:
            return ()
        fraction = self.statistic != "loss"
        margin = self.pairs[0].margin
        unit = "points of accuracy" if fraction else "loss"
        told = [f"Difference: first minus second, in {unit}, paired by trial and client."]
        if margin is not None:
            told.append(f"Margin: {show_difference(margin, fraction).lstrip('+')}.")
        told.append(f"Each p is for one comparison; {len(self.pairs)} are shown.")
        counted = [pair.clients for pair in self.pairs if pair.clients is not None]
        if counted:
            told.append(
                f"Intervals count the trials and the test samples of the {max(counted)}"
                " clients, as a sample of such clients; p, signs: trials alone."
            )
        if any(pair.clients is None for pair in self.pairs):
            told.append(
                "Where test samples are not counted, other test samples may differ by more."
            )
        return tuple(told)

    def __str__(self) -> str:
        if not self.pairs:
            return "There is nothing to compare: it takes two algorithms and two trials."
        [table] = self.printed_tables()
        return "\n".join([*table.lines(), "", *textwrap.wrap(" ".join(self.notes), WIDTH)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_tables(self.printed_tables(), notes=self.notes)


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
    finals: Mapping[str, Mapping[str, Measured]],
    pairs: Iterable[tuple[str, str]] | None,
    margin: float | None,
    statistic: str,
) -> Comparisons:
    """Compare algorithms in every sweep; `finals`: what was measured, by sweep and algorithm."""
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
            apart = subtract(by_name[first], by_name[second])
            if isinstance(apart, ClientValues) or len(apart) > 1:
                found.append(compare_pair(sweep, first, second, apart, margin))
    return Comparisons(tuple(found), statistic)


def subtract(first: Measured, second: Measured) -> Measured:
    """The differences of what was measured; by client where both are known so."""
    if (
        isinstance(first, ClientValues)
        and isinstance(second, ClientValues)
        and first.values.shape == second.values.shape
    ):
        return ClientValues(first.values - second.values, first.weights)
    one, other = (
        each.mean() if isinstance(each, ClientValues) else each for each in (first, second)
    )
    return np.asarray(one - other)


def compare_pair(
    sweep: str, first: str, second: str, differences: Measured, margin: float | None
) -> Paired:
    """Tests and interval of one pair.

    >>> trials = np.array([0.001, -0.001, 0.002, 0.0, -0.001])
    >>> pair = compare_pair("seeds", "ftfa", "maml_fo", trials, 0.005)
    >>> pair.conclusion, round(pair.difference, 6)
    ('the same within the margin (test samples not counted)', 0.0002)
    >>> clients = ClientValues(trials[:, None] + [-0.1, 0.1, 0.0, 0.0], np.full(4, 0.25))
    >>> compare_pair("seeds", "ftfa", "maml_fo", clients, 0.005).conclusion
    'no difference found'
    """
    from scipy.stats import t

    by_trial = differences.mean() if isinstance(differences, ClientValues) else differences
    many = len(by_trial)
    mean = float(by_trial.mean())
    flipped = sign_flips(by_trial)
    clients: int | None = None
    if isinstance(differences, ClientValues) and np.count_nonzero(differences.weights) > 1:
        clients = int(np.count_nonzero(differences.weights))
        error, freedom = crossed_error(differences)
    else:  # the test samples of one client cannot be told from its difference
        error, freedom = trial_error(by_trial), float(many - 1)
    what = (sweep, first, second, many, clients)
    if not np.isfinite(error):
        unknown = float("nan")
        ends = (unknown, unknown, unknown, unknown)
        return Paired(*what, mean, *ends, flipped, margin, None if margin is None else unknown)

    def p_value(threshold: float) -> float:
        """The p-value of a difference that is at most the threshold."""
        if error == 0:
            return 0.0 if mean > threshold else 1.0 if mean < threshold else 0.5
        return float(t.sf((mean - threshold) / error, freedom))

    half = float(t.isf(LEVEL / 2, freedom)) * error if error else 0.0
    p = 2 * min(p_value(0.0), 1 - p_value(0.0))
    equivalence = None if margin is None else max(p_value(-margin), 1 - p_value(margin))
    low, high = mean - half, mean + half
    return Paired(*what, mean, error, low, high, p, flipped, margin, equivalence)


def trial_error(differences: Array) -> float:
    """The standard error of a mean over trials; 0 where they differ by rounding alone."""
    if len(differences) < 2:
        return float("nan")
    if np.ptp(differences) <= ROUNDING * np.abs(differences).max():
        return 0.0
    return float(differences.std(ddof=1) / np.sqrt(len(differences)))


def crossed_error(differences: ClientValues) -> tuple[float, float]:
    """The standard error of a mean over trials and clients, both drawn, and its degrees of freedom.

    Every term is unbiased where the clients' variances are equal; degrees of freedom by
    Satterthwaite, clients counted by their weights. With one trial, of the clients alone.

    >>> additive = np.array([[-1.0], [0.0], [1.0]]) + [-2.0, 2.0]  # trials 1/3, clients 8/2
    >>> error, freedom = crossed_error(ClientValues(additive, np.full(2, 0.5)))
    >>> round(error**2, 6), round(freedom, 3)
    (4.333333, 1.17)
    """
    counted = differences.weights > 0
    w = differences.weights[counted] / differences.weights[counted].sum()
    d = differences.values[:, counted]
    trials = len(d)
    S = float(w @ w)
    if not np.isfinite(d).all():
        return float("nan"), float("nan")
    by_trial, by_client = d @ w, d.mean(0)
    mean = float(by_trial.mean())
    room = 1 - 2 * w + S  # the share of a client's variance that is left in its residual
    if np.abs(d).max() == 0:
        return 0.0, float(max(trials - 1, 1))
    of_clients = float(np.sum(w**2 * (by_client - mean) ** 2 / room))
    effective = S**2 / float(np.sum(w**4)) - 1
    if trials == 1:
        return float(np.sqrt(of_clients)), max(effective, 1.0)
    rest = d - by_trial[:, None] - by_client + mean
    of_rest = float(np.sum(w**2 * (rest**2).sum(0) / room)) / (trials * (trials - 1))
    of_trials = float(by_trial.var(ddof=1)) / trials
    variance = max(of_trials + of_clients - of_rest, of_trials, of_clients)
    if variance == 0:
        return 0.0, float(trials - 1)
    parts = of_trials**2 / (trials - 1) + of_clients**2 / max(effective, 1.0)
    return float(np.sqrt(variance)), max(variance**2 / parts, 1.0)


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
