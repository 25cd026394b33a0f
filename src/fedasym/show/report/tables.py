"""Tables that sort by any column and scroll by themselves where the screen is narrow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from fedasym.show.report.markup import Html, element


class Column(NamedTuple):
    """A head, and whether its cells are words; numbers stand flush right and sort as numbers."""

    head: str
    text: bool = False


class Cell(NamedTuple):
    """What is read; and what is sorted by, where that is not the number that the text begins with."""

    text: object
    value: float | None = None

    @property
    def key(self) -> str | None:
        """The value for the script."""
        return None if self.value is None or not math.isfinite(self.value) else f"{self.value:.6g}"


def count(value: float) -> Cell:
    """A cell of a whole number.

    >>> count(33244).text
    '33,244'
    """
    return Cell(f"{value:,.0f}")


def minus(text: str) -> str:
    """A number with a minus sign as wide as its plus.

    >>> minus("-0.18"), minus("-0.00"), minus("+2")
    ('−0.18', '0.00', '+2')
    """
    if not text.startswith("-") or len(text) == 1:
        return text
    return f"−{text[1:]}" if text.strip("-0.") else text[1:]


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], label: str, best: Sequence[int] = ()) -> Html:
    """A table whose first column names the row; `label` says what it is to those who hear it; `best`: rows set in bold."""
    heads = [
        element("th", element("button", column.head, type="button"), scope="col", class_="text" if column.text else None)
        for column in columns
    ]
    body = []
    for at, row in enumerate(rows):
        first, *others = row
        cells = [element("th", first.text, scope="row", class_="text" if columns[0].text else None)]
        for column, cell in zip(columns[1:], others, strict=True):
            cells.append(element("td", cell.text, class_="text" if column.text else None, data_value=cell.key))
        body.append(element("tr", *cells, class_="best" if at in best else None))
    grid = element("table", element("thead", element("tr", *heads)), element("tbody", *body))
    return element("div", grid, class_="scroll", role="region", tabindex=0, aria_label=label)
