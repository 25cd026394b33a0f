"""The verb `linear.fit`: symmetries, forms of client data, prediction, and how a fit prints."""

import numpy as np
import pytest
import scipy.linalg
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import fedasym as fa
from fedasym.algorithms import Average, Interpolate
from fedasym.exact import estimators as linear

from .clients import CASES, SHARED, draw


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
    fit = linear.fit(
        name, X, y, ridge=0.3, clients=[f"c{i}" for i in range(len(sizes))], intercept=False
    )
    turned = linear.fit(name, rows @ turn, labels, clients=ids, ridge=0.3, intercept=False)
    new = np.random.default_rng(seed + 1).standard_normal((3, d))
    size = max(
        1.0, np.abs(fit.shared).max(), *(np.abs(model).max() for model in fit.personal.values())
    )
    assume(size < 1e3)  # nearly singular draws amplify rounding
    for client in fit.personal:
        np.testing.assert_allclose(
            turned.predict(new @ turn, client), fit.predict(new, client), atol=1e-7 * size
        )


@pytest.mark.parametrize("name", [*SHARED, "local", "local_ridge"])
def test_rows_lists_and_iterators_are_the_same_data(name):
    X, y = CASES["many samples"]
    names = ["a", "b", "c", "d", "e"]
    listed = linear.fit(name, X, y, clients=names, ridge=0.5, intercept=False)
    streamed = linear.fit(name, iter(X), iter(y), clients=iter(names), ridge=0.5, intercept=False)
    rows = linear.fit(
        name,
        np.vstack(X),
        np.concatenate(y),
        clients=np.repeat(names, [len(x) for x in X]),
        ridge=0.5,
        intercept=False,
    )
    by_name = linear.fit(
        name,
        X,
        y,
        clients=names,
        ridge=dict.fromkeys(names, 0.5),
        weights=listed.weights,
        intercept=False,
    )
    for other in (streamed, rows, by_name):
        assert list(other.personal) == names
        np.testing.assert_allclose(other.shared, listed.shared, rtol=1e-12)
        for client in names:
            np.testing.assert_allclose(other.personal[client], listed.personal[client], rtol=1e-10)


def test_one_array_may_hold_clients_of_equal_size():
    X, y = draw([4, 4, 4], 3)
    np.testing.assert_array_equal(
        linear.fit("ftfa", np.stack(X), np.stack(y), intercept=False).shared,
        linear.fit("ftfa", X, y, intercept=False).shared,
    )


def test_prediction_is_by_client_by_row_or_for_a_newcomer():
    X, y = draw([5, 6, 7], 3)
    fit = linear.fit("rtfa", X, y, clients=["a", "b", "c"], ridge=0.5, intercept=False)
    new = np.random.default_rng(1).standard_normal((4, 3))
    np.testing.assert_array_equal(fit.predict(new), new @ fit.shared)
    np.testing.assert_array_equal(fit.predict(new, client="b"), new @ fit.personal["b"])
    mixed = fit.predict(new, client=["a", None, "c", "a"])
    expected = [fit.personal["a"], fit.shared, fit.personal["c"], fit.personal["a"]]
    np.testing.assert_allclose(mixed, np.sum(new * expected, axis=1), rtol=1e-12)
    numbered = linear.fit(
        "rtfa",
        np.vstack(X),
        np.concatenate(y),
        clients=np.repeat([7, 8, 9], [5, 6, 7]),
        ridge=0.5,
        intercept=False,
    )
    np.testing.assert_array_equal(
        numbered.predict(new, client=8), numbered.predict(new, client=np.int64(8))
    )


def test_a_fit_prints_itself_and_is_frozen():
    X, y = draw([5] * 12, 3)
    fit = linear.fit("rtfa", X, y, intercept=False)
    text = str(fit)
    assert text.startswith("rtfa · 12 clients · 60 samples of 3 features · noise 0.")
    assert "and 2 more" in text
    assert "<pre>rtfa" in fit._repr_html_()
    with pytest.raises(AttributeError):
        fit.shared = None
    with pytest.raises(ValueError, match="read-only"):
        fit.shared[0] = 1


def test_methods_without_a_ridge_report_none():
    X, y = draw([3, 4], 2)
    assert linear.fit("ftfa", X, y, ridge=3, intercept=False).ridge is None
    assert (
        linear.fit(fa.Algorithm("own", Average(), Interpolate()), X, y, intercept=False).ridge
        is None
    )
