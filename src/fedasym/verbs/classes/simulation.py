"""`simulate` for a `ClassPopulation`: draw clients, fit every method to their labels, score the models, beside the theory."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp, softmax

from fedasym.algorithms import Algorithm
from fedasym.algorithms.registry import asked
from fedasym.core.arrays import Array, check_seed, whole
from fedasym.core.errors import InvalidInput, NoFormula, ThresholdWarning
from fedasym.core.hooks import Progress
from fedasym.core.machine import few_threads
from fedasym.exact.draws import seeded_generator as seeded
from fedasym.results.accuracy import CEILINGS, Accuracy, AccuracyTable
from fedasym.theory.classes import metrics
from fedasym.theory.classes.optimum import label_probe as probe
from fedasym.theory.classes.ridge import shrinkage
from fedasym.theory.classes.softmax import contrasts
from fedasym.theory.classes.softmax import softmax_centre as centre
from fedasym.theory.classes.softmax import softmax_phi as phi
from fedasym.verbs.classes import fitting
from fedasym.verbs.classes.drawn import CLIENT, NEWCOMER, Client, Layout, client, laid_out, shared_optimum
from fedasym.verbs.classes.methods import METHODS, Method, resolve_methods
from fedasym.verbs.classes.prediction import predict_classes
from fedasym.verbs.classes.simulated import AccuracySimulation, SimulatedAccuracy
from fedasym.verbs.prediction import left_out
from fedasym.verbs.sentences import how_many
from fedasym.verbs.simulation import check_room
from fedasym.worlds.classes import ClassPopulation

LOOKED_AT = 4  # clients scored in a trial
FRESH = 20_000  # samples on which a model of more than two classes is scored
DEFAULT = [*(name for name in METHODS if name not in CEILINGS), "stopped"]

OTHERS = {"features": "gaussian", "mode": "expectation"}  # what `simulate` has them by default

Scores = tuple[float, float, float, float]  # accuracy, log-loss, Brier score, slope; NaN where there is none


def simulate_classes(
    world: ClassPopulation,
    dimension: int,
    clients: int | Sequence[int] | None,
    trials: int,
    seed: int,
    algorithms: Iterable[str | Algorithm] | str | Algorithm | None,
    member: bool,
    ridge: ArrayLike | None,
    progress: Progress | None,
    others: Mapping[str, Any],
) -> AccuracySimulation:
    """Accuracy of each method on drawn clients; see `fedasym.simulate`. `others`: its arguments for a `Population` alone."""
    for name, value in others.items():
        if value is not None and not (isinstance(value, str) and value == OTHERS.get(name)):
            raise InvalidInput(f"{name} is {value!r}, which is for a Population: leave it out with a ClassPopulation")
    dimension, trials, seed = whole("dimension", dimension, 2), whole("trials", trials, 1), check_seed(seed)
    clients = None if clients is None else whole("clients", clients, 1)
    check_room(dimension)
    if world.shape != ():
        raise InvalidInput("the population holds arrays: give plain numbers, one world at a time")
    layout = laid_out(world, dimension)
    table, methods, notes = foreseen(layout.world, algorithms, ridge, clients, member)
    found: list[dict[str, Scores]] = []
    with few_threads(dimension):
        for trial in range(trials):
            if progress is not None:
                progress(trial / trials, f"trial {trial + 1} of {trials}")
            found.append(one_trial(layout, methods, table, clients, member, seed, trial))
    if progress is not None:
        progress(1.0, "done")
    rows = {method.name: summed(table[method.name], np.array([each[method.name] for each in found])) for method in methods}
    many = how_many(None if clients is None else np.array([clients]), member)
    looked = LOOKED_AT if clients is None or not member else min(LOOKED_AT, clients)
    title = f"{world} · {many} · dimension {dimension} · {trials} trials of {looked} client{'s' * (looked > 1)}"
    return AccuracySimulation(rows, title, trials, dimension, tuple(notes))


def foreseen(
    world: ClassPopulation,
    algorithms: Iterable[str | Algorithm] | str | Algorithm | None,
    ridge: ArrayLike | None,
    clients: int | None,
    member: bool,
) -> tuple[AccuracyTable, list[Method], list[str]]:
    """What the theory says, the methods that it covers, and why others are left out."""
    entries = asked(algorithms, DEFAULT)
    wanted = resolve_methods(entries, ridge)
    if any(np.ndim(method.ridge) for method in wanted if method.ridge is not None):
        raise InvalidInput("ridge must be one number here; simulate once for each")
    rows: dict[str, Accuracy] = {}
    missing: dict[str, list[str]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ThresholdWarning)  # a simulation may sit at a threshold to see what happens there
        for method, entry in zip(wanted, entries, strict=True):
            if method.kind in CEILINGS:
                raise InvalidInput(f"{method.name} is a ceiling, no method: leave it out, or see it in predict")
            try:
                rows[method.name] = predict_classes(world, [entry], ridge, clients, member)[method.name]
            except NoFormula as reason:
                if algorithms is not None:
                    raise
                missing.setdefault(str(reason).partition(": ")[2], []).append(method.name)
    notes = left_out(missing)
    if any(method.kind == "stopped" for method in wanted if method.name in rows):
        notes.append("stopped is predicted by a clock that is good to about 0.3 percentage points, not by a limit.")
    return AccuracyTable(rows, world), [method for method in wanted if method.name in rows], notes


def one_trial(
    layout: Layout, methods: list[Method], table: AccuracyTable, clients: int | None, member: bool, seed: int, trial: int
) -> dict[str, Scores]:
    """Every method's scores, the mean over the clients looked at."""
    theta0 = shared_optimum(layout, seed, trial)
    world = layout.world
    if clients is None:
        looked = [client(layout, theta0, seeded(seed, trial, CLIENT, j)) for j in range(LOOKED_AT)]
        shared = shrinkage_of(world) * theta0
    else:
        members = [client(layout, theta0, seeded(seed, trial, CLIENT, j)) for j in range(clients)]
        shared = fitting.pooled(members)
        new = (client(layout, theta0, seeded(seed, trial, NEWCOMER, j)) for j in range(LOOKED_AT))
        looked = members[:LOOKED_AT] if member else list(new)
    scores: dict[str, list[Scores]] = {method.name: [] for method in methods}
    for place, one in enumerate(looked):
        rng = seeded(seed, trial, 3, place)
        for name, model, endless in fits(one, methods, table, shared, slope_of(world) * theta0):
            scores[name].append(scored(one, model, world, rng, endless))
    return {name: tuple(np.mean(rows, axis=0)) for name, rows in scores.items()}


def shrinkage_of(world: ClassPopulation) -> float:
    """The c of the shared model c theta_0 of infinitely many clients."""
    if world.classes == 2:
        return float(shrinkage(world.energies, world.flips))
    return centre(world.energies, world.classes) if float(world.energies.b0) > 0 else 1.0


def slope_of(world: ClassPopulation) -> float:
    """The zeta of the shared least-squares model zeta theta_0."""
    rho = float(world.energies.rho)
    return float(probe(rho, world.flips).zeta) if world.classes == 2 else phi(rho, world.classes)


def fits(
    one: Client, methods: list[Method], table: AccuracyTable, shared: Array, squared: Array
) -> Iterator[tuple[str, Array, bool]]:
    """Each method's model of a client, and whether its length has no end."""
    ended: tuple[Array, bool] | None = None
    for method in methods:
        row = table[method.name]
        match method.kind:
            case "converged":
                ended = fitting.converged(one) if ended is None else ended
                yield method.name, *ended
            case "local_ridge":
                yield method.name, fitting.ridge(one, number(row.ridge), np.zeros_like(shared)), False
            case "fedavg":
                yield method.name, shared, False
            case "rtfa":
                yield method.name, fitting.ridge(one, number(row.ridge), shared), False
            case "one_step":
                yield method.name, fitting.step(one, number(row.step), shared), False
            case "stopped":
                yield method.name, fitting.descend(one, number(row.time), shared), False
            case "ftfa_squares":
                yield method.name, fitting.squares(one, 0.0, squared), True
            case "rtfa_squares":
                yield method.name, fitting.squares(one, number(row.ridge), squared), True


def number(value: float | Array | None) -> float:
    """A number that is there."""
    assert value is not None
    return float(value)


def scored(one: Client, w: Array, world: ClassPopulation, rng: np.random.Generator, endless: bool) -> Scores:
    """The scores of a model on fresh samples of its client."""
    gram = {key: (a.T * one.s) @ b for key, (a, b) in {"T": (w, one.truth), "Q": (w, w), "R": (one.truth, one.truth)}.items()}
    if world.classes == 2:
        eps = np.asarray(world.flips)
        state = metrics.State.of(gram["T"][0, 0], gram["Q"][0, 0], np.sqrt(gram["R"][0, 0]))
        right = float(metrics.accuracy(state, eps))
        if endless:
            return right, np.nan, np.nan, np.nan
        loss, brier, slope = (float(each(state, eps)) for each in (metrics.log_loss, metrics.brier, metrics.calibration))
        return right, loss, brier, slope
    B, K = contrasts(world.classes), w.shape[1]
    both = np.block([[gram["R"], gram["T"].T], [gram["T"], gram["Q"]]])
    values, vectors = np.linalg.eigh(both)
    x = (vectors * np.sqrt(np.maximum(values, 0))) @ rng.standard_normal((2 * K, FRESH))
    own, logits = B @ x[:K], B @ x[K:]
    p = softmax(own, axis=0)
    right = float(np.take_along_axis(p, logits.argmax(0)[None], axis=0).mean())
    if endless:
        return right, np.nan, np.nan, np.nan
    q = softmax(logits, axis=0)
    loss = float((logsumexp(logits, axis=0) - (p * logits).sum(0)).mean())
    return right, loss, float((1 - 2 * (p * q).sum(0) + (q**2).sum(0)).mean() / 2), np.nan


def summed(predicted: Accuracy, found: Array) -> SimulatedAccuracy:
    """Trials (rows) as means and standard errors."""
    mean = found.mean(0)
    error = found.std(0, ddof=1) / np.sqrt(len(found)) if len(found) > 1 else np.full(4, np.nan)
    loss, brier, slope = (None if np.isnan(x) else float(x) for x in mean[1:])
    return SimulatedAccuracy(
        float(mean[0]), float(found[:, 0].min()), float(found[:, 0].max()), float(error[0]), loss,
        None if loss is None else float(error[1]), brier, slope, predicted,
    )  # fmt: skip
