"""`reproduce`: a data set of the paper from raw samples to figures, report and findings; what is there is not made again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedasym.errors import InvalidInput, unknown
from fedasym.risk import preformatted

if TYPE_CHECKING:
    from fedasym.experiments.claims import Claims
    from fedasym.experiments.results import Results

Progress = Callable[[float, str], None]
RUNS = "runs"


@dataclass(frozen=True)
class Target:
    """One part of the paper: what it is, and which of the paper's figures and tables it makes again."""

    name: str
    what: str
    makes: tuple[str, ...]


SHOWN = ("table: accuracy after the last round, over 11 seeds and over 11 splits", "table: tuned hyperparameters")
GAINS = tuple(f"figure: gains of personalization, {name}" for name in ("FTFA", "MAML-FO", "MAML-HF"))
CURVES = ("figure: accuracy against rounds, seeds", "figure: accuracy against rounds, splits")
TARGETS = {
    target.name: target
    for target in (
        Target("cifar100", "images by Pachinko allocation, 100 classes", (*CURVES, *GAINS, *SHOWN)),
        Target("shakespeare", "next character, by role", (*CURVES, *GAINS, *SHOWN)),
        Target("emnist", "characters by writer, 62 classes", (*CURVES, *GAINS, *SHOWN)),
        Target("stackoverflow", "next word, by user", (*CURVES, *GAINS, *SHOWN)),
        Target("digits", "digits by writer, in the stead of emnist", (*CURVES, *GAINS, *SHOWN)),
        Target("stackexchange", "next word, by user, in the stead of stackoverflow", (*CURVES, *GAINS, *SHOWN)),
        Target("theory", "the limits beside simulated clients", ("figures: loss against clients, noise and aspect",)),
    )
}


@dataclass(frozen=True, repr=False)
class Reproduction:
    """What came of a target: results, the paper's findings held against them, and the files that were written."""

    results: Results
    claims: Claims | None
    files: tuple[Path, ...]

    def __str__(self) -> str:
        parts = [str(self.results), *([] if self.claims is None else [str(self.claims)])]
        return "\n\n".join([*parts, "Written:\n" + "\n".join(f"  {path}" for path in self.files)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return preformatted(self)


def find(name: str) -> Target:
    """The target of that name."""
    if name not in TARGETS:
        raise unknown("target", name, TARGETS)
    return TARGETS[name]


def reproduce(
    name: str,
    *,
    quick: bool = False,
    data: str | Path | None = None,
    device: str | None = None,
    into: str | Path | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Rerun the paper on one of its data sets, or on a stand-in: features, tuning, trials, gains, figures, report, findings.

    Features that are missing are made first, from a network that is pretrained first where there is none: hours without a GPU.
    Interrupted at any moment, the same call goes on. The theory has a verb of its own, `fedasym.simulate`, and the command
    `fedasym reproduce theory` draws it.

    quick: a scaled copy that takes minutes; its numbers mean little. data: a features file instead of the data set's own.
    device: "cpu" or "gpu" for pretraining; training runs where JAX runs. into: the run folder, `runs/<name>` by default.
    """
    from fedasym.experiments.claims import check
    from fedasym.experiments.execution import run
    from fedasym.experiments.published import published
    from fedasym.experiments.spec import Experiment
    from fedasym.figures.experiments import draw
    from fedasym.reporting import report

    if find(name).name == "theory":
        raise InvalidInput("name is theory: its figures come from fedasym reproduce theory, its numbers from fa.simulate")
    experiment = Experiment.paper(name)
    if data is None:
        prepare(name, device, progress)
    else:
        experiment = experiment.with_data(data)
    experiment = experiment.quick() if quick else experiment
    place = Path(RUNS, experiment.name) if into is None else Path(into)
    results = run(experiment, into=place, progress=progress)
    paper = published(name)
    curves = None if paper is None else {s: {a: c[:2] for a, c in by.items()} for s, by in paper.trials.items()}
    files = (*draw(results, place / "figures", curves), report(place, place / "report.html", curves))
    enough = max(len(experiment.trials.seeds), len(experiment.trials.splits)) > 1
    return Reproduction(results, check(results) if enough else None, files)


def prepare(name: str, device: str | None, progress: Progress | None) -> Path:
    """The features of a data set: found, or made."""
    from fedasym.pretraining import features, pretrain
    from fedasym.pretraining.store import chosen, features_file

    try:
        return features_file(name)
    except InvalidInput:
        pass
    where = {"gpu": "cuda"}.get(device or "", device)
    try:
        chosen(name, None)
    except InvalidInput:
        pretrain(name, device=where, progress=progress)
    return features(name, device=where, progress=progress)


def state(name: str, runs: str | Path = RUNS) -> str:
    """How far a target is, in a few words."""
    from fedasym.datasets.catalogue import find as data_set
    from fedasym.experiments.folder import is_run
    from fedasym.experiments.listing import status
    from fedasym.pretraining.store import chosen, features_file

    place = Path(runs, name)
    if name == "theory":
        return "drawn" if (place / "clients.png").is_file() else "not yet"
    if is_run(place):
        now = status(place)
        return f"{now.state}, {now.finished} of {now.planned} pieces"
    for there, words in ((features_file, "features here"), (lambda each: chosen(each, None), "network here, no features")):
        try:
            there(name)
        except InvalidInput:
            continue
        return words
    return "raw samples here" if data_set(name).folder() is not None else "no data here"


def cost(name: str) -> str:
    """What a target takes, counted from its experiment."""
    from fedasym.experiments.grids import combinations
    from fedasym.experiments.spec import Experiment

    if name == "theory":
        return "minutes on two cores"
    experiment = Experiment.paper(name)
    tried = sum(len(combinations(axes)) for axes in experiment.grid.values())
    trials = len(experiment.algorithms) * (len(experiment.trials.seeds) + len(experiment.trials.splits))
    gains = experiment.gains
    extra = 0 if gains is None else len(gains.algorithms) * len(gains.epochs) * len(gains.seeds)
    return f"{tried} configurations, {trials} trials, {extra} runs of gains, {experiment.settings.rounds} rounds each"
