"""Figures, drawn with matplotlib, which is imported only when something is drawn; and one look for
all of them: marks of algorithms, quiet axes; to files, or into pages as SVG.

No global state of matplotlib is touched. In a page a figure is part of it: its letters are text in
the page's own font, its colours are the page's, which are others on a dark screen, and its points
can be read.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backend_bases import get_registered_canvas_class
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle

from fedasym.algorithms import TRAINED
from fedasym.algorithms.registry import REGISTRY
from fedasym.core.errors import InvalidInput, path_of


class Mark(NamedTuple):
    """A colour, a marker, a dash pattern (empty: solid); `key`: a safe name for style sheets."""

    key: str
    colour: str
    marker: str
    dash: tuple[float, ...] = ()


ALGORITHMS = {
    name: Mark(name, each.colour, each.marker, each.dash)
    for name, each in TRAINED.items()
    if each.colour and each.marker
}
SPARE = tuple(  # algorithms that the paper does not name
    Mark(f"spare{at}", look[:7], look[7])
    for at, look in enumerate(("#222222p", "#8c6d31h", "#6a3d9a>", "#b15928d", "#17717a^"))
)
SCALE = ("#7a7a7av", "#b5830bs", "#d1602bD", "#b03060X", "#7a3b9a<", "#2f3f9fo", "#17717a*")
# a scale from little to much: epochs of personalization
STEPS = tuple(Mark(f"step{at}", look[:7], look[7]) for at, look in enumerate(SCALE))
EVERY = (*ALGORITHMS.values(), *SPARE, *STEPS)

INK, SOFT, FAINT, PAPER = "#222222", "#666666", "#d9d9d9", "#ffffff"
LOSE, GAIN = "#b3261e", "#5b7f95"
FORMATS = ("png", "svg", "pdf")
DPI = 72  # at which a unit of an SVG is a pixel
LETTERS = 12.0  # pixels of letters in a page
RIGHT = 14  # pixels beside the axes of a page's figure
UNSAID: tuple[str, ...] = ("font", "font-family", "font-size")  # the page's own
UNSAID += ("stroke-linecap", "stroke-linejoin", "stroke-dashoffset")
NAMESPACE = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"
# The variables of style.css; every mark has one of its own.
VARIABLES = {INK: "ink", SOFT: "soft", FAINT: "faint", PAPER: "paper", LOSE: "lose", GAIN: "gain"}
VARIABLES |= {mark.colour: f"c-{mark.colour[1:]}" for mark in EVERY if mark.colour not in VARIABLES}


def marks_of(names: Iterable[str]) -> dict[str, Mark]:
    """A mark for each algorithm: its own, or one of the spare ones in turn.

    >>> marks_of(["ftfa", "mine"])["mine"].key
    'spare0'
    """
    found: dict[str, Mark] = {}
    spare = 0
    for name in dict.fromkeys(names):
        if name in ALGORITHMS:
            found[name] = ALGORITHMS[name]
            continue
        mark = SPARE[spare % len(SPARE)]
        known = REGISTRY.look_up(name)
        found[name] = mark if known is None else mark._replace(marker=known.marker or mark.marker)
        spare += 1
    return found


def scale_of(names: Iterable[str]) -> dict[str, Mark]:
    """A mark for each step of a scale, in its order.

    >>> [mark.key for mark in scale_of(["0", "batch", "10"]).values()]
    ['step0', 'step1', 'step2']
    """
    return {name: STEPS[at % len(STEPS)] for at, name in enumerate(dict.fromkeys(names))}


def luminance(colour: str) -> float:
    """Relative luminance of a colour, as the Web Content Accessibility Guidelines define it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours, from 1 to 21.

    >>> contrast("#000000", "#ffffff")
    21.0
    """
    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


def readable_shade(colour: str, background: str, least: float = 3.0) -> str:
    """The colour, or its nearest shade that stands out from the background: graphics need 3.

    >>> readable_shade("#0072b2", "#ffffff"), readable_shade("#e69f00", "#ffffff")
    ('#0072b2', '#c68900')
    """
    end = 255 if luminance(background) < 0.18 else 0
    parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    for share in range(0, 101, 1):
        mixed = "#" + "".join(f"{round(part + (end - part) * share / 100):02x}" for part in parts)
        if contrast(mixed, background) >= least:
            return mixed
    raise AssertionError(f"neither black nor white stands out from {background}")


class Screen(NamedTuple):
    """What a figure in a page is drawn for, in pixels; its name is a class of style.css."""

    name: str
    width: int
    height: int


SCREENS = (Screen("wide", 760, 390), Screen("narrow", 336, 310))


def colour(name: str) -> str:
    """The colour of an algorithm; dark for one that the paper does not name."""
    return ALGORITHMS[name].colour if name in ALGORITHMS else INK


def canvas(width: float = 6.4, height: float = 4.2) -> tuple[Figure, Axes]:
    """A figure with one pair of quiet axes, outside of pyplot."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK, labelsize=9)
    return figure, axes


def page_canvas(
    width: float, height: float, left: float, bottom: float, top: float = 8
) -> tuple[Figure, Axes]:
    """The same for a page, in pixels, margins too: no background, letters as the page has them.

    Measuring letters for the margins would take longer than drawing, and the page's own are others.
    """
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI)
    axes = figure.add_axes(
        (left / width, bottom / height, 1 - (left + RIGHT) / width, 1 - (bottom + top) / height)
    )
    for patch in (figure.patch, axes.patch):
        patch.set_visible(False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[:].set_color(SOFT)
    axes.tick_params(colors=INK, labelsize=LETTERS, length=0, pad=6)
    return figure, axes


def caption(axes: Axes, title: str, subtitle: str) -> None:
    """A bold title with a small line under it, both at the left."""
    axes.set_title(f"{title}\n", loc="left", fontsize=11, fontweight="bold", color=INK)
    axes.text(0, 1.02, subtitle, transform=axes.transAxes, fontsize=8, color=SOFT, va="bottom")


def wrap_caption(axes: Axes, title: str, subtitle: str, width: int) -> None:
    """A caption whose second line is broken where it would widen the figure."""
    lines = [""]
    for part in subtitle.split(" · "):
        longer = f"{lines[-1]} · {part}" if lines[-1] else part
        lines = [*lines[:-1], longer] if len(longer) <= width else [*lines, part]
    caption(axes, title + "\n" * (len(lines) - 1), "\n".join(lines))


def annotate_point(
    axes: Axes, text: str, at: tuple[Any, Any], offset: tuple[float, float], tint: str, **look: Any
) -> None:
    """Small words beside a point, moved by pixels."""
    near: dict[str, Any] = {"xytext": offset, "textcoords": "offset points", "fontsize": 9} | look
    axes.annotate(text, at, color=tint, **near)


def label_ends(axes: Axes, ends: list[tuple[str, float, float, str]]) -> None:
    """Name curves at their last points (name, x, y, colour), moved apart where they overlap."""
    low, high = axes.get_ylim()
    placed = -1.0
    for name, x, y, tint in sorted(ends, key=lambda end: end[2]):
        placed = max(placed + 0.05, (y - low) / (high - low))
        annotate_point(axes, name, (x, low + placed * (high - low)), (5, 0), tint, va="center")


def save(figure: Figure, path: str | Path) -> Path:
    """Write the figure by its file's ending; the same figure gives the same bytes."""
    target = path_of("plot", path)
    kind = target.suffix.lower().lstrip(".")
    if kind not in FORMATS:
        raise InvalidInput(
            f"plot is {str(path)!r}: the file must end in"
            f" {', '.join('.' + each for each in FORMATS)}"
        )
    if not target.parent.exists():
        raise InvalidInput(
            f"plot is {str(path)!r}: the folder {str(target.parent)!r} does not exist; make it"
            " first"
        )
    dated: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    figure.set_dpi(160)
    draw = getattr(get_registered_canvas_class(kind)(figure), f"print_{kind}")
    draw(target, metadata=dated or None)  # savefig draws twice, once for the layout alone
    return target


def embed(
    figure: Figure,
    key: str,
    name: str,
    title: str,
    description: str,
    read: Callable[[float, float], str] | None = None,
) -> Markup:
    """A figure as part of a page: SVG without styles of its own, which its policy refuses.

    key: unique in the page. name: a class. title, description: for those who do not see it. read: a
    point of a curve in words; the curve's group has its name.
    """
    text = io.BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": key}):
        nothing: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        FigureCanvasSVG(figure).print_svg(text, metadata=nothing)  # type: ignore[no-untyped-call]
    root = ET.fromstring(text.getvalue())
    plain = ET.Element("svg", {"viewBox": root.get("viewBox", ""), "class": name, "role": "img"})
    plain.set("aria-labelledby", f"{key}-title {key}-description")
    for tag, kind, words in (("title", "title", title), ("desc", "description", description)):
        ET.SubElement(plain, tag, {"id": f"{key}-{kind}"}).text = words
    plain.extend(each for each in root if each.tag == f"{NAMESPACE}g")
    plain.extend(
        each
        for each in root
        if each.tag == f"{NAMESPACE}defs" and each.find(f"{NAMESPACE}clipPath") is not None
    )
    for each in plain.iter():
        each.tag = each.tag.removeprefix(NAMESPACE)
        each.tail = None
        each.text = each.text.strip() or None if each.text else None
        write_attributes(each)
    if read is not None:
        tell_points(figure, plain, read)
    tell_bars(figure, plain)
    rename_ids(plain, key)
    return Markup(ET.tostring(plain, encoding="unicode").replace(" />", "/>"))


def embed_for_screens(
    draw: Callable[[Screen], Figure],
    key: str,
    title: str,
    description: str,
    read: Callable[[float, float], str] | None = None,
) -> list[Markup]:
    """A figure for a wide and for a narrow screen; the page's style shows one of them."""
    return [
        embed(draw(each), f"{key}-{each.name}", each.name, title, description, read)
        for each in SCREENS
    ]


def write_attributes(element: ET.Element) -> None:
    """Styles as attributes, colours as the page's variables, places to a tenth of a pixel.

    What the page's style says, and what cannot be seen, is left out.
    """
    for part in element.attrib.pop("style", "").split(";"):
        name, _, value = (each.strip() for each in part.partition(":"))
        if name == "font" and re.match(r"bold|[6-9]00 ", value):
            element.set("font-weight", "bold")
        elif name and name not in UNSAID:
            element.set(name, value)
    if LINK in element.attrib:
        element.set("href", element.attrib.pop(LINK))
    for name, value in element.attrib.items():
        if value in VARIABLES:
            element.set(name, f"var(--{VARIABLES[value]})")
        elif name in ("d", "x", "y", "width", "height", "transform", "stroke-dasharray"):
            short = re.sub(r"-?\d+\.\d+", lambda found: f"{round(float(found[0]), 1):g}", value)
            element.set(
                name, re.sub(r"\s*([A-Za-z])\s*", r"\1", short).strip() if name == "d" else short
            )
    if element.tag == "text":
        element.attrib.pop("fill", None)
        if element.get("transform", "").startswith(("rotate(-0 ", "rotate(0 ")):
            del element.attrib["transform"]


def tell_points(figure: Figure, svg: ET.Element, read: Callable[[float, float], str]) -> None:
    """Give the markers of every named line their values; those outside of the axes are dropped."""
    groups = {each.get("id"): each for each in svg.iter("g")}
    for axes in figure.axes:
        for line in axes.get_lines():
            name = line.get_gid()
            group = groups.get(line.get_gid())
            if name is None or group is None:
                continue
            x, y = (np.asarray(each, dtype=float) for each in line.get_data())
            across = axes.transData.transform(np.column_stack([x, y]))[:, 0]
            low, high = sorted(axes.get_ylim())
            group.attrib |= {"class": "curve", "data-name": name}
            for inside in group.iter("g"):
                for point in inside.findall("use"):
                    at = int(np.argmin(np.abs(across - float(point.get("x", 0)))))
                    if low <= y[at] <= high:
                        ET.SubElement(point, "title").text = read(x[at], y[at])
                    else:
                        inside.remove(point)
    gather_looks(svg)


def gather_looks(svg: ET.Element) -> None:
    """Give to a group what all of its markers look like: a page has hundreds."""
    for group in svg.iter("g"):
        marks = group.findall("use")
        for name in ("fill", "stroke", "stroke-width", "fill-opacity", "stroke-opacity", "opacity"):
            values = {each.get(name) for each in marks}
            if len(values) == 1 and (value := values.pop()) is not None:
                group.set(name, value)
                for each in marks:
                    del each.attrib[name]


def tell_bars(figure: Figure, svg: ET.Element) -> None:
    """Give every named bar its name to be read."""
    groups = {each.get("id"): each for each in svg.iter("g")}
    for axes in figure.axes:
        for patch in axes.patches:
            path = groups[patch.get_gid()].find("path") if patch.get_gid() in groups else None
            if path is not None:
                ET.SubElement(path, "title").text = patch.get_gid()


def rename_ids(svg: ET.Element, key: str) -> None:
    """Short unique names for what is referred to; other names and groups of one are dropped."""
    text = ET.tostring(svg, encoding="unicode")
    names = sorted(set(re.findall(r'(?:url\(|href=")#([\w-]+)', text)))
    fresh = {name: f"f{zlib.crc32(key.encode()) % 16**5:x}-{at}" for at, name in enumerate(names)}
    for each in svg.iter():
        if (held := each.get("id")) is not None and not held.startswith(f"{key}-"):
            each.attrib.pop("id")
            if held in fresh:
                each.set("id", fresh[held])
        for name in ("clip-path", "href"):
            if (target := re.search(r"#([\w-]+)", each.get(name, ""))) is not None:
                each.set(name, each.get(name, "").replace(target[0], f"#{fresh[target[1]]}"))
    unwrap(svg)


def unwrap(element: ET.Element) -> None:
    """Put the contents of groups that say nothing in their place."""
    inside: list[ET.Element] = []
    for child in element:
        unwrap(child)
        inside += list(child) if child.tag == "g" and not child.attrib else [child]
    element[:] = inside


def marker_shape(letter: str, radius: float) -> str:
    """A marker around the origin as the path of an SVG, for scripts that draw.

    >>> marker_shape("s", 10)
    'M-7.1 7.1L7.1 7.1L7.1 -7.1L-7.1 -7.1Z'
    """
    style = MarkerStyle(letter)
    path = style.get_path().transformed(style.get_transform())
    scale = radius / np.sqrt(np.mean(np.sum(np.asarray(path.vertices)[:-1] ** 2, axis=1)))
    codes = (path.MOVETO, path.LINETO, path.CURVE3, path.CURVE4)
    words = dict(zip(codes, "MLQC", strict=True))
    parts = []
    for vertices, code in path.iter_segments(curves=True):
        places = " ".join(
            f"{value:.1f}" for value in scale * vertices * np.tile([1, -1], len(vertices) // 2)
        )
        parts.append("Z" if code == path.CLOSEPOLY else f"{words[code]}{places}")
    return "".join(parts).replace("-0.0", "0.0")
