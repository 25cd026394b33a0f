"""Bad options of synthetic data are refused with a sentence, and nothing heavy is imported."""

import subprocess
import sys

import numpy as np
import pytest

import fedasym as fa
from fedasym import datasets

from .drawn import WORLD

REFUSED = [
    ({"task": "clustering"}, "unknown task 'clustering'.*regression, classification"),
    (
        {"population": WORLD, "alpha": 1, "beta": 1},
        "population is given, which is for regression: Synthetic.* takes alpha, beta, cl",
    ),
    (
        {"population": WORLD, "task": "classification"},
        "population is given.* classification takes classes, centre",
    ),
    (
        {"population": WORLD, "radius": 2, "noise": 1},
        "population and radius, noise are both given: put radius, noise into",
    ),
    ({"population": [WORLD]}, "population is \\[.*give a Population"),
    (
        {"population": fa.Population([1, 2], 1, 1, 2)},
        r"population holds arrays of shape \(2,\): give plain numbers",
    ),
    ({"population": fa.Population(1, 1, 1)}, "population has no norm.*give it one"),
    ({"radius": 3, "norm": 1}, "give norm of at least radius"),
    ({"radius": -1}, "radius is -1.*at least 0"),
    ({"spectrum": "ar1"}, "spectrum is 'ar1'.*make one with"),
    (
        {"classes": 3},
        (
            "classes is 3, which is for classification.*leave classes out, or give"
            ' task="classification"'
        ),
    ),
    (
        {"task": "classification", "norm": 3},
        "norm is 3, which is for regression.*takes classes, centre.*leave norm out",
    ),
    ({"task": "classification", "classes": 1}, "classes is 1.*at least 2"),
    ({"task": "classification", "dimension": 5}, "dimension is 5: 10 classes need at least 9"),
    ({"task": "classification", "centre": -2}, "centre is -2.*at least 0"),
    ({"task": "classification", "centre": "far"}, "centre is 'far'.*at least 0"),
    ({"task": "classification", "classes": 2, "flips": 0.6}, "flips is 0.6.*from 0 to 0.5"),
    ({"alpha": 1}, "alpha is given without beta.*give beta"),
    ({"beta": 1}, "beta is given without alpha.*give alpha"),
    ({"alpha": 1, "beta": np.nan}, "beta is nan.*finite"),
    ({"alpha": 1, "beta": 1, "task": "regression"}, "alpha and beta make a classification"),
    (
        {"alpha": 1, "beta": 1, "radius": 2},
        "radius is 2, which is for regression and classification: Synthetic",
    ),
    ({"clients": 0}, "clients is 0.*at least 1"),
    ({"clients": 2.5}, "clients is 2.5.*whole number"),
    ({"dimension": 0}, "dimension is 0.*at least 1"),
    ({"dimension": 1, "aspect": 4}, "dimension is 1: with aspect 4 a client would have no sample"),
    ({"samples": 0}, "samples is 0.*at least 1"),
    ({"samples": [3, 4], "clients": 3}, "samples has 2 numbers for 3 clients"),
    ({"samples": [3, 0], "clients": 2}, "samples is 0.*at least 1"),
    ({"samples": [[3, 4]], "clients": 1}, r"samples is \[3, 4\].*whole number"),
    ({"samples": 10, "aspect": 2}, "samples and aspect are both given"),
    ({"positions": 0}, "positions is 0.*at least 1"),
    ({"split": (0.5, 0.5)}, "three fractions"),
    ({"seed": -1}, "seed is -1"),
    ({"samples": 10**9}, "need .* GB and this machine has"),
]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    REFUSED,
    ids=lambda value: None if isinstance(value, dict) else value[:40],
)
def test_bad_input_is_refused_with_a_sentence(settings, sentence):
    with pytest.raises(fa.InvalidInput, match=sentence):
        datasets.synthetic(**settings)


def test_no_accelerator_library_is_imported():
    code = (
        "import sys; from fedasym import datasets; print('numpy' in sys.modules); "
        "datasets.synthetic(clients=2, dimension=4); print('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
    with pytest.raises(
        AttributeError, match="it has duplicates, fetch, load, partition, read, synthetic"
    ):
        datasets.synthetics  # noqa: B018
    assert dir(datasets) == sorted(datasets.__all__)
