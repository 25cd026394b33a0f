"""Finitely many equal clients (section 5), for a member and for a new client: one `match` over the pairs of stages.

With fewer pooled samples than unknowns the shared model interpolates every client's samples (section 6.2): then all
methods that share agree on members, because nothing is left for a client to fit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedasym.algorithms import Algorithm, Average, Client, Descend, Flow, Interpolate, Keep, Meta, Moreau, Ridge
from fedasym.errors import NoFormula
from fedasym.theory.blup import blup_energy, blup_member
from fedasym.theory.limits import Parts, interpolated, kept, shrunk
from fedasym.theory.members import Member, membership
from fedasym.theory.paths import Filter, check_stable, stopped
from fedasym.theory.pooled import Groups, Pooled, pool
from fedasym.theory.ridges import bayes_ridge, best_ridge
from fedasym.theory.roots import lowest
from fedasym.theory.spectra import Array
from fedasym.theory.subordination import subordinate
from fedasym.theory.transforms import kappa, slack, sums
from fedasym.theory.worlds import Worlds

Answer = tuple[Array, Array, Array | None]  # bias, variance, ridge


def equal_clients(
    algorithm: Algorithm, world: Worlds, ridge: Array | None, clients: Array, member: bool, centre: Array | None
) -> Answer:
    """Risk of a pair of stages that share, at the given ridge or (None) the best.

    `centre`: energy of theta_0 per atom (P, K), which crowded federations need.
    """
    crowded = world.gamma * world.spectrum.rank >= clients
    bias, variance, used = (np.empty(world.r2.shape) for _ in range(3))
    for part in (crowded, ~crowded):
        if not np.any(part):
            continue
        some, lam, m = world.take(part), None if ridge is None else ridge[part], clients[part]
        if part is crowded:
            answer = crowded_clients(algorithm, some, lam, m, member, None if centre is None else centre[part])
        else:
            answer = spacious_clients(algorithm, some, lam, m, member)
        bias[part], variance[part] = answer[:2]
        used[part] = np.nan if answer[2] is None else answer[2]
    return bias, variance, used if isinstance(algorithm.personalise, Ridge) else None


def crowded_clients(
    algorithm: Algorithm, world: Worlds, ridge: Array | None, clients: Array, member: bool, centre: Array | None
) -> Answer:
    """Fewer pooled samples than unknowns: every method shares the minimum-norm interpolant of all samples."""
    pooled = pool(one_group(world, clients, centre))
    first = np.zeros(clients.size, dtype=int)
    if not member:
        return personalised(algorithm.personalise, world, ridge, *pooled.energy(first))
    return *pooled.member(first), bayes_ridge(world) if ridge is None else ridge


def spacious_clients(algorithm: Algorithm, world: Worlds, ridge: Array | None, clients: Array, member: bool) -> Answer:
    """More pooled samples than unknowns."""
    stage = algorithm.personalise
    if isinstance(stage, Interpolate) and np.all(world.gamma * world.spectrum.rank < 1):
        return *interpolated(world), None  # a client with enough samples of its own forgets where it started
    first = np.zeros(clients.size, dtype=int)
    match algorithm.server, stage:
        case Average(), Keep() | Interpolate() | Ridge():
            pooled = pool(one_group(world, clients, None))
            if not member:
                return personalised(stage, world, ridge, *pooled.energy(first))
            return averaged_member(stage, world, ridge, pooled, first)
        case Average(), Descend() | Flow():
            rows = [
                along(world.take(slice(i, i + 1)), filter_of(stage), clients[i : i + 1], member, None)
                for i in range(clients.size)
            ]
            bias, variance = (np.concatenate(column) for column in zip(*rows, strict=True))
            return bias, variance, None
        case Meta(), _:
            return *uncorrelated(algorithm, world, ridge, clients, member), None
        case Moreau(), Ridge():
            return moreau(algorithm, world, ridge, clients, member)
    raise NoFormula("there is no formula with finitely many clients: use clients=None")


def along(world: Worlds, filter_: Filter, clients: Array, member: bool, centre: Array | None) -> Parts:
    """Early-stopped fine-tuning of the averaged model in one world, bias and variance per stopping time."""
    crowded = bool(world.gamma[0] * world.spectrum.rank >= clients[0])
    times = filter_.times.size
    if member and not crowded:
        s = world.spectrum.scale
        if s is None:
            raise NoFormula(
                "early stopping for a member of a finite federation has a formula only for uncorrelated features "
                "(spectra.identity()): use member=False, or clients=None"
            )
        check_stable(filter_, float(world.gamma[0]), world.spectrum)
        numbers = (np.full(times, float(x[0])) for x in (world.gamma, world.r2 * s, world.s2, clients))

        def keep(x: Array) -> Array:
            return np.stack(
                [Filter(filter_.times[i : i + 1], filter_.step).kept(s * x[i])[0] for i in range(times)]
            ).real

        return subordinate(np.ones_like, keep, *numbers, member=True)
    pooled = pool(one_group(world, clients, centre))
    first = np.zeros(1, dtype=int)
    if member:  # the shared model interpolates the member's samples: its gradient is zero
        bias, variance = pooled.member(first)
        return np.repeat(bias, times), np.repeat(variance, times)
    shift, blur = (over_atoms(energy, world) for energy in pooled.energy(first))
    away = Worlds(np.ones(1), world.s2, world.gamma, shift, world.spectrum)
    return stopped(away, filter_, blur[0])


def over_atoms(energy: Array, world: Worlds) -> Array:
    """Energy times share per atom, zero along atoms that samples cannot see."""
    out = np.zeros((energy.shape[0], world.spectrum.values.size))
    out[:, world.spectrum.seen] = energy * world.spectrum.positive[1]
    return out


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


def personalised(stage: Client, world: Worlds, ridge: Array | None, bias: Array, noise: Array) -> Answer:
    """A client stage from a shared model whose error has the given energy per seen direction, independent of the client."""
    return fine_tuned(stage, world, ridge, over_atoms(bias, world), over_atoms(noise, world))


def fine_tuned(stage: Client, world: Worlds, ridge: Array | None, shift: Array, blur: Array) -> Answer:
    """The same from energies times shares per atom: `shift` from displacements, `blur` from the others' noise."""
    one = np.ones_like(world.r2)
    away = Worlds(one, world.s2, world.gamma, shift, world.spectrum)
    noisy = Worlds(one, np.zeros_like(one), world.gamma, blur, world.spectrum)
    match stage:
        case Keep():
            parts, extra = kept(away), kept(noisy)[0]
        case Interpolate():
            parts, extra = interpolated(away), interpolated(noisy)[0]
        case Ridge():
            if ridge is None:
                ridge = best_ridge(replace(away, g=shift + blur))
            parts, extra = shrunk(away, ridge), shrunk(noisy, ridge)[0]
        case Descend() | Flow():
            rows = [stopped(away.take(slice(i, i + 1)), filter_of(stage), blur[i]) for i in range(one.size)]
            bias, variance = (np.concatenate(column) for column in zip(*rows, strict=True))
            return bias, variance, None
    return parts[0], parts[1] + extra, ridge


def averaged_member(stage: Client, world: Worlds, ridge: Array | None, pooled: Pooled, i: Array) -> Answer:
    """FedAvg, FTFA and RTFA for a member."""
    if isinstance(stage, Keep):
        return *pooled.member(i), None
    member = membership(pooled, i)
    if isinstance(stage, Interpolate):
        return *at_ridge(member, world, np.zeros_like(world.gamma)), None
    if ridge is None:
        ridge = best_member_ridge(member, world)
    parts = [np.array(part) for part in at_ridge(member, world, ridge)]
    endless = np.isinf(ridge)
    if np.any(endless):
        for part, value in zip(parts, pooled.member(i), strict=True):
            part[endless] = value[endless]
    return parts[0], parts[1], ridge


def at_ridge(member: Member, world: Worlds, ridge: Array) -> Parts:
    """A member's risk at a ridge; with ridge 0 and enough samples of its own it is plain least squares."""
    k = kappa(ridge, world.gamma, world.spectrum)
    own = k == 0
    k = np.where(own | np.isinf(k), 1.0, k)
    bias, variance = member.risk(k, sums(k, world.spectrum).df2)
    alone = interpolated(world)
    return np.where(own, alone[0], bias), np.where(own, alone[1], variance)


def best_member_ridge(member: Member, world: Worlds) -> Array:
    """Minimise a member's risk over kappa, where it is explicit, from ridge 0 upwards."""
    spectrum = world.spectrum
    start = kappa(np.zeros_like(world.gamma), world.gamma, spectrum)
    bayes = bayes_ridge(world)
    scale = spectrum.mean * (1 + world.gamma) + np.where(np.isfinite(bayes), bayes, 0)

    def loss(u: Array) -> Array:
        k = start + scale * np.exp(u)
        return np.asarray(sum(member.risk(k, sums(k, spectrum).df2)))

    u = lowest(loss, np.full(scale.shape, -16.0), np.full(scale.shape, 8.0))
    k = start + scale * np.exp(u)
    ridge = k * slack(sums(k, spectrum), world.gamma, spectrum)
    ridge = np.where(u < -15.6, 0.0, ridge)
    return np.where(np.isinf(bayes), np.inf, ridge)


def moreau(algorithm: Algorithm, world: Worlds, ridge: Array | None, clients: Array, member: bool) -> Answer:
    """pFedMe: the BLUP at ridge lambda* for any covariance, any ridge for uncorrelated features.

    Without a given ridge a new client, too, gets lambda*: the ridge that the federation was trained with.
    """
    bayes = bayes_ridge(world)
    ridge = bayes if ridge is None else ridge
    endless = np.isinf(ridge)
    at_best = np.isclose(ridge, bayes, rtol=1e-12, atol=0) | (endless & np.isinf(bayes))
    if not np.all(at_best):
        if world.spectrum.scale is None:
            raise NoFormula(
                "with finitely many clients and correlated features there is a formula only at the best ridge "
                "noise^2 aspect / radius^2: leave ridge out, or use rtfa, or clients=None"
            )
        return *uncorrelated(algorithm, world, ridge, clients, member), ridge
    if not (world.isotropic or world.spectrum.scale is not None):
        raise NoFormula(
            "with finitely many clients there is a formula only for displacements without a preferred direction: "
            "use rtfa, or clients=None"
        )
    if member:
        return *blup_member(world, clients), ridge
    h = world.spectrum.weights
    s = np.where(world.spectrum.values > 0, world.spectrum.values, 1.0)
    shift, blur = (energy / s * h for energy in blup_energy(world, clients))
    return fine_tuned(algorithm.personalise, world, ridge, shift, blur)


def uncorrelated(algorithm: Algorithm, world: Worlds, lam: Array | None, clients: Array, member: bool) -> Parts:
    """Any pair of stages when the covariance is a multiple of the identity, by subordination."""
    s = world.spectrum.scale
    if s is None:
        raise NoFormula(
            "with finitely many clients there is a formula only for uncorrelated features (spectra.identity()): "
            "leave it out, or use clients=None"
        )
    stage = algorithm.personalise

    def weights(x: Array) -> Array:  # x: eigenvalues in units of s
        match algorithm.server:
            case Meta(step):
                return (1 - step * s * x) ** 2
            case Moreau():
                return 1 / (x + need(lam)[:, None] / s)
        return np.ones_like(x)

    def keep(x: Array) -> Array:
        match stage:
            case Interpolate():
                return np.where(x > 0, 0.0, 1.0)
            case Ridge():
                return need(lam)[:, None] / (s * x + need(lam)[:, None])
            case Descend() | Flow():
                for gamma in np.unique(world.gamma):
                    check_stable(filter_of(stage), float(gamma), world.spectrum)
                return filter_of(stage).kept(s * x.ravel()).real.reshape(x.shape)
        return np.ones_like(x)

    if lam is not None and np.any((lam <= 0) | np.isinf(lam)):
        raise NoFormula("with finitely many clients the ridge must be above 0 and finite: give such a one, or none")
    return subordinate(weights, keep, world.gamma, world.r2 * s, world.s2, clients, member)


def need(ridge: Array | None) -> Array:
    """The ridge of a stage that has one."""
    if ridge is None:
        raise NoFormula("this pair of stages needs a given ridge: pass ridge=...")
    return ridge


def filter_of(stage: Descend | Flow) -> Filter:
    """The filter of an early-stopped client stage."""
    if isinstance(stage, Flow):
        return Filter(np.array([float(stage.time)]), None)
    return Filter(np.array([float(stage.steps)]), float(stage.step))
