"""From raw samples to features: train a network as the paper did, and keep what its last layer sees
of every sample.

>>> import fedasym as fa
>>> fa.pretraining.RECIPES["cifar100"].epochs
200
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedasym.pretraining.learning import Pretrained, features, pretrain
    from fedasym.pretraining.recipes import RECIPES, Recipe

_HOME = {
    "RECIPES": "fedasym.pretraining.recipes",
    "Pretrained": "fedasym.pretraining.learning",
    "Recipe": "fedasym.pretraining.recipes",
    "features": "fedasym.pretraining.learning",
    "pretrain": "fedasym.pretraining.learning",
}

__all__ = ["RECIPES", "Pretrained", "Recipe", "features", "pretrain"]


def __getattr__(name: str) -> object:
    """Import a public name where it lives, on first use."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(
        f"module 'fedasym.pretraining' has no attribute {name!r}; it has"
        f" {', '.join(sorted(__all__))}"
    )


def __dir__() -> list[str]:
    return sorted(__all__)
