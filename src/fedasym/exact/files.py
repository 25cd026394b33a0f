"""Exact fits in files: arrays as safetensors, everything else as JSON beside them. Whole or not at all, never unpickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, path_of
from fedasym.core.files import replacing
from fedasym.core.packages import needed

FORMAT = "fedasym fit 1"
KEY = "fedasym"  # of the file's metadata
ENDING = ".safetensors"

Arrays = Mapping[str, NDArray[Any]]


def write_arrays(path: str | Path, kind: str, arrays: Arrays, about: Mapping[str, Any]) -> Path:
    """Write arrays and what is said about them; the name must end in .safetensors."""
    where = path_of("path", path)
    if where.suffix != ENDING:
        raise InvalidInput(f"path is {str(path)!r}: its name must end in {ENDING}")
    library = needed("safetensors.numpy", "a .safetensors file")
    held = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    text = json.dumps({"format": FORMAT, "kind": kind, **about})
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        with replacing(where) as fresh:
            fresh.write_bytes(library.save(held, metadata={KEY: text}))
    except OSError as reason:
        raise InvalidInput(f"path is {str(path)!r}: it cannot be written: {reason.strerror or reason}") from None
    return where


def read_arrays(path: str | Path, kind: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """What `write_arrays` wrote of this kind."""
    where = path_of("path", path)
    safetensors = needed("safetensors", "a .safetensors file")
    try:
        with safetensors.safe_open(str(where), framework="numpy") as file:
            about = json.loads((file.metadata() or {})[KEY])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        if about.pop("format") != FORMAT or about.pop("kind") != kind:
            raise ValueError
    except (OSError, KeyError, ValueError, TypeError, AttributeError, RecursionError, safetensors.SafetensorError):
        raise InvalidInput(f"{where} is no {kind} that fedasym saved: name the file that save wrote") from None
    if not all(array.dtype.kind in "fiu" and np.isfinite(array[~np.isinf(array)]).all() for array in arrays.values()):
        raise InvalidInput(f"{where} holds something that is no number: save the {kind} again")
    return arrays, about
