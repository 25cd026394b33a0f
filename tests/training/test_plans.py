"""Who trains when on what: cohorts and batches are random as they should be, and depend on nothing
that they should not.
"""

from itertools import combinations, pairwise, permutations

import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from fedasym.data.splits import COHORT, PERSONAL, SPLIT, START, TRAINING, mix_hash, random_orders
from fedasym.training.plans import batches, cohorts, epochs, turns

LEVEL = 1e-3  # of each test of randomness; seeds are fixed, so that a result stays as it is
NAMES = mix_hash(99, np.arange(50))  # identities of clients


def uniform(outcomes, possible):
    """The p-value of "all possible outcomes are as likely"."""
    counts = dict.fromkeys(possible, 0)
    for outcome in outcomes:
        counts[outcome] += 1
    assert min(len(outcomes) / len(counts), 5) == 5  # enough for the chi-square approximation
    return chisquare(list(counts.values())).pvalue


# Hashes


def test_a_hash_is_splitmix64_absorbing_one_word_after_another():
    def by_hand(*words):
        state = 0
        for word in words:
            state = (state + word + 0x9E3779B97F4A7C15) % 2**64
            state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
            state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
            state ^= state >> 31
        return state

    assert (
        int(mix_hash(0)) == by_hand(0) == 0xE220A8397B1DCDAF
    )  # the published first number of splitmix64 from 0
    for words in ((0, 1), (1, 0), (2**63, 5, 7), (3, 2**64 - 1)):
        assert int(mix_hash(*words)) == by_hand(*words)
    assert mix_hash(5, np.arange(3)[:, None], np.arange(4)).shape == (3, 4)
    assert int(mix_hash(5, np.arange(3)[:, None], np.arange(4))[2, 3]) == by_hand(5, 2, 3)


def test_hashes_of_neighbours_look_independent():
    words = mix_hash(0, TRAINING, np.arange(200)[:, None], np.arange(500))
    assert len(np.unique(words)) == words.size
    assert kstest(words.ravel() / 2.0**64, "uniform").pvalue > LEVEL
    bits = (words.ravel()[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    assert np.abs(bits.mean(0) - 0.5).max() < 4 * 0.5 / np.sqrt(words.size)
    flipped = (
        mix_hash(1, TRAINING, np.arange(200)[:, None], np.arange(500)) ^ words
    )  # a seed that differs in one bit
    changed = ((flipped.ravel()[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)).sum(1)
    assert abs(changed.mean() - 32) < 4 * 4 / np.sqrt(words.size)
    assert len({COHORT, TRAINING, PERSONAL, SPLIT, START}) == 5


# Orders


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("width", [4, 40])
def test_all_orders_are_as_likely(size, width):
    drawn = random_orders(mix_hash(size, np.arange(6000))[None], np.array([size]), width)[0]
    assert (drawn[:, size:] == -1).all()
    assert (
        uniform([tuple(row) for row in drawn[:, :size].tolist()], permutations(range(size))) > LEVEL
    )


def test_successive_passes_are_independent():
    drawn = random_orders(
        mix_hash(mix_hash(3, np.arange(4000))[:, None], np.arange(2)), np.full(4000, 3), 3
    )
    pairs = [(tuple(first), tuple(second)) for first, second in drawn.tolist()]
    each = list(permutations(range(3)))
    assert uniform(pairs, [(a, b) for a in each for b in each]) > LEVEL


def test_a_long_order_has_everyone_once_whatever_the_width():
    streams = mix_hash(1, np.arange(3))[:, None]
    sizes = np.array([40_000, 1, 0])
    narrow, wide = random_orders(streams, sizes, 40_000), random_orders(streams, sizes, 70_000)
    np.testing.assert_array_equal(np.sort(narrow[0, 0]), np.arange(40_000))
    np.testing.assert_array_equal(wide[:, :, :40_000], narrow)
    assert (wide[:, :, 40_000:] == -1).all()
    assert narrow[1, 0, 0] == 0
    assert (narrow[1, 0, 1:] == -1).all()
    assert (narrow[2] == -1).all()


# Cohorts


def test_all_cohorts_are_as_likely_in_any_order():
    drawn = cohorts(0, NAMES[:6], 6000, 3)
    assert uniform([tuple(row) for row in drawn.tolist()], permutations(range(6), 3)) > LEVEL
    assert (
        uniform([tuple(sorted(row)) for row in drawn.tolist()], combinations(range(6), 3)) > LEVEL
    )


def test_successive_rounds_and_other_seeds_draw_independently():
    subsets = list(combinations(range(4), 2))
    pairs = [(a, b) for a in subsets for b in subsets]
    first, second = (
        [tuple(sorted(row)) for row in cohorts(seed, NAMES[:4], 6001, 2).tolist()]
        for seed in (1, 2)
    )
    assert uniform(list(pairwise(first)), pairs) > LEVEL
    assert uniform(list(zip(first, second, strict=True)), pairs) > LEVEL


@pytest.mark.parametrize("cohort", [1, 7, 49, 50])
def test_a_cohort_has_every_client_at_most_once(cohort):
    drawn = cohorts(4, NAMES, 30, cohort)
    assert drawn.shape == (30, cohort)
    assert all(len(set(row)) == cohort for row in drawn.tolist())
    assert drawn.min() >= 0
    assert drawn.max() < 50
    assert cohorts(4, NAMES, 0, cohort).shape == (0, cohort)


def test_a_client_more_or_less_changes_no_other_ranking():
    everyone = cohorts(5, NAMES[:9], 40, 9)
    without = cohorts(5, np.delete(NAMES[:9], 4), 40, 3)
    for ranking, drawn in zip(everyone.tolist(), without.tolist(), strict=True):
        ranking.remove(4)
        assert [place + (place >= 4) for place in drawn] == ranking[:3]
    order = np.array([3, 0, 8, 5, 1, 2, 7, 6, 4])
    np.testing.assert_array_equal(order[cohorts(5, NAMES[:9][order], 40, 3)], everyone[:, :3])


def test_turns_count_how_often_a_client_was_drawn():
    drawn = cohorts(6, NAMES[:5], 20, 2)
    expected = [[int((drawn[:r] == member).sum()) for member in row] for r, row in enumerate(drawn)]
    np.testing.assert_array_equal(turns(drawn, 5), expected)


# Batches


def in_passes(rows, size, batch):
    """Batches as lists of passes, after checking that each covers every sample once and that only
    its last one is short.
    """
    per_pass = -(-size // batch)
    cut = [rows[start : start + per_pass] for start in range(0, len(rows), per_pass)]
    for each in cut:
        if len(each) == per_pass:
            flat = each.ravel()
            assert sorted(flat[flat >= 0].tolist()) == list(range(size))
            assert (each[:-1] >= 0).all()
            assert (np.diff((each[-1] >= 0).astype(int)) <= 0).all()
    return cut


@pytest.mark.parametrize("batch", [1, 3, 8, 64])
def test_every_pass_covers_every_sample_once_and_keeps_its_short_last_batch(batch):
    sizes = np.array([1, 2, 7, 8, 9, 16, 17, 0, 30])
    rows = batches(mix_hash(1, np.arange(len(sizes))), sizes, 0, 40, batch)
    assert rows.shape == (len(sizes), 40, batch)
    for size, mine in zip(sizes.tolist(), rows, strict=True):
        if size == 0:
            assert (mine == -1).all()
            continue
        passes = in_passes(mine, size, batch)
        assert (
            size < 7 or len(passes) < 2 or not np.array_equal(passes[0], passes[1])
        )  # shuffled anew


@pytest.mark.parametrize("batch", [1, 3, 8, 64])
def test_a_stream_goes_on_where_it_stopped_and_minds_nobody_else(batch):
    sizes = np.array([5, 12, 1, 0, 9, 5])
    streams = mix_hash(2, np.arange(6))
    whole = batches(streams, sizes, 0, 60, batch)
    first = np.array([0, 3, 17, 5, 30, 11])
    later = batches(streams, sizes, first, 13, batch)
    for place, start in enumerate(first.tolist()):
        np.testing.assert_array_equal(later[place], whole[place, start : start + 13])
        alone = batches(streams[place : place + 1], sizes[place : place + 1], start, 13, batch)
        np.testing.assert_array_equal(alone[0], later[place])


@pytest.mark.parametrize("batch", [1, 4, 32])
def test_epochs_are_the_batches_of_passes_and_wait_for_the_largest_client(batch):
    sizes = np.array([3, 10, 0, 7, 1])
    streams = mix_hash(3, np.arange(5))
    width, count = 11, 4
    steps = -(-width // batch)
    rows = epochs(streams, sizes, 0, count, batch, width)
    assert rows.shape == (5, count * steps, batch)
    for place, size in enumerate(sizes.tolist()):
        per_pass = -(-size // batch)
        plain = (
            batches(streams[[place]], sizes[[place]], 0, count * per_pass, batch)[0]
            if size
            else rows[place, :0]
        )
        for number in range(count):
            mine = rows[place, number * steps : (number + 1) * steps]
            np.testing.assert_array_equal(
                mine[:per_pass], plain[number * per_pass : (number + 1) * per_pass]
            )
            assert (mine[per_pass:] == -1).all()
    np.testing.assert_array_equal(
        epochs(streams, sizes, 1, 2, batch, width), rows[:, steps : 3 * steps]
    )


def test_the_first_batch_is_a_uniform_subset():
    drawn = batches(mix_hash(8, np.arange(4000)), np.full(4000, 5), 0, 1, 2)[:, 0]
    assert uniform([tuple(row) for row in drawn.tolist()], permutations(range(5), 2)) > LEVEL
