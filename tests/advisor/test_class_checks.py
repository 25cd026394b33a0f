"""Every doubt about classes has data that raise it and data that do not."""

import numpy as np
import pytest

import fedasym as fa
from fedasym.advisor import advise
from fedasym.advisor.doubts import CLASS_CHECKS, RANKING_CHECKS


def doubts(X, y):
    return {doubt.check: doubt.text for doubt in advise(X, y, intercept=False).doubts}


def held_out(X, y, train=35):
    split = np.concatenate([np.repeat([0, 2], [train, len(v) - train]) for v in y])
    ids = np.repeat(np.arange(len(y)), [len(v) for v in y])
    return fa.Federation.from_arrays(np.concatenate(X), np.concatenate(y), ids, split=split)


@pytest.mark.parametrize(("classes", "seed"), [(2, 11), (4, 14)])
def test_a_federation_as_the_model_has_it_raises_no_doubt(class_world, classes, seed):
    assert doubts(*class_world.but(classes=classes).draw(seed)[:2]) == {}


def test_held_out_samples_of_the_same_kind_raise_no_doubt(class_world):
    X, y, _ = class_world.draw(15)
    assert advise(held_out(X, y), intercept=False).doubts == ()


def changed(world, what):
    rng = np.random.default_rng(7)
    X, y, _ = world.draw(5)
    match what:
        case "few clients":
            return X[:6], y[:6]
        case "few samples":
            return [x[:4] for x in X], [v[:4] for v in y]
        case "no difference":
            return world.but(radius=0.0).draw(3)[:2]
        case "too few samples in all":
            return world.but(clients=12, samples=8, dimension=120).draw()[:2]
        case "near separability":
            return world.but(samples=150).draw(1)[:2]  # d/n = 1/3
        case "small eigenvalues":
            return [x * np.geomspace(1, 1e-3, x.shape[1]) for x in X], y
        case "duplicate clients":
            return [*X, X[3], X[4]], [*y, y[3], y[4]]
        case "uneven classes":
            return X, [np.where(rng.random(len(v)) < 0.9, 0, v) for v in y]
        case "class shares differ":
            keep = [v == i % 2 for i, v in enumerate(y)]
            keep = [k | (rng.random(len(k)) < 0.2) for k in keep]
            return [x[k] for x, k in zip(X, keep, strict=True)], [
                v[k] for v, k in zip(y, keep, strict=True)
            ]
        case "features have a mean":
            return [x + 1.0 for x in X], y
        case (
            "link"
            # features cluster by class: far more is known than a logistic link on Gaussian features
            # allows
        ):
            X, y, _ = world.but(classes=3, clients=16).draw(6)
            means = 2.0 * np.eye(3, x_width := X[0].shape[1])
            return [rng.standard_normal((len(v), x_width)) + means[v] for v in y], y
        case (
            "ridge"
            # one client in eight has a single feature of huge weight: nothing like an even
            # displacement
        ):
            odd = [x + 0 for x in X]
            return odd, [
                (x[:, rng.integers(x.shape[1])] > 0).astype(int) if i % 3 == 0 else v
                for i, (x, v) in enumerate(zip(odd, y, strict=True))
            ]
    raise AssertionError(what)


@pytest.fixture(scope="module")
def linked(class_world):
    """Advice on clients whose features cluster by class."""
    return advise(*changed(class_world, "link"), intercept=False)


@pytest.mark.parametrize(
    "check", [name for name in CLASS_CHECKS if name not in ("trained features", "ridge", "link")]
)
def test_each_check_speaks_where_it_should(class_world, check):
    found = doubts(*changed(class_world, check))
    assert check in found
    assert len(found[check]) > 40


def test_samples_that_want_another_ridge_get_it(class_world):
    """Displacements along one strong feature: the model spreads them evenly, and would hardly move
    at all.
    """
    rng = np.random.default_rng(3)
    X, _, _ = class_world.but(clients=60, samples=40, correlation=0.0).draw(7)
    X = [np.column_stack([8.0 * rng.standard_normal((len(x), 1)), x[:, 1:]]) for x in X]
    y = [((-1) ** i * x[:, 0] + rng.logistic(size=len(x)) > 0).astype(int) for i, x in enumerate(X)]
    found = advise(X, y, intercept=False)
    plain = {doubt.check for doubt in found.doubts}
    assert "ridge" in plain
    best = found.predictions["rtfa"]
    assert best.trusted > 0.85
    assert found.recommended in ("rtfa", "local_ridge")


def test_features_trained_on_the_very_samples_are_noticed(class_world):
    """Training features carry their own labels; held-out ones do not."""
    X, y, _ = class_world.draw(5)
    rng = np.random.default_rng(1)
    way = rng.standard_normal(50) / np.sqrt(50)
    leaked = [
        np.concatenate([x[:35] + 1.5 * (2 * v[:35, None] - 1) * way, x[35:]])
        for x, v in zip(X, y, strict=True)
    ]
    found = advise(held_out(leaked, y), intercept=False)
    assert "trained features" in {doubt.check for doubt in found.doubts}
    assert found.ranking_aid
    assert "ranking aid" in str(found)
    honest = advise(held_out(X, y), intercept=False)
    # levels come from held-out samples
    assert found.predictions["fedavg"].trusted == pytest.approx(
        found.predictions["fedavg"].measured, abs=0.03
    )
    assert found.predictions["fedavg"].trusted < honest.predictions["fedavg"].trusted + 0.02


def test_a_page_with_levels_in_doubt_calls_itself_a_ranking_aid(linked):
    found = linked
    assert found.ranking_aid
    assert [len(doubt.text) > 40 for doubt in found.doubts if doubt.check == "link"] == [True]
    assert {doubt.check for doubt in found.doubts} & set(RANKING_CHECKS)
    assert "Take this as a ranking aid" in " ".join(str(found).split())  # lines may break anywhere
    moved = [
        row for row in found.predictions.values() if row.contradicted and row.measured is not None
    ]
    assert moved
    for row in moved:  # measured once more, by other heads on the same samples
        assert row.trusted == pytest.approx(row.measured, abs=row.measured_error)
        assert row.level.low < row.measured < row.level.high
