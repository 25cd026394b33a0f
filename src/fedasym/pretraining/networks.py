"""The paper's networks, ending in the linear layer that is trained anew; how they read samples."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from fedasym.core.errors import InvalidInput, unknown_name
from fedasym.core.runtime import replace_file
from fedasym.data.federation import Federation
from fedasym.data.splits import TRAIN
from fedasym.pretraining import KEY

Tensors = dict[str, Tensor]


def cnn(classes: int, channels: int = 1) -> nn.Module:
    """EMNIST's: 5x5 convolutions of 32 and 64, pooling, dropout, 512 units (Reddi et al. 2021)."""
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
            nn.Identity()
            if same
            else nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        """Add the two."""
        return functional.relu(self.inner(x) + self.cut(x))


def resnet18(classes: int, channels: int = 3) -> nn.Module:
    """CIFAR's ResNet-18: a 3x3 stem without pooling, 512 features."""
    widths = [(64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)]
    layers: list[nn.Module] = [
        nn.Conv2d(channels, 64, 3, 1, 1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
    ]
    before = 64
    for after, stride in widths:
        layers.append(Residual(before, after, stride))
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


class Recurrent(nn.Module):
    """Embedding, LSTM layers, perhaps a projection, and next-token scores at every position."""

    def __init__(
        self,
        vocabulary: int,
        embedding: int,
        width: int,
        layers: int,
        projection: int | None = None,
    ) -> None:
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
        return own_network(name)
    if name not in BUILT_IN:
        raise unknown_name("network", name, [*BUILT_IN, "or module:name of your own"])
    return BUILT_IN[name](classes)


def own_network(name: str) -> nn.Module:
    """The user's own network: a Module, or a function that returns one, also from this folder."""
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ImportError as reason:
        raise InvalidInput(
            f"network is {name!r}: the module {module!r} cannot be imported ({reason}); check its"
            " name"
        ) from None
    except AttributeError:
        raise InvalidInput(
            f"network is {name!r}: the module {module!r} has nothing named {attribute!r}"
        ) from None
    network = found if isinstance(found, nn.Module) else found() if callable(found) else found
    if not isinstance(network, nn.Module):
        raise InvalidInput(
            f"network is {name!r}, a {type(network).__name__}: give a torch Module, or a function"
            " that returns one"
        )
    last_layer(network)
    return network


def last_layer(network: nn.Module) -> nn.Linear:
    """The layer that the federation trains anew: what it sees are the features."""
    layers = [module for module in network.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise InvalidInput(
            "the network has no torch.nn.Linear: its last one is the layer whose inputs are the"
            " features; add one"
        )
    return layers[-1]


# rows, columns, colours
IMAGES = {"emnist": (28, 28, 1), "digits": (28, 28, 1), "cifar100": (32, 32, 3)}
TOKENS = ("shakespeare", "stackoverflow", "stackexchange")
PADDING, ANGLE = 4, 15.0  # pixels around an image before a crop; degrees
CHUNK = 4096  # samples that are brought to the device at once

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Reader:
    """How rows become a network's input; mean and std: of the training samples, by colour."""

    kind: str  # image, token or vector
    shape: tuple[int, ...]
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def prepare(self, rows: Tensor) -> Tensor:
        """A batch for the network."""
        if self.kind == "token":
            return rows[..., 0].long()
        if self.kind == "vector":
            return rows.float()
        mean, std = (torch.tensor(each, device=rows.device) for each in (self.mean, self.std))
        images = (rows.float().reshape(-1, *self.shape) - mean) / std
        return images.permute(0, 3, 1, 2)  # stays channels-last in memory, which convolutions like


def reader_for(name: str, federation: Federation) -> Reader:
    """How the samples of a data set are read."""
    if name in TOKENS:
        return Reader("token", federation.features.shape[1:2])
    if name not in IMAGES:
        return Reader("vector", federation.features.shape[1:])
    shape = IMAGES[name]
    total = np.zeros((2, shape[-1]))
    rows = np.flatnonzero(federation.split == TRAIN)
    for part in np.array_split(rows, -(-rows.size // CHUNK)):
        pixels = federation.features[part].reshape(-1, shape[-1]).astype(np.float64)
        total += [pixels.sum(0), np.square(pixels).sum(0)]
    mean, square = total / (rows.size * shape[0] * shape[1])
    std = np.sqrt(np.maximum(square - mean**2, 1e-12))
    return Reader("image", shape, tuple(mean.tolist()), tuple(std.tolist()))


class Source:
    """Batches of rows on a device: kept on an accelerator, read row by row on the CPU."""

    def __init__(
        self, federation: Federation, reader: Reader, rows: Rows, device: torch.device
    ) -> None:
        if federation.classes is None:
            raise InvalidInput(
                "the federation is a regression: a network is pretrained on classes; give its"
                " features instead"
            )
        self.federation, self.reader, self.rows, self.device = federation, reader, rows, device
        self.kept = None if device.type == "cpu" else self.move()

    def __len__(self) -> int:
        return int(self.rows.size)

    def move(self) -> tuple[Tensor, Tensor]:
        """All rows on the device, piece by piece; tokens and pixels in the smallest exact type."""
        held = self.federation.features
        small = held.dtype if self.reader.kind != "token" else np.dtype(np.int32)
        features = torch.empty(
            (len(self), *held.shape[1:]), dtype=torch_type(small), device=self.device
        )
        labels = torch.empty(
            (len(self), *self.federation.labels.shape[1:]), dtype=torch.int64, device=self.device
        )
        for start in range(0, len(self), CHUNK):
            part = self.rows[start : start + CHUNK]
            features[start : start + part.size] = torch.from_numpy(held[part].astype(small))
            labels[start : start + part.size] = torch.from_numpy(self.labels_of(part))
        return features, labels

    def labels_of(self, rows: Rows) -> NDArray[np.int64]:
        """Class numbers, -100 at padding, which torch's losses leave out."""
        labels = self.federation.labels[rows].astype(np.int64)
        return (
            labels
            if self.federation.mask is None
            else np.where(self.federation.mask[rows], labels, -100)
        )

    def batch(self, positions: Rows) -> tuple[Tensor, Tensor]:
        """Input and labels of those of the rows."""
        if self.kept is not None:
            chosen = torch.from_numpy(positions).to(self.device)
            return self.reader.prepare(self.kept[0][chosen]), self.kept[1][chosen]
        rows = self.rows[positions]
        return self.reader.prepare(
            torch.from_numpy(self.federation.features[rows])
        ), torch.from_numpy(self.labels_of(rows))

    def batches(self, size: int) -> Iterator[tuple[Rows, Tensor, Tensor]]:
        """All rows in their order: positions, input and labels."""
        for start in range(0, len(self), size):
            positions = np.arange(start, min(start + size, len(self)))
            yield positions, *self.batch(positions)


def torch_type(dtype: np.dtype[Any]) -> torch.dtype:
    """The same type in torch."""
    return torch.from_numpy(np.empty(0, dtype)).dtype


def augment(images: Tensor, ways: tuple[str, ...]) -> Tensor:
    """Random variants of a batch of images, from the default random numbers of their device."""
    if "rotation" in ways:
        images = rotate(
            images, (2 * torch.rand(len(images), device=images.device) - 1) * np.deg2rad(ANGLE)
        )
    if "crop" in ways:
        images = crop(
            images, torch.randint(0, 2 * PADDING + 1, (2, len(images)), device=images.device)
        )
    if "flip" in ways:
        mirror = torch.rand(len(images), device=images.device) < 0.5
        images = torch.where(mirror[:, None, None, None], images.flip(-1), images)
    return images


def crop(images: Tensor, shifts: Tensor) -> Tensor:
    """Windows of the padded images whose corners are the shifts, one pair of row and column per
    image.

    >>> image = torch.arange(9.0).reshape(1, 1, 3, 3)
    >>> crop(image, torch.tensor([[PADDING], [PADDING + 1]]))[0, 0].tolist()
    [[1.0, 2.0, 0.0], [4.0, 5.0, 0.0], [7.0, 8.0, 0.0]]
    """
    high, wide = images.shape[-2:]
    padded = functional.pad(images, (PADDING,) * 4)
    rows = shifts[0][:, None] + torch.arange(high, device=images.device)
    columns = shifts[1][:, None] + torch.arange(wide, device=images.device)
    which = torch.arange(len(images), device=images.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[which, rows[:, :, None], columns[:, None, :]].permute(
        0, 3, 1, 2
    )


def rotate(images: Tensor, angles: Tensor) -> Tensor:
    """Images turned about their centres by radians; outside is 0, the mean after normalising."""
    cosines = torch.cos(angles)
    sines = torch.sin(angles)
    zeros = torch.zeros_like(angles)
    turns = torch.stack(
        [torch.stack([cosines, -sines, zeros], -1), torch.stack([sines, cosines, zeros], -1)], 1
    )
    grid = functional.affine_grid(turns, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, mode="nearest", align_corners=False)


def write_checkpoint(path: Path, tensors: Tensors, description: dict[str, Any]) -> None:
    """Tensors and a description, whole or not at all."""
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        with replace_file(path) as fresh:
            safetensors.torch.save_file(held, fresh, metadata={KEY: json.dumps(description)})
    except (OSError, safetensors.SafetensorError) as reason:
        raise InvalidInput(
            f"{path} cannot be written ({reason}): make room, or give another folder with --into"
        ) from None


def read_checkpoint(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """What `write` wrote."""
    try:
        with safetensors.safe_open(str(path), framework="pt") as file:
            description = json.loads((file.metadata() or {})[KEY])
            names = file.keys()
            return {name: file.get_tensor(name) for name in names}, description
    except (OSError, ValueError, KeyError, safetensors.SafetensorError) as reason:
        raise InvalidInput(
            f"{path} cannot be read as a network of fedasym pretrain ({reason}): delete it"
        ) from None
