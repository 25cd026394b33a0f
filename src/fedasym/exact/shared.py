"""The shared model's error given everyone's features, as covariances that are exact: no noise, no displacement is sampled.

theta_0_hat = Q^-1 sum_j p_j [A_j theta_j + b(S_j) X_j'noise_j/n_j] with A_j = S_j b(S_j) and Q = sum_j p_j A_j. Clients are
streamed: sums of d x d matrices are all that is kept of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, cho_factor, cho_solve, lapack

from fedasym.algorithms.average import Average
from fedasym.algorithms.stages import Objective, ServerStage
from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput
from fedasym.exact.draw import Drawn, Kind


@dataclass(frozen=True, eq=False)
class Pull:
    """How hard each client pulls at the shared model, p_j b_j(S_j); p and ridge have one entry per kind of client."""

    server: ServerStage
    p: Array
    ridge: Array | None = None

    def __call__(self, client: Drawn) -> Array:
        """The weight p b(x) of each eigenvalue."""
        place = client.kind.place
        server = self.server if self.ridge is None else self.server.at(ridge=self.ridge[place])
        return np.asarray(self.p[place] * server.weight(client.x))


def pull_of(server: ServerStage, p: Array, ridge: Array | None) -> Pull:
    """The pull of a server stage; an endless ridge ties everyone to the shared model, which is then the average."""
    if "ridge" not in server.settings() or ridge is None:
        return Pull(server, p)
    return Pull(Average(), p) if np.all(np.isinf(ridge)) else Pull(server, p, ridge)


@dataclass(frozen=True, eq=False)
class Shared:
    """Covariance of theta_0_hat - theta_0 from displacements and from noise, and how theta_0_hat responds to a client.

    response(j, client) is R in theta_0_hat = R (Y theta_j + noise_j/sqrt n) + what the others say.
    """

    away: Array
    blur: Array
    response: Callable[[int, Drawn], Array]


@dataclass(frozen=True, eq=False)
class Sums:
    """Q, sum_j p^2 A E A and sum_j p^2 b^2 S noise^2/n for one server stage, as lower triangles.

    None: it follows from the others when all clients are of one kind. The noise of Average is Q again, and
    x/(x+l) = [x^2/(x+l)^2]/l + x/(x+l)^2 gives the Q of Moreau.
    """

    pull: Pull
    kinds: Sequence[Kind]
    Q: Array | None
    away: Array
    blur: Array | None
    room: Array  # for one client's scaled rows

    @classmethod
    def empty(cls, pull: Pull, kinds: Sequence[Kind]) -> Sums:
        """Before the first client."""
        d, first, alike = kinds[0].s.size, kinds[0], len(kinds) == 1
        Q, away, blur = (np.zeros((d, d), order="F") for _ in range(3))
        room = np.empty((max(min(kind.n, d) for kind in kinds), d))
        firm = pull.ridge is not None and 0 < pull.ridge[0] < np.inf and bool(first.spread) and first.noise2 > 0
        if alike and pull.server.objective is Objective.POOLED:
            return cls(pull, kinds, Q, away, None, room)
        return cls(pull, kinds, None if alike and firm else Q, away, blur, room)

    def add(self, client: Drawn) -> None:
        """One more client."""
        pull, kind = self.pull(client), client.kind
        if self.Q is not None:
            self._add(self.Q, np.sqrt(pull), client)
        if self.blur is not None and kind.noise2 > 0:
            self._add(self.blur, np.sqrt(kind.noise2 / kind.n) * pull, client)
        if kind.spread is None:
            rows = np.multiply(pull[:, None], client.Y, out=self.room[: client.x.size])
            rank_update(self.away, blas.dtrmm(1.0, root(client.spread), rows.T, side=1, lower=1))
        elif kind.spread > 0:
            self._add(self.away, np.sqrt(client.spread) * pull, client)

    def _add(self, total: Array, scale: Array, client: Drawn) -> None:
        rank_update(total, np.multiply(scale[:, None], client.Y, out=self.room[: client.x.size]).T)

    def shared(self) -> Shared:
        """The shared model, once every client is in."""
        first, p = self.kinds[0], self.pull.p[0]
        Q, blur = self.Q, self.blur
        if Q is None and blur is not None and self.pull.ridge is not None and first.spread is not None:
            Q = (self.away / (first.spread * self.pull.ridge[0]) + blur * (first.n / first.noise2)) / p
        elif Q is not None and blur is None:
            blur = (first.noise2 / first.n * p) * Q
        assert Q is not None
        assert blur is not None
        try:
            factor = cho_factor(Q, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            raise InvalidInput("the drawn samples do not determine the shared model: give more clients") from None

        def between(middle: Array) -> Array:
            """Q^-1 middle Q^-1."""
            half = cho_solve(factor, mirrored(middle), check_finite=False)
            return np.asarray(cho_solve(factor, half.T, overwrite_b=True, check_finite=False))

        def response(_: int, client: Drawn) -> Array:
            return np.asarray(cho_solve(factor, client.Y.T * self.pull(client), overwrite_b=True, check_finite=False))

        return Shared(between(self.away), between(blur), response)


def interpolant(clients: Sequence[Drawn]) -> Shared:
    """Fewer samples than unknowns: every server stage finds the minimum-norm interpolant of all samples (section 6.2).

    It loses what theta_0 has outside the span of the samples, so the energy of theta_0 counts.
    """
    d, centre = clients[0].kind.s.size, clients[0].kind.centre
    if centre is None:
        raise InvalidInput(
            "the pooled samples are fewer than the unknowns, so the shared model shrinks towards zero and the length of the "
            "optimum matters: give norm, of at least radius"
        )
    Y = np.vstack([client.Y for client in clients])
    ends = np.cumsum([0, *(client.x.size for client in clients)])
    M = cho_solve(cho_factor(Y @ Y.T, lower=True, check_finite=False), Y, check_finite=False)  # theta_0_hat = M'y
    lost = np.eye(d) - Y.T @ M
    away, blur = (lost * centre) @ lost.T, np.zeros((d, d))
    for j, client in enumerate(clients):
        rows = M[ends[j] : ends[j + 1]]
        away += rows.T @ (client.spread[:, None] * rows if client.spread.ndim == 1 else client.spread @ rows)
        blur += (client.kind.noise2 / client.kind.n) * (rows.T @ rows)
    return Shared(away, blur, lambda j, _: M[ends[j] : ends[j + 1]].T)


def rank_update(total: Array, columns: Array) -> None:
    """Add columns columns' to the lower triangle, in place: half of the products of a full one."""
    blas.dsyrk(1.0, columns, beta=1.0, c=total, overwrite_c=1, lower=1)


def mirrored(lower: Array) -> Array:
    """A symmetric matrix from its lower triangle."""
    return np.asarray(np.tril(lower) + np.tril(lower, -1).T)


def root(matrix: Array) -> Array:
    """L with LL' = a matrix that may be singular, to rounding: what is added to its diagonal is below that."""
    padded = matrix + np.finfo(float).eps * np.trace(matrix) * np.eye(len(matrix))
    lower, failed = lapack.dpotrf(padded, lower=1, clean=1)
    if failed:
        x, U = np.linalg.eigh(matrix)
        lower = np.asarray(np.linalg.qr((U * np.sqrt(np.maximum(x, 0))).T, mode="r")).T
    return np.asarray(lower)
