"""The data of finitely many clients: rows checked once at the door, sums of products, folds.

Rows are cut to at most as many as there are unknowns. Linear mixed models look at less: y_j = X_j
(beta + u_j) + noise enters every formula of this package through n_j, S_j = X_j'X_j, b_j = X_j'y_j
and q_j = y_j'y_j alone, so that memory grows with clients times unknowns squared and not with
samples.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.core.errors import InvalidInput, read_list
from fedasym.core.numbers import Array
from fedasym.core.runtime import physical_memory

Label = Hashable
RANK = 1e-12  # singular values below this share of the largest are rounding
PerClient = ArrayLike | Mapping[Any, float]  # one number per client, in their order or by name


@dataclass(frozen=True, eq=False)
class Client:
    """One client's least-squares problem |X b - y|^2 + rest, in rows that never outnumber the
    unknowns.

    With more samples than unknowns, X and y are the triangular factor of [X y]: the same problem
    for every method here, since all of them look at X'X and X'y alone. n stays the number of
    samples. Where there are several outputs, y has a column and rest a number for each.
    """

    name: Label
    X: Array
    y: Array
    n: int
    rest: Any = 0.0  # what no model explains, |y - Xb|^2 at its least, when rows were cut

    @classmethod
    def of(cls, name: Label, X: Array, y: Array) -> Client:
        """The client with these samples."""
        n, d = X.shape
        if n <= d:
            return cls(name, X, y, n)
        R = triangular_factor(np.column_stack([X, y]))
        rest = (R[d:, d:] ** 2).sum(0)
        beside = rest if y.ndim == 2 else float(rest[0])
        return cls(name, R[:d, :d], R[:d, d:].reshape(d, *y.shape[1:]), n, beside)

    @cached_property
    def axes(self) -> tuple[Array, Array, Array]:
        """U, s, V' with X = U diag(s) V'; S = X'X/n has eigenvalues s^2/n; rounding is made 0."""
        U, s, Vt = np.linalg.svd(self.X, full_matrices=False)
        return U, np.where(s > RANK * s[0], s, 0.0), Vt


def triangular_factor(rows: Array) -> Array:
    """R of rows = QR: the same least-squares problem in at most as many rows as columns."""
    return np.asarray(np.linalg.qr(rows, mode="r"))


def gather_clients(
    X: Any, y: Any, names: Iterable[Label] | None, intercept: bool = False
) -> list[Client]:
    """Clients from rows with one label each (in order of appearance), or from one pair of arrays
    per client.

    intercept: a column of ones is added, the last.
    """
    clients: list[Client] = []
    room = 0.8 * physical_memory()
    for name, rows, values in (
        iterate_clients(X, y, names, several=True)
        if is_per_client(X)
        else group_rows(X, y, names, several=True)
    ):
        clients.append(Client.of(name, append_ones(rows, intercept), values))
        if clients[-1].y.shape[1:] != clients[0].y.shape[1:]:
            raise InvalidInput(
                f"client {name!r} has labels of shape {values.shape} and the clients before it have"
                f" {clients[0].y.shape[1:] or 'one'} outputs: give all the same outputs"
            )
        room -= clients[-1].X.nbytes + clients[-1].y.nbytes
        if room < 0:
            raise InvalidInput(
                f"client {name!r} is one too many for this machine's memory: give fewer clients or"
                " features"
            )
    if not clients:
        raise InvalidInput("there are no clients: give at least one sample")
    return clients


def reflect_rows(rows: Array, axis: Array) -> Array:
    """Rows turned by a reflection that puts all of `axis`, a number per row, into the first of
    them; without that one.

    >>> abs(reflect_rows(np.array([[1.0, 10.0], [3.0, 14.0]]), np.ones(2))).round(6).tolist()
    [[1.414214, 2.828427]]
    """
    mirror = axis / np.linalg.norm(axis)
    mirror[0] += np.copysign(1.0, mirror[0])
    return np.asarray((rows - np.outer(mirror, 2 * (mirror @ rows) / (mirror @ mirror)))[1:])


def about_means(client: Client) -> Client:
    """The problem of a client with two samples or more once its intercept, the last unknown, is
    minimised out: one sample less.

    The rows are turned so that one of them holds all of the intercept's column, and that row goes.
    """
    rows = np.column_stack([client.X[:, :-1], client.y])
    rest = reflect_rows(rows, client.X[:, -1])
    if not len(rest):  # all samples were cut to one row; what is left of them is noise alone
        rest = np.zeros((1, rows.shape[1]))
    d = client.X.shape[1] - 1
    y = rest[:, d:].reshape(len(rest), *client.y.shape[1:])
    return Client(client.name, rest[:, :d], y, client.n - 1, client.rest)


def mean_row(client: Client) -> Array:
    """The client's mean features and label, from sums: the intercept's column is among them."""
    ones = client.X[:, -1]
    return np.append(ones @ client.X, ones @ client.y) / client.n


def append_ones(rows: Array, intercept: bool = True) -> Array:
    """Features with the intercept's column of ones last, where there is one.

    >>> append_ones(np.array([[2.0], [3.0]])).tolist()
    [[2.0, 1.0], [3.0, 1.0]]
    """
    return np.column_stack([rows, np.ones(len(rows))]) if intercept else rows


def is_per_client(X: Any) -> bool:
    """Whether X is one table per client rather than one table for all."""
    if isinstance(X, Sequence):
        try:
            return len(X) > 0 and np.ndim(X[0]) == 2
        except ValueError:  # rows of unequal length: a client, though a bad one
            return True
    return isinstance(X, Iterator) or np.ndim(X) == 3


def iterate_clients(
    X: Any, y: Any, names: Iterable[Label] | None, several: bool = False
) -> Iterator[tuple[Label, Array, Array]]:
    """One client after the other: never all of their rows at once."""
    labels = None if names is None else labels_of(names)
    if not isinstance(y, Iterable) or getattr(y, "ndim", 1) == 0:
        raise InvalidInput(f"y is {y!r}: give one array of labels per client")
    tables = iter(X)
    targets = iter(y)
    seen = set()
    d = None
    for position, table in enumerate(tables):
        if labels is not None and position >= len(labels):
            raise InvalidInput(
                f"there are more clients in X than the {len(labels)} names: give one name per"
                " client"
            )
        name = position if labels is None else labels[position]
        target = next(targets, None)
        if target is None:
            raise InvalidInput(
                f"client {name!r} has rows in X and none in y: give one array of labels per client"
            )
        if name in seen:
            raise InvalidInput(f"client {name!r} is named twice: give each client its own name")
        seen.add(name)
        rows, values = check_rows(name, table, target, several)
        d = rows.shape[1] if d is None else d
        if rows.shape[1] != d:
            raise InvalidInput(
                f"client {name!r} has {rows.shape[1]} features and the clients before it have {d}"
            )
        yield name, rows, values
    if next(targets, None) is not None or (labels is not None and len(labels) > len(seen)):
        raise InvalidInput(
            f"X has {len(seen)} clients while y or clients has more: give one of each per client"
        )


def group_rows(
    X: Any, y: Any, names: Iterable[Label] | None, several: bool = False
) -> Iterator[tuple[Label, Array, Array]]:
    """The rows of each label; without labels all rows are one client's, named 0."""
    rows, values = check_rows(None, X, y, several)
    if names is None:
        yield 0, rows, values
        return
    labels = labels_of(names)
    if len(labels) != len(rows):
        raise InvalidInput(
            f"clients has {len(labels)} labels for {len(rows)} rows of X: give one per row"
        )
    for label, where in places_of(labels).items():
        yield label, rows[where], values[where]


def places_of(labels: Sequence[Label]) -> dict[Label, list[int]]:
    """Where each label stands, in order of appearance."""
    places: dict[Label, list[int]] = {}
    for place, label in enumerate(labels):
        places.setdefault(label, []).append(place)
    return places


def labels_of(names: Iterable[Label]) -> list[Label]:
    """Labels as plain Python values, so that 3 finds what an array calls int64(3)."""
    labels = read_list(
        "clients", names.tolist() if hasattr(names, "tolist") else names, "give a list of names"
    )
    for place, label in enumerate(labels):
        if not isinstance(label, Hashable):
            raise InvalidInput(
                f"the label of a client is {label!r}: give a number, a string or another hashable"
                " value"
            )
        if label is None or (isinstance(label, float) and np.isnan(label)):
            raise InvalidInput(f"entry {place} of clients is {label!r}: give every row a client")
    return labels


def check_rows(name: Label | None, X: Any, y: Any, several: bool = False) -> tuple[Array, Array]:
    """Features (n, d) and labels (n,), finite and of one length; several: or (n, outputs)."""
    who = "all rows together" if name is None else f"client {name!r}"
    try:
        rows, values = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(f"{who}: X and y must be arrays of numbers") from None
    columns = several and values.ndim == 2 and values.shape[1] > 0
    if rows.ndim != 2 or not (values.ndim == 1 or columns):
        raise InvalidInput(
            f"{who}: X has shape {rows.shape} and y {values.shape}: give (samples, features) and"
            f" (samples,){' or (samples, outputs)' if several else ''}"
        )
    if len(rows) != len(values):
        raise InvalidInput(
            f"{who}: X has {len(rows)} rows and y has {len(values)}: give one label per row"
        )
    if rows.size == 0:
        raise InvalidInput(
            f"{who}: X has shape {rows.shape}: leave out clients without samples or features"
        )
    if not (np.isfinite(rows).all() and np.isfinite(values).all()):
        raise InvalidInput(f"{who}: X or y holds NaN or infinity: drop or fill those samples first")
    return rows, values


ROOM = 2**22  # numbers in one batch of products of rows


@dataclass(frozen=True, eq=False)
class ClientSums:
    """Sums over the samples of m clients with p unknowns each.

    counts: n_j, (m,). gram: S_j, (m, p, p). cross: b_j, (m, p). square: q_j, (m,).
    gram and cross may lie in a file of which slices are read (`fedasym.exact.storage`).
    """

    counts: Array
    gram: Any
    cross: Any
    square: Array

    @classmethod
    def of(cls, X: Array, y: Array, owner: NDArray[np.integer[Any]]) -> ClientSums:
        """Sums by client of rows in the order of their clients: `owner` is ascending from 0.

        >>> sums = ClientSums.of(np.array([[1.0], [2.0], [3.0]]), np.ones(3), np.array([0, 0, 1]))
        >>> sums.gram[:, 0, 0].tolist(), sums.cross[:, 0].tolist()
        ([5.0, 9.0], [3.0, 3.0])
        """
        m = int(owner[-1]) + 1
        p = X.shape[1]
        starts = np.searchsorted(owner, np.arange(m + 1))
        gram, cross, square = np.zeros((m, p, p)), np.zeros((m, p)), np.zeros(m)
        first = 0
        while first < m:  # as many clients at once as their products of rows have room
            most = starts[first] + max(ROOM // (p * p), 1)
            last = int(np.searchsorted(starts, most, side="right")) - 1
            last = min(max(last, first + 1), m)
            rows = slice(starts[first], starts[last])
            if last == first + 1:
                gram[first] = X[rows].T @ X[rows]
            else:
                products = X[rows, :, None] * X[rows, None, :]
                gram[first:last] = np.add.reduceat(
                    products, starts[first:last] - starts[first], axis=0
                )
            local = starts[first:last] - starts[first]
            cross[first:last] = np.add.reduceat(X[rows] * y[rows, None], local, axis=0)
            square[first:last] = np.add.reduceat(y[rows] ** 2, local)
            first = last
        return cls(np.diff(starts).astype(float), gram, cross, square)

    @property
    def unknowns(self) -> int:
        """How many coefficients a model has, p."""
        return int(self.gram.shape[1])

    @property
    def samples(self) -> float:
        """N, of all clients together."""
        return float(self.counts.sum())

    @cached_property
    def total(self) -> Array:
        """The sum of S_j over clients."""
        return np.asarray(self.gram.sum(0))

    def take(self, places: NDArray[np.integer[Any]]) -> ClientSums:
        """The sums of some of the clients."""
        return ClientSums(
            self.counts[places], self.gram[places], self.cross[places], self.square[places]
        )


FOLDS = 5


def split_folds(owner: NDArray[np.integer], folds: int = FOLDS, seed: int = 0) -> NDArray[np.int64]:
    """A fold for every row: each client's rows are dealt out evenly, from a fold of its own on.

    >>> split_folds(np.array([0, 0, 1, 1, 1, 0]), folds=3).tolist()
    [1, 2, 1, 0, 2, 0]
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(owner))
    order = order[np.argsort(owner[order], kind="stable")]
    sizes = np.bincount(owner)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    dealt = np.empty(len(owner), dtype=np.int64)
    offsets = rng.integers(folds, size=len(sizes))
    dealt[order] = (np.arange(len(owner)) - starts + offsets[owner[order]]) % folds
    return dealt


def plain_ridge(ridge: Any) -> float | Array:
    """A ridge as a number, where it is one, or as an array by unknown."""
    return float(ridge) if np.ndim(ridge) == 0 else ridge
