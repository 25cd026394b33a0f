"""What a client makes of the shared model, against scikit-learn, plain loops and the ends of each
path.
"""

import numpy as np
import pytest
import scipy.linalg
import sklearn.linear_model

import fedasym as fa
from fedasym.algorithms import Average, Descend, Flow, Meta, Nothing, Ridge
from fedasym.exact import estimators as linear

from .clients import CASES, RAGGED, TIGHT, draw, every_case


@every_case
@pytest.mark.parametrize(
    ("name", "alone"), [("rtfa", False), ("local_ridge", True), ("pfedme", False)]
)
def test_ridge_is_scikit_learns_on_residuals(case, name, alone):
    X, y = CASES[case]
    ridges = RAGGED[: len(X)]
    fit = linear.fit(name, X, y, ridge=list(ridges), intercept=False)
    start = np.zeros_like(fit.shared) if alone else fit.shared
    for place, (x, t) in enumerate(zip(X, y, strict=True)):
        model = sklearn.linear_model.Ridge(
            alpha=len(x) * ridges[place], fit_intercept=False, solver="cholesky"
        )
        away = model.fit(x, t - x @ start).coef_
        np.testing.assert_allclose(fit.personal[place], start + away, **TIGHT)
    assert fit.ridge == dict(enumerate(ridges))


@every_case
@pytest.mark.parametrize("name", ["local", "ftfa", "maml"])
def test_interpolation_is_the_nearest_least_squares_fit(case, name):
    X, y = CASES[case]
    fit = linear.fit(name, X, y, intercept=False)
    for place, (x, t) in enumerate(zip(X, y, strict=True)):
        away = np.linalg.lstsq(x, t - x @ fit.shared)[0]
        np.testing.assert_allclose(fit.personal[place], fit.shared + away, **TIGHT)


@pytest.mark.parametrize(
    "case", ["few samples each", "many samples", "duplicated rows", "low rank"]
)
def test_gradient_descent_run_to_convergence_interpolates(case):
    X, y = CASES[case]
    fit = linear.fit("ftfa", X, y, intercept=False)
    for place, (x, t) in enumerate(zip(X, y, strict=True)):
        b, step = fit.shared.copy(), 1.9 / np.linalg.norm(x, 2) ** 2
        for _ in range(20_000):
            b -= step * x.T @ (x @ b - t)
        np.testing.assert_allclose(fit.personal[place], b, **TIGHT)


@every_case
@pytest.mark.parametrize(
    "server", [Nothing(), Average(), Meta(0.1)], ids=lambda stage: type(stage).__name__
)
def test_stopped_descent_and_flow_are_their_definitions(case, server):
    X, y = CASES[case]
    stepped = linear.fit(fa.Algorithm("stepped", server, Descend(0.05, 7)), X, y, intercept=False)
    flowed = linear.fit(fa.Algorithm("flowed", server, Flow(0.4)), X, y, intercept=False)
    for place, (x, t) in enumerate(zip(X, y, strict=True)):
        b = stepped.shared.copy()
        for _ in range(7):
            b -= 0.05 * x.T @ (x @ b - t) / len(x)
        np.testing.assert_allclose(stepped.personal[place], b, **TIGHT)
        goal = flowed.shared + np.linalg.lstsq(x, t - x @ flowed.shared)[0]
        decay = scipy.linalg.expm(-0.4 * x.T @ x / len(x))
        np.testing.assert_allclose(
            flowed.personal[place], goal + decay @ (flowed.shared - goal), **TIGHT
        )


def test_directions_of_little_curvature_are_not_lost():
    X, y = draw([3, 5, 2], 4)
    X = [x * [1, 1, 1e-9, 1e-6] for x in X]
    stepped = linear.fit(fa.Algorithm("stepped", Nothing(), Descend(0.1, 3)), X, y, intercept=False)
    flowed = linear.fit(fa.Algorithm("flowed", Nothing(), Flow(0.3)), X, y, intercept=False)
    for place, (x, t) in enumerate(zip(X, y, strict=True)):
        b = np.zeros(4)
        for _ in range(3):
            b -= 0.1 * x.T @ (x @ b - t) / len(x)
        np.testing.assert_allclose(stepped.personal[place], b, rtol=1e-8)
        S = x.T @ x / len(x)
        path = scipy.linalg.expm(
            np.block([[-0.3 * S, 0.3 * x.T @ t[:, None] / len(x)], [np.zeros((1, 5))]])
        )[:4, 4]
        np.testing.assert_allclose(flowed.personal[place], path, rtol=1e-8)


def test_a_large_single_step_is_taken_and_a_diverging_path_refused():
    X, y = CASES["many samples"]
    once = linear.fit(fa.Algorithm("once", Average(), Descend(5.0)), X, y, intercept=False)
    gradient = X[1].T @ (X[1] @ once.shared - y[1]) / len(X[1])
    np.testing.assert_allclose(once.personal[1], once.shared - 5 * gradient, **TIGHT)
    with pytest.raises(
        fa.InvalidInput,
        match=r"step is 5: gradient descent diverges on client 0 with steps of 0\.\d+ or more",
    ):
        linear.fit(fa.Algorithm("twice", Average(), Descend(5.0, 2)), X, y, intercept=False)


@every_case
def test_paths_end_where_they_should(case):
    X, y = CASES[case]
    ftfa, fedavg = (
        linear.fit("ftfa", X, y, intercept=False),
        linear.fit("fedavg", X, y, intercept=False),
    )
    for name, options, limit in [
        ("rtfa", {"ridge": 0}, ftfa),
        ("rtfa", {"ridge": np.inf}, fedavg),
        ("pfedme", {"ridge": np.inf}, fedavg),
        (fa.Algorithm("none", Average(), Flow(0)), {}, fedavg),
        (fa.Algorithm("none", Average(), Descend(0.1, 0)), {}, fedavg),
        (fa.Algorithm("long", Average(), Flow(1e12)), {}, ftfa),
        (fa.Algorithm("own ridge", Average(), Ridge(np.inf)), {}, fedavg),
    ]:
        fit = linear.fit(name, X, y, **options, intercept=False)
        for client in fit.personal:
            np.testing.assert_allclose(fit.personal[client], limit.personal[client], **TIGHT)
