"""The scale of the features: the curvature of the loss along them, steps that it lets be stable, and columns out of scale.

Gradient steps on half the squared error of a client are stable below 2/L, with L the largest eigenvalue of the second moments
X'X/n, the column of ones of an intercept included; a softmax has at most half that curvature. Batches of B of n samples see
the curvature with a noise of about (1/B - 1/n) tr X'X/n, which counts in full: a step of 1/L is on the safe side of both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fedasym.algorithms.penalties import Moreau
from fedasym.algorithms.registry import REGISTRY
from fedasym.core.arrays import Array
from fedasym.data.federation.federation import Federation
from fedasym.exact.clients import with_ones

PAPER_STEPS = {"server_step": 0.1, "local_step": 0.1, "inner_step": 0.05}  # right where the features' scale allows them
SOFTMAX = 0.5  # the largest eigenvalue of diag(p) - pp'
LOOKED_AT = 32  # clients, those with the longest samples first
MOST_ROWS = 2000  # of a client
EXACT = 300  # the side of a matrix whose eigenvalues are computed; above, power iterations
FAR = 30.0  # how many times the usual scale a column is to be out of scale
STABLE = (0.001, 0.01, 0.1, 0.5, 1.0, 1.5)  # of 1/L: steps to try in regression; from 2 on they diverge

_CURVATURES: WeakKeyDictionary[Federation, dict[tuple[bool, int], float]] = WeakKeyDictionary()


def curvature(federation: Federation, intercept: bool, batch: int) -> float:
    """L: the largest curvature that a client's training loss has, as batches of that size see it.

    >>> from fedasym import Federation
    >>> days = Federation.from_arrays([[0.0], [2.0]] * 2, [1.0, 2.0] * 2, list("aabb"), split=["train"] * 4)
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
    trains = federation.split == 0
    owner = federation.owner[trains]
    each = squared_norms(federation)[trains] + intercept
    counts = np.bincount(owner, minlength=len(federation.clients))
    sums = np.bincount(owner, weights=each, minlength=len(federation.clients))
    traces = np.divide(sums, counts, out=np.zeros(len(counts)), where=counts > 0)
    noise = np.maximum(1 / batch - 1 / np.maximum(counts, 1), 0.0) * traces
    largest = 0.0
    for place in np.argsort(-(traces + noise), kind="stable")[:LOOKED_AT]:
        if counts[place] == 0 or traces[place] + noise[place] <= largest:
            break  # no client that follows can have more
        x = training_rows(federation, int(place), intercept)
        largest = max(largest, largest_eigenvalue(x) + float(noise[place]))
    return largest


def squared_norms(federation: Federation) -> Array:
    """The squared length of every sample, or the mean over the positions of a sequence."""
    x = federation.features
    subscripts = "npd,npd->n" if federation.sequences else "nd,nd->n"
    total = np.einsum(subscripts, x, x, dtype=np.float64, casting="unsafe")
    return np.asarray(total / (x.shape[1] if federation.sequences else 1))


def training_rows(federation: Federation, place: int, intercept: bool) -> Array:
    """A client's training samples (or positions), with the column of ones where there is an intercept."""
    mine = slice(federation.starts[place], federation.starts[place + 1])
    x = federation.features[mine][federation.split[mine] == 0]
    return with_ones(x.reshape(-1, federation.dimension)[:MOST_ROWS].astype(np.float64), intercept)


def largest_eigenvalue(x: Array) -> float:
    """The largest eigenvalue of X'X/n, from the smaller side; of large matrices by power iterations."""
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


def stable_steps(federation: Federation, intercept: bool, batch: int, ridge: float | None) -> dict[str, float]:
    """The steps of a run that is told none: the paper's, or smaller ones where the features' scale asks for them.

    ridge: of the inner problem that `inner_step` is for; None: pFedMe's usual one.
    """
    L = curvature(federation, intercept, batch)
    usual = Moreau.settings()["ridge"].usual or 0.0
    beside = {"inner_step": usual if ridge is None else ridge}  # the penalty's curvature
    return {name: stable_step(L + beside.get(name, 0.0), most) for name, most in PAPER_STEPS.items()}


def stable_grids(names: list[str], federation: Federation, intercept: bool, batch: int) -> dict[str, dict[str, list[float]]]:
    """The paper's grids with steps for the features' scale.

    In regression steps are multiples of 1/L below the 2/L where they diverge; with classes, the paper's, scaled down where
    L asks for it. A server step that is relative to a penalty, as pFedMe's, stays.
    """
    L = curvature(federation, intercept, batch)
    factor = stable_step(L / 10) if L > 10 else 1.0

    def steps(values: list[float]) -> list[float]:
        if federation.classes is None:
            return [float(f"{each * stable_step(L):.2g}") for each in STABLE[-len(values) :]]
        return [float(f"{each * factor:.2g}") for each in values]

    def grid(name: str, axes: Mapping[str, list[float]]) -> dict[str, list[float]]:
        moved = ("local_step",) if REGISTRY[name].server.relative_step else ("server_step", "local_step")
        return {axis: steps(list(values)) if axis in moved else list(values) for axis, values in axes.items()}

    return {name: grid(name, REGISTRY[name].default_grid()) for name in names}


def columns_out_of_scale(federation: Federation) -> dict[str, float]:
    """The columns whose training values are far larger than the others' (and than 1), largest first: name and usual size."""
    sizes = column_sizes(federation)
    usual = max(1.0, float(np.sort(sizes)[(len(sizes) - 1) // 2]) if len(sizes) > 1 else 0.0)
    names = federation.names or tuple(str(place) for place in range(len(sizes)))
    far = [place for place in np.argsort(-sizes, kind="stable") if sizes[place] > FAR * usual]
    return {names[place]: float(sizes[place]) for place in far}


def column_sizes(federation: Federation) -> NDArray[np.float64]:
    """The root of the mean square of each column over training samples."""
    x = federation.features[federation.split == 0].reshape(-1, federation.dimension)
    squares = np.einsum("nd,nd->d", x, x, dtype=np.float64, casting="unsafe")
    return np.asarray(np.sqrt(squares / max(len(x), 1)))
