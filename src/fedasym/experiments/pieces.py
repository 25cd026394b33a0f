"""The pieces of an experiment: a call of `train`, its rows, and their file, checked to the bit."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from fedasym.core import __version__
from fedasym.core.errors import MissingPackage
from fedasym.core.numbers import canonical_json
from fedasym.core.runtime import explain_unwritable, is_broken, replace_file, seal_file
from fedasym.experiments.fields import BATCH, TUNED
from fedasym.experiments.plan import GAINS, JUDGED, ONE, SEEDS, SPLITS, TUNING, Piece, key_of
from fedasym.training.histories import Histories
from fedasym.training.history import History
from fedasym.training.settings import SIZES, named_settings
from fedasym.training.wording import COLUMNS

if TYPE_CHECKING:
    from fedasym.data.federation import Federation

try:
    import polars as pl
except ImportError:
    raise MissingPackage("run folders need polars: pip install 'fedasym[train]'") from None

FORMAT = "fedasym piece 1"
META = "fedasym"  # the key of the file's metadata


class Damaged(Exception):
    """A file that is not what was written; the message says what is wrong with it."""


class Finished(NamedTuple):
    """The rows of a piece, and how they were made: seconds, device, versions."""

    frame: pl.DataFrame
    made: dict[str, Any]


def piece_checksum(frame: pl.DataFrame, description: str, made: str) -> str:
    """The checksum of everything in a file, its rows to the last bit."""
    kinds = json.dumps([[name, str(kind)] for name, kind in frame.schema.items()])
    rows = kinds + json.dumps(frame.to_dict(as_series=False))
    return hashlib.sha256("\n".join((FORMAT, rows, description, made)).encode()).hexdigest()


def write_piece(
    path: Path, frame: pl.DataFrame, description: dict[str, Any], made: dict[str, Any]
) -> None:
    """Write a piece."""
    texts = canonical_json(description), canonical_json(made)
    held = {"format": FORMAT, "description": texts[0], "made": texts[1]}
    held["sum"] = piece_checksum(frame, *texts)
    write_frame(path, frame, metadata={META: json.dumps(held)})


def read_piece(path: Path) -> Finished:
    """Read a piece, every bit of it checked."""
    try:
        content = path.read_bytes()
        if is_broken(content):
            raise Damaged("its bytes have changed")
        held = json.loads(pl.read_parquet_metadata(io.BytesIO(content))[META])
        frame = pl.read_parquet(io.BytesIO(content))
        texts, known = (held["description"], held["made"]), (held["format"], held["sum"])
        if known != (FORMAT, piece_checksum(frame, *texts)):
            raise Damaged("its checksum has changed")
        if key_of(json.loads(texts[0])) != path.stem:
            raise Damaged("another piece has this name")
        return Finished(frame, json.loads(texts[1]))
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        raise Damaged("it cannot be read as Parquet") from None
    except (KeyError, ValueError, TypeError):
        raise Damaged("its description is gone") from None


def write_frame(path: Path, frame: pl.DataFrame, **options: Any) -> None:
    """Write a table as Parquet with its seal; options: those of polars."""
    content = io.BytesIO()
    frame.write_parquet(content, **options)
    with explain_unwritable(path), replace_file(path) as fresh:
        fresh.write_bytes(seal_file(content.getvalue()))


CLIENT_STATISTICS = {  # what is kept of each client after the last round
    "classification": ("tested", "accuracy", "shared_accuracy", "loss", "shared_loss", "gain"),
    "regression": ("tested", "loss", "shared_loss", "gain"),
}


def statistic_names(stage: str, task: str) -> tuple[str, ...]:
    """A stage's statistics: in tuning those of validation, and how far training is from its end."""
    return tuple(
        name
        for name in COLUMNS[task]
        if stage != TUNING or name.startswith("validation") or name in JUDGED
    )


def row_schema(
    stage: str, task: str, brought: Mapping[str, bool] = MappingProxyType({})
) -> dict[str, Any]:
    """The columns of a piece; `brought`: its algorithms' settings, and whether they are whole."""
    columns: dict[str, Any] = {"algorithm": pl.String, "epochs": pl.String}
    columns |= {name: pl.Int64 if name in SIZES else pl.Float64 for name in TUNED}
    columns |= {name: pl.Int64 if whole else pl.Float64 for name, whole in brought.items()}
    columns |= {"seed": pl.UInt64, "split": pl.UInt64, "round": pl.Int64, "diverged": pl.Boolean}
    columns |= dict.fromkeys(statistic_names(stage, task), pl.Float64)
    if stage in (SEEDS, SPLITS):
        columns |= {f"client_{name}": pl.List(pl.Float64) for name in CLIENT_STATISTICS[task]}
    return columns


def compute_piece(
    piece: Piece, federation: Federation, progress: Callable[[float, str], None]
) -> pl.DataFrame:
    """Train a piece on its federation; a Ctrl-C leaves nothing of it."""
    from fedasym.training import train

    done = False

    def report_progress(share: float, text: str) -> None:
        nonlocal done
        # said only at the end of undisturbed work: Ctrl-C makes `train` return what is finished
        done = share >= 1
        progress(share, text)

    wanted: dict[str, Any] = {
        "grid": piece.grids(),
        "seeds": piece.seeds,
        "splits": piece.splits or None,
    }
    runs = train(
        piece.algorithms(), federation, progress=report_progress, **wanted, **piece.settings
    )
    if not done:
        raise KeyboardInterrupt
    assert isinstance(runs, Histories)
    rows = [row for run in runs for row in piece_rows(piece, run)]
    return pl.DataFrame(
        rows,
        schema=row_schema(piece.stage, federation.task, piece.brought_settings()),
        orient="row",
    )


def piece_rows(piece: Piece, run: History) -> list[dict[str, Any]]:
    """A run by evaluated round; after the last one, what is kept of its clients."""
    name = run.algorithm.name.removesuffix(ONE)
    used = named_settings(run.settings, run.algorithm)
    single = run.algorithm.name != name
    what: dict[str, Any] = {
        "algorithm": name,
        "epochs": (
            None if piece.stage != GAINS else BATCH if single else str(run.settings.personal_epochs)
        ),
        **{axis: used.get(axis) for axis in (*TUNED, *piece.brought_settings())},
        "seed": run.seed,
        "split": run.split,
        "diverged": run.diverged is not None,
    }
    kept = statistic_names(piece.stage, run.task)
    held = {name: getattr(run, name) for name in kept}
    rows = [
        what | {"round": int(when)} | {name: float(values[at]) for name, values in held.items()}
        for at, when in enumerate(run.rounds)
    ]
    if piece.stage in (SEEDS, SPLITS):
        columns = run.client_columns()
        rows[-1] |= {
            f"client_{name}": pl.Series(columns[name].astype(float))
            for name in CLIENT_STATISTICS[run.task]
        }
    return rows


def describe_environment() -> dict[str, str]:
    """What computes: versions, device, system, command, without names of machine or folders."""
    import_module("fedasym.training.runner")  # starts JAX, which is about to be needed
    jax = sys.modules["jax"]
    device = jax.devices()[0]
    return {
        "python": platform.python_version(),
        "fedasym": __version__,
        "jax": jax.__version__,
        "device": f"{device.platform}: {device.device_kind}",
        "platform": f"{platform.system()} {platform.machine()}",
        "command": command_line(),
    }


def command_line() -> str:
    """The command of this process, without folders of this machine."""
    script, *arguments = sys.argv or [""]
    program = "fedasym" if Path(script).name == "__main__.py" else Path(script).name
    return " ".join(
        [program, *(Path(word).name if Path(word).is_absolute() else word for word in arguments)]
    )


def join_rows(pieces: Iterable[Finished], stage: str, task: str) -> pl.DataFrame:
    """The rows of all pieces of a stage."""
    return pl.concat(
        [pl.DataFrame(schema=row_schema(stage, task)), *(piece.frame for piece in pieces)],
        how="diagonal",
    )
