"""Results: tables that survive saving, tests that agree with other libraries, budgets that can be
counted by hand.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy import stats

import fedasym as fa
from fedasym.experiments import plan, tables
from fedasym.experiments.execution import Pace, estimate_work
from fedasym.experiments.fields import record_data
from fedasym.experiments.results import describe_budget
from fedasym.training.comparisons import compare_finals, compare_pair, sign_flips

from .small import flipped


@pytest.fixture(scope="module")
def results(finished):
    return finished[1]


def test_tables_have_the_columns_that_others_build_on(results):
    settings = ["server_step", "local_step"]
    assert results.tuning.columns == [
        "algorithm",
        *settings,
        "validation_accuracy",
        "chosen",
        "diverged",
    ]
    statistics = [
        "accuracy",
        "validation_accuracy",
        "shared_accuracy",
        "mean_accuracy",
        "worst_decile",
        "hurt",
    ]
    losses = ["loss", "validation_loss", "shared_loss", "mean_loss"]
    assert results.trials.columns == [
        "sweep",
        "algorithm",
        "trial",
        "round",
        *statistics,
        *losses,
        "diverged",
    ]
    assert results.gains.columns == [
        "algorithm",
        "epochs",
        "trial",
        "round",
        *statistics,
        *losses,
        "diverged",
    ]
    clients = ["tested", "accuracy", "shared_accuracy", "loss", "shared_loss", "gain"]
    assert results.clients.columns == ["sweep", "algorithm", "trial", "client", "samples", *clients]
    assert results.tuning.height == 2 + 2 + 4
    assert results.tuning.group_by("algorithm").agg(pl.col("chosen").sum())["chosen"].to_list() == [
        1,
        1,
        1,
    ]
    assert results.trials.height == 2 * 3 * 2 * 3
    assert results.gains.height == 3 * 3
    assert results.clients.height == 2 * 3 * 2 * 8
    assert results.trials["algorithm"].unique(maintain_order=True).to_list() == [
        "local",
        "fedavg",
        "ftfa",
    ]


def test_pooled_and_mean_accuracy_come_from_the_clients(results):
    last = results.trials.filter(round=4)
    for row in last.iter_rows(named=True):
        mine = results.clients.filter(
            sweep=row["sweep"], algorithm=row["algorithm"], trial=row["trial"]
        )
        right = (mine["accuracy"] * mine["tested"]).sum()
        assert row["accuracy"] == pytest.approx(right / mine["tested"].sum())
        assert row["mean_accuracy"] == pytest.approx(mine["accuracy"].mean())
        assert row["worst_decile"] == pytest.approx(mine["accuracy"].min())


def test_saved_tables_come_back_without_the_run(results, tmp_path):
    again = fa.Results.load(results.save(tmp_path / "tables"))
    for name in ("tuning", "trials", "gains", "clients"):
        assert getattr(again, name).equals(getattr(results, name)), name
        assert getattr(again, name).schema == getattr(results, name).schema
    assert again.tuned == results.tuned
    assert str(again) == str(results)
    assert again.to_json() == results.to_json()
    assert sum(file.stat().st_size for file in (tmp_path / "tables").iterdir()) < 50_000
    (tmp_path / "tables" / "trials.csv").unlink()
    with pytest.raises(fa.InvalidInput, match="does not hold saved results"):
        fa.Results.load(tmp_path / "tables")


def test_tables_that_no_version_wrote_so_are_refused(results, tmp_path):
    folder = results.save(tmp_path / "tables")
    with pytest.raises(fa.InvalidInput, match=r"trials.csv': it cannot be made: "):
        results.save(folder / "trials.csv")
    trials = (folder / "trials.csv").read_text()
    (folder / "trials.csv").write_text(trials.replace("seeds", "", 1))
    with pytest.raises(fa.InvalidInput, match=r"trials\.csv lacks a value"):
        fa.Results.load(folder)
    (folder / "trials.csv").write_text(trials)
    summary = folder / tables.SUMMARY
    summary.write_text(json.dumps(json.loads(summary.read_text()) | {"format": "results 0"}))
    with pytest.raises(fa.InvalidInput, match="holds 'results 0', and this version reads"):
        fa.Results.load(folder)


def test_a_flipped_bit_in_saved_clients_is_said(results, tmp_path):
    file = results.save(tmp_path / "tables") / "clients.parquet"
    file.write_bytes(flipped(file.read_bytes(), file.stat().st_size // 3))
    with pytest.raises(
        fa.InvalidInput,
        match=r"does not hold saved results: the bytes of clients\.parquet have changed",
    ):
        fa.Results.load(file.parent)


def test_saved_tables_hold_no_path_of_this_machine(results, tmp_path):
    path = tmp_path / "clients.safetensors"
    path.write_bytes(b"")
    moved = replace(results, experiment=results.experiment.with_data(path))
    folder = moved.save(tmp_path / "tables")
    for file in folder.iterdir():
        assert str(tmp_path).encode() not in file.read_bytes(), file.name


def test_it_prints_the_papers_table(results):
    text = str(results)
    assert (
        "Chosen by validation accuracy after the last round, seed 1; test samples choose nothing."
        in text
    )
    assert (
        "Seeds 1, 2: seeds of training, same samples; mean and standard deviation over trials after round 4."
        in text
    )
    assert "clients' mean  worst decile" in text
    ftfa = results.finals("seeds")["ftfa"]
    assert f"{ftfa.mean():.2%}" in text
    assert f"{ftfa.min():.2%}".rstrip("%") + "–" + f"{ftfa.max():.2%}" in text
    assert "Gains of personalization" in text
    assert "one batch" in text
    assert results._repr_html_().count("<table>") == 4
    latex = results.to_latex()
    assert latex.count(r"\begin{tabular}") == 4
    assert r"& $\pm$ sd &" in latex
    row = next(row for row in results.table() if row["algorithm"] == "ftfa")
    assert row["deviation"] == pytest.approx(ftfa.std(ddof=1))
    held = json.loads(results.to_json())
    assert held["tuned"] == results.tuned
    assert len(held["trials"]) == results.trials.height
    assert held["trials"][0]["shared_accuracy"] is None  # local shares nothing
    with pytest.raises(fa.InvalidInput, match="statistic is 'precision'"):
        results.finals("seeds", "precision")


def test_budgets_can_be_counted_by_hand(results):
    ftfa = next(line for line in results.budget if line.startswith("ftfa"))
    batches = sum(-(-n // 32) for n in results.data.training)
    assert "4 configurations tried with seed 1, then seeds 1, 2 and splits 1, 2" in ftfa
    assert "4 rounds of 3 clients with 3 steps, 36 in all" in ftfa
    assert f"2 epochs of each client's own, {2 * batches} steps in all" in ftfa
    assert f"4 epochs of each client's own, {4 * batches} steps" in next(
        line for line in results.budget if "local:" in line
    )
    assert results.budget[-1].startswith("Tuning budgets differ, ftfa 4 and local 2")


def test_maml_and_pfedme_take_more_gradients():
    data = record_data(
        fa.datasets.synthetic(
            task="classification", clients=30, dimension=5, classes=2, aspect=0.1
        ),
        (),
    )
    lines = {
        line.split(":")[0]: line for line in describe_budget(fa.Experiment.paper("emnist"), data)
    }
    assert "160,000 in all;" in lines["ftfa"]
    assert "160,000 in all, of 2 gradients each" in lines["maml_fo"]
    assert "160,000 in all, of 4 gradients each" in lines["maml_hf"]
    assert "160,000 in all, of 5 gradients each" in lines["pfedme"]
    assert "125 configurations" in lines["rtfa"]


def test_work_counts_a_shared_trajectory_once():
    experiment = fa.Experiment.paper("emnist")
    data = record_data(
        fa.datasets.synthetic(
            task="classification", clients=30, dimension=5, classes=2, aspect=0.1
        ),
        (),
    )
    batches = sum(-(-n // 32) for n in data.training)
    shared = plan.tuning(experiment)[1]  # fedavg, ftfa and rtfa at one server step
    assert (
        estimate_work(shared, data) == 400 * 20 * 20 + (5 + 25) * 10 * batches
    )  # tested after the last round alone
    maml = plan.tuning(experiment)[7]  # maml_fo: a trajectory for each local step
    assert estimate_work(maml, data) == 5 * (2 * 400 * 20 * 20 + 10 * batches)


def test_the_time_left_goes_by_pieces_of_the_same_kind():
    pace = Pace({"a": ("x", 1.0), "b": ("x", 1.0), "c": ("y", 10.0), "d": ("z", 2.0)})
    assert pace.seconds_left() is None
    pace.finish_piece("a", 3.0)
    pace.finish_piece("c", 5.0)
    assert pace.seconds_left() == pytest.approx(3.0 + 2 * 8 / 11)
    assert pace.seconds_left({"b": 0.5}) == pytest.approx(1.5 + 2 * 8 / 11)
    assert pace.share() == pytest.approx(11 / 14)
    assert pace.share({"d": 0.5, "a": 0.9, "gone": 0.9}) == pytest.approx(12 / 14)
    pace.hands = 2
    assert pace.seconds_left() == pytest.approx(1.5 + 8 / 11)


@pytest.mark.parametrize(("n", "shift"), [(5, 0.0), (11, 0.002), (11, 0.01), (30, 0.0005)])
def test_tests_agree_with_other_libraries(n, shift):
    from statsmodels.stats.weightstats import ttost_paired

    rng = np.random.default_rng(n)
    first = 0.8 + 0.004 * rng.standard_normal(n)
    second = first - shift + 0.003 * rng.standard_normal(n)
    pair = compare_pair("seeds", "a", "b", first - second, 0.005)
    t = stats.ttest_rel(first, second)
    low, high = t.confidence_interval(0.95)
    assert pair.p == pytest.approx(t.pvalue, rel=1e-9)
    assert (pair.low, pair.high) == pytest.approx((low, high), rel=1e-9)
    assert pair.equivalence == pytest.approx(
        ttost_paired(first, second, -0.005, 0.005)[0], rel=1e-9
    )
    by_signs = stats.permutation_test(
        (first - second,),
        np.mean,
        permutation_type="samples",
        n_resamples=2**n if n <= 12 else 20_000,
        rng=0,
    )
    assert pair.permutation == pytest.approx(
        by_signs.pvalue, rel=1e-9 if n <= 12 else 0.2, abs=0 if n <= 12 else 0.01
    )


def test_verdicts_in_words():
    rng = np.random.default_rng(0)
    noise = 0.0005 * rng.standard_normal(11)
    assert compare_pair("s", "a", "b", 0.02 + noise, 0.005).verdict == "different"
    assert (
        compare_pair("s", "a", "b", 0.002 + noise, 0.005).verdict
        == "different, but within the margin"
    )
    assert (
        compare_pair("s", "a", "b", noise - noise.mean(), 0.005).verdict
        == "the same within the margin"
    )
    assert compare_pair("s", "a", "b", 60 * noise, 0.005).verdict == "no difference found"
    assert compare_pair("s", "a", "b", np.zeros(4), 0.005).verdict == "the same within the margin"
    same = compare_pair("s", "a", "b", np.full(4, 0.25), None)
    assert (same.p, same.equivalence, same.low, same.high) == (0.0, None, 0.25, 0.25)
    rounded = compare_pair(
        "s", "a", "b", np.array([0.81 - 0.8, 0.71 - 0.7, 0.31 - 0.3]), 0.005
    )  # no warning of lost digits
    assert (rounded.p, rounded.equivalence) == (0.0, 1.0)
    lost = compare_pair("s", "a", "b", np.array([0.1, np.nan, 0.2]), 0.005)
    assert lost.verdict == "-"
    assert np.isnan(lost.p)
    assert np.isnan(lost.permutation)
    assert (
        compare_pair("s", "a", "b", 0.02 + noise[:4], None).verdict == "different"
    )  # 4 trials: signs alone cannot tell


def test_signs_are_flipped_exactly_or_many_times():
    assert sign_flips(np.array([1.0, -1.0])) == 1.0
    assert sign_flips(np.ones(11)) == pytest.approx(2 / 2**11)
    assert sign_flips(np.ones(40)) == pytest.approx(1 / 100_001)


def test_comparisons_of_results(results):
    everything = results.comparisons()
    assert [(pair.sweep, pair.first, pair.second) for pair in everything.pairs][:3] == [
        ("seeds", "local", "fedavg"),
        ("seeds", "local", "ftfa"),
        ("seeds", "fedavg", "ftfa"),
    ]
    assert len(everything.pairs) == 6
    one = results.comparisons([("ftfa", "fedavg")])
    finals = results.finals("splits")
    assert one["splits", "ftfa", "fedavg"].difference == pytest.approx(
        (finals["ftfa"] - finals["fedavg"]).mean()
    )
    assert "95% interval" in str(one)
    assert "Margin: 0.50." in str(one)
    assert len(one.table()) == len(json.loads(one.to_json())) == 2
    with pytest.raises(fa.InvalidInput, match="pairs has rtfa, which has no trials"):
        results.comparisons([("ftfa", "rtfa")])
    with pytest.raises(fa.InvalidInput, match="margin is -1"):
        results.comparisons(margin=-1)
    with pytest.raises(KeyError, match="the comparisons are"):
        one["seeds", "a", "b"]
    assert "nothing to compare" in str(
        compare_finals({"seeds": {"a": np.ones(1), "b": np.ones(1)}}, None, None, "accuracy")
    )
    assert results.comparisons(statistic="mean_loss").pairs[0].margin is None


def marked(frame, column, *where):
    """A table whose column is true in those rows, and false in all others."""
    return frame.with_columns(pl.lit(bool(where)).and_(*where).alias(column))


def test_divergence_is_said_where_it_happened(results):
    most = results.tuning.filter(~pl.col("chosen")).height
    assert 2 * most > results.tuning.height
    tuned = replace(results, tuning=marked(results.tuning, "diverged", ~pl.col("chosen")))
    assert f"Most configurations diverged, {most} of {results.tuning.height}: " in str(tuned.notes)
    failed = marked(
        results.trials, "diverged", (pl.col("algorithm") == "ftfa") & (pl.col("sweep") == "splits")
    )
    said = replace(results, trials=failed).notes
    assert [each.split(";")[0] for each in said if each.startswith("Diverged")] == [
        "Diverged in splits: ftfa"
    ]
    assert not [each for each in results.notes if "iverged" in each]


def test_steps_chosen_at_the_end_of_those_tried_are_named(results):
    grid = results.experiment.grid | {"ftfa": {"server_step": [0.1, 0.3, 1.0]}}
    scores = results.tuning.with_columns(
        pl.when(pl.col("algorithm") == "ftfa")
        .then(pl.lit(0.9) - (pl.col("server_step") - 0.1).abs())
        .otherwise("validation_accuracy")
        .alias("validation_accuracy"),
        chosen=(pl.col("algorithm") != "ftfa") & pl.col("chosen")
        | (pl.col("algorithm") == "ftfa")
        & (pl.col("server_step") == 0.1)
        & (pl.col("local_step") == 0.01),
    )
    wider = replace(
        results, experiment=results.experiment.model_copy(update={"grid": grid}), tuning=scores
    )
    assert wider.tuned["ftfa"]["server_step"] == 0.1
    assert "ftfa server_step 0.1 (smallest)" in " ".join(wider.notes)
    assert "(smallest)" not in " ".join(results.notes)


def test_clients_are_compared_only_where_trials_have_the_same(results):
    assert set(results.client_finals("seeds")) == {"local", "fedavg", "ftfa"}
    assert results.client_finals("seeds", "worst_decile") == {}
    first = (pl.col("sweep") == "seeds") & (pl.col("trial") == 1) & (pl.col("algorithm") == "ftfa")
    for clients in (
        results.clients.filter(~first),
        results.clients.with_columns(tested=pl.col("tested") + first.cast(int)),
        results.clients.drop("accuracy"),
    ):
        fewer = replace(results, clients=clients)
        assert fewer.client_finals("seeds") == {}
        assert not fewer.comparison_values("seeds").keys() - results.finals("seeds").keys()
        assert all(
            isinstance(each, np.ndarray) for each in fewer.comparison_values("seeds").values()
        )
    nothing = replace(results, trials=results.trials.clear())
    assert nothing.best is None
    assert results.best in results.tuned
