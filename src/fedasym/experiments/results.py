"""What an experiment found, from its run folder alone, or from the small tables that were saved of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput
from fedasym.core.hooks import write_file
from fedasym.core.text import json_value as plain
from fedasym.experiments import budget, plan, tables
from fedasym.experiments.comparisons import MARGIN, Comparisons, compared
from fedasym.experiments.data import Record
from fedasym.experiments.folder import DAMAGED, RunFolder
from fedasym.experiments.foresight import Foreseen, foreseen_in
from fedasym.experiments.pieces import Damaged, Finished
from fedasym.experiments.plan import GAINS, SEEDS, SPLITS, TUNING, Chosen, Piece
from fedasym.experiments.printing import edges, left_out, lines, not_converged
from fedasym.experiments.remote import kind_of
from fedasym.experiments.selection import chosen
from fedasym.results.result import Result

if TYPE_CHECKING:
    from fedasym.experiments.spec import Experiment


@dataclass(frozen=True, eq=False, repr=False)
class Results(Result):
    """Tables of an experiment, polars frames; made by `fedasym.run` and `fedasym.sweep`, or read from a folder.

    tuning: algorithm, the settings that were varied, validation_accuracy (regression: validation_loss), chosen, diverged.
    trials: sweep ("seeds" or "splits"), algorithm, trial, round, and the statistics of `History`, which says what they are.
    gains: algorithm, epochs ("0", "batch", "1", ...), trial, round, and the statistics.
    clients: sweep, algorithm, trial, client, samples, tested, accuracy, shared_accuracy, gain after the last round.
    tuned: the settings that validation chose, by algorithm.

    >>> import tempfile, fedasym as fa
    >>> data = fa.datasets.synthetic(task="classification", clients=5, dimension=5, classes=2, aspect=0.5)
    >>> few = {"rounds": 2, "evaluate_every": 2, "local_steps": 2, "personal_epochs": 1}
    >>> tiny = fa.Experiment(name="tiny", algorithms=["fedavg"], settings=few, grid={}, trials={"seeds": 2})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = fa.run(tiny, data, into=folder + "/run")
    ...     again = Results.load(results.save(folder + "/tables"))
    >>> again.trials.equals(results.trials), again.clients.height
    (True, 10)
    """

    experiment: Experiment
    data: Record
    tuning: pl.DataFrame
    trials: pl.DataFrame
    gains: pl.DataFrame
    clients: pl.DataFrame
    tuned: Chosen
    remarks: tuple[str, ...] = ()  # what the run folder tells: unfinished or damaged pieces, several devices
    environment: Mapping[str, str] = field(default_factory=dict)  # what computed the last piece
    foreseen: Foreseen | None = None  # what the advisor said of the data, where it was asked

    @classmethod
    def read(cls, folder: str | Path) -> Results:
        """The results in a run folder, a path or a URL, as far as they are finished."""
        run = kind_of(folder).existing(folder)
        experiment, data = run.experiment(), run.data()
        task, reader = data.task, Reader(run, data)
        found = reader.finished(plan.tuning(experiment))
        rows = None if reader.missing else tables.joined(found, TUNING, task)
        tuned = {} if rows is None else chosen(experiment, rows, task)
        pieces = plan.trials(experiment, tuned)
        by_stage = {
            stage: tables.joined(reader.finished([piece for piece in pieces if piece.stage == stage]), stage, task)
            for stage in (SEEDS, SPLITS, GAINS)
        }
        sweeps = (SEEDS, SPLITS)
        trials = pl.concat([tables.trial_table(by_stage[sweep], sweep, task) for sweep in sweeps])
        clients = pl.concat([tables.client_table(by_stage[sweep], sweep, data) for sweep in sweeps])
        return cls(
            experiment=experiment,
            data=data,
            tuning=tables.tuning_table(experiment, rows, tuned, task),
            trials=tables.ordered(trials, experiment),
            gains=tables.gain_table(experiment, by_stage[GAINS], task),
            clients=tables.ordered(clients, experiment),
            tuned=tuned,
            remarks=tuple(reader.remarks()),
            environment=run.environment(),
            foreseen=foreseen_in(run.path),
        )

    @classmethod
    def load(cls, folder: str | Path) -> Results:
        """The results that `save` wrote."""
        from fedasym.experiments.saving import loaded

        return cls(**loaded(Path(folder)))

    def save(self, folder: str | Path) -> Path:
        """Write the tables as small files that can be committed and read without the run; returns the folder."""
        from fedasym.experiments.saving import saved

        return saved(self, Path(folder))

    @property
    def task(self) -> str:
        """Classification or regression."""
        return self.data.task

    @property
    def statistic(self) -> str:
        """What algorithms are compared by: pooled accuracy, in regression loss."""
        return "loss" if self.task == "regression" else "accuracy"

    @property
    def sweep(self) -> str:
        """The trials that stand for the results: over seeds, or else over splits."""
        return SEEDS if self.experiment.trials.seeds or not self.experiment.trials.splits else SPLITS

    @property
    def best(self) -> str | None:
        """The algorithm with the best mean over trials; None while there are none."""
        means = {name: float(np.mean(values)) for name, values in self.finals(self.sweep).items()}
        known = {name: value for name, value in means.items() if np.isfinite(value)}
        if not known:
            return None
        return min(known, key=lambda name: known[name] if self.statistic == "loss" else -known[name])

    def table(self) -> list[dict[str, Any]]:
        """One record per algorithm and sweep: the mean of what it is compared by after the last round, worst and best trial."""
        worst, best = (np.max, np.min) if self.statistic == "loss" else (np.min, np.max)
        return [
            {"sweep": sweep, "algorithm": name, self.statistic: float(np.mean(values)), "worst": float(worst(values))}
            | {"best": float(best(values)), "trials": len(values), **self.tuned.get(name, {})}
            for sweep in (SEEDS, SPLITS)
            for name, values in self.finals(sweep).items()
        ]

    def plot(self, path: str | Path) -> Path:
        """Draw the curves of the trials to a file (PNG, SVG or PDF by its ending); returns where it is."""
        return write_file("draw results", self, path)

    @property
    def budget(self) -> list[str]:
        """What every algorithm was given, in sentences: configurations, trials, rounds and steps."""
        return budget.sentences(self.experiment, self.data)

    def finals(self, sweep: str, statistic: str | None = None) -> dict[str, Array]:
        """A statistic after the last round, a number per trial, by algorithm; trials that are not there are NaN."""
        name = statistic or self.statistic
        if name not in self.trials.columns[4:-1]:
            raise InvalidInput(f"statistic is {name!r}: there are {', '.join(self.trials.columns[4:-1])}")
        numbers = getattr(self.experiment.trials, sweep)
        found: dict[str, dict[int, float]] = {}
        rounds = self.experiment.settings.rounds
        for row in self.trials.iter_rows(named=True):
            if row["sweep"] == sweep and row["round"] == rounds:
                found.setdefault(row["algorithm"], {})[row["trial"]] = row[name]
        return {each: np.array([values.get(number, np.nan) for number in numbers]) for each, values in found.items()}

    def comparisons(
        self, pairs: Iterable[tuple[str, str]] | None = None, *, margin: float | None = None, statistic: str | None = None
    ) -> Comparisons:
        """Paired tests of algorithms over trials, of all pairs or of these: difference, interval, equivalence.

        margin: what counts as the same, 0.005 (half a point) for accuracies; in regression no equivalence without one.
        statistic: pooled accuracy (regression: loss) after the last round unless named.
        """
        name = statistic or self.statistic
        default = None if name.endswith("loss") else MARGIN
        finals = {sweep: self.finals(sweep, name) for sweep in (SEEDS, SPLITS)}
        return compared(finals, pairs, default if margin is None else margin, "loss" if name.endswith("loss") else name)

    def judged(self, algorithm: str) -> dict[str, float]:
        """How far the chosen settings took training, in regression: the worst trial's training_loss, exact_loss, excess, ...

        Before any trial, as tuning found it; empty where that is not known.
        """
        last = self.experiment.settings.rounds
        rows = [
            *(row for row in self.trials.iter_rows(named=True) if row["round"] == last),
            *(row for row in self.tuning.iter_rows(named=True) if row["chosen"]),
        ]
        mine = [
            {name: np.nan if row[name] is None else float(row[name]) for name in plan.JUDGED}
            for row in rows
            if row["algorithm"] == algorithm and row.get("excess") is not None and not row["diverged"]
        ]
        known = [row for row in mine if not np.isnan(row["excess"])]
        return max(known, key=lambda row: row["excess"], default={})

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What a fair reader should know."""
        return (*self.remarks, *not_converged(self), *left_out(self), *edges(self))

    def to_json(self) -> str:
        """Full precision: experiment, tuned, tuning, trials, gains, comparisons, budget, notes; not by client."""
        frames = {name: records(getattr(self, name)) for name in ("tuning", "trials", "gains")}
        sizes = {name: getattr(self.data, name) for name in ("task", "counts", "dimension", "outputs", "samples", "split")}
        held = {
            "experiment": self.experiment.model_dump(exclude_none=True),
            "data": sizes | {"clients": len(self.data.clients)},
            "tuned": self.tuned,
            **frames,
            "comparisons": json.loads(self.comparisons().to_json()),
            "budget": self.budget,
            "notes": list(self.notes),
        }
        return json.dumps(held, indent=2)

    def __str__(self) -> str:
        return "\n".join(lines(self))

    __repr__ = __str__


def records(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """A table for JSON."""
    return [
        {name: plain(value) if isinstance(value, float) else value for name, value in row.items()}
        for row in frame.iter_rows(named=True)
    ]


class Reader:
    """Reads finished pieces and remembers what it met."""

    def __init__(self, folder: RunFolder, data: Record) -> None:
        self.folder, self.data = folder, data
        self.missing = self.damaged = 0
        self.keys: set[str] = set()
        self.devices: set[str] = set()

    def finished(self, pieces: list[Piece]) -> list[Finished]:
        """Those of the pieces that are finished and whole."""
        found = []
        for piece in pieces:
            key = piece.key(self.data)
            self.keys.add(key)
            try:
                held = self.folder.piece(key)
            except Damaged:
                self.damaged += 1
                held = None
            if held is None:
                self.missing += 1
            else:
                found.append(held)
                self.devices.add(f"{held.made['device']}, jax {held.made['jax']}")
        return found

    def remarks(self) -> list[str]:
        """What a reader should know of the folder."""
        told = []
        if self.missing:
            damaged = f", {self.damaged} of them damaged" if self.damaged else ""
            told.append(
                f"Unfinished: {self.missing} of the {len(self.keys)} pieces planned so far are missing{damaged}; "
                "run the experiment again, it goes on from here."
            )
        again = {entry.key for entry in self.folder.log() if entry.event == DAMAGED and entry.key in self.keys}
        if again and not self.damaged:
            told.append(f"Damaged on the disk and computed again: {len(again)} of {len(self.keys)} pieces.")
        if len(self.devices) > 1:
            told.append(f"Computed in part on {' and in part on '.join(sorted(self.devices))}: these may round differently.")
        return told
