"""One look for all figures: a colour per algorithm, quiet axes, no global state of matplotlib touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedasym.core.errors import InvalidInput, path_of
from fedasym.show.figures.marks import ALGORITHMS

INK, FAINT = "#222222", "#d9d9d9"
FORMATS = ("png", "svg", "pdf")


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


def caption(axes: Axes, title: str, subtitle: str) -> None:
    """A bold title with a small line under it, both at the left."""
    axes.set_title(f"{title}\n", loc="left", fontsize=11, fontweight="bold", color=INK)
    axes.text(0, 1.02, subtitle, transform=axes.transAxes, fontsize=8, color="#666666", va="bottom")


def label_ends(axes: Axes, ends: list[tuple[str, float, float, str]]) -> None:
    """Name curves at their last points (name, x, y, colour), moved apart vertically where they would overlap."""
    low, high = axes.get_ylim()
    placed = -1.0
    for name, x, y, tint in sorted(ends, key=lambda end: end[2]):
        placed = max(placed + 0.05, (y - low) / (high - low))
        axes.annotate(
            name,
            (x, low + placed * (high - low)),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=tint,
        )


def save(figure: Figure, path: str | Path) -> Path:
    """Write the figure by its file's ending; the same figure gives the same bytes."""
    target = path_of("plot", path)
    kind = target.suffix.lower().lstrip(".")
    if kind not in FORMATS:
        raise InvalidInput(f"plot is {str(path)!r}: the file must end in {', '.join('.' + each for each in FORMATS)}")
    if not target.parent.exists():
        raise InvalidInput(f"plot is {str(path)!r}: the folder {str(target.parent)!r} does not exist; make it first")
    dated: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    figure.savefig(target, dpi=160, metadata=dated or None)
    return target
