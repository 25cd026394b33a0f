"""One trial of a simulation: clients, algorithms with ridges, what theory says, the losses.

In expectation a loss is a trace of the drawn features. By sampling, optima and labels are drawn
too, every algorithm is fitted to them and tested on held-out samples: slower and noisier, and it
shares no formula with the other; the two must agree.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedasym.algorithms import Algorithm, equality_notes
from fedasym.algorithms.registry import describe_algorithm
from fedasym.core.errors import InvalidInput, MissingNorm, NoFormula, ThresholdWarning
from fedasym.core.numbers import Array, check_ridge
from fedasym.exact import draws, expectation
from fedasym.exact.draws import ClientKind, DrawnClient, draw_client, seeded_generator
from fedasym.exact.expectation import Forms, Pull, PullSums, SharedCovariance
from fedasym.results import Risk
from fedasym.results.simulation import Losses
from fedasym.theory import bayes_ridge, flatten
from fedasym.theory.finite import client_weights, precision_weights
from fedasym.verbs import predict, ridge_of
from fedasym.worlds import RANGES, Population

LOOKED_AT = 8  # clients of each kind whose risk is computed in a trial: they are exchangeable
MEMBER, NEWCOMER, CENTRE, LABELS = range(4)  # roles in a path of seeds
WORTH_A_THREAD = 200  # dimension from which drawing a client takes longer than handing it over
HELD_OUT = 1000  # samples on which a model is tested
VANISHING = 1e-9  # a ridge that stands for its limit 0
RISK_PARTS = ("bias", "variance", "ridge")

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
                tuned = (
                    replace(each, personalise=each.personalise.at(ridge=check_ridge(value)))
                    if each.has_ridge
                    else each
                    for each in self.algorithms
                )
                return replace(self, algorithms=tuple(tuned))
        return replace(self, worlds=(replace(self.worlds[0], **{name: value}),))

    @property
    def arguments(self) -> dict[str, Any]:
        """What identifies the answer in a file; not `trials`, as more may be asked for later."""
        worlds = []
        names = ("eigenvalues", "shares", "displacement", "optimum")
        for each in self.worlds:
            numbers: dict[str, Any] = {name: getattr(each, name) for name in RANGES}
            arrays = (each.spectrum.values, each.spectrum.weights, each.displacement, each.optimum)
            lists = (array.tolist() for array in arrays)
            worlds.append(numbers | dict(zip(names, lists, strict=True)))
        weights = self.weights
        if weights is not None and not isinstance(weights, str):
            weights = np.asarray(weights).tolist()
        plain = ("dimension", "seed", "member", "features", "mode")
        told = {"world": worlds} | {name: getattr(self, name) for name in plain}
        told |= {"clients": list(self.clients), "weights": weights, "vary": self.vary}
        told["algorithms"] = [describe_algorithm(each) for each in self.algorithms]
        return told


@dataclass(frozen=True, eq=False)
class Planned:
    """One algorithm: its ridge by kind of client, its pull at the shared model, its risks."""

    algorithm: Algorithm
    pull: Pull | None  # the same object for algorithms that share a server stage
    ridge: Array | None
    predicted: Risk
    limit: Risk

    @property
    def mixture(self) -> float | None:
        """The weight of a client's own model, in a mixture: the best according to prediction."""
        found = self.predicted.mixture
        return None if found is None else float(np.ravel(found)[0])

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
    def underdetermined(self) -> bool:
        """Whether all samples together are fewer than the unknowns."""
        samples = sum(m * kind.n for m, kind in zip(self.count, self.kinds, strict=True))
        return samples < self.kinds[0].s.size

    def kind_of(self, j: int) -> ClientKind:
        """The kind of client j: the clients of the first population come first."""
        return self.kinds[int(np.searchsorted(np.cumsum(self.count), j, side="right"))]

    def client(self, trial: int, j: int) -> DrawnClient:
        """Client j, the same whenever it is asked for."""
        rng = seeded_generator(self.seed, trial, MEMBER, j)
        return draw_client(self.kind_of(j), rng, self.features)

    def places(self, kind: ClientKind) -> range:
        """The clients of a kind that are scored: indices of members, or numbers of newcomers."""
        if not self.member:
            return range(LOOKED_AT)
        start = sum(self.count[: kind.place])
        return range(start, start + min(LOOKED_AT, self.count[kind.place]))

    def examined_clients(
        self, trial: int, kind: ClientKind, kept: Mapping[int, DrawnClient]
    ) -> Iterator[tuple[int, DrawnClient]]:
        """These clients: members as they were kept, or drawn again; new ones for the first time."""
        for j in self.places(kind):
            if self.member:
                yield j, kept[j] if j in kept else self.client(trial, j)
            else:
                rng = seeded_generator(self.seed, trial, NEWCOMER, kind.place, j)
                yield j, draw_client(kind, rng, self.features)

    @property
    def worth_keeping(self) -> frozenset[int]:
        """Members that are looked at, where keeping them takes little memory."""
        if not self.member or self.kinds[0].s.size >= WORTH_A_THREAD:
            return frozenset()
        return frozenset(j for kind in self.kinds for j in self.places(kind))


def make_plan(setting: TrialSetting) -> TrialPlan:
    """Lay out the clients and ask the theory."""
    kinds = tuple(draws.kinds_of(setting.worlds, setting.dimension))
    chosen = list(setting.algorithms)
    notes = equality_notes(chosen)
    if any(kind.optimum is None for kind in kinds):
        lonely = [each.name for each in chosen if needs_norm(each)]
        chosen = [each for each in chosen if each.name not in lonely]
        if lonely and not (setting.optional and chosen):
            raise MissingNorm(f"{lonely[0]}: {MissingNorm()}")
        notes += [f"Left out {' and '.join(lonely)}: {MissingNorm()}."] if lonely else []
    pulls: dict[tuple[object, ...], Pull] = {}
    rows = []
    exact = [kind.population for kind in kinds]
    for algorithm in chosen:
        predicted, limit, ridge, missing = foresee_losses(algorithm, setting, exact)
        notes += missing
        mu = shared_ridge_for(algorithm, setting, kinds, predicted)
        pull = None if algorithm.shares_nothing else pull_for(algorithm, setting, exact, ridge, mu)
        if pull is not None:
            tied = None if pull.ridge is None else pull.ridge.tobytes()
            pull = pulls.setdefault((pull.server, pull.p.tobytes(), tied, mu), pull)
        rows.append(Planned(algorithm, pull, ridge, predicted, limit))
    told = (setting.member, setting.features, setting.seed, tuple(notes))
    return TrialPlan(kinds, setting.clients, tuple(rows), *told)


def needs_norm(algorithm: Algorithm) -> bool:
    """Whether the length of the optimum matters: something in it starts from zero."""
    alone = algorithm.shares_nothing or algorithm.personalise.own_stage is not None
    return alone or algorithm.server.shrinks


def shared_ridge_for(
    algorithm: Algorithm, setting: TrialSetting, kinds: tuple[ClientKind, ...], predicted: Risk
) -> float:
    """The ridge on the shared model: as given, as predicted, or the posterior mean's."""
    if not algorithm.server.shrinks:
        return 0.0
    for known in (algorithm.server.get("shared_ridge"), predicted.shared_ridge):
        if known is not None:
            return float(np.ravel(known)[0])
    samples = np.array([kind.n / max(kind.noise2, np.finfo(float).tiny) for kind in kinds])
    centre = kinds[0].centre
    energy = 0.0 if centre is None else float(centre.sum())
    return kinds[0].s.size / max(float(samples @ setting.clients) * energy, np.finfo(float).tiny)


def pull_for(
    algorithm: Algorithm,
    setting: TrialSetting,
    exact: list[Population],
    ridge: Array | None,
    shared_ridge: float,
) -> Pull:
    """The pull of a server stage; by default pFedMe has weights of its own, as in `predict`."""
    count = np.array(setting.clients, dtype=float)
    p = client_weights(exact, count, setting.weights)
    if "ridge" in algorithm.server.settings():
        own = algorithm.server.get("ridge")
        if ridge is None:  # noise^2 aspect/radius^2 ties clients of one kind best
            best = (float(bayes_ridge(flatten(each, ()))[0]) for each in exact)
            ridge = np.array(list(best)) if own is None else np.full(len(exact), own)
        if ridge is not None and np.any(ridge < 0):
            raise InvalidInput(
                f"{algorithm.name}: ridge is {ridge.min():g}: the shared model needs at least 0"
            )
        own = precision_weights(exact)
        if setting.weights is None and not setting.alike and own.any():
            p = own / (count @ own)
    return expectation.pull_of(algorithm.server, p, ridge, shared_ridge)


def foresee_losses(
    algorithm: Algorithm, setting: TrialSetting, exact: list[Population]
) -> tuple[Risk, Risk, Array | None, list[str]]:
    """Finite prediction, limit, and ridge by kind: the prediction's best, or else the limit's."""
    given = ridge_of(algorithm, (len(exact),))
    missing: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ThresholdWarning)  # to see what happens there
        nothing = np.full(len(exact), np.nan)
        try:
            endless = [predict_endless(algorithm, each, at) for at, each in enumerate(exact)]
            parts = ([getattr(risk, name) for risk in endless] for name in RISK_PARTS)
            limit = Risk(*(np.array(part, dtype=float) for part in parts))  # no ridge is NaN
        except NoFormula as reason:
            limit = Risk(nothing, nothing, nothing)
            missing = [f"No limit for {reason}."]
        try:
            found = predict_finite(algorithm, setting, exact)
        except NoFormula as reason:
            missing = [f"No prediction for {reason}."]
            found = Risk(nothing, nothing, np.maximum(np.asarray(limit.ridge), 0.0))
    best = np.atleast_1d(np.asarray(found.ridge, dtype=float)) if algorithm.has_ridge else None
    predicted = Risk(
        np.atleast_1d(found.bias),
        np.atleast_1d(found.variance),
        best,
        shared_ridge=found.shared_ridge,
        mixture=found.mixture,
    )
    return predicted, limit, best if given is None else given, missing


def predict_endless(algorithm: Algorithm, population: Population, place: int) -> Risk:
    """What `predict` says of infinitely many clients, for the population at this place."""
    ridge = algorithm.personalise.get("ridge") if algorithm.has_ridge else None
    if ridge is not None and np.ndim(ridge):
        own = algorithm.personalise.at(ridge=float(np.asarray(ridge)[place]))
        algorithm = replace(algorithm, personalise=own)
    return predict(population, [algorithm])[algorithm.name]


def predict_finite(algorithm: Algorithm, setting: TrialSetting, exact: list[Population]) -> Risk:
    """What `predict` says of finitely many clients."""
    options: dict[str, Any] = {"clients": setting.clients, "weights": setting.weights}
    if setting.alike:
        options = {"clients": setting.clients[0]}
    world = exact[0] if setting.alike else exact
    return predict(world, [algorithm], member=setting.member, **options)[algorithm.name]


def expect_losses(plan: TrialPlan, trial: int, tick: Tick) -> Losses:
    """Every algorithm's bias and variance in one trial, means over clients, by kind of client."""
    sharing = {id(each.pull): each.pull for each in plan.algorithms if each.pull is not None}
    fitted, kept = fit_shared_models(plan, trial, list(sharing.values()), tick)
    models = dict(zip(sharing, fitted, strict=True))
    found: Losses = {each.name: [] for each in plan.algorithms}
    for kind in plan.kinds:
        rows: dict[str, list[tuple[float, float]]] = {name: [] for name in found}
        for j, client in plan.examined_clients(trial, kind, kept):
            seen: dict[int, Forms] = {}
            for each in plan.algorithms:
                key = id(each.pull)
                if key not in seen:
                    seen[key] = see_shared(client, models.get(key), j if plan.member else None)
                risk = expectation.stage_risk(
                    each.algorithm.personalise,
                    client,
                    seen[key],
                    each.ridge_of(kind),
                    models.get(key),
                    j if plan.member else None,
                    each.mixture,
                )
                rows[each.name].append(risk)
        for name, risks in rows.items():
            found[name].append(np.mean(risks, axis=0).tolist())
    return found


def fit_shared_models(
    plan: TrialPlan, trial: int, pulls: list[Pull], tick: Tick
) -> tuple[list[SharedCovariance], dict[int, DrawnClient]]:
    """The shared model of each server stage, from one pass over the clients; and clients of it that
    are worth keeping.
    """
    if not pulls:
        return [], {}
    clients = range(sum(plan.count))
    if plan.underdetermined:  # without a ridge of its own, any shared model interpolates
        everyone = [plan.client(trial, j) for j in clients]
        free = any(pull.shared_ridge == 0 for pull in pulls)
        same = expectation.shared_interpolant(everyone) if free else None
        fitted = [
            sum_clients(pull, plan, everyone) if same is None or pull.shared_ridge > 0 else same
            for pull in pulls
        ]
        return fitted, dict(enumerate(everyone))
    sums = [PullSums.empty(pull, plan.kinds) for pull in pulls]
    drawn: Iterator[DrawnClient] = (plan.client(trial, j) for j in clients)
    if plan.kinds[0].s.size >= WORTH_A_THREAD:
        drawn = draws.draw_ahead(lambda j: plan.client(trial, j), clients)
    kept, wanted = dict[int, DrawnClient](), plan.worth_keeping
    for j, client in enumerate(drawn):
        for each in sums:
            each.add(client)
        if j in wanted:
            kept[j] = client
        tick((j + 1) / len(clients))
    return [each.shared_covariance() for each in sums], kept


def sum_clients(pull: Pull, plan: TrialPlan, clients: list[DrawnClient]) -> SharedCovariance:
    """The shared model of one server stage on clients that are at hand."""
    sums = PullSums.empty(pull, plan.kinds)
    for client in clients:
        sums.add(client)
    return sums.shared_covariance()


def see_shared(client: DrawnClient, shared: SharedCovariance | None, j: int | None) -> Forms:
    """What member j, or (None) a new client, makes of a shared model (None: of no model)."""
    if shared is None:
        return expectation.alone_forms(client)
    if j is None:
        return expectation.newcomer_forms(client, shared)
    return expectation.member_forms(client, shared, j)


def entry_labels(setting: TrialSetting) -> tuple[str, ...]:
    """What the entries of arrays stand for; empty for a single population."""
    if setting.vary is not None:
        name, values = setting.vary
        return tuple(f"{name} {value:g}" for value in values)
    return (
        ()
        if setting.alike
        else tuple(f"{i}: {each.brief}" for i, each in enumerate(setting.worlds))
    )
