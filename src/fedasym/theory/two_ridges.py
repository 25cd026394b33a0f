"""Two ridges: a ridge on the shared model beside the one on clients' differences (T1 to T6), and
any pair of stages where features are uncorrelated.

With the ridge mu, Q = sum_j p_j phi(S_j) + mu: samples that are fewer than the unknowns, or just as
many, are no special case any more. For the average, pooled ridge regression (equations 14, 15 and
the member's pencil with mu) covers any covariance and clients that differ. For pFedMe both ridges
at their best give the posterior mean of the mixed model in which theta_0 has a prior, and its risk
follows from the mixed-model equations for any covariance; off the best, and for other weights,
features must be uncorrelated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedasym.algorithms import Algorithm, Descend, Objective, ServerStage
from fedasym.core.errors import InvalidInput, MissingNorm, NoFormula
from fedasym.core.numbers import Array
from fedasym.theory import (
    Parts,
    RiskAtRidge,
    Worlds,
    bayes_ridge,
    filter_of,
    interpolant_limit,
    ridge_limit,
)
from fedasym.theory.filters import check_stable
from fedasym.theory.pooled import averaged_member, blup_groups, newcomer_risk, one_group, pool
from fedasym.theory.roots import find_minima
from fedasym.theory.transforms import (
    MOST_LAW_NODES,
    marchenko_pastur,
    sample_support,
    subordinate,
    sum_until_settled,
)

FURTHEST = 14.0  # how far, in log mu, the best ridge on the shared model is looked for
HIGHEST = 1e9  # a ridge this far above the mean eigenvalue leaves nothing of the shared model
POINTS = 57
TURNS = 4  # of searching mu and the clients' ridge in turn
LEAST_NOISE = 1e-14  # of the squared lengths: stands for none, whose limit it is
NEEDS_NORM = (
    "a ridge pulls the shared model towards zero, so that the length of the optimum matters: give"
    " norm, of at least radius"
)


def has_pooled_theorem(algorithm: Algorithm, member: bool) -> bool:
    """Whether pooled ridge regression covers the pair for any covariance."""
    known = algorithm.personalise.linear_objective in (
        Objective.SHARED,
        Objective.OWN,
        Objective.PENALISED,
    )
    return algorithm.server.weighs_alike and (known or not member)


def learns_together(algorithm: Algorithm) -> bool:
    """Whether shared and personal models minimise one objective, which has the posterior mean."""
    joint = algorithm.server.linear_objective is Objective.JOINT
    return joint and algorithm.personalise.linear_objective is Objective.PENALISED


def shared_ridges(algorithm: Algorithm, world: Worlds, clients: Array) -> Array:
    """The ridge on the shared model of each world; next to nothing for none if samples are few."""
    given = np.broadcast_to(
        np.asarray(algorithm.server.get("shared_ridge"), dtype=float), world.r2.shape
    )
    scarce = world.gamma * world.spectrum.rank >= clients * (1 - 1e-9)
    mean = world.spectrum.mean
    return np.asarray(np.clip(given, np.where(scarce, 1e-12 * mean, 0.0), HIGHEST * mean))


def posterior_ridge(world: Worlds, clients: Array, centre: Array) -> Array:
    """mu* = sigma^2 gamma/(m |theta_0|^2), with which pFedMe is the posterior mean."""
    with np.errstate(divide="ignore", invalid="ignore"):
        best = world.s2 * world.gamma / (clients * centre.sum(-1))
    return np.where(np.isnan(best), 0.0, np.minimum(best, HIGHEST * world.spectrum.mean))


def with_shared_ridge(
    algorithm: Algorithm,
    world: Worlds,
    ridge: Array | None,
    clients: Array,
    member: bool,
    centre: Array | None,
) -> Algorithm:
    """The algorithm with a ridge on its shared model for each world: the best, unless it has one.

    The clients' ridge, where it is to be the best as well, is searched in turn with it.
    """
    if centre is None:
        raise MissingNorm(NEEDS_NORM)
    server = algorithm.server
    if server.get("shared_ridge") is not None:
        return replace(
            algorithm, server=server.at(shared_ridge=shared_ridges(algorithm, world, clients))
        )
    if learns_together(algorithm) and ridge is None and server.get("ridge") is None:
        return replace(
            algorithm, server=server.at(shared_ridge=posterior_ridge(world, clients, centre))
        )
    penalised = algorithm.personalise.linear_objective is Objective.PENALISED
    mean = world.spectrum.mean
    noise = (world.s2 + world.r2 * world.spread) * world.gamma / clients
    middle = np.log(np.clip(noise / np.maximum(centre.sum(-1), 1e-300), 1e-9 * mean, 1e9 * mean))
    bayes = bayes_ridge(world)
    held = np.clip(np.where(np.isfinite(bayes), bayes, 1e6 * mean), 1e-6 * mean, 1e6 * mean)
    at = held if ridge is None else ridge
    found = algorithm
    for turn in range(TURNS if penalised and ridge is None else 1):

        def loss(u: Array, at: Array = at) -> Array:
            some = replace(algorithm, server=server.at(shared_ridge=np.exp(u)))
            lam = at if penalised else None
            return np.asarray(sum(shrunk_equal(some, world, lam, clients, member, centre)[:2]))

        reach = FURTHEST / (1 + 3 * turn)
        middle = find_minima(loss, middle - reach, middle + reach, points=POINTS)
        best = np.minimum(np.exp(middle), HIGHEST * mean)
        found = replace(algorithm, server=server.at(shared_ridge=best))
        if penalised and ridge is None:
            tuned = shrunk_equal(found, world, None, clients, member, centre)[2]
            assert tuned is not None
            at = np.clip(tuned, 1e-6 * mean, 1e6 * mean)
    return found


def shrunk_equal(
    algorithm: Algorithm,
    world: Worlds,
    ridge: Array | None,
    clients: Array,
    member: bool,
    centre: Array | None,
) -> RiskAtRidge:
    """Equal clients whose shared model has a ridge, `shared_ridge` by world: (T4), (T5), or for any
    covariance.
    """
    if centre is None:
        raise MissingNorm(NEEDS_NORM)
    mu = shared_ridges(algorithm, world, clients)
    first = np.zeros(clients.size, dtype=int)
    if has_pooled_theorem(algorithm, member):
        pooled = pool(one_group(world, clients, centre), mu)
        if member:
            return averaged_member(algorithm.personalise, world, ridge, pooled, first)
        return newcomer_risk(algorithm.personalise, world, ridge, *pooled.energy(first))
    if learns_together(algorithm):
        best = bayes_ridge(world)
        own = algorithm.server.get("ridge")
        tied = np.broadcast_to(best if own is None else own, best.shape)
        used = best if ridge is None else ridge
        wanted = posterior_ridge(world, clients, centre)
        together = [(used, best), (tied, used if own is None else best), (mu, wanted)]
        if all(np.allclose(one, other, rtol=1e-12, atol=0) for one, other in together):
            if not spreads_evenly(world, centre):
                raise NoFormula(
                    "with finitely many clients there is a formula only for displacements and a"
                    " shared optimum without preferred directions: use fedavg_ridge, or take"
                    ' method="simulate"'
                )
            return *posterior_risk(algorithm, world, clients, member, centre), best
        ridge = used
    elif ridge is None and algorithm.personalise.linear_objective is Objective.PENALISED:
        return weighted_risk(algorithm, world, None, clients, member, (mu, centre.sum(-1)))
    return *uncorrelated_risk(algorithm, world, ridge, clients, member, (mu, centre.sum(-1))), ridge


def spreads_evenly(world: Worlds, centre: Array) -> bool:
    """Whether neither clients' differences nor theta_0 prefer a direction."""
    if world.spectrum.scale is not None:
        return True
    even = centre.sum(-1, keepdims=True) * world.spectrum.weights
    return world.isotropic and bool(np.allclose(centre, even, rtol=1e-9, atol=0))


def posterior_risk(
    algorithm: Algorithm, world: Worlds, clients: Array, member: bool, centre: Array
) -> Parts:
    """Both ridges at their best: (T6) for any covariance, split as derivatives of the risk."""
    length = world.r2 * world.g.sum(-1) + centre.sum(-1)
    noise = np.maximum(world.s2, LEAST_NOISE * np.maximum(length, 1e-300))
    groups = one_group(replace(world, s2=noise), clients, centre)
    bias, variance, away, blur = blup_groups(groups, prior=True)
    if member:
        return bias[:, 0], np.where(world.s2 == 0, 0.0, variance[:, 0])
    energy = away + (groups.r2[..., None] * groups.e)[:, 0]
    lam = bayes_ridge(world)
    return newcomer_risk(algorithm.personalise, world, lam, energy, blur)[:2]


def endless_world(algorithm: Algorithm, world: Worlds, centre: Array | None) -> Worlds:
    """Infinitely many clients and a ridge that does not vanish: theta_0 (1 - mu/(f + mu)), f the
    mean of x b(x), is what they share, and the rest counts as displacement.
    """
    given = algorithm.server.get("shared_ridge")
    if given is None or not np.any(np.asarray(given) > 0):
        return world  # the best ridge vanishes with the number of samples
    if centre is None:
        raise MissingNorm(NEEDS_NORM)
    mu = np.broadcast_to(np.asarray(given, dtype=float), world.r2.shape)[:, None]
    s = world.spectrum.scale
    f = world.spectrum.values[None]
    if not algorithm.server.weighs_alike:
        if s is None:
            raise NoFormula(
                "with a ridge on the shared model there is a formula only for uncorrelated features"
                ' (spectra.identity()): leave shared_ridge out, or take method="simulate"'
            )
        weights = scaled_weights(algorithm.server, bayes_ridge(world), s)

        def rule(nodes: int) -> tuple[Array, Array]:
            law = marchenko_pastur(world.gamma, nodes)
            found = s * law.mean(law.x * weights(law.x))
            return found, np.abs(found)

        f = sum_until_settled(rule, MOST_LAW_NODES)[:, None]
    energy = world.r2[:, None] * world.g + (mu / (f + mu)) ** 2 * centre
    return replace(world, r2=np.ones_like(world.r2), g=energy)


def weighted_risk(
    algorithm: Algorithm,
    world: Worlds,
    ridge: Array | None,
    clients: Array,
    member: bool,
    shrunk: tuple[Array, Array] | None = None,
) -> RiskAtRidge:
    """Any other pair, by its weight and filter; a ridge that is not given is the best."""
    if not algorithm.has_ridge:
        return *uncorrelated_risk(algorithm, world, None, clients, member, shrunk), None
    if ridge is None and algorithm.personalise.linear_objective is not Objective.PENALISED:
        found = uncorrelated_risk(algorithm, world, None, clients, member, shrunk)
        return *found, bayes_ridge(world)
    if ridge is None:

        def loss(u: Array) -> Array:
            return np.asarray(
                sum(uncorrelated_risk(algorithm, world, np.exp(u), clients, member, shrunk))
            )

        centre = np.log(np.clip(bayes_ridge(world), 1e-8, 1e8))
        ridge = np.exp(find_minima(loss, centre - 12, centre + 12, points=60))
    return *uncorrelated_risk(algorithm, world, ridge, clients, member, shrunk), ridge


def uncorrelated_risk(
    algorithm: Algorithm,
    world: Worlds,
    lam: Array | None,
    clients: Array,
    member: bool,
    shrunk: tuple[Array, Array] | None = None,
) -> Parts:
    """Any pair of stages when the covariance is a multiple of the identity, by subordination.

    shrunk: a ridge on the shared model, and the energy |theta_0|^2 that it pulls at.
    """
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
        algorithm.personalise.fill_missing(ridge=ridge[:, None])
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
    match stage.linear_objective:
        case Objective.OWN:
            fitted: Array | None = interpolant_limit(unit)[1]
        case Objective.PENALISED if lam is not None:
            fitted = ridge_limit(unit, lam)[1]
        case _:
            fitted = None
    pulled = None if shrunk is None else (shrunk[0] / s, shrunk[1] * s)
    return subordinate(
        weights, keep, world.gamma, world.r2 * s, world.s2, clients, member, fitted, pulled
    )


def scaled_weights(server: ServerStage, ridge: Array, s: float) -> Callable[[Array], Array]:
    """The server's weight at eigenvalues in units of s; `ridge` where it has none of its own."""
    stage = server.fill_missing(ridge=ridge[:, None])

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
            f" clients here have, with {values[worst]:.3g}: below 0 the shared model is not a"
            " minimum; give a smaller step or other settings"
        )
