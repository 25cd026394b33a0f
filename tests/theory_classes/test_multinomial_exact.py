"""Expectations of softmax over Gaussian logits (section 11.1) by unrelated routes: dense quadrature
and plain sampling.
"""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, logsumexp, softmax
from scipy.stats import norm

from fedasym.theory.classes.softmax import (
    SoftmaxRule,
    contrasts,
    draw_points,
    gini,
    mean_log_sum,
    softmax_accuracy,
    softmax_ceiling,
    softmax_centre,
    softmax_fedavg,
    softmax_overlap,
    softmax_phi,
)
from fedasym.worlds.classes import Energies


def sampled(classes, rho, T, Q, count, seed=0):
    """Accuracy, E p'q, E lse(w), 1 - E|p|^2, log-loss over plain draws: means and standard
    errors.
    """
    rng = np.random.default_rng(seed)
    w = np.sqrt(Q) * rng.standard_normal((count, classes))  # not centred: the softmax does not care
    s = T / Q * w + np.sqrt(max(rho**2 - T**2 / Q, 0)) * rng.standard_normal((count, classes))
    p, q = softmax(s, axis=1), softmax(w, axis=1)
    centred = w - w.mean(1, keepdims=True)
    values = np.stack(
        [
            p[np.arange(count), w.argmax(1)],
            (p * q).sum(1),
            logsumexp(centred, axis=1),
            1 - (p * p).sum(1),
            logsumexp(w, axis=1) - (p * w).sum(1),
        ]
    )
    return values.mean(1), values.std(1, ddof=1) / np.sqrt(count)


@pytest.mark.parametrize(
    ("classes", "rho", "cos", "Q"),
    [
        (3, 2.0, 0.8, 2.0),
        (5, 6.0, 0.95, 40.0),
        (10, 2.0, 0.6, 0.3),
        (10, 1.5, 1.0, 2.25),
        (60, 3.0, 0.4, 2.0),
        (4, 0.3, 0.1, 5.0),
    ],
)
def test_against_plain_sampling(classes, rho, cos, Q):
    rule = SoftmaxRule(classes, rho, cos * rho * np.sqrt(Q), Q)
    mean, error = sampled(classes, rho, rule.T, Q, 200_000 if classes < 20 else 40_000)
    found = [
        rule.accuracy,
        softmax_overlap(rule.T, Q, rho, classes),
        mean_log_sum(np.sqrt(Q), classes),
        gini(rho, classes),
        rule.log_loss,
    ]
    assert np.all(np.abs(found - mean) < 4 * error)


@pytest.mark.parametrize("a", [0.05, 0.7, 2.1, 8.0])
def test_two_classes_are_one_dimensional_integrals(a):
    root2 = np.sqrt(2)

    def mean(f):
        return quad(
            lambda z: norm.pdf(z) * f(z),
            -12,
            12,
            epsabs=1e-15,
            epsrel=1e-13,
            limit=400,
            points=(-1, 0, 1),
        )[0]

    assert np.isclose(
        softmax_phi(a, 2),
        2 * mean(lambda z: expit(root2 * a * z) * expit(-root2 * a * z)),
        rtol=1e-11,
    )
    assert np.isclose(
        mean_log_sum(a, 2), mean(lambda z: np.logaddexp(a * z / root2, -a * z / root2)), rtol=1e-11
    )
    for cos in (0.3, 0.9):
        t = cos / np.sqrt(1 - cos**2)
        right = mean(
            lambda z, t=t: (
                expit(root2 * a * z) * norm.cdf(t * z) + expit(-root2 * a * z) * norm.cdf(-t * z)
            )
        )
        assert np.isclose(softmax_accuracy(cos, a, 2), right, rtol=1e-11)


def test_three_classes_against_a_product_rule():
    """Four dimensions by 25^4 trapezoid points: no representation in common with the
    one-dimensional integrals.
    """
    rho, T, Q = 1.2, 0.8, 0.9
    z = 0.5 * np.arange(-12, 13)
    weight = np.exp(-z * z / 2)
    weight /= weight.sum()
    plane = np.stack(np.meshgrid(z, z, indexing="ij")).reshape(2, -1)
    share = np.outer(weight, weight).ravel()
    B = contrasts(3)
    w = B @ plane * np.sqrt(Q)
    q = np.exp(w) / np.exp(w).sum(0)
    found = 0.0
    for i in range(share.size):
        s = (T / Q * w[:, i])[:, None] + np.sqrt(rho**2 - T**2 / Q) * (B @ plane)
        p = np.exp(s) / np.exp(s).sum(0)
        found += share[i] * (share @ (q[:, i] @ p))
    assert np.isclose(softmax_overlap(T, Q, rho, 3), found, rtol=1e-9)
    assert np.isclose(mean_log_sum(np.sqrt(Q), 3), share @ np.log(np.exp(w).sum(0)), rtol=1e-9)
    assert np.isclose(gini(np.sqrt(Q), 3), 1 - share @ (q * q).sum(0), rtol=1e-9)


def test_limits_of_a_rule():
    assert np.isclose(softmax_accuracy(0.0, 2.0, 7), 1 / 7, rtol=1e-11)
    assert np.isclose(softmax_accuracy(1.0, 1e-9, 7), 1 / 7, rtol=1e-7)
    assert np.isclose(softmax_phi(1e-9, 7), 1 / 7, rtol=1e-11)  # (1 - 1/C)/(C - 1)
    assert np.isclose(mean_log_sum(1e-9, 7), np.log(7), rtol=1e-11)
    exact = SoftmaxRule(5, 2.0, 4.0, 4.0)
    assert np.isclose(exact.slope, 1, rtol=1e-10)
    assert np.isclose(exact.brier, gini(2.0, 5), rtol=1e-10)
    assert exact.log_loss < min(
        SoftmaxRule(5, 2.0, 4.2, 4.41).log_loss, SoftmaxRule(5, 2.0, 3.9, 4.0).log_loss
    )  # nothing beats the truth


def test_fedavg_is_stationary_and_calibrated():
    """E[s0'(p(s) - softmax(c s0))] = 0 by sampling, and slope 1."""
    energies, C = Energies.isotropic(1.5, 2.0), 4
    c = softmax_centre(energies, C)
    rng = np.random.default_rng(1)
    s0 = 1.5 * rng.standard_normal((300_000, C))
    p = softmax(s0 + 2.0 * rng.standard_normal(s0.shape), axis=1)
    score = (s0 * (p - softmax(c * s0, axis=1))).sum(1)
    assert abs(score.mean()) < 4 * score.std() / np.sqrt(score.size)
    assert np.isclose(softmax_fedavg(energies, C).slope, 1, rtol=1e-10)
    assert softmax_fedavg(energies, C).accuracy < softmax_ceiling(energies, C).accuracy
    assert np.isclose(softmax_centre(Energies.isotropic(1.5, 0.0), C), 1, rtol=1e-10)


def test_points_are_centred_white_and_repeatable():
    for classes in (2, 3, 10):
        one = draw_points(classes)
        x = np.concatenate([one.xi1, one.xi2])
        np.testing.assert_allclose(x @ one.weight, 0, atol=1e-12)
        np.testing.assert_allclose((x * one.weight) @ x.T, np.eye(2 * classes - 2), atol=1e-12)
        np.testing.assert_allclose(one.z1.sum(0), 0, atol=1e-12)
        assert one.weight.size >= 4 * classes
    assert np.array_equal(
        draw_points(4, 1 << 10, 3).xi1, draw_points.__wrapped__(4, 1 << 10, 3).xi1
    )
