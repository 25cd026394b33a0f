"""How the shared optimum and the displacements lie over the eigenvalues of the features, where samples tell (N >= 8 d).

Along the pooled covariance's axes V, in groups g of neighbouring eigenvalues: the shared signal B_g is labels times what the
others' model predicts along V_g; displacements show in q_k = |v_k'X'e|^2, whose mean is s2 (V'GV)_kk + sum_j ED_j (V'GV)_kj^2,
G = X'X: linear in the energies ED, which non-negative least squares finds. Evenly spread energies are kept unless the
clients, as a sample, contradict them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.optimize

from fedasym.advisor.classes.pooling import Client, Shared
from fedasym.core.arrays import Array
from fedasym.worlds.spectra import Spectrum

GROUPS = 12
ENOUGH = 8.0  # samples per unknown from which pooled eigenvalues are near the true ones
SURE = 4.5  # standard errors
LEAST = 20  # clients that make a sample


@dataclass(frozen=True, eq=False)
class Profile:
    """A covariance in groups, and the shares of the shared optimum's and the displacements' energy (None: evenly)."""

    spectrum: Spectrum
    centre: Array | None
    shift: Array | None


class Profiling:
    """Clients one after the other."""

    def __init__(self, shared: Shared) -> None:
        values, self.V = scipy.linalg.eigh(shared.covariance)
        self.s = np.maximum(values, 1e-12 * values[-1])
        edges = np.geomspace(self.s[0], self.s[-1] * (1 + 1e-9), GROUPS + 1)
        raw = np.clip(np.searchsorted(edges, self.s, side="right") - 1, 0, GROUPS - 1)
        self.group = np.unique(raw, return_inverse=True)[1]
        self.size = np.bincount(self.group).astype(float)
        self.member = np.eye(self.size.size)[self.group]  # (d, groups)
        self.shared, self.Vtheta, self.back = shared, self.V.T @ shared.theta, self.V.T @ shared.inverse
        self.signal: list[Array] = []
        self.square: list[Array] = []
        self.own: list[Array] = []
        self.cross: Array = np.zeros((self.size.size, self.size.size))

    def add(self, client: Client, outputs: int) -> None:
        """One client more."""
        turned = client.X @ self.V
        score = turned.T @ client.about
        others = self.Vtheta - self.back @ (client.X.T @ client.about)
        self.signal.append(self.summed(((turned.T @ client.labels) * others).sum(1)) / outputs)
        self.square.append(self.summed((score**2).sum(1)) / outputs)
        T = turned.T @ turned
        self.own.append(self.summed(np.diag(T)))
        self.cross += self.member.T @ T**2 @ self.member

    def summed(self, values: Array) -> Array:
        """Over the directions of each group."""
        return np.asarray(np.bincount(self.group, values, self.size.size), dtype=float)

    def done(self, s2: float) -> Profile:
        """Shares, where they differ from even ones for sure."""
        means = self.summed(self.s) / self.size
        h = self.size / self.size.sum()
        spectrum = Spectrum(
            means, h, f"pooled ({means.size} groups of eigenvalues from {means.min():.3g} to {means.max():.3g})"
        )
        if len(self.signal) < LEAST:
            return Profile(spectrum, None, None)
        signal, square, own = (np.array(each) for each in (self.signal, self.square, self.own))
        B = np.maximum(signal.sum(0), 0.0)
        even = signal.sum() * means * h / float(means @ h)
        centre = None
        if contradicted(2 * (signal - np.outer(signal.sum(1), means * h / float(means @ h))), signal.sum(0) - even):
            centre = B / means / (B / means).sum()
        left = square - s2 * own
        weights = 1 / np.maximum(np.sqrt((square**2).sum(0)), 1e-300)
        level = max(float((weights * self.cross.sum(1)) @ (weights * left.sum(0)))
                    / float(((weights * self.cross.sum(1)) ** 2).sum()), 0.0)  # fmt: skip
        gap = left.sum(0) - level * self.cross.sum(1)
        shift = None
        if contradicted(left - level * self.cross.sum(1) / len(left), gap):
            found, _ = scipy.optimize.nnls(self.cross * weights[:, None], left.sum(0) * weights)
            if found.sum() > 0:
                shift = found * self.size / float(found @ self.size)
        return Profile(spectrum, centre, shift)


def contradicted(parts: Array, gap: Array) -> bool:
    """Whether a sum over clients is further from 0 than chance, in some group; `parts` are what the clients add."""
    spread = parts.std(0) * np.sqrt(len(parts))
    return bool(np.any(np.abs(gap) > SURE * np.maximum(spread, 1e-300)))
