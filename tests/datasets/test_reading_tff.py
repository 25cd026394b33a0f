"""A user's own files in the layouts of TensorFlow Federated: HDF5, and SQLite by an encoder of its
own.
"""

import contextlib
import sqlite3
import struct

import h5py
import numpy as np
import pytest

from fedasym.data.formats import read
from fedasym.data.tff import Malformed, decode_example, varints

from .owned import CLIENTS, EXPECTED, HELD_OUT, RNG, TRAINED, X, Y, by_parts, refused, same

# TensorFlow Federated, HDF5


def hdf5(path, clients, **more):
    with h5py.File(path, "w") as file:
        for name, (x, y) in clients.items():
            for field, values in {"pixels": x.reshape(-1, 2, 2), "label": y, **more}.items():
                file[f"examples/{name}/{field}"] = values


def test_hdf5(tmp_path):
    hdf5(tmp_path / "all.h5", CLIENTS)
    same(read(tmp_path / "all.h5"), EXPECTED)
    (tmp_path / "all.h5").rename(tmp_path / "no_ending")
    same(read(tmp_path / "no_ending"), EXPECTED)


def test_hdf5_train_and_test(tmp_path):
    hdf5(tmp_path / "mine_train.h5", TRAINED)
    hdf5(tmp_path / "mine_test.h5", HELD_OUT)
    same(read(tmp_path), by_parts())
    everything = read(tmp_path, split=(0.8, 0.1, 0.1))
    assert everything.counts("test").tolist() == [3, 2, 1]


def test_hdf5_text_labels(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["examples/ann/x"] = np.eye(3)
        file["examples/ann/label"] = ["cat", "dog", "cat"]
    assert read(tmp_path / "a.h5").classes == ("cat", "dog")


def test_a_broken_hdf5_is_told_where(tmp_path):
    path = tmp_path / "a.h5"
    hdf5(path, CLIENTS, coarse=Y[:5])
    refused(path, "client 'ann'", "several fields", "coarse, label, pixels")
    same(read(path, features="pixels"), EXPECTED)
    refused(path, "no field 'digit' for the labels", "pixels", label="digit")
    refused(path, "no field 'x'", "pixels", features="x")
    refused(path, "names its clients itself", client="writer")
    refused(path, "has no columns", split="fold", features="pixels")
    hdf5(path, {"ann": CLIENTS["ann"], "bob": (X[:3], Y[:2])})
    refused(path, "client 'bob' has 3 samples and 2 labels")
    with h5py.File(path, "w") as file:
        file["examples/ann/label"], file["examples/ann/words"] = Y[:2], ["a", "b"]
    refused(path, "client 'ann'", "no field of numbers", "label, words")
    refused(path, "client 'ann', field 'words' holds text", features="words")
    with h5py.File(path, "w") as file:
        file["data"] = X
    refused(path, "no group 'examples'", "data")
    path.write_bytes(b"\x89HDF\r\n\x1a\n")
    refused(path, "a.h5", "cannot be read as HDF5")


# TensorFlow Federated, SQLite, by an encoder of its own


def number(value):
    value, out = value % 2**64, b""
    while value >= 0x80:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def field(key, body):
    return number(key << 3 | 2) + number(len(body)) + body


def feature(values, packed=True):
    if isinstance(values[0], bytes):
        return field(1, b"".join(field(1, value) for value in values))
    whole = isinstance(values[0], int)
    each = [number(value) if whole else struct.pack("<f", value) for value in values]
    key = b"\x08" if whole else b"\x0d"
    return field(
        3 if whole else 2,
        field(1, b"".join(each)) if packed else b"".join(key + value for value in each),
    )


def example(packed=True, **features):
    entries = (
        field(1, key.encode()) + field(2, feature(values, packed))
        for key, values in features.items()
    )
    return field(1, b"".join(field(1, entry) for entry in entries))


def sqlite(path, rows, counts=None):
    """Rows of (client, split, message)."""
    path.unlink(missing_ok=True)
    base = sqlite3.connect(path)
    base.execute(
        "CREATE TABLE client_metadata (client_id TEXT, split_name TEXT, num_examples INTEGER)"
    )
    base.execute(
        "CREATE TABLE examples (split_name TEXT, client_id TEXT, serialized_example_proto BLOB)"
    )
    keys = [(client, split) for client, split, _ in rows]
    counts = {key: keys.count(key) for key in dict.fromkeys(keys)} if counts is None else counts
    base.executemany(
        "INSERT INTO client_metadata VALUES (?, ?, ?)",
        [(*key, count) for key, count in counts.items()],
    )
    base.executemany(
        "INSERT INTO examples VALUES (?, ?, ?)",
        [(split, client, message) for client, split, message in rows],
    )
    base.commit()
    base.close()


def rows_of(clients, split, packed=True):
    return [
        (name, split, example(packed, pixels=each.tolist(), label=[int(label)]))
        for name, (x, y) in clients.items()
        for each, label in zip(x, y, strict=True)
    ]


@pytest.mark.parametrize("packed", [True, False])
def test_sqlite(tmp_path, packed):
    sqlite(tmp_path / "all.sqlite", rows_of(CLIENTS, None, packed))
    same(read(tmp_path / "all.sqlite"), EXPECTED)


def test_sqlite_train_and_test(tmp_path):
    sqlite(tmp_path / "all.sqlite", rows_of(HELD_OUT, "test") + rows_of(TRAINED, "train"))
    same(read(tmp_path / "all.sqlite"), by_parts())


def test_sqlite_bytes_whole_numbers_and_text(tmp_path):
    image = [
        ("ann", "train", example(image=[bytes([0, 128, 255])], label=[name]))
        for name in (b"cat", b"dog")
    ]
    sqlite(tmp_path / "a.sqlite", image)
    refused(
        tmp_path / "a.sqlite",
        "client 'ann', split 'train', row 0",
        "no field of numbers",
        "image, label",
    )
    federation = read(tmp_path / "a.sqlite", features="image")
    assert federation.classes == ("cat", "dog")
    assert federation.features.tolist() == [[0, 128, 255]] * 2
    sqlite(
        tmp_path / "a.sqlite",
        [("ann", "train", example(image=[0, 128, 255, -1], label=[1.5])) for _ in range(2)],
    )
    federation = read(tmp_path / "a.sqlite")
    assert federation.features.tolist() == [[0, 128, 255, -1]] * 2
    assert federation.task == "regression"


def with_label(lists):
    """An example whose label is that tf.train.Feature, as it is."""
    pixels = field(1, b"pixels") + field(2, feature([1.0, 2.0]))
    return field(1, field(1, pixels) + field(1, field(1, b"label") + field(2, lists)))


GOOD = example(pixels=[1.0, 2.0], label=[1])


@pytest.mark.parametrize(
    ("message", "parts"),
    [
        (GOOD[:-1], ("row 1", "not a tf.train.Example", "cut short")),
        (b"\x0b", ("row 1", "no wire type 3")),
        (GOOD + b"\x10\x01", ("row 1", "unexpected field 2")),
        ("text", ("row 1", "it is a str")),
        (example(pixels=[1.0, 2.0]), ("row 1", "no field 'label'", "pixels")),
        (with_label(b""), ("row 1", "label", "empty")),
        (with_label(field(2, field(1, b"\0\0\0"))), ("row 1", "'label'", "floats are cut short")),
        (
            example(pixels=[1.0], label=[1]),
            ("row 1, field 'pixels' has 1 values while row 0 has 2",),
        ),
        (example(pixels=[b"\x89PNG1"], label=[1]), ("row 1", "no field of numbers")),
        (example(pixels=[1.0, 2.0], other=[1], label=[1]), ("row 1", "several fields", "other")),
    ],
)
def test_a_broken_example_is_told_where(tmp_path, message, parts):
    sqlite(tmp_path / "a.sqlite", [("ann", "train", GOOD), ("ann", "train", message)])
    refused(tmp_path / "a.sqlite", "a.sqlite: client 'ann', split 'train'", *parts)


def test_a_broken_sqlite_is_told_what(tmp_path):
    path = tmp_path / "a.sqlite"
    sqlite(path, [("ann", "train", GOOD)], {("ann", "train"): 2})
    refused(path, "client 'ann', split 'train' has 1 examples", "num_examples")
    sqlite(path, [("ann", "train", GOOD)], {("ann", "train"): 1, ("bob", "train"): 2})
    refused(path, "client 'bob' has no examples")
    sqlite(path, [("ann", "train", GOOD)], {("ann", "train"): "one"})
    refused(path, "client 'ann', num_examples 'one'")
    sqlite(path, [("ann", "train", GOOD), ("bob", None, GOOD)])
    refused(path, "some clients have a split_name and some have none")
    sqlite(path, [("ann", "train", GOOD)], {})
    refused(path, "client 'ann'", "not in table 'client_metadata'")
    sqlite(path, [("ann", "held", GOOD)])
    refused(path, "split_name 'held'")
    sqlite(path, [("ann", "train", example(pixels=[b"\x89PNG1"], label=[1]))])
    refused(path, "row 0, field 'pixels' holds a PNG picture", features="pixels")
    path.unlink()
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE things (a)")
    base.close()
    refused(path, "table 'client_metadata' is missing", "things")
    path.write_bytes(b"nothing of the kind" * 100)
    refused(path, "cannot be read as SQLite")
    (tmp_path / "b.sqlite.lzma").write_bytes(b"")
    refused(tmp_path / "b.sqlite.lzma", "unpack it first", "b.sqlite")


def test_the_decoder_reads_every_whole_number_and_refuses_what_protobuf_would_guess():
    values = [0, 1, 127, 128, 300, 2**31, 2**63 - 1, -1, -(2**63)]
    assert varints(b"".join(number(value) for value in values)).tolist() == values
    for packed in (True, False):
        held = decode_example(example(packed, a=values, b=[0.5, -2.0], c=[b"x", b""]))
        assert held["a"].tolist() == values
        assert held["b"].tolist() == [0.5, -2.0]
        assert held["c"] == [b"x", b""]
    assert decode_example(b"") == {}
    entry = field(1, field(1, b"a") + field(2, feature([1])))
    for bad in (
        field(1, entry + entry),
        field(1, entry) * 2,
        field(1, field(1, field(2, feature([1]) * 2))),
        b"\x0a" + b"\xff" * 11,
    ):
        with pytest.raises(Malformed):
            decode_example(bad)
    for bad in (b"\x80", b"\xff" * 10 + b"\x01", b"\xff" * 9 + b"\x02", b"\xff" * 9 + b"\x7f"):
        with pytest.raises(Malformed):
            varints(bad)


def test_random_bytes_never_crash_the_decoder():
    for _ in range(300):
        message = bytearray(GOOD)
        for place in RNG.integers(len(message), size=2):
            message[place] = RNG.integers(256)
        with contextlib.suppress(Malformed):
            decode_example(bytes(message))
