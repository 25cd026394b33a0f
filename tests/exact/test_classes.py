"""fit_classes: what it predicts, what it chooses, and clients that are hard to fit."""

import numpy as np
import pytest

from fedasym.core.errors import InvalidInput
from fedasym.exact import classes as module
from fedasym.exact.classes import choose_candidate, fit_classes, subset_rows
from fedasym.exact.clients import split_folds

ALGORITHMS = ["fedavg", "local", "local_ridge", "ftfa", "rtfa", "pfedme"]


def draw(clients=8, size=30, features=3, classes=2, spread=1.0, seed=0):
    rng = np.random.default_rng(seed)
    ids = np.repeat([f"c{j}" for j in range(clients)], size)
    X = 5 + 3 * rng.standard_normal((len(ids), features))
    B = rng.standard_normal((features, classes))
    U = spread * rng.standard_normal((clients, features, classes))
    logits = np.einsum("ip,ipk->ik", (X - 5) / 3, B + np.repeat(U, size, axis=0))
    return X, (logits + rng.gumbel(size=logits.shape)).argmax(1), ids


def log_loss(fit, X, codes, ids):
    return -np.log(fit.predict_proba(X, client=ids)[np.arange(len(codes)), codes]).mean()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("classes", [2, 3])
def test_every_algorithm_gives_probabilities(algorithm, classes):
    X, codes, ids = draw(classes=classes, size=12, clients=5)
    fit = fit_classes(algorithm, X, codes, ids, classes=range(classes))
    P = fit.predict_proba(X, client=ids)
    assert np.isfinite(P).all()
    assert np.allclose(P.sum(1), 1)
    assert np.isfinite(fit.shared).all()
    assert fit.shared.shape == (4, classes)
    assert np.allclose(fit.shared.sum(1), 0, atol=1e-9)
    assert list(fit.personal) == ["c0", "c1", "c2", "c3", "c4"]


def test_weights_are_those_of_the_features_as_they_came():
    """Another unit and another zero of a feature change no probability."""
    X, codes, ids = draw()
    given = {"classes": (0, 1), "variances": 0.5, "shared_variance": 2.0}
    one = fit_classes("pfedme", X, codes, ids, **given)
    two = fit_classes("pfedme", 100 * X - 7, codes, ids, **given)
    P = two.predict_proba(100 * X - 7, client=ids)
    assert np.allclose(one.predict_proba(X, client=ids), P, atol=1e-6)


def test_new_clients_get_the_shared_model():
    X, codes, ids = draw()
    fit = fit_classes("rtfa", X, codes, ids, classes=("no", "yes"))
    shared = fit.predict_proba(X[:3])
    assert np.array_equal(fit.predict_proba(X[:3], client="nobody"), shared)
    each = fit.predict_proba(X[:3], client=["nobody", "someone", "x"])
    assert np.allclose(each, shared, rtol=1e-14)
    assert set(fit.predict(X, client=ids)) <= {"no", "yes"}


def test_rows_that_a_fit_cannot_take_are_refused():
    X, codes, ids = draw(clients=3, size=8)
    fit = fit_classes("fedavg", X, codes, ids, classes=(0, 1))
    with pytest.raises(InvalidInput, match=r"X has shape \(3, 2\): give rows of the 3 features"):
        fit.predict_proba(X[:3, :2])
    with pytest.raises(InvalidInput, match="X holds NaN"):
        fit.predict_proba(X[:3] * np.nan)
    with pytest.raises(InvalidInput, match="client has 2 names for 3 rows"):
        fit.predict_proba(X[:3], client=["c0", "c1"])


def test_features_that_are_said_to_be_personal_are(tmp_path):
    X, codes, ids = draw(clients=4, size=20)
    given = {"classes": (0, 1), "variances": 0.5, "shared_variance": 2.0}
    fit = fit_classes("pfedme", X, codes, ids, personal=[True, False, True], **given)
    apart = np.array([fit.personal[name] - fit.shared for name in fit.personal])
    assert np.abs(apart[:, [0, 2]]).min() > 0
    np.testing.assert_allclose(apart[:, 1], 0, atol=1e-12)
    again = type(fit).load(fit.save(tmp_path / "fit.safetensors"))
    np.testing.assert_array_equal(
        again.predict_proba(X, client=ids), fit.predict_proba(X, client=ids)
    )
    arrays, about = fit.describe()
    for broken in (about | {"classes": [0]}, about | {"clients": ["c0"]}):
        with pytest.raises(InvalidInput, match="fit is damaged: its parts do not fit together"):
            type(fit).read(arrays, broken, "fit")


def test_features_that_are_constant_within_clients_are_shared_only():
    X, codes, ids = draw()
    X[:, 1] = np.unique(ids, return_inverse=True)[1]
    fit = fit_classes("pfedme", X, codes, ids, classes=(0, 1))
    assert fit.variances[1] == 0
    for weights in fit.personal.values():
        assert np.allclose(weights[1], fit.shared[1])


def test_different_clients_are_told_from_equal_ones():
    X, codes, ids = draw(clients=20, size=60, spread=2.0)
    assert fit_classes(None, X, codes, ids, classes=(0, 1)).algorithm.name != "fedavg"
    X, codes, ids = draw(clients=20, size=60, spread=0.0)
    assert fit_classes(None, X, codes, ids, classes=(0, 1)).algorithm.name == "fedavg"


def test_held_out_losses_are_what_new_samples_cost():
    """Cross-validated loss and the loss on 400 fresh samples of each client agree."""
    X, codes, ids = draw(clients=10, size=440)
    train = np.arange(len(X)) % 440 < 40
    losses = fit_classes(None, X[train], codes[train], ids[train], classes=(0, 1)).losses
    for name, loss in losses.items():
        fit = fit_classes(name, X[train], codes[train], ids[train], classes=(0, 1))
        fresh = log_loss(fit, X[~train], codes[~train], ids[~train])
        # 400 held-out samples of standard deviation near 0.6, and folds fit a fifth fewer samples
        assert abs(loss - fresh) < 0.09


HARD = {
    "one class per client": lambda X, y, ids: (X, np.unique(ids, return_inverse=True)[1] % 3, ids),
    "one class at all": lambda X, y, ids: (X, np.zeros(len(y), dtype=int), ids),
    "single samples": lambda X, y, ids: (X, y, np.arange(len(y))),
    "one client": lambda X, y, ids: (X, y, np.zeros(len(y), dtype=int)),
    "separable": lambda X, y, ids: (X, (X[:, 0] > 5).astype(int) + (X[:, 0] > 7), ids),
    "a rare class": lambda X, y, ids: (X, (np.arange(len(y)) == 7) * 2, ids),
    "more features than samples": lambda X, y, ids: (
        np.column_stack([X, np.random.default_rng(1).standard_normal((len(X), 100))]),
        y,
        ids,
    ),
    "constant, repeated, huge and tiny features": lambda X, y, ids: (
        np.column_stack([np.full(len(X), 3.0), X, X * np.array([1e12, 1e-12, 1.0])]),
        y,
        ids,
    ),
}


@pytest.mark.parametrize("case", HARD)
@pytest.mark.parametrize("algorithm", ["local", "ftfa", None])
def test_hard_clients_have_finite_models(case, algorithm):
    X, codes, ids = HARD[case](*draw(clients=6, size=15, classes=3))
    fit = fit_classes(algorithm, X, codes, ids, classes="abc")
    P = fit.predict_proba(X, client=ids)
    assert np.isfinite(P).all()
    assert np.isfinite(fit.shared).all()
    assert all(np.isfinite(weights).all() for weights in fit.personal.values())


def test_twenty_classes():
    X, codes, ids = draw(clients=4, size=60, classes=20)
    fit = fit_classes("pfedme", X, codes, ids, classes=range(20))
    assert log_loss(fit, X, codes, ids) < np.log(20)


def test_without_an_intercept():
    X, codes, ids = draw()
    fit = fit_classes("pfedme", X - 5, codes, ids, classes=(0, 1), intercept=False)
    assert fit.shared.shape == (3, 2)
    assert np.allclose(fit.predict_proba(np.zeros((1, 3))), 0.5)


def test_folds_are_dealt_evenly_within_clients():
    places = np.repeat(np.arange(4), [1, 5, 12, 30])
    folds = split_folds(places, 5, 0)
    for client in range(4):
        counts = np.bincount(folds[places == client], minlength=5)
        assert counts.max() - counts.min() <= 1
    assert np.array_equal(folds, split_folds(places, 5, 0))


def test_a_part_of_many_clients_decides(monkeypatch):
    monkeypatch.setattr(module, "MANY", 100)
    places = np.repeat(np.arange(50), 10)
    rows = subset_rows(places, 0)
    assert len(rows) <= 100
    assert np.all(np.bincount(places[rows])[np.unique(places[rows])] == 10)
    X, codes, ids = draw(clients=50, size=10)
    assert len(fit_classes("pfedme", X, codes, ids, classes=(0, 1)).personal) == 50


def test_a_plain_candidate_stays_unless_it_is_beaten_clearly():
    rng = np.random.default_rng(0)
    first = rng.random(1000)
    assert choose_candidate([first, first]) == 0
    assert choose_candidate([first, first - 1e-3 * rng.random(1000)]) == 1
    noisy = first - 0.001 + rng.standard_normal(1000)
    assert choose_candidate([first, noisy - noisy.mean() + first.mean() - 1e-3]) == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"codes": [0, 2]}, "codes lie in 0..2: 2 classes have 0..1"),
        ({"codes": [0.0, 1.0]}, "codes must be whole numbers"),
        ({"X": [[np.nan], [0.0]]}, "X holds NaN"),
        ({"X": [[], []]}, "at least one sample and one feature"),
        ({"clients": ["a"]}, "1 labels for 2 rows: give"),
        ({"classes": ("a",)}, "two or more different classes"),
        ({"personal": [1]}, "personal must say true or false"),
        ({"algorithm": "maml"}, "maml has no exact form for classes"),
        ({"algorithm": "pfedmee"}, "did you mean pfedme"),
        ({"variances": -1.0, "shared_variance": 1.0}, "at least 0"),
        ({"variances": np.ones(3), "shared_variance": 1.0}, "variances must be a number or 2"),
        ({"X": [["a"], ["b"]]}, "X must be an array of numbers"),
        ({"variances": 1.0}, "give their shared_variance too"),
        ({"shared_variance": 1.0}, "give their variances too"),
        ({"shared_variance": 0.0, "variances": 1.0}, "finite and above 0"),
        ({"algorithm": None, "variances": 1.0}, "name the one they are for"),
    ],
)
def test_bad_input_is_refused_in_words(change, words):
    given = {"X": [[0.0], [1.0]], "codes": [0, 1], "clients": ["a", "b"], "classes": ("x", "y")}
    with pytest.raises(InvalidInput, match=words):
        fit_classes(**({"algorithm": "pfedme"} | given | change))
