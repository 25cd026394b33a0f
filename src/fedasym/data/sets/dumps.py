"""Stack Exchange's own dumps, `Posts.xml` and `Comments.xml`, row by row: whose a text is, and the text without mark-up."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from xml.etree.ElementTree import ParseError, iterparse

from fedasym.core.errors import InvalidInput
from fedasym.data.sets.assembly import located

SOURCE = "a site's dump on https://archive.org/details/stackexchange"
POSTS, COMMENTS = "Posts.xml", "Comments.xml"
FIELDS = {POSTS: ("OwnerUserId", "Body"), COMMENTS: ("UserId", "Text")}
KINDS = {"1", "2"}  # questions and answers; other posts are descriptions of tags and elections
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
        if tag in BLOCKS:
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        """End the line where a block ends."""
        self.code -= tag == "pre" and self.code > 0
        if tag in BLOCKS:
            self.pieces.append("\n")

    def handle_data(self, data: str) -> None:
        """Keep what is no block of code."""
        if not self.code:
            self.pieces.append(data)


def prose(body: str) -> str:
    """The text of a post's HTML, a line for each block.

    >>> prose("<p>Use <code>len</code> &amp; see:</p><pre><code>len(x)</code></pre><p>Done</p>").splitlines()
    ['', 'Use len & see:', '', '', '', 'Done']
    """
    parser = Prose()
    parser.feed(body)
    parser.close()
    return "".join(parser.pieces)


def texts(folder: str | Path) -> Iterator[tuple[str, str]]:
    """Users' numbers and texts: questions and answers, and comments where there are any; who is deleted has no number."""
    paths = [located(folder, POSTS, SOURCE)]
    paths += [path for path in (Path(folder) / COMMENTS,) if path.is_file()]
    for path in paths:
        user, text = FIELDS[path.name]
        for row in rows(path):
            if user not in row or (path.name == POSTS and row.get("PostTypeId") not in KINDS):
                continue
            if text not in row:
                raise InvalidInput(f"{path}: the row with Id {row.get('Id')!r} lacks {text!r}: download the dump again")
            yield row[user], prose(row[text]) if path.name == POSTS else row[text]


def rows(path: Path) -> Iterator[dict[str, str]]:
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
            f"{path} cannot be read after row {count} ({reason}): it is cut short or no XML; download the dump again"
        ) from None
