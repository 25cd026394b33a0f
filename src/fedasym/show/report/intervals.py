"""A figure of values with their intervals, one line per algorithm: drawn for a wide and for a narrow screen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from fedasym.show.figures.marks import marks_of
from fedasym.show.report.markup import Html, element
from fedasym.show.report.shapes import marker
from fedasym.show.report.ticks import ticks

ROW, TOP, BOTTOM, RIGHT = 32, 12, 46, 18


class Bar(NamedTuple):
    """A value with its ends (NaN: none), and what was measured beside it (a second, hollow mark), if anything was."""

    name: str
    value: float
    low: float
    high: float
    beside: float | None = None
    best: bool = False


class Size(NamedTuple):
    """A drawing in pixels of the screen that it is for."""

    name: str
    width: int
    left: int
    ticks: int


SIZES = (Size("wide", 760, 110, 8), Size("narrow", 336, 88, 4))


def figure(bars: Sequence[Bar], across: str, caption: str, *, percent: bool = False) -> Html:
    """The figure with its caption; those who do not see it hear the numbers."""
    finite = [each for each in bars if math.isfinite(each.value)]
    values = [
        v for each in finite for v in (each.value, each.low, each.high, each.beside) if v is not None and math.isfinite(v)
    ]
    if not values:
        return element("p", "There is nothing to draw.")
    span = max(max(values) - min(values), 1e-9 * abs(max(values)), 1e-12)
    low, high = min(values) - 0.05 * span, max(values) + 0.05 * span
    words = "; ".join(spoken(each, percent) for each in finite)
    drawings = [drawing(size, finite, low, high, across, f"{across}. {words}.", percent) for size in SIZES]
    return element("figure", element("div", *drawings, class_="plot"), element("figcaption", caption))


def spoken(bar: Bar, percent: bool) -> str:
    """A line in words.

    >>> spoken(Bar("rtfa", 0.68, 0.66, 0.7), True)
    'rtfa 68%, 66% to 70%'
    """
    text = f"{bar.name} {shown(bar.value, percent)}"
    if math.isfinite(bar.low) and math.isfinite(bar.high):
        text += f", {shown(bar.low, percent)} to {shown(bar.high, percent)}"
    return text if bar.beside is None else f"{text}, samples say {shown(bar.beside, percent)}"


def shown(value: float, percent: bool) -> str:
    """A number as it is read."""
    return f"{100 * value:.3g}%" if percent else f"{value:.3g}"


def drawing(size: Size, bars: Sequence[Bar], low: float, high: float, across: str, described: str, percent: bool) -> Html:
    """One drawing."""
    height = TOP + ROW * len(bars) + BOTTOM
    bottom = height - BOTTOM
    right = size.width - RIGHT

    def at(value: float) -> float:
        return size.left + (right - size.left) * (min(max(value, low), high) - low) / (high - low)

    grid, labels = [], []
    for tick in ticks(low, high, size.ticks):
        x = f"{at(tick):.1f}"
        grid.append(element("line", x1=x, x2=x, y1=TOP, y2=bottom))
        labels.append(element("text", shown(tick, percent), x=x, y=bottom + 18, text_anchor="middle"))
    labels.append(element("text", across, x=(size.left + right) / 2, y=height - 6, text_anchor="middle"))
    marks, lines = marks_of(each.name for each in bars), []
    for place, bar in enumerate(bars):
        y = TOP + ROW * (place + 0.5)
        labels.append(element("text", bar.name, x=size.left - 10, y=f"{y + 4:.1f}", text_anchor="end"))
        parts = []
        if math.isfinite(bar.low) and math.isfinite(bar.high):
            a, b = at(bar.low), at(bar.high)
            ends = "".join(f"M{x:.1f},{y - 5:.1f} {x:.1f},{y + 5:.1f}" for x in (a, b))
            whisker = f"M{a:.1f},{y:.1f} {b:.1f},{y:.1f}{ends}"
            parts.append(element("path", d=whisker, class_="line"))
        parts.append(
            element("path", d=marker(marks[bar.name].marker, at(bar.value), y, 6.5 if bar.best else 4.5), class_="mark")
        )
        if bar.beside is not None and math.isfinite(bar.beside):
            hollow = element("path", d=marker("o", at(bar.beside), y, 3.5), class_="mark")
            parts.append(element("g", hollow, class_="paper"))
        lines.append(element("g", *parts, class_=f"series m-{marks[bar.name].key}"))
    return element(
        "svg",
        element("g", *grid, class_="grid"),
        element("line", x1=size.left, x2=right, y1=bottom, y2=bottom, class_="base"),
        element("g", *labels, class_="labels"),
        *lines,
        viewBox=f"0 0 {size.width} {height}",
        class_=size.name,
        role="img",
        aria_label=described,
    )
