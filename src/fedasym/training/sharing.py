"""What the configurations of a grid have in common, so that it is done once.

Configurations with the same server stage share a trajectory; those with the same kind of client stage share a program.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

from fedasym.algorithms import Algorithm, Average, Descend, Interpolate, Keep, Meta, Moreau, Nothing, Own, Ridge
from fedasym.training.settings import Settings, is_named, is_pfedme


class Server(NamedTuple):
    """What is compiled of a server stage, and the sizes of its run."""

    kind: str | Own  # nothing, average, dropped, free, exact, moreau; or a stage of the user's own
    rounds: int
    evaluated: tuple[int, ...]
    cohort: int
    local_steps: int
    batch: int
    inner_steps: int


class Client(NamedTuple):
    """What is compiled of a client stage: epochs or steps of descend, ridge or the user's own; moreau; keep."""

    kind: str | Own
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
    kind: str | Own
    rates: dict[str, float] = {"server_step": settings.server_step}
    match algorithm.server:
        case Nothing():
            kind, rates = "nothing", {}
        case Average():
            kind = "average"
        case Meta(step, hessian):
            kind = hessian
            rates["meta_step"] = settings.local_step if is_named(algorithm) else step
            if hessian == "free":
                rates["difference"] = settings.difference
        case Moreau():
            kind = "moreau"
            rates |= {name: getattr(settings, name) for name in ("ridge", "mixing", "inner_step")}
        case Own() as kind:
            rates |= {name: getattr(settings, name) for name in kind.settings}
    assert settings.cohort is not None
    sizes = (settings.rounds, tuple(settings.evaluated), settings.cohort, settings.local_steps, settings.batch)
    return Server(kind, *sizes, settings.inner_steps), tuple(rates.items())


def client_of(algorithm: Algorithm, settings: Settings) -> tuple[Client, Numbers]:
    """The client stage's program and rates; on its own a client trains for as many epochs as there are rounds."""
    epochs = settings.rounds if isinstance(algorithm.server, Nothing) else settings.personal_epochs
    match algorithm.personalise:
        case Keep():
            return Client("keep"), ()
        case Ridge() if is_pfedme(algorithm):
            return Client("moreau"), ()
        case Ridge():
            assert settings.ridge is not None
            return Client("ridge", epochs), (("local_step", settings.local_step), ("ridge", settings.ridge))
        case Descend(step, steps):
            return Client("descend", None, steps), (("local_step", step),)
        case Interpolate():
            return Client("descend", epochs), (("local_step", settings.local_step),)
        case Own() as own:
            names = dict.fromkeys(("local_step", *own.settings))
            return Client(own, epochs), tuple((name, getattr(settings, name)) for name in names)
    raise AssertionError(algorithm.personalise)


def way_of(client: Client, rates: Hashable, alone: bool) -> Hashable:
    """What client stages have in common that walk one way: stages that differ only in their number of passes do."""
    return client if alone or client.epochs is None else (client.kind, rates)
