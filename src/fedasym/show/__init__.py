"""What people look at: figures, pages, the explorer, which fill roles for the layers below.

Here is what pages are made of: they stand alone, everything escaped, style and script inside,
nothing fetched.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedasym.algorithms import PAPER as PAPERS
from fedasym.core import __version__
from fedasym.core.errors import InvalidInput, path_of
from fedasym.core.numbers import number, three_digits
from fedasym.core.runtime import fill, replace_text
from fedasym.show.figures import (
    ALGORITHMS,
    EVERY,
    VARIABLES,
    marker_shape,
    marks_of,
    readable_shade,
)
from fedasym.show.figures.classes import Bar
from fedasym.verbs.losses import WINNER

LIGHT, DARK = "#ffffff", "#16181c"  # the backgrounds in style.css
THEORY = ("theory", "clients", "paths", "predict", "noise", "rounds")
SCRIPTS = (
    *THEORY,
    "state",
    "drawing",
    "figures",
    "curves",
    "words",
    "controls",
    "columns",
    "data",
    "panel",
    "main",
)


class Column(NamedTuple):
    """A head, and whether its cells are words; numbers stand flush right and sort as numbers."""

    head: str
    text: bool = False


class Cell(NamedTuple):
    """What is read, and what is sorted by where that is not the text's leading number."""

    text: object
    value: float | None = None

    @property
    def key(self) -> str | None:
        """The value for the script."""
        return None if self.value is None or not math.isfinite(self.value) else f"{self.value:.6g}"


class Table(NamedTuple):
    """A table whose first column names rows; `label`: for those who hear it; `best`: in bold."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    label: str
    best: Sequence[int] = ()


class Drawing(NamedTuple):
    """A figure for wide and narrow screens, its caption, and its numbers as a table if any."""

    key: str
    pictures: Sequence[Markup]
    caption: str
    numbers: Table | None = None


def count(value: float) -> Cell:
    """A cell of a whole number.

    >>> count(33244).text
    '33,244'
    """
    return Cell(f"{value:,.0f}")


def minus(text: str) -> str:
    """A number with a minus sign as wide as its plus.

    >>> minus("-0.18"), minus("-0.00"), minus("+2")
    ('−0.18', '0.00', '+2')
    """
    if not text.startswith("-") or len(text) == 1:
        return text
    return f"−{text[1:]}" if text.strip("-0.") else text[1:]


@cache
def open_templates() -> Environment:
    """The templates; a percent sign stays on the line of its number."""
    return Environment(
        loader=PackageLoader("fedasym.show"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: value.replace(" %", "\u00a0%") if type(value) is str else value,
    )


def render(template: str, title: str, context: Mapping[str, Any]) -> str:
    """A page in the style of reports; the same input gives the same text."""
    style = asset("style.css") + tints()
    script = asset("script.js")
    held = {
        "title": title,
        "style": Markup(style),
        "script": Markup(script),
        "policy": policy(style, script),
    }
    return open_templates().get_template(template).render(held, version=__version__, **context)


def explore_page(most_bytes: int | None = None) -> str:
    """The page with sliders; `most_bytes`: the largest file that the server behind it takes, None
    for a page without one.

    The same version gives the same text.

    >>> text = explore_page()
    >>> (
    ...     text.startswith("<!DOCTYPE html>"),
    ...     'data-served="no"' in text,
    ...     'data-served="yes"' in explore_page(1000),
    ... )
    (True, True, True)
    """
    served = most_bytes is not None
    marks = marks_of([*PAPERS, WINNER])
    classes = "".join(
        f".m-{name}{{--tint:var(--{VARIABLES[mark.colour]})}}"
        for name, mark in (marks_of(ALGORITHMS) | marks).items()
    )
    style = f"{asset('style.css')}{explore_part('style.css')}{tints()}{classes}\n"
    script = "\n".join(explore_part(f"{name}.js") for name in SCRIPTS)
    held = {
        "style": Markup(style),
        "script": Markup(script),
        "policy": policy(style, script, "'self'" if served else "'none'"),
    }
    body = {
        "body": Markup(explore_part("page.html")),
        "marks": {name: marker_shape(mark.marker, 10) for name, mark in marks.items()},
        "served": served,
        "most_bytes": most_bytes,
    }
    title = "Explore personalized federated learning"
    return (
        open_templates()
        .get_template("explore.html")
        .render(held, title=title, version="explore", **body)
    )


def write_explore_page(path: str | Path) -> Path:
    """Write the page that needs no server, whole or not at all, and return where it is."""
    return write_html(path, explore_page, "static")


def write_html(path: str | Path, text: Callable[[], str], field: str = "path") -> Path:
    """Write a page, whole or not at all, and return where it is; what cannot work is refused before
    the page is made.

    field: what a command or a function calls the path.
    """
    target = path_of(field, path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise InvalidInput(
            f"{field} is {str(path)!r}: the page is HTML, so let its name end in .html"
        )
    if not target.parent.is_dir():
        raise InvalidInput(
            f"{field} is {str(path)!r}: the folder {str(target.parent)!r} does not exist; make it"
            " first"
        )
    made = text()
    try:
        replace_text(target, made)
    except OSError as reason:
        raise InvalidInput(
            f"{field} is {str(path)!r}: it cannot be written: {reason.strerror}; name another file"
        ) from None
    return target


def asset(name: str) -> str:
    """A file that comes with the package."""
    return (files("fedasym.show") / "templates" / name).read_text(encoding="utf-8")


def explore_part(name: str) -> str:
    """A part of the page with sliders."""
    return (files("fedasym.show") / "explore" / "parts" / name).read_text(encoding="utf-8")


def tints() -> str:
    """Every mark's colour as a variable, in shades that stand out from light and dark pages."""
    names = {
        mark.colour: VARIABLES[mark.colour]
        for mark in EVERY
        if VARIABLES[mark.colour].startswith("c-")
    }
    light, dark = (
        "".join(f"--{name}:{readable_shade(colour, behind)};" for colour, name in names.items())
        for behind in (LIGHT, DARK)
    )
    return f":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"


def policy(style: str, script: str, own: str | None = None) -> str:
    """What the browser may do: apply this style and run this script, and nothing else; no request,
    whoever wrote a name.

    own: where the script may ask, and what may be framed.

    >>> policy("a", "b").startswith("default-src 'none'")
    True
    """
    sources = {
        "style-src": source_hash(style),
        "script-src": source_hash(script),
        "img-src": "data:",
    }
    sources |= {} if own is None else {"connect-src": own, "frame-src": own}
    listed = "; ".join(f"{name} {source}" for name, source in sources.items())
    return f"default-src 'none'; {listed}; base-uri 'none'; form-action 'none'"


def source_hash(text: str) -> str:
    """A text by its SHA-256, as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def percent_cell(value: float | None) -> Cell:
    """A share in percent."""
    return (
        Cell("–")
        if value is None or not math.isfinite(value)
        else Cell(f"{100 * value:.1f} %", value)
    )


def number_cell(value: float | None) -> Cell:
    """Three significant digits."""
    return (
        Cell("–") if value is None or math.isnan(value) else Cell(minus(three_digits(value)), value)
    )


def count_of(many: int, thing: str) -> str:
    """A count and what is counted.

    >>> count_of(1, "seed"), count_of(1200, "client")
    ('1 seed', '1,200 clients')
    """
    return f"{many:,} {thing}{'' if many == 1 else 's'}"


def thin_out(rounds: list[int], most: int) -> list[int]:
    """At most so many of the rounds, evenly, the last among them.

    >>> thin_out([0, 1, 2, 3, 4, 5], 3), thin_out([0, 50], 3)
    ([1, 3, 5], [0, 50])
    """
    every = -(-len(rounds) // most)
    return rounds[::-1][::every][::-1]


def share_in_percent(share: float) -> str:
    """A share of clients.

    >>> share_in_percent(0.123), share_in_percent(0.995), share_in_percent(1)
    ('12 %', '99.5 %', '100 %')
    """
    places = 0 if 0.1 <= share <= 0.99 or share in (0, 1) else 1
    return f"{100 * share:.{places}f} %"


def describe_bar(bar: Bar, percent: bool) -> str:
    """A line in words.

    >>> describe_bar(Bar("rtfa", 0.68, 0.66, 0.7), True)
    'rtfa 68%, 66% to 70%'
    """

    def show(value: float) -> str:
        return f"{100 * value:.3g}%" if percent else f"{value:.3g}"

    text = f"{bar.name} {show(bar.value)}"
    if math.isfinite(bar.low) and math.isfinite(bar.high):
        text += f", {show(bar.low)} to {show(bar.high)}"
    return text if bar.beside is None else f"{text}, samples say {show(bar.beside)}"


def show_value(value: float | None, loss: bool) -> str:
    """A value as it is read."""
    if value is None or not math.isfinite(value):
        return "–"
    return number(value) if loss else f"{value:.2f} %"


def show_gain(value: float, loss: bool) -> str:
    """A gain."""
    return minus(f"{value:+.4g}" if loss else f"{value:+.2f}")


ROLES = {
    "draw advice": ("fedasym.show.figures.classes", "draw_advice"),
    "draw class counts": ("fedasym.show.figures.classes", "draw_class_counts"),
    "draw what if": ("fedasym.show.figures.classes", "draw_what_if"),
    "draw results": ("fedasym.show.figures.rounds", "draw_results"),
    "write advice": ("fedasym.show.advice", "write_advice"),
    "draw comparison of accuracies": ("fedasym.show.figures.classes", "draw_accuracies"),
    "draw comparison of losses": ("fedasym.show.figures.theory", "draw_table"),
    "draw decomposition": ("fedasym.show.figures.rounds", "draw_decomposition"),
    "draw histories": ("fedasym.show.figures.rounds", "draw_training"),
    "draw diagram of accuracies": ("fedasym.show.figures.classes", "draw_accuracy_diagram"),
    "draw path of accuracies": ("fedasym.show.figures.classes", "draw_accuracy_path"),
    "draw simulation of accuracies": ("fedasym.show.figures.classes", "draw_simulated_accuracies"),
    "draw diagram of losses": ("fedasym.show.figures.theory", "draw_diagram"),
    "draw path of losses": ("fedasym.show.figures.theory", "draw_path"),
    "draw rounds": ("fedasym.show.figures.theory", "draw_rounds"),
    "draw privacy costs": ("fedasym.show.figures.theory", "draw_privacy_costs"),
    "draw simulation of losses": ("fedasym.show.figures.theory", "draw_simulation"),
}
for role, (module, name) in ROLES.items():
    fill(role, module, name)
