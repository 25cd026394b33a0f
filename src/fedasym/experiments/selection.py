"""The choice of settings, by validation samples alone.

Pieces of tuning hold no test statistic at all (`computing.py`), so that there is nothing else to choose by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from fedasym.experiments.grids import Values, combinations
from fedasym.experiments.plan import JUDGED, Chosen, settled

if TYPE_CHECKING:
    from fedasym.experiments.spec import Experiment


class Score(NamedTuple):
    """A configuration and how it validates: accuracy, in regression loss."""

    settings: Values
    validation: float
    diverged: bool
    judged: Mapping[str, float | None] = MappingProxyType({})  # how far training was from its end, in regression


def validated_by(task: str) -> str:
    """The statistic that chooses."""
    return "validation_loss" if task == "regression" else "validation_accuracy"


def scores(experiment: Experiment, name: str, rows: pl.DataFrame, task: str) -> list[Score]:
    """An algorithm's configurations in the order of its grid, from the rows of its tuning."""
    axes = list(experiment.grid[name])
    held = {
        tuple(row[axis] for axis in axes): Score(
            {axis: row[axis] for axis in axes},
            row[validated_by(task)],
            row["diverged"],
            {name: row[name] for name in JUDGED if name in row},
        )
        for row in rows.iter_rows(named=True)
        if row["algorithm"] == name and row["round"] == experiment.settings.rounds
    }
    return [held[tuple(values.values())] for values in combinations(experiment.grid[name])]


def choose(tried: Sequence[Score], task: str) -> Values | None:
    """The best settings by validation, the first of equal ones; None where nothing can be chosen.

    >>> choose([Score({"ridge": 1.0}, 0.7, False), Score({"ridge": 2.0}, 0.8, False), Score({"ridge": 3.0}, 0.8, False)],
    ...        "classification")
    {'ridge': 2.0}
    >>> choose([Score({"ridge": 1.0}, 0.7, True)], "classification") is None
    True
    """
    sign = -1 if task == "regression" else 1
    sound = [score for score in tried if not score.diverged and math.isfinite(score.validation)]
    return max(sound, key=lambda score: sign * score.validation).settings if sound else None


def chosen(experiment: Experiment, rows: pl.DataFrame, task: str) -> Chosen:
    """What every algorithm goes on with, in their order; one without a sound configuration is left out."""
    given = settled(experiment)
    found = {
        name: given[name] if name in given else choose(scores(experiment, name, rows, task), task)
        for name in experiment.algorithms
    }
    return {name: values for name, values in found.items() if values is not None}
