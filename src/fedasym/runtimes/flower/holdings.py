"""The samples of one node: where they are is said on the node alone; they may be one client's or several clients'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedasym.errors import InvalidInput
from fedasym.federations.federation import Federation

MEANING = ("label", "client", "features", "split", "task", "classes")  # said for all nodes, or for one
SYNTHETIC = "synthetic"


def held_by(node_config: Mapping[str, Any], run_config: Mapping[str, Any]) -> Federation:
    """The clients of a node, read from the file or folder that its `data-path` names, in any format of `fedasym.datasets.read`.

    label, client, features, split, task, classes: as `read` takes them, from the run config for all nodes alike; what the
        node config says goes first. Empty words count as not said; several features or classes are separated by commas.
    partition-id, num-partitions: take every so many-th client of the file only.
    data-path "synthetic" draws 30 clients, to try things out; so does a simulation, whose nodes have no path.

    >>> first, second = (held_by({"partition-id": k, "num-partitions": 2}, {}) for k in range(2))
    >>> len(first), len(second), first.dimension, set(first.clients) & set(second.clients)
    (15, 15, 60, set())
    """
    from fedasym.datasets import read, synthetic

    path = node_config.get("data-path", SYNTHETIC if "partition-id" in node_config else None)
    if path is None:
        raise InvalidInput("data-path is missing: start this node with --node-config 'data-path=\"...\"'")
    if path == SYNTHETIC:
        drawn = synthetic(task="classification", clients=30, dimension=60, aspect=1, centre=4, radius=3, classes=5)
        return part_of(drawn, node_config)
    # Nodes know nothing of each other's rows: scaling by their own would give the same feature another meaning on each.
    return part_of(read(path, scale="none", **options_of(Path(path), node_config, run_config)), node_config)


def options_of(path: Path, node_config: Mapping[str, Any], run_config: Mapping[str, Any]) -> dict[str, Any]:
    """How to read the file: what is said, the node's word first; a saved federation has its own columns and classes.

    >>> options_of(Path("a.csv"), {"label": "score"}, {"label": "y", "features": "age, hours", "classes": "3", "task": ""})
    {'label': 'score', 'features': ['age', 'hours'], 'classes': 3}
    """
    told = {name: node_config.get(name, run_config.get(name)) for name in MEANING}
    options = {name: value for name, value in told.items() if value not in (None, "", 0)}
    if path.suffix == ".safetensors":
        return {}
    for name in ("features", "classes"):
        if isinstance(options.get(name), str):
            parts = [each.strip() for each in options[name].split(",")]
            options[name] = int(parts[0]) if name == "classes" and len(parts) == 1 and parts[0].isdigit() else parts
    return options


def part_of(federation: Federation, node_config: Mapping[str, Any]) -> Federation:
    """Every `num-partitions`-th client from `partition-id` on; all of them where the node does not say."""
    if "partition-id" not in node_config:
        return federation
    first, step = node_config["partition-id"], node_config.get("num-partitions", 1)
    if not (isinstance(first, int) and isinstance(step, int) and 0 <= first < step):
        raise InvalidInput(
            f"partition-id is {first!r} of num-partitions {step!r}: it must be a whole number from 0 to {step!r} - 1"
        )
    if first >= len(federation):
        raise InvalidInput(f"partition-id is {first}, and the file has {len(federation)} clients: start fewer nodes")
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
    if told := node_config.get("heads-path"):
        return Path(told)
    path = node_config.get("data-path", SYNTHETIC)
    return Path("fedasym.heads") if path == SYNTHETIC else Path(path).resolve().with_suffix(".heads")
