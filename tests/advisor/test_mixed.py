"""Advice on few features: what it expects is what held-out samples show, and what was drawn is
found again.
"""

import json

import numpy as np
import polars as pl
import pytest

import fedasym as fa
from fedasym.advisor.confirmation import MIXED_MODEL


def draw(
    m=60,
    n=20,
    deviations=(1.0, 0.2),
    level=2.0,
    noise=1.0,
    seed=0,
    beta=(1.0, -1.0),
    constant=False,
):
    """Clients with two features and levels of their own about 50; `constant`: the second is the
    same within a client.
    """
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(m), n)
    X = rng.standard_normal((owner.size, 2))
    if constant:
        X[:, 1] = rng.standard_normal(m)[owner]
    theta = np.array(beta) + rng.standard_normal((m, 2)) * deviations
    levels = 50 + level * rng.standard_normal(m)
    y = levels[owner] + (X * theta[owner]).sum(1) + noise * rng.standard_normal(owner.size)
    return X, y, owner, theta, levels


def federation(X, y, owner, **options):
    return fa.Federation.from_arrays(X, y, owner, names=["dose", "age"], **options)


def test_expected_errors_are_those_of_new_samples():
    """Means over 12 populations of errors on samples that nobody trained on, beside what was
    expected of them.
    """
    seen = {name: [] for name in ("fedavg", "rtfa", "pfedme", "local", "ftfa")}
    for seed in range(12):
        X, y, owner, theta, levels = draw(seed=seed, n=9)
        advice = fa.advise(federation(X, y, owner, split=["train"] * len(y)))
        for name, pairs in seen.items():
            fit = fa.linear.fit(name, X, y, clients=owner)
            off = np.array([fit.personal[j] for j in range(60)]) - np.column_stack([theta, levels])
            loss = (off**2).sum(1).mean()  # features have mean 0 and variance 1
            pairs.append((loss, advice.predictions[name].loss.value))
    for name, pairs in seen.items():
        measured, expected = np.array(pairs).T
        assert expected.mean() == pytest.approx(measured.mean(), rel=0.12), name


def test_what_was_drawn_is_found_with_intervals():
    hits = []
    for seed in range(20):
        X, y, owner, *_ = draw(seed=seed)
        advice = fa.advise(federation(X, y, owner))
        truth = {"dose": (1.0, 1.0), "age": (-1.0, 0.2), "intercept": (50.0, 2.0)}
        for each in advice.weights:
            shared, apart = truth[each.name]
            hits += [
                each.shared.low < shared < each.shared.high,
                each.deviation.low <= apart <= each.deviation.high,
            ]
        assert advice.population.noise.low < 1.1
        assert advice.population.noise.high > 0.9
    assert np.mean(hits) > 0.88  # of 120 intervals at 95%, three standard errors below


def test_the_page_says_what_to_do_in_the_labels_units_then_why():
    X, y, owner, *_ = draw()
    advice = fa.advise(federation(X, y, owner))
    page = str(advice)
    assert page.startswith("Use ")
    first = page.split(".\n", maxsplit=1)[0].replace("\n", " ")
    assert "expected squared error" in first
    assert "with one model for all" in first
    assert "with each client alone" in first
    assert (
        page.index("Expected squared error")
        < page.index("Why (")
        < page.index("To prove this wrong")
    )
    assert "dose" in page
    assert "intercept" in page
    for record in advice.table():
        row = advice.predictions[record["algorithm"]]
        assert row.level.low <= row.trusted <= row.level.high
        assert row.loss.low <= row.loss.value <= row.loss.high
    plain = json.loads(advice.to_json())
    assert plain["weights"][0]["name"] == "dose"
    assert plain["intercept"] is True


def test_levels_alone_are_not_mistaken_for_noise():
    """Clients that differ by their level only: one model for all is far worse, and the advice says
    so.
    """
    X, y, owner, *_ = draw(deviations=(0.0, 0.0), level=10.0)
    advice = fa.advise(federation(X, y, owner))
    assert advice.recommended in ("rtfa", "pfedme")
    errors = {record["algorithm"]: record["test_error"] for record in advice.table()}
    assert errors["fedavg"] > 20 * errors[advice.recommended]
    assert advice.population.noise.value == pytest.approx(1, rel=0.1)
    by_name = {each.name: each for each in advice.weights}
    assert by_name["intercept"].deviation.value == pytest.approx(10, rel=0.4)


def test_features_that_are_constant_in_clients_serve_the_shared_model_only():
    X, y, owner, *_ = draw(constant=True)
    advice = fa.advise(federation(X, y, owner, personal=[True, False]))
    assert advice.weights[1].deviation is None
    assert "shared only" in str(advice)


def test_clients_that_do_not_differ_get_one_model_and_a_doubt():
    doubts = []
    for seed in range(4):
        X, y, owner, *_ = draw(deviations=(0.0, 0.0), level=0.0, seed=seed)
        advice = fa.advise(federation(X, y, owner))
        errors = {record["algorithm"]: record["test_error"] for record in advice.table()}
        assert errors[advice.recommended] <= errors["fedavg"] * 1.001
        doubts += [doubt.check for doubt in advice.doubts]
    assert "no difference" in doubts


def test_confirming_compares_with_one_model_each_alone_and_a_mixed_model():
    X, y, owner, *_ = draw()
    data = federation(X, y, owner)
    outcome = fa.advise(data).confirm(data)
    assert not outcome.refuted
    assert {"fedavg", MIXED_MODEL} < set(outcome.values)
    assert outcome.values[outcome.recommended] < outcome.values["fedavg"]


def test_heavy_tails_and_unequal_noise_are_doubts():
    X, y, owner, *_ = draw(m=80, n=30)
    rng = np.random.default_rng(1)
    noisy = y + 5 * rng.standard_normal(len(y)) * (owner % 2)
    assert "noise varies" in {
        doubt.check for doubt in fa.advise(federation(X, noisy, owner)).doubts
    }
    wild = y + np.where(rng.random(len(y)) < 0.01, 60.0, 0.0)
    assert "heavy tails" in {doubt.check for doubt in fa.advise(federation(X, wild, owner)).doubts}
    assert not fa.advise(federation(X, y, owner)).doubts


def test_folds_decide_where_the_model_is_contradicted():
    """Labels that are curved in a feature for every client alike: residuals are no noise, yet the
    folds know.
    """
    X, y, owner, *_ = draw(m=40, n=40)
    trended = y + 4 * np.sin(np.arange(len(y)) / 7.0)
    advice = fa.advise(federation(X, trended, owner))
    best = min(advice.predictions.values(), key=lambda row: row.measured)
    assert advice.predictions[advice.recommended].measured <= best.measured * 1.05 + 0.05


def test_who_gains_is_counted_from_clients_own_samples():
    X, y, owner, *_ = draw(m=40, n=40, deviations=(0.0, 0.0), level=0.0)
    y = y + np.where(owner < 3, 5.0, 0.0)  # three clients are elsewhere
    advice = fa.advise(federation(X, y, owner))
    gains = [each.client for each in advice.clients if each.verdict == "gains"]
    assert {0, 1, 2} <= set(gains)
    assert all(each.low <= each.gain <= each.high for each in advice.clients)
    assert len(gains) < 15


def test_many_features_and_an_intercept():
    """Limits serve beyond sixty unknowns: the level of each client is minimised out first, and
    comes back in the losses.
    """
    rng = np.random.default_rng(2)
    owner = np.repeat(np.arange(40), 30)
    X = rng.standard_normal((owner.size, 80)) + 0.3
    theta = 0.1 + 0.5 * rng.standard_normal((40, 80)) / np.sqrt(80)
    levels = 100 + 3 * rng.standard_normal(40)
    y = levels[owner] + (X * theta[owner]).sum(1) + 0.5 * rng.standard_normal(owner.size)
    advice = fa.advise(X, y, owner)
    assert advice.intercept
    assert not advice.weights
    assert advice.population.noise.value == pytest.approx(0.5, rel=0.3)
    rows = advice.predictions
    assert rows["fedavg"].trusted > 5  # the levels' variance is 9
    assert rows[advice.recommended].trusted < 2
    outcome = advice.confirm(X, y, owner)
    assert not outcome.refuted
    assert fa.advise(X, y, owner, intercept=False).population.noise.value > 1


def test_groups_within_clients_are_told_and_so_is_a_table_whose_columns_were_scaled():
    rng = np.random.default_rng(5)
    ward = np.repeat(np.arange(40), 15)
    table = pl.DataFrame(
        {
            "who": ward // 4,
            "x": rng.standard_normal(600),
            "ward": [f"ward {each}" for each in ward],
            "y": rng.standard_normal(600) + rng.standard_normal(40)[ward],
        }
    )
    clients = fa.Federation.from_frame(table, label="y", client="who")
    (nested,) = clients.recipe.nested
    (doubt,) = (each for each in fa.advise(clients).doubts if each.check == "groups within clients")
    assert "'ward' has 40 groups" in doubt.text
    assert f"{nested.explained:.0%} of what varies within clients" in doubt.text
    noised = fa.advise(clients, statistics_privacy=fa.Privacy(epsilon=800, delta=0.1))
    assert noised.columns == str(clients.recipe)
    assert "how the table's columns were scaled" in noised.doubts[-1].text
    tiny = table.with_columns(pl.col("y") * 1e-160)
    with pytest.raises(fa.InvalidInput, match="the labels vary by"):
        fa.advise(fa.Federation.from_frame(tiny, label="y", client="who"))


def test_clients_with_hardly_any_samples_are_told():
    X, y, owner, _, _ = draw(m=40, n=2)
    found = fa.advise(federation(X, y, owner, split=["train"] * owner.size))
    assert any("40 of 40 clients have fewer than" in each.text for each in found.doubts)


def test_held_out_samples_of_other_times_contradict_the_estimates():
    X, y, owner, _, _ = draw(m=40, n=10)
    late = np.arange(owner.size) % 10 > 7
    split = np.where(late, "test", "train")
    said = [
        fa.advise(federation(X, y + late * drift, owner, split=split)).doubts for drift in (0, 9)
    ]
    found = [
        [each for each in doubts if "samples drawn from the same" in each.text] for doubts in said
    ]
    assert [len(each) for each in found] == [0, 1]
    assert "error on held-out samples is" in found[1][0].text
