"""What the advisor says of a run's data before any training, kept in the run's folder and set beside what was measured.

`foreseen.json`, in a run folder or among saved tables: accuracies by algorithm, means over clients, or why there are none.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedasym.worlds.classes import MOST_CLASSES
from fedasym.core.errors import InvalidInput
from fedasym.experiments.pieces import write_text
from fedasym.training.wording import columns

if TYPE_CHECKING:
    from fedasym.experiments.results import Results
    from fedasym.data.federation.federation import Federation
    from fedasym.worlds.spectra import Array

FILE = "foreseen.json"
FORMAT = "fedasym foreseen 1"
LIKE = {"local": "local_ridge"}  # local training that validation stops is nearer to a ridge than to convergence
HEAD = ["algorithm", "theory", "advised", "measured", "off by"]


class Foreseen(NamedTuple):
    """Accuracies by algorithm: by the theory on the estimated population, and by what the advisor trusts; or a reason."""

    theory: dict[str, float]
    advised: dict[str, float]
    reason: str | None = None
    merged: int | None = None  # so many classes, where these are more than are predicted, and the rare ones were taken as one


class Row(NamedTuple):
    """An algorithm: predicted and measured."""

    algorithm: str
    theory: float
    advised: float
    measured: float


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


def keep(folder: Path, found: Foreseen) -> None:
    """Write the file."""
    write_text(folder / FILE, json.dumps({"format": FORMAT} | found._asdict(), indent=2) + "\n")


def asked(federation: Federation) -> Foreseen:
    """The advisor's answer; where it refuses, its words."""
    from fedasym.advisor.classes.quick import predicted_accuracies

    if federation.task != "classification":
        return Foreseen({}, {}, "the labels are numbers: fedasym advise predicts losses for them")
    try:
        rows = {name: asdict(row) for name, row in predicted_accuracies(federation.merge_rare(MOST_CLASSES)).items()}
    except InvalidInput as refusal:
        return Foreseen({}, {}, str(refusal))
    theory, advised = ({name: row[column] for name, row in rows.items()} for column in ("theory", "trusted"))
    return Foreseen(theory, advised, merged=federation.outputs if federation.outputs > MOST_CLASSES else None)


def foreseen_in(folder: str | Path) -> Foreseen | None:
    """What is kept in a folder; None where there is nothing, or nothing whole."""
    try:
        held = json.loads((Path(folder) / FILE).read_text(encoding="utf-8"))
        if held.pop("format") != FORMAT:
            return None
        found = Foreseen(**held)
        accuracies = [*found.theory.values(), *found.advised.values()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    fits = set(found.theory) == set(found.advised) and all(isinstance(each, float) for each in accuracies)
    return found if fits and isinstance(found.reason, str | None) and isinstance(found.merged, int | None) else None


def rows(results: Results) -> list[Row]:
    """Predicted beside measured: means over clients after the last round, over the seeds or else the splits."""
    foreseen = results.foreseen
    if foreseen is None or results.task != "classification":
        return []
    sweep = "seeds" if results.experiment.trials.seeds else "splits"
    measured = {name: float(np.mean(values)) for name, values in results.finals(sweep, "mean_accuracy").items()}
    pairs = [(name, LIKE.get(name, name), value) for name, value in measured.items()]
    return [Row(name, foreseen.theory[of], foreseen.advised[of], value) for name, of, value in pairs if of in foreseen.advised]


def agreement(found: list[Row], merged: int | None = None) -> str:
    """Where the rankings agree, in a sentence; levels can be compared where no classes were merged."""
    advised, measured = (np.array([getattr(row, name) for row in found]) for name in ("advised", "measured"))
    first, best = found[int(np.argmax(advised))], found[int(np.argmax(measured))]
    right = "which is the best measured" if first == best else (
        f"{100 * (best.measured - first.measured):.2f} points below {best.algorithm}, the best measured"
    )  # fmt: skip
    pairs = [(i, j) for i in range(len(found)) for j in range(i)]
    same = sum((advised[i] - advised[j]) * (measured[i] - measured[j]) >= 0 for i, j in pairs)
    levels = (
        f"advised accuracies are off by at most {100 * float(np.abs(advised - measured).max()):.1f} points"
        if merged is None
        else f"advised are accuracies in a coarser task, the {MOST_CLASSES - 1} commonest of {merged:,} classes and one of all "
        "others, so that only their order can be compared"
    )
    order = f"Of {len(pairs)} pairs {same} are in the measured order; {levels}."
    return f"The advisor puts {first.algorithm} first, {right}. {order}"


def beside_theory(results: Results) -> str | None:
    """The table, in percent, and where the rankings agree; None where nothing was foreseen."""
    found = rows(results)
    if results.foreseen is None or not found:
        return None
    merged = results.foreseen.merged
    table = [HEAD, *([row.algorithm, *map(percent, row[1:]), "-" if merged else off_by(row)] for row in found)]
    return "\n".join([*columns(table, left=1), "", agreement(found, merged)])


def off_by(row: Row) -> str:
    """Advised less measured, in points; it says nothing where classes were merged, and these are accuracies in two tasks."""
    return f"{100 * (row.advised - row.measured):+.2f}"


def percent(share: float | Array) -> str:
    """With two decimals."""
    return f"{100 * float(share):.2f}"
