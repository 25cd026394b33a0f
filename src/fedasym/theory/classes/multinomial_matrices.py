"""Section 11.2: the K x K means of the softmax fixed point over sampled logits, and an accelerated fixed-point iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fedasym.core.arrays import Array
from fedasym.core.errors import NoFormula
from fedasym.theory.classes.multinomial_prox import softmax
from fedasym.theory.classes.multinomial_samples import Samples, contrasts

CHUNK = 1 << 17  # numbers in the matrices held at once
STEPS = 100
HALVINGS = 40
CLOSE = 1e-9
DAMPING = 0.8
DEPTH = 6
LEAP = 0.5  # the most that an unknown, scaled to be about 1, moves at once
TOLERANCE = 1e-9
ITERATIONS = 300


def root(S: Array) -> Array:
    """The symmetric square root of a positive semidefinite matrix: it moves smoothly with it, as its eigenvectors do not."""
    x, U = np.linalg.eigh(S)
    return np.asarray((U * np.sqrt(np.maximum(x, 0.0))) @ U.T)


@dataclass(frozen=True, eq=False)
class Shape:
    """The joint law, in contrasts, of a rule's logits w ~ N(intercept, Q) and the client's s ~ N(bias, total), Cov(s, w) = T"""

    T: Array
    Q: Array
    intercept: Array
    total: Array
    bias: Array

    def contrasts(self, points: Samples) -> tuple[Array, Array]:
        """The logits w and s in contrasts, shapes (K, N)."""
        w = root(self.Q) @ points.xi1
        slope = self.T @ np.linalg.pinv(self.Q, rcond=1e-12, hermitian=True)
        s = slope @ w + root(self.total - slope @ self.T.T) @ points.xi2
        return w + self.intercept[:, None], s + self.bias[:, None]

    def logits(self, points: Samples) -> tuple[Array, Array]:
        """The logits w and s by class, shapes (C, N)."""
        B = contrasts(points.classes)
        w, s = self.contrasts(points)
        return B @ w, B @ s


@dataclass
class Unknowns:
    """The last proximal points by chunk, where Newton's method starts next time."""

    eta: dict[int, Array] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Means:
    """Hh, M, G (K x K) and E g (K)."""

    Hh: Array
    M: Array
    G: Array
    mean: Array


def moments(shape: Shape, V: Array, points: Samples, guess: Unknowns) -> Means:
    """Hh = E[L (I+VL)^-1], M_ab = E sum_k dp_k/ds_a g_b, G = E[g g'] and E g over the labels."""
    B = contrasts(points.classes)
    C, K = B.shape
    w, s = shape.contrasts(points)
    p = softmax(B @ s).T
    Hh, M, G, mean = np.zeros((K, K)), np.zeros((K, K)), np.zeros((K, K)), np.zeros(K)
    size = max(1, CHUNK // (C * K * K))
    for first in range(0, len(p), size):
        here = slice(first, first + size)
        start = guess.eta.get(first, w[:, here].T[:, None] + (B / (1 + np.trace(V) / K) @ V)[None])
        eta, q = prox_in_contrasts(w[:, here].T, V, B, start)
        guess.eta[first] = eta
        g = B - q @ B  # (n, labels, K)
        share = p[here] * points.weight[here, None]
        L = slopes(q, B)
        Hh += np.einsum("nk,nkab->ab", share, np.linalg.solve(np.eye(K) + L @ V, L))
        lift = share[..., None] * (B - (p[here] @ B)[:, None])  # dp_k/ds
        M += np.einsum("nka,nkb->ab", lift, g)
        G += np.einsum("nk,nka,nkb->ab", share, g, g, optimize=True)
        mean += np.einsum("nk,nka->a", share, g)
    return Means((Hh + Hh.T) / 2, M, G, mean)


def slopes(q: Array, B: Array) -> Array:
    """L = B'(diag q - qq')B for probabilities (..., C)."""
    flat = q @ B
    return np.asarray((q[..., None, :] * B.T) @ B - flat[..., :, None] * flat[..., None, :])


def prox_in_contrasts(w: Array, V: Array, B: Array, eta: Array) -> tuple[Array, Array]:
    """The root of eta = w + V B'(e_k - softmax(B eta)) for every label: (n, labels, K), and its softmax (n, labels, C).

    Newton's method on (eta-w)'V^-1(eta-w)/2 + lse(B eta) - (B eta)_k, with halved steps where that rises.
    """
    aim = (w[:, None] + B @ V).reshape(-1, B.shape[1])
    shape, eta = eta.shape, eta.reshape(aim.shape)
    inverse = np.asarray(np.linalg.inv(V), dtype=float)
    value, p = merit(eta, aim, inverse, B)
    for _ in range(STEPS):
        r = aim - eta - p @ B @ V
        step = np.linalg.solve(np.eye(len(V)) + V @ slopes(p, B), r[..., None])[..., 0]
        descent = np.einsum("na,na->n", r @ inverse, step)
        length, trial = 1.0, eta + step
        new, q = merit(trial, aim, inverse, B)
        slack = 1e-13 * (1 + np.abs(value))
        bad = np.flatnonzero(new > value - 1e-4 * descent + slack)
        for _ in range(HALVINGS):
            if not bad.size:
                break
            length /= 2
            trial[bad] = eta[bad] + length * step[bad]
            new[bad], q[bad] = merit(trial[bad], aim[bad], inverse, B)
            bad = bad[new[bad] > value[bad] - 1e-4 * length * descent[bad] + slack[bad]]
        eta, value, p = trial, new, q
        if np.abs(step).max() < CLOSE:
            break
    return eta.reshape(shape), p.reshape(*shape[:2], len(B))


def merit(eta: Array, aim: Array, inverse: Array, B: Array) -> tuple[Array, Array]:
    """The objective of `prox_in_contrasts` up to a constant, and softmax(B eta)."""
    x, gap = eta @ B.T, eta - aim
    top = x.max(1, keepdims=True)
    e = np.exp(x - top)
    total = e.sum(1, keepdims=True)
    value = 0.5 * np.einsum("na,na->n", gap @ inverse, gap) + (np.log(total) + top)[:, 0]
    return value, e / total


def accelerated(update: Callable[[Array], Array], x: Array) -> Array:
    """The fixed point of `update` from x: steps of `DAMPING`, mixed with the last ones (Anderson)."""
    xs: list[Array] = []
    steps: list[Array] = []
    for count in range(ITERATIONS):
        step = update(x) - x
        if not np.all(np.isfinite(step)):
            break
        if np.abs(step).max() < TOLERANCE * np.abs(x).max():
            return np.asarray(x + step)
        xs, steps = [*xs[-DEPTH:], x], [*steps[-DEPTH:], step]
        move = DAMPING * step
        if count >= 1:
            dX, dF = (np.diff(np.array(each), axis=0).T for each in (xs, steps))
            move = move - (dX + DAMPING * dF) @ np.linalg.lstsq(dF, step, rcond=1e-10)[0]
        x = x + np.clip(move, -LEAP, LEAP)
    raise NoFormula(
        "no solution of the softmax system: with this ridge the classes are (nearly) separable and the weights diverge; "
        "take a larger ridge"
    )
