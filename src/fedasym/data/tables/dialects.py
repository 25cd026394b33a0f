"""Tables in text and Excel files: separators, quotes, decimal commas, byte-order marks and line ends as they come.

Every cell is read as text first, and columns become numbers where all of their cells are: a library that guesses from the
first rows would take `NA` for a word and `007` for seven.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from fedasym.core.errors import InvalidInput, MissingPackage, UnreadableFile
from fedasym.core.machine import check_fits
from fedasym.data.tables.cells import MISSING, MISSING_NUMBER, Kind, blank_words, read_cells
from fedasym.data.tables.frames import import_polars

TEXTS = (".csv", ".tsv", ".txt")
EXCEL = (".xlsx",)
SEPARATORS = (",", ";", "\t", "|")
NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
HEAD = 1 << 16  # bytes in which separators are counted
LINES = 50
PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x78\x01", b"\x78\x9c", b"\x78\xda")  # gzip, Zstandard, zlib
WIDE = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}  # Excel's "Unicode text"
DECIMAL_COMMA = r"^[+-]?\d*,\d+([eE][+-]?\d+)?$"
DECIMAL_OR_WHOLE = r"^[+-]?(\d+|\d*,\d+)([eE][+-]?\d+)?$"
CANONICAL = r"^(0|-?[1-9][0-9]{0,17})$"  # a whole number that reads back as it was written


def read_file(path: str | Path, names: Collection[Any] = ()) -> Any:
    r"""A table in a .csv, .tsv, .txt, .xlsx or .parquet file as a polars frame, ready for `Recipe.apply`.

    names: columns that hold names, such as the clients': they stay as they are written, and are numbers only where
        all of them are written as whole numbers.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "shops.csv")
    ...     size = file.write_text("shop;price;day\n01;1,5;mo\n02;NA;tu\n")
    ...     read_file(file, names=["shop"]).rows()
    [('01', 1.5, 'mo'), ('02', None, 'tu')]
    """
    file = Path(path)
    if not file.is_file():
        raise UnreadableFile(f"path is {str(path)!r}: there is no such file; check the name")
    ending = file.suffix.lower()
    if ending in TEXTS:
        return read_text_file(file, names)
    if ending in EXCEL:
        return read_excel(file)
    if ending == ".parquet":
        from fedasym.data.federation.files import read_parquet

        return read_parquet(file, False)[0]
    raise InvalidInput(f"path is {str(path)!r}: tables end in {', '.join((*TEXTS, *EXCEL))} or .parquet")


def read_text_file(file: Path, names: Collection[Any] = ()) -> Any:
    """A text table with a header: missing cells as nulls, columns of numbers as numbers."""
    pl = import_polars()
    head = read_head(file)
    separator = find_separator(head)
    wide = next((code for start, code in WIDE.items() if head.startswith(start)), None)
    try:
        source: Any = file if wide is None else io.BytesIO(file.read_bytes().decode(wide).encode())
        frame = pl.read_csv(source, separator=separator, infer_schema=False, truncate_ragged_lines=False)
    except UnicodeDecodeError:
        raise UnreadableFile(f"{file}: it cannot be read as UTF-16 text: save it as UTF-8") from None
    except (OSError, pl.exceptions.PolarsError) as reason:
        raise UnreadableFile(f"{file}: it cannot be read as CSV: {explain_failure(head, separator, reason)}") from None
    except pl.exceptions.PanicException:
        raise UnreadableFile(f"{file}: it cannot be read as CSV: check its quotes and line ends") from None
    frame = frame.rename(strip_header(file, frame.columns))
    comma = separator != ","
    columns = {}
    for name in frame.columns:
        if name in names:
            columns[name] = read_name_column(frame[name])
            continue
        series = read_decimal_commas(frame[name]) if comma else frame[name]
        columns[name] = type_column(series, name)
    return pl.DataFrame(columns)


def read_head(file: Path) -> bytes:
    """The first bytes of a text file; a packed one is refused, which polars would unpack however much it unpacks to."""
    try:
        with file.open("rb") as opened:
            head = opened.read(HEAD)
    except OSError as reason:
        raise UnreadableFile(f"{file}: it cannot be read: {reason.strerror or reason}") from None
    if head.startswith(PACKED):
        raise UnreadableFile(f"{file}: it is compressed: unpack it first, and read what comes out")
    if not head.startswith(tuple(WIDE)):
        try:
            codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < HEAD)
        except UnicodeDecodeError as reason:
            line = head[: reason.start].count(b"\n") + 1
            raise UnreadableFile(f"{file}: line {line} is not UTF-8 text: save the table as UTF-8") from None
    return head


def find_separator(head: bytes) -> str:
    r"""The separator that cuts the header and the first lines into the same number of fields, quotes respected.

    >>> find_separator(b'a;"b,c";d\n1,5;x;2\n'), find_separator(b"a\n1\n")
    (';', ',')
    """
    wide = next((code for start, code in WIDE.items() if head.startswith(start)), "utf-8-sig")
    text = head.decode(wide, errors="ignore")
    lines = [line for line in text.splitlines() if line.strip()][:LINES]
    if len(head) == HEAD and len(lines) > 2:
        lines = lines[:-1]  # the last may be cut
    best, score = ",", (0.0, 0)
    for separator in SEPARATORS:
        try:
            counts = [len(row) for row in csv.reader(lines, delimiter=separator) if row]
        except csv.Error:
            continue
        if not counts or counts[0] < 2:
            continue
        alike = sum(count == counts[0] for count in counts) / len(counts)
        if (alike, counts[0]) > score:
            best, score = separator, (alike, counts[0])
    return best


def explain_failure(head: bytes, separator: str, reason: Exception) -> str:
    """Why polars could not read a text table, with the line where that is simple."""
    told = str(reason).splitlines()[0] if str(reason) else type(reason).__name__
    if "utf" in told.lower():
        return "it is not UTF-8 text: save it as UTF-8"
    if "more fields" in told:
        rows = csv.reader(head.decode("utf-8-sig", errors="ignore").splitlines(), delimiter=separator)
        try:
            width = len(next(rows))
            for number, row in enumerate(rows, 2):
                if len(row) > width:
                    return (
                        f"line {number} has {len(row)} fields and the header {width}, separated by {NAMES[separator]}: "
                        "quote fields that hold a separator, and name every column"
                    )
        except (csv.Error, StopIteration):
            pass
    return told


def strip_header(file: Path, columns: list[str]) -> dict[str, str]:
    """Names of columns without spaces around them, each once."""
    renamed = {name: name.strip().removeprefix("\ufeff").strip('"').replace('""', '"') for name in columns}
    twice = [name for name in columns if re.search(r"_duplicated_\d+$", name)]
    names = list(renamed.values())
    if twice and twice[0].rsplit("_duplicated_", 1)[0] in columns:
        name = twice[0].rsplit("_duplicated_", 1)[0]
        raise InvalidInput(f"{file}: there are several columns {name!r}: rename them")
    if len(set(names)) < len(names):
        name = next(name for name in names if names.count(name) > 1)
        raise InvalidInput(f"{file}: there are several columns {name!r}: rename them")
    return renamed


def read_name_column(series: Any) -> Any:
    """Names as they are written; numbers only where all of them are written as whole numbers."""
    pl = import_polars()
    names = blank_words(series, MISSING)
    held = names.drop_nulls()
    if len(held) and held.str.contains(CANONICAL).all():
        return names.cast(pl.Int64)
    return names


def read_decimal_commas(series: Any) -> Any:
    """A column of numbers with decimal commas with points instead; any other as it is."""
    words = blank_words(blank_words(series.str.strip_chars(), MISSING), MISSING_NUMBER).drop_nulls()
    if not len(words) or not words.str.contains(DECIMAL_COMMA).any():
        return series
    return series.str.replace(",", ".", literal=True) if words.str.contains(DECIMAL_OR_WHOLE).all() else series


def type_column(series: Any, name: str) -> Any:
    """A column of text as what all of its cells are; with a word among numbers it stays text, for the word to be named."""
    pl = import_polars()
    cells = read_cells(series, name)
    if cells.kind is Kind.EMPTY:
        return pl.Series(name, [None] * len(series), dtype=pl.Null)
    if cells.kind in (Kind.NUMBER, Kind.WHOLE, Kind.BOOLEAN):
        return cells.values.alias(name)
    return series.str.strip_chars().alias(name)


def read_excel(file: Path) -> Any:
    """The first sheet of an Excel file."""
    pl = import_polars()
    engine = next((name for module, name in (("fastexcel", "calamine"), ("openpyxl", "openpyxl")) if find_spec(module)), None)
    if engine is None:
        raise MissingPackage(f"{file}: an Excel file needs fastexcel: pip install 'fedasym[excel]', or save it as CSV")
    try:
        with ZipFile(file) as archive:
            check_fits(sum(each.file_size for each in archive.infolist()), f"{file}: it")
    except (OSError, BadZipFile, NotImplementedError):
        raise UnreadableFile(f"{file}: it cannot be read as .xlsx: save it again, or as CSV") from None
    try:
        frame = pl.read_excel(file, engine=engine, infer_schema_length=None)
    except InvalidInput:
        raise
    except Exception as reason:  # each engine has errors of its own
        told = str(reason).splitlines()[0] if str(reason) else type(reason).__name__
        raise UnreadableFile(f"{file}: it cannot be read as .xlsx: {told}") from None
    return frame.rename(strip_header(file, frame.columns))
