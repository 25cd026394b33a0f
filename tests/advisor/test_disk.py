"""Advice on clients on disk is that on clients in memory; what it cannot do there it says."""

from dataclasses import replace

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
        assert there.held_out_rows(place)[1].size == 0


def draw_numbers(d: int, m: int = 24, most: int = 40) -> fa.Federation:
    """Numbers with levels, clients of unequal sizes, one without training samples."""
    rng = np.random.default_rng(4)
    owner = np.repeat(np.arange(m), rng.integers(12, most, m))
    x = rng.standard_normal((len(owner), d))
    x[:, 1] = 0  # says nothing
    models = (1 + 0.5 * rng.standard_normal((m, d))) / np.sqrt(d)
    y = np.einsum("nd,nd->n", x, models[owner]) + rng.standard_normal(m)[owner]
    y += 0.3 * rng.standard_normal(len(y))
    split = rng.choice(3, len(owner), p=[0.7, 0.1, 0.2])
    split[owner == 5] = 2
    return fa.Federation.from_arrays(x, y, clients=owner, split=split.tolist())


def open_saved(whole: fa.Federation, folder) -> fa.Federation:
    return fa.Federation.open(whole.save(folder, shards=3))


@pytest.mark.parametrize("kind", ["many numbers", "few numbers", "few classes"])
def test_advice_on_numbers_and_few_features_is_that_in_memory(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(shards, "BLOCK_CLIENTS", 5)
    whole = (
        draw_clients(d=4) if kind == "few classes" else draw_numbers(70 if "many" in kind else 4)
    )
    here, there = (fa.advise(each) for each in (whole, open_saved(whole, tmp_path / "clients")))
    assert str(here) == str(there)
    assert [each.gain for each in here.clients] == [each.gain for each in there.clients]


def test_so_many_clients_are_looked_at_in_memory_and_on_disk(tmp_path, monkeypatch):
    """Beyond that the population is still everyone, and the shared model theirs."""
    monkeypatch.setattr("fedasym.advisor.LOOKED_AT", 12)
    monkeypatch.setattr("fedasym.advisor.MIXED_NUMBERS", 1)
    for d in (70, 4):
        whole = draw_numbers(d)
        opened = open_saved(whole, tmp_path / f"of {d}")
        here, there = (fa.advise(each) for each in (whole, opened))
        assert str(here) == str(there)
        sizes = whole.counts("train")[whole.counts("train") > 0]
        assert there.population.clients == len(sizes) == 23
        assert there.population.samples == sizes.sum() - (d == 70) * len(sizes)
        assert "from 12 clients evenly spread" in there.population.method
        assert len(there.clients) == 12
    few = whole.take(
        np.flatnonzero(whole.counts("train"))[np.linspace(0, 22, 12).round().astype(int)]
    )
    assert there.population.noise == fa.advise(few).population.noise


def test_what_is_refused_says_what_to_do(both, tmp_path):
    numbers = draw_numbers(3)
    features = numbers.features.copy()
    features[numbers.rows(9, "train")[0], 0] = np.nan
    wrong = open_saved(replace(numbers, features=features), tmp_path / "wrong")
    with pytest.raises(fa.InvalidInput, match="client 9 has NaN or infinity"):
        fa.advise(wrong)
    same = open_saved(replace(numbers, labels=0 * numbers.labels + 2), tmp_path / "same")
    with pytest.raises(fa.InvalidInput, match="all labels are 2: there is nothing to predict"):
        fa.advise(same)
    with pytest.raises(fa.InvalidInput, match=r"on disk.*in memory"):
        fa.fit(both[1])
    alone = draw_clients(m=2)
    one = fa.Federation.open(alone.save(tmp_path / "one", shards=1))
    with pytest.raises(fa.InvalidInput, match="there are 2 clients with training samples"):
        fa.advise(one)
