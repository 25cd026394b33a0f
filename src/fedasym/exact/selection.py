"""What clients choose by their losses: groups with a shared model each, and the weight of their own
models in a mixture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedasym.algorithms import Algorithm
from fedasym.algorithms.stages import ServerStage
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array
from fedasym.exact.clients import Client
from fedasym.exact.least_squares import LEVERAGE, fit_shared, residuals_about_others
from fedasym.exact.spread import about_means

PASSES = 20  # of assignments to groups
BEGINNINGS = 10  # of which the best counts


def group_by_angle(vectors: Array, count: int) -> NDArray[np.intp]:
    """Groups of vectors that point the same way, as numbers from 0; there may be fewer.

    Leaders are one of the first vectors and, one after another, the one that is farthest in angle
    from all leaders; then groups and their mean directions follow each other (k-means on a sphere).
    Of several beginnings the one counts whose groups are closest.

    >>> group_by_angle(np.array([[1.0, 0], [0, 2], [3, 0.1], [0.1, 1]]), 2).tolist()
    [0, 1, 0, 1]
    """
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300)
    cosines = unit @ unit.T
    found = [follow_leaders(cosines, first, count) for first in range(min(BEGINNINGS, len(unit)))]
    best = max(found, key=lambda groups: float(closeness(cosines, groups, count)[1]))
    return np.asarray(np.unique(best, return_inverse=True)[1])


def follow_leaders(cosines: Array, first: int, count: int) -> NDArray[np.intp]:
    """Groups around leaders, of which this is the first."""
    leaders = [first]
    while len(leaders) < count:
        leaders.append(int(cosines[:, leaders].max(axis=1).argmin()))
    groups: NDArray[np.intp] = cosines[:, leaders].argmax(axis=1)
    for _ in range(PASSES):
        later = closeness(cosines, groups, count)[0].argmax(axis=1)
        if np.array_equal(later, groups):
            break
        groups = later
    return groups


def closeness(cosines: Array, groups: NDArray[np.intp], count: int) -> tuple[Array, float]:
    """The cosine of every vector to every group's mean direction, and the sum over its own."""
    members = (groups[:, None] == np.arange(count)).astype(float)
    sums = cosines @ members
    lengths = np.sqrt(np.maximum((members * sums).sum(0), 1e-300))
    each = sums / lengths
    return each, float(each[np.arange(len(groups)), groups].sum())


def mixture_weight(
    server: ServerStage, own_ridge: float, clients: Sequence[Client], weights: Array
) -> float:
    """The weight a of clients' own models beside the shared one, between 0 and 1, by generalised
    cross-validation.

    With e a client's residuals about the others' shared model and l those about its own, as if each
    sample had been left out, sum |(1 - a) e + a l|^2 is least at one a.
    """
    left = residuals_about_others(server, clients, weights, np.inf)
    ee = el = ll = 0.0
    for client, e in zip(clients, left, strict=True):
        U, s, _ = client.axes
        x = s**2 / client.n
        if own_ridge == 0 and client.n <= x.size and np.all(x > 0):  # each sample is interpolated
            share, beside = np.mean(1 / x) ** -1 / x, 1.0
        else:
            kept = own_ridge / (own_ridge + x) if own_ridge else np.where(x > 0, 0.0, 1.0)
            beside = 1 / max((client.n - len(x) + float(kept.sum())) / client.n, LEVERAGE)
            share = kept * beside
        own = share * (U.T @ client.y)
        ee += float(e @ e) + client.rest
        el += float(e @ own) + client.rest * beside
        ll += float(own @ own) + client.rest * beside**2
    room = ee + ll - 2 * el
    return float(np.clip((ee - el) / room, 0.0, 1.0)) if room > 0 else 0.0


def choose_groups(
    stage: ServerStage, data: Sequence[Client], p: Array, count: int
) -> NDArray[np.intp]:
    """Each client's group: first by the angles of gradients at zero, then by the least loss among
    the groups' shared models.
    """
    gradients = np.stack([(client.X.T @ client.y).ravel() / client.n for client in data])
    groups = group_by_angle(gradients - p @ gradients, min(count, len(data)))
    for _ in range(PASSES):
        models = []
        for group in np.unique(groups):
            mine = np.flatnonzero(groups == group)
            part = [client for client, each in zip(data, groups, strict=True) if each == group]
            models.append(fit_shared(stage, part, p[mine] / p[mine].sum(), None, None).theta)
        losses = [
            [float(((client.X @ model - client.y) ** 2).sum()) for model in models]
            for client in data
        ]
        later = np.argmin(losses, axis=1)
        if np.array_equal(later, groups):
            break
        groups = later
    return groups


def own_ridge(algorithm: Algorithm) -> float:
    """The ridge of the model that clients of a mixture make on their own; 0: none."""
    stage = algorithm.personalise.own_stage
    return 0.0 if stage is None else float(stage.get("ridge") or 0.0)


def with_mixture(
    algorithm: Algorithm, lines: Sequence[Sequence[Client]], weights: Array, intercept: bool
) -> Algorithm:
    """The algorithm with the weight of clients' own models, where it mixes and has none."""
    stage = algorithm.personalise
    if stage.own_stage is None or stage.get("mixture") is not None:
        return algorithm
    found = [choose_mixture(algorithm, clients, weights, intercept) for clients in lines]
    return replace(algorithm, personalise=stage.at(mixture=float(np.mean(found))))


def choose_mixture(
    algorithm: Algorithm, clients: Sequence[Client], weights: Array, intercept: bool
) -> float:
    """The weight of clients' own models beside the shared one."""
    if len(clients) < 2:
        raise InvalidInput(
            f"mixture is found beside other clients' samples, and there is only"
            f" {clients[0].name!r}: give mixture as a number"
        )
    places = list(range(len(clients)))
    if intercept:
        centred = [about_means(client) for client in clients]
        places = [place for place in range(len(centred)) if centred[place] is not None]
        clients = [each for each in centred if each is not None]
    fair = weights[places]
    if len(clients) < 2:
        return 0.0
    return mixture_weight(algorithm.server, own_ridge(algorithm), clients, fair / fair.sum())
