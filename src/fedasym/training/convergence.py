"""How far training is from the exact solution of what it minimises, where squared loss has one.

FedAvg minimises the squared error of all training samples together, a client on its own that of its samples, fine-tuning the
same from the shared head on, and ridge-tuning with a penalty on the distance from it: least squares, whose minima are known.
What is compared is the loss on training samples, in units of half the variance of the labels: an excess of 1 % is as if the
model left 1 % of the labels' variance unexplained that it could explain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fedasym.algorithms import Algorithm, Objective
from fedasym.core.arrays import Array
from fedasym.data.federation.federation import Federation
from fedasym.exact.clients import with_ones
from fedasym.training.settings import Protocol, Settings
from fedasym.training.twin import first_head
from fedasym.training.twin_batches import Head, personal_rows

NEAR = 0.01  # an excess up to here is as good as none
WIDEST = 2001  # rows of a head whose exact solution is worth its time
WORK, MEMORY = 4e9, 1e8  # multiplications and numbers that it may take


@dataclass(frozen=True)
class Exact:
    """What the exact solutions reach on training samples: mean losses, NaN where an algorithm has no exact solution.

    loss: of the personal models, given the shared one. shared_loss: of the shared model. spread: half the labels' variance.
    """

    loss: float
    shared_loss: float
    spread: float


class Own(NamedTuple):
    """A client's samples as its own weights see them."""

    X: Array  # (n, d), with the column of ones
    y: Array  # (n, outputs)
    U: Array  # left singular vectors of the columns whose weights are its own
    s: Array  # and their singular values


Kept = dict[tuple[object, ...], tuple[Own, ...] | float]
_KEPT: WeakKeyDictionary[Federation, Kept] = WeakKeyDictionary()


def solve_exactly(
    algorithm: Algorithm, settings: Settings, protocol: Protocol, seed: int, federation: Federation, shared: Head | None
) -> Exact | None:
    """The losses of the exact solutions; None where there are none, or where they take too long."""
    known = (Objective.NOTHING, Objective.POOLED), (Objective.SHARED, Objective.OWN, Objective.PENALISED)
    shared_objective, objective = (stage.objective for stage in algorithm.stages)
    if shared_objective not in known[0] or objective not in known[1]:
        return None
    if not is_cheap(federation, protocol.intercept):
        return None
    alone = algorithm.shares_nothing
    pooled = float("nan") if alone else pooled_minimum(federation, protocol.intercept)
    spread = spread_of(federation)
    if objective is Objective.SHARED:
        return Exact(pooled, pooled, spread)
    W = first_head(federation, protocol, seed, np.float64) if alone or shared is None else shared
    if not np.isfinite(W).all():
        return Exact(float("nan"), pooled, spread)
    pull = protocol.penalty * (settings.ridge or 0.0) if objective is Objective.PENALISED else 0.0
    rows = clients_of(federation, protocol.intercept, alone)
    with np.errstate(over="ignore", invalid="ignore"):  # a head that is about to diverge
        total = sum(personal_minimum(own, np.asarray(W, float), pull) for own in rows)
    return Exact(total / max(sum(len(own.y) for own in rows), 1), pooled, spread)


def is_cheap(federation: Federation, intercept: bool) -> bool:
    """Whether exact solutions are at hand: values to predict, one row per sample, not too many of them."""
    if federation.classes is not None or federation.sequences:
        return False
    d, counts = federation.dimension + intercept, federation.counts("train").astype(float)
    narrow = np.minimum(counts, d)
    work = counts.sum() * d * min(d, counts.sum()) + (counts * d * narrow).sum()
    fits = work <= WORK and (counts * (d + narrow)).sum() <= MEMORY
    return bool(d <= WIDEST and counts.any() and fits)


def clients_of(federation: Federation, intercept: bool, alone: bool) -> tuple[Own, ...]:
    """The clients that train; `alone`: where nothing is shared, all weights are their own."""
    kept = _KEPT.setdefault(federation, {})
    rows = None if alone else personal_rows(federation, intercept)
    key = ("clients", intercept, rows is None)
    if key not in kept:
        kept[key] = tuple(
            client_of(federation, client, intercept, rows)
            for client, n in zip(federation.clients, federation.counts("train"), strict=True)
            if n > 0
        )
    found = kept[key]
    assert isinstance(found, tuple)
    return found


def client_of(federation: Federation, client: object, intercept: bool, rows: NDArray[np.bool_] | None) -> Own:
    """One client."""
    mine = federation.rows(client, "train")
    X = with_ones(federation.features[mine].astype(np.float64), intercept)
    U, s, _ = np.linalg.svd(X if rows is None else X[:, rows[:, 0]], full_matrices=False)
    real = s > s.max(initial=0.0) * max(X.shape) * np.finfo(float).eps
    return Own(X, federation.labels[mine], U[:, real], s[real])


def personal_minimum(own: Own, W: Array, pull: float) -> float:
    """The sum of the losses where |u - X delta|^2 / (2 n) + pull |delta|^2 / 2 is least, u being what W leaves unexplained."""
    n = len(own.y)
    u = own.y - own.X @ W
    explained = own.s**2 / (own.s**2 + n * pull)
    left = u - own.U @ (explained[:, None] * (own.U.T @ u))
    return float((left**2).sum() / 2)


def pooled_minimum(federation: Federation, intercept: bool) -> float:
    """The least mean loss of one head for all training samples together."""
    kept = _KEPT.setdefault(federation, {})
    if ("pooled", intercept) not in kept:
        trains = federation.split == 0
        X, y = with_ones(federation.features[trains].astype(np.float64), intercept), federation.labels[trains]
        size = np.sqrt((X**2).sum(0))
        X = X / np.where(size > 0, size, 1.0)  # columns of any scale
        left = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
        kept["pooled", intercept] = float((left**2).sum() / (2 * len(y)))
    found = kept["pooled", intercept]
    assert isinstance(found, float)
    return found


def spread_of(federation: Federation) -> float:
    """Half the variance of the training labels, or of their squares where they are all alike."""
    y = federation.labels[federation.split == 0]
    spread = float(((y - y.mean(0)) ** 2).sum() / (2 * len(y)))
    return spread or float((y**2).sum() / (2 * len(y))) or 1.0
