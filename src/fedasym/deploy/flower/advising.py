"""The advisor through a federation: the server asks for sums and summaries, and `fedasym.advisor` makes advice of them.

Rounds: an introduction; as many gradients as conjugate gradients need for ten shared models, at most a few more than there
are features; one summary per client. Where samples are too few for models, clients answer twice instead. A node that fails
or breaks the rules is named and left out, and what it had a part in is done again without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedasym.advisor.advice import Advice
from fedasym.advisor.advise import advise
from fedasym.advisor.data import LEAST_CLIENTS
from fedasym.advisor.federated import GROUPS, PAIR_ROOM, PAIRS, first_variances, group_of
from fedasym.advisor.moments import PROBE_VECTORS
from fedasym.advisor.statistics import Summary
from fedasym.core.errors import InvalidInput
from fedasym.core.files import write_text
from fedasym.deploy.flower import advice_nodes as names
from fedasym.deploy.flower.answers import Attentive, log, log_troubles, sort_replies
from fedasym.deploy.flower.attendance import Attendance
from fedasym.deploy.flower.configuration import Configuration
from fedasym.deploy.flower.faults import VERSION
from fedasym.deploy.flower.records import arrays_in, content_of, told_in
from fedasym.deploy.flower.replies import Refused, Trouble, array_in, check_version
from fedasym.deploy.flower.roster import describe_data, is_count, is_hash
from fedasym.deploy.flower.solving import Rows, least_squares

Taken = TypeVar("Taken")


class Lost(Exception):
    """Some node did not answer as it should, and is no longer counted."""


@dataclass(frozen=True)
class Member:
    """What a node said of itself: samples by client, the features' sums of squares, and whether its clients are drawn."""

    clients: Mapping[str, int]
    power: NDArray[np.float64]
    synthetic: bool

    @classmethod
    def of(cls, _: int, content: RecordDict) -> Member:
        """Read and check an introduction."""
        told = told_in(content)
        check_version(told.get(VERSION))
        clients, samples = told["clients"], told["samples"]
        if not clients or len(set(clients)) != len(clients) or not all(map(is_hash, clients)):
            raise Refused("its clients must be hashes of 16 digits, at least one and each once")
        if len(samples) != len(clients) or not all(is_count(n) and n > 0 for n in samples):
            raise Refused(f"its samples are {samples!r}: they must be whole numbers above 0, one per client")
        power = one(content, "power", tuple(arrays_in(content)["power"].shape))
        if power.ndim != 1 or (power < 0).any():
            raise Refused("its sums of squares must be one number of at least 0 per feature")
        return cls(dict(zip(clients, samples, strict=True)), power, told.get("synthetic") is True)


class Advisor:
    """Asks connected nodes and advises; `advise` does it all."""

    def __init__(self, grid: Grid, config: Mapping[str, Any]) -> None:
        rules = Configuration.of("fedavg", config)
        self.grid, self.timeout, self.data_name = Attentive(grid), rules.timeout, rules.data_name
        self.attendance = Attendance(rules.min_nodes, rules.timeout)
        self.nodes: dict[int, Member] = {}

    def advise(self) -> Advice:
        """Meet the nodes, ask until none is lost on the way, and advise."""
        self.meet()
        while True:
            clients = sum(len(member.clients) for member in self.nodes.values())
            if clients < LEAST_CLIENTS:
                raise InvalidInput(
                    f"there are {clients} clients: how clients differ takes at least {LEAST_CLIENTS}; connect more nodes"
                )
            try:
                return advise(self.summaries())
            except Lost:
                log.info("Asking again without it: %d nodes are left", len(self.nodes))

    def meet(self) -> None:
        """Wait for enough nodes, and let all that are connected introduce themselves."""
        self.attendance.wait(self.grid, self.nodes, self.introduce)
        log.info("Advising on %s", describe_data(self.data_name, self.nodes.values()))

    def introduce(self, new: list[int]) -> dict[int, Trouble]:
        """Let nodes tell what they have; where they differ, those that are there decide, or else most of them."""
        told, troubles = self.ask("introduce", {node: RecordDict() for node in new}, Member.of)
        sizes = [member.power.size for member in (self.nodes or told).values()]
        usual = max(sizes, key=sizes.count) if sizes else 0
        for node, member in told.items():
            known = {name for each in self.nodes.values() for name in each.clients}
            size, samples = member.power.size, sum(member.clients.values())
            if size != usual:
                troubles[node] = Trouble(f"it has {size} features, and the others {usual}", permanent=True)
            elif known & set(member.clients):
                double = min(known & set(member.clients))
                troubles[node] = Trouble(f"client {double} is on another node too", permanent=True)
            else:
                self.nodes[node] = member
                log.info("Node %d introduced %d clients with %d training samples", node, len(member.clients), samples)
        return troubles

    def summaries(self) -> list[Summary]:
        """Every client's summary, by products of residuals where samples suffice, else by two answers."""
        power = sum(member.power for member in self.nodes.values())
        self.live = np.asarray(power) > 0
        order = sorted(name for member in self.nodes.values() for name in member.clients)
        self.groups = {name: group_of(place) for place, name in enumerate(order)}
        samples, d = sum(sum(member.clients.values()) for member in self.nodes.values()), int(self.live.sum())
        if d == 0:
            raise InvalidInput("all features are 0 on every node: check how the nodes read their data")
        if samples >= PAIR_ROOM * d and len(order) >= GROUPS:
            models = least_squares(self.gradient, np.asarray(power)[self.live], len(PAIRS))
            return self.tell({names.MODELS: models}, {})
        first = self.tell({}, {})
        return self.tell({}, {names.TOLD: list(first_variances(first))})

    def gradient(self, at: Rows) -> Rows:
        """The sum over all nodes of their gradients at ten models."""
        shape = at.shape
        log.info("Asking %d nodes for gradients", len(self.nodes))
        told = self.ask_all("differentiate", {names.MODELS: at}, {}, lambda _, content: one(content, "gradients", shape))
        return np.asarray(np.sum(list(told.values()), axis=0))

    def tell(self, arrays: Mapping[str, NDArray[np.float64]], config: Mapping[str, Any]) -> list[Summary]:
        """The summaries of all clients, in the order of their hashes."""
        d, twice = int(self.live.sum()), names.TOLD in config
        log.info("Asking %d nodes for summaries", len(self.nodes))
        told = self.ask_all(
            "tell",
            arrays,
            config,
            lambda node, content: [summary_in(content, name, n, d, twice) for name, n in self.nodes[node].clients.items()],
        )
        return sorted((each for node in told.values() for each in node), key=lambda summary: str(summary.name))

    def ask_all(
        self,
        what: str,
        arrays: Mapping[str, NDArray[np.float64]],
        config: Mapping[str, Any],
        read: Callable[[int, RecordDict], Taken],
    ) -> dict[int, Taken]:
        """The answers of all nodes; where one is missing, it is counted no longer, and all is to be asked again."""
        contents = {}
        for node, member in self.nodes.items():
            groups = [self.groups[name] for name in member.clients]
            contents[node] = content_of(arrays, {**config, names.LIVE: self.live.tolist(), names.GROUPS: groups})
        taken, troubles = self.ask(what, contents, read)
        if troubles:
            log_troubles(troubles)
            self.nodes = {node: member for node, member in self.nodes.items() if node in taken}
            raise Lost
        return taken

    def ask(
        self, what: str, contents: Mapping[int, RecordDict], read: Callable[[int, RecordDict], Taken]
    ) -> tuple[dict[int, Taken], dict[int, Trouble]]:
        """Send each node its message; returns the answers that pass the rules, and what is wrong with the others."""
        messages = [
            Message(content, node, f"{MessageType.QUERY}.{what}", ttl=self.timeout) for node, content in contents.items()
        ]
        return sort_replies(self.grid.send_and_receive(messages, timeout=self.timeout), contents, read)


def one(content: RecordDict, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """One array of a reply, by the rules."""
    return array_in(arrays_in(content)[name].data, shape, name).astype(np.float64)


def summary_in(content: RecordDict, name: str, samples: int, dimension: int, twice: bool) -> Summary:
    """One client's summary, by the rules: as many numbers per axis as it can have, powers and squares of at least 0."""
    axes = (min(samples, dimension),)
    power, residual, raw = (one(content, f"{name}.{each}", axes) for each in ("power", "residual", "raw"))
    if (power < 0).any() or (raw < 0).any():
        raise Refused(f"client {name} has squares below 0")
    shapes = {"pull": (dimension,), "probes": (dimension, PROBE_VECTORS)} if twice else {}
    second = {each: one(content, f"{name}.{each}", shape) for each, shape in shapes.items()}
    numbers = told_in(content)[name]
    if len(numbers) != len(names.NUMBERS) or not np.isfinite(numbers).all():
        raise Refused(f"client {name} has the numbers {numbers!r}: {', '.join(names.NUMBERS)} must be finite")
    rest, tails, pooled = map(float, numbers)
    return Summary(name, samples, dimension, power, residual, raw, rest, tails, pooled, **second)


def tell_advice(advice: Advice, path: str | Path) -> Path:
    """Log the advice as people read it, and keep it as JSON."""
    for line in str(advice).splitlines():
        log.info("%s", line)
    where = Path(path)
    write_text(where, advice.to_json())
    log.info("The advice is in %s", where.resolve())
    return where.resolve()


def advise_federation(grid: Grid, config: Mapping[str, Any]) -> Advice:
    """Advice from the nodes that are connected, by the rules of a run config (min-nodes, timeout)."""
    return Advisor(grid, config).advise()
