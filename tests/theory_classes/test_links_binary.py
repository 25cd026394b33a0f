"""Quadrature against scipy.integrate.quad, the prox against brentq, roots against their
equations.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import norm

from fedasym.theory.classes.metrics import (
    half_normal_nodes,
    inverse_reach,
    logistic_prox,
    nodes_for,
    phi,
    smooth_sigmoid,
    step_for,
)
from fedasym.theory.roots import find_fixed_points, newton_fixed_points


@pytest.mark.parametrize("tau", [0.0, 1e-6, 0.3, 1.0, 3.9, 4.1, 10.0, 300.0])
@pytest.mark.parametrize("mu", [-40.0, -3.0, 0.0, 0.5, 12.0])
def test_smoothed_link_against_quad(mu: float, tau: float) -> None:
    p, d = (float(x[0, 0]) for x in smooth_sigmoid(np.array([[mu]]), np.array([tau])))
    if tau == 0:
        want = expit(mu), expit(mu) * expit(-mu)
    else:
        places = sorted(
            {float(np.clip(-(mu + shift) / tau, -11, 11)) for shift in (-30, -5, 0, 5, 30)}
        )
        options = {"points": places, "epsabs": 1e-15, "epsrel": 1e-13, "limit": 400}
        want = (
            quad(lambda z: expit(mu + tau * z) * norm.pdf(z), -12, 12, **options)[0],
            quad(
                lambda z: expit(mu + tau * z) * expit(-mu - tau * z) * norm.pdf(z),
                -12,
                12,
                **options,
            )[0],
        )
    assert (p, d) == pytest.approx(want, rel=1e-11, abs=2e-15)


def test_both_rules_for_noise_agree_where_they_meet() -> None:
    mu, tau = np.linspace(-30, 30, 61)[None], np.array([4.0])
    for narrow, wide in zip(
        smooth_sigmoid(mu, tau), smooth_sigmoid(mu, tau * (1 + 1e-15) + 1e-15), strict=True
    ):
        np.testing.assert_allclose(wide, narrow, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("sd", [0.1, 1.0, 5.0, 20.0, 300.0])
def test_trapezoid_in_the_strip(sd: float) -> None:
    z, w = half_normal_nodes(int(nodes_for(step_for(np.asarray(np.pi / sd)))))
    edges = np.unique(np.clip(np.outer([-1, 1], [0, 2 / sd, 8 / sd, 40 / sd, 1, 3, 12]), -12, 12))
    want = sum(
        quad(lambda x: expit(sd * x) ** 2 * norm.pdf(x), a, b, epsabs=1e-16, epsrel=1e-13)[0]
        for a, b in pairwise(edges)
    )
    assert w @ (expit(sd * z) ** 2 + expit(-sd * z) ** 2) == pytest.approx(want, rel=1e-12)


@settings(max_examples=300, deadline=None)
@given(st.floats(-1e3, 1e3), st.floats(-12, 12))
def test_prox_against_brentq(w: float, log_v: float) -> None:
    v = 10.0**log_v
    eta = float(logistic_prox(np.array(w), np.array(v)))
    want = brentq(
        lambda x: (x - w) - v * expit(-x),
        w - 1e-9,
        w + v + 1e-9,
        xtol=1e-15,
        rtol=1e-15,
        maxiter=1000,
    )
    assert eta == pytest.approx(want, rel=1e-12, abs=4e-15 * (1 + abs(w) + v))


def test_prox_where_newton_from_the_end_of_the_bracket_cycles() -> None:
    """A bracket alone does not stop the cycle 3.61, -14.6, 3.61, ... at V = 36."""
    w = np.linspace(-100, 40, 4001)
    for v in (36.0, 100.0, 1e3):
        eta = logistic_prox(w, np.array(v))
        assert (
            np.max(np.abs(eta - w - v * expit(-eta)) / (1 + v * expit(eta) * expit(-eta))) < 1e-12
        )


def test_prox_is_symmetric_and_increasing() -> None:
    w, v = np.linspace(-50, 30, 1001), np.array(20.0)
    eta = logistic_prox(w, v)
    np.testing.assert_allclose(logistic_prox(-w - v, v), -eta, atol=1e-13)
    assert np.all(np.diff(eta) > 0)


def test_mean_slope_and_its_inverse() -> None:
    a = np.logspace(-6, 4, 41)
    assert np.all(np.diff(phi(a)) <= 0)
    np.testing.assert_allclose(phi(1e6) * 1e6 * np.sqrt(2 * np.pi), 1, rtol=1e-10)
    x = np.logspace(-8, 3, 45)
    np.testing.assert_allclose(inverse_reach(x * phi(x)), x, rtol=1e-8)
    np.testing.assert_allclose(inverse_reach(x * phi(x))[:30], x[:30], rtol=1e-12)
    assert inverse_reach(0.0) == 0
    assert inverse_reach(0.5) == np.inf


def test_fixed_points_freeze_give_up_and_agree_with_newton() -> None:
    start = np.linspace(0.1, 2, 7)[:, None]

    def image(u: np.ndarray, _: object) -> np.ndarray:
        return np.cos(u)

    for solver in (find_fixed_points, newton_fixed_points):
        found = solver(image, start)
        np.testing.assert_allclose(found.u, 0.7390851332151607, rtol=1e-13)
        assert np.all(found.residual < 1e-13)
    lost = find_fixed_points(lambda u, _: u + 0.5, start, stop=lambda u, _: u[:, 0] > 20)
    assert np.all(np.isinf(lost.residual) | (lost.residual == 0.5))
