"""What a table of accuracies means, in one sentence each."""

from __future__ import annotations

import numpy as np

from fedasym.core.arrays import Array
from fedasym.results.accuracy import TIE, AccuracyTable, percent
from fedasym.verbs.classes.methods import Method
from fedasym.verbs.sentences import NEAR as NEAR_ONE
from fedasym.verbs.sentences import threshold as threshold_note
from fedasym.worlds.classes import ClassPopulation

NEAR = 0.06  # an aspect this near to gamma* asks for a dimension well above (2/NEAR)^2 = 1100
UNUSED = (
    "Left out maml (to convergence it equals local, whatever the clients shared) and pfedme (its shared model is not derived "
    "for the logistic loss; fa.train takes both)."
)


def verdicts(table: AccuracyTable) -> list[str]:
    """The sentences for a single world; none for a grid."""
    if table.accuracies.ndim != 1:
        return []
    have, lines = set(table), []
    if {"rtfa", "fedavg"} <= have:
        lines.append(tuning(table))
    if {"rtfa", "local_ridge"} <= have:
        lines.append(sharing(table))
    if {"rtfa", "bayes"} <= have:
        short = 100 * (float(table["bayes"].accuracy) - float(table["rtfa"].accuracy))
        lines.append(f"rtfa is {points(short)} below bayes, what any method could reach if theta_0 were known.")
    if {"rtfa", "rtfa_squares"} <= have and table["rtfa"].ridge and np.isfinite(float(table["rtfa"].ridge)):
        factor = float(table["rtfa_squares"].ridge or np.nan) / float(table["rtfa"].ridge)
        lost = 100 * (float(table["rtfa"].accuracy) - float(table["rtfa_squares"].accuracy))
        lines.append(
            f"Least squares on the labels (rtfa_squares) is {points(abs(lost))} {'behind' if lost >= 0 else 'ahead'}, at"
            f" a ridge {factor:.3g} times as large: never carry a ridge from one loss to the other."
        )
    return lines


def points(share: float) -> str:
    """A difference of accuracies in percentage points, in words."""
    return "less than 0.01 points" if share < 0.01 else f"{share:.2f} points"


def tuning(table: AccuracyTable) -> str:
    """What a ridge brings, and what convergence would cost."""
    rtfa, fedavg = float(table["rtfa"].accuracy), float(table["fedavg"].accuracy)
    gain = 100 * (rtfa - fedavg)
    ridge = table["rtfa"].ridge
    at = "" if ridge is None else f" with ridge {float(ridge):.4g}"
    if gain > 100 * TIE:
        text = f"Fine-tuning{at} pays: rtfa {percent(rtfa)} against fedavg {percent(fedavg)}, {points(gain)} more"
    elif gain < -100 * TIE:
        text = f"Fine-tuning{at} does not pay: rtfa {percent(rtfa)} against fedavg {percent(fedavg)}"
    else:
        text = f"Fine-tuning neither pays nor hurts: rtfa and fedavg both have {percent(rtfa)}"
    if "ftfa" in table:
        text += (
            f"; to convergence it would have {percent(table['ftfa'].accuracy)}, as local: "
            "the logistic loss forgets the shared model"
        )
    return text + "."


def sharing(table: AccuracyTable) -> str:
    """Whether learning together pays, ridge against ridge."""
    together, alone = float(table["rtfa"].accuracy), float(table["local_ridge"].accuracy)
    told = f"rtfa {percent(together)} against local_ridge {percent(alone)}"
    if abs(together - alone) <= TIE:
        return f"Sharing neither pays nor hurts: {told}."
    return f"Sharing {'pays' if together > alone else 'does not pay'}: {told}."


def endings(world: ClassPopulation, methods: list[Method]) -> tuple[list[str], list[str]]:
    """What training to convergence means here, and how near that is to changing: sentences, and those that warn."""
    kinds = {method.kind for method in methods}
    off = np.abs(np.atleast_1d(np.asarray(world.aspect) * world.energies.rank - 1))
    matched = "a client's samples just match its unknowns and ftfa_squares breaks down"
    squared = [threshold_note("aspect", matched, off)] if "ftfa_squares" in kinds and np.any(off < NEAR_ONE) else []
    told, near = separable_endings(world) if world.classes == 2 and "converged" in kinds else ([], [])
    return told, near + squared


def separable_endings(world: ClassPopulation) -> tuple[list[str], list[str]]:
    """The same for the logistic loss and two classes."""
    from fedasym.theory.classes.ridge import separability_threshold as threshold

    e = world.energies
    edge = threshold(e.rho, world.flips).gamma
    seen = np.asarray(world.aspect) * e.rank
    told = [] if world.shape else [ending(float(seen), float(edge))]
    off = np.abs(seen - edge)
    if not np.any(off < NEAR):
        return told, []
    return told, [near_separable(off, edge)]


def ending(aspect: float, edge: float) -> str:
    """Where gradient descent ends."""
    if aspect >= edge:
        return (
            f"A client's classes are separable (aspect {aspect:.4g} is above {edge:.4g}): training has no end; local and ftfa "
            "are a limit that is out of reach, neared like 1/log(time); fine_tuning gives the accuracy at real times."
        )
    return (
        f"A client's classes overlap (aspect {aspect:.4g} is below {edge:.4g}): to convergence, local and ftfa reach the "
        "maximum-likelihood fit, which does not know the shared model."
    )


def near_separable(off: Array, edge: Array) -> str:
    """One sentence on being near the separability threshold."""
    least = float(np.min(off))
    needed = f"well above {(2 / least) ** 2:,.0f}" if least > 1e-6 else "enormous"
    where = "part of the grid has an aspect " if np.ndim(off) else "aspect is "
    at = "" if np.ndim(edge) else f" {float(edge):.4g}"
    return (
        f"Near a threshold: {where}within {least:.2g} of the separability threshold{at}; finite sizes deviate (local, ftfa) "
        f"unless the dimension is {needed}; an early stop (fine_tuning) is the honest number."
    )
