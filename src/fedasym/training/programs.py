"""The compiled programs, seeds and configurations side by side.

Rounds of local work by a cohort, then the server's update; and personalization, where every client
makes its own model of the shared one and is tested.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import Mesh

from fedasym.algorithms.stages import ServerStage
from fedasym.training.heads import (
    EVERYWHERE,
    FIRST,
    OPTIONS,
    SECOND,
    Coordinates,
    Matrix,
    Packed,
    Point,
    Space,
    array_of,
    device_mesh,
    flat_labels,
    flat_rows,
    index_within,
    mask_filling,
    numbers_as,
    read_batch,
)
from fedasym.training.plans import PrivateRounds
from fedasym.training.steps import (
    VALUES,
    ModelSum,
    Program,
    Rates,
    bound_stage,
    carry_out,
    client_rows,
    first_state,
    score,
    space_of,
    vectorise,
    walk,
)


def array_shape(leaf: Any) -> Any:
    """An array without its numbers; anything else as it is."""
    return array_of(leaf.shape, leaf.dtype) if hasattr(leaf, "dtype") else leaf


_BEGUN: set[Hashable] = set()  # calls whose programs this process has begun to compile


class Compiler:
    """Compiles programs side by side, before they are called."""

    def __init__(self, precision: str) -> None:
        """precision: as it was asked for."""
        self.precision = precision
        config: Any = jax.config
        self.device = config.jax_default_device
        self.pool = ThreadPoolExecutor(os.cpu_count() or 1)
        self.waiting: dict[Hashable, Future[None]] = {}

    def begin(self, function: Any, *told: Any) -> None:
        """Compile what a call of such arguments takes, of which shapes are enough."""
        shapes = jax.tree.map(array_shape, told)
        key = self.name_call(function, shapes)
        if key not in _BEGUN:
            _BEGUN.add(key)
            self.waiting[key] = self.pool.submit(self.compile, function, shapes)

    def call(self, function: Any, *told: Any) -> Any:
        """The function's answer; waits for its program, if that was begun."""
        if self.waiting:
            key = self.name_call(function, jax.tree.map(array_shape, told))
            if (begun := self.waiting.get(key)) is not None:
                wait([begun])  # what is wrong with it, the call itself says
                self.waiting.pop(key, None)
        return function(*told)

    def name_call(self, function: Any, shapes: Any) -> Hashable:
        """What tells the program of a call from others."""
        leaves, structure = jax.tree.flatten(shapes)
        return function, structure, tuple(leaves), self.precision, self.device

    def compile(self, function: Any, shapes: Any) -> None:
        """In a thread of its own: JAX's settings are those of a thread."""
        with numbers_as(self.precision), jax.default_device(self.device):
            function.lower(*shapes).compile()

    def close(self) -> None:
        """What has not begun by now is not needed."""
        self.pool.shutdown(cancel_futures=True)


class Memory(NamedTuple):
    """What is kept between rounds: (seeds, configurations, ...), clients' with slots third."""

    clients: Any
    server: Any
    portion: Array  # how many of the clients that train are drawn, for every seed


class Clips(NamedTuple):
    """The clip of private rounds, and how many updates were sent and were longer, each of
    (seeds, configurations).
    """

    clip: Array
    sent: Array
    longer: Array


class PrivateNoise(NamedTuple):
    """What private rounds are told beside their cohorts: noise by round and seed, and numbers."""

    sums: Any  # (rounds, seeds, d, outputs)
    counts: Any  # (rounds, seeds)
    numbers: PrivateRounds  # as data, so that one program serves any


@partial(jax.jit, static_argnames=("program", "slots"))
def first_memory(
    program: Program, shared: Array, starts: Array, rates: Rates, slots: int, portion: Array
) -> Memory:
    """Before the first round; clients that are never drawn take no room.

    starts: (seeds, models, d, outputs), with which a server may begin beside the shared one.
    """

    def begin(shared: Array, starts: Array, rates: Rates) -> tuple[Any, Any]:
        stage = bound_stage(program, rates)
        own = jax.tree.map(jnp.asarray, as_arrays(stage.init_client(ModelSum.at(shared)), shared))
        server = stage.first_memory(shared, tuple(starts))
        return (
            jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (slots, *leaf.shape)), own),
            jax.tree.map(lambda leaf: jnp.asarray(leaf, shared.dtype), server),
        )

    each = jax.vmap(jax.vmap(begin, (0, None, 0)), (0, 0, None))
    clients, server = each(shared, starts, rates)
    return Memory(clients, server, jnp.broadcast_to(portion, shared.shape[:1]))


def as_arrays(state: Any, like: Array) -> Any:
    """A state whose models are matrices, as they are kept."""

    def array(leaf: Any) -> Any:
        return carry_out_matrix(leaf, like) if isinstance(leaf, ModelSum) else leaf

    return jax.tree.map(array, state, is_leaf=lambda leaf: isinstance(leaf, ModelSum))


def as_models(state: Any, like: Array) -> Any:
    """A kept state as a step sees it: matrices of a head's shape are models."""
    return jax.tree.map(
        lambda leaf: ModelSum.at(leaf) if jnp.shape(leaf) == like.shape else leaf, state
    )


def carry_out_matrix(model: ModelSum, like: Array) -> Array:
    """A model without moves as its matrix."""
    return jnp.asarray(sum((c * point for c, point in model.points), start=jnp.zeros_like(like)))


def chooser(program: Program, data: Packed, member: Array, shared: Array) -> Callable[..., Any]:
    """Chooses the model of the least loss on all of a client's training samples: 1, and 0 else."""
    rows = jnp.arange(program.width)
    whole = read_batch(
        data.training, member, jnp.where(rows < index_within(data.trained, member), rows, -1)
    )
    space = Matrix(data.training, shared, program.classes)

    def choose(models: Sequence[ModelSum]) -> list[Array]:
        losses = []
        for model in models:
            outputs = space.products(carry_out_matrix(model, shared), whole)
            lost = score(program.task, mask_filling(outputs, program.classes), whole.labels)[1]
            losses.append((jnp.where(whole.weights[:, 0] > 0, lost, 0) * whole.weights[:, 0]).sum())
        return list(jax.nn.one_hot(jnp.stack(losses).argmin(), len(models), dtype=shared.dtype))

    return choose


@partial(jax.jit, static_argnames=("program",), compiler_options=OPTIONS)
def advance(
    program: Program,
    data: Packed,
    state: tuple[Array, Array, Memory | None, Clips | None],
    drawn: Array,
    slots: Array | None,
    rows: Array,
    shares: Array,
    rates: Rates,
    first: Array,
    count: Array,
    noise: PrivateNoise | None = None,
) -> Any:
    """`count` rounds from `first`: the state after them.

    The state: shared heads, the round after which each was first not finite (or -1), what a
    stage keeps, if it keeps anything, and the clips of private rounds; slots, like drawn: where in
    what is kept a client's is; noise: of private rounds.
    Axes: shared (seeds, configurations, d, outputs); drawn and shares (rounds, seeds, cohort); rows
    (rounds, seeds, cohort, steps, batches a step, batch); rates (configurations,). The number of
    rounds is data: one program serves any.
    """
    mesh = device_mesh()
    if mesh is not None and not program.divided and state[0].shape[1] % mesh.size == 0:
        told = (drawn, slots, rows, shares, rates, first, count, noise)
        return advance_divided(program, mesh, data, state, *told)

    def one_round(i: Array, state: Any) -> Any:
        shared, diverged, memory, clips = state
        places = None if slots is None else index_within(slots, i)
        one = partial(advance_round, program, data, rates, None if noise is None else noise.numbers)
        added = (
            None if noise is None else (index_within(noise.sums, i), index_within(noise.counts, i))
        )
        told = (
            index_within(drawn, i),
            places,
            index_within(rows, i),
            index_within(shares, i),
            added,
        )
        moved, memory, clips = vectorise(one, shared, memory, clips, *told)
        return moved, mark_diverged(moved, diverged, first + i + 1), memory, clips

    return lax.fori_loop(0, count, one_round, state)


def mark_diverged(shared: Array, diverged: Array, round_: Array) -> Array:
    """The rounds after which shared heads were first not finite, given them after this one."""
    broken = ~jnp.isfinite(shared).all(axis=(-1, -2))
    return jnp.where((diverged < 0) & broken, round_, diverged)


@partial(jax.jit, static_argnames=("program",), compiler_options=OPTIONS)
def join_round(
    program: Program,
    state: tuple[Array, Array, Memory | None, Clips | None],
    rates: Rates,
    round_: Array,
    slots: Array | None,
    shares: Array,
    found: CohortSum,
    added: tuple[Array, Array] | None = None,
    private: Any = None,
) -> Any:
    """The state after a round whose cohort was trained elsewhere, by `train_part`; all of it with
    the axis of seeds first, as in `advance`.
    """
    shared, diverged, memory, clips = state
    one = partial(finish_round, program, rates, private)
    told = (shared, memory, clips, slots, shares, added, found)
    moved, memory, clips = vectorise(one, *told)
    return moved, mark_diverged(moved, diverged, round_), memory, clips


def advance_divided(
    program: Program,
    mesh: Mesh,
    data: Packed,
    state: tuple[Array, Array, Memory | None, Clips | None],
    *told: Any,
) -> Any:
    """`advance` with the configurations dealt out to several devices, each of which has all data;
    told: the arguments after these.
    """
    mine: Any = SECOND
    memory = None if state[2] is None else Memory(mine, mine, EVERYWHERE)
    states = (mine, mine, memory, None if state[3] is None else mine)
    specs = [None if each is None else EVERYWHERE for each in told]
    specs[4] = FIRST  # of the rates

    def advance_here(data: Packed, state: Any, *told: Any) -> Any:
        compute: Any = advance
        return compute.__wrapped__(replace(program, divided=True), data, state, *told)

    spread = jax.shard_map(
        advance_here,
        mesh=mesh,
        in_specs=(EVERYWHERE, states, *specs),
        out_specs=states,
        check_vma=False,
    )
    return spread(data, state, *told)


def advance_round(
    program: Program,
    data: Packed,
    rates: Rates,
    private: Any,
    shared: Array,
    memory: Memory | None,
    clips: Clips | None,
    drawn: Array,
    slots: Array | None,
    rows: Array,
    shares: Array,
    added: tuple[Array, Array] | None,
) -> tuple[Array, Memory | None, Clips | None]:
    """One round of one seed: W moved by sum_j p_j (w_j - W) over the cohort, by configuration.

    private: the numbers of a private round, in which moves are clipped and noise is added.
    """
    kept = common = None
    if memory is not None:
        kept = jax.tree.map(lambda leaf: jnp.moveaxis(leaf[:, slots], 1, 0), memory.clients)
        common = memory.server
    clip = None if clips is None else clips.clip
    found = train_cohort(program, data, rates, shared, common, clip, drawn, rows, shares, kept)
    return finish_round(program, rates, private, shared, memory, clips, slots, shares, added, found)


# sum_j p_j (w_j - W), what clients send beside, and what they keep
CohortSum = tuple[Array, Any, Any]


def train_cohort(
    program: Program,
    data: Packed,
    rates: Rates,
    shared: Array,
    common: Any,
    clip: Array | None,
    drawn: Array,
    rows: Array,
    shares: Array,
    kept: Any,
) -> CohortSum:
    """The clients' part of a round of one seed, for its cohort or a part of it, by configuration.

    common: what the server keeps. clip: of private rounds. kept: by these clients, (clients,
    configurations, ...), as what they keep afterwards.
    """
    keeps = bound_stage(program, {}).keeps_client()
    counts = bound_stage(program, {}).owns("client_steps")

    def visit(member: Array, rows: Array, kept: Any) -> tuple[Point, Any, Any]:
        planned = read_batch(data.training, member, rows)

        def train(shared: Array, rates: Rates, kept: Any, common: Any) -> tuple[Point, Any, Any]:
            space = space_of(program, data, member, shared)
            if not keeps:
                begin = first_state(program, space)
                w = walk(program, space, planned, rates, begin, 0, len(rows))[0]
                return w, None, None if clip is None else space.distance(w)
            stage = bound_stage(program, rates)
            state = (as_models(kept, shared), as_models(common, shared))
            choose = chooser(program, data, member, shared)
            first, state = stage.begin(ModelSum.at(shared), state, choose)
            begin = (carry_out_matrix(first, shared), state)
            w, state = walk(program, space, planned, rates, begin, 0, len(rows))
            # those of batches that are not empty
            steps = (rows[:, 0] >= 0).any(-1).sum().astype(shared.dtype) if counts else len(rows)
            words = (ModelSum.at(w), ModelSum.at(shared), state, rates[program.rate], steps)
            later, sent = stage.finish(*words)
            return w, as_arrays(later, shared), None if sent is None else as_arrays(sent, shared)

        return vectorise(train, shared, rates, kept, common)

    def group(totals: tuple[Array, Any], members: Any) -> tuple[tuple[Array, Any], Any]:
        drawn, rows, shares, kept = members
        points, later, sent = vectorise(visit, drawn, rows, kept)
        if clip is not None:  # what is sent beside are the lengths of moves
            longer = sent > clip  # (clients, configurations)
            shortened = shares[:, None] * jnp.where(longer, clip / sent, 1)
            total = totals[0] + change(program, data, shared, points, drawn, shortened)
            return (total, totals[1] + (longer & (shares > 0)[:, None]).sum(0)), later
        total = totals[0] + change(program, data, shared, points, drawn, shares)
        if sent is None:
            return (total, totals[1]), later
        beside = jax.tree.map(
            lambda sum_, leaf: sum_ + jnp.tensordot(shares, leaf, 1), totals[1], sent
        )
        return (total, beside), later

    size = len(drawn) if program.together else 1
    grouped = jax.tree.map(
        lambda leaf: leaf.reshape(-1, size, *leaf.shape[1:]), (drawn, rows, shares, kept)
    )
    zero = jnp.zeros_like(shared)
    none = zero if clip is None else jnp.zeros_like(clip)
    if keeps:  # what clients send beside their models, if anything
        first = jax.tree.map(lambda leaf: leaf[0], grouped)
        work = partial(vectorise, visit)
        sent = jax.eval_shape(work, first[0], first[1], first[3])[2]
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), sent)
        none = none if sent is None else nothing
    (total, beside), later = lax.scan(group, (zero, none), grouped)
    return total, beside, jax.tree.map(lambda new: new.reshape(-1, *new.shape[2:]), later)


train_part = partial(jax.jit, static_argnames=("program",), compiler_options=OPTIONS)(train_cohort)


def finish_round(
    program: Program,
    rates: Rates,
    private: Any,
    shared: Array,
    memory: Memory | None,
    clips: Clips | None,
    slots: Array | None,
    shares: Array,
    added: tuple[Array, Array] | None,
    found: CohortSum,
) -> tuple[Array, Memory | None, Clips | None]:
    """The server's part of a round of one seed, given what its cohort found."""
    total, beside, later = found
    zero = jnp.zeros_like(shared)
    if clips is not None and added is not None:
        noise = (private.multiplier * clips.clip / private.cohort)[:, None, None] * added[0]
        members = (shares > 0).sum()
        adapted = private.adapt(clips.clip, members - beside, members, added[1], jnp.exp)
        clips = Clips(adapted, clips.sent + members, clips.longer + beside)
        total, beside = total + noise, zero
    common = None if memory is None else memory.server
    portion: Any = None if memory is None else memory.portion

    def update(
        shared: Array, total: Array, beside: Array, common: Any, rates: Rates
    ) -> tuple[Array, Any]:
        return bound_stage(program, rates).move_server(shared, total, common, beside, portion)

    moved, common = vectorise(update, shared, total, beside, common, rates)
    if memory is None:
        return moved, None, clips

    def put(leaf: Array, new: Array) -> Array:
        return leaf.at[:, slots].set(jnp.moveaxis(new, 0, 1))

    keeps = bound_stage(program, {}).keeps_client()
    clients = jax.tree.map(put, memory.clients, later) if keeps else memory.clients
    return moved, Memory(clients, common, memory.portion), clips


def change(
    program: Program, data: Packed, shared: Array, points: Point, drawn: Array, shares: Array
) -> Array:
    """sum_j p_j (w_j - W) over clients, (configurations, d, outputs); one product in Gram form.

    shares: p_j, (clients,), or (clients, configurations).
    """
    by = "j" if shares.ndim == 1 else "jk"
    if program.form == "head":
        return jnp.einsum(f"{by},jkdc->kdc", shares, points - shared)
    x = jax.vmap(partial(client_rows, program, data))(drawn)
    amounts = shares.reshape(len(shares), -1, 1, 1) * points.amounts
    scale = jnp.einsum(f"{by},jk->k", shares, points.scale - 1)
    return scale[:, None, None] * shared + jnp.einsum("jwd,jkwc->kdc", x, amounts)


@partial(jax.jit, static_argnames=("program",), compiler_options=OPTIONS)
def personalise(
    program: Program,
    data: Packed,
    shared: Array,
    members: Array,
    rows: Array,
    rates: Rates,
    stops: Array,
    scored: Rates | None = None,
    common: Any = None,
    places: Array | None = None,
) -> Array:
    """Hits and losses of the members' models after `stops` steps.

    common: (seeds, servers, ...), what a server keeps whose stage (`program.server`) says where
    clients begin; None: at the shared model. places: of the servers that are asked, whose rates are
    told and whose scores are found; None: all.

    Axes: shared (seeds, servers, d, outputs); members (members,), or (seeds, members) where splits
    differ; rows (seeds, members, steps, batches a step, batch); rates (servers, configurations);
    the result (seeds, members, servers, configurations, stops, [validation, test], [hits, loss]),
    with training as a third side in regression. scored: (corrections,) numbers of the program's
    correction; the result has then one more axis, the plain scores first.
    """
    mesh = device_mesh()
    if mesh is not None and not program.divided and members.shape[-1] % mesh.size == 0:
        told = (members, rows, rates, stops, scored, common, places)
        return personalise_divided(program, mesh, data, shared, *told)
    shared, common = take_servers(places, (shared, common))
    bounds = jnp.stack([jnp.concatenate([jnp.zeros(1, stops.dtype), stops[:-1]]), stops], axis=1)

    def of_seed(shared: Array, members: Array, rows: Array, common: Any) -> Array:
        def of_member(member_rows: tuple[Array, Array]) -> Array:
            return one_client(program, data, shared, *member_rows, rates, bounds, scored, common)

        return (
            jax.vmap(of_member)((members, rows))
            if program.together
            else lax.map(of_member, (members, rows))
        )

    if members.ndim == 1:
        return vectorise(
            lambda shared, rows, common: of_seed(shared, members, rows, common),
            shared,
            rows,
            common,
        )
    return vectorise(of_seed, shared, members, rows, common)


def take_servers(places: Array | None, trees: Any) -> Any:
    """Those of (seeds, servers, ...) at these places, in the program that needs them."""
    return trees if places is None else jax.tree.map(lambda leaf: leaf[:, places], trees)


def personalise_divided(
    program: Program, mesh: Mesh, data: Packed, shared: Array, members: Array, *told: Any
) -> Array:
    """`personalise` with the clients dealt out to several devices; told: the arguments after."""
    specs = [None if each is None else EVERYWHERE for each in told]
    specs[0] = SECOND  # of the rows

    def personalise_here(*given: Any) -> Array:
        compute: Any = personalise
        found: Array = compute.__wrapped__(replace(program, divided=True), *given)
        return found

    here = SECOND if members.ndim == 2 else FIRST
    spread: Callable[..., Array] = jax.shard_map(
        personalise_here,
        mesh=mesh,
        in_specs=(EVERYWHERE, EVERYWHERE, here, *specs),
        out_specs=SECOND,
        check_vma=False,
    )
    return spread(data, shared, members, *told)


def one_client(
    program: Program,
    data: Packed,
    shared: Array,
    member: Array,
    rows: Array,
    rates: Rates,
    bounds: Array,
    scored: Rates | None,
    common: Any,
) -> Array:
    """One client under every server's shared model and every configuration of the client stage."""
    planned = read_batch(data.training, member, rows)
    offsets = offsets_of(program, data, member, scored)

    def of_server(shared: Array, rates: Rates, common: Any) -> Array:
        if program.server is not None:
            state = ((), as_models(common, shared))
            choose = chooser(program, data, member, shared)
            first = program.server.begin(ModelSum.at(shared), state, choose)[0]
            mine = carry_out_matrix(first, shared)
            shared = jnp.where(index_within(data.trained, member) > 0, mine, shared)
        space = space_of(program, data, member, shared)
        examine = examiner(program, data, member, space, shared, offsets)

        def of_configuration(rates: Rates) -> Array:
            def segment(state: tuple[Point, Any], bound: Array) -> tuple[tuple[Point, Any], Array]:
                state = walk(program, space, planned, rates, state, bound[0], bound[1])
                return state, examine(personal_point(program, space, state))

            return lax.scan(segment, first_state(program, space), bounds)[1]

        return vectorise(of_configuration, rates)

    return vectorise(of_server, shared, rates, common)


@partial(jax.jit, static_argnames=("program",), compiler_options=OPTIONS)
def examine_kept(
    program: Program,
    data: Packed,
    shared: Array,
    kept: Any,
    members: Array,
    slots: Array,
    rates: Rates,
    scored: Rates | None = None,
    places: Array | None = None,
) -> Array:
    """Hits and losses of members' models, where clients keep these from round to round.

    Axes: kept (seeds, servers, slots, ...); members and slots (seeds, members); the others, and the
    result, as in `personalise`, with one configuration and one stop.
    """
    shared, kept = take_servers(places, (shared, kept))
    alone = jax.tree.map(lambda leaf: leaf[:, 0], rates)

    def of_seed(shared: Array, kept: Any, members: Array, slots: Array) -> Array:
        def of_member(member_slot: tuple[Array, Array]) -> Array:
            member, slot = member_slot
            offsets = offsets_of(program, data, member, scored)

            def of_server(shared: Array, kept: Any, rates: Rates) -> Array:
                mine = as_models(jax.tree.map(lambda leaf: index_within(leaf, slot), kept), shared)
                own = bound_stage(program, rates).personal_model(ModelSum.at(shared), mine)
                point = jnp.where(
                    index_within(data.trained, member) > 0, carry_out_matrix(own, shared), shared
                )
                space = space_of(program, data, member, shared)
                examine = examiner(program, data, member, space, shared, offsets)
                return examine(space.fix_shared_rows(point))[None, None]

            return vectorise(of_server, shared, kept, alone)

        return (
            jax.vmap(of_member)((members, slots))
            if program.together
            else lax.map(of_member, (members, slots))
        )

    return vectorise(of_seed, shared, kept, members, slots)


def personal_point(program: Program, space: Space, state: tuple[Point, Any]) -> Point:
    """The client's own model after its steps: a server stage that gives one says which."""
    point, carried = state
    if not isinstance(program.stage, ServerStage):
        return point
    return carry_out(space, program.stage.personal_model(ModelSum.at(point), carried), point)


def offsets_of(program: Program, data: Packed, member: Array, scored: Rates | None) -> Array | None:
    """What a client's tested outputs get added, (1 + corrections, outputs): nothing, then each."""
    if program.correction is None or scored is None:
        return None
    correction = program.correction
    assert data.shares is not None
    splits, outputs = data.shares.shape
    pooled = data.shares[member // (len(data.trained) // splits)]
    training = data.training
    first = index_within(training.first, member)
    mine = jnp.arange(program.width) < index_within(data.trained, member)
    labels = training.read(training.labels, first, program.width)
    mine = jnp.broadcast_to(mine.reshape(-1, *(1,) * (labels.ndim - 1)), labels.shape)
    if training.real is not None:
        mine &= training.read(training.real, first, program.width)
    held = mine.ravel().astype(pooled.dtype)
    counts = jnp.zeros(outputs, pooled.dtype).at[labels.ravel()].add(held)
    corrected = jax.vmap(lambda numbers: correction.at(**numbers).offset(counts, pooled))(
        dict(scored)
    )
    return jnp.concatenate([jnp.zeros((1, outputs), pooled.dtype), corrected])


def examiner(
    program: Program,
    data: Packed,
    member: Array,
    space: Space,
    shared: Array,
    offsets: Array | None = None,
) -> Callable[[Point], Array]:
    """Tests a point on a client's validation and test rows: ([validation, test], [hits, loss]).

    Values that are predicted for single samples have a third row, training, by which convergence is
    judged. offsets: added to the outputs, each for itself: one more axis.
    """
    tested = tester(program, data, member, space, shared, offsets)
    if not is_judged(program, data):
        return tested
    x = client_rows(program, data, member)

    def examine(point: Point) -> Array:
        outputs = jnp.matmul(x, point) if isinstance(space, Matrix) else span_outputs(space, point)
        trained = score_training(program, data, member, outputs)
        return jnp.concatenate([tested(point), trained[None]])

    return examine


def is_judged(program: Program, data: Packed) -> bool:
    """Whether the loss on training rows is measured as well."""
    return program.task == VALUES and data.training.positions == 1


def span_outputs(space: Any, point: Any) -> Array:
    """The outputs at all of a client's training rows."""
    outputs: Array = jnp.matmul(space.gram, point.amounts) + point.scale * space.first_outputs
    return outputs


def score_training(program: Program, data: Packed, member: Array, outputs: Array) -> Array:
    """Hits and losses of a client's training rows, summed."""
    labels = data.training.read(
        data.training.labels, index_within(data.training.first, member), program.width
    )
    scores = jnp.stack(score(program.task, outputs, labels), axis=-1)
    mine = jnp.arange(program.width) < index_within(data.trained, member)
    return jnp.where(mine[:, None], scores, 0).sum(0)


def tester(
    program: Program,
    data: Packed,
    member: Array,
    space: Space,
    shared: Array,
    offsets: Array | None,
) -> Callable[[Point], Array]:
    """The function that tests a point on rows that it was not trained on."""
    block = partial(data.tested.read, data.tested.features, count=program.block)
    first = index_within(data.tested.first, member)

    def count(start: Array, outputs: Array) -> Array:
        if offsets is None:
            return tally(program, data, member, start, outputs)

        def tally_with_offset(offset: Array) -> Array:
            return tally(program, data, member, start, outputs + offset)

        return jnp.moveaxis(lax.map(tally_with_offset, offsets), 0, -1)

    if isinstance(space, Matrix):
        blocks = jnp.arange(-(-program.tested // program.block), dtype=jnp.int32) * program.block

        def examine(point: Array) -> Array:
            def part(start: Array) -> Array:
                rows = flat_rows(block(first + start))
                outputs = mask_filling(jnp.matmul(rows, point), program.classes)
                return count(start, outputs)

            return part(blocks[0]) if len(blocks) == 1 else lax.map(part, blocks).sum(0)

        return examine
    x = block(first)
    products = jnp.matmul(x, client_rows(program, data, member).T)
    first_outputs = jnp.matmul(x, shared)

    def examine_span(point: Coordinates) -> Array:
        outputs = point.scale * first_outputs + jnp.matmul(products, point.amounts)
        return count(jnp.int32(0), outputs)

    return examine_span


def tally(program: Program, data: Packed, member: Array, start: Array, outputs: Array) -> Array:
    """Hits and losses of one block of tested rows, summed over validation and test."""
    block = partial(
        data.tested.read, first=index_within(data.tested.first, member) + start, count=program.block
    )
    hits, losses = score(program.task, outputs, flat_labels(data.tested, block(data.tested.labels)))
    at = start + jnp.arange(program.block)
    validation = index_within(data.validation, member)
    tests = (at >= validation) & (at < validation + index_within(data.test, member))
    sides = jnp.stack([at < validation, tests], axis=1)
    real = jnp.ones((program.block, data.tested.positions), bool)
    if data.tested.real is not None:
        real = block(data.tested.real)
    counts = (sides[:, None, :] & real[:, :, None]).reshape(-1, 2, 1)
    return jnp.where(counts, jnp.stack([hits, losses], axis=-1)[:, None, :], 0).sum(0)
