"""The files of a federation in shards: where they are, what they say about themselves, how they are
written and read.

A folder has `federation.json` (what the samples are, and the list of shards), `clients.parquet` (a
row per client: name, samples by split, checksum) and shards, `shard-00000.safetensors` and so on,
or tables of samples, `shard-00000.parquet`.
Clients stand in one order, that of `clients.parquet`; a shard has a run of them, and in it a
client's rows are contiguous. docs/how-to/formats.md has the layout for those who write it
themselves.

A folder may be behind a URL: shards are then fetched when they are read, into a folder of caches
that is bounded. Of a folder on this machine shards may be missing, as long as nobody reads them: on
a cluster each node may have some of them.

Samples are read by plain reads of the bytes that are asked for (of Parquet, of the row groups that
hold them), and never mapped: what was read and let go is no memory of the process.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, UnreadableFile, import_package, one_of, path_of
from fedasym.core.numbers import whole
from fedasym.core.runtime import (
    PART,
    cache_folder,
    flush,
    is_url,
    open_store,
    refuse_unwritable,
    replace_file,
)
from fedasym.data.federation import Federation
from fedasym.data.files import KEY, feature_notes
from fedasym.data.splits import SPLITS

FORMAT = "fedasym shards 1"
MANIFEST, INDEX = "federation.json", "clients.parquet"
SHARD_BYTES = 64 * 2**20  # of a shard, where nothing is said: what writing holds at a time
LONGEST = 2**20  # bytes of a shard's header
TYPES = dict(  # safetensors' names of them
    zip(
        ("F16", "F32", "F64", "I8", "U8", "I16", "U16", "I32", "I64", "BOOL"),
        ("<f2", "<f4", "<f8", "|i1", "|u1", "<i2", "<u2", "<i4", "<i8", "|b1"),
        strict=True,
    )
)
ARRAYS = ("features", "labels", "split", "mask")
LAYOUTS = ("safetensors", "parquet")
GROUP_BYTES = 2**20  # of a row group of a Parquet shard: what reading a client decodes
AGAIN = "put the right file in its place, or shard the federation again"


class StoredArray(NamedTuple):
    """Where an array lies in a shard's file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int  # of its first byte in the file

    @property
    def row_bytes(self) -> int:
        """Bytes of a sample."""
        return int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize


class Shard(NamedTuple):
    """One file: its clients and samples, and where its arrays lie."""

    path: Path
    clients: int
    samples: int
    arrays: dict[str, StoredArray]
    name: str  # as it is told to users
    opened: bool = True  # whether its header was read: until then its arrays lie nowhere


class ShardFolder:
    """The files of a federation in a folder of this machine."""

    remote = False

    def __init__(self, place: str | Path) -> None:
        self.place = path_of("path", place)
        self.name = str(self.place)

    @property
    def address(self) -> str:
        """Where others find it."""
        return str(self.place.absolute())

    def read(self, name: str) -> bytes:
        """A small file."""
        return (self.place / name).read_bytes()

    def settle(self, digest: str) -> None:
        """Which federation it is."""

    def path(self, name: str) -> Path:
        """Where a shard is, or will be."""
        return self.place / name

    def name_of(self, name: str) -> str:
        """A shard as it is told to users."""
        return str(self.place / name)

    def fetch(self, name: str, again: bool = False) -> Path:
        """Where a shard can be read; again: for what is there is damaged."""
        return self.path(name)


CACHE = "FEDASYM_SHARDS_GB"  # names how much of shards behind URLs is kept on this machine
CACHED = 10.0  # gigabytes of them, where nothing is said


class ShardCache(ShardFolder):
    """The files of a federation behind a URL; shards are copied here when they are read, and those
    that were not used for longest go where there is no more room.
    """

    remote = True

    def __init__(self, url: str) -> None:
        self.name = url.rstrip("/")
        self.system, self.root = open_store(url)
        self.root_here = cache_folder() / "shards"
        self.room = read_room() * 2**30
        self.lock = threading.Lock()

    @property
    def address(self) -> str:
        """The URL."""
        return self.name

    def read(self, name: str) -> bytes:
        """A small file."""
        with self.explain(name):
            found: bytes = self.system.cat_file(f"{self.root}/{name}")
            return found

    def settle(self, digest: str) -> None:
        """Copies are kept by what they are, whatever the URL."""
        self.place = self.root_here / digest[:32]

    def name_of(self, name: str) -> str:
        """Its URL."""
        return f"{self.name}/{name}"

    def fetch(self, name: str, again: bool = False) -> Path:
        """A copy, made where there is none."""
        path = self.path(name)
        with self.lock, self.explain(name):
            if again or not path.is_file():
                path.parent.mkdir(parents=True, exist_ok=True)
                with replace_file(path) as fresh:
                    self.system.get_file(f"{self.root}/{name}", str(fresh))
                self.make_room(path)
            os.utime(path)
        return path

    def make_room(self, kept: Path) -> None:
        """Remove what was not used for longest, but for this one."""
        files = []
        for file in self.root_here.glob("*/*"):
            with suppress(OSError):  # others make room as well
                about = file.stat()
                files.append((about.st_mtime, about.st_size, file))
        held = sum(size for _, size, _ in files)
        for _, size, file in sorted(files):
            if held <= self.room:
                return
            if file != kept and not file.name.endswith(PART):
                file.unlink(missing_ok=True)
                held -= size

    @contextmanager
    def explain(self, name: str) -> Iterator[None]:
        """Say in a sentence what a file system says; each has errors of its own."""
        try:
            yield
        except Exception as reason:
            if isinstance(reason, OSError) and reason.errno == errno.ENOSPC:
                raise UnreadableFile(
                    f"{self.root_here} is full: make room, or set {CACHE} to fewer gigabytes than"
                    f" {self.room / 2**30:g}"
                ) from None
            what = " ".join(f"{type(reason).__name__}: {reason}".split()).rstrip(": ")
            raise UnreadableFile(
                f"{self.name_of(name)} cannot be read: {what}; check address and access"
            ) from None


def read_room() -> float:
    """Gigabytes of shards behind URLs that are kept on this machine."""
    told = os.environ.get(CACHE, str(CACHED))
    try:
        room = float(told)
    except ValueError:
        room = -1.0
    if not 0 <= room < np.inf:
        raise InvalidInput(f"{CACHE} is {told!r}: it must be a number of gigabytes")
    return room


def read_folder(files: ShardFolder) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the manifest says, and the columns of the index."""
    where = f"path is {files.name!r}"
    try:
        held = json.loads(files.read(MANIFEST).decode("utf-8"))
        index = files.read(INDEX)
    except (OSError, ValueError, RecursionError) as reason:
        raise UnreadableFile(
            f"{where}: this is no federation in shards: {reason}; name the folder that save(...,"
            " shards=...) or fedasym data shard wrote"
        ) from None
    if not isinstance(held, dict) or held.get("format") != FORMAT:
        raise UnreadableFile(
            f"{where}: {MANIFEST} is not of the format {FORMAT!r}: shard the federation again"
        )
    try:
        check_manifest(held)
    except (KeyError, TypeError, ValueError):
        raise UnreadableFile(f"{where}: {MANIFEST} is damaged: {AGAIN}") from None
    if hashlib.sha256(index).hexdigest() != held["index"]:
        raise UnreadableFile(
            f"{where}: {INDEX} is damaged, or of another federation than {MANIFEST}: {AGAIN}"
        )
    pl = import_package("polars", "a federation in shards")
    try:
        frame = pl.read_parquet(index)
        return held, {name: frame[name] for name in frame.columns}
    except pl.exceptions.PolarsError as reason:
        raise UnreadableFile(f"{where}: {INDEX} cannot be read: {reason}; {AGAIN}") from None


def check_manifest(held: Mapping[str, Any]) -> None:
    """A ValueError or its like where a field is missing or of another kind."""
    counts = [each[name] for each in held["shards"] for name in ("clients", "samples")]
    right = (
        all(type(each) is int and each > 0 for each in [*counts, *held["shape"]])
        and len(held["shape"]) in (1, 2)
        and np.dtype(held["dtype"]).kind == "f"
        and all(isinstance(held[name], str) for name in ("federation", "index"))
        and isinstance(held["classes"], list | None)
        and all(Path(each["file"]).name == each["file"] for each in held["shards"])
        and bool(held["shards"])
        and isinstance(held.get("arrays", {}), dict)
    )
    for dtype, shape in held.get("arrays", {}).values():
        right &= np.dtype(dtype).kind in "fiub" and all(type(each) is int for each in shape)
    if not right:
        raise ValueError


def find_shards(files: ShardFolder, held: Mapping[str, Any]) -> tuple[Shard, ...]:
    """All shards; of those that are not here what the manifest says, or a shard that is here."""
    found: dict[int, Shard] = {}
    for number, told in enumerate(held["shards"]):
        if not files.remote and files.path(told["file"]).exists():
            found[number] = open_shard(files, held, number)
    layout = {
        name: (np.dtype(dtype), tuple(shape))
        for name, (dtype, shape) in held.get("arrays", {}).items()
    }
    if not layout:
        if not found:
            files.fetch(held["shards"][0]["file"])
        first = next(iter(found.values()), None) or open_shard(files, held, 0)
        layout = {name: (each.dtype, each.shape[1:]) for name, each in first.arrays.items()}

    def shard_from_manifest(number: int, told: Mapping[str, Any]) -> Shard:
        n = told["samples"]
        arrays = {name: StoredArray(each, (n, *rest), 0) for name, (each, rest) in layout.items()}
        place = files.path(told["file"])
        shard = Shard(place, told["clients"], n, arrays, files.name_of(told["file"]), opened=False)
        if not is_whole(shard, held, n * sum(each.row_bytes for each in arrays.values())):
            raise UnreadableFile(f"path is {files.name!r}: {MANIFEST} is damaged: {AGAIN}")
        return shard

    shards = enumerate(held["shards"])
    return tuple(found.get(number) or shard_from_manifest(number, told) for number, told in shards)


def open_shard(files: ShardFolder, held: Mapping[str, Any], number: int) -> Shard:
    """A shard whose header says that it is the one: of this federation, in this place, whole."""
    told = held["shards"][number]
    path, named = files.path(told["file"]), files.name_of(told["file"])
    try:
        found = read_table_header if path.suffix == ".parquet" else read_header
        about, arrays, size = found(path, held)
        mine, place = about["federation"], about["shard"]
    except OSError as reason:
        raise UnreadableFile(
            f"the shard {named} cannot be read: {reason.strerror or reason}; {AGAIN}"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        raise UnreadableFile(f"the shard {named} is damaged: it has no header; {AGAIN}") from None
    if mine != held["federation"]:
        raise UnreadableFile(f"the shard {named} is of another federation: {AGAIN}")
    if place != number:
        raise UnreadableFile(
            f"the shard {named} is number {place} of its federation and stands where number"
            f" {number} belongs: {AGAIN}"
        )
    shard = Shard(path, told["clients"], told["samples"], arrays, named)
    if not is_whole(shard, held, size):
        raise UnreadableFile(
            f"the shard {named} is damaged: its arrays are not those that {MANIFEST} tells of;"
            f" {AGAIN}"
        )
    return shard


def read_header(
    path: Path, held: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, StoredArray], int]:
    """What a safetensors shard says about itself, its arrays, and the bytes of the file."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length)) if length <= LONGEST else {}
        size = os.fstat(file.fileno()).st_size
    about = json.loads(header.pop("__metadata__")[KEY])
    arrays = {
        name: StoredArray(
            np.dtype(TYPES[each["dtype"]]),
            tuple(each["shape"]),
            8 + length + each["data_offsets"][0],
        )
        for name, each in header.items()
    }
    return about, arrays, size


def read_table_header(
    path: Path, held: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, StoredArray], int]:
    """The same of a Parquet shard, whose bytes are as many as its rows."""
    pl = import_package("polars", "a Parquet shard")
    try:
        with path.open("rb"):  # says what the system says
            about = json.loads(pl.read_parquet_metadata(path)[KEY])
        schema = pl.read_parquet_schema(path)
        rows = pl.scan_parquet(path).select(pl.len()).collect().item()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as reason:
        raise ValueError(str(reason)) from None
    arrays, size = {}, 0
    for name, kind in schema.items():
        inner: Any = kind
        shape: tuple[int, ...] = ()
        if isinstance(kind, pl.Array):
            inner, shape = kind.inner, kind.shape
            while isinstance(inner, pl.Array):
                inner = inner.inner
        dtype = pl.Series([], dtype=inner).to_numpy().dtype
        if name == "features":
            dtype = np.dtype(held["dtype"])  # half precision is kept wider
        if name == "labels" and held["classes"] is None and not shape:
            shape = (1,)
        arrays[name] = StoredArray(dtype, (rows, *shape), 0)
        size += rows * arrays[name].row_bytes
    return about, arrays, size


def is_whole(shard: Shard, held: Mapping[str, Any], size: int) -> bool:
    """Whether a shard's arrays are there, with the shapes that samples have."""
    n, shape, arrays = shard.samples, tuple(held["shape"]), shard.arrays
    classes = held["classes"] is not None
    labels = arrays.get("labels")
    if not {"features", "labels", "split"} <= arrays.keys() <= {*ARRAYS} or labels is None:
        return False
    wanted = {"features": (n, *shape), "split": (n,), "mask": (n, *shape[:-1])}
    wanted |= {"labels": (n, *shape[:-1]) if classes else labels.shape}
    kinds = {"features": "f", "split": "iu", "mask": "b", "labels": "iu" if classes else "f"}
    return all(
        array.shape == wanted[name]
        and array.shape[:1] == (n,)
        and all(type(each) is int for each in (array.offset, *array.shape))
        and array.dtype.kind in kinds[name]
        and 0 <= array.offset <= size - n * array.row_bytes
        for name, array in arrays.items()
    ) and (arrays["features"].dtype == np.dtype(held["dtype"]))


def read_run(
    shard: Shard, row: int, arrays: Mapping[str, NDArray[Any]], low: int, high: int
) -> None:
    """Read rows of a shard, from `row` on, into `low` to `high` of the arrays."""
    try:
        if shard.path.suffix == ".parquet":
            read_table_rows(shard.path, row, arrays, low, high)
            return
        descriptor = os.open(shard.path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        try:
            for name, array in arrays.items():
                held = shard.arrays[name]
                at = held.offset + row * held.row_bytes
                fill_buffer(descriptor, array[low:high].data.cast("B"), at)
        finally:
            os.close(descriptor)
    except (OSError, KeyError) as reason:
        told = getattr(reason, "strerror", None) or "it ends too early"
        raise UnreadableFile(f"the shard {shard.name} cannot be read: {told}; {AGAIN}") from None


def read_table_rows(
    path: Path, row: int, arrays: Mapping[str, NDArray[Any]], low: int, high: int
) -> None:
    """The same of a Parquet shard: of the row groups that hold them."""
    pl = import_package("polars", "a Parquet shard")
    try:
        frame = pl.scan_parquet(path).slice(row, high - low).select(list(arrays)).collect()
        for name, array in arrays.items():
            array[low:high] = frame[name].to_numpy().reshape(array[low:high].shape)
    except (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        reason = "it is damaged" if path.exists() else "No such file or directory"
        raise OSError(None, reason) from None


def fill_buffer(descriptor: int, buffer: memoryview, offset: int) -> None:
    """Read as many bytes as the buffer has."""
    while buffer:
        if hasattr(os, "preadv"):
            count = os.preadv(descriptor, [buffer], offset)
        else:  # Windows
            os.lseek(descriptor, offset, os.SEEK_SET)
            read = os.read(descriptor, len(buffer))
            count = len(read)
            buffer[:count] = read
        if count == 0:
            raise OSError("the file ends too early")
        buffer, offset = buffer[count:], offset + count


def client_checksums(
    arrays: Mapping[str, NDArray[Any]], filled: NDArray[np.intp]
) -> NDArray[np.uint32]:
    """CRC-32 of each client's bytes: features, labels, split and mask, as they lie on disk."""
    views = [
        (arrays[name].data.cast("B"), arrays[name][:1].nbytes) for name in ARRAYS if name in arrays
    ]
    sums = np.empty(len(filled) - 1, np.uint32)
    for place, (low, high) in enumerate(pairwise(filled.tolist())):
        total = 0
        for view, each in views:
            total = zlib.crc32(view[low * each : high * each], total)
        sums[place] = total
    return sums


class Alike(NamedTuple):
    """What all blocks of a federation have in common."""

    dtype: str
    shape: tuple[int, ...]
    classes: tuple[Any, ...] | None
    outputs: int
    padded: bool
    notes: str

    @classmethod
    def of(cls, block: Federation, padded: bool) -> Alike:
        """Of one block; `padded`: whether shards have a mask."""
        return cls(
            block.features.dtype.name,
            block.features.shape[1:],
            block.classes,
            block.outputs,
            padded,
            json.dumps(feature_notes(vars(block)), sort_keys=True),
        )


@dataclass
class ShardWriter:
    """Writes clients as they come, shard by shard, and holds no more than a shard.

    `add` takes federations; `finish` writes the index. `write_shards` puts both together.
    """

    folder: Path
    clients: int | None = None  # of a shard; None: by bytes
    layout: str = LAYOUTS[0]

    def __post_init__(self) -> None:
        self.identity = secrets.token_hex(16)
        self.alike: Alike | None = None
        self.waiting: list[Federation] = []
        self.held = 0  # bytes that wait
        self.frames: list[Any] = []
        self.identities: list[NDArray[np.uint64]] = []
        self.shards: list[dict[str, Any]] = []
        self.layout_of: dict[str, Any] = {}  # of a sample in each array

    def add(self, block: Federation) -> None:
        """The clients of a federation in memory, after those that came before."""
        if block.truth is not None:
            raise InvalidInput(
                "truth does not fit shards: save to a .safetensors file, or leave it out with"
                " dataclasses.replace"
            )
        if self.alike is None:
            self.alike = Alike.of(block, block.sequences and block.mask is not None)
        mine = Alike.of(block, self.alike.padded)
        if mine != self.alike or (block.mask is not None) > self.alike.padded:
            raise InvalidInput(
                f"clients from {block.clients[0]!r} on have other features, classes or notes than"
                " those before: give every block the same dtype, shape, classes, names and, for"
                " sequences with padding, a mask in the first block"
            )
        at = 0
        while at < len(block):
            room = len(block) if self.clients is None else self.clients - self.count_waiting()
            part = block.take(np.arange(at, min(at + room, len(block))))
            if self.clients is None and part.features.nbytes > SHARD_BYTES and len(part) > 1:
                each = part.features.nbytes / len(part)
                part = block.take(np.arange(at, at + max(int(SHARD_BYTES // each), 1)))
            self.waiting.append(part)
            self.held += part.features.nbytes
            at += len(part)
            if self.count_waiting() == self.clients or (
                self.clients is None and self.held >= SHARD_BYTES
            ):
                self.write()

    def count_waiting(self) -> int:
        """Clients that no shard has yet."""
        return sum(map(len, self.waiting))

    def write(self) -> None:
        """What waits, as a shard."""
        if not self.waiting:
            return
        assert self.alike is not None
        pl = import_package("polars", "a shard")
        parts, self.waiting, self.held = self.waiting, [], 0
        names = [name for part in parts for name in part.clients]
        arrays = {
            "features": np.concatenate([part.features for part in parts]),
            "labels": np.concatenate([part.labels for part in parts]),
            "split": np.concatenate([part.split for part in parts]),
        }
        if self.alike.classes is not None:
            arrays["labels"] = arrays["labels"].astype(label_type(len(self.alike.classes)))
        if self.alike.padded:
            arrays["mask"] = np.concatenate([mask_of(part) for part in parts])
        sizes = np.concatenate([part.sizes for part in parts])
        filled = np.concatenate([[0], np.cumsum(sizes)])
        columns = {
            split: np.concatenate([part.counts(split) for part in parts]) for split in SPLITS
        }
        if self.alike.padded:
            counted = np.concatenate([part.count_predictions(False) for part in parts])
            columns |= {f"{split}_positions": counted[:, at] for at, split in enumerate(SPLITS[1:])}
        number = len(self.shards)
        file = f"shard-{number:05d}.{self.layout}"
        about = json.dumps({"federation": self.identity, "shard": number})
        write = write_table if self.layout == "parquet" else write_tensors
        write(self.folder / file, arrays, {KEY: about})
        self.layout_of = {
            name: (array.dtype.newbyteorder("<").str, array.shape[1:])
            for name, array in arrays.items()
        }
        self.shards.append({"file": file, "clients": len(names), "samples": int(filled[-1])})
        self.identities.append(np.concatenate([part.identities for part in parts]))
        try:
            named = pl.Series(names, dtype=pl.String if isinstance(names[0], str) else pl.Int64)
        except (OverflowError, TypeError, pl.exceptions.PolarsError):
            raise InvalidInput(
                "a client's name is a whole number beyond 64 bits, or names are of two kinds: give"
                " all of them as text"
            ) from None
        self.frames.append(
            pl.DataFrame(
                {"client": named}
                | {name: pl.Series(column.astype(np.int32)) for name, column in columns.items()}
                | {"crc32": pl.Series(client_checksums(arrays, filled))}
                | {"squares": np.concatenate([part.training_squares() for part in parts])}
            )
        )

    def finish(self) -> None:
        """The last shard, the index, and last of all the manifest."""
        self.write()
        if self.alike is None:
            raise InvalidInput("there are no clients: give at least one block with a client")
        pl = import_package("polars", "a shard")
        every = np.concatenate(self.identities)
        if np.unique(every).size < every.size:
            raise InvalidInput(
                "a client comes in two blocks: give all samples of a client in one block"
            )
        try:
            pl.concat(self.frames).write_parquet(self.folder / INDEX)
        except pl.exceptions.PolarsError as reason:
            raise InvalidInput(f"names of clients are of two kinds: {reason}") from None
        flush_file(self.folder / INDEX)
        alike = self.alike
        held = {
            "format": FORMAT,
            "federation": self.identity,
            "index": hashlib.sha256((self.folder / INDEX).read_bytes()).hexdigest(),
            "dtype": alike.dtype,
            "shape": list(alike.shape),
            "classes": None if alike.classes is None else list(alike.classes),
            **json.loads(alike.notes),
            "arrays": self.layout_of,
            "shards": self.shards,
        }
        (self.folder / MANIFEST).write_text(json.dumps(held, indent=1), encoding="utf-8")
        flush_file(self.folder / MANIFEST)


def write_shards(
    blocks: Iterable[Federation],
    path: str | Path,
    *,
    clients: int | None = None,
    layout: str = "safetensors",
) -> Path:
    """Write clients to a folder of shards as they come, a block after the other; whole or not at
    all. No more than a shard is in memory, so that there may be more clients than memory holds.

    blocks: federations with the same features and classes, each client in one of them alone.
    path: a folder that does not exist yet, or is empty.
    clients: of a shard; by default as many as make 64 MB.
    layout: of shards, "safetensors", which is read fastest, or "parquet", for other tools.

    >>> import tempfile, numpy as np
    >>> def years():
    ...     for year in (2020, 2021):
    ...         names = [f"{name}, {year}" for name in "aabb"]
    ...         yield Federation.from_arrays(np.eye(4), [0, 1, 1, 0], clients=names, classes=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     len(Federation.open(write_shards(years(), folder + "/clients")))
    4
    """
    target = path_of("path", path)
    size = None if clients is None else whole("clients", clients, least=1)
    with refuse_unwritable("path", target), replace_folder(target) as fresh:
        writer = ShardWriter(fresh, size, one_of("layout", layout, LAYOUTS))
        for block in blocks:
            writer.add(block)
        writer.finish()
    return target


@contextmanager
def replace_folder(path: Path) -> Iterator[Path]:
    """A new folder beside this one, which takes its place when the block ends, and goes when it
    fails; this one must not be there, or be empty.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InvalidInput(f"path is {str(path)!r}: it is there already; name a new folder")
    if not path.parent.is_dir():
        raise InvalidInput(
            f"path is {str(path)!r}: the folder {str(path.parent)!r} does not exist; make it first"
        )
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}{PART}")
    try:
        fresh.mkdir()
        yield fresh
        flush(fresh)
        if path.is_dir():
            path.rmdir()
        os.replace(fresh, path)
        flush(path.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def write_tensors(path: Path, arrays: Mapping[str, NDArray[Any]], notes: Mapping[str, str]) -> None:
    """A safetensors file, written without a copy: the length of a header, the header, bytes."""
    named = {np.dtype(text): name for name, text in TYPES.items()}
    header: dict[str, Any] = {"__metadata__": dict(notes)}
    end = 0
    for name, array in arrays.items():
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": named[array.dtype], "shape": array.shape}
        header[name]["data_offsets"] = [begin, end]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            file.write(array.data.cast("B"))
        file.flush()
        os.fsync(file.fileno())


def write_table(path: Path, arrays: Mapping[str, NDArray[Any]], notes: Mapping[str, str]) -> None:
    """A Parquet file with a row per sample, in row groups that are small enough to read a few."""
    pl = import_package("polars", "a Parquet shard")
    wide = {  # few tools read half precision
        name: array.astype(np.float32) if array.dtype == np.float16 else array
        for name, array in arrays.items()
    }
    rows = max(GROUP_BYTES // max(arrays["features"][:1].nbytes, 1), 1)
    frame = pl.DataFrame({name: pl.Series(array) for name, array in wide.items()})
    try:
        frame.write_parquet(path, metadata=dict(notes), row_group_size=rows)
    except pl.exceptions.PolarsError as reason:
        raise OSError(str(reason)) from None
    flush_file(path)


def flush_file(path: Path) -> None:
    """Wait until a file is on the disk: a full one is noticed here."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def label_type(classes: int) -> type[np.integer[Any]]:
    """The shortest whole numbers that hold the codes of so many classes."""
    return np.uint8 if classes <= 2**8 else np.uint16 if classes <= 2**16 else np.int32


def mask_of(block: Federation) -> NDArray[np.bool_]:
    """True for real positions; all of them where nothing is padding."""
    return np.ones(block.labels.shape[:2], bool) if block.mask is None else np.asarray(block.mask)


def is_sharded(path: str | Path) -> bool:
    """Whether a folder is a federation in shards, as everything behind a URL must be."""
    return is_url(path) or (Path(path).is_dir() and (Path(path) / MANIFEST).is_file())
