"""Results as small files that can be committed: CSV for what people read and compare, Parquet for the many clients."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from fedasym.algorithms.description import ALGORITHMS, describe_brought, remember_brought
from fedasym.core.errors import InvalidInput
from fedasym.core.files import write_text
from fedasym.experiments.data import record_in
from fedasym.experiments.folder import DATA, EXPERIMENT
from fedasym.experiments.foresight import foreseen_in, keep
from fedasym.experiments.pieces import write_frame
from fedasym.experiments.seals import is_broken
from fedasym.experiments.tables import client_columns, gain_columns, trial_columns, tuning_columns

if TYPE_CHECKING:
    from fedasym.experiments.results import Results
    from fedasym.experiments.spec import Experiment

SUMMARY = "results.json"
FORMAT = "fedasym results 1"
CLIENTS = "clients.parquet"
UNREADABLE = (
    *(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError),
    *(pl.exceptions.PolarsError, pl.exceptions.PanicException),
)


def columns_of(experiment: Experiment, task: str) -> dict[str, dict[str, Any]]:
    """The tables in CSV, and their columns."""
    return {"tuning": tuning_columns(experiment, task), "trials": trial_columns(task), "gains": gain_columns(task)}


def saved(results: Results, folder: Path) -> Path:
    """Write everything; a path of this machine in the experiment is cut to the file's name."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise InvalidInput(f"folder is {str(folder)!r}: it cannot be made: {reason.strerror}") from None
    experiment = results.experiment.portable()
    write_text(folder / EXPERIMENT, experiment.to_toml())
    if brought := describe_brought(experiment.algorithms):
        write_text(folder / ALGORITHMS, brought)
    write_text(folder / DATA, json.dumps(results.data._asdict()) + "\n")
    for name in columns_of(experiment, results.task):
        write_text(folder / f"{name}.csv", getattr(results, name).write_csv())
    write_frame(folder / CLIENTS, results.clients, compression="zstd", compression_level=19)
    told = {"remarks": results.remarks, "budget": results.budget, "environment": dict(results.environment)}
    held = {"format": FORMAT, "tuned": results.tuned, **told}
    write_text(folder / SUMMARY, json.dumps(held, indent=2) + "\n")
    if results.foreseen is not None:
        keep(folder, results.foreseen)
    return folder


def is_saved(folder: Path) -> bool:
    """Whether a folder has saved tables."""
    return (folder / SUMMARY).is_file()


def loaded(folder: Path) -> dict[str, Any]:
    """The fields of the results that `saved` wrote."""
    from fedasym.experiments.spec import Experiment

    try:
        held = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        if held["format"] != FORMAT:
            raise InvalidInput(f"{folder} holds {held['format']!r}, and this version reads {FORMAT!r}: save the results again")
        data = record_in((folder / DATA).read_text(encoding="utf-8"))
        remember_brought(folder)
        experiment = Experiment.from_toml(folder / EXPERIMENT)
        told = told_in(held, experiment)
        tables = {
            name: pl.read_csv(folder / f"{name}.csv", schema=columns)
            for name, columns in columns_of(experiment, data.task).items()
        }
        if is_broken(content := (folder / CLIENTS).read_bytes()):
            raise ValueError(f"the bytes of {CLIENTS} have changed")
        clients = pl.read_parquet(io.BytesIO(content)).select(client_columns(data.task).keys())
        for name, table in tables.items():
            if any(table.select(pl.col(pl.String, pl.Boolean, pl.Int64).has_nulls()).row(0)):
                raise ValueError(f"{name}.csv lacks a value")
    except InvalidInput:
        raise
    except UNREADABLE as reason:
        raise InvalidInput(f"{folder} does not hold saved results: {reason}; name a folder that Results.save wrote") from None
    told["foreseen"] = foreseen_in(folder)
    return {"experiment": experiment, "data": data, **told, **tables, "clients": clients}


def told_in(held: dict[str, Any], experiment: Experiment) -> dict[str, Any]:
    """What the summary says beside the tables: settings by algorithm, sentences, and what computed it, in words."""
    tuned, remarks, environment = held["tuned"], held["remarks"], held.get("environment", {})
    settings = set(tuned) <= set(experiment.algorithms) and all(isinstance(each, dict | None) for each in tuned.values())
    words = all(isinstance(each, str) for each in (*remarks, *environment.values()))
    if not (settings and words and isinstance(remarks, list)):
        raise ValueError(f"{SUMMARY} was edited or damaged")
    "".join((*remarks, *environment, *environment.values())).encode()  # a ValueError for half a character
    return {"tuned": tuned, "remarks": tuple(remarks), "environment": environment}
