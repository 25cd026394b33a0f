"""The server as a Flower strategy: meet nodes, draw clients, average changes, gather scores."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from flwr.app import (
    Array,
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
from numpy.typing import NDArray

from fedasym.algorithms import Algorithm
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import whole
from fedasym.core.runtime import read_arrays, write_arrays
from fedasym.data.recipe import Recipe
from fedasym.deploy.flower import RunConfiguration, read_rules
from fedasym.deploy.flower.messages import (
    COMMON,
    CROSS,
    CURVATURE,
    GRADIENTS,
    GRAM,
    HEAD,
    MOMENTS,
    SCALING,
    SENT,
    SILENT,
    STEPS_KEY,
    Attentive,
    Change,
    PrivateAverage,
    RefusedReply,
    Trouble,
    array_in,
    arrays_in,
    config_in,
    content_of,
    count_in,
    head_record,
    length_of,
    log,
    log_troubles,
    mean_change,
    metrics_in,
    pack_state,
    scores_in,
    shorten_changes,
    sort_replies,
    unpack_state,
    usual_shares,
)
from fedasym.deploy.flower.preparation import Preparation, Reading
from fedasym.deploy.flower.roster import (
    Attendance,
    DataKind,
    Node,
    NodeRoster,
    describe_data,
    is_sample_count,
)
from fedasym.exact.outputs import GramSums
from fedasym.models import SavedHead
from fedasym.training.convergence import choose_asked, start_clusters, steps_below
from fedasym.training.settings import bind_stage, named_settings
from fedasym.training.twin import add_share, find_scaling, start_head, turn_head

Reply = TypeVar("Reply")


STATE = "federated run"  # the kind of the file that a run goes on from
FREE = ("rounds", "evaluate_every")  # settings that a resumed run may change


class Personalized(Strategy):
    """Any algorithm of `fedasym.train`, with cohorts from whoever is connected.

    >>> strategy = Personalized("rtfa", {"rounds": 3, "ridge": 0.5})
    >>> strategy.configuration.settings.ridge
    0.5
    """

    def __init__(self, algorithm: str | Algorithm, config: Mapping[str, Any]) -> None:
        self.configuration = RunConfiguration.of(algorithm, config)
        told = self.configuration
        self.path = Path(str(config.get("shared-path") or "shared.safetensors"))
        self.attendance = Attendance(told.min_nodes, told.timeout)
        self.roster = NodeRoster(None if told.classes is None else len(told.classes))
        rules = read_rules(config) | {"classes": told.classes}
        self.preparation = Preparation(rules, told.min_nodes)
        self.steps: dict[str, float] = {}  # those that the run config leaves open
        self.stage = bind_stage(told.algorithm.server, told.settings, told.protocol)
        self.shared = np.zeros((0, 0))  # what the round's nodes were sent
        self.head: NDArray[Any] = self.shared  # and what came of it
        self.common: Any = None  # what the server keeps between rounds, for most nothing
        # by which nodes scale features, where there is a ridge by direction
        self.scaling: NDArray[np.float64] | None = None
        self.token = secrets.token_hex(8)  # of this run and of those that go on from it
        self.done = 0  # rounds of the run that this one goes on from
        self.saved = 0  # the last round whose state is on disk
        self.connected: list[int] = []  # nodes that took part in the round's draw
        self.drawn: dict[int, dict[str, int]] = {}
        self.tested: list[int] = []
        self.private = PrivateAverage.of(told)

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
        if self.configuration.resume:
            self.resume()
        first = self.meet(looking)
        left = self.rounds - self.done
        if left <= 0:
            log.info("All %d rounds are done already", self.rounds)
            return Result(arrays=head_record(self.model))
        result = self.start(looking, first, num_rounds=left, timeout=self.timeout)
        result.arrays = head_record(self.model)
        return result

    def meet(self, grid: Grid) -> ArrayRecord:
        """Wait for enough nodes, let them introduce themselves; returns the first shared head."""
        present = self.await_nodes(grid)
        d, outputs, _ = self.kind
        told = self.configuration
        log.info("Training %s on %s", told.algorithm.name, self.data)
        first = start_head(d, outputs, told.protocol, told.seed, self.precision)
        if not self.done:
            self.head = first
            self.scaling = self.ask_scaling(grid, present)
            self.take_steps(self.ask_steps(grid, present))
            starts = self.ask_clusters(grid, present)
            self.common = self.stage.first_memory(np.asarray(first, np.float64), starts)
        elif self.head.shape != first.shape:
            raise InvalidInput(
                f"{self.state_path} has a head of shape {self.head.shape}, and the nodes' data take"
                f" {first.shape}: name another shared-path, or leave out resume"
            )
        return head_record(self.head)

    def ask_scaling(self, grid: Grid, present: list[int]) -> NDArray[np.float64] | None:
        """What features are scaled by, from the sums of products of the nodes that are there; None
        where there is no ridge by direction.
        """
        told = self.configuration
        if told.algorithm.personalise.plain_stage is None:
            return None
        d, _, _ = self.kind

        def read(_: int, content: RecordDict) -> NDArray[np.float64]:
            total = array_in(arrays_in(content)[MOMENTS].data, (d, d), MOMENTS)
            if not np.allclose(total, total.T) or (np.diag(total) < 0).any():
                raise RefusedReply("its moments are not symmetric, or squares are below 0")
            return total.astype(np.float64)

        sent = self.ask(grid, {node: {"step": MOMENTS} for node in present}, read)
        samples = {node: sum(self.roster.nodes[node].clients.values()) for node in sent}
        sizes = {node: np.trace(each) / max(samples[node], 1) for node, each in sent.items()}
        shares = usual_shares(sizes, told.outlier_bound)
        total = sum((shares[node] * each for node, each in sent.items()), np.zeros((d, d)))
        return find_scaling(told.algorithm, told.settings, total)

    def ask_steps(self, grid: Grid, present: list[int]) -> dict[str, float]:
        """The steps that the run config leaves open, as the nodes' largest curvature allows."""
        told = self.configuration
        if not told.chosen:
            return {}

        def read(_: int, content: RecordDict) -> float:
            return scores_in(metrics_in(content), (CURVATURE,), {})[CURVATURE]

        sent = self.ask(grid, {node: {"step": CURVATURE} for node in present}, read)
        shares = usual_shares(sent, told.outlier_bound)
        L = max(shares[node] * each for node, each in sent.items())
        steps = steps_below(L, told.settings.ridge)
        return {name: steps[name] for name in told.chosen}

    def take_steps(self, steps: Mapping[str, float]) -> None:
        """Use these steps from here on."""
        self.steps = dict(steps)
        told = self.configuration = self.configuration.with_steps(steps)
        self.stage = bind_stage(told.algorithm.server, told.settings, told.protocol)

    def ask_clusters(self, grid: Grid, present: list[int]) -> list[NDArray[np.float64]]:
        """The first models of clusters, as `fedasym.train` makes them, from gradients of clients
        that nodes send; none where the algorithm has no clusters.
        """
        if not self.stage.start_models:
            return []
        told = self.configuration
        d, outputs, _ = self.kind
        W = start_head(d, outputs, told.protocol, told.seed, np.float64)
        held = [
            (node, name, n)
            for node in present
            for name, n in self.roster.nodes[node].clients.items()
        ]
        identities = np.array([int(name, 16) for _, name, _ in held], np.uint64)
        order = choose_asked(told.seed, identities, np.array([n for _, _, n in held]))
        asked: dict[int, list[str]] = {}
        for node, name, _ in (held[place] for place in order):
            asked.setdefault(node, []).append(name)

        def read(node: int, content: RecordDict) -> tuple[dict[str, NDArray[np.float64]], float]:
            names = config_in(content)["clients"]
            if not names or not set(names) <= set(asked[node]) or len(set(names)) < len(names):
                raise RefusedReply("it sent gradients of clients that it was not asked for")
            rows = array_in(arrays_in(content)[GRADIENTS].data, (len(names), W.size), GRADIENTS)
            steepest = scores_in(metrics_in(content), (CURVATURE,), {})[CURVATURE]
            return dict(zip(names, rows.astype(np.float64), strict=True)), steepest

        words = {node: {"step": GRADIENTS, "clients": names} for node, names in asked.items()}
        sent = self.ask(grid, words, read)
        rows = {
            (node, name): sent[node][0][name]
            for node, name, _ in (held[place] for place in order)
            if node in sent and name in sent[node][0]
        }
        lengths = {each: length_of(row) for each, row in rows.items()}
        shares = usual_shares(lengths, told.outlier_bound)
        gradients = np.stack([shares[each] * row for each, row in rows.items()])
        steepest = max(each for _, each in sent.values())
        log.info("Clusters begin from the gradients of %d clients", len(rows))
        return start_clusters(W, gradients, steepest, self.stage.start_models)

    def ask(
        self,
        grid: Grid,
        words: Mapping[int, Mapping[str, Any]],
        read: Callable[[int, RecordDict], Reply],
    ) -> dict[int, Reply]:
        """What nodes that have introduced themselves say before the first round."""
        messages = [
            self.message({}, told, node, MessageType.QUERY, 1) for node, told in words.items()
        ]
        replies = grid.send_and_receive(messages, timeout=self.timeout)
        found, troubles = sort_replies(replies, words, read)
        log_troubles(troubles)
        if not found:
            raise InvalidInput(
                "no node has answered what the first round needs: the lines above say why"
            )
        return found

    def await_nodes(self, grid: Grid) -> list[int]:
        """The connected nodes that have introduced themselves, once there are enough."""
        return self.attendance.wait(grid, self.roster.nodes, lambda new: self.introduce(grid, new))

    def introduce(self, grid: Grid, new: list[int]) -> dict[int, Trouble]:
        """Let nodes tell what they have; returns what is wrong with which."""

        def ask(told: Mapping[int, Mapping[str, Any]], read: Reading) -> Any:
            messages = [
                Message(content_of(config=each), node, MessageType.QUERY, ttl=self.timeout)
                for node, each in told.items()
            ]
            return sort_replies(grid.send_and_receive(messages, timeout=self.timeout), told, read)

        told, troubles = self.preparation.introduce(
            new, len(self.roster.nodes), ask, lambda _, content: Node.of(config_in(content))
        )
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
        self.connected = connected = self.await_nodes(grid)
        told = self.configuration
        self.shared = np.asarray(arrays[HEAD].numpy(), np.float64)
        self.head = np.asarray(arrays[HEAD].numpy())
        round_ = server_round + self.done
        self.drawn = {}
        if told.algorithm.shares_nothing or (self.stage.reads_sums and round_ > 1):
            return []
        cohort = self.count_trainable(connected) if self.stage.reads_sums else told.settings.cohort
        # who takes part in a private round must be nobody's guess: a seed is in the app
        seed = told.seed if self.private is None else int(self.token, 16)
        chosen = (seed, round_ - 1, cohort, told.settings.privacy)
        self.drawn = self.roster.draw(connected, *chosen)
        log.info(
            "configure_train: Sampled %d clients on %d nodes (out of %d on %d)",
            sum(map(len, self.drawn.values())), len(self.drawn), self.count_trainable(connected),
            len(connected),
        )  # fmt: skip
        return [
            self.message(
                arrays,
                {**config, "drawn": list(clients), "turns": list(clients.values())},
                node,
                MessageType.TRAIN,
                round_,
            )
            for node, clients in self.drawn.items()
        ]

    def count_trainable(self, nodes: Iterable[int]) -> int:
        """How many clients of these nodes have training samples."""
        return sum(
            samples > 0 for node in nodes for samples in self.roster.nodes[node].clients.values()
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The average by samples of the changes that pass the rules; no change if none does."""
        if not self.drawn and self.private is None:
            return None, None
        if self.stage.reads_sums:
            return self.solve_sums(replies)
        able = max(self.count_trainable(self.connected), 1)
        taken = self.take(replies, self.drawn, self.change_in)
        log.info(
            "aggregate_train: Received %d results and %d failures",
            len(taken),
            len(self.drawn) - len(taken),
        )
        if not taken and self.private is None:
            log.warning(
                "The shared head stays as it is. If heads have NaN or infinity, lower server-step."
            )
            return None, None
        bound = 0.0 if self.private else self.configuration.outlier_bound
        changes, cut = shorten_changes(taken, bound)
        for node, share in cut.items():
            log.warning(
                "Node %d sent a change %.3g times too long: shortened (rule: outlier-bound)",
                node,
                1 / share,
            )
        drawn = sum(len(self.drawn[node]) for node in changes)
        with np.errstate(over="ignore"):
            moves = {node: (change.step, len(self.drawn[node])) for node, change in changes.items()}
            mean = (
                mean_change(changes)
                if self.private is None
                else self.private.average(moves, self.shared.shape, able, self.roster.turns)
            )
            if mean is None:
                log.warning("The privacy budget is spent: the shared head stays as it is.")
                return None, None
            moved, common = self.stage.move_server(
                self.shared, mean, self.common, self.mean_sent(changes), drawn / able
            )
            head = np.asarray(moved).astype(self.precision)
        if not np.isfinite(head).all():
            log.warning(
                "The average does not fit %s: the shared head stays as it is. Lower server-step.",
                self.precision,
            )
            return None, None
        self.head, self.common = head, common
        told: dict[str, MetricRecordValues] = {
            "num-examples": sum(change.samples for change in changes.values()),
            "clients": drawn,
            "failed-nodes": len(self.drawn) - len(taken),
            "shortened-nodes": len(cut),
            "change": float(np.linalg.norm(head - self.shared)),
        }
        if self.private is not None:
            told["epsilon"] = self.private.epsilon
            log.info(
                "Privacy: epsilon %.4g at delta %g is spent", told["epsilon"], self.private.delta
            )
        return head_record(head), MetricRecord(told)

    def change_in(self, node: int, content: RecordDict) -> Change:
        """A node's change of the shared head, by the rules."""
        known = self.roster.nodes[node].clients
        samples = count_in(
            metrics_in(content), "num-examples", sum(known[name] for name in self.drawn[node])
        )
        arrays = arrays_in(content)
        form, shapes = self.sent_form
        if set(arrays) != {HEAD, *shapes}:
            raise RefusedReply(
                f"it sent arrays named {', '.join(map(repr, sorted(arrays)))} instead of"
                f" {', '.join(map(repr, [HEAD, *shapes]))}"
            )
        head = array_in(arrays[HEAD].data, self.shared.shape)

        def read(name: str) -> Any:
            return array_in(arrays[name].data, shapes[name], name).astype(np.float64)

        sent = unpack_state(form, SENT, read)
        return Change(head.astype(np.float64) - self.shared, samples, sent)

    @property
    def sent_form(self) -> tuple[Any, dict[str, tuple[int, ...]]]:
        """The form of what clients send beside their heads, as a client without a step has it, and
        the shapes of its arrays by their names.
        """
        if not self.stage.keeps_client():
            return None, {}
        W = self.shared
        memory = (self.stage.init_client(W), self.common)
        first, state = self.stage.begin(W, memory, lambda models: [1.0] * len(models))
        sent = self.stage.finish(first, W, state, self.configuration.settings.server_step, 1)[1]
        form, arrays = pack_state(sent, SENT)
        return form, {name: array.shape for name, array in arrays.items()}

    def solve_sums(
        self, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The ridge head of all nodes' samples, from the sums of products that they send."""
        taken = self.take(replies, self.drawn, self.sums_in)
        if not taken:
            log.warning("No node has sent its sums: the shared head stays as it is")
            return None, None
        total = reduce(GramSums.__add__, taken.values())
        self.head = np.asarray(total.solve(self.stage.get("shared_ridge")), self.precision)
        told: dict[str, MetricRecordValues] = {
            "num-examples": total.samples,
            "clients": sum(len(self.drawn[node]) for node in taken),
            "failed-nodes": len(self.drawn) - len(taken),
        }
        return head_record(self.head), MetricRecord(told)

    def sums_in(self, node: int, content: RecordDict) -> GramSums:
        """A node's sums of products, by the rules: symmetric, with no square below 0."""
        known = self.roster.nodes[node].clients
        told = metrics_in(content)
        count_in(told, "num-examples", sum(known[name] for name in self.drawn[node]))
        arrays, (p, outputs) = arrays_in(content), self.shared.shape
        gram = array_in(arrays[GRAM].data, (p, p), GRAM).astype(np.float64)
        cross = array_in(arrays[CROSS].data, (p, outputs), CROSS).astype(np.float64)
        if not np.allclose(gram, gram.T) or (np.diag(gram) < 0).any():
            raise RefusedReply("its sums of products are not symmetric, or squares are below 0")
        if not is_sample_count(told.get("counted")):
            raise RefusedReply(f"its counted is {told.get('counted')!r}: it must be a count")
        return GramSums(told["counted"], gram, cross, self.configuration.protocol.intercept)

    def mean_sent(self, changes: Mapping[int, Change]) -> Any:
        """The mean by samples of what clients sent beside their models."""
        n = max(sum(change.samples for change in changes.values()), 1)
        sent: Any = None
        for _, change in sorted(changes.items()):
            sent = add_share(sent, change.samples / n, change.sent)
        return np.zeros_like(self.shared) if sent is None else sent

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """In evaluated rounds every connected node makes and tests its clients' own heads."""
        round_ = server_round + self.done
        self.tested = (
            self.await_nodes(grid) if round_ in self.configuration.settings.evaluated_rounds else []
        )
        if self.tested:
            log.info("configure_evaluate: Asked all %d nodes", len(self.tested))
        told = dict(config)
        if self.configuration.algorithm.correction is not None:
            told["labels"] = self.roster.class_totals()
        return [
            self.message(arrays, told, node, MessageType.EVALUATE, round_) for node in self.tested
        ]

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Means over all predictions; `hurt`: the share of clients whose own head is worse. Here a
        round ends, and its state is saved.
        """
        scores = self.mean_scores(replies) if self.tested else None
        round_, every = server_round + self.done, self.configuration.save_every
        if every and (round_ % every == 0 or round_ == self.rounds):
            self.save_state(round_)
        return scores

    def mean_scores(self, replies: Iterable[Message]) -> MetricRecord | None:
        """The nodes' scores together; None where no reply counts."""
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
        self,
        arrays: Mapping[str, Array],
        told: Mapping[str, Any],
        node: int,
        kind: str,
        round_: int,
    ) -> Message:
        """The shared head and what to do with it; it expires with the round."""
        held = {name: array.numpy() for name, array in arrays.items()}
        held |= {} if self.scaling is None else {SCALING: self.scaling}
        words = {**told, "server-round": round_, **self.preparation.words}
        words |= {STEPS_KEY: json.dumps(self.steps)} if self.steps else {}
        if self.stage.keeps_client():
            form, common = pack_state(self.common, COMMON)
            held |= common
            words |= {COMMON: json.dumps(form), "token": self.token, "saved": self.saved}
        return Message(content_of(held, words), node, kind, ttl=self.timeout)

    @property
    def state_path(self) -> Path:
        """Where the state is that a run goes on from."""
        return self.path.with_suffix(".state.safetensors")

    def describe_run(self) -> dict[str, Any]:
        """What a run that goes on must have in common with the one that it goes on from."""
        told = self.configuration
        settings = named_settings(told.settings, told.algorithm)
        return {
            "algorithm": told.algorithm.name,
            "settings": {
                name: each
                for name, each in settings.items()
                if name not in FREE and name not in told.chosen
            },
            "protocol": told.protocol.name,
            "intercept": told.protocol.intercept,
            "seed": told.seed,
            "precision": told.precision,
        }

    def save_state(self, round_: int) -> None:
        """Write all that later rounds need, whole or not at all, and the shared head."""
        form, arrays = pack_state(self.common, COMMON)
        recipe = self.preparation.recipe
        about = self.describe_run() | {
            "round": round_,
            "token": self.token,
            "turns": dict(self.roster.turns),
            "common": form,
            "steps": self.steps,
            "recipe": None if recipe is None else recipe.to_json(),
            "classes": self.preparation.classes,
            "releases": None if self.private is None else self.private.to_json(),
        }
        arrays |= {} if self.scaling is None else {SCALING: self.scaling}
        write_arrays(self.state_path, STATE, {HEAD: self.head, **arrays}, about)
        self.saved = round_
        self.save_head(round_)

    def resume(self) -> None:
        """Take up the state that was saved last, where there is one."""
        if not self.state_path.is_file():
            log.info("There is no %s to resume from: starting anew", self.state_path.resolve())
            return
        arrays, about = read_arrays(self.state_path, STATE)
        ours = json.loads(json.dumps(self.describe_run()))
        if other := [name for name, value in ours.items() if about.get(name) != value]:
            raise InvalidInput(
                f"{self.state_path} is of a run with {other[0]} {about.get(other[0])!r}, and this"
                f" one has {ours[other[0]]!r}: resume with the same, or name another shared-path"
            )
        try:
            self.head = arrays[HEAD]
            self.common = unpack_state(about["common"], COMMON, arrays.__getitem__)
            if self.configuration.algorithm.personalise.plain_stage is not None:
                self.scaling = arrays[SCALING]
            self.done = self.saved = whole("round", about["round"], least=1)
            self.take_steps(
                {name: float(about["steps"][name]) for name in self.configuration.chosen}
            )
            self.token = str(about["token"])
            self.roster.turns.update({str(name): int(n) for name, n in about["turns"].items()})
            if self.private is not None:
                self.private.resume(about["releases"])
            told, classes = about["recipe"], about["classes"]
            self.preparation.recipe = None if told is None else Recipe.from_json(told)
            self.preparation.classes = None if classes is None else tuple(classes)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidInput(
                f"{self.state_path} is damaged: its parts do not fit together; leave out resume"
            ) from None
        log.info("Resuming after round %d of %d", self.done, self.rounds)

    def save(self) -> Path:
        """Write the shared head of the last round; returns where it is."""
        where = self.save_head(max(self.rounds, self.done)).resolve()
        log.info("Trained on %s", self.data)
        log.info("The shared head is in %s", where)
        return where

    def save_head(self, round_: int) -> Path:
        """Write the shared head to a .safetensors file for `fedasym.models.SavedHead.load`."""
        told = self.configuration
        _, outputs, task = self.kind
        named = told.classes or self.preparation.classes or range(outputs)
        recipe = self.preparation.recipe
        about = {
            "algorithm": told.algorithm.name,
            "bias": told.protocol.intercept,
            "classes": None if task == "regression" else list(named),
            "data": self.data,
            "recipe": None if recipe is None else recipe.to_json(),
            "round": round_,
            "seed": told.seed,
        }
        if self.private is not None:
            about["privacy"] = {
                "epsilon": self.private.epsilon,
                "delta": self.private.delta,
                "noise": "node" if told.noise_on_nodes else "server",
            }
        return SavedHead(self.model, about).save(self.path)

    @property
    def model(self) -> NDArray[Any]:
        """The shared head for features as the recipe makes them."""
        return self.head if self.scaling is None else turn_head(self.scaling, self.head)

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
