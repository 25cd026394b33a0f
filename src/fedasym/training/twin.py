"""Every algorithm in plain NumPy, one client and one batch at a time: the version to read, and the oracle of the fast one.

From top to bottom: the rounds, what a drawn client does in one, what a client makes of the shared head for itself, how heads
are tested; `twin_batches.py` has the loss and its gradient, and the algorithms' own files (`fedasym.algorithms`) have their
steps. The names alg:... are the paper's (appendix "Algorithm implementations"), its misprints corrected; the letters are r
round, K local steps, W the shared head, w a client's copy of it, theta a personal head, D a batch. A head is a matrix
(d, outputs), with the intercept as one more row where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from fedasym.algorithms import Algorithm, ServerStage
from fedasym.core.errors import InvalidInput
from fedasym.data.federation.federation import Federation
from fedasym.data.federation.shuffles import PERSONAL, START, mix
from fedasym.training.plans import cohorts
from fedasym.training.settings import Protocol, Settings, bind_stage, check_trainable, own_rate, resolve_ridge
from fedasym.training.twin_batches import Batch, Client, Head, batch_of, mean_loss, take_steps

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
    >>> pair = Federation.from_arrays(np.eye(4), [0, 1, 0, 1], clients=["ann", "ann", "bob", "bob"], split=np.zeros(4, int))
    >>> for snapshot in run(TRAINED["ftfa"], pair, Settings(rounds=20, evaluate_every=10), TEXT, seed=0):
    ...     shared, own = loss(pair, snapshot.shared, "train"), loss(pair, snapshot.personal, "train")
    ...     print(snapshot.round, f"shared {shared:.3f} personal {own:.3f}")
    0 shared 0.693 personal 0.494
    10 shared 0.115 personal 0.104
    20 shared 0.057 personal 0.054
    """
    check_trainable(algorithm)
    settings = resolve_ridge(settings, algorithm)
    clients = [Client(federation, name, settings, protocol, seed, dtype) for name in federation.clients]
    able = [client for client in clients if client.n > 0]
    size = settings.cohort or min(COHORT, len(able))
    drawn = cohorts(seed, np.array([client.identity for client in able], np.uint64), settings.rounds, size)
    server = bind_stage(algorithm.server, settings, protocol)
    turns = dict.fromkeys(federation.clients, 0)
    W = first_head(federation, protocol, seed, dtype)
    for r in range(settings.rounds + 1):
        if r in settings.evaluated:
            yield Snapshot(r, W, {client.name: personalised(algorithm, client, W, r) for client in clients})
        if r == settings.rounds or algorithm.shares_nothing:
            continue
        S = [able[place] for place in drawn[r]]  # alg:fedavg, line 2: the server samples clients
        n = sum(client.n for client in S)
        change = np.zeros_like(W)
        for client in S:  # lines 4 to 11: each would do this on its own device
            w = local_work(algorithm, client, W, r, turns[client.name])
            change += client.n / n * (w - W)  # p_j = n_j / sum of n over the cohort
            turns[client.name] += 1
        W = server.update(W, change)  # line 12: sum_j p_j w_j, unless the algorithm has another rule


def first_head(federation: Federation, protocol: Protocol, seed: int, dtype: DTypeLike) -> Head:
    """The head of round 0."""
    return start_head(federation.dimension, federation.outputs, protocol, seed, dtype)


def start_head(d: int, outputs: int, protocol: Protocol, seed: int, dtype: DTypeLike) -> Head:
    """Zeros, or uniform in +-1/sqrt(d), for d features."""
    shape = (d + protocol.intercept, outputs)
    if not protocol.random_start:
        return np.zeros(shape, dtype)
    u = mix(seed, START, np.arange(shape[0] * shape[1])) / 2.0**64
    return np.asarray((2 * u - 1) / np.sqrt(d), dtype).reshape(shape)


# What a client does when it is drawn: K local steps from the shared head


def local_work(algorithm: Algorithm, client: Client, W: Head, r: int, turn: int) -> Head:
    """The head that the client sends back; `turn` is how often it was drawn before."""
    stage = bind_stage(algorithm.server, client.settings, client.protocol)
    return take_steps(stage, W, server_batches(stage, client, r, turn), client.settings.server_step, client.own)[0]


def server_batches(stage: ServerStage, client: Client, r: int, turn: int) -> Iterator[list[Batch]]:
    """The batches of each of the K local steps."""
    return client.steps(r, r if stage.everyone_works else turn, stage.batches)


# What a client makes of the shared head for itself, from its training samples alone


def personalised(algorithm: Algorithm, client: Client, W: Head, r: int) -> Head:
    """The client's own head after r rounds; a client without training samples keeps the shared one."""
    settings, protocol = client.settings, client.protocol
    own = None if algorithm.shares_nothing else client.own
    if client.n == 0:
        return W
    if algorithm.personal_from_server:  # pFedMe: what the client would do for the server in round r, drawn or not
        server = bind_stage(algorithm.server, settings, protocol)
        w, state = take_steps(server, W, server_batches(server, client, r, r), settings.server_step, own, keep=True)
        return np.asarray(server.personal_model(w, state))
    stage = bind_stage(algorithm.personalise, settings, protocol)
    stream = mix(client.seed, PERSONAL, client.identity, r)
    if stage.step_count is not None:  # none in FedAvg, which keeps W
        work = client.batches(stream, 0, stage.step_count)
    elif algorithm.shares_nothing:  # alg:local: there are no rounds, r counts passes
        work = client.passes(mix(client.seed, PERSONAL, client.identity, 0), r)
    else:
        work = client.passes(stream, settings.personal_epochs)
    return take_steps(stage, W, ([D] for D in work), own_rate(stage, settings), own, keep=True)[0]


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
    """One client's head from the shared one of a round: what `run` has in `Snapshot.personal[client]`."""
    check_trainable(algorithm)
    one = Client(federation, client, resolve_ridge(settings, algorithm), protocol, seed, dtype)
    return personalised(algorithm, one, np.asarray(shared, dtype), round)


# How heads are tested: one for all clients, or one for each

Heads = Head | Mapping[Any, Head]


def accuracy(federation: Federation, heads: Heads, split: str = "test", count_padding: bool = False) -> float:
    """Share of right classes among all samples (and positions) of all clients; nan where there are none."""
    if federation.classes is None:
        raise InvalidInput("accuracy is for classes, and this federation has numbers to predict: use loss")

    def right(W: Head, D: Batch) -> int:
        return int(np.sum(((D.X @ W).argmax(axis=1) == D.Y.argmax(axis=1)) & (D.weights > 0)))

    return pooled(right, federation, heads, split, count_padding)


def loss(federation: Federation, heads: Heads, split: str = "test", count_padding: bool = False) -> float:
    """Mean loss over all samples (and positions) of all clients, without penalties; nan where there are none."""

    def lost(W: Head, D: Batch) -> float:
        return np.count_nonzero(D.weights) * mean_loss(W, D)

    return pooled(lost, federation, heads, split, count_padding)


def pooled(
    total: Callable[[Head, Batch], float], federation: Federation, heads: Heads, split: str, count_padding: bool
) -> float:
    """The clients' totals over all their samples of a split, added up and divided by the number of samples (or positions)."""
    sum_, count = 0.0, 0
    for client in federation.clients:
        W = np.asarray(heads[client] if isinstance(heads, Mapping) else heads)
        D = batch_of(federation, federation.rows(client, split), len(W) > federation.dimension, count_padding, W.dtype)
        sum_, count = sum_ + total(W, D), count + int(np.count_nonzero(D.weights))
    return sum_ / count if count else float("nan")
