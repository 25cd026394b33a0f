"""Stack Overflow by user, next word: TensorFlow Federated's files, of which only the chosen users are read.

A sentence is begin and at most 20 words, and end where there is room; `federation.classes` is the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedasym.core.errors import InvalidInput, unknown
from fedasym.core.numbers import check_seed, whole
from fedasym.data.federation.samples import identities_of
from fedasym.data.federation.shuffles import mix
from fedasym.data.sets.archives import ADDRESS
from fedasym.data.sets.assembly import assembled, by_files, located
from fedasym.data.sets.hdf5 import ClientFile, opened
from fedasym.data.sets.words import SPECIAL, Tokens, next_tokens, numbered

if TYPE_CHECKING:
    from fedasym.data.federation.federation import Federation

ARCHIVE, COUNTS = "stackoverflow.tar.bz2", "stackoverflow.word_count"
PARTS = ("train", "held_out")
POSITIONS = 20
MOST, LEAST = 8000, 2  # training sentences of a user
USERS = 11  # what the numbers that order users are for


def load(
    folder: str | Path, *, seed: int = 0, users: int = 300, sampling: int = 0, vocabulary: int = 10_000, part: str = "train"
) -> Federation:
    """Users and their sentences, from `stackoverflow_train.h5`, `stackoverflow_test.h5` and `stackoverflow.word_count`.

    Users with more than 8,000 training sentences are dropped, as for the paper's experiments, and those with fewer than 2 or
    without test sentences; `users` of the others are drawn by the seed `sampling`. The test file is the test set; the
    training sentences are shuffled by `seed`, and int(n 0.8/0.9) of n train and the others validate.

    vocabulary: how many of the most frequent words are known; four special tokens come before them.
    part: "train", or "held_out" for the users of `stackoverflow_held_out.h5`, who are others than those of the training file.
    """
    if part not in PARTS:
        raise unknown("part", part, PARTS)
    wanted, seed = whole("users", users, 1), check_seed(seed)
    words = frequent(folder, whole("vocabulary", vocabulary, 1))
    code = {word: number for number, word in enumerate(words)}
    rows: list[Tokens] = []
    with opened(folder, f"stackoverflow_{part}.h5", ARCHIVE) as train, opened(folder, "stackoverflow_test.h5", ARCHIVE) as test:
        names = chosen(train, test, wanted, check_seed(sampling))
        counts = []
        for name in names:
            for file in (train, test):
                read = file.texts(name, "tokens")
                rows += [numbered(sentence.decode(errors="replace").split(), code, POSITIONS) for sentence in read]
                counts.append(len(read))
    trained, tested = np.array(counts[0::2]), np.array(counts[1::2])
    features, labels, mask = next_tokens(rows, POSITIONS)
    return assembled(features, labels, names, trained + tested, by_files(names, trained, tested, seed), words, mask)


def chosen(train: ClientFile, test: ClientFile, wanted: int, seed: int) -> Sequence[str]:
    """Users in a random order that depends on their names and the seed, the first of them that qualify."""
    order = np.argsort(mix(seed, USERS, identities_of(train.clients)))
    names: list[str] = []
    for position in order.tolist():
        name = train.clients[position]
        if name in test.examples and LEAST <= train.length(name, "tokens") <= MOST:
            names.append(name)
        if len(names) == wanted:
            return names
    raise InvalidInput(
        f"users is {wanted}: {train.path} has {len(names)} users with {LEAST} to {MOST} sentences who are in "
        f"{test.path.name} as well; give at most that many, or extract {ARCHIVE} again"
    )


def frequent(folder: str | Path, size: int) -> tuple[str, ...]:
    """The special tokens and the first words of the file of counts, where the most frequent come first."""
    path = located(folder, COUNTS, f"the archive {ADDRESS}{COUNTS}.tar.bz2")
    words: dict[str, None] = {}
    with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            match line.split():
                case [word, count] if count.isdecimal():
                    words |= {} if word in SPECIAL else {word: None}
                case _:
                    raise InvalidInput(f"{path}: line {number} is {line.strip()!r} where a word and its count are expected")
            if len(words) == size:
                return (*SPECIAL, *words)
    raise InvalidInput(f"{path}: it has {len(words)} words and vocabulary is {size}: give a smaller one, or extract it again")
