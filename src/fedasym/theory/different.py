"""Clients that differ in aspect, noise, radius, weight or spectrum (section 6): one row per client, identical ones merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.algorithms import Algorithm, Average, Interpolate, Keep, Moreau, Ridge
from fedasym.core.arrays import SUM_TOLERANCE, Array
from fedasym.core.errors import InvalidInput, NoFormula
from fedasym.core.numbers import floats
from fedasym.theory.blup import blup_groups
from fedasym.theory.infinite import Answer
from fedasym.theory.members import averaged_member, unbounded
from fedasym.theory.newcomers import personalised
from fedasym.theory.pooled import Groups, Pooled, pool
from fedasym.theory.ridges import bayes_ridge
from fedasym.theory.worlds import Worlds, flatten
from fedasym.worlds.population import Population
from fedasym.worlds.spectra import Spectrum


@dataclass(frozen=True)
class Federation:
    """Distinct clients (groups), how many there are of each, the weight of one, and which group each row belongs to."""

    kinds: tuple[Population, ...]
    count: Array
    p: Array
    row: NDArray[np.intp]  # group of each client, in the order given
    precise: bool  # whether the weights are pFedMe's own: proportional to samples over noise^2


def merge(populations: Sequence[Population], clients: ArrayLike | None, weights: ArrayLike | str | None) -> Federation:
    """Merge identical clients of equal weight; `weights`: "samples", "uniform", "precision" or one number per entry.

    `clients`: how many clients each entry stands for (one each by default).
    """
    for i, population in enumerate(populations):
        if not isinstance(population, Population):
            raise InvalidInput(f"client {i} is {population!r}: give a list of Population")
        if population.shape != ():
            raise InvalidInput(f"client {i} holds arrays: give one Population with plain numbers per client")
    count = np.ones(len(populations)) if clients is None else floats(clients)
    if count is None or count.shape != (len(populations),) or not np.all(count >= 1) or not np.all(np.isfinite(count)):
        raise InvalidInput(
            f"clients is {clients!r}: give one count of at least 1 for each of the {len(populations)} populations"
        )
    share = client_weights(populations, count, weights)
    index: dict[tuple[object, ...], int] = {}
    row = np.empty(len(populations), dtype=int)
    for i, population in enumerate(populations):
        row[i] = index.setdefault((population.key, float(share[i])), len(index))
    first = np.unique(row, return_index=True)[1]
    total = np.asarray(np.bincount(row, weights=count), dtype=float)
    own = precision(populations)
    precise = weights is None or bool(np.allclose(share, own / max(float(own @ count), 1e-300), rtol=1e-9))
    return Federation(tuple(populations[i] for i in first), total, share[first], row, precise)


def precision(populations: Sequence[Population]) -> Array:
    """n_j / sigma_j^2 up to a common factor: the weights with which pFedMe is optimal."""
    noise2 = np.array([float(np.asarray(each.noise)) ** 2 for each in populations])
    samples = np.array([1 / float(np.asarray(each.aspect)) for each in populations])
    return samples / noise2 if np.all(noise2 > 0) else np.zeros(len(populations))


def client_weights(populations: Sequence[Population], count: Array, weights: ArrayLike | str | None) -> Array:
    """The weight of one client of each entry; count @ weights = 1."""
    samples = np.array([1 / float(np.asarray(each.aspect)) for each in populations])
    if weights is None or isinstance(weights, str):
        match weights:
            case None | "samples":
                share = samples
            case "uniform":
                share = np.ones_like(samples)
            case "precision":
                share = precision(populations)
                if not share.any():
                    raise InvalidInput('weights="precision" needs noise above 0 for every client')
            case _:
                raise InvalidInput(f'weights is {weights!r}: give "samples", "uniform", "precision" or one number per client')
        return np.asarray(share / (count @ share))
    given = floats(weights)
    if given is None:
        raise InvalidInput(f'weights is {weights!r}: give "samples", "uniform", "precision" or one number per client')
    share = given
    if share.shape != samples.shape:
        raise InvalidInput(f"weights has {share.size} entries for {samples.size} clients: give one for each")
    if not np.all(np.isfinite(share)) or np.any(share <= 0):
        bad = int(np.flatnonzero(~np.isfinite(share) | (share <= 0))[0])
        raise InvalidInput(f"weights[{bad}] is {share[bad]:g}: a weight must be finite and above 0; drop the client instead")
    total = float(count @ share)
    if abs(total - 1) > SUM_TOLERANCE:
        raise InvalidInput(f"weights sum to {total:g} over all clients: they must sum to 1; divide them by {total:g}")
    return np.asarray(share / (count @ share))


class Different:
    """The shared fits of a federation of clients that differ, and each algorithm's answer with one row per group."""

    def __init__(self, federation: Federation, member: bool) -> None:
        self.federation, self.member = federation, member
        self.h, self.values = common_directions([each.spectrum for each in federation.kinds])
        self.worlds = [flatten(each, ()) for each in federation.kinds]

    @cached_property
    def groups(self) -> Groups:
        """One federation, as the pooled formulas take it; directions that nobody sees left out."""
        kinds = self.federation.kinds
        visible = self.values > 0
        if np.any(visible != visible[0]):
            raise NoFormula(
                "the clients' covariances are singular along different directions, where no formula holds: "
                "give every client a positive eigenvalue there, however small, or leave the direction out"
            )
        seen = visible[0] & (self.h > 0)
        energy = np.array([spread_over(each.displacement, each.spectrum, self.h) for each in kinds])
        alone = [spread_over(each.optimum, each.spectrum, self.h) for each in kinds]
        centre = None
        if all(each.norm is not None for each in kinds):
            sides = [float(np.asarray(each.norm)) ** 2 * own for each, own in zip(kinds, alone, strict=True)]
            offs = [world.r2[0] * own for world, own in zip(self.worlds, energy, strict=True)]
            centre = common_centre(np.array(sides) - np.array(offs), self.federation.count)

        def row(values: list[float] | Array) -> Array:
            return np.asarray(values, dtype=float)[None]

        return Groups(
            count=row(self.federation.count),
            p=row(self.federation.p),
            gamma=row([world.gamma[0] for world in self.worlds]),
            s2=row([world.s2[0] for world in self.worlds]),
            r2=row([world.r2[0] for world in self.worlds]),
            S=self.values[None][..., seen],
            e=energy[None][..., seen],
            e0=None if centre is None else centre[None][:, seen],
            h=self.h[seen],
        )

    @cached_property
    def pooled(self) -> Pooled:
        """The pooled least-squares fit."""
        return pool(self.groups)

    def answer(self, algorithm: Algorithm, i: int, ridge: Array | None) -> Answer:
        """Bias, variance and ridge for a client of group i."""
        stage, at = algorithm.personalise, np.array([i])
        world = self._on_common_directions(i)
        groups = self.groups
        if groups.critical[0]:
            return unbounded(algorithm, world, ridge)
        crowded = groups.crowded
        match algorithm.server, stage:
            case Average(), Keep() | Interpolate() | Ridge():
                if not self.member:
                    return personalised(stage, world, ridge, *self.pooled.energy(at))
                if crowded:
                    return *self.pooled.member(at), bayes_ridge(world) if ridge is None else ridge
                return averaged_member(stage, world, ridge, self.pooled, at)
            case Moreau(), Ridge():
                return self._moreau(algorithm, world, ridge, i)
        raise NoFormula("there is no formula for clients that differ: use fedavg, ftfa, rtfa or pfedme")

    def _on_common_directions(self, i: int) -> Worlds:
        world = self.worlds[i]
        spectrum = Spectrum(self.values[i], self.h, self.federation.kinds[i].spectrum.name)
        energy = spread_over(self.federation.kinds[i].displacement, self.federation.kinds[i].spectrum, self.h)
        return Worlds(world.r2, world.s2, world.gamma, (energy * self.h)[None], spectrum)

    def _moreau(self, algorithm: Algorithm, world: Worlds, ridge: Array | None, i: int) -> Answer:
        groups = self.groups
        bayes = bayes_ridge(world)
        if groups.crowded:
            if not self.member:
                return personalised(
                    algorithm.personalise, world, bayes if ridge is None else ridge, *self.pooled.energy(np.array([i]))
                )
            return *self.pooled.member(np.array([i])), bayes if ridge is None else ridge
        if ridge is not None and not np.allclose(ridge, bayes, rtol=1e-12):
            raise NoFormula("for clients that differ there is a formula only at each client's best ridge: leave ridge out")
        if not self.federation.precise:
            raise NoFormula(
                "for clients that differ there is a formula only with weights proportional to samples over noise^2: "
                'leave weights out, or give weights="precision"'
            )
        if np.any(groups.s2 == 0) or np.any(groups.r2 == 0):
            raise NoFormula("clients that differ need noise and radius above 0 for every client")
        if not all(each.isotropic for each in self.federation.kinds):
            raise NoFormula("clients that differ need displacements without a preferred direction: use rtfa")
        bias, variance, centre, blur = blup_groups(groups)
        if self.member:
            return bias[:, i], variance[:, i], bayes
        return personalised(algorithm.personalise, world, bayes, centre + groups.r2[:, i, None], blur)


def common_directions(spectra: Sequence[Spectrum]) -> tuple[Array, Array]:
    """Shares of the joint directions and the eigenvalue of each client along each; multiples of the identity fit any."""
    described = [each for each in spectra if each.scale is None]
    if not described:
        return np.ones(1), np.array([[float(each.values[0])] for each in spectra])
    h = described[0].weights
    for each in described:
        if each.weights.shape != h.shape or not np.allclose(each.weights, h, rtol=1e-12, atol=0):
            raise NoFormula(
                "the clients' spectra do not list the same directions: give all of them atoms with the same weights, "
                "in the same order (spectra.eigenvalues or spectra.atoms); multiples of the identity fit any"
            )
    values = [np.full(h.shape, each.values[0]) if each.scale is not None else each.values for each in spectra]
    return h, np.array(values)


def spread_over(share: Array, spectrum: Spectrum, h: Array) -> Array:
    """Energy per direction, share/h, on the joint directions."""
    if spectrum.values.size != h.size:  # a multiple of the identity: no preferred direction
        return np.ones_like(h)
    return np.where(h > 0, share / np.where(h > 0, h, 1), 0.0)


def common_centre(each: Array, count: Array) -> Array:
    """Energy of theta_0 per direction, which all clients share: norm^2 - radius^2 must agree."""
    centre = (count @ each) / count.sum()
    scale = np.max(np.abs(centre)) + 1e-300
    if np.any(np.abs(each - centre) > 1e-6 * scale):
        raise InvalidInput(
            "norm^2 - radius^2, the squared length of the shared optimum, differs between clients: "
            "give each client norm = sqrt(radius^2 + the common squared length)"
        )
    return np.asarray(centre)
