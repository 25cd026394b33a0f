"""What loaders and readers share: files, optional libraries, splits, a federation from parts."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, MissingPackage, NotNumbers
from fedasym.core.numbers import check_seed
from fedasym.data.federation import Federation
from fedasym.data.samples import identities_of, is_text_array, read_label_array
from fedasym.data.splits import (
    FRACTIONS,
    TEST,
    TRAIN,
    VALIDATION,
    Fractions,
    are_fractions,
    assign_splits,
    deal_samples,
)

Counts = NDArray[np.intp]


def import_library(name: str, package: str) -> Any:
    """An optional library, imported where it is needed; the error says how to install it."""
    try:
        return import_module(name)
    except ImportError:
        raise MissingPackage(
            f"reading this data set needs {package}: pip install 'fedasym[data]'"
        ) from None


def locate_file(folder: str | Path, name: str, source: str) -> Path:
    """The file of that name in the folder; `source` says where it comes from."""
    if not Path(folder).is_dir():
        raise InvalidInput(
            f"folder is {str(folder)!r}, which is not a folder: give the one that holds {name},"
            f" from {source}"
        )
    path = Path(folder) / name
    if not path.is_file():
        raise InvalidInput(
            f"folder is {str(folder)!r}, which has no file {name}: put it there, from {source}"
        )
    return path


def split_by_fractions(
    names: Sequence[Any], counts: Counts, seed: int, fractions: Fractions = FRACTIONS
) -> NDArray[np.int8]:
    """The split of rows that stand client by client: dealt out within each client."""
    return assign_splits(
        np.repeat(np.arange(len(names)), counts), identities_of(names), seed, fractions
    )


def split_by_files(
    names: Sequence[Any], trained: Counts, tested: Counts, seed: int
) -> NDArray[np.int8]:
    """The split of rows that stand client by client, those of its training file before those of its
    test file.

    As in the paper's experiments the test file is the test set; the training file is shuffled, its
    first int(n 0.8/0.9) samples train and the rest validate.

    >>> split_by_files(["ann"], np.array([3]), np.array([2]), seed=0)[3:].tolist()
    [2, 2]
    """
    validation = trained - (trained * 0.8 / 0.9).astype(np.intp)
    owner = np.repeat(np.arange(len(names)), trained + tested)
    kept = np.repeat(np.tile([False, True], len(names)), np.column_stack([trained, tested]).ravel())
    return deal_samples(
        owner, identities_of(names), check_seed(seed), validation, np.zeros_like(tested), kept
    )


def assemble_federation(
    features: NDArray[np.floating[Any]],
    labels: NDArray[Any],
    names: Sequence[Any],
    counts: Counts,
    split: NDArray[np.int8],
    classes: Sequence[Any],
    mask: NDArray[np.bool_] | None = None,
) -> Federation:
    """A federation from checked rows in client order, without a copy; labels code `classes`."""
    owner = np.repeat(np.arange(len(names)), counts)
    padded = mask is not None and not mask.all()
    return Federation(
        features, labels, tuple(names), owner, split, mask if padded else None, tuple(classes)
    )


class SampleFile(NamedTuple):
    """A file, the kind of its samples (a split's code, or None), and its client if it has one."""

    file: Path
    kind: int | None = None
    client: str = ""


class FieldNames(NamedTuple):
    """The names a user gives: label, client and features (None: the reader finds them)."""

    label: Any = "label"
    client: Any = "client"
    features: Any = None

    def of_client_files(self) -> tuple[str, str | None]:
        """The fields of labels and features, for formats that name clients themselves."""
        if self.client != "client":
            raise InvalidInput(
                f"client is {self.client!r}: this format names its clients itself; leave it out"
            )
        for name, value in (("label", self.label), ("features", self.features)):
            if not isinstance(value, str) and (name, value) != ("features", None):
                raise InvalidInput(f"{name} is {value!r}: give the name of one field of the file")
        return self.label, self.features


class ClientPart(NamedTuple):
    """One client's samples of one kind (a split's code, or None), and the file they come from."""

    file: Path
    client: str
    features: NDArray[Any]
    labels: NDArray[Any]
    kind: int | None = None


def flatten_features(features: NDArray[Any], labels: NDArray[Any]) -> NDArray[Any]:
    """Features of samples with one label each as rows of numbers: images lose their shape; others
    stay as they are.

    >>> (
    ...     flatten_features(np.zeros((5, 28, 28)), np.zeros(5)).shape,
    ...     flatten_features(np.zeros(5), np.zeros(5)).shape,
    ... )
    ((5, 784), (5, 1))
    """
    single = labels.ndim == 1 or (labels.ndim == 2 and labels.shape[1] == 1)
    return (
        features.reshape(len(features), -1)
        if len(features) and (single or features.ndim == 1)
        else features
    )


def number_array(values: Any, where: str) -> NDArray[Any]:
    """An array of numbers, or an error that says where it is."""
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        what = "text or something missing" if array.dtype.kind in "USO" else str(array.dtype)
        raise NotNumbers(
            f"{where} holds {what}: features are numbers; encode them first and use"
            " Federation.from_clients"
        )
    return array


def text_array(values: NDArray[Any], where: str) -> NDArray[Any]:
    """Labels or names: byte strings are decoded, other arrays stay as they are."""
    if values.dtype.kind == "U" and not are_characters(values):
        raise InvalidInput(f"{where} holds text that is not valid Unicode: save it as UTF-8")
    if values.dtype.kind not in "SO":
        return values
    try:
        plain = [
            value.decode() if isinstance(value, bytes) else value
            for value in values.ravel().tolist()
        ]
    except UnicodeDecodeError:
        raise InvalidInput(
            f"{where} holds bytes that are not UTF-8: write text or whole numbers"
        ) from None
    decoded = np.empty(len(plain), object)
    decoded[:] = plain
    return decoded.reshape(values.shape)


def are_characters(values: NDArray[Any]) -> bool:
    """Whether all of an array's text is Unicode: a damaged file holds numbers there that Python
    cannot even look at.

    >>> (
    ...     are_characters(np.array(["ann", "é"])),
    ...     are_characters(np.array([0x110000], np.uint32).view("U1")),
    ... )
    (True, False)
    """
    codes = (
        np.ascontiguousarray(values)
        .reshape(-1)
        .view(np.uint32 if values.dtype.isnative else np.dtype(">u4"))
    )
    return bool(np.all((codes < 0xD800) | ((codes > 0xDFFF) & (codes <= 0x10FFFF))))


def split_by_kinds(
    owner: NDArray[np.intp], names: Sequence[Any], kinds: NDArray[np.int8], seed: int
) -> Any:
    """A split from the kinds that files state: theirs, with validation samples taken from training
    where none are stated.

    Where all samples are of one kind there is nothing to go by, and each client's are dealt out by
    fractions.

    >>> split_by_kinds(np.array([0, 0, 0]), ["ann"], np.array([0, 2, 0], np.int8), seed=0)[1]
    np.int8(2)
    """
    found = set(np.unique(kinds).tolist())
    if len(found) == 1:
        return FRACTIONS
    if VALIDATION in found:
        return kinds
    order = np.lexsort((kinds, owner))
    trained, tested = (
        np.bincount(owner[kinds == kind], minlength=len(names)) for kind in (TRAIN, TEST)
    )
    codes = np.empty(len(kinds), np.int8)
    codes[order] = split_by_files(names, trained, tested, seed)
    return codes


def check_part(who: str, part: ClientPart, first: ClientPart) -> None:
    """One label per sample, and the same shape and kind as in the first part."""
    if len(part.features) != len(part.labels):
        raise InvalidInput(
            f"{who} has {len(part.features)} samples and {len(part.labels)} labels: give one label"
            " per sample"
        )
    if part.features.shape[1:] != first.features.shape[1:]:
        raise InvalidInput(
            f"{who} has samples of shape {part.features.shape[1:]} while those of client"
            f" {first.client!r} have {first.features.shape[1:]}: give every client the same"
            " features"
        )
    if part.labels.shape[1:] != first.labels.shape[1:] or is_text_array(
        part.labels
    ) != is_text_array(first.labels):
        raise InvalidInput(
            f"{who} has labels of shape {part.labels.shape[1:]} and type {part.labels.dtype} while"
            f" those of client {first.client!r} have {first.labels.shape[1:]} and"
            f" {first.labels.dtype}: give all clients the same kind"
        )


def check_parts(parts: Iterable[ClientPart]) -> Iterator[ClientPart]:
    """The parts that have samples: a client once per kind, one shape, one kind of labels."""
    seen: dict[tuple[int | None, str], Path] = {}
    first = None
    for part in parts:
        who = f"{part.file}: client {part.client!r}"
        if (part.kind, part.client) in seen:
            raise InvalidInput(f"{who} is also in {seen[part.kind, part.client]}: keep one of them")
        seen[part.kind, part.client] = part.file
        if len(part.features) or len(part.labels):
            try:
                labels = read_label_array(part.labels)
            except InvalidInput as reason:
                raise reason.at(who) from None
            usual = part._replace(features=flatten_features(part.features, labels), labels=labels)
            first = first or usual
            check_part(who, usual, first)
            yield usual


def federate_parts(
    parts: Generator[ClientPart, None, None],
    path: Path,
    split: Any,
    seed: int,
    task: str | None,
    classes: Any,
) -> Federation:
    """A federation from parts in any order; parts without samples are left out."""
    if isinstance(split, str):
        raise InvalidInput(
            f"split is {split!r}: this format has no columns; give three fractions such as"
            f" {FRACTIONS}, or none"
        )
    with closing(parts):  # a file is not left open where a part is refused
        held = list(check_parts(parts))
    if not held:
        raise InvalidInput(
            f"{path}: there are no samples: check that this is the right file or folder"
        )
    place = {
        name: position for position, name in enumerate(dict.fromkeys(part.client for part in held))
    }
    # client by client: nothing is moved again
    held.sort(key=lambda part: (place[part.client], part.kind or 0))
    counts = [len(part.labels) for part in held]
    owner = np.repeat([place[part.client] for part in held], counts)
    kinds = np.repeat(np.array([part.kind or 0 for part in held], np.int8), counts)
    labels = np.concatenate([part.labels for part in held])
    features = [part.features for part in held]
    held.clear()
    names = np.array(list(place))
    try:
        if split is None:
            split = split_by_kinds(owner, list(place), kinds, seed)
        elif not are_fractions(split, -1):
            raise InvalidInput(f"split is {split!r}: give three fractions such as {FRACTIONS}")
        else:
            split = tuple(split)  # three fractions, also where there are three samples
        rows = stack_emptying(features)
        return Federation.from_arrays(
            rows, labels, names[owner], split=split, seed=seed, task=task, classes=classes
        )
    except InvalidInput as reason:
        raise reason.at(path) from None


def stack_emptying(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    """Arrays one below the other. The list is emptied on the way, so that the samples are not held
    twice.

    >>> stack_emptying([np.zeros((2, 3), np.float32), np.ones((1, 3), np.float32)]).shape
    (3, 3)
    """
    dtype = np.result_type(*{array.dtype for array in arrays})
    filled = np.empty((sum(map(len, arrays)), *arrays[0].shape[1:]), dtype)
    start = 0
    arrays.reverse()
    while arrays:
        array = arrays.pop()
        filled[start : start + len(array)] = array
        start += len(array)
    return filled
