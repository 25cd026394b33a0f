"""The site: pages rendered, every link followed, faults collected; then files are written, unless
there is a fault.
"""

from __future__ import annotations

import json
import shutil
from importlib.resources import files
from pathlib import Path
from posixpath import relpath

from builder.layout import framed
from builder.markdown import code, render
from builder.names import Names
from builder.notebooks import has_examples, notebook
from builder.pages import BESIDE, CONTENTS, DOCS, ROOT, Page, contents, markdown_sources, target_of

SHOWN = {
    ".py": "python",
    ".toml": "toml",
    ".json": "json",
    ".yml": "yaml",
    ".cff": "yaml",
    "": "",
    ".txt": "",
}
UNLISTED = f"is not in the table of contents, {CONTENTS.relative_to(ROOT)}"
INDEX = "search-index.js"
COPIED = (".svg", ".png", ".csv", ".parquet", ".html")


class Site:
    """Pages by their place in the site, and files that are copied beside them."""

    def __init__(self) -> None:
        texts = {source: source.read_text(encoding="utf-8") for source in markdown_sources()}
        self.pages = {
            target_of(source): Page(source, target_of(source), text)
            for source, text in texts.items()
        }
        self.copies: dict[str, Path] = {}
        self.names = Names()
        self.contents = contents()

    def read(self) -> list[str]:
        """Render everything; what is wrong, as one line each."""
        for page in list(self.pages.values()):
            render(page, self.follow, self.explain)
        for page in self.pages.values():
            page.faults += [
                f"links to {target}#{anchor}, and no heading there has that anchor"
                for target, anchor in page.links
                if target in self.pages
                and anchor not in {heading.slug for heading in self.pages[target].headings}
            ]
        listed = {
            CONTENTS,
            *(ROOT / name for name in BESIDE),
            *(page for _, pages in self.contents for _, page in pages),
        }
        for page in self.pages.values():
            if page.source.suffix == ".md" and page.source not in listed:
                page.faults.append(UNLISTED)
        finished = [
            f"{file.relative_to(ROOT)} {UNLISTED}"
            for file in sorted(DOCS.rglob("*.html"))
            if file not in listed
        ]
        return [
            f"{page.source.relative_to(ROOT)} {fault}"
            for page in self.pages.values()
            for fault in page.faults
        ] + finished

    def follow(self, page: Page, address: str) -> str:
        """The address of a link or image within the site; a file of the repository becomes a page
        of its own.
        """
        if address.startswith(("https://", "http://", "mailto:")):
            return address
        path, _, anchor = address.partition("#")
        source = (page.source.parent / path).resolve() if path else page.source
        if path and not (source.is_relative_to(ROOT) and source.is_file()):
            what = "a folder: link to a file in it" if source.is_dir() else "which does not exist"
            page.faults.append(f"links to {address}, {what}")
            return address
        target = self.place(source)
        if anchor:
            page.links.append((target, anchor))
        way = relpath(target, Path(page.target).parent.as_posix() or ".")
        return f"{way}#{anchor}" if anchor else way

    def place(self, source: Path) -> str:
        """Where a file goes: a page, a copy, or a page that shows it."""
        if source.suffix in COPIED:
            below = source.relative_to(DOCS if source.is_relative_to(DOCS) else ROOT)
            target = (
                below.as_posix() if source.is_relative_to(DOCS) else f"source/{below.as_posix()}"
            )
            self.copies[target] = source
            return target
        target = target_of(source)
        if target not in self.pages:
            name, text = source.relative_to(ROOT).as_posix(), source.read_text(encoding="utf-8")
            body = f"<h1>{name}</h1>\n{code(text, SHOWN.get(source.suffix, ''))}"
            self.pages[target] = Page(
                source, target, text, name, body, sections=[("", " ".join(text.split()))]
            )
        return target

    def explain(self, page: Page, text: str) -> str | None:
        """Where the reference explains a public name that stands in a text as code."""
        if page.generated:
            return None
        known, address = self.names.find(text)
        if not known:
            page.faults.append(f"speaks of {text}, which fedasym does not have")
        return f"{page.up}reference/{address}" if address else None

    def write(self, into: Path) -> int:
        """All files, into a new folder or over an older site; how many pages there are."""
        if into.exists() and any(into.iterdir()) and not (into / INDEX).exists():
            raise SystemExit(
                f"{into} has files that are not of this site: name an empty folder, or none"
            )
        shutil.rmtree(into, ignore_errors=True)
        for target, page in self.pages.items():
            file = into / target
            file.parent.mkdir(parents=True, exist_ok=True)
            runs = has_examples(page)
            file.write_text(framed(page, self.contents, runs), encoding="utf-8")
            if runs:
                as_notebook = notebook(page, self.follow)
                file.with_suffix(".ipynb").write_text(as_notebook, encoding="utf-8")
        for target, source in self.copies.items():
            (into / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, into / target)
        for name in ("style.css", "search.js", "math.woff2", "math.txt"):
            (into / name).write_bytes((files("builder") / name).read_bytes())
        (into / INDEX).write_text(f"window.searchIndex = {self.index()};\n", encoding="utf-8")
        return len(self.pages)

    def index(self) -> str:
        """What is searched: address, title of the page, heading and text of every section."""
        rows = []
        for page in self.pages.values():
            headings = {heading.slug: heading.text for heading in page.headings}
            for anchor, text in page.sections:
                address = f"{page.target}#{anchor}" if anchor else page.target
                rows.append([address, page.title, headings.get(anchor, ""), text[:4000]])
        return json.dumps(rows, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
