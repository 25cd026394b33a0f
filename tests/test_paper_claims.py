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


def apart(found: float | Array, wrong: float | Array, rel: float = 0.05) -> None:
    """Differ by more than a share of the larger, in length for vectors."""
    size, other, gap = (np.linalg.norm(x) for x in (found, wrong, np.subtract(found, wrong)))
    assert gap > rel * max(size, other)


def shows(found: float, digits: str) -> None:
    """Rounded to as many decimals as `digits` has, it reads the same."""
    assert f"{found:.{len(digits.partition('.')[2])}f}" == digits


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
def test_theorem_2_best_ridge_for_every_covariance(covariance: fa.Spectrum, radius: float, noise: float, aspect: float) -> None:
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
def test_theorems_the_shared_model_drops_out(s: Array, algorithm: str, keep: Function, options: dict[str, float]) -> None:
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
    """Just below the threshold FTFA wins, just above it loses; without correlation it is r^2 (gamma - 1)/gamma.

    Where it is 0 (a displacement along weak features, aspect 7) FTFA loses even without noise.
    """
    aspect, radius = np.array([1.2, 2, 7]), 1.4
    edge = fa.noise_threshold(fa.Population(radius, 0, aspect, spectrum=covariance, shift_power=power))
    if covariance is IDENTITY:
        close(edge**2, radius**2 * (aspect - 1) / aspect)
    assert np.all(edge[:2] > 0)
    for factor in (0.5, 1 - 1e-6, 1 + 1e-6, 2):
        world = fa.Population(radius, edge * factor, aspect, spectrum=covariance, shift_power=power)
        table = fa.predict(world, ["ftfa", "fedavg"])
        assert np.array_equal(table["ftfa"].loss < table["fedavg"].loss, (factor < 1) & (edge > 0))


@pytest.mark.parametrize(("power", "variance"), [(0, "0.7143"), (-1, "0.1607"), (1, "1.4524")])
def test_claim_threshold_is_not_that_of_the_mean_eigenvalue(power: int, variance: str) -> None:
    """Correlated features: the threshold is not tau(Sigma) r^2 (gamma - 1)/gamma = 0.75, and alignment moves it."""
    found = fa.noise_threshold(fa.Population(1, 0, 2, spectrum=TWO_ATOM, shift_power=power)) ** 2
    shows(found, variance)
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
    shows(best, "2.1885")
    shows(printed, "1.6568")
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
    shows(best, "-0.0563")
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
    clients = draw_clients(5, [300, 300], np.ones(600))
    shared, shift = np.random.default_rng(6).standard_normal((2, 600))
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
    for m, smaller in ((4, "0.64"), (10, "0.84"), (100, "0.98")):

        def loss(log_ridge: float, m: int = m) -> float:
            return fa.predict(EXAMPLE, "pfedme", ridge=np.exp(log_ridge), clients=m)["pfedme"].loss

        found = minimize_scalar(loss, bounds=(-1, 1), method="bounded", options={"xatol": 1e-9})
        assert abs(found.x) < 1e-6
        best = fa.predict(EXAMPLE, ["pfedme", "rtfa"], clients=m)
        close(best["pfedme"].loss, found.fun)
        shows(best["rtfa"].ridge, smaller)
        assert best["pfedme"].loss < best["rtfa"].loss


@pytest.mark.parametrize(
    ("algorithm", "rate"), [("fedavg", "2.00"), ("ftfa", "2.00"), ("rtfa", "2.41"), ("maml", "1.73"), ("pfedme", "2.06")]
)
def test_claim_limits_are_reached_like_one_over_the_clients(algorithm: str, rate: str) -> None:
    """m (R_m - R) of a member tends to a constant; taking part differs from staying out only at order 1/m^2."""
    options = {"ridge": 1, "maml_step": 0.1}
    limit = fa.predict(EXAMPLE, algorithm, **options)[algorithm].loss
    m = 10**4
    member = fa.predict(EXAMPLE, algorithm, clients=m, **options)[algorithm].loss
    shows(m * (member - limit), rate)
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
    apart(theta, clients.interpolate(y, 0, 0 * start))


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


# The worked numbers: aspect 2, radius 1 and noise variance 1/2 unless said otherwise


def test_worked_numbers_of_the_limit() -> None:
    """Uncorrelated: FedAvg 1, FTFA 1 (on its threshold), RTFA* = pFedMe* = 0.70711 at ridge 1, stopped flow 0.71162."""
    table = fa.predict(EXAMPLE)
    close([table["fedavg"].loss, table["ftfa"].loss], 1)
    close(fa.noise_threshold(EXAMPLE), HALF)
    close([table["rtfa"].ridge, table["pfedme"].ridge], 1)
    close([table["rtfa"].loss, table["pfedme"].loss], 0.5**0.5)
    stop = fa.fine_tuning(EXAMPLE, flow=True).best
    shows(stop.at, "0.6185")
    shows(stop.risk.loss, "0.71162")


@pytest.mark.parametrize(
    ("name", "losses"),
    [
        ("two_atom", {"fedavg": "1.5000000000", "ftfa": "1.2000000000", "rtfa": "0.81183"}),
        ("ar1", {"fedavg": "1.0000000000", "ftfa": "0.9974", "rtfa": "0.60763"}),
    ],
)
def test_worked_numbers_with_correlation(name: str, losses: dict[str, str]) -> None:
    """FedAvg, FTFA and RTFA at its best."""
    table = fa.predict(fa.Population(1, HALF, 2, spectrum=SPECTRA[name]), list(losses))
    for algorithm, digits in losses.items():
        shows(table[algorithm].loss, digits)


@pytest.mark.parametrize(
    ("member", "losses"),
    [
        (True, {"fedavg": "1.2500000000", "ftfa": "1.2500000000", "rtfa": "1.0016", "maml": "1.2214", "pfedme": "0.96353"}),
        (False, {"fedavg": "1.4500000000", "ftfa": "1.2250000000", "rtfa": "0.9787", "maml": "1.1992", "pfedme": "0.9441"}),
    ],
    ids=["member", "new"],
)
def test_worked_numbers_of_ten_clients(member: bool, losses: dict[str, str]) -> None:
    """All at ridge 1, MAML with step 0.1."""
    table = fa.predict(EXAMPLE, list(losses), ridge=1, maml_step=0.1, clients=10, member=member)
    for algorithm, digits in losses.items():
        shows(table[algorithm].loss, digits)


@pytest.mark.parametrize(
    ("clients", "fedavg", "pfedme"), [(2, "3.3000", "2.8781"), (100, "1.0093", "0.5530"), (None, "1.0000", "0.5432")]
)
def test_worked_numbers_from_two_clients_to_infinity(clients: int | None, fedavg: str, pfedme: str) -> None:
    """Aspect 1.6, noise variance 0.2: FedAvg, and pFedMe at lam* = 0.32."""
    table = fa.predict(fa.Population(1, 0.2**0.5, 1.6), ["fedavg", "pfedme"], clients=clients)
    close(table["pfedme"].ridge, 0.32)
    shows(table["fedavg"].loss, fedavg)
    shows(table["pfedme"].loss, pfedme)


@pytest.mark.parametrize(("clients", "maml", "ftfa"), [(4, "1.918", 2.0), (10, "1.221", 1.25)])
def test_worked_numbers_of_the_best_maml_step(clients: int, maml: str, ftfa: float) -> None:
    """The best step is about 0.1, where MAML's weights imitate those of pFedMe."""

    def loss(alpha: float) -> float:
        return fa.predict(EXAMPLE, "maml", maml_step=alpha, clients=clients)["maml"].loss

    found = minimize_scalar(loss, bounds=(0, 0.5), method="bounded")
    shows(found.x, "0.1")
    shows(found.fun, maml)
    close(fa.predict(EXAMPLE, "ftfa", clients=clients)["ftfa"].loss, ftfa)


# Misprints: the limits


def c0(world: fa.Population) -> float:
    """The solution of line 1062: 1 - 1/gamma = int 1/(1 + c0 gamma s) dH."""
    s, h, gamma = world.spectrum.values, world.spectrum.weights, world.aspect
    return brentq(lambda c: h @ (1 / (1 + c * gamma * s)) - (1 - 1 / gamma), 0, 1e3, xtol=1e-15, rtol=1e-15)


def interpolated_limit(world: fa.Population, power: int, factor: float) -> tuple[float, float]:
    """Lines 1067 and 1069: denominators (1 + c0 gamma s)^power, and a factor of the variance; printed with 1 and 1."""
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
    """Besides the squares a factor c0 is missing; with neither, uncorrelated features give sigma^2 gamma."""
    world = fa.Population(1.3, 0.6, 3, spectrum=covariance)
    right = fa.predict(world, "ftfa")["ftfa"].variance
    printed, squared, scaled = (interpolated_limit(world, *form)[1] for form in ((1, 1), (2, 1), (1, c0(world))))
    close(interpolated_limit(world, 2, c0(world))[1], right)
    apart(printed, right)
    apart(squared, right)
    if covariance is IDENTITY:  # one atom: the squares cancel in the ratio
        close([printed, squared], 0.6**2 * 3)
        close([right, scaled], 0.6**2 / (3 - 1))
    else:
        apart(scaled, right)


class Appendix:
    """m_n(-lam), its derivative and m_{n,1}(-lam) of lines 1074 to 1080, solved from their own equations."""

    def __init__(self, world: fa.Population, lam: float) -> None:
        self.s, self.h, self.g, gamma = world.spectrum.values, world.spectrum.weights, world.displacement, world.aspect
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
    df2 = float(sums(k, covariance).df2)
    close(page.m1, df2 / (1 - 2 * df2))
    close(1 + 2 * page.m1, slope(k, np.array(lam), np.array(2.0), covariance))


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
    """m is not the transform of the spectrum of Sigma: its own closed form, and a draw, are the sample covariance's."""
    lam, gamma = 0.7, 2.0
    printed, right = 1 / (1 + lam), stieltjes_identity(-lam, gamma)
    draw = sample(IDENTITY, gamma)
    close(draw.trace(lambda x: 1 / (x + lam)), right, rel=FINITE_SIZE)
    apart(printed, right, rel=0.2)
    risk = fa.predict(fa.Population(1, 1, gamma), "rtfa", ridge=lam)["rtfa"]
    apart((lam * printed) ** 2, risk.bias, rel=0.2)
    apart(gamma * (printed - lam * printed**2), risk.variance, rel=0.2)


def test_erratum_553_norm_is_not_squared() -> None:
    """rho_i is the length of theta_i, not its square: else rho >= r fails and the local interpolant would win."""
    shared, radius = 0.3, 0.4
    length = np.hypot(shared, radius)
    clients = draw_clients(21, [300, 300], np.ones(600))
    theta = np.random.default_rng(22).standard_normal(600)
    theta *= length / np.linalg.norm(theta)
    exact = clients.bias(clients.model("local", 0), 0, np.stack([theta, theta]))
    right, printed = (fa.predict(fa.Population(radius, 0, 2, norm=norm), ["local", "ftfa"]) for norm in (length, length**2))
    close(exact, right["local"].loss, rel=0.1)
    apart(exact, printed["local"].loss, rel=0.5)
    assert length**2 < radius < length
    assert printed["local"].loss < printed["ftfa"].loss
    assert right["ftfa"].loss < right["local"].loss


FEW = draw_clients(31, [4, 4, 4], [0.3, 0.5, 1, 1.5, 2, 4], p=[0.5, 0.3, 0.2], noise2=[0.5, 1.0, 0.3])  # aspect 3/2
MANY = draw_clients(32, [10, 20, 40], [0.5, 1, 2])  # more samples than unknowns: every minimiser is unique
LABELS = [X @ np.random.default_rng(33 + j).standard_normal((3, 1)) + 0.1 * (-1) ** j for j, X in enumerate(MANY.X)]
EYE = np.eye(6)


def test_erratum_285_against_408_and_473_loss_has_a_half() -> None:
    """The limits hold for 1/(2n)||X theta - y||^2; without the half the ridge counts half and the MAML step double."""
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
    # Line 1373: the residual after a step is W (X theta - y) with W = I - (alpha/n) X X' for the loss with the half only.
    X, alpha, theta = MANY.X[0], 0.3, np.ones((3, 1))
    stepped = [X @ (theta - alpha * 2 * half * MANY.gradient(LABELS, 0, theta)) - LABELS[0] for half in (0.5, 1.0)]
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
    """The weights are (v_1'theta)^2, ..., (v_d'theta)^2 over ||theta||^2; with a constant c first they do not sum to one."""
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


@pytest.mark.parametrize("algorithm", [pytest.param("rtfa", id="1325"), pytest.param("pfedme", id="1658")])
def test_erratum_bias_of_ridge_is_not_that_of_the_projection(algorithm: str) -> None:
    """The stated limit r^2 lam^2 m' is that of lam^2 ||(S + lam)^-1 Delta||^2, not of ||Pi Delta||^2."""
    lam, draw = 0.6, sample(IDENTITY, 2.0)
    stated = lam**2 * stieltjes_and_slope(lam, 2.0)[1]
    close(draw.trace(lambda x: resolvent(lam)(x) ** 2), stated, rel=FINITE_SIZE)
    apart(draw.trace(null), stated)
    close(fa.predict(fa.Population(1, 1, 2), algorithm, ridge=lam)[algorithm].bias, stated)


@pytest.mark.parametrize("algorithm", [pytest.param("rtfa", id="1363"), pytest.param("pfedme", id="1699")])
@pytest.mark.parametrize("covariance", [IDENTITY, TWO_ATOM], ids=["identity", "two_atom"])
def test_erratum_variance_of_ridge_has_no_pseudoinverse(covariance: fa.Spectrum, algorithm: str) -> None:
    """V is (s2/n) tr((S + lam)^-2 S Sigma) -> s2 gamma (m - lam m'); printed: S^+ for S, and the limit s2/(gamma - 1)."""
    lam, gamma, s2 = 0.3, 2.0, 0.8
    draw = sample(covariance, gamma)
    right = s2 * gamma * draw.trace(lambda x: x / (x + lam) ** 2)
    printed = s2 * gamma * draw.trace(lambda x: np.where(x > 0, 1 / np.where(x > 0, x, 1), 0) / (x + lam) ** 2)
    found = fa.predict(fa.Population(1, s2**0.5, gamma, spectrum=covariance), algorithm, ridge=lam)[algorithm].variance
    close(found, right, rel=FINITE_SIZE)
    apart(found, printed, rel=0.2)
    apart(found, s2 / (gamma - 1), rel=0.2)
    apart(printed, s2 / (gamma - 1), rel=0.2)
    if covariance is IDENTITY:
        m, slope_of_m = stieltjes_and_slope(lam, gamma)
        close(found, s2 * gamma * (m - lam * slope_of_m))


@over_spectra
def test_erratum_1361_1697_ridge_variance_needs_the_ridge_theorem(covariance: fa.Spectrum) -> None:
    """The ridgeless theorem gives the variance of ridge 0 only; for a positive ridge it is the (corrected) line 1084."""
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
    """The variance of pFedMe is sigma_i^2 gamma_i (m_i - lam m_i'): no common gamma fits clients that differ."""
    clients = [fa.Population(1, noise, gamma) for noise, gamma in zip((0.7, 0.5), gammas, strict=True)]
    risk = fa.predict(clients, "pfedme", clients=[10**7, 10**7])["pfedme"]
    implied = []
    for i, each in enumerate(clients):
        m, slope_of_m = stieltjes_and_slope(risk.ridge[i], each.aspect)
        implied.append(risk.variance[i] / (each.noise**2 * (m - risk.ridge[i] * slope_of_m)))
    close(implied, gammas, rel=1e-5)
    apart(*implied, rel=0.3)


def test_erratum_712_every_client_has_its_own_loss() -> None:
    """With R_i(theta_j) in place of R_j(theta_j) all models are client i's own fit: the others' labels play no part."""
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


# Misprints: the proofs


def interpolant_variance(clients: Clients, i: int, Q: Array, weigh: list[Array], cross: Array) -> float:
    """Lines 1200 and 1201, or 1447 and 1448: the terms (i) + (ii) + (iii) of the variance after interpolation.

    The shared model is Q sum_j p_j weigh_j X_j'y_j/n_j; `cross` is what (ii) has for p_i weigh_i.
    """
    Sigma, S, n = np.diag(clients.s), clients.S(i), clients.sizes
    inverse = np.linalg.pinv(S)
    Pi = EYE - inverse @ S
    target = Pi @ Sigma @ Pi
    one = sum(
        p**2 * s2 / n[j] * np.trace(target @ Q @ weigh[j] @ clients.S(j) @ weigh[j] @ Q)
        for j, (p, s2) in enumerate(zip(clients.p, clients.noise2, strict=True))
    )
    two = 2 * clients.noise2[i] / n[i] * np.trace(Sigma @ inverse @ S @ cross @ Q @ Pi)
    three = clients.noise2[i] / n[i] * np.trace(inverse @ Sigma)
    return one + two + three


@pytest.mark.parametrize("i", [0, 1, 2])
def test_erratum_1201_cross_term_of_ftfa_lacks_the_weight(i: int) -> None:
    """The cross term (ii) must have the factor p_i."""
    Q = np.linalg.inv(sum(p * FEW.S(j) for j, p in enumerate(FEW.p)))
    right, printed = (interpolant_variance(FEW, i, Q, [EYE] * 3, factor * EYE) for factor in (FEW.p[i], 1))
    exact = FEW.variance(FEW.model("ftfa", i))
    close(right, exact, rel=1e-10)
    apart(printed, exact, rel=1e-3)


@pytest.mark.parametrize("i", [0, 1, 2])
def test_erratum_1448_1482_1483_cross_term_of_maml(i: int) -> None:
    """(ii) needs the factor p_i, W_i for W_j (line 1448), and (I - alpha S_i)^2 for (I - S_i)^2 (lines 1482 and 1483)."""
    alpha, other = 0.15, (i + 1) % 3
    weigh = [np.linalg.matrix_power(EYE - alpha * FEW.S(j), 2) for j in range(3)]
    Q = np.linalg.inv(sum(p * FEW.S(j) @ weigh[j] for j, p in enumerate(FEW.p)))
    exact = FEW.variance(FEW.model("maml", i, alpha=alpha))
    X, W = FEW.X[i], np.eye(4) - alpha / 4 * FEW.X[other] @ FEW.X[other].T
    swapped = np.linalg.pinv(FEW.S(i)) @ X.T @ W @ W @ X / 4  # S_i^+ X_i' W_j^2 X_i/n_i
    plain = np.linalg.matrix_power(EYE - FEW.S(i), 2)
    close(interpolant_variance(FEW, i, Q, weigh, FEW.p[i] * weigh[i]), exact, rel=1e-10)
    for cross in (swapped, weigh[i], FEW.p[i] * swapped, FEW.p[i] * plain):
        apart(interpolant_variance(FEW, i, Q, weigh, cross), exact, rel=1e-3)


def test_erratum_1256_squares_of_the_shared_objective() -> None:
    """Without the squares the minimiser is another one: the closed form is not stationary for sum_j p_j/(2 n_j) ||.||."""
    theta = MANY.fedavg(LABELS)
    squared = sum(p * MANY.gradient(LABELS, j, theta) for j, p in enumerate(MANY.p))
    assert np.abs(squared).max() < 1e-12
    lengths = [np.linalg.norm(X @ theta - y) for X, y in zip(MANY.X, LABELS, strict=True)]
    printed = sum(p * MANY.gradient(LABELS, j, theta) / (2 * lengths[j]) for j, p in enumerate(MANY.p))
    assert np.abs(printed).max() > 1e-3


def test_erratum_1264_ridge_is_towards_the_shared_model() -> None:
    """theta_FA must be theta_0^FA: the client's own theta_i^FA interpolates, and ridge towards it never moves."""
    y = [np.random.default_rng(51 + j).standard_normal((4, 1)) for j in range(3)]
    shared = FEW.fedavg(y)
    own = FEW.interpolate(y, 0, shared)
    for lam in (0.1, 10):
        closed = np.linalg.solve(FEW.S(0) + lam * EYE, lam * shared + FEW.X[0].T @ y[0] / 4)
        close(closed, FEW.model("rtfa", 0, lam=lam)(y), rel=1e-10)
        stuck = np.linalg.solve(FEW.S(0) + lam * EYE, lam * own + FEW.X[0].T @ y[0] / 4)
        close(stuck, own, rel=1e-10)
        apart(closed, stuck)


OPTIMA = np.random.default_rng(61).standard_normal((3, 6)) + 1


def test_erratum_1383_bias_of_maml_is_in_the_norm_of_sigma() -> None:
    """The first norm of the bias must be that of Sigma_i, as in the next line."""
    alpha = 0.15
    A = [FEW.S(j) @ np.linalg.matrix_power(EYE - alpha * FEW.S(j), 2) for j in range(3)]
    Q = np.linalg.inv(sum(p * a for p, a in zip(FEW.p, A, strict=True)))
    for i in range(3):
        off = Q @ sum(p * a @ (theta - OPTIMA[i]) for p, a, theta in zip(FEW.p, A, OPTIMA, strict=True))
        left = (EYE - np.linalg.pinv(FEW.S(i)) @ FEW.S(i)) @ off
        exact = FEW.bias(FEW.model("maml", i, alpha=alpha), i, OPTIMA)
        close(FEW.s @ left**2, exact, rel=1e-9)
        apart(left @ left, exact, rel=0.01)


@pytest.mark.parametrize("alpha", [0.1, 0.7, 1.0])
def test_erratum_1416_expansion_of_maml_weights(alpha: float) -> None:
    """S (I - alpha S)^2 = S - 2 alpha S^2 + alpha^2 S^3; 2 alpha^2 agrees at alpha = 1 only."""
    S = FEW.S(0)
    exact = S @ np.linalg.matrix_power(EYE - alpha * S, 2)
    right, printed = (S - 2 * a * S @ S + alpha**2 * S @ S @ S for a in (alpha, alpha**2))
    np.testing.assert_allclose(right, exact, atol=1e-12)
    assert np.allclose(printed, exact, atol=1e-12) == (alpha == 1)


@pytest.mark.parametrize("q", [3, 4])
def test_erratum_1435_exponent_of_the_step_in_the_moments_of_the_bias(q: int) -> None:
    """||S (I - alpha S)^2||^q <= (4^q/2) (||S||^q + alpha^(2q) ||S||^(3q)); with alpha^2 the bound fails for large steps."""
    for s, alpha in product((0.5, 1.0, 3.0), (0.1, 1.0, 10.0, 100.0)):
        moment = abs(s * (1 - alpha * s) ** 2) ** q
        assert moment <= 4**q / 2 * (s**q + alpha ** (2 * q) * s ** (3 * q))
    assert moment > 4**q / 2 * (s**q + alpha**2 * s ** (3 * q))


@pytest.mark.parametrize("q", [3, 4])
def test_erratum_1468_exponents_in_the_moments_of_the_variance(q: int) -> None:
    """||S (I - alpha S)^4||^q <= 2^(4q-1) (||S||^q + alpha^(4q) ||S||^(5q)).

    With alpha^4 the bound fails for large steps; with ||S|| for ||S||^q (from line 1466 on) for large S and small steps.
    """
    for s, alpha in product((0.5, 1.0, 3.0, 1e4), (1e-9, 0.1, 1.0, 10.0, 100.0)):
        moment = abs(s * (1 - alpha * s) ** 4) ** q
        assert moment <= 2 ** (4 * q - 1) * (s**q + alpha ** (4 * q) * s ** (5 * q))
    assert abs(1 * (1 - 100.0) ** 4) ** q > 2 ** (4 * q - 1) * (1 + 100.0**4)
    s, alpha = 1e4, 1e-9
    assert abs(s * (1 - alpha * s) ** 4) ** q > 2 ** (4 * q - 1) * (s + alpha ** (4 * q) * s ** (5 * q))


def test_erratum_1463_step_in_the_event() -> None:
    """The event is about S (I - alpha S)^4: with (I - S)^4 Markov's inequality of that line fails, here for S = 3 I."""
    S, alpha, p, t = 3 * np.eye(2), 0.3, 0.5, 1.0

    def size(step: float) -> float:
        return 2 * p**2 * np.linalg.norm(S @ np.linalg.matrix_power(np.eye(2) - step * S, 4), 2)

    assert float(size(1.0) > t) > size(alpha) / t
    assert float(size(alpha) > t) <= size(alpha) / t


def prox_variance(clients: Clients, i: int, lam: float, power: int, twos: float) -> float:
    """Lines 1664 to 1666: T_j^power S_j T_j^power in (i), `twos` in front of (ii); printed with 1 and 4."""
    T = [clients.S(j) + lam * EYE for j in range(3)]
    inverse = [np.linalg.inv(t) for t in T]
    Q = np.linalg.inv(EYE - lam * sum(p * t for p, t in zip(clients.p, inverse, strict=True)))
    Sigma, n, s2 = np.diag(clients.s), clients.sizes, clients.noise2
    target = inverse[i] @ Sigma @ inverse[i]
    around = [np.linalg.matrix_power(t, power) for t in T]
    one = sum(
        lam**2 * p**2 * s2[j] / n[j] * np.trace(target @ Q @ around[j] @ clients.S(j) @ around[j] @ Q)
        for j, p in enumerate(clients.p)
    )
    cross = np.trace(Sigma @ inverse[i] @ Q @ inverse[i] @ clients.S(i) @ inverse[i])
    return one + twos * lam * s2[i] * clients.p[i] / n[i] * cross + s2[i] / n[i] * np.trace(target @ clients.S(i))


@pytest.mark.parametrize("lam", [0.3, 1.0])
@pytest.mark.parametrize("i", [0, 1, 2])
def test_erratum_1664_1680_1665_1690_variance_of_pfedme(i: int, lam: float) -> None:
    """(i) has T_j^-1 S_j T_j^-1, not T_j S_j T_j (lines 1664, 1680); (ii) has one factor 2, not two (1665, 1690)."""
    exact = FEW.variance(FEW.model("pfedme", i, lam=lam))
    close(prox_variance(FEW, i, lam, power=-1, twos=2), exact, rel=1e-10)
    for power, twos in ((1, 2), (-1, 4), (1, 4)):
        apart(prox_variance(FEW, i, lam, power, twos), exact, rel=0.01)


@pytest.mark.parametrize("lam", [0.3, 2.0])
def test_erratum_1652_bias_of_pfedme_has_the_squared_ridge(lam: float) -> None:
    """B -> lam^2 ||T^-1 (theta_0 - theta_i)||^2_Sigma as E = lam Q^-1 sum p_j T_j^-1 S_j Delta_j vanishes; lam^2 is missing."""
    shared, i = np.linspace(-1, 1, 6), 0
    inverse = [np.linalg.inv(FEW.S(j) + lam * EYE) for j in range(3)]
    Q = np.linalg.inv(EYE - lam * sum(p * t for p, t in zip(FEW.p, inverse, strict=True)))
    error = Q @ sum(FEW.p[j] * inverse[j] @ FEW.S(j) @ (OPTIMA[j] - shared) for j in range(3))
    exact = FEW.bias(FEW.model("pfedme", i, lam=lam), i, OPTIMA)

    def size(vector: Array) -> float:
        return FEW.s @ (inverse[i] @ vector) ** 2

    close(size(lam * (shared - OPTIMA[i]) + lam * error), exact, rel=1e-9)
    apart(size(lam * (shared - OPTIMA[i]) + error), exact)
    # A client of negligible weight among others that sit at theta_0: E vanishes.
    tiny = Clients(FEW.X, FEW.s, np.array([1e-9, 0.5, 0.5]), FEW.noise2)
    limit = tiny.bias(tiny.model("pfedme", i, lam=lam), i, np.stack([OPTIMA[i], shared, shared]))
    close(lam**2 * size(shared - OPTIMA[i]), limit, rel=1e-7)
    apart(size(shared - OPTIMA[i]), limit, rel=0.5)


@pytest.mark.parametrize("p", [3, 4])
def test_erratum_952_953_khintchine_lacks_a_root(p: int) -> None:
    """Line 953 must have the exponent 1/2 of the lines around it: without, it equals neither, and bounds nothing."""
    x = np.random.default_rng(71).standard_normal((5, 3))
    signs = np.array(list(product((-1, 1), repeat=5)))
    for scale in (1.0, 0.01):
        lengths = np.linalg.norm(signs @ (scale * x), axis=1)
        left = np.mean(lengths**p) ** (1 / p)
        line_952 = np.sqrt(p - 1) * np.mean(lengths**2) ** 0.5
        inner = np.mean([(scale * sign @ x) @ (scale * sign @ x) for sign in signs])
        line_954 = np.sqrt(p - 1) * scale * np.linalg.norm(x)
        printed, right = np.sqrt(p - 1) * inner, np.sqrt(p - 1) * inner**0.5
        close([line_952, line_954], right)
        apart(printed, right)
        assert left <= right
    assert left > printed  # at the smaller scale


def test_erratum_corollary_1_expansion_is_right_with_a_negative_constant() -> None:
    """C (rho^2 - r^2) is fine, but C < 0: uncorrelated, C = -lam*^2 m'(-lam*), so sharing helps, the more the larger rho."""
    C = -(stieltjes_and_slope(1.0, 2.0)[1])
    norms = np.sqrt(1 + np.array([1e-6, 2e-6, 4e-6]))
    table = fa.predict(fa.Population(1, HALF, 2, norm=norms), ["rtfa", "local_ridge"])
    change = table["rtfa"].loss - table["local_ridge"].loss
    assert np.all(np.diff(change) < 0)
    close(change / (norms**2 - 1), C, rel=1e-5)


# Misprints: the algorithms. Every client takes part with all its samples, so rounds are exact gradient steps.

STEP, RIDGE, INNER = 0.2, 0.8, 0.15
Update = Callable[[int, Array], Array]


def fedavg_update(j: int, theta: Array) -> Array:
    """Line 1756: one gradient step."""
    return theta - STEP * MANY.gradient(LABELS, j, theta)


def hessian_free(j: int, theta: Array, difference: float = 1e-3) -> tuple[Array, Array]:
    """MAML's gradient after the inner step, and the Hessian of the loss times it by finite differences."""
    after = MANY.gradient(LABELS, j, theta - INNER * MANY.gradient(LABELS, j, theta))
    up, down = (MANY.gradient(LABELS, j, theta + sign * difference * after) for sign in (1, -1))
    return after, (up - down) / (2 * difference)


def maml_update(j: int, theta: Array) -> Array:
    """theta - eta (g2 - alpha H g2): a step on the loss after the inner step."""
    after, curved = hessian_free(j, theta)
    return theta - STEP * (after - INNER * curved)


def first_order_update(j: int, theta: Array) -> Array:
    """The first-order variant drops the Hessian."""
    return theta - STEP * hessian_free(j, theta)[0]


def pfedme_update(j: int, theta: Array) -> Array:
    """Line 1832, with the proximal model of the (corrected) line 1831."""
    return theta - STEP * RIDGE * (theta - MANY.shrink(LABELS, j, theta, RIDGE))


def train(update: Update, aggregate: Callable[[list[Array]], Array], mixing: float = 1.0, rounds: int = 2000) -> Array:
    """Rounds of local updates and aggregation, from zero, to convergence."""
    theta = np.zeros((3, 1))
    for _ in range(rounds):
        theta = (1 - mixing) * theta + mixing * aggregate([update(j, theta) for j in range(3)])
    return theta


def weighted(models: list[Array]) -> Array:
    """sum over j in the round of n_j / (sum of n_l over the round) theta_j."""
    return np.tensordot(MANY.sizes / MANY.sizes.sum(), models, axes=1)


def printed_aggregate(models: list[Array]) -> Array:
    """sum_{j=1}^D n_j / (sum_j n_j) theta_i: the index of the model is that of the last client of the loop."""
    return sum(n / MANY.sizes.sum() * models[-1] for n in MANY.sizes)


AGGREGATION = {
    "1760": (fedavg_update, 1.0, MANY.fedavg(LABELS)),
    "1809": (maml_update, 1.0, MANY.maml(LABELS, INNER)),
    "1836": (pfedme_update, 0.6, MANY.pfedme(LABELS, RIDGE)[0]),
}


@pytest.mark.parametrize(("update", "mixing", "target"), AGGREGATION.values(), ids=AGGREGATION)
def test_erratum_aggregation_averages_the_models_of_the_round(update: Update, mixing: float, target: Array) -> None:
    """With the models theta_j of the round, weighted by n_j, training solves its objective; with theta_i it follows one."""
    close(train(update, weighted, mixing), target, rel=1e-9)
    printed = train(update, printed_aggregate, mixing)
    alone = np.linalg.lstsq(MANY.X[2], LABELS[2])[0]  # every update of client 2 alone vanishes at its own fit
    close(printed, alone, rel=1e-9)
    apart(printed, target)


def test_erratum_1760_1809_1836_weights_are_those_of_the_sampled_clients() -> None:
    """When clients 0 and 2 are sampled, sum_{j=1}^D takes the sample counts of clients 0 and 1."""
    models = [fedavg_update(j, np.ones((3, 1))) for j in range(3)]
    chosen, n = [0, 2], MANY.sizes
    right = sum(n[j] * models[j] for j in chosen) / n[chosen].sum()
    printed = sum(n[k] * models[j] for k, j in enumerate(chosen)) / n[:2].sum()
    pooled = np.concatenate([MANY.X[j] for j in chosen]), np.concatenate([LABELS[j] for j in chosen])
    step = np.ones((3, 1)) - STEP * pooled[0].T @ (pooled[0] @ np.ones((3, 1)) - pooled[1]) / len(pooled[1])
    close(right, step, rel=1e-10)  # one gradient step on the pooled samples of the round
    apart(printed, step, rel=0.01)


def test_erratum_1790_1806_maml_hf_takes_steps_on_the_loss_after_the_inner_step() -> None:
    """As printed (plain steps of size alpha) it is FedAvg; g2 - alpha H g2 is the gradient of MAML's objective."""
    theta = np.ones((3, 1))
    for j, X in enumerate(MANY.X):
        W = np.eye(len(X)) - INNER / len(X) * X @ X.T
        after, curved = hessian_free(j, theta)
        close(after - INNER * curved, X.T @ W @ W @ (X @ theta - LABELS[j]) / len(X), rel=1e-9)
        close(after, X.T @ W @ (X @ theta - LABELS[j]) / len(X), rel=1e-9)
    printed = train(lambda j, theta: theta - INNER * MANY.gradient(LABELS, j, theta), weighted)
    target = MANY.maml(LABELS, INNER)
    close(printed, MANY.fedavg(LABELS), rel=1e-9)
    close(train(maml_update, weighted), target, rel=1e-9)
    apart(printed, target)
    first_order = train(first_order_update, weighted)
    apart(first_order, target, rel=0.01)
    apart(first_order, printed, rel=0.01)


def test_erratum_1815_maml_hf_returns_the_personalised_models() -> None:
    """The algorithm computes personalised models and must return them: the shared one does not fit the client's samples."""
    y = [np.random.default_rng(81 + j).standard_normal((4, 1)) for j in range(3)]
    shared = FEW.maml(y, 0.1)
    personal, step = shared, 1 / np.linalg.eigvalsh(FEW.S(0))[-1]
    for _ in range(12000):
        personal = personal - step * FEW.gradient(y, 0, personal)
    assert np.abs(FEW.X[0] @ personal - y[0]).max() < 1e-9
    assert np.abs(FEW.X[0] @ shared - y[0]).max() > 0.1
    close(personal, FEW.model("maml", 0, alpha=0.1)(y), rel=1e-8)


def test_erratum_1831_pfedme_minimises_the_loss_not_its_gradient() -> None:
    """In one dimension the printed objective (gradient plus penalty) has the minimiser w - s/lam, whatever the labels."""
    x, w, lam = np.array([0.5, -1.2, 2.0]), 0.3, 0.8
    s = x @ x / 3

    def printed(y: Array) -> float:
        grid = np.linspace(-10, 10, 200001)
        gradient = s * grid - x @ y / 3
        return grid[np.argmin(gradient + lam / 2 * (grid - w) ** 2)]

    one, two = np.array([1.0, 2, 3]), np.array([-4.0, 0, 5])
    for y in (one, two):
        right = minimize_scalar(lambda b, y=y: np.sum((x * b - y) ** 2) / 6 + lam / 2 * (b - w) ** 2).x
        assert right == pytest.approx((lam * w + x @ y / 3) / (s + lam), abs=1e-6)
        assert printed(y) == pytest.approx(w - s / lam, abs=1e-4)
        apart(printed(y), right)
    assert printed(one) == printed(two)


def test_erratum_1838_pfedme_returns_the_local_models() -> None:
    """The personalised models of equation param-prox are theta_i(theta_0), not the shared model that is returned."""
    shared = train(pfedme_update, weighted, 0.6)
    solution = MANY.pfedme(LABELS, RIDGE)
    for j in range(3):
        close(MANY.shrink(LABELS, j, shared, RIDGE), solution[1 + j], rel=1e-8)
        apart(shared, solution[1 + j])
