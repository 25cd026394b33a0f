"""pFedMe at its best ridge is the best linear unbiased prediction of the mixed model: the optimum for finitely many clients.

Sections 5.4 and 6.3; isotropic displacements. Bias and variance follow from the envelope theorem: at the optimum, the
derivative of the risk with respect to the noise level is the variance per unit of noise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedasym.theory.pooled import Groups
from fedasym.theory.ridges import bayes_ridge
from fedasym.theory.spectra import Array
from fedasym.theory.transforms import kappa, slope_from, sums
from fedasym.theory.worlds import Worlds


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

    The noise of all clients is scaled by 1 + i*tiny: the imaginary part is the derivative, to full precision.
    """
    tiny = 1e-30
    s2 = groups.s2 * (1 + 1j * tiny)
    lam = s2 * groups.gamma / groups.r2
    w = 1 / (groups.gamma * s2)
    alpha = np.ones_like(lam)
    for round_ in range(20_000):
        D = alpha[..., None] * groups.S + lam[..., None]
        centre = 1 / ((groups.count * w * lam * alpha)[..., None] * groups.S / D).sum(1)
        pull = groups.S * (1 / D + (lam**2 * w)[..., None] * centre[:, None] / D**2)
        new = 1 / (1 + groups.gamma * (pull @ groups.h))
        if round_ >= 50:
            new = (new + alpha) / 2
        small = np.all(np.abs(new - alpha) <= 4e-16 * np.abs(alpha))
        settled = np.all(np.abs((new - alpha).imag) <= 1e-14 * tiny + 1e-15 * np.abs(alpha.imag))
        alpha = new
        if small and settled:
            break
    risk = s2 * (1 / alpha - 1)
    variance, spread = np.asarray(risk.imag / tiny), np.asarray(centre.imag / tiny)
    return np.asarray(risk.real - variance), variance, np.asarray(centre.real - spread), spread
