"""A federation in shards on a Ray cluster: actors read runs of its shards, train the clients of a
round that live there, sum their updates on the way, and test their clients block by block.

The driver plans rounds as ever and keeps all state: the shared model, what clients keep from round
to round, what was measured. An actor keeps nothing that cannot be read or computed again, so that
one that is lost is replaced, and what it had been asked is asked once more. Updates are summed
along a binary tree over the shards, whose order no number of actors changes: the same seed gives
the same bits on one actor or on seven.
"""

from __future__ import annotations

import operator
import os
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, reduce
from itertools import count
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from numpy.typing import NDArray

from fedasym.core import __version__
from fedasym.core.errors import UnreadableFile
from fedasym.core.runtime import Notice, Progress, is_url
from fedasym.data.federation import Federation
from fedasym.data.shards import (
    BLOCK_BYTES,
    ShardedFederation,
    read_client_arrays,
    split_members,
    take_blocks,
)
from fedasym.deploy import Ray
from fedasym.deploy.ray import Capacity, Jobs, RayCrew, check_version, join_cluster
from fedasym.experiments.execution import Worker
from fedasym.experiments.folder import LOST, RESUMED
from fedasym.experiments.pieces import Finished
from fedasym.experiments.plan import Piece
from fedasym.training.evaluation import Question, RunOutcome, RunWork, ScoredPart, Tester
from fedasym.training.heads import DiskLoader, Packed, Room, Sizes, numbers_as, put_on_device
from fedasym.training.plans import Rows, Schedule, ServerWork, default_device
from fedasym.training.programs import CohortSum, join_round, train_part
from fedasym.training.runner import PlannedRounds, State
from fedasym.training.settings import Protocol as Rules
from fedasym.training.steps import Program
from fedasym.training.storage import States

Node = tuple[int, int]  # of a binary tree over shards: its level, and its place there
Sum = tuple[Any, Any]  # of moves, and of what is sent beside them
BLOCKS = 28  # of those that an actor reads, what it holds at a time: benchmarks/shards_on_ray.py
DELIVERED = 2**26  # bytes of samples that are sent to the driver at a time
INDEX = 400  # bytes that an actor holds of each client of the federation, whose index it reads


def join_sums(one: Sum, other: Sum) -> Sum:
    """Two sums in one."""
    total: Sum = jax.tree.map(lambda mine, theirs: mine + theirs, one, other)
    return total


def fold_shards(
    nodes: Mapping[Node, Any],
    mine: Sequence[int],
    shards: int,
    join: Callable[[Any, Any], Any] = join_sums,
) -> dict[Node, Any]:
    """Sum neighbours in a binary tree over all shards, as far as it lies in some of them, in order:
    a sum of these in this order, whoever has which shards.

    >>> ones = {(0, shard): (1.0, ()) for shard in range(5)}
    >>> mine = fold_shards(ones, range(3), 5)
    >>> {node: total for node, (total, _) in mine.items() if node[0]}
    {(1, 0): 2.0}
    >>> fold_shards(mine, range(5), 5)
    {(3, 0): (5.0, ())}
    """
    found, level = dict(nodes), 0
    while 2**level < shards:
        for place in sorted({at // 2 for height, at in found if height == level}):
            low = place * 2 ** (level + 1)
            high = min(low + 2 ** (level + 1), shards)
            if bisect_left(mine, high) - bisect_left(mine, low) == high - low:
                children = [(level, 2 * place), (level, 2 * place + 1)]
                pair = [found.pop(child) for child in children if child in found]
                found[level + 1, place] = pair[0] if len(pair) == 1 else join(*pair)
        level += 1
    return found


class StageSetting(NamedTuple):
    """What all that is asked about a server stage has in common."""

    key: str
    server: ServerWork  # without privacy: its cohorts are drawn
    protocol: Rules
    asked: str  # precision, as it was asked for
    precision: str  # of models
    stored: str  # of features
    form: str | None
    alone: bool  # whether nothing is shared
    shares: NDArray[Any] | None  # of the classes among all training samples
    reserved: Room  # for the clients of some rounds


class CohortPart(NamedTuple):
    """The clients of a round that live in a run of shards, and those of the rounds about it."""

    shards: Sequence[int]  # in order
    token: int  # of the rounds that are planned at a time
    members: NDArray[np.intp]  # all their clients in these shards
    places: NDArray[np.intp]  # of the round's clients among them, for each its ...
    seeds: NDArray[np.intp]
    rows: Rows
    shares: NDArray[np.floating]
    kept: Any  # what they keep, (clients, configurations, ...)


class Opened(NamedTuple):
    """A setting, ready to work."""

    setting: StageSetting
    loader: DiskLoader
    tester: Tester
    steps: list[int]  # done since they were last asked for


class ShardKeeper:
    """Reads shards and works on their clients: on Ray an actor."""

    def __init__(self, folder: str, digest: str, version: str) -> None:
        self.told = folder, digest, version
        self.opened: Opened | None = None
        self.reader = ThreadPoolExecutor(1)
        self.ahead: dict[int, Future[tuple[NDArray[np.intp], Federation]]] = {}
        self.packed: tuple[int, NDArray[np.intp], Packed] | None = None

    @cached_property
    def federation(self) -> ShardedFederation:
        """The federation, as it is seen from here."""
        folder, digest, version = self.told
        check_version(version)
        if not is_url(folder) and not os.path.exists(folder):
            raise UnreadableFile(
                f"{folder} is not there on a node of the cluster: all nodes must see the federation"
                " under this path"
            )
        found = ShardedFederation(folder)
        if found.digest != digest:
            raise UnreadableFile(
                f"{folder} is another federation on a node of the cluster than where this command"
                " runs: all nodes must see the same one under this path"
            )
        return found

    def fetch(self, handle: list[Any]) -> Any:
        """What was shared."""
        import ray

        return ray.get(handle[0])

    def greet(self) -> str:
        """The node that it is on, as soon as it is there."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def open(self, key: str, handle: list[Any]) -> Opened:
        """A setting, made ready once."""
        if self.opened is None or self.opened.setting.key != key:
            setting: StageSetting = self.fetch(handle)
            self.ahead.clear()
            self.packed = None
            steps: list[int] = []
            loader = DiskLoader(self.federation, setting.protocol, setting.stored, apart=True)
            work = RunWork(
                self.federation,
                setting.protocol,
                setting.precision,
                setting.stored,
                default_device(),
                setting.form,
                (),
                lambda done, _: steps.append(done),
                setting.asked,
            )
            schedule = Schedule(work, setting.server, loader, (), 1)
            loader.reserved = setting.reserved
            loader.personal = None if setting.alone else loader.personal
            loader.shares = None if setting.shares is None else put_on_device(setting.shares)
            self.opened = Opened(setting, loader, Tester(work, schedule), steps)
        return self.opened

    def read(self, token: int, members: NDArray[np.intp]) -> None:
        """Begin to read the clients of rounds that come next."""
        self.ahead = {at: read for at, read in self.ahead.items() if at + 1 >= token}
        self.ahead[token] = self.reader.submit(self.take, members)

    def take(self, members: NDArray[np.intp]) -> tuple[NDArray[np.intp], Federation]:
        """These clients, in memory."""
        return members, self.federation.take(members)

    def clients(self, loader: DiskLoader, part: CohortPart) -> Packed:
        """The clients of some rounds, read ahead where that was asked for."""
        token, members = part.token, part.members
        held = self.packed
        if held is None or held[0] != token or not np.array_equal(held[1], members):
            read = self.ahead.pop(token, None)
            found = None if read is None else read.result()
            if found is None or not np.array_equal(found[0], members):
                found = self.take(members)
            held = self.packed = token, members, loader.pack_taken(found[1], loader.reserved)
        return held[2]

    def train(
        self,
        key: str,
        handle: list[Any],
        program: Program,
        rates: dict[str, Any],
        state: Any,
        part: CohortPart,
    ) -> tuple[list[dict[Node, Sum]], Any]:
        """A round of these clients: sums of what they send, by seed and as far up the tree as these
        shards go alone; and what they keep.
        """
        opened = self.open(key, handle)
        shared, common, clip = state
        owners = np.searchsorted(
            self.federation.shard_ends, part.members[part.places], "right"
        ).tolist()
        sums: list[dict[Node, Sum]] = [{} for _ in shared]
        later = []
        with numbers_as(opened.setting.asked):
            data = self.clients(opened.loader, part)
            waiting = []
            for unit, (place, seed) in enumerate(
                zip(part.places.tolist(), part.seeds.tolist(), strict=True)
            ):
                of_seed, mine = (
                    jax.tree.map(lambda leaf, at=at: leaf[at], tree)
                    for tree, at in (((shared, common, clip), seed), (part.kept, [unit]))
                )
                told = (np.array([place], np.int32), part.rows[[unit]], part.shares[[unit]], mine)
                waiting.append(train_part(program, data, rates, *of_seed, *told))
            for shard, seed, found in zip(owners, part.seeds.tolist(), waiting, strict=True):
                *sent, kept = jax.tree.map(np.asarray, found)
                mine, at = sums[seed], (0, shard)
                mine[at] = join_sums(mine[at], tuple(sent)) if at in mine else tuple(sent)
                later.append(kept)
        folded = [fold_shards(each, part.shards, len(self.federation.shards)) for each in sums]
        return folded, jax.tree.map(lambda *leaves: np.concatenate(leaves), *later)

    def score(
        self, key: str, handle: list[Any], asked: list[Any], shard: int
    ) -> tuple[list[list[ScoredPart]], int]:
        """The answers of a shard's clients to some questions, and the steps that they took."""
        opened = self.open(key, handle)
        opened.tester.schedule.drawn, questions = self.fetch(asked)
        answers: list[list[ScoredPart]] = [[] for _ in questions]
        waiting: list[list[ScoredPart]] = [[] for _ in questions]
        opened.steps.clear()
        last = int(self.federation.shard_ends[shard])
        with numbers_as(opened.setting.asked):
            first = last - self.federation.shards[shard].clients
            for block in opened.loader.blocks(first, last):
                before = waiting
                waiting = [
                    getattr(opened.tester, method)(*told, block=block) for method, told in questions
                ]
                take_down(before, answers)
            take_down(waiting, answers)
        return answers, sum(opened.steps)

    def map(self, asked: list[Any], shard: int) -> list[Any]:
        """What a function says of each of a shard's blocks, or of some clients in them."""
        return [*self.look(asked, shard)]

    def sum(self, asked: list[Any], shard: int) -> Any:
        """The sum of that; None of a shard without any of these clients."""
        found = self.look(asked, shard)
        return reduce(operator.add, found, next(found, None))

    def look(self, asked: list[Any], shard: int) -> Iterator[Any]:
        """What it says of one block after the other."""
        function, told, places = self.fetch(asked)
        last = int(self.federation.shard_ends[shard])
        first = last - self.federation.shards[shard].clients
        if places is None:
            places = np.arange(first, last)
        here = places[slice(*np.searchsorted(places, [first, last]))]
        return (function(block, *told) for block in take_blocks(self.federation, here, apart=True))

    def deliver(self, members: NDArray[np.intp]) -> dict[str, Any]:
        """The samples of some clients."""
        return read_client_arrays(self.federation, members)


def take_down(waiting: list[list[ScoredPart]], answers: list[list[ScoredPart]]) -> None:
    """Wait for answers, and keep of them what is real."""
    for parts, kept in zip(waiting, answers, strict=True):
        for members, some, scores in parts:
            real = np.asarray(scores)[:, : len(members), :, : some.stop - some.start]
            kept.append((members, some, real))


class ShardCrew(Protocol):
    """Who keeps the shards of a federation: some, who may be replaced at any time."""

    runs: Sequence[Sequence[int]]  # shards in order, for each of them
    say: Callable[[str], None]  # hears who was lost

    def settle(self) -> None:
        """As many as there is room for."""

    def share(self, value: Any) -> list[Any]:
        """A handle for all of them."""

    def start(self, method: str, jobs: Mapping[int, tuple[Any, ...]]) -> None:
        """Have some do something, without an answer."""

    def gather(self, method: str, jobs: Jobs, again: str) -> dict[int, Any]:
        """The answers of some; jobs: what each is told, given the runs as they are then; again:
        what is said to happen where one is lost.
        """

    def map(self, method: str, told: tuple[Any, ...]) -> Iterator[tuple[int, Any]]:
        """The answers for all shards, as they come."""


class ShardKeepers:
    """A federation in shards in the hands of a crew."""

    def __init__(
        self, federation: ShardedFederation, crew: ShardCrew, progress: Progress | None = None
    ) -> None:
        self.crew, self.shard_ends, self.progress = crew, federation.shard_ends, progress
        if progress is not None:
            crew.say = lambda text: progress(0.0, Notice(text))
        self.federation = federation.with_keepers(self)
        self.states: States | None = None
        self.tokens, self.keys = count(), count()

    def map_blocks(
        self, function: Callable[..., Any], told: tuple[Any, ...], places: Any
    ) -> list[Any]:
        """What a function says of each block, in order; of some clients where these are named."""
        found = dict(self.ask("map", (function, told, places)))
        return [each for shard in sorted(found) for each in found[shard]]

    def sum_blocks(self, function: Callable[..., Any], told: tuple[Any, ...], places: Any) -> Any:
        """The sum of that, whoever keeps what, along the tree, as it comes."""
        nodes: dict[Node, Any] = {}
        heard: list[int] = []
        for shard, found in self.ask("sum", (function, told, places)):
            if found is not None:
                nodes[0, shard] = found
            insort(heard, shard)
            nodes = fold_shards(nodes, heard, len(self.shard_ends), operator.add)
        return nodes.popitem()[1]

    def ask(self, method: str, asked: tuple[Any, ...]) -> Iterator[tuple[int, Any]]:
        """The answers for all shards, as they come, told as progress."""
        answers, shards = self.crew.map(method, (self.crew.share(asked),)), len(self.shard_ends)
        for number, answer in enumerate(answers, 1):
            if self.progress is not None:
                self.progress((number - 1) / shards, f"looked at {number} of {shards} shards")
            yield answer

    def read_clients(
        self, federation: ShardedFederation, places: NDArray[np.intp]
    ) -> dict[str, Any]:
        """The samples of some clients, in the order of their places, from whoever keeps them: so
        many at a time, of all shards, as may be on the way.
        """
        members = np.unique(places)
        size = federation.bytes / federation.sizes.sum() * federation.sizes[members].sum()
        times = max(int(-(-size // DELIVERED)), 1)
        found: list[dict[str, Any]] = []
        order: list[NDArray[np.intp]] = []
        for first in range(min(times, len(members))):
            split: dict[int, NDArray[np.intp]] = {}

            def jobs(
                runs: Sequence[Sequence[int]], first: int = first, split: Any = split
            ) -> dict[int, tuple[Any, ...]]:
                split.clear()
                split.update(split_members(members[first::times], runs, self.shard_ends))
                return {run: (mine,) for run, mine in split.items()}

            answers = self.crew.gather("deliver", jobs, "its clients are read again")
            order += [split[run] for run in answers]
            found += answers.values()
        listed = np.concatenate(order)
        where = np.argsort(listed)[np.searchsorted(members, places)]
        ends, counts = np.cumsum(federation.sizes[listed]), federation.sizes[places]
        rows = np.arange(counts.sum()) + np.repeat(ends[where] - np.cumsum(counts), counts)
        return {
            name: None if each is None else np.concatenate([part[name] for part in found])[rows]
            for name, each in found[0].items()
        }

    def open_backend(self, work: RunWork, server: ServerWork, loader: DiskLoader) -> ShardBackend:
        """Where the cohorts of a server stage are trained."""
        return ShardBackend(self, work, server, loader)


class PlanningLoader:
    """For the driver, which plans and reads nothing: clients by their places."""

    def __init__(self, loader: DiskLoader, keepers: ShardKeepers) -> None:
        self.loader, self.keepers = loader, keepers
        self.sizes: Sizes = loader.sizes
        self.tested_together = loader.tested_together
        self.members: dict[int, NDArray[np.intp]] = {}  # of rounds that are planned at a time

    def count_rounds(self, usual: int, drawn: int) -> int:
        """As many as an actor may hold."""
        return self.loader.count_rounds(usual, drawn)

    def cohorts(self, drawn: Rows) -> tuple[Any, Rows]:
        """A token for the keepers, who are told to begin to read."""
        token = next(self.keepers.tokens)
        members = np.unique(drawn).astype(np.intp)
        self.members = {at: held for at, held in self.members.items() if at + 3 > token}
        self.members[token] = members
        mine = split_members(members, self.keepers.crew.runs, self.keepers.shard_ends)
        self.keepers.crew.start("read", {at: (token, each) for at, each in mine.items()})
        return token, drawn

    def blocks(self) -> Iterator[Any]:
        """None: they are asked where they are."""
        return iter(())


class ShardBackend:
    """Rounds and tests in the hands of a crew, and states that outlive the driver."""

    def __init__(
        self, keepers: ShardKeepers, work: RunWork, server: ServerWork, loader: DiskLoader
    ) -> None:
        self.keepers, self.work, self.server = keepers, work, server
        self.disk, self.loader = loader, PlanningLoader(loader, keepers)
        self.handle: tuple[str, list[Any]] | None = None
        self.keeps_states = keepers.states is not None
        self.name = ""

    def describe(self) -> tuple[str, list[Any]]:
        """The setting, shared with the crew once."""
        if self.handle is None:
            work, loader = self.work, self.disk
            shares = None if loader.shares is None else np.asarray(loader.shares)
            server, key = self.server._replace(private=None), str(next(self.keepers.keys))
            told = (work.protocol, work.asked, work.precision, work.stored, work.form)
            setting = StageSetting(key, server, *told, self.server.alone, shares, loader.reserved)
            self.handle = key, self.keepers.crew.share(setting)
        return self.handle

    def advance(self, program: Program, state: State, rounds: PlannedRounds) -> State:
        """Round by round: trained where the clients live, joined here."""
        r = rounds
        for at in range(r.stop - r.start):
            found = self.train(program, state, rounds, at)
            added = None if r.noise is None else (r.noise.sums[at], r.noise.counts[at])
            slots = None if r.slots is None else r.slots[at]
            private = None if r.noise is None else r.noise.numbers
            told = (r.start + at + 1, slots, r.shares[at], found, added, private)
            state = join_round(program, state, r.rates, *told)
        return state

    def train(self, program: Program, state: State, rounds: PlannedRounds, at: int) -> CohortSum:
        """What the cohort of a round found, summed over its shards; seeds first."""
        shared, _, memory, clips = state
        drawn, rows, shares = (each[at] for each in (rounds.drawn, rounds.rows, rounds.shares))
        slots = None if rounds.slots is None else rounds.slots[at]
        told = (shared, memory and memory.server, clips and clips.clip)
        common, own = jax.tree.map(np.asarray, (told, memory and memory.clients))
        members = self.loader.members[rounds.data]  # type: ignore[index]  # a token
        seeds, places = np.nonzero(shares)  # a private cohort may have free places
        order: dict[int, NDArray[np.intp]] = {}

        def jobs(runs: Sequence[Sequence[int]]) -> dict[int, tuple[Any, ...]]:
            order.clear()
            found = {}
            for run, mine in split_members(members, runs, self.keepers.shard_ends).items():
                here = np.flatnonzero(np.isin(drawn[seeds, places], mine))
                if not len(here):
                    continue
                order[run] = here
                s, c = seeds[here], places[here]
                at = np.searchsorted(mine, drawn[s, c])
                kept = None if slots is None else take_kept(own, s, slots[s, c])
                planned = (at, s, rows[s, c], shares[s, c], kept)
                part = CohortPart(runs[run], rounds.data, mine, *planned)  # type: ignore[arg-type]
                found[run] = (*self.describe(), program, rounds.rates, common, part)
            return found

        answers = self.keepers.crew.gather("train", jobs, "the round is computed again")
        whole = len(self.keepers.shard_ends)
        nothing = jax.tree.map(
            np.zeros_like, (common[0], common[0] if clips is None else common[2])
        )
        sums = []
        for seed in range(len(common[0])):
            nodes = {
                node: each for found, _ in answers.values() for node, each in found[seed].items()
            }
            folded = [*fold_shards(nodes, range(whole), whole).values()]
            sums.append(
                folded[0] if folded else jax.tree.map(lambda leaf, at=seed: leaf[at], nothing)
            )
        total, beside = jax.tree.map(lambda *leaves: np.stack(leaves), *sums)
        units = np.concatenate([order[run] for run in answers]) if answers else seeds
        later = [kept for _, kept in answers.values()]

        def scatter_units(*leaves: NDArray[Any]) -> NDArray[Any]:
            joined = np.concatenate(leaves)
            whole = np.zeros((*shares.shape, *joined.shape[1:]), joined.dtype)
            whole[seeds[units], places[units]] = joined
            return whole

        return total, beside, jax.tree.map(scatter_units, *later) if later else None

    def ask(self, tester: Tester, questions: Sequence[Question]) -> None:
        """All clients, shard by shard, where they live."""
        told = [(each.method, on_host(each.told)) for each in questions]
        asked = self.keepers.crew.share((tester.schedule.drawn, told))
        answered = self.keepers.crew.map("score", (*self.describe(), asked))
        for number, (_, (answers, steps)) in enumerate(answered, 1):
            for question, parts in zip(questions, answers, strict=True):
                question.take_down(parts)
            self.work.report(steps, f"tested {number} of {len(self.keepers.shard_ends)} shards")

    def resume(self, state: State, outcomes: Sequence[RunOutcome]) -> tuple[int, State]:
        """From the state that an earlier driver kept, if it did."""
        if self.keepers.states is None:
            return 0, state
        return self.keepers.states.resume(state, outcomes)

    def keep(self, round_: int, state: State, outcomes: Sequence[RunOutcome]) -> None:
        """Keep a state, once in a while and after every test."""
        assert self.keepers.states is not None
        self.keepers.states.keep(round_, state, outcomes)


def take_kept(own: Any, seeds: NDArray[np.intp], slots: NDArray[np.intp]) -> Any:
    """What some clients keep, (clients, configurations, ...)."""
    return jax.tree.map(lambda leaf: leaf[seeds, :, slots], own)


def on_host(told: Any) -> Any:
    """The same, with arrays that can travel."""
    return jax.tree.map(
        lambda leaf: np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf, told
    )


@contextmanager
def open_shards(
    settings: Ray, federation: ShardedFederation, progress: Progress | None = None
) -> Iterator[ShardKeepers]:
    """The shards of a federation in the hands of actors on a cluster; progress: hears who was lost,
    and how far a look at all shards is.
    """
    needed = BLOCKS * BLOCK_BYTES + INDEX * len(federation)
    with join_cluster(settings, 0):
        told = (federation.files.address, federation.digest, __version__)
        samples = [shard.samples for shard in federation.shards]
        names = [] if federation.files.remote else [shard.path.name for shard in federation.shards]
        capacity = Capacity(settings, settings.memory_for(needed))
        crew = RayCrew(capacity, ShardKeeper, told, samples, names)
        try:
            yield ShardKeepers(federation, crew, progress)
        finally:
            crew.close()


class ShardWorker(Worker):
    """A driver whose pieces are trained one after the other, each where the shards are."""

    def __init__(self, keepers: ShardKeepers, *told: Any) -> None:
        super().__init__(*told)
        self.keepers = keepers

    def compute(self, key: str, piece: Piece) -> Finished:
        """Train from the state that was kept last, if any, and keep what came of it."""

        def tell(event: str) -> Callable[[str], None]:
            return lambda text: self.say(event, key, f"piece {key[:12]}: {text} ({piece.title})")

        self.keepers.states = States(self.folder, key, tell(RESUMED))
        self.keepers.crew.say = tell(LOST)
        self.keepers.crew.settle()  # nodes may have joined
        found = super().compute(key, piece)
        self.folder.drop_states(key)
        return found
