"""Grids: arrays broadcast, and each entry is what it would be alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedasym as fa

from .strategies import SHARING, close, near_thresholds, risk_of, share

pytestmark = near_thresholds

GRID = {
    "radius": np.array([0.0, 2.0])[:, None, None],
    "noise": np.array([0.0, 0.6])[:, None],
    "aspect": np.array([0.3, 1.0, 4.0]),
}
ATOMS = fa.spectra.atoms([0.2, 1, 5], [0.5, 0.3, 0.2])
SINGULAR = fa.spectra.atoms([0, 1, 2], [0.3, 0.5, 0.2])


def one_by_one(grid: fa.Population) -> list[tuple[tuple[int, ...], fa.Population]]:
    """Every entry of a grid as a population of plain numbers."""
    numbers = {name: np.broadcast_to(getattr(grid, name), grid.shape) for name in GRID}
    return [
        (at, replace(grid, **{name: float(values[at]) for name, values in numbers.items()}))
        for at in np.ndindex(grid.shape)
    ]


def entry(values: object, at: tuple[int, ...]) -> float:
    return float(np.asarray(values)[at])


@pytest.mark.parametrize(
    ("spectrum", "power"),
    [(fa.spectra.identity(2), 0), (ATOMS, 0), (ATOMS, 1), (SINGULAR, 0), (SINGULAR, 1)],
    ids=["identity", "atoms", "atoms, aligned", "singular", "singular, aligned"],
)
@pytest.mark.parametrize(("clients", "member"), [(None, True), (9, True), (9, False)])
def test_predict_over_a_grid(spectrum, power, clients, member):
    """With a given ridge and with the best one, whose parts are found to the square root of
    rounding.
    """
    grid = fa.Population(**GRID, spectrum=spectrum, shift_power=power)
    for ridge in (0.4, None):
        names = [*SHARING]
        if clients is None or spectrum.scale is not None:
            names += ["maml", "pfedme"]
        elif ridge is None and power == 0:
            names += ["pfedme"]
        table = fa.predict(grid, names, ridge=ridge, clients=clients, member=member)
        for at, world in one_by_one(grid):
            for name, risk in fa.predict(
                world, names, ridge=ridge, clients=clients, member=member
            ).items():
                found = fa.Risk(entry(table[name].bias, at), entry(table[name].variance, at))
                close(
                    found,
                    risk,
                    rtol=1e-12 if ridge else 1e-6,
                    floor=share(world, 1e-13 if ridge else 1e-9),
                )
                assert found.loss == pytest.approx(
                    risk.loss, rel=1e-12, abs=1e-13 * share(world, 1).loss
                )


def test_ridges_and_clients_over_a_grid():
    """Arrays of ridges and of clients broadcast with those of the population; some federations are
    crowded.
    """
    world = fa.Population(1, 0.5, np.array([0.5, 3.0])[:, None, None], norm=2, spectrum=ATOMS)
    ridge, clients = np.array([-0.01, 0.0, 0.7, np.inf])[:, None], np.array([1, 2, 8, 500])
    for member in (True, False):
        table = fa.predict(world, list(SHARING), ridge=ridge, clients=clients, member=member)
        assert table["rtfa"].loss.shape == (2, 4, 4)
        for at in np.ndindex(2, 4, 4):
            one = replace(world, aspect=float(world.aspect[at[0], 0, 0]))
            options = {"ridge": float(ridge[at[1], 0]), "clients": clients[at[2]], "member": member}
            for name, risk in fa.predict(one, list(SHARING), **options).items():
                found = fa.Risk(entry(table[name].bias, at), entry(table[name].variance, at))
                close(found, risk, rtol=1e-11, floor=share(one, 1e-12))


def test_no_ridge_at_the_threshold_beside_a_negative_one():
    """At aspect 1 the lowest admissible ridge is 0 itself, which a grid with negative ridges
    elsewhere may hold.
    """
    world = fa.Population(1, 0.5, np.array([1.0, 2.0]), spectrum=ATOMS)
    found = fa.predict(world, ["rtfa"], ridge=np.array([0, -0.001]))["rtfa"].loss
    assert found[0] == np.inf
    assert found[1] == pytest.approx(
        risk_of(replace(world, aspect=2.0), "rtfa", ridge=-0.001).loss, rel=1e-12
    )


@pytest.mark.parametrize(
    ("spectrum", "power"),
    [(fa.spectra.identity(2), 0), (ATOMS, 1), (SINGULAR, 1)],
    ids=["identity", "atoms", "singular"],
)
def test_regimes_over_a_grid(spectrum, power):
    """The best ridge and its loss, the noise threshold, and one step."""
    grid = fa.Population(**GRID, spectrum=spectrum, shift_power=power)
    ridge, loss, threshold = fa.optimal_ridge(grid), fa.optimal_loss(grid), fa.noise_threshold(grid)
    steps = fa.one_step(grid), fa.one_step(grid, 0.1 * np.array([1, 2, 3]))
    for at, world in one_by_one(grid):
        assert entry(ridge, at) == pytest.approx(fa.optimal_ridge(world), rel=1e-6, abs=1e-9)
        assert entry(loss, at) == pytest.approx(fa.optimal_loss(world), rel=1e-12)
        assert entry(threshold, at) == pytest.approx(fa.noise_threshold(world), rel=1e-12)
        for (size, risk), single in zip(
            steps, (fa.one_step(world), fa.one_step(world, 0.1 * (at[2] + 1))), strict=True
        ):
            assert entry(size, at) == pytest.approx(single[0], rel=1e-14)
            close(fa.Risk(entry(risk.bias, at), entry(risk.variance, at)), single[1], rtol=1e-12)


@pytest.mark.parametrize("clients", [None, 20])
def test_fine_tuning_over_a_grid(clients):
    grid = fa.Population(
        1, np.array([[0.2], [0.6]]), np.array([0.5, 3.0]), spectrum=fa.spectra.identity(0.5)
    )
    options = {"step": 0.3, "steps": [0, 1, 7, 50], "clients": clients}
    whole = fa.fine_tuning(grid, **options)
    assert whole.loss.shape == (2, 2, 4)
    for at, world in one_by_one(grid):
        path = fa.fine_tuning(world, **options)
        close(
            fa.Risk(whole.bias[at], whole.variance[at]),
            fa.Risk(path.bias, path.variance),
            rtol=1e-12,
        )
        assert entry(whole.best.at, at) == path.best.at
        assert entry(whole.best.scores.loss, at) == pytest.approx(path.best.scores.loss, rel=1e-12)


@pytest.mark.parametrize(
    ("first", "second", "vary", "options"),
    [
        ("ftfa", "fedavg", {"noise": (0, 2, 9), "aspect": (1.2, 6, 7)}, {}),
        ("rtfa", "ftfa", {"aspect": [0.5, 2, 8], "ridge": (0, 3, 8)}, {}),
        ("rtfa", "local_ridge", {"radius": (0.1, 4, 8), "shift_power": [-1, 0, 1]}, {"ridge": 0.5}),
        ("ftfa", "fedavg", {"noise": (0, 2, 9), "clients": [7, 20, 400]}, {"member": False}),
    ],
    ids=["noise, aspect", "aspect, ridge", "radius, shift_power", "noise, clients"],
)
def test_compare_over_a_grid(first, second, vary, options):
    """Losses and winners are those of `predict`, point by point, and the two tie along the
    boundary.
    """
    world = fa.Population(1.5, 0.6, 3, norm=2, spectrum=ATOMS)
    diagram = fa.compare(first, second, world, vary=vary, **options)
    names = list(diagram.axes)

    def losses(point: dict[str, float]) -> list[float]:
        given_options = options | {
            name: value for name, value in point.items() if name in ("ridge", "clients")
        }
        here = replace(
            world,
            **{name: value for name, value in point.items() if name not in ("ridge", "clients")},
        )
        return [
            float(risk.loss) for risk in fa.predict(here, [first, second], **given_options).values()
        ]

    for at in np.ndindex(diagram.first_values.shape):
        one, two = losses(
            {name: float(diagram.axes[name][i]) for name, i in zip(names, at, strict=True)}
        )
        assert entry(diagram.first_values, at) == pytest.approx(one, rel=1e-12)
        assert entry(diagram.second_values, at) == pytest.approx(two, rel=1e-12)
        assert diagram.winner[at] == (
            "tie" if one == pytest.approx(two, rel=1e-10) else first if one < two else second
        )
    assert len(diagram.boundary)
    crossing = (
        diagram.boundary
        if "clients" not in names
        else [row for row in diagram.boundary if row[1] in vary["clients"]]
    )
    for row in crossing:
        one, two = losses(dict(zip(names, map(float, row), strict=True)))
        assert one == pytest.approx(two, rel=1e-9)
    if names == ["noise", "aspect"]:
        for noise, aspect in crossing:
            assert noise == pytest.approx(
                fa.noise_threshold(replace(world, aspect=aspect)), rel=1e-9
            )
