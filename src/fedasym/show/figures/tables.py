"""A table of risks as stacked bars: bias and variance of each algorithm."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedasym.core.errors import InvalidInput
from fedasym.core.text import number
from fedasym.results.comparison import Comparison, Risk
from fedasym.show.figures.style import FAINT, INK, canvas, caption, colour, save


def draw_table(table: Comparison[Risk], path: str | Path) -> Path:
    """Bars of bias (full colour) and variance (hatched) for a single world."""
    if table.stack().ndim != 1:
        raise InvalidInput("only the table of a single population can be drawn; use compare for one or two varied parameters")
    names = list(table)
    figure, axes = canvas(6.4, 0.9 + 0.42 * len(names))
    bias, variance = (np.array([float(getattr(table[name], part)) for name in names]) for part in ("bias", "variance"))
    finite = np.isfinite(bias + variance)
    top = (bias + variance)[finite].max(initial=0) or 1.0
    lowest = (bias + variance).min() * (1 + table.metric.tie)
    for row, name in enumerate(names):
        tint = colour(name)
        if not finite[row]:
            axes.text(0.01 * top, row, "unbounded", va="center", fontsize=9, color=INK)
            continue
        axes.barh(row, bias[row], color=tint, height=0.62)
        axes.barh(row, variance[row], left=bias[row], facecolor="white", edgecolor=tint, hatch="////", height=0.62)
        ridge = table[name].ridge
        text = number(bias[row] + variance[row]) + ("" if ridge is None else f"  (ridge {number(ridge)})")
        weight = "bold" if bias[row] + variance[row] <= lowest else "normal"
        axes.text(bias[row] + variance[row] + 0.012 * top, row, text, va="center", fontsize=9, color=INK, fontweight=weight)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.3 * top)
    axes.xaxis.grid(color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel("test loss above the noise floor: bias (solid) + variance (hatched)", fontsize=9, color=INK)
    caption(axes, f"{table.best} has the lowest loss", table.title)
    return save(figure, path)
