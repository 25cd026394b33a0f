"""Expectations of softmax over exchangeable Gaussian logits (section 11.1), by quadrature and without sampling.

The softmax does not see a common shift, so that logits with covariance a^2 P are as good as C independent N(0, a^2). Then
1/S = int e^(-tS) dt with S = sum_j e^(x_j) makes every expectation of a ratio a product over classes under one integral:

    1 - E|softmax(x)|^2 = C(C-1) int E[e1(x+u)]^2 E[e0(x+u)]^(C-2) du,   e0(y) = e^(-e^y),  e1 = e^y e0,  t = e^u
    E lse(x)            = int e0(u) - E[e0(x+u)]^C du
    E p(s)'q(w)         = C int int E[e1(s+u) e1(w+v)] E[e0(s+u) e0(w+v)]^(C-1) du dv
    E p_{argmax w}(s)   = C int E[e1(s+u) F(w,u)^(C-1)] du,   F(x,u) = E[e0(s+u); w < x]

The page samples these with 2^17 points and an error of 5e-4; here the error is about 1e-12 and the cost some milliseconds.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.polynomial import legendre

from fedasym.core.arrays import Array

REACH = 7.6  # of a standard normal variable: its tails hold 3e-14
TAIL = 30.0  # e^-30: where e1 has died out on the left; e0 has on the right after FRONT
FRONT = 3.6
STEP = 0.25  # of u: e0 is analytic for |Im u| < pi/2, which makes the trapezoid's error e^(-pi^2/STEP)
FINE = 5  # tabulated points per step
STENCIL = 12  # points of the interpolation between them
BLOCK = 1 << 20  # numbers held at once
PANEL = 14  # nodes of a panel


def normal(width: float) -> tuple[Array, Array]:
    """Nodes and weights for N(0,1) and functions of e^(width z): the trapezoid of section 3.1, poles as for e0."""
    h = min(0.16, np.pi**2 / (TAIL * max(width, 1e-3)))
    z = h * np.arange(-np.ceil(REACH / h), np.ceil(REACH / h) + 1)
    weight = np.exp(-0.5 * z * z)
    return z, weight / weight.sum()


@lru_cache(maxsize=64)
def panels(width: float) -> tuple[Array, Array, Array, float]:
    """Gauss-Legendre panels on [-REACH, REACH] for N(0,1): nodes (panels, PANEL), their normal weights, and the matrix of
    integrals from a panel's left end to each of its nodes, with the scale of a panel.
    """
    x, w = legendre.leggauss(PANEL)
    count = int(np.ceil(2 * REACH / min(0.8, 1.6 / max(width, 1e-3))))
    half = REACH / count
    nodes = half * (2 * np.arange(count)[:, None] + 1 + x) - REACH
    fit = np.linalg.inv(legendre.legvander(x, PANEL - 1))
    upto = np.stack([legendre.legval(x, legendre.legint(fit[:, m], lbnd=-1)) for m in range(PANEL)], axis=1)
    density = np.exp(-0.5 * nodes**2)
    return nodes, np.asarray(density / (half * (density * w).sum())), np.asarray(half * upto, dtype=float), half


def grid(width: float, classes: int) -> Array:
    """The values of u where the integrands live, for logits of this standard deviation."""
    low = -REACH * width - np.log(classes) - TAIL
    return np.asarray(STEP * np.arange(np.floor(low / STEP), np.ceil((REACH * width + FRONT) / STEP) + 1))


def kernels(y: Array) -> tuple[Array, Array]:
    """e0 and e1."""
    t = np.exp(np.minimum(y, 10.0))  # both are 0 beyond
    e0 = np.exp(-t)
    return e0, t * e0


def blurred(y: Array, spread: float) -> tuple[Array, Array]:
    """E e0(y + x) and E e1(y + x) for x ~ N(0, spread^2)."""
    z, weight = normal(spread)
    rows = max(1, BLOCK // z.size)
    parts = [[values @ weight for values in kernels(y[i : i + rows, None] + spread * z)] for i in range(0, y.size, rows)]
    e0, e1 = np.concatenate(parts, axis=1)
    return e0, e1


@lru_cache(maxsize=256)
def gini(a: float, classes: int) -> float:
    """1 - E|softmax(a z)|^2 = sum over j != k of E p_j p_k, which does not cancel when one class takes all."""
    e0, e1 = blurred(grid(a, classes), a)
    return float(STEP * classes * (classes - 1) * np.sum(e1**2 * e0 ** (classes - 2)))


def phi(a: float, classes: int) -> float:
    """phi_C(a) = E[1 - |softmax(a z)|^2]/(C-1), the mean slope of the softmax."""
    return gini(a, classes) / (classes - 1)


def log_sum(a: float, classes: int) -> float:
    """E lse(a z), the logits centred."""
    u = grid(a, classes)
    return float(STEP * np.sum(kernels(u)[0] - blurred(u, a)[0] ** classes))


def conditional(u: Array, mean: Array, spread: float) -> tuple[Array, Array]:
    """E e0(s+u) and E e1(s+u) for s ~ N(mean, spread^2): shape (means, u), interpolated from a table along the sum."""
    h = STEP / FINE
    first = np.floor(mean.min() / h) - STENCIL
    table = u[0] + h * (first + np.arange(FINE * u.size + np.ceil(np.ptp(mean) / h) + 2 * STENCIL))
    e0, e1 = blurred(table, spread)
    left = np.floor(mean / h) - STENCIL // 2 + 1
    offset = mean / h - left  # in the stencil's units
    nodes = np.arange(STENCIL)
    at = (left - first).astype(int)[:, None] + FINE * np.arange(u.size)
    out0, out1 = np.zeros(at.shape), np.zeros(at.shape)
    for m in nodes:
        others = nodes[nodes != m]
        share = np.prod((offset[:, None] - others) / (m - others), axis=1)[:, None]
        out0 += share * e0[at + m]
        out1 += share * e1[at + m]
    return out0, out1


def overlap(T: float, Q: float, rho: float, classes: int) -> float:
    """E softmax(s)'softmax(w)."""
    if Q == 0:
        return 1 / classes
    spread = np.sqrt(max(rho * rho - T * T / Q, 0.0))
    z, weight = normal(max(np.sqrt(Q), abs(T) / np.sqrt(Q)))
    u, v = grid(rho, classes), grid(np.sqrt(Q), classes)
    e0, e1 = conditional(u, T / np.sqrt(Q) * z, spread)
    f0, f1 = kernels(np.sqrt(Q) * z[:, None] + v)
    both = (e1.T * weight) @ f1
    rest = np.clip((e0.T * weight) @ f0, 0.0, 1.0)
    return float(STEP * STEP * classes * np.sum(both * rest ** (classes - 1)))


def accuracy(cos: float, rho: float, classes: int) -> float:
    """E p_{argmax w}(s): the chance that the rule w names the label. cos = 1: the ceiling E max_k p_k(s)."""
    cos = min(cos, 1.0)
    u = grid(rho, classes)
    nodes, density, upto, half = panels(float(np.round(rho * abs(cos), 1)) + 0.1)
    weight = half * density * legendre.leggauss(PANEL)[1]
    e0, e1 = conditional(u, rho * cos * nodes.ravel(), rho * np.sqrt(max(1.0 - cos * cos, 0.0)))
    e0, e1 = (values.reshape(*nodes.shape, u.size) for values in (e0, e1))
    inside = np.einsum("im,pmu->piu", upto, density[..., None] * e0)
    whole = np.einsum("pm,pmu->pu", weight, e0)
    before = np.cumsum(whole, axis=0) - whole
    F = np.clip(before[:, None] + inside, 0.0, 1.0)
    return float(STEP * classes * np.einsum("pm,pmu->", weight, e1 * F ** (classes - 1)))
