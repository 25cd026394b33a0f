"""Small federations and networks for the tests of pretraining."""

import numpy as np
import torch
from torch import nn

import fedasym as fa


def images(clients=4, each=30, side=28, seed=0):
    """Blobs whose place is their class: learnt within an epoch or two."""
    rng = np.random.default_rng(seed)
    n = clients * each
    labels = np.arange(n) % 10
    pictures = rng.normal(0, 20, (n, side, side)) + 128
    for row, label in enumerate(labels):
        pictures[row, 2 * label : 2 * label + 6, 5:20] += 100
    return fa.Federation.from_arrays(
        pictures.reshape(n, -1).astype(np.float32), labels, np.repeat(np.arange(clients), each)
    )


def sentences(clients=3, each=20, seed=0):
    """Every token is followed by the next number: learnt at once. The last positions are
    padding.
    """
    rng = np.random.default_rng(seed)
    n, positions, words = clients * each, 6, 12
    first = rng.integers(4, words, n)
    tokens = 4 + (first[:, None] - 4 + np.arange(positions + 1)) % (words - 4)
    mask = np.arange(positions) < rng.integers(2, positions + 1, n)[:, None]
    features = tokens[:, :-1, None].astype(np.float32)
    return fa.Federation.from_arrays(
        features, tokens[:, 1:], np.repeat(np.arange(clients), each), mask=mask, classes=words
    )


def vectors(clients=5, each=20, seed=0):
    """Three classes in eight features."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(clients * each, 8)).astype(np.float32)
    labels = np.argmax(features[:, :3], 1)
    return fa.Federation.from_arrays(features, labels, np.repeat(np.arange(clients), each))


def perceptron():
    """A user's own network, the same every time."""
    with torch.random.fork_rng([]):
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


MINE = """
import torch
from torch import nn

def model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))

made = model()
flat = nn.ReLU()
number = 3
narrow = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
"""
