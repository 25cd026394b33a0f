"""Losses given the clients' own features: what limits for large sizes, and an estimated spectrum, leave out.

A ridge fit of one client, X'X = V diag(x) V', keeps the part f = x/(x + c) of a displacement along each axis. With
q_k = v_k'Sigma v_k its loss is, on average over displacements and noise,
(r^2/d) (tr Sigma - sum q_k (2 f_k - f_k^2)) + sigma^2 sum q_k x_k/(x_k + c)^2: exact for any size and covariance. The other
clients' samples estimate Sigma independently of v_k, so that q_k comes without bias (`Summary.strength`). Formulas for finitely
many clients are multiplied by these over their limits.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from fedasym.advisor.summaries import Summary
from fedasym.core.arrays import Array
from fedasym.core.errors import ThresholdWarning
from fedasym.exact.server import Pool
from fedasym.verbs.prediction import predict
from fedasym.worlds.population import Population
from fedasym.worlds.spectra import Spectrum

ALIKE = (0.5, 2.0)  # what clients' covariances may differ by, over what draws from one covariance do


def strength_of(rows: Array, power: Array, pool: Pool, others: int) -> Array:
    """q_k along a client's axes from all the others' samples: v'Sv less the client's own part, which is x."""
    through = (scipy.linalg.blas.dtrmm(1.0, pool.factor, rows.T) ** 2).sum(0)
    along = power > 0
    return np.asarray(np.where(along, through / np.where(along, power, 1.0) - power, 0.0) / others)


def unit_losses(summaries: Sequence[Summary], ratios: Array) -> tuple[Array, Array]:
    """Every client's bias for r^2 = 1 and variance for sigma^2 = 1 with its own ridge times samples c."""
    total, samples = sum(float(each.power.sum()) for each in summaries), sum(each.samples for each in summaries)
    bias, variance = [], []
    for each, c in zip(summaries, ratios, strict=True):
        x = each.power
        f = np.divide(x, x + c, out=np.zeros_like(x), where=x > 0)
        trace = (total - float(x.sum())) / (samples - each.samples)
        bias.append((trace - float(each.strength @ (2 * f - f**2))) / each.dimension)
        variance.append(float(each.strength @ np.divide(f**2, x, out=np.zeros_like(x), where=x > 0)))
    return np.array(bias), np.array(variance)


def freedom(summaries: Sequence[Summary]) -> float:
    """Degrees of freedom of the noise in the mean loss without a ridge, sum q z^2/x over axes with normal z (Satterthwaite).

    About as many as axes; near one where a single axis with hardly any power, of a client with about as many samples as
    features, makes most of the loss.
    """
    weights = np.concatenate([each.strength[each.power > 0] / each.power[each.power > 0] for each in summaries])
    return float(weights.sum() ** 2 / (weights @ weights))


def seen(summaries: Sequence[Summary]) -> bool:
    """Whether the clients' features were seen against the others', and look like draws from one covariance.

    Otherwise the others' samples say little about where a client will be tested: schools whose pupils differ, say, or days that
    are the same for all.
    """
    found = difference(summaries)
    return found is not None and ALIKE[0] <= found <= ALIKE[1]


def difference(summaries: Sequence[Summary]) -> float | None:
    """How much the clients' covariances differ, over what normal draws from one covariance would; None where it was not seen.

    For those, |S_i|^2 - tr S_i S_others has the mean ((tr Sigma)^2 + tr Sigma^2)/n: clients of unlike features are far above 1,
    clients with the same planned features far below.
    """
    if not summaries or not all(each.strength.size for each in summaries):
        return None
    n = np.array([each.samples for each in summaries], dtype=float)
    length = np.array([float(each.power.sum()) for each in summaries]) / n
    own = np.array([float(each.power @ each.power) for each in summaries]) / n**2
    cross = np.array([float(each.power @ each.strength) for each in summaries]) / n
    chance = (length.mean() ** 2 + cross.mean()) * n.size / n.sum()
    return float(np.average(own - cross, weights=n) / chance)


def over_limits(
    summaries: Sequence[Summary], place: NDArray[np.intp], samples: Array, ridge: Array, spectrum: Spectrum
) -> tuple[Array, Array]:
    """Mean bias and variance of each kind of client over their limits at the kind's ridge; 1 where a limit is 0 or infinite."""
    own = unit_losses(summaries, ridge[place] * np.array([each.samples for each in summaries]))
    world = Population(1.0, 1.0, summaries[0].dimension / samples, spectrum=spectrum)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ThresholdWarning)
        limits = predict(world, "rtfa", ridge=ridge)["rtfa"] if np.all(ridge > 0) else predict(world, "ftfa")["ftfa"]
    count = np.bincount(place)

    def ratio(mine: Array, limit: Array) -> Array:
        mean = np.bincount(place, mine) / count
        sound = np.isfinite(limit) & (limit > 0) & (mean > 0)
        return np.asarray(np.where(sound, mean / np.where(sound, limit, 1.0), 1.0))

    return ratio(own[0], np.asarray(limits.bias)), ratio(own[1], np.asarray(limits.variance))
