"""What the clients learn together: one least-squares problem, in which each server stage weighs residuals its own way.

theta_0 = argmin sum_j p_j/(2 n_j) (X_j b - y_j)' W_j (X_j b - y_j), of minimum norm where there are several, with
K_j = X_j X_j'/n_j and W = I for Average (param-fedavg), (I - alpha K)^2 for Meta (param-maml), and (I + K/lambda)^{-1} for
Moreau: what is left of param-prox once the personal models are minimised out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from fedasym.algorithms.stages import Objective, ServerStage
from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput
from fedasym.exact.clients import RANK, Client, triangular

FIRM = 1e-6  # above this share of the curvature, a ridge makes Cholesky accurate to 10 digits; below, singular values serve
LEVERAGE = 1e-8  # a direction whose leverage is this close to one was seen by a single client
BATCH = 256  # rows that wait for one factorisation

Rows = tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class Pool:
    """The minimum-norm minimiser theta of |A b - c|^2, and a factor of (A'A)^+ = B B' to ask more of it."""

    theta: Array
    factor: Array  # the triangular R with A'A = R'R at full rank, B = R^{-1}; otherwise B itself
    full: bool

    @classmethod
    def of(cls, stacked: Array) -> Pool:
        """Solve from the (triangular factor of the) rows [A c]."""
        d = stacked.shape[1] - 1
        R, z = stacked[:d, :d], stacked[:d, d]
        if len(stacked) >= d and scipy.linalg.lapack.dgecon(R, np.abs(R).sum(0).max())[0] > RANK:
            return cls(scipy.linalg.solve_triangular(R, z), R, True)
        U, s, Vt = np.linalg.svd(stacked[:, :d], full_matrices=False)
        kept = s > RANK * s[0]
        U, s, Vt = U[:, kept], s[kept], Vt[kept]
        return cls(Vt.T @ (U.T @ stacked[:, d] / s), Vt.T / s, False)

    @property
    def rank(self) -> int:
        """How many directions the pooled samples determine."""
        return int(self.factor.shape[1])

    def root(self, A: Array) -> Array:
        """A B."""
        if not self.full:
            return A @ self.factor
        return np.asarray(scipy.linalg.solve_triangular(self.factor, A.T, trans="T", check_finite=False).T)

    def pull(self, A: Array) -> Array:
        """A (A'A)^+ of the pool, for rows A of one client."""
        AB = self.root(A)
        return np.asarray(scipy.linalg.solve_triangular(self.factor, AB.T).T if self.full else AB @ self.factor.T)

    def left_out(self, A: Array, c: Array) -> Array:
        """Residuals c - A theta^(-i) of one client's rows about the minimum-norm fit to all the others, without a refit.

        (I - H)^{-1} (c - A theta), H = A (A'A)^+ A'. Where H has eigenvalue one (Z), the others never saw that direction;
        as the limit of a vanishing ridge, those residuals Z x minimise |theta - theta^(-i)|.
        """
        e, AB = c - A @ self.theta, self.root(A)
        lower, failed = scipy.linalg.lapack.dpotrf(np.eye(len(e)) - AB @ AB.T, lower=True)
        if not failed and scipy.linalg.lapack.dpocon(lower, 1.0, uplo="L")[0] > FIRM:
            return np.asarray(scipy.linalg.cho_solve((lower, True), e, check_finite=False))
        P, cosine, _ = np.linalg.svd(AB, full_matrices=False)
        slack = (1 - cosine) * (1 + cosine)
        seen = slack > LEVERAGE
        P, Z = P[:, seen], P[:, ~seen]
        e = e + P @ ((1 / slack[seen] - 1) * (P.T @ e))
        if not Z.size:
            return np.asarray(e)
        back = self.pull(A)
        return np.asarray(e + Z @ scipy.linalg.lstsq(back.T @ Z, self.theta - back.T @ e)[0])


def pooled(server: ServerStage, clients: Sequence[Client], weights: Array, ridges: Array | None = None) -> Pool:
    """The shared model of a server stage; Moreau needs each client's ridge, one or one per unknown (clients, unknowns)."""

    def rows(place: int) -> Rows:
        client, scale = clients[place], np.sqrt(weights[place] / clients[place].n)
        A, c = weighed(server, client, np.inf if ridges is None else ridges[place])
        return scale * A, scale * c

    return Pool.of(triangle(rows(place) for place in range(len(clients))))


def triangle(rows: Iterable[Rows]) -> Array:
    """All rows [A c] one client after the other, as their triangular factor once they outnumber the unknowns.

    Unlike sums of X'X this does not square the condition number, and with fewer rows than unknowns nothing is lost.
    """
    waiting: list[Array] = []
    height = 0
    for A, c in rows:
        waiting.append(np.column_stack([A, c]))
        height += len(c)
        if height >= 2 * waiting[0].shape[1] + BATCH:
            waiting = [triangular(np.vstack(waiting))]
            height = len(waiting[0])
    stacked = np.vstack(waiting)
    return triangular(stacked) if len(stacked) >= stacked.shape[1] - 1 else stacked


def weighed(server: ServerStage, client: Client, ridge: float | Array) -> Rows:
    """W^{1/2} X and W^{1/2} y; with a ridge per unknown W = (I + X diag(1/lambda) X'/n)^{-1}."""
    X, y, n = client.X, client.y, client.n
    joint = server.objective is Objective.JOINT
    if server.look_ahead is not None:
        K = X @ X.T / n
        return X - server.look_ahead * K @ X, y - server.look_ahead * K @ y
    if joint and np.ndim(ridge):
        reach = X / np.sqrt(ridge)  # 0 along unknowns whose ridge is infinite
        return whitened(np.eye(len(y)) + reach @ reach.T / n, client)
    if server.objective is Objective.POOLED or (joint and not np.isfinite(ridge)):
        return X, y  # with infinite penalty the personal models are the shared one
    if joint and ridge >= FIRM * np.vdot(X, X) / n:
        return whitened(np.eye(len(y)) + X @ X.T / (n * ridge), client)
    U, s, Vt = client.axes  # by the stage's weight along the client's axes, W = b(K)
    half = 1 / np.sqrt(1 + s**2 / (n * ridge)) if joint else half_weight(server, s**2 / n, ridge)
    return (half * s)[:, None] * Vt, half * (U.T @ y)


def whitened(V: Array, client: Client) -> Rows:
    """V^{-1/2} X and V^{-1/2} y."""
    both = np.column_stack([client.X, client.y])
    both = scipy.linalg.solve_triangular(scipy.linalg.cholesky(V, lower=True), both, lower=True)
    return both[:, :-1], both[:, -1]


def half_weight(server: ServerStage, x: Array, ridge: float | Array) -> Array:
    """The square root of b(x), at the given ridge where the stage has none of its own."""
    weight = np.broadcast_to(server.filled(ridge=ridge).weight(x), x.shape)
    if not np.all(weight >= 0):
        raise InvalidInput(
            f"{type(server).__name__} weighs an eigenvalue of {x[np.argmin(weight)]:.3g} with {weight.min():.3g}: below 0 the "
            "shared model is no minimum; give a smaller step or other settings"
        )
    return np.sqrt(weight)
