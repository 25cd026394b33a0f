"""The client stage: every client makes its own model of the shared one and is tested; configurations side by side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedasym.training.heads import Coordinates, Head, Point, Space, flat_labels, flat_rows, without_filling
from fedasym.training.losses import VALUES, score
from fedasym.training.packing import Packed
from fedasym.training.steps import OPTIONS, Program, Rates, batches_of, beginning, client_rows, side_by_side, space_of, walk


@partial(jax.jit, static_argnames=("program",), compiler_options=OPTIONS)
def personalise(
    program: Program, data: Packed, shared: Array, members: Array, rows: Array, rates: Rates, stops: Array
) -> Array:
    """Hits and losses of the members' models after `stops` steps.

    Axes: shared (seeds, servers, d, outputs); members (members,), or (seeds, members) where splits differ; rows (seeds,
    members, steps, batches a step, batch); rates (servers, configurations); the result (seeds, members, servers,
    configurations, stops, [validation, test], [hits, loss]), with training as a third side in regression.
    """
    bounds = jnp.stack([jnp.concatenate([jnp.zeros(1, stops.dtype), stops[:-1]]), stops], axis=1)

    def of_seed(shared: Array, members: Array, rows: Array) -> Array:
        def of_member(member_rows: tuple[Array, Array]) -> Array:
            return one_client(program, data, shared, *member_rows, rates, bounds)

        return jax.vmap(of_member)((members, rows)) if program.together else lax.map(of_member, (members, rows))

    if members.ndim == 1:
        return side_by_side(lambda shared, rows: of_seed(shared, members, rows), shared, rows)
    return side_by_side(of_seed, shared, members, rows)


def one_client(program: Program, data: Packed, shared: Array, member: Array, rows: Array, rates: Rates, bounds: Array) -> Array:
    """One client under every server's shared model and every configuration of the client stage."""
    planned = batches_of(data, member, rows)

    def of_server(shared: Array, rates: Rates) -> Array:
        space = space_of(program, data, member, shared)
        examine = examiner(program, data, member, space, shared)

        def of_configuration(rates: Rates) -> Array:
            def segment(state: tuple[Point, Point], bound: Array) -> tuple[tuple[Point, Point], Array]:
                state = walk(program, space, planned, rates, state, bound[0], bound[1])
                inner = program.kind == "moreau" and program.protocol.test_inner
                return state, examine(state[1] if inner else state[0])

            return lax.scan(segment, beginning(program, space), bounds)[1]

        return side_by_side(of_configuration, rates)

    return side_by_side(of_server, shared, rates)


def examiner(program: Program, data: Packed, member: Array, space: Space, shared: Array) -> Callable[[Point], Array]:
    """The function that tests a point on a client's validation and test rows: ([validation, test], [hits, loss]).

    Values that are predicted for single samples have a third row, training, by which convergence is judged.
    """
    tested = tester(program, data, member, space, shared)
    if not is_judged(program, data):
        return tested
    x = client_rows(program, data, member)

    def examine(point: Point) -> Array:
        outputs = jnp.matmul(x, point) if isinstance(space, Head) else span_outputs(space, point)
        return jnp.concatenate([tested(point), fitted(program, data, member, outputs)[None]])

    return examine


def is_judged(program: Program, data: Packed) -> bool:
    """Whether the loss on training rows is measured as well."""
    return program.task == VALUES and data.training.positions == 1


def span_outputs(space: Any, point: Any) -> Array:
    """The outputs at all of a client's training rows."""
    outputs: Array = jnp.matmul(space.gram, point.amounts) + point.scale * space.first_outputs
    return outputs


def fitted(program: Program, data: Packed, member: Array, outputs: Array) -> Array:
    """Hits and losses of a client's training rows, summed."""
    labels = data.training.read(data.training.labels, data.training.first[member], program.width)
    scores = jnp.stack(score(program.task, outputs, labels), axis=-1)
    mine = jnp.arange(program.width) < data.trained[member]
    return jnp.where(mine[:, None], scores, 0).sum(0)


def tester(program: Program, data: Packed, member: Array, space: Space, shared: Array) -> Callable[[Point], Array]:
    """The function that tests a point on rows that it was not trained on."""
    block = partial(data.tested.read, data.tested.features, count=program.block)
    first = data.tested.first[member]
    if isinstance(space, Head):
        blocks = jnp.arange(-(-program.tested // program.block), dtype=jnp.int32) * program.block

        def examine(point: Array) -> Array:
            def part(start: Array) -> Array:
                rows = flat_rows(block(first + start))
                outputs = without_filling(jnp.matmul(rows, point), program.classes)
                return tally(program, data, member, start, outputs)

            return part(blocks[0]) if len(blocks) == 1 else lax.map(part, blocks).sum(0)

        return examine
    x = block(first)
    products = jnp.matmul(x, client_rows(program, data, member).T)
    first_outputs = jnp.matmul(x, shared)

    def examine_span(point: Coordinates) -> Array:
        outputs = point.scale * first_outputs + jnp.matmul(products, point.amounts)
        return tally(program, data, member, jnp.int32(0), outputs)

    return examine_span


def tally(program: Program, data: Packed, member: Array, start: Array, outputs: Array) -> Array:
    """Hits and losses of one block of a client's tested rows, summed over its validation and its test rows."""
    block = partial(data.tested.read, first=data.tested.first[member] + start, count=program.block)
    hits, losses = score(program.task, outputs, flat_labels(data.tested, block(data.tested.labels)))
    at, validation = start + jnp.arange(program.block), data.validation[member]
    sides = jnp.stack([at < validation, (at >= validation) & (at < validation + data.test[member])], axis=1)
    real = jnp.ones((program.block, data.tested.positions), bool) if data.tested.real is None else block(data.tested.real)
    counts = (sides[:, None, :] & real[:, :, None]).reshape(-1, 2, 1)
    return jnp.where(counts, jnp.stack([hits, losses], axis=-1)[:, None, :], 0).sum(0)
