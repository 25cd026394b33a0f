"""The commands about data sets: what there is, getting one, looking at one."""

from __future__ import annotations

import json
import sys
from typing import Annotated

from cyclopts import App, Parameter

import fedasym as fa
from fedasym.cli.app import TRAINING, app
from fedasym.cli.progress import GOES_ON, show_progress

data = App(name="data", help="The paper's data sets and their stand-ins: list, fetch, show.", group=TRAINING)
app.command(data)
AsJson = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON instead.")]
Folder = Annotated[str | None, Parameter(help="The folder that has its files; by default where fetch puts them.")]


@data.command(name="list")
def list_() -> None:
    """What there is, and which of it is here."""
    from fedasym.data.sets.catalogue import CATALOGUE
    from fedasym.data.sets.fetching import data_folder

    print(f"{'name':<15}{'here':<6}{'fetch':<7}what")
    for entry in CATALOGUE.values():
        here, fetched = ("yes" if answer else "no" for answer in (entry.folder() is not None, entry.fetched))
        print(f"{entry.name:<15}{here:<6}{fetched:<7}{entry.what}")
    print(
        f"\nFiles are looked for in {data_folder()} (FEDASYM_DATA); no fetch: docs/how-to/datasets.md says where its files are."
    )


@data.command
def fetch(name: str, /, *, source: Annotated[str | None, Parameter(name="--from")] = None) -> None:
    """Download a data set, or check and unpack what you have of it.

    Parameters
    ----------
    name
        emnist, cifar100, shakespeare or stackoverflow.
    source
        A folder or archive that you have already, or the address of a mirror.
    """
    from fedasym.data.sets.catalogue import find
    from fedasym.data.sets.fetching import fetch as fetched

    if not find(name).fetched:
        raise fa.InvalidInput(
            f"{name} cannot be fetched: docs/how-to/datasets.md says where its files are and where to put them"
        )
    told = False
    with show_progress(GOES_ON) as display:

        def progress(share: float, text: str) -> None:
            nonlocal told
            if told:
                display(share, text)
            else:
                print(text, file=sys.stderr)  # what is downloaded, and how large it is
                told = True

        where = fetched(name, source=source, progress=progress)
    print(f"{name} is in {where}")


@data.command
def show(name: str, /, *, folder: Folder = None, seed: int = 0, as_json: AsJson = False) -> None:
    """Counts of a data set beside the paper's, and exact duplicates across its splits.

    Parameters
    ----------
    name
        A data set of fedasym data list.
    seed
        Of the split.
    """
    from fedasym.data.sets.catalogue import Counts, find
    from fedasym.data.sets.leaks import duplicates
    from fedasym.pretraining.recipes import FEATURES, RECIPES

    entry = find(name)
    federation = fa.datasets.load(name, folder=folder, seed=seed)
    dimension = FEATURES[RECIPES[name].network] * federation.outputs
    sizes = (int(federation.counts(split).sum()) for split in ("train", "validation", "test"))
    counts, names = [len(federation), dimension, *sizes], Counts._fields
    copies = duplicates(federation)
    if as_json:
        paper = dict(zip(names, entry.paper, strict=True)) if entry.paper else None
        print(json.dumps({"name": name, **dict(zip(names, counts, strict=True)), "paper": paper, "duplicates": copies.table()}))
        return
    print(f"{federation}\n\n{'':<12}" + "".join(f"{column:>12}" for column in names))
    print(f"{'here':<12}" + "".join(f"{count:>12,}" for count in counts))
    theirs = [f"{count:,}" for count in entry.paper] if entry.paper else ["-"] * len(names)
    print(f"{'the paper':<12}" + "".join(f"{count:>12}" for count in theirs))
    print("\nDimension: of the model that the clients train, the features of the data set's network by classes.")
    print(f"\n{copies}")
