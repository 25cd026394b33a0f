"""The two stages on given clients: what they learn together, what each makes of it, and a ridge by
cross-validation.

theta_0 = argmin sum_j p_j/(2 n_j) (X_j b - y_j)' W_j (X_j b - y_j), of minimum norm where there are
several, with K_j = X_j X_j'/n_j and W = I for Average (param-fedavg), (I - alpha K)^2 for Meta
(param-maml), and (I + K/lambda)^{-1} for
Moreau: what is left of param-prox once the personal models are minimised out.

A client stage filters its residuals along the axes of its own samples: theta_i = b + V diag((1 -
P(x))/s) U'(y - X b), X = U diag(s) V', x = s^2/n, P being what the stage keeps; a ridge
(param-perridge) needs no axes.

Generalised cross-validation finds a common ridge without a model of how clients differ. A client's
residuals e are about the shared model of all others (theory: with its own samples in, the curve is
too low by O(1/m)), and GCV_i(lambda) = (|(I - A)e|^2/n) / (1 - tr A/n)^2, A = X(X'X + n
lambda)^{-1}X', estimates its test error with that ridge. One client's curve is noisy: their mean
chooses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize
from numpy.typing import NDArray

from fedasym.algorithms.stages import ClientStage, Objective, ServerStage
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array
from fedasym.exact.clients import RANK, Client, triangular_factor

# above this share of the curvature, a ridge makes Cholesky accurate to 10 digits; below, singular
# values serve
FIRM = 1e-6
# the condition of a triangular factor above which single precision, of seven digits, has four left
FIRM_FACTOR = 1e-3
SLIGHT = 0.5  # rows' absolute sums of a leverage that others have seen well
LEVERAGE = 1e-8  # a direction whose leverage is this close to one was seen by a single client
BATCH = 256  # rows that wait for one factorisation
COLUMNS = 128  # of a triangular matrix at once: what lies below is hardly multiplied

Rows = tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class SharedSolution:
    """The minimum-norm minimiser theta of |A b - c|^2, and a factor B of (A'A)^+ = B B'."""

    theta: Array
    factor: Array  # the triangular R with A'A = R'R at full rank, B = R^{-1}; otherwise B itself
    full: bool

    @classmethod
    def of(cls, stacked: Array, outputs: int | None = None) -> SharedSolution:
        """Solve from the (triangular factor of the) rows [A c]; outputs: columns of c, if many."""
        d = stacked.shape[1] - (outputs or 1)
        ends = slice(d, None) if outputs else d
        R, z = stacked[:d, :d], stacked[:d, ends]
        if len(stacked) >= d and scipy.linalg.lapack.dgecon(R, np.abs(R).sum(0).max())[0] > RANK:
            return cls(scipy.linalg.solve_triangular(R, z), R, True)
        U, s, Vt = np.linalg.svd(stacked[:, :d], full_matrices=False)
        kept = s > RANK * s[0]
        U = U[:, kept]
        s = s[kept]
        Vt = Vt[kept]
        return cls(Vt.T @ scale_rows(1 / s, U.T @ stacked[:, ends]), Vt.T / s, False)

    @property
    def rank(self) -> int:
        """How many directions the pooled samples determine."""
        return int(self.factor.shape[1])

    def root(self, A: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """A B, in the precision of A, or of `out`, where it is to be."""
        out = np.empty((len(A), self.rank), dtype=A.dtype) if out is None else out
        B = (self.inverse if self.full else self.factor).astype(A.dtype, copy=False)
        if not self.full:
            return np.asarray(np.matmul(A, B, out=out))
        for first in range(0, self.rank, COLUMNS):  # B is triangular: above `last` alone
            last = first + COLUMNS
            np.matmul(A[:, :last], B[:last, first:last], out=out[:, first:last])
        return out

    def row_lengths(self, A: NDArray[Any]) -> Array:
        """|R a|^2 for each row a of A, R being the triangular factor; in the precision of A."""
        R = self.factor.astype(A.dtype, copy=False)
        lengths = np.zeros(len(A))
        room = np.empty((len(A), COLUMNS), dtype=A.dtype)
        for first in range(0, self.rank, COLUMNS):
            some = R[first : first + COLUMNS, first:]
            block = np.matmul(A[:, first:], some.T, out=room[:, : len(some)])
            lengths += np.einsum("ij,ij->i", block, block)
        return lengths

    @cached_property
    def firm(self) -> bool:
        """Whether products with the factor keep four digits in single precision."""
        return self.full and scipy.linalg.lapack.dtrcon(self.factor)[0] > FIRM_FACTOR

    @cached_property
    def inverse(self) -> Array:
        """R^{-1} at full rank: a product with it takes half the time of a solution.

        NumPy multiplies by blocks of its columns, and lets other threads work meanwhile; SciPy's
        triangular products, a little faster, do not.
        """
        return np.asarray(scipy.linalg.lapack.dtrtri(self.factor)[0])

    def pull(self, A: Array) -> Array:
        """A (A'A)^+ of the pool, for rows A of one client."""
        AB = self.root(A)
        return np.asarray(
            scipy.linalg.solve_triangular(self.factor, AB.T).T if self.full else AB @ self.factor.T
        )

    def left_out_residuals(self, A: Array, e: Array) -> Array:
        """Residuals c - A theta^(-i) of one client's rows about the minimum-norm fit to all the
        others, without a refit, from those about the fit to all, e = c - A theta.

        (I - H)^{-1} e, H = A (A'A)^+ A'. Where H has eigenvalue one (Z), the others never saw that
        direction; as the limit of a vanishing ridge, those residuals Z x minimise |theta -
        theta^(-i)|.
        """
        AB = self.root(A)
        quick = leave_out(AB, e)
        if quick is not None:
            return quick
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


def leave_out(AB: NDArray[Any], e: Array) -> Array | None:
    """`left_out_residuals` where a client's leverage H is slight, so that single precision serves
    for AB: errors of H are then far below one. None elsewhere.
    """
    H = AB @ AB.T
    if np.abs(H).sum(0).max(initial=0) > SLIGHT:
        return None
    return np.asarray(np.linalg.solve(np.eye(len(e)) - H, e))


def fit_shared(
    server: ServerStage,
    clients: Sequence[Client],
    weights: Array,
    ridges: Array | None = None,
    shared_ridges: Array | None = None,
) -> SharedSolution:
    """The shared model of a server stage; Moreau needs clients' ridges (clients[, unknowns]).

    shared_ridges: by unknown, on the shared model itself.
    """

    def rows(place: int) -> Rows:
        client = clients[place]
        scale = np.sqrt(weights[place] / clients[place].n)
        A, c = weigh_rows(server, client, np.inf if ridges is None else ridges[place])
        return scale * A, scale * c

    everyone = (rows(place) for place in range(len(clients)))
    several = clients[0].y.shape[1:]
    rows_of_all = chain(everyone, zero_rows(shared_ridges, several))
    return SharedSolution.of(stack_triangle(rows_of_all), *several)


def zero_rows(shared_ridges: Array | None, several: tuple[int, ...] = ()) -> Iterator[Rows]:
    """A ridge on the shared model, by unknown, as if so many samples had said zero."""
    if shared_ridges is not None:
        yield np.diag(np.sqrt(shared_ridges)), np.zeros((shared_ridges.size, *several))


def scale_rows(factors: Array, rows: Array) -> Array:
    """Rows, or single numbers, each times its factor."""
    return factors[:, None] * rows if rows.ndim == 2 else factors * rows


def stack_triangle(rows: Iterable[Rows]) -> Array:
    """All rows [A c] one client after the other, as their triangular factor once they outnumber the
    unknowns.

    Unlike sums of X'X this does not square the condition number, and with fewer rows than unknowns
    nothing is lost.
    """
    waiting: list[Array] = []
    height = unknowns = 0
    for A, c in rows:
        waiting.append(np.column_stack([A, c]))
        unknowns = A.shape[1]
        height += len(c)
        if height >= 2 * waiting[0].shape[1] + BATCH:
            waiting = [triangular_factor(np.vstack(waiting))]
            height = len(waiting[0])
    stacked = np.vstack(waiting)
    return triangular_factor(stacked) if len(stacked) >= unknowns else stacked


def weigh_rows(server: ServerStage, client: Client, ridge: float | Array) -> Rows:
    """W^{1/2} X and W^{1/2} y; with a ridge per unknown W = (I + X diag(1/lambda) X'/n)^{-1}."""
    X, y, n = client.X, client.y, client.n
    joint = server.linear_objective is Objective.JOINT
    if server.look_ahead is not None:
        K = X @ X.T / n
        return X - server.look_ahead * K @ X, y - server.look_ahead * K @ y
    if joint and np.ndim(ridge):
        reach = X / np.sqrt(ridge)  # 0 along unknowns whose ridge is infinite
        return whiten_client(np.eye(len(y)) + reach @ reach.T / n, client)
    if server.weighs_alike or (joint and not np.isfinite(ridge)):
        return X, y  # with infinite penalty the personal models are the shared one
    if joint and ridge >= FIRM * np.vdot(X, X) / n:
        return whiten_client(np.eye(len(y)) + X @ X.T / (n * ridge), client)
    U, s, Vt = client.axes  # by the stage's weight along the client's axes, W = b(K)
    half = 1 / np.sqrt(1 + s**2 / (n * ridge)) if joint else half_weight(server, s**2 / n, ridge)
    return (half * s)[:, None] * Vt, scale_rows(half, U.T @ y)


def whiten_client(V: Array, client: Client) -> Rows:
    """V^{-1/2} X and V^{-1/2} y."""
    both = np.column_stack([client.X, client.y])
    both = scipy.linalg.solve_triangular(scipy.linalg.cholesky(V, lower=True), both, lower=True)
    d = client.X.shape[1]
    return both[:, :d], both[:, d:].reshape(client.y.shape)


def half_weight(server: ServerStage, x: Array, ridge: float | Array) -> Array:
    """The square root of b(x), at the given ridge where the stage has one."""
    weight = np.broadcast_to(server.at(ridge=one_ridge(ridge)).weight(x), x.shape)
    if not np.all(weight >= 0):
        raise InvalidInput(
            f"{type(server).__name__} weighs an eigenvalue of {x[np.argmin(weight)]:.3g} with"
            f" {weight.min():.3g}: below 0 the shared model is not a minimum; give a smaller step"
            " or other settings"
        )
    return np.sqrt(weight)


def one_ridge(ridge: float | Array) -> float:
    """For formulas with one ridge: it, or that of the mean variance of all unknowns."""
    with np.errstate(divide="ignore"):
        return float(ridge if np.ndim(ridge) == 0 else 1 / np.mean(1 / np.asarray(ridge)))


LEAST_AXIS = 1e-12  # of the mean curvature: a ridge below this, beside others above it, is none


def fit_personal(
    stage: ClientStage,
    client: Client,
    shared: Array,
    ridge: float | Array,
    personal: NDArray[np.bool_] | None = None,
) -> Array:
    """The client's model; `ridge`, one or one per unknown, is for stages with a squared penalty
    alone.

    personal: unknowns that the client may change; the others stay as they are shared.
    """
    e = client.y - client.X @ shared
    if personal is not None:
        own = replace(client, X=client.X[:, personal], y=e)
        mine = ridge[personal] if isinstance(ridge, np.ndarray) and ridge.ndim else ridge
        moved = shared.copy()
        moved[personal] += fit_personal(stage, own, np.zeros_like(shared[personal]), mine)
        return moved
    if stage.linear_objective is Objective.SHARED:
        return shared
    if (way := stage.own_stage) is not None:
        alone = fit_personal(way, client, np.zeros_like(shared), way.get("ridge") or 0.0)
        return np.asarray(shared + stage.get("mixture") * (alone - shared))
    if stage.linear_objective is Objective.PENALISED:
        return shared + shrink_residuals(client, e, ridge)
    stage = stage.at(ridge=one_ridge(ridge))
    x = client.axes[1] ** 2 / client.n
    stage.check_largest(float(x[0]), f"on client {client.name!r}")
    return shared + learn_along_axes(client, e, np.broadcast_to(stage.learn(x), x.shape))


def interpolate_residuals(client: Client, e: Array) -> Array:
    """X^+ e: the shortest way to the samples, or to their least squares."""
    return learn_along_axes(client, e, np.ones_like(client.axes[1]))


def shrink_residuals(client: Client, e: Array, ridge: float | Array) -> Array:
    """X'(XX' + n lambda)^{-1} e; no ridge interpolates, an infinite one stays.

    With a ridge per unknown, the same of X diag(lambda)^{-1/2} and ridge 1.
    """
    X, n = client.X, client.n
    if isinstance(ridge, np.ndarray) and ridge.ndim:
        reach = 1 / np.sqrt(np.maximum(ridge, LEAST_AXIS * np.vdot(X, X) / n / X.shape[1]))
        return scale_rows(reach, shrink_residuals(replace(client, X=X * reach), e, 1.0))
    if ridge == 0:
        return interpolate_residuals(client, e)
    if np.isinf(ridge):
        return np.zeros((X.shape[1], *e.shape[1:]))
    if (
        ridge < FIRM * np.vdot(X, X) / n
    ):  # the factor would lose e / ridge where rows depend on each other
        x = client.axes[1] ** 2 / n
        return learn_along_axes(client, e, x / (x + ridge))
    gram = X @ X.T + n * ridge * np.eye(len(e))
    return np.asarray(X.T @ scipy.linalg.cho_solve(scipy.linalg.cho_factor(gram), e))


def learn_along_axes(client: Client, e: Array, learned: Array) -> Array:
    """V (learned/s) U'e: the way to the samples, of which each axis has learned a share."""
    U, s, Vt = client.axes
    share = np.divide(learned, s, out=np.zeros_like(s), where=s > 0)
    return np.asarray(Vt.T @ scale_rows(share, U.T @ e))


# a ridge this far beyond the mean curvature of the samples is none, or infinite
RIDGE_SPAN = np.log(1e6)
RIDGE_POINTS = 25


def cross_validate_ridge(
    server: ServerStage,
    clients: Sequence[Client],
    weights: Array,
    shared_ridges: Array | None = None,
) -> float:
    """The ridge of lowest mean GCV: a grid over log lambda, then a search around its best."""
    curvature = np.log(np.mean([np.vdot(c.X, c.X) / (c.n * len(c.X)) for c in clients]) or 1.0)
    fixed = (
        None
        if "ridge" in server.settings()
        else residuals_about_others(server, clients, weights, np.inf, shared_ridges)
    )

    def score(log_ridge: float) -> float:
        ridge = float(np.exp(log_ridge))
        left = fixed
        if left is None:
            left = residuals_about_others(server, clients, weights, ridge, shared_ridges)
        return float(
            np.mean([gcv_score(client, e, ridge) for client, e in zip(clients, left, strict=True)])
        )

    grid = np.linspace(curvature - RIDGE_SPAN, curvature + RIDGE_SPAN, RIDGE_POINTS)
    place = int(np.argmin([score(at) for at in grid]))
    low, high = grid[max(place - 1, 0)], grid[min(place + 1, RIDGE_POINTS - 1)]
    best = scipy.optimize.minimize_scalar(
        score, bounds=(low, high), method="bounded", options={"xatol": 1e-4}
    ).x
    return float(np.exp(min(best, grid[place], key=score)))


def residuals_about_others(
    server: ServerStage,
    clients: Sequence[Client],
    weights: Array,
    ridge: float,
    shared_ridges: Array | None = None,
) -> list[Array]:
    """U'e of every client: residuals about the others' shared model, along its samples' axes."""
    if not server.shares:
        return [client.axes[0].T @ client.y for client in clients]
    halves = [
        np.sqrt(p / client.n) * half_weight(server, client.axes[1] ** 2 / client.n, ridge)
        for client, p in zip(clients, weights, strict=True)
    ]

    def rows(place: int) -> tuple[Array, Array]:
        (U, s, Vt) = clients[place].axes
        half = halves[place]
        return (half * s)[:, None] * Vt, half * (U.T @ clients[place].y)

    everyone = (rows(place) for place in range(len(clients)))
    pool = SharedSolution.of(stack_triangle(chain(everyone, zero_rows(shared_ridges))))
    return [
        pool.left_out_residuals(A, c - A @ pool.theta) / half
        for half, (A, c) in zip(halves, map(rows, range(len(clients))), strict=True)
    ]


def gcv_score(client: Client, e: Array, ridge: float) -> float:
    """Generalised cross-validation of one client from its residuals along its axes."""
    k = ridge / (ridge + client.axes[1] ** 2 / client.n)
    n = client.n
    return float((((k * e) ** 2).sum() + client.rest) / n / ((n - len(k) + k.sum()) / n) ** 2)
