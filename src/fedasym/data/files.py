"""Federations in files: safetensors for arrays, Parquet for other tools.

Whole or not at all, never unpickled. Of what comes from outside every field is looked at, and
nothing else is believed.
"""

from __future__ import annotations

import json
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, UnreadableFile, import_package
from fedasym.core.runtime import check_fits, refuse_unwritable, replace_file
from fedasym.data.frames import read_column
from fedasym.data.recipe import Recipe
from fedasym.data.samples import owners_of
from fedasym.data.splits import SPLITS

# NumPy parses an array's header as Python text, and allocates what it claims before it reads.
BROKEN = (
    OSError,
    EOFError,
    MemoryError,
    OverflowError,
    RuntimeError,
    SyntaxError,
    ValueError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)

FORMAT = "fedasym federation 1"
KEY = "fedasym"  # of the metadata, in both kinds of file
ARRAYS = ("features", "labels", "owner", "split", "mask")


def write_federation(
    fields: Mapping[str, Any], path: Path, notes: Mapping[str, str] | None = None
) -> Path:
    """Save by the ending of the name, whole or not at all.

    notes: further metadata, such as how the features were made; reading leaves them alone.
    """
    writers: dict[str, Callable[[Mapping[str, Any], Path, Mapping[str, str]], None]] = {
        ".safetensors": write_safetensors,
        ".parquet": write_parquet,
    }
    if path.suffix not in writers:
        raise InvalidInput(f"path is {str(path)!r}: its name must end in {' or '.join(writers)}")
    if not path.parent.is_dir():
        raise InvalidInput(
            f"path is {str(path)!r}: the folder {str(path.parent)!r} does not exist; make it first"
        )
    with refuse_unwritable("path", path), replace_file(path) as fresh:
        writers[path.suffix](fields, fresh, notes or {})
    return path


def describe_fields(fields: Mapping[str, Any]) -> str:
    """What the arrays do not say, and a checksum of what they do."""
    named = {
        "clients": list(fields["clients"]),
        "classes": None if fields["classes"] is None else list(fields["classes"]),
    }
    return json.dumps(
        {
            "format": FORMAT,
            "dtype": fields["features"].dtype.name,
            "sum": fields_checksum(fields),
            **named,
            **feature_notes(fields),
        }
    )


def feature_notes(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What is unusual about the features beside their numbers, so that older files stay whole."""
    personal = fields.get("personal")
    told = {
        "names": fields.get("names"),
        "personal": None if personal is None else np.asarray(personal).tolist(),
    }
    told |= {"intercept": None if fields.get("intercept", True) else False}
    recipe = fields.get("recipe")
    told |= {"recipe": None if recipe is None else json.loads(recipe.to_json())}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in told.items()
        if value is not None
    }


def read_feature_notes(held: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that `feature_notes` described."""
    names, recipe = held.get("names"), held.get("recipe")
    return {
        "names": tuple(names) if isinstance(names, list) else None,
        "personal": held.get("personal"),
        "intercept": held.get("intercept", True),
        "recipe": None if recipe is None else Recipe.from_json(json.dumps(recipe)),
    }


def fields_checksum(fields: Mapping[str, Any]) -> int:
    """CRC-32 over all arrays and names, by which a damaged or edited file is recognised."""
    total = zlib.crc32(
        json.dumps(
            [fields["clients"], fields["classes"], *filter(None, [feature_notes(fields)])]
        ).encode()
    )
    truth = fields.get("truth") or {}
    for name, array in [*((name, fields[name]) for name in ARRAYS), *sorted(truth.items())]:
        if array is not None:
            total = zlib.crc32(f"{name} {array.dtype.name} {array.shape}".encode(), total)
            total = zlib.crc32(np.ascontiguousarray(array).data.cast("B"), total)
    return total


def read_description(text: str | None, path: Path) -> dict[str, Any]:
    """The description of a file that `save` wrote."""
    try:
        held = json.loads(text or "")
        if (
            held["format"] != FORMAT
            or not isinstance(held["clients"], list)
            or not isinstance(held["classes"], list | None)
        ):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise UnreadableFile(
            f"path is {str(path)!r}: this is not a federation that save wrote; use from_arrays or"
            " from_frame"
        ) from None
    return dict(held)


def check_whole(fields: Mapping[str, Any], held: Mapping[str, Any], path: Path, offer: str) -> None:
    """Refuse what is not what was saved."""
    if fields_checksum(fields) != held.get("sum"):
        raise UnreadableFile(
            f"path is {str(path)!r}: the file was damaged or edited after it was saved; {offer}"
        )


def check_file(path: Path) -> None:
    """A file that is there."""
    if path.is_dir():
        raise UnreadableFile(
            f"path is {str(path)!r}: this is a folder; name a file, or read it yourself and use"
            " from_frame"
        )
    if not path.exists():
        raise UnreadableFile(f"path is {str(path)!r}: there is no such file; check the name")


def write_safetensors(fields: Mapping[str, Any], path: Path, notes: Mapping[str, str]) -> None:
    """All arrays as they are, the names in the metadata."""
    library = import_package("safetensors.numpy", "a .safetensors file")
    arrays = {name: fields[name] for name in ARRAYS if fields[name] is not None}
    arrays |= {f"truth.{name}": array for name, array in (fields["truth"] or {}).items()}
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    try:
        library.save_file(arrays, path, metadata={KEY: describe_fields(fields), **notes})
    except import_package("safetensors", "a .safetensors file").SafetensorError as reason:
        raise OSError(str(reason)) from None


def read_safetensors(path: Path) -> dict[str, Any]:
    """The fields that `write_safetensors` wrote."""
    check_file(path)
    safetensors = import_package("safetensors", "a .safetensors file")
    try:
        with safetensors.safe_open(str(path), framework="numpy") as file:
            held = read_description((file.metadata() or {}).get(KEY), path)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as reason:
        raise UnreadableFile(
            f"path is {str(path)!r}: it cannot be read as safetensors: {reason}"
        ) from None
    truth = {
        name.removeprefix("truth."): array
        for name, array in arrays.items()
        if name.startswith("truth.")
    }
    fields: dict[str, Any] = {name: arrays.get(name) for name in ARRAYS}
    fields |= {
        name: None if held[name] is None else tuple(held[name]) for name in ("clients", "classes")
    }
    fields |= {"truth": truth or None, **read_feature_notes(held)}
    if any(fields[name] is None for name in ARRAYS[:4]):
        raise UnreadableFile(
            f"path is {str(path)!r}: an array is missing from this file; save the federation again"
        )
    check_whole(fields, held, path, "save the federation again")
    return fields


def write_parquet(fields: Mapping[str, Any], path: Path, notes: Mapping[str, str]) -> None:
    """One row per sample: client, split, label by name, features (labels, mask) as fixed lists."""
    pl = import_package("polars", "a .parquet file")
    if fields["truth"] is not None:
        raise InvalidInput(
            "truth does not fit a table: save to a .safetensors file, or leave it out with"
            " dataclasses.replace"
        )
    features, labels, classes = fields["features"], fields["labels"], fields["classes"]
    try:
        clients = pl.Series(list(fields["clients"]))
        names = None if classes is None else pl.Series(list(classes))
    except (OverflowError, TypeError, pl.exceptions.PolarsError):
        raise InvalidInput(
            "a client or class is a whole number too large for Parquet: save to .safetensors"
        ) from None
    if names is not None:
        targets = names.gather(labels.ravel()).reshape(labels.shape)
    else:
        targets = pl.Series(
            np.ascontiguousarray(labels[..., 0] if labels.shape[-1] == 1 else labels)
        )
    # Few tools read half precision: it is widened, which is exact, and narrowed again on reading.
    wide = features.astype(np.float32) if features.dtype == np.float16 else features
    columns = {
        "client": clients.gather(fields["owner"]),
        "split": pl.Series(SPLITS).gather(fields["split"]),
        "label": targets,
        "features": pl.Series(np.ascontiguousarray(wide)),
    }
    if fields["mask"] is not None:
        columns["mask"] = pl.Series(np.ascontiguousarray(fields["mask"]))
    try:
        pl.DataFrame(columns).write_parquet(path, metadata={KEY: describe_fields(fields), **notes})
    except pl.exceptions.PolarsError as reason:
        raise OSError(str(reason)) from None


def read_parquet(path: Path, as_saved: bool) -> tuple[Any, dict[str, Any] | None]:
    """A Parquet file as a frame, and as fields where `save` wrote it and it is wanted so."""
    check_file(path)
    pl = import_package("polars", "a .parquet file")
    try:
        text = pl.read_parquet_metadata(path).get(KEY)
        columns = len(pl.read_parquet_schema(path))
        check_fits(
            8 * columns * pl.scan_parquet(path).select(pl.len()).collect().item(),
            f"path is {str(path)!r}: it",
        )
        frame = pl.read_parquet(path)
    except (
        OSError,
        MemoryError,
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
    ) as reason:
        raise UnreadableFile(
            f"path is {str(path)!r}: it cannot be read as Parquet: {reason}"
        ) from None
    if not as_saved or text is None:
        return frame, None
    held = read_description(text, path)
    offer = "to read it as a plain table, name its columns: features='features', split='split'"
    try:
        owners = owners_of(frame["client"])
        labels: NDArray[Any] = read_column(frame, "label")
        if held["classes"] is None:
            labels = labels.reshape(len(labels), *read_column(frame, "features").shape[1:-1], -1)
        else:
            code = {name: position for position, name in enumerate(held["classes"])}
            labels = np.array([code[name] for name in labels.ravel().tolist()], np.int64).reshape(
                labels.shape
            )
        fields = {
            "features": read_column(frame, "features").astype(held["dtype"]),
            "labels": labels,
            "clients": owners.names,
            "owner": owners.owner,
            "split": np.array([SPLITS.index(name) for name in frame["split"]], np.int8),
            "mask": read_column(frame, "mask") if "mask" in frame.columns else None,
            "classes": None if held["classes"] is None else tuple(held["classes"]),
            **read_feature_notes(held),
        }
    except (KeyError, ValueError, TypeError, pl.exceptions.PolarsError):
        raise UnreadableFile(
            f"path is {str(path)!r}: the file was damaged or edited after it was saved; {offer}"
        ) from None
    check_whole(fields, held, path, offer)
    return frame, fields
