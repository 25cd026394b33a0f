"""The samples of one node: where they are is said on the node alone; they may be one client's or several clients'.

Names of classes are said by people, in the run config, in the node config or in a saved federation: a node never takes
them from the cells of a column, which a run config could name at will.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedasym.core.errors import InvalidInput, one_of, path_of
from fedasym.data.federation.federation import Federation
from fedasym.data.federation.samples import TASKS
from fedasym.deploy.flower.configuration import read_classes
from fedasym.deploy.flower.faults import Fault, NodeFault, report_as

MEANING = ("label", "client", "features", "split", "task", "classes")  # said for all nodes, or for one
SAVED = ".safetensors"  # a federation that its owner saved, with its columns and classes
SYNTHETIC = "synthetic"
DRAWN = 30  # clients of a node without data, or of a simulation


def held_by(node_config: Mapping[str, Any], run_config: Mapping[str, Any]) -> Federation:
    """The clients of a node, read from the file or folder that its `data-path` names, in any format of `fedasym.datasets.read`.

    label, client, features, split, task, classes: as `read` takes them, from the run config for all nodes alike; what the
        node config says goes first. Empty words count as not said; several features or classes are separated by commas.
        Labels that are classes need `classes`, unless a saved federation has its own.
    partition-id, num-partitions: take every so many-th client of the file only.
    data-path "synthetic" draws 30 clients, to try things out; so does a simulation, whose nodes have no path. Such clients
        alone have a `truth`.

    >>> first, second = (held_by({"partition-id": k, "num-partitions": 2}, {}) for k in range(2))
    >>> len(first), len(second), first.dimension, set(first.clients) & set(second.clients)
    (15, 15, 60, set())
    """
    from fedasym.data.sets import read

    place = node_config.get("data-path", SYNTHETIC if "partition-id" in node_config else None)
    if place is None:
        raise NodeFault(Fault.NO_DATA_PATH, "data-path is missing: start this node with --node-config 'data-path=\"...\"'")
    with report_as(Fault.BAD_CONFIGURATION):
        options, path = read_options(node_config, run_config), path_of("data-path", place)
    if place == SYNTHETIC:
        drawn = draw_clients(options.get("task"))
        return replace(part_of(drawn, node_config), truth={"shared": drawn.truth["shared"]} if drawn.truth else None)
    if path.suffix == SAVED:
        federation = read(path)
        check_classes(federation, options.get("classes"))
    else:
        federation = read(path, **options | as_numbers(path, options))
        if federation.task == "classification" and "classes" not in options:
            raise NodeFault(
                Fault.NO_CLASSES,
                "classes is not said and the labels are classes: give their number or names in the run config or in this "
                'node\'s --node-config, or task="regression" where whole numbers are meant as numbers',
            )
    return replace(part_of(federation, node_config), truth=None)


def as_numbers(path: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """How to read a table so that all nodes make the same features of it: columns of numbers, as they are.

    Nodes know nothing of each other's rows: a scale, the levels of a category, and what is constant or an identifier would be
    different on each.
    """
    from fedasym.data.sets.formats import TABLES, find_files
    from fedasym.data.tables.frames import read_file

    sources, kind = find_files(path)
    if kind not in TABLES:
        return {}
    frame = read_file(sources[0].file, names=[options.get("client", "client")])
    listed = options.get("features")
    named = [listed] if isinstance(listed, str) else listed
    taken = {*(options.get(name, name) for name in ("label", "client", "split")), "split", "mask"}
    columns = named or [name for name in frame.columns if name not in taken and frame[name].dtype.is_numeric()]
    if not columns or any(name in frame.columns and frame[name].dtype.is_nested() for name in columns):
        return {"scale": "none"}
    return {"features": columns, "roles": dict.fromkeys(columns, "number"), "scale": "none"}


def draw_clients(task: str | None) -> Federation:
    """Clients to try things out: classes, or numbers where the task is regression."""
    from fedasym.data.sets import synthetic

    if task == "regression":
        return synthetic(task="regression", clients=DRAWN, dimension=20, aspect=0.5, radius=1, noise=0.5)
    return synthetic(task="classification", clients=DRAWN, dimension=60, aspect=1, centre=4, radius=3, classes=5)


def read_options(node_config: Mapping[str, Any], run_config: Mapping[str, Any]) -> dict[str, Any]:
    """How to read a file: what is said, the node's word first.

    >>> read_options({"label": "score"}, {"label": "y", "features": "age, hours", "classes": "3", "task": ""})
    {'label': 'score', 'features': ['age', 'hours'], 'classes': (0, 1, 2)}
    """
    told = {name: node_config.get(name, run_config.get(name)) for name in MEANING}
    options = {name: value for name, value in told.items() if value not in (None, "", 0)}
    for name in ("label", "client", "features", "split", "task"):
        if not isinstance(options.get(name, ""), str):
            raise InvalidInput(f"{name} is {options[name]!r}: give text")
    if "task" in options:
        one_of("task", options["task"], TASKS)
    if "features" in options:
        columns = [each.strip() for each in options["features"].split(",")]
        options["features"] = columns if len(columns) > 1 else columns[0]  # formats without columns have one field
    if "classes" in options:
        options["classes"] = read_classes(options["classes"])
    return options


def check_classes(federation: Federation, named: tuple[Any, ...] | None) -> None:
    """Refuse a saved federation whose classes are not those that were named; a number alone stands for 0, 1, ..."""
    if named is None:
        return
    own = federation.classes or ()
    if own != named and (len(own) != len(named) or named != tuple(range(len(named)))):
        raise NodeFault(Fault.OTHER_CLASSES, f"the saved federation has the classes {own!r}, and the run or node {named!r}")


def part_of(federation: Federation, node_config: Mapping[str, Any]) -> Federation:
    """Every `num-partitions`-th client from `partition-id` on; all of them where the node does not say."""
    if "partition-id" not in node_config:
        return federation
    first, step = node_config["partition-id"], node_config.get("num-partitions", 1)
    if not (isinstance(first, int) and isinstance(step, int) and 0 <= first < step):
        raise NodeFault(
            Fault.BAD_CONFIGURATION,
            f"partition-id is {first!r} of num-partitions {step!r}: it must be a whole number from 0 to {step!r} - 1",
        )
    if first >= len(federation):
        raise NodeFault(
            Fault.BAD_CONFIGURATION,
            f"partition-id is {first}, and the file has {len(federation)} clients: start fewer nodes",
        )
    return of_clients(federation, federation.clients[first::step])


def of_clients(federation: Federation, names: Sequence[Any]) -> Federation:
    """The federation of some of its clients."""
    rows = [federation.rows(name) for name in names]
    chosen = np.concatenate(rows)
    return replace(
        federation,
        features=federation.features[chosen],
        labels=federation.labels[chosen],
        clients=tuple(names),
        owner=np.repeat(np.arange(len(names)), [len(each) for each in rows]),
        split=federation.split[chosen],
        mask=None if federation.mask is None else federation.mask[chosen],
        truth=None,
    )


def heads_folder(node_config: Mapping[str, Any]) -> Path:
    """Where the clients' own heads are kept: `heads-path`, or beside the data, clients.csv in clients.heads."""
    with report_as(Fault.BAD_CONFIGURATION):
        if told := node_config.get("heads-path"):
            return path_of("heads-path", told)
        path = path_of("data-path", node_config.get("data-path", SYNTHETIC))
        return Path("fedasym.heads") if str(path) == SYNTHETIC else path.resolve().with_suffix(".heads")
