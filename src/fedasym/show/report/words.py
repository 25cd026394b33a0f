"""What an experiment found, in sentences: who is best, how far the others are behind, how surely."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fedasym.core.arrays import Array
from fedasym.core.text import number
from fedasym.experiments.printing import SWEEPS
from fedasym.experiments.wording import spoken
from fedasym.show.report.curves import Curves
from fedasym.show.report.tables import minus
from fedasym.training.wording import cell

if TYPE_CHECKING:
    from fedasym.experiments.comparisons import Comparisons, Paired
    from fedasym.experiments.results import Results

CLOSE = {  # verdicts on which an algorithm is as good as the best, and how that is said
    ("the same within the margin", "different, but within the margin"): "within {} of it",
    ("not told apart",): "not told apart from it",
}


def facts(results: Results) -> list[str]:
    """Sizes, in a few words each."""
    data, told, trials = results.data, results.experiment.settings, results.experiment.trials
    outputs = "" if results.task == "regression" else f", {data.outputs} classes"
    found = [
        plural(len(data.clients), "client"),
        " · ".join(f"{name} {many:,}" for name, many in data.counts.items()) + " samples",
        f"{data.dimension} features{outputs}",
        plural(told.rounds, "round"),
        f"protocol {told.rules.name}",
    ]
    repeats = [f"{sweep} {spoken(getattr(trials, sweep))}" for sweep in SWEEPS if getattr(trials, sweep)]
    return [*found, *repeats]


def plural(many: int, thing: str) -> str:
    """A count and what is counted.

    >>> plural(1, "seed"), plural(1200, "client")
    ('1 seed', '1,200 clients')
    """
    return f"{many:,} {thing}{'' if many == 1 else 's'}"


def leader(results: Results, sweep: str) -> str | None:
    """The algorithm with the best mean after the last round; None where there is no number."""
    means = {name: float(values.mean()) for name, values in results.finals(sweep).items()}
    finite = {name: mean for name, mean in means.items() if math.isfinite(mean)}
    sign = -1 if results.statistic == "loss" else 1
    return max(finite, key=lambda name: sign * finite[name]) if finite else None


def headline(results: Results, paired: Comparisons) -> list[str]:
    """The answer first: who is best in each sweep, and who cannot be told from it."""
    told = []
    for sweep in SWEEPS:
        best = leader(results, sweep)
        if best is None:
            continue
        finals = results.finals(sweep)
        what = "test loss" if results.statistic == "loss" else "test accuracy"
        trials = plural(len(finals[best]), sweep.removesuffix("s"))
        text = f"Over {trials}, {best} has the best {what}: {ends(results, finals[best])}"
        pairs = with_leader(paired, sweep, best)
        for verdicts, words in CLOSE.items():
            if names := [other(pair, best) for pair in pairs if pair.verdict in verdicts]:
                near = words.format(amount(pairs[0].margin, loss=results.statistic == "loss"))
                text += f"; {listed(names)} {'is' if len(names) == 1 else 'are'} {near}"
        told.append(text + ".")
    return told or ["There are no finished trials yet."]


def amount(margin: float | None, *, loss: bool) -> str:
    """What counts as the same, with its unit.

    >>> amount(0.005, loss=False)
    '0.5 points'
    """
    return "" if margin is None else number(margin) if loss else f"{100 * margin:g} points"


def listed(names: list[str]) -> str:
    """Names as in a sentence.

    >>> listed(["ftfa"]), listed(["ftfa", "rtfa", "maml_fo"])
    ('ftfa', 'ftfa, rtfa and maml_fo')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def ends(results: Results, values: Array) -> str:
    """A mean with its worst and best trial."""
    mean = cell(results.statistic, float(values.mean())).replace("%", " %")
    if len(values) < 2:
        return mean
    worst, best = sorted(map(float, (values.min(), values.max())), reverse=results.statistic == "loss")
    return f"{mean} (worst trial {short(results, worst)}, best {short(results, best)})"


def short(results: Results, value: float) -> str:
    """A value without its unit."""
    return cell(results.statistic, value).removesuffix("%")


def with_leader(paired: Comparisons, sweep: str, best: str) -> list[Paired]:
    """The comparisons in which the best algorithm takes part."""
    return [pair for pair in paired.pairs if pair.sweep == sweep and best in (pair.first, pair.second)]


def other(pair: Paired, name: str) -> str:
    """The algorithm that a pair compares with another."""
    return pair.second if pair.first == name else pair.first


def against_best(results: Results, paired: Comparisons, sweep: str) -> list[str]:
    """How far every other algorithm is behind the best, the nearest first."""
    best = leader(results, sweep)
    if best is None:
        return []
    pairs = with_leader(paired, sweep, best)
    pairs.sort(key=lambda pair: abs(pair.difference) if math.isfinite(pair.difference) else math.inf)
    return [behind(pair, best, loss=results.statistic == "loss") for pair in pairs]


def behind(pair: Paired, best: str, *, loss: bool) -> str:
    """One comparison in a sentence.

    >>> from fedasym.experiments.comparisons import paired
    >>> behind(paired("seeds", "ftfa", "fedavg", np.array([0.030, 0.032, 0.031]), 0.005), "ftfa", loss=False)
    'fedavg is 3.10 points behind ftfa (95 % interval 2.85 to 3.35): different at the 5 % level.'
    """
    name = other(pair, best)
    if not math.isfinite(pair.difference):
        return f"{name} cannot be compared with {best}: a trial is missing or diverged."
    sign = (1 if pair.first == best else -1) * (-1 if loss else 1)
    low, high = sorted((sign * pair.low, sign * pair.high))
    unit = "" if loss else " points"
    ends = (minus(number(each) if loss else f"{100 * each:.2f}") for each in (sign * pair.difference, low, high))
    middle, low_end, high_end = ends
    margin = amount(pair.margin, loss=loss)
    verdict = {
        "different": "different at the 5 % level",
        "different, but within the margin": f"different at the 5 % level, but by less than {margin}",
        "the same within the margin": f"the same within {margin}",
        "not told apart": f"not told apart by {pair.trials} trials",
    }.get(pair.verdict, "no verdict")
    return f"{name} is {middle}{unit} behind {best} (95 % interval {low_end} to {high_end}): {verdict}."


def describe(curves: Curves, what: str, *, loss: bool) -> str:
    """A figure for those who do not see it: every curve's first, last and range of values."""
    parts = []
    for name, curve in curves.items():
        if not math.isfinite(curve.last):
            parts.append(f"{name} ends in no number")
            continue
        first, last = (number(value) if loss else f"{value:.1f}" for value in (curve.mean[0], curve.last))
        over = f" (trials {curve.low[-1]:.4g} to {curve.high[-1]:.4g})" if curve.trials > 1 else ""
        parts.append(f"{name} goes from {first} to {last}{over}")
    return f"{what}. {'; '.join(parts)}."


def percent(share: float) -> str:
    """A share of clients.

    >>> percent(0.123), percent(0.995), percent(1)
    ('12 %', '99.5 %', '100 %')
    """
    return f"{100 * share:.0f} %" if 0.1 <= share <= 0.99 or share in (0, 1) else f"{100 * share:.1f} %"


def quantiles(values: Array) -> dict[str, float]:
    """What is told of a distribution."""
    names = {"5 %": 5, "25 %": 25, "median": 50, "75 %": 75, "95 %": 95}
    return {name: float(np.percentile(values, at)) for name, at in names.items()}
