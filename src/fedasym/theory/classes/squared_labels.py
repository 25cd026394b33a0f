"""Least squares on class labels: how labels follow from the signal (section 13), and what a ridge
fit of them gets right.

Per free output y = zeta x'theta_i + e: two classes have zeta = 2 phi(rho) and mean square 1, C
classes zeta = phi_C(rho) and mean square 1/C. What the features explain, zeta^2 rho^2 = total - s2,
increases with rho, which gives rho, then zeta, then all lengths.

Around a shared model of finitely many clients (section 8) that errs by v, of energy Ev per atom,
independent of a new client, with kappa of the client's ridge, T = zeta (B0 + sum ED s^2/(s+kappa)),
Q = zeta^2 B0 + sum s/(s+kappa)^2 {zeta^2 s^2 ED + kappa^2 Ev + gamma (s2 + risk) s h}.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from scipy.interpolate import CubicSpline

from fedasym.core.numbers import Array
from fedasym.theory.classes.metrics import State, phi
from fedasym.theory.classes.metrics import accuracy as binary_accuracy
from fedasym.theory.classes.softmax import SoftmaxRule, softmax_phi
from fedasym.theory.transforms import kappa
from fedasym.worlds.classes import ClassPopulation, Energies
from fedasym.worlds.spectra import Spectrum

# signals that labels can tell apart: above, they have no noise left
LEAST_SIGNAL, MOST_SIGNAL = (1e-3, 15.0)
SIGNAL_POINTS = 120
STRANGE = 0.95  # of the most that features can explain in the model
FAINT = 1e-6  # of the labels' variance: a signal below is none
RIDGE_POINTS = 37  # of a search for a ridge


@dataclass(frozen=True)
class Link:
    """How labels of `classes` classes follow from the signal."""

    classes: int

    @property
    def total(self) -> float:
        """Mean square of a free output."""
        return 1.0 if self.classes == 2 else 1 / self.classes

    def slope(self, rho: Array | float) -> Array:
        """The zeta of section 8.

        >>> round(float(Link(2).slope(np.sqrt(4.5))), 6)
        0.292117
        """
        grid, slopes = tabulate_slopes(self.classes)
        return np.asarray(
            np.exp(CubicSpline(grid, slopes)(np.log(np.clip(rho, LEAST_SIGNAL, MOST_SIGNAL))))
        )

    def signal(self, explained: Array | float) -> Array:
        """The rho at which features explain so much of a free output, clipped where nothing or
        everything is explained.

        >>> link = Link(3)
        >>> round(float(link.signal(link.slope(2.0) ** 2 * 4.0)), 6)
        2.0
        """
        grid, slopes = tabulate_slopes(self.classes)
        energy = 2 * (slopes + grid)
        at = np.clip(np.log(np.maximum(explained, 1e-300)), energy[0], energy[-1])
        return np.asarray(np.exp(CubicSpline(energy, grid)(at)))

    @property
    def most(self) -> float:
        """The most that features can explain: labels that follow them without noise."""
        grid, slopes = tabulate_slopes(self.classes)
        return float(np.exp(2 * (slopes[-1] + grid[-1])))


@lru_cache(maxsize=16)
def tabulate_slopes(classes: int) -> tuple[Array, Array]:
    """Logarithms of rho and of zeta."""
    rho = np.geomspace(LEAST_SIGNAL, MOST_SIGNAL, SIGNAL_POINTS)
    slope = (
        2 * phi(rho)
        if classes == 2
        else np.array([softmax_phi(float(each), classes) for each in rho])
    )
    return np.log(rho), np.log(slope)


@dataclass(frozen=True, eq=False)
class LabelModel:
    """Two numbers, r2 and B as least squares sees them (section 13), and what goes with them."""

    link: Link
    r2: float
    B: float
    spectrum: Spectrum
    centre_share: Array  # of the shared optimum's energy along each eigenvalue
    shift_share: Array  # of the displacements'

    def with_estimates(self, r2: float, B: float) -> LabelModel:
        """The same with other estimates; neither falls below what counts as none."""
        least = FAINT * self.link.total
        return replace(self, r2=max(r2, least / self.spectrum.mean), B=max(B, least))

    @property
    def strange(self) -> bool:
        """Whether features explain as much of the labels as this model allows without noise."""
        return self.B + self.r2 * self.spectrum.mean > STRANGE * self.link.most

    @cached_property
    def explained(self) -> float:
        """zeta^2 rho^2, the part of a free output's variance explained by features; never all."""
        return float(min(self.B + self.r2 * self.spectrum.mean, 0.999 * self.link.most))

    @cached_property
    def rho(self) -> float:
        """The standard deviation of a client's logits."""
        return float(self.link.signal(self.explained))

    @cached_property
    def zeta(self) -> float:
        """The slope of least squares on labels."""
        return float(self.link.slope(self.rho))

    @cached_property
    def energies(self) -> Energies:
        """What the formulas see; the two parts keep their ratio where the sum had to be cut."""
        s, h = self.spectrum.values, self.spectrum.weights
        BD = self.r2 * self.spectrum.mean
        scale = self.rho**2 / (self.B + BD)
        e0, ed = (
            scale * part * share / float(s @ share)
            for part, share in ((self.B, self.centre_share), (BD, self.shift_share))
        )
        return Energies(s, h, e0, ed)

    @property
    def radius(self) -> float:
        """r, the length of a displacement."""
        return float(np.sqrt(self.energies.ed.sum()))

    @property
    def centre(self) -> float:
        """b, the length of the shared optimum."""
        return float(np.sqrt(self.energies.e0.sum()))

    def population(self, aspect: float) -> ClassPopulation:
        """For `fa.predict` and its kin."""
        return ClassPopulation(
            radius=self.radius,
            centre=self.centre,
            aspect=aspect,
            classes=self.link.classes,
            spectrum=self.spectrum,
            centre_weights=self.centre_share,
            shift_weights=self.shift_share,
        )


def shared_error(world: LabelModel, excess: tuple[float, float]) -> Array:
    """Ev per atom: noise leaves an error even in the logits, displacements one in the weights."""
    s, h = world.spectrum.values, world.spectrum.weights
    seen = np.where(s > 0, h / np.where(s > 0, s, 1.0), 0.0)
    return np.asarray(excess[0] * seen / h[s > 0].sum() + excess[1] * h / world.spectrum.mean)


def least_squares_state(
    world: LabelModel,
    aspect: float,
    ridge: float,
    error: Array | float = 0.0,
    *,
    alone: bool = False,
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
    Q = (
        zeta**2 * B0
        + float(pull**2 @ (zeta**2 * s * e.ed + aspect * total * h))
        + float((s * (1 - pull) ** 2) @ ev)
    )
    return T, Q


def rule_accuracy(world: LabelModel, T: float, Q: float) -> float:
    """The share of labels that a rule gets right."""
    if world.link.classes == 2:
        return float(binary_accuracy(State.of(T, Q, world.rho)))
    return (
        SoftmaxRule(world.link.classes, world.rho, T, Q).accuracy
        if Q > 0
        else 1 / world.link.classes
    )


def probe_accuracy(
    world: LabelModel,
    aspect: float,
    ridge: float,
    error: Array | float = 0.0,
    *,
    alone: bool = False,
) -> float:
    """Accuracy of a least-squares classifier."""
    return rule_accuracy(world, *least_squares_state(world, aspect, ridge, error, alone=alone))


def best_label_ridge(
    world: LabelModel, aspect: float, error: Array | float = 0.0, *, alone: bool = False
) -> float:
    """The ridge of least squares (never that of the logistic loss): s2 gamma/(energy of what is
    learned), best for accuracy too if that has no preferred directions; otherwise searched about
    it.
    """
    e, zeta = (world.energies.alone if alone else world.energies), world.zeta
    s2 = world.link.total - (zeta * world.rho) ** 2
    spread = zeta**2 * float(e.ed.sum()) + (0.0 if alone else float(np.sum(error)))
    rule = s2 * aspect / max(spread, 1e-300)
    if np.allclose(e.ed / e.ed.sum(), e.h):
        return rule
    at = rule * np.geomspace(1e-3, 1e6, RIDGE_POINTS)
    cosine = [
        T / np.sqrt(Q)
        for T, Q in (
            least_squares_state(world, aspect, float(lam), error, alone=alone) for lam in at
        )
    ]
    return float(at[int(np.argmax(cosine))])  # accuracy increases with the cosine
