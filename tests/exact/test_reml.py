"""Variance components: against another optimiser, statsmodels, brute force, and what must hold for
any clients.
"""

import warnings

import numpy as np
import pytest
import scipy.optimize
from statsmodels.regression.mixed_linear_model import MixedLM

from fedasym import linear
from fedasym.exact.clients import ClientSums
from fedasym.exact.reml import Likelihood, maximise
from fedasym.exact.spread import estimate_components


def draw(m=40, n=12, deviations=(1.0, 0.3, 0.0), level=0.8, noise=0.5, seed=0):
    """Clients whose weights vary by `deviations` and whose intercepts by `level`; the intercept's
    column is last.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(max(n // 2, 2), 2 * n, m)
    owner = np.repeat(np.arange(m), sizes)
    X = np.column_stack([rng.standard_normal((owner.size, len(deviations))), np.ones(owner.size)])
    u = rng.standard_normal((m, X.shape[1])) * [*deviations, level]
    y = (X * (u + np.arange(1.0, X.shape[1] + 1))[owner]).sum(1) + noise * rng.standard_normal(
        owner.size
    )
    return X, y, owner


def dense_deviance(ratios, X, y, owner):
    """-2 log restricted likelihood with whole covariance matrices, sigma^2 profiled out."""
    same = owner[:, None] == owner
    V = np.eye(len(y)) + same * ((X * ratios) @ X.T)
    inverse = np.linalg.inv(V)
    A = X.T @ inverse @ X
    beta = np.linalg.solve(A, X.T @ inverse @ y)
    e = y - X @ beta
    rss = e @ inverse @ e
    return (
        (len(y) - X.shape[1]) * np.log(rss) + np.linalg.slogdet(V)[1] + np.linalg.slogdet(A)[1],
        rss,
        beta,
    )


def test_the_likelihood_is_that_of_whole_covariance_matrices():
    X, y, owner = draw(m=9, n=6)
    likelihood = Likelihood(ClientSums.of(X, y, owner))
    for ratios in ([0.0, 0.0, 0.0, 0.0], [1.0, 0.2, 0.0, 3.0], [5.0, 1e-6, 2.0, 1e4]):
        point = likelihood.at(np.array(ratios))
        deviance, rss, beta = dense_deviance(ratios, X, y, owner)
        assert point.deviance == pytest.approx(deviance, rel=1e-9)
        assert point.noise2 == pytest.approx(rss / (len(y) - 4), rel=1e-8)
        np.testing.assert_allclose(point.beta, beta, rtol=1e-7)


def test_slopes_are_differences_of_the_likelihood():
    X, y, owner = draw(m=15)
    likelihood = Likelihood(ClientSums.of(X, y, owner))
    at = np.array([0.7, 0.1, 0.05, 1.5])
    for place, step in enumerate(1e-5 * np.eye(4)):
        up, down = (likelihood.at(at + move).deviance for move in (step, -step))
        assert likelihood.at(at).slope[place] == pytest.approx((up - down) / 2e-5, rel=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_the_maximum_is_that_of_a_search_without_slopes(seed):
    X, y, owner = draw(m=25, seed=seed)
    sums = ClientSums.of(X, y, owner)
    likelihood = Likelihood(sums)
    found = maximise(sums, [0, 1, 2, 3])
    other = scipy.optimize.minimize(
        lambda z: likelihood.at(np.exp(z)).deviance, np.zeros(4), method="Nelder-Mead",
        options={"xatol": 1e-7, "fatol": 1e-10, "maxiter": 4000, "maxfev": 4000},
    )  # fmt: skip
    assert found.deviance <= other.fun + 1e-7
    near = np.exp(other.x) > 1e-4
    np.testing.assert_allclose(found.ratios[near], np.exp(other.x)[near], rtol=2e-3)
    active = found.ratios > 0
    slope = likelihood.at(found.ratios).slope
    np.testing.assert_allclose(found.ratios[active] * slope[active], 0, atol=1e-6)
    assert (slope[~active] >= -1e-6).all()  # a variance that is 0 would not help


@pytest.mark.parametrize("seed", range(3))
def test_components_are_those_of_statsmodels(seed):
    X, y, owner = draw(m=30, deviations=(1.0, 0.4), seed=seed)
    found = maximise(ClientSums.of(X, y, owner), [0, 1, 2])
    parts = {str(k): {g: X[owner == g][:, [k]] for g in range(30)} for k in range(3)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from statsmodels.regression.mixed_linear_model import VCSpec

        names = [[[str(k)] for _ in range(30)] for k in range(3)]
        spec = VCSpec(
            [str(k) for k in range(3)],
            names,
            [[parts[str(k)][g] for g in range(30)] for k in range(3)],
        )
        theirs = MixedLM(y, X, owner, exog_vc=spec).fit(
            reml=True, method=["bfgs", "lbfgs"], gtol=1e-10
        )
    likelihood = Likelihood(ClientSums.of(X, y, owner))
    assert likelihood.at(theirs.vcomp / theirs.scale).deviance >= found.deviance - 1e-8
    np.testing.assert_allclose(found.variances, theirs.vcomp, rtol=1e-4)
    assert found.noise2 == pytest.approx(theirs.scale, rel=1e-4)
    np.testing.assert_allclose(found.beta, theirs.fe_params, rtol=1e-5)


def test_one_variance_per_feature_only_where_the_data_carry_it():
    X, y, owner = draw(m=60, deviations=(1.0, 0.05, 0.0), seed=1)
    assert estimate_components(ClientSums.of(X, y, owner), intercept=True).parameters == 4
    alike, few = (
        draw(m=60, deviations=(0.4, 0.4, 0.4), seed=2),
        draw(m=5, deviations=(1.0, 0.1, 0.0), seed=3),
    )
    for X, y, owner in (alike, few):
        found = estimate_components(ClientSums.of(X, y, owner), intercept=True)
        assert found.parameters == 2
        assert np.ptp(found.ratios[:3]) == 0


def test_features_that_may_not_differ_have_no_variance():
    X, y, owner = draw()
    found = estimate_components(
        ClientSums.of(X, y, owner), intercept=True, personal=np.array([False, True, True, True])
    )
    assert found.ratios[0] == 0
    assert found.ratios[-1] > 0


def test_sums_are_those_of_a_plain_loop(monkeypatch):
    X, y, owner = draw()
    whole = ClientSums.of(X, y, owner)
    for j in range(len(whole.counts)):
        mine = owner == j
        np.testing.assert_allclose(whole.gram[j], X[mine].T @ X[mine], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(whole.cross[j], X[mine].T @ y[mine], rtol=1e-12, atol=1e-12)
        assert whole.square[j] == pytest.approx(y[mine] @ y[mine])
    monkeypatch.setattr("fedasym.exact.clients.ROOM", 40)
    for name, array in vars(ClientSums.of(X, y, owner)).items():
        np.testing.assert_allclose(array, getattr(whole, name), rtol=1e-12, atol=1e-12)


def test_a_fit_with_its_own_variances_is_the_mixed_models_prediction():
    X, y, owner = draw()
    fit = linear.fit("pfedme", X[:, :3], y, clients=owner)
    same = owner[:, None] == owner
    V = fit.noise**2 * np.eye(len(y)) + same * ((X * fit.variances) @ X.T)
    inverse = np.linalg.inv(V)
    beta = np.linalg.solve(X.T @ inverse @ X, X.T @ inverse @ y)
    np.testing.assert_allclose(fit.shared, beta, rtol=1e-8)
    for j in (0, 7):
        mine = owner == j
        expected = beta + fit.variances * (X[mine].T @ (inverse @ (y - X @ beta))[mine])
        np.testing.assert_allclose(fit.personal[j], expected, rtol=1e-8)


def test_ridges_by_client_and_by_unknown():
    X, y, owner = draw(m=4)
    by_both = np.outer([0.1, 0.2, 0.3, 0.4], [1.0, 2.0, np.inf, 0.5])
    fit = linear.fit("rtfa", X[:, :3], y, clients=owner, ridge=by_both)
    for j, row in enumerate(by_both):
        mine = owner == j
        live = np.isfinite(row)
        A, e = X[mine], y[mine] - X[mine] @ fit.shared
        change = np.linalg.solve(
            A[:, live].T @ A[:, live] / mine.sum() + np.diag(row[live]),
            A[:, live].T @ e / mine.sum(),
        )
        np.testing.assert_allclose(fit.personal[j][live], fit.shared[live] + change, rtol=1e-9)
        assert fit.personal[j][2] == fit.shared[2]
    wide = linear.fit("rtfa", X[:, :3], y, clients=owner, ridge=np.full((1, 4), 0.3))
    narrow = linear.fit("rtfa", X[:, :3], y, clients=owner, ridge=0.3)
    np.testing.assert_allclose(wide.personal[2], narrow.personal[2], rtol=1e-9)


@pytest.mark.parametrize("name", ["ftfa", "rtfa", "pfedme", "maml", "fedavg"])
def test_weights_that_are_shared_only_stay_as_they_are(name):
    X, y, owner = draw()
    fit = linear.fit(name, X[:, :3], y, clients=owner, personal=[True, False, True])
    for model in fit.personal.values():
        assert model[1] == fit.shared[1]


@pytest.mark.parametrize("features", [3, 80])
def test_levels_of_clients_are_found_with_few_and_with_many_features(features):
    rng = np.random.default_rng(4)
    owner = np.repeat(np.arange(60), 30)
    X = rng.standard_normal((owner.size, features)) + 0.5
    level = 300 + 20 * rng.standard_normal(60)
    theta = 1 + 0.3 * rng.standard_normal((60, features)) / np.sqrt(features)
    y = level[owner] + (X * theta[owner]).sum(1) + 2 * rng.standard_normal(owner.size)
    fit = linear.fit("pfedme", X, y, clients=owner)
    assert fit.noise == pytest.approx(2, rel=0.1)
    assert np.sqrt(fit.variances[-1]) == pytest.approx(20, rel=0.25)
    assert fit.shared[-1] == pytest.approx(300, abs=3 * 20 / np.sqrt(60) + 1)
