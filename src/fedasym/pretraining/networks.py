"""The paper's networks, ending in the linear layer that is trained anew; how they read samples; and
their training: epochs of stochastic gradients with checkpoints, of which nothing is unpickled.

A network of this size takes hundreds of small kernels a step, and starting them one by one on a GPU
takes longer than running them; so the whole step is recorded once and replayed, which starts them
all at once.
"""

from __future__ import annotations

import importlib
import json
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
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
from torch.optim import Optimizer

from fedasym.core.errors import InvalidInput, one_of, unknown_name
from fedasym.core.runtime import Progress, replace_file
from fedasym.data.federation import Federation
from fedasym.data.splits import TRAIN
from fedasym.pretraining import KEY, NetworkRecipe

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


STATE = ("epoch", "batch", "lost", "seconds", "epochs")  # of a run, beside its tensors


def training_state(network: nn.Module, optimiser: Optimizer, device: torch.device) -> Tensors:
    """All tensors that going on needs."""
    tensors = {f"network.{name}": tensor for name, tensor in network.state_dict().items()}
    for number, entries in optimiser.state_dict()["state"].items():
        tensors |= {
            f"optimiser.{number}.{name}": torch.as_tensor(value)
            for name, value in entries.items()
            if value is not None
        }
    tensors["random.cpu"] = torch.get_rng_state()
    if device.type == "cuda":
        tensors["random.cuda"] = torch.cuda.get_rng_state(device)
    return tensors


def restore_state(
    tensors: Tensors, network: nn.Module, optimiser: Optimizer, device: torch.device
) -> None:
    """Put everything back where `state` took it from."""
    network.load_state_dict(select_prefix("network", tensors))
    entries: dict[int, Tensors] = {}
    for name, tensor in select_prefix("optimiser", tensors).items():
        number, _, field = name.partition(".")
        entries.setdefault(int(number), {})[field] = tensor
    optimiser.load_state_dict({**optimiser.state_dict(), "state": entries})
    torch.set_rng_state(tensors["random.cpu"])
    if device.type == "cuda" and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"], device)


def select_prefix(prefix: str, tensors: Tensors) -> Tensors:
    """The tensors whose names start so, without it.

    >>> list(select_prefix("a", {"a.b": torch.zeros(1), "c": torch.zeros(1)}))
    ['b']
    """
    start = f"{prefix}."
    inside = [name for name in tensors if name.startswith(start)]
    return {name.removeprefix(start): tensors[name] for name in inside}


REHEARSALS = 3  # steps before recording, so that libraries have made their choices
TESTED = 1024  # samples tested at once


def find_device(name: str | None) -> torch.device:
    """The device of that name, such as cpu or cuda; by default a GPU where there is one."""
    default = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(default if name is None else name)
    except (RuntimeError, TypeError, ValueError):
        raise InvalidInput(f"device is {name!r}: give cpu, or cuda for a GPU") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InvalidInput(
            f"device is {name!r}, and PyTorch finds no GPU here: give cpu, or install its GPU build"
        )
    return device


def find_precision(name: str | None, device: torch.device) -> bool:
    """Whether products are taken in bfloat16: by default on a GPU."""
    if name is None:
        return device.type == "cuda"
    return one_of("precision", name, ("mixed", "float32")) == "mixed"


def cast_products(device: torch.device, mixed: bool) -> AbstractContextManager[object]:
    """Products in bfloat16 and sums in float32, where that is wanted."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=mixed)


def optimiser_of(recipe: NetworkRecipe, network: nn.Module, device: torch.device) -> Optimizer:
    """The recipe's optimiser; its step size is a tensor, which a recorded step reads anew."""
    fast = device.type == "cuda"
    rate = torch.tensor(recipe.step, device=device)
    told: dict[str, Any] = {"lr": rate, "weight_decay": recipe.weight_decay, "fused": fast}
    if recipe.optimiser == "sgd":
        return torch.optim.SGD(network.parameters(), momentum=recipe.momentum, **told)
    return torch.optim.Adam(network.parameters(), capturable=fast, **told)


def mean_cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy over all real labels."""
    flat = scores.flatten(0, -2).float()
    return functional.cross_entropy(flat, labels.flatten(), ignore_index=-100)


class Step:
    """One step per batch; the summed loss stays on the device until it is asked for."""

    def __init__(
        self, network: nn.Module, optimiser: Optimizer, device: torch.device, mixed: bool
    ) -> None:
        self.network, self.optimiser, self.device, self.mixed = network, optimiser, device, mixed
        self.total = torch.zeros((), device=device)
        self.recordable = device.type == "cuda"
        self.recorded: torch.cuda.CUDAGraph | None = None
        self.held: tuple[Tensor, Tensor] | None = None
        self.rehearsed = 0

    def set_rate(self, rate: float) -> None:
        """The step size from now on."""
        for group in self.optimiser.param_groups:
            group["lr"].fill_(rate)

    def __call__(self, inputs: Tensor, labels: Tensor) -> None:
        """Take the step; a batch of another shape than the recorded one goes unrecorded."""
        if self.recordable and self.recorded is None:
            if self.rehearsed < REHEARSALS:
                self.rehearse(inputs, labels)
                return
            self.record(inputs, labels)
        if self.recorded is None or self.held is None or inputs.shape != self.held[0].shape:
            self.step_eagerly(inputs, labels)
            return
        self.held[0].copy_(inputs)
        self.held[1].copy_(labels)
        self.recorded.replay()

    def rehearse(self, inputs: Tensor, labels: Tensor) -> None:
        """A step on a stream of its own, as recording wants it before."""
        self.rehearsed += 1
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            self.step_eagerly(inputs, labels)
        torch.cuda.current_stream().wait_stream(aside)

    def record(self, inputs: Tensor, labels: Tensor) -> None:
        """Record a step on copies that later batches are written into; recording computes nothing.

        A user's network that cannot be recorded (it asks for a value midway) runs as it is.
        """
        self.held = inputs.clone(memory_format=torch.preserve_format), labels.clone()
        torch.cuda.synchronize()
        recording = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(recording):
                self.step_eagerly(*self.held)
        except RuntimeError:
            self.recordable = False
            self.optimiser.zero_grad(set_to_none=True)
            return
        self.recorded = recording

    def step_eagerly(self, inputs: Tensor, labels: Tensor) -> None:
        """Forward, backward, update."""
        self.optimiser.zero_grad(set_to_none=False)
        with cast_products(self.device, self.mixed):
            loss = mean_cross_entropy(self.network(inputs), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.total += loss.detach()

    def loss(self) -> float:
        """The summed loss since the last time."""
        total = float(self.total)
        self.total.zero_()
        return total


@torch.no_grad()
def measure_accuracy(network: nn.Module, source: Source, mixed: bool) -> float:
    """The share of real labels that the network gets right; NaN without any."""
    network.eval()
    right = torch.zeros((), device=source.device, dtype=torch.int64)
    counted = torch.zeros_like(right)
    for _, inputs, labels in source.batches(TESTED):
        with cast_products(source.device, mixed):
            guesses = network(inputs).argmax(-1)
        real = labels >= 0
        right += ((guesses == labels) & real).sum()
        counted += real.sum()
    network.train()
    return float(right / counted)


EVERY = 30.0  # seconds between checkpoints


def fit_network(
    recipe: NetworkRecipe,
    sources: Sequence[Source],
    classes: int,
    mixed: bool,
    seed: int,
    checkpoint: Path,
    progress: Progress | None,
    every: float = EVERY,
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The trained weights, losses and accuracies; resumes from a checkpoint if there is one.

    The order of an epoch comes from seed and epoch, other random numbers are in the checkpoint: a
    run that was killed ends with the same weights.
    """
    train, validation, test = sources
    devices = [train.device] if train.device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.backends.cudnn.flags(enabled=True, benchmark=True):
        torch.manual_seed(seed)
        network = start_run(recipe, train, classes)
        run = TrainingRun(recipe, network, train, validation, mixed, seed, checkpoint, every)
        run.resume()
        with hold_interrupts() as asked:
            run.go(progress, asked)
        tested = (("validation", validation), ("test", test))
        scores = {name: measure_accuracy(network, source, mixed) for name, source in tested}
    sound = bool(run.epochs) and math.isfinite(run.epochs[-1]["loss"])
    known = {name: each if sound and math.isfinite(each) else None for name, each in scores.items()}
    return dict(network.state_dict()), {"epochs": run.epochs, **known}


@contextmanager
def hold_interrupts() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed: steps are not broken off, so that weights fit their counts."""
    pressed: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


def start_run(recipe: NetworkRecipe, train: Source, classes: int) -> nn.Module:
    """The network on its device, shown one sample to size its layers; one score per class."""
    network = build(recipe.network, classes)
    with torch.no_grad():
        network.eval()
        inputs, labels = (tensor.cpu() for tensor in train.batch(np.arange(min(2, len(train)))))
        try:
            scores = network(inputs)
        except (RuntimeError, TypeError, IndexError) as reason:
            raise InvalidInput(
                f"network is {recipe.network!r}: it does not take an input of shape"
                f" {tuple(inputs.shape)} ({reason}); change it"
            ) from None
    if tuple(scores.shape) != (*labels.shape, classes):
        raise InvalidInput(
            f"network is {recipe.network!r}: it gives scores of shape {tuple(scores.shape)} where"
            f" {(*labels.shape, classes)} is expected, one score for each of {classes} classes"
        )
    last_layer(network)
    if train.reader.kind == "image":
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network.train().to(train.device)


class TrainingRun:
    """A training run: where it is, and all that its checkpoint holds."""

    def __init__(
        self,
        recipe: NetworkRecipe,
        network: nn.Module,
        train: Source,
        validation: Source,
        mixed: bool,
        seed: int,
        checkpoint: Path,
        every: float,
    ) -> None:
        self.recipe, self.network, self.train, self.validation = recipe, network, train, validation
        self.mixed, self.seed, self.checkpoint, self.every = mixed, seed, checkpoint, every
        self.optimiser = optimiser_of(recipe, network, train.device)
        self.step = Step(network, self.optimiser, train.device, mixed)
        self.epoch, self.batch, self.lost, self.seconds = 0, 0, 0.0, 0.0
        self.epochs: list[dict[str, float]] = []

    def resume(self) -> None:
        """Go back to the checkpoint, if there is a sound one."""
        if not self.checkpoint.is_file():
            return
        try:
            tensors, held = read_checkpoint(self.checkpoint)
        except InvalidInput:
            return  # a damaged checkpoint costs its work, not the run
        restore_state(tensors, self.network, self.optimiser, self.train.device)
        for name in STATE:
            setattr(self, name, held[name])

    def save(self) -> None:
        """Write the checkpoint."""
        self.lost += self.step.loss()
        held = {name: getattr(self, name) for name in STATE}
        tensors = training_state(self.network, self.optimiser, self.train.device)
        write_checkpoint(self.checkpoint, tensors, held)

    def go(self, progress: Progress | None, asked: Callable[[], bool]) -> None:
        """All epochs left; a loss that is no number ends the run, as does a wish to stop."""
        batches = -(-len(self.train) // self.recipe.batch)
        total = self.recipe.epochs * batches
        saved = time.monotonic()
        while self.epoch < self.recipe.epochs:
            order = np.random.default_rng([self.seed, self.epoch]).permutation(len(self.train))
            while self.batch < batches:
                began = time.monotonic()
                rows = order[self.batch * self.recipe.batch :][: self.recipe.batch]
                self.learn(rows, self.batch / batches)
                self.batch += 1
                now = time.monotonic()
                self.seconds += now - began
                if progress and (self.batch % 50 == 0 or self.batch == batches):
                    progress((self.epoch * batches + self.batch) / total * 0.99, self.words())
                if asked():
                    self.save()
                    raise KeyboardInterrupt
                if now - saved > self.every:
                    self.save()
                    saved = time.monotonic()
            self.finish_epoch(batches)
            if not math.isfinite(self.epochs[-1]["loss"]):
                return
        self.save()

    def learn(self, positions: Any, share: float) -> None:
        """One batch."""
        inputs, labels = self.train.batch(positions)
        if self.recipe.augmentation and self.train.reader.kind == "image":
            inputs = augment(inputs, self.recipe.augmentation)
        self.step.set_rate(self.recipe.rate(self.epoch, share))
        self.step(inputs, labels)

    def finish_epoch(self, batches: int) -> None:
        """Test on validation samples, and go on to the next."""
        began = time.monotonic()
        loss = (self.lost + self.step.loss()) / batches
        known = measure_accuracy(self.network, self.validation, self.mixed)
        self.seconds += time.monotonic() - began
        self.epochs.append({"loss": loss, "validation": known, "seconds": self.seconds})
        self.epoch = self.epoch + 1
        self.batch = 0
        self.lost = 0.0
        self.seconds = 0.0

    def words(self) -> str:
        """Where the run is."""
        known = f", validation accuracy {self.epochs[-1]['validation']:.4f}" if self.epochs else ""
        return f"epoch {self.epoch + 1} of {self.recipe.epochs}{known}"
