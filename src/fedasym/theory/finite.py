"""Finitely many clients, as a member or newcomer: equal (section 5) and different (section 6).

Theorems give the averaged model with a ridge for any covariance, and pFedMe at its best ridge; any
other pair follows from its weight and filter, for uncorrelated features, by subordination. With
fewer pooled samples than unknowns the shared model interpolates every client's samples (section
6.2): then all methods that share agree on members, because nothing is left for a client to fit.
Clients may differ in aspect, noise, radius, weight or spectrum: one row per client, identical ones
merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.algorithms import Algorithm, ClientStage, Descend, Flow, Keep, Objective, ServerStage
from fedasym.core.errors import InvalidInput, MissingNorm, NoFormula
from fedasym.core.numbers import SUM_TOLERANCE, Array, floats
from fedasym.theory import (
    CRITICAL,
    Parts,
    RiskAtRidge,
    Worlds,
    bayes_ridge,
    filter_of,
    flatten,
    interpolant_limit,
    join_worlds,
)
from fedasym.theory.filters import DescentFilter, check_stable, stopped_risk
from fedasym.theory.pooled import (
    Groups,
    PooledSquares,
    averaged_member,
    blup_energy,
    blup_groups,
    blup_member,
    newcomer_risk,
    newcomer_risk_per_atom,
    one_group,
    pool,
    spread_over_atoms,
    undetermined_risk,
)
from fedasym.theory.roots import find_minima
from fedasym.theory.transforms import (
    MOST_LAW_NODES,
    marchenko_pastur,
    subordinate,
    subordinator,
    sum_until_settled,
)
from fedasym.theory.two_ridges import (
    FURTHEST,
    HIGHEST,
    NEEDS_NORM,
    POINTS,
    check_server_weights,
    has_pooled_theorem,
    learns_together,
    scaled_weights,
    shared_ridges,
    shrunk_equal,
    uncorrelated_risk,
    weighted_risk,
    with_shared_ridge,
)
from fedasym.worlds import Population
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

    `centre`: energy of theta_0 per atom (P, K), which underdetermined federations need.
    """
    if algorithm.server.shrinks:
        return shrunk_equal(algorithm, world, ridge, clients, member, centre)
    ratio = world.gamma * world.spectrum.rank / clients
    critical = np.abs(ratio - 1) < CRITICAL
    underdetermined = (ratio > 1) & ~critical
    bias, variance, used = (np.empty(world.r2.shape) for _ in range(3))
    for part in (underdetermined, critical, ~(underdetermined | critical)):
        if not np.any(part):
            continue
        some = world.take(part)
        lam = None if ridge is None else ridge[part]
        m = clients[part]
        if part is critical:
            answer = undetermined_risk(algorithm, some, lam)
        elif part is underdetermined:
            answer = interpolating_clients(
                algorithm, some, lam, m, member, None if centre is None else centre[part]
            )
        else:
            answer = determined_clients(algorithm, some, lam, m, member)
        bias[part], variance[part] = answer[:2]
        used[part] = np.nan if answer[2] is None else answer[2]
    return bias, variance, used if algorithm.has_ridge else None


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
    shared, own = (each.linear_objective for each in algorithm.stages)
    if own is Objective.OWN and np.all(world.gamma * world.spectrum.rank < 1):
        # a client with enough samples of its own forgets where it started
        return *interpolant_limit(world), None
    first = np.zeros(clients.size, dtype=int)
    match shared, own:
        case Objective.POOLED, (Objective.SHARED | Objective.OWN | Objective.PENALISED) if member:
            return averaged_member(
                stage, world, ridge, pool(one_group(world, clients, None)), first
            )
        case Objective.POOLED, _ if isinstance(stage, Descend | Flow):
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
        case Objective.POOLED, _ if not member:
            return newcomer_risk(
                stage, world, ridge, *pool(one_group(world, clients, None)).energy(first)
            )
        case Objective.JOINT, Objective.PENALISED:
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
    times = filter_.times.size
    mu = np.zeros(1)
    if server.shrinks:  # the ridge that is best before any step, unless one is given
        start = with_shared_ridge(
            Algorithm("start", server, Keep()), world, None, clients, member, centre
        )
        mu = shared_ridges(start, world, clients)
    underdetermined = ratio > 1 and not server.shrinks
    if abs(ratio - 1) < CRITICAL and not server.shrinks:
        return np.full(times, np.inf), np.full(times, np.inf)
    averaged = server.weighs_alike
    if not underdetermined and (member or not averaged):
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
                DescentFilter(filter_.times[i : i + 1], filter_.step).keep(s * x[i])[0]
                for i in range(times)
            ]
            return np.asarray(np.stack(each).real)

        shrunk = None
        if server.shrinks and centre is not None:
            shrunk = np.full(times, mu[0] / s), np.full(times, float(centre.sum()) * s)
        return subordinate(weights, keep, gamma, r2, s2, m, member, shrunk=shrunk)
    pooled = pool(one_group(world, clients, centre), mu if server.shrinks else None)
    first = np.zeros(1, dtype=int)
    if member:  # the shared model interpolates the member's samples: its gradient is zero
        bias, variance = pooled.member(first)
        return np.repeat(bias, times), np.repeat(variance, times)
    shift, blur = (spread_over_atoms(energy, world) for energy in pooled.energy(first))
    away = Worlds(np.ones(1), world.s2, world.gamma, shift, world.spectrum)
    return stopped_risk(away, filter_, blur[0])


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
        self._shared_ridges: dict[str, float] = {}

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
        if algorithm.server.shrinks:
            mu = np.atleast_1d(np.asarray(self.shared_ridge(algorithm), dtype=float))
            precise = self.federation.precise
            return shrunk_different(algorithm, groups, world, i, ridge, mu, self.member, precise)
        if groups.critical[0]:
            return undetermined_risk(algorithm, world, ridge)
        underdetermined = groups.underdetermined
        match algorithm.server.linear_objective, stage.linear_objective:
            case Objective.POOLED, Objective.SHARED | Objective.OWN | Objective.PENALISED:
                if not self.member:
                    return newcomer_risk(stage, world, ridge, *self.pooled.energy(at))
                if underdetermined:
                    return *self.pooled.member(at), bayes_ridge(world) if ridge is None else ridge
                return averaged_member(stage, world, ridge, self.pooled, at)
            case Objective.JOINT, Objective.PENALISED:
                return self._moreau(algorithm, world, ridge, i)
        raise NoFormula(
            "there is no formula for clients that differ: use fedavg, ftfa, rtfa or pfedme"
        )

    def shared_ridge(self, algorithm: Algorithm) -> float | None:
        """The ridge on the shared model of an algorithm that has one."""
        if not algorithm.server.shrinks:
            return None
        if algorithm.name not in self._shared_ridges:
            worlds = [self._on_common_directions(i) for i in range(len(self.worlds))]
            found = different_shared_ridge(algorithm, self.groups, worlds, self.member)
            self._shared_ridges[algorithm.name] = float(found[0])
        return self._shared_ridges[algorithm.name]

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
        if groups.underdetermined:
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


def different_shared_ridge(
    algorithm: Algorithm, groups: Groups, worlds: list[Worlds], member: bool
) -> Array:
    """The ridge on the shared model of clients that differ, (1,): as given, or the best."""
    if groups.e0 is None:
        raise MissingNorm(NEEDS_NORM)
    given = algorithm.server.get("shared_ridge")
    mean = float(groups.S.mean())
    energy = float((groups.e0[0] * groups.h).sum())
    if given is not None:
        least = np.atleast_1d(np.asarray(given, dtype=float))
        return np.asarray(np.clip(least, 1e-12 * mean, HIGHEST * mean))
    if learns_together(algorithm):
        precision = (groups.count / (groups.gamma * np.maximum(groups.s2, 1e-300))).sum(1)
        return np.asarray(np.minimum(1 / np.maximum(precision * energy, 1e-300), HIGHEST * mean))

    def loss(u: Array) -> Array:
        total = 0.0
        for i, world in enumerate(worlds):
            lam = np.clip(bayes_ridge(world), 1e-6 * mean, 1e6 * mean)
            risk = shrunk_different(algorithm, groups, world, i, lam, np.exp(u), member)
            total += float(groups.count[0, i] * (risk[0] + risk[1])[0])
        return np.array([total])

    noise = (groups.count * groups.p**2 * groups.gamma * (groups.s2 + groups.r2 * mean)).sum(1)
    middle = np.log(np.clip(noise / max(energy, 1e-300), 1e-9 * mean, 1e9 * mean))
    found = np.exp(find_minima(loss, middle - FURTHEST, middle + FURTHEST, points=POINTS))
    return np.minimum(found, HIGHEST * mean)


def shrunk_different(
    algorithm: Algorithm,
    groups: Groups,
    world: Worlds,
    i: int,
    ridge: Array | None,
    mu: Array,
    member: bool,
    precise: bool = True,
) -> RiskAtRidge:
    """A client of group i among clients that differ, whose shared model has the ridge mu.

    precise: whether clients count by samples over noise^2, as the posterior mean has them.
    """
    at = np.array([i])
    if has_pooled_theorem(algorithm, member):
        pooled = pool(groups, mu)
        if member:
            return averaged_member(algorithm.personalise, world, ridge, pooled, at)
        return newcomer_risk(algorithm.personalise, world, ridge, *pooled.energy(at))
    best = bayes_ridge(world)
    free = algorithm.server.get("ridge") is None and (
        ridge is None or np.allclose(ridge, best, rtol=1e-12)
    )
    free = free and algorithm.server.get("shared_ridge") is None
    even = groups.e0 is not None and np.ptp(groups.e0) <= 1e-9 * groups.e0.max()
    if not (learns_together(algorithm) and free and precise and even and np.all(groups.s2 > 0)):
        raise NoFormula(
            "for clients that differ there is a formula only for fedavg_ridge, and for pfedme_ridge"
            " at its best ridges, with weights by samples over noise^2, noise above 0 and a shared"
            ' optimum without preferred directions: leave ridges out, or take method="simulate"'
        )
    bias, variance, away, blur = blup_groups(groups, prior=True)
    if member:
        return bias[:, i], variance[:, i], best
    return newcomer_risk(
        algorithm.personalise, world, best, away + groups.r2[:, i, None] * groups.e[:, i], blur
    )


def uncorrelated_cross(
    server: ServerStage, own: ClientStage, world: Worlds, clients: Array
) -> Parts:
    """What the errors of a member's shared and own models have in common, uncorrelated features:

    r^2 int P u/(f + u) and sigma^2 gamma int (1 - P) p b/(f + u), P what the own model misses.
    """
    s = world.spectrum.scale
    if s is None or np.any(world.gamma * world.spectrum.rank >= clients):
        raise NoFormula(
            "a member's mixture has a formula only for uncorrelated features (spectra.identity())"
            " and more pooled samples than unknowns: ask for a new client, leave clients out, or"
            ' take method="simulate"'
        )
    weights = scaled_weights(server, bayes_ridge(world), s)
    check_server_weights(server, weights, world)

    def rule(nodes: int) -> tuple[Array, Array]:
        law = marchenko_pastur(world.gamma, nodes)
        b = weights(law.x)
        f, u = subordinator(b, law, clients)
        missed = np.asarray(own.keep(s * law.x), dtype=float)
        bias = law.mean(missed * u / (f + u))
        noise = world.gamma * law.mean((1 - missed) * b / (clients[:, None] * (f + u)))
        found = np.stack([bias, noise])
        return found, np.abs(found)

    bias, noise = sum_until_settled(rule, MOST_LAW_NODES)
    return world.r2 * s * bias, world.s2 * noise


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
