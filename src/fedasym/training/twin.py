"""Every algorithm in plain NumPy, a client and a batch at a time: the fast version's oracle.

From top to bottom: the rounds, what a drawn client does in one, what it makes of the shared head
for itself, how heads are tested, a batch's loss and gradient, and one client. The algorithms' own
files have their steps. The names alg:... are the paper's (appendix "Algorithm implementations"),
its misprints corrected; the letters are r round, K local steps, W the shared head, w a client's
copy of it, D a batch. A head is a matrix (d, outputs), the intercept as one more row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedasym.algorithms import Algorithm
from fedasym.algorithms.stages import ServerStage, Stage
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import pool_shares
from fedasym.data.federation import Federation
from fedasym.data.shards import check_in_memory, map_blocks
from fedasym.data.splits import PERSONAL, START, TEST, TRAINING, Integers, Words, mix_hash
from fedasym.exact.outputs import GramSums
from fedasym.exact.penalties import covariance_powers
from fedasym.training.plans import (
    batches,
    clip_move,
    cohorts,
    draw_noise,
    draw_private_cohorts,
    plan_private_rounds,
)
from fedasym.training.settings import (
    Protocol,
    Settings,
    bind_stage,
    check_trainable,
    default_of,
    own_rate,
    resolve_ridge,
)

Head = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_] | None  # (d, 1): some rows of a head; None: all
COHORT = 20  # clients in a round where the settings do not say


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The heads after `round` rounds: the shared one and each client's own."""

    round: int
    shared: Head
    personal: dict[Any, Head]


def run(
    algorithm: Algorithm,
    federation: Federation,
    settings: Settings,
    protocol: Protocol,
    seed: int,
    dtype: DTypeLike = np.float64,
) -> Iterator[Snapshot]:
    """Train, and yield the heads at every evaluated round.

    >>> from fedasym.algorithms import TRAINED
    >>> from fedasym.training.settings import TEXT
    >>> settings = Settings(rounds=20, evaluate_every=10)
    >>> names = ["ann", "ann", "bob", "bob"]
    >>> pair = Federation.from_arrays(np.eye(4), [0, 1] * 2, clients=names, split=[0] * 4)
    >>> for snapshot in run(TRAINED["ftfa"], pair, settings, TEXT, seed=0):
    ...     heads = (snapshot.shared, snapshot.personal)
    ...     shared, own = (loss(pair, each, "train") for each in heads)
    ...     print(snapshot.round, f"shared {shared:.3f} personal {own:.3f}")
    0 shared 0.693 personal 0.494
    10 shared 0.115 personal 0.104
    20 shared 0.057 personal 0.054
    """
    check_trainable(algorithm)
    settings = resolve_ridge(settings, algorithm)
    scaled = scale_by_direction(algorithm, federation, settings, protocol.intercept)
    if scaled is not None:
        for seen in run(scaled.algorithm, scaled.federation, settings, protocol, seed, dtype):
            own = {name: scaled.restore(head) for name, head in seen.personal.items()}
            yield Snapshot(seen.round, scaled.restore(seen.shared), own)
        return
    told = (settings, protocol, seed, dtype)
    clients = [TwinClient(federation, name, *told) for name in federation.clients]
    able = [client for client in clients if client.n > 0]
    size = min(settings.cohort or COHORT, len(able))
    settings = replace(settings, cohort=max(size, 1))
    identities = np.array([client.identity for client in able], np.uint64)
    private = None if algorithm.shares_nothing else plan_private_rounds(settings, len(able))
    clip = 0.0 if private is None else private.clip
    drawn = (
        cohorts(seed, identities, settings.rounds, size)
        if private is None
        else draw_private_cohorts(private, seed, identities, settings.rounds)
    )
    server = bind_stage(algorithm.server, settings, protocol)
    turns = dict.fromkeys(federation.clients, 0)
    W = first_head(federation, protocol, seed, dtype)
    # nothing, for most
    kept = {client.name: server.init_client(W) for client in clients}
    common = server.first_memory(W, starts_of(federation, server, protocol, seed, dtype))
    pooled = None if algorithm.correction is None else pooled_shares(federation, protocol)
    for r in range(settings.rounds + 1):
        if r in settings.evaluated_rounds:
            own = {
                one.name: own_head(algorithm, one, W, r, (kept[one.name], common), pooled)
                for one in clients
            }
            yield Snapshot(r, W, own)
        if r == settings.rounds or algorithm.shares_nothing:
            continue
        if server.reads_sums:  # all clients send X'X and X'Y once
            W = solve_sums(server, clients, W) if r == 0 else W
            continue
        # alg:fedavg, line 2: the server samples clients
        S = [able[place] for place in drawn[r] if place >= 0]
        n = sum(client.n for client in S)
        change, sent = np.zeros_like(W), None
        short = 0  # updates that are no longer than the clip
        for client in S:  # lines 4 to 11: each would do this on its own device
            turn = turns[client.name]
            memory = (kept[client.name], common)
            w, kept[client.name], beside = local_work(algorithm, client, W, r, turn, memory)
            if private is None:
                change += client.n / n * (w - W)  # p_j = n_j / sum of n over the cohort
            else:  # alike, and never further than the clip
                move, whole = clip_move(w - W, clip)
                change, short = change + move / private.cohort, short + whole
            sent = add_share(sent, client.n / n, beside)
            turns[client.name] += 1
        sent = np.zeros_like(W) if sent is None else sent
        if private is not None:
            noise, count_noise = draw_noise(seed, r, W.shape)
            change = change + (private.multiplier * clip / private.cohort * noise).astype(W.dtype)
            clip = float(private.adapt(clip, short, len(S), count_noise))
        # line 12: sum_j p_j w_j, unless the algorithm has another rule
        W, common = server.move_server(W, change, common, sent, size / len(able))


@dataclass(frozen=True, eq=False)
class DirectedClients:
    """Clients whose features are scaled so that a ridge by direction is a plain one.

    scaling: T, by which features are multiplied; w = T w' are the weights of features as they are.
    """

    algorithm: Algorithm
    federation: Federation
    scaling: Head

    @classmethod
    def of(cls, algorithm: Algorithm, federation: Federation, scaling: Head) -> DirectedClients:
        """The clients scaled by T, and the algorithm with a plain ridge."""
        plain = algorithm.personalise.plain_stage
        assert plain is not None
        kind = federation.features.dtype
        scaled = (federation.features @ scaling.astype(kind)).astype(kind)
        return cls(
            replace(algorithm, personalise=plain), replace(federation, features=scaled), scaling
        )

    def restore(self, head: Head) -> Head:
        """A head for features as they are; the intercept, if there is one, stays."""
        return turn_head(self.scaling, head)

    def turn(self, head: Head) -> Head:
        """A head for the scaled features, of one for features as they are."""
        return turn_head(np.linalg.inv(self.scaling), head)


def turn_head(matrix: Head, head: Head) -> Head:
    """A matrix times a head's weights; the intercept, if there is one, stays."""
    d = len(matrix)
    turned = np.concatenate([matrix @ np.asarray(head[:d], float), head[d:]])
    return turned.astype(head.dtype)


def scale_by_direction(
    algorithm: Algorithm, federation: Federation, settings: Settings, intercept: bool
) -> DirectedClients | None:
    """The clients on which an algorithm's ridge by direction is a plain one; None: it has none."""
    if algorithm.personalise.plain_stage is None:
        return None
    total = sum_moments(algorithm, federation, intercept)
    return DirectedClients.of(algorithm, federation, find_scaling(algorithm, settings, total))


def sum_moments(algorithm: Algorithm, federation: Federation, intercept: bool) -> Head:
    """The sums of products of features by which a ridge by direction scales them.

    They are within clients where heads have an intercept, and of training and validation samples
    alike: however these are dealt out, it is the same.
    """
    if federation.personal is not None and not federation.personal.all():
        raise InvalidInput(
            f"{algorithm.name} scales all features together, and some features' weights are the"
            " same for all clients here: train rtfa, or let all weights be personal"
        )
    check_in_memory(federation, f"{algorithm.name} scales all features")
    d = federation.dimension
    total = np.zeros((d, d))
    for name in federation.clients:
        rows = federation.rows(name)
        rows = rows[federation.split[rows] != TEST]
        X = federation.features[rows].astype(float)
        X = X.reshape(-1, d) if federation.mask is None else X[federation.mask[rows]]
        X = X - X.mean(axis=0) if intercept and len(X) else X
        total = total + X.T @ X
    return total


def find_scaling(algorithm: Algorithm, settings: Settings, total: Head) -> NDArray[np.float64]:
    """T of these sums of products, by the setting `power`."""
    power = dict(settings.own).get("power", default_of(algorithm, "power"))
    return covariance_powers(np.asarray(total, np.float64))(float(power))


def add_share(total: Any, share: float, sent: Any) -> Any:
    """The total and a share of what a client sent: a model, a number, or a tuple of these."""
    if sent is None:
        return total
    if isinstance(sent, tuple):
        totals = (None,) * len(sent) if total is None else total
        return tuple(add_share(t, share, s) for t, s in zip(totals, sent, strict=True))
    return share * sent if total is None else total + share * sent


def starts_of(
    federation: Federation, server: ServerStage, protocol: Protocol, seed: int, dtype: DTypeLike
) -> Sequence[Head]:
    """The models with which the server begins beside the shared one."""
    from fedasym.training.convergence import cluster_starts  # which reads clients as they are here

    if not server.start_models:
        return ()
    return [
        np.asarray(W, dtype)
        for W in cluster_starts(federation, protocol, seed, server.start_models)
    ]


def solve_sums(server: ServerStage, clients: Iterable[TwinClient], W: Head) -> Head:
    """The ridge head of all clients' samples, from the sums that each of them sends."""
    return np.asarray(sum_products(clients).solve(server.get("shared_ridge")), W.dtype)


def sum_products(clients: Iterable[TwinClient]) -> GramSums:
    """X'X and X'Y of each client's samples (or positions that count), added up."""
    sums = []
    for client in clients:
        D = client.samples
        X, Y = D.X[D.weights > 0], D.Y[D.weights > 0]
        sums.append(GramSums(len(X), X.T @ X, X.T @ Y, client.protocol.intercept))
    return reduce(GramSums.__add__, sums)


def first_head(federation: Federation, protocol: Protocol, seed: int, dtype: DTypeLike) -> Head:
    """The head of round 0."""
    return start_head(federation.dimension, federation.outputs, protocol, seed, dtype)


def start_head(d: int, outputs: int, protocol: Protocol, seed: int, dtype: DTypeLike) -> Head:
    """Zeros, or uniform in +-1/sqrt(d), for d features."""
    shape = (d + protocol.intercept, outputs)
    if not protocol.random_start:
        return np.zeros(shape, dtype)
    u = mix_hash(seed, START, np.arange(shape[0] * shape[1])) / 2.0**64
    return np.asarray((2 * u - 1) / np.sqrt(d), dtype).reshape(shape)


class Work(NamedTuple):
    """What a drawn client has done: the head it sends back, what it keeps, what else it sends."""

    head: Head
    kept: Any = None
    sent: Head | None = None


def local_work(
    algorithm: Algorithm, client: TwinClient, W: Head, r: int, turn: int, memory: Any = (None, None)
) -> Work:
    """K local steps; `turn`: earlier draws; `memory`: what the client and the server keep."""
    stage = bind_stage(algorithm.server, client.settings, client.protocol)
    rate = client.settings.server_step
    K = stage.client_steps(client.n, client.batch, client.settings.local_steps)
    turn = r if stage.everyone_works else turn
    work = islice(client.steps(r, turn, stage.batches), K)
    if not stage.keeps_client():
        return Work(take_steps(stage, W, work, rate, client.own_rows)[0])
    first, state = stage.begin(W, memory, client.choose)
    w, state = take_steps(stage, W, work, rate, client.own_rows, state=state, first=first)
    return Work(w, *stage.finish(w, W, state, rate, K))


def own_head(
    algorithm: Algorithm,
    client: TwinClient,
    W: Head,
    r: int,
    memory: Any = (None, None),
    pooled: Head | None = None,
) -> Head:
    """The client's own head after r rounds; a client without training samples keeps the shared one.

    memory: what the client and the server keep from round to round.
    pooled: the shares of the classes among all clients' samples, for a correction of the scores;
        its numbers are added to the intercept, which a head without one gets.
    """
    w = trained_head(algorithm, client, W, r, memory)
    if algorithm.correction is None:
        return w
    assert pooled is not None
    stage = bind_stage(algorithm.correction, client.settings, client.protocol)
    offset = stage.offset(client.counts, np.asarray(pooled, client.dtype))
    if client.protocol.intercept:
        return np.concatenate([w[:-1], w[-1:] + offset])
    return np.concatenate([w, offset[None]])


def pooled_shares(federation: Federation, protocol: Protocol) -> Head:
    """The shares of the classes among all training samples."""
    counts = list(map_blocks(federation, training_counts, protocol.count_padding))
    return pool_shares(np.sum(counts, axis=0))


def training_counts(federation: Federation, padding: bool) -> Head:
    """How many training samples (or positions) have each class."""
    return class_counts(federation, np.flatnonzero(federation.split == 0), padding)


def class_counts(federation: Federation, rows: Integers, padding: bool) -> Head:
    """How many of these samples (or positions) have each class."""
    if federation.classes is None:
        raise InvalidInput("class shares are for classes, and these are numbers to predict")
    labels = federation.labels[rows]
    if federation.mask is not None and not padding:
        labels = labels[federation.mask[rows]]
    return np.bincount(labels.ravel(), minlength=federation.outputs).astype(float)


def trained_head(
    algorithm: Algorithm, client: TwinClient, W: Head, r: int, memory: Any = (None, None)
) -> Head:
    """The head that a client's steps make of the shared one."""
    settings, protocol = client.settings, client.protocol
    own = None if algorithm.shares_nothing else client.own_rows
    if client.n == 0:
        return W
    if algorithm.personal_from_server:  # pFedMe: its work for the server in round r, drawn or not
        server = bind_stage(algorithm.server, settings, protocol)
        if server.keeps_client():
            found = np.asarray(server.personal_model(W, memory[0]))
            return found if own is None else np.where(own, found, W)
        work = client.steps(r, r, server.batches)
        w, state = take_steps(server, W, work, settings.server_step, own, keep=True)
        return np.asarray(server.personal_model(w, state))
    W = algorithm.server.begin(W, memory, client.choose)[0]  # the shared one, for most
    stage = bind_stage(algorithm.personalise, settings, protocol)
    stream = mix_hash(client.seed, PERSONAL, client.identity, r)
    if stage.step_count is not None:  # none in FedAvg, which keeps W
        passes = client.batches(stream, 0, stage.step_count)
    elif algorithm.shares_nothing:  # alg:local: there are no rounds, r counts passes
        many = r + protocol.passes_ahead
        passes = client.passes(mix_hash(client.seed, PERSONAL, client.identity, 0), many)
    else:
        passes = client.passes(stream, settings.personal_epochs)
    rate = own_rate(stage, settings)
    return take_steps(stage, W, ([D] for D in passes), rate, own, keep=True)[0]


def personal_head(
    algorithm: Algorithm,
    federation: Federation,
    settings: Settings,
    protocol: Protocol,
    seed: int,
    round: int,
    shared: Head,
    client: Any,
    dtype: DTypeLike = np.float64,
) -> Head:
    """One client's head as `run` has it; where it needs what is kept, from all rounds once more."""
    check_trainable(algorithm)
    scaled = scale_by_direction(algorithm, federation, settings, protocol.intercept)
    if scaled is not None:
        told = (scaled.federation, resolve_ridge(settings, algorithm), protocol, seed, round)
        start = scaled.turn(np.asarray(shared))
        return scaled.restore(personal_head(scaled.algorithm, *told, start, client, dtype))
    pooled = None if algorithm.correction is None else pooled_shares(federation, protocol)
    needs_memory = algorithm.personal_from_server or algorithm.server.start_models > 0
    if needs_memory and algorithm.server.keeps_client():
        check_in_memory(federation, f"the rounds of {algorithm.name} are run once more")
        again = run(algorithm, federation, settings, protocol, seed, dtype)
        return next(found.personal[client] for found in again if found.round == round)
    alone = federation.take([federation.place(client)])
    one = TwinClient(alone, client, resolve_ridge(settings, algorithm), protocol, seed, dtype)
    return own_head(algorithm, one, np.asarray(shared, dtype), round, pooled=pooled)


Heads = Head | Mapping[Any, Head]  # one for all clients, or one for each


def accuracy(
    federation: Federation, heads: Heads, split: str = "test", count_padding: bool = False
) -> float:
    """Share of right classes among all samples (and positions) of all clients; nan without any."""
    if federation.classes is None:
        raise InvalidInput("accuracy is for classes, and these are numbers to predict: use loss")

    def count_right(W: Head, D: Batch) -> int:
        return int(np.sum(((D.X @ W).argmax(axis=1) == D.Y.argmax(axis=1)) & (D.weights > 0)))

    return pooled_mean(count_right, federation, heads, split, count_padding)


def loss(
    federation: Federation, heads: Heads, split: str = "test", count_padding: bool = False
) -> float:
    """Mean loss over all samples (and positions) of all clients, unpenalised; nan without any."""

    def total_loss(W: Head, D: Batch) -> float:
        return np.count_nonzero(D.weights) * mean_loss(W, D)

    return pooled_mean(total_loss, federation, heads, split, count_padding)


def pooled_mean(
    total: Callable[..., float], federation: Federation, heads: Heads, split: str, padding: bool
) -> float:
    """The clients' totals over a split, added up, over the number of samples (or positions)."""
    sum_, count = 0.0, 0
    for client in federation.clients:
        W = np.asarray(heads[client] if isinstance(heads, Mapping) else heads)
        rows = federation.rows(client, split)
        intercept = len(W) > federation.dimension
        D = batch_of(federation, rows, intercept, padding, W.dtype)
        sum_, count = sum_ + total(W, D), count + int(np.count_nonzero(D.weights))
    return sum_ / count if count else float("nan")


class Batch(NamedTuple):
    """Some samples as they enter the loss; the positions of sequences stand below one another."""

    X: Head  # (rows, d), with a last column of ones where heads have an intercept
    Y: Head  # (rows, outputs): 1 at the label's class and 0 elsewhere, or the numbers to predict
    weights: Head  # (rows,): equal and of sum one; 0 for padding
    classes: bool  # whether the loss is softmax cross-entropy, or squares


def batch_of(
    federation: Federation, rows: Integers, intercept: bool, padding: bool, dtype: DTypeLike
) -> Batch:
    """The samples in these rows of the federation."""
    X = federation.features[rows].reshape(-1, federation.dimension).astype(dtype)
    labels = federation.labels[rows]
    classes = federation.classes is not None
    shown = np.arange(federation.outputs)
    Y = labels.reshape(-1, 1) == shown if classes else labels.reshape(-1, federation.outputs)
    real = np.ones(len(X))
    if federation.mask is not None and not padding:
        real = federation.mask[rows].ravel().astype(float)
    if intercept:
        X = np.column_stack([X, np.ones(len(X), dtype)])
    # no samples: a loss of 0
    return Batch(X, Y.astype(dtype), (real / max(real.sum(), 1)).astype(dtype), classes)


def predictions(W: Head, D: Batch) -> Head:
    """The probabilities of the classes (softmax), or the predicted numbers."""
    Z = D.X @ W
    if not D.classes:
        return np.asarray(Z)
    powers = np.exp(Z - Z.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def mean_loss(W: Head, D: Batch) -> float:
    """Cross-entropy -log(probability of the label), or 1/2 |z - y|^2, averaged over the batch."""
    Z = D.X @ W
    if not D.classes:
        return float(D.weights @ ((Z - D.Y) ** 2).sum(axis=1) / 2)
    Z = Z - Z.max(axis=1, keepdims=True)
    return float(D.weights @ (np.log(np.exp(Z).sum(axis=1)) - (Z * D.Y).sum(axis=1)))


def gradient(W: Head, D: Batch) -> Head:
    """X'R with the weighted residuals R: the same for both losses."""
    R = D.weights[:, None] * (predictions(W, D) - D.Y)
    return np.asarray(D.X.T @ R)


def hessian_times(W: Head, D: Batch, V: Head) -> Head:
    """The gradient's derivative along V: X'(how predictions change as X W moves along X V)."""
    change = D.X @ V
    if D.classes:
        P = predictions(W, D)
        change = P * (change - (P * change).sum(axis=1, keepdims=True))
    return np.asarray(D.X.T @ (D.weights[:, None] * change))


class Gradients:
    """gradient(w), gradient(w, batch) and the Hessian on a step's batches; keep: in `own` rows."""

    def __init__(self, batches: list[Batch], own: Mask, keep: bool) -> None:
        self.batches, self.rows, self.keep = batches, own, keep

    def __call__(self, w: Head, batch: int = 0) -> Head:
        """Of the mean loss on one of the batches."""
        G = gradient(w, self.batches[batch])
        return self.own_part(G) if self.keep else G

    def along(
        self, w: Head, direction: Head, batch: int = 0, difference: float | None = None
    ) -> Head:
        """The Hessian at w times a direction; with a difference, by gradients ahead and behind."""
        if difference is not None:
            ahead = self(w + difference * direction, batch)
            behind = self(w - difference * direction, batch)
            return (ahead - behind) / (2 * difference)
        HV = hessian_times(w, self.batches[batch], direction)
        return self.own_part(HV) if self.keep else HV

    def own_part(self, G: Head) -> Head:
        """The part in rows that may be a client's own, 0 in the others."""
        return G if self.rows is None else np.where(self.rows, G, 0)

    def repeat(self, count: int, step: Callable[[Head], Head], w: Head) -> Head:
        """A step, over and over."""
        for _ in range(count):
            w = step(w)
        return w

    def common_part(self, G: Head) -> Head:
        """The part in rows that are the same for all clients."""
        return 0 * G if self.rows is None else np.where(self.rows, 0, G)


def take_steps(
    stage: Stage,
    W: Head,
    work: Iterable[list[Batch]],
    rate: float,
    own: Mask = None,
    keep: bool = False,
    state: Any = None,
    first: Head | None = None,
) -> tuple[Head, Any]:
    """A stage's step, batch after batch: the head and the state.

    W: the shared head, where it starts unless at `first`; keep: in `own` rows.
    """
    w = W if first is None else first
    state = stage.init(W) if stage.has_state() and state is None else state
    for D in work:
        w, state = stage.advance((w, W, Gradients(D, own, keep), rate), state)
        w = np.where(own, w, W) if keep and own is not None else w
    return w, state


def personal_rows(federation: Federation, intercept: bool) -> Mask:
    """The rows that may differ between clients: personal features, the intercept; None: all."""
    if federation.personal is None or federation.personal.all():
        return None
    return np.append(federation.personal, np.ones(int(intercept), bool))[:, None]


@dataclass(frozen=True, eq=False)
class TwinClient:
    """One client and its training samples, handed out in batches by the seed and its identity."""

    federation: Federation
    name: Any
    settings: Settings
    protocol: Protocol
    seed: int
    dtype: DTypeLike

    @cached_property
    def rows(self) -> NDArray[np.integer]:
        """Where its training samples stand."""
        return self.federation.rows(self.name, "train")

    @property
    def n(self) -> int:
        """How many there are."""
        return len(self.rows)

    @cached_property
    def counts(self) -> Head:
        """How many of them have each class."""
        found = class_counts(self.federation, self.rows, self.protocol.count_padding)
        return found.astype(self.dtype)

    @cached_property
    def own_rows(self) -> Mask:
        """The rows of a head that may be the client's own."""
        return personal_rows(self.federation, self.protocol.intercept)

    @cached_property
    def identity(self) -> np.uint64:
        """The name as a number for hashes."""
        return np.uint64(self.federation.identities[self.federation.clients.index(self.name)])

    @property
    def batch(self) -> int:
        """Samples in its batches: a larger one holds no more."""
        return min(self.settings.batch, max(self.n, 1))

    @cached_property
    def samples(self) -> Batch:
        """All its training samples."""
        intercept, padding = self.protocol.intercept, self.protocol.count_padding
        return batch_of(self.federation, self.rows, intercept, padding, self.dtype)

    def choose(self, heads: Sequence[Head]) -> list[float]:
        """1 for the head with the least loss on its training samples, 0 for the others."""
        losses = [mean_loss(W, self.samples) for W in heads]
        return [float(place == int(np.argmin(losses))) for place in range(len(heads))]

    def batches(self, stream: Words, first: int, count: int) -> Iterator[Batch]:
        """Batches `first`, `first` + 1, ... of endless shuffled passes, whose last may be short."""
        intercept, padding = self.protocol.intercept, self.protocol.count_padding
        sizes = np.array([self.n])
        for drawn in batches(stream.reshape(1), sizes, first, count, self.batch)[0]:
            rows = self.rows[drawn[drawn >= 0]]
            yield batch_of(self.federation, rows, intercept, padding, self.dtype)

    def passes(self, stream: Words, count: int) -> Iterator[Batch]:
        """The batches of `count` passes over all samples."""
        return self.batches(stream, 0, count * -(-self.n // self.settings.batch))

    def steps(self, r: int, turn: int, each: int) -> Iterator[list[Batch]]:
        """The batches of round r's K local steps, `each` for a step; `turn`: its earlier rounds."""
        K = self.settings.local_steps
        stream = mix_hash(self.seed, TRAINING, self.identity, r + 1)
        first = 0
        if self.protocol.continued_passes:
            stream = mix_hash(self.seed, TRAINING, self.identity, 0)
            first = turn * K * each
        work = self.batches(stream, first, K * each)
        for _ in range(K):
            yield [next(work) for _ in range(each)]
