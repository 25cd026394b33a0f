"""The verb `run`: an experiment's pieces, computed here or on a cluster, in a folder that cannot be lost; then its results."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fedasym.algorithms.registry import REGISTRY
from fedasym.core.errors import InvalidInput, path_of
from fedasym.core.hooks import Executor, Notice, Progress, ask, check_progress
from fedasym.data.federation.federation import Federation, check_federation
from fedasym.experiments import budget, plan
from fedasym.experiments.computing import computed, environment
from fedasym.experiments.data import Record, load, recorded
from fedasym.experiments.folder import COMPUTED, DAMAGED, ENVIRONMENT, RunFolder
from fedasym.experiments.pacing import Pace
from fedasym.experiments.pieces import Damaged, Finished
from fedasym.experiments.plan import Piece
from fedasym.experiments.remote import kind_of
from fedasym.experiments.reproduction import RUNS
from fedasym.experiments.results import Results
from fedasym.experiments.selection import chosen
from fedasym.experiments.tables import joined

if TYPE_CHECKING:
    import polars as pl

    from fedasym.experiments.spec import Experiment

POLL = 0.2  # seconds between two looks at pieces that other processes hold


def run(
    experiment: Experiment | str | Path,
    federation: Federation | None = None,
    *,
    into: str | Path | None = None,
    progress: Progress | None = None,
    on: Executor | str | None = None,
) -> Results:
    """Tune, repeat and compare: run what is missing of an experiment, and return its results.

    Every finished piece is kept in the folder at once; run again, after whatever interruption, it goes on with the next.
    Several processes may run the same experiment into the same folder: each piece is computed by one of them.

    experiment: an `Experiment`, or the path of its file. federation: the data, instead of those that the experiment names.
    into: the run folder, `runs/<name>` unless given; a path, or a URL that fsspec knows.
    progress: called with the share that is done and a few words.
    on: "ray", or a `fedasym.runtimes.Ray` that says where and with what: pieces are computed on a cluster, side by side.

    >>> import tempfile, fedasym as fa
    >>> data = fa.datasets.synthetic(task="classification", clients=5, dimension=5, classes=2, aspect=0.5)
    >>> few = {"rounds": 2, "evaluate_every": 2, "local_steps": 2, "personal_epochs": 1}
    >>> tiny = fa.Experiment(name="tiny", algorithms=["fedavg", "ftfa"], settings=few, grid={"server_step": [0.1, 1]},
    ...                      trials={"seeds": 2})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = fa.run(tiny, data, into=folder)
    >>> sorted(results.tuned), results.trials.height
    (['fedavg', 'ftfa'], 8)
    """
    from fedasym.experiments.spec import Experiment

    check_progress(progress)
    REGISTRY.read_packages()
    if not isinstance(experiment, Experiment):
        experiment = Experiment.from_toml(path_of("experiment", experiment))
    if federation is not None:
        check_federation(federation)
    ray = None if on is None else ask("read executor")(on)
    clients = load(experiment.data) if federation is None else federation
    experiment = experiment.settled_on(clients)
    data = recorded(clients, experiment.trials.splits)
    check_cohort(experiment, data)
    place = Path(RUNS, experiment.name) if into is None else into if isinstance(into, str) else path_of("into", into)
    with ExitStack() as stack:
        make: Callable[..., Worker] = Worker
        if ray is not None:  # joined before the folder is touched: a wrong address leaves nothing behind
            make = partial(ask("make crew"), stack.enter_context(ask("open pool for pieces")(ray, clients)))
        folder = kind_of(place).prepared(place, experiment, data)
        stack.callback(folder.close)
        return completed(experiment, make(clients, data, folder, progress))


def completed(experiment: Experiment, work: Worker) -> Results:
    """Tuning, what it chose, and the trials of that."""
    tuning = plan.tuning(experiment)
    # The trials' pieces are known once tuning is done; until then others of the same size stand for them.
    work.expect([*tuning, *plan.trials(experiment, plan.placeholder(experiment))])
    task = work.data.task
    rows = joined(work.complete(tuning), plan.TUNING, task)
    trials = plan.trials(experiment, chosen(experiment, rows, task))
    work.expect([*tuning, *trials])
    work.complete(trials)
    if work.pace.tell:
        work.pace.tell(1.0, "done")
    return Results.read(work.folder.path)


def check_cohort(experiment: Experiment, data: Record) -> None:
    """Refuse before any work what `train` would refuse in the middle of it."""
    cohort, able = experiment.settings.cohort, sum(n > 0 for n in data.training)
    alone = all(REGISTRY[name].shares_nothing for name in experiment.algorithms)
    if cohort is not None and cohort > able and not alone:
        raise InvalidInput(
            f"settings.cohort is {cohort}, and {able} clients have training samples: give at most that many, or leave it out"
        )


class Worker:
    """One process at work on a run folder."""

    def __init__(self, federation: Federation, data: Record, folder: RunFolder, progress: Progress | None) -> None:
        self.federation, self.data, self.folder = federation, data, folder
        self.environment: dict[str, str] | None = None  # of the last piece that was computed
        self.pace = Pace({}, progress)

    def expect(self, pieces: Sequence[Piece]) -> None:
        """Measure the pace against these pieces."""
        self.pace.planned = {
            piece.key(self.data): (f"{piece.stage} {' '.join(piece.grid)}", budget.work(piece, self.data)) for piece in pieces
        }

    def complete(self, pieces: Sequence[Piece]) -> list[Finished]:
        """Have all of these pieces: computed here, or by other processes, whose pieces are waited for at the end."""
        finished: dict[str, Finished] = {}
        keyed = {piece.key(self.data): piece for piece in pieces}
        while len(finished) < len(keyed):
            before = len(finished)
            for key, piece in keyed.items():
                if key not in finished and (held := self.piece(key, piece)) is not None:
                    finished[key] = held
                    self.pace.finished(key, held.made["seconds"])
            if len(finished) == before:
                self.pace.say(f"waiting for {len(keyed) - before} of another process")
                time.sleep(POLL)
        return [finished[key] for key in keyed]

    def piece(self, key: str, piece: Piece) -> Finished | None:
        """A piece, found or computed; None while another process has it."""
        if (held := self.found(key)) is not None:
            return held
        with self.folder.lock(key) as mine:
            return (self.found(key, piece) or self.compute(key, piece)) if mine else None

    def found(self, key: str, piece: Piece | None = None) -> Finished | None:
        """A finished piece, if there is one; the lock's holder names the piece, and is told if it is damaged."""
        try:
            return self.folder.piece(key)
        except Damaged as reason:
            if piece is not None:
                self.say(DAMAGED, key, f"piece {key[:12]} is damaged, {reason}: it is computed again ({piece.title})")
            return None

    def compute(self, key: str, piece: Piece) -> Finished:
        """Train, and keep what came of it."""
        made = self.environment or environment()
        self.pace.say(piece.title)
        start = time.monotonic()
        frame = computed(piece, self.federation, lambda share, text: self.pace.say(f"{piece.title}, {text}", {key: share}))
        return self.keep(key, piece, frame, made, time.monotonic() - start)

    def keep(self, key: str, piece: Piece, frame: pl.DataFrame, by: dict[str, str], seconds: float) -> Finished:
        """Keep what came of a piece, and what computed it."""
        if by != self.environment:
            self.environment = by
            self.folder.write(ENVIRONMENT, json.dumps(by, indent=2) + "\n")
        made = by | {"seconds": round(seconds, 3)}
        self.folder.add(key, frame, piece.description(self.data), made)
        self.folder.say(COMPUTED, key, f"{piece.title}, {seconds:.2f} s")
        return Finished(frame, made)

    def say(self, event: str, key: str, text: str) -> None:
        """Tell what happened to a piece, in the log and at once."""
        self.folder.say(event, key, text)
        self.pace.say(Notice(text))
