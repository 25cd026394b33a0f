"""What the tests of invariants share: populations to draw, over wide ranges of all parameters, and
an exact reference.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

import fedasym as fa
from fedasym.algorithms import Average, Descend, Flow
from fedasym.theory.transforms import kappa, kappa_slope

# Aspects near 1 are drawn on purpose: the formulas must hold there, however far finite sizes are
# from them.
near_thresholds = pytest.mark.filterwarnings("ignore::fedasym.ThresholdWarning")

EPS = float(np.finfo(float).eps)
DIGITS = 60
NOTHING = fa.Risk(0.0, 0.0)


def examples(count: int) -> settings:
    """The same examples in every run."""
    return settings(max_examples=count, deadline=None, derandomize=True, database=None)


def log_uniform(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(np.log10(low), np.log10(high)).map(lambda u: float(10.0**u))


NEAR_ONE = st.builds(
    lambda gap, sign: 1 + sign * gap, log_uniform(1e-12, 0.3), st.sampled_from([-1, 1])
)
ASPECTS = log_uniform(0.01, 1000) | NEAR_ONE
RIDGES = log_uniform(1e-12, 1e12)
SIZES = log_uniform(0.1, 10) | log_uniform(1e-6, 1) | log_uniform(1, 1e6) | st.just(0.0)
CLIENTS = log_uniform(1, 1e4).map(round)


@st.composite
def spectra(
    draw: st.DrawFn, *, decades: float = 8, atoms: int = 6, singular: bool = True
) -> fa.Spectrum:
    """Random atoms with random weights, some of them zero; condition numbers up to 10^decades."""
    exponents = draw(st.lists(st.floats(-decades, 0), min_size=1, max_size=atoms))
    shares = draw(st.lists(st.floats(0.05, 1), min_size=len(exponents), max_size=len(exponents)))
    values = draw(log_uniform(1e-3, 1e3)) * 10.0 ** np.array(exponents)
    null = draw(st.just(0.0) | st.floats(0.05, 0.8)) if singular else 0.0
    weights = (1 - null) * np.array(shares) / np.sum(shares)
    if null:
        values, weights = np.append(values, 0), np.append(weights, null)
    return fa.spectra.atoms(values, weights)


@st.composite
def worlds(
    draw: st.DrawFn, *, aspects: st.SearchStrategy[float] = ASPECTS, aligned: bool = True, **options
) -> fa.Population:
    """Populations of any size; some displacements aligned with the covariance."""
    spectrum = draw(spectra(**options))
    power = draw(st.just(0.0) | st.floats(-3 if spectrum.rank == 1 else 0, 3)) if aligned else 0.0
    per_seen = (
        spectrum.rank if draw(st.booleans()) else 1.0
    )  # the threshold counts the unknowns that samples can see
    return fa.Population(
        draw(SIZES), draw(SIZES), draw(aspects) / per_seen, spectrum=spectrum, shift_power=power
    )


def threshold_gap(world: fa.Population) -> float:
    """How far the unknowns that samples can see are from the samples; within rounding of 0,
    rounding decides.
    """
    return abs(float(world.aspect) * world.spectrum.rank - 1)


def risk_of(world: object, algorithm: str | fa.Algorithm, **options) -> fa.Risk:
    """The prediction for one algorithm."""
    return next(iter(fa.predict(world, [algorithm], **options).values()))


def close(found: fa.Risk, expected: fa.Risk, rtol: float, floor: fa.Risk = NOTHING) -> None:
    """Bias and variance agree, each relatively to itself or within the floor."""
    for part in ("bias", "variance"):
        np.testing.assert_allclose(
            getattr(found, part),
            getattr(expected, part),
            rtol=rtol,
            atol=getattr(floor, part),
            err_msg=part,
        )


def share(world: fa.Population, part: float) -> fa.Risk:
    """A share of what the population has to lose: r^2 sum g s, and the noise's energy."""
    return fa.Risk(
        part * world.radius**2 * float(world.displacement @ world.spectrum.values),
        part * world.noise**2,
    )


class Exact:
    """Equation (1), or (13) for finitely many clients, at high precision and with weights that sum
    to the rank exactly.
    """

    def __init__(self, aspect: float, spectrum: fa.Spectrum, clients: float = np.inf) -> None:
        s, h = spectrum.positive
        total = mpmath.fsum(map(mpmath.mpf, h.tolist()))
        self.aspect, self.rank = mpmath.mpf(aspect), mpmath.mpf(spectrum.rank)
        self.pooled = self.aspect / mpmath.mpf(clients)
        self.atoms = [
            (mpmath.mpf(x), mpmath.mpf(w) * self.rank / total)
            for x, w in zip(s.tolist(), h.tolist(), strict=True)
        ]

    def df(self, k: mpmath.mpf, order: int) -> mpmath.mpf:
        return mpmath.fsum(w * (x / (x + k)) ** order for x, w in self.atoms)

    def room(self, k: mpmath.mpf, order: int) -> mpmath.mpf:
        """ridge = kappa room(kappa, 1) and dridge/dkappa = room(kappa, 2)."""
        df = self.df(k, order)
        return 1 - self.aspect * df - self.pooled * (self.rank - df)

    def kappa(self, ridge: float | mpmath.mpf, start: float | mpmath.mpf) -> mpmath.mpf:
        """Newton, which converges from anywhere right of the equation's minimum, as it is convex
        there.
        """
        k, ridge = mpmath.mpf(start), mpmath.mpf(ridge)
        for _ in range(300):
            step = (k * self.room(k, 1) - ridge) / self.room(k, 2)
            k -= step
            if abs(step) <= mpmath.mpf(10) ** (20 - DIGITS) * abs(
                k
            ):  # room(k, 1) loses up to 12 digits near the threshold
                assert self.room(k, 2) > 0
                return k
        raise AssertionError("the reference did not converge")

    def growth(self, k: mpmath.mpf) -> mpmath.mpf:
        """kappa'."""
        return 1 / self.room(k, 2)

    def condition(self, k: mpmath.mpf) -> float:
        """1 + |d log kappa / d log aspect|: how rounding of the inputs shows in kappa."""
        return 1 + abs(float((1 - self.room(k, 1)) * self.growth(k)))


def solve(ridge: float, aspect: float, spectrum: fa.Spectrum) -> tuple[float, float]:
    """kappa and kappa' at one point."""
    k = kappa(np.array(ridge), np.array(aspect), spectrum)
    return float(k), float(kappa_slope(k, np.array(ridge), np.array(aspect), spectrum))


def isotropic_risk(
    exact: Exact, world: fa.Population, ridge: float, start: float
) -> tuple[fa.Risk, float]:
    """Equation (4), B = (r^2/aspect)(kappa - ridge kappa') and V = sigma^2 (kappa' - 1), and its
    condition.
    """
    with mpmath.workdps(DIGITS):
        k = exact.kappa(ridge, start)
        growth = exact.growth(k)
        bias = mpmath.mpf(world.radius) ** 2 / exact.aspect * (k - ridge * growth)
        variance = mpmath.mpf(world.noise) ** 2 * (growth - 1)
        return fa.Risk(float(bias), float(variance)), exact.condition(k)


def growth_of(world: fa.Population) -> float:
    """1 + aspect kappa'(0), which bounds how rounding of the aspect shows in a loss; cut off near
    the threshold.
    """
    return min(1 + float(world.aspect) * solve(0.0, world.aspect, world.spectrum)[1], 1e8)


def stopped(world: fa.Population, stage: Descend | Flow, **options) -> fa.Risk:
    return risk_of(world, fa.Algorithm("stopped", Average(), stage), **options)


SHARING = ("fedavg", "ftfa", "rtfa")
