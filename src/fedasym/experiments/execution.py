"""The verb `run`: an experiment's pieces, one after the other, in a folder that cannot be lost; then its results."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedasym.algorithms import TRAINED
from fedasym.errors import InvalidInput
from fedasym.experiments import budget, plan
from fedasym.experiments.computing import computed, environment
from fedasym.experiments.data import Record, load, recorded, reshuffled
from fedasym.experiments.folder import COMPUTED, DAMAGED, ENVIRONMENT, RunFolder
from fedasym.experiments.pacing import Pace, Progress
from fedasym.experiments.pieces import Damaged, Finished, write_text
from fedasym.experiments.plan import Piece
from fedasym.experiments.results import Results
from fedasym.experiments.selection import chosen
from fedasym.experiments.tables import joined
from fedasym.federations.federation import Federation

if TYPE_CHECKING:
    from fedasym.experiments.spec import Experiment

POLL = 0.2  # seconds between two looks at pieces that other processes hold
RUNS = "runs"  # the folder of run folders


def run(
    experiment: Experiment | str | Path,
    federation: Federation | None = None,
    *,
    into: str | Path | None = None,
    progress: Progress | None = None,
) -> Results:
    """Tune, repeat and compare: run what is missing of an experiment, and return its results.

    Every finished piece is kept in the folder at once; run again, after whatever interruption, it goes on with the next.
    Several processes may run the same experiment into the same folder: each piece is computed by one of them.

    experiment: an `Experiment`, or the path of its file. federation: the data, instead of those that the experiment names.
    into: the run folder, `runs/<name>` unless given. progress: called with the share that is done and a few words.

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

    if not isinstance(experiment, Experiment):
        experiment = Experiment.from_toml(experiment)
    if federation is not None and not isinstance(federation, Federation):
        raise InvalidInput(f"federation is a {type(federation).__name__}: make one of your data with fa.Federation.from_arrays")
    clients = load(experiment.data) if federation is None else federation
    data = recorded(clients, experiment.trials.splits)
    check_cohort(experiment, data)
    folder = RunFolder.prepared(Path(RUNS, experiment.name) if into is None else into, experiment, data)
    work = Worker(clients, data, folder, progress)
    tuning = plan.tuning(experiment)
    # The trials' pieces are known once tuning is done; until then others of the same size stand for them.
    work.expect([*tuning, *plan.trials(experiment, plan.placeholder(experiment))])
    rows = joined(work.complete(tuning), plan.TUNING, data.task)
    trials = plan.trials(experiment, chosen(experiment, rows, data.task))
    work.expect([*tuning, *trials])
    work.complete(trials)
    if progress:
        progress(1.0, "done")
    return Results.read(folder.path)


def check_cohort(experiment: Experiment, data: Record) -> None:
    """Refuse before any work what `train` would refuse in the middle of it."""
    cohort, able = experiment.settings.cohort, sum(n > 0 for n in data.training)
    alone = all(TRAINED[name].shares_nothing for name in experiment.algorithms)
    if cohort is not None and cohort > able and not alone:
        raise InvalidInput(
            f"settings.cohort is {cohort}, and {able} clients have training samples: give at most that many, or leave it out"
        )


class Worker:
    """One process at work on a run folder."""

    def __init__(self, federation: Federation, data: Record, folder: RunFolder, progress: Progress | None) -> None:
        self.federation, self.data, self.folder = federation, data, folder
        self.environment: dict[str, str] | None = None
        self.splits: tuple[int | None, Federation] = (None, federation)  # the one in use: all together may be large
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
        try:
            if (held := self.folder.piece(key)) is not None:
                return held
        except Damaged:
            pass  # looked at again under its lock, where nobody else mends it
        with self.folder.lock(key) as mine:
            if not mine:
                return None
            try:
                if (held := self.folder.piece(key)) is not None:
                    return held
            except Damaged as reason:
                text = f"piece {key[:12]} is damaged, {reason}: it is computed again ({piece.title})"
                self.folder.say(DAMAGED, key, text)
                self.pace.say(text)
            return self.compute(key, piece)

    def compute(self, key: str, piece: Piece) -> Finished:
        """Train, and keep what came of it."""
        if self.environment is None:
            self.environment = environment()
            write_text(self.folder.path / ENVIRONMENT, json.dumps(self.environment, indent=2) + "\n")
        if piece.split != self.splits[0]:
            self.splits = piece.split, reshuffled(self.federation, piece.split)
        self.pace.say(piece.title, key)
        start = time.monotonic()
        frame = computed(piece, self.splits[1], lambda share, text: self.pace.say(f"{piece.title}, {text}", key, share))
        made = self.environment | {"seconds": round(time.monotonic() - start, 3)}
        self.folder.add(key, frame, piece.description(self.data), made)
        self.folder.say(COMPUTED, key, f"{piece.title}, {made['seconds']:.2f} s")
        return Finished(frame, made)
