"""How displacements lie: along strong or weak features, or in groups; and estimates for those that
follow a power of the covariance.

A client's score g = X'W e, with its residuals e about the model of the others and W = (noise^2 +
radius^2 XX'/d)^{-1}, has the covariance K = X'W X if the model holds. Aligned displacements change
g'Sg against tr SK, with the pooled covariance S; clusters make the scores of many clients point one
way, and the clients fall into groups along it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.special
from numpy.typing import NDArray

from fedasym.advisor.class_statistics import ClientView, SharedSums
from fedasym.advisor.data import LEAST_CLIENTS, spread_places
from fedasym.advisor.estimates import (
    LEAST_ROOM,
    Estimates,
    PooledClients,
    estimate_by_likelihood,
    pool_and_estimate,
)
from fedasym.advisor.moments import fit_variances
from fedasym.advisor.statistics import AxisRows, Summary, spectrum_of
from fedasym.core.numbers import Array
from fedasym.exact.profile_likelihood import DRAWS, even_points, in_threads
from fedasym.worlds.spectra import Spectrum

EIGEN_GROUPS = 12
SURE_PROFILE = 4.5  # standard errors
LEAST_PROFILED = 20  # clients that make a sample
STRUCTURE_CLIENTS = 300  # clients that these checks look at
IMAGINED_FEDERATIONS = 12  # federations drawn from the model, to compare with
POWER_STEP = 0.25
SHIFT_POWERS = np.arange(-1.5, 2.51, POWER_STEP)
LEAST_BEND = 0.1  # of the deviance over a step: less says nothing about the power
ALIGNED = 4.0  # standard errors
CLUSTERED = 6.0  # standard deviations of what the model gives
# kurtosis along the common direction, less the model's, below which clients fall into groups: two
# have -2
GROUPED = -0.7


@dataclass(frozen=True)
class Structure:
    """Standard errors by which displacements follow strong (above 0) or weak features; how far the
    first common direction of the clients stands out, in standard deviations; the kurtosis along it,
    less what the model gives; and, where clients fall into two groups along it, the share of
    radius^2 that lies between these (0: not known).
    """

    alignment: float = 0.0
    direction: float = 0.0
    kurtosis: float = 0.0
    between: float = 0.0

    @property
    def aligned(self) -> bool:
        """Whether the displacement prefers some directions of the covariance."""
        return abs(self.alignment) > ALIGNED

    @property
    def clustered(self) -> bool:
        """Whether the clients fall into groups."""
        return self.direction > CLUSTERED and self.kurtosis < GROUPED and not self.aligned


def find_structure(seen: PooledClients) -> Structure:
    """Look at some clients again, given noise and radius; nothing to see without a pooled model.

    Rows along axes are G R, R the pool's factor: what was kept of the clients is enough.
    """
    found, d = seen.estimates, seen.data.dimension
    if found.scarce or seen.room is None:
        return Structure()
    samples = int(seen.data.sizes.sum())
    R = seen.pool.factor
    rng = np.random.default_rng(0)
    sums, widths = [], []
    places = spread_places(len(seen.data.parts), STRUCTURE_CLIENTS)
    for place in places:
        e, own = seen.left_out[place], seen.summaries[place]
        drawn = rng.standard_normal((IMAGINED_FEDERATIONS, e.size))
        v = found.noise2 + found.radius2 * own.power / d
        G = seen.room.G[seen.room.part(place)]
        sums.append(np.vstack([e / v, drawn / np.sqrt(v)]).astype(G.dtype, copy=False) @ G)
        # |R row|^2 along each axis
        strong = (own.strength * (samples - own.samples) + own.power) * own.power / samples
        widths.append([float((strong / v).sum()), float((own.power / v).sum())])
    # g of each client, and as the model might have drawn it
    vectors = (np.concatenate(sums) @ R).reshape(len(sums), -1, R.shape[1])
    g = vectors[:, 0]
    through = ((g @ R.T) ** 2).sum(1) / samples
    strong, plain = np.array(widths).T
    off = through / strong - (g**2).sum(1) / plain
    alignment = float(off.mean() / max(off.std(ddof=1) / np.sqrt(off.size), 1e-300))
    (top, along), *by_chance = map(first_direction, unit_vectors(vectors).swapaxes(0, 1))
    tops = np.array([each[0] for each in by_chance])
    direction = float((top - tops.mean()) / max(tops.std(ddof=1), 1e-300))
    by_model = float(np.mean([excess_kurtosis(each[1]) for each in by_chance]))
    structure = Structure(alignment, direction, excess_kurtosis(along) - by_model)
    if not structure.clustered:
        return structure
    return replace(structure, between=share_between(seen, places, along > 0))


def share_between(seen: PooledClients, places: NDArray[np.intp], first: NDArray[np.bool_]) -> float:
    """The share of radius^2 between two groups of clients: what is not left within them, where
    each has a pooled model and a radius of its own; 0 where a group has too few samples.
    """
    data, within = seen.data, []
    for mine in (places[first], places[~first]):
        part = replace(data, parts=tuple(data.parts[place] for place in mine))
        if len(mine) < LEAST_CLIENTS or part.sizes.sum() < LEAST_ROOM * data.dimension:
            return 0.0
        within.append(len(mine) * pool_and_estimate(part).estimates.radius2)
    left = sum(within) / places.size / max(seen.estimates.radius2, 1e-300)
    return float(np.clip(1 - left, 0.0, 1.0))


def unit_vectors(vectors: Array) -> Array:
    """Vectors of length one."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-300))


def first_direction(vectors: Array) -> tuple[float, Array]:
    """The largest eigenvalue of the clients' Gram matrix, and each client along its eigenvector."""
    last = len(vectors) - 1
    values, places = scipy.linalg.eigh(vectors @ vectors.T, subset_by_index=(last, last))
    return float(values[0]), np.asarray(places[:, 0])


def excess_kurtosis(values: Array) -> float:
    """Excess kurtosis about the mean."""
    centred = values - values.mean()
    return float(np.mean(centred**4) / max(float(np.mean(centred**2)) ** 2, 1e-300) - 3)


def estimate_power(seen: PooledClients) -> Estimates:
    """Estimates for displacements whose covariance goes like Sigma^power, Sigma pooled.

    Residuals about the model of the others find the power on a grid. There and beside it the
    restricted likelihood is looked at; a parabola through the three gives the power and its error,
    and the draws of noise and radius are those of a power that is drawn as well: parabolas through
    the three, draw by draw, since draws have the same order at every power.
    """
    data, room, R = seen.data, seen.room, seen.pool.factor
    assert room is not None
    values, Q = np.linalg.eigh(R.T @ R / data.sizes.sum())
    values = np.maximum(values, 1e-12 * values[-1])
    kept = []
    for place in spread_places(len(data.parts), STRUCTURE_CLIENTS):
        rows = room.G[room.part(place)] @ (R @ Q)
        kept.append((seen.summaries[place], rows, seen.left_out[place]))
    fits = {float(power): fit_power(kept, values, float(power)) for power in SHIFT_POWERS}
    near = float(
        np.clip(min(fits, key=lambda power: fits[power][0]), SHIFT_POWERS[1], SHIFT_POWERS[-2])
    )
    beside = near + POWER_STEP * np.array([-1.0, 0.0, 1.0])
    found = [
        estimate_along(seen, room, R @ Q, shift_energies(values, power), fits[power][1])
        for power in beside
    ]
    low, middle, high = (each.deviance for each in found)
    bend = max(low - 2 * middle + high, LEAST_BEND)
    best = float(np.clip((low - high) / (2 * bend), -2, 2))  # in steps
    drawn = np.clip(
        best + np.sqrt(2 / bend) * scipy.special.ndtri(even_points(DRAWS, 4)[:, 3]),
        best - 3,
        best + 3,
    )
    logs = np.log(np.maximum([each.draws[:, :2] for each in found], np.finfo(float).tiny))
    point = np.log([[each.noise2, each.radius2] for each in found])
    noise2, radius2 = np.exp(parabola(point, np.array(best)))
    # was seen without a power
    common = np.maximum(seen.estimates.draws[:, 2] - seen.estimates.draws[:, 1], 0)
    draws = np.exp(parabola(logs, drawn[:, None]))
    pooled = replace(
        seen.summaries[0], samples=int(data.sizes.sum()), power=values * data.sizes.sum()
    )
    return replace(
        found[1],
        noise2=float(noise2),
        radius2=float(radius2),
        norm2=float(radius2) + max(seen.estimates.norm2 - seen.estimates.radius2, 0.0),
        draws=np.column_stack([draws, draws[:, 1] + common]),
        power=near + POWER_STEP * best,
        spectrum=spectrum_of([pooled]),
    )


def parabola(values: Array, at: Array) -> Array:
    """The parabola through values at -1, 0 and 1."""
    low, middle, high = values
    return np.asarray(middle + at * (high - low) / 2 + at**2 * (low - 2 * middle + high) / 2)


def estimate_along(
    seen: PooledClients, kept: AxisRows, RQ: Array, stretch: Array, along: list[Summary]
) -> Estimates:
    """The restricted likelihood along the axes of X W X', W = Q diag(stretch) Q'; X = G R."""
    room = AxisRows(seen.data, seen.pool)
    half = (RQ * np.sqrt(stretch)).astype(kept.G.dtype)

    def turn(place: int) -> None:
        part = kept.part(place)
        G = kept.G[part]
        rows = (G @ half).astype(float, copy=False)
        x, U = np.linalg.eigh(rows @ rows.T)
        room.G[part] = U.T.astype(G.dtype, copy=False) @ G
        room.put(place, np.maximum(x, 0), U.T @ kept.u[part], kept.rest[place])

    in_threads(turn, len(seen.data.parts), seen.data.dimension)
    return estimate_by_likelihood(seen.summaries, room.all_clients(), along)


def shift_energies(values: Array, power: float) -> Array:
    """The displacement's energies along the covariance's axes, of mean one."""
    weights = values**power
    return np.asarray(weights * (values.size / weights.sum()))


def fit_power(
    kept: list[tuple[Summary, Array, Array]], values: Array, power: float
) -> tuple[float, list[Summary]]:
    """Deviance at a power, and the clients along the axes of X Sigma^power X'."""
    weights = shift_energies(values, power)
    turned = []
    for summary, rows, e in kept:
        x, U = np.linalg.eigh((rows * weights) @ rows.T)
        turned.append(replace(summary, power=np.maximum(x, 0), residual=(U.T @ e) ** 2))
    fit = fit_variances(turned)
    deviance = 0.0
    for each in turned:
        v = np.maximum(fit.noise2 + fit.spread2 * each.power / each.dimension, 1e-300)
        deviance += float((np.log(v) + each.residual / v).sum())
        beyond = each.samples - each.power.size
        if beyond:
            deviance += beyond * np.log(max(fit.noise2, 1e-300)) + each.rest / max(
                fit.noise2, 1e-300
            )
    return deviance, turned


@dataclass(frozen=True, eq=False)
class Profile:
    """A covariance in groups, and the energy shares of optimum and displacements (None: even)."""

    spectrum: Spectrum
    centre: Array | None
    shift: Array | None


class ProfileRecord(NamedTuple):
    """What one client says of groups of directions."""

    signal: Array
    square: Array
    own: Array
    cross: Array  # (groups, groups)


class ProfileRecorder:
    """Clients one by one."""

    def __init__(self, shared: SharedSums) -> None:
        values, self.V = scipy.linalg.eigh(shared.covariance)
        self.s = np.maximum(values, 1e-12 * values[-1])
        edges = np.geomspace(self.s[0], self.s[-1] * (1 + 1e-9), EIGEN_GROUPS + 1)
        raw = np.clip(np.searchsorted(edges, self.s, side="right") - 1, 0, EIGEN_GROUPS - 1)
        self.group = np.unique(raw, return_inverse=True)[1]
        self.size = np.bincount(self.group).astype(float)
        self.member = np.eye(self.size.size)[self.group]  # (d, groups)
        self.shared = shared
        self.Vtheta = self.V.T @ shared.theta
        self.back = self.V.T @ shared.inverse

    def record(self, client: ClientView, outputs: int) -> ProfileRecord:
        """Of one client."""
        turned = client.X @ self.V
        score = turned.T @ client.about
        others = self.Vtheta - self.back @ (client.X.T @ client.about)
        T = turned.T @ turned
        return ProfileRecord(
            self.sum_groups(((turned.T @ client.labels) * others).sum(1)) / outputs,
            self.sum_groups((score**2).sum(1)) / outputs,
            self.sum_groups(np.diag(T)),
            self.member.T @ T**2 @ self.member,
        )

    def sum_groups(self, values: Array) -> Array:
        """Over the directions of each group."""
        return np.asarray(np.bincount(self.group, values, self.size.size), dtype=float)

    def finish(self, records: Sequence[ProfileRecord], s2: float) -> Profile:
        """Shares, where they differ from even ones for sure."""
        means = self.sum_groups(self.s) / self.size
        h = self.size / self.size.sum()
        spectrum = Spectrum(
            means,
            h,
            f"pooled ({means.size} groups of eigenvalues from {means.min():.3g} to"
            f" {means.max():.3g})",
        )
        if len(records) < LEAST_PROFILED:
            return Profile(spectrum, None, None)
        signal, square, own, crosses = (np.array(each) for each in zip(*records, strict=True))
        cross = crosses.sum(0)
        B = np.maximum(signal.sum(0), 0.0)
        even = signal.sum() * means * h / float(means @ h)
        centre = None
        if contradicts_chance(
            2 * (signal - np.outer(signal.sum(1), means * h / float(means @ h))),
            signal.sum(0) - even,
        ):
            centre = B / means / (B / means).sum()
        left = square - s2 * own
        weights = 1 / np.maximum(np.sqrt((square**2).sum(0)), 1e-300)
        level = max(float((weights * cross.sum(1)) @ (weights * left.sum(0)))
                    / float(((weights * cross.sum(1)) ** 2).sum()), 0.0)  # fmt: skip
        gap = left.sum(0) - level * cross.sum(1)
        shift = None
        if contradicts_chance(left - level * cross.sum(1) / len(left), gap):
            found, _ = scipy.optimize.nnls(cross * weights[:, None], left.sum(0) * weights)
            if found.sum() > 0:
                shift = found * self.size / float(found @ self.size)
        return Profile(spectrum, centre, shift)


def contradicts_chance(parts: Array, gap: Array) -> bool:
    """Whether a sum over clients, made of `parts`, is further from 0 than chance in some group."""
    spread = parts.std(0) * np.sqrt(len(parts))
    return bool(np.any(np.abs(gap) > SURE_PROFILE * np.maximum(spread, 1e-300)))
