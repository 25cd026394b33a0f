"""Section 3: the system of three unknowns. Identities, limits, invariances, batches, extremes."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from fedasym.theory.classes.metrics import accuracy, log_loss, logistic_prox
from fedasym.theory.classes.optimum import ridge_by_rule
from fedasym.theory.classes.ridge import (
    fedavg,
    separability_threshold,
    shared_state,
    shrinkage,
    solve_ridge,
    unknowns,
)
from fedasym.worlds.classes import Energies

from .settings import THREE, TWO

lengths, aspects, ridges = (
    st.floats(0.2, 4),
    st.floats(0.03, 30),
    st.floats(-3, 2).map(lambda x: 10**x),
)


@settings(max_examples=15, deadline=None)
@given(lengths, lengths, aspects, ridges, st.sampled_from([0.0, 0.1]))
def test_stationarity(b: float, r: float, gamma: float, lam: float, eps: float) -> None:
    """E[s g_y] = lam (T - c B0) and E[eta g_y] = lam (Q - c theta_0'theta_hat) for Sigma = I, on a
    plain product grid.
    """
    e = Energies.isotropic(b, r)
    c = float(shrinkage(e, eps))
    fit = solve_ridge(e, gamma, lam, c, eps)
    rho, sd = float(fit.rho), float(np.sqrt(fit.Q))
    z = np.linspace(-9, 9, 2 * int(9 * max(12, 3 * sd, 3 * rho)) + 1)
    weight = np.exp(-(z**2) / 2)
    weight /= weight.sum()
    w = sd * z[:, None]
    s = float(fit.T) / sd * z[:, None] + np.sqrt(float(fit.rest)) * z
    eta = logistic_prox(w, fit.V)
    p = eps + (1 - 2 * eps) * expit(s)
    pull = float(2 * weight @ (p * s * expit(-eta)) @ weight)
    own = float(2 * weight @ (p * eta * expit(-eta)) @ weight)
    overlap = float((fit.f0 * e.e0).sum())
    scale = lam * (float(fit.Q) + float(fit.rho) ** 2) + abs(pull)
    assert pull == pytest.approx(lam * (float(fit.T) - c * b**2), abs=1e-11 * scale)
    assert own == pytest.approx(lam * (float(fit.Q) - c * overlap), abs=1e-11 * scale)


@settings(max_examples=15, deadline=None)
@given(lengths, lengths, aspects, ridges, st.floats(-3, 3).map(lambda x: 10**x))
def test_scaling_of_the_covariance(b: float, r: float, gamma: float, lam: float, a: float) -> None:
    """Sigma -> a Sigma, theta -> theta/sqrt a, lam -> a lam changes nothing that is measured."""
    one = Energies.isotropic(b, r, **TWO)
    other = Energies(a * one.s, one.h, one.e0 / a, one.ed / a)
    c = shrinkage(one)
    first, second = solve_ridge(one, gamma, lam, c), solve_ridge(other, gamma, a * lam, c)
    for key, factor in (("T", 1), ("Q", 1), ("V", 1), ("H", 1), ("M", 1), ("G", 1), ("rest", 1)):
        assert float(getattr(second, key)) == pytest.approx(
            factor * float(getattr(first, key)), rel=1e-9
        ), key


@settings(max_examples=15, deadline=None)
@given(lengths, lengths, aspects, ridges)
def test_without_a_centre_the_energies_may_be_exchanged(
    b: float, r: float, gamma: float, lam: float
) -> None:
    e = Energies.isotropic(b, r, **THREE)
    swapped = Energies(e.s, e.h, e.ed, e.e0)
    fits = [solve_ridge(x, gamma, lam, 0.0) for x in (e, swapped, e.alone)]
    for fit in fits[1:]:
        assert (float(fit.T), float(fit.Q)) == pytest.approx(
            (float(fits[0].T), float(fits[0].Q)), rel=1e-9
        )


def test_an_infinite_ridge_keeps_the_shared_model() -> None:
    e = Energies.isotropic([1.0, 2.0, 0.0, 1.0], [1.0, 0.5, 1.0, 0.0], **TWO)
    c = shrinkage(e)
    end, near, shared = solve_ridge(e, 2.0, np.inf, c), solve_ridge(e, 2.0, 1e7, c), fedavg(e)
    for key in ("T", "Q"):
        np.testing.assert_allclose(getattr(end, key), getattr(shared, key), rtol=1e-14)
        np.testing.assert_allclose(getattr(near, key), getattr(shared, key), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(near.M[c > 0], end.M[c > 0], rtol=1e-5)
    np.testing.assert_allclose(accuracy(shared_state(e, 0.3)), accuracy(shared), rtol=1e-12)


def test_flipped_coins_teach_nothing() -> None:
    e = Energies.isotropic(1.0, 1.0)
    fit = solve_ridge(e, [0.2, 2.0], 0.5, 0.0, eps=0.5)
    np.testing.assert_allclose(accuracy(fit, 0.5), 0.5, rtol=1e-13)
    np.testing.assert_allclose(fit.T, 0, atol=1e-13)


def test_directions_that_do_not_vary_count_for_nothing() -> None:
    seen = Energies(
        np.array([1.0, 2.0]), np.array([0.25, 0.25]), np.array([0.5, 0.5]), np.array([1.0, 0.2])
    )
    padded = Energies(
        np.array([0.0, 1, 2]),
        np.array([0.5, 0.25, 0.25]),
        np.array([3.0, 0.5, 0.5]),
        np.array([2.0, 1.0, 0.2]),
    )
    for lam in (0.0, 0.3):
        one, two = solve_ridge(seen, 0.2, lam, 0.7), solve_ridge(padded, 0.2, lam, 0.7)
        assert (float(one.T), float(one.Q), float(one.V)) == pytest.approx(
            (float(two.T), float(two.Q), float(two.V)), rel=1e-11
        )


def test_a_batch_is_its_settings_one_by_one() -> None:
    gamma, lam, b, r = np.array(
        list(itertools.product([0.1, 2.0], [1e-3, 0.3, np.inf], [0.5, 2.0], [1.0, 3.0]))
    ).T
    e = Energies.isotropic(b, r, **TWO)
    c = shrinkage(e)
    grid = (2, 3, 2, 2)
    whole = solve_ridge(
        Energies(*(x.reshape(*grid, 2) for x in (e.s, e.h, e.e0, e.ed))),
        *(x.reshape(grid) for x in (gamma, lam, c)),
    )
    assert whole.T.shape == grid
    for i in range(gamma.size):
        one = solve_ridge(e.take(i), gamma[i], lam[i], c[i])
        for key in ("T", "Q", "V", "rest", "M", "H", "G"):
            assert float(getattr(whole, key).ravel()[i]) == pytest.approx(
                float(getattr(one, key)), rel=1e-11, abs=1e-300
            ), key
        assert np.ravel(log_loss(whole))[i] == pytest.approx(float(log_loss(one)), rel=1e-11)


def test_a_warm_path_finds_the_same_fits() -> None:
    e, lams = Energies.isotropic([1.0, 2.0], 1.5), np.logspace(2, -3, 11)
    c, start = shrinkage(e), None
    for lam in lams:
        fit = solve_ridge(e, 2.0, lam, c, start=start)
        start = unknowns(fit.T, fit.Q, fit.V, fit.rest)
        np.testing.assert_allclose(fit.Q, solve_ridge(e, 2.0, lam, c).Q, rtol=1e-11)


def test_fewer_nodes_cost_what_they_say() -> None:
    e = Energies.isotropic(1.5, np.linspace(0.3, 4, 9))
    c = shrinkage(e)
    rough, fine = (solve_ridge(e, 1.0, 0.5, c, level=level) for level in (25.0, 37.0))
    np.testing.assert_allclose(rough.Q, fine.Q, rtol=1e-8)
    twice = solve_ridge(e, 1.0, 0.5, c, level=50.0)
    np.testing.assert_allclose(twice.Q, fine.Q, rtol=1e-12)


def test_extremes_are_solved_or_reported() -> None:
    """Every corner with a ridge has a solution, in a sensible order of accuracy, and says nothing
    on the way.
    """
    corners = itertools.product(
        [1e-3, 0.3, 2.0, 1e3], [1e-8, 1e-3, 1e6], [0.0, 1.0, 20.0], [0.0, 1e-3, 20.0]
    )
    gamma, lam, b, r = np.array(list(corners)).T
    for spectrum in ({}, {"s": [0.0, 0.1, 10], "h": [0.2, 0.3, 0.5]}):
        e = Energies.isotropic(b, r, **spectrum)
        fit = solve_ridge(e, gamma, lam, shrinkage(e))
        assert not np.any(fit.diverged)
        acc = accuracy(fit)
        assert np.all((acc > 0.5 - 1e-12) & (acc <= 1))
        assert np.all(np.isfinite(log_loss(fit)))


def test_no_ridge_on_separable_data_is_reported_as_diverged() -> None:
    fit = solve_ridge(
        Energies.isotropic(1, 1),
        [0.2, 0.6, 5.0, np.nextafter(float(separability_threshold(np.sqrt(2)).gamma), 1)],
        0.0,
    )
    assert fit.diverged.tolist() == [False, True, True, True]
    assert np.isnan(accuracy(fit)).tolist() == [False, True, True, True]


def test_a_diagram_of_ten_thousand_settings_is_fast() -> None:
    """The requirement: a 100 x 100 diagram in under a minute; here a tenth of it, in a tenth of the
    time.
    """
    r, gamma = np.meshgrid(np.linspace(0.1, 4, 40), np.logspace(-1.5, 1.5, 25))
    e = Energies.isotropic(1.5, r)
    begun = time.process_time()
    fits = (
        solve_ridge(e, gamma, ridge_by_rule(e, gamma), shrinkage(e)),
        solve_ridge(e.alone, gamma, ridge_by_rule(e.alone, gamma)),
    )
    scores = [accuracy(state) for state in (*fits, fedavg(e))]
    assert time.process_time() - begun < 6
    assert np.all(scores[0] >= scores[2] - 1e-9)  # a tuned ridge never falls below the shared model
    assert np.all(scores[0] >= scores[1] - 3e-4)
