"""Federations in shards: what is written is what is read, whichever way one asks; and what is wrong
with a folder is said in a sentence, with nothing lost."""

import hashlib
import json
import os
import shutil
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file, save_file
from tests.command import fedasym

import fedasym as fa
from fedasym.data import shard_files
from fedasym.data.shard_files import INDEX, MANIFEST
from fedasym.data.shards import ShardedFederation

FIELDS = ("features", "labels", "split", "owner", "mask")


def clients_of(kind: str, m: int = 9) -> fa.Federation:
    """Clients of unequal sizes: classes, numbers, or sequences with padding."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 7, m)
    names = np.repeat([f"client {place}" for place in range(m)], sizes)
    shape = (len(names), 4, 2) if kind == "sequences" else (len(names), 3)
    x = rng.standard_normal(shape).astype(np.float32)
    if kind == "numbers":
        return fa.Federation.from_arrays(x.astype(float), x @ np.ones((3, 2)), clients=names)
    if kind == "sequences":
        mask = rng.random(shape[:2]) < 0.7
        mask[:, 0] = True
        words = rng.choice(["the", "owl", "sat"], shape[:2])
        return fa.Federation.from_arrays(
            x, words, clients=names, mask=mask, classes=["the", "owl", "sat"]
        )
    told = {"names": ["a", "b", "c"], "personal": [True, False, True], "intercept": False}
    return fa.Federation.from_arrays(
        x, rng.integers(0, 3, len(x)), clients=names, classes=3, **told
    )


def alike(one: fa.Federation, other: fa.Federation) -> bool:
    same = all(
        np.array_equal(getattr(one, name), getattr(other, name))
        if getattr(other, name) is not None
        else getattr(one, name) is None
        for name in FIELDS
    )
    told = ("clients", "classes", "names", "intercept")
    return same and all(getattr(one, name) == getattr(other, name) for name in told)


@pytest.fixture(params=["safetensors", "parquet"])
def folder(tmp_path, request) -> Path:
    return clients_of("classes").save(tmp_path / "clients", shards=3, layout=request.param)


@pytest.mark.parametrize("layout", ["safetensors", "parquet"])
@pytest.mark.parametrize("kind", ["classes", "numbers", "sequences"])
def test_clients_are_read_as_they_were_written(kind, layout, tmp_path, monkeypatch):
    monkeypatch.setattr(shard_files, "GROUP_BYTES", 40)  # a few rows
    whole = clients_of(kind)
    opened = fa.Federation.open(whole.save(tmp_path / "clients", shards=4, layout=layout))
    assert {shard.path.suffix for shard in opened.shards} == {f".{layout}"}
    assert isinstance(opened, ShardedFederation)
    assert len(opened.shards) == 3
    assert alike(opened.take(range(9)), whole)
    assert alike(opened.take([7, 2, 3, 0]), whole.take([7, 2, 3, 0]))
    assert np.array_equal(opened.identities, whole.identities)
    assert list(opened.clients) == list(whole.clients)
    assert opened.clients[-1] == "client 8"
    for split in ("train", "validation", "test"):
        assert np.array_equal(opened.counts(split), whole.counts(split))
    for padding in (True, False):
        assert np.array_equal(opened.count_predictions(padding), whole.count_predictions(padding))
    np.testing.assert_allclose(opened.training_squares(), whole.training_squares(), rtol=1e-12)
    assert (opened.task, opened.outputs, opened.dimension) == (
        whole.task,
        whole.outputs,
        whole.dimension,
    )
    assert str(opened).splitlines()[:3] == str(whole).splitlines()[:3]
    if kind != "numbers":
        assert np.array_equal(opened.class_counts("train"), whole.class_counts("train"))
    one = opened.client("client 4")
    assert np.array_equal(one.features, whole.client("client 4").features)


def test_blocks_are_all_clients_once_and_no_larger_than_asked(folder):
    opened = fa.Federation.open(folder)
    blocks = list(opened.blocks(clients=2))
    assert [len(block) for block in blocks] == [2, 2, 2, 2, 1]
    assert sum((block.clients for block in blocks), ()) == tuple(opened.clients)
    each = opened.take([0]).features[:1].nbytes + 2  # a label and a split of a byte each
    ends = opened.block_ends(most=each * int(opened.sizes.max()))
    sizes = np.diff(opened.starts[ends])
    assert ends[-1] == 9
    assert sizes.max() <= opened.sizes.max()
    assert [len(part) for part in clients_of("classes").blocks(4)] == [4, 4, 1]


def test_a_stream_of_blocks_is_the_same_folder(folder, tmp_path):
    whole = clients_of("classes")
    streamed = fa.datasets.write_shards(iter(whole.blocks(2)), tmp_path / "streamed", clients=4)
    opened = fa.Federation.open(streamed)
    assert [shard.clients for shard in opened.shards] == [4, 4, 1]
    assert alike(opened.take(range(9)), whole)
    assert opened.digest == fa.Federation.open(folder).digest  # it is of the samples
    for layout in ("safetensors", "parquet"):
        again = opened.save(tmp_path / layout, shards=2, layout=layout)
        assert fa.Federation.open(again).digest == opened.digest


@pytest.mark.parametrize("layout", ["safetensors", "parquet"])
def test_anybody_may_write_the_layout(tmp_path, layout):
    """By the page on formats alone: NumPy, polars, safetensors, JSON and CRC-32."""
    features, labels = np.arange(8.0).reshape(4, 2), np.array([[1.0], [2.0], [3.0], [4.0]])
    split = np.array([0, 2, 0, 0], np.int8)
    told = json.dumps({"federation": "mine", "shard": 0})
    arrays = {"features": features, "labels": labels, "split": split}
    file = f"a.{layout}"
    if layout == "parquet":
        table = pl.DataFrame(arrays | {"labels": labels[:, 0]})
        table.write_parquet(tmp_path / file, metadata={"fedasym": told})
    else:
        save_file(arrays, tmp_path / file, metadata={"fedasym": told})
    sums = []
    for rows in (slice(0, 2), slice(2, 4)):
        total = 0
        for array in (features, labels, split):
            total = zlib.crc32(array[rows].tobytes(), total)
        sums.append(total)
    rows = {"client": [5, 7], "train": [1, 2], "validation": [0, 0], "test": [1, 0]}
    frame = pl.DataFrame(rows | {"crc32": sums, "squares": [1.0, 41.0 + 85.0]})
    frame.write_parquet(tmp_path / INDEX)
    about = {
        "format": "fedasym shards 1",
        "federation": "mine",
        "index": hashlib.sha256((tmp_path / INDEX).read_bytes()).hexdigest(),
        "dtype": "float64",
        "shape": [2],
        "classes": None,
        "shards": [{"file": file, "clients": 2, "samples": 4}],
    }
    (tmp_path / MANIFEST).write_text(json.dumps(about))
    opened = fa.datasets.read(tmp_path)
    assert opened.take([1]).labels.tolist() == [[3.0], [4.0]]
    np.testing.assert_allclose(opened.take([0, 1]).training_squares(), opened.training_squares())


def test_what_needs_all_samples_is_refused_in_words(folder):
    opened = fa.Federation.open(folder)
    for ask in (
        lambda: opened.features,
        lambda: opened.rows("client 1"),
        lambda: opened.resplit(seed=1),
        lambda: opened.merge_rare(2),
        lambda: fa.fit(opened),
    ):
        with pytest.raises(fa.InvalidInput, match=r"on disk.*take some of its clients"):
            ask()
    for name, places in {"client": "x", "places": [9]}.items():
        with pytest.raises(fa.InvalidInput, match=r"unknown client|from 0 to 8"):
            opened.client(places) if name == "client" else opened.take(places)


def damage(folder: Path, how: str) -> None:
    shards = sorted(folder.glob("shard-*"))
    table = shards[1].suffix == ".parquet"
    if how == "byte":
        data = bytearray(shards[1].read_bytes())
        data[100 if table else -40] ^= 255
        shards[1].write_bytes(data)
    elif how == "cut":
        os.truncate(shards[1], shards[1].stat().st_size - 5)
    elif how == "missing":
        shards[1].unlink()
    elif how == "swapped":
        one, two = (each.read_bytes() for each in shards[:2])
        shards[0].write_bytes(two)
        shards[1].write_bytes(one)
    elif how == "foreign":
        layout = shards[1].suffix[1:]
        other = clients_of("classes").save(folder.parent / "other", shards=3, layout=layout)
        shutil.copy(other / shards[1].name, shards[1])
    elif how == "header":
        shards[1].write_bytes(b"\x10" + bytes(7) + b"no text at all!!" + bytes(100))
    elif how == "index":
        (folder / INDEX).write_bytes((folder / INDEX).read_bytes()[:-1] + b"x")
    elif how == "manifest":
        (folder / MANIFEST).write_text("{}")
    elif how == "counts":
        held = json.loads((folder / MANIFEST).read_text())
        held["shards"][0]["clients"] += 1
        (folder / MANIFEST).write_text(json.dumps(held))
    elif how == "splits":  # whoever writes wrong labels with right checksums
        told = json.loads((folder / MANIFEST).read_text())["federation"]
        about = {"fedasym": json.dumps({"federation": told, "shard": 1})}
        if table:
            pl.read_parquet(shards[1]).reverse().write_parquet(shards[1], metadata=about)
            return
        arrays = load_file(shards[1])
        arrays["features"] = arrays["features"][::-1].copy()
        save_file(arrays, shards[1], metadata=about)


@pytest.mark.parametrize(
    ("how", "says"),
    {
        "byte": "is damaged(: the samples of client 'client|; put the right file)",
        "splits": "is damaged: the samples of client 'client 3'",
        "cut": "is damaged: (its arrays|it has no header)",
        "missing": "cannot be read: No such file",
        "swapped": "is number 1 of its federation and stands where number 0 belongs",
        "foreign": "of another federation",
        "header": "it has no header",
        "index": "is damaged, or of another federation",
        "manifest": "not of the format",
        "counts": "does not fit the shards",
    }.items(),
)
def test_a_damaged_folder_is_refused_in_a_sentence(folder, how, says):
    damage(folder, how)
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    with pytest.raises(fa.InvalidInput, match=says) as refusal:
        list(fa.Federation.open(folder).blocks())
    assert "\n" not in str(refusal.value)
    assert before == {each.name: each.read_bytes() for each in folder.iterdir()}


def test_damage_in_one_shard_leaves_the_others_readable(folder):
    damage(folder, "byte")
    opened = fa.Federation.open(folder)
    assert alike(opened.take([0, 1, 2, 8]), clients_of("classes").take([0, 1, 2, 8]))


def test_a_shard_that_goes_while_it_is_used_is_named(folder):
    opened = fa.Federation.open(folder)
    damage(folder, "missing")
    assert opened.take([0]).clients == ("client 0",)
    with pytest.raises(fa.InvalidInput, match=r"shard-00001.*cannot be read.*No such file"):
        opened.take([4])


def test_a_full_disk_leaves_nothing_behind(tmp_path):
    """The device that is always full takes the place of the second shard."""
    whole = clients_of("classes")

    def blocks():
        yield whole.take(range(4))
        (fresh,) = tmp_path.glob(".clients*")
        (fresh / "shard-00001.safetensors").symlink_to("/dev/full")
        yield whole.take(range(4, 9))

    with pytest.raises(
        fa.InvalidInput, match=r"path is .*clients.*cannot be written: .*[Nn]o space"
    ):
        fa.datasets.write_shards(blocks(), tmp_path / "clients", clients=4)
    assert list(tmp_path.iterdir()) == []


def test_a_stream_that_fails_leaves_nothing_and_touches_nothing(folder, tmp_path):
    whole = clients_of("classes")
    wrong = {
        "in two blocks": [whole, whole.take([3])],
        "other features, classes": [whole.take([0]), clients_of("numbers")],
        "truth does not fit": [replace(whole, truth={"heads": np.ones(2)})],
        "no clients": [],
    }
    for says, blocks in wrong.items():
        with pytest.raises(fa.InvalidInput, match=says):
            fa.datasets.write_shards(blocks, tmp_path / "new")
    with pytest.raises(fa.InvalidInput, match="there already"):
        whole.save(folder, shards=2)
    assert [each.name for each in tmp_path.iterdir()] == ["clients"]
    assert alike(fa.Federation.open(folder).take(range(9)), whole)


def test_the_command_shards_a_file_and_others_read_the_folder(tmp_path):
    file = clients_of("classes").save(tmp_path / "data.safetensors")
    done = fedasym("data", "shard", file, "--into", tmp_path / "clients")
    assert done.returncode == 0
    assert "9 clients" in done.stdout
    assert alike(fa.Federation.open(tmp_path / "clients").take(range(9)), clients_of("classes"))
    done = fedasym("data", "shard", file, "--into", tmp_path / "three", "--shards", 3)
    assert "9 clients" in done.stdout
    assert len([*(tmp_path / "three").rglob("*.safetensors")]) == 3
    assert alike(fa.Federation.open(tmp_path / "three").take(range(9)), clients_of("classes"))
    refused = fedasym("train", tmp_path / "clients", "--label", "y")
    assert refused.returncode != 0
    assert "as it was written" in refused.stderr
