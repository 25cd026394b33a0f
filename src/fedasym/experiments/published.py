"""The accuracies that the paper published, as its figures plot them: what our runs are set beside.

`paper/published.json` holds, by data set, `seeds`, `splits` and `gains`: for each algorithm (and number of personalization
epochs) the rounds and, for each round, an accuracy per trial; `"mean": "clients"` marks the two local curves that the paper
averaged over clients alike instead of pooling samples.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedasym.core.arrays import Array

FILE = Path(__file__).parent / "paper" / "published.json"
STANDS_FOR = {"digits": "emnist", "stackexchange": "stackoverflow"}  # whose curves a stand-in is set beside


class Curve(NamedTuple):
    """A published curve."""

    rounds: Array
    accuracy: Array  # (trials, rounds)
    over_clients: bool  # the mean over clients alike, not over samples

    @property
    def final(self) -> Array:
        """After the last round, a number per trial."""
        return self.accuracy[:, -1]


class Published(NamedTuple):
    """What the paper has of a data set: curves by sweep and algorithm, gains by algorithm and epochs."""

    name: str  # of the paper's data set
    trials: dict[str, dict[str, Curve]]
    gains: dict[str, dict[str, Curve]]

    def curves(self) -> dict[str, dict[str, tuple[list[int], Array]]]:
        """Rounds and accuracies (trials, rounds) by sweep and algorithm, as figures take them; gains by "ftfa 10"."""
        named = {f"{name} {epochs}": each for name, by in self.gains.items() for epochs, each in by.items()}
        return {
            sweep: {name: (each.rounds.astype(int).tolist(), each.accuracy) for name, each in by.items()}
            for sweep, by in (self.trials | ({"gains": named} if named else {})).items()
        }


def published(name: str) -> Published | None:
    """The paper's curves for a data set, or for the one that it stands in for; None where there are none.

    >>> curves = published("cifar100")
    >>> round(float(curves.trials["splits"]["ftfa"].final.mean()), 4)
    0.8104
    >>> published("digits").name, published("mine") is None
    ('emnist', True)
    """
    source = STANDS_FOR.get(name, name)
    held = every().get(source)
    if held is None:
        return None
    sweeps = [sweep for sweep in ("seeds", "splits") if sweep in held]
    trials = {sweep: {each: curve(entry) for each, entry in held[sweep].items()} for sweep in sweeps}
    gains = {each: {epochs: curve(entry) for epochs, entry in by.items()} for each, by in held.get("gains", {}).items()}
    return Published(source, trials, gains)


def curves_of(name: str) -> dict[str, dict[str, tuple[list[int], Array]]] | None:
    """What figures draw beside a run: none for a stand-in, since accuracies on other data do not belong on one axis.

    >>> sorted(curves_of("cifar100")), curves_of("digits")
    (['gains', 'seeds', 'splits'], None)
    """
    paper = published(name)
    return paper.curves() if paper is not None and paper.name == name else None


@cache
def every() -> dict[str, Any]:
    """The file, read once."""
    loaded: dict[str, Any] = json.loads(FILE.read_text())
    return loaded


def curve(entry: dict[str, Any]) -> Curve:
    """One curve of the file."""
    return Curve(np.array(entry["rounds"]), np.array(entry["accuracy"], float).T, entry.get("mean") == "clients")
