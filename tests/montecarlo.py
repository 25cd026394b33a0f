"""Risks of linear estimators on drawn features, without sampling noise or displacements: their expectations are traces.

The shared model is Q^+ sum_j p_j [A_j theta_j + b(S_j) X_j'noise_j/n_j] with A_j = S_j b(S_j) and Q = sum_j p_j A_j; a
client keeps P(S_i) of its error and adds its own noise, (I - P(S_i)) S_i^+ X_i'noise_i/n_i. The error is linear in the
displacements, the noise and theta_0, which are independent, so bias and variance are exact given the features. A new
client is one of weight zero. Covariances are diagonal without loss of generality: Gaussian features are rotation
invariant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedasym import Population, Risk, Spectrum

Array = np.ndarray
Function = Callable[[Array], Array]
ZERO = 1e-10  # eigenvalues below this share of the largest are zeros of a singular matrix


class Method(NamedTuple):
    """The server's weights b(x) and the share P(x) that a client keeps of the shared model, at eigenvalues x >= 0."""

    weigh: Function
    keep: Function


def interpolate(x: Array) -> Array:
    return np.where(x > 0, 0.0, 1.0)


def shrink(ridge: float) -> Function:
    return lambda x: ridge / (x + ridge)


def descend(step: float, steps: int) -> Function:
    return lambda x: (1 - step * x) ** steps


def flow(time: float) -> Function:
    return lambda x: np.exp(-time * x)


def averaged(keep: Function = np.ones_like) -> Method:
    """FedAvg, then any personalisation."""
    return Method(np.ones_like, keep)


def maml(step: float, keep: Function = interpolate) -> Method:
    return Method(lambda x: (1 - step * x) ** 2, keep)


def pfedme(ridge: float) -> Method:
    return Method(shrink(ridge), shrink(ridge))


@dataclass(frozen=True)
class Client:
    """One client's features: the nonzero eigenvalues x and eigenvectors V of its sample covariance, and its numbers."""

    x: Array
    V: Array
    n: int
    s: Array  # eigenvalue of the covariance along each direction
    energy: Array  # of the displacement, per direction
    centre: Array | None  # the same of theta_0
    noise2: float

    def function(self, f: Function) -> Array:
        """f of the sample covariance, a matrix."""
        rest = float(f(np.zeros(1))[0])
        return rest * np.eye(self.s.size) + (self.V * (f(self.x) - rest)) @ self.V.T

    def seen(self, values: Array) -> Array:
        """The matrix with these eigenvalues along V and zeros elsewhere."""
        return (self.V * values) @ self.V.T


def directions(spectrum: Spectrum, energy: Array, d: int) -> tuple[Array, Array]:
    """Eigenvalues and energies along each of d directions: atoms must have whole numbers of them."""
    count = spectrum.weights * d
    whole = np.round(count).astype(int)
    assert np.allclose(count, whole, atol=1e-9)
    assert whole.sum() == d
    return np.repeat(spectrum.values, whole), np.repeat(energy / np.maximum(whole, 1), whole)


def draw(rng: np.random.Generator, world: Population, d: int, alone: bool = False) -> Client:
    """A client of this population in d dimensions; `alone`: its displacement is from the origin, as nothing is shared."""
    n = round(d / float(world.aspect))
    assert np.isclose(n * world.aspect, d)
    own = world.radius**2 * world.displacement
    optimum = None if world.norm is None else world.norm**2 * world.optimum
    s, energy = directions(world.spectrum, optimum if alone else own, d)
    centre = None if optimum is None else directions(world.spectrum, optimum - own, d)[1]
    X = rng.standard_normal((n, d)) * np.sqrt(s)
    x, V = np.linalg.eigh((X @ X.T if n < d else X.T @ X) / n)
    kept = x > ZERO * x[-1]
    x, V = x[kept], V[:, kept]
    if n < d:
        V = X.T @ (V / np.sqrt(n * x))
    return Client(x, V, n, s, energy, centre, world.noise**2)


def risk_from(client: Client, keep: Function, away: Array, blur: Array | None, own: Array | None) -> tuple[float, float]:
    """Bias and variance after keeping P of a shared model with error covariance `away` (displacements) + `blur` (noise).

    `own`: what the client's own noise reaches the shared model through, p_i Q^+ b(S_i).
    """
    P = client.function(keep)
    target = (P * client.s) @ P
    fitted = 1 - keep(client.x)
    variance = client.s @ np.einsum("ik,k,ik->i", client.V, fitted**2 / client.x, client.V)
    bias = np.sum(target * away)
    if own is not None:
        variance += 2 * np.sum((client.s[:, None] * (P @ own)) * client.seen(fitted))
    variance *= client.noise2 / client.n
    return bias, variance + (0 if blur is None else np.sum(target * blur))


def limit(client: Client, keep: Function) -> tuple[float, float]:
    """With infinitely many clients the shared model is theta_0 itself."""
    return risk_from(client, keep, np.diag(client.energy), None, None)


def federated(clients: Sequence[Client], weights: Array, methods: Sequence[Method]) -> Array:
    """Bias and variance of each client, shape (clients, 2), after the shared fit with the given weights (0: not part of it)."""
    size = clients[0].s.size
    Q, away, blur = (np.zeros((size, size)) for _ in range(3))
    for client, p, method in zip(clients, weights, methods, strict=True):
        if p == 0:
            continue
        b = method.weigh(client.x)
        A = client.seen(p * client.x * b)
        Q += A
        away += (A * client.energy) @ A
        blur += client.seen(p**2 * b**2 * client.x * client.noise2 / client.n)
    x, U = np.linalg.eigh(Q)
    kept = x > ZERO * x[-1]
    x, U = x[kept], U[:, kept]
    inverse = (U / x) @ U.T
    away, blur = inverse @ away @ inverse, inverse @ blur @ inverse
    if x.size < size and clients[0].centre is not None:
        lost = np.eye(size) - U @ U.T
        away += (lost * clients[0].centre) @ lost
    found = []
    for client, p, method in zip(clients, weights, methods, strict=True):
        b = method.weigh(client.x)
        mine = np.diag(client.energy)
        own = None
        if p > 0:
            pull = inverse @ (client.seen(p * client.x * b) * client.energy)
            mine = mine - pull - pull.T
            own = p * inverse @ client.seen(b)
        found.append(risk_from(client, method.keep, away + mine, blur, own))
    return np.array(found)


def within(simulated: Iterable[tuple[float, float]] | Array, risk: Risk, allowance: float) -> tuple[bool, str]:
    """Whether bias and variance agree with a prediction, and by how much: 4 standard errors of the mean over draws plus
    a relative allowance for the O(1/d) by which finite sizes differ from the limit.
    """
    found = np.array(simulated)
    mean, error = found.mean(0), found.std(0, ddof=1) / np.sqrt(len(found))
    theory = np.array([risk.bias, risk.variance], dtype=float)
    good = np.abs(mean - theory) <= 4 * error + allowance * theory
    text = ", ".join(
        f"{name} {m:.5g} +- {e:.1g} against {t:.5g} ({m / t - 1 if t else m:+.2%})"
        for name, m, e, t in zip(("bias", "variance"), mean, error, theory, strict=True)
    )
    return bool(good.all()), text
