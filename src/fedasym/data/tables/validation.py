"""Recipes that come from outside, as JSON: every field is looked at, and nothing else is believed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from fedasym.core.errors import InvalidInput
from fedasym.data.federation.targets import TASKS
from fedasym.data.tables.cells import Kind
from fedasym.data.tables.recipe import (
    FORMAT,
    KINDS,
    MISSING,
    PARTS,
    SCALES,
    Column,
    Feature,
    LeftOut,
    Nested,
    Recipe,
    Target,
)
from fedasym.data.tables.roles import Reason

Check = Callable[[Any], bool]


def read_recipe(text: str) -> Recipe:
    """The recipe that `Recipe.to_json` wrote."""
    try:
        held = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise InvalidInput("the recipe is no JSON: give what to_json wrote") from None
    if not isinstance(held, dict) or held.get("format") != FORMAT:
        found = held.get("format") if isinstance(held, dict) else held
        raise InvalidInput(f"the recipe's format is {found!r}: it must be {FORMAT!r}; give what to_json wrote")
    check_fields("recipe", held, RECIPE | {"format": is_text})
    columns = tuple(Column(**to_tuples(each)) for each in check_each("columns", held["columns"], COLUMN))
    features = tuple(Feature(**each) for each in check_each("features", held["features"], FEATURE))
    left = [LeftOut(each["name"], Reason(each["reason"]), tuple(each["of"])) for each in check_each("left", held["left"], LEFT)]
    check_fields("target", held["target"], TARGET)
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
    return {name: tuple(value) if isinstance(value, list) else value for name, value in held.items()}


def check_fields(where: str, held: Any, checks: dict[str, Check]) -> None:
    """All fields, each as it should be, and no others."""
    if not isinstance(held, dict) or held.keys() != checks.keys():
        raise InvalidInput(f"the recipe's {where} has other fields than {', '.join(checks)}: give what to_json wrote")
    for name, check in checks.items():
        if not check(held[name]):
            raise InvalidInput(f"the recipe's {where} has {name} {str(held[name])[:60]!r}: give what to_json wrote")


def check_each(where: str, held: Any, checks: dict[str, Check]) -> list[dict[str, Any]]:
    """A list of such fields."""
    if not isinstance(held, list):
        raise InvalidInput(f"the recipe's {where} is no list: give what to_json wrote")
    for each in held:
        check_fields(where, each, checks)
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
        raise InvalidInput("the recipe's columns and features do not fit together: give what to_json wrote")


def is_text(value: Any) -> bool:
    """Whether it is text."""
    return isinstance(value, str)


def is_count(value: Any) -> bool:
    """Whether it is a count."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_number(value: Any) -> bool:
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
    return value is None or (is_number(value) and 0 <= value <= 1)


def is_spread(value: Any) -> bool:
    """Whether one can divide by it."""
    return is_number(value) and value > 0


def is_among(allowed: Any) -> Check:
    """Whether it is one of these words."""
    return lambda value: isinstance(value, str) and value in tuple(allowed)


def is_counts(value: Any) -> bool:
    """Whether it is a count by name."""
    return isinstance(value, dict) and all(is_count(each) for each in value.values())


def is_list(value: Any) -> bool:
    """Whether it is a list."""
    return isinstance(value, list)


COLUMN: dict[str, Check] = {
    "name": is_text,
    "kind": is_among(KINDS),
    "fill": is_number,
    "origin": is_number,
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
    "centre": is_number,
    "spread": is_spread,
    "personal": is_bool,
}
LEFT: dict[str, Check] = {"name": is_text, "reason": is_among(Reason), "of": is_texts}
NESTED: dict[str, Check] = {"column": is_text, "groups": is_count, "explained": is_share}
TARGET: dict[str, Check] = {
    "columns": lambda value: is_texts(value) and bool(value),
    "kind": is_among(Kind),
    "values": is_count,
    "task": is_among(TASKS),
    "asked": is_bool,
}
PLAIN: dict[str, Check] = {
    "client": is_text,
    "client_kind": is_among(("text", "whole")),
    "scale": is_among(SCALES),
    "missing": is_among(MISSING),
    "intercept": is_bool,
    "rows": is_count,
    "training": is_count,
    "dropped": is_count,
    "filled": is_counts,
}
RECIPE: dict[str, Check] = PLAIN | {
    "target": lambda value: isinstance(value, dict),
    "columns": is_list,
    "features": is_list,
    "left": is_list,
    "nested": is_list,
}
