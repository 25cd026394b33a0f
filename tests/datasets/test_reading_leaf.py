"""A user's own files as LEAF writes them, and other JSON."""

import json

import numpy as np
import pytest

from fedasym.data.federation import Federation
from fedasym.data.formats import read

from .owned import CLIENTS, EXPECTED, HELD_OUT, NAMES, TRAINED, WHO, X, Y, by_parts, refused, same


def leaf(path, clients, **changes):
    path.parent.mkdir(exist_ok=True)
    data = {name: {"x": x.tolist(), "y": y.tolist()} for name, (x, y) in clients.items()}
    held = {
        "users": list(data),
        "num_samples": [len(each["y"]) for each in data.values()],
        "user_data": data,
    }
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
        leaf(
            tmp_path / kind / "all.json",
            {name: (x[rows], y[rows]) for name, (x, y) in CLIENTS.items()},
        )
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


@pytest.mark.parametrize(
    ("bob", "says"),
    [
        (
            ([[1.0, 2, 3]], [0]),
            "client 'bob' has samples of shape (3,) while those of client 'ann'",
        ),
        (([[1.0, 2]], [[0.5, 1]]), "client 'bob' has labels of shape (2,)"),
        (([[1.0, 2]], ["cat"]), "client 'bob' has labels of shape () and type object"),
        (([[1.0, 2], [1, 2]], [[0.5, [1]], [1, 2]]), "field 'y' holds lists of unlike lengths"),
    ],
)
def test_users_of_a_file_are_alike(tmp_path, bob, says):
    data = {"ann": {"x": [[1, 2], [3, 4]], "y": [0, 1]}, "bob": {"x": bob[0], "y": bob[1]}}
    held = {"users": ["ann", "bob"], "num_samples": [2, len(bob[1])], "user_data": data}
    (tmp_path / "a.json").write_text(json.dumps(held))
    refused(tmp_path / "a.json", "a.json", says)


def test_files_without_samples_and_splits_that_are_none(tmp_path):
    leaf(tmp_path / "all.json", {"ann": (X[:0], Y[:0])})
    refused(tmp_path / "all.json", "all.json", "there are no samples")
    leaf(tmp_path / "all.json", CLIENTS)
    refused(tmp_path / "all.json", "split is (0.5, 0.5)", "three fractions", split=(0.5, 0.5))


def test_other_json(tmp_path):
    (tmp_path / "a.json").write_text('[{"x": 1}]')
    refused(tmp_path / "a.json", "'users' is missing", "a list")
    (tmp_path / "a.json").write_text('{"users": [')
    refused(tmp_path / "a.json", "cannot be read as JSON")
    leaf(tmp_path / "b" / "1.json", CLIENTS)
    leaf(tmp_path / "b" / "2.json", CLIENTS)
    refused(tmp_path / "b", "2.json: client 'ann' is also in", "1.json")
