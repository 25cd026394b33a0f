"""Shakespeare by role, next character: TensorFlow Federated's files, cut and split as for the paper's experiments.

`federation.classes` is the vocabulary: four special tokens and the 86 characters of McMahan et al. (2017).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedasym.core.errors import InvalidInput
from fedasym.data.sets.assembly import assembled, by_files
from fedasym.data.sets.hdf5 import ClientFile, opened, same_clients
from fedasym.data.sets.words import BEGIN, END, OOV, SPECIAL, Tokens, next_tokens

if TYPE_CHECKING:
    from fedasym.data.federation.federation import Federation

ARCHIVE = "shakespeare.tar.bz2"
CHARACTERS = "dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r"
VOCABULARY = (*SPECIAL, *CHARACTERS)
POSITIONS = 80
LEAST = 2  # windows of a role's training file, so that one trains and one validates

CODES = np.full(256, OOV, np.int32)
CODES[np.frombuffer(CHARACTERS.encode(), np.uint8)] = np.arange(len(SPECIAL), len(VOCABULARY))


def load(folder: str | Path, *, seed: int = 0) -> Federation:
    """Roles and their lines, from `shakespeare_train.h5` and `shakespeare_test.h5` in `folder`.

    A snippet is begin, its characters and end, cut into windows of 81 tokens: 80 characters and their successors, the last
    window padded. A role is kept if its training file gives 2 windows or more. The test file is the test set; the training
    windows are shuffled by `seed`, and int(n 0.8/0.9) of n train and the others validate. The true files give 669 roles and
    33,244, 4,494 and 5,288 windows, the numbers of the paper's table.
    """
    with opened(folder, "shakespeare_train.h5", ARCHIVE) as train, opened(folder, "shakespeare_test.h5", ARCHIVE) as test:
        roles = [(role, windows(train, role), windows(test, role)) for role in same_clients(train, test)]
        kept = [(role, trained, tested) for role, trained, tested in roles if len(trained) >= LEAST]
        if not kept:
            raise InvalidInput(
                f"{train.path}: no role has {LEAST} windows of {POSITIONS + 1} characters; extract {ARCHIVE} again"
            )
    names = [role for role, _, _ in kept]
    trained, tested = (np.array([len(role[which]) for role in kept], dtype=np.intp) for which in (1, 2))
    features, labels, mask = next_tokens([window for _, first, last in kept for window in first + last], POSITIONS)
    split = by_files(names, trained, tested, seed)
    return assembled(features, labels, names, trained + tested, split, VOCABULARY, mask)


def windows(file: ClientFile, role: str) -> list[Tokens]:
    """A role's snippets in windows of at most 81 tokens."""
    return [window for snippet in file.texts(role, "snippets") for window in cut(snippet)]


def cut(snippet: bytes) -> list[Tokens]:
    """One snippet's windows.

    >>> [len(window) for window in cut(b"x" * 100)]
    [81, 21]
    """
    tokens = np.concatenate([[BEGIN], CODES[np.frombuffer(snippet, np.uint8)], [END]]).astype(np.int32)
    return [tokens[start : start + POSITIONS + 1] for start in range(0, tokens.size, POSITIONS + 1)]
