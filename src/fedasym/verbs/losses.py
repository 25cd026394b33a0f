"""Regression: limits, finite clients and paths of the squared loss on a `Population`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedasym.algorithms import PAPER, Algorithm, ClientStage, Objective, ServerStage, find, resolve
from fedasym.algorithms.paper import KEEP
from fedasym.core.errors import InvalidInput, MissingNorm, NoFormula, ThresholdWarning
from fedasym.core.numbers import Array, floats
from fedasym.results import LOSS, Comparison, Metric, Risk
from fedasym.theory import (
    CRITICAL,
    RiskAtRidge,
    Worlds,
    best_ridge,
    centre_energy,
    flatten,
    stage_limit,
)
from fedasym.verbs import (
    NEAR,
    SIMULATE,
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
    plain_form,
    ridge_of,
    sharing_verdict,
    threshold_note,
)
from fedasym.verbs.regimes import noise_threshold
from fedasym.worlds import Population, check_client_count

if TYPE_CHECKING:
    from fedasym.results.regimes import FineTuning
    from fedasym.results.simulation import Simulated, Simulation
    from fedasym.theory import Parts
    from fedasym.verbs.simulation import SimulationRequest

MOST_AT_ONCE = 1 << 19  # worlds x atoms that the finite-client formulas hold at once
LARGEST = 1e100  # aspect whose square floating-point numbers still hold
DRAWN_DIMENSION, DRAWN_TRIALS, DRAWN_CLIENTS = 400, 6, 24


class Regression(LearningTask[Risk]):
    """Squared loss: the test loss above the noise floor."""

    world: ClassVar[str] = "Population"
    metric: ClassVar[Metric] = LOSS
    options: ClassVar[tuple[str, ...]] = ("ridge", "clients", "member", "maml_step")

    def resolve(
        self, algorithms: Names, ridge: ArrayLike | None, maml_step: float
    ) -> list[Algorithm]:
        """All of the paper's algorithms by default."""
        return resolve(algorithms, ridge, maml_step)

    def predict(
        self, worlds: Sequence[Population], chosen: list[Algorithm], asked: PredictionRequest
    ) -> Comparison[Risk]:
        """Limits, finite clients, or exact algebra on drawn ones."""
        populations = list(worlds)
        if not populations:
            raise InvalidInput("the list of populations is empty: give at least one client")
        if asked.method == SIMULATE:
            return predict_by_drawing(populations, chosen, asked)
        if asked.several:
            return predict_different(populations, chosen, asked)
        return predict_equal(populations[0], with_winner(populations[0], chosen, asked), asked)

    def evaluate(
        self,
        world: Population,
        chosen: list[Algorithm],
        shape: tuple[int, ...],
        asked: PredictionRequest,
    ) -> list[Array]:
        """The losses of `predict`; a diagram may cross thresholds on purpose."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ThresholdWarning)
            table = predict_equal(world, chosen, asked)
        return [np.broadcast_to(np.asarray(row.loss, dtype=float), shape) for row in table.values()]

    def check_grid(self, world: Population, points: int) -> float:
        """A point takes no time; boundaries are solved to rounding."""
        return 1e-12

    def fine_tune(self, world: Population, walk: TuningRequest) -> FineTuning[Risk]:
        """Bias and variance from the filter of descent or flow."""
        return walk_losses(world, walk)

    def step_once(self, world: Population, step: ArrayLike | None) -> tuple[float | Array, Risk]:
        """In closed form."""
        return step_once(world, step)

    def best_ridge(self, world: Population) -> Array:
        """noise^2 aspect/radius^2, or where the loss is lowest."""
        return best_ridge(flatten(world, world.shape))

    def simulate(self, request: SimulationRequest) -> Simulation[Simulated]:
        """Exact traces given the features, or sampled labels."""
        from fedasym.verbs.simulation import simulate_losses

        return simulate_losses(request)


TASK = Regression()
WINNER = "pfedme_ridge"  # with few clients whose optimum's length is known


def with_winner(
    world: Population, chosen: list[Algorithm], asked: PredictionRequest
) -> list[Algorithm]:
    """The default algorithms, and the one that none of them is better than, at their ridge."""
    usual = asked.optional and len(chosen) == len(PAPER) and world.norm is not None
    few = usual and asked.clients is not None and check_client_count(asked.clients) is not None
    if not few:
        return chosen
    winner = find(WINNER)
    given = next(each.personalise.get("ridge") for each in chosen if each.has_ridge)
    return [*chosen, replace(winner, personalise=winner.personalise.at(ridge=given))]


def predict_equal(
    world: Population, chosen: list[Algorithm], asked: PredictionRequest
) -> Comparison[Risk]:
    """All algorithms on one population, or on each world of a grid."""
    m = None if asked.clients is None else check_client_count(asked.clients)
    shape = joint_shape(world, chosen, m)
    shared = flatten(world, shape)
    alone = None if world.norm is None else flatten(world, shape, alone=True)
    count = None if m is None else np.broadcast_to(m, shape).ravel()
    known: dict[tuple[object, ...], RiskAtRidge] = {}

    def centre_of(part: slice) -> Array | None:
        return None if alone is None else centre_energy(shared.take(part), alone.take(part))

    def answer(algorithm: Algorithm) -> Risk:
        if (own := algorithm.personalise.own_stage) is not None:
            return mix(algorithm, own)
        if (elsewhere := plain_form(algorithm, world, m)) is not None:
            same, there, many = elsewhere
            told = replace(asked, optional=False, clients=many)
            return predict_equal(there, [same], told)[same.name]
        if algorithm.server.shrinks and count is not None:
            algorithm = settle_shared_ridge(algorithm)
        return risk_of(solve(algorithm), shape, algorithm.server.get("shared_ridge"))

    def mix(algorithm: Algorithm, own: ClientStage) -> Risk:
        """A client's own model beside the shared one, which is kept as it is."""
        from fedasym.theory.pooled import mix_parts

        if alone is None:
            raise MissingNorm
        kept = solve(replace(algorithm, personalise=KEEP))[:2]
        lonely = stage_limit(own, alone, ridge_of(replace(algorithm, personalise=own), shape))[:2]
        common = common_errors(algorithm.server, own, shared, count, asked.member)
        mixture = algorithm.personalise.get("mixture")
        bias, variance, weight = mix_parts(kept, lonely, common, mixture)
        found = risk_of((bias, variance, None), shape)
        return replace(found, mixture=box(np.broadcast_to(weight, bias.shape), shape))

    def settle_shared_ridge(algorithm: Algorithm) -> Algorithm:
        from fedasym.theory.two_ridges import with_shared_ridge

        assert count is not None
        every = slice(None)
        ridge = ridge_of(algorithm, shape)
        return with_shared_ridge(algorithm, shared, ridge, count, asked.member, centre_of(every))

    def solve(algorithm: Algorithm) -> RiskAtRidge:
        seen = alone if algorithm.shares_nothing else shared
        if seen is None:
            raise MissingNorm
        ridge = ridge_of(algorithm, shape)
        if count is None and algorithm.server.shrinks:
            from fedasym.theory.two_ridges import endless_world

            seen = endless_world(algorithm, seen, centre_of(slice(None)))
            return stage_limit(algorithm.personalise, seen, ridge)
        if count is None or algorithm.shares_nothing:  # the same for every server stage
            kind = algorithm.personalise.linear_objective
            stage = algorithm.personalise.at(ridge=None) if kind is None else kind
            key = (algorithm.shares_nothing, stage, None if ridge is None else ridge.tobytes())
            if key not in known:
                known[key] = stage_limit(algorithm.personalise, seen, ridge)
            return known[key]
        from fedasym.theory.finite import equal_clients  # the limits alone should start quickly

        def piece(part: slice) -> RiskAtRidge:
            each = algorithm
            if each.server.shrinks:
                cut = np.asarray(each.server.get("shared_ridge"))[part]
                each = replace(each, server=each.server.at(shared_ridge=cut))
            return equal_clients(
                each,
                shared.take(part),
                cut_values(ridge, part),
                count[part],
                asked.member,
                centre_of(part),
            )

        return apply_in_pieces(shared, piece)

    rows, notes = collect(chosen, asked.optional, answer)
    title = f"{world} · {clients_text(count, asked.member)}"
    table = Comparison(rows, title, world=world, clients=count, member=asked.member)
    seen = shared.gamma * world.spectrum.rank
    stages = [each.personalise for each in chosen]
    pooled = None if count is None or all_shrink(chosen) else seen / count
    near = emit_warnings(thresholds(seen, pooled, stages))
    return replace(table, notes=(*loss_verdicts(table), *notes, *near))


def predict_different(
    populations: list[Population], chosen: list[Algorithm], asked: PredictionRequest
) -> Comparison[Risk]:
    """All algorithms on a list of clients: one row each, identical ones computed once."""
    from fedasym.theory.finite import DifferentClients, merge_clients

    federation = merge_clients(populations, asked.clients, asked.weights)
    different = DifferentClients(federation, asked.member)

    shape = (len(populations),)

    def answer(algorithm: Algorithm) -> Risk:
        server, client = algorithm.stages
        if client.own_stage or client.plain_stage or server.group_stage:
            raise NoFormula(
                "there is no formula for clients that differ: give one population, or ask for"
                " fedavg, ftfa, rtfa or pfedme"
            )
        rows = []
        for i, kind in enumerate(federation.kinds):
            ridge = ridge_of(algorithm, shape)
            if ridge is not None:
                ridge = ridge[federation.row == i][:1]
            if not algorithm.shares_nothing:
                rows.append(different.answer(algorithm, i, ridge))
            elif kind.norm is None:
                raise MissingNorm
            else:
                rows.append(
                    stage_limit(algorithm.personalise, flatten(kind, (), alone=True), ridge)
                )
        bias, variance = (np.concatenate([row[j] for row in rows])[federation.row] for j in (0, 1))
        mu = different.shared_ridge(algorithm)
        shared_ridge = None if mu is None else np.full(shape, mu)
        if not algorithm.has_ridge:
            return risk_of((bias, variance, None), shape, shared_ridge)
        ridges = np.concatenate([np.asarray(row[2]) for row in rows])[federation.row]
        return risk_of((bias, variance, ridges), shape, shared_ridge)

    found, notes = collect(chosen, asked.optional, answer)
    who = "members" if asked.member else "new clients like them"
    title = f"{federation.count.sum():g} clients of {len(federation.kinds)} kinds, {who}"
    joint = [
        each.name
        for each in chosen
        if each.name in found and each.server.linear_objective is Objective.JOINT
    ]
    if (
        asked.weights is None
        and joint
        and len({float(np.asarray(kind.noise)) for kind in federation.kinds}) > 1
    ):
        notes.append(
            f"{joint[0]} weighs clients by samples over noise^2, its optimum; the other methods by"
            " samples."
        )
    own = np.array(
        [float(np.asarray(kind.aspect)) * kind.spectrum.rank for kind in federation.kinds]
    )
    near = emit_warnings(
        thresholds(
            own,
            None if all_shrink(chosen) else different.groups.ratio,
            [each.personalise for each in chosen],
        )
    )
    labels = tuple(f"{i}: {each.brief}" for i, each in enumerate(populations))
    return Comparison(
        found, title, (*notes, *near), labels=labels, world=populations, member=asked.member
    )


def all_shrink(chosen: Sequence[Algorithm]) -> bool:
    """Whether no shared model is without a ridge, so that pooled samples have no threshold."""
    return all(each.server.shrinks or each.shares_nothing for each in chosen)


def emit_warnings(notes: list[str]) -> list[str]:
    """Emit each note as a warning to the caller of `predict`, and pass them on."""
    for note in notes:
        warnings.warn(note, ThresholdWarning, stacklevel=5)
    return notes


def common_errors(
    server: ServerStage, own: ClientStage, world: Worlds, count: Array | None, member: bool
) -> Parts:
    """What the errors of the shared and of a client's own model have in common."""
    if server.shrinks:
        raise NoFormula(
            "a mixture with a shared model that is pulled towards zero has no formula: take"
            ' method="simulate"'
        )
    if count is not None and member:
        from fedasym.theory.finite import uncorrelated_cross

        return uncorrelated_cross(server, own, world, count)
    if count is not None and np.any(world.gamma * world.spectrum.rank >= count):
        raise NoFormula(
            "a mixture has a formula only with more pooled samples than unknowns: give more clients"
        )
    from fedasym.theory.pooled import cross_limit

    return cross_limit(own, world)


def risk_of(
    answer: RiskAtRidge, shape: tuple[int, ...], shared_ridge: float | Array | None = None
) -> Risk:
    """Bias, variance and ridges in the shape of the answer."""
    # Differences of large terms may round to just below zero.
    bias, variance = (box(np.maximum(part, 0), shape) for part in answer[:2])
    mu = None if shared_ridge is None else np.broadcast_to(shared_ridge, answer[0].shape)
    return Risk(
        bias,
        variance,
        None if answer[2] is None else box(answer[2], shape),
        shared_ridge=None if mu is None else box(mu, shape),
    )


def apply_in_pieces(world: Worlds, solve: Callable[[slice], RiskAtRidge]) -> RiskAtRidge:
    """Apply a formula to pieces of a large grid, so that memory stays bounded."""
    size = max(1, MOST_AT_ONCE // world.spectrum.values.size)
    answers = [solve(slice(i, i + size)) for i in range(0, max(world.r2.size, 1), size)]
    bias, variance = (np.concatenate([each[i] for each in answers]) for i in (0, 1))
    return (
        bias,
        variance,
        (
            None
            if answers[0][2] is None
            else np.concatenate([np.asarray(each[2]) for each in answers])
        ),
    )


def cut_values(values: Array | None, part: slice) -> Array | None:
    """A piece of an array that may be absent."""
    return None if values is None else values[part]


def predict_by_drawing(
    worlds: list[Population], chosen: list[Algorithm], asked: PredictionRequest
) -> Comparison[Risk]:
    """Losses from exact algebra on drawn clients, with standard errors; None: infinitely many
    clients.

    The shared model of infinitely many clients is theta_0 itself, so that one client at a time is
    drawn.
    """
    world = worlds if asked.several else worlds[0]
    what = f"{len(worlds)} kinds of clients" if asked.several else f"{world}"
    drawn = (
        f"Drawn in dimension {DRAWN_DIMENSION}, which is off by order 1/dimension: not the limit"
        " itself."
    )
    if asked.clients is None and not asked.several:
        rows = {each.name: draw_limit(worlds[0], each) for each in chosen}
        title = f"{what} · infinitely many clients"
        return Comparison(rows, title, (drawn,), world=world)
    from fedasym.verbs.simulation import simulate

    clients: Any = [1] * len(worlds) if asked.clients is None else asked.clients
    found = simulate(
        world,
        dimension=DRAWN_DIMENSION,
        clients=clients,
        trials=DRAWN_TRIALS,
        algorithms=chosen,
        member=asked.member,
        weights=asked.weights,
    )
    rows = {
        name: Risk(row.bias, row.variance, row.ridge, row.error)
        for name, row in found.items()
        if row.bias is not None and row.variance is not None
    }
    return Comparison(
        rows, f"{what} · {clients} clients", (drawn,), world=world, member=asked.member
    )


def draw_limit(world: Population, algorithm: Algorithm) -> Risk:
    """What drawn clients say of one algorithm; of one that is plain elsewhere, there."""
    if (elsewhere := plain_form(algorithm, world)) is not None:
        algorithm, world, _ = elsewhere
    return draw_limits(world, [algorithm])[algorithm.name]


def draw_limits(world: Population, algorithms: Sequence[Algorithm]) -> dict[str, Risk]:
    """The risk of one drawn client after another that starts from theta_0, or from nothing."""
    from fedasym.exact.draws import draw_client, kinds_of, seeded_generator
    from fedasym.exact.expectation import SharedCovariance, alone_forms, newcomer_forms, stage_risk

    if world.shape != ():
        raise InvalidInput("the population holds arrays: give plain numbers, one world at a time")
    (kind,) = kinds_of([world], DRAWN_DIMENSION)
    nothing = np.zeros((kind.s.size, kind.s.size))
    exact = SharedCovariance(nothing, nothing, lambda *_: nothing)
    rows: dict[str, list[tuple[float, float]]] = {each.name: [] for each in algorithms}
    ridges: dict[str, float | None] = {}
    for trial in range(DRAWN_CLIENTS):
        client = draw_client(kind, seeded_generator(0, trial), "gaussian")
        for each in algorithms:
            if each.shares_nothing and kind.optimum is None:
                raise MissingNorm(f"{each.name}: {MissingNorm()}")
            seen = flatten(kind.population, (), alone=each.shares_nothing)
            given = ridge_of(each, ())
            ridge = (
                float((best_ridge(seen) if given is None else given)[0]) if each.has_ridge else None
            )
            ridges[each.name] = ridge
            forms = alone_forms(client) if each.shares_nothing else newcomer_forms(client, exact)
            rows[each.name].append(stage_risk(each.personalise, client, forms, ridge, exact))
    made = {name: np.array(values) for name, values in rows.items()}
    return {
        name: Risk(
            float(parts[:, 0].mean()),
            float(parts[:, 1].mean()),
            ridges[name],
            float(parts.sum(1).std(ddof=1) / np.sqrt(len(parts))),
        )
        for name, parts in made.items()
    }


def walk_losses(world: Population, walk: TuningRequest) -> FineTuning[Risk]:
    """The loss along early-stopped fine-tuning; see `fedasym.fine_tuning`."""
    from fedasym.results.regimes import FineTuning, Stop
    from fedasym.theory.filters import DescentFilter, best_stop, stopped_risk
    from fedasym.theory.finite import stopped_risk_of_clients as along_few
    from fedasym.theory.transforms import sample_support

    if not walk.flow and walk.times is not None:
        raise InvalidInput(
            "times=[...] is for gradient flow: pass flow=True, or steps=[...] for gradient steps"
        )
    shared = flatten(world, world.shape)
    alone = None if world.norm is None else flatten(world, world.shape, alone=True)
    centre = None if alone is None else centre_energy(shared, alone)
    m = None if walk.clients is None else check_client_count(walk.clients)
    if m is not None and m.ndim:
        raise InvalidInput("clients must be one number here; call fine_tuning once for each")
    start = walk.algorithm
    if start.shares_nothing and alone is None:
        raise MissingNorm
    flat = shared if alone is None or not start.shares_nothing else alone
    if float(np.max(flat.gamma)) > LARGEST:
        raise InvalidInput(
            f"aspect is {float(np.max(flat.gamma)):g}: gradient descent is computed up to"
            f" {LARGEST:g}"
        )
    high = max(sample_support(float(gamma), world.spectrum)[1] for gamma in flat.gamma)
    step = None if walk.flow else 1 / high if walk.step is None else check_step_size(walk.step)
    wanted = read_loss_times(walk, high, step, flat)

    def evaluator(i: int) -> Callable[[Array], Parts]:
        one = flat.take(slice(i, i + 1))

        def evaluate(at: Array) -> Parts:
            filter_ = DescentFilter(at, step)
            if m is None or start.shares_nothing:
                return stopped_risk(one, filter_)
            return along_few(
                one,
                filter_,
                m.reshape(1),
                walk.member,
                None if centre is None else centre[i : i + 1],
                start.server,
            )

        return evaluate

    bias, variance, best = [], [], []
    for i in range(flat.r2.size):
        evaluate = evaluator(i)
        found = evaluate(wanted)
        bias.append(found[0])
        variance.append(found[1])
        best.append(best_stop(evaluate, flat.take(slice(i, i + 1)), step, high))
    shape = world.shape
    at, *parts = (box(part, shape) for part in np.array(best).T)
    along = Risk(np.reshape(bias, (*shape, -1)), np.reshape(variance, (*shape, -1)))
    who = clients_text(None if m is None else m.reshape(1), walk.member)
    how = "gradient flow" if walk.flow else f"gradient steps of {step:.4g}"
    how += start_text(start)
    return FineTuning(wanted, along, Stop(at, Risk(*parts)), step, f"{world} · {who} · {how}")


def start_text(start: Algorithm) -> str:
    """From where the steps of a path start, unless it is FedAvg's model, as usual."""
    if start.server.linear_objective is Objective.POOLED:
        return ""
    return " from nothing" if start.shares_nothing else f" from {start.name}'s shared model"


def step_once(world: Population, step: ArrayLike | None) -> tuple[float | Array, Risk]:
    """One gradient step from the shared model; see `fedasym.one_step`."""
    from fedasym.theory.filters import single_step

    flat = flatten(world, world.shape)
    b0, b1, b2, v = single_step(flat)
    if step is None:
        size = np.where(
            flat.r2 == 0, 0.0, flat.r2 * b1 / np.where(flat.r2 == 0, 1, flat.r2 * b2 + flat.s2 * v)
        )
    else:
        given = floats(step)
        if given is None or given.size == 0 or not np.all(np.isfinite(given)) or np.any(given < 0):
            raise InvalidInput(
                f"step is {step!r}: it must be finite and at least 0; leave it out for the best"
            )
        try:
            size = np.broadcast_to(given, world.shape).ravel()
        except ValueError:
            raise InvalidInput(
                f"step has shape {given.shape}: give one number, or one for each of {world.shape}"
            ) from None
    bias, variance = flat.r2 * (b0 - 2 * size * b1 + size**2 * b2), flat.s2 * v * size**2
    found = [box(part, world.shape) for part in (size, bias, variance)]
    return found[0], Risk(*found[1:])


def read_loss_times(walk: TuningRequest, high: float, step: float | None, world: Worlds) -> Array:
    """The stopping times as given; by default from none to past convergence, or a thousandfold."""
    from fedasym.theory.filters import DescentFilter, check_stable, horizon

    wanted = walk.times if walk.flow else walk.steps
    if wanted is None:
        ends = [horizon(float(gamma), world.spectrum, step) for gamma in world.gamma]
        unit = 1 / high if walk.flow else 1.0
        grid = np.geomspace(0.1 * unit if walk.flow else 1, min(max(ends), 1e4 * unit), 28)
        return np.append(0, grid) if walk.flow else np.unique(np.round(np.append(0, grid)))
    at = check_times(wanted, whole=not walk.flow, endless=True)
    if step is not None:
        for gamma in np.unique(world.gamma):
            check_stable(DescentFilter(at, step), float(gamma), world.spectrum)
    return at


def loss_verdicts(table: Comparison[Risk]) -> list[str]:
    """The sentences for a single world; none for a grid."""
    if table.stack().ndim != 1:
        return []
    lines = []
    world, count = table.world, table.clients
    ratio = (
        0.0
        if count is None
        else float(np.asarray(world.aspect)) * world.spectrum.rank / float(count[0])
    )
    if abs(ratio - 1) < CRITICAL:
        lines.append(
            "All samples together just match the unknowns: the shared model's error has no bound."
        )
    elif ratio > 1 and table.member:
        lines.append(
            "All samples together are fewer than the unknowns: the shared model interpolates every"
            " member's samples, so all methods that share agree on members."
        )
    elif {"ftfa", "fedavg"} <= set(table):
        lines.append(tuning_of_losses(table))
    if {"rtfa", "local_ridge"} <= set(table):
        lines.append(sharing_verdict(table))
    if (
        count is not None
        and {"maml", "ftfa"} <= set(table)
        and table["maml"].loss > float(table["ftfa"].loss) * (1 + LOSS.tie)
    ):
        lines.append(
            "MAML's step is too large here: it loses to ftfa; a smaller maml_step would do better."
        )
    if "rtfa" in table and (ridge := table["rtfa"].ridge) is not None and float(ridge) < 0:
        lines.append(
            f"The best ridge is negative ({float(ridge):.4g}): the displacement lies along strong"
            " features, so even the interpolant shrinks too much; where a penalty must not be"
            " negative, ridge 0 (ftfa) is the best."
        )
    return lines


def tuning_of_losses(table: Comparison[Risk]) -> str:
    """Whether fine-tuning pays, with its noise threshold, and what ridge adds."""
    fedavg, ftfa = float(table["fedavg"].loss), float(table["ftfa"].loss)
    edge = ""
    tie = ftfa == fedavg or abs(ftfa - fedavg) <= LOSS.tie * fedavg
    if table.clients is None:
        side = "at" if tie else "below" if ftfa < fedavg else "above"
        edge = f", as the noise {float(np.asarray(table.world.noise)):g} is {side} the threshold "
        edge += f"{float(noise_threshold(table.world)):.4g}"
    if tie:
        text = f"Fine-tuning neither pays nor hurts: ftfa and fedavg both have {fedavg:.4g}{edge}"
    elif ftfa < fedavg:
        text = f"Fine-tuning pays: ftfa {ftfa:.4g} against fedavg {fedavg:.4g}{edge}"
    else:
        text = f"Plain fine-tuning does not pay: ftfa {ftfa:.4g} against fedavg {fedavg:.4g}{edge}"
    if "rtfa" in table and (rtfa := float(table["rtfa"].loss)) < fedavg:
        text += (
            f"; with ridge {float(table['rtfa'].ridge or 0):.4g} it cuts fedavg's loss by"
            f" {1 - rtfa / fedavg:.0%}"
        )
    return text + "."


def thresholds(aspect: Array, pooled: Array | None, stages: list[ClientStage]) -> list[str]:
    """A sentence for each interpolation threshold that is near: a client's aspect = 1 and the
    pooled aspect = 1.

    Both count only the unknowns that samples can see.
    """
    near = []
    if any(stage.linear_objective is Objective.OWN for stage in stages):
        near.append(("aspect", "a client's samples just match its unknowns", np.abs(aspect - 1)))
    if pooled is not None:
        near.append(
            (
                "the pooled aspect",
                "all samples together just match the unknowns",
                np.abs(pooled - 1),
            )
        )
    return [threshold_note(*each) for each in near if np.any(each[2] < NEAR)]
