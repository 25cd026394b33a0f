"""The reference of the command line: every command with every argument and flag."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from builder.docstrings import escaped
from fedasym.cli import app, import_commands

INTRO = """Every command is a public verb plus printing, with the same words. A bad value exits with 2 and one sentence;
`--json` prints full precision with stable keys. `fedasym COMMAND --help` shows the same on a terminal."""


def all_commands() -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its words."""
    import_commands([])
    for name in sorted(each for each in app if not each.startswith("-")):
        inner = sorted(each for each in app[name] if not each.startswith("-"))
        yield from [(f"{name} {each}", app[name][each]) for each in inner] or [(name, app[name])]


def page(note: str) -> str:
    """The whole page."""
    parts = ["# Commands", note, INTRO]
    for words, command in all_commands():
        parts += [f"## fedasym {words}", *described(words, command)]
    return "\n\n".join(parts) + "\n"


def described(words: str, command: Any) -> Iterator[str]:
    """What a command does, how it is called, and what it takes."""
    found = command.assemble_argument_collection(
        default_parameter=app.default_parameter, parse_docstring=True
    )
    taken = [each for each in found if each.show]
    places = [each for each in taken if each.index is not None]
    flags = ["[FLAGS]"] if len(taken) > len(places) else []
    usage = " ".join([f"fedasym {words}", *map(place, places), *flags])
    text = inspect.getdoc(command.default_command) or ""
    yield escaped(text.split("\n\nParameters\n")[0])
    yield f"```text\n{usage}\n```"
    rows = [row(each) for each in taken]
    if rows:
        yield "\n".join(
            ["| argument | meaning | takes | by default |", "| --- | --- | --- | --- |", *rows]
        )


def place(argument: Any) -> str:
    """An argument by its place, as usage lines write it."""
    name = argument.names[0].lstrip("-").upper()
    return name if argument.required else f"[{name}]"


def row(argument: Any) -> str:
    """One argument or flag."""
    names = ", ".join(f"`{name}`" for name in argument.names)
    default = argument.field_info.default
    shown = (
        ""
        if argument.required or default in (None, argument.field_info.empty, "", ())
        else f"`{default}`"
    )
    meaning = escaped(" ".join((argument.parameter.help or "").split()))
    return (
        f"| {names} | {meaning} | {kind(argument.hint)} |"
        f" {'required' if argument.required else shown} |"
    )


def kind(hint: Any) -> str:
    """A type in words."""
    name = hint.__name__ if isinstance(hint, type) else str(hint)
    words = {"str": "text", "int": "whole number", "float": "number", "bool": "switch"}
    bare = (
        name.replace("typing.", "")
        .replace(" | None", "")
        .replace("pathlib.", "")
        .replace("None | ", "")
    )
    several = bare.startswith(("list[", "tuple["))
    inner = (
        bare.removeprefix("list[").removeprefix("tuple[").removesuffix("]").removesuffix(", ...")
    )
    if inner.startswith("Literal"):
        return escaped(inner.removeprefix("Literal[").replace("'", "")).replace(", ", " or ")
    return words.get(inner, "path" if "Path" in inner else escaped(inner)) + (
        ", repeatable" if several else ""
    )
