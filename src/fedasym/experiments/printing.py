"""Results as text: what was chosen, the paper's table for seeds and splits, the gains of personalization, and notes."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from fedasym.algorithms.registry import REGISTRY
from fedasym.experiments.plan import SEEDS, SPLITS
from fedasym.experiments.selection import validated_by
from fedasym.experiments.wording import flush, spoken
from fedasym.training.convergence import NEAR
from fedasym.training.histories import EDGES, spread
from fedasym.training.wording import HEADS, WIDTH, above, cell, columns, folded, meanings, one_scale, shown, smaller_steps

if TYPE_CHECKING:
    from fedasym.experiments.results import Results

NEARLY_UNSTABLE = 1.2  # a step times the curvature; from 2 on it diverges
SWEEPS = {
    SEEDS: "seeds of training, same samples",
    SPLITS: "reshuffles of training and validation samples, same test samples",
}


def lines(results: Results) -> list[str]:
    """Everything that a results object prints."""
    data, told = results.data, results.experiment.settings
    sizes = [f"{len(data.clients)} clients", *(f"{name} {count:,}" for name, count in data.counts.items())]
    what = [results.experiment.name, results.experiment.about.rstrip("."), *sizes]
    what += [f"{told.rounds} rounds", f"protocol {told.rules.name}"]
    out = [*folded(" · ".join(filter(None, what))), "", *chosen_lines(results)]
    for sweep in SWEEPS:
        out += sweep_lines(results, sweep)
    out += gain_lines(results)
    statistics = (
        ("accuracy", "mean_accuracy", "worst_decile", "hurt")
        if results.task == "classification"
        else (("loss", "hurt", "excess"))
    )
    out += ["", *meanings(statistics)] if results.trials.height else []
    notes = [line for note in results.notes for line in textwrap.wrap(note, WIDTH)]
    return [*out, *(["", *notes] if notes else [])]


def chosen_lines(results: Results) -> list[str]:
    """The settings that validation chose, out of how many."""
    name = validated_by(results.task)
    judged = results.task == "regression"
    rows = [["algorithm", "tried", "diverged", "validation", *(["excess"] if judged else []), "chosen settings"]]
    for algorithm in results.experiment.algorithms:
        tried = [row for row in results.tuning.iter_rows(named=True) if row["algorithm"] == algorithm]
        best = next((row for row in tried if row["chosen"]), None)
        score = "-" if best is None else cell(name, best[name])
        settings = results.tuned.get(algorithm)
        failed = sum(row["diverged"] for row in tried)
        row = [algorithm, str(len(tried)), str(failed or "-"), score]
        row += [cell("excess", results.judged(algorithm).get("excess", np.nan))] if judged else []
        rows.append([*row, "none" if settings is None else listed(settings)])
    what = "loss" if results.task == "regression" else "accuracy"
    return [f"Chosen by validation {what} after the last round, seed 1; test samples choose nothing.", *flush(rows, left=1)]


def listed(settings: dict[str, Any]) -> str:
    """Settings in a line."""
    return ", ".join(f"{name} {shown(value)}" for name, value in settings.items()) or "as given"


def sweep_lines(results: Results, sweep: str) -> list[str]:
    """The paper's table: pooled mean with worst to best trial, beside the clients' mean and the worst decile."""
    heads = HEADS[results.task]
    kept = [name for name in heads if not name.startswith("validation") and (name != "loss" or name == results.statistic)]
    first, *others = sorted(kept, key=lambda name: name.startswith("shared"))
    finals = {name: results.finals(sweep, name) for name in kept}
    if not finals[first]:
        return []
    rows = [["algorithm", heads[first], "worst–best", *(heads[name] for name in others)]]
    for algorithm, values in finals[first].items():
        row = [algorithm, cell(first, float(values.mean())), spread(first, values)]
        rows.append([*row, *(cell(name, float(finals[name][algorithm].mean())) for name in others)])
    numbers = spoken(getattr(results.experiment.trials, sweep))
    title = (
        f"{sweep.capitalize()} {numbers}: {SWEEPS[sweep]}; mean over trials after round {results.experiment.settings.rounds}."
    )
    return ["", title, *columns(rows, left=1)]


def gain_lines(results: Results) -> list[str]:
    """Mean accuracy (loss) after the last round by epochs of personalization."""
    gains, name = results.experiment.gains, results.statistic
    if gains is None or not results.gains.height:
        return []
    last = [row for row in results.gains.iter_rows(named=True) if row["round"] == results.experiment.settings.rounds]
    rows = [["algorithm", *("one batch" if each == "batch" else str(each) for each in gains.epochs)]]
    for algorithm in dict.fromkeys(row["algorithm"] for row in last):
        values = [
            [row[name] for row in last if (row["algorithm"], row["epochs"]) == (algorithm, str(epochs))]
            for epochs in gains.epochs
        ]
        rows.append([algorithm, *(cell(name, float(np.mean(each))) if each else "-" for each in values)])
    title = f"Gains of personalization: {name} by epochs, mean over seeds {spoken(gains.seeds)}."
    return ["", title, *columns(rows, left=1)]


def left_out(results: Results) -> list[str]:
    """Algorithms for which nothing could be chosen, trials that diverged, and a missing baseline."""
    notes, experiment, data = [], results.experiment, results.data
    tuned = results.tuning.filter(results.tuning["chosen"])["algorithm"].to_list()
    for name in experiment.algorithms:
        tried = results.tuning.filter(results.tuning["algorithm"] == name)
        if name in tuned or not tried.height:
            continue
        mend = smaller_steps(data.out_of_scale or {}, 2 / data.curvature if data.curvature else None)
        reason = f"every configuration diverged: {mend}" if tried["diverged"].all() else (
            "no configuration has a finite validation score: are there validation samples?"
        )  # fmt: skip
        notes.append(f"Nothing is chosen for {name}, and it is left out of the trials: {reason}.")
    many = int(results.tuning["diverged"].sum())
    if 2 * many > results.tuning.height > 1 and tuned:
        mend = smaller_steps(data.out_of_scale or {}, 2 / data.curvature if data.curvature else None)
        notes.append(f"Most configurations diverged, {many} of {results.tuning.height}: {mend}.")
    failed = results.trials.filter(results.trials["diverged"])
    for sweep, name in dict.fromkeys(zip(failed["sweep"], failed["algorithm"], strict=True)):
        notes.append(f"Diverged in {sweep}: {name}, and a mean over trials counts it as no number.")
    if not {"local", "local_ridge"} & set(experiment.algorithms) and len(experiment.algorithms) > 1:
        notes.append('No baseline without sharing: add "local" to see whether sharing pays at all.')
    return notes


def not_converged(results: Results) -> list[str]:
    """The algorithms whose chosen settings did not take training to its end; fine-tuning may be meant to stop early."""
    short: list[str] = []
    early: list[str] = []
    for name in results.tuned:
        found = results.judged(name)
        own, shared = found.get("excess", np.nan), found.get("shared_excess", np.nan)
        if shared > NEAR and not own > NEAR:
            of_variance = f"{shared:.0%} of half the labels' variance above the exact one"
            short.append(f"{name}, whose shared model's training loss is {of_variance}")
        elif own > NEAR:
            tunes = REGISTRY[name].fine_tunes
            loss = above(found["training_loss"], found["exact_loss"])
            (early if tunes and not shared > NEAR else short).append(f"{name}, whose training loss is {loss}")
    notes = []
    if short:
        notes.append(
            f"Not converged: {'; '.join(short)}. What it loses by that is no property of the algorithm. Try more rounds or "
            f"personal_epochs, larger steps, {one_scale(results.data.out_of_scale or {})}; fedasym fit (fa.linear.fit) "
            "solves it exactly."
        )
    if early:
        notes.append(
            f"Not converged in personalization: {'; '.join(early)}. Stopping early can be right, and validation chose it "
            "among the steps tried; more personal_epochs come nearer, fedasym fit (fa.linear.fit) is exact."
        )
    return notes


def edges(results: Results) -> list[str]:
    """The steps and ridges that were chosen at the end of three or more values tried."""
    ends, name = [], validated_by(results.task)
    sign = -1 if results.task == "regression" else 1
    for algorithm, settings in results.tuned.items():
        tried = [row for row in results.tuning.iter_rows(named=True) if row["algorithm"] == algorithm and not row["diverged"]]
        best = max((sign * row[name] for row in tried if row["chosen"]), default=np.nan)
        for axis in EDGES:
            values = sorted(results.experiment.grid[algorithm].get(axis, ()))
            if len(values) < 3 or settings[axis] not in (values[0], values[-1]):
                continue
            if axis != "ridge" and settings[axis] * (results.data.curvature or 0.0) > NEARLY_UNSTABLE:
                continue  # what lies beyond diverges
            if best > max((sign * row[name] for row in tried if row[axis] != settings[axis]), default=-np.inf):
                side = "smallest" if settings[axis] == values[0] else "largest"
                ends.append(f"{algorithm} {axis} {shown(settings[axis])} ({side})")
    return [f"Chosen at the end of the values tried, so that the best may lie beyond: {', '.join(ends)}."] if ends else []
