"""Section 6: one gradient step from the shared model, as in MAML, in closed form."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedasym.core.arrays import Array
from fedasym.theory.classes.links import phi
from fedasym.theory.classes.metrics import State, brier
from fedasym.theory.classes.shared import fedavg, shrinkage
from fedasym.worlds.energies import Energies


class OneStep(NamedTuple):
    """The state after the step, its length a, and the Brier score G0 of the shared model that it started from."""

    state: State
    step: Array
    brier: Array


def one_step(energies: Energies, gamma: ArrayLike, step: ArrayLike | None = None, eps: ArrayLike = 0.0) -> OneStep:
    """theta_bar + a (1/n) X'(y01 - sig(X theta_bar)), at the given a or at the one of best accuracy:

    T = c B0 + a f sum s^2 ED,   Q = c^2 B0 + a^2 sum s^2 (f^2 s ED + gamma G0 h),   f = (1-2 eps) phi(rho),
    a* = c f sum s^2 ED / sum s^2 (f^2 s ED + gamma G0 h).

    >>> one = one_step(Energies.isotropic(1, 2, s=[0.5, 3], h=[0.6, 0.4]), gamma=2)
    >>> round(float(one.step), 9)
    0.422040003
    """
    e, gamma = energies, np.asarray(gamma, dtype=float)
    c, f = shrinkage(e, eps), (1 - 2 * np.asarray(eps)) * phi(e.rho)
    g0 = brier(fedavg(e, eps), eps)
    gain = f * (e.s**2 * e.ed).sum(-1)
    noise = gamma * g0 * (e.s**2 * e.h).sum(-1)
    cost = f**2 * (e.s**3 * e.ed).sum(-1) + noise
    a = c * gain / cost if step is None else np.asarray(step, dtype=float)
    T, Q = c * e.b0 + a * gain, c**2 * e.b0 + a**2 * cost
    return OneStep(State.of(T, Q, e.rho), np.asarray(a), g0)
