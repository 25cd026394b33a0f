"""What is simulated: the clients, the algorithms with their ridges, and what the theory says of exactly these."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedasym.algorithms import Algorithm, Ridge
from fedasym.algorithms.description import describe_algorithm
from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput, MissingNorm, NoFormula, ThresholdWarning
from fedasym.exact.draws import ClientKind as Kind
from fedasym.exact.draws import DrawnClient as Drawn
from fedasym.exact.draws import draw_client as draw
from fedasym.exact.draws import kinds_of
from fedasym.exact.draws import seeded_generator as seeded
from fedasym.exact.traces import Pull, pull_of
from fedasym.results.comparison import Risk
from fedasym.theory.finite import client_weights
from fedasym.theory.finite import precision_weights as precision
from fedasym.theory.limits import bayes_ridge, flatten
from fedasym.verbs.prediction import predict, ridge_of
from fedasym.worlds.population import RANGES, Population

LOOKED_AT = 8  # clients of each kind whose risk is computed in a trial: they are exchangeable
MEMBER, NEWCOMER = 0, 1  # roles in a path of seeds

Losses = dict[str, list[list[float]]]  # by algorithm and kind of client: bias and variance, or the loss alone
Tick = Callable[[float], None]  # hears what share of a trial is done


@dataclass(frozen=True, eq=False)
class Setting:
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
    def points(self) -> list[Setting]:
        """One setting for each value of what varies."""
        if self.vary is None:
            return [self]
        name, values = self.vary
        return [replace(self.at(name, value), vary=None) for value in values]

    def at(self, name: str, value: Any) -> Setting:
        """The same with another value of one parameter; for a number of the population, an array of them too."""
        match name:
            case "clients":
                return replace(self, clients=(int(value),))
            case "dimension":
                return replace(self, dimension=int(value))
            case "ridge":
                changed = (
                    replace(each, personalise=Ridge(value)) if isinstance(each.personalise, Ridge) else each
                    for each in self.algorithms
                )
                return replace(self, algorithms=tuple(changed))
        return replace(self, worlds=(replace(self.worlds[0], **{name: value}),))

    @property
    def arguments(self) -> dict[str, Any]:
        """What identifies the answer, for a file; `trials` is not in it, as more of them may be asked for later."""
        worlds = []
        for each in self.worlds:
            numbers: dict[str, Any] = {name: getattr(each, name) for name in RANGES}
            arrays = (each.spectrum.values, each.spectrum.weights, each.displacement, each.optimum)
            names = ("eigenvalues", "shares", "displacement", "optimum")
            worlds.append(numbers | {name: array.tolist() for name, array in zip(names, arrays, strict=True)})
        weights = self.weights if self.weights is None or isinstance(self.weights, str) else np.asarray(self.weights).tolist()
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
    """One algorithm: its ridge for each kind of client, its pull at the shared model, and its risks in theory."""

    algorithm: Algorithm
    pull: Pull | None  # the same object for algorithms that share a server stage
    ridge: Array | None
    predicted: Risk
    limit: Risk

    @property
    def name(self) -> str:
        """The algorithm's."""
        return self.algorithm.name

    def ridge_of(self, kind: Kind) -> float | None:
        """The ridge of a client of this kind."""
        return None if self.ridge is None else float(self.ridge[kind.place])


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that a trial needs."""

    kinds: tuple[Kind, ...]
    count: tuple[int, ...]
    algorithms: tuple[Planned, ...]
    member: bool
    features: str
    seed: int
    notes: tuple[str, ...]

    @property
    def crowded(self) -> bool:
        """Whether all samples together are fewer than the unknowns."""
        return sum(m * kind.n for m, kind in zip(self.count, self.kinds, strict=True)) < self.kinds[0].s.size

    def kind_of(self, j: int) -> Kind:
        """The kind of client j: the clients of the first population come first."""
        return self.kinds[int(np.searchsorted(np.cumsum(self.count), j, side="right"))]

    def client(self, trial: int, j: int) -> Drawn:
        """Client j, the same whenever it is asked for."""
        return draw(self.kind_of(j), seeded(self.seed, trial, MEMBER, j), self.features)

    def places(self, kind: Kind) -> range:
        """The clients of a kind whose risk is computed: indices into the federation, or newcomers' own numbers."""
        if not self.member:
            return range(LOOKED_AT)
        start = sum(self.count[: kind.place])
        return range(start, start + min(LOOKED_AT, self.count[kind.place]))

    def looked_at(self, trial: int, kind: Kind) -> Iterator[tuple[int, Drawn]]:
        """These clients: drawn again if they are members, for the first time if they are new."""
        for j in self.places(kind):
            rng = seeded(self.seed, trial, NEWCOMER, kind.place, j)
            yield j, self.client(trial, j) if self.member else draw(kind, rng, self.features)


def planned(setting: Setting) -> Plan:
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
        predicted, limit, ridge, missing = foreseen(algorithm, setting, [kind.population for kind in kinds])
        notes += missing
        pull = None if algorithm.shares_nothing else pull_for(algorithm, setting, kinds, ridge)
        if pull is not None:
            key = (pull.server, pull.p.tobytes(), None if pull.ridge is None else pull.ridge.tobytes())
            pull = pulls.setdefault(key, pull)
        rows.append(Planned(algorithm, pull, ridge, predicted, limit))
    return Plan(kinds, setting.clients, tuple(rows), setting.member, setting.features, setting.seed, tuple(notes))


def pull_for(algorithm: Algorithm, setting: Setting, kinds: tuple[Kind, ...], ridge: Array | None) -> Pull:
    """The pull of an algorithm's server stage; pFedMe has weights of its own, as in `predict`, where none are given."""
    exact, count = [kind.population for kind in kinds], np.array(setting.clients, dtype=float)
    p = client_weights(exact, count, setting.weights)
    if "ridge" in algorithm.server.settings():
        if ridge is None:
            own = algorithm.server.get("ridge")
            ridge = np.full(len(kinds), own) if own is not None else np.array([optimal(each) for each in exact])
        if ridge is not None and np.any(ridge < 0):
            raise InvalidInput(f"{algorithm.name}: ridge is {ridge.min():g}: the shared model needs one of at least 0")
        own = precision(exact)
        if setting.weights is None and not setting.alike and own.any():
            p = own / (count @ own)
    return pull_of(algorithm.server, p, ridge)


def optimal(population: Population) -> float:
    """noise^2 aspect/radius^2, the ridge that ties clients of one kind best."""
    return float(bayes_ridge(flatten(population, ()))[0])


def foreseen(algorithm: Algorithm, setting: Setting, exact: list[Population]) -> tuple[Risk, Risk, Array | None, list[str]]:
    """Finite-client prediction, limit, and the ridge of each kind: the prediction's best, or the limit's where it has none."""
    given = ridge_of(algorithm, (len(exact),))
    missing: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ThresholdWarning)  # a simulation may sit at a threshold to see what happens there
        nothing = np.full(len(exact), np.nan)
        try:
            limit = stacked([endless(algorithm, each, place) for place, each in enumerate(exact)])
        except NoFormula as reason:
            limit, missing = Risk(nothing, nothing, nothing), [f"No limit for {reason}."]
        try:
            found = finite(algorithm, setting, exact)
        except NoFormula as reason:
            missing = [f"No prediction for {reason}."]
            found = Risk(nothing, nothing, np.maximum(np.asarray(limit.ridge), 0.0))
    best = np.atleast_1d(np.asarray(found.ridge, dtype=float)) if isinstance(algorithm.personalise, Ridge) else None
    predicted = Risk(np.atleast_1d(found.bias), np.atleast_1d(found.variance), best)
    return predicted, limit, best if given is None else given, missing


def endless(algorithm: Algorithm, population: Population, place: int) -> Risk:
    """What `predict` says of infinitely many clients, for the population at this place of a list."""
    stage = algorithm.personalise
    if isinstance(stage, Ridge) and stage.ridge is not None and np.ndim(stage.ridge):
        algorithm = replace(algorithm, personalise=Ridge(float(np.asarray(stage.ridge)[place])))
    return predict(population, [algorithm])[algorithm.name]


def stacked(risks: list[Risk]) -> Risk:
    """Several risks as one of arrays; a ridge that is absent is NaN."""
    parts = ("bias", "variance", "ridge")
    return Risk(*(np.array([getattr(risk, part) for risk in risks], dtype=float) for part in parts))


def finite(algorithm: Algorithm, setting: Setting, exact: list[Population]) -> Risk:
    """What `predict` says of finitely many clients."""
    if setting.alike:
        return predict(exact[0], [algorithm], clients=setting.clients[0], member=setting.member)[algorithm.name]
    options = {"clients": setting.clients, "member": setting.member, "weights": setting.weights}
    return predict(exact, [algorithm], **options)[algorithm.name]
