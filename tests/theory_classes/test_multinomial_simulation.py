"""The limits of section 11 against drawn clients: softmax ridge regression by L-BFGS, one gradient
step, least squares.

A client has d = 300 directions and n = d/gamma samples; its models have the exact Gram matrices of
the limit, so that what is left is the O(1/d) of the page and the spread over draws. Scores of a
fitted W use its exact overlaps with the truth: logits of fresh samples are drawn from their joint
normal law, anew for every draw, and labels are averaged over.
"""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from fedasym.theory.classes.softmax import contrasts, softmax_centre, softmax_step
from fedasym.theory.classes.softmax_ridge import softmax_ridge_path, stopped_softmax_fits
from fedasym.theory.classes.squared_labels import fit_one_hot
from fedasym.worlds.classes import Energies


def models(rng, s, energy, classes, gram=None):
    """W0 and Delta (d, C) with this energy (two rows, per direction) and Gram matrix, orthogonal in
    every atom.
    """
    K = classes - 1
    out = np.zeros((2, s.size, classes))
    grams = np.stack([np.eye(K)] * 2) if gram is None else gram
    for value in np.unique(s):
        rows = np.flatnonzero(s == value)
        basis = np.linalg.qr(rng.standard_normal((rows.size, 2 * K)))[0]
        for j in range(2):
            root = np.linalg.cholesky(grams[j] * energy[j] * rows.size).T
            out[j, rows] = basis[:, j * K : (j + 1) * K] @ root @ contrasts(classes).T
    return out


def scores(rng, s, W, truth, bias=None, intercept=None):
    """Accuracy and log-loss of W on fresh samples of a client whose model is `truth`."""
    B = contrasts(W.shape[1])
    both = np.concatenate([truth @ B, W @ B], axis=1)
    root = np.linalg.cholesky((both.T * s) @ both + 1e-12 * np.eye(both.shape[1]))
    x = root @ rng.standard_normal((both.shape[1], 16_000))
    K = B.shape[1]
    logits, own = B @ x[K:], B @ x[:K]
    if bias is not None:
        logits, own = logits + intercept[:, None], own + bias[:, None]
    p = softmax(own, axis=0)
    right = np.take_along_axis(p, logits.argmax(0)[None], axis=0).mean()
    return right, (logsumexp(logits, axis=0) - (p * logits).sum(0)).mean()


def ridge_fit(X, Y, anchor, ridge, free=None):
    """argmin (1/n) sum lse - y'eta + ridge/2 |W - anchor|^2, with free intercepts if a start for
    them is given.
    """
    n, (d, C) = len(X), anchor.shape

    def objective(x):
        W = x[: d * C].reshape(d, C)
        eta = X @ W + (0 if free is None else x[d * C :])
        top = logsumexp(eta, axis=1, keepdims=True)
        residual = (np.exp(eta - top) - Y) / n
        value = (top.sum() - (Y * eta).sum()) / n + 0.5 * ridge * np.sum((W - anchor) ** 2)
        gradient = (X.T @ residual + ridge * (W - anchor)).ravel()
        return value, gradient if free is None else np.concatenate([gradient, residual.sum(0)])

    begin = anchor.ravel() if free is None else np.concatenate([anchor.ravel(), free])
    found = minimize(
        objective,
        begin,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 2000, "ftol": 1e-13, "gtol": 1e-7},
    )
    return found.x[: d * C].reshape(d, C), found.x[d * C :]


def labels(rng, logits):
    p = softmax(logits, axis=1)
    y = (rng.random((len(p), 1)) > p.cumsum(1)[:, :-1]).sum(1)
    return np.eye(p.shape[1])[y]


def agrees(draws, theory, names):
    """Each mean over draws within three standard errors of the prediction."""
    draws = np.array(draws)
    mean, error = draws.mean(0), draws.std(0, ddof=1) / np.sqrt(len(draws))
    for name, m, e, t in zip(names, mean, error, theory, strict=True):
        assert abs(m - t) < 3 * e, f"{name}: {m:.5g} +- {e:.1g} drawn, {t:.5g} predicted"


CASES = [  # classes, d, gamma, ridge, b, r, atoms, shared, draws
    (3, 300, 1.0, 0.3, 1.5, 1.5, ([0.5, 3.0], [0.6, 0.4]), True, 30),
    (5, 300, 2.0, 1.0, 1.5, 1.5, ([1.0], [1.0]), True, 30),
    (5, 300, 0.5, 0.1, 1.5, 1.5, ([1.0], [1.0]), False, 20),
    (10, 300, 1.0, 0.4, 2.0, 2.0, ([1.0], [1.0]), True, 15),
]


@pytest.mark.parametrize("case", CASES)
def test_ridge_fits(case):
    classes, d, gamma, ridge, b, r, (values, weights), shared, draws = case
    energies = Energies.isotropic(b, r, values, weights)
    fit = softmax_ridge_path(energies, gamma, [ridge], classes, shared=shared)[0]
    rng = np.random.default_rng(5)
    s = np.repeat(values, np.round(np.array(weights) * d).astype(int))
    c = softmax_centre(energies, classes) if shared else 0.0
    found = []
    for _ in range(draws):
        W0, D = models(rng, s, [b * b / d, r * r / d], classes)
        X = rng.standard_normal((round(d / gamma), d)) * np.sqrt(s)
        W, _ = ridge_fit(X, labels(rng, X @ (W0 + D)), c * W0, ridge)
        T, Q = (np.sum(s[:, None] * W * other) / (classes - 1) for other in (W0 + D, W))
        found.append([*scores(rng, s, W, W0 + D), T, Q, np.linalg.norm(W - c * W0)])
    agrees(
        found,
        [fit.accuracy, fit.log_loss, fit.T, fit.Q, fit.distance],
        ["accuracy", "log-loss", "T", "Q", "distance"],
    )


@pytest.mark.parametrize("classes", [3, 10])
def test_one_gradient_step_and_least_squares(classes):
    d, gamma, b, r = 300, 2.0, 1.5, 2.0
    values, weights = [0.5, 3.0], [0.6, 0.4]
    energies = Energies.isotropic(b, r, values, weights)
    stepped, a = softmax_step(energies, gamma, classes)
    probes = [fit_one_hot(energies, gamma, ridge, classes) for ridge in (None, 0.5)]
    rng = np.random.default_rng(6)
    s = np.repeat(values, np.round(np.array(weights) * d).astype(int))
    c, n = softmax_centre(energies, classes), round(d / gamma)
    found, linear = [], []
    for _ in range(20):
        W0, D = models(rng, s, [b * b / d, r * r / d], classes)
        X = rng.standard_normal((n, d)) * np.sqrt(s)
        Y = labels(rng, X @ (W0 + D))
        W = c * W0 + a / n * X.T @ (Y - softmax(c * X @ W0, axis=1))
        found.append(
            [
                *scores(rng, s, W, W0 + D),
                *(np.sum(s[:, None] * W * other) / (classes - 1) for other in (W0 + D, W)),
            ]
        )
        row = []
        for probe in probes:
            anchor = probe.zeta * W0
            fit = (
                np.linalg.solve(
                    X.T @ X / n + probe.ridge * np.eye(d), X.T @ (Y - 1 / classes - X @ anchor) / n
                )
                + anchor
            )
            T, Q = (np.sum(s[:, None] * fit * other) / (classes - 1) for other in (W0 + D, fit))
            off = fit - probe.zeta * (W0 + D)
            row += [
                scores(rng, s, fit, W0 + D)[0],
                T,
                Q,
                np.sum(s[:, None] * off**2) / (classes - 1),
            ]
        linear.append(row)
    agrees(
        found,
        [stepped.accuracy, stepped.log_loss, stepped.T, stepped.Q],
        ["accuracy", "log-loss", "T", "Q"],
    )
    theory = [value for probe in probes for value in (probe.accuracy, probe.T, probe.Q, probe.risk)]
    agrees(linear, theory, ["accuracy", "T", "Q", "risk"] * 2)


def test_early_stopping():
    """Section 7: gradient descent from the shared model against the clock, within the page's .3
    points and 1% of log-loss.
    """
    classes, d, gamma, b, r, step = 3, 300, 2.0, 1.5, 1.5, 0.4
    energies = Energies.isotropic(b, r)
    times = np.array([0.0, 0.4, 2.0, 8.0, 40.0])
    fits = stopped_softmax_fits(energies, gamma, times, classes)
    assert np.isinf(fits[0].ridge)
    rng = np.random.default_rng(8)
    s, c, n = np.ones(d), softmax_centre(energies, classes), round(d / gamma)
    found = []
    for _ in range(15):
        W0, D = models(rng, s, [b * b / d, r * r / d], classes)
        X = rng.standard_normal((n, d))
        Y, W, row, done = labels(rng, X @ (W0 + D)), c * W0, [], 0
        for time in times:
            for _ in range(round(time / step) - done):
                W = W + step / n * X.T @ (Y - softmax(X @ W, axis=1))
            done = round(time / step)
            row.append(scores(rng, s, W, W0 + D))
        found.append(row)
    mean, error = np.mean(found, 0), np.std(found, 0, ddof=1) / np.sqrt(len(found))
    for i, fit in enumerate(fits):
        assert abs(mean[i, 0] - fit.accuracy) < 0.003 + 3 * error[i, 0]
        assert abs(mean[i, 1] - fit.log_loss) < 0.01 * fit.log_loss + 3 * error[i, 1]
