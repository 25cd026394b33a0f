"""The command of the training lens."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

import fedasym as fa
from fedasym.cli.app import OUTPUT, TRAINING, Output, app, show
from fedasym.cli.arguments import names, parse_grid, read_federation, whole_numbers
from fedasym.cli.watching import show_progress, stoppable
from fedasym.core.stopping import STOPPED


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


@app.command(group=TRAINING)
def train(
    data: str,
    /,
    *,
    algorithms: Annotated[str, Parameter(help="Names separated by commas.")] = "local,fedavg,ftfa,rtfa,maml_fo,maml_hf,pfedme",
    rounds: int = 400,
    server_step: float | None = None,
    local_step: float | None = None,
    ridge: float | None = None,
    difference: float = 1e-3,
    mixing: float = 1.0,
    cohort: int | None = None,
    local_steps: int = 20,
    batch: int = 32,
    personal_epochs: int = 10,
    inner_step: float | None = None,
    inner_steps: int = 5,
    evaluate_every: int = 50,
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
    rounds
        Communication rounds (R); local training takes as many epochs.
    server_step
        Step size of local work for the shared model (eta); by default 0.1, or less where the features' scale asks for it.
    local_step
        Step size of personalization, and of MAML's inner step (alpha); by default as server_step.
    ridge
        Penalty (lambda); 0.1 for rtfa and 15 for pfedme by default.
    difference
        Finite difference of maml_hf (delta).
    mixing
        Weight of the new average in pfedme (beta).
    cohort
        Clients drawn in a round (D); 20 by default, or all where there are fewer.
    local_steps
        Batches that a drawn client trains on (K).
    batch
        Samples in a batch (B).
    personal_epochs
        Passes over a client's own samples in personalization (P).
    inner_step
        Step size of pfedme's inner problem; by default 0.05, or less where the features' scale asks for it.
    inner_steps
        Steps of pfedme's inner problem.
    evaluate_every
        All clients are personalised and tested after every so many rounds; 0: after the last alone.
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
    with stoppable("nothing was evaluated yet, so there is nothing to show"):
        result = fa.train(
            names(algorithms) or [],
            federation,
            rounds=rounds,
            server_step=server_step,
            local_step=local_step,
            ridge=ridge,
            difference=difference,
            mixing=mixing,
            cohort=cohort,
            local_steps=local_steps,
            batch=batch,
            personal_epochs=personal_epochs,
            inner_step=inner_step,
            inner_steps=inner_steps,
            evaluate_every=evaluate_every,
            grid=parse_grid(grid),
            seeds=whole_numbers("seeds", seeds),
            protocol=protocol,
            intercept=intercept,
            precision=precision,
            progress=show_progress if sys.stderr.isatty() else None,
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
