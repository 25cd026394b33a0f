"""Early-stopped fine-tuning (section 7): the loss after t gradient steps, or time t of gradient flow, from the shared model.

The error after fine-tuning is f(S_i) applied to the shared model's error, f(x) = (1 - step x)^t or exp(-t x), plus noise
filtered by (1 - f)^2/x.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput
from fedasym.theory.contours import Complex, Contour, support
from fedasym.theory.limits import interpolated
from fedasym.theory.worlds import Worlds
from fedasym.worlds.spectra import Spectrum


@dataclass(frozen=True)
class Filter:
    """f and what it leaves of the noise, for an array of stopping times; `step` None: gradient flow."""

    times: Array
    step: float | None

    def kept(self, x: Complex | Array) -> Complex:
        """f(x) per time (first axis)."""
        if self.step is None:
            return np.asarray(np.exp(self._exponent(x)))
        slow = np.abs(self.step * x) < 0.5
        return np.where(slow, np.exp(self._exponent(np.where(slow, x, 0))), (1 - self.step * x) ** self._column())

    def fitted(self, x: Complex | Array) -> Complex:
        """1 - f(x), accurate for short times."""
        slow = True if self.step is None else np.abs(self.step * x) < 0.5
        return np.where(slow, -np.expm1(self._exponent(np.where(slow, x, 0))), 1 - self.kept(x))

    def noise(self, x: Complex | Array) -> Complex:
        """(1 - f(x))^2 / x."""
        return self.fitted(x) ** 2 / x

    def contour(self, gamma: float, spectrum: Spectrum) -> Contour:
        """A contour on which |f| stays of order one: it hugs the spectrum the closer, the longer the times."""
        high = support(gamma, spectrum)[1]
        longest = max(self.times.max(), 1e-300) * (1 if self.step is None else self.step)
        reach = float(np.clip(1 / longest, high * 1e-14, high))
        room = np.inf if self.step is None else 2 / self.step + reach - high
        for _ in range(40):
            contour = Contour(gamma, spectrum, reach, high + room)
            if np.abs(self.kept(contour.nodes(6)[1])).max() < 4:
                break
            room = min(room, high) / 2
        return contour

    def _column(self) -> Array:
        return self.times[:, None]

    def _exponent(self, x: Complex | Array) -> Complex:
        """The logarithm of f(x), accurate for small x however long the time; zero stays zero for endless time."""
        rate = np.asarray(-x, dtype=complex) if self.step is None else log1p(-self.step * x)
        with np.errstate(invalid="ignore"):
            return np.where(rate == 0, 0, self._column() * rate)


def log1p(x: Complex | Array) -> Complex:
    """log(1 + x) for complex x: NumPy's loses the digits of small ones."""
    a, b = np.real(x), np.imag(x)
    return np.asarray(0.5 * np.log1p(a * (2 + a) + b * b) + 1j * np.arctan2(b, 1 + a))


def stopped(world: Worlds, filter_: Filter, extra: Array | None = None) -> tuple[Array, Array]:
    """Bias and variance along the path for one world, shape (times,).

    `extra`: energy of the shared model's noise per atom, for finitely many clients; it adds to the variance.
    """
    gamma, spectrum = float(world.gamma[0]), world.spectrum
    check_stable(filter_, gamma, spectrum)
    r2, s2 = float(world.r2[0]), float(world.s2[0])
    bias, variance = np.empty(filter_.times.size), np.empty(filter_.times.size)
    finished = filter_.times >= horizon(gamma, spectrum, filter_.step)
    if np.any(finished):
        bias[finished], variance[finished] = interpolated(world)
        if extra is not None:
            noise = Worlds(np.ones(1), np.zeros(1), world.gamma, extra[None], spectrum)
            variance[finished] += interpolated(noise)[0]
    for some, part in by_length(filter_, ~finished):
        contour = part.contour(gamma, spectrum)

        def through(energy: Array, part: Filter = part, contour: Contour = contour) -> Array:
            if spectrum.scale is not None or np.array_equal(energy, spectrum.weights):
                return np.asarray(energy.sum() * contour.trace(lambda z: part.kept(z) ** 2))
            return contour.squared(part.kept, energy)

        variance[some] = s2 * gamma * contour.trace(part.noise)
        bias[some] = r2 * through(world.g[0])
        if extra is not None:
            variance[some] += through(extra)
    return np.maximum(bias, 0), np.maximum(variance, 0)


def by_length(filter_: Filter, wanted: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.intp], Filter]]:
    """The wanted stopping times in decades: one contour suits times that differ by no more than a factor of ten."""
    decade = np.where(filter_.times > 0, np.floor(np.log10(np.maximum(filter_.times, 1e-300))), -np.inf)
    for each in np.unique(decade[wanted]):
        some = np.flatnonzero((decade == each) & wanted)
        yield some, Filter(filter_.times[some], filter_.step)


def check_stable(filter_: Filter, gamma: float, spectrum: Spectrum) -> None:
    """Refuse steps that diverge: step times the largest eigenvalue of the sample covariance must stay below 2."""
    if filter_.step is None or not np.any(filter_.times > 1):
        return
    limit = 2 / support(gamma, spectrum)[1]
    if filter_.step >= limit:
        raise InvalidInput(f"step is {filter_.step:g}: gradient descent diverges here from {limit:.6g} on; give a smaller step")


def horizon(gamma: float, spectrum: Spectrum, step: float | None) -> float:
    """The stopping time after which the path has converged to rounding; infinite at the interpolation threshold."""
    low, high = support(gamma, spectrum)
    rate = low if step is None else min(step * low, 2 - step * high)
    return 40 / rate if rate > 0 else np.inf


def single_step(world: Worlds) -> tuple[Array, Array, Array, Array]:
    """One gradient step of size a: B = r^2 (b0 - 2 a b1 + a^2 b2), V = sigma^2 v a^2; returns b0, b1, b2, v per world.

    b0 = sum g s, b1 = sum g s^2, b2 = sum g s^3 + gamma t2 sum g s, v = gamma t2, t2 = tau(Sigma^2).
    """
    s, h = world.spectrum.values, world.spectrum.weights
    moments = [np.broadcast_to(world.g @ s**power, world.r2.shape) for power in (1, 2, 3)]
    v = world.gamma * (s**2 @ h)
    return moments[0], moments[1], moments[2] + v * moments[0], v
