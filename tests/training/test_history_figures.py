"""Figures of runs: lines, bands, words and colours."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms import TRAINED, Algorithm, Average, Descend
from fedasym.show.figures import rounds as figure
from fedasym.training.histories import Histories
from fedasym.training.settings import CODE, TEXT

from .invented import ROUNDS, data, history


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
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "rtfa  81.5 %",
        "ftfa  71.5 %",
    ]


def test_one_algorithm_also_shows_its_shared_model(drawn, tmp_path):
    history(share=0.8, gap=0.1).plot(tmp_path / "one.png")
    assert {line.get_label() for line in drawn[0][1].get_lines()} == {
        "rtfa  80.0 %",
        "shared model  70.0 %",
    }
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
    lines = {line.get_gid(): line for line in drawn[0][1].get_lines()}
    np.testing.assert_allclose(lines["rtfa"].get_ydata(), run.loss)
    assert "loss" in drawn[0][1].get_ylabel()


@pytest.mark.parametrize("diverged", [0, 10])
def test_a_diverged_run_is_drawn_as_far_as_it_went(diverged, drawn, tmp_path):
    history(share=0.5, diverged=diverged, gap=0.1).plot(tmp_path / "diverged.png")
    assert drawn[0][1].get_legend().get_texts()[0].get_text() == "rtfa  diverged"


def test_words_are_in_the_figure(grid, tmp_path):
    runs = Histories(
        [*grid, *(replace(run, algorithm=TRAINED["maml_hf"], diverged=0) for run in grid.runs[6:])]
    )
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
    algorithms = [
        TRAINED[name]
        for name in ("local", "fedavg", "ftfa", "rtfa", "maml", "maml_fo", "maml_hf", "pfedme")
    ] + own
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
