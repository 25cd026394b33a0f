"""Expected errors given clients' features: against the mean over many drawn labels, fitted one by
one.
"""

import numpy as np
import pytest

from fedasym import linear
from fedasym.algorithms import PAPER
from fedasym.exact.clients import ClientSums
from fedasym.exact.expectation import ErrorSetting, client_filters, expected_errors

DRAWS = 200


def clients(seed=0):
    rng = np.random.default_rng(seed)
    sizes = np.array([5, 9, 4, 14, 7, 3])
    owner = np.repeat(np.arange(6), sizes)
    X = np.column_stack(
        [rng.standard_normal((owner.size, 3)) @ np.diag([1.0, 2.0, 0.5]) + 0.3, np.ones(owner.size)]
    )
    return X, owner, rng


@pytest.mark.parametrize(
    ("name", "masked"),
    [*((name, False) for name in PAPER), ("ftfa", True), ("rtfa", True), ("pfedme", True)],
)
def test_expected_errors_are_means_over_drawn_labels(name, masked):
    X, owner, rng = clients()
    noise, variances, beta = (
        0.7,
        np.array([0.5, 0.0 if masked else 0.2, 0.9, 1.5]),
        np.array([1.0, -2.0, 0.5, 3.0]),
    )
    personal = np.array([True, not masked, True, True])
    moments = np.array(
        [np.cov(rng.standard_normal((4, 20))) + np.eye(4) * (1 + j) for j in range(6)]
    )
    setting = ErrorSetting(
        ClientSums.of(X, X[:, 0], owner), variances / noise**2, beta / noise, moments, personal
    )
    errors = expected_errors(PAPER[name], setting)
    alone = PAPER[name].shares_nothing
    ridge = np.array(
        [best_ridges(noise, variances + (beta**2 if alone else 0), n) for n in np.bincount(owner)]
    )
    options = {"ridge": ridge} if name in ("local_ridge", "rtfa", "pfedme") else {}
    options |= {} if alone else {"personal": personal}
    fresh = client_filters(PAPER[name], setting, setting.sums.gram, setting.sums.counts)
    losses, later = np.zeros((DRAWS, 6)), np.zeros((DRAWS, 6))
    for draw in range(DRAWS):
        theta, new = beta + np.sqrt(variances) * rng.standard_normal((2, 6, 4))
        y, after = (
            (X * each[owner]).sum(1) + noise * rng.standard_normal(owner.size)
            for each in (theta, new)
        )
        fit = linear.fit(name, X, y, clients=owner, intercept=False, **options)
        off = np.array([fit.personal[j] for j in range(6)]) - theta
        losses[draw] = np.einsum("jk,jkl,jl->j", off, moments, off)
        for j in range(
            6
        ):  # newcomers with the same features, whose labels the shared model never saw
            mine = X[owner == j]
            off_j = (
                fit.shared + fresh[j] @ mine.T @ (after[owner == j] - mine @ fit.shared) - new[j]
            )
            later[draw, j] = off_j @ moments[j] @ off_j
    for drawn, expected in ((losses, errors.member), (later, errors.new)):
        np.testing.assert_array_less(
            np.abs(drawn.mean(0) - noise**2 * expected), 4.5 * drawn.std(0) / np.sqrt(DRAWS)
        )


def best_ridges(noise, variances, samples):
    return [noise**2 / samples / v if v else np.inf for v in variances]


def test_batches_of_clients_change_nothing(monkeypatch):
    X, owner, _ = clients()
    setting = ErrorSetting(
        ClientSums.of(X, X[:, 0], owner), np.full(4, 0.4), np.ones(4), np.eye(4), np.ones(4, bool)
    )
    whole = {name: expected_errors(each, setting) for name, each in PAPER.items()}
    monkeypatch.setattr("fedasym.exact.expectation.SHARE", 40)
    for name, each in PAPER.items():
        np.testing.assert_allclose(
            expected_errors(each, setting).member, whole[name].member, rtol=1e-12
        )


def test_a_client_on_its_own_has_a_free_intercept_also_where_a_feature_is_constant_in_it():
    X, owner, rng = clients()
    X[owner == 2, 1] = 0.7  # as the intercept is: of all solutions the one with the shortest slopes
    y = 100 + X[:, 0] + rng.standard_normal(len(X))
    sums = ClientSums.of(X, y, owner)
    setting = ErrorSetting(
        sums, np.full(4, 0.4), np.ones(4), np.eye(4), np.ones(4, bool), intercept=True
    )
    found = np.einsum(
        "jkl,jl->jk", client_filters(PAPER["local"], setting, sums.gram, sums.counts), sums.cross
    )
    fit = linear.fit("local", X[:, :3], y, clients=owner)
    for j in range(6):
        np.testing.assert_allclose(found[j], fit.personal[j], rtol=1e-7, atol=1e-7)
