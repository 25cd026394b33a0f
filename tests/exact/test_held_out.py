"""Scores of exact heads: the same as fits by another route, and as refits without a sample."""

import numpy as np
import pytest
from scipy.linalg import block_diag

import fedasym as fa
from fedasym.algorithms import find
from fedasym.exact.held_out import HeldOut

RNG = np.random.default_rng(0)
CLIENTS, SAMPLES, FEATURES = 6, 20, 4
OWNER = np.repeat(np.arange(CLIENTS), SAMPLES)
X = RNG.standard_normal((CLIENTS * SAMPLES, FEATURES)) + 0.3
THETA = RNG.standard_normal((CLIENTS, FEATURES)) / 2 + 1
Y = np.einsum("nd,nd->n", X, THETA[OWNER]) + 0.3 * RNG.standard_normal(len(X))
SPLIT = np.tile(np.repeat([0, 1, 2], [12, 4, 4]), CLIENTS)
TRAIN = SPLIT == 0


def board(labels=Y[:, None], split=SPLIT, classes=None):
    return HeldOut.of(X, labels, OWNER, split, classes, intercept=False)


@pytest.mark.parametrize(
    "algorithm",
    [
        fa.Algorithm("rtfa here", find("rtfa").server, fa.algorithms.Ridge(0.3)),
        fa.Algorithm("pfedme here", find("pfedme").server, fa.algorithms.Ridge(0.3)),
        fa.Algorithm("local here", find("local").server, fa.algorithms.Ridge(0.3)),
        fa.Algorithm("maml here", fa.algorithms.Meta(0.05), fa.algorithms.Descend(0.1, 3)),
        fa.algorithms.find("fedavg"),
        fa.algorithms.find("fedprox"),
    ],
    ids=lambda each: each.name,
)
def test_a_score_is_that_of_the_exact_fit(algorithm):
    fit = fa.linear.fit(
        algorithm, X[TRAIN], Y[TRAIN], OWNER[TRAIN].tolist(), ridge=0.3, intercept=False
    )
    test = SPLIT == 2
    told = fit.predict(X[test], client=OWNER[test].tolist())
    errors = [np.mean((told - Y[test])[OWNER[test] == i] ** 2) for i in range(CLIENTS)]
    assert board().score(algorithm) == pytest.approx(errors, rel=1e-4)


def test_open_settings_are_chosen_on_validation_samples():
    tried = {
        ridge: fa.Algorithm("r", find("rtfa").server, fa.algorithms.Ridge(ridge))
        for ridge in np.geomspace(1e-3, 1e3, 13) * board().scale
    }
    seen = {ridge: np.nanmean(next(board()._try(each))[0, :, 0]) for ridge, each in tried.items()}
    best = min(seen, key=seen.get)
    assert board().score(find("rtfa")) == pytest.approx(board().score(tried[best]))


def test_without_held_out_samples_each_is_left_out():
    """Of a client alone, the short cut is the refit without the sample, one by one."""
    left = board(split=np.zeros_like(SPLIT))
    assert left.left_out
    ridge = 0.2
    found = left.curve(None, [lambda x: x / (x + ridge)])[0, :, 0]
    for client in range(CLIENTS):
        rows, labels = X[OWNER == client], Y[OWNER == client]
        squares = []
        for out in range(SAMPLES):
            kept = np.arange(SAMPLES) != out
            gram = rows[kept].T @ rows[kept] + SAMPLES * ridge * np.eye(FEATURES)
            model = np.linalg.solve(gram, rows[kept].T @ labels[kept])
            squares.append((labels[out] - rows[out] @ model) ** 2)
        assert found[client] == pytest.approx(np.mean(squares), rel=1e-9)


def test_leaving_samples_out_of_the_shared_model_too():
    left = board(split=np.zeros_like(SPLIT))
    found = left.curve(left.pooled, [np.zeros_like])[0, :, 0].mean()
    errors = []
    for out in range(len(X)):
        kept = np.arange(len(X)) != out
        model = np.linalg.lstsq(X[kept], Y[kept], rcond=None)[0]
        errors.append((Y[out] - X[out] @ model) ** 2)
    assert found == pytest.approx(np.mean(errors), rel=1e-4)


def test_classes_are_one_hot_outputs():
    codes = (Y > Y.mean()).astype(int) + (Y > Y.mean() + 1)
    found = board(codes, classes=3).score(find("fedavg"))
    model = np.linalg.lstsq(X[TRAIN], np.eye(3)[codes[TRAIN]], rcond=None)[0]
    right = (X @ model).argmax(1) == codes
    by_client = [right[(OWNER == i) & (SPLIT == 2)].mean() for i in range(CLIENTS)]
    assert found == pytest.approx(by_client)


def test_a_weighted_shared_model_solves_its_normal_equations():
    weight = lambda x: 1 / (1 + x)  # noqa: E731
    found = board().solve_weighted(weight)[:, 0]
    rows = [X[TRAIN & (OWNER == i)] for i in range(CLIENTS)]
    W = block_diag(*[np.linalg.inv(np.eye(len(A)) + A @ A.T / len(A)) for A in rows])
    A, y = np.concatenate(rows), Y[TRAIN]
    assert found == pytest.approx(np.linalg.solve(A.T @ W @ A, A.T @ W @ y), rel=1e-4)
