"""How far the mean loss of these very clients lies from the predicted one, beyond the errors of the estimates.

A prediction is the mean over a population; what is compared with it are so many clients with so many features. Their samples
make the estimates as well, so that the two errors go together: clients that happen to differ much raise the radius and
fedavg's loss alike. Clients drawn from the estimated population have both, the loss L_i and what they add to the error of
the predicted one, P_i = bias (radius^2)_i/radius^2 + variance (noise^2)_i/noise^2, with influences J^{-1} s_i. The mean of m
clients is off by P - L instead of P: (var(P - L) - var P)/m is what the variance of an interval lacks, or has too much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedasym.advisor.covariance import spread
from fedasym.advisor.estimates import Estimates
from fedasym.advisor.summaries import Axes, axes_of
from fedasym.core.arrays import Array

DRAWN = 200
WORK = 2e9  # multiplications that these clients may cost
FEWEST = 30


def beyond(
    found: Estimates, dimension: int, sizes: Array, losses: Mapping[str, tuple[float, float, float]]
) -> dict[str, float]:
    """Variance to add to that of each predicted mean loss; `losses`: bias, variance, ridge times samples (infinite: fedavg).

    Names that begin with "local" are about labels and norm, the others about residuals and radius.
    """
    rng = np.random.default_rng(5)
    s = eigenvalues(found, dimension)
    energy = s**found.power / (s**found.power).sum()
    centre = np.sqrt(max(found.norm2 - found.radius2, 0.0) / dimension)
    count = affordable(sizes, dimension)
    scores, lost = [], []
    for samples in np.resize(sizes[spread(sizes.size, count)].astype(int), count):
        X = rng.standard_normal((samples, dimension)) * np.sqrt(s)
        shift = np.sqrt(found.radius2 * energy) * rng.standard_normal(dimension)
        whole = centre * rng.standard_normal(dimension) + shift
        noise = np.sqrt(found.noise2) * rng.standard_normal(samples)
        about = axes_of(X, X @ shift + noise)
        alone = replace(about, labels=about.labels + about.rows @ (whole - shift))
        scores.append((*scored(about, found.noise2, found.radius2), *scored(alone, found.noise2, found.norm2)))
        lost.append([loss(alone, whole, s, c) if local(name) else loss(about, shift, s, c) for name, (*_, c) in losses.items()])
    moved = influences(scores)
    out = {}
    for (name, (bias, variance, _)), L in zip(losses.items(), np.array(lost).T, strict=True):
        P = bias * moved[:, 2 if local(name) else 1] / (found.norm2 if local(name) else found.radius2)
        P = P + variance * moved[:, 0] / found.noise2
        out[name] = float(np.var(P - L, ddof=1) - np.var(P, ddof=1)) / sizes.size
    return out


def local(name: str) -> bool:
    """Whether an algorithm shares nothing."""
    return name.startswith("local")


def affordable(sizes: Array, dimension: int) -> int:
    """So many clients can be drawn."""
    each = float(np.mean(sizes * dimension * np.minimum(sizes, dimension)))
    return int(np.clip(WORK / each, FEWEST, DRAWN))


def eigenvalues(found: Estimates, dimension: int) -> Array:
    """As many as there are features, in the spectrum's shares."""
    order = np.argsort(found.spectrum.values)
    edges = np.cumsum(found.spectrum.weights[order])
    places = np.searchsorted(edges / edges[-1], (np.arange(dimension) + 0.5) / dimension)
    s = found.spectrum.values[order][np.minimum(places, order.size - 1)]
    return np.asarray(s * found.spectrum.mean / s.mean())


def scored(axes: Axes, noise2: float, spread2: float) -> tuple[Array, Array]:
    """Score and information of (noise^2, spread^2) at the truth."""
    d = axes.rows.shape[1]
    z = axes.power / d
    v = noise2 + spread2 * z
    extra = axes.samples - z.size
    design = np.column_stack([np.ones(z.size), z]) / v[:, None]
    score = design.T @ (axes.labels**2 / v - 1)
    score[0] += (axes.rest - extra * noise2) / noise2**2
    information = design.T @ design
    information[0, 0] += extra / noise2**2
    return score, information


def influences(scores: list[tuple[Array, Array, Array, Array]]) -> Array:
    """Of every client on noise^2 and radius^2, and on norm^2 at that noise: what its mean over clients adds up to."""
    score, J, raw, K = (np.array(each) for each in zip(*scores, strict=True))
    J, K = J.mean(0), K.mean(0)
    both = np.linalg.solve(J, score.T).T
    norm = (raw[:, 1] - K[1, 0] * both[:, 0]) / K[1, 1]
    return np.column_stack([both, norm])


def loss(axes: Axes, truth: Array, s: Array, ratio: float) -> float:
    """(theta_hat - truth)' Sigma (theta_hat - truth) of the ridge fit."""
    if np.isinf(ratio):
        return float(s @ truth**2)
    fit = axes.rows.T @ (axes.labels / np.maximum(axes.power + ratio, np.finfo(float).tiny))
    return float(s @ (fit - truth) ** 2)
