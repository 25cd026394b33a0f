"""Section 11.1: the proximal point of the softmax loss for every label, eta = w + V (e_k - softmax eta), and what follows.

Arrays have the class of the logit first, then the label k, then the points: sums over classes are then sums of long rows.
"""

from __future__ import annotations

import numpy as np

from fedasym.core.arrays import Array

STEPS = 100
HALVINGS = 40
CLOSE = 1e-9  # of a full Newton step, after which the error is that squared


def softmax(x: Array) -> Array:
    """Over the first axis."""
    e = np.exp(x - x.max(0))
    return np.asarray(e / e.sum(0))


def start(w: Array, V: float) -> Array:
    """Where Newton's method starts: the label's logit raised by at most log(1+V)."""
    classes = len(w)
    return np.asarray(w[:, None] + np.log1p(V) * (np.eye(classes) - 1 / classes)[..., None])


def prox(w: Array, V: float, eta: Array) -> tuple[Array, Array]:
    """The root eta (C, C, N) and its softmax, for logits w (C, N) and V > 0, from a guess of eta.

    Newton's method on |eta - w|^2/2 + V (lse(eta) - eta_k), strictly convex; its matrix I + V(diag p - pp') is inverted by
    Sherman and Morrison: with u = p/(1+Vp), 1 - V p'u = sum u does not cancel. Points whose value rises halve their step.
    """
    classes = len(w)
    aim = w[:, None] + V * np.eye(classes)[..., None]
    shape = eta.shape
    aim, eta = aim.reshape(classes, -1), eta.reshape(classes, -1)
    value, p = merit(eta, aim, V)
    for _ in range(STEPS):
        r = aim - eta - V * p
        D = 1 + V * p
        r /= D
        step = r + (V * (p * r).sum(0) / (p / D).sum(0)) * (p / D)
        descent = (D * r * step).sum(0)
        trial = eta + step
        new, q = merit(trial, aim, V)
        slack = 1e-13 * (1 + np.abs(value))
        bad = np.flatnonzero(new > value - 1e-4 * descent + slack)
        length = 1.0
        for _ in range(HALVINGS):
            if not bad.size:
                break
            length /= 2
            trial[:, bad] = eta[:, bad] + length * step[:, bad]
            new[bad], q[:, bad] = merit(trial[:, bad], aim[:, bad], V)
            bad = bad[new[bad] > value[bad] - 1e-4 * length * descent[bad] + slack[bad]]
        eta, value, p = trial, new, q
        if np.abs(step).max() < CLOSE:
            break
    return eta.reshape(shape), p.reshape(shape)


def merit(eta: Array, aim: Array, V: float) -> tuple[Array, Array]:
    """|eta - aim|^2/2 + V lse(eta), which differs from the objective by a constant, and softmax(eta)."""
    top = eta.max(0)
    e = np.exp(eta - top)
    total = e.sum(0)
    gap = eta - aim
    return 0.5 * np.einsum("jn,jn->n", gap, gap) + V * (np.log(total) + top), e / total


def curvature(p: Array, V: float) -> Array:
    """tr[L (I+VL)^-1] with L = diag p - pp' over the first axis; stable for V -> 0.

    >>> p = np.array([0.2, 0.3, 0.5])
    >>> L = np.diag(p) - np.outer(p, p)
    >>> bool(np.isclose(curvature(p, 2.0), np.trace(L @ np.linalg.inv(np.eye(3) + 2 * L))))
    True
    """
    u = p / (1 + V * p)
    total, pu = u.sum(0), (p * u).sum(0)
    return np.asarray(total - pu + V * ((p * u * u).sum(0) - pu * pu) / total)
