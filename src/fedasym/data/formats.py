"""A user's client data from a file or folder in a usual format, told by ending or first bytes.

Tables, CSV, Excel or Parquet, and folders of them: a file per client, or a column that names it.
NumPy's .npz files: arrays of features, labels and clients, one row per sample, never unpickled.
LEAF's JSON layout, {"users": [...], "num_samples": [...], "user_data": {user: {"x": [...], "y":
[...]}}}, file by file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import (
    InvalidInput,
    MissingColumn,
    MissingValues,
    UnreadableFile,
    import_package,
    path_of,
)
from fedasym.core.numbers import join_names
from fedasym.core.runtime import check_fits
from fedasym.data.assembly import (
    ClientPart,
    FieldNames,
    SampleFile,
    federate_parts,
    flatten_features,
    number_array,
    split_by_kinds,
    text_array,
)
from fedasym.data.federation import Federation
from fedasym.data.fields import read_table
from fedasym.data.files import BROKEN
from fedasym.data.frames import TEXTS, is_nested_column, read_column, read_file, refuse_encoding
from fedasym.data.samples import owners_of
from fedasym.data.shard_files import is_sharded
from fedasym.data.splits import FRACTIONS, SPELLED
from fedasym.data.tff import hdf5_parts, sqlite_parts

FEATURES = ("x", "features")
LABELS = ("y", "labels", "label")
CLIENTS = ("client", "clients", "writer", "user")


def read_npz(path: Path, fields: FieldNames, split: Any) -> dict[str, Any]:
    """What `Federation.from_arrays` takes."""
    with path.open("rb") as file:
        try:
            archive: Any = np.load(file, allow_pickle=False)
        except BROKEN as reason:
            raise UnreadableFile(f"{path}: it cannot be read as .npz: {reason}") from None
        if not hasattr(archive, "files"):
            raise UnreadableFile(
                f"{path}: this is a single array: save features, labels and clients with"
                " numpy.savez"
            )
        held = list(archive.files)
        wanted = {
            "features": FEATURES if fields.features is None else (fields.features,),
            "labels": LABELS if fields.label == "label" else (fields.label,),
            "clients": CLIENTS if fields.client == "client" else (fields.client,),
        }
        if fields.client is None:  # samples without clients, which are still to be dealt out
            del wanted["clients"]
        read = {
            field: load_array(archive, path, choose_array(held, path, field, names))
            for field, names in wanted.items()
        }
        if isinstance(split, str) or (split is None and "split" in held):
            split = load_array(
                archive, path, choose_array(held, path, "split", (split or "split",))
            ).tolist()
        mask = load_array(archive, path, "mask") if "mask" in held else None
    if fields.client is None:
        read["clients"] = np.zeros(np.shape(read["labels"])[:1], int)
    rows = {field: array.shape[0] if array.ndim else "no" for field, array in read.items()}
    if len(set(rows.values())) > 1 or "no" in rows.values():
        raise InvalidInput(
            f"{path}: {', '.join(f'{field} have {count} rows' for field, count in rows.items())}:"
            " give one each"
        )
    features = flatten_features(number_array(read["features"], f"{path}: features"), read["labels"])
    return read | {
        "features": features,
        "split": FRACTIONS if split is None else split,
        "mask": mask,
    }


def choose_array(held: Sequence[str], path: Path, field: str, names: Sequence[Any]) -> str:
    """The one array that goes by one of these names."""
    found = [name for name in names if isinstance(name, str) and name in held]
    if len(found) == 1:
        return found[0]
    if found:
        raise InvalidInput(f"{path}: {' and '.join(found)} could both be the {field}: name one")
    raise MissingColumn(
        f"{path}: no array {' or '.join(map(str, names))} for the {field}: there is"
        f" {join_names(held)}"
    )


def load_array(archive: Any, path: Path, name: str) -> NDArray[Any]:
    """One array of the archive; Python objects would have to be unpickled, and are refused."""
    member = next(
        (each for each in archive.zip.infolist() if each.filename in (name, f"{name}.npy")), None
    )
    check_fits(0 if member is None else member.file_size, f"{path}: array {name!r}")
    try:
        array = np.asarray(archive[name])
    except BROKEN as reason:
        if "allow_pickle" not in str(reason):
            raise UnreadableFile(f"{path}: array {name!r} is damaged: {reason}") from None
        raise UnreadableFile(
            f"{path}: array {name!r} holds pickled Python objects, which can run code when read:"
            f" save numbers or text, such as {name}.astype(str)"
        ) from None
    return text_array(array, f"{path}: array {name!r}")


def only_array(path: Path) -> NDArray[Any]:
    """The array of a .npy file, or the only one of a .npz or .safetensors file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(folder + "/mine.npz", x=np.eye(2))
    ...     only_array(Path(folder) / "mine.npz").shape
    (2, 2)
    """
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            held = dict(load_file(path))
        except (OSError, SafetensorError) as reason:
            raise InvalidInput(f"{path}: it cannot be read as safetensors: {reason}") from None
    else:
        with path.open("rb") as file:
            try:
                archive: Any = np.load(file, allow_pickle=False)
            except BROKEN as reason:
                raise InvalidInput(f"{path}: it cannot be read as .npy or .npz: {reason}") from None
            held = (
                {name: load_array(archive, path, name) for name in archive.files}
                if hasattr(archive, "files")
                else {"": archive}
            )
    if len(held) != 1:
        raise InvalidInput(
            f"{path}: it has the arrays {join_names(list(held))}: give a file with one"
        )
    return next(iter(held.values()))


LEAF_KEYS = ("users", "num_samples", "user_data")


def leaf_parts(
    sources: Sequence[SampleFile], fields: FieldNames
) -> Generator[ClientPart, None, None]:
    """Every user's samples; users without any are left out."""
    label, features = fields.of_client_files()
    names = (features or "x", "y" if label == "label" else label)
    for source in sources:
        for user, count, data in leaf_users(source.file):
            if count:
                x, y = (leaf_values(source.file, user, data, name, count) for name in names)
                yield ClientPart(
                    source.file,
                    user,
                    number_array(x, f"{source.file}: user {user!r}, field {names[0]!r}"),
                    y,
                    source.kind,
                )


def leaf_users(file: Path) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Each user's name, number of samples and data."""
    try:
        held = json.loads(file.read_bytes())
    except (ValueError, RecursionError, OSError) as reason:
        raise UnreadableFile(f"{file}: it cannot be read as JSON: {reason}") from None
    missing = [key for key in LEAF_KEYS if not isinstance(held, dict) or key not in held]
    if missing:
        found = join_names(held) if isinstance(held, dict) else f"a {type(held).__name__}"
        raise UnreadableFile(
            f"{file}: {missing[0]!r} is missing, and there is {found}: LEAF's JSON has"
            f" {', '.join(LEAF_KEYS)}"
        )
    names, counts, data = (held[key] for key in LEAF_KEYS)
    if (
        not isinstance(names, list)
        or not isinstance(counts, list)
        or not isinstance(data, dict)
        or len(names) != len(counts)
    ):
        raise InvalidInput(
            f"{file}: 'users' and 'num_samples' must be lists of one length, and 'user_data' an"
            " object by user"
        )
    unlisted = sorted(set(data) - {name for name in names if isinstance(name, str)})
    if unlisted:
        raise InvalidInput(
            f"{file}: user {unlisted[0]!r} has data and is not among 'users': list all or none of a"
            " user"
        )
    for name, count in zip(names, counts, strict=True):
        if isinstance(name, str) and any("\ud800" <= letter <= "\udfff" for letter in name):
            raise InvalidInput(
                f"{file}: user {name!r} has half a character in its name: write Unicode"
            )
        if not isinstance(name, str) or not isinstance(data.get(name), dict):
            raise InvalidInput(
                f"{file}: user {name!r} has no object in 'user_data': there are {join_names(data)}"
            )
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise InvalidInput(
                f"{file}: user {name!r}, 'num_samples' is {count!r}: it must be a whole number of"
                " at least 0"
            )
        yield name, count, data.pop(name)  # let go once read


def leaf_values(file: Path, user: str, data: dict[str, Any], name: str, count: int) -> NDArray[Any]:
    """A field as an array with one entry per sample."""
    where = f"{file}: user {user!r}, field {name!r}"
    held = data.get(name)
    if not isinstance(held, list):
        raise MissingColumn(f"{where} is missing or not a list; there is {join_names(data)}")
    if len(held) != count:
        raise InvalidInput(
            f"{where} has {len(held)} samples where 'num_samples' says {count}: write the file"
            " again"
        )
    for row, entry in enumerate(held):
        if isinstance(entry, list) != isinstance(held[0], list) or (
            isinstance(entry, list) and len(entry) != len(held[0])
        ):
            size = f"a list of {len(entry)}" if isinstance(entry, list) else repr(entry)
            raise InvalidInput(
                f"{where}, row {row} is {size}, unlike row 0: give every sample the same shape"
            )
        if entry is None or isinstance(entry, dict):
            raise MissingValues(f"{where}, row {row} is {entry!r}: drop or fill that sample first")
    if any(isinstance(entry, str) for entry in held):
        return np.array(held, dtype=object)  # else numpy would turn numbers beside text into text
    try:
        return np.asarray(held)
    except ValueError:
        raise InvalidInput(
            f"{where} holds lists of unlike lengths: give every sample the same shape"
        ) from None


def read_tables(
    sources: Sequence[SampleFile],
    fields: FieldNames,
    split: Any,
    seed: int,
    encoding: str | None = None,
) -> dict[str, Any]:
    """What `read_table` takes: one frame, its column names, and the line of its first row."""
    pl = import_package("polars", "a table of client data")
    frames = []
    for source in sources:
        frame = read_file(source.file, [fields.client], encoding)
        if isinstance(fields.client, str) and fields.client not in frame.columns and source.client:
            frame = frame.with_columns(pl.lit(source.client).alias(fields.client))
        frames.append(frame)
        check_same_columns(source.file, frame, sources[0].file, frames[0])
    heights = [frame.height for frame in frames]
    try:
        frame = pl.concat(
            [each.select(frames[0].columns) for each in frames], how="vertical_relaxed"
        )
    except pl.exceptions.PolarsError as reason:
        raise InvalidInput(
            f"{sources[0].file.parent}: the tables do not fit together: {reason}"
        ) from None
    kinds = np.repeat(np.array([source.kind or 0 for source in sources], np.int8), heights)
    if (
        split is None
        and any(source.kind is not None for source in sources)
        and fields.client in frame.columns
    ):
        if "split" in frame.columns:
            raise InvalidInput(
                f"{sources[0].file}: there is a column 'split', and the names of files or folders"
                " say train and test, too: choose the column with split='split', or drop it"
            )
        owners = owners_of(read_column(frame, fields.client))
        split = split_by_kinds(owners.owner, owners.names, kinds, seed)
    elif split is None and "split" in frame.columns:
        split = "split"
    if (
        not isinstance(split, str)
        and "split" in frame.columns
        and "split" not in named_columns(fields)
    ):
        frame = frame.drop("split")
    read = {
        "frame": frame,
        "label": fields.label,
        "client": fields.client,
        "features": fields.features,
        "split": split,
    }
    if (
        "mask" in frame.columns
        and "mask" not in named_columns(fields)
        and is_nested_column(frame, "mask")
    ):
        return read | {"mask": "mask"}
    if len(sources) == 1 and sources[0].file.suffix.lower() in TEXTS:
        read["line"] = 2
    return read


def named_columns(fields: FieldNames) -> list[Any]:
    """Every column that the user named."""
    several = [each if isinstance(each, list | tuple) else [each] for each in fields]
    return [name for names in several for name in names]


def check_same_columns(file: Path, frame: Any, first: Path, other: Any) -> None:
    """The same columns, of the same kind, as in the first file."""
    for one, held, lacking in ((first, other, frame), (file, frame, other)):
        alone = [name for name in held.columns if name not in lacking.columns]
        if alone:
            lacks = file if one == first else first
            raise MissingColumn(
                f"{lacks}: column {alone[0]!r} is missing, which {one} has; there is"
                f" {join_names(lacking.columns)}"
            )
    for name in frame.columns:
        kind, before = frame[name].dtype, other[name].dtype
        empty = "Null" in (str(kind), str(before))
        if kind != before and not empty and not (kind.is_numeric() and before.is_numeric()):
            raise InvalidInput(
                f"{file}: column {name!r} holds {kind} while in {first} it holds {before}: write"
                " both alike"
            )


ENDINGS = {
    ".parquet": "parquet",
    ".arrow": "arrow",
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
TABLES = ("csv", "excel", "parquet", "arrow")  # formats of columns
# formats of which a folder may hold several files
SEVERAL = ("csv", "excel", "parquet", "arrow", "leaf", "hdf5", "sqlite")
READ = (
    f"fedasym reads {', '.join(ENDINGS)}, folders of .csv, .tsv, .xlsx, .parquet, .json (LEAF), .h5"
    " or .sqlite files, and folders with train and test in them"
)


EXAMPLE = Path(__file__).with_name("shops.csv")  # drawn by examples/draw_shops.py


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
    encoding: str | None = None,
) -> Federation:
    r"""A federation from a file or folder: Parquet, safetensors, CSV, Excel, .npz, LEAF's JSON,
    HDF5, SQLite; a folder of shards is opened and stays on disk.

    label, client, features: columns of a table, arrays of an .npz file, or fields of each client's
        samples; formats that name their clients themselves take no `client`. Without `features`,
        what is found beside the label: all columns that a model can learn from, or the only field
        of numbers.
    split: None for what the file or folder says: a column "split", or files or folders named train
        and test, where the training samples are shuffled by `seed`, the first int(n 0.8/0.9) of a
        client train and the rest validate. Where it says nothing, 80%, 10% and 10%. Or fractions,
        which deal out all samples anew; or the name of a column.
    task, classes: as in `Federation.from_frame` for tables, and as in `Federation.from_arrays` for
        other formats.
    intercept, scale, missing, roles, dates: for tables, as in `Federation.from_frame`, whose
        defaults they have.
    encoding: of .csv, .tsv and .txt files that are not UTF-8, such as "cp1252".

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "pupils.csv")
    ...     text = file.write_text("school,hours,score\na,1.0,0.2\na,2.0,0.4\nb,3.0,0.9\n")
    ...     read(file, label="score", client="school").clients
    ('a', 'b')
    >>> len(read("shops", label="sales", client="shop"))  # a drawn table that comes with fedasym
    40
    """
    place, path = path, path_of("path", path)
    if str(path) == EXAMPLE.stem and not path.exists():
        path = EXAMPLE
    fields = FieldNames(label, client, features)
    if is_sharded(place):
        given_too = {"features": features, "split": split, "task": task, "classes": classes}
        given_too |= {"intercept": intercept, "scale": scale, "missing": missing, "dates": dates}
        given_too["encoding"] = encoding
        told_too = [name for name, value in given_too.items() if value is not None]
        if told_too or roles or fields != FieldNames():
            raise InvalidInput(
                f"{place}: {told_too[0] if told_too else 'a column'} is given, but a federation in"
                " shards is read as it was written: leave it out"
            )
        return Federation.open(place)
    meaning: dict[str, Any] = {"seed": seed, "task": task, "classes": classes}
    given: dict[str, Any] = {
        "intercept": intercept,
        "scale": scale,
        "missing": missing,
        "roles": roles,
        "dates": dates,
    }
    told: dict[str, Any] = {
        name: value for name, value in given.items() if value is not None and value != {}
    }
    sources, kind = find_files(path)
    if kind != "csv":
        refuse_encoding(path, encoding)
    if kind not in TABLES:
        columns = [name for name in ("missing", "roles", "dates") if name in told] + ["scale"] * (
            scale == "standard"
        )
        if columns:
            raise InvalidInput(
                f"{path}: {columns[0]} is given, which is for tables of columns: leave it out"
            )
        federation = read_array_files(path, sources, kind, fields, split, meaning)
        return federation if intercept is None else replace(federation, intercept=intercept)
    if kind == "parquet" and path.is_file():
        return Federation.from_parquet(
            path, label=label, client=client, features=features, split=split, **meaning, **told
        )
    held = read_tables(sources, fields, split, seed, encoding)
    try:
        if "line" in held:
            return Federation.from_arrays(**read_table(**held, **meaning, **told))
        return Federation.from_frame(**held, **meaning, **told)
    except InvalidInput as reason:
        raise reason.at(path) from None


def read_pool(
    path: str | Path, label: Any = "label", client: str | None = None, **options: Any
) -> tuple[Federation, bool]:
    r"""Samples that have no clients yet, from a table, an .npz file, or any file of clients; and
    whether the file says which of them train. client: a table's column of clients, which is no
    feature; "client" where there is one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "flowers.csv")
    ...     text = file.write_text("length,kind\n" + "1.0,a\n2.5,b\n" * 5)
    ...     read_pool(file, label="kind")[0].labels[:3].tolist()
    [0, 1, 0]
    """
    file = path_of("path", path)
    encoding = options.pop("encoding", None)
    if file.suffix.lower() == ".npz" and file.is_file():
        refuse_encoding(file, encoding)
        arrays = read_npz(file, FieldNames(label, None, options.get("features")), None)
        task = options.get("task")
        return Federation.from_arrays(**arrays, task=task), arrays["split"] is not FRACTIONS
    if file.suffix.lower() in (*TEXTS, ".xlsx", ".parquet") and file.is_file():
        pl = import_package("polars", "a table of client data")
        frame = read_file(file, [label], encoding)
        if client is not None and client not in frame.columns:
            raise InvalidInput(
                f"{file}: there is no column {client!r} of clients: there are"
                f" {', '.join(map(repr, frame.columns))}"
            )
        if client is None and "client" not in frame.columns:
            whose = frame.with_columns(pl.lit("all").alias("client"))
            split = "split" if "split" in frame.columns else None
            found = Federation.from_frame(
                whose, label=label, client="client", split=split, **options
            )
            return found, split is not None
        if client is not None:
            options["client"] = client
    return read(file, label=label, encoding=encoding, **options), True


def read_array_files(
    path: Path,
    sources: list[SampleFile],
    kind: str,
    fields: FieldNames,
    split: Any,
    meaning: dict[str, Any],
) -> Federation:
    """A federation from a format whose features are arrays already, taken as they are."""
    if kind == "safetensors":
        return read_saved(path, fields, split, **meaning)
    if kind in ("leaf", "hdf5", "sqlite"):
        reader = {"leaf": leaf_parts, "hdf5": hdf5_parts, "sqlite": sqlite_parts}[kind]
        return federate_parts(reader(sources, fields), path, split, **meaning)
    held = read_npz(path, fields, split)
    try:
        return Federation.from_arrays(**held, **meaning)
    except InvalidInput as reason:
        raise reason.at(path) from None


def read_saved(
    path: Path, fields: FieldNames, split: Any, seed: int, task: str | None, classes: Any
) -> Federation:
    """A federation that `save` wrote: names and classes are settled, its split may be redealt."""
    if fields != FieldNames() or task is not None or classes is not None or isinstance(split, str):
        raise InvalidInput(
            f"{path}: a saved federation has its own labels, clients and classes: give nothing but"
            " fractions"
        )
    federation = Federation.from_safetensors(path)
    return (
        federation if split is None else federation.resplit(seed, keep_test=False, fractions=split)
    )


def find_files(path: Path) -> tuple[list[SampleFile], str]:
    """The files to read, with what their names say, and their format."""
    if not os.path.exists(path):  # False, and no error, for a name that no disk can hold
        raise UnreadableFile(
            f"path is {str(path)!r}: there is no such file or folder; check the name"
        )
    if path.is_file():
        return [SampleFile(path)], format_of(path)
    folders = {
        each: SPELLED[each.name.lower()]
        for each in sorted(path.iterdir())
        if each.is_dir() and each.name.lower() in SPELLED
    }
    if folders:
        sources = [
            SampleFile(file, kind, file.stem)
            for folder, kind in folders.items()
            for file in readable_files(folder)
        ]
    else:
        sources = files_by_name(path, readable_files(path))
    formats = {ENDINGS[source.file.suffix.lower()]: source.file for source in sources}
    if len(formats) > 1:
        raise InvalidInput(
            f"{path}: there are files of several formats, {join_names(formats.values())}: keep one"
            " format in a folder"
        )
    kind = next(iter(formats), None)
    if kind is None:
        inside = join_names(sorted(each.name for each in path.iterdir()))
        raise UnreadableFile(
            f"path is {str(path)!r}, a folder with {inside}: nothing in it can be read; {READ}"
        )
    if kind not in SEVERAL:
        raise UnreadableFile(
            f"path is {str(path)!r}, a folder: give the {sources[0].file.suffix} file itself"
        )
    return sources, kind


def readable_files(folder: Path) -> list[Path]:
    """The files of a folder with an ending that is known, hidden ones left out."""
    files = sorted(
        each for each in folder.iterdir() if each.is_file() and not each.name.startswith(".")
    )
    packed = [file for file in files if file.suffix == ".lzma"]
    if packed:
        format_of(packed[0])
    known = [file for file in files if file.suffix.lower() in ENDINGS]
    if (folder / "state.json").is_file():  # Hugging Face's save_to_disk: the rest are notes
        known = [file for file in known if file.suffix == ".arrow"]
    tables = [file for file in known if file.suffix.lower() != ".txt"]
    return tables or known  # a text beside tables tells about them


def files_by_name(folder: Path, files: list[Path]) -> list[SampleFile]:
    """What names such as emnist_train.h5 and test.csv say, where all of a folder's files do."""
    named = [
        re.fullmatch(rf"(?:(.*)[_.-])?({'|'.join(SPELLED)})", file.stem, re.IGNORECASE)
        for file in files
    ]
    if not any(named):
        return [SampleFile(file, None, file.stem) for file in files]
    for file, match in zip(files, named, strict=True):
        if match is None:
            raise InvalidInput(
                f"{folder}: some names end in train or test, and {file.name} does not: rename or"
                " remove it"
            )
    pairs = [(file, match) for file, match in zip(files, named, strict=True) if match]
    return [SampleFile(file, SPELLED[match[2].lower()], match[1] or "") for file, match in pairs]


def format_of(file: Path) -> str:
    """The format of a file, by its ending, or else by its first bytes."""
    ending = file.suffix.lower()
    if ending == ".lzma":
        raise UnreadableFile(
            f"path is {str(file)!r}: unpack it first, xz --format=lzma -d -k {file.name}, and read"
            f" {file.stem}"
        )
    if ending in ENDINGS:
        return ENDINGS[ending]
    with file.open("rb") as opened:
        start = opened.read(16)
    for beginning, kind in BEGINNINGS.items():
        if start.startswith(beginning):
            return kind
    what = f"the ending {ending!r} is unknown" if ending else "its name has no ending"
    raise UnreadableFile(
        f"path is {str(file)!r}: {what}; {READ}; for other data use Federation.from_arrays"
    )
