"""Our accuracies beside the paper's: a table in percent, mean over trials and worst to best."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedasym.experiments.published import published
from fedasym.training.wording import columns

if TYPE_CHECKING:
    from fedasym.core.arrays import Array
    from fedasym.experiments.results import Results

HEAD = ["sweep", "algorithm", "ours", "worst–best", "paper", "worst–best", "ours - paper"]


def beside(results: Results, name: str) -> str | None:
    """The table for a data set that the paper has, or for its stand-in; None where there is none.

    A local curve that the paper averaged over clients alike is set beside ours averaged so.
    """
    paper = published(name)
    if paper is None or results.task != "classification":
        return None
    rows = [HEAD]
    for sweep, curves in paper.trials.items():
        pooled, alike = results.finals(sweep), results.finals(sweep, "mean_accuracy")
        for algorithm, values in pooled.items():
            curve = curves.get(algorithm)
            ours = alike[algorithm] if curve is not None and curve.over_clients else values
            theirs = (
                ["-", "-", "-"] if curve is None else [*spread(curve.final), f"{100 * (ours.mean() - curve.final.mean()):+.2f}"]
            )
            rows.append([sweep, algorithm, *spread(ours), *theirs])
    what = "" if paper.name == name else f" These are not the paper's data: {name} stands in for {paper.name}."
    return "\n".join([*columns(rows, left=2), "", f"Percent after the last round, mean over trials.{what}"])


def spread(values: Array) -> list[str]:
    """Mean, and worst to best."""
    return [f"{100 * np.mean(values):.2f}", f"{100 * np.min(values):.2f}–{100 * np.max(values):.2f}"]
