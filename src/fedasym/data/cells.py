"""The cells of one column: which are missing, and whether others are numbers, dates or words.

Text is looked at cell by cell, since a CSV has nothing else: the words for a missing value are
known in every column, and numbers stored as text are numbers, except codes such as 007. Names of
clients are text as it is written, or whole numbers. As labels, words and booleans are classes,
numbers are numbers, and two whole numbers are two classes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, NotNumbers, import_package

LARGEST_FEATURE = 1e100  # of a feature: its square, times a million samples, is a float


@dataclass(frozen=True)
class Target:
    """The label: its columns, what their cells are, how many values, and what they were taken for.

    asked: whether the user said so.
    """

    columns: tuple[str, ...]
    kind: str
    values: int
    task: str
    asked: bool = False


def import_polars() -> Any:
    """polars, imported when a table is read."""
    return import_package("polars", "a table of client data")


def format_level(value: Any) -> str:
    """A level as text: whole numbers alike as 3, 3.0 or "3"; booleans as true and false.

    >>> [format_level(value) for value in (3, 3.0, "3", 2.5, True)]
    ['3', '3', '3', '2.5', 'true']
    """
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, Real):
        number = float(value)
        return str(int(number)) if number.is_integer() and abs(number) < 2**53 else str(value)
    return str(value)


MISSING = ("", "na", "n/a", "nan", "null", "none")  # in lower case, in any column
MISSING_NUMBER = (".", "?", "-")  # where the rest of the column are numbers
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
WHOLE = r"^[+-]?\d{1,18}$"
CODE = r"^[+-]?0\d+$"  # leading zeros: a code, not a quantity
THOUSANDS = r"^[+-]?\d{1,3}([,. '\u00a0\u202f]\d{3})+([.,]\d+)?$"
DATE = r"^(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([ T]\d{1,2}:\d{2}.*)?$"
DAY = 86400e6  # microseconds
EXACT = 2.0**53
LARGEST = 1e150  # larger numbers have squares that no float holds


class CellKind(StrEnum):
    """What the cells of a column are."""

    NUMBER = "number"
    WHOLE = "whole"
    TEXT = "text"
    BOOLEAN = "boolean"
    DATE = "date"
    EMPTY = "empty"
    LISTS = "lists"


@dataclass(frozen=True)
class Cells:
    """One column, missing cells as nulls.

    values: a polars Series of Float64, Int64 (whole), String, Boolean or Datetime.
    stray: the first row with a word, where at least half of the cells are numbers.
    declared: whether the frame itself says that the column has categories.
    words: the cells as they were written, where the column is text.
    """

    name: str
    kind: CellKind
    values: Any
    stray: int | None = None
    declared: bool = False
    words: Any = None

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Which rows are missing."""
        return np.asarray(self.values.is_null().to_numpy())

    def take(self, rows: NDArray[np.intp]) -> Cells:
        """The cells of some rows."""
        words = None if self.words is None else self.words.gather(rows)
        held = self.values.gather(rows)
        return Cells(self.name, self.kind, held, self.stray, self.declared, words)


def read_cells(series: Any, name: str) -> Cells:
    """What a column of a polars frame holds.

    >>> import polars as pl
    >>> cells = read_cells(pl.Series(["1", "NA", "-", "2.5"]), "x")
    >>> cells.kind.value, cells.values.to_list()
    ('number', [1.0, None, None, 2.5])
    >>> read_cells(pl.Series(["007", "012"]), "x").kind.value
    'text'
    """
    pl = import_polars()
    dtype = series.dtype
    full = series.count() > 0
    if dtype == pl.String:
        return read_text(series, name)
    if dtype in (pl.Categorical, pl.Enum):
        words = blank_words(series.cast(pl.String), MISSING)
        return Cells(name, CellKind.TEXT if words.count() else CellKind.EMPTY, words, declared=True)
    if dtype.is_integer():
        return read_integers(series, name)
    if dtype.is_float() or dtype.is_decimal():
        return read_floats(series.cast(pl.Float64), name)
    kind = CellKind.EMPTY if dtype == pl.Null else CellKind.LISTS
    if dtype == pl.Boolean:
        kind = CellKind.BOOLEAN
    elif dtype in (pl.Date, pl.Datetime):
        local = series.dt.replace_time_zone(None) if getattr(dtype, "time_zone", None) else series
        kind = CellKind.DATE
        series = local.cast(pl.Datetime("us"))
    elif dtype == pl.Duration:
        days = series.cast(pl.Duration("us")).cast(pl.Int64).cast(pl.Float64) / DAY
        kind = CellKind.NUMBER
        series = days
    return Cells(name, kind if full or kind is CellKind.LISTS else CellKind.EMPTY, series)


def read_integers(series: Any, name: str) -> Cells:
    """Whole numbers; those that 64 bits do not hold are numbers like any other."""
    pl = import_polars()
    if not series.count():
        return Cells(name, CellKind.EMPTY, series)
    small = series.cast(pl.Int64, strict=False)
    if small.count() == series.count():
        return Cells(name, CellKind.WHOLE, small)
    return Cells(name, CellKind.NUMBER, series.cast(pl.Float64))


def read_floats(series: Any, name: str) -> Cells:
    """Numbers; whole ones where they are floats only because of missing cells."""
    pl = import_polars()
    values = series.fill_nan(None)
    if not values.count():
        return Cells(name, CellKind.EMPTY, values)
    whole = values.null_count() > 0 and ((values == values.floor()) & (values.abs() < EXACT)).all()
    if whole:
        return Cells(name, CellKind.WHOLE, values.cast(pl.Int64))
    return Cells(name, CellKind.NUMBER, values)


def read_text(series: Any, name: str) -> Cells:
    """Text: numbers where all cells are, booleans and dates likewise, words otherwise."""
    pl = import_polars()
    cell = blank_cells(pl.first().str.strip_chars(), MISSING).alias("word")
    number = blank_cells(cell, MISSING_NUMBER).alias("digits")
    numeric = number.str.contains(NUMBER).fill_null(False).alias("numeric")
    frame = series.to_frame().select(cell, number, numeric)  # each query has its price
    words, digits, numeric = (column.alias(series.name) for column in frame.get_columns())
    if not words.count():
        return Cells(name, CellKind.EMPTY, words)
    count = int(numeric.sum())
    of = digits.count()
    if of and count == of:
        number = pl.col("digits")
        code, whole = frame.select(
            code=number.str.contains(CODE).any(), whole=number.str.contains(WHOLE).all()
        ).row(0)
        if not code:
            plain = number.str.strip_prefix("+").cast(
                pl.Int64 if whole else pl.Float64, strict=False
            )
            values = frame.select(plain).to_series().alias(series.name)
            return Cells(name, CellKind.WHOLE if whole else CellKind.NUMBER, values, words=digits)
    if of and count == of:
        return Cells(name, CellKind.TEXT, words)
    if count and 2 * count >= of:
        odd = (~numeric & digits.is_not_null()).arg_true()
        return Cells(name, CellKind.TEXT, words, stray=int(odd[0]))
    lower = words.str.to_lowercase()
    if lower.drop_nulls().is_in(["true", "false"]).all():
        return Cells(name, CellKind.BOOLEAN, lower == "true")
    if words.str.contains(DATE).all():
        return Cells(name, CellKind.DATE, words)
    thousands = words.str.contains(THOUSANDS).fill_null(False)
    if 2 * int(thousands.sum()) >= words.count():
        return Cells(name, CellKind.TEXT, words, stray=int(thousands.arg_true()[0]))
    return Cells(name, CellKind.TEXT, words)


def blank_words(series: Any, words: tuple[str, ...]) -> Any:
    """Text with the words for a missing value, in any case, as nulls."""
    pl = import_polars()
    return series.to_frame().select(blank_cells(pl.first(), words)).to_series().alias(series.name)


def blank_cells(cell: Any, words: tuple[str, ...]) -> Any:
    """`blank_words` as an expression, which goes with others into one query."""
    pl = import_polars()
    absent = cell.str.contains(absent_pattern(words)).fill_null(True)
    return pl.when(~absent).then(cell)


@cache
def absent_pattern(words: tuple[str, ...]) -> str:
    """One of the words and nothing else, in any case, with blanks on either side."""
    return rf"(?i)^\s*({'|'.join(map(re.escape, words))})\s*$"


def refuse_stray(cells: Cells, line: int | None, use: str = "feature") -> None:
    """Refuse a column of numbers with a word among them: where it is, and what to do.

    line: that of row 0 in the file, where there is one.
    """
    if cells.stray is None:
        return
    word = cells.values[cells.stray]
    place = f"row {cells.stray}" + ("" if line is None else f" (line {cells.stray + line})")
    if re.match(THOUSANDS, word):
        what = "a number with thousands separators, which are not read: write 1234567.8"
    else:
        what = "where numbers are expected: correct it, leave the cell empty"
    role = f"--role {cells.name}"
    offer = f", or take the column as categories, {role}=category, or leave it out, {role}=ignore"
    raise NotNumbers(
        f"column {cells.name!r}, {place} holds {word!r}{' ' if what[0] == 'w' else ', '}{what}"
        + (offer if use == "feature" else "; --task classification takes words as classes")
    )


def cell_numbers(cells: Cells, line: int | None = None) -> NDArray[np.float64]:
    """The cells as floats, missing ones as NaN; dates as days since 1970."""
    pl = import_polars()
    refuse_stray(cells, line)
    if cells.kind is CellKind.DATE:
        return read_days(cells)
    if cells.kind is CellKind.EMPTY:
        return np.full(len(cells.values), np.nan)
    if cells.kind in (CellKind.TEXT, CellKind.LISTS):
        lists = cells.kind is CellKind.LISTS
        row = int(np.argmin(cells.missing))
        shown = cells.values.slice(row, 1).to_list()[0]
        raise NotNumbers(
            f"column {cells.name!r} holds {'lists' if lists else 'words'} where numbers are"
            f" expected, such as {str(shown)[:40]!r} in row {row}: give it the role"
            f" {'ignore' if lists else 'category or ignore'}"
        )
    values = cells.values.cast(pl.Float64).fill_null(float("nan")).to_numpy()
    check_magnitude(values, cells.name, LARGEST, line)
    return np.asarray(values, np.float64)


def check_magnitude(
    values: NDArray[np.float64], name: str, most: float, line: int | None = None, remedy: str = ""
) -> None:
    """Refuse numbers whose squares overflow, and infinite ones."""
    large = np.flatnonzero(np.abs(values) > most)
    if large.size:
        row = int(large[0])
        place = f"row {row}" + ("" if line is None else f" (line {row + line})")
        raise InvalidInput(
            f"column {name!r}, {place} holds {values[row]:g}: numbers may be at most {most:g} in"
            " size; "
            + (remedy or "correct it, or write the column in a larger unit or as logarithms")
        )


def read_days(cells: Cells) -> NDArray[np.float64]:
    """Dates as days since 1970, fractions included."""
    pl = import_polars()
    moments = cells.values
    if moments.dtype == pl.String:
        plain = moments.str.replace_all(r"[/.]", "-").str.replace("T", " ")
        timed = pl.when(plain.str.contains(":")).then(plain).otherwise(plain + " 00:00")
        plain = pl.select(timed).to_series()
        parsed = plain.str.slice(0, 19).str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False)
        short = plain.str.to_datetime("%Y-%m-%d %H:%M", strict=False)
        moments = parsed.fill_null(short)
        bad = (moments.is_null() & cells.values.is_not_null()).arg_true()
        if len(bad):
            row = int(bad[0])
            raise InvalidInput(
                f"column {cells.name!r}, row {row} holds {cells.values[row]!r}: dates as numbers"
                " are written year first, such as 2024-05-31; rewrite them, or leave the column out"
            )
    micro = moments.cast(pl.Datetime("us")).cast(pl.Int64).cast(pl.Float64).fill_null(float("nan"))
    return np.asarray(micro.to_numpy(), np.float64) / DAY


def read_levels(cells: Cells) -> list[str | None]:
    """The cells as levels of a category, missing ones as None."""
    pl = import_polars()
    if cells.kind is CellKind.LISTS:
        cell_numbers(cells)  # refused in words
    if cells.words is None and cells.kind is CellKind.NUMBER:
        return [None if value is None else format_level(value) for value in cells.values.to_list()]
    texts = cells.values.cast(pl.String) if cells.words is None else cells.words
    return list(texts.to_list())


def read_names(series: Any, column: str, wanted: str | None = None) -> tuple[list[Any], str]:
    """Each row's client, and whether clients are "text" or "whole".

    wanted: what they were when a recipe was fitted, as which they are then read.

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
    if cells.kind is CellKind.NUMBER and wanted is not None:  # 7.0 for 7, as in another table
        whole = values.cast(pl.Int64, strict=False)
        if (whole.cast(pl.Float64) == values).all():
            cells = read_cells(whole, column)
            values = whole
    if cells.kind is CellKind.EMPTY:
        return [None] * len(values), wanted or "text"
    if cells.kind is not CellKind.WHOLE:
        row = int(values.is_not_null().arg_true()[0])
        raise InvalidInput(
            f"the client of row {row}, in column {column!r}, is {values[row]!r}, of type"
            f" {type(values[row]).__name__}: names are all strings or all whole numbers; convert"
            " them, for instance with str"
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
            f"the client of row {row}, in column {column!r}, is {words[row]!r}: the federation's"
            " clients are whole numbers"
        )
    return list(whole.to_list())
