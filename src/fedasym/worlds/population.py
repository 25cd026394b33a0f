"""A population of clients in the linear model of section 2 of the paper: y = x'theta_i + noise, theta_i around theta_0.

Numbers may be arrays; they broadcast, so one `Population` can hold a whole grid of worlds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput
from fedasym.worlds.spectra import Spectrum, identity
from fedasym.worlds.world import check_energies, check_values, common_shape, describe_values, shares

RANGES = {
    "radius": "the distance of a client's optimum from the shared one; it must be finite and at least 0",
    "noise": "the standard deviation of the label noise; it must be finite and at least 0",
    "aspect": "unknowns per sample, d/n, and must be finite and above 0",
    "norm": "the length of a client's optimum; it must be finite and at least 0",
    "shift_power": "the exponent of the displacement's alignment; it must be finite",
    "optimum_power": "the exponent of the optimum's alignment; it must be finite",
}


@dataclass(frozen=True, eq=False)
class Population:
    """What the clients have in common: everything that the limits depend on.

    radius: r, the distance of a client's optimum theta_i from the shared optimum theta_0.
    noise: sigma, the standard deviation of the label noise.
    aspect: gamma = d/n, unknowns per sample of one client.
    norm: rho, the length of theta_i; only the local methods (and pooled fits with fewer samples than unknowns) need it.
    spectrum: eigenvalues of the features' covariance, from `fa.spectra`.
    shift_power, shift_weights: how the displacement theta_i - theta_0 lies in the covariance: weights proportional to
        h s^shift_power, or one weight per atom of the spectrum. Isotropic (h itself) by default.
    optimum_power, optimum_weights: the same for theta_i, which the local methods need.

    >>> import fedasym as fa
    >>> world = fa.Population(radius=1, noise=0.5, aspect=2, norm=2)
    >>> world.shape
    ()
    """

    task: ClassVar[str] = "regression"
    ranges: ClassVar[Mapping[str, str]] = RANGES
    radius: ArrayLike
    noise: ArrayLike
    aspect: ArrayLike
    norm: ArrayLike | None = None
    spectrum: Spectrum = field(default_factory=identity)
    shift_power: ArrayLike = 0.0
    shift_weights: ArrayLike | None = None
    optimum_power: ArrayLike = 0.0
    optimum_weights: ArrayLike | None = None

    def __post_init__(self) -> None:
        for name in RANGES:
            value = getattr(self, name)
            if value is not None or name != "norm":
                object.__setattr__(self, name, check_values(name, value, RANGES))
        if not isinstance(self.spectrum, Spectrum):
            raise InvalidInput(f"spectrum is {self.spectrum!r}: make one with fedasym.spectra, such as spectra.ar1(0.5)")
        for owner in ("shift", "optimum"):
            power, weights = getattr(self, f"{owner}_power"), getattr(self, f"{owner}_weights")
            object.__setattr__(self, f"{owner}_weights", check_energies(owner, power, weights, self.spectrum))
        numbers = {name: getattr(self, name) for name in RANGES}
        object.__setattr__(self, "_shape", common_shape(numbers, self.displacement, self.optimum))

    @property
    def shape(self) -> tuple[int, ...]:
        """The common shape of the numbers; () for a single world."""
        shape: tuple[int, ...] = self._shape  # type: ignore[attr-defined]
        return shape

    @cached_property
    def displacement(self) -> Array:
        """g_k, the share of the displacement's energy along each atom; last axis = atoms."""
        return self._energy("shift")

    @cached_property
    def optimum(self) -> Array:
        """The share of the energy of theta_i along each atom; last axis = atoms."""
        return self._energy("optimum")

    def _energy(self, owner: str) -> Array:
        return shares(owner, getattr(self, f"{owner}_power"), getattr(self, f"{owner}_weights"), self.spectrum)

    @property
    def isotropic(self) -> bool:
        """Whether the displacement has no preferred direction: g = h, or a covariance that treats all directions alike."""
        return self.spectrum.scale is not None or bool(np.all(self.displacement == self.spectrum.weights))

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """What identifies the population: identical clients have the same key and are merged."""
        numbers = tuple(np.asarray(np.nan if getattr(self, f) is None else getattr(self, f)).tobytes() for f in RANGES)
        return (*numbers, self.shape, self.spectrum.key, self.displacement.tobytes(), self.optimum.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Population) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def brief(self) -> str:
        """The numbers alone, in a few characters."""
        return ", ".join(f"{name} {describe_values(getattr(self, name))}" for name in ("radius", "noise", "aspect"))

    def facts(self, without: Collection[str | None] = ()) -> list[str]:
        """What it is, in a few words each, but for the numbers that are named."""
        numbers = {name: getattr(self, name) for name in ("radius", "noise", "aspect", "norm")}
        parts = [
            f"{name} {describe_values(value)}" for name, value in numbers.items() if value is not None and name not in without
        ]
        parts.append(f"{self.spectrum.name} covariance")
        if not self.isotropic:
            aligned = "given weights" if self.shift_weights is not None else f"power {describe_values(self.shift_power)}"
            parts.append(f"displacement aligned by {aligned}")
        return parts

    def __str__(self) -> str:
        return " · ".join(self.facts())
