"""Figures of real clients and of their doubles: who has which classes, and what would be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from fedasym.core.numbers import plural
from fedasym.show.figures.style import (
    FAINT,
    INK,
    SOFT,
    canvas,
    caption,
    label_ends,
    marks_of,
    save,
    wrap_caption,
)

if TYPE_CHECKING:
    from fedasym.data.federation import Federation
    from fedasym.models.what_if import WhatIf

MOST_CLIENTS = 60  # columns that can still be told apart
MOST_CLASSES = 40  # rows whose names fit
LARGEST = 130.0  # area of the largest disc, in square points


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
    has = float(np.median((counts > 0).sum(1)))
    title = f"{plural(m, 'client')}: half have {has:g} of {classes} classes or fewer"
    caption(axes, title, "a disc's area is the class's share of the client's samples")
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
    first = found.sentences[0] if found.sentences else "What if"
    wrap_caption(panels[0], first.rstrip("."), found.title, 60)
    return save(figure, path)
