"""What is measured of a run: everyone is personalised and tested, from the shared models of some
rounds.

What a run works on, what comes of it, and how tests are laid out in pieces that fit into memory.
Programs are dispatched without waiting: while one piece is computed, the next one is planned.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar
from typing import Protocol as Role

import numpy as np
from jax import Array
from numpy.typing import NDArray

from fedasym.data.federation import Federation
from fedasym.data.splits import PERSONAL, mix_hash
from fedasym.training.heads import Block, Packed, array_of, padded_size, whole_share
from fedasym.training.plans import (
    COPIES,
    KEEP,
    ClientWork,
    Jobs,
    Machine,
    Numbers,
    Rows,
    Schedule,
    batches,
    cheaper_form,
    count_fitting,
    epochs,
    groups,
    round_width,
    way_of,
)
from fedasym.training.programs import Clips, Compiler, Memory, examine_kept, personalise
from fedasym.training.settings import Protocol
from fedasym.training.steps import Program

Piece = TypeVar("Piece")
Scored = NDArray[np.floating]  # (m, rounds, [validation, test], [hits, loss])


@dataclass(frozen=True)
class RunWork:
    """What all pieces of a run have in common."""

    federation: Federation
    protocol: Protocol
    precision: str  # of models
    stored: str  # precision of features
    machine: Machine
    form: str | None  # forced, for comparisons; by cost otherwise
    splits: tuple[int, ...]  # numbers of reshuffles to train on; none: the federation's own split
    report: Callable[[int, str], None]  # gradient steps done, and where that is
    asked: str = "float32"  # the precision that was asked for
    compiler: Compiler | None = None  # of programs that are called later

    def call(self, function: Callable[..., Any], *told: Any) -> Any:
        """A program's answer, which may be compiled by now."""
        return function(*told) if self.compiler is None else self.compiler.call(function, *told)

    @property
    def features(self) -> int:
        """Rows of a head: the features, and the intercept."""
        return padded_size(self.federation.dimension + self.protocol.intercept, self.stored)

    @property
    def outputs(self) -> int:
        """Columns of a head."""
        return padded_size(self.federation.outputs, self.stored)

    @property
    def real_outputs(self) -> int:
        """The real columns, where there are more."""
        return self.federation.outputs if self.outputs > self.federation.outputs else 0

    @property
    def bytes_per_output(self) -> float:
        """Bytes of one number for every output."""
        return float(self.outputs * np.dtype(self.precision).itemsize)

    @property
    def partly_shared(self) -> bool:
        """Whether some weights are common to all, so that clients move not along samples alone."""
        return self.federation.personal is not None and not bool(self.federation.personal.all())

    @property
    def many_groups(self) -> bool:
        """Whether a client stage is worth more compiled programs."""
        return self.machine.together and self.federation.sequences

    def federation_of(self, draw: Draw) -> Federation:
        """The clients as this draw has them."""
        if not self.splits:
            return self.federation
        return self.federation.resplit(self.splits[draw.split], fractions=None)

    def best_form(self, width: int, steps: int, batch: int) -> str:
        """Gram or head form at that width; sequences, with their many rows, take the head form."""
        if self.federation.sequences or self.partly_shared:
            return "head"
        return self.form or cheaper_form(width, self.features, steps, batch)


MEASURED = ("personal", "shared", "fitted", "shared_fitted")  # of an outcome, by test


@dataclass
class RunOutcome:
    """What was measured of one job and seed."""

    rounds: list[int] = field(default_factory=list)
    personal: list[Scored] = field(default_factory=list)  # by round
    shared: list[Scored] = field(default_factory=list)
    # by round: (m,) losses on training samples, in regression
    fitted: list[Scored] = field(default_factory=list)
    shared_fitted: list[Scored] = field(default_factory=list)
    head: NDArray[np.floating] | None = None
    diverged: int | None = None
    clip: float = float("nan")  # of private rounds, after the last
    clipped: float = float("nan")  # the part of updates that were longer

    def add(self, rounds: Sequence[int], personal: Scored, shared: Scored, broken: int) -> None:
        """Scores of all clients after some rounds, (m, rounds, ...), and of the shared model.

        `broken` is the round after which the shared head was not finite, or -1.
        """
        for moment, round_ in enumerate(rounds):
            own = personal[:, min(moment, personal.shape[1] - 1)]
            self.rounds.append(round_)
            self.personal.append(own[:, :2])
            self.shared.append(shared[:, 0, :2])
            if own.shape[1] > 2:
                self.fitted.append(own[:, 2, 1])
                self.shared_fitted.append(shared[:, 0, 2, 1])
            if self.diverged is None and (broken >= 0 or not np.isfinite(own[:, :2, 1]).all()):
                self.diverged = broken if broken >= 0 else round_

    def describe_test(self, test: int, prefix: str) -> dict[str, NDArray[Any]]:
        """What one test added, as named arrays."""
        measured = {name: getattr(self, name) for name in MEASURED}
        found = {name: each[test] for name, each in measured.items() if len(each) > test}
        diverged = -1 if self.diverged is None else self.diverged
        numbers = np.array([self.rounds[test], diverged, self.clip, self.clipped], float)
        found |= {"numbers": numbers, "head": np.asarray(self.head)}
        return {prefix + name: array for name, array in found.items()}

    def add_described(self, held: Mapping[str, NDArray[Any]], prefix: str) -> None:
        """Add what a test had measured."""
        round_, diverged, self.clip, self.clipped = held[f"{prefix}numbers"].tolist()
        self.rounds.append(int(round_))
        for name in MEASURED:
            if prefix + name in held:
                getattr(self, name).append(held[prefix + name])
        self.diverged = None if diverged < 0 else int(diverged)
        self.head = held[f"{prefix}head"]


# a server's rates, and the client stages that start from it
Trajectory = tuple[Numbers, dict[ClientWork, Jobs]]


class Draw(NamedTuple):
    """What is random in a run: its seed of training, and which of the splits it trains on."""

    seed: int
    split: int = 0


class Slab(NamedTuple):
    """Seeds and trajectories side by side; those after the real ones only fill the shape."""

    seeds: list[tuple[int, Draw]]  # with their places
    trajectories: list[Trajectory]
    real_seeds: int
    real_trajectories: int

    @property
    def draws(self) -> list[Draw]:
        """The seeds without their places."""
        return [draw for _, draw in self.seeds]

    @property
    def places(self) -> list[tuple[int, int]]:
        """The jobs and seeds whose outcomes it makes."""
        real = self.trajectories[: self.real_trajectories]
        by_rates = [jobs for _, stages in real for jobs in stages.values()]
        jobs = sorted({job for each in by_rates for some in each.values() for job in some})
        return [(job, seed) for job in jobs for seed, _ in self.seeds[: self.real_seeds]]


def parts(items: Sequence[Piece], size: int) -> Iterator[tuple[list[Piece], int]]:
    """Runs of `size` items and how many are real: the last repeats its end to fill the shape."""
    for start in range(0, len(items), size):
        part = list(items[start : start + size])
        yield part + part[-1:] * (size - len(part)), len(part)


def rates_of(rows: Sequence[Numbers], dtype: Any) -> dict[str, NDArray[Any]]:
    """Named rates as arrays of the host, which cuts them without a program."""
    return {name: np.array([dict(row)[name] for row in rows], dtype) for name, _ in rows[0]}


STILL = (("local_step", 0.0),)  # the rates of a stage that takes no steps
ROWS = 1e8  # bytes of planned batches in one piece
BLOCK = 3e7  # bytes of outputs tested at a time
# multiplications in one piece on a processor and on an accelerator: seconds at most
PIECE = {False: 3e10, True: 1e14}

# (seeds, m, trajectories, configurations, rounds, [validation, test], [hits, loss])
Scores = NDArray[np.floating]
Collect = Callable[[list[list[RunOutcome]]], None]
# members, configurations, and their scores
ScoredPart = tuple[NDArray[np.int32], slice, Array | Scores]


class Walk(NamedTuple):
    """A client stage for a group of clients: program, planned steps, and when it tests."""

    program: Program
    steps: int
    stops: list[int]


class Layout(NamedTuple):
    """How a group's clients in a block are asked: so many of them and of the rates at a time."""

    group: NDArray[np.intp]
    members: NDArray[np.intp]
    walk: Walk
    columns: int
    size: int
    data: Packed


def table_of(rates: Sequence[Sequence[Numbers]], dtype: Any) -> dict[str, NDArray[Any]]:
    """Named rates, (trajectories, configurations)."""
    flat = rates_of([numbers for row in rates for numbers in row], dtype)
    return {name: values.reshape(len(rates), -1) for name, values in flat.items()}


def join_stages(slab: Slab, alone: bool) -> list[tuple[list[ClientWork], list[int]]]:
    """The client stages of a slab, each with the trajectories that want it.

    Stages that differ only in their number of passes walk one way, and are tested at several points
    of it, shortest first; with every correction of their scores.
    """
    found: dict[Hashable, list[ClientWork]] = {}
    wanted: dict[ClientWork, list[int]] = {}
    for client in dict.fromkeys(client for _, stages in slab.trajectories for client in stages):
        wanted[client] = [
            place for place, (_, stages) in enumerate(slab.trajectories) if client in stages
        ]
        rates = tuple(
            (place, tuple(slab.trajectories[place][1][client])) for place in wanted[client]
        )
        found.setdefault(way_of(client, rates, alone), []).append(client)
    return [
        (sorted(stages, key=lambda stage: stage.epochs or 0), wanted[stages[0]])
        for joined in found.values()
        for stages in by_correction(joined)
    ]


def by_correction(stages: Sequence[ClientWork]) -> list[list[ClientWork]]:
    """Stages of one way in groups of one correction; those without any go with the first."""
    kinds = dict.fromkeys(each.correction for each in stages if each.correction)
    groups = [[each for each in stages if each.correction == kind] for kind in kinds]
    plain = [each for each in stages if each.correction is None]
    return [plain + groups[0], *groups[1:]] if groups else [plain]


def correction_numbers(stages: Sequence[ClientWork]) -> list[Numbers]:
    """The different numbers of their correction."""
    return list(dict.fromkeys(each.numbers for each in stages if each.correction))


def take_scores(answer: Callable[[], Scores], places: Sequence[int]) -> Scores:
    """The scores of the trajectories at these places."""
    return np.asarray(answer()[:, :, list(places)])


def some_places(places: Sequence[int], count: int) -> Rows | None:
    """These of so many; None: all."""
    return None if len(places) == count else np.array(places, np.int32)


# a question's programs that can be compiled before it is asked: functions, and what they are told
Calls = Iterator[tuple[Any, ...]]


class Question:
    """What is asked of all clients, block by block, and its answer once all are asked."""

    def __init__(
        self, method: str, told: tuple[Any, ...], rates: Sequence[Sized], clients: int
    ) -> None:
        """method: of a `Tester`, which is told this and a block; rates: (trajectories,
        configurations).
        """
        self.method, self.told = method, told
        self.shape, self.clients = (len(rates), len(rates[0])), clients
        self.waiting: list[ScoredPart] = []
        self.everyone: Scores | None = None

    def ask(self, tester: Tester, block: Block) -> None:
        """Ask a block's clients; those before must have answered by then, so that two are at work
        at most.
        """
        before, self.waiting = self.waiting, getattr(tester, self.method)(*self.told, block=block)
        self.take_down(before)

    def answer(self) -> Scores:
        """The scores of all clients; waits for them."""
        self.take_down(self.waiting)
        self.waiting = []
        assert self.everyone is not None
        return self.everyone

    def take_down(self, parts: Sequence[ScoredPart]) -> None:
        """Wait for these answers, and keep them where all of them are."""
        for members, some, scores in parts:
            found = np.asarray(scores)
            if self.everyone is None:
                shape = (len(found), self.clients, *self.shape, *found.shape[4:])
                self.everyone = np.empty(shape, found.dtype)
            part = found[:, : len(members), :, : some.stop - some.start]
            self.everyone[:, members, :, some] = part


def members_within(group: NDArray[np.intp], block: Block) -> NDArray[np.intp]:
    """Those of a group, in order, that are in a block."""
    low, high = np.searchsorted(group, (block.first, block.last))
    return group[low:high]


class Respondent(Role):
    """Where questions to all clients go."""

    def ask(self, tester: Tester, questions: Sequence[Question]) -> None:
        """Ask all clients; answers may come later."""


# client stages that walk one way, the places of their trajectories, and their scores
Measured = tuple[list[ClientWork], list[int], list[Callable[[], Scores]]]


class Tester:
    """Dispatches client stages from shared models, in pieces that fit memory."""

    def __init__(
        self, work: RunWork, schedule: Schedule, backend: Respondent | None = None
    ) -> None:
        """backend: where questions to all clients go; None: to the blocks that are given."""
        self.work, self.schedule, self.backend = work, schedule, backend
        self.server, self.sizes = schedule.server, schedule.sizes

    @cached_property
    def still_groups(self) -> list[NDArray[np.intp]]:
        """Clients by the size of their tests."""
        return groups(self.sizes.tested)

    @cached_property
    def moving_groups(self) -> list[NDArray[np.intp]]:
        """Clients by the size of their training."""
        return groups(self.sizes.training, self.work.many_groups)

    def questions(
        self, slab: Slab, shared: Array, rounds: Sequence[int], memory: Memory | None
    ) -> tuple[list[Question], list[Measured]]:
        """What is asked after these rounds, of the shared models first; and, by client stages that
        walk one way and the places of their trajectories, where the answers are.
        """
        still = [[STILL]] * len(slab.trajectories)
        m = len(self.sizes.training)
        kept = Question("scores", (KEEP, slab.draws, shared, still, rounds[:1]), still, m)
        asked = [kept]
        measured: list[Measured] = []
        for stages, places in join_stages(slab, alone=self.server.alone):
            if stages == [KEEP] and not self.begins_elsewhere:
                measured.append((stages, places, [partial(take_scores, kept.answer, places)]))
                continue
            longest = max(stages, key=lambda stage: stage.epochs or 0)
            numbers = correction_numbers(stages)
            passes = None
            if longest.epochs is not None:
                passes = list(dict.fromkeys(stage.epochs or 0 for stage in stages))
            rates = self.rates([slab.trajectories[place] for place in places], longest)
            some = some_places(places, len(slab.trajectories))
            corrected = next((stage for stage in stages if stage.correction), longest)
            longest = longest._replace(correction=corrected.correction)
            if self.reads_memory(longest):
                assert memory is not None
                told = (slab.draws, shared, memory.clients, rates, rounds[-1], longest, numbers)
                one = [each[:1] for each in rates]
                question = Question("kept_scores", (*told, some), one, m)
                asked.append(question)
                measured.append((stages, places, [question.answer]))
                continue
            # alone, passes go on from round to round; a few steps begin anew in each
            moments = [rounds] if passes is not None else [[round_] for round_ in rounds]
            common = None
            if self.begins_elsewhere:
                assert memory is not None
                common = memory.server
            told_too = (longest, slab.draws, shared, rates)
            questions = [
                Question("scores", (*told_too, moment, passes, numbers, common, some), rates, m)
                for moment in moments
            ]
            asked += questions
            measured.append((stages, places, [question.answer for question in questions]))
        return asked, measured

    def dispatch(
        self,
        slab: Slab,
        shared: Array,
        diverged: Array,
        rounds: Sequence[int],
        memory: Memory | None = None,
        clips: Clips | None = None,
    ) -> Collect:
        """Start testing after these rounds; the answer waits for the scores and stores them.

        All that is asked of a block of clients is asked while it is there.
        """
        asked, measured = self.questions(slab, shared, rounds, memory)
        kept = asked[0]
        assert self.backend is not None
        self.backend.ask(self, asked)

        def collect(outcomes: list[list[RunOutcome]]) -> None:
            heads = self.strip_filling(shared)
            broken = np.asarray(diverged)
            common = kept.answer()
            self.collect_clips(slab, clips, outcomes)
            for stages, places, scores in measured:
                answers = np.concatenate([answer() for answer in scores], axis=4)
                passes = list(dict.fromkeys(client.epochs for client in stages))
                numbers = correction_numbers(stages)
                for client in stages:
                    seen = answers
                    if numbers:  # the plain scores stand first
                        added = 1 + numbers.index(client.numbers) if client.correction else 0
                        seen = answers[..., added]
                    if len(passes) > 1:
                        number = passes.index(client.epochs)
                        seen = seen[..., number : number + 1, :, :]
                    for column, place in enumerate(places):
                        if place >= slab.real_trajectories:
                            continue
                        for entry, jobs in enumerate(slab.trajectories[place][1][client].values()):
                            for row, (seed, _) in enumerate(slab.seeds[: slab.real_seeds]):
                                own = seen[row, :, column, entry]
                                for job in jobs:
                                    outcomes[job][seed].add(
                                        rounds,
                                        own,
                                        common[row, :, place, 0],
                                        int(broken[row, place]),
                                    )
                                    outcomes[job][seed].head = heads[row, place]

        return collect

    def calls(self, question: Question, block: Block) -> Calls:
        """What a question will call."""
        calls: Any = self.kept_calls if question.method == "kept_scores" else self.score_calls
        found: Calls = calls(*question.told, block=block)
        return found

    @property
    def begins_elsewhere(self) -> bool:
        """Whether clients begin at a model that the server keeps, not at the shared one."""
        return self.server.stage.owns("begin")

    def collect_clips(
        self, slab: Slab, clips: Clips | None, outcomes: list[list[RunOutcome]]
    ) -> None:
        """The clips of private rounds, for every job of a trajectory."""
        if clips is None:
            return
        clip, sent, longer = (np.asarray(each) for each in clips)
        for place, (_, stages) in enumerate(slab.trajectories[: slab.real_trajectories]):
            jobs = {
                job for by_rates in stages.values() for each in by_rates.values() for job in each
            }
            for row, (seed, _) in enumerate(slab.seeds[: slab.real_seeds]):
                for job in jobs:
                    outcome = outcomes[job][seed]
                    outcome.clip = float(clip[row, place])
                    outcome.clipped = float(longer[row, place] / max(sent[row, place], 1))

    def reads_memory(self, client: ClientWork) -> bool:
        """Whether the clients' own models are part of what they keep from round to round."""
        return client.stage is None and self.server.stage.keeps_client()

    def kept_scores(
        self,
        draws: Sequence[Draw],
        shared: Array,
        kept: Any,
        rates: Sequence[Sequence[Numbers]],
        round_: int,
        client: ClientWork,
        numbers: Sequence[Numbers],
        places: Rows | None,
        block: Block,
    ) -> list[ScoredPart]:
        """Dispatch the kept models of a block's clients, by group and piece; places: of the
        trajectories that are asked.
        """
        scored = rates_of(numbers, shared.dtype) if numbers else None
        named = table_of(rates, shared.dtype)
        waiting = []
        for group in self.still_groups:
            mine = members_within(group, block)
            if not len(mine):
                continue
            walk, size, data = self.kept_layout(client, group, draws, rates, round_, block)
            for members, real in parts(mine.tolist(), size):
                where = np.array(members, np.int32)
                here = where - block.first
                theirs = np.stack([self.schedule.of_split(here, draw.split) for draw in draws])
                slots = self.schedule.slots_of(draws, where)
                told = (data, shared, kept, theirs, slots, named, scored, places)
                scores = self.work.call(examine_kept, walk.program, *told)
                waiting.append((where[:real], slice(0, 1), scores))
        return waiting

    def kept_calls(
        self,
        draws: Sequence[Draw],
        shared: Array,
        kept: Any,
        rates: Sequence[Sequence[Numbers]],
        round_: int,
        client: ClientWork,
        numbers: Sequence[Numbers],
        places: Rows | None,
        block: Block,
    ) -> Calls:
        """What `kept_scores` will call, as `score_calls` says it."""
        scored = rates_of(numbers, shared.dtype) if numbers else None
        named = table_of(rates, shared.dtype)
        for group in self.still_groups:
            walk, size, data = self.kept_layout(client, group, draws, rates, round_, block)
            where = array_of((len(draws), size), np.int32)
            told = (data, shared, kept, where, where, named, scored, places)
            yield (examine_kept, walk.program, *told)

    def kept_layout(
        self,
        client: ClientWork,
        group: NDArray[np.intp],
        draws: Sequence[Draw],
        rates: Sequence[Sequence[Numbers]],
        round_: int,
        block: Block,
    ) -> tuple[Walk, int, Packed]:
        """The program of kept models, how many clients it asks at a time, and their samples."""
        walk = self.walk(client, group, [round_], None)
        size = self.piece(walk, len(draws) * len(rates), len(draws), len(group))
        return walk, size, block.data._replace(grams=None)

    def strip_filling(self, shared: Array) -> NDArray[np.floating]:
        """Shared heads without what fills up their shape."""
        federation = self.work.federation
        return np.asarray(shared)[
            ..., : federation.dimension + self.work.protocol.intercept, : federation.outputs
        ]

    def rates(self, trajectories: Sequence[Trajectory], client: ClientWork) -> list[list[Numbers]]:
        """(trajectories, configurations) rates, padded; the server's models use the server's."""
        if client.stage is None:
            return [[rates] for rates, _ in trajectories]
        if client.still:
            return [[STILL] for _ in trajectories]
        rows = [list(stages[client]) for _, stages in trajectories]
        longest = max(map(len, rows))
        return [row + row[-1:] * (longest - len(row)) for row in rows]

    def scores(
        self,
        client: ClientWork,
        draws: Sequence[Draw],
        shared: Array,
        rates: Sequence[Sequence[Numbers]],
        rounds: Sequence[int],
        passes: Sequence[int] | None = None,
        numbers: Sequence[Numbers] = (),
        common: Any = None,
        places: Rows | None = None,
        *,
        block: Block,
    ) -> list[ScoredPart]:
        """Dispatch one client stage for a block's clients, by group and piece.

        numbers: of the correction of its scores, where it has one. common: what the server keeps,
        where clients begin at a model of that. places: of the trajectories that are asked.
        """
        scored = rates_of(numbers, shared.dtype) if numbers else None
        named = table_of(rates, shared.dtype)
        waiting = []
        for layout in self.layouts(client, draws, rates, rounds, passes, common, block):
            walk, columns = layout.walk, layout.columns
            for members, real in parts(layout.members.tolist(), layout.size):
                where = np.array(members, np.int32)
                here = where - block.first
                rows = np.stack(
                    [
                        self.rows(client, walk, draw.seed, where, layout.group, rounds[-1])
                        for draw in draws
                    ]
                )
                theirs = (
                    np.stack([self.schedule.of_split(here, draw.split) for draw in draws])
                    if self.work.splits
                    else here
                )
                for some, real_columns in parts(range(len(rates[0])), columns):
                    chosen = {name: values[:, np.array(some)] for name, values in named.items()}
                    stops = np.array(walk.stops, np.int32)
                    told = (shared, theirs, rows, chosen, stops, scored, common, places)
                    scores = self.work.call(personalise, walk.program, layout.data, *told)
                    waiting.append((where[:real], slice(some[0], some[0] + real_columns), scores))
                    done = walk.stops[-1] * real * len(draws) * len(rates) * real_columns
                    self.work.report(done, f"testing after round {rounds[-1]}")
        return waiting

    def score_calls(
        self,
        client: ClientWork,
        draws: Sequence[Draw],
        shared: Array,
        rates: Sequence[Sequence[Numbers]],
        rounds: Sequence[int],
        passes: Sequence[int] | None = None,
        numbers: Sequence[Numbers] = (),
        common: Any = None,
        places: Rows | None = None,
        *,
        block: Block,
    ) -> Calls:
        """What `scores` will call, each program once; of arrays the shapes count."""
        scored = rates_of(numbers, shared.dtype) if numbers else None
        named = table_of(rates, shared.dtype)
        for layout in self.layouts(client, draws, rates, rounds, passes, common, block):
            walk = layout.walk
            first = layout.members[:1].astype(np.int32)
            rows = self.rows(client, walk, draws[0].seed, first, layout.group, rounds[-1])
            theirs = (len(draws), layout.size) if self.work.splits else (layout.size,)
            yield (
                personalise,
                walk.program,
                layout.data,
                shared,
                array_of(theirs, np.int32),
                array_of((len(draws), layout.size, *rows.shape[1:]), rows.dtype),
                {name: values[:, : layout.columns] for name, values in named.items()},
                np.array(walk.stops, np.int32),
                scored,
                common,
                places,
            )

    def layouts(
        self,
        client: ClientWork,
        draws: Sequence[Draw],
        rates: Sequence[Sequence[Numbers]],
        rounds: Sequence[int],
        passes: Sequence[int] | None,
        common: Any,
        block: Block,
    ) -> Iterator[Layout]:
        """How the clients of a block are cut into pieces, group by group."""
        for group in self.still_groups if client.still else self.moving_groups:
            mine = members_within(group, block)
            if not len(mine):
                continue
            walk = self.walk(client, group, rounds, passes)
            if common is not None:
                elsewhere = replace(walk.program, server=self.server.stage)
                walk = walk._replace(program=elsewhere)
            columns = count_fitting(
                self.work.machine.close,
                self.client_bytes(walk) * len(draws) * len(rates),
                len(rates[0]),
            )
            runs = len(draws) * len(rates) * columns
            # one program with or without
            data = block.data if walk.program.form == "gram" else block.data._replace(grams=None)
            size = self.piece(walk, runs, len(draws), len(group))
            yield Layout(group, mine, walk, columns, size, data)

    def client_bytes(self, walk: Walk) -> float:
        """Bytes that one run of one client holds."""
        rows = self.work.features if walk.program.form == "head" else walk.program.width
        return (
            (rows + walk.program.block * self.work.federation.positions)
            * COPIES
            * self.work.bytes_per_output
        )

    def walk(
        self,
        client: ClientWork,
        group: NDArray[np.intp],
        rounds: Sequence[int],
        passes: Sequence[int] | None,
    ) -> Walk:
        """The program for a group of clients."""
        work = self.work
        server = self.server
        largest = int(self.sizes.training[group].max())
        per_pass = -(-largest // server.batch)
        kept = self.reads_memory(client)
        if kept:
            stops = [0]
        elif client.stage is None:
            stops = [server.local_steps]
        elif client.epochs is None:
            stops = [client.steps]
        else:  # on its own a client trains as many passes as there are rounds
            alone = [round_ + work.protocol.passes_ahead for round_ in rounds]
            stops = [end * per_pass for end in (alone if server.alone else passes or ())]
        steps = max(stops[-1], 1)
        stage = client.stage or server.stage
        form = (
            "head"
            if client.still or kept
            else work.best_form(round_width(largest), steps * stage.gradients, server.batch)
        )
        tested = max(int(self.sizes.tested[group].max()), 1)
        fits = count_fitting(BLOCK, work.bytes_per_output * work.federation.positions, tested)
        sizes = (
            round_width(largest),
            work.machine.together,
            tested,
            tested if form == "gram" else fits,
            work.real_outputs,
            True,
            client.correction,
        )
        rate = "server_step" if client.stage is None else "local_step"
        program = Program(stage, rate, work.federation.task, form, *sizes)
        return Walk(program, steps, stops)

    def piece(self, walk: Walk, runs: int, seeds: int, most: int) -> int:
        """How many clients go into one piece, by memory and by the time it takes."""
        work = self.work
        program = walk.program
        batch = min(self.server.batch, program.width)
        rows = work.features if program.form == "head" else program.width
        products = walk.steps * batch * work.federation.positions * rows * 2 * work.outputs * runs
        by_memory = (
            work.machine.memory / (self.client_bytes(walk) * runs)
            if work.machine.together
            else np.inf
        )
        fits = min(
            by_memory,
            ROWS / (4 * walk.steps * batch * seeds),
            PIECE[work.machine.together] / products,
        )
        return whole_share(count_fitting(fits, 1, min(most, self.schedule.loader.tested_together)))

    def rows(
        self,
        client: ClientWork,
        walk: Walk,
        seed: int,
        members: NDArray[np.int32],
        group: NDArray[np.intp],
        round_: int,
    ) -> Rows:
        """(members, steps, 1, batch) of the client stage, or of the server's in that round."""
        sizes = self.sizes.training[members]
        if client.still:
            return np.full((len(members), 1, 1, 1), -1, np.int32)
        if client.stage is None:
            return self.schedule.rows(seed, members, np.full(len(members), round_), 0)
        # clients with less than a batch have no use for its other rows
        batch = min(self.server.batch, walk.program.width)
        alone = self.server.alone and client.epochs is not None
        streams = mix_hash(
            seed, PERSONAL, self.work.federation.identities[members], 0 if alone else round_
        )
        if client.epochs is None or walk.stops[-1] == 0:
            return batches(streams, sizes, 0, walk.steps, batch)[:, :, None]
        return epochs(
            streams, sizes, 0, client.epochs, batch, int(self.sizes.training[group].max())
        )[:, :, None]
