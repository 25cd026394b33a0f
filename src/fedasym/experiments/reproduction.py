"""What can be reproduced of the paper, and the features that it takes."""

from __future__ import annotations

from pathlib import Path

from fedasym.core.errors import InvalidInput, known
from fedasym.core.hooks import Progress

RUNS = "runs"  # the folder of run folders

TARGETS = {
    "cifar100": "images by Pachinko allocation, 100 classes",
    "shakespeare": "next character, by role",
    "emnist": "characters by writer, 62 classes",
    "stackoverflow": "next word, by user",
    "digits": "digits by writer, in the stead of emnist",
    "stackexchange": "next word, by user, in the stead of stackoverflow",
    "theory": "the limits beside simulated clients",
}


def find(name: str) -> str:
    """What the target of that name is."""
    return known("target", name, TARGETS)


def prepare(name: str, device: str | None, progress: Progress | None) -> Path:
    """The features of a data set: found, or made."""
    from fedasym.pretraining import features, pretrain
    from fedasym.pretraining.store import chosen, features_file

    try:
        return features_file(name)
    except InvalidInput:
        pass
    where = {"gpu": "cuda"}.get(device or "", device)
    try:
        chosen(name, None)
    except InvalidInput:
        pretrain(name, device=where, progress=progress)
    return features(name, device=where, progress=progress)
