"""Epochs of stochastic gradients with checkpoints, for one recipe; nothing is unpickled.

A network of this size takes hundreds of small kernels a step, and starting them one by one on a GPU
takes longer than running them; so the whole step is recorded once and replayed, which starts them
all at once.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from fedasym.core.errors import InvalidInput, one_of
from fedasym.core.runtime import Progress
from fedasym.pretraining import NetworkRecipe
from fedasym.pretraining.networks import (
    Source,
    Tensors,
    augment,
    build,
    last_layer,
    read_checkpoint,
    write_checkpoint,
)

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
            self.plain(inputs, labels)
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
            self.plain(inputs, labels)
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
                self.plain(*self.held)
        except RuntimeError:
            self.recordable = False
            self.optimiser.zero_grad(set_to_none=True)
            return
        self.recorded = recording

    def plain(self, inputs: Tensor, labels: Tensor) -> None:
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
