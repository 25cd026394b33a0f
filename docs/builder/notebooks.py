"""Pages as notebooks, to run and to change: text becomes Markdown cells, examples code cells."""

from __future__ import annotations

import doctest
import json
import re
from collections.abc import Iterator
from hashlib import sha256

from builder.markdown import Follow, without_directives
from builder.pages import Page

FENCE = re.compile(r"^```python\n(>>> .*?)^```\n", flags=re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)\s]+)(\))")


def has_examples(page: Page) -> bool:
    """Whether there is something to run on a page that somebody wrote."""
    return not page.generated and page.source.suffix == ".md" and bool(FENCE.search(page.text))


def notebook(page: Page, follow: Follow) -> str:
    """A page as a notebook of format 4, without outputs: they come when it is run."""
    cells = [
        {
            "cell_type": kind,
            "id": sha256(f"{place} {text}".encode()).hexdigest()[:8],
            "metadata": {},
            "source": text.splitlines(keepends=True),
            **({"execution_count": None, "outputs": []} if kind == "code" else {}),
        }
        for place, (kind, text) in enumerate(cells_of(page, follow))
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    held = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(held, ensure_ascii=False, indent=1) + "\n"


def cells_of(page: Page, follow: Follow) -> Iterator[tuple[str, str]]:
    """Kinds and texts of the cells; links lead to the pages beside the notebook."""
    end = 0
    for block in FENCE.finditer(page.text):
        yield from markdown_cell(page, page.text[end : block.start()], follow)
        yield "code", source_of(block[1])
        end = block.end()
    yield from markdown_cell(page, page.text[end:], follow)


def markdown_cell(page: Page, text: str, follow: Follow) -> Iterator[tuple[str, str]]:
    """Text with its links followed, if there is any."""
    if text.strip():
        moved = LINK.sub(lambda at: at[1] + follow(page, at[2]) + at[3], text.strip())
        yield "markdown", moved


def source_of(example: str) -> str:
    r"""The code of an example, without prompts and output; what it shows last is shown again.

    >>> source_of(">>> x = 1\n>>> x + 1  # doctest: +SKIP\n2\n>>> for i in (1, 2):\n...     i\n")
    'x = 1\nx + 1\nfor i in (1, 2):\n    i'
    """
    parts = doctest.DocTestParser().get_examples(example)
    return without_directives("".join(part.source for part in parts)).strip()
