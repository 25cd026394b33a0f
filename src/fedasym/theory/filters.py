"""Any client stage in the limit, by its filter P(x): early-stopped descent (section 7), and
whatever else has one.

A filter says what a stage keeps of the shared model's error along an eigenvalue x of the client's
sample covariance. After t gradient steps, or time t of gradient flow, that is f(x) = (1 - step x)^t
or exp(-t x), and noise comes in by (1 - f)^2/x.

A filter that extends to complex z is integrated along a contour (equations 19 and 20); Cauchy's
formula f(x) = 1/(2 pi i) int f(z)/(z - x) dz, which must give back its values on the spectrum, says
whether it does and whether the contour stays clear of its singularities. Other filters are
integrated on the real axis, against the Marchenko-Pastur law, which covers uncorrelated features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.algorithms.stages import ClientStage
from fedasym.core.errors import InvalidInput, NoFormula
from fedasym.core.numbers import Array
from fedasym.theory import Parts, Worlds, interpolant_limit
from fedasym.theory.transforms import (
    MOST_LAW_NODES,
    Complex,
    Contour,
    marchenko_pastur,
    sample_support,
    sum_until_settled,
)
from fedasym.worlds.spectra import Spectrum


@dataclass(frozen=True)
class DescentFilter:
    """f and what it leaves of the noise, by stopping times; `step` None: gradient flow."""

    times: Array
    step: float | None

    def keep(self, x: Complex | Array) -> Complex:
        """f(x) per time (first axis)."""
        if self.step is None:
            return np.asarray(np.exp(self._exponent(x)))
        slow = np.abs(self.step * x) < 0.5
        return np.where(
            slow,
            np.exp(self._exponent(np.where(slow, x, 0))),
            (1 - self.step * x) ** self._column(),
        )

    def learn(self, x: Complex | Array) -> Complex:
        """1 - f(x), accurate for short times."""
        slow = True if self.step is None else np.abs(self.step * x) < 0.5
        return np.where(slow, -np.expm1(self._exponent(np.where(slow, x, 0))), 1 - self.keep(x))

    def noise(self, x: Complex | Array) -> Complex:
        """(1 - f(x))^2 / x."""
        return self.learn(x) ** 2 / x

    def contour(self, gamma: float, spectrum: Spectrum) -> Contour:
        """A contour on which |f| stays of order one, closer to the spectrum for longer times."""
        high = sample_support(gamma, spectrum)[1]
        longest = max(self.times.max(), 1e-300) * (1 if self.step is None else self.step)
        reach = float(np.clip(1 / longest, high * 1e-14, high))
        room = np.inf if self.step is None else 2 / self.step + reach - high
        for _ in range(40):
            contour = Contour(gamma, spectrum, reach, high + room)
            if np.abs(self.keep(contour.nodes(6)[1])).max() < 4:
                break
            room = min(room, high) / 2
        return contour

    def _column(self) -> Array:
        return self.times[:, None]

    def _exponent(self, x: Complex | Array) -> Complex:
        """The logarithm of f(x), accurate for small x at all times; zero stays zero at infinity."""
        rate = np.asarray(-x, dtype=complex) if self.step is None else complex_log1p(-self.step * x)
        with np.errstate(invalid="ignore"):
            return np.where(rate == 0, 0, self._column() * rate)


def complex_log1p(x: Complex | Array) -> Complex:
    """log(1 + x) for complex x: NumPy's loses the digits of small ones."""
    a = np.real(x)
    b = np.imag(x)
    return np.asarray(0.5 * np.log1p(a * (2 + a) + b * b) + 1j * np.arctan2(b, 1 + a))


def stopped_risk(
    world: Worlds, filter_: DescentFilter, extra: Array | None = None
) -> tuple[Array, Array]:
    """Bias and variance along the path for one world, shape (times,).

    `extra`: energy of the shared model's noise per atom, for finitely many clients; it adds to the
    variance.
    """
    gamma = float(world.gamma[0])
    spectrum = world.spectrum
    check_stable(filter_, gamma, spectrum)
    r2, s2 = float(world.r2[0]), float(world.s2[0])
    bias, variance = np.empty(filter_.times.size), np.empty(filter_.times.size)
    finished = filter_.times >= horizon(gamma, spectrum, filter_.step)
    if np.any(finished):
        bias[finished], variance[finished] = interpolant_limit(world)
        if extra is not None:
            noise = Worlds(np.ones(1), np.zeros(1), world.gamma, extra[None], spectrum)
            variance[finished] += interpolant_limit(noise)[0]
    for some, part in split_by_decades(filter_, ~finished):
        contour = part.contour(gamma, spectrum)

        def kept_energy(
            energy: Array, part: DescentFilter = part, contour: Contour = contour
        ) -> Array:
            if spectrum.scale is not None or np.array_equal(energy, spectrum.weights):
                return np.asarray(energy.sum() * contour.trace(lambda z: part.keep(z) ** 2))
            return contour.quadratic_form(part.keep, energy)

        variance[some] = s2 * gamma * contour.trace(part.noise)
        bias[some] = r2 * kept_energy(world.g[0])
        if extra is not None:
            variance[some] += kept_energy(extra)
    return np.maximum(bias, 0), np.maximum(variance, 0)


def split_by_decades(
    filter_: DescentFilter, wanted: NDArray[np.bool_]
) -> Iterator[tuple[NDArray[np.intp], DescentFilter]]:
    """The stopping times in decades: a contour suits times within a factor of ten."""
    decade = np.where(
        filter_.times > 0, np.floor(np.log10(np.maximum(filter_.times, 1e-300))), -np.inf
    )
    for each in np.unique(decade[wanted]):
        some = np.flatnonzero((decade == each) & wanted)
        yield some, DescentFilter(filter_.times[some], filter_.step)


def check_stable(
    filter_: DescentFilter, gamma: float, spectrum: Spectrum, name: str = "step"
) -> None:
    """Refuse steps that diverge: step times the largest sample eigenvalue must stay below 2."""
    if filter_.step is None or not np.any(filter_.times > 1):
        return
    limit = 2 / sample_support(gamma, spectrum)[1]
    if filter_.step >= limit:
        raise InvalidInput(
            f"{name} is {filter_.step:g}: gradient descent diverges here with steps of {limit:.6g}"
            " or more; give a smaller one"
        )


def horizon(gamma: float, spectrum: Spectrum, step: float | None) -> float:
    """The stopping time of convergence to rounding; infinite at the interpolation threshold."""
    low, high = sample_support(gamma, spectrum)
    rate = low if step is None else min(step * low, 2 - step * high)
    return 40 / rate if rate > 0 else np.inf


def single_step(world: Worlds) -> tuple[Array, Array, Array, Array]:
    """One gradient step of size a: B = r^2 (b0 - 2 a b1 + a^2 b2), V = sigma^2 v a^2; returns b0,
    b1, b2, v per world.

    b0 = sum g s, b1 = sum g s^2, b2 = sum g s^3 + gamma t2 sum g s, v = gamma t2, t2 =
    tau(Sigma^2).
    """
    s, h = world.spectrum.values, world.spectrum.weights
    moments = [np.broadcast_to(world.g @ s**power, world.r2.shape) for power in (1, 2, 3)]
    v = world.gamma * (s**2 @ h)
    return moments[0], moments[1], moments[2] + v * moments[0], v


# gradient steps (or flow times in units of the largest eigenvalue) searched for the best stopping
# point
LONGEST = 1e7


def best_stop(
    evaluate: Callable[[Array], Parts], world: Worlds, step: float | None, high: float
) -> tuple[float, float, float]:
    """The stopping point of lowest loss: a grid, then golden section (flow) or whole numbers."""
    end = horizon(float(world.gamma[0]), world.spectrum, step)

    def loss(at: Array) -> Array:
        bias, variance = evaluate(np.atleast_1d(at))
        return np.asarray(bias + variance)

    furthest = min(end, LONGEST / high if step is None else LONGEST)
    if step is None:
        grid = np.geomspace(1e-4 / high, furthest, 200)
    else:
        grid = np.unique(np.round(np.append(0, np.geomspace(1, furthest, 120))))
    values = loss(grid)
    bias, variance = evaluate(np.array([np.inf]))
    if bias[0] + variance[0] <= values.min() * (1 + 1e-12):
        return np.inf, float(bias[0]), float(variance[0])
    place = int(np.argmin(values))
    low, top = grid[max(place - 1, 0)], grid[min(place + 1, grid.size - 1)]
    if step is None:
        if place == 0:
            low = 0.0
        at = smooth_minimum(loss, low, top)
        at = 0.0 if loss(np.zeros(1))[0] <= loss(np.array([at]))[0] else at
    else:
        while top - low > 2:
            zoom = np.unique(np.round(np.linspace(low, top, 12))).astype(float)
            place = int(np.argmin(loss(zoom)))
            low, top = zoom[max(place - 1, 0)], zoom[min(place + 1, zoom.size - 1)]
            if zoom.size == top - low + 1 or zoom.size < 12:
                low = top = zoom[place]
        zoom = np.arange(low, top + 1, dtype=float)
        at = float(zoom[int(np.argmin(loss(zoom)))])
    bias, variance = evaluate(np.array([at]))
    return at, float(bias[0]), float(variance[0])


def smooth_minimum(loss: Callable[[Array], Array], low: float, top: float) -> float:
    """The minimiser on a short interval, by a polynomial, as the loss is analytic there."""
    series: Any = np.polynomial.Chebyshev.interpolate(loss, 12, domain=[low, top])
    roots = series.deriv().roots()
    inside = [
        float(root.real)
        for root in roots
        if abs(root.imag) < 1e-6 * (top - low) and low <= root.real <= top
    ]
    candidates = np.array([*inside, low, top])
    return float(candidates[np.argmin(series(candidates))])


# relative error of Cauchy's formula that a filter without singularities inside stays below
FILTER_CLOSE = 1e-9
MOST_GROWTH = 100.0  # of a filter on its contour over what it is on the spectrum
HALVINGS = 24  # of the contour's reach into the negatives, at the most
FILTER_NODES = 80  # a panel, for Cauchy's formula


@dataclass(frozen=True)
class StageFilter:
    """The filter of a client stage, with a leading axis as contours want it."""

    stage: ClientStage

    def keep(self, z: Complex | Array) -> Complex:
        """P(z)."""
        return evaluate_at(self.stage.keep, z)[None]

    def noise(self, z: Complex | Array) -> Complex:
        """(1 - P(z))^2 / z."""
        return np.asarray(evaluate_at(self.stage.learn, z) ** 2 / z)[None]


def filter_risk(stage: ClientStage, world: Worlds, extra: Array | None = None) -> Parts:
    """Bias and variance of one world, (1,); `extra`: energy of the shared model's noise by atom."""
    gamma = float(world.gamma[0])
    spectrum = world.spectrum
    r2, s2 = float(world.r2[0]), float(world.s2[0])
    check_filter(stage, gamma, spectrum)
    contour = find_contour(stage, gamma, spectrum)
    filter_ = StageFilter(stage)
    if contour is None:
        return uncorrelated_filter_risk(stage, world, extra)

    def kept_energy(energy: Array) -> Array:
        if spectrum.scale is not None or np.array_equal(energy, spectrum.weights):
            return np.asarray(energy.sum() * contour.trace(lambda z: filter_.keep(z) ** 2))
        return contour.quadratic_form(filter_.keep, energy)

    bias, variance = r2 * kept_energy(world.g[0]), s2 * gamma * contour.trace(filter_.noise)
    if extra is not None:
        variance = variance + kept_energy(extra)
    return np.maximum(bias, 0), np.maximum(variance, 0)


def check_filter(stage: ClientStage, gamma: float, spectrum: Spectrum) -> None:
    """Refuse a filter not finite on the spectrum, or forgetting what a client cannot see."""
    name = type(stage).__name__
    (low, high) = sample_support(gamma, spectrum)
    x = np.linspace(low, high, 33)
    values = filter_values(stage, x)
    if not np.all(np.isfinite(values)):
        raise InvalidInput(
            f"keep(x) of {name} is not finite at eigenvalues from {low:.3g} to {high:.3g}: correct"
            " the stage"
        )
    if gamma * spectrum.rank > 1:
        (nothing,) = filter_values(stage, np.zeros(1))
        if abs(nothing - 1) > FILTER_CLOSE:
            raise InvalidInput(
                f"keep(0) of {name} is {nothing:.6g}: it must be 1, as a client learns nothing"
                " where it has no samples"
            )


def evaluate_at(function: Any, z: Complex | Array) -> Complex:
    """A function of eigenvalues at complex ones."""
    return np.asarray(function(z), dtype=np.complex128)


def filter_values(stage: ClientStage, x: Array) -> Array:
    """P at real eigenvalues, one for each."""
    values = np.asarray(stage.keep(x), dtype=float)
    if values.shape not in ((), x.shape):
        raise InvalidInput(
            f"keep(x) of {type(stage).__name__} has shape {values.shape} for x of shape {x.shape}:"
            " one value for each x"
        )
    return np.broadcast_to(values, x.shape)


def find_contour(stage: ClientStage, gamma: float, spectrum: Spectrum) -> Contour | None:
    """A contour without a singularity of the filter, by Cauchy's formula; None: there is none."""
    low, high = sample_support(gamma, spectrum)
    # the ends come too near to the contour for a plain rule
    inside = np.linspace(low, high, 11)[1:-1]
    values = filter_values(stage, inside)
    tried = [(high * 0.5**k, np.inf) for k in range(HALVINGS)]
    # singularities beyond the spectrum too
    tried += [(high * 0.5**k, high * (1 + 0.5**k)) for k in range(HALVINGS)]
    for reach, furthest in tried:
        contour = Contour(gamma, spectrum, reach, furthest)
        kappa, z, _, arc = contour.nodes(FILTER_NODES)
        try:
            with np.errstate(all="ignore"):  # where it grows, another contour is taken
                f = evaluate_at(stage.keep, z)
        except (TypeError, ValueError):
            return None  # not for complex numbers at all
        if f.shape not in ((), z.shape) or not np.all(np.isfinite(f)):
            continue
        f = np.broadcast_to(f, z.shape)
        if np.abs(f).max() > MOST_GROWTH * max(1.0, float(np.abs(values).max())):
            continue  # what is small on the spectrum would be a difference of large numbers
        weights = f * (z / kappa) * arc
        again = 2 * (weights / (z - inside[:, None])).sum(-1).real
        if np.max(np.abs(again - values)) < FILTER_CLOSE * max(1.0, float(np.abs(f).max())):
            return contour
    return None


def uncorrelated_filter_risk(stage: ClientStage, world: Worlds, extra: Array | None) -> Parts:
    """Bias and variance against the Marchenko-Pastur law, for uncorrelated features."""
    spectrum = world.spectrum
    if spectrum.scale is None:
        raise NoFormula(
            f"{type(stage).__name__} has a keep(x) that does not extend to complex numbers, and"
            " then there is a formula only for uncorrelated features (spectra.identity()): write"
            ' it without max, abs or where, or take method="simulate"'
        )
    s = spectrum.scale

    def rule(nodes: int) -> tuple[Array, Array]:
        law = marchenko_pastur(world.gamma, nodes)
        x = law.x
        P = filter_values(stage, s * x[0])[None]
        learned = np.broadcast_to(np.asarray(stage.learn(s * x[0]), dtype=float), x[0].shape)[None]
        noise = np.where(x > 0, learned**2 / np.where(x > 0, x, 1), 0.0)
        kept = law.mean(P**2) * s
        found = np.concatenate([kept, world.gamma * law.mean(noise)])
        return found, np.abs(found)

    through, noise = sum_until_settled(rule, MOST_LAW_NODES)
    variance = world.s2 * noise
    if extra is not None:
        variance = variance + through * extra.sum()
    return world.r2 * world.g.sum(-1) * through, variance
