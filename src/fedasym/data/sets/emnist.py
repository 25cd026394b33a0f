"""EMNIST by writer, 62 classes: TensorFlow Federated's files, 3,400 writers."""

from __future__ import annotations

import string
from pathlib import Path
from typing import TYPE_CHECKING

from fedasym.data.sets.assembly import assembled, by_files
from fedasym.data.sets.hdf5 import images, opened, same_clients

if TYPE_CHECKING:
    from fedasym.data.federation.federation import Federation

CLASSES = string.digits + string.ascii_uppercase + string.ascii_lowercase
SHAPE = (28, 28)


def load(folder: str | Path, *, seed: int = 0, digits_only: bool = False) -> Federation:
    """Writers and their characters, from `fed_emnist_train.h5` and `fed_emnist_test.h5` in `folder`.

    Features are the 784 pixels as the files have them: 1 is the background and 0 is ink. The classes are "0" to "9", "A" to
    "Z" and "a" to "z". The test file is the test set; the training file is shuffled by `seed`, and int(n 0.8/0.9) of a
    writer's n samples train and the others validate. All 749,068 images take 2.4 GB.

    digits_only: read TensorFlow Federated's `fed_emnist_digitsonly_*.h5` instead, with 10 classes.
    """
    stem = "fed_emnist_digitsonly" if digits_only else "fed_emnist"
    classes, archive = CLASSES[:10] if digits_only else CLASSES, f"{stem}.tar.bz2"
    with opened(folder, f"{stem}_train.h5", archive) as train, opened(folder, f"{stem}_test.h5", archive) as test:
        writers = same_clients(train, test)
        parts = [(file, writer) for writer in writers for file in (train, test)]
        features, labels, counts = images(parts, "pixels", SHAPE, "f", None, len(classes))
    trained, tested = counts[0::2], counts[1::2]
    return assembled(features, labels, writers, trained + tested, by_files(writers, trained, tested, seed), classes)
