"""Every doubt has data that raise it and data that do not."""

import numpy as np
import pytest

import fedasym as fa
from fedasym.advisor import advise
from fedasym.advisor.doubts import REGRESSION_CHECKS

pytestmark = pytest.mark.usefixtures("_unstopped")


def doubts(X, y, names=None):
    return {doubt.check: doubt.text for doubt in advise(X, y, names, intercept=False).doubts}


@pytest.fixture(scope="module")
def silent(world):
    """A federation as the model has it: 60 clients, aspect 2, a little correlation."""
    X, y, theta = world.but(clients=60, correlation=0.3).draw(5)
    return X, y, theta


def test_a_federation_as_the_model_has_it_raises_no_doubt(silent):
    """None at all: none either of those that the tests below raise."""
    assert doubts(silent[0], silent[1]) == {}


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_few_false_alarms(world, correlation):
    raised = [
        list(doubts(*world.but(clients=60, correlation=correlation).draw(seed)[:2]))
        for seed in range(20, 28)
    ]
    assert sum(map(len, raised)) <= 2, raised


def changed(world, what):
    rng = np.random.default_rng(7)
    X, y, _ = world.but(clients=60, correlation=0.3).draw(5)
    match what:
        case "few clients":
            return X[:6], y[:6]
        case "few samples":
            return [x[:3] for x in X], [v[:3] for v in y]
        case "no difference":
            return world.but(clients=60, radius=0.0).draw(3)[:2]
        case "too few samples in all":
            return world.but(clients=12, samples=6, dimension=120).draw()[:2]
        case "near a threshold":
            return world.but(clients=60, samples=38).draw()[:2]
        case "small eigenvalues":
            return [x * np.geomspace(1, 1e-3, x.shape[1]) for x in X], y
        case "clients are not overparameterised":
            return world.but(clients=60, samples=55).draw()[:2]
        case "client growth":
            return X[:12], y[:12]
        case "unlike features":
            return [x * (1 + 2 * (i % 3 == 0)) for i, x in enumerate(X)], y
        case "planned features":
            plan = rng.standard_normal((30, 40)) * 3
            planned = [
                plan[rng.permutation(30)[:25]] + 0.3 * rng.standard_normal((25, 40))
                for _ in range(60)
            ]
            return planned, [
                x @ rng.standard_normal(40) / 6 + 0.7 * rng.standard_normal(25) for x in planned
            ]
        case "duplicate clients":
            return [*X, X[3], X[4]], [*y, y[3], y[4]]
        case "noise varies":
            return X, [
                v + 2.5 * (i % 4 == 0) * rng.standard_normal(v.size) for i, v in enumerate(y)
            ]
        case "radius varies":
            far = 4.0 * rng.standard_normal((60, 40)) / np.sqrt(40)
            return X, [
                v + (i % 4 == 0) * (x @ far[i]) for i, (x, v) in enumerate(zip(X, y, strict=True))
            ]
        case "heavy tails":
            heavy = rng.standard_t(2.5, (60, X[0].shape[0]))
            return X, [v + 1.5 * e for v, e in zip(y, heavy, strict=True)]
        case "clusters":
            way = rng.standard_normal(40)
            way *= 1.5 / np.linalg.norm(way)
            return X, [v + (-1) ** i * (x @ way) for i, (x, v) in enumerate(zip(X, y, strict=True))]
        case "aligned displacement":
            return world.but(clients=100, correlation=0.7, power=1.0).draw()[:2]
    raise AssertionError(what)


@pytest.mark.parametrize(
    "check",
    [name for name in REGRESSION_CHECKS if name not in ("ridge", "levels", "trained features")],
)
def test_each_check_speaks_where_it_should(world, check):
    found = doubts(*changed(world, check))
    assert check in found
    assert len(found[check]) > 40


def repeated(world):
    """Every client has each of its samples twice: what is left out is still there."""
    X, y, _ = world.but(clients=100).draw()
    again = [x[:10] + 0.01 * np.random.default_rng(1).standard_normal((10, 40)) for x in X]
    return [np.concatenate([x[:10], z]) for x, z in zip(X, again, strict=True)], [
        np.concatenate([v[:10], v[:10]]) for v in y
    ]


def test_cross_validation_that_wants_another_ridge_gets_it(world):
    advice = advise(*repeated(world), intercept=False)
    found = {doubt.check: doubt.text for doubt in advice.doubts}
    assert "cross-validation over clients wants the ridge" in found["ridge"]
    model = advice.predictions["rtfa"].ridge * 20
    assert advice.clients[0].ridge * 20 < model / 2


def test_cross_validation_that_gives_other_losses_is_followed(world):
    """Every client has features about a mean of its own: the model has one covariance for all,
    about 0.
    """
    X, y, _ = world.but(clients=100).draw()
    rng = np.random.default_rng(0)
    advice = advise([x + 3 * rng.standard_normal(40) for x in X], y, intercept=False)
    moved = [
        row for row in advice.predictions.values() if row.contradicted and row.measured is not None
    ]
    assert "levels" in {doubt.check for doubt in advice.doubts}
    assert moved
    for row in moved:
        assert row.trusted / row.loss.value == pytest.approx(max(row.measured, 0) / row.new.value)


def test_features_trained_on_the_very_samples_are_noticed(world):
    X, y, _ = world.but(clients=60).draw(5)
    rng = np.random.default_rng(1)
    rows, labels = np.concatenate(X), np.concatenate(y)
    split = np.tile(np.repeat([0, 2], [15, 5]), 60)
    ids = np.repeat(np.arange(60), 20)
    honest = fa.Federation.from_arrays(rows, labels, ids, split=split, task="regression")
    assert "trained features" not in {
        doubt.check for doubt in advise(honest, intercept=False).doubts
    }
    worse = labels + (split == 2) * 2.0 * rng.standard_normal(
        labels.size
    )  # training labels fit better than held-out ones
    advice = advise(
        fa.Federation.from_arrays(rows, worse, ids, split=split, task="regression"), intercept=False
    )
    assert "trained features" in {doubt.check for doubt in advice.doubts}
    assert advice.floor > 2 * advice.population.noise.value**2
    assert advice.recommended == advise(honest, intercept=False).recommended


def test_alignment_moves_the_numbers_to_the_truth(world):
    made = world.but(clients=100, correlation=0.7, power=1.0)
    X, y, theta = made.draw()
    advice = advise(X, y, intercept=False)
    assert advice.population.shift_power == pytest.approx(1, abs=0.5)
    off = np.array([fa.linear.fit("fedavg", X, y, intercept=False).shared - each for each in theta])
    assert advice.predictions["fedavg"].loss.value == pytest.approx(
        (off**2 @ made.eigenvalues).mean(), rel=0.12
    )


def test_clients_in_two_groups_are_advised_a_model_for_each(world):
    """The planted share of radius^2 between the groups is found, and IFCA's predicted error is what
    held-out samples of its exact fit say.
    """
    X, y = changed(world, "clusters")
    advice = advise(X, y, intercept=False)
    assert advice.recommended.startswith("ifca(clusters=2,between=")
    share = float(advice.recommended.removesuffix(")").split("=")[-1])
    assert share == pytest.approx(1.5**2 / (world.radius**2 + 1.5**2), abs=0.1)
    found = advice.confirm(X, y)
    assert not found.refuted
    assert found.values[advice.recommended] == pytest.approx(
        advice.predictions[advice.recommended].loss.value + advice.floor, rel=0.1
    )
