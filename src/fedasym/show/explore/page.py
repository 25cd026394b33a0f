"""The page in one piece: its parts, the look of reports, and each algorithm's colour and marker; nothing is ever fetched."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fedasym.algorithms import PAPER
from fedasym.show.figures.marks import ALGORITHMS
from fedasym.show.report.markup import Html, element, embedded
from fedasym.show.report.shapes import marker
from fedasym.show.report.shell import asset, digest, tints, write_html

THEORY = ("theory", "clients", "paths", "predict")
SCRIPTS = (*THEORY, "state", "drawing", "figures", "curves", "words", "controls", "columns", "data", "main")


def page(most_bytes: int | None = None) -> str:
    """The whole page; `most_bytes`: the largest file that the server behind it takes, None for a page without one.

    The same version gives the same text.

    >>> page().startswith("<!DOCTYPE html>"), 'data-served="no"' in page(), 'data-served="yes"' in page(1000)
    (True, True, True)
    """
    served = most_bytes is not None
    style = asset("style.css") + part("style.css") + tints()
    script = "\n".join(part(f"{name}.js") for name in SCRIPTS)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy(style, script, served)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="generator", content="fedasym explore"),
        element("link", rel="icon", href="data:,"),
        element("title", "Explore personalized federated learning"),
        element("style", Html(style)),
    )
    marks = {name: marker(ALGORITHMS[name].marker, 0, 0, 10) for name in PAPER}
    body = element(
        "body",
        Html(part("page.html")),
        embedded(marks, id="marks"),
        element("script", Html(script)),
        data_served="yes" if served else "no",
        data_most=most_bytes,
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def part(name: str) -> str:
    """A part of the page that comes with the package."""
    return (files("fedasym.show.explore") / "parts" / name).read_text(encoding="utf-8")


def policy(style: str, script: str, served: bool) -> str:
    """What the browser may do: this style, this script, and, with a server, files to it and advice from it."""
    own = "'self'" if served else "'none'"
    sources = {
        "style-src": digest(style),
        "script-src": digest(script),
        "img-src": "data:",
        "connect-src": own,
        "frame-src": own,
    }
    listed = "; ".join(f"{name} {source}" for name, source in sources.items())
    return f"default-src 'none'; {listed}; base-uri 'none'; form-action 'none'"


def write(path: str | Path) -> Path:
    """Write the page that needs no server, whole or not at all, and return where it is."""
    return write_html(path, page, "static")
