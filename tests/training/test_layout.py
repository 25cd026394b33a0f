"""How training is laid out: groups of clients against brute force, forms against counted
multiplications, pieces.
"""

from itertools import combinations, pairwise

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedasym.training import plans
from fedasym.training.evaluation import parts
from fedasym.training.plans import cheaper_form, count_fitting, default_device, groups, round_width


def padded(members, sizes):
    """What a list of groups costs: every client as wide as the widest of its group."""
    return sum(len(group) * max(round_width(sizes[i]) for i in group) for group in members)


def cheapest(sizes, count):
    """The least that `count` groups can cost: all ways to cut the clients, sorted by size."""
    order = np.argsort(sizes, kind="stable")
    ways = combinations(range(1, len(sizes)), count - 1)
    return min(padded(np.split(order, way), sizes) for way in ways)


@given(st.lists(st.integers(0, 400), min_size=1, max_size=9), st.sampled_from([1, 20]))
@settings(max_examples=150, deadline=None)
def test_groups_are_the_cheapest_and_as_few_as_is_worth_it(sizes, larger):
    sizes = np.array(sizes) * larger
    found = groups(sizes)
    assert sorted(np.concatenate(found).tolist()) == list(range(len(sizes)))
    assert 1 <= len(found) <= plans.GROUPS
    most = min(plans.GROUPS, len({round_width(size) for size in sizes}))
    costs = [cheapest(sizes, count) for count in range(1, most + 1)]
    assert padded(found, sizes) == costs[len(found) - 1] <= costs[0]
    worth = [cost * plans.WORTH <= costs[-1] or cost <= costs[-1] + plans.FEW for cost in costs]
    assert worth.index(True) == len(found) - 1


def test_groups_are_sorted_by_size_and_many_clients_are_no_problem():
    sizes = np.random.default_rng(0).lognormal(4, 2, 3000).astype(int)
    found = groups(sizes)
    assert len(found) == 3
    ends = [(sizes[group].min(), sizes[group].max()) for group in found]
    assert all(before[1] < after[0] for before, after in pairwise(ends))
    assert padded(found, sizes) < 0.6 * padded([np.arange(3000)], sizes)
    more = groups(sizes, many=True)
    assert 3 < len(more) <= plans.MANY
    assert padded(more, sizes) < 0.8 * padded(found, sizes)
    (one,) = groups(np.full(50, 80))
    assert one.tolist() == list(range(50))


def multiplied(form, width, d, steps, batch):
    """Multiplications per output of what the two forms do, counted in loops over rows and
    columns.
    """
    count = 0
    if form == "gram":
        count += width * d  # outputs of the shared model at all rows
        for _ in range(steps):
            count += (
                batch * width
            )  # outputs at a batch, from rows of the Gram matrix; moving only adds
        return count + d * width  # the model in full, once
    for _ in range(steps):
        count += batch * d  # outputs at a batch
        count += d * batch  # its gradient
    return count


def test_the_cheaper_form_multiplies_less():
    rng = np.random.default_rng(1)
    chosen = set()
    for _ in range(300):
        sizes = (
            int(8 * rng.integers(1, 40)),
            int(rng.integers(1, 800)),
            int(rng.integers(1, 90)),
            int(rng.integers(1, 65)),
        )
        costs = {form: multiplied(form, *sizes) for form in ("gram", "head")}
        chosen.add(form := cheaper_form(*sizes))
        assert costs[form] == min(costs.values()), sizes
    assert chosen == {"gram", "head"}
    assert cheaper_form(80, 512, 20, 32) == "gram"  # the paper's CIFAR-100 clients
    assert cheaper_form(5000, 60, 20, 32) == "head"


@pytest.mark.parametrize(("size", "width"), [(0, 8), (1, 8), (8, 8), (9, 16), (80, 80), (81, 88)])
def test_widths_are_multiples_of_eight(size, width):
    assert round_width(size) == width


@pytest.mark.parametrize(
    ("memory", "each", "most", "count"), [(10, 3, 5, 3), (10, 3, 2, 2), (1, 3, 5, 1), (10, 0, 5, 5)]
)
def test_as_many_as_fit_and_at_least_one(memory, each, most, count):
    assert count_fitting(memory, each, most) == count


@pytest.mark.parametrize(("length", "size"), [(1, 1), (1, 4), (7, 3), (6, 3), (5, 5), (5, 9)])
def test_parts_have_one_size_and_hold_everything_once(length, size):
    found = list(parts(list(range(length)), size))
    assert all(len(part) == size for part, _ in found)
    assert [item for part, real in found for item in part[:real]] == list(range(length))
    assert all(item == part[real - 1] for part, real in found for item in part[real:])


def test_a_processor_takes_clients_one_after_another_and_an_accelerator_side_by_side():
    machine = default_device()
    assert machine.together is (jax.default_backend() != "cpu")
    assert machine.memory > 1e8
