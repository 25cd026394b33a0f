"""What must not matter: order, names and coordinates; and how answers scale."""

import numpy as np
import pytest

from fedasym.advisor import advise


@pytest.fixture(scope="module")
def base(world):
    X, y, _ = world.but(clients=16, correlation=0.4).draw()
    return X, y, advise(X, y, intercept=False)


def losses(advice):
    return {name: row.loss.value for name, row in advice.predictions.items()}


@pytest.mark.usefixtures("_unstopped")
def test_the_order_of_clients_does_not_matter(base):
    X, y, first = base
    order = np.random.default_rng(0).permutation(len(X))
    second = advise(
        [X[i] for i in order], [y[i] for i in order], [f"c{i}" for i in order], intercept=False
    )
    assert second.recommended == first.recommended
    assert losses(second) == pytest.approx(losses(first), rel=1e-6)
    assert second.client("c3").gain == pytest.approx(first.client(3).gain, rel=1e-5)


@pytest.mark.usefixtures("_unstopped")
def test_the_order_of_rows_does_not_matter(base):
    X, y, first = base
    rng = np.random.default_rng(1)
    orders = [rng.permutation(len(labels)) for labels in y]
    second = advise(
        [x[o] for x, o in zip(X, orders, strict=True)],
        [v[o] for v, o in zip(y, orders, strict=True)],
        intercept=False,
    )
    assert losses(second) == pytest.approx(losses(first), rel=1e-6)


@pytest.mark.usefixtures("_unstopped")
def test_rows_with_a_name_each_are_the_same_clients(base):
    X, y, first = base
    ids = np.repeat(np.arange(len(X)), len(y[0]))
    order = np.random.default_rng(2).permutation(ids.size)
    second = advise(
        np.concatenate(X)[order], np.concatenate(y)[order], clients=ids[order], intercept=False
    )
    assert losses(second) == pytest.approx(losses(first), rel=1e-6)


@pytest.mark.usefixtures("_unstopped")
@pytest.mark.parametrize("scale", [1e-3, 40.0])
def test_scaling_labels_scales_losses(base, scale):
    X, y, first = base
    second = advise(X, [scale * labels for labels in y], intercept=False)
    assert losses(second) == pytest.approx(
        {k: scale**2 * v for k, v in losses(first).items()}, rel=1e-5
    )
    assert second.ridge == pytest.approx(first.ridge, rel=1e-5)
    assert second.population.noise.value == pytest.approx(
        scale * first.population.noise.value, rel=1e-5
    )


@pytest.mark.parametrize("scale", [0.01, 30.0])
def test_scaling_features_scales_the_ridge_and_not_the_losses(base, scale):
    X, y, first = base
    second = advise([scale * rows for rows in X], y, intercept=False)
    assert losses(second) == pytest.approx(losses(first), rel=1e-5)
    assert second.ridge == pytest.approx(scale**2 * first.ridge, rel=1e-5)
    assert second.population.radius.value == pytest.approx(
        first.population.radius.value / scale, rel=1e-5
    )
    assert second.steps.steps == first.steps.steps
    assert second.steps.step == pytest.approx(first.steps.step / scale**2, rel=1e-5)


@pytest.mark.usefixtures("_unstopped")
def test_rotating_the_features_does_not_matter(base):
    X, y, first = base
    Q, _ = np.linalg.qr(np.random.default_rng(3).standard_normal((X[0].shape[1],) * 2))
    second = advise([rows @ Q for rows in X], y, intercept=False)
    assert losses(second) == pytest.approx(losses(first), rel=1e-6)
    assert second.ridge == pytest.approx(first.ridge, rel=1e-6)


@pytest.mark.usefixtures("_unstopped")
def test_features_that_are_always_zero_are_left_out_and_told(base):
    X, y, first = base
    second = advise(
        [np.column_stack([np.zeros(len(rows)), rows]) for rows in X], y, intercept=False
    )
    assert losses(second) == pytest.approx(losses(first), rel=1e-9)
    assert any(
        "1 features are always 0 or follow from others" in doubt.text for doubt in second.doubts
    )


@pytest.mark.usefixtures("_unstopped")
def test_features_that_follow_from_others_are_left_out_and_told(base):
    """As one-hot columns beside an intercept do: the samples lie in fewer directions than there are
    features.
    """
    X, y, first = base
    mixed = [np.column_stack([rows, rows[:, 0] - rows[:, 1]]) for rows in X]
    second = advise(mixed, y, intercept=False)
    assert second.population.dimension == first.population.dimension
    assert second.population.method == first.population.method
    assert second.population.noise.value == pytest.approx(first.population.noise.value, rel=0.1)
    assert any(
        "1 features are always 0 or follow from others" in doubt.text for doubt in second.doubts
    )
