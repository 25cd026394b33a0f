"""The softmax fixed point with exchangeable classes (section 11.1): its parts, its limits, its
invariants.
"""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from fedasym.core.errors import NoFormula
from fedasym.theory.classes.margins import best_softmax_mixture
from fedasym.theory.classes.softmax import (
    SEARCH,
    SoftmaxPoints,
    contrasts,
    draw_points,
    prox_curvature,
    prox_start,
    softmax_ceiling,
    softmax_centre,
    softmax_fedavg,
    softmax_prox,
    softmax_step,
)
from fedasym.theory.classes.softmax_ridge import (
    WarmStart,
    best_softmax_ridge,
    control_means,
    softmax_means,
    softmax_ridge_path,
    softmax_rtfa,
    stopped_softmax_fits,
)
from fedasym.theory.classes.squared_labels import fit_one_hot
from fedasym.worlds.classes import Energies

TWO_ATOMS = Energies.isotropic(1.5, 1.2, [0.5, 3.0], [0.6, 0.4])


@pytest.mark.parametrize("V", [1e-3, 1.0, 30.0, 1e5])
def test_prox_against_a_general_minimiser(V):
    rng = np.random.default_rng(0)
    w = 2.5 * rng.standard_normal((4, 3))
    eta, p = softmax_prox(w, V, prox_start(w, V))
    np.testing.assert_allclose(p, softmax(eta, axis=0), rtol=1e-10)
    np.testing.assert_allclose(
        eta + V * p, w[:, None] + V * np.eye(4)[..., None], atol=1e-12 * (10 + V)
    )
    for label in range(4):
        for n in range(3):

            def objective(x, label=label, n=n):
                g = x - w[:, n] + V * (softmax(x) - np.eye(4)[label])
                return 0.5 * np.sum((x - w[:, n]) ** 2) + V * (logsumexp(x) - x[label]), g

            found = minimize(
                objective,
                w[:, n],
                jac=True,
                method="BFGS",
                options={"gtol": 1e-9 * (1 + V), "maxiter": 2000},
            )
            np.testing.assert_allclose(eta[:, label, n], found.x, atol=2e-5 * max(1, V / 1e3))


def test_prox_does_not_depend_on_its_start():
    rng = np.random.default_rng(1)
    w = 3 * rng.standard_normal((5, 40))
    cold = softmax_prox(w, 50.0, prox_start(w, 50.0))[0]
    odd = softmax_prox(w, 50.0, 30 * rng.standard_normal((5, 5, 40)))[0]
    np.testing.assert_allclose(odd, cold, atol=1e-10)


@pytest.mark.parametrize("V", [0.0, 1e-6, 0.7, 1e4])
def test_curvature_against_dense_algebra(V):
    p = np.random.default_rng(2).dirichlet(np.full(6, 0.3), size=50).T
    for n in range(50):
        L = np.diag(p[:, n]) - np.outer(p[:, n], p[:, n])
        assert np.isclose(
            prox_curvature(p, V)[n], np.trace(L @ np.linalg.inv(np.eye(6) + V * L)), rtol=1e-9
        )


def product(step=0.65, reach=9):
    """Trapezoid points in the four dimensions of three classes."""
    z = step * np.arange(-reach, reach + 1)
    weight = np.exp(-z * z / 2)
    weight /= weight.sum()
    grid = np.meshgrid(z, z, z, z, indexing="ij")
    x = np.stack([each.ravel() for each in grid])
    return SoftmaxPoints(x[:2], x[2:], np.einsum("a,b,c,d->abcd", *[weight] * 4).ravel())


def test_controls_remove_the_sampling_error():
    """Means (A) at 2^13 points with controls, at 130321 points of a product rule, and at other
    seeds.
    """
    T, Q, V, rho = 1.4, 1.1, 1.5, 1.6
    dense = product()
    exact = np.array(softmax_means(T, Q, V, rho, dense, WarmStart()))
    w = np.sqrt(Q) * dense.z1
    p = softmax(T / Q * w + np.sqrt(rho**2 - T**2 / Q) * dense.z2, axis=0)
    values = np.stack([p[0] * w[0], np.cos(w[1])])
    np.testing.assert_allclose(
        control_means(values, T, Q, rho, w, p, dense.weight), values @ dense.weight, rtol=2e-7
    )
    for seed in range(3):
        np.testing.assert_allclose(
            softmax_means(T, Q, V, rho, draw_points(3, seed=seed), WarmStart()), exact, rtol=1.5e-4
        )


def stationarity(fit, points):
    """E[s'g] and E[eta'g] per contrast."""
    w = np.sqrt(fit.Q) * points.z1
    s = fit.T / fit.Q * w + np.sqrt(fit.rho**2 - fit.T**2 / fit.Q) * points.z2
    p = softmax(s, axis=0)
    eta, q = softmax_prox(w, fit.V, prox_start(w, fit.V))
    g = np.eye(fit.classes)[..., None] - q
    share = p * points.weight / (fit.classes - 1)
    return np.einsum("kn,jn,jkn->", share, s, g), np.einsum("kn,jkn,jkn->", share, eta, g)


def test_stationarity():
    """Sigma = I: E[s'g] = ridge (T - c B0) and E[eta'g] = ridge (Q - c W0'W), Stein's identity used
    nowhere.
    """
    energies = Energies.isotropic(1.0, 1.2)
    points = product(0.6, 9)
    fit = softmax_ridge_path(energies, 0.5, [0.4], 3, points=points)[0]
    score, own = stationarity(fit, points)
    assert np.isclose(score, 0.4 * (fit.T - fit.c * 1.0), rtol=1e-6)
    assert np.isclose(own, 0.4 * (fit.Q - fit.c * fit.along), rtol=1e-6)
    sampled = softmax_ridge_path(energies, 0.5, [0.4], 3)[
        0
    ]  # the same solution at the default points
    np.testing.assert_allclose([sampled.T, sampled.Q, sampled.V], [fit.T, fit.Q, fit.V], rtol=2e-4)
    assert np.isclose(sampled.accuracy, fit.accuracy, atol=1e-5)


def test_seeds_agree():
    for classes in (3, 10):
        found = [
            softmax_ridge_path(
                TWO_ATOMS, 1.0, [0.3], classes, points=draw_points(classes, seed=seed)
            )[0]
            for seed in range(3)
        ]
        assert np.ptp([fit.accuracy for fit in found]) < 5e-5
        assert np.ptp([fit.log_loss for fit in found]) < 3e-4


def test_an_infinite_ridge_is_fedavg_and_a_large_one_nearly():
    for classes in (3, 6):
        far, near = softmax_ridge_path(TWO_ATOMS, 2.0, [np.inf, 1e7], classes)
        shared = softmax_fedavg(TWO_ATOMS, classes)
        assert (far.T, far.Q) == (shared.T, shared.Q)
        assert far.distance == 0
        np.testing.assert_allclose(
            [near.T, near.Q, near.accuracy], [shared.T, shared.Q, shared.accuracy], rtol=1e-5
        )
        np.testing.assert_allclose([near.Hh, near.G, near.M], [far.Hh, far.G, far.M], rtol=1e-3)


def test_a_large_ridge_is_one_gradient_step():
    """theta = theta_bar - (1/ridge) gradient to first order: section 6 against section 3."""
    ridge = 1e4
    fit = softmax_rtfa(TWO_ATOMS, 2.0, ridge, 5)
    shared = softmax_fedavg(TWO_ATOMS, 5)
    step = softmax_step(TWO_ATOMS, 2.0, 5, 1 / ridge)[0]
    assert np.isclose(fit.T - shared.T, step.T - shared.T, rtol=2e-3)
    best, a = softmax_step(TWO_ATOMS, 2.0, 5)
    assert best.accuracy > max(
        softmax_step(TWO_ATOMS, 2.0, 5, a * factor)[0].accuracy for factor in (0.9, 1.1)
    )


def test_local_ridge_sees_only_the_whole():
    """With c = 0 theta_0 and Delta exchange roles; nothing shared is worth less."""
    other = Energies(TWO_ATOMS.s, TWO_ATOMS.h, TWO_ATOMS.ed, TWO_ATOMS.e0)
    mine, theirs = (
        softmax_ridge_path(each, 1.0, [0.5], 4, shared=False)[0] for each in (TWO_ATOMS, other)
    )
    np.testing.assert_allclose([mine.T, mine.Q, mine.V], [theirs.T, theirs.Q, theirs.V], rtol=1e-8)
    few = draw_points(4, SEARCH)
    alone, together = (
        best_softmax_ridge(TWO_ATOMS, 1.0, 4, shared=shared, points=few) for shared in (False, True)
    )
    assert alone.accuracy < together.accuracy


def test_units_do_not_matter():
    """Sigma -> a Sigma, theta -> theta/sqrt a, ridge -> a ridge."""
    a = 3.7
    scaled = Energies(a * TWO_ATOMS.s, TWO_ATOMS.h, TWO_ATOMS.e0 / a, TWO_ATOMS.ed / a)
    one, two = softmax_rtfa(TWO_ATOMS, 1.5, 0.4, 3), softmax_rtfa(scaled, 1.5, a * 0.4, 3)
    np.testing.assert_allclose(
        [one.T, one.Q, one.V, one.accuracy], [two.T, two.Q, two.V, two.accuracy], rtol=1e-8
    )


def test_a_path_is_smooth_and_independent_of_its_order():
    ridges = np.geomspace(30, 0.05, 7)
    few = draw_points(4, SEARCH)
    down = softmax_ridge_path(TWO_ATOMS, 1.0, ridges, 4, points=few)
    up = softmax_ridge_path(TWO_ATOMS, 1.0, ridges[::-1], 4, points=few)[::-1]
    alone = softmax_ridge_path(TWO_ATOMS, 1.0, [ridges[-1]], 4, points=few)[0]
    np.testing.assert_allclose([fit.T for fit in down], [fit.T for fit in up], rtol=1e-8)
    assert np.isclose(alone.T, down[-1].T, rtol=1e-8)
    R = np.array([fit.distance for fit in down])
    assert np.all(np.diff(R) > 0)
    h = np.array([1e-2, 1e-3])
    near = 0.3 * np.exp(np.concatenate([h, -h]))
    above, below = np.reshape(
        [fit.accuracy for fit in softmax_ridge_path(TWO_ATOMS, 1.0, near, 4, points=few)], (2, 2)
    )
    assert np.isclose(*((above - below) / h), rtol=1e-3)
    tau = np.sum(
        np.diff(np.log(R)) / np.sqrt(ridges[1:] * ridges[:-1])
    )  # the clock of section 7 moves forward
    assert 0.1 < (tau + 1 / ridges[0]) * ridges[-1] < 1


def test_the_best_ridge_is_best_and_near_its_rule():
    for classes in (3, 10):
        energies = Energies.isotropic(1.5, 1.5)
        best = best_softmax_ridge(energies, 2.0, classes)
        by_rule = 2.0 / (softmax_centre(energies, classes) * 1.5**2)
        ridges = [best.ridge / 1.3, best.ridge, best.ridge * 1.3, by_rule, 0.01]
        *around, rule, bare = softmax_ridge_path(energies, 2.0, ridges, classes)
        assert around[1].accuracy > max(around[0].accuracy, around[2].accuracy)
        assert (
            best.accuracy - 2e-4 < rule.accuracy <= best.accuracy + 1e-7
        )  # section 9.1: at most .02 pp lost
        assert best.accuracy > softmax_step(energies, 2.0, classes)[0].accuracy
        assert best.accuracy > fit_one_hot(energies, 2.0, None, classes).accuracy - 4e-3
        assert best.accuracy < softmax_ceiling(energies, classes).accuracy
        mixed, alpha = best_softmax_mixture(bare, energies)
        assert 0 < alpha < 1
        assert bare.accuracy < mixed.accuracy < best.accuracy + 1e-6
    nothing = best_softmax_ridge(Energies.isotropic(1.0, 0.0), 1.0, 3)
    assert np.isinf(nothing.ridge)


def test_pure_noise_is_a_guess_and_far_ridges_are_bridged():
    for fit in softmax_ridge_path(
        Energies.isotropic(0.0, 0.0), 0.5, [1e6, 1e-2], 3, points=draw_points(3, SEARCH)
    ):
        assert np.isclose(fit.accuracy, 1 / 3, rtol=1e-9)
        assert fit.log_loss >= np.log(3) - 1e-9
    energies, few = Energies.isotropic(3.0, 1.0), draw_points(3, SEARCH)
    far, alone = (
        softmax_ridge_path(energies, 5.0, [1e6, 1e-2], 3, points=few)[1],
        softmax_ridge_path(energies, 5.0, [1e-2], 3, points=few)[0],
    )
    assert np.isclose(far.Q, alone.Q, rtol=1e-8)


def test_descent_arrives_at_the_maximum_likelihood_estimate():
    """Few unknowns per sample: late times change nothing."""
    early, late = stopped_softmax_fits(Energies.isotropic(0.8, 0.8), 0.05, [1e3, 1e5], 3)
    assert np.isclose(early.accuracy, late.accuracy, atol=1e-4)


def test_least_squares_limits():
    energies = Energies.isotropic(1.5, 1.5)
    shared = fit_one_hot(energies, 2.0, np.inf, 5)
    near = fit_one_hot(energies, 2.0, 1e9, 5)
    np.testing.assert_allclose(
        [near.T, near.Q, near.risk], [shared.T, shared.Q, shared.risk], rtol=1e-6
    )
    assert np.isclose(
        shared.accuracy, softmax_fedavg(energies, 5).accuracy, rtol=1e-10
    )  # the same direction
    best = fit_one_hot(energies, 2.0, None, 5)
    for factor in (0.8, 1.25):
        other = fit_one_hot(energies, 2.0, best.ridge * factor, 5)
        assert other.risk > best.risk
        assert other.accuracy < best.accuracy
    assert np.isclose(
        fit_one_hot(energies, 1.0, 0.0, 5).accuracy, 1 / 5, rtol=1e-9
    )  # n = d: noise without bound


def test_what_is_not_derived_says_so():
    with pytest.raises(
        NoFormula, match="no formula covers fine-tuning to convergence with 3 classes"
    ):
        softmax_rtfa(TWO_ATOMS, 1.0, 0.0, 3)
    with pytest.raises(NoFormula, match="for up to 200"):
        softmax_rtfa(TWO_ATOMS, 1.0, 1.0, 1000)


def test_contrasts_are_a_basis():
    B = contrasts(6)
    np.testing.assert_allclose(B @ B.T, np.eye(6) - 1 / 6, atol=1e-14)
