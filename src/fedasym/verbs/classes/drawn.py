"""Clients drawn from a `ClassPopulation` at a finite dimension: optima of exact energy, Gaussian features, labels.

theta_0 and each displacement have exactly the population's energy in every atom and are orthogonal there, as in the limit; what
is left between a drawn client and the limit is of order 1/dimension, and the luck of the draw.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput
from fedasym.exact.draws import apportion as apportioned
from fedasym.exact.draws import seeded_generator as seeded
from fedasym.theory.classes.softmax import contrasts
from fedasym.worlds.classes import ClassPopulation
from fedasym.worlds.spectra import Spectrum

CENTRE, CLIENT, NEWCOMER = 0, 1, 2  # roles in a path of seeds


@dataclass(frozen=True, eq=False)
class Layout:
    """A population over whole directions and whole samples; `world` is exactly what is drawn."""

    world: ClassPopulation
    room: NDArray[np.intp]  # directions of each atom
    n: int

    @property
    def s(self) -> Array:
        """The eigenvalue of each direction."""
        return np.repeat(self.world.spectrum.values, self.room)

    @property
    def K(self) -> int:
        """Columns of a model: 1 for two classes, else the contrasts of the classes."""
        return 1 if self.world.classes == 2 else self.world.classes - 1


@dataclass(frozen=True, eq=False)
class Client:
    """Features, labels, and the truth: models are (d, K) in contrasts of the classes; two classes have labels -1 and +1.

    Y: (n, 1) of -1 and +1 for two classes, else one-hot labels (n, C).
    """

    X: Array
    Y: Array
    truth: Array
    s: Array


def laid_out(world: ClassPopulation, dimension: int) -> Layout:
    """The population that this many directions can hold."""
    gamma = float(np.asarray(world.aspect))
    n = round(dimension / gamma)
    if n < 2:
        least = int(np.ceil(1.5 * gamma))
        raise InvalidInput(
            f"dimension is {dimension}: with aspect {gamma:g} a client has {n} samples; give dimension of at least {least}"
        )
    room = apportioned(world.spectrum.weights, dimension)
    kept = room > 0
    columns = 2 * (1 if world.classes == 2 else world.classes - 1)
    if np.any(room[kept] < columns):
        raise InvalidInput(
            f"dimension is {dimension}: an eigenvalue would have {room[kept].min()} directions, and the optima need {columns}; "
            "give a larger dimension, or a spectrum of fewer eigenvalues (spectra.atoms)"
        )
    shares = {owner: world.share(owner)[kept] for owner in ("shift", "centre")}
    weights: dict[str, Any] = {f"{owner}_weights": share / share.sum() for owner, share in shares.items()}
    if np.array_equal(shares["shift"], world.spectrum.weights[kept]):
        weights["shift_weights"] = room[kept] / dimension
    if np.array_equal(shares["centre"], world.spectrum.weights[kept]):
        weights["centre_weights"] = room[kept] / dimension
    exact = Spectrum(world.spectrum.values[kept], room[kept] / dimension, world.spectrum.name)
    return Layout(
        replace(world, aspect=dimension / n, spectrum=exact, shift_power=0.0, centre_power=0.0, **weights), room[kept], n
    )


def shared_optimum(layout: Layout, seed: int, trial: int) -> Array:
    """theta_0: (d, K) with columns at right angles and the exact energy in every atom."""
    rng = seeded(seed, trial, CENTRE)
    return stacked(layout, layout.world.energies.e0, rng, None)


def stacked(layout: Layout, energy: Array, rng: np.random.Generator, away: Array | None) -> Array:
    """A model of this energy in each atom, of random direction there; at right angles to the columns of `away`."""
    out = np.zeros((int(layout.room.sum()), layout.K))
    ends = np.cumsum(layout.room)
    for k, (end, size) in enumerate(zip(ends, layout.room, strict=True)):
        rows = slice(end - size, end)
        G = rng.standard_normal((size, layout.K))
        if away is not None and (known := away[rows]).any():
            basis = np.linalg.qr(known)[0]
            G -= basis @ (basis.T @ G)
        out[rows] = np.sqrt(energy[k]) * np.linalg.qr(G)[0]
    return out


def client(layout: Layout, theta0: Array, rng: np.random.Generator) -> Client:
    """One client: its displacement, features and labels."""
    world = layout.world
    truth = theta0 + stacked(layout, world.energies.ed, rng, theta0)
    X = rng.standard_normal((layout.n, truth.shape[0])) * np.sqrt(layout.s)
    if world.classes == 2:
        flips = float(np.asarray(world.flips))
        p = flips + (1 - 2 * flips) * expit(X @ truth)
        return Client(X, np.where(rng.random(p.shape) < p, 1.0, -1.0), truth, layout.s)
    p = softmax(X @ truth @ contrasts(world.classes).T, axis=1)
    label = (rng.random((layout.n, 1)) > p.cumsum(1)[:, :-1]).sum(1)
    return Client(X, np.eye(world.classes)[label], truth, layout.s)
