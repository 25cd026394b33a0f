"""The verb `reproduce`: a data set of the paper from raw samples to figures, report and findings.

What is there is not made again. Among it is what the advisor says of a run's data before any
training.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import notebook_text
from fedasym.core.runtime import Progress
from fedasym.experiments.reproduction import (
    RUNS,
    Foreseen,
    find_target,
    keep_foresight,
    read_foresight,
)
from fedasym.worlds.classes import MOST_CLASSES

if TYPE_CHECKING:
    from fedasym.data.federation import Federation
    from fedasym.experiments.comparisons import Claims
    from fedasym.experiments.results import Results


@dataclass(frozen=True, repr=False)
class Reproduction:
    """What came of a target: results, the paper's findings beside them, and files written."""

    results: Results
    beside: str | None  # our accuracies beside the paper's
    foreseen: str | None  # what the advisor said of the data, beside our accuracies
    claims: Claims | None
    files: tuple[Path, ...]

    def __str__(self) -> str:
        parts = [
            str(part)
            for part in (self.results, self.beside, self.foreseen, self.claims)
            if part is not None
        ]
        return "\n\n".join([*parts, "Written:\n" + "\n".join(f"  {path}" for path in self.files)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return notebook_text(self)


def reproduce(
    name: str,
    *,
    quick: bool = False,
    data: str | Path | None = None,
    device: str | None = None,
    into: str | Path | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Rerun the paper on one of its data sets, or on a stand-in: features, tuning, trials, gains,
    figures, report, findings.

    Features that are missing are made first, from a network that is pretrained first where there
    is none, which takes hours without a GPU. Interrupted at any moment, the same call goes on. The
    theory has a verb of its own, `fedasym.simulate`, and the command `fedasym reproduce theory`
    draws it.

    quick: a scaled copy that takes minutes; its numbers mean little. data: a features file instead
        of the data set's own.
    device: "cpu" or "gpu" for pretraining; training runs where JAX runs. into: the run folder,
        `runs/<name>` by default.

    >>> import fedasym as fa
    >>> fa.reproduce("cifar10")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: unknown target 'cifar10': did you mean cifar100? known are cifar100, ...
    """
    from fedasym.experiments.comparisons import check_claims
    from fedasym.experiments.data import load_data
    from fedasym.experiments.execution import run
    from fedasym.experiments.reproduction import compare_with_paper, compare_with_theory, curves_of
    from fedasym.experiments.results import Results
    from fedasym.experiments.spec import Experiment
    from fedasym.experiments.tables import describe_environment
    from fedasym.show.figures.rounds import draw_figures
    from fedasym.show.report import report

    find_target(name)
    if name == "theory":
        raise InvalidInput(
            "name is theory: its figures come from fedasym reproduce theory, its numbers from"
            " fa.simulate"
        )
    experiment = Experiment.paper(name)
    if data is None:
        prepare_features(name, device, progress)
    else:
        experiment = experiment.with_data(data)
    experiment = experiment.quick() if quick else experiment
    if not describe_environment()["device"].startswith("cpu"):
        # an accelerator likes many runs side by side
        experiment = experiment.model_copy(update={"pieces": "coarse"})
    place = Path(RUNS, experiment.name) if into is None else Path(into)
    run(experiment, into=place, progress=progress)
    foresee(place, load_data(experiment.data))
    results = Results.read(place)
    curves = curves_of(name)
    files = (
        *draw_figures(results, place / "figures", curves),
        report(place, place / "report.html", curves),
    )
    enough = max(len(experiment.trials.seeds), len(experiment.trials.splits)) > 1
    return Reproduction(
        results,
        compare_with_paper(results, name),
        compare_with_theory(results),
        check_claims(results) if enough else None,
        files,
    )


def foresee(folder: str | Path, federation: Federation) -> Foreseen:
    """Ask the advisor and keep its answer in the folder; an answer there is not recomputed."""
    if (held := read_foresight(folder)) is not None:
        return held
    found = ask_advisor(federation)
    keep_foresight(Path(folder), found)
    return found


def foresee_run(folder: str | Path, results: Results, data: str | None = None) -> Foreseen:
    """The same for a finished run: on its experiment's data, or on a file of them elsewhere."""
    from fedasym.experiments.data import fingerprint, load_data

    experiment = results.experiment if data is None else results.experiment.with_data(data)
    federation = load_data(experiment.data)
    if fingerprint(federation) != results.data.samples:
        where = "the experiment's data" if data is None else f"data is {data!r}: these"
        raise InvalidInput(
            f"{where} are not the samples of this run, whose SHA-256 begins with"
            f" {results.data.samples[:12]}"
        )
    return foresee(folder, federation)


def ask_advisor(federation: Federation) -> Foreseen:
    """The advisor's answer; where it refuses, its words."""
    from fedasym.advisor.crosscheck import foresee_accuracies

    if federation.task != "classification":
        return Foreseen({}, {}, "the labels are numbers: fedasym advise predicts losses for them")
    try:
        rows = {
            name: asdict(row)
            for name, row in foresee_accuracies(federation.merge_rare(MOST_CLASSES)).items()
        }
    except InvalidInput as refusal:
        return Foreseen({}, {}, str(refusal))
    theory, advised = (
        {name: row[column] for name, row in rows.items()} for column in ("theory", "trusted")
    )
    return Foreseen(
        theory, advised, merged=federation.outputs if federation.outputs > MOST_CLASSES else None
    )


def prepare_features(name: str, device: str | None, progress: Progress | None) -> Path:
    """The features of a data set: found, or made."""
    from fedasym.pretraining import features, pretrain
    from fedasym.pretraining.recipes import chosen_network, features_file

    try:
        return features_file(name)
    except InvalidInput:
        pass
    where = {"gpu": "cuda"}.get(device or "", device)
    try:
        chosen_network(name, None)
    except InvalidInput:
        pretrain(name, device=where, progress=progress)
    return features(name, device=where, progress=progress)
