"""The data sets by name: what each is, where its files are looked for, and the counts that the paper states."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedasym.core.errors import InvalidInput, known
from fedasym.data.sets.archives import ARCHIVES, complete
from fedasym.data.sets.fetching import data_folder

if TYPE_CHECKING:
    from fedasym.data.federation.federation import Federation


class Counts(NamedTuple):
    """A row of the paper's table of data sets."""

    clients: int
    dimension: int  # of the model that is trained: features of the network by classes
    train: int
    validation: int
    test: int


@dataclass(frozen=True)
class Dataset:
    """One data set: its loader is the module of its name."""

    name: str
    what: str
    folders: tuple[str, ...]  # names of its folder within the data folder
    paper: Counts | None = None  # as the paper states them

    @property
    def fetched(self) -> bool:
        """Whether `fetch` can download it."""
        return self.name in ARCHIVES

    def folder(self) -> Path | None:
        """Where its files are, if they are there."""
        places = [data_folder() / name for name in self.folders]
        present = [place for place in places if place.is_dir() and any(place.iterdir())]
        archives = ARCHIVES.get(self.name, ())
        unpacked = [place for place in present if archives and all(complete(archive, place) for archive in archives)]
        return next(iter(unpacked or present), None)


CATALOGUE = {
    entry.name: entry
    for entry in (
        Dataset("emnist", "characters by writer, 62 classes", ("emnist",), Counts(3400, 31744, 595523, 76062, 77483)),
        Dataset("cifar100", "images, 100 classes, 600 clients of 100", ("cifar100",), Counts(600, 51200, 48000, 6000, 6000)),
        Dataset("shakespeare", "next character, by role", ("shakespeare",), Counts(669, 23040, 33244, 4494, 5288)),
        Dataset(
            "stackoverflow", "next word, by user, 300 users", ("stackoverflow",), Counts(300, 960384, 155702, 19341, 19736)
        ),
        Dataset("digits", "digits by writer; stands in for emnist", ("digits", "digits_by_writer")),
        Dataset("stackexchange", "next word, by user; stands in for stackoverflow", ("stackexchange",)),
    )
}


def find(name: str) -> Dataset:
    """The data set of that name."""
    return known("data set", name, CATALOGUE)


def load(name: str, *, folder: str | Path | None = None, seed: int = 0, **options: Any) -> Federation:
    """The raw samples of a data set by client, split for training, validation and test.

    folder: where its files are; by default its folder in `FEDASYM_DATA`, or in the cache that `fedasym data fetch` fills.
    seed: of the split, within each client. options: those of the data set's own module, such as `users` of stackoverflow.

    >>> import fedasym as fa
    >>> fa.datasets.load("emnst")
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: unknown data set 'emnst': did you mean emnist? known are emnist, cifar100, shakespeare, stackoverflow, digits, stackexchange
    """  # noqa: E501
    entry = find(name)
    place = entry.folder() if folder is None else Path(folder)
    if place is None:
        way = f"run fedasym data fetch {name}, " if entry.fetched else "get its files, see docs/how-to/datasets.md, "
        raise InvalidInput(f"{name} is not in {data_folder()}: {way}or give the folder that has its files")
    loaded: Federation = import_module(f"fedasym.data.sets.{name}").load(place, seed=seed, **options)
    return loaded
