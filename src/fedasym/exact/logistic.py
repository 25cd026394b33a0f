"""Logistic and softmax regression, shared and personal parts, by Newton over all clients.

Client j's logits are x'(B + U_j) C': C holds the orthonormal contrasts of the classes, so that no
direction is left undetermined, and the variance of a weight means the same for every number of
classes. With U_j = S V_j, S^2 = D, the objective (pFedMe's; equation param-prox with this loss) is

    sum_j sum_i loss(x_ij'(B + S V_j), y_ij) + 1/2 sum_j |V_j|^2 + 1/2 sum_k ridge_k |B_k|^2.

A feature with D_k = 0 has no personal part. Newton's equations are those of a linear mixed model
with weighted samples (Henderson 1950): each client's block is eliminated, in as many unknowns as it
has samples or personal features, whichever are fewer, and the Schur complement gives the shared
part. Memory grows with the table alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from fedasym.core.numbers import Array
from fedasym.theory.classes.softmax import contrasts

Integers = NDArray[np.int64]

# numbers in one block of clients: what stays in the cache and out of the way of memory
CHUNK = 2**20
GROWTH = 1.2  # clients whose numbers of samples differ by at most this factor share a block
# share of the squared residual at which conjugate gradients end: the next step does the rest
CLOSE = 1e-3
FLAT = 1e-12  # what rounding leaves of a decrease


class ClassPoint(NamedTuple):
    """Weights in contrasts: shared B (p, L), standardised personal V (clients, active, L)."""

    shared: Array
    personal: Array

    def move(self, direction: ClassPoint, share: float) -> ClassPoint:
        """The point at this share of the way."""
        shared = self.shared + share * direction.shared
        return ClassPoint(shared, self.personal + share * direction.personal)

    def dot(self, other: ClassPoint) -> float:
        """The inner product."""
        return float(np.vdot(self.shared, other.shared) + np.vdot(self.personal, other.personal))


@dataclass(frozen=True, eq=False)
class PaddedClients:
    """Clients of nearly one size, their samples padded with rows of zeros."""

    places: Integers  # (b,) which clients
    rows: Integers  # (b, n) which samples of the table; 0 where padded
    present: NDArray[np.bool_]  # (b, n)
    X: Array  # (b, n, p)
    codes: Integers  # (b, n)


@dataclass(frozen=True, eq=False)
class ClassSamples:
    """A table of samples in blocks of clients.

    >>> codes, clients = np.array([0, 1, 1, 0, 1]), np.array([0, 0, 1, 1, 1])
    >>> samples = ClassSamples.of(np.ones((5, 1)), codes, clients, 2)
    >>> [block.places.tolist() for block in samples.blocks]
    [[0], [1]]
    """

    blocks: tuple[PaddedClients, ...]
    rows: int
    features: int
    clients: int
    classes: int

    @classmethod
    def of(cls, X: Array, codes: Integers, clients: Integers, classes: int) -> ClassSamples:
        """From rows, codes 0..classes-1 and clients 0..m-1, one of each per row."""
        N, p = X.shape
        m = int(clients.max()) + 1 if N else 0
        order = np.argsort(clients, kind="stable")
        sizes = np.bincount(clients, minlength=m)
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        blocks = []
        for n, places in group_by_size(sizes, max(p, classes)):
            inside = np.arange(n) < sizes[places][:, None]
            where = np.minimum(starts[places][:, None] + np.arange(n), N - 1)
            rows = np.where(inside, order[where], 0)
            block = np.where(inside[..., None], X[rows], 0.0)
            blocks.append(
                PaddedClients(places, rows, inside, block, np.where(inside, codes[rows], 0))
            )
        return cls(tuple(blocks), N, p, m, classes)

    @cached_property
    def contrasts(self) -> Array:
        """C, (classes, classes - 1)."""
        return contrasts(self.classes)

    def count_classes(self, weights: Array | None = None) -> Array:
        """(clients, classes) samples, each with its row's weight."""
        counts = np.zeros((self.clients, self.classes))
        for block in self.blocks:
            owner = np.broadcast_to(block.places[:, None], block.rows.shape)[block.present]
            rows = block.rows[block.present]
            counted = 1.0 if weights is None else weights[rows]
            np.add.at(counts, (owner, block.codes[block.present]), counted)
        return counts


def group_by_size(sizes: Integers, width: int) -> Iterator[tuple[int, Integers]]:
    """Clients of similar size, with the largest size among them, in chunks of bounded memory."""
    order = np.argsort(sizes, kind="stable")
    order = order[sizes[order] > 0]
    start = 0
    while start < len(order):
        most = max(int(GROWTH * sizes[order[start]]), int(sizes[order[start]]))
        stop = int(np.searchsorted(sizes[order], most, side="right"))
        n = int(sizes[order[stop - 1]])
        stop = min(stop, start + max(CHUNK // (n * width), 1))
        yield int(sizes[order[stop - 1]]), order[start:stop]
        start = stop


class LogisticState(NamedTuple):
    """The objective at a point, its gradient, and the probabilities of each block's samples."""

    value: float
    gradient: ClassPoint
    probabilities: list[Array]


@dataclass(frozen=True, eq=False)
class LogisticProblem:
    """The objective for given variances D (p,) and ridges (p,); with `free` false the shared part
    stays as it is.

    weights: of the table's rows; a sample of weight 0 is left out, which is how folds are made.
    """

    samples: ClassSamples
    variances: Array
    ridges: Array
    weights: Array | None = None
    free: bool = True

    @cached_property
    def personal_features(self) -> Integers:
        """The features with a personal part."""
        return np.flatnonzero(self.variances > 0)

    @cached_property
    def effects(self) -> list[Array]:
        """A = X S of the active features, by block."""
        S = np.sqrt(self.variances[self.personal_features])
        return [block.X[..., self.personal_features] * S for block in self.samples.blocks]

    def counts(self, block: PaddedClients) -> Array:
        """The weight of each sample of a block, 0 where padded."""
        if self.weights is None:
            return block.present.astype(float)
        return np.where(block.present, self.weights[block.rows], 0.0)

    def outputs(self, block: PaddedClients, A: Array, point: ClassPoint) -> Array:
        """X B + A V in contrasts, (b, n, L)."""
        b, n, p = block.X.shape
        shared = (block.X.reshape(-1, p) @ point.shared).reshape(b, n, -1)
        return np.asarray(shared + A @ point.personal[block.places])

    def transpose(self, parts: list[Array], point: ClassPoint) -> ClassPoint:
        """X'r and A'r of derivatives r by outputs, plus the penalties' ridge B and V."""
        shared = self.ridges[:, None] * point.shared
        personal = point.personal.copy()
        for block, A, r in zip(self.samples.blocks, self.effects, parts, strict=True):
            if self.free:
                p = block.X.shape[2]
                shared += block.X.reshape(-1, p).T @ r.reshape(-1, r.shape[2])
            personal[block.places] += A.swapaxes(1, 2) @ r
        return ClassPoint(shared if self.free else np.zeros_like(shared), personal)

    def start(self, shared: Array | None = None) -> ClassPoint:
        """No personal part, and the given shared one."""
        L = self.samples.classes - 1
        count = (self.samples.clients, len(self.personal_features))
        B = np.zeros((self.samples.features, L)) if shared is None else shared
        return ClassPoint(B, np.zeros((*count, L)))

    def evaluate(self, point: ClassPoint) -> LogisticState:
        """Value, gradient and probabilities."""
        C = self.samples.contrasts
        ridges = self.ridges[:, None]
        value = 0.5 * float(np.sum(point.personal**2) + np.sum(ridges * point.shared**2))
        probabilities, residuals = [], []
        for block, A in zip(self.samples.blocks, self.effects, strict=True):
            weight = self.counts(block)
            logits = self.outputs(block, A, point) @ C.T
            P, chosen = softmax_rows(logits, block.codes)
            value -= float(np.vdot(weight, chosen))
            probabilities.append(P)
            residual = P @ C - C[block.codes]
            residuals.append(weight[..., None] * residual)
        return LogisticState(value, self.transpose(residuals, point), probabilities)

    def curvature(self, probabilities: list[Array], direction: ClassPoint) -> ClassPoint:
        """The Hessian times a direction."""
        C = self.samples.contrasts
        parts = []
        for block, A, P in zip(self.samples.blocks, self.effects, probabilities, strict=True):
            e = self.outputs(block, A, direction) @ C.T
            e = P * (e - np.sum(P * e, axis=2, keepdims=True))
            parts.append(self.counts(block)[..., None] * (e @ C))
        return self.transpose(parts, direction)

    def personal_parts(self, point: ClassPoint) -> Array:
        """U = S V with zeros where a feature has no personal part, (clients, p, L)."""
        U = np.zeros((self.samples.clients, *point.shared.shape))
        U[:, self.personal_features] = (
            np.sqrt(self.variances[self.personal_features])[:, None] * point.personal
        )
        return U

    def standardise(self, shared: Array, U: Array) -> ClassPoint:
        """The point with these weights, as far as the active features say them."""
        return ClassPoint(
            shared,
            U[:, self.personal_features] / np.sqrt(self.variances[self.personal_features])[:, None],
        )


def softmax_rows(logits: Array, codes: Integers) -> tuple[Array, Array]:
    """Probabilities, and each sample's log-probability of its class; no overflow, no log of 0."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    chosen = np.take_along_axis(shifted, codes[..., None], axis=-1)[..., 0]
    P = np.exp(shifted)
    total = P.sum(axis=-1)
    return P / total[..., None], chosen - np.log(total)


@dataclass(frozen=True, eq=False)
class Equations:
    """The mixed-model equations with one weight w = (1 - |P|^2)/L per sample, the mean of its
    curvatures.

    With two classes these are Newton's equations; with more, the best of their kind that treats the
    contrasts alike, so that one factor serves all of them. `inverses` holds (I + A'wA)^{-1} of each
    client, or (I + w^½AA'w^½)^{-1} where it has fewer samples than personal features.
    """

    problem: LogisticProblem
    weights: list[Array]
    inverses: list[Array]
    complement: Array  # Cholesky factor of ridge + sum_j X'w^½(I + w^½AA'w^½)^{-1}w^½X

    @classmethod
    def of(cls, problem: LogisticProblem, probabilities: list[Array]) -> Equations:
        """Eliminate every client."""
        L = problem.samples.classes - 1
        M = np.diag(problem.ridges)
        weights, inverses = [], []
        blocks = problem.samples.blocks
        for block, A, P in zip(blocks, problem.effects, probabilities, strict=True):
            w = problem.counts(block) * np.maximum(1 - np.sum(P**2, axis=2), 0) / L
            X = block.X
            p = problem.samples.features
            if A.shape[1] < A.shape[2]:
                half = np.sqrt(w)[..., None]
                inverse = invert_gram(half * A @ (half * A).swapaxes(1, 2))
                if problem.free:
                    M += (half * X).reshape(-1, p).T @ (inverse @ (half * X)).reshape(-1, p)
            else:
                inverse = invert_gram(A.swapaxes(1, 2) @ (w[..., None] * A))
                if problem.free:
                    J = A.swapaxes(1, 2) @ (w[..., None] * X)
                    M += X.reshape(-1, p).T @ (w[..., None] * X).reshape(-1, p)
                    M -= J.reshape(-1, p).T @ (inverse @ J).reshape(-1, p)
            weights.append(w)
            inverses.append(inverse)
        return cls(problem, weights, inverses, factor(M) if problem.free else np.empty((0, 0)))

    def solve(self, target: ClassPoint) -> ClassPoint:
        """The direction whose image under the equations is the target."""
        personal = np.zeros_like(target.personal)
        rest = target.shared.copy()
        for block, A, w, inverse in self.parts():
            t = apply_inverse(A, w, inverse, target.personal[block.places])
            personal[block.places] = t
            if self.problem.free:
                pulled = (w[..., None] * (A @ t)).reshape(-1, t.shape[2])
                rest -= block.X.reshape(len(pulled), -1).T @ pulled
        if not self.problem.free:
            return ClassPoint(np.zeros_like(rest), personal)
        B = scipy.linalg.cho_solve((self.complement, True), rest)
        for block, A, w, inverse in self.parts():
            b, n, p = block.X.shape
            moved = w[..., None] * (block.X.reshape(-1, p) @ B).reshape(b, n, -1)
            personal[block.places] -= apply_inverse(A, w, inverse, A.swapaxes(1, 2) @ moved)
        return ClassPoint(B, personal)

    def parts(self) -> Iterator[tuple[PaddedClients, Array, Array, Array]]:
        """Each block with its effects, weights and inverses."""
        problem = self.problem
        blocks = problem.samples.blocks
        return zip(blocks, problem.effects, self.weights, self.inverses, strict=True)


def invert_gram(gram: Array) -> Array:
    """(I + G)^{-1} of positive semidefinite G: eigenvalues of at least 1 make inverses safe."""
    return np.asarray(np.linalg.inv(gram + np.eye(gram.shape[1])))


def apply_inverse(A: Array, w: Array, inverse: Array, r: Array) -> Array:
    """(I + A'wA)^{-1} r, by either form of the inverse."""
    if A.shape[1] >= A.shape[2]:
        return np.asarray(inverse @ r)
    half = np.sqrt(w)[..., None]
    return np.asarray(r - A.swapaxes(1, 2) @ (half * (inverse @ (half * (A @ r)))))


def factor(M: Array) -> Array:
    """The lower Cholesky factor; where rounding made M indefinite, of M with a trace of ridge."""
    M = (M + M.T) / 2
    jitter = 0.0
    while True:
        lower, failed = scipy.linalg.lapack.dpotrf(M + jitter * np.eye(len(M)), lower=True)
        if not failed:
            return np.asarray(lower)
        jitter = max(100 * jitter, 1e-14 * (float(np.trace(M)) + 1))


def minimise(
    problem: LogisticProblem, start: ClassPoint, tolerance: float = 1e-9, steps: int = 100
) -> ClassPoint:
    """The minimum, by Newton's method with halved steps: ends one step after the decrease to hope
    for is below tolerance.

    >>> X, codes, clients = np.ones((4, 1)), np.array([0, 1, 1, 1]), np.zeros(4, dtype=int)
    >>> problem = LogisticProblem(ClassSamples.of(X, codes, clients, 2), np.zeros(1), np.zeros(1))
    >>> B = minimise(problem, problem.start()).shared
    >>> round(float(np.exp((B @ problem.samples.contrasts.T)[0] @ [-1, 1])), 6)
    3.0
    """
    point = start
    state = problem.evaluate(start)
    for _ in range(steps):
        equations = Equations.of(problem, state.probabilities)
        direction = newton_direction(equations, state)
        decrease = state.gradient.dot(direction)
        if not decrease > 0:
            break
        share = 1.0
        slack = FLAT * abs(state.value)
        while True:
            moved = point.move(direction, -share)
            new = problem.evaluate(moved)
            if new.value <= state.value - 1e-4 * share * decrease + slack:
                point, state = moved, new
                break
            share /= 2
            if share < 1e-10:
                return point
        if decrease / 2 < tolerance:
            break
    return point


def newton_direction(equations: Equations, state: LogisticState) -> ClassPoint:
    """H^{-1} g: by the equations with two classes, by preconditioned conjugate gradients else."""
    problem = equations.problem
    z = equations.solve(state.gradient)
    if problem.samples.classes == 2:
        return z
    r = state.gradient
    rho = first = r.dot(z)
    x = ClassPoint(np.zeros_like(r.shared), np.zeros_like(r.personal))
    d = z
    for _ in range(100):
        if not rho > 0:
            break
        Hd = problem.curvature(state.probabilities, d)
        bend = d.dot(Hd)
        if not bend > 0:
            break
        x, r = x.move(d, rho / bend), r.move(Hd, -rho / bend)
        z = equations.solve(r)
        before = rho
        rho = r.dot(z)
        if rho < CLOSE * first:
            return x
        d = z.move(d, rho / before)
    return x if x.shared.any() or x.personal.any() else z
