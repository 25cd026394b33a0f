"""What clients are. `Population`: clients in the linear model of section 2 of the paper, y =
x'theta_i + noise, theta_i around theta_0.

Numbers may be arrays; they broadcast, so one `Population` can hold a whole grid of worlds. `World`
is what a population is to the verbs, of whatever labels; the numbers of all worlds are checked
here. `spectra` has the covariances of their features, `classes` clients whose labels are classes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike

from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import MOST, Array, floats
from fedasym.worlds.spectra import Spectrum, check_weights, identity

LONGEST = 1e150  # a length, or a standard deviation, whose square floating-point numbers still hold


LEAST_ENERGY = 1e-9  # of the largest: directions along which clients differ no more are held


class World(Protocol):
    """A population of clients, or a grid of them; what the verbs ask of it before they look at its
    labels.

    task: what is learned, "regression" or "classification", by which a verb finds its formulas.
    ranges: its numbers, which verbs may vary, and what each may be.
    """

    task: ClassVar[str]
    ranges: ClassVar[Mapping[str, str]]

    @property
    def spectrum(self) -> Spectrum:
        """The eigenvalues of the features' covariance."""

    @property
    def aspect(self) -> ArrayLike:
        """Unknowns per sample of one client."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The common shape of the numbers; () for a single world."""

    def facts(self, without: Collection[str | None] = ()) -> list[str]:
        """What it is, in a few words each, but for the numbers that are named."""


def check_values(
    name: str, value: ArrayLike, ranges: Mapping[str, str], most: float = np.inf
) -> float | Array:
    """Numbers in their allowed range (`ranges`: in words), as float or read-only float array."""
    array = floats(value)
    if array is None:
        raise InvalidInput(f"{name} is {value!r}: it must be a number or an array of numbers")
    if array.size == 0:
        raise InvalidInput(f"{name} is empty: give a number or an array of at least one")
    good = np.isfinite(array)
    if not name.endswith("power"):
        good &= (array > 0 if name == "aspect" else array >= 0) & (array <= most)
    if not np.all(good):
        raise InvalidInput(f"{name} is {array[~good].flat[0]:g}: it is {ranges[name]}")
    if not name.endswith(("power", "aspect")) and array.max() > LONGEST:
        raise InvalidInput(
            f"{name} is {array.max():g}: numbers hold the square of at most {LONGEST:g}; give a"
            " smaller one"
        )
    if array.ndim == 0:
        return float(array)
    array.setflags(write=False)
    return array


def check_client_count(clients: ArrayLike) -> Array | None:
    """A number of clients, at least 1, or an array of them; None where they are infinitely many."""
    given = floats(clients)
    m = np.array(np.nan) if given is None or given.size == 0 else given
    if np.all(m == np.inf):
        return None
    good = (m >= 1) & (m <= MOST) & (np.floor(m) == m)
    if not np.all(good):
        bad = m[~good].flat[0] if m.ndim else clients
        raise InvalidInput(
            f"clients is {bad}: it must be a whole number from 1 to 2^53; leave it out for"
            " infinitely many"
        )
    return m


def check_energies(
    owner: str, power: ArrayLike, weights: ArrayLike | None, spectrum: Spectrum
) -> Array | None:
    """The shares of energy that were given, one per atom, where any were."""
    if weights is None:
        return None
    name = f"{owner}_weights"
    array = floats(weights)
    if array is None:
        raise InvalidInput(f"{name} is {weights!r}: give one number per atom of the spectrum")
    if np.any(np.asarray(power) != 0):
        raise InvalidInput(f"{name} and {owner}_power are both given: give one of them")
    if array.ndim == 0 or array.shape[-1] != spectrum.values.size:
        raise InvalidInput(
            f"{name} has shape {array.shape}: its last axis must have {spectrum.values.size}"
            " entries, one per atom"
        )
    check_weights(name, array)
    array.setflags(write=False)
    return array


def energy_shares(
    owner: str, power: ArrayLike, weights: ArrayLike | None, spectrum: Spectrum
) -> Array:
    """The energy's share along each atom, as given or like h s^power; last axis = atoms."""
    if weights is not None:
        return np.asarray(weights)
    s, h = spectrum.values, spectrum.weights
    exponent = np.asarray(power, dtype=float)[..., None]
    if np.all(exponent == 0):
        return np.broadcast_to(h, (*exponent.shape[:-1], h.size))
    if np.any(exponent < 0) and np.any(s == 0):
        raise InvalidInput(
            f"{owner}_power is below 0 while the spectrum has zeros: give {owner}_weights instead"
        )
    # scaled by the largest eigenvalue first: large powers would overflow
    found = h * (s / s.max()) ** exponent
    return np.asarray(found / found.sum(-1, keepdims=True))


def common_shape(numbers: Mapping[str, ArrayLike | None], *energies: Array) -> tuple[int, ...]:
    """The shape of the grid of worlds that numbers and energies (last axis: atoms) span."""
    given = {name: np.shape(value) for name, value in numbers.items() if value is not None}
    try:
        return np.broadcast_shapes(*given.values(), *(each.shape[:-1] for each in energies))
    except ValueError:
        shapes = ", ".join(f"{name} {shape}" for name, shape in given.items() if shape)
        raise InvalidInput(
            f"these arrays do not broadcast together: {shapes}; give shapes that do"
        ) from None


def describe_values(value: ArrayLike | None) -> str:
    """A number, or the range of an array, in a few characters."""
    if value is None or np.ndim(value) == 0:
        return "None" if value is None else f"{float(np.asarray(value)):g}"
    array = np.asarray(value, dtype=float)
    return f"{array.min():g} to {array.max():g}"


RANGES = {
    "radius": (
        "the distance of a client's optimum from the shared one; it must be finite and at least 0"
    ),
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
    norm: rho, the length of theta_i; only the local methods (and pooled fits with fewer samples
        than unknowns) need it.
    spectrum: eigenvalues of the features' covariance, from `fa.spectra`.
    shift_power, shift_weights: how the displacement theta_i - theta_0 lies in the covariance:
        weights proportional to h s^shift_power, or one weight per atom of the spectrum. Isotropic
        (h itself) by default.
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
            raise InvalidInput(
                f"spectrum is {self.spectrum!r}: make one with fedasym.spectra, such as"
                " spectra.ar1(0.5)"
            )
        for owner in ("shift", "optimum"):
            power, weights = getattr(self, f"{owner}_power"), getattr(self, f"{owner}_weights")
            object.__setattr__(
                self, f"{owner}_weights", check_energies(owner, power, weights, self.spectrum)
            )
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
        return energy_shares(
            owner, getattr(self, f"{owner}_power"), getattr(self, f"{owner}_weights"), self.spectrum
        )

    def within(self, between: float) -> Population:
        """One cluster of these clients, where cluster centres have the share `between` of the
        squared radius: clients differ by the rest, and their optima are as long as before.

        The radius is that about the centre of all clients, which is the mean of their clusters'.

        >>> import fedasym as fa
        >>> fa.Population(radius=2, noise=0.5, aspect=2).within(0.75).radius
        1.0
        """
        share = floats(between)
        if share is None or share.ndim or not 0 <= float(share) <= 1:
            raise InvalidInput(
                f"between is {between!r}: it is the share of radius^2 between clusters, from 0 to 1"
            )
        left = np.sqrt(1 - float(share))
        return replace(self, radius=np.asarray(self.radius) * left)

    def rescale_features(self, power: float | None) -> Population:
        """The same clients with every feature scaled by a root of its share of the displacement's
        energy, or (power) of its eigenvalue to that power over their mean.

        A ridge there is one by direction here: lambda over that factor.

        >>> import fedasym as fa
        >>> spectrum = fa.spectra.atoms([1, 4], [0.5, 0.5])
        >>> world = fa.Population(1, 0.5, 2, spectrum=spectrum, shift_power=1)
        >>> world.rescale_features(None).isotropic
        True
        >>> world.rescale_features(1).spectrum.values.tolist()
        [0.4, 6.4]
        """
        s, h = self.spectrum.values, self.spectrum.weights
        if self.displacement.ndim > 1 or self.optimum.ndim > 1:
            raise InvalidInput(
                "the energy by direction is an array of several worlds: a ridge by direction takes"
                " one alignment at a time"
            )
        if power is None:
            energy = np.where(h > 0, self.displacement / np.where(h > 0, h, 1.0), 0.0)
            factor = np.maximum(energy, LEAST_ENERGY * energy.max())
        else:
            seen = np.where(s > 0, s, self.spectrum.mean)
            factor = np.where(s > 0, (seen / self.spectrum.mean) ** float(power), 1.0)

        def rescale_energy(length: Any, share: Array) -> tuple[Any, Array]:
            energy = share / factor
            total = energy.sum()
            even = np.allclose(energy / total, h, rtol=1e-12, atol=0)
            return np.asarray(length) * np.sqrt(total), h if even else energy / total

        radius, shift = rescale_energy(self.radius, self.displacement)
        norm, optimum = (
            (None, None) if self.norm is None else rescale_energy(self.norm, self.optimum)
        )
        return Population(
            radius,
            self.noise,
            self.aspect,
            norm,
            Spectrum(s * factor, h, f"scaled {self.spectrum.name}"),
            shift_weights=shift,
            optimum_weights=optimum,
        )

    @property
    def isotropic(self) -> bool:
        """Whether the displacement has no preferred direction: g = h, or all directions alike."""
        return self.spectrum.scale is not None or bool(
            np.all(self.displacement == self.spectrum.weights)
        )

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """What identifies the population: identical clients have the same key and are merged."""
        numbers = tuple(
            np.asarray(np.nan if getattr(self, f) is None else getattr(self, f)).tobytes()
            for f in RANGES
        )
        return (
            *numbers,
            self.shape,
            self.spectrum.key,
            self.displacement.tobytes(),
            self.optimum.tobytes(),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Population) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def brief(self) -> str:
        """The numbers alone, in a few characters."""
        return ", ".join(
            f"{name} {describe_values(getattr(self, name))}"
            for name in ("radius", "noise", "aspect")
        )

    def facts(self, without: Collection[str | None] = ()) -> list[str]:
        """What it is, in a few words each, but for the numbers that are named."""
        numbers = {name: getattr(self, name) for name in ("radius", "noise", "aspect", "norm")}
        parts = [
            f"{name} {describe_values(value)}"
            for name, value in numbers.items()
            if value is not None and name not in without
        ]
        parts.append(f"{self.spectrum.name} covariance")
        if not self.isotropic:
            aligned = (
                "given weights"
                if self.shift_weights is not None
                else f"power {describe_values(self.shift_power)}"
            )
            parts.append(f"displacement aligned by {aligned}")
        return parts

    def __str__(self) -> str:
        return " · ".join(self.facts())
