"""The advisor's data: clients' training and held-out rows, numbers or classes, clear refusals."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, NoFormula, one_of, read_list
from fedasym.core.numbers import Array
from fedasym.data.federation import Federation
from fedasym.data.samples import TASKS, read_label_array
from fedasym.data.shards import ShardedFederation, map_blocks, sum_blocks
from fedasym.data.splits import TEST, TRAIN
from fedasym.exact.clients import (
    check_rows,
    group_rows,
    is_per_client,
    iterate_clients,
    labels_of,
    places_of,
)
from fedasym.worlds.classes import MOST_CLASSES

LEAST_CLIENTS = 4  # fewer say nothing about how clients differ
Codes = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class AdvisedClient:
    """One client: where its rows are in `features` and `labels`; they are copied only in use.

    held: those that it does not train on; test: those of them that are not for validation.
    """

    name: Hashable
    features: NDArray[Any]
    labels: NDArray[Any]
    train: NDArray[np.intp]
    held: NDArray[np.intp]
    test: NDArray[np.intp]


class DiskParts(Sequence[AdvisedClient]):
    """Clients on disk, read when they are looked at: one after the other by blocks, or singly.

    places: where they stand in the federation. swapped: held-out samples are learnt from, and none
    are held out. counts: (clients, classes) training labels.
    """

    def __init__(
        self,
        federation: ShardedFederation,
        places: Codes,
        swapped: bool = False,
        counts: Any = None,
    ) -> None:
        self.federation, self.places, self.swapped = federation, places, swapped
        self.counts: Array | None = counts
        held = federation.sizes - federation.counts("train")
        self.sizes = (held if swapped else federation.counts("train"))[places]
        self.ends = np.array(federation.block_ends())
        self.read: dict[int, AdvisedClient] = {}
        self.last = -1

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, place: Any) -> Any:
        at = int(self.places[place])
        if at not in self.read:
            block = int(np.searchsorted(self.ends, at, "right")) - 1
            # whoever asks for the neighbour of the last one goes through all of them
            walks = place in (0, self.last + 1)
            wanted = np.arange(self.ends[block], self.ends[block + 1]) if walks else np.array([at])
            found = position_parts(self.federation.take(wanted))
            self.read = dict(zip(wanted.tolist(), found, strict=True))
        self.last = int(place)
        part = self.read[at]
        return swap_samples(part) if self.swapped else part

    def keep(self, wanted: NDArray[np.bool_]) -> DiskParts:
        """Some of the clients, by whether each is wanted."""
        return DiskParts(self.federation, self.places[wanted], self.swapped)

    def swap(self) -> DiskParts:
        """The clients that hold samples out, with these to learn from."""
        return DiskParts(self.federation, self.places[self.held_sizes > 0], swapped=True)

    @property
    def held_sizes(self) -> NDArray[np.intp]:
        """How many samples each client holds out."""
        held = self.federation.sizes - self.federation.counts("train")
        return held[self.places] * (not self.swapped)


def swap_samples(part: AdvisedClient) -> AdvisedClient:
    """A client that learns from what it held out, and holds nothing out."""
    return replace(part, train=part.held, held=part.train[:0])


@dataclass(frozen=True, eq=False)
class ClientData:
    """All clients with training samples, and the features that are not always 0 (others carry
    nothing and are left out).

    basis: orthogonal directions that all samples lie in, where features follow from one another;
        None where none does.
    levelled: whether each client's intercept is minimised out: its training samples are turned so
        that one of them holds all of it, and that one goes; its held-out samples are about the
        means of those that train.
    """

    parts: Sequence[AdvisedClient]
    live: NDArray[np.bool_]
    basis: Array | None = None
    levelled: bool = False

    @property
    def dimension(self) -> int:
        """d, the directions that samples see."""
        return int(self.live.sum()) if self.basis is None else self.basis.shape[1]

    @property
    def dropped_features(self) -> int:
        """How many features are always 0 or follow from others."""
        return self.live.size - self.dimension

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Training samples of each client, less the one that its intercept takes."""
        if isinstance(self.parts, DiskParts):
            return np.asarray(self.parts.sizes - self.levelled)
        return np.array([part.train.size - self.levelled for part in self.parts])

    @property
    def on_disk(self) -> bool:
        """Whether clients are read when they are looked at."""
        return isinstance(self.parts, DiskParts)

    @property
    def held_sizes(self) -> NDArray[np.intp]:
        """How many samples each client holds out."""
        if isinstance(self.parts, DiskParts):
            return self.parts.held_sizes
        return np.array([part.held.size for part in self.parts])

    def names(self, places: Sequence[int]) -> tuple[Hashable, ...]:
        """Of the clients at some places."""
        if isinstance(self.parts, DiskParts):
            named, at = self.parts.federation.clients, self.parts.places
            return tuple(named[int(at[place])] for place in places)
        return tuple(self.parts[place].name for place in places)

    def count_labels(self, classes: int) -> Array:
        """(clients, classes) labels of training samples."""
        if isinstance(self.parts, DiskParts) and self.parts.counts is not None:
            return self.parts.counts
        return np.array(
            [
                np.bincount(np.asarray(part.labels[part.train], int), minlength=classes)
                for part in self.parts
            ],
            float,
        )

    def learn_from_held(self) -> ClientData:
        """Those who hold samples out, with these as their training samples."""
        if isinstance(self.parts, DiskParts):
            return replace(self, parts=self.parts.swap())
        return replace(
            self, parts=tuple(swap_samples(part) for part in self.parts if part.held.size)
        )

    def table(self, place: int) -> Array:
        """One client's training samples: the features, and the labels as the last column."""
        part = self.parts[place]
        taken = self._take(part, part.train)
        return remove_mean(taken) if self.levelled else taken

    def rows(self, place: int) -> tuple[Array, Array]:
        """One client's training samples."""
        table = self.table(place)
        return table[:, :-1], table[:, -1]

    def held_out_rows(self, place: int) -> tuple[Array, Array]:
        """One client's held-out samples; there may be none."""
        part = self.parts[place]
        taken = self._take(part, part.held)
        if self.levelled:
            taken -= self.means(place)
        return taken[:, :-1], taken[:, -1]

    def test_mask(self, place: int) -> NDArray[np.bool_]:
        """Which of one client's held-out samples are for test."""
        part = self.parts[place]
        return np.isin(part.held, part.test)

    def means(self, place: int) -> Array:
        """One client's mean features and mean label, of its training samples."""
        part = self.parts[place]
        return np.asarray(self._take(part, part.train).mean(0))

    def level(self) -> ClientData:
        """The same clients without intercepts; those with one training sample are left empty."""
        parts: Sequence[AdvisedClient]
        if isinstance(self.parts, DiskParts):
            parts = self.parts.keep(self.parts.sizes > 1)
        else:
            parts = tuple(part for part in self.parts if part.train.size > 1)
        if len(parts) < LEAST_CLIENTS:
            raise InvalidInput(
                f"{len(parts)} clients have two training samples or more: with an intercept of its"
                f" own a client needs two, and how clients differ takes {LEAST_CLIENTS} of them;"
                " give more samples, or leave the intercept out"
            )
        return replace(self, parts=parts, levelled=True)

    def thin(self, most: int) -> ClientData:
        """At most so many of the clients, evenly spread; those on disk are read."""
        places = spread_places(len(self.parts), most)
        if isinstance(self.parts, DiskParts):
            read = self.parts.federation.take(self.parts.places[places])
            return replace(self, parts=tuple(position_parts(read)))
        if len(places) == len(self.parts):
            return self
        return replace(self, parts=tuple(self.parts[place] for place in places))

    def _take(self, part: AdvisedClient, where: NDArray[np.intp]) -> Array:
        """Rows of the features that count, and their labels last; a copy in double precision."""
        adjoin = where.size > 0 and where[-1] - where[0] == where.size - 1
        at = slice(where[0], where[-1] + 1) if adjoin else where  # rows in order are not looked up
        rows = part.features[at]
        rows = rows if self.live.all() else rows[:, self.live]
        rows = rows if self.basis is None else np.asarray(rows, dtype=float) @ self.basis
        taken = np.empty((where.size, self.dimension + 1))
        taken[:, :-1] = rows
        taken[:, -1] = part.labels[at]
        return taken

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        return (self.rows(place) for place in range(len(self.parts)))


class ReadingForm(NamedTuple):
    """What `ClientData` says of all clients, for those who read some of them."""

    live: NDArray[np.bool_]
    basis: Array | None
    levelled: bool
    swapped: bool

    def read(self, block: Federation) -> ClientData:
        """Clients in memory in this form."""
        parts = position_parts(block)
        if self.swapped:
            parts = [swap_samples(part) for part in parts]
        return ClientData(tuple(parts), self.live, self.basis, self.levelled)


def form_and_call(
    block: Federation, form: ReadingForm, function: Callable[..., Any], told: tuple[Any, ...]
) -> Any:
    """What a function says of a block of clients in the form that it knows."""
    return function(form.read(block), *told)


def map_parts(
    data: ClientData, function: Callable[..., Any], *told: Any, places: Any = None
) -> Iterator[Any]:
    """What a function of the module's level says of clients, of all or of those at some ascending
    places: in memory of all these at once, on disk block by block, where blocks are read.
    """
    if not isinstance(data.parts, DiskParts):
        if places is not None:
            data = replace(data, parts=tuple(data.parts[place] for place in places))
        return iter([function(data, *told)])
    where = data.parts.places if places is None else data.parts.places[places]
    return map_blocks(*call_on_disk(data.parts, data, function, told), places=where)


def sum_parts(data: ClientData, function: Callable[..., Any], *told: Any) -> Any:
    """The sum of what `map_parts` gives of all clients, which nobody holds at once."""
    if not isinstance(data.parts, DiskParts):
        return function(data, *told)
    return sum_blocks(*call_on_disk(data.parts, data, function, told), places=data.parts.places)


def call_on_disk(
    parts: DiskParts, data: ClientData, function: Callable[..., Any], told: tuple[Any, ...]
) -> tuple[Any, ...]:
    """A federation, and what is called with each of its blocks."""
    form = ReadingForm(data.live, data.basis, data.levelled, parts.swapped)
    return parts.federation, form_and_call, form, function, told


def spread_places(count: int, wanted: int) -> Codes:
    """`wanted` places out of `count`, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(wanted, count)).round().astype(int))


def remove_mean(rows: Array) -> Array:
    """Rows turned by a reflection that puts their whole mean into the first; without that one.

    `reflect_rows` along ones, for which a single row is subtracted from all the others.

    >>> abs(remove_mean(np.array([[1.0, 10.0], [3.0, 14.0]]))).round(6).tolist()
    [[1.414214, 2.828427]]
    """
    root = np.sqrt(len(rows))
    return np.asarray(rows[1:] - (rows[0] + rows.sum(0) / root) / (1 + root))


def read_clients(data: Any, y: Any = None, clients: Iterable[Hashable] | None = None) -> ClientData:
    """A federation, or arrays as `fa.linear.fit` takes them; checked once, here."""
    if isinstance(data, Federation):
        if y is not None or clients is not None:
            raise InvalidInput(
                "a Federation has its own labels and clients: leave y and clients out"
            )
        check_one_output(data)
        if isinstance(data, ShardedFederation):
            return read_disk_numbers(data)
        parts = position_parts(data)
    elif y is None:
        raise InvalidInput(
            "y is missing: give a Federation, or features, labels and clients=[...], the client of"
            " each row"
        )
    else:
        parts = array_parts(data, y, clients)
    return check_client_parts(parts)


def check_one_output(federation: Federation) -> None:
    """Refuse samples with several positions or outputs."""
    if federation.sequences or federation.outputs != 1:
        raise NoFormula(
            "a sample has"
            f" {'several positions' if federation.sequences else f'{federation.outputs} outputs'}:"
            " advice is for one output per sample; ask for each output on its own"
        )


def array_parts(X: Any, y: Any, clients: Iterable[Hashable] | None) -> list[AdvisedClient]:
    """All rows with the client of each, or one pair of arrays per client; nothing is held out."""
    none = np.array([], dtype=int)
    if is_per_client(X):
        each = iterate_clients(X, y, clients)
        return [
            AdvisedClient(name, rows, values, np.arange(len(rows)), none, none)
            for name, rows, values in each
        ]
    if clients is None:
        raise InvalidInput("clients is missing: give the client of each row, such as clients=ids")
    rows, values = check_rows(None, X, y)
    labels = labels_of(clients)
    if len(labels) != len(rows):
        next(iter(group_rows(rows, values, labels)))  # says what is wrong
    return [
        AdvisedClient(name, rows, values, np.array(where), none, none)
        for name, where in places_of(labels).items()
    ]


def check_client_parts(parts: Sequence[AdvisedClient]) -> ClientData:
    """Refuse what no estimate can be made from, each with what is missing."""
    training = tuple(part for part in parts if part.train.size)
    if len(training) < LEAST_CLIENTS:
        raise InvalidInput(
            f"there are {len(training)} clients with training samples: how clients differ cannot be"
            f" told from fewer than {LEAST_CLIENTS}; with so few, compare the algorithms on"
            " held-out samples (fa.linear.fit)"
        )
    if max(part.train.size for part in training) < 2:
        raise InvalidInput(
            "every client has a single training sample: noise and differences between clients"
            " cannot be told apart; give at least some clients two samples or more"
        )
    live = np.zeros(training[0].features.shape[1], dtype=bool)
    low, high = np.inf, -np.inf
    whole = ClientData(training, np.ones_like(live))
    for place, part in enumerate(training):
        table = whole.table(place)
        if not np.isfinite(table).all():
            refuse_nan(part.name)
        if not live.all():
            live |= table[:, :-1].any(0)
        low, high = min(low, table[:, -1].min()), max(high, table[:, -1].max())
    if not live.any():
        raise InvalidInput(
            "all features are 0: there is nothing to learn from; check how the features were read"
        )
    if low == high:
        raise InvalidInput(
            f"all labels are {low:g}: there is nothing to predict; check which column is the label"
        )
    return replace(whole, live=live)


def refuse_nan(client: Hashable) -> NoReturn:
    """A client with samples that are not numbers is refused."""
    raise InvalidInput(
        f"client {client!r} has NaN or infinity in its samples: drop or fill those samples first"
    )


@dataclass(frozen=True, eq=False)
class Coding:
    """Classes by their names, and what least squares makes of them."""

    names: tuple[Any, ...]

    @property
    def count(self) -> int:
        """C, how many classes there are."""
        return len(self.names)

    @property
    def free_outputs(self) -> int:
        """Outputs that are free: one for two classes, C - 1 for more."""
        return self.count - 1

    @property
    def total(self) -> float:
        """Mean square of a free output over all samples, known: 1 for two classes, 1/C for more."""
        return 1.0 if self.count == 2 else 1 / self.count

    def targets(self, codes: Array) -> Array:
        """What least squares is told, (samples, outputs).

        >>> Coding(("no", "yes")).targets(np.array([0.0, 1.0])).tolist()
        [[-1.0], [1.0]]
        """
        which = codes.astype(int)
        if self.count == 2:
            return np.asarray(2.0 * which[:, None] - 1)
        return np.asarray(np.eye(self.count)[which] - 1 / self.count)

    def guess(self, outputs: Array) -> Codes:
        """The class that outputs stand for."""
        return (
            np.asarray(outputs[:, 0] > 0, dtype=np.intp)
            if self.count == 2
            else np.asarray(outputs.argmax(-1))
        )


@dataclass(frozen=True, eq=False)
class Classes(Coding):
    """All clients with training samples; the labels of `data` are codes of `names`."""

    data: ClientData

    @property
    def coding(self) -> Coding:
        """The classes without the clients, for those who read some of them."""
        return Coding(self.names)


def are_classes(data: Any, y: Any, task: str | None) -> bool:
    """Whether labels are classes: `task` says so, the federation knows, or else whole numbers,
    booleans and strings are.

    >>> (
    ...     are_classes(None, [[0, 1], [1, 1]], None),
    ...     are_classes(None, [0.0, 1.0], None),
    ...     are_classes(None, [0, 7], "regression"),
    ... )
    (True, False, False)
    """
    if task is not None:
        one_of("task", task, TASKS)
    if isinstance(data, Federation):
        if task is not None and task != data.task:
            raise InvalidInput(
                f"task is {task!r} and the federation's labels are for {data.task}: make it with"
                " that task"
            )
        return data.task == "classification"
    if task is not None or y is None:
        return task == "classification"
    return all(read_label_array(each).dtype.kind in "biuUO" for each in split_labels(y))


def split_labels(y: Any) -> list[Any]:
    """Labels client by client, or all of them as one list."""
    lists = (
        [y]
        if hasattr(y, "dtype")
        else read_list("y", y, "give one label per row, or a list of labels per client")
    )
    return lists if lists and all(np.ndim(each) == 1 for each in lists) else [y]


def read_classes(data: Any, y: Any = None, clients: Iterable[Hashable] | None = None) -> Classes:
    """A federation with classes, or arrays as `fa.advise` takes them; checked once, here."""
    if isinstance(data, Federation):
        if y is not None or clients is not None:
            raise InvalidInput(
                "a Federation has its own labels and clients: leave y and clients out"
            )
        assert data.classes is not None
        names = data.classes
        if isinstance(data, ShardedFederation):
            return Classes(names, read_disk_classes(data))
        parts = position_parts(data)
    elif y is None:
        raise InvalidInput(
            "y is missing: give a Federation, or features, labels and clients=[...], the client of"
            " each row"
        )
    else:
        names, codes = encode_labels(y)
        X = list(data) if is_per_client(data) else data
        parts = array_parts(X, codes if is_per_client(X) else np.concatenate(codes), clients)
    if len(names) > MOST_CLASSES:
        raise NoFormula(
            f"the labels have {len(names)} different values, and advice is for up to {MOST_CLASSES}"
            f" classes: merge rare ones (federation.merge_rare({MOST_CLASSES})), or say"
            " task='regression' if they are numbers"
        )
    return Classes(names, check_class_labels(parts, names))


def encode_labels(y: Any) -> tuple[tuple[Any, ...], list[Array]]:
    """The sorted names of the classes, and the labels as codes in the lists they came in."""
    lists = [read_label_array(each).reshape(-1) for each in split_labels(y)]
    every = np.concatenate(lists) if lists else np.empty(0)
    missing = [
        each
        for each in every.tolist()
        if each is None or (isinstance(each, float) and np.isnan(each))
    ]
    if missing:
        raise InvalidInput(
            f"a label is {missing[0]!r}: drop the samples without a label, or name their class"
        )
    try:
        names, codes = np.unique(every, return_inverse=True)
    except TypeError:
        raise InvalidInput(
            "the labels mix numbers and words: give all of them as strings, or all as numbers"
        ) from None
    ends = np.cumsum([len(each) for each in lists])[:-1]
    return tuple(names.tolist()), np.split(codes.astype(float), ends)


def position_parts(federation: Federation) -> list[AdvisedClient]:
    """Training rows, and validation and test rows held out; positions count as samples."""
    width = federation.features.shape[1] if federation.sequences else 1
    features = federation.features.reshape(-1, federation.dimension)
    labels = federation.labels.reshape(-1)
    real = (
        np.ones(labels.size, dtype=bool) if federation.mask is None else federation.mask.reshape(-1)
    )
    split = np.repeat(federation.split, width)
    parts = []
    for place, name in enumerate(federation.clients):
        rows = np.arange(width * federation.starts[place], width * federation.starts[place + 1])
        rows = rows[real[rows]]
        here = split[rows]
        own = rows[here == TRAIN], rows[here != TRAIN], rows[here == TEST]
        parts.append(AdvisedClient(name, features, labels, *own))
    return parts


def read_disk_classes(federation: ShardedFederation) -> ClientData:
    """Clients on disk, looked at once, block by block: the same checks, and labels counted."""
    if federation.sequences:
        federation.refuse("advice on sequences is")
    if len(federation.classes or ()) > MOST_CLASSES:
        federation.refuse("rare classes are to be merged")
    trains, live, _, counts = look_at_blocks(federation, counted=True)
    if trains is None or len(np.flatnonzero(counts.sum(0, dtype=float))) < 2:
        return check_class_labels(first_parts(federation), federation.classes or ())
    return ClientData(DiskParts(federation, trains, counts=counts[trains]), live)


def read_disk_numbers(federation: ShardedFederation) -> ClientData:
    """The same of labels that are numbers."""
    trains, live, ends, _ = look_at_blocks(federation, counted=False)
    if trains is None or ends[0] == ends[1]:
        return check_client_parts(first_parts(federation))
    return ClientData(DiskParts(federation, trains), live)


def look_at_blocks(
    federation: ShardedFederation, counted: bool
) -> tuple[Codes | None, NDArray[np.bool_], tuple[float, float], NDArray[np.float32]]:
    """The places of clients that train (None: too few to advise on), which features are not always
    0, the ends of the labels and, where these are counted, how many of each class every client
    trains on, after one look at all blocks.
    """
    found = [*map_blocks(federation, look_at_block, counted)]
    live = np.any([each.live for each in found], axis=0)
    ends = min(each.low for each in found), max(each.high for each in found)
    counts = np.concatenate([each.counts for each in found])
    trains = np.flatnonzero(federation.counts("train") > 0)
    enough = len(trains) >= LEAST_CLIENTS and federation.counts("train").max() > 1 and live.any()
    return trains if enough else None, live, ends, counts


class BlockLook(NamedTuple):
    """What a first look at some clients sees."""

    live: NDArray[np.bool_]  # features that are not always 0
    low: float  # of labels
    high: float
    counts: NDArray[np.float32]  # (clients, classes) of labels


def look_at_block(block: Federation, counted: bool) -> BlockLook:
    """The training samples of some clients, without gaps; counted: their labels are classes."""
    training = block.split == TRAIN
    rows, labels = block.features[training], block.labels[training]
    missing = ~(np.isfinite(rows).all(1) & np.isfinite(labels.reshape(len(rows), -1)).all(1))
    if missing.any():
        refuse_nan(block.clients[int(block.owner[training][missing][0])])
    counts = block.class_counts("train") if counted else np.empty((0, 0))
    low, high = (labels.min(), labels.max()) if labels.size else (np.inf, -np.inf)
    return BlockLook(rows.any(0), float(low), float(high), counts.astype(np.float32))


def first_parts(federation: ShardedFederation) -> list[AdvisedClient]:
    """A few clients, which are refused for the same reason as all of them."""
    trains = np.flatnonzero(federation.counts("train") > 0)
    return position_parts(federation.take(trains[: LEAST_CLIENTS + 1]))


def check_class_labels(parts: list[AdvisedClient], names: tuple[Any, ...]) -> ClientData:
    """The checks that all data pass, with a class by its name where there is only one."""
    labels = (
        np.concatenate([np.unique(part.labels[part.train]) for part in parts])
        if parts
        else np.empty(0)
    )
    if np.unique(labels).size == 1:
        raise InvalidInput(
            f"all training labels are {names[int(labels[0])]!r}: with a single class there is"
            " nothing to predict; check which column is the label"
        )
    return check_client_parts(parts)
