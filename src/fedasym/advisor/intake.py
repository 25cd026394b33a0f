"""Client data at the advisor's door: training and held-out rows of each client, and refusals that say what is missing."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput, NoFormula
from fedasym.data.federation.federation import Federation
from fedasym.data.federation.splits import TRAIN
from fedasym.exact.clients import check_rows as checked_rows
from fedasym.exact.clients import group_rows as grouped
from fedasym.exact.clients import is_per_client as is_listed
from fedasym.exact.clients import iterate_clients as separate
from fedasym.exact.clients import labels_of, places_of
from fedasym.exact.clients import reflect_rows as turn_out

LEAST_CLIENTS = 4  # fewer say nothing about how clients differ


@dataclass(frozen=True, eq=False)
class Part:
    """One client: where its rows are in `features` and `labels`; rows are copied only while they are used."""

    name: Hashable
    features: NDArray[Any]
    labels: NDArray[Any]
    train: NDArray[np.intp]
    held: NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Data:
    """All clients with training samples, and the features that are not always 0 (others carry nothing and are left out).

    basis: orthogonal directions that all samples lie in, where features follow from one another; None where none does.
    levelled: whether each client's intercept is minimised out: its training samples are turned so that one of them holds all
        of it, and that one goes; its held-out samples are about the means of those that train.
    """

    parts: tuple[Part, ...]
    live: NDArray[np.bool_]
    basis: Array | None = None
    levelled: bool = False

    @property
    def dimension(self) -> int:
        """d, the directions that samples see."""
        return int(self.live.sum()) if self.basis is None else self.basis.shape[1]

    @property
    def left_out(self) -> int:
        """How many features are always 0 or follow from others."""
        return self.live.size - self.dimension

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Training samples of each client, less the one that its intercept takes."""
        return np.array([part.train.size - self.levelled for part in self.parts])

    def rows(self, place: int) -> tuple[Array, Array]:
        """One client's training samples."""
        part = self.parts[place]
        rows, values = self._taken(part, part.train)
        if not self.levelled:
            return rows, values
        turned = turn_out(np.column_stack([rows, values]), np.ones(len(values)))
        return turned[:, :-1], turned[:, -1]

    def held(self, place: int) -> tuple[Array, Array]:
        """One client's held-out samples; there may be none."""
        part = self.parts[place]
        rows, values = self._taken(part, part.held)
        if not self.levelled:
            return rows, values
        means = self.means(place)
        return rows - means[:-1], values - means[-1]

    def means(self, place: int) -> Array:
        """One client's mean features and mean label, of its training samples."""
        part = self.parts[place]
        rows, values = self._taken(part, part.train)
        return np.append(rows.mean(0), values.mean())

    def level(self) -> Data:
        """The same clients without their intercepts; those with a single training sample have nothing left."""
        parts = tuple(part for part in self.parts if part.train.size > 1)
        if len(parts) < LEAST_CLIENTS:
            raise InvalidInput(
                f"{len(parts)} clients have two training samples or more: with an intercept of its own a client needs two, and "
                f"how clients differ takes {LEAST_CLIENTS} of them; give more samples, or leave the intercept out"
            )
        return replace(self, parts=parts, levelled=True)

    def _taken(self, part: Part, where: NDArray[np.intp]) -> tuple[Array, Array]:
        rows = np.asarray(part.features[where], dtype=float)
        rows = rows if self.live.all() else rows[:, self.live]
        return rows if self.basis is None else rows @ self.basis, np.asarray(part.labels[where], dtype=float)

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        return (self.rows(place) for place in range(len(self.parts)))


def taken_in(data: Any, y: Any = None, clients: Iterable[Hashable] | None = None) -> Data:
    """A federation, or arrays as `fa.linear.fit` takes them; checked once, here."""
    if isinstance(data, Federation):
        if y is not None or clients is not None:
            raise InvalidInput("a Federation has its own labels and clients: leave y and clients out")
        parts = from_federation(data)
    elif y is None:
        raise InvalidInput("y is missing: give a Federation, or features, labels and clients=[...], the client of each row")
    else:
        parts = from_arrays(data, y, clients)
    return checked(parts)


def from_federation(federation: Federation) -> list[Part]:
    """Training rows to learn from; validation and test rows together are held out."""
    if federation.sequences or federation.outputs != 1:
        raise NoFormula(
            f"a sample has {'several positions' if federation.sequences else f'{federation.outputs} outputs'}: advice is for "
            "one output per sample; ask for each output on its own"
        )
    parts = []
    for place, name in enumerate(federation.clients):
        rows = np.arange(federation.starts[place], federation.starts[place + 1])
        training = federation.split[rows] == TRAIN
        parts.append(Part(name, federation.features, federation.labels[:, 0], rows[training], rows[~training]))
    return parts


def from_arrays(X: Any, y: Any, clients: Iterable[Hashable] | None) -> list[Part]:
    """All rows with the client of each, or one pair of arrays per client; nothing is held out."""
    none = np.array([], dtype=int)
    if is_listed(X):
        each = separate(X, y, clients)
        return [Part(name, rows, values, np.arange(len(rows)), none) for name, rows, values in each]
    if clients is None:
        raise InvalidInput("clients is missing: give the client of each row, such as clients=ids")
    rows, values = checked_rows(None, X, y)
    labels = labels_of(clients)
    if len(labels) != len(rows):
        next(iter(grouped(rows, values, labels)))  # says what is wrong
    return [Part(name, rows, values, np.array(where), none) for name, where in places_of(labels).items()]


def checked(parts: Sequence[Part]) -> Data:
    """Refuse what no estimate can be made from, each with what is missing."""
    training = tuple(part for part in parts if part.train.size)
    if len(training) < LEAST_CLIENTS:
        raise InvalidInput(
            f"there are {len(training)} clients with training samples: how clients differ cannot be told from fewer than "
            f"{LEAST_CLIENTS}; with so few, compare the algorithms on held-out samples (fa.linear.fit)"
        )
    if max(part.train.size for part in training) < 2:
        raise InvalidInput(
            "every client has a single training sample: noise and differences between clients cannot be told apart; give at "
            "least some clients two samples or more"
        )
    live = np.zeros(training[0].features.shape[1], dtype=bool)
    low, high = np.inf, -np.inf
    whole = Data(training, np.ones_like(live))
    for part, (rows, values) in zip(training, whole, strict=True):
        if not (np.isfinite(rows).all() and np.isfinite(values).all()):
            raise InvalidInput(f"client {part.name!r} has NaN or infinity in its samples: drop or fill those samples first")
        live |= np.any(rows != 0, axis=0)
        low, high = min(low, values.min()), max(high, values.max())
    if not live.any():
        raise InvalidInput("all features are 0: there is nothing to learn from; check how the features were read")
    if low == high:
        raise InvalidInput(f"all labels are {low:g}: there is nothing to predict; check which column is the label")
    return replace(whole, live=live)
