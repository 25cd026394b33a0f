"""Doubles: laws found again in clients that were drawn by them, files without samples, what-ifs."""

import json
from dataclasses import fields, replace
from itertools import permutations

import numpy as np
import polars as pl
import pytest
import safetensors.numpy
from scipy.special import gammaln

import fedasym as fa
from fedasym.models.doubles import (
    FlatRows,
    Interval,
    calibrate,
    hold_out,
    probe,
    probe_heads,
    read_rows,
)
from fedasym.models.laws import Scales, ShareLaw, add_products, regress_classes, regress_rest
from fedasym.models.sums import ShapeSums, sum_moves
from fedasym.models.survey import Survey, send_sums
from fedasym.models.what_if import WhatIfPoint, board_of, compare_points, score_clients

from ..command import fedasym

CLASSES, FEATURES = 6, 12
CENTRES = 0.9 * np.random.default_rng(9).standard_normal((CLASSES, FEATURES))


def clusters(clients=40, samples=60, alpha=None, common=0.0, by_class=0.0, seed=0, shrink=1.0):
    """Clients whose samples lie about class means, moved by effects of known size.

    shrink: how much less training samples vary, as those that a network was trained on.
    """
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(clients), samples)
    split = np.tile(np.repeat([0, 1, 2], [samples - 20, 10, 10]), clients)
    shares = np.full((clients, CLASSES), 1 / CLASSES)
    if alpha is not None:
        shares = rng.dirichlet(np.full(CLASSES, alpha), clients)
    codes = np.concatenate([rng.choice(CLASSES, samples, p=each) for each in shares])
    moves = common * rng.standard_normal((clients, FEATURES))
    own = by_class * rng.standard_normal((clients, CLASSES, FEATURES))
    noise = rng.standard_normal((len(owner), FEATURES))
    noise[split == 0] *= shrink
    x = CENTRES[codes] + moves[owner] + own[owner, codes] + noise
    return fa.Federation.from_arrays(x, codes, owner, split=split, classes=CLASSES)


@pytest.fixture(scope="module")
def real():
    return clusters(alpha=0.5, common=0.5, by_class=0.3)


@pytest.fixture(scope="module")
def double(real):
    return fa.resemble(real)


@pytest.mark.parametrize("told", [{"clients": 100, "samples": 150}, {"clients": 150}])
@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_alpha_is_found_within_a_quarter_over_twenty_draws(alpha, told):
    """By client, and by class: of few clients that share out a class, the shares are a little more
    even than those of one client alone, and 10 % show here.
    """
    labels = np.arange(60_000) % 10
    x = labels[:, None] * 1.0
    found = [
        ShareLaw.of(fa.datasets.partition(x, labels, alpha=alpha, seed=seed, **told).class_counts())
        for seed in range(20)
    ]
    values = np.array([law.alpha for law in found])
    assert np.abs(values / alpha - 1).max() < 0.25
    if "samples" in told:
        assert sum(law.low <= alpha <= law.high for law in found) >= 16  # of 19 expected


def test_the_likelihood_of_shares_is_largest_where_a_plain_grid_says():
    rng = np.random.default_rng(1)
    counts = np.stack([rng.multinomial(30, rng.dirichlet([0.7, 0.7, 0.7])) for _ in range(40)])
    law = ShareLaw.of(counts)

    def log_likelihood(total):
        a = total * law.base
        return sum(
            gammaln(total)
            - gammaln(total + row.sum())
            + sum(gammaln(a[k] + row[k]) - gammaln(a[k]) for k in range(3))
            for row in counts
        )

    grid = np.geomspace(0.3, 20, 400)
    values = np.array([log_likelihood(total) for total in grid])
    assert law.total == pytest.approx(grid[values.argmax()], rel=0.02)
    inside = grid[2 * (values.max() - values) < 3.84] / 3
    assert (law.low, law.high) == pytest.approx((inside[0], inside[-1]), rel=0.03)


def test_the_card_tells_the_three_shifts_apart(double):
    card = double.card
    assert card.label.low < 0.5 < card.label.high
    assert card.feature.low < 0.5 < card.feature.high
    assert card.concept.low < 0.3 < card.concept.high
    assert "as Dirichlet 0.5" in str(double) or "as Dirichlet 0.4" in str(double)


@pytest.mark.parametrize(("common", "by_class"), [(0.0, 0.0), (0.5, 0.0), (0.0, 0.5)])
def test_a_shift_that_is_not_there_is_not_found(common, by_class):
    card = fa.resemble(clusters(common=common, by_class=by_class, seed=3)).card
    assert card.label.low > 5  # as even as sixty samples of six classes can tell
    assert card.feature.is_clear == (common > 0)
    assert card.concept.is_clear == (by_class > 0)
    for shift, size in ((card.feature, common), (card.concept, by_class)):
        assert not size or shift.low < size < shift.high


def test_samples_hardly_more_than_features_show_no_shift_that_is_not_there():
    """A covariance of 180 degrees of freedom in 100 directions looks too small to what it has not
    seen: class means of clients would be moved by (1/(1 - 0.55) - 1)/n of a variance.
    """
    rng = np.random.default_rng(4)
    owner, codes = np.repeat(np.arange(20), 30), np.tile(np.arange(6), 100)
    x = rng.standard_normal((6, 100))[codes] + rng.standard_normal((600, 100))
    split = np.tile(np.repeat([0, 0, 1], 10), 20)
    card = fa.resemble(fa.Federation.from_arrays(x, codes, owner, split=split, classes=6)).card
    assert card.concept.value < 0.3  # 0.6 without the correction
    assert not card.feature.is_clear


def test_means_of_common_classes_are_as_long_as_they_are_where_others_are_rare():
    """Noise is taken off each class by its own number of samples: rare ones have so much of it that
    its mean over classes would halve the means of common ones, and no calibration makes up for it.
    """
    rng = np.random.default_rng(7)
    classes, d, clients, samples = 30, 80, 12, 60
    shares = np.r_[np.full(5, 0.18), np.full(25, 0.1 / 25)]
    centres = 0.5 * rng.standard_normal((classes, d))
    codes = rng.choice(classes, clients * samples, p=shares)
    x = centres[codes] + rng.standard_normal((len(codes), d))
    split = np.tile(np.repeat([0, 1, 2], [samples - 20, 10, 10]), clients)
    owner = np.repeat(np.arange(clients), samples)
    laws = fa.resemble(
        fa.Federation.from_arrays(x, codes, owner, split=split, classes=classes)
    ).laws
    back = (laws.means @ np.linalg.inv(laws.turn) + laws.mean)[:5]
    apart, true = (
        np.linalg.norm(each[:, None] - each, axis=2)[np.triu_indices(5, 1)]
        for each in (back, centres[:5])
    )
    assert apart.mean() == pytest.approx(true.mean(), rel=0.1)


def test_draws_test_on_so_many_samples_that_luck_is_small(double, monkeypatch):
    """Of few clients more samples each, where they are scored and where scales are chosen."""
    drawn = []
    draw = type(double).draw

    def watch(self, *args, **told):
        drawn.append((told.get("clients", len(self.sizes)), told["held"]))
        return draw(self, *args, **told)

    monkeypatch.setattr(type(double), "draw", watch)
    fa.what_if(double, {"clients": [10, 400]}, ["fedavg"], draws=1)
    assert drawn[:2] == [(10.0, 400), (400.0, 20)]
    drawn.clear()
    calibrate(replace(double, sizes=double.sizes[:20], counts=double.counts[:20]))
    assert {2 * clients * held for clients, held in drawn} == {4000}


def test_held_out_samples_vary_along_their_class_s_directions_where_they_have_a_law_of_their_own():
    """Products of a training and of a held-out sample of one class, across the class means, are as
    much larger than those of two classes as they are in the clients themselves.
    """
    rng = np.random.default_rng(5)
    classes, q, m, n = 6, 60, 20, 60
    codes, owner = rng.integers(classes, size=m * n), np.repeat(np.arange(m), n)
    split = np.tile(np.repeat([0, 1, 2], [n - 30, 15, 15]), m)
    along = rng.standard_normal((classes, 5, q))[codes]
    x = np.sqrt(0.6) * rng.standard_normal((m * n, q))
    x += np.sqrt(0.4 / 5) * np.einsum("nf,nfq->nq", rng.standard_normal((m * n, 5)), along)
    x *= np.where(split == 0, 0.7, 1.0)[:, None] * np.geomspace(0.5, 2, q)
    x += 3 * rng.standard_normal((classes, q))[codes]
    real = fa.Federation.from_arrays(x, codes, owner, split=split, classes=classes)
    double = fa.resemble(real)
    assert double.laws.distinct
    assert double.laws.class_shape

    def how_much_larger(federation):
        laws = double.laws
        z = ((federation.features - laws.mean) @ laws.turn)[:, laws.rank :]
        train = federation.split == 0
        squares = (z[~train] @ z[train].T) ** 2
        alike = federation.labels[~train][:, None] == federation.labels[train]
        return squares[alike].mean() / squares[~alike].mean()

    ours = how_much_larger(real)
    assert ours > 1.5
    assert how_much_larger(double.draw(seed=1)) == pytest.approx(ours, rel=0.25)


@pytest.mark.parametrize(("of_class", "of_cell"), [(0, 0), (6, 0), (0, 4), (6, 4)])
def test_shapes_of_classes_and_of_clients_classes_are_told_apart(of_class, of_cell):
    """Samples of which a share of 0.4 lies in so many random directions of their own."""
    rng = np.random.default_rng(of_class + of_cell)
    classes, clients, n, q = 8, 40, 10, 60
    codes, owner = (
        np.repeat(np.arange(classes), clients * n),
        np.tile(np.repeat(np.arange(clients), n), classes),
    )
    x = np.sqrt(1 - 0.4 * ((of_class > 0) + (of_cell > 0))) * rng.standard_normal((len(codes), q))
    for f, place, rows in (
        (of_class, codes, classes),
        (of_cell, codes * clients + owner, classes * clients),
    ):
        if f:
            along = rng.standard_normal((rows, f, q))[place]
            x += np.sqrt(0.4 / f) * np.einsum("nf,nfq->nq", rng.standard_normal((len(x), f)), along)
    for level, found in zip(
        (of_class, of_cell), ShapeSums.of(x, codes, owner, classes).sizes(q), strict=True
    ):
        assert found == pytest.approx(level, rel=0.5) if level else found == 0 or found > 25


def test_shapes_are_found_again_in_drawn_clients(double):
    """Drawn by a law with few directions, wherever the rest is (more features than classes)."""
    laws = replace(double.laws, class_shape=0, cell_shape=2)
    drawn = replace(double, laws=laws, scales=Scales()).draw(clients=100, samples=120, seed=3)
    rest = ((drawn.features - laws.mean) @ laws.turn)[:, laws.rank :]
    alone = replace(double, laws=replace(laws, cell_shape=0), scales=Scales())
    other = alone.draw(clients=100, samples=120, seed=3)
    plain = ((other.features - laws.mean) @ laws.turn)[:, laws.rank :]
    found = [
        ShapeSums.of(rows, each.labels, each.owner, CLASSES).sizes(1000)[1]
        for rows, each in ((rest, drawn), (plain, other))
    ]
    assert 1 <= found[0] <= 4
    assert found[1] == 0 or found[1] > 25
    assert np.sum(rest.var(0)) == pytest.approx(np.sum(plain.var(0)), rel=0.1)


def test_a_slope_is_what_is_more_than_chance():
    rng = np.random.default_rng(7)
    base, noise = rng.standard_normal((150, 20)), rng.standard_normal((150, 30))
    true = rng.standard_normal((20, 30)) / 3
    for rest, much in ((noise, False), (base @ true + noise, True)):
        both = np.concatenate([base, rest], axis=1)
        slope, left = regress_rest(both.T @ both, 20, 150.0)
        assert np.sum(slope**2) < 0.05 * 20 if not much else np.sum((slope - true) ** 2) < 6
        assert np.trace(left) == pytest.approx(150 * 30, rel=0.2)


@pytest.mark.parametrize("apart", [0.0, 0.5])
def test_slopes_of_classes_are_told_from_chance(apart):
    """Of a common slope and of each class's own, from products of samples."""
    rng = np.random.default_rng(11)
    classes, n, r, q = 4, 600, 5, 30
    codes = np.repeat(np.arange(classes), n)
    common = rng.standard_normal((r, q)) / 2
    own = apart * rng.standard_normal((classes, r, q))
    base, noise = rng.standard_normal((classes * n, r)), rng.standard_normal((classes * n, q))
    rest = base @ common + np.einsum("nr,nrq->nq", base, own[codes]) + noise
    both = np.concatenate([base, rest], axis=1)
    slope, left = regress_rest(both.T @ both, r, float(len(both)))
    found, taken = regress_classes(add_products(both, codes, r, classes), slope, left, len(both))
    truth = own - own.mean(0)
    assert np.sum((found - truth) ** 2) < (0.02 * np.sum(truth**2) if apart else 0.2)
    assert np.trace(left - taken) == pytest.approx(len(both) * q, rel=0.05)


def test_samples_of_a_class_follow_its_own_slope(monkeypatch):
    """The rest of samples drawn from a double: as the clients' class by class, not on average."""
    rng = np.random.default_rng(12)
    classes, q, m, n = 4, 8, 20, 100
    codes, owner = rng.integers(classes, size=m * n), np.repeat(np.arange(m), n)
    means = np.pad(6 * rng.standard_normal((classes, classes - 1)), ((0, 0), (0, q)))
    slopes = rng.standard_normal((classes, classes - 1, q)) / 2
    base = rng.standard_normal((m * n, classes - 1))
    rest = np.einsum("nr,nrq->nq", base, slopes[codes]) + rng.standard_normal((m * n, q))
    real = fa.Federation.from_arrays(
        means[codes] + np.concatenate([base, rest], axis=1), codes, owner, classes=classes
    )

    double = fa.resemble(real)

    def explained(federation):
        """Which share of the rest's variance slopes of each class explain."""
        laws = double.laws
        z = (federation.features - laws.mean) @ laws.turn
        left = whole = 0.0
        for kind in range(classes):
            mine = z[federation.labels == kind]
            mine = mine - mine.mean(0)
            first, last = mine[:, : laws.rank], mine[:, laws.rank :]
            slope = np.linalg.lstsq(first, last, rcond=None)[0]
            left, whole = left + np.sum((last - first @ slope) ** 2), whole + np.sum(last**2)
        return 1 - left / whole

    ours = explained(real)
    assert ours > 0.15
    assert explained(double.draw(seed=1)) == pytest.approx(ours, abs=0.03)
    monkeypatch.setattr("fedasym.models.laws.LEAST_TOLD", np.inf)
    assert explained(fa.resemble(real).draw(seed=1)) < 0.03


def test_mixtures_vary_along_class_means_as_samples_do():
    """A sample has more or less of its class mean; one that lies nearest to another, of both."""
    rng = np.random.default_rng(16)
    classes, d, m, n = 12, 30, 30, 200
    codes, owner = rng.integers(classes, size=m * n), np.repeat(np.arange(m), n)
    centres = np.linalg.qr(rng.standard_normal((d, classes)))[0].T * 12
    amount = 1 + 0.25 * rng.standard_normal((m * n, 1))
    x = amount * centres[codes] + rng.standard_normal((m * n, d))
    lost = rng.random(m * n) < 0.2  # between two classes
    other = rng.integers(classes, size=m * n)
    u = 0.3 + 0.1 * rng.standard_normal((m * n, 1))
    both = u * centres[codes] + (1 - u) * centres[other] + rng.standard_normal((m * n, d))
    x[lost] = both[lost]
    real = fa.Federation.from_arrays(x, codes, owner, classes=classes)
    double = fa.resemble(real, coordinates="mixtures")
    laws = double.laws
    centre = laws.means[:, : laws.rank]

    def vary(federation):
        """Of samples nearest to their own class, the variance along its mean and on average."""
        z = ((federation.features - laws.mean) @ laws.turn)[:, : laws.rank]
        away = np.sum(centre**2, axis=1) - 2 * z @ centre.T
        right = away.argmin(1) == federation.labels
        own = centre[federation.labels[right]]
        along = np.einsum("nr,nr->n", z[right] - own, own) / np.linalg.norm(own, axis=1)
        return right.mean(), along.var(), (z[right] - own).var()

    plain = replace(double, scales=Scales())  # what the laws say, before few held-out samples do
    ours, theirs = vary(real), vary(plain.draw(samples=200, seed=1))
    assert ours[1] > 3 * ours[2]
    assert theirs == pytest.approx(ours, rel=0.1)


@pytest.mark.parametrize("coordinates", ["resampled", "mixtures"])
def test_rounding_does_not_change_who_is_drawn(coordinates):
    """Processors differ in the last bits, and in the eigenvectors that they choose with them."""
    rng = np.random.default_rng(20)
    codes, owner = rng.integers(5, size=900), np.repeat(np.arange(15), 60)
    centres = 4 * np.linalg.qr(rng.standard_normal((9, 5)))[0].T  # alike in all directions
    x = centres[codes] + rng.standard_normal((900, 9))
    first, second = (
        fa.resemble(
            fa.Federation.from_arrays(each, codes, owner, classes=5), coordinates=coordinates
        ).draw(samples=30, seed=4)
        for each in (x, x * (1 + 1e-13 * rng.standard_normal(x.shape)))
    )
    assert (first.labels == second.labels).all()
    np.testing.assert_allclose(first.features, second.features, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("spread", [0.0, 0.4])
def test_samples_have_more_or_less_of_what_moves_their_class(spread):
    """Where they have, they vary along it; drawn ones too."""
    rng = np.random.default_rng(17)
    classes, d, m, n = 4, 30, 60, 120
    codes, owner = rng.integers(classes, size=m * n), np.repeat(np.arange(m), n)
    moves = 0.7 * rng.standard_normal((m, classes, d))
    amount = 1 + spread * rng.standard_normal((m * n, 1))
    x = 6 * rng.standard_normal((classes, d))[codes] + amount * moves[owner, codes]
    x += rng.standard_normal((m * n, d))
    double = fa.resemble(fa.Federation.from_arrays(x, codes, owner, classes=classes))
    assert double.laws.swing == pytest.approx(spread**2, abs=0.04)
    again = fa.resemble(double.draw(samples=120, seed=1))
    assert again.laws.swing == pytest.approx(spread**2, abs=0.06)


def test_products_of_distinct_samples_by_a_plain_count():
    rng = np.random.default_rng(18)
    x = rng.standard_normal((6, 3)) + 1
    G = x @ x.T
    three = [G[i, j] * G[i, k] for i, j, k in permutations(range(6), 3)]
    four = [G[i, j] * G[k, m] for i, j, k, m in permutations(range(6), 4)]
    two = [G[i, j] for i, j in permutations(range(6), 2)]
    vary = (np.sum(x**2) / 6 - np.mean(two)) / 3
    codes, owner = np.repeat([2, 0], [6, 3]), np.repeat([0, 1], [6, 3])  # three are too few
    found = sum_moves(np.concatenate([x, x[:3]]), codes, owner, 3)
    plain = [1, np.mean(two), np.mean(three), np.mean(four), vary]
    assert found == pytest.approx(6 * np.array(plain), rel=1e-9)


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_balanced_shares_are_as_uneven_as_their_law(alpha):
    """And have all classes as often as the base, also where classes are many and clients few."""
    base = np.random.default_rng(13).dirichlet(np.full(50, 3.0))
    law = ShareLaw(base, 50 * alpha, alpha, alpha)
    shares = law.draw_shares(40, np.random.default_rng(14))
    plain = np.random.default_rng(15).dirichlet(law.total * base, 20_000)
    assert np.abs(shares.mean(0) - base).max() < 0.02 * base.max()
    assert np.sum(shares**2, 1).mean() == pytest.approx(np.sum(plain**2, 1).mean(), rel=0.03)


def test_each_class_is_moved_along_its_own_directions():
    """Half of the classes towards one neighbour, half towards another."""
    rng = np.random.default_rng(8)
    real = clusters(clients=60, samples=80, seed=8)
    along = np.where(np.arange(CLASSES) < 3, 0, 1)
    toward = np.stack([CENTRES[1] - CENTRES[0], CENTRES[5] - CENTRES[3]])
    moves = 0.8 * rng.standard_normal((60, CLASSES))
    x = real.features + moves[real.owner, real.labels][:, None] * toward[along[real.labels]]
    laws = fa.resemble(replace(real, features=x)).laws
    assert len(laws.by_kind) == CLASSES
    turned = (toward @ laws.turn)[:, : laws.rank]
    turned /= np.linalg.norm(turned, axis=1)[:, None]
    for kind in range(CLASSES):
        S = laws.by_kind[kind] @ laws.by_kind[kind].T
        mine, other = (u @ S @ u for u in (turned[along[kind]], turned[1 - along[kind]]))
        assert mine > 3 * other


def test_drawn_clients_have_the_moments_of_real_ones(real, double):
    drawn = double.draw(seed=4)
    assert (drawn.clients, drawn.classes) == (real.clients, real.classes)
    assert drawn.counts("train").tolist() == real.counts("train").tolist()
    for kind in range(CLASSES):
        ours, theirs = (each.features[each.labels == kind] for each in (drawn, real))
        spread = theirs.std(0)
        # a class moves with its clients: some twenty of them make its mean
        assert np.abs(ours.mean(0) - theirs.mean(0)).max() < 4 * spread.max() / np.sqrt(20)
        assert ours.std(0) == pytest.approx(spread, rel=0.35)
    again = fa.resemble(drawn).card
    for name in ("label", "feature", "concept"):
        found, truth = getattr(again, name), getattr(double.card, name)
        scale = 1.0 if name == "label" else double.scales.effects
        assert found.low < scale * truth.high
        assert scale * truth.low < found.high


def test_alpha_sets_the_evenness_of_shares(double):
    """E sum p^2 = (1 + alpha)/(1 + K alpha) of a symmetric law, nearly that of this base."""
    for alpha in (0.1, 2.0):
        drawn = double.draw(clients=300, samples=100, alpha=alpha, seed=5)
        counts = drawn.class_counts("train").astype(float)
        squares = (counts * (counts - 1)).sum(1) / (100 * 99)  # without the bias of sampling
        error = squares.std() / np.sqrt(300)
        assert abs(squares.mean() - (1 + alpha) / (1 + CLASSES * alpha)) < 4 * error + 0.02


@pytest.mark.parametrize("form", ["resampled", "mixtures"])
def test_half_the_samples_foretell_the_whole(real, form):
    algorithms = [fa.algorithms.find(name) for name in ("fedavg", "local_ridge", "rtfa", "pfedme")]
    half = clusters(samples=40, alpha=0.5, common=0.5, by_class=0.3)
    told = fa.resemble(half, coordinates=form)
    scores = [
        score_clients(told.draw(samples=40, held=20, seed=seed), algorithms) for seed in range(3)
    ]
    # new clients of the same law: what is real is known up to its own draw
    truth = [
        score_clients(clusters(alpha=0.5, common=0.5, by_class=0.3, seed=seed), algorithms)
        for seed in range(3)
    ]
    assert np.abs(np.mean(scores, 0) - np.mean(truth, 0)).max() < 0.05


def test_held_out_samples_of_trained_features_have_their_own_law():
    trained = fa.resemble(clusters(shrink=0.3, samples=80, seed=6))
    assert trained.card.distinct
    drawn = trained.draw(seed=1)
    away = np.linalg.norm(drawn.features - CENTRES[drawn.labels], axis=1)
    assert away[drawn.split == 0].mean() < 0.6 * away[drawn.split > 0].mean()
    assert not fa.resemble(clusters(seed=6)).card.distinct


def test_a_file_holds_no_samples_unless_asked_and_draws_the_same(double, tmp_path):
    assert double.resamples
    path = double.save(tmp_path / "double.safetensors")
    names = safetensors.numpy.load_file(path)
    assert not any("residuals" in name or "codes" in name for name in names)
    kept = fa.Double.load(path)
    assert not kept.resamples
    assert np.allclose(
        kept.draw(seed=1).features, double.as_mixtures().draw(seed=1).features, atol=1e-4
    )
    assert str(kept) == str(double.as_mixtures())
    with pytest.warns(UserWarning, match="coordinates of real samples"):
        whole = double.save(tmp_path / "whole.safetensors", coordinates=True)
    again = fa.Double.load(whole)
    assert np.allclose(again.draw(seed=1).features, double.draw(seed=1).features, atol=1e-4)


def split_clients(federation):
    """A federation as its clients, each on its own."""
    return [
        fa.Federation.from_arrays(
            federation.features[rows],
            federation.labels[rows],
            federation.owner[rows],
            split=federation.split[rows],
            classes=CLASSES,
        )
        for rows in map(federation.rows, federation.clients)
    ]


@pytest.mark.parametrize("told", [{"common": 0.5, "alpha": 0.5}, {"shrink": 0.3, "samples": 80}])
def test_sums_that_clients_send_make_the_double_of_all_samples(told):
    """Laws, probes and card are those of all samples at one place; no coordinates are in it."""
    real = clusters(clients=15, by_class=0.3, seed=6, **told)
    clients = split_clients(real)
    survey = Survey.of([send_sums(client) for client in clients])
    sent = survey.resemble([survey.answer(client) for client in clients])
    whole = fa.resemble(real, coordinates="mixtures")
    assert not sent.resamples
    assert sent.laws.distinct == whole.laws.distinct == ("shrink" in told)
    assert sent.goal == pytest.approx(whole.goal, abs=1e-12)
    assert sent.goal_covariance == pytest.approx(whole.goal_covariance, abs=1e-12)
    assert (sent.sizes == whole.sizes).all()
    assert (sent.counts == whole.counts).all()
    for ours, theirs in ((sent.laws, whole.laws), (sent.laws.held, whole.laws.held)):
        for name in ("common", "by_class", "right", "wrong", "rest"):
            if hasattr(ours, name):  # axes may be turned: what they make may not
                a, b = getattr(ours, name), getattr(theirs, name)
                assert np.sum(a**2) == pytest.approx(np.sum(b**2), rel=1e-6)
    assert sent.laws.held.confusion == pytest.approx(whole.laws.held.confusion)
    assert sent.laws.sums == pytest.approx(whole.laws.sums)
    for name in ("label", "feature", "concept"):
        assert getattr(sent.card, name) == pytest.approx(getattr(whole.card, name), rel=1e-6)
    for name, value in sent.card.measured.items():
        assert abs(sent.card.drawn[name] - value) < 0.06


def test_sums_hold_nothing_of_a_sample_but_products(real):
    """As many numbers whatever the client's samples, and none that grows with them."""
    small, large = (send_sums(split_clients(clusters(samples=n))[0]) for n in (30, 60))
    for ours, theirs in ((small.sums, large.sums), (small, large)):
        for each in fields(ours):
            assert np.shape(getattr(ours, each.name)) == np.shape(getattr(theirs, each.name))


def test_surveys_refuse_in_words(real, numbers):
    clients = split_clients(real)
    first = [send_sums(client) for client in clients]
    with pytest.raises(fa.InvalidInput, match="one client at a time"):
        send_sums(real)
    with pytest.raises(fa.InvalidInput, match="at least 4"):
        Survey.of(first[:3])
    with pytest.raises(fa.InvalidInput, match="different classes"):
        Survey.of([*first, replace(first[0], classes=("a",))])
    with pytest.raises(fa.InvalidInput, match="held-out samples in all"):
        Survey.of([replace(each, sizes=each.sizes * [1, 0, 0]) for each in first])
    survey = Survey.of(first)
    with pytest.raises(fa.InvalidInput, match="1 client answered, and 40 sent sums"):
        survey.resemble([survey.answer(clients[0])])
    one = fa.Federation.from_arrays(numbers.features, numbers.labels, np.zeros(1800, int))
    with pytest.raises(fa.InvalidInput, match="labels are numbers"):
        survey.answer(one)


def test_resampled_coordinates_never_both_train_and_test(double):
    drawn = double.draw(seed=7)
    laws = double.laws
    z = (drawn.features - laws.mean) @ laws.turn - laws.means[drawn.labels]
    assert laws.train is laws.held
    halves = [laws.train.residuals[laws.train.codes == 0][part::2] for part in (0, 1)]
    assert not {tuple(row) for row in halves[0]} & {tuple(row) for row in halves[1]}
    assert np.isfinite(z).all()


def test_calibration_finds_scales_that_were_changed(double):
    """Probes of clients drawn at other scales are matched again, from the laws as they were."""
    other = replace(double, scales=Scales(1.6, 1.2, 1.0))
    drawn = other.draw(held=40, seed=11)
    goal, error = probe(FlatRows(drawn.features, drawn.labels, drawn.owner, drawn.split), CLASSES)
    found = calibrate(replace(double, goal=goal, goal_covariance=error))
    before = replace(double, scales=Scales()).card
    for name, value in found.card.measured.items():
        assert abs(found.card.drawn[name] - value) < 0.03
    assert before is double.card


@pytest.fixture(scope="module")
def numbers():
    rng = np.random.default_rng(2)
    owner = np.repeat(np.arange(60), 30)
    x = rng.standard_normal((1800, 3)) + 0.5 * rng.standard_normal((60, 3))[owner]
    theta = np.array([1.0, -1.0, 0.5]) + 0.4 * rng.standard_normal((60, 3))
    level = 2 + 1.5 * rng.standard_normal(60)
    y = np.einsum("nd,nd->n", x, theta[owner]) + level[owner] + rng.standard_normal(1800)
    return fa.Federation.from_arrays(x, y, owner, seed=1)


@pytest.fixture(scope="module")
def number_double(numbers):
    return fa.resemble(numbers)


def test_numbers_have_levels_means_and_weights_that_vary(number_double):
    double = number_double
    card = double.card
    assert card.label.low < 1.5 < card.label.high
    assert card.feature.low < 0.5 < card.feature.high
    length = np.sqrt(1 + 1 + 0.25)
    assert card.concept.low < 0.4 * np.sqrt(3) / length < card.concept.high
    drawn = double.draw(clients=200, samples=200, held=1, seed=3)
    rows = np.column_stack([drawn.features, np.ones(len(drawn.owner))])
    own = [  # with many samples, least squares of each client shows how its weights vary
        np.linalg.lstsq(rows[drawn.owner == i], drawn.labels[drawn.owner == i, 0], rcond=None)[0]
        for i in range(200)
    ]
    apart = np.std(own, axis=0)
    aim = double.scales.effects * np.sqrt(double.laws.variances)
    assert apart == pytest.approx(aim, rel=0.25)
    with pytest.raises(fa.InvalidInput, match="labels are numbers"):
        double.draw(alpha=1)


def test_held_out_samples_do_not_change_with_the_number_of_training_samples(number_double):
    few, many = (number_double.draw(samples=n, held=7, seed=3) for n in (10, 40))
    for part in (1, 2):
        for name in ("features", "labels", "owner"):
            held = [getattr(each, name)[each.split == part] for each in (few, many)]
            np.testing.assert_array_equal(*held)


def test_what_if_on_numbers(number_double, tmp_path):
    found = fa.what_if(
        number_double, {"samples": [4, 24, 200]}, ["fedavg", "local_ridge", "pfedme"]
    )
    assert found.metric.lower
    assert found.at("samples", 200, "local_ridge").value == pytest.approx(1.0, abs=0.15)
    assert found.at("samples", 4, "pfedme").value < found.at("samples", 4, "local_ridge").value
    again = fa.Double.load(number_double.save(tmp_path / "numbers.safetensors"))
    assert again.task == "regression"


@pytest.fixture(scope="module")
def answer(double):
    return fa.what_if(
        double, {"samples": [5, 40, 80], "clients": [40, 80]}, ["fedavg", "local_ridge", "rtfa"]
    )


def test_what_if_prints_bands_and_what_follows(answer, tmp_path):
    text = str(answer)
    assert "training samples a client" in text
    assert any("local training beats fedavg" in each.lower() for each in answer.sentences)
    assert any(each.startswith("A newcomer with 5 samples") for each in answer.sentences)
    assert any(
        "twice the samples of each client change the best score" in each.lower()
        for each in answer.sentences
    )
    for point in answer.points:
        assert 0 <= point.low <= point.value <= point.high <= 1
    held = json.loads(answer.to_json())
    assert len(held["points"]) == len(answer.table()) == answer.frame().height == 15
    assert answer.plot(tmp_path / "what.svg").stat().st_size > 1000


def line(gains, error, quantity="samples"):
    at = [20.0, 40.0, 80.0]
    return [
        WhatIfPoint(quantity, x, "local_ridge", 0.7 + gain, 0.0, 1.0, 0.0, gain, error)
        for x, gain in zip(at, gains, strict=True)
    ]


@pytest.mark.parametrize(
    ("gains", "error", "told"),
    [
        ((-0.3, -0.1, 0.1), 0.01, f"From {np.sqrt(40 * 80):.0f} samples on own beats fedavg."),
        ((0.1, -0.1, -0.1), 0.01, f"Up to {np.sqrt(20 * 40):.0f} samples own beats fedavg."),
        ((0.1, 0.1, 0.2), 0.01, "own beats fedavg at every value of samples looked at."),
        ((-0.1, -0.1, -0.2), 0.01, "fedavg beats own at every value of samples looked at."),
        ((-0.1, 0.1, 0.2), 0.2, "Whether own beats fedavg is not decided at any value of"),
        (
            (-0.1, 0.01, 0.1),
            0.02,
            "own beats fedavg at 80 samples; fedavg beats own at 20 samples; which of own and"
            " fedavg is better is not decided at 40 samples.",
        ),
    ],
)
def test_sentences_say_what_the_paired_differences_decide(gains, error, told):
    assert compare_points(line(gains, error), "samples", "own").startswith(told)


def test_a_difference_is_weighed_on_the_same_clients(double):
    """Its error is that of paired scores: of the real clients, by a plain computation, too."""
    rows = read_rows(clusters(alpha=0.5, common=0.5, by_class=0.3))
    scores = probe_heads(rows, CLASSES)
    best = scores.mean(1)
    own, shared = scores[1 + int(best[1:6].argmax())], scores[0]
    plain = (own - shared).std() / np.sqrt(len(own))
    assert double.difference_error("local_ridge", "fedavg") == pytest.approx(plain, rel=1e-9)
    found = fa.what_if(double, {"samples": [40]}, ["fedavg", "local_ridge", "rtfa"], draws=1)
    point = found.at("samples", 40, "rtfa")
    drawn = double.draw(samples=40, held=hold_out(len(double.sizes)), seed=0)
    board = board_of(drawn)
    apart = board.score(fa.algorithms.find("rtfa")) - board.score(fa.algorithms.find("fedavg"))
    off = double.card.drawn["rtfa"] - double.card.measured["rtfa"]
    off -= double.card.drawn["fedavg"] - double.card.measured["fedavg"]
    real = double.difference_error("rtfa", "fedavg")
    assert point.gain_error == pytest.approx(
        np.sqrt(apart.var() / len(apart) + real**2 + off**2), rel=1e-9
    )


def test_few_clients_decide_little():
    """Twelve real clients: a lead that holds on drawn ones alone is not called one."""
    few = fa.resemble(clusters(clients=12, common=0.3, by_class=0.2, alpha=1.0, seed=8))
    found = fa.what_if(few, {"samples": [40]}, ["fedavg", "local_ridge"])
    point = found.at("samples", 40, "local_ridge")
    assert abs(point.gain) < 1.96 * point.gain_error
    assert "not decided" in found.sentences[0]


def test_the_command_takes_a_file_or_a_double(numbers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedasym.models.doubles.BLOCKS", 2)
    numbers.save("clients.safetensors")
    told = ("--samples", "10,40", "--draws", "1", "--algorithms", "fedavg,rtfa")
    first = fedasym("what-if", "clients.safetensors", *told, "--save", "double.safetensors")
    assert "concept shift" in first.stdout
    assert "The double is kept in double.safetensors" in first.stdout
    again = fedasym("what-if", "double.safetensors", *told, "--json")
    assert json.loads(again.stdout)["present"] == {"samples": 24.0, "clients": 60.0}


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda d: fa.resemble([1]), "federation is a list"),
        (lambda d: fa.resemble(clusters(clients=3)), "at least 4"),
        (lambda d: fa.resemble(clusters(), coordinates="mine"), "'resampled' or 'mixtures'"),
        (lambda d: d.draw(clients=0), "clients is 0"),
        (lambda d: d.draw(alpha=-1), "alpha is -1"),
        (lambda d: fa.what_if(3), "source is a int"),
        (lambda d: fa.what_if(d, {}), "vary is {}"),
        (lambda d: fa.what_if(d, {"rows": [3]}), "rows"),
        (lambda d: fa.what_if(d, {"samples": []}), "vary samples is empty"),
        (lambda d: fa.what_if(d, {"samples": [1]}), "at least 2"),
        (lambda d: fa.what_if(d, {"alpha": [0]}), "above 0"),
        (lambda d: fa.what_if(d, {"samples": [5]}, "nobody"), "nobody"),
    ],
)
def test_refusals(double, call, told):
    with pytest.raises(fa.InvalidInput, match=told):
        call(double)


def test_a_damaged_file_is_refused(double, tmp_path):
    from fedasym.core.runtime import read_arrays, write_arrays

    path = double.save(tmp_path / "double.safetensors")
    arrays, about = read_arrays(path, "double")
    for name, change in (("sizes", arrays["sizes"][:, :2]), ("turn", arrays["turn"][1:])):
        write_arrays(path, "double", arrays | {name: change}, about)
        with pytest.raises(fa.InvalidInput, match="damaged"):
            fa.Double.load(path)
    with pytest.raises(fa.InvalidInput, match="is not a double"):
        fa.Double.load(numbers_file(tmp_path))


def numbers_file(folder):
    path = folder / "other.parquet"
    pl.DataFrame({"a": [1]}).write_parquet(path)
    return path


def test_intervals_say_what_is_clear():
    assert str(Interval(0.312, 0.25, 0.4)) == "0.31 [0.25, 0.4]"
    assert not Interval(0.1, 0.0, 0.2).is_clear


def test_advice_may_end_in_what_if(numbers, tmp_path, monkeypatch):
    monkeypatch.setattr("fedasym.models.doubles.BLOCKS", 2)
    advice = fa.advise(numbers, what_if=True)
    assert "A newcomer with 5 samples" in str(advice)
    assert json.loads(advice.to_json())["what_if"]["points"]
    page = advice.write(tmp_path / "advice.html").read_text()
    assert page.index('<section id="check">') < page.index('<section id="what-if">')
    with pytest.raises(fa.InvalidInput, match="of a Federation"):
        fa.advise(numbers.features, numbers.labels[:, 0], numbers.owner, what_if=True)


def test_what_ifs_of_all_algorithms_take_those_that_have_exact_scores():
    real = fa.datasets.synthetic(clients=8, dimension=3, aspect=0.2, noise=0.5, seed=1)
    found = fa.what_if(real, {"samples": [10]}, "all", draws=1)
    assert {"pfedme_ridge", "apfl", "ditto"} <= {*found.algorithms}
    assert not {"ifca", "rtfa_directed", "fedavg_share"} & {*found.algorithms}
