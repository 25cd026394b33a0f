"""`simulate`: draw finitely many clients, compute every algorithm exactly, beside the theory."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike

from fedasym.algorithms import Algorithm, Objective, asks_for_all, resolve
from fedasym.algorithms.methods import MAML_STEP
from fedasym.algorithms.paper import CEILINGS
from fedasym.core.errors import InvalidInput, NoFormula, ThresholdWarning, one_of
from fedasym.core.numbers import Array, check_ridge, check_seed, flag, whole
from fedasym.core.runtime import Progress, ask, few_threads, physical_memory, progress_shown
from fedasym.exact import draws
from fedasym.exact.clients import Client
from fedasym.exact.draws import (
    FEATURES,
    ClientKind,
    apportion,
    lay_out_population,
    seeded_generator,
)
from fedasym.exact.estimators import LinearFit, fit
from fedasym.exact.least_squares import fit_personal
from fedasym.results import ACCURACY, Accuracy, Risk
from fedasym.results.simulation import Ledger, Losses, Simulated, SimulatedAccuracy, Simulation
from fedasym.theory.finite import client_weights
from fedasym.verbs import clients_text, collect, plain_form, predict, read_worlds, task_of
from fedasym.verbs.regimes import read_range
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
    TrialSetting,
    entry_labels,
    expect_losses,
    make_plan,
)
from fedasym.worlds import RANGES, Population
from fedasym.worlds.classes import ClassPopulation

if TYPE_CHECKING:
    from fedasym.core.runtime import Executor
    from fedasym.exact.class_clients import ClassLayout, DrawnClassClient, Scored

MODES = {"expectation": "exact given the features", "sampling": "sampled labels"}
# arguments that can vary beside the population's numbers
OPTIONS = ("clients", "dimension", "ridge")
CLIENTS = 300  # unless told otherwise
MATRICES = 24  # d x d arrays alive at once, sums of two streams and the models made of them
WANTED = "give a Population, or a list of them"


@dataclass(frozen=True, eq=False)
class SimulationRequest:
    """The arguments of `simulate`: those that mean the same in every world are checked."""

    worlds: tuple[Any, ...]
    alike: bool  # one population, rather than a list of them
    dimension: int
    clients: int | Sequence[int] | None
    trials: int
    seed: int
    algorithms: Iterable[str | Algorithm] | str | Algorithm | None
    member: bool
    ridge: ArrayLike | None
    maml_step: float | None
    weights: ArrayLike | str | None
    features: str
    mode: str
    vary: Mapping[str, ArrayLike] | None
    save: str | Path | None = None
    progress: Progress | None = None
    on: Executor | str | None = None

    def __post_init__(self) -> None:
        checked = {
            "member": flag("member", self.member),
            "dimension": whole("dimension", self.dimension, 1),
        }
        checked |= {"trials": whole("trials", self.trials, 1), "seed": check_seed(self.seed)}
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "progress", progress_shown(self.progress))
        check_room(self.dimension)


@overload
def simulate(
    world: Population | Sequence[Population],
    *,
    dimension: int = 200,
    clients: int | Sequence[int] | None = None,
    trials: int = 4,
    seed: int = 0,
    algorithms: Iterable[str | Algorithm] | str | Algorithm | None = None,
    member: bool = True,
    ridge: ArrayLike | None = None,
    maml_step: float | None = None,
    weights: ArrayLike | str | None = None,
    features: str = "gaussian",
    mode: str = "expectation",
    vary: Mapping[str, ArrayLike] | None = None,
    save: str | Path | None = None,
    progress: Progress | None = None,
    on: Executor | str | None = None,
) -> Simulation[Simulated]: ...


@overload
def simulate(
    world: ClassPopulation,
    *,
    dimension: int = 200,
    clients: int | None = None,
    trials: int = 4,
    seed: int = 0,
    algorithms: Iterable[str | Algorithm] | str | Algorithm | None = None,
    member: bool = True,
    ridge: ArrayLike | None = None,
    progress: Progress | None = None,
) -> Simulation[SimulatedAccuracy]: ...


def simulate(
    world: Population | Sequence[Population] | ClassPopulation,
    *,
    dimension: int = 200,
    clients: int | Sequence[int] | None = None,
    trials: int = 4,
    seed: int = 0,
    algorithms: Iterable[str | Algorithm] | str | Algorithm | None = None,
    member: bool = True,
    ridge: ArrayLike | None = None,
    maml_step: float | None = None,
    weights: ArrayLike | str | None = None,
    features: str = "gaussian",
    mode: str = "expectation",
    vary: Mapping[str, ArrayLike] | None = None,
    save: str | Path | None = None,
    progress: Progress | None = None,
    on: Executor | str | None = None,
) -> Simulation[Any]:
    """Test loss (or accuracy) of each algorithm on drawn clients, beside what `predict` says.

    Given the features X the loss E|theta_hat - theta_i|^2_Sigma is a trace, so that only features
    are drawn: the shared model's error has covariance Q^-1 [sum_j p^2 A_j E A_j + p^2 noise^2/n b^2
    S_j] Q^-1 with A_j = S_j b(S_j) and Q = sum_j p A_j. The prediction is made for exactly the
    eigenvalues and the aspect d/n that are drawn; what is left between the two is of order
    1/dimension.

    world: a `Population` of numbers, or a list of them; `weights` are then each client's, as in
        `predict`. Clients of a `ClassPopulation` get labels, models are fitted to them and scored:
        exactly for two classes, else on fresh samples.
    dimension: d; a client has n = d/aspect samples, rounded.
    clients: how many, 300 unless given; for a list of populations how many of each, or a total to
        share evenly. With classes, None stands for infinitely many: the shared model is then the
        limit's.
    trials: how many times everything is drawn anew; seed: same seed, same numbers.
    member: whether the clients looked at (up to 8 of each kind in a trial) took part in training,
        or are new.
    ridge: by default each algorithm's best according to the prediction for this many clients.
    features: "gaussian", "rademacher" or "student" (t with 8 degrees of freedom).
    mode: "expectation", or "sampling": draw optima and labels, fit, and test on 1000 held-out
        samples of each client.
    vary: one parameter and its values, such as {"clients": [2, 5, 10, 50]} or {"noise": (0, 2, 9)}.
    save: a file that keeps finished trials; the same call goes on where it was interrupted.
    progress: called with the share that is done and a few words.
    on: "ray", or a `fedasym.runtimes.Ray`: trials are computed on a cluster, side by side.

    >>> import fedasym as fa
    >>> world = fa.Population(radius=1, noise=0.5, aspect=2)
    >>> table = fa.simulate(world, dimension=80, clients=10, trials=3)
    >>> table.best, abs(table["pfedme"].loss / table["pfedme"].predicted.loss - 1) < 0.03
    ('pfedme', True)
    """
    task, worlds, several = read_worlds(world, WANTED)
    task.refuse(
        weights=weights,
        vary=vary,
        save=save,
        features=features,
        mode=mode,
        on=on,
        maml_step=maml_step,
    )
    request = SimulationRequest(
        tuple(worlds),
        not several,
        dimension,
        clients,
        trials,
        seed,
        algorithms,
        member,
        ridge,
        maml_step,
        weights,
        features,
        mode,
        vary,
        save,
        progress,
        on,
    )
    found = task.simulate(request)
    if request.progress is not None:
        request.progress(1.0, "done")
    return found


def one_trial(plan: TrialPlan, mode: str, trial: int, tick: Tick) -> Losses:
    """Every algorithm's losses in one trial."""
    with few_threads(plan.kinds[0].s.size):
        return (sample_losses if mode == "sampling" else expect_losses)(plan, trial, tick)


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
    layout: ClassLayout,
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


def check_room(dimension: int) -> None:
    """Refuse a dimension whose square matrices exceed memory; the number of clients is free."""
    needed = MATRICES * 8.0 * min(dimension, 10**12) ** 2
    there = physical_memory()
    if needed > 0.8 * there:
        largest = int((0.8 * there / (8 * MATRICES)) ** 0.5)
        raise InvalidInput(
            f"dimension is {dimension}: its matrices need {needed / 1e9:.0f} GB and this machine"
            f" has {there / 1e9:.0f}; give at most {largest}"
        )


def simulate_losses(request: SimulationRequest) -> Simulation[Simulated]:
    """The losses of populations; see `simulate`."""
    step = MAML_STEP if request.maml_step is None else request.maml_step
    chosen = resolve(request.algorithms, request.ridge, step)
    moved = [each for each in chosen if is_plain_elsewhere(each)]
    if moved:
        return simulate_elsewhere(request, chosen, moved)
    setting = read_setting(request)
    ledger = Ledger(request.save, setting.arguments)
    plans = [make_plan(point) for point in setting.points]
    ledger.check({each.name for each in plans[0].algorithms})
    fill_ledger(ledger, plans, setting, request)
    found = [
        [ledger.get(place, trial) or {} for trial in range(request.trials)]
        for place in range(len(plans))
    ]
    result = summarise_losses(setting, plans, found)
    ledger.write(json.loads(result.to_json()))
    return result


def is_plain_elsewhere(algorithm: Algorithm) -> bool:
    """Whether an algorithm is simulated in another world than it is asked for."""
    server, client = algorithm.stages
    return client.plain_stage is not None or server.group_stage is not None


def simulate_elsewhere(
    request: SimulationRequest, chosen: list[Algorithm], moved: list[Algorithm]
) -> Simulation[Simulated]:
    """Ridges by direction are plain ones in scaled features, models of clusters plain ones within a
    cluster, whose clients are those that belong there; drawn from the same seeds.
    """
    if not request.alike or request.vary is not None:
        raise InvalidInput(
            f"{moved[0].name} is simulated on one population at a time, without vary: call"
            " simulate once for each"
        )
    parts = {}
    count = CLIENTS if request.clients is None else request.clients
    for each in moved:
        elsewhere = plain_form(each, request.worlds[0], count)
        assert elsewhere is not None
        plain, there, many = elsewhere
        one = replace(request, worlds=(there,), algorithms=[plain], clients=int(many), save=None)
        parts[each.name] = simulate_losses(one)
    first = next(iter(parts.values()))
    others = [each for each in chosen if each not in moved]
    if others:
        first = simulate_losses(replace(request, algorithms=others))
    rows = {
        each.name: parts[each.name][each.name] if each in moved else first[each.name]
        for each in chosen
        if each in moved or each.name in first
    }
    return replace(first, rows=rows)


def read_setting(request: SimulationRequest) -> TrialSetting:
    """What is simulated on populations, checked once."""
    worlds, alike, ridge, weights = request.worlds, request.alike, request.ridge, request.weights
    for each in worlds:
        task_of(each, WANTED)
        if each.shape != ():
            raise InvalidInput(
                "the population holds arrays: give plain numbers, and the values of one parameter"
                " in vary"
            )
    if not worlds:
        raise InvalidInput("the list of populations is empty: give at least one")
    if alike and weights is not None:
        raise InvalidInput(
            "weights are for a list of populations: identical clients have equal weights"
        )
    one_of("features", request.features, FEATURES)
    one_of("mode", request.mode, MODES)
    if ridge is not None and np.shape(check_ridge(ridge)) not in ((), (len(worlds),)):
        raise InvalidInput(
            f"ridge has shape {np.shape(ridge)}: give one number, or one per population; use vary"
            " for several"
        )
    axis = None if request.vary is None else check_axis(request.vary, alike)
    count = count_clients(
        CLIENTS if request.clients is None else request.clients, len(worlds), alike
    )
    if weights is not None:
        client_weights(worlds, np.array(count, dtype=float), weights)
    chosen = tuple(
        resolve(
            request.algorithms, ridge, MAML_STEP if request.maml_step is None else request.maml_step
        )
    )
    if axis is not None and axis[0] == "ridge" and not any(each.has_ridge for each in chosen):
        raise InvalidInput(
            "vary names ridge, and no algorithm asked for has one: ask for rtfa, pfedme or"
            " local_ridge"
        )
    return TrialSetting(
        worlds,
        alike,
        request.dimension,
        count,
        request.seed,
        chosen,
        request.algorithms is None or asks_for_all(request.algorithms),
        request.member,
        request.features,
        request.mode,
        weights,
        axis,
    )


def count_clients(clients: int | Sequence[int], kinds: int, alike: bool) -> tuple[int, ...]:
    """How many clients there are of each kind."""
    given = np.asarray(clients, dtype=object)  # each number as it is: they are checked one by one
    if given.ndim == 0:
        total = whole("clients", clients, kinds)
        return (total,) if alike else tuple(apportion(np.full(kinds, 1 / kinds), total).tolist())
    if alike or given.shape != (kinds,):
        raise InvalidInput(
            f"clients is {clients!r}: give one number; a list is for a list of populations, one for"
            " each, or for vary"
        )
    return tuple(whole("clients", each, 1) for each in given)


def check_axis(vary: Mapping[str, ArrayLike], alike: bool) -> tuple[str, tuple[float, ...]]:
    """The parameter that varies and its values, in ascending order."""
    if not isinstance(vary, Mapping) or len(vary) != 1:
        raise InvalidInput(
            'vary must name one parameter, such as {"clients": [2, 5, 10, 50]} or {"noise": (0,'
            " 2, 9)}"
        )
    if not alike:
        raise InvalidInput("vary is for one population: simulate a list of them without it")
    ((name, values),) = vary.items()
    one_of("parameter in vary", name, (*RANGES, *OPTIONS))
    array = np.unique(read_range(name, values))
    if array.ndim != 1 or array.size == 0 or not np.all(np.isfinite(array)):
        raise InvalidInput(
            f"vary[{name!r}] must hold finite numbers: give a list of them, or (start, stop, count)"
        )
    if name in ("clients", "dimension"):
        return name, tuple(whole(name, value, 1) for value in np.unique(np.round(array)))
    return name, tuple(float(value) for value in array)


def fill_ledger(
    ledger: Ledger, plans: Sequence[TrialPlan], setting: TrialSetting, request: SimulationRequest
) -> None:
    """Have all trials in the ledger, each from its own seed, so that order does not matter."""
    repeats, progress, on = request.trials, request.progress, request.on
    missing = [
        (place, trial)
        for place in range(len(plans))
        for trial in range(repeats)
        if ledger.get(place, trial) is None
    ]
    if on is not None and missing:
        size = int(MATRICES * 8.0 * max(plan.kinds[0].s.size for plan in plans) ** 2)
        ask("run trials")(
            ask("read executor")(on), plans, setting.mode, missing, size, ledger.add, progress
        )
        return
    for place, trial in missing:
        tick = tell_progress(progress, setting, (place, trial), (len(plans), repeats))
        ledger.add(place, trial, one_trial(plans[place], setting.mode, trial, tick))


def tell_progress(
    progress: Progress | None, setting: TrialSetting, at: tuple[int, int], of: tuple[int, int]
) -> Tick:
    """Tell the progress of one trial (a point and a repeat) as that of the whole."""
    if progress is None:
        return lambda share: None
    (place, trial), (points, repeats) = at, of
    where = "" if setting.vary is None else f"{setting.vary[0]} {setting.vary[1][place]:g}, "
    text = f"{where}trial {trial + 1} of {repeats}"
    return lambda share: progress((place * repeats + trial + share) / (points * repeats), text)


def summarise_losses(
    setting: TrialSetting, plans: list[TrialPlan], found: list[list[Losses]]
) -> Simulation[Simulated]:
    """All trials as one result: numbers, or arrays over what varies or over kinds of clients."""

    def shape_result(values: Any) -> Any:
        """Points x kinds to the shape of the result."""
        array = np.asarray(values, dtype=float)
        return (
            float(array[0, 0])
            if setting.vary is None and setting.alike
            else array[0]
            if setting.vary is None
            else array[:, 0]
        )

    def theory(risks: list[Risk]) -> Risk:
        return Risk(
            shape_result([risk.bias for risk in risks]),
            shape_result([risk.variance for risk in risks]),
        )

    rows = {}
    for place, each in enumerate(plans[0].algorithms):
        name = each.name
        # points, trials, kinds, parts
        parts = np.array([[losses[name] for losses in trials] for trials in found])
        loss = parts.sum(-1)
        repeats = loss.shape[1]
        error = (
            loss.std(1, ddof=1) / np.sqrt(repeats)
            if repeats > 1
            else np.full_like(loss[:, 0], np.nan)
        )
        split = parts.mean(1) if parts.shape[-1] == 2 else None
        rows[name] = Simulated(
            loss=shape_result(loss.mean(1)),
            low=shape_result(loss.min(1)),
            high=shape_result(loss.max(1)),
            error=shape_result(error),
            bias=None if split is None else shape_result(split[..., 0]),
            variance=None if split is None else shape_result(split[..., 1]),
            predicted=theory([plan.algorithms[place].predicted for plan in plans]),
            limit=theory([plan.algorithms[place].limit for plan in plans]),
            ridge=(
                None
                if each.ridge is None
                else shape_result([plan.algorithms[place].ridge for plan in plans])
            ),
        )
    notes = tuple(dict.fromkeys(note for plan in plans for note in plan.notes))
    trials = len(found[0])
    title = simulation_title(setting, len(found[0]))
    result = Simulation(
        rows,
        title,
        trials,
        setting.dimension,
        notes,
        vary=setting.vary,
        labels=entry_labels(setting),
    )
    return (
        result if setting.vary is None else replace(result, lines=partial(predict_curve, setting))
    )


def simulation_title(setting: TrialSetting, trials: int) -> str:
    """What was simulated, in one line."""
    varied = None if setting.vary is None else setting.vary[0]
    who = "a member" if setting.member else "a new client"
    if setting.alike:
        parts = setting.worlds[0].facts(without=(varied,))
        parts.append(
            f"seen by {who}"
            if varied == "clients"
            else clients_text(np.array(setting.clients), setting.member)
        )
    else:
        parts = [f"{sum(setting.clients)} clients of {len(setting.worlds)} kinds, seen by {who}"]
    parts += [f"dimension {setting.dimension}"] if varied != "dimension" else []
    parts += [f"{setting.features} features"] if setting.features != "gaussian" else []
    parts.append(f"{trials} trial{'s' if trials > 1 else ''}, {MODES[setting.mode]}")
    return " · ".join(parts)


def predict_curve(setting: TrialSetting, name: str, at: Array) -> tuple[Array, Array]:
    """Prediction and limit over the parameter that varies; NaN where there is no formula."""
    assert setting.vary is not None
    varied = setting.vary[0]
    world = replace(
        lay_out_population(setting.worlds[0], setting.dimension)[0], aspect=setting.worlds[0].aspect
    )
    clients: Any = setting.clients[0]
    if varied == "clients":
        clients = np.round(at)
    elif varied != "dimension":
        setting = replace(setting, worlds=(world,)).at(varied, at)
        world = setting.worlds[0]
    (algorithm,) = (each for each in setting.algorithms if each.name == name)
    lines = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ThresholdWarning)
        for options in ({"clients": clients, "member": setting.member}, {}):
            try:
                lines.append(
                    np.asarray(predict(world, [algorithm], **options)[name].loss, dtype=float)
                )
            except NoFormula:
                lines.append(np.array(np.nan))
    return np.broadcast_to(lines[0], at.shape), np.broadcast_to(lines[1], at.shape)


def simulate_accuracies(request: SimulationRequest) -> Simulation[SimulatedAccuracy]:
    """The accuracies of a population with classes; see `simulate`."""
    from fedasym.exact.class_clients import lay_out

    if not request.alike:
        raise InvalidInput(f"world is {list(request.worlds)!r}: give one ClassPopulation at a time")
    (world,), trials = request.worlds, request.trials
    dimension = whole("dimension", request.dimension, 2)
    clients = request.clients
    clients = None if clients is None else whole("clients", clients, 1)
    if world.shape != ():
        raise InvalidInput("the population holds arrays: give plain numbers, one world at a time")
    layout = lay_out(world, dimension)
    chosen, rows, notes = predict_simulated(layout.world, request, clients)
    found: list[dict[str, Scored]] = []
    with few_threads(dimension):
        for trial in range(trials):
            if request.progress is not None:
                request.progress(trial / trials, f"trial {trial + 1} of {trials}")
            found.append(one_labelled_trial(layout, chosen, rows, clients, request, trial))
    simulated = {
        name: SimulatedAccuracy.of_trials(row, np.array([each[name] for each in found]))
        for name, row in rows.items()
    }
    many = clients_text(None if clients is None else np.array([clients]), request.member)
    looked = LOOKED_AT if clients is None or not request.member else min(LOOKED_AT, clients)
    title = (
        f"{world} · {many} · dimension {dimension} · {trials} trials of {looked}"
        f" client{'s' * (looked > 1)}"
    )
    return Simulation(simulated, title, trials, dimension, tuple(notes), ACCURACY)


def predict_simulated(
    world: ClassPopulation, request: SimulationRequest, clients: int | None
) -> tuple[list[Algorithm], dict[str, Accuracy], list[str]]:
    """The algorithms that the theory covers, what it says of them, and why others are left out."""
    from fedasym.verbs.accuracies import DEFAULT, make_solver

    optional = request.algorithms is None
    usual = [*(name for name in DEFAULT if name not in CEILINGS), "stopped"]
    wanted = task_of(world).resolve(
        usual if optional else request.algorithms, request.ridge, MAML_STEP
    )
    if any(
        np.ndim(each.personalise.get("ridge"))
        for each in wanted
        if each.personalise.get("ridge") is not None
    ):
        raise InvalidInput("ridge must be one number here; simulate once for each")
    for each in wanted:
        if each.name in CEILINGS:
            raise InvalidInput(
                f"{each.name} is a ceiling, not an algorithm: leave it out, or see it in predict"
            )
    m = None if clients is None else np.array(float(clients))
    rows, notes = collect(wanted, optional, make_solver(world, (), m, request.member))
    chosen = [each for each in wanted if each.name in rows]
    if any(row.time is not None for row in rows.values()):
        notes.append(
            "stopped is predicted by a clock that is good to about 0.3 percentage points, not by a"
            " limit."
        )
    return chosen, rows, notes
