"""Federations to train on: drawn from worlds whose parameters are known, and real data sets by
name: what each is, where its files are, how they come there, and the counts that the paper states.

`fetch` downloads the files of a public data set once, checks and unpacks them, or takes them from
where they are. Killed at any moment it leaves nothing that is taken for whole, and the next call
goes on from there; two processes that want the same data download it once.

>>> import fedasym as fa
>>> federation = fa.datasets.synthetic(clients=3, dimension=8, seed=1)
>>> federation.truth["heads"].shape
(3, 8)
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from fedasym.core.errors import InvalidInput, find_entry
from fedasym.core.runtime import Progress, cache_folder, hold_lock, progress_portion, progress_shown
from fedasym.data.archives import (
    ADDRESS,
    ARCHIVES,
    UNPACKING,
    Archive,
    RefusedArchive,
    Tell,
    check_hash,
    download,
    has_unmarked_files,
    is_complete,
    unpack,
    write_marker,
)

if TYPE_CHECKING:
    from fedasym.data.federation import Federation
    from fedasym.data.formats import read
    from fedasym.data.partitioners import partition
    from fedasym.data.shard_files import write_shards
    from fedasym.data.splits import duplicates
    from fedasym.data.synthesis import synthetic

# The module has another name than its function: a submodule, once imported, would stand in the
# function's place.
_HOME = {
    "duplicates": "fedasym.data.splits",
    "partition": "fedasym.data.partitioners",
    "read": "fedasym.data.formats",
    "synthetic": "fedasym.data.synthesis",
    "write_shards": "fedasym.data.shard_files",
}

__all__ = ["duplicates", "fetch", "load", "partition", "read", "synthetic", "write_shards"]


def __getattr__(name: str) -> object:
    """Import a public name where it lives, on first use."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(
        f"module 'fedasym.data' has no attribute {name!r}; it has {', '.join(sorted(__all__))}"
    )


def __dir__() -> list[str]:
    return sorted(__all__)


LOCK = ".lock"


DOWNLOADING = 0.8  # the share of the work that is downloading; the rest is unpacking


def data_folder() -> Path:
    """Where data sets are kept: `FEDASYM_DATA` if it is set, else `data` in the cache folder.

    >>> import os
    >>> from unittest.mock import patch
    >>> from fedasym.data import data_folder
    >>> with patch.dict(os.environ, FEDASYM_DATA="here"):
    ...     print(data_folder())
    here
    """
    named = os.environ.get("FEDASYM_DATA")
    return Path(named).expanduser() if named else cache_folder() / "data"


def fetch(
    name: str,
    *,
    source: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Path:
    """The folder with the files of a data set, which are downloaded and unpacked if need be.

    Args:
        name: emnist, cifar100, shakespeare or stackoverflow.
        source: what you have already: a folder with the unpacked files (used where they are), a
            folder with the archives or an archive (checked and unpacked into the data folder), or
            the http(s) address of a mirror.
        progress: called with the share that is done and a few words; the first say what is
            downloaded and how large it is.
        folder: the data folder, `data_folder()` unless given; the files are in its subfolder
            `name`.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from fedasym.data import fetch
    >>> with tempfile.TemporaryDirectory() as mine:
    ...     for part in ("train", "test"):
    ...         size = (Path(mine) / f"shakespeare_{part}.h5").write_bytes(
    ...             bytes.fromhex("894844460d0a1a0a")
    ...         )
    ...     fetch("shakespeare", source=mine) == Path(mine)
    True
    """
    archives = find_entry("data set", name, ARCHIVES)
    address = ADDRESS
    mine = dict[str, Path]()
    if source is not None and "://" in str(source):
        address = mirror_address(str(source), archives)
    elif source is not None:
        found = find_own_files(Path(source).expanduser(), name, archives)
        if isinstance(found, Path):
            return found
        mine = found
    home = (data_folder() if folder is None else Path(folder).expanduser()) / name
    if all(is_complete(archive, home) for archive in archives):
        return home
    offer = (
        "give source= a folder or archive that you have"
        f" ({', '.join(archive.file for archive in archives)}), or set FEDASYM_DATA to a folder"
        f" whose subfolder {name} has the unpacked files"
    )
    progress = progress_shown(progress)
    tell = rising_progress(progress)
    try:
        home.mkdir(parents=True, exist_ok=True)
        with hold_lock(
            home / LOCK, lambda: tell(0.0, f"waiting for another process that is fetching {name}")
        ):
            for left in home.glob(
                f"{UNPACKING}*"
            ):  # by a process that was killed: nobody else is here
                shutil.rmtree(left, ignore_errors=True)
            for place, archive in enumerate(archives):
                if not is_complete(
                    archive, home
                ):  # another process may have brought it while this one waited
                    bring_archive(
                        archive,
                        mine,
                        address,
                        home,
                        progress_portion(tell, place, len(archives)),
                        offer,
                    )
    except OSError as reason:
        raise InvalidInput(
            f"the data folder {str(home)!r} cannot be used: {reason.strerror or reason}; set"
            " FEDASYM_DATA to a folder that can be written, or give folder="
        ) from None
    tell(1.0, "done")
    return home


def bring_archive(
    archive: Archive, mine: Mapping[str, Path], address: str, home: Path, tell: Tell, offer: str
) -> None:
    """One archive, from the user's file or the network, unpacked and recorded in `home`."""
    path = mine.get(archive.file)
    part = home / f"{archive.file}.part"
    if path is not None:
        check_hash(archive, path, progress_portion(tell, 0, 1, DOWNLOADING))
    else:
        url = (
            address
            if urlsplit(address).path.endswith(f"/{archive.file}")
            else f"{address.rstrip('/')}/{archive.file}"
        )
        download(archive, url, part, progress_portion(tell, 0, 1, DOWNLOADING), offer)
    unpacking = f"{archive.file}: unpacking"
    tell(DOWNLOADING, unpacking)
    try:
        sizes = unpack(
            archive,
            path or part,
            home,
            lambda share: tell(DOWNLOADING + (1 - DOWNLOADING) * share, unpacking),
        )
    except RefusedArchive:
        part.unlink(missing_ok=True)
        raise
    write_marker(archive, home, sizes)
    part.unlink(missing_ok=True)


def mirror_address(source: str, archives: tuple[Archive, ...]) -> str:
    """The address of a mirror, at the door: of a folder of archives, or of the one archive."""
    if not source.startswith(("http://", "https://")):
        raise InvalidInput(
            f"source is {source!r}: an address must begin with https:// or http://; for a file give"
            " its path"
        )
    if len(archives) > 1 and source.endswith(tuple(f"/{archive.file}" for archive in archives)):
        return source.rsplit("/", 1)[0]  # the others are beside it
    return source


def find_own_files(
    source: Path, name: str, archives: tuple[Archive, ...]
) -> Path | dict[str, Path]:
    """What the user has: the folder of the unpacked files, or the archives by file name."""
    if not source.exists():
        raise InvalidInput(
            f"source is {str(source)!r}: there is no such file or folder; check the name"
        )
    names = [file for archive in archives for file in archive.inside]
    if source.is_file() and len(archives) == 1 and source.name not in names:
        return {archives[0].file: source}  # under whatever name: its hash tells
    folders = [source, source / name] if source.is_dir() else [source.parent]
    for folder in folders:
        if all(has_unmarked_files(archive, folder) for archive in archives):
            return folder
    for folder in folders:
        if all((folder / archive.file).is_file() for archive in archives):
            return {archive.file: folder / archive.file for archive in archives}
    raise InvalidInput(
        f"source is {str(source)!r}: {name} is {' and '.join(names)} (HDF5 where they end in .h5),"
        f" or packed {' and '.join(archive.file for archive in archives)}, and they are not all"
        " there; name the folder that has them"
    )


def rising_progress(progress: Progress | None) -> Tell:
    """Progress that never goes back, also when a download begins again."""
    highest = 0.0

    def tell(share: float, text: str) -> None:
        nonlocal highest
        highest = max(highest, min(share, 1.0))
        if progress is not None:
            progress(highest, text)

    return tell


class PaperCounts(NamedTuple):
    """A row of the paper's table of data sets."""

    clients: int
    dimension: int  # of the model that is trained: features of the network by classes
    train: int
    validation: int
    test: int


@dataclass(frozen=True)
class Dataset:
    """One data set: its loader is `load_<name>` in one of the modules of this folder."""

    name: str
    loaders: str  # the module
    what: str
    folders: tuple[str, ...]  # names of its folder within the data folder
    paper: PaperCounts | None = None  # as the paper states them

    @property
    def downloadable(self) -> bool:
        """Whether `fetch` can download it."""
        return self.name in ARCHIVES

    def folder(self) -> Path | None:
        """Where its files are, if they are there."""
        places = [data_folder() / name for name in self.folders]
        present = [place for place in places if place.is_dir() and any(place.iterdir())]
        archives = ARCHIVES.get(self.name, ())
        unpacked = [
            place
            for place in present
            if archives and all(is_complete(archive, place) for archive in archives)
        ]
        return next(iter(unpacked or present), None)


CATALOGUE = {
    entry.name: entry
    for entry in (
        Dataset(
            "emnist",
            "images",
            "characters by writer, 62 classes",
            ("emnist",),
            PaperCounts(3400, 31744, 595523, 76062, 77483),
        ),
        Dataset(
            "cifar100",
            "images",
            "images, 100 classes, 600 clients of 100",
            ("cifar100",),
            PaperCounts(600, 51200, 48000, 6000, 6000),
        ),
        Dataset(
            "shakespeare",
            "texts",
            "next character, by role",
            ("shakespeare",),
            PaperCounts(669, 23040, 33244, 4494, 5288),
        ),
        Dataset(
            "stackoverflow",
            "texts",
            "next word, by user, 300 users",
            ("stackoverflow",),
            PaperCounts(300, 960384, 155702, 19341, 19736),
        ),
        Dataset(
            "digits",
            "images",
            "digits by writer; stands in for emnist",
            ("digits", "digits_by_writer"),
        ),
        Dataset(
            "stackexchange",
            "texts",
            "next word, by user; stands in for stackoverflow",
            ("stackexchange",),
        ),
    )
}


def find_dataset(name: str) -> Dataset:
    """The data set of that name."""
    return find_entry("data set", name, CATALOGUE)


def load(
    name: str, *, folder: str | Path | None = None, seed: int = 0, **options: Any
) -> Federation:
    """The raw samples of a data set by client, split for training, validation and test.

    folder: where its files are; by default its folder in `FEDASYM_DATA`, or in the cache that
        `fedasym data fetch` fills.
    seed: of the split, within each client. options: those of the data set's own module, such as
        `users` of stackoverflow.

    >>> import fedasym as fa
    >>> fa.datasets.load("emnst")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: unknown data set 'emnst': did you mean emnist? choose from emnist, ...
    """
    entry = find_dataset(name)
    place = entry.folder() if folder is None else Path(folder)
    if place is None:
        way = (
            f"run fedasym data fetch {name}, "
            if entry.downloadable
            else "get its files, see docs/how-to/datasets.md, "
        )
        raise InvalidInput(
            f"{name} is not in {data_folder()}: {way}or give the folder that has its files"
        )
    loaded: Federation = getattr(import_module(f"fedasym.data.{entry.loaders}"), f"load_{name}")(
        place, seed=seed, **options
    )
    return loaded
