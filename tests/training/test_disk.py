"""Clients on disk train as clients in memory do: the same cohorts, batches and numbers, however many
clients are read at a time; and what cannot be had of them is refused in words."""

import threading

import numpy as np
import pytest
from tests.training.clients import SMALL, federation

import fedasym as fa
from fedasym.data import shards
from fedasym.training import heads

COUNTED = ("correct", "losses", "shared_correct", "shared_losses", "totals", "shared")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Classes and numbers, in memory and on disk."""
    found = {}
    for classes in (3, None):
        whole = federation(classes=classes)
        folder = tmp_path_factory.mktemp("disk") / "clients"
        found[classes] = whole, whole.save(folder, shards=3)
    return found


@pytest.fixture
def _small_blocks(monkeypatch):
    """Two clients in a block, and the clients of one round at a time."""
    monkeypatch.setattr(shards, "BLOCK_CLIENTS", 2)
    monkeypatch.setattr(heads, "BLOCK_BYTES", 1)


def alike(one: fa.History, other: fa.History, tolerance: float = 2e-6) -> None:
    for name in COUNTED:
        mine, theirs = getattr(one, name), getattr(other, name)
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance, err_msg=name)
    np.testing.assert_allclose(one.exact_loss, other.exact_loss)


@pytest.mark.usefixtures("_small_blocks", "_light")
@pytest.mark.parametrize(
    ("algorithm", "classes"), [("ftfa", 3), ("ftfa", None), ("local", 3), ("scaffold", 3)]
)
def test_numbers_are_those_of_clients_in_memory(folders, algorithm, classes):
    whole, folder = folders[classes]
    told = SMALL | {"server_step": None, "local_step": None}  # chosen by the clients' curvature
    mine, theirs = (
        fa.train(algorithm, each, **told) for each in (whole, fa.Federation.open(folder))
    )
    assert mine.settings == theirs.settings
    alike(mine, theirs)
    if algorithm == "ftfa":
        for client in (whole.clients[0], whole.clients[1]):
            np.testing.assert_allclose(mine.personal(client), theirs.personal(client), atol=1e-6)
        assert str(mine) == str(theirs)


@pytest.mark.usefixtures("_small_blocks", "_light")
def test_a_grid_with_seeds_corrections_and_privacy(folders):
    whole, folder = folders[3]
    opened = fa.Federation.open(folder)
    told = SMALL | {"evaluate_every": 0, "seeds": [1, 2], "grid": {"local_step": [0.1, 0.2]}}
    names = ["ftfa_share", "gram_ridge"]
    runs = (fa.train(names, each, **told) for each in (whole, opened))
    for one, other in zip(*runs, strict=True):
        alike(one, other)
        assert str(other).splitlines()[0] == str(one).splitlines()[0]
    budget = fa.Privacy(noise_multiplier=1.0, delta=0.1, clip=0.5)
    told = SMALL | {"evaluate_every": 0, "privacy": budget}
    alike(*(fa.train("ftfa", each, **told) for each in (whole, opened)))


@pytest.mark.usefixtures("_small_blocks", "_light")
def test_rounds_read_the_clients_that_are_drawn_and_tests_everyone_once(folders, monkeypatch):
    """Counted where clients are read; and reading is another thread's than computing."""
    read, threads = [], set()

    def spy(self, places, take=shards.ShardedFederation.take):
        threads.add(threading.get_ident())
        read.append(sorted(np.asarray(places).tolist()))
        return take(self, places)

    monkeypatch.setattr(shards.ShardedFederation, "take", spy)
    opened = fa.Federation.open(folders[3][1])
    run = fa.train("ftfa", opened, **SMALL | {"evaluate_every": 0})
    rounds, tests = read[: run.settings.rounds], read[run.settings.rounds :]
    assert [len(each) for each in rounds] == [SMALL["cohort"]] * run.settings.rounds
    assert sorted(place for each in tests for place in each) == list(range(len(opened)))
    assert len(tests) == 4
    assert threading.get_ident() not in threads


@pytest.mark.usefixtures("_light")
def test_one_program_serves_all_blocks(folders, monkeypatch):
    from fedasym.training.programs import advance, personalise

    monkeypatch.setattr(shards, "BLOCK_CLIENTS", 2)
    opened = fa.Federation.open(folders[3][1])
    fa.train("ftfa", opened, **SMALL)
    before = advance._cache_size(), personalise._cache_size()
    fa.train("ftfa", opened, seed=5, **SMALL)
    assert before == (advance._cache_size(), personalise._cache_size())


def test_what_cannot_be_had_of_clients_on_disk_is_refused(folders):
    opened = fa.Federation.open(folders[3][1])
    with pytest.raises(fa.InvalidInput, match="on disk, and splits are dealt out in memory"):
        fa.train("ftfa", opened, splits=[1], **SMALL)
    with pytest.raises(fa.InvalidInput, match="scales all features in memory"):
        fa.train("rtfa_directed", opened, **SMALL)
    with pytest.raises(fa.InvalidInput, match="on disk"):
        fa.train("ftfa", opened, **SMALL).decompose()
