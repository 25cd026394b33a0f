"""The verbs of theory and simulation: a world and algorithms in, a result out. Here are `predict`,
`fine_tuning` and `one_step`, in limits, and what each verb asks of a task.

A verb is written once: it checks its arguments, finds the task of the world, regression (`losses`)
or classification (`accuracies`), and has it answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, overload

import numpy as np
from numpy.typing import ArrayLike

from fedasym.algorithms import Algorithm, asks_for_all, equality_notes
from fedasym.algorithms.methods import MAML_STEP
from fedasym.core.errors import InvalidInput, MissingNorm, NoFormula, one_of, read_list
from fedasym.core.numbers import Array, flag, floats, join_with_and, one_float, whole
from fedasym.core.privacy import Privacy
from fedasym.results import Accuracy, Comparison, Metric, Risk, Scores, percent
from fedasym.worlds import Population
from fedasym.worlds.classes import ClassPopulation

if TYPE_CHECKING:
    from fedasym.results.regimes import FineTuning
    from fedasym.results.simulation import Simulation
    from fedasym.verbs.simulation import SimulationRequest


FORMULA, SIMULATE = "formula", "simulate"  # by which a loss is found
TASKS = {"regression": "fedasym.verbs.losses", "classification": "fedasym.verbs.accuracies"}
# an aspect within this of 1 is near the threshold: the limit needs a dimension well above
# (3/NEAR)^2 = 900
NEAR = 0.1
EITHER = "give a Population or a ClassPopulation"
Names = Iterable[str | Algorithm] | str | Algorithm | None


class LearningTask(ABC, Generic[Scores]):
    """What is learned in a world: finding its algorithms, its formulas, and what they compare.

    world: the name of its worlds. foreign: arguments of the verbs that it has no use for, and what
        they are by default.
    options: arguments of `predict` that a diagram may fix.
    """

    world: ClassVar[str]
    metric: ClassVar[Metric]
    foreign: ClassVar[Mapping[str, object]] = {}
    options: ClassVar[tuple[str, ...]]

    def refuse(self, **given: object) -> None:
        """Refuse arguments that have no meaning in these worlds."""
        for name, value in given.items():
            usual = self.foreign.get(name, value)
            if value is not usual and not (isinstance(value, str) and value == usual):
                raise InvalidInput(
                    f"{name} is {value!r}, which is for a Population: leave it out with a"
                    f" {self.world}"
                )

    @abstractmethod
    def resolve(
        self, algorithms: Names, ridge: ArrayLike | None, maml_step: float
    ) -> list[Algorithm]:
        """The algorithms asked for, with the given ridge and MAML step put in."""

    @abstractmethod
    def predict(
        self, worlds: Sequence[Any], chosen: list[Algorithm], asked: PredictionRequest
    ) -> Comparison[Scores]:
        """All algorithms on one world, on each world of a grid, or on a list of clients."""

    @abstractmethod
    def evaluate(
        self, world: Any, chosen: list[Algorithm], shape: tuple[int, ...], asked: PredictionRequest
    ) -> list[Array]:
        """The metric alone of each algorithm, over a grid: what a diagram needs."""

    @abstractmethod
    def check_grid(self, world: Any, points: int) -> float:
        """Refuse a diagram of too many points; the relative precision of its boundary."""

    @abstractmethod
    def fine_tune(self, world: Any, walk: TuningRequest) -> FineTuning[Scores]:
        """The scores along early-stopped fine-tuning, and where to stop."""

    @abstractmethod
    def step_once(self, world: Any, step: ArrayLike | None) -> tuple[float | Array, Scores]:
        """One gradient step from the shared model: its size and its scores."""

    @abstractmethod
    def best_ridge(self, world: Any) -> Array:
        """The best ridge of rtfa in each world, along one axis."""

    @abstractmethod
    def simulate(self, request: SimulationRequest) -> Simulation[Any]:
        """Every algorithm on drawn clients."""


@dataclass(frozen=True, eq=False)
class PredictionRequest:
    """What `predict` was asked beside world and algorithms, checked.

    optional: whether all algorithms were asked for by default; several: whether the worlds are a
    list.
    """

    clients: ArrayLike | None = None
    member: bool = True
    weights: ArrayLike | str | None = None
    method: str = FORMULA
    optional: bool = False
    several: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "member", flag("member", self.member))
        one_of("method", self.method, (FORMULA, SIMULATE))
        if self.weights is not None and not self.several:
            raise InvalidInput(
                "weights are for a list of populations: identical clients have equal weights"
            )


@dataclass(frozen=True, eq=False)
class TuningRequest:
    """What `fine_tuning` was asked, its flags checked; only the algorithm's server stage counts."""

    algorithm: Algorithm
    step: float | None
    steps: ArrayLike | None
    flow: bool
    times: ArrayLike | None
    clients: float | None
    member: bool

    def __post_init__(self) -> None:
        for name in ("flow", "member"):
            object.__setattr__(self, name, flag(name, getattr(self, name)))
        if self.flow and (self.step is not None or self.steps is not None):
            raise InvalidInput("flow=True takes times=[...], not step or steps: leave those out")


def load_task(name: str) -> LearningTask[Any]:
    """A task by its name, imported where it is needed: the limits alone should start quickly."""
    task: LearningTask[Any] = import_module(TASKS[name]).TASK
    return task


def task_of(world: object, wanted: str = EITHER) -> LearningTask[Any]:
    """The task of a world; what is no world is refused."""
    name = getattr(type(world), "task", None)
    if not isinstance(name, str) or name not in TASKS:
        raise InvalidInput(f"world is {world!r}: {wanted}")
    return load_task(name)


def read_worlds(world: Any, wanted: str) -> tuple[LearningTask[Any], list[Any], bool]:
    """The task of a world or of a list of them, all worlds, and whether they came as a list."""
    if hasattr(type(world), "task"):
        return task_of(world), [world], False
    worlds = read_list("world", world, wanted)
    tasks = [getattr(type(each), "task", None) for each in worlds]
    return load_task("classification" if "classification" in tasks else "regression"), worlds, True


@overload
def predict(
    world: Population | Sequence[Population],
    algorithms: Names = None,
    *,
    ridge: ArrayLike | None = None,
    clients: ArrayLike | None = None,
    member: bool = True,
    maml_step: float | None = None,
    weights: ArrayLike | str | None = None,
    method: str = FORMULA,
    rounds: ArrayLike | None = None,
    local_steps: ArrayLike | None = None,
    server_step: ArrayLike | None = None,
    cohort: ArrayLike | None = None,
    mixing: ArrayLike | None = None,
    dimension: int | None = None,
    privacy: Privacy | None = None,
) -> Comparison[Risk]: ...


@overload
def predict(
    world: ClassPopulation,
    algorithms: Names = None,
    *,
    ridge: ArrayLike | None = None,
    clients: ArrayLike | None = None,
    member: bool = True,
    maml_step: float | None = None,
    weights: ArrayLike | str | None = None,
    method: str = FORMULA,
    rounds: ArrayLike | None = None,
    local_steps: ArrayLike | None = None,
    server_step: ArrayLike | None = None,
    cohort: ArrayLike | None = None,
    mixing: ArrayLike | None = None,
    dimension: int | None = None,
    privacy: Privacy | None = None,
) -> Comparison[Accuracy]: ...


def predict(
    world: Population | Sequence[Population] | ClassPopulation,
    algorithms: Names = None,
    *,
    ridge: ArrayLike | None = None,
    clients: ArrayLike | None = None,
    member: bool = True,
    maml_step: float | None = None,
    weights: ArrayLike | str | None = None,
    method: str = FORMULA,
    rounds: ArrayLike | None = None,
    local_steps: ArrayLike | None = None,
    server_step: ArrayLike | None = None,
    cohort: ArrayLike | None = None,
    mixing: ArrayLike | None = None,
    dimension: int | None = None,
    privacy: Privacy | None = None,
) -> Comparison[Any]:
    """Test loss, bias and variance of each algorithm on a population of clients; for a
    `ClassPopulation` the accuracy.

    With infinitely many clients (`clients=None`) these are the limits of the paper's theorems, B =
    r^2 kappa' kappa^2 sum g s/(s+kappa)^2 and V = sigma^2 (kappa' - 1) for the client stages with
    ridge, where ridge = kappa (1 - aspect sum h s/(s+kappa)). With `clients=m` they are exact for m
    clients in the limit of large dimension, for a client that took part (`member=True`) or for a
    new one.

    world: a `Population` (of numbers or arrays), or a list of them: one per client, all different
        if you like; or a `ClassPopulation`.
    algorithms: names or `Algorithm` objects; all of the paper's by default.
    ridge: for the algorithms that have one; by default each gets its best.
    clients: how many clients, None for infinitely many; for a list of populations, how many of each
        (one by default).
    member: whether the client took part in training, or is new.
    maml_step: the inner step of MAML, 0.1 unless given, which matters with finitely many clients.
    method: "formula", or "simulate": exact algebra on drawn clients, with a standard error, which
        every pair of stages has that has a weight and a filter.
    weights: for a list of populations, each client's weight: "samples" (the default), "uniform",
        "precision" or numbers.
    rounds: after so many communication rounds instead of at the optimum, with `local_steps` (20),
        `server_step` (0.1), `cohort` (20) and `mixing` (1) of `train`, and `privacy` with
        `dimension`: what is predicted is then what is trained. `fa.rounds` has the path.

    >>> import fedasym as fa
    >>> table = fa.predict(fa.Population(radius=1, noise=0.5, aspect=2, norm=2))
    >>> table.best, round(table["rtfa"].loss, 6), round(table["fedavg"].loss, 6)
    ('rtfa', 0.640388, 1.0)
    >>> few = fa.predict(fa.Population(radius=1, noise=0.5, aspect=2), clients=10)
    >>> few.best
    'pfedme'
    >>> both = fa.predict(
    ...     [fa.Population(1, 0.5, 2), fa.Population(2, 0.5, 4)],
    ...     ["fedavg", "rtfa"],
    ...     clients=[30, 10],
    ... )
    >>> both["rtfa"].loss.round(4).tolist()
    [0.7158, 3.1743]
    >>> fa.predict(fa.ClassPopulation(radius=1.1, centre=1.4, aspect=2.3)).best
    'rtfa'
    >>> soon = fa.predict(fa.Population(1, 0.5, 2, norm=2), rounds=5, local_steps=5, cohort=20)
    >>> round(soon["rtfa"].loss, 4), round(soon["local_ridge"].loss, 4)
    (0.7113, 2.2038)
    """
    task, worlds, several = read_worlds(
        world, "give a Population, a ClassPopulation or a list of Population"
    )
    optional = algorithms is None or asks_for_all(algorithms)
    asked = PredictionRequest(clients, member, weights, method, optional, several)
    task.refuse(maml_step=maml_step, method=method)
    chosen = task.resolve(algorithms, ridge, MAML_STEP if maml_step is None else maml_step)
    run = {
        "local_steps": local_steps,
        "server_step": server_step,
        "cohort": cohort,
        "mixing": mixing,
        "dimension": dimension,
        "privacy": privacy,
    }
    told = {name: value for name, value in run.items() if value is not None}
    if rounds is None:
        if told:
            raise InvalidInput(
                f"{next(iter(told))} is given, which is for training in rounds: give rounds, too"
            )
        return task.predict(worlds, chosen, asked)
    if "dimension" in told and "privacy" not in told:
        raise InvalidInput(
            "dimension is given, on which privacy noise alone depends: give privacy, too, or leave"
            " it out"
        )
    from fedasym.verbs.rounds import predict_after_rounds

    return predict_after_rounds(task, worlds, chosen, asked, {"rounds": rounds} | told)


def clusters(
    world: Population,
    algorithm: str | Algorithm = "rtfa",
    *,
    between: float | Mapping[int, float],
    clients: int,
    counts: Sequence[int] = (2, 3, 5, 10),
    member: bool = True,
) -> Comparison[Risk]:
    """Whether clusters pay (IFCA, HypCluster): an algorithm for all clients together, and within
    each of `counts` clusters; the best row says how many.

    In the limit of large dimension clients find their cluster without fail, as losses differ by
    more than their noise: a cluster is a population of its own, of clients/count clients and with
    the radius that is left within it. The radius is that about the centre of all clients, the mean
    of the clusters' centres, as `fa.advise` estimates it: it is all that a model for everyone
    knows of clusters.

    between: the share of radius^2 that cluster centres have; one number, or one for each count.

    >>> import fedasym as fa
    >>> world = fa.Population(radius=1, noise=0.5**0.5, aspect=2)
    >>> fa.clusters(world, between=0.5, clients=100, counts=[4, 10]).best
    'rtfa in 4 clusters'
    >>> fa.clusters(world, between=0.2, clients=100, counts=[10]).best
    'rtfa'
    """
    (chosen,) = task_of(world).resolve(single_algorithm(algorithm), None, MAML_STEP)
    total = whole("clients", clients, 1)
    table = predict(world, [chosen], clients=total, member=member)
    rows = dict(table.rows)
    for count in counts:
        many = whole("counts", count, 2, total)
        share = between.get(many) if isinstance(between, Mapping) else between
        if share is None:
            raise InvalidInput(f"between has no share for {many} clusters: give one for each count")
        here = predict(world.within(share), [chosen], clients=total // many, member=member)
        rows[f"{chosen.name} in {many} clusters"] = here[chosen.name]
    known = {name: row.loss for name, row in rows.items()}
    best = min(known, key=lambda name: float(np.min(known[name])))
    told = "Clusters do not pay" if best == chosen.name else f"Clusters pay: {best}"
    return replace(table, rows=rows, notes=(f"{told}, at a loss of {np.min(known[best]):.4g}.",))


def plain_form(
    algorithm: Algorithm, world: Population, clients: Any = None
) -> tuple[Algorithm, Population, Any] | None:
    """An algorithm that is a plain one elsewhere: that, the world where it is, and how many clients
    it has there. None: it is a plain one here.

    A ridge by direction is a ridge in scaled features; a model for each cluster is one for all
    within a cluster.
    """
    server, client = algorithm.stages
    if (same := client.plain_stage) is not None:
        return (
            replace(algorithm, personalise=same),
            world.rescale_features(client.get("power")),
            clients,
        )
    if (group := server.group_stage) is not None:
        if clients is not None:
            clients = np.maximum(np.floor(np.asarray(clients) / server.get("clusters")), 1)
        return replace(algorithm, server=group), world.within(server.get("between")), clients
    return None


def collect(
    chosen: Sequence[Algorithm], optional: bool, answer: Callable[[Algorithm], Scores]
) -> tuple[dict[str, Scores], list[str]]:
    """Ask for each algorithm; those without an answer are left out, with a word, by default."""
    rows: dict[str, Scores] = {}
    missing: dict[str, list[str]] = {}
    for algorithm in chosen:
        try:
            rows[algorithm.name] = answer(algorithm)
        except InvalidInput as refusal:
            reason = str(refusal).removeprefix(f"{algorithm.name}: ")
            if not optional or not isinstance(refusal, NoFormula | MissingNorm):
                raise type(refusal)(f"{algorithm.name}: {reason}") from None
            missing.setdefault(reason, []).append(algorithm.name)
    notes = [f"Left out {join_with_and(names)}: {reason}." for reason, names in missing.items()]
    if not rows:
        raise NoFormula(" ".join(notes))
    notes += equality_notes(each for each in chosen if each.name in rows)
    return rows, notes


def joint_shape(world: Any, chosen: list[Algorithm], m: Array | None) -> tuple[int, ...]:
    """The common shape of a world, the ridges and the numbers of clients."""
    given = (each.personalise.get("ridge") for each in chosen if each.has_ridge)
    ridges = [np.shape(each) for each in given if each is not None]
    try:
        return np.broadcast_shapes(world.shape, () if m is None else m.shape, *ridges)
    except ValueError:
        raise InvalidInput(
            f"ridge or clients do not broadcast with the population's shape {world.shape}"
        ) from None


def ridge_of(algorithm: Algorithm, shape: tuple[int, ...]) -> Array | None:
    """The ridge that the algorithm prescribes, one per world; None for the best."""
    given = algorithm.personalise.get("ridge") if algorithm.has_ridge else None
    if given is None:
        return None
    ridge = np.asarray(given, dtype=float)
    try:
        return np.broadcast_to(ridge, shape).ravel()
    except ValueError:
        raise InvalidInput(
            f"ridge has shape {ridge.shape}: give one number, or one for each of {shape}"
        ) from None


def box(values: Array, shape: tuple[int, ...]) -> float | Array:
    """Values along one axis in the shape of the answer: a plain number for a single world."""
    return float(np.ravel(values)[0]) if shape == () else np.reshape(values, shape)


@overload
def fine_tuning(
    world: Population,
    algorithm: str | Algorithm = "fedavg",
    *,
    step: float | None = None,
    steps: ArrayLike | None = None,
    flow: bool = False,
    times: ArrayLike | None = None,
    clients: float | None = None,
    member: bool = True,
) -> FineTuning[Risk]: ...


@overload
def fine_tuning(
    world: ClassPopulation,
    algorithm: str | Algorithm = "fedavg",
    *,
    step: float | None = None,
    steps: ArrayLike | None = None,
    flow: bool = False,
    times: ArrayLike | None = None,
    clients: float | None = None,
    member: bool = True,
) -> FineTuning[Accuracy]: ...


def fine_tuning(
    world: Population | ClassPopulation,
    algorithm: str | Algorithm = "fedavg",
    *,
    step: float | None = None,
    steps: ArrayLike | None = None,
    flow: bool = False,
    times: ArrayLike | None = None,
    clients: float | None = None,
    member: bool = True,
) -> FineTuning[Any]:
    """The loss (for a `ClassPopulation` the accuracy) after gradient steps from the shared model,
    and where to stop.

    With f(x) = (1 - step x)^t, or exp(-t x) for gradient flow, B = r^2 lim tau(Sigma f(S)^2) (its
    two-resolvent form under an alignment) and V = noise^2 aspect lim tau(Sigma (1 - f(S))^2/S).

    algorithm: whose shared model the steps start from (`local` starts from nothing); its server
        stage makes a difference with finitely many clients, its client stage none.
    step: the size of a gradient step on 1/(2n)||Xb - y||^2; by default half of the largest stable
        one.
    steps: the numbers of steps wanted. flow, times: gradient flow instead, and the times wanted.
    clients, member: as in `predict`. With classes, `times` are step x steps, and clients are
        infinitely many.

    >>> import fedasym as fa
    >>> path = fa.fine_tuning(fa.Population(1, 0.5, 2), step=0.3, steps=[0, 1, 5, 20, 100])
    >>> path.loss.round(4).tolist()
    [1.0, 0.715, 0.6544, 0.7202, 0.7499]
    >>> path.best.at
    4.0
    >>> fa.fine_tuning(fa.Population(1, 0.5, 2), "pfedme", clients=5).best.at
    6.0
    """
    task = task_of(world)
    (start,) = task.resolve(single_algorithm(algorithm), None, MAML_STEP)
    return task.fine_tune(world, TuningRequest(start, step, steps, flow, times, clients, member))


def single_algorithm(algorithm: str | Algorithm) -> str | Algorithm:
    """One algorithm, by name or as an object."""
    if isinstance(algorithm, str | Algorithm):
        return algorithm
    raise InvalidInput(f"algorithm is {algorithm!r}: give one name or one Algorithm")


@overload
def one_step(world: Population, step: ArrayLike | None = None) -> tuple[float | Array, Risk]: ...
@overload
def one_step(
    world: ClassPopulation, step: ArrayLike | None = None
) -> tuple[float | Array, Accuracy]: ...


def one_step(
    world: Population | ClassPopulation, step: ArrayLike | None = None
) -> tuple[float | Array, Any]:
    """One gradient step from the shared model, as in one-step MAML: the step size (the best by
    default) and its risk.

    B = r^2 (sum g s - 2 a sum g s^2 + a^2 (sum g s^3 + aspect t2 sum g s)), V = noise^2 aspect a^2
    t2, t2 = tau(Sigma^2); the best step is a = sum g s^2 / (sum g s^3 + aspect t2 sum g s +
    (noise^2 aspect / r^2) t2).

    >>> import fedasym as fa
    >>> size, risk = fa.one_step(fa.Population(radius=1, noise=0.5, aspect=2))
    >>> round(size, 6), round(risk.loss, 6)
    (0.285714, 0.714286)
    """
    return task_of(world).step_once(world, step)


def check_step_size(step: float) -> float:
    """A gradient step: finite and above 0."""
    size = one_float(step)
    if not 0 < size < np.inf:
        raise InvalidInput(
            f"step is {step!r}: it must be finite and above 0; leave it out for half of the largest"
            " stable one"
        )
    return size


def check_times(wanted: ArrayLike, *, whole: bool, endless: bool) -> Array:
    """A list of times, or (whole) of numbers of steps; endless: whether one may be infinite."""
    given = floats(wanted)
    at = np.atleast_1d(np.nan if given is None else given)
    finite = np.isfinite(at)
    good = (at >= 0) & (finite | (endless & np.isinf(at)))
    if whole:
        good &= ~finite | (at == np.round(np.where(finite, at, 0)))
    if at.ndim != 1 or at.size == 0 or not np.all(good):
        name, kind = (
            ("steps", "whole numbers of at least 0") if whole else ("times", "times of at least 0")
        )
        hint = (
            "; to convergence, see ftfa in predict" if not endless and np.any(np.isinf(at)) else ""
        )
        raise InvalidInput(f"{name} is {wanted!r}: give a list of {kind}{hint}")
    return at


def sharing_verdict(table: Comparison[Risk] | Comparison[Accuracy]) -> str:
    """Whether learning together pays, ridge against ridge."""
    metric = table.metric
    together, alone = (float(getattr(table[name], metric.name)) for name in ("rtfa", "local_ridge"))
    one, other = (percent(each) if metric.share else f"{each:.4g}" for each in (together, alone))
    if metric.are_tied(np.array(together), np.array(alone)):
        return f"Sharing neither pays nor hurts: rtfa and local_ridge both have {one}."
    told = f"rtfa {one} against local_ridge {other}"
    if not metric.is_better(together, alone):
        return f"Sharing does not pay: {told}."
    return (
        f"Sharing pays: {told}."
        if metric.share
        else f"Sharing pays: {told}, {1 - together / alone:.0%} less."
    )


def clients_text(count: Array | None, member: bool) -> str:
    """The number of clients in words."""
    if count is None:
        return "infinitely many clients"
    many = f"{count[0]:g}" if np.all(count == count[0]) else f"{count.min():g} to {count.max():g}"
    return (
        f"{many} client{'' if many == '1' else 's'}, seen by"
        f" {'a member' if member else 'a new client'}"
    )


def threshold_note(ratio: str, meaning: str, off: Array) -> str:
    """One sentence on being near a threshold."""
    least = float(off.min())
    needed = f"well above {(3 / least) ** 2:,.0f}" if least > 1e-6 else "enormous"
    where = "part of the grid has " if off.size > 1 else ""
    return (
        f"Near a threshold: {where}{ratio} {'is ' if not where else ''}within {least:.2g} of 1,"
        f" where {meaning}; finite sizes deviate from the limit unless the dimension is {needed}."
    )
