"""Advice as one page of HTML: what to do, the predictions as a figure and a table, doubts, every client, how to check."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedasym.results.metric import ACCURACY, LOSS
from fedasym.show.report.intervals import Bar, figure
from fedasym.show.report.markup import Html, element, joined, paragraphs, verbatim
from fedasym.show.report.shell import shell, write_html
from fedasym.show.report.tables import Cell, Column, count, minus, table

if TYPE_CHECKING:
    from fedasym.advisor.advice import Advice
    from fedasym.advisor.estimates import Quantity

WIDE = 20  # losses that many times the least are left out of the figure: the others would be one dot
MOST = 500  # clients in the table: the rest is in `advice.clients`


def write(advice: Advice, path: str | Path) -> Path:
    """Write the page, whole or not at all, and return where it is."""
    return write_html(path, lambda: page(advice))


def page(advice: Advice) -> str:
    """The whole page; the same advice gives the same text."""
    parts = {LOSS: regression_parts, ACCURACY: classes_parts}.get(advice.metric, scored_parts)
    sentence, facts, sections = parts(advice)
    header = [
        element("h1", f"Use {advice.recommended}"),
        element("ul", *(element("li", fact) for fact in facts), class_="facts"),
        element("div", element("p", sentence), class_="answer"),
    ]
    doubts = paragraphs([str(doubt) for doubt in advice.doubts]) if advice.doubts else element("p", "No check speaks.")
    check = element("p", str(advice.confirm))
    if advice.confirm.snippet:
        check = joined(check, verbatim(advice.confirm.snippet))
    gains = [("clients", "Who gains", clients_of(advice))] if advice.clients else []
    columns = [("columns", "The columns", element("p", advice.columns))] if advice.columns else []
    ending = [("doubts", "Doubts", doubts), *gains, ("check", "To prove this wrong", check), *columns]
    return shell(f"Advice: {advice.recommended}", header, [*sections, *ending])


Parts = tuple[str, list[str], list[tuple[str, str, object]]]


def scored_parts(advice: Advice) -> Parts:
    """Sentence, facts and the section on measured scores."""
    from fedasym.advisor.wording import scored_sentence

    about = advice.population
    facts = [f"{about.clients:,} clients", f"{about.samples:,} samples", f"{len(about.names):,} features"]
    facts.append(f"{len(about.classes)} classes")
    rows = sorted(advice.predictions.values(), key=lambda row: row.log_loss.value)
    bars = [bar(row.algorithm, row.log_loss, None, advice.recommended) for row in rows]
    heads = ("log-loss", "low", "high", "accuracy", "low", "high")
    cells = [
        [
            Cell(row.algorithm),
            *(number(v) for v in (row.log_loss.value, row.log_loss.low, row.log_loss.high)),
            *(percent(v) for v in (row.accuracy.value, row.accuracy.low, row.accuracy.high)),
        ]
        for row in rows
    ]
    best = [at for at, row in enumerate(rows) if row.algorithm == advice.recommended]
    drawn = figure(bars, "log-loss", "Log-loss on held-out folds of the training samples with its 95% interval.")
    columns = [Column("algorithm", True), *map(Column, heads)]
    scores = joined(drawn, table(columns, cells, "Scores on held-out folds", best))
    return scored_sentence(advice), facts, [("scores", "Held-out scores", scores)]


def classes_parts(advice: Advice) -> Parts:
    """Sentence, facts and the sections on accuracies."""
    from fedasym.advisor.wording import class_sentence

    about = advice.population
    facts = [
        f"{about.clients:,} clients",
        f"{about.samples:,} samples",
        f"{about.dimension:,} features",
        f"{len(about.classes)} classes",
    ]
    rows = sorted(advice.predictions.values(), key=lambda row: -row.trusted)
    bars = [bar(row.algorithm, row.level, row.measured, advice.recommended) for row in rows]
    caption = (
        "Predicted accuracy of a member with its 95% interval; hollow: a least-squares classifier on these samples, held out "
        "or left out one by one."
    )
    heads = ("accuracy", "low", "high", "new client", "probe", "log-loss", "ridge")
    columns = [Column("algorithm", True), *map(Column, heads), Column("remark", True)]
    cells = [
        [
            Cell(row.algorithm),
            *(percent(v) for v in (row.trusted, row.level.low, row.level.high, row.new.value, row.measured)),
            number(row.log_loss.value),
            number(row.ridge),
            Cell(row.note + (" (moved to the probe)" if row.contradicted else "")),
        ]
        for row in rows
    ]
    best = [at for at, row in enumerate(rows) if row.algorithm == advice.recommended]
    named = {"radius": about.radius, "centre": about.centre, "signal": about.signal, "aspect": about.aspect}
    meanings = {
        "radius": "distance of a client's optimum from the shared one",
        "centre": "length of the shared optimum",
        "signal": "standard deviation of a client's logits",
        "aspect": "unknowns per sample, d/n: median, least and largest over clients",
    }
    sections: list[tuple[str, str, object]] = [
        ("accuracies", "Predicted accuracy", joined(
            figure(bars, "accuracy", caption, percent=True), table(columns, cells, "Predicted accuracies", best))),
        ("population", "The population", estimates(named, meanings)),
    ]  # fmt: skip
    return class_sentence(advice), facts, sections


def regression_parts(advice: Advice) -> Parts:
    """Sentence, facts and the sections on expected errors."""
    from fedasym.advisor.wording import NO_FINITE_ERROR, regression_sentence

    about, floor = advice.population, advice.floor
    facts = [f"{about.clients:,} clients", f"{about.samples:,} samples", f"{about.dimension:,} features", about.method]
    rows = sorted(advice.predictions.values(), key=lambda row: (not math.isfinite(row.trusted), row.trusted))
    beside = "held-out folds of the training samples" if advice.weights else "cross-validation over clients, for a new client"
    bars = [
        bar(
            row.algorithm,
            raised(row.level, floor),
            None if row.measured is None else max(row.measured + floor, 0.0),
            advice.recommended,
        )
        for row in rows
    ]
    least = min((each.value for each in bars if each.value > 0), default=math.inf)
    drawn = [each for each in bars if each.value <= WIDE * least]
    left = [each.name for each in bars if each not in drawn]
    caption = f"Expected squared error of a member's new sample with its 95% interval; hollow: {beside}."
    if left:
        caption += f" Too large to draw: {', '.join(left)}."
    if any(not math.isfinite(each.value) for each in bars):
        caption += f" {NO_FINITE_ERROR.capitalize()}"
    other = "by folds" if advice.weights else "by GCV"
    heads = ["squared error", "low", "high", "new client", other, *([] if advice.weights else ["ridge"])]
    columns = [Column("algorithm", True), *map(Column, heads), Column("remark", True)]
    cells = []
    for row, each in zip(rows, bars, strict=True):
        values = [each.value, each.low, each.high, row.new.value + floor, each.beside]
        values += [] if advice.weights else [row.ridge]
        remark = row.note + (" (moved)" if row.contradicted else "")
        cells.append([Cell(row.algorithm), *map(number, values), Cell(remark)])
    best = [at for at, row in enumerate(rows) if row.algorithm == advice.recommended]
    sections: list[tuple[str, str, object]] = [
        ("errors", "Expected error", joined(
            figure(drawn, "squared error", caption), table(columns, cells, "Expected squared errors", best))),
        ("why", "Why", weights_of(advice) if advice.weights else population_of(advice)),
    ]  # fmt: skip
    return regression_sentence(advice), facts, sections


def raised(quantity: Quantity, floor: float) -> Quantity:
    """A loss above the noise as an error: the noise is added."""
    return replace(quantity, value=quantity.value + floor, low=quantity.low + floor, high=quantity.high + floor)


def population_of(advice: Advice) -> Html:
    """The estimates of many features: four numbers."""
    about = advice.population
    named = {"radius": about.radius, "noise": about.noise, "norm": about.norm, "aspect": about.aspect}
    meanings = {
        "radius": "distance of a client's optimum from the shared one",
        "noise": "standard deviation of the label noise",
        "norm": "length of a client's optimum",
        "aspect": "unknowns per sample, d/n: median, least and largest over clients",
    }
    return estimates(named, meanings)


def weights_of(advice: Advice) -> Html:
    """The estimates of few features: what is shared, and how much clients differ, by name."""
    noise = advice.population.noise
    text = (
        f"No model of these features explains noise with a standard deviation of {noise}. Clients differ by the standard "
        "deviations below; weights without one serve the shared model only."
    )
    heads = ("shared weight", "low", "high", "clients differ by", "low", "high")
    columns = [Column("feature", True), *map(Column, heads)]
    cells = []
    for each in advice.weights:
        own = each.deviation
        apart = [None] * 3 if own is None else [own.value, own.low, own.high]
        values = [each.shared.value, each.shared.low, each.shared.high, *apart]
        cells.append([Cell(each.name), *map(number, values)])
    return joined(element("p", text), table(columns, cells, "Shared weights and how clients differ"))


def estimates(named: dict[str, Quantity], meanings: dict[str, str]) -> Html:
    """The estimates with their intervals."""
    columns = [Column("quantity", True), Column("estimate"), Column("low"), Column("high"), Column("meaning", True)]
    cells = [[Cell(name), *(number(v) for v in (q.value, q.low, q.high)), Cell(meanings[name])] for name, q in named.items()]
    return table(columns, cells, "Estimates with 95% intervals")


def clients_of(advice: Advice) -> Html:
    """Every client: the ones that lose first."""
    points = advice.metric.share
    tally = {word: sum(each.verdict == word for each in advice.clients) for word in ("gains", "loses", "unclear")}
    text = (
        f"With a model of its own (rtfa) instead of the shared one (fedavg): {tally['gains']} clients gain, {tally['loses']} "
        f"are predicted to lose, {tally['unclear']} unclear. "
        f"Gains are in {'points of accuracy' if points else 'squared labels'}."
    )
    order = sorted(advice.clients, key=lambda each: each.gain)
    if len(order) > MOST:
        text += f" Shown are the {MOST} with the lowest gains of {len(order):,}."
        order = order[:MOST]
    scale = 100 if points else 1
    columns = [Column("client", True), *map(Column, ("samples", "gain", "low", "high", "ridge")), Column("verdict", True)]
    cells = [
        [
            Cell(str(each.client)),
            count(each.samples),
            *(Cell(minus(f"{scale * v:+.3g}"), scale * v) for v in (each.gain, each.low, each.high)),
            number(each.ridge),
            Cell(each.verdict),
        ]
        for each in order
    ]
    return joined(element("p", text), table(columns, cells, "Clients"))


def bar(name: str, quantity: Quantity, beside: float | None, recommended: str) -> Bar:
    """A line of the figure."""
    return Bar(name, quantity.value, quantity.low, quantity.high, beside, name == recommended)


def percent(value: float | None) -> Cell:
    """A share in percent."""
    return Cell("–") if value is None or not math.isfinite(value) else Cell(f"{100 * value:.1f} %", value)


def number(value: float | None) -> Cell:
    """Three significant digits."""
    from fedasym.advisor.wording import three_digits

    return Cell("–") if value is None or math.isnan(value) else Cell(minus(three_digits(value)), value)
