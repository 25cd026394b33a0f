"""The command `report`: a run as one page to be read anywhere, and as figures for a paper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from fedasym.cli.app import app
from fedasym.cli.experiments import EXPERIMENTS
from fedasym.core.errors import InvalidInput


@app.command(group=EXPERIMENTS)
def report(
    run: str,
    /,
    *,
    into: str | None = None,
    figures: str | None = None,
    theory: Annotated[bool, Parameter(negative="")] = False,
    data: str | None = None,
) -> None:
    """Write a run's results as one HTML page that works offline, on a phone and on paper.

    Where the experiment has the name of one of the paper's data sets, the published curves are drawn beside.

    Parameters
    ----------
    run
        A run folder, the name of one in runs, or a folder of saved tables (fedasym runs show RUN --save FOLDER).
    into
        The page; report.html in the run's folder by default.
    figures
        Also draw the figures into this folder, each as PDF, PNG and CSV.
    theory
        Ask the advisor what it would have said before training; the run's folder keeps the answer, and the page shows it.
    data
        With theory: a file of the run's samples, where they are no longer where the experiment says.
    """
    from fedasym.experiments.listing import found
    from fedasym.experiments.published import curves_of
    from fedasym.show.report import read_results
    from fedasym.show.report import report as write_report
    from fedasym.show.reproduction import foresee_run

    place = found(run)
    results = read_results(place)
    if data is not None and not theory:
        raise InvalidInput(f"data is {data!r}: it serves --theory alone")
    if theory:
        results = replace(results, foreseen=foresee_run(place, results, data))
    curves = curves_of(results.experiment.name)
    page = write_report(results, place / "report.html" if into is None else into, curves)
    print(f"Written to {page}, {page.stat().st_size / 1000:.0f} kB: one file, to be opened in any browser.")
    if figures is not None:
        from fedasym.show.figures.rounds import draw_figures

        files = draw_figures(results, figures, curves)
        print(f"Drawn to {figures}: {', '.join(Path(file).name for file in files)}.")
