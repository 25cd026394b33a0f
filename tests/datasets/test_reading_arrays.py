"""A user's own NumPy files; nothing in them is unpickled."""

import pickle

import numpy as np
import pytest

from fedasym.data.federation import Federation
from fedasym.data.formats import read

from .owned import EXPECTED, RNG, TESTED, WHO, X, Y, refused, same


@pytest.mark.parametrize(
    ("x", "y", "client"),
    [("x", "y", "client"), ("features", "labels", "writer"), ("x", "label", "user")],
)
def test_npz(tmp_path, x, y, client):
    np.savez(tmp_path / "a.npz", **{x: X, y: Y, client: WHO})
    same(read(tmp_path / "a.npz"), EXPECTED)


def test_npz_with_other_names_images_bytes_and_a_split(tmp_path):
    split = np.where(TESTED, b"test", b"train")
    np.savez_compressed(
        tmp_path / "a.npz", pixels=X.reshape(60, 2, 2), digit=Y, who=WHO.astype("S"), split=split
    )
    names = {"features": "pixels", "label": "digit", "client": "who"}
    same(
        read(tmp_path / "a.npz", **names),
        Federation.from_arrays(X, Y, WHO, split=np.where(TESTED, 2, 0)),
    )
    same(read(tmp_path / "a.npz", **names, split=(0.8, 0.1, 0.1)), EXPECTED)


def test_npz_sequences_with_a_mask(tmp_path):
    x, y, mask = (
        RNG.standard_normal((6, 5, 3)),
        RNG.integers(4, size=(6, 5)),
        np.arange(5) < [[5], [3], [5], [4], [5], [2]],
    )
    np.savez(tmp_path / "a.npz", x=x, y=y, client=np.repeat([1, 2], 3), mask=mask)
    np.testing.assert_array_equal(read(tmp_path / "a.npz", classes=4).mask, mask)


class Harm:
    def __reduce__(self):
        return pytest.fail, ("a file was unpickled",)


def test_pickles_are_never_read(tmp_path):
    clients = np.empty(60, object)
    clients[:] = [Harm()] * 60
    np.savez(tmp_path / "a.npz", x=X, y=Y, client=clients)
    refused(tmp_path / "a.npz", "'client' holds pickled Python objects")
    (tmp_path / "b.npz").write_bytes(pickle.dumps(Harm()))
    refused(tmp_path / "b.npz", "b.npz", "cannot be read")


def test_a_broken_npz_is_told_what(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=X, y=Y)
    refused(path, "no array client or clients or writer or user", "there is x, y")
    np.savez(path, x=X, features=X, y=Y, client=WHO)
    refused(path, "x and features could both be")
    np.savez(path, x=X, y=Y[:50], client=WHO)
    refused(path, "labels have 50 rows")
    np.savez(path, x=X, y=Y, client=WHO)
    path.write_bytes(path.read_bytes()[:-40])
    refused(path, "a.npz", "cannot be read")
    with path.open("wb") as file:
        np.save(file, X)
    refused(path, "a single array")
