"""Who keeps which shards on a cluster: actors go where shards are, and what nobody has is said. The
cluster is invented here: nodes with some files each, on which every call answers at once.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import fedasym as fa
from fedasym.deploy.ray import RayCrew

NAMES = [f"shard-{number:05d}.safetensors" for number in range(4)]


class Actor:
    """An actor, which answers with where it is."""

    def __init__(self, cluster: Cluster, node: str | None) -> None:
        self.node, self.cluster = node, cluster
        self.greet = SimpleNamespace(remote=lambda: self)


class Cluster:
    """What `RayCrew` asks of Ray and of `Capacity`: nodes with room and shards."""

    class exceptions:
        class RayError(Exception):
            pass

    def __init__(self, shards: dict[str, set[int]], room: int = 1, workers: int | None = None):
        self.nodes, self.room, self.ray = dict(shards), room, self
        self.settings, self.options = SimpleNamespace(workers=workers), {}
        self.killed: list[Actor] = []

    def rooms(self) -> dict[str, int]:
        return dict.fromkeys(sorted(self.nodes), self.room)

    def count_slots(self) -> int:
        return len(self.nodes) * self.room

    def on_node(self, node: str) -> str:
        return node

    def remote(self, kind: Any) -> Any:
        """Of a class an actor, of a function its answer."""

        def options(scheduling_strategy: str | None = None, **_: Any) -> Any:
            if isinstance(kind, type):
                return SimpleNamespace(remote=lambda *told: Actor(self, scheduling_strategy))
            return SimpleNamespace(remote=lambda *told: sorted(self.nodes[scheduling_strategy]))

        return SimpleNamespace(options=options)

    def get(self, answer: Any) -> Any:
        return answer

    def wait(self, answers: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        there = [each for each in answers if each.node in (None, "SPREAD", *self.nodes)]
        return there, []

    def kill(self, actor: Actor) -> None:
        self.killed.append(actor)


def crew_of(cluster: Cluster, samples: list[int] | None = None) -> RayCrew:
    return RayCrew(cluster, object, ("/data",), samples or [10] * len(NAMES), NAMES)


def placed(crew: RayCrew) -> dict[str, list[int]]:
    return {crew.where[actor]: list(run) for actor, run in zip(crew.actors, crew.runs, strict=True)}


def test_where_all_nodes_see_all_shards_runs_are_even():
    crew = crew_of(Cluster({"a": {0, 1, 2, 3}, "b": {0, 1, 2, 3}}))
    assert crew.where == {}  # Ray chooses
    assert [list(run) for run in crew.runs] == [[0, 1], [2, 3]]


def test_actors_go_where_shards_are_and_each_shard_to_who_can_read_it():
    crew = crew_of(Cluster({"a": {0, 1, 2}, "b": {2, 3}, "c": set()}))
    assert placed(crew) == {"a": [0, 1], "b": [2, 3]}
    more = crew_of(Cluster({"a": {0, 1, 2}, "b": {2, 3}}, room=2))
    assert sorted(more.where.values()) == ["a", "a", "b", "b"]
    assert sorted(shard for run in more.runs for shard in run) == [0, 1, 2, 3]
    for actor, run in zip(more.actors, more.runs, strict=True):
        assert set(run) <= more.found[more.where[actor]]


def test_a_node_that_goes_is_made_up_for_by_who_has_its_shards():
    cluster = Cluster({"a": {0, 1, 2, 3}, "b": {2, 3}})
    crew = crew_of(cluster)
    (first,) = (actor for actor in crew.actors if crew.where[actor] == "a")
    assert placed(crew)["b"] == [2, 3]
    del cluster.nodes["b"]
    crew.settle()
    assert len(crew.actors) == 1
    assert [list(run) for run in crew.runs] == [[0, 1, 2, 3]]
    cluster.nodes |= {"c": {0, 1}}
    crew.settle()
    assert placed(crew) == {"a": [2, 3], "c": [0, 1]}
    assert first in cluster.killed or first in crew.actors


def test_a_shard_that_no_node_has_and_too_few_workers_are_told():
    with pytest.raises(fa.InvalidInput, match=r"no node .* has shard-00003.* in /data \(1 of 4"):
        crew_of(Cluster({"a": {0, 1}, "b": {2}}))
    with pytest.raises(fa.InvalidInput, match="workers is 1, and the shards lie on 2 nodes"):
        crew_of(Cluster({"a": {0, 1}, "b": {2, 3}}, workers=1))
    alone = crew_of(Cluster({"a": {0, 1, 2, 3}, "b": {2, 3}}, workers=1))
    assert placed(alone) == {"a": [0, 1, 2, 3]}
