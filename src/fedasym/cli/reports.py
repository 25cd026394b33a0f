"""The commands that report: a run's page, the paper's runs and findings, what was foreseen, the
explorer, all algorithms.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import fedasym as fa
from fedasym.cli import EXPERIMENTS, KEPT, AsJson, AsLatex, Display, app, show_progress
from fedasym.cli.training import remember_compilations
from fedasym.core.errors import InvalidInput


@app.command(group=EXPERIMENTS)
def report(
    run: str,
    /,
    *,
    into: str | None = None,
    figures: str | None = None,
    theory: bool = False,
    data: str | None = None,
) -> None:
    """Write a run's results as one HTML page that works offline, on a phone and on paper.

    Where the experiment has the name of one of the paper's data sets, the published curves are
    drawn beside.

    Example: fedasym report runs/mine --into mine.html --figures figures

    Parameters
    ----------
    run
        A run folder, the name of one in runs, or a folder of saved tables (fedasym runs show RUN
        --save FOLDER).
    into
        The page; report.html in the run's folder by default.
    figures
        Also draw the figures into this folder, each as PDF, PNG and CSV.
    theory
        Ask the advisor what it would have said before training; the run's folder keeps the answer,
        and the page shows it.
    data
        With theory: a file of the run's samples, where they are no longer where the experiment
        says.
    """
    from fedasym.experiments.reproduction import curves_of
    from fedasym.experiments.tables import find_run
    from fedasym.show.report import read_results
    from fedasym.show.report import report as write_report
    from fedasym.show.reproduction import foresee_run

    place = find_run(run)
    results = read_results(place)
    if data is not None and not theory:
        raise InvalidInput(f"data is {data!r}: it is used only with --theory")
    if theory:
        results = replace(results, foreseen=foresee_run(place, results, data))
    curves = curves_of(results)
    page = write_report(results, place / "report.html" if into is None else into, curves)
    size = page.stat().st_size / 1000
    print(f"Written to {page}, {size:.0f} kB: one file that opens in any browser.")
    if figures is not None:
        from fedasym.show.figures.rounds import draw_figures

        files = draw_figures(results, figures, curves)
        print(f"Drawn to {figures}: {', '.join(Path(file).name for file in files)}.")


@app.command(group=EXPERIMENTS)
def reproduce(
    *names: str,
    quick: bool = False,
    device: str | None = None,
    data: str | None = None,
    into: str | None = None,
    show: Annotated[bool, Parameter(name="--list")] = False,
    check: bool = False,
    tables: str | None = None,
    json: AsJson = False,
) -> None:
    """Rerun the paper: features, tuning, trials, gains, figures, report; resumes if interrupted.

    Example: fedasym reproduce cifar100 --quick

    Parameters
    ----------
    names
        cifar100, shakespeare, emnist, stackoverflow, digits, stackexchange or theory.
    quick
        A scaled copy that takes minutes on two cores.
    device
        cpu or gpu; by default a GPU where there is one.
    data
        A features file instead of the data set's own.
    into
        The run folder; runs/NAME by default.
    show
        List what there is: its figures and tables, what it takes and how much is done.
    check
        Say which of the paper's findings finished runs support, and run nothing.
    tables
        With check: a folder of saved tables, NAME in it for each, instead of run folders.
    """
    from fedasym.experiments import reproduction

    for name in names:
        reproduction.find_target(name)
    if show:
        wanted = names or tuple(reproduction.TARGETS)
        print("\n".join(line for name in wanted for line in describe_target(name)))
        return
    if check:
        check_runs(names, tables, json)
        return
    if not names:
        known = ", ".join(reproduction.TARGETS)
        raise fa.InvalidInput(f"names is empty: name one of {known}, or ask for --list or --check")
    if device not in (None, "cpu", "gpu"):
        raise fa.InvalidInput(f"device is {device!r}: give cpu or gpu, or leave it out")
    if device is not None:
        os.environ["JAX_PLATFORMS"] = {"gpu": "cuda,cpu"}.get(device, device)
    remember_compilations()
    with show_progress(KEPT) as progress:
        for name in names:
            if name == "theory":
                reproduce_theory(into, quick, progress)
                continue
            result = fa.reproduce(
                name, quick=quick, data=data, device=device, into=into, progress=progress
            )
            print(result.results.to_json() if json else result)


def reproduce_theory(into: str | None, quick: bool, progress: Display) -> None:
    """Draw the theory beside simulations, and print both."""
    from fedasym.experiments.reproduction import simulate_limits

    place = Path(into or "runs/theory")
    for name, found in simulate_limits(place, quick=quick, progress=progress).items():
        print(f"{found}\n\nDrawn to {place / name}.png and .pdf\n")


def describe_target(name: str) -> list[str]:
    """A target's figures and tables, what each takes and how far it is."""
    from fedasym.experiments.reproduction import agenda

    title, items = agenda(name)
    return [title, *(f"  {item.what:<42}{item.runs:<22}{item.state}" for item in items), ""]


def check_runs(names: tuple[str, ...], tables: str | None, json: bool) -> None:
    """Print the findings of every run that is there, or of those named."""
    from fedasym.core.numbers import join_with_and
    from fedasym.experiments.reproduction import (
        RUNS,
        TARGETS,
        Claims,
        check_claims,
        claim_identical,
        compare_with_paper,
    )

    root = Path(RUNS if tables is None else tables)
    there = [name for name in TARGETS if (root / name).is_dir() and name != "theory"]
    wanted = list(names) or there
    if not wanted:
        raise fa.InvalidInput(
            f"there is nothing to check in {str(root)!r}: run fedasym reproduce first, or give"
            " --tables"
        )
    read = fa.Results.read if tables is None else fa.Results.load
    results = {name: read(root / name) for name in wanted}
    across = claim_identical(results)
    together = [] if across is None else [Claims(join_with_and(list(results)), (across,))]
    if json:
        held = [*map(check_claims, results.values()), *together]
        print("[" + ",\n".join(each.to_json() for each in held) + "]")
        return
    for name, found in results.items():
        print(f"{compare_with_paper(found, name)}\n\n{check_claims(found)}\n")
    for each in together:
        print(f"{each}\n")


@app.command(group=EXPERIMENTS)
def foresight(
    folder: str = "runs",
    /,
    *,
    page: str | None = None,
    json: AsJson = False,
    latex: AsLatex = False,
) -> None:
    """What was predicted before training beside what was measured, and each predictor's score.

    Example: fedasym foresight docs/reproduction

    Parameters
    ----------
    folder
        A folder of data sets, each a run folder, saved tables or measured.json, with predictions in
        foreseen.json (fedasym report RUN --theory) or foreseen-NAME.json.
    page
        Put the tables into this Markdown file, between its two lines [//]: # (board).
    """
    from fedasym.show.foresight import read_foresights, write_board

    board = read_foresights(folder)
    if json and latex:
        raise fa.InvalidInput("json and latex are both given: choose one of them")
    where = None if page is None else write_board(board, page)
    print(board.to_json() if json else board.to_latex() if latex else board)
    if where is not None and not (json or latex):
        print(f"\nWritten to {where}")


@app.command
def algorithms(*, json: bool = False) -> None:
    """All named algorithms: what each does, which others it equals, and which verbs take it.

    Example: fedasym algorithms

    Parameters
    ----------
    json
        Print JSON, with settings and references, instead of a table.
    """
    rows = fa.algorithms.overview()
    if json:
        import json as writer

        print(writer.dumps(rows, indent=2))
        return
    width = max(len(each["algorithm"]) for each in rows) + 2
    for each in rows:
        told = each["words"] or "-"
        told += f" (limit of {each['limit of']})" if each["limit of"] else ""
        print(f"{each['algorithm']:<{width}}{each['verbs']:<40}{told}")
    print('\nSettings are given in parentheses: "fedprox(penalty=1)", "fedavg(local_steps=20)".')


@app.command
def explore(
    *,
    port: int = 8765,
    host: str = "127.0.0.1",
    open: Annotated[
        bool, Parameter(negative="--no-open", help="Open the page in the browser.")
    ] = True,
    static: str | None = None,
) -> None:
    """Open a page with sliders in the browser: every algorithm's loss, who wins where, and advice
    on a dropped file.

    Example: fedasym explore --static explore.html

    Parameters
    ----------
    port
        Port to listen on; 0 for any free port.
    host
        Address to listen on: this machine alone by default; 0.0.0.0 opens it to the network.
    static
        Write the page to this file instead; it needs neither server nor network.
    """
    from fedasym.show import write_explore_page
    from fedasym.show.explorer import Explorer

    if static is not None:
        page = write_explore_page(static)
        print(
            f"Written to {page}, {page.stat().st_size / 1000:.0f} kB: one file that opens in any"
            " browser."
        )
        return
    with Explorer(host, port) as explorer:
        print(f"Exploring at {explorer.address} (Ctrl-C ends it)", flush=True)
        if not explorer.local:
            print(
                "Everyone who can reach this machine can open it: there is no password.", flush=True
            )
        try:
            if open:
                import webbrowser

                webbrowser.open(explorer.address)
            explorer.serve_forever()
        except KeyboardInterrupt:
            print("\nEnded.")
