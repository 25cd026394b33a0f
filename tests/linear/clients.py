"""Clients of every shape that the estimators must fit, and what their tests share."""

import mpmath
import numpy as np
import pytest

# Name: samples of each client, and unknowns. Ragged; one sample; more samples than unknowns; fewer
# in all than unknowns.
SHAPES = {
    "many samples": ([3, 9, 1, 7, 20], 6),
    "few samples each": ([3, 4, 5, 2], 8),
    "just as many as unknowns": ([3, 4, 1], 8),
    "fewer than unknowns": ([3, 1, 4], 15),
    "one client": ([12], 4),
    "one client, few samples": ([4], 9),
    "one sample each": ([1] * 7, 4),
}
SHARED = ["fedavg", "ftfa", "rtfa", "maml", "pfedme"]
TIGHT = {"rtol": 1e-8, "atol": 1e-8}


def draw(sizes, d, seed=0, noise=0.5):
    rng = np.random.default_rng(seed)
    centre = rng.standard_normal(d)
    X = [rng.standard_normal((n, d)) for n in sizes]
    y = [
        x @ (centre + rng.standard_normal(d) / np.sqrt(d)) + noise * rng.standard_normal(len(x))
        for x in X
    ]
    return X, y


def awkward(kind, seed=0):
    """Clients whose designs do not have full rank."""
    X, y = draw([4, 9, 3, 8], 6, seed)
    match kind:
        case "duplicated rows":
            X[0][1] = X[0][0]
            X[2][:] = X[2][0]
        case "duplicated feature":
            X = [np.column_stack([x, x[:, 0]]) for x in X]
        case "zero feature":
            X = [x * (np.arange(6) != 2) for x in X]
        case "client of zeros":
            X[1] *= 0
        case "a feature of one client":
            X = [x * ((np.arange(6) != 2) | (place == 1)) for place, x in enumerate(X)]
        case "low rank":
            X[1] = (
                np.round(2 * X[1][:, :2]) @ np.round(2 * X[1][:2]) / 4
            )  # exactly: rounding would be a third direction
    return X, y


CASES = {**{name: draw(*shape) for name, shape in SHAPES.items()}}
CASES |= {
    kind: awkward(kind)
    for kind in (
        "duplicated rows",
        "duplicated feature",
        "zero feature",
        "client of zeros",
        "a feature of one client",
        "low rank",
    )
}
RAGGED = np.array([0.3, 0.5, 0.9, 0.2, 2.0, 0.7, 1.1])  # ridges that differ
every_case = pytest.mark.parametrize("case", CASES)


def weights_of(kind, X):
    sizes = np.array([len(x) for x in X], dtype=float)
    numbers = {"samples": sizes, "uniform": np.ones(len(X)), "given": np.arange(1.0, len(X) + 1)}[
        kind
    ]
    return numbers / numbers.sum()


def exact(array):
    return mpmath.matrix(np.asarray(array).tolist())
