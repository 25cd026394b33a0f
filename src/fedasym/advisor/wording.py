"""Advice as a page of words and numbers."""

from __future__ import annotations

import textwrap

import numpy as np

from fedasym.advisor.advice import Advice
from fedasym.advisor.estimates import Quantity
from fedasym.core.text import plural

WIDTH = 100
SHOWN = 5
ENDLESS = (
    "none: without a ridge a client with as many samples as features has no finite expected error; take one with a ridge, or "
    "stop early."
)


def page(advice: Advice) -> str:
    """The whole page: what to do, why, how sure, what may be wrong, how to check."""
    parts = [headline(advice), *predictions(advice), "", *(weights(advice) if advice.weights else population(advice))]
    parts += ["", *who(advice)]
    if advice.doubts:
        parts += ["", "Doubts"]
        parts += [filled(f"- {doubt}.".replace("..", "."), "  ") for doubt in advice.doubts]
    parts += ["", filled(f"To prove this wrong: {advice.confirm}", "")]
    parts += frugality(advice.sent)
    return "\n".join(parts)


def headline(advice: Advice) -> str:
    """The recommendation, filled."""
    return filled(sentence(advice), "") + "\n"


def frugality(sent: int | None) -> list[str]:
    """What clients sent, where it was summaries."""
    if sent is None:
        return []
    return ["", f"From summaries alone: no client sent more than {sent:,} bytes beside its part in the models."]


def sentence(advice: Advice) -> str:
    """What to do and what to expect of it, in the labels' own units, beside one model for all and each client alone."""
    text = f"Use {advice.recommended}"
    if advice.ridge is not None and np.isfinite(advice.ridge) and not advice.weights:
        samples = advice.population.dimension / advice.population.aspect.value
        text += f" with ridge {short(advice.ridge)} (for a client of {samples:.0f} samples)"
    text += f": expected squared error {short(error_of(advice, advice.recommended))}"
    others = [f"{words} {short(error_of(advice, name))}" for name, words in rivals(advice).items()]
    text += f", {', '.join(others)}." if others else "."
    if advice.steps is not None:
        text += f" {stopping(advice)}"
    return text


def error_of(advice: Advice, name: str) -> float:
    """The expected squared error of a new sample: loss above the noise, and the noise."""
    return advice.predictions[name].trusted + advice.floor


def rivals(advice: Advice) -> dict[str, str]:
    """One model for all, and each client alone the better way, in words; not what is recommended already."""
    alone = min(("local_ridge", "local"), key=lambda name: advice.predictions[name].trusted)
    named = {"fedavg": "with one model for all", alone: "with each client alone"}
    return {name: words for name, words in named.items() if name != advice.recommended}


def stopping(advice: Advice) -> str:
    """Early stopping in a sentence."""
    steps = advice.steps
    assert steps is not None
    if np.isinf(steps.steps):
        return f"Fine-tuning by gradient descent may run to convergence (loss {short(steps.loss)})."
    if steps.steps == 0:
        return "Without a ridge, do not fine-tune at all."
    return (
        f"Without a ridge, fine-tune the averaged model for {steps.steps:g} full-batch steps (epochs) of {short(steps.step)}: "
        f"loss {short(steps.loss)} for a new client."
    )


def population(advice: Advice) -> list[str]:
    """The estimates."""
    about = advice.population
    values, weights = about.spectrum.values, about.spectrum.weights
    order = np.argsort(values)
    shares = np.cumsum(weights[order])
    low, middle, high = (values[order][min(int(np.searchsorted(shares, q)), values.size - 1)] for q in (0.1, 0.5, 0.9))
    return [
        f"The population ({about.clients} clients, {about.samples} samples of {about.dimension} features; {about.method})",
        f"  radius {about.radius}   distance of a client's optimum from the shared one",
        f"  noise  {about.noise}   standard deviation of the label noise",
        f"  norm   {about.norm}   length of a client's optimum",
        f"  aspect {about.aspect.value:.4g}, from {about.aspect.low:.4g} to {about.aspect.high:.4g} over clients   d/n",
        f"  covariance: mean eigenvalue {about.spectrum.mean:.4g}; 10%, 50%, 90% at {low:.3g}, {middle:.3g}, {high:.3g}",
    ]


def weights(advice: Advice) -> list[str]:
    """By feature: what is shared, and how much clients' own weights vary about it."""
    about = advice.population
    first = f"Why ({about.clients} clients, {about.samples} samples; {about.method})"
    noise = f"  noise {about.noise}: the standard deviation of what no model of these features explains"
    if advice.columns:
        noise += "\n  weights: what the label changes by with one standard deviation of a feature, unless --scale none"
    width = max(12, *(len(each.name) + 2 for each in advice.weights))
    lines = [f"  {'':<{width}}{'shared weight':>14}{'95% interval':>22}{'clients differ by':>20}{'95% interval':>22}"]
    for each in advice.weights:
        apart = each.deviation
        own = f"{short(apart.value):>20}{span(apart):>22}" if apart is not None else f"{'shared only':>20}"
        lines.append(f"  {each.name:<{width}}{short(each.shared.value):>14}{span(each.shared):>22}{own}")
    return [first, noise, "", *lines]


def span(quantity: Quantity) -> str:
    """An interval."""
    return f"[{short(quantity.low)}, {short(quantity.high)}]"


def predictions(advice: Advice) -> list[str]:
    """The table of expected errors, the best first."""
    ridged = any(row.ridge is not None for row in advice.predictions.values()) and not advice.weights
    beside = "by folds" if advice.weights else "by GCV"
    lines = [
        f"  {'algorithm':<13}{'squared error':>14}{'95% interval':>24}{'new client':>12}{beside:>12}"
        + (f"{'ridge':>12}" if ridged else "")
    ]
    rows = sorted(advice.predictions.values(), key=lambda row: (not np.isfinite(row.trusted), row.trusted))
    for row in rows:
        mark = "*" if row.algorithm == advice.recommended else " "
        ends = Quantity(row.trusted, row.shown.low + advice.floor, row.shown.high + advice.floor)
        other = None if row.gcv is None else max(row.gcv + advice.floor, 0.0)
        cells = [row.trusted + advice.floor, row.new.value + advice.floor, other, *([row.ridge] if ridged else [])]
        texts = [short(value) for value in cells]
        flag = "  (moved)" if row.contradicted else ""
        rest = "".join(f"{text:>12}" for text in texts[1:])
        lines.append(f"{mark} {row.algorithm:<13}{texts[0]:>14}{span(ends):>24}{rest}{flag}")
    notes = [f"  {row.algorithm}: {row.note}." for row in rows if row.note]
    notes += [filled(ENDLESS, "  ")] if any(not np.isfinite(row.trusted) for row in rows) else []
    return [f"Expected squared error of a member's new sample; the noise alone is {short(advice.floor)}", *lines, *notes]


def short(value: float | None) -> str:
    """Three significant digits.

    >>> short(0.123456), short(12345.6), short(None), short(2.0), short(float("inf"))
    ('0.123', '12300', '-', '2', 'none')
    """
    if value is None:
        return "-"
    if not np.isfinite(value):
        return "none"
    if value == 0:
        return "0"
    if not 1e-3 <= abs(value) < 1e6:
        return f"{value:.3g}"
    digits = 2 - int(np.floor(np.log10(abs(value))))
    text = f"{round(value, digits):.{max(digits, 0)}f}"
    return text.rstrip("0").rstrip(".") if digits > 0 else text


def who(advice: Advice) -> list[str]:
    """Who gains and who loses."""
    count = {word: [each for each in advice.clients if each.verdict == word] for word in ("gains", "loses", "unclear")}
    lines = [
        f"Own models (rtfa) instead of the shared one (fedavg): of {plural(len(advice.clients), 'client')} "
        f"{len(count['gains'])} surely gain, {len(count['loses'])} surely lose, {len(count['unclear'])} may do either."
    ]
    if count["loses"]:
        worst = sorted(count["loses"], key=lambda each: each.gain)[:SHOWN]
        lines.append("  keep the shared model for " + ", ".join(f"{each.client} ({each.gain:+.3g})" for each in worst))
    return lines


def filled(text: str, indent: str) -> str:
    """Wrapped to the width of the page."""
    return textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent + ("  " if indent else ""))
