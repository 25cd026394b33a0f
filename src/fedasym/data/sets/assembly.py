"""What the loaders of real data share: finding files, optional libraries, splits, and one federation from rows in order."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, MissingPackage
from fedasym.core.numbers import check_seed
from fedasym.data.federation.federation import Federation
from fedasym.data.federation.samples import identities_of
from fedasym.data.federation.splits import FRACTIONS, Fractions, assigned, dealt

Counts = NDArray[np.intp]


def library(name: str, package: str) -> Any:
    """An optional library, imported where it is needed; the error says how to install it."""
    try:
        return import_module(name)
    except ImportError:
        raise MissingPackage(f"reading this data set needs {package}: pip install 'fedasym[data]'") from None


def located(folder: str | Path, name: str, source: str) -> Path:
    """The file of that name in the folder; `source` says where it comes from."""
    if not Path(folder).is_dir():
        raise InvalidInput(f"folder is {str(folder)!r}, which is no folder: give the one that holds {name}, from {source}")
    path = Path(folder) / name
    if not path.is_file():
        raise InvalidInput(f"folder is {str(folder)!r}, which has no file {name}: put it there, from {source}")
    return path


def by_fractions(names: Sequence[Any], counts: Counts, seed: int, fractions: Fractions = FRACTIONS) -> NDArray[np.int8]:
    """The split of rows that stand client by client: dealt out within each client."""
    return assigned(np.repeat(np.arange(len(names)), counts), identities_of(names), seed, fractions)


def by_files(names: Sequence[Any], trained: Counts, tested: Counts, seed: int) -> NDArray[np.int8]:
    """The split of rows that stand client by client, those of its training file before those of its test file.

    As in the paper's experiments the test file is the test set; the training file is shuffled, its first int(n 0.8/0.9)
    samples train and the rest validate.

    >>> by_files(["ann"], np.array([3]), np.array([2]), seed=0)[3:].tolist()
    [2, 2]
    """
    validation = trained - (trained * 0.8 / 0.9).astype(np.intp)
    owner = np.repeat(np.arange(len(names)), trained + tested)
    kept = np.repeat(np.tile([False, True], len(names)), np.column_stack([trained, tested]).ravel())
    return dealt(owner, identities_of(names), check_seed(seed), validation, np.zeros_like(tested), kept)


def assembled(
    features: NDArray[np.floating[Any]],
    labels: NDArray[Any],
    names: Sequence[Any],
    counts: Counts,
    split: NDArray[np.int8],
    classes: Sequence[Any],
    mask: NDArray[np.bool_] | None = None,
) -> Federation:
    """A federation from checked rows that stand client by client, without a copy; labels are codes of `classes`."""
    owner = np.repeat(np.arange(len(names)), counts)
    padded = mask is not None and not mask.all()
    return Federation(features, labels, tuple(names), owner, split, mask if padded else None, tuple(classes))
