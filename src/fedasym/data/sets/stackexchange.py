"""Stack Exchange by user, next word: posts and comments, which stand in for Stack Overflow: label results so.

A sentence is begin and at most 20 words, and end where there is room; `federation.classes` is the vocabulary.
"""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import whole
from fedasym.data.federation.splits import TRAIN
from fedasym.data.sets import dumps
from fedasym.data.sets.assembly import assembled, by_fractions, located
from fedasym.data.sets.words import most_frequent, next_tokens, numbered, pieces, sentences

if TYPE_CHECKING:
    from fedasym.data.federation.federation import Federation

FILE = "stackexchange.jsonl.xz"
POSITIONS = 20
LONGEST = 2**24  # characters of a line: a post has at most 30,000, and a packed line may unpack to anything


def load(folder: str | Path, *, seed: int = 0, least: int = 1000, vocabulary: int = 10_000) -> Federation:
    """Users with at least `least` words, from the posts and comments in `folder`.

    folder: holds `stackexchange.jsonl.xz`, an object with site, user and text a line, whose clients are named "site/user"; or
        a site's own dump, `Posts.xml` and, where there is one, `Comments.xml`, whose clients are the users' numbers.

    A text is split at spaces to count a user's words, and into lower-case words and punctuation marks to learn from. A
    sentence is a sample, one of more than 20 words several. Samples are split 80/10/10 within each user by `seed`, so that
    sentences of one post may be on both sides; the `vocabulary` most frequent words of the training split are known, and four
    special tokens come before them.
    """
    least, size = whole("least", least, 0), whole("vocabulary", vocabulary, 1)
    dump = (Path(folder) / dumps.POSTS).is_file() and not (Path(folder) / FILE).is_file()
    source = f"your copy, or put {dumps.POSTS} there, from {dumps.SOURCE}"
    texts: dict[str, list[str]] = {}
    for name, text in dumps.texts(folder) if dump else read(located(folder, FILE, source)):
        texts.setdefault(name, []).append(text)
    active = {name: mine for name, mine in texts.items() if sum(len(text.split()) for text in mine) >= least}
    samples = {name: [piece for text in mine for piece in cut(text)] for name, mine in active.items()}
    samples = {name: mine for name, mine in samples.items() if mine}
    if not samples:
        raise InvalidInput(
            f"least is {least}: none of the {len(texts)} users in {str(folder)!r} has as many words; give a smaller number"
        )
    names, counts = list(samples), np.array([len(mine) for mine in samples.values()], dtype=np.intp)
    rows = [sample for mine in samples.values() for sample in mine]
    split = by_fractions(names, counts, seed)
    heard = Counter(word for row, part in zip(rows, split.tolist(), strict=True) if part == TRAIN for word in row)
    words = most_frequent(heard, size)
    code = {word: number for number, word in enumerate(words)}
    features, labels, mask = next_tokens([numbered(row, code, POSITIONS) for row in rows], POSITIONS)
    return assembled(features, labels, names, counts, split, words, mask)


def cut(text: str) -> list[Sequence[str]]:
    """A text's samples: sentences of at most 20 words.

    >>> [len(sample) for sample in cut("word " * 30 + ". Yes.")]
    [20, 11, 2]
    """
    return [piece for sentence in sentences(text) for piece in pieces(sentence, POSITIONS)]


def read(path: Path) -> Iterator[tuple[str, str]]:
    """Every line's client and text."""
    number = 0
    try:
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(iter(partial(lines.readline, LONGEST), ""), 1):
                entry = json.loads(line)
                site, user, text = (entry[field] for field in ("site", "user", "text"))
                if not isinstance(text, str):
                    raise InvalidInput(
                        f"{path}: line {number}, field 'text' is {text!r} where a string is expected; correct it"
                    )
                yield f"{site}/{user}", text
    except KeyError as field:
        raise InvalidInput(f"{path}: line {number}, field {field} is missing; site, user and text are expected") from None
    except (lzma.LZMAError, EOFError, UnicodeDecodeError) as reason:
        raise InvalidInput(
            f"{path} cannot be unpacked after line {number} ({reason}): it is cut short or no .xz file"
        ) from None
    except (ValueError, RecursionError, TypeError) as reason:
        raise InvalidInput(f"{path}: line {number} is no JSON object ({reason}); correct it") from None
