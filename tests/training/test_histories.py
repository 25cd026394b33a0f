"""Several runs: chosen by validation, compared, selected, as a table and as JSON."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fedasym as fa
from fedasym.training.histories import Histories
from fedasym.training.settings import CODE

from .invented import data, history


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
    best = grid.choose()
    assert [(run.algorithm.name, run.settings.server_step, run.seed) for run in best] == [
        ("ftfa", 0.1, 1), ("ftfa", 0.1, 2), ("rtfa", 0.1, 1), ("rtfa", 0.1, 2),
    ]  # fmt: skip
    assert "best by validation of the configurations tried: ftfa 3, rtfa 3" in str(best)


def test_test_samples_choose_nothing(grid):
    for run in grid:  # the worst in validation is perfect on test
        run.correct[:, :, 1] = run.totals[:, 1] if run.settings.server_step == 0.01 else 0
    assert {run.settings.server_step for run in grid.choose()} == {0.1}
    with pytest.raises(fa.InvalidInput, match='by "validation" only'):
        grid.choose(by="test")


def test_a_configuration_that_diverged_for_one_seed_never_wins(grid):
    for run in grid.select(server_step=1.0):
        if run.diverged is None:
            run.correct[:, :, 0] = run.totals[:, 0]
    assert {run.settings.server_step for run in grid.choose().select(algorithm="ftfa")} == {0.1}
    assert {run.settings.server_step for run in grid.choose().select(algorithm="rtfa")} == {1.0}
    assert "round 10" in str(grid)
    assert "1 configuration of 6" in str(grid)


def test_an_algorithm_that_always_diverged_is_left_out_and_named(grid):
    runs = Histories(
        [replace(run, diverged=0) if run.algorithm.name == "ftfa" else run for run in grid]
    )
    assert runs.choose().algorithms == ["rtfa"]
    assert "Left out: ftfa, as every configuration diverged: try smaller steps." in str(
        runs.choose()
    )
    assert "Nothing is chosen for ftfa" in str(runs)
    with pytest.raises(fa.InvalidInput, match="every configuration diverged"):
        runs.select(algorithm="ftfa").choose()


def test_without_validation_samples_nothing_is_chosen():
    federation = data([4] * 3, [0] * 3, [2] * 3)
    several = Histories([history("ftfa", federation, server_step=step) for step in (0.1, 0.2)])
    with pytest.raises(fa.InvalidInput, match="no validation samples: resplit"):
        several.choose()
    assert "no validation samples" in str(several)
    assert "* " not in str(several)
    alone = Histories([history("ftfa", federation)])
    assert len(alone.choose()) == 1


def test_regression_chooses_the_lowest_loss():
    federation = data(task="regression")
    runs = Histories(
        [
            history("ftfa", federation, share=share, local_step=step)
            for share, step in ((0.5, 0.1), (0.7, 0.2))
        ]
    )
    assert [run.settings.local_step for run in runs.choose()] == [0.2]
    assert "validation loss" in str(runs)


def test_interrupted_configurations_do_not_beat_whole_ones(grid):
    cut = history(
        "rtfa",
        grid[0].federation,
        seed=1,
        share=0.99,
        server_step=5.0,
        rounds=[0, 10],
        interrupted=True,
    )
    runs = Histories([*grid, cut])
    assert {run.settings.server_step for run in runs.choose().select(algorithm="rtfa")} == {0.1}
    assert "Interrupted: 1 configuration of 7" in str(runs)


def test_seeds_that_stopped_at_different_rounds_are_compared_where_both_were_tested():
    federation = data()
    runs = Histories(
        [
            history(federation=federation, seed=1),
            history(federation=federation, seed=2, rounds=[0, 10], interrupted=True),
        ]
    )
    runs = Histories([runs[0], replace(runs[1], settings=runs[0].settings)])
    (group,) = runs.groups()
    assert group.rounds == [0, 10]
    np.testing.assert_array_equal(
        group.finals("accuracy"), [runs[0].accuracy[1], runs[1].accuracy[1]]
    )


def test_selecting(grid):
    assert len(grid.select(server_step=0.1)) == 4
    assert len(grid.select(server_step=10**-1.0, algorithm="rtfa", seed=2)) == 1
    assert len(grid.select(server_step=[0.1, 1], seed=1)) == 4
    assert len(grid.select(ridge=0.1)) == 6  # ftfa has no ridge
    assert len(grid.select(protocol="text")) == 12
    with pytest.raises(
        fa.InvalidInput, match=r"no run has server_step 0\.3: they have 0\.01, 0\.1, 1"
    ):
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
    assert "71.50%  0.71  71.00–72.00%" in str(grid)
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
    assert list(runs.rank_configurations()) == [
        "ftfa, text",
        "ftfa, code",
        "rtfa, text",
        "rtfa, code",
    ]
    assert len(runs.choose()) == 8
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
