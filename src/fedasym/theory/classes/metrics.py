"""Sections 0, 1 and 3.1: the sigmoid seen through normal noise, and every test metric of a linear
rule.

A rule w enters through two numbers alone, T = w'Sigma theta_i and Q = w'Sigma w. Means over normal
variables are sums by rules whose error is known in advance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, ndtr

from fedasym.core.numbers import Array
from fedasym.theory.roots import find_roots

LEVEL = 37.0  # errors of exp(-37) = 1e-16
STRIP = 0.98 * np.pi  # where the sigmoid is analytic, with a margin to the pole
NODES_AT_ONCE = 1 << 18  # numbers held at once: fits the cache


def step_for(strip: Array, growth: Array | float = 1.0, level: float = LEVEL) -> Array:
    """The largest step for exp(-z^2/2) F(z), where |exp(-z^2/2) F| grows like exp(growth a^2/2) up
    to |Im z| = a <= strip.

    exp(growth a^2/2 - 2 pi a/step) = exp(-level), at the a that allows the largest step.
    """
    a = np.minimum(strip, np.sqrt(2 * level / np.asarray(growth)))
    return np.asarray(2 * np.pi * a / (level + growth * a**2 / 2))


def normal_reach(level: float = LEVEL) -> float:
    """Where a normal density ends: exp(-z^2/2) = exp(-level), and a little further."""
    return float(np.sqrt(2 * level) + 0.4)


def nodes_for(step: Array, level: float = LEVEL) -> Array:
    """How many nodes of one sign that takes, rounded up so that settings share grids."""
    needed = np.maximum(np.ceil(normal_reach(level) / step), 8)
    fold = 2.0 ** (np.floor(np.log2(needed)) - 3)
    return np.asarray(np.ceil(needed / fold) * fold, dtype=np.intp)


@lru_cache(maxsize=256)
def half_normal_nodes(nodes: int, level: float = LEVEL) -> tuple[Array, Array]:
    """Nodes z > 0 and weights that sum to 1/2: E F(Z) = sum_j w_j {F(z_j) + F(-z_j)}.

    >>> z, w = half_normal_nodes(40)
    >>> round(float(2 * w @ z**4), 12)
    3.0
    """
    z: Array = (np.arange(nodes, dtype=np.float64) + 0.5) * (normal_reach(level) / nodes)
    w: Array = np.exp(-(z**2) / 2)
    w /= 2 * w.sum()
    for array in (z, w):
        array.setflags(write=False)
    return z, w


def normal_nodes(nodes: int, level: float = LEVEL) -> tuple[Array, Array]:
    """Nodes of both signs and weights that sum to 1."""
    z, w = half_normal_nodes(nodes, level)
    return np.concatenate([-z[::-1], z]), np.concatenate([w[::-1], w])


@lru_cache(maxsize=8)
def graded_nodes(pieces: int = 16, order: int = 24, end: float = 9.0) -> tuple[Array, Array]:
    """Gauss-Legendre on [0, end], on pieces that halve towards 0, where steep links and rules turn:
    nodes, plain weights.

    >>> z, w = graded_nodes()
    >>> round(float(w @ np.exp(-(z**2) / 2) * np.sqrt(2 / np.pi)), 14)
    1.0
    """
    x, w = np.polynomial.legendre.leggauss(order)
    edges = np.concatenate([[0.0], end * 0.5 ** np.arange(pieces - 1, -1, -1)])
    half, middle = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
    nodes, weights = (middle[:, None] + half[:, None] * x).ravel(), (half[:, None] * w).ravel()
    for array in (nodes, weights):
        array.setflags(write=False)
    return nodes, weights


WIDE = 4.0  # standard deviation above which the logistic density is integrated, not the normal one
PROX_STEPS = 80
LARGEST_REACH = np.sqrt(1 / (2 * np.pi))  # of x phi(x), at infinity


def smooth_sigmoid(mu: Array, tau: Array, level: float = LEVEL) -> tuple[Array, Array]:
    """E sig(mu + tau Z) and E sig'(mu + tau Z) for mu of shape (P, J) and one tau per row, (P,).

    Narrow noise: a trapezoid over Z. Wide noise: the same convolution over the logistic variable,
    E sig(mu + tau Z) = int sig'(u) Phi((mu-u)/tau) du, whose nodes do not multiply with tau.
    """
    p, d = np.empty(mu.shape), np.empty(mu.shape)
    wide = tau > WIDE
    for rows, rule in ((~wide, smooth_by_normal), (wide, smooth_by_logistic)):
        where = np.flatnonzero(rows)
        size = max(1, NODES_AT_ONCE // (80 * max(mu.shape[1], 1)))
        for i in range(0, where.size, size):
            part = where[i : i + size]
            p[part], d[part] = rule(mu[part], tau[part], level)
    return p, d


def smooth_by_normal(mu: Array, tau: Array, level: float) -> tuple[Array, Array]:
    """`smooth_sigmoid` for tau up to WIDE."""
    with np.errstate(divide="ignore"):
        z, w = normal_nodes(
            int(nodes_for(step_for(np.asarray(STRIP / np.max(tau)), level=level), level)), level
        )
    # as expit, in place and several times as quick
    sig = -mu[:, :, None] - tau[:, None, None] * z
    with np.errstate(over="ignore"):
        np.exp(sig, out=sig)
    sig += 1
    np.reciprocal(sig, out=sig)
    p = sig @ w
    np.multiply(sig, sig, out=sig)
    return p, p - sig @ w


def smooth_by_logistic(mu: Array, tau: Array, level: float) -> tuple[Array, Array]:
    """`smooth_sigmoid` for tau above WIDE."""
    step = 2 * np.pi * STRIP / (level + STRIP**2 / (2 * WIDE**2))
    u = (np.arange(int(np.ceil(level / step))) + 0.5) * step
    u = np.concatenate([-u[::-1], u])
    density = expit(u) * expit(-u)
    density /= density.sum()
    x = (mu[:, :, None] - u) / tau[:, None, None]
    p = ndtr(x) @ density
    np.multiply(x, -x / 2, out=x)
    np.exp(x, out=x)
    return p, (x @ density) / (tau[:, None] * np.sqrt(2 * np.pi))


def phi(a: ArrayLike) -> Array:
    """The mean slope E sig'(aZ) of the sigmoid: 1/4 at 0, falling like 1/(a sqrt(2 pi)).

    >>> float(phi(0.0))
    0.25
    """
    size = np.abs(np.asarray(a, dtype=float))
    flat = size.reshape(-1)
    return np.asarray(smooth_sigmoid(np.zeros((flat.size, 1)), flat)[1].reshape(size.shape))


def inverse_reach(target: ArrayLike) -> Array:
    """The x with x phi(x) = target, for targets from 0 up to 1/sqrt(2 pi), the supremum (infinite
    there).

    >>> round(float(inverse_reach(0.25 * 1e-9)) / 1e-9, 12)
    1.0
    """
    y = np.asarray(target, dtype=float)
    inside = (y > 0) & (y < LARGEST_REACH * (1 - 1e-13))
    safe = np.where(inside, y, 0.1)
    # phi <= 1/4 bounds the root below; x phi(x) ~ LARGEST - pi^2/(6 x^2) LARGEST bounds it above.
    low, high = np.log(3.999 * safe), np.log(4 * safe + 4 / np.sqrt(1 - safe / LARGEST_REACH))

    def gap(v: Array) -> Array:
        x = np.exp(v)
        return np.asarray(np.log(x * phi(x)) - np.log(safe))

    root = np.exp(find_roots(gap, low, high, tolerance=1e-15))
    return np.asarray(np.where(inside, root, np.where(y > 0, np.inf, 0.0)))


def logistic_prox(w: Array, v: Array) -> Array:
    """The root eta of eta - V sig(-eta) = w, the only one, in [w, w+V].

    eta(w) = -eta(-w-V), so w >= -V/2 and eta >= 0 will do. There the left side is concave, and
    Newton from below the root climbs to it without a safeguard (from elsewhere it can cycle). Below
    the root: Newton's step from w > 0, 0, and log(V/U - 1) for U = log(1+V) - w, which is at least
    eta - w.

    >>> import numpy as np
    >>> eta = logistic_prox(np.array([-3.0, 0.0, 2.0]), np.array(5.0))
    >>> bool(np.allclose(eta - 5 / (1 + np.exp(eta)), [-3, 0, 2], atol=1e-14))
    True
    """
    w, v = np.asarray(w, dtype=float), np.asarray(v, dtype=float)
    mirrored = w < -v / 2
    x = np.where(mirrored, -(w + v), w)
    positive = np.maximum(x, 0)
    pull = v * expit(-positive)
    above = np.log1p(v) - np.minimum(x, 0)
    eta = np.maximum(
        np.log(np.maximum(v / np.maximum(above, 1e-300) - 1, 1)),
        np.where(x > 0, x + pull / (1 + pull), 0.0),
    )
    for _ in range(PROX_STEPS):
        g = expit(-eta)
        pulled = v * g
        step = (pulled - (eta - x)) / (1 + pulled * (1 - g))
        eta = np.maximum(eta + step, positive)
        if step.max(initial=0.0) <= 1e-8:  # what is left is less than step^2/2, as |f''| < f'
            break
    return np.asarray(np.where(mirrored, -eta, eta))


LONGEST_LOGITS = 1e5  # deviation of logits from which scores are extended instead of integrated


@dataclass(frozen=True, eq=False)
class State:
    """A rule against its client: m = x'w ~ N(0, Q) and s = x'theta_i ~ N(0, rho^2) with covariance
    T.

    `rest` is Var(s | m) = rho^2 - T^2/Q, kept apart because the difference cancels when the rule is
    nearly perfect.
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
        """The tangent cos/sqrt(1-cos^2) by the remaining variance; infinite if cos = 1."""
        size = np.sqrt(self.Q * self.rest)
        with np.errstate(divide="ignore", over="ignore"):
            return np.asarray(
                np.divide(
                    self.T, size, out=np.where(self.T > 0, np.inf, 0.0 * self.T), where=size > 0
                )
            )

    def take(self, where: int | slice | Array) -> State:
        """Some of the batch."""
        return State(self.T[where], self.Q[where], self.rho[where], self.rest[where])


def accuracy(state: State, eps: ArrayLike = 0.0) -> Array:
    """Labels that sign(x'w) gets right: 2 int_0^inf phi_N(z) {p(rho z) Phi(tz) + (1-p(rho z))
    Phi(-tz)} dz.

    It depends on the direction of w alone.

    >>> round(float(accuracy(State.of(1.0, 1.0, np.sqrt(2)))), 12)
    0.650978870274
    """
    return accuracy_at(state.tangent, state.rho, eps)


def accuracy_at(tangent: Array, rho: Array, eps: ArrayLike = 0.0) -> Array:
    """`accuracy` by t = cos/sqrt(1-cos^2), with int (2 sig(rho z)-1)(2 Phi(tz)-1) phi_N."""
    t, r, flips = (np.asarray(x, dtype=float) for x in np.broadcast_arrays(tangent, rho, eps))
    z, w = graded_nodes()
    density = w * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    edge = np.empty(t.size)
    size = max(1, NODES_AT_ONCE // z.size)
    for i in range(0, t.size, size):
        tz, rz = t.reshape(-1)[i : i + size, None] * z, r.reshape(-1)[i : i + size, None] * z
        edge[i : i + size] = (np.tanh(rz / 2) * (2 * ndtr(tz) - 1)) @ density
    return np.asarray(0.5 + (1 - 2 * flips) * edge.reshape(t.shape))


def log_loss(state: State, eps: ArrayLike = 0.0, level: float = LEVEL) -> Array:
    """The log-loss -E[Pbar log sig(m) + (1-Pbar) log sig(-m)], Pbar(m) = E[p(s) | m].

    >>> round(float(log_loss(State.of(0.0, 0.0, 1.0)) / np.log(2)), 12)
    1.0
    """
    short, share = shorten_logits(state)
    # as long as it is: A sd + O(1/sd)
    return mean_loss_of(short, eps, level, lambda m: np.logaddexp(0.0, -m)) / share


def brier(state: State, eps: ArrayLike = 0.0, level: float = LEVEL) -> Array:
    """The Brier score E[Pbar (1-sig m)^2 + (1-Pbar) sig(m)^2]."""
    short, share = shorten_logits(state)
    wrong = 1 - accuracy(state, eps)
    # wrong + O(1/sd)
    return wrong + share * (mean_loss_of(short, eps, level, lambda m: expit(-m) ** 2) - wrong)


def shorten_logits(state: State) -> tuple[State, Array]:
    """A model with logits too long for a grid (at the threshold of separability), cut to LONG."""
    with np.errstate(divide="ignore"):
        share = np.minimum(1.0, LONGEST_LOGITS / np.sqrt(state.Q))
    return State(state.T * share, state.Q * share**2, state.rho, state.rest), share


def mean_loss_of(
    state: State, eps: ArrayLike, level: float, loss: Callable[[Array], Array]
) -> Array:
    """E loss(y m): settings that need the same number of nodes together."""
    shape = np.broadcast_shapes(np.shape(state.T), np.shape(eps))
    T, Q, rest, flips = (
        np.broadcast_to(x, shape).reshape(-1) for x in (state.T, state.Q, state.rest, eps)
    )
    sd, tau = np.sqrt(Q), np.sqrt(rest)
    slope = np.divide(T, sd, out=np.zeros(sd.shape), where=sd > 0)
    known = np.isfinite(sd + slope + tau)
    sd, slope, tau = (np.where(known, x, 1.0) for x in (sd, slope, tau))
    nodes = nodes_for(outer_step(sd, slope, tau, level), level)
    out = np.full(T.size, np.nan)
    for count in np.unique(nodes[known]):
        z, w = half_normal_nodes(int(count), level)
        group = np.flatnonzero(known & (nodes == count))
        size = max(1, NODES_AT_ONCE // int(count))
        for i in range(0, group.size, size):
            part = group[i : i + size]
            p = np.full((part.size, z.size), 0.5)
            told = flips[part] != 0.5  # labels that are coin tosses tell nothing of the link
            kept = part[told, None]
            link = smooth_sigmoid(slope[kept] * z, tau[part[told]], level)[0]
            p[told] = flips[kept] + (1 - 2 * flips[kept]) * link
            m = sd[part, None] * z
            out[part] = 2 * (p * loss(m) + (1 - p) * loss(-m)) @ w
    return out.reshape(shape)


def outer_step(sd: Array, slope: Array, tau: Array, level: float) -> Array:
    """The step for functions of m = sd z times the smoothed link at slope z with remaining
    deviation tau.

    The loss asks for the strip pi/sd. The link, smoothed, is entire: either its strip pi/slope is
    kept, or its growth exp((slope a)^2/(2 tau^2)) is paid for. The better of the two counts.
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        own = STRIP / sd
        kept = step_for(np.minimum(own, STRIP / np.abs(slope)), level=level)
        growth = 1 + np.minimum((slope / tau) ** 2, 1e12)
        paid = step_for(own, np.where(np.isfinite(growth), growth, 1e12), level=level)
    return np.maximum(kept, paid)


def calibration(state: State, eps: ArrayLike = 0.0) -> Array:
    """The slope k of logistic recalibration, k Q phi(k sqrt Q) = T (1-2 eps) phi(rho); below 1:
    over-confident.

    With x = k sqrt Q both sides are of the form x phi(x). A rule that is zero has none: NaN.
    """
    sd = np.sqrt(state.Q)
    x = inverse_reach(np.abs(state.cos) * (1 - 2 * np.asarray(eps)) * state.rho * phi(state.rho))
    slope = np.divide(x, sd, out=np.full(np.shape(x), np.nan), where=sd > 0)
    return np.asarray(np.sign(state.T) * slope)


def logistic_means(
    u: Array, rho: Array, eps: Array, level: float = LEVEL
) -> tuple[Array, Array, Array]:
    """(A): Hh = 2E[Pbar l2/(1+V l2)], G = 2E[Pbar g^2], M = 2E[D g], u = (atanh cos, log Q, log V).

    w ~ N(0, Q), g = sig(-eta) and l2 = g(1-g) at the prox eta of w. Pbar(-w) = 1 - Pbar(w) and D is
    even: half the nodes do.
    """
    cos = np.tanh(u[:, 0])
    sd = np.exp(u[:, 1] / 2)
    V = np.exp(u[:, 2])
    slope, tau = rho * cos, rho / np.cosh(u[:, 0])
    nodes = nodes_for(outer_step(sd, slope, tau, level), level)
    H, G, M = (np.empty(rho.size) for _ in range(3))
    for count in np.unique(nodes):
        z, weight = half_normal_nodes(int(count), level)
        both = np.concatenate([z, -z])
        group = np.flatnonzero(nodes == count)
        size = max(1, NODES_AT_ONCE // int(count))
        for i in range(0, group.size, size):
            rows = group[i : i + size]
            p, d = smooth_sigmoid(slope[rows, None] * z, tau[rows], level)
            flips = eps[rows, None]
            p, d = flips + (1 - 2 * flips) * p, (1 - 2 * flips) * d
            g = expit(-logistic_prox(sd[rows, None] * both, V[rows, None]))
            curved = g * (1 - g)
            curved /= 1 + V[rows, None] * curved
            right, left = slice(0, count), slice(count, None)
            H[rows] = 2 * (p * curved[:, right] + (1 - p) * curved[:, left]) @ weight
            G[rows] = 2 * (p * g[:, right] ** 2 + (1 - p) * g[:, left] ** 2) @ weight
            M[rows] = 2 * (d * (g[:, right] + g[:, left])) @ weight
    return H, G, M
