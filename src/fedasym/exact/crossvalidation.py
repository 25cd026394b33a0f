"""A common ridge from the data, without a model of how clients differ: generalised cross-validation, client by client.

A client's residuals e are about the shared model of all others (theory: with its own samples in, the curve is too low by
O(1/m)), and GCV_i(lambda) = (|(I - A)e|^2/n) / (1 - tr A/n)^2, A = X(X'X + n lambda)^{-1}X', estimates its test error with
that ridge. One client's curve is noisy: their mean chooses.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.optimize

from fedasym.algorithms.stages import ServerStage
from fedasym.core.arrays import Array
from fedasym.exact.clients import Client
from fedasym.exact.server import Pool, half_weight, triangle

SPAN = np.log(1e6)  # a ridge this far beyond the mean curvature of the samples is none, or infinite
POINTS = 25


def cross_validated(server: ServerStage, clients: Sequence[Client], weights: Array) -> float:
    """The ridge of lowest mean GCV: a grid over log lambda, then a search around its best."""
    curvature = np.log(np.mean([np.vdot(c.X, c.X) / (c.n * len(c.X)) for c in clients]) or 1.0)
    fixed = None if "ridge" in server.settings() else residuals(server, clients, weights, np.inf)

    def score(log_ridge: float) -> float:
        ridge = float(np.exp(log_ridge))
        left = residuals(server, clients, weights, ridge) if fixed is None else fixed
        return float(np.mean([gcv(client, e, ridge) for client, e in zip(clients, left, strict=True)]))

    grid = np.linspace(curvature - SPAN, curvature + SPAN, POINTS)
    place = int(np.argmin([score(at) for at in grid]))
    low, high = grid[max(place - 1, 0)], grid[min(place + 1, POINTS - 1)]
    best = scipy.optimize.minimize_scalar(score, bounds=(low, high), method="bounded", options={"xatol": 1e-4}).x
    return float(np.exp(min(best, grid[place], key=score)))


def residuals(server: ServerStage, clients: Sequence[Client], weights: Array, ridge: float) -> list[Array]:
    """U'e for every client: its residuals about the shared model of the others, along the axes of its samples."""
    if not server.shares:
        return [client.axes[0].T @ client.y for client in clients]
    halves = [
        np.sqrt(p / client.n) * half_weight(server, client.axes[1] ** 2 / client.n, ridge)
        for client, p in zip(clients, weights, strict=True)
    ]

    def rows(place: int) -> tuple[Array, Array]:
        (U, s, Vt), half = clients[place].axes, halves[place]
        return (half * s)[:, None] * Vt, half * (U.T @ clients[place].y)

    pool = Pool.of(triangle(rows(place) for place in range(len(clients))))
    return [pool.left_out(*rows(place)) / halves[place] for place in range(len(clients))]


def gcv(client: Client, e: Array, ridge: float) -> float:
    """Generalised cross-validation of one client from its residuals along its axes."""
    k = ridge / (ridge + client.axes[1] ** 2 / client.n)
    n = client.n
    return float((((k * e) ** 2).sum() + client.rest) / n / ((n - len(k) + k.sum()) / n) ** 2)
