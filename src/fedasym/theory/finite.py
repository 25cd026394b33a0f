"""Finitely many equal clients (section 5), for a member and for a new client.

Theorems give the averaged model with a ridge for any covariance, and pFedMe at its best ridge; any other pair follows from
its weight and filter, for uncorrelated features, by subordination. With fewer pooled samples than unknowns the shared model
interpolates every client's samples (section 6.2): then all methods that share agree on members, because nothing is left for
a client to fit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedasym.algorithms.average import Average, Descend, Flow, Interpolate, Keep
from fedasym.algorithms.penalties import Moreau, Ridge
from fedasym.algorithms.registry import Algorithm
from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput, NoFormula
from fedasym.theory.blup import blup_energy, blup_member
from fedasym.theory.contours import support
from fedasym.theory.infinite import Answer, filter_of, joined
from fedasym.theory.limits import Parts, interpolated, shrunk
from fedasym.theory.members import averaged_member, unbounded
from fedasym.theory.newcomers import fine_tuned, over_atoms, personalised
from fedasym.theory.paths import Filter, check_stable, stopped
from fedasym.theory.pooled import Groups, pool
from fedasym.theory.ridges import bayes_ridge
from fedasym.theory.roots import lowest
from fedasym.theory.subordination import subordinate
from fedasym.theory.worlds import CRITICAL, Worlds


def equal_clients(
    algorithm: Algorithm, world: Worlds, ridge: Array | None, clients: Array, member: bool, centre: Array | None
) -> Answer:
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
        some, lam, m = world.take(part), None if ridge is None else ridge[part], clients[part]
        if part is critical:
            answer = unbounded(algorithm, some, lam)
        elif part is crowded:
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
        case Average(), Keep() | Interpolate() | Ridge() if member:
            return averaged_member(stage, world, ridge, pool(one_group(world, clients, None)), first)
        case Average(), Descend() | Flow():
            rows = [
                along(world.take(slice(i, i + 1)), filter_of(stage), clients[i : i + 1], member, None)
                for i in range(clients.size)
            ]
            return *joined(rows), None
        case Average(), _ if not member:
            return personalised(stage, world, ridge, *pool(one_group(world, clients, None)).energy(first))
        case Moreau(), Ridge():
            return moreau(algorithm, world, ridge, clients, member)
    return weighed_clients(algorithm, world, ridge, clients, member)


def along(world: Worlds, filter_: Filter, clients: Array, member: bool, centre: Array | None) -> Parts:
    """Early-stopped fine-tuning of the averaged model in one world, bias and variance per stopping time."""
    ratio = world.gamma[0] * world.spectrum.rank / clients[0]
    crowded = ratio > 1
    times = filter_.times.size
    if abs(ratio - 1) < CRITICAL:
        return np.full(times, np.inf), np.full(times, np.inf)
    if member and not crowded:
        s = world.spectrum.scale
        if s is None:
            raise NoFormula(
                "early stopping for a member of a finite federation has a formula only for uncorrelated features "
                "(spectra.identity()): ask for a new client, or leave clients out"
            )
        check_stable(filter_, float(world.gamma[0]), world.spectrum)
        gamma, r2, s2, m = (np.full(times, float(x[0])) for x in (world.gamma, world.r2 * s, world.s2, clients))

        def keep(x: Array) -> Array:
            each = [Filter(filter_.times[i : i + 1], filter_.step).kept(s * x[i])[0] for i in range(times)]
            return np.asarray(np.stack(each).real)

        return subordinate(np.ones_like, keep, gamma, r2, s2, m, member=True)
    pooled = pool(one_group(world, clients, centre))
    first = np.zeros(1, dtype=int)
    if member:  # the shared model interpolates the member's samples: its gradient is zero
        bias, variance = pooled.member(first)
        return np.repeat(bias, times), np.repeat(variance, times)
    shift, blur = (over_atoms(energy, world) for energy in pooled.energy(first))
    away = Worlds(np.ones(1), world.s2, world.gamma, shift, world.spectrum)
    return stopped(away, filter_, blur[0])


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
                "noise^2 aspect / radius^2: leave ridge out, or use rtfa, or leave clients out"
            )
        return *uncorrelated(algorithm, world, ridge, clients, member), ridge
    if not (world.isotropic or world.spectrum.scale is not None):
        raise NoFormula(
            "with finitely many clients there is a formula only for displacements without a preferred direction: "
            "use rtfa, or leave clients out"
        )
    if member:
        return *blup_member(world, clients), ridge
    h = world.spectrum.weights
    s = np.where(world.spectrum.values > 0, world.spectrum.values, 1.0)
    shift, blur = (energy / s * h for energy in blup_energy(world, clients))
    return fine_tuned(algorithm.personalise, world, ridge, shift, blur)


def weighed_clients(algorithm: Algorithm, world: Worlds, ridge: Array | None, clients: Array, member: bool) -> Answer:
    """Any other pair, by its weight and filter; a ridge that is not given is the best."""
    if not isinstance(algorithm.personalise, Ridge):
        return *uncorrelated(algorithm, world, None, clients, member), None
    if ridge is None:

        def loss(u: Array) -> Array:
            return np.asarray(sum(uncorrelated(algorithm, world, np.exp(u), clients, member)))

        centre = np.log(np.clip(bayes_ridge(world), 1e-8, 1e8))
        ridge = np.exp(lowest(loss, centre - 12, centre + 12, points=60))
    return *uncorrelated(algorithm, world, ridge, clients, member), ridge


def uncorrelated(algorithm: Algorithm, world: Worlds, lam: Array | None, clients: Array, member: bool) -> Parts:
    """Any pair of stages when the covariance is a multiple of the identity, by subordination."""
    s = world.spectrum.scale
    if s is None:
        raise NoFormula(
            "with finitely many clients there is a formula only for uncorrelated features (spectra.identity()): "
            'leave it out, leave clients out, or take method="simulate"'
        )
    if lam is not None and np.any((lam <= 0) | np.isinf(lam)):
        raise NoFormula("with finitely many clients the ridge must be above 0 and finite: give such a one, or none")
    ridge = bayes_ridge(world) if lam is None else lam
    server = algorithm.server.filled(ridge=ridge[:, None])
    stage = algorithm.personalise.filled(ridge=ridge[:, None]) if lam is None else algorithm.personalise.at(ridge=lam[:, None])
    if isinstance(stage, Descend):
        for gamma in np.unique(world.gamma):
            check_stable(filter_of(stage), float(gamma), world.spectrum)

    def weights(x: Array) -> Array:  # x: eigenvalues in units of s
        return np.asarray(np.broadcast_to(server.weight(s * x), x.shape), dtype=float)

    def keep(x: Array) -> Array:
        return np.asarray(np.broadcast_to(stage.keep(s * x), x.shape), dtype=float)

    check_weights(algorithm, weights, world)
    unit = Worlds(np.zeros_like(world.r2), np.ones_like(world.s2), world.gamma, world.g, world.spectrum)
    match stage:
        case Interpolate():
            fitted: Array | None = interpolated(unit)[1]
        case Ridge() if lam is not None:
            fitted = shrunk(unit, lam)[1]
        case _:
            fitted = None
    return subordinate(weights, keep, world.gamma, world.r2 * s, world.s2, clients, member, fitted)


def check_weights(algorithm: Algorithm, weights: Callable[[Array], Array], world: Worlds) -> None:
    """Refuse weights that are negative or not finite where clients have eigenvalues: then the shared model is no minimum."""
    s = world.spectrum.scale or 1.0
    ends = np.array([support(float(gamma), world.spectrum) for gamma in world.gamma]) / s
    share = np.linspace(0, 1, 65)
    x = ends[:, :1] + (ends[:, 1:] - ends[:, :1]) * share
    values = weights(np.maximum(x, 1e-12))
    if not np.all(np.isfinite(values)):
        raise InvalidInput(f"weight(x) of {type(algorithm.server).__name__} is not finite on the clients' eigenvalues")
    if np.any(values < 0):
        worst = np.unravel_index(np.argmin(values), values.shape)
        raise NoFormula(
            f"{type(algorithm.server).__name__} weighs the eigenvalue {s * x[worst]:.3g}, which clients here have, with "
            f"{values[worst]:.3g}: below 0 the shared model is no minimum; give a smaller step or other settings"
        )
