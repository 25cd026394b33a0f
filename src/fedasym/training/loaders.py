"""Samples on their way to the device: of clients in memory once, of clients on disk as they are
needed.

A run asks for two things alone: the samples of a cohort, and all clients a block after the other.
In memory both are one packed federation, which stays on the device. On disk a cohort's clients are
read for some rounds at a time and blocks one by one, the next while the last is computed with; what
is handed over always has the same shapes, so that one compiled program serves all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, device_put
from numpy.typing import NDArray

from fedasym.data.federation import Federation
from fedasym.data.shards import BLOCK_BYTES, ShardedFederation
from fedasym.training.heads import SHORT, Packed, RowTable, Sizes
from fedasym.training.settings import Protocol as Rules
from fedasym.training.twin import personal_rows, pooled_shares

KeptTables = dict[tuple[object, ...], Any]
_TABLES: WeakKeyDictionary[Federation, KeptTables] = WeakKeyDictionary()
Rows = NDArray[np.int32]
TESTED = 512  # clients on disk that are tested at a time, of a block


class Block(NamedTuple):
    """Clients `first` to `last` - 1, on the device."""

    first: int
    last: int
    data: Packed


class Loader(Protocol):
    """Where a run's samples come from."""

    sizes: Sizes
    tested_together: int  # clients of a block that may be tested at a time

    def cohorts(self, drawn: Rows) -> tuple[Packed, Rows]:
        """The clients that are drawn in some rounds, and where each is among them."""

    def blocks(self) -> Iterator[Block]:
        """All clients."""

    def count_rounds(self, usual: int, drawn: int) -> int:
        """Rounds whose clients are held at a time; drawn: clients of a round, over all seeds."""


class MemoryLoader:
    """Clients in memory: packed once, whatever is asked for."""

    def __init__(self, data: Packed, sizes: Sizes) -> None:
        self.data, self.sizes = data, sizes
        self.tested_together = len(sizes.training)

    def cohorts(self, drawn: Rows) -> tuple[Packed, Rows]:
        """Everyone, each in its place."""
        return self.data, drawn

    def blocks(self) -> Iterator[Block]:
        """One block."""
        yield Block(0, len(self.sizes.training), self.data)

    def count_rounds(self, usual: int, drawn: int) -> int:
        """As many as usual."""
        return usual


class Room(NamedTuple):
    """Clients and rows that a packed federation has room for, those behind the last row included;
    no tested rows: it only trains.
    """

    clients: int
    training: int
    tested: int

    @classmethod
    def of(cls, training: NDArray[np.int64], tested: NDArray[np.int64]) -> Room:
        """For these clients, given their numbers of samples."""
        return cls(len(training), *(int(each.sum()) + slack(each) for each in (training, tested)))


def slack(counts: NDArray[np.int64]) -> int:
    """Rows behind the last one, for the last slice or block to run into."""
    return 2 * int(counts.max(initial=0)) + 8


class DiskLoader:
    """Clients on disk: those of some rounds, or a block of them, are read when they are due."""

    def __init__(self, federation: ShardedFederation, rules: Rules, stored: str) -> None:
        self.federation, self.rules, self.stored = federation, rules, np.dtype(stored)
        train, validation, test = sizes_of(federation)
        self.sizes = Sizes(train, validation + test)
        self.ends = federation.block_ends()
        self.room = Room(
            int(np.diff(self.ends).max()),
            *(
                int(np.add.reduceat(each, self.ends[:-1]).max()) + slack(each)
                for each in self.sizes
            ),
        )
        self.tested_together = min(self.room.clients, TESTED)
        self.personal = own_rows(federation, rules, self.stored)
        self.shares: Array | None = None
        self.reserved = Room(0, 0, 0)  # for the clients of some rounds

    def count_rounds(self, usual: int, drawn: int) -> int:
        """As many as fit into two blocks, the largest clients among them."""
        each = self.federation.bytes / self.federation.sizes.sum()
        largest = np.sort(self.sizes.training)[::-1]
        reach = np.cumsum(largest[: usual * drawn]) * each
        fits = int(np.searchsorted(reach, 2 * BLOCK_BYTES, "right"))
        rounds = min(usual, max(fits // drawn, 1))
        if len(largest) <= rounds * drawn:  # everyone fits, however many rounds
            rounds = usual
        clients = min(rounds * drawn, len(largest))
        self.reserved = Room(clients, int(largest[:clients].sum()) + slack(largest), 0)
        return rounds

    def cohorts(self, drawn: Rows) -> tuple[Packed, Rows]:
        """The clients that are drawn in some rounds, and where each is among them."""
        members, places = np.unique(drawn, return_inverse=True)
        return self.pack(members, self.reserved), places.reshape(drawn.shape).astype(np.int32)

    def blocks(self) -> Iterator[Block]:
        """All clients, the next block on its way while the last is computed with."""
        spans = list(pairwise(self.ends))
        with ThreadPoolExecutor(1) as reader:
            waiting = [reader.submit(self.block, *span) for span in spans[:1]]
            for place in range(len(spans)):
                block = waiting.pop().result()
                waiting += [reader.submit(self.block, *span) for span in spans[place + 1 :][:1]]
                yield block

    def block(self, first: int, last: int) -> Block:
        """Clients that stand side by side."""
        return Block(first, last, self.pack(np.arange(first, last), self.room))

    def pack(self, places: NDArray[Any], room: Room) -> Packed:
        """Some clients, read and packed."""
        data = pack_split(self.federation.take(places), self.rules, self.stored, room)[0]
        return data._replace(personal=self.personal, shares=self.shares)


def open_loader(
    federation: Federation,
    splits: Sequence[int],
    rules: Rules,
    precision: str,
    width: int,
    alone: bool,
    corrected: bool,
) -> Loader:
    """Where a run's samples come from.

    width: above 0, Gram matrices of clients in memory are kept. alone: whether nothing is shared,
    so that every weight is a client's own. corrected: whether scores are corrected by the shares of
    the classes, for which samples on disk are read once more.
    """
    if not isinstance(federation, ShardedFederation):
        data, sizes = pack(federation, splits, rules, precision, width)
        return MemoryLoader(data._replace(personal=None) if alone else data, sizes)
    loader = DiskLoader(federation, rules, precision)
    if alone:
        loader.personal = None
    if corrected:
        loader.shares = class_shares([federation], rules, precision)
    return loader


def pack(
    federation: Federation, splits: Sequence[int], rules: Rules, precision: str, width: int
) -> tuple[Packed, Sizes]:
    """The packed federation, kept on the device while it lives; `width` 0: no Gram matrices.

    splits: numbers of reshuffles to be packed instead of the federation's own split.
    """
    kept = _TABLES.setdefault(federation, {})
    key = (rules.intercept, rules.count_padding, precision, *jnp.zeros(()).devices())
    if splits:
        if (*key, "samples") not in kept:
            kept[*key, "samples"] = all_samples(federation, rules, np.dtype(precision))
        data, sizes = stack_splits(kept[*key, "samples"], federation, splits)
        dealt = [federation.resplit(number, fractions=None) for number in splits]
        data = data._replace(
            personal=own_rows(federation, rules, np.dtype(precision)),
            shares=class_shares(dealt, rules, precision),
        )
        grams = all_grams(data.training, width) if width else None
        return data._replace(grams=grams), sizes
    if key not in kept:
        kept[key] = pack_split(federation, rules, np.dtype(precision))
    data, sizes = kept[key]
    if not width:
        return data, sizes
    if (*key, width) not in kept:
        kept[*key, width] = all_grams(data.training, width)
    return data._replace(grams=kept[*key, width]), sizes


def pack_split(
    federation: Federation, rules: Rules, dtype: np.dtype[Any], room: Room | None = None
) -> tuple[Packed, Sizes]:
    """Sort the rows, append the constant feature of an intercept, copy to the device.

    room: what it has room for, where programs expect it; else what it needs. What heads and scores
    of all clients share is for the caller to add then.
    """
    train, validation, test = sizes_of(federation)
    sizes = Sizes(train, validation + test)
    rows = list(rows_of(federation))
    counted = [train, validation, test]
    if room is not None and room.tested == 0:
        rows[1], counted = rows[1][:0], [train, 0 * validation, 0 * test]
    space = Room.of(*sizes) if room is None else room
    parts = zip(rows, (train, counted[1] + counted[2]), space[1:], strict=True)
    training, tested = (
        table(federation, rules, dtype, *part, clients=space.clients) for part in parts
    )
    numbers = (put_on_device(fill_rows(each.astype(np.int32), space.clients)) for each in counted)
    data = Packed(training, tested, *numbers)
    if room is not None:
        return data, sizes
    own = own_rows(federation, rules, dtype)
    shares = class_shares([federation], rules, dtype.name)
    return data._replace(personal=own, shares=shares), sizes


def class_shares(federations: Sequence[Federation], rules: Rules, precision: str) -> Array | None:
    """The pooled shares of the classes in each split; outputs that only fill a shape have 1."""
    first = federations[0]
    if first.classes is None:
        return None
    shares = np.ones((len(federations), padded_size(first.outputs, precision)))
    for place, each in enumerate(federations):
        shares[place, : first.outputs] = pooled_shares(each, rules)
    wide = "float64" if precision == "float64" else "float32"
    return put_on_device(shares.astype(wide))


def rows_of(federation: Federation) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The rows that train, and those that are tested: by client, then validation before test."""
    order = np.lexsort((federation.split, federation.owner))
    trains = federation.split[order] == 0
    return order[trains], order[~trains]


def sizes_of(federation: Federation) -> list[NDArray[np.int64]]:
    """(m,) samples that train, validate and test."""
    kinds = ("train", "validation", "test")
    return [np.asarray(federation.counts(name), np.int64) for name in kinds]


def all_samples(federation: Federation, rules: Rules, dtype: np.dtype[Any]) -> RowTable:
    """Every sample on the device, whatever it serves for."""
    counts = np.bincount(federation.owner, minlength=len(federation.clients))
    size = int(counts.sum()) + slack(counts)
    rows = np.arange(len(federation.owner))
    return table(federation, rules, dtype, rows, counts, size, clients=len(counts))


def stack_splits(
    samples: RowTable, federation: Federation, splits: Sequence[int]
) -> tuple[Packed, Sizes]:
    """Reshuffles of training and validation samples, of equal counts, laid out as more clients."""
    train, validation, test = sizes_of(federation)
    dealt = [rows_of(federation.resplit(number, fractions=None)) for number in splits]
    many = len(splits)
    training, tested = (
        samples._replace(
            first=put_on_device(row_starts(np.tile(counts, many))),
            order=put_on_device(
                fill_rows(np.concatenate(rows), many * int(counts.sum()) + slack(counts))
            ),
        )
        for rows, counts in zip(zip(*dealt, strict=True), (train, validation + test), strict=True)
    )
    counted = (train, validation, test)
    numbers = (put_on_device(np.tile(counts, many).astype(np.int32)) for counts in counted)
    return Packed(training, tested, *numbers), Sizes(train, validation + test)


def put_on_device(array: NDArray[Any]) -> Array:
    """An array of the host where programs find it; `jnp.asarray` compiles one for every shape."""
    placed: Array = device_put(array)
    return placed


def own_rows(federation: Federation, rules: Rules, dtype: np.dtype[Any]) -> Array | None:
    """The rows of a head that may differ between clients, with those that only fill its shape."""
    rows = personal_rows(federation, rules.intercept)
    if rows is None:
        return None
    missing = padded_size(len(rows), dtype.name) - len(rows)
    return put_on_device(np.concatenate([rows, np.ones((missing, 1), bool)]))


def row_starts(counts: NDArray[np.int64]) -> NDArray[np.int32]:
    """Where each client begins."""
    return (np.cumsum(counts) - counts).astype(np.int32)


def fill_rows(array: NDArray[Any], size: int) -> NDArray[Any]:
    """So many rows, zeros behind the last of the array."""
    filled = np.zeros((size, *array.shape[1:]), array.dtype)
    filled[: len(array)] = array
    return filled


def table(
    federation: Federation,
    rules: Rules,
    dtype: np.dtype[Any],
    rows: NDArray[np.intp],
    counts: NDArray[np.int64],
    size: int,
    clients: int,
) -> RowTable:
    """Some rows on the device, in a table of that size with room for so many clients."""
    size, n, d = max(size, 1), len(rows), federation.dimension
    shape = (size, *federation.features.shape[1:-1], padded_size(d + rules.intercept, dtype.name))
    features = np.zeros(shape, dtype)
    features[:n, ..., :d] = federation.features[rows]
    if rules.intercept:
        features[:n, ..., d] = 1
    labels = federation.labels[rows].astype(np.int32 if federation.classes else dtype)
    mask = None if rules.count_padding else federation.mask
    return RowTable(
        put_on_device(features),
        put_on_device(fill_rows(labels, size)),
        None if mask is None else put_on_device(fill_rows(mask[rows], size)),
        put_on_device(fill_rows(row_starts(counts), clients)),
    )


def padded_size(size: int, precision: str) -> int:
    """Features or outputs as a head stores them: short numbers by eights, lest they be copied."""
    return -(-size // 8) * 8 if precision == SHORT else size


@partial(jax.jit, static_argnames=("width",))
def all_grams(training: RowTable, width: int) -> Array:
    """X X' of every client's training rows; kept for runs of any precision, so exact."""

    def gram(start: Array) -> Array:
        x = training.read(training.features, start, width)
        return jnp.matmul(x, x.T, precision=jax.lax.Precision.HIGHEST)

    products: Array = jax.lax.map(gram, training.first, batch_size=64)
    return products
