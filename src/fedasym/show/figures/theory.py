"""Figures of predictions: losses, who beats whom, early stopping, rounds, simulations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm
from matplotlib.lines import Line2D

from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array, number
from fedasym.results import Comparison, Risk
from fedasym.show.figures import (
    ALGORITHMS,
    FAINT,
    INK,
    PAPER,
    annotate_point,
    canvas,
    caption,
    colour,
    label_ends,
    marks_of,
    save,
    wrap_caption,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fedasym.results.regimes import Diagram, FineTuning, PrivacyCosts, Rounds
    from fedasym.results.simulation import Simulated, Simulation


STEEPEST = 3.0  # colours saturate where one loss is 2^3 times the other
FINE = 160  # points of a theory line
WIDE = 10  # ratio of the last value to the first from which the axis is logarithmic
MOST_KINDS = 12
PALE = "#aaaaaa"
LOSS_LABEL = "test loss above the noise floor"
WRAP = 100  # characters of a line under the title
DASHED: Any = (0, (4, 3))


def draw_table(table: Comparison[Risk], path: str | Path) -> Path:
    """Bars of bias (full colour) and variance (hatched) for a single world."""
    if table.stack().ndim != 1:
        raise InvalidInput(
            "only the table of a single population can be drawn; use compare for one or two varied"
            " parameters"
        )
    names = list(table)
    figure, axes = canvas(6.4, 0.9 + 0.42 * len(names))
    bias = np.array([float(each.bias) for each in table.values()])
    variance = np.array([float(each.variance) for each in table.values()])
    finite = np.isfinite(bias + variance)
    top = (bias + variance)[finite].max(initial=0) or 1.0
    lowest = (bias + variance).min() * (1 + table.metric.tie)
    for row, name in enumerate(names):
        tint = colour(name)
        if not finite[row]:
            axes.text(0.01 * top, row, "unbounded", va="center", fontsize=9, color=INK)
            continue
        axes.barh(row, bias[row], color=tint, height=0.62)
        hatched: dict[str, Any] = {"facecolor": "white", "edgecolor": tint, "hatch": "////"}
        axes.barh(row, variance[row], left=bias[row], height=0.62, **hatched)
        ridge = table[name].ridge
        loss = bias[row] + variance[row]
        text = number(loss) + ("" if ridge is None else f"  (ridge {number(ridge)})")
        look: dict[str, Any] = {"va": "center", "fontsize": 9, "color": INK}
        weight = "bold" if loss <= lowest else "normal"
        axes.text(loss + 0.012 * top, row, text, fontweight=weight, **look)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.3 * top)
    axes.xaxis.grid(color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(f"{LOSS_LABEL}: bias (solid) + variance (hatched)", fontsize=9, color=INK)
    wrap_caption(axes, f"{table.best} has the lowest loss", table.title, WRAP)
    return save(figure, path)


def draw_diagram(diagram: Diagram, path: str | Path) -> Path:
    """Draw to a file and return where it is."""
    figure, axes = canvas(6.4, 4.6)
    names = list(diagram.axes)
    if len(names) == 1:
        draw_losses(axes, diagram)
    else:
        shades = draw_phases(axes, diagram, STEEPEST, colour)
        bar = figure.colorbar(shades, ax=axes, shrink=0.85, extend="both", pad=0.02)
        bar.set_ticks([-3, -2, -1, 0, 1, 2, 3], labels=["1/8", "1/4", "1/2", "1", "2", "4", "8"])
        bar.set_label(f"loss of {diagram.second} / loss of {diagram.first}", fontsize=9, color=INK)
        bar.outline.set_visible(False)
    wrap_caption(axes, f"{diagram.first} against {diagram.second}", diagram.title, WRAP)
    return save(figure, path)


def draw_losses(axes: Axes, diagram: Diagram) -> None:
    """Two losses over one parameter, and where they cross."""
    ends = []
    name, x = next(iter(diagram.axes.items()))
    losses = (diagram.first_values, diagram.second_values)
    for label, loss in zip((diagram.first, diagram.second), losses, strict=True):
        marker = marks_of([label])[label].marker if x.size < 15 else None
        axes.plot(x, loss, color=colour(label), linewidth=2, marker=marker, markersize=5)
        last = np.flatnonzero(np.isfinite(loss))[-1]
        ends.append((label, float(x[last]), float(loss[last]), colour(label)))
    for row in diagram.boundary:
        axes.axvline(row[0], color=INK, linewidth=0.8, linestyle=":")
        look: dict[str, Any] = {"fontsize": 8, "va": "top", "color": INK}
        axes.text(row[0], 0.98, f" {row[0]:.4g}", transform=axes.get_xaxis_transform(), **look)
    axes.set_xlabel(name, color=INK)
    axes.set_ylabel(LOSS_LABEL, fontsize=9, color=INK)
    axes.margins(x=0.1)
    if x[0] > 0 and x[-1] / x[0] > 30:
        axes.set_xscale("log")
    axes.grid(color=FAINT, linewidth=0.6)
    label_ends(axes, ends)


def draw_phases(axes: Axes, diagram: Diagram, most: float, shade: Callable[[str], str]) -> QuadMesh:
    """The gain over two parameters, with the exact boundary; colours saturate at a gain of `most`.

    shade: the colour of an algorithm.
    """
    (x_name, x), (y_name, y) = diagram.axes.items()
    ends = [shade(diagram.second), PAPER, shade(diagram.first)]
    ramp = LinearSegmentedColormap.from_list("winner", ends)
    gain = np.clip(np.nan_to_num(diagram.gain, posinf=most, neginf=-most), -most, most)
    look: dict[str, Any] = {"cmap": ramp, "shading": "nearest", "rasterized": True}
    shades = axes.pcolormesh(x, y, gain.T, norm=TwoSlopeNorm(0, -most, most), **look)
    if diagram.boundary.size:
        axes.scatter(diagram.boundary[:, 0], diagram.boundary[:, 1], s=3, color=INK, linewidths=0)
    for name in (diagram.first, diagram.second):
        label_winner(axes, diagram, name)
    axes.set_xlabel(x_name, color=INK)
    axes.set_ylabel(y_name, color=INK)
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(y[0], y[-1])
    return shades


def label_winner(axes: Axes, diagram: Diagram, name: str) -> None:
    """Write "name wins" where the region is widest: at the middle of its most decided part."""
    won = diagram.winner == name
    if won.mean() < 0.02:
        return
    rows, columns = np.nonzero(won)
    off = [(rows - np.median(rows)) / won.shape[0], (columns - np.median(columns)) / won.shape[1]]
    at = np.argmin(off[0] ** 2 + off[1] ** 2)
    across, up = diagram.axes.values()
    look: dict[str, Any] = {"ha": "center", "va": "center", "fontweight": "bold", "color": INK}
    axes.text(across[rows[at]], up[columns[at]], f"{name} wins", fontsize=10, **look)


def draw_path(path: FineTuning[Risk], target: str | Path) -> Path:
    """Draw a path of a single world to a file and return where it is."""
    if path.loss.ndim > 1:
        raise InvalidInput("only the path of a single population can be drawn: give plain numbers")
    figure, axes = canvas()
    finite = np.isfinite(path.times)
    order = np.argsort(path.times[finite])
    t = path.times[finite][order]
    ends = []
    marker = "o" if t.size < 15 else None
    for label, values, tint in (
        ("loss", path.loss, INK),
        ("bias", path.bias, ALGORITHMS["fedavg"].colour),
        ("variance", path.variance, ALGORITHMS["ftfa"].colour),
    ):
        curve = values[finite][order]
        axes.plot(t, curve, color=tint, linewidth=2, marker=marker, markersize=4)
        ends.append((label, float(t[-1]), float(curve[-1]), tint))
    best, least = float(np.asarray(path.best.at)), float(np.asarray(path.best.scores.loss))
    where = "train to convergence" if np.isinf(best) else f"stop at {path.unit} {best:.4g}"
    if best <= t[-1]:
        axes.plot([best], [least], marker="o", color="#d55e00", markersize=7, zorder=3)
    positive = t[t > 0]
    if positive.size > 1 and positive[-1] / positive[0] > 50:
        axes.set_xscale("symlog", linthresh=positive[0], linscale=0.4)
    axes.set_xlabel("time of gradient flow" if path.step is None else "gradient steps", color=INK)
    axes.set_ylabel(LOSS_LABEL, fontsize=9, color=INK)
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=min(t[0], 0))
    axes.margins(x=0.12)
    axes.grid(color=FAINT, linewidth=0.6)
    label_ends(axes, ends)
    wrap_caption(axes, f"Early stopping: {where}, loss {least:.4g}", path.title, WRAP)
    return save(figure, target)


def draw_simulation(simulation: Simulation[Simulated], path: str | Path) -> Path:
    """Draw a simulation to a file and return where it is."""
    draw = draw_by_algorithm if simulation.vary is None else draw_over_values
    return draw(simulation, path)


def draw_over_values(simulation: Simulation[Simulated], path: str | Path) -> Path:
    """Losses over the parameter that varies: the prediction as a line, the limit dashed."""
    assert simulation.vary is not None
    name, values = simulation.vary
    word = name.replace("_", " ")
    x = np.array(values, dtype=float)
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
        draw_interval(axes, x, row.loss, row.low, row.high, tint)
        ends.append((algorithm, float(x[-1]), float(np.asarray(row.loss)[-1]), tint))
    if wide:
        axes.set_xscale("log")
        axes.set_xticks(x, [f"{value:g}" for value in x])
        axes.minorticks_off()
    axes.set_ylim(0, 1.15 * max(float(np.max(row.high)) for row in simulation.values()))
    axes.margins(x=0.07)
    axes.set_xlabel(word, color=INK)
    axes.set_ylabel(LOSS_LABEL, fontsize=9, color=INK)
    axes.grid(color=FAINT, linewidth=0.6)
    label_ends(axes, ends)
    add_legend(axes, f"Simulated and predicted loss over {word}", simulation.title, "best")
    return save(figure, path)


def draw_by_algorithm(simulation: Simulation[Simulated], path: str | Path) -> Path:
    """One row per algorithm, with one mark per kind of client where they differ."""
    names = list(simulation)
    kinds = max(len(simulation.labels), 1)
    if kinds > MOST_KINDS:
        raise InvalidInput(
            f"{kinds} kinds of clients are too many for a figure: draw {MOST_KINDS}, or use table()"
        )
    figure, axes = canvas(7.6, 1.3 + 0.42 * len(names) * (1 + 0.45 * (kinds - 1)))
    for place, algorithm in enumerate(names):
        row = simulation[algorithm]
        tint = colour(algorithm)
        values = (row.loss, row.low, row.high, row.predicted.loss, row.limit.loss)
        loss, low, high, predicted, limit = map(np.atleast_1d, values)
        y = place + (np.arange(kinds) - (kinds - 1) / 2) * 0.8 / kinds
        axes.hlines(y, low, high, color=tint, linewidth=5, alpha=0.35)
        ticks: dict[str, Any] = {"linestyle": "none", "marker": "|"}
        axes.plot(predicted, y, markersize=15, markeredgewidth=1.6, color=INK, **ticks)
        axes.plot(limit, y, markersize=11, markeredgewidth=1.2, color=PALE, **ticks)
        axes.plot(loss, y, linestyle="none", marker="o", markersize=5, color=tint)
        for k in range(kinds):
            text = number(loss[k]) + ("" if kinds == 1 else f"  client {k}")
            at = (max(high[k], np.nan_to_num(predicted[k], posinf=0)), y[k])
            letters = 9 if kinds == 1 else 7
            annotate_point(axes, text, at, (8, 0), INK, va="center", fontsize=letters)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.2 * max(float(np.max(row.high)) for row in simulation.values()))
    axes.xaxis.grid(color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(LOSS_LABEL, fontsize=9, color=INK)
    add_legend(axes, "Simulated and predicted loss", simulation.title, "lower right", upright=True)
    return save(figure, path)


def draw_interval(axes: Axes, x: Array, middle: Any, low: Any, high: Any, tint: str) -> None:
    """Points with the span from the best to the worst trial."""
    axes.vlines(x, low, high, color=tint, linewidth=4, alpha=0.35)
    axes.plot(x, middle, linestyle="none", marker="o", markersize=4.5, color=tint)


Corner = Literal["best", "lower right"]


def add_legend(axes: Axes, title: str, subtitle: str, where: Corner, upright: bool = False) -> None:
    """Legend and caption; a long subtitle in two lines."""
    dot: dict[str, Any] = {"marker": "o", "markersize": 4, "linestyle": "none"}
    plain: dict[str, Any] = {"linewidth": 1.5}
    dashed: dict[str, Any] = {"linewidth": 1, "linestyle": DASHED}
    if upright:
        plain = dashed = {"marker": "|", "markersize": 11, "linestyle": "none"}
    handles = [
        Line2D([], [], color=INK, label="simulated, best to worst trial", **dot),
        Line2D([], [], color=INK, label="predicted for finitely many clients", **plain),
        Line2D([], [], color=PALE if upright else INK, label="limit of infinitely many", **dashed),
    ]
    axes.legend(handles=handles, fontsize=8, frameon=False, loc=where)
    wrap_caption(axes, title, subtitle, WRAP)


MOST_CURVES = 8


def draw_rounds(result: Rounds, target: str | Path) -> Path:
    """Draw the paths of at most one varied setting, or a map of two; returns the file."""
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

        label = ", ".join(words) or result.algorithm
        last = float(result.rounds[reached]), float(losses[i][reached])
        ends.append((label, *last, tint))
    if len(chosen) == 1:
        axes.plot(result.rounds, errors[0], color=INK, linewidth=1.4, linestyle=(0, (4, 2)))
        last = float(result.rounds[-1]), float(errors[0][-1])
        ends.append(("excess of the shared model", *last, INK))
    if result.rounds[-1] > 50:
        axes.set_xscale("symlog", linthresh=1, linscale=0.4)
    axes.set_xlabel("communication rounds", color=INK)
    axes.set_ylabel(LOSS_LABEL, fontsize=9, color=INK)
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
        raise InvalidInput(
            "a figure has room for two varied settings: vary fewer, or draw .table() yourself"
        )
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
    figure.colorbar(mesh, ax=axes, label=LOSS_LABEL)
    chosen = (f"{name} {value:g}" for name, value in result.best.settings.items())
    told = ", ".join(chosen).replace("_", " ")
    entitle(axes, f"{result.algorithm} after its rounds: best at {told}", result)
    return save(figure, target)


def draw_privacy_costs(result: PrivacyCosts, target: str | Path) -> Path:
    """Loss against epsilon, one curve per number of clients, beside learning alone."""
    figure, axes = canvas()
    ends = []
    for place, m in enumerate(result.clients):
        tint = f"C{place}"
        axes.plot(result.epsilon, result.loss[:, place], color=tint, linewidth=2, marker="o")
        ends.append(
            (f"{m:,.0f} clients", float(result.epsilon[-1]), float(result.loss[-1, place]), tint)
        )
    axes.axhline(result.alone, color=INK, linewidth=1.4, linestyle=(0, (4, 2)))
    ends.append(("alone", float(result.epsilon[-1]), result.alone, INK))
    if len(result.epsilon) > 1:
        axes.set_xscale("log")
    axes.set_xlabel("epsilon", color=INK)
    axes.set_ylabel(LOSS_LABEL, fontsize=9, color=INK)
    axes.set_ylim(0, 1.6 * max(result.alone, float(result.plain.max())))
    axes.margins(x=0.3)
    axes.grid(color=FAINT, linewidth=0.6)
    label_ends(axes, ends)
    caption(axes, f"{result.algorithm}: what privacy costs\n", result.title)
    return save(figure, target)


def entitle(axes: Axes, words: str, result: Rounds) -> None:
    """The title, with the population and the settings on two lines under it."""
    world, _, settings = result.title.rpartition(f" · {result.algorithm} · ")
    caption(axes, f"{words}\n", f"{world}\n{settings}")
