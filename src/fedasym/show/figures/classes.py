"""Figures of classes: who has which, accuracies, their paths and diagrams; and of advice: intervals
by algorithm, what-ifs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array, plural
from fedasym.results import ACCURACY, LOSS
from fedasym.show.figures import (
    FAINT,
    INK,
    LETTERS,
    PAPER,
    SOFT,
    Screen,
    annotate_point,
    canvas,
    caption,
    colour,
    label_ends,
    marks_of,
    page_canvas,
    save,
    wrap_caption,
)
from fedasym.show.figures.theory import draw_phases
from fedasym.verbs import fine_tuning
from fedasym.verbs.accuracies import over_ridges, ridges_about

if TYPE_CHECKING:
    from fedasym.data.federation import Federation
    from fedasym.models.what_if import WhatIf
    from fedasym.results import Accuracy, Comparison, Result
    from fedasym.results.regimes import Diagram, FineTuning
    from fedasym.results.simulation import SimulatedAccuracy, Simulation


OTHERS = {
    "bayes": "#222222",
    "truth": "#aaaaaa",
    "one_step": "#cc79a7",
    "stopped": "#56b4e9",
    "rtfa_squares": "#009e73",
    "ftfa_squares": "#7fcdb4",
}
NAMES = {"bayes": "bayes (ceiling)", "local": "local = ftfa, converged"}
WRAP = 90  # characters of a line under the title
MOST_CLIENTS = 60  # columns that can still be told apart
MOST_CLASSES = 40  # rows whose names fit
LARGEST = 130.0  # area of the largest disc, in square points
DASHES: dict[str, Any] = {"bayes": (0, (1, 1.5)), "local": (0, (4, 3)), "fedavg": "-"}


def colour_method(name: str) -> str:
    """The colour of a method."""
    return OTHERS.get(name) or colour(name)


def panels(count: int) -> tuple[Figure, list[Axes]]:
    """One or two quiet pairs of axes with a common height."""
    figure = Figure(figsize=(6.6 if count == 1 else 11.0, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    found = np.atleast_1d(np.asarray(figure.subplots(1, count, sharey=True))).tolist()
    for axes in found:
        show_percent(axes)
    return figure, found


def show_percent(axes: Axes) -> None:
    """Accuracy upwards in percent, no frame."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK, labelsize=9, labelleft=True)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g}%"))
    axes.grid(color=FAINT, linewidth=0.6)


def draw_accuracies(table: Comparison[Accuracy], path: str | Path) -> Path:
    """Accuracy against ridge and training time; rows that have neither are lines."""
    if table.stack().ndim != 1:
        raise InvalidInput(
            "only the table of a single population can be drawn; use compare for one or two varied"
            " parameters"
        )
    figure, axes = panels(1 if table.clients is not None else 2)
    ridges = ridges_about(table)
    ends = []
    for name, curve in over_ridges(table, ridges).items():
        row = table.rows.get(name)
        best = None if row is None or row.ridge is None else (float(row.ridge), float(row.accuracy))
        draw_peak(axes[0], ridges, curve, best, colour_method(name))
        ends.append((name, float(curve[0]), (20, -3) if name == "rtfa" else (4, 6)))
    axes[0].set_xscale("log")
    axes[0].set_xlabel("ridge", color=INK)
    axes[0].set_ylabel("accuracy on fresh samples", fontsize=9, color=INK)
    if len(axes) == 2:
        draw_times(axes[1], table)
    lines = [name for name in ("fedavg", "local", "bayes") if name in table]
    for each in axes:
        for name in lines:
            tint = colour_method(name)
            level = float(table[name].accuracy)
            each.axhline(level, color=tint, linewidth=1.3, linestyle=DASHES[name])
    figure.canvas.draw()
    for name, y, offset in ends:
        annotate_point(axes[0], name, (ridges[0], y), offset, colour_method(name))
    edge = axes[-1].get_xlim()[1]
    levels = {name: float(table[name].accuracy) for name in lines}
    labels = [(NAMES.get(name, name), edge, levels[name], colour_method(name)) for name in lines]
    label_ends(axes[-1], labels)
    wrap_caption(axes[0], f"{table.best} has the highest accuracy", table.title, WRAP)
    return save(figure, path)


def draw_peak(axes: Axes, x: Array, y: Array, best: tuple[float, float] | None, shade: str) -> None:
    """A curve through its best point, which a star marks."""
    if best is not None and x[0] <= best[0] <= x[-1]:
        x, y = np.append(x, best[0]), np.append(y, best[1])
        axes.plot(*([each] for each in best), marker="*", markersize=12, color=shade)
    order = np.argsort(x)
    axes.plot(x[order], y[order], color=shade, linewidth=2)


def draw_times(axes: Axes, table: Comparison[Accuracy]) -> None:
    """Accuracy along early-stopped fine-tuning."""
    found: FineTuning[Accuracy] = fine_tuning(table.world)
    later = found.times > 0
    best = float(np.asarray(found.best.at)), float(np.asarray(found.best.scores.accuracy))
    draw_peak(axes, found.times[later], found.accuracy[later], best, colour_method("ftfa"))
    axes.set_xscale("log")
    axes.set_xlabel("training time: step x steps of fine-tuning", color=INK)
    where = int(0.6 * later.sum())
    at = (found.times[later][where], found.accuracy[later][where])
    annotate_point(axes, "fine-tuning, stopped", at, (6, 6), colour_method("ftfa"))


def draw_accuracy_path(found: FineTuning[Accuracy], path: str | Path) -> Path:
    """Accuracy and log-loss of a single world along fine-tuning."""
    if found.accuracy.ndim > 1:
        raise InvalidInput("only the path of a single population can be drawn: give plain numbers")
    figure, axes = canvas()
    show_percent(axes)
    best, top = float(np.asarray(found.best.at)), float(np.asarray(found.best.scores.accuracy))
    order = np.argsort(found.times)
    t, accuracy = found.times[order], found.accuracy[order]
    wide = t[-1] > 50 * t[t > 0].min(initial=np.inf)
    if wide and t[0] == 0:  # a logarithmic axis has no 0: the shared model is a line
        level = float(accuracy[0])
        tint = colour_method("fedavg")
        axes.axhline(level, color=tint, linewidth=1.3)
        look: dict[str, Any] = {"fontsize": 9, "ha": "right", "va": "bottom", "color": tint}
        axes.text(0.99, level, "fedavg", transform=axes.get_yaxis_transform(), **look)
        t = t[1:]
        accuracy = accuracy[1:]
    draw_peak(axes, t, accuracy, (best, top), colour_method("ftfa"))
    axes.set_xscale("log" if wide else "linear")
    unit = "training time: step x steps" if found.step is None else "gradient steps"
    axes.set_xlabel(unit, color=INK)
    axes.set_ylabel("accuracy on fresh samples", fontsize=9, color=INK)
    title = f"Early stopping: stop at {found.unit} {best:.4g}, accuracy {100 * top:.2f}%"
    wrap_caption(axes, title, found.title, WRAP)
    return save(figure, path)


def draw_accuracy_diagram(diagram: Diagram, path: str | Path) -> Path:
    """Points by which one method leads over two parameters, or both accuracies over one."""
    figure, axes = canvas(6.6, 4.6)
    names = list(diagram.axes)
    if len(names) == 1:
        show_percent(axes)
        x = diagram.axes[names[0]]
        ends = []
        first, second = diagram.first_values, diagram.second_values
        for name, accuracy in ((diagram.first, first), (diagram.second, second)):
            axes.plot(x, accuracy, color=colour_method(name), linewidth=2)
            ends.append((name, float(x[-1]), float(accuracy[-1]), colour_method(name)))
        for row in diagram.boundary:
            axes.axvline(row[0], color=INK, linewidth=0.8, linestyle=":")
        axes.margins(x=0.1)
        if x[0] > 0 and x[-1] / x[0] > 30:
            axes.set_xscale("log")
        axes.set_xlabel(names[0], color=INK)
        axes.set_ylabel("accuracy on fresh samples", fontsize=9, color=INK)
        label_ends(axes, ends)
    else:
        draw_accuracy_phases(figure, axes, diagram)
    wrap_caption(axes, f"{diagram.first} against {diagram.second}", diagram.title, WRAP)
    return save(figure, path)


def draw_accuracy_phases(figure: Figure, axes: Axes, diagram: Diagram) -> None:
    """The lead over two parameters, with the boundary."""
    most = max(float(np.nanmax(np.abs(diagram.gain))), 1e-6)
    shades = draw_phases(axes, diagram, most, colour_method)
    bar = figure.colorbar(shades, ax=axes, shrink=0.85, pad=0.02)
    bar.set_label(f"percentage points by which {diagram.first} is ahead", fontsize=9, color=INK)
    bar.outline.set_visible(False)
    scales = (axes.set_xscale, axes.set_yscale)
    for values, scale in zip(diagram.axes.values(), scales, strict=True):
        if values[0] > 0 and values[-1] / values[0] > 30:
            scale("log")


def draw_simulated_accuracies(simulation: Simulation[SimulatedAccuracy], path: str | Path) -> Path:
    """One row per method: the mean with its trials, and the prediction as a tick."""
    names = list(simulation)
    figure, axes = canvas(7.2, 1.3 + 0.42 * len(names))
    axes.spines[["top", "right"]].set_visible(False)
    tick: dict[str, Any] = {"marker": "|", "markersize": 15, "markeredgewidth": 1.6, "color": INK}
    for place, name in enumerate(names):
        row = simulation[name]
        tint = colour_method(name)
        axes.hlines(place, row.low, row.high, color=tint, linewidth=5, alpha=0.35)
        predicted = float(row.predicted.accuracy)
        axes.plot([predicted], [place], linestyle="none", **tick)
        axes.plot([row.accuracy], [place], linestyle="none", marker="o", markersize=5, color=tint)
        text = f"{100 * row.accuracy:.2f}% ± {100 * row.error:.2f}"
        at = (max(row.high, predicted), place)
        annotate_point(axes, text, at, (8, 0), INK, va="center")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    low = min(row.low for row in simulation.values())
    high = max(row.high for row in simulation.values())
    axes.set_xlim(low - 0.05 * (high - low), high + 0.25 * (high - low))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g}%"))
    axes.xaxis.grid(color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(
        "accuracy: simulated (dot, all trials) and predicted (tick)", fontsize=9, color=INK
    )
    wrap_caption(axes, "Simulated and predicted accuracy", simulation.title, WRAP)
    return save(figure, path)


def draw_class_counts(federation: Federation, path: str | Path) -> Path:
    """A disc for every client and class, as large as the client's share of that class.

    Of many clients, some evenly spread over all of them are shown.
    """
    counts = federation.class_counts()
    m, classes = counts.shape
    shown = np.unique(np.linspace(0, m - 1, min(m, MOST_CLIENTS)).astype(int))
    shares = counts[shown] / np.maximum(counts[shown].sum(1, keepdims=True), 1)
    figure, axes = canvas(
        2.2 + 0.14 * max(len(shown), 20), 1.6 + 0.13 * min(max(classes, 10), 3 * MOST_CLASSES)
    )
    client, kind = np.nonzero(shares)
    area = LARGEST * shares[client, kind] * min(1.0, 20 / classes + 0.3)
    look: dict[str, Any] = {"color": INK, "alpha": 0.75, "linewidths": 0}
    axes.scatter(client, kind, s=area, **look)
    if classes <= MOST_CLASSES and federation.classes is not None:
        axes.set_yticks(range(classes), [str(name)[:20] for name in federation.classes], fontsize=7)
    axes.set_xlim(-1, len(shown))
    axes.set_ylim(classes - 0.4, -0.6)
    axes.set_axisbelow(True)
    axes.grid(color=FAINT, linewidth=0.4)
    axes.set_xticks([])
    some = "" if len(shown) == m else f", {len(shown)} of {m} shown"
    axes.set_xlabel(f"clients{some}", fontsize=9, color=INK)
    axes.set_ylabel("classes", fontsize=9, color=SOFT)
    has = int(np.quantile((counts > 0).sum(1), 0.5, method="lower"))
    title = f"{plural(m, 'client')}: half have {has} of {classes} classes or fewer"
    caption(axes, title, "a disc's area is the class's share of the client's samples")
    return save(figure, path)


ROW = 32  # pixels of an algorithm in a page


class Bar(NamedTuple):
    """A value with its ends (NaN: none), and what was measured beside it (a hollow mark)."""

    name: str
    value: float
    low: float
    high: float
    beside: float | None = None
    best: bool = False


def draw_bars(
    bars: Sequence[Bar], across: str, percent: bool, screen: Screen | None = None
) -> Figure:
    """A mark and interval for each algorithm with a finite value. screen: for a page."""
    drawn = [bar for bar in bars if math.isfinite(bar.value)]
    if screen is None:
        letters = 9.0
        (figure, axes) = canvas(6.4, 1.0 + 0.42 * len(drawn))
    else:
        names = 8 * max(len(bar.name) for bar in drawn) + 14
        height = ROW * len(drawn) + 56
        letters = LETTERS
        figure, axes = page_canvas(screen.width, height, left=names, bottom=48)
    marks = marks_of(bar.name for bar in drawn)
    for place, bar in enumerate(drawn):
        mark = marks[bar.name]
        ends = [bar.low, bar.high]
        if np.isfinite(ends).all():
            line: dict[str, Any] = {"linewidth": 5, "alpha": 0.35, "solid_capstyle": "round"}
            axes.plot(ends, [place, place], color=mark.colour, **line)
        point: dict[str, Any] = {"marker": mark.marker, "color": mark.colour}
        point["markersize"] = 10 if bar.best else 7
        axes.plot([bar.value], [place], linestyle="none", **point)
        if bar.beside is not None and math.isfinite(bar.beside):
            look: dict[str, Any] = {"markerfacecolor": PAPER, "markeredgecolor": mark.colour}
            axes.plot([bar.beside], [place], marker="o", markersize=5.5, linestyle="none", **look)
        if screen is None:
            text = ACCURACY.show(bar.value) if percent else f"{bar.value:.3g}"
            last = max(each for each in (bar.value, bar.high) if math.isfinite(each))
            weight = "bold" if bar.best else "normal"
            at = (last, place)
            annotate_point(axes, text, at, (8, 0), INK, va="center", fontweight=weight)
    axes.set_yticks(range(len(drawn)), [bar.name for bar in drawn])
    for bar, label in zip(drawn, axes.get_yticklabels(), strict=True):
        label.set_fontweight("bold" if bar.best else "normal")
    axes.set_ylim(len(drawn) - 0.5, -0.5)
    axes.margins(x=0.2 if screen is None else 0.05)
    axes.xaxis.set_major_locator(
        MaxNLocator("auto" if screen is None else max(screen.width // 90, 3))
    )
    if percent:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g}%"))
    axes.xaxis.grid(color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(across, fontsize=letters, color=INK)
    return figure


def draw_advice(advice: Result, path: str | Path) -> Path:
    """Values and intervals by algorithm, from any advice's rows; the recommended one in bold."""
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


def draw_what_if(found: WhatIf, path: str | Path) -> Path:
    """A panel for every quantity: each algorithm's score along it, with its band.

    A dotted line marks what clients have today.
    """
    from fedasym.models.what_if import UNITS

    quantities = list(found.quantities)
    count = len(quantities)
    figure = Figure(figsize=(1.4 + 4.4 * count, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    marks = marks_of(found.algorithms)
    panels = np.atleast_1d(np.asarray(figure.subplots(1, count, sharey=True))).tolist()
    for axes, quantity in zip(panels, quantities, strict=True):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=INK, labelsize=9, labelleft=True)
        axes.grid(color=FAINT, linewidth=0.6)
        axes.set_xscale("log")
        ends = []
        for name, mark in marks.items():
            x, y, low, high = found.curve(quantity, name).T
            axes.fill_between(x, low, high, color=mark.colour, alpha=0.12, linewidth=0)
            axes.plot(x, y, color=mark.colour, marker=mark.marker, markersize=5, linewidth=1.6)
            ends.append((name, float(x[-1]), float(y[-1]), mark.colour))
        if quantity in found.present:
            axes.axvline(found.present[quantity], color=INK, linewidth=0.8, linestyle=":")
        values = found.quantities[quantity]
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(UNITS[quantity], fontsize=9, color=INK)
        if found.metric.share:
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g}%"))
        axes.margins(x=0.22)
        label_ends(axes, ends)
    what = "accuracy on test samples" if found.metric.share else "mean squared error"
    panels[0].set_ylabel(what, fontsize=9, color=INK)
    first = found.sentences[0].partition(":")[0] if found.sentences else "What if"
    title = "\n".join(wrap(first.rstrip("."), 50))
    wrap_caption(
        panels[0], title[:1].upper() + title[1:], f"{found.title} · dotted: what there is today", 60
    )
    return save(figure, path)
