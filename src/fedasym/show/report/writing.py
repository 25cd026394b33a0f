"""The verb `report`: results as one page of HTML that needs nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedasym.experiments.results import Results
    from fedasym.show.report.curves import Published


def report(results: Results | str | Path, path: str | Path, published: Published | None = None) -> Path:
    """Write results as one self-contained HTML page, and return where it is.

    Curves that can be read and hidden, tables that sort, what was tuned and what it cost, paired comparisons in words, the
    clients one by one, the commands: one file that works offline, on a phone, in the dark and on paper. The same results
    give the same bytes.

    results: what `fedasym.run` returned, its run folder, or a folder that `Results.save` wrote.
    published: curves to be drawn beside ours, {sweep: {algorithm: (rounds, accuracies)}}, accuracies as trials x rounds; the
        sweeps are "seeds", "splits" and "gains", whose algorithms are named with their epochs, "ftfa 10".

    >>> import tempfile, fedasym as fa
    >>> data = fa.datasets.synthetic(task="classification", clients=5, dimension=5, classes=2, aspect=0.5)
    >>> few = {"rounds": 2, "evaluate_every": 2, "local_steps": 2, "personal_epochs": 1}
    >>> tiny = fa.Experiment(name="tiny", algorithms=["fedavg"], settings=few, grid={}, trials={"seeds": 2})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = fa.run(tiny, data, into=folder + "/run")
    ...     report(folder + "/run", folder + "/tiny.html").read_text()[:15]
    '<!DOCTYPE html>'
    """
    from fedasym.show.report.page import page
    from fedasym.show.report.shell import write_html
    from fedasym.show.report.sources import read

    return write_html(path, lambda: page(read(results), published))
