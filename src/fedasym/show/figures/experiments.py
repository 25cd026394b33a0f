"""The figures of an experiment: the paper's curves over seeds and splits, the gains of personalization, the tuned settings.

Each is written as PDF for papers, as PNG for pages, and as CSV: the very numbers that it shows.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from fedasym.core.errors import InvalidInput
from fedasym.core.files import write_text
from fedasym.experiments.plan import FIRST, GAINS, SEEDS, SPLITS
from fedasym.experiments.selection import validated_by
from fedasym.show.figures.marks import marks_of, scale_of
from fedasym.show.figures.style import FAINT, INK, canvas, caption, save
from fedasym.show.figures.trials import Words, draw_curves
from fedasym.show.report.curves import (
    Curves,
    Published,
    gain_curves,
    gains_named,
    published_curves,
    scaled,
    spoken_epochs,
    trial_curves,
)
from fedasym.training.wording import cell, shown

if TYPE_CHECKING:
    from fedasym.experiments.results import Results

TITLES = {SEEDS: "seeds of training", SPLITS: "reshuffles of training and validation samples"}


def draw(results: Results, folder: str | Path, published: Published | None = None) -> list[Path]:
    """Draw everything that results hold into a folder; returns the files, each figure as PDF, PNG and CSV.

    seeds, splits: accuracy (regression: loss) against rounds, mean and worst to best trial. gains-ALGORITHM: the same by
    epochs of personalization. tuned: the chosen settings as a table. What there is nothing of is left out.

    published: curves to be drawn beside, {sweep: {algorithm: (rounds, accuracies)}} as `fedasym.report` takes them; not used
    in regression.

    >>> import tempfile, fedasym as fa
    >>> data = fa.datasets.synthetic(task="classification", clients=5, dimension=5, classes=2, aspect=0.5)
    >>> few = {"rounds": 2, "evaluate_every": 2, "local_steps": 2, "personal_epochs": 1}
    >>> tiny = fa.Experiment(name="tiny", algorithms=["fedavg"], settings=few, grid={}, trials={"seeds": 2})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [file.name for file in draw(fa.run(tiny, data, into=folder + "/run"), folder + "/figures")]
    ['seeds.pdf', 'seeds.png', 'seeds.csv', 'tuned.pdf', 'tuned.png', 'tuned.csv']
    """
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise InvalidInput(f"folder is {str(folder)!r}: it cannot be made: {reason.strerror}; name another") from None
    loss = results.statistic == "loss"
    theirs = {sweep: {} if loss else published_curves(published, sweep) for sweep in (SEEDS, SPLITS, GAINS)}
    files: list[Path] = []
    for sweep in (SEEDS, SPLITS):
        if curves := trial_curves(results, sweep):
            figure = draw_sweep(results, sweep, curves, theirs[sweep])
            files += written(figure, place / sweep, curve_rows("algorithm", curves, theirs[sweep]))
    for name, by_epochs in gain_curves(results).items():
        paper = gains_named(theirs[GAINS], name)
        figure = draw_gains(results, name, by_epochs, paper)
        files += written(figure, place / f"gains-{name}", curve_rows("epochs", by_epochs, paper))
    if results.tuned:
        rows = tuned_rows(results)
        files += written(draw_rows(rows, results), place / "tuned", rows)
    return files


def draw_results(results: Results, path: str | Path) -> Path:
    """The curves over seeds, or else over splits, to one file."""
    for sweep in (SEEDS, SPLITS):
        if curves := trial_curves(results, sweep):
            return save(draw_sweep(results, sweep, curves, {}), path)
    raise InvalidInput("there are no trials to draw: run the experiment with seeds or splits")


def draw_sweep(results: Results, sweep: str, curves: Curves, published: Curves) -> Figure:
    """The paper's figures 1 to 4, and those of its appendix."""
    alone = any(name.startswith("local") for name in curves)
    words = Words(
        title=f"{results.experiment.name}: test {results.statistic} of personal models",
        under=[*sizes(results), trials_of(curves, TITLES[sweep])],
        across="rounds (local training: epochs)" if alone else "rounds",
        up=vertical(results),
    )
    marks = marks_of([*curves, *published])
    return draw_curves(scaled(results, curves), scaled(results, published), marks, words, loss=results.statistic == "loss")


def draw_gains(results: Results, name: str, by_epochs: Curves, published: Curves) -> Figure:
    """The paper's figures 5 and 6."""
    words = Words(
        title=f"{results.experiment.name}: what {name} gains from personalization",
        under=[*sizes(results), trials_of(by_epochs, TITLES[SEEDS])],
        across="rounds",
        up=vertical(results),
        names={epochs: spoken_epochs(epochs) for epochs in (*by_epochs, *published)},
    )
    marks = scale_of([*by_epochs, *published])
    return draw_curves(scaled(results, by_epochs), scaled(results, published), marks, words, loss=results.statistic == "loss")


def vertical(results: Results) -> str:
    """The vertical axis in words."""
    return "test loss, all samples together" if results.statistic == "loss" else "test accuracy, all samples together (%)"


def sizes(results: Results) -> list[str]:
    """What the figure is of, in a few words each."""
    return [f"{len(results.data.clients)} clients", f"protocol {results.experiment.settings.rules.name}"]


def trials_of(curves: Curves, what: str) -> str:
    """How the lines were averaged."""
    most = max(curve.trials for curve in curves.values())
    return f"mean of {most} {what}, band from worst to best" if most > 1 else f"one of the {what}"


def curve_rows(first: str, ours: Curves, published: Curves) -> list[list[Any]]:
    """The numbers of curves: one row per curve and round, in fractions, with every trial's range."""
    rows: list[list[Any]] = [[first, "source", "round", "trials", "mean", "lowest", "highest"]]
    for source, curves in (("ours", ours), ("paper", published)):
        for name, curve in curves.items():
            for at, when in enumerate(curve.rounds):
                rows.append([name, source, when, curve.trials, *(float(v[at]) for v in (curve.mean, curve.low, curve.high))])
    return rows


def tuned_rows(results: Results) -> list[list[Any]]:
    """The chosen settings, with how many were tried and how the chosen ones validate."""
    used = list(dict.fromkeys(name for settings in results.tuned.values() for name in settings))
    name = validated_by(results.task)
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
    texts = [[row[0], str(row[1]), cell(score, row[2]), *map(shown, row[3:])] for row in body]
    figure, axes = canvas(0.95 * len(heads) + 0.4, 0.9 + 0.3 * len(texts))
    axes.set_axis_off()
    table = axes.table(texts, colLabels=heads, cellLoc="right", loc="upper left", edges="horizontal", bbox=Bbox.unit())
    table.auto_set_font_size(False)
    table.set_fontsize(9)
    for (row, column), each in table.get_celld().items():
        each.set_edgecolor(INK if row == 0 else FAINT)
        each.set_text_props(color=INK, weight="bold" if row == 0 else "normal", ha="left" if column == 0 else "right")
    what = "loss" if results.task == "regression" else "accuracy"
    caption(axes, f"{results.experiment.name}: chosen settings", f"by validation {what} after the last round, seed {FIRST}")
    return figure


def written(figure: Figure, stem: Path, rows: Iterable[Sequence[Any]]) -> list[Path]:
    """A figure as PDF and PNG, and its numbers as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    files = [save(figure, stem.with_name(f"{stem.name}.{kind}")) for kind in ("pdf", "png")]
    numbers = stem.with_name(f"{stem.name}.csv")
    write_text(numbers, text.getvalue())
    return [*files, numbers]
