"""The frame of a page that stands alone: style and script inside, nothing ever fetched; needs no optional package."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files

import fedasym
from fedasym.figures.marks import EVERY, readable
from fedasym.reporting.markup import Html, element

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
        element("meta", name="generator", content=f"fedasym {fedasym.__version__}"),
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


def asset(name: str) -> str:
    """A file that comes with the package."""
    return (files("fedasym.reporting") / name).read_text(encoding="utf-8")


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
