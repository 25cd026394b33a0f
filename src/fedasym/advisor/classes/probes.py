"""What the samples themselves say, without a model of how clients differ: least-squares classifiers in closed form.

Around the others' model theta^(-i), a client's ridge fit with ratio c = ridge x n leaves of a sample that is itself left out
e_j/(1 - h_j), with e = (I - A) about and A = U diag(x/(x+c)) U': no fit is made twice. Held-out samples are predicted as they
stand. Accuracies are means over clients, each counting alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedasym.advisor.classes.intake import Coding
from fedasym.advisor.classes.pooling import Client
from fedasym.advisor.covariance import spread
from fedasym.core.arrays import Array

POINTS = 15
ROWS = 400  # samples of a client that are predicted, evenly spread: more would say the same
SPAN = 1e3  # ratios from the samples' own scale over this to the scale times this; the last is infinite


@dataclass(frozen=True, eq=False)
class Curve:
    """Right answers of each client along the ratios, (clients, ratios), as shares of `count` samples; NaN without any."""

    right: Array
    count: Array

    @property
    def used(self) -> Array:
        """The clients that have samples."""
        return np.asarray(self.right[self.count > 0])

    @property
    def mean(self) -> Array:
        """Over clients."""
        return np.asarray(self.used.mean(0)) if len(self.used) else np.full(self.right.shape[1], np.nan)

    def at(self, place: int) -> tuple[float, float]:
        """Mean accuracy at a ratio and its standard error over clients."""
        values = self.used[:, place]
        return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))

    def gain(self, place: int, over: int) -> tuple[float, float]:
        """How much more accurate one ratio is than another, and the standard error of that."""
        paired = self.used[:, place] - self.used[:, over]
        return float(paired.mean()), float(paired.std(ddof=1) / np.sqrt(len(paired)))


@dataclass(frozen=True, eq=False)
class Probes:
    """Accuracies along `ratios` (ridge x samples) around the others' model and around nothing: left out and held out."""

    ratios: Array
    shared: Curve
    alone: Curve
    shared_held: Curve
    alone_held: Curve

    @property
    def holds(self) -> bool:
        """Whether enough clients hold samples out to speak of an accuracy."""
        return int((self.shared_held.count > 0).sum()) >= 4

    def measured(self, alone: bool) -> Curve:
        """Held-out samples where there are any, otherwise each sample left out."""
        if self.holds:
            return self.alone_held if alone else self.shared_held
        return self.alone if alone else self.shared

    def nearest(self, ratio: float) -> int:
        """The place of a ratio on the grid."""
        return int(np.argmin(np.abs(np.log(self.ratios[:-1] / ratio)))) if np.isfinite(ratio) else len(self.ratios) - 1


def ratios_of(energy: float, sizes: Array, dimension: int) -> Array:
    """The ratios that are tried, about the power of a client's axes; energy: the squared lengths of all samples, summed."""
    scale = energy / sizes.size / min(dimension, float(sizes.mean()))
    return np.append(scale * np.geomspace(1 / SPAN, SPAN, POINTS), np.inf)


class Probing:
    """Clients one after the other; what they say is kept, they are not."""

    def __init__(self, classes: Coding, ratios: Array) -> None:
        self.classes, self.ratios = classes, ratios
        self.kept: list[list[Array]] = [[], [], [], []]
        self.counts: list[tuple[int, int]] = []

    def add(self, client: Client, codes: Array, held: tuple[Array, Array], others: Array) -> None:
        """One client more, and the model of the others."""
        self.kept[0].append(self.left_out(client, client.about, codes))
        self.kept[1].append(self.left_out(client, client.labels, codes))
        rows = spread(len(held[1]), ROWS)
        X, answers = (part[rows] for part in held)
        self.kept[2].append(self.held(client, client.about, X, X @ others, answers))
        self.kept[3].append(self.held(client, client.labels, X, np.zeros((len(X), client.labels.shape[1])), answers))
        self.counts.append((min(len(codes), ROWS), len(answers)))

    def left_out(self, client: Client, about: Array, codes: Array) -> Array:
        """Right answers on the client's own samples, each predicted without itself."""
        along, rows = client.U.T @ about, spread(len(codes), ROWS)
        U, e, labels, answers = client.U[rows], about[rows], client.labels[rows], codes[rows]
        right = []
        for c in self.ratios:
            pull = client.x / (client.x + c) if np.isfinite(c) else np.zeros_like(client.x)
            left = (e - U @ (pull[:, None] * along)) / np.maximum(1 - U**2 @ pull, 1e-12)[:, None]
            right.append(np.mean(self.classes.guessed(labels - left) == answers))
        return np.array(right)

    def held(self, client: Client, about: Array, X: Array, start: Array, codes: Array) -> Array:
        """Right answers on held-out samples."""
        if not len(codes):
            return np.full(self.ratios.size, np.nan)
        along, across = client.U.T @ about, (X @ client.X.T) @ client.U
        right = []
        for c in self.ratios:
            weight = 1 / (client.x + c) if np.isfinite(c) else np.zeros_like(client.x)
            right.append(np.mean(self.classes.guessed(start + across @ (weight[:, None] * along)) == codes))
        return np.array(right)

    def done(self) -> Probes:
        """What all of them said."""
        own, out = np.array(self.counts).T
        curves = [Curve(np.array(rows), count) for rows, count in zip(self.kept, (own, own, out, out), strict=True)]
        return Probes(self.ratios, *curves)
