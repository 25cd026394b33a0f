"""Noise, radius and norm, and what data leave open about them.

Draws, the same every time, fill the intervals. Samples at one place are passed over twice, never
all at once: the pooled model, then each client about the model of the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import scipy.linalg
import scipy.special
import scipy.stats

from fedasym.advisor.data import ClientData
from fedasym.advisor.moments import (
    AxisVariances,
    CrossProducts,
    add_products,
    combine_products,
    fit_variances,
    squared_length,
)
from fedasym.advisor.statistics import (
    AxisRows,
    Summary,
    axes_of,
    axes_of_each,
    empty_vector,
    pool_clients,
    spectrum_of,
    strength_of,
    tails_of,
)
from fedasym.core.numbers import Array
from fedasym.exact.least_squares import SharedSolution, leave_out
from fedasym.exact.profile_likelihood import (
    DRAWS,
    MOST_JOINT,
    JointDraws,
    TurnedClients,
    draw_jointly,
    draw_variances,
    even_points,
    in_threads,
    trace_deviance,
)
from fedasym.theory.transforms import kappa
from fedasym.theory.transforms import kappa_slope as slope_of
from fedasym.worlds.spectra import Spectrum

# a radius this small against the noise, or noise this small against the signal, is none
LEAST_SHARE = 1e-8
# samples per unknown from which the restricted likelihood has something left to look at
LEAST_ROOM = 1.5
GROUP_ROWS = 1024  # of clients that are looked at together


@dataclass(frozen=True)
class Quantity:
    """An estimate and its 95% interval.

    >>> print(Quantity(1.0, 0.9, 1.25))
    1 [0.9, 1.25]
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


UNKNOWN = Quantity(float("nan"), float("nan"), float("nan"))


@dataclass(frozen=True, eq=False)
class Estimates:
    """noise^2, radius^2, norm^2 as (value, draws), the spectrum, and how they were found."""

    noise2: float
    radius2: float
    norm2: float
    draws: Array  # (B, 3): noise^2, radius^2, norm^2
    spectrum: Spectrum
    method: str
    flat: bool  # whether no radius at all fits nearly as well
    power: float = 0.0  # the displacement's covariance goes like Sigma^power
    scarce: bool = False  # all samples together were too few for a shared model
    # -2 log restricted likelihood at its best, where that is what was looked at
    deviance: float = 0.0

    @property
    def scale(self) -> Array:
        """Draws over the estimates: the factors of a prediction's bias and variance."""
        point = np.array([self.noise2, self.radius2, self.norm2])
        return np.asarray(self.draws / np.where(point > 0, point, 1.0))

    def quantity(self, column: int, value: float) -> Quantity:
        """Square root of one column with its interval."""
        low, high = np.quantile(self.draws[:, column], [0.025, 0.975])
        low = 0.0 if column == 1 and self.flat else min(low, value)
        return Quantity(
            float(np.sqrt(value)), float(np.sqrt(low)), float(np.sqrt(max(high, value)))
        )


def estimate_by_likelihood(
    summaries: list[Summary], turned: TurnedClients, along: list[Summary] | None = None
) -> Estimates:
    """Restricted likelihood, from all clients' turned features (more samples than unknowns).

    `along`: some clients seen along the axes of `turned`, where these are not the axes of their
    samples.
    """
    d = summaries[0].dimension
    first = fit_variances(summaries if along is None else along)
    spectrum = spectrum_of(summaries)
    radius2 = max(first.spread2, 1e-6 * first.noise2 / spectrum.mean)
    noise2 = max(first.noise2, 1e-9 * radius2 * spectrum.mean)
    errors = first.covariance
    error = np.sqrt(
        errors[0, 0] / noise2**2 + errors[1, 1] / radius2**2 - 2 * errors[0, 1] / (noise2 * radius2)
    )
    curve = trace_deviance(turned, float(np.log(noise2 * d / radius2)), float(error))
    grid = even_points(DRAWS, 3)
    noise2 = curve.noise2(turned.freedom)
    radius2 = noise2 * d / np.exp(curve.best)
    draws = widen_draws(draw_variances(curve, turned, d, grid), np.array([noise2, radius2]), first)
    norm2, influence, slope = squared_length(summaries, noise2)
    norm2 = max(norm2, radius2)
    seen = length_weights(spectrum, summaries, noise2, norm2)
    wide = np.sqrt(
        influence_variance(influence) + length_variance(norm2 - radius2, spectrum, seen, d)
    )
    norms = (
        norm2
        + slope * (draws[:, 0] - noise2)
        + wide * student_quantiles(grid[:, 2], satterthwaite(influence[:, None])[0])
    )
    whole = np.column_stack([draws, np.maximum(norms, 0)])
    noise2, radius2 = keep_positive(noise2, radius2, norm2, spectrum)
    method = "restricted maximum likelihood"
    return Estimates(
        noise2,
        radius2,
        max(norm2, radius2),
        whole,
        spectrum,
        method,
        curve.flat,
        deviance=curve.least,
    )


def estimate_by_products(summaries: list[Summary]) -> Estimates:
    """Cross-fitted products from the clients' summaries alone: the federated form."""
    first: AxisVariances = fit_variances(summaries)
    spectrum = spectrum_of(summaries)
    d = summaries[0].dimension
    norm2, influence, slope = squared_length(summaries, first.noise2)
    norm2 = max(norm2, first.spread2)
    seen = length_weights(spectrum, summaries, first.noise2, norm2)
    joint = np.column_stack([first.influence, influence + slope * first.influence[:, 0]])
    draws = draw_about(
        np.array([first.noise2, first.spread2, norm2]),
        joint,
        length_variance(norm2 - first.spread2, spectrum, seen, d),
    )
    flat = bool(np.mean(draws[:, 1] <= 0) > 0.025)
    noise2, radius2 = keep_positive(first.noise2, first.spread2, norm2, spectrum)
    method = "cross-fitted residuals of the clients' summaries"
    return Estimates(
        noise2, radius2, max(norm2, radius2), np.maximum(draws, 0), spectrum, method, flat
    )


def estimate_by_moments(summaries: list[Summary]) -> Estimates:
    """Moments, where all samples together do not determine a shared model."""
    found: CrossProducts = combine_products(summaries)
    spectrum = spectrum_of(summaries)
    d = summaries[0].dimension
    point = np.array([found.noise2, found.norm2, found.centre2])
    draws = draw_about(
        point,
        found.influence,
        length_variance(max(found.centre2, 0.0), spectrum, spectrum.values, d),
    )
    flat = bool(np.mean(draws[:, 1] <= draws[:, 2]) > 0.025)
    noise, norms, centres = possible_draws(draws).T
    whole = np.column_stack([noise, norms - centres, norms])
    return average_draws(whole, spectrum, "moments within and across clients", flat)


def estimate_jointly(summaries: list[Summary], found: JointDraws) -> Estimates:
    """The joint likelihood of all labels, where pooled samples determine no shared model."""
    noise, radii, centres = found.draws.T
    whole = np.column_stack([noise, radii, radii + centres])
    return average_draws(
        whole, spectrum_of(summaries), "likelihood of all labels at once", found.flat
    )


def average_draws(draws: Array, spectrum: Spectrum, method: str, flat: bool) -> Estimates:
    """The mean of what is possible: with few samples the best fit may be out of bounds, or far."""
    middle = draws.mean(0)
    noise2, radius2 = keep_positive(float(middle[0]), float(middle[1]), float(middle[2]), spectrum)
    return Estimates(
        noise2, radius2, max(float(middle[2]), radius2), draws, spectrum, method, flat, scarce=True
    )


def possible_draws(draws: Array) -> Array:
    """The possible draws of (noise^2, norm^2, centre^2): none below 0, centre within the norm."""
    good = draws[(draws.min(1) >= 0) & (draws[:, 2] <= draws[:, 1])]
    if not len(good):
        norms = np.maximum(draws[:, 1], 0)
        return np.column_stack([np.maximum(draws[:, 0], 0), norms, np.clip(draws[:, 2], 0, norms)])
    return np.asarray(good[np.arange(len(draws)) % len(good)])


def widen_draws(draws: Array, point: Array, about: AxisVariances) -> Array:
    """Draws as wide as clients vary in noise or radius, in logarithms; tails of Student's t."""
    ends = scipy.stats.t.ppf(0.975, satterthwaite(about.influence)) / scipy.stats.norm.ppf(0.975)
    return np.asarray(
        point * (draws / point) ** np.where(about.excess > 1, np.sqrt(about.excess) * ends, 1.0)
    )


def influence_variance(influence: Array) -> float:
    """Variance of an estimate from what each client adds to its error."""
    m = len(influence)
    return float(influence @ influence) * m / (m - 1)


def length_weights(
    spectrum: Spectrum, summaries: list[Summary], noise2: float, norm2: float
) -> Array:
    """What `length2` sees of an optimum along each axis: x^2/(x + c)^2, c = noise^2 d/norm^2.

    With S = X'X/n and lam = c/n it is I - 2 lam (S + lam)^{-1} + lam^2 (S + lam)^{-2}. The
    equivalent of (S + lam)^{-1}, kappa/lam (Sigma + kappa)^{-1}, and its derivative in lam make it,
    along an eigenvalue s, 1 - (kappa + lam kappa')/(s + kappa) + lam kappa kappa'/(s + kappa)^2.
    """
    noise2, norm2 = keep_positive(noise2, norm2, norm2, spectrum)
    aspect = np.array([summaries[0].dimension / np.mean([each.samples for each in summaries])])
    lam = noise2 * aspect / norm2
    k = kappa(lam, aspect, spectrum)
    moved = lam * slope_of(k, lam, aspect, spectrum)
    near = 1 / (spectrum.values + k)
    return np.asarray(np.maximum(1 - (k + moved) * near + k * moved * near**2, 0.0))


def length_variance(centre2: float, spectrum: Spectrum, seen: Array, dimension: int) -> float:
    """Variance of theta_0'A theta_0/mean(A), A = `seen`: clients share theta_0 and cannot tell."""
    mean = float(spectrum.weights @ seen)
    wide = float(spectrum.weights @ seen**2) / mean**2 - 1 if mean > 0 else 0.0
    return 2 * centre2**2 * max(wide, 0.0) / dimension


def draw_about(point: Array, influence: Array, extra: float) -> Array:
    """Draws about a point with the clients' covariance and the tails of their Student's t."""
    m = len(influence)
    covariance = influence.T @ influence * m / (m - 1)
    covariance[-1, -1] += extra
    values, vectors = np.linalg.eigh(covariance)
    z = student_quantiles(even_points(DRAWS, point.size), satterthwaite(influence @ vectors))
    return np.asarray(point + (z * np.sqrt(np.maximum(values, 0))) @ vectors.T)


def student_quantiles(u: Array, freedom: float | Array) -> Array:
    """Quantiles of Student's t: few clients say little about their own spread."""
    return np.asarray(scipy.stats.t.ppf(u, freedom))


def satterthwaite(influence: Array) -> Array:
    """Degrees of freedom of the variance sum I_i^2 over clients (Satterthwaite): 2 V^2 over the
    variance of V, which is sum I_i^4 - V^2/m; m for many Gaussian clients, fewer where some weigh
    much. Never above m - 1 nor below 3.
    """
    m = len(influence)
    V = np.maximum((influence**2).sum(0), np.finfo(float).tiny)
    varies = ((influence**2 / V) ** 2).sum(0) - 1 / m
    return np.asarray(np.clip(2 / np.maximum(varies, 1e-9), 3, m - 1))


def keep_positive(
    noise2: float, radius2: float, norm2: float, spectrum: Spectrum
) -> tuple[float, float]:
    """Neither exactly 0, so that a prediction can be scaled with them."""
    noise2 = max(noise2, LEAST_SHARE * norm2 * spectrum.mean, np.finfo(float).tiny)
    return float(noise2), float(max(radius2, LEAST_SHARE * noise2 / spectrum.mean))


@dataclass(frozen=True, eq=False)
class PooledClients:
    """The data in determined directions, the pooled fit, a summary per client, the estimates."""

    data: ClientData
    pool: SharedSolution
    summaries: list[Summary]
    estimates: Estimates
    left_out: list[Array]  # residuals about the others' model along each client's axes
    room: AxisRows | None  # clients along their axes; None where samples are scarce


def pool_and_estimate(data: ClientData) -> PooledClients:
    """Two passes, never all samples at once: the pooled model, then each client about it."""
    pool = pool_clients(data)
    if (
        not pool.full and data.sizes.sum() >= LEAST_ROOM * pool.rank
    ):  # features follow from others: keep what they span
        data = replace(data, basis=pool.factor / np.linalg.norm(pool.factor, axis=0))
        pool = pool_clients(data)
    samples = int(data.sizes.sum())
    roomy = pool.full and samples >= LEAST_ROOM * data.dimension
    room = AxisRows(data, pool) if roomy else None

    group = (np.cumsum(data.sizes) - 1) // GROUP_ROWS
    edges = [0, *(np.flatnonzero(np.diff(group)) + 1), len(group)]

    def look(place: int, single: bool) -> list[tuple[Summary, Array]]:
        """A few clients: what is large is computed for all of them at once."""
        places = range(edges[place], edges[place + 1])
        given = [data.rows(each) for each in places]
        left = [y - X @ pool.theta for X, y in given]
        both = [(X, np.column_stack([y, e])) for (X, y), e in zip(given, left, strict=True)]
        turned = axes_of_each(both, single)
        rows = np.concatenate([axes.rows for axes in turned])
        counts = [len(axes.rows) for axes in turned]
        ends = np.cumsum(counts)[:-1]
        kept = None if room is None else room.G[room.edges[places[0]] : room.edges[places[-1] + 1]]
        seen = np.split(pool.root(rows, kept), ends)
        strength = [empty_vector() for _ in places]
        if roomy:
            power = np.concatenate([axes.power for axes in turned])
            others = np.repeat([samples - axes.samples for axes in turned], counts)
            strength = np.split(strength_of(rows, power, pool, others), ends)
        out = []
        for k, axes in enumerate(turned):
            labels, residuals = axes.labels.T
            about = leave_out(seen[k], residuals)
            if about is None:
                if axes.rows.dtype != float:  # hardly any other client saw some direction
                    return look(place, single=False)
                about = pool.left_out_residuals(axes.rows, residuals)
            if room is not None:
                room.put(places[k], axes.power, residuals, axes.rest)
            summary = Summary(
                data.parts[places[k]].name,
                axes.samples,
                data.dimension,
                power=axes.power,
                residual=about**2,
                raw=labels**2,
                rest=axes.rest,
                tails=tails_of(left[k]),
                pooled=float(np.mean(left[k] ** 2)),
                strength=strength[k],
            )
            out.append((summary, about))
        return out

    single = room is not None and room.single and pool.firm
    pairs = in_threads(lambda place: look(place, single), len(edges) - 1, data.dimension)
    summaries, left_out = map(list, zip(*chain.from_iterable(pairs), strict=True))
    if room is not None:
        found = estimate_by_likelihood(summaries, room.all_clients())
        return PooledClients(data, pool, summaries, found, left_out, room)
    if samples <= MOST_JOINT:
        found = estimate_jointly(summaries, draw_jointly(data))
        return PooledClients(data, pool, summaries, found, left_out, None)
    first = fit_variances(summaries, "raw")
    summaries = [
        add_products(summary, axes_of(X, y), first.noise2, first.spread2)
        for summary, (X, y) in zip(summaries, data, strict=True)
    ]
    return PooledClients(data, pool, summaries, estimate_by_moments(summaries), left_out, None)


def weights_by_feature(seen: PooledClients) -> Array:
    """The pooled weights by feature, those that are always 0 left out."""
    return seen.pool.theta if seen.data.basis is None else seen.data.basis @ seen.pool.theta


def held_out_squares(seen: PooledClients) -> Array:
    """Mean squares of held-out residuals about the pooled model, for clients that hold any out."""
    data = seen.data
    out = []
    for place, part in enumerate(data.parts):
        if part.held.size:
            X, y = data.held_out_rows(place)
            out.append(float(np.mean((y - X @ seen.pool.theta) ** 2)))
    return np.array(out)
