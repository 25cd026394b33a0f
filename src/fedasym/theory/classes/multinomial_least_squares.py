"""Section 8 for C exchangeable classes: least squares on one-hot labels, where the limits of the squared loss carry over.

y = zeta x'theta_i + e per contrast, with zeta = phi_C(rho) and Var e = 1/C - zeta^2 rho^2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedasym.core.arrays import Array
from fedasym.theory.classes.multinomial_integrals import phi
from fedasym.theory.classes.multinomial_rules import Rule
from fedasym.theory.transforms import kappa
from fedasym.worlds.energies import Energies
from fedasym.worlds.spectra import Spectrum


@dataclass(frozen=True)
class LinearProbe(Rule):
    """A least-squares fit of one-hot labels; its scores are no logits, so that only its accuracy and risk have a meaning."""

    ridge: float
    zeta: float
    noise: float  # s2
    risk: float  # excess squared error per contrast


def least_squares(energies: Energies, aspect: float, ridge: float | None, classes: int, *, shared: bool = True) -> LinearProbe:
    """Ridge regression around the shared probe zeta W0 (or around nothing) on one-hot labels.

    `ridge` 0: the interpolator (FTFA); infinite: the shared probe (FedAvg); None: the best, s2 gamma/(zeta^2 r^2), which is
    best for accuracy too when Delta is isotropic.

    >>> probe = least_squares(Energies.isotropic(1.5, 1.5), 2.0, None, 3)
    >>> round(probe.ridge, 4), round(probe.accuracy, 4)
    (6.2795, 0.6038)
    """
    s, h = energies.s, energies.h
    if not shared:
        energies = energies.alone
    ED, rho = energies.ed, float(energies.rho)
    zeta = phi(rho, classes)
    s2 = 1 / classes - zeta * zeta * rho * rho
    if ridge is None:
        spread = zeta * zeta * float(ED.sum())
        ridge = s2 * aspect / spread if spread > 0 else np.inf
    B0 = float(energies.b0)
    if np.isinf(ridge):
        return LinearProbe(classes, rho, zeta * B0, zeta**2 * B0, ridge, zeta, s2, zeta**2 * float(energies.bd))
    k = float(kappa(np.array([ridge]), np.array([aspect]), Spectrum(s, h, "classes"))[0])
    pull: Array = np.divide(s, s + k, out=np.zeros_like(s), where=s > 0)
    room = 1 - aspect * float(np.sum(h * pull**2))
    left = s2 + zeta**2 * float(np.sum(ED * s * (1 - pull) ** 2))
    total = left / room if room > 1e-12 else np.inf  # s2 + risk; as many samples as unknowns and no ridge: unbounded
    T = zeta * (B0 + float(np.sum(ED * s * pull)))
    Q = zeta**2 * B0 + float(np.sum(pull**2 * (zeta**2 * s * ED + aspect * total * h)))
    return LinearProbe(classes, rho, T, Q, ridge, zeta, s2, total - s2)
