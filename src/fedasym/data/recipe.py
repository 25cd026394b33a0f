"""How features are made from a table's columns: fitted on training rows, applied to any rows.

A recipe is a value: frozen, written as JSON, never pickled. It holds what a statistician would note
down: which columns serve as what, their means, standard deviations and levels, and what was left
out and why. In words it is one short paragraph, which commands print before their answer. Of a
recipe in a file every field is looked at, and nothing else is believed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, MissingColumn, MissingValues
from fedasym.core.numbers import join_names, plural
from fedasym.data.cells import (
    LARGEST_FEATURE,
    CellKind,
    Cells,
    Target,
    cell_numbers,
    check_magnitude,
    read_cells,
    read_levels,
    read_names,
)
from fedasym.data.frames import read_polars
from fedasym.data.roles import Reason
from fedasym.data.samples import TASKS

RECIPE_FORMAT = "fedasym recipe 1"
SCALES = ("standard", "none")
MISSING_RULES = ("error", "drop", "mean", "indicator")
DATES = ("ignore", "number")
COLUMN_KINDS = ("number", "category", "date")
PARTS = ("value", "level", "other", "missing")
ABSENT = "missing"  # the level of a missing cell


class UnknownCells(NamedTuple):
    """Cells that a recipe met without knowing them, by column."""

    unseen: dict[str, int]
    missing: dict[str, int]


@dataclass(frozen=True)
class TableColumn:
    """A column of the table and what is known of it from the training rows.

    kind: "number", "category" or "date" (days since `origin`).
    fill: what a missing number becomes, the mean.
    levels: those with an indicator of their own, and the reference, which has none.
    pooled: rare levels, where they are few enough to be listed; `other` says whether there is an
        indicator for them.
    """

    name: str
    kind: str
    fill: float = 0.0
    origin: float = 0.0
    levels: tuple[str, ...] = ()
    reference: str | None = None
    pooled: tuple[str, ...] = ()
    other: bool = False


@dataclass(frozen=True)
class Feature:
    """One feature: (the column's value, or the indicator of a level, less `centre`) / `spread`."""

    name: str
    column: str
    part: str = "value"
    level: str | None = None
    centre: float = 0.0
    spread: float = 1.0
    personal: bool = True


@dataclass(frozen=True)
class LeftOut:
    """A column or feature that serves no model, and why; `of` names what determines it."""

    name: str
    reason: Reason
    of: tuple[str, ...] = ()


@dataclass(frozen=True)
class Nested:
    """A column of groups within clients: how many, and their share of the variance within."""

    column: str
    groups: int
    explained: float | None = None


@dataclass(frozen=True, repr=False)
class Recipe:
    """How features are made from columns, as `Federation.from_frame` fitted it on training rows.

    client, client_kind: the column of the clients, and whether they are named by "text" or "whole"
        numbers.
    target: the label. columns, features: what serves the models. left: what does not, and why.
    nested: groups within clients, left out, with what they would explain.
    rows, training, dropped: rows of the table, those that train, and those left out for a missing
        value.
    filled: missing cells that were filled, by column.

    >>> import polars as pl, fedasym as fa
    >>> frame = pl.DataFrame(
    ...     {
    ...         "shop": list("aabb") * 5,
    ...         "price": [1.0, 2.0, 3.0, 5.0] * 5,
    ...         "sold": [9.5, 8.1, 7.2, 3.3] * 5,
    ...     }
    ... )
    >>> recipe = fa.Federation.from_frame(frame, label="sold", client="shop").recipe
    >>> print(recipe)
    label 'sold' has numbers
    1 feature, centred and scaled by 16 training rows: price. With an intercept.
    >>> features, counts = recipe.apply(  # doctest: +ELLIPSIS
    ...     pl.DataFrame({"price": ["2.0", "NA"]})
    ... )
    Traceback (most recent call last):
    ...
    fedasym.core.errors.MissingValues: missing values in 'price' (row 1): fill them first, ...
    """

    client: str
    client_kind: str
    target: Target
    columns: tuple[TableColumn, ...]
    features: tuple[Feature, ...]
    left: tuple[LeftOut, ...] = ()
    nested: tuple[Nested, ...] = ()
    scale: str = "standard"
    missing: str = "error"
    intercept: bool = True
    rows: int = 0
    training: int = 0
    dropped: int = 0
    filled: Mapping[str, int] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The features' names."""
        return tuple(feature.name for feature in self.features)

    @property
    def personal(self) -> NDArray[np.bool_]:
        """Which features' weights may differ between clients."""
        return np.array([feature.personal for feature in self.features], bool)

    def apply(self, frame: Any) -> tuple[NDArray[np.float64], UnknownCells]:
        """Features of raw rows in the order of `names`, and the counts of missing and unseen cells.

        frame: polars or pandas, with the columns that serve as features; others are not looked at,
            and text that is numbers is read as numbers. A level that the training rows did not have
            counts as "other" where that is a feature, or else as the reference level. Missing
            numbers get the training mean, unless the recipe refuses them.

        >>> import polars as pl, fedasym as fa
        >>> frame = pl.DataFrame(
        ...     {
        ...         "shop": list("aabb") * 5,
        ...         "day": ["mo", "tu"] * 10,
        ...         "sold": [9.5, 8.1, 7.2, 3.3] * 5,
        ...     }
        ... )
        >>> recipe = fa.Federation.from_frame(
        ...     frame, label="sold", client="shop", scale="none"
        ... ).recipe
        >>> features, counts = recipe.apply(pl.DataFrame({"day": ["tu", "mo", "we"]}))
        >>> recipe.names, features.tolist(), counts.unseen
        (('day=tu',), [[1.0], [0.0], [0.0]], {'day': 1})
        """
        held = read_polars(frame)
        absent = [column.name for column in self.columns if column.name not in held.columns]
        if absent:
            raise MissingColumn(
                f"the table lacks {join_names(absent, quoted=True)}, of which features are made:"
                f" there is {join_names(held.columns, quoted=True)}; give the columns that the"
                " model was fitted with"
            )
        if held.height == 0:
            raise InvalidInput("the table has no rows: give at least one")
        cells = {column.name: read_cells(held[column.name], column.name) for column in self.columns}
        if self.missing == "error":
            refuse_missing({name: each.missing for name, each in cells.items()}, applied=True)
        return self.encode(cells)

    def encode(self, cells: Mapping[str, Cells]) -> tuple[NDArray[np.float64], UnknownCells]:
        """Features from columns that are read already."""
        counts = UnknownCells({}, {})
        raw = [
            encode_column(
                column,
                [each for each in self.features if each.column == column.name],
                cells[column.name],
                counts,
            )
            for column in self.columns
        ]
        order = {name: place for place, name in enumerate(self.names)}
        listed = [
            each.name
            for column in self.columns
            for each in self.features
            if each.column == column.name
        ]
        X = np.concatenate(raw, axis=1)
        if listed != list(order):
            X = X[:, np.argsort([order[name] for name in listed])]
        centre, spread = (
            np.array([getattr(each, name) for each in self.features])
            for name in ("centre", "spread")
        )
        with np.errstate(over="ignore"):
            X -= centre
            X /= spread
        if not np.abs(X).max() <= LARGEST_FEATURE:
            for place, name in enumerate(self.names):
                check_magnitude(
                    X[:, place],
                    name,
                    LARGEST_FEATURE,
                    remedy="correct that row, or leave the column out",
                )
        return np.ascontiguousarray(X), counts

    def read_clients(self, frame: Any) -> list[Any]:
        """Each row's client, named as in the federation.

        >>> import polars as pl, fedasym as fa
        >>> data = {
        ...     "shop": [7, 7, 8, 8] * 5,
        ...     "price": [1.0, 2.0, 3.0, 5.0] * 5,
        ...     "sold": [9.5, 8.1, 7.2, 3.3] * 5,
        ... }
        >>> recipe = fa.Federation.from_frame(
        ...     pl.DataFrame(data), label="sold", client="shop"
        ... ).recipe
        >>> recipe.read_clients(pl.DataFrame({"shop": ["8", "9"]}))
        [8, 9]
        """
        held = read_polars(frame)
        if self.client not in held.columns:
            raise MissingColumn(
                f"the table lacks the client column {self.client!r}: there is"
                f" {join_names(held.columns, quoted=True)}"
            )
        names, _ = read_names(held[self.client], self.client, self.client_kind)
        absent = [row for row, name in enumerate(names) if name is None]
        if absent:
            raise InvalidInput(
                f"the client column {self.client!r} is empty in {len(absent)} rows, the first is"
                f" row {absent[0]}: fill it"
            )
        return names

    def rename(self, client: str, labels: tuple[str, ...], columns: Mapping[str, str]) -> Recipe:
        """The recipe for a table that calls its client, label and some columns otherwise.

        columns: other names by those here.
        """
        return replace(
            self,
            client=client,
            target=replace(self.target, columns=labels),
            columns=tuple(replace(c, name=columns.get(c.name, c.name)) for c in self.columns),
            features=tuple(
                replace(f, column=columns.get(f.column, f.column)) for f in self.features
            ),
        )

    def describe(self, flags: bool = True) -> str:
        """What was taken for what, in a short paragraph: the label on the first line.

        flags: whether to name the flags of the command line that change it.
        """
        return describe_recipe(self, flags)

    def to_json(self) -> str:
        """The recipe as JSON, which `from_json` reads."""
        return json.dumps({"format": RECIPE_FORMAT, **asdict(self)}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Recipe:
        """The recipe that `to_json` wrote; anything else is refused.

        >>> Recipe.from_json("{}")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        fedasym.InvalidInput: the recipe's format is None: it must be 'fedasym recipe 1'; ...
        """
        return read_recipe(text)

    def __str__(self) -> str:
        return self.describe()

    def __repr__(self) -> str:
        return (
            f"Recipe({plural(len(self.features), 'feature')} of"
            f" {plural(len(self.columns), 'column')}, label"
            f" {join_names(self.target.columns, quoted=True)})"
        )


def encode_column(
    column: TableColumn, features: list[Feature], cells: Cells, counts: UnknownCells
) -> NDArray[np.float64]:
    """The raw features of one column, one beside the other."""
    if column.kind == "category":
        return encode_levels(column, features, read_levels(cells), counts)
    if column.kind == "date" and cells.kind not in (CellKind.DATE, CellKind.EMPTY):
        raise InvalidInput(
            f"column {column.name!r} holds no dates, as it did when the recipe was fitted: give"
            " dates"
        )
    values = cell_numbers(cells) - column.origin
    absent = np.isnan(values)
    if absent.any():
        counts.missing[column.name] = int(absent.sum())
    values = np.where(absent, column.fill, values)
    return np.stack(
        [values if each.part == "value" else absent.astype(float) for each in features], axis=1
    )


def encode_levels(
    column: TableColumn, features: list[Feature], levels: list[str | None], counts: UnknownCells
) -> NDArray[np.float64]:
    """Indicators of known levels, and of "other" for the rest where that is a feature."""
    known = {level: place for place, level in enumerate(column.levels)}
    OTHER = len(known)
    unknown_level = OTHER if column.other else known.get(column.reference or "", OTHER)
    code = dict.fromkeys(column.pooled, OTHER) | known
    absent = sum(level is None for level in levels)
    if absent:
        counts.missing[column.name] = absent
    where = {level: code.get(ABSENT if level is None else level, -1) for level in set(levels)}
    codes = np.array([where[level] for level in levels], np.intp)
    unseen = codes < 0
    strange = int(unseen.sum()) - (absent if where.get(None) == -1 else 0)
    # Where the pooled levels are too many to be listed, a level that is not listed may have been
    # one of them.
    if strange and (column.pooled or not column.other):
        counts.unseen[column.name] = strange
    codes = np.where(unseen, unknown_level, codes)
    places = [OTHER if each.part == "other" else known[each.level or ""] for each in features]
    return np.asarray(codes[:, None] == np.array(places, np.intp), np.float64)


def refuse_missing(
    absent: Mapping[str, NDArray[np.bool_]], line: int | None = None, applied: bool = False
) -> None:
    """Refuse missing values: which columns, how many, where, and what to do.

    absent: which rows are missing, by column. line: that of row 0 in the file, where there is one.
    """
    listed = []
    for name, rows in absent.items():
        if rows.any():
            count, row = int(rows.sum()), int(np.argmax(rows))
            place = f"row {row}" + ("" if line is None else f" (line {row + line})")
            listed.append(
                f"{name!r} ({count} rows, the first is {place})"
                if count > 1
                else f"{name!r} ({place})"
            )
    if not listed:
        return
    text = ", ".join(listed[:8]) + (
        f" and {len(listed) - 8} more columns" if len(listed) > 8 else ""
    )
    if applied:
        raise MissingValues(
            f'missing values in {text}: fill them first, or fit with missing="mean" (--missing'
            " mean)"
        )
    raise MissingValues(
        f'missing values in {text}: choose missing="drop" (those rows are left out), "mean"'
        ' (numbers get the mean, categories a level "missing") or "indicator" (a feature says so'
        " besides); on the command line --missing drop|mean|indicator"
    )


MOST_NAMES = 12  # names that are listed in full
WIDTH = 100
WHY = {
    Reason.IDENTIFIER: ("identifier", "identifiers"),
    Reason.CONSTANT: ("constant", "constant"),
    Reason.DATE: ("dates", "dates"),
    Reason.EMPTY: ("empty", "empty"),
    Reason.LISTS: ("lists", "lists"),
    Reason.IGNORED: ("as requested", "as requested"),
}
FLAGS = {Reason.DATE: "--dates number takes them"}


def describe_recipe(recipe: Recipe, flags: bool = True) -> str:
    """The label's line, then the features, what is left out, and what was missing.

    flags: whether to name the flags of the command line that change it.
    """
    parts = [
        describe_features(recipe),
        describe_sharing(recipe),
        describe_left(recipe, flags),
        *(describe_nested(recipe)),
        describe_missing(recipe),
        "With an intercept." if recipe.intercept else "Without an intercept.",
    ]
    text = " ".join(part for part in parts if part)
    return (
        describe_label(recipe.target, flags)
        + "\n"
        + fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)
    )


def describe_label(target: Target, flags: bool = True) -> str:
    """What the label was taken for, and how to say otherwise.

    >>> from fedasym.data.recipe import Target
    >>> describe_label(Target(("score",), "whole", 6, "regression")).partition(": ")[0]
    "label 'score' has 6 whole numbers, taken as numbers"
    """
    if len(target.columns) > 1:
        return f"labels {join_names(target.columns, MOST_NAMES, quoted=True)} have numbers"
    name = target.columns[0]
    classes = target.task == "classification"
    kind = {"whole": "whole number", "number": "number", "boolean": "boolean value"}.get(
        target.kind, "word"
    )
    held = f"{target.values} {kind}{'' if target.values == 1 else 's'}"
    if target.kind == "number" and not classes:
        return f"label {name!r} has numbers"
    text = f"label {name!r} has {held}, taken as {'classes' if classes else 'numbers'}"
    if target.asked:
        return text + ", as requested"
    if target.kind == "whole" and flags:
        other = ("regression", "numbers") if classes else ("classification", "classes")
        return text + f": --task {other[0]} takes them as {other[1]}"
    return text


def describe_features(recipe: Recipe) -> str:
    """How many features, and which."""
    count = len(recipe.features)
    how = (
        "as they are"
        if recipe.scale == "none"
        else f"centred and scaled by {recipe.training} training rows"
    )
    if recipe.scale != "none" and not recipe.intercept:
        how = f"scaled by {recipe.training} training rows"
    return (
        f"{count} feature{'' if count == 1 else 's'}, {how}:"
        f" {join_names(recipe.names, MOST_NAMES)}."
    )


def describe_sharing(recipe: Recipe) -> str:
    """Which features serve the shared model only."""
    shared = [feature.name for feature in recipe.features if not feature.personal]
    if not shared:
        return ""
    return (
        "For the shared model only (constant within clients, or as requested):"
        f" {join_names(shared, MOST_NAMES)}."
    )


def describe_left(recipe: Recipe, flags: bool = True) -> str:
    """What was left out, by reason."""
    by_reason: dict[Reason, list[LeftOut]] = {}
    for each in recipe.left:
        by_reason.setdefault(each.reason, []).append(each)
    parts = []
    for reason, entries in by_reason.items():
        if reason is Reason.NESTED:
            continue
        if reason is Reason.COMBINATION:
            parts += [
                f"{each.name} (determined by {join_names(each.of, 4)})"
                for each in entries[:MOST_NAMES]
            ]
            continue
        names = join_names([each.name or "''" for each in entries], MOST_NAMES)
        remedy = f"; {FLAGS[reason]}" if flags and reason in FLAGS else ""
        parts.append(f"{names} ({WHY[reason][len(entries) > 1]}{remedy})")
    return f"Left out: {'; '.join(parts)}." if parts else ""


def describe_nested(recipe: Recipe) -> list[str]:
    """Groups within clients, and what they would explain."""
    texts = []
    for each in recipe.nested:
        text = f"{each.column}: {each.groups} groups within the clients, left out"
        if each.explained is not None:
            text += f"; {each.explained:.0%} of the label's variance within clients is between them"
        texts.append(text + ".")
    return texts


def describe_missing(recipe: Recipe) -> str:
    """Rows that were dropped, and cells that were filled."""
    parts = []
    if recipe.dropped:
        rows = f"{recipe.dropped} of {recipe.rows} rows"
        parts.append(
            f"{rows} with a missing value {'was' if recipe.dropped == 1 else 'were'} dropped."
        )
    if recipe.filled:
        filled = [f"{name} {count}" for name, count in recipe.filled.items()]
        parts.append(f"Missing cells filled: {join_names(filled, MOST_NAMES)}.")
    return " ".join(parts)


Check = Callable[[Any], bool]


def read_recipe(text: str) -> Recipe:
    """The recipe that `Recipe.to_json` wrote."""
    try:
        held = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise InvalidInput("the recipe is not JSON: give what to_json wrote") from None
    if not isinstance(held, dict) or held.get("format") != RECIPE_FORMAT:
        found = held.get("format") if isinstance(held, dict) else held
        raise InvalidInput(
            f"the recipe's format is {found!r}: it must be {RECIPE_FORMAT!r}; give what to_json"
            " wrote"
        )
    check_held("recipe", held, RECIPE | {"format": is_text})
    columns = tuple(
        TableColumn(**to_tuples(each)) for each in check_each("columns", held["columns"], COLUMN)
    )
    features = tuple(Feature(**each) for each in check_each("features", held["features"], FEATURE))
    left = [
        LeftOut(each["name"], Reason(each["reason"]), tuple(each["of"]))
        for each in check_each("left", held["left"], LEFT)
    ]
    check_held("target", held["target"], TARGET)
    recipe = Recipe(
        **{name: held[name] for name in PLAIN},
        target=Target(**to_tuples(held["target"])),
        columns=columns,
        features=features,
        left=tuple(left),
        nested=tuple(Nested(**each) for each in check_each("nested", held["nested"], NESTED)),
    )
    check_consistent(recipe)
    return recipe


def to_tuples(held: dict[str, Any]) -> dict[str, Any]:
    """JSON's lists as tuples."""
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in held.items()
    }


def check_held(where: str, held: Any, checks: dict[str, Check]) -> None:
    """All fields, each as it should be, and no others."""
    if not isinstance(held, dict) or held.keys() != checks.keys():
        raise InvalidInput(
            f"the recipe's {where} has other fields than {', '.join(checks)}: give what to_json"
            " wrote"
        )
    for name, check in checks.items():
        if not check(held[name]):
            raise InvalidInput(
                f"the recipe's {where} has {name} {str(held[name])[:60]!r}: give what to_json wrote"
            )


def check_each(where: str, held: list[Any], checks: dict[str, Check]) -> list[dict[str, Any]]:
    """A list of such fields."""
    for each in held:
        check_held(where, each, checks)
    return held


def check_consistent(recipe: Recipe) -> None:
    """Features of columns that are there, each named once, with levels that their column has."""
    columns = {column.name: column for column in recipe.columns}
    names = [feature.name for feature in recipe.features]
    wrong = len(columns) < len(recipe.columns) or len(set(names)) < len(names) or not names
    for feature in recipe.features:
        column = columns.get(feature.column)
        if column is None:
            wrong = True
            continue
        category = column.kind == "category"
        wrong |= category != (feature.part in ("level", "other"))
        wrong |= feature.part == "level" and feature.level not in column.levels
        wrong |= feature.part == "other" and not column.other
    wrong |= any(not any(each.column == name for each in recipe.features) for name in columns)
    if wrong:
        raise InvalidInput(
            "the recipe's columns and features do not fit together: give what to_json wrote"
        )


def is_text(value: Any) -> bool:
    """Whether it is text."""
    return isinstance(value, str)


def is_count(value: Any) -> bool:
    """Whether it is a count."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_finite_number(value: Any) -> bool:
    """Whether it is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_bool(value: Any) -> bool:
    """Whether it is true or false."""
    return isinstance(value, bool)


def is_texts(value: Any) -> bool:
    """Whether it is a list of texts."""
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def is_text_or_none(value: Any) -> bool:
    """Whether it is text, or nothing."""
    return value is None or isinstance(value, str)


def is_share(value: Any) -> bool:
    """Whether it is a number from 0 to 1, or nothing."""
    return value is None or (is_finite_number(value) and 0 <= value <= 1)


def is_spread(value: Any) -> bool:
    """Whether one can divide by it."""
    return is_finite_number(value) and value > 0


def is_among(allowed: Any) -> Check:
    """Whether it is one of these words."""
    return lambda value: isinstance(value, str) and value in tuple(allowed)


def is_count_by_name(value: Any) -> bool:
    """Whether it is a count by name."""
    return isinstance(value, dict) and all(is_count(each) for each in value.values())


def is_list(value: Any) -> bool:
    """Whether it is a list."""
    return isinstance(value, list)


COLUMN: dict[str, Check] = {
    "name": is_text,
    "kind": is_among(COLUMN_KINDS),
    "fill": is_finite_number,
    "origin": is_finite_number,
    "levels": is_texts,
    "reference": is_text_or_none,
    "pooled": is_texts,
    "other": is_bool,
}
FEATURE: dict[str, Check] = {
    "name": is_text,
    "column": is_text,
    "part": is_among(PARTS),
    "level": is_text_or_none,
    "centre": is_finite_number,
    "spread": is_spread,
    "personal": is_bool,
}
LEFT: dict[str, Check] = {"name": is_text, "reason": is_among(Reason), "of": is_texts}
NESTED: dict[str, Check] = {"column": is_text, "groups": is_count, "explained": is_share}
TARGET: dict[str, Check] = {
    "columns": lambda value: is_texts(value) and bool(value),
    "kind": is_among(CellKind),
    "values": is_count,
    "task": is_among(TASKS),
    "asked": is_bool,
}
PLAIN: dict[str, Check] = {
    "client": is_text,
    "client_kind": is_among(("text", "whole")),
    "scale": is_among(SCALES),
    "missing": is_among(MISSING_RULES),
    "intercept": is_bool,
    "rows": is_count,
    "training": is_count,
    "dropped": is_count,
    "filled": is_count_by_name,
}
RECIPE: dict[str, Check] = PLAIN | {
    "target": lambda value: isinstance(value, dict),
    "columns": is_list,
    "features": is_list,
    "left": is_list,
    "nested": is_list,
}
