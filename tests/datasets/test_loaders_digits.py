"""Digits by writer on tiny files: a table, and QMNIST's own files."""

import gzip

import numpy as np
import pytest

from fedasym.core.errors import InvalidInput
from fedasym.data import images

from .layouts import RNG, counts


def test_digits_by_writer(tmp_path):
    x, y = RNG.integers(0, 256, (30, 28, 28), dtype=np.uint8), np.arange(30) % 10
    np.savez(tmp_path / "mnist_by_writer.npz", x=x, y=y, writer=np.tile([7, 7, 5], 10))
    federation = images.load_digits(tmp_path)
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
        (
            {"y": np.zeros(3, int)},
            r"y holds int64 of shape \(3,\) where a whole number for each of 4 digits",
        ),
        ({"y": np.full(4, 10)}, "y holds 10 to 10 where digits"),
        ({"y": np.array([None] * 4)}, "cannot be read"),
    ],
)
def test_a_broken_table_of_digits(tmp_path, changes, message):
    arrays = {
        "x": np.zeros((4, 28, 28), np.uint8),
        "y": np.zeros(4, int),
        "writer": np.zeros(4, int),
    } | changes
    np.savez(
        tmp_path / "mnist_by_writer.npz",
        **{name: array for name, array in arrays.items() if array is not None},
    )
    with pytest.raises(InvalidInput, match=message) as error:
        images.load_digits(tmp_path)
    assert "mnist_by_writer.npz" in str(error.value)


def test_no_table_of_digits(tmp_path):
    with pytest.raises(InvalidInput, match=r"has no file mnist_by_writer.npz: .* QMNIST"):
        images.load_digits(tmp_path)
    for content in (b"PK\x03\x04 and nothing more", b"", b"\x80\x04N."):
        (tmp_path / "mnist_by_writer.npz").write_bytes(content)
        with pytest.raises(InvalidInput, match=r"mnist_by_writer.npz cannot be read"):
            images.load_digits(tmp_path)
    with (tmp_path / "mnist_by_writer.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(InvalidInput, match=r"mnist_by_writer.npz cannot be read"):
        images.load_digits(tmp_path)


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
    federation = images.load_digits(tmp_path)
    assert federation.clients == (800, 801)
    assert np.array_equal(federation.features, x.reshape(12, -1))
    assert federation.labels.tolist() == columns[:, 0].tolist()


def test_broken_qmnist(tmp_path):
    qmnist(tmp_path)
    labels, pictures = (
        tmp_path / "qmnist-test-labels-idx2-int",
        tmp_path / "qmnist-test-images-idx3-ubyte.gz",
    )
    labels.write_bytes(labels.read_bytes()[:-4])
    with pytest.raises(
        InvalidInput,
        match=r"test-labels-idx2-int has 124 bytes for values of shape \(4, 8\): it is cut short",
    ):
        images.load_digits(tmp_path)
    labels.write_bytes(idx(12, np.zeros((4, 1), int)))
    with pytest.raises(InvalidInput, match="has 1 columns where QMNIST's extended labels, with 8"):
        images.load_digits(tmp_path)
    labels.write_bytes(idx(8, np.zeros(4, int)))
    with pytest.raises(InvalidInput, match="starts with 00000801 and not with 00000c02"):
        images.load_digits(tmp_path)
    pictures.write_bytes(pictures.read_bytes()[:-50])
    with pytest.raises(InvalidInput, match=r"images-idx3-ubyte.gz cannot be unpacked"):
        images.load_digits(tmp_path)
