"""Numbers and results as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np


def number(value: Any) -> str:
    """A number in five significant digits, a dash where there is none."""
    return "-" if value is None or np.ndim(value) else f"{float(value):.5g}"


def json_value(value: Any) -> Any:
    """A number or nested list for JSON; infinities and NaN, which JSON lacks, as strings and null."""
    if value is None or np.ndim(value):
        return None if value is None else [json_value(entry) for entry in np.asarray(value)]
    value = float(value)
    return value if np.isfinite(value) else None if np.isnan(value) else str(value)


def notebook_text(result: object) -> str:
    """A result's text for a notebook."""
    from html import escape

    return f"<pre>{escape(str(result))}</pre>"


def plural(count: int, noun: str) -> str:
    """A count and its noun.

    >>> plural(1, "class"), plural(2, "class"), plural(0, "client")
    ('1 class', '2 classes', '0 clients')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{'es' if noun.endswith('s') else 's'}"


def join_names(names: Iterable[Any], most: int = 8, quoted: bool = False) -> str:
    """Names with commas, the first few of many; "nothing" where there are none.

    >>> join_names("abc", most=2), join_names([])
    ('a, b and 1 more', 'nothing')
    """
    known = [repr(str(name)) if quoted else str(name) for name in names]
    rest = len(known) - most
    return ", ".join(known[:most]) + (f" and {rest} more" if rest > 0 else "") if known else "nothing"
