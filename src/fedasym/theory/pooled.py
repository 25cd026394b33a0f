"""Finitely many clients, possibly all different: what they learn together, by pooled least squares
and by the BLUP, and what one client makes of it.

The pooled weighted least-squares fit (FedAvg) has equations (14) and (15). Clients come in groups
of identical ones, so that ten thousand cost what their groups cost. Covariances are jointly
diagonal: S[j, k] is the eigenvalue of group j along directions k, whose share is h[k]. All arrays
have a leading axis over independent federations.

pFedMe at its best ridge is the best linear unbiased prediction (BLUP) of the mixed model, the
optimum for finitely many clients: sections 5.4 and 6.3, isotropic displacements. Bias and variance
follow from the envelope theorem: at the optimum, the derivative of the risk with respect to the
noise level is the variance per unit of noise.

One client may be a newcomer to the shared model: the single-client formulas hold with the energy of
the model's error in place of the displacement's (equation 9). Or it is a member that had a part in
it: if it fine-tunes with or without ridge (RTFA, FTFA) it has section 6.4 in closed form, for any
covariances. Given its own samples, the other clients act on the shared model only through diagonal
matrices: Q = sum_j p_j S_j + mu ~ p_i S_i + N, and whatever the others add between two Q^-1 is a
diagonal Y. What is left is a product of resolvents of one sample covariance, which a triangular
linear pencil gives without iteration.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedasym.algorithms.paper import Algorithm
from fedasym.algorithms.stages import ClientStage, Objective
from fedasym.core.errors import NoFormula
from fedasym.core.numbers import Array
from fedasym.theory import (
    CRITICAL,
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
from fedasym.theory.roots import find_minima
from fedasym.theory.transforms import kappa, kappa_slope_from, slack, sums_at


@dataclass(frozen=True)
class Groups:
    """Federations of G groups: (P, G), spectra and energies (P, G, K), directions (K,)."""

    count: Array  # clients in the group
    p: Array  # weight of one client in the pooled objective; count @ p = 1
    gamma: Array
    s2: Array
    r2: Array
    S: Array  # eigenvalues
    e: Array  # energy of the displacement per direction, g/h
    e0: (
        Array | None
        # (P, K) energy of theta_0 per direction; only pooled fits with fewer samples than unknowns
        # need it
    )
    h: Array

    @cached_property
    def underdetermined(self) -> bool:
        """Whether the pooled samples are fewer than the unknowns that samples can see (N < d)."""
        return bool(np.all(self.ratio >= 1))

    @cached_property
    def critical(self) -> NDArray[np.bool_]:
        """Whether pooled samples just match the unknowns, where the shared error is unbounded."""
        return np.asarray(np.abs(self.ratio - 1) < CRITICAL)

    @cached_property
    def ratio(self) -> Array:
        """gN: unknowns that samples can see, per pooled sample, of each federation."""
        seen = np.any(self.S > 0, axis=1) @ self.h
        return np.asarray(seen / (self.count / self.gamma).sum(1))


def one_group(world: Worlds, clients: Array, centre: Array | None) -> Groups:
    """The federations of equal clients of each world, directions that nobody sees left out."""
    seen = world.spectrum.support
    s, h = world.spectrum.positive
    points = clients.size
    g = np.broadcast_to(world.g[:, seen], (points, s.size))

    def column(values: Array) -> Array:
        return values[:, None]

    return Groups(
        count=column(clients),
        p=column(1 / clients),
        gamma=column(world.gamma),
        s2=column(world.s2),
        r2=column(world.r2),
        S=np.broadcast_to(s, (points, 1, s.size)),
        e=(g / h)[:, None],
        e0=None if centre is None else centre[:, seen] / h,
        h=h,
    )


@dataclass(frozen=True)
class PooledSquares:
    """The pooled fit's deterministic equivalent: sum_j p_j S_j ~ sum_j c_j Sigma_j, and K = (mu +
    sum_j c_j Sigma_j)^-1.

    mu = 0 for least squares; the ridge on the shared model, where it has one; 1 for the
    minimum-norm fit of an underdetermined federation (the limit of a vanishing ridge, in its
    units).
    """

    groups: Groups
    mu: Array  # (P, 1)
    c: Array  # (P, G)
    K: Array  # (P, K)

    @cached_property
    def damping(self) -> Array:
        """Lambda_j = c_j^2 gamma_j."""
        return self.c**2 * self.groups.gamma

    @cached_property
    def coupling(self) -> Array:
        """I - M, M_jl = c_j^2 gamma_j sum h S_j S_l K^2 times the count of l."""
        groups = self.groups
        SK = groups.S * self.K[:, None]
        M = self.damping[..., None] * ((SK * groups.h) @ SK.swapaxes(1, 2)) * groups.count[:, None]
        return np.eye(M.shape[1]) - M

    @cached_property
    def direct(self) -> tuple[Array, Array]:
        """A client's own part by c_j: r^2 (sum g S - 2 c sum g S^2 K), and noise sigma^2."""
        groups = self.groups
        pull = groups.S * (1 - 2 * self.c[..., None] * groups.S * self.K[:, None])
        return groups.r2 * ((groups.e * pull) @ groups.h), groups.s2

    @cached_property
    def drive(self) -> Array:
        """sum_j count r_j^2 c_j^2 e_j S_j^2 by direction (+ cost of shrinking theta_0)."""
        groups = self.groups
        weight = groups.count * groups.r2 * self.c**2
        total = (weight[..., None] * groups.e * groups.S**2).sum(1)
        if np.any(self.mu):
            if groups.e0 is None:
                raise NoFormula(
                    "the pooled samples are fewer than the unknowns, so the shared model shrinks"
                    " towards zero and the length of the optimum matters: give norm, of at least"
                    " radius"
                )
            total = total + self.mu**2 * groups.e0
        return np.asarray(total)

    def spread_of_shared(self) -> tuple[Array, Array]:
        """Energy per direction of theta_0_hat - theta_0 from displacements and from noise: (8), for
        any clients.

        The risk of a new client is linear in the weight t_k of direction k; this is its gradient
        (adjoint of (15)).
        """
        groups = self.groups
        bias = self.K**2 * self._spread(self.direct[0], self.drive)
        noise = self.K**2 * self._spread(self.direct[1], np.zeros_like(self.drive))
        return bias, np.where(np.any(groups.S > 0, axis=1), noise, 0.0)

    def _spread(self, direct: Array, drive: Array) -> Array:
        groups = self.groups
        e = direct + (groups.S * (groups.h * self.K**2 * drive)[:, None]).sum(-1)
        y = np.linalg.solve(self.coupling, (self.damping * e)[..., None])[..., 0]
        return np.asarray(drive + ((groups.count * y)[..., None] * groups.S).sum(1))

    def member(self, i: Array) -> tuple[Array, Array]:
        """FedAvg's bias and variance for clients of group i (an index per federation): (15)."""
        groups = self.groups
        rows = np.arange(i.size)
        target, own = groups.S[rows, i], groups.e[rows, i]
        bias, noise = self.spread_of_shared()
        pull = target * (1 - 2 * self.c[rows, i, None] * target * self.K)
        mine = groups.r2[rows, i] * ((own * pull) @ groups.h)
        return (bias * target) @ groups.h + mine, (noise * target) @ groups.h

    def energy(self, i: Array) -> tuple[Array, Array]:
        """Energy per direction of theta_0_hat - theta_new, from displacements and from noise."""
        rows = np.arange(i.size)
        bias, noise = self.spread_of_shared()
        return bias + self.groups.r2[rows, i, None] * self.groups.e[rows, i], noise


def pool(groups: Groups, ridge: Array | None = None) -> PooledSquares:
    """Solve (14), or its minimum-norm form (section 6.2) for an underdetermined federation.

    ridge: mu above 0 by federation, on the shared model; then none is underdetermined.

    Both maps are increasing and scale slower than linearly, so plain iteration converges from
    anywhere; Newton with the same matrix M makes it quick. The start is exact for identical
    clients.
    """
    shortest = ridge is None and groups.underdetermined
    mu = (
        np.full((groups.p.shape[0], 1), 1.0 if shortest else 0.0)
        if ridge is None
        else ridge[:, None]
    )
    c = (
        1 / np.maximum(groups.S @ groups.h, 1e-300)
        if shortest
        else groups.p * np.maximum(1 - groups.ratio, 0.1)[:, None]
    )
    for _ in range(2000):
        K = pooled_inverse(c, groups, mu)
        load = groups.gamma * (groups.S * (groups.h * K)[:, None]).sum(-1)
        plain = 1 / load if shortest else groups.p / (1 + groups.p * load)
        M = PooledSquares(groups, mu, plain, K).coupling
        with np.errstate(all="ignore"):
            newton = c - np.linalg.solve(M, (c - plain)[..., None])[..., 0]
        good = np.all((newton > c / 4) & (newton < 4 * c), axis=1, keepdims=True)
        new = np.where(good, newton, plain)
        done = np.all(np.abs(new - c) <= 4e-16 * c)
        stalled = np.all(np.abs(new - c) <= 1e-14 * c) and np.all(good)
        c = new
        if done or stalled:
            break
    return PooledSquares(groups, mu, c, pooled_inverse(c, groups, mu))


def pooled_inverse(c: Array, groups: Groups, mu: Array) -> Array:
    """K = (mu + sum_j c_j Sigma_j)^-1 per direction; 0 along those that nobody sees."""
    total = mu + ((groups.count * c)[..., None] * groups.S).sum(1)
    return np.where(total > 0, 1 / np.where(total > 0, total, 1.0), 0.0)


Complex = NDArray[np.complex128]
TINY = 1e-30
LEAST_PRIOR = 1e-200  # a variance that stands for none


class EffectiveKappa(NamedTuple):
    """kappa_m of equation (13), and what bias and variance need of it, free of cancellation."""

    kappa: Array
    lag: Array  # kappa_m - lambda* kappa_m'
    growth: Array  # kappa_m'
    fitted: Array  # kappa_m' - 1


def effective_kappa(world: Worlds, clients: Array) -> EffectiveKappa:
    """Solve lambda* = kappa (1 - gamma df1 - (gamma/m)(rank - df1)), equation (1) rewritten."""
    ridge = bayes_ridge(world)
    spectrum = world.spectrum
    gN = world.gamma / clients
    room = 1 - gN * spectrum.rank
    lam, gam = ridge / room, (world.gamma - gN) / room
    k = kappa(lam, gam, spectrum)
    finite = np.where(np.isfinite(k), k, 1.0)
    at = sums_at(finite, spectrum)
    growth = kappa_slope_from(at, finite, np.where(np.isfinite(k), lam, 1.0), gam, spectrum)
    with np.errstate(invalid="ignore"):
        fitted = growth * (gN * spectrum.rank + (world.gamma - gN) * at.df2) / room
        lag = np.where(k == 0, 0.0, finite * growth * gam * at.mixed)
        return EffectiveKappa(k, lag, growth / room, fitted)


def blup_member(world: Worlds, clients: Array) -> tuple[Array, Array]:
    """A member's B = (r^2/gamma)(kappa_m - lambda* kappa_m') and V = sigma^2 (kappa_m' - 1)."""
    found = effective_kappa(world, clients)
    gN = world.gamma * world.spectrum.rank / clients
    same = world.r2 == 0  # clients that do not differ: plain least squares on everyone's samples
    with np.errstate(invalid="ignore"):
        variance = np.where(world.s2 == 0, 0.0, world.s2 * found.fitted)
    bias = np.where(same, 0.0, world.r2 / world.gamma * found.lag)
    return bias, np.where(same, world.s2 * gN / (1 - gN), variance)


def blup_energy(world: Worlds, clients: Array) -> tuple[Array, Array]:
    """Energy per direction of theta_0_hat - theta_new times s, from displacements and from noise,
    shape (P, K).

    Cov(theta_0_hat) = r^2 (s + kappa_m)/(m s) per direction, split as in `blup_member`; for clients
    that do not differ it is that of plain least squares.
    """
    found = effective_kappa(world, clients)
    s = world.spectrum.values
    seen = np.where(s > 0, 1.0, 0.0)
    gN = world.gamma * world.spectrum.rank / clients
    same = world.r2 == 0
    centre = np.where(same, 0.0, world.r2 * found.lag / clients)
    growth = np.where(same, 1 / (1 - gN), found.growth)
    bias = (world.r2 * (1 + 1 / clients))[:, None] * s + centre[:, None] * seen
    with np.errstate(invalid="ignore"):
        noise = np.where(world.s2 == 0, 0.0, world.s2 * world.gamma * growth / clients)
    return bias, noise[:, None] * seen


def blup_groups(groups: Groups, prior: bool = False) -> tuple[Array, Array, Array, Array]:
    """Equation (16) for clients that differ: bias and variance of a member of each group (P, G),
    and Cov(theta_0_hat) per direction (P, K) split into the parts from displacements and from
    noise.

    Bias and variance are derivatives of the risk in the scale of radius^2 and of noise^2: each is
    scaled by 1 + i*tiny in turn, and the imaginary part is the derivative, to full precision.
    prior: theta_0 has one, with the energy of theta_0 as its variance: (T6) for any clients. Its
    energy is then part of the bias, too.
    """
    s2, r2 = (np.asarray(x, dtype=complex) for x in (groups.s2, groups.r2))
    up = 1 + 1j * TINY
    known = np.zeros(1, dtype=complex)  # what is known of theta_0 beforehand, over its variance
    if prior and groups.e0 is not None:
        known = np.asarray(1 / np.maximum(groups.e0, LEAST_PRIOR), dtype=complex)
    bias, away = henderson(groups, s2, np.asarray(r2 * up), np.asarray(known / up))
    variance, blur = henderson(groups, np.asarray(s2 * up), r2, known)
    return bias, variance, away, blur


def henderson(groups: Groups, s2: Complex, r2: Complex, known: Complex) -> tuple[Array, Array]:
    """Derivatives of the members' risks R (P, G) and of C = Cov(theta_0_hat) (P, K) along the
    imaginary parts.

    With b_j = 1/(gamma_j (sigma_j^2 + R_j)), which is alpha_j/(lambda_j r_j^2) of (16), noise
    enters only through b: C = 1/(known + sum_j b_j S_j/(1 + r_j^2 b_j S_j)),   R_j = sum h S_j
    [r_j^2/(1 + r_j^2 b_j S_j) + C/(1 + r_j^2 b_j S_j)^2]. Iterated from no risk at all, damped
    after 50 rounds, until the real and imaginary parts stop moving.
    """
    risk = np.zeros_like(s2)
    b = 1 / (groups.gamma * s2)
    least = np.inf
    for round_ in range(20_000):
        bS = b[..., None] * groups.S
        reach = 1 + r2[..., None] * bS
        centre = 1 / (known + (groups.count[..., None] * bS / reach).sum(1))
        risk = (groups.S * (r2[..., None] + centre[:, None] / reach) / reach) @ groups.h
        new = 1 / (groups.gamma * (s2 + risk))
        if round_ >= 50:
            new = (new + b) / 2
        moved = float(
            max(
                np.abs(part(new - b) / np.where(part(new) == 0, 1, part(new))).max()
                for part in (np.real, np.imag)
            )
        )
        b = new
        least = min(least, moved)
        if moved <= 1e-15 or (
            round_ > 200 and least < moved < 1e-12
        ):  # rounding moves it no further
            break
    return np.asarray(risk.imag / TINY), np.asarray(centre.imag / TINY)


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
    match stage.linear_objective:
        case Objective.SHARED:
            parts = shared_limit(away)
            extra = shared_limit(noisy)[0]
        case Objective.OWN:
            parts = interpolant_limit(away)
            extra = interpolant_limit(noisy)[0]
        case Objective.PENALISED:
            if ridge is None:
                ridge = best_ridge(replace(away, g=shift + blur))
            parts = ridge_limit(away, ridge)
            extra = ridge_limit(noisy, ridge)[0]
        case _:
            return filter_limit(stage, away, ridge, blur)
    return parts[0], parts[1] + extra, ridge


def spread_over_atoms(energy: Array, world: Worlds) -> Array:
    """Energy times share per atom, zero along atoms that samples cannot see."""
    out = np.zeros((energy.shape[0], world.spectrum.values.size))
    out[:, world.spectrum.support] = energy * world.spectrum.positive[1]
    return out


def cross_limit(own: ClientStage, world: Worlds) -> Parts:
    """What the errors of an independent shared model and of the client's own have in common: the
    displacement, r^2 sum g s kappa/(s + kappa), and no noise.
    """
    ridge = np.zeros_like(world.r2)
    if own.get("ridge") is not None:
        ridge = np.full_like(world.r2, own.get("ridge"))
    k = kappa(ridge, world.gamma, world.spectrum)[:, None]
    s = world.spectrum.values
    left = np.where(s > 0, k / np.where(s > 0, s + k, 1.0), 0.0)
    return world.r2 * (world.g * s * left).sum(-1), np.zeros_like(world.r2)


def mix_parts(
    shared: Parts, alone: Parts, common: Parts, mixture: Array | None
) -> tuple[Array, Array, Array]:
    """Bias, variance and weight a of a mixture: (1 - a)^2 A + a^2 B + 2 a (1 - a) C.

    The best a is (A - C)/(A + B - 2 C), between 0 and 1; an own model without bound has none.
    """
    A, B, C = (one + other for one, other in (shared, alone, common))
    if mixture is None:
        with np.errstate(divide="ignore", invalid="ignore"):
            best = (A - C) / (A + B - 2 * C)
        endless = np.isinf(A) | np.isinf(B)
        best = np.where(endless, np.where(np.isinf(B), 0.0, 1.0), best)
        mixture = np.clip(np.where(np.isnan(best), 0.0, best), 0.0, 1.0)
    a = np.asarray(mixture, dtype=float)

    weights = ((1 - a) ** 2, a**2, 2 * a * (1 - a))

    def part(place: int) -> Array:
        terms = (each[place] for each in (shared, alone, common))
        pairs = zip(weights, terms, strict=True)  # what has no weight may be unbounded
        return np.asarray(sum(w * np.where(w == 0, 0.0, term) for w, term in pairs))

    return part(0), part(1), a


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
    N = pooled.mu + ((others * c)[..., None] * groups.S).sum(1)
    weight = h * K**2
    # tau(A R B R) for diagonal A, B around R = (p_i S_i + N)^-1: the sample covariance S_i adds a
    # rank-one term.
    extra = c_i**2 * gamma_i / (1 - c_i**2 * gamma_i * ((S_i**2 * weight).sum(-1)))
    touch = (groups.S * (S_i * weight)[:, None]).sum(-1)

    def group_traces(Y: Array) -> Array:
        """tau(Sigma_l R Y R) for every group l."""
        straight = (groups.S * (weight * Y)[:, None]).sum(-1)
        return np.asarray(straight + touch * (extra * (S_i * weight * Y).sum(-1))[:, None])

    D = (groups.S * weight[:, None]) @ groups.S.swapaxes(1, 2) + extra[:, None, None] * touch[
        ..., None
    ] * touch[:, None]
    coupling = np.eye(D.shape[1]) - pooled.damping[..., None] * D * others[:, None]

    def total(direct: Array, drive: Array) -> Array:
        y = np.linalg.solve(coupling, (pooled.damping * (direct + group_traces(drive)))[..., None])[
            ..., 0
        ]
        return np.asarray(drive + ((others * y)[..., None] * groups.S).sum(1))

    shifted = ((others * groups.r2 * c**2)[..., None] * groups.e * groups.S**2).sum(1)
    drive = shifted + r2_i[:, None] * N**2 * e_i
    if groups.e0 is not None:  # what a ridge loses of theta_0
        drive = drive + pooled.mu**2 * groups.e0
    mine = r2_i[:, None] * (groups.S * (h * e_i * (1 - 2 * K * N))[:, None]).sum(-1)
    loud = (s2_i * gamma_i * p_i)[:, None] * (
        (groups.S * (h * K)[:, None]).sum(-1) - group_traces(N)
    )
    Y = total(pooled.direct[0] + mine, drive), total(pooled.direct[1] + loud, np.zeros_like(drive))
    return SquaresMember(gamma_i, s2_i, p_i, c_i, S_i, N, Y, h)


def averaged_member(
    stage: ClientStage, world: Worlds, ridge: Array | None, pooled: PooledSquares, i: Array
) -> RiskAtRidge:
    """FedAvg, FTFA and RTFA for a member."""
    if stage.linear_objective is Objective.SHARED:
        return *pooled.member(i), None
    member = membership(pooled, i)
    if stage.linear_objective is Objective.OWN:
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
    if algorithm.personalise.linear_objective is Objective.OWN:
        own = world.gamma * world.spectrum.rank < 1
        alone = interpolant_limit(world)
        return np.where(own, alone[0], endless), np.where(own, alone[1], endless), None
    return endless, endless, bayes_ridge(world) if ridge is None else ridge
