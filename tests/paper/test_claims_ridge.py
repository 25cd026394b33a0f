"""Claims of the paper about the ridge: its ends, the best one, and the risk there."""

from __future__ import annotations

import numpy as np
import pytest

import fedasym as fa
from fedasym.theory.transforms import kappa, kappa_slope, sums_at

from ..cases import TWO_ATOM, resolvent, sample
from .settings import FINITE_SIZE, GRID, HALF, SPECTRA, close, over_spectra, shows


@over_spectra
def test_claim_ridge_to_zero_is_ftfa(covariance: fa.Spectrum) -> None:
    """RTFA tends to FTFA as the ridge vanishes, at a rate linear in it."""
    world = fa.Population(1.3, 0.6, 1.7, spectrum=covariance)
    ftfa = fa.predict(world, "ftfa")["ftfa"].loss
    close(fa.predict(world, "rtfa", ridge=0)["rtfa"].loss, ftfa)
    gaps = fa.predict(world, "rtfa", ridge=[1e-3, 1e-5])["rtfa"].loss - ftfa
    assert np.all(gaps < 0)
    close(gaps[0] / gaps[1], 100, rel=0.15)


@pytest.mark.parametrize("power", [-1, 0, 1])
@over_spectra
def test_claim_ridge_to_infinity_is_fedavg(covariance: fa.Spectrum, power: int) -> None:
    """RTFA tends to FedAvg as the ridge grows, at a rate linear in its inverse."""
    world = fa.Population(1.3, 0.6, 1.7, spectrum=covariance, shift_power=power)
    fedavg = fa.predict(world, "fedavg")["fedavg"].loss
    close(fa.predict(world, "rtfa", ridge=np.inf)["rtfa"].loss, fedavg)
    gaps = fa.predict(world, "rtfa", ridge=[1e4, 1e6])["rtfa"].loss - fedavg
    assert np.all(gaps < 0)
    close(gaps[0] / gaps[1], 100, rel=1e-2)


def test_claim_line_1724_closed_form_of_the_best_risk() -> None:
    """R* = 1/2 [r^2 (1 - 1/g) - s2 + sqrt(r^4 (1 - 1/g)^2 + s2^2 + 2 s2 r^2 (1 + 1/g))] <= r^2,
    below g = 1 too.
    """
    world = fa.Population(GRID["radius"], GRID["noise"], np.array([0.3, 0.9, 1, 1.1, 2, 7]))
    r2, s2, g = world.radius**2, world.noise**2, world.aspect
    root = np.sqrt(r2**2 * (1 - 1 / g) ** 2 + s2**2 + 2 * s2 * r2 * (1 + 1 / g))
    close(fa.optimal_loss(world), (r2 * (1 - 1 / g) - s2 + root) / 2, rel=1e-11)
    assert np.all(fa.optimal_loss(world) < r2)


@over_spectra
def test_claim_first_order_expansion_has_a_negative_constant(covariance: fa.Spectrum) -> None:
    """RTFA* - local ridge* = C (rho^2 - r^2) + o, with C = -kappa' kappa^2 sum h s/(s+kappa)^2 < 0
    at lam*.
    """
    world = fa.Population(1, HALF, 2, spectrum=covariance)
    best = fa.predict(world, "rtfa")["rtfa"]
    C = -best.bias / world.radius**2
    k = kappa(np.array(1.0), np.array(2.0), covariance)
    growth = kappa_slope(k, np.array(1.0), np.array(2.0), covariance)
    close(
        C,
        -growth * k**2 * (covariance.weights @ (covariance.values / (covariance.values + k) ** 2)),
    )
    assert C < 0
    rests = []
    for extra in (1e-2, 1e-3):
        here = fa.Population(1, HALF, 2, norm=np.sqrt(1 + extra), spectrum=covariance)
        table = fa.predict(here, ["rtfa", "local_ridge"])
        rests.append((table["rtfa"].loss - table["local_ridge"].loss) / extra - C)
    close(rests[0] / rests[1], 10, rel=0.05)


@over_spectra
def test_claim_best_risk_in_three_forms(covariance: fa.Spectrum) -> None:
    """R* = sigma^2 (kappa/lam* - 1) = r^2 kappa df1(kappa) = (r^2/gamma)(kappa - lam*), equation
    (5).
    """
    r2, s2, gamma = 2.0, 1.0, 4.0
    lam = s2 * gamma / r2
    k = kappa(np.array(lam), np.array(gamma), covariance)
    best = fa.optimal_loss(fa.Population(r2**0.5, s2**0.5, gamma, spectrum=covariance))
    close([s2 * (k / lam - 1), r2 * k * sums_at(k, covariance).df1, r2 / gamma * (k - lam)], best)


def test_claim_best_risk_is_not_sigma2_gamma_m_under_correlation() -> None:
    """sigma^2 gamma m(-lam*) of theorems 2 and 4 is the unweighted estimation error: 1.6568, where
    the risk is 2.1885.
    """
    r2, s2, gamma = 2.0, 1.0, 4.0
    lam = s2 * gamma / r2
    k = float(kappa(np.array(lam), np.array(gamma), TWO_ATOM))
    printed = s2 * gamma * (TWO_ATOM.weights @ (k / (TWO_ATOM.values + k))) / lam
    best = fa.optimal_loss(fa.Population(r2**0.5, s2**0.5, gamma, spectrum=TWO_ATOM))
    shows(best, "2.1885")
    shows(printed, "1.6568")
    draw = sample(TWO_ATOM, gamma)
    bias, variance = draw.risk(resolvent(lam), s2)
    close(r2 * bias + variance, best, rel=FINITE_SIZE)
    unweighted = draw.trace(
        lambda x: r2 * (lam / (x + lam)) ** 2 + s2 * gamma * x / (x + lam) ** 2,
        np.ones_like(draw.s),
    )
    close(unweighted, printed, rel=FINITE_SIZE)


@pytest.mark.parametrize("power", [-1, 1, 2])
@pytest.mark.parametrize("name", ["two_atom", "ar1", "power"])
def test_claim_best_ridge_differs_under_alignment(name: str, power: int) -> None:
    """With an aligned displacement sigma^2 gamma/r^2 is not the best ridge, and using it costs up
    to 26%.
    """
    for r2, s2, aspect in ((1, 0.5, 2), (2, 1, 4), (1, 0.05, 5), (3, 2, 1.2)):
        world = fa.Population(r2**0.5, s2**0.5, aspect, spectrum=SPECTRA[name], shift_power=power)
        bayes = s2 * aspect / r2
        assert (fa.optimal_ridge(world) > bayes) == (power < 0)
        excess = fa.predict(world, "rtfa", ridge=bayes)["rtfa"].loss / fa.optimal_loss(world) - 1
        assert 0.01 < excess < 0.26


def test_claim_best_ridge_may_be_negative() -> None:
    """A displacement along strong features and little noise: lam* = -0.0563, below which and above
    which it is worse.
    """
    world = fa.Population(1, 0.02**0.5, 2, spectrum=TWO_ATOM, shift_power=1)
    best = fa.optimal_ridge(world)
    shows(best, "-0.0563")
    near = fa.predict(world, "rtfa", ridge=[best - 1e-3, best + 1e-3, 0])["rtfa"].loss
    assert np.all(near > fa.optimal_loss(world))
