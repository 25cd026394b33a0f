"""Levels by the logistic loss, where squared labels are off: many or uneven classes."""

import numpy as np

import fedasym as fa
from fedasym.advisor.crosscheck import logistic_levels
from fedasym.advisor.data import read_classes


def clients(shares, seed=0):
    """Classes of these shares, about means on one line: squared labels mask the middle ones."""
    rng = np.random.default_rng(seed)
    codes = rng.choice(len(shares), 1500, p=shares)
    x = 0.4 * rng.standard_normal((1500, 4))
    x[:, 0] += codes
    x[:, 1] = 1.0
    owner = np.repeat(np.arange(30), 50)
    return fa.Federation.from_arrays(x, codes, owner, classes=len(shares), split=(0.6, 0.2, 0.2))


def test_a_class_between_two_others_is_masked_by_least_squares_alone():
    found = logistic_levels(read_classes(clients([0.31, 0.31, 0.32, *[0.015] * 4])))
    assert found["fedavg"] > 0.03


def test_few_and_even_classes_keep_their_probes():
    assert logistic_levels(read_classes(clients([0.25] * 4))) == {}
