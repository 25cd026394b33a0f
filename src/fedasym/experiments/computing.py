"""One piece computed: a call of `train`, and the rows that are kept of it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import polars as pl

from fedasym.core.version import __version__
from fedasym.experiments.grids import TUNED
from fedasym.experiments.parts import BATCH
from fedasym.experiments.plan import GAINS, JUDGED, ONE, SEEDS, SPLITS, TUNING, Piece
from fedasym.training.histories import Histories
from fedasym.training.history import COLUMNS, History
from fedasym.training.settings import SIZES, named_settings

if TYPE_CHECKING:
    from fedasym.data.federation.federation import Federation

CLIENTS = {  # what is kept of each client after the last round
    "classification": ("tested", "accuracy", "shared_accuracy", "loss", "shared_loss", "gain"),
    "regression": ("tested", "loss", "shared_loss", "gain"),
}


def statistics(stage: str, task: str) -> tuple[str, ...]:
    """The statistics that a stage keeps: tuning those of validation samples, and how far training is from its end."""
    return tuple(name for name in COLUMNS[task] if stage != TUNING or name.startswith("validation") or name in JUDGED)


def schema(stage: str, task: str, brought: Mapping[str, bool] = MappingProxyType({})) -> dict[str, Any]:
    """The columns of a piece; `brought`: settings of its algorithms' own, and whether they are whole numbers."""
    columns: dict[str, Any] = {"algorithm": pl.String, "epochs": pl.String}
    columns |= {name: pl.Int64 if name in SIZES else pl.Float64 for name in TUNED}
    columns |= {name: pl.Int64 if whole else pl.Float64 for name, whole in brought.items()}
    columns |= {"seed": pl.UInt64, "split": pl.UInt64, "round": pl.Int64, "diverged": pl.Boolean}
    columns |= dict.fromkeys(statistics(stage, task), pl.Float64)
    if stage in (SEEDS, SPLITS):
        columns |= {f"client_{name}": pl.List(pl.Float64) for name in CLIENTS[task]}
    return columns


def computed(piece: Piece, federation: Federation, progress: Callable[[float, str], None]) -> pl.DataFrame:
    """Train a piece on its federation; a Ctrl-C leaves nothing of it."""
    from fedasym.training.training import train

    done = False

    def heard(share: float, text: str) -> None:
        nonlocal done
        done = share >= 1  # said only at the end of undisturbed work: Ctrl-C makes `train` return what is finished
        progress(share, text)

    wanted: dict[str, Any] = {"grid": piece.grids(), "seeds": piece.seeds, "splits": piece.splits or None}
    runs = train(piece.algorithms(), federation, progress=heard, **wanted, **piece.settings)
    if not done:
        raise KeyboardInterrupt
    assert isinstance(runs, Histories)
    rows = [row for run in runs for row in rows_of(piece, run)]
    return pl.DataFrame(rows, schema=schema(piece.stage, federation.task, piece.brought_settings()), orient="row")


def rows_of(piece: Piece, run: History) -> list[dict[str, Any]]:
    """A run by evaluated round; after the last one, what is kept of its clients."""
    name = run.algorithm.name.removesuffix(ONE)
    used = named_settings(run.settings, run.algorithm)
    single = run.algorithm.name != name
    what: dict[str, Any] = {
        "algorithm": name,
        "epochs": None if piece.stage != GAINS else BATCH if single else str(run.settings.personal_epochs),
        **{axis: used.get(axis) for axis in (*TUNED, *piece.brought_settings())},
        "seed": run.seed,
        "split": run.split,
        "diverged": run.diverged is not None,
    }
    kept = statistics(piece.stage, run.task)
    held = {name: getattr(run, name) for name in kept}
    rows = [
        what | {"round": int(when)} | {name: float(values[at]) for name, values in held.items()}
        for at, when in enumerate(run.rounds)
    ]
    if piece.stage in (SEEDS, SPLITS):
        clients = run.clients()
        rows[-1] |= {f"client_{name}": [float(client[name]) for client in clients] for name in CLIENTS[run.task]}
    return rows


def environment() -> dict[str, str]:
    """What computes: versions, device, system and command, without names of this machine or its folders."""
    import_module("fedasym.training.runner")  # starts JAX, which is about to be needed
    jax = sys.modules["jax"]
    device = jax.devices()[0]
    return {
        "python": platform.python_version(),
        "fedasym": __version__,
        "jax": jax.__version__,
        "device": f"{device.platform}: {device.device_kind}",
        "platform": f"{platform.system()} {platform.machine()}",
        "command": command(),
    }


def command() -> str:
    """The command of this process, without folders of this machine."""
    script, *arguments = sys.argv or [""]
    program = "fedasym" if Path(script).name == "__main__.py" else Path(script).name
    return " ".join([program, *(Path(word).name if Path(word).is_absolute() else word for word in arguments)])
