"""The advisor through a federation: the server asks for sums and summaries, and makes advice.

What a node tells, message by message, are sums over its samples and summaries of its clients, never
a sample:

introduce: the clients' hashes and sample counts, and each feature's sum of squares over all of
    them.
differentiate: gradients of ten least-squares problems, one for each pair of groups of clients,
    added up over the clients; of classes, one for each of their codes.
summarise, again: a client's samples along their own axes, a few numbers for each
    (`fedasym.advisor.federated`).

Rounds: an introduction; as many gradients as conjugate gradients need for ten shared models, at
most a few more than there are features; one summary per client. Where samples are too few for
models, clients answer twice instead. A node that fails or breaks the rules is named and left out,
and what it had a part in is done again without it.

With a privacy budget (statistics-epsilon) a node tells its clients' hashes and how many features
there are, and then two sums to which it has added noise: votes for bounds, and bounded statistics.
It gives each of them once in a run; nothing is asked again.

The problems are solved side by side, one row each. With g(w) = sum X'(X w - y), the product of the
normal matrix and a direction p is g(p) - g(0); the features' sums of squares make all directions
alike long (a diagonal preconditioner).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedasym.advisor import advise, advise_sums
from fedasym.advisor.advice import Advice
from fedasym.advisor.class_statistics import FIRM_RIDGE, probe_ratios
from fedasym.advisor.data import LEAST_CLIENTS, ClientData, Coding, check_one_output, position_parts
from fedasym.advisor.federated import (
    GROUPS,
    PAIR_ROOM,
    PAIRS,
    POWERS,
    SENT,
    STATISTICS,
    ClassSummary,
    NoisedSums,
    ServerMessage,
    add_statistics,
    add_votes,
    answer_again,
    choose_bounds,
    first_variances,
    group_of,
    measure_client,
    split_budget,
    summarise_classes,
    summarise_clients,
)
from fedasym.advisor.moments import PROBE_VECTORS
from fedasym.advisor.statistics import Summary
from fedasym.core import __version__
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import flag
from fedasym.core.privacy import Privacy
from fedasym.core.runtime import write_text
from fedasym.data.federation import Federation
from fedasym.data.samples import identities_of
from fedasym.deploy.flower import ADVISE, RunConfiguration, read_rules
from fedasym.deploy.flower.messages import (
    MALFORMED,
    VERSION,
    Attentive,
    Fault,
    NodeFault,
    RefusedReply,
    Trouble,
    array_in,
    arrays_in,
    check_version,
    config_in,
    content_of,
    log,
    log_troubles,
    report_as,
    sort_replies,
    unpack_array,
)
from fedasym.deploy.flower.nodes import check_listed, load_prepared, reply_for_recipe
from fedasym.deploy.flower.policy import Load
from fedasym.deploy.flower.preparation import Preparation, Reading, TableAnswer, read_asked
from fedasym.deploy.flower.roster import Attendance, describe_data, is_hash, is_sample_count
from fedasym.training.plans import draw_secret_noise

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
CLASS_VECTORS = ("single", "expected", "total", "counts", "right")  # beside the first three
NOBODY = -1.0  # in place of a share of no samples: messages hold numbers
# the names of what the server sends
MODELS_KEY, LIVE_KEY, GROUPS_KEY, TOLD_KEY = ("models", "live", "groups", "told")
RATIOS_KEY, BOUNDS_KEY = "ratios", "bounds"
ANSWERED = "statistics"  # in a node's state: what it has told of them


def introduce_samples(message: Message, context: Context, load: Load) -> Message:
    """Reply with hashes, counts and features' sums of squares, or first with what a table says for
    a recipe; the node's log has the names.
    """
    check_listed(context, ADVISE)
    federation = load(context, read_asked(message.content))
    private = read_statistics_budget(context.run_config) is not None
    if isinstance(federation, TableAnswer):
        if private:
            raise NodeFault(
                Fault.UNFIT_DATA,
                "statistics-epsilon is given, but the columns of a table are prepared from sums"
                " without noise: give features as numbers, in a .safetensors or .npz file",
            )
        return reply_for_recipe(message, federation)
    data = training_data(federation, context)
    for part, name in zip(data.parts, client_hashes(data), strict=True):
        log.info("Client %r is known to the server as %s", part.name, name)
    told: dict[str, Any] = {VERSION: __version__, "synthetic": federation.truth is not None}
    power, sizes = np.ones(data.dimension), np.ones(len(data.parts), int)  # which say nothing
    if not private:
        power, sizes = sum((X**2).sum(0) for X, _ in data), data.sizes
    told |= {"clients": client_hashes(data), "samples": sizes.tolist()}
    told |= {"classes": len(federation.classes or ())}
    return Message(content_of({"power": np.asarray(power, float)}, told), reply_to=message)


def differentiate(message: Message, context: Context, load: Load) -> Message:
    """Reply with the sums of X'(X w - y) over the node's clients, by pair of groups at its w."""
    if read_statistics_budget(context.run_config) is not None:
        raise NodeFault(Fault.BAD_MESSAGE, "gradients have no noise, and statistics-epsilon is set")
    data, groups, coding = read_features_and_groups(message, context, load)
    at = read_models(message, data.dimension, coding)
    total = np.zeros_like(at)
    for (X, y), group in zip(data, groups, strict=True):
        mine = [place for place, pair in enumerate(PAIRS) if group in pair]
        Y = y[:, None] if coding is None else coding.targets(y)
        total[mine] += (at[mine] @ X.T - Y.T) @ X
    return Message(content_of({"gradients": total.reshape(-1, data.dimension)}), reply_to=message)


def send_summaries(message: Message, context: Context, load: Load) -> Message:
    """Reply with all clients' summaries: about sent models, and second answers where `told` is."""
    data, groups, coding = read_features_and_groups(message, context, load)
    budget = read_statistics_budget(context.run_config)
    if budget is not None:
        return send_noised_sums(message, context, data, groups, coding, budget)
    if coding is not None:
        return send_class_summaries(message, data, groups, coding)
    with report_as(Fault.BAD_MESSAGE, MALFORMED):
        told = config_in(message.content).get(TOLD_KEY)
        first = None if told is None else (float(told[0]), float(told[1]))
        sent = MODELS_KEY in arrays_in(message.content)
    models = None
    if sent:
        at = read_models(message, data.dimension, None)[:, 0]
        models = dict(zip(PAIRS, at, strict=True))
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


def read_statistics_budget(config: Mapping[str, Any]) -> Privacy | None:
    """The privacy budget of the statistics; None where the run config has none."""
    epsilon = config.get("statistics-epsilon", 0.0)
    if epsilon == 0:
        return None
    return Privacy(epsilon=epsilon, delta=config.get("delta", 1e-6))


def send_noised_sums(
    message: Message,
    context: Context,
    data: ClientData,
    groups: list[int],
    coding: Coding | None,
    budget: Privacy,
) -> Message:
    """Reply with the votes of the node's clients, or with sums of their bounded statistics where
    the message has bounds; both with noise of the node's own, and each once in a run.
    """
    if coding is not None:
        raise NodeFault(Fault.UNFIT_DATA, "statistics-epsilon is for labels that are numbers")
    with report_as(Fault.BAD_MESSAGE, MALFORMED):
        bounds = None
        if BOUNDS_KEY in arrays_in(message.content):
            bounds = unpack_array(message.content, BOUNDS_KEY)
            if bounds.shape != (len(STATISTICS),) or not (bounds > 0).all():
                raise ValueError("the bounds do not fit the statistics")
    what = "votes" if bounds is None else "sums"
    told = context.state.config_records.get(ANSWERED, ConfigRecord())
    if what in told:
        raise NodeFault(
            Fault.NOT_ALLOWED,
            f"the {what} of this run have been told, and would cost epsilon again",
        )
    context.state[ANSWERED] = ConfigRecord({**told, what: True})
    measured = [measure_client(X, y) for X, y in data]
    deviation = split_budget(budget)[what == "sums"]
    clean = add_votes(measured) if bounds is None else add_statistics(measured, groups, bounds)
    noised = clean + deviation * draw_secret_noise(clean.shape)
    return Message(content_of({what: noised}), reply_to=message)


def send_class_summaries(
    message: Message, data: ClientData, groups: list[int], coding: Coding
) -> Message:
    """Reply with all clients' summaries of classes, which go by their places in the list."""
    at = read_models(message, data.dimension, coding)
    with report_as(Fault.BAD_MESSAGE, MALFORMED):
        ratios = unpack_array(message.content, RATIOS_KEY)
    models = {pair: w.T for pair, w in zip(PAIRS, at, strict=True)}
    told = ServerMessage(coding.names, models, ratios)
    arrays: dict[str, FloatRows] = {}
    numbers: dict[str, list[float]] = {}
    for place, (name, group) in enumerate(zip(client_hashes(data), groups, strict=True)):
        X, codes = data.rows(place)
        held, answers = data.held_out_rows(place)
        kept = (held, answers.astype(int)) if len(held) else None
        sent = summarise_classes(name, X, codes.astype(int), told, group=group, held=kept)
        for each in ("power", "residual", "raw"):
            arrays[f"{name}.{each}"] = np.asarray(getattr(sent.squares, each), float)
        for each in CLASS_VECTORS:
            values = np.asarray(getattr(sent, each), float)
            arrays[f"{name}.{each}"] = np.where(np.isnan(values), NOBODY, values)
        numbers[name] = [float(sent.squares.rest), float(sent.signal), *map(float, sent.tested)]
    return Message(content_of(arrays, numbers), reply_to=message)


def read_features_and_groups(
    message: Message, context: Context, load: Load
) -> tuple[ClientData, list[int], Coding | None]:
    """The node's clients in the features that are alive anywhere, the group of each, and how
    classes are coded, where labels are classes.
    """
    check_listed(context, ADVISE)
    federation = load_prepared(message, context, load)
    with report_as(Fault.BAD_MESSAGE, MALFORMED):
        asked = config_in(message.content)
        live = np.array(asked[LIVE_KEY], bool)
        groups = list(map(int, asked[GROUPS_KEY]))
        if live.shape != (federation.dimension,) or not live.any():
            raise ValueError("the features that are alive do not fit the data")
    data = training_data(federation, context, live)
    if len(groups) != len(data.parts):
        raise NodeFault(
            Fault.BAD_MESSAGE, f"there are {len(groups)} groups for {len(data.parts)} clients"
        )
    classes = federation.classes
    return data, groups, None if classes is None else Coding(tuple(range(len(classes))))


def count_outputs(classes: int) -> int:
    """What least squares predicts: a number, one code for two classes, or one for each."""
    return classes if classes > 2 else 1


def read_models(message: Message, dimension: int, coding: Coding | None) -> FloatRows:
    """The models that the server asks about, (pairs, outputs, features alive)."""
    outputs = count_outputs(0 if coding is None else coding.count)
    with report_as(Fault.BAD_MESSAGE, MALFORMED):
        at = unpack_array(message.content, MODELS_KEY)
        if at.shape != (len(PAIRS) * outputs, dimension):
            raise ValueError("the models do not fit the data")
        return at.reshape(len(PAIRS), outputs, dimension)


def training_data(
    federation: Federation, context: Context, live: NDArray[np.bool_] | None = None
) -> ClientData:
    """The node's clients with training samples; where models have an intercept and labels are
    numbers, without what each client's own intercept explains.
    """
    classes = federation.task == "classification"
    if not classes:
        check_one_output(federation)
    found = position_parts(federation)
    levelled = not classes and bool(context.run_config.get("intercept", True))
    parts = tuple(part for part in found if part.train.size > levelled)
    alive = np.ones(federation.dimension, bool) if live is None else live
    return ClientData(parts, alive, levelled=levelled)


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
    classes: int = 0  # 0: labels are numbers

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
        classes = told.get("classes")
        if not isinstance(classes, int) or not is_sample_count(classes):
            raise RefusedReply(f"its classes are {classes!r}: they must be counted")
        held = dict(zip(clients, samples, strict=True))
        return cls(held, power, told.get("synthetic") is True, classes)


class Advisor:
    """Asks connected nodes and advises; `advise` does it all."""

    def __init__(self, grid: Grid, config: Mapping[str, Any]) -> None:
        rules = RunConfiguration.of("fedavg", config)
        self.grid = Attentive(grid)
        self.timeout = rules.timeout
        self.data_name = rules.data_name
        self.attendance = Attendance(rules.min_nodes, rules.timeout)
        self.nodes: dict[int, NodeSummary] = {}
        self.named = rules.classes
        self.budget = read_statistics_budget(config)
        self.intercept = flag("intercept", config.get("intercept", True))
        told = read_rules(config) | {"classes": rules.classes}
        self.preparation = Preparation(told, rules.min_nodes)

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
                if self.budget is not None:
                    return advise_sums(self.noised_sums(self.budget), self.intercept)
                return advise(self.summaries())
            except LostNode:
                log.info("Asking again without it: %d nodes are left", len(self.nodes))

    def meet(self) -> None:
        """Wait for enough nodes, and let all that are connected introduce themselves."""
        self.attendance.wait(self.grid, self.nodes, self.introduce)
        if self.budget is None:
            log.info("Advising on %s", describe_data(self.data_name, self.nodes.values()))

    def introduce(self, new: list[int]) -> dict[int, Trouble]:
        """Let nodes tell what they have; where they differ, those present decide, or else most."""

        def ask(words: Mapping[int, Mapping[str, Any]], read: Reading) -> Any:
            contents = {node: content_of(config=each) for node, each in words.items()}
            return self.ask("introduce", contents, read)

        told, troubles = self.preparation.introduce(new, len(self.nodes), ask, NodeSummary.of)
        sizes = [(each.power.size, each.classes) for each in (self.nodes or told).values()]
        usual = max(sizes, key=sizes.count) if sizes else (0, 0)
        for node, member in told.items():
            known = {name for each in self.nodes.values() for name in each.clients}
            size = (member.power.size, member.classes)
            samples = sum(member.clients.values())
            if size != usual:
                troubles[node] = Trouble(
                    f"it has {size[0]} features and {size[1]} classes, and the others {usual[0]}"
                    f" and {usual[1]}",
                    permanent=True,
                )
            elif known & set(member.clients):
                double = min(known & set(member.clients))
                troubles[node] = Trouble(f"client {double} is on another node too", permanent=True)
            else:
                self.nodes[node] = member
                told_samples = "" if self.budget else f" with {samples} training samples"
                log.info("Node %d introduced %d clients%s", node, len(member.clients), told_samples)
        return troubles

    def summaries(self) -> Sequence[Summary | ClassSummary]:
        """Every client's summary: products of residuals, or two answers if samples are few."""
        power = sum(member.power for member in self.nodes.values())
        self.live = np.asarray(power) > 0
        order = self.deal_groups()
        samples = sum(sum(member.clients.values()) for member in self.nodes.values())
        d = int(self.live.sum())
        if d == 0:
            raise InvalidInput(
                "all features are 0 on every node: check how the nodes read their data"
            )
        if classes := next(iter(self.nodes.values())).classes:
            return self.class_summaries(np.asarray(power)[self.live], classes)
        if samples >= PAIR_ROOM * d and len(order) >= GROUPS:
            models = solve_least_squares(self.gradient, np.asarray(power)[self.live], len(PAIRS))
            return self.tell({MODELS_KEY: models}, {})
        first = self.tell({}, {})
        return self.tell({}, {TOLD_KEY: list(first_variances(first))})

    def deal_groups(self) -> list[str]:
        """Deal all clients out to the groups; returns their names in order."""
        order = sorted(name for member in self.nodes.values() for name in member.clients)
        self.groups = {name: group_of(place) for place, name in enumerate(order)}
        return order

    def noised_sums(self, budget: Privacy) -> NoisedSums:
        """Votes for bounds, then sums, with every node's noise in them. A node that is lost on the
        way stays lost: what has been told is not asked for again.
        """
        first = next(iter(self.nodes.values()))
        if first.classes:
            raise InvalidInput(
                "statistics-epsilon is for labels that are numbers: set it to 0, or"
                ' task="regression"'
            )
        self.live = np.ones(first.power.size, bool)
        self.deal_groups()
        shape = (len(STATISTICS), POWERS.size)
        votes = self.ask_once({}, "votes", shape)
        deviation = split_budget(budget)[0] * len(votes) ** 0.5
        bounds = choose_bounds(np.sum(list(votes.values()), axis=0), deviation)
        sums = self.ask_once({BOUNDS_KEY: bounds}, "sums", (GROUPS, SENT + self.live.size))
        held = [self.groups[name] for node in sums for name in self.nodes[node].clients]
        clients = np.bincount(held, minlength=GROUPS).astype(float)
        total = np.sum(list(sums.values()), axis=0)
        return NoisedSums(total, clients, bounds, budget, noises=len(sums))

    def ask_once(
        self, arrays: Mapping[str, NDArray[np.float64]], what: str, shape: tuple[int, ...]
    ) -> dict[int, NDArray[np.float64]]:
        """One sum of every node; those that do not answer are left out."""
        log.info("Asking %d nodes for %s with noise", len(self.nodes), what)
        taken, troubles = self.ask(
            "tell",
            self.address(arrays, {}),
            lambda _, content: read_reply_array(content, what, shape),
        )
        self.leave_out(troubles)
        if not taken:
            raise InvalidInput("no node has answered: their own logs say why")
        return taken

    def class_summaries(self, power: FloatRows, classes: int) -> list[ClassSummary]:
        """Every client's summary of classes, about models with a small ridge."""
        d, energy = power.size, float(power.sum())
        sizes = [float(n) for member in self.nodes.values() for n in member.clients.values()]
        ridge = FIRM_RIDGE * energy / d
        models = solve_least_squares(
            lambda at: self.gradient(at) + ridge * at,
            power + ridge,
            len(PAIRS) * count_outputs(classes),
        )
        ratios = probe_ratios(energy, np.array(sizes), d)
        names = self.named or self.preparation.classes or tuple(range(classes))
        log.info("Asking %d nodes for summaries", len(self.nodes))
        told = self.ask_all(
            "tell",
            {MODELS_KEY: models, RATIOS_KEY: ratios},
            {},
            lambda node, content: [
                read_class_summary(content, name, n, d, names, ratios)
                for name, n in self.nodes[node].clients.items()
            ],
        )
        return sorted(
            (each for node in told.values() for each in node),
            key=lambda sent: str(sent.squares.name),
        )

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
        taken, troubles = self.ask(what, self.address(arrays, config), read)
        if troubles:
            self.leave_out(troubles)
            raise LostNode
        return taken

    def address(
        self, arrays: Mapping[str, NDArray[np.float64]], config: Mapping[str, Any]
    ) -> dict[int, RecordDict]:
        """A message for each node: the same arrays, and the groups of its own clients."""
        told = {**config, **self.preparation.words, LIVE_KEY: self.live.tolist()}
        return {
            node: content_of(
                arrays, {**told, GROUPS_KEY: [self.groups[name] for name in member.clients]}
            )
            for node, member in self.nodes.items()
        }

    def leave_out(self, troubles: Mapping[int, Trouble]) -> None:
        """Say what is wrong with nodes, and count them no longer."""
        log_troubles(troubles)
        self.nodes = {node: each for node, each in self.nodes.items() if node not in troubles}

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


def read_class_summary(
    content: RecordDict,
    name: str,
    samples: int,
    dimension: int,
    classes: tuple[Any, ...],
    ratios: FloatRows,
) -> ClassSummary:
    """One client's summary of classes, by the rules: no more axes than samples, squares, counts
    and shares as they can be.
    """
    axes = tuple(arrays_in(content)[f"{name}.power"].shape)
    if len(axes) != 1 or axes[0] > min(samples, dimension):
        raise RefusedReply(f"client {name} has axes of shape {axes}")
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(
        ("power", "residual", "raw", "single", "expected"), axes
    )
    shapes |= {"total": (dimension,), "counts": (len(classes),), "right": (4, ratios.size)}
    held = {
        each: read_reply_array(content, f"{name}.{each}", shape) for each, shape in shapes.items()
    }
    numbers = config_in(content)[name]
    if len(numbers) != 4 or not np.isfinite(numbers).all():
        raise RefusedReply(f"client {name} has the numbers {numbers!r}: four must be finite")
    rest, signal, *tested = map(float, numbers)
    counts, right = held["counts"], held["right"]
    if (held["power"] < 0).any() or (held["raw"] < 0).any() or rest < 0:
        raise RefusedReply(f"client {name} has squares below 0")
    if (counts < 0).any() or counts.sum() != samples or (right > 1).any() or min(tested) < 0:
        raise RefusedReply(f"client {name} has counts or shares that cannot be")
    squares = Summary(
        name, samples, dimension, held["power"], held["residual"], held["raw"], rest=rest
    )
    return ClassSummary(
        squares, classes, ratios, held["single"], held["expected"], signal, held["total"], counts,
        np.where(right < 0, np.nan, right), (int(tested[0]), int(tested[1])),
    )  # fmt: skip


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
