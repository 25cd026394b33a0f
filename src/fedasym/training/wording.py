"""The words and cells of training results: columns, what to know, and what to do about it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedasym.core.numbers import Array, TextTable, number
from fedasym.data.federation import Federation
from fedasym.data.shards import ShardedFederation
from fedasym.training.convergence import NEAR, columns_out_of_scale, curvature
from fedasym.training.decomposition import count_labels
from fedasym.training.plans import NOT_COUNTED

if TYPE_CHECKING:
    from fedasym.training.history import History

PEAK = 0.005  # how far the last round's accuracy lies below the best round's before a word is said
WIDTH = 118
HEADS = {
    "classification": {
        "accuracy": "accuracy",
        "validation_accuracy": "validation",
        "shared_accuracy": "shared",
        "mean_accuracy": "clients' mean",
        "worst_decile": "worst decile",
        "hurt": "hurt",
        "loss": "loss",
    },
    "regression": {
        "loss": "loss",
        "validation_loss": "validation",
        "shared_loss": "shared",
        "mean_loss": "clients' mean",
        "hurt": "hurt",
        "excess": "excess",
    },
}
MEANINGS = {
    "accuracy": "Accuracy: personal models, all test samples together.",
    "loss": "Loss: half the squared error of personal models, all test samples together.",
    "mean_accuracy": "Clients' mean: each client counts alike.",
    "mean_loss": "Clients' mean: each client counts alike.",
    "worst_decile": "Worst decile: the tenth of the clients with the lowest accuracy.",
    "hurt": "Hurt: clients that the shared model serves better.",
    "excess": (
        "Excess: training loss above the exact solution's, in units of half the labels' variance."
    ),
}
FRACTIONS = (
    "accuracy",
    "validation_accuracy",
    "shared_accuracy",
    "mean_accuracy",
    "worst_decile",
    "hurt",
    "excess",
)


def statistic_text(name: str, value: float) -> str:
    """A statistic as it is printed: fractions in percent, a dash where there is none.

    >>> (
    ...     statistic_text("accuracy", 0.81853),
    ...     statistic_text("loss", 0.612345678),
    ...     statistic_text("hurt", float("nan")),
    ... )
    ('81.85%', '0.61235', '-')
    """
    if np.isnan(value):
        return "-"
    return f"{value:.2%}" if name in FRACTIONS else number(value)


def setting_text(value: Any) -> str:
    """A setting's value; a dash where the algorithm has none."""
    return number(value) if isinstance(value, float) else "-" if value is None else str(value)


def fold_line(line: str, width: int = WIDTH) -> list[str]:
    """A line of parts joined by middle dots, cut between parts so that each piece fits.

    >>> fold_line("one · two · three", width=9)
    ['one · two', 'three']
    """
    lines = [""]
    for part in line.split(" · "):
        longer = f"{lines[-1]} · {part}" if lines[-1] else part
        lines = [*lines[:-1], longer] if len(longer) <= width or not lines[-1] else [*lines, part]
    return lines


def round_table(history: History) -> tuple[TextTable, list[str]]:
    """A run's table by evaluated round and its columns' meanings; empty columns are left out."""
    heads = HEADS[history.task]
    values = {name: getattr(history, name) for name in heads}
    first = next(iter(heads))
    kept = [name for name in heads if name == first or not np.isnan(values[name]).all()]
    rows = []
    for at, when in enumerate(history.rounds):
        rows.append([str(when), *(statistic_text(name, float(values[name][at])) for name in kept)])
    head = ["round", *(heads[name] for name in kept)]
    return TextTable(head, rows, left=0), meanings(kept)


def meanings(names: Iterable[str]) -> list[str]:
    """What the columns are, in as many lines as needed; with accuracy, loss needs no word."""
    listed = list(names)
    told = [
        MEANINGS[name]
        for name in listed
        if name in MEANINGS and (name != "loss" or name == listed[0])
    ]
    return textwrap.wrap(" ".join(told), WIDTH)


def run_notes(history: History) -> list[str]:
    """What happened: divergence, interruption, an accuracy past its peak, privacy spent."""
    notes = []
    if history.diverged is not None:
        notes.append(
            f"Diverged: a model is not finite from round {history.diverged} on. {remedy(history)}"
        )
    if history.converged is False:
        notes.append(
            f"Not converged: {describe_distance(history)}. {convergence_remedies([history])}"
        )
    if history.interrupted:
        notes.append(
            f"Interrupted: the last test was after round {history.rounds[-1]} of"
            f" {history.settings.rounds}."
        )
    accuracy = history.accuracy if history.task == "classification" else np.empty(0)
    if np.isfinite(accuracy).any() and np.nanmax(accuracy) > accuracy[-1] + PEAK:
        peak = int(np.nanargmax(accuracy))
        notes.append(
            f"Test accuracy was highest at round {history.rounds[peak]} ({accuracy[peak]:.2%}):"
            " choose a number of rounds by validation, not by this."
        )
    if history.privacy is not None:
        notes.append(f"{history.privacy} {NOT_COUNTED}")
    return notes


def describe_distance(history: History) -> str:
    """Which of a run's models are not converged, and by how much."""
    parts = []
    for whose, loss, exact, excess in (
        ("personal", history.training_loss, history.exact_loss, history.excess),
        ("shared", history.shared_training_loss, history.exact_shared_loss, history.shared_excess),
    ):
        same = (
            history.exact is not None
            and whose == "shared"
            and history.algorithm.personalise.step_count == 0
        )
        if excess[-1] > NEAR and not same:
            model = "models'" if whose == "personal" else "model's"
            parts.append(
                f"the {whose} {model} training loss is"
                f" {excess_text(float(loss[-1]), float(exact[-1]))}"
            )
    return ", and ".join(parts)


def excess_text(loss: float, exact: float) -> str:
    """A loss beside the least one.

    >>> excess_text(190.0, 175.0), excess_text(4977.0, 175.0)
    ('190, 9% above the exact 175', '4977, 28 times the exact 175')
    >>> excess_text(2.0, 1e-9)
    '2, where the exact solution has 1e-09'
    """
    if exact * 1000 < loss:
        return f"{number(loss)}, where the exact solution has {number(exact)}"
    much = f"{loss / exact - 1:.0%} above" if loss < 2 * exact else f"{loss / exact:.0f} times"
    return f"{number(loss)}, {much} the exact {number(exact)}"


def convergence_remedies(histories: Sequence[History]) -> str:
    """What to do about runs that have not converged, for each stage that needs it."""
    advice = []
    if any(run.algorithm.shares_nothing for run in histories):
        advice.append("more rounds or a larger local_step for models on their own")
    sharing = [run for run in histories if not run.algorithm.shares_nothing]
    if any(run.shared_excess[-1] > NEAR for run in sharing):
        advice.append(
            "more rounds or a larger server_step for the shared model (fewer local_steps where more"
            " rounds change nothing)"
        )
    if any(run.excess[-1] > NEAR and run.algorithm.takes_own_steps for run in sharing):
        advice.append(
            "more personal_epochs or a larger local_step for personalization, unless it is to stop"
            " early"
        )
    data = histories[0].federation
    # a saved history has no samples
    far = columns_out_of_scale(data) if isinstance(data, Federation) else {}
    return (
        f"Try {'; '.join(advice)}; {scaling_advice(far)}."
        " fedasym fit (fa.linear.fit) solves it exactly."
    )


def remedy(history: History) -> str:
    """Which step to make smaller: those of the stage whose model was the first to fail."""
    tested = np.flatnonzero(np.asarray(history.rounds) >= (history.diverged or 0))[:1]
    counted = history.shared_losses[tested][:, history.totals > 0]
    by_server = not history.algorithm.shares_nothing and not (
        counted.size and np.isfinite(counted).all()
    )
    names: tuple[str, ...] = ("local_step",)
    stage = history.algorithm.personalise
    if by_server or history.algorithm.personal_from_server:
        names = history.algorithm.server.step_settings
    elif (step := stage.get("local_step")) is not None:
        now = f"{type(stage).__name__}'s {setting_text(step)}"
        return f"Try a smaller step than {now}, {scale_remedy(history)}."
    listed = " or ".join(
        f"{name} (now {setting_text(getattr(history.settings, name))})" for name in names
    )
    return f"Try a smaller {listed}, {scale_remedy(history)}."


def scale_remedy(history: History) -> str:
    """What else helps against divergence: mending the columns out of scale, if there are any."""
    data = history.federation
    if isinstance(data, Federation) and (
        cause := blame_columns(columns_out_of_scale(data))
    ):  # a saved history has no samples
        return f"or rather fix the features: {cause}"
    return "or features of a smaller scale"


def blame_columns(far: Mapping[str, float]) -> str:
    """The columns that are out of scale, and what to do about them.

    >>> blame_columns({"student": 2.04e5}), blame_columns({})
    ("column 'student' has values around 2e+05: scale it, or drop it", '')
    """
    if not far:
        return ""
    # a name, or a position
    named = {name if name.isdigit() else repr(name): size for name, size in far.items()}
    listed = [f"{name} has values around {size:.0e}" for name, size in list(named.items())[:3]]
    more = f", and {len(far) - 3} more" if len(far) > 3 else ""
    one = len(far) == 1
    return (
        f"column {', '.join(listed)}{more}: scale {'it' if one else 'them'}, or drop"
        f" {'it' if one else 'them'}"
    )


def scaling_advice(far: Mapping[str, float]) -> str:
    """What else helps slow training: features of one scale, and the columns that are not."""
    return f"or fix the features: {blame_columns(far)}" if far else "or features of one scale"


def smaller_steps(far: Mapping[str, float], largest: float | None) -> str:
    """What to do where all diverged: mend columns out of scale, or take stable steps."""
    return blame_columns(far) or (
        "try smaller steps" if largest is None else f"try steps below {number(largest)}"
    )


def client_notes(history: History) -> list[str]:
    """Clients whose numbers are missing or need a word."""
    notes = []
    m = len(history.federation.clients)
    if untested := int((history.totals[:, 1] == 0).sum()):
        notes.append(
            f"Without test samples: {untested} of {m} clients; no test statistic counts them."
        )
    if untrained := int((np.asarray(history.federation.counts("train")) == 0).sum()):
        model = "an untrained model" if history.algorithm.shares_nothing else "the shared model"
        notes.append(
            f"Without training samples: {untrained} of {m} clients; their personal model is"
            f" {model}."
        )
    return notes


def share_notes(history: History) -> list[str]:
    """A doubt where class shares are added, and held-out samples have others than training."""
    data = history.federation
    if history.algorithm.correction is None or not isinstance(data, Federation):
        return []  # a saved history has no samples
    if isinstance(data, ShardedFederation):
        return []  # which would be read once more to print a line
    told = describe_drift(*count_labels(data, history.protocol.count_padding))
    return [f"Doubt: {told}"] if told else []


def share_drift(trained: Array, held: Array, draws: int = 20) -> tuple[float, float]:
    """How much clients' held-out class counts differ from their training ones: the sum of squares
    over what chance makes it, and how many standard deviations of chance it is above that.

    Chance deals each client's labels out anew, to as many held-out samples as it has.

    >>> counts = np.array([[30.0, 10.0], [10.0, 30.0]])
    >>> round(share_drift(counts, counts)[0], 1), share_drift(counts, counts[::-1])[1] > 5
    (0.0, True)
    """
    rng = np.random.default_rng(0)
    found, chance = 0.0, np.zeros(draws)
    for own, out in zip(trained.astype(int), held.astype(int), strict=True):
        if not own.sum() or not out.sum():
            continue
        met = own + out > 0
        both = (own + out)[met]
        expected = both * out.sum() / both.sum()
        drawn = rng.multivariate_hypergeometric(both, int(out.sum()), size=draws)
        found += float(((out[met] - expected) ** 2 / expected).sum())
        chance += ((drawn - expected) ** 2 / expected).sum(1)
    spread = float(chance.std())
    return found / max(float(chance.mean()), 1e-300), (found - float(chance.mean())) / max(
        spread, 1e-300
    )


DRIFT, SURE_DRIFT = 1.2, 5.0  # times as much as chance; standard deviations


def describe_drift(trained: Array, held: Array) -> str | None:
    """A sentence where held-out class shares are not those of training; None where they are."""
    ratio, z = share_drift(trained, held)
    if ratio < DRIFT or z < SURE_DRIFT:
        return None
    return (
        f"clients' held-out samples have other classes than their training samples (counts differ"
        f" {ratio:.1f} times as much as chance makes them): class shares of the one mislead on the"
        " other; take a smaller share_power, a larger share_smoothing, or none of it."
    )


LOSSES = ("loss", "validation_loss", "shared_loss", "mean_loss")

ACCURACIES = ("accuracy", "validation_accuracy", "shared_accuracy", "mean_accuracy", "worst_decile")

COLUMNS = {
    "classification": (*ACCURACIES, "hurt", *LOSSES),
    "regression": (*LOSSES, "hurt", "training_loss", "exact_loss", "excess", "shared_excess"),
}


def divergence_remedy(run: History) -> str:
    """What to do where steps diverge: columns out of scale, or steps too long for the curvature."""
    data = run.federation
    if not isinstance(data, Federation):
        return smaller_steps({}, None)  # a saved history has no samples
    L = (
        curvature(data, run.protocol.intercept, run.settings.batch)
        if run.task == "regression"
        else 0.0
    )
    return smaller_steps(columns_out_of_scale(data), 2 / L if L else None)


def describe_count(count: int, noun: str) -> str:
    """A number with its noun."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def seed_range(name: str, values: Array) -> str:
    """From the worst to the best seed."""
    if len(values) == 1 or np.isnan(values).any():
        return "-"
    ends = sorted((float(values.min()), float(values.max())), reverse=name == "loss")
    return "–".join(statistic_text(name, each) for each in ends).replace("%–", "–")


def deviation_text(name: str, values: Array) -> str:
    """The standard deviation over seeds, accuracies in points.

    >>> deviation_text("accuracy", np.array([0.8, 0.82])), deviation_text("loss", np.ones(1))
    ('1.41', '-')
    """
    if len(values) == 1 or np.isnan(values).any():
        return "-"
    return statistic_text(name, float(values.std(ddof=1))).removesuffix("%")


def describe_unconverged(runs: list[History]) -> list[str]:
    """Those of the runs that are not converged, in a sentence, and what to do."""
    short = [run for run in runs if run.converged is False]
    listed = "; ".join(
        f"{run.algorithm.name}, {describe_distance(run).replace('the ', 'whose ', 1)}"
        for run in short
    )
    return [f"Not converged: {listed}. {convergence_remedies(short)}"] if short else []
