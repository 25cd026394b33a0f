"""Who trains when on what: shared work, cohorts, batches of reshuffled passes, and their layout.

Everything is decided here, on the host and ahead of the arithmetic, so that the compiled program,
its plain twin and any batching of configurations see the very same batches.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedasym.algorithms import Algorithm, ClientStage, ScoreStage, ServerStage, registry
from fedasym.core.runtime import physical_memory
from fedasym.data.splits import COHORT, TRAINING, Integers, Words, mix_hash, random_orders
from fedasym.training.privacy import PrivateRounds, draw_noise, plan_private_rounds
from fedasym.training.settings import Kind, Protocol, Settings, bind_stage, own_rate

if TYPE_CHECKING:
    from fedasym.training.heads import Loader, Packed
    from fedasym.training.runner import Draw, RunWork

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


KEEP = ClientWork(registry.KEEP)  # for all stages that take no steps


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
    evaluated = tuple(settings.evaluated)
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
    import jax.numpy as jnp  # the twin and federations plan without it

    (device,) = jnp.zeros(()).devices()
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
