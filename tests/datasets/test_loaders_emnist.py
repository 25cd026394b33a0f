"""EMNIST on tiny files in the true layout: what comes out, and what a broken file is told."""

import sys

import h5py
import numpy as np
import pytest

from fedasym.core.errors import InvalidInput
from fedasym.data import images

from .layouts import RNG, counts, write


def writer(n, label=None):
    return {
        "pixels": RNG.random((n, 28, 28)).astype(np.float32),
        "label": (np.arange(n) % 62 if label is None else np.full(n, label)).astype(np.int32),
    }


def test_writers_keep_the_files_own_test_samples(tmp_path):
    train, test = {"f0": writer(9), "f1": writer(20)}, {"f1": writer(3, label=61), "f0": writer(2)}
    write(tmp_path / "fed_emnist_train.h5", train)
    write(tmp_path / "fed_emnist_test.h5", test)
    federation = images.load_emnist(tmp_path, seed=3)
    assert federation.clients == ("f0", "f1")
    assert counts(federation) == [[8, 17], [1, 3], [2, 3]]
    assert federation.features.shape == (34, 784)
    assert federation.features.dtype == np.float32
    assert federation.classes[61] == "z"
    for name in train:
        expected = np.concatenate([train[name]["pixels"], test[name]["pixels"]]).reshape(-1, 784)
        assert np.array_equal(federation.client(name).features, expected)
        assert np.array_equal(
            federation.client(name).labels,
            np.concatenate([train[name]["label"], test[name]["label"]]),
        )


def test_digits_only_files(tmp_path):
    for part in ("train", "test"):
        write(tmp_path / f"fed_emnist_digitsonly_{part}.h5", {"f0": writer(5, label=9)})
    assert images.load_emnist(tmp_path, digits_only=True).outputs == 10


BROKEN = {
    "no field": (
        {"a": {"pixels": writer(2)["pixels"]}},
        "client 'a', field 'label' is missing, and there is pixels",
    ),
    "whole numbers": (
        {"a": writer(2) | {"pixels": np.zeros((2, 28, 28), int)}},
        "holds int64 where floating-point numbers",
    ),
    "shape": (
        {"a": writer(2), "b": writer(2) | {"pixels": np.zeros((2, 27, 28), "f4")}},
        r"'b', field 'pixels' has shape \(2, 27",
    ),
    "flat": (
        {"a": writer(2) | {"pixels": np.zeros((2, 784), "f4")}},
        r"where \(samples, 28, 28\) is expected",
    ),
    "empty": ({"a": writer(2), "b": writer(0)}, "client 'b', field 'pixels' is empty"),
    "single value": ({"a": writer(2) | {"label": np.int32(1)}}, "field 'label' is a single value"),
    "lengths": (
        {"a": writer(2) | {"label": np.zeros(3, int)}},
        "'label' has 3 samples while 'pixels' has 2",
    ),
    "classes": ({"a": writer(2, label=62)}, "holds 62 where numbers from 0 to 61"),
    "negative": ({"a": writer(2, label=-1)}, "holds -1 where numbers from 0 to 61"),
    "NaN": (
        {"a": writer(2) | {"pixels": np.full((2, 28, 28), np.nan, "f4")}},
        "holds NaN or infinite numbers",
    ),
    "dataset": ({}, "the group 'examples' is missing, and there is nothing"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_named_with_client_and_field(tmp_path, case):
    clients, message = BROKEN[case]
    write(tmp_path / "fed_emnist_train.h5", clients)
    write(
        tmp_path / "fed_emnist_test.h5", {name: writer(2) for name in clients} or {"a": writer(2)}
    )
    with pytest.raises(InvalidInput, match=message) as error:
        images.load_emnist(tmp_path)
    assert str(tmp_path / "fed_emnist_train.h5") in str(error.value)
    assert "fed_emnist.tar.bz2" in str(error.value)


def test_files_that_do_not_belong_together(tmp_path):
    write(tmp_path / "fed_emnist_train.h5", {"a": writer(2), "b": writer(2)})
    write(tmp_path / "fed_emnist_test.h5", {"a": writer(2)})
    with pytest.raises(
        InvalidInput, match=r"fed_emnist_test.h5 lacks b, which fed_emnist_train.h5 has"
    ):
        images.load_emnist(tmp_path)


def test_missing_and_truncated_files(tmp_path):
    with pytest.raises(
        InvalidInput, match=r"is not a folder: give the one that holds fed_emnist_train.h5"
    ):
        images.load_emnist(tmp_path / "nowhere")
    with pytest.raises(
        InvalidInput,
        match=r"has no file fed_emnist_train.h5: put it there, from the archive https://storage",
    ):
        images.load_emnist(tmp_path)
    write(tmp_path / "fed_emnist_test.h5", {"a": writer(50)})
    whole = (tmp_path / "fed_emnist_test.h5").read_bytes()
    for content, why in (
        (whole[: len(whole) // 2], "it is cut short"),
        (b"PK" * 100, "it is damaged or of another kind"),
    ):
        (tmp_path / "fed_emnist_train.h5").write_bytes(content)
        with pytest.raises(
            InvalidInput,
            match=(
                rf"fed_emnist_train.h5 cannot be opened as HDF5, {why}.*extract fed_emnist.tar.bz2"
            ),
        ):
            images.load_emnist(tmp_path)


def test_files_without_clients_and_clients_without_fields(tmp_path):
    for name in ("fed_emnist_train.h5", "fed_emnist_test.h5"):
        with h5py.File(tmp_path / name, "w") as file:
            file.create_group("examples")
    with pytest.raises(InvalidInput, match="the group 'examples' holds no client"):
        images.load_emnist(tmp_path)
    for name in ("fed_emnist_train.h5", "fed_emnist_test.h5"):
        write(tmp_path / name, {"a": writer(2)})
        with h5py.File(tmp_path / name, "a") as file:
            file["examples/b"] = np.zeros(2)
    with pytest.raises(InvalidInput, match="there is no client 'b' under 'examples'; it has a, b"):
        images.load_emnist(tmp_path)


def test_damage_inside_a_file(tmp_path):
    with h5py.File(tmp_path / "fed_emnist_test.h5", "w") as file:
        file.create_dataset(
            "examples/a/pixels", data=writer(50)["pixels"], compression="gzip", chunks=(50, 28, 28)
        )
        file["examples/a/label"] = np.zeros(50, int)
        chunk = file["examples/a/pixels"].id.get_chunk_info(0)
    content = bytearray((tmp_path / "fed_emnist_test.h5").read_bytes())
    content[chunk.byte_offset : chunk.byte_offset + 1000] = bytes(1000)
    (tmp_path / "fed_emnist_train.h5").write_bytes(content)
    with pytest.raises(
        InvalidInput, match=r"client 'a', field 'pixels' cannot be read .* the file is damaged"
    ):
        images.load_emnist(tmp_path)


def test_without_the_library_its_extra_is_named(tmp_path, monkeypatch):
    write(tmp_path / "fed_emnist_train.h5", {"a": writer(2)})
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"needs h5py: pip install 'fedasym\[data\]'"):
        images.load_emnist(tmp_path)
