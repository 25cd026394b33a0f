"""Predictions by exact algebra on drawn clients, for pairs of stages that no formula covers: with a standard error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedasym.algorithms import Algorithm
from fedasym.core.errors import InvalidInput, MissingNorm
from fedasym.exact.draws import draw_client as draw
from fedasym.exact.draws import kinds_of
from fedasym.exact.draws import seeded_generator as seeded
from fedasym.exact.traces import SharedCovariance as Shared
from fedasym.exact.traces import alone_forms as alone
from fedasym.exact.traces import learned_share as learned
from fedasym.exact.traces import newcomer_forms as newcomer
from fedasym.results.comparison import Comparison, Risk
from fedasym.theory.limits import best_ridge, flatten
from fedasym.verbs.prediction import ridge_of
from fedasym.verbs.simulation import simulate
from fedasym.verbs.simulations import Simulation
from fedasym.worlds.population import Population

DRAWN_DIMENSION, DRAWN_TRIALS, DRAWN_CLIENTS = 400, 6, 24


def predict_by_drawing(
    world: Population | Sequence[Population],
    algorithms: Sequence[Algorithm],
    clients: Any,
    member: bool,
    weights: ArrayLike | str | None,
) -> Comparison:
    """Losses from exact algebra on drawn clients, with standard errors; None: infinitely many clients.

    The shared model of infinitely many clients is theta_0 itself, so that one client at a time is drawn.
    """
    if clients is None and isinstance(world, Population):
        risks, title = draw_limits(world, algorithms), f"{world} · infinitely many clients"
    else:
        several = None if isinstance(world, Population) else [1] * len(world)
        told = clients if clients is not None else several
        found = simulate(
            world, dimension=DRAWN_DIMENSION, clients=told, trials=DRAWN_TRIALS, algorithms=algorithms, member=member,
            weights=weights,
        )  # fmt: skip
        assert isinstance(found, Simulation)
        risks = {
            name: Risk(row.bias, row.variance, row.ridge, row.error)
            for name, row in found.items()
            if row.bias is not None and row.variance is not None
        }
        title = f"{world if isinstance(world, Population) else f'{len(world)} kinds of clients'} · {told} clients"
    drawn = f"Drawn in dimension {DRAWN_DIMENSION}, which is off by order 1/dimension: not the limit itself."
    return Comparison(risks, title, (drawn,))


def draw_limits(world: Population, algorithms: Sequence[Algorithm]) -> dict[str, Risk]:
    """The risk of one drawn client after another that starts from theta_0, or from nothing."""
    if world.shape != ():
        raise InvalidInput("the population holds arrays: give plain numbers, one world at a time")
    (kind,) = kinds_of([world], DRAWN_DIMENSION)
    nothing = np.zeros((kind.s.size, kind.s.size))
    exact = Shared(nothing, nothing, lambda *_: nothing)
    rows: dict[str, list[tuple[float, float]]] = {each.name: [] for each in algorithms}
    ridges: dict[str, float | None] = {}
    for trial in range(DRAWN_CLIENTS):
        client = draw(kind, seeded(0, trial), "gaussian")
        for each in algorithms:
            if each.shares_nothing and kind.optimum is None:
                raise MissingNorm(f"{each.name}: {MissingNorm()}")
            seen = flatten(kind.population, (), alone=each.shares_nothing)
            given = ridge_of(each, ())
            ridge = float((best_ridge(seen) if given is None else given)[0]) if each.has_ridge else None
            ridges[each.name] = ridge
            q = learned(each.personalise.filled(ridge=ridge), client.x, ridge)
            bias, variance = alone(client) if each.shares_nothing else newcomer(client, exact)
            rows[each.name].append((bias(q), variance(q)))
    made = {name: np.array(values) for name, values in rows.items()}
    return {
        name: Risk(
            float(parts[:, 0].mean()),
            float(parts[:, 1].mean()),
            ridges[name],
            float(parts.sum(1).std(ddof=1) / np.sqrt(len(parts))),
        )
        for name, parts in made.items()
    }
