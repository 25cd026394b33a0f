"""Evaluation rounds: every client's personal model and the shared one, tested on all clients' validation and test samples."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np
from jax import Array
from numpy.typing import NDArray

from fedasym.data.federation.shuffles import PERSONAL, mix
from fedasym.training.layout import COPIES, fitting, groups, rounded
from fedasym.training.packing import Packed
from fedasym.training.personal import personalise
from fedasym.training.plans import Rows, batches, epochs
from fedasym.training.schedule import Schedule
from fedasym.training.sharing import KEEP, Client, Numbers, way_of
from fedasym.training.steps import Program
from fedasym.training.work import Draw, Outcome, Slab, Trajectory, Work, parts, rates_of

STILL = (("local_step", 0.0),)  # the rates of a stage that takes no steps
ROWS = 1e8  # bytes of planned batches in one piece
BLOCK = 3e7  # bytes of outputs tested at a time
PIECE = {False: 3e10, True: 1e14}  # multiplications in one piece on a processor and on an accelerator: seconds at most

Scores = NDArray[np.floating]  # (seeds, m, trajectories, configurations, rounds, [validation, test], [hits, loss])
Collect = Callable[[list[list[Outcome]]], None]


class Walk(NamedTuple):
    """A client stage for a group of clients: its program, the steps it plans, and after which of them it tests."""

    program: Program
    steps: int
    stops: list[int]


def together(slab: Slab, alone: bool) -> list[tuple[list[Client], list[int]]]:
    """The client stages of a slab, each with the trajectories that want it.

    Stages that differ only in their number of passes walk one way, and are tested at several points of it, shortest first.
    """
    found: dict[Hashable, list[Client]] = {}
    wanted: dict[Client, list[int]] = {}
    for client in dict.fromkeys(client for _, stages in slab.trajectories for client in stages):
        wanted[client] = [place for place, (_, stages) in enumerate(slab.trajectories) if client in stages]
        rates = tuple((place, tuple(slab.trajectories[place][1][client])) for place in wanted[client])
        found.setdefault(way_of(client, rates, alone), []).append(client)
    return [(sorted(stages, key=lambda stage: stage.epochs or 0), wanted[stages[0]]) for stages in found.values()]


class Tester:
    """Dispatches client stages from shared models, in pieces that fit memory."""

    def __init__(self, work: Work, schedule: Schedule, data: Packed) -> None:
        self.work, self.schedule, self.data = work, schedule, data
        self.server, self.sizes = schedule.server, schedule.sizes

    def dispatch(self, slab: Slab, shared: Array, diverged: Array, rounds: Sequence[int]) -> Collect:
        """Start testing after these rounds; the answer waits for the scores and puts them where they belong."""
        kept = self.scores(KEEP, slab.draws, shared, [[STILL]] * len(slab.trajectories), rounds[:1])
        measured = []
        for stages, places in together(slab, alone=self.server.alone):
            if stages == [KEEP]:
                measured.append((stages, places, [kept]))
                continue
            longest = max(stages, key=lambda stage: stage.epochs or 0)
            passes = None if longest.epochs is None else [stage.epochs or 0 for stage in stages]
            rates = self.rates([slab.trajectories[place] for place in places], longest)
            wanted = shared if len(places) == shared.shape[1] else shared[:, np.array(places)]
            # alone, passes go on from round to round; a few steps begin anew in each
            moments = [rounds] if passes is not None else [[round_] for round_ in rounds]
            scores = [self.scores(longest, slab.draws, wanted, rates, moment, passes) for moment in moments]
            measured.append((stages, places, scores))

        def collect(outcomes: list[list[Outcome]]) -> None:
            heads, broken, common = self.real(shared), np.asarray(diverged), kept()
            for stages, places, scores in measured:
                answers = np.concatenate([answer() for answer in scores], axis=4)
                for number, client in enumerate(stages):
                    seen = answers if len(stages) == 1 else answers[..., number : number + 1, :, :]
                    for column, place in enumerate(places):
                        if place >= slab.real_trajectories:
                            continue
                        for entry, jobs in enumerate(slab.trajectories[place][1][client].values()):
                            for row, (seed, _) in enumerate(slab.seeds[: slab.real_seeds]):
                                own = seen[row, :, place if client == KEEP else column, entry]
                                for job in jobs:
                                    outcomes[job][seed].add(rounds, own, common[row, :, place, 0], int(broken[row, place]))
                                    outcomes[job][seed].head = heads[row, place]

        return collect

    def real(self, shared: Array) -> NDArray[np.floating]:
        """Shared heads without what fills up their shape."""
        federation = self.work.federation
        return np.asarray(shared)[..., : federation.dimension + self.work.protocol.intercept, : federation.outputs]

    def rates(self, trajectories: Sequence[Trajectory], client: Client) -> list[list[Numbers]]:
        """(trajectories, configurations) rates, short rows filled up; models that the server's stage gives use its rates."""
        if client.stage is None:
            return [[rates] for rates, _ in trajectories]
        rows = [list(stages[client]) for _, stages in trajectories]
        longest = max(map(len, rows))
        return [row + row[-1:] * (longest - len(row)) for row in rows]

    def scores(
        self,
        client: Client,
        draws: Sequence[Draw],
        shared: Array,
        rates: Sequence[Sequence[Numbers]],
        rounds: Sequence[int],
        passes: Sequence[int] | None = None,
    ) -> Callable[[], Scores]:
        """Dispatch one client stage for all clients, group by group and piece by piece; the answer waits for all of them."""
        flat = rates_of([numbers for row in rates for numbers in row], shared.dtype)
        named = {name: values.reshape(len(rates), -1) for name, values in flat.items()}
        waiting = []
        for group in groups(self.sizes.tested) if client.still else groups(self.sizes.training, self.work.many_groups):
            walk = self.walk(client, group, rounds, passes)
            columns = fitting(self.work.machine.close, self.held(walk) * len(draws) * len(rates), len(rates[0]))
            runs = len(draws) * len(rates) * columns
            data = self.data if walk.program.form == "gram" else self.data._replace(grams=None)  # one program with or without
            for members, real in parts(list(group), self.piece(walk, runs, len(draws), len(group))):
                places = np.array(members, np.int32)
                rows = np.stack([self.rows(client, walk, draw.seed, places, group, rounds[-1]) for draw in draws])
                theirs = (
                    np.stack([self.schedule.of_split(places, draw.split) for draw in draws]) if self.work.splits else places
                )
                for some, real_columns in parts(range(len(rates[0])), columns):
                    chosen = {name: values[:, np.array(some)] for name, values in named.items()}
                    stops = np.array(walk.stops, np.int32)
                    scores = personalise(walk.program, data, shared, theirs, rows, chosen, stops)
                    waiting.append((places[:real], slice(some[0], some[0] + real_columns), scores))
                    done = walk.stops[-1] * real * len(draws) * len(rates) * real_columns
                    self.work.report(done, f"testing after round {rounds[-1]}")

        def answer() -> Scores:
            first = np.asarray(waiting[0][2])
            shape = (len(first), len(self.sizes.training), len(rates), len(rates[0]), *first.shape[4:])
            everyone = np.empty(shape, first.dtype)
            for members, some, found in waiting:
                part = np.asarray(found)[:, : len(members), :, : some.stop - some.start]
                everyone[:, members, :, some] = part
            return everyone

        return answer

    def held(self, walk: Walk) -> float:
        """Bytes that one run of one client holds."""
        rows = self.work.features if walk.program.form == "head" else walk.program.width
        return (rows + walk.program.block * self.data.tested.positions) * COPIES * self.work.bytes_per_output

    def walk(self, client: Client, group: NDArray[np.intp], rounds: Sequence[int], passes: Sequence[int] | None) -> Walk:
        """The program for a group of clients."""
        work, server, largest = self.work, self.server, int(self.sizes.training[group].max())
        per_pass = -(-largest // server.batch)
        if client.stage is None:
            stops = [server.local_steps]
        elif client.epochs is None:
            stops = [client.steps]
        else:  # on its own a client trains as many passes as there are rounds
            stops = [end * per_pass for end in (rounds if server.alone else passes or ())]
        steps, stage = max(stops[-1], 1), client.stage or server.stage
        form = "head" if client.still else work.best_form(rounded(largest), steps * stage.gradients, server.batch)
        tested = max(int(self.sizes.tested[group].max()), 1)
        fits = fitting(BLOCK, work.bytes_per_output * self.data.tested.positions, tested)
        sizes = (rounded(largest), work.machine.together, tested, tested if form == "gram" else fits, work.filled, True)
        rate = "server_step" if client.stage is None else "local_step"
        program = Program(stage, rate, work.federation.task, form, *sizes)
        return Walk(program, steps, stops)

    def piece(self, walk: Walk, runs: int, seeds: int, most: int) -> int:
        """How many clients go into one piece, by memory and by the time it takes."""
        work, program = self.work, walk.program
        batch = min(self.server.batch, program.width)
        rows = work.features if program.form == "head" else program.width
        products = walk.steps * batch * self.data.tested.positions * rows * 2 * work.outputs * runs
        by_memory = work.machine.memory / (self.held(walk) * runs) if work.machine.together else np.inf
        fits = min(by_memory, ROWS / (4 * walk.steps * batch * seeds), PIECE[work.machine.together] / products)
        return fitting(fits, 1, most)

    def rows(
        self, client: Client, walk: Walk, seed: int, members: NDArray[np.int32], group: NDArray[np.intp], round_: int
    ) -> Rows:
        """(members, steps, 1, batch) of the client stage; where the server's stage gives the models, of that round."""
        sizes = self.sizes.training[members]
        if client.still:
            return np.full((len(members), 1, 1, 1), -1, np.int32)
        if client.stage is None:
            return self.schedule.rows(seed, members, np.full(len(members), round_), 0)
        batch = min(self.server.batch, walk.program.width)  # clients with less than a batch have no use for its other rows
        alone = self.server.alone and client.epochs is not None
        streams = mix(seed, PERSONAL, self.work.federation.identities[members], 0 if alone else round_)
        if client.epochs is None or walk.stops[-1] == 0:
            return batches(streams, sizes, 0, walk.steps, batch)[:, :, None]
        return epochs(streams, sizes, 0, client.epochs, batch, int(self.sizes.training[group].max()))[:, :, None]
