"""Texts by client as sequences of tokens, with the next token at every position as label.

Shakespeare by role, next character: TensorFlow Federated's files, cut and split as for the paper's
experiments. Stack Overflow by user, next word: of the same source's files only the chosen users are
read. Posts and comments of Stack Exchange stand in for it: label results so. They come from a file
of lines, or from the site's own dumps, `Posts.xml` and `Comments.xml`, row by row.
"""

from __future__ import annotations

import json
import lzma
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree.ElementTree import ParseError, iterparse

import numpy as np
from numpy.typing import NDArray

from fedasym.core.errors import InvalidInput, one_of
from fedasym.core.numbers import check_seed, whole
from fedasym.data import assembly
from fedasym.data.archives import ADDRESS
from fedasym.data.assembly import assemble_federation, locate_file, split_by_files
from fedasym.data.samples import identities_of
from fedasym.data.splits import TRAIN, mix_hash
from fedasym.data.tff import ClientFile, open_clients, same_clients

if TYPE_CHECKING:
    from fedasym.data.federation import Federation

SPECIAL = ("<pad>", "<oov>", "<begin>", "<end>")
PAD, OOV, BEGIN, END = range(4)  # the first four of every vocabulary
TOKEN = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")  # a word with apostrophes, or another character
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")

Tokens = NDArray[np.int32]
Sequences = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.bool_]]


def split_sentences(text: str) -> list[list[str]]:
    """A text's sentences as lower-case words and punctuation marks.

    >>> split_sentences("Don't panic, Arthur! Why?")
    [["don't", 'panic', ',', 'arthur', '!'], ['why', '?']]
    """
    found = (TOKEN.findall(sentence) for sentence in SENTENCE.split(text.lower()))
    return [words for words in found if words]


def most_frequent(counts: Mapping[str, int], size: int) -> tuple[str, ...]:
    """A vocabulary: special tokens, then the `size` most frequent words, ties by alphabet.

    >>> most_frequent({"n": 2, "b": 1, "a": 3}, 2)
    ('<pad>', '<oov>', '<begin>', '<end>', 'a', 'n')
    """
    ranked = sorted(counts.keys() - set(SPECIAL), key=lambda word: (-counts[word], word))
    return (*SPECIAL, *ranked[:size])


def number_words(sentence: Iterable[str], code: Mapping[str, int], positions: int) -> Tokens:
    """Begin, at most `positions` words, and end if it fits: TensorFlow Federated's recipe.

    >>> number_words(["a", "b", "c"], {"a": 4, "b": 5}, 3).tolist()
    [2, 4, 5, 1]
    >>> number_words(["a"], {"a": 4}, 3).tolist()
    [2, 4, 3]
    """
    found = [code.get(word, OOV) for word in sentence][:positions]
    return np.array([BEGIN, *found, *([END] if len(found) < positions else [])], np.int32)


def next_tokens(rows: Sequence[Tokens], positions: int) -> Sequences:
    """Inputs, next tokens and mask from rows of at most positions + 1 tokens.

    A position is real where a token follows. A row of one token has none: there its first position
    counts, with padding as the token that follows, since every sample needs one.

    >>> features, labels, mask = next_tokens([np.array([2, 7, 3])], 3)
    >>> features[0, :, 0].tolist(), labels.tolist(), mask.tolist()
    ([2.0, 7.0, 3.0], [[7, 3, 0]], [[True, True, False]])
    """
    lengths = np.array([len(row) for row in rows], dtype=np.intp)
    if lengths.size == 0 or lengths.min() < 1 or lengths.max() > positions + 1:
        ends = f"{lengths.min(initial=0)} to {lengths.max(initial=0)}"
        raise InvalidInput(f"rows have {ends} tokens: give 1 to {positions + 1}")
    tokens = np.full((len(rows), positions + 1), PAD, np.int32)
    tokens[np.arange(positions + 1) < lengths[:, None]] = np.concatenate(rows)
    mask = np.arange(positions) < np.maximum(lengths - 1, 1)[:, None]
    return tokens[:, :-1, None].astype(np.float32), tokens[:, 1:].astype(np.int64), mask


SHAKESPEARE_ARCHIVE = "shakespeare.tar.bz2"
CHARACTERS = (
    "dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r"
)
CHARACTER_VOCABULARY = (*SPECIAL, *CHARACTERS)
CHARACTER_POSITIONS = 80
FEWEST_WINDOWS = 2  # windows of a role's training file, so that one trains and one validates
CODES = np.full(256, OOV, np.int32)
CODES[np.frombuffer(CHARACTERS.encode(), np.uint8)] = len(SPECIAL) + np.arange(len(CHARACTERS))


def load_shakespeare(folder: str | Path, *, seed: int = 0) -> Federation:
    """Roles and their lines, from `shakespeare_train.h5` and `shakespeare_test.h5` in `folder`.

    A snippet is begin, its characters and end, cut into windows of 81 tokens: 80 characters and
    their successors, the last window padded. A role is kept if its training file gives 2 windows or
    more. The test file is the test set; the training windows are shuffled by `seed`, and int(n
    0.8/0.9) of n train and the others validate. The true files give 669 roles and 33,244, 4,494 and
    5,288 windows, the numbers of the paper's table.
    """
    with (
        open_clients(folder, "shakespeare_train.h5", SHAKESPEARE_ARCHIVE) as train,
        open_clients(folder, "shakespeare_test.h5", SHAKESPEARE_ARCHIVE) as test,
    ):
        both = same_clients(train, test)
        roles = [(role, role_windows(train, role), role_windows(test, role)) for role in both]
        kept = [role for role in roles if len(role[1]) >= FEWEST_WINDOWS]
        if not kept:
            raise InvalidInput(
                f"{train.path}: no role has two windows; extract {SHAKESPEARE_ARCHIVE} again"
            )
    names = [role for role, _, _ in kept]
    trained, tested = (np.array([len(role[which]) for role in kept], np.intp) for which in (1, 2))
    windows = [window for _, first, last in kept for window in first + last]
    samples, labels, mask = next_tokens(windows, CHARACTER_POSITIONS)
    split = split_by_files(names, trained, tested, seed)
    counts = trained + tested
    return assemble_federation(samples, labels, names, counts, split, CHARACTER_VOCABULARY, mask)


def role_windows(file: ClientFile, role: str) -> list[Tokens]:
    """A role's snippets in windows of at most 81 tokens."""
    return [window for snippet in file.texts(role, "snippets") for window in cut_snippet(snippet)]


def cut_snippet(snippet: bytes) -> list[Tokens]:
    """One snippet's windows.

    >>> [len(window) for window in cut_snippet(b"x" * 100)]
    [81, 21]
    """
    size = CHARACTER_POSITIONS + 1
    tokens = np.r_[BEGIN, CODES[np.frombuffer(snippet, np.uint8)], END].astype(np.int32)
    return [tokens[start : start + size] for start in range(0, tokens.size, size)]


STACKOVERFLOW_ARCHIVE, WORD_COUNTS = "stackoverflow.tar.bz2", "stackoverflow.word_count"
PARTS = ("train", "held_out")
WORD_POSITIONS = 20
MOST_SENTENCES, FEWEST_SENTENCES = 8000, 2  # training sentences of a user
USERS = 11  # what the numbers that order users are for


def load_stackoverflow(
    folder: str | Path,
    *,
    seed: int = 0,
    users: int = 300,
    sampling: int = 0,
    vocabulary: int = 10_000,
    part: str = "train",
) -> Federation:
    """Users and their sentences, from TensorFlow Federated's `stackoverflow` files in `folder`.

    Users with more than 8,000 training sentences are dropped, as for the paper's experiments, and
    those with fewer than 2 or without test sentences; `users` of the others are drawn by the seed
    `sampling`. The test file is the test set; the training sentences are shuffled by `seed`, and
    int(n 0.8/0.9) of n train and the others validate.

    vocabulary: how many of the most frequent words are known; four special tokens come before them.
    part: "train", or "held_out" for the other users, of `stackoverflow_held_out.h5`.
    """
    one_of("part", part, PARTS)
    wanted = whole("users", users, 1)
    seed = check_seed(seed)
    words = frequent_words(folder, whole("vocabulary", vocabulary, 1))
    code = {word: number for number, word in enumerate(words)}
    rows: list[Tokens] = []
    with (
        open_clients(folder, f"stackoverflow_{part}.h5", STACKOVERFLOW_ARCHIVE) as train,
        open_clients(folder, "stackoverflow_test.h5", STACKOVERFLOW_ARCHIVE) as test,
    ):
        names = choose_users(train, test, wanted, check_seed(sampling))
        counts = []
        for name in names:
            for file in (train, test):
                read = file.texts(name, "tokens")
                split_words = (sentence.decode(errors="replace").split() for sentence in read)
                rows += [number_words(each, code, WORD_POSITIONS) for each in split_words]
                counts.append(len(read))
    trained, tested = np.array(counts[0::2]), np.array(counts[1::2])
    features, labels, mask = next_tokens(rows, WORD_POSITIONS)
    split = split_by_files(names, trained, tested, seed)
    return assemble_federation(features, labels, names, trained + tested, split, words, mask)


def choose_users(train: ClientFile, test: ClientFile, wanted: int, seed: int) -> Sequence[str]:
    """Users in a random order by their names and the seed: the first of them that qualify."""
    order = np.argsort(mix_hash(seed, USERS, identities_of(train.clients)))
    names: list[str] = []
    for name in (train.clients[position] for position in order.tolist()):
        if name in test.examples:
            size = train.length(name, "tokens")
            names += [name] if FEWEST_SENTENCES <= size <= MOST_SENTENCES else []
        if len(names) == wanted:
            return names
    raise InvalidInput(
        f"users is {wanted}: {train.path} has {len(names)} users with {FEWEST_SENTENCES} to"
        f" {MOST_SENTENCES} sentences who are in {test.path.name} as well; give at most that many"
    )


def frequent_words(folder: str | Path, size: int) -> tuple[str, ...]:
    """The special tokens and the first words of the file of counts, the most frequent first."""
    path = locate_file(folder, WORD_COUNTS, f"the archive {ADDRESS}{WORD_COUNTS}.tar.bz2")
    words: dict[str, None] = {}
    with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            match line.split():
                case [word, count] if count.isdecimal():
                    words |= {} if word in SPECIAL else {word: None}
                case _:
                    raise InvalidInput(
                        f"{path}: line {number} is {line.strip()!r} where a word and its count go"
                    )
            if len(words) == size:
                return (*SPECIAL, *words)
    raise InvalidInput(
        f"{path}: it has {len(words)} words and vocabulary is {size}: give a smaller one"
    )


DUMP_SOURCE = "a site's dump on https://archive.org/details/stackexchange"
POSTS, COMMENTS = "Posts.xml", "Comments.xml"
DUMP_FIELDS = {POSTS: ("OwnerUserId", "Body"), COMMENTS: ("UserId", "Text")}
POST_KINDS = {"1", "2"}  # questions and answers; other posts are descriptions of tags and elections
BLOCKS = {"p", "li", "br", "h1", "h2", "h3", "blockquote", "pre", "hr", "tr"}  # end a sentence


class Prose(HTMLParser):
    """Collects the text of a post; blocks of code are left out, code within a sentence is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self.code = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Start a line where a block starts."""
        self.code += tag == "pre"
        self.pieces += ["\n"] if tag in BLOCKS else []

    def handle_endtag(self, tag: str) -> None:
        """End the line where a block ends."""
        self.code -= tag == "pre" and self.code > 0
        self.pieces += ["\n"] if tag in BLOCKS else []

    def handle_data(self, data: str) -> None:
        """Keep what is no block of code."""
        if not self.code:
            self.pieces.append(data)


def prose(body: str) -> str:
    """The text of a post's HTML, a line for each block.

    >>> prose("<p>Use <code>len</code> &amp; see:</p><pre>len(x)</pre><p>Done</p>").splitlines()
    ['', 'Use len & see:', '', '', '', 'Done']
    """
    parser = Prose()
    parser.feed(body)
    parser.close()
    return "".join(parser.pieces)


def dump_texts(folder: str | Path) -> Iterator[tuple[str, str]]:
    """Users' numbers and texts: questions, answers, comments if any; deleted users have none."""
    paths = [locate_file(folder, POSTS, DUMP_SOURCE)]
    paths += [path for path in (Path(folder) / COMMENTS,) if path.is_file()]
    for path in paths:
        user, text = DUMP_FIELDS[path.name]
        for row in dump_rows(path):
            if user not in row or (path.name == POSTS and row.get("PostTypeId") not in POST_KINDS):
                continue
            if text not in row:
                raise InvalidInput(
                    f"{path}: the row with Id {row.get('Id')!r} lacks {text!r}: download it again"
                )
            yield row[user], prose(row[text]) if path.name == POSTS else row[text]


def dump_rows(path: Path) -> Iterator[dict[str, str]]:
    """The attributes of every row; a row is forgotten before the next is read."""
    count = 0
    try:
        with path.open("rb") as file:
            root = None
            for event, element in iterparse(file, ("start", "end")):
                root = element if root is None else root
                if event == "end" and element.tag == "row":
                    count += 1
                    yield dict(element.attrib)
                    root.clear()
    except ParseError as reason:
        raise InvalidInput(
            f"{path} cannot be read after row {count} ({reason}): it is cut short or is not XML;"
            " download the dump again"
        ) from None


POSTS_FILE = "stackexchange.jsonl.xz"
LONGEST_LINE = 2**24  # characters: a post has 30,000, and a packed line may unpack to anything


def load_stackexchange(
    folder: str | Path, *, seed: int = 0, least: int = 1000, vocabulary: int = 10_000
) -> Federation:
    """Users with at least `least` words, from the posts and comments in `folder`.

    folder: holds `stackexchange.jsonl.xz`, an object with site, user and text a line, whose clients
        are named "site/user"; or a site's own dump, whose clients are the users' numbers.

    A text is split at spaces to count a user's words, and into lower-case words and punctuation
    marks to learn from. A sentence is a sample, one of more than 20 words several. Samples are
    split 80/10/10 within each user by `seed`, so that sentences of one post may be on both sides;
    the `vocabulary` most frequent words of the training split are known.
    """
    least, size = whole("least", least, 0), whole("vocabulary", vocabulary, 1)
    dump = (Path(folder) / POSTS).is_file() and not (Path(folder) / POSTS_FILE).is_file()
    source = f"your copy, or put {POSTS} there, from {DUMP_SOURCE}"
    posts = dump_texts(folder) if dump else read_posts(locate_file(folder, POSTS_FILE, source))
    texts: dict[str, list[str]] = {}
    for name, text in posts:
        texts.setdefault(name, []).append(text)
    samples: dict[str, list[Sequence[str]]] = {}
    for name, mine in texts.items():
        pieces = [piece for text in mine for piece in cut_text(text)]
        if pieces and sum(len(text.split()) for text in mine) >= least:
            samples[name] = pieces
    if not samples:
        raise InvalidInput(
            f"least is {least}: none of the {len(texts)} users in {str(folder)!r} has as many"
            " words; give a smaller number"
        )
    names, counts = list(samples), np.array([*map(len, samples.values())], dtype=np.intp)
    rows = [sample for mine in samples.values() for sample in mine]
    split = assembly.split_by_fractions(names, counts, seed)
    parts = zip(rows, split.tolist(), strict=True)
    heard = Counter(word for row, part in parts if part == TRAIN for word in row)
    words = most_frequent(heard, size)
    code = {word: number for number, word in enumerate(words)}
    numbered = [number_words(row, code, WORD_POSITIONS) for row in rows]
    features, labels, mask = next_tokens(numbered, WORD_POSITIONS)
    return assemble_federation(features, labels, names, counts, split, words, mask)


def cut_text(text: str) -> list[Sequence[str]]:
    """A text's samples: sentences of at most 20 words.

    >>> [len(sample) for sample in cut_text("word " * 30 + ". Yes.")]
    [20, 11, 2]
    """
    return [
        words[start : start + WORD_POSITIONS]
        for words in split_sentences(text)
        for start in range(0, len(words), WORD_POSITIONS)
    ]


def read_posts(path: Path) -> Iterator[tuple[str, str]]:
    """Every line's client and text."""
    number = 0
    try:
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(iter(partial(lines.readline, LONGEST_LINE), ""), 1):
                entry = json.loads(line)
                site, user, text = (entry[field] for field in ("site", "user", "text"))
                if not isinstance(text, str):
                    raise InvalidInput(
                        f"{path}: line {number}, field 'text' is {text!r} where a string belongs"
                    )
                yield f"{site}/{user}", text
    except KeyError as field:
        raise InvalidInput(
            f"{path}: line {number}, field {field} is missing; site, user and text are expected"
        ) from None
    except (lzma.LZMAError, EOFError, UnicodeDecodeError) as reason:
        raise InvalidInput(
            f"{path} cannot be unpacked after line {number} ({reason}): it is cut"
            " short or is not an .xz file"
        ) from None
    except (ValueError, RecursionError, TypeError) as reason:
        raise InvalidInput(f"{path}: line {number} is not a JSON object ({reason})") from None
