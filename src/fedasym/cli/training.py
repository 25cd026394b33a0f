"""The command of the training lens."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

import fedasym as fa
from fedasym.cli.app import OUTPUT, TRAINING, Output, app, show
from fedasym.cli.arguments import names, parse_grid, read_federation, whole_numbers
from fedasym.cli.progress import show_progress
from fedasym.core.stopping import STOPPED
from fedasym.training.settings import ABOUT, CHOSEN, default_for


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Columns:
    """Where a table keeps what training needs."""

    label: str = "label"
    """Column of the labels."""
    client: str = "client"
    """Column of the clients."""
    features: str | None = None
    """Columns of the features, separated by commas; by default all that a model can learn from."""
    split: str | None = None
    """Column that says train, validation or test; by default a column named split, or 80/10/10 within each client."""
    task: str | None = None
    """regression for labels that are numbers, classification for classes; by default as the labels look."""
    scale: str | None = None
    """standard: numbers centred and divided by their standard deviation (default); none: as they are."""
    missing: str | None = None
    """What to do with missing values: error (default), drop rows, fill by the mean, or mean and indicator."""
    role: list[str] | None = None
    """A column and its role, such as zip=ignore: number, category, identifier, ignore, shared, personal; repeat it."""
    dates: str | None = None
    """ignore (default), or number: days since the first training date."""
    intercept: bool | None = None
    """Whether models of a table have an intercept; they do by default."""


COLUMNS = Columns()


def number_flags() -> Any:
    """The settings of every run as flags, with their meanings."""
    kinds = {name: int if about.whole else float for name, about in ABOUT.items()}
    fields = []
    for name, about in ABOUT.items():
        default = default_for(name)
        kind: Any = kinds[name] if default is not None else kinds[name] | None
        more = "; chosen for the scale of the features unless given" if name in CHOSEN else ""
        words = f"{about.meaning[0].upper()}{about.meaning[1:]}{more}."
        fields.append((name, Annotated[kind, Parameter(help=words)], field(default=default)))
    return Parameter(name="*")(make_dataclass("Numbers", fields, frozen=True, kw_only=True, namespace={"__module__": __name__}))


if TYPE_CHECKING:
    Numbers = Any
else:
    Numbers = number_flags()
NUMBERS: Any = Numbers()


@app.command(group=TRAINING)
def train(
    data: str,
    /,
    *,
    algorithms: Annotated[str, Parameter(help="Names separated by commas.")] = "local,fedavg,ftfa,rtfa,maml_fo,maml_hf,pfedme",
    numbers: Numbers = NUMBERS,
    grid: Annotated[
        list[str] | None, Parameter(help="A setting and its values, such as server-step=0.01,0.1,1; repeat it.")
    ] = None,
    seeds: Annotated[str, Parameter(help="Seeds, separated by commas.")] = "0",
    protocol: str | None = None,
    intercept: bool | None = None,
    precision: str = "float32",
    columns: Columns = COLUMNS,
    output: Output = OUTPUT,
) -> None:
    """Train algorithms on client data, personalise and test every client.

    Parameters
    ----------
    data
        A file or folder of samples (Parquet, CSV, npz, safetensors, LEAF JSON, TensorFlow Federated's), or synthetic: 30 drawn
        clients.
    grid
        A setting and its values, such as server_step=0.01,0.1,1; repeat it for more. Every combination is trained.
    seeds
        Seeds, such as 0,1,2 or 0:11.
    protocol
        text: as the paper says; code: as its released code does. Unless named: the text's rules, with an intercept and with
        steps for the scale of the features.
    intercept
        Whether heads have one, shared and personal; they do by default, unless a protocol is named: text has none, code has
        one.
    precision
        float32, float64, mixed (float32 whose products an accelerator may shorten) or, for sequences, bfloat16.
    """
    remember_compilations()
    federation = read_federation(data, columns, show=not output.json)
    with show_progress("nothing was evaluated yet, so there is nothing to show") as progress:
        result = fa.train(
            names(algorithms) or [],
            federation,
            **asdict(numbers),
            grid=parse_grid(grid),
            seeds=whole_numbers("seeds", seeds),
            protocol=protocol,
            intercept=intercept,
            precision=precision,
            progress=progress,
        )
    assert isinstance(result, fa.Histories)
    show(result, output)
    if any(history.interrupted for history in result):
        raise SystemExit(STOPPED)


def remember_compilations() -> None:
    """Keep compiled programs for the next command; JAX reads this when it is imported, and a user's own choice stands."""
    from fedasym.core.locks import cache_folder

    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache_folder() / "jax"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
