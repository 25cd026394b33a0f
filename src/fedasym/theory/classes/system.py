"""Section 3: the system behind logistic ridge, means (A) over the samples and sums (B) over the atoms of the spectrum.

theta_hat ~ (Hh Sigma + lam)^-1 (lam centre + M Sigma theta_i + sqrt(G/n) Sigma^1/2 N(0, I)).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from fedasym.core.arrays import Array
from fedasym.theory.classes.links import prox, smoothed
from fedasym.theory.classes.metrics import outer_step
from fedasym.theory.classes.quadrature import CHUNK, LEVEL, half_normal, nodes_for
from fedasym.worlds.energies import Energies


@dataclass(frozen=True, eq=False)
class Problem:
    """A flat batch of systems: energies (P, K); gamma, lam, eps, own of shape (P,); centre c and Ev of shape (P, K).

    `own`: the share of this client in the data, 1 for its own fit and 1/m for a pooled one (section 12.1), where the other
    clients' displacements blur the fit and ED enters through `own`.
    """

    energies: Energies
    gamma: Array
    lam: Array
    c: Array
    ev: Array
    eps: Array
    own: Array

    def take(self, rows: NDArray[np.intp]) -> Problem:
        """Some of the systems."""
        gamma, lam, c, ev, eps, own = (x[rows] for x in (self.gamma, self.lam, self.c, self.ev, self.eps, self.own))
        return Problem(self.energies.take(rows), gamma, lam, c, ev, eps, own)

    def means(self, u: Array, level: float) -> tuple[Array, Array, Array]:
        """(A) at u = (atanh cos, log Q, log V)."""
        return means(u, self.energies.rho, self.eps, level)

    def sums(self, H: Array, G: Array, M: Array) -> tuple[Array, Array, Array, Array, Array]:
        """(B): T, Q, V, what is left of Var(s), and the coefficient f0 of theta_0.

        The signal is sum of f0 theta_0 and fi Delta_i; Q - T^2/rho^2 is its spread about the mean coefficient, plus noise:
        in this form nothing cancels when the fit is nearly perfect.
        """
        e, lam = self.energies, self.lam[:, None]
        s, h = e.s, e.h
        H, G, M, own = H[:, None], G[:, None], M[:, None], self.own[:, None]
        reach = H * s + lam
        R = np.divide(1.0, reach, out=np.zeros(reach.shape), where=reach > 0)  # atoms with s = 0 count for nothing
        f0, fi = R * (lam * self.c + M * s), R * M * s * own
        others = (R * M * s) ** 2 * e.ed * own * (1 - own)
        noise = (s * (R**2 * (self.gamma[:, None] * G * s * h + lam**2 * self.ev) + others)).sum(-1)
        V = self.gamma * (h * s * R).sum(-1)
        T = (s * (f0 * e.e0 + fi * e.ed)).sum(-1)
        total = e.b0 + e.bd
        mean = np.divide(T, total, out=np.zeros(T.shape), where=total > 0)[:, None]
        off = (s * (e.e0 * (f0 - mean) ** 2 + e.ed * (fi - mean) ** 2)).sum(-1) + noise
        Q = off + mean[:, 0] ** 2 * total
        return T, Q, V, np.divide(total * off, Q, out=total.copy(), where=Q > 0), f0

    def image(self, u: Array, level: float) -> Array:
        """One round of (A) and (B)."""
        T, Q, V, rest, _ = self.sums(*self.means(u, level))
        return unknowns(T, Q, V, rest)

    def start(self) -> Array:
        """The start of section 3.1: Q = max(c^2 B0, .2), T = max(c B0, .3 rho sqrt Q), V = gamma sum h s/(.2 s + lam)."""
        e = self.energies
        b0 = (e.s * self.c * e.e0).sum(-1)
        Q = np.maximum((e.s * self.c**2 * e.e0).sum(-1), 0.2)
        cos = np.clip(np.divide(b0, e.rho * np.sqrt(Q), out=np.zeros(b0.shape), where=e.rho > 0), 0.3, 0.999)
        soft = 0.2 * e.s + self.lam[:, None]
        V = self.gamma * np.divide(e.h * e.s, soft, out=np.zeros(soft.shape), where=soft > 0).sum(-1)
        return np.stack([np.arctanh(cos), np.log(Q), np.log(V)], axis=1)


def unknowns(T: Array, Q: Array, V: Array, rest: Array) -> Array:
    """The unknowns (atanh cos, log Q, log V), with atanh cos = asinh(T/sqrt(Q rest))."""
    size = np.sqrt(Q * rest)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        tangent = np.divide(T, size, out=np.zeros(np.shape(T)), where=size > 0)
        return np.stack([np.arcsinh(tangent), np.log(Q), np.log(V)], axis=-1)


def means(u: Array, rho: Array, eps: Array, level: float = LEVEL) -> tuple[Array, Array, Array]:
    """(A): Hh = 2E[Pbar l2/(1+V l2)], G = 2E[Pbar g^2], M = 2E[D g] over w ~ N(0, Q), at u = (atanh cos, log Q, log V).

    g = sig(-eta) and l2 = g(1-g) at the prox eta of w. Pbar(-w) = 1 - Pbar(w) and D is even: half the nodes do.
    """
    cos, sd, V = np.tanh(u[:, 0]), np.exp(u[:, 1] / 2), np.exp(u[:, 2])
    slope, tau = rho * cos, rho / np.cosh(u[:, 0])
    nodes = nodes_for(outer_step(sd, slope, tau, level), level)
    H, G, M = (np.empty(rho.size) for _ in range(3))
    for count in np.unique(nodes):
        z, weight = half_normal(int(count), level)
        both = np.concatenate([z, -z])
        group = np.flatnonzero(nodes == count)
        size = max(1, CHUNK // int(count))
        for i in range(0, group.size, size):
            rows = group[i : i + size]
            p, d = smoothed(slope[rows, None] * z, tau[rows], level)
            flips = eps[rows, None]
            p, d = flips + (1 - 2 * flips) * p, (1 - 2 * flips) * d
            g = expit(-prox(sd[rows, None] * both, V[rows, None]))
            curved = g * (1 - g)
            curved /= 1 + V[rows, None] * curved
            right, left = slice(0, count), slice(count, None)
            H[rows] = 2 * (p * curved[:, right] + (1 - p) * curved[:, left]) @ weight
            G[rows] = 2 * (p * g[:, right] ** 2 + (1 - p) * g[:, left] ** 2) @ weight
            M[rows] = 2 * (d * (g[:, right] + g[:, left])) @ weight
    return H, G, M
