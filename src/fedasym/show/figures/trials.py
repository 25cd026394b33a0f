"""Accuracy against rounds as the paper draws it: a line with markers per algorithm, a band from the worst to the best trial.

One drawing serves seeds, splits and the gains of personalization; published curves lie beside ours, dotted and hollow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullFormatter, ScalarFormatter

from fedasym.show.figures.marks import Mark
from fedasym.show.figures.style import FAINT, INK, canvas, caption
from fedasym.show.report.curves import Curve, Curves
from fedasym.show.report.scales import axis_ticks, span
from fedasym.training.wording import folded

WRAP = 96  # characters of a line under the title
MARKED = 16  # markers of a line, at most
DOTTED: Any = (0, (1, 2.2))
LARGE = {"*": 10.0, "s": 5.5, "o": 6.0, "D": 5.5}  # points across: shapes of the same size do not look alike


class Words(NamedTuple):
    """What stands on a figure: its title, what is under it, and its axes; `names` of curves, where not their keys."""

    title: str
    under: list[str]
    across: str
    up: str
    names: Mapping[str, str] = {}


def draw_curves(ours: Curves, published: Curves, marks: Mapping[str, Mark], words: Words, *, loss: bool) -> Figure:
    """Curves with their bands; those in percent or losses as they are given."""
    figure, axes = canvas(7.6, 4.6)
    scale = span([*ours.values(), *published.values()], loss=loss)
    order = ranked(ours, published, loss)
    for key in reversed(order):
        mark, over = marks[key], 2.5 if marks[key].dash else 2.0  # a dashed line may coincide with a solid one: it goes on top
        if key in published:
            line(axes, published[key], mark, over, paper=True)
        if key in ours:
            line(axes, ours[key], mark, over, paper=False)
    last = max(curve.rounds[-1] for curve in (*ours.values(), *published.values()))
    axes.set_xlim(-0.02 * max(last, 1), 1.02 * max(last, 1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if scale.logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_yticks(axis_ticks(scale))
    axes.set_ylim(scale.low, scale.high)
    axes.set_xlabel(words.across, color=INK)
    axes.set_ylabel(words.up, fontsize=9, color=INK)
    axes.grid(color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    legend(axes, order, ours, published, marks, words, loss)
    cut = ["early rounds outside the frame"] if scale.cut else []
    under = folded(" · ".join([*words.under, *cut]), WRAP)
    caption(axes, words.title + "\n" * (len(under) - 1), "\n".join(under))
    return figure


def ranked(ours: Curves, published: Curves, loss: bool) -> list[str]:
    """Curves by where they end, from top to bottom of the figure; those without a number last."""
    ends = {key: (ours.get(key) or published[key]).last for key in dict.fromkeys([*ours, *published])}
    return sorted(ends, key=lambda key: -ends[key] if math.isfinite(ends[key]) else math.inf)


def line(axes: Axes, curve: Curve, mark: Mark, over: float, *, paper: bool) -> None:
    """One curve; where it ends in no number, a cross on the last that there is."""
    mean = curve.mean
    if curve.trials > 1 and not paper:
        axes.fill_between(curve.rounds, curve.low, curve.high, color=mark.colour, alpha=0.18, linewidth=0)
    every = -(-len(curve.rounds) // MARKED)
    axes.plot(curve.rounds, mean, zorder=over, markevery=every, **look(mark, paper))
    if not np.isfinite(mean).all() and (before := np.flatnonzero(np.isfinite(mean))).size:
        at = before[-1]
        axes.plot(curve.rounds[at], mean[at], color=mark.colour, marker="x", markersize=9, markeredgewidth=2)


def look(mark: Mark, paper: bool) -> dict[str, Any]:
    """How a curve is drawn: ours full, a published one lighter, dotted, with hollow markers."""
    own: dict[str, Any] = {"color": mark.colour, "marker": mark.marker, "markersize": LARGE.get(mark.marker, 6.5)}
    if paper:
        return own | {"linestyle": DOTTED, "linewidth": 1.2, "markerfacecolor": "white", "alpha": 0.7}
    dash = (0, mark.dash) if mark.dash else "-"
    return own | {"linestyle": dash, "linewidth": 1.8, "markeredgecolor": "white", "markeredgewidth": 0.5}


def legend(
    axes: Axes, order: list[str], ours: Curves, published: Curves, marks: Mapping[str, Mark], words: Words, loss: bool
) -> None:
    """Names beside the axes with their last values, in the order in which the lines end."""
    handles = []
    for key in order:
        for kind, held in (("", ours), (" (paper)", published)):
            if key in held:
                value = held[key].last
                text = "diverged" if not math.isfinite(value) else f"{value:.4g}" if loss else f"{value:.1f} %"
                label = f"{words.names.get(key, key)}{kind}  {text}"
                handles.append(Line2D([], [], label=label, **look(marks[key], bool(kind))))
    small = 9 if len(handles) <= 12 else 7.5
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=small, frameon=False, handlelength=2.6)
