"""The population that estimates stand for: the signal, its split into what is shared and what differs, client sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.optimize

from fedasym.advisor.classes.links import Link
from fedasym.advisor.classes.moments import Moments
from fedasym.advisor.kinds import Kinds
from fedasym.core.arrays import Array
from fedasym.worlds.classes import ClassPopulation
from fedasym.worlds.energies import Energies
from fedasym.worlds.spectra import Spectrum

POWERS = -1.0, 3.0  # alignments of the shared optimum that are looked for
CLEAR = 3.0  # standard errors from which an alignment is believed
STRANGE = 0.95  # of the most that features can explain in the model
FAINT = 1e-6  # of the labels' variance: a signal below is none


@dataclass(frozen=True, eq=False)
class World:
    """Two numbers, r2 and B as least squares sees them (section 13), and what goes with them."""

    link: Link
    r2: float
    B: float
    spectrum: Spectrum
    centre_share: Array  # of the shared optimum's energy along each eigenvalue
    shift_share: Array  # of the displacements'

    @classmethod
    def of(cls, found: Moments, classes: int) -> World:
        """The estimated one."""
        spectrum, profile, centre, shift = found.spectrum, found.profile, None, None
        if profile is None:
            centre = by_power(spectrum, power_of(found))
        elif profile.centre is not None or profile.shift is not None:
            spectrum, centre, shift = profile.spectrum, profile.centre, profile.shift
        even = spectrum.weights
        blank = cls(Link(classes), 0.0, 0.0, spectrum, even if centre is None else centre, even if shift is None else shift)
        return blank.moved(float(found.point[1]), float(found.point[2]))

    def moved(self, r2: float, B: float) -> World:
        """The same with other estimates; neither falls below what counts as none."""
        least = FAINT * self.link.total
        return replace(self, r2=max(r2, least / self.spectrum.mean), B=max(B, least))

    @property
    def strange(self) -> bool:
        """Whether features explain about as much of the labels as, in this model, labels without noise would let them."""
        return self.B + self.r2 * self.spectrum.mean > STRANGE * self.link.most

    @cached_property
    def explained(self) -> float:
        """zeta^2 rho^2, the part of a free output's variance that features explain; never all of it."""
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
            scale * part * share / float(s @ share) for part, share in ((self.B, self.centre_share), (BD, self.shift_share))
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


def power_of(found: Moments) -> float:
    """The p for which a shared optimum with energies like s^p has the observed lift; 0 unless that is clear."""
    lift, error = found.lift
    s, h = found.spectrum.values, found.spectrum.weights

    def lifted(p: float) -> float:
        weights = h * (s / s.max()) ** p
        return float(weights @ s**2 / (weights @ s)) * float(h @ s) / float(h @ s**2)

    if not np.isfinite(error) or not np.isfinite(lift) or abs(lift - 1) < CLEAR * error:
        return 0.0
    low, high = lifted(POWERS[0]), lifted(POWERS[1])
    if lift <= low or lift >= high:
        return POWERS[0] if lift <= low else POWERS[1]
    return float(scipy.optimize.brentq(lambda p: lifted(p) - lift, *POWERS))


def by_power(spectrum: Spectrum, power: float) -> Array:
    """Shares that go like s^power."""
    s, h = spectrum.values, spectrum.weights
    weights = h * (s / s.max()) ** power
    return np.asarray(weights / weights.sum())


@dataclass(frozen=True, eq=False)
class Sizes:
    """Clients by size: aspects and shares of the kinds, the middling one, and how many clients of a kind all samples make."""

    kinds: Kinds
    dimension: int

    @property
    def share(self) -> Array:
        """Of clients."""
        return np.asarray(self.kinds.count / self.kinds.count.sum())

    @property
    def middle(self) -> int:
        """The kind of the median client."""
        return self.kinds.middle

    @property
    def samples(self) -> float:
        """Of a middling client."""
        return float(self.kinds.samples[self.middle])

    @property
    def aspects(self) -> Array:
        """Unknowns per sample."""
        return np.asarray(self.dimension / self.kinds.samples)

    @property
    def equivalent(self) -> Array:
        """Clients of each kind that have as many samples as all clients together: what the pooled fit sees."""
        return np.asarray(float(self.kinds.count @ self.kinds.samples) / self.kinds.samples)

    @property
    def pooled_aspect(self) -> float:
        """Unknowns per sample of all clients together."""
        return self.dimension / float(self.kinds.sizes.sum())

    @property
    def alike(self) -> float:
        """The sum of squares of the clients' weights in the shared model: 1/m where all have as many samples."""
        return float(self.kinds.sizes @ self.kinds.sizes) / float(self.kinds.sizes.sum()) ** 2
