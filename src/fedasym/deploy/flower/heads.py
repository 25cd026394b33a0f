"""Heads on disk: a client's own ones on its node, where they stay, and the shared one on the server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.core.errors import InvalidInput, import_package
from fedasym.core.files import replace_file

FORMAT = "fedasym head 1"
KEY = "fedasym"  # of the file's metadata
LONGEST = 80  # characters of a client's name in the name of its file


@dataclass(frozen=True, eq=False)
class Model:
    """A linear head and what it is of.

    head: (features, outputs), with a last row for the bias where `about` says so.
    about: bias (whether there is one), classes (names by output, None for values), and how it was made: algorithm, round, run.

    >>> model = Model(np.eye(2), {"bias": False, "classes": ["cat", "dog"]})
    >>> model.predict([[3.0, 1.0], [0.0, 2.0]]).tolist()
    ['cat', 'dog']
    """

    head: NDArray[np.floating[Any]]
    about: Mapping[str, Any]

    def predict(self, features: ArrayLike) -> NDArray[Any]:
        """Class names, or values in regression, for samples in rows."""
        x, d = np.asarray(features, float), len(self.head) - bool(self.about["bias"])
        if x.ndim == 0 or x.shape[-1] != d or not np.isfinite(x).all():
            raise InvalidInput(f"features have shape {x.shape}: the last axis must hold {d} features, all finite numbers")
        outputs = x @ self.head[:d] + (self.head[d] if self.about["bias"] else 0.0)
        if self.about["classes"] is not None:
            return np.asarray(np.asarray(self.about["classes"])[outputs.argmax(-1)])
        return np.asarray(outputs[..., 0] if outputs.shape[-1] == 1 else outputs)

    def save(self, path: str | Path) -> Path:
        """Write to a .safetensors file, whole or not at all; its folder is made where there is none."""
        path = Path(path)
        library = import_package("safetensors.numpy", "a .safetensors file")
        held = {KEY: json.dumps({"format": FORMAT, **self.about})}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replace_file(path) as fresh:
                fresh.write_bytes(library.save({"head": np.ascontiguousarray(self.head)}, metadata=held))
        except OSError as reason:
            raise InvalidInput(f"{path} cannot be written: {reason.strerror or reason}; name another folder") from None
        return path

    @classmethod
    def load(cls, path: str | Path) -> Model:
        """Read what `save` wrote.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Model(np.ones((2, 1)), {"bias": False, "classes": None, "round": 3}).save(folder + "/ann.safetensors")
        ...     Model.load(path).about["round"]
        3
        """
        safetensors = import_package("safetensors", "a .safetensors file")
        try:
            with safetensors.safe_open(str(path), framework="numpy") as file:
                about = json.loads((file.metadata() or {})[KEY])
                head = file.get_tensor("head")
            if about.pop("format") != FORMAT or not is_head(head, about):
                raise ValueError
        except (OSError, KeyError, ValueError, TypeError, AttributeError, RecursionError, safetensors.SafetensorError):
            raise InvalidInput(f"{path} is no head that fedasym wrote: name a .safetensors file of a heads folder") from None
        return cls(head, about)


def is_head(head: NDArray[Any], about: Mapping[str, Any]) -> bool:
    """Whether the numbers can be a head of that description: a class per output, a row for a bias.

    >>> is_head(np.eye(2), {"bias": False, "classes": ["cat", "dog"]}), is_head(np.eye(2), {"bias": False, "classes": ["cat"]})
    (True, False)
    """
    bias, classes = about["bias"], about["classes"]
    named = classes is None or (isinstance(classes, list) and all(isinstance(each, str | int | float) for each in classes))
    fits = head.ndim == 2 and head.dtype.kind == "f" and len(head) > bool(bias) and bool(np.isfinite(head).all())
    return isinstance(bias, bool) and named and fits and (classes is None or len(classes) == head.shape[1])


def file_of(folder: Path, algorithm: str, client: Any, identity: int) -> Path:
    """The file of a client's own head: its name made fit for any disk, and 64 bits that keep names apart.

    >>> file_of(Path("heads"), "rtfa", "ward 3/b", 10).as_posix()
    'heads/rtfa/ward%203%2Fb-000000000000000a.safetensors'
    """
    return folder / quote(algorithm, safe="") / f"{quote(str(client), safe='')[:LONGEST]}-{int(identity):016x}.safetensors"
