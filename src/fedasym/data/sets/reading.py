"""A user's own client data from a file or a folder in any of the usual formats, told by its ending or its first bytes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedasym.core.errors import InvalidInput, UnreadableFile, path_of
from fedasym.data.federation.federation import Federation
from fedasym.data.federation.splits import SPELLED
from fedasym.data.sets import arrays, clientfiles, leaf, tables
from fedasym.data.sets.gathering import Fields, Source, federated, listed
from fedasym.data.tables.fields import read_table

ENDINGS = {
    ".parquet": "parquet",
    ".safetensors": "safetensors",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".xlsx": "excel",
    ".npz": "npz",
    ".json": "leaf",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
}
BEGINNINGS = {b"PAR1": "parquet", b"\x89HDF\r\n\x1a\n": "hdf5", b"SQLite format 3\x00": "sqlite"}
TABLES = ("csv", "excel", "parquet")  # formats of columns
MANY = ("csv", "excel", "parquet", "leaf", "hdf5", "sqlite")  # formats of which a folder may hold several files
READ = (
    f"read are {', '.join(ENDINGS)}, folders of .csv, .tsv, .xlsx, .parquet, .json (LEAF), .h5 or .sqlite files, and "
    "folders with train and test in them"
)


def read(
    path: str | Path,
    *,
    label: Any = "label",
    client: Any = "client",
    features: Any = None,
    split: Any = None,
    seed: int = 0,
    task: str | None = None,
    classes: Any = None,
    intercept: bool | None = None,
    scale: str | None = None,
    missing: str | None = None,
    roles: Mapping[str, str] | None = None,
    dates: str | None = None,
) -> Federation:
    r"""A federation from a file or folder: Parquet, safetensors, CSV, Excel, .npz, LEAF's JSON, HDF5, SQLite.

    label, client, features: columns of a table, arrays of an .npz file, or fields of each client's samples; formats that name
        their clients themselves take no `client`. Without `features`, what is found beside the label: all columns that a
        model can learn from, or the only field of numbers.
    split: None for what the file or folder says: a column "split", or files or folders named train and test, where the
        training samples are shuffled by `seed`, the first int(n 0.8/0.9) of a client train and the rest validate. Where it says
        nothing, 80%, 10% and 10%. Or fractions, which deal out all samples anew; or the name of a column.
    task, classes: as in `Federation.from_frame` for tables, and as in `Federation.from_arrays` for other formats.
    intercept, scale, missing, roles, dates: for tables, as in `Federation.from_frame`, whose defaults they have.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "pupils.csv")
    ...     text = file.write_text("school,hours,score\na,1.0,0.2\na,2.0,0.4\nb,3.0,0.9\n")
    ...     read(file, label="score", client="school").clients
    ('a', 'b')
    """
    path, fields = path_of("path", path), Fields(label, client, features)
    meaning: dict[str, Any] = {"seed": seed, "task": task, "classes": classes}
    given: dict[str, Any] = {"intercept": intercept, "scale": scale, "missing": missing, "roles": roles, "dates": dates}
    told: dict[str, Any] = {name: value for name, value in given.items() if value is not None and value != {}}
    sources, kind = found(path)
    if kind not in TABLES:
        columns = [name for name in ("missing", "roles", "dates") if name in told] + ["scale"] * (scale == "standard")
        if columns:
            raise InvalidInput(f"{path}: {columns[0]} is given, which is for tables of columns: leave it out")
        federation = read_arrays(path, sources, kind, fields, split, meaning)
        return federation if intercept is None else replace(federation, intercept=intercept)
    if kind == "parquet" and path.is_file():
        return Federation.from_parquet(path, label=label, client=client, features=features, split=split, **meaning, **told)
    held = tables.read_tables(sources, fields, split, seed)
    try:
        if "line" in held:
            return Federation.from_arrays(**read_table(**held, **meaning, **told))
        return Federation.from_frame(**held, **meaning, **told)
    except InvalidInput as reason:
        raise reason.at(path) from None


def read_arrays(
    path: Path, sources: list[Source], kind: str, fields: Fields, split: Any, meaning: dict[str, Any]
) -> Federation:
    """A federation from a format whose features are arrays already, taken as they are."""
    if kind == "safetensors":
        return saved(path, fields, split, **meaning)
    if kind in ("leaf", "hdf5", "sqlite"):
        reader = {"leaf": leaf.parts, "hdf5": clientfiles.hdf5_parts, "sqlite": clientfiles.sqlite_parts}[kind]
        return federated(reader(sources, fields), path, split, **meaning)
    held = arrays.read_arrays(path, fields, split)
    try:
        return Federation.from_arrays(**held, **meaning)
    except InvalidInput as reason:
        raise reason.at(path) from None


def saved(path: Path, fields: Fields, split: Any, seed: int, task: str | None, classes: Any) -> Federation:
    """A federation that `save` wrote: its names and classes are settled, and only its split can be dealt out anew."""
    if fields != Fields() or task is not None or classes is not None or isinstance(split, str):
        raise InvalidInput(f"{path}: a saved federation has its own labels, clients and classes: give nothing but fractions")
    federation = Federation.from_safetensors(path)
    return federation if split is None else federation.resplit(seed, keep_test=False, fractions=split)


def found(path: Path) -> tuple[list[Source], str]:
    """The files to read, with what their names say, and their format."""
    if not os.path.exists(path):  # False, and no error, for a name that no disk can hold
        raise UnreadableFile(f"path is {str(path)!r}: there is no such file or folder; check the name")
    if path.is_file():
        return [Source(path)], format_of(path)
    folders = {
        each: SPELLED[each.name.lower()] for each in sorted(path.iterdir()) if each.is_dir() and each.name.lower() in SPELLED
    }
    if folders:
        sources = [Source(file, kind, file.stem) for folder, kind in folders.items() for file in readable(folder)]
    else:
        sources = by_name(path, readable(path))
    formats = {ENDINGS[source.file.suffix.lower()]: source.file for source in sources}
    if len(formats) > 1:
        raise InvalidInput(
            f"{path}: there are files of several formats, {listed(formats.values())}: keep one format in a folder"
        )
    kind = next(iter(formats), None)
    if kind is None:
        inside = listed(sorted(each.name for each in path.iterdir()))
        raise UnreadableFile(f"path is {str(path)!r}, a folder with {inside}: nothing in it can be read; {READ}")
    if kind not in MANY:
        raise UnreadableFile(f"path is {str(path)!r}, a folder: give the {sources[0].file.suffix} file itself")
    return sources, kind


def readable(folder: Path) -> list[Path]:
    """The files of a folder with an ending that is known, hidden ones left out."""
    files = sorted(each for each in folder.iterdir() if each.is_file() and not each.name.startswith("."))
    packed = [file for file in files if file.suffix == ".lzma"]
    if packed:
        format_of(packed[0])
    known = [file for file in files if file.suffix.lower() in ENDINGS]
    tables = [file for file in known if file.suffix.lower() != ".txt"]
    return tables or known  # a text beside tables tells about them


def by_name(folder: Path, files: list[Path]) -> list[Source]:
    """What names such as emnist_train.h5 and test.csv say; all of a folder's files have such a name, or none."""
    named = [re.fullmatch(rf"(?:(.*)[_.-])?({'|'.join(SPELLED)})", file.stem, re.IGNORECASE) for file in files]
    if not any(named):
        return [Source(file, None, file.stem) for file in files]
    for file, match in zip(files, named, strict=True):
        if match is None:
            raise InvalidInput(f"{folder}: some names end in train or test, and {file.name} does not: rename or remove it")
    pairs = [(file, match) for file, match in zip(files, named, strict=True) if match]
    return [Source(file, SPELLED[match[2].lower()], match[1] or "") for file, match in pairs]


def format_of(file: Path) -> str:
    """The format of a file, by its ending, or else by its first bytes."""
    ending = file.suffix.lower()
    if ending == ".lzma":
        raise UnreadableFile(
            f"path is {str(file)!r}: unpack it first, xz --format=lzma -d -k {file.name}, and read {file.stem}"
        )
    if ending in ENDINGS:
        return ENDINGS[ending]
    with file.open("rb") as opened:
        start = opened.read(16)
    for beginning, kind in BEGINNINGS.items():
        if start.startswith(beginning):
            return kind
    what = f"the ending {ending!r} is unknown" if ending else "its name has no ending"
    raise UnreadableFile(f"path is {str(file)!r}: {what}; {READ}; for other data use Federation.from_arrays")
