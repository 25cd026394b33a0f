"""A scaled copy of an experiment: the same steps on few clients with few rounds, values and trials, in a minute or two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedasym.experiments.grids import Axes

if TYPE_CHECKING:
    from fedasym.experiments.spec import Experiment

CLIENTS = 30
ROUNDS = 20
EVALUATIONS = 2
VALUES = 2  # of each setting in a grid
TRIALS = 3


def scaled(experiment: Experiment) -> Experiment:
    """The copy, named so; what is small already stays."""
    told, trials, gains, data = experiment.settings, experiment.trials, experiment.gains, experiment.data
    rounds = min(told.rounds, ROUNDS)
    every = min(told.evaluate_every, max(1, rounds // EVALUATIONS))
    changed: dict[str, Any] = {
        "name": f"{experiment.name}-quick",
        "settings": told.model_copy(update={"rounds": rounds, "evaluate_every": every, "cohort": None}),
        "grid": {name: thinned(axes) for name, axes in experiment.grid.items()},
        "trials": trials.model_copy(update={"seeds": trials.seeds[:TRIALS], "splits": trials.splits[:TRIALS]}),
        "gains": gains and gains.model_copy(update={"seeds": gains.seeds[:TRIALS]}),
        "data": data and data.model_copy(update={"clients": min(data.clients or CLIENTS, CLIENTS)}),
    }
    return experiment.model_copy(update=changed)


def thinned(axes: Axes) -> Axes:
    """Two values of each setting, from the upper half: too small a step learns nothing in few rounds.

    >>> thinned({"server_step": (0.0001, 0.001, 0.01, 0.1, 1.0), "mixing": (1.0, 2.0)})
    {'server_step': (0.01, 0.1), 'mixing': (1.0, 2.0)}
    """
    return {name: values if len(values) <= VALUES else upper(values) for name, values in axes.items()}


def upper(values: tuple[int | float, ...]) -> tuple[int | float, ...]:
    """The values half and three quarters up."""
    return values[len(values) // 2], values[3 * len(values) // 4]
