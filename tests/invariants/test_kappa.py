"""The transform kappa: its equation, its branches, its symmetries, and its table for large
grids.
"""

from __future__ import annotations

from dataclasses import replace

import mpmath
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import fedasym as fa
from fedasym.theory.transforms import (
    WORTHWHILE,
    atom_sums,
    kappa,
    kappa_slope,
    kappa_table,
    lowest_ridge,
    newton_kappa,
    sample_support,
    sums_at,
)

from .strategies import (
    ASPECTS,
    DIGITS,
    EPS,
    RIDGES,
    Exact,
    close,
    examples,
    log_uniform,
    near_thresholds,
    solve,
    spectra,
)

pytestmark = near_thresholds


@examples(200)
@given(spectra(), ASPECTS, RIDGES)
def test_kappa_solves_its_equation(spectrum, aspect, ridge):
    """To rounding, on the right branch, with the derivative of the exact solution."""
    k, growth = solve(ridge, aspect, spectrum)
    with mpmath.workdps(DIGITS):
        exact = Exact(aspect, spectrum)
        root = exact.kappa(ridge, k)
        assert root > 0
        tolerance = 8 * EPS * exact.condition(root)
        assert abs(k / root - 1) <= tolerance
        step = mpmath.mpf(ridge) * mpmath.mpf(10) ** -20
        difference = (exact.kappa(ridge + step, root) - exact.kappa(ridge - step, root)) / (
            2 * step
        )
        assert abs(growth / difference - 1) <= tolerance


@examples(50)
@given(spectra(), ASPECTS, st.lists(RIDGES, min_size=2, max_size=30))
def test_kappa_grows_with_the_ridge(spectrum, aspect, ridges):
    """From kappa(0) on, at least as fast as the ridge, and more slowly the larger it is."""
    lam = np.sort([0.0, *ridges])
    k = kappa(lam, np.full(lam.shape, aspect), spectrum)
    growth = kappa_slope(k, lam, np.full(lam.shape, aspect), spectrum)
    assert np.all(np.isfinite(k))
    assert k[0] >= 0
    assert np.all(np.diff(k) >= np.diff(lam) * (1 - 1e-12) - 4 * EPS * k[1:])
    assert np.all(growth >= 1 - 4 * EPS)
    assert np.all(growth[1:] <= growth[:-1] * (1 + 1e-9))


@examples(120)
@given(spectra(), ASPECTS)
@example(fa.spectra.atoms([1, 1], [2 / 3, 1 / 3]), 1 + 1e-12)
def test_kappa_without_ridge(spectrum, aspect):
    """Zero below the interpolation threshold aspect (1 - h0) = 1, the root of aspect df1 = 1
    above.
    """
    k, growth = solve(0.0, aspect, spectrum)
    ratio = aspect * spectrum.rank
    if ratio < 1:
        assert k == 0
        assert growth == pytest.approx(1 / (1 - ratio), rel=1e-14)
    elif ratio > 1:
        with mpmath.workdps(DIGITS):
            exact = Exact(aspect, spectrum)
            root = exact.kappa(0, k)
            assert root > 0
            assert abs(k / root - 1) <= 8 * EPS * exact.condition(root)
            assert abs(growth / exact.growth(root) - 1) <= 8 * EPS * exact.condition(root)


@examples(50)
@given(spectra(), ASPECTS.filter(lambda aspect: abs(aspect - 1) > 1e-6), st.floats(0.001, 0.999))
def test_kappa_at_negative_ridges(spectrum, aspect, part):
    """Down to minus the smallest eigenvalue that a sample covariance has, where its derivative is
    unbounded.
    """
    assume(abs(aspect * spectrum.rank - 1) > 1e-6)
    low = float(lowest_ridge(np.array([aspect]), spectrum)[0])
    assert low < 0
    assert low == pytest.approx(-sample_support(aspect, spectrum)[0], rel=1e-9)
    k, growth = solve(part * low, aspect, spectrum)
    with mpmath.workdps(DIGITS):
        exact = Exact(aspect, spectrum)
        root = exact.kappa(part * low, k)
        assert abs(k / root - 1) <= 32 * EPS * exact.condition(root)
        assert abs(growth / exact.growth(root) - 1) <= 1e3 * EPS * exact.condition(root)
    with pytest.raises(fa.InvalidInput, match="ridge"):
        solve(low * 1.001, aspect, spectrum)


@examples(50)
@given(spectra(), ASPECTS, RIDGES, log_uniform(1e-3, 1e3))
def test_kappa_scales_with_the_covariance(spectrum, aspect, ridge, factor):
    k, growth = solve(ridge, aspect, spectrum)
    scaled = solve(
        factor * ridge, aspect, fa.spectra.atoms(factor * spectrum.values, spectrum.weights)
    )
    tolerance = 32 * EPS * (1 + aspect * spectrum.rank * growth)
    assert scaled == (
        pytest.approx(factor * k, rel=tolerance),
        pytest.approx(growth, rel=tolerance),
    )


@examples(50)
@given(spectra(), ASPECTS, RIDGES, st.floats(0.1, 0.9), st.integers(0, 10))
def test_splitting_an_atom_changes_nothing(spectrum, aspect, ridge, part, which):
    i = which % spectrum.values.size
    values = np.append(spectrum.values, spectrum.values[i])
    weights = np.append(spectrum.weights, part * spectrum.weights[i])
    weights[i] *= 1 - part
    k, growth = solve(ridge, aspect, spectrum)
    split = solve(ridge, aspect, fa.spectra.atoms(values, weights))
    tolerance = 32 * EPS * (1 + aspect * spectrum.rank * growth)
    assert split == (pytest.approx(k, rel=tolerance), pytest.approx(growth, rel=tolerance))


@examples(50)
@given(log_uniform(1e-3, 1e3), ASPECTS, st.just(0.0) | RIDGES, st.just(0.0) | st.floats(0.1, 0.8))
def test_closed_form_of_one_atom(value, aspect, ridge, null):
    """Newton on two atoms that differ by rounding finds what the closed form gives for one."""
    rest = [null] if null else []
    one = fa.spectra.atoms([value] + [0.0] * len(rest), [1 - null, *rest])
    two = fa.spectra.atoms(
        [value, value * (1 + EPS)] + [0.0] * len(rest), [(1 - null) / 2, (1 - null) / 2, *rest]
    )
    k, growth = solve(ridge, aspect, one)
    tolerance = 32 * EPS * (1 + aspect * one.rank * growth)
    assert float(newton_kappa(np.array([ridge]), np.array([aspect]), two)[0]) == pytest.approx(
        k, rel=tolerance
    )


@pytest.mark.parametrize("decades", [0.5, 8])
@pytest.mark.parametrize("null", [0, 0.3])
def test_tabulated_sums_agree_with_direct_ones(decades, null):
    """A grid large enough for the table gives what its points give one by one; see also the next
    test.
    """
    rng = np.random.default_rng(30)
    values = np.append(10.0 ** rng.uniform(-decades, 0, 200), np.zeros(round(null * 200)))
    spectrum = fa.spectra.eigenvalues(values)
    points = WORTHWHILE // 200 + 100
    aspect = 10.0 ** rng.uniform(-2, 3, points)
    aspect[::3] = 1 + rng.choice([-1, 1], aspect[::3].size) * 10.0 ** rng.uniform(
        -12, -0.5, aspect[::3].size
    )
    ridge = 10.0 ** rng.uniform(-12, 12, points)
    k = kappa(ridge, aspect, spectrum)
    direct = newton_kappa(ridge, aspect, spectrum)
    assert np.isfinite(kappa_table(spectrum).solve(ridge, aspect)).mean() > 0.5
    condition = 1 + aspect * spectrum.rank * kappa_slope(direct, ridge, aspect, spectrum)
    assert np.all(np.abs(k / direct - 1) <= 1e-14 * condition)
    for found, expected in zip(sums_at(k, spectrum), atom_sums(k, *spectrum.positive), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_large_grid_equals_its_parts():
    """The table, through the public function: ten thousand worlds over two hundred atoms."""
    rng = np.random.default_rng(31)
    world = fa.Population(
        10.0 ** rng.uniform(-2, 2, 10_000),
        10.0 ** rng.uniform(-2, 2, 10_000),
        10.0 ** rng.uniform(-1, 2, 10_000),
        spectrum=fa.spectra.power_law(1.5, points=200),
        shift_power=0.7,
    )
    ridge = 10.0 ** rng.uniform(-4, 4, 10_000)
    whole = fa.predict(world, ["rtfa", "ftfa"], ridge=ridge)
    for i in range(0, 10_000, 997):
        one = replace(
            world, **{name: getattr(world, name)[i] for name in ("radius", "noise", "aspect")}
        )
        for name, risk in fa.predict(one, ["rtfa", "ftfa"], ridge=ridge[i]).items():
            close(fa.Risk(whole[name].bias[i], whole[name].variance[i]), risk, rtol=1e-12)
