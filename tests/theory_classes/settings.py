"""What the tests of binary classification share: the grid of section 9, covariances, and clients
drawn at random.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from fedasym.theory.classes.metrics import State
from fedasym.worlds.classes import Energies

Array = NDArray[np.float64]

TWO = {"s": [0.5, 3.0], "h": [0.6, 0.4]}
THREE = {"s": [0.1, 1.0, 10.0], "h": [0.3, 0.5, 0.2]}
LENGTHS = ((1, 1), (2, 1), (1, 2), (1.5, 1.5), (1, 3), (3, 3))
GAMMA, B, R = np.array([(g, b, r) for g in (0.1, 0.3, 0.5, 1, 2, 5, 20) for b, r in LENGTHS]).T


@dataclass
class Drawn:
    """A client in d dimensions whose energies per atom are exactly those of `energies`."""

    x: Array
    y: Array  # -1 or +1
    theta0: Array
    theta: Array
    s: Array  # the covariance's diagonal

    def state(self, w: Array) -> State:
        """What the exact metrics need of a rule."""
        return State.of(
            w @ (self.s * self.theta), w @ (self.s * w), np.sqrt(self.theta @ (self.s * self.theta))
        )


def directions(
    energies: Energies, d: int, clients: int, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """The diagonal of Sigma, theta_0 and the displacements (clients, d): orthogonal to it and of
    exact energy, atom by atom.
    """
    sizes = np.round(energies.h * d).astype(int)
    s = np.repeat(energies.s, sizes)
    theta0, moved = np.zeros(s.size), np.zeros((clients, s.size))
    for k, at in enumerate(np.split(np.arange(s.size), np.cumsum(sizes)[:-1])):
        basis = np.linalg.qr(rng.standard_normal((at.size, clients + 1)))[0]
        theta0[at] = np.sqrt(energies.e0[k]) * basis[:, 0]
        moved[:, at] = np.sqrt(energies.ed[k]) * basis[:, 1:].T
    return s, theta0, moved


def draw(
    energies: Energies,
    gamma: float,
    d: int,
    rng: np.random.Generator,
    clients: int = 1,
    eps: float = 0.0,
) -> list[Drawn]:
    """Clients with d/gamma samples each."""
    s, theta0, moved = directions(energies, d, clients, rng)
    n = round(s.size / gamma)
    drawn = []
    for delta in moved:
        x = rng.standard_normal((n, s.size)) * np.sqrt(s)
        p = eps + (1 - 2 * eps) * expit(x @ (theta0 + delta))
        drawn.append(Drawn(x, np.where(rng.random(n) < p, 1.0, -1.0), theta0, theta0 + delta, s))
    return drawn


def logistic_ridge(x: Array, y: Array, lam: float, centre: Array) -> Array:
    """argmin (1/n) sum log(1+exp(-y x'theta)) + (lam/2) ||theta-centre||^2, by Newton with halved
    steps.
    """
    n, theta = y.size, centre.copy()

    def value(at: Array) -> float:
        return float(np.logaddexp(0, -y * (x @ at)).mean() + lam / 2 * np.sum((at - centre) ** 2))

    for _ in range(100):
        g = expit(-y * (x @ theta))
        slope = -(x.T @ (y * g)) / n + lam * (theta - centre)
        if np.max(np.abs(slope)) < 1e-7:
            break
        hessian = (x.T * (g * (1 - g))) @ x / n + (lam + 1e-12) * np.eye(theta.size)
        step, now, share = np.linalg.solve(hessian, slope), value(theta), 1.0
        while value(theta - share * step) > now + 1e-12 and share > 1e-6:
            share /= 2
        theta = theta - share * step
    return theta
