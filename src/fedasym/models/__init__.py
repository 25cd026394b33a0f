"""A fitted model to keep: shared and personal weights, and the recipe that makes features of raw
rows.

`fit` fits what the advisor recommends; `Model.predict` takes raw rows of a frame, or features;
`apply` adds predictions to a table. A client that was not in the fit gets the shared model, and is
told so. A head that a node or a server of a federation keeps is a `SavedHead`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedasym.core.errors import InvalidInput, import_package
from fedasym.core.numbers import notebook_text, plural
from fedasym.core.runtime import read_arrays, replace_file, write_arrays
from fedasym.data.recipe import Recipe, UnknownCells
from fedasym.exact.classes import ClassFit
from fedasym.exact.estimators import LinearFit

KIND = "model"
OWN, SHARED = "own", "shared"  # which model a row was predicted with


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A fit, and how raw rows become its features.

    fit: the shared and personal weights, of numbers or of classes. names: of the features; recipe:
    None where features came as arrays. why: the sentence by which its algorithm was chosen.

    >>> import polars as pl, fedasym as fa
    >>> rows = {
    ...     "shop": list("aabb") * 10,
    ...     "price": [1.0, 2.0, 3.0, 5.0] * 10,
    ...     "sold": [9.5, 8.1, 7.2, 3.3] * 10,
    ... }
    >>> model = fa.fit(
    ...     fa.Federation.from_frame(pl.DataFrame(rows), label="sold", client="shop"),
    ...     algorithm="ftfa",
    ... )
    >>> model.predict(pl.DataFrame({"shop": ["a"], "price": ["2.0"]})).round(1).tolist()
    [8.1]
    """

    fit: LinearFit | ClassFit
    names: tuple[str, ...] | None = None
    recipe: Recipe | None = None
    why: str = ""

    @property
    def task(self) -> str:
        """Either "classification" or "regression"."""
        return "classification" if isinstance(self.fit, ClassFit) else "regression"

    @property
    def algorithm(self) -> str:
        """The name of what was fitted."""
        return self.fit.algorithm.name

    def predict(self, rows: Any, client: Any = None) -> NDArray[Any]:
        """Numbers, or names of classes, for raw rows of a frame (whose column names their clients),
        or for features.

        client: for features, one client or one per row; None, and a client that was not in the fit,
        get the shared model.
        """
        features, clients, _ = self._read(rows, client)
        return self.fit.predict(features, client=clients)

    def predict_proba(self, rows: Any, client: Any = None) -> NDArray[np.float64]:
        """Probabilities (rows, classes)."""
        if not isinstance(self.fit, ClassFit):
            raise InvalidInput(
                "the labels are numbers: there are no probabilities; predict gives expected values"
            )
        features, clients, _ = self._read(rows, client)
        return self.fit.predict_proba(features, client=clients)

    def apply(self, frame: Any, column: str = "prediction") -> tuple[Any, UnknownCells]:
        """The frame's rows with their predictions in a column, and a column "model": own, or shared
        for unknown clients.

        Returns a polars frame, and how many cells the recipe did not know.
        """
        from fedasym.data.cells import import_polars
        from fedasym.data.frames import read_polars

        if self.recipe is None:
            raise InvalidInput(
                "this model was fitted to arrays: there is no recipe for columns; use predict with"
                " features"
            )
        pl = import_polars()
        table = read_polars(frame)
        for name in (column, "model"):
            if name in table.columns:
                raise InvalidInput(
                    f"the table has a column {name!r} already: rename it there, or name another"
                    " (--column)"
                )
        features, clients, counts = self._read(table, None)
        assert clients is not None
        known = [name in self.fit.personal for name in clients]
        told = self.fit.predict(features, client=clients)
        words = [OWN if each else SHARED for each in known]
        values = pl.Series(column, told.tolist())
        return table.with_columns(values, pl.Series("model", words)), counts

    def _read(self, rows: Any, client: Any) -> tuple[NDArray[np.float64], Any, UnknownCells]:
        library = type(rows).__module__.split(".")[0]
        if self.recipe is None or (
            library not in ("polars", "pandas") and not hasattr(rows, "__arrow_c_stream__")
        ):
            return np.asarray(rows, float), client, UnknownCells({}, {})
        features, counts = self.recipe.apply(rows)
        return features, self.recipe.read_clients(rows) if client is None else client, counts

    def save(self, path: str | Path) -> Path:
        """Write to a .safetensors file, whole or not at all; returns where it is."""
        arrays, about = self.fit.describe()
        about |= {
            "task": self.task,
            "names": None if self.names is None else list(self.names),
            "why": self.why,
        }
        about["recipe"] = None if self.recipe is None else self.recipe.to_json()
        return write_arrays(path, KIND, arrays, about)

    @classmethod
    def load(cls, path: str | Path) -> Model:
        """The model that `save` wrote."""
        arrays, about = read_arrays(path, KIND)
        kind = ClassFit if about.get("task") == "classification" else LinearFit
        found = kind.read(arrays, about, path)
        names, recipe = about.get("names"), about.get("recipe")
        return cls(
            found,
            None if names is None else tuple(map(str, names)),
            None if recipe is None else Recipe.from_json(recipe),
            str(about.get("why", "")),
        )

    def __repr__(self) -> str:
        clients = len(self.fit.personal)
        samples = sum(self.fit.samples.values())
        lines = [
            f"{self.algorithm} · {plural(clients, 'client')} · {plural(samples, 'sample')} ·"
            f" {self.task}"
        ]
        return "\n".join([*lines, self.why] if self.why else lines)

    def _repr_html_(self) -> str:
        return notebook_text(self)


HEAD_FORMAT = "fedasym head 1"
HEAD_KEY = "fedasym"  # of the file's metadata


@dataclass(frozen=True, eq=False)
class SavedHead:
    """A linear head and what it is of.

    head: (features, outputs), with a last row for the bias where `about` says so.
    about: bias (whether there is one), classes (names by output, None for values), and how it was
        made: algorithm, round, run.

    >>> model = SavedHead(np.eye(2), {"bias": False, "classes": ["cat", "dog"]})
    >>> model.predict([[3.0, 1.0], [0.0, 2.0]]).tolist()
    ['cat', 'dog']
    """

    head: NDArray[np.floating[Any]]
    about: Mapping[str, Any]

    def predict(self, features: ArrayLike) -> NDArray[Any]:
        """Class names, or values in regression, for samples in rows."""
        x = np.asarray(features, float)
        d = len(self.head) - bool(self.about["bias"])
        if x.ndim == 0 or x.shape[-1] != d or not np.isfinite(x).all():
            raise InvalidInput(
                f"features have shape {x.shape}: the last axis must hold {d} features, all finite"
                " numbers"
            )
        outputs = x @ self.head[:d] + (self.head[d] if self.about["bias"] else 0.0)
        if self.about["classes"] is not None:
            return np.asarray(np.asarray(self.about["classes"])[outputs.argmax(-1)])
        return np.asarray(outputs[..., 0] if outputs.shape[-1] == 1 else outputs)

    def save(self, path: str | Path) -> Path:
        """Write to a .safetensors file, whole or not at all; its folder is made if need be."""
        path = Path(path)
        library = import_package("safetensors.numpy", "a .safetensors file")
        held = {HEAD_KEY: json.dumps({"format": HEAD_FORMAT, **self.about})}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replace_file(path) as fresh:
                fresh.write_bytes(
                    library.save({"head": np.ascontiguousarray(self.head)}, metadata=held)
                )
        except OSError as reason:
            raise InvalidInput(
                f"{path} cannot be written: {reason.strerror or reason}; name another folder"
            ) from None
        return path

    @classmethod
    def load(cls, path: str | Path) -> SavedHead:
        """Read what `save` wrote.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     head = SavedHead(np.ones((2, 1)), {"bias": False, "classes": None, "round": 3})
        ...     path = head.save(folder + "/ann.safetensors")
        ...     SavedHead.load(path).about["round"]
        3
        """
        safetensors = import_package("safetensors", "a .safetensors file")
        try:
            with safetensors.safe_open(str(path), framework="numpy") as file:
                about = json.loads((file.metadata() or {})[HEAD_KEY])
                head = file.get_tensor("head")
            if about.pop("format") != HEAD_FORMAT or not is_head(head, about):
                raise ValueError
        except (
            OSError,
            KeyError,
            ValueError,
            TypeError,
            AttributeError,
            RecursionError,
            safetensors.SafetensorError,
        ):
            raise InvalidInput(
                f"{path} is not a head that fedasym wrote: name a .safetensors file of a heads"
                " folder"
            ) from None
        return cls(head, about)


def is_head(head: NDArray[Any], about: Mapping[str, Any]) -> bool:
    """Whether the numbers can be a head of that description: a class per output, a row for a bias.

    >>> (
    ...     is_head(np.eye(2), {"bias": False, "classes": ["cat", "dog"]}),
    ...     is_head(np.eye(2), {"bias": False, "classes": ["cat"]}),
    ... )
    (True, False)
    """
    bias, classes = about["bias"], about["classes"]
    named = classes is None or (
        isinstance(classes, list) and all(isinstance(each, str | int | float) for each in classes)
    )
    fits = (
        head.ndim == 2
        and head.dtype.kind == "f"
        and len(head) > bool(bias)
        and bool(np.isfinite(head).all())
    )
    return (
        isinstance(bias, bool)
        and named
        and fits
        and (classes is None or len(classes) == head.shape[1])
    )
