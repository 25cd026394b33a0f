"""Variance components of classes: how much each weight differs between clients, from the samples themselves.

Around the minimum the marginal likelihood is Gaussian in the weights (Laplace; penalised quasi-likelihood, Breslow and
Clayton 1993), and its stationary points in D satisfy

    D_k = sum_jc U_jkc^2 / sum_jc (1 - Cov(U_jkc)/D_k),

squares over effective numbers of weights (MacKay 1992); the same holds for the shared weights and one variance for all
of them. Cov is that of all weights together, so that the shared ones cost degrees of freedom (restricted likelihood).
Small clients with two classes make it too small, by a known bias of the approximation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from fedasym.exact.logistic import Equations, Point, Problem, Samples, minimise
from fedasym.theory.spectra import Array

LEAST = 1e-6  # a variance below is no difference at all
MOST = 1e4  # and one above is no tie at all
FIRST = 0.3  # where a variance starts
INTERCEPT_RIDGE = 1e-6  # of the shared intercept: it keeps a class without samples finite
CLOSE = 0.02  # relative change of the variances at which they are good enough
ROUNDS = 60


@dataclass(frozen=True, eq=False)
class Components:
    """Variances D (p,) of personal weights, the variance of shared ones, and the weights there."""

    variances: Array
    shared_variance: float
    shared: Array  # (p, L)
    personal: Array  # (clients, p, L)


def ridges_of(features: int, variance: float, intercept: bool) -> Array:
    """The shared weights' ridges: 1/variance, and next to nothing for the intercept."""
    ridges = np.full(features, 1 / variance)
    if intercept:
        ridges[-1] = INTERCEPT_RIDGE
    return ridges


def estimate_components(
    samples: Samples,
    personal: Array,
    *,
    intercept: bool,
    weights: Array | None = None,
    shared: Array | None = None,
    shared_variance: float | None = None,
) -> Components:
    """Variances by the approximate marginal likelihood, and the weights that go with them.

    personal: which features have a personal part. shared: weights that stay as they are, instead of being estimated.
    """
    D = np.where(personal, FIRST, 0.0)
    T = FIRST if shared_variance is None else shared_variance
    B = shared if shared is not None else np.zeros((samples.features, samples.classes - 1))
    U = np.zeros((samples.clients, *B.shape))
    for _ in range(ROUNDS):
        ridges = ridges_of(samples.features, T, intercept)
        problem = Problem(samples, D, ridges, weights, free=shared is None)
        point = minimise(problem, problem.standardised(B, U), tolerance=1e-3)
        B, U = point.shared, problem.personal(point)
        ratios, T_new = update_variances(problem, point, intercept)
        D_new = D.copy()
        D_new[problem.active] = np.clip(D[problem.active] * ratios, 0, MOST)
        D_new[D_new < LEAST] = 0
        T_new = T if shared is not None or shared_variance is not None else T_new
        change = np.max(np.abs(D_new - D) / (D_new + D + 1e-3), initial=abs(T_new - T) / (T_new + T))
        D, T = D_new, T_new
        if change < CLOSE:
            break
    problem = Problem(
        samples, D, ridges_of(samples.features, T, intercept), weights, free=shared is None
    )
    point = minimise(problem, problem.standardised(B, U))
    return Components(D, T, point.shared, problem.personal(point))


def update_variances(problem: Problem, point: Point, intercept: bool) -> tuple[Array, float]:
    """What each active D_k is to be multiplied with, and the new variance of the shared weights."""
    equations = Equations.of(problem, problem.evaluate(point).probabilities)
    L = point.shared.shape[1]
    certain = np.zeros(len(problem.active))
    M = np.empty((0, 0))
    if problem.free:
        M = scipy.linalg.cho_solve((equations.complement, True), np.eye(problem.samples.features))
    for block, w, inverse in equations.parts():
        A = problem.effects(block)
        if A.shape[1] < A.shape[2]:
            half = np.sqrt(w)[..., None]
            R = half * A
            N = inverse  # diag(A'w^½ N w^½A) is what samples say, less what the shared weights take back
            if problem.free:
                Kx = inverse @ (half * block.X)
                N = inverse - Kx @ M @ Kx.swapaxes(1, 2)
            certain += np.sum(R * (N @ R), axis=(0, 1))
        else:
            certain += np.sum(1 - np.diagonal(inverse, axis1=1, axis2=2), axis=0)
            if problem.free:
                T = inverse @ (A.swapaxes(1, 2) @ (w[..., None] * block.X))
                certain -= np.sum((T @ M) * T, axis=(0, 2))
    ratios = np.sum(point.personal**2, axis=(0, 2)) / np.maximum(L * certain, 1e-12)
    if not problem.free:
        return ratios, 1.0
    slopes = slice(None, -1) if intercept else slice(None)
    B2 = float(np.sum(point.shared[slopes] ** 2))
    gamma = L * float(np.sum(1 - problem.ridges[slopes] * np.diagonal(M)[slopes]))
    return ratios, float(np.clip(B2 / max(gamma, 1e-12), 1e-4, MOST))
