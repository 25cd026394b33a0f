"""Statistics of a run: each against a plain loop, and where samples, clients or finite numbers are
missing.
"""

import math

import numpy as np
import pytest

import fedasym as fa

from .invented import ROUNDS, data, history


def by_hand(run, r):
    """All statistics of one round, by plain loops."""
    clients = range(len(run.totals))
    tested = [i for i in clients if run.totals[i, 1] > 0]
    own = [run.correct[r, i, 1] / run.totals[i, 1] for i in tested]
    worst = sorted(own)[: math.ceil(len(own) / 10)]
    return {
        "accuracy": (
            sum(run.correct[r, i, 1] for i in tested) / sum(run.totals[i, 1] for i in clients)
        ),
        "validation_accuracy": (
            sum(run.correct[r, i, 0] for i in clients) / sum(run.totals[i, 0] for i in clients)
        ),
        "shared_accuracy": (
            sum(run.shared_correct[r, i, 1] for i in tested)
            / sum(run.totals[i, 1] for i in clients)
        ),
        "mean_accuracy": sum(own) / len(own),
        "worst_decile": sum(worst) / len(worst),
        "hurt": (
            sum(run.correct[r, i, 1] < run.shared_correct[r, i, 1] for i in tested) / len(tested)
        ),
        "loss": sum(run.losses[r, i, 1] for i in tested) / sum(run.totals[i, 1] for i in clients),
        "validation_loss": (
            sum(run.losses[r, i, 0] for i in clients) / sum(run.totals[i, 0] for i in clients)
        ),
        "shared_loss": (
            sum(run.shared_losses[r, i, 1] for i in tested) / sum(run.totals[i, 1] for i in clients)
        ),
        "mean_loss": sum(run.losses[r, i, 1] / run.totals[i, 1] for i in tested) / len(tested),
    }


@pytest.mark.parametrize("clients", [1, 4, 9, 10, 11, 20, 31])
def test_statistics_are_those_of_a_plain_loop(clients):
    rng = np.random.default_rng(clients)
    tests = rng.integers(0, 7, clients)
    tests[0] = 5
    run = history(
        federation=data(tests, rng.integers(1, 4, clients), np.full(clients, 2)), seed=clients
    )
    for r in range(len(ROUNDS)):
        for name, value in by_hand(run, r).items():
            np.testing.assert_allclose(getattr(run, name)[r], value, rtol=1e-14, err_msg=name)


def test_numbers_worked_out_on_paper():
    run = history(rounds=[0])
    run.correct[0, :, 1], run.shared_correct[0, :, 1] = [3, 0, 1, 3], [2, 0, 2, 3]
    assert run.accuracy.tolist() == [
        7 / 12
    ]  # 3 + 1 + 3 of 4 + 2 + 6; the second client has no test samples
    np.testing.assert_allclose(run.mean_accuracy, (3 / 4 + 1 / 2 + 3 / 6) / 3, rtol=1e-15)
    assert run.worst_decile.tolist() == [0.5]
    np.testing.assert_allclose(run.hurt, 1 / 3, rtol=1e-15)  # only the third client loses
    records = run.clients()
    assert [record["gain"] for record in records if record["tested"]] == [0.25, -0.5, 0]
    assert math.isnan(records[1]["accuracy"])
    assert (records[1]["tested"], records[1]["samples"], records[1]["client"]) == (0, 3, "c1")


def test_worst_decile_of_eleven_clients_is_two():
    run = history(federation=data([10] * 11, [1] * 11, [1] * 11), rounds=[0])
    run.correct[0, :, 1] = [9, 8, 7, 1, 9, 9, 9, 2, 9, 9, 9]
    np.testing.assert_allclose(run.worst_decile, 0.15, rtol=1e-15)


def test_a_diverged_client_is_never_left_out_of_a_mean():
    run = history(share=1.0)
    run.correct[2, 0, 1] = run.losses[2, 0, 1] = np.nan
    for name in ("accuracy", "mean_accuracy", "worst_decile", "hurt", "loss", "mean_loss"):
        values = getattr(run, name)
        assert np.isfinite(values[:2]).all(), name
        assert np.isnan(values[2]), name


def test_what_an_untested_client_holds_does_not_matter():
    run = history(seed=3)
    before = run.final
    for each in (run.correct, run.losses, run.shared_correct, run.shared_losses):
        each[:, 1, 1] = np.nan
    assert run.final == before


def test_nothing_tested_and_nothing_validated():
    run = history(federation=data([0] * 3, [0] * 3, [2] * 3))
    assert all(np.isnan(value) for name, value in run.final.items() if name != "round")
    assert "3 of 3 clients" in str(run)


def test_infinite_losses_raise_no_warning():
    run = history(federation=data(task="regression"), rounds=[0])
    run.losses[...] = run.shared_losses[...] = np.inf
    assert np.isinf(run.loss).all()
    assert run.hurt.tolist() == [0]
    assert math.isnan(run.clients()[0]["gain"])
    assert "inf" in str(run)


def test_an_algorithm_that_shares_nothing_has_no_shared_numbers():
    run = history("local", seed=1)
    for name in ("shared_accuracy", "shared_loss", "hurt"):
        assert np.isnan(getattr(run, name)).all()
    assert math.isnan(run.clients()[0]["gain"])
    assert "hurt" not in str(run).lower()


def test_regression_has_losses_and_says_so():
    run = history(federation=data(task="regression"), seed=2)
    for name in (
        "accuracy",
        "validation_accuracy",
        "shared_accuracy",
        "mean_accuracy",
        "worst_decile",
    ):
        with pytest.raises(fa.InvalidInput, match=r"use \.loss"):
            getattr(run, name)
    hand = by_hand(run, 2)
    for name in ("loss", "validation_loss", "shared_loss", "mean_loss"):
        np.testing.assert_allclose(getattr(run, name)[2], hand[name], rtol=1e-14)
    worse = [run.losses[2, i, 1] > run.shared_losses[2, i, 1] for i in (0, 2, 3)]
    np.testing.assert_allclose(run.hurt[2], np.mean(worse), rtol=1e-15)
    record = run.clients()[0]
    assert record["gain"] == record["shared_loss"] - record["loss"]
    assert "accuracy" not in record
    assert "accuracy" not in str(run).lower()


def test_rounding_of_a_loss_hurts_nobody():
    run = history(federation=data(task="regression"), seed=2)
    run.shared_losses[...] = run.losses * (1 - 1e-8)
    assert run.hurt.tolist() == [0, 0, 0]
