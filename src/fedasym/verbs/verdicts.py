"""What a table means, a sentence each: does fine-tuning pay, does sharing pay, what to mind."""

from __future__ import annotations

import numpy as np

from fedasym.algorithms import ClientStage, Objective, ServerStage
from fedasym.core.numbers import Array
from fedasym.results import ACCURACY, LOSS, Accuracy, Comparison, Risk, percent
from fedasym.theory import CRITICAL
from fedasym.verbs.regimes import noise_threshold
from fedasym.worlds.classes import ClassPopulation

# an aspect within this of 1 is near the threshold: the limit needs a dimension well above
# (3/NEAR)^2 = 900
NEAR = 0.1
# an aspect this near to gamma* asks for a dimension well above (2/NEAR_SEPARABLE)^2 = 1100
NEAR_SEPARABLE = 0.06
Pair = tuple[ServerStage, ClientStage]
UNUSED = (
    "Left out maml (to convergence it equals local, whatever the clients shared) and pfedme, which"
    " has a row where it is named and clients are infinitely many."
)


def loss_verdicts(table: Comparison[Risk]) -> list[str]:
    """The sentences for a single world; none for a grid."""
    if table.stack().ndim != 1:
        return []
    lines = []
    world, count = table.world, table.clients
    ratio = (
        0.0
        if count is None
        else float(np.asarray(world.aspect)) * world.spectrum.rank / float(count[0])
    )
    if abs(ratio - 1) < CRITICAL:
        lines.append(
            "All samples together just match the unknowns: the shared model's error has no bound."
        )
    elif ratio > 1 and table.member:
        lines.append(
            "All samples together are fewer than the unknowns: the shared model interpolates every"
            " member's samples, so all methods that share agree on members."
        )
    elif {"ftfa", "fedavg"} <= set(table):
        lines.append(tuning_of_losses(table))
    if {"rtfa", "local_ridge"} <= set(table):
        lines.append(sharing_verdict(table))
    if (
        count is not None
        and {"maml", "ftfa"} <= set(table)
        and table["maml"].loss > float(table["ftfa"].loss) * (1 + LOSS.tie)
    ):
        lines.append(
            "MAML's step is too large here: it loses to ftfa; a smaller maml_step would do better."
        )
    if "rtfa" in table and (ridge := table["rtfa"].ridge) is not None and float(ridge) < 0:
        lines.append(
            f"The best ridge is negative ({float(ridge):.4g}): the displacement lies along strong"
            " features, so even the interpolant shrinks too much; where a penalty must not be"
            " negative, ridge 0 (ftfa) is the best."
        )
    return lines


def tuning_of_losses(table: Comparison[Risk]) -> str:
    """Whether fine-tuning pays, with its noise threshold, and what ridge adds."""
    fedavg, ftfa = float(table["fedavg"].loss), float(table["ftfa"].loss)
    edge = ""
    tie = ftfa == fedavg or abs(ftfa - fedavg) <= LOSS.tie * fedavg
    if table.clients is None:
        side = "at" if tie else "below" if ftfa < fedavg else "above"
        edge = f", as the noise {float(np.asarray(table.world.noise)):g} is {side} the threshold "
        edge += f"{float(noise_threshold(table.world)):.4g}"
    if tie:
        text = f"Fine-tuning neither pays nor hurts: ftfa and fedavg both have {fedavg:.4g}{edge}"
    elif ftfa < fedavg:
        text = f"Fine-tuning pays: ftfa {ftfa:.4g} against fedavg {fedavg:.4g}{edge}"
    else:
        text = f"Plain fine-tuning does not pay: ftfa {ftfa:.4g} against fedavg {fedavg:.4g}{edge}"
    if "rtfa" in table and (rtfa := float(table["rtfa"].loss)) < fedavg:
        text += (
            f"; with ridge {float(table['rtfa'].ridge or 0):.4g} it cuts fedavg's loss by"
            f" {1 - rtfa / fedavg:.0%}"
        )
    return text + "."


def sharing_verdict(table: Comparison[Risk] | Comparison[Accuracy]) -> str:
    """Whether learning together pays, ridge against ridge."""
    metric = table.metric
    together, alone = (float(getattr(table[name], metric.name)) for name in ("rtfa", "local_ridge"))
    one, other = (percent(each) if metric.share else f"{each:.4g}" for each in (together, alone))
    if metric.equal(np.array(together), np.array(alone)):
        return f"Sharing neither pays nor hurts: rtfa and local_ridge both have {one}."
    told = f"rtfa {one} against local_ridge {other}"
    if not metric.better(together, alone):
        return f"Sharing does not pay: {told}."
    return (
        f"Sharing pays: {told}."
        if metric.share
        else f"Sharing pays: {told}, {1 - together / alone:.0%} less."
    )


def clients_text(count: Array | None, member: bool) -> str:
    """The number of clients in words."""
    if count is None:
        return "infinitely many clients"
    many = f"{count[0]:g}" if np.all(count == count[0]) else f"{count.min():g} to {count.max():g}"
    return (
        f"{many} client{'' if many == '1' else 's'}, seen by"
        f" {'a member' if member else 'a new client'}"
    )


def thresholds(aspect: Array, pooled: Array | None, stages: list[ClientStage]) -> list[str]:
    """A sentence for each interpolation threshold that is near: a client's aspect = 1 and the
    pooled aspect = 1.

    Both count only the unknowns that samples can see.
    """
    near = []
    if any(stage.linear_objective is Objective.OWN for stage in stages):
        near.append(("aspect", "a client's samples just match its unknowns", np.abs(aspect - 1)))
    if pooled is not None:
        near.append(
            (
                "the pooled aspect",
                "all samples together just match the unknowns",
                np.abs(pooled - 1),
            )
        )
    return [threshold_note(*each) for each in near if np.any(each[2] < NEAR)]


def threshold_note(ratio: str, meaning: str, off: Array) -> str:
    """One sentence on being near a threshold."""
    least = float(off.min())
    needed = f"well above {(3 / least) ** 2:,.0f}" if least > 1e-6 else "enormous"
    where = "part of the grid has " if off.size > 1 else ""
    return (
        f"Near a threshold: {where}{ratio} {'is ' if not where else ''}within {least:.2g} of 1,"
        f" where {meaning}; finite sizes deviate from the limit unless the dimension is {needed}."
    )


def accuracy_verdicts(table: Comparison[Accuracy]) -> list[str]:
    """The sentences for a single world; none for a grid."""
    if table.stack().ndim != 1:
        return []
    have = set(table)
    lines = []
    if {"rtfa", "fedavg"} <= have:
        lines.append(tuning_of_accuracies(table))
    if {"rtfa", "local_ridge"} <= have:
        lines.append(sharing_verdict(table))
    if {"rtfa", "bayes"} <= have:
        short = 100 * (float(table["bayes"].accuracy) - float(table["rtfa"].accuracy))
        lines.append(
            f"rtfa is {points_text(short)} below bayes, what any method could reach if theta_0 were"
            " known."
        )
    if (
        {"rtfa", "rtfa_squares"} <= have
        and table["rtfa"].ridge
        and np.isfinite(float(table["rtfa"].ridge))
    ):
        factor = float(table["rtfa_squares"].ridge or np.nan) / float(table["rtfa"].ridge)
        lost = 100 * (float(table["rtfa"].accuracy) - float(table["rtfa_squares"].accuracy))
        lines.append(
            f"Least squares on the labels (rtfa_squares) is {points_text(abs(lost))}"
            f" {'behind' if lost >= 0 else 'ahead'}, at a ridge {factor:.3g} times as large: never"
            " carry a ridge from one loss to the other."
        )
    return lines


def points_text(share: float) -> str:
    """A difference of accuracies in percentage points, in words."""
    return "less than 0.01 points" if share < 0.01 else f"{share:.2f} points"


def tuning_of_accuracies(table: Comparison[Accuracy]) -> str:
    """What a ridge brings, and what convergence would cost."""
    rtfa, fedavg = float(table["rtfa"].accuracy), float(table["fedavg"].accuracy)
    gain = 100 * (rtfa - fedavg)
    ridge = table["rtfa"].ridge
    at = "" if ridge is None else f" with ridge {float(ridge):.4g}"
    if gain > 100 * ACCURACY.tie:
        text = (
            f"Fine-tuning{at} pays: rtfa {percent(rtfa)} against fedavg {percent(fedavg)},"
            f" {points_text(gain)} more"
        )
    elif gain < -100 * ACCURACY.tie:
        text = (
            f"Fine-tuning{at} does not pay: rtfa {percent(rtfa)} against fedavg {percent(fedavg)}"
        )
    else:
        text = f"Fine-tuning neither pays nor hurts: rtfa and fedavg both have {percent(rtfa)}"
    if "ftfa" in table:
        text += (
            f"; to convergence it would have {percent(table['ftfa'].accuracy)}, as local: "
            "the logistic loss forgets the shared model"
        )
    return text + "."


def convergence_sentences(world: ClassPopulation, pairs: list[Pair]) -> tuple[list[str], list[str]]:
    """What training to convergence means here, and how near a change is: sentences, warnings."""
    ended = [server.squares_labels for server, client in pairs if client.objective is Objective.OWN]
    off = np.abs(np.atleast_1d(np.asarray(world.aspect) * world.energies.rank - 1))
    matched = "a client's samples just match its unknowns and ftfa_squares breaks down"
    squares = [threshold_note("aspect", matched, off)] if any(ended) and np.any(off < NEAR) else []
    told, near = separable_endings(world) if world.classes == 2 and not all(ended) else ([], [])
    return told, near + squares


def separable_endings(world: ClassPopulation) -> tuple[list[str], list[str]]:
    """The same for the logistic loss and two classes."""
    from fedasym.theory.classes.ridge import separability_threshold

    e = world.energies
    edge = separability_threshold(e.rho, world.flips).gamma
    seen = np.asarray(world.aspect) * e.rank
    told = [] if world.shape else [describe_ending(float(seen), float(edge))]
    off = np.abs(seen - edge)
    if not np.any(off < NEAR_SEPARABLE):
        return told, []
    return told, [near_separable(off, edge)]


def describe_ending(aspect: float, edge: float) -> str:
    """Where gradient descent ends."""
    if aspect >= edge:
        return (
            f"A client's classes are separable (aspect {aspect:.4g} is above {edge:.4g}): training"
            " never converges; local and ftfa are its limit, approached only like 1/log(time);"
            " fine_tuning gives the accuracy at real times."
        )
    return (
        f"A client's classes overlap (aspect {aspect:.4g} is below {edge:.4g}): to convergence,"
        " local and ftfa reach the maximum-likelihood fit, which does not know the shared model."
    )


def near_separable(off: Array, edge: Array) -> str:
    """One sentence on being near the separability threshold."""
    least = float(np.min(off))
    needed = f"well above {(2 / least) ** 2:,.0f}" if least > 1e-6 else "enormous"
    where = "part of the grid has an aspect " if np.ndim(off) else "aspect is "
    at = "" if np.ndim(edge) else f" {float(edge):.4g}"
    return (
        f"Near a threshold: {where}within {least:.2g} of the separability threshold{at}; finite"
        f" sizes deviate (local, ftfa) unless the dimension is {needed}; an early stop"
        " (fine_tuning) is the honest number."
    )
