"""Variance components, against the marginal likelihood itself."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

from fedasym.exact.logistic import ClassSamples
from fedasym.exact.spread import estimate_class_components


def draw(clients, size, variance, seed=0):
    """A random intercept and one shared slope; the difference of two logits has twice the variance
    of each.
    """
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(clients), size)
    x = rng.standard_normal(len(ids))
    u = np.sqrt(2 * variance) * rng.standard_normal(clients)
    y = (rng.random(len(ids)) < expit(0.5 + x + u[ids])).astype(int)
    return np.column_stack([x, np.ones(len(ids))]), y, ids


def exact_variance(X, y, ids):
    """Maximum of the marginal likelihood as the variance of one logit; integrals by the trapezoidal
    rule.

    Smooth integrands that vanish at both ends: it converges faster than any power, where
    Gauss-Hermite quadrature about zero misses a large client's narrow posterior (40 nodes: 7 % off
    at 60 samples).
    """
    t = np.linspace(-6, 6, 121)
    weight = -(t**2) / 2
    weight -= logsumexp(weight)
    sign = np.where(y == 1, -1.0, 1.0)[:, None]
    starts = np.flatnonzero(np.diff(ids, prepend=-1))

    def minus_log_likelihood(parameters):
        slope, intercept, log_sd = parameters
        z = (X[:, 0] * slope + intercept)[:, None] + np.exp(log_sd) * t
        sums = np.add.reduceat(-np.logaddexp(0, sign * z), starts)
        return -logsumexp(sums + weight, axis=1).sum()

    found = minimize(minus_log_likelihood, [0.7, 0.3, 0.3], method="L-BFGS-B")
    assert found.success
    return np.exp(2 * found.x[2]) / 2


@pytest.mark.parametrize("variance", [0.3, 1.0])
def test_a_random_intercept_has_the_variance_that_maximises_the_marginal_likelihood(variance):
    """Penalised quasi-likelihood is too small by a share that falls with samples per client: under
    10 % at 60.

    (Breslow and Lin 1995: large clients pin their intercept, and the bias goes.) Restricted
    likelihood, which counts one shared intercept, 1/clients, and the rule that ends the rounds, 2
    %, act the other way or either way.
    """
    X, y, ids = draw(80, 60, variance)
    exact = exact_variance(X, y, ids)
    found = estimate_class_components(
        ClassSamples.of(X, y, ids, 2), np.array([-1, 0]), intercept=True
    )
    assert 0.9 < found.variances[-1] / exact < 1.04


def test_the_bias_is_known_and_downwards_for_small_clients():
    X, y, ids = draw(300, 8, 1.0)
    found = estimate_class_components(
        ClassSamples.of(X, y, ids, 2), np.array([-1, 0]), intercept=True
    )
    assert 0.5 < found.variances[-1] / exact_variance(X, y, ids) < 1.0


@pytest.mark.parametrize("seed", range(4))
def test_equal_clients_have_no_variance(seed):
    """Up to four standard errors v sqrt(2/m) of a variance about zero, v = 1/(x'wx) a client's own
    squared error.
    """
    clients, size = 100, 30
    X, y, ids = draw(clients, size, 0.0, seed)
    P = expit(0.5 + X[:, 0])
    own = 1 / np.add.reduceat((2 * P * (1 - P))[:, None] * X**2, np.arange(0, len(X), size))
    errors = own.mean(axis=0) * np.sqrt(2 / clients)
    found = estimate_class_components(
        ClassSamples.of(X, y, ids, 2), np.array([0, 1]), intercept=True
    )
    assert np.all(found.variances < 4 * errors)


def test_features_of_one_group_have_one_variance():
    X, y, ids = draw(40, 20, 1.0)
    found = estimate_class_components(
        ClassSamples.of(X, y, ids, 2), np.array([0, 0]), intercept=True
    )
    assert found.variances[0] == found.variances[1] > 0


def test_both_forms_of_a_clients_inverse_agree_on_the_variances():
    """More personal features than samples, or columns of zeros instead of them: the same model in
    the other form.
    """
    X, y, ids = draw(60, 6, 1.0)
    wide = np.column_stack([np.zeros((len(X), 9)), X])
    assert wide.shape[1] > 6 > X.shape[1]
    groups = np.array([*range(2, 11), 0, 1])
    a = estimate_class_components(ClassSamples.of(X, y, ids, 2), np.array([0, 1]), intercept=True)
    b = estimate_class_components(ClassSamples.of(wide, y, ids, 2), groups, intercept=True)
    assert np.allclose(a.variances, b.variances[-2:], rtol=0.05, atol=2e-3)
