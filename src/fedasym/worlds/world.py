"""What a world is to the verbs, and the numbers of worlds at the door: those of `Population` and `ClassPopulation` alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike

from fedasym.core.arrays import MOST, Array, floats
from fedasym.core.errors import InvalidInput
from fedasym.worlds.spectra import Spectrum, check_weights

LONGEST = 1e150  # a length, or a standard deviation, whose square floating-point numbers still hold


class World(Protocol):
    """A population of clients, or a grid of them; what the verbs ask of it before they look at its labels.

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


def check_values(name: str, value: ArrayLike, ranges: Mapping[str, str], most: float = np.inf) -> float | Array:
    """A number or array of numbers in its allowed range, which `ranges` has in words, as float or read-only float array."""
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
        raise InvalidInput(f"{name} is {array.max():g}: numbers hold the square of at most {LONGEST:g}; give a smaller one")
    if array.ndim == 0:
        return float(array)
    array.setflags(write=False)
    return array


def check_clients(clients: ArrayLike) -> Array | None:
    """A number of clients, at least 1, or an array of them; None where they are infinitely many."""
    given = floats(clients)
    m = np.array(np.nan) if given is None or given.size == 0 else given
    if np.all(m == np.inf):
        return None
    good = (m >= 1) & (m <= MOST) & (np.floor(m) == m)
    if not np.all(good):
        bad = m[~good].flat[0] if m.ndim else clients
        raise InvalidInput(f"clients is {bad}: it must be a whole number from 1 to 2^53; leave it out for infinitely many")
    return m


def check_energies(owner: str, power: ArrayLike, weights: ArrayLike | None, spectrum: Spectrum) -> Array | None:
    """The shares of energy that were given, one per atom, where any were."""
    if weights is None:
        return None
    name, array = f"{owner}_weights", floats(weights)
    if array is None:
        raise InvalidInput(f"{name} is {weights!r}: give one number per atom of the spectrum")
    if np.any(np.asarray(power) != 0):
        raise InvalidInput(f"{name} and {owner}_power are both given: give one of them")
    if array.ndim == 0 or array.shape[-1] != spectrum.values.size:
        raise InvalidInput(
            f"{name} has shape {array.shape}: its last axis must have {spectrum.values.size} entries, one per atom"
        )
    check_weights(name, array)
    array.setflags(write=False)
    return array


def shares(owner: str, power: ArrayLike, weights: ArrayLike | None, spectrum: Spectrum) -> Array:
    """The share of the energy along each atom, as given or proportional to h s^power; last axis = atoms."""
    if weights is not None:
        return np.asarray(weights)
    s, h = spectrum.values, spectrum.weights
    exponent = np.asarray(power, dtype=float)[..., None]
    if np.all(exponent == 0):
        return np.broadcast_to(h, (*exponent.shape[:-1], h.size))
    if np.any(exponent < 0) and np.any(s == 0):
        raise InvalidInput(f"{owner}_power is below 0 while the spectrum has zeros: give {owner}_weights instead")
    found = h * (s / s.max()) ** exponent  # scaled by the largest eigenvalue first: large powers would overflow
    return np.asarray(found / found.sum(-1, keepdims=True))


def common_shape(numbers: Mapping[str, ArrayLike | None], *energies: Array) -> tuple[int, ...]:
    """The shape of the grid of worlds that numbers and energies (last axis = atoms) span together."""
    given = {name: np.shape(value) for name, value in numbers.items() if value is not None}
    try:
        return np.broadcast_shapes(*given.values(), *(each.shape[:-1] for each in energies))
    except ValueError:
        shapes = ", ".join(f"{name} {shape}" for name, shape in given.items() if shape)
        raise InvalidInput(f"these arrays do not broadcast together: {shapes}; give shapes that do") from None


def describe_values(value: ArrayLike | None) -> str:
    """A number, or the range of an array, in a few characters."""
    if value is None or np.ndim(value) == 0:
        return "None" if value is None else f"{float(np.asarray(value)):g}"
    array = np.asarray(value, dtype=float)
    return f"{array.min():g} to {array.max():g}"
