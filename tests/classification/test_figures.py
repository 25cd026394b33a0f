"""Figures with classes are drawn, say what they show, and leave matplotlib as it was."""

import xml.etree.ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest

import fedasym as fa
from fedasym.verbs.accuracies import over_ridges

WORLD = fa.ClassPopulation(1.5, 1.5, 2)
RESULTS = {
    "table": (
        lambda: fa.predict(WORLD),
        ("rtfa has the highest accuracy", "bayes (ceiling)", "fedavg", "ridge", "training time"),
    ),
    "few": (lambda: fa.predict(WORLD, clients=12, member=False), ("12 clients", "local_ridge")),
    "path": (lambda: fa.fine_tuning(WORLD), ("stop at time", "fedavg")),
    "steps": (lambda: fa.fine_tuning(WORLD, step=0.2, steps=[0, 1, 2, 3]), ("gradient steps",)),
    "phases": (
        lambda: fa.compare(
            "local_ridge", "fedavg", WORLD, vary={"radius": (0.3, 3, 7), "aspect": [0.1, 1, 5]}
        ),
        ("fedavg wins", "local_ridge wins", "percentage points"),
    ),
    "curves": (
        lambda: fa.compare("rtfa", "fedavg", WORLD, vary={"ridge": [0.01, 0.1, 1]}),
        ("rtfa against fedavg",),
    ),
    "simulation": (
        lambda: fa.simulate(WORLD, dimension=60, trials=2),
        ("simulated (dot", "one_step"),
    ),
}


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_draws_itself(name, tmp_path):
    made, words = RESULTS[name]
    result, before = made(), dict(mpl.rcParams)
    assert result.plot(tmp_path / "figure.png").stat().st_size > 3000
    assert dict(mpl.rcParams) == before
    with mpl.rc_context({"svg.fonttype": "none"}):
        text = " ".join(ET.parse(result.plot(tmp_path / "figure.svg")).getroot().itertext())
    for word in words:
        assert word in text


def test_curves_of_more_classes_pass_through_the_best():
    table = fa.predict(
        fa.ClassPopulation(1.5, 1.5, 2, classes=3), ["rtfa", "local_ridge"], ridge=1.0
    )
    found = over_ridges(table, np.array([0.5, 1.0, 2.0]))
    for name, curve in found.items():
        assert curve[1] == pytest.approx(table[name].accuracy, abs=1e-5)


def test_a_grid_is_not_a_table(tmp_path):
    with pytest.raises(fa.InvalidInput, match="use compare"):
        fa.predict(fa.ClassPopulation([1, 2], 1, 2), ["rtfa"]).plot(tmp_path / "x.png")
    with pytest.raises(fa.InvalidInput, match="single population"):
        fa.fine_tuning(fa.ClassPopulation([1, 2], 1, 2), times=[1]).plot(tmp_path / "x.png")
    with pytest.raises(fa.InvalidInput, match=r"must end in \.png"):
        fa.predict(WORLD, ["rtfa", "fedavg"]).plot(tmp_path / "x.gif")
