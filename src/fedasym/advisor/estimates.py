"""Noise, radius and norm with what the data leave open about them: draws, the same every time, that fill the intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.stats

from fedasym.advisor.components import Components, components, length2
from fedasym.advisor.covariance import spectrum_of
from fedasym.advisor.crowded import Scarce, scarce
from fedasym.advisor.joint import Joint
from fedasym.advisor.restricted import DRAWS, Turned, curve_of, draws_of, even_points
from fedasym.advisor.summaries import Summary
from fedasym.core.arrays import Array
from fedasym.theory.transforms import kappa
from fedasym.theory.transforms import kappa_slope as slope_of
from fedasym.worlds.spectra import Spectrum

LEAST = 1e-8  # a radius this small against the noise, or noise this small against the signal, is none


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
    deviance: float = 0.0  # -2 log restricted likelihood at its best, where that is what was looked at

    @property
    def scale(self) -> Array:
        """Draws relative to the estimates: what bias and variance of a prediction are multiplied with."""
        point = np.array([self.noise2, self.radius2, self.norm2])
        return np.asarray(self.draws / np.where(point > 0, point, 1.0))

    def quantity(self, column: int, value: float) -> Quantity:
        """Square root of one column with its interval."""
        low, high = np.quantile(self.draws[:, column], [0.025, 0.975])
        low = 0.0 if column == 1 and self.flat else min(low, value)
        return Quantity(float(np.sqrt(value)), float(np.sqrt(low)), float(np.sqrt(max(high, value))))


def from_likelihood(summaries: list[Summary], turned: Turned, along: list[Summary] | None = None) -> Estimates:
    """Restricted likelihood, from all clients' turned features (more samples than unknowns).

    `along`: some clients seen along the axes of `turned`, where these are not the axes of their samples.
    """
    d = summaries[0].dimension
    first = components(summaries if along is None else along)
    spectrum = spectrum_of(summaries)
    radius2 = max(first.spread2, 1e-6 * first.noise2 / spectrum.mean)
    noise2 = max(first.noise2, 1e-9 * radius2 * spectrum.mean)
    errors = first.covariance
    error = np.sqrt(errors[0, 0] / noise2**2 + errors[1, 1] / radius2**2 - 2 * errors[0, 1] / (noise2 * radius2))
    curve = curve_of(turned, float(np.log(noise2 * d / radius2)), float(error))
    grid = even_points(DRAWS, 3)
    noise2 = curve.noise2(turned.freedom)
    radius2 = noise2 * d / np.exp(curve.best)
    draws = stretched(draws_of(curve, turned, d, grid), np.array([noise2, radius2]), first)
    norm2, influence, slope = length2(summaries, noise2)
    norm2 = max(norm2, radius2)
    seen = weighed(spectrum, summaries, noise2, norm2)
    wide = np.sqrt(spread_of(influence) + unseen(norm2 - radius2, spectrum, seen, d))
    norms = norm2 + slope * (draws[:, 0] - noise2) + wide * student(grid[:, 2], degrees(influence[:, None])[0])
    whole = np.column_stack([draws, np.maximum(norms, 0)])
    noise2, radius2 = floored(noise2, radius2, norm2, spectrum)
    method = "restricted maximum likelihood"
    return Estimates(noise2, radius2, max(norm2, radius2), whole, spectrum, method, curve.flat, deviance=curve.least)


def from_products(summaries: list[Summary]) -> Estimates:
    """Cross-fitted products from the clients' summaries alone: the federated form."""
    first: Components = components(summaries)
    spectrum, d = spectrum_of(summaries), summaries[0].dimension
    norm2, influence, slope = length2(summaries, first.noise2)
    norm2 = max(norm2, first.spread2)
    seen = weighed(spectrum, summaries, first.noise2, norm2)
    joint = np.column_stack([first.influence, influence + slope * first.influence[:, 0]])
    draws = drawn(np.array([first.noise2, first.spread2, norm2]), joint, unseen(norm2 - first.spread2, spectrum, seen, d))
    flat = bool(np.mean(draws[:, 1] <= 0) > 0.025)
    noise2, radius2 = floored(first.noise2, first.spread2, norm2, spectrum)
    method = "cross-fitted residuals of the clients' summaries"
    return Estimates(noise2, radius2, max(norm2, radius2), np.maximum(draws, 0), spectrum, method, flat)


def from_scarce(summaries: list[Summary]) -> Estimates:
    """Moments, where all samples together do not determine a shared model."""
    found: Scarce = scarce(summaries)
    spectrum, d = spectrum_of(summaries), summaries[0].dimension
    point = np.array([found.noise2, found.norm2, found.centre2])
    draws = drawn(point, found.influence, unseen(max(found.centre2, 0.0), spectrum, spectrum.values, d))
    flat = bool(np.mean(draws[:, 1] <= draws[:, 2]) > 0.025)
    noise, norms, centres = possible(draws).T
    whole = np.column_stack([noise, norms - centres, norms])
    return among(whole, spectrum, "moments within and across clients", flat)


def from_joint(summaries: list[Summary], found: Joint) -> Estimates:
    """The likelihood of all labels at once, where samples are at one place and do not determine a shared model."""
    noise, radii, centres = found.draws.T
    whole = np.column_stack([noise, radii, radii + centres])
    return among(whole, spectrum_of(summaries), "likelihood of all labels at once", found.flat)


def among(draws: Array, spectrum: Spectrum, method: str, flat: bool) -> Estimates:
    """The mean of what is possible: with so few samples the best fit may be out of bounds, or far from what else fits."""
    middle = draws.mean(0)
    noise2, radius2 = floored(float(middle[0]), float(middle[1]), float(middle[2]), spectrum)
    return Estimates(noise2, radius2, max(float(middle[2]), radius2), draws, spectrum, method, flat, scarce=True)


def possible(draws: Array) -> Array:
    """Draws of (noise^2, norm^2, centre^2) that can be: none below 0, no centre longer than the norm; as many as before."""
    good = draws[(draws.min(1) >= 0) & (draws[:, 2] <= draws[:, 1])]
    if not len(good):
        norms = np.maximum(draws[:, 1], 0)
        return np.column_stack([np.maximum(draws[:, 0], 0), norms, np.clip(draws[:, 2], 0, norms)])
    return np.asarray(good[np.arange(len(draws)) % len(good)])


def stretched(draws: Array, point: Array, about: Components) -> Array:
    """Draws as far from the point as clients that vary in noise or radius make them, by the logarithm; ends as Student's t."""
    ends = scipy.stats.t.ppf(0.975, degrees(about.influence)) / scipy.stats.norm.ppf(0.975)
    return np.asarray(point * (draws / point) ** np.where(about.excess > 1, np.sqrt(about.excess) * ends, 1.0))


def spread_of(influence: Array) -> float:
    """Variance of an estimate from what each client adds to its error."""
    m = len(influence)
    return float(influence @ influence) * m / (m - 1)


def weighed(spectrum: Spectrum, summaries: list[Summary], noise2: float, norm2: float) -> Array:
    """How much `length2` sees of an optimum along each eigenvalue: x^2/(x + c)^2 on a client's axes, c = noise^2 d/norm^2.

    With S = X'X/n and lam = c/n it is I - 2 lam (S + lam)^{-1} + lam^2 (S + lam)^{-2}. The equivalent of (S + lam)^{-1},
    kappa/lam (Sigma + kappa)^{-1}, and its derivative in lam make it, along an eigenvalue s,
    1 - (kappa + lam kappa')/(s + kappa) + lam kappa kappa'/(s + kappa)^2.
    """
    noise2, norm2 = floored(noise2, norm2, norm2, spectrum)
    aspect = np.array([summaries[0].dimension / np.mean([each.samples for each in summaries])])
    lam = noise2 * aspect / norm2
    k = kappa(lam, aspect, spectrum)
    moved = lam * slope_of(k, lam, aspect, spectrum)
    near = 1 / (spectrum.values + k)
    return np.asarray(np.maximum(1 - (k + moved) * near + k * moved * near**2, 0.0))


def unseen(centre2: float, spectrum: Spectrum, seen: Array, dimension: int) -> float:
    """Variance of theta_0'A theta_0/mean(A) about |theta_0|^2, A = `seen`: clients share theta_0, so that they cannot tell."""
    mean = float(spectrum.weights @ seen)
    wide = float(spectrum.weights @ seen**2) / mean**2 - 1 if mean > 0 else 0.0
    return 2 * centre2**2 * max(wide, 0.0) / dimension


def drawn(point: Array, influence: Array, extra: float) -> Array:
    """Draws about a point with the clients' covariance, the tails of Student's t with as many degrees of freedom."""
    m = len(influence)
    covariance = influence.T @ influence * m / (m - 1)
    covariance[-1, -1] += extra
    values, vectors = np.linalg.eigh(covariance)
    z = student(even_points(DRAWS, point.size), degrees(influence @ vectors))
    return np.asarray(point + (z * np.sqrt(np.maximum(values, 0))) @ vectors.T)


def student(u: Array, freedom: float | Array) -> Array:
    """Quantiles of Student's t: few clients say little about their own spread."""
    return np.asarray(scipy.stats.t.ppf(u, freedom))


def degrees(influence: Array) -> Array:
    """Degrees of freedom of the variance sum I_i^2 over clients (Satterthwaite): 2 V^2 over the variance of V, which is
    sum I_i^4 - V^2/m; m for many Gaussian clients, fewer where some weigh much. Never above m - 1 nor below 3.
    """
    m = len(influence)
    V = np.maximum((influence**2).sum(0), np.finfo(float).tiny)
    varies = ((influence**2 / V) ** 2).sum(0) - 1 / m
    return np.asarray(np.clip(2 / np.maximum(varies, 1e-9), 3, m - 1))


def floored(noise2: float, radius2: float, norm2: float, spectrum: Spectrum) -> tuple[float, float]:
    """Neither exactly 0, so that a prediction can be scaled with them."""
    noise2 = max(noise2, LEAST * norm2 * spectrum.mean, np.finfo(float).tiny)
    return float(noise2), float(max(radius2, LEAST * noise2 / spectrum.mean))
