"""Variance components of classes: how much each weight differs between clients, from the samples
themselves.

Around the minimum the marginal likelihood is Gaussian in the weights (Laplace; penalised
quasi-likelihood, Breslow and Clayton 1993), and its stationary points in D satisfy

    D_k = sum_jc U_jkc^2 / sum_jc (1 - Cov(U_jkc)/D_k),

squares over effective numbers of weights (MacKay 1992); the same holds for the shared weights and
one variance for all of them. Cov is that of all weights together, so that the shared ones cost
degrees of freedom (restricted likelihood). Small clients with two classes make it too small, by a
known bias of the approximation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from fedasym.core.arrays import Array
from fedasym.exact.logistic import Equations, Integers, Point, Problem, Samples, minimise

LEAST = 1e-4  # a variance below is no difference at all
MOST = 1e4  # and one above is no tie at all
FIRST = 0.3  # where a variance starts
INTERCEPT_RIDGE = 1e-6  # of the shared intercept: it keeps a class without samples finite
STRETCH = 1.5  # power of each update: the fixed point is approached from one side, and slowly
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
    groups: Integers,
    *,
    intercept: bool,
    weights: Array | None = None,
    shared: Array | None = None,
    start: Components | None = None,
) -> Components:
    """Variances by the approximate marginal likelihood, and the weights that go with them.

    groups: features with the same number have one variance; below 0: no personal part. shared:
    weights that stay as they are, instead of being estimated. start: where to begin, which saves
    rounds.
    """
    p, L = samples.features, samples.classes - 1
    D = np.where(groups >= 0, FIRST, 0.0)
    T, B, U = FIRST, np.zeros((p, L)), np.zeros((samples.clients, p, L))
    if start is not None:  # a variance that was none once may be some here
        D = np.where(groups >= 0, np.maximum(start.variances, 10 * LEAST), 0.0)
        T, B, U = start.shared_variance, start.shared, start.personal
    B = B if shared is None else shared
    for _ in range(ROUNDS):
        ridges = ridges_of(p, T, intercept)
        problem = Problem(samples, D, ridges, weights, free=shared is None)
        point = minimise(problem, problem.standardised(B, U), tolerance=1e-4 * samples.rows)
        B, U = point.shared, problem.personal(point)
        D_new, T_new = update_variances(problem, point, groups, intercept)
        changes = np.abs(D_new - D) / (D_new + D + 1e-2)
        change = max(float(changes.max()), abs(T_new - T) / (T_new + T))
        D, T = D_new, T_new
        if change < CLOSE:
            break
    problem = Problem(samples, D, ridges_of(p, T, intercept), weights, free=shared is None)
    point = minimise(problem, problem.standardised(B, U), tolerance=1e-4)
    return Components(D, T, point.shared, problem.personal(point))


def update_variances(
    problem: Problem,
    point: Point,
    groups: Integers,
    intercept: bool,
) -> tuple[Array, float]:
    """The next variances of the personal weights, and of the shared ones."""
    equations = Equations.of(problem, problem.evaluate(point).probabilities)
    L = point.shared.shape[1]
    certain = np.zeros(len(problem.active))
    M = np.empty((0, 0))
    if problem.free:
        M = scipy.linalg.cho_solve((equations.complement, True), np.eye(problem.samples.features))
    for block, A, w, inverse in equations.parts():
        if A.shape[1] < A.shape[2]:
            half = np.sqrt(w)[..., None]
            R = half * A
            # diag(A'w^½ N w^½A) is what samples say, less what the shared weights take back
            N = inverse
            if problem.free:
                Kx = inverse @ (half * block.X)
                N = inverse - Kx @ M @ Kx.swapaxes(1, 2)
            certain += np.sum(R * (N @ R), axis=(0, 1))
        else:
            certain += np.sum(1 - np.diagonal(inverse, axis1=1, axis2=2), axis=0)
            if problem.free:
                T = inverse @ (A.swapaxes(1, 2) @ (w[..., None] * block.X))
                certain -= np.sum((T @ M) * T, axis=(0, 2))
    D, active = problem.variances.copy(), groups[problem.active]
    squares = np.sum(point.personal**2, axis=(0, 2))
    for group in np.unique(active):
        here = active == group
        ratio = squares[here].sum() / max(L * certain[here].sum(), 1e-12)
        D[problem.active[here]] *= ratio**STRETCH
    D = np.where(D < LEAST, 0.0, np.minimum(D, MOST))
    if not problem.free:
        return D, 1.0
    slopes = slice(None, -1) if intercept else slice(None)
    B2 = float(np.sum(point.shared[slopes] ** 2))
    gamma = L * float(np.sum(1 - problem.ridges[slopes] * np.diagonal(M)[slopes]))
    return D, float(np.clip(B2 / max(gamma, 1e-12), 1e-4, MOST))
