"""LEAF's JSON layout, {"users": [...], "num_samples": [...], "user_data": {user: {"x": [...], "y": [...]}}}, file by file."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, MissingColumn, MissingValues, UnreadableFile
from fedasym.data.sets.gathering import Fields, Part, Source, listed, numbers

KEYS = ("users", "num_samples", "user_data")


def parts(sources: Sequence[Source], fields: Fields) -> Generator[Part, None, None]:
    """Every user's samples; users without any are left out."""
    label, features = fields.of_client_files()
    names = (features or "x", "y" if label == "label" else label)
    for source in sources:
        for user, count, data in users(source.file):
            if count:
                x, y = (values(source.file, user, data, name, count) for name in names)
                yield Part(source.file, user, numbers(x, f"{source.file}: user {user!r}, field {names[0]!r}"), y, source.kind)


def users(file: Path) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Each user's name, number of samples and data."""
    try:
        held = json.loads(file.read_bytes())
    except (ValueError, RecursionError, OSError) as reason:
        raise UnreadableFile(f"{file}: it cannot be read as JSON: {reason}") from None
    missing = [key for key in KEYS if not isinstance(held, dict) or key not in held]
    if missing:
        found = listed(held) if isinstance(held, dict) else f"a {type(held).__name__}"
        raise UnreadableFile(f"{file}: {missing[0]!r} is missing, and there is {found}: LEAF's JSON has {', '.join(KEYS)}")
    names, counts, data = (held[key] for key in KEYS)
    if not isinstance(names, list) or not isinstance(counts, list) or not isinstance(data, dict) or len(names) != len(counts):
        raise InvalidInput(f"{file}: 'users' and 'num_samples' must be lists of one length, and 'user_data' an object by user")
    unlisted = sorted(set(data) - {name for name in names if isinstance(name, str)})
    if unlisted:
        raise InvalidInput(f"{file}: user {unlisted[0]!r} has data and is not among 'users': list all or none of a user")
    for name, count in zip(names, counts, strict=True):
        if isinstance(name, str) and any("\ud800" <= letter <= "\udfff" for letter in name):
            raise InvalidInput(f"{file}: user {name!r} has half a character in its name: write Unicode")
        if not isinstance(name, str) or not isinstance(data.get(name), dict):
            raise InvalidInput(f"{file}: user {name!r} has no object in 'user_data': there are {listed(data)}")
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise InvalidInput(f"{file}: user {name!r}, 'num_samples' is {count!r}: it must be a whole number of at least 0")
        yield name, count, data.pop(name)  # let go once read


def values(file: Path, user: str, data: dict[str, Any], name: str, count: int) -> NDArray[Any]:
    """A field as an array with one entry per sample."""
    where = f"{file}: user {user!r}, field {name!r}"
    held = data.get(name)
    if not isinstance(held, list):
        raise MissingColumn(f"{where} is missing or no list, and there is {listed(data)}")
    if len(held) != count:
        raise InvalidInput(f"{where} has {len(held)} samples where 'num_samples' says {count}: write the file again")
    for row, entry in enumerate(held):
        if isinstance(entry, list) != isinstance(held[0], list) or (isinstance(entry, list) and len(entry) != len(held[0])):
            size = f"a list of {len(entry)}" if isinstance(entry, list) else repr(entry)
            raise InvalidInput(f"{where}, row {row} is {size}, unlike row 0: give every sample the same shape")
        if entry is None or isinstance(entry, dict):
            raise MissingValues(f"{where}, row {row} is {entry!r}: drop or fill that sample first")
    if any(isinstance(entry, str) for entry in held):
        return np.array(held, dtype=object)  # else numpy would turn numbers beside text into text
    try:
        return np.asarray(held)
    except ValueError:
        raise InvalidInput(f"{where} holds lists of unlike lengths: give every sample the same shape") from None
