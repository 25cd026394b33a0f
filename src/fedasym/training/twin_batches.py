"""What the twin works on: one client's batches, the loss of a batch, its gradient and its Hessian."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedasym.algorithms.stages import Stage
from fedasym.data.federation.federation import Federation
from fedasym.data.federation.shuffles import TRAINING, Words, mix
from fedasym.training.plans import batches
from fedasym.training.settings import Protocol, Settings

Head = NDArray[np.floating[Any]]
Rows = NDArray[np.bool_] | None  # (d, 1): some rows of a head; None: all


class Batch(NamedTuple):
    """Some samples as they enter the loss; the positions of sequences stand below one another."""

    X: Head  # (rows, d), with a last column of ones where heads have an intercept
    Y: Head  # (rows, outputs): 1 at the label's class and 0 elsewhere, or the numbers to predict
    weights: Head  # (rows,): equal and of sum one; 0 for padding
    classes: bool  # whether the loss is softmax cross-entropy, or squares


def batch_of(
    federation: Federation, rows: NDArray[np.integer], intercept: bool, count_padding: bool, dtype: DTypeLike
) -> Batch:
    """The samples in these rows of the federation."""
    X = federation.features[rows].reshape(-1, federation.dimension).astype(dtype)
    labels, classes = federation.labels[rows], federation.classes is not None
    Y = labels.reshape(-1, 1) == np.arange(federation.outputs) if classes else labels.reshape(-1, federation.outputs)
    real = np.ones(len(X)) if federation.mask is None or count_padding else federation.mask[rows].ravel().astype(float)
    if intercept:
        X = np.column_stack([X, np.ones(len(X), dtype)])
    return Batch(X, Y.astype(dtype), (real / max(real.sum(), 1)).astype(dtype), classes)  # no samples: a loss of 0


def predictions(W: Head, D: Batch) -> Head:
    """The probabilities of the classes (softmax), or the predicted numbers."""
    Z = D.X @ W
    if not D.classes:
        return np.asarray(Z)
    powers = np.exp(Z - Z.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def mean_loss(W: Head, D: Batch) -> float:
    """Cross-entropy -log(probability of the label), or 1/2 |z - y|^2, averaged over the batch."""
    Z = D.X @ W
    if not D.classes:
        return float(D.weights @ ((Z - D.Y) ** 2).sum(axis=1) / 2)
    Z = Z - Z.max(axis=1, keepdims=True)
    return float(D.weights @ (np.log(np.exp(Z).sum(axis=1)) - (Z * D.Y).sum(axis=1)))


def gradient(W: Head, D: Batch) -> Head:
    """X'R with the weighted residuals R: the same for both losses."""
    R = D.weights[:, None] * (predictions(W, D) - D.Y)
    return np.asarray(D.X.T @ R)


def hessian_times(W: Head, D: Batch, V: Head) -> Head:
    """The derivative of the gradient along V: X'(how the predictions change as X W moves along X V)."""
    change = D.X @ V
    if D.classes:
        P = predictions(W, D)
        change = P * (change - (P * change).sum(axis=1, keepdims=True))
    return np.asarray(D.X.T @ (D.weights[:, None] * change))


class Gradients:
    """gradient(w), gradient(w, batch) and the Hessian along a direction, on a step's batches.

    own: the rows of a head that may be a client's own; with `keep`, the others never move.
    """

    def __init__(self, batches: list[Batch], own: Rows, keep: bool) -> None:
        self.batches, self.rows, self.keep = batches, own, keep

    def __call__(self, w: Head, batch: int = 0) -> Head:
        """Of the mean loss on one of the batches."""
        G = gradient(w, self.batches[batch])
        return self.own(G) if self.keep else G

    def along(self, w: Head, direction: Head, batch: int = 0, difference: float | None = None) -> Head:
        """The Hessian at w times a direction; with a difference, by gradients that far ahead and behind."""
        if difference is not None:
            ahead, behind = self(w + difference * direction, batch), self(w - difference * direction, batch)
            return (ahead - behind) / (2 * difference)
        HV = hessian_times(w, self.batches[batch], direction)
        return self.own(HV) if self.keep else HV

    def own(self, G: Head) -> Head:
        """The part in rows that may be a client's own, 0 in the others."""
        return of_rows(G, self.rows)

    def common(self, G: Head) -> Head:
        """The part in rows that are the same for all clients."""
        return 0 * G if self.rows is None else of_rows(G, ~self.rows)


def take_steps(
    stage: Stage, W: Head, work: Iterable[list[Batch]], rate: float, own: Rows = None, keep: bool = False
) -> tuple[Head, Any]:
    """A stage's step, batch after batch, from W: the head, and the state that the steps carried.

    keep: rows that may not be a client's own stay as they are in W.
    """
    w, state = W, stage.init(W) if stage.has_state() else None
    for D in work:
        w, state = stage.advance((w, W, Gradients(D, own, keep), rate), state)
        w = np.where(own, w, W) if keep and own is not None else w
    return w, state


def of_rows(G: Head, rows: Rows) -> Head:
    """A gradient in these rows of the head alone, 0 in the others."""
    return G if rows is None else np.where(rows, G, 0)


def personal_rows(federation: Federation, intercept: bool) -> Rows:
    """Which rows of a head may differ between clients: those of the personal features, and the intercept; None: all."""
    if federation.personal is None or federation.personal.all():
        return None
    return np.append(federation.personal, np.ones(int(intercept), bool))[:, None]


@dataclass(frozen=True, eq=False)
class Client:
    """One client and its training samples, which it hands out in batches; the seed and its identity decide which."""

    federation: Federation
    name: Any
    settings: Settings
    protocol: Protocol
    seed: int
    dtype: DTypeLike

    @cached_property
    def rows(self) -> NDArray[np.integer]:
        """Where its training samples stand."""
        return self.federation.rows(self.name, "train")

    @property
    def n(self) -> int:
        """How many there are."""
        return len(self.rows)

    @cached_property
    def own(self) -> Rows:
        """The rows of a head that may be the client's own."""
        return personal_rows(self.federation, self.protocol.intercept)

    @cached_property
    def identity(self) -> np.uint64:
        """The name as a number for hashes."""
        return np.uint64(self.federation.identities[self.federation.clients.index(self.name)])

    def batches(self, stream: Words, first: int, count: int) -> Iterator[Batch]:
        """Batches `first`, `first` + 1, ... of endless shuffled passes; the last one of a pass may be short."""
        intercept, padding = self.protocol.intercept, self.protocol.count_padding
        batch = min(self.settings.batch, max(self.n, 1))  # a larger one holds no more samples
        for drawn in batches(stream.reshape(1), np.array([self.n]), first, count, batch)[0]:
            yield batch_of(self.federation, self.rows[drawn[drawn >= 0]], intercept, padding, self.dtype)

    def passes(self, stream: Words, count: int) -> Iterator[Batch]:
        """The batches of `count` passes over all samples."""
        return self.batches(stream, 0, count * -(-self.n // self.settings.batch))

    def steps(self, r: int, turn: int, each: int) -> Iterator[list[Batch]]:
        """The batches for the K local steps of round r, `each` for a step; `turn` is how often the client has worked before."""
        K = self.settings.local_steps
        stream, first = mix(self.seed, TRAINING, self.identity, r + 1), 0
        if self.protocol.continued_passes:
            stream, first = mix(self.seed, TRAINING, self.identity, 0), turn * K * each
        work = self.batches(stream, first, K * each)
        for _ in range(K):
            yield [next(work) for _ in range(each)]
