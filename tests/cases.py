"""What the tests of the theory share: the reference cases of golden_cases.json, and exact risks on
drawn features.

Given the features, the paper's estimators are linear in the labels, so bias and variance are
traces: `Clients` gets them from the objectives themselves for a few small clients, `Sample` for one
client in many dimensions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import fedasym as fa

Array = NDArray[np.float64]
Inputs = dict[str, str | int | None]
Function = Callable[[Array], Array]
Labels = Sequence[Array]  # y_j of every client, one column per data set
Estimator = Callable[[Labels], Array]  # labels -> models, one column per data set

GOLDEN = json.loads((Path(__file__).parent / "golden_cases.json").read_text(encoding="utf-8"))[
    "cases"
]

IDENTITY = fa.spectra.identity()
TWO_ATOM = fa.spectra.atoms([0.5, 3], [0.6, 0.4])
THREE_ATOM = fa.spectra.atoms([0.1, 1, 10], [0.3, 0.5, 0.2])
SPIKED = fa.spectra.atoms([1, 20], [0.99, 0.01])
NAMED = {"identity": IDENTITY, "two_atom": TWO_ATOM, "three_atom": THREE_ATOM, "spiked": SPIKED}


def spectrum(name: str) -> fa.Spectrum:
    """A spectrum by its name in the reference cases, such as ar1_0.5_64 or power_1_64."""
    if name in NAMED:
        return NAMED[name]
    family, parameter, points = name.split("_")
    make = {"ar1": fa.spectra.ar1, "power": fa.spectra.power_law}[family]
    return make(float(parameter), points=int(points))


def population(inputs: Inputs, **changes: object) -> fa.Population:
    """The population of a reference case; the noise is 0 where the case has none."""
    numbers = {
        "radius": float(inputs["r2"]) ** 0.5,
        "noise": float(inputs.get("sigma2", 0)) ** 0.5,
        "aspect": float(inputs["gamma"]),
        "spectrum": spectrum(inputs.get("spectrum", "identity")),
        "shift_power": float(inputs.get("align_power", 0)),
    }
    return fa.Population(**(numbers | changes))


def name_of(case: dict) -> str:
    """A test id from the kind of a case and its inputs."""
    given = case["inputs"]
    shown = [
        key
        for key in ("alg", "gamma", "lam", "m", "steps", "time", "align_power")
        if given.get(key)
    ]
    return "-".join(
        [case["kind"], given.get("spectrum", "identity"), *(f"{key}={given[key]}" for key in shown)]
    )


@dataclass(frozen=True)
class Sample:
    """One client's sample covariance S = V diag(x) V' of n samples whose covariance is diag(s)."""

    x: Array
    V: Array
    s: Array
    n: int

    def trace(self, f: Function, weight: Array | None = None) -> float:
        """tr(Sigma f(S))/d, or the same with another diagonal matrix in Sigma's place."""
        return float(np.mean(f(self.x) * ((self.s if weight is None else weight) @ self.V**2)))

    def risk(
        self, keep: Function, noise2: float, energy: Array | float = 1.0
    ) -> tuple[float, float]:
        """Bias and variance of a client that keeps f(S) of theta_0 and fits the rest, exactly given
        the samples.

        The displacement has energy e_a/d along direction a: B = mean of ||f(S) Delta||^2_Sigma. The
        noise is filtered by (1 - f)/x: V = (noise2/n) tr(Sigma (1 - f(S))^2 S^+).
        """
        f, seen = keep(self.x), self.x > 0
        bias = np.mean(energy * (((self.V * f) @ self.V.T) ** 2 @ self.s))
        fitted = np.where(seen, (1 - f) ** 2 / np.where(seen, self.x, 1), 0)
        return float(bias), noise2 * self.s.size / self.n * self.trace(lambda _: fitted)


def null(x: Array) -> Array:
    """The projection onto the null space of S: what is kept of the start by interpolating."""
    return np.where(x > 0, 0.0, 1.0)


def resolvent(lam: float) -> Function:
    """lam (S + lam)^-1: what ridge keeps of the start."""
    return lambda x: lam / (x + lam)


def decompose(X: Array, s: Array) -> Sample:
    """The sample of a client with features X."""
    x, V = np.linalg.eigh(X.T @ X / len(X))
    return Sample(np.where(x > 1e-10, x, 0.0), V, s, len(X))


@cache
def sample(spectrum: fa.Spectrum, aspect: float, d: int = 500, seed: int = 0) -> Sample:
    """A seeded draw; every atom of the spectrum must hold a whole number of the d directions."""
    count = np.round(spectrum.weights * d).astype(int)
    np.testing.assert_allclose(count, spectrum.weights * d)
    s, n = np.repeat(spectrum.values, count), round(d / aspect)
    return decompose(np.random.default_rng(seed).standard_normal((n, d)) * np.sqrt(s), s)


@dataclass(frozen=True)
class Clients:
    """A few clients with features X_j of covariance diag(s): estimators by their objectives, risks
    exactly.

    p: weights in the shared objective; noise2: variance of each client's label noise.
    """

    X: tuple[Array, ...]
    s: Array
    p: Array
    noise2: Array

    @property
    def sizes(self) -> Array:
        """n_j, the number of samples of each client."""
        return np.array([len(X) for X in self.X])

    def S(self, j: int) -> Array:
        """Client j's sample covariance."""
        return self.X[j].T @ self.X[j] / len(self.X[j])

    def sample(self, j: int) -> Sample:
        """Client j's sample covariance, decomposed."""
        return decompose(self.X[j], self.s)

    def gradient(self, y: Labels, j: int, theta: Array) -> Array:
        """Gradient of client j's loss 1/(2n)||X theta - y||^2."""
        return self.X[j].T @ (self.X[j] @ theta - y[j]) / len(self.X[j])

    def pooled(self, A: Sequence[Array], b: Labels) -> Array:
        """argmin sum_j p_j/(2 n_j) ||A_j theta - b_j||^2."""
        w = np.sqrt(self.p / self.sizes)
        rows, targets = (np.concatenate([w[j] * part[j] for j in range(len(w))]) for part in (A, b))
        return np.linalg.lstsq(rows, targets)[0]

    def fedavg(self, y: Labels) -> Array:
        """The shared model of equation param-fedavg."""
        return self.pooled(self.X, y)

    def maml(self, y: Labels, alpha: float) -> Array:
        """The shared model of equation param-maml: losses after one gradient step of size alpha."""
        W = [np.eye(len(X)) - alpha / len(X) * X @ X.T for X in self.X]
        return self.pooled(
            [w @ X for w, X in zip(W, self.X, strict=True)],
            [w @ t for w, t in zip(W, y, strict=True)],
        )

    def pfedme(self, y: Labels, lam: float) -> Array:
        """All models of equation param-prox at once, shape (1 + clients, d, columns), the shared
        one first.
        """
        m, d = len(self.X), self.s.size
        A, b = np.zeros((m + 1, d, m + 1, d)), np.zeros((m + 1, d, y[0].shape[1]))
        for j, p in enumerate(self.p, start=1):
            A[j, :, j, :] = p * (self.S(j - 1) + lam * np.eye(d))
            A[0, :, j, :] = A[j, :, 0, :] = -p * lam * np.eye(d)
            b[j] = p * self.X[j - 1].T @ y[j - 1] / len(self.X[j - 1])
        A[0, :, 0, :] = lam * self.p.sum() * np.eye(d)
        size = (m + 1) * d
        return np.linalg.solve(A.reshape(size, size), b.reshape(size, -1)).reshape(b.shape)

    def interpolate(self, y: Labels, i: int, start: Array) -> Array:
        """The interpolant of client i's samples nearest to `start`, equation param-perfedavg."""
        return start + np.linalg.pinv(self.X[i]) @ (y[i] - self.X[i] @ start)

    def shrink(self, y: Labels, i: int, start: Array, lam: float) -> Array:
        """argmin 1/(2n)||X_i theta - y_i||^2 + lam/2 ||theta - start||^2, equation
        param-perridge.
        """
        n, d = self.X[i].shape
        rows = np.concatenate([self.X[i] / np.sqrt(n), np.sqrt(lam) * np.eye(d)])
        return np.linalg.lstsq(rows, np.concatenate([y[i] / np.sqrt(n), np.sqrt(lam) * start]))[0]

    def model(self, algorithm: str, i: int, lam: float = 1.0, alpha: float = 0.1) -> Estimator:
        """The paper's algorithms as functions of everyone's labels."""
        match algorithm:
            case "fedavg":
                return self.fedavg
            case "ftfa":
                return lambda y: self.interpolate(y, i, self.fedavg(y))
            case "rtfa":
                return lambda y: self.shrink(y, i, self.fedavg(y), lam)
            case "maml":
                return lambda y: self.interpolate(y, i, self.maml(y, alpha))
            case "pfedme":
                return lambda y: self.pfedme(y, lam)[1 + i]
            case "local":
                return partial(self.interpolate, i=i, start=np.zeros((self.s.size, 1)))
            case _:
                raise KeyError(algorithm)

    def responses(self, estimate: Estimator) -> list[Array]:
        """The matrices N_j of a linear estimator sum_j N_j y_j."""
        ends = np.cumsum(self.sizes)
        return np.split(estimate(np.split(np.eye(ends[-1]), ends[:-1])), ends[:-1], axis=1)

    def variance(self, estimate: Estimator) -> float:
        """tr(Cov(theta_hat | X) Sigma)."""
        parts = [np.sum(self.s[:, None] * N**2) for N in self.responses(estimate)]
        return float(self.noise2 @ parts)

    def bias(self, estimate: Estimator, i: int, theta: Array) -> float:
        """||E[theta_hat | X] - theta_i||^2_Sigma for given optima theta, one row per client."""
        off = (
            estimate([X @ t[:, None] for X, t in zip(self.X, theta, strict=True)])[:, 0] - theta[i]
        )
        return float(self.s @ off**2)

    def mean_bias(self, estimate: Estimator, i: int) -> float:
        """The mean of the bias over displacements of length 1 in random directions."""
        spread = [N @ X for N, X in zip(self.responses(estimate), self.X, strict=True)]
        np.testing.assert_allclose(
            sum(spread), np.eye(self.s.size), atol=1e-9
        )  # theta_0 itself is recovered
        spread[i] = spread[i] - np.eye(self.s.size)
        return float(sum(np.sum(self.s[:, None] * part**2) for part in spread) / self.s.size)


def draw_clients(
    seed: int, sizes: Sequence[int], s: Sequence[float], **numbers: Sequence[float]
) -> Clients:
    """Seeded clients; weights proportional to the samples and unit noise unless given."""
    rng, s, n = np.random.default_rng(seed), np.asarray(s, dtype=float), np.asarray(sizes)
    X = tuple(rng.standard_normal((size, s.size)) * np.sqrt(s) for size in sizes)
    return Clients(
        X,
        s,
        np.asarray(numbers.get("p", n / n.sum())),
        np.asarray(numbers.get("noise2", np.ones(n.size))),
    )
