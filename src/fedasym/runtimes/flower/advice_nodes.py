"""What a node tells the advisor, message by message: sums over its samples and summaries of its clients, never a sample.

introduce: the clients' hashes and sample counts, and each feature's sum of squares over all of them.
differentiate: gradients of ten least-squares problems, one for each pair of groups of clients, added up over the clients.
summarise, again: a client's samples along their own axes, a few numbers for each (`fedasym.advisor.federated`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
from flwr.app import Message
from numpy.typing import NDArray

from fedasym.advisor.federated import PAIRS, again, summarise
from fedasym.advisor.intake import Data, from_federation
from fedasym.errors import NoFormula
from fedasym.federations.federation import Federation
from fedasym.federations.samples import identities_of
from fedasym.runtimes.flower.records import array_of, arrays_in, content_of, told_in

log = logging.getLogger("flwr")
VECTORS = ("power", "residual", "raw", "pull", "probes")
NUMBERS = ("rest", "tails", "pooled")
CLASSES = "the labels are classes, and advice through a federation is for numbers: task = 'regression' reads whole ones as such"
MODELS, LIVE, GROUPS, TOLD = "models", "live", "groups", "told"  # the names of what the server sends


def introduce(message: Message, federation: Federation) -> Message:
    """Reply with hashes, counts and the features' sums of squares; the node's own log says whose hash is whose."""
    data = data_of(federation)
    power = sum((X**2).sum(0) for X, _ in data)
    for part, name in zip(data.parts, hashes_of(data), strict=True):
        log.info("Client %r is known to the server as %s", part.name, name)
    told = {"clients": hashes_of(data), "samples": data.sizes.tolist()}
    return Message(content_of({"power": np.asarray(power, float)}, told), reply_to=message)


def differentiate(message: Message, federation: Federation) -> Message:
    """Reply with the sums of X'(X w - y) over this node's clients of each pair of groups, at that pair's w."""
    at = array_of(message.content, MODELS)
    total = np.zeros_like(at)
    for _, X, y, group in clients_of(message, federation):
        mine = [place for place, pair in enumerate(PAIRS) if group in pair]
        total[mine] += (at[mine] @ X.T - y) @ X
    return Message(content_of({"gradients": total}), reply_to=message)


def tell(message: Message, federation: Federation) -> Message:
    """Reply with every client's summary: about the models where they are sent, and the second answer where `told` is."""
    told = told_in(message.content).get(TOLD)
    sent = MODELS in arrays_in(message.content)
    models = dict(zip(PAIRS, array_of(message.content, MODELS), strict=True)) if sent else None
    arrays: dict[str, NDArray[np.float64]] = {}
    numbers: dict[str, list[float]] = {}
    for name, X, y, group in clients_of(message, federation):
        summary = summarise(name, X, y, group=group, models=models)
        summary = summary if told is None else again(summary, X, y, (told[0], told[1]))
        arrays |= {f"{name}.{each}": np.asarray(getattr(summary, each), float) for each in VECTORS}
        numbers[name] = [float(getattr(summary, each)) for each in NUMBERS]
    return Message(content_of(arrays, numbers), reply_to=message)


def clients_of(message: Message, federation: Federation) -> Iterator[tuple[str, NDArray[np.float64], NDArray[np.float64], int]]:
    """Each client's hash, samples, labels and group, in the features that the server says are alive anywhere."""
    asked = told_in(message.content)
    data = data_of(federation, np.array(asked[LIVE], bool))
    groups = dict(zip(hashes_of(data), asked[GROUPS], strict=True))
    for name, (X, y) in zip(hashes_of(data), data, strict=True):
        yield name, X, y, groups[name]


def data_of(federation: Federation, live: NDArray[np.bool_] | None = None) -> Data:
    """The node's clients with training samples; what advice is not for is refused here, and the server names the reason."""
    if federation.task == "classification":
        raise NoFormula(CLASSES)
    parts = tuple(part for part in from_federation(federation) if part.train.size)
    return Data(parts, np.ones(federation.dimension, bool) if live is None else live)


def hashes_of(data: Data) -> list[str]:
    """What the server knows the clients by."""
    return [f"{identity:016x}" for identity in identities_of([part.name for part in data.parts]).tolist()]
