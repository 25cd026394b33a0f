"""Stack Exchange on tiny files: posts as sentences, and a site's own dump."""

import json
import lzma

import numpy as np
import pytest

from fedasym.core.errors import InvalidInput
from fedasym.data import texts

from .layouts import counts, decoded


def exchange_file(folder, entries):
    with lzma.open(folder / "stackexchange.jsonl.xz", "wt") as file:
        file.writelines(json.dumps(entry) + "\n" for entry in entries)


def test_posts_become_sentences(tmp_path):
    talk = [
        {
            "site": "beer",
            "user": "1",
            "date": "",
            "kind": "answer",
            "text": "Beer is good. So is ale!",
        }
        for _ in range(10)
    ]
    other = [{"site": "wine", "user": "1", "date": "", "kind": "comment", "text": "wine " * 60}]
    exchange_file(tmp_path, [*talk, *other, {"site": "wine", "user": "2", "text": "too short"}])
    federation = texts.load_stackexchange(tmp_path, least=60)
    assert federation.clients == (
        "beer/1",
        "wine/1",
    )  # the same number on another site is another user
    assert counts(federation) == [[16, 1], [2, 1], [2, 1]]
    assert decoded(federation, 0) == (
        ["<begin>", "beer", "is", "good", "."],
        ["beer", "is", "good", ".", "<end>"],
    )
    assert decoded(federation, 20) == (["<begin>", *["wine"] * 19], ["wine"] * 20)
    assert set(federation.classes[4:]) == {"beer", "is", "good", ".", "so", "ale", "!", "wine"}
    small = texts.load_stackexchange(tmp_path, least=60, vocabulary=1)
    assert small.classes[4:] in (("wine",), ("is",))


def test_the_vocabulary_comes_from_the_training_split(tmp_path):
    exchange_file(
        tmp_path, [{"site": "s", "user": 1, "text": f"word{number}"} for number in range(20)]
    )
    federation = texts.load_stackexchange(tmp_path, least=20)
    trains = {f"word{row}" for row in np.flatnonzero(federation.split == 0)}
    assert set(federation.classes[4:]) == trains
    assert np.array_equal(federation.labels[:, 0] == 1, federation.split != 0)


def test_broken_lines(tmp_path):
    good = {"site": "s", "user": "1", "text": "a b"}
    for bad, message in (
        ({"site": "s", "user": "1"}, "line 2, field 'text' is missing"),
        ({**good, "text": None}, "line 2, field 'text' is None where a string"),
        ([1], "line 2 is not a JSON object"),
    ):
        exchange_file(tmp_path, [good, bad])
        with pytest.raises(InvalidInput, match=message):
            texts.load_stackexchange(tmp_path, least=1)
    exchange_file(tmp_path, [good])
    with pytest.raises(
        InvalidInput, match=r"least is 1000: none of the 1 users in .* has as many words"
    ):
        texts.load_stackexchange(tmp_path)
    path = tmp_path / "stackexchange.jsonl.xz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(
        InvalidInput, match=r"stackexchange.jsonl.xz cannot be unpacked after line \d"
    ):
        texts.load_stackexchange(tmp_path, least=1)


def test_a_sites_own_dump(tmp_path):
    posts = [
        (
            '<row Id="1" PostTypeId="1" OwnerUserId="7" Body="&lt;p&gt;Why is'
            ' &lt;code&gt;x&lt;/code&gt; red?&lt;/p&gt;" />'
        ),
        (
            '<row Id="2" PostTypeId="2" OwnerUserId="7"'
            ' Body="&lt;pre&gt;code&lt;/pre&gt;&lt;p&gt;It &amp;lt; y&lt;/p&gt;" />'
        ),
        '<row Id="3" PostTypeId="5" OwnerUserId="7" Body="a tag" />',
        '<row Id="4" PostTypeId="2" Body="deleted user" />',
    ]
    head = '<?xml version="1.0" encoding="utf-8"?>\n'
    (tmp_path / "Posts.xml").write_text(f"{head}<posts>{''.join(posts)}</posts>")
    (tmp_path / "Comments.xml").write_text(
        f'{head}<comments><row Id="1" PostId="1" UserId="8" Text="Same here." /></comments>'
    )
    federation = texts.load_stackexchange(tmp_path, least=1)
    assert federation.clients == ("7", "8")
    assert len(federation.labels) == 3
    assert np.array_equal(
        federation.mask.sum(1), [6, 4, 4]
    )  # why is x red ? end; it < y end; same here . end
    (tmp_path / "Comments.xml").write_text(
        f'{head}<comments><row Id="1" PostId="1" UserId="8" /></comments>'
    )
    with pytest.raises(InvalidInput, match=r"Comments.xml: the row with Id '1' lacks 'Text'"):
        texts.load_stackexchange(tmp_path, least=1)
    (tmp_path / "Posts.xml").write_text(f"{head}<posts>{posts[0]}<row ")
    with pytest.raises(
        InvalidInput,
        match=r"Posts.xml cannot be read after row 1 .*: it is cut short or is not XML",
    ):
        texts.load_stackexchange(tmp_path, least=1)
    (tmp_path / "Posts.xml").unlink()
    with pytest.raises(InvalidInput, match=r"has no file stackexchange.jsonl.xz: .* Posts.xml"):
        texts.load_stackexchange(tmp_path)
