"""Doubts and what they look at; the first: too few of anything, thresholds, assumptions.

Whether clients vary: the score of a client's own noise^2 and radius^2 (relative to the common ones)
over its Fisher information estimates by how much it deviates; deviations larger than their errors,
over all clients, are variation. Errors count the tails of the residuals and whatever else widens
squares within a client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np

from fedasym.advisor.crosscheck import RidgeCurves
from fedasym.advisor.estimates import Estimates
from fedasym.advisor.moments import AxisVariances, kurtosis_of
from fedasym.advisor.predictions import Prediction
from fedasym.advisor.statistics import (
    ALIKE_FEATURES,
    Summary,
    covariance_difference,
    field_owners,
    stack_field,
)
from fedasym.advisor.structure import Structure
from fedasym.core.numbers import Array

FEW_CLIENTS, FEW_SAMPLES = 10, 5
# largest over smallest eigenvalue from which the spectrum is not bounded away from 0
WIDE_SPECTRUM = 1e3
# share of directions that the smallest eigenvalue must have; with few directions, half of one
RARE_SHARE = 0.02
NEAREST = 0.25  # ratios further than this from 1 are never near a threshold


class Check(StrEnum):
    """Checks that change what is advised, beside saying so."""

    RIDGE = "ridge"  # the samples want another ridge than the model
    LINK = "link"  # the labels do not follow a logistic law
    TRAINED_FEATURES = "trained features"  # levels on training samples are optimistic
    CLASS_SHARES = "class shares differ"
    SHARES_DRIFT = "class shares drift"  # held-out samples have other classes


@dataclass(frozen=True)
class Variation:
    """How surely noise^2 and radius^2 vary (standard deviations), and how much (relative)."""

    noise_z: float
    noise_cv: float
    radius_z: float
    radius_cv: float


def estimate_variation(summaries: Sequence[Summary], about: AxisVariances) -> Variation:
    """From squares along axes and their common variances."""
    wide = squares_excess(summaries, about) * (1 + max(kurtosis_of(summaries)[0], 0.0) / 2)
    scores, J = fisher(summaries, about)
    # elsewhere a client's own noise and radius cannot be told apart
    apart = np.linalg.det(J) > 1e-3 * J[:, 0, 0] * J[:, 1, 1]
    if apart.sum() < 2:
        return Variation(0.0, 0.0, 0.0, 0.0)
    inverse = np.linalg.inv(J[apart])
    moves = (inverse @ scores[apart, :, None])[:, :, 0]
    errors = wide * np.diagonal(inverse, axis1=1, axis2=2)
    (noise_z, noise_cv), (radius_z, radius_cv) = map(excess_spread, moves.T, errors.T)
    return Variation(noise_z, noise_cv, radius_z, radius_cv)


def fisher(summaries: Sequence[Summary], about: AxisVariances) -> tuple[Array, Array]:
    """Scores (m, 2) and information (m, 2, 2) of each client's (log noise^2, log radius^2) at the
    common values.
    """
    owner, m = field_owners(summaries), len(summaries)
    x, residual = stack_field(summaries, "power"), stack_field(summaries, "residual")
    v = np.maximum(about.noise2 + about.spread2 * x / summaries[0].dimension, 1e-300)
    parts = np.stack([about.noise2 / v, 1 - about.noise2 / v])

    def add_up(values: Array) -> Array:
        return np.bincount(owner, values, m) / 2

    scores = np.stack([add_up(part * (residual / v - 1)) for part in parts], axis=1)
    information = np.stack([[add_up(a * b) for a in parts] for b in parts]).transpose(2, 0, 1)
    if about.noise2 > 0:
        extra = np.array([each.samples - each.power.size for each in summaries], dtype=float)
        rest = np.array([each.rest for each in summaries])
        scores[:, 0] += np.where(extra, rest / about.noise2 - extra, 0.0) / 2
        information[:, 0, 0] += extra / 2
    return scores, np.asarray(information)


def excess_spread(moves: Array, errors2: Array) -> tuple[float, float]:
    """Whether squared deviations exceed their errors, and by how much, weighted by precision."""
    middle = np.average(moves, weights=1 / errors2)
    ratio = (moves - middle) ** 2 / errors2
    z = float((ratio - 1).sum() / np.sqrt(2 * ratio.size))
    weight = errors2**-2
    size = float((weight * ((moves - middle) ** 2 - errors2)).sum() / weight.sum())
    return z, float(np.sqrt(max(size, 0.0)))


def squares_excess(summaries: Sequence[Summary], about: AxisVariances) -> float:
    """Variance of squares within clients over the Gaussian one: 1, or more with products."""
    several = [client for client in summaries if client.power.size > 1]
    if not several:
        return 1.0
    owner, x = field_owners(several), stack_field(several, "power")
    v = np.maximum(about.noise2 + about.spread2 * x / several[0].dimension, 1e-300)
    ratio = stack_field(several, "residual") / v
    count = np.bincount(owner)
    mean = np.bincount(owner, ratio) / count
    above = float(((ratio - mean[owner]) ** 2).sum())
    below = float((2 * (count - 1) * mean**2).sum())
    return max(above / below, 1.0) if below > 0 else 1.0


@dataclass(frozen=True)
class Doubt:
    """A reason to be careful: the check that spoke, and what it means in a sentence."""

    check: str
    text: str

    def __str__(self) -> str:
        return f"{self.check}: {self.text}"


@dataclass(frozen=True, eq=False)
class SizeEvidence:
    """What every check sees: clients, estimates, and constant or dependent features (`dropped`)."""

    summaries: list[Summary]
    estimates: Estimates
    dropped: int

    @property
    def sizes(self) -> Array:
        """Samples of each client."""
        return np.array([each.samples for each in self.summaries], dtype=float)

    @property
    def dimension(self) -> int:
        """How many features there are."""
        return self.summaries[0].dimension


@dataclass(frozen=True, eq=False)
class RegressionEvidence(SizeEvidence):
    """Everything that the checks of a regression look at."""

    about: AxisVariances  # variances of residuals about the others' model
    predictions: dict[str, Prediction]
    shared: RidgeCurves
    structure: Structure
    # mean square of held-out residuals about the pooled model, of the clients that have any
    held: Array

    @cached_property
    def variation(self) -> Variation:
        """By how much noise and radius differ between clients."""
        return estimate_variation(self.summaries, self.about)


def few_clients(seen: SizeEvidence) -> str | None:
    """The radius is an average over clients."""
    m = len(seen.summaries)
    if m >= FEW_CLIENTS:
        return None
    return (
        f"{m} clients say little about how clients differ: the intervals are wide; run the"
        " confirming experiment."
    )


def few_samples(seen: SizeEvidence) -> str | None:
    """Axes and Gram eigenvalues need samples."""
    middle = float(np.median(seen.sizes))
    if middle >= FEW_SAMPLES:
        return None
    return (
        f"a client has {middle:g} samples in the median: formulas for large sizes may be off;"
        " prefer what GCV says."
    )


def no_radius(seen: SizeEvidence) -> str | None:
    """Whether clients differ at all."""
    if not seen.estimates.flat or seen.estimates.scarce:
        return None
    return (
        "the data are compatible with clients that do not differ at all: fedavg is then best, and"
        " others cost little."
    )


def scarce_samples(seen: SizeEvidence) -> str | None:
    """Fewer samples than unknowns."""
    if not seen.estimates.scarce:
        return None
    return (
        f"all clients together have {seen.sizes.sum():g} samples for {seen.dimension} features:"
        " radius and norm can be separated only by products across clients, which takes a shared"
        " optimum without preferred directions, and noise and radius hardly at all. Losses are"
        " known no better than their intervals say; put a ridge on the shared model too."
    )


def near_threshold(seen: SizeEvidence) -> str | None:
    """Near the pooled threshold, or a client's."""
    d = seen.dimension
    near = min(3 / np.sqrt(seen.dimension), NEAREST)
    pooled = d / seen.sizes.sum()
    own = d / seen.sizes
    share = float(np.mean(np.abs(own - 1) < near))
    if abs(pooled - 1) < near:
        return (
            f"all samples together just about match the features (d/N = {pooled:.2f}): the shared"
            " model is unstable and predictions for it may be off; use a ridge for it, or fewer"
            " features."
        )
    if share > 0.2:
        return (
            f"{share:.0%} of the clients have about as many samples as features: there fine-tuning"
            " to convergence (ftfa, local) is at its worst and hard to predict; keep a ridge, or"
            " stop early."
        )
    return None


def assumption_1(seen: SizeEvidence) -> str | None:
    """The paper's overparameterised clients."""
    share = float(np.mean(seen.sizes >= seen.dimension))
    if share == 0:
        return None
    return (
        f"{share:.0%} of the clients have at least as many samples as features, against assumption"
        " 1 of the paper (d/n > 1): the formulas used here hold there too, the paper's closed"
        " forms do not."
    )


def assumption_2(seen: SizeEvidence) -> str | None:
    """The paper's spectrum bounded away from 0."""
    s, h = seen.estimates.spectrum.positive
    order = np.argsort(s)
    low = s[order][int(np.searchsorted(np.cumsum(h[order]), max(RARE_SHARE, 0.5 / seen.dimension)))]
    ratio = float(s.max() / low)
    if ratio < WIDE_SPECTRUM and not seen.dropped:
        return None
    zero = (
        f" and {seen.dropped} features are always 0 or follow from others (left out)"
        if seen.dropped
        else ""
    )
    return (
        f"eigenvalues of the features' covariance span a factor of {ratio:.2g}{zero}: assumption 2"
        " of the paper (bounded away from 0) is stretched; whiten or drop weak features if"
        " predictions matter to a few percent."
    )


def assumption_3(seen: SizeEvidence) -> str | None:
    """The paper's growth of clients, sum p_j^(q/2+1) n_j at q = 2, without its logarithms."""
    p = seen.sizes / seen.sizes.sum()
    growth = float((p**2 * seen.sizes).sum())
    if growth < 1:
        return None
    return (
        f"the client-growth sum of assumption 3 is {growth:.2g} and should be near 0: too few"
        f" clients for the paper's limits; the numbers here are for {len(p)} clients."
    )


def unlike_features(seen: SizeEvidence) -> str | None:
    """Clients whose features have covariances of their own."""
    found = covariance_difference(seen.summaries)
    if found is None or found <= ALIKE_FEATURES[1]:
        return None
    return (
        f"clients' features differ {found:.2g} times as much as draws from one covariance would,"
        " which the formulas take for all: a client's loss depends on its own features too; ask"
        " again for groups of like clients, or centre features."
    )


def planned_features(seen: SizeEvidence) -> str | None:
    """Clients that were all given the same features."""
    found = covariance_difference(seen.summaries)
    if found is None or found >= ALIKE_FEATURES[0]:
        return None
    return (
        f"clients have nearly the same features (they differ {found:.2g} times as much as chance"
        " would have it): a client's samples are not independent draws, and errors on other"
        " features than these may be larger than predicted."
    )


def duplicate_clients(seen: SizeEvidence) -> str | None:
    """The same samples under two names: the same Gram eigenvalues and label squares."""
    marks: dict[tuple[object, ...], list[object]] = {}
    for each in seen.summaries:
        if each.samples < FEW_SAMPLES:
            continue  # rounded labels coincide by chance
        total = each.raw.sum() + each.rest
        key = (
            each.samples,
            *(
                f"{value:.8e}"
                for value in (each.power.sum(), each.power.max(), each.raw[-1], total)
            ),
        )
        marks.setdefault(key, []).append(each.name)
    same = [names for names in marks.values() if len(names) > 1]
    if not same:
        return None
    first = " and ".join(repr(name) for name in same[0][:3])
    return (
        f"{sum(len(names) for names in same)} clients have the same samples as another ({first},"
        " say): copies make clients look alike; keep one of each."
    )
