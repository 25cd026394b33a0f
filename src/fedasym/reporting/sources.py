"""Where a report comes from: results at hand, a run folder, or a folder of saved tables; and what computed them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fedasym.errors import InvalidInput

if TYPE_CHECKING:
    from fedasym.experiments.results import Results
    from fedasym.experiments.spec import Experiment

SHOWN = ("fedasym", "python", "jax", "device", "platform", "command")  # of the environment that a run records


class Source(NamedTuple):
    """Results, and the environment that computed them last, where it is known."""

    results: Results
    environment: dict[str, str]


def source_of(given: Results | str | Path) -> Source:
    """The results themselves, or those in a run folder or in a folder that `Results.save` wrote."""
    from fedasym.experiments.folder import ENVIRONMENT, is_run
    from fedasym.experiments.results import Results
    from fedasym.experiments.saving import SUMMARY

    if isinstance(given, Results):
        return Source(given, {})
    folder = Path(given)
    if is_run(folder):
        return Source(Results.read(folder), recorded(folder / ENVIRONMENT))
    if (folder / SUMMARY).is_file():
        return Source(Results.load(folder), {})
    raise InvalidInput(
        f"results is {str(given)!r}: this is neither a run folder nor one that Results.save wrote; fedasym runs list shows runs"
    )


def recorded(file: Path) -> dict[str, str]:
    """The environment in a run folder; a report goes without where it is missing or damaged."""
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {name: str(held[name]) for name in SHOWN if name in held} if isinstance(held, dict) else {}


def portable(experiment: Experiment) -> Experiment:
    """The experiment without the folders of the machine that it ran on: a data file by its name alone."""
    if experiment.data is None or experiment.data.file is None:
        return experiment
    data = experiment.data.model_copy(update={"file": Path(experiment.data.file).name})
    return experiment.model_copy(update={"data": data})
