"""Advice as a page of words and numbers."""

from __future__ import annotations

import textwrap

import numpy as np

from fedasym.advisor.advice import Advice
from fedasym.advisor.predictions import Prediction
from fedasym.risk import number

WIDTH = 100
SHOWN = 5


def page(advice: Advice) -> str:
    """The whole page: what to do, why, how sure, what may be wrong, how to check."""
    parts = [headline(advice), *population(advice), "", *predictions(advice), "", *who(advice)]
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
    """The recommendation in two or three sentences."""
    best = advice.predictions[advice.recommended]
    text = f"Use {advice.recommended}"
    if advice.ridge is not None:
        text += f" with ridge {number(advice.ridge)} (ridge x samples = {number(advice.confirm.ratios[advice.recommended])})"
    text += f": predicted loss above the noise {number(best.trusted)}"
    gains = [f"{less(best, advice.predictions[name])} than {name}" for name in against(advice)]
    text += f", {' and '.join(gains)}." if gains else "."
    if advice.steps is not None:
        text += f" {stopping(advice)}"
    return text


def against(advice: Advice) -> list[str]:
    """What the recommendation is compared with: not personalising, and not sharing."""
    return [name for name in ("fedavg", "local_ridge") if name != advice.recommended]


def less(best: Prediction, other: Prediction) -> str:
    """By how much lower."""
    if not np.isfinite(other.trusted) or other.trusted <= 0:
        return "bounded, rather" if not np.isfinite(other.trusted) else "no lower"
    share = 1 - best.trusted / other.trusted
    return f"{share:.0%} lower" if share >= 0.005 else "about the same"


def stopping(advice: Advice) -> str:
    """Early stopping in a sentence."""
    steps = advice.steps
    assert steps is not None
    if np.isinf(steps.steps):
        return f"Fine-tuning by gradient descent may run to convergence (loss {number(steps.loss)})."
    if steps.steps == 0:
        return "Without a ridge, do not fine-tune at all."
    return (
        f"Without a ridge, fine-tune the averaged model for {steps.steps:g} full-batch steps (epochs) of {number(steps.step)}: "
        f"loss {number(steps.loss)} for a new client."
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


def predictions(advice: Advice) -> list[str]:
    """The table of losses."""
    lines = [f"  {'algorithm':<13}{'loss':>9}{'95% interval':>20}{'new client':>12}{'by GCV':>9}{'ridge':>9}{'test error':>12}"]
    rows = sorted(advice.predictions.values(), key=lambda row: (not np.isfinite(row.trusted), row.trusted))
    for row in rows:
        mark = "*" if row.algorithm == advice.recommended else " "
        span = f"[{row.loss.low:.4g}, {row.loss.high:.4g}]"
        cells = "".join(f"{short(value):>9}" for value in (row.gcv, row.ridge))
        error = short(row.trusted + advice.floor)
        flag = "  (moved to GCV)" if row.contradicted else ""
        lines.append(
            f"{mark} {row.algorithm:<13}{short(row.trusted):>9}{span:>20}{short(row.new.value):>12}{cells}{error:>12}{flag}"
        )
    notes = [f"  {row.algorithm}: {row.note}." for row in rows if row.note]
    return ["Predicted loss above the noise, for a member and for a new client", *lines, *notes]


def short(value: float | None) -> str:
    """Four digits."""
    return "-" if value is None else f"{value:.4g}"


def who(advice: Advice) -> list[str]:
    """Who gains and who loses."""
    count = {word: [each for each in advice.clients if each.verdict == word] for word in ("gains", "loses", "unclear")}
    lines = [
        f"Personalization (rtfa against fedavg): {len(count['gains'])} clients gain, {len(count['loses'])} are predicted to "
        f"lose, {len(count['unclear'])} unclear."
    ]
    if count["loses"]:
        worst = sorted(count["loses"], key=lambda each: each.gain)[:SHOWN]
        lines.append("  keep the shared model for " + ", ".join(f"{each.client} ({each.gain:+.3g})" for each in worst))
    return lines


def filled(text: str, indent: str) -> str:
    """Wrapped to the width of the page."""
    return textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent + ("  " if indent else ""))
