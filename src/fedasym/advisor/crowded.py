"""Estimates where all samples together are too few for the shared model (section 8.3, made right for any covariance).

Labels alone give noise and norm: v_k = noise^2 + norm^2 x_k/d along each client's axes. What clients share shows in products
across clients: with g_i = X_i'W_i y_i and T_i = X_i'W_i X_i, E g_i'g_j = (b^2/d) tr T_i T_j, for a shared optimum of length b
without preferred directions, and radius^2 = norm^2 - b^2. W_i = (noise^2 + norm^2 X_i X_i'/d)^{-1} makes it sharp.
A client sends g_i and T_i times a few random vectors that all share: tr T_i T_j is the mean of w'T_i T_j w.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedasym.advisor.components import Components, components
from fedasym.advisor.summaries import Axes, Summary
from fedasym.core.arrays import Array

PROBES = 16


@dataclass(frozen=True, eq=False)
class Scarce:
    """noise^2, norm^2 and centre^2 = b^2 (which may come out below 0), and what each client adds to their error (m, 3)."""

    noise2: float
    norm2: float
    centre2: float
    influence: Array


def probes(dimension: int) -> Array:
    """The random vectors that all clients share: signs from a fixed seed, (d, PROBES)."""
    return np.asarray(np.random.default_rng(8).integers(0, 2, (dimension, PROBES)) * 2.0 - 1)


def pulled(summary: Summary, axes: Axes, noise2: float, norm2: float) -> Summary:
    """The client's second answer, once the server has told noise^2 and norm^2."""
    v = np.maximum(noise2 + norm2 * axes.power / summary.dimension, np.finfo(float).tiny)
    weighed = axes.rows / v[:, None]
    return replace(summary, pull=weighed.T @ axes.labels, probes=weighed.T @ (axes.rows @ probes(summary.dimension)))


def scarce(summaries: list[Summary]) -> Scarce:
    """Combine second answers; errors of b^2 by leaving out one client after the other."""
    first: Components = components(summaries, "raw")
    pull = np.stack([each.pull for each in summaries])
    tests = np.stack([each.probes for each in summaries])
    d = summaries[0].dimension
    above = across(pull[..., None])
    below = across(tests)
    whole = d * PROBES * above[0] / below[0]
    without = d * PROBES * (above[0] - above[1]) / (below[0] - below[1])
    m = len(summaries)
    shift = (m - 1) / m * (without.mean() - without)  # jackknife, scaled so that squares sum to the variance
    return Scarce(first.noise2, first.spread2, float(whole), np.column_stack([first.influence, shift]))


def across(vectors: Array) -> tuple[float, Array]:
    """Sum over i != j of v_i'v_j, and the part of it that each client has a hand in."""
    total = vectors.sum(0)
    own = (vectors**2).sum((1, 2))
    mine = 2 * ((vectors * total).sum((1, 2)) - own)
    return float((total**2).sum() - own.sum()), np.asarray(mine)
