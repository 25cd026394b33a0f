"""The reference, written from the code itself: every public name, every command and flag, every
field of an experiment file.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cached_property
from pathlib import Path
from textwrap import fill
from typing import Any

import fedasym
from builder import commands, schema
from builder.docstrings import as_markdown, first_line, signature
from builder.names import HIDDEN, MODULES, members
from builder.pages import DOCS

FOLDER = DOCS / "reference"
NOTE = "*[Contents](../README.md). Written from the code by `make docs`; do not edit.*"
GROUPS = {
    "Verbs": inspect.isfunction,
    "Nouns": lambda thing: inspect.isclass(thing) and not issubclass(thing, Exception | Warning),
    "Errors and warnings": lambda thing: (
        inspect.isclass(thing) and issubclass(thing, Exception | Warning)
    ),
}


def python() -> str:
    """Every public name of the package and of its public modules."""
    parts = [
        "# Python",
        NOTE,
        (
            "`import fedasym as fa`. Heavy packages are imported by what needs them, when it is"
            " called."
        ),
    ]
    public = {
        name: getattr(fedasym, name) for name in fedasym.__all__ if name not in (*MODULES, *HIDDEN)
    }
    for group, belongs in GROUPS.items():
        chosen = {f"fa.{name}": thing for name, thing in public.items() if belongs(thing)}
        parts += [
            f"## {group}",
            *listed(chosen),
            *(text for name in chosen for text in entry(name, chosen[name])),
        ]
    for name in MODULES:
        module = getattr(fedasym, name)
        chosen = {f"fa.{name}.{each}": getattr(module, each) for each in members(module)}
        parts += [f"## fa.{name}", as_markdown(module), *listed(chosen)]
        parts += [text for each in chosen for text in entry(each, chosen[each])]
    return "\n\n".join(parts) + "\n"


def listed(chosen: dict[str, Any]) -> Iterator[str]:
    """A table of names."""
    rows = [
        f"| [`{name}`](#{name.lower().replace('.', '')}) | {meaning(thing)} |"
        for name, thing in chosen.items()
    ]
    yield "\n".join(["| name | what it is |", "| --- | --- |", *rows])


def meaning(thing: Any) -> str:
    """What a name is, in its docstring's first sentence; a constant has none."""
    return first_line(thing) if callable(thing) else "a constant"


def entry(name: str, thing: Any) -> Iterator[str]:
    """One name: how it is called, what it says of itself, and what it has."""
    yield f"### {name}"
    if not callable(thing):
        yield f"A `{type(thing).__name__}`: " + ", ".join(f"`{each}`" for each in thing) + "."
        return
    if not (inspect.isclass(thing) and issubclass(thing, Exception | Warning)):
        called = fill(
            name + signature(thing),
            100,
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        yield f"```python\n{called}\n```"
    yield as_markdown(thing)
    rows = list(attributes(thing)) if inspect.isclass(thing) else []
    if rows:
        yield "\n".join(["| it has | |", "| --- | --- |", *rows])


def attributes(kind: type) -> Iterator[str]:
    """The public methods and properties that a class defines itself, and its fields."""
    ours = [each for each in reversed(kind.__mro__) if each.__module__.startswith("fedasym")]
    own = {name: thing for each in ours for name, thing in vars(each).items()}
    fields = own_fields(kind)
    if fields:
        yield f"| fields | {', '.join(f'`{name}`' for name in fields)} |"
    for name, thing in own.items():
        if name.startswith("_") or name in fields:
            continue
        what = thing.__func__ if isinstance(thing, classmethod | staticmethod) else thing
        if inspect.isfunction(what):
            yield f"| `{name}{signature(what)}` | {first_line(what)} |"
        elif isinstance(thing, property | cached_property):
            yield f"| `{name}` | {first_line(thing)} |"


def own_fields(kind: type) -> list[str]:
    """The fields of a dataclass or a model."""
    if is_dataclass(kind):
        return [each.name for each in dataclasses.fields(kind) if not each.name.startswith("_")]
    return list(getattr(kind, "model_fields", {}))


def pages() -> dict[Path, str]:
    """The generated pages by file."""
    return {
        FOLDER / "python.md": python(),
        FOLDER / "commands.md": commands.page(NOTE),
        FOLDER / "experiment-file.md": schema.page(NOTE),
    }


def write() -> list[Path]:
    """Bring the pages up to date; those that changed."""
    FOLDER.mkdir(exist_ok=True)
    changed = []
    for file, text in pages().items():
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            changed.append(file)
    return changed
