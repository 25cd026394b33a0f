"""The shared fit against unrelated routes: minimisers of the stated objectives, least squares, many
digits.
"""

import mpmath
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse.linalg

from fedasym.exact import estimators as linear

from .clients import CASES, RAGGED, SHARED, TIGHT, draw, every_case, exact, weights_of


def least_squares(residuals, size):
    """The minimum-norm minimiser of a squared affine map, by Krylov iterations from the origin."""
    offset = residuals(np.zeros(size))
    columns = np.column_stack([residuals(unit) - offset for unit in np.eye(size)])
    found = scipy.sparse.linalg.lsmr(columns, -offset, atol=0, btol=0, conlim=0, maxiter=20 * size)[
        0
    ]
    return (
        found
        + scipy.sparse.linalg.lsmr(
            columns, -offset - columns @ found, atol=0, btol=0, conlim=0, maxiter=20 * size
        )[0]
    )


@every_case
@pytest.mark.parametrize("weights", ["samples", "uniform", "given"])
def test_fedavg_is_weighted_least_squares_of_minimum_norm(case, weights):
    X, y = CASES[case]
    p = weights_of(weights, X)
    fit = linear.fit("fedavg", X, y, weights=p if weights == "given" else weights, intercept=False)
    scale = [np.sqrt(each / len(x)) for each, x in zip(p, X, strict=True)]
    rows = np.vstack([each * x for each, x in zip(scale, X, strict=True)])
    labels = np.concatenate([each * target for each, target in zip(scale, y, strict=True)])
    np.testing.assert_allclose(fit.shared, np.linalg.lstsq(rows, labels)[0], **TIGHT)
    assert all(np.array_equal(model, fit.shared) for model in fit.personal.values())
    np.testing.assert_allclose(list(fit.weights.values()), p, rtol=1e-15)


@every_case
@pytest.mark.parametrize("weights", ["samples", "given"])
def test_maml_minimises_its_objective(case, weights):
    X, y = CASES[case]
    p, alpha = weights_of(weights, X), 0.2

    def residuals(b):
        moved = [b - alpha / len(x) * x.T @ (x @ b - t) for x, t in zip(X, y, strict=True)]
        return np.concatenate(
            [np.sqrt(w / len(x)) * (x @ c - t) for w, x, t, c in zip(p, X, y, moved, strict=True)]
        )

    fit = linear.fit("maml", X, y, weights=p, maml_step=alpha, intercept=False)
    np.testing.assert_allclose(fit.shared, least_squares(residuals, X[0].shape[1]), **TIGHT)


@every_case
@pytest.mark.parametrize("weights", ["samples", "given"])
def test_pfedme_minimises_its_joint_objective(case, weights):
    X, y = CASES[case]
    p, d, ridges = weights_of(weights, X), X[0].shape[1], RAGGED[: len(X)]

    def residuals(models):
        shared, *personal = models.reshape(-1, d)
        losses = [
            np.sqrt(w / len(x)) * (x @ b - t) for w, x, t, b in zip(p, X, y, personal, strict=True)
        ]
        return np.concatenate(
            [
                *losses,
                *(
                    np.sqrt(w * c) * (b - shared)
                    for w, c, b in zip(p, ridges, personal, strict=True)
                ),
            ]
        )

    fit = linear.fit("pfedme", X, y, weights=p, ridge=ridges, intercept=False)
    joint = least_squares(residuals, d * (len(X) + 1)).reshape(-1, d)
    np.testing.assert_allclose(fit.shared, joint[0], **TIGHT)
    np.testing.assert_allclose(np.stack(list(fit.personal.values())), joint[1:], **TIGHT)


@pytest.mark.parametrize(
    ("name", "options"), [("maml", {"maml_step": 0.3}), ("pfedme", {"ridge": 0.4})]
)
def test_general_minimisers_find_the_same(name, options):
    X, y = CASES["many samples"]
    p, d, m = weights_of("samples", X), 6, len(X)

    def maml(b):
        steps = [x @ (b - 0.3 / len(x) * x.T @ (x @ b - t)) - t for x, t in zip(X, y, strict=True)]
        return sum(w / (2 * len(e)) * e @ e for w, e in zip(p, steps, strict=True))

    def pfedme(models):
        shared, *personal = models.reshape(m + 1, d)
        losses = (
            np.sum((x @ b - t) ** 2) / (2 * len(x)) for x, t, b in zip(X, y, personal, strict=True)
        )
        return sum(
            w * (loss + 0.2 * np.sum((b - shared) ** 2))
            for w, loss, b in zip(p, losses, personal, strict=True)
        )

    objective, size = (maml, d) if name == "maml" else (pfedme, d * (m + 1))
    found = scipy.optimize.minimize(
        objective, np.zeros(size), method="BFGS", options={"gtol": 1e-7}
    ).x
    fit = linear.fit(name, X, y, **options, intercept=False)
    ours = np.concatenate([fit.shared, *fit.personal.values()])[:size]
    assert objective(ours) <= objective(found) + 1e-15
    np.testing.assert_allclose(
        ours, found, atol=1e-4
    )  # what a minimiser without derivatives reaches


@pytest.mark.parametrize(
    "case", ["many samples", "few samples each", "duplicated rows", "client of zeros", "low rank"]
)
@pytest.mark.parametrize("ridge", [1e-9, 1e-5, 1e-2])
def test_small_ridges_keep_their_digits(case, ridge):
    """Rows that depend on each other and disagree: a factor of XX' + ridge loses 1/ridge, and so
    would lstsq.
    """
    X, y = CASES[case]
    with mpmath.workdps(40):
        rows, labels, p = (
            [exact(x) for x in X],
            [exact(t) for t in y],
            [mpmath.mpf(1) / len(X)] * len(X),
        )
        d, scale = X[0].shape[1], [len(x) * mpmath.mpf(ridge) for x in X]
        halves = [
            w / len(x) * A.T * (mpmath.eye(len(x)) + A * A.T / c) ** -1
            for w, x, A, c in zip(p, X, rows, scale, strict=True)
        ]
        Q = sum((half * A for half, A in zip(halves, rows, strict=True)), mpmath.zeros(d))
        shared = mpmath.lu_solve(
            Q, sum((half * t for half, t in zip(halves, labels, strict=True)), mpmath.zeros(d, 1))
        )
        personal = [
            shared + (A.T * A + c * mpmath.eye(d)) ** -1 * (A.T * (t - A * shared))
            for A, t, c in zip(rows, labels, scale, strict=True)
        ]
        fit = linear.fit("pfedme", X, y, ridge=ridge, weights="uniform", intercept=False)
        np.testing.assert_allclose(
            fit.shared, np.array(shared.tolist(), dtype=float).ravel(), **TIGHT
        )
        for client, model in enumerate(personal):
            np.testing.assert_allclose(
                fit.personal[client], np.array(model.tolist(), dtype=float).ravel(), **TIGHT
            )


def test_with_fewer_samples_than_unknowns_all_sharing_methods_interpolate_alike():
    X, y = CASES["fewer than unknowns"]
    nearest = np.linalg.lstsq(np.vstack(X), np.concatenate(y))[0]
    for name in SHARED:
        fit = linear.fit(
            name, X, y, ridge=[0.3, 2.0, 0.05], weights=[0.5, 0.2, 0.3], intercept=False
        )
        np.testing.assert_allclose(fit.shared, nearest, **TIGHT)
        for client, (x, t) in enumerate(zip(X, y, strict=True)):
            np.testing.assert_allclose(fit.personal[client], nearest, **TIGHT)
            np.testing.assert_allclose(fit.predict(x, client=client), t, **TIGHT)


def test_hundreds_of_clients_are_one_least_squares_problem():
    X, y = draw([3, 1, 5] * 100, 6)
    rows, labels = np.vstack(X), np.concatenate(y)
    np.testing.assert_allclose(
        linear.fit("fedavg", X, y, intercept=False).shared,
        np.linalg.lstsq(rows, labels)[0],
        rtol=1e-12,
    )
    few = linear.fit(
        "fedavg", [np.column_stack([x, x[:, 0]]) for x in X], y, intercept=False
    ).shared
    np.testing.assert_allclose(
        few, np.linalg.lstsq(np.column_stack([rows, rows[:, 0]]), labels)[0], **TIGHT
    )


def test_poor_conditioning_is_not_squared():
    rng = np.random.default_rng(3)
    X = [rng.standard_normal((40, 5)) * [1e6, 1, 1, 1, 1e-3] for _ in range(12)]
    truth = np.array([1e-6, 1, -1, 2, 1e3])
    fit = linear.fit("fedavg", X, [x @ truth for x in X], intercept=False)
    np.testing.assert_allclose(fit.shared, truth, rtol=1e-8)
