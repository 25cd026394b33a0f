"""Newton over blocks of clients, against a general optimiser, scikit-learn, and plain loops."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression

from fedasym.exact.logistic import (
    ClassPoint,
    ClassSamples,
    Equations,
    LogisticProblem,
    group_by_size,
    minimise,
)

SIZES = (1, 2, 7, 7, 30, 3)


def draw(classes, features=3, sizes=SIZES, seed=0):
    rng = np.random.default_rng(seed)
    clients = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    X = np.column_stack([rng.standard_normal((len(clients), features)), np.ones(len(clients))])
    B = rng.standard_normal((features + 1, classes))
    U = rng.standard_normal((len(sizes), features + 1, classes))
    logits = np.einsum("ip,ipk->ik", X, B + U[clients])
    return X, (logits + rng.gumbel(size=logits.shape)).argmax(1), clients


def make(classes, variances, ridges, **options):
    X, codes, clients = draw(classes, **options)
    return LogisticProblem(
        ClassSamples.of(X, codes, clients, classes), np.array(variances), np.array(ridges)
    )


def plain_objective(X, codes, clients, B, U, variances, ridges):
    """The objective in logits, row by row: nothing is shared with the code under test."""
    logits = np.array([X[i] @ (B + U[clients[i]]) for i in range(len(X))])
    value = np.sum(logsumexp(logits, axis=1) - logits[np.arange(len(X)), codes])
    on = variances > 0
    value += 0.5 * np.sum(U[:, on] ** 2 / variances[on][:, None])
    return value + 0.5 * np.sum(ridges[:, None] * B**2)


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("variances", [(0.5, 0.0, 2.0, 1.0), (3.0,) * 4])
def test_the_gradient_vanishes_at_the_minimum(classes, variances):
    problem = make(classes, variances, (0.1, 0.2, 0.3, 1e-6))
    gradient = problem.evaluate(minimise(problem, problem.start())).gradient
    assert max(np.abs(gradient.shared).max(), np.abs(gradient.personal).max()) < 1e-6


@pytest.mark.parametrize("classes", [2, 3])
def test_a_general_optimiser_finds_the_same_weights(classes):
    variances, ridges = np.array([0.5, 0.0, 2.0, 1.0]), np.array([0.1, 0.2, 0.3, 0.01])
    X, codes, clients = draw(classes)
    problem = LogisticProblem(ClassSamples.of(X, codes, clients, classes), variances, ridges)
    point = minimise(problem, problem.start())
    C = problem.samples.contrasts
    B, U = point.shared @ C.T, problem.personal_parts(point) @ C.T
    on = np.flatnonzero(variances)
    shapes = (4, classes), (len(SIZES), len(on), classes)
    cut = 4 * classes

    def objective(x):
        full = np.zeros((len(SIZES), 4, classes))
        full[:, on] = x[cut:].reshape(shapes[1])
        B = x[:cut].reshape(shapes[0])
        return plain_objective(X, codes, clients, B, full, variances, ridges)

    start, options = np.zeros(cut + U[:, on].size), {"gtol": 1e-6, "maxiter": 2000}
    found = minimize(objective, start, options=options)
    assert objective(np.concatenate([B.ravel(), U[:, on].ravel()])) <= found.fun + 1e-9
    assert np.allclose(found.x[:cut].reshape(4, classes), B, atol=2e-4)  # numerical derivatives
    assert np.allclose(found.x[cut:].reshape(shapes[1]), U[:, on], atol=2e-4)


@pytest.mark.parametrize("classes", [2, 4])
def test_no_variance_is_the_pooled_regression_of_scikit_learn(classes):
    X, codes, clients = draw(classes, sizes=(40, 60, 20))
    ridges = np.array([0.7, 0.7, 0.7, 0.0])
    problem = LogisticProblem(ClassSamples.of(X, codes, clients, classes), np.zeros(4), ridges)
    logits = minimise(problem, problem.start()).shared @ problem.samples.contrasts.T
    # Two classes: scikit-learn penalises the one difference of logits, |z|^2 = 2 |B|^2.
    C = (2 if classes == 2 else 1) / 0.7
    model = LogisticRegression(C=C, tol=1e-12, max_iter=10_000).fit(X[:, :3], codes)
    theirs = np.column_stack([model.coef_, model.intercept_])
    ours = (logits[:, 1:] - logits[:, :1]).T if classes == 2 else logits.T
    theirs = theirs if classes == 2 else theirs - theirs.mean(0)
    assert np.allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_nothing_shared_is_the_regression_of_each_client_alone(classes):
    X, codes, clients = draw(classes, sizes=(40, 60, 25))
    samples = ClassSamples.of(X, codes, clients, classes)
    problem = LogisticProblem(samples, np.full(4, 2.0), np.zeros(4), free=False)
    U = problem.personal_parts(minimise(problem, problem.start())) @ problem.samples.contrasts.T
    for client in range(3):
        here = clients == client
        assert len(np.unique(codes[here])) == classes
        C = 4.0 if classes == 2 else 2.0
        model = LogisticRegression(C=C, fit_intercept=False, tol=1e-12, max_iter=10_000)
        theirs = model.fit(X[here], codes[here]).coef_
        ours = U[client].T if classes > 2 else (U[client][:, 1:] - U[client][:, :1]).T
        assert np.allclose(ours, theirs, atol=1e-6)


def test_a_huge_variance_forgets_the_others():
    X, codes, clients = draw(2, sizes=(60, 80))
    samples = ClassSamples.of(X, codes, clients, 2)
    tied = LogisticProblem(samples, np.full(4, 1e6), np.full(4, 1.0))
    own = LogisticProblem(samples, np.full(4, 1e6), np.full(4, 1.0), free=False)
    point = minimise(tied, tied.start())
    alone = own.personal_parts(minimise(own, own.start()))
    assert np.allclose(point.shared + tied.personal_parts(point), alone, atol=1e-3)


@pytest.mark.parametrize("classes", [2, 3])
def test_clients_in_another_order_have_the_same_weights(classes):
    X, codes, clients = draw(classes)
    order = np.array([3, 0, 5, 1, 4, 2])
    D, ridges = np.array([0.5, 0.0, 2.0, 1.0]), np.full(4, 0.1)
    one = LogisticProblem(ClassSamples.of(X, codes, clients, classes), D, ridges)
    two = LogisticProblem(ClassSamples.of(X, codes, order[clients], classes), D, ridges)
    a, b = minimise(one, one.start()), minimise(two, two.start())
    assert np.allclose(a.shared, b.shared, atol=1e-8)
    assert np.allclose(a.personal, b.personal[order], atol=1e-8)


def test_classes_in_another_order_have_the_same_logits():
    X, codes, clients = draw(4)
    order = np.array([2, 0, 3, 1])
    D, ridges = np.array([0.5, 0.0, 2.0, 1.0]), np.full(4, 0.1)
    one = LogisticProblem(ClassSamples.of(X, codes, clients, 4), D, ridges)
    two = LogisticProblem(ClassSamples.of(X, order[codes], clients, 4), D, ridges)
    C = one.samples.contrasts
    a = minimise(one, one.start(), 1e-12).shared @ C.T
    b = minimise(two, two.start(), 1e-12).shared @ C.T
    assert np.allclose(a, b[:, order], atol=1e-6)


def test_two_classes_are_softmax_of_two():
    X, codes, clients = draw(2, sizes=(30, 30))
    D, ridges = np.array([0.5, 0.0, 2.0, 1.0]), np.array([0.1, 0.1, 0.1, 0.0])
    problem = LogisticProblem(ClassSamples.of(X, codes, clients, 2), D, ridges)
    point = minimise(problem, problem.start())
    C = problem.samples.contrasts
    B, U = point.shared @ C.T, problem.personal_parts(point) @ C.T
    value = plain_objective(X, codes, clients, B, U, D, ridges)  # softmax over both columns
    assert np.isclose(value, problem.evaluate(point).value, rtol=1e-12)
    rng = np.random.default_rng(1)
    for _ in range(5):
        dB, dU = 1e-3 * rng.standard_normal(B.shape), 1e-3 * rng.standard_normal(U.shape)
        dU[:, D == 0] = 0
        assert plain_objective(X, codes, clients, B + dB, U + dU, D, ridges) > value


@pytest.mark.parametrize("features", [2, 12])  # both forms of a client's inverse
def test_blocks_are_a_plain_loop_over_clients(features):
    X, codes, clients = draw(2, features=features)
    p = features + 1
    D, ridges = np.linspace(0.2, 1, p), np.full(p, 0.3)
    problem = LogisticProblem(ClassSamples.of(X, codes, clients, 2), D, ridges)
    rng = np.random.default_rng(1)
    point = ClassPoint(rng.standard_normal((p, 1)), rng.standard_normal((len(SIZES), p, 1)))
    state = problem.evaluate(point)
    S = np.sqrt(D)
    H = np.zeros((p * (1 + len(SIZES)),) * 2)
    g = np.concatenate([ridges * point.shared[:, 0], point.personal[..., 0].ravel()])
    H[np.diag_indices(len(H))] = np.concatenate([ridges, np.ones(p * len(SIZES))])
    for x, code, j in zip(X, codes, clients, strict=True):
        row = np.zeros(len(H))
        row[:p], row[p * (1 + j) : p * (2 + j)] = x, S * x
        row *= np.sqrt(2)  # a contrast is the difference of logits over the root of two
        z = row @ np.concatenate([point.shared[:, 0], point.personal[..., 0].ravel()])
        P = 1 / (1 + np.exp(z))  # Helmert's contrast is first minus second: P is the second's
        g -= row * (P - code) if code == 0 else row * (P - 1)
        H += P * (1 - P) * np.outer(row, row)
    ours = np.concatenate([state.gradient.shared[:, 0], state.gradient.personal[..., 0].ravel()])
    assert np.allclose(ours, g)
    move = Equations.of(problem, state.probabilities).solve(state.gradient)
    ours = np.concatenate([move.shared[:, 0], move.personal[..., 0].ravel()])
    assert np.allclose(ours, np.linalg.solve(H, g), rtol=1e-8, atol=1e-10)


def test_a_left_out_sample_might_as_well_not_be_there():
    X, codes, clients = draw(3)
    kept = np.random.default_rng(0).random(len(X)) < 0.7
    kept[[np.flatnonzero(clients == j)[0] for j in range(len(SIZES))]] = True
    D, ridges = np.full(4, 0.5), np.full(4, 0.1)
    one = LogisticProblem(
        ClassSamples.of(X, codes, clients, 3), D, ridges, weights=kept.astype(float)
    )
    two = LogisticProblem(ClassSamples.of(X[kept], codes[kept], clients[kept], 3), D, ridges)
    a, b = minimise(one, one.start(), 1e-12), minimise(two, two.start(), 1e-12)
    assert np.allclose(a.shared, b.shared, atol=1e-6)
    assert np.allclose(a.personal, b.personal, atol=1e-6)


def test_blocks_hold_every_client_once_and_little_padding():
    sizes = np.random.default_rng(0).integers(0, 300, 1000)
    blocks = list(group_by_size(sizes, 50))
    held = sorted(np.concatenate([places for _, places in blocks]))
    assert held == np.flatnonzero(sizes).tolist()
    assert sum(n * len(places) for n, places in blocks) < 1.2 * sizes.sum()
    assert max(n * len(places) * 50 for n, places in blocks) <= 2**20
