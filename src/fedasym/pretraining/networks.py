"""The paper's networks, each ending in the linear layer that the federation trains anew."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedasym.core.errors import InvalidInput, unknown


def cnn(classes: int, channels: int = 1) -> nn.Module:
    """EMNIST's: two 5x5 convolutions of 32 and 64 with pooling and dropout, 512 units, for 28x28 (Reddi et al. 2021)."""
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.4)),
        *(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.4)),
        *(nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.ReLU(), nn.Linear(512, classes)),
    )


class Residual(nn.Module):
    """Two 3x3 convolutions beside a short cut (He et al. 2016, the basic block)."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            *(nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()),
            *(nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)),
        )
        same = stride == 1 and before == after
        self.cut = (
            nn.Identity() if same else nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Add the two."""
        return functional.relu(self.inner(x) + self.cut(x))


def resnet18(classes: int, channels: int = 3) -> nn.Module:
    """CIFAR's ResNet-18: a 3x3 stem without pooling, 512 features."""
    widths = [(64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)]
    layers: list[nn.Module] = [nn.Conv2d(channels, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    before = 64
    for after, stride in widths:
        layers.append(Residual(before, after, stride))
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


class Recurrent(nn.Module):
    """Embedding, LSTM layers, perhaps a projection, and the next token's scores at every position."""

    def __init__(self, vocabulary: int, embedding: int, width: int, layers: int, projection: int | None = None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, width, layers, batch_first=True)
        self.projection = nn.Identity() if projection is None else nn.Linear(width, projection)
        self.head = nn.Linear(projection or width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores, (samples, positions, vocabulary)."""
        return torch.as_tensor(self.head(self.projection(self.lstm(self.embedding(tokens))[0])))


def character_lstm(classes: int) -> nn.Module:
    """Shakespeare's: embedding 8, two LSTM layers of 256 (McMahan et al. 2017)."""
    return Recurrent(classes, 8, 256, 2)


def word_lstm(classes: int) -> nn.Module:
    """Stack Overflow's: embedding 96, an LSTM of 670, projection 96 (Reddi et al. 2021)."""
    return Recurrent(classes, 96, 670, 1, 96)


BUILT_IN: dict[str, Callable[[int], nn.Module]] = {
    "cnn": cnn,
    "resnet18": resnet18,
    "character_lstm": character_lstm,
    "word_lstm": word_lstm,
}


def build(name: str, classes: int) -> nn.Module:
    """A built-in network for that many classes, or the user's own, "module:name".

    >>> sum(parameter.numel() for parameter in build("character_lstm", 90).parameters())
    822570
    """
    if ":" in name:
        return own(name)
    if name not in BUILT_IN:
        raise unknown("network", name, [*BUILT_IN, "or module:name of your own"])
    return BUILT_IN[name](classes)


def own(name: str) -> nn.Module:
    """The user's own network: a Module, or a function without arguments that returns one. The current folder is searched."""
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ImportError as reason:
        raise InvalidInput(
            f"network is {name!r}: the module {module!r} cannot be imported ({reason}); check its name"
        ) from None
    except AttributeError:
        raise InvalidInput(f"network is {name!r}: the module {module!r} has nothing named {attribute!r}") from None
    network = found if isinstance(found, nn.Module) else found() if callable(found) else found
    if not isinstance(network, nn.Module):
        raise InvalidInput(
            f"network is {name!r}, a {type(network).__name__}: give a torch Module, or a function that returns one"
        )
    last_layer(network)
    return network


def last_layer(network: nn.Module) -> nn.Linear:
    """The layer that the federation trains anew: what it sees are the features."""
    layers = [module for module in network.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise InvalidInput(
            "the network has no torch.nn.Linear: its last one is the layer whose inputs are the features; add one"
        )
    return layers[-1]
