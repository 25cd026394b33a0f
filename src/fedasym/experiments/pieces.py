"""A finished piece as a file: named by what produced it, whole or not there at all, and recognised if anything touched it."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

from fedasym.core.errors import MissingPackage
from fedasym.core.files import explain_unwritable as kept
from fedasym.core.files import replace_file as replacing
from fedasym.experiments.seals import is_broken, sealed

try:
    import polars as pl
except ImportError:
    raise MissingPackage("run folders need polars: pip install 'fedasym[train]'") from None

FORMAT = "fedasym piece 1"
META = "fedasym"  # the key of the file's metadata


class Damaged(Exception):
    """A file that is not what was written; the message says what is wrong with it."""


class Finished(NamedTuple):
    """The rows of a piece, and how they were made: seconds, device, versions."""

    frame: pl.DataFrame
    made: dict[str, Any]


def canonical(value: Any) -> str:
    """JSON with one form for equal values.

    >>> canonical({"b": [1.0, 0.1], "a": None})
    '{"a":null,"b":[1.0,0.1]}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def key_of(description: dict[str, Any]) -> str:
    """The name of the piece that these words describe.

    >>> key_of({"seed": 1})[:8]
    'fbe47f6d'
    """
    return hashlib.sha256(canonical(description).encode()).hexdigest()


def total(frame: pl.DataFrame, description: str, made: str) -> str:
    """The checksum of everything in a file, its rows to the last bit."""
    rows = json.dumps([[name, str(kind)] for name, kind in frame.schema.items()]) + json.dumps(frame.to_dict(as_series=False))
    return hashlib.sha256("\n".join((FORMAT, rows, description, made)).encode()).hexdigest()


def write_piece(path: Path, frame: pl.DataFrame, description: dict[str, Any], made: dict[str, Any]) -> None:
    """Write a piece."""
    texts = canonical(description), canonical(made)
    held = {"format": FORMAT, "description": texts[0], "made": texts[1], "sum": total(frame, *texts)}
    write_frame(path, frame, metadata={META: json.dumps(held)})


def read_piece(path: Path) -> Finished:
    """Read a piece, every bit of it checked."""
    try:
        content = path.read_bytes()
        if is_broken(content):
            raise Damaged("its bytes have changed")
        held = json.loads(pl.read_parquet_metadata(io.BytesIO(content))[META])
        frame = pl.read_parquet(io.BytesIO(content))
        texts, known = (held["description"], held["made"]), (held["format"], held["sum"])
        if known != (FORMAT, total(frame, *texts)):
            raise Damaged("its checksum is another one")
        if key_of(json.loads(texts[0])) != path.stem:
            raise Damaged("it is another piece under this name")
        return Finished(frame, json.loads(texts[1]))
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        raise Damaged("it cannot be read as Parquet") from None
    except (KeyError, ValueError, TypeError):
        raise Damaged("its description is gone") from None


def write_frame(path: Path, frame: pl.DataFrame, **options: Any) -> None:
    """Write a table as Parquet with its seal; options: those of polars."""
    content = io.BytesIO()
    frame.write_parquet(content, **options)
    with kept(path), replacing(path) as fresh:
        fresh.write_bytes(sealed(content.getvalue()))
