"""The scikit-learn estimator: its checks, its tools, and groups as clients."""

import subprocess
import sys

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

import fedasym as fa
from fedasym.exact import PersonalizedRegressor, fit

ALGORITHMS = list(fa.algorithms.PAPER)


def population(clients=12, n=15, d=4, seed=0):
    rng = np.random.default_rng(seed)
    ids = np.repeat([f"g{i}" for i in range(clients)], n)
    X = rng.standard_normal((clients * n, d)) + 1
    models = 1 + rng.standard_normal((clients, d)) / 2
    y = 3 + np.sum(X * np.repeat(models, n, axis=0), axis=1) + 0.3 * rng.standard_normal(len(X))
    return X, y, ids


@parametrize_with_checks(
    [PersonalizedRegressor(), PersonalizedRegressor("pfedme", ridge=0.5, fit_intercept=False)]
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


# What of them depends on the fit itself. The others are of the class: parameters, tags, validation,
# pickles.
NUMERIC = {
    "check_estimators_dtypes",
    "check_pipeline_consistency",
    "check_f_contiguous_array_estimator",
    "check_regressors_train",
    "check_supervised_y_2d",
    "check_regressors_int",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_fit2d_1sample",
    "check_fit2d_1feature",
    "check_fit_idempotent",
    "check_readonly_memmap_input",
}


@pytest.mark.parametrize(
    "estimator",
    [
        *(PersonalizedRegressor(name) for name in ALGORITHMS if name != "rtfa"),
        PersonalizedRegressor(weights="uniform"),
    ],
    ids=str,
)
def test_scikit_learns_checks_of_the_fit(estimator):
    done = set()
    for _, check in estimator_checks_generator(estimator):
        name = getattr(check, "func", check).__name__
        if name in NUMERIC:
            check(estimator)
            done.add(name)
    assert done == NUMERIC


@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_is_the_fit_with_an_intercept(name):
    X, y, ids = population()
    model = PersonalizedRegressor(name, ridge=0.4).fit(X, y, groups=ids)
    direct = fit(name, X, y, clients=ids, ridge=0.4)
    np.testing.assert_array_equal(np.append(model.coef_, model.intercept_), direct.shared)
    np.testing.assert_array_equal(model.predict(X, groups=ids), direct.predict(X, client=ids))
    assert list(model.personal_) == list(dict.fromkeys(ids))
    plain = PersonalizedRegressor(name, ridge=0.4, fit_intercept=False).fit(X, y, groups=ids)
    np.testing.assert_array_equal(
        plain.coef_, fit(name, X, y, clients=ids, ridge=0.4, intercept=False).shared
    )
    assert plain.intercept_ == 0


@pytest.mark.parametrize("name", ["fedavg", "ftfa", "rtfa", "maml", "pfedme"])
def test_an_intercept_that_is_shared_is_a_column_of_ones(name):
    X, y, ids = population()
    ones = fit(
        name, np.column_stack([X, np.ones(len(X))]), y, clients=ids, ridge=0.4, intercept=False
    )
    for client, theirs in fit(name, X, y, clients=ids, ridge=0.4).personal.items():
        np.testing.assert_allclose(theirs, ones.personal[client], rtol=1e-10)


def test_clients_on_their_own_are_scikit_learns_ridge_with_a_free_intercept():
    X, y, ids = population()
    for name, penalty in (("local", 0.0), ("local_ridge", 0.4)):
        found = fit(name, X, y, clients=ids, ridge=0.4)
        for client in dict.fromkeys(ids):
            mine = ids == client
            theirs = Ridge(alpha=penalty * mine.sum()).fit(X[mine], y[mine])
            np.testing.assert_allclose(
                found.personal[client], np.append(theirs.coef_, theirs.intercept_), rtol=1e-8
            )


def test_without_groups_there_is_one_client():
    X, y, _ = population()
    ordinary = LinearRegression().fit(X, y)
    for name in ("local", "fedavg", "ftfa", "rtfa", "maml", "pfedme"):
        model = PersonalizedRegressor(name).fit(X, y)
        np.testing.assert_allclose(model.predict(X), ordinary.predict(X), rtol=1e-8)
        assert model.score(X, y) == pytest.approx(ordinary.score(X, y), rel=1e-8)


def test_a_group_that_is_new_gets_the_shared_model():
    X, y, ids = population()
    model = PersonalizedRegressor("rtfa").fit(X, y, groups=ids)
    new = model.predict(X[:3], groups=["g0", "unseen", "g1"])
    np.testing.assert_allclose(new[1], X[1] @ model.coef_ + model.intercept_, rtol=1e-12)
    np.testing.assert_allclose(
        new[0], X[0] @ model.personal_["g0"][:-1] + model.personal_["g0"][-1], rtol=1e-12
    )
    np.testing.assert_allclose(model.predict(X), X @ model.coef_ + model.intercept_, rtol=1e-12)
    assert model.score(X, y, groups=ids) > model.score(X, y)


def test_groups_of_another_length_are_refused():
    X, y, ids = population()
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        PersonalizedRegressor().fit(X, y, groups=ids[:-1])


def test_parameters_are_cloned_and_read_only_when_fitting():
    model = clone(
        PersonalizedRegressor(
            "pfedme", ridge=0.7, weights="uniform", maml_step=0.2, fit_intercept=False
        )
    )
    assert model.get_params() == {
        "algorithm": "pfedme",
        "ridge": 0.7,
        "weights": "uniform",
        "maml_step": 0.2,
        "fit_intercept": False,
    }
    with pytest.raises(fa.InvalidInput, match="unknown algorithm 'pfedmee': did you mean pfedme"):
        model.set_params(algorithm="pfedmee").fit(np.eye(3), np.ones(3))


def test_grid_search_over_samples_of_known_groups_passes_groups_on():
    X, y, ids = population()
    with sklearn.config_context(enable_metadata_routing=True):
        model = PersonalizedRegressor().set_fit_request(groups=True).set_score_request(groups=True)
        search = GridSearchCV(
            model,
            {"algorithm": ["fedavg", "rtfa"], "ridge": [0.1, 10.0]},
            cv=KFold(3, shuffle=True, random_state=0),
        )
        search.fit(X, y, groups=ids)
    assert search.best_params_ == {"algorithm": "rtfa", "ridge": 0.1}
    assert len(search.best_estimator_.personal_) == 12
    scores = search.cv_results_["mean_test_score"]
    assert scores[0] == pytest.approx(scores[1], rel=1e-12)  # fedavg has no ridge
    assert scores[2] > scores[3]


def test_grid_search_over_groups_scores_newcomers():
    X, y, ids = population()
    with sklearn.config_context(enable_metadata_routing=True):
        model = PersonalizedRegressor().set_fit_request(groups=True).set_score_request(groups=True)
        search = GridSearchCV(model, {"algorithm": ["rtfa", "pfedme"]}, cv=GroupKFold(4)).fit(
            X, y, groups=ids
        )
        held_out = cross_validate(
            model.set_params(algorithm="fedavg"), X, y, cv=GroupKFold(4), params={"groups": ids}
        )
    # A newcomer has the shared model alone, and rtfa's is fedavg's.
    np.testing.assert_allclose(
        search.cv_results_["mean_test_score"][0], held_out["test_score"].mean(), rtol=1e-12
    )
    assert len(search.best_estimator_.personal_) == 12


def test_a_pipeline_passes_groups_on():
    X, y, ids = population()
    with sklearn.config_context(enable_metadata_routing=True):
        model = (
            PersonalizedRegressor("ftfa")
            .set_fit_request(groups=True)
            .set_predict_request(groups=True)
        )
        pipeline = make_pipeline(StandardScaler(), model).fit(X, y, groups=ids)
        scaled = StandardScaler().fit(X).transform(X)
        direct = PersonalizedRegressor("ftfa").fit(scaled, y, groups=ids)
        np.testing.assert_allclose(
            pipeline.predict(X, groups=ids), direct.predict(scaled, groups=ids), rtol=1e-12
        )
    ours, theirs = (
        make_pipeline(StandardScaler(), model)
        for model in (PersonalizedRegressor(), LinearRegression())
    )
    np.testing.assert_allclose(
        cross_val_score(ours, X, y, cv=3), cross_val_score(theirs, X, y, cv=3), rtol=1e-8
    )


def test_the_rest_of_the_lens_needs_no_scikit_learn():
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "from fedasym import linear\n"
        "linear.fit('ftfa', [[1.0]], [1.0])\n"
        "try:\n    linear.PersonalizedRegressor\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (
        done.stdout.strip()
        == "PersonalizedRegressor needs scikit-learn: pip install 'fedasym[sklearn]'"
    )
