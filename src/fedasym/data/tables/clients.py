"""The names of clients in a column: text as it is written, whole numbers as numbers, missing ones as None."""

from __future__ import annotations

from typing import Any

from fedasym.core.errors import InvalidInput
from fedasym.data.tables.cells import MISSING, Kind, blank_words, read_cells
from fedasym.data.tables.frames import import_polars


def read_names(series: Any, column: str, wanted: str | None = None) -> tuple[list[Any], str]:
    """Each row's client, and whether clients are "text" or "whole".

    wanted: what they were when a recipe was fitted; numbers are then read as text, or text as whole numbers.

    >>> import polars as pl
    >>> read_names(pl.Series(["007", "na"]), "who"), read_names(pl.Series([7.0, None]), "who")
    ((['007', None], 'text'), ([7, None], 'whole'))
    """
    pl = import_polars()
    if series.dtype in (pl.String, pl.Categorical, pl.Enum):
        if wanted == "whole":
            return read_whole(series.cast(pl.String), column), "whole"
        return blank_words(series.cast(pl.String), MISSING).to_list(), "text"
    cells = read_cells(series, column)
    values = cells.values
    if cells.kind is Kind.NUMBER and wanted is not None:  # 7.0 for 7, as another table may have it
        whole = values.cast(pl.Int64, strict=False)
        if (whole.cast(pl.Float64) == values).all():
            cells, values = read_cells(whole, column), whole
    if cells.kind is Kind.EMPTY:
        return [None] * len(values), wanted or "text"
    if cells.kind is not Kind.WHOLE:
        row = int(values.is_not_null().arg_true()[0])
        raise InvalidInput(
            f"the client of row {row}, in column {column!r}, is {values[row]!r}, of type {type(values[row]).__name__}: names "
            "are all strings or all whole numbers; convert them, for instance with str"
        )
    if wanted == "text":
        return values.cast(pl.String).to_list(), "text"
    return values.to_list(), "whole"


def read_whole(series: Any, column: str) -> list[Any]:
    """Text as whole numbers, since the federation's clients are whole numbers."""
    pl = import_polars()
    words = blank_words(series.str.strip_chars(), MISSING)
    whole = words.cast(pl.Int64, strict=False)
    bad = (whole.is_null() & words.is_not_null()).arg_true()
    if len(bad):
        row = int(bad[0])
        raise InvalidInput(
            f"the client of row {row}, in column {column!r}, is {words[row]!r}: the federation's clients are whole numbers"
        )
    names: list[Any] = whole.to_list()
    return names
