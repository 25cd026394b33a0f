"""What the configurations of a grid have in common, so that it is done once.

Configurations with the same server stage share a trajectory; those with the same kind of client stage share a program.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

from fedasym.algorithms import Algorithm, ClientStage, Keep, ServerStage
from fedasym.training.settings import Kind, Protocol, Settings, bind_stage, own_rate


class Server(NamedTuple):
    """What is compiled of a server stage, and the sizes of its run."""

    stage: ServerStage  # without its rates
    rounds: int
    evaluated: tuple[int, ...]
    cohort: int
    local_steps: int
    batch: int

    @property
    def alone(self) -> bool:
        """Whether nothing is shared."""
        return not self.stage.shares


class Client(NamedTuple):
    """What is compiled of a client stage, and the epochs or steps that it takes; no stage: what the server's gives."""

    stage: ClientStage | None
    epochs: int | None = None
    steps: int = 0

    @property
    def still(self) -> bool:
        """Whether the shared model is kept as it is."""
        return self.stage is not None and self.epochs is None and self.steps == 0


KEEP = Client(Keep())  # for all stages that take no steps


Numbers = tuple[tuple[str, float], ...]  # named rates, hashable


Jobs = dict[Numbers, list[int]]  # a client stage's rates, and which jobs want them
Tree = dict[Server, dict[Numbers, dict[Client, Jobs]]]


def shared_work(jobs: Sequence[tuple[Algorithm, Settings]], protocol: Protocol, largest: int) -> Tree:
    """Jobs by server stage, server rates, client stage and client rates; no batch is larger than the `largest` client."""
    tree: Tree = {}
    for index, (algorithm, settings) in enumerate(jobs):
        server, server_rates = server_of(algorithm, replace(settings, batch=min(settings.batch, largest)), protocol)
        client, client_rates = client_of(algorithm, settings, protocol)
        wanted = tree.setdefault(server, {}).setdefault(server_rates, {}).setdefault(client, {})
        wanted.setdefault(client_rates, []).append(index)
    return tree


def server_of(algorithm: Algorithm, settings: Settings, protocol: Protocol) -> tuple[Server, Numbers]:
    """The server stage's program and rates."""
    stage, own = split_stage(bind_stage(algorithm.server, settings, protocol))
    rates = {"server_step": settings.server_step, **own} if stage.shares else {}
    assert settings.cohort is not None
    sizes = (settings.rounds, tuple(settings.evaluated), settings.cohort, settings.local_steps, settings.batch)
    return Server(stage, *sizes), tuple(rates.items())


def client_of(algorithm: Algorithm, settings: Settings, protocol: Protocol) -> tuple[Client, Numbers]:
    """The client stage's program and rates; on its own a client trains for as many epochs as there are rounds."""
    if algorithm.personal_from_server:
        return Client(None), ()
    bound = bind_stage(algorithm.personalise, settings, protocol)
    if bound.step_count == 0:
        return KEEP, ()
    stage, own = split_stage(bound)
    rates = tuple(({"local_step": own_rate(bound, settings)} | own).items())
    if bound.step_count is not None:
        return Client(stage, None, bound.step_count), rates
    return Client(stage, settings.rounds if algorithm.shares_nothing else settings.personal_epochs), rates


def split_stage(stage: Kind) -> tuple[Kind, dict[str, float]]:
    """What is compiled of a stage, and its rates: numbers that are not whole are data, so that one program serves many."""
    rates = {
        name: float(getattr(stage, name))
        for name, each in stage.settings().items()
        if not each.whole and not each.choices and getattr(stage, name) is not None
    }
    return stage.at(**dict.fromkeys(rates, 0.0)), rates


def way_of(client: Client, rates: Hashable, alone: bool) -> Hashable:
    """What client stages have in common that walk one way: stages that differ only in their number of passes do."""
    return client if alone or client.epochs is None else (client.stage, rates)
