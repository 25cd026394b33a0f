"""The one transform behind every limit: kappa(ridge), the ridge that noiseless infinite data would need.

kappa solves  ridge = kappa (1 - aspect df1(kappa)),  df_j(kappa) = sum_k h_k (s_k / (s_k + kappa))^j,  and means
ridge (S + ridge)^-1 ~ kappa (Sigma + kappa)^-1 for a sample covariance S. It is the reciprocal of the companion Stieltjes
transform of Hastie et al., which the paper's appendix uses; in terms of kappa nothing cancels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput
from fedasym.theory.tabulated import WORTHWHILE, moments, tabulated
from fedasym.worlds.spectra import Spectrum

Solver = Callable[[Array, Array, Spectrum], Array]
EPS = np.finfo(float).eps
CHUNK = 1 << 17  # points x atoms held at once: fits the cache


class Sums(NamedTuple):
    """Sums over the atoms at kappa; each is computed without cancellation."""

    df1: Array  # sum h s/(s+k)
    df2: Array  # sum h s^2/(s+k)^2
    mixed: Array  # sum h s k/(s+k)^2 = df1 - df2
    rest: Array  # sum over seen atoms of h k/(s+k) = rank - df1


def sums(kappa: Array, spectrum: Spectrum) -> Sums:
    """The sums over the atoms that the formulas need, for any array of kappa above -min(s)."""
    s, h = spectrum.positive
    if kappa.size * s.size >= WORTHWHILE and (table := tabulated(spectrum)).covers(kappa):
        return Sums(*table.sums(kappa))
    size = max(1, CHUNK // s.size)
    if kappa.size <= size:
        return Sums(*moments(kappa, s, h))
    flat = kappa.ravel()
    parts = [np.stack(moments(flat[i : i + size], s, h)) for i in range(0, flat.size, size)]
    return Sums(*np.concatenate(parts, axis=1).reshape(4, *kappa.shape))


def slack(at: Sums, aspect: Array, spectrum: Spectrum) -> Array:
    """1 - aspect df1, from the side that does not cancel."""
    return np.asarray(np.where(at.rest < at.df1, (1 - aspect * spectrum.rank) + aspect * at.rest, 1 - aspect * at.df1))


def kappa(ridge: Array, aspect: Array, spectrum: Spectrum) -> Array:
    """The root of equation (1); ridge may be 0, infinite, or negative down to `lowest_ridge`."""
    ridge, aspect = (np.asarray(x, dtype=float) for x in np.broadcast_arrays(ridge, aspect))
    out = np.full(ridge.shape, np.inf)
    finite = np.isfinite(ridge)
    lam, gam = ridge[finite], aspect[finite]
    s, _ = spectrum.positive
    if np.all(s == s[0]):
        out[finite] = kappa_of_one_atom(lam, gam * spectrum.rank, s[0])
        return out
    if np.any(lam < 0):
        refuse_too_negative(lam, gam, spectrum)
    solved = np.empty(lam.shape)
    flat, negative = lam == 0, lam < 0
    if np.any(flat):  # depends on the aspect alone, so a grid has few different ones
        few, back = np.unique(gam[flat], return_inverse=True)
        solved[flat] = in_chunks(newton, np.zeros_like(few), few, spectrum)[back]
    if np.any(negative):
        solved[negative] = in_chunks(newton, lam[negative], gam[negative], spectrum)
    rest = ~(flat | negative)
    if rest.sum() * s.size >= WORTHWHILE:
        solved[rest] = tabulated(spectrum).solve(lam[rest], gam[rest])
        rest &= ~np.isfinite(solved)  # outside the table
    if np.any(rest):
        solved[rest] = in_chunks(newton, lam[rest], gam[rest], spectrum)
    out[finite] = solved
    return out


def in_chunks(solve: Solver, ridge: Array, aspect: Array, spectrum: Spectrum) -> Array:
    """Apply a solver to pieces whose points x atoms arrays stay in the cache."""
    size = max(1, CHUNK // spectrum.values.size)
    parts = [solve(ridge[i : i + size], aspect[i : i + size], spectrum) for i in range(0, ridge.size, size)]
    return np.concatenate(parts) if parts else np.empty(0)


def kappa_of_one_atom(ridge: Array, aspect: Array, s: float) -> Array:
    """Closed form where all seen directions have eigenvalue s; the branch avoids cancellation."""
    b = (aspect - 1) * s + ridge
    square = b * b + 4 * ridge * s
    if np.any(square < 0):
        bad = int(np.argmin(square))
        low = -s * (1 - np.sqrt(aspect[bad])) ** 2
        raise InvalidInput(too_negative(ridge[bad], low))
    root = np.sqrt(square)
    up = root + np.abs(b)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(b >= 0, up / 2, np.where(up > 0, 2 * ridge * s / up, 0.0))


def newton(ridge: Array, aspect: Array, spectrum: Spectrum) -> Array:
    """Newton from above: F(k) = k (1 - aspect df1(k)) - ridge is convex and increasing right of the root, so it is monotone.

    The step is k <- (ridge + aspect k mixed) / (slack + aspect mixed), a ratio of positive terms for ridge >= 0. The start
    is the closed form at the mean eigenvalue, an upper bound by Jensen; for ridge < 0 it is kappa(0).
    """
    s, h = spectrum.positive
    start = kappa_of_one_atom(np.maximum(ridge, 0), aspect * spectrum.rank, float(s @ h) / spectrum.rank)
    negative = ridge < 0
    if np.any(negative):
        start[negative] = newton(np.zeros(int(negative.sum())), aspect[negative], spectrum)
    k = start
    active = np.flatnonzero((ridge != 0) | (aspect * spectrum.rank > 1))
    k[(ridge == 0) & (aspect * spectrum.rank <= 1)] = 0.0
    for round_ in range(500):
        if active.size == 0:
            break
        now, lam, gam = k[active], ridge[active], aspect[active]
        at = sums(now, spectrum)
        step = (lam + gam * now * at.mixed) / (slack(at, gam, spectrum) + gam * at.mixed)
        k[active] = step
        # The first step may go up: rounding can put the start a hair below the root.
        done = np.abs(step - now) <= 4 * EPS * np.abs(now)
        if round_ > 0:
            done |= step > now
        active = active[~done]
    return k


def slope(kappa: Array, ridge: Array, aspect: Array, spectrum: Spectrum) -> Array:
    """Kappa' = dkappa/dridge = 1/(1 - aspect df2), equation (2), as 1/(ridge/kappa + aspect mixed): nothing cancels."""
    at = sums(np.where(np.isfinite(kappa), kappa, 1.0), spectrum)
    return slope_from(at, kappa, ridge, aspect, spectrum)


def slope_from(at: Sums, kappa: Array, ridge: Array, aspect: Array, spectrum: Spectrum) -> Array:
    """`slope` where the sums are at hand."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(kappa == 0, 1 - aspect * spectrum.rank, ridge / kappa)
        inverse = np.where(np.isinf(kappa), 1.0, ratio + aspect * at.mixed)
        return np.where(inverse <= 0, np.inf, 1 / np.where(inverse <= 0, 1.0, inverse))


def edges(aspect: Array, spectrum: Spectrum) -> tuple[Array, Array]:
    """kappa_minus and kappa_plus: where aspect df2 = 1, right of -min(s) and left of -max(s).

    They map to the two ends of the sample covariance's spectrum.
    """
    s, _ = spectrum.positive
    return -s.min() + distance(s - s.min(), aspect, spectrum), -s.max() - distance(s.max() - s, aspect, spectrum)


def distance(gap: Array, aspect: Array, spectrum: Spectrum) -> Array:
    """Delta > 0 with aspect sum h s^2/(gap + delta)^2 = 1, where one gap is zero.

    (sum ...)^-1/2 is nearly linear in delta (exactly so for one atom): Newton on it, kept in a bracket, takes few steps.
    """
    s, h = spectrum.positive
    gam = np.atleast_1d(np.asarray(aspect, dtype=float))
    touching = gap == 0
    low = s[touching][0] * np.sqrt(gam * h[touching].sum())
    high = s.max() * np.sqrt(gam * spectrum.rank)
    delta = low
    for _ in range(200):
        reach = gap + delta[:, None]
        total = gam * ((s / reach) ** 2 @ h)
        low, high = np.where(total >= 1, delta, low), np.where(total <= 1, delta, high)
        step = delta + (np.sqrt(total) - 1) * total / (gam * ((s / reach) ** 2 / reach @ h))
        new = np.where((low <= step) & (step <= high), step, (low + high) / 2)
        done = np.all(np.abs(new - delta) <= 2 * EPS * delta)
        delta = new
        if done:
            break
    return np.asarray(delta.reshape(np.shape(aspect)))


def lowest_ridge(aspect: Array, spectrum: Spectrum) -> Array:
    """The most negative admissible ridge, minus the smallest nonzero eigenvalue of the sample covariance (<= 0)."""
    minus, _ = edges(aspect, spectrum)
    return np.asarray(minus * slack(sums(minus, spectrum), np.asarray(aspect, dtype=float), spectrum))


def refuse_too_negative(ridge: Array, aspect: Array, spectrum: Spectrum) -> None:
    """Refuse a ridge at or below the lowest admissible one."""
    low = lowest_ridge(aspect, spectrum)
    if np.any((ridge < 0) & (ridge <= low)):
        bad = int(np.argmax(np.where(ridge < 0, low - ridge, -np.inf)))
        raise InvalidInput(too_negative(ridge[bad], low[bad]))


def too_negative(ridge: float, low: float) -> str:
    """The sentence for a ridge below the smallest nonzero eigenvalue of the sample covariance."""
    return f"ridge is {ridge:g}: below {low:.6g} the ridge objective has no minimum here; give a larger ridge"
