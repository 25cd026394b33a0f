"""Every estimator against an unrelated route: minimisers of the stated objectives, dense covariances, refits, plain loops."""

import mpmath
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.sparse.linalg
import sklearn.linear_model
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from statsmodels.regression import mixed_linear_model

import fedasym as fa
from fedasym.algorithms import Average, Descend, Flow, Interpolate, Meta, Moreau, Nothing, Ridge
from fedasym.linear import crossvalidation
from fedasym.linear import estimators as linear
from fedasym.linear.clients import Client

# Name: samples of each client, and unknowns. Ragged; one sample; more samples than unknowns; fewer in all than unknowns.
SHAPES = {
    "many samples": ([3, 9, 1, 7, 20], 6),
    "few samples each": ([3, 4, 5, 2], 8),
    "just as many as unknowns": ([3, 4, 1], 8),
    "fewer than unknowns": ([3, 1, 4], 15),
    "one client": ([12], 4),
    "one client, few samples": ([4], 9),
    "one sample each": ([1] * 7, 4),
}
SHARED = ["fedavg", "ftfa", "rtfa", "maml", "pfedme"]
TIGHT = {"rtol": 1e-8, "atol": 1e-8}


def draw(sizes, d, seed=0, noise=0.5):
    rng = np.random.default_rng(seed)
    centre = rng.standard_normal(d)
    X = [rng.standard_normal((n, d)) for n in sizes]
    y = [x @ (centre + rng.standard_normal(d) / np.sqrt(d)) + noise * rng.standard_normal(len(x)) for x in X]
    return X, y


def awkward(kind, seed=0):
    """Clients whose designs do not have full rank."""
    X, y = draw([4, 9, 3, 8], 6, seed)
    match kind:
        case "duplicated rows":
            X[0][1] = X[0][0]
            X[2][:] = X[2][0]
        case "duplicated feature":
            X = [np.column_stack([x, x[:, 0]]) for x in X]
        case "zero feature":
            X = [x * (np.arange(6) != 2) for x in X]
        case "client of zeros":
            X[1] *= 0
        case "a feature of one client":
            X = [x * ((np.arange(6) != 2) | (place == 1)) for place, x in enumerate(X)]
        case "low rank":
            X[1] = np.round(2 * X[1][:, :2]) @ np.round(2 * X[1][:2]) / 4  # exactly: rounding would be a third direction
    return X, y


CASES = {**{name: draw(*shape) for name, shape in SHAPES.items()}}
CASES |= {
    kind: awkward(kind)
    for kind in (
        "duplicated rows",
        "duplicated feature",
        "zero feature",
        "client of zeros",
        "a feature of one client",
        "low rank",
    )
}
RAGGED = np.array([0.3, 0.5, 0.9, 0.2, 2.0, 0.7, 1.1])  # ridges that differ
every_case = pytest.mark.parametrize("case", CASES)


def weights_of(kind, X):
    sizes = np.array([len(x) for x in X], dtype=float)
    numbers = {"samples": sizes, "uniform": np.ones(len(X)), "given": np.arange(1.0, len(X) + 1)}[kind]
    return numbers / numbers.sum()


def least_squares(residuals, size):
    """The minimum-norm minimiser of a squared affine map, by Krylov iterations from the origin."""
    offset = residuals(np.zeros(size))
    columns = np.column_stack([residuals(unit) - offset for unit in np.eye(size)])
    found = scipy.sparse.linalg.lsmr(columns, -offset, atol=0, btol=0, conlim=0, maxiter=20 * size)[0]
    return found + scipy.sparse.linalg.lsmr(columns, -offset - columns @ found, atol=0, btol=0, conlim=0, maxiter=20 * size)[0]


@every_case
@pytest.mark.parametrize("weights", ["samples", "uniform", "given"])
def test_fedavg_is_weighted_least_squares_of_minimum_norm(case, weights):
    X, y = CASES[case]
    p = weights_of(weights, X)
    fit = linear.fit("fedavg", X, y, weights=p if weights == "given" else weights)
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
        return np.concatenate([np.sqrt(w / len(x)) * (x @ c - t) for w, x, t, c in zip(p, X, y, moved, strict=True)])

    fit = linear.fit("maml", X, y, weights=p, maml_step=alpha)
    np.testing.assert_allclose(fit.shared, least_squares(residuals, X[0].shape[1]), **TIGHT)


@every_case
@pytest.mark.parametrize("weights", ["samples", "given"])
def test_pfedme_minimises_its_joint_objective(case, weights):
    X, y = CASES[case]
    p, d, ridges = weights_of(weights, X), X[0].shape[1], RAGGED[: len(X)]

    def residuals(models):
        shared, *personal = models.reshape(-1, d)
        losses = [np.sqrt(w / len(x)) * (x @ b - t) for w, x, t, b in zip(p, X, y, personal, strict=True)]
        return np.concatenate([*losses, *(np.sqrt(w * c) * (b - shared) for w, c, b in zip(p, ridges, personal, strict=True))])

    fit = linear.fit("pfedme", X, y, weights=p, ridge=ridges)
    joint = least_squares(residuals, d * (len(X) + 1)).reshape(-1, d)
    np.testing.assert_allclose(fit.shared, joint[0], **TIGHT)
    np.testing.assert_allclose(np.stack(list(fit.personal.values())), joint[1:], **TIGHT)


@pytest.mark.parametrize(("name", "options"), [("maml", {"maml_step": 0.3}), ("pfedme", {"ridge": 0.4})])
def test_general_minimisers_find_the_same(name, options):
    X, y = CASES["many samples"]
    p, d, m = weights_of("samples", X), 6, len(X)

    def maml(b):
        steps = [x @ (b - 0.3 / len(x) * x.T @ (x @ b - t)) - t for x, t in zip(X, y, strict=True)]
        return sum(w / (2 * len(e)) * e @ e for w, e in zip(p, steps, strict=True))

    def pfedme(models):
        shared, *personal = models.reshape(m + 1, d)
        losses = (np.sum((x @ b - t) ** 2) / (2 * len(x)) for x, t, b in zip(X, y, personal, strict=True))
        return sum(w * (loss + 0.2 * np.sum((b - shared) ** 2)) for w, loss, b in zip(p, losses, personal, strict=True))

    objective, size = (maml, d) if name == "maml" else (pfedme, d * (m + 1))
    found = scipy.optimize.minimize(objective, np.zeros(size), method="BFGS", options={"gtol": 1e-7}).x
    fit = linear.fit(name, X, y, **options)
    ours = np.concatenate([fit.shared, *fit.personal.values()])[:size]
    assert objective(ours) <= objective(found) + 1e-15
    np.testing.assert_allclose(ours, found, atol=1e-4)  # what a minimiser without derivatives reaches


@every_case
@pytest.mark.parametrize(("name", "alone"), [("rtfa", False), ("local_ridge", True), ("pfedme", False)])
def test_ridge_is_scikit_learns_on_residuals(case, name, alone):
    X, y = CASES[case]
    ridges = RAGGED[: len(X)]
    fit = linear.fit(name, X, y, ridge=list(ridges))
    start = np.zeros_like(fit.shared) if alone else fit.shared
    for place, (x, t) in enumerate(zip(X, y, strict=True)):
        model = sklearn.linear_model.Ridge(alpha=len(x) * ridges[place], fit_intercept=False, solver="cholesky")
        away = model.fit(x, t - x @ start).coef_
        np.testing.assert_allclose(fit.personal[place], start + away, **TIGHT)
    assert fit.ridge == dict(enumerate(ridges))


@every_case
@pytest.mark.parametrize("name", ["local", "ftfa", "maml"])
def test_interpolation_is_the_nearest_least_squares_fit(case, name):
    X, y = CASES[case]
    fit = linear.fit(name, X, y)
    for place, (x, t) in enumerate(zip(X, y, strict=True)):
        away = np.linalg.lstsq(x, t - x @ fit.shared)[0]
        np.testing.assert_allclose(fit.personal[place], fit.shared + away, **TIGHT)


@pytest.mark.parametrize("case", ["few samples each", "many samples", "duplicated rows", "low rank"])
def test_gradient_descent_run_to_convergence_interpolates(case):
    X, y = CASES[case]
    fit = linear.fit("ftfa", X, y)
    for place, (x, t) in enumerate(zip(X, y, strict=True)):
        b, step = fit.shared.copy(), 1.9 / np.linalg.norm(x, 2) ** 2
        for _ in range(20_000):
            b -= step * x.T @ (x @ b - t)
        np.testing.assert_allclose(fit.personal[place], b, **TIGHT)


@every_case
@pytest.mark.parametrize("server", [Nothing(), Average(), Meta(0.1)], ids=lambda stage: type(stage).__name__)
def test_stopped_descent_and_flow_are_their_definitions(case, server):
    X, y = CASES[case]
    stepped = linear.fit(fa.Algorithm("stepped", server, Descend(0.05, 7)), X, y)
    flowed = linear.fit(fa.Algorithm("flowed", server, Flow(0.4)), X, y)
    for place, (x, t) in enumerate(zip(X, y, strict=True)):
        b = stepped.shared.copy()
        for _ in range(7):
            b -= 0.05 * x.T @ (x @ b - t) / len(x)
        np.testing.assert_allclose(stepped.personal[place], b, **TIGHT)
        goal = flowed.shared + np.linalg.lstsq(x, t - x @ flowed.shared)[0]
        decay = scipy.linalg.expm(-0.4 * x.T @ x / len(x))
        np.testing.assert_allclose(flowed.personal[place], goal + decay @ (flowed.shared - goal), **TIGHT)


def test_directions_of_little_curvature_are_not_lost():
    X, y = draw([3, 5, 2], 4)
    X = [x * [1, 1, 1e-9, 1e-6] for x in X]
    stepped = linear.fit(fa.Algorithm("stepped", Nothing(), Descend(0.1, 3)), X, y)
    flowed = linear.fit(fa.Algorithm("flowed", Nothing(), Flow(0.3)), X, y)
    for place, (x, t) in enumerate(zip(X, y, strict=True)):
        b = np.zeros(4)
        for _ in range(3):
            b -= 0.1 * x.T @ (x @ b - t) / len(x)
        np.testing.assert_allclose(stepped.personal[place], b, rtol=1e-8)
        S = x.T @ x / len(x)
        path = scipy.linalg.expm(np.block([[-0.3 * S, 0.3 * x.T @ t[:, None] / len(x)], [np.zeros((1, 5))]]))[:4, 4]
        np.testing.assert_allclose(flowed.personal[place], path, rtol=1e-8)


def test_a_large_single_step_is_taken_and_a_diverging_path_refused():
    X, y = CASES["many samples"]
    once = linear.fit(fa.Algorithm("once", Average(), Descend(5.0)), X, y)
    gradient = X[1].T @ (X[1] @ once.shared - y[1]) / len(X[1])
    np.testing.assert_allclose(once.personal[1], once.shared - 5 * gradient, **TIGHT)
    with pytest.raises(fa.InvalidInput, match=r"step is 5: gradient descent diverges on client 0 from 0\.\d+ on"):
        linear.fit(fa.Algorithm("twice", Average(), Descend(5.0, 2)), X, y)


@every_case
def test_paths_end_where_they_should(case):
    X, y = CASES[case]
    ftfa, fedavg = linear.fit("ftfa", X, y), linear.fit("fedavg", X, y)
    for name, options, limit in [
        ("rtfa", {"ridge": 0}, ftfa),
        ("rtfa", {"ridge": np.inf}, fedavg),
        ("pfedme", {"ridge": np.inf}, fedavg),
        (fa.Algorithm("none", Average(), Flow(0)), {}, fedavg),
        (fa.Algorithm("none", Average(), Descend(0.1, 0)), {}, fedavg),
        (fa.Algorithm("long", Average(), Flow(1e12)), {}, ftfa),
        (fa.Algorithm("own ridge", Average(), Ridge(np.inf)), {}, fedavg),
    ]:
        fit = linear.fit(name, X, y, **options)
        for client in fit.personal:
            np.testing.assert_allclose(fit.personal[client], limit.personal[client], **TIGHT)


def exact(array):
    return mpmath.matrix(np.asarray(array).tolist())


@pytest.mark.parametrize("case", ["many samples", "few samples each", "duplicated rows", "client of zeros", "low rank"])
@pytest.mark.parametrize("ridge", [1e-9, 1e-5, 1e-2])
def test_small_ridges_keep_their_digits(case, ridge):
    """Rows that depend on each other and disagree: a factor of XX' + ridge loses 1/ridge, and so would lstsq."""
    X, y = CASES[case]
    with mpmath.workdps(40):
        rows, labels, p = [exact(x) for x in X], [exact(t) for t in y], [mpmath.mpf(1) / len(X)] * len(X)
        d, scale = X[0].shape[1], [len(x) * mpmath.mpf(ridge) for x in X]
        halves = [
            w / len(x) * A.T * (mpmath.eye(len(x)) + A * A.T / c) ** -1 for w, x, A, c in zip(p, X, rows, scale, strict=True)
        ]
        Q = sum((half * A for half, A in zip(halves, rows, strict=True)), mpmath.zeros(d))
        shared = mpmath.lu_solve(Q, sum((half * t for half, t in zip(halves, labels, strict=True)), mpmath.zeros(d, 1)))
        personal = [
            shared + (A.T * A + c * mpmath.eye(d)) ** -1 * (A.T * (t - A * shared))
            for A, t, c in zip(rows, labels, scale, strict=True)
        ]
        fit = linear.fit("pfedme", X, y, ridge=ridge, weights="uniform")
        np.testing.assert_allclose(fit.shared, np.array(shared.tolist(), dtype=float).ravel(), **TIGHT)
        for client, model in enumerate(personal):
            np.testing.assert_allclose(fit.personal[client], np.array(model.tolist(), dtype=float).ravel(), **TIGHT)


def test_with_fewer_samples_than_unknowns_all_sharing_methods_interpolate_alike():
    X, y = CASES["fewer than unknowns"]
    nearest = np.linalg.lstsq(np.vstack(X), np.concatenate(y))[0]
    for name in SHARED:
        fit = linear.fit(name, X, y, ridge=[0.3, 2.0, 0.05], weights=[0.5, 0.2, 0.3])
        np.testing.assert_allclose(fit.shared, nearest, **TIGHT)
        for client, (x, t) in enumerate(zip(X, y, strict=True)):
            np.testing.assert_allclose(fit.personal[client], nearest, **TIGHT)
            np.testing.assert_allclose(fit.predict(x, client=client), t, **TIGHT)


def test_hundreds_of_clients_are_one_least_squares_problem():
    X, y = draw([3, 1, 5] * 100, 6)
    rows, labels = np.vstack(X), np.concatenate(y)
    np.testing.assert_allclose(linear.fit("fedavg", X, y).shared, np.linalg.lstsq(rows, labels)[0], rtol=1e-12)
    few = linear.fit("fedavg", [np.column_stack([x, x[:, 0]]) for x in X], y).shared
    np.testing.assert_allclose(few, np.linalg.lstsq(np.column_stack([rows, rows[:, 0]]), labels)[0], **TIGHT)


def test_poor_conditioning_is_not_squared():
    rng = np.random.default_rng(3)
    X = [rng.standard_normal((40, 5)) * [1e6, 1, 1, 1, 1e-3] for _ in range(12)]
    truth = np.array([1e-6, 1, -1, 2, 1e3])
    fit = linear.fit("fedavg", X, [x @ truth for x in X])
    np.testing.assert_allclose(fit.shared, truth, rtol=1e-8)


@given(
    seed=st.integers(0, 10_000),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    d=st.integers(1, 7),
    name=st.sampled_from([*SHARED, "local", "local_ridge"]),
)
@settings(deadline=None, max_examples=60)
def test_turning_the_features_turns_the_models_and_rows_have_no_order(seed, sizes, d, name):
    X, y = draw(sizes, d, seed)
    turn = scipy.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0]
    shuffle = np.random.default_rng(seed).permutation(sum(sizes))
    ids = np.repeat([f"c{i}" for i in range(len(sizes))], sizes)[shuffle]
    rows, labels = np.vstack(X)[shuffle], np.concatenate(y)[shuffle]
    fit = linear.fit(name, X, y, ridge=0.3, clients=[f"c{i}" for i in range(len(sizes))])
    turned = linear.fit(name, rows @ turn, labels, clients=ids, ridge=0.3)
    new = np.random.default_rng(seed + 1).standard_normal((3, d))
    size = max(1.0, np.abs(fit.shared).max(), *(np.abs(model).max() for model in fit.personal.values()))
    assume(size < 1e3)  # nearly singular draws amplify rounding
    for client in fit.personal:
        np.testing.assert_allclose(turned.predict(new @ turn, client), fit.predict(new, client), atol=1e-7 * size)


@pytest.mark.parametrize("name", [*SHARED, "local", "local_ridge"])
def test_rows_lists_and_iterators_are_the_same_data(name):
    X, y = CASES["many samples"]
    names = ["a", "b", "c", "d", "e"]
    listed = linear.fit(name, X, y, clients=names, ridge=0.5)
    streamed = linear.fit(name, iter(X), iter(y), clients=iter(names), ridge=0.5)
    rows = linear.fit(name, np.vstack(X), np.concatenate(y), clients=np.repeat(names, [len(x) for x in X]), ridge=0.5)
    by_name = linear.fit(name, X, y, clients=names, ridge=dict.fromkeys(names, 0.5), weights=listed.weights)
    for other in (streamed, rows, by_name):
        assert list(other.personal) == names
        np.testing.assert_allclose(other.shared, listed.shared, rtol=1e-12)
        for client in names:
            np.testing.assert_allclose(other.personal[client], listed.personal[client], rtol=1e-10)


def test_one_array_may_hold_clients_of_equal_size():
    X, y = draw([4, 4, 4], 3)
    np.testing.assert_array_equal(linear.fit("ftfa", np.stack(X), np.stack(y)).shared, linear.fit("ftfa", X, y).shared)


def test_prediction_is_by_client_by_row_or_for_a_newcomer():
    X, y = draw([5, 6, 7], 3)
    fit = linear.fit("rtfa", X, y, clients=["a", "b", "c"], ridge=0.5)
    new = np.random.default_rng(1).standard_normal((4, 3))
    np.testing.assert_array_equal(fit.predict(new), new @ fit.shared)
    np.testing.assert_array_equal(fit.predict(new, client="b"), new @ fit.personal["b"])
    mixed = fit.predict(new, client=["a", None, "c", "a"])
    expected = [fit.personal["a"], fit.shared, fit.personal["c"], fit.personal["a"]]
    np.testing.assert_allclose(mixed, np.sum(new * expected, axis=1), rtol=1e-12)
    numbered = linear.fit("rtfa", np.vstack(X), np.concatenate(y), clients=np.repeat([7, 8, 9], [5, 6, 7]), ridge=0.5)
    np.testing.assert_array_equal(numbered.predict(new, client=8), numbered.predict(new, client=np.int64(8)))


def test_a_fit_prints_itself_and_is_frozen():
    X, y = draw([5] * 12, 3)
    fit = linear.fit("rtfa", X, y)
    text = str(fit)
    assert text.startswith("rtfa · 12 clients · 60 samples of 3 features · noise 0.")
    assert "and 2 more" in text
    assert "<pre>rtfa" in fit._repr_html_()
    with pytest.raises(AttributeError):
        fit.shared = None
    with pytest.raises(ValueError, match="read-only"):
        fit.shared[0] = 1


# Restricted maximum likelihood


def dense(X, noise2, radius2, shared):
    """The covariance of all labels, and the matrix that projects the shared model out of them (REML's P)."""
    d = X[0].shape[1]
    V = scipy.linalg.block_diag(*(noise2 * np.eye(len(x)) + radius2 / d * x @ x.T for x in X))
    inverse, rows = np.linalg.inv(V), np.vstack(X)
    if not shared:
        return V, inverse
    return V, inverse - inverse @ rows @ np.linalg.pinv(rows.T @ inverse @ rows) @ rows.T @ inverse


def restricted_deviance(X, y, noise2, radius2, shared):
    """-2 log likelihood of the contrasts that the shared model cannot touch."""
    V, _ = dense(X, noise2, radius2, shared)
    contrasts = scipy.linalg.null_space(np.vstack(X).T) if shared else np.eye(len(V))
    seen = contrasts.T @ np.concatenate(y)
    return np.linalg.slogdet(contrasts.T @ V @ contrasts)[1] + seen @ np.linalg.solve(contrasts.T @ V @ contrasts, seen)


LIKELY = {
    "ragged": draw([3, 9, 1, 7, 20, 4], 6, seed=5),
    "few samples each": draw([3, 4, 5, 2, 5, 3], 8, seed=5),
    "duplicated feature": awkward("duplicated feature", seed=2),
    "one sample each": draw([1] * 40, 3, seed=5),
}


@pytest.mark.parametrize("case", LIKELY)
@pytest.mark.parametrize(("name", "shared"), [("pfedme", True), ("rtfa", True), ("local_ridge", False)])
def test_the_estimated_variances_solve_the_likelihood_equations(case, name, shared):
    X, y = LIKELY[case]
    fit = linear.fit(name, X, y, ridge="optimal")
    noise2, radius2, d = fit.noise**2, fit.radius**2, X[0].shape[1]
    assert radius2 > 0  # inside the range: at its ends there are no equations to solve
    _, P = dense(X, noise2, radius2, shared)
    spread = scipy.linalg.block_diag(*(x @ x.T for x in X)) / d
    seen = P @ np.concatenate(y)
    np.testing.assert_allclose(seen @ seen, np.trace(P), rtol=1e-8)
    np.testing.assert_allclose(seen @ spread @ seen, np.trace(P @ spread), rtol=1e-8)
    best = restricted_deviance(X, y, noise2, radius2, shared)
    for a in np.geomspace(1e-3, 1e3, 13) * noise2:
        for b in np.geomspace(1e-3, 1e3, 13) * radius2:
            assert restricted_deviance(X, y, a, b, shared) >= best - 1e-9
    np.testing.assert_allclose(list(fit.ridge.values()), [noise2 * d / len(x) / radius2 for x in X], rtol=1e-10)


def test_pfedme_at_the_estimate_is_the_best_linear_unbiased_prediction():
    X, y = LIKELY["ragged"]
    fit = linear.fit("pfedme", X, y)
    V, _ = dense(X, fit.noise**2, fit.radius**2, True)
    rows, labels = np.vstack(X), np.concatenate(y)
    shared = np.linalg.solve(rows.T @ np.linalg.solve(V, rows), rows.T @ np.linalg.solve(V, labels))
    np.testing.assert_allclose(fit.shared, shared, **TIGHT)
    weighted = np.split(np.linalg.solve(V, labels - rows @ shared), np.cumsum([len(x) for x in X])[:-1])
    for client, (x, part) in enumerate(zip(X, weighted, strict=True)):
        np.testing.assert_allclose(fit.personal[client], shared + fit.radius**2 / 6 * x.T @ part, **TIGHT)


def test_the_estimates_are_those_of_statsmodels():
    X, y = draw([6, 9, 5, 7, 20, 8, 11, 4], 3, seed=7)
    rows, labels, ids = np.vstack(X), np.concatenate(y), np.repeat(np.arange(8), [len(x) for x in X])
    components = mixed_linear_model.VCSpec(["b"], [[["b0", "b1", "b2"]] * 8], [X])
    theirs = mixed_linear_model.MixedLM(labels, rows, ids, exog_vc=components).fit(reml=True, method="bfgs", gtol=1e-9)
    fit = linear.fit("pfedme", rows, labels, clients=ids)
    np.testing.assert_allclose([fit.noise**2, fit.radius**2 / 3], [theirs.scale, theirs.vcomp[0]], rtol=1e-6)
    np.testing.assert_allclose(fit.shared, theirs.fe_params, rtol=1e-7)


def test_clients_that_do_not_differ_have_no_radius():
    rng = np.random.default_rng(1)
    X = [rng.standard_normal((10, 3)) for _ in range(4)]
    rows = np.vstack(X)
    y = rows @ [1.0, 2, 3] + rng.standard_normal(40)
    residuals = y - rows @ np.linalg.lstsq(rows, y)[0]
    parts = np.split(residuals, 4)
    parts = [part - x @ np.linalg.lstsq(x, part)[0] for x, part in zip(X, parts, strict=True)]  # no client leans anywhere
    fit = linear.fit("rtfa", X, parts)
    assert fit.radius == 0
    assert set(fit.ridge.values()) == {np.inf}
    np.testing.assert_allclose(fit.noise**2, sum(part @ part for part in parts) / 37, rtol=1e-10)
    exact = linear.fit("pfedme", X, [x @ [1.0, 2, 3] for x in X])
    assert (exact.noise, exact.radius) == (0, 0)
    np.testing.assert_allclose(exact.personal[2], [1, 2, 3], **TIGHT)


def test_clients_without_noise_interpolate():
    X, y = draw([3, 4, 5, 2, 5, 3], 8, seed=2, noise=0)
    fit, limit = linear.fit("rtfa", X, y), linear.fit("ftfa", X, y)
    assert fit.noise < 1e-3 * fit.radius
    for client in fit.personal:
        np.testing.assert_allclose(fit.personal[client], limit.personal[client], atol=1e-6)  # the range of ratios ends


def test_estimates_scale_with_the_labels_and_ignore_a_shared_model():
    X, y = LIKELY["ragged"]
    fit = linear.fit("rtfa", X, y)
    moved = linear.fit("rtfa", X, [10 * t + x @ np.arange(6.0) * 100 for x, t in zip(X, y, strict=True)])
    np.testing.assert_allclose([moved.noise, moved.radius], [10 * fit.noise, 10 * fit.radius], rtol=1e-8)


# Generalised cross-validation


def refitted(server, X, y, p, ridge):
    """Each client's residuals about a shared model that was fitted again, from scratch, without it."""
    left = []
    for i in range(len(X)):
        rows, labels = [np.zeros((0, X[0].shape[1]))], [np.zeros(0)]
        for j in set(range(len(X))) - {i}:
            K = X[j] @ X[j].T / len(X[j])
            W = np.linalg.inv(np.eye(len(K)) + K / ridge) if isinstance(server, Moreau) else np.eye(len(K))
            half = np.linalg.cholesky(p[j] / len(K) * W).T
            rows.append(half @ X[j])
            labels.append(half @ y[j])
        shared = np.linalg.lstsq(np.vstack(rows), np.concatenate(labels))[0] if len(X) > 1 else np.zeros(X[0].shape[1])
        left.append(y[i] - X[i] @ shared)
    return left


def brute_gcv(x, e, ridge):
    n = len(x)
    A = x @ np.linalg.solve(x.T @ x + n * ridge * np.eye(x.shape[1]), x.T)
    return np.sum((e - A @ e) ** 2) / n / (1 - np.trace(A) / n) ** 2


@every_case
@pytest.mark.parametrize("server", [Average(), Moreau(), Nothing()], ids=lambda stage: type(stage).__name__)
def test_leaving_a_client_out_is_a_refit_without_it(case, server):
    X, y = CASES[case]
    p = weights_of("given", X)
    clients = [Client.of(place, x, t) for place, (x, t) in enumerate(zip(X, y, strict=True))]
    for ridge in (0.05, 0.7, 20.0):
        expected = y if isinstance(server, Nothing) else refitted(server, X, y, p, ridge)
        found = crossvalidation.residuals(server, clients, p, ridge)
        for client, e, x, whole in zip(clients, found, X, expected, strict=True):
            np.testing.assert_allclose(crossvalidation.gcv(client, e, ridge), brute_gcv(x, whole, ridge), rtol=1e-8)
            if client.n <= x.shape[1]:
                np.testing.assert_allclose(client.axes[0] @ e, whole, **TIGHT)


@pytest.mark.parametrize("case", ["many samples", "few samples each", "fewer than unknowns", "low rank"])
@pytest.mark.parametrize(("name", "server"), [("rtfa", Average()), ("pfedme", Moreau()), ("local_ridge", Nothing())])
def test_the_chosen_ridge_is_the_lowest_of_the_mean_curve(case, name, server):
    X, y = CASES[case]
    p = weights_of("samples", X)

    def score(ridge):
        left = y if isinstance(server, Nothing) else refitted(server, X, y, p, ridge)
        return np.mean([brute_gcv(x, e, ridge) for x, e in zip(X, left, strict=True)])

    fit = linear.fit(name, X, y, ridge="cv")
    (chosen,) = set(fit.ridge.values())
    grid = np.geomspace(1e-5, 1e5, 81)
    assert score(chosen) <= min(map(score, grid)) * (1 + 1e-9)
    assert fit.noise is None


# Bad input


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"X": [np.ones((2, 3)), np.ones((0, 3))], "y": [np.ones(2), np.ones(0)]}, r"client 1: X has shape \(0, 3\)"),
        ({"X": [np.ones((2, 3)), np.full((2, 3), np.nan)]}, "client 1: X or y holds NaN"),
        ({"y": [np.ones(2), np.array([1, np.inf])]}, "client 1: X or y holds NaN or infinity"),
        ({"y": [np.ones(2), np.ones(3)]}, "client 1: X has 2 rows and y has 3"),
        ({"y": [np.ones(2)]}, "client 1 has rows in X and none in y"),
        ({"y": [np.ones(2)] * 3}, "X has 2 clients while y or clients has more"),
        ({"clients": ["a", "b", "c"]}, "X has 2 clients while y or clients has more"),
        ({"clients": ["a"]}, "more clients in X than the 1 names"),
        ({"clients": ["a", "a"]}, "client 'a' is named twice"),
        ({"clients": ["a", None]}, "entry 1 of clients is None"),
        ({"clients": "ab"}, "clients is 'ab': give a list"),
        ({"clients": [["a"], ["b"]]}, r"label of a client is \['a'\]"),
        ({"X": [np.ones((2, 3)), np.ones((2, 4))]}, "client 1 has 4 features and the clients before it have 3"),
        ({"X": iter([]), "y": []}, "no clients"),
        ({"X": np.ones((2, 3)), "y": [1, 2], "clients": ["a"]}, "1 labels for 2 rows"),
        ({"X": np.ones((2, 3)), "y": [1, 2], "clients": [1.0, np.nan]}, "entry 1 of clients is nan"),
        ({"X": np.ones((2, 3)), "y": [1, 2, 3]}, "all rows together: X has 2 rows and y has 3"),
        ({"X": [[[1, 2], [3]]], "y": [[1, 2]]}, "client 0: X and y must be arrays of numbers"),
        ({"y": None}, "y is None: give one array of labels per client"),
        ({"X": np.ones(3), "y": [1, 2, 3]}, r"X has shape \(3,\)"),
        ({"X": np.ones((2, 3)), "y": ["a", "b"]}, "arrays of numbers"),
        ({"weights": [1.0, 0.0], "clients": ["a", "b"]}, "weight of client 'b' is 0: it must be above 0"),
        ({"weights": [1.5, -0.5]}, "weight of client 1 is -0.5"),
        ({"weights": [0.5, np.nan]}, "weight of client 1 is nan"),
        ({"weights": [0.5, 0.6]}, "weights sum to 1.1: they must sum to 1"),
        ({"weights": [1.0]}, r"weights has shape \(1,\): give one number for each of the 2 clients"),
        ({"weights": "size"}, "weights is 'size': give 'samples', 'uniform'"),
        ({"weights": {0: 0.5}}, "weights has no entry for client 1"),
        ({"weights": {0: 0.5, 1: 0.3, 2: 0.2}}, "weights has entries for clients without samples"),
        ({"ridge": [0.5, -1]}, "ridge of client 1 is -1: it must be at least 0"),
        ({"ridge": np.nan}, "ridge of client 0 is nan"),
        ({"ridge": "best"}, "ridge is 'best': give 'optimal', 'cv'"),
        ({"ridge": ["a", "b"]}, "give one number per client"),
        ({"algorithm": "pfedme", "ridge": {0: 1, 1: 0}}, "ridge of client 1 is 0: pfedme needs one above 0"),
        ({"algorithm": fa.Algorithm("odd", Average(), Flow(np.inf))}, "odd flows for time inf: it must be finite"),
        ({"algorithm": "rfta"}, "unknown algorithm 'rfta': did you mean rtfa"),
        ({"algorithm": None}, "unknown algorithm None"),
        ({"algorithm": "maml", "maml_step": -1}, "maml_step is -1"),
        ({"X": [np.eye(3)[:1], np.eye(3)[1:]], "y": [[1], [1, 2]], "ridge": None}, "have 3 for 3: give ridge as a number"),
        ({"X": np.ones((5, 2)), "y": range(5), "ridge": "optimal"}, "needs two clients .* only 0: give ridge as a number"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence(change, says):
    good = {"algorithm": "rtfa", "X": [np.ones((2, 3))] * 2, "y": [np.ones(2)] * 2, "ridge": 0.5}
    with pytest.raises(fa.InvalidInput, match=says) as caught:
        linear.fit(**(good | change))
    assert "\n" not in str(caught.value)


def test_bad_questions_to_a_fit_get_one_sentence():
    X, y = draw([3, 4], 2)
    fit, alone = linear.fit("rtfa", X, y, ridge=1), linear.fit("local", X, y)
    with pytest.raises(fa.InvalidInput, match="client 'z' was not in the fit"):
        fit.predict(X[0], client="z")
    with pytest.raises(fa.InvalidInput, match="client 5 was not in the fit"):
        fit.predict(X[0], client=[0, 5, 1])
    with pytest.raises(fa.InvalidInput, match="2 labels for 3 rows"):
        fit.predict(X[0], client=[0, 1])
    with pytest.raises(fa.InvalidInput, match=r"X has shape \(3, 1\)"):
        fit.predict(X[0][:, :1])
    with pytest.raises(fa.InvalidInput, match="X holds NaN"):
        fit.predict([[1, np.nan]])
    with pytest.raises(fa.InvalidInput, match="local shares nothing, so a new client has no model"):
        alone.predict(X[0])


def test_methods_without_a_ridge_report_none():
    X, y = draw([3, 4], 2)
    assert linear.fit("ftfa", X, y, ridge=3).ridge is None
    assert linear.fit(fa.Algorithm("own", Average(), Interpolate()), X, y).ridge is None


def test_more_clients_than_memory_names_the_client_that_does_not_fit(monkeypatch):
    X, y = np.ones((4, 5, 3)), np.ones((4, 5))
    monkeypatch.setattr("fedasym.linear.clients.physical_memory", lambda: 2.5 * (3 * 3 + 3) * 8 / 0.8)
    with pytest.raises(fa.InvalidInput, match=r"client 'c' is one too many .*: give fewer"):
        linear.fit("fedavg", list(X), list(y), clients=list("abcd"))
    linear.fit("fedavg", list(X[:2]), list(y[:2]), clients=list("ab"))
