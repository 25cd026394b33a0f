"""CIFAR-100 by client: TensorFlow Federated's clients, or plain images dealt out by Pachinko allocation.

TensorFlow Federated's test clients have images and numbers of their own; all 600 clients take part, each with its own split.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput
from fedasym.data.sets.assembly import assembled, by_fractions, library, located
from fedasym.data.sets.hdf5 import images, opened
from fedasym.data.sets.pachinko import allocate

if TYPE_CHECKING:
    from fedasym.data.federation.federation import Federation

ARCHIVE = "fed_cifar100.tar.bz2"
OFFICIAL = "cifar-100-binary.tar.gz of https://www.cs.toronto.edu/~kriz/cifar.html"
SHAPE, PIXELS, CLASSES = (32, 32, 3), 3072, 100
RECORD = PIXELS + 2  # a coarse label, a fine label, and three planes of colour
CLIENTS, SAMPLES = 600, 100
MOSAIC = (24, 25)  # rows and columns of images in a mosaic, all of one class
DIGEST = "cb85c0eb11325b1687dc50cd6e0e85b192ba6685d1aab5b9e96557be8d8336be"  # SHA-256 of all images, class by class

Block = tuple[slice, NDArray[Any]]  # which images, and their pixels, one row each


def load(folder: str | Path, *, seed: int = 0, allocation: int = 0) -> Federation:
    """600 clients of 100 images each, 80 of them for training, 10 for validation and 10 for test.

    folder: holds one of
        `fed_cifar100_train.h5` and `fed_cifar100_test.h5`, whose clients are named "train_0" to "train_499" and "test_0" to
        "test_99" here, since both files count from 0;
        `train.bin` and `test.bin`, the official binary version: clients 0 to 599 by Pachinko allocation;
        `class_00.webp` to `class_99.webp`, mosaics of 24 by 25 images, and `coarse_of_fine.csv`: likewise.
    seed: of the split. allocation: the seed of the Pachinko allocation, so that trials over splits keep their clients.

    Features are the 3,072 values of rows, columns and colours, from 0 to 255. The image set has a few exact duplicates, and
    `fedasym.data.sets.leaks.duplicates` finds those that lie on both sides of a split.
    """
    folder = Path(folder)
    if (folder / "fed_cifar100_train.h5").is_file():
        with opened(folder, "fed_cifar100_train.h5", ARCHIVE) as train, opened(folder, "fed_cifar100_test.h5", ARCHIVE) as test:
            parts = [(file, client) for file in (train, test) for client in file.clients]
            features, labels, counts = images(parts, "image", SHAPE, "iu", 255, CLASSES)
            names = [f"{'train' if file is train else 'test'}_{client}" for file, client in parts]
        return assembled(features, labels, names, counts, by_fractions(names, counts, seed), range(CLASSES))
    if (folder / "train.bin").is_file():
        return partitioned(*official(folder), seed, allocation)
    if (folder / "class_00.webp").is_file():
        fine = np.repeat(np.arange(CLASSES), MOSAIC[0] * MOSAIC[1])
        return partitioned(mosaics(folder), fine, read_tree(folder), seed, allocation)
    raise InvalidInput(
        f"folder is {str(folder)!r}, which has neither fed_cifar100_train.h5 (from {ARCHIVE}) nor train.bin (from {OFFICIAL}) "
        "nor class_00.webp: give the folder that holds one of them"
    )


def partitioned(
    blocks: Iterator[Block], fine: NDArray[Any], parent: NDArray[Any], seed: int, allocation: int, clients: int = CLIENTS
) -> Federation:
    """Images in blocks, each put where its client's rows are, so that none is held twice."""
    samples = min(SAMPLES, fine.size // clients)
    chosen = allocate(fine, parent, clients=clients, samples=samples, seed=allocation).ravel()
    place = np.full(fine.size, -1, np.intp)
    place[chosen] = np.arange(chosen.size)
    features = np.empty((chosen.size, PIXELS), np.float32)
    for which, pixels in blocks:
        rows = place[which]
        features[rows[rows >= 0]] = pixels[rows >= 0]
    names, counts = range(clients), np.full(clients, samples, dtype=np.intp)
    return assembled(features, fine[chosen], names, counts, by_fractions(names, counts, seed), range(CLASSES))


def official(folder: Path) -> tuple[Iterator[Block], NDArray[Any], NDArray[Any]]:
    """The official binary files: images in blocks, fine labels, and the coarse class of each fine one."""
    files = []
    for name in ("train.bin", "test.bin"):
        path = located(folder, name, OFFICIAL)
        if path.stat().st_size == 0 or path.stat().st_size % RECORD:
            size = path.stat().st_size
            raise InvalidInput(f"{path} has {size} bytes, no multiple of {RECORD}: it is cut short; extract it again")
        files.append(np.memmap(path, np.uint8, "r").reshape(-1, RECORD))
        for column, (field, most) in enumerate((("coarse label", 19), ("fine label", CLASSES - 1))):
            worst = int(files[-1][:, column].max())
            if worst > most:
                raise InvalidInput(f"{path}: image {int(files[-1][:, column].argmax())} has {field} {worst}, above {most}")
    coarse, fine = (np.concatenate([file[:, column] for file in files]).astype(np.int64) for column in (0, 1))
    parent = np.zeros(CLASSES, np.int64)
    parent[fine] = coarse
    if np.any(parent[fine] != coarse):
        odd = int(np.argmax(parent[fine] != coarse))
        raise InvalidInput(
            f"{folder}: image {odd}, of fine class {fine[odd]}, has coarse class {coarse[odd]} and others have "
            f"{parent[fine[odd]]}; extract the files again"
        )

    def blocks() -> Iterator[Block]:
        start = 0
        for file in files:
            for records in np.array_split(file, -(-len(file) // 5000)):
                planes = records[:, 2:].reshape(-1, SHAPE[2], *SHAPE[:2])
                yield slice(start, start + len(records)), planes.transpose(0, 2, 3, 1).reshape(-1, PIXELS)
                start += len(records)

    return blocks(), fine, parent


def mosaics(folder: Path) -> Iterator[Block]:
    """The images of all classes, class by class; refuses, at the end, images that are not the data set's."""
    digest, each = hashlib.sha256(), MOSAIC[0] * MOSAIC[1]
    for fine in range(CLASSES):
        pixels = read_mosaic(located(folder, f"class_{fine:02}.webp", "where the other mosaics are from"))
        digest.update(pixels.data)
        yield slice(fine * each, (fine + 1) * each), pixels
    if digest.hexdigest() != DIGEST:
        raise InvalidInput(
            f"{folder}: the mosaics do not hold CIFAR-100's images (their SHA-256 is {digest.hexdigest()}): copy them anew"
        )


def read_mosaic(path: Path) -> NDArray[np.uint8]:
    """The images of one mosaic, row by row, flattened."""
    pillow = library("PIL.Image", "Pillow")
    try:
        with pillow.open(path) as image:
            grid = np.asarray(image)
    except (OSError, ValueError, SyntaxError) as reason:
        raise InvalidInput(f"{path} cannot be read as an image ({reason}): copy it anew") from None
    (rows, columns), (high, wide, colours) = MOSAIC, SHAPE
    if grid.dtype != np.uint8 or grid.shape != (rows * high, columns * wide, colours):
        raise InvalidInput(
            f"{path} has shape {grid.shape} where {(rows * high, columns * wide, colours)} is expected, "
            f"{rows} by {columns} images: copy it anew"
        )
    return grid.reshape(rows, high, columns, wide, colours).swapaxes(1, 2).reshape(-1, PIXELS)


def read_tree(folder: Path) -> NDArray[np.int64]:
    """The coarse class of each fine one, from `coarse_of_fine.csv`."""
    path = located(folder, "coarse_of_fine.csv", "where the mosaics are from")
    with path.open(newline="") as lines:
        try:
            parent = {int(line["fine"]): int(line["coarse"]) for line in csv.DictReader(lines)}
        except (KeyError, TypeError, ValueError) as reason:
            raise InvalidInput(f"{path}: columns 'fine' and 'coarse' of whole numbers are expected ({reason!r})") from None
    if sorted(parent) != list(range(CLASSES)) or not set(parent.values()) <= set(range(20)):
        raise InvalidInput(f"{path}: give each fine class from 0 to {CLASSES - 1} once, with a coarse class from 0 to 19")
    return np.array([parent[fine] for fine in range(CLASSES)])
