"""Class shares in advice: measured on held-out samples, recommended where they win, doubted where
they drift.
"""

import json

import numpy as np
import pytest

import fedasym as fa


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


def test_class_shares_are_recommended_where_they_win(shifted):
    advice = fa.advise(shifted)
    assert advice.recommended == "fedavg_share"
    gain = advice.gain
    assert gain.shares_win
    assert gain.label.value > 3 * gain.label.error
    assert abs(gain.feature.value) < gain.label.value / 4
    row = advice.predictions["fedavg_share"]
    assert row.trusted == pytest.approx(advice.predictions["rtfa"].trusted - gain.beyond.value)
    assert advice.decompose().table()[0]["label"] == gain.label.value
    assert "Use fedavg_share" in str(advice)
    assert "are label shift" in str(advice)
    assert json.loads(advice.to_json())["gain"]["label"] == pytest.approx(gain.label.value)
    assert advice.training["fedavg_share"].keys() >= {"server_step", "share_power"}
    outcome = advice.confirm(shifted)  # by training, which shares no code with the probe
    assert not outcome.refuted
    assert outcome.behind["rtfa"][0] > 0


def test_without_held_out_samples_halves_are_held_out(shifted):
    rows = [shifted.rows(name) for name in shifted.clients]
    given = ([shifted.features[each] for each in rows], [shifted.labels[each] for each in rows])
    found = fa.advise(*given, task="classification").gain
    assert found.label.value > 3 * found.label.error


def test_nothing_is_told_where_clients_have_the_same_classes():
    advice = fa.advise(clients_with(label=0.0, seed=1))
    assert "fedavg_share" not in advice.predictions
    assert abs(advice.gain.label.value) < 0.02


def test_shares_that_drift_are_doubted_and_not_recommended():
    advice = fa.advise(clients_with(label=3.0, drift=True))
    assert advice.recommended != "fedavg_share"
    assert "class shares drift" in [doubt.check for doubt in advice.doubts]


def test_asking_for_class_shares_is_no_error_and_summaries_have_none(shifted):
    asked = fa.advise(shifted, algorithms=["fedavg_share"])
    assert "fedavg_share" in asked.predictions
    numbers = fa.advise(
        fa.datasets.synthetic(radius=1, noise=0.5, aspect=2, clients=20, dimension=30, seed=1)
    )
    with pytest.raises(fa.InvalidInput, match="has no gain in parts"):
        numbers.decompose()
