"""The commands that fit models, keep them, and apply them to new rows."""

from __future__ import annotations

import sys

import fedasym as fa
from fedasym.cli.app import TRAINING, app
from fedasym.cli.arguments import read_federation
from fedasym.cli.training import COLUMNS, Columns


@app.command(group=TRAINING)
def fit(
    data: str,
    /,
    *,
    save: str,
    columns: Columns = COLUMNS,
    algorithm: str | None = None,
    ridge: float | None = None,
) -> None:
    """Fit personalized models to a table, exactly, and keep them: what advise recommends, or the algorithm named.

    All rows are learnt from, unless --split names a column that says which train.

    Parameters
    ----------
    data
        A file or folder of client data, such as a CSV.
    save
        Where the model is kept: a file whose name ends in .safetensors.
    algorithm
        local, local_ridge, fedavg, ftfa, rtfa, maml or pfedme; what advise recommends by default.
    ridge
        Of each client's model, where the algorithm has one; by default from how much clients differ. Labels that are numbers.
    """
    if not save.endswith(".safetensors"):
        raise fa.InvalidInput(f"save is {save!r}: its name must end in .safetensors")
    federation = read_federation(data, columns, show=True, whole=columns.split is None)
    model = fa.fit(federation, algorithm, ridge=ridge)
    where = model.save(save)
    print(f"{model}\n\nKept in {where}; to use it: fedasym apply {where} NEW.csv --into OUT.csv")


@app.command(group=TRAINING)
def apply(model: str, data: str, /, *, into: str | None = None, column: str = "prediction") -> None:
    """Add predictions to the raw rows of a table; rows of clients that the model does not know get the shared model.

    Parameters
    ----------
    model
        A file that fit kept.
    data
        A table with the columns that the model was fitted to; the label is not needed.
    into
        Where to write: .csv or .parquet; by default as CSV to standard output.
    column
        The name of the new column; another, "model", says own or shared.
    """
    from fedasym.core.files import replace_file as replacing
    from fedasym.data.tables.frames import read_file

    kept = fa.Model.load(model)
    names = () if kept.recipe is None else (kept.recipe.client,)
    table, counts = kept.apply(read_file(data, names), column)
    if into is None:
        sys.stdout.write(table.write_csv())
    else:
        from pathlib import Path

        where = Path(into)
        if where.suffix not in (".csv", ".parquet"):
            raise fa.InvalidInput(f"into is {into!r}: its name must end in .csv or .parquet")
        try:
            with replacing(where) as fresh:
                table.write_csv(fresh) if where.suffix == ".csv" else table.write_parquet(fresh)
        except OSError as reason:
            raise fa.InvalidInput(f"into is {into!r}: it cannot be written: {reason.strerror or reason}") from None
    shared = int((table["model"] == "shared").sum())
    told = f"{table.height} rows" + (f", {shared} of clients that the model does not know" if shared else "")
    for word, by_column in (("unseen levels", counts.unseen), ("missing cells", counts.missing)):
        if by_column:
            told += f"; {word} in " + ", ".join(f"{name} ({count})" for name, count in by_column.items())
    print(told + ("" if into is None else f"; written to {into}"), file=sys.stderr)
