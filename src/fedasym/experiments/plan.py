"""The plan: which calls of `train` an experiment is made of.

A piece is one call of fixed composition, decided by the experiment and by what was chosen, never by what is missing: so a
resumed run gives the same bits as an undisturbed one. Algorithms with the same server stage, a family, share a piece, since
`train` computes their common trajectory once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedasym.algorithms import TRAINED, Algorithm, Descend
from fedasym.algorithms.description import describe_algorithm
from fedasym.algorithms.registry import REGISTRY
from fedasym.experiments.data import Record
from fedasym.experiments.grids import Axes, Grid, Values, checked, combinations
from fedasym.experiments.parts import BATCH
from fedasym.experiments.pieces import key_of
from fedasym.training.convergence import PAPER_STEPS
from fedasym.training.settings import own_settings, resolve_protocol, used_settings

if TYPE_CHECKING:
    from fedasym.experiments.spec import Experiment

NUMBERS = "fedasym numbers 1"  # to be raised when training gives other numbers for the same settings
FIRST = 1  # the seed of tuning, and of training on reshuffled samples
TUNING, SEEDS, SPLITS, GAINS = "tuning", "seeds", "splits", "gains"
JUDGED = ("training_loss", "exact_loss", "excess", "shared_excess")  # of training samples, in regression
ONE = " one batch"  # how the single batch is named beside its algorithm

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
    brought: dict[str, Algorithm] = field(default_factory=dict)  # algorithms from outside the package: they travel with it

    def __post_init__(self) -> None:
        self.brought.update({name: REGISTRY[name] for name in self.grid if name not in TRAINED})

    def description(self, data: Record) -> dict[str, Any]:
        """Everything that its numbers depend on."""
        told = {name: value for name, value in self.settings.items() if name not in ("protocol", "intercept")}
        protocol = vars(resolve_protocol(self.settings["protocol"], self.settings["intercept"]))
        named = {"bias" if name == "intercept" else name: value for name, value in protocol.items()}
        return {
            "numbers": NUMBERS,
            "stage": self.stage,
            "data": {"samples": data.samples, "split": self.dealt(data)},
            "algorithms": list(self.grid),
            "one_batch": list(self.one_batch),
            "grid": {name: {axis: list(values) for axis, values in axes.items()} for name, axes in self.grid.items()},
            "settings": told,
            "protocol": named | {"name": named["name"].replace("intercept", "bias")},  # as finished pieces have it
            "seeds": list(self.seeds),
            **({"stages": [describe_algorithm(each) for each in self.brought.values()]} if self.brought else {}),
            **({"judged": True} if data.task == "regression" else {}),  # pieces without the excess of training are made again
        }

    def dealt(self, data: Record) -> str | list[str]:
        """The fingerprints of what trains, validates and tests."""
        found = [data.splits[str(number)] for number in self.splits] or [data.split]
        return found[0] if len(found) == 1 else found

    def key(self, data: Record) -> str:
        """Its name: the SHA-256 of its description."""
        return key_of(self.description(data))

    def algorithms(self) -> list[Algorithm]:
        """What to hand to `train`; a single batch is a stage with numbers of its own."""
        known = {name: self.brought.get(name) or REGISTRY[name] for name in self.grid}
        return [*known.values(), *(single_batch(known[name], self.grid[name]) for name in self.one_batch)]

    def brought_settings(self) -> dict[str, bool]:
        """The settings that these algorithms bring, and whether they are whole numbers."""
        return {name: each.whole for algorithm in self.brought.values() for name, each in own_settings(algorithm).items()}

    def grids(self) -> Grid:
        """What to hand to `train` as its grid."""
        grid = dict(self.grid)
        for algorithm in self.algorithms()[len(self.grid) :]:
            axes, used = self.grid[algorithm.name.removesuffix(ONE)], used_settings(algorithm)
            grid[algorithm.name] = {name: values for name, values in axes.items() if name in used}
        return grid

    @property
    def title(self) -> str:
        """In a few words."""
        steps = {step for axes in self.grid.values() for step in axes.get("server_step", ())}
        at = f", server_step {next(iter(steps)):g}" if self.stage == TUNING and len(steps) == 1 else ""
        kind = "split" if self.splits else "seed"
        numbers = self.splits or self.seeds
        which = "" if self.stage == TUNING else f", {kind}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
        return f"{self.stage}: {', '.join(self.grid)}{at}{which}"


def single_batch(algorithm: Algorithm, axes: Axes) -> Algorithm:
    """An algorithm whose clients take one step, on one batch; a stage like Meta keeps the step that was tuned."""
    (step,) = axes["local_step"]
    server = algorithm.server.at(local_step=step)  # nothing changes where it has no such setting
    return Algorithm(algorithm.name + ONE, server, Descend(step, 1))


def families(names: Iterable[str]) -> list[list[str]]:
    """Names by server stage, in order of first appearance.

    >>> families(["local", "fedavg", "maml_fo", "ftfa"])
    [['local'], ['fedavg', 'ftfa'], ['maml_fo']]
    """
    found: dict[Any, list[str]] = {}
    for name in names:
        found.setdefault(REGISTRY[name].server, []).append(name)
    return list(found.values())


def tuned_over(experiment: Experiment) -> list[str]:
    """The algorithms with several configurations: with one there is nothing to choose."""
    return [name for name, axes in experiment.grid.items() if len(combinations(axes)) > 1]


def settled(experiment: Experiment) -> Chosen:
    """The settings of the algorithms with one configuration."""
    over = tuned_over(experiment)
    return {name: combinations(axes)[0] for name, axes in experiment.grid.items() if name not in over}


def placeholder(experiment: Experiment) -> Chosen:
    """Some choice, for as long as none is made: the pieces that follow are as many and as large."""
    return {name: combinations(axes)[0] for name, axes in experiment.grid.items()}


def told_to(experiment: Experiment) -> dict[str, Any]:
    """What `train` is told in every piece: steps that are not given are the paper's, unless `run` chose them for the data."""
    told: dict[str, Any] = experiment.settings.model_dump()
    return told | {name: value for name, value in PAPER_STEPS.items() if told[name] is None}


def tuning(experiment: Experiment) -> list[Piece]:
    """One seed, tested after the last round; fine: one piece for each family and server step, coarse: for each family."""
    told = told_to(experiment)
    told["evaluate_every"] = 0  # the last round decides
    pieces = []
    for family in families(tuned_over(experiment)):
        grids = {name: experiment.grid[name] for name in family}
        if experiment.pieces == "coarse" or not any("server_step" in axes for axes in grids.values()):
            pieces.append(Piece(TUNING, grids, told, (FIRST,)))
            continue
        fixed: Axes = {"server_step": (told["server_step"],)}
        full = {name: checked(fixed | axes, REGISTRY[name]) for name, axes in grids.items()}
        for step in dict.fromkeys(step for axes in full.values() for step in axes["server_step"]):
            mine = {name: axes | {"server_step": (step,)} for name, axes in full.items() if step in axes["server_step"]}
            pieces.append(Piece(TUNING, mine, told, (FIRST,)))
    return pieces


def trials(experiment: Experiment, chosen: Chosen) -> list[Piece]:
    """The chosen settings on the seeds and on the splits, and the gains of personalization."""
    told, gains = told_to(experiment), experiment.gains
    pieces = []
    together = families(name for name in experiment.algorithms if name in chosen)
    grids = [{name: single(chosen[name]) for name in family} for family in together]
    pieces += [Piece(SEEDS, grid, told, seeds) for grid in grids for seeds in portions(experiment, experiment.trials.seeds)]
    for splits in portions(experiment, experiment.trials.splits):
        pieces += [Piece(SPLITS, grid, told, (FIRST,), splits) for grid in grids]
    for family in families(name for name in (gains.algorithms if gains else ()) if name in chosen):
        assert gains is not None
        epochs = tuple(each for each in gains.epochs if isinstance(each, int))
        for seeds in portions(experiment, gains.seeds):
            given: Axes = {"local_step": (told["local_step"],)}
            grid = {
                name: checked(given | single(chosen[name]) | {"personal_epochs": epochs}, REGISTRY[name]) for name in family
            }
            pieces.append(Piece(GAINS, grid, told, seeds, one_batch=tuple(family) if BATCH in gains.epochs else ()))
    return pieces


def single(values: Values) -> Axes:
    """One configuration as a grid."""
    return {name: (value,) for name, value in values.items()}


def portions(experiment: Experiment, numbers: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The seeds or splits of each piece: one at a time, or all."""
    return [(number,) for number in numbers] if experiment.pieces == "fine" else [numbers] * bool(numbers)
