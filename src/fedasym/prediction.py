"""`predict`: every algorithm's test loss on a population, from the limits and the finite-client formulas."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from fedasym.algorithms import Algorithm, Descend, Flow, Interpolate, Keep, Ridge, resolve
from fedasym.errors import InvalidInput, NoFormula, ThresholdWarning
from fedasym.population import Population
from fedasym.risk import Comparison, Risk
from fedasym.sentences import verdicts
from fedasym.theory.different import Different, merge
from fedasym.theory.finite import Answer, equal_clients, filter_of
from fedasym.theory.limits import interpolated, kept, shrunk
from fedasym.theory.paths import stopped
from fedasym.theory.ridges import best_ridge
from fedasym.theory.spectra import Array
from fedasym.theory.worlds import Worlds, flatten

NEAR = 0.1  # |aspect - 1| below this is near the threshold: the limit needs d well above (3/NEAR)^2 = 900
MOST_AT_ONCE = 1 << 21  # worlds x atoms
ALONE = "a method that shares nothing depends on the length of a client's optimum: give norm"


def predict(
    world: Population | Sequence[Population],
    algorithms: Iterable[str | Algorithm] | str | None = None,
    *,
    ridge: ArrayLike | None = None,
    clients: ArrayLike | Sequence[float] | None = None,
    member: bool = True,
    maml_step: float = 0.1,
    weights: ArrayLike | str | None = None,
) -> Comparison:
    """Test loss, bias and variance of each algorithm on a population of clients.

    With infinitely many clients (`clients=None`) these are the limits of the paper's theorems,
    B = r^2 kappa' kappa^2 sum g s/(s+kappa)^2 and V = sigma^2 (kappa' - 1) for the client stages with ridge, where
    ridge = kappa (1 - aspect sum h s/(s+kappa)). With `clients=m` they are exact for m clients in the limit of large
    dimension: for a client that took part (`member=True`) or for a new one.

    world: a `Population` (of numbers or arrays), or a list of them: one per client, all different if you like.
    algorithms: names or `Algorithm` objects; all of the paper's by default.
    ridge: for the methods that have one; by default each gets its best.
    clients: how many clients, None for infinitely many; for a list of populations, how many of each (one by default).
    member: whether the client took part in training, or is new.
    maml_step: the inner step of MAML, which matters with finitely many clients.
    weights: for a list of populations, each client's weight: "samples" (the default), "uniform", "precision" or numbers.

    >>> import fedasym as fa
    >>> table = fa.predict(fa.Population(radius=1, noise=0.5, aspect=2, norm=2))
    >>> table.best, round(table["rtfa"].loss, 6), round(table["fedavg"].loss, 6)
    ('rtfa', 0.5, 1.0)
    >>> few = fa.predict(fa.Population(radius=1, noise=0.5, aspect=2), clients=10)
    >>> few.best
    'pfedme'
    >>> both = fa.predict([fa.Population(1, 0.5, 2), fa.Population(2, 0.5, 4)], ["fedavg", "rtfa"], clients=[30, 10])
    >>> both["rtfa"].loss.round(4).tolist()
    [0.5651, 3.119]
    """
    chosen = resolve(algorithms, ridge, maml_step)
    if isinstance(world, Population):
        if weights is not None:
            raise InvalidInput("weights are for a list of populations: identical clients have equal weights")
        return predict_equal(world, chosen, algorithms is None, clients, member)
    if len(world) == 0:
        raise InvalidInput("the list of populations is empty: give at least one client")
    return predict_different(list(world), chosen, algorithms is None, clients, member, weights)


def predict_equal(
    world: Population, chosen: list[Algorithm], optional: bool, clients: ArrayLike | None, member: bool
) -> Comparison:
    """All algorithms on one population, or on each world of a grid."""
    m = None if clients is None else checked_clients(clients)
    given = [
        np.shape(a.personalise.ridge)
        for a in chosen
        if isinstance(a.personalise, Ridge) and a.personalise.ridge is not None
    ]
    try:
        shape = np.broadcast_shapes(world.shape, () if m is None else m.shape, *given)
    except ValueError:
        raise InvalidInput(
            f"ridge or clients do not broadcast with the population, whose shape is {world.shape}"
        ) from None
    shared = flatten(world, shape)
    alone = None if world.norm is None else flatten(world, shape, alone=True)
    count = None if m is None or np.all(np.isinf(m)) else np.broadcast_to(m, shape).ravel()
    centre = None if alone is None else centre_energy(shared, alone)

    def answer(algorithm: Algorithm) -> Answer:
        if algorithm.shares_nothing:
            if alone is None:
                raise InvalidInput(ALONE)
            return in_pieces(
                lambda part, lam, _, __: limit(algorithm, part, lam), alone, ridge_of(algorithm, alone), None, None
            )
        if count is None:
            return in_pieces(
                lambda part, lam, _, __: limit(algorithm, part, lam), shared, ridge_of(algorithm, shared), None, None
            )
        return in_pieces(
            lambda part, lam, some, middle: equal_clients(algorithm, part, lam, some, member, middle),
            shared, ridge_of(algorithm, shared), count, centre,
        )  # fmt: skip

    risks, notes = collect(chosen, optional, answer, shape)
    who = "infinitely many clients" if count is None else how_many(count, member)
    table = Comparison(risks, f"{world} · {who}")
    notes = [*verdicts(table, world, count is None), *notes, *warned(world, count, [a.personalise for a in chosen])]
    return Comparison(risks, table.title, tuple(notes))


def predict_different(
    populations: list[Population],
    chosen: list[Algorithm],
    optional: bool,
    clients: ArrayLike | None,
    member: bool,
    weights: ArrayLike | str | None,
) -> Comparison:
    """All algorithms on a list of clients: one row each, identical ones computed once."""
    federation = merge(
        populations, None if clients is None else np.atleast_1d(np.asarray(clients, dtype=float)).tolist(), weights
    )
    different = Different(federation, member)
    kinds = federation.kinds

    def answer(algorithm: Algorithm) -> Answer:
        rows = []
        for i, kind in enumerate(kinds):
            if algorithm.shares_nothing:
                if kind.norm is None:
                    raise InvalidInput(ALONE)
                alone = flatten(kind, (), alone=True)
                rows.append(limit(algorithm, alone, ridge_of(algorithm, alone)))
            else:
                rows.append(different.answer(algorithm, i, ridge_of(algorithm, different.worlds[i])))
        bias, variance = (np.concatenate([row[j] for row in rows])[federation.row] for j in (0, 1))
        if not isinstance(algorithm.personalise, Ridge):
            return bias, variance, None
        return bias, variance, np.concatenate([np.asarray(row[2]) for row in rows])[federation.row]

    risks, notes = collect(chosen, optional, answer, (len(populations),))
    total = int(federation.count.sum())
    title = f"{total} clients of {len(kinds)} kind{'s' if len(kinds) > 1 else ''}, {'members' if member else 'new clients like them'}"
    labels = tuple(
        f"{i}: {str(each).split(' · ', 3)[0]}, {', '.join(str(each).split(' · ')[1:3])}"
        for i, each in enumerate(populations)
    )
    return Comparison(risks, title, tuple(notes), labels)


def limit(algorithm: Algorithm, world: Worlds, ridge: Array | None) -> Answer:
    """Limiting risk (theorems 1 to 4, corollary 1): the server stage does not appear."""
    match algorithm.personalise:
        case Keep():
            return *kept(world), None
        case Interpolate():
            return *interpolated(world), None
        case Ridge():
            best = best_ridge(world) if ridge is None else ridge
            return *shrunk(world, best), best
        case Descend() | Flow() as stage:
            rows = [stopped(world.take(slice(i, i + 1)), filter_of(stage)) for i in range(world.r2.size)]
            bias, variance = (np.concatenate(column) for column in zip(*rows, strict=True))
            return bias, variance, None


def in_pieces(
    solve: Callable[[Worlds, Array | None, Array | None, Array | None], Answer],
    world: Worlds,
    ridge: Array | None,
    clients: Array | None,
    centre: Array | None,
) -> Answer:
    """Apply a formula to pieces of a large grid, so that memory stays bounded."""
    size = max(1, MOST_AT_ONCE // world.spectrum.values.size)

    def cut(values: Array | None, part: slice) -> Array | None:
        return None if values is None else values[part]

    parts = [slice(i, i + size) for i in range(0, max(world.r2.size, 1), size)]
    answers = [solve(world.take(part), cut(ridge, part), cut(clients, part), cut(centre, part)) for part in parts]
    bias, variance = (np.concatenate([each[i] for each in answers]) for i in (0, 1))
    return bias, variance, None if answers[0][2] is None else np.concatenate([np.asarray(each[2]) for each in answers])


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
            if not optional or not (isinstance(reason, NoFormula) or str(reason) == ALONE):
                raise type(reason)(f"{algorithm.name}: {reason}") from None
            missing.setdefault(str(reason), []).append(algorithm.name)
            continue
        risks[algorithm.name] = Risk(
            shaped(bias, shape), shaped(variance, shape), None if used is None else shaped(used, shape)
        )
    notes = [f"Left out {' and '.join(names)}: {reason}." for reason, names in missing.items()]
    if not risks:
        raise NoFormula(" ".join(notes))
    return risks, notes


def shaped(values: Array, shape: tuple[int, ...]) -> float | Array:
    """A plain number for a single world, else an array of the grid's shape."""
    return float(values[0]) if shape == () else values.reshape(shape)


def ridge_of(algorithm: Algorithm, world: Worlds) -> Array | None:
    """The ridge that the algorithm prescribes, one per world; None for the best."""
    stage = algorithm.personalise
    if not isinstance(stage, Ridge) or stage.ridge is None:
        return None
    ridge = np.asarray(stage.ridge, dtype=float)
    return np.broadcast_to(ridge, world.r2.shape) if ridge.ndim == 0 else ridge.ravel()


def centre_energy(shared: Worlds, alone: Worlds) -> Array | None:
    """Energy of theta_0 per atom: norm^2 - radius^2, direction by direction; None where that is negative."""
    energy = alone.r2[:, None] * alone.g - shared.r2[:, None] * shared.g
    slackness = 1e-12 * alone.r2[:, None]
    return None if np.any(energy < -slackness) else np.maximum(energy, 0)


def checked_clients(clients: ArrayLike) -> Array:
    """A number of clients, at least 1, or an array of them; infinity stands for the limit."""
    try:
        m = np.array(clients, dtype=float)
    except (TypeError, ValueError):
        raise InvalidInput(
            f"clients is {clients!r}: it must be a whole number of at least 1, or None for infinitely many"
        ) from None
    whole = np.isinf(m) | (m == np.round(np.where(np.isfinite(m), m, 0)))
    if np.any(np.isnan(m)) or not np.all((m >= 1) & whole):
        bad = np.ravel(m)[~np.ravel((m >= 1) & whole)][0]
        raise InvalidInput(f"clients is {bad:g}: it must be a whole number of at least 1, or None for infinitely many")
    return np.where(np.isinf(m), 1e15, m) if np.any(np.isinf(m)) and not np.all(np.isinf(m)) else m


def how_many(count: Array, member: bool) -> str:
    """The number of clients in words."""
    many = f"{count[0]:g}" if np.all(count == count[0]) else f"{count.min():g} to {count.max():g}"
    return f"{many} clients, {'a member' if member else 'a new client'}"


def warned(world: Population, count: Array | None, stages: list[object]) -> list[str]:
    """Warn, and note, near the interpolation thresholds aspect = 1 and pooled aspect = 1."""
    rank = world.spectrum.rank
    notes = []
    own = np.abs(np.asarray(world.aspect) * rank - 1)
    if np.any(own < NEAR) and any(isinstance(stage, Interpolate) for stage in stages):
        notes.append(
            threshold_note("aspect", "a client's samples just match its unknowns", float(own.min()), own.size > 1)
        )
    if count is not None:
        pooled = np.abs(np.broadcast_to(np.asarray(world.aspect), world.shape).ravel() * rank / count - 1)
        if np.any(pooled < NEAR):
            notes.append(
                threshold_note(
                    "aspect/clients", "all samples just match the unknowns", float(pooled.min()), pooled.size > 1
                )
            )
    for note in notes:
        warnings.warn(note, ThresholdWarning, stacklevel=4)
    return notes


def quietly(verb: Callable[..., Comparison], *args: object, **options: object) -> Comparison:
    """Call a verb over a grid without its threshold warnings: a diagram may cross thresholds on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ThresholdWarning)
        return verb(*args, **options)


def threshold_note(ratio: str, meaning: str, off: float, some: bool) -> str:
    """One sentence on being near a threshold."""
    needed = f"well above {(3 / off) ** 2:,.0f}" if off > 1e-6 else "without bound"
    where = "part of the grid has " if some else ""
    return (
        f"Near a threshold: {where}{ratio} within {max(off, 0):.2g} of 1, where {meaning}; "
        f"finite sizes deviate from the limit unless the dimension is {needed}."
    )
