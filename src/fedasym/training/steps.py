"""One local step of each algorithm (appendix "Algorithm implementations"), written once for both ways to hold a model.

A step takes a space, the client's point in it, the step's batches and the rates, and returns the new point. The same methods
in plain NumPy, with comments for the newcomer, are in `twin.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedasym.algorithms.stages import Stage
from fedasym.training.heads import Batch, Head, Point, Space, Span, batch_of, blend, lifted
from fedasym.training.losses import difference, residual, slope
from fedasym.training.packing import Packed
from fedasym.training.settings import Protocol
from fedasym.training.stages import begin_state, take_step

Rates = Mapping[str, Array]
Leaves = TypeVar("Leaves")  # a tree of arrays
OPTIONS = {"xla_gpu_enable_triton_gemm": False}  # as fast on these small products, and compiled in a fifth of the time
BATCHES = {"average": 1, "dropped": 2, "free": 3, "exact": 3, "moreau": 1, "descend": 1, "ridge": 1, "keep": 1}


@dataclass(frozen=True)
class Program:
    """What is compiled into a program; everything else is data, so that a program serves any rounds, rates and seeds."""

    kind: str | Stage  # a key of BATCHES, or a stage that brings its step
    task: str
    protocol: Protocol
    inner_steps: int
    form: str  # "gram" or "head"
    width: int  # training rows of the largest client that it serves
    together: bool  # clients side by side (accelerators) or one after another (a processor's cache)
    tested: int = 0  # validation and test rows of the largest client that it serves
    block: int = 0  # rows tested at a time
    classes: int = 0  # real outputs, where heads have more to fill up their shape
    personal: bool = False  # a client stage: what moves is a client's own model


def batches_a_step(kind: str | Stage) -> int:
    """How many batches a step of that kind reads."""
    return kind.batches if isinstance(kind, Stage) else BATCHES.get(kind, 1)


def pull(task: str, space: Space, point: Point, batch: Batch) -> Array:
    """The amounts r with gradient X_b' r: weighted residuals."""
    return residual(task, space.outputs(point, batch), batch.labels) * batch.weights


def average(task: str, space: Space, w: Point, batches: list[Batch], rates: Rates) -> Point:
    """FedAvg: w - eta g(w; D)."""
    (D,) = batches
    return space.move(w, D, -rates["server_step"] * pull(task, space, w, D))


def meta(hessian: str, task: str, space: Space, w: Point, batches: list[Batch], rates: Rates) -> Point:
    """MAML-FL: g at the point that one step of size alpha reaches, less alpha times the Hessian along it."""
    eta, alpha = rates["server_step"], rates["meta_step"]
    D, D1, *D2 = batches
    inner = space.outputs(w, D1) + space.echo(D, -alpha * pull(task, space, w, D), D1)  # at w - alpha g(w; D)
    g = residual(task, inner, D1.labels) * D1.weights
    first = space.move(w, D1, -eta * g)
    if hessian == "dropped":
        return first
    z, along = space.outputs(w, D2[0]), space.echo(D1, g, D2[0])
    curved = slope(task, z, along) if hessian == "exact" else difference(task, z, along, rates["difference"])
    return space.move(first, D2[0], eta * alpha * curved * D2[0].weights)


def moreau(program: Program, space: Space, points: tuple[Point, Point], batch: Batch, rates: Rates) -> tuple[Point, Point]:
    """pFedMe: theta nearly minimises the batch's loss + lambda/2 |theta - w|^2; w moves towards it."""
    live = (batch.weights.sum() > 0).astype(batch.weights.dtype)  # an empty batch is no step
    step, ridge, decay = live * rates["inner_step"], rates["ridge"], program.protocol.decay
    w, theta = points
    near = None if program.protocol.warm_start else space.around(w, batch, program.inner_steps)

    def descend(space: Space, w: Point, batch: Batch, _: int, theta: Point) -> Point:
        r = pull(program.task, space, theta, batch)
        return space.move(blend((1 - step * (ridge + decay), theta), (step * ridge, w)), batch, -step * r)

    if isinstance(space, Head) and space.own is not None:
        return partly(program, space, points, batch, rates, live)
    if near is None:
        first = theta if program.protocol.warm_start else w
        theta = lax.fori_loop(0, program.inner_steps, partial(descend, space, w, batch), first)
    else:  # from w, the inner problem never leaves the batch's own span
        walk = partial(descend, near, near.start(), batch._replace(rows=None))
        moved = lax.fori_loop(0, program.inner_steps, walk, near.start())
        theta = lifted(space, w, batch, moved)
    towards = live * rates["server_step"] * ridge
    return blend((1 - towards, w), (towards, theta)), theta


def partly(
    program: Program, space: Head, points: tuple[Array, Array], batch: Batch, rates: Rates, live: Array
) -> tuple[Array, Array]:
    """Moreau where only some rows may be a client's own: the others are w's in theta too, and follow the loss at theta."""
    step, ridge, decay = live * rates["inner_step"], rates["ridge"], program.protocol.decay
    w, last = points
    moves = space._replace(keep=True)

    def descend(_: int, theta: Array) -> Array:
        pulled = moves.move((1 - step * (ridge + decay)) * theta + step * ridge * w, batch, -step * at(theta))
        return space.held(pulled, w)

    def at(theta: Array) -> Array:
        return pull(program.task, space, theta, batch)

    theta = lax.fori_loop(0, program.inner_steps, descend, last if program.protocol.warm_start else w)
    eta = live * rates["server_step"]
    follows = w - eta * ridge * (w - theta)
    if not space.keep:
        moved = space._replace(keep=False).move(w, batch, -eta * at(theta))
        follows = space.held(follows, moved)
    return follows, space.held(theta, follows)


def descend(task: str, space: Space, theta: Point, batch: Batch, rates: Rates) -> Point:
    """Fine-tuning: theta - alpha g(theta; D)."""
    return space.move(theta, batch, -rates["local_step"] * pull(task, space, theta, batch))


def shrink(program: Program, space: Space, theta: Point, batch: Batch, rates: Rates) -> Point:
    """Ridge-tuning: the same with the gradient of the penalty, lambda (theta - theta_0)."""
    live = (batch.weights.sum() > 0).astype(batch.weights.dtype)
    towards = live * rates["local_step"] * program.protocol.penalty * rates["ridge"]
    moved = blend((1 - towards, theta), (towards, space.start()))
    return space.move(moved, batch, -rates["local_step"] * pull(program.task, space, theta, batch))


def space_of(program: Program, data: Packed, member: Array, shared: Array) -> Space:
    """The form in which a client's model moves."""
    if program.form == "head":
        own = None if program.kind == "keep" else data.personal
        return Head(data.training, shared, program.classes, own, program.personal)
    x = client_rows(program, data, member)
    gram = jnp.matmul(x, x.T) if data.grams is None else data.grams[member, : program.width, : program.width]
    return Span(gram, jnp.matmul(x, shared))


def client_rows(program: Program, data: Packed, member: Array) -> Array:
    """A client's training rows, and its neighbour's up to the width."""
    return data.training.read(data.training.features, data.training.first[member], program.width)


def side_by_side(function: Callable[..., Leaves], *trees: Any) -> Leaves:
    """`jax.vmap(function)(*trees)`; one alone needs no axis, and its program is smaller and sooner compiled."""
    if jax.tree.leaves(trees)[0].shape[0] > 1:
        return jax.vmap(function)(*trees)
    alone = function(*jax.tree.map(lambda leaf: leaf[0], trees))
    along: Leaves = jax.tree.map(lambda leaf: leaf[None], alone)
    return along


def batches_of(data: Packed, member: Array, rows: Array) -> Batch:
    """All batches of a client's walk, (steps, batches a step, ...): read once, not in every step."""
    read: Batch = jax.vmap(jax.vmap(partial(batch_of, data.training, member)))(rows)
    return read


def walk(
    program: Program,
    space: Space,
    planned: Batch,
    rates: Rates,
    state: tuple[Point, Point],
    start: Array | int,
    stop: Array | int,
) -> tuple[Point, Point]:
    """Local steps `start` to `stop` of one client; the state is its model and, for pFedMe, the inner one."""

    def step(k: Array, state: tuple[Point, Point]) -> tuple[Point, Point]:
        batches = [jax.tree.map(lambda leaf, i=i: leaf[k, i], planned) for i in range(batches_a_step(program.kind))]
        point, inner = state
        match program.kind:
            case "average":
                return average(program.task, space, point, batches, rates), inner
            case "dropped" | "free" | "exact" as hessian:
                return meta(hessian, program.task, space, point, batches, rates), inner
            case "moreau":
                return moreau(program, space, state, batches[0], rates)
            case "ridge":
                return shrink(program, space, point, batches[0], rates), inner
            case Stage() as stage:
                rate = rates["local_step" if program.personal else "server_step"]
                return take_step(stage, program.task, space, state, batches, rates, rate)
            case _:
                return descend(program.task, space, point, batches[0], rates), inner

    walked: tuple[Point, Point] = lax.fori_loop(start, stop, step, state)
    return walked


def beginning(program: Program, space: Space) -> tuple[Point, Point]:
    """The state before the first step; pFedMe has an inner model, and a stage what it keeps from step to step."""
    if isinstance(program.kind, Stage):
        return space.start(), begin_state(program.kind, space)
    return space.start(), space.start() if program.kind == "moreau" else ()
