"""Histories in files: heads and what was counted as safetensors, the rest as JSON beside them;
whole or not at all. And the states of runs that are not finished, from which these go on.

A file has all that predicting takes, the shared head and every client's own, and nothing of the
samples. A stage of the user's own is a function, which no file keeps: what was trained with it
predicts and prints, and trains no more.
"""

from __future__ import annotations

import json
import time
import zlib
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from typing import Protocol as Role

import numpy as np
from numpy.typing import NDArray

from fedasym.algorithms.registry import describe_algorithm, read_algorithm
from fedasym.core import __version__
from fedasym.core.errors import InvalidInput, import_package, path_of, unknown_name
from fedasym.core.numbers import json_value
from fedasym.core.privacy import read_privacy
from fedasym.core.runtime import refuse_unwritable, replace_file
from fedasym.data.files import KEY, check_file
from fedasym.data.samples import owners_of
from fedasym.data.shards import ClientNames, ShardedFederation
from fedasym.training.convergence import Exact
from fedasym.training.plans import PrivacySpent
from fedasym.training.settings import Protocol, Settings, named_settings
from fedasym.training.wording import COLUMNS

if TYPE_CHECKING:
    from fedasym.training.evaluation import RunOutcome
    from fedasym.training.history import History
    from fedasym.training.runner import State

FORMAT = "fedasym history 1"
COUNTED = ("rounds", "correct", "losses", "shared_correct", "shared_losses", "totals")
OPTIONAL = ("shared", "training_losses", "shared_training_losses")
BROKEN = (OSError, KeyError, ValueError, TypeError, AttributeError, RecursionError, OverflowError)


@dataclass(frozen=True, eq=False)
class Roster:
    """What a saved history knows of its federation: clients and what they predict, no sample."""

    clients: tuple[Any, ...]
    classes: tuple[Any, ...] | None
    dimension: int
    outputs: int
    names: tuple[str, ...] | None
    training: NDArray[np.int64]  # (m,) samples

    @property
    def task(self) -> str:
        """Either "classification" or "regression"."""
        return "regression" if self.classes is None else "classification"

    @cached_property
    def position(self) -> dict[Any, int]:
        """Where each client stands."""
        return {client: place for place, client in enumerate(self.clients)}

    def counts(self, split: str) -> NDArray[np.int64]:
        """Each client's training samples; of other splits the history counts the predictions."""
        if split != "train":
            raise InvalidInput(
                f"split is {split!r}: a saved history knows its training samples; see its totals"
            )
        return self.training

    def place(self, client: Any) -> int:
        """Where a client stands; refuses one that is not there."""
        found = self.position.get(client) if isinstance(client, str | int) else None
        if found is None:
            known = [str(each) for each in self.clients[:20]]
            more = len(self.clients) - len(known)
            raise unknown_name("client", client, known if more <= 0 else [*known, f"{more} more"])
        return found


def tabulate_history(history: History) -> dict[str, Any]:
    """A run in plain values: what it was, statistics by round, counts [round][client][split]."""
    many = isinstance(history.federation, ShardedFederation)  # write_clients has what was counted
    counted = () if many else ("correct", "losses", "shared_correct", "shared_losses")
    return {
        "algorithm": history.algorithm.name,
        "settings": named_settings(history.settings, history.algorithm),
        "protocol": asdict(history.protocol),
        "seed": history.seed,
        "task": history.task,
        "rounds": np.asarray(history.rounds).tolist(),
        "statistics": {name: json_value(getattr(history, name)) for name in COLUMNS[history.task]},
        "clients": len(history.totals) if many else list(history.federation.clients),
        "splits": ["validation", "test"],
        "totals": np.asarray(history.totals.sum(0) if many else history.totals).tolist(),
        **{name: json_value(getattr(history, name)) for name in counted},
        "diverged": history.diverged,
        "interrupted": history.interrupted,
        **({} if history.privacy is None else {"privacy": asdict(history.privacy)}),
        "notes": list(history.notes),
    }


def write_history(history: History, path: str | Path) -> Path:
    """Save to a .safetensors file."""
    place = path_of("path", path)
    if place.suffix != ".safetensors":
        raise InvalidInput(f"path is {str(place)!r}: its name must end in .safetensors")
    if not place.parent.is_dir():
        raise InvalidInput(
            f"path is {str(place)!r}: the folder {str(place.parent)!r} does not exist; make it"
            " first"
        )
    if isinstance(history.federation, ShardedFederation):
        raise InvalidInput(
            f"path is {str(place)!r}: the clients are on disk, since there are many, and a saved"
            " history holds every client's head; write_clients keeps their numbers, and personal"
            " makes one client's head again"
        )
    library = import_package("safetensors.numpy", "a .safetensors file")
    arrays = {name: getattr(history, name) for name in (*COUNTED, *OPTIONAL)}
    arrays |= {
        "heads": np.stack([history.personal(client) for client in history.federation.clients])
    }
    arrays |= {"training": np.asarray(history.federation.counts("train"), np.int64)}
    held = {
        name: np.ascontiguousarray(array) for name, array in arrays.items() if array is not None
    }
    told = describe_history(history)
    about = json.dumps(told | {"sum": checksum(held, told)})
    with refuse_unwritable("path", place), replace_file(place) as fresh:
        fresh.write_bytes(library.save(held, metadata={KEY: about}))
    return place


def write_client_columns(
    path: str | Path, clients: Sequence[Any], columns: Mapping[str, NDArray[Any]]
) -> Path:
    """Numbers by client as a Parquet file."""
    place = path_of("path", path)
    if place.suffix != ".parquet":
        raise InvalidInput(f"path is {str(place)!r}: its name must end in .parquet")
    pl = import_package("polars", "a .parquet file")
    named = clients.column if isinstance(clients, ClientNames) else pl.Series(list(clients))
    frame = pl.DataFrame({"client": named} | {name: pl.Series(c) for name, c in columns.items()})
    with refuse_unwritable("path", place), replace_file(place) as fresh:
        frame.write_parquet(fresh)
    return place


def describe_history(history: History) -> dict[str, Any]:
    """What the arrays do not say."""
    federation = history.federation
    return {
        "format": FORMAT,
        "algorithm": describe_algorithm(history.algorithm),
        "settings": asdict(history.settings),
        "protocol": asdict(history.protocol),
        "seed": history.seed,
        "split": history.split,
        "privacy": None if history.privacy is None else asdict(history.privacy),
        "diverged": history.diverged,
        "interrupted": history.interrupted,
        "exact": (
            None
            if history.exact is None
            else {name: finite_or_none(value) for name, value in asdict(history.exact).items()}
        ),
        "clients": list(federation.clients),
        "classes": None if federation.classes is None else list(federation.classes),
        "names": None if federation.names is None else list(federation.names),
        "dimension": federation.dimension,
        "outputs": federation.outputs,
    }


def finite_or_none(value: float) -> float | None:
    """A number for JSON, which has no NaN."""
    return value if np.isfinite(value) else None


def checksum(arrays: Mapping[str, NDArray[Any]], told: Mapping[str, Any]) -> int:
    """CRC-32 over all arrays and words, by which a damaged or edited file is recognised."""
    total = zlib.crc32(json.dumps(told, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        total = zlib.crc32(f"{name} {array.dtype.name} {array.shape}".encode(), total)
        total = zlib.crc32(np.ascontiguousarray(array).data.cast("B") if array.size else b"", total)
    return total


def read_history(path: str | Path) -> dict[str, Any]:
    """The fields of the history that `write_history` saved."""
    place = path_of("path", path)
    check_file(place)
    safetensors = import_package("safetensors", "a .safetensors file")
    try:
        with safetensors.safe_open(str(place), framework="numpy") as file:
            about = json.loads((file.metadata() or {})[KEY])
            if about["format"] != FORMAT:
                raise ValueError
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if (
            checksum(arrays, {name: value for name, value in about.items() if name != "sum"})
            != about["sum"]
        ):
            raise ValueError
        return fields_in(about, arrays)
    except (*BROKEN, safetensors.SafetensorError):
        raise InvalidInput(
            f"path is {str(place)!r}: this is not a history that save wrote, or it was damaged;"
            " name a file of History.save"
        ) from None


def fields_in(about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """The fields, checked; a ValueError or its like where they do not fit together."""
    roster = roster_in(about, arrays["training"])
    algorithm = read_algorithm(about["algorithm"])
    protocol = protocol_in(about["protocol"])
    m, rounds = len(roster.clients), len(arrays["rounds"])
    head = (roster.dimension + protocol.intercept, roster.outputs)
    # which class shares are added to
    last = protocol.intercept or algorithm.correction is not None
    shapes = dict.fromkeys(COUNTED, (rounds, m, 2)) | {
        "rounds": (rounds,),
        "totals": (m, 2),
        "heads": (m, roster.dimension + last, roster.outputs),
    }
    shapes |= {
        "shared": head,
        "training_losses": (rounds, m),
        "shared_training_losses": (rounds, m),
    }
    for each, shape in shapes.items():
        if each in arrays or each not in OPTIONAL:
            kind = "iu" if each in ("rounds", "totals") else "f"
            if arrays[each].shape != shape or arrays[each].dtype.kind not in kind:
                raise ValueError
    exact = about["exact"]
    whole = {key: about[key] for key in ("seed", "split", "diverged")}
    if (
        not rounds
        or not all(each is None or type(each) is int for each in whole.values())
        or whole["seed"] is None
    ):
        raise ValueError
    return {
        "algorithm": algorithm,
        "settings": settings_in(about["settings"]),
        "protocol": protocol,
        **whole,
        "interrupted": bool(about["interrupted"]),
        "privacy": read_spent_privacy(about.get("privacy")),
        "federation": roster,
        "exact": (
            None
            if exact is None
            else Exact(**{key: amount_in(value) for key, value in exact.items()})
        ),
        **{each: arrays[each] for each in COUNTED},
        **{each: arrays.get(each) for each in OPTIONAL},
        "heads": arrays["heads"],
    }


def settings_in(held: Mapping[str, Any]) -> Settings:
    """The settings that were saved."""
    own = tuple((str(name), value) for name, value in held["own"])
    return Settings(**{**held, "own": own, "privacy": read_privacy(held.get("privacy"))})


def read_spent_privacy(held: Mapping[str, Any] | None) -> PrivacySpent | None:
    """What a saved run had spent."""
    if held is None:
        return None
    found = PrivacySpent(**held)
    numbers = (found.epsilon, found.delta, found.noise_multiplier, found.clip, found.clipped)
    if not all(isinstance(each, int | float) for each in (*numbers, found.clients)):
        raise ValueError
    return found


def amount_in(value: Any) -> float:
    """A number, NaN for none."""
    return float("nan") if value is None else float(value)


def protocol_in(held: Mapping[str, Any]) -> Protocol:
    """The protocol that was saved."""
    found = Protocol(**held)
    for each in fields(Protocol):
        value = getattr(found, each.name)
        if not isinstance(value, {"str": str, "bool": bool}.get(str(each.type), int | float)):
            raise ValueError
    return found


def roster_in(about: Mapping[str, Any], training: NDArray[Any]) -> Roster:
    """Who was trained."""
    clients, classes, names = about["clients"], about["classes"], about["names"]
    if not isinstance(clients, list) or owners_of(clients).names != tuple(clients):
        raise ValueError
    sizes = about["dimension"], about["outputs"]
    if not all(type(each) is int and each > 0 for each in sizes) or training.shape != (
        len(clients),
    ):
        raise ValueError
    if names is not None and (
        len(names) != sizes[0] or not all(isinstance(each, str) for each in names)
    ):
        raise ValueError
    if classes is not None and (
        len(classes) != sizes[1] or not all(isinstance(each, str | int | float) for each in classes)
    ):
        raise ValueError
    if training.dtype.kind not in "iu":
        raise ValueError
    return Roster(
        tuple(clients),
        None if classes is None else tuple(classes),
        *sizes,
        None if names is None else tuple(names),
        training,
    )


EVERY = 1.0  # seconds between two states that are kept


class StateFolder(Role):
    """Where states are kept: a run folder."""

    def keep_state(self, name: str, arrays: dict[str, Any]) -> None:
        """Keep named arrays."""

    def state(self, name: str) -> dict[str, Any] | None:
        """Those that were kept, whole; None where there are none."""


class States:
    """The states of a piece in its run folder, from which a killed driver goes on: one file has the
    last state of some trajectories, and one for each test what was measured.
    """

    def __init__(self, folder: StateFolder, key: str, say: Callable[[str], None]) -> None:
        self.folder, self.key, self.say = folder, key, say
        self.slab, self.tests, self.saved = -1, 0, 0.0

    def name(self, test: int | None = None) -> str:
        """Of a file."""
        return f"{self.key}.{self.slab}" + ("" if test is None else f".{test}")

    def resume(self, state: State, outcomes: Sequence[RunOutcome]) -> tuple[int, State]:
        """The last state of the next trajectories, outcomes filled in; else 0 and the one given."""
        import jax  # a history that is read needs none

        from fedasym.training.heads import put_on_device

        self.slab += 1
        self.tests, self.saved = 0, time.monotonic()
        leaves, form = jax.tree.leaves(state), jax.tree.structure(state)
        held = self.folder.state(self.name()) or {}
        if str(held.get("version")) != __version__ or not {"tests", "round"} <= held.keys():
            return 0, state
        tests = [self.folder.state(self.name(test)) for test in range(int(held["tests"]))]
        kept = [held[f"leaf{at}"] for at in range(len(leaves)) if f"leaf{at}" in held]
        shapes = [[(each.shape, each.dtype) for each in some] for some in (kept, leaves)]
        last = f"{len(outcomes) - 1}.numbers"
        if shapes[0] != shapes[1] or any(last not in (test or {}) for test in tests):
            return 0, state
        for test in filter(None, tests):
            for at, each in enumerate(outcomes):
                each.add_described(test, f"{at}.")
        self.tests = len(tests)
        self.say(f"goes on after round {held['round']}")
        return int(held["round"]), jax.tree.unflatten(form, list(map(put_on_device, kept)))

    def keep(self, round_: int, state: State, outcomes: Sequence[RunOutcome]) -> None:
        """Keep a state, once in a while and after every test."""
        tests = len(outcomes[0].rounds)
        if tests == self.tests and time.monotonic() < self.saved + EVERY:
            return
        for test in range(self.tests, tests):
            added = [each.describe_test(test, f"{at}.") for at, each in enumerate(outcomes)]
            self.folder.keep_state(self.name(test), dict(ChainMap(*added)))
        import jax

        leaves = {f"leaf{at}": np.asarray(leaf) for at, leaf in enumerate(jax.tree.leaves(state))}
        numbers = {"round": round_, "tests": tests, "version": __version__}
        self.folder.keep_state(self.name(), leaves | numbers)
        self.tests, self.saved = tests, time.monotonic()
