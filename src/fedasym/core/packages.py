"""Optional packages, imported when they are asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fedasym.core.errors import MissingPackage


def needed(package: str, what: str) -> Any:
    """An optional package, imported when it is asked for."""
    try:
        return import_module(package)
    except ImportError as missing:
        raise MissingPackage(f"{what} needs {package.partition('.')[0]}: pip install 'fedasym[tables]'") from missing
