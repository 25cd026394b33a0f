"""Finitely many clients, possibly all different: what they learn together, by pooled least squares
and by the BLUP.

The pooled weighted least-squares fit (FedAvg) has equations (14) and (15). Clients come in groups
of identical ones, so that ten thousand cost what their groups cost. Covariances are jointly
diagonal: S[j, k] is the eigenvalue of group j along directions k, whose share is h[k]. All arrays
have a leading axis over independent federations.

pFedMe at its best ridge is the best linear unbiased prediction (BLUP) of the mixed model, the
optimum for finitely many
clients: sections 5.4 and 6.3, isotropic displacements. Bias and variance follow from the envelope
theorem: at the optimum, the derivative of the risk with respect to the noise level is the variance
per unit of noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import NoFormula
from fedasym.core.numbers import Array
from fedasym.theory.limits import CRITICAL, Worlds, bayes_ridge
from fedasym.theory.transforms import kappa, kappa_slope_from, sums_at


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
    def crowded(self) -> bool:
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


@dataclass(frozen=True)
class PooledSquares:
    """The pooled fit's deterministic equivalent: sum_j p_j S_j ~ sum_j c_j Sigma_j, and K = (mu +
    sum_j c_j Sigma_j)^-1.

    mu = 0 for least squares; 1 for the minimum-norm fit of a crowded federation (the limit of a
    vanishing global ridge, in units of that ridge).
    """

    groups: Groups
    mu: float
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
        if self.mu:
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

    def new(self, i: Array) -> tuple[Array, Array]:
        """FedAvg's bias and variance for a new client like those of group i."""
        target = self.groups.S[np.arange(i.size), i]
        bias, noise = self.energy(i)
        return (bias * target) @ self.groups.h, (noise * target) @ self.groups.h

    def energy(self, i: Array) -> tuple[Array, Array]:
        """Energy per direction of theta_0_hat - theta_new, from displacements and from noise."""
        rows = np.arange(i.size)
        bias, noise = self.spread_of_shared()
        return bias + self.groups.r2[rows, i, None] * self.groups.e[rows, i], noise


def pool(groups: Groups) -> PooledSquares:
    """Solve (14), or its minimum-norm form (section 6.2) for a crowded federation.

    Both maps are increasing and scale slower than linearly, so plain iteration converges from
    anywhere; Newton with the same matrix M makes it quick. The start is exact for identical
    clients.
    """
    mu = 1.0 if groups.crowded else 0.0
    c = (
        groups.p * np.maximum(1 - groups.ratio, 0.1)[:, None]
        if mu == 0
        else 1 / np.maximum(groups.S @ groups.h, 1e-300)
    )
    for _ in range(2000):
        K = pooled_inverse(c, groups, mu)
        load = groups.gamma * (groups.S * (groups.h * K)[:, None]).sum(-1)
        plain = groups.p / (1 + groups.p * load) if mu == 0 else 1 / load
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


def pooled_inverse(c: Array, groups: Groups, mu: float) -> Array:
    """K = (mu + sum_j c_j Sigma_j)^-1 per direction; 0 along those that nobody sees."""
    total = mu + ((groups.count * c)[..., None] * groups.S).sum(1)
    return np.where(total > 0, 1 / np.where(total > 0, total, 1.0), 0.0)


Complex = NDArray[np.complex128]
TINY = 1e-30


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


def blup_groups(groups: Groups) -> tuple[Array, Array, Array, Array]:
    """Equation (16) for clients that differ: bias and variance of a member of each group (P, G),
    and Cov(theta_0_hat) per direction (P, K) split into the parts from displacements and from
    noise.

    Bias and variance are derivatives of the risk in the scale of radius^2 and of noise^2: each is
    scaled by 1 + i*tiny in turn, and the imaginary part is the derivative, to full precision.
    """
    s2, r2 = (np.asarray(x, dtype=complex) for x in (groups.s2, groups.r2))
    bias, away = henderson(groups, s2, np.asarray(r2 * (1 + 1j * TINY)))
    variance, blur = henderson(groups, np.asarray(s2 * (1 + 1j * TINY)), r2)
    return bias, variance, away, blur


def henderson(groups: Groups, s2: Complex, r2: Complex) -> tuple[Array, Array]:
    """Derivatives of the members' risks R (P, G) and of C = Cov(theta_0_hat) (P, K) along the
    imaginary parts.

    With b_j = 1/(gamma_j (sigma_j^2 + R_j)), which is alpha_j/(lambda_j r_j^2) of (16), noise
    enters only through b: C = 1/sum_j b_j S_j/(1 + r_j^2 b_j S_j),   R_j = sum h S_j [r_j^2/(1 +
    r_j^2 b_j S_j) + C/(1 + r_j^2 b_j S_j)^2]. Iterated from no risk at all, damped after 50 rounds,
    until the real and imaginary parts stop moving.
    """
    risk = np.zeros_like(s2)
    b = 1 / (groups.gamma * s2)
    least = np.inf
    for round_ in range(20_000):
        bS = b[..., None] * groups.S
        reach = 1 + r2[..., None] * bS
        centre = 1 / (groups.count[..., None] * bS / reach).sum(1)
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
