"""A population, or a whole grid of them, as flat arrays: what the formulas take. Letters as in the paper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedasym.core.arrays import Array
from fedasym.worlds.population import Population
from fedasym.worlds.spectra import Spectrum

CRITICAL = 1e-12  # pooled samples that match the unknowns to within this share leave the shared model undetermined


@dataclass(frozen=True)
class Worlds:
    """Numbers of shape (P,), energies of shape (P, K) or (1, K) over the K atoms of one spectrum."""

    r2: Array  # radius^2, or the length of the optimum for methods that share nothing
    s2: Array  # noise^2
    gamma: Array  # aspect
    g: Array  # share of the displacement's (or optimum's) energy per atom
    spectrum: Spectrum

    @property
    def isotropic(self) -> bool:
        """Whether the energy is spread evenly over all directions, g = h."""
        return bool(np.all(self.g == self.spectrum.weights))

    @property
    def spread(self) -> Array:
        """sum_k g_k s_k, the loss per squared radius of not personalising at all."""
        return np.broadcast_to(self.g @ self.spectrum.values, self.r2.shape)

    def take(self, where: NDArray[np.bool_] | slice) -> Worlds:
        """Some of the worlds."""
        g = self.g if self.g.shape[0] == 1 else self.g[where]
        return Worlds(self.r2[where], self.s2[where], self.gamma[where], g, self.spectrum)


def flatten(population: Population, shape: tuple[int, ...], alone: bool = False) -> Worlds:
    """The worlds of a population broadcast to `shape`; `alone`: seen by a method that shares nothing."""

    def flat(value: object) -> Array:
        return np.broadcast_to(np.asarray(value, dtype=float), shape).ravel()

    energy = population.optimum if alone else population.displacement
    atoms = population.spectrum.values.size
    g = energy.reshape(1, atoms) if energy.ndim == 1 else np.broadcast_to(energy, (*shape, atoms)).reshape(-1, atoms)
    radius = population.norm if alone else population.radius
    return Worlds(flat(radius) ** 2, flat(population.noise) ** 2, flat(population.aspect), g, population.spectrum)


def centre_energy(shared: Worlds, alone: Worlds) -> Array | None:
    """Energy of theta_0 per atom, norm^2 - radius^2 direction by direction; None where no theta_0 has it."""
    energy = alone.r2[:, None] * alone.g - shared.r2[:, None] * shared.g
    return None if np.any(energy < -1e-12 * alone.r2[:, None]) else np.maximum(energy, 0)
