"""Advice as a page of words and numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedasym.advisor.estimates import Quantity
from fedasym.advisor.predictions import best_local_algorithm
from fedasym.core.numbers import four_digits, number, percent_text, plural, three_digits
from fedasym.results import ACCURACY, LOSS

if TYPE_CHECKING:
    from fedasym.advisor.advice import Advice, NoisedStatistics
    from fedasym.advisor.predictions import Prediction, Steps

WIDTH = 100
MOST_NAMED = 5
NO_FINITE_ERROR = (
    "none: without a ridge a client with as many samples as features has no finite expected error;"
    " take one with a ridge, or stop early."
)
RANKING_AID = "Take this as a ranking aid: see the doubts on the levels."
HEADS = "least-squares heads on one-hot labels, "  # those that a privacy budget is predicted for
RIVALS = {"fedavg": "with one model for all", "local_ridge": "with each client alone"}


def advice_text(advice: Advice) -> str:
    """The whole page, as the metric has it."""
    write = {LOSS: regression_page, ACCURACY: class_page}.get(advice.metric, score_page)
    text = write(advice)
    return text if advice.what_if is None else f"{text}\n\n{advice.what_if}"


def regression_page(advice: Advice) -> str:
    """The whole page: what to do, why, how sure, what may be wrong, how to check."""
    about = weight_lines(advice) if advice.weights else population_lines(advice)
    parts = [fill_lines(regression_sentence(advice), "") + "\n", *loss_lines(advice), "", *about]
    if advice.statistics is not None:
        parts += ["", fill_lines(statistics_sentence(advice, advice.statistics), "")]
    else:
        parts += ["", *gainer_lines(advice)]
    parts += doubt_lines(advice)
    parts += ["", fill_lines(f"{proof_heading(advice)}: {advice.confirm}", "")]
    parts += bytes_lines(advice.sent) if advice.statistics is None else []
    return "\n".join(parts)


def proof_heading(advice: Advice) -> str:
    """Of the experiment, which has no privacy."""
    return "To prove this wrong" + ", without privacy" * (advice.privacy is not None)


def statistics_sentence(advice: Advice, spent: NoisedStatistics) -> str:
    """What the advice itself has spent of privacy, and with training."""
    where = "" if spent.noises == 1 else f", added by each of {spent.noises} nodes"
    text = (
        f"The statistics behind this advice were sums with Gaussian noise{where}: they have spent"
        f" epsilon {number(spent.epsilon)} at delta {spent.delta:g}."
    )
    if advice.privacy is None:
        return text
    both, delta = spent.epsilon + advice.privacy.epsilon, spent.delta + advice.privacy.delta
    return f"{text} With training that is epsilon {number(both)} at delta {delta:g} in all."


def bytes_lines(sent: int | None) -> list[str]:
    """What clients sent, where it was summaries."""
    if sent is None:
        return []
    told = f"From summaries alone: no client sent more than {sent:,} bytes"
    return ["", f"{told} beside its part in the models."]


def regression_sentence(advice: Advice) -> str:
    """What to do and expect, in the labels' units, beside one model for all and clients alone."""
    text = f"Use {advice.recommended}"
    if advice.ridge is not None and np.isfinite(advice.ridge) and not advice.weights:
        samples = advice.population.dimension / advice.population.aspect.value
        text += f" with ridge {three_digits(advice.ridge)} (for a client of {samples:.0f} samples)"
    text += f": expected squared error {three_digits(expected_error(advice, advice.recommended))}"
    others = name_rivals(advice).items()
    told = [f"{words} {three_digits(expected_error(advice, name))}" for name, words in others]
    text += f", {', '.join(told)}." if told else "."
    if advice.privacy is not None:
        return f"{text} {advice.privacy.describe(lambda loss: three_digits(loss + advice.floor))}"
    if advice.steps is not None:
        text += f" {stopping_sentence(advice)}"
    return text


def expected_error(advice: Advice, name: str) -> float:
    """The expected squared error of a new sample: loss above the noise, and the noise."""
    loss = advice.predictions[name].trusted
    if advice.privacy is not None and name == advice.privacy.algorithm:
        loss = advice.privacy.loss
    return loss + advice.floor


def name_rivals(advice: Advice) -> dict[str, str]:
    """One model for all and the better way alone, in words, without the recommended one."""
    together, apart = RIVALS
    named = {together: RIVALS[together], best_local_algorithm(advice.predictions): RIVALS[apart]}
    if advice.privacy is not None:  # its model for all would not be private
        named.pop(together)
    return {name: words for name, words in named.items() if name != advice.recommended}


def stopping_sentence(advice: Advice) -> str:
    """Early stopping in a sentence."""
    steps = advice.steps
    assert steps is not None
    loss = three_digits(steps.loss)
    if np.isinf(steps.steps):
        return f"Fine-tuning by gradient descent may run to convergence (loss {loss})."
    if steps.steps == 0:
        return "Without a ridge, do not fine-tune at all."
    return (
        f"Without a ridge, fine-tune the averaged model for {steps.steps:g} full-batch steps"
        f" (epochs) of {three_digits(steps.step)}: loss {loss} for a new client."
    )


def population_lines(advice: Advice) -> list[str]:
    """The estimates."""
    about = advice.population
    values, weights = about.spectrum.values, about.spectrum.weights
    order = np.argsort(values)
    places = np.searchsorted(np.cumsum(weights[order]), (0.1, 0.5, 0.9))
    marks = ", ".join(f"{value:.3g}" for value in values[order][places.clip(max=values.size - 1)])
    sizes = f"{about.clients} clients, {about.samples} samples of {about.dimension} features"
    return [
        f"The population ({sizes}; {about.method})",
        f"  radius {about.radius}   distance of a client's optimum from the shared one",
        f"  noise  {about.noise}   standard deviation of the label noise",
        f"  norm   {about.norm}   length of a client's optimum",
        aspect_line(about.aspect),
        f"  covariance: mean eigenvalue {about.spectrum.mean:.4g}; 10%, 50%, 90% at {marks}",
    ]


def aspect_line(aspect: Quantity) -> str:
    """The clients' aspects."""
    ends = f"from {aspect.low:.4g} to {aspect.high:.4g}"
    return f"  aspect {aspect.value:.4g}, {ends} over clients   d/n"


def weight_lines(advice: Advice) -> list[str]:
    """By feature: what is shared, and how much clients' own weights vary about it."""
    about = advice.population
    first = f"Why ({about.clients} clients, {about.samples} samples; {about.method})"
    noise = f"  noise {about.noise}: the standard deviation of what no model of these features"
    noise += " explains"
    if advice.columns:
        noise += "\n  weights: the label's change for one standard deviation of a feature"
        noise += " (--scale none: for one unit)"
    width = max(12, *(len(each.name) + 2 for each in advice.weights))
    lines = [
        f"  {'':<{width}}{'shared weight':>14}{'95% interval':>22}"
        f"{'clients differ by':>20}{'95% interval':>22}"
    ]
    for each in advice.weights:
        apart, shared = each.deviation, each.shared
        own = f"{'shared only':>20}"
        if apart is not None:
            own = f"{three_digits(apart.value):>20}{interval_text(apart):>22}"
        mean = f"{three_digits(shared.value):>14}{interval_text(shared):>22}"
        lines.append(f"  {each.name:<{width}}{mean}{own}")
    return [first, noise, "", *lines]


def interval_text(quantity: Quantity) -> str:
    """An interval."""
    return f"[{three_digits(quantity.low)}, {three_digits(quantity.high)}]"


def loss_lines(advice: Advice) -> list[str]:
    """The table of expected errors, the best first."""
    floor = advice.floor
    rows = list(advice.predictions.values())
    ridged = any(row.ridge is not None for row in rows) and not advice.weights
    beside = "by folds" if advice.weights else "by GCV"
    lines = [
        f"  {'algorithm':<13}{'squared error':>14}{'95% interval':>24}"
        f"{'new client':>12}{beside:>12}" + (f"{'ridge':>12}" if ridged else "")
    ]
    rows.sort(key=lambda row: (not np.isfinite(row.trusted), row.trusted))
    for row in rows:
        mark = "*" if row.algorithm == advice.recommended else " "
        ends = Quantity(row.trusted, row.level.low + floor, row.level.high + floor)
        other = None if row.measured is None else max(row.measured + floor, 0.0)
        cells = [row.new.value + floor, other, *([row.ridge] if ridged else [])]
        flag = "  (moved)" if row.contradicted else ""
        rest = "".join(f"{three_digits(cell):>12}" for cell in cells)
        error = f"{three_digits(row.trusted + floor):>14}{interval_text(ends):>24}"
        lines.append(f"{mark} {row.algorithm:<13}{error}{rest}{flag}")
    notes = [f"  {row.algorithm}: {row.note}." for row in rows if row.note]
    if any(not np.isfinite(row.trusted) for row in rows):
        notes.append(fill_lines(NO_FINITE_ERROR, "  "))
    head = "Expected squared error of a member's new sample"
    head += "" if advice.privacy is None else ", without privacy"
    return [f"{head}; the noise alone is {three_digits(floor)}", *lines, *notes]


def gainer_lines(advice: Advice) -> list[str]:
    """Who gains and who loses."""
    gains, loses, unclear = count_verdicts(advice)
    told = f"{gains} surely gain, {loses} surely lose, and {unclear} may do either."
    head = "Own models (rtfa) instead of the shared one (fedavg): of"
    lines = [f"{head} {plural(len(advice.clients), 'client')} {told}"]
    return lines + keeper_lines(advice, lambda gain: f"{gain:+.3g}")


def count_verdicts(advice: Advice) -> list[int]:
    """How many clients gain, lose, and may do either."""
    verdicts = [each.verdict for each in advice.clients]
    return [verdicts.count(word) for word in ("gains", "loses", "unclear")]


def keeper_lines(advice: Advice, show: Callable[[float], str]) -> list[str]:
    """Those who should keep the shared model, the worst of them by name."""
    losers = [each for each in advice.clients if each.verdict == "loses"]
    worst = sorted(losers, key=lambda each: each.gain)[:MOST_NAMED]
    named = ", ".join(f"{each.client} ({show(each.gain)})" for each in worst)
    return [f"  keep the shared model for {named}"] if worst else []


def fill_lines(text: str, indent: str) -> str:
    """Wrapped to the width of the page."""
    further = indent + ("  " if indent else "")
    return textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=further)


def class_page(advice: Advice) -> str:
    """The whole page: what to do, why, how sure, what may be wrong, how to check."""
    parts = [
        fill_lines(class_sentence(advice), "") + "\n",
        *class_population_lines(advice),
        "",
        *accuracy_lines(advice),
        "",
        *accuracy_gain_lines(advice),
        *bytes_lines(advice.sent),
    ]
    parts += doubt_lines(advice)
    parts += ["", fill_lines(f"{proof_heading(advice)}: {advice.confirm}", "")]
    parts += [f"  {line}" for line in advice.confirm.snippet.splitlines()]
    return "\n".join(parts)


def class_sentence(advice: Advice) -> str:
    """The recommendation in a few sentences."""
    best = advice.predictions[advice.recommended]
    about = advice.privacy
    if about is not None and about.algorithm == advice.recommended:
        best = replace(best, trusted=1 - about.loss)
    text = f"Use {advice.recommended}"
    if advice.ridge is not None:
        ratio = number(advice.ridge * advice.samples)
        text += f" with ridge {number(advice.ridge)} of the logistic loss"
        text += f" (ridge x samples = {ratio})"
    text += f": predicted accuracy {percent_text(best.trusted)}"
    others = {name: row for name, row in advice.predictions.items() if name in RIVALS}
    others.pop(advice.recommended, None)
    if about is not None:  # a model for all would not be private
        others.pop("fedavg", None)
    apart = [f"{points_apart(best, others[name])} {name}" for name in RIVALS if name in others]
    text += f", {' and '.join(apart)}." if apart else "."
    if about is not None:
        text += f" {about.describe(lambda wrong: percent_text(1 - wrong), HEADS)}"
        text += " Validation chooses the ridge." if advice.ridge is None else ""
    elif advice.steps is not None:
        text += f" {epochs_sentence(advice.steps)}"
    elif advice.predictions["rtfa"].contradicted:
        text += " No number of fine-tuning epochs is predicted, as the model does not fit: let"
        text += " validation choose it."
    if advice.ranking_aid:
        text += f" {RANKING_AID}"
    return text


def epochs_sentence(steps: Steps) -> str:
    """Early stopping in a sentence or two."""
    plural = "" if steps.steps == 1 else "s"
    return (
        f"Or fine-tune the shared model without a ridge and stop early: {steps.steps} full-batch"
        f" step{plural} (epochs) of {number(steps.step)}, or {steps.epochs} epochs of fa.train with"
        f" local_step {number(steps.local_step)}; accuracy {percent_text(steps.accuracy)}. To"
        " convergence it would forget the shared model."
    )


def points_apart(best: Prediction, other: Prediction) -> str:
    """By how many points of accuracy."""
    more = 100 * (best.trusted - other.trusted)
    if abs(more) < 0.05:
        return "about the same as"
    return f"{abs(more):.1f} points {'above' if more > 0 else 'below'}"


def class_population_lines(advice: Advice) -> list[str]:
    """The estimates."""
    about = advice.population
    sizes = f"{about.clients} clients, {about.samples} samples of {about.dimension} features"
    return [
        f"The population ({sizes}, {len(about.classes)} classes; {about.method})",
        f"  radius {about.radius}   distance of a client's optimum from the shared one",
        f"  centre {about.centre}   length of the shared optimum",
        f"  signal {about.signal}   standard deviation of a client's logits",
        aspect_line(about.aspect),
        f"  largest class {max(about.shares):.1%} of the labels: the accuracy of always naming it",
    ]


def accuracy_lines(advice: Advice) -> list[str]:
    """The table of accuracies."""
    lines = [
        f"  {'algorithm':<13}{'accuracy':>9}{'95% interval':>18}{'new client':>12}"
        f"{'probe':>9}{'log-loss':>10}{'ridge':>10}"
    ]
    rows = sorted(advice.predictions.values(), key=lambda row: -row.trusted)
    for row in rows:
        mark = "*" if row.algorithm == advice.recommended else " "
        flag = "  (moved to the probe)" if row.contradicted else ""
        own = f"{percent_text(row.trusted):>9}{percent_interval(row.level):>18}"
        own += f"{percent_text(row.new.value):>12}{percent_text(row.measured):>9}"
        own += f"{four_digits(row.log_loss.value):>10}{four_digits(row.ridge):>10}"
        lines.append(f"{mark} {row.algorithm:<13}{own}{flag}")
    notes = [f"  {row.algorithm}: {row.note}." for row in rows if row.note]
    head = "Predicted accuracy for a member and for a new client"
    head += "" if advice.privacy is None else ", without privacy"
    head += "; probe: least squares in closed"
    return [f"{head} form, measured on your samples", *lines, *notes]


def percent_interval(quantity: Quantity) -> str:
    """Ends in percent."""
    ends = f"[{100 * quantity.low:.1f}, {100 * quantity.high:.1f}]"
    return "-" if np.isnan(quantity.low) else ends


def accuracy_gain_lines(advice: Advice) -> list[str]:
    """Who gains and who loses."""
    gains, loses, unclear = count_verdicts(advice)
    told = f"{gains} clients gain, {loses} are predicted to lose, {unclear} unclear."
    lines = [f"Personalization (rtfa against fedavg): {told}"]
    lines += keeper_lines(advice, lambda gain: f"{100 * gain:+.1f} points")
    return lines if advice.gain is None else [*lines, fill_lines(advice.gain.sentence, "  ")]


def scored_sentence(advice: Advice) -> str:
    """The recommendation beside one model for all and each client alone."""
    best = advice.predictions[advice.recommended]
    told = [
        f"{words} {row.accuracy.value:.1%} ({three_digits(row.log_loss.value)})"
        for name, words in RIVALS.items()
        if name != advice.recommended and (row := advice.predictions[name])
    ]
    scores = f"accuracy {best.accuracy.value:.1%}, log-loss {three_digits(best.log_loss.value)}"
    text = ", ".join([f"{scores} on held-out folds", *told])
    if advice.privacy is None:
        return f"Use {advice.recommended}: {text}."
    cost = advice.privacy.describe(lambda wrong: f"{1 - wrong:.1%}", HEADS)
    return f"Use {advice.recommended}: without privacy {text}. {cost}"


def score_page(advice: Advice) -> str:
    """The page of scores on folds."""
    about = advice.population
    sizes = f"{plural(about.samples, 'sample')} of {plural(about.clients, 'client')}"
    largest = f"the largest class is {max(about.shares):.1%} of the labels"
    lines = [
        fill_lines(scored_sentence(advice), ""),
        "",
        f"Held-out folds of {sizes}, {plural(len(about.names), 'feature')}; {largest}",
        f"  {'algorithm':<13}{'log-loss':>10}{'95% interval':>24}{'accuracy':>11}"
        f"{'95% interval':>18}",
    ]
    for row in sorted(advice.predictions.values(), key=lambda row: row.log_loss.value):
        mark = "*" if row.algorithm == advice.recommended else " "
        lost = f"{three_digits(row.log_loss.value):>10}{interval_text(row.log_loss):>24}"
        right = f"{row.accuracy.value:>11.1%}{percent_interval(row.accuracy):>18}"
        lines.append(f"{mark} {row.algorithm:<13}{lost}{right}")
    if advice.gain is not None:
        lines += ["", fill_lines(advice.gain.sentence, "")]
    check = fill_lines(f"{proof_heading(advice)}: {advice.confirm}", "")
    return "\n".join([*lines, *doubt_lines(advice), "", check])


def doubt_lines(advice: Advice) -> list[str]:
    """What may be wrong, where something may."""
    if not advice.doubts:
        return []
    told = (fill_lines(f"- {doubt}.".replace("..", "."), "  ") for doubt in advice.doubts)
    return ["", "Doubts", *told]
