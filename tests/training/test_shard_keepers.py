"""Federations whose shards others keep: the same bits however many they are, whoever is lost; the
numbers of one process to rounding. Without a cluster: the crew is in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from tests.experiments.small import flipped, same_bits
from tests.training.clients import SMALL, federation
from tests.training.test_disk import COUNTED, alike

import fedasym as fa
from fedasym.core import __version__
from fedasym.data import shards
from fedasym.data.shards import share_out
from fedasym.deploy.shards import ShardKeeper, ShardKeepers, ShardWorker
from fedasym.experiments.execution import complete_run
from fedasym.experiments.fields import record_data
from fedasym.experiments.folder import RESUMED, RunFolder
from fedasym.training import storage
from fedasym.training.convergence import column_sizes
from fedasym.training.settings import TEXT
from fedasym.training.twin import pooled_shares

pytest.importorskip("jax")


class HereKeeper(ShardKeeper):
    """A keeper in this process: what is shared is there."""

    def fetch(self, handle: list[Any]) -> Any:
        return handle[0]


class HereCrew:
    """Keepers in this process; some die, one call after the other."""

    def __init__(self, opened: shards.ShardedFederation, count: int, deaths: int = 0) -> None:
        self.told = opened.files.address, opened.digest, __version__
        self.keepers = [HereKeeper(*self.told) for _ in range(count)]
        self.runs = share_out([shard.samples for shard in opened.shards], count)
        self.shards, self.deaths = len(opened.shards), deaths

    def settle(self) -> None:
        """They are here."""

    def share(self, value: Any) -> list[Any]:
        return [value]

    def start(self, method: str, jobs: Mapping[int, tuple[Any, ...]]) -> None:
        keepers = list(self.keepers)  # it is the planner's thread that asks
        for at, told in jobs.items():
            if at < len(keepers):
                getattr(keepers[at], method)(*told)

    def gather(
        self, method: str, jobs: Callable[[list[range]], Mapping[int, tuple[Any, ...]]]
    ) -> dict[int, Any]:
        found = {
            at: getattr(self.keepers[at], method)(*told) for at, told in jobs(self.runs).items()
        }
        if self.deaths:  # one is lost with what it had, and fewer are left
            self.deaths -= 1
            fewer = max(len(self.keepers) - 1, 1)
            self.keepers = [HereKeeper(*self.told), *self.keepers[2:]][:fewer]
            self.runs = share_out([1] * self.shards, fewer)
            return self.gather(method, jobs)
        return found

    def map(self, method: str, told: tuple[Any, ...]) -> Iterator[tuple[int, Any]]:
        for at, run in reversed([*enumerate(self.runs)]):
            for shard in run:
                yield shard, getattr(self.keepers[at], method)(*told, shard)


def kept_by(folder: Any, count: int, deaths: int = 0) -> fa.Federation:
    opened = fa.Federation.open(folder)
    return ShardKeepers(opened, HereCrew(opened, count, deaths)).federation


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Classes and numbers, in memory and in seven shards."""
    found = {}
    for classes in (3, None):
        whole = federation(classes=classes)
        folder = tmp_path_factory.mktemp("kept") / "clients"
        found[classes] = whole, whole.save(folder, shards=7)
    return found


def same(one: fa.History, other: fa.History) -> None:
    for name in COUNTED:
        assert np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True), name


@pytest.mark.usefixtures("_light")
@pytest.mark.parametrize(
    ("algorithm", "classes"),
    [
        ("ftfa", 3),
        ("ftfa", None),
        ("local", 3),
        ("scaffold", 3),
        ("ditto", 3),
        ("ifca", 3),
        ("gram_ridge", 3),
    ],
)
def test_bits_do_not_depend_on_who_keeps_what_and_are_nearly_those_of_one_process(
    folders, algorithm, classes
):
    whole, folder = folders[classes]
    told = SMALL | {"server_step": None, "local_step": None}
    here = fa.train(algorithm, whole, **told)
    one, two, seven = (
        fa.train(algorithm, kept_by(folder, count, deaths), **told)
        for count, deaths in ((1, 0), (2, 0), (7, 2))
    )
    alike(here, one)
    same(one, two)
    same(one, seven)


@pytest.mark.usefixtures("_light")
def test_a_grid_with_seeds_corrections_privacy_and_double_precision(folders):
    whole, folder = folders[3]
    opened = fa.Federation.open(folder)
    told = SMALL | {"evaluate_every": 0, "seeds": [1, 2], "grid": {"local_step": [0.1, 0.2]}}
    runs = (fa.train("ftfa_share", each, **told) for each in (whole, kept_by(folder, 3, 1)))
    for one, other in zip(*runs, strict=True):
        alike(one, other)
    budget = fa.Privacy(noise_multiplier=1.0, delta=0.1, quantile=0.5)
    told = SMALL | {"evaluate_every": 0, "privacy": budget, "precision": "float64"}
    runs = [fa.train("ftfa", each, **told) for each in (whole, opened, kept_by(folder, 2))]
    alike(runs[0], runs[1], 1e-12)
    alike(runs[0], runs[2], 1e-12)
    assert runs[0].privacy == runs[2].privacy


@pytest.mark.usefixtures("_light")
def test_sums_over_all_clients_are_sums_over_shards(folders):
    whole, folder = folders[3]
    kept = kept_by(folder, 2)
    np.testing.assert_allclose(column_sizes(kept), column_sizes(whole), rtol=1e-12)
    assert np.array_equal(pooled_shares(kept, TEXT), pooled_shares(whole, TEXT))
    read = [keeper.opened for keeper in kept.keepers.crew.keepers]
    assert read == [None, None]  # and needed no model


@pytest.mark.usefixtures("_light")
def test_a_run_goes_on_from_the_state_that_was_kept(folders, tmp_path, monkeypatch):
    """Cut off in the last of its rounds, and with damaged states: the same numbers."""
    monkeypatch.setattr(storage, "EVERY", 0.0)
    opened = fa.Federation.open(folders[3][1])
    tried = fa.Experiment(
        name="kept",
        algorithms=["scaffold"],
        settings={**SMALL, "rounds": 6},
        grid={"server_step": [0.1, 0.3]},
        trials={"seeds": [1, 2]},
    )
    record = record_data(opened, ())

    def run(name: str, crew: HereCrew) -> RunFolder:
        keepers = ShardKeepers(opened, crew)
        folder = RunFolder.prepare(tmp_path / name, tried, record)
        complete_run(tried, ShardWorker(keepers, keepers.federation, record, folder, None))
        return folder

    class Cut(HereCrew):
        asked = 0

        def gather(self, *told: Any) -> dict[int, Any]:
            self.asked += 1
            if self.asked == 6:
                raise RuntimeError("the power is cut")
            return super().gather(*told)

    run("whole", HereCrew(opened, 2))
    for damaged in (False, True):
        name = f"cut {damaged}"
        with pytest.raises(RuntimeError, match="the power is cut"):
            run(name, Cut(opened, 2))
        for file in (tmp_path / name / "states").iterdir() if damaged else ():
            file.write_bytes(flipped(file.read_bytes(), 200))
        folder = run(name, HereCrew(opened, 3))
        said = [each.text for each in folder.log() if each.event == RESUMED]
        assert len(said) == (not damaged)
        assert all("goes on after round 4" in each for each in said)
        same_bits(tmp_path / name, tmp_path / "whole")
        assert not [*folder.states.iterdir()]


def test_a_killed_drivers_states_are_cleaned_away_with_its_pieces(tmp_path):
    folder = RunFolder(tmp_path)
    for each in (folder.pieces, folder.locks):
        each.mkdir()
    folder.keep_state("wanted.0", {"round": np.array(3)})
    folder.keep_state("other.0", {"round": np.array(3)})
    assert folder.clean({"wanted"})[0] == 1
    assert folder.state("wanted.0") == {"round": 3}
    assert folder.state("other.0") is None


def test_a_node_that_sees_another_folder_or_none_says_so(folders, tmp_path):
    opened = fa.Federation.open(folders[3][1])
    other = federation(classes=3).take(range(5)).save(tmp_path / "other", shards=2)
    told = [(tmp_path / "none", "is not there on a node"), (other, "is another federation on a")]
    for folder, words in told:
        keeper = HereKeeper(str(folder), opened.digest, __version__)
        with pytest.raises(fa.InvalidInput, match=words):
            keeper.map(len, (), 0)
    with pytest.raises(fa.InvalidInput, match="a node of the cluster has fedasym"):
        HereKeeper(opened.files.address, opened.digest, "0.0.1").map(len, (), 0)
