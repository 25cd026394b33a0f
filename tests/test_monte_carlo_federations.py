"""Finite federations against exact conditional expectations on drawn features: bias and variance,
each by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms import Descend, Flow, Meta

from .cases import draw_clients
from .montecarlo import (
    DRAWS,
    NOISE,
    RADIUS,
    SPECTRA,
    Array,
    Fit,
    Function,
    Plan,
    below_zero,
    check,
    descend,
    even,
    flow,
    growth,
    interpolate,
    meta,
    observe,
    risk_of,
    shrink,
    simulate,
    stopping,
)

FEW, MORE = (
    240,
    360,
)  # dimensions of the federations; more where few cannot tell a wrong prediction from the right one


@pytest.mark.parametrize("algorithm", ["fedavg", "ftfa", "rtfa", "maml", "pfedme"])
def test_simulation_against_the_objectives(algorithm):
    """The simulation's filters are the minimisers of the paper's objectives, on a few small clients
    that differ.
    """
    few = draw_clients(
        19, [8, 11, 20], np.linspace(0.3, 2, 12), p=[0.5, 0.2, 0.3], noise2=[0.3, 1, 2]
    )
    unit = np.full(12, 1 / 12)
    clients = [
        observe(X, few.s, unit, float(noise2)) for X, noise2 in zip(few.X, few.noise2, strict=True)
    ]
    weigh = {"maml": meta(0.1), "pfedme": shrink(0.7)}.get(algorithm, even)
    keep = {"fedavg": even, "rtfa": shrink(0.7), "pfedme": shrink(0.7)}.get(algorithm, interpolate)
    fit = Fit.of(clients, few.p, [weigh] * 3)
    for i in range(3):
        model = few.model(algorithm, i, lam=0.7, alpha=0.1)
        expected = few.mean_bias(model, i), few.variance(model)
        assert fit.member(i).risk(keep) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def plans_for(
    world: fa.Population,
) -> Iterator[tuple[str | fa.Algorithm, dict[str, float], Function, Function]]:
    """Algorithm, options, server weights and client filter of whatever has a formula with finitely
    many clients.
    """
    yield "fedavg", {}, even, even
    yield "ftfa", {}, even, interpolate
    for ridge in (below_zero(world), 0.3, 2.0):
        yield "rtfa", {"ridge": ridge}, even, shrink(ridge)
    if world.isotropic:
        best = best_ridge(world)
        yield "pfedme", {}, shrink(best), shrink(best)
    if world.spectrum.scale is not None:
        yield "pfedme", {"ridge": 0.25}, shrink(0.25), shrink(0.25)
        yield "maml", {"maml_step": 0.3}, meta(0.3), interpolate
        for algorithm, keep in zip(
            stopping(Descend(0.1, 4), Flow(0.7)), (descend(0.1, 4), flow(0.7)), strict=True
        ):
            yield algorithm, {}, even, keep
        yield fa.Algorithm("one-step MAML", Meta(0.2), Descend(0.2)), {}, meta(0.2), descend(0.2, 1)


def best_ridge(world: fa.Population) -> float:
    return float(world.noise) ** 2 * float(world.aspect) / float(world.radius) ** 2


FEDERATIONS = [
    ("scaled", 0, 2, 4),
    ("identity", 0, 0.5, 3),
    ("two atoms", 0, 2, 4),
    ("two atoms", 1, 3, 6),
    ("ar1", 0, 2, 5),
    ("ar1", 1, 0.5, 3),
    ("singular", 0, 3, 4),
]


@pytest.mark.parametrize(("name", "power", "aspect", "clients"), FEDERATIONS)
def test_equal_clients(name, power, aspect, clients):
    """Members and new clients of finite federations."""
    world = fa.Population(RADIUS, NOISE, aspect, spectrum=SPECTRA[name], shift_power=power)
    rows = list(plans_for(world))
    servers: dict[Function, dict[str, list[Function]]] = {}
    for i, (_, _, weigh, keep) in enumerate(rows):
        servers.setdefault(weigh, {})[str(i)] = [keep]
    plans: list[Plan] = [([weigh], filters) for weigh, filters in servers.items()]
    found = simulate([world], [clients], [1 / clients], plans, d=FEW, draws=DRAWS, seed=21)
    pooled = aspect * world.spectrum.rank / clients
    for i, (algorithm, options, _, keep) in enumerate(rows):
        ridge = options.get("ridge", 0 if keep is interpolate else np.inf)
        allowance = 1.5 * (growth(world, ridge) + pooled / (1 - pooled)) / FEW
        risks, more = (
            [
                risk_of(world, algorithm, clients=m, member=member, **options)
                for member in (True, False)
            ]
            for m in (clients, clients + 2)
        )
        forgets = (
            ridge <= 0 and aspect * world.spectrum.rank < 1
        )  # the shared model leaves (almost) no trace
        for who in (0, 1):
            wrong = (
                [] if forgets else [risks[1 - who], more[who], risk_of(world, algorithm, **options)]
            )
            check(found[str(i)][:, 0, who], risks[who], allowance, wrong)


@pytest.mark.parametrize(("name", "power"), [("two atoms", 1), ("ar1", 0)])
def test_new_client_stops_early(name, power):
    """Correlated features too, unlike members. Nothing is inverted but the pooled covariance, of
    aspect 1/2.
    """
    world, clients = fa.Population(RADIUS, NOISE, 2, spectrum=SPECTRA[name], shift_power=power), 4
    algorithms = stopping(Descend(0.06, 1), Descend(0.06, 6), Flow(0.8))
    filters = {
        each.name: [f]
        for each, f in zip(algorithms, (descend(0.06, 1), descend(0.06, 6), flow(0.8)), strict=True)
    }
    found = simulate(
        [world], [clients], [1 / clients], [([even], filters)], d=FEW, draws=DRAWS, seed=22
    )
    table, more = (
        fa.predict(world, algorithms, clients=m, member=False) for m in (clients, clients + 2)
    )
    for name_, simulated in found.items():
        check(simulated[:, 0, 1], table[name_], 4 / FEW, [more[name_]])


# Fewer pooled samples than unknowns: d/N = aspect/clients > 1.


@pytest.mark.parametrize(
    ("name", "shift", "optimum"),
    [("identity", 0, 0), ("two atoms", 0, 0), ("two atoms", 1, 1), ("ar1", 1, 0)],
)
def test_crowded_federation(name, shift, optimum):
    """All methods share the minimum-norm interpolant, so they agree on members; theta_0 is shrunk,
    so its length counts.
    """
    aspect, clients = 4, 2
    world = fa.Population(
        RADIUS,
        NOISE,
        aspect,
        norm=2.5,
        spectrum=SPECTRA[name],
        shift_power=shift,
        optimum_power=optimum,
    )
    plans: list[Plan] = [
        ([even], {"fedavg": [even], "ftfa": [interpolate], "rtfa": [shrink(0.4)]}),
        ([shrink(0.4)], {"pfedme": [shrink(0.4)]}),
        ([meta(0.1)], {"maml": [interpolate]}),
    ]
    found = simulate([world], [clients], [1 / clients], plans, d=FEW, draws=DRAWS, seed=23)
    excess = aspect / clients
    for algorithm, simulated in found.items():
        member, new = (
            risk_of(world, algorithm, ridge=0.4, clients=clients, member=member)
            for member in (True, False)
        )
        longer = risk_of(replace(world, norm=2.7), algorithm, ridge=0.4, clients=clients)
        allowance = (
            1.5
            * (growth(world, 0 if algorithm in ("ftfa", "maml") else 0.4) + 1 / (excess - 1))
            / FEW
        )
        check(simulated[:, 0, 0], member, allowance, [new, longer])
        check(simulated[:, 0, 1], new, allowance, [member])


# Clients that differ.

SPREAD = [0.5, 0.25, 0.25]
FIRST, SECOND = fa.spectra.atoms([0.5, 3, 1], SPREAD), fa.spectra.atoms([2, 1, 0.3], SPREAD)
KINDS = [
    fa.Population(1, 0.7, 2, spectrum=FIRST),
    fa.Population(1.5, 0.4, 4, spectrum=SECOND),
    fa.Population(0.6, 1, 0.5, spectrum=fa.spectra.identity()),
]
ALIGNED = [replace(KINDS[0], shift_power=1), replace(KINDS[1], shift_power=-1), KINDS[2]]
COUNT = [3, 3, 1]


def check_kinds(
    found: Array,
    kinds: list[fa.Population],
    count: list[int],
    algorithm: str,
    ridges: Sequence[float],
    d: int = FEW,
    **options: object,
) -> None:
    """Members and new clients of each kind; a member and a new one, and the next kind, are told
    apart.
    """
    samples_ = sum(c / float(kind.aspect) for c, kind in zip(count, kinds, strict=True))  # N/d
    tables = [
        fa.predict(kinds, [algorithm], clients=count, member=member, **options)[algorithm]
        for member in (True, False)
    ]
    for k, (kind, ridge) in enumerate(zip(kinds, ridges, strict=True)):
        allowance = 1.5 * (growth(kind, ridge) + 1 / abs(samples_ - 1)) / d
        risks = [fa.Risk(table.bias[k], table.variance[k]) for table in tables]
        if ridge == 0 and kind.aspect < 1:
            for who in (0, 1):
                check(found[:, k, who], risks[who], allowance)
            continue
        after = (k + 1) % len(kinds)
        for who in (0, 1):
            next_kind = fa.Risk(tables[who].bias[after], tables[who].variance[after])
            check(found[:, k, who], risks[who], allowance, [risks[1 - who], next_kind])


WEIGHINGS = [
    (KINDS, "samples"),
    (KINDS, "uniform"),
    (ALIGNED, "precision"),
    (ALIGNED, [0.2, 0.12, 0.04]),
]
BEST = [best_ridge(kind) for kind in KINDS]


def weigh(weights: object, servers: Sequence[Function]) -> list[Function]:
    """Server weights b of each kind, times the weight p of one client."""
    share = {
        "samples": [1 / kind.aspect for kind in KINDS],
        "uniform": [1, 1, 1],
        "precision": [1 / kind.aspect / kind.noise**2 for kind in KINDS],
    }.get(str(weights), weights)
    shares = np.array(share) / np.dot(COUNT, share)
    return [lambda x, p=p, b=b: p * b(x) for p, b in zip(shares, servers, strict=True)]


@pytest.fixture(scope="module")
def differing() -> dict[str, Array]:
    """Every weighing of the same drawn clients that differ."""
    filters = {"fedavg": [even] * 3, "ftfa": [interpolate] * 3, "rtfa": [shrink(0.8)] * 3}
    best = [shrink(ridge) for ridge in BEST]
    plans: list[list[Plan]] = [[(weigh("precision", best), {"pfedme": best})], []]
    for kinds, weights in WEIGHINGS:
        named = {f"{name}, {weights}": filter_ for name, filter_ in filters.items()}
        plans[kinds is ALIGNED].append((weigh(weights, [even] * 3), named))
    found: dict[str, Array] = {}
    for kinds, some in zip((KINDS, ALIGNED), plans, strict=True):
        found |= simulate(kinds, COUNT, [1, 1, 1], some, d=FEW, draws=DRAWS, seed=24)
    return found


@pytest.mark.parametrize(
    ("kinds", "weights"),
    WEIGHINGS,
    ids=["samples", "uniform", "precision, aligned", "given, aligned"],
)
def test_different_clients(kinds, weights, differing):
    """FedAvg, FTFA and RTFA where aspect, noise, radius, weight and covariance all differ."""
    for algorithm, ridge in {"fedavg": np.inf, "ftfa": 0, "rtfa": 0.8}.items():
        found = differing[f"{algorithm}, {weights}"]
        check_kinds(found, kinds, COUNT, algorithm, [ridge] * 3, ridge=0.8, weights=weights)


def test_different_clients_each_at_its_best_ridge(differing):
    """pFedMe, the best linear unbiased prediction, with weights proportional to samples over
    noise^2.
    """
    check_kinds(differing["pfedme"], KINDS, COUNT, "pfedme", BEST)
    check_kinds(differing["pfedme"], KINDS, COUNT, "pfedme", BEST, weights="precision")


def test_different_clients_in_a_crowded_federation():
    """Aligned displacements around a theta_0 that is aligned itself."""
    centre = np.array([0.6, 1.2, 0.2])
    kinds = []
    for radius, noise, aspect, values, power in (
        (1, 0.7, 4, [0.5, 3, 1], 1), (1.5, 0.4, 6, [2, 1, 0.3], -1), (1.2, 1, 10, [1, 1, 1], 0),
    ):  # fmt: skip
        kind = fa.Population(
            radius, noise, aspect, spectrum=fa.spectra.atoms(values, SPREAD), shift_power=power
        )
        energy = radius**2 * kind.displacement + centre
        kinds.append(replace(kind, norm=energy.sum() ** 0.5, optimum_weights=energy / energy.sum()))
    count, ridge = [1, 2, 1], 0.5
    plans: list[Plan] = [
        (
            [even] * 3,
            {"fedavg": [even] * 3, "ftfa": [interpolate] * 3, "rtfa": [shrink(ridge)] * 3},
        ),
        ([shrink(ridge)] * 3, {"pfedme": [shrink(ridge)] * 3}),
    ]
    found = simulate(kinds, count, [0.25] * 3, plans, d=MORE, draws=DRAWS, seed=26)
    for algorithm, simulated in found.items():
        at = {"fedavg": np.inf, "ftfa": 0}.get(algorithm, ridge)
        check_kinds(simulated, kinds, count, algorithm, [at] * 3, MORE, ridge=ridge)
