"""Class shares in advice: measured on held-out samples, recommended where they win, doubted where
they drift.
"""

import json

import numpy as np
import pytest

import fedasym as fa
from fedasym.advisor.class_estimates import look_at_clients
from fedasym.advisor.data import read_classes


def clients_with(label, seed=0, drift=False, split=(0.6, 0.2, 0.2)):
    """Gaussian classes of 60 features; clients differ in their class shares alone."""
    rng = np.random.default_rng(seed)
    m, n, d, C = 40, 60, 60, 6
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


def test_numbers_have_no_class_shares():
    numbers = fa.advise(
        fa.datasets.synthetic(radius=1, noise=0.5, aspect=2, clients=20, dimension=30, seed=1)
    )
    with pytest.raises(fa.InvalidInput, match="has no gain in parts"):
        numbers.decompose()
