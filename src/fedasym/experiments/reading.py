"""Experiment files: TOML in, with errors that name the file; TOML out, so that what was run can be read and run again."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedasym.core.errors import InvalidInput

if TYPE_CHECKING:
    from fedasym.experiments.spec import Experiment

BARE = re.compile(r"[A-Za-z0-9_-]+")


def read(path: Path) -> dict[str, Any]:
    """What a file says, its data file found from where it is."""
    try:
        held = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidInput(f"{path}: there is no such file; check the name") from None
    except OSError as reason:
        raise InvalidInput(f"{path}: it cannot be read: {reason.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{path}: this is not text in UTF-8; give a TOML file") from None
    except (ValueError, RecursionError) as reason:  # a number of more digits than Python reads is a plain ValueError
        raise InvalidInput(f"{path}: this is not TOML: {reason}") from None
    data = held.get("data")
    if isinstance(data, dict) and isinstance(data.get("file"), str):
        data["file"] = str(path.absolute().parent / Path(data["file"]).expanduser())
    return held


def written(experiment: Experiment) -> str:
    """An experiment as TOML; what is as by default is written too, so that a later default changes nothing."""
    held = experiment.model_dump(exclude_none=True)
    for table, field in (("trials", "seeds"), ("trials", "splits"), ("gains", "seeds")):
        if table in held:
            held[table][field] = counted(held[table][field])
    return "\n".join(lines_of(held, ())) + "\n"


def counted(numbers: tuple[int, ...]) -> int | tuple[int, ...]:
    """1, ..., n as n: the shorter way to write it.

    >>> counted((1, 2, 3)), counted((2, 3))
    (3, (2, 3))
    """
    return len(numbers) if numbers == tuple(range(1, len(numbers) + 1)) else numbers


def lines_of(table: dict[str, Any], path: tuple[str, ...]) -> list[str]:
    """A table's own values, then the tables in it: in TOML nothing can be added to a table after another has begun.

    >>> lines_of({"grid": {"ftfa": {"ridge": (0.1, 1)}}, "name": "a"}, ())
    ['name = "a"', '', '[grid.ftfa]', 'ridge = [0.1, 1]']
    """
    own = {name: value for name, value in table.items() if not isinstance(value, dict)}
    inner = {name: value for name, value in table.items() if isinstance(value, dict)}
    head = ["", f"[{'.'.join(map(key, path))}]"] if path and (own or not inner) else []
    lines = [*head, *(f"{key(name)} = {toml(value)}" for name, value in own.items())]
    for name, value in inner.items():
        lines += lines_of(value, (*path, name))
    return lines


def key(name: str) -> str:
    """A key, in quotes where it needs them."""
    return name if BARE.fullmatch(name) else toml(name)


def toml(value: Any) -> str:
    """A value: JSON's strings are TOML's, but for the one control character that JSON leaves as it is."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value) if isinstance(value, bool) else repr(value)
