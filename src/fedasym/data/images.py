"""Images by client: EMNIST and digits by writer, and CIFAR-100.

EMNIST has 62 classes and 3,400 writers in TensorFlow Federated's files. Handwritten digits by
writer, MNIST's 70,000 with their writers or QMNIST's public files, stand in where it is not at
hand: label results as digits.

CIFAR-100 has TensorFlow Federated's clients, whose test clients have images and numbers of their
own: all 600 take part, each with its own split. Or plain images are dealt out by Pachinko
allocation.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import string
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput
from fedasym.data.assembly import (
    assemble_federation,
    import_library,
    locate_file,
    split_by_files,
    split_by_fractions,
)
from fedasym.data.files import BROKEN
from fedasym.data.tff import open_clients, read_images, same_clients
from fedasym.exact.draws import allocate_images

if TYPE_CHECKING:
    from fedasym.data.federation import Federation

EMNIST_CLASSES = string.digits + string.ascii_uppercase + string.ascii_lowercase
EMNIST_SHAPE = (28, 28)


def load_emnist(folder: str | Path, *, seed: int = 0, digits_only: bool = False) -> Federation:
    """Writers and characters, from `fed_emnist_train.h5` and `fed_emnist_test.h5` in `folder`.

    Features are the 784 pixels as the files have them: 1 is the background and 0 is ink. The
    classes are "0" to "9", "A" to "Z" and "a" to "z". The test file is the test set; the training
    file is shuffled by `seed`, and int(n 0.8/0.9) of a writer's n samples train and the others
    validate. All 749,068 images take 2.4 GB.

    digits_only: read TensorFlow Federated's `fed_emnist_digitsonly_*.h5` instead, with 10 classes.
    """
    stem = "fed_emnist_digitsonly" if digits_only else "fed_emnist"
    classes = EMNIST_CLASSES[:10] if digits_only else EMNIST_CLASSES
    archive = f"{stem}.tar.bz2"
    with (
        open_clients(folder, f"{stem}_train.h5", archive) as train,
        open_clients(folder, f"{stem}_test.h5", archive) as test,
    ):
        writers = same_clients(train, test)
        parts = [(file, writer) for writer in writers for file in (train, test)]
        features, labels, counts = read_images(
            parts, "pixels", EMNIST_SHAPE, "f", None, len(classes)
        )
    trained, tested = counts[0::2], counts[1::2]
    return assemble_federation(
        features,
        labels,
        writers,
        trained + tested,
        split_by_files(writers, trained, tested, seed),
        classes,
    )


DIGITS_FILE = "mnist_by_writer.npz"
QMNIST = "https://github.com/facebookresearch/qmnist"
DIGIT_PIXELS, DIGIT_CLASSES = 784, 10
LARGEST_IDX = 2**30  # bytes: QMNIST's largest file unpacks to 47 million
IDX_BYTES, IDX_INTEGERS = 0x08, 0x0C  # types in the head of an IDX file

DigitColumns = tuple[NDArray[np.uint8], NDArray[np.integer[Any]], NDArray[np.integer[Any]]]


def load_digits(folder: str | Path, *, seed: int = 0) -> Federation:
    """Writers and digits, split 80/10/10 within each writer by `seed`; small writers are kept.

    folder: holds `mnist_by_writer.npz`, with arrays x, y and writer, or QMNIST's
        `qmnist-train-images-idx3-ubyte`, `qmnist-train-labels-idx2-int` and the same for `test`,
        each plain or with the ending .gz.

    Features are the 784 pixels from 0, the background, to 255; clients are the writers' numbers.
    """
    folder = Path(folder)
    if any(
        (folder / f"qmnist-train-images-idx3-ubyte{ending}").is_file() for ending in ("", ".gz")
    ):
        parts = [qmnist_columns(folder, part) for part in ("train", "test")]
        pixels, labels, writers = (np.concatenate(each) for each in zip(*parts, strict=True))
    else:
        pixels, labels, writers = digits_table(
            locate_file(
                folder, DIGITS_FILE, f"your copy, or put QMNIST's files there, from {QMNIST}"
            )
        )
    order = np.argsort(writers, kind="stable")
    names, counts = np.unique(writers, return_counts=True)
    split = split_by_fractions(names.tolist(), counts, seed)
    features = np.empty(pixels.shape, np.float32)
    features[np.argsort(order)] = pixels
    return assemble_federation(
        features, labels[order], names.tolist(), counts, split, range(DIGIT_CLASSES)
    )


def digits_table(path: Path) -> DigitColumns:
    """Pixels, labels and writers from the arrays of an .npz file."""
    try:
        with path.open("rb") as data, np.load(data, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ("x", "y", "writer") if name in file.files}
    except (TypeError, *BROKEN) as reason:
        raise InvalidInput(
            f"{path} cannot be read ({reason}): it is damaged or not an .npz file; copy it again"
        ) from None
    for name in ("x", "y", "writer"):
        if name not in arrays:
            raise InvalidInput(
                f"{path}: the array {name!r} is missing; x, y and writer are expected"
            )
    return check_digits(path, arrays["x"], path, arrays["y"], arrays["writer"])


def check_digits(
    path: Path, x: NDArray[Any], beside: Path, y: NDArray[Any], writer: NDArray[Any]
) -> DigitColumns:
    """The columns of as many digits, which `path` and `beside` hold."""
    if x.dtype != np.uint8 or x.ndim != 3 or x.shape[1:] != (28, 28) or not len(x):
        raise InvalidInput(
            f"{path}: x holds {x.dtype} of shape {x.shape} where uint8 of shape (samples, 28, 28)"
            " is expected"
        )
    for name, column in (("y", y), ("writer", writer)):
        if column.dtype.kind not in "iu" or column.shape != x.shape[:1]:
            raise InvalidInput(
                f"{beside}: {name} holds {column.dtype} of shape {column.shape} where a whole"
                f" number for each of {len(x)} digits is expected"
            )
    if y.min() < 0 or y.max() >= DIGIT_CLASSES:
        raise InvalidInput(
            f"{beside}: y holds {y.min()} to {y.max()} where digits from 0 to 9 are expected"
        )
    return x.reshape(-1, DIGIT_PIXELS), y.astype(np.int64), writer.astype(np.int64)


def qmnist_columns(folder: Path, part: str) -> DigitColumns:
    """One of QMNIST's parts; columns 0 and 2 of its labels are the digit and the writer."""
    images, labels = (
        locate_file(folder, name if (folder / name).is_file() else name + ".gz", QMNIST)
        for name in (f"qmnist-{part}-images-idx3-ubyte", f"qmnist-{part}-labels-idx2-int")
    )
    x, columns = read_idx(images, IDX_BYTES, 3), read_idx(labels, IDX_INTEGERS, 2)
    if columns.shape[1] != 8:
        raise InvalidInput(
            f"{labels}: it has {columns.shape[1]} columns where QMNIST's extended labels, with 8,"
            " are expected"
        )
    return check_digits(images, x, labels, columns[:, 0], columns[:, 2])


def read_idx(path: Path, kind: int, axes: int) -> NDArray[Any]:
    """An IDX file: two zeros, type, number of axes, sizes, and values, all big-endian."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(LARGEST_IDX)  # what is packed may unpack to anything
    except (OSError, EOFError, zlib.error) as reason:
        raise InvalidInput(f"{path} cannot be unpacked ({reason}): download it again") from None
    start = 4 + 4 * axes
    if data[:4] != bytes([0, 0, kind, axes]) or len(data) < start:
        wanted = bytes([0, 0, kind, axes]).hex()
        raise InvalidInput(
            f"{path} starts with {data[:4].hex()} and not with {wanted}, so it is another file:"
            " download it again"
        )
    shape = tuple(np.frombuffer(data[4:start], ">u4").tolist())
    dtype = np.dtype(np.uint8 if kind == IDX_BYTES else ">i4")
    if len(data) - start != dtype.itemsize * int(np.prod(shape)):
        raise InvalidInput(
            f"{path} has {len(data) - start} bytes for values of shape {shape}: it is cut short;"
            " download it again"
        )
    return np.frombuffer(data, dtype, offset=start).reshape(shape)


CIFAR_ARCHIVE = "fed_cifar100.tar.bz2"
CIFAR_OFFICIAL = "cifar-100-binary.tar.gz of https://www.cs.toronto.edu/~kriz/cifar.html"
CIFAR_SHAPE = (32, 32, 3)
CIFAR_PIXELS = 3072
CIFAR_CLASSES = 100
CIFAR_RECORD = CIFAR_PIXELS + 2  # a coarse label, a fine label, and three planes of colour
CIFAR_CLIENTS, CIFAR_SAMPLES = 600, 100
MOSAIC = (24, 25)  # rows and columns of images in a mosaic, all of one class
CIFAR_DIGEST = (  # SHA-256 of all images, class by class
    "cb85c0eb11325b1687dc50cd6e0e85b192ba6685d1aab5b9e96557be8d8336be"
)

ImageBlock = tuple[slice, NDArray[Any]]  # which images, and their pixels, one row each


def load_cifar100(folder: str | Path, *, seed: int = 0, allocation: int = 0) -> Federation:
    """600 clients of 100 images each, 80 of them for training, 10 for validation and 10 for test.

    folder: holds one of `fed_cifar100_train.h5` and `fed_cifar100_test.h5`, whose clients are named
        "train_0" to "train_499" and "test_0" to "test_99" here, since both files count from 0;
        `train.bin` and `test.bin`, the official binary version: clients 0 to 599 by Pachinko
        allocation; `class_00.webp` to `class_99.webp`, mosaics of 24 by 25 images, and
        `coarse_of_fine.csv`: likewise.
    seed: of the split. allocation: the seed of the Pachinko allocation, so that trials over splits
        keep their clients.

    Features are the 3,072 values of rows, columns and colours, from 0 to 255. The image set has a
    few exact duplicates, and `fedasym.datasets.duplicates` finds those that lie on both sides of a
    split.
    """
    folder = Path(folder)
    if (folder / "fed_cifar100_train.h5").is_file():
        with (
            open_clients(folder, "fed_cifar100_train.h5", CIFAR_ARCHIVE) as train,
            open_clients(folder, "fed_cifar100_test.h5", CIFAR_ARCHIVE) as test,
        ):
            parts = [(file, client) for file in (train, test) for client in file.clients]
            features, labels, counts = read_images(
                parts, "image", CIFAR_SHAPE, "iu", 255, CIFAR_CLASSES
            )
            names = [f"{'train' if file is train else 'test'}_{client}" for file, client in parts]
        return assemble_federation(
            features,
            labels,
            names,
            counts,
            split_by_fractions(names, counts, seed),
            range(CIFAR_CLASSES),
        )
    if (folder / "train.bin").is_file():
        return partition_images(*official_images(folder), seed, allocation)
    if (folder / "class_00.webp").is_file():
        fine = np.repeat(np.arange(CIFAR_CLASSES), MOSAIC[0] * MOSAIC[1])
        return partition_images(
            mosaic_images(folder), fine, read_class_tree(folder), seed, allocation
        )
    raise InvalidInput(
        f"folder is {str(folder)!r}, which has neither fed_cifar100_train.h5 (from {CIFAR_ARCHIVE})"
        f" nor train.bin (from {CIFAR_OFFICIAL}) nor class_00.webp: give the folder that holds one"
        " of them"
    )


def partition_images(
    blocks: Iterator[ImageBlock],
    fine: NDArray[Any],
    parent: NDArray[Any],
    seed: int,
    allocation: int,
    clients: int = CIFAR_CLIENTS,
) -> Federation:
    """Images in blocks, each put where its client's rows are, so that none is held twice."""
    samples = min(CIFAR_SAMPLES, fine.size // clients)
    chosen = allocate_images(
        fine, parent, clients=clients, samples=samples, seed=allocation
    ).ravel()
    place = np.full(fine.size, -1, np.intp)
    place[chosen] = np.arange(chosen.size)
    features = np.empty((chosen.size, CIFAR_PIXELS), np.float32)
    for which, pixels in blocks:
        rows = place[which]
        features[rows[rows >= 0]] = pixels[rows >= 0]
    names = range(clients)
    counts = np.full(clients, samples, dtype=np.intp)
    return assemble_federation(
        features,
        fine[chosen],
        names,
        counts,
        split_by_fractions(names, counts, seed),
        range(CIFAR_CLASSES),
    )


def official_images(folder: Path) -> tuple[Iterator[ImageBlock], NDArray[Any], NDArray[Any]]:
    """The official binary files: images in blocks, fine labels, and each one's coarse class."""
    files = []
    for name in ("train.bin", "test.bin"):
        path = locate_file(folder, name, CIFAR_OFFICIAL)
        if path.stat().st_size == 0 or path.stat().st_size % CIFAR_RECORD:
            size = path.stat().st_size
            raise InvalidInput(
                f"{path} has {size} bytes, not a multiple of {CIFAR_RECORD}: it is cut short;"
                " extract it again"
            )
        files.append(np.memmap(path, np.uint8, "r").reshape(-1, CIFAR_RECORD))
        for column, (field, most) in enumerate(
            (("coarse label", 19), ("fine label", CIFAR_CLASSES - 1))
        ):
            worst = int(files[-1][:, column].max())
            if worst > most:
                raise InvalidInput(
                    f"{path}: image {int(files[-1][:, column].argmax())} has {field} {worst}, above"
                    f" {most}"
                )
    coarse, fine = (
        np.concatenate([file[:, column] for file in files]).astype(np.int64) for column in (0, 1)
    )
    parent = np.zeros(CIFAR_CLASSES, np.int64)
    parent[fine] = coarse
    if np.any(parent[fine] != coarse):
        odd = int(np.argmax(parent[fine] != coarse))
        raise InvalidInput(
            f"{folder}: image {odd}, of fine class {fine[odd]}, has coarse class {coarse[odd]} and"
            f" others have {parent[fine[odd]]}; extract the files again"
        )

    def blocks() -> Iterator[ImageBlock]:
        start = 0
        for file in files:
            for records in np.array_split(file, -(-len(file) // 5000)):
                planes = records[:, 2:].reshape(-1, CIFAR_SHAPE[2], *CIFAR_SHAPE[:2])
                yield (
                    slice(start, start + len(records)),
                    planes.transpose(0, 2, 3, 1).reshape(-1, CIFAR_PIXELS),
                )
                start += len(records)

    return blocks(), fine, parent


def mosaic_images(folder: Path) -> Iterator[ImageBlock]:
    """The images class by class; refuses, at the end, images that are not the data set's."""
    digest = hashlib.sha256()
    each = MOSAIC[0] * MOSAIC[1]
    for fine in range(CIFAR_CLASSES):
        pixels = read_mosaic(
            locate_file(folder, f"class_{fine:02}.webp", "where the other mosaics are from")
        )
        digest.update(pixels.data)
        yield slice(fine * each, (fine + 1) * each), pixels
    if digest.hexdigest() != CIFAR_DIGEST:
        raise InvalidInput(
            f"{folder}: the mosaics do not hold CIFAR-100's images (their SHA-256 is"
            f" {digest.hexdigest()}): copy them again"
        )


def read_mosaic(path: Path) -> NDArray[np.uint8]:
    """The images of one mosaic, row by row, flattened."""
    pillow = import_library("PIL.Image", "Pillow")
    try:
        with pillow.open(path) as image:
            grid = np.asarray(image)
    except (OSError, ValueError, SyntaxError) as reason:
        raise InvalidInput(f"{path} cannot be read as an image ({reason}): copy it again") from None
    (rows, columns), (high, wide, colours) = MOSAIC, CIFAR_SHAPE
    if grid.dtype != np.uint8 or grid.shape != (rows * high, columns * wide, colours):
        raise InvalidInput(
            f"{path} has shape {grid.shape} where {(rows * high, columns * wide, colours)} is"
            f" expected, {rows} by {columns} images: copy it again"
        )
    return grid.reshape(rows, high, columns, wide, colours).swapaxes(1, 2).reshape(-1, CIFAR_PIXELS)


def read_class_tree(folder: Path) -> NDArray[np.int64]:
    """The coarse class of each fine one, from `coarse_of_fine.csv`."""
    path = locate_file(folder, "coarse_of_fine.csv", "where the mosaics are from")
    with path.open(newline="") as lines:
        try:
            parent = {int(line["fine"]): int(line["coarse"]) for line in csv.DictReader(lines)}
        except (KeyError, TypeError, ValueError) as reason:
            raise InvalidInput(
                f"{path}: columns 'fine' and 'coarse' of whole numbers are expected ({reason!r})"
            ) from None
    if sorted(parent) != list(range(CIFAR_CLASSES)) or not set(parent.values()) <= set(range(20)):
        raise InvalidInput(
            f"{path}: give each fine class from 0 to {CIFAR_CLASSES - 1} once, with a coarse class"
            " from 0 to 19"
        )
    return np.array([parent[fine] for fine in range(CIFAR_CLASSES)])
