"""The theory lens: exact limits of each client's test loss, in NumPy and float64. Here are those
for infinitely many clients (theorems 1 to 4 and corollary 1 of the paper, corrected; one function
each); `finite` and `pooled` are for few clients, `rounds` for few rounds, `classes` for classes.

In the limit only the client stage matters, and whether anything was shared: the server stage does
not appear here, and that is the finding. `Worlds` is a population, or a grid of them, as flat
arrays with the paper's letters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedasym.algorithms.methods import Descend, Flow
from fedasym.algorithms.stages import ClientStage, Objective
from fedasym.core.numbers import Array
from fedasym.theory.roots import find_roots
from fedasym.theory.transforms import CHUNK, kappa, kappa_edges, kappa_slope_from, slack, sums_at
from fedasym.worlds import Population
from fedasym.worlds.spectra import Spectrum

if TYPE_CHECKING:
    from fedasym.theory.filters import DescentFilter

# pooled samples that match the unknowns to within this share leave the shared model undetermined
CRITICAL = 1e-12


@dataclass(frozen=True)
class Worlds:
    """Numbers of shape (P,), energies (P, K) or (1, K) over the K atoms of one spectrum."""

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
    """A population's worlds broadcast to `shape`; `alone`: for a method that shares nothing."""

    def broadcast_flat(value: object) -> Array:
        return np.broadcast_to(np.asarray(value, dtype=float), shape).ravel()

    energy = population.optimum if alone else population.displacement
    atoms = population.spectrum.values.size
    g = (
        energy.reshape(1, atoms)
        if energy.ndim == 1
        else np.broadcast_to(energy, (*shape, atoms)).reshape(-1, atoms)
    )
    radius = population.norm if alone else population.radius
    return Worlds(
        broadcast_flat(radius) ** 2,
        broadcast_flat(population.noise) ** 2,
        broadcast_flat(population.aspect),
        g,
        population.spectrum,
    )


def centre_energy(shared: Worlds, alone: Worlds) -> Array | None:
    """Energy of theta_0 per atom, norm^2 - radius^2 by direction; None where none has it."""
    energy = alone.r2[:, None] * alone.g - shared.r2[:, None] * shared.g
    return None if np.any(energy < -1e-12 * alone.r2[:, None]) else np.maximum(energy, 0)


Parts = tuple[Array, Array]  # bias, variance


def shared_limit(world: Worlds) -> Parts:
    """The shared model itself: B = r^2 sum g s, V = 0 (corollary 1)."""
    return world.r2 * world.spread, np.zeros_like(world.r2)


def interpolant_limit(world: Worlds) -> Parts:
    """The nearest interpolant, or least squares: `ridge_limit` at ridge 0 (theorems 1 and 3)."""
    return ridge_limit(world, np.zeros_like(world.r2))


def ridge_limit(world: Worlds, ridge: Array) -> Parts:
    """Ridge towards the shared model (theorems 2 and 4), equation (3):

    B = r^2 kappa' kappa^2 sum g s/(s+kappa)^2,   V = sigma^2 aspect df2(kappa) kappa' = sigma^2
    (kappa' - 1).
    """
    gamma, spectrum = world.gamma, world.spectrum
    k = kappa(ridge, gamma, spectrum)
    infinite = np.isinf(k)
    safe = np.where(infinite, spectrum.mean, k)
    at = sums_at(safe, spectrum)
    growth = kappa_slope_from(at, safe, np.where(infinite, 0, ridge), gamma, spectrum)
    with np.errstate(invalid="ignore"):
        bias = np.where(
            k == 0, 0.0, world.r2 * growth * safe * displacement_left(world, safe, at.mixed)
        )
        variance = np.where(world.s2 == 0, 0.0, world.s2 * gamma * at.df2 * growth)
    if np.any(infinite):
        bias[infinite], variance[infinite] = (part[infinite] for part in shared_limit(world))
    return bias, variance


def displacement_left(world: Worlds, k: Array, isotropic: Array) -> Array:
    """Kappa sum_k g s/(s+kappa)^2, the displacement that ridge leaves; `isotropic`: at g = h."""
    if world.isotropic:
        return isotropic
    s = world.spectrum.values
    if world.g.shape[0] > 1:
        s = np.broadcast_to(s, world.g.shape)
        g = world.g
        return np.asarray((g * s * k[:, None] / np.where(s > 0, s + k[:, None], 1.0) ** 2).sum(-1))
    seen = s > 0
    s = s[seen]
    g = world.g[0, seen]
    size = max(1, CHUNK // s.size)
    parts = [
        ((part / (s + part) ** 2) * s) @ g
        for part in np.split(k[:, None], range(size, k.size, size))
    ]
    return np.concatenate(parts)


PER_FOLD = 40  # grid points per factor e
BATCH = 1 << 17  # worlds x atoms searched at once


def best_ridge(world: Worlds) -> Array:
    """The best ridge in the limit: infinite where sharing is best, negative for some alignments."""
    if world.isotropic or world.spectrum.scale is not None:
        return bayes_ridge(world)
    size = max(1, BATCH // world.spectrum.values.size)
    parts = [search_ridge(world.take(slice(i, i + size))) for i in range(0, world.r2.size, size)]
    return np.concatenate(parts)


def bayes_ridge(world: Worlds) -> Array:
    """lambda* = sigma^2 aspect / r^2, r^2 the total energy; infinite if clients do not differ."""
    r2 = world.r2 * world.g.sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(r2 == 0, np.inf, world.s2 * world.gamma / r2)


def search_ridge(world: Worlds) -> Array:
    """Minimise the loss over kappa, where it is explicit, on a grid common to all worlds, then
    solve dR/dkappa = 0.

    The loss is R = N/D with N = r^2 kappa^2 sum g s/(s+kappa)^2 + sigma^2 aspect df2 and D = 1 -
    aspect df2. With P = sum g s^2/(s+kappa)^3 and Q the same for h,  dR/dkappa = 0  <=>  r^2 kappa
    P = aspect (sigma^2 + R) Q.
    """
    s, h = world.spectrum.positive
    g = world.g[:, world.spectrum.support]
    r2, s2, gamma = world.r2, world.s2, world.gamma
    floor = kappa_edges(gamma, world.spectrum)[0]

    def derivative(k: Array) -> Array:
        reach = s + k[:, None]
        near = (s / reach) ** 2
        df2 = near @ h
        drag = (g * s / reach**2).sum(-1)
        room = 1 - gamma * df2
        with np.errstate(divide="ignore", invalid="ignore"):  # unbounded at the lowest ridge
            loss = np.where(room > 0, (r2 * k**2 * drag + s2 * gamma * df2) / room, np.inf)
        return np.asarray(
            r2 * k * (g * near / reach).sum(-1) - gamma * (s2 + loss) * ((near / reach) @ h)
        )

    with np.errstate(divide="ignore", invalid="ignore"):
        far = gamma * (s2 + shared_limit(world)[0]) * (s**2 @ h) / (r2 * (g @ s**2))
    endless = ~np.isfinite(far)  # clients that do not differ, at least not where samples can see it
    top = s.max() + np.max(far, where=~endless, initial=0)
    low, high = np.log((floor + s.min()).min()), np.log(100 * top)
    grid = (
        np.exp(np.linspace(low, high, int(np.clip(PER_FOLD * (high - low), 400, 8000)))) - s.min()
    )
    reach = s + grid[:, None]
    df2, drag = (s / reach) ** 2 @ h, g @ (s / reach**2).T
    room = 1 - gamma[:, None] * df2
    loss = (r2[:, None] * grid**2 * drag + s2[:, None] * gamma[:, None] * df2) / np.where(
        room > 0, room, 1
    )
    place = np.argmin(np.where(room > 0, loss, np.inf), axis=1)
    left = np.maximum(grid[np.maximum(place - 1, 0)], floor * (1 + np.sign(floor) * 1e-15))
    right = grid[np.minimum(place + 1, grid.size - 1)]
    k = find_roots(derivative, left, right)
    return np.where(endless, np.inf, k * slack(sums_at(k, world.spectrum), gamma, world.spectrum))


RiskAtRidge = tuple[Array, Array, Array | None]  # bias, variance, ridge


def stage_limit(stage: ClientStage, world: Worlds, ridge: Array | None) -> RiskAtRidge:
    """Limiting risk at a ridge or (None) the best: theorems 1 to 4, corollary 1, or a filter."""
    match stage.linear_objective:
        case Objective.SHARED:
            return *shared_limit(world), None
        case Objective.OWN:
            return *interpolant_limit(world), None
        case Objective.PENALISED:
            best = best_ridge(world) if ridge is None else ridge
            return *ridge_limit(world, best), best
    return filter_limit(stage, world, ridge)


def filter_limit(
    stage: ClientStage, world: Worlds, ridge: Array | None, extra: Array | None = None
) -> RiskAtRidge:
    """Risk by world from what a stage keeps, at the given ridge or, if it has one, that of Bayes.

    extra: shared noise (P, K).
    """
    held = "ridge" in stage.settings()
    if ridge is None and stage.get("ridge") is not None:
        ridge = np.broadcast_to(np.asarray(stage.get("ridge"), dtype=float), world.r2.shape)
    used = bayes_ridge(world) if ridge is None else ridge
    rows = []
    for i in range(world.r2.size):
        one = world.take(slice(i, i + 1))
        noise = None if extra is None else extra[i]
        stage = stage.at(ridge=float(used[i])) if held else stage
        if isinstance(stage, Descend | Flow):
            from fedasym.theory.filters import stopped_risk  # limits alone should start quickly

            rows.append(stopped_risk(one, filter_of(stage), noise))
        else:
            from fedasym.theory.filters import filter_risk

            rows.append(filter_risk(stage, one, noise))
    return *join_worlds(rows), used if held else None


def filter_of(stage: Descend | Flow) -> DescentFilter:
    """The filter of an early-stopped client stage."""
    # only early stopping needs it: the limits alone should start quickly
    from fedasym.theory.filters import DescentFilter

    if isinstance(stage, Flow):
        return DescentFilter(np.array([float(stage.time)]), None)
    return DescentFilter(np.array([float(stage.steps)]), float(stage.local_step))


def join_worlds(rows: list[Parts]) -> Parts:
    """Bias and variance of several worlds, one after the other."""
    bias, variance = zip(*rows, strict=True)
    return np.concatenate(bias), np.concatenate(variance)
