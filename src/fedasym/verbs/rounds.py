"""`rounds`: the loss over communication rounds, before anything is trained.

Local steps, cohorts, the server's step, clipping and privacy noise are a linear recursion for the
energies of the shared model's error (`theory/rounds.py`); what a client makes of such a shared
model is the limit for one client, with that error as more displacement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.algorithms import resolve
from fedasym.algorithms.paper import Algorithm
from fedasym.core.errors import InvalidInput, MissingNorm, NoFormula
from fedasym.core.numbers import MOST, Array, floats, number, whole
from fedasym.core.privacy import CLIP_RATE, FIRST_CLIP, Privacy, read_privacy, split_noise
from fedasym.results import LOSS, Comparison, Risk
from fedasym.results.regimes import BYTES, Rounds
from fedasym.theory import Worlds, centre_energy, flatten
from fedasym.theory.filters import DescentFilter
from fedasym.theory.pooled import newcomer_risk_per_atom
from fedasym.theory.rounds import (
    ErrorEnergies,
    LocalFilter,
    MeanFilter,
    Moments,
    MoveLengths,
    Round,
    StepFilter,
    advance_energies,
    check_shared,
    filter_of_work,
    finite_optimum,
    fourth_moments,
    integrate_moments,
    mean_filter,
    moments_of_steps,
    scatter_matrix,
    server_factor,
)
from fedasym.theory.transforms import subordinate
from fedasym.verbs import FORMULA, LearningTask, PredictionRequest, box, collect, task_of
from fedasym.verbs.privacy import check_budgets
from fedasym.worlds import Population

REPORTED = 40  # rounds of a path, unless others are asked for
MANY_SETTINGS = 2000  # of more, only the last round is reported
MOST_ROUNDS = 10**6
CLIPS = np.geomspace(0.02, 2, 41)  # of an update's first length: where privacy leaves the clip open
TIGHTEST = 1e-9  # of that length: with so tight a clip nothing is learned
CHUNK = 1 << 21  # numbers of the arrays that are followed at once


@dataclass(frozen=True)
class RoundPlan:
    """How rounds are run, one entry per setting (P,)."""

    rounds: Array
    local_steps: Array
    server_step: Array
    cohort: Array
    mixing: Array
    clients: Array  # infinite where they are endlessly many
    clip: Array
    multiplier: Array

    def take(self, rows: Any) -> RoundPlan:
        """Some of the settings, any of them several times."""
        return RoundPlan(*(getattr(self, each.name)[rows] for each in fields(self)))

    def rule(self, dimension: int, poisson: bool, lengths: MoveLengths | None) -> Round:
        """What the server does in a round; with `lengths` the clip adapts, and its count has a part
        of the noise.
        """
        m, D = self.clients, self.cohort
        with np.errstate(invalid="ignore", divide="ignore"):
            left = 1 - D / m if poisson else np.where(m > 1, 1 - (D - 1) / (m - 1), 0.0)
        share = np.where(np.isinf(m), 1.0, left)
        size = np.full(D.shape, float(dimension))
        noise = self.multiplier if lengths is None else split_noise(self.multiplier, D)[0]
        return Round(D, share, self.mixing, self.clip, noise, size, poisson, lengths)


@dataclass(frozen=True)
class Start:
    """Everything that a recursion begins with, one row per setting."""

    plan: RoundPlan
    world: Worlds
    moments: Moments
    own: ErrorEnergies
    first: Array  # energies of theta_0, where training starts at zero
    missed: ErrorEnergies  # what the clients' common optimum misses of theta_0
    poisson: bool
    dimension: int
    quantile: float | None = None  # that an adaptive clip follows
    fourth: Array | None = None  # means of powers of the filter, where it does

    @property
    def rule(self) -> Round:
        """What the server does in a round."""
        lengths = None
        if self.fourth is not None:
            even = np.broadcast_to(self.world.spectrum.weights, self.first.shape)
            second = self.moments.kept_energy(even).sum(-1)
            noise = self.world.s2 * self.world.gamma
            size = np.full(second.shape, float(self.dimension))
            lengths = MoveLengths(second, self.fourth, noise, size)
        return self.plan.rule(self.dimension, self.poisson, lengths)

    @property
    def law(self) -> MeanFilter:
        """Of the mean move of all clients."""
        return mean_filter(self.moments, self.plan.clients)

    def take(self, rows: Any) -> Start:
        """Some of the settings, any of them several times."""
        moments = Moments(self.moments.p[rows], self.moments.T[rows], self.moments.nu[rows])
        own, missed = (
            ErrorEnergies(each.bias[rows], each.noise[rows]) for each in (self.own, self.missed)
        )
        g = np.broadcast_to(self.world.g, (self.world.r2.size, self.world.g.shape[1]))[rows]
        world = Worlds(
            self.world.r2[rows], self.world.s2[rows], self.world.gamma[rows], g, self.world.spectrum
        )
        return Start(
            self.plan.take(rows),
            world,
            moments,
            own,
            self.first[rows],
            missed,
            self.poisson,
            self.dimension,
            self.quantile,
            None if self.fourth is None else self.fourth[rows],
        )


class EnergyPath(NamedTuple):
    """Energies by setting, reported round and atom, (P, R, K); lengths of updates and clips,
    (P, R).
    """

    energies: ErrorEnergies
    lengths: Array
    clips: Array


def rounds(
    world: Population,
    algorithm: str | Algorithm = "rtfa",
    *,
    rounds: ArrayLike = 400,
    local_steps: ArrayLike = 20,
    server_step: ArrayLike = 0.1,
    cohort: ArrayLike = 20,
    mixing: ArrayLike = 1.0,
    clients: ArrayLike | None = None,
    dimension: int | None = None,
    max_bytes: float | None = None,
    privacy: Privacy | None = None,
    ridge: float | None = None,
    maml_step: float = 0.1,
    evaluated: ArrayLike | None = None,
) -> Rounds:
    """The shared and personal model's loss over communication rounds, predicted before training.

    A round draws `cohort` clients; each takes `local_steps` full-batch steps of size `server_step`
    from the shared model, by the algorithm's own step, and the server adds `mixing` times the
    average of their moves. With P = f(S), for plain steps f(x) = 1 - (1 - server_step
    x)^local_steps, the energies of the shared model's error follow M <- (1 - a p)^2 M + (a^2/D) [T
    M + (p^2 + T) r^2 g + noise^2 nu], and a client's loss is its limit with r^2 g + M in place of
    r^2 g.

    local_steps: infinite for local training to convergence; one-shot averaging is one such round.
    clients: how many there are; infinitely many by default. Their common optimum misses theta_0 by
        what finitely many clients leave, and the path ends there.
    dimension: how many unknowns there are: bytes and privacy noise depend on it.
    max_bytes: a budget of bytes that are sent; settings get as many rounds of it as they can.
    privacy: an `fa.Privacy`, with clients and dimension. Where it names no clip, the best is taken;
        with a quantile the clip adapts from round to round, as in training.
    evaluated: the rounds to report; about forty from the first to the last by default, and with
        more than 2,000 settings the last alone.
    Settings may be arrays: they broadcast with each other and with the population.

    >>> import fedasym as fa
    >>> world = fa.Population(radius=1, noise=0.5, aspect=2, norm=2)
    >>> path = fa.rounds(
    ...     world, "rtfa", rounds=100, local_steps=5, cohort=5, evaluated=[0, 1, 5, 100]
    ... )
    >>> path.shared_error.round(4).tolist()
    [3.0, 1.6366, 0.2255, 0.1057]
    """
    if task_of(world).metric is not LOSS:
        raise NoFormula(
            "over rounds there are formulas for the squared loss alone: give a Population. That of"
            " least-squares heads on one-hot labels is one with the squares of radius, noise and"
            " norm added up over the classes, and dimension times as many; advice on classes has it"
            " in population.squares"
        )
    (chosen,) = resolve(algorithm, ridge, maml_step)
    check_shared(chosen)
    given = {
        "rounds": read_plan_numbers("rounds", rounds, 0, MOST_ROUNDS, integer=True),
        "local_steps": read_plan_numbers("local_steps", local_steps, 1, np.inf, integer=True),
        "server_step": read_plan_numbers("server_step", server_step, 0, np.inf, above=True),
        "cohort": read_plan_numbers("cohort", cohort, 1, MOST, integer=True),
        "mixing": server_factor(chosen)
        * read_plan_numbers("mixing", mixing, 0, np.inf, above=True),
        "clients": read_plan_numbers(
            "clients", np.inf if clients is None else clients, 1, np.inf, integer=True
        ),
    }
    if dimension is not None:
        dimension = whole("dimension", dimension, least=1)
    privacy = read_privacy(privacy)
    check_budgets(given, dimension, max_bytes, privacy, clients)
    try:
        shape = np.broadcast_shapes(world.shape, *(values.shape for values in given.values()))
    except ValueError:
        shapes = ", ".join(
            f"{name} {values.shape}" for name, values in given.items() if values.shape
        )
        raise InvalidInput(
            f"these settings do not broadcast with the population's {world.shape}: {shapes}"
        ) from None
    flat = {
        name: np.broadcast_to(values, shape).ravel().astype(float) for name, values in given.items()
    }
    if max_bytes is not None and dimension is not None:
        flat["rounds"] = np.minimum(
            flat["rounds"], np.floor(max_bytes / (2 * BYTES * dimension * flat["cohort"]))
        )
    plan = RoundPlan(
        **flat, clip=np.full(flat["cohort"].size, np.inf), multiplier=np.zeros(flat["cohort"].size)
    )
    start = prepare_recursion(world, chosen, plan, shape, dimension or 0, privacy)
    reported = choose_reported(evaluated, flat["rounds"])
    if privacy is not None:
        start = replace(start, plan=spend_budget(start, chosen, privacy))
    return assemble_path(world, chosen, start, reported, shape, given, dimension, privacy)


def predict_after_rounds(
    task: LearningTask[Any],
    worlds: Sequence[Any],
    chosen: Sequence[Algorithm],
    asked: PredictionRequest,
    told: Mapping[str, Any],
) -> Comparison[Risk]:
    """All algorithms after so many rounds; those that share nothing as they always are.

    told: settings of `rounds`, by name. See `fedasym.predict`.
    """
    if asked.several or asked.method != FORMULA:
        what = "a list of populations" if asked.several else f"method={asked.method!r}"
        raise InvalidInput(
            f"rounds is given with {what}: rounds are predicted by formulas, for one Population"
        )
    world = worlds[0]
    titles = []

    def answer(algorithm: Algorithm) -> Risk:
        if algorithm.shares_nothing:
            alone = task.predict(worlds, [algorithm], replace(asked, clients=None, optional=False))
            return cast(Risk, alone[algorithm.name])
        path = rounds(world, algorithm, clients=asked.clients, **told)
        titles.append(f"{world} · {path.title.rpartition(' · ')[2]}")
        at = np.searchsorted(path.rounds, path.last)[..., None]
        ends = (
            None if part is None else np.take_along_axis(part, at, axis=-1)[..., 0]
            for part in (path.bias, path.variance, path.ridge)
        )
        bias, variance, ridge = (
            None if part is None else box(part, np.shape(part)) for part in ends
        )
        assert bias is not None
        assert variance is not None
        return Risk(bias, variance, ridge)

    rows, notes = collect(chosen, asked.optional, answer)
    last = read_plan_numbers("rounds", told["rounds"], 0, MOST_ROUNDS, integer=True)
    count = f"{last.min():g}" if last.min() == last.max() else f"{last.min():g} to {last.max():g}"
    notes.append(
        f"After {count} rounds, for a client whose own samples hardly count in the shared model:"
        " a new one, or one of many."
    )
    title = titles[0] if titles else str(world)
    return Comparison(rows, title, tuple(notes), world=world, member=False)


def read_plan_numbers(
    name: str, value: Any, least: float, most: float, *, integer: bool = False, above: bool = False
) -> Array:
    """A number or an array of them within its range."""
    array = floats(value)
    kind = "a whole number" if integer else "a number"
    if array is None or array.size == 0:
        raise InvalidInput(f"{name} is {value!r}: give {kind}, or an array of them")
    finite = np.where(np.isfinite(array), array, 0)
    endless = (
        np.isposinf(array) if name in ("local_steps", "clients") else np.zeros(array.shape, bool)
    )
    good = (
        (array > least if above else array >= least) & (array <= most) & np.isfinite(array)
    ) | endless
    if integer:
        good &= finite == np.round(finite)
    if not np.all(good):
        bad = array[~good].flat[0] if array.ndim else array
        limit = "above" if above else "of at least"
        end = "" if np.isinf(most) else f" and at most {most:g}"
        raise InvalidInput(f"{name} is {float(bad):g}: it must be {kind} {limit} {least:g}{end}")
    return array


def prepare_recursion(
    world: Population,
    algorithm: Algorithm,
    plan: RoundPlan,
    shape: tuple[int, ...],
    dimension: int,
    privacy: Privacy | None,
) -> Start:
    """Moments, sources and the start of the recursion for every setting."""
    flat = flatten(world, shape)
    if world.norm is None:
        raise MissingNorm(
            "training starts at zero, so the first rounds depend on how far the optimum is: give"
            " norm"
        )
    first = centre_energy(flat, flatten(world, shape, alone=True))
    if first is None:
        raise InvalidInput(
            "norm is shorter than the radius along some direction: no shared optimum has such"
            " clients"
        )
    first = np.broadcast_to(first, (flat.r2.size, world.spectrum.values.size))
    moments = gather_moments(algorithm, flat, plan)
    g = np.broadcast_to(flat.g, first.shape)
    own = ErrorEnergies(moments.kept_energy(flat.r2[:, None] * g), flat.s2[:, None] * moments.nu)
    missed = ErrorEnergies(np.zeros_like(first), np.zeros_like(first))
    if np.any(np.isfinite(plan.clients)):
        missed = miss_centre(algorithm, flat, plan, moments, own)
    poisson = privacy is not None and privacy.sampling == "poisson"
    start = Start(plan, flat, moments, own, first, missed, poisson, dimension)
    if privacy is None or privacy.quantile is None:
        return start
    fourth = np.empty((flat.r2.size, 3))
    for rows, filter_, gamma in local_filters(algorithm, plan, flat):
        fourth[rows] = fourth_moments(filter_, gamma, world.spectrum)
    return replace(start, quantile=privacy.quantile, fourth=fourth)


def local_filters(
    algorithm: Algorithm, plan: RoundPlan, world: Worlds
) -> Iterator[tuple[NDArray[np.intp], LocalFilter, float]]:
    """Settings of one aspect and step size, with filters by number of local steps, one row each."""
    keys = np.stack([world.gamma, plan.server_step], axis=1)
    for gamma, step in np.unique(keys, axis=0):
        rows = np.flatnonzero((world.gamma == gamma) & (plan.server_step == step))
        times = plan.local_steps[rows]
        yield rows, filter_of_work(algorithm.server, times, float(step)), float(gamma)


def gather_moments(algorithm: Algorithm, world: Worlds, plan: RoundPlan) -> Moments:
    """The moments of every setting; each different one is computed once."""
    P, K = world.r2.size, world.spectrum.values.size
    out = Moments(np.empty((P, K)), np.empty((P, K, K)), np.empty((P, K)))
    for rows, filter_, gamma in local_filters(algorithm, plan, world):
        times, back = np.unique(filter_.times, return_inverse=True)
        few = replace(filter_, times=times)  # type: ignore[type-var]
        if isinstance(few, DescentFilter):
            found = moments_of_steps(few, gamma, world.spectrum)
        else:
            found = integrate_moments(few, gamma, world.spectrum)
        out.p[rows], out.T[rows], out.nu[rows] = found.p[back], found.T[back], found.nu[back]
    return out


def miss_centre(
    algorithm: Algorithm, world: Worlds, plan: RoundPlan, moments: Moments, own: ErrorEnergies
) -> ErrorEnergies:
    """What the common optimum of m clients misses of theta_0, by atom.

    Exact for uncorrelated features, by subordination with the weights f(x)/x; else to leading order
    in 1/m.
    """
    spectrum = world.spectrum
    if np.any(plan.clients <= world.gamma * spectrum.rank):
        raise NoFormula(
            "all clients together have fewer samples than unknowns, and then rounds end where they"
            " started along some directions: give more clients, or a smaller aspect"
        )
    if spectrum.scale is None:
        return finite_optimum(moments, own, plan.clients)
    s = spectrum.scale
    zero = np.zeros_like(own.bias)
    bias, noise = zero.copy(), zero.copy()
    for rows, filter_, _ in local_filters(algorithm, plan, world):
        for i in rows[np.isfinite(plan.clients[rows])]:
            times = plan.local_steps[i : i + 1]
            one: LocalFilter = StepFilter(algorithm.server, times, float(plan.server_step[i]))
            if isinstance(filter_, DescentFilter) and np.isfinite(times[0]):
                one = DescentFilter(times, filter_.step)

            def weights(x: Array, one: LocalFilter = one) -> Array:
                seen = np.where(x > 0, s * x, 1.0)
                return np.where(x > 0, one.learn(seen[0]).real / seen, 0.0)

            r2, s2, gamma, m = (
                v[i : i + 1] for v in (world.r2 * s, world.s2, world.gamma, plan.clients)
            )
            found = subordinate(weights, np.ones_like, gamma, r2, s2, m, member=False)
            bias[i], noise[i] = (
                (found[0] - r2) / s * spectrum.weights,
                found[1] / s * spectrum.weights,
            )
    return ErrorEnergies(bias, noise)


def follow_energies(start: Start, reported: NDArray[np.int64]) -> EnergyPath:
    """The recursion, round by round; an adaptive clip follows the lengths of the moves."""
    P, K = start.first.shape
    rule = start.rule
    shares = start.world.spectrum.weights
    bias, noise = np.empty((P, reported.size, K)), np.empty((P, reported.size, K))
    lengths, clips = np.empty((P, reported.size)), np.empty((P, reported.size))
    law = start.law
    first = np.broadcast_to(start.first[..., None], law.x.shape)
    M = ErrorEnergies(first, np.zeros_like(first))
    left = np.ones_like(first)
    at = 0
    for t in range(int(reported[-1]) + 1):
        after, moves = advance_energies(M, start.moments, start.own, rule, shares, law)
        if t == reported[at]:
            reached = law.reach(left)  # of what the clients' common optimum misses
            bias[:, at], noise[:, at] = (
                law.mean(M.bias) + reached * start.missed.bias,
                law.mean(M.noise) + reached * start.missed.noise,
            )
            lengths[:, at], clips[:, at] = moves.length, rule.clip
            at += 1
        M = after
        left = left * (1 - moves.step[:, None, None] * law.x)
        if start.quantile is not None:
            move = np.exp(-CLIP_RATE * (moves.short - start.quantile))
            rule = replace(rule, clip=rule.clip * move)
    return EnergyPath(ErrorEnergies(bias, noise), lengths, clips)


def linear_map(start: Start) -> tuple[Array, Array]:
    """The round as M -> A M + c, not clipped, over atoms and the nodes of the law, N = K J of them:
    A (P, N, N), and c for bias and noise, (P, N, 2).
    """
    rule, law = start.rule, start.law
    P, K, J = law.x.shape
    C = scatter_matrix(start.moments, rule, law, rule.step)
    A = np.repeat(np.kron(C, law.weights) if J > 1 else C, J, axis=1)
    every = np.arange(K * J)
    A[:, every, every] += ((1 - rule.step[:, None, None] * law.x) ** 2).reshape(P, -1)
    fresh = (rule.step**2 * rule.share / rule.cohort)[:, None]
    own = np.stack([fresh * start.own.bias, fresh * start.own.noise], axis=-1)
    return A, np.repeat(own, J, axis=1)


def final_energies(start: Start, last: NDArray[np.int64]) -> ErrorEnergies:
    """Energies after each setting's last round (P, 1, K), by powers of the map: no clipping."""
    rule, law = start.rule, start.law
    P, K, J = law.x.shape
    A, c = linear_map(start)
    first = np.repeat(start.first, J, axis=1)
    M = np.stack([first, np.zeros_like(first)], axis=-1)
    remaining = last.copy()
    while np.any(remaining > 0):
        odd = remaining % 2 == 1
        M[odd] = A[odd] @ M[odd] + c[odd]
        c, A, remaining = A @ c + c, A @ A, remaining // 2
    reached = law.reach((1 - rule.step[:, None, None] * law.x) ** last[:, None, None])
    bias, noise = (
        law.mean(M[..., i].reshape(P, K, J)) + reached * missed
        for i, missed in enumerate((start.missed.bias, start.missed.noise))
    )
    return ErrorEnergies(bias[:, None], noise[:, None])


def find_floor(start: Start) -> Array:
    """The shared model's excess loss after endless rounds; NaN with clipping, inf if it grows."""
    s, law = start.world.spectrum.values, start.law
    P, K, J = law.x.shape
    A, c = linear_map(start)
    moving = (law.x > 0).reshape(P, -1)  # elsewhere the start stays, and carries no loss
    A = np.where(moving[:, :, None] & moving[:, None], A, 0.0)
    source = np.where(moving, c.sum(-1), 0.0)
    # A has no entry below 0: its powers vanish just where (I - A) x = 1 has a positive solution
    sides = np.stack([source, np.ones_like(source)], axis=-1)
    singular = np.abs(np.linalg.det(np.eye(K * J) - A)) == 0
    A[singular] = 0
    fixed, ones = np.moveaxis(np.linalg.solve(np.eye(K * J) - A, sides), -1, 0)
    grows = singular | (ones.min(-1) <= 0)
    floor = (law.mean(fixed.reshape(P, K, J)) + start.missed.total) @ s
    return np.where(np.isfinite(start.plan.clip), np.nan, np.where(grows, np.inf, floor))


def largest_mixing(start: Start) -> float:
    """The server's factor from which on the shared model's error grows, of a single setting."""
    low, high = 0.0, float(start.plan.mixing[0])
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        tried = replace(start, plan=replace(start.plan, mixing=np.array([middle])))
        low, high = (middle, high) if np.isfinite(find_floor(tried)[0]) else (low, middle)
    return low


def personalise_energies(
    algorithm: Algorithm, start: Start, M: ErrorEnergies
) -> tuple[Array, Array, Array | None]:
    """Bias, variance and ridge of own models, (P, R), from energies (P, R, K) of shared errors."""
    P, R, K = M.bias.shape
    world = start.world
    rows = np.repeat(np.arange(P), R)
    g = np.broadcast_to(world.g, (P, K))
    shift = (world.r2[:, None] * g)[:, None] + M.bias
    one = Worlds(np.ones(P * R), world.s2[rows], world.gamma[rows], g[rows], world.spectrum)
    stage = algorithm.personalise
    fixed = stage.get("ridge") if algorithm.has_ridge else None
    ridge = None if fixed is None else np.broadcast_to(np.asarray(fixed, dtype=float), (P * R,))
    found = newcomer_risk_per_atom(stage, one, ridge, shift.reshape(-1, K), M.noise.reshape(-1, K))
    used = None if found[2] is None else found[2].reshape(P, R)
    return found[0].reshape(P, R), found[1].reshape(P, R), used


def spend_budget(start: Start, algorithm: Algorithm, privacy: Privacy) -> RoundPlan:
    """The plan with the noise that a budget asks for, and the clip that is given or best."""
    plan = start.plan
    keys = np.stack([plan.rounds, plan.cohort, plan.clients], axis=1).astype(np.int64)
    each, back = np.unique(keys, axis=0, return_inverse=True)
    multipliers = np.array([privacy.find_multiplier(*(int(v) for v in key)) for key in each])
    plan = replace(plan, multiplier=multipliers[back.ravel()])
    if privacy.clip is not None or privacy.quantile is not None:
        return replace(plan, clip=np.full(plan.cohort.size, privacy.clip or FIRST_CLIP))
    lengths = np.sqrt((start.moments.kept_energy(start.first) + start.own.total).sum(-1))
    best = np.empty(plan.cohort.size)
    for i in range(plan.cohort.size):
        tried = start.take(np.full(CLIPS.size, i))
        clips, place = CLIPS * lengths[i], 0
        while place == 0 and clips[0] > TIGHTEST * lengths[i]:  # the least of them: look below
            tried = replace(tried, plan=replace(plan.take(np.full(CLIPS.size, i)), clip=clips))
            energies = follow_energies(tried, np.array([int(plan.rounds[i])])).energies
            bias, variance, _ = personalise_energies(algorithm, tried, energies)
            place = int(np.argmin((bias + variance)[:, 0]))
            best[i] = clips[place]
            clips = clips * (CLIPS[0] / CLIPS[-1])
    return replace(plan, clip=best)


def choose_reported(evaluated: ArrayLike | None, last: Array) -> NDArray[np.int64]:
    """The rounds to report, ascending, the last of every setting among them."""
    ends = np.unique(last).astype(np.int64)
    if evaluated is None and last.size > MANY_SETTINGS and ends.size == 1:
        return ends
    if evaluated is None:
        top = int(ends[-1])
        grid = np.append(0, np.geomspace(1, max(top, 1), REPORTED))
        ends = ends if ends.size <= REPORTED else ends[-1:]
        return np.unique(np.append(np.round(grid[grid <= top]), ends)).astype(np.int64)
    given = floats(evaluated)
    at = np.atleast_1d(np.array([np.nan]) if given is None else given).ravel()
    if at.size == 0 or not np.all((at >= 0) & (at == np.round(np.where(np.isfinite(at), at, -1)))):
        raise InvalidInput(
            f"evaluated is {evaluated!r}: give a list of rounds, whole numbers of at least 0"
        )
    if at.max() > ends[-1]:
        raise InvalidInput(f"evaluated asks for round {at.max():g}: there are {ends[-1]} rounds")
    return (
        np.unique(np.append(at, ends)).astype(np.int64)
        if ends.size == 1
        else np.unique(at).astype(np.int64)
    )


def assemble_path(
    world: Population,
    algorithm: Algorithm,
    start: Start,
    reported: NDArray[np.int64],
    shape: tuple[int, ...],
    given: dict[str, Array],
    dimension: int | None,
    privacy: Privacy | None,
) -> Rounds:
    """Follow the recursion, in pieces that fit the memory, and put the answer together."""
    P, K = start.first.shape
    last = start.plan.rounds.astype(np.int64)
    alone = reported.size == 1 and privacy is None
    size = max(1, CHUNK // (K * K * (1 if alone else reported.size)))
    s = world.spectrum.values
    parts = []
    for begin in range(0, P, size):
        some = start.take(np.arange(begin, min(begin + size, P)))
        if alone:
            energies = final_energies(some, np.minimum(last[begin : begin + size], reported[0]))
            length = np.sqrt(
                (some.moments.kept_energy(energies.total[:, 0]) + some.own.total).sum(-1)
            )[:, None]
            clips = np.full_like(length, np.inf)
        else:
            energies, length, clips = follow_energies(some, reported)
        bias, variance, ridge = personalise_energies(algorithm, some, energies)
        parts.append((bias, variance, ridge, energies.total @ s, length, clips))
    over = reported > last[:, None]  # rounds that a setting does not have

    def join_pieces(i: int) -> Array:
        values = np.where(over, np.nan, np.concatenate([part[i] for part in parts]))
        return values.reshape(*shape, -1)

    spent = {}
    if privacy is not None:
        sizes = (start.plan.rounds, start.plan.cohort, start.plan.clients)
        with_noise = [
            replace(privacy, epsilon=None, noise_multiplier=float(z)).spend(int(t), int(D), int(m))
            for z, t, D, m in zip(start.plan.multiplier, *sizes, strict=True)
        ]
        spent = {
            "epsilon": np.reshape(with_noise, shape),
            "noise_multiplier": start.plan.multiplier.reshape(shape),
            "clip": start.plan.clip.reshape(shape),
        }
        if privacy.quantile is not None:  # where it has come to
            ends = np.searchsorted(reported, last, side="right") - 1
            spent["clip"] = np.concatenate([part[5] for part in parts])[np.arange(P), ends].reshape(
                shape
            )
    settings = {
        name: np.broadcast_to(values, shape)
        for name, values in (
            given
            | {name: np.asarray(getattr(world, name)) for name in ("radius", "noise", "aspect")}
        ).items()
        if values.shape
    }
    floor = find_floor(start)
    result = Rounds(
        algorithm.name,
        reported,
        join_pieces(0),
        join_pieces(1),
        None if parts[0][2] is None else join_pieces(2),
        join_pieces(3),
        join_pieces(4),
        floor.reshape(shape),
        settings,
        last.reshape(shape),
        start.plan.cohort.reshape(shape),
        dimension,
        describe_rounds(world, algorithm, given),
        (),
        spent,
    )
    return replace(result, notes=tuple(summarise_rounds(result, algorithm, start, privacy)))


def describe_rounds(world: Population, algorithm: Algorithm, given: dict[str, Array]) -> str:
    """The line above the table."""
    words = {
        "local_steps": "local steps",
        "server_step": "of size",
        "cohort": "cohorts of",
        "mixing": "server step",
    }
    parts = []
    for name, word in words.items():
        value = given[name]
        if name == "mixing" and np.all(value == 1):
            continue
        told = f"{float(value):g}" if value.ndim == 0 else f"{value.min():g} to {value.max():g}"
        parts.append(f"{told} {word}" if name == "local_steps" else f"{word} {told}")
    many = given["clients"]
    if np.all(np.isfinite(many)):
        parts.append(
            f"of {float(many):g} clients"
            if many.ndim == 0
            else f"of {many.min():g} to {many.max():g} clients"
        )
    return f"{world} · {algorithm.name} · {', '.join(parts)}"


def summarise_rounds(
    result: Rounds, algorithm: Algorithm, start: Start, privacy: Privacy | None
) -> list[str]:
    """What the path says, in sentences."""
    if result.loss.ndim > 1:
        best = result.best
        told = ", ".join(f"{name} {number(value)}" for name, value in best.settings.items())
        return [
            f"Best of {result.final.size} settings: {told}: loss {number(best.loss)} after"
            f" {best.rounds} rounds."
        ]
    notes = []
    floor, now = float(result.floor), float(result.shared_error[-1])
    if np.isinf(floor):
        notes.append(
            "The shared model's error grows without end; it does not with a mixing below"
            f" {number(largest_mixing(start) / server_factor(algorithm))}. Or give a smaller"
            " server_step, or a larger cohort."
        )
    elif np.isfinite(floor):
        notes.append(
            f"The shared model's excess loss is {number(now)} after {result.last} rounds; with"
            f" cohorts of {number(result.cohort)} it ends at {number(floor)}, however many rounds."
        )
    if privacy is not None:
        no_noise = replace(start.plan, clip=np.full(1, np.inf), multiplier=np.zeros(1))
        free = replace(start, plan=no_noise, quantile=None, fourth=None)
        plain = follow_energies(free, np.array([int(result.last)])).energies
        extra = now - float(plain.total[0, 0] @ start.world.spectrum.values)
        spread = float(start.world.spread[0])
        radius = (
            np.sqrt(max(float(start.world.r2[0]) + extra / spread, 0.0)) if spread > 0 else np.inf
        )
        cost = (
            f"what a radius of {number(radius)} instead of {number(np.sqrt(start.world.r2[0]))}"
            " would cost"
        )
        cost = (
            cost
            if extra > 0
            else "nothing here: clipping shortens the steps, and so averages over more rounds"
        )
        end = "" if privacy.quantile is None else " after the last round"
        notes.append(
            f"Privacy: epsilon {number(result.privacy['epsilon'])} at delta {privacy.delta:g},"
            f" noise multiplier {number(result.privacy['noise_multiplier'])}, updates clipped at"
            f" {number(result.privacy['clip'])}{end}. It costs the shared model {cost}."
        )
    return notes
