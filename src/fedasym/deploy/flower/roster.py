"""Who is there: the nodes that introduced themselves, their clients, who is drawn, and who does not
answer as it should.

No number of clients is known ahead. A run waits for enough nodes that can take part, and ends where
connected nodes cannot make it complete.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from flwr.serverapp import Grid

from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import plural
from fedasym.core.privacy import Privacy
from fedasym.deploy.flower.messages import (
    VERSION,
    RefusedReply,
    Trouble,
    check_version,
    log,
    log_troubles,
)
from fedasym.training.plans import cohorts, draw_by_chance
from fedasym.training.twin import COHORT

WAIT_PAUSE = 2  # seconds between two looks for nodes


class Attendance:
    """The rules of waiting, and what is wrong with which node.

    least: the run goes on with so many nodes. timeout: seconds, from the last new node on, after
        which a run with fewer ends where a connected node is at fault. Where none is, it waits:
        others may still connect.
    """

    def __init__(self, least: int, timeout: float) -> None:
        self.least, self.timeout = least, timeout
        self.troubles: dict[int, Trouble] = {}

    def wait(
        self,
        grid: Grid,
        known: Container[int],
        introduce: Callable[[list[int]], Mapping[int, Trouble]],
    ) -> list[int]:
        """The connected nodes that are known, once there are enough.

        known: nodes that have introduced themselves; `introduce` lets others do so, and returns
        what is wrong with which. A permanent fault is told once: such a node is not asked again in
        this run.
        """
        since = time.monotonic()
        met = set[int]()
        told = -1
        while True:
            connected = sorted(grid.get_node_ids())
            self.meet(
                [node for node in connected if node not in known and not self.is_given_up(node)],
                introduce,
            )
            present = [node for node in connected if node in known]
            if len(present) >= self.least:
                return present
            if not met.issuperset(connected):
                met.update(connected)
                since = time.monotonic()
            at_fault = {node: self.troubles[node] for node in connected if node in self.troubles}
            if at_fault and time.monotonic() - since >= self.timeout:
                raise InvalidInput(self.describe(len(present), at_fault))
            if len(present) != told:
                log.info(
                    "Waiting for nodes: %d introduced (minimum required: %d)",
                    len(present),
                    self.least,
                )
                told = len(present)
            time.sleep(min(WAIT_PAUSE, self.timeout))

    def meet(self, new: list[int], introduce: Callable[[list[int]], Mapping[int, Trouble]]) -> None:
        """Let nodes introduce themselves, and log what is newly wrong."""
        found = introduce(new) if new else {}
        log_troubles(
            {node: trouble for node, trouble in found.items() if trouble != self.troubles.get(node)}
        )
        for node in new:
            self.troubles.pop(node, None)
        self.troubles |= found

    def is_given_up(self, node: int) -> bool:
        """Whether a node has a fault that asking again will not mend."""
        return node in self.troubles and self.troubles[node].permanent

    def describe(self, present: int, at_fault: Mapping[int, Trouble]) -> str:
        """Why a run cannot go on, with a line for every node at fault."""
        lines = [f"node {node}: {trouble.text}" for node, trouble in at_fault.items()]
        return "\n".join(
            [
                (
                    f"min-nodes is {self.least}, and {present} of the connected nodes can take"
                    f" part, {self.timeout:g} seconds after the last one connected:"
                ),
                *lines,
                "Fix these nodes or the run config, or lower min-nodes, and start the run again.",
            ]
        )


DataKind = tuple[int, int, str]  # features, outputs, task: what all nodes must share
LARGEST, LARGEST_HEAD = 2**40, 2**30  # no client has more samples, and no head more numbers
TASKS = ("classification", "regression")


@dataclass(frozen=True)
class Node:
    """What a node said of itself.

    clients: training samples by the hash of the client's name. tested: how many have test samples.
    validation, test: predictions that these samples count for. synthetic: whether its clients are
        drawn, not real. labels: training samples of each class, where the run asks for them.
    """

    kind: DataKind
    clients: Mapping[str, int]
    tested: int
    validation: int
    test: int
    synthetic: bool
    labels: tuple[int, ...] = ()

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Node:
        """Read and check an introduction.

        >>> import fedasym
        >>> told = {
        ...     "version": fedasym.__version__,
        ...     "dimension": 3,
        ...     "outputs": 2,
        ...     "task": "classification",
        ... }
        >>> Node.of(  # doctest: +ELLIPSIS
        ...     told
        ...     | {"clients": ["0" * 16], "samples": [-4], "tested": 1, "validation": 0, "test": 2}
        ... )
        Traceback (most recent call last):
        ...
        fedasym.deploy.flower.messages.RefusedReply: its samples are [-4]: they must be whole ...
        """
        check_version(told.get(VERSION))
        names, samples = told.get("clients"), told.get("samples")
        if (
            not isinstance(names, list)
            or not names
            or not all(map(is_hash, names))
            or len(set(names)) != len(names)
        ):
            raise RefusedReply(
                "its clients must be hashes of 16 digits, at least one and each once"
            )
        if (
            not isinstance(samples, list)
            or len(samples) != len(names)
            or not all(map(is_sample_count, samples))
        ):
            raise RefusedReply(
                f"its samples are {samples!r}: they must be whole numbers of at least 0, one per"
                " client"
            )
        for name in ("dimension", "outputs", "tested", "validation", "test"):
            if not is_sample_count(told.get(name)):
                raise RefusedReply(
                    f"its {name} is {told.get(name)!r}: it must be a whole number of at least 0"
                )
        kind = (told["dimension"], told["outputs"], str(told.get("task"))[:20])
        check_kind(*kind)
        counts = (told["tested"], told["validation"], told["test"])
        labels = told.get("labels", [])
        if not isinstance(labels, list) or not (
            all(map(is_sample_count, labels)) and len(labels) in (0, told["outputs"])
        ):
            raise RefusedReply("its labels must be a count of samples for each class")
        clients = dict(zip(names, samples, strict=True))
        return cls(kind, clients, *counts, told.get("synthetic") is True, tuple(labels))


def check_kind(dimension: int, outputs: int, task: str) -> None:
    """Refuse a kind of data that no head fits."""
    if task not in TASKS or not 0 < dimension * outputs <= LARGEST_HEAD:
        raise RefusedReply(
            f"its data have {describe_kind((dimension, outputs, task))}, which is not a known"
            " kind of data"
        )


def is_hash(name: Any) -> bool:
    """Sixteen hexadecimal digits."""
    return isinstance(name, str) and len(name) == 16 and set(name) <= set("0123456789abcdef")


def is_sample_count(value: Any) -> bool:
    """A whole number that can be a number of samples."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST


@dataclass
class NodeRoster:
    """The nodes known in this run, the kind of their data, and how often each client was drawn.

    >>> roster = NodeRoster()
    >>> roster.add(
    ...     7,
    ...     Node(
    ...         (3, 1, "regression"),
    ...         {"0" * 15 + "1": 10, "0" * 15 + "2": 0},
    ...         1,
    ...         1,
    ...         1,
    ...         synthetic=True,
    ...     ),
    ... )
    >>> roster.draw([7], seed=0, round_=0, cohort=None)
    {7: {'0000000000000001': 0}}
    """

    classes: int | None = None  # how many the run config names
    nodes: dict[int, Node] = field(default_factory=dict)
    met: dict[int, Node] = field(default_factory=dict)  # all that ever took part
    kind: DataKind | None = None
    turns: Counter[str] = field(default_factory=Counter)

    def add(self, node: int, told: Node) -> None:
        """Take a node in, unless its kind of data or number of classes differs from the run's."""
        if self.classes is not None and (told.kind[1:] != (self.classes, "classification")):
            raise RefusedReply(
                f"its data have {describe_kind(told.kind)}, and the run config names {self.classes}"
                " classes"
            )
        self.kind = self.kind or told.kind
        if told.kind != self.kind:
            raise RefusedReply(
                f"its data have {describe_kind(told.kind)}, and the others'"
                f" {describe_kind(self.kind)}"
            )
        self.nodes[node] = self.met[node] = told

    def add_all(self, told: Mapping[int, Node]) -> dict[int, Trouble]:
        """Take in several at once; where they differ, most of them decide. Returns the refusals."""
        kinds = Counter(each.kind for each in told.values())
        refused = {}
        for node, each in sorted(
            told.items(), key=lambda item: (-kinds[item[1].kind], item[1].kind)
        ):
            try:
                self.add(node, each)
            except RefusedReply as reason:
                refused[node] = Trouble(str(reason), permanent=True)
        return refused

    def class_totals(self) -> list[int]:
        """Training samples of each class on all nodes that ever took part."""
        told = [node.labels for node in self.met.values() if node.labels]
        return [sum(column) for column in zip(*told, strict=True)]

    def doubles(self, new: Set[int]) -> dict[str, list[int]]:
        """Clients of new nodes that other nodes have too, with all of these nodes."""
        owners: dict[str, list[int]] = {}
        for node, each in self.nodes.items():
            for name in each.clients:
                owners.setdefault(name, []).append(node)
        return {
            name: nodes for name, nodes in owners.items() if len(nodes) > 1 and new & set(nodes)
        }

    def draw(
        self,
        connected: Iterable[int],
        seed: int,
        round_: int,
        cohort: int | None,
        privacy: Privacy | None = None,
    ) -> dict[int, dict[str, int]]:
        """The clients drawn in a round, of those with training samples on connected nodes, and how
        often each was before.

        The same clients as `fedasym.train` draws from the same ones: they depend on the seed, the
        round and the names alone. privacy: where it says how; each by itself, or so many of them.
        """
        there = [node for node in sorted(connected) if node in self.nodes]
        able = [
            (node, name)
            for node in there
            for name, samples in self.nodes[node].clients.items()
            if samples
        ]
        if not able:
            return {}
        identities = np.array([int(name, 16) for _, name in able], np.uint64)
        drawn: dict[int, dict[str, int]] = {}
        size = min(cohort or COHORT, len(able))
        if privacy is not None and privacy.sampling == "poisson":
            places = draw_by_chance(size, seed, identities, round_ + 1, round_)[0]
        else:
            places = cohorts(seed, identities, round_ + 1, size, first=round_)[0]
        for place in places[places >= 0]:
            node, name = able[place]
            drawn.setdefault(node, {})[name] = self.turns[name]
            self.turns[name] += 1
        return drawn


def describe_kind(kind: DataKind) -> str:
    """A kind of data in words."""
    dimension, outputs, task = kind
    return f"{dimension} features and {outputs} outputs ({task})"


class Holder(Protocol):
    """A node's own account: training samples by client, and whether clients are drawn."""

    @property
    def clients(self) -> Mapping[str, int]:
        """Training samples by the hash of the client's name."""

    @property
    def synthetic(self) -> bool:
        """Whether the clients are drawn, since the node has no data."""


def describe_data(name: str, nodes: Iterable[Holder]) -> str:
    """What a run works on, in words; name: what the run config calls the data, or nothing.

    >>> drawn, real = (
    ...     Node((3, 1, "regression"), {"0" * 16: 10, "1" * 16: 5}, 1, 1, 1, each)
    ...     for each in (True, False)
    ... )
    >>> describe_data("", [drawn, drawn])
    '4 drawn clients (no data was given) with 30 training samples on 2 nodes'
    >>> describe_data("pupils.csv", [real])
    'pupils.csv: 2 clients with 15 training samples on 1 node'
    >>> describe_data("", [drawn, real])
    '4 clients, 2 of them drawn (no data was given there), with 30 training samples on 2 nodes'
    """
    held = list(nodes)
    clients, drawn = (
        sum(len(each.clients) for each in held if each.synthetic >= least)
        for least in (False, True)
    )
    samples = sum(sum(each.clients.values()) for each in held)
    who = plural(clients, "client")
    if drawn == clients:
        who = f"{plural(clients, 'drawn client')} (no data was given)"
    elif drawn:
        who = f"{who}, {drawn} of them drawn (no data was given there),"
    called = f"{name}: " if name else ""
    return f"{called}{who} with {plural(samples, 'training sample')} on {plural(len(held), 'node')}"
