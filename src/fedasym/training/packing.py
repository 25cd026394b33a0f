"""A federation as the arrays that compiled programs read: rows of one client side by side, training and tested apart.

Programs read a client as a slice of fixed width from its first row. Where it is smaller, the slice runs into its neighbour;
no batch ever names those rows, so they never count.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from fedasym.federations.federation import Federation
from fedasym.training.settings import Protocol


class Table(NamedTuple):
    """Samples of all clients on the device."""

    features: Array  # (rows + slack, [positions,] d)
    labels: Array  # (rows + slack, [positions]) codes, or (..., outputs) values
    real: Array | None  # (rows + slack, positions): False on padding
    first: Array  # (m,) a client's first row

    @property
    def positions(self) -> int:
        """Positions of a sequence; 1 for plain samples."""
        return self.features.shape[1] if self.features.ndim == 3 else 1


class Packed(NamedTuple):
    """The device's copy of a federation."""

    training: Table
    tested: Table  # validation rows, then test rows
    validation: Array  # (m,) how many
    test: Array  # (m,)
    grams: Array | None = None  # (m, width, width) products of a client's training rows, for the Gram form


class Sizes(NamedTuple):
    """What the host knows of the same federation."""

    training: NDArray[np.int64]  # (m,) samples
    tested: NDArray[np.int64]  # (m,) validation and test samples
    totals: NDArray[np.int64]  # (m, 2) predictions that count in validation and test


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


def pack(federation: Federation, protocol: Protocol, precision: str, gram_width: int) -> tuple[Packed, Sizes]:
    """The packed federation, kept on the device as long as the federation lives; `gram_width` 0: no Gram matrices."""
    kept = _KEPT.setdefault(federation, {})
    (device,) = jnp.zeros(()).devices()
    key = (protocol.bias, protocol.count_padding, precision, device)
    if key not in kept:
        kept[key] = packed(federation, protocol, np.dtype(precision))
    data, sizes = kept[key]
    if not gram_width:
        return data, sizes
    if (*key, gram_width) not in kept:
        kept[*key, gram_width] = all_grams(data.training, gram_width)
    return data._replace(grams=kept[*key, gram_width]), sizes


def packed(federation: Federation, protocol: Protocol, dtype: np.dtype[Any]) -> tuple[Packed, Sizes]:
    """Sort the rows, append the constant feature of a bias, copy to the device."""
    train, validation, test = (np.asarray(federation.counts(name), np.int64) for name in ("train", "validation", "test"))
    order = np.lexsort((federation.split, federation.owner))  # by client, then validation before test
    sides = federation.split[order]
    mask = None if protocol.count_padding else federation.mask
    training, tested = (
        table(federation, protocol, mask, dtype, order[chosen], counts)
        for chosen, counts in ((sides == 0, train), (sides > 0, validation + test))
    )
    data = Packed(training, tested, jnp.asarray(validation, jnp.int32), jnp.asarray(test, jnp.int32))
    return data, Sizes(train, validation + test, counted(federation, mask))


def table(
    federation: Federation,
    protocol: Protocol,
    mask: NDArray[np.bool_] | None,
    dtype: np.dtype[Any],
    rows: NDArray[np.intp],
    counts: NDArray[np.int64],
) -> Table:
    """Some rows on the device, with slack behind them for the last slice or block to run into."""
    slack = 2 * int(counts.max()) + 8

    def padded(array: NDArray[Any]) -> Array:
        return jnp.asarray(np.concatenate([array, np.zeros((slack, *array.shape[1:]), array.dtype)]))

    features = federation.features[rows].astype(dtype)
    if protocol.bias:
        features = np.concatenate([features, np.ones_like(features[..., :1])], axis=-1)
    missing = in_full(features.shape[-1], dtype.name) - features.shape[-1]
    if missing:
        features = np.concatenate([features, np.zeros((*features.shape[:-1], missing), dtype)], axis=-1)
    labels = federation.labels[rows].astype(np.int32 if federation.classes else dtype)
    first = jnp.asarray(np.cumsum(counts) - counts, jnp.int32)
    return Table(padded(features), padded(labels), None if mask is None else padded(mask[rows]), first)


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
        x = jax.lax.dynamic_slice_in_dim(training.features, start, width)
        return jnp.matmul(x, x.T, precision=jax.lax.Precision.HIGHEST)

    products: Array = jax.lax.map(gram, training.first, batch_size=64)
    return products
