"""Estimates: the likelihood's own, unbiased within their intervals, the same from summaries
alone.
"""

import numpy as np
import pytest
import scipy.stats

import fedasym as fa
from fedasym.advisor import statistics
from fedasym.advisor.data import read_clients
from fedasym.advisor.estimates import pool_and_estimate
from fedasym.advisor.federated import (
    combine_summaries,
    first_variances,
    play_federation,
    summarise_clients,
)
from fedasym.advisor.moments import combine_products, fit_variances
from fedasym.advisor.statistics import kappa_of, spectrum_of
from fedasym.advisor.structure import find_structure
from fedasym.exact.clients import gather_clients as clients_of
from fedasym.exact.profile_likelihood import EXACT, RatioWindow, even_points, likelihood_surface
from fedasym.exact.reml import estimate_variances
from fedasym.theory.transforms import kappa


@pytest.mark.parametrize("samples", [20, 60])
@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_noise_and_radius_are_those_of_the_restricted_likelihood(world, samples, correlation):
    X, y, _ = world.but(samples=samples, correlation=correlation, clients=12).draw()
    exact = estimate_variances(clients_of(X, y, None), shared=True)
    found = pool_and_estimate(read_clients(X, y)).estimates
    assert np.sqrt(found.noise2) == pytest.approx(exact.noise, rel=2e-3)
    assert np.sqrt(found.radius2) == pytest.approx(exact.radius, rel=2e-3)


def test_single_precision_of_many_rows_costs_nothing(world, monkeypatch):
    data = read_clients(*world.but(samples=60, correlation=0.5, clients=100).draw()[:2])
    double = pool_and_estimate(data)
    monkeypatch.setattr(statistics, "MANY_ENTRIES", 0)
    single = pool_and_estimate(data)
    assert single.room.G.dtype == np.float32
    found, exact = single.estimates, double.estimates
    assert found.noise2 != exact.noise2  # the switch does something
    assert found.noise2 == pytest.approx(exact.noise2, rel=1e-6)
    assert found.radius2 == pytest.approx(exact.radius2, rel=1e-4)
    for name in ("power", "residual", "strength"):
        one, other = (statistics.stack_field(each.summaries, name) for each in (single, double))
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * np.abs(other).mean())
    structure, known = find_structure(single), find_structure(double)
    assert structure.alignment == pytest.approx(known.alignment, abs=1e-3)
    assert structure.direction == pytest.approx(known.direction, abs=1e-3)


def test_what_one_client_alone_has_seen_is_computed_in_double_precision(world, monkeypatch):
    X, y, _ = world.but(samples=30, clients=40).draw()
    for x in X[1:]:
        x[:, 0] *= 1e-3  # the others hardly see the first feature
    data = read_clients(X, y)
    double = pool_and_estimate(data)
    monkeypatch.setattr(statistics, "MANY_ENTRIES", 0)
    single = pool_and_estimate(data)
    np.testing.assert_allclose(single.left_out[0], double.left_out[0], rtol=1e-9)
    others = [np.concatenate(each[1:]) for each in (X, y)]
    left = y[0] - X[0] @ np.linalg.lstsq(*others, rcond=None)[0]
    assert np.linalg.norm(single.left_out[0]) == pytest.approx(np.linalg.norm(left), rel=1e-6)


def test_structure_is_what_the_samples_themselves_say(world):
    seen = pool_and_estimate(read_clients(*world.but(samples=30, clients=30).draw()[:2]))
    found, pool, contrast = seen.estimates, seen.pool, []
    S = pool.factor.T @ pool.factor / seen.data.sizes.sum()
    for X, y in seen.data:
        left = y - X @ pool.theta
        H = X @ np.linalg.solve(pool.factor.T @ pool.factor, X.T)
        e = np.linalg.solve(np.eye(len(y)) - H, left)  # about the others' model
        W = np.linalg.inv(found.noise2 * np.eye(len(y)) + found.radius2 * X @ X.T / X.shape[1])
        g, K = X.T @ W @ e, X.T @ W @ X
        contrast.append(g @ S @ g / np.trace(S @ K) - g @ g / np.trace(K))
    mean, error = np.mean(contrast), np.std(contrast, ddof=1) / np.sqrt(len(contrast))
    assert find_structure(seen).alignment == pytest.approx(mean / error, rel=1e-9)


@pytest.mark.parametrize("error", [0.02, 0.1])
@pytest.mark.parametrize("decades", [0, 6])
def test_between_its_nodes_a_window_has_the_deviance_of_the_samples(world, error, decades):
    X, y, _ = world.but(samples=30, clients=40).draw()
    spread = np.logspace(0, -decades / 2, X[0].shape[1])
    turned = pool_and_estimate(read_clients([x * spread for x in X], y)).room.all_clients()
    centre = float(np.log(np.median(turned.x)))
    window = RatioWindow(turned, centre, error)
    assert window.nodes.size <= 7
    for at in centre + 0.99 * window.half * np.linspace(-1, 1, 5):
        exact = turned.at(float(np.exp(at)))[0]
        assert window.at(at)[0] == pytest.approx(exact, abs=EXACT)


@pytest.mark.parametrize("clients", [8, 30])
def test_intervals_cover_the_truth_about_as_often_as_they_say(world, clients):
    made = world.but(clients=clients, samples=15, dimension=30, correlation=0.5)
    truth = np.array([made.noise, made.radius, np.hypot(made.radius, made.centre)])
    inside, values = np.zeros(3), []
    draws = 60
    for seed in range(draws):
        found = pool_and_estimate(read_clients(*made.draw(seed)[:2])).estimates
        each = [
            found.quantity(i, value)
            for i, value in enumerate((found.noise2, found.radius2, found.norm2))
        ]
        inside += [q.low <= t <= q.high for q, t in zip(each, truth, strict=True)]
        values.append([q.value for q in each])
    assert np.all(inside >= 0.85 * draws), inside  # 0.95 less 3.5 standard errors
    error = np.std(values, axis=0) / np.sqrt(draws)
    assert np.all(np.abs(np.mean(values, axis=0) - truth) < 4 * error + 0.03 * truth)


def test_no_radius_is_said_to_be_possible(world):
    X, y, _ = world.but(radius=0.0).draw(3)
    found = pool_and_estimate(read_clients(X, y)).estimates
    assert found.flat
    assert np.sqrt(found.radius2) < 0.01
    assert found.quantity(1, found.radius2).low == 0


@pytest.mark.parametrize("sent", [True, False])
def test_scarce_samples_give_estimates_within_bounds_whose_intervals_cover(world, sent):
    made = world.but(clients=20, samples=5, dimension=150, correlation=0.5, noise=0.5)
    data = [read_clients(*made.draw(seed)[:2]) for seed in range(40)]
    found = [
        combine_summaries(play_federation(each)) if sent else pool_and_estimate(each).estimates
        for each in data
    ]
    truth = made.noise**2, made.radius**2, made.radius**2 + made.centre**2
    inside = np.zeros(3)
    for each in found:
        noise2, radius, norm2 = each.draws.T
        assert each.scarce
        assert noise2.min() >= 0
        assert radius.min() >= 0
        assert np.all(radius <= norm2)
        assert 0 < each.radius2 <= each.norm2
        low, high = np.quantile(each.draws, [0.025, 0.975], axis=0)
        inside += (low <= truth) & (truth <= high)
    assert np.all(inside >= 0.85 * 40), inside


def test_moments_of_scarce_samples_have_no_bias(world):
    made = world.but(clients=20, samples=5, dimension=150, correlation=0.5, noise=0.5)
    raw = [
        combine_products(play_federation(read_clients(*made.draw(seed)[:2]))) for seed in range(40)
    ]
    norm2 = np.array([each.norm2 for each in raw])
    assert np.mean(norm2) == pytest.approx(
        made.radius**2 + made.centre**2, abs=4 * norm2.std() / np.sqrt(40) + 0.15
    )
    radius2 = np.array([each.norm2 - each.centre2 for each in raw])
    assert np.mean(radius2) == pytest.approx(
        made.radius**2, abs=4 * radius2.std() / np.sqrt(40) + 0.2
    )


def test_the_likelihood_of_all_labels_is_the_gaussian_one(world):
    X, y, _ = world.but(clients=5, samples=4, dimension=30).draw()
    seen = likelihood_surface(zip(X, y, strict=True))
    K = np.vstack(X) @ np.vstack(X).T
    K *= len(K) / np.trace(K)
    B, labels = K * np.kron(np.eye(5), np.ones((4, 4))), np.concatenate(y)

    def direct(v, u):
        V = (1 - u) * ((1 - v) * np.eye(20) + v * B) + u * K
        t = labels @ np.linalg.solve(V, labels) / 20
        return 2 * scipy.stats.multivariate_normal(np.zeros(20), t * V).logpdf(labels)

    for i, j, k, m in ((0, 5, 9, 150), (4, 100, 11, 40)):
        ours = seen.twice[i, j] - seen.twice[k, m]
        assert ours == pytest.approx(
            direct(seen.v[i], seen.u[j]) - direct(seen.v[k], seen.u[m]), abs=1e-6
        )


def test_clients_that_share_all_or_nothing_are_told_apart_by_few_samples(world):
    few = world.but(clients=20, samples=6, dimension=150, noise=0.2)
    shared = pool_and_estimate(read_clients(*few.but(radius=0.05).draw()[:2])).estimates
    apart = pool_and_estimate(read_clients(*few.but(centre=0.05, radius=1.5).draw()[:2])).estimates
    assert shared.radius2 < 0.4 * shared.norm2
    assert apart.radius2 > 0.7 * apart.norm2


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_summaries_agree_with_all_samples_at_one_place(world, correlation):
    apart = []
    for seed in range(8):
        data = read_clients(*world.but(correlation=correlation).draw(seed)[:2])
        here, sent = pool_and_estimate(data).estimates, combine_summaries(play_federation(data))
        for column, name in enumerate(("noise2", "radius2", "norm2")):
            wide = np.diff(np.quantile(here.draws[:, column], [0.025, 0.975]))[0]
            apart.append((getattr(sent, name) - getattr(here, name)) / wide)
    assert np.mean(np.abs(apart)) < 0.15  # widths of a 95% interval
    assert np.max(np.abs(apart)) < 0.5


def test_summaries_of_scarce_samples_agree_and_are_the_same_where_samples_are_many(
    world, monkeypatch
):
    data = read_clients(*world.but(clients=12, samples=5, dimension=100).draw()[:2])
    here, sent = pool_and_estimate(data).estimates, combine_summaries(play_federation(data))
    for column, name in enumerate(("noise2", "radius2", "norm2")):
        wide = np.diff(np.quantile(here.draws[:, column], [0.025, 0.975]))[0]
        assert abs(getattr(sent, name) - getattr(here, name)) < 0.5 * wide
    monkeypatch.setattr("fedasym.advisor.estimates.MOST_JOINT", 10)
    many = pool_and_estimate(data).estimates
    assert (sent.noise2, sent.radius2, sent.norm2) == pytest.approx(
        (many.noise2, many.radius2, many.norm2), rel=1e-9
    )
    assert np.allclose(many.draws, sent.draws)


def test_a_client_sends_a_few_numbers_per_sample_and_never_a_sample(world):
    X, y, _ = world.draw()
    sent = summarise_clients("ann", X[0], y[0])
    assert sent.bytes == 8 * (3 * world.samples + 5)
    assert not any(np.ndim(value) > 1 for value in vars(sent).values())
    again = play_federation(
        read_clients(*world.but(clients=6, samples=4, dimension=60).draw()[:2])
    )[0]
    assert again.bytes == 8 * (3 * 4 + 5 + 60 + 60 * 16)


def test_combining_refuses_what_does_not_belong_together(world):
    X, y, _ = world.draw()
    with pytest.raises(fa.InvalidInput, match="dimensions"):
        combine_summaries(
            [summarise_clients("a", X[0], y[0]), summarise_clients("b", X[0][:, :3], y[0])]
        )
    with pytest.raises(fa.InvalidInput, match="one name"):
        combine_summaries([summarise_clients("a", X[0], y[0]), summarise_clients("a", X[1], y[1])])
    assert (
        first_variances(
            [summarise_clients(i, *pair) for i, pair in enumerate(zip(X, y, strict=True))]
        )[0]
        > 0
    )


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("samples", [15, 60])
def test_the_spectrum_has_the_kappa_of_the_truth(world, correlation, samples):
    made = world.but(correlation=correlation, samples=samples, clients=60)
    summaries = pool_and_estimate(read_clients(*made.draw()[:2])).summaries
    spectrum = spectrum_of(summaries)
    assert spectrum.mean == pytest.approx(1, rel=0.03)
    ridges = np.array([0.1, 0.5, 2.0])
    aspect = np.full(3, made.dimension / samples)
    truth = kappa(ridges, aspect, fa.spectra.eigenvalues(made.eigenvalues))
    assert kappa(ridges, aspect, spectrum) == pytest.approx(truth, rel=0.05)
    assert np.mean([kappa_of(each, ridges) for each in summaries], axis=0) == pytest.approx(
        truth, rel=0.05
    )


def test_variances_are_exact_when_squares_are():
    from fedasym.advisor.statistics import Summary

    power = np.array([1.0, 5.0, 20.0, 40.0])
    exact = 0.3 + 2.0 * power / 10
    found = fit_variances([Summary(i, 6, 10, power, exact, exact, rest=0.6) for i in range(3)])
    assert (found.noise2, found.spread2) == pytest.approx((0.3, 2.0))
    assert np.allclose(found.influence, 0, atol=1e-10)


def test_even_points_fill_the_cube():
    points = even_points(1024, 3)
    counts, _ = np.histogramdd(points, bins=4, range=[(0, 1)] * 3)
    assert counts.min() >= 8
    assert counts.max() <= 26
    assert np.array_equal(points, even_points(1024, 3))
