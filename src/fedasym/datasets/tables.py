"""Client data in CSV files, and in folders of CSV or Parquet files: one file per client, or a column that names the client."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedasym.datasets.gathering import Fields, Source, by_kinds, listed
from fedasym.errors import InvalidInput, MissingColumn, NotNumbers, UnreadableFile
from fedasym.federations import files
from fedasym.federations.frames import column, needed
from fedasym.federations.samples import owners_of

PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x78\x01", b"\x78\x9c", b"\x78\xda")  # how gzip, Zstandard and zlib begin
WHOLE = r"^(0|-?[1-9][0-9]{0,17})$"  # a name that is a whole number and reads back as it was written


def read_tables(sources: Sequence[Source], fields: Fields, split: Any, seed: int) -> dict[str, Any]:
    """What `Federation.from_frame` takes: one frame, and the names of its columns."""
    pl = needed("polars", "a table of client data")
    frames = []
    for source in sources:
        frame = (
            read_csv(source.file, fields) if source.file.suffix.lower() == ".csv" else files.read_parquet(source.file, False)[0]
        )
        if isinstance(fields.client, str) and fields.client not in frame.columns and source.client:
            frame = frame.with_columns(pl.lit(source.client).alias(fields.client))
        frames.append(frame)
        check_alike(source.file, frame, sources[0].file, frames[0])
    heights = [frame.height for frame in frames]
    try:
        frame = pl.concat([each.select(frames[0].columns) for each in frames], how="vertical_relaxed")
    except pl.exceptions.PolarsError as reason:
        raise InvalidInput(f"{sources[0].file.parent}: the tables do not fit together: {reason}") from None
    kinds = np.repeat(np.array([source.kind or 0 for source in sources], np.int8), heights)
    if split is None and any(source.kind is not None for source in sources) and fields.client in frame.columns:
        if "split" in frame.columns:
            raise InvalidInput(
                f"{sources[0].file}: there is a column 'split', and the names of files or folders say train and test, too: "
                "choose the column with split='split', or drop it"
            )
        owners = owners_of(column(frame, fields.client))
        split = by_kinds(owners.owner, owners.names, kinds, seed)
    elif split is None and "split" in frame.columns:
        split = "split"
    if not isinstance(split, str) and "split" in frame.columns and "split" not in chosen(fields):
        frame = frame.drop("split")
    read = {"frame": frame, "label": fields.label, "client": fields.client, "features": fields.features, "split": split}
    return read | {"mask": "mask" if "mask" in frame.columns and "mask" not in chosen(fields) else None}


def chosen(fields: Fields) -> list[Any]:
    """Every column that the user named."""
    several = [each if isinstance(each, list | tuple) else [each] for each in fields]
    return [name for names in several for name in names]


def read_csv(file: Path, fields: Fields) -> Any:
    """A CSV file with a header; names of clients stay as they are written, and are numbers only where all of them are."""
    pl = needed("polars", "a .csv file")
    check_text(file)
    try:
        header = pl.read_csv(file, n_rows=0, infer_schema=False).columns
        named = {fields.client: pl.String} if fields.client in header else {}
        frame = pl.read_csv(file, infer_schema_length=None, schema_overrides=named)
    except (OSError, pl.exceptions.PolarsError) as reason:
        raise UnreadableFile(f"{file}: it cannot be read as CSV: {str(reason).splitlines()[0]}") from None
    twice = [name for name in header if re.search(r"_duplicated_\d+$", name)]
    if twice:
        raise InvalidInput(f"{file}: there are several columns {twice[0].rsplit('_duplicated_', 1)[0]!r}: rename them")
    if named and frame.height and frame[fields.client].str.contains(WHOLE).fill_null(False).all():
        frame = frame.with_columns(pl.col(fields.client).cast(pl.Int64))
    return as_numbers(file, frame, fields)


def check_text(file: Path) -> None:
    """Refuse a packed file, which polars would unpack whole, however much it unpacks to."""
    with file.open("rb") as opened:
        start = opened.read(4)
    if start.startswith(PACKED):
        raise UnreadableFile(f"{file}: it is compressed: unpack it first, and read what comes out")


def as_numbers(file: Path, frame: Any, fields: Fields) -> Any:
    """The frame with the columns that could be features as numbers; a stray word would leave such a column out unseen."""
    pl = needed("polars", "a .csv file")
    asked = fields.features if isinstance(fields.features, list | tuple) else [fields.features]
    wanted = frame.columns if fields.features is None else asked
    others = chosen(fields._replace(features=[]))
    for name in frame.columns:
        if frame[name].dtype != pl.String or name not in wanted or name in others:
            continue
        values = frame[name]
        parsed = values.str.strip_chars().cast(pl.Float64, strict=False)
        stray = (parsed.is_null() & values.is_not_null()).arg_true()
        if len(stray) and (fields.features is not None or 2 * parsed.count() >= values.count()):
            row = int(stray[0])
            raise NotNumbers(
                f"{file}: column {name!r}, row {row} (line {row + 2}) holds {values[row]!r} where numbers are expected: "
                "correct it, or name the features without this column"
            )
        if not len(stray) and values.count():
            frame = frame.with_columns(parsed.alias(name))
    return frame


def check_alike(file: Path, frame: Any, first: Path, other: Any) -> None:
    """The same columns, of the same kind, as in the first file."""
    for one, held, lacking in ((first, other, frame), (file, frame, other)):
        alone = [name for name in held.columns if name not in lacking.columns]
        if alone:
            lacks = file if one == first else first
            raise MissingColumn(f"{lacks}: column {alone[0]!r} is missing, which {one} has; there is {listed(lacking.columns)}")
    for name in frame.columns:
        kind, before = frame[name].dtype, other[name].dtype
        if kind != before and not (kind.is_numeric() and before.is_numeric()):
            raise InvalidInput(f"{file}: column {name!r} holds {kind} while in {first} it holds {before}: write both alike")
