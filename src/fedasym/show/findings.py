"""What an experiment found: who is best, by how much, how surely; each client's gains."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from markupsafe import Markup

from fedasym.algorithms.paper import SHARES
from fedasym.core.numbers import Array, join_with_and, number
from fedasym.experiments import describe_numbers
from fedasym.experiments.plan import SEEDS, SPLITS
from fedasym.experiments.results import SWEEPS, describe_rules
from fedasym.show import (
    Cell,
    Column,
    Table,
    count,
    count_of,
    minus,
    share_in_percent,
    show_gain,
    show_value,
    thin_out,
)
from fedasym.show.figures import embed
from fedasym.show.figures.rounds import bin_edges, draw_histogram
from fedasym.show.reproduction import Curves
from fedasym.training.comparisons import Measured, Verdict, compare_pair, subtract
from fedasym.training.wording import statistic_text

if TYPE_CHECKING:
    import polars as pl

    from fedasym.experiments.results import Results
    from fedasym.training.comparisons import Comparisons, Paired

# of a table of numbers: where every round was tested, all of them would be most of the page
ROWS = 60
PLAIN = "fedavg"  # to whose scores class shares are added
MOST_HURT = 12  # clients that are named
QUARTERS = 4  # groups of clients by their number of samples
CLOSE = {  # verdicts on which an algorithm is as good as the best, and how that is said
    (Verdict.SAME, Verdict.WITHIN): "within {} of it",
    (Verdict.OPEN,): "not significantly different from it",
}


def describe_data_sizes(results: Results) -> list[str]:
    """Sizes, in a few words each."""
    data, told, trials = results.data, results.experiment.settings, results.experiment.trials
    outputs = "" if results.task == "regression" else f", {data.outputs} classes"
    found = [
        count_of(len(data.clients), "client"),
        " · ".join(f"{name} {many:,}" for name, many in data.counts.items()) + " samples",
        f"{data.dimension} features{outputs}",
        count_of(told.rounds, "round"),
        *describe_rules(results.experiment),
    ]
    sweeps = {sweep: getattr(trials, sweep) for sweep in SWEEPS}
    repeats = (f"{sweep} {describe_numbers(each)}" for sweep, each in sweeps.items() if each)
    return [*found, *repeats]


def find_leader(results: Results, sweep: str) -> str | None:
    """The algorithm with the best mean after the last round; None where there is no number."""
    means = {name: float(values.mean()) for name, values in results.finals(sweep).items()}
    finite = {name: mean for name, mean in means.items() if math.isfinite(mean)}
    sign = -1 if results.statistic == "loss" else 1
    return max(finite, key=lambda name: sign * finite[name]) if finite else None


def name_best(results: Results, paired: Comparisons) -> list[str]:
    """The answer first: who is best in each sweep, and who cannot be told from it."""
    told = []
    loss = results.statistic == "loss"
    for sweep in SWEEPS:
        best = find_leader(results, sweep)
        if best is None:
            continue
        finals = results.finals(sweep)
        what = "test loss" if loss else "test accuracy"
        trials = count_of(len(finals[best]), sweep.removesuffix("s"))
        text = f"Over {trials}, {best} has the best {what}: {describe_ends(results, finals[best])}"
        pairs = pairs_with(paired, sweep, best)
        for verdicts, words in CLOSE.items():
            if names := [other_of(pair, best) for pair in pairs if pair.verdict in verdicts]:
                near = words.format(describe_margin(pairs[0].margin, loss=loss))
                text += f"; {join_with_and(names)} {'is' if len(names) == 1 else 'are'} {near}"
        told.append(text + ".")
    return told or ["There are no finished trials yet."]


def describe_label_shift(results: Results) -> list[str]:
    """How much of the gain class shares alone explain, where they were trained; by sweep.

    Trials keep no samples: what is not label shift is one part here, and two in `.decompose()`.
    """
    told = []
    for sweep in SWEEPS:
        trials = results.finals(sweep)
        if not {PLAIN, SHARES} <= set(trials) or len(trials[PLAIN]) < 2:
            continue
        finals: dict[str, Measured] = trials | results.client_finals(sweep)
        others = [name for name in finals if name not in (PLAIN, SHARES)]
        found = [
            compare_pair(sweep, first, second, subtract(finals[first], finals[second]), None)
            for first, second in ((SHARES, PLAIN), *((name, SHARES) for name in others))
        ]
        parts = [
            f"{minus(f'{100 * pair.difference:.2f}')} points (95 % interval"
            f" {minus(f'{100 * pair.low:.2f}')} to {minus(f'{100 * pair.high:.2f}')})"
            for pair in found
        ]
        beyond = [
            f"{pair.first} has {part}" for pair, part in zip(found[1:], parts[1:], strict=True)
        ]
        text = f"Label shift: over {sweep}, class shares alone add {parts[0]} to {PLAIN}"
        told.append(f"{text}; beyond them, {join_with_and(beyond)}." if beyond else f"{text}.")
    return told


def describe_margin(margin: float | None, *, loss: bool) -> str:
    """What counts as the same, with its unit.

    >>> describe_margin(0.005, loss=False)
    '0.5 points'
    """
    return "" if margin is None else number(margin) if loss else f"{100 * margin:g} points"


def describe_ends(results: Results, values: Array) -> str:
    """A mean with its worst and best trial."""
    mean = statistic_text(results.statistic, float(values.mean())).replace("%", " %")
    if len(values) < 2:
        return mean
    ends = sorted((float(values.min()), float(values.max())), reverse=results.statistic == "loss")
    worst, best = (bare_value(results, end) for end in ends)
    return f"{mean} (worst trial {worst}, best {best})"


def bare_value(results: Results, value: float) -> str:
    """A value without its unit."""
    return statistic_text(results.statistic, value).removesuffix("%")


def pairs_with(paired: Comparisons, sweep: str, best: str) -> list[Paired]:
    """The comparisons in which the best algorithm takes part."""
    return [
        pair for pair in paired.pairs if pair.sweep == sweep and best in (pair.first, pair.second)
    ]


def other_of(pair: Paired, name: str) -> str:
    """The algorithm that a pair compares with another."""
    return pair.second if pair.first == name else pair.first


def compare_with_best(results: Results, paired: Comparisons, sweep: str) -> list[str]:
    """How far every other algorithm is behind the best, the nearest first."""
    best = find_leader(results, sweep)
    if best is None:
        return []
    pairs = pairs_with(paired, sweep, best)
    pairs.sort(key=lambda pair: np.nan_to_num(abs(pair.difference), nan=np.inf))
    return [describe_pair(pair, best, loss=results.statistic == "loss") for pair in pairs]


def describe_pair(pair: Paired, best: str, *, loss: bool) -> str:
    """One comparison in a sentence.

    >>> from fedasym.training.comparisons import compare_pair
    >>> pair = compare_pair("seeds", "ftfa", "fedavg", np.array([0.030, 0.032, 0.031]), 0.005)
    >>> describe_pair(pair, "ftfa", loss=False)[-54:]
    'different at the 5 % level (test samples not counted).'
    """
    name = other_of(pair, best)
    if not math.isfinite(pair.difference):
        return f"{name} cannot be compared with {best}: a trial is missing or diverged."
    sign = (1 if pair.first == best else -1) * (-1 if loss else 1)
    low, high = sorted((sign * pair.low, sign * pair.high))
    unit = "" if loss else " points"
    middle, low_end, high_end = (
        minus(number(each) if loss else f"{100 * each:.2f}")
        for each in (sign * pair.difference, low, high)
    )
    margin = describe_margin(pair.margin, loss=loss)
    level = "different at the 5 % level"
    sample = f"{pair.trials} trial{'' if pair.trials == 1 else 's'}"
    sample += f" on {pair.clients} clients" if pair.clients else ""
    verdict = {
        Verdict.DIFFERENT: level,
        Verdict.WITHIN: f"{level}, but by less than {margin}",
        Verdict.SAME: f"the same within {margin}",
        Verdict.OPEN: f"no difference found by {sample}",
    }.get(pair.verdict, "no verdict")
    verdict += f" ({pair.omission})" if pair.omission else ""
    interval = f"95 % interval {low_end} to {high_end}"
    return f"{name} is {middle}{unit} behind {best} ({interval}): {verdict}."


def describe_curves(curves: Curves, what: str, *, loss: bool) -> str:
    """A figure for those who do not see it: every curve's first, last and range of values."""
    parts = []
    for name, curve in curves.items():
        if not math.isfinite(curve.last):
            parts.append(f"{name} does not end in a number")
            continue
        ends = (curve.mean[0], curve.last)
        first, last = (number(value) if loss else f"{value:.1f}" for value in ends)
        over = f" (trials {curve.low[-1]:.4g} to {curve.high[-1]:.4g})" if curve.trials > 1 else ""
        parts.append(f"{name} goes from {first} to {last}{over}")
    return f"{what}. {'; '.join(parts)}."


def read_accuracy(when: float, value: float) -> str:
    """A point of a curve, in words."""
    return f"round {when:g}: {show_value(value, loss=False)}"


def read_loss(when: float, value: float) -> str:
    """A point of a curve, in words."""
    return f"round {when:g}: {show_value(value, loss=True)}"


def curves_table(ours: Curves, published: Curves, label: str, *, loss: bool) -> Table:
    """The numbers of curves: by round, the mean with the lowest and the highest trial."""
    columns, held = [Column("round")], []
    for key in dict.fromkeys([*ours, *published]):
        for kind, curve in (("", ours.get(key)), (" paper", published.get(key))):
            if curve is None:
                continue
            ends = [("lowest", curve.low), ("highest", curve.high)] if curve.trials > 1 else []
            for what, values in (("mean", curve.mean), *ends):
                columns.append(Column(f"{key}{kind} {what}"))
                held.append(dict(zip(curve.rounds, map(float, values), strict=True)))
    every = (*ours.values(), *published.values())
    rounds = sorted({when for curve in every for when in curve.rounds})
    rows = [
        [count(when), *(Cell(show_value(each.get(when), loss)) for each in held)]
        for when in thin_out(rounds, ROWS)
    ]
    return Table(columns, rows, label)


def quantiles(values: Array) -> dict[str, float]:
    """What is told of a distribution."""
    names = {"5 %": 5, "25 %": 25, "median": 50, "75 %": 75, "95 %": 95}
    return {name: float(np.percentile(values, at)) for name, at in names.items()}


@dataclass(frozen=True, eq=False)
class GainCounts:
    """What personalization brings each client, a mean over trials; in points, or in loss."""

    algorithm: str
    table: pl.DataFrame  # client, samples, tested, own, shared, gain

    @property
    def values(self) -> Array:
        """A gain per client."""
        return self.table["gain"].to_numpy()

    @property
    def shares(self) -> tuple[float, float, float]:
        """The clients that lose, that stay the same and that gain."""
        values = self.values
        lose, same, gain = (float(each.mean()) for each in (values < 0, values == 0, values > 0))
        return lose, same, gain


def gains_of(results: Results) -> tuple[str, list[GainCounts]]:
    """The sweep that is looked at, and its algorithms that personalize a shared model."""
    import polars as pl

    sweep = next((each for each in (SEEDS, SPLITS) if each in results.clients["sweep"]), SEEDS)
    name = results.statistic
    unit = 1.0 if results.statistic == "loss" else 100.0
    held = results.clients.filter(
        (pl.col("sweep") == sweep) & (pl.col("tested") > 0) & pl.col("gain").is_finite()
    )
    means = held.group_by("algorithm", "client", maintain_order=True).agg(
        pl.col("samples", "tested").first(),
        pl.col(name).mean().alias("own") * unit,
        pl.col(f"shared_{name}").mean().alias("shared") * unit,
        pl.col("gain").mean() * unit,
    )
    parts = means.group_by("algorithm", maintain_order=True)
    found = [GainCounts(str(each), part) for (each,), part in parts]
    return sweep, [each for each in found if (each.values != 0).any()]


def distribution_table(gains: list[GainCounts], loss: bool) -> Table:
    """Every algorithm's gains in a row."""
    unit = "loss" if loss else "points"
    heads = ("clients", "lose", "same", "gain", f"mean, {unit}", *quantiles(np.zeros(1)))
    columns = [Column("algorithm", text=True), *map(Column, heads)]
    rows = []
    for each in gains:
        shares = (Cell(share_in_percent(share)) for share in each.shares)
        row = [Cell(each.algorithm), count(len(each.values)), *shares]
        numbers = [float(each.values.mean()), *quantiles(each.values).values()]
        rows.append([*row, *(Cell(show_gain(value, loss)) for value in numbers)])
    return Table(columns, rows, label="Gains of clients by algorithm")


class Histogram(NamedTuple):
    """How an algorithm's gains are distributed: in words, and drawn."""

    algorithm: str
    shares: str
    picture: Markup


class Hurt(NamedTuple):
    """The clients that lose most: how many there are, and these by name."""

    sentence: str
    names: Table


def histograms(gains: list[GainCounts], loss: bool) -> list[Histogram]:
    """A small histogram per algorithm, on one scale; the last bars count what lies beyond."""
    edges = bin_edges(np.concatenate([each.values for each in gains]))
    unit = "" if loss else " points"
    found = []
    for each in gains:
        lose, same, gain = map(share_in_percent, each.shares)
        middle = quantiles(each.values)
        ends = f"{show_gain(middle['25 %'], loss)} and {show_gain(middle['75 %'], loss)}{unit}"
        spoken_shares = (
            f"{lose} of the clients lose, {same} stay the same, {gain} gain; half of them between"
            f" {ends}."
        )
        figure = draw_histogram(each.values, edges, unit)
        title = f"What clients gain by {each.algorithm}"
        picture = embed(figure, f"gains-of-{each.algorithm}", "histogram", title, spoken_shares)
        found.append(Histogram(each.algorithm, f"{lose} lose, {gain} gain", picture))
    return found


def gains_by_samples(gains: list[GainCounts], loss: bool) -> Table | None:
    """Mean gain and share that loses, by quarters of the clients from few samples to many.

    None where clients train on about as many samples, or are too few to be grouped.
    """
    sizes = gains[0].table["samples"].to_numpy()
    if len(sizes) < 2 * QUARTERS or sizes.min() == sizes.max():
        return None
    parts = np.array_split(np.argsort(sizes, kind="stable"), QUARTERS)
    heads = [f"{sizes[part].min()} to {sizes[part].max()} samples" for part in parts]
    rows = []
    for each in gains:
        values = each.values
        own = each.table["samples"].to_numpy()
        cells = []
        for part in np.array_split(np.argsort(own, kind="stable"), QUARTERS):
            mean = float(values[part].mean())
            lose = share_in_percent(float((values[part] < 0).mean()))
            cells.append(Cell(f"{show_gain(mean, loss)}, {lose} lose"))
        rows.append([Cell(each.algorithm), *cells])
    columns = [Column("algorithm", text=True), *map(Column, heads)]
    return Table(columns, rows, label="Gains by number of samples")


def most_hurt(gains: list[GainCounts], loss: bool) -> Hurt | None:
    """The clients that lose most, by name, and what each algorithm does for them."""
    import polars as pl

    names = [each.algorithm for each in gains]
    every = pl.concat(
        each.table.select(
            "client", "samples", "tested", pl.Series("gain", each.values)
        ).with_columns(pl.lit(each.algorithm).alias("algorithm"))
        for each in gains
    )
    lowest = every.group_by("client").agg(pl.col("gain").min(), pl.col("samples", "tested").last())
    losers = lowest.filter(pl.col("gain") < 0).sort("gain", "client")
    if losers.is_empty():
        return None
    shown = losers.head(MOST_HURT)
    own = every.filter(pl.col("client").is_in(shown["client"].implode()))
    held = {(row["algorithm"], row["client"]): row["gain"] for row in own.iter_rows(named=True)}
    rows = []
    for size in shown.iter_rows(named=True):
        of_client = [held.get((name, size["client"]), math.nan) for name in names]
        cells = [Cell("–" if math.isnan(gain) else show_gain(gain, loss)) for gain in of_client]
        rows.append([Cell(size["client"]), count(size["samples"]), count(size["tested"]), *cells])
    columns = [Column("client", text=True), *map(Column, ("trains on", "tested on", *names))]
    text = (
        f"{losers.height} of {lowest.height} clients lose by some algorithm; these lose most. Gains"
        " by algorithm:"
    )
    return Hurt(text, Table(columns, rows, label="The clients that lose most"))
