"""Losses over communication rounds, and the last loss over a grid of two settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedasym.core.errors import InvalidInput
from fedasym.show.figures.style import FAINT, INK, canvas, caption, colour, label_ends, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fedasym.results.rounds import Rounds

MOST_CURVES = 8


def draw_rounds(result: Rounds, target: str | Path) -> Path:
    """Draw the paths of one varied setting at the most, or a map of two; returns where the file is."""
    return draw_map(result, target) if result.loss.ndim > 2 else draw_paths(result, target)


def draw_paths(result: Rounds, target: str | Path) -> Path:
    """Loss against rounds, one curve per setting."""
    figure, axes = canvas()
    losses = result.loss.reshape(-1, result.rounds.size)
    errors = result.shared_error.reshape(-1, result.rounds.size)
    chosen = np.unique(np.linspace(0, len(losses) - 1, min(len(losses), MOST_CURVES)).astype(int))
    ends = []
    for place, i in enumerate(chosen):
        tint = colour(result.algorithm) if len(chosen) == 1 else f"C{place}"
        axes.plot(result.rounds, losses[i], color=tint, linewidth=2)
        reached = np.flatnonzero(np.isfinite(losses[i]))[-1]
        words = [f"{name} {values.reshape(-1)[i]:g}" for name, values in result.settings.items()]
        ends.append((", ".join(words) or result.algorithm, float(result.rounds[reached]), float(losses[i][reached]), tint))
    if len(chosen) == 1:
        axes.plot(result.rounds, errors[0], color=INK, linewidth=1.4, linestyle=(0, (4, 2)))
        ends.append(("excess of the shared model", float(result.rounds[-1]), float(errors[0][-1]), INK))
    if result.rounds[-1] > 50:
        axes.set_xscale("symlog", linthresh=1, linscale=0.4)
    axes.set_xlabel("communication rounds", color=INK)
    axes.set_ylabel("test loss above the noise floor", fontsize=9, color=INK)
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.margins(x=0.2)
    axes.grid(color=FAINT, linewidth=0.6)
    label_ends(axes, ends)
    entitle(axes, f"{result.algorithm} over rounds: loss {result.best.loss:.4g} at the end", result)
    return save(figure, target)


def draw_map(result: Rounds, target: str | Path) -> Path:
    """The last loss over two settings, the best one marked."""
    if result.final.ndim != 2 or len(result.settings) != 2:
        raise InvalidInput("a figure has room for two varied settings: vary fewer, or draw .table() yourself")
    figure, axes = canvas()
    (down, y), (across, x) = result.settings.items()
    if np.ptp(y[0]) > 0:  # the first setting varies along the rows
        (down, y), (across, x) = (across, x), (down, y)
    mesh = axes.pcolormesh(x, y, result.final, shading="nearest", cmap="viridis_r")
    best = np.unravel_index(int(np.nanargmin(result.final)), result.final.shape)
    axes.plot([x[best]], [y[best]], marker="o", color="#d55e00", markersize=8)
    for name, values, scale in ((across, x, axes.set_xscale), (down, y, axes.set_yscale)):
        if values.min() > 0 and values.max() / values.min() >= 10:
            scale("log")
        (axes.set_xlabel if name == across else axes.set_ylabel)(name.replace("_", " "), color=INK)
    figure.colorbar(mesh, ax=axes, label="test loss above the noise floor")
    told = ", ".join(f"{name} {value:g}".replace("_", " ") for name, value in result.best.settings.items())
    entitle(axes, f"{result.algorithm} after its rounds: best at {told}", result)
    return save(figure, target)


def entitle(axes: Axes, words: str, result: Rounds) -> None:
    """The title, with the population and the settings on two lines under it."""
    world, _, settings = result.title.rpartition(f" · {result.algorithm} · ")
    caption(axes, f"{words}\n", f"{world}\n{settings}")
