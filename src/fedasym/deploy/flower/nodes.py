"""What a node does with each kind of message; the arithmetic is the plain-loop version of `fedasym.train`, client by client.

introduce: say which clients there are (64-bit hashes of their names), their sample counts, and the kind of the data:
    numbers of features and outputs, and the task. Names of classes stay here.
train: the drawn clients' local work from the shared head; one head goes back, averaged by samples over the node's clients.
evaluate: every client's own head, made from the shared one, kept in a folder of the node, and tested; scores go back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Context, Message, RecordDict
from numpy.typing import NDArray

from fedasym.algorithms import Algorithm
from fedasym.core.version import __version__
from fedasym.data.federation.federation import Federation
from fedasym.data.federation.splits import SPLITS
from fedasym.deploy.flower.configuration import Configuration
from fedasym.deploy.flower.faults import VERSION, Fault, report_as
from fedasym.deploy.flower.heads import Model, file_of
from fedasym.deploy.flower.holdings import heads_folder
from fedasym.deploy.flower.records import HEAD, MALFORMED, array_of, content_of, told_in
from fedasym.training.history import ROUNDING
from fedasym.training.settings import is_size
from fedasym.training.twin import Client, Head, batch_of, local_work, mean_loss, own_head, predictions


def introduce(message: Message, context: Context, federation: Federation, algorithm: str | Algorithm) -> Message:
    """Reply with the node's clients and sizes; no name, no sample, no label."""
    protocol = configure(algorithm, context).protocol
    told: dict[str, Any] = {VERSION: __version__, "synthetic": federation.truth is not None}
    told |= {"dimension": federation.dimension, "outputs": federation.outputs, "task": federation.task}
    samples, tested = federation.counts("train").tolist(), int(np.count_nonzero(federation.counts("test")))
    counted = {split: predicted(federation, split, protocol.count_padding) for split in ("validation", "test")}
    told |= {"clients": hashes(federation), "samples": samples, "tested": tested, **counted}
    return Message(content_of(config=told), reply_to=message)


def train(message: Message, context: Context, federation: Federation, algorithm: str | Algorithm) -> Message:
    """Reply with W + sum_j n_j (w_j - W) / sum_j n_j over the drawn clients j of this node."""
    configuration = configure(algorithm, context)
    shared, round_ = read_order(message.content, federation, configuration)
    drawn = read_drawn(message.content, dict(zip(hashes(federation), working(federation, configuration), strict=True)))
    change, samples = np.zeros_like(shared), 0
    for client, turn in drawn:
        w = local_work(configuration.algorithm, client, shared, round_ - 1, turn).head
        change, samples = change + client.n * (w - shared), samples + client.n
    head = (shared + change / samples).astype(configuration.precision)
    return Message(content_of({HEAD: head}, metrics={"num-examples": samples}), reply_to=message)


def evaluate(message: Message, context: Context, federation: Federation, algorithm: str | Algorithm) -> Message:
    """Make, keep and test each client's own head; reply with the scores of all of them together."""
    configuration = configure(algorithm, context)
    shared, round_ = read_order(message.content, federation, configuration)
    name, folder = configuration.algorithm.name, heads_folder(context.node_config)
    about = {
        "algorithm": name,
        "round": round_,
        "run": context.run_id,
        "seed": configuration.seed,
        "bias": configuration.protocol.intercept,
    }
    about["classes"] = None if federation.classes is None else list(federation.classes)
    own, theirs, validated, hurt = Marks(), Marks(), Marks(), 0
    for client in working(federation, configuration):
        head = own_head(configuration.algorithm, client, shared, round_)
        if np.isfinite(head).all():  # one that diverged replaces none that works; the server hears of it in the scores
            with report_as(Fault.UNWRITABLE_HEADS):
                Model(head, about | {"client": client.name}).save(file_of(folder, name, client.name, int(client.identity)))
        mine, others = marks_of(client, head, "test"), marks_of(client, shared, "test")
        own, theirs, validated = own.plus(mine), theirs.plus(others), validated.plus(marks_of(client, head, "validation"))
        hurt += mine.worse_than(others, federation.task)
    told: dict[str, float] = {"num-examples": own.counted, "num-validation-examples": validated.counted, "hurt": hurt}
    scores = own.told("", federation.task) | theirs.told("shared-", federation.task)
    told |= scores | validated.told("validation-", federation.task)
    return Message(content_of(metrics=told), reply_to=message)


def configure(algorithm: str | Algorithm, context: Context) -> Configuration:
    """The run as its config tells it."""
    with report_as(Fault.BAD_CONFIGURATION):
        return Configuration.of(algorithm, context.run_config)


def read_order(content: RecordDict, federation: Federation, configuration: Configuration) -> tuple[NDArray[np.float64], int]:
    """The shared head and the number of the round that the server sends."""
    with report_as(Fault.BAD_MESSAGE, MALFORMED):
        shared, round_ = array_of(content), told_in(content)["server-round"]
        if shared.shape != (federation.dimension + configuration.protocol.intercept, federation.outputs):
            raise ValueError("the shared head does not fit the data")
        if not is_size(round_, 1):
            raise ValueError("server-round is no number of a round")
        return shared, int(round_)


def read_drawn(content: RecordDict, clients: Mapping[str, Client]) -> list[tuple[Client, int]]:
    """The drawn clients of this node, each with how often it was drawn before."""
    with report_as(Fault.BAD_MESSAGE, MALFORMED):
        asked = told_in(content)
        drawn = [(clients[name], turn) for name, turn in zip(asked["drawn"], asked["turns"], strict=True)]
        if not any(client.n for client, _ in drawn) or not all(is_size(turn, 0) for _, turn in drawn):
            raise ValueError("no client with training samples is drawn, or a turn is no count")
        return drawn


class Marks(NamedTuple):
    """How a head does on some samples: predictions counted, how many were right, and the sum of their losses."""

    counted: int = 0
    correct: int = 0
    loss: float = 0.0

    def plus(self, other: Marks) -> Marks:
        """Two sets of samples together."""
        return Marks(self.counted + other.counted, self.correct + other.correct, self.loss + other.loss)

    def worse_than(self, other: Marks, task: str) -> bool:
        """Fewer right, or in regression a larger loss beyond rounding."""
        return self.loss > other.loss * (1 + ROUNDING) if task == "regression" else self.correct < other.correct

    def told(self, prefix: str, task: str) -> dict[str, float]:
        """Means by their names in a message; 0 where nothing was counted."""
        n = max(self.counted, 1)
        accuracy = {} if task == "regression" else {f"{prefix}accuracy": self.correct / n}
        return accuracy | {f"{prefix}loss": self.loss / n}


def marks_of(client: Client, head: Head, split: str) -> Marks:
    """One client's samples of a split under a head."""
    federation, protocol = client.federation, client.protocol
    D = batch_of(federation, federation.rows(client.name, split), protocol.intercept, protocol.count_padding, head.dtype)
    if not (counted := int(np.count_nonzero(D.weights))):
        return Marks()
    right = (predictions(head, D).argmax(axis=1) == D.Y.argmax(axis=1)) & (D.weights > 0)
    return Marks(counted, int(right.sum()), counted * mean_loss(head, D))


def working(federation: Federation, configuration: Configuration) -> list[Client]:
    """The node's clients with what they need for their work; their arithmetic is in float64."""
    of = (configuration.settings, configuration.protocol, configuration.seed, np.float64)
    return [Client(federation, name, *of) for name in federation.clients]


def hashes(federation: Federation) -> list[str]:
    """What the server knows the clients by: the 64 bits that their random numbers are keyed by."""
    return [f"{identity:016x}" for identity in federation.identities.tolist()]


def predicted(federation: Federation, split: str, padding: bool) -> int:
    """Predictions that a split counts: samples, or positions of sequences."""
    rows = np.flatnonzero(federation.split == SPLITS.index(split))
    if federation.mask is not None and not padding:
        return int(federation.mask[rows].sum())
    return len(rows) * (federation.features.shape[1] if federation.sequences else 1)
