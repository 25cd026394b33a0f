"""The example that measures each choice of the protocol: its parts run, and its table is
complete.
"""

import importlib.util
from dataclasses import fields
from pathlib import Path

import numpy as np

from fedasym.training.settings import CODE, TEXT, Protocol

FILE = Path(__file__).parents[2] / "examples" / "protocol.py"
SPEC = importlib.util.spec_from_file_location("protocol_example", FILE)
example = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(example)


def test_every_choice_that_the_protocols_make_differently_has_a_row():
    choices = {field.name for field in fields(Protocol)} - {
        "name",
        "count_padding",  # its data have no sequences
        "passes_ahead",  # one epoch more of 400
    }
    assert choices == set(example.CHOICES)
    assert all(getattr(TEXT, name) != getattr(CODE, name) for name in choices)


def test_features_come_from_a_file(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {
        "x": rng.standard_normal((40, 5)),
        "y": np.arange(40) % 2,
        "client": np.arange(40) // 10,
        "split": np.arange(40) % 3,
    }
    np.savez(tmp_path / "features.npz", **arrays)
    federation = example.read(str(tmp_path / "features.npz"))
    assert (len(federation), federation.dimension) == (4, 5)
    found = example.accuracies(federation, ("fedavg",), TEXT, rounds=2, seeds=3)
    assert found["fedavg"].shape == (3,)
