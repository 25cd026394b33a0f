"""The programs' common part: what is compiled of a stage, the form in which a client's model moves, and its local steps.

The same in plain NumPy, with comments for the newcomer, is in `twin.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedasym.algorithms.stages import ClientStage, ServerStage, Stage
from fedasym.training.heads import Batch, Head, Point, Space, Span, batch_of
from fedasym.training.packing import Packed
from fedasym.training.stages import begin_state, take_step

Rates = Mapping[str, Array]
OPTIONS = {"xla_gpu_enable_triton_gemm": False}  # as fast on these small products, and compiled in a fifth of the time


@dataclass(frozen=True)
class Program:
    """What is compiled into a program; everything else is data, so that a program serves any rounds, rates and seeds."""

    stage: Stage  # without its rates, which are data
    rate: str  # which of the rates is the size of its steps
    task: str
    form: str  # "gram" or "head"
    width: int  # training rows of the largest client that it serves
    together: bool  # clients side by side (accelerators) or one after another (a processor's cache)
    tested: int = 0  # validation and test rows of the largest client that it serves
    block: int = 0  # rows tested at a time
    classes: int = 0  # real outputs, where heads have more to fill up their shape
    personal: bool = False  # a client stage: what moves is a client's own model


def bound_stage(program: Program, rates: Rates) -> ServerStage:
    """A server stage with its rates."""
    assert isinstance(program.stage, ServerStage)
    return program.stage.at(**{name: rates[name] for name in program.stage.settings() if name in rates})


def space_of(program: Program, data: Packed, member: Array, shared: Array) -> Space:
    """The form in which a client's model moves."""
    if program.form == "head":
        return Head(data.training, shared, program.classes, data.personal, program.personal)
    x = client_rows(program, data, member)
    gram = jnp.matmul(x, x.T) if data.grams is None else data.grams[member, : program.width, : program.width]
    return Span(gram, jnp.matmul(x, shared))


def client_rows(program: Program, data: Packed, member: Array) -> Array:
    """A client's training rows, and its neighbour's up to the width."""
    return data.training.read(data.training.features, data.training.first[member], program.width)


def batches_of(data: Packed, member: Array, rows: Array) -> Batch:
    """All batches of a client's walk, (steps, batches a step, ...): read once, not in every step."""
    read: Batch = jax.vmap(jax.vmap(partial(batch_of, data.training, member)))(rows)
    return read


def walk(
    program: Program,
    space: Space,
    planned: Batch,
    rates: Rates,
    state: tuple[Point, Any],
    start: Array | int,
    stop: Array | int,
) -> tuple[Point, Any]:
    """Local steps `start` to `stop` of one client; the state is its model, and what the stage carries."""

    def step(k: Array, state: tuple[Point, Any]) -> tuple[Point, Any]:
        batches = [jax.tree.map(lambda leaf, i=i: leaf[k, i], planned) for i in range(program.stage.batches)]
        return take_step(program.stage, program.task, space, state, batches, rates, rates[program.rate])

    if isinstance(program.stage, ClientStage) and program.stage.step_count == 0:
        return state
    walked: tuple[Point, Any] = lax.fori_loop(start, stop, step, state)
    return walked


def beginning(program: Program, space: Space) -> tuple[Point, Any]:
    """The state before the first step."""
    return space.start(), begin_state(program.stage, space)
