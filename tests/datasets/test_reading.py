"""A user's own files: every format gives the federation that from_arrays gives, and a broken file is told what is wrong."""

import contextlib
import json
import pickle
import sqlite3
import struct

import h5py
import numpy as np
import polars as pl
import pytest

from fedasym.datasets.assembly import by_files
from fedasym.datasets.examples import Malformed, decoded, varints
from fedasym.datasets.reading import read
from fedasym.errors import InvalidInput
from fedasym.federations.federation import Federation

RNG = np.random.default_rng(0)
NAMES = ("ann", "bob", "cem")
X = RNG.standard_normal((60, 4)).astype(np.float32)
Y = RNG.integers(3, size=60)
WHO = np.repeat(NAMES, (30, 20, 10))
TESTED = np.isin(np.arange(60) % 10, (3, 7))  # every client has some
EXPECTED = Federation.from_arrays(X, Y, WHO)
CLIENTS = {name: (X[name == WHO], Y[name == WHO]) for name in NAMES}


def part(tested):
    return {name: (X[(name == WHO) & (tested == TESTED)], Y[(name == WHO) & (tested == TESTED)]) for name in NAMES}


TRAINED, HELD_OUT = part(False), part(True)


def by_parts():
    """What the training and test files of all clients should give."""
    order = np.concatenate([np.flatnonzero((name == WHO) & (kind == TESTED)) for name in NAMES for kind in (False, True)])
    trained, tested = (np.array([len(side[name][1]) for name in NAMES]) for side in (TRAINED, HELD_OUT))
    return Federation.from_arrays(X[order], Y[order], WHO[order], split=by_files(NAMES, trained, tested, seed=0))


def same(one, other):
    assert one.clients == other.clients
    assert one.classes == other.classes
    assert one.mask is other.mask is None
    for field in ("labels", "owner", "split"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field), err_msg=field)
    np.testing.assert_allclose(one.features, other.features, rtol=1e-7)


def refused(path, *parts, **options):
    with pytest.raises(InvalidInput) as caught:
        read(path, **options)
    for part in parts:
        assert part in str(caught.value), caught.value


# Parquet, safetensors


@pytest.mark.parametrize("ending", [".parquet", ".safetensors"])
def test_saved_federations_come_back_and_can_be_split_anew(tmp_path, ending):
    path = EXPECTED.save(tmp_path / f"saved{ending}")
    same(read(path), EXPECTED)
    same(read(path, split=(0.5, 0.2, 0.3), seed=4), Federation.from_arrays(X, Y, WHO, split=(0.5, 0.2, 0.3), seed=4))


def test_a_saved_federation_takes_no_other_names(tmp_path):
    refused(EXPECTED.save(tmp_path / "saved.safetensors"), "saved.safetensors", "has its own", label="score")
    (tmp_path / "bad.safetensors").write_bytes(b"nothing")
    refused(tmp_path / "bad.safetensors", "bad.safetensors", "cannot be read")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    refused(tmp_path / "bad.parquet", "bad.parquet", "cannot be read")


# CSV, folders of tables


def frame(x, y, **more):
    return pl.DataFrame({f"f{each}": x[:, each].astype(float) for each in range(4)} | {"label": y} | more)


def test_csv(tmp_path):
    order = RNG.permutation(60)  # rows in any order: clients stand by first appearance
    frame(X[order], Y[order], client=WHO[order], note=["text"] * 60).write_csv(tmp_path / "all.csv")
    same(read(tmp_path / "all.csv"), Federation.from_arrays(X[order], Y[order], WHO[order]))
    same(read(tmp_path / "all.csv", features=["f1"]), Federation.from_arrays(X[order, 1:2], Y[order], WHO[order]))
    split = np.where(TESTED, "test", "train")
    frame(X, Y, client=WHO, split=split).write_csv(tmp_path / "split.CSV")
    same(read(tmp_path / "split.CSV"), Federation.from_arrays(X, Y, WHO, split=split))
    same(read(tmp_path / "split.CSV", split=(0.8, 0.1, 0.1)), EXPECTED)
    frame(X, Y, client=WHO, fold=split).write_csv(tmp_path / "fold.csv")
    same(read(tmp_path / "fold.csv", split="fold"), Federation.from_arrays(X, Y, WHO, split=split))


def test_csv_clients_keep_leading_zeros_and_numbers_stay_numbers(tmp_path):
    (tmp_path / "a.csv").write_text("client,x,label\n7,1,0\n07,2,1\n")
    assert read(tmp_path / "a.csv").clients == ("7", "07")
    (tmp_path / "a.csv").write_text("client,x,label\n7,1,0\n8, 2.5,1\n")
    federation = read(tmp_path / "a.csv")
    assert federation.clients == (7, 8)
    assert federation.features.tolist() == [[1.0], [2.5]]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("client,x,label\na,1,0\na,2,1\na,oops,1\n", ("column 'x'", "row 2", "line 4", "'oops'")),
        ("client,x,label\na,1,0\na,,1\n", ("client 'a'", "row 1", "NaN")),
        ("client,x,label\na,1,0\na,2,\n", ("label", "client 'a'", "row 1")),
        ("client,x,label\na,1,0,5\n", ("cannot be read as CSV",)),
        ("client,x,x,label\na,1,2,0\n", ("several columns 'x'",)),
        ("who,x,label\na,1,0\n", ("unknown client column 'client'", "who")),
        ("client,x,y\na,1,0\n", ("unknown label column 'label'",)),
        ("", ("cannot be read as CSV",)),
    ],
)
def test_a_broken_csv_is_told_where(tmp_path, text, parts):
    (tmp_path / "bad.csv").write_text(text)
    refused(tmp_path / "bad.csv", "bad.csv", *parts)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_folder_of_tables_has_a_client_per_file(tmp_path, ending):
    for name, (x, y) in CLIENTS.items():
        getattr(frame(x, y), f"write_{ending}")(tmp_path / f"{name}.{ending}")
    same(read(tmp_path), EXPECTED)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_folder_of_tables_may_have_a_client_column(tmp_path, ending):
    for number, rows in enumerate((slice(0, 35), slice(35, 60))):
        getattr(frame(X[rows], Y[rows], client=WHO[rows]), f"write_{ending}")(tmp_path / f"part-{number}.{ending}")
    same(read(tmp_path), EXPECTED)


@pytest.mark.parametrize("layout", ["{kind}/{name}.csv", "{name}_{kind}.csv"])
def test_tables_named_train_and_test(tmp_path, layout):
    for kind, side in (("train", TRAINED), ("test", HELD_OUT)):
        for name, (x, y) in side.items():
            path = tmp_path / layout.format(kind=kind, name=name)
            path.parent.mkdir(exist_ok=True)
            frame(x, y).write_csv(path)
    federation = read(tmp_path)
    assert federation.counts("test").tolist() == [6, 4, 2]
    assert federation.counts("validation").tolist() == [24 - 21, 16 - 14, 8 - 7]


def test_train_and_test_are_no_clients(tmp_path):
    for name in ("train", "test"):
        frame(X, Y).write_csv(tmp_path / f"{name}.csv")
    refused(tmp_path, "unknown client column 'client'")
    frame(X, Y).write_csv(tmp_path / "ann.csv")
    refused(tmp_path, "ann.csv does not")


def test_tables_of_a_folder_are_alike(tmp_path):
    frame(X, Y).write_csv(tmp_path / "ann.csv")
    frame(X, Y).drop("f2").write_csv(tmp_path / "bob.csv")
    refused(tmp_path, "bob.csv: column 'f2' is missing", "ann.csv")
    frame(X, Y).with_columns(pl.lit("good").alias("label")).write_csv(tmp_path / "bob.csv")
    refused(tmp_path, "bob.csv: column 'label' holds String", "ann.csv")
    (tmp_path / "cem.parquet").write_bytes(b"")
    refused(tmp_path, "several formats")


# NumPy


@pytest.mark.parametrize(("x", "y", "client"), [("x", "y", "client"), ("features", "labels", "writer"), ("x", "label", "user")])
def test_npz(tmp_path, x, y, client):
    np.savez(tmp_path / "a.npz", **{x: X, y: Y, client: WHO})
    same(read(tmp_path / "a.npz"), EXPECTED)


def test_npz_with_other_names_images_bytes_and_a_split(tmp_path):
    split = np.where(TESTED, b"test", b"train")
    np.savez_compressed(tmp_path / "a.npz", pixels=X.reshape(60, 2, 2), digit=Y, who=WHO.astype("S"), split=split)
    names = {"features": "pixels", "label": "digit", "client": "who"}
    same(read(tmp_path / "a.npz", **names), Federation.from_arrays(X, Y, WHO, split=np.where(TESTED, 2, 0)))
    same(read(tmp_path / "a.npz", **names, split=(0.8, 0.1, 0.1)), EXPECTED)


def test_npz_sequences_with_a_mask(tmp_path):
    x, y, mask = RNG.standard_normal((6, 5, 3)), RNG.integers(4, size=(6, 5)), np.arange(5) < [[5], [3], [5], [4], [5], [2]]
    np.savez(tmp_path / "a.npz", x=x, y=y, client=np.repeat([1, 2], 3), mask=mask)
    np.testing.assert_array_equal(read(tmp_path / "a.npz", classes=4).mask, mask)


class Harm:
    def __reduce__(self):
        return pytest.fail, ("a file was unpickled",)


def test_pickles_are_never_read(tmp_path):
    clients = np.empty(60, object)
    clients[:] = [Harm()] * 60
    np.savez(tmp_path / "a.npz", x=X, y=Y, client=clients)
    refused(tmp_path / "a.npz", "'client' holds pickled Python objects")
    (tmp_path / "b.npz").write_bytes(pickle.dumps(Harm()))
    refused(tmp_path / "b.npz", "b.npz", "cannot be read")


def test_a_broken_npz_is_told_what(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=X, y=Y)
    refused(path, "no array client or clients or writer or user", "there is x, y")
    np.savez(path, x=X, features=X, y=Y, client=WHO)
    refused(path, "x and features could both be")
    np.savez(path, x=X, y=Y[:50], client=WHO)
    refused(path, "labels have 50 rows")
    np.savez(path, x=X, y=Y, client=WHO)
    path.write_bytes(path.read_bytes()[:-40])
    refused(path, "a.npz", "cannot be read")
    with path.open("wb") as file:
        np.save(file, X)
    refused(path, "a single array")


# LEAF


def leaf(path, clients, **changes):
    path.parent.mkdir(exist_ok=True)
    data = {name: {"x": x.tolist(), "y": y.tolist()} for name, (x, y) in clients.items()}
    held = {"users": list(data), "num_samples": [len(each["y"]) for each in data.values()], "user_data": data}
    path.write_text(json.dumps(held | changes))


def test_leaf_file_and_folder(tmp_path):
    leaf(tmp_path / "all.json", CLIENTS)
    same(read(tmp_path / "all.json"), EXPECTED)
    for name in NAMES:
        leaf(tmp_path / "shards" / f"{name}.json", {name: CLIENTS[name]})
    same(read(tmp_path / "shards"), EXPECTED)


def test_leaf_train_and_test(tmp_path):
    leaf(tmp_path / "train" / "all_data_niid_0_keep_0_train_9.json", TRAINED)
    leaf(tmp_path / "test" / "all_data_niid_0_keep_0_test_9.json", HELD_OUT)
    same(read(tmp_path), by_parts())


def test_leaf_validation_is_taken_as_it_is(tmp_path):
    for kind, rows in (("train", slice(0, 6)), ("val", slice(6, 8)), ("test", slice(8, 10))):
        leaf(tmp_path / kind / "all.json", {name: (x[rows], y[rows]) for name, (x, y) in CLIENTS.items()})
    first = np.concatenate([np.flatnonzero(name == WHO)[:10] for name in NAMES])
    split = np.tile(np.repeat([0, 1, 2], (6, 2, 2)), 3)
    same(read(tmp_path), Federation.from_arrays(X[first], Y[first], WHO[first], split=split))


def test_clients_without_samples_are_left_out_and_seeds_matter(tmp_path):
    leaf(tmp_path / "all.json", CLIENTS | {"dan": (X[:0], Y[:0])})
    same(read(tmp_path / "all.json", seed=5), Federation.from_arrays(X, Y, WHO, seed=5))


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"users": ["ann"]}, ("'users' and 'num_samples'",)),
        ({"num_samples": [30, 20, 9]}, ("user 'cem', field 'x'", "10 samples", "says 9")),
        ({"num_samples": [30, 20, -1]}, ("user 'cem'", "-1")),
        ({"users": ["ann", "bob", "eve"]}, ("user 'cem'", "not among 'users'")),
        ({"user_data": {"ann": {}}}, ("user 'ann', field 'x' is missing",)),
        ({"user_data": []}, ("'user_data'",)),
    ],
)
def test_a_broken_leaf_file_is_told_where(tmp_path, changes, parts):
    leaf(tmp_path / "a.json", CLIENTS, **changes)
    refused(tmp_path / "a.json", "a.json", *parts)


@pytest.mark.parametrize(
    ("x", "y", "parts"),
    [
        ([[1, 2], [3]], [0, 1], ("user 'ann', field 'x', row 1", "a list of 1")),
        ([[1, 2], None], [0, 1], ("user 'ann', field 'x', row 1", "None")),
        (["to be", "or not"], [0, 1], ("user 'ann', field 'x' holds text",)),
        ([[1, 2], [3, 4]], [0, None], ("user 'ann', field 'y', row 1 is None",)),
        ([[1, 2], [3, 4]], [0, "b"], ("'ann'", "'b'")),
        ([[1, 2], [3, float("nan")]], [0, 1], ("client 'ann'", "row 1", "column 1")),
    ],
)
def test_broken_leaf_samples(tmp_path, x, y, parts):
    held = {"users": ["ann"], "num_samples": [2], "user_data": {"ann": {"x": x, "y": y}}}
    (tmp_path / "a.json").write_text(json.dumps(held))
    refused(tmp_path / "a.json", "a.json", *parts)


def test_other_json(tmp_path):
    (tmp_path / "a.json").write_text('[{"x": 1}]')
    refused(tmp_path / "a.json", "'users' is missing", "a list")
    (tmp_path / "a.json").write_text('{"users": [')
    refused(tmp_path / "a.json", "cannot be read as JSON")
    leaf(tmp_path / "b" / "1.json", CLIENTS)
    leaf(tmp_path / "b" / "2.json", CLIENTS)
    refused(tmp_path / "b", "2.json: client 'ann' stands also in", "1.json")


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
    return field(3 if whole else 2, field(1, b"".join(each)) if packed else b"".join(key + value for value in each))


def example(packed=True, **features):
    entries = (field(1, key.encode()) + field(2, feature(values, packed)) for key, values in features.items())
    return field(1, b"".join(field(1, entry) for entry in entries))


def sqlite(path, rows, counts=None):
    """Rows of (client, split, message)."""
    path.unlink(missing_ok=True)
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE client_metadata (client_id TEXT, split_name TEXT, num_examples INTEGER)")
    base.execute("CREATE TABLE examples (split_name TEXT, client_id TEXT, serialized_example_proto BLOB)")
    keys = [(client, split) for client, split, _ in rows]
    counts = {key: keys.count(key) for key in dict.fromkeys(keys)} if counts is None else counts
    base.executemany("INSERT INTO client_metadata VALUES (?, ?, ?)", [(*key, count) for key, count in counts.items()])
    base.executemany("INSERT INTO examples VALUES (?, ?, ?)", [(split, client, message) for client, split, message in rows])
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
    image = [("ann", "train", example(image=[bytes([0, 128, 255])], label=[name])) for name in (b"cat", b"dog")]
    sqlite(tmp_path / "a.sqlite", image)
    refused(tmp_path / "a.sqlite", "client 'ann', split 'train', row 0", "no field of numbers", "image, label")
    federation = read(tmp_path / "a.sqlite", features="image")
    assert federation.classes == ("cat", "dog")
    assert federation.features.tolist() == [[0, 128, 255]] * 2
    sqlite(tmp_path / "a.sqlite", [("ann", "train", example(image=[0, 128, 255, -1], label=[1.5])) for _ in range(2)])
    federation = read(tmp_path / "a.sqlite")
    assert federation.features.tolist() == [[0, 128, 255, -1]] * 2
    assert federation.task == "regression"


GOOD = example(pixels=[1.0, 2.0], label=[1])


@pytest.mark.parametrize(
    ("message", "parts"),
    [
        (GOOD[:-1], ("row 1", "no tf.train.Example", "cut short")),
        (b"\x0b", ("row 1", "no wire type 3")),
        (GOOD + b"\x10\x01", ("row 1", "unexpected field 2")),
        ("text", ("row 1", "it is a str")),
        (example(pixels=[1.0, 2.0]), ("row 1", "no field 'label'", "pixels")),
        (example(pixels=[1.0], label=[1]), ("row 1, field 'pixels' has 1 values while row 0 has 2",)),
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
        held = decoded(example(packed, a=values, b=[0.5, -2.0], c=[b"x", b""]))
        assert held["a"].tolist() == values
        assert held["b"].tolist() == [0.5, -2.0]
        assert held["c"] == [b"x", b""]
    assert decoded(b"") == {}
    entry = field(1, field(1, b"a") + field(2, feature([1])))
    for bad in (
        field(1, entry + entry),
        field(1, entry) * 2,
        field(1, field(1, field(2, feature([1]) * 2))),
        b"\x0a" + b"\xff" * 11,
    ):
        with pytest.raises(Malformed):
            decoded(bad)
    for bad in (b"\x80", b"\xff" * 10 + b"\x01", b"\xff" * 9 + b"\x02"):
        with pytest.raises(Malformed):
            varints(bad)


def test_random_bytes_never_crash_the_decoder():
    for _ in range(300):
        message = bytearray(GOOD)
        for place in RNG.integers(len(message), size=2):
            message[place] = RNG.integers(256)
        with contextlib.suppress(Malformed):
            decoded(bytes(message))


# What is there


def test_what_cannot_be_read_is_told_what_can(tmp_path):
    (tmp_path / "a.xlsx").write_bytes(b"PK")
    refused(tmp_path / "a.xlsx", "'.xlsx' is unknown", ".parquet, .safetensors, .csv, .npz, .json, .h5")
    refused(tmp_path, "a.xlsx", "nothing in it can be read")
    refused(tmp_path / "none.csv", "no such file or folder")
    np.savez(tmp_path / "a.npz", x=X, y=Y, client=WHO)
    refused(tmp_path, "give the .npz file itself")
