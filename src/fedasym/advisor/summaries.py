"""What a client sends: its samples seen along their own axes, a few numbers per sample and never a sample.

A client's features are X = U diag(s) V'. Along its axes the residuals about the shared model have the variances
sigma^2 + (r^2/d) s_k^2, whatever the covariance of the features: with theta_0 known, the squares along the axes and
the eigenvalues s_k^2 are all that noise and radius need. theta_0 is not known; `federated` says what takes its place.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from fedasym.core.arrays import Array
from fedasym.exact.clients import Client


def nothing() -> Array:
    """An empty vector: what is not sent."""
    return np.empty(0)


@dataclass(frozen=True, eq=False)
class Summary:
    """One client in numbers per axis of its samples (at most min(n, d)), and a few more.

    name, samples, dimension: who, n and d.
    power: s_k^2, the eigenvalues of XX'.
    residual: squares (or products of two independent ones) of the residuals about the others' shared model, per axis.
    raw: squares of the labels per axis.
    rest: the part of |y|^2 that no linear model explains, where samples outnumber the features.
    tails: fourth moment over squared second moment of the residuals about the pooled model; 3 for Gaussian ones.
    pooled: mean square of the residuals about the pooled model.
    pull: X'W y, a vector of d numbers, and probes: X'W X times shared random vectors; only where samples are scarce.
    strength: v'Sigma v along each axis v, Sigma from the other clients' samples; only where samples are at one place.

    >>> import numpy as np
    >>> from fedasym.advisor.summaries import Summary
    >>> Summary("ann", 2, 500, power=np.ones(2), residual=np.ones(2), raw=np.ones(2)).bytes
    88
    """

    name: Hashable
    samples: int
    dimension: int
    power: Array
    residual: Array
    raw: Array
    rest: float = 0.0
    tails: float = 3.0
    pooled: float = float("nan")
    pull: Array = field(default_factory=nothing)
    probes: Array = field(default_factory=nothing)
    strength: Array = field(default_factory=nothing)

    @property
    def bytes(self) -> int:
        """What is sent: 8 bytes per number, the name apart."""
        values = [getattr(self, each.name) for each in fields(self) if each.name != "name"]
        return 8 * sum(np.size(value) for value in values)

    @property
    def aspect(self) -> float:
        """Features per sample, d/n."""
        return self.dimension / self.samples


@dataclass(frozen=True, eq=False)
class Axes:
    """A client's samples along their own axes: the rows U'X and U'y, and s_k^2."""

    power: Array
    rows: Array
    labels: Array
    rest: float
    samples: int


def axes_of(X: Array, y: Array) -> Axes:
    """Turn samples so that rows are orthogonal: eigenvectors of XX' on the left; more samples than features are cut first."""
    client = Client.of(None, X, y)
    power, U = np.linalg.eigh(client.X @ client.X.T)
    power = np.where(power > len(y) * np.finfo(float).eps * max(power[-1], 0), power, 0.0)
    return Axes(power, U.T @ client.X, U.T @ client.y, client.rest, client.n)


def tails_of(residuals: Array) -> float:
    """Fourth moment over squared second moment, scaled so that Gaussian residuals have 3 on average at every n."""
    n = residuals.size
    second = float(np.mean(residuals**2))
    return 3.0 if second == 0 or n < 2 else float(np.mean(residuals**4)) / second**2 * (n + 2) / n


def stacked(summaries: list[Summary], name: str) -> Array:
    """One field of all clients, end to end."""
    return np.concatenate([getattr(each, name) for each in summaries])


def owners(summaries: list[Summary]) -> NDArray[np.intp]:
    """Whose each entry of `stacked` is."""
    return np.repeat(np.arange(len(summaries)), [each.power.size for each in summaries])
