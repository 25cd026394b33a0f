"""The tables of results, from the rows of finished pieces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import polars as pl

from fedasym.experiments.computing import CLIENTS, schema, statistics
from fedasym.experiments.data import Record
from fedasym.experiments.grids import TUNED, combinations
from fedasym.experiments.pieces import Finished
from fedasym.experiments.plan import GAINS, JUDGED, SEEDS, Chosen
from fedasym.experiments.selection import Score, scores, validated_by
from fedasym.training.settings import SIZES

if TYPE_CHECKING:
    from fedasym.experiments.spec import Experiment


def joined(pieces: Iterable[Finished], stage: str, task: str) -> pl.DataFrame:
    """The rows of all pieces of a stage."""
    return pl.concat([pl.DataFrame(schema=schema(stage, task)), *(piece.frame for piece in pieces)], how="diagonal")


def tuning_columns(experiment: Experiment, task: str) -> dict[str, Any]:
    """The columns of the table of tuning: the settings that some grid varies."""
    grids = experiment.grid.values()
    varied = [name for name in TUNED if any(name in axes for axes in grids)]
    brought = {name: values for axes in grids for name, values in axes.items() if name not in TUNED}
    columns: dict[str, Any] = {"algorithm": pl.String}
    columns |= {name: pl.Int64 if name in SIZES else pl.Float64 for name in varied}
    columns |= {
        name: pl.Int64 if all(isinstance(each, int) for each in values) else pl.Float64 for name, values in brought.items()
    }
    judged = dict.fromkeys(JUDGED if task == "regression" else (), pl.Float64)
    return columns | {validated_by(task): pl.Float64, **judged, "chosen": pl.Boolean, "diverged": pl.Boolean}


def tuning_table(experiment: Experiment, rows: pl.DataFrame | None, chosen: Chosen, task: str) -> pl.DataFrame:
    """Every configuration in the order of its grid, how it validates, and which was chosen; `rows` None: not tuned yet."""
    records: list[dict[str, Any]] = []
    for name, axes in experiment.grid.items():
        configurations = combinations(axes)
        if len(configurations) == 1:  # nothing to choose, so nothing was validated
            tried = [Score(configurations[0], float("nan"), False)]
        else:
            tried = [] if rows is None else scores(experiment, name, rows, task)
        records += [
            {"algorithm": name, **score.settings, validated_by(task): score.validation, "diverged": score.diverged}
            | {"chosen": score.settings == chosen.get(name), **score.judged}
            for score in tried
        ]
    return pl.DataFrame(records, schema=tuning_columns(experiment, task), orient="row")


def trial_columns(task: str) -> dict[str, Any]:
    """The columns of the table of trials."""
    columns: dict[str, Any] = {"sweep": pl.String, "algorithm": pl.String, "trial": pl.UInt64, "round": pl.Int64}
    return columns | dict.fromkeys(statistics(SEEDS, task), pl.Float64) | {"diverged": pl.Boolean}


def trial_table(rows: pl.DataFrame, sweep: str, task: str) -> pl.DataFrame:
    """Statistics by trial and round."""
    return numbered(rows, sweep).select(trial_columns(task).keys())


def numbered(rows: pl.DataFrame, sweep: str) -> pl.DataFrame:
    """Rows with their sweep and the number of the trial, a seed or a split."""
    return rows.with_columns(pl.lit(sweep).alias("sweep"), pl.col("seed" if sweep == SEEDS else "split").alias("trial"))


def gain_columns(task: str) -> dict[str, Any]:
    """The columns of the table of gains."""
    columns: dict[str, Any] = {"algorithm": pl.String, "epochs": pl.String, "trial": pl.UInt64, "round": pl.Int64}
    return columns | dict.fromkeys(statistics(GAINS, task), pl.Float64) | {"diverged": pl.Boolean}


def gain_table(experiment: Experiment, rows: pl.DataFrame, task: str) -> pl.DataFrame:
    """Statistics by epochs of personalization, in the order in which the experiment lists them."""
    epochs = map(str, experiment.gains.epochs if experiment.gains else ())
    order = (place("algorithm", experiment.algorithms), place("epochs", epochs), "trial", "round")
    table = rows.with_columns(pl.col("seed").alias("trial")).sort(*order)
    return table.select(gain_columns(task).keys())


def client_columns(task: str) -> dict[str, Any]:
    """The columns of the table of clients."""
    columns = {"sweep": pl.String, "algorithm": pl.String, "trial": pl.UInt64, "client": pl.String, "samples": pl.Int64}
    return columns | {name: pl.Int64 if name == "tested" else pl.Float64 for name in CLIENTS[task]}


def client_table(rows: pl.DataFrame, sweep: str, data: Record) -> pl.DataFrame:
    """Every client after the last round of every trial; samples: those it trains on."""
    lists = {f"client_{name}": name for name in CLIENTS[data.task]}
    last = numbered(rows.filter(pl.col("client_tested").is_not_null()), sweep).with_columns(
        pl.lit(pl.Series([data.clients])).first().alias("client"), pl.lit(pl.Series([data.training])).first().alias("samples")
    )
    table = last.select("sweep", "algorithm", "trial", "client", "samples", *lists).explode("client", "samples", *lists)
    return table.rename(lists).cast(pl.Schema(client_columns(data.task)))


def empty(columns: dict[str, Any]) -> pl.DataFrame:
    """A table without rows."""
    return pl.DataFrame(schema=columns)


def ordered(table: pl.DataFrame, experiment: Experiment) -> pl.DataFrame:
    """Seeds before splits, algorithms in the experiment's order, then trials, then rounds; clients stay in theirs."""
    keys = ["trial", *(["round"] if "round" in table.columns else [])]
    return table.sort("sweep", place("algorithm", experiment.algorithms), *keys, maintain_order=True)


def place(column: str, names: Iterable[str]) -> pl.Expr:
    """Where a column's name stands in a list: what to sort by."""
    return pl.col(column).replace_strict({name: at for at, name in enumerate(names)}, return_dtype=pl.Int64)
