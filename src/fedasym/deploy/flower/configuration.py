"""What a run is told: Flower's run config (numbers and words under names-like-these) in the words of `fedasym.train`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedasym.algorithms import Algorithm, find
from fedasym.core.errors import InvalidInput, unknown
from fedasym.core.numbers import check_seed
from fedasym.data.federation.targets import class_names
from fedasym.training.settings import (
    SETTINGS,
    Protocol,
    Settings,
    check_steps,
    check_trainable,
    default_of,
    find_protocol,
    is_rate,
    is_size,
    named_settings,
    own_settings,
    resolve_ridge,
    with_intercept,
)

PRECISIONS = ("float32", "float64")
RULES: dict[str, Any] = {
    "seed": 0,
    "protocol": "text",
    "intercept": True,
    "precision": "float32",
    "min-nodes": 2,
    "timeout": 600.0,
    "clip": 10.0,
}


@dataclass(frozen=True)
class Configuration:
    """One run: the algorithm with its settings, and the rules of the federation.

    precision: of the heads that are sent; clients compute in float64.
    min_nodes: the server waits for this many before it begins. timeout: seconds that a round waits for replies.
    clip: a change longer than this many medians is shortened; 0: never.
    classes: as the run config names them; None where it does not.
    data_name: what the results call the data; the server cannot know.

    >>> configuration = Configuration.of("rtfa", {"rounds": 3, "server-step": 0.5, "min-nodes": 3})
    >>> configuration.settings.server_step, configuration.settings.ridge, configuration.min_nodes
    (0.5, 0.1, 3)
    """

    algorithm: Algorithm
    settings: Settings
    protocol: Protocol
    seed: int
    precision: str
    min_nodes: int
    timeout: float
    clip: float
    classes: tuple[Any, ...] | None = None
    data_name: str = ""

    @classmethod
    def of(cls, algorithm: str | Algorithm, config: Mapping[str, Any]) -> Configuration:
        """Read and check a run config; what it does not name has its usual value."""
        chosen = found(algorithm)
        told = {name: config[kebab(name)] for name in SETTINGS if kebab(name) in config}
        told["cohort"] = told.get("cohort") or None
        rules = RULES | {name: config[name] for name in RULES if name in config}
        if rules["precision"] not in PRECISIONS:
            raise unknown("precision", rules["precision"], PRECISIONS)
        if not is_size(rules["min-nodes"], 1):
            raise InvalidInput(f"min-nodes is {rules['min-nodes']!r}: it must be a whole number of at least 1")
        for name, least in (("timeout", "above"), ("clip", "of at least")):
            if not is_rate(rules[name]) or (least == "above" and rules[name] == 0):
                raise InvalidInput(f"{name} is {rules[name]!r}: it must be a finite number {least} 0")
        own = {
            name: each.check(config.get(kebab(name), default_of(chosen, name))) for name, each in own_settings(chosen).items()
        }
        settings = resolve_ridge(Settings(**told, own=tuple(own.items())), chosen)
        if settings.rounds == 0:
            raise InvalidInput("rounds is 0: a federation that learns something has at least 1")
        protocol = with_intercept(find_protocol(rules["protocol"]), rules["intercept"])
        return cls(
            chosen,
            settings,
            protocol,
            seed=check_seed(rules["seed"]),
            precision=rules["precision"],
            min_nodes=int(rules["min-nodes"]),
            timeout=float(rules["timeout"]),
            clip=float(rules["clip"]),
            classes=read_classes(config.get("classes")),
            data_name=str(config.get("data-name", "")),
        )


def found(algorithm: str | Algorithm) -> Algorithm:
    """An algorithm that a federation can train: one that shares something."""
    chosen = find(algorithm)
    check_trainable(chosen)
    check_steps(chosen)
    if chosen.shares_nothing:
        raise InvalidInput(f"algorithm is {chosen.name!r}, which shares nothing: a federation has nothing to do for it")
    if chosen.server.has_memory():
        raise InvalidInput(
            f"algorithm is {chosen.name!r}, whose clients or server keep state from round to round: nodes keep none; "
            "train it with fa.train"
        )
    return chosen


def read_classes(value: Any) -> tuple[Any, ...] | None:
    """The names of the classes from a config: their number, or names separated by commas; None where nothing is said.

    >>> read_classes("3"), read_classes("well, ill"), read_classes("1,2,5"), read_classes("")
    ((0, 1, 2), ('well', 'ill'), (1, 2, 5), None)
    """
    if value in (None, "", 0):
        return None
    if not isinstance(value, str):
        return class_names(value)
    parts: list[Any] = [part.strip() for part in value.split(",")]
    if all(re.fullmatch(r"-?[0-9]{1,18}", part) for part in parts):
        parts = [int(part) for part in parts]
        return class_names(parts[0]) if len(parts) == 1 else class_names(parts)
    return class_names(parts)


def defaults(algorithm: Algorithm) -> dict[str, Any]:
    """The run config that an app begins with: what the algorithm uses, then the rules."""
    own = tuple((name, default_of(algorithm, name)) for name in own_settings(algorithm))
    settings = resolve_ridge(Settings(rounds=50, evaluate_every=10, own=own), algorithm)
    used = {kebab(name): value for name, value in named_settings(settings, algorithm).items()}
    return used | {"cohort": settings.cohort or 0} | RULES


def kebab(name: str) -> str:
    """A name as Flower's configs write it."""
    return name.replace("_", "-")
