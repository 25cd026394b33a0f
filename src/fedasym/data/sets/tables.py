"""Client data in tables, CSV, Excel or Parquet, and in folders of them: a file per client, or a column that names it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedasym.core.errors import InvalidInput, MissingColumn
from fedasym.core.packages import needed
from fedasym.data.federation.frames import column, is_nested
from fedasym.data.federation.samples import owners_of
from fedasym.data.sets.gathering import Fields, Source, by_kinds, listed
from fedasym.data.tables.dialects import TEXTS, read_file


def read_tables(sources: Sequence[Source], fields: Fields, split: Any, seed: int) -> dict[str, Any]:
    """What `read_table` takes: one frame, the names of its columns, and the line of its first row in the file."""
    pl = needed("polars", "a table of client data")
    frames = []
    for source in sources:
        frame = read_file(source.file, names=[fields.client])
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
    if "mask" in frame.columns and "mask" not in chosen(fields) and is_nested(frame, "mask"):
        return read | {"mask": "mask"}
    if len(sources) == 1 and sources[0].file.suffix.lower() in TEXTS:
        read["line"] = 2
    return read


def chosen(fields: Fields) -> list[Any]:
    """Every column that the user named."""
    several = [each if isinstance(each, list | tuple) else [each] for each in fields]
    return [name for names in several for name in names]


def check_alike(file: Path, frame: Any, first: Path, other: Any) -> None:
    """The same columns, of the same kind, as in the first file."""
    for one, held, lacking in ((first, other, frame), (file, frame, other)):
        alone = [name for name in held.columns if name not in lacking.columns]
        if alone:
            lacks = file if one == first else first
            raise MissingColumn(f"{lacks}: column {alone[0]!r} is missing, which {one} has; there is {listed(lacking.columns)}")
    for name in frame.columns:
        kind, before = frame[name].dtype, other[name].dtype
        empty = "Null" in (str(kind), str(before))
        if kind != before and not empty and not (kind.is_numeric() and before.is_numeric()):
            raise InvalidInput(f"{file}: column {name!r} holds {kind} while in {first} it holds {before}: write both alike")
