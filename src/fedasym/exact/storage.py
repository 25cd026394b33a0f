"""Clients in memory or on disk: what exact fits ask of all of them, whichever they are.

Clients on disk are read a block after the other when a fit goes through them, and singly when one
is asked for. What a fit looks at many times (sums of a client, its rows along its axes) lies in a
temporary file; models come when they are asked for, or a block after the other.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NoReturn, Protocol, overload, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import SUM_TOLERANCE, Array, floats
from fedasym.exact.clients import Client, ClientSums, Label, PerClient, about_means

TOGETHER = 2**22  # numbers of a temporary file that are read at once


@runtime_checkable
class ClientSource(Protocol):
    """What has clients that can be fitted: a federation, in memory or on disk."""

    intercept: Any
    personal: Any

    def training_clients(self, intercept: bool) -> Sequence[Client]:
        """The training samples of each client that has some."""
        ...


@dataclass(eq=False)
class StoredClients(Sequence[Client]):
    """Clients that are read when they are looked at, a block at a time by whoever goes through all.

    read: clients at some places among all. names, counts: of all, with the number of samples that
    a client has once `steps` are taken. places: which of them these are. ends: where blocks of all
    end. steps: what is done with each as it is read.
    """

    read: Callable[[NDArray[np.intp]], list[Client]]
    names: Any
    counts: Array
    ends: NDArray[np.intp]
    places: NDArray[np.intp]
    steps: tuple[Callable[[Client], Client], ...] = ()
    held: dict[int, Client] = field(default_factory=dict, repr=False)
    last: int = -1

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, place: int) -> Client: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Client]: ...
    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return replace(self, places=self.places[place], held={}, last=-1)
        if not 0 <= place < len(self):
            raise IndexError(place)
        at = int(self.places[place])
        if at not in self.held:
            wanted = np.array([at])
            if place == self.last + 1:  # whoever asks for the neighbour goes through all of them
                end = self.ends[np.searchsorted(self.ends, at, "right")]
                wanted = self.places[place : np.searchsorted(self.places, end)]
            self.held = dict(
                zip(wanted.tolist(), map(self.prepare, self.read(wanted)), strict=True)
            )
        self.last = place
        return self.held[at]

    def prepare(self, client: Client) -> Client:
        """A client after all steps."""
        for step in self.steps:
            client = step(client)
        return client

    def map(self, step: Callable[[Client], Client], taken: int = 0) -> StoredClients:
        """The same clients after one step more, which takes so many samples of each."""
        steps, counts = (*self.steps, step), self.counts - taken
        return replace(self, steps=steps, counts=counts, held={}, last=-1)

    def keep(self, wanted: NDArray[np.bool_]) -> StoredClients:
        """Some of them, by whether each is wanted."""
        return replace(self, places=self.places[wanted], held={}, last=-1)

    def blocks(self) -> Iterator[range]:
        """The places of clients that are read together, a block after the other."""
        edges = np.unique(np.searchsorted(self.places, self.ends)).tolist()
        return (range(low, high) for low, high in pairwise(edges))

    def name(self, place: int) -> Label:
        """Of the client at a place."""
        return self.names[int(self.places[place])]  # type: ignore[no-any-return]

    def place(self, name: Any) -> int | None:
        """Where a client stands; None where it does not."""
        at = self.names.place(name)
        place = len(self) if at is None else int(np.searchsorted(self.places, at))
        return place if place < len(self) and self.places[place] == at else None

    def refuse(self, what: str, instead: str) -> NoReturn:
        """What needs all clients in memory is refused."""
        raise InvalidInput(
            f"the clients are on disk, and {what} asks for all of them in memory: {instead}, or"
            " take some of its clients, federation.take(range(1000))"
        )


def refuse_stored(clients: Sequence[Client], what: str, instead: str) -> None:
    """Refuse clients on disk where something is done in memory alone."""
    if isinstance(clients, StoredClients):
        clients.refuse(what, instead)


def count_samples(clients: Sequence[Client]) -> Array:
    """n_j of each client."""
    if isinstance(clients, StoredClients):
        return clients.counts[clients.places]
    return np.array([client.n for client in clients], dtype=float)


def map_clients(clients: Sequence[Client], step: Callable[[Client], Client]) -> Sequence[Client]:
    """Each client after a step that leaves it its number of samples."""
    if isinstance(clients, StoredClients):
        return clients.map(step)
    return [step(client) for client in clients]


def centre_clients(clients: Sequence[Client]) -> Sequence[Client]:
    """Clients about their means, where their intercepts are minimised out; those with one sample
    are left out.
    """
    if isinstance(clients, StoredClients):
        return clients.keep(count_samples(clients) > 1).map(about_means, taken=1)
    return [about_means(client) for client in clients if client.n > 1]


def name_client(clients: Sequence[Client], place: int) -> Label:
    """The name of the client at a place, which is not read for it."""
    return clients.name(place) if isinstance(clients, StoredClients) else clients[place].name


@dataclass(frozen=True, eq=False)
class StoredValues(Mapping[Any, Any]):
    """A value of each client on disk by its name, from a column or from what gives one by place."""

    clients: StoredClients
    column: Any

    def __getitem__(self, name: Any) -> Any:
        place = self.clients.place(name)
        if place is None:
            raise KeyError(name)
        return self.at(place)

    def at(self, place: int) -> Any:
        """The value of the client at a place."""
        return plain_value(self.column[place])

    def __contains__(self, name: object) -> bool:
        return self.clients.place(name) is not None

    def __iter__(self) -> Iterator[Any]:
        return (self.clients.name(place) for place in range(len(self)))

    def __len__(self) -> int:
        return len(self.clients)

    def values(self) -> Any:
        """One after the other, in the order of the clients."""
        return (self.at(place) for place in range(len(self)))

    def items(self) -> Any:
        """Names and values, in the order of the clients."""
        return zip(self, self.values(), strict=True)


class StoredModels(StoredValues):
    """The models of clients on disk: fitted when they are asked for, and not kept.

    By name, `fit.personal["ann"]` reads one client; `blocks` goes through all of them, so many in
    memory as are read together. The column is a function of a place and a client.
    """

    def at(self, place: int) -> Any:
        """The model of the client at a place."""
        return self.column(place, self.clients[place])

    def blocks(self) -> Iterator[tuple[list[Any], Array]]:
        """Names and models (clients, unknowns), a block of clients after the other."""
        for block in self.clients.blocks():
            names = [self.clients.name(place) for place in block]
            yield names, np.stack([self.at(place) for place in block])


class RidgesBySize(Sequence[Array]):
    """Ridges (clients, unknowns) that are a ratio by unknown over the samples of each client."""

    def __init__(self, ratio: Array, counts: Array) -> None:
        self.ratio, self.counts = ratio, counts

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, place: Any) -> Any:
        return self.ratio / self.counts[place]


def ridges_by_size(ratio: Array, counts: Array, clients: Sequence[Client]) -> Any:
    """An array of them; of clients on disk each as it is asked for."""
    if isinstance(clients, StoredClients):
        return RidgesBySize(ratio, counts)
    return np.asarray(ratio / counts[:, None])


def value_by_name(clients: Sequence[Client], column: Any) -> Mapping[Any, Any]:
    """What each client has, by its name; a column that gives a value by place."""
    if isinstance(clients, StoredClients):
        return StoredValues(clients, column)
    return {client.name: plain_value(column[place]) for place, client in enumerate(clients)}


def plain_value(value: Any) -> Any:
    """A number of an array as Python's; an array as it is."""
    return np.asarray(value).item() if np.ndim(value) == 0 else value


def models_by_name(
    clients: Sequence[Client], fit_one: Callable[[int, Client], Array]
) -> Mapping[Any, Array]:
    """Each client's model by its name; those of clients on disk when they are asked for."""
    if isinstance(clients, StoredClients):
        return StoredModels(clients, fit_one)
    return {client.name: fit_one(place, client) for place, client in enumerate(clients)}


class SpilledRows:
    """Rows of numbers in a temporary file: appended as they come, read by slices."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 (it goes with the object)
        self.shape: tuple[int, ...] = (0,)
        self.columns: Any = slice(None)  # of the last axis, that are given
        self.origin: SpilledRows | None = None  # whose file it is, where it is another's
        weakref.finalize(self, self.file.close)

    def append(self, rows: Array) -> None:
        """More rows, after those that came before."""
        told = np.ascontiguousarray(rows, dtype=float)
        try:
            self.file.seek(0, 2)
            self.file.write(told.data.cast("B"))
            self.file.flush()
        except OSError as reason:
            raise InvalidInput(
                f"{tempfile.gettempdir()!r} cannot hold what a fit keeps of clients on disk:"
                f" {reason.strerror or reason}; make room there, or name another folder in TMPDIR"
            ) from None
        self.shape = (self.shape[0] + len(told), *told.shape[1:])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice) -> Array:
        first, last, _ = part.indices(len(self))
        found = np.empty((max(last - first, 0), *self.shape[1:]))
        self.file.seek(first * found[:1].nbytes if len(found) else 0)
        read = self.file.readinto(found.data.cast("B")) if found.size else 0
        if read != found.nbytes:
            raise InvalidInput(
                f"a temporary file in {tempfile.gettempdir()!r} lost what was written: try again"
            )
        return np.ascontiguousarray(found[..., self.columns])

    def sum(self, axis: int) -> Array:
        """Over all rows, as of an array."""
        return np.asarray(sum(block.sum(axis) for block in row_blocks(self)))


def keep_rows(pieces: Iterator[Array], clients: Sequence[Client]) -> Array | SpilledRows:
    """Rows that come client by client, in memory where clients are, else in a temporary file."""
    if not isinstance(clients, StoredClients):
        return np.vstack(list(pieces))
    kept, waiting, held = SpilledRows(), [], 0
    for piece in pieces:
        waiting.append(piece)
        held += piece.size
        if held >= TOGETHER:
            kept.append(np.vstack(waiting))
            waiting, held = [], 0
    kept.append(np.vstack(waiting)) if waiting else None
    return kept


def columns_of(rows: Any, columns: Any) -> Any:
    """Some columns, of the last axis, of an array or of rows in a temporary file."""
    if isinstance(rows, np.ndarray):
        return np.ascontiguousarray(rows[..., columns])
    view = copy(rows)
    view.columns, view.origin = columns, rows
    return view


def row_blocks(rows: Array | SpilledRows) -> Iterator[Array]:
    """All rows in memory at once, or a part of a temporary file after the other."""
    if isinstance(rows, np.ndarray):
        yield rows
        return
    each = max(TOGETHER // int(np.prod(rows.shape[1:])), 1)
    for first in range(0, len(rows), each):
        yield rows[first : first + each]


def gather_sums(clients: Sequence[Client], theta: Array) -> tuple[ClientSums, float]:
    """The sums of clients about a model, and of the squares of their labels; products of clients on
    disk lie in a temporary file.
    """
    square, lengths = np.zeros(len(clients)), 0.0

    def products() -> Iterator[Array]:
        nonlocal lengths
        for place, client in enumerate(clients):
            e = client.y - client.X @ theta
            square[place] = e @ e + client.rest
            lengths += float(client.y @ client.y) + client.rest
            yield np.column_stack([client.X.T @ client.X, client.X.T @ e])[None]

    both = keep_rows(products(), clients)
    gram, cross = columns_of(both, slice(None, -1)), columns_of(both, -1)
    return ClientSums(count_samples(clients), gram, cross, square), lengths


def check_client_weights(weights: str | PerClient, clients: Sequence[Client]) -> Array:
    """p_j: n_j/N for "samples", 1/m for "uniform", or given numbers above 0 that sum to one."""
    if isinstance(weights, str):
        if weights not in ("samples", "uniform"):
            raise InvalidInput(
                f"weights is {weights!r}: give 'samples', 'uniform' or one number per client"
            )
        sizes = count_samples(clients) if weights == "samples" else np.ones(len(clients))
        return np.asarray(sizes / sizes.sum())
    p = numbers_per_client("weights", weights, clients)
    for place, each in enumerate(p):
        if not 0 < each < np.inf:
            raise InvalidInput(
                f"the weight of client {name_client(clients, place)!r} is {each:g}: it must be"
                " above 0; leave the client out"
            )
    if abs(p.sum() - 1) > SUM_TOLERANCE:
        raise InvalidInput(
            f"weights sum to {p.sum():g}: they must sum to 1; divide them by their sum"
        )
    return p


def numbers_per_client(field: str, given: PerClient, clients: Sequence[Client]) -> Array:
    """One number per client from a list in their order, or from a mapping by name."""
    if isinstance(given, Mapping):
        names = [name_client(clients, place) for place in range(len(clients))]
        missing = [name for name in names if name not in given]
        if missing or len(given) > len(clients):
            what = (
                f"no entry for client {missing[0]!r}"
                if missing
                else "entries for clients without samples"
            )
            raise InvalidInput(f"{field} has {what}: give one per client")
        given = [given[name] for name in names]
    numbers = floats(given)
    if numbers is None:
        raise InvalidInput(f"{field} is {given!r}: give one number per client")
    if numbers.shape != (len(clients),):
        raise InvalidInput(
            f"{field} has shape {numbers.shape}: give one number for each of the {len(clients)}"
            " clients"
        )
    return numbers
