"""Predicted accuracies for an experiment's report: cheap, from some of the clients, without intervals or a page."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedasym.advisor.classes.comparing import compared
from fedasym.advisor.classes.intake import Classes, classes_in
from fedasym.advisor.classes.looking import look, refreshed
from fedasym.advisor.classes.predictions import predictions
from fedasym.advisor.classes.worlds import Sizes, World
from fedasym.advisor.covariance import spread
from fedasym.advisor.kinds import Kinds
from fedasym.core.arrays import Array
from fedasym.core.machine import few_threads
from fedasym.data.federation.federation import Federation

CLIENTS = 200  # that are looked at
FEATURES = 600  # more are projected at random
WORK = 1e10  # multiplications of the second look


@dataclass(frozen=True)
class Expected:
    """What theory and probes say of one algorithm: accuracies, shares of the clients' labels.

    theory: of the model on the estimated population; samples: of a least-squares classifier on held-out samples (or each left
    out), None where there is none; trusted: the one to rank by.
    """

    theory: float
    samples: float | None
    trusted: float


def predicted_accuracies(federation: Federation, *, clients: int = CLIENTS, features: int = FEATURES) -> dict[str, Expected]:
    """Accuracies of fedavg, rtfa, ftfa (stopped early), local_ridge and one step on a federation with class labels.

    Estimates come from at most `clients` clients, evenly spread, with all of their samples; predictions are for as many
    clients as the federation has. More than `features` features are projected onto so many random directions. Seconds.

    >>> import fedasym as fa
    >>> options = {"task": "classification", "classes": 2, "radius": 1.5, "centre": 1.5}
    >>> found = predicted_accuracies(fa.datasets.synthetic(**options, clients=30, dimension=40, seed=1))
    >>> found["rtfa"].theory > found["local_ridge"].theory
    True
    """
    taken = classes_in(federation)
    sizes = taken.data.sizes.astype(float)
    some = projected(thinned(taken, clients), features)
    with few_threads(some.data.dimension):
        seen = look(some, WORK)
        found = refreshed(seen, WORK) or seen.found
        share = float(seen.sizes.sum() / sizes.sum())  # the shared model errs less with all clients
        found = replace(found, excess=(found.excess[0] * share, found.excess[1] * share))
        shape, world = Sizes(Kinds.of(sizes), seen.dimension), World.of(found, taken.count)
        table, _ = predictions(found, world, shape, intervals=False)
        table = compared(table, seen.probes, world, shape, found)
    return {name: Expected(row.accuracy.value, row.probe, row.trusted) for name, row in table.items()}


def thinned(classes: Classes, most: int) -> Classes:
    """Some of the clients, evenly spread."""
    parts = classes.data.parts
    chosen = tuple(parts[int(place)] for place in spread(len(parts), most))
    return replace(classes, data=replace(classes.data, parts=chosen))


def projected(classes: Classes, most: int) -> Classes:
    """Features in so many random directions, where there are more."""
    d = int(classes.data.live.sum())
    if d <= most:
        return classes
    basis: Array = np.linalg.qr(np.random.default_rng(6).standard_normal((d, most)))[0]
    return replace(classes, data=replace(classes.data, basis=basis))
