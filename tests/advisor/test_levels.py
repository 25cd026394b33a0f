"""Levels by the logistic loss, where squared labels are off: many or uneven classes."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import fedasym as fa
from fedasym.advisor.class_estimates import look_at_clients
from fedasym.advisor.crosscheck import clear_difference, foresee_accuracies, measure_levels
from fedasym.advisor.data import read_classes
from fedasym.algorithms import PAPER
from fedasym.models.what_if import score_clients


def clients(shares, seed=0):
    """Classes of these shares, about means on one line: squared labels mask the middle ones."""
    rng = np.random.default_rng(seed)
    codes = rng.choice(len(shares), 1500, p=shares)
    x = 0.4 * rng.standard_normal((1500, 4))
    x[:, 0] += codes
    x[:, 1] = 1.0
    owner = np.repeat(np.arange(30), 50)
    return fa.Federation.from_arrays(x, codes, owner, classes=len(shares), split=(0.6, 0.2, 0.2))


SHARES = [0.31, 0.31, 0.32, *[0.015] * 4]


@pytest.fixture(scope="module")
def levels():
    return measure_levels(read_classes(clients(SHARES)))


def test_a_class_between_two_others_is_masked_by_least_squares_alone(levels):
    assert levels["fedavg"].added > 0.03


def test_few_and_even_classes_follow_the_loss_that_training_has_too():
    """The middle ones of four on a line are masked by least squares, however even they are."""
    found = measure_levels(read_classes(clients([0.25] * 4)))
    assert found["fedavg"].added > 0.03


def test_the_shared_models_level_is_that_of_all_clients_logistic_regression(levels):
    """scikit-learn's on all training samples, scored by client on all others."""
    federation = clients(SHARES)
    X, y, train = federation.features, federation.labels, federation.split == 0
    model = LogisticRegression(fit_intercept=False, C=100.0, max_iter=1000).fit(X[train], y[train])
    right = model.predict(X[~train]) == y[~train]
    theirs = np.bincount(federation.owner[~train], right) / np.bincount(federation.owner[~train])
    told = np.sqrt(0.25 / (~train).sum())  # what two fits may differ by on so few samples
    assert levels["fedavg"].value == pytest.approx(theirs.mean(), abs=2 * told)
    assert levels["fedavg"].squared < theirs.mean() - 0.03


def test_a_difference_is_clear_beyond_two_standard_errors_on_the_same_clients():
    rng = np.random.default_rng(0)
    theirs = rng.uniform(0.5, 0.9, 50)
    for shift, spread in ((0.02, 0.01), (0.001, 0.05)):
        ours = theirs + shift + spread * rng.standard_normal(50)
        apart = ours - theirs
        clear = abs(apart.mean()) > 2 * apart.std(ddof=1) / np.sqrt(50)
        assert clear_difference(ours, theirs) == pytest.approx(apart.mean() if clear else 0.0)
    assert clear_difference(np.array([0.9, np.nan]), np.array([0.1, 0.2])) == 0.0


def test_with_few_held_out_samples_training_samples_are_left_out(levels):
    """Levels come out as with many held-out samples, though hardly any are."""
    whole = clients(SHARES)
    kept = np.flatnonzero((whole.split == 0) | (np.arange(len(whole.split)) % 25 == 0))
    few = fa.Federation.from_arrays(
        whole.features[kept],
        whole.labels[kept],
        whole.owner[kept],
        split=whole.split[kept],
        classes=len(SHARES),
    )
    assert (few.split > 0).sum() < 60
    found = measure_levels(read_classes(few))
    for name, level in levels.items():  # each is a mean over samples of changes by at most 1
        held, trained = (np.sum(whole.split == part) for part in (2, 0))
        error = np.sqrt(max(level.added, 0.05) * (1 / held + 1 / trained))
        assert abs(found[name].added - level.added) < 3 * error


def test_maml_and_pfedme_are_foreseen_where_samples_are_held_out():
    """By least-squares heads, as clients are scored elsewhere; without a theory of classes."""
    federation = clients([0.25] * 4)
    found = foresee_accuracies(federation)
    scores = score_clients(federation, [PAPER[name] for name in ("maml", "pfedme")])
    for name, score in zip(("maml", "pfedme"), scores, strict=True):
        assert found[name].theory is None
        assert found[name].samples == pytest.approx(score, abs=0.04)  # validation and test differ
        assert found[name].trusted == pytest.approx(found["rtfa"].trusted, abs=0.05)


def drifted(test, seed=2):
    """Clients whose labels follow weights of their own; those of test samples have moved on.

    test: of each client, beside 40 samples to train on and 20 for validation.
    """
    rng = np.random.default_rng(seed)
    parts = []
    for client in range(30):
        w = rng.standard_normal(6)
        moved = 0.5 * w + np.sqrt(0.75) * rng.standard_normal(6)
        for split, (count, weights) in enumerate(((40, w), (20, w), (test, moved))):
            x = rng.standard_normal((count, 6))
            y = (x @ weights + 0.3 * rng.standard_normal(count) > 0).astype(int)
            parts.append((x, y, np.full(count, client), np.full(count, split)))
    x, y, owner, split = (np.concatenate(each) for each in zip(*parts, strict=True))
    return fa.Federation.from_arrays(x, y, owner, split=split, classes=2)


def test_levels_are_those_of_test_samples_where_clients_have_moved_on():
    """Samples for validation are of the same time as those for training, and easier."""
    federation = drifted(test=20)
    told = foresee_accuracies(federation)["local_ridge"].trusted
    measured = score_clients(federation, [PAPER["local_ridge"]])[0]
    assert told == pytest.approx(measured, abs=0.015)
    easier = fa.Federation.from_arrays(
        federation.features,
        federation.labels,
        federation.owner,
        split=np.where(federation.split == 1, 2, np.where(federation.split == 2, 1, 0)),
        classes=2,
    )
    assert foresee_accuracies(easier)["local_ridge"].trusted > told + 0.15


def test_with_few_test_samples_levels_are_of_validation_ones_too():
    """90 test samples in all say little: 20 of validation a client, and 3 for test, say more."""
    federation = drifted(test=3)
    seen = look_at_clients(read_classes(federation))
    assert seen.probes.alone_test.count.tolist() == [3] * 30
    assert seen.probes.levels(alone=True) is seen.probes.alone_held
    many = look_at_clients(read_classes(drifted(test=20))).probes
    assert many.levels(alone=True) is many.alone_test
    rows = (many.alone_held.right, many.alone_test.right)
    validation = 2 * rows[0] - rows[1]  # as many of both
    assert validation.mean(0).max() > rows[1].mean(0).max() + 0.15
