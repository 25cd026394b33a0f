"""The commands of experiments: run, tune on own data, manage run folders; a run's page, the paper's
runs and findings, what was foreseen; all algorithms and the explorer.
"""

from __future__ import annotations

import json as json_
import os
import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

import fedasym as fa
from fedasym.cli import (
    EXPERIMENTS,
    HERE,
    KEPT,
    AsJson,
    AsLatex,
    Display,
    Where,
    app,
    names,
    parse_grid,
    read_federation,
    redirect_answers,
    show_progress,
)
from fedasym.cli.training import (
    COLUMNS,
    NUMBERS,
    PAPER,
    Columns,
    Grids,
    Intercept,
    Names,
    Numbers,
    remember_compilations,
)

runs = App(
    name="runs",
    help="Run folders: list, show, clean.",
    group=EXPERIMENTS,
    group_commands=EXPERIMENTS,
)
app.command(runs)


def print_results(results: fa.Results, json: bool, latex: bool) -> None:
    """In the form that was asked for."""
    if json and latex:
        raise fa.InvalidInput("json and latex are both given: choose one of them")
    print(results.to_json() if json else results.to_latex() if latex else results)


@app.command(group=EXPERIMENTS)
def run(
    file: str | None = None,
    /,
    *,
    into: str | None = None,
    data: str | None = None,
    quick: bool = False,
    schema: bool = False,
    where: Where = HERE,
    json: AsJson = False,
    latex: AsLatex = False,
) -> None:
    """Run an experiment: tune on validation samples, repeat, compare; resumes if interrupted.

    Example: fedasym run mine.toml --into runs/mine

    Parameters
    ----------
    file
        A TOML file, or one that comes with fedasym: emnist, cifar100, shakespeare, stackoverflow,
        digits, stackexchange.
    into
        The run folder, a path or a URL; runs/NAME by default. Several processes may share it.
    data
        A file of client data instead of the experiment's own.
    quick
        A scaled copy: few clients, rounds, values and trials.
    schema
        Print the JSON schema of experiment files, and do nothing else.
    """
    if schema:
        print(fa.Experiment.schema_text())
        return
    if file is None:
        raise fa.InvalidInput(
            "file is missing: name a TOML file, or an experiment such as cifar100"
        )
    named = not Path(file).is_file() and Path(file).suffix != ".toml"
    experiment = fa.Experiment.paper(file) if named else fa.Experiment.from_toml(file)
    experiment = experiment if data is None else experiment.with_data(data)
    experiment = experiment.quick() if quick else experiment
    on = where.runtime()
    remember_compilations()
    with show_progress(KEPT) as progress, redirect_answers():
        results = fa.run(experiment, into=into, progress=progress, on=on)
    print_results(results, json, latex)
    if not json and not latex:
        from fedasym.experiments.reproduction import RUNS

        place = into or Path(RUNS, experiment.name)
        print(f"\nKept in {place}. For an HTML report: fedasym report {shlex.quote(str(place))}")


@app.command(group=EXPERIMENTS)
def sweep(
    data: str,
    /,
    *,
    algorithms: Names = PAPER,
    grid: Grids = None,
    seeds: int = 1,
    numbers: Numbers = NUMBERS,
    protocol: str | None = None,
    intercept: Intercept = None,
    precision: str = "float32",
    into: str | None = None,
    columns: Columns = COLUMNS,
    where: Where = HERE,
    json: AsJson = False,
    latex: AsLatex = False,
) -> None:
    """Tune algorithms on your own client data by validation samples, then test what is chosen.

    Example: fedasym sweep clients.csv --algorithms local,fedavg,ftfa --label y --client who

    Parameters
    ----------
    data
        A file or folder of samples, as fedasym train takes it, or synthetic: 30 drawn clients.
    grid
        A setting and its values, such as server-step=0.01,0.1,1; repeat it for more. By default the
        paper's grids with steps for the scale of the
        features, or the paper's as they are where a protocol is named. Every combination is
        trained.
    seeds
        How many seeds test what was chosen; 0 for none.
    protocol
        text: as the paper says; code: as its released code does. Unless named: the text's rules,
        with an intercept and with steps for the scale of the features.
    intercept
        Whether heads have one, shared and personal; they do by default, unless a protocol is named:
        text has none, code has one.
    precision
        float32, float64, mixed (float32 whose products an accelerator may shorten) or, for
        sequences, bfloat16.
    into
        The run folder, a path or a URL; runs/sweep-NAME by default.
    """
    on = where.runtime()
    remember_compilations()
    federation = read_federation(data, columns, show=not json)
    with show_progress(KEPT) as progress, redirect_answers():
        results = fa.sweep(
            names(algorithms) or [],
            federation,
            grid=parse_grid(grid),
            seeds=seeds,
            name="sweep",
            into=Path("runs", f"sweep-{Path(data).stem}") if into is None else into,
            progress=progress,
            on=on,
            **asdict(numbers),
            protocol=protocol,
            intercept=intercept,
            precision=precision,
        )
    print_results(results, json, latex)


@runs.command(name="list")
def list_folder(folder: str = "runs", /) -> None:
    """The runs in a folder, and how far each is.

    Example: fedasym runs list

    Parameters
    ----------
    folder
        The folder that has the run folders.
    """
    from fedasym.experiments.tables import list_runs

    print(list_runs(folder))


@runs.command
def show(
    run: str,
    /,
    *,
    comparisons: bool = False,
    budget: bool = False,
    save: str | None = None,
    json: AsJson = False,
    latex: AsLatex = False,
) -> None:
    """The results of a run so far.

    Example: fedasym runs show mine --comparisons

    Parameters
    ----------
    run
        A run folder (a path or a URL), the name of one in runs, or a folder that --save wrote.
    comparisons
        Also print paired tests of the algorithms over trials.
    budget
        Also print what every algorithm was given.
    save
        Write the tables to this folder, small enough to be committed.
    """
    from fedasym.experiments.folder import ENVIRONMENT
    from fedasym.experiments.tables import find_run, is_saved

    place = find_run(run)
    results = fa.Results.load(place) if is_saved(place) else fa.Results.read(place)
    if save is not None:
        results.save(save)
    if json or latex:
        print_results(results, json, latex)
        if latex and comparisons:
            print(f"\n{results.comparisons().to_latex()}")
        return
    print(results)
    if comparisons:
        print(f"\n{results.comparisons()}")
    if budget:
        print("\n" + "\n".join(results.budget))
    if (place / ENVIRONMENT).exists():
        made = json_.loads((place / ENVIRONMENT).read_text())
        tools = f"fedasym {made['fedasym']}, jax {made['jax']} on {made['device']}"
        print(f"\nLast computed with {tools}: {made['command']}")


@runs.command
def clean(run: str, /) -> None:
    """Remove finished pieces that the experiment no longer asks for, and remains of killed runs.

    Example: fedasym runs clean mine

    Parameters
    ----------
    run
        A run folder, or the name of one in runs.
    """
    from fedasym.core.runtime import is_url
    from fedasym.experiments.tables import clean_run, find_run

    if is_url(run):
        raise fa.InvalidInput(
            f"run is {run!r}: a folder behind a URL is cleaned with the tools of its store"
        )
    files, size = clean_run(find_run(run))
    print(f"Removed {files} file{'' if files == 1 else 's'}, {size / 1e6:.1f} MB.")


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
        With --theory: a file of the run's samples, if they are no longer where the experiment says.
    """
    from fedasym.experiments.reproduction import curves_of
    from fedasym.experiments.tables import find_run
    from fedasym.show.report import read_results
    from fedasym.show.report import report as write_report
    from fedasym.show.reproduction import foresee_run

    place = find_run(run)
    results = read_results(place)
    if data is not None and not theory:
        raise fa.InvalidInput(f"data is {data!r}: it is used only with --theory")
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
