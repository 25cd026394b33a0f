"""Scores of exact heads: the same as fits by another route, and as refits without a sample."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.special import log_softmax

import fedasym as fa
from fedasym.algorithms import find
from fedasym.exact.held_out import HeldOut, SoftmaxHeldOut, fit_axes, leave_each_out, view_axes
from fedasym.exact.logistic import ClassSamples, LogisticProblem, minimise

RNG = np.random.default_rng(0)
CLIENTS, SAMPLES, FEATURES = 6, 20, 4
OWNER = np.repeat(np.arange(CLIENTS), SAMPLES)
X = RNG.standard_normal((CLIENTS * SAMPLES, FEATURES)) + 0.3
THETA = RNG.standard_normal((CLIENTS, FEATURES)) / 2 + 1
Y = np.einsum("nd,nd->n", X, THETA[OWNER]) + 0.3 * RNG.standard_normal(len(X))
SPLIT = np.tile(np.repeat([0, 1, 2], [12, 4, 4]), CLIENTS)
TRAIN = SPLIT == 0


def board(labels=Y[:, None], split=SPLIT, classes=None):
    return HeldOut.of(X, labels, OWNER, split, classes, intercept=False)


@pytest.mark.parametrize(
    "algorithm",
    [
        fa.Algorithm("rtfa here", find("rtfa").server, fa.algorithms.Ridge(0.3)),
        fa.Algorithm("pfedme here", find("pfedme").server, fa.algorithms.Ridge(0.3)),
        fa.Algorithm("local here", find("local").server, fa.algorithms.Ridge(0.3)),
        fa.Algorithm("maml here", fa.algorithms.Meta(0.05), fa.algorithms.Descend(0.1, 3)),
        fa.algorithms.find("fedavg"),
        fa.algorithms.find("fedprox"),
    ],
    ids=lambda each: each.name,
)
def test_a_score_is_that_of_the_exact_fit(algorithm):
    fit = fa.linear.fit(
        algorithm, X[TRAIN], Y[TRAIN], OWNER[TRAIN].tolist(), ridge=0.3, intercept=False
    )
    test = SPLIT == 2
    told = fit.predict(X[test], client=OWNER[test].tolist())
    errors = [np.mean((told - Y[test])[OWNER[test] == i] ** 2) for i in range(CLIENTS)]
    assert board().score(algorithm) == pytest.approx(errors, rel=1e-4)


def test_open_settings_are_chosen_on_validation_samples():
    tried = {
        ridge: fa.Algorithm("r", find("rtfa").server, fa.algorithms.Ridge(ridge))
        for ridge in np.geomspace(1e-3, 1e3, 13) * board().scale
    }
    seen = {ridge: np.nanmean(next(board()._try(each))[0, :, 0]) for ridge, each in tried.items()}
    best = min(seen, key=seen.get)
    assert board().score(find("rtfa")) == pytest.approx(board().score(tried[best]))


def test_without_held_out_samples_each_is_left_out():
    """Of a client alone, the short cut is the refit without the sample, one by one."""
    left = board(split=np.zeros_like(SPLIT))
    assert left.left_out
    ridge = 0.2
    found = left.curve(None, [lambda x: x / (x + ridge)])[0, :, 0]
    for client in range(CLIENTS):
        rows, labels = X[client == OWNER], Y[client == OWNER]
        squares = []
        for out in range(SAMPLES):
            kept = np.arange(SAMPLES) != out
            gram = rows[kept].T @ rows[kept] + SAMPLES * ridge * np.eye(FEATURES)
            model = np.linalg.solve(gram, rows[kept].T @ labels[kept])
            squares.append((labels[out] - rows[out] @ model) ** 2)
        assert found[client] == pytest.approx(np.mean(squares), rel=1e-9)


def test_leaving_samples_out_of_the_shared_model_too():
    left = board(split=np.zeros_like(SPLIT))
    found = left.curve(left.pooled, [np.zeros_like])[0, :, 0].mean()
    errors = []
    for out in range(len(X)):
        kept = np.arange(len(X)) != out
        model = np.linalg.lstsq(X[kept], Y[kept], rcond=None)[0]
        errors.append((Y[out] - X[out] @ model) ** 2)
    assert found == pytest.approx(np.mean(errors), rel=1e-4)


def test_classes_are_one_hot_outputs():
    codes = (Y.mean() < Y).astype(int) + (Y.mean() + 1 < Y)
    found = board(codes, classes=3).score(find("fedavg"))
    model = np.linalg.lstsq(X[TRAIN], np.eye(3)[codes[TRAIN]], rcond=None)[0]
    right = (X @ model).argmax(1) == codes
    by_client = [right[(i == OWNER) & (SPLIT == 2)].mean() for i in range(CLIENTS)]
    assert found == pytest.approx(by_client)


def test_a_weighted_shared_model_solves_its_normal_equations():
    weight = lambda x: 1 / (1 + x)  # noqa: E731
    found = board().solve_weighted(weight)[:, 0]
    rows = [X[TRAIN & (i == OWNER)] for i in range(CLIENTS)]
    W = block_diag(*[np.linalg.inv(np.eye(len(A)) + A @ A.T / len(A)) for A in rows])
    A, y = np.concatenate(rows), Y[TRAIN]
    assert found == pytest.approx(np.linalg.solve(A.T @ W @ A, A.T @ W @ y), rel=1e-4)


def test_class_shares_are_added_to_the_scores():
    codes = (Y.mean() < Y).astype(int) + (Y.mean() + 1 < Y)
    share = find("fedavg_share")
    here = board(codes, classes=3)
    found = here.curve(here.pooled, [np.zeros_like], share.correction, 0.1)[0, :, 1]
    model = np.linalg.lstsq(X[TRAIN], np.eye(3)[codes[TRAIN]], rcond=None)[0]
    pooled = (np.bincount(codes[TRAIN], minlength=3) + 1) / (TRAIN.sum() + 3)
    for client in range(CLIENTS):
        counts = np.bincount(codes[TRAIN & (client == OWNER)], minlength=3)
        smooth = (counts + 10 * pooled) / (counts.sum() + 10)
        test = (client == OWNER) & (SPLIT == 2)
        told = X[test] @ model + 0.1 * np.log(smooth / pooled)
        assert found[client] == pytest.approx(np.mean(told.argmax(1) == codes[test]))
    assert np.nanmean(here.score(share)) >= 0
    with pytest.raises(fa.NoFormula, match="labels are numbers"):
        board().score(share)


CODES = (Y.mean() < Y).astype(int) + (Y.mean() + 1 < Y)


def softmax_board():
    return SoftmaxHeldOut.of(X, CODES, OWNER, SPLIT, 3, intercept=False)


def test_the_shared_softmax_model_is_newtons():
    samples = ClassSamples.of(X[TRAIN], CODES[TRAIN], np.zeros(TRAIN.sum(), int), 3)
    problem = LogisticProblem(samples, np.zeros(FEATURES), np.zeros(FEATURES))
    B = minimise(problem, problem.start()).shared @ samples.contrasts.T
    logits = X @ softmax_board().pooled
    assert logits - logits.mean(1, keepdims=True) == pytest.approx(X @ B, abs=2e-3)


@pytest.mark.parametrize("name", ["rtfa", "local_ridge"])
def test_a_clients_change_in_the_gram_form_is_newtons(name):
    """In coordinates of features, with personal variances 1/(n ridge) about a fixed shared part."""
    ridge, here = 0.05, softmax_board()
    told = replace(find(name), personalise=fa.algorithms.Ridge(ridge))
    shared = here.pooled if name == "rtfa" else None
    found = here._personalise(told.correction, shared, np.array([ridge]))[0, :, 1]
    shared = np.zeros((FEATURES, 3)) if shared is None else shared
    samples = ClassSamples.of(X[TRAIN], CODES[TRAIN], OWNER[TRAIN], 3)
    variances = np.full(FEATURES, 1 / (12 * ridge))
    problem = LogisticProblem(samples, variances, np.zeros(FEATURES), free=False)
    C = samples.contrasts
    point = minimise(problem, problem.start(shared @ C))
    models = (point.shared + problem.personal_parts(point)) @ C.T
    test = SPLIT == 2
    logits = np.einsum("nd,ndk->nk", X[test], models[OWNER[test]])
    right = logits.argmax(1) == CODES[test]
    expected = [right[OWNER[test] == i].mean() for i in range(CLIENTS)]
    assert found == pytest.approx(expected)
    assert np.isfinite(here.score(told)).all()


def test_only_fedavgs_shared_model_has_the_logistic_loss():
    with pytest.raises(fa.NoFormula, match="least-squares heads"):
        softmax_board().score(find("pfedme"))


@pytest.mark.parametrize(
    ("classes", "features", "ridge", "most"),
    [(2, 4, 0.02, 600), (6, 8, 0.02, 600), (6, 60, 0.2, 600), (6, 8, 0.02, 0), (6, 60, 0.2, 0)],
)
def test_a_newton_step_leaves_a_sample_out_as_a_refit_does(
    classes, features, ridge, most, monkeypatch
):
    """Outputs beside those of fits without each sample in turn; class by class it is coarser."""
    monkeypatch.setattr("fedasym.exact.held_out.MOST_UNKNOWNS", most)
    rng = np.random.default_rng(classes + features)
    n = 48
    codes = np.arange(n) % classes
    rows = rng.standard_normal((classes, features))[codes] + 1.5 * rng.standard_normal(
        (n, features)
    )
    targets, offset = np.eye(classes)[codes], 0.3 * rng.standard_normal((n, classes))
    U, x = view_axes(rows)
    A, held = U * np.sqrt(n * x), np.full(x.size, n * ridge)
    W = fit_axes(offset, A, targets, held, np.zeros((x.size, classes)))
    without = np.empty_like(targets)
    for i in range(n):
        others = np.arange(n) != i
        part = fit_axes(offset[others], A[others], targets[others], held, W)
        without[i] = offset[i] + A[i] @ part
    quick = leave_each_out(offset + A @ W, A, targets, held)

    def losses(outputs):
        return -log_softmax(outputs, axis=1)[np.arange(n), codes]

    aim = losses(without)
    fit = losses(offset + A @ W)
    far = np.abs(aim - fit).mean()  # what leaving out changes
    off = np.abs(losses(quick) - aim).mean()
    assert off < (0.15 if most else 0.35) * far
    agree = np.mean(quick.argmax(1) == without.argmax(1))
    assert agree >= (1 - 1 / n if most else 1 - 5 / n)


def test_with_the_logistic_loss_samples_are_left_out_of_the_shared_model_too():
    """The shared model alone, against refits; then scores of all algorithms are of this form."""
    here = SoftmaxHeldOut.of(X, CODES, OWNER, np.zeros_like(SPLIT), 3, intercept=False)
    assert here.left_out
    theta = here.pool(0.01)
    quick = np.concatenate(here._start(theta, 0.01))
    axes, targets = here._samples.along, here._samples.Y
    held = here._samples.penalty(0.01)
    whole = fit_axes(np.zeros_like(targets), axes, targets, held, np.zeros((len(held), 3)))
    assert axes @ whole == pytest.approx(X @ theta, abs=1e-3)
    for i in range(0, len(X), 10):
        others = np.arange(len(X)) != i
        part = fit_axes(np.zeros_like(targets[1:]), axes[others], targets[others], held, whole)
        change = np.abs(axes[i] @ (part - whole)).max()
        assert np.abs(quick[i] - axes[i] @ part).max() < 0.1 * change + 1e-3
    for name in ("fedavg", "local_ridge", "rtfa"):
        assert 1 / 3 < np.nanmean(here.score(find(name))) < 1
