"""The loss along early-stopped fine-tuning: bias falls, variance grows, and somewhere it is best to stop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedasym.core.errors import InvalidInput
from fedasym.show.figures.marks import ALGORITHMS
from fedasym.show.figures.style import FAINT, INK, canvas, caption, label_ends, save

if TYPE_CHECKING:
    from fedasym.results.comparison import Risk
    from fedasym.results.regimes import FineTuning


def draw_path(path: FineTuning[Risk], target: str | Path) -> Path:
    """Draw a path of a single world to a file and return where it is."""
    if path.loss.ndim > 1:
        raise InvalidInput("only the path of a single population can be drawn: give plain numbers")
    figure, axes = canvas()
    finite = np.isfinite(path.times)
    order = np.argsort(path.times[finite])
    t = path.times[finite][order]
    ends = []
    for label, values, tint in (
        ("loss", path.loss, INK),
        ("bias", path.bias, ALGORITHMS["fedavg"].colour),
        ("variance", path.variance, ALGORITHMS["ftfa"].colour),
    ):
        curve = values[finite][order]
        axes.plot(t, curve, color=tint, linewidth=2, marker="o" if t.size < 15 else None, markersize=4)
        ends.append((label, float(t[-1]), float(curve[-1]), tint))
    best = float(np.asarray(path.best.at))
    where = "train to convergence" if np.isinf(best) else f"stop at {path.unit} {best:.4g}"
    if best <= t[-1]:
        axes.plot([best], [float(path.best.scores.loss)], marker="o", color="#d55e00", markersize=7, zorder=3)
    positive = t[t > 0]
    if positive.size > 1 and positive[-1] / positive[0] > 50:
        axes.set_xscale("symlog", linthresh=positive[0], linscale=0.4)
    axes.set_xlabel("time of gradient flow" if path.step is None else "gradient steps", color=INK)
    axes.set_ylabel("test loss above the noise floor", fontsize=9, color=INK)
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=min(t[0], 0))
    axes.margins(x=0.12)
    axes.grid(color=FAINT, linewidth=0.6)
    label_ends(axes, ends)
    caption(axes, f"Early stopping: {where}, loss {float(np.asarray(path.best.scores.loss)):.4g}", path.title)
    return save(figure, target)
