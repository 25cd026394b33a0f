"""Section 11.2 (any Gram matrix, intercepts): against section 11.1, dense algebra and symmetries."""

import numpy as np
import pytest
from scipy.special import softmax

from fedasym.core.errors import NoFormula
from fedasym.theory.classes.multinomial_general import ClassEnergies, fedavg, rtfa, shared
from fedasym.theory.classes.multinomial_matrices import Shape, Unknowns, moments, prox_in_contrasts, root
from fedasym.theory.classes.multinomial_prox import prox, start
from fedasym.theory.classes.multinomial_ridge import local_ridge
from fedasym.theory.classes.multinomial_ridge import rtfa as exchangeable_rtfa
from fedasym.theory.classes.multinomial_rules import centre
from fedasym.theory.classes.multinomial_rules import fedavg as exchangeable_fedavg
from fedasym.theory.classes.multinomial_samples import Samples, contrasts, samples
from fedasym.worlds.energies import Energies

ENERGIES = Energies.isotropic(1.5, 1.2, [0.5, 3.0], [0.6, 0.4])


def test_prox_is_the_scalar_one_when_V_is_a_number():
    rng = np.random.default_rng(0)
    B = contrasts(4)
    w = 2 * rng.standard_normal((3, 6))
    eta, p = prox_in_contrasts(w.T, 2.5 * np.eye(3), B, np.zeros((6, 4, 3)))
    full, q = prox(B @ w, 2.5, start(B @ w, 2.5))
    np.testing.assert_allclose(p.transpose(2, 1, 0), q, atol=1e-10)
    np.testing.assert_allclose(eta, np.einsum("ca,ckn->nka", B, full), atol=1e-10)


@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e4])
def test_prox_solves_its_equation_for_any_V(scale):
    rng = np.random.default_rng(1)
    B, half = contrasts(5), rng.standard_normal((4, 4))
    V, w = scale * (half @ half.T + 0.1 * np.eye(4)), 3 * rng.standard_normal((20, 4))
    eta, p = prox_in_contrasts(w, V, B, np.zeros((20, 5, 4)))
    np.testing.assert_allclose(p, softmax(eta @ B.T, axis=2), rtol=1e-9)
    np.testing.assert_allclose(eta, w[:, None] + (B - p @ B) @ V, atol=1e-10 * (1 + scale))


def test_means_against_a_plain_loop():
    rng = np.random.default_rng(2)
    C, K = 3, 2
    B, points = contrasts(C), samples(C, 1 << 10)
    gram = rng.standard_normal((4, 6))
    joint = gram @ gram.T / 3
    shape = Shape(joint[:2, 2:], joint[2:, 2:], rng.standard_normal(2), joint[:2, :2], rng.standard_normal(2))
    half = rng.standard_normal((K, K))
    V = half @ half.T
    found = moments(shape, V, points, Unknowns())
    w, s = shape.contrasts(points)
    Hh, M, G, mean = np.zeros((K, K)), np.zeros((K, K)), np.zeros((K, K)), np.zeros(K)
    for n in range(points.weight.size):
        p = softmax(B @ s[:, n])
        for k in range(C):
            q = prox_in_contrasts(w[None, :, n], V, B, np.zeros((1, C, K)))[1][0, k]
            L, g = B.T @ (np.diag(q) - np.outer(q, q)) @ B, B.T @ (np.eye(C)[k] - q)
            Hh += points.weight[n] * p[k] * L @ np.linalg.inv(np.eye(K) + V @ L)
            M += points.weight[n] * np.outer(p[k] * (B[k] - B.T @ p), g)
            G += points.weight[n] * p[k] * np.outer(g, g)
            mean += points.weight[n] * p[k] * g
    for one, other in ((found.Hh, Hh), (found.M, M), (found.G, G), (found.mean, mean)):
        np.testing.assert_allclose(one, other, atol=1e-9)


@pytest.mark.parametrize("classes", [3, 5])
def test_exchangeable_classes_are_section_11_1(classes):
    """To sampling noise: the page's 5e-4 in accuracy and 1e-3 in log-loss."""
    population = ClassEnergies.exchangeable(ENERGIES, classes)
    eye = np.eye(classes - 1)
    A, bbar = shared(population)
    np.testing.assert_allclose(A, centre(ENERGIES, classes) * eye, atol=3e-3)
    np.testing.assert_allclose(bbar, 0, atol=3e-3)
    for general, scalar in (
        (fedavg(population), exchangeable_fedavg(ENERGIES, classes)),
        (rtfa(population, 1.0, 0.3), exchangeable_rtfa(ENERGIES, 1.0, 0.3, classes)),
        (rtfa(population, 1.0, 0.3, shared_model=False), local_ridge(ENERGIES, 1.0, 0.3, classes)),
    ):
        np.testing.assert_allclose(general.T, scalar.T * eye, atol=1e-2 * scalar.T)
        np.testing.assert_allclose(general.Q, scalar.Q * eye, atol=1e-2 * scalar.Q)
        assert np.isclose(general.accuracy, scalar.accuracy, atol=5e-4)
        assert np.isclose(general.log_loss, scalar.log_loss, atol=1e-3)
        assert np.isclose(general.brier, scalar.brier, atol=1e-3)


def unlike():
    rng = np.random.default_rng(3)
    W0, D = rng.standard_normal((2, 2, 6, 4))
    return np.array([0.5, 3.0]), np.array([0.6, 0.4]), 0.3 * W0.transpose(0, 2, 1) @ W0, 0.2 * D.transpose(0, 2, 1) @ D


def test_the_shared_model_is_stationary():
    """E softmax(sbar) = E softmax(s) and E[s0 (softmax(s) - softmax(sbar))'] = 0, by plain sampling."""
    population = ClassEnergies.of(*unlike(), np.array([1.0, 0.0, -0.5, -0.5]))
    A, bbar = shared(population)
    rng, B = np.random.default_rng(4), contrasts(4)
    s0 = root(population.centre) @ rng.standard_normal((3, 400_000))
    s = s0 + root(population.total - population.centre) @ rng.standard_normal(s0.shape) + population.intercept[:, None]
    gap = B.T @ (softmax(B @ s, axis=0) - softmax(B @ (A.T @ s0 + bbar[:, None]), axis=0))
    np.testing.assert_allclose(gap.mean(1), 0, atol=2e-3)
    np.testing.assert_allclose(s0 @ gap.T / s0.shape[1], 0, atol=6e-3)


def test_a_large_ridge_is_fedavg():
    s, h, gram0, gramD = unlike()
    bias = np.array([1.0, 0.0, -0.5, -0.5])
    population = ClassEnergies.of(s, h, gram0, gramD, bias)
    far, kept = rtfa(population, 1.0, 1e5), fedavg(population)
    np.testing.assert_allclose(far.T, kept.T, atol=1e-3 * np.abs(kept.T).max())
    assert np.isclose(far.accuracy, kept.accuracy, atol=5e-4)
    assert rtfa(population, 1.0, 0.3).accuracy > kept.accuracy


def test_names_of_classes_do_not_matter():
    """Classes in another order, and the points turned with them: the same solution, turned."""
    s, h, gram0, gramD = unlike()
    bias = np.array([1.0, 0.0, -0.5, -0.5])
    order = np.array([2, 0, 3, 1])
    other = ClassEnergies.of(s, h, gram0[:, order][:, :, order], gramD[:, order][:, :, order], bias[order])
    points = samples(4, 1 << 14)
    turn = contrasts(4).T @ np.eye(4)[order] @ contrasts(4)
    turned = Samples(turn @ points.xi1, turn @ points.xi2, points.weight)
    one = rtfa(ClassEnergies.of(s, h, gram0, gramD, bias), 1.0, 0.3, shared_model=False, points=points)
    two = rtfa(other, 1.0, 0.3, shared_model=False, points=turned)
    for mine, theirs in ((one.T, two.T), (one.Q, two.Q), (one.V, two.V)):
        np.testing.assert_allclose(turn @ mine @ turn.T, theirs, atol=1e-6 * np.abs(mine).max())
    np.testing.assert_allclose(turn @ one.intercept, two.intercept, atol=1e-6)
    assert np.isclose(one.accuracy, two.accuracy, atol=1e-3)


def test_a_population_whose_clients_agree_needs_no_fit():
    """ED = 0: the shared model is the truth, A = I."""
    s, h, gram0, _ = unlike()
    population = ClassEnergies.of(s, h, gram0, np.zeros_like(gram0), np.array([0.5, 0.0, 0.0, -0.5]))
    A, bbar = shared(population)
    np.testing.assert_allclose(A, np.eye(3), atol=1e-7)
    np.testing.assert_allclose(bbar, population.intercept, atol=1e-7)


def test_what_is_not_derived_says_so():
    population = ClassEnergies.exchangeable(ENERGIES, 3)
    for ridge in (0.0, np.inf):
        with pytest.raises(NoFormula, match="finite ridges above 0"):
            rtfa(population, 1.0, ridge)
