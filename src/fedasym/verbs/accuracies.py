"""Classification: the accuracies of every algorithm on a `ClassPopulation`, for every verb."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedasym.algorithms import PAPER, Algorithm, Objective, requested_algorithms
from fedasym.algorithms.paper import CEILINGS, CLASSES, SIMPLEST
from fedasym.algorithms.registry import find
from fedasym.core.errors import InvalidInput, NoFormula, ThresholdWarning
from fedasym.core.numbers import Array, floats, one_float
from fedasym.results import ACCURACY, Accuracy, Comparison, Metric, percent
from fedasym.results.regimes import FineTuning, Stop
from fedasym.theory.classes import (
    LogisticAnswer,
    LogisticWorlds,
    Pair,
    SoftmaxAnswer,
    SoftmaxWorld,
    best_softmax_time,
    best_time,
    canonical_pair,
    logistic_limit,
    metrics,
    optimum,
    rtfa_state,
    softmax_limit,
    softmax_ridge,
)
from fedasym.theory.classes.metrics import (
    LEVEL,
    State,
    half_normal_nodes,
    nodes_for,
    outer_step,
    smooth_sigmoid,
)
from fedasym.theory.classes.optimum import logistic_curvature, stopped_fits
from fedasym.verbs import (
    NEAR,
    LearningTask,
    Names,
    PredictionRequest,
    TuningRequest,
    box,
    check_step_size,
    check_times,
    clients_text,
    collect,
    joint_shape,
    ridge_of,
    sharing_verdict,
    threshold_note,
)
from fedasym.worlds import check_client_count
from fedasym.worlds.classes import ClassPopulation

if TYPE_CHECKING:
    from fedasym.results.simulation import SimulatedAccuracy, Simulation
    from fedasym.verbs.simulation import SimulationRequest

DEFAULT = (
    *(
        name
        for name, each in PAPER.items()
        if each.server.objective in (Objective.NOTHING, Objective.POOLED)
    ),
    "one_step",
    "ftfa_squares",
    "rtfa_squares",
    *CEILINGS,
)
# an aspect this near to gamma* asks for a dimension well above (2/NEAR_SEPARABLE)^2 = 1100
NEAR_SEPARABLE = 0.06
UNUSED = (
    "Left out maml (to convergence it equals local, whatever the clients shared) and pfedme, which"
    " has a row where it is named and clients are infinitely many."
)
# whose accuracy is drawn by ridge, together before alone
RIDGED = tuple(name for name in SIMPLEST if name in DEFAULT and PAPER[name].has_ridge)
SCORES = tuple(each.name for each in ACCURACY.columns)
MOST = 400  # points of a diagram with more than two classes, which take about half a second each
EXACT, ROUGH = 1e-9, 1e-3  # relative precision of the boundary for two and for more classes
FINE, COARSE = 61, 17  # ridges of a curve: of two classes; of more, or of a member of few clients
CLOCK = (
    "Times are matched to ridges by an arc-length clock: accuracies along the path are good to"
    " about 0.3 percentage points."
)


class Classification(LearningTask[Accuracy]):
    """Logistic and softmax loss: the accuracy on fresh samples."""

    world: ClassVar[str] = "ClassPopulation"
    metric: ClassVar[Metric] = ACCURACY
    foreign: ClassVar[Mapping[str, object]] = {
        "maml_step": None,
        "method": "formula",
        "weights": None,
        "vary": None,
        "save": None,
        "features": "gaussian",
        "mode": "expectation",
        "on": None,
    }
    options: ClassVar[tuple[str, ...]] = ("ridge", "clients", "member")

    def resolve(
        self, algorithms: Names, ridge: ArrayLike | None, maml_step: float
    ) -> list[Algorithm]:
        """By default those with a theorem, and ceilings; least squares keeps its own ridge."""
        penalty = None if ridge is None else check_penalty(ridge)
        chosen = [
            put_ridge(find(entry, CLASSES), penalty)
            for entry in requested_algorithms(algorithms, DEFAULT)
        ]
        for algorithm in chosen:
            canonical_pair(algorithm)
        if not chosen:
            raise InvalidInput(f"algorithms is empty: name at least one of {', '.join(DEFAULT)}")
        if len({each.name for each in chosen}) < len(chosen):
            raise InvalidInput(
                "algorithms names one twice: give each once, and each Algorithm a name of its own"
            )
        return chosen

    def predict(
        self, worlds: Sequence[ClassPopulation], chosen: list[Algorithm], asked: PredictionRequest
    ) -> Comparison[Accuracy]:
        """All algorithms on one population, or on each world of a grid."""
        if asked.several:
            raise NoFormula(
                "accuracy is derived for clients of one ClassPopulation, not for a list: predict"
                " each of them alone"
            )
        return predict_accuracies(worlds[0], chosen, asked)

    def evaluate(
        self,
        world: ClassPopulation,
        chosen: list[Algorithm],
        shape: tuple[int, ...],
        asked: PredictionRequest,
    ) -> list[Array]:
        """Accuracies over a grid, with best ridges by a quick search."""
        m = None if asked.clients is None else check_client_count(asked.clients)
        worlds = replace(flatten_classes(world, shape, m, asked.member), rough=True)
        if world.classes > 2:
            found = (solve_scores(each, world, worlds, shape).accuracy for each in chosen)
        else:
            states = (
                logistic_limit(canonical_pair(each), worlds, ridge_of(each, shape)).state
                for each in chosen
            )
            found = (metrics.accuracy(state, worlds.eps) for state in states)
        return [np.asarray(each, dtype=float).reshape(shape) for each in found]

    def check_grid(self, world: ClassPopulation, points: int) -> float:
        """More than two classes take their time."""
        if world.classes > 2 and points > MOST:
            raise InvalidInput(
                f"vary asks for {points} points: with {world.classes} classes give at most {MOST},"
                " each takes about a second"
            )
        return EXACT if world.classes == 2 else ROUGH

    def fine_tune(self, world: ClassPopulation, walk: TuningRequest) -> FineTuning[Accuracy]:
        """Times are matched to ridges by a clock."""
        return walk_accuracies(world, walk)

    def step_once(
        self, world: ClassPopulation, step: ArrayLike | None
    ) -> tuple[float | Array, Accuracy]:
        """In closed form."""
        size = None if step is None else one_float(step)
        if size is not None and not 0 <= size < np.inf:
            raise InvalidInput(
                f"step is {step!r}: it must be one finite number of at least 0; leave it out for"
                " the best"
            )
        best = CLASSES["one_step"]
        one = best if size is None else best.with_steps(best.name, size)
        found = solve_scores(
            one, world, flatten_classes(world, world.shape, None, True), world.shape
        )
        assert found.step is not None
        return found.step, found

    def best_ridge(self, world: ClassPopulation) -> Array:
        """Where rtfa is the most accurate."""
        if world.classes == 2:
            found = rtfa_state(flatten_classes(world, world.shape, None, True), None).ridge
            assert found is not None
            return found
        best = softmax_ridge.best_softmax_ridge
        return np.array(
            [
                best(one.energies, float(np.asarray(one.aspect)), one.classes).ridge
                for one in split_grid(world)
            ]
        )

    def simulate(self, request: SimulationRequest) -> Simulation[SimulatedAccuracy]:
        """Models fitted to drawn labels."""
        from fedasym.verbs.simulation import simulate_accuracies

        return simulate_accuracies(request)


TASK = Classification()


def put_ridge(algorithm: Algorithm, ridge: float | Array | None) -> Algorithm:
    """The algorithm with the given ridge, where it takes one, or its own, checked."""
    stage = algorithm.personalise
    if not algorithm.has_ridge:
        return algorithm
    given = ridge is not None and not algorithm.server.squares_labels
    own = ridge if given else stage.get("ridge")
    return replace(
        algorithm, personalise=stage.at(ridge=None if own is None else check_penalty(own))
    )


def check_penalty(ridge: ArrayLike) -> float | Array:
    """A ridge of the logistic loss: a number of at least 0 or infinity, or an array of them."""
    array = floats(ridge)
    if array is None or array.size == 0:
        raise InvalidInput(
            f"ridge is {ridge!r}: give a number or an array of numbers; leave it out for the best"
        )
    if not np.all(array >= 0):
        bad = array[~(array >= 0)].flat[0]
        raise InvalidInput(
            f"ridge is {bad:g}: with classes it must be at least 0; leave it out for the best"
        )
    return float(array) if array.ndim == 0 else array


def predict_accuracies(
    world: ClassPopulation, chosen: list[Algorithm], asked: PredictionRequest
) -> Comparison[Accuracy]:
    """All algorithms on one population, or on each world of a grid."""
    m = None if asked.clients is None else check_client_count(asked.clients)
    shape = joint_shape(world, chosen, m)
    count = None if m is None else np.broadcast_to(m, shape).ravel()
    rows, notes = collect(chosen, asked.optional, make_solver(world, shape, m, asked.member))
    if lost := [name for name, row in rows.items() if np.any(np.isnan(row.accuracy))]:
        which = " and ".join(lost)
        notes.append(
            f"In part of the grid {which} are NaN: all samples together are separable, and the"
            " pooled fit diverges."
        )
    table = Comparison(
        rows,
        f"{world} · {clients_text(count, asked.member)}",
        metric=ACCURACY,
        references={name: CEILINGS[name].words for name in rows if name in CEILINGS},
        world=world,
        clients=count,
        member=asked.member,
    )
    told, near = convergence_sentences(
        world, [canonical_pair(each) for each in chosen if each.name in rows]
    )
    for note in near:
        warnings.warn(note, ThresholdWarning, stacklevel=4)
    unused = [UNUSED] if asked.optional else []
    return replace(table, notes=(*accuracy_verdicts(table), *told, *near, *notes, *unused))


def make_solver(
    world: ClassPopulation, shape: tuple[int, ...], m: Array | None, member: bool
) -> Callable[[Algorithm], Accuracy]:
    """The scores of one algorithm after the other; equal pairs of stages are solved once."""
    worlds = flatten_classes(world, shape, m, member)
    solved: dict[tuple[object, ...], Accuracy] = {}

    def answer(algorithm: Algorithm) -> Accuracy:
        key = pair_key(canonical_pair(algorithm))
        if key not in solved:
            solved[key] = solve_scores(algorithm, world, worlds, shape)
            if np.all(np.isnan(solved[key].accuracy)):
                raise NoFormula("no solution was found here: give a larger ridge, or more clients")
        return solved[key]

    return answer


def pair_key(pair: Pair) -> tuple[object, ...]:
    """What a pair of stages is, its numbers included."""
    server, client = pair
    return (
        repr(server),
        type(client),
        *(np.asarray(value, dtype=float).tobytes() for value in vars(client).values()),
    )


def flatten_classes(
    world: ClassPopulation, shape: tuple[int, ...], m: Array | None, member: bool
) -> LogisticWorlds:
    """The worlds along one axis."""
    gamma, eps = (
        np.broadcast_to(np.asarray(x, dtype=float), shape).reshape(-1)
        for x in (world.aspect, world.flips)
    )
    count = None if m is None else np.broadcast_to(m, shape).reshape(-1)
    return LogisticWorlds(world.energies.broadcast(shape).flat(), gamma, eps, count, member)


def split_grid(world: ClassPopulation) -> list[ClassPopulation]:
    """The worlds of a grid one by one."""
    return [world.at(index) for index in np.ndindex(world.shape)] if world.shape else [world]


def softmax_world(world: ClassPopulation, few: bool = False) -> SoftmaxWorld:
    """A world of numbers as the formulas of more than two classes see it."""
    return SoftmaxWorld(world.energies, float(np.asarray(world.aspect)), world.classes, few)


def solve_scores(
    algorithm: Algorithm, world: ClassPopulation, worlds: LogisticWorlds, shape: tuple[int, ...]
) -> Accuracy:
    """The scores of one algorithm in the shape of the answer."""
    pair = canonical_pair(algorithm)
    ridge = ridge_of(algorithm, shape)
    if world.classes == 2:
        return shape_scores([score_state(logistic_limit(pair, worlds, ridge), worlds.eps)], shape)
    found = []
    for place, index in enumerate(np.ndindex(shape)):
        here = (
            world if world.shape == () else world.at(tuple(index[len(shape) - len(world.shape) :]))
        )
        given = None if ridge is None else float(ridge[place])
        found.append(
            score_rule(softmax_limit(pair, softmax_world(here, worlds.m is not None), given))
        )
    return shape_scores(found, shape)


def shape_scores(found: list[Accuracy], shape: tuple[int, ...]) -> Accuracy:
    """Scores along an axis (or a list) in the answer's shape; numbers for a single world."""

    def join(name: str) -> float | Array | None:
        parts = [getattr(each, name) for each in found]
        if parts[0] is None:
            return None
        return box(
            np.concatenate([np.atleast_1d(np.asarray(part, dtype=float)) for part in parts]), shape
        )

    columns: dict[str, Any] = {name: join(name) for name in (*SCORES, "step", "time")}
    return Accuracy(**columns)


def score_state(found: LogisticAnswer, eps: Array) -> Accuracy:
    """All scores of a state, along the axis of worlds."""
    right = metrics.accuracy(found.state, eps)
    if not found.probable:
        return Accuracy(right, ridge=found.ridge)
    if found.optimal:
        loss, brier = posterior(found.state, eps)
        return Accuracy(right, loss, brier, np.ones_like(right))
    state = found.state
    if (
        found.endless is not None
    ):  # only a direction: at the threshold of separability its length, 1/margin, has no bound
        state = State(
            *(
                np.where(found.endless, 1.0, part)
                for part in (state.T, state.Q, state.rho, state.rest)
            )
        )
    loss, brier = (np.asarray(metric(state, eps)) for metric in (metrics.log_loss, metrics.brier))
    slope = np.where(state.Q > 0, metrics.calibration(state, eps), np.nan)
    if found.endless is not None:  # as the length grows without end
        loss, slope = np.where(found.endless, np.inf, loss), np.where(found.endless, 0.0, slope)
        brier = np.where(found.endless, 1 - right, brier)
    return Accuracy(right, loss, brier, slope, found.ridge, found.step, found.time)


def posterior(state: State, eps: Array) -> tuple[Array, Array]:
    """The posterior's E[-P log P - (1-P) log(1-P)] and Brier score E[P (1-P)], P = E[p(s) | w]."""
    loss = optimum.bayes_log_loss(optimum.Bayes(state, state.Q), eps)
    brier = np.empty(state.Q.size)
    sd, tau = np.sqrt(state.Q), np.sqrt(state.rest)
    for i, count in enumerate(nodes_for(outer_step(sd, sd, tau, LEVEL))):
        z, weight = half_normal_nodes(int(count))
        low = smooth_sigmoid(-sd[i] * z[None], tau[i : i + 1])[0][0]
        low = eps[i] + (1 - 2 * eps[i]) * low
        brier[i] = 2 * (low * (1 - low)) @ weight
    return loss, brier


def score_rule(found: SoftmaxAnswer) -> Accuracy:
    """More than two classes: all scores of a rule, the Brier score halved as for two."""
    rule = found.rule
    at = {"ridge": found.ridge, "step": found.step, "time": found.time}
    chance = 1 / rule.classes
    if not found.probable:
        return Accuracy(
            chance if np.isinf(rule.Q) or rule.rho == 0 else rule.accuracy, ridge=found.ridge
        )
    if rule.Q == 0:  # the zero rule
        return Accuracy(chance, float(np.log(rule.classes)), (1 - chance) / 2, np.nan, **at)
    if rule.rho == 0:  # labels that features do not tell
        return Accuracy(chance, float(rule.log_loss), float(rule.brier / 2), 0.0, **at)
    return Accuracy(rule.accuracy, rule.log_loss, rule.brier / 2, rule.slope, **at)


def walk_accuracies(world: ClassPopulation, walk: TuningRequest) -> FineTuning[Accuracy]:
    """Accuracy after numbers of gradient steps from the shared model; see `fedasym.fine_tuning`."""
    if walk.clients is not None:
        raise NoFormula(
            "early stopping with finitely many clients is not derived for classes: leave clients"
            " out, or take rtfa, which predict gives for any number"
        )
    if walk.times is not None and (walk.steps is not None or walk.step is not None):
        raise InvalidInput(
            "times and steps are both given: give times, which are step x steps, or step and steps"
        )
    alone = walk.algorithm.shares_nothing
    if not alone:
        canonical_pair(replace(walk.algorithm, personalise=CLASSES["stopped"].personalise))
    every = split_grid(world)
    steepest = max(curvature_of(each) for each in every)
    size = read_accuracy_step(walk, steepest)
    wanted = read_accuracy_times(walk, size, steepest, world.classes)
    at = wanted if size is None else wanted * size
    rows = [walk_one(each, at, size, alone) for each in every]
    columns = {
        name: np.array([np.asarray(getattr(row, name)) for row in rows])
        for name in (*SCORES, "time")
    }
    along = Accuracy(**{name: columns[name][:, :-1].reshape(*world.shape, -1) for name in SCORES})
    last = Accuracy(**{name: box(column[:, -1], world.shape) for name, column in columns.items()})
    assert last.time is not None
    best = last.time if size is None else box(np.round(np.asarray(last.time) / size), world.shape)
    how = "gradient flow, time = step x steps" if size is None else f"gradient steps of {size:.4g}"
    how += " from nothing" if alone else ""
    title = f"{world} · infinitely many clients · {how}"
    return FineTuning(wanted, along, Stop(best, last), size, title, ACCURACY, (CLOCK,))


def curvature_of(world: ClassPopulation) -> float:
    """A bound on the loss's largest curvature: descent needs steps below 2 over it."""
    bound = logistic_curvature if world.classes == 2 else softmax_ridge.softmax_curvature
    return float(bound(world.energies, float(np.asarray(world.aspect))))


def walk_one(world: ClassPopulation, times: Array, step: float | None, alone: bool) -> Accuracy:
    """Scores of one world at these times and, last, at the best (of a whole number of steps).

    alone: from nothing, instead of the shared model.
    """
    two = world.classes == 2
    energies = world.energies.alone if alone else world.energies
    if two:
        flat = flatten_classes(world, (), None, True)
        best = float(best_time(replace(flat, e=energies.broadcast(()).flat()))[0])
    else:
        best = best_softmax_time(replace(softmax_world(world), e=energies))
    at = np.append(times, best if step is None else float(np.round(best / step) * step))
    if two:
        found = stopped_fits(energies, world.aspect, at, world.flips)
        eps = np.broadcast_to(np.asarray(world.flips, dtype=float), at.shape)
        return score_state(LogisticAnswer(found.fit, ridge=found.lam, time=at), eps)
    fits = softmax_ridge.stopped_softmax_fits(
        energies, float(np.asarray(world.aspect)), at, world.classes
    )
    rows = [score_rule(SoftmaxAnswer(fit, ridge=fit.ridge)) for fit in fits]
    return Accuracy(
        **{name: np.array([getattr(row, name) for row in rows]) for name in SCORES}, time=at
    )


def read_accuracy_step(walk: TuningRequest, steepest: float) -> float | None:
    """A step's size, below 2/curvature; half of that if only counts are given; None for times."""
    if walk.step is None:
        return None if walk.steps is None else 1 / steepest
    size = check_step_size(walk.step)
    if size >= 2 / steepest:
        raise InvalidInput(
            f"step is {size:g}: descent diverges with steps of {2 / steepest:.4g} or more; give a"
            " smaller one"
        )
    return size


def read_accuracy_times(
    walk: TuningRequest, step: float | None, steepest: float, classes: int
) -> Array:
    """The stopping times or numbers of steps; by default from none to far beyond the best."""
    given = walk.times if step is None else walk.steps
    if given is not None:
        return check_times(given, whole=step is not None, endless=False)
    grid = np.geomspace(0.1, 1e4, 28) if classes == 2 else np.geomspace(0.1, 300, 10)
    if step is None:
        return np.append(0, grid / steepest)
    return np.unique(np.round(np.append(0, np.maximum(grid, 1))))


def ridges_about(table: Comparison[Accuracy]) -> Array:
    """Ridges from far below to far above the best of the table's algorithms."""
    found = (table[name].ridge for name in RIDGED if name in table)
    known = [float(value) for value in found if value is not None and 0 < float(value) < np.inf]
    centre = float(np.exp(np.mean(np.log(known)))) if known else 1.0
    slow = table.world.classes > 2 or table.clients is not None
    return np.geomspace(1e-3 * centre, 1e2 * centre, COARSE if slow else FINE)


def over_ridges(table: Comparison[Accuracy], ridges: Array) -> dict[str, Array]:
    """The accuracy of rtfa and local_ridge by ridge, for figures; more classes along a path."""
    world = table.world
    if world.classes == 2:
        clients = None if table.clients is None else float(table.clients[0])
        chosen = [put_ridge(PAPER[name], ridges) for name in RIDGED]
        found = predict_accuracies(world, chosen, PredictionRequest(clients, table.member))
        return {name: np.asarray(row.accuracy, dtype=float) for name, row in found.items()}
    curves = {}
    for name in RIDGED:
        aspect = float(np.asarray(world.aspect))
        fits = softmax_ridge.softmax_ridge_path(
            world.energies, aspect, ridges, world.classes, shared=not PAPER[name].shares_nothing
        )
        scores = [score_rule(SoftmaxAnswer(fit)) for fit in fits]
        curves[name] = np.array([float(np.asarray(each.accuracy)) for each in scores])
    return curves


def accuracy_verdicts(table: Comparison[Accuracy]) -> list[str]:
    """The sentences for a single world; none for a grid."""
    if table.stack().ndim != 1:
        return []
    have = set(table)
    lines = []
    if {"rtfa", "fedavg"} <= have:
        lines.append(tuning_of_accuracies(table))
    if {"rtfa", "local_ridge"} <= have:
        lines.append(sharing_verdict(table))
    if {"rtfa", "bayes"} <= have:
        short = 100 * (float(table["bayes"].accuracy) - float(table["rtfa"].accuracy))
        lines.append(
            f"rtfa is {points_text(short)} below bayes, what any method could reach if theta_0 were"
            " known."
        )
    if (
        {"rtfa", "rtfa_squares"} <= have
        and table["rtfa"].ridge
        and np.isfinite(float(table["rtfa"].ridge))
    ):
        factor = float(table["rtfa_squares"].ridge or np.nan) / float(table["rtfa"].ridge)
        lost = 100 * (float(table["rtfa"].accuracy) - float(table["rtfa_squares"].accuracy))
        lines.append(
            f"Least squares on the labels (rtfa_squares) is {points_text(abs(lost))}"
            f" {'behind' if lost >= 0 else 'ahead'}, at a ridge {factor:.3g} times as large: never"
            " carry a ridge from one loss to the other."
        )
    return lines


def points_text(share: float) -> str:
    """A difference of accuracies in percentage points, in words."""
    return "less than 0.01 points" if share < 0.01 else f"{share:.2f} points"


def tuning_of_accuracies(table: Comparison[Accuracy]) -> str:
    """What a ridge brings, and what convergence would cost."""
    rtfa, fedavg = float(table["rtfa"].accuracy), float(table["fedavg"].accuracy)
    gain = 100 * (rtfa - fedavg)
    ridge = table["rtfa"].ridge
    at = "" if ridge is None else f" with ridge {float(ridge):.4g}"
    if gain > 100 * ACCURACY.tie:
        text = (
            f"Fine-tuning{at} pays: rtfa {percent(rtfa)} against fedavg {percent(fedavg)},"
            f" {points_text(gain)} more"
        )
    elif gain < -100 * ACCURACY.tie:
        text = (
            f"Fine-tuning{at} does not pay: rtfa {percent(rtfa)} against fedavg {percent(fedavg)}"
        )
    else:
        text = f"Fine-tuning neither pays nor hurts: rtfa and fedavg both have {percent(rtfa)}"
    if "ftfa" in table:
        text += (
            f"; to convergence it would have {percent(table['ftfa'].accuracy)}, as local: "
            "the logistic loss forgets the shared model"
        )
    return text + "."


def convergence_sentences(world: ClassPopulation, pairs: list[Pair]) -> tuple[list[str], list[str]]:
    """What training to convergence means here, and how near a change is: sentences, warnings."""
    ended = [server.squares_labels for server, client in pairs if client.objective is Objective.OWN]
    off = np.abs(np.atleast_1d(np.asarray(world.aspect) * world.energies.rank - 1))
    matched = "a client's samples just match its unknowns and ftfa_squares breaks down"
    squares = [threshold_note("aspect", matched, off)] if any(ended) and np.any(off < NEAR) else []
    told, near = separable_endings(world) if world.classes == 2 and not all(ended) else ([], [])
    return told, near + squares


def separable_endings(world: ClassPopulation) -> tuple[list[str], list[str]]:
    """The same for the logistic loss and two classes."""
    from fedasym.theory.classes.ridge import separability_threshold

    e = world.energies
    edge = separability_threshold(e.rho, world.flips).gamma
    seen = np.asarray(world.aspect) * e.rank
    told = [] if world.shape else [describe_ending(float(seen), float(edge))]
    off = np.abs(seen - edge)
    if not np.any(off < NEAR_SEPARABLE):
        return told, []
    return told, [near_separable(off, edge)]


def describe_ending(aspect: float, edge: float) -> str:
    """Where gradient descent ends."""
    if aspect >= edge:
        return (
            f"A client's classes are separable (aspect {aspect:.4g} is above {edge:.4g}): training"
            " never converges; local and ftfa are its limit, approached only like 1/log(time);"
            " fine_tuning gives the accuracy at real times."
        )
    return (
        f"A client's classes overlap (aspect {aspect:.4g} is below {edge:.4g}): to convergence,"
        " local and ftfa reach the maximum-likelihood fit, which does not know the shared model."
    )


def near_separable(off: Array, edge: Array) -> str:
    """One sentence on being near the separability threshold."""
    least = float(np.min(off))
    needed = f"well above {(2 / least) ** 2:,.0f}" if least > 1e-6 else "enormous"
    where = "part of the grid has an aspect " if np.ndim(off) else "aspect is "
    at = "" if np.ndim(edge) else f" {float(edge):.4g}"
    return (
        f"Near a threshold: {where}within {least:.2g} of the separability threshold{at}; finite"
        f" sizes deviate (local, ftfa) unless the dimension is {needed}; an early stop"
        " (fine_tuning) is the honest number."
    )
