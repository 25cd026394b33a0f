"""A federation as an object: how it describes itself, its copies, and what importing it brings
along.
"""

import copy
import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import fedasym as fa
from fedasym.data.federation import Federation

from .small import NEXT, REAL, WORDS, same, small


def test_it_describes_itself():
    federation = small(split=["train", "test", "train", "test", "validation", "test"])
    assert repr(federation) == str(federation) == (
        "Federation: 2 clients · classification · 2 features · 2 classes\n"
        "samples: 6, a client has 3 to 3, median 3\n"
        "split: train 2, validation 1, test 3\n"
        "1 client without training samples: never drawn, served by the shared model"
    )  # fmt: skip
    assert federation._repr_html_().startswith("<pre>Federation")
    assert federation.table() == [
        {"client": "ann", "samples": 3, "train": 2, "validation": 1, "test": 0},
        {"client": "bob", "samples": 3, "train": 0, "validation": 0, "test": 3},
    ]
    assert len(federation) == 2
    masked = str(Federation.from_arrays(WORDS, NEXT, [1] * 3, mask=REAL))
    assert "sequences of 4 positions" in masked
    assert "padding: 33.3% of the positions" in masked


def test_copies_and_pickles_are_the_same():
    federation = replace(small(), truth={"shared": np.ones(2)})
    same(federation, pickle.loads(pickle.dumps(federation)))
    same(federation, copy.deepcopy(federation))


def test_importing_it_imports_nothing_heavy():
    code = (
        "import sys, fedasym.data.federation as f; f.Federation.from_arrays([[1.0]], [0],"
        " [1]);print([name for name in ('jax', 'polars', 'pandas', 'pyarrow', 'safetensors',"
        " 'scipy') if name in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


@pytest.mark.parametrize("ending", [".safetensors", ".parquet"])
def test_what_is_said_of_features_is_kept_in_files(ending, tmp_path):
    told = {"names": ["age", "size"], "personal": [True, False], "intercept": False}
    federation = fa.Federation.from_arrays(
        np.eye(4, 2), [0.0, 1.0, 2.0, 3.0], clients=list("aabb"), **told
    )
    again = fa.datasets.read(federation.save(tmp_path / f"data{ending}"))
    assert (again.names, again.personal.tolist(), again.intercept) == (
        ("age", "size"),
        [True, False],
        False,
    )
    usual = fa.Federation.from_arrays(
        np.eye(4, 2), [0.0, 1.0, 2.0, 3.0], clients=list("aabb"), personal=[1, 1]
    )
    again = fa.datasets.read(usual.save(tmp_path / f"usual{ending}"))
    assert (again.names, again.personal, again.intercept) == (None, None, True)


@pytest.mark.parametrize(
    ("told", "field"),
    [
        ({"names": ["a"]}, "names"),
        ({"names": ["a", "a"]}, "names"),
        ({"personal": [1]}, "personal"),
        ({"intercept": "yes"}, "intercept"),
    ],
)
def test_what_is_said_of_features_must_fit_them(told, field):
    with pytest.raises(fa.InvalidInput, match=field):
        fa.Federation.from_arrays(np.eye(2), [0.0, 1.0], clients=list("ab"), **told)
