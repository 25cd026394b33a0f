"""Federations with a known truth."""

from dataclasses import dataclass, replace

import numpy as np
import pytest


@dataclass(frozen=True)
class World:
    """What is drawn: `draw(seed)` gives features, labels and optima, one array per client."""

    clients: int = 40
    samples: int = 20
    dimension: int = 40
    radius: float = 1.0
    noise: float = 0.7
    centre: float = 1.5
    correlation: float = 0.0
    power: float = 0.0

    @property
    def eigenvalues(self):
        w = (np.arange(self.dimension) + 0.5) * np.pi / self.dimension
        c = self.correlation
        return (1 - c**2) / (1 - 2 * c * np.cos(w) + c**2)

    def but(self, **changes):
        return replace(self, **changes)

    def draw(self, seed=0):
        rng = np.random.default_rng([seed, 3])
        m, n, d, s = self.clients, self.samples, self.dimension, self.eigenvalues
        centre = rng.standard_normal(d)
        centre *= self.centre / np.linalg.norm(centre)
        energy = s**self.power / (s**self.power).sum()
        theta = centre + self.radius * np.sqrt(energy) * rng.standard_normal((m, d))
        X = rng.standard_normal((m, n, d)) * np.sqrt(s)
        y = np.einsum("mnd,md->mn", X, theta) + self.noise * rng.standard_normal((m, n))
        return list(X), list(y), theta


@pytest.fixture(scope="session")
def world():
    return World()
