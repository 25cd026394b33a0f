"""Client data in NumPy's .npz files: arrays of features, labels and clients, one row per sample; never unpickled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, MissingColumn, UnreadableFile
from fedasym.core.machine import check_fits
from fedasym.data.federation.damage import BROKEN
from fedasym.data.federation.splits import FRACTIONS
from fedasym.data.sets.gathering import Fields, flattened, listed, numbers, texts

FEATURES = ("x", "features")
LABELS = ("y", "labels", "label")
CLIENTS = ("client", "clients", "writer", "user")


def read_arrays(path: Path, fields: Fields, split: Any) -> dict[str, Any]:
    """What `Federation.from_arrays` takes."""
    with path.open("rb") as file:
        try:
            archive: Any = np.load(file, allow_pickle=False)
        except BROKEN as reason:
            raise UnreadableFile(f"{path}: it cannot be read as .npz: {reason}") from None
        if not hasattr(archive, "files"):
            raise UnreadableFile(f"{path}: this is a single array: save features, labels and clients with numpy.savez")
        held = list(archive.files)
        wanted = {
            "features": FEATURES if fields.features is None else (fields.features,),
            "labels": LABELS if fields.label == "label" else (fields.label,),
            "clients": CLIENTS if fields.client == "client" else (fields.client,),
        }
        read = {field: loaded(archive, path, chosen(held, path, field, names)) for field, names in wanted.items()}
        if isinstance(split, str) or (split is None and "split" in held):
            split = loaded(archive, path, chosen(held, path, "split", (split or "split",))).tolist()
        mask = loaded(archive, path, "mask") if "mask" in held else None
    rows = {field: array.shape[0] if array.ndim else "no" for field, array in read.items()}
    if len(set(rows.values())) > 1 or "no" in rows.values():
        raise InvalidInput(f"{path}: {', '.join(f'{field} have {count} rows' for field, count in rows.items())}: give one each")
    features = flattened(numbers(read["features"], f"{path}: features"), read["labels"])
    return read | {"features": features, "split": FRACTIONS if split is None else split, "mask": mask}


def chosen(held: Sequence[str], path: Path, field: str, names: Sequence[Any]) -> str:
    """The one array that goes by one of these names."""
    found = [name for name in names if isinstance(name, str) and name in held]
    if len(found) == 1:
        return found[0]
    if found:
        raise InvalidInput(f"{path}: {' and '.join(found)} could both be the {field}: name one")
    raise MissingColumn(f"{path}: no array {' or '.join(map(str, names))} for the {field}: there is {listed(held)}")


def loaded(archive: Any, path: Path, name: str) -> NDArray[Any]:
    """One array of the archive; Python objects would have to be unpickled, and are refused."""
    member = next((each for each in archive.zip.infolist() if each.filename in (name, f"{name}.npy")), None)
    check_fits(0 if member is None else member.file_size, f"{path}: array {name!r}")
    try:
        array = np.asarray(archive[name])
    except BROKEN as reason:
        if "allow_pickle" not in str(reason):
            raise UnreadableFile(f"{path}: array {name!r} is damaged: {reason}") from None
        raise UnreadableFile(
            f"{path}: array {name!r} holds pickled Python objects, which can run code when read: save numbers or text, such "
            f"as {name}.astype(str)"
        ) from None
    return texts(array, f"{path}: array {name!r}")


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
            held = {name: loaded(archive, path, name) for name in archive.files} if hasattr(archive, "files") else {"": archive}
    if len(held) != 1:
        raise InvalidInput(f"{path}: it has the arrays {listed(list(held))}: give a file with one")
    return next(iter(held.values()))
