"""How the features of a federation are made from the columns of a table: fitted on its training rows, applied to any rows.

A recipe is a value: frozen, written as JSON, never pickled. It holds what a statistician would note down: which columns serve
as what, their means, standard deviations and levels, and what was left out and why.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, MissingColumn, MissingValues
from fedasym.data.tables.cells import Cells, Kind, check_magnitude, read_cells, read_levels, read_numbers
from fedasym.data.tables.clients import read_names
from fedasym.data.tables.frames import read_polars
from fedasym.data.tables.roles import Reason

FORMAT = "fedasym recipe 1"
SCALES = ("standard", "none")
MISSING = ("error", "drop", "mean", "indicator")
DATES = ("ignore", "number")
KINDS = ("number", "category", "date")
PARTS = ("value", "level", "other", "missing")
ABSENT = "missing"  # the level of a missing cell
LARGEST = 1e100  # of a feature: its square, times a million samples, is a float


class Counts(NamedTuple):
    """Cells that a recipe met without knowing them, by column."""

    unseen: dict[str, int]
    missing: dict[str, int]


@dataclass(frozen=True)
class Column:
    """A column of the table and what is known of it from the training rows.

    kind: "number", "category" or "date" (days since `origin`).
    fill: what a missing number becomes, the mean.
    levels: those with an indicator of their own, and the reference, which has none.
    pooled: rare levels, where they are few enough to be listed; `other` says whether there is an indicator for them.
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
    """A column, or one of its features, that serves no model, and why; `of` names what determines a combination."""

    name: str
    reason: Reason
    of: tuple[str, ...] = ()


@dataclass(frozen=True)
class Nested:
    """A column of groups within clients: how many, and the share of the labels' variance within clients between them."""

    column: str
    groups: int
    explained: float | None = None


@dataclass(frozen=True)
class Target:
    """The label: its columns, what their cells are, how many values they have, and what they were taken for.

    asked: whether the user said so.
    """

    columns: tuple[str, ...]
    kind: str
    values: int
    task: str
    asked: bool = False


@dataclass(frozen=True, repr=False)
class Recipe:
    """How features are made from a table's columns, as `Federation.from_frame` fitted it on the training rows.

    client, client_kind: the column of the clients, and whether they are named by "text" or "whole" numbers.
    target: the label. columns, features: what serves the models. left: what does not, and why.
    nested: groups within clients, left out, with what they would explain.
    rows, training, dropped: rows of the table, those that train, and those left out for a missing value.
    filled: missing cells that were filled, by column.

    >>> import polars as pl, fedasym as fa
    >>> frame = pl.DataFrame({"shop": list("aabb") * 5, "price": [1.0, 2.0, 3.0, 5.0] * 5, "sold": [9.5, 8.1, 7.2, 3.3] * 5})
    >>> recipe = fa.Federation.from_frame(frame, label="sold", client="shop").recipe
    >>> print(recipe)
    label 'sold' has numbers
    1 feature, centred and scaled by 16 training rows: price. With an intercept.
    >>> features, counts = recipe.apply(pl.DataFrame({"price": ["2.0", "NA"]}))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedasym.core.errors.MissingValues: missing values in 'price' (row 1): fill them first, or fit with missing="mean" ...
    """

    client: str
    client_kind: str
    target: Target
    columns: tuple[Column, ...]
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

    def apply(self, frame: Any) -> tuple[NDArray[np.float64], Counts]:
        """Features of raw rows, in the order of `names`, and how many cells were missing or of unseen levels.

        frame: polars or pandas, with the columns that serve as features; others are not looked at, and text that is numbers
            is read as numbers. A level that the training rows did not have counts as "other" where that is a feature, or
            else as the reference level. Missing numbers get the training mean, unless the recipe refuses them.

        >>> import polars as pl, fedasym as fa
        >>> frame = pl.DataFrame({"shop": list("aabb") * 5, "day": ["mo", "tu"] * 10, "sold": [9.5, 8.1, 7.2, 3.3] * 5})
        >>> recipe = fa.Federation.from_frame(frame, label="sold", client="shop", scale="none").recipe
        >>> features, counts = recipe.apply(pl.DataFrame({"day": ["tu", "mo", "we"]}))
        >>> recipe.names, features.tolist(), counts.unseen
        (('day=tu',), [[1.0], [0.0], [0.0]], {'day': 1})
        """
        held = read_polars(frame)
        absent = [column.name for column in self.columns if column.name not in held.columns]
        if absent:
            raise MissingColumn(
                f"the table lacks {describe_names(absent)}, of which features are made: there is "
                f"{describe_names(held.columns)}; give the columns that the model was fitted with"
            )
        if held.height == 0:
            raise InvalidInput("the table has no rows: give at least one")
        cells = {column.name: read_cells(held[column.name], column.name) for column in self.columns}
        if self.missing == "error":
            refuse_missing({name: each.missing for name, each in cells.items()}, applied=True)
        return self.encode(cells)

    def encode(self, cells: Mapping[str, Cells]) -> tuple[NDArray[np.float64], Counts]:
        """Features from columns that are read already."""
        counts = Counts({}, {})
        raw = [
            encode_column(column, [each for each in self.features if each.column == column.name], cells[column.name], counts)
            for column in self.columns
        ]
        order = {name: place for place, name in enumerate(self.names)}
        listed = [each.name for column in self.columns for each in self.features if each.column == column.name]
        X = np.concatenate(raw, axis=1)
        if listed != list(order):
            X = X[:, np.argsort([order[name] for name in listed])]
        centre, spread = (np.array([getattr(each, name) for each in self.features]) for name in ("centre", "spread"))
        with np.errstate(over="ignore"):
            X -= centre
            X /= spread
        if not np.abs(X).max() <= LARGEST:
            for place, name in enumerate(self.names):
                check_magnitude(X[:, place], name, LARGEST, remedy="correct that row, or leave the column out")
        return np.ascontiguousarray(X), counts

    def read_clients(self, frame: Any) -> list[Any]:
        """Each row's client, named as in the federation.

        >>> import polars as pl, fedasym as fa
        >>> data = {"shop": [7, 7, 8, 8] * 5, "price": [1.0, 2.0, 3.0, 5.0] * 5, "sold": [9.5, 8.1, 7.2, 3.3] * 5}
        >>> recipe = fa.Federation.from_frame(pl.DataFrame(data), label="sold", client="shop").recipe
        >>> recipe.read_clients(pl.DataFrame({"shop": ["8", "9"]}))
        [8, 9]
        """
        held = read_polars(frame)
        if self.client not in held.columns:
            raise MissingColumn(f"the table lacks the client column {self.client!r}: there is {describe_names(held.columns)}")
        names, _ = read_names(held[self.client], self.client, self.client_kind)
        absent = [row for row, name in enumerate(names) if name is None]
        if absent:
            raise InvalidInput(
                f"the client column {self.client!r} is empty in {len(absent)} rows, the first is row {absent[0]}: fill it"
            )
        return names

    def describe(self, flags: bool = True) -> str:
        """What was taken for what, in a short paragraph: the label on the first line.

        flags: whether to name the flags of the command line that change it.
        """
        from fedasym.data.tables.description import describe_recipe

        return describe_recipe(self, flags)

    def to_json(self) -> str:
        """The recipe as JSON, which `from_json` reads."""
        return json.dumps({"format": FORMAT, **asdict(self)}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Recipe:
        """The recipe that `to_json` wrote; anything else is refused.

        >>> Recipe.from_json("{}")
        Traceback (most recent call last):
        ...
        fedasym.InvalidInput: the recipe's format is None: it must be 'fedasym recipe 1'; give what to_json wrote
        """
        from fedasym.data.tables.validation import read_recipe

        return read_recipe(text)

    def __str__(self) -> str:
        return self.describe()

    def __repr__(self) -> str:
        return f"Recipe({len(self.features)} features of {len(self.columns)} columns, label {self.target.columns})"


def encode_column(column: Column, features: list[Feature], cells: Cells, counts: Counts) -> NDArray[np.float64]:
    """The raw features of one column, one beside the other."""
    if column.kind == "category":
        return encode_levels(column, features, read_levels(cells), counts)
    if column.kind == "date" and cells.kind not in (Kind.DATE, Kind.EMPTY):
        raise InvalidInput(f"column {column.name!r} holds no dates, as it did when the recipe was fitted: give dates")
    values = read_numbers(cells) - column.origin
    absent = np.isnan(values)
    if absent.any():
        counts.missing[column.name] = int(absent.sum())
    values = np.where(absent, column.fill, values)
    return np.stack([values if each.part == "value" else absent.astype(float) for each in features], axis=1)


def encode_levels(column: Column, features: list[Feature], levels: list[str | None], counts: Counts) -> NDArray[np.float64]:
    """Indicators of the levels: of its own for each known one, of "other" for the rest where that is a feature."""
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
    # Where the pooled levels are too many to be listed, a level that is not listed may have been one of them.
    if strange and (column.pooled or not column.other):
        counts.unseen[column.name] = strange
    codes = np.where(unseen, unknown_level, codes)
    places = [OTHER if each.part == "other" else known[each.level or ""] for each in features]
    return np.asarray(codes[:, None] == np.array(places, np.intp), np.float64)


def describe_names(names: Any, most: int = 8) -> str:
    """Some names for an error: the first few."""
    quoted = [repr(str(name)) for name in names]
    return ", ".join(quoted[:most]) + (f" and {len(quoted) - most} more" if len(quoted) > most else "")


def refuse_missing(absent: Mapping[str, NDArray[np.bool_]], line: int | None = None, applied: bool = False) -> None:
    """Refuse missing values: which columns, how many, where, and what to do.

    absent: which rows are missing, by column. line: that of row 0 in the file, where there is one.
    """
    listed = []
    for name, rows in absent.items():
        if rows.any():
            count, row = int(rows.sum()), int(np.argmax(rows))
            place = f"row {row}" + ("" if line is None else f" (line {row + line})")
            listed.append(f"{name!r} ({count} rows, the first is {place})" if count > 1 else f"{name!r} ({place})")
    if not listed:
        return
    text = ", ".join(listed[:8]) + (f" and {len(listed) - 8} more columns" if len(listed) > 8 else "")
    if applied:
        raise MissingValues(f'missing values in {text}: fill them first, or fit with missing="mean" (--missing mean)')
    raise MissingValues(
        f'missing values in {text}: choose missing="drop" (those rows are left out), "mean" (numbers get the mean, '
        'categories a level "missing") or "indicator" (a feature says so besides); on the command line '
        "--missing drop|mean|indicator"
    )
