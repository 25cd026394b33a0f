"""Figures of experiments: as files of three kinds, with the numbers that they show, the same each
time.
"""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ET
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest

import fedasym as fa
from fedasym.show.figures import save
from fedasym.show.figures.rounds import draw_figures, draw_gains, draw_sweep
from fedasym.show.reproduction import gain_curves, published_curves, trial_curves

from .invented import invented, published


def words(figure, folder):
    """What a figure says."""
    with mpl.rc_context({"svg.fonttype": "none"}):
        path = save(figure, folder / "words.svg")
    return " ".join(ET.parse(path).getroot().itertext())


def test_everything_is_drawn_as_three_files(tmp_path):
    gains = {"seeds": 2, "algorithms": ["ftfa", "maml_fo"]}
    held = invented(trials={"seeds": 2, "splits": 2}, gains=gains)
    before = dict(mpl.rcParams)
    files = draw_figures(held, tmp_path / "a", published())
    assert dict(mpl.rcParams) == before
    stems = ("seeds", "splits", "gains-ftfa", "gains-maml_fo", "tuned")
    assert [file.name for file in files] == [
        f"{stem}.{kind}" for stem in stems for kind in ("pdf", "png", "csv")
    ]
    assert all(file.stat().st_size > (100 if file.suffix == ".csv" else 5000) for file in files)
    ftfa = held.gains.filter(held.gains["algorithm"] == "ftfa")
    one = replace(held, gains=ftfa, trials=held.trials.clear())
    again = draw_figures(one, tmp_path / "b", published())
    assert [file.name for file in again] == [
        file.name for file in files if file.stem in ("gains-ftfa", "tuned")
    ]
    for file in again:
        assert file.read_bytes() == (tmp_path / "a" / file.name).read_bytes()


def test_the_numbers_are_those_of_the_results(tmp_path, results):
    seeds = results.trials.filter(results.trials["sweep"] == "seeds")
    held = replace(results, gains=results.gains.clear(), trials=seeds)
    files = {file.name: file for file in draw_figures(held, tmp_path, published())}
    rows = list(csv.DictReader(files["seeds.csv"].read_text().splitlines()))
    for name, values in results.finals("seeds").items():
        (row,) = [
            row
            for row in rows
            if (row["algorithm"], row["source"], row["round"]) == (name, "ours", "400")
        ]
        assert [float(row[each]) for each in ("mean", "lowest", "highest")] == pytest.approx(
            [values.mean(), values.min(), values.max()], rel=1e-12
        )
        assert row["trials"] == "11"
    theirs = [
        float(row["mean"]) for row in rows if (row["algorithm"], row["source"]) == ("ftfa", "paper")
    ]
    np.testing.assert_allclose(theirs, published()["seeds"]["ftfa"][1].mean(0), rtol=1e-12)
    tuned = {
        row["algorithm"]: row for row in csv.DictReader(files["tuned.csv"].read_text().splitlines())
    }
    assert float(tuned["rtfa"]["ridge"]) == results.tuned["rtfa"]["ridge"]
    assert tuned["fedavg"]["ridge"] == ""


def test_words_are_in_the_figures(tmp_path, results):
    curves = trial_curves(results, "seeds")
    text = words(
        draw_sweep(results, "seeds", curves, published_curves(published(), "seeds")), tmp_path
    )
    for each in (
        "mean of 11 seeds",
        "band from worst to best",
        "rounds (local training: epochs)",
        "ftfa (paper)",
        "200 clients",
    ):
        assert each in text
    text = words(draw_gains(results, "ftfa", gain_curves(results)["ftfa"], {}), tmp_path)
    for each in ("what ftfa gains", "shared model", "one batch", "1 epoch ", "10 epochs"):
        assert each in text


def test_regression_draws_losses_and_nothing_published(tmp_path):
    held = invented("regression", gains=None, trials={"seeds": 2, "splits": 0})
    files = draw_figures(held, tmp_path, published())
    assert [file.name for file in files if file.suffix == ".csv"] == ["seeds.csv", "tuned.csv"]
    assert "paper" not in (tmp_path / "seeds.csv").read_text()
    assert "test loss" in words(
        draw_sweep(held, "seeds", trial_curves(held, "seeds"), {}), tmp_path
    )


def test_losses_of_many_sizes_get_a_logarithmic_axis(tmp_path):
    held = invented("regression", gains=None, trials={"seeds": 2, "splits": 0})
    huge = held.trials.with_columns(
        loss=held.trials["loss"]
        * np.where(held.trials["algorithm"].to_numpy() == "local", 100.0, 1.0)
    )
    figure = draw_sweep(held, "seeds", trial_curves(replace(held, trials=huge), "seeds"), {})
    assert figure.axes[0].get_yscale() == "log"


def test_a_diverged_curve_ends_in_a_cross(tmp_path):
    held = invented(gains=None, trials={"seeds": 2, "splits": 0})
    gone = (held.trials["algorithm"] == "ftfa") & (held.trials["round"] > 200)
    trials = held.trials.with_columns(
        accuracy=held.trials["accuracy"].zip_with(~gone, held.trials["accuracy"] * np.nan)
    )
    figure = draw_sweep(held, "seeds", trial_curves(replace(held, trials=trials), "seeds"), {})
    assert "ftfa  diverged" in words(figure, tmp_path)
    assert [
        line.get_xdata().tolist() for line in figure.axes[0].get_lines() if line.get_marker() == "x"
    ] == [[200]]


def test_an_unfinished_run_draws_nothing(tmp_path):
    held = invented(gains=None)
    nothing = replace(held, trials=held.trials.clear(), clients=held.clients.clear(), tuned={})
    assert draw_figures(nothing, tmp_path / "none") == []


def test_a_folder_that_cannot_be_is_told(tmp_path, results):
    (tmp_path / "file").write_text("")
    with pytest.raises(fa.InvalidInput, match="cannot be made"):
        draw_figures(results, tmp_path / "file")
