"""A federation in shards on a Ray cluster: actors read runs of its shards, train the clients of a
round that live there, sum their updates on the way, and test their clients block by block.

The driver plans rounds as ever and keeps all state: the shared model, what clients keep from round
to round, what was measured. An actor keeps nothing that cannot be read or computed again, so that
one that is lost is replaced, and what it had been asked is asked once more. Updates are summed
along a binary tree over the shards, whose order no number of actors changes: the same seed gives
the same bits on one actor or on seven.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import count, pairwise
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from numpy.typing import NDArray

from fedasym.core import __version__
from fedasym.core.errors import InvalidInput, UnreadableFile
from fedasym.core.runtime import Progress
from fedasym.data.federation import Federation
from fedasym.data.shards import BLOCK_BYTES, ShardedFederation
from fedasym.deploy import Ray
from fedasym.deploy.ray import LOOK, NODE_DIED, Capacity, join_cluster, task_error
from fedasym.experiments.execution import Worker
from fedasym.experiments.fields import Record
from fedasym.experiments.folder import LOST, RESUMED, Finished, RunFolder
from fedasym.experiments.plan import Piece
from fedasym.training.heads import DiskLoader, Packed, Room, Sizes, numbers_as, put_on_device
from fedasym.training.plans import Rows, Schedule, ServerWork, default_device
from fedasym.training.programs import CohortSum, join_round, train_part
from fedasym.training.runner import Question, Rounds, RunOutcome, RunWork, ScoredPart, State, Tester
from fedasym.training.settings import Protocol as Rules
from fedasym.training.steps import Program

Node = tuple[int, int]  # of a binary tree over shards: its level, and its place there
Sum = tuple[Any, Any]  # of moves, and of what is sent beside them
BLOCKS = 12  # of those that an actor reads, what it holds at a time: benchmarks/shards_on_ray.py
INDEX = 200  # bytes that an actor holds of each client of the federation, whose index it reads
AHEAD = 2  # shards that an actor is asked to test or to sum: one at work and one waiting
EVERY = 1.0  # seconds between two states that are kept


def fold_shards(nodes: Mapping[Node, Sum], first: int, last: int, shards: int) -> dict[Node, Sum]:
    """Sum neighbours in a binary tree over all shards, as far as it lies in shards `first` to
    `last` - 1: a sum of these in this order, whoever has which shards.

    >>> ones = {(0, shard): (1.0, ()) for shard in range(5)}
    >>> mine = fold_shards(ones, 0, 3, 5)
    >>> {node: total for node, (total, _) in mine.items() if node[0]}
    {(1, 0): 2.0}
    >>> fold_shards(mine, 0, 5, 5)
    {(3, 0): (5.0, ())}
    """
    found, level = dict(nodes), 0
    while 2**level < shards:
        for place in sorted({at // 2 for height, at in found if height == level}):
            size = 2 ** (level + 1)
            if first <= place * size and min((place + 1) * size, shards) <= last:
                children = [(level, 2 * place), (level, 2 * place + 1)]
                pair = [found.pop(child) for child in children if child in found]
                found[level + 1, place] = pair[0] if len(pair) == 1 else add_sums(*pair)
        level += 1
    return found


def add_sums(one: Sum, other: Sum) -> Sum:
    """Two sums in one."""
    total: Sum = jax.tree.map(lambda mine, theirs: mine + theirs, one, other)
    return total


def share_out(sizes: Sequence[int], runs: int) -> list[range]:
    """Runs of shards with about as many samples each.

    >>> share_out([1, 1, 1, 3], 2), share_out([5, 1], 2), share_out([1], 3)
    ([range(0, 3), range(3, 4)], [range(0, 1), range(1, 2)], [range(0, 1)])
    """
    runs = min(runs, len(sizes))
    ends = np.cumsum(sizes)
    cuts = [0]
    for run in range(1, runs):
        nearest = int(np.searchsorted(ends, ends[-1] * run / runs, "left")) + 1
        cuts.append(min(max(nearest, cuts[-1] + 1), len(sizes) - (runs - run)))
    return [range(*pair) for pair in pairwise([*cuts, len(sizes)])]


class Setting(NamedTuple):
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

    shards: range
    token: int  # of the rounds that are planned at a time
    members: NDArray[np.intp]  # all their clients in these shards
    places: NDArray[np.intp]  # of the round's clients among them, for each its ...
    seeds: NDArray[np.intp]
    rows: Rows
    shares: NDArray[np.floating]
    kept: Any  # what they keep, (clients, configurations, ...)


class Opened(NamedTuple):
    """A setting, ready to work."""

    setting: Setting
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
        if __version__ != version:
            told = f"a node of the cluster has fedasym {__version__}, and the driver {version}"
            raise InvalidInput(f"{told}: install the same version on all nodes")
        found = ShardedFederation(folder)
        if found.digest != digest:
            raise UnreadableFile(
                f"{folder} has another federation on a node of the cluster than where this command"
                " runs: all nodes must see the same folder under this path"
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
            setting: Setting = self.fetch(handle)
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
                mine[at] = add_sums(mine[at], tuple(sent)) if at in mine else tuple(sent)
                later.append(kept)
        run = part.shards
        folded = [
            fold_shards(each, run.start, run.stop, len(self.federation.shards)) for each in sums
        ]
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

    def map(self, function: Callable[..., Any], told: tuple[Any, ...], shard: int) -> list[Any]:
        """What a function says of each of a shard's blocks."""
        ends = self.federation.block_ends(apart=True)
        last = int(self.federation.shard_ends[shard])
        first = last - self.federation.shards[shard].clients
        return [
            function(self.federation.take(np.arange(*span)), *told)
            for span in pairwise(ends)
            if first <= span[0] < last
        ]


def take_down(waiting: list[list[ScoredPart]], answers: list[list[ScoredPart]]) -> None:
    """Wait for answers, and keep of them what is real."""
    for parts, kept in zip(waiting, answers, strict=True):
        for members, some, scores in parts:
            real = np.asarray(scores)[:, : len(members), :, : some.stop - some.start]
            kept.append((members, some, real))


class Crew(Protocol):
    """Who keeps the shards of a federation: some, who may be replaced at any time."""

    runs: list[range]  # of shards, for each of them
    say: Callable[[str], None]  # hears who was lost

    def settle(self) -> None:
        """As many as there is room for."""

    def share(self, value: Any) -> list[Any]:
        """A handle for all of them."""

    def start(self, method: str, jobs: Mapping[int, tuple[Any, ...]]) -> None:
        """Have some do something, without an answer."""

    def gather(
        self, method: str, jobs: Callable[[list[range]], Mapping[int, tuple[Any, ...]]]
    ) -> dict[int, Any]:
        """The answers of some; jobs: what each is told, given the runs as they are then."""

    def map(self, method: str, told: tuple[Any, ...]) -> Iterator[tuple[int, Any]]:
        """The answers for all shards, as they come."""


class ShardKeepers:
    """A federation in shards in the hands of a crew."""

    def __init__(self, federation: ShardedFederation, crew: Crew) -> None:
        self.crew, self.shard_ends = crew, federation.shard_ends
        self.federation = federation.read_by(self)
        self.states: States | None = None
        self.tokens, self.keys = count(), count()

    def map_blocks(self, function: Callable[..., Any], told: tuple[Any, ...]) -> list[Any]:
        """What a function says of each block, in order."""
        found = dict(self.crew.map("map", (function, told)))
        return [each for shard in sorted(found) for each in found[shard]]

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


def split_members(
    members: NDArray[np.intp], runs: Sequence[range], ends: NDArray[np.intp]
) -> dict[int, NDArray[np.intp]]:
    """Sorted clients by the run of shards that they live in."""
    cuts = np.searchsorted(members, [0, *(ends[run.stop - 1] for run in runs)])
    parts = (members[low:high] for low, high in pairwise(cuts.tolist()))
    return {at: mine for at, mine in enumerate(parts) if len(mine)}


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
            setting = Setting(key, server, *told, self.server.alone, shares, loader.reserved)
            self.handle = key, self.keepers.crew.share(setting)
        return self.handle

    def advance(self, program: Program, state: State, rounds: Rounds) -> State:
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

    def train(self, program: Program, state: State, rounds: Rounds, at: int) -> CohortSum:
        """What the cohort of a round found, summed over its shards; seeds first."""
        shared, _, memory, clips = state
        drawn, rows, shares = (each[at] for each in (rounds.drawn, rounds.rows, rounds.shares))
        slots = None if rounds.slots is None else rounds.slots[at]
        told = (shared, memory and memory.server, clips and clips.clip)
        common, own = jax.tree.map(np.asarray, (told, memory and memory.clients))
        members = self.loader.members[rounds.data]  # type: ignore[index]  # a token
        seeds, places = np.nonzero(shares)  # a private cohort may have free places
        order: dict[int, NDArray[np.intp]] = {}

        def jobs(runs: list[range]) -> dict[int, tuple[Any, ...]]:
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

        answers = self.keepers.crew.gather("train", jobs)
        whole = len(self.keepers.shard_ends)
        nothing = jax.tree.map(
            np.zeros_like, (common[0], common[0] if clips is None else common[2])
        )
        sums = []
        for seed in range(len(common[0])):
            nodes = {
                node: each for found, _ in answers.values() for node, each in found[seed].items()
            }
            folded = [*fold_shards(nodes, 0, whole, whole).values()]
            sums.append(
                folded[0] if folded else jax.tree.map(lambda leaf, at=seed: leaf[at], nothing)
            )
        total, beside = jax.tree.map(lambda *leaves: np.stack(leaves), *sums)
        units = np.concatenate([order[run] for run in answers]) if answers else seeds
        later = [kept for _, kept in answers.values()]

        def placed(*leaves: NDArray[Any]) -> NDArray[Any]:
            joined = np.concatenate(leaves)
            whole = np.zeros((*shares.shape, *joined.shape[1:]), joined.dtype)
            whole[seeds[units], places[units]] = joined
            return whole

        return total, beside, jax.tree.map(placed, *later) if later else None

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


class States:
    """The states of a piece in its run folder: a driver that is killed goes on from the last one.

    A small file has the last state of some trajectories, and one for each test what was measured.
    """

    def __init__(self, folder: RunFolder, key: str, say: Callable[[str], None]) -> None:
        self.folder, self.key, self.say = folder, key, say
        self.slab, self.tests, self.saved = -1, 0, 0.0

    def name(self, test: int | None = None) -> str:
        """Of a file."""
        return f"{self.key}.{self.slab}" + ("" if test is None else f".{test}")

    def resume(self, state: State, outcomes: Sequence[RunOutcome]) -> tuple[int, State]:
        """The last state of the next trajectories; the one given where there is none."""
        self.slab += 1
        self.tests, self.saved = 0, time.monotonic()
        leaves, form = jax.tree.flatten(state)
        held = self.folder.state(self.name())
        if held is None:
            return 0, state
        kept = [held.get(f"leaf{place}") for place in range(len(leaves))]
        tests = [self.folder.state(self.name(test)) for test in range(int(held["tests"]))]
        if any(
            each is None or (each.shape, each.dtype) != (leaf.shape, leaf.dtype)
            for each, leaf in zip(kept, leaves, strict=True)
        ) or any(test is None for test in tests):
            return 0, state
        for test in tests:
            fill_outcomes(outcomes, test or {})
        self.tests = len(tests)
        self.say(f"goes on after round {held['round']}")
        return int(held["round"]), form.unflatten([put_on_device(each) for each in kept])

    def keep(self, round_: int, state: State, outcomes: Sequence[RunOutcome]) -> None:
        """Keep a state, once in a while and after every test."""
        tests = len(outcomes[0].rounds)
        if tests == self.tests and time.monotonic() < self.saved + EVERY:
            return
        for test in range(self.tests, tests):
            self.folder.keep_state(self.name(test), measured_arrays(outcomes, test))
        leaves = {f"leaf{at}": np.asarray(leaf) for at, leaf in enumerate(jax.tree.leaves(state))}
        numbers = {"round": np.array(round_), "tests": np.array(tests)}
        self.folder.keep_state(self.name(), leaves | numbers)
        self.tests, self.saved = tests, time.monotonic()


MEASURED = ("personal", "shared", "fitted", "shared_fitted")  # of an outcome, by test


def measured_arrays(outcomes: Sequence[RunOutcome], test: int) -> dict[str, NDArray[Any]]:
    """What one test added to outcomes, as named arrays."""
    found: dict[str, NDArray[Any]] = {}
    for at, each in enumerate(outcomes):
        found |= {
            f"{name}{at}": np.asarray(getattr(each, name)[test])
            for name in MEASURED
            if len(getattr(each, name)) > test
        }
        diverged = -1 if each.diverged is None else each.diverged
        numbers = [each.rounds[test], diverged, each.clip, each.clipped]
        found |= {f"numbers{at}": np.array(numbers, float), f"head{at}": np.asarray(each.head)}
    return found


def fill_outcomes(outcomes: Sequence[RunOutcome], held: Mapping[str, NDArray[Any]]) -> None:
    """Add to outcomes what a test had measured."""
    for at, each in enumerate(outcomes):
        round_, diverged, clip, clipped = held[f"numbers{at}"].tolist()
        each.rounds.append(int(round_))
        for name in MEASURED:
            if f"{name}{at}" in held:
                getattr(each, name).append(held[f"{name}{at}"])
        each.diverged = None if diverged < 0 else int(diverged)
        each.clip, each.clipped, each.head = clip, clipped, held[f"head{at}"]


class Lost(Exception):
    """A keeper died, or there is no room for all of them any more; the message says why."""


class RayCrew:
    """Actors on a cluster, as many as there is room for; the dead are replaced."""

    def __init__(self, capacity: Capacity, federation: ShardedFederation) -> None:
        ray = self.ray = capacity.ray
        self.capacity = capacity
        self.samples = [shard.samples for shard in federation.shards]
        told = (str(federation.folder.absolute()), federation.digest, __version__)
        options = capacity.options | {"scheduling_strategy": "SPREAD", "max_restarts": 0}
        self.hire = lambda: ray.remote(ShardKeeper).options(**options).remote(*told)
        self.ends = federation.shard_ends
        self.actors: list[Any] = []
        self.runs: list[range] = []
        self.greeted: dict[Any, Any] = {}  # by actor, its first answer
        self.crashes: Counter[str] = Counter()
        self.say: Callable[[str], None] = lambda text: None
        self.settle()

    def settle(self) -> None:
        """As many actors as there is room for, and each its run of shards."""
        while not (slots := self.capacity.count_slots()):
            self.say("no node of the cluster has room any more: waiting for one")
            time.sleep(LOOK)
        most = min(slots, self.capacity.settings.workers or slots, len(self.samples))
        there = [actor for actor in self.actors if self.is_there(actor)]
        for actor in [*there[most:], *(each for each in self.actors if each not in there)]:
            self.dismiss(actor)
        self.actors = there[:most]
        while len(self.actors) < most:
            self.actors.append(self.hire())
            self.greeted[self.actors[-1]] = self.actors[-1].greet.remote()
        self.runs = share_out(self.samples, len(self.actors))

    def is_there(self, actor: Any) -> bool:
        """Whether an actor has answered once."""
        return bool(self.ray.wait([self.greeted[actor]], timeout=0)[0])

    def dismiss(self, actor: Any) -> None:
        """End an actor."""
        del self.greeted[actor]
        with suppress(self.ray.exceptions.RayError):
            self.ray.kill(actor)

    def close(self) -> None:
        """End all of them: the cluster may be gone."""
        for actor in self.actors:
            self.dismiss(actor)

    def share(self, value: Any) -> list[Any]:
        """In the object store; in a list, since Ray reads bare references anew for each call."""
        return [self.ray.put(value)]

    def start(self, method: str, jobs: Mapping[int, tuple[Any, ...]]) -> None:
        """Have some do something, without an answer."""
        actors = list(self.actors)  # it is the planner's thread that asks
        for at, told in jobs.items():
            if at < len(actors):
                getattr(actors[at], method).remote(*told)

    def gather(
        self, method: str, jobs: Callable[[list[range]], Mapping[int, tuple[Any, ...]]]
    ) -> dict[int, Any]:
        """The answers of some; whoever is lost, all are asked once more."""
        while True:
            out = {
                getattr(self.actors[at], method).remote(*told): at
                for at, told in jobs(self.runs).items()
            }
            try:
                return {out[done]: answer for done, answer in self.collect(out)}
            except Lost as lost:
                self.mend(f"{lost}: the round is computed again")

    def map(self, method: str, told: tuple[Any, ...]) -> Iterator[tuple[int, Any]]:
        """The answers for all shards, as they come; what is lost is asked once more."""
        left = set(range(len(self.samples)))
        while left:
            queues = {
                at: deque(each for each in run if each in left) for at, run in enumerate(self.runs)
            }
            out: dict[Any, int] = {}
            shard_of: dict[Any, int] = {}

            def hand_out(at: int, queues: Any = queues, out: Any = out, of: Any = shard_of) -> None:
                if queues[at]:
                    shard = queues[at].popleft()
                    sent = getattr(self.actors[at], method).remote(*told, shard)
                    out[sent], of[sent] = at, shard

            for at in [*queues] * AHEAD:
                hand_out(at)
            try:
                for done, answer in self.collect(out, hand_out):
                    left.remove(shard_of[done])
                    yield shard_of[done], answer
            except Lost as lost:
                self.mend(f"{lost}: its shards are looked at again")

    def collect(
        self, out: dict[Any, int], hand_out: Callable[[int], None] | None = None
    ) -> Iterator[tuple[Any, Any]]:
        """What comes back; `hand_out` gives an actor its next."""
        while out:
            ready = self.ray.wait(list(out), num_returns=1, timeout=LOOK)[0]
            if not ready and self.capacity.count_slots() < len(self.actors):
                raise Lost(f"a worker was lost, {NODE_DIED}")
            for done in ready:
                at = out[done]
                try:
                    answer = self.ray.get(done)
                except self.ray.exceptions.RayTaskError as error:
                    raise task_error(error) from None
                except self.ray.exceptions.RayError as error:
                    raise self.bury(self.actors.pop(at), error) from None
                yield done, answer
                del out[done]
                if hand_out is not None:
                    hand_out(at)

    def bury(self, actor: Any, error: Exception) -> Lost:
        """What is said of an actor that was lost; one that is lost over and over is given up."""
        why = self.capacity.reason_of(error)
        if self.is_there(actor):
            with suppress(self.ray.exceptions.RayError):
                if not self.capacity.is_alive(self.ray.get(self.greeted[actor])):
                    why = NODE_DIED
        self.capacity.count_crash("shards", why, self.crashes)
        self.dismiss(actor)
        return Lost(f"a worker was lost, {why}")

    def mend(self, why: str) -> None:
        """Replace who is lost, and say so."""
        self.say(why)
        self.settle()


@contextmanager
def open_shards(settings: Ray, federation: ShardedFederation) -> Iterator[ShardKeepers]:
    """The shards of a federation in the hands of actors on a cluster."""
    needed = BLOCKS * BLOCK_BYTES + INDEX * len(federation)
    with join_cluster(settings, 0):
        crew = RayCrew(Capacity(settings, settings.memory_for(needed)), federation)
        try:
            yield ShardKeepers(federation, crew)
        finally:
            crew.close()


class ShardWorker(Worker):
    """A driver whose pieces are trained one after the other, each where the shards are."""

    def __init__(
        self,
        keepers: ShardKeepers,
        federation: Federation,
        data: Record,
        folder: RunFolder,
        progress: Progress | None,
    ) -> None:
        super().__init__(federation, data, folder, progress)
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
