"""What an experiment found, from its run folder or from saved tables; its printed form."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from fedasym.algorithms.registry import REGISTRY
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array, TextTable, html_tables, json_value
from fedasym.core.runtime import is_url, write_file
from fedasym.experiments import describe_numbers, plan, tables
from fedasym.experiments.fields import Record, combinations
from fedasym.experiments.folder import DAMAGED, RunFolder, folder_class
from fedasym.experiments.pieces import Damaged, Finished, join_rows
from fedasym.experiments.plan import (
    GAINS,
    SEEDS,
    SPLITS,
    TUNING,
    Chosen,
    Piece,
    chosen_settings,
    cohort_of,
    count_planned_steps,
    gradients_per_step,
    validation_score,
)
from fedasym.experiments.reproduction import Foreseen, read_foresight
from fedasym.results import Result
from fedasym.training.comparisons import MARGIN, ClientValues, Comparisons, Measured, compare_finals
from fedasym.training.convergence import NEAR
from fedasym.training.histories import EDGES
from fedasym.training.wording import (
    HEADS,
    WIDTH,
    deviation_text,
    excess_text,
    fold_line,
    meanings,
    scaling_advice,
    seed_range,
    setting_text,
    smaller_steps,
    statistic_text,
)

if TYPE_CHECKING:
    from fedasym.experiments import Experiment


# statistics that are means over clients: the column, and whether test samples are the weights
BY_CLIENT = {
    "accuracy": ("accuracy", True),
    "loss": ("loss", True),
    "shared_accuracy": ("shared_accuracy", True),
    "shared_loss": ("shared_loss", True),
    "mean_accuracy": ("accuracy", False),
    "mean_loss": ("loss", False),
}
NEARLY_UNSTABLE = 1.2  # a step times the curvature; from 2 on it diverges
SWEEPS = {
    SEEDS: "seeds of training, same samples",
    SPLITS: "reshuffles of training and validation samples, same test samples",
}


def results_title(results: Results) -> str:
    """What was run, on what, in one line."""
    data, told = results.data, results.experiment.settings
    sizes = [
        f"{len(data.clients)} clients",
        *(f"{name} {count:,}" for name, count in data.counts.items()),
    ]
    what = [results.experiment.name, results.experiment.about.rstrip("."), *sizes]
    rules = [f"{told.rounds} rounds", *describe_rules(results.experiment)]
    return " · ".join(filter(None, [*what, *rules]))


def describe_rules(experiment: Experiment) -> list[str]:
    """The protocol with its intercept, and what else is not as usual."""
    told = experiment.settings
    usual = type(told)().precision
    precision = [] if told.precision == usual else [f"precision {told.precision}"]
    budget = told.privacy
    given = {} if budget is None else budget.model_dump(exclude_none=True, exclude_defaults=True)
    words = ", ".join(
        f"{name.replace('_', ' ')} {setting_text(each)}" for name, each in given.items()
    )
    private = [] if budget is None else [f"private: {words}"]
    return [f"protocol {told.rules.name}", *precision, *private]


def result_lines(results: Results) -> list[str]:
    """Everything that a results object prints."""
    out = fold_line(results_title(results))
    for table in results.printed_tables():
        out += ["", *textwrap.wrap(table.title, WIDTH), *table.lines()]
    statistics = (
        ("accuracy", "mean_accuracy", "worst_decile", "hurt")
        if results.task == "classification"
        else (("loss", "hurt", "excess"))
    )
    out += ["", *meanings(statistics)] if results.trials.height else []
    notes = [line for note in results.notes for line in textwrap.wrap(note, WIDTH)]
    return [*out, *(["", *notes] if notes else [])]


def chosen_table(results: Results) -> TextTable:
    """The settings that validation chose, out of how many."""
    name = validation_score(results.task)
    judged = results.task == "regression"
    excess = ["excess"] if judged else []
    head = ["algorithm", "tried", "diverged", "validation", *excess, "chosen settings"]
    rows = []
    for algorithm in results.experiment.algorithms:
        tried = [
            row for row in results.tuning.iter_rows(named=True) if row["algorithm"] == algorithm
        ]
        best = next((row for row in tried if row["chosen"]), None)
        score = "-" if best is None else statistic_text(name, best[name])
        settings = results.tuned.get(algorithm)
        failed = sum(row["diverged"] for row in tried)
        row = [algorithm, str(len(tried)), str(failed or "-"), score]
        row += (
            [statistic_text("excess", results.convergence(algorithm).get("excess", np.nan))]
            if judged
            else []
        )
        rows.append([*row, "none" if settings is None else describe_settings(settings)])
    what = "loss" if judged else "accuracy"
    title = (
        f"Chosen by validation {what} after the last round, seed 1; test samples choose nothing."
    )
    return TextTable(head, rows, title, last_left=True)


def describe_settings(settings: dict[str, Any]) -> str:
    """Settings in a line."""
    return (
        ", ".join(f"{name} {setting_text(value)}" for name, value in settings.items()) or "as given"
    )


def sweep_table(results: Results, sweep: str) -> TextTable | None:
    """The paper's table: pooled mean, deviation, worst to best, clients' mean, worst decile."""
    heads = HEADS[results.task]
    kept = [
        name
        for name in heads
        if not name.startswith("validation") and (name != "loss" or name == results.statistic)
    ]
    first, *others = sorted(kept, key=lambda name: name.startswith("shared"))
    finals = {name: results.finals(sweep, name) for name in kept}
    if not finals[first]:
        return None
    head = ["algorithm", heads[first], "± sd", "worst–best", *(heads[name] for name in others)]
    rows = []
    for algorithm, values in finals[first].items():
        row = [algorithm, statistic_text(first, float(values.mean()))]
        row += [deviation_text(first, values), seed_range(first, values)]
        row += [statistic_text(name, float(finals[name][algorithm].mean())) for name in others]
        rows.append(row)
    numbers = describe_numbers(getattr(results.experiment.trials, sweep))
    title = (
        f"{sweep.capitalize()} {numbers}: {SWEEPS[sweep]}; mean and standard deviation over trials"
        f" after round {results.experiment.settings.rounds}."
    )
    return TextTable(head, rows, title)


def gain_summary(results: Results) -> TextTable | None:
    """Mean accuracy (loss) after the last round by epochs of personalization."""
    gains, name = results.experiment.gains, results.statistic
    if gains is None or not results.gains.height:
        return None
    last = [
        row
        for row in results.gains.iter_rows(named=True)
        if row["round"] == results.experiment.settings.rounds
    ]
    head = ["algorithm", *("one batch" if each == "batch" else str(each) for each in gains.epochs)]
    rows = []
    for algorithm in dict.fromkeys(row["algorithm"] for row in last):
        values = [
            [
                row[name]
                for row in last
                if (row["algorithm"], row["epochs"]) == (algorithm, str(epochs))
            ]
            for epochs in gains.epochs
        ]
        rows.append(
            [
                algorithm,
                *(statistic_text(name, float(np.mean(each))) if each else "-" for each in values),
            ]
        )
    title = (
        f"Gains of personalization: {name} by epochs, mean over seeds"
        f" {describe_numbers(gains.seeds)}."
    )
    return TextTable(head, rows, title)


def omission_notes(results: Results) -> list[str]:
    """Algorithms without a choice, trials that diverged, and a missing baseline."""
    notes = []
    experiment = results.experiment
    data = results.data
    tuned = results.tuning.filter(results.tuning["chosen"])["algorithm"].to_list()
    for name in experiment.algorithms:
        tried = results.tuning.filter(results.tuning["algorithm"] == name)
        if name in tuned or not tried.height:
            continue
        mend = smaller_steps(
            data.out_of_scale or {}, 2 / data.curvature if data.curvature else None
        )
        reason = f"every configuration diverged: {mend}" if tried["diverged"].all() else (
            "no configuration has a finite validation score: are there validation samples?"
        )  # fmt: skip
        notes.append(f"Nothing is chosen for {name}, and it is left out of the trials: {reason}.")
    many = int(results.tuning["diverged"].sum())
    if 2 * many > results.tuning.height > 1 and tuned:
        mend = smaller_steps(
            data.out_of_scale or {}, 2 / data.curvature if data.curvature else None
        )
        notes.append(f"Most configurations diverged, {many} of {results.tuning.height}: {mend}.")
    failed = results.trials.filter(results.trials["diverged"])
    for sweep, name in dict.fromkeys(zip(failed["sweep"], failed["algorithm"], strict=True)):
        notes.append(f"Diverged in {sweep}: {name}; its mean over trials is then not a number.")
    alone = any(REGISTRY[name].shares_nothing for name in experiment.algorithms)
    if not alone and len(experiment.algorithms) > 1:
        notes.append('No baseline without sharing: add "local" to see whether sharing pays at all.')
    return notes


def convergence_notes(results: Results) -> list[str]:
    """Algorithms whose chosen settings did not converge; fine-tuning may be meant to stop early."""
    short: list[str] = []
    early: list[str] = []
    for name in results.tuned:
        found = results.convergence(name)
        own, shared = found.get("excess", np.nan), found.get("shared_excess", np.nan)
        if shared > NEAR and not own > NEAR:
            of_variance = f"{shared:.0%} of half the labels' variance above the exact one"
            short.append(f"{name}, whose shared model's training loss is {of_variance}")
        elif own > NEAR:
            tunes = REGISTRY[name].fine_tunes
            loss = excess_text(found["training_loss"], found["exact_loss"])
            (early if tunes and not shared > NEAR else short).append(
                f"{name}, whose training loss is {loss}"
            )
    notes = []
    if short:
        notes.append(
            f"Not converged: {'; '.join(short)}. What it loses by that is no property of the"
            " algorithm. Try more rounds or personal_epochs, larger steps,"
            f" {scaling_advice(results.data.out_of_scale or {})};"
            " fedasym fit (fa.linear.fit) solves it exactly."
        )
    if early:
        notes.append(
            f"Not converged in personalization: {'; '.join(early)}. Stopping early can be right,"
            " and validation chose it among the steps tried; more personal_epochs come nearer,"
            " fedasym fit (fa.linear.fit) is exact."
        )
    return notes


def edge_notes(results: Results) -> list[str]:
    """The steps and ridges that were chosen at the end of three or more values tried."""
    ends = []
    name = validation_score(results.task)
    sign = -1 if results.task == "regression" else 1
    for algorithm, settings in results.tuned.items():
        tried = [
            row
            for row in results.tuning.iter_rows(named=True)
            if row["algorithm"] == algorithm and not row["diverged"]
        ]
        best = max((sign * row[name] for row in tried if row["chosen"]), default=np.nan)
        for axis in EDGES:
            values = sorted(results.experiment.grid[algorithm].get(axis, ()))
            if len(values) < 3 or settings[axis] not in (values[0], values[-1]):
                continue
            if (
                axis != "ridge"
                and settings[axis] * (results.data.curvature or 0.0) > NEARLY_UNSTABLE
            ):
                continue  # what lies beyond diverges
            if best > max(
                (sign * row[name] for row in tried if row[axis] != settings[axis]), default=-np.inf
            ):
                side = "smallest" if settings[axis] == values[0] else "largest"
                ends.append(f"{algorithm} {axis} {setting_text(settings[axis])} ({side})")
    return (
        [
            "Chosen at the end of the values tried, so that the best may lie beyond:"
            f" {', '.join(ends)}."
        ]
        if ends
        else []
    )


@dataclass(frozen=True, eq=False, repr=False)
class Results(Result):
    """Tables of an experiment, polars frames, by `fedasym.run`, `fedasym.sweep` or from a folder.

    tuning: algorithm, the settings that were varied, validation_accuracy (regression:
        validation_loss), chosen, diverged.
    trials: sweep ("seeds" or "splits"), algorithm, trial, round, and the statistics of `History`,
        which says what they are.
    gains: algorithm, epochs ("0", "batch", "1", ...), trial, round, and the statistics.
    clients: sweep, algorithm, trial, client, samples, tested, accuracy, shared_accuracy, gain after
        the last round.
    tuned: the settings that validation chose, by algorithm.

    >>> import tempfile, fedasym as fa
    >>> data = fa.datasets.synthetic(
    ...     task="classification", clients=5, dimension=5, classes=2, aspect=0.5
    ... )
    >>> few = {"rounds": 2, "evaluate_every": 2, "local_steps": 2, "personal_epochs": 1}
    >>> tiny = fa.Experiment(
    ...     name="tiny", algorithms=["fedavg"], settings=few, grid={}, trials={"seeds": 2}
    ... )
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
    remarks: tuple[
        str, ...
    ] = ()  # what the run folder tells: unfinished or damaged pieces, several devices
    environment: Mapping[str, str] = field(default_factory=dict)  # what computed the last piece
    foreseen: Foreseen | None = None  # what the advisor said of the data, where it was asked
    folder: str | None = None  # the run folder, as a command names it; none for saved tables

    @classmethod
    def read(cls, folder: str | Path) -> Results:
        """The results in a run folder, a path or a URL, as far as they are finished."""
        run = folder_class(folder).open_existing(folder)
        experiment = run.experiment()
        data = run.data()
        task = data.task
        reader = RunReader(run, data)
        found = reader.read_finished(plan.tuning(experiment))
        rows = None if reader.missing else join_rows(found, TUNING, task)
        tuned = {} if rows is None else chosen_settings(experiment, rows, task)
        pieces = plan.trials(experiment, tuned)
        by_stage = {
            stage: join_rows(
                reader.read_finished([piece for piece in pieces if piece.stage == stage]),
                stage,
                task,
            )
            for stage in (SEEDS, SPLITS, GAINS)
        }
        sweeps = (SEEDS, SPLITS)
        trials = pl.concat([tables.trial_table(by_stage[sweep], sweep, task) for sweep in sweeps])
        clients = pl.concat([tables.client_table(by_stage[sweep], sweep, data) for sweep in sweeps])
        return cls(
            experiment=experiment,
            data=data,
            tuning=tables.tuning_table(experiment, rows, tuned, task),
            trials=tables.order_rows(trials, experiment),
            gains=tables.gain_table(experiment, by_stage[GAINS], task),
            clients=tables.order_rows(clients, experiment),
            tuned=tuned,
            remarks=tuple(reader.remarks()),
            environment=run.environment(),
            foreseen=read_foresight(run.path),
            folder=portable_folder(folder),
        )

    @classmethod
    def load(cls, folder: str | Path) -> Results:
        """The results that `save` wrote."""
        from fedasym.experiments.tables import load_tables

        return cls(**load_tables(Path(folder)))

    def save(self, folder: str | Path) -> Path:
        """Write the tables as small files, readable without the run; returns their folder."""
        from fedasym.experiments.tables import save_tables

        return save_tables(self, Path(folder))

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
        return (
            SEEDS if self.experiment.trials.seeds or not self.experiment.trials.splits else SPLITS
        )

    @property
    def best(self) -> str | None:
        """The algorithm with the best mean over trials; None while there are none."""
        means = {name: float(np.mean(values)) for name, values in self.finals(self.sweep).items()}
        known = {name: value for name, value in means.items() if np.isfinite(value)}
        if not known:
            return None
        return min(
            known, key=lambda name: known[name] if self.statistic == "loss" else -known[name]
        )

    def table(self) -> list[dict[str, Any]]:
        """A record per algorithm and sweep: mean, standard deviation, worst and best trial after
        the last round.
        """
        worst, best = (np.max, np.min) if self.statistic == "loss" else (np.min, np.max)
        return [
            {
                "sweep": sweep,
                "algorithm": name,
                self.statistic: float(np.mean(values)),
                "deviation": float(np.std(values, ddof=1)) if len(values) > 1 else float("nan"),
                "worst": float(worst(values)),
            }
            | {"best": float(best(values)), "trials": len(values), **self.tuned.get(name, {})}
            for sweep in (SEEDS, SPLITS)
            for name, values in self.finals(sweep).items()
        ]

    def plot(self, path: str | Path) -> Path:
        """Draw the trials' curves to a PNG, SVG or PDF file; returns where it is."""
        return write_file("draw results", self, path)

    def printed_tables(self) -> list[TextTable]:
        """What was chosen, and what came of it over seeds, over splits and by epochs."""
        found = [
            chosen_table(self),
            *(sweep_table(self, sweep) for sweep in SWEEPS),
            gain_summary(self),
        ]
        return [each for each in found if each is not None]

    def _repr_html_(self) -> str:
        return html_tables(self.printed_tables(), results_title(self), self.notes)

    @property
    def budget(self) -> list[str]:
        """What every algorithm was given: configurations, trials, rounds and steps."""
        return describe_budget(self.experiment, self.data)

    def finals(self, sweep: str, statistic: str | None = None) -> dict[str, Array]:
        """A statistic after the last round by algorithm, a number per trial; NaN if missing."""
        name = statistic or self.statistic
        if name not in self.trials.columns[4:-1]:
            raise InvalidInput(
                f"statistic is {name!r}: choose from {', '.join(self.trials.columns[4:-1])}"
            )
        numbers = getattr(self.experiment.trials, sweep)
        found: dict[str, dict[int, float]] = {}
        rounds = self.experiment.settings.rounds
        for row in self.trials.iter_rows(named=True):
            if row["sweep"] == sweep and row["round"] == rounds:
                found.setdefault(row["algorithm"], {})[row["trial"]] = row[name]
        return {
            each: np.array([values.get(number, np.nan) for number in numbers])
            for each, values in found.items()
        }

    def client_finals(self, sweep: str, statistic: str | None = None) -> dict[str, ClientValues]:
        """A statistic after the last round by algorithm, trial and client, with clients' weights.

        Of those that are a mean over clients; empty for the others, and where clients differ
        between trials.
        """
        name = statistic or self.statistic
        if name not in BY_CLIENT:
            return {}
        column, pooled = BY_CLIENT[name]
        numbers = getattr(self.experiment.trials, sweep)
        mine = self.clients.filter((pl.col("sweep") == sweep) & (pl.col("tested") > 0))
        if column not in mine.columns:
            return {}
        found: dict[str, ClientValues] = {}
        shapes = set()
        for (algorithm,), rows in mine.group_by("algorithm", maintain_order=True):
            by = rows.partition_by("trial", as_dict=True)
            if any((number,) not in by for number in numbers):
                return {}
            parts = [by[(number,)] for number in numbers]
            shapes.add(tuple(tuple(part["client"]) for part in parts))
            tested = parts[0]["tested"].to_numpy().astype(float)
            weights = tested if pooled else np.ones_like(tested)
            if any(not part["tested"].equals(parts[0]["tested"]) for part in parts):
                return {}
            values = np.stack([part[column].to_numpy() for part in parts])
            found[str(algorithm)] = ClientValues(values, weights / weights.sum())
        return found if len(shapes) == 1 else {}

    def comparison_values(self, sweep: str, statistic: str | None = None) -> dict[str, Measured]:
        """What algorithms are compared by, over two trials at least: by client where it is known.

        It is not known for the worst decile, nor where a trial is missing.
        """
        finals = self.finals(sweep, statistic)
        by_client = self.client_finals(sweep, statistic)
        found: dict[str, Measured] = {}
        for name, values in finals.items():
            if len(values) > 1:
                each = by_client.get(name)
                agree = each is not None and np.allclose(each.mean(), values, rtol=1e-6)
                found[name] = each if each is not None and agree else values
        return found

    def comparisons(
        self,
        pairs: Iterable[tuple[str, str]] | None = None,
        *,
        margin: float | None = None,
        statistic: str | None = None,
    ) -> Comparisons:
        """Paired tests of algorithms over trials and clients, of all pairs or of these:
        difference, interval, equivalence. Intervals count the test samples, and where they cannot
        the verdict says so.

        margin: what counts as the same, 0.005 (half a point) for accuracies; in regression no
            equivalence without one.
        statistic: pooled accuracy (regression: loss) after the last round unless named.
        """
        name = statistic or self.statistic
        default = None if name.endswith("loss") else MARGIN
        finals = {sweep: self.comparison_values(sweep, name) for sweep in (SEEDS, SPLITS)}
        return compare_finals(
            finals,
            pairs,
            default if margin is None else margin,
            "loss" if name.endswith("loss") else name,
        )

    def convergence(self, algorithm: str) -> dict[str, float]:
        """How far the chosen settings took training, in regression: the worst trial's
        training_loss, exact_loss, excess, ...

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
            if row["algorithm"] == algorithm
            and row.get("excess") is not None
            and not row["diverged"]
        ]
        known = [row for row in mine if not np.isnan(row["excess"])]
        return max(known, key=lambda row: row["excess"], default={})

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What a fair reader should know."""
        return (
            *self.remarks,
            *convergence_notes(self),
            *omission_notes(self),
            *edge_notes(self),
            *plan.describe_privacy(self.experiment, self.data),
        )

    def to_json(self) -> str:
        """Full precision: experiment, tuned, tuning, trials, gains, comparisons, budget, notes."""
        frames = {name: records(getattr(self, name)) for name in ("tuning", "trials", "gains")}
        sizes = {
            name: getattr(self.data, name)
            for name in ("task", "counts", "dimension", "outputs", "samples", "split")
        }
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
        return "\n".join(result_lines(self))

    __repr__ = __str__


def portable_folder(folder: str | Path) -> str:
    """A run folder as a command names it: from here, or by its name alone where it is elsewhere.

    >>> portable_folder("runs/mine"), portable_folder("/somewhere/else/mine")
    ('runs/mine', 'mine')
    """
    place = Path(folder)
    if is_url(folder) or not place.is_absolute():
        return str(folder)
    here = Path.cwd()
    return str(place.relative_to(here)) if place.is_relative_to(here) else place.name


def records(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """A table for JSON."""
    return [
        {
            name: json_value(value) if isinstance(value, float) else value
            for name, value in row.items()
        }
        for row in frame.iter_rows(named=True)
    ]


class RunReader:
    """Reads finished pieces and remembers what it met."""

    def __init__(self, folder: RunFolder, data: Record) -> None:
        self.folder, self.data = folder, data
        self.missing = self.damaged = 0
        self.keys: set[str] = set()
        self.devices: set[str] = set()

    def read_finished(self, pieces: list[Piece]) -> list[Finished]:
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
                f"Unfinished: {self.missing} of the {len(self.keys)} pieces planned so far are"
                f" missing{damaged}; run the experiment again, it goes on from here."
            )
        again = {
            entry.key
            for entry in self.folder.log()
            if entry.event == DAMAGED and entry.key in self.keys
        }
        if again and not self.damaged:
            told.append(
                f"Damaged on the disk and computed again: {len(again)} of {len(self.keys)} pieces."
            )
        if len(self.devices) > 1:
            told.append(
                f"Computed in part on {' and in part on '.join(sorted(self.devices))}: these may"
                " round differently."
            )
        return told


def describe_budget(experiment: Experiment, data: Record) -> list[str]:
    """What each algorithm was given, and whether that differs."""
    told = experiment.settings.model_dump()
    lines = []
    tried = {}
    trials = {"seeds": experiment.trials.seeds, "splits": experiment.trials.splits}
    held = [f"{kind} {describe_numbers(numbers)}" for kind, numbers in trials.items() if numbers]
    repeats = " and ".join(held) or "no trials"
    for name, axes in experiment.grid.items():
        tried[name] = len(combinations(axes))
        shared, personal = count_planned_steps(name, told, data)
        each = gradients_per_step(name, told["inner_steps"])
        parts = []
        if shared:
            clients = cohort_of(told, data)
            sizes = f"{told['rounds']} rounds of {clients} clients with {told['local_steps']} steps"
            more = f", of {each} gradients each" if each > 1 else ""
            parts.append(f"{sizes}, {shared:,} in all{more}")
        if personal:
            epochs = told["rounds"] if REGISTRY[name].shares_nothing else told["personal_epochs"]
            parts.append(f"{epochs} epochs of each client's own, {personal:,} steps in all")
        tuned = "one configuration, not tuned"
        if tried[name] > 1:
            tuned = f"{tried[name]} configurations tried with seed 1"
        given = f"{name}: {tuned}, then {repeats}"
        lines.append(f"{given}; a run takes {'; '.join(parts) or 'no steps'}.")
    if len(set(tried.values())) > 1:
        most, least = (end(tried, key=lambda name: tried[name]) for end in (max, min))
        counts = f"{most} {tried[most]} and {least} {tried[least]} configurations"
        lines.append(
            f"Tuning budgets differ, {counts}: the comparison favours those that tried more."
        )
    return lines
