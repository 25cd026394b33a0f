"""What intervals are made of, each part against an unrelated route: drawn matrices, clients really
left out, exact moments.
"""

import re
from dataclasses import replace

import numpy as np
import pytest

from fedasym.advisor import advise
from fedasym.advisor.class_estimates import look_at_clients
from fedasym.advisor.data import read_classes, read_clients
from fedasym.advisor.estimates import Estimates, length_variance, length_weights, satterthwaite
from fedasym.advisor.federated import play_federation
from fedasym.advisor.moments import PartedLoss, fit_variances, lacking_variance, squared_length
from fedasym.advisor.predictions import unridged_factors
from fedasym.advisor.statistics import (
    SizeGroups,
    Summary,
    axes_of,
    covariance_difference,
    have_common_covariance,
    strength_of,
    unit_losses,
)
from fedasym.exact.least_squares import SharedSolution, stack_triangle
from fedasym.worlds.spectra import Spectrum, eigenvalues


def clients(rng, m=30, n=20, d=25, *, uneven=False):
    out = []
    for i in range(m):
        size = n * (3 if uneven and i % 5 == 0 else 1)
        x = rng.chisquare(n, size)
        out.append(
            Summary(
                i,
                size,
                d,
                power=x,
                residual=(0.5 + x / d) * rng.chisquare(1, size),
                raw=np.ones(size),
            )
        )
    return out


def test_the_jackknife_is_what_leaving_a_client_out_does():
    drawn = clients(np.random.default_rng(0), uneven=True)
    whole, m = fit_variances(drawn), len(drawn)
    for i in (0, 5, 7):
        left = fit_variances([each for each in drawn if each.name != i])
        step = whole.influence[i] * m / (m - 1)
        moved = np.array([whole.noise2 - left.noise2, whole.spread2 - left.spread2])
        assert np.abs(moved - step).max() < 0.3 * np.abs(moved).max() + 0.003


def test_the_norm_falls_with_the_noise_by_its_slope():
    drawn = [replace(each, raw=each.residual) for each in clients(np.random.default_rng(1))]
    (low, _, slope), (high, *_) = (squared_length(drawn, noise2) for noise2 in (0.49, 0.51))
    assert (high - low) / 0.02 == pytest.approx(slope, rel=0.2)


@pytest.mark.parametrize("n", [30, 90])
def test_what_the_norm_sees_is_the_mean_filter_of_drawn_samples(n):
    s, c, rng = np.linspace(0.2, 3.0, 60), 12.0, np.random.default_rng(2)
    seen = np.zeros(60)
    for _ in range(60):
        X = rng.standard_normal((n, 60)) * np.sqrt(s)
        G = X.T @ X
        back = np.linalg.inv(G + c * np.eye(60))
        seen += np.diag(back @ G @ G @ back) / 60
    spectrum = eigenvalues(s)
    mine = length_weights(
        spectrum, [Summary(0, n, 60, np.ones(1), np.ones(1), np.ones(1))], c / 60, 1.0
    )
    order = np.searchsorted(s, spectrum.values)
    assert mine == pytest.approx(seen[np.clip(order, 0, 59)], abs=0.04)


def test_the_unseen_part_is_how_a_random_direction_varies():
    s, rng = np.array([0.5, 3.0]), np.random.default_rng(3)
    theta = rng.standard_normal((20000, 40)) / np.sqrt(40)
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    spread = np.var(theta**2 @ np.repeat(s, 20) / s.mean())
    assert length_variance(1.0, Spectrum(s, np.array([0.5, 0.5]), ""), s, 40) == pytest.approx(
        spread, rel=0.1
    )


def test_degrees_of_freedom_count_clients_that_weigh():
    rng = np.random.default_rng(4)
    even = rng.standard_normal((4000, 1))
    assert satterthwaite(even)[0] == pytest.approx(3999, rel=0.2)
    few = even * np.where(np.arange(4000) < 20, 100.0, 0.0)[:, None]
    assert 8 < satterthwaite(few)[0] < 60


def test_finite_sizes_without_a_ridge_have_the_inverse_wishart_mean():
    kinds = SizeGroups.of(np.full(8, 60.0))
    assert unridged_factors(40, kinds) * 40 / (60 - 40) == pytest.approx([40 / (60 - 40 - 1)])
    assert unridged_factors(80, kinds) == pytest.approx([1.0])


def test_fedavgs_loss_of_these_clients_is_surer_than_their_population():
    """With hardly any noise a client tells its own |shift|^2: all of the population's error is then
    too much.
    """
    d, m = 30, 40
    found = Estimates(1e-6, 1.0, 1.0, np.ones((4, 3)), eigenvalues(np.ones(d)), "", False)
    losses = {
        "fedavg": PartedLoss(1.0, 0.0, np.inf, False),
        "ftfa": PartedLoss(0.0, 1e-6 / 3, 0.0, False),
    }
    lacking = lacking_variance(found, d, np.full(m, 120.0), losses)
    assert lacking["fedavg"] == pytest.approx(-2 / (d * m), rel=0.3)
    assert lacking["ftfa"] > 0


@pytest.mark.usefixtures("_unstopped")
def test_no_upper_end_where_a_client_has_as_many_samples_as_features_and_they_were_not_seen():
    rng = np.random.default_rng(5)
    X = [rng.standard_normal((n, 30)) for n in [18, 21, 24, 29, 36, 42] * 4]
    y = [x @ (0.4 * rng.standard_normal(30)) + 0.3 * rng.standard_normal(len(x)) for x in X]
    rows = advise(play_federation(read_clients(X, y)), intercept=False).predictions
    assert np.isinf(rows["ftfa"].loss.high)
    assert np.isinf(rows["local"].loss.high)
    assert np.isfinite(rows["rtfa"].loss.high)
    assert rows["ftfa"].loss.low <= rows["ftfa"].loss.value
    here = advise(X, y, intercept=False).predictions
    assert np.isfinite(here["ftfa"].loss.high)
    assert here["ftfa"].loss.high > 1.3 * here["ftfa"].loss.value


@pytest.mark.usefixtures("_unstopped")
def test_losses_without_a_ridge_are_predicted_where_samples_match_the_features():
    """A loss without a finite variance: given the features, its mean over many draws of labels is
    what is predicted.
    """
    rng = np.random.default_rng(8)
    X = [rng.standard_normal((n, 20)) for n in [12, 18, 19, 22, 24, 40] * 5]
    found, true = [], []
    for _ in range(6):
        theta = 0.4 * rng.standard_normal((30, 20))
        y = [x @ t + 0.3 * rng.standard_normal(len(x)) for x, t in zip(X, theta, strict=True)]
        found.append(advise(X, y, intercept=False).predictions["local"].trusted)
        true.append(
            np.mean(
                [
                    np.sum((np.linalg.pinv(x) @ v - t) ** 2)
                    for x, v, t in zip(X, y, theta, strict=True)
                ]
            )
        )
    assert np.mean(found) == pytest.approx(np.mean(true), rel=0.3)


def seen_by_others(data):
    pool = SharedSolution.of(stack_triangle((x, np.zeros(len(x))) for x in data))
    total, found = sum(len(x) for x in data), []
    for x in data:
        axes = axes_of(x, np.zeros(len(x)))
        q = strength_of(axes.rows, axes.power, pool, total - len(x))
        found.append(
            Summary("", len(x), x.shape[1], axes.power, axes.power, axes.power, strength=q)
        )
    return found


@pytest.mark.parametrize(("dimension", "spread"), [(3, 1.0), (3, 30.0), (60, 1.0), (60, 30.0)])
def test_features_of_one_covariance_differ_between_clients_as_much_as_chance(dimension, spread):
    rng = np.random.default_rng(4)
    s = np.geomspace(1, spread, dimension)
    data = [rng.standard_normal((n, dimension)) * np.sqrt(s) for n in rng.integers(8, 60, 80)]
    assert covariance_difference(seen_by_others(data)) == pytest.approx(1, abs=0.25)
    assert have_common_covariance(seen_by_others(data))


def test_unlike_and_planned_features_are_not_taken_for_draws_from_one_covariance():
    rng = np.random.default_rng(4)
    schools = [rng.standard_normal((30, 4)) + 1.5 * rng.standard_normal(4) for _ in range(40)]
    assert covariance_difference(seen_by_others(schools)) > 4
    assert not have_common_covariance(seen_by_others(schools))
    days = np.column_stack([np.ones(9), np.linspace(-1.5, 1.5, 9)])
    planned = [days[np.sort(rng.choice(9, 7, replace=False))] for _ in range(20)]
    assert covariance_difference(seen_by_others(planned)) < 0.3
    assert not have_common_covariance(seen_by_others(planned))


@pytest.mark.parametrize("samples", [12, 40])
@pytest.mark.parametrize("ratio", [0.0, 8.0])
def test_losses_given_the_features_are_means_over_displacements_and_noise(samples, ratio):
    rng = np.random.default_rng(6)
    d, s = 25, np.linspace(0.2, 3, 25)
    data = [rng.standard_normal((samples, d)) * np.sqrt(s) for _ in range(400)]
    summaries = seen_by_others(data)
    bias, variance = unit_losses(summaries, np.full(400, ratio))
    H = np.linalg.pinv(data[0].T @ data[0] + ratio * np.eye(d)) @ data[0].T
    kept = np.eye(d) - H @ data[0]
    assert bias[0] == pytest.approx(np.sum(s[:, None] * kept**2) / d, rel=0.05, abs=1e-3)
    assert variance[0] == pytest.approx(np.sum(s[:, None] * H**2), rel=0.05)


def test_labels_of_classes_tell_the_radius_without_squares_of_single_samples():
    """y = zeta x'theta + e: with squares of single samples in, r2 comes out 2/n too small; here n
    is 12.
    """
    found, slope = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((150, 12, 24))
        theta = 1.5 * rng.standard_normal((150, 24)) / np.sqrt(24)
        p = 1 / (1 + np.exp(-np.einsum("ijk,ik->ij", X, theta)))
        labels = (rng.random((150, 12)) < p).astype(int)
        found.append(look_at_clients(read_classes(list(X), list(labels))).found.point[1])
        fresh = rng.standard_normal((2000, 24)) @ theta.T
        slope.append(np.mean(1 / np.cosh(fresh / 2) ** 2) / 2)
    truth = 1.5**2 * np.mean(slope) ** 2
    assert np.mean(found) == pytest.approx(truth, rel=0.1)


def test_a_loss_without_a_finite_value_is_none_and_said_so():
    rng = np.random.default_rng(2)
    X = [rng.standard_normal((30, 30)) for _ in range(6)]
    y = [x @ rng.standard_normal(30) + rng.standard_normal(30) for x in X]
    advice = advise(play_federation(read_clients(X, y)))
    records = {record["algorithm"]: record for record in advice.table()}
    assert np.isinf(advice.predictions["local"].trusted)
    assert records["local"]["loss"] is records["local"]["high"] is None
    assert records["rtfa"]["loss"] == advice.predictions["rtfa"].trusted
    assert "has no finite expected error" in " ".join(str(advice).split())
    assert not re.search(r"\b(inf|nan)\b", str(advice))
