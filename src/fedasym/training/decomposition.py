"""Where the gain of personalization comes from: label shift, feature shift, and the rest.

A personal model may gain because a client meets other classes than the rest (label shift), because
its features lie elsewhere (feature shift), or because its classes look otherwise. Two corrections
of the shared model's scores, for which nothing is trained, tell the first two from the third:

    label shift     + tau log(class share of the client/share of all), Bayes' rule (`Share`)
    feature shift   - a_i'W, a_i the client's mean distance from the means of its samples' classes,
                    shrunk by n_i/(n_i + kappa): its features are centred, whatever its classes are

Their numbers are chosen on validation samples and measured on test samples. What a correction is
worth depends on whether the other is there already; each gets the mean of the two orders (Shapley's
value), and what the personal models have beyond both corrections is the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedasym.algorithms import ScoreStage
from fedasym.algorithms.paper import SHARES
from fedasym.algorithms.registry import REGISTRY
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array, pool_shares
from fedasym.core.runtime import write_file
from fedasym.data.federation import Federation
from fedasym.results import Result

SHRINKAGES = (0.0, 3.0, 10.0, 30.0, 100.0)  # samples' worth of no shift; None: features stay
Option = TypeVar("Option")
Flags = NDArray[np.bool_]
PARTS = ("label", "feature", "rest")


@dataclass(frozen=True, eq=False)
class HeldScores:
    """Held-out samples of all clients under a shared model, and what its corrections are made of.

    scores: (samples, classes), logarithms of probabilities up to a number by sample; labels, owner,
    chooses: class, client, and whether the sample chooses or measures. counts: (clients, classes)
    training labels. shifts: (clients, classes) W'(sum of a client's training features less the
    means of their classes).
    """

    scores: Array
    labels: NDArray[np.intp]
    owner: NDArray[np.intp]
    chooses: Flags
    counts: Array
    shifts: Array

    def are_right(self, share: ScoreStage | None, shrinkage: float | None) -> Flags:
        """Which samples are right with these corrections; None: without."""
        added = np.zeros_like(self.counts)
        if share is not None:
            pooled = pool_shares(self.counts.sum(0))
            added = np.array([share.offset(each, pooled) for each in self.counts])
        if shrinkage is not None:
            added = added - self.shifts / np.maximum(self.counts.sum(1) + shrinkage, 1)[:, None]
        return np.asarray((self.scores + added[self.owner]).argmax(1) == self.labels)

    def swap_roles(self) -> HeldScores:
        """The same, with what measured choosing."""
        return HeldScores(
            self.scores, self.labels, self.owner, ~self.chooses, self.counts, self.shifts
        )


class Corrections(NamedTuple):
    """Right answers of a shared model by client, with each correction; how many were tested."""

    shared: Array
    shares: Array
    centred: Array
    both: Array
    tested: Array
    share: ScoreStage | None  # as chosen, without centring
    shrinkage: float | None

    def plus(self, other: Corrections) -> Corrections:
        """Two parts of the samples together; the choices are the first one's."""
        return Corrections(
            self.shared + other.shared,
            self.shares + other.shares,
            self.centred + other.centred,
            self.both + other.both,
            self.tested + other.tested,
            self.share,
            self.shrinkage,
        )

    def of_clients(self, owner: NDArray[np.intp]) -> Corrections:
        """Sums over rows of the same owner."""

        def total(values: Array) -> Array:
            return np.asarray(np.bincount(owner, values), float)

        return Corrections(
            total(self.shared),
            total(self.shares),
            total(self.centred),
            total(self.both),
            total(self.tested),
            self.share,
            self.shrinkage,
        )


def tried_shares() -> list[ScoreStage | None]:
    """No class shares, then all of the default grid."""
    stage = REGISTRY[SHARES].correction
    assert stage is not None
    grids = {name: each.grid for name, each in stage.settings().items()}
    made = [stage.at(**dict(zip(grids, each, strict=True))) for each in product(*grids.values())]
    return [None, *made]


def correct_shifts(held: HeldScores) -> Corrections:
    """Choose each correction on the samples that choose, and count right answers on the others."""

    def choose(options: Iterable[Option], right: Callable[[Option], Flags]) -> Option:
        listed = list(options)
        worth = [float(right(each)[held.chooses].mean()) for each in listed]
        return listed[int(np.argmax(worth))]  # the first of equal ones

    shares = tried_shares()
    if held.chooses.any():
        share = choose(shares, lambda each: held.are_right(each, None))
        shrinkage = choose([None, *SHRINKAGES], lambda each: held.are_right(None, each))
        joint = choose(shares, lambda each: held.are_right(each, shrinkage))
    else:
        share, shrinkage = REGISTRY[SHARES].correction, SHRINKAGES[2]
        joint = share
    clients = len(held.counts)
    measured = ~held.chooses

    def by_client(values: Flags) -> Array:
        counted = np.bincount(held.owner[measured], values[measured], minlength=clients)
        return np.asarray(counted, float)

    return Corrections(
        by_client(held.are_right(None, None)),
        by_client(held.are_right(share, None)),
        by_client(held.are_right(None, shrinkage)),
        by_client(held.are_right(joint, shrinkage)),
        by_client(np.ones(len(held.labels), dtype=bool)),
        share,
        shrinkage,
    )


class Amount(NamedTuple):
    """A difference of accuracies, and its standard error over clients."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{100 * self.value:+.1f} ± {100 * self.error:.1f}"


def pooled_difference(right: Array, tested: Array) -> Amount:
    """The sum of `right` over all samples, with the error of a ratio over clients."""
    used = tested > 0
    total, m = float(tested.sum()), int(used.sum())
    value = float(right.sum()) / total if total else float("nan")
    left = right[used] - value * tested[used]
    spread = np.sqrt(m / (m - 1) * (left**2).sum()) / total if m > 1 else float("nan")
    return Amount(value, float(spread))


def settings_of(share: ScoreStage | None) -> dict[str, float]:
    """The numbers of a correction."""
    return {} if share is None else {name: float(share.get(name)) for name in share.settings()}


@dataclass(frozen=True)
class GainParts:
    """One algorithm's gain over its shared model, in parts.

    shared, shares, centred, both, personal: accuracies of the shared model, plain and corrected,
    and of the personal models. gain = label + feature + rest. beyond: the personal models' accuracy
    above the shared model's with class shares.
    """

    algorithm: str
    shared: float
    shares: float
    centred: float
    both: float
    personal: float
    gain: Amount
    label: Amount
    feature: Amount
    rest: Amount
    beyond: Amount
    settings: dict[str, float]  # of the class shares, as chosen; none: they did not help

    @classmethod
    def of(cls, algorithm: str, found: Corrections, personal: Array) -> GainParts:
        """From right answers by client."""
        shared, shares, centred, both, tested = found[:5]
        total = max(float(tested.sum()), 1.0)
        label = (shares - shared + both - centred) / 2
        feature = (centred - shared + both - shares) / 2
        return cls(
            algorithm,
            float(shared.sum()) / total,
            float(shares.sum()) / total,
            float(centred.sum()) / total,
            float(both.sum()) / total,
            float(personal.sum()) / total,
            pooled_difference(personal - shared, tested),
            pooled_difference(label, tested),
            pooled_difference(feature, tested),
            pooled_difference(personal - both, tested),
            pooled_difference(personal - shares, tested),
            settings_of(found.share),
        )

    @property
    def shares_win(self) -> bool:
        """Whether class shares alone are better than the personal models, beyond two errors."""
        return self.beyond.value < -2 * self.beyond.error

    @property
    def sentence(self) -> str:
        """The parts in words."""
        if abs(self.gain.value) < 2 * self.gain.error or abs(self.gain.value) < 0.0005:
            told = f"{self.algorithm} has no clear gain over its shared model ({self.gain} points)"
        else:
            told = f"Of the {self.gain} points that {self.algorithm} gains over its shared model,"
        text = (
            f"{told}{'' if told.endswith(',') else ':'} {self.label} are label shift (knowing which"
            f" classes a client has), {self.feature} feature shift (centring its features) and"
            f" {self.rest} the rest."
        )
        if self.shares_win:
            text += (
                f" Class shares alone reach {100 * self.shares:.1f}%, more than its"
                f" {100 * self.personal:.1f}%: train fedavg_share."
            )
        return text

    def record(self) -> dict[str, Any]:
        """Plain numbers by name."""
        flat: dict[str, Any] = {"algorithm": self.algorithm}
        flat |= {
            name: getattr(self, name)
            for name in ("shared", "shares", "centred", "both", "personal")
        }
        for name in ("gain", *PARTS, "beyond"):
            amount = getattr(self, name)
            flat |= {name: amount.value, f"{name}_error": amount.error}
        return flat | self.settings


@dataclass(frozen=True, repr=False)
class Decomposition(Result):
    """The gains of some algorithms in parts; prints itself.

    >>> import fedasym as fa
    >>> clients = fa.datasets.synthetic(alpha=1, beta=1, clients=8, seed=1)
    >>> found = fa.train("ftfa", clients, rounds=20, evaluate_every=0).decompose()
    >>> row = found["ftfa"]
    >>> parts = row.label.value + row.feature.value + row.rest.value
    >>> abs(row.gain.value - parts) < 1e-12, row.gain.value > 0
    (True, True)
    """

    parts: tuple[GainParts, ...]
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> GainParts:
        for each in self.parts:
            if each.algorithm == name:
                return each
        raise KeyError(name)

    def table(self) -> list[dict[str, Any]]:
        """One record per algorithm: accuracies, and the gain with its parts and errors."""
        return [each.record() for each in self.parts]

    def to_json(self) -> str:
        """Full precision."""
        return json.dumps({"gains": self.table(), "notes": list(self.notes)}, indent=2)

    def plot(self, path: str | Path) -> Path:
        """Draw the parts as bars to a PNG, SVG or PDF file; returns its path."""
        return write_file("draw decomposition", self, path)

    def __str__(self) -> str:
        width = max(9, *(len(each.algorithm) for each in self.parts)) + 2
        heads = ("shared", "+ shares", "personal")
        cells = ("gain", "label shift", "feature shift", "rest")
        lines = [
            f"{'algorithm':<{width}}"
            + "".join(f"{head:>10}" for head in heads)
            + "".join(f"{head:>15}" for head in cells)
        ]
        for each in self.parts:
            levels = (each.shared, each.shares, each.personal)
            amounts = (each.gain, each.label, each.feature, each.rest)
            lines.append(
                f"{each.algorithm:<{width}}"
                + "".join(f"{100 * level:>9.2f}%" for level in levels)
                + "".join(f"{amount!s:>15}" for amount in amounts)
            )
        told = "Points of accuracy on held-out samples, with standard errors over clients."
        return "\n".join([*lines, told, *(each.sentence for each in self.parts), *self.notes])

    __repr__ = __str__


def held_scores(federation: Federation, head: NDArray[Any], padding: bool = False) -> HeldScores:
    """The validation and test samples (positions) of a federation under a shared head."""
    if federation.classes is None:
        raise InvalidInput(
            "a gain is decomposed for classes, and these labels are numbers: see .clients() for"
            " who gains"
        )
    d, outputs, m = federation.dimension, federation.outputs, len(federation)
    W = np.asarray(head, float)
    sums, by_class = np.zeros((m, d)), np.zeros((outputs, d))
    counts = np.zeros((m, outputs))
    rows: list[tuple[Array, NDArray[np.intp], NDArray[np.intp], Flags]] = []
    for place, name in enumerate(federation.clients):
        X, labels = positions_of(federation, federation.rows(name, "train"), padding)
        if len(labels):
            which = np.eye(outputs)[labels]
            sums[place] = X.sum(0)
            by_class += which.T @ X
            counts[place] = which.sum(0)
        for split in ("validation", "test"):
            X, labels = positions_of(federation, federation.rows(name, split), padding)
            scores = X @ W[:d] + (W[d] if len(W) > d else 0.0)
            chooses = np.full(len(labels), split == "validation")
            rows.append((scores, labels, np.full(len(labels), place), chooses))
    means = by_class / np.maximum(counts.sum(0), 1)[:, None]
    shifts = (sums - counts @ means) @ W[:d]
    scores, labels, owner, chooses = (np.concatenate(each) for each in zip(*rows, strict=True))
    return HeldScores(scores, labels, owner, chooses, counts, shifts)


def positions_of(
    federation: Federation, rows: NDArray[np.integer], padding: bool
) -> tuple[Array, NDArray[np.intp]]:
    """Features and labels of some samples; the positions of sequences count one by one."""
    X = federation.features[rows].reshape(-1, federation.dimension).astype(float)
    labels = federation.labels[rows].ravel().astype(np.intp)
    if federation.mask is None or padding:
        return X, labels
    real = federation.mask[rows].ravel()
    return X[real], labels[real]


def count_labels(federation: Federation, padding: bool) -> tuple[Array, Array]:
    """(clients, classes) labels of training samples, and of those held out."""
    counts = np.zeros((2, len(federation), federation.outputs))
    real = np.ones(federation.labels.shape, dtype=bool)
    if federation.mask is not None and not padding:
        real = federation.mask
    axes = (slice(None), *(None,) * (federation.labels.ndim - 1))
    side, owner = (
        np.broadcast_to(each[axes], real.shape) for each in (federation.split > 0, federation.owner)
    )
    sides = side[real].astype(np.intp)
    owners = np.asarray(owner[real], np.intp)
    np.add.at(counts, (sides, owners, np.asarray(federation.labels[real], np.intp)), 1)
    return counts[0], counts[1]


def join_parts(name: str, found: Sequence[tuple[Corrections, Array]]) -> GainParts:
    """Several runs of one algorithm: means by client over runs, so that errors are over clients."""
    total, personal = found[0]
    for more, right in found[1:]:
        total, personal = total.plus(more), personal + right
    many = len(found)
    mean = total._replace(
        shared=total.shared / many,
        shares=total.shares / many,
        centred=total.centred / many,
        both=total.both / many,
        tested=total.tested / many,
    )
    return GainParts.of(name, mean, personal / many)
