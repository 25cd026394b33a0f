"""What must hold with infinitely many clients: identities, ends of the ridge path, units, best
ridges.
"""

from __future__ import annotations

from dataclasses import replace

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import fedasym as fa
from fedasym.theory.transforms import lowest_ridge, sums_at

from .strategies import (
    CLIENTS,
    DIGITS,
    EPS,
    RIDGES,
    Exact,
    close,
    examples,
    growth_of,
    isotropic_risk,
    log_uniform,
    near_thresholds,
    risk_of,
    share,
    solve,
    threshold_gap,
    worlds,
)

pytestmark = near_thresholds


@examples(150)
@given(worlds(aligned=False), RIDGES)
def test_isotropic_risk_needs_kappa_alone(world, ridge):
    """Equation (4) against (3): with isotropic displacements the covariance enters only through
    kappa.
    """
    with mpmath.workdps(DIGITS):
        exact = Exact(world.aspect, world.spectrum)
    expected, condition = isotropic_risk(
        exact, world, ridge, solve(ridge, world.aspect, world.spectrum)[0]
    )
    close(risk_of(world, "rtfa", ridge=ridge), expected, rtol=64 * EPS * condition)


@examples(50)
@given(worlds())
def test_ends_of_the_ridge_path(world):
    """An infinite ridge is FedAvg, none is FTFA, and the path is continuous at both ends."""
    size = np.array(
        [world.radius**2 * (world.displacement @ world.spectrum.values), world.noise**2]
    )
    fedavg, ftfa = risk_of(world, "fedavg"), risk_of(world, "ftfa")
    assert fedavg.variance == 0
    assert fedavg.bias == pytest.approx(size[0], rel=1e-14)
    close(risk_of(world, "rtfa", ridge=np.inf), fedavg, rtol=0)
    close(risk_of(world, "rtfa", ridge=0), ftfa, rtol=0)
    ratio = 1e-8 / (1 + world.aspect)
    far = risk_of(world, "rtfa", ridge=world.spectrum.values.max() / ratio)
    assert far.bias == pytest.approx(fedavg.bias, rel=1e-7)
    assert far.variance <= 2 * size[1] * world.aspect * ratio**2
    low = -float(lowest_ridge(np.array([world.aspect]), world.spectrum)[0])
    assume(low > 0)
    near = risk_of(world, "rtfa", ridge=1e-9 * low)
    assert near.bias == pytest.approx(ftfa.bias, rel=1e-7, abs=1e-7 * size[0])
    assert near.variance == pytest.approx(ftfa.variance, rel=1e-7)


@examples(30)
@given(worlds(), st.none() | RIDGES)
def test_only_the_client_stage_matters_in_the_limit(world, ridge):
    """MAML is FTFA and pFedMe is RTFA; with theta_0 = 0 sharing is of no use."""
    alone = replace(world, norm=world.radius, optimum_power=world.shift_power)
    table = fa.predict(alone, ridge=ridge)
    for one, other in (
        ("maml", "ftfa"),
        ("local", "ftfa"),
        ("pfedme", "rtfa"),
        ("local_ridge", "rtfa"),
    ):
        close(table[one], table[other], rtol=0)


@examples(50)
@given(
    worlds(),
    RIDGES,
    log_uniform(1e-3, 1e3),
    log_uniform(0.01, 100),
    st.none() | CLIENTS,
    st.booleans(),
)
def test_units_do_not_matter(world, ridge, factor, times, clients, member):
    """Sigma -> c Sigma with ridge -> c ridge multiplies the bias by c; the bias is quadratic in the
    radius, the variance in the noise.
    """
    assume(clients is None or clients > 1.1 * world.aspect * world.spectrum.rank)
    other = replace(
        world, radius=times * world.radius, noise=world.noise / times,
        spectrum=fa.spectra.atoms(factor * world.spectrum.values, world.spectrum.weights),
    )  # fmt: skip
    tolerance = 1e-12 * growth_of(world)
    for name in ("fedavg", "ftfa", "rtfa"):
        risk = risk_of(world, name, ridge=ridge, clients=clients, member=member)
        scaled = risk_of(other, name, ridge=factor * ridge, clients=clients, member=member)
        expected = fa.Risk(factor * times**2 * risk.bias, risk.variance / times**2)
        close(scaled, expected, rtol=tolerance, floor=share(other, 1e-14))


@examples(50)
@given(worlds(aligned=False), st.lists(RIDGES, min_size=5, max_size=20))
def test_best_ridge_of_isotropic_displacements(world, ridges):
    """lambda* = noise^2 aspect / radius^2, and the loss there, equation (5)."""
    best, loss = fa.optimal_ridge(world), fa.optimal_loss(world)
    assert best == (
        np.inf
        if world.radius == 0
        else pytest.approx(world.noise**2 * world.aspect / world.radius**2)
    )
    assert loss == pytest.approx(risk_of(world, "rtfa").loss, rel=1e-14)
    others = fa.predict(world, ["rtfa"], ridge=np.array([0, np.inf, *ridges]))["rtfa"].loss
    assert np.all(loss <= others * (1 + 1e-12))
    if np.isfinite(best) and best > 0:
        k = solve(best, world.aspect, world.spectrum)[0]
        assert loss == pytest.approx(
            world.radius**2 * k * float(sums_at(np.array(k), world.spectrum).df1), rel=1e-11
        )
        nearby = fa.predict(world, ["rtfa"], ridge=best * np.array([0.5, 0.99, 1.01, 2]))[
            "rtfa"
        ].loss
        assert np.all(loss <= nearby * (1 + 1e-12))


@examples(120)
@given(
    worlds(), st.lists(RIDGES, min_size=5, max_size=20), st.lists(st.floats(0, 0.99), max_size=5)
)
def test_best_ridge_of_aligned_displacements(world, ridges, parts):
    """No admissible ridge, negative ones included, does better."""
    assume(threshold_gap(world) > 1e-6)
    low = float(lowest_ridge(np.array([world.aspect]), world.spectrum)[0])
    best, loss = fa.optimal_ridge(world), fa.optimal_loss(world)
    assert best > low
    assert loss == pytest.approx(risk_of(world, "rtfa").loss, rel=1e-12)
    tried = [0.0, np.inf, *ridges, *(part * low for part in parts)]
    if np.isfinite(best):
        tried += [ridge for ridge in best * np.array([0.5, 0.99, 1.01, 2]) if ridge > low]
    others = fa.predict(world, ["rtfa"], ridge=np.array(tried))["rtfa"].loss
    assert np.all(loss <= others * (1 + 1e-10))


def test_best_ridge_can_be_negative():
    """A displacement along strong features, little noise: even the interpolant shrinks too much."""
    world = fa.Population(
        1, 0.02**0.5, 2, spectrum=fa.spectra.atoms([0.5, 3], [0.6, 0.4]), shift_power=1
    )
    best = fa.optimal_ridge(world)
    assert best == pytest.approx(-0.0563, abs=1e-4)
    assert fa.optimal_loss(world) < risk_of(world, "ftfa").loss * (1 - 1e-3)


@examples(50)
@given(worlds())
def test_noise_threshold_separates_fine_tuning_from_averaging(world):
    assume(world.radius > 0)
    edge = fa.noise_threshold(world)
    fedavg = risk_of(world, "fedavg").loss
    assert np.isfinite(edge)
    if edge == 0:
        assert (
            risk_of(replace(world, noise=max(world.noise, 1e-9 * world.radius)), "ftfa").loss
            >= fedavg
        )
        return
    losses = [
        risk_of(replace(world, noise=edge * factor), "ftfa").loss
        for factor in (1 - 1e-4, 1, 1 + 1e-4)
    ]
    assert losses[0] < fedavg < losses[2]
    assert losses[1] == pytest.approx(fedavg, rel=1e-11)
