"""What is computed on Ray: the pieces of an experiment, and the trials of a simulation.

A piece is a task that reads the data in its node's memory and sends back its rows. The driver alone holds locks and writes to
the run folder, through the same atomic files as a run in one process: whatever dies, finished pieces are there, and a piece
that comes back is written once. A trial is a task that draws from its own seed, so that its numbers are those of one process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from fedasym.core.hooks import Notice, Progress
from fedasym.data.federation.federation import Federation
from fedasym.deploy.ray import Ray
from fedasym.deploy.ray.pool import Task, TaskPool, TaskProgress, join_cluster, ray_package
from fedasym.experiments.data import Record
from fedasym.experiments.execution import Worker
from fedasym.experiments.folder import LOST, Finished, RunFolder
from fedasym.experiments.plan import Piece
from fedasym.experiments.tables import command_line, compute_piece, describe_environment
from fedasym.results.simulation import Losses
from fedasym.verbs.trials import Plan, one_trial

COPIES = 3  # of the data in a piece at work, packed and on the way there: benchmarks/ray_scale.py
_HELD: dict[str, Federation] = {}  # in a worker: the data that it used last


@contextmanager
def open_pool(settings: Ray, federation: Federation) -> Iterator[TaskPool]:
    """Hands on a cluster, each with room for these data."""
    size = sum(array.nbytes for array in vars(portable_data(federation)).values() if isinstance(array, np.ndarray))
    with join_cluster(settings, size), TaskPool(settings, settings.memory_for(COPIES * size)) as pool:
        yield pool


def portable_data(federation: Federation) -> Federation:
    """The data as they travel: arrays in one stretch, which workers read where they lie; what generated them stays here."""
    return replace(federation, features=np.ascontiguousarray(federation.features), truth=None)


def read_data(data: list[Any]) -> Federation:
    """In a worker: the data, read from the node's memory once, so that what training keeps beside them is kept too."""
    (reference,) = data
    if reference.hex() not in _HELD:
        _HELD.clear()
        _HELD[reference.hex()] = ray_package().get(reference)
    return _HELD[reference.hex()]


def piece_rows(data: list[Any], piece: Piece, by: str, heard: TaskProgress) -> tuple[Any, dict[str, str], float]:
    """In a worker: the rows of a piece, what computed them, and in how many seconds."""
    federation = read_data(data)
    start = time.monotonic()
    frame = compute_piece(piece, federation, heard)
    return frame, describe_environment() | {"command": by}, time.monotonic() - start


class Crew(Worker):
    """A driver at work on a run folder: it hands pieces to a cluster, and keeps what comes back."""

    def __init__(
        self, pool: TaskPool, federation: Federation, data: Record, folder: RunFolder, progress: Progress | None
    ) -> None:
        super().__init__(federation, data, folder, progress)
        self.pool = pool
        self.stored = [
            pool.ray.put(portable_data(federation))
        ]  # in a list: a bare reference would be read anew for every piece
        self.locks: dict[str, ExitStack] = {}  # of the pieces that are out

    def complete(self, pieces: Sequence[Piece]) -> list[Finished]:
        """Have all of these pieces: from the cluster, or from other processes that share the folder."""
        keyed = {piece.key(self.data): piece for piece in pieces}
        finished: dict[str, Finished] = {}
        try:
            while len(finished) < len(keyed):
                fresh = self.handed_out({key: piece for key, piece in keyed.items() if key not in finished})
                fresh |= self.brought_back(keyed)
                for key, piece in fresh.items():
                    self.pace.finished(key, piece.made["seconds"])
                finished |= fresh
                self.tell({key: piece for key, piece in keyed.items() if key not in finished})
        finally:
            while self.locks:
                self.locks.popitem()[1].close()
        return [finished[key] for key in keyed]

    def handed_out(self, wanted: dict[str, Piece]) -> dict[str, Finished]:
        """Hand out as many pieces as there is room for; those that are there already."""
        there = {}
        for key, piece in wanted.items():
            if not self.pool.room():
                break
            if key not in self.locks and (held := self.piece(key, piece)) is not None:
                there[key] = held
        return there

    def piece(self, key: str, piece: Piece) -> Finished | None:
        """A piece that is there; otherwise it is handed out, unless another process has it."""
        if (there := self.found(key)) is not None:
            return there
        with ExitStack() as stack:
            if not stack.enter_context(self.folder.lock(key)):
                return None
            if (there := self.found(key, piece)) is not None:
                return there
            self.locks[key] = stack.pop_all()  # held until the piece is written
        self.pool.hand_out(Task(key, piece_rows, (self.stored, piece, command_line())))
        return None

    def brought_back(self, keyed: dict[str, Piece]) -> dict[str, Finished]:
        """Keep what came back from the cluster; of what was lost on the way, say so."""

        def lost(key: str, why: str) -> None:
            self.say(LOST, key, f"piece {key[:12]} was lost, {why}: it is computed again ({keyed[key].title})")

        kept = {}
        for key, (frame, by, seconds) in self.pool.returned(lost):
            kept[key] = self.keep(key, keyed[key], frame, by, seconds)
            self.locks.pop(key).close()
        return kept

    def tell(self, wanted: dict[str, Piece]) -> None:
        """Say how far all are, and in words how far one is."""
        begun = self.pool.begun
        self.pace.hands = max(min(self.pool.hands, len(wanted)), 1)
        if begun:
            key, (_, text) = max(begun.items(), key=lambda item: item[1][0])
            words = f"{wanted[key].title}, {text}".removesuffix(", ")
            self.pace.say(f"{len(begun)} at work · {words}", {each: share for each, (share, _) in begun.items()})
        elif wanted:
            self.pace.say("waiting for workers" if self.pool.out else f"waiting for {len(wanted)} of another process")


Place = tuple[int, int]  # a point of what varies, and a trial


def trial_losses(stored: list[Any], mode: str, place: Place, heard: TaskProgress) -> Losses:
    """In a worker: every algorithm's losses in one trial."""
    point, trial = place
    plan = ray_package().get(stored[0])[point]
    return one_trial(plan, mode, trial, lambda share: heard(share, ""))


def run_trials(
    settings: Ray,
    plans: Sequence[Plan],
    mode: str,
    places: Sequence[Place],
    size: int,
    add: Callable[[int, int, Losses], None],
    progress: Progress | None,
) -> None:
    """Have these trials computed, and added as they come back; `size`: bytes of one's matrices."""
    named = {f"{point}.{trial}": (point, trial) for point, trial in places}
    waiting = list(reversed(named))
    told = progress or (lambda share, text: None)

    def lost(key: str, why: str) -> None:
        told(done / len(named), Notice(f"a trial was lost, {why}: it is computed again"))

    with join_cluster(settings, size), TaskPool(settings, settings.memory_for(size)) as pool:
        stored = [pool.ray.put(list(plans))]
        done = 0
        while done < len(named):
            while waiting and pool.room():
                key = waiting.pop()
                pool.hand_out(Task(key, trial_losses, (stored, mode, named[key])))
            for key, losses in pool.returned(lost):
                add(*named[key], losses)
                done += 1
            begun = sum(share for share, _ in pool.begun.values())
            told((done + begun) / len(named), f"{done} of {len(named)} trials, {len(pool.begun)} at work")
