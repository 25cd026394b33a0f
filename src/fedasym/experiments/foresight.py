"""What the advisor says of a run's data before any training, kept in the run's folder and set beside what was measured.

`foreseen.json`, in a run folder or among saved tables: accuracies by algorithm, means over clients, or why there are none.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedasym.core.files import write_text
from fedasym.training.wording import columns
from fedasym.worlds.classes import MOST_CLASSES

if TYPE_CHECKING:
    from fedasym.core.arrays import Array
    from fedasym.experiments.results import Results

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


def keep(folder: Path, found: Foreseen) -> None:
    """Write the file."""
    write_text(folder / FILE, json.dumps({"format": FORMAT} | found._asdict(), indent=2) + "\n")


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
