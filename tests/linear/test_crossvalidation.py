"""Generalised cross-validation against refits without a client."""

import numpy as np
import pytest

from fedasym.algorithms import Average, Moreau, Nothing
from fedasym.exact import estimators as linear
from fedasym.exact import least_squares
from fedasym.exact.clients import Client

from .clients import CASES, TIGHT, every_case, weights_of


def refitted(server, X, y, p, ridge):
    """Each client's residuals about a shared model that was fitted again, from scratch,
    without it.
    """
    left = []
    for i in range(len(X)):
        rows, labels = [np.zeros((0, X[0].shape[1]))], [np.zeros(0)]
        for j in set(range(len(X))) - {i}:
            K = X[j] @ X[j].T / len(X[j])
            W = (
                np.linalg.inv(np.eye(len(K)) + K / ridge)
                if isinstance(server, Moreau)
                else np.eye(len(K))
            )
            half = np.linalg.cholesky(p[j] / len(K) * W).T
            rows.append(half @ X[j])
            labels.append(half @ y[j])
        shared = (
            np.linalg.lstsq(np.vstack(rows), np.concatenate(labels))[0]
            if len(X) > 1
            else np.zeros(X[0].shape[1])
        )
        left.append(y[i] - X[i] @ shared)
    return left


def brute_gcv(x, e, ridge):
    n = len(x)
    A = x @ np.linalg.solve(x.T @ x + n * ridge * np.eye(x.shape[1]), x.T)
    return np.sum((e - A @ e) ** 2) / n / (1 - np.trace(A) / n) ** 2


@every_case
@pytest.mark.parametrize(
    "server", [Average(), Moreau(), Nothing()], ids=lambda stage: type(stage).__name__
)
def test_leaving_a_client_out_is_a_refit_without_it(case, server):
    X, y = CASES[case]
    p = weights_of("given", X)
    clients = [Client.of(place, x, t) for place, (x, t) in enumerate(zip(X, y, strict=True))]
    for ridge in (0.05, 0.7, 20.0):
        expected = y if isinstance(server, Nothing) else refitted(server, X, y, p, ridge)
        found = least_squares.residuals_about_others(server, clients, p, ridge)
        for client, e, x, whole in zip(clients, found, X, expected, strict=True):
            np.testing.assert_allclose(
                least_squares.gcv_score(client, e, ridge), brute_gcv(x, whole, ridge), rtol=1e-8
            )
            if client.n <= x.shape[1]:
                np.testing.assert_allclose(client.axes[0] @ e, whole, **TIGHT)


@pytest.mark.parametrize(
    "case", ["many samples", "few samples each", "fewer than unknowns", "low rank"]
)
@pytest.mark.parametrize(
    ("name", "server"), [("rtfa", Average()), ("pfedme", Moreau()), ("local_ridge", Nothing())]
)
def test_the_chosen_ridge_is_the_lowest_of_the_mean_curve(case, name, server):
    X, y = CASES[case]
    p = weights_of("samples", X)

    def score(ridge):
        left = y if isinstance(server, Nothing) else refitted(server, X, y, p, ridge)
        return np.mean([brute_gcv(x, e, ridge) for x, e in zip(X, left, strict=True)])

    fit = linear.fit(name, X, y, ridge="cv", intercept=False)
    (chosen,) = set(fit.ridge.values())
    grid = np.geomspace(1e-5, 1e5, 81)
    assert score(chosen) <= min(map(score, grid)) * (1 + 1e-9)
    assert fit.noise is None
