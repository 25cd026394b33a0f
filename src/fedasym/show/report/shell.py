"""The frame of a page that stands alone: style and script inside, nothing ever fetched; needs no optional package."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

from fedasym.core.errors import InvalidInput, path_of
from fedasym.core.files import replace_text
from fedasym.core.version import __version__
from fedasym.show.figures.marks import EVERY, readable
from fedasym.show.report.markup import Html, element

LIGHT, DARK = "#ffffff", "#16181c"  # the backgrounds in style.css


def shell(title: str, header: Sequence[object], sections: Sequence[tuple[str, str, object]]) -> str:
    """A page from its header and its sections (key, title, body), with links to them; the same input gives the same text."""
    style, script = asset("style.css") + tints(), asset("script.js")
    links = [element("li", element("a", name, href=f"#{key}")) for key, name, _ in sections]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy(style, script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="generator", content=f"fedasym {__version__}"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", Html(style)),
    )
    body = element(
        "body",
        element("header", *header, element("nav", element("ul", *links), aria_label="Sections")),
        element("main", *(element("section", element("h2", name), part, id=key) for key, name, part in sections)),
        element("script", Html(script)),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def write_html(path: str | Path, text: Callable[[], str], field: str = "path") -> Path:
    """Write a page, whole or not at all, and return where it is; what cannot work is refused before the page is made.

    field: what a command or a function calls the path.
    """
    target = path_of(field, path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise InvalidInput(f"{field} is {str(path)!r}: the page is HTML, so let its name end in .html")
    if not target.parent.is_dir():
        raise InvalidInput(f"{field} is {str(path)!r}: the folder {str(target.parent)!r} does not exist; make it first")
    made = text()
    try:
        replace_text(target, made)
    except OSError as reason:
        raise InvalidInput(f"{field} is {str(path)!r}: it cannot be written: {reason.strerror}; name another file") from None
    return target


def asset(name: str) -> str:
    """A file that comes with the package."""
    return (files("fedasym.show.report") / name).read_text(encoding="utf-8")


def tints() -> str:
    """Every mark's colour as a style, in a shade that stands out from a light and from a dark page."""
    light, dark = (
        "".join(f".m-{mark.key}{{--tint:{readable(mark.colour, behind)}}}" for mark in EVERY) for behind in (LIGHT, DARK)
    )
    return f"{light}\n@media screen and (prefers-color-scheme:dark){{{dark}}}\n"


def policy(style: str, script: str) -> str:
    """What the browser may do: apply this style and run this script, and nothing else; no request, whoever wrote a name.

    >>> policy("a", "b").startswith("default-src 'none'")
    True
    """
    sources = {"style-src": digest(style), "script-src": digest(script), "img-src": "data:"}
    listed = "; ".join(f"{name} {source}" for name, source in sources.items())
    return f"default-src 'none'; {listed}; base-uri 'none'; form-action 'none'"


def digest(text: str) -> str:
    """A text by its SHA-256, as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
