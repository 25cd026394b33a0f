"""The one transform behind every limit: kappa(ridge), the ridge that noiseless infinite data would
need.

kappa solves  ridge = kappa (1 - aspect df1(kappa)),  df_j(kappa) = sum_k h_k (s_k / (s_k +
kappa))^j,  and means ridge (S + ridge)^-1 ~ kappa (Sigma + kappa)^-1 for a sample covariance S. It
is the reciprocal of the companion Stieltjes transform of Hastie et al., which the paper's appendix
uses; in terms of kappa nothing cancels.

For very many points the sums over atoms, which depend on log kappa alone, are tabulated once:
s/(s+kappa) is a logistic function of log kappa, analytic within a strip of half-width pi around the
real line, so polynomials of degree 9 on intervals of length 1/4 reach double precision, whatever
the number of atoms. A diagram of 40,000 worlds over 500 atoms then costs what one over ten atoms
would.

Traces of functions of a sample covariance go along contours in the kappa plane, or by
subordination. Equations (18) to (20): z(kappa) = -kappa (1 - aspect df1(kappa)) is explicit, so a
contour drawn for kappa instead of z needs no root finding. The right branch is where aspect sum h
|s/(s+kappa)|^2 < 1. On a circle centred on the real line |s+kappa|^2 is linear in the cosine of the
angle, hence its reciprocal convex in it: a circle whose two real points satisfy the condition
satisfies it everywhere. A lens of two arcs through the same points is used where it satisfies it
too: along it fast-decaying functions decay before they oscillate. The contour crosses the real line
at a small negative z, beyond the spectrum and zero, so that null spaces and the interpolation
threshold need no special case.

Equations (10) and (11), finitely many equal clients with uncorrelated features: the shared model is
Q^-1 sum_j p [phi(S_j) theta_j + b(S_j) X_j'noise_j/n] with phi(x) = x b(x); free-probability
subordination replaces Q, given one client's samples, by p phi(S_i) + u. A ridge mu on the shared
model is added to Q, and pulls theta_0 towards zero: (T1) to (T5). Integrals are over the
Marchenko-Pastur law.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array
from fedasym.theory.roots import find_roots
from fedasym.worlds.spectra import Spectrum

WORTHWHILE = 1 << 20  # points x atoms above which the table is cheaper than the sums themselves
LENGTH = 0.25  # of an interval in log kappa
TERMS = 10  # the error falls like 50^-TERMS: singularities are pi away in log kappa
BLOCK = 2048  # points evaluated at once: they stay in the fastest cache
MARGIN = 16.0  # the table reaches this far beyond the eigenvalues, in log kappa


class KappaTable:
    """df1, df2, mixed and rest (see `transforms.Sums`) as piecewise polynomials in log kappa."""

    def __init__(self, spectrum: Spectrum) -> None:
        s, h = spectrum.positive
        self.rank = spectrum.rank
        self.low = float(np.log(s.min())) - MARGIN
        self.count = int(np.ceil((float(np.log(s.max())) + MARGIN - self.low) / LENGTH))
        nodes = np.cos(np.pi * (np.arange(TERMS) + 0.5) / TERMS)
        centre = self.low + (np.arange(self.count) + 0.5) * LENGTH
        k = np.exp(centre[:, None] + nodes * (LENGTH / 2))
        values = np.stack(atom_sums(k.ravel(), s, h), axis=-1).reshape(self.count, TERMS, -1)
        # Monomial coefficients are safe here: they fall so fast that nothing cancels.
        self.terms = np.ascontiguousarray(
            np.moveaxis(np.linalg.solve(np.vander(nodes, increasing=True), values), 1, 0)
        )
        self.edges = np.exp(self.low + np.arange(self.count + 1) * LENGTH)
        self.at_edges = atom_sums(self.edges, s, h)

    def slack(self, df1: Array, rest: Array, aspect: Array) -> Array:
        """1 - aspect df1, from the side that does not cancel."""
        return np.where(rest < df1, (1 - aspect * self.rank) + aspect * rest, 1 - aspect * df1)

    def solve(self, ridge: Array, aspect: Array) -> Array:
        """kappa(ridge) for ridge > 0; NaN where it falls outside the table."""
        place, inside = self.locate(ridge, aspect)
        out = np.full(ridge.shape, np.nan)
        out[inside] = self.guess(place[inside], ridge[inside], aspect[inside])
        active = np.flatnonzero(inside)
        for _ in range(8):
            k = out[active]
            lam = ridge[active]
            gam = aspect[active]
            here = place[active]
            df1, _, mixed, rest = self.at(here, (np.log(k) - self.low) / LENGTH)
            step = (lam + gam * k * mixed) / (self.slack(df1, rest, gam) + gam * mixed)
            out[active] = np.clip(step, self.edges[here], self.edges[here + 1])
            active = active[np.abs(step - k) > 1e-8 * k]  # below, the error is its square: rounding
            if active.size == 0:
                break
        return out

    def covers(self, kappa: Array) -> bool:
        """Whether every kappa lies within the table."""
        return bool(np.all((kappa >= self.edges[0]) & (kappa <= self.edges[-1])))

    def sums(self, kappa: Array) -> Array:
        """df1, df2, mixed and rest at every kappa, quantities first."""
        u = (np.log(kappa.ravel()) - self.low) / LENGTH
        place = np.minimum(u.astype(np.intp), self.count - 1)
        found = self.at(place, u)
        return found.reshape((found.shape[0], *kappa.shape))

    def guess(self, place: NDArray[np.intp], ridge: Array, aspect: Array) -> Array:
        """A first kappa to four digits: the inverse's cubic through an interval's ends, slopes."""
        df1, _, mixed, rest = self.at_edges
        ends = []
        for at in (place, place + 1):
            room = self.slack(df1[at], rest[at], aspect)
            k = self.edges[at]
            ends.append((k, k * room, 1 / (room + aspect * mixed[at])))
        (k0, f0, slope0), (k1, f1, slope1) = ends
        t = (ridge - f0) / (f1 - f0)
        bend0, bend1 = slope0 * (f1 - f0) - (k1 - k0), (k1 - k0) - slope1 * (f1 - f0)
        return np.asarray(
            np.clip(k0 + t * (k1 - k0) + t * (1 - t) * ((1 - t) * bend0 + t * bend1), k0, k1)
        )

    def at(self, place: NDArray[np.intp], u: Array) -> Array:
        """df1, df2, mixed and rest (first axis) in intervals, u = (log kappa - low) / LENGTH."""
        out = np.empty((place.size, self.terms.shape[-1]))
        for i in range(0, place.size, BLOCK):
            part = slice(i, i + BLOCK)
            x = (2 * (u[part] - place[part]) - 1)[:, None]
            total = self.terms[-1].take(place[part], axis=0)
            for terms in self.terms[-2::-1]:
                total *= x
                total += terms.take(place[part], axis=0)
            out[part] = total
        return np.ascontiguousarray(out.T)

    def locate(self, ridge: Array, aspect: Array) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """The interval of each root, by bisection over edges (kappa (1 - aspect df1) increases)."""
        df1, _, _, rest = self.at_edges
        low = np.zeros(ridge.shape, dtype=np.intp)
        high = np.full(ridge.shape, self.count, dtype=np.intp)

        def is_below(place: NDArray[np.intp]) -> NDArray[np.bool_]:
            found = self.edges[place] * self.slack(df1[place], rest[place], aspect) < ridge
            return np.asarray(found)

        inside = is_below(low) & ~is_below(high)
        while np.any(high - low > 1):
            middle = (low + high) // 2
            up = is_below(middle)
            low, high = np.where(up, middle, low), np.where(up, high, middle)
        return low, inside


def atom_sums(k: Array, s: Array, h: Array) -> tuple[Array, Array, Array, Array]:
    """df1, df2, mixed and rest at every k, summed over the atoms."""
    reach = s + k[..., None]
    near, far = s / reach, k[..., None] / reach
    return near @ h, (near * near) @ h, (near * far) @ h, far @ h


@lru_cache(maxsize=16)
def kappa_table(spectrum: Spectrum) -> KappaTable:
    """The table of a spectrum, made once."""
    return KappaTable(spectrum)


KappaSolver = Callable[[Array, Array, Spectrum], Array]
EPS = np.finfo(float).eps
CHUNK = 1 << 17  # points x atoms held at once: fits the cache


class Sums(NamedTuple):
    """Sums over the atoms at kappa; each is computed without cancellation."""

    df1: Array  # sum h s/(s+k)
    df2: Array  # sum h s^2/(s+k)^2
    mixed: Array  # sum h s k/(s+k)^2 = df1 - df2
    rest: Array  # sum over seen atoms of h k/(s+k) = rank - df1


def sums_at(kappa: Array, spectrum: Spectrum) -> Sums:
    """The sums over the atoms that the formulas need, for any array of kappa above -min(s)."""
    s, h = spectrum.positive
    if kappa.size * s.size >= WORTHWHILE and (table := kappa_table(spectrum)).covers(kappa):
        return Sums(*table.sums(kappa))
    size = max(1, CHUNK // s.size)
    if kappa.size <= size:
        return Sums(*atom_sums(kappa, s, h))
    flat = kappa.ravel()
    parts = [np.stack(atom_sums(flat[i : i + size], s, h)) for i in range(0, flat.size, size)]
    return Sums(*np.concatenate(parts, axis=1).reshape(4, *kappa.shape))


def slack(at: Sums, aspect: Array, spectrum: Spectrum) -> Array:
    """1 - aspect df1, from the side that does not cancel."""
    return np.asarray(
        np.where(
            at.rest < at.df1, (1 - aspect * spectrum.rank) + aspect * at.rest, 1 - aspect * at.df1
        )
    )


def kappa(ridge: Array, aspect: Array, spectrum: Spectrum) -> Array:
    """The root of equation (1); ridge may be 0, infinite, or negative down to `lowest_ridge`."""
    ridge, aspect = (np.asarray(x, dtype=float) for x in np.broadcast_arrays(ridge, aspect))
    out = np.full(ridge.shape, np.inf)
    finite = np.isfinite(ridge)
    lam = ridge[finite]
    gam = aspect[finite]
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
        solved[flat] = in_chunks(newton_kappa, np.zeros_like(few), few, spectrum)[back]
    if np.any(negative):
        solved[negative] = in_chunks(newton_kappa, lam[negative], gam[negative], spectrum)
    rest = ~(flat | negative)
    if rest.sum() * s.size >= WORTHWHILE:
        solved[rest] = kappa_table(spectrum).solve(lam[rest], gam[rest])
        rest &= ~np.isfinite(solved)  # outside the table
    if np.any(rest):
        solved[rest] = in_chunks(newton_kappa, lam[rest], gam[rest], spectrum)
    out[finite] = solved
    return out


def in_chunks(solve: KappaSolver, ridge: Array, aspect: Array, spectrum: Spectrum) -> Array:
    """Apply a solver to pieces whose points x atoms arrays stay in the cache."""
    size = max(1, CHUNK // spectrum.values.size)
    parts = [
        solve(ridge[i : i + size], aspect[i : i + size], spectrum)
        for i in range(0, ridge.size, size)
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def kappa_of_one_atom(ridge: Array, aspect: Array, s: float) -> Array:
    """Closed form where all seen directions have eigenvalue s; the branch avoids cancellation."""
    b = (aspect - 1) * s + ridge
    square = b * b + 4 * ridge * s
    if np.any(square < 0):
        bad = int(np.argmin(square))
        low = -s * (1 - np.sqrt(aspect[bad])) ** 2
        raise InvalidInput(negative_ridge_error(ridge[bad], low))
    root = np.sqrt(square)
    up = root + np.abs(b)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(b >= 0, up / 2, np.where(up > 0, 2 * ridge * s / up, 0.0))


def newton_kappa(ridge: Array, aspect: Array, spectrum: Spectrum) -> Array:
    """Newton from above: F(k) = k (1 - aspect df1(k)) - ridge is convex and increasing right of the
    root, so it is monotone.

    The step is k <- (ridge + aspect k mixed) / (slack + aspect mixed), a ratio of positive terms
    for ridge >= 0. The start is the closed form at the mean eigenvalue, an upper bound by Jensen;
    for ridge < 0 it is kappa(0).
    """
    s, h = spectrum.positive
    start = kappa_of_one_atom(
        np.maximum(ridge, 0), aspect * spectrum.rank, float(s @ h) / spectrum.rank
    )
    negative = ridge < 0
    if np.any(negative):
        start[negative] = newton_kappa(np.zeros(int(negative.sum())), aspect[negative], spectrum)
    k = start
    active = np.flatnonzero((ridge != 0) | (aspect * spectrum.rank > 1))
    k[(ridge == 0) & (aspect * spectrum.rank <= 1)] = 0.0
    for round_ in range(500):
        if active.size == 0:
            break
        now = k[active]
        lam = ridge[active]
        gam = aspect[active]
        at = sums_at(now, spectrum)
        step = (lam + gam * now * at.mixed) / (slack(at, gam, spectrum) + gam * at.mixed)
        k[active] = step
        # The first step may go up: rounding can put the start a hair below the root.
        done = np.abs(step - now) <= 4 * EPS * np.abs(now)
        if round_ > 0:
            done |= step > now
        active = active[~done]
    return k


def kappa_slope(kappa: Array, ridge: Array, aspect: Array, spectrum: Spectrum) -> Array:
    """Kappa' = 1/(1 - aspect df2) (equation 2), as 1/(ridge/kappa + aspect mixed): none cancels."""
    at = sums_at(np.where(np.isfinite(kappa), kappa, 1.0), spectrum)
    return kappa_slope_from(at, kappa, ridge, aspect, spectrum)


def kappa_slope_from(
    at: Sums, kappa: Array, ridge: Array, aspect: Array, spectrum: Spectrum
) -> Array:
    """`kappa_slope` where the sums are at hand."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(kappa == 0, 1 - aspect * spectrum.rank, ridge / kappa)
        inverse = np.where(np.isinf(kappa), 1.0, ratio + aspect * at.mixed)
        return np.where(inverse <= 0, np.inf, 1 / np.where(inverse <= 0, 1.0, inverse))


def kappa_edges(aspect: Array, spectrum: Spectrum) -> tuple[Array, Array]:
    """kappa_minus and kappa_plus: where aspect df2 = 1, right of -min(s) and left of -max(s).

    They map to the two ends of the sample covariance's spectrum.
    """
    s, _ = spectrum.positive
    return -s.min() + distance(s - s.min(), aspect, spectrum), -s.max() - distance(
        s.max() - s, aspect, spectrum
    )


def distance(gap: Array, aspect: Array, spectrum: Spectrum) -> Array:
    """Delta > 0 with aspect sum h s^2/(gap + delta)^2 = 1, where one gap is zero.

    (sum ...)^-1/2 is nearly linear in delta (exactly so for one atom): Newton on it, kept in a
    bracket, takes few steps.
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
    """The most negative admissible ridge: minus the smallest nonzero sample eigenvalue (<= 0)."""
    minus, _ = kappa_edges(aspect, spectrum)
    return np.asarray(
        minus * slack(sums_at(minus, spectrum), np.asarray(aspect, dtype=float), spectrum)
    )


def refuse_too_negative(ridge: Array, aspect: Array, spectrum: Spectrum) -> None:
    """Refuse a ridge at or below the lowest admissible one."""
    low = lowest_ridge(aspect, spectrum)
    if np.any((ridge < 0) & (ridge <= low)):
        bad = int(np.argmax(np.where(ridge < 0, low - ridge, -np.inf)))
        raise InvalidInput(negative_ridge_error(ridge[bad], low[bad]))


def negative_ridge_error(ridge: float, low: float) -> str:
    """The sentence for a ridge below the smallest nonzero eigenvalue of the sample covariance."""
    return (
        f"ridge is {ridge:g}: below {low:.6g} the ridge objective has no minimum here; give a"
        " larger ridge"
    )


Complex = NDArray[np.complex128]
ComplexFunction = Callable[[Complex], Complex]  # values of several functions: adds a leading axis
MOST_NODES = 1 << 14
MOST_NODES_SQUARED = 1 << 11
ROWS = 64  # rows of a kernel of two variables that are computed at a time: they stay in the cache
OPENINGS = np.deg2rad([30, 45, 60, 75])


class Contour:
    """Encloses the sample covariance's eigenvalues and zero; crosses the real line at z = -reach
    and near `furthest`.

    `reach`: how far into the negatives the functions to be integrated stay of order one;
    `furthest`: the largest real z at which they do.
    """

    def __init__(
        self, aspect: float, spectrum: Spectrum, reach: float, furthest: float = np.inf
    ) -> None:
        self.aspect, self.spectrum = aspect, spectrum
        s, h = self.s, self.h = spectrum.positive
        gam = np.array([aspect])
        right = kappa(np.array([reach]), gam, spectrum)
        minus, plus = (float(end[0]) for end in kappa_edges(gam, spectrum))
        kappa0 = float(kappa(np.zeros(1), gam, spectrum)[0])
        level = aspect * float(sums_at(right, spectrum).df2[0])
        self.right = float(right[0])
        while True:
            self.left = -s.max() - float(distance(s.max() - s, gam / level, spectrum)[0])
            if (
                level > 0.9999
                or -self.left * (1 - aspect * float((s / (s + self.left)) @ h)) <= furthest
            ):
                break
            level = np.sqrt(level)  # nearer to the spectrum
        # Singularities come near only at the two real points: the spectrum's ends and, on the
        # right, kappa0.
        gaps = [self.right - minus, plus - self.left]
        if kappa0 > 0:
            gaps[0] = min(gaps[0], self.right - kappa0)
        self.gaps = gaps
        self.opening = next(
            (angle for angle in OPENINGS if self._on_branch(angle, level)), np.pi / 2
        )
        self.size = self._panels(self.opening).size

    def _panels(self, opening: float) -> Array:
        across = (self.right - self.left) / (2 * np.sin(opening))
        return graded_panels(2 * opening, self.gaps[0] / across, self.gaps[1] / across)

    def _points(self, opening: float, nodes: int) -> tuple[Complex, Complex]:
        """Kappa and weights of dkappa/(2 pi i) on the upper arc that starts at `opening`."""
        x, w = gauss_legendre(nodes)
        panels = self._panels(opening)
        lengths = np.diff(panels)[:, None]
        angle, weight = (
            (panels[:-1, None] + lengths * (x + 1) / 2).ravel(),
            (lengths * w / 2).ravel(),
        )
        start = (
            (self.right - self.left) / (2 * np.sin(opening)) * np.exp(1j * (np.pi / 2 - opening))
        )
        # from the right end, without cancellation
        move = start * 2j * np.sin(angle / 2) * np.exp(0.5j * angle)
        return self.right + move, (start + move) * weight / (2 * np.pi)

    def _on_branch(self, opening: float, level: float) -> bool:
        k, _ = self._points(opening, 6)
        near = np.abs(self.s / (self.s + k[:, None])) ** 2
        return bool(np.all(self.aspect * (near @ self.h) <= (1 + level) / 2))

    def nodes(self, count: int) -> tuple[Complex, Complex, Complex, Complex]:
        """kappa, z, df1, (1 - aspect df2)/(1 - aspect df1) dkappa/(2 pi i); `count` per panel."""
        k, arc = self._points(self.opening, count)
        reach = self.s + k[:, None]
        near, far = self.s / reach, k[:, None] / reach
        df1, rest = near @ self.h, far @ self.h
        beyond = (1 - self.aspect * self.spectrum.rank) + self.aspect * rest
        room = np.where(np.abs(rest) < np.abs(df1), beyond, 1 - self.aspect * df1)
        full = room + self.aspect * ((near * far) @ self.h)  # 1 - aspect df2
        return k, -k * room, df1, full / room * arc

    def trace(self, function: ComplexFunction) -> Array:
        """L[phi] = lim tau(Sigma phi(S)) for several phi at once, equation (19)."""

        def rule(count: int) -> tuple[Array, Array]:
            _, z, df1, arc = self.nodes(count)
            values = function(z)
            weights = df1 * arc
            return np.asarray(2 * (values @ weights).real), np.abs(values) @ np.abs(weights)

        return sum_until_settled(rule, MOST_NODES // self.size)

    def quadratic_form(self, function: ComplexFunction, energy: Array) -> Array:
        """The limit of Delta' f(S) Sigma f(S) Delta, energy[k] of Delta along atom k: (20)."""
        g = energy[self.spectrum.support]

        def rule(count: int) -> tuple[Array, Array]:
            k, z, _, arc = self.nodes(count)
            upper = function(z) * arc
            reach, inner = 1 / (self.s + k[:, None]), np.zeros_like(upper)
            pull, loss = reach * (g * self.s), reach * (self.aspect * self.h * self.s**2)
            # The second variable runs over both halves of the contour. The kernel is symmetric,
            # and Hermitian across the halves: a block of rows serves as columns, too.
            for start in range(0, k.size, ROWS):
                rows, later = slice(start, start + ROWS), reach[start:].T
                same = (pull[rows] @ later) / (1 - loss[rows] @ later)
                across = (pull[rows] @ later.conj()) / (1 - loss[rows] @ later.conj())
                inner[:, rows] += upper[:, start:] @ same.T + upper[:, start:].conj() @ across.T
                inner[:, start + ROWS :] += (
                    upper[:, rows] @ same[:, ROWS:] + (upper[:, rows] @ across[:, ROWS:]).conj()
                )
            return np.asarray(2 * (inner * upper).sum(-1).real), np.abs(inner * upper).sum(-1)

        return sum_until_settled(rule, MOST_NODES_SQUARED // self.size)


@cache
def gauss_legendre(nodes: int) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights on [-1, 1]."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    return x, w


def sample_support(aspect: float, spectrum: Spectrum) -> tuple[float, float]:
    """The smallest nonzero and the largest eigenvalue of the sample covariance in the limit."""
    gam = np.array([aspect])
    s, h = spectrum.positive
    minus, plus = kappa_edges(gam, spectrum)
    low = -float((minus * slack(sums_at(minus, spectrum), gam, spectrum))[0])
    high = -float(plus[0]) * (1 - aspect * float((s / (s + plus)) @ h))
    return max(low, 0.0), high


def graded_panels(length: float, first: float, last: float) -> Array:
    """Panels of [0, length] that halve towards both ends, down to the gaps `first` and `last`."""
    down, up = [length / 2], [length / 2]
    while down[-1] > first:
        down.append(down[-1] / 2)
    while up[-1] > last:
        up.append(up[-1] / 2)
    return np.array([0.0, *down[::-1], *(length - np.array(up[1:])), length])


def sum_until_settled(rule: Callable[[int], tuple[Array, Array]], most: int) -> Array:
    """Add nodes to the panels until sums settle to rounding (`rule`: sums and terms' sizes)."""
    count = 12
    change = np.inf
    last, size = rule(count)
    while (count := count * 3 // 2) <= max(most, 18):
        now, size = rule(count)
        before = change
        change = float(np.max(np.abs(now - last) / np.maximum(size, 1e-300)))
        last = now
        if change <= 2e-15 or (change <= 1e-12 and change > before / 4):
            break
    return last


RealFilter = Callable[[Array], Array]
MOST_LAW_NODES = 1 << 9  # in a panel
NARROW = 1e-9  # structure of the law near zero that is narrower than this carries no mass


@dataclass(frozen=True)
class SampleLaw:
    """Marchenko-Pastur law of aspect gamma (P,): nodes and weights (P, n), the atom at 0 last."""

    x: Array
    w: Array

    def mean(self, values: Array) -> Array:
        """The integral of a function given by its values at the nodes."""
        return np.asarray((self.w * values).sum(-1))


def marchenko_pastur(gamma: Array, nodes: int) -> SampleLaw:
    """The law of x = (1 - sqrt gamma)^2 + 4 sqrt gamma cos^2(t/2), weights 2 sin^2 t/(pi x) dt, on
    Gauss-Legendre panels.

    Near aspect 1 the weight changes within |1 - sqrt gamma| of t = pi: the panels halve towards it.
    """
    root = np.sqrt(gamma)[:, None]
    panels = graded_panels(np.pi, np.pi, max(float(np.abs(1 - root).min()), NARROW))
    nodes_, weights = gauss_legendre(nodes)
    lengths = np.diff(panels)[:, None]
    rest = (
        np.pi - panels[1:, None] + lengths * (1 - nodes_) / 2
    ).ravel()  # pi - t, without cancellation
    x = (1 - root) ** 2 + 4 * root * np.sin(rest / 2) ** 2
    w = (lengths * weights / 2).ravel() * 2 / np.pi * np.sin(rest) ** 2 / x
    atom = np.maximum(1 - 1 / gamma, 0)[:, None]
    return SampleLaw(
        np.concatenate([x, np.zeros_like(atom)], axis=1), np.concatenate([w, atom], axis=1)
    )


def subordinator(
    weight: Array, law: SampleLaw, m: Array, ridge: Array | float = 0.0
) -> tuple[Array, Array]:
    """F = p x b(x) at the law's nodes, and u with which (f + u)^-1 stands for Q^-1: (T2)."""
    f = law.x * weight / m[:, None]
    mu = np.broadcast_to(ridge, m.shape)
    with np.errstate(divide="ignore"):
        lowest = np.maximum(np.log(mu / m), -80.0)

    def excess(log_u: Array) -> Array:
        u = np.exp(log_u)[:, None]
        return law.mean(u / (f + u)) * (1 - mu / (m * u[:, 0])) - (1 - 1 / m)

    return f, np.exp(find_roots(excess, lowest, np.full(m.shape, 40.0)))[:, None]


def subordinate(
    b: RealFilter,
    keep: RealFilter,
    gamma: Array,
    r2: Array,
    s2: Array,
    clients: Array,
    member: bool,
    fitted: Array | None = None,
    shrunk: tuple[Array, Array] | None = None,
) -> tuple[Array, Array]:
    """Bias and variance, (10) and (11), for server weights b and the client filter P = `keep`.

    `fitted`: gamma int (1 - P)^2/x, the client's own noise that it fits, where a closed form is at
    hand; it may be unbounded. `shrunk`: a ridge mu on the shared model, and |theta_0|^2.
    """
    m = clients
    p = (1 / clients)[:, None]
    mu, b2 = (np.zeros_like(m), np.zeros_like(m)) if shrunk is None else shrunk

    def rule(nodes: int) -> tuple[Array, Array]:
        law = marchenko_pastur(gamma, nodes)
        x, mean = law.x, law.mean
        weight = b(x)
        P = keep(x)
        f, u = subordinator(weight, law, m, mu)
        K1, K2 = mean(1 / (f + u)), mean(1 / (f + u) ** 2)
        nu = 1 / (m - (m - 1) * K2 / K1**2)
        cr = mean((f / (f + u)) ** 2)
        cn = gamma * mean(p**2 * weight**2 * x / (f + u) ** 2)
        if member:
            through = mean(P**2 / (f + u) ** 2)
            bias = r2 * (u[:, 0] ** 2 + (nu - 1) * cr / K2 + (m - 1) * nu / K2 * cr) * through
            bias = bias + mu**2 * b2 * nu * through
            own = mean(P**2 * p**2 * weight**2 * x / (f + u) ** 2) + 2 * mean(
                P * (1 - P) * p * weight / (f + u)
            )
            variance = s2 * (((m - 1) * nu + nu - 1) * cn / K2 * through + gamma * own)
        else:
            kept = mean(P**2)
            bias = (r2 * (1 + m * nu * cr) + mu**2 * b2 * nu * K2) * kept
            variance = s2 * m * nu * cn * kept
        if fitted is None:
            variance = variance + s2 * gamma * mean(
                np.where(x > 0, (1 - P) ** 2 / np.where(x > 0, x, 1), 0.0)
            )
        found = np.stack([bias, variance])
        return found, np.abs(found).sum(0)

    bias, variance = sum_until_settled(rule, MOST_LAW_NODES)
    if fitted is not None:
        with np.errstate(invalid="ignore"):  # no noise, no variance, however unbounded its factor
            variance = variance + np.where(s2 == 0, 0.0, s2 * fitted)
    return bias, variance
