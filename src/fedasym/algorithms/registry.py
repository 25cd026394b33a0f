"""The algorithms that verbs know by name: the package's own, those of installed packages, and
those that a user registers.

For files, an algorithm is plain values: a stage by its name and settings, one from outside the
package with a digest of its source. Reading imports nothing: a stage whose code is not at hand
prints and is compared, and does no more.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fedasym.algorithms.methods import (
    Average,
    Descend,
    Flow,
    Interpolate,
    Keep,
    Meta,
    Moreau,
    Nothing,
    Ridge,
    Share,
)
from fedasym.algorithms.paper import CLASSES, SHARED, TRAINED, Algorithm, with_shares
from fedasym.algorithms.stages import ClientStage, ScoreStage, ServerStage, Setting, Stage
from fedasym.core.errors import InvalidInput, NoFormula, unknown_name

GROUP = "fedasym.algorithms"  # entry points by which an installed package brings algorithms


class Registry(Mapping[str, Algorithm]):
    """Algorithms by name; installed packages are asked for a name that is not known otherwise."""

    def __init__(self, first: Mapping[str, Algorithm]) -> None:
        self._known = dict(first)
        self._built_in = frozenset((*first, *CLASSES))
        self._described: dict[str, Algorithm] = {}  # by files of results: names without code

    def register(self, algorithm: Algorithm) -> Algorithm:
        """Make an algorithm known to all verbs by its name, in place of any other of that name."""
        if not isinstance(algorithm, Algorithm):
            raise InvalidInput(f"algorithm is a {type(algorithm).__name__}: give an fa.Algorithm")
        if self.is_built_in(algorithm.name):
            raise InvalidInput(
                f"name is {algorithm.name!r}, which the package has: give the algorithm another"
                " name"
            )
        if not algorithm.name or ":" in algorithm.name or algorithm.name != algorithm.name.strip():
            raise InvalidInput(f"name is {algorithm.name!r}: it must be a word, without ':'")
        self._known[algorithm.name] = algorithm
        return algorithm

    def include(self, algorithms: Iterable[Algorithm], stages: Iterable[type[Stage]]) -> None:
        """Take in more of the package's own, with the stages that files may name."""
        brought = {each.name: each for each in algorithms}
        self._known.update(brought)
        self._built_in |= set(brought)
        STAGES.update({each.__name__: each for each in stages})

    def is_built_in(self, name: str) -> bool:
        """Whether an algorithm is the package's own, with class shares or without."""
        return name in self._built_in or name.removesuffix(SHARED) in self._built_in

    def remember(self, algorithm: Algorithm) -> None:
        """Know the name of an algorithm in a file until one of that name is registered."""
        self._described[algorithm.name] = algorithm

    def look_up(self, name: str) -> Algorithm | None:
        """The algorithm of a name if it is known without importing anything."""
        found = self._known.get(name) or self._described.get(name)
        if found is not None or not isinstance(name, str) or not name.endswith(SHARED):
            return found
        plain = self.look_up(name.removesuffix(SHARED))
        return None if plain is None else with_shares(plain)

    def read_packages(self) -> None:
        """Know what installed packages bring."""
        for name, algorithm in read_entry_points().items():
            self._known.setdefault(name, algorithm)

    def __getitem__(self, name: str) -> Algorithm:
        if (found := self.look_up(name)) is not None:
            return found
        self.read_packages()
        found = self.look_up(name)
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        self.read_packages()
        return iter(dict.fromkeys((*self._known, *self._described)))

    def __len__(self) -> int:
        return len(list(iter(self)))


@cache
def read_entry_points() -> dict[str, Algorithm]:
    """The entry points of installed packages by name; a broken one is reported and left out."""
    # which takes longer to import than a prediction takes
    from importlib.metadata import entry_points

    found: dict[str, Algorithm] = {}
    for point in entry_points(group=GROUP):
        try:
            algorithm = point.load()
        except (
            Exception
        ) as reason:  # whatever it is: the others, and runs that do not ask for it, must go on
            algorithm = f"{type(reason).__name__}: {reason}"
        if isinstance(algorithm, Algorithm):
            found[algorithm.name] = algorithm
            continue
        told = algorithm if isinstance(algorithm, str) else "it is not an fa.Algorithm"
        warnings.warn(
            f"{point.value!r} of an installed package is left out: {told}; fix or uninstall it",
            stacklevel=2,
        )
    return found


REGISTRY = Registry(TRAINED)


def register(algorithm: Algorithm) -> Algorithm:
    """Make an algorithm known to every verb and command by its name; returns it.

    >>> import fedasym as fa
    >>> halfway = fa.Algorithm("halfway", fa.algorithms.Average(), fa.algorithms.Ridge(1.0))
    >>> fa.algorithms.register(halfway).name, fa.algorithms.find("halfway") is halfway
    ('halfway', True)
    """
    return REGISTRY.register(algorithm)


def find(
    entry: Any, more: Mapping[str, Algorithm] | None = None, others: Iterable[str] = ()
) -> Algorithm:
    """The algorithm meant: an object, a registered name, or a `module:name` to import.

    "share(rtfa)" or "rtfa_share" is an algorithm whose clients also add their class shares. Names
    may be written as papers do. more: algorithms that have a name here alone. others: what else a
    caller knows by name, for the refusal.

    >>> find("Per-FedAvg").name, find("FedAvg(local_steps=20)").server.local_steps
    ('per_fedavg', 20)
    >>> find("rtfa").words, find("fedasym.algorithms.registry:REGISTRY")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fedasym.InvalidInput: algorithm is 'fedasym.algorithms.registry:REGISTRY': it is a ...
    """
    if isinstance(entry, Algorithm):
        return entry
    if isinstance(entry, str) and ":" in entry:
        return import_algorithm(entry)
    if isinstance(entry, str) and more is not None and entry in more:
        return more[entry]
    if isinstance(entry, str) and entry.startswith("share(") and entry.endswith(")"):
        return with_shares(find(entry[len("share(") : -1].strip(), more, others))
    if isinstance(entry, str) and entry.endswith(")") and "(" in entry:
        return read_call(entry, more, others)
    for name in (entry, entry.lower().replace("-", "_")) if isinstance(entry, str) else ():
        if name in REGISTRY:
            return REGISTRY[name]
    raise unknown_name("algorithm", entry, (*REGISTRY, *(more or ()), *others))


def read_call(
    entry: str, more: Mapping[str, Algorithm] | None = None, others: Iterable[str] = ()
) -> Algorithm:
    """An algorithm with settings of its own: "fedprox(penalty=1)", "fedavg(local_steps=20)".

    >>> read_call("fedavg(local_steps=20)").server.local_steps
    20
    """
    base, _, inside = entry[:-1].partition("(")
    algorithm = find(base.strip(), more, others)
    base = algorithm.name
    values: dict[str, float] = {}
    for part in filter(str.strip, inside.split(",")):
        name, equals, text = (each.strip() for each in part.partition("="))
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not equals or math.isnan(number):
            raise InvalidInput(
                f"algorithm is {entry!r}: {part.strip()!r} is not a setting with a number; write"
                f" {base}(setting=number)"
            )
        values[name] = int(number) if number.is_integer() else number
    kin = [algorithm, *(each for each in REGISTRY.values() if each.variant_of == base)]
    meant = next((each for each in kin if set(values) <= set(each.settings)), None)
    if meant is None:
        known = dict.fromkeys(name for each in kin for name in each.settings)
        bad = next(name for name in values if name not in known)
        raise unknown_name(f"setting of {base}", bad, known)
    parts: dict[str, Any] = {
        role: replace(stage, **{name: values[name] for name in values if name in stage.settings()})
        for role, stage in meant.parts.items()
    }
    return replace(meant, name=entry, **parts)


def import_algorithm(path: str) -> Algorithm:
    """The algorithm at `module:name`."""
    module, _, name = path.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:  # a command's path does not have the folder it is typed in
        sys.path.append(here)
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as reason:
        raise InvalidInput(
            f"algorithm is {path!r}: {reason}; is its folder on PYTHONPATH?"
        ) from None
    except AttributeError:
        raise InvalidInput(
            f"algorithm is {path!r}: {module} has no {name}; check the spelling"
        ) from None
    if not isinstance(found, Algorithm):
        raise InvalidInput(
            f"algorithm is {path!r}: it is a {type(found).__name__}, not an fa.Algorithm"
        )
    return found


STAGES: dict[str, type[Any]] = {  # the package's own that files may name
    each.__name__: each
    for each in (Nothing, Average, Meta, Moreau, Keep, Interpolate, Ridge, Descend, Flow, Share)
}


ALGORITHMS = (  # in a folder of results: what is known of algorithms from outside the package
    "algorithms.json"
)


class Stored(Stage, eq=False):
    """A stage of a file whose code is not here: name, settings, and the digest of its source."""

    has_code = False
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
        numbers = {
            name: value for name, value in self.values if isinstance(value, int | float | None)
        }
        return {
            name: Setting(name, value, whole=isinstance(value, int))
            for name, value in numbers.items()
        }

    def step(self, w: Any, start: Any, gradient: Any, rate: Any) -> Any:
        """Refused."""
        raise missing_code_error(self.name)


class StoredServer(Stored, ServerStage):
    """A server stage of which a file keeps the name."""


class StoredClient(Stored, ClientStage):
    """A client stage of which a file keeps the name."""


class StoredScores(Stored, ScoreStage):
    """A score stage of which a file keeps the name."""


def missing_code_error(name: str) -> NoFormula:
    """The sentence for a stage whose code is not here."""
    return NoFormula(
        f"the code of the stage {name} is in no file: register its algorithm to train it again"
    )


def describe_algorithm(algorithm: Algorithm) -> dict[str, Any]:
    """Name and stages as plain values.

    >>> read_algorithm(describe_algorithm(REGISTRY["maml"])) == REGISTRY["maml"]
    True
    """
    described = {
        "name": algorithm.name,
        "server": describe_stage(algorithm.server),
        "client": describe_stage(algorithm.personalise),
    }
    if algorithm.correction is not None:
        described["correction"] = describe_stage(algorithm.correction)
    return described


def describe_stage(stage: Stage) -> dict[str, Any]:
    """A stage by name, settings and, unless it is the package's own, the digest of its source."""
    if isinstance(stage, Stored):
        return {"stage": stage.name, "code": stage.code, **dict(stage.values)}
    held = {
        each.name: plain_value(getattr(stage, each.name))
        for each in fields(stage)
        if "rule" not in each.metadata
    }
    name = type(stage).__name__
    own = {} if is_built_in(type(stage)) else {"code": stage.digest()}
    return {"stage": name, **own, **held}


def is_built_in(kind: type[Stage]) -> bool:
    """Whether a stage is the package's own."""
    return STAGES.get(kind.__name__) is kind


def plain_value(value: Any) -> Any:
    """A number, a word, or an array as lists."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def read_algorithm(described: Mapping[str, Any]) -> Algorithm:
    """The described algorithm; the registered one of this name where the two are the same."""
    name = described["name"]
    known = REGISTRY.get(name) if isinstance(name, str) else None
    server = read_stage(described["server"], StoredServer, None if known is None else known.server)
    client = read_stage(
        described["client"], StoredClient, None if known is None else known.personalise
    )
    added = described.get("correction")
    scores = None
    if added is not None:
        scores = read_stage(added, StoredScores, None if known is None else known.correction)
    made = Algorithm(name, server, client, correction=scores)
    if known == made or known is None:
        return made if known is None else known
    return replace(known, server=server, personalise=client, correction=scores)


def read_stage(described: Mapping[str, Any], stored: type[Any], known: Stage | None) -> Any:
    """A stage of the package, a registered one with the same code, or one that is only a name."""
    values = dict(described)
    name, code = values.pop("stage"), values.pop("code", None)
    if code is None:
        if name not in STAGES:
            raise InvalidInput(f"the stage {name!r} is none of {', '.join(STAGES)}: save it again")
        return STAGES[name](**values)
    if known is not None and type(known).__name__ == name and known.digest() == code:
        return type(known)(**values)
    return stored(str(name), tuple(values.items()), str(code))


def describe_brought(names: Iterable[str]) -> str | None:
    """Those of these algorithms that are not the package's own, as JSON; None: there are none."""
    brought = [
        describe_algorithm(REGISTRY[name]) for name in names if not REGISTRY.is_built_in(name)
    ]
    return json.dumps(brought, indent=2) + "\n" if brought else None


def remember_brought(folder: Path) -> None:
    """Know the names of algorithms that a folder of results describes, without importing any."""
    file = folder / ALGORITHMS
    if not file.is_file():
        return
    try:
        described = json.loads(file.read_text(encoding="utf-8"))
        for each in described:
            REGISTRY.remember(read_algorithm(each))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InvalidInput(
            f"{file} is damaged: run the experiment again, it goes on from here"
        ) from None
