"""The numbers that separate regimes with classes: separability, the best ridge, and what weight interpolation repairs."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput, NoFormula
from fedasym.core.numbers import one_float
from fedasym.core.text import number, plain, preformatted
from fedasym.results.accuracy import Accuracy, percent
from fedasym.theory.classes import interpolation as mixing
from fedasym.theory.classes import multinomial_ridge as ridges
from fedasym.theory.classes.convergence import converged
from fedasym.theory.classes.ridge import solve
from fedasym.theory.classes.separability import threshold
from fedasym.theory.classes.shared import fedavg, shrinkage
from fedasym.verbs.classes import multinomial
from fedasym.verbs.classes.binary import Answer, ridged
from fedasym.verbs.classes.methods import check_ridge
from fedasym.verbs.classes.prediction import flattened, shaped
from fedasym.verbs.classes.scores import scored
from fedasym.verbs.fine_tuning import unboxed
from fedasym.worlds.classes import ClassPopulation
from fedasym.worlds.population import shown


@dataclass(frozen=True, eq=False)
class Separability:
    """Whether a client's classes can be separated: aspect (unknowns that samples see, per sample) against its threshold.

    >>> import fedasym as fa
    >>> str(fa.separability(fa.ClassPopulation(radius=1, centre=1, aspect=2)))
    'separable: aspect 2 is above the threshold 0.39855; the logistic fit has no end'
    """

    aspect: float | Array
    threshold: float | Array

    @property
    def separable(self) -> bool | NDArray[np.bool_]:
        """Where the logistic fit has no end."""
        over = np.asarray(self.aspect) >= np.asarray(self.threshold)
        return bool(over) if over.ndim == 0 else over

    def to_json(self) -> str:
        """Full precision."""
        over = self.separable if isinstance(self.separable, bool) else self.separable.tolist()
        return json.dumps({"aspect": plain(self.aspect), "threshold": plain(self.threshold), "separable": over}, indent=2)

    def __str__(self) -> str:
        if np.ndim(self.separable):
            return f"separable in {np.mean(self.separable):.0%} of the grid; thresholds {shown(self.threshold)}"
        side, end = ("above", "has no end") if self.separable else ("below", "is the maximum-likelihood estimate")
        word = "separable" if self.separable else "not separable"
        return f"{word}: aspect {number(self.aspect)} is {side} the threshold {number(self.threshold)}; the logistic fit {end}"

    def _repr_html_(self) -> str:
        return preformatted(self)


def separability(world: ClassPopulation) -> Separability:
    """The aspect above which a client's classes are separable, so that training to convergence has no end.

    gamma* = min_t E[(Z2 - t y Z1)_+^2] with P(y = 1 | Z1) = flips + (1 - 2 flips) sigmoid(rho Z1); it depends on the covariance
    through rho^2 = theta_i'Sigma theta_i alone, and is at most 1/2.

    >>> import fedasym as fa
    >>> round(fa.separability(fa.ClassPopulation(radius=1, centre=1, aspect=2)).threshold, 4)
    0.3985
    """
    checked_world(world)
    if world.classes > 2:
        raise NoFormula(
            f"the separability threshold is derived for two classes, not {world.classes}: give classes=2; a ridge or an early "
            "stop (optimal_ridge, fine_tuning) is needed either way"
        )
    e = world.energies
    aspect = np.broadcast_to(np.asarray(world.aspect) * e.rank, world.shape)
    edge = np.broadcast_to(threshold(e.rho, world.flips).gamma, world.shape)
    return Separability(unboxed(aspect), unboxed(edge))


def optimal_ridge_classes(world: ClassPopulation) -> float | Array:
    """The ridge of the highest accuracy of rtfa; see `fedasym.optimal_ridge`."""
    if world.classes == 2:
        found = ridged(flattened(world, world.shape, None, True), None).ridge
        assert found is not None
        return unboxed(found.reshape(world.shape))
    each = [world.at(index) for index in np.ndindex(world.shape)] if world.shape else [world]
    best = [ridges.best_ridge(one.energies, float(np.asarray(one.aspect)), one.classes).ridge for one in each]
    return unboxed(np.reshape(best, world.shape))


@dataclass(frozen=True, eq=False)
class Mixture:
    """The shared and the personal model mixed by their weights, theta_bar + alpha (theta_hat - theta_bar).

    For a personal model without a length (trained to convergence on separable classes, `direction`) it is
    theta_bar + alpha theta_hat, with theta_hat scaled to margin 1.

    >>> import fedasym as fa
    >>> mixed = fa.interpolation(fa.ClassPopulation(radius=1.5, centre=1.5, aspect=2), ridge=0.01)
    >>> round(mixed.alpha, 2), round(mixed.personal.accuracy, 3), round(mixed.mixed.accuracy, 3)
    (0.13, 0.637, 0.695)
    """

    alpha: float | Array
    mixed: Accuracy
    personal: Accuracy
    shared: Accuracy
    direction: bool = False

    def to_json(self) -> str:
        """Full precision: alpha, and the scores of the mixture and its two parts."""
        scores = ("accuracy", "log_loss", "brier", "slope")
        rows = {"mixed": self.mixed, "personal": self.personal, "shared": self.shared}
        parts = {part: {name: plain(getattr(row, name)) for name in scores} for part, row in rows.items()}
        return json.dumps({"alpha": plain(self.alpha), "direction": self.direction, **parts}, indent=2)

    def __str__(self) -> str:
        if np.ndim(self.alpha):
            return f"mixtures of {np.size(self.alpha)} worlds, alpha {shown(self.alpha)}"
        formula = "shared + alpha personal" if self.direction else "shared + alpha (personal - shared)"
        told = f"alpha {number(self.alpha)} in {formula}: accuracy {percent(self.mixed.accuracy)}"
        return f"{told}; personal alone {percent(self.personal.accuracy)}, shared alone {percent(self.shared.accuracy)}"

    def _repr_html_(self) -> str:
        return preformatted(self)


def interpolation(world: ClassPopulation, *, ridge: ArrayLike | None = None, alpha: float | None = None) -> Mixture:
    """What mixing the weights of the shared and the personal model repairs, at the best alpha or at a given one.

    With O = theta_hat'Sigma theta_0, Gram = [[c^2 B0, c O], [c O, Q]] and t = (c B0, T) the best weights are v = Gram^-1 t.

    ridge: of the personal model, rtfa; 0: trained to convergence; by default its best, which leaves little to repair.

    >>> import fedasym as fa
    >>> world = fa.ClassPopulation(radius=1.5, centre=1.5, aspect=2)
    >>> ended = fa.interpolation(world, ridge=0)
    >>> round(ended.personal.accuracy, 4), round(ended.mixed.accuracy, 4)
    (0.594, 0.6935)
    """
    checked_world(world)
    if alpha is not None and not np.isfinite(one_float(alpha)):
        raise InvalidInput(f"alpha is {alpha!r}: it must be finite, 0 for the shared and 1 for the personal model")
    lam = None if ridge is None else check_ridge(ridge)
    if lam is not None and np.ndim(lam):
        raise InvalidInput("ridge must be one number here; call interpolation once for each")
    if world.classes > 2:
        return mixed_multinomial(world, lam, alpha)
    worlds = flattened(world, world.shape, None, True)
    e, gamma, eps = worlds.e, worlds.gamma, worlds.eps
    c = shrinkage(e, eps)
    end = converged(e, gamma, eps) if lam == 0 else None
    if end is not None and np.any(end.separable) and not np.all(end.separable):
        raise InvalidInput("ridge is 0 and the grid has worlds on both sides of separability: give a ridge above 0")
    if end is None:
        best = np.full(gamma.shape, lam) if lam is not None else ridged(worlds, None).ridge
        fit = solve(e, gamma, best, c, eps)  # type: ignore[arg-type]
        found, personal = mixing.interpolate(e, c, fit, alpha), Answer(fit, ridge=best)
    else:
        mix = mixing.added if np.all(end.separable) else mixing.interpolate
        found, personal = mix(e, c, end.fit, alpha), Answer(end.fit, endless=end.separable)
    states = Answer(found.state), personal, Answer(fedavg(e, eps))
    mixed, own, shared = (shaped([scored(each, eps)], world.shape) for each in states)
    weight = unboxed(np.broadcast_to(found.alpha, gamma.shape).reshape(world.shape))
    return Mixture(weight, mixed, own, shared, end is not None and bool(np.all(end.separable)))


def mixed_multinomial(world: ClassPopulation, lam: float | Array | None, alpha: float | None) -> Mixture:
    """The same for more classes, at the best alpha of one world."""
    if alpha is not None:
        raise NoFormula("with more than two classes the best alpha is given: leave alpha out")
    if world.shape:
        raise InvalidInput("the population holds arrays: with more than two classes give plain numbers, one world at a time")
    e, gamma, C = world.energies, float(np.asarray(world.aspect)), world.classes
    if lam == 0:
        raise ridges.converged(C)
    fit = ridges.best_ridge(e, gamma, C) if lam is None else ridges.rtfa(e, gamma, float(np.asarray(lam)), C)
    rule, weight = ridges.interpolated(fit, e)
    scores = multinomial.scored
    return Mixture(weight, scores(rule), scores(fit, ridge=fit.ridge), scores(multinomial.kept(world)))


def checked_world(world: object) -> None:
    """Refuse what has no classes."""
    if not isinstance(world, ClassPopulation):
        raise InvalidInput(f"world is {type(world).__name__}: this is for a ClassPopulation, clients whose labels are classes")
