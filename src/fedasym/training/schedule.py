"""Who trains on what in a server stage, seed by seed: the plans of `plans.py` for one federation and protocol."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from fedasym.data.federation.shuffles import START, TRAINING, Words, mix
from fedasym.training.packing import Sizes
from fedasym.training.plans import Rows, batches, cohorts, turns
from fedasym.training.sharing import Server
from fedasym.training.work import Draw, Work

ROUNDS = 25  # rounds handed to a program at a time
Plan = tuple[Rows, Rows, NDArray[np.floating]]  # members, rows and shares by round and seed


def start_heads(work: Work, draws: Sequence[Draw], copies: int) -> Array:
    """(seeds, copies, d, outputs) first shared heads: zero, or uniform in +-1/sqrt(d) as PyTorch's linear layers begin."""
    shape = (work.federation.dimension + work.protocol.intercept, work.federation.outputs)
    heads = np.zeros((len(draws), work.features, work.outputs), work.precision)
    if work.protocol.random_start:
        for place, draw in enumerate(draws):
            uniform = mix(draw.seed, START, np.arange(math.prod(shape))) / 2.0**64
            heads[place, : shape[0], : shape[1]] = ((2 * uniform - 1) / np.sqrt(work.federation.dimension)).reshape(shape)
    return jnp.asarray(np.broadcast_to(heads[:, None], (len(draws), copies, *heads.shape[1:])))


class Schedule:
    """Cohorts and batches of a server stage, seed by seed."""

    def __init__(self, work: Work, server: Server, sizes: Sizes) -> None:
        self.work, self.server, self.sizes = work, server, sizes
        self.able = np.flatnonzero(sizes.training)  # only clients with training samples are drawn
        self.cohort = server.cohort
        self.steps = server.local_steps * server.stage.batches
        self.drawn: dict[int, tuple[Rows, Rows]] = {}

    def members(self, seed: int) -> tuple[Rows, Rows]:
        """(rounds, cohort) drawn clients and their turns."""
        if seed not in self.drawn:
            identities = self.work.federation.identities[self.able]
            chosen = cohorts(seed, identities, self.server.rounds, self.cohort)
            self.drawn[seed] = self.able[chosen].astype(np.int32), turns(chosen, len(self.able))
        return self.drawn[seed]

    def of_split(self, members: NDArray[np.integer], split: int) -> Rows:
        """The same clients among those of all splits."""
        return (members + split * len(self.sizes.training)).astype(np.int32)

    def streams(self, seed: int, members: NDArray[np.integer], rounds: NDArray[np.integer] | int) -> Words:
        """The streams of training batches: a new one each round, or one for ever."""
        number = 0 if self.work.protocol.continued_passes else np.asarray(rounds) + 1
        return mix(seed, TRAINING, self.work.federation.identities[members], number)

    def rows(
        self, seed: int, members: NDArray[np.integer], rounds: NDArray[np.integer] | int, turn: NDArray[np.integer] | int
    ) -> Rows:
        """(clients, steps, batches a step, batch) of clients that train in these rounds."""
        turn = rounds if self.server.stage.everyone_works else turn
        first = np.asarray(turn) * self.steps if self.work.protocol.continued_passes else 0
        streams = np.broadcast_to(self.streams(seed, members, rounds), members.shape)
        planned = batches(streams, self.sizes.training[members], first, self.steps, self.server.batch)
        return planned.reshape(len(members), self.server.local_steps, -1, self.server.batch)

    def pieces(self, draws: Sequence[Draw]) -> Iterator[tuple[int, int, Plan]]:
        """All rounds in pieces that end where clients are tested; the next is planned while the caller computes."""
        ends = sorted({0, *self.server.evaluated})
        spans = [(at, min(at + ROUNDS, end)) for start, end in pairwise(ends) for at in range(start, end, ROUNDS)]
        with ThreadPoolExecutor(1) as planner:
            waiting = [planner.submit(self.piece, draws, *span) for span in spans[:1]]
            for place, (start, stop) in enumerate(spans):
                plan = waiting.pop().result()
                waiting += [planner.submit(self.piece, draws, *span) for span in spans[place + 1 : place + 2]]
                yield start, stop, plan

    def piece(self, draws: Sequence[Draw], start: int, stop: int) -> Plan:
        """Members, rows and shares of rounds `start` to `stop`, filled up to `ROUNDS` rounds."""
        drawn, rows, shares = [], [], []
        for seed, split in draws:
            members, turn = (array[start:stop] for array in self.members(seed))
            rounds = np.repeat(np.arange(start, stop), self.cohort)
            planned = self.rows(seed, members.ravel(), rounds, turn.ravel())
            drawn.append(self.of_split(members, split))
            rows.append(planned.reshape(*members.shape, *planned.shape[1:]))
            weights = self.sizes.training[members].astype(float)
            shares.append(weights / weights.sum(1, keepdims=True))
        fill = [(0, ROUNDS - (stop - start))]
        stacked = (np.stack(arrays, axis=1) for arrays in (drawn, rows, shares))
        members, rows_, shares_ = (np.pad(array, fill + [(0, 0)] * (array.ndim - 1)) for array in stacked)
        return members, rows_, shares_.astype(self.work.precision)
