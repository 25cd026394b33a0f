"""Section 11.2: softmax with any Gram matrix of the classes, intercepts and any covariance.

Models are written in K = C-1 contrasts, W = Wt B' with B an orthonormal basis of the vectors that sum to zero; then T, Q,
V, Hh, M, G are K x K. Nothing here is exact but the linear algebra: expectations are means over points, and their noise,
about 5e-4 in accuracy and 1e-3 in log-loss, is in the results. With exchangeable classes take `multinomial_ridge`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedasym.core.arrays import Array
from fedasym.core.errors import NoFormula
from fedasym.theory.classes.multinomial_matrices import Shape, Unknowns, accelerated, moments, root
from fedasym.theory.classes.multinomial_prox import softmax
from fedasym.theory.classes.multinomial_ridge import path
from fedasym.theory.classes.multinomial_samples import METRIC_POINTS, SEARCH, Samples, contrasts, metric_samples, samples
from fedasym.worlds.energies import Energies

BUDGET = 1 << 21  # points x classes^3 held by the fixed point
SHARED = 1 << 19  # points x classes held by the shared model


@dataclass(frozen=True, eq=False)
class ClassEnergies:
    """Atoms s with weights h; per atom the K x K Gram matrices E0 of theta_0 and ED of Delta; the K intercepts.

    From class-by-class Gram matrices W'W (of the atom's directions) use `of`.
    """

    s: Array
    h: Array
    E0: Array
    ED: Array
    intercept: Array

    @classmethod
    def of(cls, s: Array, h: Array, gram0: Array, gramD: Array, intercept: Array | None = None) -> ClassEnergies:
        """From C x C Gram matrices per atom and C intercepts: only what the softmax sees of them is kept.

        >>> one = ClassEnergies.of(np.ones(1), np.ones(1), np.eye(3)[None], 2 * np.eye(3)[None])
        >>> one.total.round(12).tolist()
        [[3.0, 0.0], [0.0, 3.0]]
        """
        C = np.shape(gram0)[-1]
        B = contrasts(C)
        bias = np.zeros(C) if intercept is None else np.asarray(intercept, dtype=float)
        return cls(np.asarray(s, dtype=float), np.asarray(h, dtype=float), B.T @ gram0 @ B, B.T @ gramD @ B, B.T @ bias)

    @classmethod
    def exchangeable(cls, energies: Energies, classes: int) -> ClassEnergies:
        """The population of section 11.1."""
        E0, ED = (energy[:, None, None] * np.eye(classes - 1) for energy in (energies.e0, energies.ed))
        return cls(energies.s, energies.h, E0, ED, np.zeros(classes - 1))

    @property
    def classes(self) -> int:
        """C."""
        return len(self.intercept) + 1

    @cached_property
    def centre(self) -> Array:
        """W0'Sigma W0."""
        return np.asarray(np.einsum("k,kab->ab", self.s, self.E0))

    @cached_property
    def total(self) -> Array:
        """W_i'Sigma W_i, the covariance of the client's logits."""
        return np.asarray(np.einsum("k,kab->ab", self.s, self.E0 + self.ED))


@dataclass(frozen=True, eq=False)
class GeneralRule:
    """A rule w with T = W_i'Sigma w and Q = w'Sigma w (K x K) and an intercept, on clients of this population."""

    population: ClassEnergies
    T: Array
    Q: Array
    intercept: Array

    @cached_property
    def scores(self) -> tuple[float, float, float]:
        """Accuracy, log-loss and Brier score over the finer points, a chunk at a time."""
        shape = Shape(self.T, self.Q, self.intercept, self.population.total, self.population.intercept)
        found = np.zeros(3)
        for points in metric_samples(self.population.classes, METRIC_POINTS):
            w, s = shape.logits(points)
            p, q = softmax(s), softmax(w)
            top = w.max(0)
            loss = np.log(np.exp(w - top).sum(0)) + top - (p * w).sum(0)
            right = np.take_along_axis(p, w.argmax(0)[None], axis=0)[0]
            found += np.array([right, loss, 1 - 2 * (p * q).sum(0) + (q * q).sum(0)]) @ points.weight
        return float(found[0]), float(found[1]), float(found[2])

    @property
    def accuracy(self) -> float:
        """E p_{argmax w}(s)."""
        return self.scores[0]

    @property
    def log_loss(self) -> float:
        """E[lse(w) - p(s)'w]."""
        return self.scores[1]

    @property
    def brier(self) -> float:
        """E|e_y - softmax(w)|^2."""
        return self.scores[2]


@dataclass(frozen=True, eq=False)
class GeneralFit(GeneralRule):
    """A client's ridge fit around W0 A."""

    ridge: float
    A: Array
    V: Array
    Hh: Array
    M: Array
    G: Array


def shared(population: ClassEnergies) -> tuple[Array, Array]:
    """(A, bbar) of the shared model W0 A of infinitely many clients: A = E[L(s)] E[L(sbar)]^-1, E softmax(sbar) = E softmax(s).

    No proximal point is needed here, so that many points are cheap.
    """
    chunks = list(metric_samples(population.classes, min(1 << 16, SHARED // population.classes)))
    xi = np.concatenate([half for one in chunks for half in (one.xi1, one.xi2)], axis=1)
    weight = np.full(xi.shape[1], 1 / xi.shape[1])
    K = population.classes - 1
    B, centre = contrasts(population.classes), root(population.centre)
    s = B @ (root(population.total) @ xi + population.intercept[:, None])
    slope, mean = slope_and_mean(softmax(s), B, weight)

    def update(x: Array) -> Array:
        A, bbar = x[: K * K].reshape(K, K), x[K * K :]
        here, level = slope_and_mean(softmax(B @ (A.T @ (centre @ xi) + bbar[:, None])), B, weight)
        return np.concatenate([np.linalg.solve(here, slope.T).T.ravel(), bbar + np.linalg.solve(here, mean - level)])

    x = accelerated(update, np.concatenate([np.eye(K).ravel(), population.intercept]))
    return x[: K * K].reshape(K, K), x[K * K :]


def slope_and_mean(p: Array, B: Array, weight: Array) -> tuple[Array, Array]:
    """E L = E[diag p - pp'] and E p, in contrasts."""
    q = B.T @ p
    return (B.T * (p @ weight)) @ B - (q * weight) @ q.T, q @ weight


def averaged(population: ClassEnergies) -> Energies:
    """Exchangeable classes with the same energy in each atom."""
    E0, ED = (np.trace(each, axis1=1, axis2=2) / (population.classes - 1) for each in (population.E0, population.ED))
    return Energies(population.s, population.h, E0, ED)


def fedavg(population: ClassEnergies) -> GeneralRule:
    """The shared model as it is."""
    A, bbar = shared(population)
    return GeneralRule(population, population.centre @ A, A.T @ population.centre @ A, bbar)


def rtfa(
    population: ClassEnergies, aspect: float, ridge: float, *, shared_model: bool = True, intercept: bool = True,
    points: Samples | None = None,
) -> GeneralFit:  # fmt: skip
    """The client's ridge fit around the shared model (`shared_model` False: around zero), its intercept free or none."""
    if not (ridge > 0 and np.isfinite(ridge)):
        raise NoFormula(f"ridge is {ridge:g}: with any class Gram the system is solved for finite ridges above 0; take fedavg")
    points = samples(population.classes, BUDGET // population.classes) if points is None else points
    K, s, h, E0, ED = population.classes - 1, population.s, population.h, population.E0, population.ED
    A, bias = shared(population) if shared_model else (np.zeros((K, K)), population.intercept)
    eye, guess = np.eye(K), Unknowns()

    def response(Hh: Array, M: Array, G: Array) -> tuple[Array, Array, Array]:
        R = np.linalg.inv(s[:, None, None] * Hh + ridge * eye)
        F = ridge * A + s[:, None, None] * M
        T = np.einsum("k,kab->ab", s, (E0 @ F + s[:, None, None] * (ED @ M)) @ R)
        inner = F.transpose(0, 2, 1) @ E0 @ F + (s**2)[:, None, None] * (M.T @ ED @ M) + (aspect * s * h)[:, None, None] * G
        return T, np.einsum("k,kab->ab", s, R @ inner @ R), aspect * np.einsum("k,kab->ab", h * s, R)

    alike = path(averaged(population), aspect, [ridge], K + 1, shared=shared_model, points=samples(K + 1, SEARCH))[0]
    unit = np.array([alike.Hh, alike.M, alike.G])[:, None, None]  # exchangeable classes of the same size: where to start

    def split(x: Array) -> tuple[Array, Array, Array, Array]:
        Hh, M, G = unit * x[: 3 * K * K].reshape(3, K, K)
        return Hh, M, G, x[3 * K * K :]

    def update(x: Array) -> Array:
        Hh, M, G, bhat = split(x)
        T, Q, V = response(Hh, M, G)
        new = moments(Shape(T, Q, bhat, population.total, population.intercept), V, points, guess)
        pull = np.linalg.solve(new.Hh, new.mean) if intercept else np.zeros(K)
        return np.concatenate([(np.stack([new.Hh, new.M, new.G]) / unit).ravel(), bhat + pull])

    start = np.concatenate([np.tile(eye.ravel(), 3), bias if intercept else np.zeros(K)])
    Hh, M, G, bhat = split(accelerated(update, start))
    T, Q, V = response(Hh, M, G)
    return GeneralFit(population, T, Q, bhat, ridge, A, V, Hh, M, G)
