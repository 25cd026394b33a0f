"""Equal clients with uncorrelated features, finitely many: any server stage, any filter as client stage, (10) and (11).

The shared model is Q^-1 sum_j p [phi(S_j) theta_j + b(S_j) X_j'noise_j/n] with phi(x) = x b(x); free-probability
subordination replaces Q, given one client's samples, by p phi(S_i) + u. Integrals are over the Marchenko-Pastur law.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedasym.theory.contours import gauss, graded
from fedasym.theory.roots import bracketed
from fedasym.theory.spectra import Array

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
    """Bias and variance for server weights b and the client filter P = `keep` (what is kept of the shared model).

    `fitted`: gamma int (1 - P)^2/x, the client's own noise that it fits, where a closed form is at hand. Nodes are added
    until the result settles.
    """
    last, nodes = None, 12
    while True:
        found = np.stack(with_nodes(b, keep, gamma, r2, s2, clients, member, fitted, nodes))
        size = np.where(np.isfinite(found), np.abs(found), 0).sum(0)
        with np.errstate(invalid="ignore"):  # unbounded stays unbounded
            settled = last is not None and bool(np.all((found == last) | (np.abs(found - last) <= 1e-14 * size)))
        if settled:
            break
        if nodes >= MOST_NODES:
            break
        last, nodes = found, nodes * 3 // 2
    return found[0], found[1]


def with_nodes(
    b: Filter,
    keep: Filter,
    gamma: Array,
    r2: Array,
    s2: Array,
    clients: Array,
    member: bool,
    fitted: Array | None,
    nodes: int,
) -> tuple[Array, Array]:
    """Equations (10) and (11) at a fixed number of nodes."""
    law = marchenko_pastur(gamma, nodes)
    x, mean, m = law.x, law.mean, clients
    p = (1 / m)[:, None]
    weight = b(x)
    f = p * x * weight
    P = keep(x)
    own_noise = gamma * mean(np.where(x > 0, (1 - P) ** 2 / np.where(x > 0, x, 1), 0.0)) if fitted is None else fitted

    def excess(log_u: Array) -> Array:
        u = np.exp(log_u)[:, None]
        return mean(u / (f + u)) - (1 - 1 / m)

    u = np.exp(bracketed(excess, np.full(m.shape, -80.0), np.full(m.shape, 40.0)))[:, None]
    K1, K2 = mean(1 / (f + u)), mean(1 / (f + u) ** 2)
    nu = 1 / (m - (m - 1) * K2 / K1**2)
    cr = mean((f / (f + u)) ** 2)
    cn = gamma * mean(p**2 * weight**2 * x / (f + u) ** 2)
    if not member:
        kept = mean(P**2)
        return r2 * (1 + m * nu * cr) * kept, s2 * m * nu * cn * kept + noisy(s2, own_noise)
    through = mean(P**2 / (f + u) ** 2)
    bias = r2 * (u[:, 0] ** 2 + (nu - 1) * cr / K2 + (m - 1) * nu / K2 * cr) * through
    own = mean(P**2 * p**2 * weight**2 * x / (f + u) ** 2) + 2 * mean(P * (1 - P) * p * weight / (f + u))
    variance = s2 * (((m - 1) * nu + nu - 1) * cn / K2 * through + gamma * own) + noisy(s2, own_noise)
    return bias, variance


def noisy(s2: Array, factor: Array) -> Array:
    """sigma^2 times a factor that may be unbounded; no noise, no variance."""
    with np.errstate(invalid="ignore"):
        return np.where(s2 == 0, 0.0, s2 * factor)
