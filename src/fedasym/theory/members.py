"""One client of a finite federation: a newcomer to the shared model, or a member that had a part in
it.

For a newcomer the single-client formulas hold with the energy of the model's error in place of the
displacement's (equation 9).

A member that fine-tunes with or without ridge (RTFA, FTFA) has section 6.4 in closed form, for any
covariances. Given its own samples, the other clients act on the shared model only through diagonal
matrices: Q = sum_j p_j S_j ~ p_i S_i + N, and whatever the others add between two Q^-1 is a
diagonal Y. What is left is a product of resolvents of one sample covariance, which a triangular
linear pencil gives without iteration.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedasym.algorithms.average import Interpolate, Keep
from fedasym.algorithms.penalties import Ridge
from fedasym.algorithms.registry import Algorithm
from fedasym.algorithms.stages import ClientStage
from fedasym.core.numbers import Array
from fedasym.theory.limits import (
    Parts,
    RiskAtRidge,
    Worlds,
    bayes_ridge,
    best_ridge,
    filter_limit,
    interpolant_limit,
    ridge_limit,
    shared_limit,
)
from fedasym.theory.pooled import PooledSquares
from fedasym.theory.roots import find_minima
from fedasym.theory.transforms import kappa, kappa_slope_from, slack, sums_at


def newcomer_risk(
    stage: ClientStage, world: Worlds, ridge: Array | None, bias: Array, noise: Array
) -> RiskAtRidge:
    """A client stage from a shared model whose independent error has this energy by direction."""
    return newcomer_risk_per_atom(
        stage, world, ridge, spread_over_atoms(bias, world), spread_over_atoms(noise, world)
    )


def newcomer_risk_per_atom(
    stage: ClientStage, world: Worlds, ridge: Array | None, shift: Array, blur: Array
) -> RiskAtRidge:
    """The same from energies times shares: `shift` of displacements, `blur` of others' noise."""
    one = np.ones_like(world.r2)
    away = Worlds(one, world.s2, world.gamma, shift, world.spectrum)
    noisy = Worlds(one, np.zeros_like(one), world.gamma, blur, world.spectrum)
    match stage:
        case Keep():
            parts = shared_limit(away)
            extra = shared_limit(noisy)[0]
        case Interpolate():
            parts = interpolant_limit(away)
            extra = interpolant_limit(noisy)[0]
        case Ridge():
            if ridge is None:
                ridge = best_ridge(replace(away, g=shift + blur))
            parts = ridge_limit(away, ridge)
            extra = ridge_limit(noisy, ridge)[0]
        case _:
            return *filter_limit(stage, away, blur), None
    return parts[0], parts[1] + extra, ridge


def spread_over_atoms(energy: Array, world: Worlds) -> Array:
    """Energy times share per atom, zero along atoms that samples cannot see."""
    out = np.zeros((energy.shape[0], world.spectrum.values.size))
    out[:, world.spectrum.seen] = energy * world.spectrum.positive[1]
    return out


CHUNK = 1 << 14  # numbers in one array of a search


@dataclass(frozen=True)
class SquaresMember:
    """One client (of group i) of each federation, and what the others do to its shared model."""

    gamma: Array
    s2: Array
    p: Array
    c: Array
    S: Array  # (P, K)
    N: Array  # (P, K)
    Y: tuple[Array, Array]  # displacement and noise of everyone, between the two Q^-1
    h: Array

    def at(self, rows: NDArray[np.intp]) -> SquaresMember:
        """The members of these federations, any of them several times."""
        Y = self.Y[0][rows], self.Y[1][rows]
        return SquaresMember(
            self.gamma[rows],
            self.s2[rows],
            self.p[rows],
            self.c[rows],
            self.S[rows],
            self.N[rows],
            Y,
            self.h,
        )

    def risk(self, kappa: Array, fitted: Array) -> tuple[Array, Array]:
        """Bias and variance after the ridge whose kappa is given (kappa(0): FTFA; infinite:
        FedAvg).

        `fitted`: kappa' - 1 there, the client's own noise that it fits.

        With P = ridge (S_i + ridge)^-1 the error is P (theta_0_hat - theta_i) + (I - P) S_i^+
        X'noise/n.
        """
        with np.errstate(divide="ignore"):
            a = 1 / kappa
        one = np.ones_like(self.N)
        room = 1 / (1 + fitted)
        bias, noise, shift = (
            self._pencil([a, self.c, self.c, a], [one, self.N, self.N, one], [one, Y, one], room)
            for Y in (*self.Y, self.N)
        )
        first = self._pencil([a, self.c], [one, self.N], [one], None)
        second = self._pencil([a, self.c, a], [one, self.N, one], [one, one], room)
        own = self.s2 * self.gamma * self.p * (2 * first - second - shift)
        return bias, noise + own + self.s2 * fitted

    def _pencil(
        self, random: list[Array], fixed: list[Array], between: list[Array], ends: Array | None
    ) -> Array:
        """tau(Sigma_i D1^-1 U1 D2^-1 ... Dq^-1), D = fixed + (random part ~ A Sigma), equation (17)
        for one sample covariance.

        L^-1 ~ G_k = (C_k + S_k A)^-1 with A^-1 = B^-1 + gamma sum h S G, all upper triangular: each
        entry of A follows from those nearer the diagonal by one linear equation. `ends`: what
        divides the outermost entry if both ends are the client's own resolvent, 1 - gamma df2 =
        1/kappa', which cancels if computed here.
        """
        q = len(random)
        A: dict[tuple[int, int], Array] = {(j, j): random[j] for j in range(q)}
        G = {(j, j): 1 / (fixed[j] + self.S * random[j][:, None]) for j in range(q)}
        W: dict[tuple[int, int], Array] = {}
        for width in range(1, q):
            for first in range(q - width):
                last = first + width
                inner = range(first + 1, last)
                entry = -between[first] if width == 1 else np.zeros_like(self.S)
                left = {j: self._entry(A, between, first, j) for j in inner}
                free = -G[first, first] * (
                    sum((left[j] * G[j, last] for j in inner), entry * G[last, last])
                )
                pair = self.S * G[first, first] * G[last, last]
                known = sum(
                    (A[first, j] * self.gamma * W[j, last] for j in inner),
                    np.zeros_like(self.gamma),
                )
                known = known + random[first] * self.gamma * ((self.S * free) @ self.h)
                room = 1 - random[first] * random[last] * self.gamma * ((self.S * pair) @ self.h)
                if ends is not None and width == q - 1:
                    room = ends
                A[first, last] = -random[last] * known / room
                G[first, last] = free - pair * A[first, last][:, None]
                W[first, last] = (self.S * G[first, last]) @ self.h
        return W[0, q - 1]

    def _entry(
        self, A: dict[tuple[int, int], Array], between: list[Array], row: int, column: int
    ) -> Array:
        random = self.S * A[row, column][:, None]
        return random - between[row] if column == row + 1 else random


def membership(pooled: PooledSquares, i: Array) -> SquaresMember:
    """What a client of group i (an index per federation) sees of others: the module's N and Y."""
    groups, K, c = pooled.groups, pooled.K, pooled.c
    h = groups.h
    rows = np.arange(i.size)
    others = groups.count.copy()
    others[rows, i] -= 1
    S_i = groups.S[rows, i]
    c_i = c[rows, i]
    e_i = groups.e[rows, i]
    p_i, gamma_i = groups.p[rows, i], groups.gamma[rows, i]
    r2_i, s2_i = groups.r2[rows, i], groups.s2[rows, i]
    N = ((others * c)[..., None] * groups.S).sum(1)
    weight = h * K**2
    # tau(A R B R) for diagonal A, B around R = (p_i S_i + N)^-1: the sample covariance S_i adds a
    # rank-one term.
    extra = c_i**2 * gamma_i / (1 - c_i**2 * gamma_i * ((S_i**2 * weight).sum(-1)))
    touch = (groups.S * (S_i * weight)[:, None]).sum(-1)

    def around(Y: Array) -> Array:
        """tau(Sigma_l R Y R) for every group l."""
        straight = (groups.S * (weight * Y)[:, None]).sum(-1)
        return np.asarray(straight + touch * (extra * (S_i * weight * Y).sum(-1))[:, None])

    D = (groups.S * weight[:, None]) @ groups.S.swapaxes(1, 2) + extra[:, None, None] * touch[
        ..., None
    ] * touch[:, None]
    coupling = np.eye(D.shape[1]) - pooled.damping[..., None] * D * others[:, None]

    def total(direct: Array, drive: Array) -> Array:
        y = np.linalg.solve(coupling, (pooled.damping * (direct + around(drive)))[..., None])[
            ..., 0
        ]
        return np.asarray(drive + ((others * y)[..., None] * groups.S).sum(1))

    shifted = ((others * groups.r2 * c**2)[..., None] * groups.e * groups.S**2).sum(1)
    drive = shifted + r2_i[:, None] * N**2 * e_i
    mine = r2_i[:, None] * (groups.S * (h * e_i * (1 - 2 * K * N))[:, None]).sum(-1)
    loud = (s2_i * gamma_i * p_i)[:, None] * ((groups.S * (h * K)[:, None]).sum(-1) - around(N))
    Y = total(pooled.direct[0] + mine, drive), total(pooled.direct[1] + loud, np.zeros_like(drive))
    return SquaresMember(gamma_i, s2_i, p_i, c_i, S_i, N, Y, h)


def averaged_member(
    stage: ClientStage, world: Worlds, ridge: Array | None, pooled: PooledSquares, i: Array
) -> RiskAtRidge:
    """FedAvg, FTFA and RTFA for a member."""
    if isinstance(stage, Keep):
        return *pooled.member(i), None
    member = membership(pooled, i)
    if isinstance(stage, Interpolate):
        return *member_risk_at(member, world, np.zeros_like(world.gamma)), None
    kept = pooled.member(i)
    best = best_member_ridge(member, world) if ridge is None else ridge
    bias, variance = member_risk_at(member, world, best)
    if ridge is None:
        best = np.where(kept[0] + kept[1] <= bias + variance, np.inf, best)
    endless = np.isinf(best)
    return np.where(endless, kept[0], bias), np.where(endless, kept[1], variance), best


def member_risk_at(member: SquaresMember, world: Worlds, ridge: Array) -> Parts:
    """A member's risk at a ridge; ridge 0 with enough own samples is plain least squares."""
    k = kappa(ridge, world.gamma, world.spectrum)
    own = k == 0
    k = np.where(own | np.isinf(k), 1.0, k)
    at = sums_at(k, world.spectrum)
    bias, variance = member.risk(
        k, world.gamma * at.df2 * kappa_slope_from(at, k, ridge, world.gamma, world.spectrum)
    )
    alone = interpolant_limit(world)
    return np.where(own, alone[0], bias), np.where(own, alone[1], variance)


def best_member_ridge(member: SquaresMember, world: Worlds) -> Array:
    """Minimise a member's risk over kappa, where it is explicit, from ridge 0 (FTFA) upwards."""
    spectrum = world.spectrum
    s, _ = spectrum.positive
    start = kappa(np.zeros_like(world.gamma), world.gamma, spectrum)
    bayes = bayes_ridge(world)
    finite = np.where(np.isfinite(bayes), bayes, 0)
    low = np.log(1e-8 * np.minimum(s.min(), np.where(finite > 0, finite, s.min())))
    high = np.log(1e6 * (s.max() * (1 + world.gamma) + finite))

    def risk(member: SquaresMember, k: Array, gamma: Array) -> Array:
        at = sums_at(k, spectrum)
        growth = 1 / (slack(at, gamma, spectrum) + gamma * at.mixed)
        return np.asarray(sum(member.risk(k, gamma * at.df2 * growth)))

    def loss(u: Array) -> Array:
        return risk(member, start + np.exp(u), world.gamma)

    def losses(u: Array) -> Array:
        """Of rows of points, as many at a time as fit the cache."""
        found = []
        for some in np.array_split(u, int(np.ceil(u.size * s.size / CHUNK))):
            rows = np.tile(np.arange(u.shape[1], dtype=np.intp), len(some))
            k = (start + np.exp(some)).ravel()
            found.append(risk(member.at(rows), k, world.gamma[rows]).reshape(some.shape))
        return np.concatenate(found)

    u = find_minima(loss, low, high, int(np.clip(4 * np.max(high - low), 64, 400)), several=losses)
    k = start + np.exp(u)
    ridge = k * slack(sums_at(k, spectrum), world.gamma, spectrum)
    ridge = np.where(
        sum(member_risk_at(member, world, np.zeros_like(ridge))) <= loss(u), 0.0, ridge
    )
    return np.where(np.isinf(bayes), np.inf, ridge)


def undetermined_risk(algorithm: Algorithm, world: Worlds, ridge: Array | None) -> RiskAtRidge:
    """Where samples just match unknowns no shared model helps, only enough of a client's own."""
    endless = np.full(world.r2.shape, np.inf)
    if isinstance(algorithm.personalise, Interpolate):
        own = world.gamma * world.spectrum.rank < 1
        alone = interpolant_limit(world)
        return np.where(own, alone[0], endless), np.where(own, alone[1], endless), None
    return endless, endless, bayes_ridge(world) if ridge is None else ridge
