"""Two passes over the clients: the shared model, then each client about the model of the others; nothing else sees samples."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedasym.advisor.classes.intake import Classes
from fedasym.advisor.classes.moments import WORK, Gathering, Moments, places_within
from fedasym.advisor.classes.pooling import ROOM, Shared, looked_at, pooled
from fedasym.advisor.classes.probes import Probes, Probing
from fedasym.advisor.intake import LEAST_CLIENTS
from fedasym.theory.spectra import Array

FRESH = 0.02  # accuracy by which held-out samples must fall short for the features to be suspected


@dataclass(frozen=True, eq=False)
class Look:
    """Everything that the samples said."""

    classes: Classes
    shared: Shared
    places: list[int]
    found: Moments
    probes: Probes
    counts: Array  # (clients, classes)


def look(classes: Classes, work: float = WORK) -> Look:
    """Two passes over the clients: the shared model, then each of them about the model of the others."""
    classes, shared = pooled(classes)
    places = places_within(classes, work)
    gathering, probing = Gathering(classes, shared), Probing(classes, shared)
    counts = np.zeros((len(classes.data.parts), classes.count))
    for place, part in enumerate(classes.data.parts):
        counts[place] = np.bincount(np.asarray(part.labels[part.train], dtype=int), minlength=classes.count)
    for place in places:
        X, codes = classes.data.rows(place)
        client = looked_at(shared, X, classes.targets(codes))
        gathering.add(classes.data.parts[place].name, client)
        probing.add(client, codes, classes.data.held(place))
    return Look(classes, shared, places, gathering.done(), probing.done(), counts)


def refreshed(seen: Look, work: float = WORK) -> Moments | None:
    """Estimates from held-out samples alone, where training samples look better than they should; None where that cannot be."""
    if not seen.probes.holds or seen.probes.shared.at(-1)[0] - seen.probes.shared_held.at(-1)[0] < FRESH:
        return None
    data = seen.classes.data
    parts = tuple(replace(part, train=part.held, held=part.train[:0]) for part in data.parts if part.held.size)
    samples = sum(part.train.size for part in parts)
    if len(parts) < LEAST_CLIENTS or samples < ROOM * data.dimension or max(part.train.size for part in parts) < 2:
        return None
    fresh, shared = pooled(replace(seen.classes, data=replace(data, parts=parts)))
    if fresh.data.dimension != data.dimension:
        return None
    gathering = Gathering(fresh, shared)
    for place in places_within(fresh, work):
        X, codes = fresh.data.rows(place)
        gathering.add(fresh.data.parts[place].name, looked_at(shared, X, fresh.targets(codes)))
    found = gathering.done()
    return replace(found, summaries=seen.found.summaries, excess=seen.found.excess, method=f"{found.method}, held-out samples")
