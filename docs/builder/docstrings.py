"""Docstrings as Markdown: arguments become a list, examples a block of code, and signs that
Markdown would read stay signs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

ARGUMENT = re.compile(r"([a-z_]\w*(?:, [a-z_]\w*)*): (.*)")


def signature(thing: Any) -> str:
    """How it is called, without types: those stand in the source, and in editors."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    plain = [
        each.replace(annotation=each.empty)
        for each in found.parameters.values()
        if each.name not in ("self", "cls")
    ]
    return str(found.replace(parameters=plain, return_annotation=found.empty)).replace(
        "<factory>", "..."
    )


def first_line(thing: Any) -> str:
    """What it is, in a sentence that may run over several lines."""
    return escaped(" ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split()))


def as_markdown(thing: Any) -> str:
    """A whole docstring."""
    return "\n\n".join(blocks(inspect.getdoc(thing) or ""))


def blocks(text: str) -> Iterator[str]:
    """Its paragraphs, lists of arguments and examples."""
    for part in re.split(r"\n\s*\n(?!\s*(?:\.\.\. |>>> ))", text.strip()):
        example = part.find(">>>")
        if example >= 0 and not part[:example].strip():
            yield f"```python\n{part}\n\n```"
        elif example >= 0:
            yield from blocks(part[:example])
            yield from blocks(part[example:])
        else:
            yield paragraph(part)


def paragraph(text: str) -> str:
    """Text; lines that begin with a name and a colon are items of a list, with what is indented
    below them.
    """
    lines: list[str] = []
    items = False
    for line in text.splitlines():
        named = ARGUMENT.match(line)
        if named:
            items = True
            begins = not lines or not lines[-1].startswith("- ")
            lines += [*([""] if begins else []), f"- `{named[1]}`: {escaped(named[2])}"]
        elif items and line.startswith(" "):
            lines[-1] += f" {escaped(line.strip())}"
        else:
            lines.append(escaped(line))
    return "\n".join(lines).strip()


def escaped(text: str) -> str:
    """Text in which stars, underscores, brackets and dollars are themselves; code in backticks is
    left alone.
    """
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([*_<\[\]$|])", r"\\\1", part) for part in parts
    )
