"""A configuration and the seeds it was run with; how configurations are lined up, and what a fair reader should know."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedasym.algorithms import Algorithm
from fedasym.core.arrays import Array
from fedasym.data.federation.federation import Federation
from fedasym.training.history import VALIDATION, History
from fedasym.training.scales import columns_out_of_scale, curvature
from fedasym.training.settings import SETTINGS, Protocol, named_settings
from fedasym.training.wording import HEADS, cell, columns, how_far, how_on, meanings, shown, smaller_steps

MOST = 40  # configurations that are printed
EDGES = ("server_step", "local_step", "ridge")  # settings whose best value may lie beyond the ones tried

Ranked = dict[str, list["Configuration"]]
Chosen = dict[str, "Configuration | None"]


@dataclass(frozen=True, eq=False)
class Configuration:
    """An algorithm with one choice of its settings, and its runs, one per seed."""

    algorithm: Algorithm
    protocol: Protocol
    settings: dict[str, Any]  # those that the algorithm uses
    runs: tuple[History, ...]

    @property
    def name(self) -> str:
        """The algorithm's name."""
        return self.algorithm.name

    @property
    def seeds(self) -> list[int]:
        """The seeds of its runs."""
        return [run.seed for run in self.runs]

    @property
    def diverged(self) -> int | None:
        """The first round in which a run diverged."""
        return min((run.diverged for run in self.runs if run.diverged is not None), default=None)

    @property
    def interrupted(self) -> bool:
        """Whether a run was stopped before its last round."""
        return any(run.interrupted for run in self.runs)

    @cached_property
    def rounds(self) -> list[int]:
        """The rounds that every run evaluated."""
        return sorted(set.intersection(*(set(run.rounds.tolist()) for run in self.runs)))

    def curves(self, name: str) -> Array:
        """A statistic of every run over `rounds`: (seeds, rounds)."""
        return np.stack([getattr(run, name)[np.isin(run.rounds, self.rounds)] for run in self.runs])

    def finals(self, name: str) -> Array:
        """A statistic of every run after the last round that all evaluated: (seeds,)."""
        return self.curves(name)[:, -1] if self.rounds else np.full(len(self.runs), np.nan)

    @cached_property
    def score(self) -> float:
        """What it is chosen by: the mean over seeds of final validation accuracy, or minus the loss; -inf if it cannot be."""
        regression = self.runs[0].task == "regression"
        mean = -self.finals("validation_loss").mean() if regression else self.finals("validation_accuracy").mean()
        return float(mean) if self.diverged is None and np.isfinite(mean) else -np.inf

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorts the best first. Rounds that an interruption cut off do not compare with whole runs."""
        last = max(self.rounds, default=-1)
        return self.diverged is not None, self.interrupted, -last if self.interrupted else 0, -self.score


def configured(runs: list[History]) -> Configuration:
    """The configuration that these runs share."""
    algorithm = runs[0].algorithm
    return Configuration(algorithm, runs[0].protocol, named_settings(runs[0].settings, algorithm), tuple(runs))


def value_of(run: History, name: str) -> Any:
    """A run's algorithm or protocol by name, its seed, split, or a setting; None for one that its algorithm does not use."""
    if name in ("algorithm", "protocol"):
        return getattr(run, name).name
    return getattr(run, name) if name in ("seed", "split") else named_settings(run.settings, run.algorithm).get(name)


def why_none(groups: list[Configuration]) -> str:
    """Why none of an algorithm's configurations can be chosen, and what to do."""
    if all(group.diverged is not None for group in groups):
        return f"as every configuration diverged: {against_divergence(groups[0].runs[0])}"
    if not any(run.totals[:, VALIDATION].sum() for group in groups for run in group.runs):
        return "as there are no validation samples: resplit the federation so that some validate"
    return f"as no configuration has a finite validation score: {against_divergence(groups[0].runs[0])}"


def against_divergence(run: History) -> str:
    """What to do where steps diverge: the columns out of scale are the cause, or steps beyond what the curvature allows."""
    data = run.federation
    if not isinstance(data, Federation):
        return smaller_steps({}, None)  # a saved history has no samples
    L = curvature(data, run.protocol.intercept, run.settings.batch) if run.task == "regression" else 0.0
    return smaller_steps(columns_out_of_scale(data), 2 / L if L else None)


def setting_names(groups: Iterable[Configuration]) -> list[str]:
    """The settings of every run, then those that algorithms bring."""
    return list(dict.fromkeys((*SETTINGS, *(name for group in groups for name in group.settings))))


def split_settings(groups: list[Configuration]) -> tuple[dict[str, Any], list[str]]:
    """The settings whose values all users of them share, and the names of those that vary."""
    used = {name: [group.settings[name] for group in groups if name in group.settings] for name in setting_names(groups)}
    held = {name: values for name, values in used.items() if values}
    alike = {name: values[0] for name, values in held.items() if all(value == values[0] for value in values)}
    return alike, [name for name in held if name not in alike]


def many(count: int, noun: str) -> str:
    """A number with its noun."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def title_of(groups: list[Configuration]) -> str:
    """Algorithms, configurations, seeds, and the settings that all share."""
    alike, _ = split_settings(groups)
    names = list(dict.fromkeys(group.name for group in groups))
    parts = [", ".join(names), many(len(groups), "configuration")]
    counts = sorted({len(set(group.seeds)) for group in groups})
    parts.append(many(counts[0], "seed") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds")
    splits = {run.split for group in groups for run in group.runs} - {None}
    parts += [many(len(splits), "split")] if splits else []
    protocols = list(dict.fromkeys(group.protocol.name for group in groups))
    parts += [f"protocol {protocols[0]}"] if len(protocols) == 1 else []
    return " · ".join([*parts, *(f"{name} {shown(value)}" for name, value in alike.items() if value is not None)])


def configuration_lines(ranked: Ranked, chosen: Chosen) -> list[str]:
    """One line per configuration, each algorithm's best by validation first; the chosen ones are marked."""
    groups = [group for each in ranked.values() for group in each]
    share = max(MOST // len(ranked), 1)
    listed = groups if len(groups) <= MOST else [group for each in ranked.values() for group in each[:share]]
    task = groups[0].runs[0].task
    first, *others = [name for name in HEADS[task] if name not in ("shared_accuracy", "shared_loss")]
    others = [name for name in others if name != "loss"]
    vary = split_settings(groups)[1]
    protocols = len({group.protocol for group in groups}) > 1
    uneven, several = len({len(group.runs) for group in groups}) > 1, any(len(group.runs) > 1 for group in groups)
    failed, tried = any(group.diverged is not None for group in groups), len(groups) > len(ranked)
    head = ["", "algorithm", *(["protocol"] if protocols else []), *vary, *(["seeds"] if uneven else []), HEADS[task][first]]
    head += [*(["worst–best"] if several else []), *(HEADS[task][name] for name in others), *(["diverged"] if failed else [])]
    rows = [head]
    for group in listed:
        row = ["*" if tried and any(group is each for each in chosen.values()) else "", group.name]
        row += [group.protocol.name] if protocols else []
        row += [shown(group.settings.get(name)) for name in vary]
        row += [str(len(group.runs))] if uneven else []
        row.append(cell(first, float(group.finals(first).mean())))
        row += [spread(first, group.finals(first))] if several else []
        row += [cell(name, float(group.finals(name).mean())) for name in others]
        row += [f"round {group.diverged}" if group.diverged is not None else ""] if failed else []
        rows.append(row)
    hidden = len(groups) - len(listed)
    more = [f"   and {hidden} more: .table()"] if hidden else []
    return [*columns(rows, left=3 if protocols else 2), *more, "", *meanings([first, *others])]


def spread(name: str, values: Array) -> str:
    """From the worst to the best seed."""
    if len(values) == 1 or np.isnan(values).any():
        return "-"
    ends = sorted((float(values.min()), float(values.max())), reverse=name == "loss")
    return "–".join(cell(name, each) for each in ends).replace("%–", "–")


def comparison_notes(ranked: Ranked, chosen: Chosen) -> list[str]:
    """How the marked ones were chosen and from how many; diverged and interrupted ones; grids too narrow; no baseline."""
    notes = []
    groups = [group for each in ranked.values() for group in each]
    counts = {name: len(each) for name, each in ranked.items()}
    if len(groups) > len(ranked):
        what = "loss" if groups[0].runs[0].task == "regression" else "accuracy"
        if any(chosen.values()):
            notes.append(f"* chosen by validation {what} after the last round, mean over seeds; test samples choose nothing.")
        tried = ", ".join(f"{name} {count}" for name, count in counts.items())
        alike = len(set(counts.values())) == 1
        fair = "" if len(counts) == 1 or alike else ". Tuning budgets differ: the comparison favours those that tried more"
        notes.append(f"Configurations tried: {tried}{fair}.")
    notes += [f"Nothing is chosen for {name}, {why_none(ranked[name])}." for name, group in chosen.items() if group is None]
    if failed := sum(group.diverged is not None for group in groups):
        cause = f" Most did: {against_divergence(groups[0].runs[0])}." if 2 * failed > len(groups) > 1 else ""
        notes.append(f"Diverged, and never chosen: {many(failed, 'configuration')} of {len(groups)}.{cause}")
    notes += not_converged([group.runs[0] for group in chosen.values() if group is not None])
    if cut := sum(group.interrupted for group in groups):
        notes.append(f"Interrupted: {many(cut, 'configuration')} of {len(groups)}, shown at the last round that was evaluated.")
    for name, group in chosen.items():
        notes += edges(group, ranked[name]) if group is not None else []
    if len({group.name for group in groups}) > 1 and not any(group.algorithm.shares_nothing for group in groups):
        notes.append('No baseline without sharing: add "local" to see whether sharing pays at all.')
    return notes


def not_converged(runs: list[History]) -> list[str]:
    """Those of the runs that are not converged, in a sentence, and what to do."""
    short = [run for run in runs if run.converged is False]
    listed = "; ".join(f"{run.algorithm.name}, {how_far(run).replace('the ', 'whose ', 1)}" for run in short)
    return [f"Not converged: {listed}. {how_on(short)}"] if short else []


def edges(best: Configuration, groups: list[Configuration]) -> list[str]:
    """A sentence for each step or ridge that was chosen at the end of three or more values tried."""
    notes = []
    for name in EDGES:
        values = sorted({group.settings[name] for group in groups if name in group.settings})
        rest = max((group.score for group in groups if group.settings.get(name) != best.settings.get(name)), default=-np.inf)
        if len(values) >= 3 and best.settings[name] in (values[0], values[-1]) and best.score > rest:
            side = "smallest" if best.settings[name] == values[0] else "largest"
            notes.append(f"{best.name}: {name} {shown(best.settings[name])} is the {side} tried; the best may lie beyond.")
    return notes
