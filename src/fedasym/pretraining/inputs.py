"""A federation's samples as a network reads them: images in channels, normalised; token numbers; or vectors as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedasym.core.errors import InvalidInput
from fedasym.data.federation.federation import Federation
from fedasym.data.federation.splits import TRAIN

IMAGES = {"emnist": (28, 28, 1), "digits": (28, 28, 1), "cifar100": (32, 32, 3)}  # rows, columns, colours
TOKENS = ("shakespeare", "stackoverflow", "stackexchange")
PADDING, ANGLE = 4, 15.0  # pixels around an image before a crop; degrees
CHUNK = 4096  # samples that are brought to the device at once

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Reader:
    """How rows of a federation become a network's input; mean and std are those of the training samples, by colour."""

    kind: str  # image, token or vector
    shape: tuple[int, ...]
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def prepared(self, rows: Tensor) -> Tensor:
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
    """Batches of a federation's rows on a device: kept there on an accelerator, read row by row on the CPU."""

    def __init__(self, federation: Federation, reader: Reader, rows: Rows, device: torch.device) -> None:
        if federation.classes is None:
            raise InvalidInput("the federation is a regression: a network is pretrained on classes; give its features instead")
        self.federation, self.reader, self.rows, self.device = federation, reader, rows, device
        self.kept = None if device.type == "cpu" else self.moved()

    def __len__(self) -> int:
        return int(self.rows.size)

    def moved(self) -> tuple[Tensor, Tensor]:
        """All rows on the device, piece by piece; tokens and pixels from 0 to 255 in their smallest exact type."""
        held = self.federation.features
        small = held.dtype if self.reader.kind != "token" else np.dtype(np.int32)
        features = torch.empty((len(self), *held.shape[1:]), dtype=torch_type(small), device=self.device)
        labels = torch.empty((len(self), *self.federation.labels.shape[1:]), dtype=torch.int64, device=self.device)
        for start in range(0, len(self), CHUNK):
            part = self.rows[start : start + CHUNK]
            features[start : start + part.size] = torch.from_numpy(held[part].astype(small))
            labels[start : start + part.size] = torch.from_numpy(self.labels_of(part))
        return features, labels

    def labels_of(self, rows: Rows) -> NDArray[np.int64]:
        """Class numbers, -100 at padding, which torch's losses leave out."""
        labels = self.federation.labels[rows].astype(np.int64)
        return labels if self.federation.mask is None else np.where(self.federation.mask[rows], labels, -100)

    def batch(self, positions: Rows) -> tuple[Tensor, Tensor]:
        """Input and labels of those of the rows."""
        if self.kept is not None:
            chosen = torch.from_numpy(positions).to(self.device)
            return self.reader.prepared(self.kept[0][chosen]), self.kept[1][chosen]
        rows = self.rows[positions]
        return self.reader.prepared(torch.from_numpy(self.federation.features[rows])), torch.from_numpy(self.labels_of(rows))

    def batches(self, size: int) -> Iterator[tuple[Rows, Tensor, Tensor]]:
        """All rows in their order: positions, input and labels."""
        for start in range(0, len(self), size):
            positions = np.arange(start, min(start + size, len(self)))
            yield positions, *self.batch(positions)


def torch_type(dtype: np.dtype[Any]) -> torch.dtype:
    """The same type in torch."""
    return torch.from_numpy(np.empty(0, dtype)).dtype


def augmented(images: Tensor, ways: tuple[str, ...]) -> Tensor:
    """Random variants of a batch of images, from the default random numbers of their device."""
    if "rotation" in ways:
        images = rotated(images, (2 * torch.rand(len(images), device=images.device) - 1) * np.deg2rad(ANGLE))
    if "crop" in ways:
        images = cropped(images, torch.randint(0, 2 * PADDING + 1, (2, len(images)), device=images.device))
    if "flip" in ways:
        mirror = torch.rand(len(images), device=images.device) < 0.5
        images = torch.where(mirror[:, None, None, None], images.flip(-1), images)
    return images


def cropped(images: Tensor, shifts: Tensor) -> Tensor:
    """Windows of the padded images whose corners are the shifts, one pair of row and column per image.

    >>> image = torch.arange(9.0).reshape(1, 1, 3, 3)
    >>> cropped(image, torch.tensor([[PADDING], [PADDING + 1]]))[0, 0].tolist()
    [[1.0, 2.0, 0.0], [4.0, 5.0, 0.0], [7.0, 8.0, 0.0]]
    """
    high, wide = images.shape[-2:]
    padded = functional.pad(images, (PADDING,) * 4)
    rows = shifts[0][:, None] + torch.arange(high, device=images.device)
    columns = shifts[1][:, None] + torch.arange(wide, device=images.device)
    which = torch.arange(len(images), device=images.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[which, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def rotated(images: Tensor, angles: Tensor) -> Tensor:
    """Images turned about their centres by angles in radians, the outside as the mean colour, which is 0 after normalising."""
    cosines, sines, zeros = torch.cos(angles), torch.sin(angles), torch.zeros_like(angles)
    turns = torch.stack([torch.stack([cosines, -sines, zeros], -1), torch.stack([sines, cosines, zeros], -1)], 1)
    grid = functional.affine_grid(turns, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, mode="nearest", align_corners=False)
