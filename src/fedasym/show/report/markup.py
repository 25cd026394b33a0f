"""HTML that cannot be broken into: whatever is not markup already is escaped, whoever named it."""

from __future__ import annotations

import json
from html import escape
from typing import Any

VOID = {"meta", "link", "input", "line", "path", "rect"}  # may stand without content, and then have no end tag


class Html(str):
    """Markup that was made here; any other string is text."""

    __slots__ = ()


def html(piece: object) -> Html:
    """Text escaped, markup as it is; a percent sign stays on the line of its number.

    >>> html("a < b"), html(Html("<b>bold</b>")), html("5 %")
    ('a &lt; b', '<b>bold</b>', '5&nbsp;%')
    """
    return piece if isinstance(piece, Html) else Html(escape(str(piece)).replace(" %", "&nbsp;%"))


def verbatim(text: str) -> Html:
    """Text to be copied: escaped, and not otherwise touched."""
    return element("pre", Html(escape(text)))


def joined(*pieces: object) -> Html:
    """Pieces one after the other."""
    return Html("".join(map(html, pieces)))


def element(name: str, /, *children: object, **attributes: object) -> Html:
    """An element; attributes that are None or False are left out, and those that are True stand alone.

    A final underscore of a name is dropped and others become dashes, so that `class_` and `aria_label` can be written.

    >>> element("p", "<script>", class_="note", hidden=True)
    '<p class="note" hidden>&lt;script&gt;</p>'
    >>> element("line", x1=0.5)
    '<line x1="0.5"/>'
    """
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in VOID and not children:
        return Html(f"<{name}{written}/>")
    return Html(f"<{name}{written}>{joined(*children)}</{name}>")


def paragraphs(texts: list[str] | tuple[str, ...]) -> Html:
    """Sentences as a list, or as one paragraph where there is one."""
    if len(texts) == 1:
        return element("p", texts[0])
    return element("ul", *(element("li", text) for text in texts)) if texts else Html("")


def embedded(value: Any, **attributes: object) -> Html:
    r"""Data for the page's own script; no text in it can end the element or start another.

    >>> embedded({"name": "</script>"}, id="data")
    '<script type="application/json" id="data">{"name":"\\u003c/script\\u003e"}</script>'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return element("script", Html(text), type="application/json", **attributes)
