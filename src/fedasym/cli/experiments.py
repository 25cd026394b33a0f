"""The commands of experiments: run, tune on own data, manage run folders."""

from __future__ import annotations

import json as json_
import shlex
from dataclasses import asdict
from pathlib import Path

from cyclopts import App

import fedasym as fa
from fedasym.cli import (
    EXPERIMENTS,
    HERE,
    KEPT,
    AsJson,
    AsLatex,
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
    """The runs in a folder: how far each is.

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
    """The results of a run, as far as it is.

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
