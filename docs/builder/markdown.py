"""Markdown as GitHub reads it, to HTML: its anchors, its tables, its formulas (as MathML), with
code in colour.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape

from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from builder.pages import Heading, Page

COLOURS = HtmlFormatter(nowrap=True)
LEXERS = {
    "console": "console",
    "bash": "bash",
    "python": "python",
    "toml": "toml",
    "json": "json",
    "yaml": "yaml",
}
Follow = Callable[[Page, str], str]  # the address that a link or image is given
UNDEFINED = re.compile(
    r"\[[^\]\n]+\]\[[^\]\n]*\]"
)  # a link by a name that stands nowhere: it was left as text
Explain = Callable[[Page, str], str | None]  # where inline code is explained, if anywhere
LONG = 60  # characters of a cell that are a sentence or more


def parser() -> MarkdownIt:
    """What GitHub has: tables, strike-through, formulas; bare HTML is switched off."""
    md = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    return md.use(dollarmath_plugin, double_inline=True)


def slug(text: str, taken: set[str]) -> str:
    """GitHub's anchor of a heading; a second one of the same name is numbered.

    >>> slug("What the numbers mean: `fa.predict`", set()), slug("A", {"a"})
    ('what-the-numbers-mean-fapredict', 'a-1')
    """
    plain = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
    number, unique = 0, plain
    while unique in taken:
        number += 1
        unique = f"{plain}-{number}"
    taken.add(unique)
    return unique


def plain_text(token: Token) -> str:
    """An inline token without its marks."""
    return "".join(
        child.content or (" " if child.type == "softbreak" else "")
        for child in token.children or ()
    )


def without_directives(text: str) -> str:
    r"""An example without what only doctest reads.

    >>> without_directives(">>> x  # doctest: +ELLIPSIS\n1\n<BLANKLINE>\n2")
    '>>> x\n1\n\n2'
    """
    text = re.sub(r"[ \t]*# doctest:.*$", "", text, flags=re.MULTILINE)
    return re.sub(r"^([ \t]*)<BLANKLINE>$", "", text, flags=re.MULTILINE)


def code(text: str, language: str) -> str:
    """A block of code, in colour where the language is known."""
    name = (
        "pycon"
        if language == "python" and text.lstrip().startswith(">>>")
        else LEXERS.get(language, "")
    )
    text = without_directives(text).rstrip() + "\n"
    shown = (
        highlight(text, get_lexer_by_name(name, stripnl=False), COLOURS) if name else escape(text)
    )
    return f'<pre class="code" tabindex="0"><code>{shown}</code></pre>\n'


CLOSING = {")": "(", "]": "[", r"\rVert": r"\lVert", r"\rvert": r"\lvert"}
SIZED = re.compile(r"\\[bB]igg?[lr]?$")


def group_delimiters(text: str) -> str:
    r"""LaTeX whose brackets and bars are one group with their content where they are enlarged, or
    have an exponent or index: a browser would stretch the opening one alone.

    >>> group_delimiters(r"\lVert x\rVert^2 + (a)(b)_k \big(c\big)")
    '\\left\\lVert  x\\right\\rVert ^2 + (a)\\left( b\\right) _k \\left( c\\right) '
    """
    tokens = re.findall(r"\\[a-zA-Z]+\*?|\\.|.", text, flags=re.DOTALL)
    opened: list[tuple[int, int]] = []
    depth = 0
    for at, token in enumerate(tokens):
        depth += (token == "{") - (token == "}")
        before = tokens[at - 1] if at else ""
        if before in (r"\left", r"\right", r"\sqrt"):
            continue
        if token in CLOSING.values():
            opened.append((at, depth))
        elif token in CLOSING:
            while opened and opened[-1][1] > depth:
                opened.pop()
            if not opened or tokens[opened[-1][0]] != CLOSING[token] or opened[-1][1] != depth:
                continue
            start, _ = opened.pop()
            after = next((each for each in tokens[at + 1 :] if not each.isspace()), "")
            if after in ("^", "_") or SIZED.match(before):
                tokens[start] = rf"\left{tokens[start]} "
                tokens[at] = rf"\right{token} "
    return "".join(token for token in tokens if not SIZED.match(token))


def formula(text: str, block: bool) -> str:
    """LaTeX as MathML, which browsers draw by themselves."""
    known = re.sub(r"\\arg\s*\\(min|max)(?![a-zA-Z])", r"\\arg\1 ", text.strip())
    drawn = str(convert(group_delimiters(known), display="block" if block else "inline"))
    if raw := re.search(r">(\\[a-zA-Z]+)<", drawn):
        raise ValueError(
            f"the formula {text!r} has {raw[1]}, which is not known: write it in words"
        )
    return drawn


def inline_formula(tokens: list[Token], at: int) -> str:
    """A formula within a line; a comma, stop or bracket after it stays on its line."""
    drawn = formula(tokens[at].content, block=False)
    after = tokens[at + 1] if at + 1 < len(tokens) else None
    mark = re.match(r"[,.;:)]+", after.content) if after and after.type == "text" else None
    if not mark:
        return drawn
    after.content = after.content[mark.end() :]
    return f'<span class="short">{drawn}{mark[0]}</span>'


def render(page: Page, follow: Follow, explain: Explain) -> None:
    """Fill in a page's title, body, headings and searchable sections; what is wrong with it is
    added to its faults.
    """
    md = parser()
    tokens = md.parse(page.text)
    taken: set[str] = set()
    found = [("", [])]
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            words = plain_text(tokens[place + 1])
            anchor = slug(words, taken)
            token.attrSet("id", anchor)
            page.headings.append(Heading(int(token.tag[1]), anchor, words))
            found.append((anchor, []))
        if token.type == "inline":
            look(page, token, follow, explain)
            found[-1][1].append(plain_text(token))
        if token.type in ("fence", "math_block"):
            found[-1][1].append(token.content)
    page.title = next((heading.text for heading in page.headings if heading.level == 1), "")
    if not page.title:
        page.faults.append("has no title: begin it with a heading of the first level")
    page.sections = [
        (anchor, " ".join(" ".join(texts).split())) for anchor, texts in found if texts
    ]
    page.body = drawn(md, tokens)


def look(page: Page, inline: Token, follow: Follow, explain: Explain) -> None:
    """Links, images and code within a text: addresses are put in, faults are noted."""
    inside, children = False, []
    for child in inline.children or ():
        if child.type == "link_open":
            child.attrSet("href", follow(page, str(child.attrGet("href"))))
            inside = True
        elif child.type == "link_close":
            inside = False
        elif child.type == "image":
            child.attrSet("src", follow(page, str(child.attrGet("src"))))
            child.attrSet("loading", "lazy")
            if str(child.attrGet("src")).startswith("http"):
                page.faults.append(f"has an image that lies elsewhere: {child.attrGet('src')}")
            if not child.content.strip():
                page.faults.append(
                    f"has an image without a text that stands for it: {child.attrGet('src')}"
                )
        elif (
            child.type == "text"
            and not page.generated
            and (unknown := UNDEFINED.search(child.content))
        ):
            page.faults.append(f"refers to something that it does not define: {unknown[0]}")
        if child.type == "code_inline" and not inside and (where := explain(page, child.content)):
            opening = Token("link_open", "a", 1, attrs={"href": where, "class": "name"})
            children += [opening, child, Token("link_close", "a", -1)]
        else:
            children.append(child)
    inline.children = children


def drawn(md: MarkdownIt, tokens: list[Token]) -> str:
    """Tokens to HTML; tables may be wider than a phone, and scroll there."""
    rules = md.renderer.rules
    rules["fence"] = lambda tokens, at, *_: code(tokens[at].content, tokens[at].info.strip())
    rules["code_block"] = lambda tokens, at, *_: code(tokens[at].content, "")
    rules["code_inline"] = lambda tokens, at, *_: inline_code(tokens[at].content)
    rules["math_inline"] = lambda tokens, at, *_: inline_formula(tokens, at)
    rules["math_inline_double"] = lambda tokens, at, *_: formula(tokens[at].content, block=True)
    rules["math_block"] = lambda tokens, at, *_: formula(tokens[at].content, block=True)
    rules["table_open"] = lambda *_: (
        '<div class="wide" tabindex="0" role="region" aria-label="Table"><table>\n'
    )
    rules["td_open"] = lambda tokens, at, *_: cell(tokens[at + 1].content)
    rules["table_close"] = lambda *_: "</table></div>\n"
    rules["heading_close"] = lambda tokens, at, *_: closing(tokens, at)
    return str(md.renderer.render(tokens, md.options, {}))


def cell(text: str) -> str:
    """A cell of a table begins: one with sentences stays readable where the table is squeezed."""
    kind = "short" if is_short(text) else "long" if len(text) > LONG else ""
    return f'<td class="{kind}">' if kind else "<td>"


def is_short(cell: str) -> bool:
    """Whether a cell of a table holds a number or a few of them, and stays on one line.

    >>> [is_short(cell) for cell in ("+1.77 ± 0.09", "77.49 (77.47–77.53)", "749 s", "at least 0")]
    [True, True, True, False]
    """
    return bool(re.fullmatch(r"[\s\d.,()%±+−×–-]{1,24}( (ms|s|kB|MB|GB))?", cell))


def inline_code(text: str) -> str:
    """Code within a line, which breaks between words and never within a flag.

    >>> inline_code("fedasym train --rounds 40")
    '<code>fedasym train <span class="short">--rounds</span> 40</code>'
    """
    words = re.split(r"((?<!\S)--?[a-z][\w-]*)", text)
    shown = [
        f'<span class="short">{escape(word)}</span>' if at % 2 else escape(word)
        for at, word in enumerate(words)
    ]
    return f"<code>{''.join(shown)}</code>"


def closing(tokens: list[Token], at: int) -> str:
    """The end of a heading, with a link to itself."""
    anchor, level = tokens[at - 2].attrGet("id"), tokens[at].tag
    link = (
        ""
        if level == "h1"
        else f' <a class="here" href="#{anchor}" aria-label="Link to this heading">#</a>'
    )
    return f"{link}</{level}>\n"
