"""Curves as SVG: drawn once for a wide and once for a narrow screen, so that letters have their size on both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fedasym.show.figures.marks import Mark
from fedasym.show.report.curves import Curve, Curves
from fedasym.show.report.markup import Html, element
from fedasym.show.report.scales import Span, axis_ticks
from fedasym.show.report.shapes import band, line, marker
from fedasym.show.report.ticks import ticks

TOP, RIGHT, BOTTOM, INSET = 12, 14, 42, 10
RADIUS = 4.0
MARKED = 16  # markers of a line, at most


class Size(NamedTuple):
    """A drawing in its own units, which are pixels of the screen that it is for."""

    name: str
    width: int
    height: int
    left: int
    ticks: int  # of the horizontal axis, at most

    @property
    def right(self) -> int:
        """Where the axes end."""
        return self.width - RIGHT

    @property
    def bottom(self) -> int:
        """Where the axes stand."""
        return self.height - BOTTOM


SIZES = (Size("wide", 760, 390, 50, 9), Size("narrow", 336, 310, 44, 4))


class Frame(NamedTuple):
    """Where values are drawn."""

    size: Size
    first: int
    last: int
    scale: Span

    def across(self, when: float) -> float:
        """The horizontal place of a round; the axes begin a little before the first."""
        left, right = self.size.left + INSET, self.size.right - INSET
        return left + (right - left) * (when - self.first) / max(self.last - self.first, 1)

    def up(self, value: float) -> float:
        """The vertical place of a value."""
        return self.size.bottom - (self.size.bottom - TOP) * self.scale.share(value)


def drawing(
    key: str, frame: Frame, ours: Curves, published: Curves, marks: Mapping[str, Mark], across: str, described: str
) -> Html:
    """One drawing of a chart; later curves lie over earlier ones."""
    size = frame.size
    grid, labels = [], []
    for tick in axis_ticks(frame.scale):
        y = frame.up(tick)
        grid.append(element("line", x1=size.left, x2=size.right, y1=f"{y:.1f}", y2=f"{y:.1f}"))
        labels.append(element("text", f"{tick:g}", x=size.left - 8, y=f"{y + 4:.1f}", text_anchor="end"))
    for tick in ticks(frame.first, max(frame.last, frame.first + 1), size.ticks, least=1):
        labels.append(element("text", f"{tick:g}", x=f"{frame.across(tick):.1f}", y=size.bottom + 18, text_anchor="middle"))
    middle = (size.left + size.right) / 2
    labels.append(element("text", across, x=middle, y=size.height - 5, text_anchor="middle"))
    clip = f"{key}-{size.name}"
    area = element("rect", x=size.left, y=TOP - 6, width=size.right - size.left, height=size.bottom - TOP + 6)
    names = dict.fromkeys([*ours, *published])
    return element(
        "svg",
        element("clipPath", area, id=clip),
        element("g", *grid, class_="grid"),
        element("line", x1=size.left, x2=size.right, y1=size.bottom, y2=size.bottom, class_="base"),
        element("g", *labels, class_="labels"),
        element("line", x1=size.left, x2=size.left, y1=TOP, y2=size.bottom, class_="rule", visibility="hidden"),
        element(
            "g",
            *(series(name, frame, ours.get(name), published.get(name), marks[name]) for name in names),
            clip_path=f"url(#{clip})",
        ),
        viewBox=f"0 0 {size.width} {size.height}",
        class_=size.name,
        role="img",
        aria_label=described,
    )


def series(name: str, frame: Frame, ours: Curve | None, published: Curve | None, mark: Mark) -> Html:
    """Ours: a band from the lowest to the highest trial, a line, filled markers. Published: dotted, with hollow markers."""
    parts = []
    if published is not None:
        parts.append(element("g", *curve_paths(frame, published, mark, dash="1 4"), class_="paper"))
    if ours is not None:
        if ours.trials > 1:
            at = [frame.across(when) for when in ours.rounds]
            parts.append(element("path", d=band(at, ups(frame, ours.low), ups(frame, ours.high)), class_="band"))
        parts += curve_paths(frame, ours, mark, dash=" ".join(f"{2 * part:g}" for part in mark.dash) or None)
    return element("g", *parts, class_=f"series m-{mark.key}", data_series=name)


def curve_paths(frame: Frame, curve: Curve, mark: Mark, dash: str | None) -> list[Html]:
    """The mean as a line, and its markers: on every round, or on some of many."""
    at = [frame.across(when) for when in curve.rounds]
    points = list(zip(at, ups(frame, curve.mean), strict=True))
    every = -(-len(points) // MARKED)
    chosen = [points[i] for i in range(len(points) - 1, -1, -every) if points[i][1] == points[i][1]]  # NaN is not itself
    shapes = "".join(marker(mark.marker, x, y, RADIUS) for x, y in chosen)
    return [
        element("path", d=line(points), class_="line", stroke_dasharray=dash),
        element("path", d=shapes, class_="mark"),
    ]


def ups(frame: Frame, values: Iterable[float]) -> list[float]:
    """Vertical places."""
    return [frame.up(float(value)) for value in values]


def swatch(mark: Mark, paper: bool = False) -> Html:
    """A mark for a legend."""
    dash = "1 4" if paper else " ".join(f"{part:g}" for part in mark.dash) or None
    parts = (
        element("path", d="M1,8 33,8", class_="line", stroke_dasharray=dash),
        element("path", d=marker(mark.marker, 17, 8, RADIUS + 0.5), class_="mark"),
    )
    inner = element("g", *parts, class_="paper") if paper else element("g", *parts)
    return element("svg", inner, viewBox="0 0 34 16", class_=f"swatch m-{mark.key}", aria_hidden="true")
