"""Expected errors of every algorithm given the clients' own features: no limit, no draw of samples.

With y_j = X_j (beta + u_j) + noise, u_j ~ N(0, sigma^2 D), an algorithm's model of client j is
b + F_j X_j'(y_j - X_j b), b the shared model sum_i B^{-1} X_i'W_i y_i, B = sum B_i, B_i = X_i'W_i X_i. In units of sigma^2 its
error has the covariance

    T C T' + T D T' + F S F - (T B^{-1} B_j (D T' - F) + its transpose),    T = I - F S,  S = X_j'X_j,

C = B^{-1} (sum_i X_i'W_i^2 X_i + B_i D B_i) B^{-1} that of b itself: the shared error, the client's own displacement, the noise
that it fits, and what its own samples have to do with b. All of it comes from the clients' sums of products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedasym.algorithms import Algorithm, Objective
from fedasym.algorithms.meta import MAML_STEP
from fedasym.algorithms.stages import ServerStage
from fedasym.core.arrays import Array
from fedasym.exact.clients import ClientSums

RANK = 1e-10  # eigenvalues below this share of the largest are rounding
SHARE = 2**22  # numbers in one batch of clients' matrices


@dataclass(frozen=True, eq=False)
class ErrorSetting:
    """Clients, how they differ, and where their errors are measured.

    ratios: D's diagonal, tau_k^2/sigma^2 by unknown. beta: the shared weights in units of sigma, for algorithms that share
    nothing. moments: of a new sample of each client, (clients, p, p), or (p, p) for all. personal: unknowns that a client may
    change. intercept: whether the last unknown is one; a client on its own has it free.
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
    """Expected losses above the noise in units of sigma^2, by client: of members of the fit, and of newcomers like them."""

    member: Array
    new: Array


def expected_errors(algorithm: Algorithm, setting: ErrorSetting) -> ExpectedErrors:
    """The losses of an algorithm; its own ridges are sigma^2/(n_j tau_k^2), the best ones.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((40, 2))
    >>> sums = ClientSums.of(X, X[:, 0], np.repeat(np.arange(4), 10))
    >>> setting = ErrorSetting(sums, np.full(2, 0.5), np.zeros(2), np.eye(2), np.ones(2, bool))
    >>> from fedasym.algorithms import PAPER
    >>> fedavg, pfedme = (expected_errors(PAPER[name], setting).member.mean() for name in ("fedavg", "pfedme"))
    >>> bool(pfedme < fedavg)
    True
    """
    server = algorithm.server.filled(local_step=MAML_STEP)
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
            alone = np.einsum("jkl,jlk->j", moments, T @ spread @ transpose_each(T) + own, optimize=True)
            member.append(alone)
            new.append(alone)
            continue
        D = np.diag(setting.ratios)
        apart = T @ (shared.covariance + D) @ transpose_each(T) + own
        mine = T @ shared.inverse @ weigh_sums(server, setting, S, n)[0] @ (D @ transpose_each(T) - F)
        new.append(np.einsum("jkl,jlk->j", moments, apart, optimize=True))
        member.append(np.einsum("jkl,jlk->j", moments, apart - mine - transpose_each(mine), optimize=True))
    return ExpectedErrors(np.concatenate(member), np.concatenate(new))


def transpose_each(matrices: Array) -> Array:
    """Of each client's matrix."""
    return np.swapaxes(matrices, -1, -2)


def client_filters(algorithm: Algorithm, setting: ErrorSetting, S: Array, n: Array) -> Array:
    """F_j, what a client makes of X_j' times its residuals: nothing, (D^{-1} + S)^{-1}, S^+, or by the stage's filter."""
    alone = algorithm.shares_nothing
    stage, p = algorithm.personalise, S.shape[1]
    if stage.objective is Objective.SHARED:
        return np.zeros_like(S)
    may = np.ones(p, bool) if alone else setting.personal
    if stage.objective is Objective.PENALISED:
        v = setting.ratios + (setting.beta**2 if alone else 0.0)
        root = np.sqrt(np.where(may, v, 0.0))
        return root[:, None] * np.linalg.solve(np.eye(p) + root[:, None] * S * root, np.diag(root))
    if stage.objective is not Objective.OWN:  # (1 - P(x))/x of x = S/n
        mean = np.where(np.outer(may, may), S, 0.0) / n[:, None, None]
        return apply_to_eigenvalues(mean, lambda x: stage.learn(x) / x) / n[:, None, None]
    if alone and setting.intercept:
        return free_intercept(S)
    return pseudo_inverses(np.where(np.outer(may, may), S, 0.0))


def free_intercept(S: Array) -> Array:
    """S^+ where the shortest solution is of the slopes alone: least squares about the means, then the intercept.

    With W = S_ff - n m m', the features about their means m, slopes are W^+ (X_f'y - m sum y), and the intercept is what
    they leave of the mean label.
    """
    n, m = S[:, -1, -1], S[:, -1, :-1] / S[:, -1, -1:]
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


def weigh_sums(server: ServerStage, setting: ErrorSetting, S: Array, n: Array) -> tuple[Array, Array]:
    """B_j = X_j'W X_j and X_j'W^2 X_j; W = I, V^{-1} or b(K), K = X_j X_j'/n_j, times nothing else.

    The shares p_j/n_j are equal where clients count by their samples.
    """
    if server.objective is Objective.POOLED:
        return S, S
    if server.objective is Objective.JOINT:
        root = np.sqrt(np.where(setting.personal, setting.ratios, 0.0))
        R = np.linalg.solve(np.eye(S.shape[1]) + root[:, None] * S * root, root[:, None] * S)
        G = S - (S * root) @ R
        keep = np.eye(S.shape[1]) - (root[:, None] * R)  # (I + D S)^{-1}
        return G, transpose_each(keep) @ S @ keep
    W = apply_to_eigenvalues(S / n[:, None, None], server.weight)
    return S @ W, S @ W @ W


def weigh_labels(server: ServerStage, setting: ErrorSetting) -> Array:
    """X_j'W y_j, (clients, p): with B^{-1} times their sum the shared model of given labels."""
    sums = setting.sums
    if server.objective is Objective.POOLED:
        return sums.cross
    if server.objective is Objective.JOINT:
        v = np.where(setting.personal, setting.ratios, 0.0)
        return np.asarray(np.linalg.solve(np.eye(sums.unknowns) + sums.gram * v, sums.cross[:, :, None])[:, :, 0])
    W = apply_to_eigenvalues(sums.gram / sums.counts[:, None, None], server.weight)
    return np.asarray(np.einsum("jkl,jl->jk", W, sums.cross))


@dataclass(frozen=True, eq=False)
class SharedError:
    """The shared model of a server stage: B^+ and the covariance C of its error, in units of sigma^2."""

    server: ServerStage
    setting: ErrorSetting

    @cached_property
    def _totals(self) -> tuple[Array, Array]:
        p = self.setting.sums.unknowns
        B, noise, D = np.zeros((p, p)), np.zeros((p, p)), np.diag(self.setting.ratios)
        for part in self.setting.batches():
            first, second = weigh_sums(self.server, self.setting, self.setting.sums.gram[part], self.setting.sums.counts[part])
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
