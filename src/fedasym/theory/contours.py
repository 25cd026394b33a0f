"""Traces of functions of a sample covariance: along contours in the kappa plane, and by
subordination.

Equations (18) to (20): z(kappa) = -kappa (1 - aspect df1(kappa)) is explicit, so a contour drawn
for kappa instead of z needs no root finding. The right branch is where aspect sum h |s/(s+kappa)|^2
< 1. On a circle centred on the real line |s+kappa|^2 is linear in the cosine of the angle, hence
its reciprocal convex in it: a circle whose two real points satisfy the condition satisfies it
everywhere. A lens of two arcs through the same points is used where it satisfies it too: along it
fast-decaying functions decay before they oscillate. The contour crosses the real line at a small
negative z, beyond the spectrum and zero, so that null spaces and the interpolation threshold need
no special case.

Equations (10) and (11), finitely many equal clients with uncorrelated features: the shared model is
Q^-1 sum_j p [phi(S_j) theta_j + b(S_j) X_j'noise_j/n] with phi(x) = x b(x); free-probability
subordination replaces Q, given one client's samples, by p phi(S_i) + u. A ridge mu on the shared
model is added to Q, and pulls theta_0 towards zero: (T1) to (T5). Integrals are over the
Marchenko-Pastur law.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fedasym.core.numbers import Array
from fedasym.theory.roots import find_roots
from fedasym.theory.transforms import distance, kappa, kappa_edges, slack, sums_at
from fedasym.worlds.spectra import Spectrum

Complex = NDArray[np.complex128]
ComplexFunction = Callable[[Complex], Complex]  # values of several functions: adds a leading axis
MOST_NODES = 1 << 14
MOST_NODES_SQUARED = 1 << 11
BLOCK = 64  # rows of a kernel of two variables that are computed at a time: they stay in the cache
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

    def squared(self, function: ComplexFunction, energy: Array) -> Array:
        """The limit of Delta' f(S) Sigma f(S) Delta, energy[k] of Delta along atom k: (20)."""
        g = energy[self.spectrum.support]

        def rule(count: int) -> tuple[Array, Array]:
            k, z, _, arc = self.nodes(count)
            upper = function(z) * arc
            reach, inner = 1 / (self.s + k[:, None]), np.zeros_like(upper)
            pull, loss = reach * (g * self.s), reach * (self.aspect * self.h * self.s**2)
            # The second variable runs over both halves of the contour. The kernel is symmetric,
            # and Hermitian across the halves: a block of rows serves as columns, too.
            for start in range(0, k.size, BLOCK):
                rows, later = slice(start, start + BLOCK), reach[start:].T
                same = (pull[rows] @ later) / (1 - loss[rows] @ later)
                across = (pull[rows] @ later.conj()) / (1 - loss[rows] @ later.conj())
                inner[:, rows] += upper[:, start:] @ same.T + upper[:, start:].conj() @ across.T
                inner[:, start + BLOCK :] += (
                    upper[:, rows] @ same[:, BLOCK:] + (upper[:, rows] @ across[:, BLOCK:]).conj()
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
