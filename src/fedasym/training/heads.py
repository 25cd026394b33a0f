"""Two exact ways to hold a model that moves only along a client's own samples.

Every local method starts at the shared head W_0 and adds multiples of its samples, so its model is s W_0 + X'a. A `Head` is
that matrix (d x outputs). A `Span` keeps only s and a (samples x outputs) and reads outputs off the Gram matrix X X': where a
client has fewer samples than features, the long axis d is never touched between the first and the last step.

Both speak the same words, so that an algorithm is written once: `start`, `products` with a batch's samples, `move` along a
batch, and the `overlap` of two batches, by which a move along one is seen at the other. Points are trees of arrays, combined
by `blend`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedasym.training.packing import Table

Point = Any  # a matrix, or a Coordinates: what moves in a Space


class Batch(NamedTuple):
    """Rows of one client with their labels and weights (1/size on real rows, 0 on missing ones), positions flattened."""

    rows: Array  # (B,) within the client
    at: Array  # (B,) among all training rows
    labels: Array  # (B * positions, ...)
    weights: Array  # (B * positions, 1)


def batch_of(training: Table, member: Array, rows: Array) -> Batch:
    """The batch that a plan's rows of a client name; -1 is no row."""
    local = jnp.maximum(rows, 0)
    at = training.places(training.first[member] + local)
    real = jnp.broadcast_to((rows >= 0)[:, None], (len(rows), training.positions))
    if training.real is not None:
        real &= training.real[at]
    weights = real.reshape(-1, 1).astype(jnp.promote_types(training.features.dtype, jnp.float32))
    return Batch(local, at, flat_labels(training, training.labels[at]), weights / jnp.maximum(weights.sum(), 1))


class Space(Protocol):
    """What an algorithm needs to know of a model's form."""

    @property
    def classes(self) -> int:
        """Real outputs, where columns behind them only fill up the shape; 0: all are real."""

    @property
    def splits(self) -> bool:
        """Whether some weights may not be a client's own."""

    def start(self) -> Point:
        """The shared model."""

    def products(self, point: Point, batch: Batch) -> Array:
        """The products of a batch's samples with a model."""

    def move(self, point: Point, batch: Batch, amounts: Array, own: bool = False) -> Point:
        """The model with multiples of the batch's samples added; own: only in weights that may be a client's own."""

    def overlap(self, batch: Batch, at: Batch, uses: int, own: bool) -> Array | None:
        """The products of two batches' samples, by which a move along one is seen at the other; None: not worth `uses`."""

    def part(self, point: Point, own: bool) -> Point:
        """The model in weights that may be a client's own, or in those that may not, and 0 elsewhere."""

    def held(self, point: Point) -> Point:
        """The model with the weights that a client stage may not move as they are in the shared one."""


class Head(NamedTuple):
    """The model as its matrix. Where only some of its rows may be a client's own, a client's moves touch no others."""

    training: Table
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

    def products(self, point: Any, batch: Batch) -> Array:
        """The products X_b W of any matrix W, as short as the samples are."""
        x = self.rows(batch)
        return product(x, point.astype(x.dtype), x.dtype)

    def move(self, point: Any, batch: Batch, amounts: Array, own: bool = False) -> Array:
        """The matrix W + X_b' amounts."""
        x = self.rows(batch)
        change = product(x.T, amounts.astype(x.dtype), point.dtype)
        moved: Array = point + (self.part(change, True) if own or self.keep else change)
        return moved

    def part(self, point: Any, own: bool) -> Array:
        """The rows that may be a client's own, or the others; 0 elsewhere."""
        if self.own is None:
            return point if own else jnp.zeros_like(point)
        return jnp.where(self.own, point, 0) if own else jnp.where(self.own, 0, point)

    def held(self, point: Any) -> Array:
        """The point with the rows that may not be a client's own from the shared model, in client stages."""
        return jnp.where(self.own, point, self.shared) if self.keep and self.own is not None else point

    def overlap(self, batch: Batch, at: Batch, uses: int, own: bool) -> Array | None:
        """X_at X_b', where that takes fewer multiplications than moving the matrix each time."""
        d, outputs = self.shared.shape
        rows = len(batch.weights)
        if (self.own is not None and (own or self.keep)) or rows * (d + uses * outputs) >= 2 * uses * d * outputs:
            return None
        return product(self.rows(at), self.rows(batch).T, batch.weights.dtype)

    def rows(self, batch: Batch) -> Array:
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

    @property
    def splits(self) -> bool:
        """All weights are a client's own."""
        return False

    def start(self) -> Coordinates:
        """The shared model."""
        return Coordinates(jnp.ones((), self.gram.dtype), jnp.zeros_like(self.first_outputs))

    def products(self, point: Any, batch: Batch) -> Array:
        """The products s X_b W_0 + X_b X' a."""
        products: Array = jnp.matmul(self.gram[batch.rows], point.amounts) + point.scale * self.first_outputs[batch.rows]
        return products

    def move(self, point: Any, batch: Batch, amounts: Array, own: bool = False) -> Coordinates:
        """Add amounts to the batch's coordinates."""
        return Coordinates(point.scale, point.amounts.at[batch.rows].add(amounts))

    def part(self, point: Any, own: bool) -> Point:
        """All weights are a client's own."""
        return point if own else jax.tree.map(jnp.zeros_like, point)

    def held(self, point: Any) -> Point:
        """The point as it is."""
        return point

    def overlap(self, batch: Batch, at: Batch, uses: int, own: bool) -> Array:
        """X_at X_b'."""
        return self.gram[at.rows][:, batch.rows]


def product(a: Array, b: Array, dtype: Any) -> Array:
    """The matrix product with sums in float32 and a result of that type; on a processor, short numbers are widened first.

    The numbers are the same: products of short ones are exact in float32. XLA's processors cannot take all of them as they are.
    """
    if a.dtype.itemsize >= 4:
        return jnp.matmul(a, b)

    def widened(a: Array, b: Array) -> Array:
        return jnp.matmul(a.astype(jnp.float32), b.astype(jnp.float32)).astype(dtype)

    def as_they_are(a: Array, b: Array) -> Array:
        return jnp.matmul(a, b, preferred_element_type=dtype)

    result: Array = lax.platform_dependent(a, b, cpu=widened, default=as_they_are)
    return result


def without_filling(outputs: Array, classes: int) -> Array:
    """Outputs whose columns behind the real classes count for nothing: no probability, so no gradient ever moves them."""
    return jnp.where(jnp.arange(outputs.shape[-1]) < classes, outputs, -jnp.inf) if classes else outputs


def flat_rows(features: Array) -> Array:
    """Samples, or the positions of sequences, as rows."""
    return features.reshape(-1, features.shape[-1])


def flat_labels(samples: Table, labels: Array) -> Array:
    """The labels of those rows."""
    return labels.reshape(-1, *labels.shape[2:]) if samples.features.ndim == 3 else labels


def blend(*terms: tuple[Array | float, Point]) -> Point:
    """The linear combination sum c p of points."""
    (c, p), *rest = terms
    total = jax.tree.map(lambda leaf: c * leaf, p)
    for c, p in rest:
        total = jax.tree.map(lambda sum_, leaf, c=c: sum_ + c * leaf, total, p)
    return total
