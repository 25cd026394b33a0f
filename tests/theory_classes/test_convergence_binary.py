"""Sections 4 and 5: the separability threshold, the maximum-likelihood estimate below it, the max
margin above it.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import linprog, minimize_scalar
from scipy.special import expit, ndtr
from scipy.stats import norm

from fedasym.theory.classes.margins import EDGE, fit_to_convergence, hinges, max_margin
from fedasym.theory.classes.metrics import accuracy, accuracy_at
from fedasym.theory.classes.ridge import separability_threshold, shrinkage, solve_ridge
from fedasym.worlds.classes import Energies

from .settings import THREE, TWO, draw


def test_table_of_thresholds() -> None:
    """Section 4's numbers; one half without signal or with coin tosses for labels."""
    found = separability_threshold([0, 1, 2, 3, 5]).gamma
    np.testing.assert_allclose(found, [0.5, 0.439, 0.345, 0.273, 0.185], atol=6e-4)
    np.testing.assert_allclose(separability_threshold(3.0, 0.5).gamma, 0.5, rtol=1e-13)
    assert np.all(np.diff(separability_threshold(np.logspace(-3, 3, 30)).gamma) < 0)
    assert np.all(np.diff(separability_threshold(2.0, np.linspace(0, 0.5, 9)).gamma) > 0)


@pytest.mark.parametrize(("rho", "eps"), [(0.7, 0.0), (4.0, 0.0), (4.0, 0.15)])
def test_threshold_against_quad_and_a_plain_minimiser(rho: float, eps: float) -> None:
    def bell(u: float) -> float:
        return float(np.exp(-(u**2) / 2) / np.sqrt(2 * np.pi))

    def energy(t: float) -> float:
        def density(u: float) -> float:
            a = t * u
            return (
                2
                * (eps + (1 - 2 * eps) * expit(rho * u))
                * bell(u)
                * ((1 + a * a) * ndtr(-a) - a * bell(a))
            )

        return quad(density, -10, 10, points=[-1, 0, 1], epsabs=1e-13)[0]

    best = minimize_scalar(energy, bounds=(0, 20), method="bounded", options={"xatol": 1e-9})
    found = separability_threshold(rho, eps)
    assert float(found.gamma) == pytest.approx(best.fun, rel=1e-10)
    assert float(found.tangent) == pytest.approx(best.x, rel=1e-5)


def test_threshold_against_drawn_data() -> None:
    """Linear programming says which data are separable."""
    rng = np.random.default_rng(5)
    e = Energies.isotropic(1.5, 1.5)
    edge = float(separability_threshold(e.rho).gamma)

    def separable(gamma: float) -> bool:
        client = draw(e, gamma, 100, rng)[0]
        rows = -(client.y[:, None] * client.x)
        return bool(
            linprog(
                np.zeros(rows.shape[1]), A_ub=rows, b_ub=-np.ones(len(rows)), bounds=(None, None)
            ).status
            == 0
        )

    assert [separable(1.25 * edge) for _ in range(5)] == [True] * 5
    assert [separable(0.8 * edge) for _ in range(5)] == [False] * 5


@settings(max_examples=12, deadline=None)
@given(st.floats(0.2, 4), st.floats(0.2, 4), st.floats(0.05, 0.95), st.sampled_from([0.0, 0.1]))
def test_the_estimate_depends_on_the_signal_alone(
    b: float, r: float, share: float, eps: float
) -> None:
    """Below gamma* neither the shared model nor the covariance matters, except through rho."""
    e = Energies.isotropic(b, r, **TWO)
    gamma = share * float(separability_threshold(e.rho, eps).gamma)
    plain = Energies.isotropic(float(e.rho), 0.0)
    fits = [
        solve_ridge(e, gamma, 0.0, 0.7, eps),
        solve_ridge(plain, gamma, 0.0, 0.0, eps),
        fit_to_convergence(e, gamma, eps).fit,
    ]
    for fit in fits[1:]:
        assert (float(fit.T), float(fit.Q), float(fit.V)) == pytest.approx(
            (float(fits[0].T), float(fits[0].Q), float(fits[0].V)), rel=1e-8
        )


@pytest.mark.parametrize("spectrum", [{}, THREE])
@pytest.mark.parametrize(("b", "r"), [(1.5, 1.5), (0.3, 0.2), (1, 3)])
def test_estimate_and_max_margin_meet_at_the_threshold(b: float, r: float, spectrum: dict) -> None:
    e = Energies.isotropic(b, r, **spectrum)
    edge = separability_threshold(e.rho)
    meeting = float(accuracy_at(edge.tangent, e.rho))
    near = np.array([1 - 1e-6, 1, 1 + 1e-6])
    np.testing.assert_allclose(
        accuracy(fit_to_convergence(e, near * edge.gamma).fit), meeting, atol=2e-6
    )
    # continuous where the estimate begins to be extrapolated, and falling towards the threshold
    falling = accuracy(
        fit_to_convergence(
            e, np.array([0.9, 0.99, EDGE - 1e-9, EDGE + 1e-9, 0.9999]) * edge.gamma
        ).fit
    )
    assert falling[2] == pytest.approx(falling[3], abs=1e-8)
    assert np.all(np.diff(falling) < 1e-8)


def test_the_estimate_next_to_the_threshold() -> None:
    """Page: acc* = .66519, max margin .66500 at 1.005 gamma*; beyond EDGE a line through acc* is
    within .02 pp.
    """
    e = Energies.isotropic(1.5, 1.5)
    edge = separability_threshold(e.rho)
    assert float(accuracy_at(edge.tangent, e.rho)) == pytest.approx(0.66519, abs=5e-6)
    assert float(accuracy(max_margin(e, 1.005 * edge.gamma))) == pytest.approx(0.66500, abs=5e-6)
    solved = solve_ridge(e, 0.9995 * edge.gamma, 0.0)
    assert float(accuracy(fit_to_convergence(e, 0.9995 * edge.gamma).fit)) == pytest.approx(
        float(accuracy(solved)), abs=2e-4
    )
    # The rule of the page for the last 4% agrees where it was made.
    top, start = (
        float(accuracy_at(edge.tangent, e.rho)),
        float(accuracy(solve_ridge(e, 0.96 * edge.gamma, 0.0))),
    )
    rule = top + (start - top) * np.sqrt(0.03 / 0.04)
    assert rule == pytest.approx(float(accuracy(solve_ridge(e, 0.97 * edge.gamma, 0.0))), abs=3e-4)


@pytest.mark.parametrize(("gamma", "spectrum"), [(0.6, TWO), (2.0, {})])
def test_max_margin_is_where_small_ridges_go(gamma: float, spectrum: dict) -> None:
    """RTFA(lam -> 0) turns into the max-margin direction, slowly, and forgets its centre."""
    e = Energies.isotropic(1.0, 1.0, **spectrum)
    end = float(accuracy(fit_to_convergence(e, gamma).fit))
    lams = np.array([1e-2, 1e-4, 1e-6, 1e-8])
    gaps = accuracy(solve_ridge(e, gamma, lams, shrinkage(e))) - end
    assert np.all(np.diff(gaps) < 0)
    assert 0 < gaps[-1] < 0.35 * gaps[0]
    alone = solve_ridge(e.alone, gamma, lams)
    assert abs(float(accuracy(alone)[-1]) - end) < 0.02


def test_hinges_against_quad() -> None:
    u, k, rho, eps = 0.6, 0.4, 2.0, 0.05
    cos, sin = np.tanh(u), 1 / np.cosh(u)
    found = hinges(*(np.array([x]) for x in (u, k, rho, eps)))

    v, weight = np.polynomial.hermite_e.hermegauss(120)
    weight = weight / weight.sum()

    def link(z: float) -> tuple[float, float]:
        sig = expit(rho * (cos * z + sin * v))
        return eps + (1 - 2 * eps) * float(weight @ sig), (1 - 2 * eps) * float(
            weight @ (sig * (1 - sig))
        )

    wanted = [
        2 * quad(lambda z: link(z)[0] * norm.pdf(z), -10, k)[0],
        2 * quad(lambda z: link(z)[0] * (k - z) * norm.pdf(z), -10, k)[0],
        2 * quad(lambda z: link(z)[1] * (k - z) * norm.pdf(z), -10, k)[0],
        2 * quad(lambda z: link(z)[0] * (k - z) ** 2 * norm.pdf(z), -10, k)[0],
    ]
    np.testing.assert_allclose([float(x[0]) for x in found], wanted, rtol=1e-9)


def test_scale_of_the_covariance_and_dead_directions_do_not_turn_the_margin() -> None:
    one = max_margin(Energies.isotropic(1, 1), 2.0)
    scaled = max_margin(
        Energies(np.array([7.0]), np.array([1.0]), np.array([1 / 7]), np.array([1 / 7])), 2.0
    )
    padded = max_margin(
        Energies(np.array([0.0, 1]), np.array([0.5, 0.5]), np.array([5.0, 1]), np.array([5.0, 1])),
        4.0,
    )
    for other in (scaled, padded):
        assert (float(other.T), float(other.Q)) == pytest.approx(
            (float(one.T), float(one.Q)), rel=1e-10
        )


def test_extreme_aspects_and_signals() -> None:
    gamma, b, r = (
        x.ravel()
        for x in np.meshgrid([1e-3, 0.3, 0.5, 1e3], [0.0, 1e-3, 1.0, 30.0], [0.0, 1.0, 30.0])
    )
    for spectrum in ({}, {"s": [0, 0.1, 10], "h": [0.2, 0.3, 0.5]}):
        end = fit_to_convergence(Energies.isotropic(b, r, **spectrum), gamma)
        assert not np.any(end.fit.diverged)
        acc = accuracy(end.fit)
        assert np.all((acc >= 0.5 - 1e-12) & (acc <= 1))
