"""TensorFlow Federated's files by client: HDF5 (`examples/<client>/<field>`) and SQLite.

SQLite holds tf.train.Example messages, which a strict decoder of the few protobuf fields that they
consist of reads without
TensorFlow: Example {features = 1}, Features {map<string, Feature> feature = 1} with entries {key =
1, value = 2}, Feature {one of bytes_list = 1, float_list = 2, int64_list = 3}, each list {repeated
value = 1}, numbers packed or one by one.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, MissingColumn, UnreadableFile
from fedasym.core.numbers import join_names
from fedasym.core.runtime import check_fits
from fedasym.data.archives import ADDRESS
from fedasym.data.assembly import (
    ClientPart,
    Counts,
    FieldNames,
    SampleFile,
    import_library,
    locate_file,
    number_array,
    text_array,
)
from fedasym.data.splits import SPELLED

VARINT, EIGHT, DELIMITED, FOUR = 0, 1, 2, 5  # wire types
LIST_KINDS = {1: "bytes", 2: "floats", 3: "whole numbers"}

Value = list[bytes] | NDArray[Any]


class Malformed(ValueError):
    """Bytes that are no tf.train.Example."""


def decode_example(message: bytes) -> dict[str, Value]:
    r"""The features of an Example by name: byte strings as a list, numbers as float32 or int64.

    >>> decode_example(b"\n\x0e\n\x0c\n\x01y\x12\x07\x1a\x05\n\x03\x01\xac\x02")
    {'y': array([  1, 300])}
    """
    held: dict[str, Value] = {}
    for features in message_bodies(message, "the Example", most=1):
        for entry in message_bodies(features, "its features"):
            name, value = None, None
            for field, wire, body in message_fields(entry):
                if (
                    wire != DELIMITED
                    or field not in (1, 2)
                    or (name if field == 1 else value) is not None
                ):
                    raise Malformed("an entry of its features is not one key and one value")
                name, value = (body, value) if field == 1 else (name, body)
            try:
                key = (name or b"").decode()
            except UnicodeDecodeError:
                raise Malformed(f"the feature name {name!r} is not UTF-8") from None
            if key in held:
                raise Malformed(f"feature {key!r} occurs twice")
            held[key] = decode_feature(value or b"", key)
    return held


def decode_feature(message: bytes, name: str) -> Value:
    """One list of values; a feature without a list is empty."""
    lists = list(message_fields(message))
    if not lists:
        return np.zeros(0, np.float32)
    field, wire, body = lists[0]
    if len(lists) > 1 or wire != DELIMITED or field not in LIST_KINDS:
        raise Malformed(f"feature {name!r} is not one list of {', '.join(LIST_KINDS.values())}")
    entries = list(message_fields(body))
    scalar = {1: DELIMITED, 2: FOUR, 3: VARINT}[field]
    for number, kind, _ in entries:
        if number != 1 or kind not in (scalar, DELIMITED):
            raise Malformed(
                f"feature {name!r}: its list of {LIST_KINDS[field]} holds something else"
            )
    if field == 1:
        return [each for _, _, each in entries]
    if field == 2:
        joined = b"".join(each for _, _, each in entries)
        if any(len(each) % 4 for _, _, each in entries):
            raise Malformed(f"feature {name!r}: its floats are cut short")
        return np.frombuffer(joined, "<f4").astype(np.float32)
    return varints(b"".join(each for _, _, each in entries))


def message_bodies(message: bytes, what: str, most: int | None = None) -> Iterator[bytes]:
    """The messages in field 1, the only field."""
    for number, (field, wire, body) in enumerate(message_fields(message)):
        if field != 1 or wire != DELIMITED or (most is not None and number >= most):
            raise Malformed(f"{what} has an unexpected field {field} of wire type {wire}")
        yield body


def message_fields(message: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Number, wire type and bytes of every field; a varint's bytes are as they stand."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        field, wire = key >> 3, key & 7
        start = at
        if wire == VARINT:
            _, end = varint(message, at)
        elif wire == DELIMITED:
            length, start = varint(message, at)
            end = start + length
        elif wire in (FOUR, EIGHT):
            end = start + (4 if wire == FOUR else 8)
        else:
            raise Malformed(f"there is no wire type {wire}")
        if end > len(message):
            raise Malformed("it is cut short")
        yield field, wire, message[start:end]
        at = end


def varint(message: bytes, at: int) -> tuple[int, int]:
    """An unsigned number of 7 bits per byte, and where it ends."""
    value = 0
    for place in range(10):
        if at + place >= len(message):
            raise Malformed("it is cut short")
        byte = message[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            if value >= 2**64:
                break
            return value, at + place + 1
    raise Malformed("it holds a number of more than 64 bits")


def varints(packed: bytes) -> NDArray[np.int64]:
    r"""Signed 64-bit numbers one after the other, without a loop over them.

    >>> varints(b"\x05\xac\x02" + b"\xff" * 9 + b"\x01").tolist()
    [5, 300, -1]
    """
    data = np.frombuffer(packed, np.uint8)
    last = data < 0x80
    if last.all():
        return data.astype(np.int64)
    if not last[-1]:
        raise Malformed("it is cut short")
    ends = np.flatnonzero(last)
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if lengths.max() > 10 or np.any(data[ends[lengths == 10]] > 1):
        raise Malformed("it holds a number of more than 64 bits")
    places = (np.arange(data.size) - np.repeat(starts, lengths)).astype(np.uint64)
    return np.add.reduceat((data & 0x7F).astype(np.uint64) << (places * np.uint64(7)), starts).view(
        np.int64
    )


KINDS = {"f": "floating-point numbers", "iu": "whole numbers"}


@dataclass(frozen=True)
class ClientFile:
    """An open file of clients.

    path: where it is. archive: what it was extracted from. clients: their names, in the file's
    order.
    """

    path: Path
    archive: str
    clients: tuple[str, ...]
    examples: Any

    def field_error(self, client: str, field: str, what: str) -> InvalidInput:
        """The error for one field of one client."""
        return InvalidInput(
            f"{self.path}: client {client!r}, field {field!r} {what}; extract {self.archive} again"
        )

    def field(self, client: str, field: str) -> Any:
        """The dataset of that field, with at least one sample."""
        group = self.examples.get(client)
        if group is None or not hasattr(group, "keys"):
            raise InvalidInput(
                f"{self.path}: there is no client {client!r} under 'examples'; it has"
                f" {join_names(self.clients, 5)}"
            )
        data = group.get(field)
        if data is None or not hasattr(data, "dtype"):
            raise self.field_error(
                client, field, f"is missing, and there is {join_names(group, 5)}"
            )
        if not data.shape:
            raise self.field_error(client, field, "is a single value and not one per sample")
        if data.shape[0] == 0:
            raise self.field_error(client, field, "is empty, and every client has samples")
        return data

    def length(self, client: str, field: str) -> int:
        """How many samples a client has, without reading them."""
        return int(self.field(client, field).shape[0])

    def read(self, data: Any, client: str, field: str) -> NDArray[Any]:
        """The values of a field's dataset."""
        try:
            return np.asarray(data[()])
        except (OSError, RuntimeError) as reason:
            raise self.field_error(
                client, field, f"cannot be read ({reason}): the file is damaged"
            ) from None

    def numbers(
        self, client: str, field: str, shape: tuple[int, ...], kinds: str, most: int | None = None
    ) -> NDArray[Any]:
        """Numbers of that shape per sample: finite ones, or, with `most`, from 0 to that."""
        data = self.field(client, field)
        if data.dtype.kind not in kinds:
            raise self.field_error(
                client, field, f"holds {data.dtype} where {KINDS[kinds]} are expected"
            )
        if data.shape[1:] != shape:
            raise self.field_error(
                client,
                field,
                f"has shape {data.shape} where {('samples', *shape)} is expected".replace("'", ""),
            )
        values = self.read(data, client, field)
        if most is not None and not (values.min() >= 0 and values.max() <= most):
            bad = values[(values < 0) | (values > most)].flat[0]
            raise self.field_error(
                client, field, f"holds {bad} where numbers from 0 to {most} are expected"
            )
        if not np.isfinite(values).all():
            raise self.field_error(client, field, "holds NaN or infinite numbers")
        return values

    def texts(self, client: str, field: str) -> list[bytes]:
        """One byte string per sample, of fixed or variable length."""
        data = self.field(client, field)
        if data.ndim != 1 or data.dtype.kind not in "SO":
            raise self.field_error(
                client,
                field,
                f"has shape {data.shape} and type {data.dtype} where one string each is expected",
            )
        values = self.read(data, client, field).tolist()
        for value in values:
            if not isinstance(value, bytes | str):
                raise self.field_error(client, field, f"holds {value!r} where strings are expected")
        return [value.encode() if isinstance(value, str) else value for value in values]


@contextmanager
def open_clients(folder: str | Path, name: str, archive: str) -> Iterator[ClientFile]:
    """The file of that name, open while the block lasts."""
    path = locate_file(folder, name, f"the archive {ADDRESS}{archive}")
    h5py = import_library("h5py", "h5py")
    try:
        file = h5py.File(path, "r")
    except OSError as reason:
        why = (
            "it is cut short" if "truncated" in str(reason) else "it is damaged or of another kind"
        )
        raise InvalidInput(
            f"{path} cannot be opened as HDF5, {why} ({reason}): extract {archive} again"
        ) from None
    with file:
        examples = file.get("examples")
        if examples is None or not hasattr(examples, "keys"):
            raise InvalidInput(
                f"{path}: the group 'examples' is missing, and there is {join_names(file, 5)}: give"
                f" TensorFlow Federated's file, from {archive}"
            )
        clients = tuple(examples)
        if not clients:
            raise InvalidInput(
                f"{path}: the group 'examples' holds no client: extract {archive} again"
            )
        yield ClientFile(path, archive, clients, examples)


def same_clients(train: ClientFile, test: ClientFile) -> tuple[str, ...]:
    """The clients of a training and a test file, which must be the same."""
    for one, other in ((train, test), (test, train)):
        alone = sorted(set(one.clients) - set(other.clients))
        if alone:
            raise InvalidInput(
                f"{other.path} lacks {join_names(alone, 5)}, which {one.path.name} has: extract"
                f" {train.archive} again, so that both files are of one version"
            )
    return train.clients


def read_images(
    parts: Sequence[tuple[ClientFile, str]],
    field: str,
    shape: tuple[int, ...],
    kinds: str,
    most: int | None,
    classes: int,
) -> tuple[NDArray[np.float32], NDArray[np.int64], Counts]:
    """Pixels by image, labels, and how many images each part has; a part is a client of a file.

    Sizes are read first, so that every image goes to its final place and none is held twice.
    """
    counts = np.array([file.length(client, field) for file, client in parts], dtype=np.intp)
    features = np.empty((int(counts.sum()), int(np.prod(shape))), np.float32)
    labels = np.empty(len(features), np.int64)
    start = 0
    for (file, client), count in zip(parts, counts.tolist(), strict=True):
        rows = slice(start, start + count)
        named = file.numbers(client, "label", (), "iu", classes - 1)
        if len(named) != count:
            raise file.field_error(
                client, "label", f"has {len(named)} samples while {field!r} has {count}"
            )
        features[rows] = file.numbers(client, field, shape, kinds, most).reshape(count, -1)
        labels[rows] = named
        start += count
    return features, labels, counts


PICTURES = {b"\x89PNG": "PNG", b"\xff\xd8\xff": "JPEG", b"GIF8": "GIF"}
SQLITE_TABLES = {
    "client_metadata": ("client_id", "split_name", "num_examples"),
    "examples": ("split_name", "client_id", "serialized_example_proto"),
}
ORDERED = (
    "SELECT client_id, split_name, serialized_example_proto FROM examples ORDER BY client_id, CASE"
    " lower(split_name) WHEN 'train' THEN 0 WHEN 'test' THEN 2 ELSE 1 END, split_name, rowid"
)


def check_example_fields(
    where: str, numeric: Mapping[str, bool], label: str, features: str | None
) -> str:
    """The field of features: the one that is named, or the only one of numbers beside the label."""
    there = f"there is {join_names(numeric)}"
    if label not in numeric:
        raise MissingColumn(
            f"{where}: no field {label!r} for the labels: {there}; name one with label="
        )
    if features is not None:
        if features not in numeric or features == label:
            raise MissingColumn(
                f"{where}: no field {features!r} beside the label for the features: {there}"
            )
        return features
    found = [name for name, is_number in numeric.items() if is_number and name != label]
    if len(found) != 1:
        how = "several fields" if found else "no field"
        raise InvalidInput(
            f"{where}: {how} of numbers beside the label {label!r}: {there}; name the features'"
            " with features="
        )
    return found[0]


def hdf5_parts(
    sources: Sequence[SampleFile], fields: FieldNames
) -> Generator[ClientPart, None, None]:
    """Every client's samples from HDF5 files."""
    label, features = fields.of_client_files()
    h5py = import_library("h5py", "h5py")
    for source in sources:
        path = source.file
        try:
            with h5py.File(path, "r") as file:
                examples = file.get("examples")
                if not isinstance(examples, h5py.Group) or not len(examples):
                    raise UnreadableFile(
                        f"{path}: no group 'examples' with clients in it: there is"
                        f" {join_names(file)}"
                    )
                for client in examples:
                    if not isinstance(client, str):  # bytes that are not UTF-8
                        raise InvalidInput(
                            f"{path}: client {client!r} has a name that is not text: the file is"
                            " damaged"
                        )
                    where = f"{path}: client {client!r}"
                    group = examples[client]
                    held = (
                        {name: group[name] for name in group}
                        if isinstance(group, h5py.Group)
                        else {}
                    )
                    held = {
                        name: data
                        for name, data in held.items()
                        if isinstance(data, h5py.Dataset) and data.shape
                    }
                    chosen = check_example_fields(
                        where,
                        {name: data.dtype.kind in "biuf" for name, data in held.items()},
                        label,
                        features,
                    )
                    of_x, of_y = (f"{where}, field {field!r}" for field in (chosen, label))
                    x = hdf5_values(held[chosen], file, of_x)
                    y = text_array(hdf5_values(held[label], file, of_y), of_y)
                    yield ClientPart(path, client, number_array(x, of_x), y, source.kind)
        except InvalidInput:
            raise
        except (OSError, RuntimeError, KeyError, TypeError, ValueError, MemoryError) as reason:
            raise UnreadableFile(
                f"{path}: it cannot be read as HDF5, it is damaged or of another kind: {reason}"
            ) from None


def hdf5_values(data: Any, file: Any, where: str) -> NDArray[Any]:
    """A dataset's values if in this file and fit for memory: what was never written has no size."""
    if data.file != file or data.external or data.is_virtual:
        raise InvalidInput(f"{where} keeps its values in another file: write them into this one")
    check_fits(data.size * data.dtype.itemsize, where)
    return np.asarray(data[()])


def sqlite_parts(
    sources: Sequence[SampleFile], fields: FieldNames
) -> Generator[ClientPart, None, None]:
    """Every client's samples from SQLite files of serialized tf.train.Example messages."""
    label, features = fields.of_client_files()
    for source in sources:
        try:
            with closing(
                sqlite3.connect(f"{source.file.resolve().as_uri()}?mode=ro", uri=True)
            ) as base:
                base.execute("PRAGMA trusted_schema = OFF")
                yield from sqlite_clients(base, source, label, features)
        except (sqlite3.Error, UnicodeDecodeError, MemoryError, OverflowError) as reason:
            raise UnreadableFile(f"{source.file}: it cannot be read as SQLite: {reason}") from None


def sqlite_clients(
    base: sqlite3.Connection, source: SampleFile, label: str, features: str | None
) -> Generator[ClientPart, None, None]:
    """The clients of one open file; as many samples as its own table of clients says."""
    path = source.file
    tables = [
        name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    ]
    for table, columns in SQLITE_TABLES.items():
        if (table,) in base.execute(
            "SELECT name FROM sqlite_master WHERE type = 'view' OR sql LIKE '%VIRTUAL%'"
        ).fetchall():
            raise InvalidInput(
                f"{path}: {table!r} is computed when it is read, and may never end: write it as a"
                " table"
            )
        held = [row[1] for row in base.execute(f"PRAGMA table_info({table})")]
        missing = [column for column in columns if column not in held]
        if missing:
            what = f"column {missing[0]!r} of table {table!r}" if held else f"table {table!r}"
            raise UnreadableFile(
                f"{path}: {what} is missing: there is {join_names(held or tables)}; give a file of"
                " SqlClientData"
            )
    said: Counter[tuple[Any, Any]] = Counter()
    for client, split, count in base.execute(
        "SELECT client_id, split_name, num_examples FROM client_metadata"
    ):
        if not isinstance(client, str) or not isinstance(count, int):
            raise InvalidInput(
                f"{path}: client {client!r}, num_examples {count!r}: give text and a whole number"
            )
        said[client, split] += count
    kinds = {split: split_code(path, split) for _, split in said}
    if None in kinds.values() and len(kinds) > 1:
        raise InvalidInput(
            f"{path}: some clients have a split_name and some have none: give all or none of"
            " them one"
        )
    for (client, split), rows in groupby(base.execute(ORDERED), key=lambda row: (row[0], row[1])):
        where = f"{path}: client {client!r}" + (f", split {split!r}" if split else "")
        if (client, split) not in said:
            raise InvalidInput(
                f"{where} has examples and is not in table 'client_metadata': write the file again"
            )
        x, y = [], []
        for row, (_, _, message) in enumerate(rows):
            at = f"{where}, row {row}"
            try:
                if not isinstance(message, bytes):
                    raise Malformed(f"it is a {type(message).__name__}")
                example = decode_example(message)
            except Malformed as reason:
                raise InvalidInput(
                    f"{at}: serialized_example_proto is not a tf.train.Example: {reason}"
                ) from None
            name = check_example_fields(
                at,
                {key: not isinstance(value, list) for key, value in example.items()},
                label,
                features,
            )
            x.append(read_pixels(example[name], f"{at}, field {name!r}"))
            y.append(single_label(example[label], f"{at}, field {label!r}"))
            for field, values in ((name, x), (label, y)):
                if values[-1].shape != values[0].shape:
                    sizes = f"{values[-1].size} values while row 0 has {values[0].size}"
                    raise InvalidInput(
                        f"{at}, field {field!r} has {sizes}: give every sample the same shape; pad"
                        " sequences"
                    )
        if len(x) != said.pop((client, split)):
            raise InvalidInput(
                f"{where} has {len(x)} examples, not what 'num_examples' says: the file is cut"
                " short or edited"
            )
        yield ClientPart(
            path,
            client,
            np.stack(x),
            np.stack(y),
            source.kind if kinds[split] is None else kinds[split],
        )
    absent = [client for (client, _), count in said.items() if count]
    if absent:
        raise InvalidInput(
            f"{path}: client {absent[0]!r} has no examples where 'num_examples' says so: the file"
            " is cut short"
        )


def split_code(path: Path, split: Any) -> int | None:
    """The code of a split's name; no name is None."""
    if split is None or split == "":
        return None
    if not isinstance(split, str) or split.lower() not in SPELLED:
        raise InvalidInput(
            f"{path}: split_name {split!r} is none of {', '.join(SPELLED)}: rename it, or drop its"
            " clients"
        )
    return SPELLED[split.lower()]


def read_pixels(value: Value, where: str) -> NDArray[Any]:
    """Numbers as they are; one byte string as numbers from 0 to 255."""
    if isinstance(value, list):
        kind = next(
            (name for start, name in PICTURES.items() if value and value[0].startswith(start)), None
        )
        if kind or len(value) != 1:
            what = f"a {kind} picture" if kind else f"{len(value)} byte strings"
            raise InvalidInput(
                f"{where} holds {what}: decode it to numbers first and use Federation.from_clients"
            )
        return np.frombuffer(value[0], np.uint8)
    return value


def single_label(value: Value, where: str) -> NDArray[Any]:
    """One label as a single value, several as they are."""
    array = text_array(np.array(value, object), where) if isinstance(value, list) else value
    if array.size == 0:
        raise InvalidInput(f"{where} is empty: give every sample a label")
    return (
        array[0]
        if array.size == 1 and array.dtype.kind != "O"
        else array
        if array.size > 1
        else np.array(array[0], object)
    )
