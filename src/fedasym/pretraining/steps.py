"""One step of stochastic gradients, and the test of a network; on a GPU the whole step is recorded once and replayed.

A network of this size takes hundreds of small kernels a step, and starting them one by one takes longer than running them;
a recorded step starts them all at once.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedasym.core.errors import InvalidInput, one_of
from fedasym.pretraining.inputs import Source
from fedasym.pretraining.recipes import Recipe

REHEARSALS = 3  # steps before recording, so that libraries have made their choices
TESTED = 1024  # samples tested at once


def find_device(name: str | None) -> torch.device:
    """The device of that name, such as cpu or cuda; by default a GPU where there is one."""
    try:
        device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name is None else name)
    except (RuntimeError, TypeError, ValueError):
        raise InvalidInput(f"device is {name!r}: give cpu, or cuda for a GPU") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InvalidInput(f"device is {name!r}, and PyTorch finds no GPU here: give cpu, or install a torch build for yours")
    return device


def find_precision(name: str | None, device: torch.device) -> bool:
    """Whether products are taken in bfloat16: by default on a GPU."""
    return device.type == "cuda" if name is None else one_of("precision", name, ("mixed", "float32")) == "mixed"


def casting(device: torch.device, mixed: bool) -> AbstractContextManager[object]:
    """Products in bfloat16 and sums in float32, where that is wanted."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=mixed)


def optimiser_of(recipe: Recipe, network: nn.Module, device: torch.device) -> torch.optim.Optimizer:
    """The recipe's optimiser; its step size is a tensor, which a recorded step reads anew."""
    fast = device.type == "cuda"
    rate = torch.tensor(recipe.step, device=device)
    if recipe.optimiser == "sgd":
        return torch.optim.SGD(network.parameters(), rate, recipe.momentum, weight_decay=recipe.weight_decay, fused=fast)
    return torch.optim.Adam(network.parameters(), rate, weight_decay=recipe.weight_decay, fused=fast, capturable=fast)


def mean_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy over all real labels."""
    return functional.cross_entropy(scores.flatten(0, -2).float(), labels.flatten(), ignore_index=-100)


class Step:
    """A step on one batch after another; the summed loss stays on the device until it is asked for."""

    def __init__(self, network: nn.Module, optimiser: torch.optim.Optimizer, device: torch.device, mixed: bool) -> None:
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

        A user's network may do what cannot be recorded, such as asking for a value in the middle: it then runs as it is.
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
        with casting(self.device, self.mixed):
            loss = mean_loss(self.network(inputs), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.total += loss.detach()

    def loss(self) -> float:
        """The summed loss since the last time."""
        total = float(self.total)
        self.total.zero_()
        return total


@torch.no_grad()
def accuracy(network: nn.Module, source: Source, mixed: bool) -> float:
    """The share of real labels that the network gets right; NaN without any."""
    network.eval()
    right = torch.zeros((), device=source.device, dtype=torch.int64)
    counted = torch.zeros_like(right)
    for _, inputs, labels in source.batches(TESTED):
        with casting(source.device, mixed):
            guesses = network(inputs).argmax(-1)
        real = labels >= 0
        right += ((guesses == labels) & real).sum()
        counted += real.sum()
    network.train()
    return float(right / counted)
