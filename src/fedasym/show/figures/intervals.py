"""Figures of values with their intervals, one line per algorithm, and of how clients' gains are distributed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fedasym.core.arrays import Array
from fedasym.results.result import ACCURACY, LOSS
from fedasym.show.figures.style import (
    FAINT,
    GAIN,
    INK,
    LETTERS,
    LOSE,
    PAPER,
    RIGHT,
    Screen,
    canvas,
    caption,
    marks_of,
    page_canvas,
    save,
)

if TYPE_CHECKING:
    from fedasym.results.result import Result

BINS = 24
ROW = 32  # pixels of an algorithm in a page
SMALL = (272, 132)  # pixels of a histogram


class Bar(NamedTuple):
    """A value with its ends (NaN: none), and what was measured beside it (a second, hollow mark), if anything was."""

    name: str
    value: float
    low: float
    high: float
    beside: float | None = None
    best: bool = False


def draw_bars(bars: Sequence[Bar], across: str, percent: bool, screen: Screen | None = None) -> Figure:
    """A mark and its interval for each algorithm; those without a finite value are left out. screen: for a page."""
    drawn = [bar for bar in bars if math.isfinite(bar.value)]
    if screen is None:
        letters, (figure, axes) = 9.0, canvas(6.4, 1.0 + 0.42 * len(drawn))
    else:
        names = 8 * max(len(bar.name) for bar in drawn) + 14
        letters, (figure, axes) = LETTERS, page_canvas(screen.width, ROW * len(drawn) + 56, left=names, bottom=48)
    marks = marks_of(bar.name for bar in drawn)
    for place, bar in enumerate(drawn):
        mark, ends = marks[bar.name], [bar.low, bar.high]
        if np.isfinite(ends).all():
            axes.plot(ends, [place, place], color=mark.colour, linewidth=5, alpha=0.35, solid_capstyle="round")
        size = 10 if bar.best else 7
        axes.plot([bar.value], [place], marker=mark.marker, markersize=size, color=mark.colour, linestyle="none")
        if bar.beside is not None and math.isfinite(bar.beside):
            look: dict[str, Any] = {"markerfacecolor": PAPER, "markeredgecolor": mark.colour}
            axes.plot([bar.beside], [place], marker="o", markersize=5.5, linestyle="none", **look)
        if screen is None:
            text = ACCURACY.show(bar.value) if percent else f"{bar.value:.3g}"
            last = max(each for each in (bar.value, bar.high) if math.isfinite(each))
            weight = "bold" if bar.best else "normal"
            offset: dict[str, Any] = {"xytext": (8, 0), "textcoords": "offset points", "va": "center"}
            axes.annotate(text, (last, place), fontsize=letters, color=INK, fontweight=weight, **offset)
    axes.set_yticks(range(len(drawn)), [bar.name for bar in drawn])
    for bar, label in zip(drawn, axes.get_yticklabels(), strict=True):
        label.set_fontweight("bold" if bar.best else "normal")
    axes.set_ylim(len(drawn) - 0.5, -0.5)
    axes.margins(x=0.2 if screen is None else 0.05)
    axes.xaxis.set_major_locator(MaxNLocator("auto" if screen is None else max(screen.width // 90, 3)))
    if percent:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g}%"))
    axes.xaxis.grid(color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(across, fontsize=letters, color=INK)
    return figure


def draw_advice(advice: Result, path: str | Path) -> Path:
    """Values and intervals by algorithm, from the rows of any advice; the recommended one in bold."""
    rows = [row for row in advice.table() if row.get("predicted", row.get("accuracy")) is not None]
    metric = ACCURACY if "accuracy" in rows[0] else LOSS
    bars = []
    for row in rows:
        value = float(row.get("predicted", row.get(metric.name, math.nan)))
        low, high = (math.nan if row[end] is None else row[end] for end in ("low", "high"))
        bars.append(Bar(row["algorithm"], value, low, high, best=row["recommended"]))
    what = "test accuracy" if metric.share else "test loss above the noise floor"
    figure = draw_bars(bars, f"expected {what}, and its 95 % interval", percent=metric.share)
    best = next(bar.name for bar in bars if bar.best)
    caption(figure.axes[0], f"{best} is recommended", f"{len(rows)} algorithms on these clients")
    return save(figure, path)


def bin_edges(values: Array) -> Array:
    """The ends of a histogram's bars: round numbers, 0 among them; what lies beyond is counted in the last bars."""
    low, high = (float(np.percentile(values, at)) for at in (0.5, 99.5))
    marks = MaxNLocator(BINS, steps=[1, 2, 5, 10]).tick_values(min(low, 0.0), max(high, 0.0))
    step = float(marks[1] - marks[0])
    # Who loses is never counted among those who gain, however few they are.
    first = min(np.floor(low / step), -1.0 if values.min() < 0 else 0.0)
    last = max(np.ceil(high / step), 1.0 if values.max() >= 0 else 0.0)
    return np.asarray(step * np.arange(first, last + 1))


def draw_histogram(values: Array, edges: Array, unit: str) -> Figure:
    """How gains are distributed: bars left of the line at 0 are clients that lose."""
    inside = np.clip(values, edges[0], np.nextafter(edges[-1], -np.inf))
    counts = np.histogram(inside, edges)[0]
    figure, axes = page_canvas(*SMALL, left=RIGHT, bottom=24)
    for low, high, many in zip(edges[:-1], edges[1:], counts, strict=True):
        if many:
            tint = LOSE if low < -1e-9 * abs(edges[-1]) else GAIN
            (patch,) = axes.bar(low, many, 0.92 * (high - low), align="edge", color=tint)
            patch.set_gid(f"{low:+.4g} to {high:+.4g}{unit}: {many} clients")
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_xlim(edges[0], edges[-1])
    axes.spines["left"].set_visible(False)
    axes.set_yticks([])
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}" if value else "0"))
    return figure
