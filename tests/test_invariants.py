"""What must hold for every population: identities, limits, orders and symmetries, over wide ranges of all parameters."""

from __future__ import annotations

from dataclasses import replace

import mpmath
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import fedasym as fa
from fedasym.algorithms import Average, Descend, Flow
from fedasym.theory.contours import support
from fedasym.theory.subordination import subordinate
from fedasym.theory.tabulated import WORTHWHILE, moments, tabulated
from fedasym.theory.transforms import kappa, lowest_ridge, newton, slope, sums

# Aspects near 1 are drawn on purpose: the formulas must hold there, however far finite sizes are from them.
pytestmark = pytest.mark.filterwarnings("ignore::fedasym.ThresholdWarning")

EPS = float(np.finfo(float).eps)
DIGITS = 60
NOTHING = fa.Risk(0.0, 0.0)


def examples(count: int) -> settings:
    """The same examples in every run."""
    return settings(max_examples=count, deadline=None, derandomize=True, database=None)


def log_uniform(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(np.log10(low), np.log10(high)).map(lambda u: float(10.0**u))


NEAR_ONE = st.builds(lambda gap, sign: 1 + sign * gap, log_uniform(1e-12, 0.3), st.sampled_from([-1, 1]))
ASPECTS = log_uniform(0.01, 1000) | NEAR_ONE
RIDGES = log_uniform(1e-12, 1e12)
SIZES = log_uniform(0.1, 10) | log_uniform(1e-6, 1) | log_uniform(1, 1e6) | st.just(0.0)
CLIENTS = log_uniform(1, 1e4).map(round)


@st.composite
def spectra(draw: st.DrawFn, *, decades: float = 8, atoms: int = 6, singular: bool = True) -> fa.Spectrum:
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
def worlds(draw: st.DrawFn, *, aspects: st.SearchStrategy[float] = ASPECTS, aligned: bool = True, **options) -> fa.Population:
    """Populations of any size; some displacements aligned with the covariance."""
    spectrum = draw(spectra(**options))
    power = draw(st.just(0.0) | st.floats(-3 if spectrum.rank == 1 else 0, 3)) if aligned else 0.0
    per_seen = spectrum.rank if draw(st.booleans()) else 1.0  # the threshold counts the unknowns that samples can see
    return fa.Population(draw(SIZES), draw(SIZES), draw(aspects) / per_seen, spectrum=spectrum, shift_power=power)


def threshold_gap(world: fa.Population) -> float:
    """How far the unknowns that samples can see are from the samples; within rounding of 0, rounding decides."""
    return abs(float(world.aspect) * world.spectrum.rank - 1)


def risk_of(world: object, algorithm: str | fa.Algorithm, **options) -> fa.Risk:
    """The prediction for one algorithm."""
    return next(iter(fa.predict(world, [algorithm], **options).values()))


def close(found: fa.Risk, expected: fa.Risk, rtol: float, floor: fa.Risk = NOTHING) -> None:
    """Bias and variance agree, each relatively to itself or within the floor."""
    for part in ("bias", "variance"):
        np.testing.assert_allclose(
            getattr(found, part), getattr(expected, part), rtol=rtol, atol=getattr(floor, part), err_msg=part
        )


def share(world: fa.Population, part: float) -> fa.Risk:
    """A share of what the population has to lose: r^2 sum g s, and the noise's energy."""
    return fa.Risk(part * world.radius**2 * float(world.displacement @ world.spectrum.values), part * world.noise**2)


class Exact:
    """Equation (1), or (13) for finitely many clients, at high precision and with weights that sum to the rank exactly."""

    def __init__(self, aspect: float, spectrum: fa.Spectrum, clients: float = np.inf) -> None:
        s, h = spectrum.positive
        total = mpmath.fsum(map(mpmath.mpf, h.tolist()))
        self.aspect, self.rank = mpmath.mpf(aspect), mpmath.mpf(spectrum.rank)
        self.pooled = self.aspect / mpmath.mpf(clients)
        self.atoms = [(mpmath.mpf(x), mpmath.mpf(w) * self.rank / total) for x, w in zip(s.tolist(), h.tolist(), strict=True)]

    def df(self, k: mpmath.mpf, order: int) -> mpmath.mpf:
        return mpmath.fsum(w * (x / (x + k)) ** order for x, w in self.atoms)

    def room(self, k: mpmath.mpf, order: int) -> mpmath.mpf:
        """ridge = kappa room(kappa, 1) and dridge/dkappa = room(kappa, 2)."""
        df = self.df(k, order)
        return 1 - self.aspect * df - self.pooled * (self.rank - df)

    def kappa(self, ridge: float | mpmath.mpf, start: float | mpmath.mpf) -> mpmath.mpf:
        """Newton, which converges from anywhere right of the equation's minimum, as it is convex there."""
        k, ridge = mpmath.mpf(start), mpmath.mpf(ridge)
        for _ in range(300):
            step = (k * self.room(k, 1) - ridge) / self.room(k, 2)
            k -= step
            if abs(step) <= mpmath.mpf(10) ** (20 - DIGITS) * abs(k):  # room(k, 1) loses up to 12 digits near the threshold
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
    return float(k), float(slope(k, np.array(ridge), np.array(aspect), spectrum))


# The transform kappa.


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
        difference = (exact.kappa(ridge + step, root) - exact.kappa(ridge - step, root)) / (2 * step)
        assert abs(growth / difference - 1) <= tolerance


@examples(100)
@given(spectra(), ASPECTS, st.lists(RIDGES, min_size=2, max_size=30))
def test_kappa_grows_with_the_ridge(spectrum, aspect, ridges):
    """From kappa(0) on, at least as fast as the ridge, and more slowly the larger it is."""
    lam = np.sort([0.0, *ridges])
    k = kappa(lam, np.full(lam.shape, aspect), spectrum)
    growth = slope(k, lam, np.full(lam.shape, aspect), spectrum)
    assert np.all(np.isfinite(k))
    assert k[0] >= 0
    assert np.all(np.diff(k) >= np.diff(lam) * (1 - 1e-12) - 4 * EPS * k[1:])
    assert np.all(growth >= 1 - 4 * EPS)
    assert np.all(growth[1:] <= growth[:-1] * (1 + 1e-9))


@examples(120)
@given(spectra(), ASPECTS)
@example(fa.spectra.atoms([1, 1], [2 / 3, 1 / 3]), 1 + 1e-12)
def test_kappa_without_ridge(spectrum, aspect):
    """Zero below the interpolation threshold aspect (1 - h0) = 1, the root of aspect df1 = 1 above."""
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


@examples(100)
@given(spectra(), ASPECTS.filter(lambda aspect: abs(aspect - 1) > 1e-6), st.floats(0.001, 0.999))
def test_kappa_at_negative_ridges(spectrum, aspect, part):
    """Down to minus the smallest eigenvalue that a sample covariance has, where its derivative is unbounded."""
    assume(abs(aspect * spectrum.rank - 1) > 1e-6)
    low = float(lowest_ridge(np.array([aspect]), spectrum)[0])
    assert low < 0
    assert low == pytest.approx(-support(aspect, spectrum)[0], rel=1e-9)
    k, growth = solve(part * low, aspect, spectrum)
    with mpmath.workdps(DIGITS):
        exact = Exact(aspect, spectrum)
        root = exact.kappa(part * low, k)
        assert abs(k / root - 1) <= 32 * EPS * exact.condition(root)
        assert abs(growth / exact.growth(root) - 1) <= 1e3 * EPS * exact.condition(root)
    with pytest.raises(fa.InvalidInput, match="ridge"):
        solve(low * 1.001, aspect, spectrum)


@examples(100)
@given(spectra(), ASPECTS, RIDGES, log_uniform(1e-3, 1e3))
def test_kappa_scales_with_the_covariance(spectrum, aspect, ridge, factor):
    k, growth = solve(ridge, aspect, spectrum)
    scaled = solve(factor * ridge, aspect, fa.spectra.atoms(factor * spectrum.values, spectrum.weights))
    tolerance = 32 * EPS * (1 + aspect * spectrum.rank * growth)
    assert scaled == (pytest.approx(factor * k, rel=tolerance), pytest.approx(growth, rel=tolerance))


@examples(100)
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


@examples(100)
@given(log_uniform(1e-3, 1e3), ASPECTS, st.just(0.0) | RIDGES, st.just(0.0) | st.floats(0.1, 0.8))
def test_closed_form_of_one_atom(value, aspect, ridge, null):
    """Newton on two atoms that differ by rounding finds what the closed form gives for one."""
    rest = [null] if null else []
    one = fa.spectra.atoms([value] + [0.0] * len(rest), [1 - null, *rest])
    two = fa.spectra.atoms([value, value * (1 + EPS)] + [0.0] * len(rest), [(1 - null) / 2, (1 - null) / 2, *rest])
    k, growth = solve(ridge, aspect, one)
    tolerance = 32 * EPS * (1 + aspect * one.rank * growth)
    assert float(newton(np.array([ridge]), np.array([aspect]), two)[0]) == pytest.approx(k, rel=tolerance)


@pytest.mark.parametrize("decades", [0.5, 8])
@pytest.mark.parametrize("null", [0, 0.3])
def test_tabulated_sums_agree_with_direct_ones(decades, null):
    """A grid large enough for the table gives what its points give one by one; see also the next test."""
    rng = np.random.default_rng(30)
    values = np.append(10.0 ** rng.uniform(-decades, 0, 200), np.zeros(round(null * 200)))
    spectrum = fa.spectra.eigenvalues(values)
    points = WORTHWHILE // 200 + 100
    aspect = 10.0 ** rng.uniform(-2, 3, points)
    aspect[::3] = 1 + rng.choice([-1, 1], aspect[::3].size) * 10.0 ** rng.uniform(-12, -0.5, aspect[::3].size)
    ridge = 10.0 ** rng.uniform(-12, 12, points)
    k = kappa(ridge, aspect, spectrum)
    direct = newton(ridge, aspect, spectrum)
    assert np.isfinite(tabulated(spectrum).solve(ridge, aspect)).mean() > 0.5
    condition = 1 + aspect * spectrum.rank * slope(direct, ridge, aspect, spectrum)
    assert np.all(np.abs(k / direct - 1) <= 1e-14 * condition)
    for found, expected in zip(sums(k, spectrum), moments(k, *spectrum.positive), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_large_grid_equals_its_parts():
    """The table, through the public function: ten thousand worlds over two hundred atoms."""
    rng = np.random.default_rng(31)
    world = fa.Population(
        10.0 ** rng.uniform(-2, 2, 10_000), 10.0 ** rng.uniform(-2, 2, 10_000), 10.0 ** rng.uniform(-1, 2, 10_000),
        spectrum=fa.spectra.power_law(1.5, points=200), shift_power=0.7,
    )  # fmt: skip
    ridge = 10.0 ** rng.uniform(-4, 4, 10_000)
    whole = fa.predict(world, ["rtfa", "ftfa"], ridge=ridge)
    for i in range(0, 10_000, 997):
        one = replace(world, **{name: getattr(world, name)[i] for name in ("radius", "noise", "aspect")})
        for name, risk in fa.predict(one, ["rtfa", "ftfa"], ridge=ridge[i]).items():
            close(fa.Risk(whole[name].bias[i], whole[name].variance[i]), risk, rtol=1e-12)


# Limits: infinitely many clients.


def isotropic_risk(exact: Exact, world: fa.Population, ridge: float, start: float) -> tuple[fa.Risk, float]:
    """Equation (4), B = (r^2/aspect)(kappa - ridge kappa') and V = sigma^2 (kappa' - 1), and its condition."""
    with mpmath.workdps(DIGITS):
        k = exact.kappa(ridge, start)
        growth = exact.growth(k)
        bias = mpmath.mpf(world.radius) ** 2 / exact.aspect * (k - ridge * growth)
        variance = mpmath.mpf(world.noise) ** 2 * (growth - 1)
        return fa.Risk(float(bias), float(variance)), exact.condition(k)


@examples(150)
@given(worlds(aligned=False), RIDGES)
def test_isotropic_risk_needs_kappa_alone(world, ridge):
    """Equation (4) against (3): with isotropic displacements the covariance enters only through kappa."""
    with mpmath.workdps(DIGITS):
        exact = Exact(world.aspect, world.spectrum)
    expected, condition = isotropic_risk(exact, world, ridge, solve(ridge, world.aspect, world.spectrum)[0])
    close(risk_of(world, "rtfa", ridge=ridge), expected, rtol=64 * EPS * condition)


@examples(100)
@given(worlds())
def test_ends_of_the_ridge_path(world):
    """An infinite ridge is FedAvg, none is FTFA, and the path is continuous at both ends."""
    size = np.array([world.radius**2 * (world.displacement @ world.spectrum.values), world.noise**2])
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


@examples(60)
@given(worlds(), st.none() | RIDGES)
def test_only_the_client_stage_matters_in_the_limit(world, ridge):
    """MAML is FTFA and pFedMe is RTFA; with theta_0 = 0 sharing is of no use."""
    alone = replace(world, norm=world.radius, optimum_power=world.shift_power)
    table = fa.predict(alone, ridge=ridge)
    for one, other in (("maml", "ftfa"), ("local", "ftfa"), ("pfedme", "rtfa"), ("local_ridge", "rtfa")):
        close(table[one], table[other], rtol=0)


@examples(100)
@given(worlds(), RIDGES, log_uniform(1e-3, 1e3), log_uniform(0.01, 100), st.none() | CLIENTS, st.booleans())
def test_units_do_not_matter(world, ridge, factor, times, clients, member):
    """Sigma -> c Sigma with ridge -> c ridge multiplies the bias by c; the bias is quadratic in the radius, the variance in
    the noise.
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


def growth_of(world: fa.Population) -> float:
    """1 + aspect kappa'(0), which bounds how rounding of the aspect shows in a loss; cut off near the threshold."""
    return min(1 + float(world.aspect) * solve(0.0, world.aspect, world.spectrum)[1], 1e8)


@examples(100)
@given(worlds(aligned=False), st.lists(RIDGES, min_size=5, max_size=20))
def test_best_ridge_of_isotropic_displacements(world, ridges):
    """lambda* = noise^2 aspect / radius^2, and the loss there, equation (5)."""
    best, loss = fa.optimal_ridge(world), fa.optimal_loss(world)
    assert best == (np.inf if world.radius == 0 else pytest.approx(world.noise**2 * world.aspect / world.radius**2))
    assert loss == pytest.approx(risk_of(world, "rtfa").loss, rel=1e-14)
    others = fa.predict(world, ["rtfa"], ridge=np.array([0, np.inf, *ridges]))["rtfa"].loss
    assert np.all(loss <= others * (1 + 1e-12))
    if np.isfinite(best) and best > 0:
        k = solve(best, world.aspect, world.spectrum)[0]
        assert loss == pytest.approx(world.radius**2 * k * float(sums(np.array(k), world.spectrum).df1), rel=1e-11)
        nearby = fa.predict(world, ["rtfa"], ridge=best * np.array([0.5, 0.99, 1.01, 2]))["rtfa"].loss
        assert np.all(loss <= nearby * (1 + 1e-12))


@examples(120)
@given(
    worlds(),
    st.lists(RIDGES, min_size=5, max_size=20),
    st.lists(st.floats(0, 0.99), max_size=5),
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
    world = fa.Population(1, 0.02**0.5, 2, spectrum=fa.spectra.atoms([0.5, 3], [0.6, 0.4]), shift_power=1)
    best = fa.optimal_ridge(world)
    assert best == pytest.approx(-0.0563, abs=1e-4)
    assert fa.optimal_loss(world) < risk_of(world, "ftfa").loss * (1 - 1e-3)


@examples(100)
@given(worlds())
def test_noise_threshold_separates_fine_tuning_from_averaging(world):
    assume(world.radius > 0)
    edge = fa.noise_threshold(world)
    fedavg = risk_of(world, "fedavg").loss
    assert np.isfinite(edge)
    if edge == 0:
        assert risk_of(replace(world, noise=max(world.noise, 1e-9 * world.radius)), "ftfa").loss >= fedavg
        return
    losses = [risk_of(replace(world, noise=edge * factor), "ftfa").loss for factor in (1 - 1e-4, 1, 1 + 1e-4)]
    assert losses[0] < fedavg < losses[2]
    assert losses[1] == pytest.approx(fedavg, rel=1e-11)


# Early-stopped fine-tuning.


def stopped(world: fa.Population, stage: Descend | Flow, **options) -> fa.Risk:
    return risk_of(world, fa.Algorithm("stopped", Average(), stage), **options)


@examples(25)
@given(worlds(aspects=log_uniform(0.01, 1000)))
def test_ends_of_the_fine_tuning_path(world):
    """It starts at FedAvg and ends at FTFA; the closed form that the code switches to is where the path leads."""
    assume(threshold_gap(world) > 0.05)
    low, high = support(world.aspect, world.spectrum)
    fedavg, ftfa = risk_of(world, "fedavg"), risk_of(world, "ftfa")
    last = int(np.ceil(36 * high / low))
    for start, end in ((Flow(0), Flow(36 / low)), (Descend(1 / high, 0), Descend(1 / high, last))):
        close(stopped(world, start), fedavg, rtol=1e-11, floor=share(world, 1e-12))
        close(stopped(world, end), ftfa, rtol=1e-9, floor=share(world, 1e-9))
    close(stopped(world, Flow(np.inf)), ftfa, rtol=0)


@examples(15)
@given(worlds(), st.floats(0.01, 3))
def test_flow_is_the_limit_of_small_steps(world, length):
    """(1 - t x/N)^N = exp(-t x) (1 + O((t x)^2/N))."""
    time, many = length / support(world.aspect, world.spectrum)[1], 10**8
    close(stopped(world, Descend(time / many, many)), stopped(world, Flow(time)), rtol=1e-6)


@examples(60)
@given(worlds(), st.floats(0.001, 2.5))
def test_one_step_in_closed_form(world, length):
    """The contour integral of a single step, stable or not, against moments of the spectrum; the best step is the best."""
    step = length / support(world.aspect, world.spectrum)[1]
    closed = fa.one_step(world, step)
    assert closed[0] == step
    close(stopped(world, Descend(step)), closed[1], rtol=1e-9, floor=share(world, 1e-12))
    best, risk = fa.one_step(world)
    assert np.isfinite(best)
    assert risk.loss <= closed[1].loss * (1 + 1e-12)
    for other in (0.0, 0.9 * best, 1.1 * best):
        assert risk.loss <= fa.one_step(world, other)[1].loss * (1 + 1e-12)


@examples(10)
@given(worlds(), st.booleans(), st.lists(log_uniform(0.01, 1e4), min_size=1, max_size=6))
def test_best_stopping_point(world, flow, lengths):
    """No stopping point does better, neither end included; `predict` agrees with the path."""
    high = support(world.aspect, world.spectrum)[1]
    times = np.array([0, *lengths]) / high if flow else np.round([0, *lengths])
    path = fa.fine_tuning(world, **({"flow": True, "times": times} if flow else {"steps": times}))
    best = path.best.risk.loss
    losses = [*path.loss, risk_of(world, "fedavg").loss, risk_of(world, "ftfa").loss]
    assert best <= min(losses) * (1 + 1e-9)
    for time, bias, variance in zip(times, path.bias, path.variance, strict=True):
        stage = Flow(time) if flow else Descend(path.step, int(time))
        close(stopped(world, stage), fa.Risk(bias, variance), rtol=1e-9, floor=share(world, 1e-12))


# Finitely many clients.


@st.composite
def federations(draw: st.DrawFn, **options) -> tuple[fa.Population, int]:
    """A population and a number of clients with clearly more pooled samples than unknowns."""
    world = draw(worlds(**options))
    fewest = 1.05 * world.aspect * world.spectrum.rank
    return world, int(np.ceil(fewest * draw(log_uniform(1, 1e4))))


SHARING = ("fedavg", "ftfa", "rtfa")


@examples(60)
@given(worlds(), st.sampled_from([None, 0.0, np.inf]) | RIDGES, st.none() | st.just(1) | CLIENTS, st.booleans())
def test_every_risk_is_a_number(world, ridge, clients, member):
    """Never NaN nor negative, whatever the sizes; infinite only where samples just match the unknowns."""
    world = replace(world, norm=2 * world.radius, optimum_power=world.shift_power)
    assume(clients is None or abs(world.aspect * world.spectrum.rank / clients - 1) > 0.01)
    names = ["fedavg", "ftfa", "rtfa", "local", "local_ridge"]
    if world.isotropic and (clients is None or ridge is None):
        names.append("pfedme")
    for name, risk in fa.predict(world, names, ridge=ridge, clients=clients, member=member).items():
        assert risk.bias >= 0, name
        assert risk.variance >= 0, name
        assert np.isfinite(risk.loss) or threshold_gap(world) < 1e-9, name


@examples(60)
@given(worlds(), RIDGES, st.booleans())
def test_many_clients_approach_infinitely_many(world, ridge, member):
    """The difference is O(1/m), for members and new clients alike; infinitely many are the limit itself."""
    for name in (*SHARING, *(["pfedme"] if world.isotropic else []), *(["maml"] if world.spectrum.scale else [])):
        given_ridge = None if name == "pfedme" else ridge
        limit = risk_of(world, name, ridge=given_ridge)
        close(risk_of(world, name, ridge=given_ridge, clients=np.inf, member=member), limit, rtol=0)
        close(
            risk_of(world, name, ridge=given_ridge, clients=1e13, member=member), limit,
            rtol=1e-12 * (1e3 + growth_of(world)), floor=share(world, 1e-9),
        )  # fmt: skip


@examples(100)
@given(federations())
def test_fedavg_of_equal_clients_in_closed_form(federation):
    """Equations (6) and (7), for isotropic displacements: exact in the covariance's mean and rank alone."""
    world, m = replace(federation[0], shift_power=0.0), federation[1]
    tau, rank, r2, s2 = world.spectrum.mean, world.spectrum.rank, world.radius**2, world.noise**2
    gN = world.aspect * rank / m
    member = fa.Risk(r2 * tau * (1 - 1 / m) / (1 - gN), s2 * gN / (1 - gN))
    new = fa.Risk(r2 * tau * (1 + 1 / m - 2 * gN / m) / (1 - gN), s2 * gN / (1 - gN))
    close(risk_of(world, "fedavg", clients=m), member, rtol=1e-11, floor=share(world, 1e-14))
    close(risk_of(world, "fedavg", clients=m, member=False), new, rtol=1e-11)


@examples(60)
@given(federations(atoms=1, singular=False), RIDGES, st.booleans())
def test_two_theories_agree_on_uncorrelated_features(federation, ridge, member):
    """The linear pencil (members) and the single-client formula (new clients) against free-probability subordination,
    whose quadrature needs the more nodes, the nearer the aspect is to 1.
    """
    world, m = federation
    assume(threshold_gap(world) > 5e-3)
    scale = world.spectrum.scale
    lam = ridge / scale
    filters = {
        "fedavg": np.ones_like,
        "ftfa": lambda x: np.where(x > 0, 0.0, 1.0),
        "rtfa": lambda x: lam / (x + lam),
    }
    for name, keep in filters.items():
        numbers = (np.array([x]) for x in (world.aspect, world.radius**2 * scale, world.noise**2, float(m)))
        bias, variance = subordinate(np.ones_like, keep, *numbers, member)
        found = risk_of(world, name, ridge=ridge, clients=m, member=member)
        close(found, fa.Risk(float(bias[0]), float(variance[0])), rtol=1e-9, floor=share(world, 1e-11))


@examples(40)
@given(federations(atoms=1, singular=False), st.booleans())
def test_maml_without_a_step_is_ftfa(federation, member):
    world, m = federation
    ftfa = risk_of(world, "ftfa", clients=m, member=member)
    close(risk_of(world, "maml", clients=m, member=member, maml_step=0), ftfa, rtol=1e-9, floor=share(world, 1e-11))


@examples(100)
@given(federations(aligned=False))
def test_pfedme_needs_kappa_alone(federation):
    """Equation (13): (4) again, with a kappa that knows the number of clients, at the ridge noise^2 aspect / radius^2."""
    world, m = federation
    assume(world.radius > 0 and world.noise > 0)
    ridge = fa.optimal_ridge(world)
    with mpmath.workdps(DIGITS):
        exact = Exact(world.aspect, world.spectrum, m)
    start = (ridge + world.aspect * world.spectrum.values.max()) / (1 - world.aspect * world.spectrum.rank / m)
    expected, condition = isotropic_risk(exact, world, ridge, start)
    close(risk_of(world, "pfedme", clients=m), expected, rtol=1e3 * EPS * condition, floor=share(world, 4 * EPS))


@examples(30)
@given(federations(aligned=False))
@example((fa.Population(1, 1e-4, 1), 2))
@example((fa.Population(1, 0, 1), 2))
def test_order_of_the_methods(federation):
    """Members, isotropic, best ridges: pFedMe, the best linear unbiased prediction, <= RTFA <= FTFA and FedAvg."""
    world, m = federation
    assume(world.radius > 0)
    table = fa.predict(world, ["pfedme", "rtfa", "ftfa", "fedavg"], clients=m)
    pfedme, rtfa, ftfa, fedavg = (risk.loss for risk in table.values())
    assert pfedme <= rtfa * (1 + 1e-9)
    assert rtfa <= min(ftfa, fedavg) * (1 + 1e-9)


@examples(40)
@given(federations(), st.lists(RIDGES, min_size=3, max_size=10), st.booleans())
def test_best_ridge_of_a_finite_federation(federation, ridges, member):
    """RTFA without a given ridge does at least as well as with any other."""
    world, m = federation
    assume(threshold_gap(world) > 1e-6)
    best = risk_of(world, "rtfa", clients=m, member=member)
    others = risk_of(world, "rtfa", clients=m, member=member, ridge=np.array([0.0, np.inf, *ridges]))
    assert np.all(best.loss <= others.loss * (1 + 1e-8))


@examples(40)
@given(federations(), st.booleans())
def test_ends_of_the_ridge_path_of_a_finite_federation(federation, member):
    world, m = federation
    fedavg, ftfa = (risk_of(world, name, clients=m, member=member) for name in ("fedavg", "ftfa"))
    close(risk_of(world, "rtfa", ridge=np.inf, clients=m, member=member), fedavg, rtol=1e-12)
    close(risk_of(world, "rtfa", ridge=0, clients=m, member=member), ftfa, rtol=1e-12)
    far = 1e9 * (1 + world.aspect) * world.spectrum.values.max()
    close(risk_of(world, "rtfa", ridge=far, clients=m, member=member), fedavg, rtol=1e-7, floor=share(world, 1e-7))


@examples(20)
@given(federations(aspects=log_uniform(0.01, 1000)), st.booleans())
def test_ends_of_the_fine_tuning_path_of_a_finite_federation(federation, member):
    """For a member, who has a formula only with uncorrelated features, and for a new client."""
    world, m = federation
    if member:
        world = replace(world, spectrum=fa.spectra.identity(world.spectrum.mean))
        m = int(np.ceil(m / federation[0].spectrum.rank))
    assume(threshold_gap(world) > 0.05)
    low = support(world.aspect, world.spectrum)[0]
    for time, name in ((0, "fedavg"), (36 / low, "ftfa")):
        expected = risk_of(world, name, clients=m, member=member)
        close(stopped(world, Flow(time), clients=m, member=member), expected, rtol=1e-9, floor=share(world, 1e-9))


@examples(60)
@given(federations(), RIDGES, st.booleans())
@example((fa.Population(1, 1e-4, 10), 11), 1.0, True)
@example((fa.Population(1, 1e4, 10), 11), 1.0, True)
def test_equal_clients_as_a_list(federation, ridge, member):
    """The formulas for clients that differ give equal clients what the formulas for equal clients give."""
    world, m = federation
    blup = world.isotropic and world.radius > 0 and world.noise > 0  # equation (13) against (16)
    tolerance = 1e-9 * growth_of(world)
    for name in (*SHARING, *(["pfedme"] if blup else [])):
        given_ridge = None if name == "pfedme" else ridge
        one = risk_of(world, name, ridge=given_ridge, clients=m, member=member)
        listed = risk_of([world], name, ridge=given_ridge, clients=[m], member=member)
        close(fa.Risk(listed.bias[0], listed.variance[0]), one, rtol=tolerance, floor=share(world, 1e-10))


@st.composite
def kinds(draw: st.DrawFn, *, isotropic: bool = False, crowded: bool = False) -> tuple[list[fa.Population], list[int]]:
    """Two or three kinds of clients over common directions, and how many there are of each."""
    directions = draw(st.integers(1, 4))
    weights = np.array(draw(st.lists(st.floats(0.1, 1), min_size=directions, max_size=directions)))
    centre = np.array(draw(st.lists(st.floats(0.1, 3), min_size=directions, max_size=directions)))
    found = []
    for _ in range(draw(st.integers(2, 3))):
        values = 10 ** np.array(draw(st.lists(st.floats(-2, 1), min_size=directions, max_size=directions)))
        spectrum = fa.spectra.atoms(values, weights / weights.sum())
        aspect = draw(log_uniform(20, 100) if crowded else log_uniform(0.1, 4))
        power = 0.0 if isotropic else draw(st.floats(-1, 1))
        radius, noise = draw(log_uniform(0.1, 10)), draw(log_uniform(0.1, 10))
        kind = fa.Population(radius, noise, aspect, spectrum=spectrum, shift_power=power)
        energy = radius**2 * kind.displacement + centre
        found.append(replace(kind, norm=energy.sum() ** 0.5, optimum_weights=energy / energy.sum()))
    few = 1 if crowded else 4
    return found, [draw(st.integers(few, 3 * few)) for _ in found]


def entries(risk: fa.Risk, rows: list[int]) -> fa.Risk:
    return fa.Risk(risk.bias[rows], risk.variance[rows])


@examples(30)
@given(kinds(isotropic=True), RIDGES, st.booleans(), st.randoms(use_true_random=False))
def test_order_and_merging_of_clients(federation, ridge, member, random):
    """Permuting the clients permutes the rows; counts stand for repeated clients, whether or not they can be merged."""
    worlds_, count = federation
    spelled = [i for i, times in enumerate(count) for _ in range(times)]
    random.shuffle(spelled)
    almost = [replace(worlds_[i], noise=worlds_[i].noise * (1 + 1e-13 * row)) for row, i in enumerate(spelled)]
    for name in (*SHARING, "pfedme"):
        given_ridge = None if name == "pfedme" else ridge
        counted = risk_of(worlds_, name, ridge=given_ridge, clients=count, member=member)
        listed = risk_of([worlds_[i] for i in spelled], name, ridge=given_ridge, member=member)
        close(listed, entries(counted, spelled), rtol=1e-11)
        separate = risk_of(almost, name, ridge=given_ridge, member=member)
        close(separate, entries(counted, spelled), rtol=1e-8)


@examples(30)
@given(kinds(), RIDGES, st.booleans(), log_uniform(0.01, 100))
def test_weights_of_clients(federation, ridge, member, factor):
    """Names stand for numbers, and scaling all noise leaves the weights by precision alone."""
    worlds_, count = federation
    samples = np.array([1 / world.aspect for world in worlds_])
    precision = samples / np.array([world.noise for world in worlds_]) ** 2
    for name in SHARING:
        options = {"ridge": ridge, "clients": count, "member": member}
        for weights, numbers in (("samples", samples), ("uniform", np.ones(len(count))), ("precision", precision)):
            found = risk_of(worlds_, name, weights=weights, **options)
            close(found, risk_of(worlds_, name, weights=numbers / (numbers @ count), **options), rtol=1e-10)
            if weights == "samples":
                close(risk_of(worlds_, name, **options), found, rtol=0)
        louder = [replace(world, noise=factor * world.noise) for world in worlds_]
        loud = risk_of(louder, name, weights="precision", **options)
        close(loud, fa.Risk(found.bias, factor**2 * found.variance), rtol=1e-10)


@examples(20)
@given(kinds(isotropic=True), st.booleans())
def test_precision_weights_are_those_of_pfedme(federation, member):
    """And with them it is the best linear unbiased prediction for every member, so no worse than RTFA."""
    worlds_, count = federation
    found = risk_of(worlds_, "pfedme", clients=count, member=member)
    close(risk_of(worlds_, "pfedme", clients=count, member=member, weights="precision"), found, rtol=0)
    if member:
        assert np.all(found.loss <= risk_of(worlds_, "rtfa", clients=count, weights="precision").loss * (1 + 1e-9))


@examples(20)
@given(kinds(crowded=True), RIDGES)
def test_crowded_federations_interpolate(federation, ridge):
    """With fewer pooled samples than unknowns all methods that share agree on members, whatever their weights."""
    worlds_, count = federation
    base = risk_of(worlds_, "fedavg", clients=count)
    for name in ("ftfa", "rtfa", "pfedme"):
        close(risk_of(worlds_, name, clients=count, ridge=ridge, weights="uniform"), base, rtol=1e-10)
    one, m = worlds_[0], count[0]
    equal = risk_of(one, "fedavg", clients=m)
    for name in ("ftfa", "rtfa", "pfedme", "maml"):
        close(risk_of(one, name, clients=m, ridge=ridge), equal, rtol=1e-12)
    listed = risk_of([one], "fedavg", clients=[m])
    close(fa.Risk(listed.bias[0], listed.variance[0]), equal, rtol=1e-10)


# Grids: arrays broadcast, and each entry is what it would be alone.

GRID = {
    "radius": np.array([0.0, 2.0])[:, None, None],
    "noise": np.array([0.0, 0.6])[:, None],
    "aspect": np.array([0.3, 1.0, 4.0]),
}
ATOMS = fa.spectra.atoms([0.2, 1, 5], [0.5, 0.3, 0.2])
SINGULAR = fa.spectra.atoms([0, 1, 2], [0.3, 0.5, 0.2])


def one_by_one(grid: fa.Population) -> list[tuple[tuple[int, ...], fa.Population]]:
    """Every entry of a grid as a population of plain numbers."""
    numbers = {name: np.broadcast_to(getattr(grid, name), grid.shape) for name in GRID}
    return [
        (at, replace(grid, **{name: float(values[at]) for name, values in numbers.items()})) for at in np.ndindex(grid.shape)
    ]


def entry(values: object, at: tuple[int, ...]) -> float:
    return float(np.asarray(values)[at])


@pytest.mark.parametrize(
    ("spectrum", "power"),
    [(fa.spectra.identity(2), 0), (ATOMS, 0), (ATOMS, 1), (SINGULAR, 0), (SINGULAR, 1)],
    ids=["identity", "atoms", "atoms, aligned", "singular", "singular, aligned"],
)
@pytest.mark.parametrize(("clients", "member"), [(None, True), (9, True), (9, False)])
def test_predict_over_a_grid(spectrum, power, clients, member):
    """With a given ridge and with the best one, whose parts are found to the square root of rounding."""
    grid = fa.Population(**GRID, spectrum=spectrum, shift_power=power)
    for ridge in (0.4, None):
        names = [*SHARING]
        if clients is None or spectrum.scale is not None:
            names += ["maml", "pfedme"]
        elif ridge is None and power == 0:
            names += ["pfedme"]
        table = fa.predict(grid, names, ridge=ridge, clients=clients, member=member)
        for at, world in one_by_one(grid):
            for name, risk in fa.predict(world, names, ridge=ridge, clients=clients, member=member).items():
                found = fa.Risk(entry(table[name].bias, at), entry(table[name].variance, at))
                close(found, risk, rtol=1e-12 if ridge else 1e-6, floor=share(world, 1e-13 if ridge else 1e-9))
                assert found.loss == pytest.approx(risk.loss, rel=1e-12, abs=1e-13 * share(world, 1).loss)


def test_ridges_and_clients_over_a_grid():
    """Arrays of ridges and of clients broadcast with those of the population; some federations are crowded."""
    world = fa.Population(1, 0.5, np.array([0.5, 3.0])[:, None, None], norm=2, spectrum=ATOMS)
    ridge, clients = np.array([-0.01, 0.0, 0.7, np.inf])[:, None], np.array([1, 2, 8, 500])
    for member in (True, False):
        table = fa.predict(world, list(SHARING), ridge=ridge, clients=clients, member=member)
        assert table["rtfa"].loss.shape == (2, 4, 4)
        for at in np.ndindex(2, 4, 4):
            one = replace(world, aspect=float(world.aspect[at[0], 0, 0]))
            options = {"ridge": float(ridge[at[1], 0]), "clients": clients[at[2]], "member": member}
            for name, risk in fa.predict(one, list(SHARING), **options).items():
                found = fa.Risk(entry(table[name].bias, at), entry(table[name].variance, at))
                close(found, risk, rtol=1e-11, floor=share(one, 1e-12))


def test_no_ridge_at_the_threshold_beside_a_negative_one():
    """At aspect 1 the lowest admissible ridge is 0 itself, which a grid with negative ridges elsewhere may hold."""
    world = fa.Population(1, 0.5, np.array([1.0, 2.0]), spectrum=ATOMS)
    found = fa.predict(world, ["rtfa"], ridge=np.array([0, -0.001]))["rtfa"].loss
    assert found[0] == np.inf
    assert found[1] == pytest.approx(risk_of(replace(world, aspect=2.0), "rtfa", ridge=-0.001).loss, rel=1e-12)


@pytest.mark.parametrize(
    ("spectrum", "power"), [(fa.spectra.identity(2), 0), (ATOMS, 1), (SINGULAR, 1)], ids=["identity", "atoms", "singular"]
)
def test_regimes_over_a_grid(spectrum, power):
    """The best ridge and its loss, the noise threshold, and one step."""
    grid = fa.Population(**GRID, spectrum=spectrum, shift_power=power)
    ridge, loss, threshold = fa.optimal_ridge(grid), fa.optimal_loss(grid), fa.noise_threshold(grid)
    steps = fa.one_step(grid), fa.one_step(grid, 0.1 * np.array([1, 2, 3]))
    for at, world in one_by_one(grid):
        assert entry(ridge, at) == pytest.approx(fa.optimal_ridge(world), rel=1e-6, abs=1e-9)
        assert entry(loss, at) == pytest.approx(fa.optimal_loss(world), rel=1e-12)
        assert entry(threshold, at) == pytest.approx(fa.noise_threshold(world), rel=1e-12)
        for (size, risk), single in zip(steps, (fa.one_step(world), fa.one_step(world, 0.1 * (at[2] + 1))), strict=True):
            assert entry(size, at) == pytest.approx(single[0], rel=1e-14)
            close(fa.Risk(entry(risk.bias, at), entry(risk.variance, at)), single[1], rtol=1e-12)


@pytest.mark.parametrize("clients", [None, 20])
def test_fine_tuning_over_a_grid(clients):
    grid = fa.Population(1, np.array([[0.2], [0.6]]), np.array([0.5, 3.0]), spectrum=fa.spectra.identity(0.5))
    options = {"step": 0.3, "steps": [0, 1, 7, 50], "clients": clients}
    whole = fa.fine_tuning(grid, **options)
    assert whole.loss.shape == (2, 2, 4)
    for at, world in one_by_one(grid):
        path = fa.fine_tuning(world, **options)
        close(fa.Risk(whole.bias[at], whole.variance[at]), fa.Risk(path.bias, path.variance), rtol=1e-12)
        assert entry(whole.best.at, at) == path.best.at
        assert entry(whole.best.risk.loss, at) == pytest.approx(path.best.risk.loss, rel=1e-12)


@pytest.mark.parametrize(
    ("first", "second", "vary", "options"),
    [
        ("ftfa", "fedavg", {"noise": (0, 2, 9), "aspect": (1.2, 6, 7)}, {}),
        ("rtfa", "ftfa", {"aspect": [0.5, 2, 8], "ridge": (0, 3, 8)}, {}),
        ("rtfa", "local_ridge", {"radius": (0.1, 4, 8), "shift_power": [-1, 0, 1]}, {"ridge": 0.5}),
        ("ftfa", "fedavg", {"noise": (0, 2, 9), "clients": [7, 20, 400]}, {"member": False}),
    ],
    ids=["noise, aspect", "aspect, ridge", "radius, shift_power", "noise, clients"],
)
def test_compare_over_a_grid(first, second, vary, options):
    """Losses and winners are those of `predict`, point by point, and the two tie along the boundary."""
    world = fa.Population(1.5, 0.6, 3, norm=2, spectrum=ATOMS)
    diagram = fa.compare(first, second, world, vary=vary, **options)
    names = list(diagram.axes)

    def losses(point: dict[str, float]) -> list[float]:
        given_options = options | {name: value for name, value in point.items() if name in ("ridge", "clients")}
        here = replace(world, **{name: value for name, value in point.items() if name not in ("ridge", "clients")})
        return [float(risk.loss) for risk in fa.predict(here, [first, second], **given_options).values()]

    for at in np.ndindex(diagram.first_loss.shape):
        one, two = losses({name: float(diagram.axes[name][i]) for name, i in zip(names, at, strict=True)})
        assert entry(diagram.first_loss, at) == pytest.approx(one, rel=1e-12)
        assert entry(diagram.second_loss, at) == pytest.approx(two, rel=1e-12)
        assert diagram.winner[at] == ("tie" if one == pytest.approx(two, rel=1e-10) else first if one < two else second)
    assert len(diagram.boundary)
    crossing = diagram.boundary if "clients" not in names else [row for row in diagram.boundary if row[1] in vary["clients"]]
    for row in crossing:
        one, two = losses(dict(zip(names, map(float, row), strict=True)))
        assert one == pytest.approx(two, rel=1e-9)
    if names == ["noise", "aspect"]:
        for noise, aspect in crossing:
            assert noise == pytest.approx(fa.noise_threshold(replace(world, aspect=aspect)), rel=1e-9)
