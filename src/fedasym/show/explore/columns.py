"""The columns of a table that a browser sent: what each holds, and which look like the label and the clients.

The page offers them for a choice; nothing here decides what becomes of a column, which is the recipe's task.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from fedasym.core.errors import InvalidInput
from fedasym.data.tables.cells import CellKind as Kind
from fedasym.data.tables.cells import Cells, read_cells
from fedasym.data.tables.frames import EXCEL, TEXTS, read_file
from fedasym.data.tables.roles import is_called_identifier
from fedasym.show.explore.receiving import Readable, receive_file

TABLES = (*TEXTS, *EXCEL, ".parquet")
LONGEST = 40  # characters of an example
KINDS = {
    Kind.NUMBER: "numbers",
    Kind.WHOLE: "whole numbers",
    Kind.TEXT: "words",
    Kind.BOOLEAN: "booleans",
    Kind.DATE: "dates",
    Kind.EMPTY: "empty",
    Kind.LISTS: "lists",
}
LABELS = ("label", "labels", "y", "target", "score", "outcome", "response")
CLIENTS = (
    *("client", "user", "subject", "participant", "patient", "person", "customer", "device"),
    *("hospital", "clinic", "school", "shop", "store", "site", "group"),
)
ROWS_PER_CLIENT = 2  # on average, at least: with fewer, a name says which row it is


@dataclass(frozen=True)
class ColumnSummary:
    """One column: its name, what it holds, how many different values, how many missing cells, and the first value."""

    name: str
    kind: str
    distinct: int
    missing: int
    example: str


def summarize_upload(source: Readable, size: int, said: dict[str, str]) -> dict[str, Any]:
    """Receive a table of `size` bytes and say what its columns are; `said`: its name."""
    name = said.get("name", "")
    with receive_file(source, size, name) as file:
        if file.suffix not in TABLES:
            raise InvalidInput(f"{name} is no table: columns are offered for {', '.join(TABLES)}")
        return summarize_table(file)


def summarize_table(file: Path) -> dict[str, Any]:
    r"""The columns of a table, with a guess at the label and the clients (None: there is no good one).

    columns: None where some hold lists, which are features already. split: the column that says who trains, if any.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "shops.csv")
    ...     size = file.write_text("shop,price,y\n01,1.5,2\n01,NA,3\n02,2.5,3\n02,3.5,1\n")
    ...     found = summarize_table(file)
    >>> found["client"], found["label"], found["rows"]
    ('shop', 'y', 4)
    >>> found["columns"][1]
    {'name': 'price', 'kind': 'numbers', 'distinct': 3, 'missing': 1, 'example': '1.5'}
    """
    frame = read_file(file)
    cells = [read_cells(frame[name], name) for name in frame.columns]
    if any(each.kind is Kind.LISTS for each in cells):
        return {"rows": frame.height, "columns": None, "label": None, "client": None, "split": None}
    columns = [summarize_cells(each) for each in cells]
    client = guess_client(columns, frame.height)
    return {
        "rows": frame.height,
        "columns": [asdict(each) for each in columns],
        "label": guess_label(columns, client),
        "client": client,
        "split": "split" if "split" in frame.columns else None,
    }


def summarize_cells(cells: Cells) -> ColumnSummary:
    """What one column holds."""
    held = cells.values.drop_nulls()
    kind = KINDS[cells.kind] if cells.stray is None else "numbers and words"
    example = format_example(held[0]) if len(held) else ""
    return ColumnSummary(cells.name, kind, int(held.n_unique()), len(cells.values) - len(held), example)


def format_example(value: Any) -> str:
    """A cell in a few characters.

    >>> format_example(0.1 + 0.2), format_example(datetime(2024, 5, 31)), len(format_example("a" * 100))
    ('0.3', '2024-05-31', 40)
    """
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value).removesuffix(" 00:00:00") if isinstance(value, datetime) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def guess_client(columns: Sequence[ColumnSummary], rows: int) -> str | None:
    """The column whose name is that of clients, or else of an identifier, and whose values come back."""
    repeated = [each for each in columns if each.name and is_repeated(each, rows)]
    for word in CLIENTS:
        for each in repeated:
            if word in split_words(each.name):
                return each.name
    return next((each.name for each in repeated if is_called_identifier(each.name)), None)


def is_repeated(column: ColumnSummary, rows: int) -> bool:
    """Whether a column could name clients: words or whole numbers, several of them, with several rows each."""
    named = column.kind in (KINDS[Kind.WHOLE], KINDS[Kind.TEXT])
    return named and 2 <= column.distinct <= (rows - column.missing) / ROWS_PER_CLIENT


def guess_label(columns: Sequence[ColumnSummary], client: str | None) -> str | None:
    """The column whose name is that of labels."""
    usual = {each.name.lower(): each.name for each in columns if each.name != client and each.kind != KINDS[Kind.EMPTY]}
    return next((usual[word] for word in LABELS if word in usual), None)


def split_words(name: str) -> set[str]:
    """The words of a column's name, in lower case and without a plural's s.

    >>> sorted(split_words("schoolId")), sorted(split_words("USER_IDS"))
    (['id', 'school'], ['id', 'user'])
    """
    return {word.lower().removesuffix("s") for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
