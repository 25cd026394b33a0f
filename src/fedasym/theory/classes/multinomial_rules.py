"""Section 11.1: what a linear rule scores with C exchangeable classes, from T and Q alone, and the rules in closed form.

Every model here is W = d x C with centred columns, and each of its overlaps is a number times P = I - 11'/C: with
theta_i'Sigma theta_i = rho^2, a rule w has T = w'Sigma theta_i and Q = w'Sigma w per contrast, as in section 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedasym.core.arrays import Array
from fedasym.theory.classes.multinomial_integrals import accuracy, gini, log_sum, overlap, phi
from fedasym.theory.roots import bracketed
from fedasym.worlds.energies import Energies


@dataclass(frozen=True)
class Rule:
    """A rule for C classes and what it scores on a client's fresh samples; logits have standard deviation rho.

    >>> rule = ceiling(Energies.isotropic(1.5, 1.5), 3)
    >>> round(rule.accuracy, 6), round(rule.slope, 6)
    (0.753403, 1.0)
    """

    classes: int
    rho: float
    T: float
    Q: float

    @property
    def cos(self) -> float:
        """T/(rho sqrt Q), all that the accuracy depends on."""
        return float(min(self.T / max(self.rho * np.sqrt(self.Q), 1e-300), 1.0))

    @cached_property
    def accuracy(self) -> float:
        """E p_{argmax w}(s)."""
        return accuracy(self.cos, self.rho, self.classes)

    @cached_property
    def log_loss(self) -> float:
        """E[lse(w) - p(s)'w]; by Stein's identity the second term is (C-1) T phi_C(rho)."""
        return log_sum(np.sqrt(self.Q), self.classes) - self.T * gini(self.rho, self.classes)

    @cached_property
    def brier(self) -> float:
        """E|e_y - softmax(w)|^2."""
        agree = overlap(self.T, self.Q, self.rho, self.classes)
        return 2 - 2 * agree - gini(np.sqrt(self.Q), self.classes)

    @cached_property
    def slope(self) -> float:
        """Calibration: the k for which the logits k w fit best, k Q phi_C(k sqrt Q) = T phi_C(rho) (section 1)."""
        aim = self.cos * self.rho * phi(self.rho, self.classes)  # x phi_C(x) increases, so that x = k sqrt Q is at most rho

        def excess(x: Array) -> Array:
            return np.array([each * phi(each, self.classes) - aim for each in x])

        return float(bracketed(excess, np.array([0.0]), np.array([self.rho]), 1e-14)[0] / np.sqrt(self.Q))


def shrinkage(b0: float, slope: float, classes: int) -> float:
    """The c of the shared model c W0: c phi_C(c sqrt B0) = the clients' mean of phi_C(rho_i)."""

    def excess(c: Array) -> Array:
        return np.array([x * phi(x * np.sqrt(b0), classes) - slope for x in c])

    return float(bracketed(excess, np.array([1e-12]), np.array([1.0]), 1e-14)[0])


def centre(energies: Energies, classes: int) -> float:
    """The c of the shared model when all clients have the same rho.

    >>> round(centre(Energies.isotropic(1.5, 1.5), 3), 6)
    0.647836
    """
    return shrinkage(float(energies.b0), phi(float(energies.rho), classes), classes)


def fedavg(energies: Energies, classes: int) -> Rule:
    """The shared model of infinitely many clients, c W0."""
    c, B0 = centre(energies, classes), float(energies.b0)
    return Rule(classes, float(energies.rho), c * B0, c * c * B0)


def ceiling(energies: Energies, classes: int) -> Rule:
    """The client's own truth: accuracy E max_k softmax(s)_k."""
    rho = float(energies.rho)
    return Rule(classes, rho, rho * rho, rho * rho)


def one_step(energies: Energies, aspect: float, classes: int, step: float | None = None) -> tuple[Rule, float]:
    """One gradient step from the shared model (section 6), and its length: the best for accuracy unless given.

    E[x g'] = Sigma Delta f at the shared model, with f = phi_C(rho), because c W0 is stationary for the mean client; the
    noise per contrast is G0 = E|g|^2/(C-1), the Brier score of FedAvg over C-1. The rest is section 6 as it stands.
    """
    s, h, ED = energies.s, energies.h, energies.ed
    shared = fedavg(energies, classes)
    c, f = centre(energies, classes), phi(shared.rho, classes)
    G0 = shared.brier / (classes - 1)
    signal, noise = float(np.sum(s**2 * ED)), float(np.sum(s**2 * (f * f * s * ED + aspect * G0 * h)))
    a = c * f * signal / noise if step is None else step
    return Rule(classes, shared.rho, shared.T + a * f * signal, shared.Q + a * a * noise), a
