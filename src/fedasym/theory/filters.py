"""Any client stage in the limit: what its filter P(x) keeps of the shared model's error, and what noise it fits.

A filter that extends to complex z is integrated along a contour (equations 19 and 20); Cauchy's formula
f(x) = 1/(2 pi i) int f(z)/(z - x) dz, which must give back its values on the spectrum, says whether it does and
whether the contour stays clear of its singularities. Other filters are integrated on the real axis, against the
Marchenko-Pastur law, which covers uncorrelated features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedasym.algorithms.stages import ClientStage
from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput, NoFormula
from fedasym.theory.contours import Complex, Contour, settled, support
from fedasym.theory.limits import Parts
from fedasym.theory.subordination import MOST_NODES, marchenko_pastur
from fedasym.theory.worlds import Worlds
from fedasym.worlds.spectra import Spectrum

CLOSE = 1e-9  # relative error of Cauchy's formula that a filter without singularities inside stays below
HALVINGS = 24  # of the contour's reach into the negatives, at the most
NODES = 80  # a panel, for Cauchy's formula


@dataclass(frozen=True)
class StageFilter:
    """The filter of a client stage, with a leading axis as contours want it."""

    stage: ClientStage

    def kept(self, z: Complex | Array) -> Complex:
        """P(z)."""
        return evaluate(self.stage.keep, z)[None]

    def noise(self, z: Complex | Array) -> Complex:
        """(1 - P(z))^2 / z."""
        return np.asarray(evaluate(self.stage.learn, z) ** 2 / z)[None]


def filtered(stage: ClientStage, world: Worlds, extra: Array | None = None) -> Parts:
    """Bias and variance of one world, shape (1,); `extra`: energy of the shared model's noise per atom."""
    gamma, spectrum = float(world.gamma[0]), world.spectrum
    r2, s2 = float(world.r2[0]), float(world.s2[0])
    check_filter(stage, gamma, spectrum)
    contour, filter_ = find_contour(stage, gamma, spectrum), StageFilter(stage)
    if contour is None:
        return on_real_axis(stage, world, extra)

    def through(energy: Array) -> Array:
        if spectrum.scale is not None or np.array_equal(energy, spectrum.weights):
            return np.asarray(energy.sum() * contour.trace(lambda z: filter_.kept(z) ** 2))
        return contour.squared(filter_.kept, energy)

    bias, variance = r2 * through(world.g[0]), s2 * gamma * contour.trace(filter_.noise)
    if extra is not None:
        variance = variance + through(extra)
    return np.maximum(bias, 0), np.maximum(variance, 0)


def check_filter(stage: ClientStage, gamma: float, spectrum: Spectrum) -> None:
    """Refuse a filter that is not finite on the spectrum, or forgets directions of which a client knows nothing."""
    name, (low, high) = type(stage).__name__, support(gamma, spectrum)
    x = np.linspace(low, high, 33)
    values = call(stage, x)
    if not np.all(np.isfinite(values)):
        raise InvalidInput(f"keep(x) of {name} is not finite at eigenvalues from {low:.3g} to {high:.3g}: mend the stage")
    if gamma * spectrum.rank > 1:
        (nothing,) = call(stage, np.zeros(1))
        if abs(nothing - 1) > CLOSE:
            raise InvalidInput(
                f"keep(0) of {name} is {nothing:.6g}: it must be 1, as a client learns nothing where it has no samples"
            )


def evaluate(function: Any, z: Complex | Array) -> Complex:
    """A function of eigenvalues at complex ones."""
    return np.asarray(function(z), dtype=np.complex128)


def call(stage: ClientStage, x: Array) -> Array:
    """P at real eigenvalues, one for each."""
    values = np.asarray(stage.keep(x), dtype=float)
    if values.shape not in ((), x.shape):
        raise InvalidInput(
            f"keep(x) of {type(stage).__name__} has shape {values.shape} for x of shape {x.shape}: one value for each x"
        )
    return np.broadcast_to(values, x.shape)


def find_contour(stage: ClientStage, gamma: float, spectrum: Spectrum) -> Contour | None:
    """A contour inside which the filter has no singularity, by Cauchy's formula; None: there is none."""
    low, high = support(gamma, spectrum)
    inside = np.linspace(low, high, 11)[1:-1]  # the ends come too near to the contour for a plain rule
    values = call(stage, inside)
    tried = [(high * 0.5**k, np.inf) for k in range(HALVINGS)]
    tried += [(high * 0.5**k, high * (1 + 0.5**k)) for k in range(HALVINGS)]  # singularities beyond the spectrum too
    for reach, furthest in tried:
        contour = Contour(gamma, spectrum, reach, furthest)
        kappa, z, _, arc = contour.nodes(NODES)
        try:
            f = evaluate(stage.keep, z)
        except (TypeError, ValueError):
            return None  # not for complex numbers at all
        if f.shape not in ((), z.shape) or not np.all(np.isfinite(f)):
            continue
        f = np.broadcast_to(f, z.shape)
        weights = f * (z / kappa) * arc
        again = 2 * (weights / (z - inside[:, None])).sum(-1).real
        if np.max(np.abs(again - values)) < CLOSE * max(1.0, float(np.abs(f).max())):
            return contour
    return None


def on_real_axis(stage: ClientStage, world: Worlds, extra: Array | None) -> Parts:
    """Bias and variance against the Marchenko-Pastur law, for uncorrelated features."""
    spectrum = world.spectrum
    if spectrum.scale is None:
        raise NoFormula(
            f"{type(stage).__name__} has a keep(x) that does not extend to complex numbers, and then there is a formula "
            'only for uncorrelated features (spectra.identity()): write it without max, abs or where, or take method="simulate"'
        )
    s = spectrum.scale

    def rule(nodes: int) -> tuple[Array, Array]:
        law = marchenko_pastur(world.gamma, nodes)
        x = law.x
        P = call(stage, s * x[0])[None]
        learned = np.broadcast_to(np.asarray(stage.learn(s * x[0]), dtype=float), x[0].shape)[None]
        noise = np.where(x > 0, learned**2 / np.where(x > 0, x, 1), 0.0)
        kept = law.mean(P**2) * s
        found = np.concatenate([kept, world.gamma * law.mean(noise)])
        return found, np.abs(found)

    through, noise = settled(rule, MOST_NODES)
    variance = world.s2 * noise
    if extra is not None:
        variance = variance + through * extra.sum()
    return world.r2 * world.g.sum(-1) * through, variance
