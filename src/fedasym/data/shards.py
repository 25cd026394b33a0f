"""A federation on disk, for more clients than memory holds: a folder of shards, read by clients.

Some clients are read, or a block after the other, here or by whoever keeps the shards on a cluster
(`keepers`). Every client that is read is checked against its own checksum, so that damage is found
whichever way one comes to it. Where the files are, and what is in them, is the affair of
`shard_files`.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn, overload

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, UnreadableFile, import_package
from fedasym.core.numbers import plural, whole
from fedasym.core.runtime import is_url
from fedasym.data.federation import Federation, Samples, check_single, client_places
from fedasym.data.files import read_feature_notes
from fedasym.data.samples import check_feature_notes, identities_of
from fedasym.data.shard_files import (
    AGAIN,
    INDEX,
    Shard,
    ShardCache,
    ShardFolder,
    client_checksums,
    find_shards,
    open_shard,
    read_folder,
    read_run,
    write_shards,
)
from fedasym.data.splits import SPLITS, TRAIN, code_of
from fedasym.exact.clients import Client
from fedasym.exact.storage import StoredClients

BLOCK_BYTES = 16 * 2**20  # of a block, where nothing is said: what reading holds at a time
BLOCK_CLIENTS = 4096
NAMED = 2**16  # clients whose names are hashed at a time


class ClientNames(Sequence[Any]):
    """The names of all clients, kept as a column rather than as Python's objects."""

    def __init__(self, column: Any) -> None:
        self.column = column

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Any]: ...
    def __getitem__(self, place: int | slice) -> Any:
        return self.column[place].to_list() if isinstance(place, slice) else self.column[int(place)]

    def __len__(self) -> int:
        return len(self.column)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.column)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.column.to_list(), dtype)

    def place(self, name: Any) -> int | None:
        """Where a client stands; None where it does not."""
        wanted = str if self.column.dtype == import_package("polars", "shards").String else int
        if type(name) is not wanted:
            return None
        found: int | None = self.column.index_of(name)
        return found

    def take(self, places: NDArray[np.integer[Any]]) -> tuple[Any, ...]:
        """The names at these places."""
        return tuple(self.column.gather(places).to_list())


def on_disk(name: str) -> Any:
    """A field that only federations in memory have: asking for it is refused."""

    def refuse(federation: ShardedFederation) -> NoReturn:
        federation.refuse(f"its {name} are asked for at once,")

    return property(refuse)


class ShardedFederation(Federation):
    """A federation whose samples stay on disk, opened by `Federation.open`.

    It answers what any federation does about its clients and counts, gives some of them as a
    federation in memory (`take`), and all of them a block after the other (`blocks`). Verbs that
    need all samples at once refuse it in words.

    >>> import tempfile, numpy as np
    >>> pair = Federation.from_arrays(np.eye(4), [0, 1, 1, 0], clients=list("aabb"), split=[0] * 4)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     opened = Federation.open(pair.save(folder + "/clients", shards=2))
    ...     opened.counts("train").tolist(), opened.take([1]).clients
    ([2, 2], ('b',))
    """

    files: ShardFolder
    held: Mapping[str, Any]  # what its manifest says
    shards: tuple[Shard, ...]
    digest: str  # of the index, which has checksums of all samples: the same data, the same digest
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # of a sample
    columns: Mapping[str, Any]
    fetched: dict[int, Shard]  # that were not there when it was opened, and have been read since
    keepers: Any = None  # who reads its shards, where that is not this process: `with_keepers`
    features: Any = on_disk("features")
    labels: Any = on_disk("labels")
    owner: Any = on_disk("owner")
    split: Any = on_disk("split")
    mask: Any = on_disk("mask")

    def __init__(self, place: str | Path) -> None:
        files = ShardCache(str(place)) if is_url(place) else ShardFolder(place)
        held, columns = read_folder(files)
        files.settle(held["index"])
        values: dict[str, Any] = {
            "files": files,
            "held": held,
            "digest": held["index"],
            "clients": ClientNames(columns.pop("client")),
            "classes": None if held["classes"] is None else tuple(held["classes"]),
            "dtype": np.dtype(held["dtype"]),
            "shape": tuple(held["shape"]),
            "columns": columns,
            "truth": None,
        }
        values["shards"] = find_shards(files, held)
        values["fetched"] = {}
        notes = read_feature_notes(held)
        values |= check_feature_notes(notes, held["shape"][-1])
        for name, value in values.items():
            object.__setattr__(self, name, value)
        check_index(self)

    @property
    def dimension(self) -> int:
        """d, the number of features."""
        return self.shape[-1]

    @property
    def sequences(self) -> bool:
        """Whether a sample is a sequence of positions."""
        return len(self.shape) == 2

    @property
    def positions(self) -> int:
        """Positions of a sample; 1 where it is no sequence."""
        return self.shape[0] if self.sequences else 1

    @property
    def padded(self) -> bool:
        """Whether some positions are padding."""
        return "mask" in self.shards[0].arrays

    def describe_padding(self) -> str:
        """That there is padding; how much would take a look at all samples."""
        return "padding: some of the positions"

    @property
    def outputs(self) -> int:
        """The number of classes, or of a regression's outputs."""
        if self.classes is not None:
            return len(self.classes)
        return self.shards[0].arrays["labels"].shape[-1]

    @property
    def bytes(self) -> int:
        """Bytes of all samples on disk."""
        return int(self.sizes.sum()) * sum(
            each.row_bytes for each in self.shards[0].arrays.values()
        )

    @cached_property
    def identities(self) -> NDArray[np.uint64]:
        """64 bits per client from its name alone: what its random numbers are keyed by."""
        m = len(self)
        found = np.concatenate(
            [identities_of(self.clients[at : at + NAMED]) for at in range(0, m, NAMED)]
        )
        if np.unique(found).size < m:
            raise InvalidInput(
                f"{self.files.name}: two clients have one name: give each client its rows in one"
                " place"
            )
        return found

    @cached_property
    def sizes(self) -> NDArray[np.intp]:
        """How many samples each client has."""
        return np.asarray(sum(self.counts(split) for split in SPLITS))

    @cached_property
    def starts(self) -> NDArray[np.intp]:
        """Where each client's rows start among all, and the number of samples last."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    def counts(self, split: str) -> NDArray[np.intp]:
        """How many samples of a split each client has."""
        code_of(split)
        return self._column(split).astype(np.intp)

    def count_predictions(self, padding: bool) -> NDArray[np.int64]:
        """(m, 2) predictions that count in validation and test: samples, or real positions."""
        real = self.padded and not padding
        names = [f"{split}_positions" if real else split for split in SPLITS[1:]]
        found = np.stack([self._column(name) for name in names], axis=1).astype(np.int64)
        return found if real else found * self.positions

    def training_squares(self) -> NDArray[np.float64]:
        """The sum of the squared lengths of each client's training samples."""
        return self._column("squares").astype(np.float64)

    def _column(self, name: str) -> NDArray[Any]:
        return np.asarray(self.columns[name])

    def take(self, places: Any) -> Federation:
        """Some clients in memory, by their places, in that order."""
        where = client_places(places, len(self))
        read = read_client_arrays if self.keepers is None else self.keepers.read_clients
        return Federation.of_checked(
            **read(self, where),
            clients=self.clients.take(where) if isinstance(self.clients, ClientNames) else (),
            owner=np.repeat(np.arange(len(where)), self.sizes[where]),
            classes=self.classes,
            names=self.names,
            personal=self.personal,
            intercept=self.intercept,
            recipe=self.recipe,
        )

    @cached_property
    def shard_ends(self) -> NDArray[np.intp]:
        """Where each shard's clients end among all."""
        return np.cumsum([shard.clients for shard in self.shards])

    def block_ends(
        self, clients: int | None = None, most: int = BLOCK_BYTES, apart: bool = False
    ) -> list[int]:
        """Where blocks of clients end: at most so many clients and bytes, and one client at least.

        The first entry is 0 and the last the number of clients. apart: each block is of one shard.
        """
        largest = BLOCK_CLIENTS if clients is None else whole("clients", clients, least=1)
        each = sum(array.row_bytes for array in self.shards[0].arrays.values())
        ends, m = [0], len(self)
        limits = self.shard_ends if apart else np.array([m])
        while ends[-1] < m:
            fits = np.searchsorted(self.starts, self.starts[ends[-1]] + most // each, "right") - 1
            limit = int(limits[np.searchsorted(limits, ends[-1], "right")])
            ends.append(min(max(int(fits), ends[-1] + 1), ends[-1] + largest, limit))
        return ends

    def with_keepers(self, keepers: Any) -> ShardedFederation:
        """The same federation, whose shards others read: on a cluster, for one."""
        found = copy.copy(self)
        object.__setattr__(found, "keepers", keepers)
        return found

    def blocks(self, clients: int | None = None) -> Iterator[Federation]:
        """All clients, a block after the other, each in memory while it is looked at."""
        self.check_here()
        for start, stop in pairwise(self.block_ends(clients)):
            yield self.take(np.arange(start, stop))

    @property
    def readable_shards(self) -> list[int]:
        """The shards that can be read from this machine."""
        remote = self.files.remote
        return [
            place
            for place, shard in enumerate(self.shards)
            if remote or shard.opened or shard.path.exists()
        ]

    def check_here(self) -> None:
        """Refuse, before any work, to read all clients where a shard is missing."""
        if self.keepers is not None:
            return
        missing = np.setdiff1d(np.arange(len(self.shards)), self.readable_shards)
        if missing.size:
            raise UnreadableFile(
                f"the shard {self.shards[missing[0]].name} cannot be read: No such file or"
                f" directory ({len(missing)} of {plural(len(self.shards), 'shard')} are not on this"
                f" machine); {AGAIN}, or use a cluster whose nodes have them"
            )

    def ready_shard(self, number: int, again: bool = False) -> Shard:
        """A shard whose header was read, fetched where it is elsewhere; again: once more."""
        shard = self.shards[number]
        if shard.opened:
            return shard
        self.files.fetch(self.held["shards"][number]["file"], again)
        if again or number not in self.fetched:
            self.fetched[number] = open_shard(self.files, self.held, number)
        return self.fetched[number]

    def rows(self, client: Any, split: str | None = None) -> NDArray[np.intp]:
        """Refused: there are no rows in memory."""
        self.refuse("rows are asked for")

    def client(self, name: Any) -> Samples:
        """One client's samples."""
        return self.take([self.place(name)]).client(name)

    def place(self, name: Hashable) -> int:
        """Where a client stands; refuses one that is not there."""
        assert isinstance(self.clients, ClientNames)
        found = self.clients.place(name)
        if found is None:
            raise InvalidInput(
                f"unknown client {name!r}: {self.files.name} has {plural(len(self), 'client')}, the"
                f" first {self.clients[0]!r}"
            )
        return found

    def save(
        self, path: str | Path, shards: int | None = None, layout: str = "safetensors"
    ) -> Path:
        """Write to another folder, in so many shards."""
        each = -(-len(self) // (shards or 1))
        return write_shards(self.blocks(), path, clients=each, layout=layout)

    def resplit(self, *_: Any, **__: Any) -> Federation:
        """Refused: the split is on disk."""
        self.refuse("splits are dealt out")

    def merge_rare(self, classes: int) -> Federation:
        """Refused: the labels are on disk."""
        self.refuse("classes are merged")

    def class_counts(self, split: str | None = None) -> NDArray[np.intp]:
        """How many samples (positions of sequences) of each class each client has."""
        return np.concatenate([block.class_counts(split) for block in self.blocks()])

    def training_clients(self, intercept: bool) -> StoredClients:
        """Each client with training samples as exact fits take it, read when it is looked at."""
        check_single(self)
        self.check_here()
        trains = self.counts("train")

        def read(places: NDArray[np.intp]) -> list[Client]:
            return list(self.take(places).training_clients(intercept))

        ends, places = np.array(self.block_ends()), np.flatnonzero(trains)
        return StoredClients(read, self.clients, trains.astype(float), ends, places)

    def refuse(self, what: str) -> NoReturn:
        """What needs all samples in memory is refused."""
        raise InvalidInput(
            f"{self.files.name} is a federation on disk, and {what} in memory: take some of its"
            " clients, federation.take(range(1000)), or, where all of them fit into memory,"
            " federation.take(range(len(federation)))"
        )


def check_in_memory(federation: Federation, what: str) -> None:
    """Refuse a federation on disk where something is done in memory alone."""
    if isinstance(federation, ShardedFederation):
        federation.refuse(what)


def map_blocks(
    federation: Federation,
    function: Callable[..., Any],
    *told: Any,
    places: NDArray[np.intp] | None = None,
) -> Iterator[Any]:
    """What a function of the module's level says of each block of clients, in order: where its
    keepers read a federation, it is called there. places: of some clients alone, in ascending
    order; a block without any is passed over.

    >>> pair = Federation.from_arrays(np.eye(4), [0, 1, 1, 0], clients=list("aabb"))
    >>> list(map_blocks(pair, len)), list(map_blocks(pair, len, places=np.array([1])))
    ([2], [1])
    """
    if isinstance(federation, ShardedFederation) and federation.keepers is not None:
        return iter(federation.keepers.map_blocks(function, told, places))
    blocks = federation.blocks() if places is None else take_blocks(federation, places)
    return (function(block, *told) for block in blocks)


def sum_blocks(
    federation: Federation,
    function: Callable[..., Any],
    *told: Any,
    places: NDArray[np.intp] | None = None,
) -> Any:
    """The sum of what `map_blocks` gives, which nobody holds at once.

    >>> pair = Federation.from_arrays(np.eye(4), [0, 1, 1, 0], clients=list("aabb"))
    >>> sum_blocks(pair, len)
    2
    """
    if isinstance(federation, ShardedFederation) and federation.keepers is not None:
        return federation.keepers.sum_blocks(function, told, places)
    return reduce(operator.add, map_blocks(federation, function, *told, places=places))


def take_blocks(
    federation: Federation, places: NDArray[np.intp], apart: bool = False
) -> Iterator[Federation]:
    """Some clients in ascending order, a block at a time. apart: as in `block_ends`."""
    ends = [0, len(federation)]
    if isinstance(federation, ShardedFederation):
        ends = federation.block_ends(apart=apart)
    for part in np.split(places, np.searchsorted(places, ends[1:-1])):
        if part.size:
            yield federation.take(part)


def share_out(sizes: Sequence[int], runs: int) -> list[range]:
    """Runs of shards with about as many samples each.

    >>> share_out([1, 1, 1, 3], 2), share_out([5, 1], 2), share_out([1], 3)
    ([range(0, 3), range(3, 4)], [range(0, 1), range(1, 2)], [range(0, 1)])
    """
    runs = min(runs, len(sizes))
    ends = np.cumsum(sizes)
    cuts = [0]
    for run in range(1, runs):
        nearest = int(np.searchsorted(ends, ends[-1] * run / runs, "left")) + 1
        cuts.append(min(max(nearest, cuts[-1] + 1), len(sizes) - (runs - run)))
    return [range(*pair) for pair in pairwise([*cuts, len(sizes)])]


def deal_out(sizes: Sequence[int], holders: Sequence[Collection[int]]) -> list[list[int]]:
    """Shards to those who can read them, by size: each to whom has least, the largest first.

    holders: for each of them, the shards that it can read.

    >>> deal_out([1, 1, 1, 1], [{0, 1, 2}, {2, 3}])
    [[0, 1], [2, 3]]
    """
    held: list[list[int]] = [[] for _ in holders]
    loads = [0] * len(holders)
    choices = {
        shard: [at for at, mine in enumerate(holders) if shard in mine]
        for shard in range(len(sizes))
    }
    # what few can read comes first: others make up for it
    for shard in sorted(choices, key=lambda shard: (len(choices[shard]), -sizes[shard], shard)):
        if not choices[shard]:
            raise UnreadableFile(f"shard {shard} can be read by nobody")
        at = min(choices[shard], key=lambda at: (loads[at], at))
        held[at].append(shard)
        loads[at] += sizes[shard]
    return [sorted(mine) for mine in held]


def split_members(
    members: NDArray[np.intp], runs: Sequence[Sequence[int]], ends: NDArray[np.intp]
) -> dict[int, NDArray[np.intp]]:
    """Sorted clients by the run of shards that they live in."""
    owner = np.empty(len(ends), np.intp)
    for at, run in enumerate(runs):
        owner[np.asarray(run, np.intp)] = at
    theirs = owner[np.searchsorted(ends, members, "right")]
    return {at: members[theirs == at] for at in np.unique(theirs).tolist()}


def check_index(federation: ShardedFederation) -> None:
    """Columns that are there and fit the shards."""
    columns = federation.columns
    wanted = [*SPLITS, "crc32", "squares"]
    if federation.padded:
        wanted += [f"{split}_positions" for split in SPLITS[1:]]
    missing = [name for name in wanted if name not in columns]
    whole_numbers = not missing and all(
        columns[name].dtype.is_integer() and (columns[name] >= 0).all() is True
        for name in wanted
        if name != "squares"
    )
    clients = np.cumsum([0, *(shard.clients for shard in federation.shards)])
    samples = np.cumsum([0, *(shard.samples for shard in federation.shards)])
    fits = (
        whole_numbers
        and clients[-1] == len(federation)
        and bool(np.array_equal(federation.starts[clients], samples))
        and bool((federation.sizes > 0).all())
    )
    if not fits:
        raise UnreadableFile(
            f"path is {federation.files.name!r}: {INDEX} does not fit the shards: {AGAIN}"
        )
    if not federation.counts("train").any():
        raise InvalidInput("split leaves no training sample at all: give at least one client one")


def read_client_arrays(
    federation: ShardedFederation, places: NDArray[np.intp], again: bool = False
) -> dict[str, Any]:
    """The arrays of some clients, read run by run: clients that lie side by side are one read.

    again: shards are fetched once more, since copies were damaged or removed.
    """
    sizes, starts = federation.sizes, federation.starts
    counts = sizes[places]
    rows = int(counts.sum())
    first = federation.shards[0].arrays
    arrays = {name: np.empty((rows, *each.shape[1:]), each.dtype) for name, each in first.items()}
    ends = federation.shard_ends
    shard_of = np.searchsorted(ends, places, "right")
    breaks = (np.diff(places) != 1) | (np.diff(shard_of) != 0)
    runs = np.concatenate([[0], np.flatnonzero(breaks) + 1, [len(places)]])
    filled = np.concatenate([[0], np.cumsum(counts)])
    try:
        for low, high in pairwise(runs.tolist()):
            number = int(shard_of[low])
            new = again and (low == 0 or shard_of[low - 1] != number)
            shard = federation.ready_shard(number, new)
            before = starts[ends[number] - shard.clients]
            read_run(shard, int(starts[places[low]] - before), arrays, filled[low], filled[high])
        check_clients(federation, places, arrays, filled)
    except UnreadableFile:
        if again or not federation.files.remote:
            raise
        return read_client_arrays(federation, places, again=True)
    labels = arrays["labels"].astype(np.float64 if federation.classes is None else np.int64)
    split = arrays["split"].astype(np.int8)
    return {
        "features": arrays["features"],
        "labels": labels,
        "split": split,
        "mask": arrays.get("mask"),
    }


def check_clients(
    federation: ShardedFederation,
    places: NDArray[np.intp],
    arrays: Mapping[str, NDArray[Any]],
    filled: NDArray[np.intp],
) -> None:
    """Refuse clients whose bytes are not those that were written, or no samples."""
    sums = client_checksums(arrays, filled)
    wrong = np.flatnonzero(sums != federation._column("crc32")[places])
    split, labels = arrays["split"], arrays["labels"]
    if not wrong.size:
        bad = (split < 0) | (split > 2)
        if federation.classes is not None:
            outside = (labels < 0) | (labels >= len(federation.classes))
            bad = bad | outside.reshape(len(split), -1).any(1)
        owner = np.repeat(np.arange(len(places)), np.diff(filled))
        wrong = np.unique(owner[bad])
        trains = np.bincount(owner[split == TRAIN], minlength=len(places))
        wrong = np.union1d(
            wrong, np.flatnonzero(trains != federation._column("train")[places])
        ).astype(np.intp)
    if wrong.size:
        place = int(places[wrong[0]])
        at = int(np.searchsorted(federation.shard_ends, place, "right"))
        shard, client = federation.shards[at].name, federation.clients[place]
        raise UnreadableFile(
            f"the shard {shard} is damaged: the samples of client {client!r} are not those that"
            f" were written; {AGAIN}"
        )
