"""The client data of an experiment: found and read, cut to size, and known by a fingerprint."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedasym.core.errors import InvalidInput
from fedasym.data.federation import Federation
from fedasym.data.splits import SPLITS
from fedasym.training.convergence import columns_out_of_scale, curvature
from fedasym.training.settings import Settings

if TYPE_CHECKING:
    from fedasym.experiments.fields import Data


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
    ValueError: it is no record of data
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
        raise ValueError("it is no record of data")
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
        from fedasym.pretraining.recipes import features_file

        return Federation.from_safetensors(features_file(data.features))
    from fedasym import data as datasets

    if data.synthetic is not None:
        return datasets.synthetic(**data.synthetic.model_dump(exclude_none=True))
    from fedasym.experiments.fields import TABLES

    assert data.file is not None
    named: dict[str, Any] = {
        name: getattr(data, name) for name in ("label", "client", "split", "task", *TABLES)
    }
    if data.columns is not None:
        named["features"] = data.columns[0] if len(data.columns) == 1 else list(data.columns)
    told = {name: value for name, value in named.items() if value is not None}
    return datasets.read(Path(data.file), seed=data.seed, **told)


def first_clients(federation: Federation, count: int | None) -> Federation:
    """The first so many clients, all classes kept.

    >>> first_clients(Federation.from_arrays(np.eye(4), [0, 1, 2, 0], clients=list("aabb")), 1)
    Federation: 1 client · classification · 4 features · 3 classes
    samples: 2, a client has 2 to 2, median 2
    split: train 1, validation 0, test 1
    """
    if count is None or count >= len(federation):
        return federation
    rows = slice(0, int(federation.starts[count]))
    mask = None if federation.mask is None else federation.mask[rows]
    return replace(
        federation,
        features=federation.features[rows],
        labels=federation.labels[rows],
        clients=federation.clients[:count],
        owner=federation.owner[rows],
        split=federation.split[rows],
        mask=mask,
        truth=None,  # what it says of the clients that are left out would not fit
    )


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
        split=digest(federation.split),
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
    """SHA-256 of all that training reads of the samples, but for their split."""
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
