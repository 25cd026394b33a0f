"""All clients' samples at one place: the pooled model, everybody's residuals about the model of the others, summaries."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedasym.advisor.components import components
from fedasym.advisor.crowded import pulled
from fedasym.advisor.estimates import Estimates, from_joint, from_likelihood, from_scarce
from fedasym.advisor.given import strength_of
from fedasym.advisor.intake import Data
from fedasym.advisor.joint import MOST, joint
from fedasym.advisor.restricted import Turned
from fedasym.advisor.summaries import Axes, Summary, axes_of, nothing, tails_of
from fedasym.exact.least_squares import SharedSolution as Pool
from fedasym.exact.least_squares import stack_triangle as triangle

ROOM = 1.5  # samples per unknown from which the restricted likelihood has something left to look at


@dataclass(frozen=True, eq=False)
class Gathered:
    """The data in directions that they determine, the pooled fit, a summary per client, and the estimates."""

    data: Data
    pool: Pool
    summaries: list[Summary]
    estimates: Estimates


def gathered(data: Data) -> Gathered:
    """Two passes over the clients, never all samples at once: the pooled model, then each client about it."""
    pool = Pool.of(triangle(iter(data)))
    if not pool.full and data.sizes.sum() >= ROOM * pool.rank:  # features follow from others: keep what they span
        data = replace(data, basis=pool.factor / np.linalg.norm(pool.factor, axis=0))
        pool = Pool.of(triangle(iter(data)))
    samples = int(data.sizes.sum())
    roomy = pool.full and samples >= ROOM * data.dimension
    summaries = []
    turned = Room(data, pool) if roomy else None
    for place, (X, y) in enumerate(data):
        axes = axes_of(X, y)
        left = y - X @ pool.theta
        about = pool.left_out(axes.rows, axes.labels)
        summaries.append(
            Summary(
                data.parts[place].name,
                axes.samples,
                data.dimension,
                power=axes.power,
                residual=about**2,
                raw=axes.labels**2,
                rest=axes.rest,
                tails=tails_of(left),
                pooled=float(np.mean(left**2)),
                strength=strength_of(axes.rows, axes.power, pool, samples - axes.samples) if roomy else nothing(),
            )
        )
        if turned is not None:
            turned.add(axes)
    if turned is not None:
        return Gathered(data, pool, summaries, from_likelihood(summaries, turned.full()))
    if samples <= MOST:
        return Gathered(data, pool, summaries, from_joint(summaries, joint(data)))
    first = components(summaries, "raw")
    summaries = [
        pulled(summary, axes_of(X, y), first.noise2, first.spread2) for summary, (X, y) in zip(summaries, data, strict=True)
    ]
    return Gathered(data, pool, summaries, from_scarce(summaries))


class Room:
    """Arrays for all clients along axes, filled one client after the other."""

    def __init__(self, data: Data, pool: Pool) -> None:
        rows = int(np.minimum(data.sizes, data.dimension).sum())
        self.x, self.u, self.G = np.empty(rows), np.empty(rows), np.empty((rows, pool.rank))
        self.used, self.rest = 0, 0.0
        self.pool, self.freedom = pool, int(data.sizes.sum()) - pool.rank

    def add(self, axes: Axes) -> None:
        """One client more."""
        part = slice(self.used, self.used + axes.power.size)
        self.x[part], self.u[part] = axes.power, axes.labels - axes.rows @ self.pool.theta
        self.G[part] = self.pool.root(axes.rows)
        self.used, self.rest = part.stop, self.rest + axes.rest

    def full(self) -> Turned:
        """All clients."""
        return Turned(self.x, self.u, self.G, self.rest, self.freedom)
