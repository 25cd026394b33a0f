"""Algorithms as plain values, for files: a stage by its name and settings, one from outside the package with a digest of its
source. Reading imports nothing: a stage whose code is not at hand prints and is compared, and does no more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedasym import algorithms
from fedasym.algorithms.registry import REGISTRY, TRAINED, Algorithm
from fedasym.algorithms.settings import Setting
from fedasym.algorithms.stages import ClientStage, ServerStage, Stage
from fedasym.core.errors import InvalidInput, NoFormula

STAGES = ("Nothing", "Average", "Meta", "Moreau", "Keep", "Interpolate", "Ridge", "Descend", "Flow")


ALGORITHMS = "algorithms.json"  # in a folder of results: what is known of algorithms from outside the package


class Stored(Stage, eq=False):
    """A stage of a file whose code is not here: its name, its settings and the digest of its source."""

    name: str
    values: tuple[tuple[str, Any], ...]
    code: str

    def __post_init__(self) -> None:
        """Nothing is known of what the values may be."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in dict(self.values):
            raise AttributeError(name)
        return dict(self.values)[name]

    def settings(self) -> dict[str, Setting]:  # type: ignore[override]
        """The numbers that it had."""
        numbers = {name: value for name, value in self.values if isinstance(value, int | float | None)}
        return {name: Setting(name, value, whole=isinstance(value, int)) for name, value in numbers.items()}

    def step(self, w: Any, start: Any, gradient: Any, rate: Any) -> Any:
        """Refused."""
        raise absent(self.name)


class StoredServer(Stored, ServerStage):
    """A server stage of which a file keeps the name."""


class StoredClient(Stored, ClientStage):
    """A client stage of which a file keeps the name."""


def absent(name: str) -> NoFormula:
    """The sentence for a stage whose code is not here."""
    return NoFormula(f"the code of the stage {name} is in no file: register its algorithm to train it again")


def describe_algorithm(algorithm: Algorithm) -> dict[str, Any]:
    """Name and stages as plain values.

    >>> read_algorithm(describe_algorithm(REGISTRY["maml"])) == REGISTRY["maml"]
    True
    """
    return {
        "name": algorithm.name,
        "server": describe_stage(algorithm.server),
        "client": describe_stage(algorithm.personalise),
    }


def describe_stage(stage: Stage) -> dict[str, Any]:
    """A stage by its name, its settings and, if it is not the package's own, the digest of its source."""
    if isinstance(stage, Stored):
        return {"stage": stage.name, "code": stage.code, **dict(stage.values)}
    held = {each.name: plain(getattr(stage, each.name)) for each in fields(stage) if "rule" not in each.metadata}
    name = type(stage).__name__
    own = {} if is_built_in(type(stage)) else {"code": stage.digest()}
    return {"stage": name, **own, **held}


def is_built_in(kind: type[Stage]) -> bool:
    """Whether a stage is the package's own."""
    return kind.__name__ in STAGES and getattr(algorithms, kind.__name__) is kind


def plain(value: Any) -> Any:
    """A number, a word, or an array as lists."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def read_algorithm(described: Mapping[str, Any]) -> Algorithm:
    """The algorithm that `describe_algorithm` described; the registered one of this name, if it is the same."""
    name = described["name"]
    known = REGISTRY.get(name) if isinstance(name, str) else None
    server = read_stage(described["server"], StoredServer, None if known is None else known.server)
    client = read_stage(described["client"], StoredClient, None if known is None else known.personalise)
    made = Algorithm(name, server, client)
    return known if known == made else made if known is None else replace(known, server=server, personalise=client)


def read_stage(described: Mapping[str, Any], stored: type[Any], known: Stage | None) -> Any:
    """A stage of the package, the registered one if its code is the same, or one that is only a name."""
    values = dict(described)
    name, code = values.pop("stage"), values.pop("code", None)
    if code is None:
        if name not in STAGES:
            raise InvalidInput(f"the stage {name!r} is none of {', '.join(STAGES)}: save it again")
        return getattr(algorithms, name)(**values)
    if known is not None and type(known).__name__ == name and known.digest() == code:
        return type(known)(**values)
    return stored(str(name), tuple(values.items()), str(code))


def describe_brought(names: Iterable[str]) -> str | None:
    """Those of these algorithms that are not the package's own, as JSON; None: there are none."""
    brought = [describe_algorithm(REGISTRY[name]) for name in names if name not in TRAINED]
    return json.dumps(brought, indent=2) + "\n" if brought else None


def remember_brought(folder: Path) -> None:
    """Know the names of the algorithms that a folder of results describes; nothing of theirs is imported."""
    file = folder / ALGORITHMS
    if not file.is_file():
        return
    try:
        described = json.loads(file.read_text(encoding="utf-8"))
        for each in described:
            REGISTRY.remember(read_algorithm(each))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InvalidInput(f"{file} is damaged: run the experiment again, it goes on from here") from None
