"""What a lower layer asks of a higher one, by the name of the role: results draw themselves, experiments run on a cluster.

The higher layer's module fills the roles when the first is asked for; nothing of it is imported before.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

LAYERS = ("fedasym.show.hooks", "fedasym.deploy.hooks")
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
