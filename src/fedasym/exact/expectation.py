"""Every algorithm's risk given the features: expectations are traces, so nothing is sampled.

The shared model is theta_0_hat = Q^-1 sum_j p_j [A_j theta_j + b(S_j) X_j'noise_j/n_j] with A_j =
S_j b(S_j) and Q = sum_j p_j A_j. Clients are streamed: sums of d x d matrices are all that is kept
of them.

A client keeps P = I - q(S_i) S_i of the shared model's error and adds q(S_i) X_i'noise_i/n_i. In
the eigenbasis of S_i, which has n of d directions, its bias and its variance are quadratic forms in
the vector q, whatever the client stage.

Beside it, expected errors of every algorithm given the clients' own features: no limit, no draw of
samples.

With y_j = X_j (beta + u_j) + noise, u_j ~ N(0, sigma^2 D), an algorithm's model of client j is b +
F_j X_j'(y_j - X_j b), b the shared model sum_i B^{-1} X_i'W_i y_i, B = sum B_i, B_i = X_i'W_i X_i.
In units of sigma^2 its error has the covariance

    T C T' + T D T' + F S F - (T B^{-1} B_j (D T' - F) + its transpose),    T = I - F S,  S =
    X_j'X_j,

C = B^{-1} (sum_i X_i'W_i^2 X_i + B_i D B_i) B^{-1} that of b itself: the shared error, the client's
own displacement, the noise that it fits, and what its own samples have to do with b. All of it
comes from the clients' sums of products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, cho_factor, cho_solve, lapack

from fedasym.algorithms import Algorithm
from fedasym.algorithms.methods import MAML_STEP
from fedasym.algorithms.paper import AVERAGE
from fedasym.algorithms.stages import ClientStage, Objective, ServerStage
from fedasym.core.errors import InvalidInput, MissingNorm
from fedasym.core.numbers import Array
from fedasym.exact.clients import ClientSums
from fedasym.exact.draws import ClientKind, DrawnClient

SHRUNK = (
    "the shared model shrinks towards zero and the length of the optimum matters: give norm, of at"
    " least radius"
)


@dataclass(frozen=True, eq=False)
class Pull:
    """How hard clients pull at the shared model, p_j b_j(S_j); p and ridge: one entry per kind.

    shared_ridge: how hard the shared model is pulled towards zero.
    """

    server: ServerStage
    p: Array
    ridge: Array | None = None
    shared_ridge: float = 0.0

    def __call__(self, client: DrawnClient) -> Array:
        """The weight p b(x) of each eigenvalue."""
        place = client.kind.place
        server = self.server if self.ridge is None else self.server.at(ridge=self.ridge[place])
        return np.asarray(self.p[place] * server.weight(client.x))


def pull_of(server: ServerStage, p: Array, ridge: Array | None, shared_ridge: float = 0.0) -> Pull:
    """The pull of a server stage; an endless ridge ties all to the shared model, the average."""
    if "ridge" not in server.settings() or ridge is None:
        return Pull(server, p, None, shared_ridge)
    if server.linear_objective is Objective.JOINT and bool(np.all(np.isinf(ridge))):
        return Pull(AVERAGE, p, None, shared_ridge)
    return Pull(server, p, ridge, shared_ridge)


@dataclass(frozen=True, eq=False)
class SharedCovariance:
    """Covariance of theta_0_hat - theta_0 by displacements and noise, and its response to a client.

    response(j, client) is R in theta_0_hat = R (Y theta_j + noise_j/sqrt n) + what the others say.
    lost: what it loses of theta_0, where it loses any.
    """

    away: Array
    blur: Array
    response: Callable[[int, DrawnClient], Array]
    lost: Array | None = None


@dataclass(frozen=True, eq=False)
class PullSums:
    """Q, sum_j p^2 A E A and sum_j p^2 b^2 S noise^2/n for one server stage, as lower triangles.

    None: it follows from the others when all clients are of one kind. The noise of Average is Q
    again, and x/(x+l) = [x^2/(x+l)^2]/l + x/(x+l)^2 gives the Q of Moreau.
    """

    pull: Pull
    kinds: Sequence[ClientKind]
    Q: Array | None
    away: Array
    blur: Array | None
    room: Array  # for one client's scaled rows

    @classmethod
    def empty(cls, pull: Pull, kinds: Sequence[ClientKind]) -> PullSums:
        """Before the first client."""
        d = kinds[0].s.size
        first = kinds[0]
        alike = len(kinds) == 1
        Q, away, blur = (np.zeros((d, d), order="F") for _ in range(3))
        room = np.empty((max(min(kind.n, d) for kind in kinds), d))
        firm = (
            pull.server.linear_objective is Objective.JOINT
            and pull.ridge is not None
            and 0 < pull.ridge[0] < np.inf
            and bool(first.spread)
            and first.noise2 > 0
        )
        if alike and pull.server.weighs_alike:
            return cls(pull, kinds, Q, away, None, room)
        return cls(pull, kinds, None if alike and firm else Q, away, blur, room)

    def add(self, client: DrawnClient) -> None:
        """One more client."""
        pull = self.pull(client)
        kind = client.kind
        if self.Q is not None:
            self._add(self.Q, np.sqrt(pull), client)
        if self.blur is not None and kind.noise2 > 0:
            self._add(self.blur, np.sqrt(kind.noise2 / kind.n) * pull, client)
        if kind.spread is None:
            rows = np.multiply(pull[:, None], client.Y, out=self.room[: client.x.size])
            rank_update(
                self.away, blas.dtrmm(1.0, matrix_root(client.spread), rows.T, side=1, lower=1)
            )
        elif kind.spread > 0:
            self._add(self.away, np.sqrt(client.spread) * pull, client)

    def _add(self, total: Array, scale: Array, client: DrawnClient) -> None:
        rank_update(total, np.multiply(scale[:, None], client.Y, out=self.room[: client.x.size]).T)

    def shared_covariance(self) -> SharedCovariance:
        """The shared model, once every client is in."""
        first, p = self.kinds[0], self.pull.p[0]
        Q, blur = self.Q, self.blur
        if (
            Q is None
            and blur is not None
            and self.pull.ridge is not None
            and first.spread is not None
        ):
            Q = (
                self.away / (first.spread * self.pull.ridge[0]) + blur * (first.n / first.noise2)
            ) / p
        elif Q is not None and blur is None:
            blur = (first.noise2 / first.n * p) * Q
        assert Q is not None
        assert blur is not None
        away = self.away
        if (mu := self.pull.shared_ridge) > 0:
            if first.centre is None:
                raise InvalidInput(SHRUNK)
            Q = Q + mu * np.eye(len(Q))
            away = away + np.diag(mu**2 * first.centre)
        try:
            factor = cho_factor(Q, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            raise InvalidInput(
                "the drawn samples do not determine the shared model: give more clients"
            ) from None

        def sandwich(middle: Array) -> Array:
            """Q^-1 middle Q^-1."""
            half = cho_solve(factor, mirror_lower(middle), check_finite=False)
            return np.asarray(cho_solve(factor, half.T, overwrite_b=True, check_finite=False))

        def response(_: int, client: DrawnClient) -> Array:
            return np.asarray(
                cho_solve(
                    factor, client.Y.T * self.pull(client), overwrite_b=True, check_finite=False
                )
            )

        lost = None
        if self.pull.shared_ridge > 0:
            lost = self.pull.shared_ridge * cho_solve(factor, np.eye(len(Q)), check_finite=False)
        return SharedCovariance(sandwich(away), sandwich(blur), response, lost)


def shared_interpolant(clients: Sequence[DrawnClient]) -> SharedCovariance:
    """Fewer samples than unknowns: each server stage finds the minimum-norm interpolant (6.2).

    It loses what theta_0 has outside the span of the samples, so the energy of theta_0 counts.
    """
    d, centre = clients[0].kind.s.size, clients[0].kind.centre
    if centre is None:
        raise InvalidInput(f"the pooled samples are fewer than the unknowns, so {SHRUNK}")
    Y = np.vstack([client.Y for client in clients])
    ends = np.cumsum([0, *(client.x.size for client in clients)])
    # theta_0_hat = M'y
    M = cho_solve(cho_factor(Y @ Y.T, lower=True, check_finite=False), Y, check_finite=False)
    lost = np.eye(d) - Y.T @ M
    away = (lost * centre) @ lost.T
    blur = np.zeros((d, d))
    for j, client in enumerate(clients):
        rows = M[ends[j] : ends[j + 1]]
        away += rows.T @ (
            client.spread[:, None] * rows if client.spread.ndim == 1 else client.spread @ rows
        )
        blur += (client.kind.noise2 / client.kind.n) * (rows.T @ rows)
    return SharedCovariance(away, blur, lambda j, _: M[ends[j] : ends[j + 1]].T, lost)


def rank_update(total: Array, columns: Array) -> None:
    """Add columns columns' to the lower triangle, in place: half of the products of a full one."""
    blas.dsyrk(1.0, columns, beta=1.0, c=total, overwrite_c=1, lower=1)


def mirror_lower(lower: Array) -> Array:
    """A symmetric matrix from its lower triangle."""
    return np.asarray(np.tril(lower) + np.tril(lower, -1).T)


def matrix_root(matrix: Array) -> Array:
    """L with LL' = a matrix that may be singular, up to what rounding adds to its diagonal."""
    padded = matrix + np.finfo(float).eps * np.trace(matrix) * np.eye(len(matrix))
    lower, failed = lapack.dpotrf(padded, lower=1, clean=1)
    if failed:
        x, U = np.linalg.eigh(matrix)
        lower = np.asarray(np.linalg.qr((U * np.sqrt(np.maximum(x, 0))).T, mode="r")).T
    return np.asarray(lower)


@dataclass(frozen=True, eq=False)
class Form:
    """constant + linear'q + q'square q; `square` is a vector where the form is diagonal."""

    constant: float
    linear: Array
    square: Array

    def __call__(self, q: Array) -> float:
        """Its value."""
        return float(
            self.constant
            + (self.linear + (self.square * q if self.square.ndim == 1 else self.square @ q)) @ q
        )


Forms = tuple[Form, Form]  # bias, variance


def learned_share(stage: ClientStage, x: Array, ridge: float | None) -> Array:
    """q(x) = (1 - P(x))/x, what a client stage makes of its own samples."""
    if stage.linear_objective is Objective.PENALISED:
        assert ridge is not None
        if np.isinf(ridge):
            return np.zeros_like(x)
        if ridge <= -x[0]:
            raise InvalidInput(
                f"ridge is {ridge:g}: a drawn client has the eigenvalue {x[0]:.3g}, and the ridge"
                " must stay above minus that; give a larger ridge"
            )
        return 1 / (x + ridge)
    stage = stage.at(ridge=ridge)
    stage.check_largest(float(x.max()), "on a drawn client")
    return np.asarray(np.broadcast_to(stage.learn(x), x.shape) / x)


def stage_risk(
    stage: ClientStage,
    client: DrawnClient,
    forms: Forms,
    ridge: float | None,
    shared: SharedCovariance | None = None,
    j: int | None = None,
    mixture: float | None = None,
) -> tuple[float, float]:
    """Bias and variance of a client stage from what the client makes of the shared model.

    A mixture of the shared and the client's own model needs the shared one, too, and j, a member's
    number; its weight is the best for this client unless the stage, or `mixture`, says one.
    """
    own = stage.own_stage
    if own is None:
        q = learned_share(stage.fill_missing(ridge=ridge), client.x, ridge)
        return forms[0](q), forms[1](q)
    if shared is None or client.kind.optimum is None:
        raise MissingNorm
    q = learned_share(own, client.x, own.get("ridge"))
    nothing = np.zeros_like(q)
    parts = [[form(nothing) for form in forms], [form(q) for form in alone_forms(client)]]
    parts.append(list(common_risk(client, shared, j, q)))
    a = stage.get("mixture") if mixture is None else mixture
    if a is None:
        A, B, C = (sum(each) for each in parts)
        a = float(np.clip((A - C) / (A + B - 2 * C), 0, 1)) if A + B - 2 * C > 0 else 0.0
    weights = ((1 - a) ** 2, a**2, 2 * a * (1 - a))
    found = [sum(w * each[i] for w, each in zip(weights, parts, strict=True)) for i in (0, 1)]
    return found[0], found[1]


def common_risk(
    client: DrawnClient, shared: SharedCovariance, j: int | None, q: Array
) -> tuple[float, float]:
    """What the errors of the shared model and of the client's own, Y'q(Y theta + noise), have in
    common: tr Sigma (I - R Y) E P + tr Sigma lost E_0 P, and the client's own noise in both.
    """
    s, E, Y = client.kind.s, client.kind.shift, client.Y
    P = np.eye(s.size) - (Y.T * q) @ Y
    bias = float(s @ (E * np.diag(P)))
    noise = 0.0
    if j is not None:
        R = shared.response(j, client)
        bias -= float(np.sum((s[:, None] * R) * (P @ client.shifted_rows.T)))
        noise = (
            client.kind.noise2
            / client.kind.n
            * float(diagonal_of_product(R.T, client.scaled_rows) @ q)
        )
    if shared.lost is not None:
        assert client.kind.centre is not None
        bias += float(np.sum((s[:, None] * shared.lost * client.kind.centre) * P))
    return bias, noise


def alone_forms(client: DrawnClient) -> Forms:
    """A client that shares nothing: its error is its optimum."""
    energy = client.kind.optimum
    assert energy is not None
    nothing = np.zeros_like(client.x)
    return shared_error_form(
        client, client.Y * energy, float(client.kind.s @ energy)
    ), variance_form(client, Form(0.0, nothing, nothing), None)


def newcomer_forms(client: DrawnClient, shared: SharedCovariance) -> Forms:
    """A client that took no part in the shared model."""
    s, E, Y = client.kind.s, client.kind.shift, client.Y
    away = shared_error_form(
        client, Y @ shared.away + client.shifted_rows, float(s @ (np.diag(shared.away) + E))
    )
    return away, variance_form(
        client, shared_error_form(client, Y @ shared.blur, float(s @ np.diag(shared.blur))), None
    )


def member_forms(client: DrawnClient, shared: SharedCovariance, j: int) -> Forms:
    """Client j of the federation: its own displacement and noise moved the shared model, by R.

    The displacements' part of the covariance of theta_0_hat - theta_j is away - R Y E - E Y'R' + E.
    """
    s, E, Y, spread = client.kind.s, client.kind.shift, client.Y, client.spread
    R = shared.response(j, client)
    V = Y @ shared.away + (np.eye(len(Y)) - Y @ R) @ client.shifted_rows
    V -= spread[:, None] * R.T if spread.ndim == 1 else spread @ R.T
    trace = s @ (np.diag(shared.away) + E) - 2 * (E @ diagonal_of_product(R, client.scaled_rows.T))
    blur = shared_error_form(client, Y @ shared.blur, float(s @ np.diag(shared.blur)))
    return shared_error_form(client, V, float(trace)), variance_form(client, blur, R)


def shared_error_form(client: DrawnClient, V: Array, trace: float) -> Form:
    """tr(Sigma P B P) with P = I - Y'qY, from V = Y B and tr(Sigma B)."""
    return Form(
        trace, -2 * diagonal_of_product(V, client.scaled_rows), covariance_product(client, V)
    )


def variance_form(client: DrawnClient, blur: Form, R: Array | None) -> Form:
    """The variance: the shared model's noise that is kept, the client's own, and the common part.

    c [tr(Sigma Y'q^2 Y) + 2 tr(Sigma P R q Y)], c = noise^2/n.
    """
    c = client.kind.noise2 / client.kind.n
    metric = client.metric
    linear = blur.linear
    square = blur.square + c * (metric if metric.ndim == 1 else np.diag(np.diag(metric)))
    if R is not None:
        linear = linear + 2 * c * diagonal_of_product(R.T, client.scaled_rows)
        square = square - 2 * c * covariance_product(client, R.T)
    return Form(blur.constant, linear, square)


def covariance_product(client: DrawnClient, V: Array) -> Array:
    """(Y Sigma Y') * (V Y') entry by entry; the diagonal alone where Y Sigma Y' is diagonal."""
    return np.asarray(
        client.metric
        * (diagonal_of_product(V, client.Y) if client.metric.ndim == 1 else V @ client.Y.T)
    )


def diagonal_of_product(first: Array, second: Array) -> Array:
    """The diagonal of first second'."""
    return np.asarray(np.einsum("ij,ij->i", first, second))


RANK = 1e-10  # eigenvalues below this share of the largest are rounding
SHARE = 2**22  # numbers in one batch of clients' matrices


@dataclass(frozen=True, eq=False)
class ErrorSetting:
    """Clients, how they differ, and where their errors are measured.

    ratios: D's diagonal, tau_k^2/sigma^2 by unknown. beta: the shared weights in units of sigma,
    for algorithms that share nothing. moments: of a new sample of each client, (clients, p, p), or
    (p, p) for all. personal: unknowns that a client may change. intercept: whether the last unknown
    is one; a client on its own has it free.
    """

    sums: ClientSums
    ratios: Array
    beta: Array
    moments: Array
    personal: NDArray[np.bool_]
    intercept: bool = False

    def batches(self) -> Iterator[slice]:
        """Clients in parts that fit in memory."""
        each = max(SHARE // self.sums.unknowns**2, 1)
        return (slice(first, first + each) for first in range(0, len(self.sums.counts), each))


@dataclass(frozen=True, eq=False)
class ExpectedErrors:
    """Expected losses above the noise by client, over sigma^2: of members, and of newcomers."""

    member: Array
    new: Array


def expected_errors(algorithm: Algorithm, setting: ErrorSetting) -> ExpectedErrors:
    """The losses of an algorithm; its own ridges are sigma^2/(n_j tau_k^2), the best ones.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((40, 2))
    >>> sums = ClientSums.of(X, X[:, 0], np.repeat(np.arange(4), 10))
    >>> setting = ErrorSetting(sums, np.full(2, 0.5), np.zeros(2), np.eye(2), np.ones(2, bool))
    >>> from fedasym.algorithms import PAPER
    >>> fedavg, pfedme = (
    ...     expected_errors(PAPER[name], setting).member.mean() for name in ("fedavg", "pfedme")
    ... )
    >>> bool(pfedme < fedavg)
    True
    """
    server = algorithm.server.fill_missing(local_step=MAML_STEP)
    shared = None if algorithm.shares_nothing else SharedError(server, setting)
    member, new = [], []
    for part in setting.batches():
        S, n = setting.sums.gram[part], setting.sums.counts[part]
        moments = np.broadcast_to(setting.moments, setting.sums.gram.shape)[part]
        F = client_filters(algorithm, setting, S, n)
        T = np.eye(S.shape[1]) - F @ S
        own = F @ S @ F
        if shared is None:
            spread = np.diag(setting.ratios) + np.outer(setting.beta, setting.beta)
            alone = np.einsum("jkl,jlk->j", moments, T @ spread @ transpose_each(T) + own)
            member.append(alone)
            new.append(alone)
            continue
        D = np.diag(setting.ratios)
        apart = T @ (shared.covariance + D) @ transpose_each(T) + own
        mine = (
            T @ shared.inverse @ weigh_sums(server, setting, S, n)[0] @ (D @ transpose_each(T) - F)
        )
        new.append(np.einsum("jkl,jlk->j", moments, apart))
        less = apart - mine - transpose_each(mine)
        member.append(np.einsum("jkl,jlk->j", moments, less))
    return ExpectedErrors(np.concatenate(member), np.concatenate(new))


def transpose_each(matrices: Array) -> Array:
    """Of each client's matrix."""
    return np.swapaxes(matrices, -1, -2)


def client_filters(algorithm: Algorithm, setting: ErrorSetting, S: Array, n: Array) -> Array:
    """F_j, what a client makes of X_j' residuals: 0, (D^{-1} + S)^{-1}, S^+ or its filter."""
    alone = algorithm.shares_nothing
    stage = algorithm.personalise
    p = S.shape[1]
    if stage.linear_objective is Objective.SHARED:
        return np.zeros_like(S)
    may = np.ones(p, bool) if alone else setting.personal
    if stage.linear_objective is Objective.PENALISED:
        v = setting.ratios + (setting.beta**2 if alone else 0.0)
        root = np.sqrt(np.where(may, v, 0.0))
        return root[:, None] * np.linalg.solve(np.eye(p) + root[:, None] * S * root, np.diag(root))
    if stage.linear_objective is not Objective.OWN:  # (1 - P(x))/x of x = S/n
        mean = np.where(np.outer(may, may), S, 0.0) / n[:, None, None]
        held = stage.fill_missing(ridge=mean_ridges(setting, may, alone, n)[:, None])
        return apply_to_eigenvalues(mean, lambda x: held.learn(x) / x) / n[:, None, None]
    if alone and setting.intercept:
        return free_intercept(S)
    return pseudo_inverses(np.where(np.outer(may, may), S, 0.0))


def mean_ridges(setting: ErrorSetting, may: NDArray[np.bool_], alone: bool, n: Array) -> Array:
    """sigma^2/(n_j tau^2), tau^2 the mean variance of unknowns that may be a client's own."""
    v = (setting.ratios + (setting.beta**2 if alone else 0.0))[may]
    return np.asarray(1 / (n * max(float(v.mean()) if v.size else 0.0, np.finfo(float).tiny)))


def free_intercept(S: Array) -> Array:
    """S^+ for the shortest slopes alone: least squares about the means, then the intercept.

    With W = S_ff - n m m', the features about their means m, slopes are W^+ (X_f'y - m sum y), and
    the intercept is what they leave of the mean label.
    """
    n = S[:, -1, -1]
    m = S[:, -1, :-1] / S[:, -1, -1:]
    within = pseudo_inverses(S[:, :-1, :-1] - n[:, None, None] * m[:, :, None] * m[:, None, :])
    pull = np.einsum("jkl,jl->jk", within, m)
    F = np.empty_like(S)
    F[:, :-1, :-1] = within
    F[:, -1, :-1] = F[:, :-1, -1] = -pull
    F[:, -1, -1] = 1 / n + (m * pull).sum(1)
    return F


def pseudo_inverses(S: Array) -> Array:
    """S^+ of each client; eigenvalues of rounding are 0."""
    return apply_to_eigenvalues(S, lambda x: 1 / x)


def apply_to_eigenvalues(S: Array, function: Callable[[Array], Array]) -> Array:
    """f(S) of each client, on the eigenvalues that are not rounding; 0 along the others."""
    x, axes = np.linalg.eigh(S)
    known = x > RANK * np.maximum(x[:, -1:], np.finfo(float).tiny)
    values = np.where(known, function(np.where(known, x, 1.0)), 0.0)
    return np.asarray((axes * values[:, None, :]) @ transpose_each(axes))


def weigh_sums(
    server: ServerStage, setting: ErrorSetting, S: Array, n: Array
) -> tuple[Array, Array]:
    """B_j = X_j'W X_j and X_j'W^2 X_j; W = I, V^{-1} or b(K), K = X_j X_j'/n_j, times nothing else.

    The shares p_j/n_j are equal where clients count by their samples.
    """
    if server.linear_objective is Objective.POOLED:
        return S, S
    if server.linear_objective is Objective.JOINT:
        root = np.sqrt(np.where(setting.personal, setting.ratios, 0.0))
        R = np.linalg.solve(np.eye(S.shape[1]) + root[:, None] * S * root, root[:, None] * S)
        G = S - (S * root) @ R
        keep = np.eye(S.shape[1]) - (root[:, None] * R)  # (I + D S)^{-1}
        return G, transpose_each(keep) @ S @ keep
    held = server.fill_missing(ridge=mean_ridges(setting, setting.personal, False, n)[:, None])
    W = apply_to_eigenvalues(S / n[:, None, None], held.weight)
    return S @ W, S @ W @ W


def weigh_labels(server: ServerStage, setting: ErrorSetting) -> Array:
    """X_j'W y_j, (clients, p): with B^{-1} times their sum the shared model of given labels."""
    sums = setting.sums
    if server.linear_objective is Objective.POOLED:
        return np.asarray(sums.cross)
    if server.linear_objective is Objective.JOINT:
        v = np.where(setting.personal, setting.ratios, 0.0)
        return np.asarray(
            np.linalg.solve(np.eye(sums.unknowns) + sums.gram * v, sums.cross[:, :, None])[:, :, 0]
        )
    held = server.fill_missing(
        ridge=mean_ridges(setting, setting.personal, False, sums.counts)[:, None]
    )
    W = apply_to_eigenvalues(sums.gram / sums.counts[:, None, None], held.weight)
    return np.asarray(np.einsum("jkl,jl->jk", W, sums.cross))


@dataclass(frozen=True, eq=False)
class SharedError:
    """The shared model of a server stage: B^+ and its error's covariance C, over sigma^2."""

    server: ServerStage
    setting: ErrorSetting

    @cached_property
    def _totals(self) -> tuple[Array, Array]:
        p = self.setting.sums.unknowns
        B = np.zeros((p, p))
        noise = np.zeros((p, p))
        D = np.diag(self.setting.ratios)
        for part in self.setting.batches():
            first, second = weigh_sums(
                self.server,
                self.setting,
                self.setting.sums.gram[part],
                self.setting.sums.counts[part],
            )
            B += first.sum(0)
            noise += (second + first @ D @ first).sum(0)
        return B, noise

    @cached_property
    def inverse(self) -> Array:
        """B^+."""
        return np.asarray(np.linalg.pinv(self._totals[0], hermitian=True), float)

    @cached_property
    def covariance(self) -> Array:
        """C."""
        return np.asarray(self.inverse @ self._totals[1] @ self.inverse)
