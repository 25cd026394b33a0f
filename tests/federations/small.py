"""What the tests of federations share: small arrays, how two federations are compared, and
federations of every kind.
"""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedasym.data.federation import Federation

FIELDS = ("features", "labels", "owner", "split", "mask")
X = np.arange(12.0).reshape(6, 2)
Y = np.array([0, 1, 0, 1, 0, 1])
WHO = ["ann", "bob", "ann", "bob", "ann", "bob"]
WORDS = np.arange(24, dtype=np.float32).reshape(3, 4, 2)  # three sequences of four positions
NEXT = np.array([[0, 1, 2, 0], [1, 1, 0, 2], [2, 0, 0, 1]])
REAL = np.array([[1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]], bool)


def small(**options):
    return Federation.from_arrays(X, Y, WHO, **options)


def same(one, other):
    """Whether two federations hold the same, down to types."""
    for name in FIELDS:
        a, b = getattr(one, name), getattr(other, name)
        assert (a is None) == (b is None), name
        if a is not None:
            assert a.dtype == b.dtype, name
            np.testing.assert_array_equal(a, b)
    assert one.clients == other.clients
    assert [type(name) for name in one.clients] == [type(name) for name in other.clients]
    assert one.classes == other.classes
    assert [type(name) for name in one.classes or ()] == [
        type(name) for name in other.classes or ()
    ]
    assert sorted(one.truth or ()) == sorted(other.truth or ())
    for name in one.truth or ():
        assert one.truth[name].dtype == other.truth[name].dtype
        np.testing.assert_array_equal(one.truth[name], other.truth[name])


NAMES = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4, unique=True),
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        min_size=1,
        max_size=4,
        unique=True,
    ),
)
DTYPES = st.sampled_from([np.float16, np.float32, np.float64])


@st.composite
def federations(draw, sequences=None):
    """Federations of every kind: few clients of any name, rows in any order, classes or outputs,
    sequences or not.
    """
    names = draw(NAMES)
    n = draw(st.integers(len(names), 12))
    who = draw(
        st.permutations(
            [
                *names,
                *draw(
                    st.lists(
                        st.sampled_from(names), min_size=n - len(names), max_size=n - len(names)
                    )
                ),
            ]
        )
    )
    shape = (n, 3) if draw(st.booleans() if sequences is None else st.just(sequences)) else (n,)
    dtype = draw(DTYPES)
    features = draw(
        hnp.arrays(
            dtype, (*shape, draw(st.integers(1, 3))), elements=st.floats(-100, 100, width=16)
        )
    )
    labels = draw(
        st.one_of(
            hnp.arrays(np.int64, shape, elements=st.integers(-3, 3)),
            hnp.arrays(bool, shape),
            hnp.arrays(object, shape, elements=st.sampled_from(["cat", "dog", "ünï"])),
            hnp.arrays(np.float64, (*shape, 2), elements=st.floats(-9, 9)),
            hnp.arrays(np.float64, shape, elements=st.floats(-9, 9)),
        )
    )
    mask = None
    if len(shape) == 2 and draw(st.booleans()):
        mask = draw(hnp.arrays(bool, shape))
        mask[:, 1] = True
    return Federation.from_arrays(
        features, labels, who, mask=mask, seed=draw(st.integers(0, 2**64 - 1))
    )
