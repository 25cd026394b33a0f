"""Tables at the door: users' frames, and tables in text and Excel files.

Columns of frames become arrays, lists further axes. In files, separators, quotes, decimal commas,
byte-order marks and line ends are as they come. Every cell is read as text first, and columns
become numbers where all of their cells are: a library that guesses from the first rows would take
`NA` for a word and `007` for seven.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import io
import json
import math
import re
from collections.abc import Callable, Collection, Hashable
from datetime import date, timedelta
from importlib import import_module
from importlib.util import find_spec
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NoReturn
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import (
    InvalidInput,
    MissingColumn,
    MissingPackage,
    NotNumbers,
    UnreadableFile,
    import_package,
    unknown_name,
)
from fedasym.core.runtime import check_fits
from fedasym.data.cells import (
    MISSING,
    MISSING_NUMBER,
    CellKind,
    blank_words,
    format_level,
    import_polars,
    read_cells,
)

MANY_COLUMNS = 30  # columns that an error still lists in full


def read_frame(
    frame: Any, label: Any, client: Any, features: Any, split: Any, mask: Any
) -> dict[str, Any]:
    """What `from_arrays` takes, from the named columns of a frame."""
    frame = open_frame(frame)
    columns = list(frame.columns)
    labels = list(label) if isinstance(label, list | tuple) else [label]
    taken: dict[str, list[Any]] = {
        "client": [client],
        "label": labels,
        "split": [split] if isinstance(split, str) else [],
    }
    taken["mask"] = [mask] if isinstance(mask, str) else []
    taken["features"] = (
        list(features)
        if isinstance(features, list | tuple)
        else []
        if features is None
        else [features]
    )
    for field, names in taken.items():
        for name in names:
            check_column(field, name, columns)
    others = [name for name in columns if not any(name in names for names in taken.values())]
    chosen = taken["features"] or default_features(frame, others)
    both = [
        name
        for name in chosen
        if name in (*taken["client"], *labels, *taken["split"], *taken["mask"])
    ]
    if both:
        raise InvalidInput(
            f"column {both[0]!r} is a feature and also the label, client, split or mask: name it"
            " once"
        )
    read: dict[str, Any] = {
        "features": stack_columns("features", frame, chosen),
        "labels": stack_columns("label", frame, labels),
        "clients": read_column(frame, client),
    }
    if split is not None:
        read["split"] = read_column(frame, split) if isinstance(split, str) else split
    if mask is not None:
        read["mask"] = read_column(frame, mask) if isinstance(mask, str) else mask
    return read


def check_names(label: Any, client: Any, features: Any) -> None:
    """Names of columns, one or several, rather than values."""
    for field, value in (("label", label), ("client", client), ("features", features)):
        if field == "features" and value is None:
            continue
        several = value if isinstance(value, list | tuple) and field != "client" else [value]
        named = all(isinstance(name, Hashable) and name is not None for name in several)
        if not (several and named):
            what = "the name of a column" + ("" if field == "client" else ", or several in a list")
            raise InvalidInput(f"{field} is {str(value)[:60]}: give {what}")


def has_lists(frame: Any, label: Any, client: Any, features: Any, split: Any, mask: Any) -> bool:
    """Whether samples are lists in one column, rather than single values in several columns."""
    columns = list(frame.columns)
    # else values
    named = [split if isinstance(split, str) else None, mask if isinstance(mask, str) else None]
    several = [
        list(each) if isinstance(each, list | tuple) else [each]
        for each in (label, client, *named, features)
    ]
    labels, chosen = (
        [name for name in names if name in columns] for names in (several[0], several[4])
    )
    if mask is not None or any(is_nested_column(frame, name) for name in (*labels, *chosen)):
        return True
    if features is not None:
        return False
    taken = [name for names in several[:4] for name in names if name is not None]
    others = [name for name in columns if name not in taken]
    return not any(is_numeric_column(frame, name) for name in others) and any(
        is_nested_column(frame, name) for name in others
    )


def open_frame(frame: Any) -> Any:
    """A frame of pandas or polars through narwhals; other Arrow tables go through polars."""
    nw = import_package("narwhals", "a table of client data")
    if type(frame).__module__.split(".")[0] == "datasets":
        frame = read_dataset(frame)
    try:
        if hasattr(frame, "__arrow_c_stream__") and not nw.dependencies.is_into_dataframe(frame):
            shown = nw.from_arrow(frame, backend="polars")
        else:
            shown = nw.from_native(frame)
        shown = shown.collect("polars") if isinstance(shown, nw.LazyFrame) else shown
        if shown.implementation.is_pyarrow():
            shown = nw.from_native(shown.to_polars())
    except nw.exceptions.DuplicateError:
        names = list(getattr(frame, "column_names", None) or frame.columns)
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInput(f"the frame has several columns {twice!r}: rename them") from None
    except TypeError:
        what = f"{type(frame).__module__.split('.')[0]}.{type(frame).__name__}"
        raise InvalidInput(
            f"frame is a {what}: give a polars or pandas DataFrame; for arrays use from_arrays"
        ) from None
    return shown


def check_column(field: str, name: Any, columns: list[Any]) -> None:
    """A column that is there; of very many columns the nearest are offered."""
    if name not in columns:
        known = [str(each) for each in columns]
        if len(known) > MANY_COLUMNS:
            known = [
                *difflib.get_close_matches(str(name), known, n=5, cutoff=0.0),
                f"{len(known) - 5} more",
            ]
        raise unknown_name(f"{field} column", name, known, MissingColumn)


def default_features(frame: Any, others: list[Any]) -> list[Any]:
    """All columns of numbers, or else the only column of lists."""
    chosen = [name for name in others if is_numeric_column(frame, name)] or [
        name for name in others if is_nested_column(frame, name)
    ]
    if not chosen or (len(chosen) > 1 and is_nested_column(frame, chosen[0])):
        found = f"{len(chosen)} columns of lists" if chosen else "no columns of numbers or lists"
        raise InvalidInput(
            f"features is None and beside label, client, split and mask there are {found}: name the"
            " features' columns"
        )
    return chosen


def is_numeric_column(frame: Any, name: Any) -> bool:
    """Whether a column holds numbers (booleans are none)."""
    return bool(open_frame(frame).get_column(name).dtype.is_numeric())


def is_nested_column(frame: Any, name: Any) -> bool:
    """Whether a column holds lists or arrays."""
    series = open_frame(frame).get_column(name)
    if series.implementation.is_polars():
        return type(series.dtype).__name__ in ("List", "Array")
    return len(series) > 0 and isinstance(series.to_native().iloc[0], list | tuple | np.ndarray)


def stack_columns(field: str, frame: Any, names: list[Any]) -> NDArray[Any]:
    """One column as it is (a feature's numbers along a last axis); several side by side."""
    if len(names) == 1 and (field == "label" or is_nested_column(frame, names[0])):
        return read_column(frame, names[0])
    arrays = [read_column(frame, name) for name in names]
    for name, array in zip(names, arrays, strict=True):
        if array.ndim > 1:
            raise InvalidInput(
                f"{field} column {name!r} holds lists: name it alone, or give columns of numbers"
            )
        if array.dtype.kind not in "biuf":
            held = frame.get_column(name).to_native().dtype
            raise NotNumbers(
                f"{field} column {name!r} holds {held}: give numbers; encode text and categories"
                " first"
            )
    return np.stack(arrays, axis=1)


def read_column(frame: Any, name: Any) -> NDArray[Any]:
    """A column as an array: missing numbers NaN, other missing values None, equal lists axes."""
    series = open_frame(frame).get_column(name)
    if series.implementation.is_polars():
        return polars_array(series.to_native(), lambda row: f"column {name!r}, row {row}")
    if is_nested_column(frame, name):
        return stack_lists(series.to_list(), lambda row: f"column {name!r}, row {row}")
    return np.asarray(series.to_numpy())


def polars_array(series: Any, at: Callable[[int], str]) -> NDArray[Any]:
    """A polars column; lists must have one length."""
    kind = type(series.dtype).__name__
    if kind not in ("List", "Array"):
        if kind in ("Categorical", "Enum"):
            series = series.cast(import_module("polars").String)
        if kind == "Decimal":
            series = series.cast(import_module("polars").Float64)
        return np.asarray(series.to_numpy())
    lists = series.arr.to_list() if kind == "Array" else series
    lengths = lists.list.len().fill_null(0).to_numpy()
    check_lengths(lengths, at)
    each = int(lengths[0])
    inner = polars_array(
        lists.explode(), lambda entry: f"{at(entry // each)}, entry {entry % each}"
    )
    return inner.reshape(len(series), each, *inner.shape[1:])


def stack_lists(rows: list[Any], at: Callable[[int], str]) -> NDArray[Any]:
    """Lists or arrays, which may be nested, along a first axis; all must have one length."""
    check_lengths(
        np.array([len(row) if isinstance(row, list | tuple | np.ndarray) else 0 for row in rows]),
        at,
    )
    if isinstance(rows[0][0], list | tuple | np.ndarray):
        each = len(rows[0])
        inner = stack_lists(
            [entry for row in rows for entry in row],
            lambda entry: f"{at(entry // each)}, entry {entry % each}",
        )
        return inner.reshape(len(rows), each, *inner.shape[1:])
    return np.stack([np.asarray(row) for row in rows])


def check_lengths(lengths: NDArray[Any], at: Callable[[int], str]) -> None:
    """Lists of one length, none of them missing or empty."""
    odd = (
        np.flatnonzero((lengths != lengths[0]) | (lengths == 0))
        if lengths.size
        else np.zeros(0, int)
    )
    if odd.size:
        row = int(odd[0])
        raise InvalidInput(
            f"{at(row)} holds a list of {int(lengths[row])} while the first has {int(lengths[0])}:"
            " give lists of one length above 0; pad sequences and mark the padding with mask"
        )


def read_polars(frame: Any, strict: Collection[Any] = ()) -> Any:
    """Any frame as a polars frame whose columns are named by text.

    strict: columns that must not mix kinds of values, such as labels and clients; others are then
    text.

    >>> import pandas as pd
    >>> read_polars(pd.DataFrame({"a": [1, 2], "b": ["x", None]})).rows()
    [(1, 'x'), (2, None)]
    """
    shown = open_frame(frame)
    pl = import_polars()
    if shown.implementation.is_polars():
        return shown.to_native()
    frame = shown.to_native()
    columns = [read_pandas_column(frame[name], name, name in strict) for name in frame.columns]
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInput(
            f"the frame has several columns {twice!r} when read as text: rename them"
        )
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
            raise InvalidInput(
                f"column {name!r} holds text that is not valid Unicode: save it as UTF-8"
            ) from None
    if all(isinstance(value, bool | np.bool_) for value in held):
        return pl.Series([None if value is None else bool(value) for value in values])
    if all(isinstance(value, Integral) for value in held):
        small = all(-(2**63) <= int(value) < 2**63 for value in held)
        kind = (int, pl.Int64) if small else (to_float, pl.Float64)
        return pl.Series(
            [None if each is None else kind[0](each) for each in values], dtype=kind[1]
        )
    if all(isinstance(value, Real) or type(value).__name__ == "Decimal" for value in held):
        return pl.Series(
            [None if value is None else to_float(value) for value in values], dtype=pl.Float64
        )
    if any(all(isinstance(value, kind) for value in held) for kind in (date, timedelta)):
        try:
            return pl.Series(values, strict=False)
        except (TypeError, OverflowError, pl.exceptions.PolarsError):  # zones of some, not of all
            return pl.Series(
                [None if value is None else str(value) for value in values], dtype=pl.String
            )
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


def refuse_mixture(values: list[Any], name: Any) -> NoReturn:
    """Say where a column of labels or clients changes its kind."""
    first = next(row for row, value in enumerate(values) if value is not None)
    one = type(values[first])
    row, value = next(
        (row, value)
        for row, value in enumerate(values)
        if value is not None and (type(value) is not one or not isinstance(value, str | Real))
    )
    raise InvalidInput(
        f"column {name!r}, row {row} holds {value!r}, of type {type(value).__name__}, while"
        f" row {first} has {values[first]!r}: give all numbers or all strings"
    )


TEXTS = (".csv", ".tsv", ".txt")
EXCEL = (".xlsx",)
SEPARATORS = (",", ";", "\t", "|")
SEPARATOR_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
HEAD = 1 << 16  # bytes in which separators are counted
LINES = 50
# gzip, Zstandard, zlib
PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x78\x01", b"\x78\x9c", b"\x78\xda")
ENCODING_HINT = (
    'save the table as UTF-8, or say how it was saved, such as encoding="cp1252" (--encoding'
    " cp1252) for a spreadsheet's CSV in western Europe and America"
)
WIDE_TEXT = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}  # Excel's "Unicode text"
DECIMAL_COMMA = r"^[+-]?\d*,\d+([eE][+-]?\d+)?$"
DECIMAL_OR_WHOLE = r"^[+-]?(\d+|\d*,\d+)([eE][+-]?\d+)?$"
CANONICAL = r"^(0|-?[1-9][0-9]{0,17})$"  # a whole number that reads back as it was written


def read_file(path: str | Path, names: Collection[Any] = (), encoding: str | None = None) -> Any:
    r"""A .csv, .tsv, .txt, .xlsx or .parquet table as a polars frame, ready for `Recipe.apply`.

    names: columns that hold names, such as the clients': they stay as they are written, and are
        numbers only where all of them are written as whole numbers.
    encoding: of a text table that is not UTF-8, by the name that Python has for it.

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
        return read_text_file(file, names, encoding)
    refuse_encoding(file, encoding)
    if ending in EXCEL:
        return read_excel(file)
    if ending == ".parquet":
        from fedasym.data.files import read_parquet

        return read_parquet(file, False)[0]
    if ending == ".arrow":
        return read_arrow(file)
    raise InvalidInput(
        f"path is {str(path)!r}: tables end in {', '.join((*TEXTS, *EXCEL))} or .parquet"
    )


def read_arrow(file: Path) -> Any:
    """An Arrow file as Hugging Face's `save_to_disk` writes it: a stream, with notes beside it."""
    pl = import_polars()
    notes = file.with_name("dataset_info.json")
    try:
        frame = pl.read_ipc_stream(file)
        features = json.loads(notes.read_text("utf-8"))["features"] if notes.is_file() else {}
        return name_classes(frame, dict(features or {}))
    except (pl.exceptions.PolarsError, OSError, ValueError, TypeError, KeyError) as reason:
        if isinstance(reason, InvalidInput):
            raise reason.at(file) from None
        raise UnreadableFile(
            f"{file}: it cannot be read as an Arrow stream, as save_to_disk writes it: {reason}"
        ) from None


def read_dataset(dataset: Any) -> Any:
    """A Hugging Face `Dataset`, or a `DatasetDict` with a column that names its splits."""
    pl = import_polars()
    if hasattr(dataset, "items"):
        parts = [
            read_dataset(part).with_columns(pl.lit(name).alias("split"))
            for name, part in dataset.items()
        ]
        return pl.concat(parts, how="vertical_relaxed")
    if not hasattr(dataset, "with_format") or not hasattr(dataset, "num_rows"):
        raise InvalidInput(
            f"frame is a {type(dataset).__name__}, which streams its rows: load it whole, without"
            " streaming=True"
        )
    features = {} if dataset.features is None else dataset.features.to_dict()
    return name_classes(pl.from_arrow(dataset.with_format("arrow")[:]), features)


def name_classes(frame: Any, features: dict[str, Any]) -> Any:
    """Codes of a ClassLabel as the names of the classes; encoded images and sounds are refused."""
    pl = import_polars()
    for name, about in features.items():
        kind = about.get("_type") if isinstance(about, dict) else None
        if kind in ("Image", "Audio", "Video"):
            raise InvalidInput(
                f"column {name!r} holds encoded files ({kind}): make arrays of them, such as"
                f" dataset.with_format('numpy')[{name!r}], or features, and use from_arrays"
            )
        if kind == "ClassLabel" and name in frame.columns and about.get("names"):
            called = dict(enumerate(map(str, about["names"])))
            column = pl.col(name).replace_strict(called, default=None, return_dtype=pl.String)
            frame = frame.with_columns(column)
    return frame


def read_text_file(file: Path, names: Collection[Any] = (), encoding: str | None = None) -> Any:
    """A text table with a header: missing cells as nulls, columns of numbers as numbers."""
    pl = import_polars()
    head = read_head(file, encoding)
    code = encoding
    if code is None:
        code = next((wide for start, wide in WIDE_TEXT.items() if head.startswith(start)), None)
    source: Any = file
    if code is not None:
        text = decode_table(file, code)
        head, source = text[:HEAD], io.BytesIO(text)
    separator = find_separator(head)
    try:
        frame = pl.read_csv(
            source, separator=separator, infer_schema=False, truncate_ragged_lines=False
        )
    except (OSError, pl.exceptions.PolarsError) as reason:
        raise UnreadableFile(
            f"{file}: it cannot be read as CSV: {explain_failure(head, separator, reason)}"
        ) from None
    except pl.exceptions.PanicException:
        raise UnreadableFile(
            f"{file}: it cannot be read as CSV: check its quotes and line ends"
        ) from None
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


def refuse_encoding(path: Path, encoding: str | None) -> None:
    """Files other than text tables say themselves how their text is encoded."""
    if encoding is not None:
        raise InvalidInput(
            f"{path}: encoding is given, which is for {', '.join(TEXTS)}: leave it out"
        )


def decode_table(file: Path, encoding: str) -> bytes:
    """A text file as UTF-8."""
    content = file.read_bytes()
    try:
        return content.decode(encoding).encode()
    except UnicodeError as reason:
        line = content[: getattr(reason, "start", 0)].count(b"\n") + 1
        raise UnreadableFile(
            f"{file}: line {line} is not text in {encoding}: {ENCODING_HINT}"
        ) from None
    except (LookupError, ValueError, TypeError):
        raise InvalidInput(
            f"encoding is {encoding!r}: Python knows no text encoding of that name; spreadsheets"
            " save cp1252 (western Europe, America), cp1250 (central Europe), cp1251 (Cyrillic),"
            " mac_roman or utf-16"
        ) from None


def read_head(file: Path, encoding: str | None = None) -> bytes:
    """The first bytes of a text file; packed ones are refused: polars would unpack any size."""
    try:
        with file.open("rb") as opened:
            head = opened.read(HEAD)
    except OSError as reason:
        raise UnreadableFile(f"{file}: it cannot be read: {reason.strerror or reason}") from None
    if head.startswith(PACKED):
        raise UnreadableFile(f"{file}: it is compressed: unpack it first, and read what comes out")
    if encoding is None and not head.startswith(tuple(WIDE_TEXT)):
        try:
            codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < HEAD)
        except UnicodeDecodeError as reason:
            line = head[: reason.start].count(b"\n") + 1
            raise UnreadableFile(
                f"{file}: line {line} is not UTF-8 text: {ENCODING_HINT}"
            ) from None
    return head


def find_separator(head: bytes) -> str:
    r"""The separator that cuts header and first lines into equally many fields, quotes respected.

    >>> find_separator(b'a;"b,c";d\n1,5;x;2\n'), find_separator(b"a\n1\n")
    (';', ',')
    """
    text = head.decode("utf-8-sig", errors="ignore")
    lines = [line for line in text.splitlines() if line.strip()][:LINES]
    if len(head) == HEAD and len(lines) > 2:
        lines = lines[:-1]  # the last may be cut
    best = ","
    score = (0.0, 0)
    for separator in SEPARATORS:
        try:
            counts = [len(row) for row in csv.reader(lines, delimiter=separator) if row]
        except csv.Error:
            continue
        if not counts or counts[0] < 2:
            continue
        alike = sum(count == counts[0] for count in counts) / len(counts)
        if (alike, counts[0]) > score:
            best = separator
            score = (alike, counts[0])
    return best


def explain_failure(head: bytes, separator: str, reason: Exception) -> str:
    """Why polars could not read a text table, with the line where that is simple."""
    told = str(reason).splitlines()[0] if str(reason) else type(reason).__name__
    if "utf" in told.lower():
        return f"it is not UTF-8 text: {ENCODING_HINT}"
    if "more fields" in told:
        rows = csv.reader(
            head.decode("utf-8-sig", errors="ignore").splitlines(), delimiter=separator
        )
        try:
            width = len(next(rows))
            for number, row in enumerate(rows, 2):
                if len(row) > width:
                    return (
                        f"line {number} has {len(row)} fields and the header {width}, separated by"
                        f" {SEPARATOR_NAMES[separator]}: quote fields that hold a separator, and"
                        " name every column"
                    )
        except (csv.Error, StopIteration):
            pass
    return told


def strip_header(file: Path, columns: list[str]) -> dict[str, str]:
    """Names of columns without spaces around them, each once."""
    renamed = {
        name: name.strip().removeprefix("\ufeff").strip('"').replace('""', '"') for name in columns
    }
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
    if not series.str.contains(",", literal=True).any():  # as in nearly all
        return series
    words = blank_words(blank_words(series.str.strip_chars(), MISSING), MISSING_NUMBER).drop_nulls()
    if not len(words) or not words.str.contains(DECIMAL_COMMA).any():
        return series
    return (
        series.str.replace(",", ".", literal=True)
        if words.str.contains(DECIMAL_OR_WHOLE).all()
        else series
    )


def type_column(series: Any, name: str) -> Any:
    """A text column as what all its cells are; a word among numbers keeps it text, to be named."""
    pl = import_polars()
    cells = read_cells(series, name)
    if cells.kind is CellKind.EMPTY:
        return pl.Series(name, [None] * len(series), dtype=pl.Null)
    if cells.kind in (CellKind.NUMBER, CellKind.WHOLE, CellKind.BOOLEAN):
        return cells.values.alias(name)
    return series.str.strip_chars().alias(name)


def read_excel(file: Path) -> Any:
    """The first sheet of an Excel file."""
    pl = import_polars()
    engine = next(
        (
            name
            for module, name in (("fastexcel", "calamine"), ("openpyxl", "openpyxl"))
            if find_spec(module)
        ),
        None,
    )
    if engine is None:
        raise MissingPackage(
            f"{file}: an Excel file needs fastexcel: pip install 'fedasym[excel]', or save it"
            " as CSV"
        )
    try:
        with ZipFile(file) as archive:
            check_fits(sum(each.file_size for each in archive.infolist()), f"{file}: it")
    except (OSError, BadZipFile, NotImplementedError):
        raise UnreadableFile(
            f"{file}: it cannot be read as .xlsx: save it again, or as CSV"
        ) from None
    try:
        frame = pl.read_excel(file, engine=engine, infer_schema_length=None)
    except Exception as reason:  # each engine has errors of its own
        told = str(reason).splitlines()[0] if str(reason) else type(reason).__name__
        raise UnreadableFile(f"{file}: it cannot be read as .xlsx: {told}") from None
    return frame.rename(strip_header(file, frame.columns))
