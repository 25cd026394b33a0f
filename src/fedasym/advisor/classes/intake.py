"""Class labels at the advisor's door: when labels are classes, and how classes become the outputs of least squares.

Two classes are the labels -1 and +1. More are one-hot vectors less 1/C: C outputs that sum to zero, C - 1 of them free.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.advisor.intake import Data, Part, checked, from_arrays
from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput, NoFormula, one_of
from fedasym.core.errors import read_list as listed
from fedasym.data.federation.federation import Federation
from fedasym.data.federation.samples import TASKS
from fedasym.data.federation.samples import read_label_array as read_labels
from fedasym.data.federation.splits import TRAIN
from fedasym.exact.clients import is_per_client as is_listed
from fedasym.worlds.classes import MOST_CLASSES

Codes = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Coding:
    """Classes by their names, and what least squares makes of them."""

    names: tuple[Any, ...]

    @property
    def count(self) -> int:
        """C, how many classes there are."""
        return len(self.names)

    @property
    def free(self) -> int:
        """Outputs that are free: one for two classes, C - 1 for more."""
        return self.count - 1

    @property
    def total(self) -> float:
        """Mean square of a free output over all samples, known without looking: 1 for two classes, 1/C for more."""
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

    def guessed(self, outputs: Array) -> Codes:
        """The class that outputs stand for."""
        return np.asarray(outputs[:, 0] > 0, dtype=np.intp) if self.count == 2 else np.asarray(outputs.argmax(-1))


@dataclass(frozen=True, eq=False)
class Classes(Coding):
    """All clients with training samples; the labels of `data` are codes of `names`."""

    data: Data


def are_classes(data: Any, y: Any, task: str | None) -> bool:
    """Whether labels are classes: `task` says so, the federation knows, or else whole numbers, booleans and strings are.

    >>> are_classes(None, [[0, 1], [1, 1]], None), are_classes(None, [0.0, 1.0], None), are_classes(None, [0, 7], "regression")
    (True, False, False)
    """
    if task is not None:
        one_of("task", task, TASKS)
    if isinstance(data, Federation):
        if task is not None and task != data.task:
            raise InvalidInput(f"task is {task!r} and the federation's labels are for {data.task}: make it with that task")
        return data.task == "classification"
    if task is not None or y is None:
        return task == "classification"
    return all(read_labels(each).dtype.kind in "biuUO" for each in listed_labels(y))


def listed_labels(y: Any) -> list[Any]:
    """Labels client by client, or all of them as one list."""
    lists = [y] if hasattr(y, "dtype") else listed("y", y, "give one label per row, or a list of labels per client")
    return lists if lists and all(np.ndim(each) == 1 for each in lists) else [y]


def classes_in(data: Any, y: Any = None, clients: Iterable[Hashable] | None = None) -> Classes:
    """A federation with classes, or arrays as `fa.advise` takes them; checked once, here."""
    if isinstance(data, Federation):
        if y is not None or clients is not None:
            raise InvalidInput("a Federation has its own labels and clients: leave y and clients out")
        assert data.classes is not None
        names, parts = data.classes, from_federation(data)
    elif y is None:
        raise InvalidInput("y is missing: give a Federation, or features, labels and clients=[...], the client of each row")
    else:
        names, codes = encoded(y)
        X = list(data) if is_listed(data) else data
        parts = from_arrays(X, codes if is_listed(X) else np.concatenate(codes), clients)
    if len(names) > MOST_CLASSES:
        raise NoFormula(
            f"the labels have {len(names)} different values, and advice is for up to {MOST_CLASSES} classes: merge rare ones "
            f"(federation.merge_rare({MOST_CLASSES})), or say task='regression' if they are numbers"
        )
    return Classes(names, seen(parts, names))


def encoded(y: Any) -> tuple[tuple[Any, ...], list[Array]]:
    """The names of the classes, sorted, and the labels as their codes, in the lists that they came in."""
    lists = [read_labels(each).reshape(-1) for each in listed_labels(y)]
    every = np.concatenate(lists) if lists else np.empty(0)
    missing = [each for each in every.tolist() if each is None or (isinstance(each, float) and np.isnan(each))]
    if missing:
        raise InvalidInput(f"a label is {missing[0]!r}: drop the samples without a label, or name their class")
    try:
        names, codes = np.unique(every, return_inverse=True)
    except TypeError:
        raise InvalidInput("the labels mix numbers and words: give all of them as strings, or all as numbers") from None
    ends = np.cumsum([len(each) for each in lists])[:-1]
    return tuple(names.tolist()), np.split(codes.astype(float), ends)


def from_federation(federation: Federation) -> list[Part]:
    """Training rows to learn from, validation and test rows held out; positions of sequences are samples."""
    width = federation.features.shape[1] if federation.sequences else 1
    features = federation.features.reshape(-1, federation.dimension)
    labels = federation.labels.reshape(-1)
    real = np.ones(labels.size, dtype=bool) if federation.mask is None else federation.mask.reshape(-1)
    training = np.repeat(federation.split == TRAIN, width)
    parts = []
    for place, name in enumerate(federation.clients):
        rows = np.arange(width * federation.starts[place], width * federation.starts[place + 1])
        rows = rows[real[rows]]
        parts.append(Part(name, features, labels, rows[training[rows]], rows[~training[rows]]))
    return parts


def seen(parts: list[Part], names: tuple[Any, ...]) -> Data:
    """The checks that all data pass, with a class by its name where there is only one."""
    labels = np.concatenate([np.unique(part.labels[part.train]) for part in parts]) if parts else np.empty(0)
    if np.unique(labels).size == 1:
        raise InvalidInput(
            f"all training labels are {names[int(labels[0])]!r}: with a single class there is nothing to predict; check which "
            "column is the label"
        )
    return checked(parts)
