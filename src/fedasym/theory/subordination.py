"""Equal clients with uncorrelated features, finitely many: any server stage, any filter as client stage, (10) and (11).

The shared model is Q^-1 sum_j p [phi(S_j) theta_j + b(S_j) X_j'noise_j/n] with phi(x) = x b(x); free-probability
subordination replaces Q, given one client's samples, by p phi(S_i) + u. Integrals are over the Marchenko-Pastur law.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedasym.theory.roots import bracketed
from fedasym.theory.spectra import Array

Filter = Callable[[Array], Array]
MOST_NODES = 1 << 14


@dataclass(frozen=True)
class Law:
    """Marchenko-Pastur law of aspect gamma (P,): nodes and weights (P, n), the atom at zero as the last node."""

    x: Array
    w: Array

    def mean(self, values: Array) -> Array:
        """The integral of a function given by its values at the nodes."""
        return np.asarray((self.w * values).sum(-1))


def marchenko_pastur(gamma: Array, nodes: int) -> Law:
    """Second-kind Chebyshev quadrature, spectrally accurate: x = (1 - sqrt gamma)^2 + 4 sqrt gamma cos^2(t/2)."""
    t = (np.arange(nodes) + 0.5) * np.pi / nodes
    root = np.sqrt(gamma)[:, None]
    x = (1 - root) ** 2 + 4 * root * np.cos(t / 2) ** 2
    w = 2 / nodes * np.sin(t) ** 2 / x
    atom = np.maximum(1 - 1 / gamma, 0)[:, None]
    return Law(np.concatenate([x, np.zeros_like(atom)], axis=1), np.concatenate([w, atom], axis=1))


def subordinate(
    b: Filter, keep: Filter, gamma: Array, r2: Array, s2: Array, clients: Array, member: bool
) -> tuple[Array, Array]:
    """Bias and variance for server weights b and the client filter P = `keep` (what is kept of the shared model).

    The number of nodes doubles until the result settles.
    """
    last = None
    nodes = 64
    while True:
        found = np.stack(with_nodes(b, keep, gamma, r2, s2, clients, member, nodes))
        if last is not None and np.all(np.abs(found - last) <= 1e-14 * np.abs(found).sum(0)):
            break
        if nodes >= MOST_NODES:
            break
        last, nodes = found, nodes * 2
    return found[0], found[1]


def with_nodes(
    b: Filter, keep: Filter, gamma: Array, r2: Array, s2: Array, clients: Array, member: bool, nodes: int
) -> tuple[Array, Array]:
    """Equations (10) and (11) at a fixed number of nodes."""
    law = marchenko_pastur(gamma, nodes)
    x, mean, m = law.x, law.mean, clients
    p = (1 / m)[:, None]
    weight = b(x)
    f = p * x * weight
    P = keep(x)
    with np.errstate(divide="ignore", invalid="ignore"):
        fit = np.where(x > 0, (1 - P) ** 2 / np.where(x > 0, x, 1), 0.0)  # x F^2

    def excess(log_u: Array) -> Array:
        u = np.exp(log_u)[:, None]
        return mean(u / (f + u)) - (1 - 1 / m)

    u = np.exp(bracketed(excess, np.full(m.shape, -80.0), np.full(m.shape, 40.0)))[:, None]
    K1, K2 = mean(1 / (f + u)), mean(1 / (f + u) ** 2)
    nu = 1 / (m - (m - 1) * K2 / K1**2)
    cr = mean((f / (f + u)) ** 2)
    cn = gamma * mean(p**2 * weight**2 * x / (f + u) ** 2)
    if not member:
        kept, fitted = mean(P**2), gamma * mean(fit)
        return r2 * (1 + m * nu * cr) * kept, s2 * (m * nu * cn * kept + fitted)
    through = mean(P**2 / (f + u) ** 2)
    bias = r2 * (u[:, 0] ** 2 + (nu - 1) * cr / K2 + (m - 1) * nu / K2 * cr) * through
    own = mean(P**2 * p**2 * weight**2 * x / (f + u) ** 2) + 2 * mean(P * (1 - P) * p * weight / (f + u)) + mean(fit)
    variance = s2 * (((m - 1) * nu + nu - 1) * cn / K2 * through + gamma * own)
    return bias, variance
