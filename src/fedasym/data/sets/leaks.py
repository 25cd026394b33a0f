"""Exact duplicates across training, validation and test: samples that a model may have learnt by heart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.text import plural, preformatted
from fedasym.data.federation.splits import SPLITS

if TYPE_CHECKING:
    from fedasym.data.federation.federation import Federation

SHOWN = 5  # examples per pair of splits


@dataclass(frozen=True)
class Twins:
    """Two samples with the same features: their rows in the federation and whose they are."""

    rows: tuple[int, int]
    clients: tuple[Any, Any]
    same_label: bool


@dataclass(frozen=True)
class Shared:
    """What two splits have in common.

    splits: the two. samples: how many of the second split's samples occur in the first. contents: how many different ones.
    own: how many of those samples occur among the first split's samples of the same client. examples: some of them.
    """

    splits: tuple[str, str]
    samples: int
    contents: int
    own: int
    examples: tuple[Twins, ...]

    def __str__(self) -> str:
        first, second = self.splits
        head = f"{first} and {second}: {plural(self.samples, 'sample')} of {second} in {first}"
        return head + (f", {self.own} of the same client" if self.samples else "")


@dataclass(frozen=True, repr=False)
class Duplicates:
    """What every pair of splits has in common."""

    pairs: tuple[Shared, ...]

    def __getitem__(self, splits: tuple[str, str]) -> Shared:
        return next(pair for pair in self.pairs if set(pair.splits) == set(splits))

    def table(self) -> list[dict[str, Any]]:
        """One record per example: feed it to any data frame."""
        return [
            {"splits": " and ".join(pair.splits), "rows": twins.rows, "clients": twins.clients, "same_label": twins.same_label}
            for pair in self.pairs
            for twins in pair.examples
        ]

    def __repr__(self) -> str:
        lines = ["exact duplicates across splits"]
        for pair in self.pairs:
            lines.append(str(pair))
            lines += [
                f"  rows {one.rows[0]} and {one.rows[1]}, clients {one.clients[0]!r} and {one.clients[1]!r}"
                for one in pair.examples
            ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return preformatted(self)


def duplicates(federation: Federation, examples: int = SHOWN) -> Duplicates:
    """Samples with exactly the same features in two splits, whatever their labels; padding is left out of the comparison.

    >>> import fedasym as fa
    >>> rows = [[0.0, 1.0], [2.0, 3.0], [0.0, 1.0], [4.0, 5.0]]
    >>> twice = fa.Federation.from_arrays(rows, [0, 1, 0, 1], list("aabb"), split=["train", "train", "test", "test"])
    >>> duplicates(twice)
    exact duplicates across splits
    train and validation: 0 samples of validation in train
    train and test: 1 sample of test in train, 0 of the same client
      rows 0 and 2, clients 'a' and 'b'
    validation and test: 0 samples of test in validation
    """
    _, content = np.unique(np.fromiter(hashes(federation), "S16", len(federation.owner)), return_inverse=True)
    return Duplicates(tuple(shared(federation, content, pair, examples) for pair in combinations(range(len(SPLITS)), 2)))


def hashes(federation: Federation) -> Iterator[bytes]:
    """16 letters for each sample's features, 64 bits."""
    for row, features in enumerate(federation.features):
        real = features if federation.mask is None else features[federation.mask[row]]
        yield hashlib.blake2b(np.ascontiguousarray(real).data, digest_size=8).hexdigest().encode()


def shared(federation: Federation, content: NDArray[np.intp], pair: tuple[int, int], examples: int) -> Shared:
    """What one pair of splits has in common."""
    first, second = (np.flatnonzero(federation.split == code) for code in pair)
    found = second[np.isin(content[second], content[first])]
    origins = first[np.isin(content[first], content[found])]
    owners = {(content[row], federation.owner[row]) for row in origins.tolist()}
    where = {content[row]: row for row in origins[::-1].tolist()}  # the first of each
    twins = [(where[content[row]], row) for row in found[:examples].tolist()]
    return Shared(
        (SPLITS[pair[0]], SPLITS[pair[1]]),
        int(found.size),
        int(np.unique(content[found]).size),
        sum((content[row], federation.owner[row]) in owners for row in found.tolist()),
        tuple(
            Twins(
                rows,
                (federation.clients[federation.owner[rows[0]]], federation.clients[federation.owner[rows[1]]]),
                bool(np.array_equal(federation.labels[rows[0]], federation.labels[rows[1]])),
            )
            for rows in twins
        ),
    )
