"""Finitely many clients, as a member or newcomer: equal (section 5) and different (section 6).

Theorems give the averaged model with a ridge for any covariance, and pFedMe at its best ridge; any
other pair follows from its weight and filter, for uncorrelated features, by subordination. With
fewer pooled samples than unknowns the shared model interpolates every client's samples (section
6.2): then all methods that share agree on members, because nothing is left for a client to fit.
Clients may differ in aspect, noise, radius, weight or spectrum: one row per client, identical ones
merged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.algorithms import (
    Algorithm,
    Average,
    Descend,
    Flow,
    Interpolate,
    Keep,
    Moreau,
    Objective,
    Ridge,
    ServerStage,
)
from fedasym.core.errors import InvalidInput, NoFormula
from fedasym.core.numbers import SUM_TOLERANCE, Array, floats
from fedasym.theory.contours import sample_support, subordinate
from fedasym.theory.filters import DescentFilter, check_stable, stopped_risk
from fedasym.theory.limits import (
    CRITICAL,
    Parts,
    RiskAtRidge,
    Worlds,
    bayes_ridge,
    filter_of,
    flatten,
    interpolant_limit,
    join_worlds,
    ridge_limit,
)
from fedasym.theory.members import (
    averaged_member,
    newcomer_risk,
    newcomer_risk_per_atom,
    spread_over_atoms,
    undetermined_risk,
)
from fedasym.theory.pooled import Groups, PooledSquares, blup_energy, blup_groups, blup_member, pool
from fedasym.theory.roots import find_minima
from fedasym.worlds.population import Population
from fedasym.worlds.spectra import Spectrum


def equal_clients(
    algorithm: Algorithm,
    world: Worlds,
    ridge: Array | None,
    clients: Array,
    member: bool,
    centre: Array | None,
) -> RiskAtRidge:
    """Risk of a pair of stages that share, at the given ridge or (None) the best.

    `centre`: energy of theta_0 per atom (P, K), which crowded federations need.
    """
    ratio = world.gamma * world.spectrum.rank / clients
    critical = np.abs(ratio - 1) < CRITICAL
    crowded = (ratio > 1) & ~critical
    bias, variance, used = (np.empty(world.r2.shape) for _ in range(3))
    for part in (crowded, critical, ~(crowded | critical)):
        if not np.any(part):
            continue
        some = world.take(part)
        lam = None if ridge is None else ridge[part]
        m = clients[part]
        if part is critical:
            answer = undetermined_risk(algorithm, some, lam)
        elif part is crowded:
            answer = interpolating_clients(
                algorithm, some, lam, m, member, None if centre is None else centre[part]
            )
        else:
            answer = determined_clients(algorithm, some, lam, m, member)
        bias[part], variance[part] = answer[:2]
        used[part] = np.nan if answer[2] is None else answer[2]
    return bias, variance, used if isinstance(algorithm.personalise, Ridge) else None


def interpolating_clients(
    algorithm: Algorithm,
    world: Worlds,
    ridge: Array | None,
    clients: Array,
    member: bool,
    centre: Array | None,
) -> RiskAtRidge:
    """Fewer pooled samples than unknowns: all methods share the minimum-norm interpolant."""
    pooled = pool(one_group(world, clients, centre))
    first = np.zeros(clients.size, dtype=int)
    if not member:
        return newcomer_risk(algorithm.personalise, world, ridge, *pooled.energy(first))
    return *pooled.member(first), bayes_ridge(world) if ridge is None else ridge


def determined_clients(
    algorithm: Algorithm, world: Worlds, ridge: Array | None, clients: Array, member: bool
) -> RiskAtRidge:
    """More pooled samples than unknowns."""
    stage = algorithm.personalise
    if isinstance(stage, Interpolate) and np.all(world.gamma * world.spectrum.rank < 1):
        # a client with enough samples of its own forgets where it started
        return *interpolant_limit(world), None
    first = np.zeros(clients.size, dtype=int)
    match algorithm.server, stage:
        case Average(), Keep() | Interpolate() | Ridge() if member:
            return averaged_member(
                stage, world, ridge, pool(one_group(world, clients, None)), first
            )
        case Average(), Descend() | Flow():
            rows = [
                stopped_risk_of_clients(
                    world.take(slice(i, i + 1)),
                    filter_of(stage),
                    clients[i : i + 1],
                    member,
                    None,
                    algorithm.server,
                )
                for i in range(clients.size)
            ]
            return *join_worlds(rows), None
        case Average(), _ if not member:
            return newcomer_risk(
                stage, world, ridge, *pool(one_group(world, clients, None)).energy(first)
            )
        case Moreau(), Ridge():
            return pfedme_risk(algorithm, world, ridge, clients, member)
    return weighted_risk(algorithm, world, ridge, clients, member)


def stopped_risk_of_clients(
    world: Worlds,
    filter_: DescentFilter,
    clients: Array,
    member: bool,
    centre: Array | None,
    server: ServerStage,
) -> Parts:
    """Early-stopped fine-tuning of a shared model in one world, per stopping time."""
    ratio = world.gamma[0] * world.spectrum.rank / clients[0]
    crowded = ratio > 1
    times = filter_.times.size
    if abs(ratio - 1) < CRITICAL:
        return np.full(times, np.inf), np.full(times, np.inf)
    averaged = server.objective is Objective.POOLED
    if not crowded and (member or not averaged):
        s = world.spectrum.scale
        if s is None:
            whose = "a member of a finite federation" if averaged else "this shared model"
            other = "ask for a new client" if averaged else "take fedavg's for a new client"
            raise NoFormula(
                f"early stopping for {whose} has a formula only for uncorrelated features"
                f" (spectra.identity()): {other}, or leave clients out"
            )
        weights = scaled_weights(server, bayes_ridge(world), s)
        check_server_weights(server, weights, world)
        check_stable(filter_, float(world.gamma[0]), world.spectrum)
        gamma, r2, s2, m = (
            np.full(times, float(x[0])) for x in (world.gamma, world.r2 * s, world.s2, clients)
        )

        def keep(x: Array) -> Array:
            each = [
                DescentFilter(filter_.times[i : i + 1], filter_.step).kept(s * x[i])[0]
                for i in range(times)
            ]
            return np.asarray(np.stack(each).real)

        return subordinate(weights, keep, gamma, r2, s2, m, member)
    pooled = pool(one_group(world, clients, centre))
    first = np.zeros(1, dtype=int)
    if member:  # the shared model interpolates the member's samples: its gradient is zero
        bias, variance = pooled.member(first)
        return np.repeat(bias, times), np.repeat(variance, times)
    shift, blur = (spread_over_atoms(energy, world) for energy in pooled.energy(first))
    away = Worlds(np.ones(1), world.s2, world.gamma, shift, world.spectrum)
    return stopped_risk(away, filter_, blur[0])


def one_group(world: Worlds, clients: Array, centre: Array | None) -> Groups:
    """The federations of equal clients of each world, directions that nobody sees left out."""
    seen = world.spectrum.seen
    s, h = world.spectrum.positive
    points = clients.size
    g = np.broadcast_to(world.g[:, seen], (points, s.size))

    def column(values: Array) -> Array:
        return values[:, None]

    return Groups(
        count=column(clients),
        p=column(1 / clients),
        gamma=column(world.gamma),
        s2=column(world.s2),
        r2=column(world.r2),
        S=np.broadcast_to(s, (points, 1, s.size)),
        e=(g / h)[:, None],
        e0=None if centre is None else centre[:, seen] / h,
        h=h,
    )


def pfedme_risk(
    algorithm: Algorithm, world: Worlds, ridge: Array | None, clients: Array, member: bool
) -> RiskAtRidge:
    """pFedMe: the BLUP at ridge lambda* for any covariance, any ridge for uncorrelated features.

    Without a given ridge a new client, too, gets lambda*: the ridge that the federation was trained
    with.
    """
    bayes = bayes_ridge(world)
    ridge = bayes if ridge is None else ridge
    endless = np.isinf(ridge)
    at_best = np.isclose(ridge, bayes, rtol=1e-12, atol=0) | (endless & np.isinf(bayes))
    if not np.all(at_best):
        if world.spectrum.scale is None:
            raise NoFormula(
                "with finitely many clients and correlated features there is a formula only at the"
                " best ridge noise^2 aspect / radius^2: leave ridge out, or use rtfa, or leave"
                " clients out"
            )
        return *uncorrelated_risk(algorithm, world, ridge, clients, member), ridge
    if not (world.isotropic or world.spectrum.scale is not None):
        raise NoFormula(
            "with finitely many clients there is a formula only for displacements without a"
            " preferred direction: use rtfa, or leave clients out"
        )
    if member:
        return *blup_member(world, clients), ridge
    h = world.spectrum.weights
    s = np.where(world.spectrum.values > 0, world.spectrum.values, 1.0)
    shift, blur = (energy / s * h for energy in blup_energy(world, clients))
    return newcomer_risk_per_atom(algorithm.personalise, world, ridge, shift, blur)


def weighted_risk(
    algorithm: Algorithm, world: Worlds, ridge: Array | None, clients: Array, member: bool
) -> RiskAtRidge:
    """Any other pair, by its weight and filter; a ridge that is not given is the best."""
    if not isinstance(algorithm.personalise, Ridge):
        return *uncorrelated_risk(algorithm, world, None, clients, member), None
    if ridge is None:

        def loss(u: Array) -> Array:
            return np.asarray(sum(uncorrelated_risk(algorithm, world, np.exp(u), clients, member)))

        centre = np.log(np.clip(bayes_ridge(world), 1e-8, 1e8))
        ridge = np.exp(find_minima(loss, centre - 12, centre + 12, points=60))
    return *uncorrelated_risk(algorithm, world, ridge, clients, member), ridge


def uncorrelated_risk(
    algorithm: Algorithm, world: Worlds, lam: Array | None, clients: Array, member: bool
) -> Parts:
    """Any pair of stages when the covariance is a multiple of the identity, by subordination."""
    s = world.spectrum.scale
    if s is None:
        raise NoFormula(
            "with finitely many clients there is a formula only for uncorrelated features"
            ' (spectra.identity()): leave it out, leave clients out, or take method="simulate"'
        )
    if lam is not None and np.any((lam <= 0) | np.isinf(lam)):
        raise NoFormula(
            "with finitely many clients the ridge must be above 0 and finite: give such a one, or"
            " none"
        )
    ridge = bayes_ridge(world) if lam is None else lam
    stage = (
        algorithm.personalise.filled(ridge=ridge[:, None])
        if lam is None
        else algorithm.personalise.at(ridge=lam[:, None])
    )
    if isinstance(stage, Descend):
        for gamma in np.unique(world.gamma):
            check_stable(filter_of(stage), float(gamma), world.spectrum)

    def keep(x: Array) -> Array:
        return np.asarray(np.broadcast_to(stage.keep(s * x), x.shape), dtype=float)

    weights = scaled_weights(algorithm.server, ridge, s)
    check_server_weights(algorithm.server, weights, world)
    unit = Worlds(
        np.zeros_like(world.r2), np.ones_like(world.s2), world.gamma, world.g, world.spectrum
    )
    match stage:
        case Interpolate():
            fitted: Array | None = interpolant_limit(unit)[1]
        case Ridge() if lam is not None:
            fitted = ridge_limit(unit, lam)[1]
        case _:
            fitted = None
    return subordinate(weights, keep, world.gamma, world.r2 * s, world.s2, clients, member, fitted)


def scaled_weights(server: ServerStage, ridge: Array, s: float) -> Callable[[Array], Array]:
    """The server's weight at eigenvalues in units of s; `ridge` where it has none of its own."""
    stage = server.filled(ridge=ridge[:, None])

    def weights(x: Array) -> Array:
        return np.asarray(np.broadcast_to(stage.weight(s * x), x.shape), dtype=float)

    return weights


def check_server_weights(
    server: ServerStage, weights: Callable[[Array], Array], world: Worlds
) -> None:
    """Refuse weights negative or not finite on clients' eigenvalues: no minimum would be left."""
    s = world.spectrum.scale or 1.0
    ends = np.array([sample_support(float(gamma), world.spectrum) for gamma in world.gamma]) / s
    share = np.linspace(0, 1, 65)
    x = ends[:, :1] + (ends[:, 1:] - ends[:, :1]) * share
    values = weights(np.maximum(x, 1e-12))
    if not np.all(np.isfinite(values)):
        raise InvalidInput(
            f"weight(x) of {type(server).__name__} is not finite on the clients' eigenvalues"
        )
    if np.any(values < 0):
        worst = np.unravel_index(np.argmin(values), values.shape)
        raise NoFormula(
            f"{type(server).__name__} weighs the eigenvalue {s * x[worst]:.3g}, which"
            f" clients here have, with {values[worst]:.3g}: below 0 the shared model is no minimum;"
            " give a smaller step or other settings"
        )


@dataclass(frozen=True)
class ClientGroups:
    """Distinct clients (groups), their counts, the weight of one, and each row's group."""

    kinds: tuple[Population, ...]
    count: Array
    p: Array
    row: NDArray[np.intp]  # group of each client, in the order given
    precise: bool  # whether the weights are pFedMe's own: proportional to samples over noise^2


def merge_clients(
    populations: Sequence[Population], clients: ArrayLike | None, weights: ArrayLike | str | None
) -> ClientGroups:
    """Merge identical clients; `weights`: "samples", "uniform", "precision" or a number per entry.

    `clients`: how many clients each entry stands for (one each by default).
    """
    for i, population in enumerate(populations):
        if not isinstance(population, Population):
            raise InvalidInput(f"client {i} is {population!r}: give a list of Population")
        if population.shape != ():
            raise InvalidInput(
                f"client {i} holds arrays: give one Population with plain numbers per client"
            )
    count = np.ones(len(populations)) if clients is None else floats(clients)
    if (
        count is None
        or count.shape != (len(populations),)
        or not np.all(count >= 1)
        or not np.all(np.isfinite(count))
    ):
        raise InvalidInput(
            f"clients is {clients!r}: give one count of at least 1 for each of the"
            f" {len(populations)} populations"
        )
    share = client_weights(populations, count, weights)
    index: dict[tuple[object, ...], int] = {}
    row = np.empty(len(populations), dtype=int)
    for i, population in enumerate(populations):
        row[i] = index.setdefault((population.key, float(share[i])), len(index))
    first = np.unique(row, return_index=True)[1]
    total = np.asarray(np.bincount(row, weights=count), dtype=float)
    own = precision_weights(populations)
    precise = weights is None or bool(
        np.allclose(share, own / max(float(own @ count), 1e-300), rtol=1e-9)
    )
    return ClientGroups(tuple(populations[i] for i in first), total, share[first], row, precise)


def precision_weights(populations: Sequence[Population]) -> Array:
    """n_j / sigma_j^2 up to a common factor: the weights with which pFedMe is optimal."""
    noise2 = np.array([float(np.asarray(each.noise)) ** 2 for each in populations])
    samples = np.array([1 / float(np.asarray(each.aspect)) for each in populations])
    return samples / noise2 if np.all(noise2 > 0) else np.zeros(len(populations))


def client_weights(
    populations: Sequence[Population], count: Array, weights: ArrayLike | str | None
) -> Array:
    """The weight of one client of each entry; count @ weights = 1."""
    samples = np.array([1 / float(np.asarray(each.aspect)) for each in populations])
    if weights is None or isinstance(weights, str):
        match weights:
            case None | "samples":
                share = samples
            case "uniform":
                share = np.ones_like(samples)
            case "precision":
                share = precision_weights(populations)
                if not share.any():
                    raise InvalidInput('weights="precision" needs noise above 0 for every client')
            case _:
                raise InvalidInput(
                    f'weights is {weights!r}: give "samples", "uniform", "precision" or one number'
                    " per client"
                )
        return np.asarray(share / (count @ share))
    given = floats(weights)
    if given is None:
        raise InvalidInput(
            f'weights is {weights!r}: give "samples", "uniform", "precision" or one number per'
            " client"
        )
    share = given
    if share.shape != samples.shape:
        raise InvalidInput(
            f"weights has {share.size} entries for {samples.size} clients: give one for each"
        )
    if not np.all(np.isfinite(share)) or np.any(share <= 0):
        bad = int(np.flatnonzero(~np.isfinite(share) | (share <= 0))[0])
        raise InvalidInput(
            f"weights[{bad}] is {share[bad]:g}: a weight must be finite and above 0; drop the"
            " client instead"
        )
    total = float(count @ share)
    if abs(total - 1) > SUM_TOLERANCE:
        raise InvalidInput(
            f"weights sum to {total:g} over all clients: they must sum to 1; divide them by"
            f" {total:g}"
        )
    return np.asarray(share / (count @ share))


class DifferentClients:
    """The shared fits of clients that differ, and each algorithm's answer, one row per group."""

    def __init__(self, federation: ClientGroups, member: bool) -> None:
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
                "the clients' covariances are singular along different directions, where no formula"
                " holds: give every client a positive eigenvalue there, however small, or leave the"
                " direction out"
            )
        seen = visible[0] & (self.h > 0)
        energy = np.array(
            [energy_along(each.displacement, each.spectrum, self.h) for each in kinds]
        )
        alone = [energy_along(each.optimum, each.spectrum, self.h) for each in kinds]
        centre = None
        if all(each.norm is not None for each in kinds):
            sides = [
                float(np.asarray(each.norm)) ** 2 * own
                for each, own in zip(kinds, alone, strict=True)
            ]
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
    def pooled(self) -> PooledSquares:
        """The pooled least-squares fit."""
        return pool(self.groups)

    def answer(self, algorithm: Algorithm, i: int, ridge: Array | None) -> RiskAtRidge:
        """Bias, variance and ridge for a client of group i."""
        stage = algorithm.personalise
        at = np.array([i])
        world = self._on_common_directions(i)
        groups = self.groups
        if groups.critical[0]:
            return undetermined_risk(algorithm, world, ridge)
        crowded = groups.crowded
        match algorithm.server, stage:
            case Average(), Keep() | Interpolate() | Ridge():
                if not self.member:
                    return newcomer_risk(stage, world, ridge, *self.pooled.energy(at))
                if crowded:
                    return *self.pooled.member(at), bayes_ridge(world) if ridge is None else ridge
                return averaged_member(stage, world, ridge, self.pooled, at)
            case Moreau(), Ridge():
                return self._moreau(algorithm, world, ridge, i)
        raise NoFormula(
            "there is no formula for clients that differ: use fedavg, ftfa, rtfa or pfedme"
        )

    def _on_common_directions(self, i: int) -> Worlds:
        world = self.worlds[i]
        spectrum = Spectrum(self.values[i], self.h, self.federation.kinds[i].spectrum.name)
        energy = energy_along(
            self.federation.kinds[i].displacement, self.federation.kinds[i].spectrum, self.h
        )
        return Worlds(world.r2, world.s2, world.gamma, (energy * self.h)[None], spectrum)

    def _moreau(
        self, algorithm: Algorithm, world: Worlds, ridge: Array | None, i: int
    ) -> RiskAtRidge:
        groups = self.groups
        bayes = bayes_ridge(world)
        if groups.crowded:
            if not self.member:
                return newcomer_risk(
                    algorithm.personalise,
                    world,
                    bayes if ridge is None else ridge,
                    *self.pooled.energy(np.array([i])),
                )
            return *self.pooled.member(np.array([i])), bayes if ridge is None else ridge
        if ridge is not None and not np.allclose(ridge, bayes, rtol=1e-12):
            raise NoFormula(
                "for clients that differ there is a formula only at each client's best ridge: leave"
                " ridge out"
            )
        if not self.federation.precise:
            raise NoFormula(
                "for clients that differ there is a formula only with weights proportional to"
                ' samples over noise^2: leave weights out, or give weights="precision"'
            )
        if np.any(groups.s2 == 0) or np.any(groups.r2 == 0):
            raise NoFormula("clients that differ need noise and radius above 0 for every client")
        if not all(each.isotropic for each in self.federation.kinds):
            raise NoFormula(
                "clients that differ need displacements without a preferred direction: use rtfa"
            )
        bias, variance, centre, blur = blup_groups(groups)
        if self.member:
            return bias[:, i], variance[:, i], bayes
        return newcomer_risk(
            algorithm.personalise, world, bayes, centre + groups.r2[:, i, None], blur
        )


def common_directions(spectra: Sequence[Spectrum]) -> tuple[Array, Array]:
    """Shares of joint directions and clients' eigenvalues along each; multiples of I fit any."""
    described = [each for each in spectra if each.scale is None]
    if not described:
        return np.ones(1), np.array([[float(each.values[0])] for each in spectra])
    h = described[0].weights
    for each in described:
        if each.weights.shape != h.shape or not np.allclose(each.weights, h, rtol=1e-12, atol=0):
            raise NoFormula(
                "the clients' spectra do not list the same directions: give all of them atoms with"
                " the same weights, in the same order (spectra.eigenvalues or spectra.atoms);"
                " multiples of the identity fit any"
            )
    values = [
        np.full(h.shape, each.values[0]) if each.scale is not None else each.values
        for each in spectra
    ]
    return h, np.array(values)


def energy_along(share: Array, spectrum: Spectrum, h: Array) -> Array:
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
