"""What the tests of reading share: a user's own samples, what they should be read as, and how a
file is refused.
"""

import numpy as np
import pytest

from fedasym.core.errors import InvalidInput
from fedasym.data.assembly import split_by_files
from fedasym.data.federation import Federation
from fedasym.data.formats import read

RNG = np.random.default_rng(0)
NAMES = ("ann", "bob", "cem")
X = RNG.standard_normal((60, 4)).astype(np.float32)
Y = RNG.integers(3, size=60)
WHO = np.repeat(NAMES, (30, 20, 10))
TESTED = np.isin(np.arange(60) % 10, (3, 7))  # every client has some
EXPECTED = Federation.from_arrays(X, Y, WHO)
CLIENTS = {name: (X[name == WHO], Y[name == WHO]) for name in NAMES}


def part(tested):
    return {
        name: (X[(name == WHO) & (tested == TESTED)], Y[(name == WHO) & (tested == TESTED)])
        for name in NAMES
    }


TRAINED, HELD_OUT = part(False), part(True)


def by_parts():
    """What the training and test files of all clients should give."""
    order = np.concatenate(
        [
            np.flatnonzero((name == WHO) & (kind == TESTED))
            for name in NAMES
            for kind in (False, True)
        ]
    )
    trained, tested = (
        np.array([len(side[name][1]) for name in NAMES]) for side in (TRAINED, HELD_OUT)
    )
    return Federation.from_arrays(
        X[order], Y[order], WHO[order], split=split_by_files(NAMES, trained, tested, seed=0)
    )


def same(one, other):
    assert one.clients == other.clients
    assert one.classes == other.classes
    assert one.mask is other.mask is None
    for field in ("labels", "owner", "split"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field), err_msg=field)
    np.testing.assert_allclose(one.features, other.features, rtol=1e-7)


def refused(path, *parts, **options):
    with pytest.raises(InvalidInput) as caught:
        read(path, **options)
    for part in parts:
        assert part in str(caught.value), caught.value
