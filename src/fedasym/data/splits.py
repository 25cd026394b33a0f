"""Which samples train, validate and test, and which of them are in two of these splits.

Samples are dealt out per client by hashes, so that no client's split depends on another's. Exact
duplicates across splits are samples that a model may have learnt by heart.

Random numbers by counting: each is a hash of what it is for, so that order, batching and machine
change nothing.

A client's numbers depend on the seed, on its own identity and on what they are for; never on who
else takes part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, unknown_name
from fedasym.core.numbers import SUM_TOLERANCE, check_seed, notebook_text, plural

if TYPE_CHECKING:
    from fedasym.data.federation import Federation


COHORT, TRAINING, PERSONAL, SPLIT, START, NOISE = 1, 2, 3, 4, 5, 6  # what a number is for
STEP = np.uint64(0x9E3779B97F4A7C15)  # the constants of splitmix64 (Steele, Lea, Flood 2014)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)

Words = NDArray[np.uint64]


def mix_hash(*words: int | np.integer | NDArray[np.integer]) -> Words:
    """A well-mixed 64-bit hash of whole numbers, broadcast over arrays, the longest one last.

    >>> bool(mix_hash(0, 1) == mix_hash(0, 1)), mix_hash(0, [1, 2, 3]).shape
    (True, (3,))
    """
    state: Words = np.zeros((), np.uint64)
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is meant
        for word in words:
            state = state + np.asarray(word).astype(np.uint64) + STEP
            for shift, factor in ((30, FIRST), (27, SECOND)):
                state ^= state >> np.uint64(shift)
                state *= factor
            state ^= state >> np.uint64(31)
    return state


def random_orders(streams: Words, sizes: NDArray[np.integer], width: int) -> NDArray[np.int32]:
    """A random order of 0..size-1 for each stream, padded with -1 to `width`: sorted by hashes.

    `streams` has any shape (..., passes) and `sizes` the shape without the passes. The low bits of
    a hash carry the sample, so that one sort does it; at least 40 bits stay random.

    >>> order = random_orders(mix_hash(7, np.arange(2))[None], np.array([3]), 4)
    >>> sorted(order[0, 0].tolist()), int(order[0, 1, 3])
    ([-1, 0, 1, 2], -1)
    """
    sample = np.arange(width, dtype=np.uint64)
    low = np.uint64((1 << max(width - 1, 1).bit_length()) - 1)
    keys = (mix_hash(streams[..., None], sample) & ~low) | sample
    absent = sample >= np.asarray(sizes)[..., None, None]
    keys[np.broadcast_to(absent, keys.shape)] = ~np.uint64(0)
    keys.sort(axis=-1)
    order = (keys & low).astype(np.int32)
    order[np.broadcast_to(absent, order.shape)] = -1  # absent samples sort last
    return order


SPLITS = ("train", "validation", "test")
TRAIN, VALIDATION, TEST = 0, 1, 2
SPELLED = {
    "train": TRAIN,
    "validation": VALIDATION,
    "val": VALIDATION,
    "valid": VALIDATION,
    "test": TEST,
}
FRACTIONS = (0.8, 0.1, 0.1)

Fractions = Sequence[float]
Integers = NDArray[np.integer[Any]]


def check_fractions(fractions: Any, field: str = "split") -> tuple[float, float, float]:
    """Shares of training, validation and test: at least 0, training above 0, and summing to one."""
    wanted = "give three fractions, for training, validation and test, such as (0.8, 0.1, 0.1)"
    try:
        train, validation, test = (float(each) for each in fractions)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(f"{field} is {fractions!r}: {wanted}") from None
    if not all(np.isfinite(each) and each >= 0 for each in (train, validation, test)):
        raise InvalidInput(
            f"{field} is {fractions!r}: they must be finite and at least 0; {wanted}"
        )
    total = train + validation + test
    if abs(total - 1) > SUM_TOLERANCE:
        raise InvalidInput(
            f"{field} is {fractions!r}: they sum to {total:g} and must sum to 1; {wanted}"
        )
    if train == 0:
        raise InvalidInput(
            f"{field} is {fractions!r}: without training samples there is nothing to learn from;"
            f" {wanted}"
        )
    return train, validation, test


def code_of(split: str) -> int:
    """The code of a split's name."""
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    return SPLITS.index(split)


def are_fractions(split: Any, samples: int) -> bool:
    """Whether a split is three fractions rather than one value per sample."""
    if isinstance(split, str) or not hasattr(split, "__len__") or getattr(split, "ndim", 1) != 1:
        raise InvalidInput(
            f"split is {split!r}: give three fractions such as {FRACTIONS}, or one of"
            f" {', '.join(SPLITS)} per sample"
        )
    if len(split) != len(SPLITS) or not all(isinstance(each, Real) for each in split):
        return False
    # With three samples, codes such as [0, 1, 2] look like fractions: a tuple or float decides.
    return (
        samples != len(SPLITS)
        or isinstance(split, tuple)
        or not all(isinstance(each, Integral) for each in split)
    )


def read_codes(split: Any, samples: int, spot: Callable[[int], str]) -> NDArray[np.int8]:
    """One code per sample from codes or names; `spot` says where a row is."""
    if (
        isinstance(split, np.ndarray)
        and split.dtype.kind == "i"
        and split.shape == (samples,)
        and np.all((split >= 0) & (split <= 2))
    ):
        return split.astype(np.int8)  # codes already: no look at every row in Python
    values = split.tolist() if hasattr(split, "tolist") else list(split)
    if len(values) != samples:
        raise InvalidInput(
            f"split has {len(values)} values for {samples} samples: give one per sample, or three"
            " fractions"
        )
    codes = np.empty(samples, np.int8)
    for row, value in enumerate(values):
        code = SPELLED.get(value.lower()) if isinstance(value, str) else None
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if is_number and value in (TRAIN, VALIDATION, TEST):
            code = int(float(value))
        if code is None:
            raise InvalidInput(f"{spot(row)}: {unknown_name('split', value, SPLITS)} (or 0, 1, 2)")
        codes[row] = code
    return codes


def split_sizes(
    counts: Integers, fractions: Fractions
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """How many samples of each client validate and test; the rest, at least one, trains.

    Shares are rounded. From three samples on, each kind with a fraction above 0 has at least one;
    of two samples one tests (or validates, where nothing tests); a single sample trains.

    >>> [kind.tolist() for kind in split_sizes(np.array([1, 2, 3, 10, 25]), (0.8, 0.1, 0.1))]
    [[0, 0, 1, 1, 3], [0, 1, 1, 1, 3]]
    """
    _, v, t = fractions
    n = np.asarray(counts)
    least_test = ((n >= 2) & (t > 0)).astype(np.intp)
    least_validation = ((n >= (3 if t > 0 else 2)) & (v > 0)).astype(np.intp)
    few = n <= 2
    test = np.where(few, least_test, np.maximum(np.floor(t * n + 0.5), least_test)).astype(np.intp)
    validation = np.where(
        few, least_validation, np.maximum(np.floor(v * n + 0.5), least_validation)
    ).astype(np.intp)
    # two roundings up and two least ones can ask for two samples too many: the larger kind gives
    for _ in range(2):
        excess = test + validation > np.maximum(n - 1, 0)
        larger = test > validation
        test, validation = test - (excess & larger), validation - (excess & ~larger)
    return validation, test


def deal_samples(
    owner: Integers,
    identities: NDArray[np.uint64],
    seed: int,
    validation: Integers,
    test: Integers,
    kept: NDArray[np.bool_],
) -> NDArray[np.int8]:
    """Each client's samples in the order of their hashes: test, then validation, then the rest.

    owner: each sample's client, ascending. kept: samples that test already and are left out of the
    deal.
    """
    counts = np.bincount(owner, minlength=identities.size)
    position = np.arange(owner.size) - (np.cumsum(counts) - counts)[owner]
    order = np.lexsort((mix_hash(seed, SPLIT, identities[owner], position), kept, owner))
    rank = np.empty_like(position)
    rank[order] = position
    split = np.where(
        rank < test[owner], TEST, np.where(rank < (test + validation)[owner], VALIDATION, TRAIN)
    )
    return np.where(kept, TEST, split).astype(np.int8)


def assign_splits(
    owner: Integers, identities: NDArray[np.uint64], seed: int, fractions: Fractions
) -> NDArray[np.int8]:
    """A fresh split by fractions.

    >>> assign_splits(
    ...     np.zeros(5, int), np.array([7], np.uint64), 0, (0.6, 0.2, 0.2)
    ... ).tolist().count(0)
    3
    """
    counts = np.bincount(owner, minlength=identities.size)
    validation, test = split_sizes(counts, check_fractions(fractions))
    kept = np.zeros(owner.size, bool)
    return deal_samples(owner, identities, check_seed(seed), validation, test, kept)


def reassign_splits(
    split: NDArray[np.int8],
    owner: Integers,
    identities: NDArray[np.uint64],
    seed: int,
    fractions: Fractions | None,
    keep_test: bool,
) -> NDArray[np.int8]:
    """Another split of the same samples: by fractions, or by each client's counts (None).

    A kept test set of the size that the fractions give leaves the other counts as the fractions
    give them; beside one of another size, validation and training share the rest in their own
    proportion.
    """
    seed = check_seed(seed)
    m = identities.size
    counts = np.bincount(owner, minlength=m)
    kept = (split == TEST) if keep_test else np.zeros(owner.size, bool)
    tested = np.bincount(owner[split == TEST], minlength=m)
    if fractions is None:
        validation = np.bincount(owner[split == VALIDATION], minlength=m)
        test = tested
    else:
        train, v, t = check_fractions(fractions, "fractions")
        validation, test = split_sizes(counts, (train, v, t))
        if keep_test:
            shared, _ = split_sizes(counts - tested, (train / (train + v), v / (train + v), 0.0))
            validation = np.where(test == tested, validation, shared)
    return deal_samples(
        owner, identities, seed, validation, np.zeros_like(test) if keep_test else test, kept
    )


SHOWN = 5  # examples per pair of splits


@dataclass(frozen=True)
class TwinSamples:
    """Two samples with the same features: their rows in the federation and whose they are."""

    rows: tuple[int, int]
    clients: tuple[Any, Any]
    same_label: bool


@dataclass(frozen=True)
class CommonSamples:
    """What two splits have in common.

    splits: the two. samples: how many of the second split's samples occur in the first. contents:
        how many different ones.
    own: how many of those samples occur among the first split's samples of the same client.
        examples: some of them.
    """

    splits: tuple[str, str]
    samples: int
    contents: int
    own: int
    examples: tuple[TwinSamples, ...]

    def __str__(self) -> str:
        first, second = self.splits
        head = f"{first} and {second}: {plural(self.samples, 'sample')} of {second} in {first}"
        return head + (f", {self.own} of the same client" if self.samples else "")


@dataclass(frozen=True, repr=False)
class Duplicates:
    """What every pair of splits has in common."""

    pairs: tuple[CommonSamples, ...]

    def __getitem__(self, splits: tuple[str, str]) -> CommonSamples:
        return next(pair for pair in self.pairs if set(pair.splits) == set(splits))

    def table(self) -> list[dict[str, Any]]:
        """One record per example: feed it to any data frame."""
        return [
            {
                "splits": " and ".join(pair.splits),
                "rows": twins.rows,
                "clients": twins.clients,
                "same_label": twins.same_label,
            }
            for pair in self.pairs
            for twins in pair.examples
        ]

    def __repr__(self) -> str:
        lines = ["exact duplicates across splits"]
        for pair in self.pairs:
            lines.append(str(pair))
            lines += [
                f"  rows {one.rows[0]} and {one.rows[1]}, clients {one.clients[0]!r} and"
                f" {one.clients[1]!r}"
                for one in pair.examples
            ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return notebook_text(self)


def duplicates(federation: Federation, examples: int = SHOWN) -> Duplicates:
    """Samples with the same features in two splits, whatever their labels; padding is ignored.

    >>> import fedasym as fa
    >>> rows = [[0.0, 1.0], [2.0, 3.0], [0.0, 1.0], [4.0, 5.0]]
    >>> twice = fa.Federation.from_arrays(
    ...     rows, [0, 1, 0, 1], list("aabb"), split=["train", "train", "test", "test"]
    ... )
    >>> duplicates(twice)
    exact duplicates across splits
    train and validation: 0 samples of validation in train
    train and test: 1 sample of test in train, 0 of the same client
      rows 0 and 2, clients 'a' and 'b'
    validation and test: 0 samples of test in validation
    """
    _, content = np.unique(
        np.fromiter(feature_hashes(federation), "S16", len(federation.owner)), return_inverse=True
    )
    return Duplicates(
        tuple(
            common_samples(federation, content, pair, examples)
            for pair in combinations(range(len(SPLITS)), 2)
        )
    )


def feature_hashes(federation: Federation) -> Iterator[bytes]:
    """16 letters for each sample's features, 64 bits."""
    for row, features in enumerate(federation.features):
        real = features if federation.mask is None else features[federation.mask[row]]
        yield hashlib.blake2b(np.ascontiguousarray(real).data, digest_size=8).hexdigest().encode()


def common_samples(
    federation: Federation, content: NDArray[np.intp], pair: tuple[int, int], examples: int
) -> CommonSamples:
    """What one pair of splits has in common."""
    first, second = (np.flatnonzero(federation.split == code) for code in pair)
    found = second[np.isin(content[second], content[first])]
    origins = first[np.isin(content[first], content[found])]
    owners = {(content[row], federation.owner[row]) for row in origins.tolist()}
    where = {content[row]: row for row in origins[::-1].tolist()}  # the first of each
    twins = [(where[content[row]], row) for row in found[:examples].tolist()]
    return CommonSamples(
        (SPLITS[pair[0]], SPLITS[pair[1]]),
        int(found.size),
        int(np.unique(content[found]).size),
        sum((content[row], federation.owner[row]) in owners for row in found.tolist()),
        tuple(
            TwinSamples(
                rows,
                (
                    federation.clients[federation.owner[rows[0]]],
                    federation.clients[federation.owner[rows[1]]],
                ),
                bool(np.array_equal(federation.labels[rows[0]], federation.labels[rows[1]])),
            )
            for rows in twins
        ),
    )
