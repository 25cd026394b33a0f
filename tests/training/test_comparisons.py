"""Paired comparisons count trials and test samples: coverage by simulation, the bootstrap of two
factors as another route, and what is said where clients or trials are not known.
"""

import json

import numpy as np
import pytest

import fedasym as fa
from fedasym.training.comparisons import (
    ClientValues,
    Omission,
    Verdict,
    compare_finals,
    compare_pair,
    crossed_error,
)
from fedasym.training.histories import Histories

TRUTH = 0.02


def draw_differences(rng, trials, tested, between_trials, between_clients):
    """Two classifiers on the same test samples: a sample's difference is -1, 0 or 1 in every trial,
    mostly the same from trial to trial, and its mean is the client's own.
    """
    clients = len(tested)
    own = np.clip(TRUTH + between_clients * rng.standard_normal(clients), -0.4, 0.4)
    values = np.empty((trials, clients))
    shift = between_trials * rng.standard_normal(trials)
    for i, n in enumerate(tested):
        kept = rng.random(n)  # a sample's own luck, the same in every trial
        luck = np.where(rng.random((trials, n)) < 0.7, kept, rng.random((trials, n)))
        mean = own[i] + shift[:, None]
        values[:, i] = ((luck < 0.25 + mean / 2) * 1.0 - (luck > 0.75 + mean / 2)).mean(1)
    return ClientValues(values, tested / tested.sum())


@pytest.mark.parametrize(("trials", "clients", "between_trials"), [(11, 30, 0.0), (3, 30, 0.03)])
def test_intervals_cover_the_truth_over_other_seeds_and_other_test_samples(
    trials, clients, between_trials
):
    """As often as they say, where intervals over trials alone miss it most of the time."""
    rng = np.random.default_rng(trials)
    draws = 500
    covered = alone = 0
    for _ in range(draws):
        tested = rng.integers(4, 40, clients)
        drawn = draw_differences(rng, trials, tested, between_trials, 0.05)
        pair = compare_pair("seeds", "a", "b", drawn, None)
        covered += pair.low <= TRUTH <= pair.high
        by_trial = compare_pair("seeds", "a", "b", drawn.mean(), None)
        alone += by_trial.low <= TRUTH <= by_trial.high
    deviation = np.sqrt(0.95 * 0.05 / draws)
    assert abs(covered / draws - 0.95) < 4 * deviation
    if between_trials == 0:
        assert alone / draws < 0.75


def test_the_error_is_that_of_the_bootstrap_of_two_factors():
    """Trials and clients are drawn again, each with all that belongs to them (Owen 2007)."""
    rng = np.random.default_rng(0)
    trials, clients = 40, 80
    tested = rng.integers(5, 50, clients).astype(float)
    d = 0.02 * rng.standard_normal((trials, 1)) + 0.1 * rng.standard_normal(clients)
    d = d + 0.02 * rng.standard_normal((trials, clients))
    error, freedom = crossed_error(ClientValues(d, tested / tested.sum()))
    drawn = []
    for _ in range(3000):
        rows, some = rng.integers(trials, size=trials), rng.integers(clients, size=clients)
        drawn.append((d[rows][:, some] @ tested[some]).mean() / tested[some].sum())
    assert error == pytest.approx(np.std(drawn), rel=0.08)
    assert 30 < freedom < trials + clients


def test_equal_clients_give_the_variance_of_a_two_way_table():
    """Without clients' differences it is Student's t over trials; without trials', over clients."""
    from scipy.stats import ttest_1samp

    rng = np.random.default_rng(1)
    over_trials = rng.standard_normal(6)
    same = ClientValues(np.repeat(over_trials[:, None], 5, axis=1), np.full(5, 0.2))
    pair = compare_pair("seeds", "a", "b", same, None)
    expected = ttest_1samp(over_trials, 0.0)
    assert (pair.low, pair.high) == pytest.approx(expected.confidence_interval(0.95), rel=1e-9)
    assert pair.p == pytest.approx(expected.pvalue, rel=1e-9)
    over_clients = rng.standard_normal(9)
    one = ClientValues(over_clients[None], np.full(9, 1 / 9))
    pair = compare_pair("seeds", "a", "b", one, None)
    expected = ttest_1samp(over_clients, 0.0)
    assert (pair.low, pair.high) == pytest.approx(expected.confidence_interval(0.95), rel=1e-9)
    assert pair.omission is Omission.TRIALS


def test_few_test_samples_decide_nothing_however_alike_the_seeds_are():
    """2 of 182 test samples, in each of eleven seeds: not different, and said so without clients."""
    tested = np.full(26, 7)
    right = np.zeros((11, 26))
    right[:, :2] = 1 / 7
    right[::3, 2] = 1 / 7
    counted = compare_pair("seeds", "a", "b", ClientValues(right, tested / 182), 0.005)
    alone = compare_pair("seeds", "a", "b", right.mean(1), 0.005)
    assert counted.verdict is Verdict.OPEN
    assert alone.verdict is Verdict.DIFFERENT
    assert alone.conclusion == "different (test samples not counted)"
    assert counted.conclusion == "no difference found"
    table = compare_finals(
        {"seeds": {"a": ClientValues(right, tested / 182), "b": np.zeros(11)}},
        None,
        None,
        "accuracy",
    )
    assert "test samples not counted" in str(table)
    assert json.loads(table.to_json())[0]["omission"] == "test samples not counted"
    assert r"\toprule" in table.to_latex()
    assert table._repr_html_().startswith("<p>Paired comparisons</p><table>")


def test_a_single_client_and_what_is_not_finite():
    one = compare_pair("s", "a", "b", ClientValues(np.array([[0.1], [0.2]]), np.ones(1)), None)
    assert one.omission is Omission.TEST_SAMPLES
    lost = ClientValues(np.array([[0.1, np.nan], [0.2, 0.1]]), np.full(2, 0.5))
    assert compare_pair("s", "a", "b", lost, None).verdict is Verdict.NONE
    zeros = ClientValues(np.zeros((3, 4)), np.full(4, 0.25))
    assert compare_pair("s", "a", "b", zeros, 0.005).verdict is Verdict.SAME


def test_histories_compare_what_validation_chose(grid):
    found = grid.comparisons()
    [pair] = found.pairs
    best = grid.choose()
    finals = [
        np.mean([run.accuracy[-1] for run in best.select(algorithm=name)])
        for name in ("ftfa", "rtfa")
    ]
    assert pair.difference == pytest.approx(finals[0] - finals[1], abs=1e-12)
    assert (pair.trials, pair.clients) == (2, len(grid[0].federation.clients))
    alike = grid.comparisons(statistic="mean_accuracy").pairs[0]
    means = [
        np.mean([run.mean_accuracy[-1] for run in best.select(algorithm=name)])
        for name in ("ftfa", "rtfa")
    ]
    assert alike.difference == pytest.approx(means[0] - means[1], abs=1e-12)
    with pytest.raises(fa.InvalidInput, match="unknown statistic 'worst_decile'"):
        grid.comparisons(statistic="worst_decile")
    uneven = Histories([*grid.select(algorithm="ftfa"), *grid.select(algorithm="rtfa", seed=1)])
    with pytest.raises(fa.InvalidInput, match="different seeds or splits"):
        uneven.comparisons()
