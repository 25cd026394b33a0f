"""The frame around a page: head, search, table of contents, the page itself, what comes before and after it."""

from __future__ import annotations

from pathlib import Path

from pygments.formatters import HtmlFormatter

import fedasym
from builder.pages import Page, target_of
from fedasym.show.report.markup import Html, element

# Whoever wrote a page, a browser fetches nothing for it but what lies beside it.
POLICY = "default-src 'self' file: data:; style-src 'self' file: 'unsafe-inline'; script-src 'self' file:; form-action 'none'"
Contents = list[tuple[str, list[tuple[str, Path]]]]
DEEPEST = 3  # level of headings that are listed


def framed(page: Page, contents: Contents) -> str:
    """A whole page; the same input gives the same text."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="generator", content=f"fedasym {fedasym.__version__}"),
        element("link", rel="icon", href="data:,"),
        element("title", page.title if page.target == "index.html" else f"{page.title} · fedasym"),
        element("link", rel="stylesheet", href=f"{page.up}style.css"),
        element("style", Html(colours())),
        element("script", Html(""), src=f"{page.up}search.js", defer=True),
    )
    skip = element("a", "Skip to the text", href="#text", class_="skip")
    body = element("body", skip, top(page), element("div", side(page, contents), middle(page, contents), class_="columns"))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en', data_root=page.up)}\n"


def colours() -> str:
    """The colours of code, on light and on dark pages."""
    light = HtmlFormatter(style="vs", nowrap=True).get_style_defs(".code")
    dark = HtmlFormatter(style="github-dark", nowrap=True).get_style_defs(".code")
    keep = [[line for line in text.splitlines() if line.startswith(".code .")] for text in (light, dark)]
    return "\n".join(keep[0]) + "\n@media screen and (prefers-color-scheme: dark) {\n" + "\n".join(keep[1]) + "\n}\n"


def top(page: Page) -> Html:
    """The name, the search, the version."""
    field = element("input", type="search", id="search", placeholder="Search", aria_label="Search", autocomplete="off")
    found = element("ol", id="found", hidden=True, aria_label="Found")
    return element(
        "header",
        element("a", "fedasym", href=f"{page.up}index.html", class_="home"),
        element("div", field, found, class_="search", role="search"),
        element("span", fedasym.__version__, class_="quiet"),
    )


def side(page: Page, contents: Contents) -> Html:
    """The table of contents; on a phone it is folded."""
    groups = []
    for name, pages in contents:
        items = []
        for title, source in pages:
            target = target_of(source)
            current = "page" if target == page.target else None
            items.append(element("li", element("a", title, href=f"{page.up}{target}", aria_current=current)))
        groups += [element("p", name), element("ul", *items)]
    more = [element("li", element("a", name, href=f"{page.up}{target}")) for name, target in BESIDE_PAGES.items()]
    return element(
        "nav",
        element("details", element("summary", "Contents"), *groups, element("p", "Project"), element("ul", *more), open=True),
        aria_label="Contents",
    )


BESIDE_PAGES = {
    "Read me": "readme.html",
    "Contributing": "contributing.html",
    "Changes": "changelog.html",
    "Security": "security.html",
}


def middle(page: Page, contents: Contents) -> Html:
    """The page with its headings listed, and links to its neighbours."""
    listed = [heading for heading in page.headings if 1 < heading.level <= DEEPEST]
    items = [element("li", element("a", each.text, href=f"#{each.slug}"), class_=f"level{each.level}") for each in listed]
    folded = element("summary", "On this page")
    inside = element("details", folded, element("ul", *items), class_="inside") if len(listed) > 2 else ""
    return element("main", inside, Html(page.body), neighbours(page, contents), id="text")


def neighbours(page: Page, contents: Contents) -> Html:
    """The pages before and after this one, in the order of the table of contents."""
    order = [(title, target_of(source)) for _, pages in contents for title, source in pages]
    at = next((place for place, (_, target) in enumerate(order) if target == page.target), None)
    if at is None:
        return Html("")
    before = [element("a", f"← {title}", href=page.up + target, rel="prev") for title, target in order[max(at - 1, 0) : at]]
    after = [element("a", f"{title} →", href=page.up + target, rel="next") for title, target in order[at + 1 : at + 2]]
    return element("footer", element("span", *before), element("span", *after))
