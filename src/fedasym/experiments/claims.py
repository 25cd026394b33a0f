"""The paper's findings, held against an experiment's results: supported, not supported or undecided, with the numbers.

Every verdict rests on paired 95% intervals over trials, so that it can be wrong by chance but not by eye.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import numpy as np

from fedasym.core.errors import InvalidInput
from fedasym.core.text import notebook_text as preformatted
from fedasym.experiments.comparisons import Paired, paired

if TYPE_CHECKING:
    from fedasym.experiments.results import Results

MARGIN = 0.01  # what counts as the same: a point of accuracy, as the paper's curves lie
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
        return json.dumps({"name": self.name, "claims": [asdict(claim) for claim in self.found]}, indent=2)

    def __str__(self) -> str:
        lines = [f"{self.name}: the paper's findings on these runs (differences in points, paired 95% intervals)"]
        for claim in self.found:
            lines += ["", f"{claim.verdict.upper()}, over {claim.sweep}: {claim.says}"]
            lines += [f"  {each}" for each in claim.evidence]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return preformatted(self)


def check(results: Results, margin: float = MARGIN) -> Claims:
    """Hold the paper's findings against results: which of them these runs support.

    margin: the difference in accuracy within which algorithms count as the same.
    """
    if results.task != "classification":
        raise InvalidInput("the paper's findings are about accuracy: these results are of a regression")
    found: list[Claim] = []
    for sweep in ("seeds", "splits"):
        finals = {name: values for name, values in results.finals(sweep).items() if len(values) > 1}
        found += [claim for claim in (same(finals, sweep, margin), above(finals, sweep), between(finals, sweep)) if claim]
    found += growing(results)
    if not found:
        raise InvalidInput("there is nothing to check: the findings compare algorithms over at least two seeds or splits")
    return Claims(results.experiment.name, tuple(found))


Finals = dict[str, np.ndarray]


def same(finals: Finals, sweep: str, margin: float) -> Claim | None:
    """FTFA, RTFA and MAML come to the same."""
    names = [name for name in PERSONAL if name in finals]
    pairs = [paired(sweep, first, second, finals[first] - finals[second], margin) for first, second in combinations(names, 2)]
    if not pairs:
        return None
    within = [pair.equivalence is not None and pair.equivalence < 0.05 for pair in pairs]
    outside = [pair.low > margin or pair.high < -margin for pair in pairs]
    verdict = SUPPORTED if all(within) else REFUTED if any(outside) else UNDECIDED
    says = f"{listed(names)} come to the same, within {100 * margin:g} point{'' if margin == 0.01 else 's'}"
    return Claim(says, sweep, verdict, tuple(map(spoken, pairs)))


def above(finals: Finals, sweep: str) -> Claim | None:
    """Personalised models beat the shared one and local training."""
    high, low = ([name for name in names if name in finals] for names in (PERSONAL, LOWER))
    pairs = [paired(sweep, first, second, finals[first] - finals[second], None) for first in high for second in low]
    if not pairs:
        return None
    return Claim(f"{listed(high)} are above {listed(low)}", sweep, ordered(pairs), tuple(map(spoken, pairs)))


def between(finals: Finals, sweep: str) -> Claim | None:
    """PFedMe lies between FedAvg and the personalised."""
    high = [name for name in PERSONAL if name in finals]
    if not high or "fedavg" not in finals or "pfedme" not in finals:
        return None
    lowest = min(high, key=lambda name: float(np.mean(finals[name])))
    order = [("pfedme", "fedavg"), (lowest, "pfedme")]
    pairs = [paired(sweep, first, second, finals[first] - finals[second], None) for first, second in order]
    says = f"pfedme is between fedavg and the others ({lowest} is the lowest of them)"
    return Claim(says, sweep, ordered(pairs), tuple(map(spoken, pairs)))


def growing(results: Results) -> list[Claim]:
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
        finals = {amount: np.array([by_epochs[amount][trial] for trial in trials]) for amount in amounts}
        steps = [paired("seeds", more, less, finals[more] - finals[less], None) for less, more in pairwise(amounts)]
        whole = paired("seeds", amounts[-1], amounts[0], finals[amounts[-1]] - finals[amounts[0]], None)
        falls = any(step.high < 0 for step in steps)
        verdict = REFUTED if falls or whole.high < 0 else SUPPORTED if whole.low > 0 else UNDECIDED
        lines = [spoken(step, " epoch") for step in (*steps, whole)]
        claims.append(Claim(f"the gains of {name} grow with its personalization epochs", "seeds", verdict, tuple(lines)))
    return claims


def ordered(pairs: Sequence[Paired]) -> str:
    """Whether the first of every pair is above its second."""
    if all(pair.low > 0 for pair in pairs):
        return SUPPORTED
    return REFUTED if any(pair.high < 0 for pair in pairs) else UNDECIDED


def spoken(pair: Paired, unit: str = "") -> str:
    """A difference with its interval, in points."""

    def words(name: str) -> str:
        return f"one {name}" if name == "batch" else f"{name}{unit}{'s' if unit and name != '1' else ''}"

    ends = f"{100 * pair.low:+.2f} to {100 * pair.high:+.2f}"
    return f"{words(pair.first)} - {words(pair.second)}: {100 * pair.difference:+.2f} ({ends})"


def listed(names: Sequence[str]) -> str:
    """Names in words."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
