"""What there is to reproduce: every figure and table of the paper, what it takes, and how far it is."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from fedasym.core.errors import InvalidInput
from fedasym.experiments.reproduction import RUNS, TARGETS

PRODUCTS = {  # the stage of an experiment, and what is made of it
    "seeds": "figure and table: accuracy, 11 seeds",
    "splits": "figure and table: accuracy, 11 splits",
    "gains": "figures: gains of personalization",
    "tuning": "table: tuned hyperparameters",
}
THEORY = "figures: loss by clients, noise, aspect"


class Item(NamedTuple):
    """A figure or table: what it is, how many training runs it takes, and its state."""

    what: str
    runs: str
    state: str


def agenda(name: str, runs: str | Path = RUNS) -> tuple[str, list[Item]]:
    """A target in a line, and its figures and tables.

    >>> agenda("cifar100", "nowhere")[1][3].runs
    '243 configurations'
    """
    if name == "theory":
        drawn = (Path(runs, name) / "aspect.png").is_file()
        return f"theory: {TARGETS[name]}", [Item(THEORY, "minutes on two cores", "drawn" if drawn else "not yet")]
    counts, done = runs_of(name), finished(Path(runs, name))
    items = []
    for stage, what in PRODUCTS.items():
        ready, planned = done.get(stage, (0, 0))
        state = "not yet" if not ready else "done" if ready == planned else f"{ready} of {planned} pieces"
        items.append(Item(what, f"{counts[stage]} {'configurations' if stage == 'tuning' else 'runs'}", state))
    return f"{name}: {TARGETS[name]} ({at_hand(name)})", items


def runs_of(name: str) -> dict[str, int]:
    """Training runs by stage, counted from the experiment."""
    from fedasym.experiments.grids import combinations
    from fedasym.experiments.spec import Experiment

    experiment = Experiment.paper(name)
    gains, trials = experiment.gains, experiment.trials
    return {
        "tuning": sum(len(combinations(axes)) for axes in experiment.grid.values()),
        "seeds": len(experiment.algorithms) * len(trials.seeds),
        "splits": len(experiment.algorithms) * len(trials.splits),
        "gains": 0 if gains is None else len(gains.algorithms) * len(gains.epochs) * len(gains.seeds),
    }


def finished(place: Path) -> dict[str, tuple[int, int]]:
    """Finished and planned pieces by stage, of a run folder."""
    from fedasym.experiments import plan
    from fedasym.experiments.folder import RunFolder, is_run
    from fedasym.experiments.listing import wanted
    from fedasym.experiments.results import Results

    if not is_run(place):
        return {}
    folder = RunFolder.existing(place)
    experiment, data = folder.experiment(), folder.data()
    known = wanted(folder)[1] is not None
    chosen = Results.read(place).tuned if known else plan.placeholder(experiment)
    pieces = [*plan.tuning(experiment), *plan.trials(experiment, chosen)]
    counts: dict[str, tuple[int, int]] = {}
    for piece in pieces:
        ready, planned = counts.get(piece.stage, (0, 0))
        there = (folder.pieces / f"{piece.key(data)}.parquet").is_file() and (known or piece.stage == plan.TUNING)
        counts[piece.stage] = ready + there, planned + 1
    return counts


def at_hand(name: str) -> str:
    """What of its data is here."""
    from fedasym.data.sets.catalogue import find_dataset as find
    from fedasym.pretraining.store import chosen, features_file

    for there, words in ((features_file, "features here"), (lambda each: chosen(each, None), "network here, no features")):
        try:
            there(name)
        except InvalidInput:
            continue
        return words
    return "raw samples here" if find(name).folder() is not None else "no data here"
