"""What a lower layer asks of a higher one, or of its caller: roles by name, a cluster to work on, who hears of progress.

Results draw themselves, and experiments run on a cluster, by roles. The higher layer's module fills them when the first is
asked for; nothing of it is imported before.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from fedasym.core.errors import InvalidInput


class Notice(str):
    """Words of progress that stay to be read: something was damaged or lost."""

    __slots__ = ()


Progress = Callable[[float, str], None]  # hears what share of all is done, and a few words on where that is


def check_progress(progress: Any) -> None:
    """Refuse what cannot be told anything, before any work.

    >>> check_progress(True)
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: progress is True: give a function of the share that is done and of a few words, such as print
    """
    if progress is not None and not callable(progress):
        raise InvalidInput(
            f"progress is {progress!r}: give a function of the share that is done and of a few words, such as print"
        )


class Executor(Protocol):
    """What `on` may be, such as `fedasym.runtimes.Ray`."""

    @property
    def threads(self) -> int:
        """CPUs that a task is given."""

    @property
    def workers(self) -> int | None:
        """How many tasks at a time, at the most."""


LAYERS = ("fedasym.show.hooks", "fedasym.deploy")
_FILLED: dict[str, Callable[..., Any]] = {}


def fill(role: str, module: str, name: str) -> None:
    """Fill a role with a function of a module, which is imported when it is called."""

    def call(*args: Any, **options: Any) -> Any:
        return getattr(import_module(module), name)(*args, **options)

    _FILLED[role] = call


def ask(role: str) -> Callable[..., Any]:
    """The function that fills a role."""
    if role not in _FILLED:
        for layer in LAYERS:
            import_module(layer)
    return _FILLED[role]


def write_file(role: str, *args: Any, **options: Any) -> Path:
    """Have a role write a file; returns where it is."""
    return Path(ask(role)(*args, **options))
