"""The advisor through a federation: the server asks for sums and summaries, and makes advice.

What a node tells, message by message, are sums over its samples and summaries of its clients, never
a sample:

introduce: the clients' hashes and sample counts, and each feature's sum of squares over all of
    them.
differentiate: gradients of ten least-squares problems, one for each pair of groups of clients,
    added up over the clients.
summarise, again: a client's samples along their own axes, a few numbers for each
    (`fedasym.advisor.federated`).

Rounds: an introduction; as many gradients as conjugate gradients need for ten shared models, at
most a few more than there are features; one summary per client. Where samples are too few for
models, clients answer twice instead. A node that fails or breaks the rules is named and left out,
and what it had a part in is done again without it.

The problems are solved side by side, one row each. With g(w) = sum X'(X w - y), the product of the
normal matrix and a direction p is g(p) - g(0); the features' sums of squares make all directions
alike long (a diagonal preconditioner).
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
from fedasym.advisor.data import LEAST_CLIENTS, ClientData, federation_parts
from fedasym.advisor.federated import (
    GROUPS,
    PAIR_ROOM,
    PAIRS,
    answer_again,
    first_variances,
    group_of,
    summarise_clients,
)
from fedasym.advisor.moments import PROBE_VECTORS
from fedasym.advisor.statistics import Summary
from fedasym.core import __version__
from fedasym.core.errors import InvalidInput
from fedasym.core.runtime import write_text
from fedasym.data.federation import Federation
from fedasym.data.samples import identities_of
from fedasym.deploy.flower.apps import RunConfiguration
from fedasym.deploy.flower.messages import (
    MALFORMED,
    VERSION,
    Fault,
    NodeFault,
    RefusedReply,
    Trouble,
    array_in,
    array_of,
    arrays_in,
    check_version,
    config_in,
    content_of,
    log,
    report_as,
)
from fedasym.deploy.flower.roster import (
    Attendance,
    Attentive,
    describe_data,
    is_hash,
    is_sample_count,
    log_troubles,
    sort_replies,
)

ProblemRows = NDArray[np.float64]  # (problems, d)
CLOSE = 1e-8  # of the first residual's length: far below the noise of any estimate


def solve_least_squares(
    gradient: Callable[[ProblemRows], ProblemRows],
    power: NDArray[np.float64],
    problems: int,
    close: float = CLOSE,
) -> ProblemRows:
    """The solutions, in few more steps than features; `power`: features' sums of squares, above 0.

    >>> X, y = np.array([[1.0, 2.0], [3.0, 5.0], [0.0, 1.0]]), np.array([1.0, 2.0, 0.5])
    >>> found = solve_least_squares(lambda w: (w @ X.T - y) @ X, (X**2).sum(0), problems=1)[0]
    >>> bool(np.allclose(found, np.linalg.lstsq(X, y, rcond=None)[0]))
    True
    """
    start = gradient(np.zeros((problems, power.size)))
    w = np.zeros_like(start)
    r = -start
    z = r / power
    p = z
    rho = (r * z).sum(1, keepdims=True)
    first = rho.copy()
    for _ in range(2 * power.size + 10):
        going = rho > close**2 * first
        if not going.any():
            break
        Ap = gradient(p) - start
        curved = (p * Ap).sum(1, keepdims=True)
        step = np.divide(rho, curved, out=np.zeros_like(rho), where=going & (curved > 0))
        w, r = w + step * p, r - step * Ap
        z = r / power
        before = rho
        rho = (r * z).sum(1, keepdims=True)
        p = z + np.divide(rho, before, out=np.zeros_like(rho), where=before > 0) * p
    return w


FloatRows = NDArray[np.float64]
SUMMARY_VECTORS = ("power", "residual", "raw", "pull", "probes")
SUMMARY_NUMBERS = ("rest", "tails", "pooled")
# the names of what the server sends
MODELS_KEY, LIVE_KEY, GROUPS_KEY, TOLD_KEY = ("models", "live", "groups", "told")


def introduce_samples(message: Message, federation: Federation) -> Message:
    """Reply with hashes, counts and features' sums of squares; the node's log has the names."""
    data = training_data(federation)
    power = sum((X**2).sum(0) for X, _ in data)
    for part, name in zip(data.parts, client_hashes(data), strict=True):
        log.info("Client %r is known to the server as %s", part.name, name)
    told: dict[str, Any] = {VERSION: __version__, "synthetic": federation.truth is not None}
    told |= {"clients": client_hashes(data), "samples": data.sizes.tolist()}
    return Message(content_of({"power": np.asarray(power, float)}, told), reply_to=message)


def differentiate(message: Message, federation: Federation) -> Message:
    """Reply with the sums of X'(X w - y) over the node's clients, by pair of groups at its w."""
    data, groups = read_features_and_groups(message, federation)
    at = read_models(message, data.dimension)
    total = np.zeros_like(at)
    for (X, y), group in zip(data, groups, strict=True):
        mine = [place for place, pair in enumerate(PAIRS) if group in pair]
        total[mine] += (at[mine] @ X.T - y) @ X
    return Message(content_of({"gradients": total}), reply_to=message)


def send_summaries(message: Message, federation: Federation) -> Message:
    """Reply with all clients' summaries: about sent models, and second answers where `told` is."""
    data, groups = read_features_and_groups(message, federation)
    with report_as(Fault.BAD_MESSAGE, MALFORMED):
        told = config_in(message.content).get(TOLD_KEY)
        first = None if told is None else (float(told[0]), float(told[1]))
        sent = MODELS_KEY in arrays_in(message.content)
    models = dict(zip(PAIRS, read_models(message, data.dimension), strict=True)) if sent else None
    arrays: dict[str, FloatRows] = {}
    numbers: dict[str, list[float]] = {}
    for name, (X, y), group in zip(client_hashes(data), data, groups, strict=True):
        summary = summarise_clients(name, X, y, group=group, models=models)
        summary = summary if first is None else answer_again(summary, X, y, first)
        arrays |= {
            f"{name}.{each}": np.asarray(getattr(summary, each), float) for each in SUMMARY_VECTORS
        }
        numbers[name] = [float(getattr(summary, each)) for each in SUMMARY_NUMBERS]
    return Message(content_of(arrays, numbers), reply_to=message)


def read_features_and_groups(
    message: Message, federation: Federation
) -> tuple[ClientData, list[int]]:
    """The node's clients in the features that are alive anywhere, and the group of each."""
    with report_as(Fault.BAD_MESSAGE, MALFORMED):
        asked = config_in(message.content)
        live = np.array(asked[LIVE_KEY], bool)
        groups = list(map(int, asked[GROUPS_KEY]))
        if live.shape != (federation.dimension,) or not live.any():
            raise ValueError("the features that are alive do not fit the data")
    data = training_data(federation, live)
    if len(groups) != len(data.parts):
        raise NodeFault(
            Fault.BAD_MESSAGE, f"there are {len(groups)} groups for {len(data.parts)} clients"
        )
    return data, groups


def read_models(message: Message, dimension: int) -> FloatRows:
    """The models that the server asks about, one per pair of groups, in features alive."""
    with report_as(Fault.BAD_MESSAGE, MALFORMED):
        at = array_of(message.content, MODELS_KEY)
        if at.shape != (len(PAIRS), dimension):
            raise ValueError("the models do not fit the data")
        return at


def training_data(federation: Federation, live: NDArray[np.bool_] | None = None) -> ClientData:
    """The node's clients with training samples; what advice is not for is refused here."""
    if federation.task == "classification":
        raise NodeFault(Fault.CLASSES_ADVISED, Fault.CLASSES_ADVISED.meaning)
    parts = tuple(part for part in federation_parts(federation) if part.train.size)
    return ClientData(parts, np.ones(federation.dimension, bool) if live is None else live)


def client_hashes(data: ClientData) -> list[str]:
    """What the server knows the clients by."""
    return [
        f"{identity:016x}"
        for identity in identities_of([part.name for part in data.parts]).tolist()
    ]


Content = TypeVar("Content")


class LostNode(Exception):
    """Some node did not answer as it should, and is no longer counted."""


@dataclass(frozen=True)
class NodeSummary:
    """A node's account: samples by client, features' sums of squares, if clients are drawn."""

    clients: Mapping[str, int]
    power: NDArray[np.float64]
    synthetic: bool

    @classmethod
    def of(cls, _: int, content: RecordDict) -> NodeSummary:
        """Read and check an introduction."""
        told = config_in(content)
        check_version(told.get(VERSION))
        clients, samples = told["clients"], told["samples"]
        if not clients or len(set(clients)) != len(clients) or not all(map(is_hash, clients)):
            raise RefusedReply(
                "its clients must be hashes of 16 digits, at least one and each once"
            )
        if len(samples) != len(clients) or not all(is_sample_count(n) and n > 0 for n in samples):
            raise RefusedReply(
                f"its samples are {samples!r}: they must be whole numbers above 0, one per client"
            )
        power = read_reply_array(content, "power", tuple(arrays_in(content)["power"].shape))
        if power.ndim != 1 or (power < 0).any():
            raise RefusedReply("its sums of squares must be one number of at least 0 per feature")
        return cls(dict(zip(clients, samples, strict=True)), power, told.get("synthetic") is True)


class Advisor:
    """Asks connected nodes and advises; `advise` does it all."""

    def __init__(self, grid: Grid, config: Mapping[str, Any]) -> None:
        rules = RunConfiguration.of("fedavg", config)
        self.grid = Attentive(grid)
        self.timeout = rules.timeout
        self.data_name = rules.data_name
        self.attendance = Attendance(rules.min_nodes, rules.timeout)
        self.nodes: dict[int, NodeSummary] = {}

    def advise(self) -> Advice:
        """Meet the nodes, ask until none is lost on the way, and advise."""
        self.meet()
        while True:
            clients = sum(len(member.clients) for member in self.nodes.values())
            if clients < LEAST_CLIENTS:
                raise InvalidInput(
                    f"there are {clients} clients: how clients differ takes at least"
                    f" {LEAST_CLIENTS}; connect more nodes"
                )
            try:
                return advise(self.summaries())
            except LostNode:
                log.info("Asking again without it: %d nodes are left", len(self.nodes))

    def meet(self) -> None:
        """Wait for enough nodes, and let all that are connected introduce themselves."""
        self.attendance.wait(self.grid, self.nodes, self.introduce)
        log.info("Advising on %s", describe_data(self.data_name, self.nodes.values()))

    def introduce(self, new: list[int]) -> dict[int, Trouble]:
        """Let nodes tell what they have; where they differ, those present decide, or else most."""
        told, troubles = self.ask("introduce", {node: RecordDict() for node in new}, NodeSummary.of)
        sizes = [member.power.size for member in (self.nodes or told).values()]
        usual = max(sizes, key=sizes.count) if sizes else 0
        for node, member in told.items():
            known = {name for each in self.nodes.values() for name in each.clients}
            size = member.power.size
            samples = sum(member.clients.values())
            if size != usual:
                troubles[node] = Trouble(
                    f"it has {size} features, and the others {usual}", permanent=True
                )
            elif known & set(member.clients):
                double = min(known & set(member.clients))
                troubles[node] = Trouble(f"client {double} is on another node too", permanent=True)
            else:
                self.nodes[node] = member
                log.info(
                    "Node %d introduced %d clients with %d training samples",
                    node,
                    len(member.clients),
                    samples,
                )
        return troubles

    def summaries(self) -> list[Summary]:
        """Every client's summary: products of residuals, or two answers if samples are few."""
        power = sum(member.power for member in self.nodes.values())
        self.live = np.asarray(power) > 0
        order = sorted(name for member in self.nodes.values() for name in member.clients)
        self.groups = {name: group_of(place) for place, name in enumerate(order)}
        samples = sum(sum(member.clients.values()) for member in self.nodes.values())
        d = int(self.live.sum())
        if d == 0:
            raise InvalidInput(
                "all features are 0 on every node: check how the nodes read their data"
            )
        if samples >= PAIR_ROOM * d and len(order) >= GROUPS:
            models = solve_least_squares(self.gradient, np.asarray(power)[self.live], len(PAIRS))
            return self.tell({MODELS_KEY: models}, {})
        first = self.tell({}, {})
        return self.tell({}, {TOLD_KEY: list(first_variances(first))})

    def gradient(self, at: ProblemRows) -> ProblemRows:
        """The sum over all nodes of their gradients at ten models."""
        shape = at.shape
        log.info("Asking %d nodes for gradients", len(self.nodes))
        told = self.ask_all(
            "differentiate",
            {MODELS_KEY: at},
            {},
            lambda _, content: read_reply_array(content, "gradients", shape),
        )
        return np.asarray(np.sum(list(told.values()), axis=0))

    def tell(
        self, arrays: Mapping[str, NDArray[np.float64]], config: Mapping[str, Any]
    ) -> list[Summary]:
        """The summaries of all clients, in the order of their hashes."""
        d = int(self.live.sum())
        twice = TOLD_KEY in config
        log.info("Asking %d nodes for summaries", len(self.nodes))
        told = self.ask_all(
            "tell",
            arrays,
            config,
            lambda node, content: [
                read_summary(content, name, n, d, twice)
                for name, n in self.nodes[node].clients.items()
            ],
        )
        return sorted(
            (each for node in told.values() for each in node), key=lambda summary: str(summary.name)
        )

    def ask_all(
        self,
        what: str,
        arrays: Mapping[str, NDArray[np.float64]],
        config: Mapping[str, Any],
        read: Callable[[int, RecordDict], Content],
    ) -> dict[int, Content]:
        """The answers of all nodes; one that is missing is dropped, and all are asked again."""
        contents = {}
        for node, member in self.nodes.items():
            groups = [self.groups[name] for name in member.clients]
            contents[node] = content_of(
                arrays, {**config, LIVE_KEY: self.live.tolist(), GROUPS_KEY: groups}
            )
        taken, troubles = self.ask(what, contents, read)
        if troubles:
            log_troubles(troubles)
            self.nodes = {node: member for node, member in self.nodes.items() if node in taken}
            raise LostNode
        return taken

    def ask(
        self,
        what: str,
        contents: Mapping[int, RecordDict],
        read: Callable[[int, RecordDict], Content],
    ) -> tuple[dict[int, Content], dict[int, Trouble]]:
        """Send each node its message; returns the valid answers, and what is wrong with others."""
        messages = [
            Message(content, node, f"{MessageType.QUERY}.{what}", ttl=self.timeout)
            for node, content in contents.items()
        ]
        return sort_replies(
            self.grid.send_and_receive(messages, timeout=self.timeout), contents, read
        )


def read_reply_array(content: RecordDict, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """One array of a reply, by the rules."""
    return array_in(arrays_in(content)[name].data, shape, name).astype(np.float64)


def read_summary(
    content: RecordDict, name: str, samples: int, dimension: int, twice: bool
) -> Summary:
    """One client's summary, by the rules: no more numbers than axes, powers and squares >= 0."""
    axes = (min(samples, dimension),)
    power, residual, raw = (
        read_reply_array(content, f"{name}.{each}", axes) for each in ("power", "residual", "raw")
    )
    if (power < 0).any() or (raw < 0).any():
        raise RefusedReply(f"client {name} has squares below 0")
    shapes = {"pull": (dimension,), "probes": (dimension, PROBE_VECTORS)} if twice else {}
    second = {
        each: read_reply_array(content, f"{name}.{each}", shape) for each, shape in shapes.items()
    }
    numbers = config_in(content)[name]
    if len(numbers) != len(SUMMARY_NUMBERS) or not np.isfinite(numbers).all():
        raise RefusedReply(
            f"client {name} has the numbers {numbers!r}: {', '.join(SUMMARY_NUMBERS)} must be"
            " finite"
        )
    rest, tails, pooled = map(float, numbers)
    return Summary(name, samples, dimension, power, residual, raw, rest, tails, pooled, **second)


def log_advice(advice: Advice, path: str | Path) -> Path:
    """Log the advice as people read it, and keep it as JSON."""
    for line in str(advice).splitlines():
        log.info("%s", line)
    where = Path(path)
    write_text(where, advice.to_json())
    log.info("The advice is in %s", where.resolve())
    return where.resolve()


def advise_federation(grid: Grid, config: Mapping[str, Any]) -> Advice:
    """Advice from the connected nodes, by the rules of a run config (min-nodes, timeout)."""
    return Advisor(grid, config).advise()
