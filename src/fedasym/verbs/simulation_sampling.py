"""Honest sampling: draw optima and labels, fit every algorithm to them, and test the models on held-out samples.

Slower and noisier than `expectation`, and it shares no formula with it: the two must agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedasym.algorithms import Moreau
from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput
from fedasym.exact.clients import Client
from fedasym.exact.draws import ClientKind as Kind
from fedasym.exact.draws import draw_features as features
from fedasym.exact.draws import seeded_generator as seeded
from fedasym.exact.estimators import LinearFit, fit
from fedasym.exact.least_squares import fit_personal as personalised
from fedasym.verbs.simulation_plans import MEMBER, NEWCOMER, Losses, Plan, Planned, Tick

HELD_OUT = 1000  # samples on which a model is tested
VANISHING = 1e-9  # a ridge that stands for its limit 0
CENTRE, LABELS = 2, 3  # more roles in a path of seeds


@dataclass(frozen=True, eq=False)
class Sample:
    """A client's training samples, and held-out samples where it will be tested."""

    kind: Kind
    X: Array
    y: Array
    held_out: tuple[Array, Array] | None

    def loss(self, model: Array) -> float:
        """Mean squared error on held-out samples above the noise floor."""
        assert self.held_out is not None
        X, y = self.held_out
        return float(np.mean((X @ model - y) ** 2) - self.kind.noise2)


def sampled(plan: Plan, trial: int, tick: Tick) -> Losses:
    """Test loss above the noise floor of every algorithm in one trial, the mean over the clients looked at, by kind."""
    first = plan.kinds[0]
    if plan.crowded and first.centre is None:
        raise InvalidInput("the pooled samples are fewer than the unknowns, so the length of the optimum matters: give norm")
    centre = np.zeros(first.s.size) if first.centre is None else signs(first.centre, seeded(plan.seed, trial, CENTRE))

    def sample(kind: Kind, *path: int, tested: bool) -> Sample:
        X, rng = features(kind, seeded(plan.seed, trial, *path), plan.features), seeded(plan.seed, trial, LABELS, *path)
        optimum = centre + signs(kind.shift, rng)

        def labelled(rows: Array) -> tuple[Array, Array]:
            return rows, rows @ optimum + np.sqrt(kind.noise2) * rng.standard_normal(len(rows))

        return Sample(kind, *labelled(X), labelled(features(kind, rng, plan.features, HELD_OUT)) if tested else None)

    looked = {kind.place: plan.places(kind) if plan.member else range(0) for kind in plan.kinds}
    federation = []
    for j in range(sum(plan.count)):
        kind = plan.kind_of(j)
        federation.append(sample(kind, MEMBER, j, tested=j in looked[kind.place]))
    strangers = [
        [sample(kind, NEWCOMER, kind.place, j, tested=True) for j in plan.places(kind)] if not plan.member else []
        for kind in plan.kinds
    ]
    found: Losses = {}
    for done, each in enumerate(plan.algorithms, start=1):
        models = None if each.algorithm.shares_nothing and not plan.member else fitted(each, federation)
        found[each.name] = []
        for kind in plan.kinds:
            inside = [] if models is None else [federation[j].loss(models.personal[j]) for j in looked[kind.place]]
            start = np.zeros(first.s.size) if models is None else models.shared
            outside = [one.loss(started(each, one, start)) for one in strangers[kind.place]]
            found[each.name].append([float(np.mean(inside + outside))])
        tick(done / len(plan.algorithms))
    return found


def fitted(each: Planned, federation: list[Sample]) -> LinearFit:
    """An algorithm fitted to everyone's samples, with the weights and ridges of the plan."""
    p = np.ones(len(federation)) if each.pull is None else np.array([each.pull.p[one.kind.place] for one in federation])
    ridge = None if each.ridge is None else np.array([each.ridge_of(one.kind) for one in federation])
    if isinstance(each.algorithm.server, Moreau) and ridge is not None:
        ridge = np.maximum(ridge, VANISHING)  # without noise the best ridge is 0, which ties nobody to the shared model
    X, y = [one.X for one in federation], [one.y for one in federation]
    return fit(each.algorithm, X, y, ridge=ridge, weights=p / p.sum(), intercept=False)


def started(each: Planned, one: Sample, shared: Array) -> Array:
    """The model of a client that took no part in the shared one."""
    ridge = each.ridge_of(one.kind)
    return personalised(each.algorithm.personalise, Client.of(0, one.X, one.y), shared, np.inf if ridge is None else ridge)


def signs(energy: Array, rng: np.random.Generator) -> Array:
    """A vector with exactly this energy along each direction, of random signs."""
    return np.asarray(np.sqrt(energy) * (2 * rng.integers(0, 2, energy.size) - 1))
