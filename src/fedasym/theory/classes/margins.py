"""Section 5: the max-margin classifier, min ||w|| with y x'w >= 1: where the logistic loss leads on separable data.

It is the system of section 3 with g = (1-w)_+/V, lam = 1 and c = 0. Given u = s/rho, z = w/sqrt Q is normal, so the means of
powers of (k-z)_+, k = 1/sqrt Q the margin, are known, and one integral over u remains.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, ndtr

from fedasym.core.arrays import Array
from fedasym.theory.classes.fixedpoints import ACCEPTED, Found, newton
from fedasym.theory.classes.quadrature import CHUNK, STRIP, half_normal, nodes_for, step_for
from fedasym.theory.classes.ridge import Fit
from fedasym.theory.classes.separability import threshold
from fedasym.theory.classes.system import Problem, unknowns
from fedasym.theory.roots import bracketed
from fedasym.worlds.energies import Energies

Means = tuple[Array, Array, Array, Array]


def hinges(u: Array, k: Array, rho: Array, eps: Array) -> Means:
    """A = E 1{yz<k}, E(k-yz)_+, K1 = 2E[D(z)(k-z)_+] and K2 = E(k-yz)_+^2 at cos = tanh u, for flat arrays."""
    cos, sin = np.tanh(u), 1 / np.cosh(u)
    with np.errstate(divide="ignore"):
        nodes = nodes_for(step_for(STRIP / rho, 1 / sin**2))
    out = np.empty((4, u.size))
    for count in np.unique(nodes):
        v, weight = half_normal(int(count))
        group = np.flatnonzero(nodes == count)
        size = max(1, CHUNK // int(count))
        for i in range(0, group.size, size):
            rows = group[i : i + size]
            flips = 1 - 2 * eps[rows, None]
            sig = expit(rho[rows, None] * v)
            p, d = eps[rows, None] + flips * sig, flips * sig * (1 - sig)
            c, s, m = cos[rows, None], sin[rows, None], k[rows, None]
            with_label, against = ((m - sign * c * v) / s for sign in (1, -1))
            (a0, a1, a2), (b0, b1, b2) = parts(with_label), parts(against)
            out[0, rows] = 2 * (p * a0 + (1 - p) * b0) @ weight
            out[1, rows] = 2 * (s * (p * a1 + (1 - p) * b1)) @ weight
            out[2, rows] = 2 * (s * d * (a1 + b1)) @ weight
            out[3, rows] = 2 * (s**2 * (p * a2 + (1 - p) * b2)) @ weight
    return out[0], out[1], out[2], out[3]


def parts(x: Array) -> tuple[Array, Array, Array]:
    """P(Z < x), E(x-Z)_+ and E(x-Z)_+^2."""
    below, bell = ndtr(x), np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    return below, x * below + bell, (1 + x**2) * below + x * bell


def margin_at(u: Array, gamma: Array, rho: Array, eps: Array) -> Array:
    """The k with K2 = gamma (1-cos^2). The root of K2 is a norm, convex in k: Newton on it overshoots at most once."""
    target = np.sqrt(gamma) / np.cosh(u)
    k = np.zeros(u.size)
    for _ in range(60):
        _, first, _, second = hinges(u, k, rho, eps)
        size = np.sqrt(second)
        step = (target - size) * size / np.maximum(first, 1e-300)
        k = k + np.clip(step, -5, None)
        if np.all(np.abs(step) <= 1e-14 * (1 + np.abs(k))):
            break
    return k


def identity(gamma: Array, rho: Array, eps: Array) -> tuple[Array, Array, Array]:
    """Uncorrelated features, two unknowns: K2 = gamma (1-cos^2) gives k(cos), and cos = rho K1/gamma; V = gamma - A.

    Returns atanh cos, k and V for gamma above gamma*, where cos is below its value at the threshold.
    """

    def gap(u: Array) -> Array:
        k = margin_at(u, gamma, rho, eps)
        return np.asarray(np.tanh(u) - rho * hinges(u, k, rho, eps)[2] / gamma)

    top = np.arcsinh(1.05 * threshold(rho, eps).tangent + 1e-3)
    u = bracketed(gap, np.zeros(gamma.size), top, tolerance=1e-15)
    k = margin_at(u, gamma, rho, eps)
    return u, k, gamma - hinges(u, k, rho, eps)[0]


def max_margin(energies: Energies, gamma: ArrayLike, eps: ArrayLike = 0.0) -> Fit:
    """The max-margin classifier of one client, in units of margin 1, for gamma (times the rank) above gamma*.

    >>> fit = max_margin(Energies.isotropic(2, 1), gamma=5)
    >>> round(float(fit.cos), 9), round(float(fit.Q), 9), round(float(fit.V), 9)
    (0.264332561, 0.22967215, 4.02582047)
    """
    shape = np.broadcast_shapes(energies.batch, np.shape(gamma), np.shape(eps))
    e = energies.broadcast(shape).flat()
    g, flips = (np.broadcast_to(np.asarray(x, dtype=float), shape).reshape(-1) for x in (gamma, eps))
    none, ones = np.zeros(e.s.shape), np.ones(g.size)
    problem = Problem(e, g, ones, none, none, flips, ones)
    seen = np.where(e.s > 0, e.h, 0.0)
    mean = (seen * e.s).sum(-1) / seen.sum(-1)
    u, k, V = identity(g * seen.sum(-1), e.rho, flips)
    found = Found(np.stack([u, -2 * np.log(k), np.log(mean * V)], axis=1), np.zeros(g.size))
    one = np.all((e.s == 0) | (e.h == 0) | np.isclose(e.s, mean[:, None], rtol=1e-15, atol=0), axis=1)
    rows = np.flatnonzero(~one)
    if rows.size:
        found.u[rows], found.residual[rows] = deformed(problem.take(rows), found.u[rows], mean[rows])
    H, G, M = means(found.u, problem)
    T, Q, V, rest, f0 = problem.sums(H, G, M)
    bad = ~(found.residual <= ACCEPTED)
    numbers = {name: np.where(bad, np.nan, x).reshape(shape) for name, x in zip("TQVHGM", (T, Q, V, H, G, M), strict=True)}
    return Fit(
        rho=e.rho.reshape(shape),
        rest=rest.reshape(shape),
        f0=f0.reshape(*shape, -1),
        residual=found.residual.reshape(shape),
        **numbers,
    )


def means(u: Array, problem: Problem) -> tuple[Array, Array, Array]:
    """(A) with g = (1-w)_+/V: Hh = A/V, G = Q K2/V^2, M = sqrt(Q) K1/V."""
    Q, V = np.exp(u[:, 1]), np.exp(u[:, 2])
    A, _, K1, K2 = hinges(u[:, 0], 1 / np.sqrt(Q), problem.energies.rho, problem.eps)
    return A / V, Q * K2 / V**2, np.sqrt(Q) * K1 / V


def deformed(problem: Problem, start: Array, mean: Array) -> Found:
    """Correlated features: from s = mean to the spectrum along s^t mean^(1-t), with the energies scaled to keep B0 and BD.

    Plain iteration drifts to infinity near gamma*; Newton does not.
    """
    e, m = problem.energies, mean[:, None]
    u, residual = start, np.zeros(mean.size)
    for t in np.linspace(0, 1, 6)[1:]:
        s = np.where(e.s > 0, m * np.where(e.s > 0, e.s / m, 1.0) ** t, 0.0)
        ratio = np.divide(e.s, s, out=np.zeros(s.shape), where=s > 0)
        now = replace(problem, energies=Energies(s, e.h, e.e0 * ratio, e.ed * ratio))

        def image(u: Array, rows: NDArray[np.intp], now: Problem = now) -> Array:
            some = now.take(rows)
            T, Q, V, rest, _ = some.sums(*means(u, some))
            return unknowns(T, Q, V, rest)

        u, residual = newton(image, u)
    return Found(u, residual)
