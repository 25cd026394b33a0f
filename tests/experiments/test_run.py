"""Runs: the numbers of `train`, chosen by validation alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import fedasym as fa
from fedasym.experiments import tables
from fedasym.experiments.folder import RunFolder, wanted_pieces
from fedasym.experiments.plan import Score, choose_settings

from .small import TOML, written


@pytest.fixture(scope="module")
def federation():
    return fa.datasets.synthetic(
        task="classification", clients=8, dimension=6, classes=3, aspect=0.3, split=(0.6, 0.2, 0.2)
    )  # fmt: skip


COMMON = {"rounds": 4, "cohort": 3, "local_steps": 3, "personal_epochs": 2}


def test_what_is_chosen_and_found_is_what_train_gives(finished, federation):
    experiment, results, _ = finished
    grid = {
        name: {axis: list(values) for axis, values in axes.items()}
        for name, axes in experiment.grid.items()
    }
    runs = fa.train(list(grid), federation, grid=grid, seeds=[1], evaluate_every=4, **COMMON)
    for name, group in runs.choose_configurations().items():
        assert results.tuned[name] == {axis: group.settings[axis] for axis in grid[name]}
    tuned = results.tuned["ftfa"]
    for seed in (1, 2):
        run = fa.train("ftfa", federation, seed=seed, evaluate_every=2, **tuned, **COMMON)
        mine = results.trials.filter(sweep="seeds", algorithm="ftfa", trial=seed)
        assert mine["round"].to_list() == [0, 2, 4]
        for name in (
            "accuracy",
            "mean_accuracy",
            "worst_decile",
            "shared_accuracy",
            "validation_accuracy",
            "hurt",
            "loss",
        ):
            np.testing.assert_allclose(mine[name], getattr(run, name), rtol=1e-6)
        clients = results.clients.filter(sweep="seeds", algorithm="ftfa", trial=seed)
        for name in ("client", "samples", "tested", "accuracy", "shared_accuracy", "gain"):
            wanted = [str(each[name]) if name == "client" else each[name] for each in run.clients()]
            assert (
                clients[name].to_list() == pytest.approx(wanted)
                if name != "client"
                else clients[name].to_list() == wanted
            )
    other = fa.train(
        "ftfa",
        federation.resplit(2, keep_test=True, fractions=None),
        seed=1,
        evaluate_every=2,
        **tuned,
        **COMMON,
    )
    mine = results.trials.filter(sweep="splits", algorithm="ftfa", trial=2)
    np.testing.assert_allclose(mine["loss"], other.loss, rtol=1e-6)


def test_gains_are_the_same_shared_model_after_more_and_more_epochs(finished, federation):
    _, results, _ = finished
    tuned = results.tuned["ftfa"]
    last = results.gains.filter(round=4)
    assert last["epochs"].to_list() == ["0", "batch", "2"]
    assert last["shared_loss"].n_unique() == 1
    assert last["loss"][0] == last["shared_loss"][0]
    one = fa.Algorithm(
        "one", fa.algorithms.Average(), fa.algorithms.Descend(tuned["local_step"], 1)
    )
    common = COMMON | {"server_step": tuned["server_step"]}
    np.testing.assert_allclose(
        last["loss"][1], fa.train(one, federation, seed=1, **common).loss[-1], rtol=1e-6
    )
    two = fa.train("ftfa", federation, seed=1, local_step=tuned["local_step"], **common)
    np.testing.assert_allclose(last["loss"][2], two.loss[-1], rtol=1e-6)


def test_permuted_test_labels_change_no_choice(finished, federation, tmp_path):
    experiment, results, _ = finished
    rng = np.random.default_rng(0)
    labels = federation.labels.copy()
    test = federation.split == 2
    labels[test] = rng.permutation(labels[test])
    other = fa.run(experiment, replace(federation, labels=labels), into=tmp_path / "run")
    assert other.tuned == results.tuned
    assert other.tuning.equals(results.tuning)
    assert not other.trials["accuracy"].equals(results.trials["accuracy"])
    assert other.trials["validation_loss"].equals(results.trials["validation_loss"])


def test_tuning_keeps_no_test_statistic(finished):
    folder = RunFolder(finished[2])
    tuning, _ = wanted_pieces(folder)
    for key in tuning:
        floats = [
            name for name, kind in folder.piece(key).frame.schema.items() if kind == pl.Float64
        ]
        statistics = set(floats) - {
            "server_step",
            "local_step",
            "ridge",
            "difference",
            "mixing",
            "inner_step",
        }
        assert statistics == {"validation_accuracy", "validation_loss"}


def test_the_choice_is_the_first_of_the_best_that_did_not_diverge():
    def score(value, validation, diverged=False):
        return Score({"server_step": value}, validation, diverged)

    tried = [
        score(0.1, 0.5),
        score(0.2, 0.9, True),
        score(0.3, 0.7),
        score(0.4, 0.7),
        score(0.5, float("nan")),
    ]
    assert choose_settings(tried, "classification") == {"server_step": 0.3}
    assert choose_settings(tried, "regression") == {"server_step": 0.1}
    assert choose_settings([score(0.1, float("nan"))], "classification") is None
    assert choose_settings([score(0.1, 0.9, True)], "classification") is None


def test_coarse_pieces_give_the_same_numbers_up_to_rounding(finished, tmp_path):
    experiment, results, _ = finished
    coarse = fa.run(experiment.model_copy(update={"pieces": "coarse"}), into=tmp_path / "run")
    assert tables.run_status(tmp_path / "run").finished == 7
    assert coarse.tuned == results.tuned
    for name in ("trials", "gains"):
        ours, theirs = getattr(results, name), getattr(coarse, name)
        assert ours.drop(pl.selectors.float()).equals(theirs.drop(pl.selectors.float()))
        for column in ("loss", "mean_loss", "validation_loss"):
            np.testing.assert_allclose(ours[column], theirs[column], rtol=1e-5)


def test_what_is_no_federation_is_refused(finished, tmp_path):
    with pytest.raises(
        fa.InvalidInput,
        match=r"federation is a list: make one of your data with fa.Federation.from_arrays",
    ):
        fa.run(finished[0], [1, 2], into=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_algorithm_that_only_diverges_is_left_out_and_said(tmp_path):
    data = fa.datasets.synthetic(clients=5, dimension=4, aspect=0.5)
    grid = {"fedavg": {"server_step": [1e8, 1e9]}, "local": {"local_step": [0.01, 0.1]}}
    few = {"rounds": 3, "evaluate_every": 3, "local_steps": 9}
    experiment = fa.Experiment(
        name="a", algorithms=["local", "fedavg"], grid=grid, settings=few, trials={"seeds": 2}
    )
    results = fa.run(experiment, data, into=tmp_path / "run")
    assert set(results.tuned) == {"local"}
    assert any(
        "Nothing is chosen for fedavg" in note and "every configuration diverged" in note
        for note in results.notes
    )
    assert results.trials["algorithm"].unique().to_list() == ["local"]
    assert results.tuning.filter(algorithm="fedavg")["diverged"].all()


def test_regression_is_chosen_by_loss_and_compared_by_loss(tmp_path):
    data = fa.datasets.synthetic(clients=6, dimension=5, aspect=0.4, noise=0.3)
    few = {"rounds": 3, "evaluate_every": 3, "local_steps": 4, "personal_epochs": 1}
    grid = {"server_step": [0.001, 0.1], "local_step": [0.01, 0.1]}
    gains = {"algorithms": ["ftfa"], "epochs": [0, "batch", 1], "seeds": 1}
    experiment = fa.Experiment(
        name="a",
        algorithms=["local", "ftfa"],
        grid=grid,
        settings=few,
        trials={"seeds": 3, "splits": 1},
        gains=gains,
    )
    results = fa.run(experiment, data, into=tmp_path / "run")
    assert results.task == "regression"
    ftfa = results.tuning.filter(algorithm="ftfa")
    assert ftfa.filter(pl.col("chosen"))["validation_loss"].item() == ftfa["validation_loss"].min()
    assert "accuracy" not in results.trials.columns
    pair = results.comparisons(margin=0.5)["seeds", "local", "ftfa"]
    assert pair.difference == pytest.approx(
        results.finals("seeds")["local"].mean() - results.finals("seeds")["ftfa"].mean()
    )
    assert results.comparisons().pairs[0].equivalence is None
    assert "Chosen by validation loss" in str(results)
    again = fa.Results.load(results.save(tmp_path / "tables"))
    assert str(again) == str(results)


def test_a_sweep_tunes_and_tests(tmp_path, federation):
    found = fa.sweep(
        ["fedavg", "ftfa"],
        federation,
        grid={"server_step": [0.1, 1]},
        into=tmp_path / "run",
        evaluate_every=4,
        **COMMON,
    )
    assert set(found.tuned) == {"fedavg", "ftfa"}
    assert found.trials["trial"].unique().to_list() == [1]
    assert found.experiment.trials.splits == ()
    with pytest.raises(fa.InvalidInput, match="did you mean rounds"):
        fa.sweep("fedavg", federation, round=3)


def test_an_experiment_is_run_by_the_path_of_its_file_into_its_own_folder(tmp_path, monkeypatch):
    text = TOML.replace("trials = { seeds = 2, splits = 2 }", "trials = { seeds = 1 }").replace(
        ", local_step = [0.01, 0.3]", ""
    )
    written(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    fa.run("small.toml")
    assert tables.run_status("runs/small").state == "complete"
    assert tables.find_run("small") == tables.find_run("runs/small")


def test_a_private_experiment_trains_privately_and_says_what_it_spends(tmp_path, federation):
    text = TOML.replace('"local", ', "").replace("splits = 2", "splits = 0")
    text = text.partition("gains")[0] + text.partition("seeds = 1 }")[2]
    private = text + "[settings.privacy]\nnoise_multiplier = 2.0\nclip = 0.1\n"
    experiment = fa.Experiment.from_toml(written(tmp_path, private))
    written(tmp_path, experiment.to_toml())
    assert fa.Experiment.from_toml(tmp_path / "small.toml") == experiment
    results = fa.run(experiment, into=tmp_path / "run")
    budget = fa.Privacy(noise_multiplier=2, clip=0.1)
    tuned = results.tuned["fedavg"]
    run = fa.train(
        "fedavg", federation, seed=1, evaluate_every=2, privacy=budget, **tuned, **COMMON
    )
    mine = results.trials.filter(sweep="seeds", algorithm="fedavg", trial=1)
    np.testing.assert_allclose(mine["loss"], run.loss, rtol=1e-6)
    (note,) = (note for note in results.notes if note.startswith("Privacy"))
    assert f"one training spends epsilon {run.privacy.epsilon:.5g} at delta 1e-06" in note
    assert "The 2 shared models of the grid" in note  # ftfa's are fedavg's
    assert "Privacy: one training" in str(results).replace("\n", " ")
