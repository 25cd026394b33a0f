"""All clients' samples at one place: the pooled model, everybody's residuals about the model of the others, summaries."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from fedasym.advisor.components import components
from fedasym.advisor.crowded import pulled
from fedasym.advisor.estimates import Estimates, from_joint, from_likelihood, from_scarce
from fedasym.advisor.given import strength_of
from fedasym.advisor.intake import Data
from fedasym.advisor.joint import MOST, joint
from fedasym.advisor.restricted import SEGMENTS, Turned
from fedasym.advisor.summaries import Axes, Summary, axes_of, nothing, tails_of
from fedasym.advisor.threads import in_threads
from fedasym.core.arrays import Array
from fedasym.exact.server import Pool, triangle

FIRM = 1e-6  # the condition of sums of products above which ten digits are left
ROOM = 1.5  # samples per unknown from which the restricted likelihood has something left to look at


@dataclass(frozen=True, eq=False)
class Gathered:
    """The data in directions that they determine, the pooled fit, a summary per client, and the estimates."""

    data: Data
    pool: Pool
    summaries: list[Summary]
    estimates: Estimates
    left_out: list[Array]  # residuals about the others' model along each client's axes


def pool_clients(data: Data) -> Pool:
    """The pooled fit from sums of products; where these would lose digits, from the triangular factor of all samples."""
    d = data.dimension
    if data.sizes.sum() >= d:
        edges = np.linspace(0, len(data.parts), SEGMENTS + 1).astype(int)

        def add_up(place: int) -> Array:
            total = np.zeros((d + 1, d + 1))
            for client in range(edges[place], edges[place + 1]):
                both = np.column_stack(data.rows(client))
                total += both.T @ both
            return total

        S = np.asarray(sum(in_threads(add_up, SEGMENTS, d)))
        R, failed = scipy.linalg.lapack.dpotrf(S[:d, :d], lower=False)
        if not failed and scipy.linalg.lapack.dpocon(R, np.abs(S[:d, :d]).sum(0).max())[0] > FIRM:
            return Pool.of(np.column_stack([R, scipy.linalg.solve_triangular(R, S[:d, d], trans="T")]))
    return Pool.of(triangle(iter(data)))


def gathered(data: Data) -> Gathered:
    """Two passes over the clients, never all samples at once: the pooled model, then each client about it."""
    pool = pool_clients(data)
    if not pool.full and data.sizes.sum() >= ROOM * pool.rank:  # features follow from others: keep what they span
        data = replace(data, basis=pool.factor / np.linalg.norm(pool.factor, axis=0))
        pool = pool_clients(data)
    samples = int(data.sizes.sum())
    roomy = pool.full and samples >= ROOM * data.dimension
    room = Room(data, pool) if roomy else None

    def look(place: int) -> tuple[Summary, Array]:
        X, y = data.rows(place)
        axes = axes_of(X, y)
        left = y - X @ pool.theta
        seen = pool.root(axes.rows)
        about = pool.left_out(axes.rows, axes.labels, seen)
        if room is not None:
            room.put(place, axes, seen)
        summary = Summary(
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
        return summary, about

    summaries, left_out = map(list, zip(*in_threads(look, len(data.parts), data.dimension), strict=True))
    if room is not None:
        return Gathered(data, pool, summaries, from_likelihood(summaries, room.full()), left_out)
    if samples <= MOST:
        return Gathered(data, pool, summaries, from_joint(summaries, joint(data)), left_out)
    first = components(summaries, "raw")
    summaries = [
        pulled(summary, axes_of(X, y), first.noise2, first.spread2) for summary, (X, y) in zip(summaries, data, strict=True)
    ]
    return Gathered(data, pool, summaries, from_scarce(summaries), left_out)


class Room:
    """Arrays for all clients along axes; each client has its rows in them."""

    def __init__(self, data: Data, pool: Pool) -> None:
        self.edges = np.cumsum([0, *np.minimum(data.sizes, data.dimension)])
        self.x, self.Gu = np.empty(self.edges[-1]), np.empty((self.edges[-1], pool.rank + 1))
        self.rest = np.zeros(len(data.parts))
        self.pool, self.freedom = pool, int(data.sizes.sum()) - pool.rank

    def put(self, place: int, axes: Axes, seen: Array | None = None) -> None:
        """One client more; `seen`: its rows times the pool's root, where they are known."""
        part = slice(self.edges[place], self.edges[place + 1])
        self.x[part] = axes.power
        self.Gu[part, :-1] = self.pool.root(axes.rows) if seen is None else seen
        self.Gu[part, -1] = axes.labels - axes.rows @ self.pool.theta
        self.rest[place] = axes.rest

    def full(self) -> Turned:
        """All clients."""
        return Turned(self.x, self.Gu, float(self.rest.sum()), self.freedom)
