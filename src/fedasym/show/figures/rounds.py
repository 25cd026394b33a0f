"""Accuracy or loss against rounds: sweeps, gains of personalization, runs of `train`; tuning; and
what clients gain, in parts and as a histogram.

One drawing serves them all, in files and in pages: a line with markers per algorithm, a band from
the worst to the best trial; published curves lie beside ours, dotted and hollow.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, ScalarFormatter
from matplotlib.transforms import Bbox

from fedasym.algorithms.registry import REGISTRY
from fedasym.core.errors import InvalidInput
from fedasym.core.numbers import Array
from fedasym.core.runtime import write_text
from fedasym.experiments.plan import FIRST, GAINS, SEEDS, SPLITS, validation_score
from fedasym.show.figures import (
    FAINT,
    GAIN,
    INK,
    LETTERS,
    LOSE,
    RIGHT,
    Mark,
    Screen,
    canvas,
    caption,
    marks_of,
    page_canvas,
    save,
    scale_of,
)
from fedasym.show.reproduction import (
    Curve,
    Curves,
    Published,
    describe_epochs,
    gain_curves,
    published_curves,
    scale_curves,
    select_gains,
    span,
    trial_curves,
)
from fedasym.training.wording import fold_line, setting_text, statistic_text

if TYPE_CHECKING:
    from fedasym.experiments.results import Results
    from fedasym.training.decomposition import Decomposition
    from fedasym.training.histories import Configuration, Histories

TITLES = {SEEDS: "seeds of training", SPLITS: "reshuffles of training and validation samples"}
WRAP = 96  # characters of a line under the title
MARKED = 16  # markers of a line, at most
ROW = 19  # pixels of a line of a page's legend
DOTTED: Any = (0, (1, 2.2))
DASHES: tuple[tuple[float, ...], ...] = ((), (4, 2), (1, 1.5), (5, 1, 1, 1))  # of protocols
# points across: shapes of the same size do not look alike
LARGE = {"*": 10.0, "s": 5.5, "o": 6.0, "D": 5.5}


class Words(NamedTuple):
    """The words on a figure: title, caption and axes; `names` of curves if not their keys."""

    title: str
    under: list[str]
    across: str
    up: str
    names: Mapping[str, str] = {}


def draw_curves(
    ours: Curves,
    published: Curves,
    marks: Mapping[str, Mark],
    words: Words,
    *,
    loss: bool,
    screen: Screen | None = None,
) -> Figure:
    """Curves with bands, in percent or losses as given. screen: for a page, without a title."""
    order = rank_curves(ours, published, loss)
    labels = {
        (key, paper): label_curve(words.names.get(key, key), held[key], loss, paper=paper)
        for key in order
        for paper, held in ((False, ours), (True, published))
        if key in held
    }
    letters, columns = 9.0, 1
    if screen is None:
        figure, axes = canvas(7.6, 4.6)
    else:
        letters = LETTERS
        columns = max(int(screen.width / (50 + 7 * max(map(len, labels.values())))), 1)
        below = ROW * -(-len(labels) // columns) + 6
        figure, axes = page_canvas(
            screen.width, screen.height + below, left=46, bottom=44 + below, top=24
        )
    scale = span([*ours.values(), *published.values()], loss=loss)
    handles = {}
    for key in reversed(order):
        # a dashed line may coincide with a solid one: it goes on top
        mark = marks[key]
        over = 2.5 if marks[key].dash else 2.0
        for paper, held in ((True, published), (False, ours)):
            if key in held:
                draw_curve(axes, held[key], mark, over, labels[key, paper], paper=paper)
                handles[key, paper] = Line2D(
                    [], [], label=labels[key, paper], **line_style(mark, paper)
                )
    last = max(curve.rounds[-1] for curve in (*ours.values(), *published.values()))
    axes.set_xlim(-0.02 * max(last, 1), 1.02 * max(last, 1))
    axes.xaxis.set_major_locator(
        MaxNLocator(
            "auto" if screen is None else max(screen.width // 80, 3),
            integer=True,
            steps=[1, 2, 5, 10],
        )
    )
    if scale.logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(scale.low, scale.high)
    axes.set_xlabel(words.across, fontsize=max(letters, 10), color=INK)
    axes.grid(color=FAINT, linewidth=0.6, clip_on=screen is None)
    axes.set_axisbelow(True)
    listed = [handles[each] for each in labels]
    if screen is None:
        axes.set_ylabel(words.up, fontsize=letters, color=INK)
        beside: dict[str, Any] = {
            "loc": "center left",
            "bbox_to_anchor": (1.01, 0.5),
            "handlelength": 2.6,
        }
        axes.legend(
            handles=listed, fontsize=letters if len(listed) <= 12 else 7.5, frameon=False, **beside
        )
        under = fold_line(
            " · ".join([*words.under, *(["early rounds outside the frame"] if scale.cut else [])]),
            WRAP,
        )
        caption(axes, words.title + "\n" * (len(under) - 1), "\n".join(under))
    else:
        axes.text(
            0,
            1 - 14 / figure.bbox.height,
            words.up,
            transform=figure.transFigure,
            fontsize=letters,
            color=INK,
        )
        under_axes: dict[str, Any] = {
            "loc": "lower left",
            "ncols": columns,
            "handlelength": 2.6,
            "borderaxespad": 0,
        }
        figure.legend(
            handles=listed, fontsize=letters, frameon=False, bbox_to_anchor=(0, 0), **under_axes
        )
    return figure


def rank_curves(ours: Curves, published: Curves, loss: bool) -> list[str]:
    """Curves by where they end, from top to bottom of the figure; those without a number last."""
    ends = {
        key: (ours.get(key) or published[key]).last for key in dict.fromkeys([*ours, *published])
    }
    return sorted(ends, key=lambda key: -ends[key] if math.isfinite(ends[key]) else math.inf)


def label_curve(name: str, curve: Curve, loss: bool, *, paper: bool = False) -> str:
    """A line's name with its last value."""
    value = curve.last
    text = "diverged" if not math.isfinite(value) else f"{value:.4g}" if loss else f"{value:.1f} %"
    return f"{name}{' (paper)' if paper else ''}  {text}"


def draw_curve(
    axes: Axes, curve: Curve, mark: Mark, over: float, label: str, *, paper: bool
) -> None:
    """One curve; where it does not end in a number, a cross on the last that there is."""
    mean = curve.mean
    if curve.trials > 1 and not paper:
        axes.fill_between(
            curve.rounds, curve.low, curve.high, color=mark.colour, alpha=0.18, linewidth=0
        )
    every = -(-len(curve.rounds) // MARKED)
    start = (len(curve.rounds) - 1) % every  # the last is among them
    (line,) = axes.plot(
        curve.rounds,
        mean,
        zorder=over,
        markevery=(start, every),
        label=label,
        **line_style(mark, paper),
    )
    line.set_gid(label.rpartition("  ")[0])
    if not np.isfinite(mean).all() and (before := np.flatnonzero(np.isfinite(mean))).size:
        at = before[-1]
        axes.plot(
            curve.rounds[at],
            mean[at],
            color=mark.colour,
            marker="x",
            markersize=9,
            markeredgewidth=2,
        )


def line_style(mark: Mark, paper: bool) -> dict[str, Any]:
    """How a curve is drawn: ours full, a published one lighter, dotted, with hollow markers."""
    own: dict[str, Any] = {
        "color": mark.colour,
        "marker": mark.marker,
        "markersize": LARGE.get(mark.marker, 6.5),
    }
    if paper:
        return own | {
            "linestyle": DOTTED,
            "linewidth": 1.2,
            "markerfacecolor": "white",
            "alpha": 0.7,
        }
    dash = (0, mark.dash) if mark.dash else "-"
    return own | {
        "linestyle": dash,
        "linewidth": 1.8,
        "markeredgecolor": "white",
        "markeredgewidth": 0.5,
    }


def draw_figures(
    results: Results, folder: str | Path, published: Published | None = None
) -> list[Path]:
    """Draw all that results hold into a folder; returns the files, figures as PDF, PNG, CSV.

    seeds, splits: accuracy (regression: loss) against rounds, mean and worst to best trial.
    gains-ALGORITHM: the same by epochs of personalization. tuned: the chosen settings as a table.
    What there is nothing of is left out.

    published: curves to be drawn beside, {sweep: {algorithm: (rounds, accuracies)}} as
    `fedasym.report` takes them; not used in regression.

    >>> import tempfile, fedasym as fa
    >>> data = fa.datasets.synthetic(
    ...     task="classification", clients=5, dimension=5, classes=2, aspect=0.5
    ... )
    >>> few = {"rounds": 2, "evaluate_every": 2, "local_steps": 2, "personal_epochs": 1}
    >>> tiny = fa.Experiment(
    ...     name="tiny", algorithms=["fedavg"], settings=few, grid={}, trials={"seeds": 2}
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [
    ...         file.name
    ...         for file in draw_figures(
    ...             fa.run(tiny, data, into=folder + "/run"), folder + "/figures"
    ...         )
    ...     ]
    ['seeds.pdf', 'seeds.png', 'seeds.csv', 'tuned.pdf', 'tuned.png', 'tuned.csv']
    """
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise InvalidInput(
            f"folder is {str(folder)!r}: it cannot be made: {reason.strerror}; name another"
        ) from None
    loss = results.statistic == "loss"
    theirs = {
        sweep: {} if loss else published_curves(published, sweep)
        for sweep in (SEEDS, SPLITS, GAINS)
    }
    files: list[Path] = []
    for sweep in (SEEDS, SPLITS):
        if curves := trial_curves(results, sweep):
            figure = draw_sweep(results, sweep, curves, theirs[sweep])
            files += write_figure(
                figure, place / sweep, curve_rows("algorithm", curves, theirs[sweep])
            )
    for name, by_epochs in gain_curves(results).items():
        paper = select_gains(theirs[GAINS], name)
        figure = draw_gains(results, name, by_epochs, paper)
        files += write_figure(
            figure, place / f"gains-{name}", curve_rows("epochs", by_epochs, paper)
        )
    if results.tuned:
        rows = tuned_rows(results)
        files += write_figure(draw_rows(rows, results), place / "tuned", rows)
    return files


def draw_results(results: Results, path: str | Path) -> Path:
    """The curves over seeds, or else over splits, to one file."""
    for sweep in (SEEDS, SPLITS):
        if curves := trial_curves(results, sweep):
            return save(draw_sweep(results, sweep, curves, {}), path)
    raise InvalidInput("there are no trials to draw: run the experiment with seeds or splits")


def draw_sweep(
    results: Results, sweep: str, curves: Curves, published: Curves, screen: Screen | None = None
) -> Figure:
    """The paper's figures 1 to 4, and those of its appendix."""
    known = filter(None, map(REGISTRY.look_up, curves))
    alone = any(each.shares_nothing for each in known)
    words = Words(
        title=f"{results.experiment.name}: test {results.statistic} of personal models",
        under=[*describe_sizes(results), describe_trials(curves, TITLES[sweep])],
        across="rounds (local training: epochs)" if alone else "rounds",
        up=vertical_label(results),
    )
    marks = marks_of([*curves, *published])
    loss = results.statistic == "loss"
    drawn = scale_curves(results, curves), scale_curves(results, published)
    return draw_curves(*drawn, marks, words, loss=loss, screen=screen)


def draw_gains(
    results: Results, name: str, by_epochs: Curves, published: Curves, screen: Screen | None = None
) -> Figure:
    """The paper's figures 5 and 6."""
    words = Words(
        title=f"{results.experiment.name}: what {name} gains from personalization",
        under=[*describe_sizes(results), describe_trials(by_epochs, TITLES[SEEDS])],
        across="rounds",
        up=vertical_label(results),
        names={epochs: describe_epochs(epochs) for epochs in (*by_epochs, *published)},
    )
    marks = scale_of([*by_epochs, *published])
    loss = results.statistic == "loss"
    drawn = scale_curves(results, by_epochs), scale_curves(results, published)
    return draw_curves(*drawn, marks, words, loss=loss, screen=screen)


def vertical_label(results: Results) -> str:
    """The vertical axis in words."""
    return (
        "test loss, all samples together"
        if results.statistic == "loss"
        else "test accuracy, all samples together (%)"
    )


def describe_sizes(results: Results) -> list[str]:
    """What the figure is of, in a few words each."""
    return [
        f"{len(results.data.clients)} clients",
        f"protocol {results.experiment.settings.rules.name}",
    ]


def describe_trials(curves: Curves, what: str) -> str:
    """How the lines were averaged."""
    most = max(curve.trials for curve in curves.values())
    return f"mean of {most} {what}, band from worst to best" if most > 1 else f"one of the {what}"


def curve_rows(first: str, ours: Curves, published: Curves) -> list[list[Any]]:
    """The numbers of curves: a row per curve and round, in fractions, with every trial's range."""
    rows: list[list[Any]] = [[first, "source", "round", "trials", "mean", "lowest", "highest"]]
    for source, curves in (("ours", ours), ("paper", published)):
        for name, curve in curves.items():
            for at, when in enumerate(curve.rounds):
                rows.append(
                    [
                        name,
                        source,
                        when,
                        curve.trials,
                        *(float(v[at]) for v in (curve.mean, curve.low, curve.high)),
                    ]
                )
    return rows


def tuned_rows(results: Results) -> list[list[Any]]:
    """The chosen settings, with how many were tried and how the chosen ones validate."""
    used = list(dict.fromkeys(name for settings in results.tuned.values() for name in settings))
    name = validation_score(results.task)
    rows: list[list[Any]] = [["algorithm", "tried", name, *used]]
    for algorithm, settings in results.tuned.items():
        tried = results.tuning.filter(results.tuning["algorithm"] == algorithm)
        score = tried.filter(tried["chosen"])[name].item()
        rows.append([algorithm, tried.height, score, *(settings.get(each) for each in used)])
    return rows


def draw_rows(rows: list[list[Any]], results: Results) -> Figure:
    """The table of settings as a figure."""
    (_, _, score, *used), *body = rows
    heads = ["algorithm", "tried", "validation", *(each.replace("_", " ") for each in used)]
    texts = [
        [row[0], str(row[1]), statistic_text(score, row[2]), *map(setting_text, row[3:])]
        for row in body
    ]
    figure, axes = canvas(0.95 * len(heads) + 0.4, 0.9 + 0.3 * len(texts))
    axes.set_axis_off()
    table = axes.table(
        texts,
        colLabels=heads,
        cellLoc="right",
        loc="upper left",
        edges="horizontal",
        bbox=Bbox.unit(),
    )
    table.auto_set_font_size(False)
    table.set_fontsize(9)
    for (row, column), each in table.get_celld().items():
        each.set_edgecolor(INK if row == 0 else FAINT)
        each.set_text_props(
            color=INK,
            weight="bold" if row == 0 else "normal",
            ha="left" if column == 0 else "right",
        )
    what = "loss" if results.task == "regression" else "accuracy"
    caption(
        axes,
        f"{results.experiment.name}: chosen settings",
        f"by validation {what} after the last round, seed {FIRST}",
    )
    return figure


def write_figure(figure: Figure, stem: Path, rows: Iterable[Sequence[Any]]) -> list[Path]:
    """A figure as PDF and PNG, and its numbers as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    files = [save(figure, stem.with_name(f"{stem.name}.{kind}")) for kind in ("pdf", "png")]
    numbers = stem.with_name(f"{stem.name}.csv")
    write_text(numbers, text.getvalue())
    return [*files, numbers]


def draw_training(histories: Histories, path: str | Path) -> Path:
    """The runs of `train`, each algorithm's chosen configuration."""
    lines = {
        name: group or only_one(histories.rank_configurations()[name])
        for name, group in histories.choose_configurations().items()
    }
    groups = {name: group for name, group in lines.items() if group is not None and group.rounds}
    if not groups:
        raise InvalidInput(
            "there is nothing to draw: every configuration diverged or was stopped before it was"
            " evaluated"
        )
    loss = histories.task == "regression"
    quantity, scale = ("loss", 1.0) if loss else ("accuracy", 100.0)
    curves = {
        name: Curve(tuple(group.rounds), scale * group.curves(quantity))
        for name, group in groups.items()
    }
    own = marks_of(group.name for group in groups.values())
    marks = {name: dash_protocol(group, own[group.name], groups) for name, group in groups.items()}
    if len(groups) == 1 and not (group := next(iter(groups.values()))).algorithm.shares_nothing:
        shared = Curve(
            tuple(group.rounds), scale * group.curves(f"shared_{quantity}").mean(0, keepdims=True)
        )
        if not np.array_equal(shared.mean, next(iter(curves.values())).mean, equal_nan=True):
            curves["shared model"] = shared
            marks["shared model"] = Mark("shared", INK, "")
    # without sharing there are no rounds, only passes
    kinds = {group.algorithm.shares_nothing for group in groups.values()}
    words = Words(
        title=f"Test {quantity} of personal models",
        under=subtitle(histories, groups),
        across=(
            "rounds (local training: epochs)"
            if len(kinds) == 2
            else "epochs"
            if True in kinds
            else "rounds"
        ),
        up=f"test {quantity}, all samples together" + ("" if loss else " (%)"),
    )
    return save(draw_curves(curves, {}, marks, words, loss=loss), path)


def only_one(groups: list[Configuration]) -> Configuration | None:
    """The only configuration tried, which is drawn even if it diverged."""
    return groups[0] if len(groups) == 1 else None


def dash_protocol(group: Configuration, mark: Mark, groups: dict[str, Configuration]) -> Mark:
    """A mark as it is; among several protocols each has a line style, the algorithm the colour."""
    protocols = list(dict.fromkeys(each.protocol for each in groups.values()))
    if len(protocols) == 1:
        return mark
    return mark._replace(dash=DASHES[protocols.index(group.protocol) % len(DASHES)])


def subtitle(histories: Histories, drawn: dict[str, Configuration]) -> list[str]:
    """Clients, protocol, seeds, how the lines were chosen, and what is not to be seen."""
    ranked = histories.rank_configurations()
    seeds = max(len(group.runs) for group in drawn.values())
    parts = [f"{len(histories.runs[0].federation.clients)} clients"]
    protocols = list(dict.fromkeys(group.protocol.name for group in drawn.values()))
    parts += [f"protocol {' and '.join(protocols)}"]
    parts += [
        (
            f"mean of {seeds} seeds, band from worst to best"
            if seeds > 1
            else f"seed {histories.runs[0].seed}"
        )
    ]
    counts = [len(ranked[name]) for name in drawn]
    if max(counts) > 1:
        tried = str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"
        parts.append(
            f"{'each ' if len(drawn) > 1 else ''}the best by validation of {tried} configurations"
        )
    parts += [f"{name} not drawn: diverged" for name in ranked if name not in drawn]
    return [
        *parts,
        *(["interrupted"] if any(group.interrupted for group in drawn.values()) else []),
    ]


PART_COLOURS = {"label": "#0072b2", "feature": "#e69f00", "rest": "#9a9a9a"}


BINS = 24


def draw_decomposition(found: Decomposition, path: str | Path) -> Path:
    """Each algorithm's gain in parts, as bars side by side with standard errors."""
    figure, axes = canvas()
    heights = 0.8 / len(PART_COLOURS)
    for place, row in enumerate(found.parts):
        for rank, (part, shade) in enumerate(PART_COLOURS.items()):
            amount = getattr(row, part)
            at = place + (rank - 1) * heights
            label = f"{part} shift" if part != "rest" else part
            axes.barh(
                at,
                100 * amount.value,
                0.9 * heights,
                xerr=100 * amount.error,
                color=shade,
                ecolor=INK,
                label=label if place == 0 else None,
            )
    axes.set_yticks(range(len(found.parts)), [row.algorithm for row in found.parts])
    axes.invert_yaxis()
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_xlabel("points of accuracy, with standard errors over clients", color=INK)
    axes.legend(frameon=False)
    caption(axes, "Where personalization's gain comes from", "held-out samples of all clients")
    return save(figure, path)


SMALL = (272, 132)  # pixels of a histogram


def bin_edges(values: Array) -> Array:
    """The ends of a histogram's bars: round numbers, with 0; the last bars count the rest."""
    low, high = (float(np.percentile(values, at)) for at in (0.5, 99.5))
    marks = MaxNLocator(BINS, steps=[1, 2, 5, 10]).tick_values(min(low, 0.0), max(high, 0.0))
    step = float(marks[1] - marks[0])
    # Who loses is never counted among those who gain, however few they are.
    first = min(np.floor(low / step), -1.0 if values.min() < 0 else 0.0)
    last = max(np.ceil(high / step), 1.0 if values.max() >= 0 else 0.0)
    return np.asarray(step * np.arange(first, last + 1))


def draw_histogram(values: Array, edges: Array, unit: str) -> Figure:
    """How gains are distributed: bars left of the line at 0 are clients that lose."""
    inside = np.clip(values, edges[0], np.nextafter(edges[-1], -np.inf))
    counts = np.histogram(inside, edges)[0]
    figure, axes = page_canvas(*SMALL, left=RIGHT, bottom=24)
    for low, high, many in zip(edges[:-1], edges[1:], counts, strict=True):
        if many:
            tint = LOSE if low < -1e-9 * abs(edges[-1]) else GAIN
            (patch,) = axes.bar(low, many, 0.92 * (high - low), align="edge", color=tint)
            patch.set_gid(f"{low:+.4g} to {high:+.4g}{unit}: {many} clients")
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_xlim(edges[0], edges[-1])
    axes.spines["left"].set_visible(False)
    axes.set_yticks([])
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}" if value else "0"))
    return figure
