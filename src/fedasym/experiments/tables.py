"""From pieces to tables: tables of results, their files, and the runs in a folder."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from fedasym.algorithms.registry import ALGORITHMS, describe_brought, remember_brought
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import columns
from fedasym.core.runtime import is_broken, is_url, write_text
from fedasym.experiments import plan
from fedasym.experiments.fields import TUNED, Record, combinations, read_record
from fedasym.experiments.folder import (
    DATA,
    EXPERIMENT,
    RunFolder,
    is_run,
    mirror_folder,
    wanted_pieces,
)
from fedasym.experiments.pieces import CLIENT_STATISTICS, statistic_names, write_frame
from fedasym.experiments.plan import GAINS, JUDGED, SEEDS, Chosen, Score, scores, validation_score
from fedasym.experiments.reproduction import RUNS, keep_foresight, read_foresight
from fedasym.training.settings import SIZES

if TYPE_CHECKING:
    from fedasym.experiments import Experiment
    from fedasym.experiments.results import Results


def tuning_columns(experiment: Experiment, task: str) -> dict[str, Any]:
    """The columns of the table of tuning: the settings that some grid varies."""
    grids = experiment.grid.values()
    varied = [name for name in TUNED if any(name in axes for axes in grids)]
    brought = {name: values for axes in grids for name, values in axes.items() if name not in TUNED}
    columns: dict[str, Any] = {"algorithm": pl.String}
    columns |= {name: pl.Int64 if name in SIZES else pl.Float64 for name in varied}
    columns |= {
        name: pl.Int64 if all(isinstance(each, int) for each in values) else pl.Float64
        for name, values in brought.items()
    }
    judged = dict.fromkeys(JUDGED if task == "regression" else (), pl.Float64)
    return columns | {
        validation_score(task): pl.Float64,
        **judged,
        "chosen": pl.Boolean,
        "diverged": pl.Boolean,
    }


def tuning_table(
    experiment: Experiment, rows: pl.DataFrame | None, chosen: Chosen, task: str
) -> pl.DataFrame:
    """Every configuration in grid order, its validation, and the choice; `rows` None: not yet."""
    records: list[dict[str, Any]] = []
    for name, axes in experiment.grid.items():
        configurations = combinations(axes)
        if len(configurations) == 1:  # nothing to choose, so nothing was validated
            tried = [Score(configurations[0], float("nan"), False)]
        else:
            tried = [] if rows is None else scores(experiment, name, rows, task)
        records += [
            {
                "algorithm": name,
                **score.settings,
                validation_score(task): score.validation,
                "diverged": score.diverged,
            }
            | {"chosen": score.settings == chosen.get(name), **score.judged}
            for score in tried
        ]
    return pl.DataFrame(records, schema=tuning_columns(experiment, task), orient="row")


def trial_columns(task: str) -> dict[str, Any]:
    """The columns of the table of trials."""
    columns: dict[str, Any] = {
        "sweep": pl.String,
        "algorithm": pl.String,
        "trial": pl.UInt64,
        "round": pl.Int64,
    }
    return (
        columns | dict.fromkeys(statistic_names(SEEDS, task), pl.Float64) | {"diverged": pl.Boolean}
    )


def trial_table(rows: pl.DataFrame, sweep: str, task: str) -> pl.DataFrame:
    """Statistics by trial and round."""
    return number_rows(rows, sweep).select(trial_columns(task).keys())


def number_rows(rows: pl.DataFrame, sweep: str) -> pl.DataFrame:
    """Rows with their sweep and the number of the trial, a seed or a split."""
    return rows.with_columns(
        pl.lit(sweep).alias("sweep"), pl.col("seed" if sweep == SEEDS else "split").alias("trial")
    )


def gain_columns(task: str) -> dict[str, Any]:
    """The columns of the table of gains."""
    columns: dict[str, Any] = {
        "algorithm": pl.String,
        "epochs": pl.String,
        "trial": pl.UInt64,
        "round": pl.Int64,
    }
    return (
        columns | dict.fromkeys(statistic_names(GAINS, task), pl.Float64) | {"diverged": pl.Boolean}
    )


def gain_table(experiment: Experiment, rows: pl.DataFrame, task: str) -> pl.DataFrame:
    """Statistics by epochs of personalization, in the order in which the experiment lists them."""
    epochs = map(str, experiment.gains.epochs if experiment.gains else ())
    order = (
        place_in("algorithm", experiment.algorithms),
        place_in("epochs", epochs),
        "trial",
        "round",
    )
    table = rows.with_columns(pl.col("seed").alias("trial")).sort(*order)
    return table.select(gain_columns(task).keys())


def client_columns(task: str) -> dict[str, Any]:
    """The columns of the table of clients."""
    columns = {
        "sweep": pl.String,
        "algorithm": pl.String,
        "trial": pl.UInt64,
        "client": pl.String,
        "samples": pl.Int64,
    }
    return columns | {
        name: pl.Int64 if name == "tested" else pl.Float64 for name in CLIENT_STATISTICS[task]
    }


def client_table(rows: pl.DataFrame, sweep: str, data: Record) -> pl.DataFrame:
    """Every client after the last round of every trial; samples: those it trains on."""
    lists = {f"client_{name}": name for name in CLIENT_STATISTICS[data.task]}
    last = number_rows(rows.filter(pl.col("client_tested").is_not_null()), sweep).with_columns(
        pl.lit(pl.Series([data.clients])).first().alias("client"),
        pl.lit(pl.Series([data.training])).first().alias("samples"),
    )
    table = last.select("sweep", "algorithm", "trial", "client", "samples", *lists).explode(
        "client", "samples", *lists
    )
    return table.rename(lists).cast(pl.Schema(client_columns(data.task)))


def empty_table(columns: dict[str, Any]) -> pl.DataFrame:
    """A table without rows."""
    return pl.DataFrame(schema=columns)


def order_rows(table: pl.DataFrame, experiment: Experiment) -> pl.DataFrame:
    """Seeds before splits, then algorithms in order, trials, rounds; clients stay in theirs."""
    keys = ["trial", *(["round"] if "round" in table.columns else [])]
    return table.sort(
        "sweep", place_in("algorithm", experiment.algorithms), *keys, maintain_order=True
    )


def place_in(column: str, names: Iterable[str]) -> pl.Expr:
    """Where a column's name stands in a list: what to sort by."""
    return pl.col(column).replace_strict(
        {name: at for at, name in enumerate(names)}, return_dtype=pl.Int64
    )


SUMMARY = "results.json"
FORMAT = "fedasym results 1"
CLIENTS_FILE = "clients.parquet"
UNREADABLE = (
    *(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError),
    *(pl.exceptions.PolarsError, pl.exceptions.PanicException),
)


def columns_of(experiment: Experiment, task: str) -> dict[str, dict[str, Any]]:
    """The tables in CSV, and their columns."""
    return {
        "tuning": tuning_columns(experiment, task),
        "trials": trial_columns(task),
        "gains": gain_columns(task),
    }


def save_tables(results: Results, folder: Path) -> Path:
    """Write everything; a path of this machine in the experiment is cut to the file's name."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise InvalidInput(
            f"folder is {str(folder)!r}: it cannot be made: {reason.strerror}"
        ) from None
    experiment = results.experiment.portable()
    write_text(folder / EXPERIMENT, experiment.to_toml())
    if brought := describe_brought(experiment.algorithms):
        write_text(folder / ALGORITHMS, brought)
    write_text(folder / DATA, json.dumps(results.data._asdict()) + "\n")
    for name in columns_of(experiment, results.task):
        write_text(folder / f"{name}.csv", getattr(results, name).write_csv())
    write_frame(folder / CLIENTS_FILE, results.clients, compression="zstd", compression_level=19)
    told = {
        "remarks": results.remarks,
        "budget": results.budget,
        "environment": dict(results.environment),
        "folder": results.folder,
    }
    held = {"format": FORMAT, "tuned": results.tuned, **told}
    write_text(folder / SUMMARY, json.dumps(held, indent=2) + "\n")
    if results.foreseen is not None:
        keep_foresight(folder, results.foreseen)
    return folder


def is_saved(folder: Path) -> bool:
    """Whether a folder has saved tables."""
    return (folder / SUMMARY).is_file()


def load_tables(folder: Path) -> dict[str, Any]:
    """The fields of the results that `saved` wrote."""
    from fedasym.experiments import Experiment

    try:
        held = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        if held["format"] != FORMAT:
            raise InvalidInput(
                f"{folder} holds {held['format']!r}, and this version reads {FORMAT!r}: save the"
                " results again"
            )
        data = read_record((folder / DATA).read_text(encoding="utf-8"))
        remember_brought(folder)
        experiment = Experiment.from_toml(folder / EXPERIMENT)
        told = read_run_summary(held, experiment)
        tables = {
            name: pl.read_csv(folder / f"{name}.csv", schema=columns)
            for name, columns in columns_of(experiment, data.task).items()
        }
        if is_broken(content := (folder / CLIENTS_FILE).read_bytes()):
            raise ValueError(f"the bytes of {CLIENTS_FILE} have changed")
        clients = pl.read_parquet(io.BytesIO(content)).select(client_columns(data.task).keys())
        for name, table in tables.items():
            if any(table.select(pl.col(pl.String, pl.Boolean, pl.Int64).has_nulls()).row(0)):
                raise ValueError(f"{name}.csv lacks a value")
    except InvalidInput:
        raise
    except UNREADABLE as reason:
        raise InvalidInput(
            f"{folder} does not hold saved results: {reason}; name a folder that Results.save wrote"
        ) from None
    told["foreseen"] = read_foresight(folder)
    return {"experiment": experiment, "data": data, **told, **tables, "clients": clients}


def read_run_summary(held: dict[str, Any], experiment: Experiment) -> dict[str, Any]:
    """The summary beside the tables: settings by algorithm, sentences, and what computed it."""
    tuned = held["tuned"]
    remarks = held["remarks"]
    environment = held.get("environment", {})
    folder = held.get("folder")
    settings = set(tuned) <= set(experiment.algorithms) and all(
        isinstance(each, dict | None) for each in tuned.values()
    )
    words = all(isinstance(each, str) for each in (*remarks, *environment.values()))
    if not (settings and words and isinstance(remarks, list) and isinstance(folder, str | None)):
        raise ValueError(f"{SUMMARY} was edited or damaged")
    "".join(
        (*remarks, *environment, *environment.values(), folder or "")
    ).encode()  # a ValueError for half a character
    told = {"tuned": tuned, "remarks": tuple(remarks), "environment": environment}
    return told | {"folder": folder}


class Status(NamedTuple):
    """How far a run is."""

    name: str
    finished: int
    planned: int
    orphans: int  # finished pieces that the experiment, as it is now, does not ask for
    size: int  # bytes
    running: bool
    changed: float  # seconds since the epoch

    @property
    def state(self) -> str:
        """In a word."""
        return (
            "running"
            if self.running
            else "complete"
            if self.finished == self.planned
            else "unfinished"
        )


def run_status(path: str | Path) -> Status:
    """How far the run in a folder is."""
    folder = RunFolder.open_existing(path)
    tuning, trials = wanted_pieces(folder)
    experiment = folder.experiment()
    about = (
        plan.trials(experiment, plan.placeholder_choice(experiment)) if trials is None else trials
    )
    files = list(folder.pieces.glob("*.parquet"))
    mine = sum(file.stem in tuning | (trials or set()) for file in files)
    return Status(
        name=experiment.name,
        finished=mine,
        planned=len(tuning) + len(about),
        orphans=0 if trials is None else len(files) - mine,
        size=sum(file.stat().st_size for file in files),
        running=folder.is_running(),
        changed=max([file.stat().st_mtime for file in (*files, folder.path / EXPERIMENT)]),
    )


def run_folders(folder: str | Path = RUNS) -> list[Path]:
    """The run folders in a folder, or the folder itself where it is one."""
    place = Path(folder)
    if not place.is_dir():
        raise InvalidInput(
            f"there is no folder {str(folder)!r}: run an experiment first, or name the folder of"
            " your runs"
        )
    return [place] if is_run(place) else sorted(filter(is_run, place.iterdir()))


def find_run(run: str) -> Path:
    """The folder of a run, to read: a path, a name among the runs, or the mirror of a URL."""
    if is_url(run):
        return mirror_folder(run)
    place = Path(run)
    return place if is_run(place) or not is_run(Path(RUNS, run)) else Path(RUNS, run)


def list_runs(folder: str | Path = RUNS) -> str:
    """The runs in a folder as a table."""
    rows = [["run", "state", "pieces", "orphans", "MB", "last change (UTC)"]]
    for each in run_folders(folder):
        try:
            now = run_status(each)
        except InvalidInput as reason:
            rows.append([str(each), f"unreadable: {reason}", "", "", "", ""])
            continue
        when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(now.changed))
        rows.append(
            [
                str(each),
                now.state,
                f"{now.finished}/{now.planned}",
                str(now.orphans),
                f"{now.size / 1e6:.1f}",
                when,
            ]
        )
    return "\n".join(columns(rows, left=2)) if len(rows) > 1 else f"There are no runs in {folder}."


def clean_run(path: str | Path) -> tuple[int, int]:
    """Remove what the experiment does not ask for and killed processes left; files and bytes."""
    folder = RunFolder.open_existing(path)
    tuning, trials = wanted_pieces(folder)
    if trials is None:
        raise InvalidInput(
            f"{path} has not finished tuning, so that what its trials need is not known: finish the"
            " run first"
        )
    return folder.clean(tuning | trials)
