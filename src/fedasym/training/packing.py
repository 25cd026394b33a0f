"""A federation as the arrays that compiled programs read: rows of one client side by side, training and tested apart.

Programs read a client as a slice of fixed width from its first row. Where it is smaller, the slice runs into its neighbour;
no batch ever names those rows, so they never count. Several splits of the same samples share one copy of them: each has its
own clients, m after m, and an order that says where their rows lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from fedasym.data.federation.federation import Federation
from fedasym.training.settings import Protocol
from fedasym.training.twin_batches import personal_rows


class Table(NamedTuple):
    """Samples of all clients on the device."""

    features: Array  # (rows + slack, [positions,] d)
    labels: Array  # (rows + slack, [positions]) codes, or (..., outputs) values
    real: Array | None  # (rows + slack, positions): False on padding
    first: Array  # (m,) a client's first row
    order: Array | None = None  # where rows lie among the samples; None: one after the other

    @property
    def positions(self) -> int:
        """Positions of a sequence; 1 for plain samples."""
        return self.features.shape[1] if self.features.ndim == 3 else 1

    def places(self, rows: Array) -> Array:
        """Where these rows lie."""
        return rows if self.order is None else self.order[rows]

    def read(self, array: Array, first: Array, count: int) -> Array:
        """So many rows of the features, labels or padding, from a first one on."""
        if self.order is None:
            return jax.lax.dynamic_slice_in_dim(array, first, count)
        return array[jax.lax.dynamic_slice_in_dim(self.order, first, count)]


class Packed(NamedTuple):
    """The device's copy of a federation."""

    training: Table
    tested: Table  # validation rows, then test rows
    trained: Array  # (m,) how many rows train
    validation: Array  # (m,) how many of the tested
    test: Array  # (m,)
    personal: Array | None = None  # (d, 1): rows of a head that may differ between clients; None: all
    grams: Array | None = None  # (m, width, width) products of a client's training rows, for the Gram form


class Sizes(NamedTuple):
    """What the host knows of the same federation."""

    training: NDArray[np.int64]  # (m,) samples
    tested: NDArray[np.int64]  # (m,) validation and test samples


SHORT = "bfloat16"  # features and outputs of sequences, whose traffic bounds the speed
Kept = dict[tuple[object, ...], Any]
_KEPT: WeakKeyDictionary[Federation, Kept] = WeakKeyDictionary()


@contextmanager
def numbers_as(precision: str) -> Iterator[str]:
    """Within it JAX computes in that precision; the user's own setting is left alone. Gives the type of models.

    Accelerators shorten float32 in products unless they are told not to: float32 means float32 here, and mixed leaves it to
    them (TF32 on NVIDIA's), with sums, models and losses in float32. So does bfloat16, which also stores features so.
    """
    wide = jax.enable_x64(True) if precision == "float64" else nullcontext()
    shortened = precision in ("mixed", SHORT)
    with wide, jax.default_matmul_precision("default" if shortened else "highest"):
        yield "float32" if shortened else precision


def pack(
    federation: Federation, splits: Sequence[int], protocol: Protocol, precision: str, gram_width: int
) -> tuple[Packed, Sizes]:
    """The packed federation, kept on the device as long as the federation lives; `gram_width` 0: no Gram matrices.

    splits: numbers of reshuffles to be packed instead of the federation's own split.
    """
    kept = _KEPT.setdefault(federation, {})
    (device,) = jnp.zeros(()).devices()
    key = (protocol.intercept, protocol.count_padding, precision, device)
    if splits:
        if (*key, "samples") not in kept:
            kept[*key, "samples"] = all_samples(federation, protocol, np.dtype(precision))
        data, sizes = several(kept[*key, "samples"], federation, splits)
        data = data._replace(personal=own_rows(federation, protocol, np.dtype(precision)))
        return data._replace(grams=all_grams(data.training, gram_width) if gram_width else None), sizes
    if key not in kept:
        kept[key] = packed(federation, protocol, np.dtype(precision))
    data, sizes = kept[key]
    if not gram_width:
        return data, sizes
    if (*key, gram_width) not in kept:
        kept[*key, gram_width] = all_grams(data.training, gram_width)
    return data._replace(grams=kept[*key, gram_width]), sizes


def packed(federation: Federation, protocol: Protocol, dtype: np.dtype[Any]) -> tuple[Packed, Sizes]:
    """Sort the rows, append the constant feature of an intercept, copy to the device."""
    train, validation, test = sizes_of(federation)
    mask = None if protocol.count_padding else federation.mask
    training, tested = (
        table(federation, protocol, mask, dtype, rows, counts)
        for rows, counts in zip(rows_of(federation), (train, validation + test), strict=True)
    )
    numbers = (jnp.asarray(counts, jnp.int32) for counts in (train, validation, test))
    data = Packed(training, tested, *numbers)._replace(personal=own_rows(federation, protocol, dtype))
    return data, Sizes(train, validation + test)


def rows_of(federation: Federation) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The rows that train, and those that are tested: by client, then validation before test."""
    order = np.lexsort((federation.split, federation.owner))
    trains = federation.split[order] == 0
    return order[trains], order[~trains]


def sizes_of(federation: Federation) -> list[NDArray[np.int64]]:
    """(m,) samples that train, validate and test."""
    return [np.asarray(federation.counts(name), np.int64) for name in ("train", "validation", "test")]


def all_samples(federation: Federation, protocol: Protocol, dtype: np.dtype[Any]) -> Table:
    """Every sample on the device, whatever it serves for."""
    mask = None if protocol.count_padding else federation.mask
    rows = np.arange(len(federation.owner))
    return table(federation, protocol, mask, dtype, rows, np.bincount(federation.owner, minlength=len(federation.clients)))


def several(samples: Table, federation: Federation, splits: Sequence[int]) -> tuple[Packed, Sizes]:
    """Reshuffles of training and validation samples, each with as many of each kind: one after the other, as more clients."""
    train, validation, test = sizes_of(federation)
    dealt = [rows_of(federation.resplit(number, fractions=None)) for number in splits]
    training, tested = (
        samples._replace(first=starts(np.tile(counts, len(splits))), order=padded(np.concatenate(rows), counts))
        for rows, counts in zip(zip(*dealt, strict=True), (train, validation + test), strict=True)
    )
    numbers = (jnp.asarray(np.tile(counts, len(splits)), jnp.int32) for counts in (train, validation, test))
    return Packed(training, tested, *numbers), Sizes(train, validation + test)


def own_rows(federation: Federation, protocol: Protocol, dtype: np.dtype[Any]) -> Array | None:
    """The rows of a head that may differ between clients, those that only fill up its shape among them."""
    rows = personal_rows(federation, protocol.intercept)
    if rows is None:
        return None
    missing = in_full(len(rows), dtype.name) - len(rows)
    return jnp.asarray(np.concatenate([rows, np.ones((missing, 1), bool)]))


def starts(counts: NDArray[np.int64]) -> Array:
    """Where each client begins."""
    return jnp.asarray(np.cumsum(counts) - counts, jnp.int32)


def padded(array: NDArray[Any], counts: NDArray[np.int64]) -> Array:
    """Rows on the device with slack behind them, for the last slice or block to run into."""
    slack = 2 * int(counts.max()) + 8
    return jnp.asarray(np.concatenate([array, np.zeros((slack, *array.shape[1:]), array.dtype)]))


def table(
    federation: Federation,
    protocol: Protocol,
    mask: NDArray[np.bool_] | None,
    dtype: np.dtype[Any],
    rows: NDArray[np.intp],
    counts: NDArray[np.int64],
) -> Table:
    """Some rows on the device."""
    features = federation.features[rows].astype(dtype)
    if protocol.intercept:
        features = np.concatenate([features, np.ones_like(features[..., :1])], axis=-1)
    missing = in_full(features.shape[-1], dtype.name) - features.shape[-1]
    if missing:
        features = np.concatenate([features, np.zeros((*features.shape[:-1], missing), dtype)], axis=-1)
    labels = federation.labels[rows].astype(np.int32 if federation.classes else dtype)
    real = None if mask is None else padded(mask[rows], counts)
    return Table(padded(features, counts), padded(labels, counts), real, starts(counts))


def in_full(size: int, precision: str) -> int:
    """Features or outputs of a head stored so: matrix units take short numbers by eights, and copy what is not."""
    return -(-size // 8) * 8 if precision == SHORT else size


def counted(federation: Federation, mask: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    """(m, 2) predictions that count in validation and test: samples, or real positions of sequences."""
    positions = federation.features.shape[1] if federation.sequences else 1
    each = np.full(len(federation.split), positions) if mask is None else mask.sum(1)
    m = len(federation.clients)
    sides = [np.bincount(federation.owner, weights=each * (federation.split == side), minlength=m) for side in (1, 2)]
    return np.stack(sides, axis=1).astype(np.int64)


@partial(jax.jit, static_argnames=("width",))
def all_grams(training: Table, width: int) -> Array:
    """X X' of every client's training rows; kept for runs of any precision, so exact."""

    def gram(start: Array) -> Array:
        x = training.read(training.features, start, width)
        return jnp.matmul(x, x.T, precision=jax.lax.Precision.HIGHEST)

    products: Array = jax.lax.map(gram, training.first, batch_size=64)
    return products
