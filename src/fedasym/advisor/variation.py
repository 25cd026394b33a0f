"""Do noise and radius vary over clients, and do residuals have heavy tails: from the clients' summaries alone.

The score of a client's own noise^2 and radius^2 (relative to the common ones) over its Fisher information estimates by how much
it deviates; deviations larger than their errors, over all clients, are variation. Errors count the tails of the residuals
and whatever else widens squares within a client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedasym.advisor.components import Components
from fedasym.advisor.summaries import Summary
from fedasym.core.arrays import Array

LEAST = 8  # samples from which a client's fourth moment says something


@dataclass(frozen=True)
class Variation:
    """How surely noise^2 and radius^2 vary (standard deviations), and by how much (coefficients of variation)."""

    noise_z: float
    noise_cv: float
    radius_z: float
    radius_cv: float


def variation_of(summaries: Sequence[Summary], about: Components) -> Variation:
    """From squares along axes and their common variances."""
    wide = widened(summaries, about) * (1 + max(kurtosis_of(summaries)[0], 0.0) / 2)
    moves, errors = [], []
    for each in summaries:
        score, information = fisher(each, about)
        if np.linalg.det(information) <= 1e-3 * information[0, 0] * information[1, 1]:
            continue  # its own noise and radius cannot be told apart
        inverse = np.linalg.inv(information)
        moves.append(inverse @ score)
        errors.append(wide * np.diag(inverse))
    if len(moves) < 2:
        return Variation(0.0, 0.0, 0.0, 0.0)
    (noise_z, noise_cv), (radius_z, radius_cv) = (
        beyond(m, e) for m, e in zip(np.array(moves).T, np.array(errors).T, strict=True)
    )
    return Variation(noise_z, noise_cv, radius_z, radius_cv)


def fisher(client: Summary, about: Components) -> tuple[Array, Array]:
    """Score and information of (log noise^2, log radius^2) of one client at the common values."""
    v = about.noise2 + about.spread2 * client.power / client.dimension
    v = np.maximum(v, 1e-300)
    parts = np.column_stack([about.noise2 / v, 1 - about.noise2 / v])
    extra = client.samples - client.power.size
    score = parts.T @ (client.residual / v - 1) / 2
    information = parts.T @ parts / 2
    if extra and about.noise2 > 0:
        score[0] += (client.rest / about.noise2 - extra) / 2
        information[0, 0] += extra / 2
    return np.asarray(score), np.asarray(information)


def beyond(moves: Array, errors2: Array) -> tuple[float, float]:
    """Whether squares of deviations exceed their errors, and the size of the excess; weights by precision."""
    middle = np.average(moves, weights=1 / errors2)
    ratio = (moves - middle) ** 2 / errors2
    z = float((ratio - 1).sum() / np.sqrt(2 * ratio.size))
    weight = errors2**-2
    size = float((weight * ((moves - middle) ** 2 - errors2)).sum() / weight.sum())
    return z, float(np.sqrt(max(size, 0.0)))


def widened(summaries: Sequence[Summary], about: Components) -> float:
    """Variance of standardised squares within clients over that of Gaussian ones: 1, or more where products stand in."""
    above = below = 0.0
    for each in summaries:
        if each.power.size < 2:
            continue
        ratio = each.residual / np.maximum(about.noise2 + about.spread2 * each.power / each.dimension, 1e-300)
        above += float(((ratio - ratio.mean()) ** 2).sum())
        below += 2 * (ratio.size - 1) * float(ratio.mean()) ** 2
    return max(above / below, 1.0) if below > 0 else 1.0


def kurtosis_of(summaries: Sequence[Summary]) -> tuple[float, float]:
    """Excess kurtosis of residuals within clients, and how many standard deviations it is above that of Gaussian ones."""
    enough = [each for each in summaries if each.samples >= LEAST]
    if not enough:
        return 0.0, 0.0
    n = np.array([each.samples for each in enough], dtype=float)
    excess = float(np.average([each.tails - 3 for each in enough], weights=n))
    return excess, excess / float(np.sqrt(24 / n.sum()))
