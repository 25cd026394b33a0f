"""Test accuracy of personal models over training rounds: a line per algorithm, a band from the worst to the best seed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fedasym.core.arrays import Array
from fedasym.core.errors import InvalidInput
from fedasym.show.figures.marks import Mark, marks_of
from fedasym.show.figures.style import FAINT, INK, canvas, caption, save
from fedasym.training.wording import folded

if TYPE_CHECKING:
    from fedasym.training.histories import Configuration, Histories

DASHES: tuple[Any, ...] = ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (5, 1, 1, 1)))
MARKED = 12  # markers of a line, roughly
WRAP = 96  # characters of a line under the title
LEAST = 12.0  # points of accuracy that are shown below the second half of training, where there are any
WIDE = 20  # ratio of the largest to the smallest loss from which the axis is logarithmic


def draw_training(histories: Histories, path: str | Path) -> Path:
    """Draw runs to a file and return where it is."""
    lines = {name: group or alone(histories.ranked()[name]) for name, group in histories.chosen().items()}
    drawn = {name: group for name, group in lines.items() if group is not None and group.rounds}
    if not drawn:
        raise InvalidInput("there is nothing to draw: every configuration diverged or was stopped before it was evaluated")
    regression = histories.task == "regression"
    quantity, scale = ("loss", 1.0) if regression else ("accuracy", 100.0)
    figure, axes = canvas(7.6, 4.6)
    marks, seen = marks_of(group.name for group in drawn.values()), []
    for name, group in drawn.items():
        values = scale * group.curves(quantity)
        seen.append((group.rounds, values))
        mark = marks[group.name]
        curve(axes, group.rounds, values, mark, dash(group, mark, drawn), label(name, values, regression))
    if len(drawn) == 1 and not (group := next(iter(drawn.values()))).algorithm.shares_nothing:
        values = scale * group.curves(f"shared_{quantity}")
        if not np.array_equal(values, seen[0][1], equal_nan=True):
            axes.plot(group.rounds, values.mean(0), color=INK, linewidth=0.9, label=label("shared model", values, regression))
            seen.append((group.rounds, values))
    cut = frame(axes, seen, regression)
    kinds = {group.algorithm.shares_nothing for group in drawn.values()}  # without sharing there are no rounds, only passes
    axes.set_xlabel(
        "rounds (local training: epochs)" if len(kinds) == 2 else "epochs" if True in kinds else "rounds", color=INK
    )
    axes.set_ylabel(
        "test loss, all samples together" if regression else "test accuracy, all samples together (%)", fontsize=9, color=INK
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    legend(axes)
    what = "loss" if regression else "accuracy"
    under = folded(" · ".join(subtitle(histories, drawn, cut)), WRAP)
    caption(axes, f"Test {what} of personal models" + "\n" * (len(under) - 1), "\n".join(under))
    return save(figure, path)


def alone(groups: list[Configuration]) -> Configuration | None:
    """The only configuration tried, which is drawn even if it diverged."""
    return groups[0] if len(groups) == 1 else None


def dash(group: Configuration, mark: Mark, drawn: dict[str, Configuration]) -> Any:
    """Solid; under several protocols a line style for each, as the colour is the algorithm's."""
    protocols = list(dict.fromkeys(each.protocol for each in drawn.values()))
    if len(protocols) > 1:
        return DASHES[protocols.index(group.protocol) % len(DASHES)]
    return (0, mark.dash) if mark.dash else DASHES[0]


def curve(axes: Axes, rounds: list[int], values: Array, mark: Mark, style: Any, name: str) -> None:
    """The mean over seeds, and the band between the worst and the best."""
    if len(values) > 1:
        axes.fill_between(rounds, values.min(0), values.max(0), color=mark.colour, alpha=0.18, linewidth=0)
    spaced = max(1, len(rounds) // MARKED)
    mean = values.mean(0)
    look: dict[str, Any] = {"color": mark.colour, "linestyle": style, "linewidth": 1.9, "marker": mark.marker}
    axes.plot(rounds, mean, markersize=5, markevery=spaced, label=name, **look)
    if not np.isfinite(mean).all() and (before := np.flatnonzero(np.isfinite(mean))).size:  # the last seen before it diverged
        end = before[-1]
        axes.plot(rounds[end], mean[end], color=mark.colour, marker="x", markersize=9, markeredgewidth=2, label="_")


def label(name: str, values: Array, regression: bool) -> str:
    """A line's name with its last value."""
    last = float(values[:, -1].mean())
    return f"{name}  " + ("diverged" if not np.isfinite(last) else f"{last:.4g}" if regression else f"{last:.1f} %")


def legend(axes: Axes) -> None:
    """Names beside the axes in the order in which the lines end, from top to bottom."""
    lines = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    ends = [float(np.asarray(line.get_ydata(), float)[-1]) for line in lines]
    order = sorted(range(len(lines)), key=lambda i: -ends[i] if np.isfinite(ends[i]) else np.inf)
    axes.legend(
        handles=[lines[i] for i in order],
        loc="center left",
        bbox_to_anchor=(1.01, 0.5),
        fontsize=9,
        frameon=False,
        handlelength=2.2,
    )


def frame(axes: Axes, seen: list[tuple[list[int], Array]], regression: bool) -> bool:
    """Limits that give the second half of training its share of the height; says whether something lies outside."""
    last = max(rounds[-1] for rounds, _ in seen)
    axes.set_xlim(-0.02 * max(last, 1), 1.02 * max(last, 1))
    every = finite([values for _, values in seen])
    late = finite([values[:, 2 * np.array(rounds) >= last] for rounds, values in seen])
    if not late.size or (regression and late.min() <= 0):
        return False
    if regression and late.max() > WIDE * late.min():
        axes.set_yscale("log")
        return False
    low, high = float(late.min()), float(late.max())
    room = max(1.5 * (high - low), 0.5 * high if regression else LEAST)
    margin = 0.05 * (high - low + room)
    if regression and every.max() > high + room:
        axes.set_ylim(max(low - room, every.min()) - margin, high + room)
    elif not regression and every.min() < low - room:
        axes.set_ylim(low - room, every.max() + margin)
    else:
        return False
    return True


def finite(arrays: list[Array]) -> Array:
    """All finite entries."""
    flat: Array = np.concatenate([array.ravel() for array in arrays])
    return flat[np.isfinite(flat)]


def subtitle(histories: Histories, drawn: dict[str, Configuration], cut: bool) -> list[str]:
    """Clients, protocol, seeds, how the lines were chosen, and what is not to be seen."""
    ranked = histories.ranked()
    seeds = max(len(group.runs) for group in drawn.values())
    parts = [f"{len(histories.runs[0].federation.clients)} clients"]
    protocols = list(dict.fromkeys(group.protocol.name for group in drawn.values()))
    parts += [f"protocol {' and '.join(protocols)}"]
    parts += [f"mean of {seeds} seeds, band from worst to best" if seeds > 1 else f"seed {histories.runs[0].seed}"]
    counts = [len(ranked[name]) for name in drawn]
    if max(counts) > 1:
        tried = str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"
        parts.append(f"{'each ' if len(drawn) > 1 else ''}the best by validation of {tried} configurations")
    parts += [f"{name} not drawn: diverged" for name in ranked if name not in drawn]
    parts += ["interrupted"] if any(group.interrupted for group in drawn.values()) else []
    return [*parts, *(["early rounds outside the frame"] if cut else [])]
