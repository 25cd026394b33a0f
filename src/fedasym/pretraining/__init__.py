"""From raw samples to features: train a network as the paper did, and keep what its last layer sees
of every sample. Here is how each network is trained, as the paper's were, and where networks and
features are kept, by the hash of what made them; `learning` has the verbs.

Appendix "Pretrained Model". The text leaves the optimiser and the period of StepLR open: for images
they are those of the released code, for text the period is the one of 1, 2, 3, 5 and 8 epochs with
the best validation accuracy (docs/data.md).

>>> import fedasym as fa
>>> fa.pretraining.RECIPES["cifar100"].epochs
200
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedasym.core.errors import (
    InvalidInput,
    MissingPackage,
    one_of,
    path_of,
    read_list,
    unknown_name,
)
from fedasym.core.numbers import amount, one_float, whole
from fedasym.core.runtime import cache_folder, replace_text
from fedasym.data.federation import Federation
from fedasym.data.files import fields_checksum

if TYPE_CHECKING:
    from fedasym.pretraining.learning import features, pretrain

__all__ = ["RECIPES", "NetworkRecipe", "Pretrained", "features", "pretrain"]

VERBS = "features", "pretrain"  # of `learning`, imported on first use

AUGMENTATIONS = ("crop", "flip", "rotation")
OPTIMISERS = ("adam", "sgd")
STEPS, DECAYS = (0.0001, 0.001, 0.01, 0.1, 1.0), (0.1, 0.3, 0.5)


@dataclass(frozen=True)
class NetworkRecipe:
    """One way to train a network.

    network: a built-in one, or "module:name" of a user's own, a torch Module or a function that
        returns one.
    step: the first step size; it is multiplied by `decay` after every `decay_every` epochs, or at
        the epochs `decay_at`.
    warm_up: epochs over which the step size grows from 0.
    augmentation: of training images: "crop" (32x32 from 4 pixels of padding), "flip", "rotation"
        (by at most 15 degrees).

    >>> NetworkRecipe("cnn", step=0.01, decay=0.5, decay_every=2).rate(4, 0)
    0.0025
    >>> NetworkRecipe("cnn", step=-1)
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
            raise InvalidInput(
                f'network is {self.network!r}: give a name, such as cnn, or "module:name" of'
                " your own"
            )
        for name, least in (("epochs", 1), ("batch", 1), ("decay_every", 1), ("warm_up", 0)):
            object.__setattr__(self, name, whole(name, getattr(self, name), least))
        for name in ("step", "decay"):
            if not 0 < one_float(getattr(self, name)) < math.inf:
                raise InvalidInput(
                    f"{name} is {getattr(self, name)!r}: it must be finite and above 0"
                )
        for name in ("momentum", "weight_decay"):
            amount(name, getattr(self, name))
        one_of("optimiser", self.optimiser, OPTIMISERS)
        object.__setattr__(
            self,
            "decay_at",
            tuple(whole("decay_at", each, 0) for each in read_list("decay_at", self.decay_at)),
        )
        names = tuple(
            one_of("augmentation", each, AUGMENTATIONS)
            for each in read_list("augmentation", self.augmentation)
        )
        object.__setattr__(self, "augmentation", names)

    def rate(self, epoch: int, share: float) -> float:
        """The step size when that share of an epoch is done."""
        if epoch < self.warm_up:
            return self.step * (epoch + share) / self.warm_up
        times = (
            sum(epoch >= each for each in self.decay_at)
            if self.decay_at
            else epoch // self.decay_every
        )
        return self.step * float(self.decay**times)

    def changed(self, **options: Any) -> NetworkRecipe:
        """The recipe with those options that are given (None: as it is)."""
        known = [field.name for field in fields(self)]
        for name in options:
            if name not in known:
                raise unknown_name("option of a recipe", name, known)
        given = {name: value for name, value in options.items() if value is not None}
        if "decay_every" in given:
            given.setdefault("decay_at", ())
        return replace(self, **given)

    def grid(self) -> list[NetworkRecipe]:
        """The paper's grid around this recipe: every step size with every decay."""
        return [replace(self, step=step, decay=decay) for step, decay in product(STEPS, DECAYS)]


# inputs of each network's last layer
FEATURES = {"cnn": 512, "resnet18": 512, "character_lstm": 256, "word_lstm": 96}
RECIPES = {
    "emnist": NetworkRecipe("cnn"),
    "digits": NetworkRecipe("cnn"),
    "cifar100": NetworkRecipe(
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
    "shakespeare": NetworkRecipe("character_lstm", batch=32, step=0.003, decay_every=8),
    "stackoverflow": NetworkRecipe("word_lstm", decay_every=3),
    "stackexchange": NetworkRecipe("word_lstm", decay_every=3),
}


KEY = "fedasym"  # of the metadata of a network's file


@dataclass(frozen=True)
class Pretrained:
    """A trained network's file, how it was made and how it tests; prints itself.

    epochs: one record per epoch: loss, validation (accuracy), seconds.
    tried: with a grid, every recipe's validation accuracy, NaN where it diverged.
    """

    path: Path
    name: str
    recipe: NetworkRecipe
    validation: float
    test: float
    epochs: tuple[dict[str, float], ...]
    tried: tuple[tuple[NetworkRecipe, float], ...] = ()

    def __str__(self) -> str:
        spent = sum(each["seconds"] for each in self.epochs)
        scores = f"validation {self.validation:.4f}, test {self.test:.4f}"
        what = f"{self.recipe.network}, {self.recipe.epochs} epochs in {spent:,.0f} s"
        lines = [f"{self.name}: {what}", f"accuracy of the network itself: {scores}"]
        for recipe, validation in self.tried:
            mark = "  chosen" if recipe == self.recipe else ""
            steps = f"  step {recipe.step:<7g} decay {recipe.decay:<4g}"
            lines.append(f"{steps} validation {validation:.4f}{mark}")
        return "\n".join([*lines, f"in {self.path}"])

    __repr__ = __str__


def check_torch() -> None:
    """Refuse early, with the way to install it."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise MissingPackage(
            "networks need PyTorch: pip install 'fedasym[pretrain]' (or a torch build for your"
            " accelerator)"
        ) from None


def folder_of(into: str | Path | None, kind: str) -> Path:
    """The folder of networks or of features: in `into`, or in the cache of this system."""
    place = (cache_folder() if into is None else path_of("into", into)) / kind
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise InvalidInput(
            f"into is {str(into)!r}: {place} cannot be made ({reason.strerror}); give another"
            " folder"
        ) from None
    return place


def describe_federation(federation: Federation) -> dict[str, Any]:
    """What tells one federation from another: its sizes and a checksum of all its arrays."""
    return {
        "clients": len(federation),
        "samples": len(federation.features),
        "sum": fields_checksum(vars(federation)),
    }


def description_key(description: Mapping[str, Any]) -> str:
    """The hash of a description.

    >>> description_key({"b": 1, "a": 2}) == description_key({"a": 2, "b": 1})
    True
    """
    text = json.dumps(description, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def choose_network(name: str, network: Path) -> None:
    """Remember which network makes the features of a data set: the last one pretrained."""
    replace_text(network.parent / f"{name}.json", json.dumps({"network": network.name}))


def chosen_network(name: str, into: str | Path | None) -> Path:
    """The network that was pretrained last for a data set."""
    place = folder_of(into, "networks")
    try:
        path = place / str(json.loads((place / f"{name}.json").read_text())["network"])
    except (OSError, ValueError, KeyError, TypeError):
        path = None
    if path is None or path.parent != place or not path.is_file():
        raise InvalidInput(
            f"{name} has no pretrained network in {place}: run fedasym pretrain {name}, or name"
            " one: --network module:name"
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


def __getattr__(name: str) -> object:
    """Import a verb where it lives, on first use."""
    if name in VERBS:
        return getattr(import_module("fedasym.pretraining.learning"), name)
    raise AttributeError(
        f"module 'fedasym.pretraining' has no attribute {name!r}; it has"
        f" {', '.join(sorted(__all__))}"
    )


def __dir__() -> list[str]:
    return sorted(__all__)
