"""The limits of infinitely many clients against exact conditional expectations on drawn features:
bias and variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

import fedasym as fa
from fedasym.algorithms import Descend, Flow

from .montecarlo import (
    DRAWS,
    NOISE,
    RADIUS,
    SPECTRA,
    Array,
    Function,
    below_zero,
    check,
    client_of,
    decompose,
    descend,
    flow,
    growth,
    limit,
    risk_of,
    shrink,
    stopping,
)

D = 480  # dimensions of the limits


@lru_cache
def drawn(n: int, s: tuple[float, ...]) -> list[tuple[Array, Array, Array]]:
    """Decompositions of features that the tests have in common, whatever displaces their clients."""
    rng = np.random.default_rng(20)
    return [decompose(rng.standard_normal((n, D)) * np.sqrt(s), s) for _ in range(DRAWS)]


@pytest.fixture(scope="module", autouse=True)
def _forget():
    """Large matrices go when the last test has seen them."""
    yield
    drawn.cache_clear()


def samples(world: fa.Population, keeps: Sequence[Function], *, alone: bool = False) -> list[Array]:
    """Bias and variance (draws, 2) after each filter, with infinitely many clients."""
    views = [
        limit(client_of(world, D, lambda n, s, i=i: drawn(n, tuple(s))[i], alone))
        for i in range(DRAWS)
    ]
    return [np.array([view.risk(keep) for view in views]) for keep in keeps]


SHAPES = [
    ("identity", 0),
    ("scaled", 0),
    ("two atoms", 0),
    ("two atoms", 1),
    ("two atoms", -1),
    ("ar1", 0),
    ("ar1", 2),
    ("power law", 0),
    ("power law", -1),
    ("singular", 0),
    ("singular", 1),
]


STEP, STEPS, TIMES = 0.06, [1, 4, 12], [0.05, 0.3, 1.0]


@lru_cache
def ridges_and_stops(
    name: str, power: float, aspect: float
) -> tuple[fa.Population, dict[float, Array], list[Array]]:
    """A population, its samples by ridge, and those of early stopping: of the same clients."""
    world = fa.Population(RADIUS, NOISE, aspect, spectrum=SPECTRA[name], shift_power=power)
    ridges = [below_zero(world), 0, 0.1, 1, 5]
    stops = [*(descend(STEP, t) for t in STEPS), *(flow(t) for t in TIMES)]
    found = samples(world, [*(shrink(x) for x in ridges), *stops])
    return world, dict(zip(ridges, found, strict=False)), found[len(ridges) :]


@pytest.mark.parametrize("aspect", [0.5, 3])
@pytest.mark.parametrize(("name", "power"), SHAPES)
def test_ridge_limit(name, power, aspect):
    """Theorems 2 and 4, and 1 and 3 as their case of no ridge; negative ridges too."""
    world, by_ridge, _ = ridges_and_stops(name, power, aspect)
    for ridge, found in by_ridge.items():
        table = fa.predict(
            world, ["rtfa", "pfedme"] + (["ftfa", "maml"] if ridge == 0 else []), ridge=ridge
        )
        wrong = [risk_of(world, "rtfa", ridge=ridge + 0.2 * abs(ridge) + 0.1)]
        if ridge == 5 and world.spectrum.scale is None:
            wrong.append(risk_of(replace(world, shift_power=power + 1), "rtfa", ridge=ridge))
        for risk in table.values():
            check(found, risk, 1.5 * growth(world, ridge) / D, wrong)


@pytest.mark.parametrize("aspect", [0.5, 3])
@pytest.mark.parametrize("power", [0, 1])
def test_methods_that_share_nothing(power, aspect):
    """The local methods see the optimum itself, with its own alignment."""
    world = fa.Population(
        RADIUS, NOISE, aspect, norm=2, spectrum=SPECTRA["two atoms"], optimum_power=power
    )
    ridges = [0, 0.4]
    for ridge, found in zip(
        ridges, samples(world, [shrink(x) for x in ridges], alone=True), strict=True
    ):
        table = fa.predict(world, ["local", "local_ridge", "rtfa"], ridge=ridge)
        wrong = [table["rtfa"]] if table["rtfa"].bias > 0 else []
        for name in ("local", "local_ridge") if ridge == 0 else ("local_ridge",):
            check(found, table[name], 1.5 * growth(world, ridge) / D, wrong)


@pytest.mark.parametrize("aspect", [0.5, 3])
@pytest.mark.parametrize(("name", "power"), SHAPES)
def test_early_stopping(name, power, aspect):
    """Gradient steps, gradient flow and the closed form of one step. Nothing is inverted: 2/d
    covers the size effect.
    """
    world, _, found = ridges_and_stops(name, power, aspect)
    now, later = (
        fa.predict(
            world, stopping(*(Descend(c * STEP, t) for t in STEPS), *(Flow(c * t) for t in TIMES))
        )
        for c in (1, 1.3)
    )
    for simulated, risk, wrong in zip(found, now.values(), later.values(), strict=True):
        check(simulated, risk, 2 / D, [wrong])
    check(found[0], fa.one_step(world, STEP)[1], 2 / D, [fa.one_step(world, 1.3 * STEP)[1]])
