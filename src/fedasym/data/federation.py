"""Client data, the input of training: all clients' samples, checked, split and in one order.

They come as arrays, as frames, from files, or part by part as from data loaders: a client's samples
at once, in batches or one by one. A federation tells of itself in a few lines, and in one record
per client.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.core.errors import InvalidInput, NoFormula, read_list, unknown_name
from fedasym.core.numbers import notebook_text, plural, whole
from fedasym.core.runtime import write_file
from fedasym.data import files
from fedasym.data.fields import read_table
from fedasym.data.frames import check_names, has_lists, is_nested_column, open_frame, read_frame
from fedasym.data.recipe import Recipe
from fedasym.data.samples import (
    check_federation_fields,
    gather_fields,
    identities_of,
    is_text_array,
    merge_rare_classes,
    read_features,
    read_label_array,
    read_only,
)
from fedasym.data.splits import FRACTIONS, SPLITS, TRAIN, Fractions, code_of, reassign_splits
from fedasym.exact.clients import Client, append_ones, check_rows


def collect_parts(parts: Iterable[Any]) -> tuple[NDArray[Any], NDArray[Any], list[Any]]:
    """Features, labels and names by row, from (client, features, labels) of a sample or a batch.

    >>> features, labels, names = collect_parts(
    ...     [("ann", [[1.0, 2.0], [3.0, 4.0]], [0, 1]), ("bob", [5.0, 6.0], 1)]
    ... )
    >>> features.shape, labels.tolist(), names
    ((3, 2), [0, 1, 1], ['ann', 'ann', 'bob'])
    """
    if not isinstance(parts, Iterable):
        raise InvalidInput(
            f"the clients are {parts!r}: give an iterable of (client, features, labels)"
        )
    features: list[NDArray[Any]] = []
    labels: list[NDArray[Any]] = []
    names: list[Any] = []
    for number, part in enumerate(parts):
        try:
            name, x, y = part
        except (TypeError, ValueError):
            raise InvalidInput(
                f"part {number} is not (client, features, labels): give these three for each client"
            ) from None
        who = f"client {name!r} (part {number})"
        rows, values = read_client_batch(who, x, y)
        if features and rows.shape[1:] != features[0].shape[1:]:
            raise InvalidInput(
                f"{who} has samples of shape {rows.shape[1:]} while those of the first part have"
                f" {features[0].shape[1:]}: give every client the same features; pad sequences to"
                " one length and mark the padding with mask"
            )
        if labels and (
            values.shape[1:] != labels[0].shape[1:]
            or is_text_array(values) != is_text_array(labels[0])
        ):
            raise InvalidInput(
                f"{who} has labels of shape {values.shape[1:]} and type {values.dtype.name} while"
                f" those of the first part have {labels[0].shape[1:]} and {labels[0].dtype.name}:"
                " give every client the same kind of labels"
            )
        features.append(rows)
        labels.append(values)
        names += [name] * len(rows)
    if not names:
        raise InvalidInput("there are no samples: give at least one (client, features, labels)")
    return np.concatenate(features), np.concatenate(labels), names


def read_client_batch(who: str, x: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """One part's features and labels along a first axis of samples; a single axis is one sample."""
    try:
        rows = read_features(x)
        values = read_label_array(y)
    except InvalidInput as reason:
        raise reason.at(who) from None
    if values.ndim == 0 and rows.ndim > 1 and len(rows) == 1:
        values = values[None]
    if rows.ndim == 1:
        if values.size != 1:
            raise InvalidInput(
                f"{who}: features have shape {rows.shape}, one sample, and labels {values.shape}:"
                " give one label; or features of shape (samples, features), also where there is"
                " one feature or one sample"
            )
        rows = rows[None]
        values = values.reshape(1)
    if rows.ndim == 0 or values.ndim == 0 or len(rows) != len(values):
        raise InvalidInput(
            f"{who}: features have shape {rows.shape} and labels {values.shape}: give one label per"
            " sample"
        )
    if rows.size == 0:
        raise InvalidInput(
            f"{who}: features have shape {rows.shape}: leave out clients without samples or"
            " features"
        )
    return rows, values


def summarise_federation(federation: Federation) -> str:
    """Clients, task, sizes and split, and who has nothing to train on."""
    sizes = federation.sizes
    about = [plural(len(federation), "client"), federation.task]
    if federation.sequences:
        about.append(f"sequences of {plural(federation.positions, 'position')}")
    about += [
        plural(federation.dimension, "feature"),
        plural(federation.outputs, "output" if federation.classes is None else "class"),
    ]
    totals = ", ".join(f"{split} {federation.counts(split).sum()}" for split in SPLITS)
    lines = [
        f"Federation: {' · '.join(about)}",
        (
            f"samples: {sizes.sum()}, a client has {sizes.min()} to {sizes.max()}, median"
            f" {np.median(sizes):g}"
        ),
        f"split: {totals}",
    ]
    if federation.padded:
        lines.append(federation.describe_padding())
    idle = int(np.count_nonzero(federation.counts("train") == 0))
    if idle:
        lines.append(
            f"{plural(idle, 'client')} without training samples: never drawn, served by the shared"
            " model"
        )
    return "\n".join(lines)


def client_records(federation: Federation) -> list[dict[str, Any]]:
    """Each client's name and number of samples, in all and by split."""
    counts = {"samples": federation.sizes, **{split: federation.counts(split) for split in SPLITS}}
    lists = {name: count.tolist() for name, count in counts.items()}
    return [
        {"client": name, **{key: lists[key][i] for key in lists}}
        for i, name in enumerate(federation.clients)
    ]


class Samples(NamedTuple):
    """One client's part of a federation: read-only views, rows in the given order."""

    features: NDArray[np.floating]
    labels: NDArray[Any]
    split: NDArray[np.int8]


@dataclass(frozen=True, eq=False, repr=False)
class Federation:
    """The samples of all clients, made by `from_arrays`, `from_clients`, `from_frame` and others.

    A client's rows are contiguous, clients stand in order of first appearance, and a client's rows
    in the given order.
    features: (samples, d), or (samples, positions, d) for sequences; floating point as it was
        given, whole numbers as float32.
    labels: class codes 0, 1, ... as int64, (samples,) or (samples, positions); in regression
        float64 with the outputs last.
    clients: names, all strings or all whole numbers; one without training samples is never drawn
        and uses the shared model.
    owner: each sample's position in `clients`, ascending.
    split: 0 for training, 1 for validation, 2 for test.
    mask: (samples, positions), True for real and False for padding; None where there is no padding.
    classes: the names of the classes in the order of their codes; None in regression.
    truth: the parameters that generated the data, where it is synthetic.
    names: the features' names; None where they have none.
    personal: which features' weights may differ between clients; None where all may. The others
        serve the shared model only.
    intercept: whether models of these data have an intercept, shared and personal, unless a verb is
        told otherwise.
    recipe: how the features were made from a table's columns; None where they came as arrays.

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
    recipe: Recipe | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.recipe, Recipe | None):
            raise InvalidInput(
                f"recipe is a {type(self.recipe).__name__}: give a Recipe, as from_frame makes it,"
                " or None"
            )
        for name, value in check_federation_fields(vars(self)).items():
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
        recipe: Recipe | None = None,
    ) -> Federation:
        """A federation from one row per sample and the name of each row's client.

        features: (samples, d) or (samples, positions, d); not copied where the rows stand client by
            client already.
        labels: whole numbers, booleans or strings are classes, floating-point numbers are outputs
            of a regression (one, or several in a last axis); `task` says otherwise. Sequences have
            one label per position.
        split: fractions of training, validation and test, dealt out within each client by `seed`;
            or one value per sample: "train", "validation", "test" or 0, 1, 2.
        mask: for sequences, True where a position is real. Padding may hold anything; what is no
            number or class becomes 0.
        classes: how many there are (labels are 0, 1, ...) or their names. Without it, the labels
            that occur, sorted.
        names: of the features, for messages, tables and pages.
        personal: True for each feature whose weight may differ between clients; by default all may.
        intercept: whether models of these data have one.
        recipe: how the features were made, where they were made from a table.

        >>> features, labels = [[0.5], [1.0], [2.0]], [1.0, 2.0, 4.0]
        >>> federation = Federation.from_arrays(
        ...     features, labels, clients=[7, 8, 7], split=["train", "test", "train"]
        ... )
        >>> federation.task, federation.clients, federation.counts("train").tolist()
        ('regression', (7, 8), [2, 0])
        """
        named = (
            None
            if names is None
            else tuple(str(name) for name in read_list("names", names, "give a name per feature"))
        )
        fields = gather_fields(features, labels, clients, split, seed, mask, classes, task, named)
        more: dict[str, Any] = {"names": named, "personal": personal, "intercept": intercept}
        return cls(**fields, **more, recipe=recipe)

    @classmethod
    def from_clients(cls, parts: Iterable[tuple[Any, Any, Any]], **options: Any) -> Federation:
        """A federation from (client, features, labels), each a client's samples, a batch of them,
        or one sample with one label.

        The same client may come many times. Anything that numpy.asarray takes will do, PyTorch
        tensors included. The keywords are those of `from_arrays`; one value per sample, in `split`
        and `mask`, goes by the order of arrival.

        >>> loaders = {"ann": [([0.0, 1.0], 0), ([1.0, 0.0], 1)], "bob": [([1.0, 1.0], 1)]}
        >>> len(
        ...     Federation.from_clients(
        ...         (name, x, y) for name, samples in loaders.items() for x, y in samples
        ...     )
        ... )
        2
        """
        return cls.from_arrays(*collect_parts(parts), **options)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        label: Any,
        client: Any,
        features: Any = None,
        split: Any = None,
        mask: Any = None,
        seed: int = 0,
        task: str | None = None,
        classes: int | Sequence[Any] | None = None,
        intercept: bool = True,
        scale: str = "standard",
        missing: str = "error",
        roles: Mapping[str, str] | None = None,
        dates: str = "ignore",
    ) -> Federation:
        """A federation from a polars or pandas frame, a row per sample (a LazyFrame is collected).

        label, client: columns; several label columns are the outputs of a regression.
        features: a list of columns, or one column of lists, which is taken as it is. Without it,
            all other columns that a model can learn from: identifiers, dates, constants,
            combinations of other columns and groups within clients are left out, and `recipe` names
            them.
        split, mask: columns, or what `from_arrays` takes.
        task: words and booleans are classes, and so are two whole numbers; other numbers are
            numbers. This says otherwise.
        scale: "standard" centres features and divides them by their standard deviation, both of the
            training rows; "none" keeps numbers as they are. Words, categories and booleans become
            indicators either way.
        missing: "error", "drop", "mean" or "indicator": rows with a missing value are refused, left
            out, filled (numbers by the training mean, categories by a level "missing"), or filled
            and marked by a feature of their own.
        roles: what columns are, such as {"grade": "category", "zip": "ignore"}: "number",
            "category", "identifier", "ignore", "shared" (one weight for all clients) or "personal".
        dates: "ignore", or "number": days since the first training date.

        >>> import polars as pl
        >>> data = {
        ...     "school": list("ab") * 8,
        ...     "sex": list("ffmm") * 4,
        ...     "hours": [1.5, 2.5] * 8,
        ...     "score": [1, 4, 5, 9] * 4,
        ... }
        >>> federation = Federation.from_frame(pl.DataFrame(data), label="score", client="school")
        >>> federation.names, federation.task
        (('sex=m', 'hours'), 'regression')
        """
        frame = open_frame(frame)
        check_names(label, client, features)
        if has_lists(frame, label, client, features, split, mask):
            told = {"missing": missing != "error", "roles": bool(roles), "dates": dates != "ignore"}
            if given := [name for name, value in told.items() if value]:
                raise InvalidInput(
                    f"{given[0]} is given, but the features are a column of lists, taken as it is:"
                    " leave it out"
                )
            read = read_frame(frame, label, client, features, split, mask)
            return cls.from_arrays(
                **read, seed=seed, task=task, classes=classes, intercept=intercept
            )
        options: dict[str, Any] = {
            "seed": seed,
            "task": task,
            "classes": classes,
            "intercept": intercept,
            "scale": scale,
        }
        options |= {"missing": missing, "roles": roles, "dates": dates}
        return cls.from_arrays(
            **read_table(
                frame, label=label, client=client, features=features, split=split, **options
            )
        )

    @classmethod
    def from_parquet(
        cls, path: str | Path, *, label: Any = "label", client: Any = "client", **options: Any
    ) -> Federation:
        """A federation from a Parquet file: one that `save` wrote comes back as it was, any other
        is read as by `from_frame`.

        The keywords are those of `from_frame`, and make a saved file a plain table; columns "split"
        and "mask" need no naming.

        >>> import tempfile, numpy as np
        >>> federation = Federation.from_arrays(np.eye(4), [0, 1, 1, 0], clients=list("aabb"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Federation.from_parquet(federation.save(folder + "/data.parquet")).clients
        ('a', 'b')
        """
        options = {name: value for name, value in options.items() if value is not None}
        as_saved = (label, client) == ("label", "client") and options.keys() <= {
            "seed",
            "intercept",
        }
        frame, fields = files.read_parquet(Path(path), as_saved)
        if fields is not None:
            return cls(
                **fields | {name: options[name] for name in ("intercept",) if name in options}
            )
        masked = "mask" in frame.columns and is_nested_column(frame, "mask")
        options = (
            ({"split": "split"} if "split" in frame.columns else {})
            | ({"mask": "mask"} if masked else {})
            | options
        )
        try:
            return cls.from_frame(frame, label=label, client=client, **options)
        except InvalidInput as reason:
            raise reason.at(f"path is {str(path)!r}") from None

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

    @classmethod
    def open(cls, path: str | Path) -> Federation:
        """The federation in a folder of shards, whose samples stay on disk until they are used.

        >>> import tempfile, numpy as np
        >>> federation = Federation.from_arrays(np.eye(4), [0, 1, 1, 0], clients=[10, 10, 20, 20])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     opened = Federation.open(federation.save(folder + "/clients", shards=2))
        ...     [block.clients for block in opened.blocks(clients=1)]
        [(10,), (20,)]
        """
        from fedasym.data.shards import ShardedFederation  # which is a federation itself

        return ShardedFederation(path)

    def training_clients(self, intercept: bool) -> Sequence[Client]:
        """Each client with training samples as exact fits take it; classes as one-hot outputs."""
        check_single(self)
        labels = self.labels
        if self.classes is not None:
            labels = np.eye(len(self.classes))[labels]
        elif self.outputs == 1:
            labels = labels[:, 0]
        found = []
        for place in np.flatnonzero(self.counts("train")):
            rows = np.arange(self.starts[place], self.starts[place + 1])
            rows = rows[self.split[rows] == TRAIN]
            name = self.clients[place]
            x, y = check_rows(name, self.features[rows], labels[rows], several=True)
            found.append(Client.of(name, append_ones(x, intercept), y))
        return found

    def save(
        self, path: str | Path, shards: int | None = None, layout: str = "safetensors"
    ) -> Path:
        """Write to a .safetensors or .parquet file, or to a new folder in so many shards, of which
        `layout` says the kind; whole or not at all. Returns where it is.
        """
        if shards is None:
            return files.write_federation(vars(self), Path(path))
        from fedasym.data.shard_files import write_shards

        each = -(-len(self) // whole("shards", shards, least=1))
        return write_shards([self], path, clients=each, layout=layout)

    @classmethod
    def of_checked(cls, **fields: Any) -> Federation:
        """From fields that are known to fit together, such as those of some of its clients."""
        made = object.__new__(Federation)
        usual = {"truth": None, "names": None, "personal": None, "intercept": True, "recipe": None}
        for name, value in (usual | fields).items():
            array = isinstance(value, np.ndarray)
            object.__setattr__(made, name, read_only(value) if array else value)
        return made

    def take(self, places: Any) -> Federation:
        """Some clients, by their places, in that order; those side by side are not copied.

        >>> import numpy as np
        >>> federation = Federation.from_arrays(np.eye(4), [0, 1, 1, 0], clients=[10, 10, 20, 30])
        >>> federation.take([2, 0]).clients
        (30, 10)
        """
        where = client_places(places, len(self))
        counts = self.sizes[where]
        at: Any = slice(self.starts[where[0]], self.starts[where[-1] + 1])
        if not np.all(np.diff(where) == 1):
            ends = np.cumsum(counts)
            at = np.arange(ends[-1]) + np.repeat(self.starts[where] - ends + counts, counts)
        arrays = {
            name: None if getattr(self, name) is None else getattr(self, name)[at]
            for name in ("features", "labels", "split", "mask")
        }
        kept = {name: getattr(self, name) for name in ("classes", "names", "personal", "intercept")}
        return Federation.of_checked(
            **arrays,
            **kept,
            clients=tuple(self.clients[place] for place in where.tolist()),
            owner=np.repeat(np.arange(len(where)), counts),
            recipe=self.recipe,
        )

    def blocks(self, clients: int | None = None) -> Iterator[Federation]:
        """All clients in blocks of so many, in their order; by default as one block."""
        size = len(self) if clients is None else whole("clients", clients, least=1)
        for start in range(0, len(self), size):
            yield self.take(np.arange(start, min(start + size, len(self))))

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

    @property
    def positions(self) -> int:
        """Positions of a sample; 1 where it is no sequence."""
        return int(self.features.shape[1]) if self.sequences else 1

    @property
    def padded(self) -> bool:
        """Whether some positions are padding."""
        return self.mask is not None

    def describe_padding(self) -> str:
        """How many positions are padding."""
        assert self.mask is not None
        return f"padding: {1 - self.mask.mean():.1%} of the positions"

    @cached_property
    def identities(self) -> NDArray[np.uint64]:
        """64 bits per client from its name alone: what its random numbers are keyed by."""
        return identities_of(self.clients)

    @cached_property
    def starts(self) -> NDArray[np.intp]:
        """Where each client's rows start, and the number of samples last."""
        return np.searchsorted(self.owner, np.arange(len(self.clients) + 1))

    @property
    def sizes(self) -> NDArray[np.intp]:
        """How many samples each client has."""
        return np.diff(self.starts)

    @cached_property
    def _position(self) -> dict[Any, int]:
        return {name: position for position, name in enumerate(self.clients)}

    def counts(self, split: str) -> NDArray[np.intp]:
        """How many samples of a split each client has."""
        return np.bincount(self.owner[self.split == code_of(split)], minlength=len(self.clients))

    def rows(self, client: Any, split: str | None = None) -> NDArray[np.intp]:
        """The rows of one client, all or those of a split."""
        mine = self.place(client)
        rows = np.arange(self.starts[mine], self.starts[mine + 1])
        return rows if split is None else rows[self.split[rows] == code_of(split)]

    def count_predictions(self, padding: bool) -> NDArray[np.int64]:
        """(m, 2) predictions that count in validation and test: samples, or real positions.

        padding: whether positions that are padding count as well.
        """
        each = np.full(len(self.split), self.positions)
        if self.mask is not None and not padding:
            each = self.mask.sum(1)
        sides = [
            np.bincount(self.owner, weights=each * (self.split == side), minlength=len(self))
            for side in (1, 2)
        ]
        return np.stack(sides, axis=1).astype(np.int64)

    def training_squares(self) -> NDArray[np.float64]:
        """The sum of the squared lengths of each client's training samples; of a sequence it is the
        mean over its positions that counts.
        """
        x = self.features
        subscripts = "npd,npd->n" if self.sequences else "nd,nd->n"
        each = np.einsum(subscripts, x, x, dtype=np.float64, casting="unsafe") / self.positions
        trains = self.split == TRAIN
        sums = np.bincount(self.owner[trains], weights=each[trains], minlength=len(self))
        return np.asarray(sums, np.float64)

    def place(self, client: Any) -> int:
        """Where a client stands; refuses one that is not there."""
        mine = self._position.get(client) if isinstance(client, Hashable) else None
        if mine is None:
            known = [str(name) for name in self.clients]
            raise unknown_name(
                "client",
                client,
                known if len(known) <= 20 else [*known[:20], f"{len(known) - 20} more"],
            )
        return mine

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

    def resplit(
        self, seed: int, keep_test: bool = True, fractions: Fractions | None = FRACTIONS
    ) -> Federation:
        """The same samples, training and validation (and test unless `keep_test`) dealt out anew.

        A kept test set of the size that `fractions` give leaves the other counts as they give them;
        beside one of another size, training and validation share the rest in proportion.
        `fractions=None` keeps each client's counts as they are.

        >>> import numpy as np
        >>> federation = Federation.from_arrays(np.eye(20), np.arange(20) % 2, clients=[1] * 20)
        >>> bool(np.all((federation.resplit(seed=1).split == 2) == (federation.split == 2)))
        True
        """
        return replace(
            self,
            split=reassign_splits(
                self.split, self.owner, self.identities, seed, fractions, keep_test
            ),
        )

    def merge_rare(self, classes: int) -> Federation:
        """The same samples in fewer classes: the commonest in training, and one for all others.

        The predictions for classes and the advisor take up to 200.

        >>> import numpy as np
        >>> words = Federation.from_arrays(
        ...     np.eye(5), ["the", "owl", "the", "cat", "the"], clients=[1] * 5, split=["train"] * 5
        ... )
        >>> words.merge_rare(2).classes
        ('the', 'other')
        """
        if self.classes is None:
            raise InvalidInput("the labels are numbers: only classes can be merged")
        most = whole("classes", classes, least=2)
        if len(self.classes) <= most:
            return self
        counted = (
            self.split == TRAIN if self.mask is None else self.mask & (self.split == TRAIN)[:, None]
        )
        codes, names = merge_rare_classes(
            self.labels, self.classes, self.labels[counted].ravel(), most
        )
        return replace(self, labels=codes, classes=names, truth=None)

    def class_counts(self, split: str | None = None) -> NDArray[np.intp]:
        """How many samples (positions of sequences) of each class each client has.

        >>> import numpy as np
        >>> federation = Federation.from_arrays(np.eye(3), [0, 1, 1], clients=["ann", "bob", "ann"])
        >>> federation.class_counts().tolist()
        [[1, 1], [0, 1]]
        """
        if self.classes is None:
            raise InvalidInput("the labels are numbers: only classes can be counted")
        taken = np.ones(len(self.owner), bool) if split is None else self.split == code_of(split)
        if self.sequences:
            taken = np.broadcast_to(taken[:, None], self.labels.shape)
            taken = taken if self.mask is None else taken & self.mask
        owner = np.broadcast_to(self.owner[(..., *[None] * (self.labels.ndim - 1))], taken.shape)
        places = owner[taken] * len(self.classes) + self.labels[taken]
        counts = np.bincount(places, minlength=len(self) * len(self.classes))
        return counts.reshape(len(self), -1)

    def plot(self, path: str | Path) -> Path:
        """Draw who has which classes to a file (PNG, SVG or PDF by its ending)."""
        return write_file("draw class counts", self, path)

    def table(self) -> list[dict[str, Any]]:
        """One record per client: feed it to any data frame."""
        return client_records(self)

    def __len__(self) -> int:
        return len(self.clients)

    def __repr__(self) -> str:
        return summarise_federation(self)

    def _repr_html_(self) -> str:
        return notebook_text(self)


def client_places(places: Any, clients: int) -> NDArray[np.intp]:
    """Places of clients, each at most once and at least one of them."""
    given = np.asarray(list(places) if isinstance(places, range) else places)
    if given.ndim != 1 or given.size == 0 or given.dtype.kind not in "iu":
        raise InvalidInput(
            f"places is {str(places)[:60]}: give whole numbers from 0 to {clients - 1}, one or more"
        )
    if given.min() < 0 or given.max() >= clients or np.unique(given).size < given.size:
        raise InvalidInput(
            f"places go from {given.min()} to {given.max()}, {given.size} of them,"
            f" {np.unique(given).size} different: give each place from 0 to {clients - 1} at most"
            " once"
        )
    return given.astype(np.intp)


def check_federation(federation: Any) -> None:
    """Refuse what is no federation."""
    if not isinstance(federation, Federation):
        raise InvalidInput(
            f"federation is a {type(federation).__name__}: make one of your data with"
            " fa.Federation.from_arrays"
        )


def check_single(federation: Federation) -> None:
    """Refuse samples of several positions where they are fitted exactly."""
    if federation.sequences:
        raise NoFormula(
            "a sample has several positions: exact fits are for single samples; train instead"
        )
