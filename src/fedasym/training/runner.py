"""The host's side of training: plans ahead, feeds the compiled programs, collects scores.

Programs are dispatched without waiting: while one piece is computed, the next one is planned.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple
from typing import Protocol as Role

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from fedasym.data.splits import START, mix_hash
from fedasym.training.convergence import cluster_starts, pooled_sums
from fedasym.training.evaluation import (
    Collect,
    Draw,
    Question,
    RunOutcome,
    RunWork,
    Slab,
    Tester,
    parts,
    rates_of,
)
from fedasym.training.heads import (
    Block,
    DiskLoader,
    Loader,
    MemoryLoader,
    Packed,
    all_grams,
    array_of,
    device_mesh,
    open_loader,
    put_on_device,
    whole_share,
)
from fedasym.training.plans import (
    COPIES,
    STEP,
    ClientWork,
    Jobs,
    Numbers,
    Rows,
    Schedule,
    ServerWork,
    Tree,
    count_fitting,
    groups,
    round_width,
    way_of,
)
from fedasym.training.programs import Clips, Memory, PrivateNoise, advance, first_memory
from fedasym.training.steps import Program


def start_heads(work: RunWork, draws: Sequence[Draw], copies: int) -> Array:
    """(seeds, copies, d, outputs) first heads: zero, or uniform in +-1/sqrt(d) like PyTorch's."""
    shape = (work.federation.dimension + work.protocol.intercept, work.federation.outputs)
    heads = np.zeros((len(draws), work.features, work.outputs), work.precision)
    if work.protocol.random_start:
        for place, draw in enumerate(draws):
            uniform = mix_hash(draw.seed, START, np.arange(math.prod(shape))) / 2.0**64
            heads[place, : shape[0], : shape[1]] = (
                (2 * uniform - 1) / np.sqrt(work.federation.dimension)
            ).reshape(shape)
    return put_on_device(np.broadcast_to(heads[:, None], (len(draws), copies, *heads.shape[1:])))


def start_models(work: RunWork, draws: Sequence[Draw], count: int) -> Array:
    """(seeds, count, d, outputs) models with which a server begins beside the shared one."""
    models = np.zeros((len(draws), count, work.features, work.outputs), work.precision)
    for place, draw in enumerate(draws) if count else ():
        found = np.stack(cluster_starts(work.federation_of(draw), work.protocol, draw.seed, count))
        models[place, :, : found.shape[1], : found.shape[2]] = found
    return put_on_device(models)


def no_divergence(shared: Array) -> Array:
    """(seeds, trajectories) rounds of divergence: none."""
    return put_on_device(np.full(shared.shape[:2], -1, np.int32))


def count_kept(server: ServerWork, clients: int) -> int:
    """How many models' memory a trajectory takes: what the server keeps, what every client that is
    drawn in any round keeps, and both once more for the cohort at work.
    """
    w = np.zeros((1, 1))
    own = len(jax.tree.leaves(server.stage.init_client(w)))
    common = len(jax.tree.leaves(server.stage.first_memory(w, [w] * server.stage.start_models)))
    held = min(clients, server.rounds * server.cohort) + server.cohort
    return 2 + common * (1 + server.cohort * server.stage.keeps_client()) + own * held


# shared heads, rounds of divergence, what is kept between rounds, and the clips of private ones
State = tuple[Array, Array, Memory | None, Clips | None]


class PlannedRounds(NamedTuple):
    """Rounds `start` to `stop` - 1 as they are planned."""

    start: int
    stop: int
    data: Packed
    drawn: Rows  # (rounds, seeds, cohort), places in `data`
    rows: Rows
    shares: NDArray[np.floating]
    rates: dict[str, NDArray[Any]]
    slots: Rows | None  # where in what is kept the drawn clients are
    noise: PrivateNoise | None


class Backend(Role):
    """Where the cohorts of a server stage are trained, and all clients are asked."""

    loader: Loader
    keeps_states: bool  # whether `resume` finds what `keep` kept

    def advance(self, program: Program, state: State, rounds: PlannedRounds) -> State:
        """The state after these rounds."""

    def ask(self, tester: Tester, questions: Sequence[Question]) -> None:
        """Ask all clients; answers may come later."""

    def resume(self, state: State, outcomes: Sequence[RunOutcome]) -> tuple[int, State]:
        """The round that an earlier process reached with the trajectories that come next, and the
        state after it, outcomes filled in; 0 and the state as it is where there was none.
        """

    def keep(self, round_: int, state: State, outcomes: Sequence[RunOutcome]) -> None:
        """Keep the state after a round, and the outcomes until then."""


class LocalBackend:
    """In this process."""

    keeps_states = False

    def __init__(self, loader: Loader, work: RunWork) -> None:
        self.loader, self.work = loader, work

    def resume(self, state: State, outcomes: Sequence[RunOutcome]) -> tuple[int, State]:
        """From the first round."""
        return 0, state

    def keep(self, round_: int, state: State, outcomes: Sequence[RunOutcome]) -> None:
        """Nothing is kept."""

    def advance(self, program: Program, state: State, rounds: PlannedRounds) -> State:
        """All rounds in one program."""
        r = rounds
        span = np.int32(r.start), np.int32(r.stop - r.start)
        told = (r.drawn, r.slots, r.rows, r.shares, r.rates, *span, r.noise)
        found: State = self.work.call(advance, program, r.data, state, *told)
        return found

    def ask(self, tester: Tester, questions: Sequence[Question]) -> None:
        """Every question while a block is there."""
        for block in self.loader.blocks():
            for question in questions:
                question.ask(tester, block)


class StagePlan(NamedTuple):
    """A server stage of a run: its program, its tests, and its slabs, all of one shape."""

    program: Program
    tester: Tester
    backend: Backend
    slabs: list[Slab]


class Runner:
    """Trains and tests all jobs of a tree, for all draws; outcomes by job and draw."""

    def __init__(self, work: RunWork, tree: Tree, jobs: int, draws: Sequence[Draw]) -> None:
        self.work, self.tree, self.draws = work, tree, draws
        self.outcomes = [[RunOutcome() for _ in draws] for _ in range(jobs)]

    def run(self) -> bool:
        """Do everything; whether Ctrl-C cut it short."""
        try:
            plans = [self.plan_stage(server, mine) for server, mine in self.tree.items()]
            for plan in plans:
                self.begin_programs(plan)
            for plan in plans:
                self.run_stage(plan)
        except KeyboardInterrupt:
            return True
        finally:
            if self.work.compiler is not None:
                self.work.compiler.close()
        return False

    def plan_stage(
        self, server: ServerWork, trajectories: dict[Numbers, dict[ClientWork, Jobs]]
    ) -> StagePlan:
        """All trajectories of one server stage, as many at a time as memory holds."""
        work, together = self.work, self.work.machine.together
        counts = work.federation.counts("train")
        largest = round_width(int(counts.max()))
        gradients = server.local_steps * server.stage.gradients
        keeps = server.stage.has_memory()
        # what is kept is no client's span
        form = "head" if keeps else work.best_form(largest, gradients, server.batch)
        grams = (
            max(len(work.splits), 1) * len(counts) * largest**2 * np.dtype(work.precision).itemsize
        )
        cached = form == "gram" and grams < work.machine.memory / 4
        corrected = any(client.correction for stages in trajectories.values() for client in stages)
        told = (work.splits, work.protocol, work.stored, largest if cached else 0)
        loader = open_loader(work.federation, *told, server.alone, corrected)
        backend: Backend = LocalBackend(loader, work)
        if isinstance(loader, DiskLoader) and loader.federation.keepers is not None:
            backend = loader.federation.keepers.open_backend(work, server, loader)
        task = work.federation.task
        program = Program(
            server.stage, "server_step", task, form, largest, together, classes=work.real_outputs
        )
        rows = (
            COPIES * (work.features if form == "head" else largest)
            + STEP * server.batch * work.federation.positions
        )
        each = work.bytes_per_output * (
            rows * (server.cohort if together else 1) + 3 * work.features
        )
        if keeps:
            each += work.bytes_per_output * work.features * count_kept(server, len(counts))
        at_a_time = count_fitting(work.machine.close, each, len(trajectories))
        if at_a_time > 1:  # configurations are dealt out to several devices
            at_a_time = whole_share(at_a_time)
        seeds = count_fitting(work.machine.close, each * at_a_time, len(self.draws))
        schedule = Schedule(work, server, backend.loader, [draw.seed for draw in self.draws], seeds)
        slabs = [
            Slab(some_seeds, some, real_seeds, real)
            for some_seeds, real_seeds in parts(list(enumerate(self.draws)), seeds)
            for some, real in parts(list(trajectories.items()), at_a_time)
        ]
        return StagePlan(program, Tester(work, schedule, backend), backend, slabs)

    def run_stage(self, plan: StagePlan) -> None:
        """Train and test all trajectories of a server stage."""
        if isinstance(plan.backend.loader, MemoryLoader):
            plan.backend.loader.complete(self.work.call)
        for slab in plan.slabs:
            if plan.tester.server.stage.reads_sums:
                self.solve(plan.tester, slab)
            else:
                self.follow(plan.program, plan.tester, slab, plan.backend)

    def begin_programs(self, plan: StagePlan) -> None:
        """Have the programs of a server stage compiled, those that are called first before others:
        of clients in memory, and on one device.
        """
        work, loader = self.work, plan.backend.loader
        if work.compiler is None or not isinstance(loader, MemoryLoader) or device_mesh():
            return
        slab, server = plan.slabs[0], plan.tester.server
        data = loader.shapes
        if data.grams is not None and loader.data.grams is None:
            work.compiler.begin(all_grams, data.training, loader.width)
        seeds, copies = len(slab.seeds), len(slab.trajectories)
        model = (work.features, work.outputs)
        shared = array_of((seeds, copies, *model), work.precision)
        rates = rates_of([rates for rates, _ in slab.trajectories], shared.dtype)
        memory = clips = noise = slots = None
        schedule = plan.tester.schedule
        drawn = (schedule.span, seeds, schedule.cohort)
        if server.stage.has_memory():
            starts = array_of((seeds, server.stage.start_models, *model), work.precision)
            told = (plan.program, shared, starts, rates, *schedule.room(slab.draws))
            work.compiler.begin(first_memory, *told)
            shapes: Any = first_memory
            memory = shapes.eval_shape(*told)
            slots = array_of(drawn, np.int32)
        if server.private is not None:
            clips = Clips(*[array_of((seeds, copies), work.precision)] * 3)
            sums, counts = array_of((*drawn[:2], *model), shared.dtype), drawn[:2]
            noise = PrivateNoise(sums, array_of(counts, shared.dtype), server.private)
        if not (server.alone or server.stage.reads_sums):
            steps = (server.local_steps, server.stage.batches, server.batch)
            rows = array_of((*drawn, *steps), np.int32)
            state = (shared, array_of((seeds, copies), np.int32), memory, clips)
            planned = (array_of(drawn, np.int32), slots, rows, array_of(drawn, work.precision))
            count = np.int32(schedule.span)
            work.compiler.begin(
                advance, plan.program, data, state, *planned, rates, count, count, noise
            )
        rounds = server.evaluated if server.alone else server.evaluated[-1:]
        block = Block(0, len(loader.sizes.training), data)
        for question in plan.tester.questions(slab, shared, rounds, memory)[0]:
            for call in plan.tester.calls(question, block):
                work.compiler.begin(*call)

    def solve(self, tester: Tester, slab: Slab) -> None:
        """Trajectories whose shared model one round finds, from sums of products."""
        work = self.work
        evaluated = tester.server.evaluated
        shared = start_heads(work, slab.draws, len(slab.trajectories))
        if 0 in evaluated:
            tester.dispatch(slab, shared, no_divergence(shared), (0,))(self.outcomes)
        sums = {
            draw.split: pooled_sums(work.federation_of(draw), work.protocol) for draw in slab.draws
        }
        heads = np.asarray(shared).copy()
        for row, draw in enumerate(slab.draws):
            for place, (rates, _) in enumerate(slab.trajectories):
                found = sums[draw.split].solve(dict(rates)["shared_ridge"])
                heads[row, place, : len(found), : found.shape[1]] = found
        solved = put_on_device(heads)
        for round_ in evaluated:
            if round_ > 0:
                tester.dispatch(slab, solved, no_divergence(solved), (round_,))(self.outcomes)

    def follow(self, program: Program, tester: Tester, slab: Slab, backend: Backend) -> None:
        """Some trajectories from the first round to the last, tested on the way.

        A test is collected while the next piece runs, but where states are kept.
        """
        work = self.work
        schedule = tester.schedule
        server = schedule.server
        shared = start_heads(work, slab.draws, len(slab.trajectories))
        diverged = no_divergence(shared)
        if server.alone:
            tester.dispatch(slab, shared, diverged, server.evaluated)(self.outcomes)
            return
        rates = rates_of([rates for rates, _ in slab.trajectories], shared.dtype)
        starts = start_models(work, slab.draws, server.stage.start_models)
        memory = (
            work.call(first_memory, program, shared, starts, rates, *schedule.room(slab.draws))
            if server.stage.has_memory()
            else None
        )
        private = server.private
        clips = None
        if private is not None:
            nothing = np.zeros(shared.shape[:2], shared.dtype)
            clips = Clips(*map(put_on_device, (nothing + private.clip, nothing, nothing)))
        mine = [self.outcomes[job][seed] for job, seed in slab.places]
        reached, state = backend.resume((shared, diverged, memory, clips), mine)
        collect: Collect = (
            tester.dispatch(slab, shared, diverged, (0,), memory, clips)
            if 0 in server.evaluated and reached == 0
            else collect_nothing
        )
        for start, stop, (data, drawn, rows, shares) in schedule.pieces(slab.draws, reached):
            slots = None if memory is None else schedule.slots(slab.draws, start, stop)
            noise = None
            if private is not None:
                noise = PrivateNoise(*schedule.noise(slab.draws, start, stop), private)
            planned = PlannedRounds(start, stop, data, drawn, rows, shares, rates, slots, noise)
            state = backend.advance(program, state, planned)
            shared, diverged, memory, clips = state
            steps = (stop - start) * schedule.cohort * server.local_steps
            work.report(
                steps * len(slab.draws) * len(slab.trajectories), f"round {stop} of {server.rounds}"
            )
            if stop in server.evaluated:
                collect(self.outcomes)
                collect = tester.dispatch(slab, shared, diverged, (stop,), memory, clips)
            if backend.keeps_states:
                collect(self.outcomes)
                collect = collect_nothing
                backend.keep(stop, state, mine)
        collect(self.outcomes)


def collect_nothing(outcomes: list[list[RunOutcome]]) -> None:
    """Where no test waits to be collected."""


def count_steps(tree: Tree, work: RunWork, seeds: int) -> int:
    """Gradient steps of everything, as `Work.report` counts them, to measure progress."""
    total = 0
    training = work.federation.counts("train")
    together = groups(training, work.many_groups)
    # a group's clients wait for its largest
    widest = [(len(group), int(training[group].max())) for group in together]
    for server, trajectories in tree.items():
        passes = sum(clients * -(-size // server.batch) for clients, size in widest)
        alone = server.alone
        none = alone or server.stage.reads_sums
        total += (
            0 if none else server.rounds * server.cohort * server.local_steps * len(trajectories)
        )
        for stages in trajectories.values():
            ways: dict[Hashable, int] = {}
            for client, jobs in stages.items():
                each = (
                    client.steps * len(training)
                    if client.epochs is None
                    else client.epochs * passes
                )
                if client.stage is None:  # models that clients keep are there without a step
                    steps = 0 if server.stage.keeps_client() else server.local_steps
                    each = steps * len(training)
                each *= len(jobs) * (
                    1 if alone and client.epochs is not None else len(server.evaluated)
                )
                way = way_of(client, tuple(jobs), alone)
                ways[way] = max(ways.get(way, 0), each)
            total += sum(ways.values())
    return total * seeds
