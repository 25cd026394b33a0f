"""What the advisor says of a run's data before any training: asked once, and kept in the run's folder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fedasym.advisor.crosscheck import foresee_accuracies
from fedasym.core.errors import InvalidInput
from fedasym.data.federation.federation import Federation
from fedasym.experiments.foresight import Foreseen, foreseen_in, keep
from fedasym.worlds.classes import MOST_CLASSES

if TYPE_CHECKING:
    from fedasym.experiments.results import Results


def foresee(folder: str | Path, federation: Federation) -> Foreseen:
    """Ask the advisor, and keep its answer in the folder; what is there already is not computed again."""
    if (held := foreseen_in(folder)) is not None:
        return held
    found = asked(federation)
    keep(Path(folder), found)
    return found


def foresee_for(folder: str | Path, results: Results, data: str | None = None) -> Foreseen:
    """The same for a run that is finished: on its experiment's data, or on a file of them elsewhere."""
    from fedasym.experiments.data import fingerprint, load

    experiment = results.experiment if data is None else results.experiment.with_data(data)
    federation = load(experiment.data)
    if fingerprint(federation) != results.data.samples:
        where = "the experiment's data" if data is None else f"data is {data!r}: these"
        raise InvalidInput(f"{where} are not the samples of this run, whose SHA-256 begins with {results.data.samples[:12]}")
    return foresee(folder, federation)


def asked(federation: Federation) -> Foreseen:
    """The advisor's answer; where it refuses, its words."""
    if federation.task != "classification":
        return Foreseen({}, {}, "the labels are numbers: fedasym advise predicts losses for them")
    try:
        rows = {name: asdict(row) for name, row in foresee_accuracies(federation.merge_rare(MOST_CLASSES)).items()}
    except InvalidInput as refusal:
        return Foreseen({}, {}, str(refusal))
    theory, advised = ({name: row[column] for name, row in rows.items()} for column in ("theory", "trusted"))
    return Foreseen(theory, advised, merged=federation.outputs if federation.outputs > MOST_CLASSES else None)
