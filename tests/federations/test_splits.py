"""Who trains, validates and tests: splits by fractions or by name, and drawn again."""

import math
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedasym.data.federation import Federation
from fedasym.data.splits import SPLIT, SPLITS, assign_splits, mix_hash, split_sizes

from .small import federations, same


def plain_split(count, identity, seed, fractions):
    """The split of one client by the rule as it is told, with whole numbers of Python."""
    _, v, t = fractions
    test, validation = int(t * count + 0.5), int(v * count + 0.5)
    if count >= 3:
        test, validation = max(test, int(t > 0)), max(validation, int(v > 0))
    elif count == 2:
        test, validation = int(t > 0), int(v > 0 and t == 0)
    else:
        test, validation = 0, 0
    while test + validation >= count and test + validation > 0:
        if test > validation:
            test -= 1
        else:
            validation -= 1
    keys = sorted(
        (int(mix_hash(seed, SPLIT, np.uint64(identity), position)), position)
        for position in range(count)
    )
    split = [0] * count
    for rank, (_, position) in enumerate(keys):
        split[position] = 2 if rank < test else 1 if rank < test + validation else 0
    return split


@st.composite
def fractions(draw):
    parts = draw(st.tuples(st.integers(1, 20), st.integers(0, 20), st.integers(0, 20)))
    return tuple(part / sum(parts) for part in parts)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), fractions(), st.integers(0, 2**64 - 1))
def test_split_is_the_plain_loop(counts, shares, seed):
    identities = np.arange(len(counts), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    owner = np.repeat(np.arange(len(counts)), counts)
    split = assign_splits(owner, identities, seed, shares)
    expected = [
        plain_split(count, identity, seed, shares)
        for count, identity in zip(counts, identities, strict=True)
    ]
    assert split.tolist() == [code for client in expected for code in client]


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 300), fractions())
def test_every_client_trains_and_shares_are_rounded(count, shares):
    validation, test = (int(each[0]) for each in split_sizes(np.array([count]), shares))
    train = count - validation - test
    assert train >= 1
    assert min(validation, test) >= 0
    kinds = dict(zip(SPLITS, zip((train, validation, test), shares, strict=True), strict=True))
    for number, share in kinds.values():
        assert number == 0 or share > 0
        if count >= 3 and share > 0:
            assert number >= 1
        assert abs(number - share * count) <= 2
    assert math.isclose(sum(number for number, _ in kinds.values()), count)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_clients_split_does_not_depend_on_the_others(data):
    counts = data.draw(
        st.dictionaries(st.integers(0, 99), st.integers(1, 20), min_size=2, max_size=6)
    )
    order = data.draw(st.permutations(list(counts)))
    left = order[: data.draw(st.integers(1, len(order)))]
    who = data.draw(st.permutations([name for name in left for _ in range(counts[name])]))
    whole = [name for name in counts for _ in range(counts[name])]
    one = Federation.from_arrays(np.ones((len(whole), 1)), [0] * len(whole), whole, seed=3)
    other = Federation.from_arrays(np.ones((len(who), 1)), [0] * len(who), who, seed=3)
    for name in left:
        assert one.client(name).split.tolist() == other.client(name).split.tolist()


def test_seeds_differ_and_samples_are_drawn_evenly():
    one, other = (
        Federation.from_arrays(np.ones((100, 1)), [0] * 100, [1] * 100, seed=seed)
        for seed in (0, 1)
    )
    assert one.split.tolist() != other.split.tolist()
    tested = np.mean(
        [
            Federation.from_arrays(np.ones((10, 1)), [0] * 10, [1] * 10, seed=seed).split == 2
            for seed in range(500)
        ],
        axis=0,
    )
    assert np.all(np.abs(tested - 0.1) < 0.054)  # four standard errors


@settings(max_examples=40, deadline=None)
@given(federations(), st.integers(0, 2**64 - 1))
def test_resplits(federation, seed):
    kept = federation.resplit(seed)
    assert np.array_equal(kept.split == 2, federation.split == 2)
    for name in SPLITS:  # the test set is as the default fractions make it, so all counts stay
        assert np.array_equal(kept.counts(name), federation.counts(name))
    assert kept.features is not None
    same(replace(federation, split=kept.split), kept)
    names = np.array(federation.clients, object)[federation.owner]
    fresh = Federation.from_arrays(
        federation.features, np.zeros(federation.features.shape[:-1], int), names, seed=seed
    )
    assert np.array_equal(federation.resplit(seed, keep_test=False).split, fresh.split)
    assert np.array_equal(fresh.resplit(seed).split, fresh.split)
    counted = kept.resplit(seed, fractions=None)
    assert all(np.array_equal(counted.counts(name), federation.counts(name)) for name in SPLITS)


def test_resplit_beside_a_test_set_of_its_own_size():
    federation = Federation.from_arrays(
        np.ones((100, 1)), [0] * 100, [1] * 100, split=[2] * 55 + [1] * 2 + [0] * 43
    )
    again = federation.resplit(5)
    assert [int(again.counts(name)[0]) for name in SPLITS] == [
        40,
        5,
        55,
    ]  # 8 to 1 of the 45 that are left
    as_before = federation.resplit(5, fractions=None)
    assert [int(as_before.counts(name)[0]) for name in SPLITS] == [43, 2, 55]
    assert [int(federation.resplit(5, False, None).counts(name)[0]) for name in SPLITS] == [
        43,
        2,
        55,
    ]


def test_three_samples_may_have_codes_or_fractions():
    def splits(split):
        return Federation.from_arrays(np.ones((3, 1)), [0] * 3, [1] * 3, split=split).split.tolist()

    assert (
        splits([1, 0, 2])
        == splits(np.array([1, 0, 2]))
        == splits(("val", "train", "test"))
        == [1, 0, 2]
    )
    assert splits([1.0, 0.0, 0.0]) == splits((1, 0, 0)) == [0, 0, 0]
    assert sorted(splits([0.8, 0.1, 0.1])) == sorted(splits(np.array([0.8, 0.1, 0.1]))) == [0, 1, 2]
