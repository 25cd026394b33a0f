"""Samples and models on the device: clients' flat tables, and two exact forms of a model.

A run asks for two kinds of samples alone: those of a cohort, and of all clients a block after the
other. In memory both are one packed federation, which stays on the device. On disk a cohort's
clients are read for some rounds at a time and blocks one by one, the next while the last is
computed with; what is handed over always has the same shapes, so that one compiled program serves
all of it.

Every local method starts at the shared head W_0 and adds multiples of its samples, so its model is
s W_0 + X'a. A `Matrix` is that head (d x outputs). A `Span` keeps only s and a (samples x outputs)
and reads outputs off the Gram matrix X X': where a client has fewer samples than features, the long
axis d is never touched between the first and the last step.

Both speak the same words, so that an algorithm is written once: `start`, `products` with a batch's
samples, `move` along a batch, and the `overlap` of two batches, by which a move along one is seen
at the other. Points are trees of arrays, combined by `blend`.
"""

from __future__ import annotations

import os
import typing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, device_put, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput
from fedasym.data.federation import Federation
from fedasym.data.shards import BLOCK_BYTES, ShardedFederation
from fedasym.training.settings import Protocol
from fedasym.training.twin import personal_rows, pooled_shares


def index_within(array: Array, places: Array | int) -> Array:
    """array[places], all of them within: JAX's own indexing asks whether they are, and whether they
    are negative, which takes more time to trace and to compile than all else that a step does.
    """
    if jnp.ndim(places):
        return jnp.take(array, places, axis=0, mode="clip")
    found: Array = lax.dynamic_index_in_dim(
        array, places, keepdims=False, allow_negative_indices=False
    )
    return found


class RowTable(NamedTuple):
    """Samples of all clients on the device."""

    features: Array  # (rows + spare, [positions,] d)
    labels: Array  # (rows + spare, [positions]) codes, or (..., outputs) values
    real: Array | None  # (rows + spare, positions): False on padding
    first: Array  # (m,) a client's first row
    order: Array | None = None  # where rows lie among the samples; None: one after the other

    @property
    def positions(self) -> int:
        """Positions of a sequence; 1 for plain samples."""
        return self.features.shape[1] if self.features.ndim == 3 else 1

    @property
    def axes(self) -> int:
        """Axes of samples and positions."""
        return self.features.ndim - 1

    def places(self, rows: Array) -> Array:
        """Where these rows lie."""
        return rows if self.order is None else index_within(self.order, rows)

    def read(self, array: Array, first: Array, count: int) -> Array:
        """So many rows of the features, labels or padding, from a first one on."""
        if self.order is None:
            return jax.lax.dynamic_slice_in_dim(array, first, count)
        return index_within(array, jax.lax.dynamic_slice_in_dim(self.order, first, count))


class Packed(NamedTuple):
    """The device's copy of a federation."""

    training: RowTable
    tested: RowTable  # validation rows, then test rows
    trained: Array  # (m,) how many rows train
    validation: Array  # (m,) how many of the tested
    test: Array  # (m,)
    # (d, 1): rows of a head that may differ between clients; None: all
    personal: Array | None = None
    # (m, width, width) products of a client's training rows, for the Gram form
    grams: Array | None = None
    # (splits, outputs) shares of the classes among all training samples
    shares: Array | None = None


class Sizes(NamedTuple):
    """What the host knows of the same federation."""

    training: NDArray[np.int64]  # (m,) samples
    tested: NDArray[np.int64]  # (m,) validation and test samples


SHORT = "bfloat16"  # features and outputs of sequences, whose traffic bounds the speed


@contextmanager
def numbers_as(precision: str) -> Iterator[str]:
    """A block in which JAX computes in that precision, whatever the user's; gives the models' type.

    Accelerators shorten float32 in products unless they are told not to: float32 means float32
    here, and mixed leaves it to them (TF32 on NVIDIA's), with sums, models and losses in float32.
    So does bfloat16, which also stores features so.
    """
    wide = jax.enable_x64(True) if precision == "float64" else nullcontext()
    shortened = precision in ("mixed", SHORT)
    with wide, jax.default_matmul_precision("default" if shortened else "highest"):
        yield "float32" if shortened else precision


KeptTables = dict[tuple[object, ...], Any]
_TABLES: WeakKeyDictionary[Federation, KeptTables] = WeakKeyDictionary()
Rows = NDArray[np.int32]
TESTED = 512  # clients on disk that are tested at a time, of a block


class Block(NamedTuple):
    """Clients `first` to `last` - 1, on the device."""

    first: int
    last: int
    data: Packed


class Loader(typing.Protocol):
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

    def __init__(
        self, data: Packed, sizes: Sizes, width: int = 0, kept: dict[int, Array] | None = None
    ) -> None:
        """width: above 0, Gram matrices are kept, by width; they are there after `complete`."""
        self.sizes, self.width, self.kept = sizes, width, {} if kept is None else kept
        self.data = data._replace(grams=self.kept.get(width))
        self.tested_together = len(sizes.training)

    @property
    def shapes(self) -> Packed:
        """The samples as they will be, for programs that are compiled before."""
        if not self.width or self.data.grams is not None:
            return self.data
        clients, features = self.data.training.first.shape[0], self.data.training.features
        shape = (clients, self.width, self.width)
        return self.data._replace(grams=array_of(shape, features.dtype))

    def complete(self, call: Callable[..., Any]) -> None:
        """Find what is missing; call: has a function called."""
        if self.width and self.data.grams is None:
            self.kept[self.width] = call(all_grams, self.data.training, self.width)
            self.data = self.data._replace(grams=self.kept[self.width])

    def cohorts(self, drawn: Rows) -> tuple[Packed, Rows]:
        """Everyone, each in its place."""
        return self.data, drawn

    def blocks(self) -> Iterator[Block]:
        """One block."""
        yield Block(0, len(self.sizes.training), self.data)

    def count_rounds(self, usual: int, drawn: int) -> int:
        """As many as usual."""
        return usual


def array_of(shape: Sequence[int], dtype: Any) -> Any:
    """An array without its numbers, for programs that are compiled before it is there."""
    kind: Any = jax.ShapeDtypeStruct
    return kind(tuple(shape), dtype)


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
        return cls(
            len(training), *(int(each.sum()) + spare_rows(each) for each in (training, tested))
        )


def spare_rows(counts: NDArray[np.int64]) -> int:
    """Rows behind the last one, for the last slice or block to run into."""
    return 2 * int(counts.max(initial=0)) + 8


class DiskLoader:
    """Clients on disk: those of some rounds, or a block of them, are read when they are due."""

    def __init__(
        self, federation: ShardedFederation, protocol: Protocol, stored: str, apart: bool = False
    ) -> None:
        """apart: whether each block is of one shard."""
        self.federation, self.protocol, self.stored = federation, protocol, np.dtype(stored)
        train, validation, test = sizes_of(federation)
        self.sizes = Sizes(train, validation + test)
        self.ends = federation.block_ends(apart=apart)
        self.room = Room(
            int(np.diff(self.ends).max()),
            *(
                int(np.add.reduceat(each, self.ends[:-1]).max()) + spare_rows(each)
                for each in self.sizes
            ),
        )
        self.tested_together = min(self.room.clients, TESTED)
        self.personal = own_rows(federation, protocol, self.stored)
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
        self.reserved = Room(clients, int(largest[:clients].sum()) + spare_rows(largest), 0)
        return rounds

    def cohorts(self, drawn: Rows) -> tuple[Packed, Rows]:
        """The clients that are drawn in some rounds, and where each is among them."""
        members, places = np.unique(drawn, return_inverse=True)
        return self.pack(members, self.reserved), places.reshape(drawn.shape).astype(np.int32)

    def blocks(self, first: int = 0, last: int | None = None) -> Iterator[Block]:
        """All clients, or those of the blocks between two places, the next block on its way while
        the last is computed with.
        """
        stop = self.ends[-1] if last is None else last
        spans = [span for span in pairwise(self.ends) if first <= span[0] < stop]
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
        return self.pack_taken(self.federation.take(places), room)

    def pack_taken(self, clients: Federation, room: Room) -> Packed:
        """Some clients in memory, packed: in any thread, and each has a precision of its own."""
        with jax.enable_x64(True) if self.stored == np.float64 else nullcontext():
            data = pack_split(clients, self.protocol, self.stored, room)[0]
        return data._replace(personal=self.personal, shares=self.shares)


def open_loader(
    federation: Federation,
    splits: Sequence[int],
    protocol: Protocol,
    precision: str,
    width: int,
    alone: bool,
    corrected: bool,
) -> Loader:
    """Where a run's samples come from.

    width: above 0, Gram matrices of clients in memory are kept, once it is complete. alone: whether
    nothing is shared, so that every weight is a client's own. corrected: whether scores are
    corrected by the shares of the classes, for which samples on disk are read once more.
    """
    if not isinstance(federation, ShardedFederation):
        data, sizes, kept = pack(federation, splits, protocol, precision)
        data = data._replace(personal=None) if alone else data
        return MemoryLoader(data, sizes, width, kept)
    loader = DiskLoader(federation, protocol, precision, federation.keepers is not None)
    if alone:
        loader.personal = None
    if corrected:
        loader.shares = class_shares([federation], protocol, precision)
    return loader


def pack(
    federation: Federation, splits: Sequence[int], protocol: Protocol, precision: str
) -> tuple[Packed, Sizes, dict[int, Array]]:
    """The packed federation, kept on the device while it lives, and its Gram matrices by width.

    splits: numbers of reshuffles to be packed instead of the federation's own split.
    """
    kept = _TABLES.setdefault(federation, {})
    where = device_put(np.float32(0)).devices()
    key = (protocol.intercept, protocol.count_padding, precision, *where)
    if splits:
        if (*key, "samples") not in kept:
            kept[*key, "samples"] = all_samples(federation, protocol, np.dtype(precision))
        data, sizes = stack_splits(kept[*key, "samples"], federation, splits)
        dealt = [federation.resplit(number, fractions=None) for number in splits]
        data = data._replace(
            personal=own_rows(federation, protocol, np.dtype(precision)),
            shares=class_shares(dealt, protocol, precision),
        )
        return data, sizes, {}
    if key not in kept:
        kept[key] = *pack_split(federation, protocol, np.dtype(precision)), {}
    found: tuple[Packed, Sizes, dict[int, Array]] = kept[key]
    return found


def pack_split(
    federation: Federation, protocol: Protocol, dtype: np.dtype[Any], room: Room | None = None
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
        table(federation, protocol, dtype, *part, clients=space.clients) for part in parts
    )
    numbers = (put_on_device(fill_rows(each.astype(np.int32), space.clients)) for each in counted)
    data = Packed(training, tested, *numbers)
    if room is not None:
        return data, sizes
    own = own_rows(federation, protocol, dtype)
    shares = class_shares([federation], protocol, dtype.name)
    return data._replace(personal=own, shares=shares), sizes


def class_shares(
    federations: Sequence[Federation], protocol: Protocol, precision: str
) -> Array | None:
    """The pooled shares of the classes in each split; outputs that only fill a shape have 1."""
    first = federations[0]
    if first.classes is None:
        return None
    shares = np.ones((len(federations), padded_size(first.outputs, precision)))
    for place, each in enumerate(federations):
        shares[place, : first.outputs] = pooled_shares(each, protocol)
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


def all_samples(federation: Federation, protocol: Protocol, dtype: np.dtype[Any]) -> RowTable:
    """Every sample on the device, whatever it serves for."""
    counts = np.bincount(federation.owner, minlength=len(federation.clients))
    size = int(counts.sum()) + spare_rows(counts)
    rows = np.arange(len(federation.owner))
    return table(federation, protocol, dtype, rows, counts, size, clients=len(counts))


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
                fill_rows(np.concatenate(rows), many * int(counts.sum()) + spare_rows(counts))
            ),
        )
        for rows, counts in zip(zip(*dealt, strict=True), (train, validation + test), strict=True)
    )
    counted = (train, validation, test)
    numbers = (put_on_device(np.tile(counts, many).astype(np.int32)) for counts in counted)
    return Packed(training, tested, *numbers), Sizes(train, validation + test)


def put_on_device(array: NDArray[Any]) -> Array:
    """An array of the host where programs find it, on every device where there are several;
    `jnp.asarray` compiles a program for every shape.
    """
    mesh = device_mesh()
    placed: Array = device_put(array, None if mesh is None else NamedSharding(mesh, EVERYWHERE))
    return placed


DEVICES = "devices"  # the axis of the mesh
spec: Any = PartitionSpec
EVERYWHERE, FIRST, SECOND = spec(), spec(DEVICES), spec(None, DEVICES)  # axes that are dealt out


@cache
def device_mesh() -> Mesh | None:
    """The devices that share the work: so many as the variable FEDASYM_DEVICES says, or "all"; None
    where it is one, as by default.
    """
    told, devices = os.environ.get("FEDASYM_DEVICES", "1"), jax.local_devices()
    if told != "all" and not (told.isdigit() and 1 <= int(told) <= len(devices)):
        raise InvalidInput(
            f"FEDASYM_DEVICES is {told!r}: it must be 'all' or from 1 to the {len(devices)} devices"
            " that JAX finds"
        )
    chosen = devices if told == "all" else devices[: int(told)]
    return Mesh(np.array(chosen), (DEVICES,)) if len(chosen) > 1 else None


def whole_share(count: int) -> int:
    """So many, or the few more that give each of several devices the same number."""
    mesh = device_mesh()
    return count if mesh is None else -(-count // mesh.size) * mesh.size


def own_rows(federation: Federation, protocol: Protocol, dtype: np.dtype[Any]) -> Array | None:
    """The rows of a head that may differ between clients, with those that only fill its shape."""
    rows = personal_rows(federation, protocol.intercept)
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
    protocol: Protocol,
    dtype: np.dtype[Any],
    rows: NDArray[np.intp],
    counts: NDArray[np.int64],
    size: int,
    clients: int,
) -> RowTable:
    """Some rows on the device, in a table of that size with room for so many clients."""
    size, n, d = max(size, 1), len(rows), federation.dimension
    shape = (
        size,
        *federation.features.shape[1:-1],
        padded_size(d + protocol.intercept, dtype.name),
    )
    features = np.zeros(shape, dtype)
    features[:n, ..., :d] = federation.features[rows]
    if protocol.intercept:
        features[:n, ..., d] = 1
    labels = federation.labels[rows].astype(np.int32 if federation.classes else dtype)
    mask = None if protocol.count_padding else federation.mask
    return RowTable(
        put_on_device(features),
        put_on_device(fill_rows(labels, size)),
        None if mask is None else put_on_device(fill_rows(mask[rows], size)),
        put_on_device(fill_rows(row_starts(counts), clients)),
    )


def padded_size(size: int, precision: str) -> int:
    """Features or outputs as a head stores them: short numbers by eights, lest they be copied."""
    return -(-size // 8) * 8 if precision == SHORT else size


# On a GPU: as fast on these products, and compiled in a sixth of the time, since no kernels are
# tried against each other.
OPTIONS = {"xla_gpu_enable_triton_gemm": False, "xla_gpu_autotune_level": 0}


@partial(jax.jit, static_argnames=("width",), compiler_options=OPTIONS)
def all_grams(training: RowTable, width: int) -> Array:
    """X X' of every client's training rows; kept for runs of any precision, so exact."""

    def gram(start: Array) -> Array:
        x = training.read(training.features, start, width)
        return jnp.matmul(x, x.T, precision=jax.lax.Precision.HIGHEST)

    products: Array = jax.lax.map(gram, training.first, batch_size=64)
    return products


Point = Any  # a matrix, or a Coordinates: what moves in a Space


class BatchRows(NamedTuple):
    """Batches of one client: rows, labels and weights (1/size, or 0 if missing), positions
    flattened.
    """

    rows: Array  # (..., B) within the client
    at: Array  # (..., B) among all training rows
    labels: Array  # (..., B * positions, [outputs])
    weights: Array  # (..., B * positions, 1)


def read_batch(training: RowTable, member: Array, rows: Array) -> BatchRows:
    """The batches that a plan's rows of a client name, (..., B); -1 is no row."""
    local = jnp.maximum(rows, 0)
    at = training.places(index_within(training.first, member) + local)
    real = jnp.broadcast_to((rows >= 0)[..., None], (*rows.shape, training.positions))
    if training.real is not None:
        real &= index_within(training.real, at)
    batches = rows.shape[:-1]
    weights = real.reshape(*batches, -1, 1)
    weights = weights.astype(jnp.promote_types(training.features.dtype, jnp.float32))
    weights /= jnp.maximum(weights.sum(-2, keepdims=True), 1)
    labels = index_within(training.labels, at)
    labels = labels.reshape(*batches, weights.shape[-2], *training.labels.shape[training.axes :])
    return BatchRows(local, at, labels, weights)


class Matrix(NamedTuple):
    """The model as its matrix; where some rows may be a client's own, it moves only these."""

    training: RowTable
    shared: Array  # W_0, (d, outputs)
    classes: int = 0  # real outputs, where columns behind them only fill up the shape
    own: Array | None = None  # (d, 1): rows that may be a client's own; None: all
    keep: bool = False  # whether the others stay as they are in W_0: in client stages

    def start(self) -> Array:
        """The shared model."""
        return self.shared

    @property
    def splits(self) -> bool:
        """Whether only some rows may be a client's own."""
        return self.own is not None

    def products(self, point: Any, batch: BatchRows) -> Array:
        """The products X_b W of any matrix W, as short as the samples are."""
        x = self.rows(batch)
        return product(x, point.astype(x.dtype), x.dtype)

    def move(self, point: Any, batch: BatchRows, amounts: Array, own: bool = False) -> Array:
        """The matrix W + X_b' amounts."""
        x = self.rows(batch)
        change = product(x.T, amounts.astype(x.dtype), point.dtype)
        moved: Array = point + (self.part(change, True) if own or self.keep else change)
        return moved

    def part(self, point: Any, own: bool) -> Array:
        """The weights that may be a client's own, or the others; 0 elsewhere."""
        if self.own is None:
            return point if own else jnp.zeros_like(point)
        return jnp.where(self.own, point, 0) if own else jnp.where(self.own, 0, point)

    def fix_shared_rows(self, point: Any) -> Array:
        """The point with the shared model's rows where they may not be a client's own."""
        fixed = self.own if self.keep else None
        return jnp.where(fixed, point, self.shared) if fixed is not None else point

    def distance(self, point: Any) -> Array:
        """|W - W_0|: the length of an update."""
        return jnp.sqrt(((point - self.shared) ** 2).sum())

    def overlap(self, batch: BatchRows, at: BatchRows, uses: int, own: bool) -> Array | None:
        """X_at X_b', where that takes fewer multiplications than moving the matrix each time."""
        d, outputs = self.shared.shape
        rows = len(batch.weights)
        restricted = self.own is not None and (own or self.keep)
        if restricted or rows * (d + uses * outputs) >= 2 * uses * d * outputs:
            return None
        return product(self.rows(at), self.rows(batch).T, batch.weights.dtype)

    def rows(self, batch: BatchRows) -> Array:
        """The batch's samples or positions."""
        return flat_rows(index_within(self.training.features, batch.at))


class Coordinates(NamedTuple):
    """The model s W_0 + X'a."""

    scale: Array  # s, ()
    amounts: Array  # a, (samples, outputs)


class Span(NamedTuple):
    """The model by its coordinates in the span of the shared model and the client's samples."""

    gram: Array  # X X', (width, width)
    first_outputs: Array  # X W_0, (width, outputs)
    classes: int = 0  # as in a head
    shared: Array | None = None  # W_0, where lengths of updates are asked for

    @property
    def splits(self) -> bool:
        """All weights are a client's own."""
        return False

    def start(self) -> Coordinates:
        """The shared model."""
        return Coordinates(jnp.ones((), self.gram.dtype), jnp.zeros_like(self.first_outputs))

    def products(self, point: Any, batch: BatchRows) -> Array:
        """The products s X_b W_0 + X_b X' a."""
        own = jnp.matmul(index_within(self.gram, batch.rows), point.amounts)
        products: Array = own + point.scale * index_within(self.first_outputs, batch.rows)
        return products

    def move(self, point: Any, batch: BatchRows, amounts: Array, own: bool = False) -> Coordinates:
        """Add amounts to the batch's coordinates."""
        return Coordinates(point.scale, point.amounts.at[batch.rows].add(amounts))

    def part(self, point: Any, own: bool) -> Point:
        """All weights are a client's own."""
        return point if own else jax.tree.map(jnp.zeros_like, point)

    def fix_shared_rows(self, point: Any) -> Point:
        """The point as it is."""
        return point

    def distance(self, point: Any) -> Array:
        """|s W_0 + X'a - W_0|: its square is a'Ga, where W_0 is not scaled."""
        assert self.shared is not None
        away = point.scale - 1
        inside = jnp.matmul(self.gram, point.amounts, precision=lax.Precision.HIGHEST)
        square = (point.amounts * (inside + 2 * away * self.first_outputs)).sum()
        return jnp.sqrt(jnp.maximum(square + (away**2) * (self.shared**2).sum(), 0))

    def overlap(self, batch: BatchRows, at: BatchRows, uses: int, own: bool) -> Array:
        """X_at X_b'."""
        return index_within(self.gram, at.rows)[:, batch.rows]


Space = Matrix | Span  # the forms that an algorithm sees alike


def product(a: Array, b: Array, dtype: Any) -> Array:
    """The matrix product, sums and result in float32; a processor widens short numbers first.

    Products of short numbers are exact in float32, and XLA does not take all of them as they are.
    """
    if a.dtype.itemsize >= 4:
        return jnp.matmul(a, b)

    def multiply_widened(a: Array, b: Array) -> Array:
        return jnp.matmul(a.astype(jnp.float32), b.astype(jnp.float32)).astype(dtype)

    def multiply_as_they_are(a: Array, b: Array) -> Array:
        return jnp.matmul(a, b, preferred_element_type=dtype)

    result: Array = lax.platform_dependent(a, b, cpu=multiply_widened, default=multiply_as_they_are)
    return result


def mask_filling(outputs: Array, classes: int) -> Array:
    """Outputs without the columns behind the real classes: no probability, so no gradient."""
    if not classes:
        return outputs
    return jnp.where(jnp.arange(outputs.shape[-1]) < classes, outputs, -jnp.inf)


def flat_rows(features: Array) -> Array:
    """Samples, or the positions of sequences, as rows."""
    return features.reshape(-1, features.shape[-1])


def flat_labels(samples: RowTable, labels: Array) -> Array:
    """The labels of those rows."""
    return labels.reshape(-1, *labels.shape[samples.axes :])


def blend(*terms: tuple[Array | float, Point]) -> Point:
    """The linear combination sum c p of points."""
    (c, p), *rest = terms
    total = jax.tree.map(lambda leaf: c * leaf, p)
    for c, p in rest:
        total = jax.tree.map(lambda sum_, leaf, c=c: sum_ + c * leaf, total, p)
    return total
