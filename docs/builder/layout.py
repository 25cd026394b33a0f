"""The frame around a page: head, search, table of contents, the page itself, what comes before and
after it.
"""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pygments.formatters import HtmlFormatter

import fedasym
from builder.pages import Page, target_of

# Whoever wrote a page, a browser fetches nothing for it but what lies beside it.
POLICY = (
    "default-src 'self' file: data:; style-src 'self' file: 'unsafe-inline'; script-src 'self'"
    " file:; form-action 'none'"
)
Contents = list[tuple[str, list[tuple[str, Path]]]]
DEEPEST = 3  # level of headings that are listed
BESIDE_PAGES = {
    "Read me": "readme.html",
    "Contributing": "contributing.html",
    "Changes": "changelog.html",
    "Security": "security.html",
}
TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def framed(page: Page, contents: Contents, runs: bool) -> str:
    """A whole page, with a link to its notebook where there is one; same input, same text."""
    order = [(title, target_of(source)) for _, pages in contents for title, source in pages]
    at = next((place for place, (_, target) in enumerate(order) if target == page.target), None)
    return TEMPLATES.get_template("layout.jinja").render(
        page=page,
        policy=POLICY,
        notebook=Path(page.target).with_suffix(".ipynb").name if runs else None,
        version=fedasym.__version__,
        colours=Markup(colours()),
        contents=[
            (name, [(title, target_of(source)) for title, source in pages])
            for name, pages in contents
        ],
        project=BESIDE_PAGES,
        headings=[heading for heading in page.headings if 1 < heading.level <= DEEPEST],
        body=Markup(page.body),
        before=order[at - 1] if at else None,
        after=order[at + 1] if at is not None and at + 1 < len(order) else None,
    )


def colours() -> str:
    """The colours of code, on light and on dark pages."""
    light = HtmlFormatter(style="vs", nowrap=True).get_style_defs(".code")
    dark = HtmlFormatter(style="github-dark", nowrap=True).get_style_defs(".code")
    keep = [
        [line for line in text.splitlines() if line.startswith(".code .")] for text in (light, dark)
    ]
    return (
        "\n".join(keep[0])
        + "\n@media screen and (prefers-color-scheme: dark) {\n"
        + "\n".join(keep[1])
        + "\n}\n"
    )
