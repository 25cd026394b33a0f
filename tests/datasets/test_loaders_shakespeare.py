"""Shakespeare on tiny files in the true layout: windows of next characters."""

import h5py
import numpy as np
import pytest

from fedasym.core.errors import InvalidInput
from fedasym.data import texts

from .layouts import counts, decoded, write


def shakespeare_files(folder, **changes):
    roles = {
        "LEAR_FOOL": {"snippets": ["Nuncle.", "x" * 200, ""]},  # 1 + 3 + 1 windows
        "LEAR_KENT": {"snippets": ["One line only."]},
    }
    write(folder / "shakespeare_train.h5", roles | changes)
    write(
        folder / "shakespeare_test.h5",
        {"LEAR_FOOL": {"snippets": ["é\n"]}, "LEAR_KENT": {"snippets": ["gone"]}},
    )


def test_snippets_become_windows_of_next_characters(tmp_path):
    shakespeare_files(tmp_path)
    federation = texts.load_shakespeare(tmp_path)
    assert federation.clients == ("LEAR_FOOL",)  # a role of one window has nothing to validate on
    assert counts(federation) == [[4], [1], [1]]
    assert federation.features.shape == (6, 80, 1)
    assert federation.features.dtype == np.float32
    assert federation.outputs == len(federation.classes) == 90
    assert decoded(federation, 0) == (["<begin>", *"Nuncle."], [*"Nuncle.", "<end>"])
    assert decoded(federation, 1) == (["<begin>", *"x" * 79], ["x"] * 80)
    assert decoded(federation, 3) == (["x"] * 39, [*"x" * 38, "<end>"])  # 202 tokens: 81, 81 and 40
    assert decoded(federation, 4) == (["<begin>"], ["<end>"])
    assert decoded(federation, 5) == (
        ["<begin>", "<oov>", "<oov>", "\n"],
        ["<oov>", "<oov>", "\n", "<end>"],
    )  # bytes of é
    assert federation.split[5] == 2


def test_a_window_of_the_end_alone_keeps_one_position(tmp_path):
    shakespeare_files(tmp_path, LEAR_FOOL={"snippets": ["y" * 80]})
    federation = texts.load_shakespeare(tmp_path)
    assert decoded(federation, 1) == (["<end>"], ["<pad>"])


def test_texts_of_fixed_length_read_the_same(tmp_path):
    shakespeare_files(tmp_path)
    before = texts.load_shakespeare(tmp_path)
    shakespeare_files(tmp_path, LEAR_FOOL={"snippets": np.array([b"Nuncle.", b"x" * 200, b""])})
    assert np.array_equal(texts.load_shakespeare(tmp_path).features, before.features)


def test_the_seed_shuffles_training_and_validation_only(tmp_path):
    shakespeare_files(tmp_path, LEAR_FOOL={"snippets": ["line"] * 45})
    one, same, other = (texts.load_shakespeare(tmp_path, seed=seed) for seed in (1, 1, 2))
    assert counts(one) == counts(other) == [[40], [5], [1]]
    assert np.array_equal(one.split, same.split)
    assert not np.array_equal(one.split, other.split)
    assert np.array_equal(other.split, one.resplit(seed=2, fractions=None).split)


def test_files_without_lines_to_learn_from(tmp_path):
    shakespeare_files(tmp_path, LEAR_FOOL={"snippets": ["one window"]})
    with pytest.raises(InvalidInput, match=r"shakespeare_train.h5: no role has two windows"):
        texts.load_shakespeare(tmp_path)
    shakespeare_files(tmp_path, LEAR_FOOL={})
    with h5py.File(tmp_path / "shakespeare_train.h5", "a") as file:
        numbers = h5py.vlen_dtype(np.int32)
        file.create_dataset("examples/LEAR_FOOL/snippets", (2,), dtype=numbers)
    with pytest.raises(InvalidInput, match=r"'LEAR_FOOL', field 'snippets' holds .* where strings"):
        texts.load_shakespeare(tmp_path)
