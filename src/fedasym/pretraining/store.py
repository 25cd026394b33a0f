"""Where networks and features are kept, and what they are known by: the hash of all that produced them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedasym.core.errors import InvalidInput, MissingPackage, path_of
from fedasym.core.files import cache_folder, replace_text
from fedasym.data.federation.federation import Federation
from fedasym.data.federation.files import fields_checksum as checksum

KEY = "fedasym"  # of the metadata of a network's file


def check_torch() -> None:
    """Refuse early, with the way to install it."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise MissingPackage(
            "networks need PyTorch: pip install 'fedasym[pretrain]' (or a torch build for your accelerator)"
        ) from None


def folder_of(into: str | Path | None, kind: str) -> Path:
    """The folder of networks or of features: in `into`, or in the cache of this system."""
    place = (cache_folder() if into is None else path_of("into", into)) / kind
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise InvalidInput(f"into is {str(into)!r}: {place} cannot be made ({reason.strerror}); give another folder") from None
    return place


def fingerprint(federation: Federation) -> dict[str, Any]:
    """What tells one federation from another: its sizes and a checksum of all its arrays."""
    return {"clients": len(federation), "samples": len(federation.features), "sum": checksum(vars(federation))}


def key_of(description: Mapping[str, Any]) -> str:
    """The hash of a description.

    >>> key_of({"b": 1, "a": 2}) == key_of({"a": 2, "b": 1})
    True
    """
    text = json.dumps(description, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def choose(name: str, network: Path) -> None:
    """Remember which network the features of a data set are made with: the last that was pretrained."""
    replace_text(network.parent / f"{name}.json", json.dumps({"network": network.name}))


def chosen(name: str, into: str | Path | None) -> Path:
    """The network that was pretrained last for a data set."""
    place = folder_of(into, "networks")
    try:
        path = place / str(json.loads((place / f"{name}.json").read_text())["network"])
    except (OSError, ValueError, KeyError, TypeError):
        path = None
    if path is None or path.parent != place or not path.is_file():
        raise InvalidInput(
            f"{name} has no pretrained network in {place}: run fedasym pretrain {name}, or name one: --network module:name"
        )
    return path


def features_file(name: str, into: str | Path | None = None) -> Path:
    """The features of a data set that were made last.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     features_file("cifar100", folder)
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: cifar100 has no features yet: run fedasym features cifar100
    """
    place = folder_of(into, "features")
    files = sorted(place.glob(f"{name}-*.safetensors"), key=lambda path: path.stat().st_mtime_ns)
    if not files:
        raise InvalidInput(f"{name} has no features yet: run fedasym features {name}")
    return files[-1]
