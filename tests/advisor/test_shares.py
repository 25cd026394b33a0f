"""Class shares in advice: measured on held-out samples, recommended where they win, doubted where
they drift.
"""

import json

import numpy as np
import pytest

import fedasym as fa
from fedasym.advisor.class_estimates import look_at_clients
from fedasym.advisor.class_predictions import has_accuracy
from fedasym.advisor.data import read_classes
from fedasym.algorithms.registry import REGISTRY
from fedasym.exact.classes import fit_classes, likeliest_smoothing


def clients_with(label, seed=0, drift=False, split=(0.6, 0.2, 0.2), d=60, C=6):
    """Gaussian classes of 60 features; clients differ in their class shares alone."""
    rng = np.random.default_rng(seed)
    m, n = 40, 60
    means = 1.8 * rng.standard_normal((C, d)) / d**0.5
    names = np.repeat(np.arange(m), n)
    shares = rng.dirichlet(np.full(C, 1 / label), m) if label else np.full((m, C), 1 / C)
    y = np.array([rng.choice(C, p=shares[i]) for i in names])
    X = means[y] + 0.8 * rng.standard_normal((m * n, d))
    whole = fa.Federation.from_arrays(X, y, names, classes=C, split=split)
    if not drift:
        return whole
    fresh = np.where(whole.split > 0, rng.integers(0, C, len(whole.labels)), whole.labels)
    X = means[fresh] + 0.8 * rng.standard_normal((m * n, d))
    owners = [whole.clients[place] for place in whole.owner]
    return fa.Federation.from_arrays(X, fresh, owners, classes=C, split=whole.split)


@pytest.fixture(scope="module")
def shifted():
    return clients_with(label=3.0)


@pytest.fixture(scope="module")
def advice(shifted):
    return fa.advise(shifted, algorithms=["fedavg_share"])  # which is measured in any case


def look_at(federation):
    """What the samples say, without what follows from it."""
    return look_at_clients(read_classes(federation))


def test_class_shares_are_recommended_where_they_win(advice):
    assert advice.recommended == "fedavg_share"
    gain = advice.gain
    assert gain.shares_win
    assert gain.label.value > 3 * gain.label.error
    assert abs(gain.feature.value) < gain.label.value / 4
    row = advice.predictions["fedavg_share"]
    assert row.trusted == pytest.approx(advice.predictions["rtfa"].trusted - gain.beyond.value)
    assert advice.training["fedavg_share"].keys() >= {"server_step", "share_power"}
    assert "fedavg_share" in advice.confirm.candidates


def test_the_page_and_the_file_tell_the_parts(advice):
    assert "Use fedavg_share" in str(advice)
    assert "are label shift" in " ".join(str(advice).split())
    assert json.loads(advice.to_json())["gain"]["label"] == pytest.approx(advice.gain.label.value)
    assert advice.decompose().table()[0]["label"] == advice.gain.label.value


def test_what_is_measured_is_what_training_finds(shifted, advice):
    """Least squares in closed form beside a trained logistic model, whose scores are no part of
    it.
    """
    told = advice.training["fedavg_share"] | {"rounds": 60}
    trained = fa.train("fedavg_share", shifted, evaluate_every=0, **told)
    gained = trained.accuracy[-1] - trained.shared_accuracy[-1]
    assert gained == pytest.approx(advice.gain.shares - advice.gain.shared, abs=0.04)


def test_without_held_out_samples_halves_are_held_out(shifted):
    rows = [shifted.rows(name) for name in shifted.clients]
    X, y = ([part[each] for each in rows] for part in (shifted.features, shifted.labels))
    found = look_at_clients(read_classes(X, y)).gain
    assert found.label.value > 3 * found.label.error


def test_nothing_is_told_where_clients_have_the_same_classes():
    found = look_at(clients_with(label=0.0, seed=1))
    assert abs(found.gain.label.value) < 0.02
    assert not found.gain.shares_win
    assert found.drift is None


def test_shares_that_drift_are_doubted_and_do_not_win():
    found = look_at(clients_with(label=3.0, drift=True))
    assert "other classes than their training samples" in found.drift
    assert not found.gain.shares_win


@pytest.fixture(scope="module")
def few():
    return clients_with(label=3.0, d=3, C=3)


@pytest.fixture(scope="module")
def scored(few):
    return fa.advise(few)


def test_with_few_features_class_shares_are_fitted_exactly(few):
    """Bayes' rule by hand: the shared model's probabilities times class shares above everybody's."""
    rows = np.flatnonzero(few.split == 0)
    X, y, owner = few.features[rows], few.labels[rows], few.owner[rows]
    told = {"classes": (0, 1, 2), "shared_variance": 1.0}
    plain, shares = (fit_classes(name, X, y, owner, **told) for name in ("fedavg", "fedavg_share"))
    np.testing.assert_allclose(shares.shared, plain.shared, rtol=0, atol=1e-12)
    pooled = (np.bincount(y, minlength=3) + 1) / (len(y) + 3)
    for client in (0, 7):
        counts = np.bincount(y[owner == client], minlength=3)
        own = (counts + 10 * pooled) / (counts.sum() + 10)
        wanted = plain.predict_proba(X[:5]) * own / pooled
        wanted /= wanted.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(shares.predict_proba(X[:5], client), wanted, rtol=1e-9)
    np.testing.assert_allclose(shares.predict_proba(X[:5]), plain.predict_proba(X[:5]), rtol=1e-9)
    with pytest.raises(fa.InvalidInput, match="fedavg_share moves intercepts"):
        fit_classes("fedavg_share", X, y, owner, classes=(0, 1, 2), intercept=False)


def test_with_few_features_they_are_recommended_where_they_win(few, scored):
    assert scored.recommended == "fedavg_share"
    assert scored.predictions["fedavg_share"].log_loss.value < min(
        row.log_loss.value for name, row in scored.predictions.items() if name != "fedavg_share"
    )
    gain = scored.gain
    assert gain.label.value > 3 * gain.label.error
    assert gain.label.value + gain.feature.value + gain.rest.value == pytest.approx(gain.gain.value)
    # the same rows, scored by another part of the package
    row = scored.predictions
    assert gain.shared == pytest.approx(row["fedavg"].accuracy.value, abs=1e-12)
    assert gain.personal == pytest.approx(row["rtfa"].accuracy.value, abs=1e-12)
    assert gain.shares == pytest.approx(row["fedavg_share"].accuracy.value, abs=0.02)
    assert json.loads(scored.to_json())["gain"]["label"] == pytest.approx(gain.label.value)
    assert "held-out folds" in str(scored.decompose())
    assert "are label shift" in " ".join(str(scored).split())
    outcome = scored.confirm(few)
    assert not outcome.refuted
    lines = {line.split()[0]: line for line in str(outcome).splitlines()[1:-1]}
    assert set(lines) == set(scored.confirm.candidates)
    for name, accuracy in outcome.accuracies.items():
        assert f"{accuracy:.1%}" in lines[name]
    train = few.split == 0  # rows that nobody has held out
    again = scored.confirm(few.features[train], few.labels[train], few.owner[train].tolist())
    assert again.values["fedavg_share"] == pytest.approx(outcome.values["fedavg_share"], abs=0.1)


def test_with_few_features_shares_that_drift_are_doubted(monkeypatch):
    """And "all" takes what has an exact form for classes, by the names that people type; a user's
    own ridge has none.
    """
    monkeypatch.setattr(REGISTRY, "_known", dict(REGISTRY._known))
    own = fa.Algorithm("stiff", fa.algorithms.Average(), fa.algorithms.Ridge(1.0))
    fa.algorithms.register(own)
    moved = fa.advise(clients_with(label=3.0, drift=True, d=2, C=2), algorithms="all")
    assert {"ditto", "scaffold", "fedavg_share"} <= moved.predictions.keys()
    assert {"apfl", "stiff"}.isdisjoint(moved.predictions)
    assert moved.recommended != "fedavg_share"
    assert "class shares drift" in {doubt.check for doubt in moved.doubts}


def test_the_likeliest_smoothing_is_what_was_drawn():
    rng = np.random.default_rng(0)
    pooled = np.array([0.5, 0.3, 0.2])
    counts = [rng.multinomial(40, shares) for shares in rng.dirichlet(4 * pooled, 400)]
    assert likeliest_smoothing(np.array(counts, float)) == pytest.approx(4, rel=0.15)


def test_the_page_has_the_parts(scored, tmp_path):
    page = scored.write(tmp_path / "advice.html").read_text(encoding="utf-8")
    assert "Where the gain comes from" in page
    assert f"{100 * scored.gain.label.value:+.1f}" in page


def test_numbers_have_no_class_shares():
    numbers = fa.advise(
        fa.datasets.synthetic(radius=1, noise=0.5, aspect=2, clients=20, dimension=30, seed=1)
    )
    with pytest.raises(fa.InvalidInput, match="has no gain in parts"):
        numbers.decompose()


def test_all_algorithms_are_looked_at_that_can_be():
    few = fa.datasets.synthetic(radius=1, noise=0.5, aspect=0.2, clients=12, dimension=4, seed=1)
    found = fa.advise(few, algorithms="all").predictions
    assert {"pfedme_ridge", "fedprox", "local_sgd"} <= found.keys()
    assert not {"ifca", "apfl", "fedavg_share"} & found.keys()
    with pytest.raises(fa.NoFormula, match="ifca: with so few features"):
        fa.advise(few, algorithms=["fedprox", "ifca"])
    assert has_accuracy(fa.algorithms.find("scaffold"), 3)
    assert not has_accuracy(fa.algorithms.find("fedprox"), 2)
