"""The plan: the calls of `train` in an experiment, how settings are chosen, equal budgets.

A piece is one call of fixed composition, decided by the experiment and by what was chosen, never by
what is missing: so a resumed run gives the same bits as an undisturbed one. Algorithms with the
same server stage, a family, share a piece, since `train` computes their common trajectory once.
Settings are chosen by validation samples alone: pieces of tuning hold no test statistic at all, so
that there is nothing else to choose by.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from fedasym.algorithms import Algorithm
from fedasym.algorithms.registry import REGISTRY, describe_algorithm
from fedasym.core.numbers import canonical_json, number
from fedasym.core.privacy import Release, read_privacy, spend_together
from fedasym.experiments.fields import BATCH, Axes, Grid, Record, Values, check_grid, combinations
from fedasym.training.convergence import PAPER_STEPS
from fedasym.training.settings import COHORT, own_settings, resolve_protocol, used_settings

if TYPE_CHECKING:
    import polars as pl

    from fedasym.experiments import Experiment


NUMBERS = "fedasym numbers 1"  # to be raised when training gives other numbers
FIRST = 1  # the seed of tuning, and of training on reshuffled samples
TUNING, SEEDS, SPLITS, GAINS = "tuning", "seeds", "splits", "gains"
JUDGED = ("training_loss", "exact_loss", "excess", "shared_excess")  # training, in regression
ONE = " one batch"  # how the single batch is named beside its algorithm


def key_of(description: dict[str, Any]) -> str:
    """The name of the piece that these words describe.

    >>> key_of({"seed": 1})[:8]
    'fbe47f6d'
    """
    return hashlib.sha256(canonical_json(description).encode()).hexdigest()


Chosen = dict[str, Values]  # the settings that validation chose, by algorithm


@dataclass(frozen=True)
class Piece:
    """One call of `train`: algorithms with their grids on one split of the data."""

    stage: str
    grid: Grid  # by algorithm
    settings: dict[str, Any]  # of train, for all
    seeds: tuple[int, ...]
    splits: tuple[int, ...] = ()  # numbers of reshuffles, side by side; none: the data as they are
    one_batch: tuple[str, ...] = ()  # algorithms that are also personalised by a single batch
    # algorithms from outside the package: they travel with it
    brought: dict[str, Algorithm] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.brought.update(
            {name: REGISTRY[name] for name in self.grid if not REGISTRY.is_built_in(name)}
        )

    def description(self, data: Record) -> dict[str, Any]:
        """Everything that its numbers depend on."""
        rules = ("protocol", "intercept")
        told = {name: value for name, value in self.settings.items() if name not in rules}
        protocol = vars(resolve_protocol(self.settings["protocol"], self.settings["intercept"]))
        # as finished pieces have it
        named = {"bias" if name == "intercept" else name: value for name, value in protocol.items()}
        named["name"] = named["name"].replace("intercept", "bias")
        if not named["passes_ahead"]:  # finished pieces do not have it
            del named["passes_ahead"]
        found: dict[str, Any] = {
            "numbers": NUMBERS,
            "stage": self.stage,
            "data": {"samples": data.samples, "split": self.split_fingerprints(data)},
            "algorithms": list(self.grid),
            "one_batch": list(self.one_batch),
            "grid": {
                name: {axis: list(values) for axis, values in axes.items()}
                for name, axes in self.grid.items()
            },
            "settings": told,
            "protocol": named,
            "seeds": list(self.seeds),
        }
        if self.brought:
            found["stages"] = [describe_algorithm(each) for each in self.brought.values()]
        if data.task == "regression":  # pieces without the excess of training are made again
            found["judged"] = True
        return found

    def split_fingerprints(self, data: Record) -> str | list[str]:
        """The fingerprints of what trains, validates and tests."""
        found = [data.splits[str(number)] for number in self.splits] or [data.split]
        return found[0] if len(found) == 1 else found

    def key(self, data: Record) -> str:
        """Its name: the SHA-256 of its description."""
        return key_of(self.description(data))

    def algorithms(self) -> list[Algorithm]:
        """What to hand to `train`; a single batch is a stage with numbers of its own."""
        known = {name: self.brought.get(name) or REGISTRY[name] for name in self.grid}
        single = (make_single_batch(known[name], self.grid[name]) for name in self.one_batch)
        return [*known.values(), *single]

    def brought_settings(self) -> dict[str, bool]:
        """The settings that its algorithms bring, and whether they are whole numbers."""
        return {
            name: each.whole
            for algorithm in (self.brought.get(name) or REGISTRY[name] for name in self.grid)
            for name, each in own_settings(algorithm).items()
        }

    def grids(self) -> Grid:
        """What to hand to `train` as its grid."""
        grid = dict(self.grid)
        for algorithm in self.algorithms()[len(self.grid) :]:
            axes = self.grid[algorithm.name.removesuffix(ONE)]
            used = used_settings(algorithm)
            grid[algorithm.name] = {name: values for name, values in axes.items() if name in used}
        return grid

    @property
    def title(self) -> str:
        """In a few words."""
        if self.stage == TUNING:
            steps = {step for axes in self.grid.values() for step in axes.get("server_step", ())}
            which = f"server_step {steps.pop():g}" if len(steps) == 1 else ""
        else:
            kind, numbers = ("split", self.splits) if self.splits else ("seed", self.seeds)
            which = f"{kind}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
        return f"{self.stage}: {', '.join(self.grid)}" + (f", {which}" if which else "")


def make_single_batch(algorithm: Algorithm, axes: Axes) -> Algorithm:
    """An algorithm whose clients take one step on one batch; Meta and others keep tuned steps."""
    (step,) = axes["local_step"]
    server = algorithm.server.at(local_step=step)  # nothing changes where it has no such setting
    return replace(algorithm, server=server).with_steps(algorithm.name + ONE, step)


def families(names: Iterable[str]) -> list[list[str]]:
    """Names by server stage, in order of first appearance.

    >>> families(["local", "fedavg", "maml_fo", "ftfa"])
    [['local'], ['fedavg', 'ftfa'], ['maml_fo']]
    """
    found: dict[Any, list[str]] = {}
    for name in names:
        found.setdefault(REGISTRY[name].server, []).append(name)
    return list(found.values())


def algorithms_to_tune(experiment: Experiment) -> list[str]:
    """The algorithms with several configurations: with one there is nothing to choose."""
    return [name for name, axes in experiment.grid.items() if len(combinations(axes)) > 1]


def fixed_axes(experiment: Experiment) -> Chosen:
    """The settings of the algorithms with one configuration."""
    over = algorithms_to_tune(experiment)
    return {
        name: combinations(axes)[0] for name, axes in experiment.grid.items() if name not in over
    }


def placeholder_choice(experiment: Experiment) -> Chosen:
    """Some choice, for as long as none is made: the pieces that follow are as many and as large."""
    return {name: combinations(axes)[0] for name, axes in experiment.grid.items()}


def train_settings(experiment: Experiment) -> dict[str, Any]:
    """What `train` is told in every piece: steps not given are the paper's, or chosen by `run`."""
    told: dict[str, Any] = experiment.settings.model_dump()
    if told["privacy"] is None:  # pieces of experiments without it keep their names
        del told["privacy"]
    return told | {name: value for name, value in PAPER_STEPS.items() if told[name] is None}


def tuning(experiment: Experiment) -> list[Piece]:
    """One seed, tested at the end; a piece per family and server step (fine) or family (coarse)."""
    told = train_settings(experiment)
    told["evaluate_every"] = 0  # the last round decides
    pieces = []
    for family in families(algorithms_to_tune(experiment)):
        grids = {name: experiment.grid[name] for name in family}
        stepped = any("server_step" in axes for axes in grids.values())
        if experiment.pieces == "coarse" or not stepped:
            pieces.append(Piece(TUNING, grids, told, (FIRST,)))
            continue
        fixed: Axes = {"server_step": (told["server_step"],)}
        full = {name: check_grid(fixed | axes, REGISTRY[name]) for name, axes in grids.items()}
        for step in dict.fromkeys(step for axes in full.values() for step in axes["server_step"]):
            mine = {
                name: axes | {"server_step": (step,)}
                for name, axes in full.items()
                if step in axes["server_step"]
            }
            pieces.append(Piece(TUNING, mine, told, (FIRST,)))
    return pieces


def trials(experiment: Experiment, chosen: Chosen) -> list[Piece]:
    """The chosen settings on the seeds and on the splits, and the gains of personalization."""
    told = train_settings(experiment)
    gains = experiment.gains
    together = families(name for name in experiment.algorithms if name in chosen)
    grids = [{name: as_grid(chosen[name]) for name in family} for family in together]
    pieces = [
        Piece(SEEDS, grid, told, seeds)
        for grid in grids
        for seeds in split_trials(experiment, experiment.trials.seeds)
    ]
    for splits in split_trials(experiment, experiment.trials.splits):
        pieces += [Piece(SPLITS, grid, told, (FIRST,), splits) for grid in grids]
    for family in families(name for name in (gains.algorithms if gains else ()) if name in chosen):
        assert gains is not None
        epochs = tuple(each for each in gains.epochs if isinstance(each, int))
        given: Axes = {"local_step": (told["local_step"],)}
        axes = {name: given | as_grid(chosen[name]) for name in family}
        grid = {
            name: check_grid(own | {"personal_epochs": epochs}, REGISTRY[name])
            for name, own in axes.items()
        }
        single = tuple(family) if BATCH in gains.epochs else ()
        for seeds in split_trials(experiment, gains.seeds):
            pieces.append(Piece(GAINS, grid, told, seeds, one_batch=single))
    return pieces


def as_grid(values: Values) -> Axes:
    """One configuration as a grid."""
    return {name: (value,) for name, value in values.items()}


def split_trials(experiment: Experiment, numbers: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The seeds or splits of each piece: one at a time, or all."""
    if experiment.pieces == "fine":
        return [(number,) for number in numbers]
    return [numbers] if numbers else []


class Score(NamedTuple):
    """A configuration and how it validates: accuracy, in regression loss."""

    settings: Values
    validation: float
    diverged: bool
    # how far training was from its end, in regression
    judged: Mapping[str, float | None] = MappingProxyType({})


def validation_score(task: str) -> str:
    """The statistic that chooses."""
    return "validation_loss" if task == "regression" else "validation_accuracy"


def scores(experiment: Experiment, name: str, rows: pl.DataFrame, task: str) -> list[Score]:
    """An algorithm's configurations in the order of its grid, from the rows of its tuning."""
    axes = list(experiment.grid[name])
    held = {
        tuple(row[axis] for axis in axes): Score(
            {axis: row[axis] for axis in axes},
            row[validation_score(task)],
            row["diverged"],
            {name: row[name] for name in JUDGED if name in row},
        )
        for row in rows.iter_rows(named=True)
        if row["algorithm"] == name and row["round"] == experiment.settings.rounds
    }
    return [held[tuple(values.values())] for values in combinations(experiment.grid[name])]


def choose_settings(tried: Sequence[Score], task: str) -> Values | None:
    """The best settings by validation, the first of equal ones; None where nothing can be chosen.

    >>> tried = [Score({"ridge": 1.0}, 0.7, False), Score({"ridge": 2.0}, 0.8, False)]
    >>> choose_settings([*tried, Score({"ridge": 3.0}, 0.8, False)], "classification")
    {'ridge': 2.0}
    >>> choose_settings([Score({"ridge": 1.0}, 0.7, True)], "classification") is None
    True
    """
    sign = -1 if task == "regression" else 1
    sound = [score for score in tried if not score.diverged and math.isfinite(score.validation)]
    return max(sound, key=lambda score: sign * score.validation).settings if sound else None


def chosen_settings(experiment: Experiment, rows: pl.DataFrame, task: str) -> Chosen:
    """What every algorithm goes on with, in order, without those that have no sound values."""
    given = fixed_axes(experiment)
    found = {
        name: given[name]
        if name in given
        else choose_settings(scores(experiment, name, rows, task), task)
        for name in experiment.algorithms
    }
    return {name: values for name, values in found.items() if values is not None}


def gradients_per_step(name: str, inner_steps: int) -> int:
    """Gradients of a batch that one local step takes.

    >>> [gradients_per_step(name, 5) for name in ("fedavg", "maml_hf", "pfedme")]
    [1, 4, 5]
    """
    return REGISTRY[name].server.at(inner_steps=inner_steps).gradients


def batches_per_epoch(data: Record, batch: int) -> int:
    """Batches in one epoch of all clients."""
    size = max(min(batch, max(data.training, default=0)), 1)
    return sum(-(-n // size) for n in data.training)


def count_planned_steps(name: str, told: dict[str, Any], data: Record) -> tuple[int, int]:
    """Local steps of one run: of the shared model, and of one personalization of all clients."""
    algorithm = REGISTRY[name]
    epoch = batches_per_epoch(data, told["batch"])
    if algorithm.shares_nothing:
        return 0, told["rounds"] * epoch
    shared = told["rounds"] * cohort_of(told, data) * told["local_steps"]
    return shared, told["personal_epochs"] * epoch if algorithm.takes_own_steps else 0


def cohort_of(told: dict[str, Any], data: Record) -> int:
    """Clients in a round."""
    return told["cohort"] or min(COHORT, sum(n > 0 for n in data.training))


def server_settings(name: str) -> tuple[str, ...]:
    """The settings that the shared model of an algorithm depends on."""
    algorithm = REGISTRY[name]
    of_client = {"personal_epochs", "local_step", *algorithm.personalise.settings()}
    of_client |= set(algorithm.correction.settings()) if algorithm.correction else set()
    of_client -= set(algorithm.server.settings())
    return tuple(axis for axis in used_settings(algorithm) if axis not in of_client)


def describe_privacy(experiment: Experiment, data: Record) -> list[str]:
    """The epsilon that one training spends, and what all that is tried spends together."""
    told = train_settings(experiment)
    privacy = read_privacy(told.get("privacy"))
    able = sum(n > 0 for n in data.training)
    if privacy is None or not able:
        return []

    def release(values: Mapping[str, Any]) -> Release:
        cohort = min(cohort_of(told | dict(values), data), able)
        noise = privacy.find_multiplier(told["rounds"], cohort, able)
        return Release(noise, privacy.sampling, told["rounds"], cohort, able)

    sharing = [name for name in experiment.grid if not REGISTRY[name].shares_nothing]
    tried = {
        (
            REGISTRY[name].server,
            tuple((told | values).get(axis) for axis in server_settings(name)),
        ): release(values)
        for name in sharing
        for values in combinations(experiment.grid[name])
    }
    if not tried:
        return []
    one = [spend_together([each], privacy.delta) for each in dict.fromkeys(tried.values())]
    all_ = spend_together(list(tried.values()), privacy.delta)
    spent = number(max(one)) if len(one) == 1 else f"{number(min(one))} to {number(max(one))}"
    return [
        f"Privacy: one training spends epsilon {spent} at delta {privacy.delta:g}, by"
        f" {'Poisson sampling' if privacy.sampling == 'poisson' else 'cohorts of a fixed size'}"
        f" among {able} clients. The {len(tried)} shared models of the grid spend {number(all_)}"
        " together, and so does choosing among them; every further seed or split adds to that."
        " Tests are not counted."
    ]
