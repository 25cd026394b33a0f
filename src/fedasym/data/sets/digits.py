"""Handwritten digits by writer, 10 classes: MNIST's 70,000 with their writers, or QMNIST's public files.

They stand in for EMNIST by writer where that is not at hand: label results as digits.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput
from fedasym.data.federation.damage import BROKEN
from fedasym.data.sets.assembly import assembled, by_fractions, located

if TYPE_CHECKING:
    from fedasym.data.federation.federation import Federation

TABLE = "mnist_by_writer.npz"
QMNIST = "https://github.com/facebookresearch/qmnist"
PIXELS, CLASSES = 784, 10
LARGEST = 2**30  # bytes: QMNIST's largest file unpacks to 47 million
BYTES, INTEGERS = 0x08, 0x0C  # types in the head of an IDX file

Columns = tuple[NDArray[np.uint8], NDArray[np.integer[Any]], NDArray[np.integer[Any]]]


def load(folder: str | Path, *, seed: int = 0) -> Federation:
    """Writers and their digits, split 80/10/10 within each writer by `seed`; a writer with few digits is kept.

    folder: holds `mnist_by_writer.npz`, with arrays x, y and writer, or QMNIST's `qmnist-train-images-idx3-ubyte`,
        `qmnist-train-labels-idx2-int` and the same for `test`, each plain or with the ending .gz.

    Features are the 784 pixels from 0, the background, to 255; clients are the writers' numbers.
    """
    folder = Path(folder)
    if any((folder / f"qmnist-train-images-idx3-ubyte{ending}").is_file() for ending in ("", ".gz")):
        parts = [qmnist(folder, part) for part in ("train", "test")]
        pixels, labels, writers = (np.concatenate(each) for each in zip(*parts, strict=True))
    else:
        pixels, labels, writers = table(located(folder, TABLE, f"your copy, or put QMNIST's files there, from {QMNIST}"))
    order = np.argsort(writers, kind="stable")
    names, counts = np.unique(writers, return_counts=True)
    split = by_fractions(names.tolist(), counts, seed)
    features = np.empty(pixels.shape, np.float32)
    features[np.argsort(order)] = pixels
    return assembled(features, labels[order], names.tolist(), counts, split, range(CLASSES))


def table(path: Path) -> Columns:
    """Pixels, labels and writers from the arrays of an .npz file."""
    try:
        with path.open("rb") as data, np.load(data, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ("x", "y", "writer") if name in file.files}
    except (TypeError, *BROKEN) as reason:
        raise InvalidInput(f"{path} cannot be read ({reason}): it is damaged or no .npz file; copy it anew") from None
    for name in ("x", "y", "writer"):
        if name not in arrays:
            raise InvalidInput(f"{path}: the array {name!r} is missing; x, y and writer are expected")
    return checked(path, arrays["x"], path, arrays["y"], arrays["writer"])


def checked(path: Path, x: NDArray[Any], beside: Path, y: NDArray[Any], writer: NDArray[Any]) -> Columns:
    """The columns of as many digits, which `path` and `beside` hold."""
    if x.dtype != np.uint8 or x.ndim != 3 or x.shape[1:] != (28, 28) or not len(x):
        raise InvalidInput(f"{path}: x holds {x.dtype} of shape {x.shape} where uint8 of shape (samples, 28, 28) is expected")
    for name, column in (("y", y), ("writer", writer)):
        if column.dtype.kind not in "iu" or column.shape != x.shape[:1]:
            raise InvalidInput(
                f"{beside}: {name} holds {column.dtype} of shape {column.shape} where a whole number for each of {len(x)} "
                "digits is expected"
            )
    if y.min() < 0 or y.max() >= CLASSES:
        raise InvalidInput(f"{beside}: y holds {y.min()} to {y.max()} where digits from 0 to 9 are expected")
    return x.reshape(-1, PIXELS), y.astype(np.int64), writer.astype(np.int64)


def qmnist(folder: Path, part: str) -> Columns:
    """One of QMNIST's parts; columns 0 and 2 of its labels are the digit and the writer."""
    images, labels = (
        located(folder, name if (folder / name).is_file() else name + ".gz", QMNIST)
        for name in (f"qmnist-{part}-images-idx3-ubyte", f"qmnist-{part}-labels-idx2-int")
    )
    x, columns = read_idx(images, BYTES, 3), read_idx(labels, INTEGERS, 2)
    if columns.shape[1] != 8:
        raise InvalidInput(f"{labels}: it has {columns.shape[1]} columns where QMNIST's extended labels, with 8, are expected")
    return checked(images, x, labels, columns[:, 0], columns[:, 2])


def read_idx(path: Path, kind: int, axes: int) -> NDArray[Any]:
    """An IDX file: two zeros, type, number of axes, their sizes, and the values, all of them big-endian."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(LARGEST)  # what is packed may unpack to anything
    except (OSError, EOFError, zlib.error) as reason:
        raise InvalidInput(f"{path} cannot be unpacked ({reason}): download it again") from None
    start = 4 + 4 * axes
    if data[:4] != bytes([0, 0, kind, axes]) or len(data) < start:
        wanted = bytes([0, 0, kind, axes]).hex()
        raise InvalidInput(
            f"{path} starts with {data[:4].hex()} and not with {wanted}, so it is another file: download it again"
        )
    shape = tuple(np.frombuffer(data[4:start], ">u4").tolist())
    dtype = np.dtype(np.uint8 if kind == BYTES else ">i4")
    if len(data) - start != dtype.itemsize * int(np.prod(shape)):
        raise InvalidInput(
            f"{path} has {len(data) - start} bytes for values of shape {shape}: it is cut short; download it again"
        )
    return np.frombuffer(data, dtype, offset=start).reshape(shape)
