"""Risks of linear estimators on drawn features, without sampling noise or displacements: their
expectations are traces.

The shared model is Q^+ sum_j p_j [A_j theta_j + b_j(S_j) X_j'noise_j/n_j] with A_j = S_j b_j(S_j)
and Q = sum_j p_j A_j; a client keeps P(S_i) of its error and adds (I - P(S_i)) S_i^+
X_i'noise_i/n_i of its own noise. The error is linear in the displacements, the noise and theta_0,
which are independent, so bias and variance are exact given the features. Covariances are diagonal
without loss of generality, since Gaussian features are rotation invariant.

Finite sizes differ from the limits by O(1/d). Where the difference is known exactly it is kappa'/d,
relatively: with uncorrelated features and no ridge the mean of an inverse Wishart matrix makes the
variance n/(d-n-1) instead of n/(d-n), more by 1/(d-n) = kappa'/d; a pooled fit is off likewise by
1/|N-d|. One and a half times their sum is allowed on top of the Monte-Carlo error, as squares of
inverses are off by more. Predictions that differ from the right one by a slip (a member taken for a
new client, two clients more, infinitely many, another alignment) must be told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import fedasym as fa
from fedasym import Population, Risk, Spectrum
from fedasym.algorithms import Average, Descend, Flow
from fedasym.theory.transforms import lowest_ridge

Array = np.ndarray
Function = Callable[[Array], Array]  # of the eigenvalues x >= 0 of a sample covariance
Plan = tuple[
    Sequence[Function], Mapping[str, Sequence[Function]]
]  # server weights b; client filters P by name, per kind
ZERO = 1e-10  # eigenvalues below this share of the largest are the zeros of a singular matrix
DRAWS = 5
MEMBERS = 2
RADIUS, NOISE = 1.3, 0.7

SPECTRA = {
    "identity": fa.spectra.identity(),
    "scaled": fa.spectra.identity(2.5),
    "two atoms": fa.spectra.atoms([0.5, 3], [0.6, 0.4]),
    "ar1": fa.spectra.ar1(0.5, points=60),
    "power law": fa.spectra.power_law(1, points=60),
    "singular": fa.spectra.atoms([0, 1, 3], [0.4, 0.35, 0.25]),
}


def even(x: Array) -> Array:
    """FedAvg's weights b, and the filter P that keeps the shared model."""
    return np.ones_like(x)


def interpolate(x: Array) -> Array:
    return np.where(x > 0, 0.0, 1.0)


def shrink(ridge: float) -> Function:
    """Ridge as a filter; as server weights, pFedMe's."""
    return (lambda x: ridge / (x + ridge)) if ridge else interpolate


def meta(step: float) -> Function:
    """MAML's server weights."""
    return lambda x: (1 - step * x) ** 2


def descend(step: float, steps: int) -> Function:
    return lambda x: (1 - step * x) ** steps


def flow(time: float) -> Function:
    return lambda x: np.exp(-time * x)


@dataclass(frozen=True)
class Client:
    """One client's features: eigenvalues x and eigenvectors V of its sample covariance; matrices
    are in that basis.
    """

    x: Array
    V: Array
    target: Array  # its covariance, the metric of its loss
    shift: Array  # covariance of its displacement
    n: int
    noise2: float
    centre: Array | None  # energy of theta_0 along each original direction

    def into(self, matrix: Array) -> Array:
        """A matrix in this client's basis."""
        return self.V.T @ matrix @ self.V

    def back(self, matrix: Array) -> Array:
        """A matrix, or a vector as a diagonal one, in the original basis."""
        return (self.V * matrix if matrix.ndim == 1 else self.V @ matrix) @ self.V.T


def draw(rng: np.random.Generator, world: Population, d: int) -> Client:
    """A client of this population in d dimensions."""
    return client_of(world, d, lambda n, s: decompose(rng.standard_normal((n, d)) * np.sqrt(s), s))


def client_of(
    world: Population,
    d: int,
    features: Callable[[int, Array], tuple[Array, Array, Array]],
    alone: bool = False,
) -> Client:
    """A client of this population whose sample covariance of n samples, with eigenvalues s in the
    mean, is decomposed so; `alone`: it shares nothing, so its displacement is its optimum.
    """
    n = round(d / float(world.aspect))
    assert np.isclose(n * world.aspect, d)
    own = world.radius**2 * world.displacement
    optimum = None if world.norm is None else world.norm**2 * world.optimum
    s, energy = directions(world.spectrum, optimum if alone else own, d)
    centre = None if optimum is None else directions(world.spectrum, optimum - own, d)[1]
    return make_client(*features(n, s), n, energy, world.noise**2, centre)


def observe(X: Array, s: Array, energy: Array, noise2: float) -> Client:
    """A client with features X of covariance diag(s), whose displacement has this energy along each
    direction.
    """
    return make_client(*decompose(X, s), len(X), energy, noise2, None)


def decompose(X: Array, s: Array) -> tuple[Array, Array, Array]:
    """Eigenvalues and eigenvectors of the sample covariance, and diag(s) in that basis."""
    x, V = np.linalg.eigh(X.T @ X / len(X))
    x[x < ZERO * x[-1]] = 0
    return x, V, (V.T * s) @ V


def make_client(
    x: Array, V: Array, target: Array, n: int, energy: Array, noise2: float, centre: Array | None
) -> Client:
    return Client(x, V, target, (V.T * energy) @ V, n, noise2, centre)


def directions(spectrum: Spectrum, energy: Array, d: int) -> tuple[Array, Array]:
    """Eigenvalues and energies along each of d directions; every atom must have a whole number of
    them.
    """
    count = spectrum.weights * d
    whole = np.round(count).astype(int)
    assert np.allclose(count, whole, atol=1e-9)
    return np.repeat(spectrum.values, whole), np.repeat(energy / whole, whole)


@dataclass(frozen=True)
class View:
    """What a client sees of a shared model, as forms in its filter P (a vector in its basis).

    Bias P'away P, variance P'blur P + (noise^2/n) [own part + 2 P'heard (1 - P)].
    """

    client: Client
    away: Array
    blur: Array
    heard: Array  # its own noise through the shared model

    def risk(self, keep: Function) -> tuple[float, float]:
        """Bias and variance after keeping P of the shared model."""
        client, P = self.client, keep(self.client.x)
        fitted = np.divide((1 - P) ** 2, client.x, out=np.zeros_like(P), where=client.x > 0)
        own = np.diag(client.target) @ fitted + 2 * P @ self.heard @ (1 - P)
        return P @ self.away @ P, P @ self.blur @ P + client.noise2 / client.n * own


def limit(client: Client) -> View:
    """With infinitely many clients the shared model is theta_0 itself."""
    nothing = np.zeros_like(client.target)
    return View(client, client.target * client.shift, nothing, nothing)


@dataclass(frozen=True)
class Fit:
    """The shared model of some clients: Q^+ and the covariance of its error about theta_0, by
    displacements and by noise.
    """

    clients: Sequence[Client]
    pulls: Sequence[Array]  # p_j b_j(x_j)
    inverse: Array
    away: Array
    blur: Array

    @classmethod
    def of(cls, clients: Sequence[Client], weights: Array, servers: Sequence[Function]) -> Fit:
        """Fit the shared model with the weight p_j and the function b_j of each client."""
        pulls = [p * b(client.x) for client, p, b in zip(clients, weights, servers, strict=True)]
        Q, away, blur = (np.zeros_like(clients[0].target) for _ in range(3))
        for client, pull in zip(clients, pulls, strict=True):
            A = pull * client.x
            Q += client.back(A)
            away += client.back(A[:, None] * client.shift * A)
            blur += client.back(pull * A * client.noise2 / client.n)
        x, U = np.linalg.eigh(Q)
        kept = x > ZERO * x[-1]
        x, U = x[kept], U[:, kept]
        inverse = (U / x) @ U.T
        away, blur = inverse @ away @ inverse, inverse @ blur @ inverse
        if clients[0].centre is not None:  # what the minimum-norm fit shrinks away
            lost = np.eye(len(Q)) - U @ U.T
            away += (lost * clients[0].centre) @ lost
        return cls(clients, pulls, inverse, away, blur)

    def new(self, client: Client) -> View:
        """What a client that took no part sees."""
        away, blur = client.into(self.away), client.into(self.blur)
        return View(
            client, client.target * (away + client.shift), client.target * blur, np.zeros_like(away)
        )

    def member(self, i: int) -> View:
        """What client i sees: as if new, plus its correlation with the shared model."""
        client, pull, view = self.clients[i], self.pulls[i], self.new(self.clients[i])
        inverse = client.into(self.inverse)
        cross = inverse @ ((pull * client.x)[:, None] * client.shift)
        return View(
            client,
            view.away - client.target * (cross + cross.T),
            view.blur,
            client.target * inverse * pull,
        )


def simulate(
    kinds: Sequence[Population],
    count: Sequence[int],
    weights: Sequence[float],
    plans: Sequence[Plan],
    *,
    d: int,
    draws: int,
    seed: int,
) -> dict[str, Array]:
    """Bias and variance of a member and of a new client of each kind: shape (draws, kinds, 2, 2)
    for each filter's name.

    `weights`: of one client of each kind. Up to MEMBERS of a kind are averaged: the shared model
    and the features of a draw are common to them, so that more tell little more.
    """
    rng = np.random.default_rng(seed)
    kind = np.repeat(np.arange(len(kinds)), count)
    looked_at = [i for k in range(len(kinds)) for i in np.flatnonzero(kind == k)[:MEMBERS]]
    kind_seen = kind[looked_at]
    found: dict[str, list[Array]] = {name: [] for _, filters in plans for name in filters}
    for _ in range(draws):
        clients = [draw(rng, kinds[k], d) for k in kind]
        newcomers = [draw(rng, each, d) for each in kinds]
        for servers, filters in plans:
            fit = Fit.of(clients, np.asarray(weights)[kind], [servers[k] for k in kind])
            inside, outside = (
                [fit.member(i) for i in looked_at],
                [fit.new(client) for client in newcomers],
            )
            for name, keeps in filters.items():
                members = np.array(
                    [view.risk(keeps[k]) for view, k in zip(inside, kind_seen, strict=True)]
                )
                mean = [members[kind_seen == k].mean(0) for k in range(len(kinds))]
                new = [view.risk(keep) for view, keep in zip(outside, keeps, strict=True)]
                found[name].append(np.stack([mean, new], axis=1))
    return {name: np.array(rows) for name, rows in found.items()}


def check(simulated: Array, risk: Risk, allowance: float, wrong: Sequence[Risk] = ()) -> None:
    """Bias and variance (draws, 2) match the prediction, and tell it from wrong ones.

    The tolerance is 4 standard errors of the mean over draws plus a share of the prediction,
    `allowance`, for the O(1/d) by which finite sizes differ from the limit; 1e-12 for rounding.
    """
    mean, error = simulated.mean(0), simulated.std(0, ddof=1) / np.sqrt(len(simulated))

    def agrees(prediction: Risk) -> bool:
        theory = np.array([prediction.bias, prediction.variance], dtype=float)
        return bool(np.all(np.abs(mean - theory) <= 4 * error + allowance * theory + 1e-12))

    seen = f"bias {mean[0]:.5g} +- {error[0]:.1g}, variance {mean[1]:.5g} +- {error[1]:.1g}"
    assert agrees(risk), f"{seen} against {risk}, with {allowance:.2%} allowed"
    for other in wrong:
        assert not agrees(other), (
            f"{seen} cannot tell {risk} from {other}, with {allowance:.2%} allowed"
        )


def below_zero(world: fa.Population) -> float:
    """A negative ridge, well above the lowest admissible one: finite samples reach a little beyond
    the limit's edge.
    """
    return float(lowest_ridge(np.array([world.aspect]), world.spectrum)[0]) / 5


def growth(world: fa.Population, ridge: float) -> float:
    """kappa' at a ridge, as V = noise^2 (kappa' - 1)."""
    return 1 + float(risk_of(world, "rtfa", ridge=ridge).variance) / float(world.noise) ** 2


def risk_of(worlds: object, algorithm: str | fa.Algorithm, **options: object) -> fa.Risk:
    """The prediction for one algorithm."""
    return next(iter(fa.predict(worlds, [algorithm], **options).values()))


def stopping(*stages: Descend | Flow) -> list[fa.Algorithm]:
    return [fa.Algorithm(str(stage), Average(), stage) for stage in stages]
