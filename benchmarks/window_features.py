"""Features that two processor cores make in minutes, for benchmarks/double.py.

    python benchmarks/window_features.py shakespeare FOLDER [--clients 100]

Networks are trained on roles, users or writers that are not among the clients; what the last layer
sees of theirs is kept in FOLDER/NAME.npz (x, y, client, split). Text (shakespeare, stackexchange):
a small network that sees the last eight characters, or the last four words, in single positions. It
is no LSTM: its accuracy is a few points below. Words are the 199 commonest and one class of all
others. digits: the package's own network, one epoch over 300 writers. Data: FEDASYM_DATA.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

import fedasym as fa

COARSE = 200  # classes of words, that of all others included
POSITIONS = {0: 240, 1: 60, 2: 100}  # of a client at the most, by split; evenly spread
LEAST = {0: 120, 1: 20, 2: 20}
WRITERS = 300  # that teach the network of digits
LEAST_DIGITS = 60  # of a writer


class Window(nn.Module):
    """Next-token scores from the last tokens: embedding, one hidden layer."""

    def __init__(self, vocabulary: int, seen: int, embedding: int, hidden: int, classes: int):
        super().__init__()
        self.seen = seen
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.hidden = nn.Linear(seen * embedding, hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        before = nn.functional.pad(tokens, (self.seen - 1, 0))
        near = self.embedding(before).unfold(1, self.seen, 1).flatten(2)
        return self.head(torch.relu(self.hidden(near)))


def characters() -> nn.Module:
    return Window(90, 8, 16, 256, 90)


def words() -> nn.Module:
    return Window(10_004, 4, 32, 96, COARSE)


RECIPES = {
    "shakespeare": fa.pretraining.NetworkRecipe(
        "window_features:characters", epochs=4, batch=64, step=0.002, decay=0.4
    ),
    "stackexchange": fa.pretraining.NetworkRecipe(
        "window_features:words", epochs=6, batch=64, step=0.002, decay=0.6
    ),
    "digits": replace(fa.pretraining.RECIPES["digits"], epochs=1),
}


def choose_clients(federation: fa.Federation, clients: int) -> np.ndarray:
    """Places of clients with enough positions of every split, evenly spread."""
    if federation.mask is None:
        able = np.flatnonzero(np.diff(federation.starts) >= LEAST_DIGITS)
        return able[np.linspace(0, len(able) - 1, min(clients, len(able))).astype(int)]
    real = federation.mask.sum(1)
    held = np.stack(
        [
            np.bincount(
                federation.owner[federation.split == part],
                real[federation.split == part],
                len(federation),
            )
            for part in LEAST
        ],
        axis=1,
    )
    able = np.flatnonzero(np.all(held >= list(LEAST.values()), axis=1))
    return able[np.linspace(0, len(able) - 1, min(clients, len(able))).astype(int)]


def select_clients(federation: fa.Federation, places: np.ndarray) -> fa.Federation:
    """The federation of some of the clients."""
    rows = np.flatnonzero(np.isin(federation.owner, places))
    return replace(
        federation,
        features=federation.features[rows],
        labels=federation.labels[rows],
        clients=tuple(federation.clients[place] for place in places),
        owner=np.searchsorted(places, federation.owner[rows]),
        split=federation.split[rows],
        mask=None if federation.mask is None else federation.mask[rows],
    )


def flatten(federation: fa.Federation) -> dict[str, np.ndarray]:
    """Samples, or single positions, evenly spread over each client's of each split."""
    if federation.mask is None:
        kept = {"client": federation.owner, "split": federation.split}
        return {"x": federation.features.astype(np.float16), "y": federation.labels} | kept
    sample, place = np.nonzero(federation.mask)
    kept = []
    for client in range(len(federation)):
        for part, most in POSITIONS.items():
            mine = np.flatnonzero(
                (federation.owner[sample] == client) & (federation.split[sample] == part)
            )
            kept.append(mine[np.unique(np.linspace(0, len(mine) - 1, most).astype(int))])
    chosen = np.concatenate(kept)
    rows = sample[chosen], place[chosen]
    return {
        "x": federation.features[rows].astype(np.float16),
        "y": federation.labels[rows],
        "client": federation.owner[rows[0]],
        "split": federation.split[rows[0]],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=list(RECIPES))
    parser.add_argument("into", type=Path)
    parser.add_argument("--clients", type=int, default=100)
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))  # where the networks are
    start = time.process_time()
    whole = fa.datasets.load(options.name)
    if whole.mask is not None:
        whole = whole.merge_rare(COARSE)
    places = choose_clients(whole, options.clients)
    others = np.setdiff1d(np.arange(len(whole)), places)
    if options.name == "digits":
        others = others[:WRITERS]
    told = {"into": options.into, "device": "cpu"}
    network = fa.pretraining.pretrain(
        options.name, select_clients(whole, others), recipe=RECIPES[options.name], **told
    )
    print(network)
    ours = select_clients(whole, places)
    made = fa.pretraining.features(options.name, ours, network=network.path, **told)
    rows = flatten(fa.Federation.from_safetensors(made))
    np.savez(options.into / f"{options.name}.npz", **rows)
    print(
        f"{options.name}: {len(places)} clients, {len(rows['y'])} samples of"
        f" {rows['x'].shape[1]} features; network of {len(others)} others;"
        f" {time.process_time() - start:.0f} s of a processor"
    )


if __name__ == "__main__":
    main()
