"""From a table to `Federation.from_arrays`: rows, split, features, labels, and their recipe.

The order matters: what a column is comes from all rows, then rows with missing values go, then the
split is dealt out, and only then do the training rows say by what features are centred and scaled,
which levels there are, and which features others determine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, one_of
from fedasym.core.numbers import flag
from fedasym.data.cells import (
    EXACT,
    LARGEST_FEATURE,
    CellKind,
    Cells,
    Target,
    cell_numbers,
    check_magnitude,
    read_cells,
    read_levels,
    read_names,
    refuse_stray,
)
from fedasym.data.frames import check_column, read_polars
from fedasym.data.recipe import (
    ABSENT,
    DATES,
    MISSING_RULES,
    SCALES,
    Feature,
    LeftOut,
    Nested,
    Recipe,
    TableColumn,
    UnknownCells,
    encode_column,
    refuse_missing,
)
from fedasym.data.roles import (
    TOLERANCE,
    Reason,
    Role,
    assign_role,
    check_roles,
    encode_values,
    explain_variance,
    find_combinations,
)
from fedasym.data.samples import TASKS, Owners, identities_of, owners_of
from fedasym.data.splits import FRACTIONS, TRAIN, are_fractions, assign_splits, read_codes

MOST_LEVELS = 30  # of a category, the pooled ones counted as one
RARE_SHARE = 0.005  # of the training rows
RARE_ROWS = 5
LISTED = 1000  # pooled levels that a recipe still lists
FLAT_SHARE = 1e-13  # of the largest value: a spread below it is rounding


@dataclass(frozen=True)
class FittedColumns:
    """What the training rows say: columns and features of a recipe, and what is left out."""

    columns: tuple[TableColumn, ...]
    features: tuple[Feature, ...]
    left: tuple[LeftOut, ...]


def fit_columns(
    cells: Mapping[str, Cells], roles: Mapping[str, Role], scale: str, missing: str, intercept: bool
) -> FittedColumns:
    """Columns and features from the training rows of a table.

    cells: the training rows. roles: of the same columns; those without a kind are left out already.
    """
    columns: list[TableColumn] = []
    features: list[Feature] = []
    fixed: list[bool] = []
    left: list[LeftOut] = []
    raw: list[NDArray[np.float64]] = []
    for name, role in roles.items():
        if role.kind is None:
            continue
        column, parts = fit_column(cells[name], role, missing, intercept)
        values = (
            encode_column(column, parts, cells[name], UnknownCells({}, {}))
            if parts
            else np.zeros((0, 0))
        )
        used = [place for place in range(len(parts)) if role.fixed or not is_flat(values[:, place])]
        if not any(parts[place].part != "missing" or role.fixed for place in used):
            left.append(LeftOut(name, Reason.CONSTANT))
            continue
        columns.append(column)
        for place in used:
            x = values[:, place]
            centre, spread = measure_column(x, intercept) if scale == "standard" else (0.0, 1.0)
            features.append(replace(parts[place], centre=centre, spread=spread))
            fixed.append(role.fixed)
            raw.append(standardize(x, *measure_column(x, intercept)))
    features = name_apart(features)
    if features:
        features, columns = drop_combinations(
            features, columns, np.stack(raw, 1), np.array(fixed), left
        )
    return FittedColumns(tuple(columns), tuple(features), tuple(left))


def fit_column(
    cells: Cells, role: Role, missing: str, intercept: bool
) -> tuple[TableColumn, list[Feature]]:
    """One column, and the features that it could have; their centre and spread come later."""
    name = cells.name
    if role.kind == "category":
        return fit_levels(name, read_levels(cells), role, intercept)
    values = cell_numbers(cells)
    there = values[~np.isnan(values)]
    dated = cells.kind is CellKind.DATE
    origin = float(np.floor(there.min())) if dated and there.size else 0.0
    fill = measure_column(there - origin, True)[0] if there.size else 0.0
    column = TableColumn(name, "date" if dated else "number", fill=fill, origin=origin)
    features = [Feature(name, name, personal=role.personal)]
    if missing == "indicator" and there.size < values.size:
        features.append(Feature(f"{name} missing", name, "missing", personal=role.personal))
    return column, features


def fit_levels(
    name: str, cells: list[str | None], role: Role, intercept: bool
) -> tuple[TableColumn, list[Feature]]:
    """The levels of a category."""
    counts = Counter(ABSENT if level is None else level for level in cells)
    return choose_levels(name, counts, 0, None in cells, role, intercept)


def choose_levels(
    name: str, counts: Mapping[str, int], unlisted: int, absent: bool, role: Role, intercept: bool
) -> tuple[TableColumn, list[Feature]]:
    """The levels of a category, commonest first: beside an intercept it has no indicator.

    counts: training rows by level; unlisted: those of levels without a name here. absent: whether
    cells are missing.
    """
    rows = sum(counts.values()) + unlisted
    rare = max(min(RARE_ROWS, ceil(0.05 * rows)), ceil(RARE_SHARE * rows))
    order = sorted(counts, key=lambda level: (-counts[level], level))
    own = [level for level in order if counts[level] >= rare][: MOST_LEVELS - 1] or order[:1]
    if ABSENT in counts and absent and ABSENT not in own:
        own.append(ABSENT)
    rest = [level for level in order if level not in own]
    if len(rest) == 1 and not unlisted:  # a level alone keeps its name
        own, rest = [*own, *rest], []
    other = bool(rest or unlisted)
    reference = own[0] if intercept and (len(own) > 1 or (own and other)) else None
    listed = tuple(sorted(rest)) if len(rest) <= LISTED else ()
    column = TableColumn(
        name, "category", levels=tuple(own), reference=reference, pooled=listed, other=other
    )
    shown = sorted(level for level in own if level != reference)
    features = [
        Feature(f"{name}={level}", name, "level", level, personal=role.personal) for level in shown
    ]
    if other:
        features.append(Feature(f"{name}=other", name, "other", personal=role.personal))
    return column, features


def measure_column(x: NDArray[np.float64], centred: bool) -> tuple[float, float]:
    """Mean and standard deviation without overflow; uncentred, 0 and the root mean square."""
    largest = float(np.abs(x).max(initial=0.0))
    if largest == 0 or not np.isfinite(largest):
        return 0.0, 1.0
    scaled = x / largest
    mean = float(scaled.mean()) if centred else 0.0
    spread = float(np.sqrt(np.mean((scaled - mean) ** 2)))
    flat = spread <= FLAT_SHARE or spread * largest == 0
    return mean * largest, 1.0 if flat else spread * largest


def standardize(x: NDArray[np.float64], centre: float, spread: float) -> NDArray[np.float64]:
    """(x - centre)/spread."""
    return np.asarray((x - centre) / spread)


def is_flat(x: NDArray[np.float64]) -> bool:
    """Whether values are all the same, up to rounding."""
    largest = float(np.abs(x).max(initial=0.0))
    if largest == 0:
        return True
    return float(np.std(x / largest)) <= FLAT_SHARE


def name_apart(features: list[Feature]) -> list[Feature]:
    """Features whose names differ: a column may be called as an indicator of another."""
    seen: set[str] = set()
    apart = []
    for feature in features:
        name = feature.name
        number = 2
        while name in seen:
            name = f"{feature.name} ({number})"
            number = number + 1
        seen.add(name)
        apart.append(replace(feature, name=name))
    return apart


def drop_combinations(
    features: list[Feature],
    columns: list[TableColumn],
    X: NDArray[np.float64],
    fixed: NDArray[np.bool_],
    left: list[Any],
    tolerance: float = TOLERANCE,
) -> tuple[list[Feature], list[TableColumn]]:
    """Features and columns without those that earlier ones determine."""
    found = find_combinations(X, fixed, tolerance)
    if not found:
        return features, columns
    kept = [each for place, each in enumerate(features) if place not in found]
    held = {each.column for each in kept}
    for column in columns:
        places = [place for place in found if features[place].column == column.name]
        if column.name in held:
            left += [
                LeftOut(
                    features[j].name, Reason.COMBINATION, columns_of_features(features, found[j])
                )
                for j in places
            ]
        else:
            of = sorted({part for j in places for part in found[j]})
            left.append(LeftOut(column.name, Reason.COMBINATION, columns_of_features(features, of)))
    return kept, [column for column in columns if column.name in held]


def columns_of_features(features: list[Feature], places: list[int]) -> tuple[str, ...]:
    """The columns of some features, each once."""
    return tuple(dict.fromkeys(features[place].column for place in places))


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
    for field, value, allowed in (
        ("scale", scale, SCALES),
        ("missing", missing, MISSING_RULES),
        ("dates", dates, DATES),
    ):
        one_of(field, value, allowed)
    intercept = flag("intercept", intercept)
    names = Names.read(frame, label, client, features, split)
    table = read_polars(frame, strict=(client, *names.labels))
    told = check_roles(roles, list(table.columns), names.taken)
    if table.height == 0:
        raise InvalidInput(
            "there are no samples: the table has a header and no rows; give at least one sample"
        )
    held = read_columns(table, names)
    who, client_kind = read_names(table[names.client], names.client)
    outputs = [read_cells(table[name], name) for name in names.labels]

    known = np.flatnonzero([name is not None for name in who])
    if not known.size:
        raise InvalidInput(
            f"the client column {names.client!r} is empty: name the column that says whose each"
            " row is"
        )
    owner = owners_of(take_names(who, known)).owner
    chosen = {
        name: assign_role(
            cells.take(known), owner, told.get(name, ()), names.chosen is not None, dates
        )
        for name, cells in held.items()
    }
    used = [name for name, role in chosen.items() if role.kind is not None]
    check_cells(held, chosen, scale, line)
    rows, dropped, filled = select_rows(
        table.height, known, names, outputs, held, used, missing, line
    )

    labels = read_label_column(outputs, task, classes, rows, line)
    clients = take_names(who, rows)
    owners = owners_of(clients)
    codes = read_split(table, split, rows, owners, seed)
    train = codes == TRAIN
    if not train.any():
        raise InvalidInput("split leaves no training sample at all: give at least one client one")
    fitted = fit_columns(
        {name: held[name].take(rows[train]) for name in used}, chosen, scale, missing, intercept
    )
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

    def __init__(
        self,
        columns: list[str],
        client: str,
        labels: list[str],
        chosen: list[str] | None,
        split: str | None,
    ):
        self.columns, self.client, self.labels, self.chosen = columns, client, labels, chosen
        self.taken = dict.fromkeys(labels, "label") | {client: "client"}
        if split is not None:
            self.taken[split] = "split"

    @classmethod
    def read(cls, frame: Any, label: Any, client: Any, features: Any, split: Any) -> Names:
        """Names of columns that are there, none of them twice."""
        columns = list(frame.columns)
        labels = list(label) if isinstance(label, list | tuple) else [label]
        chosen = (
            None
            if features is None
            else list(features)
            if isinstance(features, list | tuple)
            else [features]
        )
        asked = {
            "client": [client],
            "label": labels,
            "split": [split] if isinstance(split, str) else [],
        }
        for field, names in (asked | {"features": chosen or []}).items():
            for name in names:
                check_column(field, name, columns)
        both = [name for name in chosen or () if any(name in names for names in asked.values())]
        if both:
            raise InvalidInput(
                f"column {both[0]!r} is a feature and also the label, client, split or mask: name"
                " it once"
            )
        if client in labels:
            raise InvalidInput(f"column {client!r} is the client and also the label: name it once")
        if chosen is not None and len(set(chosen)) < len(chosen):
            twice = next(name for name in chosen if chosen.count(name) > 1)
            raise InvalidInput(f"features name column {twice!r} twice: name it once")
        texts = None if chosen is None else [str(name) for name in chosen]
        split = split if isinstance(split, str) else None
        return cls(
            [str(name) for name in columns],
            str(client),
            [str(name) for name in labels],
            texts,
            split,
        )


def take_names(who: Sequence[Any], rows: NDArray[np.intp]) -> Any:
    """The clients of some rows; whole numbers as an array, which is quicker to look through."""
    held = [who[row] for row in rows]
    return np.array(held, np.int64) if held and isinstance(held[0], int) else held


def read_columns(table: Any, names: Names) -> dict[str, Cells]:
    """The columns that could be features, as the user names them, or in the table's order."""
    others = (
        names.chosen
        if names.chosen is not None
        else [name for name in names.columns if name not in names.taken]
    )
    return {name: read_cells(table[name], name) for name in others}


def check_cells(
    held: Mapping[str, Cells], chosen: Mapping[str, Role], scale: str, line: int | None
) -> None:
    """Refuse words among numbers and numbers too large, by their row in the whole table."""
    for name, role in chosen.items():
        if role.kind == "number":
            refuse_stray(held[name], line)
            values = cell_numbers(held[name], line)
            if scale == "none":
                check_magnitude(values, name, LARGEST_FEATURE, line)


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
            f"missing is {missing!r}, and every row lacks its client, its label or a feature: leave"
            " out columns that are mostly empty"
        )
    counts = {name: int(held[name].missing[rows].sum()) for name in used}
    return rows, height - rows.size, {name: count for name, count in counts.items() if count}


def read_split(
    table: Any, split: Any, rows: NDArray[np.intp], owners: Owners, seed: int
) -> NDArray[np.int8]:
    """Which rows train, validate and test, in the order of the rows."""
    if isinstance(split, str):
        return read_codes(table[split].gather(rows).to_list(), rows.size, owners.spot)
    split = FRACTIONS if split is None else split
    if not are_fractions(split, table.height):
        values = split.tolist() if hasattr(split, "tolist") else list(split)
        values = [values[row] for row in rows] if len(values) == table.height else values
        return read_codes(values, rows.size, owners.spot)
    order = owners.order
    identities = identities_of(owners.names)
    if order is None:
        return assign_splits(owners.owner, identities, seed, split)
    codes = np.empty(rows.size, np.int8)
    codes[order] = assign_splits(owners.owner[order], identities, seed, split)
    return codes


def list_left(chosen: Mapping[str, Role], fitted: FittedColumns) -> tuple[LeftOut, ...]:
    """What is left out, by role and by the training rows, in the table's order."""
    by_role = [
        LeftOut(name, role.reason) for name, role in chosen.items() if role.reason is not None
    ]
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
    told = (
        "; ".join(reasons) if reasons else "there is no other column beside label, client and split"
    )
    return f"no column is left to make features of: {told}; name the columns to use as features"


class Labels(NamedTuple):
    """Labels as `Federation.from_arrays` takes them, the task, and what is said of them."""

    values: NDArray[Any]
    task: str
    target: Target


def read_label_column(
    cells: Sequence[Cells], task: str | None, classes: Any, rows: NDArray[np.intp], line: int | None
) -> Labels:
    """Labels of the rows that are kept.

    cells: one column, or several that are the outputs of a regression; all rows of the table.
    """
    if task is not None:
        one_of("task", task, TASKS)
    names = tuple(each.name for each in cells)
    kind = decide_kind(cells)
    if len(cells) == 1:
        refuse_stray(cells[0], line, "label")
    counted = cells[0].values.gather(rows).n_unique()
    if kind is CellKind.NUMBER and counted == 2 and are_whole(cells[0].values.gather(rows)):
        kind = CellKind.WHOLE  # 0.0 and 1.0 are what pandas makes of 0, 1 and a missing cell
    asked = task is not None or classes is not None
    if task is None:
        two = kind in (CellKind.WHOLE, CellKind.BOOLEAN) and counted == 2 and len(cells) == 1
        words = kind is CellKind.TEXT or kind is CellKind.BOOLEAN
        task = "classification" if classes is not None or two or words else "regression"
    target = Target(names, kind.value, counted, task, asked)
    if task == "regression":
        if kind in (CellKind.TEXT, CellKind.DATE):
            word = cells[0].values.gather(rows)[0]
            raise InvalidInput(
                f"task is 'regression' while label column {names[0]!r} holds {str(word)!r}: give"
                " numbers, or task='classification' for classes"
            )
        columns = [cell_numbers(each, line) for each in cells]
        for each, values in zip(cells, columns, strict=True):
            check_magnitude(values, each.name, LARGEST_FEATURE, line)
        return Labels(np.stack(columns, 1)[rows], task, target)
    if len(cells) > 1:
        raise InvalidInput(
            f"label names {len(cells)} columns, outputs of a regression: name one for classes"
        )
    return Labels(read_class_names(cells[0], rows), task, target)


def are_whole(values: Any) -> bool:
    """Whether all of a column of floats are whole numbers that a float can count."""
    if not values.dtype.is_float():
        return False
    return bool(((values == values.round()) & (values.abs() < EXACT)).all())


def decide_kind(cells: Sequence[Cells]) -> CellKind:
    """What the label's cells are; of several columns, which must be numbers, whole if all are."""
    if len(cells) == 1:
        if cells[0].kind is CellKind.LISTS:
            raise InvalidInput(
                f"label column {cells[0].name!r} holds lists: name one with a number or class a row"
            )
        return cells[0].kind
    for each in cells:
        if each.kind not in (CellKind.NUMBER, CellKind.WHOLE, CellKind.BOOLEAN):
            raise InvalidInput(
                f"label column {each.name!r} holds {each.kind.value}: several label columns are"
                " outputs of a regression; give numbers"
            )
    return CellKind.NUMBER


def read_class_names(cells: Cells, rows: NDArray[np.intp]) -> NDArray[Any]:
    """Names of classes: text, booleans or whole numbers."""
    held = cells.values.gather(rows)
    if cells.kind is CellKind.DATE or held.dtype == "String":
        return np.array([str(value) for value in held.to_list()], object)
    return np.asarray((held.cast(int) if are_whole(held) else held).to_numpy())
