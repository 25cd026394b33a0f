"""How each network is trained: the paper's schedules, and the grid of step sizes and decays that it tunes over.

Appendix "Pretrained Model". The text leaves the optimiser and the period of StepLR open: for images they are those of the
released code, for text the period is the one of 1, 2, 3, 5 and 8 epochs with the best validation accuracy (docs/data.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

from fedasym.core.arrays import amount, one_float, whole
from fedasym.core.errors import InvalidInput, one_of, unknown
from fedasym.core.errors import read_list as listed

AUGMENTATIONS = ("crop", "flip", "rotation")
OPTIMISERS = ("adam", "sgd")
STEPS, DECAYS = (0.0001, 0.001, 0.01, 0.1, 1.0), (0.1, 0.3, 0.5)


@dataclass(frozen=True)
class Recipe:
    """One way to train a network.

    network: a built-in one, or "module:name" of a user's own, a torch Module or a function that returns one.
    step: the first step size; it is multiplied by `decay` after every `decay_every` epochs, or at the epochs `decay_at`.
    warm_up: epochs over which the step size grows from 0.
    augmentation: of training images: "crop" (32x32 from 4 pixels of padding), "flip", "rotation" (by at most 15 degrees).

    >>> Recipe("cnn", step=0.01, decay=0.5, decay_every=2).rate(4, 0)
    0.0025
    >>> Recipe("cnn", step=-1)
    Traceback (most recent call last):
    ...
    fedasym.InvalidInput: step is -1: it must be finite and above 0
    """

    network: str
    epochs: int = 25
    batch: int = 128
    optimiser: str = "adam"
    step: float = 0.001
    decay: float = 0.5
    decay_every: int = 1
    decay_at: tuple[int, ...] = ()
    warm_up: int = 0
    momentum: float = 0.0
    weight_decay: float = 0.0
    augmentation: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.network, str):
            raise InvalidInput(f'network is {self.network!r}: give a name, such as cnn, or "module:name" of your own')
        for name, least in (("epochs", 1), ("batch", 1), ("decay_every", 1), ("warm_up", 0)):
            object.__setattr__(self, name, whole(name, getattr(self, name), least))
        for name in ("step", "decay"):
            if not 0 < one_float(getattr(self, name)) < math.inf:
                raise InvalidInput(f"{name} is {getattr(self, name)!r}: it must be finite and above 0")
        for name in ("momentum", "weight_decay"):
            amount(name, getattr(self, name))
        one_of("optimiser", self.optimiser, OPTIMISERS)
        object.__setattr__(self, "decay_at", tuple(whole("decay_at", each, 0) for each in listed("decay_at", self.decay_at)))
        names = tuple(one_of("augmentation", each, AUGMENTATIONS) for each in listed("augmentation", self.augmentation))
        object.__setattr__(self, "augmentation", names)

    def rate(self, epoch: int, share: float) -> float:
        """The step size when that share of an epoch is done."""
        if epoch < self.warm_up:
            return self.step * (epoch + share) / self.warm_up
        times = sum(epoch >= each for each in self.decay_at) if self.decay_at else epoch // self.decay_every
        return self.step * float(self.decay**times)

    def changed(self, **options: Any) -> Recipe:
        """The recipe with those options that are given (None: as it is)."""
        known = [field.name for field in fields(self)]
        for name in options:
            if name not in known:
                raise unknown("option of a recipe", name, known)
        given = {name: value for name, value in options.items() if value is not None}
        if "decay_every" in given:
            given.setdefault("decay_at", ())
        return replace(self, **given)

    def grid(self) -> list[Recipe]:
        """The paper's grid around this recipe: every step size with every decay."""
        return [replace(self, step=step, decay=decay) for step, decay in product(STEPS, DECAYS)]


FEATURES = {"cnn": 512, "resnet18": 512, "character_lstm": 256, "word_lstm": 96}  # inputs of each network's last layer
RECIPES = {
    "emnist": Recipe("cnn"),
    "digits": Recipe("cnn"),
    "cifar100": Recipe(
        "resnet18",
        epochs=200,
        optimiser="sgd",
        step=0.1,
        decay=0.2,
        decay_at=(60, 120, 160),
        warm_up=1,
        momentum=0.9,
        weight_decay=5e-4,
        augmentation=("crop", "flip"),
    ),
    "shakespeare": Recipe("character_lstm", step=0.01, decay_every=8),
    "stackoverflow": Recipe("word_lstm", decay_every=3),
    "stackexchange": Recipe("word_lstm", decay_every=3),
}
