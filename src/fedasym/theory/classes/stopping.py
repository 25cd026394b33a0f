"""Section 7: early-stopped gradient descent, matched to the ridge path by an arc-length clock.

On the ridge path |grad L| = lam R with R = ||theta_hat - theta_bar||, and descent moves at speed |grad L|, so that by the time
tau = step x steps it has come to the ridge with tau(lam) = int_lam^inf dlog R/lam'. Not exact: within .3 percentage points.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import PchipInterpolator

from fedasym.core.arrays import Array
from fedasym.theory.classes.ridge import Fit, solve
from fedasym.theory.classes.shared import shrinkage
from fedasym.theory.classes.system import unknowns
from fedasym.worlds.energies import Energies

PER_DECADE = 15
ABOVE = 1e3  # the first ridge, in units of the largest curvature: there tau = 1/lam
LONGEST = 1e-9  # the last ridge, in the same units


class Stopped(NamedTuple):
    """The fits matched to the times (last axis), and their ridges; infinite at time 0."""

    fit: Fit
    lam: Array


def curvature(energies: Energies, gamma: ArrayLike) -> Array:
    """A bound like Lmax = .25 (1+sqrt gamma)^2 max s on the loss's curvature: descent needs a step below 2/Lmax."""
    return np.asarray(0.25 * (1 + np.sqrt(np.asarray(gamma, dtype=float))) ** 2 * energies.s.max(-1))


def distance2(energies: Energies, gamma: ArrayLike, lam: ArrayLike, c: ArrayLike, fit: Fit) -> Array:
    """||theta_hat - theta_bar||^2 = sum R^2 {((M - Hh c)s)^2 E0 + (M s)^2 ED + gamma G s h}."""
    e = energies
    M, H, G, lam, c, gamma = (np.asarray(x, dtype=float)[..., None] for x in (fit.M, fit.H, fit.G, lam, c, gamma))
    inside = ((M - H * c) * e.s) ** 2 * e.e0 + (M * e.s) ** 2 * e.ed + gamma * G * e.s * e.h
    return np.asarray((inside / (H * e.s + lam) ** 2).sum(-1))


def ridge_at(energies: Energies, gamma: float, c: float, times: Array, eps: float = 0.0) -> Array:
    """The ridge whose clock shows each time, for one setting.

    Ridges fall by 15 to a decade; a cell adds dlog R (e^k - 1)/(k lam_a), k = log(lam_a/lam_b). They end where the times
    do, or where the path has reached the maximum-likelihood estimate, which later times keep.
    """
    late = float(np.max(times, initial=0.0))
    scale = float(curvature(energies, gamma))
    top = ABOVE * scale
    log_lam = np.log(top) - np.arange(1 + int(PER_DECADE * np.log10(ABOVE / LONGEST))) * np.log(10) / PER_DECADE
    clock = np.array([1 / top])
    lengths: list[float] = []
    ahead = None
    size, k = 3 * PER_DECADE, np.log(10) / PER_DECADE
    for start in range(0, log_lam.size, size):  # in pieces, as far as is needed
        lams = np.exp(log_lam[start : start + size])
        fit = solve(energies, gamma, lams, c, eps, start=ahead)
        u = unknowns(fit.T, fit.Q, fit.V, fit.rest)
        ahead = u[-1] + np.arange(1, 1 + log_lam[start + size : start + 2 * size].size)[:, None] * (u[-1] - u[max(-2, -len(u))])
        lengths += (np.log(distance2(energies, gamma, lams, c, fit)) / 2).tolist()
        steps = np.diff(lengths)
        clock = np.concatenate([[0.0], np.cumsum(steps * np.expm1(k) / (k * np.exp(log_lam[: steps.size])))]) + 1 / top
        if not clock[-1] < late or abs(steps[-1]) < 1e-12:
            break
    good = np.flatnonzero(np.diff(clock, prepend=0.0) > 1e-14 * clock)
    lam_of = PchipInterpolator(np.log(clock[good]), log_lam[: clock.size][good])
    with np.errstate(divide="ignore"):
        early = times <= clock[0]
        inside = lam_of(np.log(np.clip(times, clock[0], clock[good[-1]])))
        return np.where(early, 1 / times, np.exp(inside))


def stopped(energies: Energies, gamma: ArrayLike, times: ArrayLike, eps: ArrayLike = 0.0) -> Stopped:
    """Descent from the shared model, stopped at each of the `times` = step x steps: shape (*batch, times).

    >>> from fedasym.theory.classes.metrics import accuracy
    >>> early = stopped(Energies.isotropic(1.5, 1.5), gamma=2, times=[0, 1, 100])
    >>> [round(float(x), 3) for x in accuracy(early.fit)]
    [0.686, 0.696, 0.627]
    """
    times = np.atleast_1d(np.asarray(times, dtype=float))
    shape = np.broadcast_shapes(energies.batch, np.shape(gamma), np.shape(eps))
    e = energies.broadcast(shape).flat()
    g, flips = (np.broadcast_to(np.asarray(x, dtype=float), shape).reshape(-1) for x in (gamma, eps))
    c = shrinkage(e, flips)
    lam = np.stack([ridge_at(e.take(i), g[i], c[i], times, flips[i]) for i in range(g.size)])
    lam = lam.reshape(*shape, times.size)
    wide = Energies(*(x.reshape(*shape, 1, x.shape[-1]) for x in (e.s, e.h, e.e0, e.ed)))
    numbers = [x.reshape(*shape, 1) for x in (g, c, flips)]
    return Stopped(solve(wide, numbers[0], lam, numbers[1], numbers[2]), lam)
