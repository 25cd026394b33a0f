"""The page: sections in order, its style and its script inside; nothing is ever fetched, and the browser is told so."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING

import fedasym
from fedasym.experiments.printing import SWEEPS
from fedasym.figures.marks import EVERY, readable
from fedasym.reporting.curves import Published
from fedasym.reporting.markup import Html, element, paragraphs
from fedasym.reporting.sections import (
    Section,
    again_section,
    clients_section,
    gains_section,
    published_section,
    sweep_section,
    tuning_section,
)
from fedasym.reporting.words import facts, headline

if TYPE_CHECKING:
    from fedasym.experiments.comparisons import Comparisons
    from fedasym.experiments.results import Results

LIGHT, DARK = "#ffffff", "#16181c"  # the backgrounds in style.css


def page(results: Results, published: Published | None = None) -> str:
    """The whole page; the same results give the same text."""
    style = asset("style.css") + tints()
    script = asset("script.js")
    paired = results.comparisons()
    sections = [section for section in all_sections(results, paired, published) if section is not None]
    experiment = results.experiment
    links = [element("li", element("a", section.title, href=f"#{section.key}")) for section in sections]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy(style, script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="generator", content=f"fedasym {fedasym.__version__}"),
        element("link", rel="icon", href="data:,"),
        element("title", f"{experiment.name}: results"),
        element("style", Html(style)),
    )
    body = element(
        "body",
        element(
            "header",
            element("h1", experiment.name),
            element("p", experiment.about, class_="about") if experiment.about else "",
            element("ul", *(element("li", fact) for fact in facts(results)), class_="facts"),
            element("div", paragraphs(headline(results, paired)), class_="answer"),
            element("nav", element("ul", *links), aria_label="Sections"),
        ),
        element("main", *(written(section) for section in sections)),
        element("script", Html(script)),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def all_sections(results: Results, paired: Comparisons, published: Published | None) -> list[Section | None]:
    """In the order of reading: what to know, what was found, how it was found."""
    notes = Section("notes", "What a fair reader should know", paragraphs(results.notes)) if results.notes else None
    return [
        notes,
        *(sweep_section(results, sweep, paired, published) for sweep in SWEEPS),
        gains_section(results, published),
        clients_section(results),
        published_section(results, published),
        tuning_section(results),
        again_section(results),
    ]


def written(section: Section) -> Html:
    """A section with its title."""
    return element("section", element("h2", section.title), section.body, id=section.key)


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
