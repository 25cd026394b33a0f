"""Files of TensorFlow Federated with a user's own data, client by client: HDF5 (`examples/<client>/<field>`) and SQLite."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, MissingColumn, UnreadableFile
from fedasym.core.machine import check_fits
from fedasym.data.federation.splits import SPELLED
from fedasym.data.sets.assembly import library
from fedasym.data.sets.examples import Malformed, Value, decoded
from fedasym.data.sets.gathering import Fields, Part, Source, listed, numbers, texts

PICTURES = {b"\x89PNG": "PNG", b"\xff\xd8\xff": "JPEG", b"GIF8": "GIF"}
TABLES = {
    "client_metadata": ("client_id", "split_name", "num_examples"),
    "examples": ("split_name", "client_id", "serialized_example_proto"),
}
ORDERED = (
    "SELECT client_id, split_name, serialized_example_proto FROM examples "
    "ORDER BY client_id, CASE lower(split_name) WHEN 'train' THEN 0 WHEN 'test' THEN 2 ELSE 1 END, split_name, rowid"
)


def check_fields(where: str, numeric: Mapping[str, bool], label: str, features: str | None) -> str:
    """The field of features: the one that is named, or the only one of numbers beside the label."""
    there = f"there is {listed(numeric)}"
    if label not in numeric:
        raise MissingColumn(f"{where}: no field {label!r} for the labels: {there}; name one with label=")
    if features is not None:
        if features not in numeric or features == label:
            raise MissingColumn(f"{where}: no field {features!r} beside the label for the features: {there}")
        return features
    found = [name for name, is_number in numeric.items() if is_number and name != label]
    if len(found) != 1:
        how = "several fields" if found else "no field"
        raise InvalidInput(f"{where}: {how} of numbers beside the label {label!r}: {there}; name the features' with features=")
    return found[0]


def hdf5_parts(sources: Sequence[Source], fields: Fields) -> Generator[Part, None, None]:
    """Every client's samples from HDF5 files."""
    label, features = fields.of_client_files()
    h5py = library("h5py", "h5py")
    for source in sources:
        path = source.file
        try:
            with h5py.File(path, "r") as file:
                examples = file.get("examples")
                if not isinstance(examples, h5py.Group) or not len(examples):
                    raise UnreadableFile(f"{path}: no group 'examples' with clients in it: there is {listed(file)}")
                for client in examples:
                    if not isinstance(client, str):  # bytes that are not UTF-8
                        raise InvalidInput(f"{path}: client {client!r} has a name that is no text: the file is damaged")
                    where = f"{path}: client {client!r}"
                    group = examples[client]
                    held = {name: group[name] for name in group} if isinstance(group, h5py.Group) else {}
                    held = {name: data for name, data in held.items() if isinstance(data, h5py.Dataset) and data.shape}
                    chosen = check_fields(
                        where, {name: data.dtype.kind in "biuf" for name, data in held.items()}, label, features
                    )
                    of_x, of_y = (f"{where}, field {field!r}" for field in (chosen, label))
                    x, y = values(held[chosen], file, of_x), texts(values(held[label], file, of_y), of_y)
                    yield Part(path, client, numbers(x, of_x), y, source.kind)
        except InvalidInput:
            raise
        except (OSError, RuntimeError, KeyError, TypeError, ValueError, MemoryError) as reason:
            raise UnreadableFile(f"{path}: it cannot be read as HDF5, it is damaged or of another kind: {reason}") from None


def values(data: Any, file: Any, where: str) -> NDArray[Any]:
    """A dataset's values, where they are in this very file and fit into memory: what was never written has no size."""
    if data.file != file or data.external or data.is_virtual:
        raise InvalidInput(f"{where} keeps its values in another file: write them into this one")
    check_fits(data.size * data.dtype.itemsize, where)
    return np.asarray(data[()])


def sqlite_parts(sources: Sequence[Source], fields: Fields) -> Generator[Part, None, None]:
    """Every client's samples from SQLite files of serialized tf.train.Example messages."""
    label, features = fields.of_client_files()
    for source in sources:
        try:
            with closing(sqlite3.connect(f"{source.file.resolve().as_uri()}?mode=ro", uri=True)) as base:
                base.execute("PRAGMA trusted_schema = OFF")
                yield from clients_of(base, source, label, features)
        except (sqlite3.Error, UnicodeDecodeError, MemoryError, OverflowError) as reason:
            raise UnreadableFile(f"{source.file}: it cannot be read as SQLite: {reason}") from None


def clients_of(base: sqlite3.Connection, source: Source, label: str, features: str | None) -> Generator[Part, None, None]:
    """The clients of one open file; as many samples as its own table of clients says."""
    path = source.file
    tables = [name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table, columns in TABLES.items():
        if (table,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'view' OR sql LIKE '%VIRTUAL%'").fetchall():
            raise InvalidInput(f"{path}: {table!r} is computed when it is read, and may never end: write it as a table")
        held = [row[1] for row in base.execute(f"PRAGMA table_info({table})")]
        missing = [column for column in columns if column not in held]
        if missing:
            what = f"column {missing[0]!r} of table {table!r}" if held else f"table {table!r}"
            raise UnreadableFile(f"{path}: {what} is missing: there is {listed(held or tables)}; give a file of SqlClientData")
    said: Counter[tuple[Any, Any]] = Counter()
    for client, split, count in base.execute("SELECT client_id, split_name, num_examples FROM client_metadata"):
        if not isinstance(client, str) or not isinstance(count, int):
            raise InvalidInput(f"{path}: client {client!r}, num_examples {count!r}: give text and a whole number")
        said[client, split] += count
    kinds = {split: kind_of(path, split) for _, split in said}
    if None in kinds.values() and len(kinds) > 1:
        raise InvalidInput(f"{path}: some clients have a split_name and some have none: give all or none of them one")
    for (client, split), rows in groupby(base.execute(ORDERED), key=lambda row: (row[0], row[1])):
        where = f"{path}: client {client!r}" + (f", split {split!r}" if split else "")
        if (client, split) not in said:
            raise InvalidInput(f"{where} has examples and is not in table 'client_metadata': write the file again")
        x, y = [], []
        for row, (_, _, message) in enumerate(rows):
            at = f"{where}, row {row}"
            try:
                if not isinstance(message, bytes):
                    raise Malformed(f"it is a {type(message).__name__}")
                example = decoded(message)
            except Malformed as reason:
                raise InvalidInput(f"{at}: serialized_example_proto is no tf.train.Example: {reason}") from None
            name = check_fields(at, {key: not isinstance(value, list) for key, value in example.items()}, label, features)
            x.append(pixels(example[name], f"{at}, field {name!r}"))
            y.append(named(example[label], f"{at}, field {label!r}"))
            for field, values in ((name, x), (label, y)):
                if values[-1].shape != values[0].shape:
                    sizes = f"{values[-1].size} values while row 0 has {values[0].size}"
                    raise InvalidInput(f"{at}, field {field!r} has {sizes}: give every sample the same shape; pad sequences")
        if len(x) != said.pop((client, split)):
            raise InvalidInput(f"{where} has {len(x)} examples, not what 'num_examples' says: the file is cut short or edited")
        yield Part(path, client, np.stack(x), np.stack(y), source.kind if kinds[split] is None else kinds[split])
    absent = [client for (client, _), count in said.items() if count]
    if absent:
        raise InvalidInput(f"{path}: client {absent[0]!r} has no examples where 'num_examples' says so: the file is cut short")


def kind_of(path: Path, split: Any) -> int | None:
    """The code of a split's name; no name is None."""
    if split is None or split == "":
        return None
    if not isinstance(split, str) or split.lower() not in SPELLED:
        raise InvalidInput(f"{path}: split_name {split!r} is none of {', '.join(SPELLED)}: rename it, or drop its clients")
    return SPELLED[split.lower()]


def pixels(value: Value, where: str) -> NDArray[Any]:
    """Numbers as they are; one byte string as numbers from 0 to 255."""
    if isinstance(value, list):
        kind = next((name for start, name in PICTURES.items() if value and value[0].startswith(start)), None)
        if kind or len(value) != 1:
            what = f"a {kind} picture" if kind else f"{len(value)} byte strings"
            raise InvalidInput(f"{where} holds {what}: decode it to numbers first and use Federation.from_clients")
        return np.frombuffer(value[0], np.uint8)
    return value


def named(value: Value, where: str) -> NDArray[Any]:
    """One label as a single value, several as they are."""
    array = texts(np.array(value, object), where) if isinstance(value, list) else value
    if array.size == 0:
        raise InvalidInput(f"{where} is empty: give every sample a label")
    return array[0] if array.size == 1 and array.dtype.kind != "O" else array if array.size > 1 else np.array(array[0], object)
