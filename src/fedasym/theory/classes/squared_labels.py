"""Least squares on class labels (sections 8 and 13): linear probes, and what they get right.

Least squares on labels -1 and +1 (a linear probe) is the squared-loss theory with a rescaled truth:
y = zeta x'theta_i + e with zeta = 2(1-2 eps) phi(rho) and Var e = 1 - zeta^2 rho^2, so that the
shared model is zeta theta_0, the displacement zeta Delta, and every limit of `fedasym.theory`
applies; accuracy then comes from T and Q.

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
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import CubicSpline

from fedasym.core.numbers import Array
from fedasym.theory import Worlds, ridge_limit
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
    def explained_variance(self) -> float:
        """zeta^2 rho^2, the part of a free output's variance explained by features; never all."""
        return float(min(self.B + self.r2 * self.spectrum.mean, 0.999 * self.link.most))

    @cached_property
    def rho(self) -> float:
        """The standard deviation of a client's logits."""
        return float(self.link.signal(self.explained_variance))

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
    s = e.s
    h = e.h
    zeta = world.zeta
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
    e = world.energies.alone if alone else world.energies
    zeta = world.zeta
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


class Probe(NamedTuple):
    """The linear problem behind the labels: their slope zeta and the remaining variance s2."""

    zeta: Array
    s2: Array


class LeastSquares(NamedTuple):
    """The state of the fit and its squared-loss risk, equation (3)."""

    state: State
    risk: Array


def label_probe(rho: ArrayLike, eps: ArrayLike = 0.0) -> Probe:
    """Their slope zeta = 2(1-2 eps) phi(rho), and s2 = 1 - zeta^2 rho^2.

    >>> [round(float(x), 9) for x in label_probe(np.sqrt(4.5))]
    [0.292117193, 0.616003956]
    """
    rho = np.asarray(rho, dtype=float)
    zeta = 2 * (1 - 2 * np.asarray(eps)) * phi(rho)
    return Probe(zeta, 1 - zeta**2 * rho**2)


def best_probe_ridge(energies: Energies, gamma: ArrayLike, eps: ArrayLike = 0.0) -> Array:
    """lam* = s2 gamma/(zeta^2 r^2), of least risk (isotropic Delta); infinite at r = 0."""
    zeta, s2 = label_probe(energies.rho, eps)
    with np.errstate(divide="ignore"):
        return np.asarray(s2 * np.asarray(gamma) / (zeta**2 * energies.r2))


def fit_squares(
    energies: Energies, gamma: ArrayLike, lam: ArrayLike, eps: ArrayLike = 0.0
) -> LeastSquares:
    """Ridge towards the shared least-squares model; lam = 0: converged, infinite lam: shared.

    T = zeta (B0 + sum ED s^2/(s+kappa)),  Q = zeta^2 B0 + sum s/(s+kappa)^2 {zeta^2 s^2 ED + gamma
    (s2 + risk) s h}. For a method that shares nothing give `energies.alone`.

    >>> round(float(fit_squares(Energies.isotropic(1.5, 1.5), gamma=2, lam=0).risk), 9)
    0.712002967
    """
    shape = np.broadcast_shapes(energies.batch, *(np.shape(x) for x in (gamma, lam, eps)))
    e = energies.broadcast(shape).flat()
    g, ridge, flips = (
        np.broadcast_to(np.asarray(x, dtype=float), shape).reshape(-1) for x in (gamma, lam, eps)
    )
    zeta, s2 = label_probe(e.rho, flips)
    k, risk = np.empty(g.size), np.empty(g.size)
    covariances, which = np.unique(np.concatenate([e.s, e.h], axis=1), axis=0, return_inverse=True)
    for i, row in enumerate(covariances):
        rows = np.flatnonzero(which.reshape(-1) == i)
        values, weights = np.split(row, 2)
        spectrum = Spectrum(values, weights, "features")
        r2 = e.r2[rows]
        share = np.divide(
            e.ed[rows],
            r2[:, None],
            out=np.broadcast_to(weights, e.ed[rows].shape).copy(),
            where=r2[:, None] > 0,
        )
        world = Worlds(zeta[rows] ** 2 * r2, s2[rows], g[rows], share, spectrum)
        k[rows] = kappa(ridge[rows], g[rows], spectrum)
        risk[rows] = sum(ridge_limit(world, ridge[rows]))
    s, h = e.s, e.h
    near = np.divide(s, s + k[:, None], out=np.zeros(s.shape), where=s > 0)  # s/(s+kappa)
    T = zeta * (e.b0 + (e.ed * s * near).sum(-1))
    noise = np.where(k == np.inf, 0.0, g * (h * near**2).sum(-1))
    with np.errstate(invalid="ignore"):
        Q = (
            zeta**2 * e.b0
            + zeta**2 * (s * near**2 * e.ed).sum(-1)
            + np.where(noise > 0, noise * (s2 + risk), 0.0)
        )
    state = State.of(T, Q, e.rho)
    return LeastSquares(
        State(*(x.reshape(shape) for x in (state.T, state.Q, state.rho, state.rest))),
        risk.reshape(shape),
    )


@dataclass(frozen=True)
class OneHotProbe(SoftmaxRule):
    """A least-squares fit of one-hot labels: scores, not logits; accuracy and risk have meaning."""

    ridge: float
    zeta: float
    noise: float  # s2
    risk: float  # excess squared error per contrast


def fit_one_hot(
    energies: Energies, aspect: float, ridge: float | None, classes: int, *, shared: bool = True
) -> OneHotProbe:
    """Ridge regression around the shared probe zeta W0 (or around nothing) on one-hot labels.

    `ridge` 0: the interpolator (FTFA); infinite: the shared probe (FedAvg); None: the best, s2
    gamma/(zeta^2 r^2), which is best for accuracy too when Delta is isotropic.

    >>> probe = fit_one_hot(Energies.isotropic(1.5, 1.5), 2.0, None, 3)
    >>> round(probe.ridge, 4), round(probe.accuracy, 4)
    (6.2795, 0.6038)
    """
    s, h = energies.s, energies.h
    if not shared:
        energies = energies.alone
    ED = energies.ed
    rho = float(energies.rho)
    zeta = softmax_phi(rho, classes)
    s2 = 1 / classes - zeta * zeta * rho * rho
    if ridge is None:
        spread = zeta * zeta * float(ED.sum())
        ridge = s2 * aspect / spread if spread > 0 else np.inf
    B0 = float(energies.b0)
    if np.isinf(ridge):
        return OneHotProbe(
            classes, rho, zeta * B0, zeta**2 * B0, ridge, zeta, s2, zeta**2 * float(energies.bd)
        )
    k = float(kappa(np.array([ridge]), np.array([aspect]), Spectrum(s, h, "classes"))[0])
    pull: Array = np.divide(s, s + k, out=np.zeros_like(s), where=s > 0)
    room = 1 - aspect * float(np.sum(h * pull**2))
    left = s2 + zeta**2 * float(np.sum(ED * s * (1 - pull) ** 2))
    # s2 + risk; as many samples as unknowns and no ridge: unbounded
    total = left / room if room > 1e-12 else np.inf
    T = zeta * (B0 + float(np.sum(ED * s * pull)))
    Q = zeta**2 * B0 + float(np.sum(pull**2 * (zeta**2 * s * ED + aspect * total * h)))
    return OneHotProbe(classes, rho, T, Q, ridge, zeta, s2, total - s2)
