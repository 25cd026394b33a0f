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


@dataclass(frozen=True)
class ClassWorld:
    """Clients with classes: `draw(seed)` gives features, labels 0, 1, ... and optima, one array per
    client.
    """

    clients: int = 40
    samples: int = 50
    dimension: int = 50
    radius: float = 1.5
    centre: float = 1.5
    classes: int = 2
    correlation: float = 0.3

    @property
    def eigenvalues(self):
        return World(dimension=self.dimension, correlation=self.correlation).eigenvalues

    def but(self, **changes):
        return replace(self, **changes)

    def draw(self, seed=0):
        rng = np.random.default_rng([seed, 4])
        m, n, d, C = self.clients, self.samples, self.dimension, self.classes
        K = 1 if C == 2 else C
        mix = np.eye(K) - (C > 2) / C
        centre = rng.standard_normal((d, K))
        centre = self.centre * (centre / np.linalg.norm(centre, axis=0)) @ mix
        theta = centre + self.radius / np.sqrt(d) * rng.standard_normal((m, d, K)) @ mix
        X = rng.standard_normal((m, n, d)) * np.sqrt(self.eigenvalues)
        logits = np.einsum("mnd,mdk->mnk", X, theta)
        if C == 2:
            logits = np.concatenate([0 * logits, logits], axis=2)
        y = (logits + rng.gumbel(size=logits.shape)).argmax(-1)
        return list(X), list(y), theta


@pytest.fixture(scope="session")
def class_world():
    return ClassWorld()


@pytest.fixture
def _unstopped(monkeypatch):
    """Advice without the point where fine-tuning should stop, half of its time: for tests that do not
    look at it.
    """
    for name in ("predict_steps", "predict_stopping"):
        monkeypatch.setattr(f"fedasym.advisor.{name}", lambda *_: None)
