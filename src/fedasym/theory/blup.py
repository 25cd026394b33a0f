"""pFedMe at its best ridge is the best linear unbiased prediction of the mixed model: the optimum for finitely many clients.

Sections 5.4 and 6.3; isotropic displacements. Bias and variance follow from the envelope theorem: at the optimum, the
derivative of the risk with respect to the noise level is the variance per unit of noise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedasym.core.arrays import Array
from fedasym.theory.pooled import Groups
from fedasym.theory.ridges import bayes_ridge
from fedasym.theory.transforms import kappa, slope_from, sums
from fedasym.theory.worlds import Worlds

Complex = NDArray[np.complex128]
TINY = 1e-30


class Effective(NamedTuple):
    """kappa_m of equation (13), and what bias and variance need of it, free of cancellation."""

    kappa: Array
    lag: Array  # kappa_m - lambda* kappa_m'
    growth: Array  # kappa_m'
    fitted: Array  # kappa_m' - 1


def effective(world: Worlds, clients: Array) -> Effective:
    """Solve lambda* = kappa (1 - gamma df1 - (gamma/m)(rank - df1)): equation (1) again, with another ridge and aspect."""
    ridge, spectrum = bayes_ridge(world), world.spectrum
    gN = world.gamma / clients
    room = 1 - gN * spectrum.rank
    lam, gam = ridge / room, (world.gamma - gN) / room
    k = kappa(lam, gam, spectrum)
    finite = np.where(np.isfinite(k), k, 1.0)
    at = sums(finite, spectrum)
    growth = slope_from(at, finite, np.where(np.isfinite(k), lam, 1.0), gam, spectrum)
    with np.errstate(invalid="ignore"):
        fitted = growth * (gN * spectrum.rank + (world.gamma - gN) * at.df2) / room
        lag = np.where(k == 0, 0.0, finite * growth * gam * at.mixed)
        return Effective(k, lag, growth / room, fitted)


def blup_member(world: Worlds, clients: Array) -> tuple[Array, Array]:
    """Bias and variance for a member: B = (r^2/gamma)(kappa_m - lambda* kappa_m'), V = sigma^2 (kappa_m' - 1)."""
    found = effective(world, clients)
    gN = world.gamma * world.spectrum.rank / clients
    same = world.r2 == 0  # clients that do not differ: plain least squares on everyone's samples
    with np.errstate(invalid="ignore"):
        variance = np.where(world.s2 == 0, 0.0, world.s2 * found.fitted)
    bias = np.where(same, 0.0, world.r2 / world.gamma * found.lag)
    return bias, np.where(same, world.s2 * gN / (1 - gN), variance)


def blup_energy(world: Worlds, clients: Array) -> tuple[Array, Array]:
    """Energy per direction of theta_0_hat - theta_new times s, from displacements and from noise, shape (P, K).

    Cov(theta_0_hat) = r^2 (s + kappa_m)/(m s) per direction, split as in `blup_member`; for clients that do not differ it
    is that of plain least squares.
    """
    found = effective(world, clients)
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
    """Equation (16) for clients that differ: bias and variance of a member of each group (P, G), and Cov(theta_0_hat) per
    direction (P, K) split into the parts from displacements and from noise.

    Bias and variance are derivatives of the risk in the scale of radius^2 and of noise^2: each is scaled by 1 + i*tiny in
    turn, and the imaginary part is the derivative, to full precision.
    """
    s2, r2 = (np.asarray(x, dtype=complex) for x in (groups.s2, groups.r2))
    bias, away = henderson(groups, s2, np.asarray(r2 * (1 + 1j * TINY)))
    variance, blur = henderson(groups, np.asarray(s2 * (1 + 1j * TINY)), r2)
    return bias, variance, away, blur


def henderson(groups: Groups, s2: Complex, r2: Complex) -> tuple[Array, Array]:
    """Derivatives of the members' risks R (P, G) and of C = Cov(theta_0_hat) (P, K) along the imaginary parts.

    With b_j = 1/(gamma_j (sigma_j^2 + R_j)), which is alpha_j/(lambda_j r_j^2) of (16), noise enters only through b:
    C = 1/sum_j b_j S_j/(1 + r_j^2 b_j S_j),   R_j = sum h S_j [r_j^2/(1 + r_j^2 b_j S_j) + C/(1 + r_j^2 b_j S_j)^2].
    Iterated from no risk at all, damped after 50 rounds, until the real and imaginary parts stop moving.
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
        moved = float(max(np.abs(part(new - b) / np.where(part(new) == 0, 1, part(new))).max() for part in (np.real, np.imag)))
        b = new
        least = min(least, moved)
        if moved <= 1e-15 or (round_ > 200 and least < moved < 1e-12):  # rounding moves it no further
            break
    return np.asarray(risk.imag / TINY), np.asarray(centre.imag / TINY)
