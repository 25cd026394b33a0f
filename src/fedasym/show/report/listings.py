"""The tables of a report: finals side by side, paired tests, what was tuned and chosen, gains, ours beside the published."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedasym.experiments.comparisons import shown as difference
from fedasym.experiments.comparisons import small
from fedasym.experiments.selection import validated_by
from fedasym.show.report.curves import Curves, spoken_epochs
from fedasym.show.report.markup import Html
from fedasym.show.report.tables import Cell, Column, count, minus, table
from fedasym.training.histories import spread
from fedasym.training.wording import cell
from fedasym.training.wording import shown as setting

if TYPE_CHECKING:
    from fedasym.experiments.comparisons import Comparisons
    from fedasym.experiments.results import Results

STATISTICS = {
    "classification": {
        "accuracy": "accuracy",
        "mean_accuracy": "clients' mean",
        "worst_decile": "worst decile",
        "shared_accuracy": "shared model",
        "hurt": "hurt",
    },
    "regression": {
        "loss": "loss",
        "mean_loss": "clients' mean",
        "shared_loss": "shared model",
        "hurt": "hurt",
    },
}


def statistic(name: str, value: float) -> Cell:
    """A statistic as a cell.

    >>> statistic("accuracy", 0.81853).text, statistic("accuracy", math.nan).text
    ('81.85 %', '–')
    """
    return Cell("–" if math.isnan(value) else cell(name, value).replace("%", " %"))


def value_of(settings: Mapping[str, Any], name: str) -> Cell:
    """A setting as a cell; an algorithm that does not use it has none.

    >>> value_of({"ridge": 0.1}, "ridge").text, value_of({"ridge": 0.1}, "server_step").text
    ('0.1', '–')
    """
    value = settings.get(name)
    return Cell("–" if value is None else setting(value))


def finals_table(results: Results, sweep: str, best: str | None) -> Html:
    """Pooled, per-client mean and worst decile side by side, means over trials after the last round."""
    heads = STATISTICS[results.task]
    first, *others = heads
    finals = {name: results.finals(sweep, name) for name in heads}
    columns = [Column("algorithm", text=True), Column(heads[first]), Column("worst–best trial")]
    columns += [Column(heads[name]) for name in others]
    rows, names = [], list(finals[first])
    for algorithm in names:
        values = finals[first][algorithm]
        ends = spread(first, values).replace("%", " %")
        row = [
            Cell(algorithm),
            statistic(first, float(values.mean())),
            Cell("–" if ends == "-" else ends, float(np.ptp(values))),
        ]
        rows.append([*row, *(statistic(name, float(finals[name][algorithm].mean())) for name in others)])
    marked = [names.index(best)] if best is not None else []
    return table(columns, rows, label=f"Results over {sweep}", best=marked)


def comparison_table(held: Comparisons, sweep: str) -> Html:
    """All pairs."""
    fraction = held.statistic != "loss"
    unit = "points" if fraction else "loss"
    columns = [Column("first", text=True), Column("second", text=True)]
    columns += [Column(name) for name in (f"difference, {unit}", "95 % interval", "p", "p, signs", "p, beyond margin")]
    rows = []
    for pair in held.pairs:
        if pair.sweep != sweep:
            continue
        middle, low, high = (minus(difference(each, fraction)) for each in (pair.difference, pair.low, pair.high))
        tests = [pair.p, pair.permutation, math.nan if pair.equivalence is None else pair.equivalence]
        row = [Cell(pair.first), Cell(pair.second), Cell(middle), Cell(f"{low} to {high}")]
        rows.append([*row, *(Cell(small(each), each) for each in tests), Cell(pair.verdict)])
    return table([*columns, Column("verdict", text=True)], rows, label=f"Paired comparisons over {sweep}")


def tuned_table(results: Results) -> Html:
    """What validation chose for each algorithm, out of how many."""
    used = list(dict.fromkeys(name for settings in results.tuned.values() for name in settings))
    columns = [Column("algorithm", text=True), *(Column(name) for name in ("tried", "diverged", "validation", *used))]
    name, rows = validated_by(results.task), []
    for algorithm in results.experiment.algorithms:
        tried = [row for row in results.tuning.iter_rows(named=True) if row["algorithm"] == algorithm]
        score = next((row[name] for row in tried if row["chosen"]), math.nan)
        settings = results.tuned.get(algorithm, {})
        row = [Cell(algorithm), count(len(tried)), count(sum(each["diverged"] for each in tried)), statistic(name, score)]
        rows.append([*row, *(value_of(settings, each) for each in used)])
    return table(columns, rows, label="Chosen settings")


def tuning_table(results: Results) -> Html:
    """Every configuration that was tried."""
    name = validated_by(results.task)
    used = [each for each in results.tuning.columns if each not in ("algorithm", name, "chosen", "diverged")]
    columns = [Column("algorithm", text=True), *map(Column, (*used, "validation")), Column("outcome", text=True)]
    rows, chosen = [], []
    for at, row in enumerate(results.tuning.iter_rows(named=True)):
        fate = "chosen" if row["chosen"] else "diverged" if row["diverged"] else ""
        rows.append([Cell(row["algorithm"]), *(value_of(row, each) for each in used), statistic(name, row[name]), Cell(fate)])
        chosen += [at] if row["chosen"] else []
    return table(columns, rows, label="All configurations tried", best=chosen)


def gains_table(results: Results, curves: dict[str, Curves]) -> Html:
    """After the last round, by epochs of personalization."""
    epochs = list(dict.fromkeys(each for by in curves.values() for each in by))
    columns = [Column("algorithm", text=True), *(Column(spoken_epochs(each)) for each in epochs)]
    rows = [
        [Cell(name), *(statistic(results.statistic, by[each].last if each in by else math.nan) for each in epochs)]
        for name, by in curves.items()
    ]
    return table(columns, rows, label="Gains of personalization after the last round")


def published_table(sweep: str, ours: Curves, published: Curves) -> Html:
    """Ours beside what was published, after the last round that both have."""
    heads = ("round", "ours", "published", "published, worst–best", "ours minus published, points")
    columns = [Column("algorithm", text=True), *map(Column, heads)]
    rows = []
    order = [*(name for name in ours if name in published), *(name for name in published if name not in ours)]
    for name in order:
        theirs = published[name]
        shared = sorted(set(theirs.rounds) & set(ours[name].rounds)) if name in ours else []
        when = shared[-1] if shared else theirs.rounds[-1]
        values = theirs.values[:, theirs.rounds.index(when)]
        mine = float(ours[name].mean[ours[name].rounds.index(when)]) if shared else math.nan
        gap = 100 * (mine - float(values.mean()))
        row = [Cell(name), count(when), statistic("accuracy", mine), statistic("accuracy", float(values.mean()))]
        ends = Cell(spread("accuracy", values).replace("%", " %"), float(np.ptp(values)))
        rows.append([*row, ends, Cell("–" if math.isnan(gap) else minus(f"{gap:+.2f}"))])
    return table(columns, rows, label=f"Ours beside the paper, {sweep}")
