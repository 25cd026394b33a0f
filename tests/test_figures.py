"""Figures are drawn, are the same each time, and leave matplotlib as it was."""

import xml.etree.ElementTree as ET

import matplotlib as mpl
import pytest

import fedasym as fa

WORLD = fa.Population(1, 0.5, 2, norm=2)
RESULTS = {
    "table": lambda: fa.predict(WORLD),
    "unbounded": lambda: fa.predict(fa.Population(1, 0.5, 2, norm=2), ["local", "fedavg"]),
    "phases": lambda: fa.compare(
        "ftfa", "fedavg", WORLD, vary={"noise": (0, 2, 30), "aspect": (1.1, 10, 30)}
    ),
    "curves": lambda: fa.compare("ftfa", "fedavg", WORLD, vary={"noise": (0, 2, 30)}),
    "flow": lambda: fa.fine_tuning(WORLD, flow=True),
    "steps": lambda: fa.fine_tuning(WORLD, step=0.2, steps=[0, 1, 2, 3]),
}


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_every_result_draws_itself(name, kind, tmp_path):
    before = dict(mpl.rcParams)
    target = RESULTS[name]().plot(tmp_path / f"figure.{kind}")
    assert target.stat().st_size > 3000
    assert dict(mpl.rcParams) == before


def test_words_are_in_the_figure(tmp_path):
    with mpl.rc_context({"svg.fonttype": "none"}):
        target = RESULTS["phases"]().plot(tmp_path / "phases.svg")
    words = " ".join(ET.parse(target).getroot().itertext())
    for word in ("ftfa wins", "fedavg wins", "noise", "aspect"):
        assert word in words


def test_an_unbounded_loss_is_written_out(tmp_path):
    with pytest.warns(fa.ThresholdWarning):
        table = fa.predict(fa.Population(1, 0.5, 1, norm=2), ["local", "fedavg"])
    with mpl.rc_context({"svg.fonttype": "none"}):
        words = " ".join(ET.parse(table.plot(tmp_path / "table.svg")).getroot().itertext())
    assert "unbounded" in words


def test_a_grid_is_not_a_table(tmp_path):
    with pytest.raises(fa.InvalidInput, match="use compare"):
        fa.predict(fa.Population(1, [0.1, 0.2], 2)).plot(tmp_path / "x.png")
    with pytest.raises(fa.InvalidInput, match="single population"):
        fa.fine_tuning(fa.Population(1, [0.1, 0.2], 2), steps=[1]).plot(tmp_path / "x.png")
