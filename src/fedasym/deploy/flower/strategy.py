"""The server as a Flower strategy: meet nodes, draw clients, average changes, gather scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Message,
    MessageType,
    MetricRecord,
    MetricRecordValues,
    RecordDict,
)
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedasym.algorithms import Algorithm
from fedasym.deploy.flower.apps import RunConfiguration
from fedasym.deploy.flower.messages import (
    HEAD,
    Change,
    RefusedReply,
    Trouble,
    array_in,
    arrays_in,
    config_in,
    content_of,
    count_in,
    log,
    mean_change,
    metrics_in,
    scores_in,
    shorten_changes,
)
from fedasym.deploy.flower.nodes import SavedHead
from fedasym.deploy.flower.roster import (
    SILENT,
    Attendance,
    Attentive,
    DataKind,
    Node,
    NodeRoster,
    describe_data,
    log_troubles,
    sort_replies,
)
from fedasym.training.settings import bind_stage, named_settings
from fedasym.training.twin import start_head

Reply = TypeVar("Reply")


class Personalized(Strategy):
    """Any algorithm of `fedasym.train` that shares something, with cohorts from whoever is
    connected.

    >>> strategy = Personalized("rtfa", {"rounds": 3, "ridge": 0.5})
    >>> strategy.configuration.settings.ridge
    0.5
    """

    def __init__(self, algorithm: str | Algorithm, config: Mapping[str, Any]) -> None:
        self.configuration = RunConfiguration.of(algorithm, config)
        told = self.configuration
        self.attendance = Attendance(told.min_nodes, told.timeout)
        self.roster = NodeRoster(None if told.classes is None else len(told.classes))
        self.shared = np.zeros((0, 0))  # what the round's nodes were sent
        self.drawn: dict[int, dict[str, int]] = {}
        self.tested: list[int] = []

    @property
    def rounds(self) -> int:
        """How many rounds the run config asks for."""
        return self.configuration.settings.rounds

    @property
    def timeout(self) -> float:
        """Seconds that a round waits for replies."""
        return self.configuration.timeout

    def summary(self) -> None:
        """Log what is trained."""
        told = self.configuration
        log.info("\t├── Algorithm: %s", told.algorithm.name)
        log.info("\t├── Settings: %s", named_settings(told.settings, told.algorithm))
        log.info(
            "\t└── Protocol: %s, seed %d, heads sent as %s",
            told.protocol.name,
            told.seed,
            told.precision,
        )

    def train(self, grid: Grid) -> Result:
        """Meet the nodes and run all rounds; as Flower's `start`, returns head and metrics."""
        looking = Attentive(grid)
        return self.start(looking, self.meet(looking), num_rounds=self.rounds, timeout=self.timeout)

    def meet(self, grid: Grid) -> ArrayRecord:
        """Wait for enough nodes, let them introduce themselves; returns the first shared head."""
        self.present(grid)
        d, outputs, _ = self.kind
        log.info("Training %s on %s", self.configuration.algorithm.name, self.data)
        return head_record(
            start_head(
                d, outputs, self.configuration.protocol, self.configuration.seed, self.precision
            )
        )

    def present(self, grid: Grid) -> list[int]:
        """The connected nodes that have introduced themselves, once there are enough."""
        return self.attendance.wait(grid, self.roster.nodes, lambda new: self.introduce(grid, new))

    def introduce(self, grid: Grid, new: list[int]) -> dict[int, Trouble]:
        """Let nodes tell what they have; returns what is wrong with which."""
        messages = [
            Message(RecordDict(), node, MessageType.QUERY, ttl=self.timeout) for node in new
        ]
        replies = grid.send_and_receive(messages, timeout=self.timeout)
        told, troubles = sort_replies(replies, new, lambda _, content: Node.of(config_in(content)))
        troubles |= self.roster.add_all(told)
        for node in sorted(set(told) & set(self.roster.nodes)):
            clients = self.roster.nodes[node].clients
            log.info(
                "Node %d introduced %d clients with %d training samples",
                node,
                len(clients),
                sum(clients.values()),
            )
        for name, nodes in self.roster.doubles(set(told)).items():
            log.warning(
                "Client %s is on nodes %s and counts on each: give every client a name of its own",
                name,
                nodes,
            )
        return troubles

    def take(
        self,
        replies: Iterable[Message],
        nodes: Iterable[int],
        read: Callable[[int, RecordDict], Reply],
    ) -> dict[int, Reply]:
        """The replies that count; a node whose reply does not introduces itself anew first."""
        taken, troubles = sort_replies(replies, nodes, read)
        log_troubles(troubles)
        for node, trouble in troubles.items():
            if trouble is not SILENT:
                self.roster.nodes.pop(node, None)
        return taken

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Draw clients among those of connected nodes; a node hears of its own ones alone."""
        connected = self.present(grid)
        settings = self.configuration.settings
        self.shared = np.asarray(arrays[HEAD].numpy(), np.float64)
        self.drawn = self.roster.draw(
            connected, self.configuration.seed, server_round - 1, settings.cohort
        )
        able = sum(
            samples > 0
            for node in connected
            for samples in self.roster.nodes[node].clients.values()
        )
        log.info(
            "configure_train: Sampled %d clients on %d nodes (out of %d on %d)",
            sum(map(len, self.drawn.values())), len(self.drawn), able, len(connected),
        )  # fmt: skip
        told = {**config, "server-round": server_round}
        return [
            self.message(
                arrays,
                told | {"drawn": list(clients), "turns": list(clients.values())},
                node,
                MessageType.TRAIN,
            )
            for node, clients in self.drawn.items()
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The average by samples of the changes that pass the rules; no change if none does."""
        taken = self.take(replies, self.drawn, self.change_in)
        log.info(
            "aggregate_train: Received %d results and %d failures",
            len(taken),
            len(self.drawn) - len(taken),
        )
        if not taken:
            log.warning(
                "The shared head stays as it is. If heads have NaN or infinity, lower server-step."
            )
            return None, None
        changes, cut = shorten_changes(taken, self.configuration.clip)
        for node, share in cut.items():
            log.warning(
                "Node %d sent a change %.3g times too long: shortened (rule: clip)", node, 1 / share
            )
        rules = self.configuration
        stage = bind_stage(rules.algorithm.server, rules.settings, rules.protocol)
        with np.errstate(over="ignore"):
            head = stage.update(self.shared, mean_change(changes)).astype(self.precision)
        if not np.isfinite(head).all():
            log.warning(
                "The average does not fit %s: the shared head stays as it is. Lower server-step.",
                self.precision,
            )
            return None, None
        told: dict[str, MetricRecordValues] = {
            "num-examples": sum(change.samples for change in changes.values()),
            "clients": sum(len(self.drawn[node]) for node in changes),
            "failed-nodes": len(self.drawn) - len(taken),
            "shortened-nodes": len(cut),
            "change": float(np.linalg.norm(head - self.shared)),
        }
        return head_record(head), MetricRecord(told)

    def change_in(self, node: int, content: RecordDict) -> Change:
        """A node's change of the shared head, by the rules."""
        known = self.roster.nodes[node].clients
        samples = count_in(
            metrics_in(content), "num-examples", sum(known[name] for name in self.drawn[node])
        )
        arrays = arrays_in(content)
        if set(arrays) != {HEAD}:
            raise RefusedReply(
                f"it sent arrays named {', '.join(map(repr, arrays))} instead of {HEAD!r}"
            )
        head = array_in(arrays[HEAD].data, self.shared.shape)
        return Change(head.astype(np.float64) - self.shared, samples)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """In evaluated rounds every connected node makes and tests its clients' own heads."""
        self.tested = (
            self.present(grid) if server_round in self.configuration.settings.evaluated else []
        )
        if self.tested:
            log.info("configure_evaluate: Asked all %d nodes", len(self.tested))
        told: dict[str, Any] = {**config, "server-round": server_round}
        if self.configuration.algorithm.correction is not None:
            told["labels"] = self.roster.class_totals()
        return [self.message(arrays, told, node, MessageType.EVALUATE) for node in self.tested]

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Means over all predictions; `hurt`: the share of clients whose own head is worse."""
        if not self.tested:
            return None
        taken = self.take(replies, self.tested, self.scores_of)
        log.info(
            "aggregate_evaluate: Received %d results and %d failures",
            len(taken),
            len(self.tested) - len(taken),
        )
        if not taken:
            return None
        nodes = [self.roster.nodes[node] for node in taken]
        counts = {
            name: np.array([getattr(node, name) for node in nodes], float)
            for name in ("test", "validation", "tested")
        }
        means: dict[str, MetricRecordValues] = {
            "num-examples": int(counts["test"].sum()),
            "clients": sum(len(node.clients) for node in nodes),
        }
        for name in next(iter(taken.values())):
            weights = counts["validation" if name.startswith("validation-") else "test"]
            weights = np.ones(len(nodes)) if name == "hurt" else weights
            total = counts["tested"].sum() if name == "hurt" else weights.sum()
            values = np.array([scores[name] for scores in taken.values()])
            means[name] = float(weights @ values / max(total, 1))
        return MetricRecord(means)

    def scores_of(self, node: int, content: RecordDict) -> dict[str, float]:
        """A node's scores, by the rules."""
        told = metrics_in(content)
        known = self.roster.nodes[node]
        count_in(told, "num-examples", known.test)
        count_in(told, "num-validation-examples", known.validation)
        kinds = ("loss",) if self.kind[2] == "regression" else ("accuracy", "loss")
        names = tuple(
            f"{prefix}{kind}" for prefix in ("", "shared-", "validation-") for kind in kinds
        )
        most = {name: 1.0 for name in names if name.endswith("accuracy")} | {
            "hurt": float(known.tested)
        }
        return scores_in(told, (*names, "hurt"), most)

    def message(
        self, arrays: ArrayRecord, told: Mapping[str, Any], node: int, kind: str
    ) -> Message:
        """The shared head and what to do with it; it expires with the round."""
        return Message(content_of({HEAD: arrays[HEAD].numpy()}, told), node, kind, ttl=self.timeout)

    def save(self, arrays: ArrayRecord, path: str | Path) -> Path:
        """Write the shared head to a .safetensors file for `deploy.flower.nodes.SavedHead.load`."""
        told = self.configuration
        _, outputs, task = self.kind
        classes = None if task == "regression" else list(told.classes or range(outputs))
        about = {
            "algorithm": told.algorithm.name,
            "bias": told.protocol.intercept,
            "classes": classes,
            "data": self.data,
        }
        head = arrays[HEAD].numpy() if arrays else self.shared  # no round had a reply that counts
        where = (
            SavedHead(head, about | {"round": self.rounds, "seed": told.seed}).save(path).resolve()
        )
        log.info("Trained on %s", self.data)
        log.info("The shared head is in %s", where)
        return where

    @property
    def kind(self) -> DataKind:
        """What all nodes' data have in common: features, outputs, task."""
        assert self.roster.kind is not None, "meet the nodes first"
        return self.roster.kind

    @property
    def data(self) -> str:
        """What is trained on, in words: all nodes that introduced themselves so far."""
        return describe_data(self.configuration.data_name, self.roster.met.values())

    @property
    def precision(self) -> str:
        """Of the heads that are sent."""
        return self.configuration.precision


def head_record(head: Any) -> ArrayRecord:
    """A head as it is sent."""
    return arrays_in(content_of({HEAD: head}))
