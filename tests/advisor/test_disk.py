"""Advice on clients on disk is that on clients in memory; what it cannot do there it says."""

import numpy as np
import pytest

import fedasym as fa
from fedasym.advisor import class_estimates
from fedasym.advisor.data import DiskParts, read_classes
from fedasym.data import shards


def draw_clients(m: int = 24, d: int = 26, classes: int = 2, **options) -> fa.Federation:
    """Clients of unequal sizes, one of them without training samples."""
    rng = np.random.default_rng(3)
    sizes = rng.integers(8, 14, m)
    owner = np.repeat(np.arange(m), sizes)
    x = rng.standard_normal((len(owner), d)).astype(np.float32)
    x[:, 2] = 0  # says nothing
    models = rng.standard_normal((d, classes)) + 0.5 * rng.standard_normal((m, d, classes))
    labels = np.einsum("nd,ndc->nc", x, models[owner]).argmax(1)
    split = rng.choice(3, len(owner), p=[0.7, 0.1, 0.2])
    split[owner == 5] = 2
    return fa.Federation.from_arrays(
        x, labels, clients=owner, split=split.tolist(), classes=classes, intercept=False, **options
    )


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    whole = draw_clients()
    folder = whole.save(tmp_path_factory.mktemp("advice") / "clients", shards=3)
    return whole, fa.Federation.open(folder)


def test_advice_is_that_on_clients_in_memory(both, monkeypatch):
    monkeypatch.setattr(shards, "BLOCK_CLIENTS", 5)
    here, there = (fa.advise(each) for each in both)
    assert str(here) == str(there)
    assert [each.client for each in there.clients] == [each.client for each in here.clients]


def test_beyond_the_second_look_everyone_counts_in_sums(both, monkeypatch):
    """Sums are of all clients; those who are looked at twice are listed, the same as in memory."""
    monkeypatch.setattr(class_estimates, "LOOKED_AT", 10)
    here, there = (class_estimates.look_at_clients(read_classes(each)) for each in both)
    assert here.places == there.places
    assert len(there.places) == len(there.clients) == 10
    np.testing.assert_array_equal(here.counts, there.counts)
    np.testing.assert_allclose(here.found.point, there.found.point, rtol=1e-12)
    assert (there.sizes.sum(), there.dimension) == (both[0].counts("train").sum(), 25)


def test_held_out_samples_are_learnt_from_in_the_same_way(both):
    here, there = (read_classes(each).data.learn_from_held() for each in both)
    assert isinstance(there.parts, DiskParts)
    assert here.sizes.tolist() == there.sizes.tolist()
    for place in (0, 7, 8):
        np.testing.assert_array_equal(here.table(place), there.table(place))
        assert there.held(place)[1].size == 0


def test_what_is_refused_says_what_to_do(both, tmp_path):
    few = fa.Federation.open(draw_clients(d=4).save(tmp_path / "few", shards=1))
    with pytest.raises(fa.InvalidInput, match=r"few features are fitted.*take some of its clients"):
        fa.advise(few)
    numbers = draw_clients().take(range(6))
    told = numbers.labels.astype(float)
    numbers = fa.Federation.from_arrays(numbers.features, told, clients=numbers.owner)
    opened = fa.Federation.open(numbers.save(tmp_path / "numbers", shards=1))
    for ask in (fa.advise, fa.fit, fa.resemble):
        with pytest.raises(fa.InvalidInput, match=r"on disk.*in memory"):
            ask(opened)
    alone = draw_clients(m=2)
    one = fa.Federation.open(alone.save(tmp_path / "one", shards=1))
    with pytest.raises(fa.InvalidInput, match="there are 2 clients with training samples"):
        fa.advise(one)
