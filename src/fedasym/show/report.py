"""The verb `report`: a run as one page of HTML; its sections, their figures and tables."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from markupsafe import Markup

from fedasym.core.errors import InvalidInput, path_of
from fedasym.experiments import describe_numbers
from fedasym.experiments.plan import GAINS, validation_score
from fedasym.experiments.reproduction import (
    RUNS,
    describe_agreement,
    describe_positions,
    foresight_rows,
    show_error,
    show_share,
)
from fedasym.experiments.results import SWEEPS
from fedasym.show import Cell, Column, Drawing, Table, count, count_of, minus, render, write_html
from fedasym.show.figures import embed_for_screens
from fedasym.show.figures.rounds import draw_gains, draw_sweep
from fedasym.show.findings import (
    Histogram,
    Hurt,
    compare_with_best,
    curves_table,
    describe_curves,
    describe_data_sizes,
    describe_label_shift,
    distribution_table,
    find_leader,
    gains_by_samples,
    gains_of,
    histograms,
    most_hurt,
    name_best,
    read_accuracy,
    read_loss,
)
from fedasym.show.reproduction import (
    Curves,
    Published,
    describe_epochs,
    gain_curves,
    published_curves,
    scale_curves,
    select_gains,
    span,
    trial_curves,
)
from fedasym.training.comparisons import show_difference, show_probability
from fedasym.training.wording import MEANINGS, deviation_text, seed_range, statistic_text
from fedasym.training.wording import setting_text as show_setting

if TYPE_CHECKING:
    from fedasym.experiments.results import Results
    from fedasym.training.comparisons import Comparisons

# of the environment that a run records
RECORDED = ("fedasym", "python", "jax", "device", "platform")
TITLES = {"seeds": "Over seeds of training", "splits": "Over reshuffled samples"}
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


def report(
    results: Results | str | Path, path: str | Path, published: Published | None = None
) -> Path:
    """Write results as one self-contained HTML page, and return where it is.

    Curves that can be read, tables that sort, what was tuned and what it cost, paired comparisons
    in words, the clients one by one, the commands: one file that works offline, on a phone, in the
    dark and on paper. The same results give the same bytes.

    results: what `fedasym.run` returned, its run folder, or a folder that `Results.save` wrote.
    published: curves to be drawn beside ours, {sweep: {algorithm: (rounds, accuracies)}},
        accuracies as trials x rounds; the sweeps are "seeds", "splits" and "gains", whose
        algorithms are named with their epochs, "ftfa 10".

    >>> import tempfile, fedasym as fa
    >>> data = fa.datasets.synthetic(
    ...     task="classification", clients=5, dimension=5, classes=2, aspect=0.5
    ... )
    >>> few = {"rounds": 2, "evaluate_every": 2, "local_steps": 2, "personal_epochs": 1}
    >>> tiny = fa.Experiment(
    ...     name="tiny", algorithms=["fedavg"], settings=few, grid={}, trials={"seeds": 2}
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = fa.run(tiny, data, into=folder + "/run")
    ...     report(folder + "/run", folder + "/tiny.html").read_text()[:15]
    '<!DOCTYPE html>'
    """
    return write_html(path, lambda: report_page(read_results(results), published))


def read_results(given: Results | str | Path) -> Results:
    """The results themselves, or those in a run folder or in a folder that `Results.save` wrote."""
    from fedasym.experiments.folder import is_run
    from fedasym.experiments.results import Results
    from fedasym.experiments.tables import is_saved

    if isinstance(given, Results):
        return given
    if not isinstance(given, str | Path):
        raise InvalidInput(
            f"results is a {type(given).__name__}: give the results of fa.run or fa.sweep, or their"
            " folder; what fa.train returned is saved with .save and drawn with .plot"
        )
    folder = path_of("results", given)
    if is_run(folder):
        return Results.read(folder)
    if is_saved(folder):
        return Results.load(folder)
    raise InvalidInput(
        f"results is {str(given)!r}: this is neither a run folder nor one that Results.save wrote;"
        " fedasym runs list shows runs"
    )


class Sweep(NamedTuple):
    """What was found over seeds or over splits."""

    key: str
    title: str
    trials: str
    curves: Drawing
    finals: Table
    differences: list[str]
    pairs: Table


class Personalization(NamedTuple):
    """Curves by epochs of personalization, for each algorithm."""

    curves: list[tuple[str, Drawing]]
    finals: Table


class ClientsPart(NamedTuple):
    """The clients one by one."""

    unit: str
    sweep: str
    histograms: list[Histogram]
    distributions: Table
    by_samples: Table | None
    hurt: Hurt | None


class ForesightPart(NamedTuple):
    """What the advisor said before training: beside what was measured, or why it has no answer."""

    sentence: str
    numbers: Table | None


def report_page(results: Results, published: Published | None = None) -> str:
    """The whole page; the same results give the same text."""
    experiment = results.experiment.portable()
    paired = results.comparisons()
    loss = results.statistic == "loss"
    heads = (
        ("loss", "mean_loss", "hurt")
        if loss
        else ("accuracy", "mean_accuracy", "worst_decile", "hurt")
    )
    sweeps = [
        found
        for each in SWEEPS
        if (found := describe_sweep(results, each, paired, published)) is not None
    ]
    gains = describe_gains(results, published)
    clients = describe_client_gains(results)
    theirs = published_tables(results, published)
    foresight = describe_foresight(results)
    titles = {
        "notes": ("What a fair reader should know", results.notes),
        **{each.key: (each.title, True) for each in sweeps},
        "gains": ("Gains of personalization", gains),
        "clients": ("Client by client", clients),
        "published": ("What the paper published", theirs),
        "foresight": ("What theory says before training", foresight),
        "tuning": ("Tuned settings and budget", True),
        "again": ("Run it again", True),
    }
    context = {
        "name": experiment.name,
        "about": results.experiment.about,
        "sizes": describe_data_sizes(results),
        "headline": [*name_best(results, paired), *describe_label_shift(results)],
        "sections": [(key, title) for key, (title, held) in titles.items() if held],
        "notes": results.notes,
        "rounds": experiment.settings.rounds,
        "meanings": " ".join(MEANINGS[name] for name in heads),
        "sweeps": sweeps,
        "gains": gains,
        "clients": clients,
        "published": theirs,
        "counted": describe_positions(results),
        "foresight": foresight,
        "validated": "loss" if results.task == "regression" else "accuracy",
        "tuned": tuned_table(results),
        "tried": configurations_table(results),
        "budget": results.budget,
        "handed": experiment.data is None,
        "folder": shlex.quote(results.folder or f"{RUNS}/{experiment.name}"),
        "command": results.environment.get("command"),
        "machine": {
            key: results.environment[key] for key in RECORDED if key in results.environment
        },
        "data": results.data,
        "toml": experiment.to_toml(),
    }
    return render("report.html", f"{experiment.name}: results", context)


def describe_sweep(
    results: Results, sweep: str, paired: Comparisons, published: Published | None
) -> Sweep | None:
    """Curves, finals and comparisons over seeds or over splits."""
    curves = trial_curves(results, sweep)
    if not curves:
        return None
    loss = results.statistic == "loss"
    theirs = {} if loss else published_curves(published, sweep)
    trials = max(curve.trials for curve in curves.values())
    real = ", over real positions" if describe_positions(results) else ""
    beside = f" Dotted with hollow markers: as the paper published it{real}." if theirs else ""
    bands = "line: mean, band: worst to best trial" if trials > 1 else "one trial"
    what = f"Test {results.statistic} of personal models against rounds"
    scaled = scale_curves(results, curves)
    pictures = embed_for_screens(
        partial(draw_sweep, results, sweep, curves, theirs),
        f"curves-{sweep}",
        f"{what}, over {count_of(trials, 'trial')}",
        describe_curves(scaled, what, loss=loss),
        read_loss if loss else read_accuracy,
    )
    caption = f"{what}; {bands}.{beside}"
    chart = describe_chart(
        f"curves-{sweep}", pictures, scaled, scale_curves(results, theirs), caption, loss=loss
    )
    return Sweep(
        key=sweep,
        title=TITLES[sweep],
        trials=(
            f"{SWEEPS[sweep].capitalize()}:"
            f" {describe_numbers(getattr(results.experiment.trials, sweep))}."
        ),
        curves=chart,
        finals=finals_table(results, sweep, find_leader(results, sweep)),
        differences=compare_with_best(results, paired, sweep),
        pairs=comparison_table(paired, sweep),
    )


def describe_gains(results: Results, published: Published | None) -> Personalization | None:
    """Accuracy against rounds by epochs of personalization, for each algorithm."""
    held = gain_curves(results)
    if not held:
        return None
    loss = results.statistic == "loss"
    theirs = published_curves(None if loss else published, GAINS)
    charts = []
    for name, by_epochs in held.items():
        paper = select_gains(theirs, name)
        ours, beside = (
            {describe_epochs(each): curve for each, curve in scale_curves(results, curves).items()}
            for curves in (by_epochs, paper)
        )
        title = f"{name} by epochs of personalization after the shared model"
        pictures = embed_for_screens(
            partial(draw_gains, results, name, by_epochs, paper),
            f"gains-{name}",
            title,
            describe_curves(ours, f"{title}: test {results.statistic} against rounds", loss=loss),
            read_loss if loss else read_accuracy,
        )
        chart = describe_chart(f"gains-{name}", pictures, ours, beside, f"{title}.", loss=loss)
        charts.append((name, chart))
    return Personalization(charts, gains_table(results, held))


def describe_chart(
    key: str, pictures: list[Markup], ours: Curves, published: Curves, caption: str, *, loss: bool
) -> Drawing:
    """Curves that are drawn, with their numbers."""
    cut = span([*ours.values(), *published.values()], loss=loss).cut
    words = f"{caption} Early rounds lie outside the frame." if cut else caption
    return Drawing(
        key, pictures, words, curves_table(ours, published, f"Numbers: {caption}", loss=loss)
    )


def describe_client_gains(results: Results) -> ClientsPart | None:
    """The distribution of clients' gains, and who is hurt."""
    sweep, gains = gains_of(results)
    if not gains:
        return None
    loss = results.statistic == "loss"
    return ClientsPart(
        unit="loss" if loss else "points of accuracy",
        sweep=sweep,
        histograms=histograms(gains, loss),
        distributions=distribution_table(gains, loss),
        by_samples=gains_by_samples(gains, loss),
        hurt=most_hurt(gains, loss),
    )


def describe_foresight(results: Results) -> ForesightPart | None:
    """Predicted beside measured, and where rankings agree; or why nothing was predicted."""
    if results.foreseen is None:
        return None
    if reason := results.foreseen.reason:
        return ForesightPart(reason, None)
    found = foresight_rows(results)
    if not found:
        return None
    merged = results.foreseen.merged
    cells = []
    for row in found:
        off = Cell("–" if merged else minus(show_error(row)))
        cells.append([Cell(row.algorithm), *(Cell(show_share(each)) for each in row[1:]), off])
    columns = [
        Column("algorithm", text=True),
        *map(Column, ("theory", "advised", "measured", "off by")),
    ]
    label = "Accuracies by theory, as advised, and as measured, by algorithm"
    return ForesightPart(describe_agreement(found, merged), Table(columns, cells, label))


def statistic_cell(name: str, value: float) -> Cell:
    """A statistic.

    >>> statistic_cell("accuracy", 0.81853).text, statistic_cell("accuracy", math.nan).text
    ('81.85 %', '–')
    """
    return Cell("–" if math.isnan(value) else statistic_text(name, value).replace("%", " %"))


def setting_cell(settings: Mapping[str, Any], name: str) -> Cell:
    """A setting; an algorithm that does not use it has none.

    >>> setting_cell({"ridge": 0.1}, "ridge").text, setting_cell({"ridge": 0.1}, "server_step").text
    ('0.1', '–')
    """
    value = settings.get(name)
    return Cell("–" if value is None else show_setting(value))


def finals_table(results: Results, sweep: str, best: str | None) -> Table:
    """Pooled mean, clients' mean and worst decile, means over trials after the last round."""
    heads = STATISTICS[results.task]
    first, *others = heads
    finals = {name: results.finals(sweep, name) for name in heads}
    columns = [Column("algorithm", text=True), Column(heads[first]), Column("± sd")]
    columns.append(Column("worst–best trial"))
    columns += [Column(heads[name]) for name in others]
    rows = []
    names = list(finals[first])
    for algorithm in names:
        values = finals[first][algorithm]
        ends = seed_range(first, values).replace("%", " %")
        row = [
            Cell(algorithm),
            statistic_cell(first, float(values.mean())),
            Cell(deviation_text(first, values).replace("-", "–")),
            Cell("–" if ends == "-" else ends, float(np.ptp(values))),
        ]
        rows.append(
            [
                *row,
                *(statistic_cell(name, float(finals[name][algorithm].mean())) for name in others),
            ]
        )
    marked = [names.index(best)] if best is not None else []
    return Table(columns, rows, f"Results over {sweep}", marked)


def comparison_table(held: Comparisons, sweep: str) -> Table:
    """All pairs."""
    fraction = held.statistic != "loss"
    unit = "points" if fraction else "loss"
    columns = [Column("first", text=True), Column("second", text=True)]
    columns += map(
        Column, (f"difference, {unit}", "95 % interval", "p", "p, signs", "p, beyond margin")
    )
    rows = []
    for pair in held.pairs:
        if pair.sweep != sweep:
            continue
        middle, low, high = (
            minus(show_difference(each, fraction))
            for each in (pair.difference, pair.low, pair.high)
        )
        tests = [
            pair.p,
            pair.permutation,
            math.nan if pair.equivalence is None else pair.equivalence,
        ]
        row = [Cell(pair.first), Cell(pair.second), Cell(middle), Cell(f"{low} to {high}")]
        rows.append(
            [*row, *(Cell(show_probability(each), each) for each in tests), Cell(pair.conclusion)]
        )
    return Table([*columns, Column("verdict", text=True)], rows, f"Paired comparisons over {sweep}")


def tuned_table(results: Results) -> Table:
    """What validation chose for each algorithm, out of how many."""
    used = list(dict.fromkeys(name for settings in results.tuned.values() for name in settings))
    columns = [
        Column("algorithm", text=True),
        *map(Column, ("tried", "diverged", "validation", *used)),
    ]
    name = validation_score(results.task)
    rows = []
    for algorithm in results.experiment.algorithms:
        tried = [
            row for row in results.tuning.iter_rows(named=True) if row["algorithm"] == algorithm
        ]
        score = next((row[name] for row in tried if row["chosen"]), math.nan)
        settings = results.tuned.get(algorithm, {})
        counts = count(len(tried)), count(sum(each["diverged"] for each in tried))
        cells = (setting_cell(settings, each) for each in used)
        rows.append([Cell(algorithm), *counts, statistic_cell(name, score), *cells])
    return Table(columns, rows, "Chosen settings")


def configurations_table(results: Results) -> Table:
    """Every configuration that was tried."""
    name = validation_score(results.task)
    used = [
        each
        for each in results.tuning.columns
        if each not in ("algorithm", name, "chosen", "diverged")
    ]
    columns = [
        Column("algorithm", text=True),
        *map(Column, (*used, "validation")),
        Column("outcome", text=True),
    ]
    rows, best = [], []
    for at, row in enumerate(results.tuning.iter_rows(named=True)):
        fate = "chosen" if row["chosen"] else "diverged" if row["diverged"] else ""
        cells = (setting_cell(row, each) for each in used)
        rows.append([Cell(row["algorithm"]), *cells, statistic_cell(name, row[name]), Cell(fate)])
        best += [at] if row["chosen"] else []
    return Table(columns, rows, "All configurations tried", best)


def gains_table(results: Results, curves: dict[str, Curves]) -> Table:
    """After the last round, by epochs of personalization."""
    epochs = list(dict.fromkeys(each for by in curves.values() for each in by))
    columns = [Column("algorithm", text=True), *(Column(describe_epochs(each)) for each in epochs)]
    rows = [
        [
            Cell(name),
            *(
                statistic_cell(results.statistic, by[each].last if each in by else math.nan)
                for each in epochs
            ),
        ]
        for name, by in curves.items()
    ]
    return Table(columns, rows, "Gains of personalization after the last round")


def published_tables(results: Results, published: Published | None) -> list[tuple[str, Table]]:
    """Ours beside what was published, by sweep."""
    if results.statistic == "loss":
        return []
    theirs = {sweep: published_curves(published, sweep) for sweep in SWEEPS}
    return [
        (each, published_table(each, trial_curves(results, each), held))
        for each, held in theirs.items()
        if held
    ]


def published_table(sweep: str, ours: Curves, published: Curves) -> Table:
    """Ours beside what was published, after the last round that both have."""
    heads = ("round", "ours", "published", "published, worst–best", "ours minus published, points")
    columns = [Column("algorithm", text=True), *map(Column, heads)]
    rows = []
    order = [
        *(name for name in ours if name in published),
        *(name for name in published if name not in ours),
    ]
    for name in order:
        theirs = published[name]
        shared = sorted(set(theirs.rounds) & set(ours[name].rounds)) if name in ours else []
        when = shared[-1] if shared else theirs.rounds[-1]
        values = theirs.values[:, theirs.rounds.index(when)]
        mine = float(ours[name].mean[ours[name].rounds.index(when)]) if shared else math.nan
        gap = 100 * (mine - float(values.mean()))
        numbers = statistic_cell("accuracy", mine), statistic_cell("accuracy", float(values.mean()))
        ends = Cell(seed_range("accuracy", values).replace("%", " %"), float(np.ptp(values)))
        rows.append(
            [
                Cell(name),
                count(when),
                *numbers,
                ends,
                Cell("–" if math.isnan(gap) else minus(f"{gap:+.2f}")),
            ]
        )
    return Table(columns, rows, f"Ours beside the paper, {sweep}")
