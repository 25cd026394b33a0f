"""The command that reruns the paper: a data set from raw samples to figures and findings, or the theory beside simulations."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import fedasym as fa
from fedasym.cli.app import app
from fedasym.cli.experiments import EXPERIMENTS, AsJson
from fedasym.cli.progress import KEPT, Display, show_progress
from fedasym.cli.training import remember_compilations

Flag = Parameter(negative="")


@app.command(group=EXPERIMENTS)
def reproduce(
    *names: str,
    quick: Annotated[bool, Flag] = False,
    device: str | None = None,
    data: str | None = None,
    into: str | None = None,
    show: Annotated[bool, Parameter(name="--list", negative="")] = False,
    check: Annotated[bool, Flag] = False,
    tables: str | None = None,
    json: AsJson = False,
) -> None:
    """Rerun the paper: features, tuning, trials, gains, figures and report; interrupted, it goes on where it was.

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
        List what there is: its figures and tables, what it takes and how far it is.
    check
        Say which of the paper's findings finished runs support, and run nothing.
    tables
        With check: a folder of saved tables, NAME in it for each, instead of run folders.
    """
    from fedasym.experiments import reproduction

    for name in names:
        reproduction.find(name)
    if show:
        print("\n".join(line for name in names or reproduction.TARGETS for line in described(name)))
        return
    if check:
        checked(names, tables, json)
        return
    if not names:
        raise fa.InvalidInput(f"names is empty: name one of {', '.join(reproduction.TARGETS)}, or ask for --list or --check")
    if device not in (None, "cpu", "gpu"):
        raise fa.InvalidInput(f"device is {device!r}: give cpu or gpu, or leave it out")
    if device is not None:
        os.environ["JAX_PLATFORMS"] = {"gpu": "cuda,cpu"}.get(device, device)
    remember_compilations()
    with show_progress(KEPT) as progress:
        for name in names:
            if name == "theory":
                simulated(into, quick, progress)
                continue
            result = fa.reproduce(name, quick=quick, data=data, device=device, into=into, progress=progress)
            print(result.results.to_json() if json else result)


def simulated(into: str | None, quick: bool, progress: Display) -> None:
    """Draw the theory beside simulations, and print both."""
    from fedasym.experiments.limits import against_simulation

    place = Path(into or "runs/theory")
    for name, found in against_simulation(place, quick=quick, progress=progress).items():
        print(f"{found}\n\nDrawn to {place / name}.png and .pdf\n")


def described(name: str) -> list[str]:
    """A target's figures and tables, what each takes and how far it is."""
    from fedasym.experiments.agenda import agenda

    title, items = agenda(name)
    return [title, *(f"  {item.what:<42}{item.runs:<22}{item.state}" for item in items), ""]


def checked(names: tuple[str, ...], tables: str | None, json: bool) -> None:
    """Print the findings of every run that is there, or of those named."""
    from fedasym.experiments.beside import beside
    from fedasym.experiments.claims import check
    from fedasym.experiments.reproduction import RUNS, TARGETS

    root = Path(RUNS if tables is None else tables)
    wanted = list(names) or [name for name in TARGETS if (root / name).is_dir() and name != "theory"]
    if not wanted:
        raise fa.InvalidInput(f"there is nothing to check in {str(root)!r}: run fedasym reproduce first, or give --tables")
    results = {name: fa.Results.read(root / name) if tables is None else fa.Results.load(root / name) for name in wanted}
    if json:
        print("[" + ",\n".join(check(found).to_json() for found in results.values()) + "]")
        return
    for name, found in results.items():
        print(f"{beside(found, name)}\n\n{check(found)}\n")
