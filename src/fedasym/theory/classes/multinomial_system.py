"""Section 11.1: the three means (A) of the softmax fixed point, and its solution (T, Q, V) with exchangeable classes.

Means are taken over points (`multinomial_samples`) and corrected by controls: functions of the same logits whose exact
means are known (`multinomial_integrals`). Regression on nine of them leaves a twentieth of the sampling error.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedasym.core.arrays import Array
from fedasym.core.errors import NoFormula
from fedasym.theory.classes.multinomial_integrals import gini, log_sum, overlap
from fedasym.theory.classes.multinomial_prox import curvature, prox, softmax, start
from fedasym.theory.classes.multinomial_samples import Samples
from fedasym.worlds.energies import Energies

CHUNK = 1 << 16  # numbers in an array over points, labels and classes: fits the cache
DEPTH = 3  # of Anderson's acceleration: there are three unknowns
TOLERANCE = 1e-10
ITERATIONS = 200
DIVERGED = 9.0  # log Q
SCALES = (0.5, 1.0)  # of w in the controls; one where exact means are slow to compute
WIDE = 6.0  # standard deviation of the logits


@dataclass
class Warm:
    """What the next solution starts from: the last proximal points, one array per chunk, and the last secants of the map."""

    eta: dict[int, Array] = field(default_factory=dict)
    secants: list[tuple[Array, Array]] = field(default_factory=list)  # changes of the unknowns, and of the step there


def means(T: float, Q: float, V: float, rho: float, points: Samples, warm: Warm) -> tuple[float, float, float]:
    """Hh, G, M of section 11.1 at the state (T, Q, V)."""
    C = points.classes
    w = np.sqrt(Q) * points.z1
    s = T / Q * w + np.sqrt(max(rho * rho - T * T / Q, 0.0)) * points.z2
    p = softmax(s)
    size = max(1, CHUNK // C**2)
    parts = []
    for first in range(0, w.shape[1], size):
        here = slice(first, first + size)
        eta, q = prox(w[:, here], V, warm.eta[first] if first in warm.eta else start(w[:, here], V))
        warm.eta[first] = eta
        own = np.einsum("kkn->kn", q)
        # with g = e_k - q: |g|^2 = 1 - 2 q_k + |q|^2, and g_k - p'g = 1 - q_k - p_k + p'q
        G = 1 - 2 * own + np.einsum("jkn,jkn->kn", q, q)
        M = 1 - own - p[:, here] + np.einsum("jn,jkn->kn", p[:, here], q)
        parts.append(np.stack([(p[:, here] * each).sum(0) for each in (curvature(q, V), G, M)]))
    Hh, G, M = controlled(np.concatenate(parts, axis=1), T, Q, rho, w, p, points.weight) / (C - 1)
    return float(Hh), float(G), float(M)


def controlled(values: Array, T: float, Q: float, rho: float, w: Array, p: Array, weight: Array) -> Array:
    """The means of `values` (rows, points), less what the controls' known means show to be sampling error.

    Controls: |p|^2, p'w, lse(w), and for softmax q of w at two scales |q|^2, p'q, w'q. By Stein E p'w = (C-1) T phi_C(rho).
    """
    C = len(w)
    spread = np.sqrt(Q)
    columns = [(p * p).sum(0), (p * w).sum(0), np.log(np.exp(w - w.max(0)).sum(0)) + w.max(0)]
    exact = [1 - gini(rho, C), T * gini(rho, C), log_sum(spread, C)]
    for a in SCALES if max(rho, spread) < WIDE else SCALES[1:]:
        q = softmax(a * w)
        columns += [(q * q).sum(0), (p * q).sum(0), (w * q).sum(0)]
        own = gini(a * spread, C)
        exact += [1 - own, overlap(a * T, a * a * Q, rho, C), a * Q * own]
    X = np.array(columns)
    mean, X_mean = values @ weight, X @ weight
    X = X - X_mean[:, None]
    size = np.sqrt(X**2 @ weight)
    size = np.where(size > 1e-7, size, np.inf)  # constant: nothing to learn from it
    X /= size[:, None]
    gram = (X * weight) @ X.T + 1e-9 * np.eye(len(X))
    slopes = np.linalg.solve(gram, (X * weight) @ (values - mean[:, None]).T)
    return np.asarray(mean - ((X_mean - exact) / size) @ slopes)


@dataclass(frozen=True)
class State:
    """A solution of the system."""

    T: float
    Q: float
    V: float
    Hh: float
    G: float
    M: float


def response(
    Hh: float, G: float, M: float, energies: Energies, aspect: float, ridge: float, c: float
) -> tuple[float, float, float]:
    """(B) of section 3: (T, Q, V) from the means."""
    s, h, E0, ED = energies.s, energies.h, energies.e0, energies.ed
    R = 1 / (Hh * s + ridge)
    T = np.sum(s * R * ((ridge * c + M * s) * E0 + M * s * ED))
    Q = np.sum(s * R**2 * ((ridge * c + M * s) ** 2 * E0 + (M * s) ** 2 * ED + aspect * G * s * h))
    return float(T), float(Q), float(aspect * np.sum(h * s * R))


def solve(
    energies: Energies, aspect: float, ridge: float, c: float, points: Samples, warm: Warm, guess: tuple[float, float, float]
) -> State:
    """The fixed point of (A) and (B) from a guess of (T, Q, V): damped steps, then Anderson's acceleration (section 3.1)."""
    rho = float(energies.rho)

    def pack(T: float, Q: float, V: float) -> Array:
        return np.array([np.arctanh(min(T / max(rho * np.sqrt(Q), 1e-300), 1 - 1e-15)), np.log(Q), np.log(V)])

    def unpack(u: Array) -> tuple[float, float, float]:
        Q = float(np.exp(u[1]))
        return float(np.tanh(u[0]) * rho * np.sqrt(Q)), Q, float(np.exp(u[2]))

    u = pack(*guess)
    last: tuple[Array, Array] | None = None
    for _ in range(ITERATIONS):
        found = means(*unpack(u), rho, points, warm)
        step = pack(*response(*found, energies, aspect, ridge, c)) - u
        if np.abs(step).max() < TOLERANCE:
            return State(*unpack(u), *found)
        if u[1] > DIVERGED:
            break
        if np.abs(step).max() > 1:
            warm.secants.clear()
        elif last is not None:
            warm.secants[:] = [*warm.secants[1 - DEPTH :], (u - last[0], step - last[1])]
        last = u, step
        if warm.secants:
            dU, dF = (np.array(each).T for each in zip(*warm.secants, strict=True))
            move = step - (dU + dF) @ np.linalg.lstsq(dF, step, rcond=1e-10)[0]
        else:
            move = 0.7 * step
        u = u + np.clip(move, -1, 1)
    raise NoFormula(
        f"no solution at ridge {ridge:g} with {points.classes} classes: the samples are (nearly) separable, so that weights "
        "diverge as the ridge vanishes, and that limit is derived for two classes only; take a larger ridge"
    )
