"""How the clients' displacements lie: along the features' strong directions, in clusters, or anywhere.

A client's score g = X'W e, with its residuals e about the model of the others and W = (noise^2 + radius^2 XX'/d)^{-1}, has the
covariance K = X'W X if the model holds. Aligned displacements change g'Sg against tr SK, with the pooled covariance S;
clusters make the scores of many clients point one way, and the clients fall into groups along it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
import scipy.special

from fedasym.advisor.components import components
from fedasym.advisor.covariance import spectrum_of, spread
from fedasym.advisor.estimates import Estimates, from_likelihood
from fedasym.advisor.gathering import Gathered, Room
from fedasym.advisor.restricted import DRAWS, even_points
from fedasym.advisor.summaries import Summary, axes_of
from fedasym.core.arrays import Array

LOOKED_AT = 300  # clients that these checks look at
IMAGINED = 12  # federations drawn from the model, to compare with
STEP = 0.25
POWERS = np.arange(-1.5, 2.51, STEP)
LEAST_BEND = 0.1  # of the deviance over a step: less says nothing about the power
ALIGNED = 4.0  # standard errors
CLUSTERED = 6.0  # standard deviations of what the model gives
GROUPED = -0.7  # kurtosis along the common direction, less the model's, below which clients fall into groups: two have -2


@dataclass(frozen=True)
class Structure:
    """Standard errors by which displacements follow strong (above 0) or weak features; how far the first common direction
    of the clients stands out, in standard deviations; and the kurtosis along it, less what the model gives.
    """

    alignment: float = 0.0
    direction: float = 0.0
    kurtosis: float = 0.0

    @property
    def aligned(self) -> bool:
        """Whether the displacement prefers some directions of the covariance."""
        return abs(self.alignment) > ALIGNED

    @property
    def clustered(self) -> bool:
        """Whether the clients fall into groups."""
        return self.direction > CLUSTERED and self.kurtosis < GROUPED and not self.aligned


def structure(seen: Gathered) -> Structure:
    """Look at some clients again, now that noise and radius are known; without a pooled model there is nothing to see."""
    data, found, d = seen.data, seen.estimates, seen.data.dimension
    if found.scarce or not seen.pool.full:
        return Structure()
    samples = int(data.sizes.sum())
    R = seen.pool.factor / np.sqrt(samples)
    rng = np.random.default_rng(0)
    scores, contrast, imagined = [], [], []
    for place in spread(len(data.parts), LOOKED_AT):
        axes = axes_of(*data.rows(place))
        e, own = seen.left_out[place], seen.summaries[place]
        v = found.noise2 + found.radius2 * axes.power / d
        half = axes.rows / np.sqrt(v)[:, None]
        g = half.T @ (e / np.sqrt(v))
        strong = (own.strength * (samples - own.samples) + own.power) * own.power / samples  # |R row|^2 along each axis
        mine = float((R @ g) @ (R @ g)) / float((strong / v).sum()) - float(g @ g) / float((half**2).sum())
        contrast.append(mine)
        scores.append(unit(g))
        imagined.append(unit(rng.standard_normal((IMAGINED, len(v))) @ half))
    off = np.array(contrast)
    alignment = float(off.mean() / max(off.std(ddof=1) / np.sqrt(off.size), 1e-300))
    top, along = first_direction(np.array(scores))
    by_chance = [first_direction(each) for each in np.stack(imagined, axis=1)]
    tops = np.array([each[0] for each in by_chance])
    direction = float((top - tops.mean()) / max(tops.std(ddof=1), 1e-300))
    return Structure(alignment, direction, excess(along) - float(np.mean([excess(each[1]) for each in by_chance])))


def unit(vectors: Array) -> Array:
    """Vectors of length one."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-300))


def first_direction(vectors: Array) -> tuple[float, Array]:
    """The largest eigenvalue of the clients' Gram matrix, and where each client lies along its eigenvector."""
    last = len(vectors) - 1
    values, places = scipy.linalg.eigh(vectors @ vectors.T, subset_by_index=(last, last))
    return float(values[0]), np.asarray(places[:, 0])


def excess(values: Array) -> float:
    """Excess kurtosis about the mean."""
    centred = values - values.mean()
    return float(np.mean(centred**4) / max(float(np.mean(centred**2)) ** 2, 1e-300) - 3)


def with_power(seen: Gathered) -> Estimates:
    """Estimates again, with a displacement whose covariance goes like Sigma^power, Sigma as the pooled samples have it.

    Residuals about the model of the others find the power on a grid. There and beside it the restricted likelihood is looked
    at; a parabola through the three gives the power and its error, and the draws of noise and radius are those of a
    power that is drawn as well: parabolas through the three, draw by draw, since draws have the same order at every power.
    """
    data = seen.data
    values, Q = np.linalg.eigh(seen.pool.factor.T @ seen.pool.factor / data.sizes.sum())
    values = np.maximum(values, 1e-12 * values[-1])
    kept = []
    for place in spread(len(data.parts), LOOKED_AT):
        axes = axes_of(*data.rows(place))
        kept.append((seen.summaries[place], axes.rows @ Q, seen.left_out[place]))
    fits = {float(power): fitted(kept, values, float(power)) for power in POWERS}
    near = float(np.clip(min(fits, key=lambda power: fits[power][0]), POWERS[1], POWERS[-2]))
    beside = near + STEP * np.array([-1.0, 0.0, 1.0])
    found = [restricted(seen, Q, stretch_of(values, power), fits[power][1]) for power in beside]
    low, middle, high = (each.deviance for each in found)
    bend = max(low - 2 * middle + high, LEAST_BEND)
    best = float(np.clip((low - high) / (2 * bend), -2, 2))  # in steps
    drawn = np.clip(best + np.sqrt(2 / bend) * scipy.special.ndtri(even_points(DRAWS, 4)[:, 3]), best - 3, best + 3)
    logs = np.log(np.maximum([each.draws[:, :2] for each in found], np.finfo(float).tiny))
    point = np.log([[each.noise2, each.radius2] for each in found])
    noise2, radius2 = np.exp(between(point, np.array(best)))
    common = np.maximum(seen.estimates.draws[:, 2] - seen.estimates.draws[:, 1], 0)  # was seen without a power
    draws = np.exp(between(logs, drawn[:, None]))
    pooled = replace(seen.summaries[0], samples=int(data.sizes.sum()), power=values * data.sizes.sum())
    return replace(
        found[1],
        noise2=float(noise2),
        radius2=float(radius2),
        norm2=float(radius2) + max(seen.estimates.norm2 - seen.estimates.radius2, 0.0),
        draws=np.column_stack([draws, draws[:, 1] + common]),
        power=near + STEP * best,
        spectrum=spectrum_of([pooled]),
    )


def between(values: Array, at: Array) -> Array:
    """The parabola through values at -1, 0 and 1."""
    low, middle, high = values
    return np.asarray(middle + at * (high - low) / 2 + at**2 * (low - 2 * middle + high) / 2)


def restricted(seen: Gathered, Q: Array, stretch: Array, along: list[Summary]) -> Estimates:
    """The restricted likelihood along the axes of X W X', W = Q diag(stretch) Q'."""
    room = Room(seen.data, seen.pool)
    for place, (X, y) in enumerate(seen.data):
        axes = axes_of(X, y)
        turned = axes.rows @ Q
        x, U = np.linalg.eigh((turned * stretch) @ turned.T)
        room.put(place, replace(axes, power=np.maximum(x, 0), rows=U.T @ axes.rows, labels=U.T @ axes.labels))
    return from_likelihood(seen.summaries, room.full(), along)


def stretch_of(values: Array, power: float) -> Array:
    """The displacement's energies along the covariance's axes, of mean one."""
    weights = values**power
    return np.asarray(weights * (values.size / weights.sum()))


def fitted(kept: list[tuple[Summary, Array, Array]], values: Array, power: float) -> tuple[float, list[Summary]]:
    """Deviance at a power, and the clients along the axes of X Sigma^power X'."""
    weights = stretch_of(values, power)
    turned = []
    for summary, rows, e in kept:
        x, U = np.linalg.eigh((rows * weights) @ rows.T)
        turned.append(replace(summary, power=np.maximum(x, 0), residual=(U.T @ e) ** 2))
    fit = components(turned)
    deviance = 0.0
    for each in turned:
        v = np.maximum(fit.noise2 + fit.spread2 * each.power / each.dimension, 1e-300)
        deviance += float((np.log(v) + each.residual / v).sum())
        beyond = each.samples - each.power.size
        if beyond:
            deviance += beyond * np.log(max(fit.noise2, 1e-300)) + each.rest / max(fit.noise2, 1e-300)
    return deviance, turned
