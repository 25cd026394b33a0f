"""Text as sequences of tokens: vocabularies, and samples of token numbers with the next token at every position as label."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput

SPECIAL = ("<pad>", "<oov>", "<begin>", "<end>")
PAD, OOV, BEGIN, END = range(4)  # the first four of every vocabulary
TOKEN = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")  # a word with its apostrophes, or one other character
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")

Tokens = NDArray[np.int32]
Sequences = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.bool_]]


def sentences(text: str) -> list[list[str]]:
    """A text's sentences as lower-case words and punctuation marks.

    >>> sentences("Don't panic, Arthur! Why?")
    [["don't", 'panic', ',', 'arthur', '!'], ['why', '?']]
    """
    found = (TOKEN.findall(sentence) for sentence in SENTENCE.split(text.lower()))
    return [words for words in found if words]


def most_frequent(counts: Mapping[str, int], size: int) -> tuple[str, ...]:
    """A vocabulary: the special tokens, then the `size` most frequent words, those as frequent as each other by alphabet.

    >>> most_frequent({"n": 2, "b": 1, "a": 3}, 2)
    ('<pad>', '<oov>', '<begin>', '<end>', 'a', 'n')
    """
    ranked = sorted((word for word in counts if word not in SPECIAL), key=lambda word: (-counts[word], word))
    return (*SPECIAL, *ranked[:size])


def pieces(words: Sequence[str], positions: int) -> list[Sequence[str]]:
    """A long sentence in parts of at most `positions` words."""
    return [words[start : start + positions] for start in range(0, len(words), positions)]


def numbered(sentence: Iterable[str], code: Mapping[str, int], positions: int) -> Tokens:
    """Begin, at most `positions` words, and end where there is room: TensorFlow Federated's recipe for next words.

    >>> numbered(["a", "b", "c"], {"a": 4, "b": 5}, 3).tolist(), numbered(["a"], {"a": 4}, 3).tolist()
    ([2, 4, 5, 1], [2, 4, 3])
    """
    found = [code.get(word, OOV) for word in sentence][:positions]
    return np.array([BEGIN, *found, *([END] if len(found) < positions else [])], np.int32)


def next_tokens(rows: Sequence[Tokens], positions: int) -> Sequences:
    """Inputs, next tokens and mask from rows of at most positions + 1 tokens.

    A position is real where a token follows. A row of one token has none: there its first position counts, with padding as
    the token that follows, since every sample needs one.

    >>> features, labels, mask = next_tokens([np.array([2, 7, 3])], 3)
    >>> features[0, :, 0].tolist(), labels.tolist(), mask.tolist()
    ([2.0, 7.0, 3.0], [[7, 3, 0]], [[True, True, False]])
    """
    lengths = np.array([len(row) for row in rows], dtype=np.intp)
    if lengths.size == 0 or lengths.min() < 1 or lengths.max() > positions + 1:
        raise InvalidInput(f"rows have {lengths.min(initial=0)} to {lengths.max(initial=0)} tokens: give 1 to {positions + 1}")
    tokens = np.full((len(rows), positions + 1), PAD, np.int32)
    tokens[np.arange(positions + 1) < lengths[:, None]] = np.concatenate(rows)
    mask = np.arange(positions) < np.maximum(lengths - 1, 1)[:, None]
    return tokens[:, :-1, None].astype(np.float32), tokens[:, 1:].astype(np.int64), mask
