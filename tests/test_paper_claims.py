"""Every theorem, corollary and claim of the paper as a test, and every misprint shown to be one.

Line numbers refer to the paper's source. The corrected mathematics is in docs/notation.md; (4) or (13) are its equations.
A misprint is shown by evaluating the printed formula: it disagrees with exact linear algebra, the corrected one does not.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

import fedasym as fa
from fedasym.theory.transforms import kappa, slope, sums

from .cases import (
    IDENTITY,
    THREE_ATOM,
    TWO_ATOM,
    Array,
    Clients,
    Function,
    Labels,
    draw_clients,
    null,
    resolvent,
    sample,
    spectrum,
)

SPECTRA = {
    "identity": IDENTITY,
    "two_atom": TWO_ATOM,
    "three_atom": THREE_ATOM,
    "ar1": spectrum("ar1_0.5_64"),
    "power": spectrum("power_1_64"),
}
over_spectra = pytest.mark.parametrize("covariance", SPECTRA.values(), ids=SPECTRA)
over_correlated = pytest.mark.parametrize("covariance", list(SPECTRA.values())[1:], ids=list(SPECTRA)[1:])
# Radius, noise and aspect of a grid of worlds; norm is the length of a client's optimum.
GRID = {
    "radius": np.array([0.5, 1, 2])[:, None, None],
    "noise": np.array([0.1, 0.7, 1.5])[:, None],
    "aspect": np.array([1.2, 2, 7]),
}
HALF = 0.5**0.5  # the noise of the worked example: variance 1/2, at aspect 2 exactly on FTFA's threshold
EXAMPLE = fa.Population(radius=1, noise=HALF, aspect=2)
FINITE_SIZE = 0.02  # relative deviation of one draw in 500 dimensions from its limit


def close(found: object, wanted: object, rel: float = 1e-12) -> None:
    np.testing.assert_allclose(found, wanted, rtol=rel, atol=0)


def apart(found: float, wrong: float, rel: float = 0.05) -> None:
    """Differ by more than a share of either."""
    assert abs(found - wrong) > rel * max(abs(found), abs(wrong))


def stieltjes_identity(z: complex, gamma: float) -> complex:
    """m(z) as printed in theorem 2 for uncorrelated features."""
    b = 1 - gamma - z
    return (b - np.sqrt(b * b - 4 * gamma * z)) / (2 * gamma * z)


def derivative(f: Callable[[complex], complex], x: float) -> float:
    """f'(x) of an analytic function that is real on the real line, by a complex step."""
    return np.imag(f(x + 1e-30j)) / 1e-30


def stieltjes_and_slope(lam: Array, gamma: Array) -> tuple[Array, Array]:
    """m(-lam) and m'(-lam) from the closed form."""
    return stieltjes_identity(-lam, gamma), derivative(lambda z: stieltjes_identity(z, gamma), -lam)


# Theorems 1 to 4 and corollary 1


def test_theorem_1_closed_form_of_ftfa() -> None:
    """Uncorrelated features: B = r^2 (1 - 1/gamma), V = sigma^2/(gamma - 1)."""
    world = fa.Population(**GRID)
    risk = fa.predict(world, "ftfa")["ftfa"]
    close(risk.bias, world.radius**2 * (1 - 1 / world.aspect) * np.ones(world.shape))
    close(risk.variance, world.noise**2 / (world.aspect - 1) * np.ones(world.shape))


def test_theorem_2_closed_form_of_rtfa() -> None:
    """Uncorrelated features: B = r^2 lam^2 m'(-lam), V = sigma^2 gamma (m - lam m') with the printed m(z)."""
    world = fa.Population(**GRID)
    for lam in (0.05, 0.3, 1, 20):
        m, slope_of_m = stieltjes_and_slope(lam, world.aspect)
        risk = fa.predict(world, "rtfa", ridge=lam)["rtfa"]
        close(risk.bias, world.radius**2 * lam**2 * slope_of_m * np.ones(world.shape))
        close(risk.variance, world.noise**2 * world.aspect * (m - lam * slope_of_m) * np.ones(world.shape), rel=1e-10)


def test_theorem_2_risk_at_the_optimum() -> None:
    """Uncorrelated features: lam* = sigma^2 gamma/r^2 and the risk there is sigma^2 gamma m(-lam*)."""
    world = fa.Population(**GRID)
    best = fa.predict(world, "rtfa")["rtfa"]
    lam = world.noise**2 * world.aspect / world.radius**2
    close(best.ridge, lam)
    close(best.loss, world.noise**2 * world.aspect * stieltjes_identity(-lam, world.aspect), rel=1e-10)


@over_spectra
@pytest.mark.parametrize(("radius", "noise", "aspect"), [(1, HALF, 2), (2**0.5, 1, 4), (3**0.5, 2**0.5, 1.2)])
def test_theorem_2_best_ridge_for_every_covariance(
    covariance: fa.Spectrum, radius: float, noise: float, aspect: float
) -> None:
    """lam* = sigma^2 gamma/r^2 minimises the risk for every covariance when the displacement is isotropic."""
    world = fa.Population(radius, noise, aspect, spectrum=covariance)

    def loss(log_ridge: float) -> float:
        return fa.predict(world, "rtfa", ridge=np.exp(log_ridge))["rtfa"].loss

    found = minimize_scalar(loss, bounds=(-4, 4), method="bounded", options={"xatol": 1e-10})
    close(np.exp(found.x), noise**2 * aspect / radius**2, rel=1e-6)
    close(found.fun, fa.optimal_loss(world), rel=1e-10)


@pytest.mark.parametrize("alpha", [0.0, 0.05, 0.3, 1.0])
def test_theorem_3_maml_is_ftfa_in_the_limit_for_any_step(alpha: float) -> None:
    """The formula for m clients, which depends on alpha, tends to theorem 1's risk like 1/m."""
    world = fa.Population(1.3, 0.6, 1.7)
    limit = fa.predict(world, "ftfa")["ftfa"]
    gaps = []
    for m in (10**4, 10**6):
        maml = fa.predict(world, "maml", maml_step=alpha, clients=m)["maml"]
        gaps.append([maml.bias - limit.bias, maml.variance - limit.variance])
        assert max(np.abs(gaps[-1])) < 20 * limit.loss / m
    close(np.divide(*gaps), 100, rel=1e-2)
    endless = fa.predict(world, "maml", maml_step=alpha)["maml"]
    close([endless.bias, endless.variance], [limit.bias, limit.variance])


@over_spectra
def test_theorem_4_pfedme_is_rtfa_in_the_limit(covariance: fa.Spectrum) -> None:
    """The optimum for m clients tends to theorem 2's risk like 1/m, at the same ridge."""
    world = fa.Population(1.3, 0.6, 1.7, spectrum=covariance)
    limit = fa.predict(world, ["rtfa", "pfedme"])
    close(limit["pfedme"].loss, limit["rtfa"].loss)
    gaps = [fa.predict(world, "pfedme", clients=m)["pfedme"].loss - limit["rtfa"].loss for m in (10**4, 10**6)]
    assert gaps[0] < 20 * limit["rtfa"].loss / 10**4
    close(gaps[0] / gaps[1], 100, rel=1e-2)


@pytest.mark.parametrize("lam", [0.2, 1, 5])
def test_theorem_4_holds_at_any_ridge(lam: float) -> None:
    """Uncorrelated features, pFedMe with m clients at any ridge: bias and variance tend to those of theorem 2 like 1/m."""
    limit = fa.predict(EXAMPLE, "rtfa", ridge=lam)["rtfa"]
    gaps = []
    for m in (10**4, 10**6):
        pfedme = fa.predict(EXAMPLE, "pfedme", ridge=lam, clients=m)["pfedme"]
        gaps.append([pfedme.bias - limit.bias, pfedme.variance - limit.variance])
    assert max(gaps[0]) < 10 * limit.loss / 10**4
    close(np.divide(*gaps), 100, rel=1e-2)


STAGES: dict[str, tuple[str, Function, dict[str, float]]] = {
    "theorem_1_ftfa": ("ftfa", null, {}),
    "theorem_2_rtfa": ("rtfa", resolvent(0.7), {"lam": 0.7}),
    "theorem_3_maml_small_step": ("maml", null, {"alpha": 0.1}),
    "theorem_3_maml_large_step": ("maml", null, {"alpha": 0.5}),
    "theorem_4_pfedme": ("pfedme", resolvent(0.7), {"lam": 0.7}),
    "corollary_1_fedavg": ("fedavg", np.ones_like, {}),
}


@pytest.mark.parametrize(("algorithm", "keep", "options"), STAGES.values(), ids=STAGES)
@pytest.mark.parametrize("s", [np.ones(20), np.repeat([0.5, 3], [12, 8])], ids=["identity", "two_atom"])
def test_theorems_the_shared_model_drops_out(
    s: Array, algorithm: str, keep: Function, options: dict[str, float]
) -> None:
    """Given a client's samples, its risk tends to what it would be if the shared model were theta_0.

    B -> ||P (theta_0 - theta_i)||^2_Sigma with P = I - S^+ S or lam (S + lam)^-1, and V -> (sigma^2/n) tr(S^+ Sigma) or
    (sigma^2/n) tr(Sigma S (S + lam)^-2): with eight times as many clients both gaps fall at least fourfold.
    """

    def gap(m: int) -> Array:
        clients = draw_clients(3, [10] * m, s, noise2=[0.5] * m)
        estimate = clients.model(algorithm, 0, **options)
        found = [clients.mean_bias(estimate, 0), clients.variance(estimate)]
        return np.array(found) - clients.sample(0).risk(keep, 0.5)

    few, many = gap(8), gap(64)
    assert np.all(many > 0)
    assert np.all(many < few / 4)


@pytest.mark.parametrize("power", [-1, 0, 1])
@pytest.mark.parametrize("lam", [0.0, 0.4, 2.0])
@pytest.mark.parametrize("covariance", [IDENTITY, TWO_ATOM, THREE_ATOM], ids=["identity", "two_atom", "three_atom"])
def test_theorems_1_and_2_limits_of_the_traces(covariance: fa.Spectrum, lam: float, power: int) -> None:
    """The traces of theorems 1 (lam = 0) and 2, over four draws, agree with the limits with and without an alignment."""
    risk = fa.predict(fa.Population(1, 1, 2, spectrum=covariance, shift_power=power), "rtfa", ridge=lam)["rtfa"]
    draws = [sample(covariance, 2.0, seed=seed) for seed in range(4)]
    energy = draws[0].s ** power / np.mean(draws[0].s ** power)
    found = np.mean([draw.risk(resolvent(lam) if lam else null, 1.0, energy) for draw in draws], axis=0)
    close(found, [risk.bias, risk.variance], rel=FINITE_SIZE)


def test_corollary_1_fedavg_and_the_local_methods() -> None:
    """Uncorrelated features: FedAvg has r^2 and no variance; the local methods are theorems 1 and 2 with rho for r."""
    world = fa.Population(**GRID, norm=2.5)
    lam = 0.8
    table = fa.predict(world, ["fedavg", "local", "local_ridge"], ridge=lam)
    m, slope_of_m = stieltjes_and_slope(lam, world.aspect)
    ones = np.ones(world.shape)
    close(table["fedavg"].bias, world.radius**2 * ones)
    assert np.all(table["fedavg"].variance == 0)
    close(table["local"].bias, 2.5**2 * (1 - 1 / world.aspect) * ones)
    close(table["local"].variance, world.noise**2 / (world.aspect - 1) * ones)
    close(table["local_ridge"].bias, 2.5**2 * lam**2 * slope_of_m * ones)
    close(table["local_ridge"].variance, world.noise**2 * world.aspect * (m - lam * slope_of_m) * ones)


def test_corollary_1_best_local_ridge() -> None:
    """lam* = sigma^2 gamma/rho^2, with risk sigma^2 gamma m(-lam*)."""
    world = fa.Population(**GRID, norm=2.5)
    best = fa.predict(world, "local_ridge")["local_ridge"]
    lam = world.noise**2 * world.aspect / 2.5**2
    close(best.ridge, lam * np.ones(world.shape))
    risk = world.noise**2 * world.aspect * stieltjes_identity(-lam, world.aspect)
    close(best.loss, risk * np.ones(world.shape), rel=1e-10)


# Claims of the text


@pytest.mark.parametrize("power", [-1, 0, 1])
@over_spectra
def test_claim_ftfa_beats_fedavg_iff_noise_below_threshold(covariance: fa.Spectrum, power: int) -> None:
    """Just below the threshold FTFA wins, just above it loses; without correlation it is r^2 (gamma - 1)/gamma."""
    aspect, radius = np.array([1.2, 2, 7]), 1.4
    edge = fa.noise_threshold(fa.Population(radius, 0, aspect, spectrum=covariance, shift_power=power))
    if covariance is IDENTITY:
        close(edge**2, radius**2 * (aspect - 1) / aspect)
    assert np.all(edge > 0)
    for factor in (0.5, 1 - 1e-6, 1 + 1e-6, 2):
        world = fa.Population(radius, edge * factor, aspect, spectrum=covariance, shift_power=power)
        table = fa.predict(world, ["ftfa", "fedavg"])
        assert np.all((table["ftfa"].loss < table["fedavg"].loss) == (factor < 1))


@pytest.mark.parametrize(("power", "variance"), [(0, 0.7143), (-1, 0.1607), (1, 1.4524)])
def test_claim_threshold_is_not_that_of_the_mean_eigenvalue(power: int, variance: float) -> None:
    """Correlated features: the threshold is not tau(Sigma) r^2 (gamma - 1)/gamma = 0.75, and alignment moves it."""
    found = fa.noise_threshold(fa.Population(1, 0, 2, spectrum=TWO_ATOM, shift_power=power)) ** 2
    assert round(found, 4) == variance
    apart(found, TWO_ATOM.mean * (2 - 1) / 2, rel=0.04)


@over_spectra
def test_claim_ftfa_beats_local_by_the_length_of_the_shared_optimum(covariance: fa.Spectrum) -> None:
    """FTFA beats the local interpolant whenever rho > r; rho^2 - r^2 governs the gap (times 1 - 1/gamma if uncorrelated)."""
    world = fa.Population(**GRID, norm=2.5, spectrum=covariance)
    table = fa.predict(world, ["ftfa", "local"])
    gap = table["local"].loss - table["ftfa"].loss
    assert np.all(gap > 0)
    shared = 2.5**2 - world.radius**2
    close(gap / shared, np.broadcast_to((gap / shared)[0, 0], gap.shape), rel=1e-10)
    if covariance is IDENTITY:
        close(gap, shared * (1 - 1 / world.aspect) * np.ones(gap.shape), rel=1e-10)


@over_spectra
def test_claim_rtfa_at_its_optimum_beats_everything(covariance: fa.Spectrum) -> None:
    """RTFA with the best ridge beats FTFA, FedAvg, and the local methods without and with the best ridge."""
    table = fa.predict(fa.Population(**GRID, norm=2.5, spectrum=covariance))
    for other in ("ftfa", "maml", "fedavg", "local", "local_ridge"):
        assert np.all(table["rtfa"].loss < table[other].loss), other
    close(table["pfedme"].loss, table["rtfa"].loss)


@pytest.mark.parametrize("power", [-2, -1, 1, 2])
@over_correlated
def test_claim_tuned_rtfa_beats_fedavg_and_ftfa_under_alignment_too(covariance: fa.Spectrum, power: int) -> None:
    """Ridge infinity is FedAvg and ridge 0 is FTFA, so the best ridge is at least as good as either."""
    table = fa.predict(fa.Population(**GRID, spectrum=covariance, shift_power=power), ["rtfa", "fedavg", "ftfa"])
    assert np.all(table["rtfa"].loss < table["fedavg"].loss)
    assert np.all(table["rtfa"].loss <= table["ftfa"].loss * (1 + 1e-12))


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
    """R* = 1/2 [r^2 (1 - 1/g) - s2 + sqrt(r^4 (1 - 1/g)^2 + s2^2 + 2 s2 r^2 (1 + 1/g))] <= r^2, below g = 1 too."""
    world = fa.Population(GRID["radius"], GRID["noise"], np.array([0.3, 0.9, 1, 1.1, 2, 7]))
    r2, s2, g = world.radius**2, world.noise**2, world.aspect
    root = np.sqrt(r2**2 * (1 - 1 / g) ** 2 + s2**2 + 2 * s2 * r2 * (1 + 1 / g))
    close(fa.optimal_loss(world), (r2 * (1 - 1 / g) - s2 + root) / 2, rel=1e-11)
    assert np.all(fa.optimal_loss(world) < r2)


@over_spectra
def test_claim_first_order_expansion_has_a_negative_constant(covariance: fa.Spectrum) -> None:
    """RTFA* - local ridge* = C (rho^2 - r^2) + o, with C = -kappa' kappa^2 sum h s/(s+kappa)^2 < 0 at lam*."""
    world = fa.Population(1, HALF, 2, spectrum=covariance)
    best = fa.predict(world, "rtfa")["rtfa"]
    C = -best.bias / world.radius**2
    k = kappa(np.array(1.0), np.array(2.0), covariance)
    growth = slope(k, np.array(1.0), np.array(2.0), covariance)
    close(C, -growth * k**2 * (covariance.weights @ (covariance.values / (covariance.values + k) ** 2)))
    assert C < 0
    rests = []
    for extra in (1e-2, 1e-3):
        here = fa.Population(1, HALF, 2, norm=np.sqrt(1 + extra), spectrum=covariance)
        table = fa.predict(here, ["rtfa", "local_ridge"])
        rests.append((table["rtfa"].loss - table["local_ridge"].loss) / extra - C)
    close(rests[0] / rests[1], 10, rel=0.05)


@over_spectra
def test_claim_best_risk_in_three_forms(covariance: fa.Spectrum) -> None:
    """R* = sigma^2 (kappa/lam* - 1) = r^2 kappa df1(kappa) = (r^2/gamma)(kappa - lam*), equation (5)."""
    r2, s2, gamma = 2.0, 1.0, 4.0
    lam = s2 * gamma / r2
    k = kappa(np.array(lam), np.array(gamma), covariance)
    best = fa.optimal_loss(fa.Population(r2**0.5, s2**0.5, gamma, spectrum=covariance))
    close([s2 * (k / lam - 1), r2 * k * sums(k, covariance).df1, r2 / gamma * (k - lam)], best)


def test_claim_best_risk_is_not_sigma2_gamma_m_under_correlation() -> None:
    """sigma^2 gamma m(-lam*) of theorems 2 and 4 is the unweighted estimation error: 1.6568, where the risk is 2.1885."""
    r2, s2, gamma = 2.0, 1.0, 4.0
    lam = s2 * gamma / r2
    k = float(kappa(np.array(lam), np.array(gamma), TWO_ATOM))
    printed = s2 * gamma * (TWO_ATOM.weights @ (k / (TWO_ATOM.values + k))) / lam
    best = fa.optimal_loss(fa.Population(r2**0.5, s2**0.5, gamma, spectrum=TWO_ATOM))
    assert (round(best, 4), round(printed, 4)) == (2.1885, 1.6568)
    draw = sample(TWO_ATOM, gamma)
    bias, variance = draw.risk(resolvent(lam), s2)
    close(r2 * bias + variance, best, rel=FINITE_SIZE)
    unweighted = draw.trace(lambda x: r2 * (lam / (x + lam)) ** 2 + s2 * gamma * x / (x + lam) ** 2, np.ones_like(draw.s))
    close(unweighted, printed, rel=FINITE_SIZE)


@pytest.mark.parametrize("power", [-1, 1, 2])
@pytest.mark.parametrize("name", ["two_atom", "ar1", "power"])
def test_claim_best_ridge_differs_under_alignment(name: str, power: int) -> None:
    """With an aligned displacement sigma^2 gamma/r^2 is not the best ridge, and using it costs up to 26%."""
    for r2, s2, aspect in ((1, 0.5, 2), (2, 1, 4), (1, 0.05, 5), (3, 2, 1.2)):
        world = fa.Population(r2**0.5, s2**0.5, aspect, spectrum=SPECTRA[name], shift_power=power)
        bayes = s2 * aspect / r2
        assert (fa.optimal_ridge(world) > bayes) == (power < 0)
        excess = fa.predict(world, "rtfa", ridge=bayes)["rtfa"].loss / fa.optimal_loss(world) - 1
        assert 0.01 < excess < 0.26


def test_claim_best_ridge_may_be_negative() -> None:
    """A displacement along strong features and little noise: lam* = -0.0563, below which and above which it is worse."""
    world = fa.Population(1, 0.02**0.5, 2, spectrum=TWO_ATOM, shift_power=1)
    best = fa.optimal_ridge(world)
    assert round(best, 4) == -0.0563
    near = fa.predict(world, "rtfa", ridge=[best - 1e-3, best + 1e-3, 0])["rtfa"].loss
    assert np.all(near > fa.optimal_loss(world))


def test_claim_sharing_may_lose_when_the_optimum_is_better_aligned() -> None:
    """rho >= r does not suffice: theta_0 = (1, 1) and Delta = (-1, 1) leave theta_i = (0, 2) along a weak feature."""
    shared, shift = np.array([1.0, 1]), np.array([-1.0, 1])
    optimum = shared + shift
    assert shared @ shift == 0
    world = fa.Population(
        np.sqrt(shift @ shift),
        0.1,
        2,
        norm=np.sqrt(optimum @ optimum),
        spectrum=fa.spectra.atoms([3, 0.01], [0.9, 0.1]),
        shift_weights=shift**2 / (shift @ shift),
        optimum_weights=optimum**2 / (optimum @ optimum),
    )
    table = fa.predict(world)
    assert world.norm > world.radius
    assert table["local"].loss < table["ftfa"].loss
    assert table["local_ridge"].loss < table["rtfa"].loss


def test_claim_squared_norm_is_squared_radius_plus_shared_length() -> None:
    """rho^2 = r^2 + ||theta_0||^2 for Delta orthogonal to theta_0 (line 1709), so r <= rho, and local pays for theta_0."""
    clients = draw_clients(5, [100, 100], np.ones(200))
    shared, shift = np.random.default_rng(6).standard_normal((2, 200))
    shift -= shared * (shift @ shared) / (shared @ shared)
    r2, rho2 = shift @ shift, (shared + shift) @ (shared + shift)
    close(rho2, r2 + shared @ shared)
    loss = [clients.bias(clients.model("local", 0), 0, np.stack([theta, theta])) for theta in (shared + shift, shift)]
    world = fa.Population(r2**0.5, 0, 2, norm=rho2**0.5)
    table = fa.predict(world, ["local", "ftfa"])
    close(loss, [table["local"].bias, table["ftfa"].bias], rel=0.1)


def test_claim_pfedme_beats_rtfa_and_small_step_maml_beats_ftfa_with_few_clients() -> None:
    """The equalities of theorems 3 and 4 are those of the limit: with few clients the shared models differ."""
    for m, member in product((3, 10, 100), (True, False)):
        table = fa.predict(EXAMPLE, ridge=1, maml_step=0.1, clients=m, member=member)
        assert table["pfedme"].loss < table["rtfa"].loss
        assert table["maml"].loss < table["ftfa"].loss
        large = fa.predict(EXAMPLE, ["maml", "ftfa"], maml_step=0.3, clients=m, member=member)
        assert large["maml"].loss > large["ftfa"].loss


def test_claim_pfedme_is_optimal_with_few_clients_at_the_same_ridge() -> None:
    """With m clients pFedMe's best ridge is still lam* = 1, while RTFA's is smaller: 0.64, 0.84 and 0.98."""
    for m, smaller in ((4, 0.64), (10, 0.84), (100, 0.98)):

        def loss(log_ridge: float, m: int = m) -> float:
            return fa.predict(EXAMPLE, "pfedme", ridge=np.exp(log_ridge), clients=m)["pfedme"].loss

        found = minimize_scalar(loss, bounds=(-1, 1), method="bounded", options={"xatol": 1e-9})
        assert abs(found.x) < 1e-6
        best = fa.predict(EXAMPLE, ["pfedme", "rtfa"], clients=m)
        close(best["pfedme"].loss, found.fun)
        assert round(best["rtfa"].ridge, 2) == smaller
        assert best["pfedme"].loss < best["rtfa"].loss


@pytest.mark.parametrize(
    ("algorithm", "rate"), [("fedavg", 2.0), ("ftfa", 2.0), ("rtfa", 2.41), ("maml", 1.73), ("pfedme", 2.06)]
)
def test_claim_limits_are_reached_like_one_over_the_clients(algorithm: str, rate: float) -> None:
    """m (R_m - R) of a member tends to a constant; taking part differs from staying out only at order 1/m^2."""
    options = {"ridge": 1, "maml_step": 0.1}
    limit = fa.predict(EXAMPLE, algorithm, **options)[algorithm].loss
    m = 10**4
    member = fa.predict(EXAMPLE, algorithm, clients=m, **options)[algorithm].loss
    assert round(m * (member - limit), 2) == rate
    if algorithm != "fedavg":
        gaps = []
        for count in (100, 1000):
            inside = fa.predict(EXAMPLE, algorithm, clients=count, **options)[algorithm].loss
            outside = fa.predict(EXAMPLE, algorithm, clients=count - 1, member=False, **options)[algorithm].loss
            gaps.append(outside - inside)
        assert 0 < gaps[1] < gaps[0] / 90


@over_spectra
def test_claim_more_steps_not_always_better(covariance: fa.Spectrum) -> None:
    """Above the noise threshold more gradient steps end up worse than none; without noise they always help."""
    edge = fa.noise_threshold(fa.Population(1, 0, 2, spectrum=covariance))
    noisy = fa.fine_tuning(fa.Population(1, 1.2 * edge, 2, spectrum=covariance), steps=[0, 1, 10, 100, np.inf])
    assert np.isfinite(noisy.best.at)
    assert noisy.best.at > 0
    assert noisy.best.risk.loss < min(noisy.loss[0], noisy.loss[-1])
    assert noisy.loss[0] < noisy.loss[-1]
    silent = fa.fine_tuning(fa.Population(1, 0, 2, spectrum=covariance), steps=[0, 1, 3, 10, 30, 100, np.inf])
    assert np.isinf(silent.best.at)
    assert np.all(np.diff(silent.loss) < 0)


def test_claim_more_steps_may_hurt_below_the_threshold_too() -> None:
    """At 90% of the threshold convergence beats no step at all, and still stopping early is better."""
    path = fa.fine_tuning(fa.Population(1, 0.9 * HALF, 2), flow=True, times=[0, 0.7, np.inf])
    assert path.best.risk.loss <= path.loss[1] < path.loss[2] < path.loss[0]


def test_claim_gradient_descent_converges_to_the_nearest_interpolant() -> None:
    """Run to convergence from the shared model, gradient descent gives equation param-perfedavg."""
    clients = draw_clients(11, [4, 4, 4], np.linspace(0.5, 2, 6))
    y = list(np.random.default_rng(12).standard_normal((3, 4, 1)))
    theta = start = clients.fedavg(y)
    step = 1 / np.linalg.eigvalsh(clients.S(0))[-1]
    for _ in range(3000):
        theta = theta - step * clients.gradient(y, 0, theta)
    close(theta, clients.interpolate(y, 0, start), rel=1e-9)
    apart(np.linalg.norm(theta), np.linalg.norm(clients.interpolate(y, 0, 0 * start)), rel=0.02)


def test_claim_one_gradient_step_differs_from_convergence() -> None:
    """The remark after theorem 3: B = r^2 [t1 - 2 a t2 + a^2 (t3 + gamma t1 t2)], V = sigma^2 gamma a^2 t2 after one step."""
    world, draw = fa.Population(1, HALF, 2, spectrum=TWO_ATOM), sample(TWO_ATOM, 2.0)
    t1, t2, t3 = (TWO_ATOM.weights @ TWO_ATOM.values**power for power in (1, 2, 3))
    best, risk = fa.one_step(world)
    close(best, t2 / (t3 + 2 * t1 * t2 + 0.5 * 2 * t2))
    close([risk.bias, risk.variance], [t1 - 2 * best * t2 + best**2 * (t3 + 2 * t1 * t2), 0.5 * 2 * best**2 * t2])
    close(draw.risk(lambda x: 1 - best * x, 0.5), [risk.bias, risk.variance], rel=FINITE_SIZE)
    assert all(fa.one_step(world, best * factor)[1].loss > risk.loss for factor in (0.99, 1.01))
    apart(risk.loss, fa.predict(world, "maml")["maml"].loss)


def test_claim_maml_objective_need_not_be_convex() -> None:
    """The loss after a gradient step of a convex loss, here log(1 + exp(-x)), has negative curvature somewhere."""
    x = np.linspace(-6, 6, 1201)
    after = x + 8 / (1 + np.exp(x))
    convex, stepped = np.logaddexp(0, -x), np.logaddexp(0, -after)
    assert np.diff(convex, 2).min() > 0
    assert np.diff(stepped, 2).min() < -1e-6


@pytest.mark.parametrize("q", [2.5, 3, 4])
def test_claim_client_growth_for_equal_clients_and_equal_samples(q: float) -> None:
    """sum p^(q/2+1) n = (N/m) m^(-q/2) for p = 1/m; for p = n/N at most (gamma_max/gamma_min)^(q/2+1) times that."""
    n = np.random.default_rng(8).integers(20, 60, 50)
    m, N = n.size, n.sum()
    target = N / m / m ** (q / 2)
    close(np.sum((1 / m) ** (q / 2 + 1) * n), target)
    share = np.sum((n / N) ** (q / 2 + 1) * n)
    assert target < share < (n.max() / n.min()) ** (q / 2 + 1) * target


# The worked numbers: aspect 2, radius 1, noise variance 1/2, five digits


def test_worked_numbers_of_the_limit() -> None:
    """Uncorrelated: FedAvg 1, FTFA 1 (on its threshold), RTFA and pFedMe 0.70711 at ridge 1; stopped flow 0.71162 at 0.6185."""
    table = fa.predict(EXAMPLE)
    close([table["fedavg"].loss, table["ftfa"].loss], 1)
    close(fa.noise_threshold(EXAMPLE), HALF)
    close([table["rtfa"].ridge, table["pfedme"].ridge], 1)
    close([table["rtfa"].loss, table["pfedme"].loss], 0.5**0.5)
    stop = fa.fine_tuning(EXAMPLE, flow=True).best
    assert (round(stop.at, 4), round(stop.risk.loss, 5)) == (0.6185, 0.71162)


@pytest.mark.parametrize(
    ("covariance", "losses"), [(TWO_ATOM, (1.5, 1.2, 0.81183)), (SPECTRA["ar1"], (1, 0.9974, 0.60763))], ids=["two_atom", "ar1"]
)
def test_worked_numbers_with_correlation(covariance: fa.Spectrum, losses: tuple[float, ...]) -> None:
    """FedAvg, FTFA and RTFA at its best."""
    table = fa.predict(fa.Population(1, HALF, 2, spectrum=covariance), ["fedavg", "ftfa", "rtfa"])
    for risk, wanted in zip(table.values(), losses, strict=True):
        assert risk.loss == pytest.approx(wanted, abs=5.1e-5 if wanted == 0.9974 else 5.1e-6)


@pytest.mark.parametrize(
    ("member", "losses"),
    [
        (True, {"fedavg": 1.25, "ftfa": 1.25, "rtfa": 1.0016, "maml": 1.2214, "pfedme": 0.96353}),
        (False, {"fedavg": 1.45, "ftfa": 1.225, "rtfa": 0.9787, "maml": 1.1992, "pfedme": 0.9441}),
    ],
    ids=["member", "new"],
)
def test_worked_numbers_of_ten_clients(member: bool, losses: dict[str, float]) -> None:
    """All at ridge 1, MAML with step 0.1."""
    table = fa.predict(EXAMPLE, list(losses), ridge=1, maml_step=0.1, clients=10, member=member)
    for name, wanted in losses.items():
        assert round(table[name].loss, len(str(wanted).split(".")[1])) == wanted


@pytest.mark.parametrize(
    ("clients", "fedavg", "pfedme"), [(2, 3.3, 2.8781), (100, 1.0093, 0.553), (None, 1, 0.5432)]
)
def test_worked_numbers_from_two_clients_to_infinity(clients: int | None, fedavg: float, pfedme: float) -> None:
    """Aspect 1.6, noise variance 0.2: FedAvg, and pFedMe at lam* = 0.32."""
    table = fa.predict(fa.Population(1, 0.2**0.5, 1.6), ["fedavg", "pfedme"], clients=clients)
    close(table["pfedme"].ridge, 0.32)
    assert [round(risk.loss, 4) for risk in table.values()] == [fedavg, pfedme]


@pytest.mark.parametrize(("clients", "maml", "ftfa"), [(4, 1.918, 2.0), (10, 1.221, 1.25)])
def test_worked_numbers_of_the_best_maml_step(clients: int, maml: float, ftfa: float) -> None:
    """The best step is about 0.1, where MAML's weights imitate those of pFedMe."""

    def loss(alpha: float) -> float:
        return fa.predict(EXAMPLE, "maml", maml_step=alpha, clients=clients)["maml"].loss

    found = minimize_scalar(loss, bounds=(0, 0.5), method="bounded")
    assert found.x == pytest.approx(0.1, abs=0.015)
    assert found.fun == pytest.approx(maml, abs=6e-4)
    close(fa.predict(EXAMPLE, "ftfa", clients=clients)["ftfa"].loss, ftfa)
