"""What `simulate` returns: streams of random numbers, ridges, what is drawn, intervals, notes,
figures.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

import fedasym as fa
from fedasym.exact.draws import apportion

from .worlds import DIFFERENT, TWO, WORLD, plan_of


def test_same_seed_same_numbers_and_streams_that_do_not_depend_on_one_another():
    first, again = (fa.simulate(WORLD, dimension=30, clients=4, trials=2, seed=7) for _ in range(2))
    assert first.to_json() == again.to_json()
    assert (
        first.to_json() != fa.simulate(WORLD, dimension=30, clients=4, trials=2, seed=8).to_json()
    )
    several = fa.simulate(WORLD, dimension=30, vary={"clients": [4, 9]}, trials=2, seed=7)
    assert several["rtfa"].loss[0] == first["rtfa"].loss


def test_the_ridge_is_the_predictions_best():
    table = fa.simulate(WORLD, dimension=40, clients=6, trials=2)
    best = fa.predict(WORLD, clients=6)
    assert all(table[name].ridge == best[name].ridge for name in ("local_ridge", "rtfa", "pfedme"))
    assert fa.simulate(WORLD, dimension=40, clients=6, trials=2, ridge=0.3)["rtfa"].ridge == 0.3


def test_the_prediction_is_for_what_is_drawn():
    """200 directions, 3 samples: the aspect is 200/3, and the eigenvalues are a whole number of
    each atom.
    """
    plan = plan_of(
        fa.Population(1, 0.5, 60, spectrum=TWO), dimension=201, clients=80, algorithms=["fedavg"]
    )
    assert plan.kinds[0].n == 3
    assert plan.kinds[0].population.aspect == 67
    assert np.unique(plan.kinds[0].s, return_counts=True)[1].tolist() == [121, 80]
    assert np.isclose(plan.kinds[0].shift.sum(), 1)


def test_directions_are_shared_out_evenly():
    assert apportion(np.array([0.25, 0.25, 0.5]), 7).tolist() == [2, 2, 3]
    for spectrum in (fa.spectra.ar1(0.5), fa.spectra.power_law(1)):
        room = apportion(spectrum.weights, 200)
        assert room.sum() == 200
        assert np.all(np.abs(room - 200 * spectrum.weights) <= 1)
        assert abs(spectrum.values @ room / 200 - spectrum.mean) < 0.01


def test_trials_become_an_interval():
    table = fa.simulate(WORLD, dimension=30, clients=4, trials=5)
    single = [fa.simulate(WORLD, dimension=30, clients=4, trials=t) for t in (1, 2)]
    row = table["ftfa"]
    assert row.low <= row.loss <= row.high
    assert np.isclose(row.loss, row.bias + row.variance)
    assert np.isnan(single[0]["ftfa"].error)
    assert "-" in str(single[0])
    second = 2 * single[1]["ftfa"].loss - single[0]["ftfa"].loss
    assert row.low <= min(second, single[0]["ftfa"].loss)
    records = table.table()
    assert [record["algorithm"] for record in records] == list(table)
    assert records[3]["loss"] == row.loss
    assert json.loads(table.to_json())["algorithms"]["ftfa"]["deviation"] == row.deviation


def test_methods_without_a_formula_are_simulated_all_the_same():
    table = fa.simulate(
        fa.Population(1, 0.5, 2, spectrum=TWO, shift_power=1), dimension=40, clients=6, trials=2
    )
    assert np.isnan(table["maml"].predicted.loss)
    assert table["maml"].loss > 0
    assert table["pfedme"].ridge == fa.optimal_ridge(
        fa.Population(1, 0.5, 2, spectrum=TWO, shift_power=1)
    )
    assert any("No prediction for maml" in note for note in table.notes)
    assert any("Left out local and local_ridge" in note for note in table.notes)


def test_figures(tmp_path):
    varied = fa.simulate(WORLD, dimension=20, trials=2, vary={"clients": [3, 10, 40]})
    single = fa.simulate(DIFFERENT, dimension=20, trials=2, clients=[2, 2, 1])
    for k, result in enumerate((varied, single)):
        assert result.plot(tmp_path / f"{k}.png").read_bytes().startswith(b"\x89PNG")
    predicted, limit = varied.curve("rtfa", np.array([3.0, 10.0]))
    # the best ridges of several worlds are looked for together: the last digit is theirs
    np.testing.assert_allclose(predicted, varied["rtfa"].predicted.loss[:2], rtol=1e-14)
    assert limit[0] == varied["rtfa"].limit.loss[0]
    with pytest.raises(fa.InvalidInput, match="must end in"):
        single.plot(tmp_path / "figure.gif")
