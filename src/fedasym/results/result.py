"""What every answer can do: rows, a data frame, a file of JSON, a figure, text in a terminal and in a notebook."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

from fedasym.core.errors import import_package as needed
from fedasym.core.text import notebook_text as preformatted


class Result:
    """An answer that prints itself; a class that inherits from it says how it is tabled, drawn and written."""

    @abstractmethod
    def table(self) -> list[dict[str, Any]]:
        """Its rows, one record each: feed them to any data frame."""

    def frame(self) -> Any:
        """Its rows as a polars data frame."""
        return needed("polars", "a data frame").DataFrame(self.table(), infer_schema_length=None)

    @abstractmethod
    def to_json(self) -> str:
        """Everything in full precision."""

    @abstractmethod
    def plot(self, path: str | Path) -> Path:
        """Draw it to a file; returns where it is."""

    def _repr_html_(self) -> str:
        return preformatted(self)
