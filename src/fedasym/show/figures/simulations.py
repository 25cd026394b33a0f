"""Simulated losses over the theory's: points with best-to-worst intervals on lines, one colour per algorithm."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput
from fedasym.core.text import number
from fedasym.show.figures.style import FAINT, INK, canvas, caption, colour, label_ends, save

if TYPE_CHECKING:
    from fedasym.results.simulation import Simulated, Simulation

FINE = 160  # points of a theory line
WIDE = 10  # ratio of the last value to the first from which the axis is logarithmic
MOST_KINDS = 12
PALE = "#aaaaaa"
LOSS = "test loss above the noise floor"
WRAP = 100  # characters of a line under the title
DASHED: Any = (0, (4, 3))


def draw_simulation(simulation: Simulation[Simulated], path: str | Path) -> Path:
    """Draw a simulation to a file and return where it is."""
    return over_values(simulation, path) if simulation.vary is not None else by_algorithm(simulation, path)


def over_values(simulation: Simulation[Simulated], path: str | Path) -> Path:
    """Losses over the parameter that varies: the prediction for this many clients as a line, the limit dashed."""
    assert simulation.vary is not None
    name, values = simulation.vary
    word, x = name.replace("_", " "), np.array(values, dtype=float)
    figure, axes = canvas(7.6, 4.8)
    wide = x[0] > 0 and x[-1] / x[0] >= WIDE
    fine = np.geomspace(x[0], x[-1], FINE) if wide else np.linspace(x[0], x[-1], FINE)
    if name == "clients":
        fine = np.unique(np.round(np.append(fine, x)))
    ends = []
    for algorithm, row in simulation.items():
        tint = colour(algorithm)
        predicted, limit = simulation.curve(algorithm, fine)
        axes.plot(fine, predicted, color=tint, linewidth=1.5)
        axes.plot(fine, limit, color=tint, linewidth=1, linestyle=DASHED)
        interval(axes, x, row.loss, row.low, row.high, tint)
        ends.append((algorithm, float(x[-1]), float(np.asarray(row.loss)[-1]), tint))
    if wide:
        axes.set_xscale("log")
        axes.set_xticks(x, [f"{value:g}" for value in x])
        axes.minorticks_off()
    axes.set_ylim(0, 1.15 * max(float(np.max(row.high)) for row in simulation.values()))
    axes.margins(x=0.07)
    axes.set_xlabel(word, color=INK)
    axes.set_ylabel(LOSS, fontsize=9, color=INK)
    axes.grid(color=FAINT, linewidth=0.6)
    label_ends(axes, ends)
    finish(axes, f"Simulated and predicted loss over {word}", simulation.title, "best")
    return save(figure, path)


def by_algorithm(simulation: Simulation[Simulated], path: str | Path) -> Path:
    """One row per algorithm, with one mark per kind of client where they differ."""
    names, kinds = list(simulation), max(len(simulation.labels), 1)
    if kinds > MOST_KINDS:
        raise InvalidInput(f"{kinds} kinds of clients are too many for one figure: draw at most {MOST_KINDS}, or use table()")
    figure, axes = canvas(7.6, 1.3 + 0.42 * len(names) * (1 + 0.45 * (kinds - 1)))
    for place, algorithm in enumerate(names):
        row, tint = simulation[algorithm], colour(algorithm)
        loss, low, high, predicted, limit = (
            np.atleast_1d(each) for each in (row.loss, row.low, row.high, row.predicted.loss, row.limit.loss)
        )
        y = place + (np.arange(kinds) - (kinds - 1) / 2) * 0.8 / kinds
        axes.hlines(y, low, high, color=tint, linewidth=5, alpha=0.35)
        axes.plot(predicted, y, linestyle="none", marker="|", markersize=15, markeredgewidth=1.6, color=INK)
        axes.plot(limit, y, linestyle="none", marker="|", markersize=11, markeredgewidth=1.2, color=PALE)
        axes.plot(loss, y, linestyle="none", marker="o", markersize=5, color=tint)
        for k in range(kinds):
            text = number(loss[k]) + ("" if kinds == 1 else f"  client {k}")
            axes.annotate(
                text, (max(high[k], np.nan_to_num(predicted[k], posinf=0)), y[k]), xytext=(8, 0), textcoords="offset points",
                va="center", fontsize=9 if kinds == 1 else 7, color=INK,
            )  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.2 * max(float(np.max(row.high)) for row in simulation.values()))
    axes.xaxis.grid(color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(LOSS, fontsize=9, color=INK)
    finish(axes, "Simulated and predicted loss", simulation.title, "lower right", upright=True)
    return save(figure, path)


def interval(axes: Axes, x: Array, middle: Any, low: Any, high: Any, tint: str) -> None:
    """Points with the span from the best to the worst trial."""
    axes.vlines(x, low, high, color=tint, linewidth=4, alpha=0.35)
    axes.plot(x, middle, linestyle="none", marker="o", markersize=4.5, color=tint)


def finish(axes: Axes, title: str, subtitle: str, where: Literal["best", "lower right"], upright: bool = False) -> None:
    """Legend and caption; a long subtitle in two lines."""
    marks: dict[str, Any] = {"marker": "|", "markersize": 11, "linestyle": "none"} if upright else {}
    plain, dashed = (marks, marks) if upright else ({"linewidth": 1.5}, {"linewidth": 1, "linestyle": DASHED})
    handles = [
        Line2D([], [], color=INK, marker="o", markersize=4, linestyle="none", label="simulated, best to worst trial"),
        Line2D([], [], color=INK, label="predicted for finitely many clients", **plain),
        Line2D([], [], color=PALE if upright else INK, label="limit of infinitely many", **dashed),
    ]
    axes.legend(handles=handles, fontsize=8, frameon=False, loc=where)
    lines = [""]
    for part in subtitle.split(" · "):
        longer = f"{lines[-1]} · {part}" if lines[-1] else part
        lines = [*lines[:-1], longer] if len(longer) <= WRAP else [*lines, part]
    caption(axes, title + "\n" * (len(lines) - 1), "\n".join(lines))
