"""Results of training: every statistic against a plain loop, choosing by validation, texts, tables, JSON and figures."""

import json
import math
import xml.etree.ElementTree as ET
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

import fedasym as fa
from fedasym.algorithms import TRAINED, Algorithm, Average, Descend
from fedasym.federations.federation import Federation
from fedasym.figures import training as figure
from fedasym.training import twin
from fedasym.training.histories import Histories
from fedasym.training.history import History
from fedasym.training.settings import CODE, TEXT, Settings, resolve_ridge

ROUNDS = [0, 10, 20]


def data(tests=(4, 0, 2, 6), validations=(2, 2, 0, 4), trains=(3, 3, 3, 3), task="classification"):
    """A federation with these numbers of samples."""
    split = [
        code for sizes in zip(trains, validations, tests, strict=True) for code, size in enumerate(sizes) for _ in range(size)
    ]
    owner = [f"c{i}" for i, sizes in enumerate(zip(trains, validations, tests, strict=True)) for _ in range(sum(sizes))]
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, len(split)) if task == "classification" else rng.normal(size=len(split))
    return Federation.from_arrays(rng.normal(size=(len(split), 2)), labels, clients=owner, split=split)


def totals_of(federation):
    return np.stack([federation.counts("validation"), federation.counts("test")], axis=1)


def history(name="rtfa", federation=None, *, seed=0, share=None, protocol=TEXT, gap=0.0, rounds=ROUNDS, **more):
    """A run in which `share` of each client's samples are right, or random counts."""
    federation = data() if federation is None else federation
    fields = {key: more.pop(key) for key in ("diverged", "interrupted", "shared", "algorithm") if key in more}
    algorithm = fields.pop("algorithm", None) or TRAINED[name]
    settings = resolve_ridge(Settings(rounds=rounds[-1], evaluate_every=10, **more), algorithm)
    totals = totals_of(federation)
    shape = (len(rounds), *totals.shape)
    rng = np.random.default_rng(seed)
    correct = np.floor(rng.random(shape) * (totals + 1)) if share is None else np.broadcast_to(share * totals, shape).copy()
    shared_correct = np.floor(rng.random(shape) * (totals + 1)) if share is None else (share - gap) * np.ones(shape) * totals
    losses, shared_losses = 2.0 * (totals - correct), 2.0 * (totals - shared_correct)
    if fields.get("diverged") is not None:
        for each in (correct, losses, shared_correct, shared_losses):
            each[np.array(rounds) >= fields["diverged"]] = np.nan
    if federation.task == "regression":
        correct, shared_correct = np.full(shape, np.nan), np.full(shape, np.nan)
    return History(
        algorithm=algorithm, settings=settings, protocol=protocol, seed=seed, federation=federation, rounds=np.array(rounds),
        correct=correct, losses=losses, shared_correct=shared_correct, shared_losses=shared_losses, totals=totals,
        **({"shared": None} | fields),
    )  # fmt: skip


# Statistics


def by_hand(run, r):
    """All statistics of one round, by plain loops."""
    clients = range(len(run.totals))
    tested = [i for i in clients if run.totals[i, 1] > 0]
    own = [run.correct[r, i, 1] / run.totals[i, 1] for i in tested]
    worst = sorted(own)[: math.ceil(len(own) / 10)]
    return {
        "accuracy": sum(run.correct[r, i, 1] for i in tested) / sum(run.totals[i, 1] for i in clients),
        "validation_accuracy": sum(run.correct[r, i, 0] for i in clients) / sum(run.totals[i, 0] for i in clients),
        "shared_accuracy": sum(run.shared_correct[r, i, 1] for i in tested) / sum(run.totals[i, 1] for i in clients),
        "mean_accuracy": sum(own) / len(own),
        "worst_decile": sum(worst) / len(worst),
        "hurt": sum(run.correct[r, i, 1] < run.shared_correct[r, i, 1] for i in tested) / len(tested),
        "loss": sum(run.losses[r, i, 1] for i in tested) / sum(run.totals[i, 1] for i in clients),
        "validation_loss": sum(run.losses[r, i, 0] for i in clients) / sum(run.totals[i, 0] for i in clients),
        "shared_loss": sum(run.shared_losses[r, i, 1] for i in tested) / sum(run.totals[i, 1] for i in clients),
        "mean_loss": sum(run.losses[r, i, 1] / run.totals[i, 1] for i in tested) / len(tested),
    }


@pytest.mark.parametrize("clients", [1, 4, 9, 10, 11, 20, 31])
def test_statistics_are_those_of_a_plain_loop(clients):
    rng = np.random.default_rng(clients)
    tests = rng.integers(0, 7, clients)
    tests[0] = 5
    run = history(federation=data(tests, rng.integers(1, 4, clients), np.full(clients, 2)), seed=clients)
    for r in range(len(ROUNDS)):
        for name, value in by_hand(run, r).items():
            np.testing.assert_allclose(getattr(run, name)[r], value, rtol=1e-14, err_msg=name)


def test_numbers_worked_out_on_paper():
    run = history(rounds=[0])
    run.correct[0, :, 1], run.shared_correct[0, :, 1] = [3, 0, 1, 3], [2, 0, 2, 3]
    assert run.accuracy.tolist() == [7 / 12]  # 3 + 1 + 3 of 4 + 2 + 6; the second client has no test samples
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
    for name in ("accuracy", "validation_accuracy", "shared_accuracy", "mean_accuracy", "worst_decile"):
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


# One run: tables, texts, models


def test_records_by_round_and_by_client():
    run = history(seed=4)
    records = run.table()
    assert [record["round"] for record in records] == ROUNDS
    assert run.final["accuracy"] == records[-1]["accuracy"] == run.accuracy[-1]
    assert list(pd.DataFrame(records)) == [
        "algorithm", "seed", "round", "accuracy", "validation_accuracy", "shared_accuracy", "mean_accuracy", "worst_decile",
        "hurt", "loss", "validation_loss", "shared_loss", "mean_loss",
    ]  # fmt: skip
    middle = run.clients(round=10)
    assert middle[3]["accuracy"] == run.correct[1, 3, 1] / 6
    assert middle[3]["shared_loss"] == run.shared_losses[1, 3, 1] / 6
    with pytest.raises(fa.InvalidInput, match="round is 5: the clients were tested after rounds 0, 10, 20"):
        run.clients(round=5)


def test_the_text_says_what_was_run():
    text = str(history(seed=4, server_step=0.25, share=0.5, gap=0.25))
    for word in ("rtfa", "server_step 0.25", "ridge 0.1", "protocol text", "seed 4", "50.00%", "25.00%", "clients' mean"):
        assert word in text
    for word in ("difference", "inner_step", "mixing"):  # rtfa does not use them
        assert word not in text
    assert "1 of 4 clients" in text
    assert repr(history(seed=4)) == str(history(seed=4))
    assert history()._repr_html_().startswith("<pre>rtfa")


def test_clients_without_training_samples_are_named():
    federation = data(trains=(3, 0, 3, 0))
    assert "Without training samples: 2 of 4 clients; their personal model is the shared model." in str(
        history(federation=federation)
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
        run, **{name: np.array(held[name], float) for name in ("correct", "losses", "shared_correct", "shared_losses")}
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
    settings = resolve_ridge(Settings(rounds=4, evaluate_every=4, local_steps=3, batch=2, personal_epochs=2), TRAINED[name])
    last = list(twin.run(TRAINED[name], federation, settings, protocol, seed=3))[-1]
    shared = None if name == "local" else last.shared.astype(np.float32)
    run = replace(history(name, federation, protocol=protocol, shared=shared, rounds=[0, 4]), settings=settings, seed=3)
    x = np.random.default_rng(1).normal(size=(7, 2))
    with_one = np.column_stack([x, np.ones(7)]) if protocol.bias else x
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
            assert run.predict(x, client).tolist() == [federation.classes[code] for code in outputs.argmax(1)]
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


# Several runs: choosing and comparing


@pytest.fixture
def grid():
    """Two algorithms, three server steps, two seeds; the middle step validates best and the largest diverges for ftfa."""
    federation = data([10] * 4, [10] * 4, [2] * 4)
    runs = []
    for name, base in (("ftfa", 0.5), ("rtfa", 0.6)):
        for step, plus in ((0.01, 0.0), (0.1, 0.2), (1.0, 0.1)):
            for seed in (1, 2):
                diverged = 10 if name == "ftfa" and step == 1 and seed == 2 else None
                runs.append(
                    history(name, federation, seed=seed, share=base + plus + 0.01 * seed, server_step=step, diverged=diverged)
                )
    return Histories(runs)


def test_it_is_a_sequence(grid):
    assert len(grid) == 12
    assert grid[-1] is grid.runs[-1]
    assert list(grid[:2]) == list(grid.runs[:2])
    assert isinstance(grid[2:4], Histories)
    assert grid.algorithms == ["ftfa", "rtfa"]
    with pytest.raises(fa.InvalidInput, match="no runs"):
        Histories(())
    with pytest.raises(fa.InvalidInput, match="different clients"):
        Histories([grid[0], history(federation=data([4] * 3, [1] * 3, [1] * 3))])


def test_groups_are_configurations_with_their_seeds(grid):
    groups = grid.groups()
    assert len(groups) == 6
    assert [group.seeds for group in groups] == [[1, 2]] * 6
    assert groups[1].settings["server_step"] == 0.1
    np.testing.assert_allclose(groups[1].finals("accuracy"), [0.71, 0.72], rtol=1e-14)
    assert groups[2].diverged == 10


def test_the_best_by_validation_of_each_algorithm_with_all_seeds(grid):
    best = grid.best()
    assert [(run.algorithm.name, run.settings.server_step, run.seed) for run in best] == [
        ("ftfa", 0.1, 1), ("ftfa", 0.1, 2), ("rtfa", 0.1, 1), ("rtfa", 0.1, 2),
    ]  # fmt: skip
    assert "best by validation of the configurations tried: ftfa 3, rtfa 3" in str(best)


def test_test_samples_choose_nothing(grid):
    for run in grid:  # the worst in validation is perfect on test
        run.correct[:, :, 1] = run.totals[:, 1] if run.settings.server_step == 0.01 else 0
    assert {run.settings.server_step for run in grid.best()} == {0.1}
    with pytest.raises(fa.InvalidInput, match='by "validation" only'):
        grid.best(by="test")


def test_a_configuration_that_diverged_for_one_seed_never_wins(grid):
    for run in grid.select(server_step=1.0):
        if run.diverged is None:
            run.correct[:, :, 0] = run.totals[:, 0]
    assert {run.settings.server_step for run in grid.best().select(algorithm="ftfa")} == {0.1}
    assert {run.settings.server_step for run in grid.best().select(algorithm="rtfa")} == {1.0}
    assert "round 10" in str(grid)
    assert "1 configuration of 6" in str(grid)


def test_an_algorithm_that_always_diverged_is_left_out_and_named(grid):
    runs = Histories([replace(run, diverged=0) if run.algorithm.name == "ftfa" else run for run in grid])
    assert runs.best().algorithms == ["rtfa"]
    assert "Left out: ftfa, as every configuration diverged: try smaller steps." in str(runs.best())
    assert "Nothing is chosen for ftfa" in str(runs)
    with pytest.raises(fa.InvalidInput, match="every configuration diverged"):
        runs.select(algorithm="ftfa").best()


def test_without_validation_samples_nothing_is_chosen():
    federation = data([4] * 3, [0] * 3, [2] * 3)
    several = Histories([history("ftfa", federation, server_step=step) for step in (0.1, 0.2)])
    with pytest.raises(fa.InvalidInput, match="no validation samples: resplit"):
        several.best()
    assert "no validation samples" in str(several)
    assert "* " not in str(several)
    alone = Histories([history("ftfa", federation)])
    assert len(alone.best()) == 1


def test_regression_chooses_the_lowest_loss():
    federation = data(task="regression")
    runs = Histories([history("ftfa", federation, share=share, local_step=step) for share, step in ((0.5, 0.1), (0.7, 0.2))])
    assert [run.settings.local_step for run in runs.best()] == [0.2]
    assert "validation loss" in str(runs)


def test_interrupted_configurations_do_not_beat_whole_ones(grid):
    cut = history("rtfa", grid[0].federation, seed=1, share=0.99, server_step=5.0, rounds=[0, 10], interrupted=True)
    runs = Histories([*grid, cut])
    assert {run.settings.server_step for run in runs.best().select(algorithm="rtfa")} == {0.1}
    assert "Interrupted: 1 configuration of 7" in str(runs)


def test_seeds_that_stopped_at_different_rounds_are_compared_where_both_were_tested():
    federation = data()
    runs = Histories(
        [history(federation=federation, seed=1), history(federation=federation, seed=2, rounds=[0, 10], interrupted=True)]
    )
    runs = Histories([runs[0], replace(runs[1], settings=runs[0].settings)])
    (group,) = runs.groups()
    assert group.rounds == [0, 10]
    np.testing.assert_array_equal(group.finals("accuracy"), [runs[0].accuracy[1], runs[1].accuracy[1]])


def test_selecting(grid):
    assert len(grid.select(server_step=0.1)) == 4
    assert len(grid.select(server_step=10**-1.0, algorithm="rtfa", seed=2)) == 1
    assert len(grid.select(server_step=[0.1, 1], seed=1)) == 4
    assert len(grid.select(ridge=0.1)) == 6  # ftfa has no ridge
    assert len(grid.select(protocol="text")) == 12
    with pytest.raises(fa.InvalidInput, match=r"no run has server_step 0\.3: they have 0\.01, 0\.1, 1"):
        grid.select(server_step=0.3)
    with pytest.raises(fa.InvalidInput, match="did you mean server_step"):
        grid.select(serverstep=0.3)
    with pytest.raises(fa.InvalidInput, match="no run has algorithm fedavg: they have ftfa, rtfa"):
        grid.select(algorithm="fedavg")
    with pytest.raises(fa.InvalidInput, match="do not use it"):
        grid.select(mixing=1.0)


def test_the_table_of_configurations(grid):
    lines = str(grid).split("\n")
    head = next(line for line in lines if "worst–best" in line)
    assert "server_step" in head
    assert "batch" not in head  # the same for all: in the title
    assert "batch 32" in lines[0]
    starred = [line.split() for line in lines if line.startswith("* ") and "%" in line]
    assert [row[:3] for row in starred] == [["*", "ftfa", "0.1"], ["*", "rtfa", "0.1"]]
    assert "71.50%  71.00–72.00%" in str(grid)
    assert "Configurations tried: ftfa 3, rtfa 3." in str(grid)
    assert 'add "local"' in str(grid)
    assert "Tuning budgets differ" in str(Histories([*grid.runs[:2], *grid.runs[6:]]))


def test_a_choice_at_the_end_of_its_grid_is_mentioned(grid):
    for run in grid.select(algorithm="rtfa", server_step=1.0):
        run.correct[:, :, 0] = run.totals[:, 0]
    assert "rtfa: server_step 1 is the largest tried; the best may lie beyond." in str(grid)
    assert "ftfa: server_step" not in str(grid)


def test_long_tables_are_cut_and_keep_each_algorithms_best():
    federation = data([10] * 4, [10] * 4, [2] * 4)
    runs = [
        history(name, federation, share=0.5 + 0.004 * i, local_step=0.01 * (i + 1))
        for name in ("ftfa", "rtfa")
        for i in range(60)
    ]
    text = str(Histories(runs))
    assert "and 80 more: .table()" in text
    assert text.count("*  ") == 2
    assert len(text.split("\n")) < 60


def test_under_two_protocols_each_stands_for_itself(grid):
    again = [replace(run, protocol=CODE) for run in grid]
    runs = Histories([*grid, *again])
    assert list(runs.ranked()) == ["ftfa, text", "ftfa, code", "rtfa, text", "rtfa, code"]
    assert len(runs.best()) == 8
    assert len(runs.select(protocol="code")) == 12


def test_records_of_all_runs_have_the_same_columns(grid):
    records = grid.table()
    assert len(records) == 36
    assert len({tuple(record) for record in records}) == 1
    frame = pd.DataFrame(records)
    assert frame.query("algorithm == 'ftfa'").ridge.isna().all()
    chosen = frame.query("algorithm == 'rtfa' and server_step == 0.1 and round == 20 and seed == 2")
    np.testing.assert_allclose(chosen.accuracy, 0.82, rtol=1e-14)


def test_all_runs_as_json(grid):
    held = json.loads(grid.to_json())
    assert len(held["runs"]) == 12
    assert held["runs"][3]["statistics"]["accuracy"] == grid[3].accuracy.tolist()
    assert held["runs"][5]["statistics"]["accuracy"] == [grid[5].accuracy[0], None, None]
    assert held["runs"][5]["diverged"] == 10
    assert held["chosen"]["rtfa"]["settings"]["server_step"] == 0.1
    assert held["chosen"]["rtfa"]["seeds"] == [1, 2]


# Figures


@pytest.fixture
def drawn(monkeypatch):
    """The axes of what is drawn, kept from being forgotten."""
    kept = []
    make = figure.canvas

    def canvas(*size):
        kept.append(make(*size))
        return kept[-1]

    monkeypatch.setattr(figure, "canvas", canvas)
    return kept


def test_a_line_per_algorithm_and_a_band_over_seeds(grid, drawn, tmp_path):
    for run in grid:
        run.correct[0] *= 0.5  # a curve that rises
    target = grid.plot(tmp_path / "grid.png")
    assert target.stat().st_size > 3000
    (_, axes) = drawn[0]
    lines = {line.get_label().split()[0]: line for line in axes.get_lines()}
    assert list(lines) == ["ftfa", "rtfa"]
    np.testing.assert_allclose(lines["ftfa"].get_ydata(), [35.75, 71.5, 71.5], rtol=1e-12)
    np.testing.assert_allclose(lines["rtfa"].get_xdata(), ROUNDS)
    assert len(axes.collections) == 2
    band = axes.collections[1].get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose([band.min(), band.max()], [40.5, 82], rtol=1e-12)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["rtfa  81.5 %", "ftfa  71.5 %"]


def test_one_algorithm_also_shows_its_shared_model(drawn, tmp_path):
    history(share=0.8, gap=0.1).plot(tmp_path / "one.png")
    assert [line.get_label() for line in drawn[0][1].get_lines()] == ["rtfa  80.0 %", "shared model  70.0 %"]
    history("fedavg", share=0.8).plot(tmp_path / "same.png")  # personal models are the shared one
    assert len(drawn[1][1].get_lines()) == 1
    history("local", share=0.8, gap=0.1).plot(tmp_path / "local.png")
    assert len(drawn[2][1].get_lines()) == 1
    assert drawn[2][1].get_xlabel() == "epochs"


def test_an_untrained_start_does_not_flatten_the_rest(drawn, tmp_path):
    run = history(federation=data([1000] * 2, [1] * 2, [1] * 2), share=0.8)
    run.correct[0] = 0
    run.plot(tmp_path / "start.png")
    low, high = drawn[0][1].get_ylim()
    assert 60 < low < 80 < high


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_regression_draws_losses_and_leaves_matplotlib_alone(kind, drawn, tmp_path):
    before = dict(mpl.rcParams)
    run = history(federation=data(task="regression"), seed=1)
    assert run.plot(tmp_path / f"loss.{kind}").stat().st_size > 3000
    assert dict(mpl.rcParams) == before
    np.testing.assert_allclose(drawn[0][1].get_lines()[0].get_ydata(), run.loss)
    assert "loss" in drawn[0][1].get_ylabel()


@pytest.mark.parametrize("diverged", [0, 10])
def test_a_diverged_run_is_drawn_as_far_as_it_went(diverged, drawn, tmp_path):
    history(share=0.5, diverged=diverged, gap=0.1).plot(tmp_path / "diverged.png")
    assert drawn[0][1].get_legend().get_texts()[0].get_text() == "rtfa  diverged"


def test_words_are_in_the_figure(grid, tmp_path):
    runs = Histories([*grid, *(replace(run, algorithm=TRAINED["maml_hf"], diverged=0) for run in grid.runs[6:])])
    with mpl.rc_context({"svg.fonttype": "none"}):
        words = " ".join(ET.parse(runs.plot(tmp_path / "grid.svg")).getroot().itertext())
    for word in (
        "rounds",
        "test accuracy",
        "4 clients",
        "best by validation of 3 configurations",
        "maml_hf not drawn",
        "2 seeds",
    ):
        assert word in words
    with pytest.raises(fa.InvalidInput, match="nothing to draw"):
        runs.select(algorithm="maml_hf").plot(tmp_path / "none.png")


def test_every_line_can_be_told_apart(grid, drawn, tmp_path):
    federation = grid[0].federation
    own = [Algorithm(f"own {i}", Average(), Descend(0.1, i)) for i in range(2)]
    algorithms = [TRAINED[name] for name in ("local", "fedavg", "ftfa", "rtfa", "maml", "maml_fo", "maml_hf", "pfedme")] + own
    runs = [
        history(federation=federation, algorithm=algorithm, share=0.5, protocol=p)
        for algorithm in algorithms
        for p in (TEXT, CODE)
    ]
    Histories(runs[::2]).plot(tmp_path / "one.png")
    assert len({line.get_color() for line in drawn[0][1].get_lines()}) == 10
    Histories(runs).plot(tmp_path / "two.png")
    looks = {(line.get_color(), line.get_linestyle()) for line in drawn[1][1].get_lines()}
    assert len(looks) == 20


def test_without_a_path_the_figure_lands_here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert history(share=0.5).plot().resolve() == tmp_path / "training.png"
