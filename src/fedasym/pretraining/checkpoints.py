"""The state of a training run in a file: weights, optimiser, random numbers and where it was. Never unpickled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from fedasym.core.errors import InvalidInput
from fedasym.core.files import replace_file as replacing
from fedasym.pretraining.store import KEY

Tensors = dict[str, Tensor]


def write(path: Path, tensors: Tensors, description: dict[str, Any]) -> None:
    """Tensors and a description, whole or not at all."""
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        with replacing(path) as fresh:
            safetensors.torch.save_file(held, fresh, metadata={KEY: json.dumps(description)})
    except (OSError, safetensors.SafetensorError) as reason:
        raise InvalidInput(f"{path} cannot be written ({reason}): make room, or give another folder with --into") from None


def read(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """What `write` wrote."""
    try:
        with safetensors.safe_open(str(path), framework="pt") as file:
            description = json.loads((file.metadata() or {})[KEY])
            return {name: file.get_tensor(name) for name in file.keys()}, description  # noqa: SIM118 - no mapping
    except (OSError, ValueError, KeyError, safetensors.SafetensorError) as reason:
        raise InvalidInput(f"{path} cannot be read as a network of fedasym pretrain ({reason}): delete it") from None


def state(network: nn.Module, optimiser: torch.optim.Optimizer, device: torch.device) -> Tensors:
    """All tensors that going on needs."""
    tensors = {f"network.{name}": tensor for name, tensor in network.state_dict().items()}
    for number, entries in optimiser.state_dict()["state"].items():
        tensors |= {
            f"optimiser.{number}.{name}": torch.as_tensor(value) for name, value in entries.items() if value is not None
        }
    tensors["random.cpu"] = torch.get_rng_state()
    if device.type == "cuda":
        tensors["random.cuda"] = torch.cuda.get_rng_state(device)
    return tensors


def restore(tensors: Tensors, network: nn.Module, optimiser: torch.optim.Optimizer, device: torch.device) -> None:
    """Put everything back where `state` took it from."""
    network.load_state_dict(under("network", tensors))
    entries: dict[int, Tensors] = {}
    for name, tensor in under("optimiser", tensors).items():
        number, _, field = name.partition(".")
        entries.setdefault(int(number), {})[field] = tensor
    optimiser.load_state_dict({**optimiser.state_dict(), "state": entries})
    torch.set_rng_state(tensors["random.cpu"])
    if device.type == "cuda" and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"], device)


def under(prefix: str, tensors: Tensors) -> Tensors:
    """The tensors whose names start so, without it.

    >>> list(under("a", {"a.b": torch.zeros(1), "c": torch.zeros(1)}))
    ['b']
    """
    return {name.removeprefix(f"{prefix}."): tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}.")}
