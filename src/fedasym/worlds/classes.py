"""A population of clients whose labels are classes: the model of `theory/classes`, P(y|x) = softmax(x'W_i), W_i around W_0.

Numbers may be arrays; they broadcast, so one `ClassPopulation` can hold a whole grid of worlds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput, NoFormula
from fedasym.worlds.energies import Energies
from fedasym.worlds.spectra import Spectrum, identity
from fedasym.worlds.world import check_energies, check_values, common_shape, describe_values, shares

RANGES = {
    "radius": "the distance of a client's optimum from the shared one; it must be finite and at least 0",
    "centre": "the length of the shared optimum; it must be finite and at least 0",
    "aspect": "unknowns per sample, d/n, and must be finite and above 0",
    "flips": "the probability that a label is flipped; it must be between 0 and 0.5, where labels are coin tosses",
    "shift_power": "the exponent of the displacement's alignment; it must be finite",
    "centre_power": "the exponent of the shared optimum's alignment; it must be finite",
}
MOST_FLIPS = 0.5
STEEPEST = 1000.0  # deviation of logits; nodes grow with it, and less than a label in a thousand is then left to chance
MOST_CLASSES = 200  # what the sampled expectations of `theory/classes` are made for


@dataclass(frozen=True, eq=False)
class ClassPopulation:
    """Clients with labels: everything that their accuracy depends on.

    Two classes: P(y = 1 | x) = flips + (1 - 2 flips) sigmoid(x'theta_i), x ~ N(0, Sigma), theta_i = theta_0 + displacement.
    More classes: P(y | x) = softmax(x'W_i) with W_0'W_0 = centre^2 P, displacements with D'D = radius^2 P, P = I - 11'/classes.
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
                f"flips is {describe_values(self.flips)} with {self.classes} classes: flipped labels are derived for two; "
                "give flips=0, classes=2, or train on datasets.synthetic, which draws them"
            )
        if self.spectrum is None:
            object.__setattr__(self, "spectrum", identity())
        if not isinstance(self.spectrum, Spectrum):
            raise InvalidInput(f"spectrum is {self.spectrum!r}: make one with fedasym.spectra, such as spectra.ar1(0.5)")
        for owner in ("shift", "centre"):
            power, weights = getattr(self, f"{owner}_power"), getattr(self, f"{owner}_weights")
            object.__setattr__(self, f"{owner}_weights", check_energies(owner, power, weights, self.spectrum))
        numbers = {name: getattr(self, name) for name in RANGES}
        object.__setattr__(self, "_shape", common_shape(numbers, self.share("shift"), self.share("centre")))
        if self.classes == 2:  # the limits for more have their own, lower bound, where they are computed
            self._check_steepness()

    def _check_steepness(self) -> None:
        """Refuse logits that no grid follows."""
        with np.errstate(over="ignore"):
            steepest = float(np.max(self.energies.rho, initial=0.0))
        if not steepest <= STEEPEST:
            raise InvalidInput(
                f"radius is {describe_values(self.radius)} and centre is {describe_values(self.centre)}: "
                "logits then have a standard deviation of "
                f"{steepest:.6g}, and limits are computed up to {STEEPEST:.0f}, where chance decides less than a label in a "
                "thousand; give smaller ones"
            )

    def share(self, owner: str) -> Array:
        """The share of the energy along each atom; last axis = atoms."""
        return shares(owner, getattr(self, f"{owner}_power"), getattr(self, f"{owner}_weights"), self.spectrum)

    @property
    def shape(self) -> tuple[int, ...]:
        """The common shape of the numbers; () for a single world."""
        shape: tuple[int, ...] = self._shape  # type: ignore[attr-defined]
        return shape

    @cached_property
    def energies(self) -> Energies:
        """What the formulas see: atoms, their shares, and the energy of theta_0 and of the displacement in each."""
        b, r = (np.asarray(getattr(self, name), dtype=float)[..., None] for name in ("centre", "radius"))
        one = Energies(self.spectrum.values, self.spectrum.weights, b**2 * self.share("centre"), r**2 * self.share("shift"))
        return one.broadcast(self.shape)

    @property
    def isotropic(self) -> bool:
        """Whether neither theta_0 nor the displacement has a preferred direction."""
        h = self.spectrum.weights
        return self.spectrum.scale is not None or all(bool(np.all(self.share(each) == h)) for each in ("shift", "centre"))

    def at(self, index: tuple[int, ...]) -> ClassPopulation:
        """One world of a grid."""
        picked: dict[str, Any] = {
            name: float(np.broadcast_to(np.asarray(getattr(self, name)), self.shape)[index])
            for name in RANGES
            if not name.endswith("power")
        }
        for owner in ("shift", "centre"):
            share = self.share(owner)
            picked |= {f"{owner}_power": 0.0, f"{owner}_weights": np.broadcast_to(share, (*self.shape, share.shape[-1]))[index]}
        return replace(self, **picked)

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """What identifies the population."""
        numbers = tuple(np.asarray(getattr(self, name)).tobytes() for name in ("radius", "centre", "aspect", "flips"))
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
        parts = [f"{name} {describe_values(value)}" for name, value in numbers.items() if name not in without]
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
            f"classes is {whole}: the softmax limits are computed for up to {MOST_CLASSES}; give fewer, or train on "
            "datasets.synthetic"
        )
    return whole
