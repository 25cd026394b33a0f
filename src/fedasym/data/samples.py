"""Samples at the door: features, labels, masks and client names, checked once, in one order.

Class names become codes, numbers become outputs, and what is missing is named.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, MissingValues, NotNumbers, UnknownClass, one_of
from fedasym.core.numbers import flag, floats, plural
from fedasym.data.splits import are_fractions, assign_splits, read_codes
from fedasym.exact.clients import labels_of

TASKS = ("classification", "regression")
MOST_CLASSES = 10**7  # classes that a number alone may stand for
EXACT = 2.0**53  # whole floating-point numbers below this are exact

Where = Callable[[int], str]  # says in words where an entry is


def read_label_array(labels: Any) -> NDArray[Any]:
    """Any array-like as an array of numbers, strings, or Python objects to look at singly."""
    try:
        values = np.asarray(labels)
        if values.dtype.kind == "T" or (values.dtype.kind in "US" and not hasattr(labels, "dtype")):
            # else numpy turns 1 and NaN beside strings into strings
            values = np.asarray(labels, dtype=object)
    except (TypeError, ValueError, RuntimeError) as reason:
        raise InvalidInput(f"labels cannot be read as an array: {reason}") from None
    if values.dtype.name == "bfloat16":
        values = values.astype(np.float32)
    if values.dtype.kind not in "biufUO":
        hint = (
            "decode them, labels.astype(str)"
            if values.dtype.kind == "S"
            else "give numbers or strings"
        )
        raise InvalidInput(f"labels hold {values.dtype.name}: {hint}")
    return values


def is_text_array(values: NDArray[Any]) -> bool:
    """Whether labels are names rather than numbers; objects are taken for names."""
    return values.dtype.kind in "UO"


def check_label_values(
    labels: Any,
    shape: tuple[int, ...],
    real: NDArray[np.bool_] | None,
    classes: Any,
    task: str | None,
    spot: Where,
) -> tuple[NDArray[Any], tuple[Any, ...] | None]:
    """Codes and class names, or outputs and None, for samples (and positions) of that shape."""
    if task is not None:
        one_of("task", task, TASKS)
    if task == "regression" and classes is not None:
        raise InvalidInput(
            f"task is 'regression' and classes is {classes!r}: leave one of them out"
        )
    values = read_label_array(labels)
    if values.ndim == len(shape) + 1 and values.shape[-1] == 1:
        values = values[..., 0]  # a column
    check_label_shape(values, shape)

    def at(entry: int) -> str:
        if len(shape) == 1:
            return spot(entry)
        row, position = (
            divmod(entry, shape[1])
            if real is None
            else (int(each[entry]) for each in np.nonzero(real))
        )
        return f"{spot(row)}, position {position}"

    entries = values[real] if real is not None else values.reshape(-1, *values.shape[len(shape) :])
    entries = resolve_entries(entries, at)
    if (
        task
        or ("regression" if entries.dtype.kind == "f" and classes is None else "classification")
    ) == "regression":
        if is_text_array(entries):
            raise NotNumbers(
                f"task is 'regression' while the label at {at(0)} is {entries.flat[0]!r}: give"
                " numbers"
            )
        outputs = entries.shape[1] if entries.ndim > 1 else 1
        return (
            spread_entries(entries.astype(np.float64), values, real).reshape(*shape, outputs),
            None,
        )
    if entries.ndim > 1:
        raise InvalidInput(
            f"labels have shape {values.shape} while samples have {shape}: give one class each; of"
            " one-hot labels the argmax, labels.argmax(-1)"
        )
    codes, names = encode_classes(entries, classes, at)
    return spread_entries(codes, values, real, names), names


def check_label_shape(values: NDArray[Any], shape: tuple[int, ...]) -> None:
    """One label per sample, or one per position of a sequence."""
    if values.ndim == 0 or len(values) != shape[0]:
        raise InvalidInput(
            f"labels have shape {values.shape} for {shape[0]} samples: give one label per sample"
        )
    if values.shape[: len(shape)] != shape:
        raise InvalidInput(
            f"labels have shape {values.shape} while features have {shape[1]} positions: give one"
            f" label per position, {shape}; for one label per sample, flatten its features:"
            " x.reshape(len(x), -1)"
        )
    if values.ndim > len(shape) + 1 or values.size == 0:
        raise InvalidInput(
            f"labels have shape {values.shape}: give {shape}, or one more axis for several outputs"
        )


def resolve_entries(entries: NDArray[Any], at: Where) -> NDArray[Any]:
    """Numbers, none of them missing, or strings."""
    each = 1 if entries.ndim == 1 else entries.shape[1]
    if entries.dtype.kind == "O":
        entries = plain_entries(entries, lambda entry: at(entry // each))
    if entries.dtype.kind == "f" and not np.isfinite(entries).all():
        bad = np.flatnonzero(~np.isfinite(entries))
        raise MissingValues(
            f"labels hold {plural(bad.size, 'NaN or infinite number')}, the first at"
            f" {at(int(bad[0]) // each)}: drop those samples or label them first"
        )
    return entries


def plain_entries(entries: NDArray[Any], at: Where) -> NDArray[Any]:
    """Python objects of one kind as an array of that kind."""
    listed = entries.ravel().tolist()
    for kind, numpy_kind in (
        ((str,), None),
        ((Integral, np.bool_), "biu"),
        ((Real, np.bool_), "f"),
    ):
        if all(isinstance(value, kind) for value in listed):
            array = np.array(listed, dtype=object if numpy_kind is None else None)
            if numpy_kind is None or array.dtype.kind in numpy_kind:
                return array.reshape(entries.shape)
    for entry, value in enumerate(listed):
        if (
            value is None
            or type(value).__name__ in ("NAType", "NaTType")
            or (isinstance(value, float) and np.isnan(value))
        ):
            raise MissingValues(
                f"the label at {at(entry)} is {value!r}: drop that sample or label it first"
            )
        if not isinstance(value, str | Real | np.bool_) or isinstance(value, str) != isinstance(
            listed[0], str
        ):
            raise InvalidInput(
                f"the label at {at(entry)} is {value!r}, of type {type(value).__name__}, while the"
                f" first is {listed[0]!r}: labels are all numbers or all strings"
            )
    raise InvalidInput(
        "labels hold whole numbers that do not fit 64 bits: give smaller ones, or strings"
    )


def encode_classes(
    entries: NDArray[Any], classes: Any, at: Where
) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
    """Class codes 0, 1, ... and the classes' names in that order."""
    if entries.dtype.kind == "f":
        broken = np.flatnonzero((entries != np.floor(entries)) | (np.abs(entries) > EXACT))
        if broken.size:
            raise UnknownClass(
                f"the label at {at(int(broken[0]))} is {float(entries[broken[0]])!r}, no whole"
                " number: a class is a whole number or a string; for numbers to predict use"
                " task='regression'"
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
            f"classes={len(names)} takes codes 0 to {len(names) - 1}"
            if names and isinstance(names[0], str)
            else "correct it"
        )
        raise UnknownClass(
            f"the label at {at(entry)} is {labels[inverse[entry]]!r}, not among the {len(names)}"
            f" classes {shown}: {hint}, or give other classes"
        )
    return codes, names


def class_names(classes: Any) -> tuple[Any, ...]:
    """The names that a user gave: a number of classes stands for 0, 1, ..."""
    wanted = (
        "give the number of classes, or their names, all strings or all whole numbers, each once"
    )
    if (
        isinstance(classes, Integral)
        and not isinstance(classes, bool)
        and 1 <= int(classes) <= MOST_CLASSES
    ):
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


def merge_rare_classes(
    codes: NDArray[np.int64], names: tuple[Any, ...], counted: NDArray[np.int64], most: int
) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
    """Codes and names of the `most` - 1 commonest classes by the counted codes, then the rest.

    >>> merge_rare_classes(np.array([0, 1, 2, 2, 3]), ("a", "b", "c", "d"), np.array([3, 2, 2]), 3)[
    ...     0
    ... ].tolist()
    [2, 2, 0, 0, 1]
    """
    kept = np.sort(
        np.argsort(-np.bincount(counted, minlength=len(names)), kind="stable")[: most - 1]
    )
    new = np.full(len(names), most - 1)
    new[kept] = np.arange(most - 1)
    rest: str | int = "other"
    if not isinstance(names[0], str):
        rest = max(names) + 1
    while rest in names:
        rest = f"{rest}, other"
    return new[codes], (*(names[code] for code in kept), rest)


def spread_entries(
    entries: NDArray[Any],
    values: NDArray[Any],
    real: NDArray[np.bool_] | None,
    names: tuple[Any, ...] = (),
) -> NDArray[Any]:
    """Entries back in place; padding keeps a class or finite number that it held, or becomes 0."""
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


WHOLE = 2**24  # whole numbers up to here are exact in float32


@dataclass(frozen=True)
class Owners:
    """Each row's owner: names in order of first appearance, and rows' positions among them."""

    names: tuple[Any, ...]
    owner: NDArray[np.intp]

    def spot(self, row: int) -> str:
        """Where a row is, in words: its client, its place among all rows and among the client's."""
        mine = self.owner[row]
        own = int(np.count_nonzero(self.owner[:row] == mine))
        return f"client {self.names[mine]!r}, row {row} (its own row {own})"

    @cached_property
    def order(self) -> NDArray[np.intp] | None:
        """The rows client by client, in each one's order; None where they stand so already."""
        return None if np.all(np.diff(self.owner) >= 0) else np.argsort(self.owner, kind="stable")


def gather_fields(
    features: Any,
    labels: Any,
    clients: Any,
    split: Any,
    seed: int,
    mask: Any,
    classes: Any,
    task: str | None,
    names: Any = None,
) -> dict[str, Any]:
    """The fields of a federation from arrays in any order of rows."""
    owners = owners_of(clients)
    rows = read_features(features)
    check_sample_shape(rows, len(owners.owner))
    real = check_mask(mask, rows.shape, owners.spot)
    rows = check_features(rows, real, owners.spot, names)
    values, called = check_label_values(labels, rows.shape[:-1], real, classes, task, owners.spot)
    fractions = are_fractions(split, len(rows))
    codes = None if fractions else read_codes(split, len(rows), owners.spot)
    owner, order = owners.owner, owners.order
    if order is not None:
        rows = rows[order]
        values = values[order]
        owner = owner[order]
        real = None if real is None else real[order]
        codes = None if codes is None else codes[order]
    if codes is None:
        codes = assign_splits(owner, identities_of(owners.names), seed, split)
    return {
        "features": np.ascontiguousarray(rows),
        "labels": values,
        "clients": owners.names,
        "owner": owner,
        "split": codes,
        "mask": real,
        "classes": called,
    }


def owners_of(clients: Any) -> Owners:
    """Names as plain strings or whole numbers, each row's position among them."""
    if (
        isinstance(clients, np.ndarray)
        and clients.dtype.kind in "iuU"
        and clients.ndim == 1
        and clients.size
    ):
        distinct, first, inverse = np.unique(clients, return_index=True, return_inverse=True)
        order = np.argsort(first)  # by first appearance, without a look at every row in Python
        return Owners(tuple(distinct[order].tolist()), np.argsort(order)[inverse])
    listed = labels_of(clients)
    if not listed:
        raise InvalidInput(
            "there are no samples: features, labels and clients are empty; give at least one sample"
        )
    if not {type(name) for name in listed} <= {str, int}:
        listed = [name.item() if isinstance(name, np.generic) else name for name in listed]
    kind = type(listed[0])
    for row, name in enumerate(listed):
        if type(name) is not kind or kind not in (str, int):
            beside = "" if kind not in (str, int) else f" while row 0 has {listed[0]!r}"
            raise InvalidInput(
                f"the client of row {row} is {name!r}, of type {type(name).__name__}{beside}: names"
                " are all strings or all whole numbers; convert them, for instance with str"
            )
    position: dict[Any, int] = {}
    owner = np.fromiter(
        (position.setdefault(name, len(position)) for name in listed), np.intp, len(listed)
    )
    return Owners(tuple(position), owner)


def identities_of(names: Sequence[Any]) -> NDArray[np.uint64]:
    """64 bits by a client's name and its type: 1 and "1" differ, 1 and numpy's 1 do not."""
    try:
        texts = [f"{type(name).__name__}:{name}".encode() for name in names]
    except UnicodeEncodeError as reason:
        raise InvalidInput(
            f"the client name {reason.object!r} is not valid text: rename that client"
        ) from None
    digests = b"".join(hashlib.blake2b(text).digest()[:8] for text in texts)
    identities = np.frombuffer(digests, "<u8").astype(np.uint64)
    if np.unique(identities).size < len(names):
        raise InvalidInput("two client names have the same 64-bit hash: rename a client")
    return identities


def read_features(features: Any) -> NDArray[Any]:
    """Numbers as floating point: 16, 32 and 64 bits as given, whole numbers as float32."""
    try:
        rows = np.asarray(features)
        if rows.dtype.kind == "O":  # numbers that came as Python objects
            rows = rows.astype(np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError) as reason:
        raise NotNumbers(f"features cannot be read as an array of numbers: {reason}") from None
    if rows.dtype.name == "bfloat16":
        return rows.astype(np.float32)
    if rows.dtype.kind not in "fiub":
        raise NotNumbers(
            f"features hold {rows.dtype.name}: give numbers; encode text and categories first"
        )
    if rows.dtype.kind == "f":
        # in this machine's byte order
        return rows.astype(f"f{min(rows.dtype.itemsize, 8)}", copy=False)
    if rows.dtype.itemsize > 2 and rows.size and (rows.max() > WHOLE or rows.min() < -WHOLE):
        big = rows.max() if rows.max() > WHOLE else rows.min()
        raise InvalidInput(
            f"features hold the whole number {big}, which float32 cannot: scale them, or give"
            " float64"
        )
    return rows.astype(np.float32)


def check_sample_shape(rows: NDArray[Any], names: int) -> None:
    """Samples by features, or by positions by features, as many as there are client names."""
    if rows.ndim not in (2, 3):
        hint = (
            "give features.reshape(-1, 1) for one feature"
            if rows.ndim < 2
            else "flatten each sample: x.reshape(len(x), -1)"
        )
        raise InvalidInput(
            f"features have shape {rows.shape}: it must be (samples, features), or (samples,"
            f" positions, features) for sequences; {hint}"
        )
    if rows.size == 0:
        raise InvalidInput(
            f"features have shape {rows.shape}: give at least one sample, one position and one"
            " feature"
        )
    if len(rows) != names:
        raise InvalidInput(
            f"features have {len(rows)} rows and clients {names} names: give one name per row"
        )


def check_mask(
    mask: Any, shape: tuple[int, ...], spot: Callable[[int], str]
) -> NDArray[np.bool_] | None:
    """True for real positions, at least one per sample; None where nothing is padding."""
    if mask is None:
        return None
    try:
        given = np.asarray(mask)
    except ValueError:
        raise InvalidInput(
            "the rows of mask differ in length: give one value per sample and position"
        ) from None
    if len(shape) == 2:
        raise InvalidInput(
            f"mask has shape {given.shape} while features have {shape}: it is for sequences; leave"
            " it out"
        )
    if given.shape != shape[:2]:
        raise InvalidInput(
            f"mask has shape {given.shape}: it must be {shape[:2]}, (samples, positions) as in"
            " features"
        )
    if given.dtype.kind not in "biuf" or not np.isin(given, (0, 1)).all():
        raise InvalidInput(
            f"mask holds {given.dtype.name}: give True for real positions and False for padding"
        )
    real = np.array(given, dtype=bool)
    if not real.any(1).all():
        row = int(np.argmin(real.any(1)))
        raise InvalidInput(f"{spot(row)}: mask leaves no real position; drop that sample")
    return None if real.all() else real


def check_features(
    rows: NDArray[Any],
    real: NDArray[np.bool_] | None,
    spot: Callable[[int], str],
    names: Sequence[str] | None = None,
) -> NDArray[np.floating[Any]]:
    """Finite features; in padding the others become zero, as no weight would silence them."""
    good = np.isfinite(rows)
    if good.all():
        return rows
    if real is not None:
        rows = np.where(good | real[..., None], rows, rows.dtype.type(0))
        good |= ~real[..., None]
        if good.all():
            return rows
    row, *where = (int(each) for each in np.argwhere(~good)[0])
    position = f", position {where[0]}" if len(where) > 1 else ""
    bad = plural(good.size - int(np.count_nonzero(good)), "NaN or infinite number")
    named = names is not None and len(names) == rows.shape[-1]
    column = repr(names[where[-1]]) if named and names else f"column {where[-1]}"
    raise MissingValues(
        f"features hold {bad}, the first at {spot(row)}{position}, {column}: drop or fill those"
        " samples first"
    )


def check_federation_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A federation's fields as read-only arrays that fit together, without reading features."""
    features = np.asarray(fields["features"])
    names = owners_of(fields["clients"]).names
    n = features.shape[:1]
    classes = fields["classes"]
    arrays = {
        "features": features,
        "labels": np.asarray(fields["labels"], np.float64 if classes is None else np.int64),
        "owner": np.asarray(fields["owner"], np.intp),
        "split": np.asarray(fields["split"], np.int8),
    }
    owner, split, labels = arrays["owner"], arrays["split"], arrays["labels"]
    steps = np.diff(owner, prepend=-1)
    shape = (
        features.shape[:-1] if classes is not None else (*features.shape[:-1], *labels.shape[-1:])
    )
    wrong = {
        "features": features.dtype.kind != "f" or features.ndim not in (2, 3) or features.size == 0,
        "labels": (
            labels.shape != shape
            or (classes is not None and not np.all((labels >= 0) & (labels < len(classes))))
        ),
        "owner": (
            owner.shape != n
            or owner.size == 0
            or not np.isin(steps, (0, 1)).all()
            or owner[-1] != len(names) - 1
        ),
        "split": split.shape != n or not np.isin(split, (0, 1, 2)).all(),
    }
    if fields["mask"] is not None:
        arrays["mask"] = np.asarray(fields["mask"], bool)
        wrong["mask"] = features.ndim != 3 or arrays["mask"].shape != features.shape[:2]
    for name, bad in wrong.items():
        if bad:
            raise InvalidInput(
                f"{name} of shape {arrays[name].shape} does not fit a federation: make it with"
                " Federation.from_arrays"
            )
    if not np.any(split == 0):
        raise InvalidInput("split leaves no training sample at all: give at least one client one")
    identities_of(names)
    held: dict[str, Any] = {name: read_only(array) for name, array in arrays.items()}
    held |= check_feature_notes(fields, features.shape[-1])
    held |= {"clients": names, "classes": None if classes is None else tuple(classes)}
    truth = {str(name): np.asarray(array) for name, array in (fields.get("truth") or {}).items()}
    for name, array in truth.items():
        if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
            raise InvalidInput(
                f"truth[{name!r}] holds {array.dtype.name}: give numbers of at most 64 bits"
            )
    return held | {"truth": {name: read_only(array) for name, array in truth.items()} or None}


def check_feature_notes(fields: Mapping[str, Any], dimension: int) -> dict[str, Any]:
    """Names, personal features and intercept: what is said of the features beside their numbers."""
    names, personal = fields.get("names"), fields.get("personal")
    if names is not None:
        names = tuple(str(name) for name in names)
        if len(names) != dimension or len(set(names)) < dimension:
            raise InvalidInput(
                f"names has {len(names)} entries, {len(set(names))} of them different, for"
                f" {dimension} features: give each feature a name of its own"
            )
    if personal is not None:
        given = floats(personal)
        if given is None:
            raise InvalidInput(
                f"personal is {str(personal)[:60]}: give True or False for each of the {dimension}"
                " features"
            )
        if given.shape != (dimension,) or not np.isin(given, (0, 1)).all():
            raise InvalidInput(
                f"personal has shape {given.shape}: give True or False for each of the {dimension}"
                " features"
            )
        personal = None if given.all() else read_only(given.astype(bool))
    recipe = fields.get("recipe")
    if recipe is not None and len(recipe.names) != dimension:
        raise InvalidInput(
            f"recipe makes {len(recipe.names)} features and there are {dimension}: give recipe=None"
            " with features of your own"
        )
    held = {"names": names, "personal": personal, "recipe": recipe}
    return held | {"intercept": flag("intercept", fields.get("intercept", True))}


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written to; the array itself stays as it is."""
    view = array.view()
    view.setflags(write=False)
    return view
