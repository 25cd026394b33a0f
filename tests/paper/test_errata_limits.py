"""Misprints of the paper: the limits, and the statements of the theorems."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq

import fedasym as fa
from fedasym.theory.transforms import kappa, kappa_slope, sums_at

from ..cases import IDENTITY, TWO_ATOM, Array, Clients, draw_clients, null, resolvent, sample
from .settings import (
    EXAMPLE,
    FINITE_SIZE,
    LABELS,
    MANY,
    apart,
    close,
    over_spectra,
    stieltjes_and_slope,
    stieltjes_identity,
)


def c0(world: fa.Population) -> float:
    """The solution of line 1062: 1 - 1/gamma = int 1/(1 + c0 gamma s) dH."""
    s, h, gamma = world.spectrum.values, world.spectrum.weights, world.aspect
    return brentq(
        lambda c: h @ (1 / (1 + c * gamma * s)) - (1 - 1 / gamma), 0, 1e3, xtol=1e-15, rtol=1e-15
    )


def interpolated_limit(world: fa.Population, power: int, factor: float) -> tuple[float, float]:
    """Lines 1067 and 1069: denominators (1 + c0 gamma s)^power, and a factor of the variance;
    printed with 1 and 1.
    """
    s, h, gamma = world.spectrum.values, world.spectrum.weights, world.aspect
    below = (1 + c0(world) * gamma * s) ** power
    ratio = (h @ (s**2 / below)) / (h @ (s / below))
    bias = world.radius**2 * (1 + gamma * c0(world) * ratio) * (world.displacement @ (s / below))
    return bias, world.noise**2 * gamma * factor * ratio


@pytest.mark.parametrize("power", [-1, 0, 1])
@over_spectra
def test_erratum_1067_bias_of_the_interpolant(covariance: fa.Spectrum, power: int) -> None:
    """The denominators lack a square; as printed an isotropic displacement gives FedAvg's risk."""
    world = fa.Population(1.3, 0.6, 2, spectrum=covariance, shift_power=power)
    right = fa.predict(world, "ftfa")["ftfa"].bias
    printed = interpolated_limit(world, 1, 1)[0]
    close(interpolated_limit(world, 2, 1)[0], right)
    apart(printed, right)
    if power == 0:
        close(printed, fa.predict(world, "fedavg")["fedavg"].loss)


@over_spectra
def test_erratum_1069_variance_of_the_interpolant(covariance: fa.Spectrum) -> None:
    """Besides the squares a factor c0 is missing; with neither, uncorrelated features give sigma^2
    gamma.
    """
    world = fa.Population(1.3, 0.6, 3, spectrum=covariance)
    right = fa.predict(world, "ftfa")["ftfa"].variance
    printed, squared, scaled = (
        interpolated_limit(world, *form)[1] for form in ((1, 1), (2, 1), (1, c0(world)))
    )
    close(interpolated_limit(world, 2, c0(world))[1], right)
    apart(printed, right)
    apart(squared, right)
    if covariance is IDENTITY:  # one atom: the squares cancel in the ratio
        close([printed, squared], 0.6**2 * 3)
        close([right, scaled], 0.6**2 / (3 - 1))
    else:
        apart(scaled, right)


class Appendix:
    """m_n(-lam), its derivative and m_{n,1}(-lam) of lines 1074 to 1080, solved from their own
    equations.
    """

    def __init__(self, world: fa.Population, lam: float) -> None:
        self.s, self.h, self.g, gamma = (
            world.spectrum.values,
            world.spectrum.weights,
            world.displacement,
            world.aspect,
        )
        self.world, self.lam = world, lam

        def excess(m: float) -> float:
            return m - self.h @ (1 / (self.s * (1 - gamma + gamma * lam * m) + lam))

        self.m = brentq(excess, max(1 - 1 / gamma, 0) / lam, 1 / lam, xtol=1e-15, rtol=1e-15)
        self.w = 1 - gamma + gamma * lam * self.m
        self.reach = (self.w * self.s + lam) ** 2
        first, second = self.h @ (1 / self.reach), self.h @ (self.s / self.reach)
        self.slope = (first + gamma * self.m * second) / (1 + gamma * lam * second)
        self.m1 = self.h @ (self.s**2 * self.w / self.reach) / (1 + gamma * lam * second)

    def bias(self, power: int) -> float:
        """Line 1083, printed with ||theta||^1."""
        shape = self.lam**2 * (1 + self.world.aspect * self.m1) * (self.g @ (self.s / self.reach))
        return self.world.radius**power * shape

    def variance(self, power: int) -> float:
        """Line 1084, printed with lam^1 in front of m'."""
        gamma = self.world.aspect
        top = 1 - gamma + gamma * self.lam**power * self.slope
        return self.world.noise**2 * gamma * top * (self.h @ (self.s**2 / self.reach))


@pytest.mark.parametrize("lam", [0.3, 1.0, 2.0])
@over_spectra
def test_line_1079_is_right_as_printed(covariance: fa.Spectrum, lam: float) -> None:
    """m_{n,1} = df2/(1 - gamma df2), so 1 + gamma m_{n,1} = kappa'."""
    page = Appendix(fa.Population(1, 1, 2, spectrum=covariance), lam)
    k = kappa(np.array(lam), np.array(2.0), covariance)
    df2 = float(sums_at(k, covariance).df2)
    close(page.m1, df2 / (1 - 2 * df2))
    close(1 + 2 * page.m1, kappa_slope(k, np.array(lam), np.array(2.0), covariance))


@pytest.mark.parametrize("power", [-1, 0, 1])
@over_spectra
def test_erratum_1083_bias_of_ridge(covariance: fa.Spectrum, power: int) -> None:
    """||theta|| should be squared: invisible for a radius of 1."""
    for radius in (1.0, 1.3):
        world = fa.Population(radius, 0.6, 2, spectrum=covariance, shift_power=power)
        page, right = Appendix(world, 0.4), fa.predict(world, "rtfa", ridge=0.4)["rtfa"].bias
        close(page.bias(2), right)
        if radius == 1:
            close(page.bias(1), right)
        else:
            apart(page.bias(1), right)


@over_spectra
def test_erratum_1084_variance_of_ridge(covariance: fa.Spectrum) -> None:
    """lam m' should be lam^2 m': invisible at lam = 1, of the wrong sign or size elsewhere."""
    world = fa.Population(1.3, 0.6, 2, spectrum=covariance)
    for lam in (0.2, 1.0, 3.0):
        page, right = Appendix(world, lam), fa.predict(world, "rtfa", ridge=lam)["rtfa"].variance
        close(page.variance(2), right, rel=1e-11)
        if lam == 1:
            close(page.variance(1), right, rel=1e-11)
        else:
            apart(page.variance(1), right, rel=0.2)


def test_erratum_494_stieltjes_transform_of_the_sample_covariance() -> None:
    """m is not the transform of the spectrum of Sigma: its own closed form, and a draw, are the
    sample covariance's.
    """
    lam, gamma = 0.7, 2.0
    printed, right = 1 / (1 + lam), stieltjes_identity(-lam, gamma)
    draw = sample(IDENTITY, gamma)
    close(draw.trace(lambda x: 1 / (x + lam)), right, rel=FINITE_SIZE)
    apart(printed, right, rel=0.2)
    risk = fa.predict(fa.Population(1, 1, gamma), "rtfa", ridge=lam)["rtfa"]
    apart((lam * printed) ** 2, risk.bias, rel=0.2)
    apart(gamma * (printed - lam * printed**2), risk.variance, rel=0.2)


def test_erratum_553_norm_is_not_squared() -> None:
    """rho_i is the length of theta_i, not its square: else rho >= r fails and the local interpolant
    would win.
    """
    shared, radius = 0.3, 0.4
    length = np.hypot(shared, radius)
    clients = draw_clients(21, [300, 300], np.ones(600))
    theta = np.random.default_rng(22).standard_normal(600)
    theta *= length / np.linalg.norm(theta)
    exact = clients.bias(clients.model("local", 0), 0, np.stack([theta, theta]))
    right, printed = (
        fa.predict(fa.Population(radius, 0, 2, norm=norm), ["local", "ftfa"])
        for norm in (length, length**2)
    )
    close(exact, right["local"].loss, rel=0.1)
    apart(exact, printed["local"].loss, rel=0.5)
    assert length**2 < radius < length
    assert printed["local"].loss < printed["ftfa"].loss
    assert right["ftfa"].loss < right["local"].loss


def test_erratum_285_against_408_and_473_loss_has_a_half() -> None:
    """The limits hold for 1/(2n)||X theta - y||^2; without the half the ridge counts half and the
    MAML step double.
    """
    lam, start = 0.8, np.zeros((3, 1))

    def uphill(theta: Array, half: float) -> float:
        return np.abs(2 * half * MANY.gradient(LABELS, 0, theta) + lam * (theta - start)).max()

    assert uphill(MANY.shrink(LABELS, 0, start, lam), 0.5) < 1e-12
    assert uphill(MANY.shrink(LABELS, 0, start, lam), 1.0) > 0.05
    assert uphill(MANY.shrink(LABELS, 0, start, lam / 2), 1.0) < 1e-12
    best = fa.optimal_ridge(EXAMPLE)
    loss = fa.predict(EXAMPLE, "rtfa", ridge=[best, best / 2])["rtfa"].loss
    close(loss[0], fa.optimal_loss(EXAMPLE))
    assert loss[1] > 1.02 * loss[0]
    # Line 1373: the residual after a step is W (X theta - y) with W = I - (alpha/n) X X' for the
    # loss with the half only.
    X, alpha, theta = MANY.X[0], 0.3, np.ones((3, 1))
    stepped = [
        X @ (theta - alpha * 2 * half * MANY.gradient(LABELS, 0, theta)) - LABELS[0]
        for half in (0.5, 1.0)
    ]
    printed = (np.eye(10) - alpha / 10 * X @ X.T) @ (X @ theta - LABELS[0])
    close(stepped[0], printed, rel=1e-11)
    apart(stepped[1], printed)


def test_erratum_320_distribution_of_the_eigenvalues() -> None:
    """The sum over j must compare with s_j; with one fixed s_i the law is a single step."""
    eigenvalues = np.array([3, 1, 0.5])
    law = fa.spectra.eigenvalues(eigenvalues)
    points = np.array([0.4, 0.7, 2, 5])
    right = [np.mean(at >= eigenvalues) for at in points]
    close(right, [0, 1 / 3, 2 / 3, 1])
    close([law.weights[law.values <= at].sum() for at in points], right)
    for i in range(3):
        printed = [np.mean([at >= eigenvalues[i] for _ in eigenvalues]) for at in points]
        assert not np.allclose(printed, right)


def test_erratum_1054_first_inner_product() -> None:
    """The weights are (v_1'theta)^2, ..., (v_d'theta)^2 over ||theta||^2; with a constant c first
    they do not sum to one.
    """
    rng = np.random.default_rng(41)
    s, V = np.linalg.eigh(np.cov(rng.standard_normal((5, 40))))
    theta = rng.standard_normal(5)
    inner = V.T @ theta
    weights = inner**2 / (theta @ theta)
    close(weights.sum(), 1)
    close((theta @ theta) * (weights @ s), theta @ ((V * s) @ V.T) @ theta)
    for c in (0.0, 1.0, 2 * inner[0]):
        printed = np.array([c, *inner[1:]]) ** 2 / (theta @ theta)
        apart(printed.sum(), 1, rel=1e-3)


@pytest.mark.parametrize(
    "algorithm", [pytest.param("rtfa", id="1325"), pytest.param("pfedme", id="1658")]
)
def test_erratum_bias_of_ridge_is_not_that_of_the_projection(algorithm: str) -> None:
    """The stated limit r^2 lam^2 m' is that of lam^2 ||(S + lam)^-1 Delta||^2, not of ||Pi
    Delta||^2.
    """
    lam, draw = 0.6, sample(IDENTITY, 2.0)
    stated = lam**2 * stieltjes_and_slope(lam, 2.0)[1]
    close(draw.trace(lambda x: resolvent(lam)(x) ** 2), stated, rel=FINITE_SIZE)
    apart(draw.trace(null), stated)
    close(fa.predict(fa.Population(1, 1, 2), algorithm, ridge=lam)[algorithm].bias, stated)


@pytest.mark.parametrize(
    "algorithm", [pytest.param("rtfa", id="1363"), pytest.param("pfedme", id="1699")]
)
@pytest.mark.parametrize("covariance", [IDENTITY, TWO_ATOM], ids=["identity", "two_atom"])
def test_erratum_variance_of_ridge_has_no_pseudoinverse(
    covariance: fa.Spectrum, algorithm: str
) -> None:
    """V is (s2/n) tr((S + lam)^-2 S Sigma) -> s2 gamma (m - lam m'); printed: S^+ for S, and the
    limit s2/(gamma - 1).
    """
    lam, gamma, s2 = 0.3, 2.0, 0.8
    draw = sample(covariance, gamma)
    right = s2 * gamma * draw.trace(lambda x: x / (x + lam) ** 2)
    printed = (
        s2
        * gamma
        * draw.trace(lambda x: np.where(x > 0, 1 / np.where(x > 0, x, 1), 0) / (x + lam) ** 2)
    )
    found = fa.predict(fa.Population(1, s2**0.5, gamma, spectrum=covariance), algorithm, ridge=lam)[
        algorithm
    ].variance
    close(found, right, rel=FINITE_SIZE)
    apart(found, printed, rel=0.2)
    apart(found, s2 / (gamma - 1), rel=0.2)
    apart(printed, s2 / (gamma - 1), rel=0.2)
    if covariance is IDENTITY:
        m, slope_of_m = stieltjes_and_slope(lam, gamma)
        close(found, s2 * gamma * (m - lam * slope_of_m))


@over_spectra
def test_erratum_1361_1697_ridge_variance_needs_the_ridge_theorem(covariance: fa.Spectrum) -> None:
    """The ridgeless theorem gives the variance of ridge 0 only; for a positive ridge it is the
    (corrected) line 1084.
    """
    world = fa.Population(1.3, 0.6, 2, spectrum=covariance)
    ridgeless = interpolated_limit(world, 2, c0(world))[1]
    for lam in (1e-9, 0.2, 1.0):
        right = fa.predict(world, "rtfa", ridge=lam)["rtfa"].variance
        if lam < 1e-8:
            close(ridgeless, right, rel=1e-7)
        else:
            close(Appendix(world, lam).variance(2), right, rel=1e-11)
            apart(ridgeless, right, rel=0.2)


@pytest.mark.parametrize("gammas", [(2.0, 4.0), (1.5, 3.0)], ids=str)
def test_erratum_747_every_client_has_its_own_aspect(gammas: tuple[float, float]) -> None:
    """The variance of pFedMe is sigma_i^2 gamma_i (m_i - lam m_i'): no common gamma fits clients
    that differ.
    """
    clients = [
        fa.Population(1, noise, gamma) for noise, gamma in zip((0.7, 0.5), gammas, strict=True)
    ]
    risk = fa.predict(clients, "pfedme", clients=[10**7, 10**7])["pfedme"]
    implied = []
    for i, each in enumerate(clients):
        m, slope_of_m = stieltjes_and_slope(risk.ridge[i], each.aspect)
        implied.append(risk.variance[i] / (each.noise**2 * (m - risk.ridge[i] * slope_of_m)))
    close(implied, gammas, rel=1e-5)
    apart(*implied, rel=0.3)


def test_erratum_712_every_client_has_its_own_loss() -> None:
    """With R_i(theta_j) in place of R_j(theta_j) all models are client i's own fit: the others'
    labels play no part.
    """
    lam, i = 0.7, 0
    printed = Clients((MANY.X[i],) * 3, MANY.s, MANY.p, MANY.noise2).pfedme([LABELS[i]] * 3, lam)
    alone = np.linalg.lstsq(MANY.X[i], LABELS[i])[0]
    for model in printed:
        close(model, alone, rel=1e-10)
    right = MANY.pfedme(LABELS, lam)
    for j in range(3):
        close(right[1 + j], MANY.shrink(LABELS, j, right[0], lam), rel=1e-10)
        apart(right[1 + j], printed[1 + j])
    close(right[0], np.tensordot(MANY.p, right[1:], axes=1), rel=1e-10)
