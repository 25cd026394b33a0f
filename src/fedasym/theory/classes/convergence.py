"""Section 5: fine-tuning to convergence. The shared model drops out, for every gamma: it equals purely local training.

Below the separability threshold gradient descent finds the maximum-likelihood estimate, above it the max-margin direction.
"""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.core.arrays import Array
from fedasym.theory.classes.margins import max_margin
from fedasym.theory.classes.ridge import Fit, solve
from fedasym.theory.classes.separability import Threshold, threshold
from fedasym.worlds.energies import Energies

EDGE = 0.999  # share of gamma* beyond which the estimate is extrapolated
NUDGE = 1e-7  # the margin is zero at the threshold itself


class Converged(NamedTuple):
    """The fit, and where the data are separable: there it is in units of margin 1, and its log-loss has no limit."""

    fit: Fit
    separable: NDArray[np.bool_]


def converged(energies: Energies, gamma: ArrayLike, eps: ArrayLike = 0.0) -> Converged:
    """The logistic loss trained to convergence from any start, on each setting of a batch.

    >>> from fedasym.theory.classes.metrics import accuracy
    >>> end = converged(Energies.isotropic(2, 1), gamma=[0.1, 5])
    >>> end.separable.tolist(), [round(float(x), 4) for x in accuracy(end.fit)]
    ([False, True], [0.7644, 0.5671])
    """
    shape = np.broadcast_shapes(energies.batch, np.shape(gamma), np.shape(eps))
    e = energies.broadcast(shape).flat()
    g, flips = (np.broadcast_to(np.asarray(x, dtype=float), shape).reshape(-1) for x in (gamma, eps))
    edge = threshold(e.rho, flips)
    ratio = g * e.rank / edge.gamma
    pieces: list[tuple[NDArray[np.intp], Fit]] = []
    if (rows := np.flatnonzero(ratio <= EDGE)).size:
        pieces.append((rows, solve(e.take(rows), g[rows], 0.0, eps=flips[rows])))
    if (rows := np.flatnonzero((ratio > EDGE) & (ratio < 1))).size:
        pieces.append((rows, extrapolated(e.take(rows), g[rows], flips[rows], Threshold(edge.gamma[rows], edge.tangent[rows]))))
    if (rows := np.flatnonzero(ratio >= 1)).size:
        beyond = g[rows] * np.where(ratio[rows] < 1 + NUDGE, 1 + NUDGE, 1)
        pieces.append((rows, max_margin(e.take(rows), beyond, flips[rows])))
    return Converged(joined(pieces, shape), (ratio >= 1).reshape(shape))


def extrapolated(e: Energies, gamma: Array, eps: Array, edge: Threshold) -> Fit:
    """The estimate within 1 - EDGE of gamma*: its tangent and 1/sqrt Q are linear in gamma there, V ~ sqrt Q.

    Both end at the threshold: the tangent in t*, where the max margin begins too, and 1/sqrt Q in 0.
    """
    last = solve(e, EDGE * edge.gamma / e.rank, 0.0, eps=eps)
    left = (1 - gamma * e.rank / edge.gamma) / (1 - EDGE)
    tangent = edge.tangent + (last.tangent - edge.tangent) * left
    Q, V = last.Q / left**2, last.V / left
    sin2 = 1 / (1 + tangent**2)
    T = e.rho * np.sqrt(Q) * tangent * np.sqrt(sin2)
    H = gamma * e.rank / V
    f0 = np.where(e.s > 0, np.divide(T, e.rho**2, out=np.zeros(T.shape), where=e.rho > 0)[:, None], 0.0)
    return Fit(T, Q, e.rho, e.rho**2 * sin2, V, H, f0.max(-1) * H, H**2 * Q * sin2 / (gamma * e.rank), f0, last.residual)


def joined(pieces: list[tuple[NDArray[np.intp], Fit]], shape: tuple[int, ...]) -> Fit:
    """Fits of parts of a flat batch, put together."""
    size = sum(rows.size for rows, _ in pieces)
    out: dict[str, Array] = {}
    for field in fields(Fit):
        whole = np.empty((size, *np.shape(getattr(pieces[0][1], field.name))[1:]))
        for rows, fit in pieces:
            whole[rows] = getattr(fit, field.name)
        out[field.name] = whole.reshape((*shape, *whole.shape[1:]))
    return Fit(**out)
