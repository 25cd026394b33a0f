"""The host's side of training: plans ahead, hands pieces to the compiled programs, collects what they measured.

Programs are dispatched without waiting: while one piece is computed, the next one is planned.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import jax.numpy as jnp
import numpy as np

from fedasym.training.evaluate import Collect, Tester
from fedasym.training.layout import COPIES, STEP, fitting, groups, rounded
from fedasym.training.packing import Packed, pack
from fedasym.training.schedule import Schedule, start_heads
from fedasym.training.server import advance
from fedasym.training.sharing import Client, Jobs, Numbers, Server, Tree, way_of
from fedasym.training.steps import Program
from fedasym.training.work import Draw, Outcome, Slab, Work, parts, rates_of


def run(work: Work, tree: Tree, jobs: int, draws: Sequence[Draw]) -> tuple[list[list[Outcome]], bool]:
    """Train and test everything; outcomes by job and draw, and whether Ctrl-C cut it short."""
    outcomes = [[Outcome() for _ in draws] for _ in range(jobs)]
    try:
        for server, trajectories in tree.items():
            run_server(work, server, trajectories, draws, outcomes)
    except KeyboardInterrupt:
        return outcomes, True
    return outcomes, False


def run_server(
    work: Work,
    server: Server,
    trajectories: dict[Numbers, dict[Client, Jobs]],
    draws: Sequence[Draw],
    outcomes: list[list[Outcome]],
) -> None:
    """All trajectories of one server stage, as many at a time as memory holds."""
    federation, together = work.federation, work.machine.together
    largest = rounded(int(federation.counts("train").max()))
    gradients = server.local_steps * server.stage.gradients
    form = work.best_form(largest, gradients, server.batch)
    item = np.dtype(work.precision).itemsize
    cached = form == "gram" and max(len(work.splits), 1) * len(federation.clients) * largest**2 * item < work.machine.memory / 4
    data, sizes = pack(federation, work.splits, work.protocol, work.stored, largest if cached else 0)
    if server.alone:
        data = data._replace(personal=None)  # nothing is shared, so that every weight is a client's own
    program = Program(server.stage, "server_step", federation.task, form, largest, together, classes=work.filled)
    schedule = Schedule(work, server, sizes)
    tester = Tester(work, schedule, data)
    rows = COPIES * (work.features if form == "head" else largest) + STEP * server.batch * data.training.positions
    each = work.bytes_per_output * (rows * (server.cohort if together else 1) + 3 * work.features)
    at_a_time = fitting(work.machine.close, each, len(trajectories))
    seeds = fitting(work.machine.close, each * at_a_time, len(draws))
    for some_seeds, real_seeds in parts(list(enumerate(draws)), seeds):
        for some, real in parts(list(trajectories.items()), at_a_time):
            follow(work, program, data, schedule, tester, Slab(some_seeds, some, real_seeds, real), outcomes)


def follow(
    work: Work, program: Program, data: Packed, schedule: Schedule, tester: Tester, slab: Slab, outcomes: list[list[Outcome]]
) -> None:
    """Some trajectories from the first round to the last, tested on the way; a test is collected while the next piece runs."""
    server = schedule.server
    shared = start_heads(work, slab.draws, len(slab.trajectories))
    diverged = jnp.full(shared.shape[:2], -1, jnp.int32)
    if server.alone:
        tester.dispatch(slab, shared, diverged, server.evaluated)(outcomes)
        return
    rates = rates_of([rates for rates, _ in slab.trajectories], shared.dtype)
    collect: Collect = tester.dispatch(slab, shared, diverged, (0,)) if 0 in server.evaluated else lambda _: None
    for start, stop, plan in schedule.pieces(slab.draws):
        shared, diverged = advance(program, data, shared, diverged, *plan, rates, start, stop - start)
        steps = (stop - start) * schedule.cohort * server.local_steps
        work.report(steps * len(slab.draws) * len(slab.trajectories), f"round {stop} of {server.rounds}")
        if stop in server.evaluated:
            collect(outcomes)
            collect = tester.dispatch(slab, shared, diverged, (stop,))
    collect(outcomes)


def planned_steps(tree: Tree, work: Work, seeds: int) -> int:
    """Gradient steps of everything, as `Work.report` counts them: what progress is measured against."""
    total, training = 0, work.federation.counts("train")
    together = groups(training, work.many_groups)
    widest = [(len(group), int(training[group].max())) for group in together]  # a group's clients wait for its largest
    for server, trajectories in tree.items():
        passes = sum(clients * -(-size // server.batch) for clients, size in widest)
        alone = server.alone
        total += 0 if alone else server.rounds * server.cohort * server.local_steps * len(trajectories)
        for stages in trajectories.values():
            ways: dict[Hashable, int] = {}
            for client, jobs in stages.items():
                each = client.steps * len(training) if client.epochs is None else client.epochs * passes
                each = server.local_steps * len(training) if client.stage is None else each
                each *= len(jobs) * (1 if alone and client.epochs is not None else len(server.evaluated))
                way = way_of(client, tuple(jobs), alone)
                ways[way] = max(ways.get(way, 0), each)
            total += sum(ways.values())
    return total * seeds
