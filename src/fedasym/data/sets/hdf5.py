"""TensorFlow Federated's HDF5 layout, `examples/<client>/<field>`, read client by client: a file is never held whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput
from fedasym.data.sets.archives import ADDRESS
from fedasym.data.sets.assembly import Counts, library, located

KINDS = {"f": "floating-point numbers", "iu": "whole numbers"}


@dataclass(frozen=True)
class ClientFile:
    """An open file of clients.

    path: where it is. archive: what it was extracted from. clients: their names, in the file's order.
    """

    path: Path
    archive: str
    clients: tuple[str, ...]
    examples: Any

    def wrong(self, client: str, field: str, what: str) -> InvalidInput:
        """The error for one field of one client."""
        return InvalidInput(f"{self.path}: client {client!r}, field {field!r} {what}; extract {self.archive} again")

    def field(self, client: str, field: str) -> Any:
        """The dataset of that field, with at least one sample."""
        group = self.examples.get(client)
        if group is None or not hasattr(group, "keys"):
            raise InvalidInput(f"{self.path}: there is no client {client!r} under 'examples'; it has {listed(self.clients)}")
        data = group.get(field)
        if data is None or not hasattr(data, "dtype"):
            raise self.wrong(client, field, f"is missing, and there is {listed(tuple(group)) or 'nothing'}")
        if not data.shape:
            raise self.wrong(client, field, "is a single value and not one per sample")
        if data.shape[0] == 0:
            raise self.wrong(client, field, "is empty, and every client has samples")
        return data

    def length(self, client: str, field: str) -> int:
        """How many samples a client has, without reading them."""
        return int(self.field(client, field).shape[0])

    def read(self, client: str, field: str) -> NDArray[Any]:
        """A field's values."""
        data = self.field(client, field)
        try:
            return np.asarray(data[()])
        except (OSError, RuntimeError) as reason:
            raise self.wrong(client, field, f"cannot be read ({reason}): the file is damaged") from None

    def numbers(self, client: str, field: str, shape: tuple[int, ...], kinds: str, most: int | None = None) -> NDArray[Any]:
        """Numbers of that shape per sample: finite ones, or, with `most`, from 0 to that."""
        data = self.field(client, field)
        if data.dtype.kind not in kinds:
            raise self.wrong(client, field, f"holds {data.dtype} where {KINDS[kinds]} are expected")
        if data.shape[1:] != shape:
            raise self.wrong(client, field, f"has shape {data.shape} where {('samples', *shape)} is expected".replace("'", ""))
        values = self.read(client, field)
        if most is not None and not (values.min() >= 0 and values.max() <= most):
            bad = values[(values < 0) | (values > most)].flat[0]
            raise self.wrong(client, field, f"holds {bad} where numbers from 0 to {most} are expected")
        if not np.isfinite(values).all():
            raise self.wrong(client, field, "holds NaN or infinite numbers")
        return values

    def texts(self, client: str, field: str) -> list[bytes]:
        """One byte string per sample, of fixed or variable length."""
        data = self.field(client, field)
        if data.ndim != 1 or data.dtype.kind not in "SO":
            raise self.wrong(client, field, f"has shape {data.shape} and type {data.dtype} where one string each is expected")
        values = self.read(client, field).tolist()
        for value in values:
            if not isinstance(value, bytes | str):
                raise self.wrong(client, field, f"holds {value!r} where strings are expected")
        return [value.encode() if isinstance(value, str) else value for value in values]


def listed(names: Sequence[str]) -> str:
    """The first few of some names."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


@contextmanager
def opened(folder: str | Path, name: str, archive: str) -> Iterator[ClientFile]:
    """The file of that name, open while the block lasts."""
    path = located(folder, name, f"the archive {ADDRESS}{archive}")
    h5py = library("h5py", "h5py")
    try:
        file = h5py.File(path, "r")
    except OSError as reason:
        why = "it is cut short" if "truncated" in str(reason) else "it is damaged or of another kind"
        raise InvalidInput(f"{path} cannot be opened as HDF5, {why} ({reason}): extract {archive} again") from None
    with file:
        examples = file.get("examples")
        if examples is None or not hasattr(examples, "keys"):
            raise InvalidInput(
                f"{path}: the group 'examples' is missing, and there is {listed(tuple(file)) or 'nothing'}: give TensorFlow "
                f"Federated's file, from {archive}"
            )
        clients = tuple(examples)
        if not clients:
            raise InvalidInput(f"{path}: the group 'examples' holds no client: extract {archive} again")
        yield ClientFile(path, archive, clients, examples)


def same_clients(train: ClientFile, test: ClientFile) -> tuple[str, ...]:
    """The clients of a training and a test file, which must be the same."""
    for one, other in ((train, test), (test, train)):
        alone = sorted(set(one.clients) - set(other.clients))
        if alone:
            raise InvalidInput(
                f"{other.path} lacks {listed(alone)}, which {one.path.name} has: extract {train.archive} again, so that both "
                "files are of one version"
            )
    return train.clients


def images(
    parts: Sequence[tuple[ClientFile, str]], field: str, shape: tuple[int, ...], kinds: str, most: int | None, classes: int
) -> tuple[NDArray[np.float32], NDArray[np.int64], Counts]:
    """Pixels, one row per image, labels, and how many images each part has; a part is a client of a file.

    Sizes are read first, so that every image goes to its final place and none is held twice.
    """
    counts = np.array([file.length(client, field) for file, client in parts], dtype=np.intp)
    features = np.empty((int(counts.sum()), int(np.prod(shape))), np.float32)
    labels = np.empty(len(features), np.int64)
    start = 0
    for (file, client), count in zip(parts, counts.tolist(), strict=True):
        rows = slice(start, start + count)
        named = file.numbers(client, "label", (), "iu", classes - 1)
        if len(named) != count:
            raise file.wrong(client, "label", f"has {len(named)} samples while {field!r} has {count}")
        features[rows] = file.numbers(client, field, shape, kinds, most).reshape(count, -1)
        labels[rows] = named
        start += count
    return features, labels, counts
