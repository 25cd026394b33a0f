"""Samples at the door: features, masks and client names of any origin, checked once and put in one order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, MissingValues, NotNumbers
from fedasym.core.numbers import flag, floats
from fedasym.core.text import plural
from fedasym.data.federation.splits import are_fractions, assigned, coded
from fedasym.data.federation.targets import checked_labels
from fedasym.exact.clients import labels_of

WHOLE = 2**24  # whole numbers up to here are exact in float32


@dataclass(frozen=True)
class Owners:
    """Whose each row is: names in order of first appearance, and every row's position among them."""

    names: tuple[Any, ...]
    owner: NDArray[np.intp]

    def spot(self, row: int) -> str:
        """Where a row is, in words: its client, its place among all rows and among the client's own."""
        mine = self.owner[row]
        own = int(np.count_nonzero(self.owner[:row] == mine))
        return f"client {self.names[mine]!r}, row {row} (its own row {own})"

    @cached_property
    def order(self) -> NDArray[np.intp] | None:
        """The rows client by client, each client's as they were; None where they stand so already."""
        return None if np.all(np.diff(self.owner) >= 0) else np.argsort(self.owner, kind="stable")


def gathered(
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
    check_shape(rows, len(owners.owner))
    real = checked_mask(mask, rows.shape, owners.spot)
    rows = checked_features(rows, real, owners.spot, names)
    values, called = checked_labels(labels, rows.shape[:-1], real, classes, task, owners.spot)
    fractions = are_fractions(split, len(rows))
    codes = None if fractions else coded(split, len(rows), owners.spot)
    owner, order = owners.owner, owners.order
    if order is not None:
        rows, values, owner = rows[order], values[order], owner[order]
        real = None if real is None else real[order]
        codes = None if codes is None else codes[order]
    if codes is None:
        codes = assigned(owner, identities_of(owners.names), seed, split)
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
    if isinstance(clients, np.ndarray) and clients.dtype.kind in "iuU" and clients.ndim == 1 and clients.size:
        distinct, first, inverse = np.unique(clients, return_index=True, return_inverse=True)
        order = np.argsort(first)  # by first appearance, without a look at every row in Python
        return Owners(tuple(distinct[order].tolist()), np.argsort(order)[inverse])
    listed = labels_of(clients)
    if not listed:
        raise InvalidInput("there are no samples: features, labels and clients are empty; give at least one sample")
    if not {type(name) for name in listed} <= {str, int}:
        listed = [name.item() if isinstance(name, np.generic) else name for name in listed]
    kind = type(listed[0])
    for row, name in enumerate(listed):
        if type(name) is not kind or kind not in (str, int):
            beside = "" if kind not in (str, int) else f" while row 0 has {listed[0]!r}"
            raise InvalidInput(
                f"the client of row {row} is {name!r}, of type {type(name).__name__}{beside}: names are all strings or all "
                "whole numbers; convert them, for instance with str"
            )
    position: dict[Any, int] = {}
    owner = np.fromiter((position.setdefault(name, len(position)) for name in listed), np.intp, len(listed))
    return Owners(tuple(position), owner)


def identities_of(names: Sequence[Any]) -> NDArray[np.uint64]:
    """64 bits per client that depend on its name and the name's type alone: 1 and "1" differ, 1 and numpy's 1 do not."""
    try:
        texts = [f"{type(name).__name__}:{name}".encode() for name in names]
    except UnicodeEncodeError as reason:
        raise InvalidInput(f"the client name {reason.object!r} is no valid text: rename that client") from None
    digests = b"".join(hashlib.blake2b(text).digest()[:8] for text in texts)
    identities = np.frombuffer(digests, "<u8").astype(np.uint64)
    if np.unique(identities).size < len(names):
        raise InvalidInput("two client names have the same 64-bit hash: rename a client")
    return identities


def read_features(features: Any) -> NDArray[Any]:
    """Any array-like of numbers as floating point: 16, 32 and 64 bits as given, whole numbers as float32."""
    try:
        rows = np.asarray(features)
        if rows.dtype.kind == "O":  # numbers that came as Python objects
            rows = rows.astype(np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError) as reason:
        raise NotNumbers(f"features cannot be read as an array of numbers: {reason}") from None
    if rows.dtype.name == "bfloat16":
        return rows.astype(np.float32)
    if rows.dtype.kind not in "fiub":
        raise NotNumbers(f"features hold {rows.dtype.name}: give numbers; encode text and categories first")
    if rows.dtype.kind == "f":
        return rows.astype(f"f{min(rows.dtype.itemsize, 8)}", copy=False)  # in this machine's byte order
    if rows.dtype.itemsize > 2 and rows.size and (rows.max() > WHOLE or rows.min() < -WHOLE):
        big = rows.max() if rows.max() > WHOLE else rows.min()
        raise InvalidInput(f"features hold the whole number {big}, which float32 cannot: scale them, or give float64")
    return rows.astype(np.float32)


def check_shape(rows: NDArray[Any], names: int) -> None:
    """Samples by features, or samples by positions by features, as many as there are client names."""
    if rows.ndim not in (2, 3):
        hint = "give features.reshape(-1, 1) for one feature" if rows.ndim < 2 else "flatten each sample: x.reshape(len(x), -1)"
        raise InvalidInput(
            f"features have shape {rows.shape}: it must be (samples, features), or (samples, positions, features) for "
            f"sequences; {hint}"
        )
    if rows.size == 0:
        raise InvalidInput(f"features have shape {rows.shape}: give at least one sample, one position and one feature")
    if len(rows) != names:
        raise InvalidInput(f"features have {len(rows)} rows and clients {names} names: give one name per row")


def checked_mask(mask: Any, shape: tuple[int, ...], spot: Callable[[int], str]) -> NDArray[np.bool_] | None:
    """True for real positions, at least one per sample; None where nothing is padding."""
    if mask is None:
        return None
    try:
        given = np.asarray(mask)
    except ValueError:
        raise InvalidInput("the rows of mask differ in length: give one value per sample and position") from None
    if len(shape) == 2:
        raise InvalidInput(f"mask has shape {given.shape} while features have {shape}: it is for sequences; leave it out")
    if given.shape != shape[:2]:
        raise InvalidInput(f"mask has shape {given.shape}: it must be {shape[:2]}, (samples, positions) as in features")
    if given.dtype.kind not in "biuf" or not np.isin(given, (0, 1)).all():
        raise InvalidInput(f"mask holds {given.dtype.name}: give True for real positions and False for padding")
    real = np.array(given, dtype=bool)
    if not real.any(1).all():
        row = int(np.argmin(real.any(1)))
        raise InvalidInput(f"{spot(row)}: mask leaves no real position; drop that sample")
    return None if real.all() else real


def checked_features(
    rows: NDArray[Any], real: NDArray[np.bool_] | None, spot: Callable[[int], str], names: Sequence[str] | None = None
) -> NDArray[np.floating[Any]]:
    """Finite features; what is not finite in padding becomes zero, since a weight of zero would not silence it."""
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
    raise MissingValues(f"features hold {bad}, the first at {spot(row)}{position}, {column}: drop or fill those samples first")


def checked_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a federation as read-only arrays that fit together; costs no look at every feature."""
    features, names = np.asarray(fields["features"]), owners_of(fields["clients"]).names
    n, classes = features.shape[:1], fields["classes"]
    arrays = {
        "features": features,
        "labels": np.asarray(fields["labels"], np.float64 if classes is None else np.int64),
        "owner": np.asarray(fields["owner"], np.intp),
        "split": np.asarray(fields["split"], np.int8),
    }
    owner, split, labels = arrays["owner"], arrays["split"], arrays["labels"]
    steps = np.diff(owner, prepend=-1)
    shape = features.shape[:-1] if classes is not None else (*features.shape[:-1], *labels.shape[-1:])
    wrong = {
        "features": features.dtype.kind != "f" or features.ndim not in (2, 3) or features.size == 0,
        "labels": labels.shape != shape or (classes is not None and not np.all((labels >= 0) & (labels < len(classes)))),
        "owner": owner.shape != n or owner.size == 0 or not np.isin(steps, (0, 1)).all() or owner[-1] != len(names) - 1,
        "split": split.shape != n or not np.isin(split, (0, 1, 2)).all(),
    }
    if fields["mask"] is not None:
        arrays["mask"] = np.asarray(fields["mask"], bool)
        wrong["mask"] = features.ndim != 3 or arrays["mask"].shape != features.shape[:2]
    for name, bad in wrong.items():
        if bad:
            raise InvalidInput(
                f"{name} of shape {arrays[name].shape} does not fit a federation: make it with Federation.from_arrays"
            )
    if not np.any(split == 0):
        raise InvalidInput("split leaves no training sample at all: give at least one client one")
    identities_of(names)
    held: dict[str, Any] = {name: read_only(array) for name, array in arrays.items()}
    held |= described_features(fields, features.shape[-1])
    held |= {"clients": names, "classes": None if classes is None else tuple(classes)}
    truth = {str(name): np.asarray(array) for name, array in (fields.get("truth") or {}).items()}
    for name, array in truth.items():
        if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
            raise InvalidInput(f"truth[{name!r}] holds {array.dtype.name}: give numbers of at most 64 bits")
    return held | {"truth": {name: read_only(array) for name, array in truth.items()} or None}


def described_features(fields: Mapping[str, Any], dimension: int) -> dict[str, Any]:
    """Names, personal features and intercept: what is said of the features beside their numbers."""
    names, personal = fields.get("names"), fields.get("personal")
    if names is not None:
        names = tuple(str(name) for name in names)
        if len(names) != dimension or len(set(names)) < dimension:
            raise InvalidInput(
                f"names has {len(names)} entries, {len(set(names))} of them different, for {dimension} features: "
                "give each feature a name of its own"
            )
    if personal is not None:
        given = floats(personal)
        if given is None:
            raise InvalidInput(f"personal is {str(personal)[:60]}: give True or False for each of the {dimension} features")
        if given.shape != (dimension,) or not np.isin(given, (0, 1)).all():
            raise InvalidInput(f"personal has shape {given.shape}: give True or False for each of the {dimension} features")
        personal = None if given.all() else read_only(given.astype(bool))
    recipe = fields.get("recipe")
    if recipe is not None and len(recipe.names) != dimension:
        raise InvalidInput(
            f"recipe makes {len(recipe.names)} features and there are {dimension}: give recipe=None with features of your own"
        )
    held = {"names": names, "personal": personal, "recipe": recipe}
    return held | {"intercept": flag("intercept", fields.get("intercept", True))}


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written to; the array itself stays as it is."""
    view = array.view()
    view.setflags(write=False)
    return view
