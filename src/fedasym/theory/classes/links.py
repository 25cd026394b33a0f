"""Sections 0 and 3: the sigmoid seen through noise, its mean slope phi(a) = E sig'(aZ), and the prox of the logistic loss."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, ndtr

from fedasym.core.arrays import Array
from fedasym.theory.classes.quadrature import CHUNK, LEVEL, STRIP, nodes_for, normal, step_for
from fedasym.theory.roots import bracketed

WIDE = 4.0  # standard deviation above which the logistic density is integrated, not the normal one
STEPS = 80
LARGEST = np.sqrt(1 / (2 * np.pi))  # of x phi(x), at infinity


def smoothed(mu: Array, tau: Array, level: float = LEVEL) -> tuple[Array, Array]:
    """E sig(mu + tau Z) and E sig'(mu + tau Z) for mu of shape (P, J) and one tau per row, (P,).

    Narrow noise: a trapezoid over Z. Wide noise: the same convolution over the logistic variable,
    E sig(mu + tau Z) = int sig'(u) Phi((mu-u)/tau) du, whose nodes do not multiply with tau.
    """
    p, d = np.empty(mu.shape), np.empty(mu.shape)
    wide = tau > WIDE
    for rows, rule in ((~wide, through_normal), (wide, through_logistic)):
        where = np.flatnonzero(rows)
        size = max(1, CHUNK // (80 * max(mu.shape[1], 1)))
        for i in range(0, where.size, size):
            part = where[i : i + size]
            p[part], d[part] = rule(mu[part], tau[part], level)
    return p, d


def through_normal(mu: Array, tau: Array, level: float) -> tuple[Array, Array]:
    """`smoothed` for tau up to WIDE."""
    with np.errstate(divide="ignore"):
        z, w = normal(int(nodes_for(step_for(np.asarray(STRIP / np.max(tau)), level=level), level)), level)
    sig = expit(mu[:, :, None] + tau[:, None, None] * z)
    p = sig @ w
    np.multiply(sig, sig, out=sig)
    return p, p - sig @ w


def through_logistic(mu: Array, tau: Array, level: float) -> tuple[Array, Array]:
    """`smoothed` for tau above WIDE."""
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
    return np.asarray(smoothed(np.zeros((flat.size, 1)), flat)[1].reshape(size.shape))


def inverse_reach(target: ArrayLike) -> Array:
    """The x with x phi(x) = target, for targets from 0 up to 1/sqrt(2 pi), the supremum (infinite there).

    >>> round(float(inverse_reach(0.25 * 1e-9)) / 1e-9, 12)
    1.0
    """
    y = np.asarray(target, dtype=float)
    inside = (y > 0) & (y < LARGEST * (1 - 1e-13))
    safe = np.where(inside, y, 0.1)
    # phi <= 1/4 bounds the root below; x phi(x) ~ LARGEST - pi^2/(6 x^2) LARGEST bounds it above.
    low, high = np.log(3.999 * safe), np.log(4 * safe + 4 / np.sqrt(1 - safe / LARGEST))

    def gap(v: Array) -> Array:
        x = np.exp(v)
        return np.asarray(np.log(x * phi(x)) - np.log(safe))

    root = np.exp(bracketed(gap, low, high, tolerance=1e-15))
    return np.asarray(np.where(inside, root, np.where(y > 0, np.inf, 0.0)))


def prox(w: Array, v: Array) -> Array:
    """The root eta of eta - V sig(-eta) = w, the only one, in [w, w+V].

    eta(w) = -eta(-w-V), so w >= -V/2 and eta >= 0 will do. There the left side is concave, and Newton from below the root
    climbs to it without a safeguard (from elsewhere it can cycle). Below the root: Newton's step from w > 0, 0, and
    log(V/U - 1) for U = log(1+V) - w, which is at least eta - w.

    >>> import numpy as np
    >>> eta = prox(np.array([-3.0, 0.0, 2.0]), np.array(5.0))
    >>> bool(np.allclose(eta - 5 / (1 + np.exp(eta)), [-3, 0, 2], atol=1e-14))
    True
    """
    w, v = (np.asarray(x, dtype=float) for x in np.broadcast_arrays(w, v))
    mirrored = w < -v / 2
    x = np.where(mirrored, -(w + v), w)
    positive = np.maximum(x, 0)
    pull = v * expit(-positive)
    above = np.log1p(v) - np.minimum(x, 0)
    eta = np.maximum(np.log(np.maximum(v / np.maximum(above, 1e-300) - 1, 1)), np.where(x > 0, x + pull / (1 + pull), 0.0))
    for _ in range(STEPS):
        g = expit(-eta)
        step = (v * g - (eta - x)) / (1 + v * g * (1 - g))
        eta = np.maximum(eta + step, positive)
        if np.all(step <= 1e-15 * (1 + eta)):
            break
    return np.asarray(np.where(mirrored, -eta, eta))
