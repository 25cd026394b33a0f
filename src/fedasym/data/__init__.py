"""Federations to train on: drawn from worlds whose parameters are known, and real data sets by
name.

>>> import fedasym as fa
>>> federation = fa.datasets.synthetic(clients=3, dimension=8, seed=1)
>>> federation.truth["heads"].shape
(3, 8)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedasym.data.catalogue import fetch, load
    from fedasym.data.formats import read
    from fedasym.data.partitioners import partition
    from fedasym.data.shards import write_shards
    from fedasym.data.splits import duplicates
    from fedasym.data.synthesis import synthetic

# The module has another name than its function: a submodule, once imported, would stand in the
# function's place.
_HOME = {
    "duplicates": "fedasym.data.splits",
    "fetch": "fedasym.data.catalogue",
    "load": "fedasym.data.catalogue",
    "partition": "fedasym.data.partitioners",
    "read": "fedasym.data.formats",
    "synthetic": "fedasym.data.synthesis",
    "write_shards": "fedasym.data.shards",
}

__all__ = ["duplicates", "fetch", "load", "partition", "read", "synthetic", "write_shards"]


def __getattr__(name: str) -> object:
    """Import a public name where it lives, on first use."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(
        f"module 'fedasym.data' has no attribute {name!r}; it has {', '.join(sorted(__all__))}"
    )


def __dir__() -> list[str]:
    return sorted(__all__)
