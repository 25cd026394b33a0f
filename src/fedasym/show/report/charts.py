"""A chart of curves: two drawings, a legend that reads values and hides curves, its numbers as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from fedasym.core.text import number
from fedasym.show.figures.marks import Mark
from fedasym.show.report.curves import Curve, Curves
from fedasym.show.report.drawing import SIZES, Frame, drawing, swatch
from fedasym.show.report.markup import Html, element, embedded
from fedasym.show.report.scales import span
from fedasym.show.report.tables import Cell, Column, count, table

ROWS = 60  # of a table of numbers: where every round was tested, all of them would be most of the page


@dataclass(frozen=True, eq=False)
class Chart:
    """Curves with their marks, published ones to lie beside, and words for those who do not see them.

    key: of the element. across, up: what the axes are. names: how curves are called, where not by their key.
    """

    key: str
    curves: Curves
    marks: Mapping[str, Mark]
    loss: bool
    across: str
    up: str
    described: str
    published: Curves = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    ordered: bool = False  # keep the order of the curves: they are steps of a scale

    def named(self, key: str) -> str:
        """What a curve is called."""
        return self.names.get(key, key)

    @property
    def series(self) -> list[str]:
        """All curves, ours and published ones, the best at the end first."""
        keys = list(dict.fromkeys([*self.curves, *self.published]))
        if self.ordered:
            return keys
        sign = 1 if self.loss else -1

        def order(key: str) -> float:
            last = (self.curves.get(key) or self.published[key]).last
            return sign * last if math.isfinite(last) else math.inf

        return sorted(keys, key=order)

    @property
    def rounds(self) -> list[int]:
        """All rounds at which something was measured."""
        return sorted({when for curve in (*self.curves.values(), *self.published.values()) for when in curve.rounds})

    def shown(self, value: float | None) -> str:
        """A value as it is read."""
        if value is None or not math.isfinite(value):
            return "–"
        return number(value) if self.loss else f"{value:.2f} %"

    def figure(self, caption: str) -> Html:
        """The whole chart."""
        rounds, order = self.rounds, self.series
        scale = span([*self.curves.values(), *self.published.values()], loss=self.loss)
        # The best lies on top; but dashed lines over all, or nobody sees one that coincides with a solid one.
        drawn = sorted(order, key=lambda key: (bool(self.marks[key].dash), -order.index(key)))
        ours = {key: self.curves[key] for key in drawn if key in self.curves}
        frames = [Frame(size, rounds[0], rounds[-1], scale) for size in SIZES]
        plots = [drawing(self.key, f, ours, self.published, self.marks, self.across, self.described) for f in frames]
        slider = element(
            "input",
            type="range",
            min=0,
            max=len(rounds) - 1,
            value=len(rounds) - 1,
            aria_label="Round at which the values are read",
            aria_valuetext=f"round {rounds[-1]}",
        )
        cut = " Early rounds lie outside the frame." if scale.cut else ""
        return element(
            "figure",
            element("p", self.up, class_="up"),
            element("div", *plots, class_="plot"),
            element("div", element("output", f"Round {rounds[-1]}"), slider, class_="reader"),
            element("div", *map(self._button, order), class_="legend", role="group", aria_label="Show or hide curves"),
            element("figcaption", caption, cut),
            element("details", element("summary", "The numbers of this figure"), self._table(caption)),
            embedded(self._data(rounds, frames), class_="data"),
            class_="chart",
            id=self.key,
        )

    def _button(self, key: str) -> Html:
        ours, paper = self.curves.get(key), self.published.get(key)
        return element(
            "button",
            swatch(self.marks[key], paper=ours is None),
            element("span", self.named(key), class_="name"),
            element("span", "" if ours is None else self.shown(ours.last), class_="ours"),
            element("span", "" if paper is None else f"paper {self.shown(paper.last)}", class_="paper"),
            type="button",
            aria_pressed="true",
            data_series=key,
        )

    def _data(self, rounds: list[int], frames: list[Frame]) -> dict[str, object]:
        """What the script reads; its texts are made here, so that numbers look the same everywhere."""

        def texts(curve: Curve | None) -> list[str] | None:
            return None if curve is None else [self.shown(value) for value in values_at(curve, rounds)]

        return {
            "rounds": rounds,
            "places": {frame.size.name: [round(frame.across(when), 1) for when in rounds] for frame in frames},
            "series": [
                {"name": self.named(key), "ours": texts(self.curves.get(key)), "paper": texts(self.published.get(key))}
                for key in self.series
            ],
        }

    def _table(self, caption: str) -> Html:
        columns, held = [Column("round")], []
        for key in self.series:
            for kind, curve in (("", self.curves.get(key)), (" paper", self.published.get(key))):
                if curve is None:
                    continue
                ends = [("lowest", curve.low), ("highest", curve.high)] if curve.trials > 1 else []
                for what, values in (("mean", curve.mean), *ends):
                    columns.append(Column(f"{self.named(key)}{kind} {what}"))
                    held.append(dict(zip(curve.rounds, map(float, values), strict=True)))
        rows = [[count(when), *(Cell(self.shown(each.get(when))) for each in held)] for when in thinned(self.rounds, ROWS)]
        return table(columns, rows, label=f"Numbers: {caption}")


def thinned(rounds: list[int], most: int) -> list[int]:
    """At most so many of the rounds, evenly, the last among them.

    >>> thinned([0, 1, 2, 3, 4, 5], 3), thinned([0, 50], 3)
    ([1, 3, 5], [0, 50])
    """
    every = -(-len(rounds) // most)
    return rounds[::-1][::every][::-1]


def values_at(curve: Curve, rounds: list[int]) -> list[float | None]:
    """The mean at these rounds, None where nothing was measured."""
    held = dict(zip(curve.rounds, map(float, curve.mean), strict=True))
    return [held.get(when) for when in rounds]
