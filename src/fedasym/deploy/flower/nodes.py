"""One node: its clients' own heads, and what it does with each kind of message.

Heads are kept on disk: a client's own ones on its node, where they stay, and the shared one on the
server. The arithmetic is the plain-loop version of `fedasym.train`, client by client.

introduce: say which clients there are (64-bit hashes of their names), their sample counts, and the
    kind of the data: numbers of features and outputs, and the task. Names of classes stay here.
    Where the algorithm needs it before the first round: the gradients by which clusters begin, or
    the sums of products by which features are scaled.
train: the drawn clients' local work from the shared head; one head goes back, averaged by samples
    over the node's clients.
evaluate: every client's own head, made from the shared one, kept in a folder of the node, and
    tested; scores go back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from fedasym.algorithms import Algorithm
from fedasym.algorithms.registry import is_built_in
from fedasym.core import __version__
from fedasym.core.errors import path_of
from fedasym.core.numbers import ROUNDING, pool_shares
from fedasym.core.runtime import read_arrays, write_arrays
from fedasym.data.federation import Federation
from fedasym.data.splits import SPLITS
from fedasym.deploy.flower import RunConfiguration
from fedasym.deploy.flower.messages import (
    COMMON,
    CROSS,
    CURVATURE,
    FAULT,
    GRADIENTS,
    GRAM,
    HEAD,
    MALFORMED,
    MOMENTS,
    SCALING,
    SENT,
    STEPS_KEY,
    VERSION,
    Fault,
    NodeFault,
    config_in,
    content_of,
    find_fault,
    log,
    pack_state,
    report_as,
    unpack_array,
    unpack_state,
)
from fedasym.deploy.flower.policy import ANY, SYNTHETIC, Load, Policy, read_part
from fedasym.deploy.flower.preparation import TableAnswer, read_asked
from fedasym.exact.classes import ClassFit
from fedasym.exact.estimators import LinearFit
from fedasym.models import Model, SavedHead
from fedasym.training.convergence import curvature, first_gradients
from fedasym.training.plans import clip_move, draw_secret_noise
from fedasym.training.settings import bind_stage, is_rate, is_size
from fedasym.training.twin import (
    DirectedClients,
    Head,
    TwinClient,
    add_share,
    batch_of,
    class_counts,
    first_head,
    local_work,
    mean_loss,
    own_head,
    predictions,
    sum_moments,
    sum_products,
    turn_head,
)

LONGEST = 80  # characters of a client's name in the name of its file
MEMORY = "client's memory"  # the kind of a file


def head_file(folder: Path, algorithm: str, client: Any, identity: int) -> Path:
    """The file of a client's own head: a name fit for any disk, with 64 bits that tell names apart.

    >>> head_file(Path("heads"), "rtfa", "ward 3/b", 10).as_posix()
    'heads/rtfa/ward%203%2Fb-000000000000000a.safetensors'
    """
    return (
        folder
        / quote(algorithm, safe="")
        / f"{quote(str(client), safe='')[:LONGEST]}-{int(identity):016x}.safetensors"
    )


def heads_folder(node_config: Mapping[str, Any]) -> Path:
    """Where clients' heads are: `heads-path`, or beside the data, clients.csv in clients.heads."""
    with report_as(Fault.BAD_CONFIGURATION):
        if told := node_config.get("heads-path"):
            return path_of("heads-path", told)
        path = path_of("data-path", node_config.get("data-path", SYNTHETIC))
        return (
            Path("fedasym.heads")
            if str(path) == SYNTHETIC
            else path.resolve().with_suffix(".heads")
        )


def introduce_clients(
    message: Message, context: Context, load: Load, algorithm: str | Algorithm
) -> Message:
    """Reply with the node's clients and sizes, or first with what its table says for a recipe; no
    name of a client, no sample, no label.

    Where clients add their class shares to scores, the node tells how many training samples of each
    class its clients have together.
    """
    configuration = read_configuration(algorithm, context)
    protocol = configuration.protocol
    asked = read_asked(message.content)
    federation = load(context, asked)
    if isinstance(federation, TableAnswer):
        return reply_for_recipe(message, federation)
    if asked.step in (MOMENTS, GRADIENTS, CURVATURE):
        return answer_first_round(message, context, federation, configuration, asked.step)
    told: dict[str, Any] = {VERSION: __version__, "synthetic": federation.truth is not None}
    told |= {
        "dimension": federation.dimension,
        "outputs": federation.outputs,
        "task": federation.task,
    }
    samples = federation.counts("train").tolist()
    tested = int(np.count_nonzero(federation.counts("test")))
    counted = {
        split: count_predictions(federation, split, protocol.count_padding)
        for split in ("validation", "test")
    }
    told |= {
        "clients": identity_hashes(federation),
        "samples": samples,
        "tested": tested,
        **counted,
    }
    if configuration.algorithm.correction is not None:
        rows = np.flatnonzero(federation.split == SPLITS.index("train"))
        labels = class_counts(federation, rows, protocol.count_padding)
        told["labels"] = [int(each) for each in labels]
    return Message(content_of(config=told), reply_to=message)


def reply_for_recipe(message: Message, answer: TableAnswer) -> Message:
    """What a node says of its table before there is a recipe."""
    told = {VERSION: __version__, **answer.config}
    return Message(content_of(answer.arrays, told), reply_to=message)


def answer_first_round(
    message: Message,
    context: Context,
    federation: Federation,
    configuration: RunConfiguration,
    step: str,
) -> Message:
    """Reply with what the first round rests on, where the run has need of it."""
    used = configuration.algorithm
    needed = {
        MOMENTS: used.personalise.plain_stage is not None,
        GRADIENTS: used.server.start_models > 0,
        CURVATURE: bool(configuration.chosen),
    }
    if not needed[step]:
        raise NodeFault(Fault.BAD_MESSAGE, f"{used.name} needs no {step}")
    if step == GRADIENTS:
        return send_gradients(message, context, federation, configuration)
    require_rows(context, int(federation.counts("train").sum()))
    if step == MOMENTS:
        return send_moments(message, federation, configuration)
    part = scale_features(message, configuration, federation)[0]
    told = (configuration.protocol.intercept, configuration.settings.batch)
    return Message(content_of(metrics={CURVATURE: curvature(part, *told)}), reply_to=message)


def send_moments(
    message: Message, federation: Federation, configuration: RunConfiguration
) -> Message:
    """Reply with the sums of products of features that say how far clients may differ along which
    direction.
    """
    told = (configuration.algorithm, federation, configuration.protocol.intercept)
    return Message(content_of({MOMENTS: sum_moments(*told)}), reply_to=message)


def send_gradients(
    message: Message, context: Context, federation: Federation, configuration: RunConfiguration
) -> Message:
    """Reply with the mean gradients, at the first shared model, of the clients that are asked for
    and have as many training rows as the owner requires of sums; and the largest curvature.
    """
    protocol = configuration.protocol
    part = scale_features(message, configuration, federation)[0]
    counts = part.counts("train")
    least = max(Policy.of(context.node_config).least_rows, 1)
    places = dict(zip(identity_hashes(part), range(len(part)), strict=True))
    with report_as(Fault.BAD_MESSAGE, MALFORMED):
        asked = [str(each) for each in config_in(message.content)["clients"]]
        names = [name for name in asked if counts[places[name]] >= least]
    if not names:
        raise NodeFault(Fault.TOO_FEW_ROWS, f"no client has {least} training rows (least-rows)")
    W = np.asarray(first_head(part, protocol, configuration.seed, np.float64))
    gradients = first_gradients(W, part.take([places[name] for name in names]), protocol)
    steepest = curvature(part, protocol.intercept, int(counts.max()))
    arrays, told = {GRADIENTS: gradients}, {"clients": names}
    return Message(content_of(arrays, told, {CURVATURE: steepest}), reply_to=message)


def require_rows(context: Context, rows: int) -> None:
    """Refuse sums over fewer training rows than the owner lets them leave of."""
    least = Policy.of(context.node_config).least_rows
    if rows < least:
        raise NodeFault(Fault.TOO_FEW_ROWS, f"{rows} rows train: least-rows is {least}")


def load_prepared(message: Message, context: Context, load: Load) -> Federation:
    """The node's clients with features as the server's recipe makes them."""
    federation = load(context, read_asked(message.content))
    if isinstance(federation, TableAnswer):
        raise NodeFault(Fault.BAD_MESSAGE, "the message has no recipe for this node's table")
    return federation


def scale_features(
    message: Message, configuration: RunConfiguration, federation: Federation
) -> tuple[Federation, Algorithm, NDArray[np.float64] | None]:
    """The clients and the algorithm as they are trained, scaled where there is a ridge by
    direction, and by what.
    """
    algorithm = configuration.algorithm
    if algorithm.personalise.plain_stage is None:
        return federation, algorithm, None
    with report_as(Fault.BAD_MESSAGE, MALFORMED):
        scaling = unpack_array(message.content, SCALING)
        if scaling.shape != (federation.dimension,) * 2 or not np.isfinite(scaling).all():
            raise ValueError("the scaling does not fit the features")
    directed = DirectedClients.of(algorithm, federation, scaling)
    return directed.federation, directed.algorithm, scaling


def train_clients(
    message: Message, context: Context, load: Load, algorithm: str | Algorithm
) -> Message:
    """Reply with W + sum_j n_j (w_j - W) / sum_j n_j over the drawn clients j of this node, and the
    mean of what else they send. With privacy every move is clipped, the reply has their sum, and
    the node adds noise where it is told to.
    """
    configuration = read_steps(message, read_configuration(algorithm, context))
    federation = load_prepared(message, context, load)
    federation, used, _ = scale_features(message, configuration, federation)
    shared, round_ = read_head_and_round(message.content, federation, configuration)
    drawn = read_drawn(
        message.content,
        dict(
            zip(
                identity_hashes(federation), working_clients(federation, configuration), strict=True
            )
        ),
    )
    if configuration.algorithm.server.reads_sums:
        require_rows(context, sum(client.n for client, _ in drawn))
        return reply_with_sums(message, [client for client, _ in drawn])
    memory = ClientMemory.of(message.content, context, federation, configuration)
    change = np.zeros_like(shared)
    samples = sum(client.n for client, _ in drawn)
    sent: Any = None
    for client, turn in drawn:
        kept = memory.read(client, round_ - 1)
        work = local_work(used, client, shared, round_ - 1, turn, kept)
        memory.write(client, round_, work.kept)
        change = change + weigh_move(configuration, client, work.head - shared, samples)
        sent = add_share(sent, client.n / samples, work.sent)
    if configuration.noise_on_nodes:
        change = change + local_noise(configuration, shared.shape)
    head = (shared + change).astype(configuration.precision)
    form, beside = pack_state(sent, SENT)
    told = {} if form is None else {SENT: json.dumps(form)}
    metrics = {"num-examples": samples}
    return Message(content_of({HEAD: head, **beside}, told, metrics), reply_to=message)


def reply_with_sums(message: Message, clients: Sequence[TwinClient]) -> Message:
    """Reply with X'X and X'Y over all training samples of these clients, from which one round finds
    the ridge head.
    """
    total = sum_products(clients)
    metrics = {"num-examples": sum(client.n for client in clients), "counted": total.samples}
    arrays = {GRAM: total.gram, CROSS: total.cross}
    return Message(content_of(arrays, {}, metrics), reply_to=message)


def weigh_move(
    configuration: RunConfiguration, client: TwinClient, move: Head, samples: int
) -> NDArray[np.float64]:
    """A client's part of its node's change: by samples; with privacy, clipped and alike."""
    privacy = configuration.settings.privacy
    if privacy is None:
        return np.asarray(client.n / samples * move)
    assert privacy.clip is not None
    whole = move if np.isfinite(move).all() else np.zeros_like(move)  # NaN would tell of a client
    return np.asarray(clip_move(whole, privacy.clip)[0])


def local_noise(configuration: RunConfiguration, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """What a node adds to its sum of moves: enough for all rounds, whoever is drawn in them."""
    privacy = configuration.settings.privacy
    assert privacy is not None
    assert privacy.clip is not None
    multiplier = privacy.find_multiplier(configuration.settings.rounds, 1, 1)
    return np.asarray(multiplier * privacy.clip * draw_secret_noise(shape))


def evaluate_clients(
    message: Message, context: Context, load: Load, algorithm: str | Algorithm
) -> Message:
    """Make, keep and test each client's own head; reply with the scores of all of them together."""
    configuration = read_steps(message, read_configuration(algorithm, context))
    plain = load_prepared(message, context, load)
    federation, used, scaling = scale_features(message, configuration, plain)
    shared, round_ = read_head_and_round(message.content, federation, configuration)
    memory = ClientMemory.of(message.content, context, federation, configuration)
    pooled = None
    if configuration.algorithm.correction is not None:
        pooled = read_pooled(message.content, federation)
    keeper = HeadKeeper(context, plain, configuration, round_, scaling)
    own = HeadScores()
    theirs = HeadScores()
    validated = HeadScores()
    hurt = 0
    for client in working_clients(federation, configuration):
        kept = memory.read(client, round_)
        head = own_head(used, client, shared, round_, kept, pooled)
        keeper.keep(client, head)
        mine, others = score_head(client, head, "test"), score_head(client, shared, "test")
        own, theirs, validated = (
            own.plus(mine),
            theirs.plus(others),
            validated.plus(score_head(client, head, "validation")),
        )
        hurt += mine.worse_than(others, federation.task)
    keeper.keep_model(shared)
    told: dict[str, float] = {
        "num-examples": own.counted,
        "num-validation-examples": validated.counted,
        "hurt": hurt,
    }
    scores = own.scores("", federation.task) | theirs.scores("shared-", federation.task)
    told |= scores | validated.scores("validation-", federation.task)
    return Message(content_of(metrics=told), reply_to=message)


class HeadKeeper:
    """Keeps clients' own heads on the node: one file each, and one for all that `fedasym apply`
    uses.

    A head that diverged replaces none that works; the server hears of it in the scores.
    """

    def __init__(
        self,
        context: Context,
        federation: Federation,
        configuration: RunConfiguration,
        round_: int,
        scaling: NDArray[np.float64] | None = None,
    ) -> None:
        self.federation, self.configuration, self.scaling = federation, configuration, scaling
        self.folder = heads_folder(context.node_config)
        first, step = read_part(context.node_config)
        self.part = f".{first}" if step > 1 else ""
        self.heads: dict[Any, tuple[Head, int]] = {}
        algorithm = configuration.algorithm
        classes = None if federation.classes is None else list(federation.classes)
        self.about = {
            "algorithm": algorithm.name,
            "round": round_,
            "run": context.run_id,
            "seed": configuration.seed,
            "bias": configuration.protocol.intercept or algorithm.correction is not None,
            "classes": classes,
        }

    def keep(self, client: TwinClient, head: Head) -> None:
        """One client's own head."""
        if not np.isfinite(head).all():
            return
        head = head if self.scaling is None else turn_head(self.scaling, head)
        self.heads[client.name] = head, client.n
        name = self.configuration.algorithm.name
        with report_as(Fault.UNWRITABLE_HEADS):
            SavedHead(head, self.about | {"client": client.name}).save(
                head_file(self.folder, name, client.name, int(client.identity))
            )

    def keep_model(self, shared: Head) -> None:
        """All heads of this node in one file, with the recipe of their features."""
        data, algorithm = self.federation, self.configuration.algorithm
        if data.sequences or not self.heads or (data.classes is None and data.outputs > 1):
            return
        samples = {name: n for name, (_, n) in self.heads.items()}
        personal = {name: np.asarray(head, float) for name, (head, _) in self.heads.items()}
        intercept = bool(self.about["bias"])
        shared = shared if self.scaling is None else turn_head(self.scaling, shared)
        common = np.zeros((data.dimension + intercept, data.outputs))
        common[: len(shared)] = shared  # class shares add an intercept to clients' own heads alone
        fit: LinearFit | ClassFit
        if data.classes is None:
            own = {name: head[:, 0] for name, head in personal.items()}
            total = max(sum(samples.values()), 1)
            weights = {name: n / total for name, n in samples.items()}
            fit = LinearFit(
                algorithm, common[:, 0], own, weights, samples, None, None, None, None, intercept
            )
        else:
            fit = ClassFit(
                algorithm, data.classes, common, personal, samples, None, None, intercept
            )
        why = f"Trained in a federation, round {self.about['round']}."
        name = f"{quote(algorithm.name, safe='')}{self.part}.safetensors"
        with report_as(Fault.UNWRITABLE_HEADS):
            Model(fit, data.names, data.recipe, why).save(self.folder / name)


class ClientMemory:
    """What clients keep from round to round, on their node alone; most algorithms keep nothing.

    A file per client has what it kept after the rounds in which it was drawn, from the last round
    that the server has saved on: a run that is resumed finds it as it was then. token: of the run,
    which a resumed one has again.
    """

    def __init__(
        self, folder: Path | None, stage: Any, first: Head, common: Any, token: str, saved: int
    ) -> None:
        self.folder, self.stage, self.first, self.common = folder, stage, first, common
        self.token, self.saved = token, saved

    @classmethod
    def of(
        cls,
        content: RecordDict,
        context: Context,
        federation: Federation,
        configuration: RunConfiguration,
    ) -> ClientMemory:
        """The memory of a run's clients, and what the server tells of its own."""
        stage = bind_stage(
            configuration.algorithm.server, configuration.settings, configuration.protocol
        )
        first = first_head(
            federation, configuration.protocol, configuration.seed, configuration.precision
        ).astype(np.float64)
        if not stage.keeps_client():
            return cls(None, stage, first, None, "", 0)
        name = quote(configuration.algorithm.name, safe="")
        folder = heads_folder(context.node_config) / f"{name}.memory"
        with report_as(Fault.BAD_MESSAGE, MALFORMED):
            told = config_in(content)
            form = json.loads(told[COMMON])
            common = unpack_state(form, COMMON, lambda each: unpack_array(content, each))
            return cls(folder, stage, first, common, str(told["token"]), int(told["saved"]))

    def read(self, client: TwinClient, round_: int) -> tuple[Any, Any]:
        """What a client and the server keep after so many rounds."""
        if self.folder is None:
            return None, None
        held = self.versions(client)
        rounds = [each for each in held if each <= round_]
        kept = held[max(rounds)] if rounds else self.stage.init_client(self.first)
        return kept, self.common

    def versions(self, client: TwinClient) -> dict[int, Any]:
        """What a client kept after which rounds of this run."""
        path = self.path(client)
        if not path.is_file():
            return {}
        arrays, about = read_arrays(path, MEMORY)
        if about.get("token") != self.token:
            return {}
        return {
            int(round_): unpack_state(form, str(round_), arrays.__getitem__)
            for round_, form in about["forms"].items()
        }

    def write(self, client: TwinClient, round_: int, kept: Any) -> None:
        """Remember what a client keeps after a round."""
        if self.folder is None:
            return
        held = {each: state for each, state in self.versions(client).items() if each < round_}
        last = max((each for each in held if each <= self.saved), default=0)
        held = {each: state for each, state in held.items() if each >= last} | {round_: kept}
        forms: dict[str, Any] = {}
        arrays: dict[str, NDArray[Any]] = {}
        for each, state in held.items():
            forms[str(each)], packed = pack_state(state, str(each))
            arrays |= packed
        with report_as(Fault.UNWRITABLE_HEADS):
            write_arrays(self.path(client), MEMORY, arrays, {"token": self.token, "forms": forms})

    def path(self, client: TwinClient) -> Path:
        """The client's file."""
        assert self.folder is not None
        return self.folder / f"{int(client.identity):016x}.safetensors"


def read_configuration(algorithm: str | Algorithm, context: Context) -> RunConfiguration:
    """The run as its config tells it, where the owner allows its algorithm."""
    with report_as(Fault.BAD_CONFIGURATION):
        found = RunConfiguration.of(algorithm, context.run_config)
    own = all(is_built_in(type(stage)) for stage in found.algorithm.stages)
    check_listed(context, found.algorithm.name, own)
    return found


def read_steps(message: Message, configuration: RunConfiguration) -> RunConfiguration:
    """The run with the steps that the server chose, where its config leaves them open."""
    if not configuration.chosen:
        return configuration
    with report_as(Fault.BAD_MESSAGE, MALFORMED):
        told = json.loads(config_in(message.content)[STEPS_KEY])
        steps = {name: float(told[name]) for name in configuration.chosen}
        if not all(is_rate(each) for each in steps.values()):
            raise ValueError("the steps are not numbers of at least 0")
    return configuration.with_steps(steps)


def check_listed(context: Context, name: str, own: bool = True) -> None:
    """Refuse what the owner's list of algorithms does not have; where there is none, what is not
    the package's own.
    """
    with report_as(Fault.BAD_CONFIGURATION):
        listed = Policy.of(context.node_config).algorithms
    if not (own if not listed else ANY in listed or name in listed):
        raise NodeFault(Fault.NOT_ALLOWED, f"the policy does not list the algorithm {name!r}")


def read_head_and_round(
    content: RecordDict, federation: Federation, configuration: RunConfiguration
) -> tuple[NDArray[np.float64], int]:
    """The shared head and the number of the round that the server sends."""
    with report_as(Fault.BAD_MESSAGE, MALFORMED):
        shared = unpack_array(content)
        round_ = config_in(content)["server-round"]
        if shared.shape != (
            federation.dimension + configuration.protocol.intercept,
            federation.outputs,
        ):
            raise ValueError("the shared head does not fit the data")
        if not is_size(round_, 1):
            raise ValueError("server-round is not the number of a round")
        return shared, int(round_)


def read_pooled(content: RecordDict, federation: Federation) -> NDArray[np.float64]:
    """The shares of the classes among all nodes' samples, from the counts that the server sends."""
    with report_as(Fault.BAD_MESSAGE, MALFORMED):
        counts = config_in(content)["labels"]
        if len(counts) != federation.outputs or not all(is_size(each, 0) for each in counts):
            raise ValueError("labels are not counts of the classes")
        return pool_shares(counts)


def read_drawn(
    content: RecordDict, clients: Mapping[str, TwinClient]
) -> list[tuple[TwinClient, int]]:
    """The drawn clients of this node, each with how often it was drawn before."""
    with report_as(Fault.BAD_MESSAGE, MALFORMED):
        asked = config_in(content)
        drawn = [
            (clients[name], turn) for name, turn in zip(asked["drawn"], asked["turns"], strict=True)
        ]
        if not any(client.n for client, _ in drawn) or not all(
            is_size(turn, 0) for _, turn in drawn
        ):
            raise ValueError("no client with training samples is drawn, or a turn is not a count")
        return drawn


class HeadScores(NamedTuple):
    """How a head does on some samples: predictions, right ones, and the sum of losses."""

    counted: int = 0
    correct: int = 0
    loss: float = 0.0

    def plus(self, other: HeadScores) -> HeadScores:
        """Two sets of samples together."""
        return HeadScores(
            self.counted + other.counted, self.correct + other.correct, self.loss + other.loss
        )

    def worse_than(self, other: HeadScores, task: str) -> bool:
        """Fewer right, or in regression a larger loss beyond rounding."""
        return (
            self.loss > other.loss * (1 + ROUNDING)
            if task == "regression"
            else self.correct < other.correct
        )

    def scores(self, prefix: str, task: str) -> dict[str, float]:
        """Means by their names in a message; 0 where nothing was counted."""
        n = max(self.counted, 1)
        accuracy = {} if task == "regression" else {f"{prefix}accuracy": self.correct / n}
        return accuracy | {f"{prefix}loss": self.loss / n}


def score_head(client: TwinClient, head: Head, split: str) -> HeadScores:
    """One client's samples of a split under a head."""
    federation, protocol = client.federation, client.protocol
    D = batch_of(
        federation,
        federation.rows(client.name, split),
        len(head) > federation.dimension,
        protocol.count_padding,
        head.dtype,
    )
    if not (counted := int(np.count_nonzero(D.weights))):
        return HeadScores()
    right = (predictions(head, D).argmax(axis=1) == D.Y.argmax(axis=1)) & (D.weights > 0)
    return HeadScores(counted, int(right.sum()), counted * mean_loss(head, D))


def working_clients(federation: Federation, configuration: RunConfiguration) -> list[TwinClient]:
    """The node's clients with what they need for their work; their arithmetic is in float64."""
    of = (configuration.settings, configuration.protocol, configuration.seed, np.float64)
    return [TwinClient(federation, name, *of) for name in federation.clients]


def identity_hashes(federation: Federation) -> list[str]:
    """What the server knows the clients by: the 64 bits that their random numbers are keyed by."""
    return [f"{identity:016x}" for identity in federation.identities.tolist()]


def count_predictions(federation: Federation, split: str, padding: bool) -> int:
    """Predictions that a split counts: samples, or positions of sequences."""
    rows = np.flatnonzero(federation.split == SPLITS.index(split))
    if federation.mask is not None and not padding:
        return int(federation.mask[rows].sum())
    return len(rows) * (federation.features.shape[1] if federation.sequences else 1)


class NodeApp(ClientApp):
    """Whatever its functions raise becomes a reply with a code of `Fault`; mods and lifespans are
    covered too.

    Flower itself would send the text of an exception to the server.

    >>> app = NodeApp()
    >>> @app.query()
    ... def ask(message: Message, context: Context) -> Message:
    ...     raise ValueError("row 5 holds 'ill'")
    """

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message; only what ends the process passes, of which Flower sends no words."""
        try:
            return super().__call__(message, context)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as reason:  # a panic of a library in another language is no Exception
            fault = find_fault(reason)
            log.error(
                "This node replies with the code %s. The details stay in this log:",
                fault.value,
                exc_info=reason,
            )
        return Message(
            content_of(config={FAULT: fault.value, VERSION: __version__}), reply_to=message
        )
