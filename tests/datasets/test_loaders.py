"""Loaders of real data on tiny files in the true layouts: what comes out, and what a broken file is told."""

import gzip
import json
import lzma
import sys

import h5py
import numpy as np
import pytest
from PIL import Image

from fedasym.datasets import cifar100, digits, emnist, shakespeare, stackexchange, stackoverflow
from fedasym.errors import InvalidInput

RNG = np.random.default_rng(0)
TEXT = h5py.string_dtype()


def write(path, clients):
    """A file in TensorFlow Federated's layout from {client: {field: values}}; lists are strings."""
    with h5py.File(path, "w") as file:
        for client, fields in clients.items():
            group = file.create_group(f"examples/{client}")
            for field, values in fields.items():
                group.create_dataset(field, data=values, dtype=TEXT if isinstance(values, list) else None)


def decoded(federation, row):
    """One sequence's inputs and labels as words, padding left out."""
    real = np.ones(federation.labels.shape[1], bool) if federation.mask is None else federation.mask[row]
    inputs = federation.features[row, real, 0].astype(int)
    return [federation.classes[each] for each in inputs], [federation.classes[each] for each in federation.labels[row, real]]


def counts(federation):
    return [federation.counts(split).tolist() for split in ("train", "validation", "test")]


# Shakespeare


def shakespeare_files(folder, **changes):
    roles = {
        "LEAR_FOOL": {"snippets": ["Nuncle.", "x" * 200, ""]},  # 1 + 3 + 1 windows
        "LEAR_KENT": {"snippets": ["One line only."]},
    }
    write(folder / "shakespeare_train.h5", roles | changes)
    write(folder / "shakespeare_test.h5", {"LEAR_FOOL": {"snippets": ["é\n"]}, "LEAR_KENT": {"snippets": ["gone"]}})


def test_snippets_become_windows_of_next_characters(tmp_path):
    shakespeare_files(tmp_path)
    federation = shakespeare.load(tmp_path)
    assert federation.clients == ("LEAR_FOOL",)  # a role of one window has nothing to validate on
    assert counts(federation) == [[4], [1], [1]]
    assert federation.features.shape == (6, 80, 1)
    assert federation.features.dtype == np.float32
    assert federation.outputs == len(federation.classes) == 90
    assert decoded(federation, 0) == (["<begin>", *"Nuncle."], [*"Nuncle.", "<end>"])
    assert decoded(federation, 1) == (["<begin>", *"x" * 79], ["x"] * 80)
    assert decoded(federation, 3) == (["x"] * 39, [*"x" * 38, "<end>"])  # 202 tokens: 81, 81 and 40
    assert decoded(federation, 4) == (["<begin>"], ["<end>"])
    assert decoded(federation, 5) == (["<begin>", "<oov>", "<oov>", "\n"], ["<oov>", "<oov>", "\n", "<end>"])  # bytes of é
    assert federation.split[5] == 2


def test_a_window_of_the_end_alone_keeps_one_position(tmp_path):
    shakespeare_files(tmp_path, LEAR_FOOL={"snippets": ["y" * 80]})
    federation = shakespeare.load(tmp_path)
    assert decoded(federation, 1) == (["<end>"], ["<pad>"])


def test_texts_of_fixed_length_read_the_same(tmp_path):
    shakespeare_files(tmp_path)
    before = shakespeare.load(tmp_path)
    shakespeare_files(tmp_path, LEAR_FOOL={"snippets": np.array([b"Nuncle.", b"x" * 200, b""])})
    assert np.array_equal(shakespeare.load(tmp_path).features, before.features)


def test_the_seed_shuffles_training_and_validation_only(tmp_path):
    shakespeare_files(tmp_path, LEAR_FOOL={"snippets": ["line"] * 45})
    one, same, other = (shakespeare.load(tmp_path, seed=seed) for seed in (1, 1, 2))
    assert counts(one) == counts(other) == [[40], [5], [1]]
    assert np.array_equal(one.split, same.split)
    assert not np.array_equal(one.split, other.split)
    assert np.array_equal(other.split, one.resplit(seed=2, fractions=None).split)


# EMNIST


def writer(n, label=None):
    return {
        "pixels": RNG.random((n, 28, 28)).astype(np.float32),
        "label": (np.arange(n) % 62 if label is None else np.full(n, label)).astype(np.int32),
    }


def test_writers_keep_the_files_own_test_samples(tmp_path):
    train, test = {"f0": writer(9), "f1": writer(20)}, {"f1": writer(3, label=61), "f0": writer(2)}
    write(tmp_path / "fed_emnist_train.h5", train)
    write(tmp_path / "fed_emnist_test.h5", test)
    federation = emnist.load(tmp_path, seed=3)
    assert federation.clients == ("f0", "f1")
    assert counts(federation) == [[8, 17], [1, 3], [2, 3]]
    assert federation.features.shape == (34, 784)
    assert federation.features.dtype == np.float32
    assert federation.classes[61] == "z"
    for name in train:
        expected = np.concatenate([train[name]["pixels"], test[name]["pixels"]]).reshape(-1, 784)
        assert np.array_equal(federation.client(name).features, expected)
        assert np.array_equal(federation.client(name).labels, np.concatenate([train[name]["label"], test[name]["label"]]))


def test_digits_only_files(tmp_path):
    for part in ("train", "test"):
        write(tmp_path / f"fed_emnist_digitsonly_{part}.h5", {"f0": writer(5, label=9)})
    assert emnist.load(tmp_path, digits_only=True).outputs == 10


BROKEN = {
    "no field": ({"a": {"pixels": writer(2)["pixels"]}}, "client 'a', field 'label' is missing, and there is pixels"),
    "whole numbers": ({"a": writer(2) | {"pixels": np.zeros((2, 28, 28), int)}}, "holds int64 where floating-point numbers"),
    "shape": (
        {"a": writer(2), "b": writer(2) | {"pixels": np.zeros((2, 27, 28), "f4")}},
        r"'b', field 'pixels' has shape \(2, 27",
    ),
    "flat": ({"a": writer(2) | {"pixels": np.zeros((2, 784), "f4")}}, r"where \(samples, 28, 28\) is expected"),
    "empty": ({"a": writer(2), "b": writer(0)}, "client 'b', field 'pixels' is empty"),
    "single value": ({"a": writer(2) | {"label": np.int32(1)}}, "field 'label' is a single value"),
    "lengths": ({"a": writer(2) | {"label": np.zeros(3, int)}}, "'label' has 3 samples while 'pixels' has 2"),
    "classes": ({"a": writer(2, label=62)}, "holds 62 where numbers from 0 to 61"),
    "negative": ({"a": writer(2, label=-1)}, "holds -1 where numbers from 0 to 61"),
    "NaN": ({"a": writer(2) | {"pixels": np.full((2, 28, 28), np.nan, "f4")}}, "holds NaN or infinite numbers"),
    "dataset": ({}, "the group 'examples' is missing, and there is nothing"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_named_with_client_and_field(tmp_path, case):
    clients, message = BROKEN[case]
    write(tmp_path / "fed_emnist_train.h5", clients)
    write(tmp_path / "fed_emnist_test.h5", {name: writer(2) for name in clients} or {"a": writer(2)})
    with pytest.raises(InvalidInput, match=message) as error:
        emnist.load(tmp_path)
    assert str(tmp_path / "fed_emnist_train.h5") in str(error.value)
    assert "fed_emnist.tar.bz2" in str(error.value)


def test_files_that_do_not_belong_together(tmp_path):
    write(tmp_path / "fed_emnist_train.h5", {"a": writer(2), "b": writer(2)})
    write(tmp_path / "fed_emnist_test.h5", {"a": writer(2)})
    with pytest.raises(InvalidInput, match=r"fed_emnist_test.h5 lacks b, which fed_emnist_train.h5 has"):
        emnist.load(tmp_path)


def test_missing_and_truncated_files(tmp_path):
    with pytest.raises(InvalidInput, match=r"is no folder: give the one that holds fed_emnist_train.h5"):
        emnist.load(tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match=r"has no file fed_emnist_train.h5: put it there, from the archive https://storage"):
        emnist.load(tmp_path)
    write(tmp_path / "fed_emnist_test.h5", {"a": writer(50)})
    whole = (tmp_path / "fed_emnist_test.h5").read_bytes()
    for content, why in ((whole[: len(whole) // 2], "it is cut short"), (b"PK" * 100, "it is damaged or of another kind")):
        (tmp_path / "fed_emnist_train.h5").write_bytes(content)
        with pytest.raises(
            InvalidInput, match=rf"fed_emnist_train.h5 cannot be opened as HDF5, {why}.*extract fed_emnist.tar.bz2"
        ):
            emnist.load(tmp_path)


def test_damage_inside_a_file(tmp_path):
    with h5py.File(tmp_path / "fed_emnist_test.h5", "w") as file:
        file.create_dataset("examples/a/pixels", data=writer(50)["pixels"], compression="gzip", chunks=(50, 28, 28))
        file["examples/a/label"] = np.zeros(50, int)
        chunk = file["examples/a/pixels"].id.get_chunk_info(0)
    content = bytearray((tmp_path / "fed_emnist_test.h5").read_bytes())
    content[chunk.byte_offset : chunk.byte_offset + 1000] = bytes(1000)
    (tmp_path / "fed_emnist_train.h5").write_bytes(content)
    with pytest.raises(InvalidInput, match=r"client 'a', field 'pixels' cannot be read .* the file is damaged"):
        emnist.load(tmp_path)


def test_without_the_library_its_extra_is_named(tmp_path, monkeypatch):
    write(tmp_path / "fed_emnist_train.h5", {"a": writer(2)})
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"needs h5py: pip install 'fedasym\[data\]'"):
        emnist.load(tmp_path)


# CIFAR-100


def picture(n):
    return RNG.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)


def test_clients_of_both_files_are_kept_apart(tmp_path):
    train = {str(name): {"image": picture(10), "label": np.arange(10), "coarse_label": np.arange(10)} for name in range(3)}
    test = {"0": {"image": picture(10), "label": np.arange(90, 100), "coarse_label": np.arange(10)}}
    write(tmp_path / "fed_cifar100_train.h5", train)
    write(tmp_path / "fed_cifar100_test.h5", test)
    federation = cifar100.load(tmp_path)
    assert federation.clients == ("train_0", "train_1", "train_2", "test_0")
    assert counts(federation) == [[8] * 4, [1] * 4, [1] * 4]
    assert np.array_equal(federation.client("test_0").features, test["0"]["image"].reshape(10, -1))
    assert np.array_equal(federation.client("train_0").features, train["0"]["image"].reshape(10, -1))
    assert federation.client("test_0").labels.tolist() == list(range(90, 100))
    assert federation.outputs == 100


def records(fine, images):
    """The official binary version: coarse label, fine label, and the planes of red, green and blue."""
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return np.column_stack([fine // 5, fine, planes]).astype(np.uint8)


def test_the_official_binary_version(tmp_path):
    fine, images = np.arange(1200) % 100, picture(1200)
    records(fine[:1000], images[:1000]).tofile(tmp_path / "train.bin")
    records(fine[1000:], images[1000:]).tofile(tmp_path / "test.bin")
    federation = cifar100.load(tmp_path)
    assert len(federation) == 600
    assert len(federation.labels) == 1200
    owners = {image.tobytes(): label for image, label in zip(images.reshape(1200, -1), fine, strict=True)}
    found = {row.astype(np.uint8).tobytes(): label for row, label in zip(federation.features, federation.labels, strict=True)}
    assert owners == found  # every image once, in rows, columns and colours, beside its label
    again, dealt, split = cifar100.load(tmp_path), cifar100.load(tmp_path, allocation=1), cifar100.load(tmp_path, seed=1)
    assert np.array_equal(again.features, federation.features)
    assert not np.array_equal(dealt.features, federation.features)
    assert np.array_equal(split.features, federation.features)
    assert not np.array_equal(split.split, federation.split)


def test_broken_binary_files(tmp_path):
    good = records(np.arange(100), picture(100))
    good.tofile(tmp_path / "test.bin")
    (tmp_path / "train.bin").write_bytes(good.tobytes()[:-1])
    with pytest.raises(InvalidInput, match=r"train.bin has 307399 bytes, no multiple of 3074: it is cut short"):
        cifar100.load(tmp_path)
    odd = good.copy()
    odd[7, 1] = 100
    odd.tofile(tmp_path / "train.bin")
    with pytest.raises(InvalidInput, match=r"train.bin: image 7 has fine label 100, above 99"):
        cifar100.load(tmp_path)
    odd[7, :2] = 3, 7
    odd.tofile(tmp_path / "train.bin")
    with pytest.raises(InvalidInput, match=r"image 7, of fine class 7, has coarse class 3 and others have 1"):
        cifar100.load(tmp_path)
    with pytest.raises(InvalidInput, match=r"has neither fed_cifar100_train.h5 .* nor train.bin .* nor class_00.webp"):
        cifar100.load(tmp_path / "nowhere")


def test_mosaics_of_another_shape_and_of_other_images(tmp_path):
    grid = picture(600).reshape(24, 25, 32, 32, 3)
    Image.fromarray(np.concatenate([np.concatenate(list(row), axis=1) for row in grid])).save(tmp_path / "class_00.png")
    assert np.array_equal(cifar100.read_mosaic(tmp_path / "class_00.png"), grid.reshape(600, -1))
    Image.fromarray(grid[0, 0]).save(tmp_path / "class_01.png")
    with pytest.raises(InvalidInput, match=r"class_01.png has shape \(32, 32, 3\) where \(768, 800, 3\) is expected"):
        cifar100.read_mosaic(tmp_path / "class_01.png")
    (tmp_path / "class_00.webp").write_bytes(b"no image")
    with pytest.raises(InvalidInput, match=r"has no file coarse_of_fine.csv"):
        cifar100.load(tmp_path)
    (tmp_path / "coarse_of_fine.csv").write_text("fine,coarse\n" + "".join(f"{fine},{fine // 5}\n" for fine in range(100)))
    with pytest.raises(InvalidInput, match=r"class_00.webp cannot be read as an image"):
        cifar100.load(tmp_path)
    (tmp_path / "coarse_of_fine.csv").write_text("fine,coarse\n0,1\n")
    with pytest.raises(InvalidInput, match=r"give each fine class from 0 to 99 once"):
        cifar100.load(tmp_path)
    (tmp_path / "coarse_of_fine.csv").write_text("a,b\n0,1\n")
    with pytest.raises(InvalidInput, match=r"columns 'fine' and 'coarse' of whole numbers"):
        cifar100.load(tmp_path)


def test_mosaics_that_hold_other_images_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar100, "read_mosaic", lambda path: np.zeros((600, 3072), np.uint8))
    for fine in range(100):
        (tmp_path / f"class_{fine:02}.webp").touch()
    with pytest.raises(InvalidInput, match=r"the mosaics do not hold CIFAR-100's images \(their SHA-256 is"):
        list(cifar100.mosaics(tmp_path))


# Digits


def test_digits_by_writer(tmp_path):
    x, y = RNG.integers(0, 256, (30, 28, 28), dtype=np.uint8), np.arange(30) % 10
    np.savez(tmp_path / "mnist_by_writer.npz", x=x, y=y, writer=np.tile([7, 7, 5], 10))
    federation = digits.load(tmp_path)
    assert federation.clients == (5, 7)
    assert counts(federation) == [[8, 16], [1, 2], [1, 2]]
    assert np.array_equal(federation.client(5).features, x[2::3].reshape(10, -1))
    assert federation.client(5).labels.tolist() == y[2::3].tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"writer": None}, "the array 'writer' is missing"),
        ({"x": np.zeros((4, 784), np.uint8)}, r"x holds uint8 of shape \(4, 784\)"),
        ({"x": np.zeros((4, 28, 28))}, "x holds float64"),
        ({"y": np.zeros(3, int)}, r"y holds int64 of shape \(3,\) where a whole number for each of 4 digits"),
        ({"y": np.full(4, 10)}, "y holds 10 to 10 where digits"),
        ({"y": np.array([None] * 4)}, "cannot be read"),
    ],
)
def test_a_broken_table_of_digits(tmp_path, changes, message):
    arrays = {"x": np.zeros((4, 28, 28), np.uint8), "y": np.zeros(4, int), "writer": np.zeros(4, int)} | changes
    np.savez(tmp_path / "mnist_by_writer.npz", **{name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(InvalidInput, match=message) as error:
        digits.load(tmp_path)
    assert "mnist_by_writer.npz" in str(error.value)


def test_no_table_of_digits(tmp_path):
    with pytest.raises(InvalidInput, match=r"has no file mnist_by_writer.npz: .* QMNIST"):
        digits.load(tmp_path)
    for content in (b"PK\x03\x04 and nothing more", b"", b"\x80\x04N."):
        (tmp_path / "mnist_by_writer.npz").write_bytes(content)
        with pytest.raises(InvalidInput, match=r"mnist_by_writer.npz cannot be read"):
            digits.load(tmp_path)
    with (tmp_path / "mnist_by_writer.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(InvalidInput, match=r"mnist_by_writer.npz cannot be read"):
        digits.load(tmp_path)


def idx(kind, array):
    head = bytes([0, 0, kind, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return head + array.astype(">i4" if kind == 12 else np.uint8).tobytes()


def qmnist(folder):
    x, columns = RNG.integers(0, 256, (12, 28, 28), dtype=np.uint8), RNG.integers(0, 10, (12, 8))
    columns[:, 2] = np.arange(12) // 6 + 800
    for part, rows in (("train", slice(0, 8)), ("test", slice(8, 12))):
        (folder / f"qmnist-{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(8, x[rows])))
        (folder / f"qmnist-{part}-labels-idx2-int").write_bytes(idx(12, columns[rows]))
    return x, columns


def test_qmnist(tmp_path):
    x, columns = qmnist(tmp_path)
    federation = digits.load(tmp_path)
    assert federation.clients == (800, 801)
    assert np.array_equal(federation.features, x.reshape(12, -1))
    assert federation.labels.tolist() == columns[:, 0].tolist()


def test_broken_qmnist(tmp_path):
    qmnist(tmp_path)
    labels, images = tmp_path / "qmnist-test-labels-idx2-int", tmp_path / "qmnist-test-images-idx3-ubyte.gz"
    labels.write_bytes(labels.read_bytes()[:-4])
    with pytest.raises(InvalidInput, match=r"test-labels-idx2-int has 124 bytes for values of shape \(4, 8\): it is cut short"):
        digits.load(tmp_path)
    labels.write_bytes(idx(12, np.zeros((4, 1), int)))
    with pytest.raises(InvalidInput, match="has 1 columns where QMNIST's extended labels, with 8"):
        digits.load(tmp_path)
    labels.write_bytes(idx(8, np.zeros(4, int)))
    with pytest.raises(InvalidInput, match="starts with 00000801 and not with 00000c02"):
        digits.load(tmp_path)
    images.write_bytes(images.read_bytes()[:-50])
    with pytest.raises(InvalidInput, match=r"images-idx3-ubyte.gz cannot be unpacked"):
        digits.load(tmp_path)


# Stack Overflow


def overflow_files(folder, heavy=8001):
    rest = {"title": ["t"], "tags": ["x|y"], "score": np.array([1])}
    train = {str(user): {"tokens": [f"how do i {user}", "the cat sat"] * 5, **rest} for user in range(10)}
    train |= {"heavy": {"tokens": ["the"] * heavy}, "once": {"tokens": ["the"]}, "untested": {"tokens": ["the", "cat"]}}
    test = {user: {"tokens": ["the " * 25, "sat"]} for user in train if user != "untested"}
    write(folder / "stackoverflow_train.h5", train)
    write(folder / "stackoverflow_test.h5", test)
    write(folder / "stackoverflow_held_out.h5", {"aside": {"tokens": ["the cat", "sat"]}})
    (folder / "stackoverflow.word_count").write_text("the\t90\ncat\t50\nsat\t40\nhow\t9\n")


def test_users_and_their_sentences(tmp_path):
    overflow_files(tmp_path)
    federation = stackoverflow.load(tmp_path, users=10, vocabulary=3)
    assert sorted(federation.clients) == [str(user) for user in range(10)]
    assert federation.classes == ("<pad>", "<oov>", "<begin>", "<end>", "the", "cat", "sat")
    assert counts(federation) == [[8] * 10, [2] * 10, [2] * 10]
    rows = federation.rows("4")
    assert decoded(federation, rows[0]) == (["<begin>", *["<oov>"] * 4], [*["<oov>"] * 4, "<end>"])
    assert decoded(federation, rows[1]) == (["<begin>", "the", "cat", "sat"], ["the", "cat", "sat", "<end>"])
    assert decoded(federation, rows[10]) == (["<begin>", *["the"] * 19], ["the"] * 20)  # no room for the end
    assert federation.split[rows[10]] == 2


def test_users_are_drawn_by_a_seed_of_their_own(tmp_path):
    overflow_files(tmp_path, heavy=3)
    drawn = [stackoverflow.load(tmp_path, users=4, vocabulary=4, sampling=seed).clients for seed in range(20)]
    assert len(set(drawn)) > 15
    assert {name for names in drawn for name in names} == {*map(str, range(10)), "heavy"}
    assert stackoverflow.load(tmp_path, users=4, vocabulary=4, seed=5).clients == drawn[0]
    assert set(drawn[0]) < set(stackoverflow.load(tmp_path, users=7, vocabulary=4).clients)


def test_what_stack_overflow_lacks(tmp_path):
    overflow_files(tmp_path)
    with pytest.raises(InvalidInput, match=r"users is 11: .*stackoverflow_train.h5 has 10 users with 2 to 8000 sentences"):
        stackoverflow.load(tmp_path, users=11, vocabulary=4)
    with pytest.raises(InvalidInput, match=r"stackoverflow.word_count: it has 4 words and vocabulary is 10000"):
        stackoverflow.load(tmp_path)
    with pytest.raises(InvalidInput, match="unknown part 'test'"):
        stackoverflow.load(tmp_path, part="test")
    with pytest.raises(InvalidInput, match=r"stackoverflow_held_out.h5 has 0 users"):
        stackoverflow.load(tmp_path, users=1, vocabulary=4, part="held_out")
    write(tmp_path / "stackoverflow_train.h5", {"0": {"tokens": np.arange(3)}})
    with pytest.raises(InvalidInput, match=r"client '0', field 'tokens' has shape \(3,\) and type int64 where one string"):
        stackoverflow.load(tmp_path, users=1, vocabulary=4)
    (tmp_path / "stackoverflow.word_count").write_text("the 90\ncat\n")
    with pytest.raises(InvalidInput, match=r"word_count: line 2 is 'cat' where a word and its count"):
        stackoverflow.load(tmp_path, vocabulary=4)


# Stack Exchange


def exchange_file(folder, entries):
    with lzma.open(folder / "stackexchange.jsonl.xz", "wt") as file:
        file.writelines(json.dumps(entry) + "\n" for entry in entries)


def test_posts_become_sentences(tmp_path):
    talk = [{"site": "beer", "user": "1", "date": "", "kind": "answer", "text": "Beer is good. So is ale!"} for _ in range(10)]
    other = [{"site": "wine", "user": "1", "date": "", "kind": "comment", "text": "wine " * 60}]
    exchange_file(tmp_path, [*talk, *other, {"site": "wine", "user": "2", "text": "too short"}])
    federation = stackexchange.load(tmp_path, least=60)
    assert federation.clients == ("beer/1", "wine/1")  # the same number on another site is another user
    assert counts(federation) == [[16, 1], [2, 1], [2, 1]]
    assert decoded(federation, 0) == (["<begin>", "beer", "is", "good", "."], ["beer", "is", "good", ".", "<end>"])
    assert decoded(federation, 20) == (["<begin>", *["wine"] * 19], ["wine"] * 20)
    assert set(federation.classes[4:]) == {"beer", "is", "good", ".", "so", "ale", "!", "wine"}
    small = stackexchange.load(tmp_path, least=60, vocabulary=1)
    assert small.classes[4:] in (("wine",), ("is",))


def test_the_vocabulary_comes_from_the_training_split(tmp_path):
    exchange_file(tmp_path, [{"site": "s", "user": 1, "text": f"word{number}"} for number in range(20)])
    federation = stackexchange.load(tmp_path, least=20)
    trains = {f"word{row}" for row in np.flatnonzero(federation.split == 0)}
    assert set(federation.classes[4:]) == trains
    assert np.array_equal(federation.labels[:, 0] == 1, federation.split != 0)


def test_broken_lines(tmp_path):
    good = {"site": "s", "user": "1", "text": "a b"}
    for bad, message in (
        ({"site": "s", "user": "1"}, "line 2, field 'text' is missing"),
        ({**good, "text": None}, "line 2, field 'text' is None where a string"),
        ([1], "line 2 is no JSON object"),
    ):
        exchange_file(tmp_path, [good, bad])
        with pytest.raises(InvalidInput, match=message):
            stackexchange.load(tmp_path, least=1)
    exchange_file(tmp_path, [good])
    with pytest.raises(InvalidInput, match=r"least is 1000: none of the 1 users in .* has as many words"):
        stackexchange.load(tmp_path)
    path = tmp_path / "stackexchange.jsonl.xz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InvalidInput, match=r"stackexchange.jsonl.xz cannot be unpacked after line \d"):
        stackexchange.load(tmp_path, least=1)


def test_a_sites_own_dump(tmp_path):
    posts = [
        '<row Id="1" PostTypeId="1" OwnerUserId="7" Body="&lt;p&gt;Why is &lt;code&gt;x&lt;/code&gt; red?&lt;/p&gt;" />',
        '<row Id="2" PostTypeId="2" OwnerUserId="7" Body="&lt;pre&gt;code&lt;/pre&gt;&lt;p&gt;It &amp;lt; y&lt;/p&gt;" />',
        '<row Id="3" PostTypeId="5" OwnerUserId="7" Body="a tag" />',
        '<row Id="4" PostTypeId="2" Body="deleted user" />',
    ]
    head = '<?xml version="1.0" encoding="utf-8"?>\n'
    (tmp_path / "Posts.xml").write_text(f"{head}<posts>{''.join(posts)}</posts>")
    (tmp_path / "Comments.xml").write_text(f'{head}<comments><row Id="1" PostId="1" UserId="8" Text="Same here." /></comments>')
    federation = stackexchange.load(tmp_path, least=1)
    assert federation.clients == ("7", "8")
    assert len(federation.labels) == 3
    assert np.array_equal(federation.mask.sum(1), [6, 4, 4])  # why is x red ? end; it < y end; same here . end
    (tmp_path / "Comments.xml").write_text(f'{head}<comments><row Id="1" PostId="1" UserId="8" /></comments>')
    with pytest.raises(InvalidInput, match=r"Comments.xml: the row with Id '1' lacks 'Text'"):
        stackexchange.load(tmp_path, least=1)
    (tmp_path / "Posts.xml").write_text(f"{head}<posts>{posts[0]}<row ")
    with pytest.raises(InvalidInput, match=r"Posts.xml cannot be read after row 1 .*: it is cut short or no XML"):
        stackexchange.load(tmp_path, least=1)
    (tmp_path / "Posts.xml").unlink()
    with pytest.raises(InvalidInput, match=r"has no file stackexchange.jsonl.xz: .* Posts.xml"):
        stackexchange.load(tmp_path)
