"""Rare classes become one."""

import numpy as np
import pytest

import fedasym as fa
from fedasym.data.federation import Federation


@pytest.mark.parametrize("names", [None, "abcdef"])
def test_rare_classes_become_one(names):
    rng = np.random.default_rng(3)
    codes = rng.choice(6, (200, 4), p=[0.02, 0.4, 0.05, 0.3, 0.2, 0.03])
    mask = np.arange(4) < rng.integers(1, 5, 200)[:, None]
    labels, classes = (codes, 6) if names is None else (np.array(list(names))[codes], list(names))
    whole = Federation.from_arrays(
        np.zeros((200, 4, 2)), labels, np.arange(200) % 5, mask=mask, classes=classes
    )
    few = whole.merge_rare(3)
    counted = whole.labels[(whole.split == 0)[:, None] & whole.mask]
    kept = sorted(
        sorted(range(6), key=lambda code: -(counted == code).sum())[:2]
    )  # counted one by one
    assert few.classes == tuple(whole.classes[code] for code in kept) + (
        (6,) if names is None else ("other",)
    )
    expected = [
        [few.classes[-1] if code not in kept else whole.classes[code] for code in row]
        for row in whole.labels
    ]
    assert [[few.classes[code] for code in row] for row in few.labels] == expected
    assert few.merge_rare(3) is few
    assert whole.merge_rare(6) is whole


def test_merging_keeps_names_apart_and_refuses_numbers(tmp_path):
    words = Federation.from_arrays(
        np.eye(4), ["other", "other", "a", "b"], [1] * 4, split=["train"] * 4
    )
    few = words.merge_rare(2)
    assert few.classes == ("other", "other, other")
    assert (
        Federation.from_safetensors(few.save(tmp_path / "few.safetensors")).classes == few.classes
    )
    with pytest.raises(
        fa.InvalidInput, match="classes is 1: it must be a whole number of at least 2"
    ):
        words.merge_rare(1)
    with pytest.raises(fa.InvalidInput, match="the labels are numbers: only classes can be merged"):
        Federation.from_arrays(np.eye(2), [0.5, 1.5], [1, 2]).merge_rare(2)
