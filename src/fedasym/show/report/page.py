"""The page of a run: its sections in the order of reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedasym.experiments.printing import SWEEPS
from fedasym.show.report.curves import Published
from fedasym.show.report.foreseen import foreseen_section
from fedasym.show.report.markup import element, paragraphs
from fedasym.show.report.sections import (
    Section,
    again_section,
    clients_section,
    gains_section,
    published_section,
    sweep_section,
    tuning_section,
)
from fedasym.show.report.shell import shell
from fedasym.show.report.words import facts, headline

if TYPE_CHECKING:
    from fedasym.experiments.comparisons import Comparisons
    from fedasym.experiments.results import Results


def page(results: Results, published: Published | None = None) -> str:
    """The whole page; the same results give the same text."""
    experiment, paired = results.experiment, results.comparisons()
    header = [
        element("h1", experiment.name),
        element("p", experiment.about, class_="about") if experiment.about else "",
        element("ul", *(element("li", fact) for fact in facts(results)), class_="facts"),
        element("div", paragraphs(headline(results, paired)), class_="answer"),
    ]
    sections = [section for section in all_sections(results, paired, published) if section is not None]
    return shell(f"{experiment.name}: results", header, sections)


def all_sections(results: Results, paired: Comparisons, published: Published | None) -> list[Section | None]:
    """In the order of reading: what to know, what was found, how it was found."""
    notes = Section("notes", "What a fair reader should know", paragraphs(results.notes)) if results.notes else None
    return [
        notes,
        *(sweep_section(results, sweep, paired, published) for sweep in SWEEPS),
        gains_section(results, published),
        clients_section(results),
        published_section(results, published),
        foreseen_section(results),
        tuning_section(results),
        again_section(results),
    ]
