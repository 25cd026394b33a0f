"""From a table to what `Federation.from_arrays` takes: rows, split, features, labels, and the recipe behind them.

The order matters: what a column is comes from all rows, then rows with missing values go, then the split is dealt out, and
only then do the training rows say by what features are centred and scaled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, one_of
from fedasym.core.numbers import flag
from fedasym.data.federation.frames import check_column
from fedasym.data.federation.samples import Owners, identities_of, owners_of
from fedasym.data.federation.splits import FRACTIONS, TRAIN, are_fractions, assigned, coded
from fedasym.data.tables.cells import Cells, check_magnitude, read_cells, read_numbers, refuse_stray
from fedasym.data.tables.clients import read_names
from fedasym.data.tables.fit import Fitted, fit_columns
from fedasym.data.tables.frames import read_polars
from fedasym.data.tables.labels import Labels, read_labels
from fedasym.data.tables.recipe import (
    DATES,
    LARGEST,
    MISSING,
    SCALES,
    LeftOut,
    Nested,
    Recipe,
    refuse_missing,
)
from fedasym.data.tables.roles import (
    Reason,
    Role,
    assign_role,
    check_roles,
    encode_values,
    explain_variance,
)


def read_table(
    frame: Any,
    *,
    label: Any,
    client: Any,
    features: Any = None,
    split: Any = None,
    seed: int = 0,
    task: str | None = None,
    classes: Any = None,
    intercept: bool = True,
    scale: str = "standard",
    missing: str = "error",
    roles: Mapping[str, str] | None = None,
    dates: str = "ignore",
    line: int | None = None,
) -> dict[str, Any]:
    """What `Federation.from_arrays` takes, from a table whose columns hold one value a row.

    line: that of row 0 in the file, where there is one; for errors.
    """
    for field, value, allowed in (("scale", scale, SCALES), ("missing", missing, MISSING), ("dates", dates, DATES)):
        one_of(field, value, allowed)
    intercept = flag("intercept", intercept)
    names = Names.read(frame, label, client, features, split)
    table = read_polars(frame, strict=(client, *names.labels))
    told = check_roles(roles, list(table.columns), names.taken)
    if table.height == 0:
        raise InvalidInput("there are no samples: the table has a header and no rows; give at least one sample")
    held = read_columns(table, names)
    who, client_kind = read_names(table[names.client], names.client)
    outputs = [read_cells(table[name], name) for name in names.labels]

    known = np.flatnonzero([name is not None for name in who])
    if not known.size:
        raise InvalidInput(f"the client column {names.client!r} is empty: name the column that says whose each row is")
    owner = owners_of(take_names(who, known)).owner
    chosen = {
        name: assign_role(cells.take(known), owner, told.get(name, ()), names.chosen is not None, dates)
        for name, cells in held.items()
    }
    used = [name for name, role in chosen.items() if role.kind is not None]
    check_cells(held, chosen, scale, line)
    rows, dropped, filled = select_rows(table.height, known, names, outputs, held, used, missing, line)

    labels = read_labels(outputs, task, classes, rows, line)
    clients = take_names(who, rows)
    owners = owners_of(clients)
    codes = read_split(table, split, rows, owners, seed)
    train = codes == TRAIN
    if not train.any():
        raise InvalidInput("split leaves no training sample at all: give at least one client one")
    fitted = fit_columns({name: held[name].take(rows[train]) for name in used}, chosen, scale, missing, intercept)
    recipe = Recipe(
        client=names.client,
        client_kind=client_kind,
        target=labels.target,
        columns=fitted.columns,
        features=fitted.features,
        left=list_left(chosen, fitted),
        nested=tuple(find_nested(held, chosen, owners, labels, rows, train)),
        scale=scale,
        missing=missing,
        intercept=intercept,
        rows=table.height,
        training=int(train.sum()),
        dropped=dropped,
        filled=filled,
    )
    if not recipe.features:
        raise InvalidInput(explain_nothing(recipe))
    X, _ = recipe.encode({column.name: held[column.name].take(rows) for column in recipe.columns})
    return {
        "features": X,
        "labels": labels.values,
        "clients": clients,
        "split": codes,
        "task": labels.task,
        "classes": classes,
        "names": recipe.names,
        "personal": recipe.personal,
        "intercept": intercept,
        "recipe": recipe,
    }


class Names:
    """The columns that the user names, checked against the frame's."""

    def __init__(self, columns: list[str], client: str, labels: list[str], chosen: list[str] | None, split: str | None):
        self.columns, self.client, self.labels, self.chosen = columns, client, labels, chosen
        self.taken = dict.fromkeys(labels, "label") | {client: "client"}
        if split is not None:
            self.taken[split] = "split"

    @classmethod
    def read(cls, frame: Any, label: Any, client: Any, features: Any, split: Any) -> Names:
        """Names of columns that are there, none of them twice."""
        columns = list(frame.columns)
        labels = list(label) if isinstance(label, list | tuple) else [label]
        chosen = None if features is None else list(features) if isinstance(features, list | tuple) else [features]
        asked = {"client": [client], "label": labels, "split": [split] if isinstance(split, str) else []}
        for field, names in (asked | {"features": chosen or []}).items():
            for name in names:
                check_column(field, name, columns)
        both = [name for name in chosen or () if any(name in names for names in asked.values())]
        if both:
            raise InvalidInput(f"column {both[0]!r} is a feature and also the label, client, split or mask: name it once")
        if client in labels:
            raise InvalidInput(f"column {client!r} is the client and also the label: name it once")
        if chosen is not None and len(set(chosen)) < len(chosen):
            twice = next(name for name in chosen if chosen.count(name) > 1)
            raise InvalidInput(f"features name column {twice!r} twice: name it once")
        texts = None if chosen is None else [str(name) for name in chosen]
        split = split if isinstance(split, str) else None
        return cls([str(name) for name in columns], str(client), [str(name) for name in labels], texts, split)


def take_names(who: Sequence[Any], rows: NDArray[np.intp]) -> Any:
    """The clients of some rows; whole numbers as an array, which is quicker to look through."""
    held = [who[row] for row in rows]
    return np.array(held, np.int64) if held and isinstance(held[0], int) else held


def read_columns(table: Any, names: Names) -> dict[str, Cells]:
    """The columns that could be features, as the user names them, or in the table's order."""
    others = names.chosen if names.chosen is not None else [name for name in names.columns if name not in names.taken]
    return {name: read_cells(table[name], name) for name in others}


def check_cells(held: Mapping[str, Cells], chosen: Mapping[str, Role], scale: str, line: int | None) -> None:
    """Refuse words among numbers, and numbers that are too large, with their row in the whole table."""
    for name, role in chosen.items():
        if role.kind == "number":
            refuse_stray(held[name], line)
            values = read_numbers(held[name], line)
            if scale == "none":
                check_magnitude(values, name, LARGEST, line)


def select_rows(
    height: int,
    known: NDArray[np.intp],
    names: Names,
    outputs: Sequence[Cells],
    held: Mapping[str, Cells],
    used: Sequence[str],
    missing: str,
    line: int | None,
) -> tuple[NDArray[np.intp], int, dict[str, int]]:
    """The rows that serve, how many do not, and how many cells of theirs are filled, by column."""
    if missing == "error":
        absent = {names.client: ~np.isin(np.arange(height), known)}
        absent |= {each.name: each.missing for each in outputs}
        refuse_missing(absent | {name: held[name].missing for name in used}, line)
    keep = np.zeros(height, bool)
    keep[known] = True
    for each in outputs:
        keep &= ~each.missing
    if missing == "drop":
        for name in used:
            keep &= ~held[name].missing
    rows = np.flatnonzero(keep)
    if not rows.size:
        raise InvalidInput(
            f"missing is {missing!r}, and every row lacks its client, its label or a feature: leave out columns that are "
            "mostly empty"
        )
    counts = {name: int(held[name].missing[rows].sum()) for name in used}
    return rows, height - rows.size, {name: count for name, count in counts.items() if count}


def read_split(table: Any, split: Any, rows: NDArray[np.intp], owners: Owners, seed: int) -> NDArray[np.int8]:
    """Which rows train, validate and test, in the order of the rows."""
    if isinstance(split, str):
        return coded(table[split].gather(rows).to_list(), rows.size, owners.spot)
    split = FRACTIONS if split is None else split
    if not are_fractions(split, table.height):
        values = split.tolist() if hasattr(split, "tolist") else list(split)
        values = [values[row] for row in rows] if len(values) == table.height else values
        return coded(values, rows.size, owners.spot)
    order = owners.order
    identities = identities_of(owners.names)
    if order is None:
        return assigned(owners.owner, identities, seed, split)
    codes = np.empty(rows.size, np.int8)
    codes[order] = assigned(owners.owner[order], identities, seed, split)
    return codes


def list_left(chosen: Mapping[str, Role], fitted: Fitted) -> tuple[LeftOut, ...]:
    """What is left out, by role and by the training rows, in the table's order."""
    by_role = [LeftOut(name, role.reason) for name, role in chosen.items() if role.reason is not None]
    return (*by_role, *fitted.left)


def find_nested(
    held: Mapping[str, Cells],
    chosen: Mapping[str, Role],
    owners: Owners,
    labels: Labels,
    rows: NDArray[np.intp],
    train: NDArray[np.bool_],
) -> list[Nested]:
    """Groups within clients, and what they explain of a number to predict."""
    found = []
    for name, role in chosen.items():
        if role.reason is not Reason.NESTED:
            continue
        cells = held[name].take(rows[train])
        codes, clients = encode_values(cells, owners.owner[train])
        explained = None
        if labels.task == "regression" and labels.values.shape[1] == 1 and codes.size:
            explained = explain_variance(codes, clients, labels.values[train][~cells.missing, 0])
        found.append(Nested(name, int(held[name].values.drop_nulls().n_unique()), explained))
    return found


def explain_nothing(recipe: Recipe) -> str:
    """Why no feature is left, for an error."""
    reasons = [f"{each.name!r} is left out ({each.reason.value})" for each in recipe.left[:8]]
    told = "; ".join(reasons) if reasons else "there is no other column beside label, client and split"
    return f"no column is left to make features of: {told}; name the columns to use as features"
