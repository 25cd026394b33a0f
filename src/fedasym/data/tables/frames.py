"""Frames at the door: polars as it is, pandas column by column, anything else that speaks Arrow."""

from __future__ import annotations

import math
from collections.abc import Collection
from datetime import date, datetime, timedelta
from numbers import Integral, Real
from typing import Any

import numpy as np

from fedasym.core.errors import InvalidInput
from fedasym.core.packages import needed
from fedasym.data.federation.frames import opened


def import_polars() -> Any:
    """polars, imported when a table is read."""
    return needed("polars", "a table of client data")


def read_polars(frame: Any, strict: Collection[Any] = ()) -> Any:
    """Any frame as a polars frame whose columns are named by text.

    strict: columns that must not mix kinds of values, such as labels and clients; others are then text.

    >>> import pandas as pd
    >>> read_polars(pd.DataFrame({"a": [1, 2], "b": ["x", None]})).rows()
    [(1, 'x'), (2, None)]
    """
    frame = opened(frame)
    pl = import_polars()
    if isinstance(frame, pl.DataFrame):
        return frame
    columns = [read_pandas_column(frame[name], name, name in strict) for name in frame.columns]
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInput(f"the frame has several columns {twice!r} when read as text: rename them")
    return pl.DataFrame(dict(zip(names, columns, strict=True)))


def read_pandas_column(series: Any, name: Any, strict: bool) -> Any:
    """A pandas column as a polars one, without pyarrow."""
    pl = import_polars()
    dtype = series.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        return pl.Series(np.ascontiguousarray(series.to_numpy()))
    if isinstance(dtype, np.dtype) and dtype.kind in "Mm":
        return pl.Series(series.to_numpy().astype(f"{dtype.kind}8[us]"))
    values = [None if is_absent(value) else value for value in series.tolist()]
    if type(dtype).__name__ == "CategoricalDtype":
        texts = [None if value is None else format_level(value) for value in values]
        return pl.Series(texts, dtype=pl.String).cast(pl.Categorical)
    return read_objects(values, name, strict)


def is_absent(value: Any) -> bool:
    """Whether a cell of a pandas column is missing: None, NaN, NA or NaT."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and math.isnan(value)


def read_objects(values: list[Any], name: Any, strict: bool) -> Any:
    """Python objects as a column of the one kind that all of them are; of several kinds, text."""
    pl = import_polars()
    held = [value for value in values if value is not None]
    if not held:
        return pl.Series([None] * len(values), dtype=pl.Null)
    if all(isinstance(value, str) for value in held):
        try:
            return pl.Series(values, dtype=pl.String)
        except UnicodeEncodeError:
            raise InvalidInput(f"column {name!r} holds text that is none: write Unicode") from None
    if all(isinstance(value, bool | np.bool_) for value in held):
        return pl.Series([None if value is None else bool(value) for value in values])
    if all(isinstance(value, Integral) for value in held):
        small = all(-(2**63) <= int(value) < 2**63 for value in held)
        kind = (int, pl.Int64) if small else (to_float, pl.Float64)
        return pl.Series([None if each is None else kind[0](each) for each in values], dtype=kind[1])
    if all(isinstance(value, Real) or type(value).__name__ == "Decimal" for value in held):
        return pl.Series([None if value is None else to_float(value) for value in values], dtype=pl.Float64)
    if all(isinstance(value, datetime | date | timedelta) for value in held):
        try:
            return pl.Series(values, strict=False)
        except (TypeError, OverflowError, pl.exceptions.PolarsError):
            return pl.Series([None if value is None else str(value) for value in values], dtype=pl.String)
    if any(isinstance(value, list | tuple | dict | np.ndarray) for value in held):
        return pl.Series([None if value is None else [0] for value in values])  # left out as lists
    if strict:
        refuse_mixture(values, name)
    return pl.Series([None if value is None else str(value) for value in values], dtype=pl.String)


def to_float(value: Any) -> float:
    """A float; infinite where the number is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def refuse_mixture(values: list[Any], name: Any) -> None:
    """Say where a column of labels or clients changes its kind."""
    first = next(row for row, value in enumerate(values) if value is not None)
    one = type(values[first])
    for row, value in enumerate(values):
        if value is not None and (type(value) is not one or not isinstance(value, str | Real)):
            raise InvalidInput(
                f"column {name!r}, row {row} holds {value!r}, of type {type(value).__name__}, while row {first} "
                f"has {values[first]!r}: give all numbers or all strings"
            )


def format_level(value: Any) -> str:
    """A level as text: whole numbers alike whether they came as 3, 3.0 or "3"; booleans as true and false.

    >>> [format_level(value) for value in (3, 3.0, "3", 2.5, True)]
    ['3', '3', '3', '2.5', 'true']
    """
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, Real):
        number = float(value)
        return str(int(number)) if number.is_integer() and abs(number) < 2**53 else str(value)
    return str(value)
