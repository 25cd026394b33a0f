"""Who beats whom: a phase diagram over two parameters, or two curves over one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm

from fedasym.show.figures.marks import marks_of
from fedasym.show.figures.style import FAINT, INK, canvas, caption, colour, label_ends, save

if TYPE_CHECKING:
    from fedasym.results.regimes import Diagram

MOST = 3.0  # colours saturate where one loss is 2^3 times the other


def draw_diagram(diagram: Diagram, path: str | Path) -> Path:
    """Draw to a file and return where it is."""
    figure, axes = canvas(6.4, 4.6)
    names = list(diagram.axes)
    if len(names) == 1:
        draw_curves(axes, diagram)
    else:
        shades = draw_phases(axes, diagram)
        bar = figure.colorbar(shades, ax=axes, shrink=0.85, extend="both", pad=0.02)
        bar.set_ticks([-3, -2, -1, 0, 1, 2, 3], labels=["1/8", "1/4", "1/2", "1", "2", "4", "8"])
        bar.set_label(f"loss of {diagram.second} / loss of {diagram.first}", fontsize=9, color=INK)
        bar.outline.set_visible(False)
    caption(axes, f"{diagram.first} against {diagram.second}", diagram.title)
    return save(figure, path)


def draw_curves(axes: Axes, diagram: Diagram) -> None:
    """Two losses over one parameter, and where they cross."""
    ends = []
    (name, x), losses = next(iter(diagram.axes.items())), (diagram.first_values, diagram.second_values)
    for label, loss in zip((diagram.first, diagram.second), losses, strict=True):
        marker = marks_of([label])[label].marker if x.size < 15 else None
        axes.plot(x, loss, color=colour(label), linewidth=2, marker=marker, markersize=5)
        last = np.flatnonzero(np.isfinite(loss))[-1]
        ends.append((label, float(x[last]), float(loss[last]), colour(label)))
    for row in diagram.boundary:
        axes.axvline(row[0], color=INK, linewidth=0.8, linestyle=":")
        axes.text(row[0], 0.98, f" {row[0]:.4g}", transform=axes.get_xaxis_transform(), fontsize=8, va="top", color=INK)
    axes.set_xlabel(name, color=INK)
    axes.set_ylabel("test loss above the noise floor", fontsize=9, color=INK)
    axes.margins(x=0.1)
    if x[0] > 0 and x[-1] / x[0] > 30:
        axes.set_xscale("log")
    axes.grid(color=FAINT, linewidth=0.6)
    label_ends(axes, ends)


def draw_phases(axes: Axes, diagram: Diagram) -> QuadMesh:
    """The ratio of losses over two parameters, with the exact boundary."""
    (x_name, x), (y_name, y) = diagram.axes.items()
    ramp = LinearSegmentedColormap.from_list("winner", [colour(diagram.second), "#ffffff", colour(diagram.first)])
    gain = np.clip(np.nan_to_num(diagram.gain, posinf=MOST, neginf=-MOST), -MOST, MOST)
    shades = axes.pcolormesh(x, y, gain.T, cmap=ramp, norm=TwoSlopeNorm(0, -MOST, MOST), shading="nearest", rasterized=True)
    if diagram.boundary.size:
        axes.scatter(diagram.boundary[:, 0], diagram.boundary[:, 1], s=3, color=INK, linewidths=0)
    for name in (diagram.first, diagram.second):
        label_region(axes, diagram, name)
    axes.set_xlabel(x_name, color=INK)
    axes.set_ylabel(y_name, color=INK)
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(y[0], y[-1])
    return shades


def label_region(axes: Axes, diagram: Diagram, name: str) -> None:
    """Write "name wins" where the region is widest: at the middle of its most decided part."""
    won = diagram.winner == name
    if won.mean() < 0.02:
        return
    rows, columns = np.nonzero(won)
    at = np.argmin((rows - np.median(rows)) ** 2 / won.shape[0] ** 2 + (columns - np.median(columns)) ** 2 / won.shape[1] ** 2)
    x, y = (values[index[at]] for values, index in zip(diagram.axes.values(), (rows, columns), strict=True))
    axes.text(x, y, f"{name} wins", ha="center", va="center", fontsize=10, fontweight="bold", color=INK)
