"""Which steps converge on the features' scale, and how far training is from the exact solution of
what it minimises.

Gradient steps on half the squared error of a client are stable below 2/L, with L the largest
eigenvalue of the second moments X'X/n, the column of ones of an intercept included; a softmax has
at most half that curvature. Batches of B of n samples see the curvature with a noise of about (1/B
- 1/n) tr X'X/n, which counts in full: a step of 1/L is on the safe side of both.

FedAvg minimises the squared error of all training samples together, a client on its own that of its
samples, fine-tuning the same from the shared head on, and ridge-tuning with a penalty on the
distance from it: least squares, whose minima are known. What is compared is the loss on training
samples, in units of half the variance of the labels: an excess of 1 % is as if the model left 1 %
of the labels' variance unexplained that it could explain.

One round of sums finds two things without any step: the ridge head of all samples, which needs X'X
and X'Y alone, whoever holds which samples (AFL, He et al. 2025; Fed3R, Fani et al. 2024); and the
first models of clusters, from clients' gradients at the first shared model, which are told apart by
their angles (Sattler et al. 2020) and averaged. Random starts, as in the first experiments with
IFCA, often give two clusters one model for ever, and ask for many runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fedasym.algorithms import Algorithm, Objective
from fedasym.algorithms.paper import USUAL_PENALTY
from fedasym.algorithms.registry import REGISTRY
from fedasym.core.numbers import Array
from fedasym.data.federation import Federation
from fedasym.data.shards import BLOCK_BYTES, ShardedFederation, map_blocks, sum_blocks
from fedasym.data.splits import START, Integers, Words, mix_hash
from fedasym.exact.clients import append_ones
from fedasym.exact.outputs import GramSums, group_by_angle
from fedasym.training.settings import Protocol, Settings
from fedasym.training.twin import Head, batch_of, first_head, gradient, personal_rows

# right where the features' scale allows them
PAPER_STEPS = {"server_step": 0.1, "local_step": 0.1, "inner_step": 0.05}
SOFTMAX = 0.5  # the largest eigenvalue of diag(p) - pp'
LOOKED_AT = 32  # clients, those with the longest samples first
MOST_ROWS = 2000  # of a client
EXACT = 300  # the side of a matrix whose eigenvalues are computed; above, power iterations
FAR = 30.0  # how many times the usual scale a column is to be out of scale
ROWS = 20_000  # of samples whose products are summed at a time
ASKED = 256  # clients whose gradients tell clusters apart, at most
# of 1/L: steps to try in regression; from 2 on they diverge
STABLE = (0.001, 0.01, 0.1, 0.5, 1.0, 1.5)

_CURVATURES: WeakKeyDictionary[Federation, dict[tuple[bool, int], float]] = WeakKeyDictionary()


def curvature(federation: Federation, intercept: bool, batch: int) -> float:
    """L: the largest curvature that a client's training loss has, as batches of that size see it.

    >>> from fedasym import Federation
    >>> days = Federation.from_arrays(
    ...     [[0.0], [2.0]] * 2, [1.0, 2.0] * 2, list("aabb"), split=["train"] * 4
    ... )
    >>> curvature(days, intercept=False, batch=32)
    2.0
    """
    kept = _CURVATURES.setdefault(federation, {})
    if (intercept, batch) not in kept:
        loss = SOFTMAX if federation.classes else 1.0
        kept[intercept, batch] = loss * largest_moment(federation, intercept, batch)
    return kept[intercept, batch]


def largest_moment(federation: Federation, intercept: bool, batch: int) -> float:
    """The largest eigenvalue of a client's second moments, and the noise of its batches."""
    counts = federation.counts("train")
    sums = federation.training_squares() + intercept * counts
    traces = np.divide(sums, counts, out=np.zeros(len(counts)), where=counts > 0)
    noise = np.maximum(1 / batch - 1 / np.maximum(counts, 1), 0.0) * traces
    largest = 0.0
    for place in np.argsort(-(traces + noise), kind="stable")[:LOOKED_AT]:
        if counts[place] == 0 or traces[place] + noise[place] <= largest:
            break  # no client that follows can have more
        x = training_rows(federation.take([place]), intercept)
        largest = max(largest, largest_eigenvalue(x) + float(noise[place]))
    return largest


def training_rows(federation: Federation, intercept: bool) -> Array:
    """The training samples (or positions), with a column of ones for an intercept."""
    x = federation.features[federation.split == 0]
    return append_ones(
        x.reshape(-1, federation.dimension)[:MOST_ROWS].astype(np.float64), intercept
    )


def largest_eigenvalue(x: Array) -> float:
    """The largest eigenvalue of X'X/n, from the smaller side; large ones by power iterations."""
    n, d = x.shape
    if min(n, d) <= EXACT:
        small = x @ x.T if n < d else x.T @ x
        return float(np.linalg.eigvalsh(small)[-1] / n)
    v = x.T @ x.sum(1)
    for _ in range(30):
        v = x.T @ (x @ (v / max(float(np.linalg.norm(v)), 1e-300)))
    return float(np.linalg.norm(v) / n)


def stable_step(L: float, most: float = math.inf) -> float:
    """1/L to two digits, rounded down, and no more than `most`.

    >>> stable_step(28.5), stable_step(28.5, most=0.01), stable_step(0.0, most=0.1)
    (0.035, 0.01, 0.1)
    """
    if not L > 1e-300:
        return min(most, 1.0)
    step = 1 / L
    unit = 10.0 ** (math.floor(math.log10(step)) - 1)
    return min(float(f"{math.floor(step / unit * (1 + 1e-12)) * unit:.2g}"), most)


def stable_steps(
    federation: Federation, intercept: bool, batch: int, ridge: float | None
) -> dict[str, float]:
    """The steps of a run that is told none: the paper's, or smaller ones where the features' scale
    asks for them.

    ridge: of the inner problem that `inner_step` is for; None: pFedMe's usual one.
    """
    return steps_below(curvature(federation, intercept, batch), ridge)


def steps_below(L: float, ridge: float | None) -> dict[str, float]:
    """Steps that a curvature allows, none above the paper's.

    >>> steps_below(23.0, ridge=0.1)
    {'server_step': 0.043, 'local_step': 0.043, 'inner_step': 0.043}
    """
    beside = {"inner_step": USUAL_PENALTY if ridge is None else ridge}  # the penalty's curvature
    return {
        name: stable_step(L + beside.get(name, 0.0), most) for name, most in PAPER_STEPS.items()
    }


def stable_grids(
    names: list[str], federation: Federation, intercept: bool, batch: int
) -> dict[str, dict[str, list[float]]]:
    """The paper's grids with steps for the features' scale.

    In regression steps are multiples of 1/L below the 2/L where they diverge; with classes, the
    paper's, scaled down where L asks for it. A server step that is relative to a penalty, as
    pFedMe's, stays.
    """
    L = curvature(federation, intercept, batch)
    factor = stable_step(L / 10) if L > 10 else 1.0

    def steps(values: list[float]) -> list[float]:
        if federation.classes is None:
            return [float(f"{each * stable_step(L):.2g}") for each in STABLE[-len(values) :]]
        return [float(f"{each * factor:.2g}") for each in values]

    def grid(name: str, axes: Mapping[str, list[float]]) -> dict[str, list[float]]:
        moved = (
            ("local_step",)
            if REGISTRY[name].server.relative_step
            else ("server_step", "local_step")
        )
        return {
            axis: steps(list(values)) if axis in moved else list(values)
            for axis, values in axes.items()
        }

    return {name: grid(name, REGISTRY[name].default_grid()) for name in names}


def columns_out_of_scale(federation: Federation) -> dict[str, float]:
    """Columns with training values far above the others' (and 1), largest first: name, size."""
    sizes = column_sizes(federation)
    usual = max(1.0, float(np.sort(sizes)[(len(sizes) - 1) // 2]) if len(sizes) > 1 else 0.0)
    names = federation.names or tuple(str(place) for place in range(len(sizes)))
    far = [place for place in np.argsort(-sizes, kind="stable") if sizes[place] > FAR * usual]
    return {names[place]: float(sizes[place]) for place in far}


def column_sizes(federation: Federation) -> NDArray[np.float64]:
    """The root of the mean square of each column over training samples."""
    squares, count = np.zeros(federation.dimension), 0
    for sums, rows in map_blocks(federation, column_squares):
        squares, count = squares + sums, count + rows
    return np.asarray(np.sqrt(squares / max(count, 1)))


def column_squares(block: Federation) -> tuple[NDArray[np.float64], int]:
    """The sums of squares of each column over training samples, and how many there are."""
    x = block.features[block.split == 0].reshape(-1, block.dimension)
    return np.einsum("nd,nd->d", x, x, dtype=np.float64, casting="unsafe"), len(x)


NEAR = 0.01  # an excess up to here is as good as none
WIDEST = 2001  # rows of a head whose exact solution is worth its time
WORK, MEMORY = 4e9, 1e8  # multiplications and numbers that it may take


@dataclass(frozen=True)
class Exact:
    """What the exact solutions reach on training samples: mean losses, NaN where an algorithm has
    no exact solution.

    loss: of the personal models, given the shared one. shared_loss: of the shared model. spread:
    half the labels' variance.
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


_CLIENTS: WeakKeyDictionary[Federation, dict[object, tuple[Own, ...]]] = WeakKeyDictionary()
_POOLED: WeakKeyDictionary[Federation, dict[bool, float]] = WeakKeyDictionary()


def solve_exactly(
    algorithm: Algorithm,
    settings: Settings,
    protocol: Protocol,
    seed: int,
    federation: Federation,
    shared: Head | None,
) -> Exact | None:
    """The losses of the exact solutions; None where there are none, or where they take too long."""
    known = (
        (Objective.NOTHING, Objective.POOLED),
        (Objective.SHARED, Objective.OWN, Objective.PENALISED),
    )
    shared_objective, objective = (stage.objective for stage in algorithm.stages)
    if shared_objective not in known[0] or objective not in known[1]:
        return None
    if not is_cheap(federation, protocol.intercept):
        return None
    if isinstance(federation, ShardedFederation):
        federation = federation.take(range(len(federation)))
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
    """Whether exact solutions are cheap: values to predict, a row per sample, not too many."""
    if federation.classes is not None or federation.sequences:
        return False
    if isinstance(federation, ShardedFederation) and federation.bytes > BLOCK_BYTES:
        return False  # it would not fit where a block does
    d = federation.dimension + intercept
    counts = federation.counts("train").astype(float)
    narrow = np.minimum(counts, d)
    work = counts.sum() * d * min(d, counts.sum()) + (counts * d * narrow).sum()
    fits = work <= WORK and (counts * (d + narrow)).sum() <= MEMORY
    return bool(d <= WIDEST and counts.any() and fits)


def clients_of(federation: Federation, intercept: bool, alone: bool) -> tuple[Own, ...]:
    """The clients that train; `alone`: where nothing is shared, all weights are their own."""
    kept = _CLIENTS.setdefault(federation, {})
    rows = None if alone else personal_rows(federation, intercept)
    key = (intercept, rows is None)
    if key not in kept:
        kept[key] = tuple(
            own_samples(federation, client, intercept, rows)
            for client, n in zip(federation.clients, federation.counts("train"), strict=True)
            if n > 0
        )
    return kept[key]


def own_samples(
    federation: Federation, client: object, intercept: bool, rows: NDArray[np.bool_] | None
) -> Own:
    """One client."""
    mine = federation.rows(client, "train")
    X = append_ones(federation.features[mine].astype(np.float64), intercept)
    U, s, _ = np.linalg.svd(X if rows is None else X[:, rows[:, 0]], full_matrices=False)
    real = s > s.max(initial=0.0) * max(X.shape) * np.finfo(float).eps
    return Own(X, federation.labels[mine], U[:, real], s[real])


def personal_minimum(own: Own, W: Array, pull: float) -> float:
    """The least sum of |u - X delta|^2 / (2 n) + pull |delta|^2 / 2, u being what W leaves."""
    n = len(own.y)
    u = own.y - own.X @ W
    explained = own.s**2 / (own.s**2 + n * pull)
    left = u - own.U @ (explained[:, None] * (own.U.T @ u))
    return float((left**2).sum() / 2)


def pooled_minimum(federation: Federation, intercept: bool) -> float:
    """The least mean loss of one head for all training samples together."""
    kept = _POOLED.setdefault(federation, {})
    if intercept not in kept:
        trains = federation.split == 0
        X = append_ones(federation.features[trains].astype(np.float64), intercept)
        y = federation.labels[trains]
        size = np.sqrt((X**2).sum(0))
        X = X / np.where(size > 0, size, 1.0)  # columns of any scale
        left = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
        kept[intercept] = float((left**2).sum() / (2 * len(y)))
    return kept[intercept]


def spread_of(federation: Federation) -> float:
    """Half the variance of the training labels, or of their squares where they are all alike."""
    y = federation.labels[federation.split == 0]
    spread = float(((y - y.mean(0)) ** 2).sum() / (2 * len(y)))
    return spread or float((y**2).sum() / (2 * len(y))) or 1.0


def pooled_sums(federation: Federation, protocol: Protocol) -> GramSums:
    """The sums of products of all training samples (or positions that count); classes as 0 and 1.

    >>> from fedasym.training.settings import TEXT
    >>> pair = Federation.from_arrays(
    ...     np.eye(4), [0.0, 1.0] * 2, clients=list("aabb"), split=[0] * 4, intercept=False
    ... )
    >>> pooled_sums(pair, TEXT).solve(shared_ridge=0.25).ravel().round(12).tolist()
    [0.0, 0.5, 0.0, 0.5]
    """
    total: GramSums = sum_blocks(federation, add_up_products, protocol)
    return total


def add_up_products(block: Federation, protocol: Protocol) -> GramSums:
    """The sums of products of some clients."""
    side = block.dimension + protocol.intercept
    gram, cross, count = np.zeros((side, side)), np.zeros((side, block.outputs)), 0
    rows = np.flatnonzero(block.split == 0)
    for first in range(0, len(rows), ROWS):
        part = rows[first : first + ROWS]
        D = batch_of(block, part, protocol.intercept, protocol.count_padding, np.float64)
        real = D.weights > 0
        X, Y = D.X[real], D.Y[real]
        gram, cross, count = gram + X.T @ X, cross + X.T @ Y, count + len(X)
    return GramSums(count, gram, cross, protocol.intercept)


def cluster_starts(
    federation: Federation, protocol: Protocol, seed: int, clusters: int
) -> list[Array]:
    """First models of so many clusters: a step from the first shared model, along the mean gradient
    of clients whose gradients point the same way.
    """
    W = np.asarray(first_head(federation, protocol, seed, np.float64))
    counts = federation.counts("train")
    asked = federation.take(choose_asked(seed, federation.identities, counts))
    steepest = curvature(federation, protocol.intercept, int(counts.max()))
    return start_clusters(W, first_gradients(W, asked, protocol), steepest, clusters)


def choose_asked(seed: int, identities: Words, counts: Integers) -> NDArray[np.intp]:
    """The clients whose gradients tell clusters apart, by their places, in the order of hashes."""
    order = np.argsort(mix_hash(seed, START, identities), kind="stable")
    return np.asarray(order[counts[order] > 0][:ASKED])


def first_gradients(W: Head, asked: Federation, protocol: Protocol) -> Array:
    """Each client's mean gradient at the first shared model, a row for each."""
    told = (protocol.intercept, protocol.count_padding, np.float64)
    rows = (asked.rows(name, "train") for name in asked.clients)
    return np.stack([gradient(W, batch_of(asked, each, *told)).ravel() for each in rows])


def start_clusters(W: Head, gradients: Array, steepest: float, clusters: int) -> list[Array]:
    """A step from W for each group of gradients; steepest: the clients' largest curvature."""
    groups = group_by_angle(gradients - gradients.mean(0), min(clusters, len(gradients)))
    means = [gradients[groups == place].mean(0) for place in range(groups.max() + 1)]
    means += [gradients[place % len(gradients)] for place in range(clusters - len(means))]
    step = stable_step(steepest)
    return [np.asarray(W - step * mean.reshape(W.shape), np.float64) for mean in means]
