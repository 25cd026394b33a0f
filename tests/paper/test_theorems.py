"""Theorems 1 to 4 and corollary 1 of the paper."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import fedasym as fa

from ..cases import (
    IDENTITY,
    THREE_ATOM,
    TWO_ATOM,
    Array,
    Function,
    draw_clients,
    null,
    resolvent,
    sample,
)
from .settings import (
    EXAMPLE,
    FINITE_SIZE,
    GRID,
    HALF,
    close,
    over_spectra,
    stieltjes_and_slope,
    stieltjes_identity,
)


def test_theorem_1_closed_form_of_ftfa() -> None:
    """Uncorrelated features: B = r^2 (1 - 1/gamma), V = sigma^2/(gamma - 1)."""
    world = fa.Population(**GRID)
    risk = fa.predict(world, "ftfa")["ftfa"]
    close(risk.bias, world.radius**2 * (1 - 1 / world.aspect) * np.ones(world.shape))
    close(risk.variance, world.noise**2 / (world.aspect - 1) * np.ones(world.shape))


def test_theorem_2_closed_form_of_rtfa() -> None:
    """Uncorrelated features: B = r^2 lam^2 m'(-lam), V = sigma^2 gamma (m - lam m') with the
    printed m(z).
    """
    world = fa.Population(**GRID)
    for lam in (0.05, 0.3, 1, 20):
        m, slope_of_m = stieltjes_and_slope(lam, world.aspect)
        risk = fa.predict(world, "rtfa", ridge=lam)["rtfa"]
        close(risk.bias, world.radius**2 * lam**2 * slope_of_m * np.ones(world.shape))
        close(
            risk.variance,
            world.noise**2 * world.aspect * (m - lam * slope_of_m) * np.ones(world.shape),
            rel=1e-10,
        )


def test_theorem_2_risk_at_the_optimum() -> None:
    """Uncorrelated features: lam* = sigma^2 gamma/r^2 and the risk there is sigma^2 gamma
    m(-lam*).
    """
    world = fa.Population(**GRID)
    best = fa.predict(world, "rtfa")["rtfa"]
    lam = world.noise**2 * world.aspect / world.radius**2
    close(best.ridge, lam)
    close(
        best.loss, world.noise**2 * world.aspect * stieltjes_identity(-lam, world.aspect), rel=1e-10
    )


@over_spectra
@pytest.mark.parametrize(
    ("radius", "noise", "aspect"), [(1, HALF, 2), (2**0.5, 1, 4), (3**0.5, 2**0.5, 1.2)]
)
def test_theorem_2_best_ridge_for_every_covariance(
    covariance: fa.Spectrum, radius: float, noise: float, aspect: float
) -> None:
    """lam* = sigma^2 gamma/r^2 minimises the risk for every covariance when the displacement is
    isotropic.
    """
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
    gaps = [
        fa.predict(world, "pfedme", clients=m)["pfedme"].loss - limit["rtfa"].loss
        for m in (10**4, 10**6)
    ]
    assert gaps[0] < 20 * limit["rtfa"].loss / 10**4
    close(gaps[0] / gaps[1], 100, rel=1e-2)


@pytest.mark.parametrize("lam", [0.2, 1, 5])
def test_theorem_4_holds_at_any_ridge(lam: float) -> None:
    """Uncorrelated features, pFedMe with m clients at any ridge: bias and variance tend to those of
    theorem 2 like 1/m.
    """
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
@pytest.mark.parametrize(
    "s", [np.ones(20), np.repeat([0.5, 3], [12, 8])], ids=["identity", "two_atom"]
)
def test_theorems_the_shared_model_drops_out(
    s: Array, algorithm: str, keep: Function, options: dict[str, float]
) -> None:
    """Given a client's samples, its risk tends to what it would be if the shared model were
    theta_0.

    B -> ||P (theta_0 - theta_i)||^2_Sigma with P = I - S^+ S or lam (S + lam)^-1, and V ->
    (sigma^2/n) tr(S^+ Sigma) or (sigma^2/n) tr(Sigma S (S + lam)^-2): with eight times as many
    clients both gaps fall at least fourfold.
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
@pytest.mark.parametrize(
    "covariance", [IDENTITY, TWO_ATOM, THREE_ATOM], ids=["identity", "two_atom", "three_atom"]
)
def test_theorems_1_and_2_limits_of_the_traces(
    covariance: fa.Spectrum, lam: float, power: int
) -> None:
    """The traces of theorems 1 (lam = 0) and 2, over four draws, agree with the limits with and
    without an alignment.
    """
    risk = fa.predict(
        fa.Population(1, 1, 2, spectrum=covariance, shift_power=power), "rtfa", ridge=lam
    )["rtfa"]
    draws = [sample(covariance, 2.0, seed=seed) for seed in range(4)]
    energy = draws[0].s ** power / np.mean(draws[0].s ** power)
    found = np.mean(
        [draw.risk(resolvent(lam) if lam else null, 1.0, energy) for draw in draws], axis=0
    )
    close(found, [risk.bias, risk.variance], rel=FINITE_SIZE)


def test_corollary_1_fedavg_and_the_local_methods() -> None:
    """Uncorrelated features: FedAvg has r^2 and no variance; the local methods are theorems 1 and 2
    with rho for r.
    """
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
    close(
        table["local_ridge"].variance, world.noise**2 * world.aspect * (m - lam * slope_of_m) * ones
    )


def test_corollary_1_best_local_ridge() -> None:
    """lam* = sigma^2 gamma/rho^2, with risk sigma^2 gamma m(-lam*)."""
    world = fa.Population(**GRID, norm=2.5)
    best = fa.predict(world, "local_ridge")["local_ridge"]
    lam = world.noise**2 * world.aspect / 2.5**2
    close(best.ridge, lam * np.ones(world.shape))
    risk = world.noise**2 * world.aspect * stieltjes_identity(-lam, world.aspect)
    close(best.loss, risk * np.ones(world.shape), rel=1e-10)
