"""What goes between server and nodes: what is in a message, what a node says is wrong, and what the
server takes of it and averages; of nodes' replies some count, and for each of the others there is a
reason why it does not.

A message has arrays, words and numbers, each under one name, and heads among the arrays.

What can be wrong on a node is a closed list of codes, all that a server ever hears of it. The
sentence of an exception may hold a cell, a client's name or a path. It goes to the node's own log;
a code goes to the server. Which code is decided by the exception's type, never by its words.

What the server takes from a node, and what it refuses, are pure rules, none of which trusts a
number that was sent. Refused, and left out of the round: a head of another name, shape or kind than
was sent out, one larger in bytes than it can be, one with NaN or infinity, and counts other than
the node announced; so is what some algorithms send beside it. Shortened: a change of the head that
is longer than `bound` times the median of the round, where at least three nodes replied (of two,
nobody can tell which one is wrong).
"""

from __future__ import annotations

import io
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from enum import Enum
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedasym.core import __version__
from fedasym.core.errors import (
    InvalidInput,
    MissingColumn,
    MissingPackage,
    MissingValues,
    NotNumbers,
    UnknownClass,
    UnreadableFile,
)
from fedasym.core.privacy import Privacy, Release, spend_together
from fedasym.data.files import BROKEN
from fedasym.deploy.flower import RunConfiguration
from fedasym.training.plans import clip_move, draw_secret_noise
from fedasym.training.settings import Settings
from fedasym.training.twin import COHORT

log = logging.getLogger("flwr")  # Flower's own, so that all lines of a run stand together

HEAD, ARRAYS, CONFIG, METRICS = "head", "arrays", "config", "metrics"
ARRAY = "array"  # in the form of a state
GRAM, CROSS = "gram", "cross"  # sums of products X'X and X'Y
# what a server asks before the first round: clients' gradients, sums by direction, and how large
# steps may be
GRADIENTS, MOMENTS, CURVATURE = "gradients", "moments", "curvature"
SCALING, STEPS_KEY = "scaling", "steps"  # what comes of it: T, by which features are scaled; steps
COMMON, SENT = "common", "sent"  # what the server keeps, and what clients send beside heads
# what reading a record of another form raises
MALFORMED = (*BROKEN, KeyError, TypeError, AttributeError, IndexError)


def content_of(
    arrays: Mapping[str, NDArray[Any]] | None = None,
    config: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> RecordDict:
    """A message's content of those that are given.

    >>> content = content_of({HEAD: np.eye(2)}, {"server-round": 3})
    >>> config_in(content), arrays_in(content)[HEAD].numpy().shape
    ({'server-round': 3}, (2, 2))
    """
    content = RecordDict()
    if arrays is not None:
        content[ARRAYS] = ArrayRecord({name: Array(array) for name, array in arrays.items()})
    if config is not None:
        content[CONFIG] = ConfigRecord(dict(config))
    if metrics is not None:
        content[METRICS] = MetricRecord(dict(metrics))
    return content


def arrays_in(content: RecordDict) -> ArrayRecord:
    """The arrays of a message, not yet read."""
    return content.array_records[ARRAYS]


def config_in(content: RecordDict) -> dict[str, Any]:
    """The words and numbers of a message."""
    return dict(content.config_records[CONFIG])


def metrics_in(content: RecordDict) -> dict[str, Any]:
    """The metrics of a message."""
    return dict(content.metric_records[METRICS])


def unpack_array(content: RecordDict, name: str = HEAD) -> NDArray[np.float64]:
    """An array that the server sent, as the node computes with it."""
    return np.asarray(arrays_in(content)[name].numpy(), np.float64)


def pack_state(state: Any, name: str) -> tuple[Any, dict[str, NDArray[Any]]]:
    """What a stage keeps or sends (a model, a number, a tuple of these, nothing), as a form that
    JSON can hold and arrays by name.

    >>> form, arrays = pack_state((np.eye(2), (), 3.0), "own")
    >>> form, sorted(arrays)
    (['array', [], 'array'], ['own.0', 'own.2'])
    """
    if state is None:
        return None, {}
    if isinstance(state, tuple):
        parts = [pack_state(each, f"{name}.{place}") for place, each in enumerate(state)]
        return [form for form, _ in parts], {k: v for _, held in parts for k, v in held.items()}
    return ARRAY, {name: np.asarray(state, np.float64)}


def unpack_state(form: Any, name: str, read: Callable[[str], Any]) -> Any:
    """What `pack_state` packed; read(name): an array.

    >>> form, arrays = pack_state((np.eye(2), ()), "own")
    >>> unpack_state(form, "own", arrays.__getitem__)[1]
    ()
    """
    if form is None:
        return None
    if isinstance(form, list):
        return tuple(unpack_state(each, f"{name}.{at}", read) for at, each in enumerate(form))
    if form != ARRAY:
        raise ValueError("a state has an unknown form")
    return read(name)


# what a reply calls the code, and the node's version of this package
FAULT, VERSION = ("fault", "version")


class Fault(Enum):
    """A code with what it means; a permanent fault stays until somebody mends the node or the run
    config.

    >>> Fault.MISSING_COLUMN.permanent, Fault.OUT_OF_MEMORY.permanent
    (True, False)
    """

    permanent: bool
    meaning: str

    def __new__(cls, code: str, permanent: bool, meaning: str) -> Fault:
        """A member whose value is its code."""
        fault = object.__new__(cls)
        fault._value_ = code
        fault.permanent = permanent
        fault.meaning = meaning
        return fault

    NO_DATA_PATH = "no-data-path", True, "its node config names no data-path"
    UNREADABLE_FILE = "unreadable-file", True, "its data are not there, or cannot be read"
    MISSING_COLUMN = "missing-column", True, "a column that the run names is missing there"
    MISSING_VALUES = (
        "missing-values",
        True,
        "values are missing, or not finite, in its data: missing in the run config says what to do",
    )
    NOT_NUMBERS = "not-numbers", True, "a column has text where numbers are expected"
    NO_CLASSES = (
        "no-classes",
        True,
        (
            "its labels are classes, and neither the run nor the node names them: say classes, or"
            ' task="regression"'
        ),
    )
    OTHER_CLASSES = "other-classes", True, "its labels are not among the classes that were named"
    NO_FEATURES = (
        "no-features",
        True,
        "neither the run nor its owner's policy names the columns of its features",
    )
    NOT_ALLOWED = "not-allowed", True, "its owner's policy does not allow what the run asks for"
    TOO_FEW_ROWS = (
        "too-few-rows",
        True,
        "it has fewer training rows than its owner's policy requires",
    )
    UNFIT_DATA = "unfit-data", True, "its data do not make a federation as the run describes it"
    BAD_CONFIGURATION = (
        "bad-configuration",
        True,
        "the run config or the node config has a value that it cannot take",
    )
    MISSING_PACKAGE = "missing-package", True, "a package that its data need is not installed there"
    BAD_MESSAGE = "bad-message", False, "the message that it was sent is not what it expects"
    UNWRITABLE_HEADS = "unwritable-heads", False, "the clients' own heads cannot be written there"
    OUT_OF_MEMORY = "out-of-memory", False, "it ran out of memory"
    UNFORESEEN = "unforeseen", False, "an unexpected error occurred there"

    @classmethod
    def find(cls, code: Any) -> Fault | None:
        """The fault with this code; None where it is no code."""
        return next((fault for fault in cls if fault.value == code), None)

    @property
    def sentence(self) -> str:
        """What the server's log says."""
        return f"{self.meaning} (code {self.value}); the node's own log says more"


class NodeFault(InvalidInput):
    """Something wrong on a node, with a code known where it is raised; its text stays there."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(text)
        self.fault = fault


# The first type that fits decides: special ones stand before those that they belong to.
CODES: dict[type[BaseException], Fault] = {
    MissingColumn: Fault.MISSING_COLUMN,
    MissingValues: Fault.MISSING_VALUES,
    NotNumbers: Fault.NOT_NUMBERS,
    UnknownClass: Fault.OTHER_CLASSES,
    UnreadableFile: Fault.UNREADABLE_FILE,
    MissingPackage: Fault.MISSING_PACKAGE,
    InvalidInput: Fault.UNFIT_DATA,
    OSError: Fault.UNREADABLE_FILE,
    MemoryError: Fault.OUT_OF_MEMORY,
}


def find_fault(reason: BaseException) -> Fault:
    """The code of an exception.

    >>> find_fault(MissingColumn("unknown label column 'mark'")), find_fault(ZeroDivisionError())
    (<Fault.MISSING_COLUMN: 'missing-column'>, <Fault.UNFORESEEN: 'unforeseen'>)
    """
    if isinstance(reason, NodeFault):
        return reason.fault
    return next(
        (fault for kind, fault in CODES.items() if isinstance(reason, kind)), Fault.UNFORESEEN
    )


@contextmanager
def report_as(fault: Fault, kinds: tuple[type[Exception], ...] = (InvalidInput,)) -> Iterator[None]:
    """Give exceptions of these kinds inside this code, unless they have one."""
    try:
        yield
    except NodeFault:
        raise
    except kinds as reason:
        raise NodeFault(fault, f"{type(reason).__name__}: {reason}") from reason


LONGEST = 10**7  # characters of a description


class Description(BaseModel):
    """What a node says of its table: plain values of the declared kinds, and nothing else."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


Count = Annotated[int, Field(ge=0, lt=2**40)]
LARGEST_SIZE = 1e140  # of a number in a table: its square, times all samples, is a float


class ColumnLook(Description):
    """A column: its cells, why it serves no model, whether it varies within a client, and whether
    any client has two rows.
    """

    cells: str
    reason: str | None
    varies: bool
    repeats: bool


class TableLook(Description):
    """A table: rows, columns that may be features, and what clients and labels are."""

    rows: Count
    client_kind: Annotated[str, Field(pattern="^(text|whole)$")]
    columns: dict[str, ColumnLook]


class NumberSums(Description):
    """A column of numbers: training cells there and missing, mean, sum of squares about it, and of
    dates the first day of the first year.
    """

    count: Count
    missing: Count
    mean: Annotated[float, Field(ge=-LARGEST_SIZE, le=LARGEST_SIZE)]
    squares: Annotated[float, Field(ge=0, le=LARGEST_SIZE**2 * 1e12)]
    first: Annotated[float, Field(ge=-1e9, le=1e9)] | None = None


class LevelCounts(Description):
    """A category: training rows by level, and of all levels that are too rare to be told."""

    levels: dict[str, Count]
    rare: Count


class TableSums(Description):
    """All columns, the label, and how many rows there are, train, are dropped or are filled."""

    rows: Count
    training: Count
    dropped: Count
    filled: dict[str, Count]
    numbers: dict[str, NumberSums]
    categories: dict[str, LevelCounts]
    label_kind: str
    label_values: Count
    task: Annotated[str, Field(pattern="^(classification|regression)$")]
    classes: list[bool | int | str] | None


Head = NDArray[np.floating[Any]]
ROOM = 4096  # bytes that the header of an array may take beside its numbers
WRITTEN = r"[0-9][0-9A-Za-z.+]{0,30}"  # what a version looks like in a log
JUDGES = 3  # replies from which the median says what is usual


class RefusedReply(Exception):
    """A reply that does not count; the message says why."""


@dataclass(frozen=True)
class Trouble:
    """Why a node does not count, in words; a permanent one stays until somebody mends it."""

    text: str
    permanent: bool = False


class Change(NamedTuple):
    """How a node's clients would move the shared head, on how many training samples, and what else
    they send.
    """

    step: NDArray[np.float64]
    samples: int
    sent: Any = None


def array_in(data: bytes, shape: tuple[int, ...], what: str = "head") -> Head:
    """The array in these bytes (NumPy's format), unread where it is too large, and finite numbers
    of this shape.

    >>> file = io.BytesIO()
    >>> np.save(file, np.array([[1.0], [np.nan]]))
    >>> array_in(file.getvalue(), (2, 1))
    Traceback (most recent call last):
    ...
    fedasym.deploy.flower.messages.RefusedReply: its head has NaN or infinity in 1 of 2 places
    """
    most = 8 * int(np.prod(shape)) + ROOM
    if len(data) > most:
        raise RefusedReply(
            f"its {what} has {len(data)} bytes where {shape} numbers take at most {most}"
        )
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except BROKEN:
        raise RefusedReply(f"its {what} cannot be read as an array") from None
    if not isinstance(array, np.ndarray) or array.shape != shape:
        raise RefusedReply(
            f"its {what} has shape {getattr(array, 'shape', '?')} instead of {shape}"
        )
    if array.dtype.kind != "f":
        raise RefusedReply(f"its {what} holds {array.dtype.name} instead of floating-point numbers")
    bad = int(np.count_nonzero(~np.isfinite(array)))
    if bad:
        raise RefusedReply(f"its {what} has NaN or infinity in {bad} of {array.size} places")
    return array


def count_in(metrics: Mapping[str, Any], name: str, expected: int) -> int:
    """A count that must be what the server knows already."""
    value = metrics.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value != expected:
        raise RefusedReply(f"its {name} is {value!r}, and it announced {expected}")
    return expected


def check_version(version: Any) -> None:
    """Refuse a node with another fedasym than the server's: the two would not say the same."""
    if version == __version__:
        return
    has = (
        f"fedasym {version}"
        if isinstance(version, str) and re.fullmatch(WRITTEN, version)
        else "no version"
    )
    raise RefusedReply(
        f"it says that it has {has}, and the server has fedasym {__version__}: install the same on"
        " both"
    )


def scores_in(
    metrics: Mapping[str, Any], names: tuple[str, ...], most: Mapping[str, float]
) -> dict[str, float]:
    """Finite metrics of at least 0, and no larger than they can be.

    >>> scores_in({"accuracy": 1.5}, ("accuracy",), {"accuracy": 1.0})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedasym.deploy.flower.messages.RefusedReply: its accuracy is 1.5: it must be a number from ...
    """
    taken = {}
    for name in names:
        value, top = metrics.get(name), most.get(name, float("inf"))
        if (
            not isinstance(value, int | float)
            or isinstance(value, bool)
            or not np.isfinite(value)
            or not 0 <= value <= top
        ):
            upper = f"from 0 to {top:g}" if np.isfinite(top) else "of at least 0"
            raise RefusedReply(f"its {name} is {value!r}: it must be a number {upper}")
        taken[name] = float(value)
    return taken


def shorten_changes(
    changes: Mapping[int, Change], bound: float
) -> tuple[dict[int, Change], dict[int, float]]:
    """Changes no longer than `bound` times the median length, and by node what was cut to which
    share of its length; likewise the models that are sent beside them, and the numbers.

    >>> usual = {node: Change(np.full((4, 1), 0.5), 10) for node in (1, 2)}
    >>> changes, cut = shorten_changes(usual | {3: Change(np.full((4, 1), 500.0), 10)}, bound=10)
    >>> cut, float(np.linalg.norm(changes[3].step))
    ({3: 0.01}, 10.0)
    """
    steps = usual_shares({node: length_of(each.step) for node, each in changes.items()}, bound)
    models, numbers = (
        usual_shares({node: length_of(each.sent, kind) for node, each in changes.items()}, bound)
        for kind in (True, False)
    )
    cut = {node: min(steps[node], models[node], numbers[node]) for node in changes}
    shortened = {
        node: each._replace(
            step=each.step * steps[node], sent=scale_sent(each.sent, models[node], numbers[node])
        )
        for node, each in changes.items()
    }
    return shortened, {node: share for node, share in cut.items() if share < 1}


def usual_shares(lengths: Mapping[Any, float], bound: float) -> dict[Any, float]:
    """To which share of its length each is to be cut; 1: not at all."""
    if bound <= 0 or len(lengths) < JUDGES:
        return dict.fromkeys(lengths, 1.0)
    longest = bound * float(np.median(list(lengths.values())))
    return {name: longest / each if each > longest else 1.0 for name, each in lengths.items()}


def length_of(sent: Any, models: bool = True) -> float:
    """The length of all models together that a node sent, or of all numbers."""
    if sent is None:
        return 0.0
    with np.errstate(over="ignore"):  # a length beyond all numbers is cut to nothing
        if isinstance(sent, tuple):
            return float(np.linalg.norm([length_of(each, models) for each in sent]))
        return float(np.linalg.norm(sent)) if (np.ndim(sent) > 0) == models else 0.0


def scale_sent(sent: Any, models: float, numbers: float) -> Any:
    """What a node sent, its models and its numbers times these."""
    if isinstance(sent, tuple):
        return tuple(scale_sent(each, models, numbers) for each in sent)
    return None if sent is None else sent * (models if np.ndim(sent) else numbers)


def mean_change(changes: Mapping[int, Change]) -> NDArray[np.float64]:
    """sum_j p_j (w_j - W) with p_j the nodes' shares of samples, in one order whatever came first.

    >>> mean_change({1: Change(np.ones((1, 1)), 30), 2: Change(np.zeros((1, 1)), 10)}).tolist()
    [[0.75]]
    """
    n = sum(change.samples for change in changes.values())
    return np.asarray(
        sum(change.samples / n * change.step for _, change in sorted(changes.items())), np.float64
    )


Kind = TypeVar("Kind", bound=Description)


def parse_description(kind: type[Kind], content: RecordDict, name: str) -> Kind:
    """What a node said, where it is a description of that kind."""
    text = config_in(content)[name]
    if not isinstance(text, str) or len(text) > LONGEST:
        raise RefusedReply("its description is not text, or is too long")
    try:
        return kind.model_validate_json(text)
    except ValidationError:
        raise RefusedReply("its description does not have the declared parts") from None


PAUSE = 0.5  # seconds between two looks for replies
Reading = TypeVar("Reading")


class Attentive(Grid):
    """A grid that looks for replies twice a second, where Flower's own sleeps three seconds."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    @property
    def run(self) -> Any:
        """The run that the grid is of."""
        return self.grid.run

    def set_run(self, run: Any) -> None:
        """Say which run it is of."""
        self.grid.set_run(run)

    def create_message(self, *args: Any, **options: Any) -> Message:
        """A message as older apps make it."""
        return self.grid.create_message(*args, **options)

    def get_node_ids(self) -> Iterable[int]:
        """The connected nodes."""
        return self.grid.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send; returns the messages' names."""
        return self.grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies that are there."""
        return self.grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send, and return the replies that come in time."""
        waiting = {name for name in self.push_messages(messages) if name}
        replies: list[Message] = []
        end = time.monotonic() + (float("inf") if timeout is None else timeout)
        while waiting and time.monotonic() < end:
            arrived = list(self.pull_messages(waiting))
            replies += arrived
            waiting -= {reply.metadata.reply_to_message_id for reply in arrived}
            if waiting:
                time.sleep(PAUSE)
        return replies


SILENT = Trouble("it did not reply in time")
UNLOADED = Trouble(
    "the app cannot be loaded there: install the server's version of fedasym; the node's own log"
    " says more",
    True,
)
REFUSED_APP = Trouble(
    "its owner does not allow this app: the owner may list the digest that `fedasym digest` prints"
    " for it",
    True,
)


def sort_replies(
    replies: Iterable[Message], nodes: Iterable[int], read: Callable[[int, RecordDict], Reading]
) -> tuple[dict[int, Reading], dict[int, Trouble]]:
    """What `read` takes from each node's reply, and for every other node what is wrong with it."""
    expected = set(nodes)
    taken = {}
    wrong = {}
    for reply in replies:
        node = reply.metadata.src_node_id
        if node not in expected or node in taken or node in wrong:
            continue  # the link itself speaks where a node is gone, which is silent then
        try:
            if (trouble := trouble_in(reply)) is not None:
                wrong[node] = trouble
            else:
                taken[node] = read(node, reply.content)
        except RefusedReply as reason:
            wrong[node] = Trouble(str(reason), permanent=True)
        except (KeyError, TypeError, ValueError, AttributeError):
            wrong[node] = Trouble(
                "its reply has not the records that were asked for", permanent=True
            )
    troubles = {node: wrong.get(node, SILENT) for node in sorted(expected) if node not in taken}
    return dict(sorted(taken.items())), troubles


def trouble_in(reply: Message) -> Trouble | None:
    """The fault that a node reports; an error's own text may be anything, and is not repeated."""
    if reply.has_error():
        if reply.error.code == ErrorCode.LOAD_CLIENT_APP_EXCEPTION:
            return UNLOADED
        if reply.error.code == ErrorCode.INVALID_FAB:
            return REFUSED_APP
        return Trouble(
            f"it failed (Flower's error {reply.error.code}); the node's own log says more"
        )
    told = reply.content.config_records.get(CONFIG)
    if told is None or FAULT not in told:
        return None
    check_version(told.get(VERSION))
    fault = Fault.find(told[FAULT])
    if fault is None:
        raise RefusedReply("it reports a fault by a code that is unknown here")
    return Trouble(fault.sentence, fault.permanent)


def log_troubles(troubles: Mapping[int, Trouble]) -> None:
    """Name the nodes that are left out, each with the reason."""
    for node, trouble in troubles.items():
        log.warning("Node %d is left out: %s", node, trouble.text)


ROUNDING = 1e-3  # of a budget: what accountants of one round and of all may differ by


class PrivateAverage:
    """The server's part in private rounds: it plans the noise, adds it unless nodes do, and counts
    what is spent, round by round, whoever is connected.
    """

    def __init__(self, settings: Settings, privacy: Privacy, noise_on_nodes: bool) -> None:
        self.settings, self.privacy, self.noise_on_nodes = settings, privacy, noise_on_nodes
        self.multiplier: float | None = None
        self.releases: list[Release] = []

    @classmethod
    def of(cls, told: RunConfiguration) -> PrivateAverage | None:
        """Of a run; None where it is not private."""
        privacy = told.settings.privacy
        return None if privacy is None else cls(told.settings, privacy, told.noise_on_nodes)

    @property
    def delta(self) -> float:
        """Of the budget."""
        return self.privacy.delta

    @property
    def epsilon(self) -> float:
        """What is spent so far."""
        return spend_together(self.releases, self.delta) if self.releases else 0.0

    def average(
        self,
        moves: Mapping[int, tuple[NDArray[np.float64], int]],
        shape: tuple[int, ...],
        able: int,
        turns: Mapping[str, int],
    ) -> NDArray[np.float64] | None:
        """The sum of the nodes' moves over the expected cohort, with noise; None where the budget
        is spent, as nodes left or rounds were added.

        moves: by node, with how many clients it is the sum of, which bounds its length. able:
        clients that may be drawn. turns: how often each was.
        """
        clip = float(self.privacy.clip or 0.0)
        cohort = min(self.settings.cohort or COHORT, able)
        total = np.zeros(shape)
        for _, (move, clients) in sorted(moves.items()):
            total += move if self.noise_on_nodes else clip_move(move, clients * clip)[0]
        if self.noise_on_nodes:
            # the server knows who was drawn, so that drawing hides nobody
            z = self.privacy.find_multiplier(self.settings.rounds, 1, 1)
            self.releases = [Release(z, "poisson", max(turns.values(), default=0), 1, 1)]
            return total / cohort
        if self.multiplier is None:
            found = self.privacy.find_multiplier(self.settings.rounds, cohort, able)
            self.multiplier = found
            log.info("Privacy: noise multiplier %.4g, updates clipped at %.4g", found, clip)
        release = Release(self.multiplier, self.privacy.sampling, 1, cohort, able)
        if self.exceeds(release):
            return None
        self.releases.append(release)
        return np.asarray((total + self.multiplier * clip * draw_secret_noise(shape)) / cohort)

    def exceeds(self, release: Release) -> bool:
        """Whether one more release would spend more than the budget."""
        budget = self.privacy.epsilon
        if budget is None:
            return False
        return spend_together([*self.releases, release], self.delta) > budget * (1 + ROUNDING)

    def to_json(self) -> list[list[Any]]:
        """What was released, for a run that goes on."""
        return [list(astuple(each)) for each in self.releases]

    def resume(self, releases: list[list[Any]]) -> None:
        """Go on from what was released before."""
        self.releases = [Release(*each) for each in releases]
        if self.releases and not self.noise_on_nodes:
            self.multiplier = self.releases[-1].multiplier


def head_record(head: Any) -> ArrayRecord:
    """A head as it is sent."""
    return arrays_in(content_of({HEAD: head}))
