"""The foresight board: what was predicted before training beside what was measured, and how good
each predictor is.

A data set is a folder. What was measured there is a run, its saved tables, or a file
`measured.json`; what was predicted is in files `foreseen.json` (what the advisor said: its theory,
and what it trusts after looking at the samples) and `foreseen-*.json`, one for each further
predictor:

    {"format": "fedasym measured 1", "name": "Exam", "metric": "squared error",
     "values": {"local": 0.56, "rtfa": 0.54}, "source": "the command that measured it"}
    {"format": "fedasym prediction 1", "predictor": "mine",
     "values": {"local": 0.55, "rtfa": 0.52}, "source": "the command that predicted it"}

So a data set or a predictor is added by a file.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from fedasym.core.errors import InvalidInput, path_of
from fedasym.core.numbers import TextTable, html_tables, json_value, latex_tables, number
from fedasym.core.runtime import write_text
from fedasym.experiments.reproduction import LIKE, read_foresight
from fedasym.training.comparisons import Verdict
from fedasym.training.wording import WIDTH

MEASURED, PREDICTED = "measured.json", "foreseen-*.json"
MEASURED_FORMAT, PREDICTED_FORMAT = "fedasym measured 1", "fedasym prediction 1"
ACCURACY, ERROR = "accuracy", "squared error"
LARGEST = 1_000_000  # bytes of a file that is read
THEORY, ADVISED = "theory", "advised"


@dataclass(frozen=True)
class Forecast:
    """What one predictor says of one data set; `levels`: its numbers are those that are measured,
    rather than only in their order.
    """

    predictor: str
    values: Mapping[str, float]
    source: str = ""
    levels: bool = True


@dataclass(frozen=True)
class ForecastScore:
    """How good a prediction is.

    right, pairs: pairs of algorithms in the measured order, of those that training tells apart.
    first, best: the algorithm that it puts first, and the one that was measured best.
    regret: what its first choice loses against the best: points of accuracy, or percent of error.
    off: mean distance of its numbers from the measured ones, in the same unit; NaN for an order.
    """

    predictor: str
    dataset: str
    right: int
    pairs: int
    first: str
    best: str
    regret: float
    off: float


@dataclass(frozen=True)
class Measured:
    """One data set: what was measured of each algorithm, and what was predicted."""

    name: str
    metric: str
    values: Mapping[str, float]
    predictions: tuple[Forecast, ...]
    source: str = ""
    ties: frozenset[frozenset[str]] = frozenset()  # pairs that training does not tell apart

    @property
    def lower(self) -> bool:
        """Whether less is better."""
        return self.metric == ERROR

    def score(self, prediction: Forecast) -> ForecastScore | None:
        """Of the algorithms that were predicted and measured; None where these are fewer than two.

        >>> found = Measured("x", "accuracy", {"a": 0.7, "b": 0.8, "c": 0.9}, ())
        >>> score = found.score(Forecast("mine", {"a": 0.6, "b": 0.9, "c": 0.8}))
        >>> score.right, score.pairs, score.first, score.best, round(score.regret, 6)
        (2, 3, 'b', 'c', 10.0)
        """
        both = [name for name in self.values if name in prediction.values]
        if len(both) < 2:
            return None
        sign = -1 if self.lower else 1
        told, seen = (
            {name: sign * float(values[name]) for name in both}
            for values in (prediction.values, self.values)
        )
        apart = [
            (one, other)
            for one, other in combinations(both, 2)
            if frozenset((one, other)) not in self.ties and seen[one] != seen[other]
        ]
        right = sum(
            (told[one] - told[other]) * (seen[one] - seen[other]) > 0 for one, other in apart
        )
        first, best = (max(both, key=lambda name: each[name]) for each in (told, seen))
        lost = abs(self.values[best] - self.values[first])
        gaps = [abs(prediction.values[name] - self.values[name]) for name in both]
        if self.lower:
            lost /= self.values[best]
            gaps = [gap / self.values[name] for gap, name in zip(gaps, both, strict=True)]
        off = 100 * float(np.mean(gaps)) if prediction.levels else float("nan")
        return ForecastScore(
            prediction.predictor, self.name, right, len(apart), *(first, best), 100 * lost, off
        )


@dataclass(frozen=True, repr=False)
class Foresight:
    """All data sets with their predictions; prints itself."""

    datasets: tuple[Measured, ...]

    @property
    def predictors(self) -> list[str]:
        """Their names, in the order in which they are met."""
        return list(
            dict.fromkeys(each.predictor for data in self.datasets for each in data.predictions)
        )

    @property
    def scores(self) -> list[ForecastScore]:
        """One for each predictor and data set."""
        found = [data.score(each) for data in self.datasets for each in data.predictions]
        return [each for each in found if each is not None]

    def table(self) -> list[dict[str, Any]]:
        """One record per data set and algorithm: what was measured, and what each predicted."""
        return [
            {"dataset": data.name, "algorithm": name, "metric": data.metric, "measured": value}
            | {each.predictor: each.values.get(name) for each in data.predictions}
            for data in self.datasets
            for name, value in data.values.items()
        ]

    def to_json(self) -> str:
        """Full precision: rows, scores."""
        rows = [
            {key: each if isinstance(each, str) else json_value(each) for key, each in row.items()}
            for row in self.table()
        ]
        scores = [
            {
                key: each if isinstance(each, str | int) else json_value(each)
                for key, each in vars(score).items()
            }
            for score in self.scores
        ]
        return json.dumps({"rows": rows, "scores": scores}, indent=2)

    def to_latex(self) -> str:
        """The tables for a paper; they need the package booktabs."""
        return latex_tables(self.printed_tables())

    def printed_tables(self) -> list[TextTable]:
        """The scores of the predictors, by data set, and then each data set."""
        return [
            predictor_table(self.predictors, self.scores),
            dataset_table(self.scores),
            *(value_table(data) for data in self.datasets),
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """How to read the tables."""
        return (
            "Right order: pairs of algorithms in the measured order, of those that training tells"
            " apart (different at the 5% level over trials and clients, where that is known).",
            "Regret: what is lost by taking the algorithm that is predicted to be first, in points"
            " of accuracy, or in percent of the squared error. Off by: mean distance of the numbers"
            " from the measured ones, in the same units; a dash where the order alone was predicted"
            ".",
        )

    def __str__(self) -> str:
        lines = []
        for table in self.printed_tables():
            lines += [table.title, *table.lines(), ""]
        return "\n".join(
            [*lines, *(line for note in self.notes for line in textwrap.wrap(note, WIDTH))]
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_tables(self.printed_tables(), notes=self.notes)

    def to_markdown(self) -> str:
        """The tables for a page of documentation."""
        parts = []
        for table in self.printed_tables():
            rows = [list(table.head), ["---"] * len(table.head), *map(list, table.rows)]
            lines = [f"| {' | '.join(row)} |" for row in rows]
            parts.append("\n".join([f"### {table.title}", "", *lines]))
        return "\n\n".join([*parts, *self.notes])


def predictor_table(names: Iterable[str], scores: Iterable[ForecastScore]) -> TextTable:
    """Every predictor over all data sets."""
    held = list(scores)
    rows = []
    for name in names:
        mine = [score for score in held if score.predictor == name]
        if not mine:
            continue
        right, pairs = sum(score.right for score in mine), sum(score.pairs for score in mine)
        firsts = sum(score.first == score.best for score in mine)
        share = f"{right} of {pairs}" + (f" ({right / pairs:.0%})" if pairs else "")
        regrets = [score.regret for score in mine]
        rows.append(
            [
                name,
                str(len(mine)),
                share,
                f"{firsts} of {len(mine)}",
                f"{np.mean(regrets):.2f}",
                f"{np.max(regrets):.2f}",
            ]
        )
    head = ["predictor", "data sets", "right order", "best first", "mean regret", "worst regret"]
    return TextTable(head, rows, "Predictors")


def dataset_table(scores: Iterable[ForecastScore]) -> TextTable:
    """Every predictor on every data set."""
    rows = [
        [
            each.dataset,
            each.predictor,
            f"{each.right} of {each.pairs}",
            each.first,
            each.best,
            f"{each.regret:.2f}",
            "-" if np.isnan(each.off) else f"{each.off:.1f}",
        ]
        for each in scores
    ]
    head = ["data set", "predictor", "right order", "first", "measured best", "regret", "off by"]
    return TextTable(head, rows, "Predictors by data set", left=2)


def value_table(data: Measured) -> TextTable:
    """Predicted beside measured, algorithm by algorithm."""

    def show(value: float | None) -> str:
        if value is None:
            return "-"
        return number(value) if data.lower else f"{100 * value:.2f}"

    names = [each.predictor for each in data.predictions]
    rows = [
        [name, *(show(each.values.get(name)) for each in data.predictions), show(value)]
        for name, value in data.values.items()
    ]
    unit = "squared error" if data.lower else "accuracy in percent, mean over clients"
    coarse = [each.predictor for each in data.predictions if not each.levels]
    order = f"; the order alone of {' and '.join(coarse)}" if coarse else ""
    return TextTable(["algorithm", *names, "measured"], rows, f"{data.name}: {unit}{order}")


def read_foresights(folder: str | Path) -> Foresight:
    """The board of a folder of data sets, each a folder with what was measured and predicted.

    >>> import tempfile
    >>> measured = {"format": MEASURED_FORMAT, "name": "x", "metric": "accuracy"}
    >>> told = {"format": PREDICTED_FORMAT, "predictor": "mine"}
    >>> with tempfile.TemporaryDirectory() as root:
    ...     place = Path(root, "x")
    ...     place.mkdir()
    ...     values = {"values": {"local": 0.7, "rtfa": 0.8}}
    ...     _ = (place / "measured.json").write_text(json.dumps(measured | values))
    ...     _ = (place / "foreseen-mine.json").write_text(json.dumps(told | values))
    ...     read_foresights(root).scores[0].regret
    0.0
    """
    root = path_of("folder", folder)
    if not root.is_dir():
        raise InvalidInput(f"folder is {str(folder)!r}: there is no such folder")
    found = [read_measured(place) for place in sorted(root.iterdir()) if place.is_dir()]
    known = [each for each in found if each is not None]
    if not known:
        raise InvalidInput(
            f"folder is {str(folder)!r}: none of its folders has both measurements (a run, saved"
            f" tables or {MEASURED}) and predictions (foreseen.json or {PREDICTED})"
        )
    return Foresight(tuple(known))


def read_measured(place: Path) -> Measured | None:
    """One data set; None where nothing was measured, or nothing was predicted."""
    predictions = [read_forecast(path) for path in sorted(place.glob(PREDICTED))]
    if (place / MEASURED).is_file():
        held = read_object(place / MEASURED, MEASURED_FORMAT, ("name", "metric"))
        if held["metric"] not in (ACCURACY, ERROR):
            raise InvalidInput(
                f"{place / MEASURED}: metric is {held['metric']!r}: give {ACCURACY} or {ERROR}"
            )
        fields = (held["name"], held["metric"], held["values"], tuple(predictions))
        return Measured(*fields, held["source"]) if predictions else None
    return measure_run(place, predictions)


def measure_run(place: Path, predictions: list[Forecast]) -> Measured | None:
    """A run or its saved tables: means over clients, and the pairs without a clear difference."""
    from fedasym.experiments.folder import is_run
    from fedasym.experiments.tables import is_saved
    from fedasym.show.report import read_results

    if not (is_run(place) or is_saved(place)):
        return None
    foreseen = read_foresight(place)
    results = read_results(place)
    if results.task != "classification":
        return None
    finals = results.finals(results.sweep, "mean_accuracy")
    values = {name: float(np.mean(each)) for name, each in finals.items()}
    if foreseen is not None and foreseen.advised:
        for name, told in ((THEORY, foreseen.theory), (ADVISED, foreseen.advised)):
            mine = {
                each: told[LIKE.get(each, each)] for each in values if LIKE.get(each, each) in told
            }
            predictions = [*predictions, Forecast(name, mine, levels=foreseen.merged is None)]
    if not predictions:
        return None
    pairs = results.comparisons(statistic="mean_accuracy").pairs
    ties = {
        frozenset((pair.first, pair.second))
        for pair in pairs
        if pair.sweep == results.sweep and pair.verdict in (Verdict.OPEN, Verdict.SAME)
    }
    name = results.experiment.name
    return Measured(name, ACCURACY, values, tuple(predictions), ties=frozenset(ties))


def read_forecast(path: Path) -> Forecast:
    """A predictor's file."""
    held = read_object(path, PREDICTED_FORMAT, ("predictor",))
    return Forecast(held["predictor"], held["values"], held["source"])


def read_object(path: Path, form: str, words: tuple[str, ...]) -> dict[str, Any]:
    """A small JSON file with words and values by algorithm, checked."""
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError("it is larger than a megabyte")
        held = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(held, dict) or held.get("format") != form:
            raise ValueError(f"its format is not {form!r}")
        texts = {name: held[name] for name in words} | {"source": held.get("source", "")}
        if not all(isinstance(each, str) for each in texts.values()):
            raise ValueError(f"{', '.join(texts)} must be texts")
        values = {str(name): float(each) for name, each in held["values"].items()}
        if not values or not all(np.isfinite(each) and each > 0 for each in values.values()):
            raise ValueError("values must be finite numbers above 0, by algorithm")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as reason:
        raise InvalidInput(
            f"{path} cannot be read: {reason}; docs/foresight.md shows what it must hold"
        ) from None
    return texts | {"values": values}


BOARD = "[//]: # (board)"  # Markdown that no page shows


def write_board(board: Foresight, page: str | Path) -> Path:
    """Put the tables between the two marks of a Markdown page; returns where it is."""
    where = path_of("page", page)
    try:
        parts = where.read_text(encoding="utf-8").split(BOARD)
    except (OSError, ValueError) as reason:
        raise InvalidInput(f"page is {str(page)!r}: it cannot be read: {reason}") from None
    if len(parts) != 3:
        raise InvalidInput(
            f"page is {str(page)!r}: the tables come between two lines {BOARD}: put these there"
        )
    write_text(
        where, f"{BOARD}\n\n".join([parts[0], f"{board.to_markdown()}\n\n"]) + BOARD + parts[2]
    )
    return where
