"""Equal clients with uncorrelated features, finitely many: any server stage, any filter as client stage, (10) and (11).

The shared model is Q^-1 sum_j p [phi(S_j) theta_j + b(S_j) X_j'noise_j/n] with phi(x) = x b(x); free-probability
subordination replaces Q, given one client's samples, by p phi(S_i) + u. Integrals are over the Marchenko-Pastur law.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedasym.core.arrays import Array
from fedasym.theory.contours import gauss, graded, settled
from fedasym.theory.roots import bracketed

Filter = Callable[[Array], Array]
MOST_NODES = 1 << 9  # in a panel
NARROW = 1e-9  # structure of the law near zero that is narrower than this carries no mass


@dataclass(frozen=True)
class Law:
    """Marchenko-Pastur law of aspect gamma (P,): nodes and weights (P, n), the atom at zero as the last node."""

    x: Array
    w: Array

    def mean(self, values: Array) -> Array:
        """The integral of a function given by its values at the nodes."""
        return np.asarray((self.w * values).sum(-1))


def marchenko_pastur(gamma: Array, nodes: int) -> Law:
    """The law of x = (1 - sqrt gamma)^2 + 4 sqrt gamma cos^2(t/2), weights 2 sin^2 t/(pi x) dt, on Gauss-Legendre panels.

    Near aspect 1 the weight changes within |1 - sqrt gamma| of t = pi: the panels halve towards it.
    """
    root = np.sqrt(gamma)[:, None]
    panels = graded(np.pi, np.pi, max(float(np.abs(1 - root).min()), NARROW))
    nodes_, weights = gauss(nodes)
    lengths = np.diff(panels)[:, None]
    rest = (np.pi - panels[1:, None] + lengths * (1 - nodes_) / 2).ravel()  # pi - t, without cancellation
    x = (1 - root) ** 2 + 4 * root * np.sin(rest / 2) ** 2
    w = (lengths * weights / 2).ravel() * 2 / np.pi * np.sin(rest) ** 2 / x
    atom = np.maximum(1 - 1 / gamma, 0)[:, None]
    return Law(np.concatenate([x, np.zeros_like(atom)], axis=1), np.concatenate([w, atom], axis=1))


def subordinate(
    b: Filter,
    keep: Filter,
    gamma: Array,
    r2: Array,
    s2: Array,
    clients: Array,
    member: bool,
    fitted: Array | None = None,
) -> tuple[Array, Array]:
    """Bias and variance, (10) and (11), for server weights b and the client filter P = `keep`.

    `fitted`: gamma int (1 - P)^2/x, the client's own noise that it fits, where a closed form is at hand; it may be unbounded.
    """
    m, p = clients, (1 / clients)[:, None]

    def rule(nodes: int) -> tuple[Array, Array]:
        law = marchenko_pastur(gamma, nodes)
        x, mean = law.x, law.mean
        weight, P = b(x), keep(x)
        f = p * x * weight

        def excess(log_u: Array) -> Array:
            u = np.exp(log_u)[:, None]
            return mean(u / (f + u)) - (1 - 1 / m)

        u = np.exp(bracketed(excess, np.full(m.shape, -80.0), np.full(m.shape, 40.0)))[:, None]
        K1, K2 = mean(1 / (f + u)), mean(1 / (f + u) ** 2)
        nu = 1 / (m - (m - 1) * K2 / K1**2)
        cr = mean((f / (f + u)) ** 2)
        cn = gamma * mean(p**2 * weight**2 * x / (f + u) ** 2)
        if member:
            through = mean(P**2 / (f + u) ** 2)
            bias = r2 * (u[:, 0] ** 2 + (nu - 1) * cr / K2 + (m - 1) * nu / K2 * cr) * through
            own = mean(P**2 * p**2 * weight**2 * x / (f + u) ** 2) + 2 * mean(P * (1 - P) * p * weight / (f + u))
            variance = s2 * (((m - 1) * nu + nu - 1) * cn / K2 * through + gamma * own)
        else:
            bias, variance = r2 * (1 + m * nu * cr) * mean(P**2), s2 * m * nu * cn * mean(P**2)
        if fitted is None:
            variance = variance + s2 * gamma * mean(np.where(x > 0, (1 - P) ** 2 / np.where(x > 0, x, 1), 0.0))
        found = np.stack([bias, variance])
        return found, np.abs(found).sum(0)

    bias, variance = settled(rule, MOST_NODES)
    if fitted is not None:
        with np.errstate(invalid="ignore"):  # no noise, no variance, however unbounded its factor
            variance = variance + np.where(s2 == 0, 0.0, s2 * fitted)
    return bias, variance
