"""What a client does with the shared model: every stage filters its residuals along the axes of its own samples.

theta_i = b + V diag((1 - P(x))/s) U'(y - X b), X = U diag(s) V', x = s^2/n, P being what the stage keeps; a ridge
(param-perridge) needs no axes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from fedasym.algorithms.stages import ClientStage, Objective
from fedasym.core.arrays import Array
from fedasym.exact.clients import Client
from fedasym.exact.server import FIRM

LEAST = 1e-12  # of the mean curvature: a ridge below this, beside others above it, is none


def personalised(
    stage: ClientStage, client: Client, shared: Array, ridge: float | Array, personal: NDArray[np.bool_] | None = None
) -> Array:
    """The client's model; `ridge`, one or one per unknown, is for stages with a squared penalty alone.

    personal: unknowns that the client may change; the others stay as they are shared.
    """
    e = client.y - client.X @ shared
    if personal is not None:
        own = replace(client, X=client.X[:, personal], y=e)
        mine = ridge[personal] if isinstance(ridge, np.ndarray) and ridge.ndim else ridge
        moved = shared.copy()
        moved[personal] += personalised(stage, own, np.zeros(own.X.shape[1]), mine)
        return moved
    if stage.objective is Objective.SHARED:
        return shared
    if stage.objective is Objective.PENALISED:
        return shared + shrunk(client, e, ridge)
    if np.ndim(ridge) == 0:
        stage = stage.filled(ridge=ridge)
    x = client.axes[1] ** 2 / client.n
    stage.check_largest(float(x[0]), f"on client {client.name!r}")
    return shared + gained(client, e, np.broadcast_to(stage.learn(x), x.shape))


def interpolated(client: Client, e: Array) -> Array:
    """X^+ e: the shortest way to the samples, or to their least squares."""
    return gained(client, e, np.ones_like(client.axes[1]))


def shrunk(client: Client, e: Array, ridge: float | Array) -> Array:
    """X'(XX' + n lambda)^{-1} e; no ridge interpolates, an infinite one stays.

    With a ridge per unknown, the same of X diag(lambda)^{-1/2} and ridge 1.
    """
    X, n = client.X, client.n
    if isinstance(ridge, np.ndarray) and ridge.ndim:
        reach = 1 / np.sqrt(np.maximum(ridge, LEAST * np.vdot(X, X) / n / X.shape[1]))
        return np.asarray(reach * shrunk(replace(client, X=X * reach), e, 1.0))
    if ridge == 0:
        return interpolated(client, e)
    if np.isinf(ridge):
        return np.zeros(X.shape[1])
    if ridge < FIRM * np.vdot(X, X) / n:  # the factor would lose e / ridge where rows depend on each other
        x = client.axes[1] ** 2 / n
        return gained(client, e, x / (x + ridge))
    gram = X @ X.T + n * ridge * np.eye(len(e))
    return np.asarray(X.T @ scipy.linalg.cho_solve(scipy.linalg.cho_factor(gram), e))


def gained(client: Client, e: Array, learned: Array) -> Array:
    """V (learned/s) U'e: the way to the samples, of which each axis has learned a share."""
    U, s, Vt = client.axes
    return np.asarray(Vt.T @ (np.divide(learned, s, out=np.zeros_like(s), where=s > 0) * (U.T @ e)))
