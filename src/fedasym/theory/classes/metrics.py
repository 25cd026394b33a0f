"""Section 1: every test metric of a linear rule w from two numbers, T = w'Sigma theta_i and Q = w'Sigma w."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, ndtr

from fedasym.core.arrays import Array
from fedasym.theory.classes.links import inverse_reach, phi, smoothed
from fedasym.theory.classes.quadrature import CHUNK, LEVEL, STRIP, graded, half_normal, nodes_for, step_for

LONG = 1e5  # deviation of logits from which scores are extended instead of integrated


@dataclass(frozen=True, eq=False)
class State:
    """A rule against its client: m = x'w ~ N(0, Q) and s = x'theta_i ~ N(0, rho^2) with covariance T.

    `rest` is Var(s | m) = rho^2 - T^2/Q, kept apart because the difference cancels when the rule is nearly perfect.
    """

    T: Array
    Q: Array
    rho: Array
    rest: Array

    @classmethod
    def of(cls, T: ArrayLike, Q: ArrayLike, rho: ArrayLike) -> State:
        """A state whose remaining variance is the plain difference.

        >>> float(State.of(2.0, 4.0, 2.0).rest)
        3.0
        """
        t, q, r = (np.asarray(x, dtype=float) for x in np.broadcast_arrays(T, Q, rho))
        known = np.divide(t**2, q, out=np.zeros(t.shape), where=q > 0)
        return cls(t, q, r, np.maximum(r**2 - known, 0.0))

    @property
    def cos(self) -> Array:
        """The cosine T/(rho sqrt Q), 0 for a rule or a client that is zero."""
        size = self.rho * np.sqrt(self.Q)
        return np.clip(np.divide(self.T, size, out=np.asarray(0.0 * self.T), where=size > 0), -1, 1)

    @property
    def tangent(self) -> Array:
        """The tangent cos/sqrt(1-cos^2), from the remaining variance; infinite for a perfect direction."""
        size = np.sqrt(self.Q * self.rest)
        with np.errstate(divide="ignore", over="ignore"):
            return np.asarray(np.divide(self.T, size, out=np.where(self.T > 0, np.inf, 0.0 * self.T), where=size > 0))

    def take(self, where: int | slice | Array) -> State:
        """Some of the batch."""
        return State(self.T[where], self.Q[where], self.rho[where], self.rest[where])


def accuracy(state: State, eps: ArrayLike = 0.0) -> Array:
    """Labels that sign(x'w) gets right: 2 int_0^inf phi_N(z) {p(rho z) Phi(tz) + (1-p(rho z)) Phi(-tz)} dz.

    It depends on the direction of w alone.

    >>> round(float(accuracy(State.of(1.0, 1.0, np.sqrt(2)))), 12)
    0.650978870274
    """
    return accuracy_of(state.tangent, state.rho, eps)


def accuracy_of(tangent: Array, rho: Array, eps: ArrayLike = 0.0) -> Array:
    """`accuracy` from t = cos/sqrt(1-cos^2) and rho: 1/2 + (1-2 eps) int (2 sig(rho z) - 1)(2 Phi(tz) - 1) phi_N."""
    t, r, flips = (np.asarray(x, dtype=float) for x in np.broadcast_arrays(tangent, rho, eps))
    z, w = graded()
    density = w * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    edge = np.empty(t.size)
    size = max(1, CHUNK // z.size)
    for i in range(0, t.size, size):
        tz, rz = t.reshape(-1)[i : i + size, None] * z, r.reshape(-1)[i : i + size, None] * z
        edge[i : i + size] = (np.tanh(rz / 2) * (2 * ndtr(tz) - 1)) @ density
    return np.asarray(0.5 + (1 - 2 * flips) * edge.reshape(t.shape))


def log_loss(state: State, eps: ArrayLike = 0.0, level: float = LEVEL) -> Array:
    """The log-loss -E[Pbar log sig(m) + (1-Pbar) log sig(-m)], Pbar(m) = E[p(s) | m].

    >>> round(float(log_loss(State.of(0.0, 0.0, 1.0)) - np.log(2)), 12)
    0.0
    """
    short, share = shortened(state)
    return averaged(short, eps, level, lambda m: np.logaddexp(0.0, -m)) / share  # as long as it is: A sd + O(1/sd)


def brier(state: State, eps: ArrayLike = 0.0, level: float = LEVEL) -> Array:
    """The Brier score E[Pbar (1-sig m)^2 + (1-Pbar) sig(m)^2]."""
    short, share = shortened(state)
    wrong = 1 - accuracy(state, eps)
    return wrong + share * (averaged(short, eps, level, lambda m: expit(-m) ** 2) - wrong)  # wrong + O(1/sd)


def shortened(state: State) -> tuple[State, Array]:
    """A model whose logits are so long that a grid cannot follow them (at the threshold of separability), cut to LONG."""
    with np.errstate(divide="ignore"):
        share = np.minimum(1.0, LONG / np.sqrt(state.Q))
    return State(state.T * share, state.Q * share**2, state.rho, state.rest), share


def averaged(state: State, eps: ArrayLike, level: float, loss: Callable[[Array], Array]) -> Array:
    """E loss(y m): settings that need the same number of nodes together."""
    shape = np.broadcast_shapes(np.shape(state.T), np.shape(eps))
    T, Q, rest, flips = (np.broadcast_to(x, shape).reshape(-1) for x in (state.T, state.Q, state.rest, eps))
    sd, tau = np.sqrt(Q), np.sqrt(rest)
    slope = np.divide(T, sd, out=np.zeros(sd.shape), where=sd > 0)
    known = np.isfinite(sd + slope + tau)
    sd, slope, tau = (np.where(known, x, 1.0) for x in (sd, slope, tau))
    nodes = nodes_for(outer_step(sd, slope, tau, level), level)
    out = np.full(T.size, np.nan)
    for count in np.unique(nodes[known]):
        z, w = half_normal(int(count), level)
        group = np.flatnonzero(known & (nodes == count))
        size = max(1, CHUNK // int(count))
        for i in range(0, group.size, size):
            part = group[i : i + size]
            p = smoothed(slope[part, None] * z, tau[part], level)[0]
            p = flips[part, None] + (1 - 2 * flips[part, None]) * p
            m = sd[part, None] * z
            out[part] = 2 * (p * loss(m) + (1 - p) * loss(-m)) @ w
    return out.reshape(shape)


def outer_step(sd: Array, slope: Array, tau: Array, level: float) -> Array:
    """The step for functions of m = sd z times the smoothed link at slope z with remaining deviation tau.

    The loss asks for the strip pi/sd. The link, smoothed, is entire: either its strip pi/slope is kept, or its growth
    exp((slope a)^2/(2 tau^2)) is paid for. The better of the two counts.
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        own = STRIP / sd
        kept = step_for(np.minimum(own, STRIP / np.abs(slope)), level=level)
        growth = 1 + np.minimum((slope / tau) ** 2, 1e12)
        paid = step_for(own, np.where(np.isfinite(growth), growth, 1e12), level=level)
    return np.maximum(kept, paid)


def calibration(state: State, eps: ArrayLike = 0.0) -> Array:
    """The slope k of logistic recalibration, k Q phi(k sqrt Q) = T (1-2 eps) phi(rho); below 1: over-confident.

    With x = k sqrt Q both sides are of the form x phi(x). A rule that is zero has none: NaN.
    """
    sd = np.sqrt(state.Q)
    x = inverse_reach(np.abs(state.cos) * (1 - 2 * np.asarray(eps)) * state.rho * phi(state.rho))
    slope = np.divide(x, sd, out=np.full(np.shape(x), np.nan), where=sd > 0)
    return np.asarray(np.sign(state.T) * slope)
