"""Section 1: metrics from (T, Q) against plain integrals and drawn samples, and at their limits."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

from fedasym.theory.classes.metrics import State, accuracy, brier, calibration, log_loss
from fedasym.theory.classes.ridge import fedavg, shrinkage
from fedasym.worlds.classes import Energies


@pytest.mark.parametrize("eps", [0.0, 0.1])
@pytest.mark.parametrize(
    ("cos", "sd", "rho"), [(0.5, 1.0, 2.0), (0.05, 4.0, 0.3), (0.99, 0.2, 8.0)]
)
def test_metrics_against_drawn_samples(cos: float, sd: float, rho: float, eps: float) -> None:
    rng = np.random.default_rng(3)
    z = rng.standard_normal((2, 400_000))
    m, s = sd * z[0], rho * (cos * z[0] + np.sqrt(1 - cos**2) * z[1])
    p = eps + (1 - 2 * eps) * expit(s)
    state = State.of(cos * sd * rho, sd**2, rho)
    measured = {
        accuracy: np.where(m > 0, p, 1 - p),
        log_loss: p * np.logaddexp(0, -m) + (1 - p) * np.logaddexp(0, m),
        brier: p * expit(-m) ** 2 + (1 - p) * expit(m) ** 2,
    }
    for metric, values in measured.items():
        assert abs(float(metric(state, eps)) - values.mean()) < 4 * values.std() / np.sqrt(
            values.size
        ), metric
    k = float(calibration(state, eps))
    slope = m * (p - expit(k * m))  # the gradient of the recalibrated log-loss
    assert abs(slope.mean()) < 4 * slope.std() / np.sqrt(slope.size)


@pytest.mark.parametrize("rho", [0.1, 2.0, 30.0])
@pytest.mark.parametrize("cos", [-0.7, 0.0, 0.3, 0.999])
def test_accuracy_against_quad(cos: float, rho: float) -> None:
    t = cos / np.sqrt(1 - cos**2)

    def density(z: float) -> float:
        return (
            2
            * norm.pdf(z)
            * (expit(rho * z) * norm.cdf(t * z) + expit(-rho * z) * norm.cdf(-t * z))
        )

    edges = [0, 0.01, 0.05, 0.2, 1, 3, 12]
    want = sum(quad(density, a, b, epsrel=1e-13)[0] for a, b in pairwise(edges))
    assert float(accuracy(State.of(cos * rho, 1.0, rho))) == pytest.approx(want, rel=1e-12)


def test_limits_of_accuracy() -> None:
    rho = np.array([0.0, 1e-3, 1.0, 100.0])
    np.testing.assert_allclose(accuracy(State.of(0.0, 1.0, rho)), 0.5, rtol=1e-14)
    np.testing.assert_allclose(accuracy(State.of(rho**2, rho**2, rho), 0.5), 0.5, rtol=1e-14)
    angle = np.array(
        [0.2, 0.9, 1.5]
    )  # without label noise a direction errs on the wedge between the two
    np.testing.assert_allclose(
        accuracy(State.of(np.cos(angle) * 1e6, 1.0, 1e6)), 1 - angle / np.pi, atol=1e-6
    )


def test_rules_and_clients_that_are_zero() -> None:
    nothing = State.of(np.zeros(2), np.zeros(2), np.array([0.0, 2.0]))
    np.testing.assert_allclose(accuracy(nothing), 0.5)
    np.testing.assert_allclose(log_loss(nothing), np.log(2))
    np.testing.assert_allclose(brier(nothing), 0.25)
    assert np.all(np.isnan(calibration(nothing)))
    unknown = State(
        np.array([np.nan, 1.0]), np.array([np.nan, 2.0]), np.ones(2), np.array([np.nan, 0.5])
    )
    assert np.isnan(unknown.cos).tolist() == [True, False]
    for metric in (accuracy, log_loss, brier, calibration):
        assert np.isnan(metric(unknown)).tolist() == [True, False]


@settings(max_examples=40, deadline=None)
@given(st.floats(0.05, 5), st.floats(0.0, 5), st.floats(0.0, 0.45))
def test_shared_model_is_calibrated_and_best_on_its_scale(b: float, r: float, eps: float) -> None:
    """Section 2: FedAvg has slope 1, and no multiple of theta_0 a lower log-loss."""
    e = Energies.isotropic(b, r)
    state, c = fedavg(e, eps), float(shrinkage(e, eps))
    assert 0 < c <= 1
    assert float(calibration(state, eps)) == pytest.approx(1, rel=1e-9)
    assert float(state.cos) == pytest.approx(b / np.hypot(b, r), rel=1e-12)
    for factor in (0.8, 1.25):
        assert log_loss(State.of(factor * state.T, factor**2 * state.Q, state.rho), eps) > log_loss(
            state, eps
        )


def test_shrinkage_and_its_approximation() -> None:
    assert float(shrinkage(Energies.isotropic(2, 0))) == 1
    assert float(shrinkage(Energies.isotropic(2, 1), 0.5)) == 0
    for b, r, tolerance in (
        (1.5, 1.5, 0.003),
        (1, 1.5, 0.03),
        (2, 1.5, 0.03),
        (1.5, 3, 0.03),
        (2, 3, 0.03),
    ):
        assert float(shrinkage(Energies.isotropic(b, r))) == pytest.approx(
            1 / np.sqrt(1 + np.pi * r**2 / 8), rel=tolerance
        )


def test_symmetry_and_flips() -> None:
    """A reversed rule errs where the rule is right; eps = 1/2 leaves nothing to learn."""
    state, reversed_ = State.of(1.2, 2.0, 1.7), State.of(-1.2, 2.0, 1.7)
    assert float(accuracy(state) + accuracy(reversed_)) == pytest.approx(1, rel=1e-14)
    assert float(calibration(reversed_)) == pytest.approx(-float(calibration(state)), rel=1e-14)
    assert float(accuracy(state, 0.5)) == pytest.approx(0.5, rel=1e-14)
