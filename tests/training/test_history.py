"""One run: its records, its text, its JSON, its models and their predictions."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fedasym as fa
from fedasym.algorithms import TRAINED, Algorithm, Average, Descend
from fedasym.training import twin
from fedasym.training.settings import CODE, TEXT, Settings, resolve_ridge

from .invented import ROUNDS, data, history


def test_records_by_round_and_by_client():
    run = history(seed=4)
    records = run.table()
    assert [record["round"] for record in records] == ROUNDS
    assert run.final["accuracy"] == records[-1]["accuracy"] == run.accuracy[-1]
    assert list(pd.DataFrame(records)) == [
        "algorithm",
        "seed",
        "round",
        "accuracy",
        "validation_accuracy",
        "shared_accuracy",
        "mean_accuracy",
        "worst_decile",
        "hurt",
        "loss",
        "validation_loss",
        "shared_loss",
        "mean_loss",
    ]
    middle = run.clients(round=10)
    assert middle[3]["accuracy"] == run.correct[1, 3, 1] / 6
    assert middle[3]["shared_loss"] == run.shared_losses[1, 3, 1] / 6
    with pytest.raises(
        fa.InvalidInput, match="round is 5: the clients were tested after rounds 0, 10, 20"
    ):
        run.clients(round=5)


def test_the_text_says_what_was_run():
    text = str(history(seed=4, server_step=0.25, share=0.5, gap=0.25))
    for word in (
        "rtfa",
        "server_step 0.25",
        "ridge 0.1",
        "protocol text",
        "seed 4",
        "50.00%",
        "25.00%",
        "clients' mean",
    ):
        assert word in text
    for word in ("difference", "inner_step", "mixing"):  # rtfa does not use them
        assert word not in text
    assert "1 of 4 clients" in text
    assert repr(history(seed=4)) == str(history(seed=4))
    assert history()._repr_html_().startswith("<p>rtfa")


def test_clients_without_training_samples_are_named():
    federation = data(trains=(3, 0, 3, 0))
    assert (
        "Without training samples: 2 of 4 clients; their personal model is the shared model."
        in str(history(federation=federation))
    )
    assert "an untrained model" in str(history("local", federation=federation))


@pytest.mark.parametrize(
    ("name", "personal_only", "advice"),
    [
        ("fedavg", False, "smaller server_step (now 3)"),
        ("ftfa", False, "smaller server_step (now 3),"),
        ("ftfa", True, "smaller local_step (now 2)"),
        ("rtfa", True, "smaller local_step (now 2)"),
        ("local", True, "smaller local_step (now 2)"),
        ("maml_hf", False, "smaller server_step (now 3) or local_step (now 2)"),
        ("pfedme", False, "smaller server_step (now 3) or ridge (now 15) or inner_step (now 0.05)"),
    ],
)
def test_divergence_names_the_step(name, personal_only, advice):
    run = history(name, diverged=10, server_step=3.0, local_step=2.0)
    if personal_only:
        run.shared_losses[...] = 1.0
    assert "not finite from round 10" in str(run)
    assert advice in str(run)


def test_divergence_of_a_composed_algorithm():
    run = history(algorithm=Algorithm("few steps", Average(), Descend(0.7, 3)), diverged=10)
    run.shared_losses[...] = 1.0
    assert "smaller step than Descend's 0.7" in str(run)


def test_divergence_that_was_not_yet_tested_blames_the_server():
    run = replace(history("fedavg", diverged=None), diverged=25, interrupted=True)
    assert "smaller server_step" in str(run)
    assert "last test was after round 20" in str(run)


def test_a_peak_on_test_is_no_way_to_choose():
    run = history(share=0.5)
    assert "highest" not in str(run)
    run.correct[1, :, 1] = run.totals[:, 1]
    assert "Test accuracy was highest at round 10 (100.00%)" in str(run)
    assert any("by validation" in note for note in run.notes)


def test_one_run_as_json():
    run = history(seed=5, diverged=20)
    held = json.loads(run.to_json())
    assert held["algorithm"] == "rtfa"
    assert held["settings"]["ridge"] == 0.1
    assert "mixing" not in held["settings"]
    assert held["protocol"]["name"] == "text"
    assert (held["rounds"], held["diverged"], held["interrupted"]) == (ROUNDS, 20, False)
    back = replace(
        run,
        **{
            name: np.array(held[name], float)
            for name in ("correct", "losses", "shared_correct", "shared_losses")
        },
    )
    for name, values in held["statistics"].items():
        np.testing.assert_array_equal(np.array(values, float), getattr(run, name))
        np.testing.assert_array_equal(getattr(back, name), getattr(run, name))
    assert held["statistics"]["accuracy"][2] is None
    assert held["totals"] == run.totals.tolist()
    assert held["clients"] == ["c0", "c1", "c2", "c3"]


@pytest.mark.parametrize("protocol", [TEXT, CODE])
@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("name", ["rtfa", "pfedme", "local"])
def test_heads_and_predictions(name, task, protocol):
    federation = data(task=task)
    settings = resolve_ridge(
        Settings(rounds=4, evaluate_every=4, local_steps=3, batch=2, personal_epochs=2),
        TRAINED[name],
    )
    last = list(twin.run(TRAINED[name], federation, settings, protocol, seed=3))[-1]
    shared = None if name == "local" else last.shared.astype(np.float32)
    run = replace(
        history(name, federation, protocol=protocol, shared=shared, rounds=[0, 4]),
        settings=settings,
        seed=3,
    )
    x = np.random.default_rng(1).normal(size=(7, 2))
    with_one = np.column_stack([x, np.ones(7)]) if protocol.intercept else x
    for client in (None, "c0", "c2"):
        if client is None and name == "local":
            with pytest.raises(fa.InvalidInput, match="no shared model: name one of the clients"):
                run.predict(x)
            continue
        head = last.shared if client is None else last.personal[client]
        outputs = with_one @ head
        if client is not None:
            np.testing.assert_allclose(run.personal(client), head, rtol=2e-4, atol=2e-5)
        if task == "classification":
            assert run.predict(x, client).tolist() == [
                federation.classes[code] for code in outputs.argmax(1)
            ]
        else:
            assert run.predict(x, client).shape == (7,)
            np.testing.assert_allclose(run.predict(x, client), outputs[:, 0], rtol=1e-3, atol=1e-4)


def test_predictions_refuse_what_they_cannot_use():
    run = history(shared=np.zeros((2, 3)), diverged=20)
    with pytest.raises(fa.InvalidInput, match="federation's 2 features"):
        run.predict(np.zeros((3, 5)))
    with pytest.raises(fa.InvalidInput, match="finite numbers"):
        run.predict([[np.nan, 1.0]])
    with pytest.raises(fa.InvalidInput, match="unknown client 'c9'"):
        run.predict(np.zeros((3, 2)), "c9")
    with pytest.raises(fa.InvalidInput, match="diverged"):
        replace(run, shared=np.full((2, 3), np.nan)).predict(np.zeros((3, 2)))
