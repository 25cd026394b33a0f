"""Advice about classes as a page of words and numbers."""

from __future__ import annotations

import math

from fedasym.advisor.classes.advice import ClassAdvice, Epochs
from fedasym.advisor.classes.predictions import AccuracyPrediction
from fedasym.advisor.estimates import Quantity
from fedasym.advisor.wording import SHOWN, filled, frugality
from fedasym.core.text import number

RANKING = "Take this as a ranking aid: see the doubts on the levels."


def page(advice: ClassAdvice) -> str:
    """The whole page: what to do, why, how sure, what may be wrong, how to check."""
    parts = [headline(advice), *population(advice), "", *predictions(advice), "", *who(advice), *frugality(advice.sent)]
    if advice.doubts:
        parts += ["", "Doubts"]
        parts += [filled(f"- {doubt}.".replace("..", "."), "  ") for doubt in advice.doubts]
    parts += ["", filled(f"To prove this wrong: {advice.confirm}", "")]
    parts += [f"  {line}" for line in advice.confirm.snippet.splitlines()]
    return "\n".join(parts)


def sentence(advice: ClassAdvice) -> str:
    """The recommendation in a few sentences."""
    best = advice.predictions[advice.recommended]
    text = f"Use {advice.recommended}"
    if advice.ridge is not None:
        ratio = number(advice.ridge * advice.samples)
        text += f" with ridge {number(advice.ridge)} of the logistic loss (ridge x samples = {ratio})"
    text += f": predicted accuracy {percent(best.trusted)}"
    others = [name for name in ("fedavg", "local_ridge") if name != advice.recommended and name in advice.predictions]
    text += ", " + " and ".join(f"{points(best, advice.predictions[name])} {name}" for name in others) + "."
    if advice.steps is not None:
        text += f" {stopping(advice.steps)}"
    elif advice.predictions["rtfa"].contradicted:
        text += " No number of fine-tuning epochs is predicted, as the model does not fit: let validation choose it."
    if advice.ranking_aid:
        text += f" {RANKING}"
    return text


def stopping(steps: Epochs) -> str:
    """Early stopping in a sentence or two."""
    plural = "" if steps.steps == 1 else "s"
    return (
        f"Or fine-tune the shared model without a ridge and stop early: {steps.steps} full-batch step{plural} (epochs) of "
        f"{number(steps.step)}, or {steps.epochs} epochs of fa.train with local_step {number(steps.local_step)}; accuracy "
        f"{percent(steps.accuracy)}. To convergence it would forget the shared model."
    )


def headline(advice: ClassAdvice) -> str:
    """The recommendation, filled."""
    return filled(sentence(advice), "") + "\n"


def points(best: AccuracyPrediction, other: AccuracyPrediction) -> str:
    """By how many points of accuracy."""
    more = 100 * (best.trusted - other.trusted)
    return f"{more:.1f} points above" if more >= 0.05 else "about the same as" if more > -0.05 else f"{-more:.1f} points below"


def population(advice: ClassAdvice) -> list[str]:
    """The estimates."""
    about = advice.population
    return [
        f"The population ({about.clients} clients, {about.samples} samples of {about.dimension} features, "
        f"{len(about.classes)} classes; {about.method})",
        f"  radius {about.radius}   distance of a client's optimum from the shared one",
        f"  centre {about.centre}   length of the shared optimum",
        f"  signal {about.signal}   standard deviation of a client's logits",
        f"  aspect {about.aspect.value:.4g}, from {about.aspect.low:.4g} to {about.aspect.high:.4g} over clients   d/n",
        f"  largest class {max(about.shares):.1%} of the labels: what always naming it gets right",
    ]


def predictions(advice: ClassAdvice) -> list[str]:
    """The table of accuracies."""
    lines = [
        f"  {'algorithm':<13}{'accuracy':>9}{'95% interval':>18}{'new client':>12}{'probe':>9}{'log-loss':>10}{'ridge':>10}"
    ]
    rows = sorted(advice.predictions.values(), key=lambda row: -row.trusted)
    for row in rows:
        mark = "*" if row.algorithm == advice.recommended else " "
        flag = "  (moved to the probe)" if row.contradicted else ""
        lines.append(
            f"{mark} {row.algorithm:<13}{percent(row.trusted):>9}{interval(row.shown):>18}{percent(row.new.value):>12}"
            f"{percent(row.probe):>9}{short(row.log_loss.value):>10}{short(row.ridge):>10}{flag}"
        )
    notes = [f"  {row.algorithm}: {row.note}." for row in rows if row.note]
    return [
        "Predicted accuracy for a member and for a new client; probe: least squares in closed form, measured on your samples",
        *lines,
        *notes,
    ]


def interval(quantity: Quantity) -> str:
    """Ends in percent."""
    return "-" if math.isnan(quantity.low) else f"[{100 * quantity.low:.1f}, {100 * quantity.high:.1f}]"


def percent(value: float | None) -> str:
    """A share in percent, to a tenth."""
    return "-" if value is None or math.isnan(value) else f"{100 * value:.1f}%"


def short(value: float | None) -> str:
    """Four digits."""
    return "-" if value is None or math.isnan(value) else "none" if math.isinf(value) else f"{value:.4g}"


def who(advice: ClassAdvice) -> list[str]:
    """Who gains and who loses."""
    count = {word: [each for each in advice.clients if each.verdict == word] for word in ("gains", "loses", "unclear")}
    lines = [
        f"Personalization (rtfa against fedavg): {len(count['gains'])} clients gain, {len(count['loses'])} are predicted to "
        f"lose, {len(count['unclear'])} unclear."
    ]
    if count["loses"]:
        worst = sorted(count["loses"], key=lambda each: each.gain)[:SHOWN]
        lines.append(
            "  keep the shared model for " + ", ".join(f"{each.client} ({100 * each.gain:+.1f} points)" for each in worst)
        )
    return lines
