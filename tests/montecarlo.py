"""Risks of linear estimators on drawn features, without sampling noise or displacements: their expectations are traces.

The shared model is Q^+ sum_j p_j [A_j theta_j + b_j(S_j) X_j'noise_j/n_j] with A_j = S_j b_j(S_j) and Q = sum_j p_j A_j; a
client keeps P(S_i) of its error and adds (I - P(S_i)) S_i^+ X_i'noise_i/n_i of its own noise. The error is linear in the
displacements, the noise and theta_0, which are independent, so bias and variance are exact given the features.
Covariances are diagonal without loss of generality, since Gaussian features are rotation invariant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedasym import Population, Risk, Spectrum

Array = np.ndarray
Function = Callable[[Array], Array]  # of the eigenvalues x >= 0 of a sample covariance
Plan = tuple[Sequence[Function], Mapping[str, Sequence[Function]]]  # server weights b; client filters P by name, per kind
ZERO = 1e-10  # eigenvalues below this share of the largest are the zeros of a singular matrix


def even(x: Array) -> Array:
    """FedAvg's weights b, and the filter P that keeps the shared model."""
    return np.ones_like(x)


def interpolate(x: Array) -> Array:
    return np.where(x > 0, 0.0, 1.0)


def shrink(ridge: float) -> Function:
    """Ridge as a filter; as server weights, pFedMe's."""
    return lambda x: ridge / (x + ridge)


def descend(step: float, steps: int) -> Function:
    return lambda x: (1 - step * x) ** steps


def flow(time: float) -> Function:
    return lambda x: np.exp(-time * x)


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
        return self.seen(f(self.x) - rest) + rest * np.eye(self.s.size)

    def seen(self, values: Array) -> Array:
        """The matrix with these eigenvalues along V and zeros elsewhere."""
        return (self.V * values) @ self.V.T


def draw(rng: np.random.Generator, world: Population, d: int, alone: bool = False) -> Client:
    """A client of this population in d dimensions; `alone`: it shares nothing, so its displacement is its optimum."""
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


def directions(spectrum: Spectrum, energy: Array, d: int) -> tuple[Array, Array]:
    """Eigenvalues and energies along each of d directions; every atom must have a whole number of them."""
    count = spectrum.weights * d
    whole = np.round(count).astype(int)
    assert np.allclose(count, whole, atol=1e-9)
    return np.repeat(spectrum.values, whole), np.repeat(energy / whole, whole)


def limit(client: Client, keep: Function) -> tuple[float, float]:
    """Bias and variance with infinitely many clients, where the shared model is theta_0 itself."""
    P = client.function(keep)
    return client.s @ P**2 @ client.energy, own_noise(client, keep)


def own_noise(client: Client, keep: Function) -> float:
    """Variance from the client's own samples when the shared model does not depend on them."""
    fitted = (1 - keep(client.x)) ** 2 / client.x
    return client.noise2 / client.n * float(client.s @ (client.V**2 @ fitted))


@dataclass(frozen=True)
class Fit:
    """The shared model of some clients: Q^+ and the covariance of its error about theta_0, by displacements and by noise."""

    clients: Sequence[Client]
    weights: Array
    servers: Sequence[Function]
    inverse: Array
    away: Array
    blur: Array

    @classmethod
    def of(cls, clients: Sequence[Client], weights: Array, servers: Sequence[Function]) -> Fit:
        size = clients[0].s.size
        Q, away, blur = (np.zeros((size, size)) for _ in range(3))
        for client, p, b in zip(clients, weights, servers, strict=True):
            pull = p * b(client.x)
            A = client.seen(pull * client.x)
            Q += A
            away += (A * client.energy) @ A
            blur += client.seen(pull**2 * client.x * client.noise2 / client.n)
        x, U = np.linalg.eigh(Q)
        kept = x > ZERO * x[-1]
        x, U = x[kept], U[:, kept]
        inverse = (U / x) @ U.T
        away, blur = inverse @ away @ inverse, inverse @ blur @ inverse
        if clients[0].centre is not None:  # what the minimum-norm fit shrinks away
            lost = np.eye(size) - U @ U.T
            away += (lost * clients[0].centre) @ lost
        return cls(clients, weights, servers, inverse, away, blur)

    def new(self, client: Client, keep: Function) -> tuple[float, float]:
        """Bias and variance of a client that took no part."""
        target = self._target(client, keep)
        bias = np.sum(target * self.away) + np.diag(target) @ client.energy
        return bias, np.sum(target * self.blur) + own_noise(client, keep)

    def member(self, i: int, keep: Function) -> tuple[float, float]:
        """Bias and variance of client i: as if new, plus its correlation with the shared model."""
        client, p, b = self.clients[i], self.weights[i], self.servers[i]
        bias, variance = self.new(client, keep)
        pull = self.inverse @ client.seen(p * client.x * b(client.x))
        cross = np.sum(self._target(client, keep) * (pull * client.energy))
        P = client.function(keep)
        heard = self.inverse @ client.seen(p * b(client.x) * (1 - keep(client.x)))
        own = client.noise2 / client.n * client.s @ np.sum(P * heard.T, axis=1)
        return bias - 2 * cross, variance + 2 * own

    @staticmethod
    def _target(client: Client, keep: Function) -> Array:
        P = client.function(keep)
        return (P * client.s) @ P


def simulate(
    kinds: Sequence[Population], count: Sequence[int], weights: Sequence[float], plans: Sequence[Plan], *,
    d: int, draws: int, seed: int,
) -> dict[str, Array]:  # fmt: skip
    """Bias and variance of a member and of a new client of each kind: shape (draws, kinds, 2, 2) for each filter's name.

    `weights`: of one client of each kind. Members of a kind are averaged.
    """
    rng = np.random.default_rng(seed)
    kind = np.repeat(np.arange(len(kinds)), count)
    found: dict[str, list[Array]] = {name: [] for _, filters in plans for name in filters}
    for _ in range(draws):
        clients = [draw(rng, kinds[k], d) for k in kind]
        newcomers = [draw(rng, each, d) for each in kinds]
        for servers, filters in plans:
            fit = Fit.of(clients, np.asarray(weights)[kind], [servers[k] for k in kind])
            for name, keeps in filters.items():
                members = np.array([fit.member(i, keeps[k]) for i, k in enumerate(kind)])
                mean = [members[kind == k].mean(0) for k in range(len(kinds))]
                new = [fit.new(client, keep) for client, keep in zip(newcomers, keeps, strict=True)]
                found[name].append(np.stack([mean, new], axis=1))
    return {name: np.array(rows) for name, rows in found.items()}


def check(simulated: Array, risk: Risk, allowance: float, wrong: Sequence[Risk] = ()) -> None:
    """Bias and variance (draws, 2) match the prediction, and tell it from wrong ones.

    The tolerance is 4 standard errors of the mean over draws plus a share of the prediction, `allowance`, for the
    O(1/d) by which finite sizes differ from the limit; 1e-12 for rounding.
    """
    mean, error = simulated.mean(0), simulated.std(0, ddof=1) / np.sqrt(len(simulated))

    def agrees(prediction: Risk) -> bool:
        theory = np.array([prediction.bias, prediction.variance], dtype=float)
        return bool(np.all(np.abs(mean - theory) <= 4 * error + allowance * theory + 1e-12))

    seen = f"bias {mean[0]:.5g} +- {error[0]:.1g}, variance {mean[1]:.5g} +- {error[1]:.1g}"
    assert agrees(risk), f"{seen} against {risk}, with {allowance:.2%} allowed"
    for other in wrong:
        assert not agrees(other), f"{seen} cannot tell {risk} from {other}, with {allowance:.2%} allowed"
