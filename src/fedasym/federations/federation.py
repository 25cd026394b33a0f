"""Client data, the input of every training run: the samples of all clients, checked at the door, split and in one order."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.errors import InvalidInput, listed, unknown
from fedasym.federations import files
from fedasym.federations.frames import read_frame
from fedasym.federations.parts import collected
from fedasym.federations.samples import checked_fields, gathered, identities_of
from fedasym.federations.splits import FRACTIONS, TRAIN, Fractions, code_of, reassigned
from fedasym.federations.summary import records, summarised
from fedasym.federations.targets import merged
from fedasym.numeric import whole
from fedasym.risk import preformatted


class Samples(NamedTuple):
    """One client's part of a federation: read-only views, rows in the given order."""

    features: NDArray[np.floating]
    labels: NDArray[Any]
    split: NDArray[np.int8]


@dataclass(frozen=True, eq=False, repr=False)
class Federation:
    """The samples of all clients, from `from_arrays`, `from_clients`, `from_frame`, `from_parquet` or `from_safetensors`.

    A client's rows are contiguous, clients stand in order of first appearance, and a client's rows in the given order.
    features: (samples, d), or (samples, positions, d) for sequences; floating point as it was given, whole numbers as float32.
    labels: class codes 0, 1, ... as int64, (samples,) or (samples, positions); in regression float64 with the outputs last.
    clients: names, all strings or all whole numbers; one without training samples is never drawn and uses the shared model.
    owner: each sample's position in `clients`, ascending.
    split: 0 for training, 1 for validation, 2 for test.
    mask: (samples, positions), True for real and False for padding; None where there is no padding.
    classes: the names of the classes in the order of their codes; None in regression.
    truth: the parameters that generated the data, where it is synthetic.
    names: the features' names; None where they have none.
    personal: which features' weights may differ between clients; None where all may. The others serve the shared model only.
    intercept: whether models of these data have an intercept, shared and personal, unless a verb is told otherwise.

    >>> import numpy as np
    >>> features, labels = np.eye(6, 2), ["cat", "dog", "cat", "dog", "dog", "cat"]
    >>> Federation.from_arrays(features, labels, clients=["ann", "bob", "ann", "bob", "ann", "bob"])
    Federation: 2 clients · classification · 2 features · 2 classes
    samples: 6, a client has 3 to 3, median 3
    split: train 2, validation 2, test 2
    """

    features: NDArray[np.floating]
    labels: NDArray[Any]
    clients: tuple[Any, ...]
    owner: NDArray[np.intp]
    split: NDArray[np.int8]
    mask: NDArray[np.bool_] | None
    classes: tuple[Any, ...] | None
    truth: Mapping[str, NDArray[Any]] | None = None
    names: tuple[str, ...] | None = None
    personal: NDArray[np.bool_] | None = None
    intercept: bool = True

    def __post_init__(self) -> None:
        for name, value in checked_fields(vars(self)).items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_arrays(
        cls,
        features: ArrayLike,
        labels: ArrayLike,
        clients: Iterable[Any],
        *,
        split: Any = FRACTIONS,
        seed: int = 0,
        mask: ArrayLike | None = None,
        classes: int | Sequence[Any] | None = None,
        task: str | None = None,
        names: Sequence[str] | None = None,
        personal: ArrayLike | None = None,
        intercept: bool = True,
    ) -> Federation:
        """A federation from one row per sample and the name of each row's client.

        features: (samples, d) or (samples, positions, d); not copied where the rows stand client by client already.
        labels: whole numbers, booleans or strings are classes, floating-point numbers are outputs of a regression (one, or
            several in a last axis); `task` says otherwise. Sequences have one label per position.
        split: fractions of training, validation and test, dealt out within each client by `seed`; or one value per sample:
            "train", "validation", "test" or 0, 1, 2.
        mask: for sequences, True where a position is real. Padding may hold anything; what is no number or class becomes 0.
        classes: how many there are (labels are 0, 1, ...) or their names. Without it, the labels that occur, sorted.
        names: of the features, for messages, tables and pages.
        personal: True for each feature whose weight may differ between clients; by default all may.
        intercept: whether models of these data have one.

        >>> features, labels = [[0.5], [1.0], [2.0]], [1.0, 2.0, 4.0]
        >>> federation = Federation.from_arrays(features, labels, clients=[7, 8, 7], split=["train", "test", "train"])
        >>> federation.task, federation.clients, federation.counts("train").tolist()
        ('regression', (7, 8), [2, 0])
        """
        fields = gathered(features, labels, clients, split, seed, mask, classes, task)
        told = None if names is None else tuple(listed("names", names, "give one text per feature"))
        fields |= {"names": told, "personal": personal, "intercept": intercept}
        return cls(**fields)

    @classmethod
    def from_clients(cls, parts: Iterable[tuple[Any, Any, Any]], **options: Any) -> Federation:
        """A federation from (client, features, labels), each a client's samples, a batch of them, or one sample with one label.

        The same client may come many times. Anything that numpy.asarray takes will do, PyTorch tensors included. The keywords
        are those of `from_arrays`; one value per sample, in `split` and `mask`, goes by the order of arrival.

        >>> loaders = {"ann": [([0.0, 1.0], 0), ([1.0, 0.0], 1)], "bob": [([1.0, 1.0], 1)]}
        >>> len(Federation.from_clients((name, x, y) for name, samples in loaders.items() for x, y in samples))
        2
        """
        return cls.from_arrays(*collected(parts), **options)

    @classmethod
    def from_frame(
        cls, frame: Any, *, label: Any, client: Any, features: Any = None, split: Any = None, mask: Any = None, **options: Any
    ) -> Federation:
        """A federation from a polars or pandas frame with one row per sample (a LazyFrame is collected).

        label, client: columns; several label columns are the outputs of a regression.
        features: a list of columns, or one column of lists. Without it, all other columns of numbers, or else the only
            column of lists; text, dates and booleans are left out.
        split, mask: columns, or what `from_arrays` takes, whose keywords seed, classes and task are the others.

        >>> import pandas as pd
        >>> frame = pd.DataFrame({"school": ["a", "a", "b"], "hours": [1.0, 2.0, 3.0], "score": [0.1, 0.4, 0.9]})
        >>> Federation.from_frame(frame, label="score", client="school").dimension
        1
        """
        return cls.from_arrays(**read_frame(frame, label, client, features, split, mask), **options)

    @classmethod
    def from_parquet(cls, path: str | Path, *, label: Any = "label", client: Any = "client", **options: Any) -> Federation:
        """A federation from a Parquet file: one that `save` wrote comes back as it was, any other is read as by `from_frame`.

        The keywords are those of `from_frame`, and make a saved file a plain table; columns "split" and "mask" need no naming.

        >>> import tempfile, numpy as np
        >>> federation = Federation.from_arrays(np.eye(4), [0, 1, 1, 0], clients=list("aabb"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Federation.from_parquet(federation.save(folder + "/data.parquet")).clients
        ('a', 'b')
        """
        options = {name: value for name, value in options.items() if value is not None}
        as_saved = (label, client) == ("label", "client") and options.keys() <= {"seed"}
        frame, fields = files.read_parquet(Path(path), as_saved)
        if fields is not None:
            return cls(**fields)
        options = {name: name for name in ("split", "mask") if name in frame.columns} | options
        try:
            return cls.from_frame(frame, label=label, client=client, **options)
        except InvalidInput as reason:
            raise InvalidInput(f"path is {str(path)!r}: {reason}") from None

    @classmethod
    def from_safetensors(cls, path: str | Path) -> Federation:
        """The federation that `save` wrote to a .safetensors file, as it was.

        >>> import tempfile, numpy as np
        >>> federation = Federation.from_arrays(np.eye(4), [0, 1, 1, 0], clients=[10, 10, 20, 20])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Federation.from_safetensors(federation.save(folder + "/data.safetensors")).clients
        (10, 20)
        """
        return cls(**files.read_safetensors(Path(path)))

    def save(self, path: str | Path) -> Path:
        """Write to a .safetensors or .parquet file, whole or not at all; returns where it is."""
        return files.write(vars(self), Path(path))

    @property
    def task(self) -> str:
        """Either "classification" or "regression"."""
        return "regression" if self.classes is None else "classification"

    @property
    def dimension(self) -> int:
        """d, the number of features."""
        return int(self.features.shape[-1])

    @property
    def outputs(self) -> int:
        """The number of classes, or of a regression's outputs."""
        return int(self.labels.shape[-1]) if self.classes is None else len(self.classes)

    @property
    def sequences(self) -> bool:
        """Whether a sample is a sequence of positions."""
        return self.features.ndim == 3

    @cached_property
    def identities(self) -> NDArray[np.uint64]:
        """64 bits per client from its name alone: what its random numbers are keyed by."""
        return identities_of(self.clients)

    @cached_property
    def starts(self) -> NDArray[np.intp]:
        """Where each client's rows start, and the number of samples last."""
        return np.searchsorted(self.owner, np.arange(len(self.clients) + 1))

    @cached_property
    def _position(self) -> dict[Any, int]:
        return {name: position for position, name in enumerate(self.clients)}

    def counts(self, split: str) -> NDArray[np.intp]:
        """How many samples of a split each client has."""
        return np.bincount(self.owner[self.split == code_of(split)], minlength=len(self.clients))

    def rows(self, client: Any, split: str | None = None) -> NDArray[np.intp]:
        """The rows of one client, all or those of a split."""
        mine = self._position.get(client) if isinstance(client, Hashable) else None
        if mine is None:
            known = [str(name) for name in self.clients]
            raise unknown("client", client, known if len(known) <= 20 else [*known[:20], f"{len(known) - 20} more"])
        rows = np.arange(self.starts[mine], self.starts[mine + 1])
        return rows if split is None else rows[self.split[rows] == code_of(split)]

    def client(self, name: Any) -> Samples:
        """One client's samples.

        >>> import numpy as np
        >>> federation = Federation.from_arrays(np.eye(3), [0, 1, 1], clients=["ann", "bob", "ann"])
        >>> federation.client("ann").labels.tolist()
        [0, 1]
        """
        rows = self.rows(name)
        mine = slice(rows[0], rows[-1] + 1)
        return Samples(self.features[mine], self.labels[mine], self.split[mine])

    def resplit(self, seed: int, keep_test: bool = True, fractions: Fractions | None = FRACTIONS) -> Federation:
        """The same samples with training and validation (and, unless `keep_test`, test) dealt out anew within each client.

        A kept test set of the size that `fractions` give leaves the other counts as they give them; beside one of another size,
        training and validation share the rest in proportion. `fractions=None` keeps each client's counts as they are.

        >>> import numpy as np
        >>> federation = Federation.from_arrays(np.eye(20), np.arange(20) % 2, clients=[1] * 20)
        >>> bool(np.all((federation.resplit(seed=1).split == 2) == (federation.split == 2)))
        True
        """
        return replace(self, split=reassigned(self.split, self.owner, self.identities, seed, fractions, keep_test))

    def merge_rare(self, classes: int) -> Federation:
        """The same samples in at most so many classes: the commonest of the training samples, and one of all others.

        The predictions for classes and the advisor take up to 200.

        >>> import numpy as np
        >>> words = Federation.from_arrays(np.eye(5), ["the", "owl", "the", "cat", "the"], clients=[1] * 5, split=["train"] * 5)
        >>> words.merge_rare(2).classes
        ('the', 'other')
        """
        if self.classes is None:
            raise InvalidInput("the labels are numbers: only classes can be merged")
        most = whole("classes", classes, least=2)
        if len(self.classes) <= most:
            return self
        counted = self.split == TRAIN if self.mask is None else self.mask & (self.split == TRAIN)[:, None]
        codes, names = merged(self.labels, self.classes, self.labels[counted].ravel(), most)
        return replace(self, labels=codes, classes=names, truth=None)

    def table(self) -> list[dict[str, Any]]:
        """One record per client: feed it to any data frame."""
        return records(self)

    def __len__(self) -> int:
        return len(self.clients)

    def __repr__(self) -> str:
        return summarised(self)

    def _repr_html_(self) -> str:
        return preformatted(self)
