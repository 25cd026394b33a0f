"""Labels at the door: class names become codes, numbers become outputs, and what is missing is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, MissingValues, NotNumbers, UnknownClass, one_of
from fedasym.core.text import plural

TASKS = ("classification", "regression")
MOST = 10**7  # classes that a number alone may stand for
EXACT = 2.0**53  # whole floating-point numbers below this are exact

Where = Callable[[int], str]  # says in words where an entry is


def read_labels(labels: Any) -> NDArray[Any]:
    """Any array-like as an array of numbers, of strings, or of Python objects that are looked at one by one."""
    try:
        values = np.asarray(labels)
        if values.dtype.kind == "T" or (values.dtype.kind in "US" and not hasattr(labels, "dtype")):
            values = np.asarray(labels, dtype=object)  # else numpy turns 1 and NaN beside strings into strings
    except (TypeError, ValueError, RuntimeError) as reason:
        raise InvalidInput(f"labels cannot be read as an array: {reason}") from None
    if values.dtype.name == "bfloat16":
        values = values.astype(np.float32)
    if values.dtype.kind not in "biufUO":
        hint = "decode them, labels.astype(str)" if values.dtype.kind == "S" else "give numbers or strings"
        raise InvalidInput(f"labels hold {values.dtype.name}: {hint}")
    return values


def is_text(values: NDArray[Any]) -> bool:
    """Whether labels are names rather than numbers; objects are taken for names."""
    return values.dtype.kind in "UO"


def checked_labels(
    labels: Any, shape: tuple[int, ...], real: NDArray[np.bool_] | None, classes: Any, task: str | None, spot: Where
) -> tuple[NDArray[Any], tuple[Any, ...] | None]:
    """Codes and class names, or outputs and None, for samples (and positions) of that shape."""
    if task is not None:
        one_of("task", task, TASKS)
    if task == "regression" and classes is not None:
        raise InvalidInput(f"task is 'regression' and classes is {classes!r}: leave one of them out")
    values = read_labels(labels)
    if values.ndim == len(shape) + 1 and values.shape[-1] == 1:
        values = values[..., 0]  # a column
    check_shape(values, shape)

    def at(entry: int) -> str:
        if len(shape) == 1:
            return spot(entry)
        row, position = divmod(entry, shape[1]) if real is None else (int(each[entry]) for each in np.nonzero(real))
        return f"{spot(row)}, position {position}"

    entries = values[real] if real is not None else values.reshape(-1, *values.shape[len(shape) :])
    entries = resolved(entries, at)
    if (task or ("regression" if entries.dtype.kind == "f" and classes is None else "classification")) == "regression":
        if is_text(entries):
            raise NotNumbers(f"task is 'regression' while the label at {at(0)} is {entries.flat[0]!r}: give numbers")
        outputs = entries.shape[1] if entries.ndim > 1 else 1
        return spread(entries.astype(np.float64), values, real).reshape(*shape, outputs), None
    if entries.ndim > 1:
        raise InvalidInput(
            f"labels have shape {values.shape} while samples have {shape}: give one class each; of one-hot labels the argmax, "
            "labels.argmax(-1)"
        )
    codes, names = encoded(entries, classes, at)
    return spread(codes, values, real, names), names


def check_shape(values: NDArray[Any], shape: tuple[int, ...]) -> None:
    """One label per sample, or one per position of a sequence."""
    if values.ndim == 0 or len(values) != shape[0]:
        raise InvalidInput(f"labels have shape {values.shape} for {shape[0]} samples: give one label per sample")
    if values.shape[: len(shape)] != shape:
        raise InvalidInput(
            f"labels have shape {values.shape} while features have {shape[1]} positions: give one label per position, {shape}; "
            "for one label per sample, flatten its features: x.reshape(len(x), -1)"
        )
    if values.ndim > len(shape) + 1 or values.size == 0:
        raise InvalidInput(f"labels have shape {values.shape}: give {shape}, or one more axis for several outputs")


def resolved(entries: NDArray[Any], at: Where) -> NDArray[Any]:
    """Numbers, none of them missing, or strings."""
    each = 1 if entries.ndim == 1 else entries.shape[1]
    if entries.dtype.kind == "O":
        entries = plain(entries, lambda entry: at(entry // each))
    if entries.dtype.kind == "f" and not np.isfinite(entries).all():
        bad = np.flatnonzero(~np.isfinite(entries))
        raise MissingValues(
            f"labels hold {plural(bad.size, 'NaN or infinite number')}, the first at {at(int(bad[0]) // each)}: drop those "
            "samples or label them first"
        )
    return entries


def plain(entries: NDArray[Any], at: Where) -> NDArray[Any]:
    """Python objects of one kind as an array of that kind."""
    listed = entries.ravel().tolist()
    for kind, numpy_kind in (((str,), None), ((Integral, np.bool_), "biu"), ((Real, np.bool_), "f")):
        if all(isinstance(value, kind) for value in listed):
            array = np.array(listed, dtype=object if numpy_kind is None else None)
            if numpy_kind is None or array.dtype.kind in numpy_kind:
                return array.reshape(entries.shape)
    for entry, value in enumerate(listed):
        if value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and np.isnan(value)):
            raise MissingValues(f"the label at {at(entry)} is {value!r}: drop that sample or label it first")
        if not isinstance(value, str | Real | np.bool_) or isinstance(value, str) != isinstance(listed[0], str):
            raise InvalidInput(
                f"the label at {at(entry)} is {value!r}, of type {type(value).__name__}, while the first is {listed[0]!r}: "
                "labels are all numbers or all strings"
            )
    raise InvalidInput("labels hold whole numbers that do not fit 64 bits: give smaller ones, or strings")


def encoded(entries: NDArray[Any], classes: Any, at: Where) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
    """Class codes 0, 1, ... and the classes' names in that order."""
    if entries.dtype.kind == "f":
        broken = np.flatnonzero((entries != np.floor(entries)) | (np.abs(entries) > EXACT))
        if broken.size:
            raise UnknownClass(
                f"the label at {at(int(broken[0]))} is {float(entries[broken[0]])!r}, no whole number: a class is a whole "
                "number or a string; for numbers to predict use task='regression'"
            )
        entries = entries.astype(np.int64)
    found, inverse = np.unique(entries, return_inverse=True)
    labels = found.tolist()
    names = tuple(labels) if classes is None else class_names(classes)
    code = {name: position for position, name in enumerate(names)}
    codes = np.array([code.get(label, -1) for label in labels], dtype=np.int64)[inverse]
    if np.any(codes < 0):
        entry = int(np.argmax(codes < 0))
        shown = ", ".join(repr(name) for name in names[:5]) + (", ..." if len(names) > 5 else "")
        hint = (
            f"classes={len(names)} takes codes 0 to {len(names) - 1}" if names and isinstance(names[0], str) else "correct it"
        )
        raise UnknownClass(
            f"the label at {at(entry)} is {labels[inverse[entry]]!r}, not among the {len(names)} classes {shown}: "
            f"{hint}, or give other classes"
        )
    return codes, names


def class_names(classes: Any) -> tuple[Any, ...]:
    """The names that a user gave: a number of classes stands for 0, 1, ..."""
    wanted = "give the number of classes, or their names, all strings or all whole numbers, each once"
    if isinstance(classes, Integral) and not isinstance(classes, bool) and 1 <= int(classes) <= MOST:
        return tuple(range(int(classes)))
    if isinstance(classes, str) or not isinstance(classes, Iterable):
        raise InvalidInput(f"classes is {classes!r}: {wanted}")
    names = tuple(name.item() if isinstance(name, np.generic) else name for name in classes)
    if (
        not names
        or len({type(name) for name in names}) > 1
        or not isinstance(names[0], str | int)
        or len(set(names)) < len(names)
    ):
        raise InvalidInput(f"classes is {classes!r}: {wanted}")
    return names


def merged(
    codes: NDArray[np.int64], names: tuple[Any, ...], counted: NDArray[np.int64], most: int
) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
    """Codes and names of the `most` - 1 classes that are commonest among the counted codes, and one behind them for the rest.

    >>> merged(np.array([0, 1, 2, 2, 3]), ("a", "b", "c", "d"), np.array([3, 2, 2]), 3)[0].tolist()
    [2, 2, 0, 0, 1]
    """
    kept = np.sort(np.argsort(-np.bincount(counted, minlength=len(names)), kind="stable")[: most - 1])
    new = np.full(len(names), most - 1)
    new[kept] = np.arange(most - 1)
    rest: str | int = "other"
    if not isinstance(names[0], str):
        rest = max(names) + 1
    while rest in names:
        rest = f"{rest}, other"
    return new[codes], (*(names[code] for code in kept), rest)


def spread(
    entries: NDArray[Any], values: NDArray[Any], real: NDArray[np.bool_] | None, names: tuple[Any, ...] = ()
) -> NDArray[Any]:
    """Entries back in their places. Padding keeps what it held where that is a class or a finite number, and is 0 elsewhere."""
    if real is None:
        return entries.reshape(values.shape)
    filled = np.zeros(values.shape, entries.dtype)
    if names:
        code = {name: position for position, name in enumerate(names)}
        filled[~real] = [code.get(label, 0) for label in values[~real].tolist()]
    elif values.dtype.kind in "biuf":
        filled[~real] = np.nan_to_num(values[~real].astype(np.float64), posinf=0, neginf=0)
    filled[real] = entries
    return filled
