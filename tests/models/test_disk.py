"""Doubles of clients on disk are those of clients in memory, from sums over blocks; and what they
draw does not grow with the clients that they resemble."""

from dataclasses import replace

import numpy as np
import pytest

import fedasym as fa
from fedasym.data import shards
from fedasym.models import doubles, laws, what_if


def draw_clients(classes: bool = True) -> fa.Federation:
    drawn = fa.datasets.synthetic(
        **({"task": "classification", "classes": 3, "centre": 3} if classes else {"noise": 0.5}),
        radius=2,
        clients=14,
        dimension=6,
        aspect=0.2,
        seed=2,
    )
    return replace(drawn, truth=None)


def in_features(found: laws.ClassLaws) -> list[np.ndarray]:
    """What laws say in the features' own coordinates."""
    back = np.linalg.inv(found.turn)
    common, own = (factor.T @ back for factor in (found.common, found.by_class))
    spread = (found.train.right.T @ back[: found.rank], found.train.rest.T @ back[found.rank :])
    moments = [each.T @ each for each in (common, own, *spread)]
    told = [found.mean, found.means @ back, found.train.confusion, found.train.blend]
    return [*told, np.array(found.train.pull), found.shares.base, *moments]


@pytest.fixture
def _small(monkeypatch):
    monkeypatch.setattr(shards, "BLOCK_CLIENTS", 4)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("coordinates", ["resampled", "mixtures"])
def test_a_double_is_that_of_clients_in_memory(tmp_path, monkeypatch, coordinates):
    monkeypatch.setattr(laws, "MOST_RESAMPLED", 150)  # coordinates of some samples are kept
    monkeypatch.setattr(doubles, "calibrate", lambda double: double)  # of the same laws
    whole = draw_clients()
    opened = fa.Federation.open(whole.save(tmp_path / "clients", shards=2))
    here, there = (fa.resemble(each, coordinates=coordinates) for each in (whole, opened))
    np.testing.assert_allclose(there.goal, here.goal, rtol=1e-10)
    np.testing.assert_array_equal(there.sizes, here.sizes)
    np.testing.assert_array_equal(there.counts, here.counts)
    for name in ("label", "feature", "concept"):
        ours, theirs = getattr(here.card, name), getattr(there.card, name)
        np.testing.assert_allclose(theirs, ours, rtol=1e-7, atol=1e-9)
    # their coordinates may be mirrored
    for mine, other in zip(*map(in_features, (here.laws, there.laws)), strict=True):
        np.testing.assert_allclose(other, mine, rtol=1e-6, atol=1e-8)
    if coordinates == "resampled":
        assert len(here.laws.train.residuals) == len(there.laws.train.residuals) < len(whole.labels)


@pytest.mark.usefixtures("_small")
def test_numbers_and_what_ifs_read_clients_on_disk(tmp_path, monkeypatch):
    whole = draw_clients(classes=False)
    opened = fa.Federation.open(whole.save(tmp_path / "clients", shards=2))
    told = ({"samples": [20, 60]}, ["fedavg", "rtfa"])
    here, there = (fa.what_if(each, *told, draws=1) for each in (whole, opened))
    assert str(here) == str(there)
    monkeypatch.setattr(doubles, "LAW_CLIENTS", 7)
    monkeypatch.setattr(what_if, "MOST_DRAWN", 6)
    here, there = (fa.what_if(each, None, ["fedavg", "rtfa"], draws=1) for each in (whole, opened))
    assert str(here) == str(there)
    assert "14 clients (6 drawn at a time)" in there.title
    assert list(there.quantities) == ["samples"]
    with pytest.raises(fa.InvalidInput, match="vary clients has 13: at most 12 are drawn"):
        fa.what_if(fa.resemble(opened), {"clients": [13]})
