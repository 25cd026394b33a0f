"""A population of clients whose labels are classes: the model of `theory/classes`, P(y|x) =
softmax(x'W_i), W_i around W_0.

Numbers may be arrays; they broadcast, so one `ClassPopulation` can hold a whole grid of worlds.
What the formulas see of it is a spectrum, and the energy of two vectors along each of its atoms
(section 0).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import EllipsisType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.core.errors import InvalidInput, NoFormula
from fedasym.core.numbers import Array
from fedasym.worlds import (
    check_energies,
    check_values,
    common_shape,
    describe_values,
    energy_shares,
)
from fedasym.worlds.spectra import Spectrum, identity

Index = (
    int
    | slice
    | NDArray[np.intp]
    | NDArray[np.bool_]
    | tuple[int | slice | EllipsisType | None, ...]
)


@dataclass(frozen=True, eq=False)
class Energies:
    """Atoms s_k of the covariance, their weights h_k, and the energies E0_k of theta_0 and ED_k of
    Delta in each atom.

    All four broadcast to one shape (..., atoms); the leading axes are the batch.

    >>> one = Energies.isotropic(1.5, 1.5)
    >>> float(one.b0), float(one.bd), round(float(one.rho), 6)
    (2.25, 2.25, 2.12132)
    """

    s: Array
    h: Array
    e0: Array
    ed: Array

    def __post_init__(self) -> None:
        arrays = np.broadcast_arrays(
            *(np.atleast_1d(np.asarray(x, dtype=float)) for x in (self.s, self.h, self.e0, self.ed))
        )
        for name, array in zip(("s", "h", "e0", "ed"), arrays, strict=True):
            object.__setattr__(self, name, array)

    @classmethod
    def isotropic(
        cls, centre: ArrayLike, radius: ArrayLike, s: ArrayLike = 1.0, h: ArrayLike = 1.0
    ) -> Energies:
        """Energy spread evenly over all directions: E0 = b^2 h, ED = r^2 h, for b = ||theta_0|| and
        r = ||Delta||.

        >>> Energies.isotropic([1, 2, 3], 1, s=[0.5, 3], h=[0.6, 0.4]).batch
        (3,)
        """
        b, r = (np.asarray(x, dtype=float)[..., None] for x in (centre, radius))
        weights = np.atleast_1d(np.asarray(h, dtype=float))
        return cls(np.asarray(s, dtype=float), weights, b**2 * weights, r**2 * weights)

    @property
    def b0(self) -> Array:
        """B0 = sum s E0 = theta_0' Sigma theta_0."""
        return np.asarray((self.s * self.e0).sum(-1))

    @property
    def bd(self) -> Array:
        """BD = sum s ED = Delta' Sigma Delta."""
        return np.asarray((self.s * self.ed).sum(-1))

    @property
    def rho(self) -> Array:
        """The standard deviation of x'theta_i: rho^2 = B0 + BD."""
        return np.sqrt(self.b0 + self.bd)

    @property
    def r2(self) -> Array:
        """r^2 = sum ED, the Euclidean energy of Delta."""
        return np.asarray(self.ed.sum(-1))

    @property
    def rank(self) -> Array:
        """Share of the directions that samples can see: weight of the atoms with s > 0."""
        return np.asarray(np.where(self.s > 0, self.h, 0.0).sum(-1))

    @property
    def batch(self) -> tuple[int, ...]:
        """The shape of the leading axes: () for one population."""
        return self.s.shape[:-1]

    @property
    def alone(self) -> Energies:
        """The same client for a method that shares nothing: all its energy has to be learned."""
        return Energies(self.s, self.h, np.zeros_like(self.e0), self.e0 + self.ed)

    def broadcast(self, shape: tuple[int, ...]) -> Energies:
        """The same populations over a larger batch."""
        full = (*shape, self.s.shape[-1])
        return Energies(*(np.broadcast_to(x, full) for x in (self.s, self.h, self.e0, self.ed)))

    def flat(self) -> Energies:
        """The batch as one axis."""
        return Energies(*(x.reshape(-1, x.shape[-1]) for x in (self.s, self.h, self.e0, self.ed)))

    def take(self, where: Index) -> Energies:
        """Some of the batch."""
        return Energies(*(x[where] for x in (self.s, self.h, self.e0, self.ed)))


RANGES = {
    "radius": (
        "the distance of a client's optimum from the shared one; it must be finite and at least 0"
    ),
    "centre": "the length of the shared optimum; it must be finite and at least 0",
    "aspect": "unknowns per sample, d/n, and must be finite and above 0",
    "flips": (
        "the probability that a label is flipped; it must be between 0 and 0.5, where labels are"
        " coin tosses"
    ),
    "shift_power": "the exponent of the displacement's alignment; it must be finite",
    "centre_power": "the exponent of the shared optimum's alignment; it must be finite",
}
MOST_FLIPS = 0.5
# deviation of logits; nodes grow with it, and less than a label in a thousand is then left to
# chance
STEEPEST = 1000.0
MOST_CLASSES = 200  # what the sampled expectations of `theory/classes` are made for


@dataclass(frozen=True, eq=False)
class ClassPopulation:
    """Clients with labels: everything that their accuracy depends on.

    Two classes: P(y = 1 | x) = flips + (1 - 2 flips) sigmoid(x'theta_i), x ~ N(0, Sigma), theta_i =
    theta_0 + displacement. More classes: P(y | x) = softmax(x'W_i) with W_0'W_0 = centre^2 P,
    displacements with D'D = radius^2 P, P = I - 11'/classes.
    `datasets.synthetic(task="classification")` draws clients with the same words.

    radius: r, the length of the displacement theta_i - theta_0.
    centre: b, the length of the shared optimum theta_0.
    aspect: gamma = d/n, unknowns (for more classes: per class) per sample of one client.
    flips: the probability that a label is the other one; two classes only.
    classes: how many there are; tens take seconds, hundreds minutes.
    spectrum: eigenvalues of the features' covariance, from `fa.spectra`.
    shift_power, shift_weights: how the displacement lies in the covariance, as in `Population`.
    centre_power, centre_weights: the same for theta_0.

    >>> import fedasym as fa
    >>> world = fa.ClassPopulation(radius=1.1, centre=1.4, aspect=2.3)
    >>> world.shape, world.classes
    ((), 2)
    """

    task: ClassVar[str] = "classification"
    ranges: ClassVar[Mapping[str, str]] = RANGES
    radius: ArrayLike
    centre: ArrayLike
    aspect: ArrayLike
    flips: ArrayLike = 0.0
    classes: int = 2
    spectrum: Spectrum = field(default_factory=identity)
    shift_power: ArrayLike = 0.0
    shift_weights: ArrayLike | None = None
    centre_power: ArrayLike = 0.0
    centre_weights: ArrayLike | None = None

    def __post_init__(self) -> None:
        for name in RANGES:
            most = MOST_FLIPS if name == "flips" else np.inf
            object.__setattr__(self, name, check_values(name, getattr(self, name), RANGES, most))
        object.__setattr__(self, "classes", check_class_count(self.classes))
        if self.classes > 2 and np.any(np.asarray(self.flips) > 0):
            raise NoFormula(
                f"flips is {describe_values(self.flips)} with {self.classes} classes: flipped"
                " labels are derived for two; give flips=0, classes=2, or train on"
                " datasets.synthetic, which draws them"
            )
        if self.spectrum is None:
            object.__setattr__(self, "spectrum", identity())
        if not isinstance(self.spectrum, Spectrum):
            raise InvalidInput(
                f"spectrum is {self.spectrum!r}: make one with fedasym.spectra, such as"
                " spectra.ar1(0.5)"
            )
        for owner in ("shift", "centre"):
            power, weights = getattr(self, f"{owner}_power"), getattr(self, f"{owner}_weights")
            object.__setattr__(
                self, f"{owner}_weights", check_energies(owner, power, weights, self.spectrum)
            )
        numbers = {name: getattr(self, name) for name in RANGES}
        object.__setattr__(
            self, "_shape", common_shape(numbers, self.share("shift"), self.share("centre"))
        )
        if (
            self.classes == 2
        ):  # the limits for more have their own, lower bound, where they are computed
            self._check_steepness()

    def _check_steepness(self) -> None:
        """Refuse logits that no grid follows."""
        with np.errstate(over="ignore"):
            steepest = float(np.max(self.energies.rho, initial=0.0))
        if not steepest <= STEEPEST:
            raise InvalidInput(
                f"radius is {describe_values(self.radius)} and centre is"
                f" {describe_values(self.centre)}: logits then have a standard deviation of"
                f" {steepest:.6g}, and limits are computed up to {STEEPEST:.0f}, where chance"
                " decides less than a label in a thousand; give smaller ones"
            )

    def share(self, owner: str) -> Array:
        """The share of the energy along each atom; last axis = atoms."""
        return energy_shares(
            owner, getattr(self, f"{owner}_power"), getattr(self, f"{owner}_weights"), self.spectrum
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The common shape of the numbers; () for a single world."""
        shape: tuple[int, ...] = self._shape  # type: ignore[attr-defined]
        return shape

    @cached_property
    def energies(self) -> Energies:
        """What the formulas see: atoms, shares, energies of theta_0 and displacement in each."""
        b, r = (
            np.asarray(getattr(self, name), dtype=float)[..., None] for name in ("centre", "radius")
        )
        one = Energies(
            self.spectrum.values,
            self.spectrum.weights,
            b**2 * self.share("centre"),
            r**2 * self.share("shift"),
        )
        return one.broadcast(self.shape)

    @property
    def isotropic(self) -> bool:
        """Whether neither theta_0 nor the displacement has a preferred direction."""
        h = self.spectrum.weights
        return self.spectrum.scale is not None or all(
            bool(np.all(self.share(each) == h)) for each in ("shift", "centre")
        )

    def at(self, index: tuple[int, ...]) -> ClassPopulation:
        """One world of a grid."""
        picked: dict[str, Any] = {
            name: float(np.broadcast_to(np.asarray(getattr(self, name)), self.shape)[index])
            for name in RANGES
            if not name.endswith("power")
        }
        for owner in ("shift", "centre"):
            share = self.share(owner)
            picked |= {
                f"{owner}_power": 0.0,
                f"{owner}_weights": np.broadcast_to(share, (*self.shape, share.shape[-1]))[index],
            }
        return replace(self, **picked)

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """What identifies the population."""
        numbers = tuple(
            np.asarray(getattr(self, name)).tobytes()
            for name in ("radius", "centre", "aspect", "flips")
        )
        shares = tuple(self.share(owner).tobytes() for owner in ("shift", "centre"))
        return (*numbers, self.classes, self.shape, self.spectrum.key, *shares)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClassPopulation) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def facts(self, without: Collection[str | None] = ()) -> list[str]:
        """What it is, in a few words each, but for the numbers that are named."""
        numbers = {name: getattr(self, name) for name in ("radius", "centre", "aspect")}
        if np.any(np.asarray(self.flips) > 0):
            numbers["flips"] = self.flips
        parts = [
            f"{name} {describe_values(value)}"
            for name, value in numbers.items()
            if name not in without
        ]
        parts += [f"{self.classes} classes", f"{self.spectrum.name} covariance"]
        if not self.isotropic:
            parts.append("aligned optima")
        return parts

    def __str__(self) -> str:
        return " · ".join(self.facts())


def check_class_count(classes: Any) -> int:
    """How many classes: a whole number from 2 to 200."""
    try:
        whole = int(classes)
        good = whole == classes and not isinstance(classes, bool) and whole >= 2
    except (TypeError, ValueError, OverflowError):
        good = False
    if not good:
        raise InvalidInput(f"classes is {classes!r}: it must be a whole number of at least 2")
    if whole > MOST_CLASSES:
        raise NoFormula(
            f"classes is {whole}: the softmax limits are computed for up to {MOST_CLASSES}; give"
            " fewer, or train on datasets.synthetic"
        )
    return whole
