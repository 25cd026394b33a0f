"""Stack Overflow on tiny files in the true layout: who is drawn, and their sentences."""

import numpy as np
import pytest

from fedasym.core.errors import InvalidInput
from fedasym.data import texts

from .layouts import counts, decoded, write


def overflow_files(folder, heavy=8001):
    rest = {"title": ["t"], "tags": ["x|y"], "score": np.array([1])}
    train = {
        str(user): {"tokens": [f"how do i {user}", "the cat sat"] * 5, **rest} for user in range(10)
    }
    train |= {
        "heavy": {"tokens": ["the"] * heavy},
        "once": {"tokens": ["the"]},
        "untested": {"tokens": ["the", "cat"]},
    }
    test = {user: {"tokens": ["the " * 25, "sat"]} for user in train if user != "untested"}
    write(folder / "stackoverflow_train.h5", train)
    write(folder / "stackoverflow_test.h5", test)
    write(folder / "stackoverflow_held_out.h5", {"aside": {"tokens": ["the cat", "sat"]}})
    (folder / "stackoverflow.word_count").write_text("the\t90\ncat\t50\nsat\t40\nhow\t9\n")


def test_users_and_their_sentences(tmp_path):
    overflow_files(tmp_path)
    federation = texts.load_stackoverflow(tmp_path, users=10, vocabulary=3)
    assert sorted(federation.clients) == [str(user) for user in range(10)]
    assert federation.classes == ("<pad>", "<oov>", "<begin>", "<end>", "the", "cat", "sat")
    assert counts(federation) == [[8] * 10, [2] * 10, [2] * 10]
    rows = federation.rows("4")
    assert decoded(federation, rows[0]) == (["<begin>", *["<oov>"] * 4], [*["<oov>"] * 4, "<end>"])
    assert decoded(federation, rows[1]) == (
        ["<begin>", "the", "cat", "sat"],
        ["the", "cat", "sat", "<end>"],
    )
    assert decoded(federation, rows[10]) == (
        ["<begin>", *["the"] * 19],
        ["the"] * 20,
    )  # no room for the end
    assert federation.split[rows[10]] == 2


def test_users_are_drawn_by_a_seed_of_their_own(tmp_path):
    overflow_files(tmp_path, heavy=3)
    drawn = [
        texts.load_stackoverflow(tmp_path, users=4, vocabulary=4, sampling=seed).clients
        for seed in range(20)
    ]
    assert len(set(drawn)) > 15
    assert {name for names in drawn for name in names} == {*map(str, range(10)), "heavy"}
    assert texts.load_stackoverflow(tmp_path, users=4, vocabulary=4, seed=5).clients == drawn[0]
    assert set(drawn[0]) < set(texts.load_stackoverflow(tmp_path, users=7, vocabulary=4).clients)


def test_what_stack_overflow_lacks(tmp_path):
    overflow_files(tmp_path)
    with pytest.raises(
        InvalidInput,
        match=r"users is 11: .*stackoverflow_train.h5 has 10 users with 2 to 8000 sentences",
    ):
        texts.load_stackoverflow(tmp_path, users=11, vocabulary=4)
    with pytest.raises(
        InvalidInput, match=r"stackoverflow.word_count: it has 4 words and vocabulary is 10000"
    ):
        texts.load_stackoverflow(tmp_path)
    with pytest.raises(InvalidInput, match="unknown part 'test'"):
        texts.load_stackoverflow(tmp_path, part="test")
    with pytest.raises(InvalidInput, match=r"stackoverflow_held_out.h5 has 0 users"):
        texts.load_stackoverflow(tmp_path, users=1, vocabulary=4, part="held_out")
    write(tmp_path / "stackoverflow_train.h5", {"0": {"tokens": np.arange(3)}})
    with pytest.raises(
        InvalidInput,
        match=r"client '0', field 'tokens' has shape \(3,\) and type int64 where one string",
    ):
        texts.load_stackoverflow(tmp_path, users=1, vocabulary=4)
    (tmp_path / "stackoverflow.word_count").write_text("the 90\ncat\n")
    with pytest.raises(
        InvalidInput, match=r"word_count: line 2 is 'cat' where a word and its count"
    ):
        texts.load_stackoverflow(tmp_path, vocabulary=4)
