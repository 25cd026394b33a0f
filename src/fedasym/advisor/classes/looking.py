"""Two passes over the clients: the shared model, then each client about the model of the others; nothing else sees samples."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np

from fedasym.advisor.classes.intake import Classes, Coding
from fedasym.advisor.classes.moments import WORK, Gathering, Moments, places_within
from fedasym.advisor.classes.pooling import ROOM, looked_at, pooled
from fedasym.advisor.classes.probes import Probes, Probing, ratios_of
from fedasym.advisor.intake import LEAST_CLIENTS, Data
from fedasym.core.arrays import Array

FRESH = 0.02  # accuracy by which held-out samples must fall short for the features to be suspected


@dataclass(frozen=True, eq=False)
class Look:
    """Everything that the samples said.

    dropped: features that are always 0 or follow from others. energy: the mean squared length of a sample's features;
    mean_share: the part of it in their mean. places: the clients that were looked at twice, and in `probes`.
    """

    classes: Coding
    clients: tuple[Hashable, ...]
    sizes: Array
    dimension: int
    dropped: int
    energy: float
    mean_share: float
    places: list[int]
    found: Moments
    probes: Probes
    counts: Array  # (clients, classes)
    data: Data | None = None  # None where samples stayed with their clients


def look(classes: Classes, work: float = WORK) -> Look:
    """Two passes over the clients: the shared model, then each of them about the model of the others."""
    classes, shared = pooled(classes)
    places = places_within(classes, work)
    data = classes.data
    sizes = data.sizes.astype(float)
    gathering = Gathering(classes, shared)
    probing = Probing(classes, ratios_of(float(np.trace(shared.S)), sizes, data.dimension))
    counts = np.zeros((len(data.parts), classes.count))
    for place, part in enumerate(data.parts):
        counts[place] = np.bincount(np.asarray(part.labels[part.train], dtype=int), minlength=classes.count)
    for place in places:
        X, codes = data.rows(place)
        client = looked_at(shared, X, classes.targets(codes))
        gathering.add(data.parts[place].name, client)
        probing.add(client, codes, data.held(place), shared.without(client))
    energy = float(np.trace(shared.covariance))
    return Look(
        classes=classes,
        clients=tuple(part.name for part in data.parts),
        sizes=sizes,
        dimension=data.dimension,
        dropped=data.left_out,
        energy=energy,
        mean_share=float(shared.mean @ shared.mean) / energy,
        places=places,
        found=gathering.done(),
        probes=probing.done(),
        counts=counts,
        data=data,
    )


def refreshed(seen: Look, work: float = WORK) -> Moments | None:
    """Estimates from held-out samples alone, where training samples look better than they should; None where that cannot be."""
    data = seen.data
    if data is None or not seen.probes.holds:
        return None
    if seen.probes.shared.at(-1)[0] - seen.probes.shared_held.at(-1)[0] < FRESH:
        return None
    parts = tuple(replace(part, train=part.held, held=part.train[:0]) for part in data.parts if part.held.size)
    samples = sum(part.train.size for part in parts)
    if len(parts) < LEAST_CLIENTS or samples < ROOM * data.dimension or max(part.train.size for part in parts) < 2:
        return None
    fresh, shared = pooled(Classes(seen.classes.names, replace(data, parts=parts)))
    if fresh.data.dimension != data.dimension:
        return None
    gathering = Gathering(fresh, shared)
    for place in places_within(fresh, work):
        X, codes = fresh.data.rows(place)
        gathering.add(fresh.data.parts[place].name, looked_at(shared, X, fresh.targets(codes)))
    found = gathering.done()
    return replace(found, summaries=seen.found.summaries, excess=seen.found.excess, method=f"{found.method}, held-out samples")
