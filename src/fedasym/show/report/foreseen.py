"""The section that sets what the advisor said before training beside what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedasym.experiments.foresight import agreement, off_by, percent, rows
from fedasym.show.report.markup import element, joined
from fedasym.show.report.sections import Section
from fedasym.show.report.tables import Cell, Column, minus, table

if TYPE_CHECKING:
    from fedasym.experiments.results import Results

TITLE = "What theory says before training"
MEANS = (
    "Accuracies in percent, means over clients. Theory: the limits for the population that the advisor estimates from the "
    "clients' samples. Advised: the same or, where held-out samples contradict it, what they say. Measured: at the last round."
)
COLUMNS = [Column("algorithm", text=True), Column("theory"), Column("advised"), Column("measured"), Column("off by")]


def foreseen_section(results: Results) -> Section | None:
    """Predicted beside measured, and where the rankings agree; or why nothing could be predicted."""
    if results.foreseen is None:
        return None
    if reason := results.foreseen.reason:
        return Section("foreseen", TITLE, element("p", f"The advisor has no answer: {reason}."))
    found = rows(results)
    if not found:
        return None
    merged, cells = results.foreseen.merged, []
    for row in found:
        off = Cell("–" if merged else minus(off_by(row)))
        cells.append([Cell(row.algorithm), *(Cell(percent(each)) for each in row[1:]), off])
    listed = table(COLUMNS, cells, "Accuracies by theory, as advised, and as measured, by algorithm")
    said = element("p", agreement(found, merged))
    return Section("foreseen", TITLE, joined(said, listed, element("p", MEANS, class_="quiet")))
