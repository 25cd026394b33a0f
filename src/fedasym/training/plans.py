"""Who trains when on what: shared work, cohorts, batches of reshuffled passes, and their layout.

Everything is decided here, on the host and ahead of the arithmetic, so that the compiled program,
its plain twin and any batching of configurations see the very same batches.

In private rounds every drawn client's move is cut to a length of at most C, clients weigh alike,
and Gaussian noise of deviation z C is added to the sum of the moves, which is divided by the cohort
D that is expected (McMahan et al. 2018). One client then moves what is sent by at most C/D: this is
what the accountant in `core/privacy.py` counts. An adaptive clip follows a quantile of the lengths,
from one more noised sum (Andrew et al. 2021).

Noise comes from the run's seed, so that a simulated run can be repeated: what keeps a deployed run
private is noise that nobody can repeat (`deploy/flower`).
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from fedasym.algorithms import Algorithm, ClientStage, ScoreStage, ServerStage, paper
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import number
from fedasym.core.privacy import (
    CLIP_RATE,
    FIRST_CLIP,
    Privacy,
    Release,
    spend_together,
    split_noise,
)
from fedasym.core.runtime import physical_memory
from fedasym.data.splits import COHORT, NOISE, TRAINING, Integers, Words, mix_hash, random_orders
from fedasym.training.settings import Kind, Protocol, Settings, bind_stage, own_rate

if TYPE_CHECKING:
    from fedasym.training.evaluation import Draw, RunWork
    from fedasym.training.heads import Loader, Packed
    from fedasym.training.history import History

Rows = NDArray[np.int32]
HASHES = 2**21  # of clients that are drawn from at a time


def cohorts(seed: int, identities: Words, rounds: int, cohort: int, first: int = 0) -> Rows:
    """The clients of rounds `first` to `rounds` - 1, without replacement, by smallest hashes.

    >>> drawn = cohorts(0, np.arange(5, dtype=np.uint64), rounds=3, cohort=2)
    >>> drawn.shape, bool((drawn[:, 0] != drawn[:, 1]).all())
    ((3, 2), True)
    """
    last = min(cohort, len(identities)) - 1
    found = []
    for some in few_rounds(first, rounds, len(identities)):
        ranks = mix_hash(seed, COHORT, some[:, None], identities[None])
        drawn = np.argpartition(ranks, last, axis=1)[:, :cohort]
        # by hash: the same for any order of the clients
        order = np.argsort(np.take_along_axis(ranks, drawn, axis=1), axis=1)
        found.append(np.take_along_axis(drawn, order, axis=1).astype(np.int32))
    return np.concatenate(found) if found else np.empty((0, last + 1), np.int32)


def few_rounds(first: int, rounds: int, clients: int) -> Iterator[NDArray[np.intp]]:
    """Rounds `first` to `rounds` - 1, as many at a time as there is memory for all clients' hashes.

    >>> [some.tolist() for some in few_rounds(0, 5, clients=HASHES // 2)]
    [[0, 1], [2, 3], [4]]
    """
    size = max(HASHES // max(clients, 1), 1)
    for start in range(first, rounds, size):
        yield np.arange(start, min(start + size, rounds))


def draw_private_cohorts(
    private: PrivateRounds, seed: int, identities: Words, rounds: int, first: int = 0
) -> Rows:
    """The clients of each round, -1 where there are fewer: each by itself, or so many of them.

    >>> plan = PrivateRounds(True, 2, 1.0, 1.0, 0.0, 0.0, 0.0)
    >>> drawn = draw_private_cohorts(plan, 0, np.arange(8, dtype=np.uint64), rounds=400)
    >>> bool(abs((drawn >= 0).sum(1).mean() - 2) < 0.2)
    True
    """
    if not private.poisson:
        return cohorts(seed, identities, rounds, private.cohort, first)
    return draw_by_chance(private.cohort, seed, identities, rounds, first)


def draw_by_chance(size: int, seed: int, identities: Words, rounds: int, first: int) -> Rows:
    """Poisson cohorts: each client by itself, with probability size/clients; -1 fills up rows."""
    found: list[NDArray[np.intp]] = []
    for round_ in range(first, rounds):
        ranks = mix_hash(seed, COHORT, round_, identities)
        taken = ranks / 2.0**64 * len(identities) < size
        if size >= len(identities):  # the largest hashes are rounded up to 1
            taken[:] = True
        members = np.flatnonzero(taken)
        found.append(members[np.argsort(ranks[members], kind="stable")])
    width = max((len(members) for members in found), default=1)
    drawn = np.full((len(found), max(width, 1)), -1, np.int32)
    for row, members in zip(drawn, found, strict=True):
        row[: len(members)] = members
    return drawn


def room_for_cohorts(private: PrivateRounds, clients: int, largest: int) -> int:
    """Places of a private cohort: nearly always the same, so that one program serves all seeds."""
    if not private.poisson:
        return largest
    usual = -(-(private.cohort + 3 * private.cohort**0.5) // 4) * 4
    return min(max(int(usual), -(-largest // 8) * 8), max(clients, largest))


def turns(drawn: Rows, clients: int) -> Rows:
    """How often each drawn client had been drawn before; 0 where there is none (-1)."""
    before = np.zeros(clients, np.int32)
    counted = np.zeros_like(drawn)
    for round_, members in enumerate(drawn):
        real = members[members >= 0]
        counted[round_, members >= 0] = before[real]
        before[real] += 1
    return counted


def batches(streams: Words, sizes: Integers, first: Integers | int, count: int, batch: int) -> Rows:
    """Batches `first`, ... of each stream: (streams, count, batch) samples, -1 where there is none.

    A stream is an endless sequence of passes over a client's `sizes` samples, each pass shuffled
    anew and cut into batches, the last short one kept; a client without samples has empty batches.

    >>> batches(mix_hash(0, [5]), np.array([3]), first=0, count=2, batch=2).shape
    (1, 2, 2)
    """
    sizes = np.asarray(sizes)
    first = np.broadcast_to(first, streams.shape)
    per_pass = -(-sizes // batch)
    rows = np.full((len(streams), count, batch), -1, np.int32)
    for length in np.unique(per_pass[sizes > 0]).tolist():
        mine = np.flatnonzero((per_pass == length) & (sizes > 0))
        skipped, offset = np.divmod(first[mine], length)
        passes = -(-(int(offset.max()) + count) // length)
        number = skipped[:, None] + np.arange(passes)
        widest = int(sizes[mine].max())
        order = random_orders(mix_hash(streams[mine, None], number), sizes[mine], widest)
        flat = cut_passes(order, length, batch)
        if offset.any():
            wanted = offset[:, None] + np.arange(count)
            flat = np.take_along_axis(flat, wanted[:, :, None], axis=1)
        rows[mine] = flat[:, :count]
    return rows


def epochs(streams: Words, sizes: Integers, first: int, count: int, batch: int, width: int) -> Rows:
    """Passes `first`, ...: (streams, count * batches of `width` samples, batch); short ones wait.

    Every pass takes the same number of steps for all clients, so that "after two epochs" is one
    moment of the program; the steps that a smaller client does not need are empty batches, which
    change nothing.
    """
    passes = mix_hash(streams[:, None], first + np.arange(count))
    order = random_orders(passes, np.asarray(sizes), width)
    return cut_passes(order, -(-width // batch), batch)


def cut_passes(order: Rows, length: int, batch: int) -> Rows:
    """(streams, passes, samples) as (streams, passes * length, batch), last batches padded: -1."""
    filled = np.full((*order.shape[:2], length * batch), -1, np.int32)
    filled[..., : order.shape[2]] = order
    return filled.reshape(len(order), -1, batch)


class ServerWork(NamedTuple):
    """What is compiled of a server stage, and the sizes of its run."""

    stage: ServerStage  # without its rates
    rounds: int
    evaluated: tuple[int, ...]
    cohort: int
    local_steps: int
    batch: int
    private: PrivateRounds | None = None

    @property
    def alone(self) -> bool:
        """Whether nothing is shared."""
        return not self.stage.shares


class ClientWork(NamedTuple):
    """What is compiled of a client stage, and its epochs or steps; no stage: the server's work.

    correction: what is added to the scores of its models, without its numbers; they are beside it.
    """

    stage: ClientStage | None
    epochs: int | None = None
    steps: int = 0
    correction: ScoreStage | None = None
    numbers: tuple[tuple[str, float], ...] = ()

    @property
    def still(self) -> bool:
        """Whether the shared model is kept as it is."""
        return self.stage is not None and self.epochs is None and self.steps == 0


KEEP = ClientWork(paper.KEEP)  # for all stages that take no steps


Numbers = tuple[tuple[str, float], ...]  # named rates, hashable


Jobs = dict[Numbers, list[int]]  # a client stage's rates, and which jobs want them
Tree = dict[ServerWork, dict[Numbers, dict[ClientWork, Jobs]]]


def shared_work(
    jobs: Sequence[tuple[Algorithm, Settings]], protocol: Protocol, sizes: Integers
) -> Tree:
    """Jobs by server stage and rates, client stage and rates; batches fit the largest client.

    sizes: clients' training samples.
    """
    largest, able = int(sizes.max()), int((sizes > 0).sum())
    tree: Tree = {}
    for index, (algorithm, settings) in enumerate(jobs):
        bounded = replace(settings, batch=min(settings.batch, largest))
        server, server_rates = server_work(algorithm, bounded, protocol, able)
        client, client_rates = client_work(algorithm, settings, protocol)
        wanted = tree.setdefault(server, {}).setdefault(server_rates, {}).setdefault(client, {})
        wanted.setdefault(client_rates, []).append(index)
    return tree


def server_work(
    algorithm: Algorithm, settings: Settings, protocol: Protocol, clients: int
) -> tuple[ServerWork, Numbers]:
    """The server stage's program and rates; clients: those that may be drawn."""
    stage, own = split_stage(bind_stage(algorithm.server, settings, protocol))
    rates = {"server_step": settings.server_step, **own} if stage.shares else {}
    rates = own if stage.reads_sums else rates
    assert settings.cohort is not None
    evaluated = tuple(settings.evaluated_rounds)
    sizes = (settings.rounds, evaluated, settings.cohort, settings.local_steps, settings.batch)
    private = plan_private_rounds(settings, clients)
    return ServerWork(stage, *sizes, private), tuple(rates.items())


def client_work(
    algorithm: Algorithm, settings: Settings, protocol: Protocol
) -> tuple[ClientWork, Numbers]:
    """The client stage's program and rates, and the correction of its scores."""
    work, rates = own_work(algorithm, settings, protocol)
    if algorithm.correction is None:
        return work, rates
    stage, numbers = split_stage(bind_stage(algorithm.correction, settings, protocol))
    return work._replace(correction=stage, numbers=tuple(numbers.items())), rates


def own_work(
    algorithm: Algorithm, settings: Settings, protocol: Protocol
) -> tuple[ClientWork, Numbers]:
    """The same without its scores' correction; alone, a client trains an epoch per round."""
    if algorithm.personal_from_server:
        return ClientWork(None), ()
    bound = bind_stage(algorithm.personalise, settings, protocol)
    if bound.step_count == 0:
        return KEEP, ()
    stage, own = split_stage(bound)
    rates = tuple(({"local_step": own_rate(bound, settings)} | own).items())
    if bound.step_count is not None:
        return ClientWork(stage, None, bound.step_count), rates
    alone = settings.rounds + protocol.passes_ahead
    passes = alone if algorithm.shares_nothing else settings.personal_epochs
    return ClientWork(stage, passes), rates


def split_stage(stage: Kind) -> tuple[Kind, dict[str, float]]:
    """What is compiled of a stage, and its rates: fractions are data, so a program serves many."""
    rates = {
        name: float(getattr(stage, name))
        for name, each in stage.settings().items()
        if not each.whole and not each.choices and getattr(stage, name) is not None
    }
    return stage.at(**dict.fromkeys(rates, 0.0)), rates


def way_of(client: ClientWork, rates: Hashable, alone: bool) -> Hashable:
    """What client stages that walk one way share: they differ only in the number of passes, and in
    the correction of their scores.
    """
    plain = client._replace(correction=None, numbers=())
    return (plain if alone or client.epochs is None else client.stage, rates)


# compiled programs for one client stage, at most; more for sequences, whose steps cost more
GROUPS, MANY = 3, 6
# what all groups together save must be worth it: fewer are taken where they come as near as this,
# or where they save so few rows that compiling their programs takes longer
WORTH, FEW = 0.85, 1000
CACHE = 2e6  # bytes that stay close to a processor's core, roughly
COPIES = 6  # arrays of a model's size that a step holds at once, roughly
STEP = 3  # arrays of the size of a batch's outputs


class Machine(NamedTuple):
    """What decides the layout."""

    # many clients side by side: accelerators; a processor's cache prefers one after another
    together: bool
    memory: float  # bytes that a program may use
    # bytes that runs side by side may use between them: memory, or what a processor keeps in its
    # cache
    close: float


def default_device() -> Machine:
    """The device that JAX computes on by default."""
    import jax  # the twin and federations plan without it

    # what `jnp` makes takes a program
    (device,) = jax.device_put(np.float32(0)).devices()
    if device.platform == "cpu":
        return Machine(False, physical_memory() / 4, CACHE)
    known = device.memory_stats() or {}
    free = known.get("bytes_limit", 8e9) - known.get("bytes_in_use", 0)
    return Machine(True, free / 2, free / 2)


def cheaper_form(width: int, dimension: int, steps: int, batch: int) -> str:
    """The form with fewer multiplications for `steps` batch gradients at this width, per output.

    Gram: once in and once out of the span (2 w d), and B w a step. Head: outputs and gradient, 2 B
    d a step.
    """
    gram = width * (2 * dimension + steps * batch)
    return "gram" if gram < 2 * steps * batch * dimension else "head"


def round_width(size: int) -> int:
    """A width that vector units like."""
    return max(8, -(-int(size) // 8) * 8)


def groups(sizes: Integers, many: bool = False) -> list[NDArray[np.intp]]:
    """Clients in at most `GROUPS` (or `MANY`) groups of like size, so that little is padded."""
    widths = np.maximum(-(-np.asarray(sizes, np.int64) // 8) * 8, round_width(0))
    levels, counts = np.unique(widths, return_counts=True)
    below = np.concatenate([[0], np.cumsum(counts)])
    # by the number of levels in some groups: what they cost, and where each ends
    held: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
    plans = []
    for _ in range(min(MANY if many else GROUPS, len(levels))):
        held = {
            stop: min(
                (cost + (below[stop] - below[start]) * levels[stop - 1], (*ends, stop))
                for start, (cost, ends) in before
            )
            for stop in range(1, len(levels) + 1)
            if (before := [(start, plan) for start, plan in held.items() if start < stop])
        }
        plans.append(held[len(levels)])
    least = plans[-1][0]
    ends = next(ends for cost, ends in plans if cost * WORTH <= least or cost <= least + FEW)
    edges = [0, *(levels[stop - 1] for stop in ends)]
    return [np.flatnonzero((widths > low) & (widths <= high)) for low, high in pairwise(edges)]


def count_fitting(memory: float, each: float, most: int) -> int:
    """How many of `most` things to take at a time: as many as fit, in even parts.

    Parts are filled up to one size: of 17 things 14 may fit, and two parts of 9 do less in vain
    than two of 14.

    >>> count_fitting(14, 1, 17), count_fitting(100, 1, 17), count_fitting(0.5, 1, 17)
    (9, 17, 1)
    """
    fits = int(min(max(memory // max(each, 1), 1), most))
    return -(-most // -(-most // fits))


ROUNDS = 25  # rounds handed to a program at a time, unless their clients are too many
# samples, and members, rows and shares by round and seed
Plan = tuple["Packed", Rows, Rows, NDArray[np.floating]]


class Schedule:
    """Cohorts and batches of a server stage, seed by seed."""

    def __init__(
        self, work: RunWork, server: ServerWork, loader: Loader, seeds: Sequence[int], together: int
    ) -> None:
        """together: draws side by side."""
        self.work, self.server, self.loader, self.sizes = work, server, loader, loader.sizes
        # only clients with training samples are drawn
        self.able = np.flatnonzero(self.sizes.training)
        self.steps = server.local_steps * server.stage.batches
        self.drawn: dict[int, tuple[Rows, Rows]] = {}
        self.live: dict[int, NDArray[np.bool_]] = {}  # where a private cohort has a client
        self.cohort = server.cohort
        if server.private is not None:
            self.draw_privately(server.private, list(dict.fromkeys(seeds)))
        # rounds handed to a program at a time
        self.span = loader.count_rounds(ROUNDS, self.cohort * together)

    def members(self, seed: int) -> tuple[Rows, Rows]:
        """(rounds, cohort) drawn clients and their turns."""
        if seed not in self.drawn:
            identities = self.work.federation.identities[self.able]
            chosen = cohorts(seed, identities, self.server.rounds, self.cohort)
            self.drawn[seed] = self.able[chosen].astype(np.int32), turns(chosen, len(self.able))
        return self.drawn[seed]

    def draw_privately(self, private: PrivateRounds, seeds: Sequence[int]) -> None:
        """The cohorts of all seeds, filled up to the size of the largest."""
        identities = self.work.federation.identities[self.able]
        found = {
            seed: draw_private_cohorts(private, seed, identities, self.server.rounds)
            for seed in seeds
        }
        self.cohort = room_for_cohorts(
            private, len(self.able), max((each.shape[1] for each in found.values()), default=1)
        )
        for seed, chosen in found.items():
            filling = [(0, 0), (0, self.cohort - chosen.shape[1])]
            wide = np.pad(chosen, filling, constant_values=-1)
            self.live[seed] = wide >= 0
            self.drawn[seed] = self.able[wide].astype(np.int32), turns(wide, len(self.able))

    def of_split(self, members: Integers, split: int) -> Rows:
        """The same clients among those of all splits."""
        return (members + split * len(self.sizes.training)).astype(np.int32)

    def streams(self, seed: int, members: Integers, rounds: Integers | int) -> Words:
        """The streams of training batches: a new one each round, or one for ever."""
        number = 0 if self.work.protocol.continued_passes else np.asarray(rounds) + 1
        return mix_hash(seed, TRAINING, self.work.federation.identities[members], number)

    def rows(
        self, seed: int, members: Integers, rounds: Integers | int, turn: Integers | int
    ) -> Rows:
        """(clients, steps, batches a step, batch) of clients that train in these rounds."""
        turn = rounds if self.server.stage.everyone_works else turn
        first = np.asarray(turn) * self.steps if self.work.protocol.continued_passes else 0
        streams = np.broadcast_to(self.streams(seed, members, rounds), members.shape)
        sizes = self.sizes.training[members]
        planned = batches(streams, sizes, first, self.steps, self.server.batch)
        stage = self.server.stage
        if stage.owns("client_steps"):  # steps that a client does not take are empty batches
            told = (self.server.batch, self.server.local_steps)
            taken = np.array([stage.client_steps(int(each), *told) for each in sizes])
            planned[np.arange(self.steps) >= taken[:, None] * stage.batches] = -1
        return planned.reshape(len(members), self.server.local_steps, -1, self.server.batch)

    def pieces(self, draws: Sequence[Draw], reached: int = 0) -> Iterator[tuple[int, int, Plan]]:
        """All rounds after some in pieces that end at tests; the next is planned while the caller
        computes.
        """
        ends = sorted({0, *self.server.evaluated})
        spans = [
            (at, min(at + self.span, end))
            for start, end in pairwise(ends)
            for at in range(start, end, self.span)
            if at >= reached
        ]
        with ThreadPoolExecutor(1) as planner:
            waiting = [planner.submit(self.piece, draws, *span) for span in spans[:1]]
            for place, (start, stop) in enumerate(spans):
                plan = waiting.pop().result()
                ahead = spans[place + 1 : place + 2]
                waiting += [planner.submit(self.piece, draws, *span) for span in ahead]
                yield start, stop, plan

    def piece(self, draws: Sequence[Draw], start: int, stop: int) -> Plan:
        """Samples, members among these, rows and shares of rounds `start` to `stop`, filled up to
        `span` rounds.
        """
        drawn, rows, shares = [], [], []
        for seed, split in draws:
            members, turn = (array[start:stop] for array in self.members(seed))
            rounds = np.repeat(np.arange(start, stop), self.cohort)
            planned = self.rows(seed, members.ravel(), rounds, turn.ravel())
            drawn.append(self.of_split(members, split))
            rows.append(planned.reshape(*members.shape, *planned.shape[1:]))
            shares.append(self.shares(seed, members, start, stop))
        fill = [(0, self.span - (stop - start))]
        data, places = self.loader.cohorts(np.stack(drawn, axis=1))
        stacked = (places, *(np.stack(arrays, axis=1) for arrays in (rows, shares)))
        members, rows_, shares_ = (
            np.pad(array, fill + [(0, 0)] * (array.ndim - 1)) for array in stacked
        )
        return data, members, rows_, shares_.astype(self.work.precision)

    def shares(self, seed: int, members: Rows, start: int, stop: int) -> NDArray[np.floating]:
        """What drawn clients count in the average: by samples; alike where it is private."""
        if self.server.private is not None:
            return self.live[seed][start:stop] / self.server.private.cohort
        weights = self.sizes.training[members].astype(float)
        return np.asarray(weights / weights.sum(1, keepdims=True))

    def noise(
        self, draws: Sequence[Draw], start: int, stop: int
    ) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Standard normal noise of private rounds `start` to `stop`, filled up to `span`: of the
        sums of moves, (rounds, seeds, d, outputs), and of the counts of short ones.
        """
        work = self.work
        real = (work.federation.dimension + work.protocol.intercept, work.federation.outputs)
        sums = np.zeros((self.span, len(draws), work.features, work.outputs), work.precision)
        counts = np.zeros((self.span, len(draws)), work.precision)
        for at, draw in enumerate(draws):
            for i, r in enumerate(range(start, stop)):
                sums[i, at, : real[0], : real[1]], counts[i, at] = draw_noise(draw.seed, r, real)
        return sums, counts

    def room(self, draws: Sequence[Draw]) -> tuple[int, float]:
        """How many clients are ever drawn, the most over seeds, plus one; the part per round."""
        most = max(len(np.unique(self.members(draw.seed)[0])) for draw in draws)
        return most + 1, self.server.cohort / len(self.able)

    def slots(self, draws: Sequence[Draw], start: int, stop: int) -> Rows:
        """(rounds, seeds, cohort): where drawn clients are among all that are ever drawn."""
        places = []
        for draw in draws:
            members = self.members(draw.seed)[0]
            places.append(np.searchsorted(np.unique(members), members[start:stop]))
        slots = np.stack(places, axis=1).astype(np.int32)
        return np.pad(slots, [(0, self.span - (stop - start)), (0, 0), (0, 0)])

    def slots_of(self, draws: Sequence[Draw], members: Integers) -> Rows:
        """(seeds, members): where clients are among all ever drawn; others share the last place."""
        last = self.room(draws)[0] - 1
        places = []
        for draw in draws:
            drawn = np.unique(self.members(draw.seed)[0])
            mine = np.searchsorted(drawn, members)
            places.append(np.where(np.isin(members, drawn), mine, last))
        return np.stack(places).astype(np.int32)


NOT_COUNTED = "Tests of clients, and steps that were chosen for the data, are not counted."
Move = NDArray[np.floating[Any]]


class PrivateRounds(NamedTuple):
    """The numbers of one run's private averages: a part of what is planned, and hashable."""

    poisson: bool  # each client is drawn by itself; else cohorts have a fixed size
    cohort: int  # D, that is expected
    clip: float  # C, before the first round
    multiplier: float  # of the sum of moves
    rate: float  # of an adaptive clip; 0: it is fixed
    quantile: float
    count_noise: float  # deviation of what is added to the count of short updates

    def adapt(self, clip: Any, short: Any, sent: Any, noise: Any, exp: Any = np.exp) -> Any:
        """The clip after a round in which `short` of `sent` updates were no longer than it.

        Every client counts as 1/2 or -1/2, so that one changes the sum by half as much as a count.
        """
        part = (short - sent / 2 + self.count_noise * noise) / self.cohort + 0.5
        return clip * exp(-self.rate * (part - self.quantile))


def plan_private_rounds(settings: Settings, clients: int) -> PrivateRounds | None:
    """The private averages that a run's settings ask for; None where they ask for none.

    >>> from fedasym.training.settings import Settings
    >>> budget = Privacy(noise_multiplier=1, clip=0.5)
    >>> plan_private_rounds(Settings(cohort=20, privacy=budget), 3000).multiplier
    1.0
    """
    privacy = settings.privacy
    if privacy is None:
        return None
    assert settings.cohort is not None
    poisson = privacy.sampling == "poisson"
    z = privacy.find_multiplier(settings.rounds, settings.cohort, clients)
    if privacy.quantile is None:
        assert privacy.clip is not None
        sizes = (poisson, settings.cohort, privacy.clip)
        return PrivateRounds(*sizes, z, 0.0, 0.0, 0.0)
    sum_noise, count_noise = split_noise(z, settings.cohort)
    sizes = (poisson, settings.cohort, privacy.clip or FIRST_CLIP)
    return PrivateRounds(*sizes, float(sum_noise), CLIP_RATE, privacy.quantile, float(count_noise))


def check_private(algorithm: Algorithm, privacy: Privacy) -> None:
    """Refuse clips that are left open, and algorithms whose clients send more than one model."""
    if privacy.clip is None and privacy.quantile is None:
        raise InvalidInput(
            "privacy has no clip: give the length to which updates are clipped (fa.rounds finds the"
            " best for a population), or quantile=0.5 for one that adapts"
        )
    more = algorithm.server.keeps_client() or algorithm.server.reads_sums
    if more or algorithm.correction is not None:  # which reads the classes of all clients
        raise InvalidInput(
            f"{algorithm.name}: its clients send more than their models, and privacy is for"
            " averages of models alone: take another algorithm, or leave privacy out"
        )


def draw_noise(seed: int, round_: int, shape: tuple[int, ...]) -> tuple[Move, float]:
    """Standard normal noise for a round's sum of moves, and one number for its count."""
    key = int(mix_hash(seed, NOISE, round_))
    rng = np.random.Generator(np.random.Philox(key=key))
    count = float(rng.standard_normal())
    return rng.standard_normal(shape), count


def draw_secret_noise(shape: tuple[int, ...]) -> Move:
    """Standard normal noise of the operating system's random bytes: nobody can draw it again."""
    count = int(np.prod(shape))
    bits = np.frombuffer(os.urandom(8 * count), np.uint64) >> np.uint64(12)
    return np.asarray(ndtri((bits + 0.5) / 2.0**52)).reshape(shape)


def clip_move(move: Move, clip: float) -> tuple[Move, bool]:
    """A move cut to length `clip`, and whether it was no longer than that.

    >>> clip_move(np.array([[3.0], [4.0]]), 1.0)[0].ravel().tolist()
    [0.6000000000000001, 0.8]
    """
    length = float(np.sqrt((move**2).sum()))
    return (move * (clip / length), False) if length > clip else (move, True)


@dataclass(frozen=True)
class PrivacySpent:
    """What a run's rounds have spent of privacy, and with what noise.

    epsilon, delta: what the shared model says of any one client at most. clip: after the last
    round. clipped: the part of all updates that were longer than the clip, as the simulation saw
    it; no server would know it.
    """

    epsilon: float
    delta: float
    noise_multiplier: float
    clip: float
    sampling: str
    clipped: float
    clients: int

    def __str__(self) -> str:
        how = "Poisson sampling" if self.sampling == "poisson" else "cohorts of a fixed size"
        return (
            f"Privacy: epsilon {number(self.epsilon)} at delta {self.delta:g} spent, by noise of"
            f" multiplier {number(self.noise_multiplier)} and {how} among {self.clients} clients;"
            f" updates clipped at {number(self.clip)}, {self.clipped:.0%} of them were longer."
        )


def spent_privacy(
    settings: Settings, clients: int, rounds: int, clip: float, clipped: float
) -> PrivacySpent | None:
    """What so many rounds of a run have spent; None where it is not private."""
    if settings.privacy is None or settings.cohort is None:
        return None
    settled = settings.privacy.settle(settings.rounds, settings.cohort, clients)
    assert settled.noise_multiplier is not None
    return PrivacySpent(
        settled.spend(rounds, settings.cohort, clients),
        settled.delta,
        settled.noise_multiplier,
        clip if settled.quantile is not None or settled.clip is None else settled.clip,
        settled.sampling,
        clipped,
        clients,
    )


def describe_spending(runs: Sequence[History]) -> list[str]:
    """What private runs have spent: each of them, and all together, as choosing among them does."""
    private = {
        (run.seed, run.split, None if run.shared is None else run.shared.tobytes()): run
        for run in runs
        if run.privacy is not None
    }  # runs with the same shared model have trained it once
    spent = [run.privacy for run in private.values() if run.privacy is not None]
    if not spent:
        return []
    low, high = min(each.epsilon for each in spent), max(each.epsilon for each in spent)
    each = number(low) if low == high else f"{number(low)} to {number(high)}"
    told = f"Privacy: a run spends epsilon {each} at delta {spent[0].delta:g}"
    if len(spent) == 1:
        return [f"{told}. {NOT_COUNTED}"]
    releases = [
        Release(
            about.noise_multiplier,
            about.sampling,
            int(run.rounds[-1]),
            int(run.settings.cohort or 1),
            about.clients,
        )
        for run, about in zip(private.values(), spent, strict=True)
    ]
    total = spend_together(releases, max(about.delta for about in spent))
    return [
        f"{told}, and all {len(spent)} together {number(total)}: so much is spent where the best"
        f" of them is chosen. {NOT_COUNTED}"
    ]
