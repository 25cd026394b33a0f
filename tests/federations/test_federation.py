"""Client data at the door: what is kept, how it is split, what comes back from files, and what is refused with which words."""

import copy
import json
import math
import os
import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fedasym as fa
from fedasym.federations.federation import Federation
from fedasym.federations.shuffles import SPLIT, mix
from fedasym.federations.splits import SPLITS, assigned, sizes

FIELDS = ("features", "labels", "owner", "split", "mask")
X = np.arange(12.0).reshape(6, 2)
Y = np.array([0, 1, 0, 1, 0, 1])
WHO = ["ann", "bob", "ann", "bob", "ann", "bob"]
WORDS = np.arange(24, dtype=np.float32).reshape(3, 4, 2)  # three sequences of four positions
NEXT = np.array([[0, 1, 2, 0], [1, 1, 0, 2], [2, 0, 0, 1]])
REAL = np.array([[1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]], bool)


def small(**options):
    return Federation.from_arrays(X, Y, WHO, **options)


def same(one, other):
    """Whether two federations hold the same, down to types."""
    for name in FIELDS:
        a, b = getattr(one, name), getattr(other, name)
        assert (a is None) == (b is None), name
        if a is not None:
            assert a.dtype == b.dtype, name
            np.testing.assert_array_equal(a, b)
    assert one.clients == other.clients
    assert [type(name) for name in one.clients] == [type(name) for name in other.clients]
    assert one.classes == other.classes
    assert [type(name) for name in one.classes or ()] == [type(name) for name in other.classes or ()]
    assert sorted(one.truth or ()) == sorted(other.truth or ())
    for name in one.truth or ():
        assert one.truth[name].dtype == other.truth[name].dtype
        np.testing.assert_array_equal(one.truth[name], other.truth[name])


NAMES = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4, unique=True),
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), min_size=1, max_size=4, unique=True),
)
DTYPES = st.sampled_from([np.float16, np.float32, np.float64])


@st.composite
def federations(draw, sequences=None):
    """Federations of every kind: few clients of any name, rows in any order, classes or outputs, sequences or not."""
    names = draw(NAMES)
    n = draw(st.integers(len(names), 12))
    who = draw(
        st.permutations([*names, *draw(st.lists(st.sampled_from(names), min_size=n - len(names), max_size=n - len(names)))])
    )
    shape = (n, 3) if draw(st.booleans() if sequences is None else st.just(sequences)) else (n,)
    dtype = draw(DTYPES)
    features = draw(hnp.arrays(dtype, (*shape, draw(st.integers(1, 3))), elements=st.floats(-100, 100, width=16)))
    labels = draw(
        st.one_of(
            hnp.arrays(np.int64, shape, elements=st.integers(-3, 3)),
            hnp.arrays(bool, shape),
            hnp.arrays(object, shape, elements=st.sampled_from(["cat", "dog", "ünï"])),
            hnp.arrays(np.float64, (*shape, 2), elements=st.floats(-9, 9)),
            hnp.arrays(np.float64, shape, elements=st.floats(-9, 9)),
        )
    )
    mask = None
    if len(shape) == 2 and draw(st.booleans()):
        mask = draw(hnp.arrays(bool, shape))
        mask[:, 1] = True
    return Federation.from_arrays(features, labels, who, mask=mask, seed=draw(st.integers(0, 2**64 - 1)))


# What is kept


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
    assert (federation.task, federation.dimension, federation.outputs, federation.sequences) == ("classification", 2, 2, False)


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
        (np.array(list("babcab")), {"classes": list("cbad")}, "classification", tuple("cbad"), [1, 2, 1, 0, 2, 1]),
        ([0, 1, 0, 1, 0, 1], {"classes": 4}, "classification", (0, 1, 2, 3), [0, 1] * 3),
        ([0, 7, 0, 7, 0, 7], {"classes": np.array([7, 0])}, "classification", (7, 0), [1, 0] * 3),
        ([0.0, 2.0, 0.0, 2.0, 0.0, 2.0], {"task": "classification"}, "classification", (0, 2), [0, 1] * 3),
        ([0.0, 2.0, 0.0, 2.0, 0.0, 2.0], {"classes": 3}, "classification", (0, 1, 2), [0, 2] * 3),
        (np.array([[1], [2]] * 3), {}, "classification", (1, 2), [0, 1] * 3),
        ([0, 1, 0, 1, 0, 1], {"task": "regression"}, "regression", None, [[0.0], [1.0]] * 3),
        ([0.5, 1, 0.5, 1, 0.5, 1], {}, "regression", None, [[0.5], [1.0]] * 3),
        ([[0.5, 1], [2, 3]] * 3, {}, "regression", None, [[0.5, 1.0], [2.0, 3.0]] * 3),
    ],
)
def test_labels_say_what_the_task_is(labels, options, task, classes, codes):
    federation = Federation.from_arrays(X, labels, [1] * 6, **options)
    assert (federation.task, federation.classes, federation.labels.tolist()) == (task, classes, codes)
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
    assert federation.labels.tolist() == [[0, 1, 2, 0], [2, 0, 2, 1], [1, 1, 0, 2]]  # no class: the first one
    assert Federation.from_arrays(WORDS, NEXT, [1, 2, 3], mask=np.ones((3, 4)), split=[0, 0, 0]).mask is None
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
    assert identity([1]) == identity([np.int32(1)]) == identity(np.array([1], np.uint64)) == identity(pd.Series([1]))
    assert identity([1]) != identity(["1"])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_arrays_of_names_are_lists_of_names(who):
    def owned(clients):
        federation = Federation.from_arrays(np.arange(len(who))[:, None], [0] * len(who), clients, split=[0] * len(who))
        return federation.clients, federation.owner.tolist(), federation.features.tolist()

    assert owned(who) == owned(np.array(who)) == owned(np.array(who, object)) == owned(pd.Series(who))
    names = [f"name{each}" for each in who]
    assert owned(names) == owned(np.array(names)) == owned(pl.Series(names))


def test_parts_may_be_clients_batches_or_single_samples():
    whole = small()
    batches = [("ann", X[[0, 2, 4]], Y[[0, 2, 4]]), ("bob", X[1::2], Y[1::2])]
    same(whole, Federation.from_clients(batches))
    same(whole, Federation.from_clients(zip(WHO, X, Y, strict=True)))
    same(whole, Federation.from_clients((name, x.tolist(), int(y)) for name, x, y in zip(WHO, X, Y, strict=True)))
    same(
        whole, Federation.from_clients([("ann", X[0], Y[:1]), ("bob", X[1:2], Y[1]), *zip(WHO[2:], X[2:], Y[2:], strict=True)])
    )
    split = ["train", "val", "valid", "TEST", 0, 1.0]
    same(small(split=split), Federation.from_clients(zip(WHO, X, Y, strict=True), split=split))
    same(
        Federation.from_arrays(WORDS, NEXT, [1, 1, 2], mask=REAL),
        Federation.from_clients([(1, WORDS[:2], NEXT[:2]), (2, WORDS[2:], NEXT[2:])], mask=REAL),
    )


def test_it_describes_itself():
    federation = small(split=["train", "test", "train", "test", "validation", "test"])
    assert repr(federation) == str(federation) == (
        "Federation: 2 clients · classification · 2 features · 2 classes\n"
        "samples: 6, a client has 3 to 3, median 3\n"
        "split: train 2, validation 1, test 3\n"
        "1 client without training samples: never drawn, served by the shared model"
    )  # fmt: skip
    assert federation._repr_html_().startswith("<pre>Federation")
    assert federation.table() == [
        {"client": "ann", "samples": 3, "train": 2, "validation": 1, "test": 0},
        {"client": "bob", "samples": 3, "train": 0, "validation": 0, "test": 3},
    ]
    assert len(federation) == 2
    masked = str(Federation.from_arrays(WORDS, NEXT, [1] * 3, mask=REAL))
    assert "sequences of 4 positions" in masked
    assert "padding: 33.3% of the positions" in masked


def test_copies_and_pickles_are_the_same():
    federation = replace(small(), truth={"shared": np.ones(2)})
    same(federation, pickle.loads(pickle.dumps(federation)))
    same(federation, copy.deepcopy(federation))


def test_importing_it_imports_nothing_heavy():
    code = (
        "import sys, fedasym.federations.federation as f; f.Federation.from_arrays([[1.0]], [0], [1]);"
        "print([name for name in ('jax', 'polars', 'pandas', 'pyarrow', 'safetensors', 'scipy') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


# Splits


def plain_split(count, identity, seed, fractions):
    """The split of one client by the rule as it is told, with whole numbers of Python."""
    _, v, t = fractions
    test, validation = int(t * count + 0.5), int(v * count + 0.5)
    if count >= 3:
        test, validation = max(test, int(t > 0)), max(validation, int(v > 0))
    elif count == 2:
        test, validation = int(t > 0), int(v > 0 and t == 0)
    else:
        test, validation = 0, 0
    while test + validation >= count and test + validation > 0:
        if test > validation:
            test -= 1
        else:
            validation -= 1
    keys = sorted((int(mix(seed, SPLIT, np.uint64(identity), position)), position) for position in range(count))
    split = [0] * count
    for rank, (_, position) in enumerate(keys):
        split[position] = 2 if rank < test else 1 if rank < test + validation else 0
    return split


@st.composite
def fractions(draw):
    parts = draw(st.tuples(st.integers(1, 20), st.integers(0, 20), st.integers(0, 20)))
    return tuple(part / sum(parts) for part in parts)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), fractions(), st.integers(0, 2**64 - 1))
def test_split_is_the_plain_loop(counts, shares, seed):
    identities = np.arange(len(counts), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    owner = np.repeat(np.arange(len(counts)), counts)
    split = assigned(owner, identities, seed, shares)
    expected = [plain_split(count, identity, seed, shares) for count, identity in zip(counts, identities, strict=True)]
    assert split.tolist() == [code for client in expected for code in client]


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 300), fractions())
def test_every_client_trains_and_shares_are_rounded(count, shares):
    validation, test = (int(each[0]) for each in sizes(np.array([count]), shares))
    train = count - validation - test
    assert train >= 1
    assert min(validation, test) >= 0
    kinds = dict(zip(SPLITS, zip((train, validation, test), shares, strict=True), strict=True))
    for number, share in kinds.values():
        assert number == 0 or share > 0
        if count >= 3 and share > 0:
            assert number >= 1
        assert abs(number - share * count) <= 2
    assert math.isclose(sum(number for number, _ in kinds.values()), count)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_clients_split_does_not_depend_on_the_others(data):
    counts = data.draw(st.dictionaries(st.integers(0, 99), st.integers(1, 20), min_size=2, max_size=6))
    order = data.draw(st.permutations(list(counts)))
    left = order[: data.draw(st.integers(1, len(order)))]
    who = data.draw(st.permutations([name for name in left for _ in range(counts[name])]))
    whole = [name for name in counts for _ in range(counts[name])]
    one = Federation.from_arrays(np.ones((len(whole), 1)), [0] * len(whole), whole, seed=3)
    other = Federation.from_arrays(np.ones((len(who), 1)), [0] * len(who), who, seed=3)
    for name in left:
        assert one.client(name).split.tolist() == other.client(name).split.tolist()


def test_seeds_differ_and_samples_are_drawn_evenly():
    one, other = (Federation.from_arrays(np.ones((100, 1)), [0] * 100, [1] * 100, seed=seed) for seed in (0, 1))
    assert one.split.tolist() != other.split.tolist()
    tested = np.mean(
        [Federation.from_arrays(np.ones((10, 1)), [0] * 10, [1] * 10, seed=seed).split == 2 for seed in range(500)], axis=0
    )
    assert np.all(np.abs(tested - 0.1) < 0.054)  # four standard errors


@settings(max_examples=40, deadline=None)
@given(federations(), st.integers(0, 2**64 - 1))
def test_resplits(federation, seed):
    kept = federation.resplit(seed)
    assert np.array_equal(kept.split == 2, federation.split == 2)
    for name in SPLITS:  # the test set is as the default fractions make it, so all counts stay
        assert np.array_equal(kept.counts(name), federation.counts(name))
    assert kept.features is not None
    same(replace(federation, split=kept.split), kept)
    names = np.array(federation.clients, object)[federation.owner]
    fresh = Federation.from_arrays(federation.features, np.zeros(federation.features.shape[:-1], int), names, seed=seed)
    assert np.array_equal(federation.resplit(seed, keep_test=False).split, fresh.split)
    assert np.array_equal(fresh.resplit(seed).split, fresh.split)
    counted = kept.resplit(seed, fractions=None)
    assert all(np.array_equal(counted.counts(name), federation.counts(name)) for name in SPLITS)


def test_resplit_beside_a_test_set_of_its_own_size():
    federation = Federation.from_arrays(np.ones((100, 1)), [0] * 100, [1] * 100, split=[2] * 55 + [1] * 2 + [0] * 43)
    again = federation.resplit(5)
    assert [int(again.counts(name)[0]) for name in SPLITS] == [40, 5, 55]  # 8 to 1 of the 45 that are left
    as_before = federation.resplit(5, fractions=None)
    assert [int(as_before.counts(name)[0]) for name in SPLITS] == [43, 2, 55]
    assert [int(federation.resplit(5, False, None).counts(name)[0]) for name in SPLITS] == [43, 2, 55]


def test_three_samples_may_have_codes_or_fractions():
    def splits(split):
        return Federation.from_arrays(np.ones((3, 1)), [0] * 3, [1] * 3, split=split).split.tolist()

    assert splits([1, 0, 2]) == splits(np.array([1, 0, 2])) == splits(("val", "train", "test")) == [1, 0, 2]
    assert splits([1.0, 0.0, 0.0]) == splits((1, 0, 0)) == [0, 0, 0]
    assert sorted(splits([0.8, 0.1, 0.1])) == sorted(splits(np.array([0.8, 0.1, 0.1]))) == [0, 1, 2]


# Frames


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(federations(sequences=False))
def test_frames_give_what_arrays_give(federation):
    names = [federation.clients[i] for i in federation.owner]
    labels = federation.labels[:, 0] if federation.classes is None else np.array(federation.classes)[federation.labels]
    split = [SPLITS[code] for code in federation.split]
    columns = [f"x{j}" for j in range(federation.dimension)]
    data = {"who": names, "what": labels, "when": split, **dict(zip(columns, federation.features.T, strict=True))}
    expected = Federation.from_arrays(federation.features, labels, names, split=split)
    for frame in (pl.DataFrame(data), pl.DataFrame(data).lazy(), pd.DataFrame(data), pd.DataFrame(data)[::-1][::-1]):
        same(expected, Federation.from_frame(frame, label="what", client="who", split="when"))
        same(expected, Federation.from_frame(frame, label="what", client="who", split="when", features=columns))
    lists = [row.tolist() for row in federation.features]
    fixed = Federation.from_arrays(federation.features.astype(float), labels, names, split=split)
    for frame in (pl.DataFrame({**data, "x": lists}), pd.DataFrame({**data, "x": lists})):
        same(fixed, Federation.from_frame(frame, label="what", client="who", split="when", features="x"))


def test_frames_of_sequences_of_several_outputs_and_of_categories():
    frame = pl.DataFrame({"who": [1, 2, 1], "x": WORDS, "y": NEXT, "real": REAL})
    expected = Federation.from_arrays(WORDS, NEXT, [1, 2, 1], mask=REAL, seed=4)
    same(expected, Federation.from_frame(frame, label="y", client="who", features="x", mask="real", seed=4))
    rows = {"who": [1, 2, 1], "x": [list(each) for each in WORDS], "y": list(NEXT), "real": list(REAL)}
    same(expected, Federation.from_frame(pd.DataFrame(rows), label="y", client="who", features="x", mask="real", seed=4))
    lists = frame.with_columns(pl.col("y").arr.to_list())
    same(expected, Federation.from_frame(lists, label="y", client="who", features=["x"], mask=REAL, seed=4))

    frame = pl.DataFrame(
        {"who": list("aab"), "note": list("xyz"), "flag": [True] * 3, "x": [1, 2, 3], "u": [0.5] * 3, "v": [1] * 3}
    )
    two = Federation.from_frame(frame, label=["u", "v"], client="who")
    assert (two.outputs, two.dimension, two.task) == (2, 1, "regression")
    same(two, Federation.from_frame(frame.to_pandas(), label=("u", "v"), client="who", split=(0.8, 0.1, 0.1)))
    same(two, Federation.from_frame(frame.to_arrow(), label=["u", "v"], client="who"))
    named = frame.with_columns(pl.col("note").cast(pl.Categorical), pl.col("who").cast(pl.Enum(["a", "b"])))
    expected = Federation.from_frame(frame, label="note", client="who", features=["flag", "x"])
    same(expected, Federation.from_frame(named, label="note", client="who", features=["flag", "x"]))
    same(expected, Federation.from_frame(named.to_pandas(), label="note", client="who", features=["flag", "x"]))
    decimal = frame.with_columns(pl.col("u").cast(pl.Decimal(10, 2)))
    assert Federation.from_frame(decimal, label="u", client="who", features=["x"]).labels.ravel().tolist() == [0.5] * 3
    nullable = frame.to_pandas().convert_dtypes()
    same(two, Federation.from_frame(nullable, label=["u", "v"], client="who"))


# Files


@pytest.mark.parametrize("suffix", ["safetensors", "parquet"])
def test_files_bring_back_the_same(suffix, tmp_path):
    path, read = tmp_path / f"data.{suffix}", getattr(Federation, f"from_{suffix}")

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(federations())
    def check(federation):
        assert federation.save(path) == path
        same(federation, read(str(path)))

    check()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]  # nothing is left beside it


@pytest.mark.parametrize("suffix", ["safetensors", "parquet"])
def test_files_keep_classes_that_do_not_occur_and_large_names(suffix, tmp_path):
    federation = Federation.from_arrays(X, Y, [2**64 - 1] * 6, classes=5)
    same(federation, getattr(Federation, f"from_{suffix}")(federation.save(tmp_path / f"a.{suffix}")))


def test_names_too_large_for_parquet_are_sent_to_safetensors(tmp_path):
    federation = Federation.from_arrays(X, Y, [2**130] * 6)
    with pytest.raises(fa.InvalidInput, match=r"too large for Parquet: save to \.safetensors"):
        federation.save(tmp_path / "a.parquet")
    same(federation, Federation.from_safetensors(federation.save(tmp_path / "a.safetensors")))


def test_truth_is_kept_in_safetensors(tmp_path):
    truth = {
        "shared": np.arange(3.0),
        "noise": np.array(0.5),
        "personal": np.ones((2, 3), np.float32)[:, ::2],
        "k": np.arange(2),
    }
    federation = replace(small(), truth=truth)
    again = Federation.from_safetensors(federation.save(tmp_path / "a.safetensors"))
    same(federation, again)
    assert again.truth["noise"].shape == ()
    with pytest.raises(fa.InvalidInput, match=r"truth does not fit a table: save to a \.safetensors"):
        federation.save(tmp_path / "a.parquet")
    with pytest.raises(fa.InvalidInput, match=r"truth\['name'\] holds .*give numbers"):
        replace(small(), truth={"name": np.array(["a"])})


def test_equal_federations_make_equal_files(tmp_path):
    one, other = small(), Federation.from_clients(zip(WHO, X, Y, strict=True))
    for suffix in ("safetensors", "parquet"):
        assert one.save(tmp_path / f"1.{suffix}").read_bytes() == other.save(tmp_path / f"2.{suffix}").read_bytes()


def test_any_parquet_file_is_a_table(tmp_path):
    frame = pd.DataFrame({"client": WHO, "a": X[:, 0], "b": X[:, 1], "label": Y})
    path = tmp_path / "table.parquet"
    frame.to_parquet(path)
    same(small(), Federation.from_parquet(path))
    same(small(seed=2), Federation.from_parquet(path, seed=2))
    same(Federation.from_arrays(X[:, 1:], Y, WHO), Federation.from_parquet(path, features=["b"]))
    frame.rename(columns={"client": "who", "label": "what"}).to_parquet(path)
    same(small(), Federation.from_parquet(path, client="who", label="what"))


def test_a_saved_parquet_file_is_readable_by_others_and_as_a_plain_table(tmp_path):
    federation = Federation.from_arrays(X, [*"ababbb"], WHO)
    path = federation.save(tmp_path / "a.parquet")
    frame = pd.read_parquet(path)
    assert frame.columns.tolist() == ["client", "split", "label", "features"]
    assert frame["label"].tolist() == [federation.classes[code] for code in federation.labels]
    same(federation, Federation.from_parquet(path, split="split"))
    same(federation, Federation.from_parquet(path, split=None, classes=None, seed=9))
    same(federation, Federation.from_frame(frame, label="label", client="client", split="split"))


def test_a_failed_save_leaves_what_was_there(tmp_path):
    code = (
        "import resource, sys, numpy as np; from fedasym.federations.federation import Federation\n"
        "big = Federation.from_arrays(np.random.default_rng(0).random((500, 9)), [0] * 500, [1] * 500)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "for path in sys.argv[1:]:\n"
        "    try: big.save(path)\n"
        "    except Exception as error: print(type(error).__name__, error)\n"
    )
    paths = [small().save(tmp_path / f"a.{suffix}") for suffix in ("safetensors", "parquet")]
    before = [path.read_bytes() for path in paths]
    done = subprocess.run([sys.executable, "-c", code, *map(str, paths)], capture_output=True, text=True, check=True)
    for path, line in zip(paths, done.stdout.splitlines(), strict=True):
        assert line.startswith(f"InvalidInput path is {str(path)!r}: it cannot be written: ")
        assert "too large" in line
    assert [path.read_bytes() for path in paths] == before
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("suffix", ["safetensors", "parquet"])
def test_damage_is_noticed_wherever_it_is(suffix, tmp_path):
    read = getattr(Federation, f"from_{suffix}")
    rng = np.random.default_rng(0)
    federation = Federation.from_arrays(
        rng.random((60, 4)).astype(np.float32), rng.integers(3, size=60), rng.integers(5, size=60)
    )
    whole = federation.save(tmp_path / f"a.{suffix}").read_bytes()
    path = tmp_path / f"bad.{suffix}"
    cuts = [whole[:size] for size in (0, 7, len(whole) // 2, len(whole) - 1)]
    flips = [whole[:i] + bytes([whole[i] ^ 16]) + whole[i + 1 :] for i in range(0, len(whole), 41)]
    told = 0
    for content in [*cuts, *flips]:
        path.write_bytes(content)
        try:
            same(federation, read(path))  # a byte that says nothing, such as a statistic
        except fa.InvalidInput as error:
            told += str(path) in str(error) or pytest.fail(str(error))
    assert told > 0.6 * len([*cuts, *flips])


def test_foreign_files_are_refused_by_name(tmp_path):
    from safetensors.numpy import save_file

    other = tmp_path / "other.safetensors"
    save_file({"weight": np.ones(3)}, other)
    with pytest.raises(fa.InvalidInput, match=r"other.safetensors': this is not a federation that save wrote; use from_arrays"):
        Federation.from_safetensors(other)
    save_file({"weight": np.ones(3)}, other, metadata={"fedasym": "[1]"})
    with pytest.raises(fa.InvalidInput, match="this is not a federation"):
        Federation.from_safetensors(other)
    held = {"format": "fedasym federation 1", "clients": ["a"], "classes": None}
    save_file({"features": np.ones(3)}, other, metadata={"fedasym": json.dumps(held)})
    with pytest.raises(fa.InvalidInput, match=r"other.safetensors': an array is missing"):
        Federation.from_safetensors(other)
    for read in (Federation.from_safetensors, Federation.from_parquet):
        with pytest.raises(fa.InvalidInput, match=r"nothing.here': there is no such file"):
            read(tmp_path / "nothing.here")
        with pytest.raises(fa.InvalidInput, match=f"{tmp_path.name}': this is a folder"):
            read(tmp_path)
        text = tmp_path / "notes.txt"
        text.write_text("not a table")
        with pytest.raises(fa.InvalidInput, match=r"notes.txt': it cannot be read as"):
            read(text)
    table = tmp_path / "table.parquet"
    pd.DataFrame({"client": WHO, "labels": Y}).to_parquet(table)
    with pytest.raises(fa.InvalidInput, match=r"table.parquet': unknown label column 'label': did you mean labels"):
        Federation.from_parquet(table)


def test_an_edited_parquet_file_is_told_apart(tmp_path):
    federation = small()
    path = federation.save(tmp_path / "a.parquet")
    metadata = {"fedasym": pl.read_parquet_metadata(path)["fedasym"]}
    pl.read_parquet(path).head(5).write_parquet(path, metadata=metadata)
    with pytest.raises(fa.InvalidInput, match="damaged or edited after it was saved; to read it as a plain table, name"):
        Federation.from_parquet(path)
    assert Federation.from_parquet(path, features="features").split.tolist() == federation.split[:5].tolist()
    pl.read_parquet(path).drop("split").write_parquet(path, metadata=metadata)
    with pytest.raises(fa.InvalidInput, match="damaged or edited"):
        Federation.from_parquet(path)


def test_a_table_keeps_the_split_and_mask_it_brings(tmp_path):
    federation = Federation.from_arrays(WORDS, NEXT, [1, 2, 1], mask=REAL, split=[0, 2, 1])
    path = federation.save(tmp_path / "a.parquet")
    pq.write_table(pq.read_table(path), path)  # no longer known as saved
    same(federation, Federation.from_parquet(path))
    assert Federation.from_parquet(path, split=(1, 0, 0)).split.tolist() == [0, 0, 0]
    same(federation, Federation.from_parquet(path, features=None, split=None, seed=3))


def test_missing_packages_are_named(tmp_path, monkeypatch):
    for package in ("polars", "safetensors", "safetensors.numpy"):
        monkeypatch.setitem(sys.modules, package, None)
    for suffix in ("parquet", "safetensors"):
        with pytest.raises(ImportError, match=r"pip install 'fedasym\[train\]'"):
            small().save(tmp_path / f"a.{suffix}")
    assert list(tmp_path.iterdir()) == []


# What is refused


class Later:
    """A stand-in for a value that a frame marks as missing."""


NAN = np.where(np.arange(12).reshape(6, 2) == 7, np.nan, X)
FRAME = pl.DataFrame({"who": WHO, "x": X[:, 0], "y": Y, "text": list("abcdef")})
LABELLED, SHORT = {"label": "y", "client": "who"}, {"label": "y", "client": "w"}
arrays, parts, frame = Federation.from_arrays, Federation.from_clients, Federation.from_frame


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: arrays(NAN, Y, WHO), r"hold 1 NaN .* client 'bob', row 3 \(its own row 1\), column 1: drop"),
        (lambda: arrays(np.where(X > 5, np.inf, X), Y, WHO), r"hold 6 NaN or infinite .* 'bob', row 3 .*column 0"),
        (lambda: arrays(X[:5], Y, WHO), "features have 5 rows and clients 6 names: give one name per row"),
        (lambda: arrays(X, Y[:5], WHO), r"labels have shape \(5,\) for 6 samples"),
        (lambda: arrays(X, 3, WHO), r"labels have shape \(\) for 6 samples"),
        (lambda: arrays([], [], []), "no samples: .*give at least one"),
        (lambda: arrays(X[:, :0], Y, WHO), r"features have shape \(6, 0\): give at least one"),
        (lambda: arrays(X[:, 0], Y, WHO), r"features have shape \(6,\): .*reshape\(-1, 1\)"),
        (lambda: arrays(np.ones((6, 2, 2, 3)), Y, WHO), r"shape \(6, 2, 2, 3\): .*flatten each sample"),
        (lambda: arrays([["a", "b"]] * 6, Y, WHO), "features hold str.*: give numbers; encode text"),
        (lambda: arrays([[1, 2], [3]] * 3, Y, WHO), "features cannot be read as an array of numbers: "),
        (lambda: arrays([[1j]] * 6, Y, WHO), "features hold complex128"),
        (lambda: arrays(np.full((6, 1), 2**24 + 1), Y, WHO), "whole number 16777217, which float32 cannot"),
        (lambda: arrays(np.full((6, 1), -(2**40)), Y, WHO), "whole number -1099511627776"),
        # labels
        (lambda: arrays(X, [0.5, np.nan] * 3, WHO), r"labels hold 3 NaN .* client 'bob', row 1 \(its own row 0\)"),
        (lambda: arrays(X, ["a", None] * 3, WHO), "label at client 'bob', row 1 .* is None: drop"),
        (lambda: arrays(X, ["a", np.nan] * 3, WHO), "label at client 'bob', row 1 .* is nan: drop"),
        (lambda: arrays(X, ["a", 1] * 3, WHO), "label at client 'bob', row 1 .* is 1, of type int, while .* 'a'"),
        (lambda: arrays(X, [Later()] * 6, WHO), "label at client 'ann', row 0 .*Later.*all numbers or all str"),
        (lambda: arrays(X, [2**70] * 6, WHO), "do not fit 64 bits"),
        (lambda: arrays(X, [b"a"] * 6, WHO), "label at client 'ann', row 0 .*bytes"),
        (lambda: arrays(X, np.array([b"a"] * 6), WHO), r"labels hold bytes8: decode them"),
        (lambda: arrays(X, [[1], [1, 2]] * 3, WHO), "labels cannot be read as an array"),
        (lambda: arrays(X, np.eye(6, dtype=int), WHO), r"labels have shape \(6, 6\).*argmax\(-1\)"),
        (lambda: arrays(X, np.ones((6, 2, 2)), WHO), r"labels have shape \(6, 2, 2\): give \(6,\), or one more"),
        (lambda: small(classes=1), "label at client 'bob', row 1 .* is 1, not among the 1 classes 0: "),
        (lambda: arrays(X, Y - 1, WHO, classes=2), "label at client 'ann', row 0 .* is -1, not among the 2 classes"),
        (lambda: small(classes=["cat", "dog"]), "is 0, not among the 2 classes 'cat', 'dog': classes=2 takes codes 0 to 1"),
        (lambda: arrays(X, list("abcabc"), WHO, classes=list("ab")), "'ann', row 2 .* is 'c', not among the 2"),
        (lambda: small(classes=0), "classes is 0: give the number"),
        (lambda: small(classes=True), "classes is True: give the number"),
        (lambda: small(classes="cat"), "classes is 'cat': give the number"),
        (lambda: small(classes=["a", "a"]), "classes is .*each once"),
        (lambda: small(classes=["a", 1]), "classes is .*all strings or all whole"),
        (lambda: small(classes=[]), r"classes is \[\]"),
        (lambda: small(classes=2, task="regression"), "task is 'regression' and classes is 2: leave one"),
        (lambda: small(task="clasification"), "unknown task 'clasification': did you mean classification"),
        (lambda: arrays(X, [0.5, 1] * 3, WHO, task="classification"), "'ann', row 0 .* is 0.5, no whole number"),
        (lambda: arrays(X, list("abcabc"), WHO, task="regression"), "task is 'regression' while .* 'a': give"),
        # sequences
        (lambda: arrays(WORDS, [0, 1, 2], [1, 2, 3]), r"shape \(3,\) while features have 4 positions: .*flatten"),
        (lambda: arrays(WORDS, NEXT[:, :3], [1, 2, 3]), r"shape \(3, 3\) while features have 4 positions"),
        (lambda: small(mask=np.ones((6, 2))), r"mask has shape \(6, 2\) .*it is for sequences"),
        (lambda: arrays(WORDS, NEXT, [1, 2, 3], mask=REAL[:, :3]), r"mask has shape \(3, 3\): it must be \(3, 4\)"),
        (lambda: arrays(WORDS, NEXT, [1, 2, 3], mask=REAL * 2), "mask holds int64: give True"),
        (lambda: arrays(WORDS, NEXT, [1, 2, 1], mask=REAL & [[1], [1], [0]]), "client 1, row 2 .*no real position"),
        (
            lambda: arrays(np.where(WORDS == 11, np.nan, WORDS), NEXT, [1, 2, 1], mask=REAL),
            r"hold 1 NaN .*client 2, row 1 \(its own row 0\), position 1, column 1",
        ),
        (
            lambda: arrays(WORDS, np.where(NEXT == 2, np.nan, 1.0), [1, 2, 1], mask=REAL),
            "labels hold 3 NaN .*client 1, row 0 .*, position 2",
        ),
        (lambda: arrays(WORDS, NEXT, [1, 2, 1], classes=2), "client 1, row 0 .*, position 2 is 2, not among"),
        # clients
        (lambda: arrays(X, Y, ["a", 1] * 3), "client of row 1 is 1, of type int while row 0 has 'a': .*str"),
        (lambda: arrays(X, Y, [0.5] * 6), "client of row 0 is 0.5, of type float: names are all strings or"),
        (lambda: arrays(X, Y, [True] * 6), "client of row 0 is True, of type bool"),
        (lambda: arrays(X, Y, [b"a"] * 6), "client of row 0 is b'a', of type bytes"),
        (lambda: arrays(X, Y, [*WHO[:5], None]), "entry 5 of clients is None: give every row a client"),
        (lambda: arrays(X, Y, [np.nan] * 6), "entry 0 of clients is nan"),
        (lambda: arrays(X, Y, "abcdef"), "clients is 'abcdef': give a list of names"),
        (lambda: arrays(X, Y, 3), "clients is 3: give a list of names"),
        (lambda: arrays(X, Y, [[1]] * 6), r"label of a client is \[1\]"),
        (lambda: arrays(X, Y, ["\ud800"] * 6), "client name .* is no valid text: rename"),
        # splits
        (lambda: small(split=(0.8, 0.1, 0.2)), r"split is \(0.8, 0.1, 0.2\): they sum to 1.1 and must sum to 1"),
        (lambda: small(split=(1.2, -0.1, -0.1)), "at least 0"),
        (lambda: small(split=(np.nan, 0, 1)), "finite"),
        (lambda: small(split=(0, 0.5, 0.5)), "without training samples there is nothing to learn"),
        (lambda: small(split=(0.8, 0.2)), "split has 2 values for 6 samples: give one per sample, or three fractions"),
        (lambda: small(split="half"), "split is 'half': give three fractions .* or one of train, validation, test per sample"),
        (lambda: small(split=0.8), "split is 0.8: give three fractions"),
        (lambda: small(split=["train"] * 5 + ["tset"]), r"client 'bob', row 5 .*: unknown split 'tset': did you mean test"),
        (lambda: small(split=[0, 1, 2, 3, 0, 0]), "client 'bob', row 3 .*: unknown split 3: known are .*or 0, 1, 2"),
        (lambda: small(split=[0, 0, 0, 0, 0, None]), "client 'bob', row 5 .*: unknown split None"),
        (lambda: small(split=[True] * 6), "unknown split True"),
        (lambda: small(split=["test"] * 6), "split leaves no training sample at all"),
        (lambda: small(seed=-1), "seed is -1: it must be a whole number from 0"),
        (lambda: small(seed=0.5), "seed is 0.5"),
        (lambda: small(seed=2**64), "seed is 18446744073709551616"),
        (lambda: small().resplit(0, fractions=(0.5, 0.5)), r"fractions is \(0.5, 0.5\): give three fractions"),
        (lambda: small().resplit("a"), "seed is 'a'"),
        (lambda: small().counts("val"), "unknown split 'val': .*known are train, validation, test"),
        (lambda: small().rows("anna"), "unknown client 'anna': did you mean ann"),
        (lambda: arrays(np.ones((50, 1)), [0] * 50, range(50)).rows(99), "unknown client 99: .*30 more"),
        (lambda: small().rows("ann", "dev"), "unknown split 'dev'"),
        # part by part
        (lambda: parts([]), "no samples: give at least one"),
        (lambda: parts(3), "the clients are 3: give an iterable"),
        (lambda: parts([("ann", X)]), r"part 0 is not \(client, features, labels\)"),
        (lambda: parts([("ann", X, Y), ("bob", X[:, :1], Y)]), r"client 'bob' \(part 1\) has samples of shape \(1,\)"),
        (lambda: parts([("ann", X, Y), ("bob", X, Y[:, None])]), r"'bob' \(part 1\) has labels of shape \(1,\)"),
        (lambda: parts([("ann", X, Y), ("bob", X, list("abcdef"))]), r"'bob' \(part 1\) has labels .*same kind"),
        (lambda: parts([("ann", X, Y[:4])]), r"'ann' \(part 0\): features have shape \(6, 2\) and labels \(4,\)"),
        (lambda: parts([("ann", X[:, 0], Y)]), r"'ann' \(part 0\): .*one sample, and labels \(6,\): give one label"),
        (lambda: parts([("ann", X[:0], Y[:0])]), r"'ann' \(part 0\): .*leave out clients without"),
        (lambda: parts([("ann", [["a"]], [0])]), r"'ann' \(part 0\): features hold str"),
        (lambda: parts([("ann", X, Y), ("bob", NAN, Y)]), r"client 'bob', row 9 \(its own row 3\), column 1"),
        # frames
        (lambda: frame(X, **LABELLED), "frame is a numpy.ndarray: give a polars or pandas"),
        (lambda: frame(FRAME, label="z", client="who"), "unknown label column 'z': .*known are who, x, y"),
        (lambda: frame(FRAME, **SHORT), "unknown client column 'w'"),
        (lambda: frame(FRAME, **LABELLED, features=["xx"]), "unknown features column 'xx': did you mean x"),
        (lambda: frame(FRAME, **LABELLED, split="s"), "unknown split column 's'"),
        (lambda: frame(FRAME, **LABELLED, features=["y"]), "column 'y' is a feature and also"),
        (lambda: frame(FRAME, **LABELLED, features=["text"]), "features column 'text' holds String"),
        (lambda: frame(FRAME[["who", "y"]], **LABELLED), "no columns of numbers or lists: name"),
        (
            lambda: frame(pl.DataFrame({"a": [[1]], "b": [[1]], "y": [1], "w": [1]}), **SHORT),
            "there are 2 columns of lists",
        ),
        (
            lambda: frame(pl.DataFrame({"a": [[1]], "b": [1], "y": [1], "w": [1]}), **SHORT, features=["a", "b"]),
            "column 'a' holds lists: name it alone",
        ),
        (
            lambda: frame(pl.DataFrame({"a": [[1.0], [1.0, 2.0]], "y": [1, 1], "w": [1, 1]}), **SHORT),
            "column 'a', row 1 holds a list of 2 while the first has 1: .*mask",
        ),
        (
            lambda: frame(pd.DataFrame({"a": [[1.0], None], "y": [1, 1], "w": [1, 1]}), **SHORT),
            "column 'a', row 1 holds a list of 0 while",
        ),
        (
            lambda: frame(pd.DataFrame([[1, 2]], columns=["a", "a"]), label="a", client="a"),
            "several columns 'a': rename",
        ),
        (
            lambda: frame(FRAME.with_columns(y=pl.Series([1, None, 1, 1, 1, 1])), **LABELLED),
            "labels hold 1 NaN .*client 'bob', row 1",
        ),
        (
            lambda: frame(pd.DataFrame({"w": ["a", None], "x": [1, 2], "y": [1, 1]}), **SHORT),
            "entry 1 of clients is n",
        ),
        (
            lambda: frame(
                pd.DataFrame({"w": [1, 1], "x": pd.array([1, None], "Int64"), "y": pd.array([1, 2], "Int64")}), **SHORT
            ),
            "features hold 1 NaN .*client 1, row 1",
        ),
        (
            lambda: frame(
                pd.DataFrame({"w": [1, 1], "x": [1, 2], "y": pd.array(["a", None], "string")}), **SHORT
            ),
            "label at client 1, row 1 .*drop",
        ),
        (
            lambda: frame(pl.DataFrame({f"x{i}": [1] for i in range(99)}), label="x100", client="x1"),
            "unknown label column 'x100': did you mean .*94 more",
        ),
        # files, and fields that do not fit together
        (lambda: small().save("data.csv"), "path is 'data.csv': its name must end in .safetensors or .parquet"),
        (lambda: small().save("/nowhere/at/all.parquet"), "the folder '/nowhere/at' does not exist; make it first"),
        (lambda: replace(small(), owner=np.array([0, 1, 0, 1, 0, 1])), r"owner of shape \(6,\) does not fit .*from_arrays"),
        (lambda: replace(small(), split=np.full(6, 7)), "split of shape"),
        (lambda: replace(small(), labels=np.arange(6)), "labels of shape"),
        (lambda: replace(small(), features=X[:, :, None, None]), "features of shape"),
        (lambda: replace(small(), mask=np.ones((6, 2))), "mask of shape"),
        (lambda: replace(small(), clients=("ann", "ann")), "owner of shape"),
        (lambda: replace(small(), clients=("ann", 1)), "client of row 1 is 1"),
    ],
)  # fmt: skip
def test_bad_data_gets_a_sentence_that_says_where(call, says):
    with pytest.raises(fa.InvalidInput, match=says):
        call()


def test_a_path_that_cannot_be_replaced_is_named(tmp_path):
    target = tmp_path / "a.parquet"
    target.mkdir()
    with pytest.raises(fa.InvalidInput, match=r"a.parquet': it cannot be written: "):
        small().save(target)
    assert os.listdir(tmp_path) == ["a.parquet"]


@pytest.mark.parametrize("names", [None, "abcdef"])
def test_rare_classes_become_one(names):
    rng = np.random.default_rng(3)
    codes = rng.choice(6, (200, 4), p=[0.02, 0.4, 0.05, 0.3, 0.2, 0.03])
    mask = np.arange(4) < rng.integers(1, 5, 200)[:, None]
    labels, classes = (codes, 6) if names is None else (np.array(list(names))[codes], list(names))
    whole = Federation.from_arrays(np.zeros((200, 4, 2)), labels, np.arange(200) % 5, mask=mask, classes=classes)
    few = whole.merge_rare(3)
    counted = whole.labels[(whole.split == 0)[:, None] & whole.mask]
    kept = sorted(sorted(range(6), key=lambda code: -(counted == code).sum())[:2])  # counted one by one
    assert few.classes == tuple(whole.classes[code] for code in kept) + ((6,) if names is None else ("other",))
    expected = [[few.classes[-1] if code not in kept else whole.classes[code] for code in row] for row in whole.labels]
    assert [[few.classes[code] for code in row] for row in few.labels] == expected
    assert few.merge_rare(3) is few
    assert whole.merge_rare(6) is whole


def test_merging_keeps_names_apart_and_refuses_numbers(tmp_path):
    words = Federation.from_arrays(np.eye(4), ["other", "other", "a", "b"], [1] * 4, split=["train"] * 4)
    few = words.merge_rare(2)
    assert few.classes == ("other", "other, other")
    assert Federation.from_safetensors(few.save(tmp_path / "few.safetensors")).classes == few.classes
    with pytest.raises(fa.InvalidInput, match="classes is 1: it must be a whole number of at least 2"):
        words.merge_rare(1)
    with pytest.raises(fa.InvalidInput, match="the labels are numbers: only classes can be merged"):
        Federation.from_arrays(np.eye(2), [0.5, 1.5], [1, 2]).merge_rare(2)
