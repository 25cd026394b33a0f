"""Features that others determine: constants, and exact linear combinations of the features before them.

A model cannot tell such features apart, so the later one is left out. Columns are taken in their order and orthogonalised one
after the other (Gram and Schmidt, twice, which is enough); what is left of a combination is rounding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

TOLERANCE = 1e-8  # of a column's length that must be its own
WIDEST = 2000  # features up to which combinations are looked for
SKETCH = 1000  # rows beyond four per feature are added up in random signs first


def find_combinations(
    X: NDArray[np.float64], fixed: NDArray[np.bool_] | None = None, tolerance: float = TOLERANCE
) -> dict[int, list[int]]:
    """The columns that are combinations of earlier ones, each with those that it is made of.

    X: centred where there is an intercept. fixed: columns that stay whatever they are.

    With at least as many features as rows every further feature is a combination of the others, which says nothing of them:
    then none is looked for.

    >>> a, b = np.random.default_rng(0).standard_normal((2, 50))
    >>> find_combinations(np.stack([a, b, a - 2 * b], 1))
    {2: [0, 1]}
    """
    n, p = X.shape
    if p < 2 or p + 1 >= n or p > WIDEST:
        return {}
    fixed = np.zeros(p, bool) if fixed is None else fixed
    A = add_rows(X, 4 * p + SKETCH)
    length = np.linalg.norm(A, axis=0)
    A = A / np.where(length > 0, length, 1)
    Q = np.empty((len(A), p))
    own: list[int] = []
    found: dict[int, list[int]] = {}
    order = [*np.flatnonzero(fixed), *np.flatnonzero(~fixed)]
    for j in order:
        v = A[:, j]
        for _ in range(2):
            v = v - Q[:, : len(own)] @ (Q[:, : len(own)].T @ v)
        left = float(np.linalg.norm(v))
        if left > tolerance:
            Q[:, len(own)] = v / left
            own.append(int(j))
        elif not fixed[j]:
            found[int(j)] = find_parts(A[:, own], A[:, j], own)
    return {j: found[j] for j in sorted(found)}


def find_parts(A: NDArray[np.float64], v: NDArray[np.float64], names: list[int]) -> list[int]:
    """The columns with a weight in the combination."""
    weights = np.linalg.lstsq(A, v, rcond=None)[0]
    return sorted(names[i] for i in np.flatnonzero(np.abs(weights) > 1e-6))


def add_rows(X: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """At most so many rows: sums of rows in random signs, between which columns keep their linear relations."""
    n, p = X.shape
    if n <= 2 * most:
        return X
    signs = np.random.default_rng(0).choice((-1.0, 1.0), n)
    times = n // most
    head = (X[: times * most] * signs[: times * most, None]).reshape(times, most, p).sum(0)
    head[: n - times * most] += X[times * most :] * signs[times * most :, None]
    return np.asarray(head)
