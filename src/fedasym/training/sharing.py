"""What the configurations of a grid have in common, so that it is done once.

Configurations with the same server stage share a trajectory; those with the same kind of client stage share a program.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

from fedasym.algorithms import Algorithm, Average, Descend, Interpolate, Keep, Meta, Moreau, Nothing, Ridge
from fedasym.algorithms.stages import Stage
from fedasym.training.settings import Settings, bind_stage, is_pfedme


class Server(NamedTuple):
    """What is compiled of a server stage, and the sizes of its run."""

    kind: str | Stage  # nothing, average, dropped, free, exact, moreau; or a stage that brings its step
    rounds: int
    evaluated: tuple[int, ...]
    cohort: int
    local_steps: int
    batch: int
    inner_steps: int


class Client(NamedTuple):
    """What is compiled of a client stage: epochs or steps of descend, ridge or a stage's own; moreau; keep."""

    kind: str | Stage
    epochs: int | None = None
    steps: int = 0


Numbers = tuple[tuple[str, float], ...]  # named rates, hashable


Jobs = dict[Numbers, list[int]]  # a client stage's rates, and which jobs want them
Tree = dict[Server, dict[Numbers, dict[Client, Jobs]]]


def shared_work(jobs: Sequence[tuple[Algorithm, Settings]], largest: int) -> Tree:
    """Jobs by server stage, server rates, client stage and client rates; no batch is larger than the `largest` client."""
    tree: Tree = {}
    for index, (algorithm, settings) in enumerate(jobs):
        server, server_rates = server_of(algorithm, replace(settings, batch=min(settings.batch, largest)))
        client, client_rates = client_of(algorithm, settings)
        wanted = tree.setdefault(server, {}).setdefault(server_rates, {}).setdefault(client, {})
        wanted.setdefault(client_rates, []).append(index)
    return tree


def server_of(algorithm: Algorithm, settings: Settings) -> tuple[Server, Numbers]:
    """The server stage's program and rates."""
    kind: str | Stage
    stage = bind_stage(algorithm.server, settings)
    rates: dict[str, float] = {"server_step": settings.server_step}
    match stage:
        case Nothing():
            kind, rates = "nothing", {}
        case Average():
            kind = "average"
        case Meta():
            kind = stage.hessian
            rates["meta_step"] = float(stage.local_step or 0.0)
            if kind == "free":
                rates["difference"] = stage.difference
        case Moreau():
            kind = "moreau"
            rates |= {"ridge": settings.ridge or 0.0, "mixing": stage.mixing, "inner_step": float(stage.inner_step or 0.0)}
        case _:
            kind, own = split_stage(stage)
            rates |= own
    assert settings.cohort is not None
    sizes = (settings.rounds, tuple(settings.evaluated), settings.cohort, settings.local_steps, settings.batch)
    return Server(kind, *sizes, settings.inner_steps), tuple(rates.items())


def client_of(algorithm: Algorithm, settings: Settings) -> tuple[Client, Numbers]:
    """The client stage's program and rates; on its own a client trains for as many epochs as there are rounds."""
    epochs = settings.rounds if isinstance(algorithm.server, Nothing) else settings.personal_epochs
    stage = algorithm.personalise
    match stage:
        case Keep():
            return Client("keep"), ()
        case Ridge() if is_pfedme(algorithm):
            return Client("moreau"), ()
        case Ridge():
            assert settings.ridge is not None
            return Client("ridge", epochs), (("local_step", settings.local_step), ("ridge", settings.ridge))
        case Descend():
            return Client("descend", None, stage.steps), (("local_step", stage.local_step),)
        case Interpolate():
            return Client("descend", epochs), (("local_step", settings.local_step),)
    kind, own = split_stage(bind_stage(stage, settings))
    return Client(kind, epochs), (("local_step", settings.local_step), *own.items())


def split_stage(stage: Stage) -> tuple[Stage, dict[str, float]]:
    """What is compiled of a stage, and its rates: numbers that are not whole are data, so that one program serves many."""
    rates = {
        name: float(getattr(stage, name))
        for name, each in stage.settings().items()
        if not each.whole and not each.choices and getattr(stage, name) is not None
    }
    return stage.at(**dict.fromkeys(rates, 0.0)), rates


def way_of(client: Client, rates: Hashable, alone: bool) -> Hashable:
    """What client stages have in common that walk one way: stages that differ only in their number of passes do."""
    return client if alone or client.epochs is None else (client.kind, rates)
