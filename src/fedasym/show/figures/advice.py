"""Advice as a figure: what every algorithm is expected to do, with its interval, the recommended one in bold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedasym.results.result import ACCURACY, LOSS
from fedasym.show.figures.style import FAINT, INK, canvas, caption, colour, save

if TYPE_CHECKING:
    from fedasym.results.result import Result


def draw_advice(advice: Result, path: str | Path) -> Path:
    """Values and intervals by algorithm, from the rows of any advice."""
    rows = [row for row in advice.table() if row.get("predicted", row.get("accuracy")) is not None]
    metric = ACCURACY if "accuracy" in rows[0] else LOSS
    figure, axes = canvas(6.4, 1.0 + 0.42 * len(rows))
    for place, row in enumerate(rows):
        tint, value = colour(row["algorithm"]), row.get("predicted", row[metric.name])
        low, high = (value if row[end] is None else row[end] for end in ("low", "high"))
        axes.plot([low, high], [place, place], color=tint, linewidth=5, alpha=0.35, solid_capstyle="round")
        axes.plot([value], [place], "o", color=tint)
        weight = "bold" if row["recommended"] else "normal"
        axes.annotate(
            metric.show(value) if metric.share else f"{value:.3g}",
            (max(high, value), place), xytext=(8, 0), textcoords="offset points", va="center", fontsize=9, color=INK,
            fontweight=weight,
        )  # fmt: skip
    axes.set_yticks(range(len(rows)), [row["algorithm"] for row in rows])
    axes.invert_yaxis()
    axes.margins(x=0.2)
    axes.xaxis.grid(color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    what = "test accuracy" if metric.share else "test loss above the noise floor"
    axes.set_xlabel(f"expected {what}, and its 95 % interval", fontsize=9, color=INK)
    best = next(row["algorithm"] for row in rows if row["recommended"])
    caption(axes, f"{best} is recommended", f"{len(rows)} algorithms on these clients")
    return save(figure, path)
