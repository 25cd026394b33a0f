"""Advice as one page of HTML: what to do, predictions, doubts, every client, how to check."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fedasym.advisor.wording import (
    NO_FINITE_ERROR,
    class_sentence,
    count_verdicts,
    proof_heading,
    regression_sentence,
    scored_sentence,
)
from fedasym.models.what_if import UNITS, show_band
from fedasym.results import ACCURACY, LOSS
from fedasym.show import (
    Cell,
    Column,
    Drawing,
    Table,
    count,
    describe_bar,
    minus,
    number_cell,
    percent_cell,
    render,
    write_html,
)
from fedasym.show.figures import embed_for_screens
from fedasym.show.figures.classes import Bar, draw_bars

if TYPE_CHECKING:
    from fedasym.advisor.advice import Advice
    from fedasym.advisor.estimates import Quantity
    from fedasym.models.what_if import WhatIf
    from fedasym.training.decomposition import GainParts

# losses that many times the least are left out of the figure: the others would be one dot
WIDE = 20
MOST = 500  # clients in the table: the rest is in `advice.clients`
MEANINGS = {
    "radius": "distance of a client's optimum from the shared one",
    "noise": "standard deviation of the label noise",
    "norm": "length of a client's optimum",
    "centre": "length of the shared optimum",
    "signal": "standard deviation of a client's logits",
    "aspect": "unknowns per sample, d/n: median, least and largest over clients",
}


class Expected(NamedTuple):
    """What each algorithm is expected to do: drawn, where possible, and in numbers."""

    key: str
    title: str
    bars: Drawing | None
    numbers: Table


class Passage(NamedTuple):
    """A section of a sentence and a table."""

    key: str
    title: str
    sentence: str
    numbers: Table


class AdviceParts(NamedTuple):
    """What differs between the kinds of advice."""

    sentence: str
    sizes: list[str]
    expected: Expected
    estimates: Passage | None


def write_advice(advice: Advice, path: str | Path) -> Path:
    """Write the page, whole or not at all, and return where it is."""
    return write_html(path, lambda: advice_page(advice))


def advice_page(advice: Advice) -> str:
    """The whole page; the same advice gives the same text."""
    describe = {LOSS: answer_regression, ACCURACY: answer_classes}.get(advice.metric, answer_scores)
    answer = describe(advice)
    clients = describe_gainers(advice) if advice.clients else None
    gain = None if advice.gain is None else describe_parts(advice.gain)
    other = None if advice.what_if is None else describe_what_if(advice.what_if)
    doubts, check = Heading("doubts", "Doubts"), Heading("check", proof_heading(advice))
    columns = Heading("columns", "The columns") if advice.columns else None
    held = [answer.expected, answer.estimates, doubts, clients, gain, check, columns, other]
    context = {
        "recommended": advice.recommended,
        "sizes": answer.sizes,
        "sentence": answer.sentence,
        "sections": [(each.key, each.title) for each in held if each is not None],
        "expected": answer.expected,
        "estimates": answer.estimates,
        "doubts": [str(doubt) for doubt in advice.doubts],
        "clients": clients,
        "gain": gain,
        "check": check.title,
        "confirm": str(advice.confirm),
        "snippet": advice.confirm.snippet or None,
        "columns": advice.columns.replace("\n", ". ", 1) if advice.columns else None,
        "what_if": other,
    }
    return render("advice.html", f"Advice: {advice.recommended}", context)


class Heading(NamedTuple):
    """A section's address and title."""

    key: str
    title: str


def answer_scores(advice: Advice) -> AdviceParts:
    """Measured scores."""
    about = advice.population
    sizes = [
        f"{about.clients:,} clients",
        f"{about.samples:,} samples",
        f"{len(about.names):,} features",
    ]
    sizes.append(f"{len(about.classes)} classes")
    rows = sorted(advice.predictions.values(), key=lambda row: row.log_loss.value)
    bars = [bar_of(row.algorithm, row.log_loss, None, advice.recommended) for row in rows]
    heads = ("log-loss", "low", "high", "accuracy", "low", "high")
    cells = [
        [
            Cell(row.algorithm),
            *(number_cell(v) for v in (row.log_loss.value, row.log_loss.low, row.log_loss.high)),
            *(percent_cell(v) for v in (row.accuracy.value, row.accuracy.low, row.accuracy.high)),
        ]
        for row in rows
    ]
    caption = "Log-loss on held-out folds of the training samples with its 95% interval."
    table = Table(
        [Column("algorithm", True), *map(Column, heads)],
        cells,
        "Scores on held-out folds",
        [at for at, row in enumerate(rows) if row.algorithm == advice.recommended],
    )
    expected = Expected(
        "scores", "Held-out scores", draw_intervals(bars, "log-loss", caption), table
    )
    return AdviceParts(scored_sentence(advice), sizes, expected, None)


def answer_classes(advice: Advice) -> AdviceParts:
    """Predicted accuracies."""
    about = advice.population
    sizes = [
        f"{about.clients:,} clients",
        f"{about.samples:,} samples",
        f"{about.dimension:,} features",
        f"{len(about.classes)} classes",
    ]
    rows = sorted(advice.predictions.values(), key=lambda row: -row.trusted)
    bars = [bar_of(row.algorithm, row.level, row.measured, advice.recommended) for row in rows]
    caption = (
        "Predicted accuracy of a member with its 95% interval; hollow: a least-squares classifier"
        " on these samples, held out or left out one by one."
    )
    heads = ("accuracy", "low", "high", "new client", "probe", "log-loss", "ridge")
    columns = [Column("algorithm", True), *map(Column, heads), Column("remark", True)]
    cells = [
        [
            Cell(row.algorithm),
            *(
                percent_cell(v)
                for v in (row.trusted, row.level.low, row.level.high, row.new.value, row.measured)
            ),
            number_cell(row.log_loss.value),
            number_cell(row.ridge),
            Cell(row.note + (" (moved to the probe)" if row.contradicted else "")),
        ]
        for row in rows
    ]
    best = [at for at, row in enumerate(rows) if row.algorithm == advice.recommended]
    drawing = draw_intervals(bars, "accuracy", caption, percent=True)
    expected = Expected(
        "accuracies",
        "Predicted accuracy",
        drawing,
        Table(columns, cells, "Predicted accuracies", best),
    )
    named = {name: getattr(about, name) for name in ("radius", "centre", "signal", "aspect")}
    why = Passage("population", "The population", "", estimates_table(named))
    return AdviceParts(class_sentence(advice), sizes, expected, why)


def answer_regression(advice: Advice) -> AdviceParts:
    """Expected errors."""
    about, floor = advice.population, advice.floor
    sizes = [
        f"{about.clients:,} clients",
        f"{about.samples:,} samples",
        f"{about.dimension:,} features",
        about.method,
    ]
    rows = sorted(
        advice.predictions.values(), key=lambda row: (not math.isfinite(row.trusted), row.trusted)
    )
    beside = (
        "held-out folds of the training samples"
        if advice.weights
        else "cross-validation over clients, for a new client"
    )
    bars = []
    for row in rows:
        measured = None if row.measured is None else max(row.measured + floor, 0.0)
        bars.append(
            bar_of(row.algorithm, add_noise(row.level, floor), measured, advice.recommended)
        )
    least = min((each.value for each in bars if each.value > 0), default=math.inf)
    narrow = [each for each in bars if each.value <= WIDE * least]
    left = [each.name for each in bars if each not in narrow]
    caption = (
        f"Expected squared error of a member's new sample with its 95% interval; hollow: {beside}."
    )
    if left:
        caption += f" Too large to draw: {', '.join(left)}."
    if any(not math.isfinite(each.value) for each in bars):
        caption += f" {NO_FINITE_ERROR.capitalize()}"
    other = "by folds" if advice.weights else "by GCV"
    heads = [
        "squared error",
        "low",
        "high",
        "new client",
        other,
        *([] if advice.weights else ["ridge"]),
    ]
    columns = [Column("algorithm", True), *map(Column, heads), Column("remark", True)]
    cells = []
    for row, each in zip(rows, bars, strict=True):
        values = [each.value, each.low, each.high, row.new.value + floor, each.beside]
        values += [] if advice.weights else [row.ridge]
        remark = row.note + (" (moved)" if row.contradicted else "")
        cells.append([Cell(row.algorithm), *map(number_cell, values), Cell(remark)])
    best = [at for at, row in enumerate(rows) if row.algorithm == advice.recommended]
    drawing = draw_intervals(narrow, "squared error", caption)
    expected = Expected(
        "errors", "Expected error", drawing, Table(columns, cells, "Expected squared errors", best)
    )
    named = {
        "radius": about.radius,
        "noise": about.noise,
        "norm": about.norm,
        "aspect": about.aspect,
    }
    why = (
        weights_passage(advice)
        if advice.weights
        else Passage("why", "Why", "", estimates_table(named))
    )
    return AdviceParts(regression_sentence(advice), sizes, expected, why)


def add_noise(quantity: Quantity, floor: float) -> Quantity:
    """A loss above the noise as an error: the noise is added."""
    return replace(
        quantity, value=quantity.value + floor, low=quantity.low + floor, high=quantity.high + floor
    )


def weights_passage(advice: Advice) -> Passage:
    """The estimates of few features: what is shared, and how much clients differ, by name."""
    noise = advice.population.noise
    text = (
        f"No model of these features explains noise with a standard deviation of {noise}. Clients"
        " differ by the standard deviations below; weights without one serve the shared model"
        " only."
    )
    heads = ("shared weight", "low", "high", "clients differ by", "low", "high")
    columns = [Column("feature", True), *map(Column, heads)]
    cells = []
    for each in advice.weights:
        own = each.deviation
        apart = [None] * 3 if own is None else [own.value, own.low, own.high]
        values = [each.shared.value, each.shared.low, each.shared.high, *apart]
        cells.append([Cell(each.name), *map(number_cell, values)])
    return Passage(
        "why", "Why", text, Table(columns, cells, "Shared weights and how clients differ")
    )


def estimates_table(named: dict[str, Quantity]) -> Table:
    """The estimates with their intervals."""
    numbers = map(Column, ("estimate", "low", "high"))
    columns = [Column("quantity", True), *numbers, Column("meaning", True)]
    cells = [
        [Cell(name), *(number_cell(v) for v in (q.value, q.low, q.high)), Cell(MEANINGS[name])]
        for name, q in named.items()
    ]
    return Table(columns, cells, "Estimates with 95% intervals")


def describe_what_if(found: WhatIf) -> Passage:
    """Scores at other numbers of samples and clients, and what follows."""
    names = found.algorithms
    columns = [Column("what", True), Column("value"), *map(Column, names)]
    cells = [
        [
            Cell(UNITS[quantity]),
            count(value) if value >= 1 else number_cell(value),
            *(
                Cell(show_band(point, found.metric), point.value)
                for point in (found.at(quantity, value, name) for name in names)
            ),
        ]
        for quantity, values in found.quantities.items()
        for value in values
    ]
    text = " ".join(found.sentences)
    told = f"On clients drawn to resemble these. {text}".strip()
    return Passage("what-if", "What if", told, Table(columns, cells, "Scores at other sizes"))


def describe_gainers(advice: Advice) -> Passage:
    """Every client: the ones that lose first."""
    points = advice.metric.share
    gains, loses, unclear = count_verdicts(advice)
    text = (
        f"With a model of its own (rtfa) instead of the shared one (fedavg): {gains} clients gain,"
        f" {loses} are predicted to lose, {unclear} unclear. Gains are in"
        f" {'points of accuracy' if points else 'squared units of the label'}."
    )
    order = sorted(advice.clients, key=lambda each: each.gain)
    if len(order) > MOST:
        text += f" The table shows the {MOST} with the lowest gains of {len(order):,}."
        order = order[:MOST]
    scale = 100 if points else 1
    numbers = map(Column, ("samples", "gain", "low", "high", "ridge"))
    columns = [Column("client", True), *numbers, Column("verdict", True)]
    cells = [
        [
            Cell(str(each.client)),
            count(each.samples),
            *(
                Cell(minus(f"{scale * v:+.3g}"), scale * v)
                for v in (each.gain, each.low, each.high)
            ),
            number_cell(each.ridge),
            Cell(each.verdict),
        ]
        for each in order
    ]
    return Passage("clients", "Who gains", text, Table(columns, cells, "Clients"))


def describe_parts(gain: GainParts) -> Passage:
    """Label shift, feature shift and the rest, in points of accuracy."""
    parts = {
        "label shift": (gain.label, "knowing which classes a client has"),
        "feature shift": (gain.feature, "centring a client's features"),
        "the rest": (gain.rest, "what its own model has beyond both"),
        "together": (gain.gain, f"{gain.algorithm} above its shared model"),
    }
    columns = [Column("part", True), *map(Column, ("points", "± 1 se")), Column("what", True)]
    cells = [
        [
            Cell(name),
            Cell(minus(f"{100 * amount.value:+.1f}"), 100 * amount.value),
            Cell(f"{100 * amount.error:.1f}", 100 * amount.error),
            Cell(meaning),
        ]
        for name, (amount, meaning) in parts.items()
    ]
    title = "Where the gain comes from"
    return Passage("gain", title, gain.sentence, Table(columns, cells, "The gain in parts"))


def bar_of(name: str, quantity: Quantity, beside: float | None, recommended: str) -> Bar:
    """A line of the figure."""
    return Bar(name, quantity.value, quantity.low, quantity.high, beside, name == recommended)


def draw_intervals(
    bars: Sequence[Bar], across: str, caption: str, *, percent: bool = False
) -> Drawing | None:
    """The figure with its caption, and its numbers in words; None with nothing to draw."""
    finite = [each for each in bars if math.isfinite(each.value)]
    if not finite:
        return None
    words = "; ".join(describe_bar(each, percent) for each in finite)
    draw = partial(draw_bars, finite, across, percent)
    pictures = embed_for_screens(draw, "bars", f"{across} by algorithm", f"{words}.")
    return Drawing("bars", pictures, caption)
