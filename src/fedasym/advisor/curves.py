"""What the clients' own samples say about a ridge, without a model of how clients differ: GCV, client by client (section 9).

A client's residuals e are about the shared model of the others (or, for local methods, its labels). Along its axes, with
k = c/(c + x) for the ridge c/n, GCV_i(c) = (sum (k e)^2 + rest)/n / ((n - sum (1 - k))/n)^2 estimates the client's test error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedasym.advisor.summaries import Summary
from fedasym.core.arrays import Array

POINTS = 49
NONE, ENDLESS = 1e-9, 1e9  # ridges, in units of the samples' own scale, that mean none and infinite


@dataclass(frozen=True, eq=False)
class Curves:
    """Estimated test errors of every client (m, C) along the ratios c; the first means no ridge, the last no change."""

    ratios: Array
    errors: Array

    @cached_property
    def mean(self) -> Array:
        """Over clients."""
        return np.asarray(self.errors.mean(0))

    @property
    def best(self) -> float:
        """The ratio of lowest mean error."""
        return float(self.ratios[int(np.argmin(self.mean))])

    def at(self, ratio: float) -> tuple[float, float]:
        """Mean error at a ratio (between the points, by interpolation) and its standard error over clients."""
        errors = self.of_clients(ratio)
        return float(errors.mean()), float(errors.std(ddof=1) / np.sqrt(len(errors)))

    def of_clients(self, ratio: float) -> Array:
        """Every client's error at a ratio."""
        logs, at = np.log(self.ratios), float(np.log(np.clip(ratio, self.ratios[0], self.ratios[-1])))
        after = int(np.clip(np.searchsorted(logs, at), 1, logs.size - 1))
        share = (at - logs[after - 1]) / (logs[after] - logs[after - 1])
        return np.asarray((1 - share) * self.errors[:, after - 1] + share * self.errors[:, after])

    def gain(self, ratio: float, over: float) -> tuple[float, float]:
        """How much lower the mean error is at `ratio` than at `over`, and the standard error of that difference."""
        paired = self.of_clients(over) - self.of_clients(ratio)
        return float(paired.mean()), float(paired.std(ddof=1) / np.sqrt(len(paired)))


def curves(summaries: Sequence[Summary], field: str) -> Curves:
    """The curves of all clients from their residuals ("residual") or labels ("raw")."""
    scale = np.mean([each.power.mean() for each in summaries])
    ratios = scale * np.concatenate([[NONE], np.geomspace(1e-4, 1e4, POINTS), [ENDLESS]])
    return Curves(ratios, np.stack([gcv(each, getattr(each, field), ratios) for each in summaries]))


def gcv(client: Summary, squares: Array, ratios: Array) -> Array:
    """One client's curve."""
    n = client.samples
    k = 1 / (1 + client.power / ratios[:, None])
    left = (k**2 @ squares + client.rest) / n
    return np.asarray(left / ((n - k.shape[1] + k.sum(1)) / n) ** 2)
