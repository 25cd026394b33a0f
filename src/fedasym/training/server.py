"""The server stage: rounds of local work by a cohort, then the weighted average; seeds and configurations side by side."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedasym.training.heads import Point
from fedasym.training.packing import Packed
from fedasym.training.steps import OPTIONS, Program, Rates, batches_of, beginning, client_rows, side_by_side, space_of, walk


@partial(jax.jit, static_argnames=("program",), compiler_options=OPTIONS)
def advance(
    program: Program,
    data: Packed,
    shared: Array,
    diverged: Array,
    drawn: Array,
    rows: Array,
    shares: Array,
    rates: Rates,
    first: Array,
    count: Array,
) -> tuple[Array, Array]:
    """`count` rounds from round `first`: the shared heads, and the round after which each was first not finite (or -1).

    Axes: shared (seeds, configurations, d, outputs); drawn and shares (rounds, seeds, cohort); rows (rounds, seeds, cohort,
    steps, batches a step, batch); rates (configurations,). The number of rounds is data: one program serves any.
    """

    def one_round(i: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        shared, diverged = state
        moved = side_by_side(partial(together, program, data, rates), shared, drawn[i], rows[i], shares[i])
        broken = ~jnp.isfinite(moved).all(axis=(-1, -2))
        return moved, jnp.where((diverged < 0) & broken, first + i + 1, diverged)

    done: tuple[Array, Array] = lax.fori_loop(0, count, one_round, (shared, diverged))
    return done


def together(program: Program, data: Packed, rates: Rates, shared: Array, drawn: Array, rows: Array, shares: Array) -> Array:
    """One round of one seed: W + beta sum_j p_j (w_j - W) over the cohort, for every configuration."""

    def visit(member: Array, rows: Array) -> Point:
        planned = batches_of(data, member, rows)

        def train(shared: Array, rates: Rates) -> Point:
            space = space_of(program, data, member, shared)
            return walk(program, space, planned, rates, beginning(program, space), 0, len(rows))[0]

        return side_by_side(train, shared, rates)

    def group(total: Array, members: tuple[Array, Array, Array]) -> tuple[Array, None]:
        drawn, rows, shares = members
        return total + change(program, data, shared, side_by_side(visit, drawn, rows), drawn, shares), None

    size = len(drawn) if program.together else 1
    grouped = jax.tree.map(lambda leaf: leaf.reshape(-1, size, *leaf.shape[1:]), (drawn, rows, shares))
    total, _ = lax.scan(group, jnp.zeros_like(shared), grouped)
    return shared + (rates["mixing"][:, None, None] * total if program.kind == "moreau" else total)


def change(program: Program, data: Packed, shared: Array, points: Point, drawn: Array, shares: Array) -> Array:
    """sum_j p_j (w_j - W) over some clients j, (configurations, d, outputs); in the Gram form one product over all samples."""
    if program.form == "head":
        return jnp.einsum("j,jkdc->kdc", shares, points - shared)
    x = jax.vmap(partial(client_rows, program, data))(drawn)
    amounts = shares[:, None, None, None] * points.amounts
    scale = jnp.einsum("j,jk->k", shares, points.scale - 1)
    return scale[:, None, None] * shared + jnp.einsum("jwd,jkwc->kdc", x, amounts)
