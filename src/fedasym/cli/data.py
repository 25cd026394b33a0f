"""The commands about data sets and features: listing, fetching, inspecting, networks."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

import fedasym as fa
from fedasym.cli import (
    GOES_ON,
    TRAINING,
    AsJson,
    app,
    find_data,
    names,
    read_federation,
    show_progress,
    whole_numbers,
)
from fedasym.cli.training import COLUMNS, Columns

WHAT = "The paper's data sets and their stand-ins: list, fetch, show."
data = App(name="data", help=WHAT, group=TRAINING)
app.command(data)
Folder = Annotated[
    str | None, Parameter(help="The folder that has its files; by default where fetch puts them.")
]


@data.command(name="list")
def list_datasets() -> None:
    """List the data sets, and which of them are on this machine.

    Example: fedasym data list
    """
    from fedasym.data import CATALOGUE, data_folder

    print(f"{'name':<15}{'here':<6}{'fetch':<7}what")
    for entry in CATALOGUE.values():
        here, fetched = (
            "yes" if answer else "no" for answer in (entry.folder() is not None, entry.downloadable)
        )
        print(f"{entry.name:<15}{here:<6}{fetched:<7}{entry.what}")
    print(
        f"\nFiles are looked for in {data_folder()} (FEDASYM_DATA). For a set that fetch does not"
        " have, docs/how-to/datasets.md says where its files are."
    )


@data.command
def fetch(name: str, /, *, source: Annotated[str | None, Parameter(name="--from")] = None) -> None:
    """Download a data set, or check and unpack what you have of it.

    Example: fedasym data fetch emnist

    Parameters
    ----------
    name
        emnist, cifar100, shakespeare or stackoverflow.
    source
        A folder or archive that you have already, or the address of a mirror.
    """
    from fedasym.data import fetch as fetch_files
    from fedasym.data import find_dataset

    if not find_dataset(name).downloadable:
        raise fa.InvalidInput(
            f"{name} cannot be fetched: docs/how-to/datasets.md says where its files are and where"
            " to put them"
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

        where = fetch_files(name, source=source, progress=progress)
    print(f"{name} is in {where}")


@data.command
def show(name: str, /, *, folder: Folder = None, seed: int = 0, as_json: AsJson = False) -> None:
    """Counts of a data set beside the paper's, and exact duplicates across its splits.

    Example: fedasym data show digits

    Parameters
    ----------
    name
        A data set of fedasym data list.
    seed
        Seed of the split.
    """
    from fedasym.data import PaperCounts, find_dataset
    from fedasym.data.splits import duplicates
    from fedasym.pretraining import FEATURES, RECIPES

    entry = find_dataset(name)
    federation = fa.datasets.load(name, folder=folder, seed=seed)
    dimension = FEATURES[RECIPES[name].network] * federation.outputs
    sizes = (int(federation.counts(split).sum()) for split in ("train", "validation", "test"))
    counts = [len(federation), dimension, *sizes]
    names = PaperCounts._fields
    copies = duplicates(federation)
    if as_json:
        paper = dict(zip(names, entry.paper, strict=True)) if entry.paper else None
        print(
            json.dumps(
                {
                    "name": name,
                    **dict(zip(names, counts, strict=True)),
                    "paper": paper,
                    "duplicates": copies.table(),
                }
            )
        )
        return
    print(f"{federation}\n\n{'':<12}" + "".join(f"{column:>12}" for column in names))
    print(f"{'here':<12}" + "".join(f"{count:>12,}" for count in counts))
    theirs = [f"{count:,}" for count in entry.paper] if entry.paper else ["-"] * len(names)
    print(f"{'the paper':<12}" + "".join(f"{count:>12}" for count in theirs))
    print(
        "\nDimension: of the model that the clients train, the features of the data set's network"
        " by classes."
    )
    print(f"\n{copies}")


@data.command
def partition(
    file: str,
    /,
    *,
    into: str,
    clients: int = 10,
    dirichlet: float | None = None,
    shards: int | None = None,
    classes_per_client: int | None = None,
    quantity: float | None = None,
    iid: bool = False,
    samples: int | None = None,
    least: int = 3,
    label: str = "label",
    client: str | None = None,
    task: str | None = None,
    encoding: str | None = None,
    seed: int = 0,
    plot: str | None = None,
) -> None:
    """Deal one table of samples out to clients, as the literature does.

    Example: fedasym data partition table.csv --dirichlet 0.3 --clients 20 --into clients

    Parameters
    ----------
    file
        A table, an .npz file, or a file or folder of clients, whose samples are pooled.
    into
        A folder, in which clients.safetensors is written.
    clients
        How many clients.
    dirichlet
        Alpha of a Dirichlet law of class shares: small is uneven. 0.5 where no law is named.
    shards
        Samples sorted by class and cut; this many pieces for each client.
    classes_per_client
        This many classes for each client.
    quantity
        Alpha of a Dirichlet law of sizes; all clients have the same classes.
    iid
        At random, in equal parts.
    samples
        Samples of each client; with --dirichlet every client then draws its own class shares.
    least
        Clients that are dealt fewer samples are given some of the largest.
    label
        The column or array of labels.
    client
        A table's column of clients, whose samples are pooled; "client" where there is one. It is
        not a feature.
    task
        classification or regression, where labels are numbers.
    encoding
        How a text table was saved, such as cp1252; UTF-8 by default.
    seed
        Same seed, same clients.
    plot
        Draw who has which classes to this file (.png, .svg or .pdf).
    """
    from fedasym.data.formats import read_pool
    from fedasym.data.splits import FRACTIONS

    laws: dict[str, dict[str, Any]] = {
        "dirichlet": {"alpha": dirichlet},
        "shards": {"shards": shards},
        "classes": {"classes_per_client": classes_per_client},
        "quantity": {"alpha": quantity},
        "iid": {"iid": iid or None},
    }
    told = [how for how, given in laws.items() if None not in given.values()]
    if len(told) > 1:
        raise fa.InvalidInput(f"{' and '.join(told)} are both given: name one law")
    how = told[0] if told else "dirichlet"
    pool, split = read_pool(file, label, client, task=task, encoding=encoding)
    given = {name: value for name, value in laws[how].items() if name != "iid"}
    dealt = fa.datasets.partition(
        pool,
        how=how,
        clients=clients,
        samples=samples,
        least=least,
        split=None if split else FRACTIONS,
        seed=seed,
        **given,
    )
    Path(into).mkdir(parents=True, exist_ok=True)
    where = dealt.save(Path(into) / "clients.safetensors")
    print(f"{dealt}\n\nWritten to {where}")
    if plot:
        print(f"Drawn to {dealt.plot(plot)}")


@data.command
def shard(
    file: str,
    /,
    *,
    into: str,
    shards: int | None = None,
    layout: str = "safetensors",
    columns: Columns = COLUMNS,
) -> None:
    """Write clients to a folder of shards, from which commands read the clients that they need.

    Example: fedasym data shard clients.safetensors --into clients

    Parameters
    ----------
    file
        A file or folder of clients that fits into memory. What does not is written block by block
        from Python, by fa.datasets.write_shards.
    into
        A new folder.
    shards
        How many files; by default as many as make 64 MB each.
    layout
        The files' format: safetensors, which is read fastest, or parquet, for other tools.
    """
    federation = read_federation(file, columns, show=True)
    if shards is None:
        where = fa.datasets.write_shards(federation.blocks(), into, layout=layout)
    else:
        where = federation.save(into, shards=shards, layout=layout)
    opened = fa.Federation.open(where)
    print(f"{opened}\n\nWritten to {where}. Train on it: fedasym train {where}")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Place:
    """Where it runs, and where results go."""

    device: str | None = None
    """cpu, or cuda for a GPU; by default a GPU where there is one."""
    precision: str | None = None
    """mixed (products in bfloat16) or float32; mixed on a GPU by default."""
    into: str | None = None
    """A folder for networks and features; by default in the cache folder of this system."""
    folder: str | None = None
    """The folder that has the data set's files; by default where fedasym data fetch puts them."""


PLACE = Place()


@app.command(group=TRAINING)
def pretrain(
    data: str,
    /,
    *,
    network: str | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    optimiser: str | None = None,
    step: float | None = None,
    decay: float | None = None,
    decay_every: int | None = None,
    decay_at: str | None = None,
    augmentation: str | None = None,
    tune: bool = False,
    seed: int = 0,
    columns: Columns = COLUMNS,
    place: Place = PLACE,
) -> None:
    """Train a network on the training samples of all clients together, as the paper's were.

    Example: fedasym pretrain digits --epochs 5

    Parameters
    ----------
    data
        A data set of fedasym data list, or a file or folder of your own samples (then give
        --network).
    network
        cnn, resnet18, character_lstm, word_lstm, or module:name of your own; the data set's own by
        default.
    epochs
        Passes over all training samples.
    batch
        Samples in a batch.
    optimiser
        adam or sgd.
    step
        First step size.
    decay
        What the step size is multiplied by.
    decay_every
        How many epochs lie between two such changes.
    decay_at
        Instead: the epochs at which it is multiplied, separated by commas.
    augmentation
        Of images: crop, flip, rotation, separated by commas.
    tune
        Train the paper's grid, 5 step sizes by 3 decays, and choose on validation samples.
    seed
        Seed of the first weights, the order of samples and the augmentation.
    """
    name, federation = find_data(data, columns)
    base = fa.pretraining.RECIPES.get(name) or (
        fa.pretraining.NetworkRecipe(network) if network else None
    )
    recipe = base and base.replace(
        network=network,
        epochs=epochs,
        batch=batch,
        optimiser=optimiser,
        step=step,
        decay=decay,
        decay_every=decay_every,
        decay_at=None if decay_at is None else tuple(whole_numbers("decay_at", decay_at)),
        augmentation=None if augmentation is None else tuple(names(augmentation) or ()),
    )
    with show_progress(GOES_ON) as progress:
        result = fa.pretraining.pretrain(
            name, federation, recipe=recipe, tune=tune, seed=seed, **vars(place), progress=progress
        )
    print(result)


@app.command(group=TRAINING)
def features(
    data: str,
    /,
    *,
    network: str | None = None,
    array: str | None = None,
    dtype: str = "float16",
    columns: Columns = COLUMNS,
    place: Place = PLACE,
) -> None:
    """Store what a network's last layer sees of every sample, by client, ready for fedasym train.

    Example: fedasym features digits

    Parameters
    ----------
    data
        A data set of fedasym data list, or a file or folder of your own samples.
    network
        A file of fedasym pretrain, or module:name of your own; by default what was pretrained last
        for this data set.
    array
        Instead of a network: a .npy, .npz or .safetensors file that has the features, a row per
        sample.
    dtype
        float16 or float32.
    """
    name, federation = find_data(data, columns)
    with show_progress(GOES_ON) as progress:
        path = fa.pretraining.features(
            name,
            federation,
            network=network,
            array=array,
            dtype=dtype,
            **vars(place),
            progress=progress,
        )
    print(f"{fa.Federation.from_safetensors(path)}\n\nTrain on it: fedasym train {path}")
