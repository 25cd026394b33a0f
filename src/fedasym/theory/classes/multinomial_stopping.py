"""Section 7 for C exchangeable classes: early-stopped gradient descent, matched to the ridge path by an arc-length clock.

The argument does not see the number of classes: |grad L| = ridge R on the ridge path, with R the Frobenius distance from the
shared model, and descent moves at speed |grad L|. Not exact: the page finds it within .3 percentage points for two classes.
"""

from __future__ import annotations

import numpy as np

from fedasym.core.arrays import Array
from fedasym.theory.classes.multinomial_ridge import Fit, path
from fedasym.theory.classes.multinomial_samples import SEARCH, samples
from fedasym.worlds.energies import Energies

PER_DECADE = 8
ABOVE = 1e2  # the first ridge in units of the loss's largest curvature, where the clock shows 1/ridge


def curvature(energies: Energies, aspect: float) -> float:
    """Lmax <= (1/2) (1+sqrt gamma)^2 max s, softmax's curvature being at most 1/2: descent needs a step below 2/Lmax."""
    return float(0.5 * (1 + np.sqrt(aspect)) ** 2 * energies.s.max())


def clock(ridges: Array, distances: Array) -> Array:
    """The time tau(ridge) = int dlog R/ridge' at each of these falling ridges, 1/ridge at the first.

    A cell adds dlog R (e^k - 1)/(k ridge_a), k = log(ridge_a/ridge_b).

    >>> ridges = np.geomspace(1e3, 0.01, 200)
    >>> tau = clock(ridges, 1 / (2 + ridges))  # a single mode of curvature 2: tau = log(1 + 2/ridge)/2
    >>> bool(np.allclose(tau, np.log1p(2 / ridges) / 2, rtol=2e-3))
    True
    """
    k = np.log(ridges[:-1] / ridges[1:])
    cells = np.diff(np.log(distances)) * np.expm1(k) / (k * ridges[:-1])
    return np.asarray(1 / ridges[0] + np.concatenate([[0.0], np.cumsum(cells)]))


def stopped(energies: Energies, aspect: float, times: Array, classes: int) -> list[Fit]:
    """Descent from the shared model, stopped at each of the `times` = step x steps: the fits of the matched ridges.

    Time 0 keeps the shared model. The path goes down until its clock passes the last time, or nothing moves any more.
    """
    times = np.asarray(times, dtype=float)
    few, top = samples(classes, SEARCH), ABOVE * curvature(energies, aspect)
    late = float(times.max(initial=0.0))
    ridges, tau = np.array([top]), np.array([1 / top])
    decades = np.log10(max(6 * top * late, 10.0))  # ridge x time is mostly above .15
    while tau[-1] < late:
        ridges = np.geomspace(top, top / 10**decades, 2 + int(PER_DECADE * decades))
        R = np.array([fit.distance for fit in path(energies, aspect, ridges, classes, points=few)])
        tau = clock(ridges, R)
        if R[-1] - R[-2] < 1e-3 * R[-1]:
            break  # descent has arrived: later times change nothing
        decades += 1
    inside = np.exp(np.interp(np.log(np.maximum(times, 1 / top)), np.log(tau), np.log(ridges)))
    with np.errstate(divide="ignore"):
        matched = np.where(times <= 1 / top, 1 / times, inside)
    return path(energies, aspect, matched, classes)
