"""Samples and models on the device: clients' flat tables, and two exact forms of a model.

Every local method starts at the shared head W_0 and adds multiples of its samples, so its model is
s W_0 + X'a. A `Matrix` is that head (d x outputs). A `Span` keeps only s and a (samples x outputs)
and reads outputs off the Gram matrix X X': where a client has fewer samples than features, the long
axis d is never touched between the first and the last step.

Both speak the same words, so that an algorithm is written once: `start`, `products` with a batch's
samples, `move` along a batch, and the `overlap` of two batches, by which a move along one is seen
at the other. Points are trees of arrays, combined by `blend`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray


class RowTable(NamedTuple):
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


Point = Any  # a matrix, or a Coordinates: what moves in a Space


class BatchRows(NamedTuple):
    """One client's rows, labels and weights (1/size, or 0 if missing), positions flattened."""

    rows: Array  # (B,) within the client
    at: Array  # (B,) among all training rows
    labels: Array  # (B * positions, ...)
    weights: Array  # (B * positions, 1)


def read_batch(training: RowTable, member: Array, rows: Array) -> BatchRows:
    """The batch that a plan's rows of a client name; -1 is no row."""
    local = jnp.maximum(rows, 0)
    at = training.places(training.first[member] + local)
    real = jnp.broadcast_to((rows >= 0)[:, None], (len(rows), training.positions))
    if training.real is not None:
        real &= training.real[at]
    weights = real.reshape(-1, 1).astype(jnp.promote_types(training.features.dtype, jnp.float32))
    labels = flat_labels(training, training.labels[at])
    return BatchRows(local, at, labels, weights / jnp.maximum(weights.sum(), 1))


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

    def held(self, point: Any) -> Array:
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
        return flat_rows(self.training.features[batch.at])


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
        own = jnp.matmul(self.gram[batch.rows], point.amounts)
        products: Array = own + point.scale * self.first_outputs[batch.rows]
        return products

    def move(self, point: Any, batch: BatchRows, amounts: Array, own: bool = False) -> Coordinates:
        """Add amounts to the batch's coordinates."""
        return Coordinates(point.scale, point.amounts.at[batch.rows].add(amounts))

    def part(self, point: Any, own: bool) -> Point:
        """All weights are a client's own."""
        return point if own else jax.tree.map(jnp.zeros_like, point)

    def held(self, point: Any) -> Point:
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
        return self.gram[at.rows][:, batch.rows]


Space = Matrix | Span  # the forms that an algorithm sees alike


def product(a: Array, b: Array, dtype: Any) -> Array:
    """The matrix product, sums and result in float32; a processor widens short numbers first.

    Products of short numbers are exact in float32, and XLA does not take all of them as they are.
    """
    if a.dtype.itemsize >= 4:
        return jnp.matmul(a, b)

    def widened(a: Array, b: Array) -> Array:
        return jnp.matmul(a.astype(jnp.float32), b.astype(jnp.float32)).astype(dtype)

    def as_they_are(a: Array, b: Array) -> Array:
        return jnp.matmul(a, b, preferred_element_type=dtype)

    result: Array = lax.platform_dependent(a, b, cpu=widened, default=as_they_are)
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
    return labels.reshape(-1, *labels.shape[2:]) if samples.features.ndim == 3 else labels


def blend(*terms: tuple[Array | float, Point]) -> Point:
    """The linear combination sum c p of points."""
    (c, p), *rest = terms
    total = jax.tree.map(lambda leaf: c * leaf, p)
    for c, p in rest:
        total = jax.tree.map(lambda sum_, leaf, c=c: sum_ + c * leaf, total, p)
    return total
