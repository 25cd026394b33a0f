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
from builder.names import HIDDEN, INDEX, MODULES, TASKS, Task, anchor_of, members, page_of
from builder.pages import DOCS

FOLDER = DOCS / "reference"
NOTE = "*[Contents](../README.md). Written from the code by `make docs`; do not edit.*"
GROUPS = {"Verbs": inspect.isfunction, "Nouns": inspect.isclass}


def public_names() -> dict[str, Any]:
    """The package's own public names, without its modules."""
    return {
        name: getattr(fedasym, name) for name in fedasym.__all__ if name not in (*MODULES, *HIDDEN)
    }


def index_page() -> str:
    """All names by task, and the errors."""
    parts = [
        "# Python",
        NOTE,
        "`import fedasym as fa`. Heavy packages are imported by what needs them, when it is called.",
    ]
    for page, task in TASKS.items():
        chosen = names_of_page(page)
        parts += [f"## {task.title}", f"[{task.title}]({page}.md): {task.meaning}."]
        parts += listed(chosen, f"{page}.md")
        for name in task.modules:
            inside = members(getattr(fedasym, name))
            links = (f"[`{each}`]({page}.md#{anchor_of(f'fa.{name}.{each}')})" for each in inside)
            parts.append(f"[`fa.{name}`]({page}.md#{anchor_of(f'fa.{name}')}): {', '.join(links)}.")
    errors = names_of_page(INDEX)
    parts += ["## Errors and warnings", *listed(errors)]
    parts += [text for name, thing in errors.items() for text in entry(name, thing)]
    return "\n\n".join(parts) + "\n"


def names_of_page(page: str) -> dict[str, Any]:
    """The package's own names on one page."""
    return {f"fa.{name}": thing for name, thing in public_names().items() if page_of(name) == page}


def task_page(page: str, task: Task) -> str:
    """The names of one task: verbs, nouns, then those of its modules."""
    parts = [f"# {task.title}: the Python names", NOTE, f"{task.meaning.capitalize()}."]
    chosen = names_of_page(page)
    for group, belongs in GROUPS.items():
        found = {name: thing for name, thing in chosen.items() if belongs(thing)}
        if found:
            parts += [f"## {group}", *listed(found)]
            parts += [text for name, thing in found.items() for text in entry(name, thing)]
    for name in task.modules:
        module = getattr(fedasym, name)
        found = {f"fa.{name}.{each}": getattr(module, each) for each in members(module)}
        parts += [f"## fa.{name}", as_markdown(module), *listed(found)]
        parts += [text for each, thing in found.items() for text in entry(each, thing)]
    return "\n\n".join(parts) + "\n"


def listed(chosen: dict[str, Any], page: str = "") -> Iterator[str]:
    """A table of names, explained on this page or another."""
    rows = [
        f"| [`{name}`]({page}#{anchor_of(name)}) | {meaning(thing)} |"
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
        FOLDER / f"{INDEX}.md": index_page(),
        **{FOLDER / f"{page}.md": task_page(page, task) for page, task in TASKS.items()},
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
