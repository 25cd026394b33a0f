"""What the tests of experiments share: a small experiment on a small federation, run once, and how
folders are compared.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl

import fedasym as fa
from fedasym.experiments.folder import COMPUTED, RunFolder
from fedasym.experiments.pieces import read_piece

TOML = """
name = "small"
algorithms = ["local", "fedavg", "ftfa"]
grid = { server_step = [0.1, 1], local_step = [0.01, 0.3] }
trials = { seeds = 2, splits = 2 }
gains = { algorithms = ["ftfa"], epochs = [0, "batch", 2], seeds = 1 }

[data.synthetic]
task = "classification"
clients = 8
dimension = 6
classes = 3
aspect = 0.3
split = [0.6, 0.2, 0.2]

[settings]
rounds = 4
evaluate_every = 2
cohort = 3
local_steps = 3
personal_epochs = 2
"""
PIECES = (
    3 + 2 * 2 + 2 * 2 + 1
)  # tuning: local, and two server steps; two families on seeds and splits; gains

# Many pieces of few programs: what dies and is started again has to trace them again.
MANY = """
name = "pieces"
algorithms = ["fedavg"]
grid = { server_step = [0.1, 0.3, 1] }
trials = { seeds = 5 }

[data.synthetic]
task = "classification"
clients = 8
dimension = 6
classes = 3
aspect = 0.3
split = [0.6, 0.2, 0.2]

[settings]
rounds = 4
evaluate_every = 2
cohort = 3
local_steps = 3
"""
MANY_PIECES = 3 + 5


def written(folder: Path, text: str = TOML) -> Path:
    path = folder / "small.toml"
    path.write_text(text)
    return path


def small(folder: Path, text: str = TOML) -> fa.Experiment:
    return fa.Experiment.from_toml(written(folder, text))


def frames(folder: Path) -> dict[str, pl.DataFrame]:
    """The rows of every piece, each checked, by key."""
    return {file.stem: read_piece(file).frame for file in (folder / "pieces").glob("*.parquet")}


def same_bits(first: Path, second: Path) -> None:
    """Hold two run folders against each other, to the last bit (NaN equals NaN)."""
    ours, theirs = frames(first), frames(second)
    assert ours.keys() == theirs.keys()
    for key in ours:
        assert ours[key].equals(theirs[key]), key


def flipped(content: bytes, at: int, bits: int = 1) -> bytes:
    """A file with one of its bytes changed."""
    return content[:at] + bytes([content[at] ^ bits]) + content[at + 1 :]


def times_computed(folder: Path) -> Counter[str]:
    """How often each piece was computed, by the log."""
    return Counter(entry.key for entry in RunFolder(folder).log() if entry.event == COMPUTED)


def environment(cache: Path) -> dict[str, str]:
    """What processes are given: a cache of their own. Compiled programs are kept where all tests
    keep them.
    """
    return {**os.environ, "XDG_CACHE_HOME": str(cache)}


def command(*args: Any) -> list[str]:
    return [sys.executable, "-m", "fedasym", *map(str, args)]
