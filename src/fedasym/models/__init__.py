"""A fitted model to keep: shared and personal weights, and the recipe that makes features of raw
rows.

`fit` fits what the advisor recommends; `Model.predict` takes raw rows of a frame, or features;
`apply` adds predictions to a table. A client that was not in the fit gets the shared model, and is
told so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import notebook_text, plural
from fedasym.core.runtime import read_arrays, write_arrays
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
