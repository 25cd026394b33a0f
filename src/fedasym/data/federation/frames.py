"""Client data from polars and pandas frames: columns as arrays, lists as further axes."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Hashable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, MissingColumn, NotNumbers, unknown
from fedasym.core.packages import needed

MANY = 30  # columns that an error still lists in full


def read_frame(frame: Any, label: Any, client: Any, features: Any, split: Any, mask: Any) -> dict[str, Any]:
    """What `from_arrays` takes, from the named columns of a frame."""
    frame = opened(frame)
    columns = list(frame.columns)
    labels = list(label) if isinstance(label, list | tuple) else [label]
    taken: dict[str, list[Any]] = {"client": [client], "label": labels, "split": [split] if isinstance(split, str) else []}
    taken["mask"] = [mask] if isinstance(mask, str) else []
    taken["features"] = list(features) if isinstance(features, list | tuple) else [] if features is None else [features]
    for field, names in taken.items():
        for name in names:
            check_column(field, name, columns)
    others = [name for name in columns if not any(name in names for names in taken.values())]
    chosen = taken["features"] or default_features(frame, others)
    both = [name for name in chosen if name in (*taken["client"], *labels, *taken["split"], *taken["mask"])]
    if both:
        raise InvalidInput(f"column {both[0]!r} is a feature and also the label, client, split or mask: name it once")
    read: dict[str, Any] = {
        "features": together("features", frame, chosen),
        "labels": together("label", frame, labels),
        "clients": column(frame, client),
    }
    if split is not None:
        read["split"] = column(frame, split) if isinstance(split, str) else split
    if mask is not None:
        read["mask"] = column(frame, mask) if isinstance(mask, str) else mask
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


def is_of_lists(frame: Any, label: Any, client: Any, features: Any, split: Any, mask: Any) -> bool:
    """Whether samples are lists in a column, taken as they are, rather than one value in each of several columns."""
    columns = list(frame.columns)
    named = [split if isinstance(split, str) else None, mask if isinstance(mask, str) else None]  # else values
    several = [list(each) if isinstance(each, list | tuple) else [each] for each in (label, client, *named, features)]
    labels, chosen = ([name for name in names if name in columns] for names in (several[0], several[4]))
    if mask is not None or any(is_nested(frame, name) for name in (*labels, *chosen)):
        return True
    if features is not None:
        return False
    taken = [name for names in several[:4] for name in names if name is not None]
    others = [name for name in columns if name not in taken]
    return not any(is_number(frame, name) for name in others) and any(is_nested(frame, name) for name in others)


def opened(frame: Any) -> Any:
    """A polars or pandas DataFrame; other tables that speak Arrow go through polars."""
    library, kind = type(frame).__module__.split(".")[0], type(frame).__name__
    if library in ("polars", "pandas") and kind == "LazyFrame":
        frame, kind = frame.collect(), "DataFrame"
    if library not in ("polars", "pandas") and hasattr(frame, "__arrow_c_stream__"):
        frame, library, kind = needed("polars", "reading an Arrow table").DataFrame(frame), "polars", "DataFrame"
    if library not in ("polars", "pandas") or kind != "DataFrame":
        raise InvalidInput(f"frame is a {library}.{kind}: give a polars or pandas DataFrame; for arrays use from_arrays")
    if len(set(frame.columns)) < len(frame.columns):
        twice = next(name for name in frame.columns if list(frame.columns).count(name) > 1)
        raise InvalidInput(f"the frame has several columns {twice!r}: rename them")
    return frame


def check_column(field: str, name: Any, columns: list[Any]) -> None:
    """A column that is there; of very many columns the nearest are offered."""
    if name not in columns:
        known = [str(each) for each in columns]
        if len(known) > MANY:
            known = [*difflib.get_close_matches(str(name), known, n=5, cutoff=0.0), f"{len(known) - 5} more"]
        raise unknown(f"{field} column", name, known, MissingColumn)


def default_features(frame: Any, others: list[Any]) -> list[Any]:
    """All columns of numbers, or else the only column of lists."""
    chosen = [name for name in others if is_number(frame, name)] or [name for name in others if is_nested(frame, name)]
    if not chosen or (len(chosen) > 1 and is_nested(frame, chosen[0])):
        found = f"{len(chosen)} columns of lists" if chosen else "no columns of numbers or lists"
        raise InvalidInput(
            f"features is None and beside label, client, split and mask there are {found}: name the features' columns"
        )
    return chosen


def is_number(frame: Any, name: Any) -> bool:
    """Whether a column holds numbers (booleans are none)."""
    dtype = frame[name].dtype
    if hasattr(dtype, "is_numeric"):  # polars
        return bool(dtype.is_numeric())
    types = import_module("pandas.api.types")
    return bool(types.is_numeric_dtype(dtype) and not types.is_bool_dtype(dtype) and not types.is_complex_dtype(dtype))


def is_nested(frame: Any, name: Any) -> bool:
    """Whether a column holds lists or arrays."""
    series = frame[name]
    if hasattr(series.dtype, "is_nested"):  # polars
        return type(series.dtype).__name__ in ("List", "Array")
    return len(series) > 0 and isinstance(series.iloc[0], list | tuple | np.ndarray)


def together(field: str, frame: Any, names: list[Any]) -> NDArray[Any]:
    """One column as it is, of numbers along a last axis if it is a feature; several side by side."""
    if len(names) == 1 and (field == "label" or is_nested(frame, names[0])):
        return column(frame, names[0])
    arrays = [column(frame, name) for name in names]
    for name, array in zip(names, arrays, strict=True):
        if array.ndim > 1:
            raise InvalidInput(f"{field} column {name!r} holds lists: name it alone, or give columns of numbers")
        if array.dtype.kind not in "biuf":
            raise NotNumbers(
                f"{field} column {name!r} holds {frame[name].dtype}: give numbers; encode text and categories first"
            )
    return np.stack(arrays, axis=1)


def column(frame: Any, name: Any) -> NDArray[Any]:
    """A column as an array: missing numbers are NaN, other missing values None, lists of one length further axes."""
    series = frame[name]
    if hasattr(series.dtype, "is_nested"):
        return from_polars(series, lambda row: f"column {name!r}, row {row}")
    if is_nested(frame, name):
        return stacked(series.tolist(), lambda row: f"column {name!r}, row {row}")
    if is_number(frame, name) and series.hasnans:
        return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.asarray(series.to_numpy())


def from_polars(series: Any, at: Callable[[int], str]) -> NDArray[Any]:
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
    inner = from_polars(lists.explode(), lambda entry: f"{at(entry // each)}, entry {entry % each}")
    return inner.reshape(len(series), each, *inner.shape[1:])


def stacked(rows: list[Any], at: Callable[[int], str]) -> NDArray[Any]:
    """Lists or arrays, which may hold further ones, along a first axis; they must have one length."""
    check_lengths(np.array([len(row) if isinstance(row, list | tuple | np.ndarray) else 0 for row in rows]), at)
    if isinstance(rows[0][0], list | tuple | np.ndarray):
        each = len(rows[0])
        inner = stacked([entry for row in rows for entry in row], lambda entry: f"{at(entry // each)}, entry {entry % each}")
        return inner.reshape(len(rows), each, *inner.shape[1:])
    return np.stack([np.asarray(row) for row in rows])


def check_lengths(lengths: NDArray[Any], at: Callable[[int], str]) -> None:
    """Lists of one length, none of them missing or empty."""
    odd = np.flatnonzero((lengths != lengths[0]) | (lengths == 0)) if lengths.size else np.zeros(0, int)
    if odd.size:
        row = int(odd[0])
        raise InvalidInput(
            f"{at(row)} holds a list of {int(lengths[row])} while the first has {int(lengths[0])}: give lists of one "
            "length above 0; pad sequences and mark the padding with mask"
        )
