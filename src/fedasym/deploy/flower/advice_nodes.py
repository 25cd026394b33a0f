"""What a node tells the advisor, message by message: sums over its samples and summaries of its clients, never a sample.

introduce: the clients' hashes and sample counts, and each feature's sum of squares over all of them.
differentiate: gradients of ten least-squares problems, one for each pair of groups of clients, added up over the clients.
summarise, again: a client's samples along their own axes, a few numbers for each (`fedasym.advisor.federated`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from flwr.app import Message
from numpy.typing import NDArray

from fedasym.advisor.data import Data, federation_parts
from fedasym.advisor.federated import PAIRS, answer_again, summarise
from fedasym.core.version import __version__
from fedasym.data.federation.federation import Federation
from fedasym.data.federation.samples import identities_of
from fedasym.deploy.flower.answers import log
from fedasym.deploy.flower.faults import VERSION, Fault, NodeFault, report_as
from fedasym.deploy.flower.records import MALFORMED, array_of, arrays_in, content_of, told_in

Rows = NDArray[np.float64]
VECTORS = ("power", "residual", "raw", "pull", "probes")
NUMBERS = ("rest", "tails", "pooled")
MODELS, LIVE, GROUPS, TOLD = "models", "live", "groups", "told"  # the names of what the server sends


def introduce(message: Message, federation: Federation) -> Message:
    """Reply with hashes, counts and the features' sums of squares; the node's own log says whose hash is whose."""
    data = data_of(federation)
    power = sum((X**2).sum(0) for X, _ in data)
    for part, name in zip(data.parts, hashes_of(data), strict=True):
        log.info("Client %r is known to the server as %s", part.name, name)
    told: dict[str, Any] = {VERSION: __version__, "synthetic": federation.truth is not None}
    told |= {"clients": hashes_of(data), "samples": data.sizes.tolist()}
    return Message(content_of({"power": np.asarray(power, float)}, told), reply_to=message)


def differentiate(message: Message, federation: Federation) -> Message:
    """Reply with the sums of X'(X w - y) over this node's clients of each pair of groups, at that pair's w."""
    data, groups = read_order(message, federation)
    at = read_models(message, data.dimension)
    total = np.zeros_like(at)
    for (X, y), group in zip(data, groups, strict=True):
        mine = [place for place, pair in enumerate(PAIRS) if group in pair]
        total[mine] += (at[mine] @ X.T - y) @ X
    return Message(content_of({"gradients": total}), reply_to=message)


def tell(message: Message, federation: Federation) -> Message:
    """Reply with every client's summary: about the models where they are sent, and the second answer where `told` is."""
    data, groups = read_order(message, federation)
    with report_as(Fault.BAD_MESSAGE, MALFORMED):
        told = told_in(message.content).get(TOLD)
        first = None if told is None else (float(told[0]), float(told[1]))
        sent = MODELS in arrays_in(message.content)
    models = dict(zip(PAIRS, read_models(message, data.dimension), strict=True)) if sent else None
    arrays: dict[str, Rows] = {}
    numbers: dict[str, list[float]] = {}
    for name, (X, y), group in zip(hashes_of(data), data, groups, strict=True):
        summary = summarise(name, X, y, group=group, models=models)
        summary = summary if first is None else answer_again(summary, X, y, first)
        arrays |= {f"{name}.{each}": np.asarray(getattr(summary, each), float) for each in VECTORS}
        numbers[name] = [float(getattr(summary, each)) for each in NUMBERS]
    return Message(content_of(arrays, numbers), reply_to=message)


def read_order(message: Message, federation: Federation) -> tuple[Data, list[int]]:
    """The node's clients in the features that the server says are alive anywhere, and the group of each."""
    with report_as(Fault.BAD_MESSAGE, MALFORMED):
        asked = told_in(message.content)
        live, groups = np.array(asked[LIVE], bool), list(map(int, asked[GROUPS]))
        if live.shape != (federation.dimension,) or not live.any():
            raise ValueError("the features that are alive do not fit the data")
    data = data_of(federation, live)
    if len(groups) != len(data.parts):
        raise NodeFault(Fault.BAD_MESSAGE, f"there are {len(groups)} groups for {len(data.parts)} clients")
    return data, groups


def read_models(message: Message, dimension: int) -> Rows:
    """The models that the server asks about, one per pair of groups, in the features that are alive."""
    with report_as(Fault.BAD_MESSAGE, MALFORMED):
        at = array_of(message.content, MODELS)
        if at.shape != (len(PAIRS), dimension):
            raise ValueError("the models do not fit the data")
        return at


def data_of(federation: Federation, live: NDArray[np.bool_] | None = None) -> Data:
    """The node's clients with training samples; what advice is not for is refused here."""
    if federation.task == "classification":
        raise NodeFault(Fault.CLASSES_ADVISED, Fault.CLASSES_ADVISED.meaning)
    parts = tuple(part for part in federation_parts(federation) if part.train.size)
    return Data(parts, np.ones(federation.dimension, bool) if live is None else live)


def hashes_of(data: Data) -> list[str]:
    """What the server knows the clients by."""
    return [f"{identity:016x}" for identity in identities_of([part.name for part in data.parts]).tolist()]
