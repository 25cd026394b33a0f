"""What could make advice about classes wrong, each in a sentence with what to do: the doubts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedasym.advisor.assumptions import assumption_2, duplicates, few_clients, few_samples, no_radius
from fedasym.advisor.classes import squares
from fedasym.advisor.classes.comparing import NOTABLE
from fedasym.advisor.classes.predictions import Table
from fedasym.advisor.classes.probes import Probes
from fedasym.advisor.classes.worlds import Sizes, World
from fedasym.advisor.evidence import Check, Doubt, Seen
from fedasym.core.arrays import Array
from fedasym.theory.classes.ridge import separability_threshold as separable_from

CLEAR = 3.0  # standard errors
UNEVEN = 0.7  # effective over actual number of classes, below which they are not alike
SHIFTED = 5.0  # standard deviations of class counts over clients, beyond chance
MEAN = 0.05  # share of the features' energy in their mean
RANKING = (Check.LINK, Check.TRAINED_FEATURES, Check.CLASS_SHARES)  # doubts after which levels are not to be trusted
USELESS = 0.005  # of accuracy: a ridge that gains less is no better


@dataclass(frozen=True, eq=False)
class ClassEvidence(Seen):
    """Everything that the checks look at."""

    classes: tuple[Any, ...]
    counts: Array  # (clients, classes): training labels
    mean_share: float  # of the features' energy in their mean
    left_out: tuple[float, float]  # the shared model's accuracy on training samples of clients left out, standard error
    probes: Probes
    predictions: Table
    world: World
    shape: Sizes


def scarce(seen: ClassEvidence) -> str | None:
    """Fewer samples than unknowns."""
    if not seen.estimates.scarce:
        return None
    return (
        f"all clients together have {seen.sizes.sum():g} samples for {seen.dimension} features: centre and radius are told "
        "apart only by products across clients, accuracies are rough, and the shared model needs a ridge too."
    )


def separable(seen: ClassEvidence) -> str | None:
    """Many clients near the point where their samples become separable."""
    if len(seen.classes) > 2:
        return None
    edge = float(separable_from(seen.world.rho).gamma)
    near = float(np.mean(np.abs(seen.dimension / seen.sizes / edge - 1) < 2 / np.sqrt(seen.dimension)))
    if near <= 0.2:
        return None
    return (
        f"{near:.0%} of the clients have about as many samples as make classes separable (d/n near {edge:.2f}): what training "
        "to convergence (local, ftfa) comes to is hard to predict there; keep a ridge, or stop early."
    )


def imbalance(seen: ClassEvidence) -> str | None:
    """Classes of very different size."""
    share = seen.counts.sum(0) / seen.counts.sum()
    share = share[share > 0]
    effective = float(np.exp(-(share * np.log(share)).sum()))
    if effective >= UNEVEN * len(seen.classes):
        return None
    return (
        f"classes are of very different size (the largest has {share.max():.0%} of the samples, as if there were "
        f"{effective:.3g} of {len(seen.classes)}): the theory has classes alike; always naming the largest class is right "
        f"{share.max():.0%} of the time, so compare accuracies with that."
    )


def label_shift(seen: ClassEvidence) -> str | None:
    """Clients that have different classes."""
    n, share = seen.counts.sum(1), seen.counts.sum(0) / seen.counts.sum()
    kept = share > 0
    expected = n[:, None] * share[kept]
    statistic = ((seen.counts[:, kept] - expected) ** 2 / np.maximum(expected, 1e-300)).sum()
    freedom = (len(n) - 1) * (int(kept.sum()) - 1)
    z = (statistic - freedom) / np.sqrt(2 * max(freedom, 1) * spread_of(share[kept], n))
    if z < SHIFTED or statistic < 1.5 * freedom:
        return None
    return (
        f"clients have different classes (their counts vary {statistic / freedom:.1f} times as much as chance makes them): "
        "part of what a client gains is knowing which classes it has, an intercept that the theory does not have."
    )


def spread_of(share: Array, n: Array) -> float:
    """How much wider than chi-square the statistic of small counts is, in variance."""
    return 1 + float(np.mean(1 / n)) * float(np.sum(1 / share)) / (2 * max(share.size - 1, 1))


def feature_mean(seen: ClassEvidence) -> str | None:
    """Features whose mean is not 0."""
    if seen.mean_share < MEAN:
        return None
    return (
        f"{seen.mean_share:.0%} of the features' energy is in their mean, where the theory has mean 0: along it a head without "
        "bias keeps its intercept; subtract the mean of each feature and train with a bias if levels matter."
    )


def link(seen: ClassEvidence) -> str | None:
    """Model and samples disagree about accuracies."""
    off = [row for row in seen.predictions.values() if row.contradicted and row.probe is not None]
    if not off:
        return None
    listed = ", ".join(f"{row.algorithm} {row.expected:.1%} against {row.probe:.1%}" for row in off)
    how = "on held-out samples" if seen.probes.holds else "by leaving out one sample after the other"
    return (
        f"model and samples disagree on the accuracy of least-squares classifiers ({listed} {how}): a logistic link on "
        "Gaussian features does not fit these data. Take the advice as a ranking aid; the ranking follows the samples."
    )


def trained(seen: ClassEvidence) -> str | None:
    """Features that have seen these very training samples."""
    if not seen.probes.holds:
        return None
    inside, inside_error = seen.left_out
    outside, outside_error = seen.probes.shared_held.at(-1)
    gap = inside - outside
    if gap < NOTABLE or gap < CLEAR * np.hypot(inside_error, outside_error):
        return None
    return (
        f"the others' shared model gets {inside:.1%} of a client's training samples right and {outside:.1%} of its "
        "held-out ones: were the features trained on these very samples? Estimates and levels are then taken from "
        "held-out samples; the ranking can be right, the levels of methods that train on these samples less so."
    )


def ridge(seen: ClassEvidence) -> str | None:
    """The samples want another ridge than the model."""
    curve, model = seen.probes.measured(False), model_ratio(seen)
    best, place = int(np.argmax(curve.mean)), seen.probes.nearest(model)
    gain, error = curve.gain(best, place)
    if gain < CLEAR * error or gain < USELESS:
        return None
    n = seen.shape.samples
    wanted = "an infinite ridge" if best == len(seen.probes.ratios) - 1 else f"the ridge {seen.probes.ratios[best] / n:.3g}"
    return (
        f"for least squares the samples want {wanted} where the model wants {model / n:.3g}, and are right {gain:.1%} more "
        "often with it: the model of how clients differ does not fit; the logistic loss's ridge is moved by the same factor."
    )


def model_ratio(seen: ClassEvidence) -> float:
    """Ridge x samples of least squares by the model, for a new client."""
    gamma = float(seen.shape.aspects[seen.shape.middle])
    return squares.best_ridge(seen.world, gamma) * seen.shape.samples


CHECKS: dict[str, Callable[[ClassEvidence], str | None]] = {
    "few clients": few_clients,
    "few samples": few_samples,
    "no difference": no_radius,
    "too few samples in all": scarce,
    "near separability": separable,
    "small eigenvalues": assumption_2,
    "duplicate clients": duplicates,
    "uneven classes": imbalance,
    Check.CLASS_SHARES: label_shift,
    "features have a mean": feature_mean,
    Check.LINK: link,
    Check.TRAINED_FEATURES: trained,
    Check.RIDGE: ridge,
}


def doubts_of(seen: ClassEvidence) -> tuple[Doubt, ...]:
    """All checks that speak, in their order."""
    return tuple(Doubt(name, text) for name, check in CHECKS.items() if (text := check(seen)) is not None)
