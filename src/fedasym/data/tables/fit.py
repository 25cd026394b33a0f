"""A recipe from the training rows: means and standard deviations, levels, and which features others determine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.data.tables.cells import Cells, Kind, read_levels, read_numbers
from fedasym.data.tables.collinearity import find_combinations
from fedasym.data.tables.recipe import ABSENT, Column, Counts, Feature, LeftOut, encode_column
from fedasym.data.tables.roles import Reason, Role

MOST_LEVELS = 30  # of a category, the pooled ones counted as one
RARE_SHARE = 0.005  # of the training rows
RARE_ROWS = 5
LISTED = 1000  # pooled levels that a recipe still lists
FLAT = 1e-13  # of the largest value: a spread below it is rounding


@dataclass(frozen=True)
class Fitted:
    """What the training rows say: columns and features of a recipe, and what is left out."""

    columns: tuple[Column, ...]
    features: tuple[Feature, ...]
    left: tuple[LeftOut, ...]


def fit_columns(cells: Mapping[str, Cells], roles: Mapping[str, Role], scale: str, missing: str, intercept: bool) -> Fitted:
    """Columns and features from the training rows of a table.

    cells: the training rows. roles: of the same columns; those without a kind are left out already.
    """
    columns: list[Column] = []
    features: list[Feature] = []
    fixed: list[bool] = []
    left: list[LeftOut] = []
    raw: list[NDArray[np.float64]] = []
    for name, role in roles.items():
        if role.kind is None:
            continue
        column, parts = fit_column(cells[name], role, missing, intercept)
        values = encode_column(column, parts, cells[name], Counts({}, {})) if parts else np.zeros((0, 0))
        used = [place for place in range(len(parts)) if role.fixed or not is_flat(values[:, place])]
        if not any(parts[place].part != "missing" or role.fixed for place in used):
            left.append(LeftOut(name, Reason.CONSTANT))
            continue
        columns.append(column)
        for place in used:
            x = values[:, place]
            centre, spread = measure(x, intercept) if scale == "standard" else (0.0, 1.0)
            features.append(replace(parts[place], centre=centre, spread=spread))
            fixed.append(role.fixed)
            raw.append(standardize(x, *measure(x, intercept)))
    features = name_apart(features)
    if features:
        features, columns = drop_combinations(features, columns, np.stack(raw, 1), np.array(fixed), left)
    return Fitted(tuple(columns), tuple(features), tuple(left))


def fit_column(cells: Cells, role: Role, missing: str, intercept: bool) -> tuple[Column, list[Feature]]:
    """One column, and the features that it could have; their centre and spread come later."""
    name = cells.name
    if role.kind == "category":
        return fit_levels(name, read_levels(cells), role, intercept)
    values = read_numbers(cells)
    there = values[~np.isnan(values)]
    dated = cells.kind is Kind.DATE
    origin = float(np.floor(there.min())) if dated and there.size else 0.0
    fill = measure(there - origin, True)[0] if there.size else 0.0
    column = Column(name, "date" if dated else "number", fill=fill, origin=origin)
    features = [Feature(name, name, personal=role.personal)]
    if missing == "indicator" and there.size < values.size:
        features.append(Feature(f"{name} missing", name, "missing", personal=role.personal))
    return column, features


def fit_levels(name: str, cells: list[str | None], role: Role, intercept: bool) -> tuple[Column, list[Feature]]:
    """The levels of a category, commonest first as the reference, which has no indicator beside an intercept."""
    counts = Counter(ABSENT if level is None else level for level in cells)
    rare = max(min(RARE_ROWS, ceil(0.05 * len(cells))), ceil(RARE_SHARE * len(cells)))
    order = sorted(counts, key=lambda level: (-counts[level], level))
    own = [level for level in order if counts[level] >= rare][: MOST_LEVELS - 1] or order[:1]
    if ABSENT in counts and None in cells and ABSENT not in own:
        own.append(ABSENT)
    rest = [level for level in order if level not in own]
    if len(rest) == 1:  # a level alone keeps its name
        own, rest = [*own, *rest], []
    reference = own[0] if intercept and (len(own) > 1 or rest) else None
    listed = tuple(sorted(rest)) if len(rest) <= LISTED else ()
    column = Column(name, "category", levels=tuple(own), reference=reference, pooled=listed, other=bool(rest))
    shown = sorted(level for level in own if level != reference)
    features = [Feature(f"{name}={level}", name, "level", level, personal=role.personal) for level in shown]
    if rest:
        features.append(Feature(f"{name}=other", name, "other", personal=role.personal))
    return column, features


def measure(x: NDArray[np.float64], centred: bool) -> tuple[float, float]:
    """Mean and standard deviation, without overflow; without centring 0 and the root mean square."""
    largest = float(np.abs(x).max(initial=0.0))
    if largest == 0 or not np.isfinite(largest):
        return 0.0, 1.0
    scaled = x / largest
    mean = float(scaled.mean()) if centred else 0.0
    spread = float(np.sqrt(np.mean((scaled - mean) ** 2)))
    flat = spread <= FLAT or spread * largest == 0
    return mean * largest, 1.0 if flat else spread * largest


def standardize(x: NDArray[np.float64], centre: float, spread: float) -> NDArray[np.float64]:
    """(x - centre)/spread."""
    return np.asarray((x - centre) / spread)


def is_flat(x: NDArray[np.float64]) -> bool:
    """Whether values are all the same, up to rounding."""
    largest = float(np.abs(x).max(initial=0.0))
    if largest == 0:
        return True
    return float(np.std(x / largest)) <= FLAT


def name_apart(features: list[Feature]) -> list[Feature]:
    """Features whose names differ: a column may be called as an indicator of another."""
    seen: set[str] = set()
    apart = []
    for feature in features:
        name, number = feature.name, 2
        while name in seen:
            name, number = f"{feature.name} ({number})", number + 1
        seen.add(name)
        apart.append(replace(feature, name=name))
    return apart


def drop_combinations(
    features: list[Feature], columns: list[Column], X: NDArray[np.float64], fixed: NDArray[np.bool_], left: list[Any]
) -> tuple[list[Feature], list[Column]]:
    """Features and columns without those that earlier ones determine."""
    found = find_combinations(X, fixed)
    if not found:
        return features, columns
    kept = [each for place, each in enumerate(features) if place not in found]
    held = {each.column for each in kept}
    for column in columns:
        places = [place for place in found if features[place].column == column.name]
        if column.name in held:
            left += [LeftOut(features[j].name, Reason.COMBINATION, name_of(features, found[j])) for j in places]
        elif places:
            of = sorted({part for j in places for part in found[j]})
            left.append(LeftOut(column.name, Reason.COMBINATION, name_of(features, of)))
    return kept, [column for column in columns if column.name in held]


def name_of(features: list[Feature], places: list[int]) -> tuple[str, ...]:
    """The columns of some features, each once."""
    return tuple(dict.fromkeys(features[place].column for place in places))
