"""`predict`: every algorithm's test loss on a population, from the limits and the finite-client formulas."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, overload

import numpy as np
from numpy.typing import ArrayLike

from fedasym.algorithms import Algorithm, Ridge
from fedasym.algorithms.meta import MAML_STEP
from fedasym.algorithms.registry import resolve
from fedasym.core.arrays import Array, flag
from fedasym.core.errors import InvalidInput, MissingNorm, NoFormula, ThresholdWarning, one_of
from fedasym.core.errors import read_list as listed
from fedasym.results.comparison import Comparison, Risk
from fedasym.theory.limits import RiskAtRidge as Answer
from fedasym.theory.limits import Worlds, centre_energy, flatten
from fedasym.theory.limits import stage_limit as limit
from fedasym.verbs.sentences import how_many, thresholds, verdicts
from fedasym.worlds.classes import ClassPopulation
from fedasym.worlds.population import Population, checked_clients

MOST_AT_ONCE = 1 << 19  # worlds x atoms that the finite-client formulas hold at once
FORMULA, SIMULATE = "formula", "simulate"  # by which a loss is found

if TYPE_CHECKING:
    from fedasym.results.accuracy import AccuracyTable
Names = Iterable[str | Algorithm] | str | Algorithm | None


@overload
def predict(
    world: Population | Sequence[Population], algorithms: Names = None, *, ridge: ArrayLike | None = None,
    clients: ArrayLike | None = None, member: bool = True, maml_step: float | None = None,
    weights: ArrayLike | str | None = None, method: str = FORMULA,
) -> Comparison: ...  # fmt: skip
@overload
def predict(
    world: ClassPopulation, algorithms: Names = None, *, ridge: ArrayLike | None = None,
    clients: ArrayLike | None = None, member: bool = True, maml_step: float | None = None,
    weights: ArrayLike | str | None = None, method: str = FORMULA,
) -> AccuracyTable: ...  # fmt: skip


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
) -> Comparison | AccuracyTable:
    """Test loss, bias and variance of each algorithm on a population of clients; for a `ClassPopulation` the accuracy.

    With infinitely many clients (`clients=None`) these are the limits of the paper's theorems,
    B = r^2 kappa' kappa^2 sum g s/(s+kappa)^2 and V = sigma^2 (kappa' - 1) for the client stages with ridge, where
    ridge = kappa (1 - aspect sum h s/(s+kappa)). With `clients=m` they are exact for m clients in the limit of large
    dimension: for a client that took part (`member=True`) or for a new one.

    world: a `Population` (of numbers or arrays), or a list of them: one per client, all different if you like. A
        `ClassPopulation` gives an `AccuracyTable`.
    algorithms: names or `Algorithm` objects; all of the paper's by default.
    ridge: for the methods that have one; by default each gets its best.
    clients: how many clients, None for infinitely many; for a list of populations, how many of each (one by default).
    member: whether the client took part in training, or is new.
    maml_step: the inner step of MAML, 0.1 unless given, which matters with finitely many clients.
    method: "formula", or "simulate": exact algebra on drawn clients, with a standard error, which every pair of stages has
        that has a weight and a filter.
    weights: for a list of populations, each client's weight: "samples" (the default), "uniform", "precision" or numbers.

    >>> import fedasym as fa
    >>> table = fa.predict(fa.Population(radius=1, noise=0.5, aspect=2, norm=2))
    >>> table.best, round(table["rtfa"].loss, 6), round(table["fedavg"].loss, 6)
    ('rtfa', 0.640388, 1.0)
    >>> few = fa.predict(fa.Population(radius=1, noise=0.5, aspect=2), clients=10)
    >>> few.best
    'pfedme'
    >>> both = fa.predict([fa.Population(1, 0.5, 2), fa.Population(2, 0.5, 4)], ["fedavg", "rtfa"], clients=[30, 10])
    >>> both["rtfa"].loss.round(4).tolist()
    [0.7158, 3.1743]
    >>> fa.predict(fa.ClassPopulation(radius=1.1, centre=1.4, aspect=2.3)).best
    'rtfa'
    """
    member = flag("member", member)
    if isinstance(world, ClassPopulation | Population) and weights is not None:
        raise InvalidInput("weights are for a list of populations: identical clients have equal weights")
    one_of("method", method, (FORMULA, SIMULATE))
    if isinstance(world, ClassPopulation):
        from fedasym.verbs.classes.prediction import predict_classes

        refuse_for_classes(maml_step=maml_step, method=None if method == FORMULA else method)
        return predict_classes(world, algorithms, ridge, clients, member)
    wanted = "give a Population, a ClassPopulation or a list of Population"
    worlds = [world] if isinstance(world, Population) else listed("world", world, wanted)
    if any(isinstance(each, ClassPopulation) for each in worlds):
        raise NoFormula("accuracy is derived for clients of one ClassPopulation, not for a list: predict each of them alone")
    chosen = resolve(algorithms, ridge, MAML_STEP if maml_step is None else maml_step)
    if method == SIMULATE:
        from fedasym.verbs.drawing import predict_by_drawing

        return predict_by_drawing(world, chosen, clients, member, weights)
    if isinstance(world, Population):
        return predict_equal(world, chosen, algorithms is None, clients, member)
    if not worlds:
        raise InvalidInput("the list of populations is empty: give at least one client")
    return predict_different(worlds, chosen, algorithms is None, clients, member, weights)


def refuse_for_classes(**given: object) -> None:
    """Refuse arguments that a ClassPopulation has no use for."""
    for name, value in given.items():
        if value is not None:
            raise InvalidInput(f"{name} is {value!r}, which is for a Population: leave it out with a ClassPopulation")


def predict_equal(
    world: Population, chosen: list[Algorithm], optional: bool, clients: ArrayLike | None, member: bool
) -> Comparison:
    """All algorithms on one population, or on each world of a grid."""
    m = None if clients is None else checked_clients(clients)
    ridges = [a.personalise.ridge for a in chosen if isinstance(a.personalise, Ridge) and a.personalise.ridge is not None]
    try:
        shape = np.broadcast_shapes(world.shape, () if m is None else m.shape, *(np.shape(ridge) for ridge in ridges))
    except ValueError:
        raise InvalidInput(f"ridge or clients do not broadcast with the population's shape {world.shape}") from None
    shared = flatten(world, shape)
    alone = None if world.norm is None else flatten(world, shape, alone=True)
    count = None if m is None else np.broadcast_to(m, shape).ravel()
    known: dict[tuple[object, ...], Answer] = {}

    def answer(algorithm: Algorithm) -> Answer:
        seen = alone if algorithm.shares_nothing else shared
        if seen is None:
            raise MissingNorm
        ridge = ridge_of(algorithm, shape)
        if count is None or algorithm.shares_nothing:  # the same for every server stage
            stage = type(algorithm.personalise) if isinstance(algorithm.personalise, Ridge) else algorithm.personalise
            key = (algorithm.shares_nothing, stage, None if ridge is None else ridge.tobytes())
            if key not in known:
                known[key] = limit(algorithm.personalise, seen, ridge)
            return known[key]
        from fedasym.theory.finite import equal_clients  # only here: the limits alone should start quickly

        def piece(part: slice) -> Answer:
            some = shared.take(part)
            centre = None if alone is None else centre_energy(some, alone.take(part))
            return equal_clients(algorithm, some, cut(ridge, part), count[part], member, centre)

        return in_pieces(shared, piece)

    risks, notes = collect(chosen, optional, answer, shape)
    table = Comparison(risks, f"{world} · {how_many(count, member)}")
    seen = shared.gamma * world.spectrum.rank
    near = warned(thresholds(seen, None if count is None else seen / count, [each.personalise for each in chosen]))
    return Comparison(risks, table.title, (*verdicts(table, world, count, member), *notes, *near))


def predict_different(
    populations: list[Population],
    chosen: list[Algorithm],
    optional: bool,
    clients: ArrayLike | None,
    member: bool,
    weights: ArrayLike | str | None,
) -> Comparison:
    """All algorithms on a list of clients: one row each, identical ones computed once."""
    from fedasym.theory.finite import DifferentClients as Different
    from fedasym.theory.finite import merge_clients as merge

    federation = merge(populations, clients, weights)
    different = Different(federation, member)

    def answer(algorithm: Algorithm) -> Answer:
        rows = []
        for i, kind in enumerate(federation.kinds):
            ridge = ridge_of(algorithm, (len(populations),))
            if ridge is not None:
                ridge = ridge[federation.row == i][:1]
            if not algorithm.shares_nothing:
                rows.append(different.answer(algorithm, i, ridge))
            elif kind.norm is None:
                raise MissingNorm
            else:
                rows.append(limit(algorithm.personalise, flatten(kind, (), alone=True), ridge))
        bias, variance = (np.concatenate([row[j] for row in rows])[federation.row] for j in (0, 1))
        if not isinstance(algorithm.personalise, Ridge):
            return bias, variance, None
        return bias, variance, np.concatenate([np.asarray(row[2]) for row in rows])[federation.row]

    risks, notes = collect(chosen, optional, answer, (len(populations),))
    who = "members" if member else "new clients like them"
    title = f"{federation.count.sum():g} clients of {len(federation.kinds)} kinds, {who}"
    if weights is None and "pfedme" in risks and len({float(np.asarray(kind.noise)) for kind in federation.kinds}) > 1:
        notes.append("pfedme weighs clients by samples over noise^2, its optimum; the other methods by samples.")
    own = np.array([float(np.asarray(kind.aspect)) * kind.spectrum.rank for kind in federation.kinds])
    near = warned(thresholds(own, different.groups.ratio, [each.personalise for each in chosen]))
    return Comparison(risks, title, (*notes, *near), tuple(f"{i}: {each.brief}" for i, each in enumerate(populations)))


def warned(notes: list[str]) -> list[str]:
    """Emit each note as a warning to the caller of `predict`, and pass them on."""
    for note in notes:
        warnings.warn(note, ThresholdWarning, stacklevel=4)
    return notes


def in_pieces(world: Worlds, solve: Callable[[slice], Answer]) -> Answer:
    """Apply a formula to pieces of a large grid, so that memory stays bounded."""
    size = max(1, MOST_AT_ONCE // world.spectrum.values.size)
    answers = [solve(slice(i, i + size)) for i in range(0, max(world.r2.size, 1), size)]
    bias, variance = (np.concatenate([each[i] for each in answers]) for i in (0, 1))
    return bias, variance, None if answers[0][2] is None else np.concatenate([np.asarray(each[2]) for each in answers])


def cut(values: Array | None, part: slice) -> Array | None:
    """A piece of an array that may be absent."""
    return None if values is None else values[part]


def collect(
    chosen: list[Algorithm], optional: bool, answer: Callable[[Algorithm], Answer], shape: tuple[int, ...]
) -> tuple[dict[str, Risk], list[str]]:
    """Ask for each algorithm; where all were asked for by default, leave out, with a word, those without an answer."""
    risks: dict[str, Risk] = {}
    missing: dict[str, list[str]] = {}
    for algorithm in chosen:
        try:
            bias, variance, used = answer(algorithm)
        except InvalidInput as reason:
            if not optional or not isinstance(reason, NoFormula | MissingNorm):
                raise type(reason)(f"{algorithm.name}: {reason}") from None
            missing.setdefault(str(reason), []).append(algorithm.name)
            continue
        # Differences of large terms may round to just below zero.
        bias, variance = np.maximum(bias, 0), np.maximum(variance, 0)
        ridge = None if used is None else shaped(used, shape)
        risks[algorithm.name] = Risk(shaped(bias, shape), shaped(variance, shape), ridge)
    notes = left_out(missing)
    if not risks:
        raise NoFormula(" ".join(notes))
    return risks, notes


def left_out(missing: dict[str, list[str]]) -> list[str]:
    """A sentence for each reason why some were left out."""
    return [f"Left out {' and '.join(names)}: {reason}." for reason, names in missing.items()]


def shaped(values: Array, shape: tuple[int, ...]) -> float | Array:
    """A plain number for a single world, else an array of the grid's shape."""
    return float(values[0]) if shape == () else values.reshape(shape)


def ridge_of(algorithm: Algorithm, shape: tuple[int, ...]) -> Array | None:
    """The ridge that the algorithm prescribes, one per world; None for the best."""
    stage = algorithm.personalise
    if not isinstance(stage, Ridge) or stage.ridge is None:
        return None
    ridge = np.asarray(stage.ridge, dtype=float)
    try:
        return np.broadcast_to(ridge, shape).ravel()
    except ValueError:
        raise InvalidInput(f"ridge has shape {ridge.shape}: give one number, or one for each of {shape}") from None
