"""Epochs of training with checkpoints: what `pretrain` does for one recipe."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedasym.core.errors import InvalidInput
from fedasym.core.hooks import Progress
from fedasym.pretraining import checkpoints
from fedasym.pretraining.inputs import Source, augmented
from fedasym.pretraining.networks import build, last_layer
from fedasym.pretraining.recipes import Recipe
from fedasym.pretraining.steps import Step, accuracy, optimiser_of

EVERY = 30.0  # seconds between checkpoints


def fit(
    recipe: Recipe,
    sources: Sequence[Source],
    classes: int,
    mixed: bool,
    seed: int,
    checkpoint: Path,
    progress: Progress | None,
    every: float = EVERY,
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The trained weights, and losses and accuracies; goes on from the checkpoint where there is one.

    The order of an epoch's samples comes from the seed and the epoch alone, other random numbers are part of the checkpoint:
    a run that was killed ends with the same weights as one that was not.
    """
    train, validation, test = sources
    device = train.device
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.backends.cudnn.flags(enabled=True, benchmark=True):
        torch.manual_seed(seed)
        network = started(recipe, train, classes)
        run = Run(recipe, network, train, validation, mixed, seed, checkpoint, every)
        run.resume()
        with held_interrupts() as asked:
            run.go(progress, asked)
        scores = {
            name: accuracy(network, source, mixed) if len(source) else math.nan
            for name, source in (("validation", validation), ("test", test))
        }
    sound = bool(run.epochs) and math.isfinite(run.epochs[-1]["loss"])
    known = {name: score if sound and math.isfinite(score) else None for name, score in scores.items()}
    return dict(network.state_dict()), {"epochs": run.epochs, **known}


@contextmanager
def held_interrupts() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed: a step is not broken off in the middle, where weights and counts would not fit together."""
    pressed: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


def started(recipe: Recipe, train: Source, classes: int) -> nn.Module:
    """The network on its device, shown one sample so that every layer knows its size; it must give a score per class."""
    network = build(recipe.network, classes)
    with torch.no_grad():
        network.eval()
        inputs, labels = (tensor.cpu() for tensor in train.batch(np.arange(min(2, len(train)))))
        try:
            scores = network(inputs)
        except (RuntimeError, TypeError, IndexError) as reason:
            raise InvalidInput(
                f"network is {recipe.network!r}: it does not take an input of shape {tuple(inputs.shape)} ({reason}); change it"
            ) from None
    if tuple(scores.shape) != (*labels.shape, classes):
        raise InvalidInput(
            f"network is {recipe.network!r}: it gives scores of shape {tuple(scores.shape)} where {(*labels.shape, classes)} "
            f"is expected, one score for each of {classes} classes"
        )
    last_layer(network)
    if train.reader.kind == "image":
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network.train().to(train.device)


class Run:
    """A training run: where it is, and all that its checkpoint holds."""

    def __init__(
        self,
        recipe: Recipe,
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
            tensors, held = checkpoints.read(self.checkpoint)
        except InvalidInput:
            return  # a damaged checkpoint costs its work, not the run
        checkpoints.restore(tensors, self.network, self.optimiser, self.train.device)
        self.epoch, self.batch, self.lost, self.seconds = (held[name] for name in ("epoch", "batch", "lost", "seconds"))
        self.epochs = held["epochs"]

    def save(self) -> None:
        """Write the checkpoint."""
        self.lost += self.step.loss()
        held = {name: getattr(self, name) for name in ("epoch", "batch", "lost", "seconds", "epochs")}
        checkpoints.write(self.checkpoint, checkpoints.state(self.network, self.optimiser, self.train.device), held)

    def go(self, progress: Progress | None, asked: Callable[[], bool]) -> None:
        """All epochs that are left; a loss that is no number ends the run, and so does a wish to stop, after a checkpoint."""
        batches = -(-len(self.train) // self.recipe.batch)
        total, saved = self.recipe.epochs * batches, time.monotonic()
        while self.epoch < self.recipe.epochs:
            order = np.random.default_rng([self.seed, self.epoch]).permutation(len(self.train))
            while self.batch < batches:
                began = time.monotonic()
                self.learn(order[self.batch * self.recipe.batch :][: self.recipe.batch], self.batch / batches)
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
            inputs = augmented(inputs, self.recipe.augmentation)
        self.step.set_rate(self.recipe.rate(self.epoch, share))
        self.step(inputs, labels)

    def finish_epoch(self, batches: int) -> None:
        """Test on validation samples, and go on to the next."""
        began = time.monotonic()
        loss = (self.lost + self.step.loss()) / batches
        known = accuracy(self.network, self.validation, self.mixed) if len(self.validation) else math.nan
        self.seconds += time.monotonic() - began
        self.epochs.append({"loss": loss, "validation": known, "seconds": self.seconds})
        self.epoch, self.batch, self.lost, self.seconds = self.epoch + 1, 0, 0.0, 0.0

    def words(self) -> str:
        """Where the run is."""
        known = f", validation accuracy {self.epochs[-1]['validation']:.4f}" if self.epochs else ""
        return f"epoch {self.epoch + 1} of {self.recipe.epochs}{known}"
