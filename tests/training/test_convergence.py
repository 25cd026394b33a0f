"""Training says how far it is from the exact solution of what it minimises, and its steps suit the
scale of the features.
"""

from __future__ import annotations

import numpy as np
import pytest

import fedasym as fa
from fedasym.training import twin
from fedasym.training.convergence import (
    NEAR,
    column_sizes,
    columns_out_of_scale,
    curvature,
    largest_eigenvalue,
    stable_grids,
    stable_step,
)

from .clients import federation

LONG = {
    "rounds": 300,
    "evaluate_every": 0,
    "local_steps": 1,
    "batch": 64,
    "personal_epochs": 300,
    "precision": "float64",
}


@pytest.fixture(scope="module")
def clients():
    """Five clients with more samples than features, whose labels have a level of their own."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((100, 2))
    names = np.repeat(list("abcde"), 20)
    y = 50 + 10 * np.repeat(rng.standard_normal(5), 20) + x @ [2.0, -1.0] + rng.standard_normal(100)
    return fa.Federation.from_arrays(
        x, y, names, split=np.tile([0] * 14 + [1] * 3 + [2] * 3, 5), names=["age", "dose"]
    )


def least_squares(federation, rows):
    X = np.column_stack([federation.features[rows], np.ones(len(rows))])
    y = federation.labels[rows]
    return float(((y - X @ np.linalg.lstsq(X, y, rcond=None)[0]) ** 2).sum() / 2)


def test_long_training_arrives_at_the_exact_solutions(clients):
    runs = fa.train(
        ["local", "fedavg", "ftfa", "rtfa"],
        clients,
        **LONG,
        server_step=0.3,
        local_step=0.3,
        ridge=0.5,
    )
    every = np.flatnonzero(clients.split == 0)
    alone = sum(
        least_squares(clients, clients.rows(each, "train")) for each in clients.clients
    ) / len(every)
    expected = {"local": alone, "fedavg": least_squares(clients, every) / len(every), "ftfa": alone}
    for run in runs:
        name = run.algorithm.name
        assert run.converged is True
        assert abs(run.excess[-1]) < 1e-6
        assert run.training_loss[-1] == pytest.approx(run.exact_loss[-1], rel=1e-5)
        if name in expected:
            assert run.exact_loss[-1] == pytest.approx(expected[name], rel=1e-9)
        assert "Not converged" not in str(run)


def test_the_training_loss_is_that_of_the_models(clients):
    run = fa.train("rtfa", clients, rounds=3, evaluate_every=3, precision="float64")
    heads = {name: np.asarray(run.personal(name), float) for name in clients.clients}
    assert run.training_loss[-1] == pytest.approx(twin.loss(clients, heads, "train"), rel=1e-5)
    assert run.shared_training_loss[-1] == pytest.approx(
        twin.loss(clients, run.shared, "train"), rel=1e-9
    )
    for form in ("gram", "head"):
        again = fa.train(
            "rtfa", clients, rounds=3, evaluate_every=3, precision="float64", form=form
        )
        np.testing.assert_allclose(again.training_losses, run.training_losses, rtol=1e-9)


def test_a_run_that_is_not_there_yet_says_so_and_what_to_do(clients):
    run = fa.train("local", clients, rounds=3, evaluate_every=0)
    assert run.converged is False
    assert run.excess[-1] > NEAR
    spread = clients.labels[clients.split == 0].var() / 2
    assert run.excess[-1] == pytest.approx((run.training_loss[-1] - run.exact_loss[-1]) / spread)
    assert run.table()[-1]["excess"] == run.excess[-1]
    assert "Not converged: the personal models' training loss is" in str(run)
    assert "more rounds or a larger local_step" in str(run)
    both = fa.train(["local", "fedavg"], clients, rounds=3, evaluate_every=0)
    assert "Not converged: local, whose personal models' training loss is" in str(both)


@pytest.mark.parametrize("name", ["maml_fo", "pfedme"])
def test_what_has_no_exact_solution_is_not_judged(clients, name):
    run = fa.train(name, clients, rounds=2, evaluate_every=0)
    assert run.converged is None
    assert np.isnan(run.excess[-1])
    assert np.isfinite(run.training_loss[-1])


def test_classes_have_no_excess():
    run = fa.train("fedavg", federation(), rounds=2, evaluate_every=0)
    assert run.converged is None
    assert run.training_losses is None
    assert "excess" not in run.table()[0]


def test_default_steps_suit_the_scale(clients):
    far = fa.Federation.from_arrays(
        1000 * clients.features,
        clients.labels[:, 0],
        np.repeat(list("abcde"), 20),
        split=clients.split,
    )
    run = fa.train("fedavg", far, rounds=2, evaluate_every=0)
    assert run.diverged is None
    assert run.settings.server_step == stable_step(curvature(far, True, 32), 0.1) < 1e-6
    assert fa.train("fedavg", clients, rounds=2, evaluate_every=0).settings.server_step == 0.1
    named = fa.train("fedavg", far, rounds=2, evaluate_every=0, protocol="text")
    assert (named.settings.server_step, named.diverged is not None) == (0.1, True)
    assert fa.train("fedavg", far, rounds=1, server_step=0.2).settings.server_step == 0.2


def test_the_curvature_is_that_of_the_worst_client(clients):
    each = []
    for name in clients.clients:
        X = np.column_stack([clients.features[clients.rows(name, "train")], np.ones(14)])
        each.append(np.linalg.eigvalsh(X.T @ X / 14)[-1])
    assert curvature(clients, True, 32) == pytest.approx(max(each))
    assert curvature(clients, True, 4) > curvature(clients, True, 32)  # batches are noisy


def test_the_curvature_of_many_features_is_found_by_power_iterations():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((310, 320)) * np.linspace(0.2, 3, 320)
    exact = np.linalg.svd(X, compute_uv=False)[0] ** 2 / 310
    assert largest_eigenvalue(X) == pytest.approx(exact, rel=0.05)
    assert largest_eigenvalue(X[:200]) == pytest.approx(
        np.linalg.svd(X[:200], compute_uv=False)[0] ** 2 / 200, rel=1e-12
    )


def test_grids_of_steps_are_relative_to_the_stable_one(clients):
    L = curvature(clients, True, 32)
    grids = stable_grids(["fedavg", "ftfa", "pfedme"], clients, True, 32)
    assert max(grids["fedavg"]["server_step"]) == pytest.approx(1.5 / L, rel=0.1)
    assert len(grids["ftfa"]["local_step"]) == 5
    assert grids["pfedme"]["server_step"] == fa.algorithms.GRIDS["pfedme"]["server_step"]


def test_columns_out_of_scale_are_named(clients):
    rows = np.column_stack([clients.features, np.arange(100.0) * 1e4])
    held = {"split": clients.split, "names": ["age", "dose", "student"]}
    far = fa.Federation.from_arrays(
        rows, clients.labels[:, 0], np.repeat(list("abcde"), 20), **held
    )
    assert list(columns_out_of_scale(far)) == ["student"]
    assert columns_out_of_scale(far)["student"] == pytest.approx(column_sizes(far)[2])
    runs = fa.train(
        ["local", "fedavg"],
        far,
        rounds=5,
        evaluate_every=0,
        grid={"server_step": [0.1, 1], "local_step": [0.1, 1]},
    )
    assert "column 'student' has values around 5e+05: scale it, or drop it" in str(runs)
    one = fa.train("fedavg", far, rounds=5, evaluate_every=0, server_step=0.1)
    assert "column 'student' has values around 5e+05: scale it, or drop it" in str(one)
