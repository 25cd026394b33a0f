"""Restricted maximum likelihood against dense covariances, statsmodels and exact cases."""

import numpy as np
import pytest
import scipy.linalg
from statsmodels.regression import mixed_linear_model

from fedasym.exact import estimators as linear

from .clients import TIGHT, awkward, draw


def dense(X, noise2, radius2, shared):
    """The covariance of all labels, and the matrix that projects the shared model out of them
    (REML's P).
    """
    d = X[0].shape[1]
    V = scipy.linalg.block_diag(*(noise2 * np.eye(len(x)) + radius2 / d * x @ x.T for x in X))
    inverse, rows = np.linalg.inv(V), np.vstack(X)
    if not shared:
        return V, inverse
    return V, inverse - inverse @ rows @ np.linalg.pinv(rows.T @ inverse @ rows) @ rows.T @ inverse


def restricted_deviance(X, y, noise2, radius2, shared):
    """-2 log likelihood of the contrasts that the shared model cannot touch."""
    V, _ = dense(X, noise2, radius2, shared)
    contrasts = scipy.linalg.null_space(np.vstack(X).T) if shared else np.eye(len(V))
    seen = contrasts.T @ np.concatenate(y)
    return np.linalg.slogdet(contrasts.T @ V @ contrasts)[1] + seen @ np.linalg.solve(
        contrasts.T @ V @ contrasts, seen
    )


LIKELY = {
    "ragged": draw([3, 9, 1, 7, 20, 4], 6, seed=5),
    "few samples each": draw([3, 4, 5, 2, 5, 3], 8, seed=5),
    "duplicated feature": awkward("duplicated feature", seed=2),
    "one sample each": draw([1] * 40, 3, seed=5),
}


@pytest.mark.parametrize("case", LIKELY)
@pytest.mark.parametrize(
    ("name", "shared"), [("pfedme", True), ("rtfa", True), ("local_ridge", False)]
)
def test_the_estimated_variances_solve_the_likelihood_equations(case, name, shared):
    X, y = LIKELY[case]
    fit = linear.fit(name, X, y, ridge="optimal", intercept=False)
    noise2, radius2, d = fit.noise**2, fit.radius**2, X[0].shape[1]
    assert radius2 > 0  # inside the range: at its ends there are no equations to solve
    _, P = dense(X, noise2, radius2, shared)
    spread = scipy.linalg.block_diag(*(x @ x.T for x in X)) / d
    seen = P @ np.concatenate(y)
    np.testing.assert_allclose(seen @ seen, np.trace(P), rtol=1e-8)
    np.testing.assert_allclose(seen @ spread @ seen, np.trace(P @ spread), rtol=1e-8)
    best = restricted_deviance(X, y, noise2, radius2, shared)
    for a in np.geomspace(1e-3, 1e3, 13) * noise2:
        for b in np.geomspace(1e-3, 1e3, 13) * radius2:
            assert restricted_deviance(X, y, a, b, shared) >= best - 1e-9
    np.testing.assert_allclose(
        list(fit.ridge.values()), [noise2 * d / len(x) / radius2 for x in X], rtol=1e-10
    )


def test_pfedme_at_the_estimate_is_the_best_linear_unbiased_prediction():
    X, y = LIKELY["ragged"]
    fit = linear.fit("pfedme", X, y, intercept=False)
    V, _ = dense(X, fit.noise**2, fit.radius**2, True)
    rows, labels = np.vstack(X), np.concatenate(y)
    shared = np.linalg.solve(rows.T @ np.linalg.solve(V, rows), rows.T @ np.linalg.solve(V, labels))
    np.testing.assert_allclose(fit.shared, shared, **TIGHT)
    weighted = np.split(
        np.linalg.solve(V, labels - rows @ shared), np.cumsum([len(x) for x in X])[:-1]
    )
    for client, (x, part) in enumerate(zip(X, weighted, strict=True)):
        np.testing.assert_allclose(
            fit.personal[client], shared + fit.radius**2 / 6 * x.T @ part, **TIGHT
        )


def test_the_estimates_are_those_of_statsmodels():
    X, y = draw([6, 9, 5, 7, 20, 8, 11, 4], 3, seed=7)
    rows, labels, ids = (
        np.vstack(X),
        np.concatenate(y),
        np.repeat(np.arange(8), [len(x) for x in X]),
    )
    components = mixed_linear_model.VCSpec(["b"], [[["b0", "b1", "b2"]] * 8], [X])
    theirs = mixed_linear_model.MixedLM(labels, rows, ids, exog_vc=components).fit(
        reml=True, method="bfgs", gtol=1e-9
    )
    fit = linear.fit("pfedme", rows, labels, clients=ids, intercept=False)
    np.testing.assert_allclose(
        [fit.noise**2, fit.radius**2 / 3], [theirs.scale, theirs.vcomp[0]], rtol=1e-6
    )
    np.testing.assert_allclose(fit.shared, theirs.fe_params, rtol=1e-7)


def test_clients_that_do_not_differ_have_no_radius():
    rng = np.random.default_rng(1)
    X = [rng.standard_normal((10, 3)) for _ in range(4)]
    rows = np.vstack(X)
    y = rows @ [1.0, 2, 3] + rng.standard_normal(40)
    residuals = y - rows @ np.linalg.lstsq(rows, y)[0]
    parts = np.split(residuals, 4)
    parts = [
        part - x @ np.linalg.lstsq(x, part)[0] for x, part in zip(X, parts, strict=True)
    ]  # no client leans anywhere
    fit = linear.fit("rtfa", X, parts, intercept=False)
    assert fit.radius == 0
    assert set(fit.ridge.values()) == {np.inf}
    np.testing.assert_allclose(fit.noise**2, sum(part @ part for part in parts) / 37, rtol=1e-10)
    exact = linear.fit("pfedme", X, [x @ [1.0, 2, 3] for x in X], intercept=False)
    assert (exact.noise, exact.radius) == (0, 0)
    np.testing.assert_allclose(exact.personal[2], [1, 2, 3], **TIGHT)


def test_clients_without_noise_interpolate():
    X, y = draw([3, 4, 5, 2, 5, 3], 8, seed=2, noise=0)
    fit, limit = (
        linear.fit("rtfa", X, y, intercept=False),
        linear.fit("ftfa", X, y, intercept=False),
    )
    assert fit.noise < 1e-3 * fit.radius
    for client in fit.personal:
        np.testing.assert_allclose(
            fit.personal[client], limit.personal[client], atol=1e-6
        )  # the range of ratios ends


def test_estimates_scale_with_the_labels_and_ignore_a_shared_model():
    X, y = LIKELY["ragged"]
    fit = linear.fit("rtfa", X, y, intercept=False)
    moved = linear.fit(
        "rtfa",
        X,
        [10 * t + x @ np.arange(6.0) * 100 for x, t in zip(X, y, strict=True)],
        intercept=False,
    )
    np.testing.assert_allclose(
        [moved.noise, moved.radius], [10 * fit.noise, 10 * fit.radius], rtol=1e-8
    )
