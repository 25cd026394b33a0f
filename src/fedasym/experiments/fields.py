"""The fields of experiment files: tables as pydantic models, grids to tune over, TOML; and the
client data that they name: read, cut to size, and known by a fingerprint.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

import numpy as np

from fedasym.algorithms import GRIDS, TRAINED, Algorithm
from fedasym.algorithms.registry import REGISTRY
from fedasym.core.errors import InvalidInput, MissingPackage, unknown_name
from fedasym.core.privacy import Privacy, read_privacy
from fedasym.data.federation import Federation
from fedasym.data.shards import ShardedFederation
from fedasym.data.splits import SPLITS
from fedasym.training.convergence import columns_out_of_scale, curvature
from fedasym.training.settings import (
    ABOUT,
    RATES,
    SETTINGS,
    SIZES,
    Protocol,
    Settings,
    default_for,
    find_algorithms,
    grid_of,
    own_settings,
    read_grid,
    resolve_protocol,
)

if TYPE_CHECKING:
    from fedasym.experiments import Experiment

try:
    from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, create_model
    from pydantic import model_validator as model
except ImportError:
    raise MissingPackage("experiments need pydantic: pip install 'fedasym[experiments]'") from None

# whose gain over the epochs of personalization the paper shows
PERSONALISED = ("ftfa", "maml_fo", "maml_hf")
MOST = 100_000  # trials that a number alone may ask for: a slip of the finger is no experiment
BATCH = "batch"  # personalization by a single batch, among numbers of epochs


def number_trials(value: Any) -> Any:
    """A count n as 1, 2, ..., n; or the numbers themselves."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        if value > MOST:
            raise ValueError(f"it must be at most {MOST:,}")
        return tuple(range(1, value + 1))
    if not isinstance(value, list | tuple) or any(
        isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in value
    ):
        raise ValueError(
            "it must be how many, numbered from 1, or a list of whole numbers of at least 0"
        )
    if len(set(value)) < len(value):
        raise ValueError("a number occurs in it twice: give each once")
    return tuple(value)


def epoch_list(value: Any) -> Any:
    """Numbers of epochs, and the word for a single batch."""
    whole = isinstance(value, list | tuple) and all(
        each == BATCH or (isinstance(each, int) and not isinstance(each, bool) and each >= 0)
        for each in value
    )
    if not whole or set(value) <= {BATCH} or len(set(value)) < len(value):
        raise ValueError(
            f'it must be a list of different whole numbers of at least 0, to which "{BATCH}" may be'
            " added"
        )
    return tuple(value)


def list_schema(of: dict[str, Any]) -> dict[str, Any]:
    """The schema of a list."""
    return {"type": "array", "items": of}


WHOLE = {"type": "integer", "minimum": 0}
Numbers = Annotated[
    tuple[int, ...],
    BeforeValidator(number_trials),
    WithJsonSchema({"anyOf": [WHOLE, list_schema(WHOLE)]}),
]
Epochs = Annotated[
    tuple[int | str, ...],
    BeforeValidator(epoch_list),
    WithJsonSchema(list_schema({"anyOf": [WHOLE, {"const": BATCH}]})),
]
Names = Annotated[tuple[str, ...], Field(strict=False)]
Fractions = Annotated[tuple[float, float, float], Field(strict=False)]


class Part(BaseModel):
    """A table of an experiment file: nothing but its fields, each of its own type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Synthetic(Part):
    """Drawn clients: the options of `fedasym.datasets.synthetic`."""

    task: Literal["classification", "regression"] | None = None
    clients: int | None = None
    samples: int | None = None
    dimension: int | None = None
    radius: float | None = None
    noise: float | None = None
    norm: float | None = None
    centre: float | None = None
    classes: int | None = None
    flips: float | None = None
    aspect: float | None = None
    alpha: float | None = None
    beta: float | None = None
    positions: int | None = None
    split: Fractions | None = None
    seed: int = 0


TABLES = ("scale", "missing", "roles", "dates", "intercept", "encoding")  # what is said of a table


class Data(Part):
    """Which client data: one of `features`, `file` and `synthetic`."""

    features: str | None = Field(
        None, description="A data set by name: its newest file of features (fedasym features NAME)."
    )
    file: str | None = Field(
        None,
        description="A file or folder that fedasym.datasets.read takes; relative to this file.",
    )
    synthetic: Synthetic | None = None
    label: str | None = Field(None, description="Of `file`: the column of the labels.")
    client: str | None = Field(None, description="Of `file`: the column of the clients.")
    columns: Names | None = Field(None, description="Of `file`: the columns of the features.")
    split: str | None = Field(
        None, description="Of `file`: the column that says train, validation or test."
    )
    task: Literal["classification", "regression"] | None = None
    scale: Literal["standard", "none"] | None = Field(
        None, description="Of a table: whether numbers are centred and scaled."
    )
    missing: Literal["error", "drop", "mean", "indicator"] | None = Field(
        None, description="Of a table: what becomes of rows with missing values."
    )
    roles: dict[str, str] | None = Field(
        None, description='Of a table: columns and their roles, such as zip = "ignore".'
    )
    dates: Literal["ignore", "number"] | None = Field(
        None, description="Of a table: whether dates serve as numbers."
    )
    intercept: bool | None = Field(
        None, description="Of a file: whether models of it have an intercept."
    )
    encoding: str | None = Field(
        None, description='Of a text table that is not UTF-8: how it was saved, such as "cp1252".'
    )
    seed: int = Field(0, description="Of `file`: deals out the split where the file has none.")
    clients: int | None = Field(None, description="Use this many clients, the first ones.", ge=1)

    @model(mode="after")
    def _one_source(self) -> Self:
        given = [
            name for name in ("features", "file", "synthetic") if getattr(self, name) is not None
        ]
        if len(given) != 1:
            told = f"{' and '.join(given)} are both given" if given else "nothing says which data"
            raise InvalidInput(f"{told}: give one of features, file and synthetic")
        for name in ("label", "client", "columns", "split", "task", *TABLES):
            if self.file is None and getattr(self, name) is not None:
                raise InvalidInput(
                    f"{name} is given, which is for a file: leave it out, or give file instead of"
                    f" {given[0]}"
                )
        return self


def number_field(name: str) -> tuple[Any, Any]:
    """A setting of training as a field; None where the data or the algorithm choose it."""
    about = ABOUT[name]
    default = default_for(name)
    kind: Any = int if about.whole else float
    return (kind if default is not None else kind | None), Field(default, description=about.meaning)


TrainingNumbers: Any = create_model(
    "TrainingNumbers",
    __base__=Part,
    **dict[str, Any]({name: number_field(name) for name in SETTINGS}),
)


PrivacyFields: Any = create_model(
    "PrivacyFields",
    __base__=Part,
    **dict[str, Any]({each.name: (each.type, each.default) for each in fields(Privacy)}),
)


class Budget(PrivacyFields):  # type: ignore[misc]
    """Client-level differential privacy of every training, as `fedasym.Privacy` has it."""

    @model(mode="after")
    def _in_range(self) -> Self:
        read_privacy(self.model_dump())
        return self


class SettingsTable(TrainingNumbers):  # type: ignore[misc]
    """What every run is told, as `fedasym.train` takes it; a grid varies some of it.

    What is chosen for the data, the intercept and the steps where no protocol is named, is put in
    by `run` (`settle_choices`).
    """

    protocol: Literal["text", "code"] | None = None
    intercept: bool | None = None
    precision: Literal["float32", "float64", "mixed", "bfloat16"] = "float32"
    privacy: Budget | None = None

    @model(mode="after")
    def _in_range(self) -> Self:
        others = {"protocol", "intercept", "precision", "privacy"}
        Settings(**self.model_dump(exclude=others, exclude_none=True))
        return self

    @property
    def rules(self) -> Protocol:
        """The protocol with its intercept, as far as it is known without the data."""
        return resolve_protocol(self.protocol, self.intercept)


class Trials(Part):
    """How often the choice is repeated: seeds of training, and reshuffled splits."""

    seeds: Numbers = tuple(range(1, 12))
    splits: Numbers = ()


class Gains(Part):
    """Runs that show personalization's gains: one shared model after several numbers of epochs."""

    algorithms: Names = PERSONALISED
    epochs: Epochs = (0, BATCH, 1, 2, 5, 10)
    seeds: Numbers = tuple(range(1, 6))


Axes = dict[str, tuple[int | float, ...]]
Grid = dict[str, Axes]
Values = dict[str, int | float]
# what a grid may vary
TUNED = tuple(name for name in (*RATES, *SIZES) if name not in ("rounds", "evaluate_every"))
ARRAY = {"type": "array", "items": {"type": "number"}, "minItems": 1}
TABLE = {"type": "object", "additionalProperties": ARRAY}
GRID_SCHEMA = {
    "anyOf": [{"const": "paper"}, TABLE, {"type": "object", "additionalProperties": TABLE}],
    "description": (
        'Values to try: "paper", settings for all algorithms that use them, or settings by'
        " algorithm."
    ),
}


def complete_grid(grid: Any, names: Sequence[str]) -> Grid:
    """The values that each algorithm tries, checked; an algorithm without any has its one
    configuration.

    >>> complete_grid({"server_step": [0.1, 1]}, ["local", "fedavg"])
    {'local': {}, 'fedavg': {'server_step': (0.1, 1.0)}}
    """
    if isinstance(grid, str):
        if grid != "paper":
            raise unknown_name("grid", grid, ["paper"])
        if missing := [name for name in names if name in TRAINED and name not in GRIDS]:
            raise InvalidInput(
                f"the paper has no grid for {missing[0]}: give one for each algorithm instead of"
                ' "paper"'
            )
        grid = {name: REGISTRY[name].default_grid() for name in names}
    tried = read_grid(grid)
    algorithms = find_algorithms(names)[0]
    return {
        algorithm.name: check_grid(grid_of(algorithm, algorithms, tried), algorithm)
        for algorithm in algorithms
    }


def check_grid(axes: Mapping[str, Iterable[Any]], algorithm: Algorithm) -> Axes:
    """One algorithm's values, each once, typed and in one order: equal grids, equal pieces."""
    own = own_settings(algorithm)
    for name in axes:
        if name not in TUNED and name not in own:
            raise InvalidInput(f"grid has {name}, which is the same for all: set it under settings")

    def value_of(name: str, value: Any) -> Any:
        return own[name].check(value) if name in own else getattr(Settings(**{name: value}), name)

    return {
        name: tuple(dict.fromkeys(value_of(name, value) for value in axes[name]))
        for name in (*TUNED, *own)
        if name in axes
    }


def combinations(axes: Axes) -> list[Values]:
    """Every configuration of a grid, the last setting varying fastest.

    >>> combinations({"server_step": (0.1, 1.0), "ridge": (2.0,)})
    [{'server_step': 0.1, 'ridge': 2.0}, {'server_step': 1.0, 'ridge': 2.0}]
    """
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


BARE = re.compile(r"[A-Za-z0-9_-]+")


def read_toml(path: Path) -> dict[str, Any]:
    """What a file says, its data file found from where it is."""
    try:
        held = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidInput(f"{path}: there is no such file; check the name") from None
    except OSError as reason:
        raise InvalidInput(f"{path}: it cannot be read: {reason.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{path}: this is not text in UTF-8; give a TOML file") from None
    except (
        ValueError,
        RecursionError,
    ) as reason:  # a number of more digits than Python reads is a plain ValueError
        raise InvalidInput(f"{path}: this is not TOML: {reason}") from None
    data = held.get("data")
    if isinstance(data, dict) and isinstance(data.get("file"), str):
        data["file"] = str(path.absolute().parent / Path(data["file"]).expanduser())
    return held


def write_toml(experiment: Experiment) -> str:
    """An experiment as TOML, defaults included, so that later defaults change nothing."""
    held = experiment.model_dump(exclude_none=True)
    for table, field in (("trials", "seeds"), ("trials", "splits"), ("gains", "seeds")):
        if table in held:
            held[table][field] = shorten_numbers(held[table][field])
    return "\n".join(lines_of(held, ())) + "\n"


def shorten_numbers(numbers: tuple[int, ...]) -> int | tuple[int, ...]:
    """1, ..., n as n: the shorter way to write it.

    >>> shorten_numbers((1, 2, 3)), shorten_numbers((2, 3))
    (3, (2, 3))
    """
    return len(numbers) if numbers == tuple(range(1, len(numbers) + 1)) else numbers


def lines_of(table: dict[str, Any], path: tuple[str, ...]) -> list[str]:
    """A table's own values, then the tables in it: in TOML nothing can be added to a table after
    another has begun.

    >>> lines_of({"grid": {"ftfa": {"ridge": (0.1, 1)}}, "name": "a"}, ())
    ['name = "a"', '', '[grid.ftfa]', 'ridge = [0.1, 1]']
    """
    own = {name: value for name, value in table.items() if not isinstance(value, dict)}
    inner = {name: value for name, value in table.items() if isinstance(value, dict)}
    head = ["", f"[{'.'.join(map(toml_key, path))}]"] if path and (own or not inner) else []
    lines = [*head, *(f"{toml_key(name)} = {toml_value(value)}" for name, value in own.items())]
    for name, value in inner.items():
        lines += lines_of(value, (*path, name))
    return lines


def toml_key(name: str) -> str:
    """A key, in quotes where it needs them."""
    return name if BARE.fullmatch(name) else toml_value(name)


def toml_value(value: Any) -> str:
    """A value: JSON's strings are TOML's, but for the control character that JSON leaves."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value) if isinstance(value, bool) else repr(value)


FORMAT = "fedasym data 1"


class Record(NamedTuple):
    """What results need to know of the data once they are computed; a run folder keeps it."""

    format: str
    samples: str  # SHA-256 of all but the split
    split: str
    splits: dict[str, str]  # of the reshuffled federations, by their number
    task: str
    clients: list[str]
    training: list[int]  # samples that a client trains on
    counts: dict[str, int]
    dimension: int
    outputs: int
    # the largest of a client's training loss with an intercept, in regression
    curvature: float | None = None
    # columns far larger than the others, and their usual size
    out_of_scale: dict[str, float] | None = None


def read_record(text: str) -> Record:
    """The record that a file keeps; a `ValueError` where it is not whole, whatever is wrong with
    it.

    >>> read_record('{"format": "fedasym data 1"}')
    Traceback (most recent call last):
    ...
    ValueError: it is not a record of data
    """
    try:
        held = Record(**json.loads(text))
        json.dumps(
            held, ensure_ascii=False
        ).encode()  # a ValueError for half a character, which JSON can hold and no file
        whole = (
            held.format == FORMAT
            and held.task in ("classification", "regression")
            and all(
                isinstance(each, str)
                for each in (held.samples, held.split, *held.splits.values(), *held.clients)
            )
            and all(
                is_whole_number(each)
                for each in (*held.training, *held.counts.values(), held.dimension, held.outputs)
            )
            and len(held.clients) == len(held.training)
            and set(held.counts) == set(SPLITS)
            and all(is_amount(each) for each in (held.out_of_scale or {}).values())
            and (held.curvature is None or is_amount(held.curvature))
        )
    except (TypeError, AttributeError, RecursionError):
        whole = False
    if not whole:
        raise ValueError("it is not a record of data")
    return held


def is_whole_number(value: Any) -> bool:
    """Whether it is a number of samples, or of features."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def is_amount(value: Any) -> bool:
    """Whether it is a finite number of at least 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def load_data(data: Data | None) -> Federation:
    """The federation that an experiment names."""
    if data is None:
        raise InvalidInput(
            "data is missing: the experiment names none; give it a [data] table, or a federation to"
            " run on"
        )
    return first_clients(read_source(data), data.clients)


def read_source(data: Data) -> Federation:
    """All clients of the source."""
    if data.features is not None:
        from fedasym.pretraining import features_file

        return Federation.from_safetensors(features_file(data.features))
    from fedasym import data as datasets

    if data.synthetic is not None:
        return datasets.synthetic(**data.synthetic.model_dump(exclude_none=True))
    assert data.file is not None
    named: dict[str, Any] = {
        name: getattr(data, name) for name in ("label", "client", "split", "task", *TABLES)
    }
    if data.columns is not None:
        named["features"] = data.columns[0] if len(data.columns) == 1 else list(data.columns)
    told = {name: value for name, value in named.items() if value is not None}
    return datasets.read(data.file, seed=data.seed, **told)


def first_clients(federation: Federation, count: int | None) -> Federation:
    """The first so many clients, all classes kept.

    >>> first_clients(Federation.from_arrays(np.eye(4), [0, 1, 2, 0], clients=list("aabb")), 1)
    Federation: 1 client · classification · 4 features · 3 classes
    samples: 2, a client has 2 to 2, median 2
    split: train 1, validation 0, test 1
    """
    if count is None or count >= len(federation):
        return federation
    return federation.take(range(count))


def record_data(federation: Federation, splits: tuple[int, ...]) -> Record:
    """Fingerprints and sizes of a federation and of its reshuffles.

    >>> federation = Federation.from_arrays(np.eye(20), np.arange(20) % 2, clients=[1] * 20)
    >>> record = record_data(federation, (1, 2))
    >>> len({record.split, *record.splits.values()}), record.counts
    (3, {'train': 16, 'validation': 2, 'test': 2})
    """
    return Record(
        format=FORMAT,
        samples=fingerprint(federation),
        split=(
            federation.digest
            if isinstance(federation, ShardedFederation)
            else digest(federation.split)
        ),
        splits={
            str(number): digest(federation.resplit(number, fractions=None).split)
            for number in splits
        },
        task=federation.task,
        clients=[str(name) for name in federation.clients],
        training=federation.counts("train").tolist(),
        counts={name: int(federation.counts(name).sum()) for name in SPLITS},
        dimension=federation.dimension,
        outputs=federation.outputs,
        curvature=(
            curvature(federation, True, Settings.batch) if federation.classes is None else None
        ),
        out_of_scale=columns_out_of_scale(federation) or None,
    )


def fingerprint(federation: Federation) -> str:
    """SHA-256 of all that training reads of the samples, but for their split; of clients on disk
    the one of their index, which has it all, the split too.
    """
    if isinstance(federation, ShardedFederation):
        return federation.digest
    total = hashlib.sha256(json.dumps([federation.clients, federation.classes]).encode())
    for name in ("features", "labels", "owner", "mask", "personal"):
        array = getattr(federation, name)
        if array is not None and not (
            name == "personal" and array.all()
        ):  # all personal is what is meant without
            total.update(f"{name} {array.dtype.str} {array.shape}".encode())
            total.update(np.ascontiguousarray(array).data.cast("B"))
    return total.hexdigest()


def digest(split: Any) -> str:
    """SHA-256 of who trains, validates and tests."""
    return hashlib.sha256(np.ascontiguousarray(split).data.cast("B")).hexdigest()
