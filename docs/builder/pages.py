"""What becomes a page, where it goes, and in which order it is read: `docs/README.md` is the table
of contents.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
CONTENTS = DOCS / "README.md"
BESIDE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")  # at the repository's root


@dataclass(frozen=True)
class Heading:
    """A heading with its anchor."""

    level: int
    slug: str
    text: str


@dataclass
class Page:
    """A page: its source, its place in the site, what was made of it, and what is wrong with it."""

    source: Path
    target: str
    text: str
    title: str = ""
    body: str = ""
    headings: list[Heading] = field(default_factory=list)
    sections: list[tuple[str, str]] = field(
        default_factory=list
    )  # anchor and plain text, for searching
    links: list[tuple[str, str]] = field(default_factory=list)  # target and anchor, of other pages
    faults: list[str] = field(default_factory=list)

    @property
    def generated(self) -> bool:
        """Whether the code wrote it: it names what there is, and its brackets are what docstrings
        have.
        """
        return self.target.startswith("reference/")

    @property
    def up(self) -> str:
        """The way from this page to the site's root."""
        return "../" * self.target.count("/")


def target_of(source: Path) -> str:
    """Where a source's page goes: README is the index of its folder, a finished page stays, what is
    outside docs goes below.

    >>> (
    ...     target_of(DOCS / "how-to" / "train.md"),
    ...     target_of(DOCS / "README.md"),
    ...     target_of(ROOT / "README.md"),
    ... )
    ('how-to/train.html', 'index.html', 'readme.html')
    >>> target_of(ROOT / "examples" / "demo.toml")
    'source/examples/demo.toml.html'
    """
    if source.is_relative_to(DOCS) and source.suffix in (".md", ".html"):
        place = source.relative_to(DOCS)
        return str(
            place.with_name("index.html")
            if place.name == "README.md"
            else place.with_suffix(".html")
        )
    place = source.relative_to(ROOT)
    return f"{place.stem.lower()}.html" if str(place) in BESIDE else f"source/{place}.html"


def markdown_sources() -> list[Path]:
    """Every page that is written in Markdown."""
    return sorted(
        [*DOCS.rglob("*.md"), *(ROOT / name for name in BESIDE if (ROOT / name).exists())]
    )


def contents(text: str | None = None) -> list[tuple[str, list[tuple[str, Path]]]]:
    """The sections of the table of contents, each with its pages: every item of a list under a
    heading names one.
    """
    found: list[tuple[str, list[tuple[str, Path]]]] = []
    for line in (CONTENTS.read_text(encoding="utf-8") if text is None else text).splitlines():
        if heading := re.match(r"## (.+)", line):
            found.append((heading[1], []))
        item = re.match(r"(?:-|\d+\.) \[([^\]]+)\]\(([^)#\s]+\.(?:md|html))\)", line)
        if item and found:
            found[-1][1].append((item[1], (CONTENTS.parent / item[2]).resolve()))
    return [(name, pages) for name, pages in found if pages]
