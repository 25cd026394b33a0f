"""Class shares: Bayes' rule, the plain twin, what is compiled, files, and what is refused."""

import json

import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms import Share
from fedasym.algorithms.registry import describe_algorithm, read_algorithm
from fedasym.core.numbers import pool_shares
from fedasym.training import twin
from fedasym.training.decomposition import pooled_difference

from .clients import DOUBLE, GRAM, as_twin, federation

pytestmark = pytest.mark.usefixtures("_light")
SHARES = {"share_power": [0.5, 1.5], "share_smoothing": [0.7, 9.0]}


def test_it_is_bayes_rule_where_clients_differ_in_their_classes_alone():
    rng = np.random.default_rng(0)
    densities = rng.random((50, 4))  # of x given each class, the same for all clients
    pooled, own = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4))
    posterior = densities * own / (densities * own).sum(1, keepdims=True)
    scores = np.log(densities * pooled) + rng.standard_normal((50, 1))
    many = Share(share_smoothing=1e-9).offset(1e6 * own, pooled)
    found = np.exp(scores + many)
    np.testing.assert_allclose(found / found.sum(1, keepdims=True), posterior, rtol=1e-12)


def test_smoothing_is_a_posterior_mean_and_no_labels_change_nothing():
    pooled = np.array([0.2, 0.3, 0.5])
    counts = np.array([4.0, 0, 1])
    a, tau = 2.5, 0.7
    prior = (counts + a * pooled) / (counts.sum() + a)  # the mean of a Dirichlet posterior
    found = Share(tau, a).offset(counts, pooled)
    np.testing.assert_allclose(found, tau * (np.log(prior) - np.log(pooled)), rtol=1e-13)
    np.testing.assert_array_equal(Share().offset(0 * counts, pooled), 0)
    assert pool_shares(np.zeros(4)).tolist() == [0.25] * 4


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["fedavg", "fedavg_share", "ftfa_share", "pfedme_share", "local_share"], DOUBLE),
        (["ftfa_share"], GRAM | {"intercept": True}),
    ],
    ids=["heads", "gram"],
)
def test_compiled_scores_are_the_twins(names, told):
    clients = federation()
    runs = fa.train(names, clients, **told, grid=SHARES | {"personal_epochs": [1, 2]})
    assert len(runs) == (1 + 4 + 8 + 4 + 4 if len(names) > 1 else 8)
    for run in runs:
        as_twin(run, clients)


def test_plain_and_corrected_runs_share_one_walk_and_have_their_own_scores():
    clients = federation()
    alone = fa.train("ftfa", clients, **DOUBLE)
    both = fa.train(["ftfa", "ftfa_share"], clients, **DOUBLE, grid=SHARES)
    np.testing.assert_array_equal(both[0].losses, alone.losses)
    none = fa.train("ftfa_share", clients, **DOUBLE, share_power=0)
    np.testing.assert_allclose(none.losses, alone.losses, rtol=1e-12)


def test_sequences_padding_and_splits():
    clients = federation(positions=3)
    told = {**DOUBLE, "share_smoothing": 2.0}
    for protocol in ("text", "code"):
        as_twin(fa.train("fedavg_share", clients, **told, protocol=protocol), clients)
    plain = federation()
    for run in fa.train("fedavg_share", plain, **told, splits=[3, 4]):
        as_twin(run, plain.resplit(run.split, fractions=None))


def test_a_client_keeps_its_head_and_a_newcomer_the_shared_one(tmp_path):
    clients = federation()
    run = fa.train("fedavg_share", clients, **DOUBLE)
    head = run.personal("a")
    counts = twin.class_counts(clients, clients.rows("a", "train"), padding=False)
    pooled = twin.pooled_shares(clients, run.protocol)
    np.testing.assert_allclose(head[-1], Share().offset(counts, pooled), atol=1e-6)
    np.testing.assert_allclose(head[:-1], run.shared, rtol=1e-6)
    assert clients.rows("b", "train").size == 0
    assert not run.personal("b")[-1].any()
    again = fa.History.load(run.save(tmp_path / "run.safetensors"))
    x = clients.features[clients.rows("a")]
    assert again.algorithm == run.algorithm
    np.testing.assert_array_equal(again.predict(x, client="a"), run.predict(x, client="a"))
    expected = (x @ run.shared + Share().offset(counts, pooled)).argmax(1)
    np.testing.assert_array_equal(run.predict(x, client="a"), expected)


def test_names_settings_and_refusals():
    find = fa.algorithms.find
    assert find("share(rtfa)") == find("rtfa_share") == find("share(rtfa_share)")
    assert find("share(fedprox(penalty=2))").server.penalty == 2
    assert find("fedavg_share(share_power=2)").correction == Share(share_power=2)
    assert read_algorithm(describe_algorithm(find("maml_share"))) == find("maml_share")
    assert {"share_power", "share_smoothing"} <= set(find("apfl_share").default_grid())
    with pytest.raises(fa.InvalidInput, match="which the package has"):
        fa.algorithms.register(fa.Algorithm("apfl_share", *find("apfl").stages))
    with pytest.raises(fa.InvalidInput, match="share_smoothing is 0: it must be a finite"):
        fa.train("fedavg_share", federation(), rounds=1, share_smoothing=0)
    with pytest.raises(fa.InvalidInput, match="labels are numbers: train fedavg"):
        fa.train("fedavg_share", federation(classes=None), rounds=1)
    with pytest.raises(fa.InvalidInput, match=r"measure it with fa\.train, or ask for ftfa"):
        fa.predict(fa.Population(1, 1, 1), ["ftfa_share"])
    with pytest.raises(fa.InvalidInput, match=r"measure it with fa\.train, or ask for rtfa"):
        fa.predict(fa.ClassPopulation(1, 1, 1), ["rtfa_share"])
    with pytest.raises(fa.InvalidInput, match="correction of x is a Keep"):
        fa.Algorithm("x", *find("fedavg").stages, correction=fa.algorithms.Keep())


def shifted_clients(label=0.0, feature=0.0, clients=30, seed=0):
    """Gaussian classes; clients' class shares and means differ by as much as they are told."""
    rng = np.random.default_rng(seed)
    n, d, C = 60, 8, 5
    means = 1.6 * rng.standard_normal((C, d)) / d**0.5
    rows, labels = [], []
    for _ in range(clients):
        shares = rng.dirichlet(np.ones(C) / label) if label else np.ones(C) / C
        y = rng.choice(C, n, p=shares)
        shift = feature * rng.standard_normal(d)
        rows.append(means[y] + shift + rng.standard_normal((n, d)) * 0.7)
        labels.append(y)
    names = np.repeat(np.arange(clients), n)
    return fa.Federation.from_arrays(
        np.concatenate(rows), np.concatenate(labels), names, classes=C, split=(0.5, 0.25, 0.25)
    )


TRAINED = {"rounds": 30, "evaluate_every": 0, "server_step": 0.3, "local_step": 0.1}


@pytest.fixture(scope="module")
def shifts():
    """Trained runs by what differs between clients."""
    kinds = {"label": {"label": 3.0}, "feature": {"feature": 0.8}, "none": {}}
    return {
        kind: fa.train(["ftfa", "fedavg_share"], shifted_clients(**told), **TRAINED)
        for kind, told in kinds.items()
    }


def test_a_gain_is_of_the_kind_that_it_was_made_of(shifts):
    parts = {kind: runs.decompose()["ftfa"] for kind, runs in shifts.items()}
    assert parts["label"].label.value > 3 * parts["label"].label.error
    assert abs(parts["label"].feature.value) < parts["label"].label.value / 4
    assert parts["feature"].feature.value > 3 * parts["feature"].feature.error
    assert abs(parts["feature"].label.value) < parts["feature"].feature.value / 4
    for amount in (parts["none"].label, parts["none"].feature):
        assert abs(amount.value) < 0.02
    for each in parts.values():
        total = each.label.value + each.feature.value + each.rest.value
        assert each.gain.value == pytest.approx(total, abs=1e-12)
        assert each.personal - each.shared == pytest.approx(each.gain.value, abs=1e-12)


def test_levels_of_a_decomposition_are_those_of_training(shifts):
    runs = shifts["label"]
    row = runs.decompose()["ftfa"]
    assert row.personal == pytest.approx(runs[0].accuracy[-1])
    assert row.shared == pytest.approx(runs[0].shared_accuracy[-1], abs=1e-9)
    again = fa.train("fedavg_share", runs[0].federation, **TRAINED, **row.settings)
    assert row.shares == pytest.approx(again.accuracy[-1], abs=1e-9)
    assert row.beyond.value == pytest.approx(row.personal - row.shares, abs=1e-12)


def test_a_decomposition_prints_and_is_drawn(shifts, tmp_path):
    found = shifts["label"].decompose()
    assert "are label shift (knowing which classes a client has)" in str(found)
    assert [row["algorithm"] for row in found.table()] == ["ftfa", "fedavg_share"]
    assert found.plot(tmp_path / "parts.png").stat().st_size > 0
    held = json.loads(found.to_json())
    assert [row["algorithm"] for row in held["gains"]] == ["ftfa", "fedavg_share"]
    assert held["gains"][0]["gain"] == found["ftfa"].record()["gain"]
    with pytest.raises(KeyError, match="rtfa"):
        found["rtfa"]
    with pytest.raises(fa.InvalidInput, match="no run has personal models"):
        fa.train("fedavg", shifts["none"][0].federation, **TRAINED).decompose()
    saved = fa.History.load(shifts["none"][0].save(tmp_path / "run.safetensors"))
    with pytest.raises(fa.InvalidInput, match="a saved history has no samples"):
        saved.decompose()


def test_errors_of_parts_are_those_of_many_clients():
    """The standard error of a part against its spread over draws of the clients."""
    rng = np.random.default_rng(3)
    values, errors = [], []
    for _ in range(400):
        tested = rng.integers(2, 12, 40).astype(float)
        right = rng.binomial(tested.astype(int), rng.beta(2, 2, 40)).astype(float)
        found = pooled_difference(right, tested)
        values.append(found.value)
        errors.append(found.error)
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.15)


def test_shares_of_another_time_are_doubted():
    clients = shifted_clients(label=3.0)
    rng = np.random.default_rng(0)
    fresh = np.where(clients.split > 0, rng.integers(0, 5, len(clients.split)), clients.labels)
    moved = fa.Federation.from_arrays(
        clients.features,
        fresh,
        [clients.clients[place] for place in clients.owner],
        split=clients.split,
        classes=5,
    )
    assert not any("Doubt" in note for note in fa.train("fedavg_share", clients, **TRAINED).notes)
    told = fa.train("fedavg_share", moved, **TRAINED).notes
    assert any("other classes than their training samples" in note for note in told)
    assert not any("Doubt" in note for note in fa.train("ftfa", moved, **TRAINED).notes)


def test_sweeps_tune_them_and_reports_tell_them(tmp_path):
    clients = shifted_clients(label=3.0, clients=10)
    names = ["fedavg", "fedavg_share", "share(rtfa)"]
    told = {"rounds": 6, "evaluate_every": 0, "local_steps": 3}
    grid = {"server_step": [0.1, 0.5]}
    grids = {
        "fedavg": grid,
        "fedavg_share": grid | {"share_power": [0, 1], "share_smoothing": [3]},
        "rtfa_share": grid | {"share_power": [1]},
    }
    found = fa.sweep(names, clients, grid=grids, seeds=2, into=tmp_path / "run", **told)
    assert found.tuned["fedavg_share"]["share_power"] == 1
    assert list(found.finals("seeds")) == ["fedavg", "fedavg_share", "rtfa_share"]
    page = fa.report(tmp_path / "run", tmp_path / "page.html").read_text()
    apart = found.finals("seeds")["fedavg_share"] - found.finals("seeds")["fedavg"]
    assert f"class shares alone add {100 * apart.mean():.2f} points" in page
    assert "beyond them, rtfa_share has" in page
