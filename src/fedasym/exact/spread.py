"""How much clients differ, from their samples: a variance per unknown, of linear models and of
models of classes; and the penalties that an algorithm for classes makes of them.

Linear models with few features have a restricted likelihood with a variance for the intercept and
one for the rest, or one per feature (`fedasym.exact.reml`). With many there is one for all
features, from samples about their clients' own means, whose likelihood no intercept enters; the
intercept's comes from what the clients' mean residuals vary beyond that.

For classes the marginal likelihood is Gaussian in the weights around the minimum (Laplace;
penalised quasi-likelihood, Breslow and Clayton 1993), and its stationary points in D satisfy

    D_k = sum_jc U_jkc^2 / sum_jc (1 - Cov(U_jkc)/D_k),

squares over effective numbers of weights (MacKay 1992); the same holds for the shared weights and
one variance for all of them. Cov is that of all weights together, so that the shared ones cost
degrees of freedom (restricted likelihood). Small clients with two classes make it too small, by a
known bias of the approximation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from fedasym.algorithms import Algorithm, Objective
from fedasym.algorithms.paper import AVERAGE
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array
from fedasym.exact.clients import Client, ClientSums, mean_row
from fedasym.exact.least_squares import SharedSolution, fit_shared, stack_triangle
from fedasym.exact.logistic import (
    ClassPoint,
    ClassSamples,
    Equations,
    Integers,
    LogisticProblem,
    minimise,
)
from fedasym.exact.reml import FEW, Components, estimate_variances, maximise
from fedasym.exact.storage import centre_clients, count_samples, gather_sums, ridges_by_size

MANY_UNKNOWNS = 60  # unknowns from which on one variance serves all features


@dataclass(frozen=True, eq=False)
class Spread:
    """sigma^2, and tau_k^2 for each unknown: 0 where clients do not differ, or may not.

    components: where they come from the likelihood of few features; None otherwise.
    shared_variance: of the shared weights, where they have a prior.
    """

    noise2: float
    variances: Array
    components: Components | None = None
    shared_variance: float | None = None

    def ridges(self, clients: Sequence[Client], alike: bool = False) -> Any:
        """sigma^2/(n_j tau_k^2), (clients, unknowns), or one per client where variances are alike;
        infinite where clients do not differ.
        """
        counts = count_samples(clients)
        ratio = np.divide(
            self.noise2,
            self.variances,
            out=np.full(self.variances.shape, np.inf),
            where=self.variances > 0,
        )
        if alike:
            return np.asarray(ratio[0] / counts)
        return ridges_by_size(ratio, counts, clients)


def estimate_components(
    sums: ClientSums,
    intercept: bool,
    personal: NDArray[np.bool_] | None = None,
    shape: Array | None = None,
) -> Components:
    """The variances that the data support: of the intercept and of the rest, or of each feature.

    intercept: whether the last unknown is one.
    personal: by unknown, whether it may differ between clients.
    shape: by unknown, its share of a common variance (1: alike in the units given).

    One per feature replaces one for all where it lowers AICc = deviance + 2 k m/(m - k - 1).
    """
    p = sums.unknowns
    m = len(sums.counts)
    may = np.ones(p, bool) if personal is None else np.asarray(personal, bool)
    features = may.copy()
    features[p - 1 :] &= not intercept
    common = np.where(features, int(intercept), -1)
    if intercept:
        common[-1] = 0 if may[-1] else -1
    common = relabel(common)
    simple = maximise(sums, common, shape)
    several = int(features.sum())
    if not 2 <= several <= FEW or m <= several + 3:
        return simple
    apart = common.copy()
    apart[features] = np.arange(several) + (common.max() + 1)
    rich = maximise(sums, relabel(apart))
    return min(simple, rich, key=lambda each: penalised_deviance(each, m))


def relabel(groups: NDArray[np.intp]) -> NDArray[np.intp]:
    """Groups numbered from 0 without gaps; -1 stays."""
    kept = np.unique(groups[groups >= 0])
    return np.where(groups >= 0, np.searchsorted(kept, groups), -1)


def penalised_deviance(found: Components, clients: int) -> float:
    """AICc over clients: each free ratio costs about 2, and more where clients are few."""
    used = np.unique(found.groups[(found.groups >= 0) & (found.ratios > 0)]).size
    room = clients - used - 1
    return found.deviance + (2 * used * clients / room if room > 0 else np.inf)


def estimate_spread(
    clients: Sequence[Client],
    intercept: bool,
    personal: NDArray[np.bool_] | None,
    shared: bool = True,
) -> Spread:
    """Noise and variances of these clients; not `shared`: of the coefficients themselves, about 0.

    intercept: whether the last unknown is one. personal: by unknown, whether it may differ between
    clients.
    """
    p = clients[0].X.shape[1]
    counts = count_samples(clients)
    N = int(counts.sum())
    if p > MANY_UNKNOWNS or not shared:
        return estimate_many(clients, intercept, personal, shared)
    if len(clients) == 1:
        raise InvalidInput(
            "ridge='optimal' needs two clients to see how they differ, and there is only"
            f" {clients[0].name!r}: give ridge as a number, or ridge='cv'"
        )
    pool = fit_shared(AVERAGE, clients, counts / N)
    # About the pooled fit, to which the restricted likelihood is blind, no digits cancel.
    sums, lengths = gather_sums(clients, pool.theta)
    rank = pool.rank
    if rank >= N:
        raise InvalidInput(
            f"ridge='optimal' needs more samples than unknowns, and all clients together have {N}"
            f" for {p}: give ridge as a number, or ridge='cv'"
        )
    if float(sums.square.sum()) <= (np.finfo(float).eps * N) ** 2 * lengths:
        return Spread(0.0, np.zeros(p))  # the shared model explains everything
    found = estimate_components(sums, intercept, personal)
    return Spread(found.noise2, found.variances, replace(found, beta=found.beta + pool.theta))


def estimate_many(
    clients: Sequence[Client], intercept: bool, personal: NDArray[np.bool_] | None, shared: bool
) -> Spread:
    """One variance for all of many features, and the intercept's own."""
    p = clients[0].X.shape[1]
    may = np.ones(p, bool) if personal is None or not shared else np.asarray(personal, bool)
    if not intercept:
        found = estimate_variances(clients, shared=shared)
        return Spread(found.noise**2, np.where(may, found.radius**2 / p, 0.0))
    within = centre_clients(clients)
    found = estimate_variances(within, shared=shared)
    variances = np.where(may, found.radius**2 / (p - 1), 0.0)
    own = intercept_variance(clients, found.noise**2, variances, shared) if may[-1] else 0.0
    variances[-1] = own
    return Spread(found.noise**2, variances)


def intercept_variance(
    clients: Sequence[Client], noise2: float, variances: Array, shared: bool
) -> float:
    """tau_0^2 by moments: what mean residuals vary beyond the noise and the features' part.

    A fit to the means leaves only so many of them free to vary.
    """
    p, m = clients[0].X.shape[1], len(clients)
    slope, fitted = np.zeros(p), 0
    if shared and m > p:
        weighed = (np.sqrt(client.n) * mean_row(client)[None] for client in clients)
        slope = SharedSolution.of(stack_triangle((row[:, :p], row[:, p]) for row in weighed)).theta
        fitted = p
    elif shared and m > 1:  # the intercept alone
        slope[-1], fitted = np.mean([mean_row(client)[-1] for client in clients]), 1
    left = 0.0
    for client in clients:
        row = mean_row(client)
        about = row[-1] - row[:p] @ slope
        known = noise2 / client.n + float(row[: p - 1] ** 2 @ variances[:-1])
        left += float(about**2) * m / (m - fitted) - known
    return max(left / m, 0.0)


LEAST = 1e-4  # a variance below is no difference at all
MOST = 1e4  # and one above is no tie at all
FIRST = 0.3  # where a variance starts
INTERCEPT_RIDGE = 1e-6  # of the shared intercept: it keeps a class without samples finite
STRETCH = 1.5  # power of each update: the fixed point is approached from one side, and slowly
CLOSE = 0.02  # relative change of the variances at which they are good enough
ROUNDS = 60


@dataclass(frozen=True, eq=False)
class ClassComponents:
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


def estimate_class_components(
    samples: ClassSamples,
    groups: Integers,
    *,
    intercept: bool,
    weights: Array | None = None,
    shared: Array | None = None,
    start: ClassComponents | None = None,
) -> ClassComponents:
    """Variances by the approximate marginal likelihood, and the weights that go with them.

    groups: features with the same number have one variance; below 0: no personal part. shared:
    weights that stay as they are, instead of being estimated. start: where to begin, which saves
    rounds.
    """
    p = samples.features
    L = samples.classes - 1
    D = np.where(groups >= 0, FIRST, 0.0)
    T = FIRST
    B = np.zeros((p, L))
    U = np.zeros((samples.clients, p, L))
    if start is not None:  # a variance that was none once may be some here
        D = np.where(groups >= 0, np.maximum(start.variances, 10 * LEAST), 0.0)
        T, B, U = start.shared_variance, start.shared, start.personal
    B = B if shared is None else shared
    for _ in range(ROUNDS):
        ridges = ridges_of(p, T, intercept)
        problem = LogisticProblem(samples, D, ridges, weights, free=shared is None)
        point = minimise(problem, problem.standardise(B, U), tolerance=1e-4 * samples.rows)
        B = point.shared
        U = problem.personal_parts(point)
        D_new, T_new = update_variances(problem, point, groups, intercept)
        changes = np.abs(D_new - D) / (D_new + D + 1e-2)
        change = max(float(changes.max()), abs(T_new - T) / (T_new + T))
        D, T = D_new, T_new
        if change < CLOSE:
            break
    problem = LogisticProblem(samples, D, ridges_of(p, T, intercept), weights, free=shared is None)
    point = minimise(problem, problem.standardise(B, U), tolerance=1e-4)
    return ClassComponents(D, T, point.shared, problem.personal_parts(point))


def update_variances(
    problem: LogisticProblem, point: ClassPoint, groups: Integers, intercept: bool
) -> tuple[Array, float]:
    """The next variances of the personal weights, and of the shared ones."""
    equations = Equations.of(problem, problem.evaluate(point).probabilities)
    L = point.shared.shape[1]
    certain = np.zeros(len(problem.personal_features))
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
    D = problem.variances.copy()
    active = groups[problem.personal_features]
    squares = np.sum(point.personal**2, axis=(0, 2))
    for group in np.unique(active):
        here = active == group
        ratio = squares[here].sum() / max(L * certain[here].sum(), 1e-12)
        D[problem.personal_features[here]] *= ratio**STRETCH
    D = np.where(D < LEAST, 0.0, np.minimum(D, MOST))
    if not problem.free:
        return D, 1.0
    slopes = slice(None, -1) if intercept else slice(None)
    B2 = float(np.sum(point.shared[slopes] ** 2))
    gamma = L * float(np.sum(1 - problem.ridges[slopes] * np.diagonal(M)[slopes]))
    return D, float(np.clip(B2 / max(gamma, 1e-12), 1e-4, MOST))


@dataclass(frozen=True, eq=False)
class Penalties:
    """What an algorithm is fitted with: the variances of personal and of shared weights."""

    variances: Array
    shared_variance: float

    def scale(self, factors: Factors) -> Penalties:
        """Slopes, the last weight (the intercept, if any) and shared ones, times their factors."""
        D = self.variances * factors.slopes
        D[-1] *= factors.intercept / factors.slopes
        return Penalties(np.minimum(D, MOST), self.shared_variance * factors.shared)


class Factors(NamedTuple):
    """What the estimated variances are multiplied with."""

    slopes: float = 1.0
    intercept: float = 1.0
    shared: float = 1.0


class Estimate(NamedTuple):
    """Estimated penalties, with the pooled and the personal fit that they come from."""

    penalties: Penalties
    pooled: ClassComponents | None
    joint: ClassComponents | None

    @property
    def weights(self) -> tuple[Array, Array] | None:
        """Shared and personal weights to start from."""
        return None if self.joint is None else (self.joint.shared, self.joint.personal)


def has_variances(algorithm: Algorithm) -> bool:
    """Whether its personal weights stay near the shared ones, by variances that are estimated."""
    return algorithm.personalise.objective is Objective.PENALISED


def estimate_penalties(
    algorithm: Algorithm,
    samples: ClassSamples,
    groups: Integers,
    intercept: bool,
    weights: Array | None = None,
    start: Estimate | None = None,
) -> Estimate:
    """The variances that the samples themselves say."""
    server = algorithm.server
    stage = algorithm.personalise
    p = samples.features
    if server.objective is Objective.JOINT:
        found = estimate_class_components(
            samples,
            groups,
            intercept=intercept,
            weights=weights,
            start=None if start is None else start.joint,
        )
        return Estimate(Penalties(found.variances, found.shared_variance), None, found)
    pooled = None
    shared = np.zeros((p, samples.classes - 1))
    variance = 1.0
    if server.objective is Objective.POOLED:
        pooled = estimate_class_components(
            samples,
            np.full(p, -1),
            intercept=intercept,
            weights=weights,
            start=None if start is None else start.pooled,
        )
        shared, variance = pooled.shared, pooled.shared_variance
    if stage.objective is Objective.SHARED:
        return Estimate(Penalties(np.zeros(p), variance), pooled, pooled)
    if (
        stage.objective is Objective.OWN
    ):  # to convergence, were it not for clients that are separable
        return Estimate(Penalties(np.where(groups >= 0, MOST, 0.0), variance), pooled, pooled)
    found = estimate_class_components(
        samples,
        groups,
        intercept=intercept,
        weights=weights,
        shared=shared,
        start=None if start is None else start.joint,
    )
    return Estimate(Penalties(found.variances, variance), pooled, found)
