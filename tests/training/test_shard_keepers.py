"""Federations whose shards others keep: the same bits however many they are, whoever is lost; the
numbers of one process to rounding. Without a cluster: the crew is in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from tests.training.clients import SMALL, federation
from tests.training.test_disk import COUNTED, alike

import fedasym as fa
from fedasym.core import __version__
from fedasym.data import shards
from fedasym.deploy.shards import ShardKeeper, ShardKeepers, share_out

pytest.importorskip("jax")


class HereKeeper(ShardKeeper):
    """A keeper in this process: what is shared is there."""

    def fetch(self, handle: list[Any]) -> Any:
        return handle[0]


class HereCrew:
    """Keepers in this process; some die, one call after the other."""

    def __init__(self, opened: shards.ShardedFederation, count: int, deaths: int = 0) -> None:
        self.told = str(opened.folder), opened.digest, __version__
        self.keepers = [HereKeeper(*self.told) for _ in range(count)]
        self.runs = share_out([shard.samples for shard in opened.shards], count)
        self.shards, self.deaths = len(opened.shards), deaths

    def settle(self) -> None:
        """They are here."""

    def share(self, value: Any) -> list[Any]:
        return [value]

    def start(self, method: str, jobs: Mapping[int, tuple[Any, ...]]) -> None:
        for at, told in jobs.items():
            getattr(self.keepers[at], method)(*told)

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
