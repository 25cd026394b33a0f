"""Client data from arrays and part by part: what is kept, in which order, precision and task."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedasym.data.federation import Federation
from fedasym.data.splits import SPLITS

from .small import NEXT, REAL, WHO, WORDS, X, Y, same, small


def test_rows_stand_client_by_client_in_the_given_order():
    federation = small(split=[0, 1, 2, 0, 0, 0])
    assert federation.clients == ("ann", "bob")
    assert federation.owner.tolist() == [0, 0, 0, 1, 1, 1]
    np.testing.assert_array_equal(federation.features, X[[0, 2, 4, 1, 3, 5]])
    assert federation.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert federation.split.tolist() == [0, 2, 0, 1, 0, 0]
    assert federation.rows("bob").tolist() == [3, 4, 5]
    assert federation.rows("bob", "validation").tolist() == [3]
    features, labels, split = federation.client("bob")
    np.testing.assert_array_equal(features, X[1::2])
    assert (labels.tolist(), split.tolist()) == ([1, 1, 1], [1, 0, 0])
    assert [federation.counts(name).tolist() for name in SPLITS] == [[2, 2], [0, 1], [1, 0]]
    assert (federation.task, federation.dimension, federation.outputs, federation.sequences) == (
        "classification",
        2,
        2,
        False,
    )


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("f2", "f2"),
        ("f4", "f4"),
        (">f4", "f4"),
        ("f8", "f8"),
        ("g", "f8"),
        ("u1", "f4"),
        ("i8", "f4"),
        ("?", "f4"),
        ("O", "f8"),
    ],
)
def test_precision_is_kept_and_whole_numbers_become_single(given, kept):
    features = Federation.from_arrays(X.astype(given), Y, WHO).features
    assert features.dtype == np.dtype(kept)
    assert features.dtype.isnative


def test_bfloat16_widens():
    import ml_dtypes

    assert Federation.from_arrays(X.astype(ml_dtypes.bfloat16), Y, WHO).features.dtype == np.float32


def test_arrays_are_read_only_and_the_users_own_are_not():
    rows, labels = X.copy(), Y.copy()
    federation = Federation.from_arrays(rows, labels, [1] * 6)
    for name in ("features", "labels", "owner", "split"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(federation, name)[0] = 1
    rows[0], labels[0] = 5, 1


@pytest.mark.parametrize(
    ("labels", "options", "task", "classes", "codes"),
    [
        ([5, 3, 5, 9, 3, 3], {}, "classification", (3, 5, 9), [1, 0, 1, 2, 0, 0]),
        ([True, False] * 3, {}, "classification", (False, True), [1, 0] * 3),
        (list("babcab"), {}, "classification", ("a", "b", "c"), [1, 0, 1, 2, 0, 1]),
        (
            np.array(list("babcab")),
            {"classes": list("cbad")},
            "classification",
            tuple("cbad"),
            [1, 2, 1, 0, 2, 1],
        ),
        ([0, 1, 0, 1, 0, 1], {"classes": 4}, "classification", (0, 1, 2, 3), [0, 1] * 3),
        ([0, 7, 0, 7, 0, 7], {"classes": np.array([7, 0])}, "classification", (7, 0), [1, 0] * 3),
        (
            [0.0, 2.0, 0.0, 2.0, 0.0, 2.0],
            {"task": "classification"},
            "classification",
            (0, 2),
            [0, 1] * 3,
        ),
        ([0.0, 2.0, 0.0, 2.0, 0.0, 2.0], {"classes": 3}, "classification", (0, 1, 2), [0, 2] * 3),
        (np.array([[1], [2]] * 3), {}, "classification", (1, 2), [0, 1] * 3),
        ([0, 1, 0, 1, 0, 1], {"task": "regression"}, "regression", None, [[0.0], [1.0]] * 3),
        ([0.5, 1, 0.5, 1, 0.5, 1], {}, "regression", None, [[0.5], [1.0]] * 3),
        ([[0.5, 1], [2, 3]] * 3, {}, "regression", None, [[0.5, 1.0], [2.0, 3.0]] * 3),
    ],
)
def test_labels_say_what_the_task_is(labels, options, task, classes, codes):
    federation = Federation.from_arrays(X, labels, [1] * 6, **options)
    assert (federation.task, federation.classes, federation.labels.tolist()) == (
        task,
        classes,
        codes,
    )
    assert federation.labels.dtype == (np.int64 if classes else np.float64)
    assert federation.outputs == (len(classes) if classes else len(codes[0]))


def test_sequences_and_what_padding_holds():
    words, labels = WORDS.copy(), NEXT.astype(object)
    words[0, 3], words[2, 1] = np.nan, -7
    labels[0, 3], labels[2, 1], labels[2, 2] = None, -100, 2
    federation = Federation.from_arrays(words, labels, ["b", "a", "b"], mask=REAL.astype(int))
    assert (federation.sequences, federation.outputs, federation.dimension) == (True, 3, 2)
    np.testing.assert_array_equal(federation.mask, REAL[[0, 2, 1]])
    assert federation.features[0, 3].tolist() == [0, 0]  # not finite: cleared
    assert federation.features[1, 1].tolist() == [-7, -7]  # finite: kept
    assert federation.labels.tolist() == [
        [0, 1, 2, 0],
        [2, 0, 2, 1],
        [1, 1, 0, 2],
    ]  # no class: the first one
    assert (
        Federation.from_arrays(WORDS, NEXT, [1, 2, 3], mask=np.ones((3, 4)), split=[0, 0, 0]).mask
        is None
    )
    outputs = Federation.from_arrays(words, np.where(REAL, 0.5, np.nan), [1] * 3, mask=REAL)
    assert outputs.labels.shape == (3, 4, 1)
    assert np.array_equal(outputs.labels[..., 0], np.where(REAL, 0.5, 0))


def test_identities_are_hashes_of_the_name_and_its_type():
    import hashlib

    def identity(clients):
        return Federation.from_arrays(np.ones((1, 1)), [0], clients, split=[0]).identities

    assert identity(["1"]).dtype == np.uint64
    expected = int.from_bytes(hashlib.blake2b(b"str:1").digest()[:8], "little")
    assert identity(["1"]) == expected == identity(np.array(["1"])) == identity([np.str_("1")])
    assert (
        identity([1])
        == identity([np.int32(1)])
        == identity(np.array([1], np.uint64))
        == identity(pd.Series([1]))
    )
    assert identity([1]) != identity(["1"])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_arrays_of_names_are_lists_of_names(who):
    def owned(clients):
        federation = Federation.from_arrays(
            np.arange(len(who))[:, None], [0] * len(who), clients, split=[0] * len(who)
        )
        return federation.clients, federation.owner.tolist(), federation.features.tolist()

    assert (
        owned(who) == owned(np.array(who)) == owned(np.array(who, object)) == owned(pd.Series(who))
    )
    names = [f"name{each}" for each in who]
    assert owned(names) == owned(np.array(names)) == owned(pl.Series(names))


def test_parts_may_be_clients_batches_or_single_samples():
    whole = small()
    batches = [("ann", X[[0, 2, 4]], Y[[0, 2, 4]]), ("bob", X[1::2], Y[1::2])]
    same(whole, Federation.from_clients(batches))
    same(whole, Federation.from_clients(zip(WHO, X, Y, strict=True)))
    same(
        whole,
        Federation.from_clients(
            (name, x.tolist(), int(y)) for name, x, y in zip(WHO, X, Y, strict=True)
        ),
    )
    same(
        whole,
        Federation.from_clients(
            [("ann", X[0], Y[:1]), ("bob", X[1:2], Y[1]), *zip(WHO[2:], X[2:], Y[2:], strict=True)]
        ),
    )
    split = ["train", "val", "valid", "TEST", 0, 1.0]
    same(small(split=split), Federation.from_clients(zip(WHO, X, Y, strict=True), split=split))
    same(
        Federation.from_arrays(WORDS, NEXT, [1, 1, 2], mask=REAL),
        Federation.from_clients([(1, WORDS[:2], NEXT[:2]), (2, WORDS[2:], NEXT[2:])], mask=REAL),
    )
