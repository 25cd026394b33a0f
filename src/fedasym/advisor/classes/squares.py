"""Least squares on labels in theory (section 8), around a shared model of finitely many clients.

The shared model errs by v, of energy Ev per atom, independent of a new client. With kappa of the client's ridge,
T = zeta (B0 + sum ED s^2/(s+kappa)),  Q = zeta^2 B0 + sum s/(s+kappa)^2 {zeta^2 s^2 ED + kappa^2 Ev + gamma (s2 + risk) s h}.
It is what the probes of `probes` measure, and it carries accuracies from infinitely many clients to those at hand.
"""

from __future__ import annotations

import numpy as np

from fedasym.advisor.classes.worlds import World
from fedasym.core.arrays import Array
from fedasym.theory.classes.metrics import State
from fedasym.theory.classes.metrics import accuracy as binary_accuracy
from fedasym.theory.classes.softmax import SoftmaxRule as Rule
from fedasym.theory.transforms import kappa

POINTS = 37  # of a search for a ridge


def error_of(world: World, excess: tuple[float, float]) -> Array:
    """Ev per atom: the error that noise leaves is even in the logits, the one that displacements leave even in the weights."""
    s, h = world.spectrum.values, world.spectrum.weights
    seen = np.where(s > 0, h / np.where(s > 0, s, 1.0), 0.0)
    return np.asarray(excess[0] * seen / h[s > 0].sum() + excess[1] * h / world.spectrum.mean)


def state_of(
    world: World, aspect: float, ridge: float, error: Array | float = 0.0, *, alone: bool = False
) -> tuple[float, float]:
    """T and Q of the ridge fit (infinite: the shared model itself); `alone`: around nothing."""
    e = world.energies.alone if alone else world.energies
    s, h, zeta = e.s, e.h, world.zeta
    s2 = world.link.total - (zeta * world.rho) ** 2
    ev = np.zeros_like(s) if alone else np.broadcast_to(np.asarray(error, dtype=float), s.shape)
    B0 = float(e.b0)
    if np.isinf(ridge):
        return zeta * B0, zeta**2 * B0 + float(s @ ev)
    k = float(kappa(np.array([ridge]), np.array([aspect]), world.spectrum)[0])
    pull = np.divide(s, s + k, out=np.zeros_like(s), where=s > 0)
    room = 1 - aspect * float(h @ pull**2)
    left = s2 + float((s * (1 - pull) ** 2) @ (zeta**2 * e.ed + ev))
    total = left / max(room, 1e-9)
    T = zeta * (B0 + float(e.ed @ (s * pull)))
    Q = zeta**2 * B0 + float(pull**2 @ (zeta**2 * s * e.ed + aspect * total * h)) + float((s * (1 - pull) ** 2) @ ev)
    return T, Q


def accuracy_of(world: World, T: float, Q: float) -> float:
    """The share of labels that a rule gets right."""
    if world.link.classes == 2:
        return float(binary_accuracy(State.of(T, Q, world.rho)))
    return Rule(world.link.classes, world.rho, T, Q).accuracy if Q > 0 else 1 / world.link.classes


def probe(world: World, aspect: float, ridge: float, error: Array | float = 0.0, *, alone: bool = False) -> float:
    """Accuracy of a least-squares classifier."""
    return accuracy_of(world, *state_of(world, aspect, ridge, error, alone=alone))


def best_ridge(world: World, aspect: float, error: Array | float = 0.0, *, alone: bool = False) -> float:
    """The ridge of least squares (never that of the logistic loss): s2 gamma/(energy of what is learned), best for accuracy too
    if that has no preferred directions; otherwise searched about it.
    """
    e, zeta = (world.energies.alone if alone else world.energies), world.zeta
    s2 = world.link.total - (zeta * world.rho) ** 2
    spread = zeta**2 * float(e.ed.sum()) + (0.0 if alone else float(np.sum(error)))
    rule = s2 * aspect / max(spread, 1e-300)
    if np.allclose(e.ed / e.ed.sum(), e.h):
        return rule
    at = rule * np.geomspace(1e-3, 1e6, POINTS)
    cosine = [T / np.sqrt(Q) for T, Q in (state_of(world, aspect, float(lam), error, alone=alone) for lam in at)]
    return float(at[int(np.argmax(cosine))])  # accuracy increases with the cosine
