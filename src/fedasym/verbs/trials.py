"""One trial of a simulation: clients, algorithms with ridges, what theory says, the losses.

In expectation a loss is a trace of the drawn features. By sampling, optima and labels are drawn
too, every algorithm is fitted to them and tested on held-out samples: slower and noisier, and it
shares no formula with the other; the two must agree.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedasym.algorithms import Algorithm, Moreau, Ridge
from fedasym.algorithms.registry import describe_algorithm
from fedasym.core.errors import InvalidInput, MissingNorm, NoFormula, ThresholdWarning
from fedasym.core.numbers import Array
from fedasym.core.runtime import few_threads
from fedasym.exact.clients import Client
from fedasym.exact.draws import (
    ClientKind,
    DrawnClient,
    draw_client,
    draw_features,
    kinds_of,
    random_signs,
    seeded_generator,
)
from fedasym.exact.estimators import LinearFit, fit
from fedasym.exact.expectation import (
    Forms,
    Pull,
    PullSums,
    SharedCovariance,
    alone_forms,
    learned_share,
    member_forms,
    newcomer_forms,
    pull_of,
    shared_interpolant,
)
from fedasym.exact.least_squares import fit_personal
from fedasym.results.result import Risk
from fedasym.results.simulation import Losses
from fedasym.theory.finite import client_weights, precision_weights
from fedasym.theory.limits import bayes_ridge, flatten
from fedasym.verbs.prediction import predict, ridge_of
from fedasym.worlds.population import RANGES, Population

LOOKED_AT = 8  # clients of each kind whose risk is computed in a trial: they are exchangeable
MEMBER, NEWCOMER, CENTRE, LABELS = range(4)  # roles in a path of seeds
WORTH_A_THREAD = 200  # dimension from which drawing a client takes longer than handing it over
HELD_OUT = 1000  # samples on which a model is tested
VANISHING = 1e-9  # a ridge that stands for its limit 0

Tick = Callable[[float], None]  # hears what share of a trial is done


@dataclass(frozen=True, eq=False)
class TrialSetting:
    """What was asked for, checked: the arguments of `simulate`."""

    worlds: tuple[Population, ...]
    alike: bool  # one population, rather than a list of them
    dimension: int
    clients: tuple[int, ...]
    seed: int
    algorithms: tuple[Algorithm, ...]
    optional: bool  # whether all algorithms were asked for by default
    member: bool
    features: str
    mode: str
    weights: Any
    vary: tuple[str, tuple[float, ...]] | None

    @property
    def points(self) -> list[TrialSetting]:
        """One setting for each value of what varies."""
        if self.vary is None:
            return [self]
        name, values = self.vary
        return [replace(self.at(name, value), vary=None) for value in values]

    def at(self, name: str, value: Any) -> TrialSetting:
        """The same with another value, or array of values, of one parameter."""
        match name:
            case "clients":
                return replace(self, clients=(int(value),))
            case "dimension":
                return replace(self, dimension=int(value))
            case "ridge":
                changed = (
                    (
                        replace(each, personalise=Ridge(value))
                        if isinstance(each.personalise, Ridge)
                        else each
                    )
                    for each in self.algorithms
                )
                return replace(self, algorithms=tuple(changed))
        return replace(self, worlds=(replace(self.worlds[0], **{name: value}),))

    @property
    def arguments(self) -> dict[str, Any]:
        """What identifies the answer in a file; not `trials`, as more may be asked for later."""
        worlds = []
        for each in self.worlds:
            numbers: dict[str, Any] = {name: getattr(each, name) for name in RANGES}
            arrays = (each.spectrum.values, each.spectrum.weights, each.displacement, each.optimum)
            names = ("eigenvalues", "shares", "displacement", "optimum")
            worlds.append(
                numbers | {name: array.tolist() for name, array in zip(names, arrays, strict=True)}
            )
        weights = (
            self.weights
            if self.weights is None or isinstance(self.weights, str)
            else np.asarray(self.weights).tolist()
        )
        return {
            "world": worlds,
            "dimension": self.dimension,
            "clients": list(self.clients),
            "seed": self.seed,
            "algorithms": [describe_algorithm(each) for each in self.algorithms],
            "member": self.member,
            "features": self.features,
            "mode": self.mode,
            "weights": weights,
            "vary": None if self.vary is None else [self.vary[0], list(self.vary[1])],
        }


@dataclass(frozen=True, eq=False)
class Planned:
    """One algorithm: its ridge by kind of client, its pull at the shared model, its risks."""

    algorithm: Algorithm
    pull: Pull | None  # the same object for algorithms that share a server stage
    ridge: Array | None
    predicted: Risk
    limit: Risk

    @property
    def name(self) -> str:
        """The algorithm's."""
        return self.algorithm.name

    def ridge_of(self, kind: ClientKind) -> float | None:
        """The ridge of a client of this kind."""
        return None if self.ridge is None else float(self.ridge[kind.place])


@dataclass(frozen=True, eq=False)
class TrialPlan:
    """Everything that a trial needs."""

    kinds: tuple[ClientKind, ...]
    count: tuple[int, ...]
    algorithms: tuple[Planned, ...]
    member: bool
    features: str
    seed: int
    notes: tuple[str, ...]

    @property
    def crowded(self) -> bool:
        """Whether all samples together are fewer than the unknowns."""
        return (
            sum(m * kind.n for m, kind in zip(self.count, self.kinds, strict=True))
            < self.kinds[0].s.size
        )

    def kind_of(self, j: int) -> ClientKind:
        """The kind of client j: the clients of the first population come first."""
        return self.kinds[int(np.searchsorted(np.cumsum(self.count), j, side="right"))]

    def client(self, trial: int, j: int) -> DrawnClient:
        """Client j, the same whenever it is asked for."""
        return draw_client(
            self.kind_of(j), seeded_generator(self.seed, trial, MEMBER, j), self.features
        )

    def places(self, kind: ClientKind) -> range:
        """The clients of a kind that are scored: indices of members, or numbers of newcomers."""
        if not self.member:
            return range(LOOKED_AT)
        start = sum(self.count[: kind.place])
        return range(start, start + min(LOOKED_AT, self.count[kind.place]))

    def looked_at(self, trial: int, kind: ClientKind) -> Iterator[tuple[int, DrawnClient]]:
        """These clients: drawn again if they are members, for the first time if they are new."""
        for j in self.places(kind):
            rng = seeded_generator(self.seed, trial, NEWCOMER, kind.place, j)
            yield j, self.client(trial, j) if self.member else draw_client(kind, rng, self.features)


def make_plan(setting: TrialSetting) -> TrialPlan:
    """Lay out the clients and ask the theory."""
    kinds = tuple(kinds_of(setting.worlds, setting.dimension))
    chosen, notes = list(setting.algorithms), []
    if any(kind.optimum is None for kind in kinds):
        lonely = [each.name for each in chosen if each.shares_nothing]
        chosen = [each for each in chosen if not each.shares_nothing]
        if lonely and not (setting.optional and chosen):
            raise MissingNorm(f"{lonely[0]}: {MissingNorm()}")
        notes += [f"Left out {' and '.join(lonely)}: {MissingNorm()}."] if lonely else []
    pulls: dict[tuple[object, ...], Pull] = {}
    rows = []
    for algorithm in chosen:
        predicted, limit, ridge, missing = foresee_losses(
            algorithm, setting, [kind.population for kind in kinds]
        )
        notes += missing
        pull = None if algorithm.shares_nothing else pull_for(algorithm, setting, kinds, ridge)
        if pull is not None:
            key = (
                pull.server,
                pull.p.tobytes(),
                None if pull.ridge is None else pull.ridge.tobytes(),
            )
            pull = pulls.setdefault(key, pull)
        rows.append(Planned(algorithm, pull, ridge, predicted, limit))
    return TrialPlan(
        kinds,
        setting.clients,
        tuple(rows),
        setting.member,
        setting.features,
        setting.seed,
        tuple(notes),
    )


def pull_for(
    algorithm: Algorithm, setting: TrialSetting, kinds: tuple[ClientKind, ...], ridge: Array | None
) -> Pull:
    """The pull of a server stage; by default pFedMe has weights of its own, as in `predict`."""
    exact, count = [kind.population for kind in kinds], np.array(setting.clients, dtype=float)
    p = client_weights(exact, count, setting.weights)
    if "ridge" in algorithm.server.settings():
        if ridge is None:
            own = algorithm.server.get("ridge")
            ridge = (
                np.full(len(kinds), own)
                if own is not None
                else np.array([tying_ridge(each) for each in exact])
            )
        if ridge is not None and np.any(ridge < 0):
            raise InvalidInput(
                f"{algorithm.name}: ridge is {ridge.min():g}: the shared model needs one of at"
                " least 0"
            )
        own = precision_weights(exact)
        if setting.weights is None and not setting.alike and own.any():
            p = own / (count @ own)
    return pull_of(algorithm.server, p, ridge)


def tying_ridge(population: Population) -> float:
    """noise^2 aspect/radius^2, the ridge that ties clients of one kind best."""
    return float(bayes_ridge(flatten(population, ()))[0])


def foresee_losses(
    algorithm: Algorithm, setting: TrialSetting, exact: list[Population]
) -> tuple[Risk, Risk, Array | None, list[str]]:
    """Finite prediction, limit, and ridge by kind: the prediction's best, or else the limit's."""
    given = ridge_of(algorithm, (len(exact),))
    missing: list[str] = []
    with warnings.catch_warnings():
        # a simulation may sit at a threshold to see what happens there
        warnings.simplefilter("ignore", ThresholdWarning)
        nothing = np.full(len(exact), np.nan)
        try:
            limit = stack_risks(
                [predict_endless(algorithm, each, place) for place, each in enumerate(exact)]
            )
        except NoFormula as reason:
            limit, missing = Risk(nothing, nothing, nothing), [f"No limit for {reason}."]
        try:
            found = predict_finite(algorithm, setting, exact)
        except NoFormula as reason:
            missing = [f"No prediction for {reason}."]
            found = Risk(nothing, nothing, np.maximum(np.asarray(limit.ridge), 0.0))
    best = (
        np.atleast_1d(np.asarray(found.ridge, dtype=float))
        if isinstance(algorithm.personalise, Ridge)
        else None
    )
    predicted = Risk(np.atleast_1d(found.bias), np.atleast_1d(found.variance), best)
    return predicted, limit, best if given is None else given, missing


def predict_endless(algorithm: Algorithm, population: Population, place: int) -> Risk:
    """What `predict` says of infinitely many clients, for the population at this place."""
    stage = algorithm.personalise
    if isinstance(stage, Ridge) and stage.ridge is not None and np.ndim(stage.ridge):
        algorithm = replace(algorithm, personalise=Ridge(float(np.asarray(stage.ridge)[place])))
    return predict(population, [algorithm])[algorithm.name]


def stack_risks(risks: list[Risk]) -> Risk:
    """Several risks as one of arrays; a ridge that is absent is NaN."""
    parts = ("bias", "variance", "ridge")
    return Risk(*(np.array([getattr(risk, part) for risk in risks], dtype=float) for part in parts))


def predict_finite(algorithm: Algorithm, setting: TrialSetting, exact: list[Population]) -> Risk:
    """What `predict` says of finitely many clients."""
    if setting.alike:
        return predict(exact[0], [algorithm], clients=setting.clients[0], member=setting.member)[
            algorithm.name
        ]
    options = {"clients": setting.clients, "member": setting.member, "weights": setting.weights}
    return predict(exact, [algorithm], **options)[algorithm.name]


def one_trial(plan: TrialPlan, mode: str, trial: int, tick: Tick) -> Losses:
    """Every algorithm's losses in one trial."""
    with few_threads(plan.kinds[0].s.size):
        return (sample_losses if mode == "sampling" else expect_losses)(plan, trial, tick)


def expect_losses(plan: TrialPlan, trial: int, tick: Tick) -> Losses:
    """Every algorithm's bias and variance in one trial, means over clients, by kind of client."""
    sharing = {id(each.pull): each.pull for each in plan.algorithms if each.pull is not None}
    models = dict(
        zip(sharing, fit_shared_models(plan, trial, list(sharing.values()), tick), strict=True)
    )
    found: Losses = {each.name: [] for each in plan.algorithms}
    for kind in plan.kinds:
        rows: dict[str, list[tuple[float, float]]] = {name: [] for name in found}
        for j, client in plan.looked_at(trial, kind):
            seen: dict[int, Forms] = {}
            for each in plan.algorithms:
                key = id(each.pull)
                if key not in seen:
                    seen[key] = see_shared(client, models.get(key), j if plan.member else None)
                q = learned_share(each.algorithm.personalise, client.x, each.ridge_of(kind))
                bias, variance = seen[key]
                rows[each.name].append((bias(q), variance(q)))
        for name, risks in rows.items():
            found[name].append(np.mean(risks, axis=0).tolist())
    return found


def fit_shared_models(
    plan: TrialPlan, trial: int, pulls: list[Pull], tick: Tick
) -> list[SharedCovariance]:
    """The shared model of each server stage, from one pass over the clients."""
    if not pulls:
        return []
    clients = range(sum(plan.count))
    if plan.crowded:
        return [shared_interpolant([plan.client(trial, j) for j in clients])] * len(pulls)
    sums = [PullSums.empty(pull, plan.kinds) for pull in pulls]
    drawn: Iterator[DrawnClient] = (plan.client(trial, j) for j in clients)
    if plan.kinds[0].s.size >= WORTH_A_THREAD:
        drawn = draw_ahead(lambda j: plan.client(trial, j), clients)
    for j, client in enumerate(drawn):
        for each in sums:
            each.add(client)
        tick((j + 1) / len(clients))
    return [each.shared() for each in sums]


def draw_ahead(make: Callable[[int], DrawnClient], clients: range) -> Iterator[DrawnClient]:
    """Each client in turn, while a second thread draws the next: free where a core is idle."""
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(make, 0)
        for j in clients:
            client = following.result()
            if j + 1 < len(clients):
                following = pool.submit(make, j + 1)
            yield client


def see_shared(client: DrawnClient, shared: SharedCovariance | None, j: int | None) -> Forms:
    """What member j, or (None) a new client, makes of a shared model (None: of no model)."""
    if shared is None:
        return alone_forms(client)
    return newcomer_forms(client, shared) if j is None else member_forms(client, shared, j)


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
    if plan.crowded and first.centre is None:
        raise InvalidInput(
            "the pooled samples are fewer than the unknowns, so the length of the optimum matters:"
            " give norm"
        )
    centre = (
        np.zeros(first.s.size)
        if first.centre is None
        else random_signs(first.centre, seeded_generator(plan.seed, trial, CENTRE))
    )

    def sample(kind: ClientKind, *path: int, tested: bool) -> Sample:
        X, rng = (
            draw_features(kind, seeded_generator(plan.seed, trial, *path), plan.features),
            seeded_generator(plan.seed, trial, LABELS, *path),
        )
        optimum = centre + random_signs(kind.shift, rng)

        def label(rows: Array) -> tuple[Array, Array]:
            return rows, rows @ optimum + np.sqrt(kind.noise2) * rng.standard_normal(len(rows))

        return Sample(
            kind,
            *label(X),
            label(draw_features(kind, rng, plan.features, HELD_OUT)) if tested else None,
        )

    looked = {kind.place: plan.places(kind) if plan.member else range(0) for kind in plan.kinds}
    federation = []
    for j in range(sum(plan.count)):
        kind = plan.kind_of(j)
        federation.append(sample(kind, MEMBER, j, tested=j in looked[kind.place]))
    strangers = [
        (
            [sample(kind, NEWCOMER, kind.place, j, tested=True) for j in plan.places(kind)]
            if not plan.member
            else []
        )
        for kind in plan.kinds
    ]
    found: Losses = {}
    for done, each in enumerate(plan.algorithms, start=1):
        models = (
            None
            if each.algorithm.shares_nothing and not plan.member
            else fit_samples(each, federation)
        )
        found[each.name] = []
        for kind in plan.kinds:
            inside = (
                []
                if models is None
                else [federation[j].loss(models.personal[j]) for j in looked[kind.place]]
            )
            start = np.zeros(first.s.size) if models is None else models.shared
            outside = [one.loss(fit_newcomer(each, one, start)) for one in strangers[kind.place]]
            found[each.name].append([float(np.mean(inside + outside))])
        tick(done / len(plan.algorithms))
    return found


def fit_samples(each: Planned, federation: list[Sample]) -> LinearFit:
    """An algorithm fitted to everyone's samples, with the weights and ridges of the plan."""
    p = (
        np.ones(len(federation))
        if each.pull is None
        else np.array([each.pull.p[one.kind.place] for one in federation])
    )
    ridge = (
        None if each.ridge is None else np.array([each.ridge_of(one.kind) for one in federation])
    )
    if isinstance(each.algorithm.server, Moreau) and ridge is not None:
        # without noise the best ridge is 0, which ties nobody to the shared model
        ridge = np.maximum(ridge, VANISHING)
    X, y = [one.X for one in federation], [one.y for one in federation]
    return fit(each.algorithm, X, y, ridge=ridge, weights=p / p.sum(), intercept=False)


def fit_newcomer(each: Planned, one: Sample, shared: Array) -> Array:
    """The model of a client that took no part in the shared one."""
    ridge = each.ridge_of(one.kind)
    return fit_personal(
        each.algorithm.personalise,
        Client.of(0, one.X, one.y),
        shared,
        np.inf if ridge is None else ridge,
    )
