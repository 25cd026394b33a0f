"""Trials on drawn samples: labels, fits, and what held-out samples say of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedasym.algorithms import Algorithm, Objective
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array
from fedasym.exact import draws
from fedasym.exact.clients import Client
from fedasym.exact.draws import ClientKind, seeded_generator
from fedasym.exact.estimators import LinearFit, fit
from fedasym.exact.least_squares import fit_personal
from fedasym.results import Accuracy
from fedasym.results.simulation import Losses
from fedasym.verbs.trials import (
    CENTRE,
    HELD_OUT,
    LABELS,
    MEMBER,
    NEWCOMER,
    VANISHING,
    Planned,
    Tick,
    TrialPlan,
)

if TYPE_CHECKING:
    from fedasym.exact.class_clients import DrawnClassClient, Layout, Scored
    from fedasym.verbs.simulation import SimulationRequest


@dataclass(frozen=True, eq=False)
class Sample:
    """A client's training samples, and held-out samples where it will be tested."""

    kind: ClientKind
    X: Array
    y: Array
    held_out: tuple[Array, Array] | None

    def loss(self, model: Array) -> float:
        """Mean squared error on held-out samples above the noise floor."""
        assert self.held_out is not None
        X, y = self.held_out
        return float(np.mean((X @ model - y) ** 2) - self.kind.noise2)


def sample_losses(plan: TrialPlan, trial: int, tick: Tick) -> Losses:
    """Every algorithm's test loss above the noise in one trial, the mean over clients, by kind."""
    first = plan.kinds[0]
    if plan.underdetermined and first.centre is None:
        raise InvalidInput(
            "the pooled samples are fewer than the unknowns, so that lengths matter: give norm"
        )
    centre = np.zeros(first.s.size)
    if first.centre is not None:
        centre = draws.random_signs(first.centre, seeded_generator(plan.seed, trial, CENTRE))

    def sample(kind: ClientKind, *path: int, tested: bool) -> Sample:
        X = draws.draw_features(kind, seeded_generator(plan.seed, trial, *path), plan.features)
        rng = seeded_generator(plan.seed, trial, LABELS, *path)
        optimum = centre + draws.random_signs(kind.shift, rng)

        def label(rows: Array) -> tuple[Array, Array]:
            return rows, rows @ optimum + np.sqrt(kind.noise2) * rng.standard_normal(len(rows))

        own = label(X)
        fresh = label(draws.draw_features(kind, rng, plan.features, HELD_OUT)) if tested else None
        return Sample(kind, *own, fresh)

    looked = {kind.place: plan.places(kind) if plan.member else range(0) for kind in plan.kinds}
    federation = []
    for j in range(sum(plan.count)):
        kind = plan.kind_of(j)
        federation.append(sample(kind, MEMBER, j, tested=j in looked[kind.place]))
    strangers: list[list[Sample]] = [[] for _ in plan.kinds]
    for kind in () if plan.member else plan.kinds:
        for j in plan.places(kind):
            stranger = sample(kind, NEWCOMER, kind.place, j, tested=True)
            strangers[kind.place].append(stranger)
    found: Losses = {}
    for done, each in enumerate(plan.algorithms, start=1):
        found[each.name] = []
        start = np.zeros(first.s.size)
        own: Mapping[Any, Array] = {}
        if plan.member or not each.algorithm.shares_nothing:
            models = fit_samples(each, federation)
            start, own = models.shared, models.personal
        for kind in plan.kinds:
            inside = [federation[j].loss(own[j]) for j in looked[kind.place]]
            outside = [one.loss(fit_newcomer(each, one, start)) for one in strangers[kind.place]]
            found[each.name].append([float(np.mean(inside + outside))])
        tick(done / len(plan.algorithms))
    return found


def fit_samples(each: Planned, federation: list[Sample]) -> LinearFit:
    """An algorithm fitted to everyone's samples, with the weights and ridges of the plan."""
    p = np.ones(len(federation))
    ridge = None
    if each.pull is not None:
        p = np.array([each.pull.p[one.kind.place] for one in federation])
    if each.ridge is not None:
        ridge = np.array([each.ridge_of(one.kind) for one in federation])
    if each.algorithm.server.linear_objective is Objective.JOINT and ridge is not None:
        ridge = np.maximum(ridge, VANISHING)  # 0, the best without noise, ties nobody
    X, y = [one.X for one in federation], [one.y for one in federation]
    algorithm = each.algorithm
    if each.pull is not None and algorithm.server.shrinks:
        tied = algorithm.server.at(shared_ridge=each.pull.shared_ridge)
        algorithm = replace(algorithm, server=tied)
    if each.mixture is not None:
        mixed = algorithm.personalise.at(mixture=each.mixture)
        algorithm = replace(algorithm, personalise=mixed)
    return fit(algorithm, X, y, ridge=ridge, weights=p / p.sum(), intercept=False)


def fit_newcomer(each: Planned, one: Sample, shared: Array) -> Array:
    """The model of a client that took no part in the shared one."""
    ridge = each.ridge_of(one.kind)
    client = Client.of(0, one.X, one.y)
    stage = each.algorithm.personalise.fill_missing(mixture=each.mixture)
    return fit_personal(stage, client, shared, np.inf if ridge is None else ridge)


LOOKED_AT = 4  # clients with classes that are scored in a trial


def one_labelled_trial(
    layout: Layout,
    chosen: list[Algorithm],
    rows: dict[str, Accuracy],
    clients: int | None,
    request: SimulationRequest,
    trial: int,
) -> dict[str, Scored]:
    """Every algorithm's scores, the mean over the clients looked at."""
    from fedasym.exact import class_clients
    from fedasym.theory.classes import canonical_pair

    world = layout.world
    seed = request.seed
    theta0 = class_clients.draw_shared(layout, seed, trial)

    def draw(role: int, count: int) -> list[DrawnClassClient]:
        return [
            class_clients.draw_class_client(layout, theta0, seeded_generator(seed, trial, role, j))
            for j in range(count)
        ]

    if clients is None:
        looked = draw(class_clients.CLIENT, LOOKED_AT)
        shared = class_clients.shared_shrinkage(world) * theta0
    else:
        members = draw(class_clients.CLIENT, clients)
        looked = members[:LOOKED_AT]
        shared = class_clients.fit_pooled(members)
        if not request.member:
            looked = draw(class_clients.NEWCOMER, LOOKED_AT)
    starts = class_clients.Starts(shared, class_clients.squared_slope(world) * theta0)
    scores: dict[str, list[Scored]] = {each.name: [] for each in chosen}
    for place, one in enumerate(looked):
        rng = seeded_generator(seed, trial, 3, place)
        models: dict[tuple[object, ...], tuple[Array, bool]] = {}
        for each in chosen:
            pair = canonical_pair(each)
            row = rows[each.name]
            at = {
                name: None if (x := getattr(row, name)) is None else float(x)
                for name in ("ridge", "step", "time")
            }
            key = (*map(repr, pair), *at.values())
            if key not in models:  # local and ftfa end at the same model
                start = starts
                if clients is None:
                    own = class_clients.start_scale(world, pair[0], at["ridge"])
                    start = replace(starts, shared=own * theta0)
                models[key] = class_clients.fit_pair(one, pair, start, **at)
            scores[each.name].append(
                class_clients.score_model(one, models[key][0], world, rng, models[key][1])
            )
    return {name: tuple(np.mean(each, axis=0)) for name, each in scores.items()}
