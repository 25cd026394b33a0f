"""Who is there: the nodes that introduced themselves, their clients, and who is drawn; no number of clients is known ahead."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedasym.runtimes.flower.replies import Refused
from fedasym.training.plans import cohorts
from fedasym.training.twin import COHORT

Kind = tuple[int, int, str, str]  # features, outputs, task, classes: what all nodes must share
LARGEST, LARGEST_HEAD = 2**40, 2**30  # no client has more samples, and no head more numbers
TASKS = ("classification", "regression")


@dataclass(frozen=True)
class Node:
    """What a node said of itself.

    clients: training samples by the hash of the client's name. tested: how many have test samples.
    validation, test: predictions that these samples count for.
    """

    kind: Kind
    clients: Mapping[str, int]
    tested: int
    validation: int
    test: int

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Node:
        """Read and check an introduction.

        >>> told = {"dimension": 3, "outputs": 2, "task": "classification", "classes": "[0, 1]"}
        >>> Node.of(told | {"clients": ["0" * 16], "samples": [-4], "tested": 1, "validation": 0, "test": 2})
        Traceback (most recent call last):
        ...
        fedasym.runtimes.flower.replies.Refused: its samples are [-4]: they must be whole numbers of at least 0, one per client
        """
        names, samples = told.get("clients"), told.get("samples")
        if not isinstance(names, list) or not names or not all(map(is_hash, names)) or len(set(names)) != len(names):
            raise Refused("its clients must be hashes of 16 digits, at least one and each once")
        if not isinstance(samples, list) or len(samples) != len(names) or not all(map(is_count, samples)):
            raise Refused(f"its samples are {samples!r}: they must be whole numbers of at least 0, one per client")
        for name in ("dimension", "outputs", "tested", "validation", "test"):
            if not is_count(told.get(name)):
                raise Refused(f"its {name} is {told.get(name)!r}: it must be a whole number of at least 0")
        kind = (told["dimension"], told["outputs"], str(told.get("task")), str(told.get("classes")))
        check_kind(*kind)
        return cls(kind, dict(zip(names, samples, strict=True)), told["tested"], told["validation"], told["test"])


def check_kind(dimension: int, outputs: int, task: str, classes: str) -> None:
    """Refuse a kind of data that no head fits."""
    try:
        named = json.loads(classes)
    except ValueError:
        named = ""
    right = named is None if task == "regression" else isinstance(named, list) and len(named) == outputs
    if task not in TASKS or not right or not 0 < dimension * outputs <= LARGEST_HEAD:
        raise Refused(f"its data have {described((dimension, outputs, task, classes))}, which is no kind of data")


def is_hash(name: Any) -> bool:
    """Sixteen hexadecimal digits."""
    return isinstance(name, str) and len(name) == 16 and set(name) <= set("0123456789abcdef")


def is_count(value: Any) -> bool:
    """A whole number that can be a number of samples."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST


@dataclass
class Roster:
    """The nodes known in this run, the kind of their data, and how often each client was drawn.

    >>> roster = Roster()
    >>> roster.add(7, Node((3, 1, "regression", "null"), {"0" * 15 + "1": 10, "0" * 15 + "2": 0}, 1, 1, 1))
    >>> roster.draw([7], seed=0, round_=0, cohort=None)
    {7: {'0000000000000001': 0}}
    """

    nodes: dict[int, Node] = field(default_factory=dict)
    kind: Kind | None = None
    turns: Counter[str] = field(default_factory=Counter)

    def add(self, node: int, told: Node) -> None:
        """Take a node in, unless it has another kind of data than the rest."""
        self.kind = self.kind or told.kind
        if told.kind != self.kind:
            raise Refused(f"its data have {described(told.kind)}, and the others' {described(self.kind)}")
        self.nodes[node] = told

    def add_all(self, told: Mapping[int, Node]) -> dict[int, str]:
        """Take in several at once; where they differ, most of them decide. Returns the refusals."""
        kinds = Counter(each.kind for each in told.values())
        refused = {}
        for node, each in sorted(told.items(), key=lambda item: (-kinds[item[1].kind], item[1].kind)):
            try:
                self.add(node, each)
            except Refused as reason:
                refused[node] = str(reason)
        return refused

    def doubles(self, new: Set[int]) -> dict[str, list[int]]:
        """Clients of new nodes that other nodes have too, with all of these nodes."""
        owners: dict[str, list[int]] = {}
        for node, each in self.nodes.items():
            for name in each.clients:
                owners.setdefault(name, []).append(node)
        return {name: nodes for name, nodes in owners.items() if len(nodes) > 1 and new & set(nodes)}

    def draw(self, connected: Iterable[int], seed: int, round_: int, cohort: int | None) -> dict[int, dict[str, int]]:
        """The clients drawn in a round, of those with training samples on connected nodes, and how often each was before.

        The same clients as `fedasym.train` draws from the same ones: they depend on the seed, the round and the names alone.
        """
        there = [node for node in sorted(connected) if node in self.nodes]
        able = [(node, name) for node in there for name, samples in self.nodes[node].clients.items() if samples]
        if not able:
            return {}
        identities = np.array([int(name, 16) for _, name in able], np.uint64)
        drawn: dict[int, dict[str, int]] = {}
        for place in cohorts(seed, identities, round_ + 1, min(cohort or COHORT, len(able)), first=round_)[0]:
            node, name = able[place]
            drawn.setdefault(node, {})[name] = self.turns[name]
            self.turns[name] += 1
        return drawn


def described(kind: Kind) -> str:
    """A kind of data in words."""
    dimension, outputs, task, classes = kind
    return f"{dimension} features and {outputs} outputs ({task}, classes {classes[:60]})"
