"""Drawn clients agree with the predictions, with the same seed always in the same way."""

import json

import numpy as np
import pytest

import fedasym as fa
from fedasym.exact.class_clients import (
    LabelProblem,
    descend_for,
    draw_class_client,
    draw_shared,
    fit_converged,
    fit_max_margin,
    fit_ridge,
    lay_out,
)
from fedasym.exact.draws import seeded_generator

TWO = fa.spectra.atoms([0.5, 3], [0.6, 0.4])


def off(table: fa.Simulation) -> dict[str, float]:
    """Every deviation in standard errors; early stopping, which is not a limit, apart."""
    found = {name: row.deviation for name, row in table.items() if name != "stopped"}
    return found | {
        f"{name} log-loss": table[name].log_loss_deviation
        for name in found
        if table[name].log_loss is not None
    }


@pytest.mark.parametrize(
    ("world", "clients", "member"),
    [
        (fa.ClassPopulation(1.5, 1.5, 2), None, True),
        (fa.ClassPopulation(1.1, 1.4, 0.4, flips=0.1, spectrum=TWO, shift_power=-1), None, True),
        (fa.ClassPopulation(1.5, 1.5, 2, classes=3, spectrum=TWO), None, True),
        (fa.ClassPopulation(1.5, 1.5, 1), 6, True),
        (fa.ClassPopulation(1.5, 1.5, 1), 6, False),
    ],
    ids=["two", "flips and alignment", "three", "member", "newcomer"],
)
def test_simulations_agree_with_predictions(world, clients, member):
    names = (
        None
        if world.classes == 2
        else ["local_ridge", "fedavg", "rtfa", "one_step", "ftfa_squares", "rtfa_squares"]
    )
    table = fa.simulate(
        world, dimension=200, trials=6, clients=clients, member=member, algorithms=names
    )
    for name, deviation in off(table).items():
        assert abs(deviation) < 3, (name, deviation)
    if "stopped" in table:
        row = table["stopped"]
        assert abs(row.accuracy - row.predicted.accuracy) < 0.003 + 3 * row.error


def test_the_same_seed_gives_the_same_numbers():
    world = fa.ClassPopulation(1, 1, 2)
    one, two, three = (
        fa.simulate(world, dimension=60, trials=2, algorithms=["rtfa"], seed=seed)
        for seed in (3, 3, 4)
    )
    assert one["rtfa"].accuracy == two["rtfa"].accuracy != three["rtfa"].accuracy
    few = fa.simulate(world, dimension=60, trials=1, algorithms="rtfa", seed=3)
    assert np.isnan(few["rtfa"].error)


def test_a_simulation_prints_and_exports():
    world = fa.ClassPopulation(1, 1, 2)
    heard = []
    table = fa.simulate(
        world, dimension=60, trials=2, ridge=0.7, progress=lambda share, text: heard.append(share)
    )
    assert heard[-1] == 1
    assert table["rtfa"].predicted.ridge == 0.7
    data = json.loads(table.to_json())
    assert data["algorithms"]["rtfa"]["accuracy"] == table["rtfa"].accuracy
    assert data["algorithms"]["local"]["log_loss"] is None
    assert table.table()[0]["algorithm"] == "local"
    for words in ("simulated", "off by", "se", "dimension 60", "0.3 percentage points"):
        assert words in str(table)
    assert table._repr_html_().startswith("<p>")
    with pytest.raises(KeyError, match="unknown algorithm"):
        table["rtfq"]


@pytest.mark.parametrize("classes", [2, 4])
def test_what_is_drawn_has_exactly_the_energies_of_the_population(classes):
    world = fa.ClassPopulation(1.5, 0.7, 2, classes=classes, spectrum=TWO, shift_power=1)
    layout = lay_out(world, 101)
    theta0 = draw_shared(layout, 0, 0)
    one = draw_class_client(layout, theta0, seeded_generator(0, 1))
    move, K = one.truth - theta0, layout.K
    for begin, size, e0, ed in zip(
        np.cumsum(layout.room) - layout.room,
        layout.room,
        layout.world.energies.e0,
        layout.world.energies.ed,
        strict=True,
    ):
        rows = slice(begin, begin + size)
        np.testing.assert_allclose(theta0[rows].T @ theta0[rows], e0 * np.eye(K), atol=1e-12)
        np.testing.assert_allclose(move[rows].T @ move[rows], ed * np.eye(K), atol=1e-12)
        np.testing.assert_allclose(move[rows].T @ theta0[rows], 0, atol=1e-12)
    assert one.X.shape == (layout.n, 101)
    assert layout.world.aspect == 101 / layout.n


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("aspect", [0.5, 2])
def test_fits_are_stationary(classes, aspect):
    """The gradient of loss + penalty vanishes at the ridge fit, in all d coordinates."""
    layout = lay_out(fa.ClassPopulation(1, 1, aspect, classes=classes), 40)
    theta0 = draw_shared(layout, 0, 0)
    one = draw_class_client(layout, theta0, seeded_generator(0, 1))
    w = fit_ridge(one, 0.3, theta0)
    whole = LabelProblem(one.X, one.X @ w, one.Y)
    slope = one.X.T @ whole.residual(np.zeros_like(w)) / len(one.Y) + 0.3 * (w - theta0)
    assert np.abs(slope).max() < 1e-5


def test_descent_ends_where_newton_does():
    layout = lay_out(fa.ClassPopulation(1, 1, 0.1), 30)
    theta0 = draw_shared(layout, 0, 0)
    one = draw_class_client(layout, theta0, seeded_generator(0, 1))
    end, endless = fit_converged(one)
    assert not endless
    np.testing.assert_allclose(descend_for(one, 400.0, theta0), end, atol=1e-5)
    few = draw_class_client(
        lay_out(fa.ClassPopulation(1, 1, 2), 30), theta0, seeded_generator(0, 1)
    )
    widest, endless = fit_converged(few)
    assert endless
    assert (few.Y * (few.X @ widest)).min() == pytest.approx(1, abs=1e-7)


def test_the_max_margin_separates_with_margin_one():
    rng = np.random.default_rng(0)
    G = rng.standard_normal((20, 60))
    w = fit_max_margin(G)
    assert (G @ w).min() == pytest.approx(1, abs=1e-7)
    support = (G @ w)[:, 0] < 1 + 1e-6
    np.testing.assert_allclose(
        w, G[support].T @ np.linalg.lstsq(G[support].T, w, rcond=None)[0], atol=1e-8
    )
    assert fit_max_margin(rng.standard_normal((200, 10))) is None
