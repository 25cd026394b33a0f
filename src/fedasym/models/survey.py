"""A double of clients that keep their samples: they send sums, twice, and a server adds them up.

A client's first answer tells its classes' sums; from those of all clients the server makes
coordinates and a shared model, which it tells everybody (`Survey`). The second answer tells sums in
these coordinates, and how well the shared model and personal ones do at the client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array, plural
from fedasym.data.federation import Federation, check_federation
from fedasym.exact.held_out import LEAST_HELD, HeldOut, solve_pooled
from fedasym.models.doubles import (
    LEAST_CLIENTS,
    Double,
    FlatRows,
    HeterogeneityCard,
    calibrate,
    class_shifts,
    probe_unit,
    read_rows,
    score_probes,
    spread_clients,
    summarise_probes,
)
from fedasym.models.laws import ClassLaws, Scales
from fedasym.models.sums import (
    CellMeans,
    ClassSums,
    EffectSums,
    Frame,
    SampleSums,
    ShapeSums,
    add_effects,
    add_sums,
)


@dataclass(frozen=True, eq=False)
class FirstAnswer:
    """What a client sends first: sums over its training samples, its numbers of samples for
    training, validation and test, (3,), and those of each class, (K,).
    """

    sums: ClassSums
    sizes: NDArray[np.intp]
    counts: Array
    classes: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class SecondAnswer:
    """What a client sends to a survey: sums in its coordinates over training and over held-out
    samples, and how well the probes do at it; NaN where it has no held-out samples.
    """

    samples: tuple[SampleSums, SampleSums]
    distances: Array
    effects: EffectSums
    shapes: ShapeSums
    probes: Array


def send_sums(client: Federation) -> FirstAnswer:
    """What one client sends so that a double can be made without its samples."""
    rows, classes = read_client(client)
    train = rows.split == 0
    K = len(classes)
    cells = CellMeans.of(np.asarray(rows.x[train], float), rows.y[train], rows.owner[train], K)
    sizes = np.bincount(rows.split, minlength=3).astype(np.intp)
    return FirstAnswer(cells.sums, sizes, np.bincount(rows.y, minlength=K).astype(float), classes)


def read_client(client: Federation) -> tuple[FlatRows, tuple[Any, ...]]:
    """The samples of a federation that is one client's, and its classes."""
    check_federation(client)
    if len(client) != 1:
        raise InvalidInput(
            f"the federation has {plural(len(client), 'client')}: sums are sent by one client at a"
            " time; with all samples at one place, give the federation to fa.resemble"
        )
    if client.classes is None:
        raise InvalidInput(
            "the labels are numbers: a double from sums is made of classes; give all samples to"
            " fa.resemble"
        )
    rows = read_rows(client)
    if not np.any(rows.split == 0):
        raise InvalidInput(f"client {client.clients[0]!r} has no training samples: leave it out")
    return rows, client.classes


@dataclass(frozen=True, eq=False)
class Survey:
    """How a server makes a double of clients that keep their samples: it adds up first answers,
    tells all clients the coordinates and the shared model, and adds up second answers.

    A double that is made so has mixtures, never coordinates of samples. It is the one that
    `resemble(..., coordinates="mixtures")` makes of all samples at one place.

    theta, unit, origin: the pooled least-squares model, the unit of ridges, and the centre and the
    level of the intercept's column. probed: the places of clients on which probes are compared.

    >>> import fedasym as fa
    >>> all = fa.datasets.synthetic(
    ...     task="classification", classes=3, centre=3, radius=2, clients=12, dimension=8, seed=1
    ... )
    >>> clients = [
    ...     fa.Federation.from_arrays(
    ...         all.features[rows],
    ...         all.labels[rows],
    ...         all.owner[rows],
    ...         split=all.split[rows],
    ...         classes=3,
    ...     )
    ...     for rows in map(all.rows, all.clients)
    ... ]
    >>> survey = Survey.of([send_sums(client) for client in clients])
    >>> double = survey.resemble([survey.answer(client) for client in clients])
    >>> double.resamples
    False
    """

    frame: Frame
    theta: Array
    unit: float
    origin: tuple[Array, float]
    probed: NDArray[np.intp]
    sizes: NDArray[np.intp]
    counts: Array
    classes: tuple[Any, ...]

    @classmethod
    def of(cls, answers: Sequence[FirstAnswer]) -> Survey:
        """From the first answers of all clients."""
        if len(answers) < LEAST_CLIENTS:
            raise InvalidInput(
                f"{plural(len(answers), 'client')} sent sums: how clients differ takes at least"
                f" {LEAST_CLIENTS}"
            )
        told = {each.classes for each in answers} | {each.sums.totals.shape for each in answers}
        if len(told) != 2:
            raise InvalidInput(
                "clients have different classes or numbers of features: all must use the same"
                " list of classes and the same columns"
            )
        sizes = np.stack([each.sizes for each in answers])
        if sizes[:, 1:].sum() < LEAST_HELD:
            raise InvalidInput(
                f"clients have {int(sizes[:, 1:].sum())} held-out samples in all: a survey takes at"
                f" least {LEAST_HELD} for validation or test"
            )
        probed = spread_clients(len(answers))
        some: ClassSums = add_sums([answers[place].sums for place in probed])
        gram, cross, origin = pool_sums(some)
        return cls(
            Frame.of(add_sums([each.sums for each in answers])),
            solve_pooled(gram, cross),
            probe_unit(gram, sizes[probed, 0]),
            origin,
            probed,
            sizes,
            np.stack([each.counts for each in answers]),
            answers[0].classes,
        )

    def answer(self, client: Federation) -> SecondAnswer:
        """What a client sends, of all its samples."""
        rows, classes = read_client(client)
        if classes != self.classes:
            raise InvalidInput("the client's classes are not those of the survey")
        x = np.asarray(rows.x, float) - self.frame.mean
        train = rows.split == 0
        K = len(classes)
        owner = np.zeros(len(x), np.intp)
        z = x @ self.frame.turn
        parts = self.frame.read_samples(z, rows.y, owner, train)
        first, second = (self.frame.add_samples(*part) for part in parts)
        cells = CellMeans.of(np.asarray(rows.x[train], float), rows.y[train], rows.owner[train], K)
        board = HeldOut.of(*rows, K, origin=self.origin, left_out=False)
        return SecondAnswer(
            (first, second),
            self.frame.measure_distances(x, rows.y, train),
            cells.measure_effects(self.frame, 1),
            self.frame.add_shapes(z[train], rows.y[train], owner[train], parts[0][0]),
            score_probes(board, self.theta, self.unit)[:, 0],
        )

    def resemble(self, answers: Sequence[SecondAnswer]) -> Double:
        """The double, from the second answers of the same clients in the same order."""
        if len(answers) != len(self.sizes):
            raise InvalidInput(
                f"{plural(len(answers), 'client')} answered, and {len(self.sizes)} sent sums: all"
                " that sent sums must answer, in the same order"
            )
        goal, covariance = summarise_probes(
            np.stack([answers[place].probes for place in self.probed], axis=1)
        )
        samples = [add_sums([each.samples[part] for each in answers]) for part in (0, 1)]
        distances = np.sum([each.distances for each in answers], axis=0)
        effects = add_effects([each.effects for each in answers])
        shapes = add_sums([each.shapes for each in answers])
        laws = ClassLaws.from_sums(
            self.frame, samples, distances, effects, shapes, self.counts.astype(np.intp)
        )
        shifts = class_shifts(laws)
        card = HeterogeneityCard(
            "classification", len(self.sizes), int(self.sizes.sum()), *shifts, {}, {}, laws.distinct
        )
        return calibrate(
            Double(
                laws,
                self.classes,
                self.sizes,
                self.counts,
                Scales(),
                True,
                None,
                goal,
                covariance,
                card,
            )
        )


def pool_sums(sums: ClassSums) -> tuple[Array, Array, tuple[Array, float]]:
    """X'X and X'Y of all training samples, centred and with a column for the intercept, and their
    origin: the centre, and the level of that column.
    """
    N = float(sums.counts.sum())
    centre = sums.totals.sum(0) / N
    moment = sums.within + sums.between - N * np.outer(centre, centre)
    level = float(np.sqrt(max(np.trace(moment), 0.0) / (N * len(centre)))) or 1.0
    gram = np.zeros((len(centre) + 1, len(centre) + 1))
    gram[:-1, :-1] = moment
    gram[-1, -1] = N * level**2
    cross = np.vstack([(sums.totals - sums.counts[:, None] * centre).T, level * sums.counts])
    return gram, cross, (centre, level)
