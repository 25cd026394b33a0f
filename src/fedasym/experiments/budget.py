"""What every algorithm was given: configurations, trials, rounds and steps. A comparison is fair only if one can see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedasym.algorithms.registry import REGISTRY
from fedasym.experiments.data import Record
from fedasym.experiments.grids import combinations
from fedasym.experiments.plan import Piece
from fedasym.experiments.wording import spoken
from fedasym.training.settings import Settings as Checked
from fedasym.training.settings import used_settings
from fedasym.training.training import COHORT

if TYPE_CHECKING:
    from fedasym.experiments.spec import Experiment


def gradients(name: str, inner_steps: int) -> int:
    """Gradients of a batch that one local step takes.

    >>> gradients("fedavg", 5), gradients("maml_hf", 5), gradients("pfedme", 5)
    (1, 4, 5)
    """
    return REGISTRY[name].server.at(inner_steps=inner_steps).gradients


def passes(data: Record, batch: int) -> int:
    """Batches in one epoch of all clients."""
    size = max(min(batch, max(data.training, default=0)), 1)
    return sum(-(-n // size) for n in data.training)


def steps(name: str, told: dict[str, Any], data: Record) -> tuple[int, int]:
    """Local steps of one run: those of the shared model, and those of one personalization of all clients."""
    algorithm = REGISTRY[name]
    epoch = passes(data, told["batch"])
    if algorithm.shares_nothing:
        return 0, told["rounds"] * epoch
    shared = told["rounds"] * cohort_of(told, data) * told["local_steps"]
    return shared, told["personal_epochs"] * epoch if algorithm.takes_own_steps else 0


def cohort_of(told: dict[str, Any], data: Record) -> int:
    """Clients in a round."""
    return told["cohort"] or min(COHORT, sum(n > 0 for n in data.training))


def work(piece: Piece, data: Record) -> float:
    """Gradients that a piece takes, roughly: what its share of the time is guessed by."""
    told = piece.settings
    evaluations = len(Checked(rounds=told["rounds"], evaluate_every=told["evaluate_every"]).evaluated)
    total, trajectories = 0, dict[Any, int]()
    for name, axes in piece.grid.items():
        alone = REGISTRY[name].shares_nothing
        of_server = server_settings(name)
        for values in combinations(axes):
            full = told | values
            shared, personal = steps(name, full, data)
            trajectories[tuple(full.get(axis) for axis in of_server)] = shared * gradients(name, full["inner_steps"])
            total += personal * (1 if alone else evaluations)
    return float((total + sum(trajectories.values())) * len(piece.seeds) * max(len(piece.splits), 1)) or 1.0


def server_settings(name: str) -> tuple[str, ...]:
    """The settings that the shared model of an algorithm depends on."""
    algorithm = REGISTRY[name]
    used = used_settings(algorithm)
    of_client = {"personal_epochs", "local_step", *algorithm.personalise.settings()} - set(algorithm.server.settings())
    return tuple(axis for axis in used if axis not in of_client)


def sentences(experiment: Experiment, data: Record) -> list[str]:
    """What each algorithm was given, and whether that differs."""
    told, lines, tried = experiment.settings.model_dump(), [], {}
    trials = experiment.trials
    for name, axes in experiment.grid.items():
        tried[name] = len(combinations(axes))
        shared, personal = steps(name, told, data)
        each = gradients(name, told["inner_steps"])
        parts = []
        if shared:
            sizes = f"{told['rounds']} rounds of {cohort_of(told, data)} clients with {told['local_steps']} steps"
            parts.append(f"{sizes}, {shared:,} in all" + (f", of {each} gradients each" if each > 1 else ""))
        if personal:
            epochs = told["rounds"] if REGISTRY[name].shares_nothing else told["personal_epochs"]
            parts.append(f"{epochs} epochs of each client's own, {personal:,} steps in all")
        tuned = f"{tried[name]} configurations tried with seed 1" if tried[name] > 1 else "one configuration, not tuned"
        repeated = f"then seeds {spoken(trials.seeds)} and splits {spoken(trials.splits)}"
        lines.append(f"{name}: {tuned}, {repeated}; a run takes {'; '.join(parts) or 'no steps'}.")
    if len(set(tried.values())) > 1:
        most, least = max(tried, key=lambda name: tried[name]), min(tried, key=lambda name: tried[name])
        counts = f"{most} {tried[most]} and {least} {tried[least]} configurations"
        lines.append(f"Tuning budgets differ, {counts}: the comparison favours those that tried more.")
    return lines
